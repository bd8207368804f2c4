"""Keys, tokens and switches of a proxy that runs as a service."""

from __future__ import annotations

import secrets
import urllib.error
import urllib.request
from collections.abc import Generator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from reliable_pubsub.common.access import authentication
from reliable_pubsub.common.access.authentication import LOOK_S, Authentication
from reliable_pubsub.common.core.certificates import NO_DATES, KeyDates
from reliable_pubsub.common.core.keys import ServerKeys
from reliable_pubsub.common.key_files import new_pair, read_pair
from reliable_pubsub.lab.rig.keyed_service import KeyedService
from reliable_pubsub.lab.rig.service import RelayProcess

from .harness import PATIENCE_S, Process, Service, eventually, zmq_context
from .test_operating import ANY_ADDRESS, metrics_url, page

EVERYWHERE = "0.0.0.0:*"


@pytest.fixture
def token(tmp_path: Path) -> Path:
    file = tmp_path / "token"
    file.write_text(secrets.token_hex(32) + "\n")
    file.chmod(0o600)
    return file


def refused(process: Process) -> str:
    assert process.wait() == 2
    return " ".join(process.stderr.split())


def page_with(url: str, token: str) -> int:
    asked = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"})
    try:
        with urllib.request.urlopen(asked, timeout=PATIENCE_S) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


class TestMetricsBeyondThisMachine:
    @pytest.mark.parametrize("allowed", [(), ("--allow-plaintext",)])
    def test_need_their_own_switch_or_a_token(
        self, service: Service, allowed: tuple[str, ...]
    ) -> None:
        proxy = service.launch_proxy("--metrics-endpoint", EVERYWHERE, *allowed)

        text = refused(proxy)

        assert "--metrics-token" in text
        assert "--metrics-allow-plaintext" in text

    def test_open_no_endpoint_of_messages(self, service: Service) -> None:
        service.publisher_endpoint = "tcp://0.0.0.0:*"
        options = ("--metrics-endpoint", EVERYWHERE, "--metrics-allow-plaintext")

        assert "messages" in refused(service.launch_proxy(*options))

    def test_with_the_switch_are_served_and_warned_of(self, service: Service) -> None:
        proxy = service.start_proxy("--metrics-endpoint", EVERYWHERE, "--metrics-allow-plaintext")

        assert page(metrics_url(proxy).replace("0.0.0.0", "127.0.0.1"))[0] == 200
        assert "warning: metrics_endpoint" in proxy.stderr

    @pytest.mark.parametrize("role", ["proxy", "relay"])
    def test_with_a_token_ask_for_it_and_probes_need_none(
        self, service: Service, token: Path, role: str
    ) -> None:
        options = ("--metrics-endpoint", EVERYWHERE, "--metrics-token", str(token))
        if role == "proxy":
            process: Process = service.start_proxy(*options)
        else:
            service.start_proxy()
            upstream = ("--upstream", str(service.subscriber_endpoint))
            process = RelayProcess(service, "r", *upstream, *options).process
        url = metrics_url(process).replace("0.0.0.0", "127.0.0.1")

        assert page(url)[0] == page_with(url, "wrong") == page_with(url, "é") == 401
        assert page_with(url, token.read_text().strip()) == 200
        assert page(url.replace("/metrics", "/healthz"))[0] == 200


@pytest.mark.parametrize(
    ("content", "mode", "reason"),
    [("short", 0o600, "holds no token"), ("x" * 32, 0o644, "others may read")],
)
def test_a_token_that_protects_nothing_is_refused(
    service: Service, token: Path, content: str, mode: int, reason: str
) -> None:
    token.write_text(content)
    token.chmod(mode)

    assert reason in refused(
        service.launch_proxy("--metrics-endpoint", ANY_ADDRESS, "--metrics-token", token)
    )


def test_a_start_that_has_lost_its_key_is_refused_if_keys_are_required(service: Service) -> None:
    """An empty variable is no key; with --allow-plaintext alone any client could connect."""
    service.publisher_endpoint = "tcp://0.0.0.0:*"
    text = refused(service.launch_proxy("--allow-plaintext", "--require-keys"))

    assert "secret_key and clients not set" in text
    process = service.run(
        "relay", "--require-keys", "--endpoint", "tcp://127.0.0.1:*", "--push-endpoint",
        "tcp://127.0.0.1:*",
    )  # fmt: skip
    assert "secret_key and clients not set" in refused(process)


def test_a_key_that_expires_is_refused_and_listed(tmp_path: Path) -> None:
    with KeyedService(tmp_path) as service:
        service.start()
        assert service.is_heard("sensor-1")
        file = service.known / "sensor-1.key"
        ended = file.read_text().replace("metadata", 'metadata\n    expires = "2026-01-01T00:00Z"')
        (tmp_path / "new").write_text(ended)
        (tmp_path / "new").rename(file)

        eventually(
            lambda: "the key sensor-1 expired on 2026-01-01" in service.proxy.stderr, "the warning"
        )
        assert not service.is_heard("sensor-1")
        log = Path(service.data_dir) / "audit.jsonl"
        eventually(lambda: "unknown_key" in log.read_text(), "the line of the audit log")
        listed = service.run("", "keys", "refused", log, "--clients", service.known)
        listed.done()

    assert "sensor-1" in listed.stdout


class TestAMistakeInTheRights:
    """What it leaves as it was: keys, rights, and the end of keys that expire."""

    def looks(
        self, folder: Path, dates: KeyDates = NO_DATES
    ) -> Generator[Authentication, None, None]:
        """Begin with the key `a`, and look once more."""
        clients = folder / "clients"
        new_pair(clients, "a", dates)
        keys = ServerKeys(own=read_pair(new_pair(folder, "proxy")[1]), clients=str(clients))
        with (
            zmq_context() as context,
            closing(Authentication(context, keys, None, lambda _: None)) as lets_in,
        ):
            yield lets_in
            lets_in.look(LOOK_S)
            yield lets_in

    def test_lets_no_new_key_in(self, tmp_path: Path) -> None:
        looks = self.looks(tmp_path)
        before = next(looks).authority
        clients = tmp_path / "clients"
        (clients / "a.key").unlink()
        new = read_pair(new_pair(clients, "b")[0]).public
        (clients / "rights.yaml").write_text("b: {put: ['[']}")

        after = next(looks)
        looks.close()

        assert after.authority is before
        assert new not in after._known

    def test_does_not_keep_a_key_that_expires(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        now = datetime(2026, 11, 27, tzinfo=UTC)

        class Clock(datetime):
            @classmethod
            def now(cls, _tz: object = None) -> datetime:  # type: ignore[override]
                return now

        monkeypatch.setattr(authentication, "datetime", Clock)
        looks = self.looks(tmp_path, KeyDates(now, now + timedelta(days=1)))
        assert len(next(looks)._known) == 1
        (tmp_path / "clients" / "rights.yaml").write_text("a: {nonsense: 1}")
        now += timedelta(days=2)

        after = next(looks)
        looks.close()

        assert after._known == {}


def test_a_key_expires_without_a_change_of_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = datetime(2026, 11, 27, tzinfo=UTC)

    class Clock(datetime):
        @classmethod
        def now(cls, _tz: object = None) -> datetime:  # type: ignore[override]
            return now

    monkeypatch.setattr(authentication, "datetime", Clock)
    dates = KeyDates(now, now + timedelta(days=20))
    key = read_pair(new_pair(tmp_path / "clients", "sensor-1", dates)[0]).public
    keys = ServerKeys(
        own=read_pair(new_pair(tmp_path, "proxy")[1]), clients=str(tmp_path / "clients")
    )
    warnings: list[str] = []
    with zmq_context() as context:
        lets_in = Authentication(context, keys, None, warnings.append)
        seen = []
        for day in (0, 7, 8, 20):
            now = datetime(2026, 11, 27, tzinfo=UTC) + timedelta(days=day)
            changed = lets_in.look(LOOK_S * (day + 1))
            seen.append((key in changed, sum("sensor-1" in one for one in warnings)))
        lets_in.close()

    assert seen == [(False, 0), (False, 1), (False, 1), (True, 2)]
