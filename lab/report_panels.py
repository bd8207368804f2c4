"""The panels of a report's figure below its lanes: offsets and lags of each topic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from xml.etree.ElementTree import Element

from msgspec import Struct

from .report_axis import LEFT, PLOT_WIDTH, RIGHT, TimeAxis, value_ticks
from .report_curves import END, Points, TopicCurves, thinned
from .report_markup import element, number, shortened

LABEL_WIDTH = 160.0
OFFSETS_HEIGHT, LAG_HEIGHT = 120.0, 60.0
TOPICS_MAX = 12
POINTS_MAX = 40_000  # of all curves of a page
LEGEND_LINE_HEIGHT = 15.0
STYLES = 6  # of curves; after that they begin again


class Column(Struct):
    """What is drawn so far, from the top down."""

    names: Element
    plot: Element
    y: float = 0.0

    def name(self, text: str, small: str, y: float) -> None:
        """A name on the left, with a word about it below."""
        title = element("title", text)
        self.names.append(element("text", title, shortened(text, 22), class_="name", x=0, y=y))
        self.names.append(element("text", small, class_="small", x=0, y=y + 13))


def draw_topics(column: Column, axis: TimeAxis, topics: Sequence[TopicCurves]) -> None:
    """Two panels for each of the busiest topics."""
    topics = topics[:TOPICS_MAX]
    subscribers = sorted({name for curves in topics for name in curves.lags})
    styles = {name: f"curve style-{n % STYLES}" for n, name in enumerate(subscribers)}
    styles[END] = "curve end"
    curves_count = sum(len(curves.offsets) + len(curves.lags) for curves in topics)
    points_max = max(min(POINTS_MAX // max(curves_count, 1), 500), 40)
    for curves in topics:
        legend_height = (len(curves.offsets) + 2) * LEGEND_LINE_HEIGHT
        height = max(OFFSETS_HEIGHT, legend_height)
        column.y += 34
        column.name(curves.topic, "offset", column.y - 14)
        _legend(column, curves, styles)
        _panel(column, axis, curves.offsets, curves.offset_max, height, styles, points_max)
        column.y += 22
        column.names.append(element("text", "lag (messages)", class_="small", x=0, y=column.y + 8))
        _panel(column, axis, curves.lags, curves.lag_max, LAG_HEIGHT, styles, points_max)
    column.y += 10


def _legend(column: Column, curves: TopicCurves, styles: Mapping[str, str]) -> None:
    y = column.y + 22
    for name in sorted(curves.offsets):
        label = "log end" if name == END else shortened(name, 14)
        column.names.append(element("path", d=f"M0 {number(y - 4)}h20", class_=styles[name]))
        column.names.append(element("text", label, class_="small", x=25, y=y))
        y += LEGEND_LINE_HEIGHT


def _panel(
    column: Column,
    axis: TimeAxis,
    curves: Mapping[str, Points],
    value_max: int,
    height: float,
    styles: Mapping[str, str],
    points_max: int,
) -> None:
    ticks = value_ticks(value_max)
    per_value = height / ticks[-1]
    bottom = column.y + height
    for tick in ticks:
        y = bottom - tick * per_value
        column.plot.append(
            element("line", class_="level", x1=LEFT, x2=PLOT_WIDTH - RIGHT, y1=y, y2=y)
        )
        column.names.append(
            element("text", f"{tick:,}", class_="value", x=LABEL_WIDTH - 4, y=y + 4)
        )
    group = element("g", class_="curves")
    for name in sorted(curves, key=lambda name: (name != END, name)):
        points = thinned(curves[name], axis.begin_ns, axis.end_ns, points_max)
        if points:
            label = "log end" if name == END else name
            path = _steps(axis, points, bottom, per_value)
            group.append(element("path", element("title", label), class_=styles[name], d=path))
    column.plot.append(group)
    column.y = bottom


def _steps(axis: TimeAxis, points: Points, bottom: float, per_value: float) -> str:
    """A value holds until the next one."""
    at_ns, value = points[0]
    path = [f"M{number(axis.x(at_ns))} {number(bottom - value * per_value)}"]
    for at_ns, value in points[1:]:
        path.append(f"H{number(axis.x(at_ns))}V{number(bottom - value * per_value)}")
    path.append(f"H{number(axis.x(axis.end_ns))}")
    return "".join(path)
