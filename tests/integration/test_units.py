"""The units of systemd in configs/operating, judged by systemd itself and by our command line."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import click
import pytest

from reliable_pubsub.__main__ import main
from reliable_pubsub.common.core.settings import BY_NAME, ENVIRONMENT_PREFIX

from .harness import REPOSITORY

UNITS = sorted((REPOSITORY / "configs" / "operating").glob("*.service"))
TIMER = REPOSITORY / "configs" / "operating" / "reliable-pubsub-backup.timer"
EXPOSURE_MAX = 2.0  # of 10; systemd calls up to 4.9 "OK"
VALUES = {
    "${RELAY_UPSTREAM}": "tcp://proxy:5556",
    "${BACKUP_TARGET}": "backups",
    "${BACKUP_KEEP}": "7d,4w",
    "${ARCHIVE_PATTERN}": ".*",
    "${ARCHIVE_FOLDER}": "archive",
    "%H": "relay-1",
}


def systemd(tool: str) -> str:
    found = shutil.which(tool)
    if found is None:
        pytest.skip(f"{tool} is not installed: apt-get install systemd")
    return found


def by_name(path: Path) -> str:
    return path.stem.removeprefix("reliable-pubsub-")


def command_of(unit: Path) -> list[str]:
    """The words of its command, after the program."""
    (line,) = re.findall(r"^ExecStart=((?:.*\\\n)*.*)$", unit.read_text(), re.MULTILINE)
    program, *words = line.replace("\\\n", " ").split()
    assert program == "/opt/reliable-pubsub/bin/reliable-pubsub"
    return [VALUES.get(word, word) for word in words]


def test_there_is_a_unit_for_each_process_of_a_service() -> None:
    names = {by_name(unit) for unit in UNITS}

    assert names == {"proxy", "pair", "relay", "console", "backup", "archive"}


@pytest.mark.parametrize("unit", UNITS, ids=by_name)
class TestAUnit:
    def test_exposes_little(self, unit: Path) -> None:
        command = [
            systemd("systemd-analyze"),
            "security",
            "--offline=true",
            "--no-pager",
            str(unit),
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False)

        if "unrecognized option" in done.stderr:
            pytest.skip("this systemd-analyze is older than 250 and has no --offline")
        level = re.search(r"Overall exposure level for .*: (\d+\.\d+)", done.stdout)

        assert level, done.stdout + done.stderr
        assert float(level[1]) < EXPOSURE_MAX, done.stdout

    def test_is_correct_to_systemd(self, unit: Path) -> None:
        analyze = systemd("systemd-analyze")
        version = subprocess.run([analyze, "--version"], capture_output=True, text=True, check=True)
        number = re.match(r"systemd (\d+)", version.stdout)
        if number and int(number[1]) < 252:
            pytest.skip(f"systemd {number[1]} is older than 252 and does not know all settings")
        files = [unit, TIMER] if by_name(unit) == "backup" else [unit]
        command = [analyze, "verify", "--man=no", *map(str, files)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)

        ours = [line for line in done.stderr.splitlines() if "reliable-pubsub" in line]

        assert done.returncode == 0 or ours, done.stderr  # it has judged the unit
        assert [line for line in ours if "is not executable" not in line] == []

    def test_gives_its_command_what_it_takes(self, unit: Path) -> None:
        command: click.Command = main
        words = command_of(unit)
        while isinstance(command, click.Group):
            name = words.pop(0)
            found = command.get_command(click.Context(command), name)
            assert found is not None, name
            command = found

        if "--log-format" in words:  # parsing it would change the log of this process
            place = words.index("--log-format")
            assert words[place : place + 2] == ["--log-format", "json"]
            del words[place : place + 2]
        with command.make_context(by_name(unit), words) as context:
            assert context.params

    def test_sets_variables_that_are_read(self, unit: Path) -> None:
        names = re.findall(rf"^Environment=.*?{ENVIRONMENT_PREFIX}(\w+)", unit.read_text(), re.M)

        assert {name.lower() for name in names} <= BY_NAME.keys()

    def test_is_as_closed_as_the_others(self, unit: Path) -> None:
        """One block for all: a unit that was relaxed would be seen here, and in a review."""
        blocks = {
            one.read_text().partition("# The same in all units")[2].partition("\n\n")[0].strip()
            for one in (unit, UNITS[0])
        }

        (block,) = blocks
        assert "SystemCallFilter=@system-service" in block

    def test_is_not_tried_again_when_a_person_is_needed(self, unit: Path) -> None:
        lines = set(unit.read_text().splitlines())
        if "Type=oneshot" not in lines:
            # Otherwise five failures within ten seconds would be the last ones.
            wanted = {"Restart=always", "RestartPreventExitStatus=2 5", "StartLimitIntervalSec=0"}
            assert wanted <= lines
        if "Type=notify" in lines:
            assert "WatchdogSec=30" in lines


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make files of root")
def test_the_directories_and_the_user_are_made_as_the_units_need_them(tmp_path: Path) -> None:
    configs = UNITS[0].parent
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc" / "passwd").write_text("root:x:0:0::/root:/bin/sh\n")
    (tmp_path / "etc" / "group").write_text("root:x:0:\n")
    for tool, file in (
        ("systemd-sysusers", "sysusers.conf"),
        ("systemd-tmpfiles", "tmpfiles.conf"),
    ):
        create = ["--create"] if tool == "systemd-tmpfiles" else []
        command = [systemd(tool), f"--root={tmp_path}", *create, str(configs / file)]
        subprocess.run(command, capture_output=True, check=True)

    modes = {
        str(path.relative_to(tmp_path)): path.stat().st_mode & 0o777
        for path in (*tmp_path.glob("etc/*"), *tmp_path.glob("run/*"))
        if path.is_dir()
    }
    assert modes["etc/credstore"] == modes["run/reliable-pubsub"] == 0o700
    assert modes["etc/reliable-pubsub"] == 0o755
    assert "reliable-pubsub:x:" in (tmp_path / "etc" / "passwd").read_text()
