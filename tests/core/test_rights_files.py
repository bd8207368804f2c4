"""Files of rights: what an operator writes, and what a mistake in it leads to."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest
from click.testing import CliRunner

from reliable_pubsub.common.access.audit import FILE_BYTES_MAX, FILES_MAX, LINES_S_MAX, AuditLog
from reliable_pubsub.common.access.core.authorisation import Authority, Denial
from reliable_pubsub.common.core.errors import ConfigurationError
from reliable_pubsub.common.core.rights import NOTHING, KnownKey, Rights
from reliable_pubsub.common.key_files import new_pair, read_clients, read_public
from reliable_pubsub.common.keys_command import main as keys_command
from tests.core.rights_world import authority


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder of two clients."""
    for name in ("sensor-1", "display-1"):
        new_pair(tmp_path, name)
    return tmp_path


def by_name(clients: dict[str, KnownKey]) -> dict[str, Rights | None]:
    return {one.name: one.rights for one in clients.values()}


class TestAFolder:
    def test_without_a_file_of_rights_denies_everything(self, folder: Path) -> None:
        assert by_name(read_clients(folder)) == {"sensor-1": NOTHING, "display-1": NOTHING}

    def test_with_a_file_of_rights_denies_what_is_not_in_it(self, folder: Path) -> None:
        (folder / "rights.yaml").write_text("sensor-1:\n  put: [readings.*]\ngone: {get: [a]}\n")

        assert by_name(read_clients(folder)) == {
            "sensor-1": Rights(put=("readings.*",)),
            "display-1": NOTHING,
        }

    def test_with_an_empty_file_of_rights_denies_everything(self, folder: Path) -> None:
        (folder / "rights.yaml").write_text("")

        assert set(by_name(read_clients(folder)).values()) == {NOTHING}

    def test_takes_no_rights_from_the_file_of_a_key_which_its_owner_wrote(
        self, folder: Path
    ) -> None:
        key = folder / "sensor-1.key"
        key.write_text(key.read_text().replace("metadata", 'metadata\n    put = "*"'))
        (folder / "rights.yaml").write_text("display-1: {get: [a]}")

        assert by_name(read_clients(folder))["sensor-1"] == NOTHING

    @pytest.mark.parametrize(
        "text",
        [
            "[]",
            "sensor-1: 7",
            "sensor-1: {puts: [a]}",
            "sensor-1: {put: a}",
            "sensor-1: {put: ['']}",
            "sensor-1: {relay: perhaps}",
            "sensor-1: {name: other}",
        ],
    )
    def test_with_a_mistake_in_its_rights_is_refused(self, folder: Path, text: str) -> None:
        (folder / "rights.yaml").write_text(text)

        with pytest.raises(ConfigurationError, match=r"rights\.yaml"):
            read_clients(folder)


def test_keys_list_shows_which_rights_each_key_has(folder: Path) -> None:
    def listed() -> list[str]:
        found = CliRunner().invoke(keys_command, ["list", "--folder", str(folder)])
        return [" ".join(line.split("│")[4].split()) for line in found.output.splitlines()[3:-1]]

    assert listed() == ["none", "none"]
    (folder / "rights.yaml").write_text("sensor-1: {put: [a], relay: true, get: []}")
    assert listed() == ["none", "put, relay"]


def test_a_file_of_keys_may_say_their_rights(folder: Path, tmp_path: Path) -> None:
    keys = [read_public(str(folder / f"{name}.key")) for name in ("sensor-1", "display-1")]
    file = tmp_path / "clients.yaml"
    file.write_text(f'"{keys[0]}":\n  name: sensor-1\n  put: [a]\n"{keys[1]}": display-1\n')

    found = by_name(read_clients(file))

    assert found["sensor-1"] is not None
    assert found["sensor-1"].put == ("a",)
    assert found["display-1"] == NOTHING


def test_a_pattern_that_cannot_be_read_is_reported_with_its_key() -> None:
    with pytest.raises(ConfigurationError, match="rights of sensor"):
        authority(sensor={"put": ["a["]})


def test_a_key_has_changed_if_it_came_went_or_has_other_rights() -> None:
    before = authority(same={"put": ["a"]}, gone={}, other={})
    after = authority(same={"put": ["a"]}, other={"get": ["a"]}, new={})

    assert {key.rstrip("x") for key in before.changed(after)} == {"gone", "other", "new"}
    assert Authority({}).changed(before) == before.changed(Authority({}))


def a_denial(topic: str = "t") -> Denial:
    return Denial(
        name="sensor", lacking="sensor", client="victim", verb="PUT", right="put", topic=topic
    )


def written(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.open(encoding="utf-8")]


class TestTheAuditLog:
    def test_has_a_line_for_each_refusal(self, tmp_path: Path) -> None:
        log = AuditLog(tmp_path / "audit.jsonl", pytest.fail)
        log.refused(a_denial("%s \u2028\n{}"))
        log.close()

        (line,) = written(tmp_path / "audit.jsonl")
        time = line.pop("time")
        assert str(time).endswith("+00:00")
        assert line == {
            "event": "denied",
            "name": "sensor",
            "lacking": "sensor",
            "client": "victim",
            "verb": "PUT",
            "right": "put",
            "topic": "%s \u2028\n{}",
            "via": "",
        }

    def test_counts_a_flood_instead_of_writing_it(self, tmp_path: Path) -> None:
        seconds = iter([*[0.5] * (LINES_S_MAX + 50), 1.5])
        log = AuditLog(tmp_path / "audit.jsonl", pytest.fail, now_s=lambda: next(seconds))
        for _ in range(LINES_S_MAX + 51):
            log.refused(a_denial())
        log.close()

        lines = written(tmp_path / "audit.jsonl")
        assert len(lines) == LINES_S_MAX + 1
        assert lines[-1]["lines_left_out"] == 50

    def test_has_an_actions_line_at_once_and_in_a_flood_of_refusals_too(
        self, tmp_path: Path
    ) -> None:
        log = AuditLog(tmp_path / "audit.jsonl", pytest.fail, now_s=lambda: 0.0)
        for _ in range(2 * LINES_S_MAX):
            log.refused(a_denial())
        log.done({"number": 7}, at_ns=0)

        assert log.numbers() == {7}
        log.close()
        (line,) = [one for one in written(tmp_path / "audit.jsonl") if "number" in one]
        assert line == {
            "time": "1970-01-01T00:00:00.000+00:00",
            "event": "administered",
            "number": 7,
        }

    def test_has_files_of_bounded_size_and_number_for_its_owner_alone(self, tmp_path: Path) -> None:
        second = 0.0

        def now_s() -> float:
            nonlocal second
            second += 1.0
            return second

        log = AuditLog(tmp_path / "audit.jsonl", pytest.fail, file_bytes_max=2_000, now_s=now_s)
        for _ in range(100):
            log.refused(a_denial())
        log.close()

        facts = [file.stat() for file in tmp_path.glob("audit.jsonl*")]
        sizes = [one.st_size for one in facts]
        assert len(sizes) == FILES_MAX
        assert max(sizes) <= 2_000 < FILE_BYTES_MAX
        assert not any(one.st_mode & 0o077 for one in facts), "others can read it"

    def test_that_cannot_be_opened_is_reported(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigurationError, match="audit log"):
            AuditLog(tmp_path / "none" / "audit.jsonl", pytest.fail)

    def test_has_its_facts_under_one_name_in_the_log_lines_of_both(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        log = AuditLog(None, pytest.fail)
        log.refused(a_denial())
        log.done({"number": 7}, at_ns=0)

        facts = [vars(record)["audit"] for record in caplog.records]
        assert [one["event"] for one in facts] == ["denied", "administered"]

    def test_reaches_a_program_that_listens(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        log = AuditLog(None, pytest.fail)
        with caplog.at_level(logging.WARNING, "reliable_pubsub.audit"):
            log.refused(a_denial())
        log.close()

        assert '"verb": "PUT"' in caplog.text
