"""The panels of a report's figure below its lanes, and those of each topic: offsets and lags."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from xml.etree.ElementTree import Element

from msgspec import Struct

from reliable_pubsub.common.core.markup import element, number, shortened

from .report_axis import LEFT, PLOT_WIDTH, RIGHT, TimeAxis, value_ticks
from .report_curves import END, Points, TopicCurves, thinned

LABEL_WIDTH = 160.0
OFFSETS_HEIGHT, LAG_HEIGHT = 120.0, 60.0
TOPICS_MAX = 12
POINTS_MAX = 40_000  # of all curves of a page
LEGEND_LINE_HEIGHT = 15.0
STYLES = 6  # of curves; after that they begin again


class PanelColumn(Struct):
    """What is drawn so far, from the top down."""

    names: Element
    plot: Element
    y: float = 0.0

    def name(self, text: str, small: str, y: float) -> None:
        """A name on the left, with a word about it below."""
        title = element("title", text)
        self.names.append(element("text", title, shortened(text, 22), class_="name", x=0, y=y))
        self.names.append(element("text", small, class_="small", x=0, y=y + 13))


def svg(title: str, width: float, height: float, *children: Element, class_: str) -> Element:
    """A drawing of its own; `title` is for screen readers."""
    return element(
        "svg",
        element("title", title),
        *children,
        class_=class_,
        role="img",
        width=width,
        height=height,
        viewBox=f"0 0 {number(width)} {number(height)}",
    )


class Scale(Struct, frozen=True):
    """The values of a panel, from the bottom to the top."""

    ticks: Sequence[tuple[float, str]]  # value and label; the first is the bottom, the last the top
    by_power: bool = False  # each tick is ten times the one before

    def share(self, value: float) -> float:
        """Where a value lies, from 0 to 1."""
        low, high = self.ticks[0][0], self.ticks[-1][0]
        if self.by_power:
            low, high, value = math.log(low), math.log(high), math.log(max(value, low))
        return min(max((value - low) / (high - low), 0), 1)


def counting_scale(value_max: int) -> Scale:
    """From zero to at least this value."""
    return Scale([(tick, f"{tick:,}") for tick in value_ticks(value_max)])


def styles_of(subscribers: Iterable[str]) -> dict[str, str]:
    """How the curve of each subscriber looks, and that of a log's end."""
    names = sorted(set(subscribers))
    return {name: f"curve style-{n % STYLES}" for n, name in enumerate(names)} | {END: "curve end"}


def draw_topics(
    column: PanelColumn, axis: TimeAxis, topics: Sequence[TopicCurves], styles: Mapping[str, str]
) -> None:
    """Two panels for each of the busiest topics."""
    topics = topics[:TOPICS_MAX]
    curves_count = sum(len(curves.offsets) + len(curves.lags) for curves in topics)
    points_max = max(min(POINTS_MAX // max(curves_count, 1), 500), 40)
    for curves in topics:
        height = height_with_legend(OFFSETS_HEIGHT, len(curves.offsets))
        column.y += 34
        column.name(curves.topic, "offset", column.y - 14)
        draw_legend(column, [(_label(name), styles[name]) for name in sorted(curves.offsets)])
        _panel(column, axis, curves.offsets, curves.offset_max, height, styles, points_max)
        column.y += 22
        column.names.append(element("text", "lag (messages)", class_="small", x=0, y=column.y + 8))
        _panel(column, axis, curves.lags, curves.lag_max, LAG_HEIGHT, styles, points_max)
    column.y += 10


def _label(name: str) -> str:
    return "log end" if name == END else name


def height_with_legend(height: float, curves_count: int) -> float:
    """Of a panel, so that its legend has room beside it."""
    return max(height, (curves_count + 2) * LEGEND_LINE_HEIGHT)


def draw_legend(column: PanelColumn, entries: Sequence[tuple[str, str]]) -> None:
    """Label and style of each curve, beside the panel that comes next."""
    y = column.y + 22
    for label, style in entries:
        column.names.append(element("path", d=f"M0 {number(y - 4)}h20", class_=style))
        column.names.append(element("text", shortened(label, 14), class_="small", x=25, y=y))
        y += LEGEND_LINE_HEIGHT


def _panel(
    column: PanelColumn,
    axis: TimeAxis,
    curves: Mapping[str, Points],
    value_max: int,
    height: float,
    styles: Mapping[str, str],
    points_max: int,
) -> None:
    y_of = draw_levels(column, counting_scale(value_max), height)
    group = element("g", class_="curves")
    for name in sorted(curves, key=lambda name: (name != END, name)):
        points = thinned(curves[name], axis.begin_ns, axis.end_ns, points_max)
        if points:
            path = _steps(axis, points, y_of)
            title = element("title", _label(name))
            group.append(element("path", title, class_=styles[name], d=path))
    column.plot.append(group)


def draw_levels(column: PanelColumn, scale: Scale, height: float) -> Callable[[float], float]:
    """The lines of a panel and their labels; returns where a value lies."""
    bottom = column.y + height
    for value, label in scale.ticks:
        y = bottom - scale.share(value) * height
        column.plot.append(
            element("line", class_="level", x1=LEFT, x2=PLOT_WIDTH - RIGHT, y1=y, y2=y)
        )
        column.names.append(element("text", label, class_="value", x=LABEL_WIDTH - 4, y=y + 4))
    column.y = bottom
    return lambda value: bottom - scale.share(value) * height


def _steps(axis: TimeAxis, points: Points, y_of: Callable[[float], float]) -> str:
    """A value holds until the next one."""
    at_ns, value = points[0]
    path = [f"M{number(axis.x(at_ns))} {number(y_of(value))}"]
    for at_ns, value in points[1:]:
        path.append(f"H{number(axis.x(at_ns))}V{number(y_of(value))}")
    path.append(f"H{number(axis.x(axis.end_ns))}")
    return "".join(path)
