"""docs/how-to/pipeline.md says what the code does."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest

from reliable_pubsub.pipeline.__main__ import main
from reliable_pubsub.pipeline.core.columns import COLUMNS
from reliable_pubsub.pipeline.core.options import OPTIONS
from reliable_pubsub.pipeline.core.sink_options import COLUMNS as SINK_COLUMNS
from reliable_pubsub.pipeline.core.sink_options import SINK_OPTIONS
from reliable_pubsub.pipeline.core.tables import TABLES

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "how-to" / "pipeline.md").read_text(encoding="utf-8")


def first_cells(heading: str) -> set[str]:
    """The code in the first cells of the table below a heading."""
    (part,) = re.findall(rf"(?ms)^{heading}.*?\n\n(\|.*?)\n\n", PAGE)
    return {name for row in part.splitlines() for name in re.findall(r"`(\w+)`", row.split("|")[1])}


def test_the_page_names_every_option_and_no_other() -> None:
    assert first_cells("## Options") == set(OPTIONS)


def test_the_page_names_every_column_and_no_other() -> None:
    assert first_cells(re.escape("`spark.read` takes")) == set(COLUMNS)


def test_the_page_names_every_option_and_column_of_the_sink() -> None:
    assert first_cells("### Options of the sink") == set(SINK_OPTIONS)
    assert first_cells("### Columns of the sink") == set(SINK_COLUMNS)


def test_the_page_names_every_table() -> None:
    tables = PAGE.split("## Tables")[1].split("## ")[0]

    assert set(TABLES) <= set(re.findall(r"`(\w+)`", tables))


def test_the_page_names_every_job() -> None:
    jobs = PAGE.split("## Jobs")[1].split("\n## ")[0]

    named = re.findall(r"(?m)^\*\*`(\w+)`\*\*", jobs)
    assert sorted(named) == sorted(main.list_commands(click.Context(main)))


@pytest.mark.parametrize(
    "path", sorted((ROOT / "configs" / "pipeline").glob("*.yaml")), ids=lambda path: path.stem
)
def test_a_job_file_is_what_its_command_takes(
    path: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Its first line is the command that runs it; a page of docs names it."""
    found = re.match(r"# Run: reliable-pubsub pipeline (\w+) -f (\S+)\n", path.read_text())
    assert found is not None
    job, name = found.groups()
    assert ROOT / name == path
    assert name in PAGE
    for file in ("CHANGELOG.md", "configs/pipeline/words.sql"):
        (tmp_path / file).parent.mkdir(exist_ok=True, parents=True)
        (tmp_path / file).touch()
    monkeypatch.chdir(tmp_path)
    command = main.get_command(click.Context(main), job)
    assert command is not None

    context = command.make_context(job, ["-f", str(path)])

    assert any(context.params.get(name) for name in ("topic", "topics", "sources"))
