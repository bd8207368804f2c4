"""The library finds the settings that the commands find; what a call says itself counts first.

In `integration`, because settings are files and variables of the process; no proxy is started.
"""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from reliable_pubsub import ConfigurationError, Publisher, RetryPolicy, Subscriber
from reliable_pubsub.common.config_show import main as config
from reliable_pubsub.common.core.client_state import MemoryState
from reliable_pubsub.common.core.keys import keys_of_endpoint
from reliable_pubsub.common.core.message_base import Role
from reliable_pubsub.common.key_files import new_pair
from reliable_pubsub.common.state_file import StateFile
from reliable_pubsub.common.surroundings import endpoint_here
from reliable_pubsub.common.world import World
from reliable_pubsub.subscriber.push.push_feature import PushFeature
from tests.fakes import FakeTransport, a_world

from .harness import REPOSITORY

Client = Publisher | Subscriber


@pytest.fixture(autouse=True)
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Nothing is found here but what a test puts there."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def settings_json(folder: Path, client: str, **settings: Any) -> None:
    (folder / client).mkdir(parents=True, exist_ok=True)
    (folder / client / "settings.json").write_text(json.dumps(settings))


def seen(client: Client) -> tuple[str, float, Any, bool]:
    """What counts for a client: endpoint, patience, whether its state is on disk."""
    asker = client._opened.asker
    with client:
        on_disk = isinstance(client._opened.state, StateFile)
        return asker.transport.endpoint, asker.retry.timeout_s, asker.retry.retries_max, on_disk


CLIENTS: list[tuple[Callable[..., Client], str, str]] = [
    (Publisher, "publisher_endpoint", "tcp://127.0.0.1:5555"),
    (Subscriber, "subscriber_endpoint", "tcp://127.0.0.1:5556"),
]
both = pytest.mark.parametrize(("kind", "setting", "default"), CLIENTS)


@both
def test_what_is_not_set_has_its_default_and_no_state_on_disk(
    kind: Callable[..., Client], setting: str, default: str
) -> None:
    assert seen(kind("c")) == (default, 2.0, None, False)


@both
def test_an_argument_counts_before_the_file_and_the_file_before_the_environment(
    kind: Callable[..., Client],
    setting: str,
    default: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    variable = f"RELIABLE_PUBSUB_{setting.upper()}"
    for name, value in {
        "RELIABLE_PUBSUB_DIR": str(tmp_path / "settings"),
        variable: "tcp://127.0.0.1:7001",
        "RELIABLE_PUBSUB_ACK_TIMEOUT": "0.5",
        "RELIABLE_PUBSUB_SEND_RETRIES": "3",
        "RELIABLE_PUBSUB_STATE_DIR": str(tmp_path / "state"),
    }.items():
        monkeypatch.setenv(name, value)
    assert seen(kind("c")) == ("tcp://127.0.0.1:7001", 0.5, 3, True)

    settings_json(tmp_path / "settings", "c", **{setting: "tcp://127.0.0.1:7002"}, send_retries=4)
    assert seen(kind("c")) == ("tcp://127.0.0.1:7002", 0.5, 4, True)
    assert seen(kind("other")) == ("tcp://127.0.0.1:7001", 0.5, 3, True)

    said = kind(
        "c",
        endpoint="tcp://127.0.0.1:7003",
        retry=RetryPolicy(timeout_s=9.0, retries_max=0),
        _world=World(state=MemoryState()),
    )
    assert seen(said) == ("tcp://127.0.0.1:7003", 9.0, 0, False)


def test_config_show_says_what_counts_for_the_library(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings_json(tmp_path, "c", send_retries=4)
    monkeypatch.setenv("RELIABLE_PUBSUB_ACK_TIMEOUT", "0.5")

    shown = json.loads(CliRunner().invoke(config, ["show", "c", "--json"]).stdout)

    _, timeout_s, retries_max, _ = seen(Publisher("c"))
    assert shown["ack_timeout"]["value"] == timeout_s
    assert shown["send_retries"]["value"] == retries_max
    assert shown["send_retries"]["origin"] == "c/settings.json, line 1"


def test_the_silence_of_pushes_is_a_setting_of_the_library_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("RELIABLE_PUBSUB_PUSH_SILENCE_MAX", "0.25")

    with Subscriber("s") as subscriber:
        assert subscriber._engine.feature(PushFeature).pushing._timing.silence_s_max == 0.25


def test_a_client_whose_transport_is_brought_finds_nothing_and_may_be_pushed_to(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("RELIABLE_PUBSUB_ACK_TIMEOUT", "soon")
    monkeypatch.setenv("RELIABLE_PUBSUB_STATE_DIR", "state")
    transport = FakeTransport(lambda frames: None)

    with Subscriber("s", _world=a_world(transport)) as subscriber:
        subscriber.use_push("t", True)
        assert isinstance(subscriber._opened.state, MemoryState)
        assert subscriber._opened.asker.retry == RetryPolicy()


@both
def test_a_wrong_setting_is_refused_with_its_origin(
    kind: Callable[..., Client],
    setting: str,
    default: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    settings_json(tmp_path, "c", ack_timeout="soon")
    wrong = r"c/settings.json, line 1, ack_timeout: found 'soon'"
    with pytest.raises(ConfigurationError, match=wrong):
        kind("c", retry=RetryPolicy())

    monkeypatch.setenv("RELIABLE_PUBSUB_SEND_RETRIES", "often")
    with pytest.raises(ConfigurationError, match="RELIABLE_PUBSUB_SEND_RETRIES: found 'often'"):
        kind("d")


@both
def test_an_endpoint_outside_this_machine_needs_a_word(
    kind: Callable[..., Client],
    setting: str,
    default: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    far = "tcp://192.0.2.1:5555"
    with pytest.raises(ConfigurationError, match=r"not encrypted.*allow_plaintext=True"):
        kind("c", endpoint=far)
    with pytest.raises(ConfigurationError, match=r"endpoint 'localhost:5555': expected"):
        kind("c", endpoint="localhost:5555")
    with pytest.raises(ConfigurationError, match=r"endpoint '': expected"):
        kind("c", endpoint="")

    monkeypatch.setenv(f"RELIABLE_PUBSUB_{setting.upper()}", far)
    with pytest.raises(ConfigurationError, match="not encrypted"):
        kind("c")
    assert seen(kind("c", allow_plaintext=True))[0] == far
    assert "not encrypted" in caplog.text


def test_where_pushes_are_found_is_held_to_the_same_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RELIABLE_PUBSUB_PUSH_VIA", "tcp://192.0.2.1:5557")

    with pytest.raises(ConfigurationError, match=r"192.0.2.1.*not encrypted"):
        Subscriber("s")
    with pytest.raises(ConfigurationError, match="--push-via: found 'here'"):
        Subscriber("s", push_via="here")


def test_a_mistyped_variable_is_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("RELIABLE_PUBSUB_ACK_TIMEOT", "0.5")
    monkeypatch.setenv("RELIABLE_PUBSUB_DIR", ".")

    with caplog.at_level(logging.WARNING, "reliable_pubsub"), Publisher("c"):
        (record,) = caplog.records

    assert "did you mean 'RELIABLE_PUBSUB_ACK_TIMEOUT'" in record.getMessage()
    assert record.name == "reliable_pubsub.publisher"


@pytest.mark.parametrize(
    ("imported", "shown"),
    [("reliable_pubsub", b"seen\n"), ("reliable_pubsub.common.command_line", b"")],
    ids=["program", "command"],
)
def test_warnings_are_on_stderr_unless_a_command_writes_its_own(
    imported: str, shown: bytes
) -> None:
    """A process of its own, because pytest listens."""
    program = (
        f"import logging, {imported}\n"
        "logging.getLogger('reliable_pubsub.publisher').warning('seen')\n"
        "logging.getLogger('reliable_pubsub.publisher').info('not to be seen')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=REPOSITORY, capture_output=True, check=True
    )

    assert done.stderr == shown


def test_a_settings_json_that_is_no_file_is_refused_and_not_passed_over(tmp_path: Path) -> None:
    (tmp_path / "p" / "settings.json").mkdir(parents=True)

    with pytest.raises(ConfigurationError, match=r"p/settings\.json: cannot be read"):
        Publisher("p")


def test_a_blank_endpoint_of_pushed_data_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="endpoint ' '"):
        Subscriber("s", push_via=" ")


@pytest.mark.parametrize(
    ("role", "default"),
    [("publisher", "tcp://127.0.0.1:5555"), ("subscriber", "tcp://127.0.0.1:5556")],
)
def test_the_spark_format_finds_its_endpoint_where_the_clients_do(
    nowhere: Path, monkeypatch: pytest.MonkeyPatch, role: Role, default: str
) -> None:
    option, file, variable = (f"tcp://127.0.0.1:{port}" for port in (7001, 7002, 7003))
    assert endpoint_here("pipeline", role, None) == default

    monkeypatch.setenv(f"RELIABLE_PUBSUB_{role.upper()}_ENDPOINT", variable)
    assert endpoint_here("pipeline", role, None) == variable

    settings_json(nowhere, "pipeline", **{f"{role}_endpoint": file})
    assert endpoint_here("pipeline", role, None) == file
    assert endpoint_here("pipeline", role, option) == option


def test_the_endpoint_of_the_spark_format_has_the_keys_of_the_settings(nowhere: Path) -> None:
    for name in ("proxy", "spark"):
        new_pair(nowhere, name)
    keys = {"secret_key": "spark.key_secret", "server_key": "proxy.key"}
    settings_json(nowhere, "pipeline", **keys)

    for said in (None, "tcp://192.0.2.1:5556"):
        assert keys_of_endpoint(endpoint_here("pipeline", "subscriber", said)) is not None
