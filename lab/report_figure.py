"""The figure of a report: lanes over time, and offsets and lags on the same axis, as SVG.

Two drawings of one height, side by side: names on the left stay where they are, while the
plot on the right can be scrolled and stretched. Whatever the script stretches has its place in
`x`, `x1`, `x2`, `cx` or, for a length, `data-w`; curves lie in a group of class `curves`.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import sqrt
from xml.etree.ElementTree import Element

from reliable_pubsub.common.core.markup import element, number, printable, shortened

from .core.verdict import MessageKey
from .report_axis import PLOT_WIDTH, TimeAxis
from .report_curves import TopicCurves
from .report_deliveries import Deliveries, draw_deliveries
from .report_density import Drawn
from .report_lanes import (
    LINK_FAULTS,
    Lane,
    LaneFault,
    LaneLife,
    LaneMark,
    MarkKind,
    Scene,
    duration,
)
from .report_panels import LABEL_WIDTH, TOPICS_MAX, PanelColumn, draw_topics, styles_of, svg

LANE_HEIGHT = 50.0
BAR_Y, BAR_HEIGHT = 14.0, 26.0
MIDDLE_Y = BAR_Y + BAR_HEIGHT / 2
AXIS_HEIGHT = 30.0
STRETCHES = (1, 2, 4, 8)  # of the plot, by the script
LABEL_WIDTH_PER_CHARACTER = 6.0
MESSAGES_LINKED_MAX = 20  # of one mark, for showing the same message in other lanes

FAULT_WORDS = {
    "kill": "kill",
    "stop": "stopped",
    "cut": "link cut",
    "cut_push": "push link cut",
    "half_open": "answers lost",
    "delay": "link delayed",
    "slow": "link slow",
    "fill_disk": "disk full",
    "rollback": "rollback",
    "power_loss": "power loss",
    "quiet": "no more faults",
}
_TICKS: dict[MarkKind, tuple[float, float]] = {"commit": (1.5, 16), "delivery": (2, 16)}
_SPANS: dict[MarkKind, float] = {"put": 10, "retried": 10, "unknown": 10}
_SIGNS: dict[MarkKind, str] = {"failed": "#failed", "redelivery": "#redelivery"}


def draw_figure(
    scene: Scene,
    marks: Drawn,
    topics: Sequence[TopicCurves],
    given: Deliveries,
    first: MessageKey | None,
) -> Element:
    """Both drawings, in the box that scrolls. `first`: the message of the first violation."""
    axis = TimeAxis(scene.begin_ns, scene.end_ns)
    column = PanelColumn(element("g"), element("g"))
    column.y = AXIS_HEIGHT
    if scene.elsewhere:
        _draw_elsewhere(column, axis, scene.elsewhere)
    tops = {}
    for lane, drawn in zip(scene.lanes, marks.marks, strict=True):
        tops[lane.process] = column.y
        _draw_lane(column, axis, lane, drawn)
    if first is not None:
        column.plot.append(_first_violation(axis, scene.lanes, tops, first))
    styles = styles_of([name for one in topics[:TOPICS_MAX] for name in one.lags] + [*given.rates])
    draw_deliveries(column, axis, given, styles)
    draw_topics(column, axis, topics, styles)
    height = column.y + AXIS_HEIGHT
    quiet = [fault for fault in scene.faults if fault.what == "quiet"]
    plot = svg(
        "What each process did over time",
        PLOT_WIDTH,
        height,
        element("desc", _description(scene)),
        _definitions(),
        *(_grid(axis, stretch, height) for stretch in STRETCHES),
        *(_quiet_line(axis, fault, height) for fault in quiet),
        column.plot,
        class_="plot",
    )
    unit = element("text", f"{axis.unit} since the begin", x=0, y=19, class_="unit")
    title = "Names of the lanes and of the curves"
    names = svg(title, LABEL_WIDTH, height, unit, column.names, class_="names")
    return element(
        "div",
        names,
        plot,
        class_="timeline",
        tabindex="0",
        role="region",
        aria_label="Timeline, can be scrolled",
    )


def _description(scene: Scene) -> str:
    lanes = "; ".join(
        f"{lane.process}: {len(lane.lives)} lives, {lane.kills} kills" for lane in scene.lanes
    )
    faults = f"{len(scene.faults)} faults"
    return f"{duration(scene.end_ns - scene.begin_ns)} with {faults}. {lanes}. The tables say more."


def _grid(axis: TimeAxis, stretch: int, height: float) -> Element:
    grid = element("g", class_=f"grid stretch-{stretch}")
    for x, label in axis.ticks(10 * stretch):
        grid.append(element("line", x1=x, x2=x, y1=24, y2=height - 24))
        grid.append(element("text", label, x=x, y=19))
        grid.append(element("text", label, x=x, y=height - 10))
    if stretch > 1:
        grid.set("display", "none")
    return grid


def _quiet_line(axis: TimeAxis, fault: LaneFault, height: float) -> Element:
    x = axis.x(fault.at_ns)
    return element("line", class_="quiet", x1=x, x2=x, y1=24, y2=height - 24)


def _definitions() -> Element:
    """Signs, about the point where they are used, and fillings."""
    return element(
        "defs",
        element(
            "pattern",
            element("path", d="M0 6L6 0M-1 1L1 -1M5 7L7 5"),
            id="hatch",
            width=6,
            height=6,
            patternUnits="userSpaceOnUse",
        ),
        element(
            "path", id="kill", d="M-6 -11L0 -4L6 -11L9 -8L3 0L9 8L6 11L0 4L-6 11L-9 8L-3 0L-9 -8Z"
        ),
        element("path", id="failed", d="M-4 -4L4 4M4 -4L-4 4"),
        element("path", id="unknown", d="M0 -7L5 0L0 7L-5 0Z"),
        element("path", id="redelivery", d="M0 -8L6 6L-6 6Z"),
        element("path", id="error", d="M-6 -6H6V6H-6Z"),
        element("path", id="moment", d="M-6 -9H6L0 3Z"),
    )


def _draw_lane(column: PanelColumn, axis: TimeAxis, lane: Lane, marks: Sequence[LaneMark]) -> None:
    top = column.y
    group = element("g", class_=f"lane {lane.role}", transform=f"translate(0 {number(top)})")
    for life in lane.lives:
        group.append(_life(axis, life))
    periods = [fault for fault in lane.faults if fault.until_ns is not None]
    group.extend(_period(axis, fault) for fault in periods)
    most = max((mark.count for mark in marks), default=1)
    group.extend(_mark(axis, mark, most) for mark in marks)
    group.extend(
        _death(axis, lane, life) for life in lane.lives if life.ended in ("killed", "error")
    )
    group.extend(
        _moment(axis, fault)
        for fault in lane.faults
        if fault.until_ns is None and fault.what not in ("kill", "power_loss")
    )
    labels = [(fault.at_ns, _fault_label(fault)) for fault in lane.faults]
    labels += [(life.end_ns, life.code) for life in lane.lives if life.ended == "error"]
    group.extend(_labels(axis, labels))
    column.plot.append(group)
    column.name(lane.process, lane.role, top + MIDDLE_Y)
    column.y += LANE_HEIGHT


def _draw_elsewhere(column: PanelColumn, axis: TimeAxis, faults: Sequence[LaneFault]) -> None:
    """A lane for what was done to no process in particular."""
    group = element("g", class_="lane faults", transform=f"translate(0 {number(column.y)})")
    for fault in faults:
        if fault.until_ns is not None:
            group.append(_period(axis, fault))
        elif fault.what != "quiet":  # that is a line through all lanes
            group.append(_moment(axis, fault))
    group.extend(
        _labels(axis, [(f.at_ns, f"{_fault_label(f)} {f.target}".rstrip()) for f in faults])
    )
    column.plot.append(group)
    column.name("faults", "of links, disks, all", column.y + MIDDLE_Y)
    column.y += LANE_HEIGHT


def _life(axis: TimeAxis, life: LaneLife) -> Element:
    x = axis.x(life.begin_ns)
    how = {"": "there at the end", "done": "ended on its own", "killed": "killed"}
    end = how.get(life.ended, f"ended with {life.code}")
    text = (
        f"{axis.moment(life.begin_ns)} to {axis.moment(life.end_ns)}: a life, pid {life.pid}, {end}"
    )
    return _box(text, x, axis.x(life.end_ns) - x, class_="life", y=BAR_Y, height=BAR_HEIGHT, rx=3)


def _period(axis: TimeAxis, fault: LaneFault) -> Element:
    """A process that is stopped, or has no disk, fills its bar; a link is a strip below it."""
    assert fault.until_ns is not None
    x = axis.x(fault.at_ns)
    is_link = fault.what in LINK_FAULTS
    y, height = (BAR_Y + BAR_HEIGHT + 2, 5.0) if is_link else (BAR_Y, BAR_HEIGHT)
    text = (
        f"{axis.moment(fault.at_ns)} to {axis.moment(fault.until_ns)}: "
        f"{_fault_label(fault)} {fault.target} {fault.detail}"
    )
    width = axis.x(fault.until_ns) - x
    return _box(text, x, width, class_=f"period {fault.what}", y=y, height=height)


def _moment(axis: TimeAxis, fault: LaneFault) -> Element:
    text = f"{axis.moment(fault.at_ns)}: {_fault_label(fault)} {fault.target} {fault.detail}"
    return _sign("#moment", text, axis.x(fault.at_ns), f"moment {fault.what}")


def _death(axis: TimeAxis, lane: Lane, life: LaneLife) -> Element:
    at = axis.moment(life.end_ns)
    if life.ended == "killed":
        return _sign("#kill", f"{at}: {lane.process} was killed", axis.x(life.end_ns), "kill")
    text = f"{at}: {lane.process} ended with {life.code}"
    return _sign("#error", text, axis.x(life.end_ns), "error")


def _mark(axis: TimeAxis, mark: LaneMark, most: int) -> Element:
    x, text = axis.x(mark.at_ns), f"{axis.moment(mark.at_ns)}: {mark.text}"
    width = axis.x(mark.until_ns) - x
    if mark.count > 1:
        height = max(BAR_HEIGHT * sqrt(mark.count / most), 4)
        y = BAR_Y + BAR_HEIGHT - height
        made = _box(text, x, width, class_=f"{mark.kind} sum", y=y, height=height)
    elif mark.kind in _SPANS:
        height = _SPANS[mark.kind]
        made = _box(text, x, width, class_=mark.kind, y=MIDDLE_Y - height / 2, height=height)
        if mark.kind == "unknown":
            made = element("g", made, _sign("#unknown", text, x, "unknown"))
    elif mark.kind in _TICKS:
        width, height = _TICKS[mark.kind]
        y = MIDDLE_Y - height / 2
        made = element(
            "rect", element("title", text), class_=mark.kind, x=x, y=y, width=width, height=height
        )
    else:
        made = _sign(_SIGNS[mark.kind], text, x, mark.kind)
    if mark.messages:
        linked = mark.messages[:MESSAGES_LINKED_MAX]
        made.set("data-m", printable("\n".join(f"{m.message_id} {m.topic}" for m in linked)))
    return made


def _box(text: str, x: float, width: float, **attributes: str | float) -> Element:
    """A rectangle over a time; it keeps a visible width."""
    seen = max(width, 2)
    return element("rect", element("title", text), x=x, width=seen, data_w=width, **attributes)


def _sign(href: str, text: str, x: float, class_: str) -> Element:
    return element("use", element("title", text), href=href, x=x, y=MIDDLE_Y, class_=class_)


def _fault_label(fault: LaneFault) -> str:
    return FAULT_WORDS.get(fault.what, fault.what)


def _labels(axis: TimeAxis, labels: Sequence[tuple[int, str]]) -> Sequence[Element]:
    """Texts above a lane; one that would lie on the one before is left out, its sign stays."""
    made: list[Element] = []
    free_x = 0.0
    for at_ns, label in sorted(labels):
        width = len(label) * LABEL_WIDTH_PER_CHARACTER
        x = min(axis.x(at_ns) - 6, PLOT_WIDTH - width)
        if x >= free_x:
            made.append(element("text", label, class_="fault", x=x, y=BAR_Y - 4))
            free_x = x + width + 4
    return made


def _first_violation(
    axis: TimeAxis, lanes: Sequence[Lane], tops: dict[str, float], message: MessageKey
) -> Element:
    """A ring around each sighting of the message, joined in the order of time."""
    sightings = sorted(
        (mark.at_ns, tops[lane.process] + MIDDLE_Y)
        for lane in lanes
        for mark in lane.marks
        if message in mark.messages
    )
    places = [(axis.x(at_ns), y) for at_ns, y in sightings]
    group = element("g", class_="first-violation")
    for (x1, y1), (x2, y2) in pairwise(places):
        group.append(element("line", x1=x1, y1=y1, x2=x2, y2=y2))
    text = f"the first violation: {message.message_id} of {message.topic}"
    for x, y in places:
        group.append(element("circle", element("title", text), cx=x, cy=y, r=9))
    if places:
        x, y = places[0]
        label = shortened(message.message_id, 30)
        at_end = x + 14 + len(label) * 7 > PLOT_WIDTH
        anchor = "end" if at_end else "start"
        group.append(
            element("text", label, x=x + (-14 if at_end else 14), y=y - 12, text_anchor=anchor)
        )
    return group
