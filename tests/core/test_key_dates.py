"""Keys that expire: written, read, warned of, refused; and keys for another user or group."""

from __future__ import annotations

import json
import os
import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner

from reliable_pubsub.common import keys_command
from reliable_pubsub.common.access.refused_keys import refused_keys
from reliable_pubsub.common.core.certificates import KeyDates, parse_dates
from reliable_pubsub.common.core.errors import ConfigurationError
from reliable_pubsub.common.core.key_expiry import (
    WARNING,
    expiry_warnings,
    next_change,
    unexpired,
)
from reliable_pubsub.common.core.rights import KnownKey
from reliable_pubsub.common.key_files import new_pair, read_clients, read_dates, read_pair

NOW = datetime(2026, 11, 27, 12, tzinfo=UTC)
DAY = timedelta(days=1)
AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root can change owners")


def test_dates_are_in_both_files_and_reach_the_known_keys(tmp_path: Path) -> None:
    dates = KeyDates(NOW, NOW + DAY)

    public_file, secret_file = new_pair(tmp_path, "sensor-1", dates)

    assert read_dates(public_file) == dates
    pair = read_pair(secret_file)
    assert pair.expires == NOW + DAY
    assert read_clients(tmp_path)[pair.public].expires == NOW + DAY


@pytest.mark.parametrize(
    "date", ["tomorrow", "2026-11-27T12:00:00", "0001-01-05T00:00:00Z", "9999-12-31T00:00:00Z"]
)
def test_a_date_that_is_none_is_refused_and_not_taken_for_never(date: str) -> None:
    with pytest.raises(ConfigurationError, match="expected a date such as"):
        parse_dates(f'metadata\n    expires = "{date}"\n', "a.key")


def test_a_key_may_connect_until_it_expires() -> None:
    clients = {"k": KnownKey(name="a", expires=NOW), "l": KnownKey(name="b")}

    assert unexpired(clients, NOW - DAY) == clients
    assert unexpired(clients, NOW).keys() == {"l"}


@pytest.mark.parametrize(
    ("before", "warnings"),
    [(WARNING + DAY, []), (WARNING, ["expires"]), (DAY, ["expires"]), (-DAY, ["expired"])],
)
def test_a_key_is_warned_of_two_weeks_before(before: timedelta, warnings: list[str]) -> None:
    dates = {"sensor-1": NOW + before, "endless": None}

    assert [text.split()[3] for text in expiry_warnings(dates, NOW)] == warnings


def test_the_next_change_is_the_next_warning_or_expiry() -> None:
    dates = {"a": NOW + 30 * DAY, "b": NOW + DAY, "c": NOW - DAY, "d": None}

    assert next_change(dates, NOW) == NOW + DAY
    assert next_change(dates, NOW + DAY) == NOW + 30 * DAY - WARNING
    assert next_change(dates, NOW + 30 * DAY) is None


class TestAKeyForAnother:
    @AS_ROOT
    def test_user_and_group_belongs_to_them_with_its_new_folder(self, tmp_path: Path) -> None:
        done = CliRunner().invoke(
            keys_command.main,
            ["new", "proxy", "--folder", str(tmp_path / "k"), "--owner", "20001", "--group", "7"],
        )

        assert done.exit_code == 0, done.output
        for name, mode in (("", 0o750), ("proxy.key", 0o644), ("proxy.key_secret", 0o640)):
            facts = (tmp_path / "k" / name).stat()
            assert (facts.st_uid, facts.st_gid, stat.S_IMODE(facts.st_mode)) == (20001, 7, mode)

    @AS_ROOT
    def test_group_is_read_by_that_group_if_root_owns_it_or_the_setting_says_so(
        self, tmp_path: Path
    ) -> None:
        _, of_root = new_pair(tmp_path, "a", group="7")
        _, of_user = new_pair(tmp_path, "b", owner="20001", group="7")

        read_pair(of_root)
        with pytest.raises(ConfigurationError, match="secret_key_readers"):
            read_pair(of_user)
        read_pair(of_user, "group")
        of_user.chmod(0o644)
        with pytest.raises(ConfigurationError, match="others may read"):
            read_pair(of_user, "group")

    @pytest.mark.parametrize("option", ["owner", "group"])
    def test_that_does_not_exist_is_refused_and_makes_none(
        self, tmp_path: Path, option: str
    ) -> None:
        owner, group = ("no-such", "") if option == "owner" else ("", "no-such")

        with pytest.raises(ConfigurationError, match=f"there is no .* '{owner or group}'"):
            new_pair(tmp_path / "k", "proxy", owner=owner, group=group)

        assert not (tmp_path / "k").exists()

    @pytest.mark.skipif(os.geteuid() == 0, reason="root can")
    def test_user_cannot_be_made_without_root(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigurationError, match="cannot write the key"):
            new_pair(tmp_path, "proxy", owner="0")

        assert list(tmp_path.iterdir()) == []


def test_the_list_shows_dates_and_the_refused_keys_come_from_the_audit_log(tmp_path: Path) -> None:
    public_file, _ = new_pair(tmp_path / "clients", "sensor-1", KeyDates(NOW, NOW + DAY))
    key = read_pair(public_file).public
    lines = [
        {"event": "denied", "time": "t0"},
        {"event": "unknown_key", "time": "t1", "key": "x" * 40},
        {"event": "unknown_key", "time": "t2", "key": key},
        {"event": "unknown_key", "time": "t3", "key": key, "lines_left_out": 7},
    ]
    log = tmp_path / "audit.jsonl"
    Path(f"{log}.1").write_text("".join(json.dumps(one) + "\n" for one in lines[:3]))
    log.write_text(json.dumps(lines[3]) + '\n{"event": "unkn')
    run = CliRunner().invoke

    listed = run(keys_command.main, ["list", "--folder", str(tmp_path / "clients")])
    shown = run(keys_command.main, ["refused", str(log), "--clients", str(tmp_path / "clients")])

    assert "2026-11-28" in listed.stdout
    assert refused_keys(log)[0].keys() == {"x" * 40, key}
    assert "sensor-1" in shown.stdout
    assert shown.stdout.endswith("refused: 2 keys, and 7 connections without a line\n")
    missing = run(keys_command.main, ["refused", str(tmp_path / "none")])
    assert (missing.exit_code, "cannot be read" in missing.stderr) == (2, True)
