"""The tables of a report: losses, the log at the end, numbers of each process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from xml.etree.ElementTree import Element

from reliable_pubsub.common.core.journal import AnyLine, FoundEnd
from reliable_pubsub.common.core.markup import element

from .core.verdict import Verdict
from .report_lanes import Scene, duration
from .report_numbers import Numbers, percentile


def losses_section(verdict: Verdict) -> Sequence[Element]:
    """Where acknowledged messages are missing; nothing if none is."""
    if not verdict.losses:
        return []
    about = (
        "Acknowledged messages that are missing, by where they stood among all of one "
        "publisher (or for one subscriber). A lost end is the mark of an acknowledgement "
        "that came too early; a lost middle that of damage, or of a wrong deduplication."
    )
    rows = []
    for loss in verdict.losses:
        numbers = (loss.acknowledged, loss.prefix, loss.middle, loss.suffix)
        rows.append([loss.topic, loss.publisher, *(f"{n:,}" for n in numbers)])
    columns = ("topic", "publisher, or subscriber", "#acknowledged", "#lost: beginning")
    return [section("Losses", element("p", about), table((*columns, "#middle", "#end"), rows))]


def log_section(lines: Sequence[AnyLine]) -> Sequence[Element]:
    """What the log held in the end, and where each subscription stood in it."""
    ends = {line.topic: line for line in lines if isinstance(line, FoundEnd)}
    rows: list[Sequence[str | Element]] = []
    for topic, end in sorted(ends.items()):
        edges = (topic, f"{end.start:,}", f"{end.end:,}")
        for subscriber, position in sorted(end.positions.items()):
            lag = max(end.end - position, 0)
            rows.append([*edges, subscriber, f"{position:,}", f"{lag:,}"])
        if not end.positions:
            rows.append([*edges, "", "", ""])
    if not rows:
        return []
    columns = ("topic", "#begins", "#ends", "subscription", "#cursor", "#lag")
    return [section("The log at the end", table(columns, rows))]


def numbers_section(seen: Scene, counted: Mapping[str, Numbers]) -> Element:
    """One row for each process; cells that do not apply to its role are empty."""
    rows: list[Sequence[str | Element]] = []
    for lane in seen.lanes:
        own = counted.get(lane.process, Numbers())
        is_publisher, is_subscriber = lane.role == "publisher", lane.role == "subscriber"
        rows.append(
            [
                lane.process,
                lane.role,
                f"{len(lane.lives):,}",
                f"{lane.kills:,}",
                f"{own.acknowledged:,}" if is_publisher else "",
                f"{own.unknown:,}" if is_publisher else "",
                f"{own.failed:,}" if is_publisher else "",
                *_latencies(own.put_latencies_ns),
                f"{own.delivered:,}" if is_subscriber else "",
                f"{own.redelivered:,}" if is_subscriber else "",
                *_latencies(own.delivery_latencies_ns),
            ]
        )
    about = (
        "Messages, not operations. Put: from the call to its acknowledgement, retries and "
        "waiting for a killed proxy included. Delivery: from the call of put to the first "
        "hand-over; of a publisher without a journal, from the proxy's time of the message."
    )
    columns = (
        *("process", "role", "#lives", "#kills"),
        *("#acknowledged", "#unknown", "#failed", "#put p50", "#put p99"),
        *("#delivered", "#again", "#delivery p50", "#delivery p99"),
    )
    return section("Numbers", element("p", about), table(columns, rows))


def section(heading: str, *children: Element, **attributes: str) -> Element:
    """A part of the page."""
    return element("section", element("h2", heading), *children, **attributes)


def _latencies(latencies_ns: Sequence[int]) -> tuple[str, str]:
    if not latencies_ns:
        return "", ""
    return duration(percentile(latencies_ns, 0.5)), duration(percentile(latencies_ns, 0.99))


def table(header: Sequence[str], rows: Sequence[Sequence[str | Element]]) -> Element:
    """A table; columns whose header begins with # hold numbers. The first cell heads its row."""
    classes = ["number" if name.startswith("#") else "text" for name in header]
    names = [name.removeprefix("#") for name in header]
    body = [
        element(
            "tr",
            element("th", cells[0], scope="row"),
            *(
                element("td", cell, class_=c)
                for cell, c in zip(cells[1:], classes[1:], strict=True)
            ),
        )
        for cells in rows
    ]
    head = [
        element("th", name, scope="col", class_=c) for name, c in zip(names, classes, strict=True)
    ]
    made = element("table", element("thead", element("tr", *head)), element("tbody", *body))
    return element("div", made, class_="scroll", tabindex="0")
