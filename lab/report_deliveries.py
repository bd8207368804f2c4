"""What subscribers were given over time: how long it took, how much it was, and who got it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final
from xml.etree.ElementTree import Element

from msgspec import Struct

from reliable_pubsub.common.core.markup import element, number, shortened

from .report_axis import TimeAxis
from .report_lanes import duration
from .report_numbers import Numbers, percentile
from .report_panels import (
    PanelColumn,
    Scale,
    counting_scale,
    draw_legend,
    draw_levels,
    height_with_legend,
    svg,
)

SLICES: Final = 60  # of the time of a run
SHARES: Final[Mapping[str, float]] = {"p50": 0.5, "p90": 0.9, "p99": 0.99}
PERCENTILE_STYLES: Final = {"p50": "curve style-0", "p90": "curve style-1", "p99": "curve style-4"}
SUBSCRIBERS_MAX: Final = 12  # with a curve of their own; the bars show all
LATENCY_HEIGHT, RATE_HEIGHT = 110.0, 70.0
BAR_HEIGHT, BAR_WIDTH = 16.0, 520.0
NAME_WIDTH = 190.0

Values = Sequence[float | None]  # one for each slice; None: no value


class Deliveries(Struct, frozen=True):
    """Of a run, slice by slice."""

    latencies_ns: Mapping[str, Values]  # by percentile, all subscribers together
    rates: Mapping[str, Values]  # by subscriber, hand-overs a second; the busiest ones


def deliveries(counted: Mapping[str, Numbers], begin_ns: int, end_ns: int) -> Deliveries:
    """Cut the time into slices.

    A latency counts in the slice in which the message was handed over.
    """
    size_ns = (end_ns - begin_ns) / SLICES

    def index(at_ns: int) -> int:
        return min(int((at_ns - begin_ns) / size_ns), SLICES - 1)

    latencies: list[list[int]] = [[] for _ in range(SLICES)]
    rates: dict[str, list[float | None]] = {}
    busiest = sorted(counted, key=lambda name: (-counted[name].delivered, name))
    for name in busiest:
        own = counted[name]
        for at_ns, latency_ns in zip(own.first_at_ns, own.delivery_latencies_ns, strict=True):
            latencies[index(at_ns)].append(latency_ns)
        if own.delivered and len(rates) < SUBSCRIBERS_MAX:
            per_slice = [0.0] * SLICES
            for at_ns, messages in own.handed_over:
                per_slice[index(at_ns)] += messages / (size_ns / 1e9)
            rates[name] = list(per_slice)
    return Deliveries(
        {
            name: [percentile(some, share) if some else None for some in latencies]
            for name, share in SHARES.items()
        },
        rates,
    )


def draw_deliveries(
    column: PanelColumn, axis: TimeAxis, found: Deliveries, styles: Mapping[str, str]
) -> None:
    """Two panels: latency by percentile, hand-overs a second by subscriber."""
    measured = [value for values in found.latencies_ns.values() for value in values if value]
    if measured:
        column.y += 34
        column.name("latency", "until the first delivery", column.y - 14)
        draw_legend(column, [(name, PERCENTILE_STYLES[name]) for name in found.latencies_ns])
        scale = _powers(min(measured), max(measured))
        _draw(column, axis, scale, LATENCY_HEIGHT, found.latencies_ns, PERCENTILE_STYLES)
    if found.rates:
        column.y += 34
        column.name("deliveries", "messages a second", column.y - 14)
        draw_legend(column, [(name, styles[name]) for name in sorted(found.rates)])
        most = max(value or 0 for values in found.rates.values() for value in values)
        height = height_with_legend(RATE_HEIGHT, len(found.rates))
        _draw(column, axis, counting_scale(math.ceil(most)), height, found.rates, styles)
    column.y += 10


def _powers(least_ns: float, most_ns: float) -> Scale:
    """Powers of ten around some durations."""
    low = math.floor(math.log10(least_ns))
    high = max(math.ceil(math.log10(most_ns)), low + 1)
    ticks = [(10.0**power, duration(10.0**power)) for power in range(low, high + 1)]
    return Scale(ticks, by_power=True)


def _draw(
    column: PanelColumn,
    axis: TimeAxis,
    scale: Scale,
    height: float,
    curves: Mapping[str, Values],
    styles: Mapping[str, str],
) -> None:
    y_of = draw_levels(column, scale, height)
    group = element("g", class_="curves")
    size_ns = (axis.end_ns - axis.begin_ns) / SLICES
    for name, values in curves.items():
        path, drawing = [], False
        for index, value in enumerate(values):
            if value is not None:
                x = number(axis.x(axis.begin_ns + index * size_ns))
                y = number(y_of(value))
                path.append(f"V{y}" if drawing else f"M{x} {y}")
                path.append(f"H{number(axis.x(axis.begin_ns + (index + 1) * size_ns))}")
            drawing = value is not None
        group.append(element("path", element("title", name), class_=styles[name], d="".join(path)))
    column.plot.append(group)


def bars(counted: Mapping[str, Numbers]) -> Element | None:
    """A bar for each subscriber: what it was given, and how much of it again."""
    given = {name: own for name, own in sorted(counted.items()) if own.delivered}
    if not given:
        return None
    most = max(own.delivered for own in given.values())
    row = BAR_HEIGHT + 8
    drawing = element("g")
    for place, (name, own) in enumerate(given.items()):
        y = place * row + 4
        width = BAR_WIDTH * own.delivered / most
        again = BAR_WIDTH * own.redelivered / most
        first = {"y": y, "height": BAR_HEIGHT, "x": NAME_WIDTH, "width": width - again}
        text = f"{own.delivered:,}" + (f", {own.redelivered:,} again" if own.redelivered else "")
        title = element("title", f"{name}: {text}")
        drawing.append(element("text", shortened(name, 26), class_="name", x=0, y=y + 12))
        drawing.append(element("rect", title, class_="delivery", **first))
        if own.redelivered:
            second = first | {"x": NAME_WIDTH + width - again, "width": again}
            drawing.append(element("rect", class_="redelivery", **second))
        drawing.append(element("text", text, class_="small", x=NAME_WIDTH + width + 8, y=y + 12))
    width, height = NAME_WIDTH + BAR_WIDTH + 160, len(given) * row + 4
    return svg("Messages that each subscriber was given", width, height, drawing, class_="bars")
