"""The shipped scenarios, and how one is found: by file, by name, by completion."""

from __future__ import annotations

from itertools import takewhile
from pathlib import Path
from typing import Final

import click
from click.shell_completion import CompletionItem

from reliable_pubsub.common.command_line import CONTEXT_SETTINGS, readable_errors
from reliable_pubsub.common.core.errors import ConfigurationError
from reliable_pubsub.common.core.wording import did_you_mean
from reliable_pubsub.common.examples import CONFIGS
from reliable_pubsub.common.topic_settings import split_document
from reliable_pubsub.common.yaml_file import load_yaml

from .core.scenario import Scenario
from .core.scenario_file import parse_scenario
from .text_table import text_table, wide_console

SHIPPED: Final = CONFIGS / "lab"


def load_scenario(path: Path) -> Scenario:
    """Read a scenario file; the step files it names lie in the same folder.

    Raises:
        ConfigurationError: with file, line, key path, what was found, what was expected.
    """
    return parse_scenario(
        load_yaml(path),
        load=lambda name: load_yaml(path.parent / name),
        check_proxy=split_document,
    )


def shipped() -> dict[str, Path]:
    """The scenarios that come with the project, by name."""
    return {path.stem: path for path in sorted(SHIPPED.glob("*.yaml"))}


def scenario_path(given: str) -> Path:
    """A file, or the name of a shipped scenario.

    Raises:
        ConfigurationError: there is no such file.
    """
    path = Path(given)
    known = shipped()
    if path.is_file():
        return path
    if given in known:
        return known[given]
    advice = did_you_mean(given, known) or "; `reliable-pubsub lab list` shows what is there"
    raise ConfigurationError(f"{given}: no such file, and no scenario of this name{advice}")


def comment_of(path: Path) -> dict[str, str]:
    """The teaching comment at the top of a scenario, by the words before the colon.

    The lines above the first empty one are its heading, which repeats the title.
    """
    lines = path.read_text(encoding="utf-8").splitlines()
    comment = list(takewhile(lambda line: line.startswith("#"), lines))
    parts: dict[str, str] = {}
    part = ""
    for line in comment[comment.index("#") :] if "#" in comment else comment:
        word, colon, rest = line.removeprefix("#").strip().partition(": ")
        if colon and not line.startswith("#  "):
            part, parts[word] = word, rest
        elif part:
            parts[part] += " " + line.removeprefix("#").strip()
    return parts


def about(path: Path) -> str:
    """The teaching comment, a paragraph for each of its parts."""
    return "\n\n".join(f"{word}: {text}" for word, text in comment_of(path).items())


def complete(_context: click.Context, _option: click.Parameter, begun: str) -> list[CompletionItem]:
    """Shipped scenarios by name, and files."""
    names = [CompletionItem(name) for name in shipped() if name.startswith(begun)]
    return names or [CompletionItem(begun, type="file")]


@click.command("list", context_settings=CONTEXT_SETTINGS)
def main() -> None:
    """List the shipped scenarios: what happens in each, and what it teaches."""
    with readable_errors():
        rows = [
            (name, load_scenario(path).title, comment_of(path).get("Question", ""))
            for name, path in shipped().items()
        ]
        columns = ("scenario", "what happens", "question")
        wide_console(120).print(text_table("", columns, rows, box=None, padding=(0, 2, 1, 0)))
