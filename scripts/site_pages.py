"""Hooks of mkdocs.yml: the pages in their order, and links that lead out of docs.

The pages are written for the repository too. So a link to a file that the site does not have leads
to the repository, and the words after the language of a code block are removed.
"""

from __future__ import annotations

import configparser
import os.path
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[1]
DOCS: Final = ROOT / "docs"
PARTS: Final = {
    "Start": ["start"],
    "How-to": ["how-to"],
    "Concepts": ["concepts"],
    "Reference": ["reference"],
    "Teach": ["teach"],
    "Internals": ["internals", "decisions"],
}
# The longer pages of how-to have a section of their own, below the tasks.
GUIDES: Final = (
    *("operating", "security", "administration", "console", "relay", "postgresql"),
    *("replicas", "testing", "pipeline"),
)
# Where users find answers: pages of other folders come later in a search.
BOOSTS: Final = {"start": 4.0, "how-to": 4.0, "concepts": 4.0, "reference": 2.0, "teach": 1.0}
BOOST: Final = 0.2
UNSEARCHED: Final = ("internals/features.md", "internals/guarantees-tests.md")  # names of tests
# These come first in their folder; the others follow by name.
FIRST: Final = (
    *("README", "tutorial", "python", "send-from-a-web-request", "commands", "architecture", "lab"),
)
_LINK: Final = re.compile(r"(\]\()([^)\s#]+)([^)\s]*\))")
_FENCE: Final = re.compile(r"(?m)^(```\w+) .*$")


def repository() -> str:
    """Return the address of the repository, which setup.cfg has."""
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg", encoding="utf-8")
    return setup["metadata"]["url"]


def pages(folder: str, first: Sequence[str] = FIRST) -> list[str]:
    """Return the pages of a folder in their order."""

    def place(page: Path) -> tuple[int, str]:
        return (first.index(page.stem) if page.stem in first else len(first), page.stem)

    found = sorted((DOCS / folder).glob("*.md"), key=place)
    return [page.relative_to(DOCS).as_posix() for page in found]


def sections(folder: str, others: Sequence[str]) -> list[Any]:
    """Return the pages of a part of the site, and its sections."""
    if folder != "how-to":
        return [*pages(folder), *({one.title(): pages(one)} for one in others)]
    guides = [page for page in pages(folder, GUIDES) if Path(page).stem in GUIDES]
    tasks = [page for page in pages(folder) if page not in guides]
    return [*tasks, {"Guides": guides}]


def navigation() -> Iterator[dict[str, Any]]:
    """Yield the parts of the site with their pages."""
    yield {"Overview": "README.md"}
    for title, (folder, *others) in PARTS.items():
        yield {title: sections(folder, others)}


def on_config(config: Any) -> Any:
    """Set the navigation (a hook of MkDocs)."""
    config["nav"] = list(navigation())
    return config


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Return a page as the site needs it (a hook of MkDocs)."""
    folder = os.path.dirname(f"docs/{page.file.src_uri}")
    page.meta["search"] = {
        "boost": BOOSTS.get(os.path.basename(folder), BOOST),
        "exclude": page.file.src_uri in UNSEARCHED,
    }

    def led(link: re.Match[str]) -> str:
        target = os.path.normpath(os.path.join(folder, link[2]))
        if "://" in link[2]:
            return link[0]
        if target.startswith("docs/"):
            first = os.path.basename(pages(target[5:])[0]) if (ROOT / target).is_dir() else ""
            return f"{link[1]}{link[2]}{first}{link[3]}"
        return f"{link[1]}{repository()}/blob/main/{target}{link[3]}"

    return _FENCE.sub(r"\1", _LINK.sub(led, markdown))
