"""The tree as one SVG figure, or a page that holds it: no script, nothing from the network.

Columns from left to right, one for each level. A box stands beside the middle of what is below it,
so that edges run level; what an edge carries stands where it ends, where edges are apart.
"""

from __future__ import annotations

from typing import Final
from xml.etree.ElementTree import Element, tostring

from reliable_pubsub.common.core.markup import element, html_text, number, shortened

from .tree import Box, Edge, Tree

BOX_WIDTH: Final = 210.0
GAP_WIDTH: Final = 210.0  # between columns; labels stand in it
PUT_GAP_WIDTH: Final = 130.0  # between publishers and the proxy
ROW_HEIGHT: Final = 17.0
HEAD_HEIGHT: Final = 42.0
BETWEEN: Final = 18.0
MARGIN: Final = 24.0
TITLE_HEIGHT: Final = 52.0
NAME_CHARS: Final = 26
ROW_CHARS: Final = 31
LABEL_CHARS: Final = 20
LINE_HEIGHT: Final = 13.0  # of labels
BEND: Final = 70.0
LEGEND: Final = (("push", "pushed"), ("pull", "asked for"))
KINDS: Final = {"source": "not our node, or no answer"}  # in words, where they are others


class TreeFigure:
    """Where everything stands."""

    def __init__(self, tree: Tree, *, title: str, about: str, style: str) -> None:
        """Place the boxes.

        Args:
            title, about: one line each, in words.
            style: sheet for it, `topology.css`.
        """
        self._tree = tree
        self._title = title
        self._about = about
        self._style = style
        self._boxes = {box.key: box for box in tree.boxes}
        self._top: dict[str, float] = {}
        self._place()

    # Places.

    def _place(self) -> None:
        """From the right: boxes below no other are placed first, others beside their middle."""
        below: dict[str, list[str]] = {}
        for edge in self._tree.edges:
            if edge.kind != "put":
                below.setdefault(edge.source, []).append(edge.target)
        ends: dict[int, float] = {}  # by level: where the next box may stand
        placed: set[str] = set()

        def place(key: str) -> None:
            if key in placed:
                return
            placed.add(key)
            for one in below.get(key, ()):
                place(one)
            box = self._boxes[key]
            middles = [self._middle(one) for one in below.get(key, ()) if one in self._top]
            wanted = 0.0
            if middles:
                wanted = (min(middles) + max(middles)) / 2 - _height(box) / 2
            top = max(wanted, ends.get(box.level, TITLE_HEIGHT + MARGIN))
            self._top[key] = top
            ends[box.level] = top + _height(box) + BETWEEN

        for box in self._tree.boxes:
            if box.kind != "publisher":
                place(box.key)
        for box in self._tree.boxes:
            place(box.key)
        # A proxy that is taller than what is below it would begin above: all are moved down.
        self.height = max(ends.values(), default=TITLE_HEIGHT) + 18.0 * len(self._tree.left_out)
        self.height += MARGIN
        levels = max((box.level for box in self._tree.boxes), default=0)
        self.width = _left(levels) + BOX_WIDTH + MARGIN

    def _middle(self, key: str) -> float:
        return self._top[key] + _height(self._boxes[key]) / 2

    def _port(self, key: str, row: str) -> float:
        """The height at which an edge ends: that of a row, or the middle."""
        box = self._boxes[key]
        for index, one in enumerate(box.rows):
            if row and one.key == row:
                return self._top[key] + HEAD_HEIGHT + (index + 0.5) * ROW_HEIGHT
        return self._middle(key)

    # Drawing.

    def svg(self) -> Element:
        return element(
            "svg",
            element("title", self._title),
            element("style", self._style),
            element("text", self._title, class_="head", x=MARGIN, y=MARGIN + 8),
            element("text", self._about, class_="note", x=MARGIN, y=MARGIN + 26),
            *(self._edge(edge) for edge in self._tree.edges),
            *(self._box(box) for box in self._tree.boxes),
            *(self._labels(edge) for edge in self._tree.edges),
            self._legend(),
            *self._notes(),
            xmlns="http://www.w3.org/2000/svg",
            viewBox=f"0 0 {number(self.width)} {number(self.height)}",
            width=self.width,
            height=self.height,
            role="img",
        )

    def _box(self, box: Box) -> Element:
        left, top = _left(box.level), self._top[box.key]
        kind = KINDS.get(box.kind, box.kind)
        return element(
            "g",
            element("title", f"{kind} {box.name}"),
            element(
                "rect", class_="box", x=left, y=top, width=BOX_WIDTH, height=_height(box), rx=6
            ),
            element("text", kind, class_="kind", x=left + 12, y=top + 16),
            element(
                "text", shortened(box.name, NAME_CHARS), class_="head", x=left + 12, y=top + 33
            ),
            *(
                element(
                    "text",
                    element("title", row.text),
                    shortened(row.text, ROW_CHARS),
                    class_="row",
                    x=left + 12,
                    y=top + HEAD_HEIGHT + (index + 0.75) * ROW_HEIGHT,
                )
                for index, row in enumerate(box.rows)
            ),
            class_=box.kind,
        )

    def _ends(self, edge: Edge) -> tuple[float, float, float, float]:
        source, target = self._boxes[edge.source], self._boxes[edge.target]
        return (
            _left(source.level) + BOX_WIDTH,
            self._port(edge.source, edge.source_row),
            _left(target.level),
            self._port(edge.target, edge.target_row),
        )

    def _edge(self, edge: Edge) -> Element:
        x1, y1, x2, y2 = self._ends(edge)
        bend = (x2 - x1) / 2 if edge.kind == "put" else BEND / 2
        level_from = x1 + 2 * bend  # from there on it runs level: its labels stand on it
        path = (
            f"M{number(x1)},{number(y1)} C{number(x1 + bend)},{number(y1)} "
            f"{number(level_from - bend)},{number(y2)} {number(level_from)},{number(y2)} "
            f"L{number(x2)},{number(y2)}"
        )
        return element("path", class_=f"edge {edge.kind}", d=path)

    def _labels(self, edge: Edge) -> Element:
        x1, y1, x2, y2 = self._ends(edge)
        if edge.kind == "put":
            return element("g", element("text", edge.rate, class_="label rate", x=x1 + 8, y=y1 - 4))
        x = x2 - GAP_WIDTH + BEND + 4
        lines = [
            element(
                "text",
                element("title", line),
                shortened(line, LABEL_CHARS),
                class_="label",
                x=x,
                y=y2 - 5 - LINE_HEIGHT * (len(edge.interest) - 1 - index),
            )
            for index, line in enumerate(edge.interest)
        ]
        return element("g", *lines, element("text", edge.rate, class_="label rate", x=x, y=y2 + 13))

    def _legend(self) -> Element:
        """What the two sorts of edges on the right mean."""
        drawn = element("g")
        for index, (kind, words) in enumerate(LEGEND):
            x, y = _left(1) + 120.0 * index, MARGIN + 4
            line = f"M{number(x)},{number(y)} h30"
            drawn.append(element("path", class_=f"edge {kind}", d=line))
            drawn.append(element("text", words, class_="note", x=x + 36, y=y + 4))
        return drawn

    def _notes(self) -> list[Element]:
        first = self.height - MARGIN - 18.0 * len(self._tree.left_out) + 12
        return [
            element("text", f"Not drawn: {note}.", class_="note", x=MARGIN, y=first + 18.0 * index)
            for index, note in enumerate(self._tree.left_out)
        ]


def svg_text(figure: TreeFigure) -> str:
    """A file of its own."""
    return tostring(figure.svg(), encoding="unicode") + "\n"


def page_text(figure: TreeFigure, title: str) -> str:
    page_style = (
        ":root { color-scheme: light dark; } body { margin: 0; } "
        "svg { max-width: 100%; height: auto; min-width: 900px; } "
        "@media (prefers-color-scheme: dark) { body { background: #14171b; } }"
    )
    return html_text(
        element(
            "html",
            element(
                "head",
                element("meta", charset="utf-8"),
                element("title", title),
                element("style", page_style),
            ),
            element("body", figure.svg()),
            lang="en",
        )
    )


def _left(level: int) -> float:
    if level == 0:
        return MARGIN
    return MARGIN + BOX_WIDTH + PUT_GAP_WIDTH + (level - 1) * (BOX_WIDTH + GAP_WIDTH)


def _height(box: Box) -> float:
    return HEAD_HEIGHT + len(box.rows) * ROW_HEIGHT + (8.0 if box.rows else 0.0)
