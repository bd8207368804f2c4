"""The report of a run as one page of HTML: verdict, timeline, rules, losses and numbers.

Nothing is fetched: style and script are in the page, and without the script it is a still
picture. All text of the run goes through `common/core/markup.py`, so none of it can act.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from xml.etree.ElementTree import Element

from msgspec import Struct

from reliable_pubsub.common.core.markup import element, html_text

from .core.run import LabRun
from .core.story import in_one_column, tell
from .core.verdict import MessageKey, RuleVerdict, Verdict
from .report_curves import topic_curves
from .report_deliveries import bars, deliveries
from .report_density import drawn
from .report_figure import draw_figure
from .report_lanes import DEATHS, Scene, duration, scene
from .report_numbers import Numbers, numbers
from .report_panels import TOPICS_MAX
from .report_tables import log_section, losses_section, numbers_section, section, table

VIOLATIONS_MAX = 5  # shown of each rule


class Dress(Struct, frozen=True):
    """What makes the page look and move, and what it is called."""

    style: str  # CSS
    script: str  # JavaScript
    eyebrow: str  # above the title


def page(run: LabRun, verdict: Verdict, *, title: str, about: str, dress: Dress) -> str:
    """The whole page.

    Args:
        title: of the scenario.
        about: its comment; empty lines separate paragraphs.
    """
    seen = scene(run.lines)
    counted = numbers(run.lines)
    body = element(
        "main",
        element("p", dress.eyebrow, class_="eyebrow"),
        element("h1", title),
        *(element("p", text, class_="about") for text in about.split("\n\n") if text.strip()),
        _headline(verdict),
        _tiles(seen, counted),
        *_first_violation(run, verdict),
        *([_timeline(run, verdict, seen, counted)] if seen.lanes else []),
        *_given(counted),
        _rules(verdict),
        *losses_section(verdict),
        *log_section(run.lines),
        numbers_section(seen, counted),
        *_notes(run, verdict),
    )
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("title", f"{_verdict_words(verdict)[0]}: {title}"),
        element("style", dress.style),
    )
    script = [element("script", dress.script)] if seen.lanes else []
    return html_text(element("html", head, element("body", body, *script), lang="en"))


def _verdict_words(verdict: Verdict) -> tuple[str, str]:
    """The verdict in a word, and what it rests on."""
    rules = len(verdict.rules)
    facts = sum(rule.checked for rule in verdict.rules)
    broken = [rule for rule in verdict.rules if not rule.holds]
    if broken:
        violations = sum(len(rule.violations) for rule in broken)
        names = ", ".join(rule.rule for rule in broken)
        return "Violated", (
            f"{len(broken)} of {rules} rules broken ({names}), "
            f"{_count(violations, 'violation')} among {facts:,} facts checked."
        )
    judged = sum(rule.checked > 0 for rule in verdict.rules)
    rest = rules - judged
    untested = f" {_count(rest, 'rule')} had nothing to check." if rest else ""
    return (
        "Holds",
        f"{judged} of {rules} rules judged, all hold; {facts:,} facts checked.{untested}",
    )


def _headline(verdict: Verdict) -> Element:
    word, reason = _verdict_words(verdict)
    sign = "✓" if verdict.holds else "✗"
    return element(
        "section",
        element("span", sign, class_="sign", aria_hidden="true"),
        element("div", element("strong", word), element("p", reason)),
        class_=f"verdict {'holds' if verdict.holds else 'violated'}",
    )


def _tiles(seen: Scene, counted: Mapping[str, Numbers]) -> Element:
    def total(field: str) -> str:
        return f"{sum(getattr(numbers, field) for numbers in counted.values()):,}"

    kills = sum(lane.kills for lane in seen.lanes)
    kills += sum(fault.what in DEATHS for fault in seen.elsewhere)
    others = sum(fault.what not in ("kill", "quiet") for fault in seen.faults)
    tiles = [
        ("messages acknowledged", total("acknowledged")),
        ("of unknown outcome", total("unknown")),
        ("deliveries", total("delivered")),
        ("of these, again", total("redelivered")),
        ("kills", f"{kills:,}"),
        ("other faults", f"{others:,}"),
        ("duration", duration(seen.end_ns - seen.begin_ns)),
    ]
    return element(
        "dl",
        *(element("div", element("dt", name), element("dd", value)) for name, value in tiles),
        class_="tiles",
    )


def _first_violation(run: LabRun, verdict: Verdict) -> Sequence[Element]:
    first = verdict.first
    if first is None:
        return []
    rule = next(rule for rule in verdict.rules if first in rule.violations)
    return [
        section(
            "The first violation",
            element("p", element("b", f"{rule.rule}: {rule.title}")),
            element("p", first.text, class_="violation"),
            *_story(run, first.message),
        )
    ]


def _story(run: LabRun, message: MessageKey | None) -> Sequence[Element]:
    """The story of a message, one line for each event, across processes."""
    if message is None:
        return []
    lines = "\n".join(in_one_column(tell(run, message)))
    return [
        element("h3", f"The story of {message.message_id} on {message.topic}"),
        element("pre", lines, class_="story", tabindex="0"),
    ]


def _timeline(
    run: LabRun, verdict: Verdict, seen: Scene, counted: Mapping[str, Numbers]
) -> Element:
    marks = drawn(seen)
    topics = topic_curves(run.lines)
    first = verdict.first.message if verdict.first else None
    notes = ["Positions are the offsets after what was handed over last; lag is log end minus it."]
    if marks.sum_max > 1:
        notes.insert(
            0,
            f"Marks were aggregated: where they are too many, each represents up to "
            f"{marks.sum_max:,}; the higher, the more.",
        )
    if len(topics) > TOPICS_MAX:
        notes.append(f"Offsets of the {TOPICS_MAX} busiest of {len(topics)} topics are drawn.")
    given = deliveries(counted, seen.begin_ns, seen.end_ns)
    figure = draw_figure(seen, marks, topics, given, first)
    return section(
        "What happened",
        _legend(aggregated=marks.sum_max > 1, with_first=first is not None),
        element("figure", figure, element("figcaption", " ".join(notes))),
        id="what-happened",
    )


def _legend(*, aggregated: bool, with_first: bool) -> Element:
    """Each sign with its word, in the colors of the figure."""

    def bar(class_: str, height: float) -> Element:
        return element("rect", class_=class_, x=2, y=10 - height / 2, width=20, height=height)

    def tick(class_: str) -> Element:
        return element("rect", class_=class_, x=11, y=2, width=2, height=16)

    def sign(class_: str) -> Element:
        return element("use", href=f"#{class_}", x=12, y=11, class_=class_)

    entries = [
        (bar("life", 16), "life of a process"),
        (bar("put", 8), "put, acknowledged"),
        (bar("retried", 8), "put, acknowledged when repeated"),
        (sign("unknown"), "outcome unknown"),
        (sign("failed"), "failed"),
        (tick("commit"), "durable at the proxy"),
        (tick("delivery"), "delivered"),
        (sign("redelivery"), "delivered again"),
        (sign("kill"), "killed"),
        (bar("period stop", 16), "stopped"),
        (bar("period cut", 5), "link cut"),
        (bar("period half_open", 5), "answers lost"),
        (bar("period delay", 5), "link delayed"),
        (bar("period slow", 5), "link slow"),
        (bar("period fill_disk", 16), "disk full"),
        (element("use", href="#moment", x=12, y=12, class_="moment"), "other fault"),
    ]
    if aggregated:
        entries.append((bar("delivery sum", 12), "many, as a sum"))
    if with_first:
        ring = element("g", element("circle", cx=12, cy=10, r=7), class_="first-violation")
        entries.append((ring, "message of the first violation"))
    return element(
        "ul",
        *(
            element(
                "li",
                element("svg", drawing, width=24, height=20, aria_hidden="true"),
                element("span", word),
            )
            for drawing, word in entries
        ),
        class_="legend",
    )


def _given(counted: Mapping[str, Numbers]) -> Sequence[Element]:
    drawing = bars(counted)
    if drawing is None:
        return []
    words = "Messages that each subscriber was given; those that came again are at the end."
    scroll = element("div", drawing, class_="scroll", tabindex="0")
    return [section("Deliveries by subscriber", element("p", words), scroll)]


def _rules(verdict: Verdict) -> Element:
    rows: list[Sequence[str | Element]] = []
    for rule in verdict.rules:
        title = element("div", rule.title, *_violations(rule))
        rows.append([rule.rule, title, f"{rule.checked:,}", _rule_verdict(rule)])
    return section("The rules", table(("rule", "", "#checked", "verdict"), rows), class_="rules")


def _rule_verdict(rule: RuleVerdict) -> Element:
    if not rule.holds:
        return element("span", f"✗ broken ({len(rule.violations):,})", class_="bad")
    if rule.checked:
        return element("span", "✓ holds", class_="good")
    return element("span", "nothing to check", class_="idle")


def _violations(rule: RuleVerdict) -> Sequence[Element]:
    if rule.holds:
        return []
    shown = rule.violations[:VIOLATIONS_MAX]
    left = len(rule.violations) - len(shown)
    items = [element("li", violation.text) for violation in shown]
    if left:
        items.append(element("li", f"and {left:,} more", class_="more"))
    return [element("ul", *items, class_="violations")]


def _notes(run: LabRun, verdict: Verdict) -> Sequence[Element]:
    notes = list(verdict.warnings)
    notes += [f"{file}: {_count(lines, 'line')} cannot be read" for file, lines in run.torn.items()]
    if not notes:
        return []
    items = [element("li", note) for note in notes]
    return [section("What could not be judged", element("ul", *items))]


def _count(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
