"""The drawn tree as a reader sees it, in light and in dark."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

import pytest
from PIL import Image

from reliable_pubsub.relay.tree_figure import TreeFigure, page_text
from tests.lab.test_report_in_a_browser import CHROMIUM, PAGE, SCHEMES, browse, near

from .test_tree import two_looks

SIZE = (1300, 400)
RELAY = {"light": (168, 72, 138), "dark": (235, 163, 210)}

pytestmark = pytest.mark.skipif(
    not CHROMIUM, reason="chromium is not installed (Debian: apt-get install chromium)"
)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_reader_sees_boxes_edges_and_words(scheme: str, tmp_path: Path) -> None:
    page, shot = tmp_path / "tree.html", tmp_path / "shot.png"
    style = files("reliable_pubsub.relay").joinpath("topology.css").read_text("utf-8")
    page.write_text(page_text(TreeFigure(two_looks(), title="t", about="a", style=style), "t"))

    browse(
        page,
        tmp_path,
        f"--screenshot={shot}",
        f"--window-size={SIZE[0]},{SIZE[1]}",
        f"--blink-settings=preferredColorScheme={SCHEMES[scheme]}",
    )

    image = Image.open(shot).convert("RGB")
    colors = image.getcolors(SIZE[0] * SIZE[1]) or []
    corner = image.getpixel((2, 2))
    assert isinstance(corner, tuple)
    assert near(corner, PAGE[scheme], 2), "the background follows the reader's scheme"
    drawn = sum(n for n, one in colors if isinstance(one, tuple) and near(one, RELAY[scheme], 40))
    assert drawn > 300, "the relay and its edges are seen"
    assert len(colors) > 50, "text is drawn"
