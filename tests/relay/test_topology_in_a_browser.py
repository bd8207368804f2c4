"""The drawn tree as a reader sees it, in light and in dark."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

import pytest

from reliable_pubsub.relay.core.tree_figure import TreeFigure, page_text
from tests.browser import PAGE, SCHEMES, Screenshot, needs_browser

from .test_tree import two_looks

SIZE = (1300, 400)
RELAY = {"light": (168, 72, 138), "dark": (235, 163, 210)}

pytestmark = needs_browser


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_reader_sees_boxes_edges_and_words(scheme: str, tmp_path: Path) -> None:
    page = tmp_path / "tree.html"
    style = files("reliable_pubsub.relay").joinpath("topology.css").read_text("utf-8")
    page.write_text(page_text(TreeFigure(two_looks(), title="t", about="a", style=style), "t"))

    seen = Screenshot(page, tmp_path, scheme, SIZE)

    assert seen.has_corner(PAGE[scheme]), "the background follows the reader's scheme"
    assert seen.pixels(RELAY[scheme], 40) > 300, "the relay and its edges are seen"
    assert len(seen.colors) > 50, "text is drawn"
