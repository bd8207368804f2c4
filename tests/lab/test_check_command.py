"""`lab check`: a verdict that rests on too little says so, also by its exit code."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from reliable_pubsub.common.core.journal import Begin, encode_line
from reliable_pubsub.lab.__main__ import main as lab

from .small_world import SmallWorld, sound_world, write_run
from .worlds import a_world_with_a_subscriber


def check(world: SmallWorld, folder: Path, *options: str) -> Result:
    if not any(folder.iterdir()):
        write_run(world, folder)
    return CliRunner().invoke(lab, ["check", str(folder), *options])


def test_a_whole_run_holds(tmp_path: Path) -> None:
    result = check(sound_world(), tmp_path, "--require", "V1,v2")

    assert result.exit_code == 0, result.output
    assert "holds: " in result.output


def test_a_run_in_which_no_rule_was_judged_has_an_exit_code_of_its_own(tmp_path: Path) -> None:
    begin = Begin(at_ns=1, process="p1", pid=2, role="publisher", wall_ns=3)
    (tmp_path / "p1.jsonl").write_bytes(encode_line(begin))

    result = check(SmallWorld(), tmp_path)

    assert result.exit_code == 6
    assert "missing: no rule was judged" in result.output
    assert "NOT DECIDED" in result.output


def test_lines_that_cannot_be_read_are_no_verdict(tmp_path: Path) -> None:
    write_run(sound_world(), tmp_path)
    path = tmp_path / "s1.jsonl"
    path.write_bytes(path.read_bytes().replace(b'"op":"get"', b'"op":"gett"'))

    result = check(sound_world(), tmp_path, "--json")

    document = json.loads(result.output)
    assert result.exit_code == 6
    assert document["holds"]
    assert "lines cannot be read, and were not judged" in document["gaps"][0]


def test_a_journal_whose_last_lines_are_missing_is_no_verdict(tmp_path: Path) -> None:
    world = a_world_with_a_subscriber(5)
    world.get("s1", "t", 2)
    world.audit()

    result = check(world, tmp_path)

    assert result.exit_code == 6
    assert "s1 has 't' up to offset 2, of 5, and its journal has no" in result.output


def test_a_required_rule_without_evidence_is_no_verdict(tmp_path: Path) -> None:
    result = check(sound_world(), tmp_path, "--require", "V13")

    assert result.exit_code == 6
    assert "missing: V13 is required, and was not judged" in result.output


@pytest.mark.parametrize("rules", ["V14", "V1 V2"])
def test_a_required_rule_that_does_not_exist_is_refused(rules: str, tmp_path: Path) -> None:
    result = check(sound_world(), tmp_path, "--require", rules)

    assert result.exit_code == 2
    assert "the rules are V1 to V13" in result.output
