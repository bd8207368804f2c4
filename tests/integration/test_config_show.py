"""`config show`: which settings a component does not use, and whether any process has its name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from reliable_pubsub import Publisher
from reliable_pubsub.common.config_show import main
from reliable_pubsub.common.core.components import COMPONENTS, unused_settings
from reliable_pubsub.common.core.settings import BY_NAME

from .harness import NOWHERE


@pytest.fixture(autouse=True)
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is found here but what a test puts there."""
    monkeypatch.chdir(tmp_path)


def shown(component: str) -> tuple[dict[str, Any], str]:
    result = CliRunner().invoke(main, ["show", component, "--json"])
    return json.loads(result.stdout), result.stderr


def test_marks_what_a_component_does_not_use_and_warns_of_it_in_its_file() -> None:
    """Row 0.12: the seed gives `send_retries` to the broker, which sends nothing again."""
    Path("proxy").mkdir()
    Path("proxy/settings.json").write_text('{"send_retries": 5, "history_s": 60}')

    rows, warned = shown("proxy")

    assert (rows["send_retries"]["used"], rows["history_s"]["used"]) == (False, True)
    assert "proxy/settings.json, line 1: send_retries has no effect" in warned
    assert "history_s" not in warned
    table = " ".join(CliRunner().invoke(main, ["show"]).stdout.split())
    assert "not used" in table


def test_warns_of_a_component_that_no_process_has() -> None:
    _, warned = shown("publisher")

    assert "publisher is the id of no client with a state in client-state" in warned


@pytest.mark.parametrize("component", COMPONENTS)
def test_a_proxy_a_relay_and_the_commands_are_known(component: str) -> None:
    assert shown(component)[1] == ""


def test_a_client_with_a_state_is_known_and_uses_no_setting_of_a_relay() -> None:
    Publisher("publisher-1", endpoint=NOWHERE, state_dir="client-state").close()

    rows, warned = shown("publisher-1")

    assert warned == ""
    assert rows["ack_timeout"]["used"]
    assert not rows["relay_lease"]["used"]


def test_every_setting_is_used_by_some_component() -> None:
    unused = [unused_settings(one, is_client=True) for one in (*COMPONENTS, "an-id")]

    assert not frozenset.intersection(*unused)
    assert frozenset.union(*unused) <= BY_NAME.keys()
