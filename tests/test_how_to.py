"""The how-to pages by task: short, and their code is that of an example, which the tests run."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "docs" / "how-to"
# These are longer, and have tests of their own.
GUIDES = {"administration", "console", "operating", "pipeline", "postgresql", "relay", "replicas"}
GUIDES |= {"security", "testing", "back-up", "kubernetes", "rotate-keys", "run-as-a-service"}
TASKS = [page for page in sorted(FOLDER.glob("*.md")) if page.stem not in GUIDES]
EXAMPLE = re.compile(r"\]\(\.\./\.\./(examples/[\w.]+)\)")
FILE = re.compile(r"`((?:configs|containers|examples)/[\w./-]+)`")


def code(text: str) -> list[str]:
    return re.findall(r"(?ms)^```(?:python|sh)\n(.*?)^```$", text)


def parts(text: str, length: int) -> set[str]:
    """Return every run of this many lines, without the indentation that they share."""
    lines = text.splitlines(keepends=True)
    return {
        textwrap.dedent("".join(lines[first : first + length]))
        for first in range(len(lines) - length + 1)
    }


def test_there_are_at_least_20_pages_by_task() -> None:
    assert len(TASKS) >= 20


@pytest.mark.parametrize("page", TASKS, ids=lambda page: page.name)
class TestAPageByTask:
    def test_is_short_and_says_what_happens_on_a_crash(self, page: Path) -> None:
        text = page.read_text(encoding="utf-8")

        assert text.startswith("# ")
        assert len(text.splitlines()) <= 80
        assert "**After a crash" in text or page.name.startswith("from-")

    def test_has_the_code_of_an_example_that_it_links_to(self, page: Path) -> None:
        text = page.read_text(encoding="utf-8")
        examples = [(ROOT / name).read_text(encoding="utf-8") for name in EXAMPLE.findall(text)]

        for block in code(text):
            length = len(block.splitlines())
            assert any(block in parts(example, length) for example in examples), block

    def test_names_files_that_exist(self, page: Path) -> None:
        named = FILE.findall(page.read_text(encoding="utf-8"))

        assert [name for name in named if not (ROOT / name).exists()] == []
