"""What the commands share: their help, what the shell completes, and the names in errors."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.shell_completion import BashComplete
from click.testing import CliRunner

from reliable_pubsub.__main__ import main

CONFIGS = Path(__file__).parents[2] / "configs"


@pytest.fixture
def without_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """The extra `spark` is not installed."""
    monkeypatch.setitem(sys.modules, "pyspark", None)
    for name in [name for name in sys.modules if name.startswith("reliable_pubsub.pipeline.")]:
        monkeypatch.delitem(sys.modules, name)


def groups(command: click.Command, name: str) -> Iterator[tuple[str, click.Group]]:
    """A command and those below it, as far as they have commands; `pipeline` needs Spark."""
    if isinstance(command, click.Group) and name != "reliable-pubsub pipeline":
        yield name, command
        context = click.Context(command, info_name=name)
        for below in command.list_commands(context):
            found = command.get_command(context, below)
            assert found is not None
            yield from groups(found, f"{name} {below}")


def offered(*words: str) -> list[str]:
    """What bash offers after these words; `file` where it offers the names of files."""
    *before, begun = words
    items = BashComplete(main, {}, "reliable-pubsub", "").get_completions(before, begun)
    return [item.value or item.type for item in items]


def test_the_help_of_every_group_says_of_each_command_a_whole_sentence() -> None:
    found = dict(groups(main, "reliable-pubsub"))

    assert {"reliable-pubsub", "reliable-pubsub admin", "reliable-pubsub lab"} <= found.keys()
    for name, group in found.items():
        shown = group.get_help(click.Context(group, info_name=name, terminal_width=80))
        _, commands = shown.split("Commands:")
        assert "..." not in commands.replace("'time ...', 'age ...'", ""), name


def test_the_help_of_every_command_for_pipes_has_an_example() -> None:
    for name in ("put", "get", "tail", "subscribe", "unsubscribe", "topics", "dead put-again"):
        assert (
            f"\n  reliable-pubsub {name} " in CliRunner().invoke(main, [*name.split(), "-h"]).output
        )


@pytest.mark.parametrize(
    ("words", "closest"), [(["publsher"], "publisher"), (["lab", "rum"], "run")]
)
def test_a_misspelt_command_is_refused_with_the_closest_one(words: list[str], closest: str) -> None:
    result = CliRunner().invoke(main, words)

    assert result.exit_code == 2
    assert f"did you mean {closest!r}?" in result.output


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["proxy", "--data-dir", ""], ["file"]),
        (["proxy", "--clients", ""], ["file"]),
        (["proxy", "--durability", "s"], ["sync", "snapshot"]),
        (["relay", "--strategy", "s"], ["subsume"]),
        (["relay", "--log-format", ""], ["text", "json"]),
        (["publisher", "--state-dir", ""], ["file"]),
        (["subscriber", "--secret-key", ""], ["file"]),
        (["status", "--server-key", ""], ["file"]),
        (["backup", "--data-dir", ""], ["file"]),
    ],
    ids=lambda value: " ".join(value),
)
def test_the_shell_completes_what_an_option_takes(words: list[str], expected: list[str]) -> None:
    assert offered(*words) == expected


@pytest.mark.usefixtures("without_spark")
def test_the_shell_completes_jobs_without_their_extra_in_silence(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert offered("pipeline", "") == []
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("command", "option"),
    [
        (f"publisher -f {CONFIGS}/figure2_publisher.yaml -i p", "--endpoint"),
        (f"subscriber -f {CONFIGS}/figure4_subscriber.yaml -i s", "--endpoint"),
        ("status", "--endpoint"),
        ("admin list", "--endpoint"),
        ("console", "--endpoint"),
        ("relay", "--endpoint"),
        ("relay", "--push-endpoint"),
        ("relay", "--strategy"),
        ("relay", "--lease"),
    ],
)
def test_a_value_that_is_refused_is_reported_with_the_option_that_was_given(
    command: str, option: str
) -> None:
    told = CliRunner().invoke(main, [*command.split(), option, "x"])

    assert told.exit_code == 2
    assert told.stderr.startswith(f"error [CONFIGURATION]: {option}: found 'x', expected ")


def test_settings_are_shown_of_what_can_be_a_component() -> None:
    told = CliRunner().invoke(main, ["config", "show", "a b"])

    assert told.exit_code == 2
    assert "INVALID_NAME" in told.stderr
