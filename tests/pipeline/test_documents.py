"""docs/pipeline.md says what the code does."""

from __future__ import annotations

import re
from pathlib import Path

from reliable_pubsub.pipeline.columns import COLUMNS
from reliable_pubsub.pipeline.options import OPTIONS
from reliable_pubsub.pipeline.tables import TABLES

PAGE = (Path(__file__).parents[2] / "docs" / "pipeline.md").read_text(encoding="utf-8")


def first_cells(heading: str) -> set[str]:
    """What stands in code in the first cells of the table below a heading."""
    (part,) = re.findall(rf"(?ms)^{heading}.*?\n\n(\|.*?)\n\n", PAGE)
    return {name for row in part.splitlines() for name in re.findall(r"`(\w+)`", row.split("|")[1])}


def test_the_page_names_every_option_and_no_other() -> None:
    assert first_cells("## Options") == set(OPTIONS)


def test_the_page_names_every_column_and_no_other() -> None:
    assert first_cells(re.escape("`spark.read` takes")) == set(COLUMNS)


def test_the_page_names_every_table() -> None:
    tables = PAGE.split("## Tables")[1].split("## ")[0]

    assert set(TABLES) <= set(re.findall(r"`(\w+)`", tables))
