"""The moving picture of the demo shows what was there, when it was there."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

from rich.text import Text

from scripts.demo_picture import HOLD_S, frame_of, picture_of

PICTURE = Path(__file__).parents[1] / "docs" / "demo.svg"
SVG = "{http://www.w3.org/2000/svg}"
FRAMES = [
    frame_of(0.0, Text("title"), Text("1 of <2>")),
    frame_of(1.0, Text("title"), Text("killed", "bold red")),
    frame_of(2.0, Text("title"), Text("2 of <2>"), Text("held")),
]


def shown_at(svg: str, at_s: float) -> list[str]:
    """What the moving part shows at a moment, by the animation of each line."""
    moving = ElementTree.fromstring(svg).find(f"{SVG}g[@class='moving']")
    assert moving is not None
    texts = []
    for text in moving:
        motion = text.find(f"{SVG}animate")
        visible = text.get("visibility", "visible")
        if motion is not None:
            values, times = motion.attrib["values"].split(";"), motion.attrib["keyTimes"].split(";")
            share = at_s / float(motion.attrib["dur"].rstrip("s"))
            assert len(values) == len(times)
            visible = [v for v, t in zip(values, times, strict=True) if float(t) <= share][-1]
        if visible == "visible":
            texts.append("".join(text.itertext()))
    return texts


def test_each_line_is_shown_while_it_was_there() -> None:
    svg = picture_of(FRAMES, title="a & b")

    assert shown_at(svg, 0.5) == ["title", "1 of <2>"]
    assert shown_at(svg, 1.5) == ["title", "killed"]
    assert shown_at(svg, 2.0 + HOLD_S / 2) == ["title", "2 of <2>", "held"]
    assert '<tspan class="red">killed' in svg


def test_who_wants_no_motion_gets_the_last_frame() -> None:
    still = ElementTree.fromstring(picture_of(FRAMES, title="t")).find(f"{SVG}g[@class='still']")

    assert still is not None
    assert ["".join(text.itertext()) for text in still] == ["title", "2 of <2>", "held"]


def test_the_picture_in_the_readme_is_of_a_run_that_held_and_is_small() -> None:
    svg = PICTURE.read_text(encoding="utf-8")

    assert len(svg.encode()) < 300_000
    last = shown_at(svg, float(re.findall(r'dur="([\d.]+)s"', svg)[0]) - 0.1)
    assert last[-1].startswith("kill -9: proxy 2x")
    assert last[-1].endswith("Exactly once held.")
