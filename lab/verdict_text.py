"""A verdict, and the story of a message, as text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from reliable_pubsub.common.terminal import cell

from .core.story import Story, in_one_column
from .core.verdict import Losses, RuleVerdict, Verdict
from .text_table import text_table

VIOLATIONS_SHOWN = 3  # of each rule; --json has all


def show_verdict(
    console: Console,
    verdict: Verdict,
    story: Story | None,
    folder: Path,
    torn: Mapping[str, int],
    gaps: Sequence[str] = (),
) -> None:
    """Rules, losses, the first violation with its story, and what could not be judged.

    Args:
        gaps: what is missing for a verdict that can be relied on.
    """
    console.print(_rules_table(verdict.rules))
    if verdict.losses:
        console.print(_losses_table(verdict.losses))
    for rule in verdict.rules:
        for violation in rule.violations[:VIOLATIONS_SHOWN]:
            console.print(cell(f"{rule.rule}: {violation.text}", "red"))
        if len(rule.violations) > VIOLATIONS_SHOWN:
            more = len(rule.violations) - VIOLATIONS_SHOWN
            console.print(f"{rule.rule}: and {more:,} more; --json has all")
    if story is not None:
        console.print()
        show_story(console, story)
        console.print(cell(f"another one: reliable-pubsub lab trace ID {folder}"), soft_wrap=True)
    for name, count in torn.items():
        console.print(cell(f"note: {name}: {count:,} torn"))
    for warning in verdict.warnings:
        console.print(cell(f"warning: {warning}", "yellow"))
    for gap in gaps:
        console.print(cell(f"missing: {gap}", "bold yellow"))
    console.print(_last_line(verdict, complete=not gaps))


def show_story(console: Console, story: Story) -> None:
    """One line for each event."""
    title = f"The story of {story.message.message_id} on {story.message.topic!r}"
    console.print(cell(title, "bold"))
    for line in in_one_column(story):
        console.print(cell(line), soft_wrap=True)


def _rules_table(rules: Sequence[RuleVerdict]) -> Table:
    rows = [(rule.rule, rule.title, f"{rule.checked:,}", _word(rule)) for rule in rules]
    return text_table("rules", ("rule", "what has to hold", "#checked", "verdict"), rows)


def _word(rule: RuleVerdict) -> Text:
    if not rule.holds:
        return Text(f"broken {len(rule.violations):,} x", style="bold red")
    if not rule.checked:
        return Text(f"not judged: {rule.reason}", style="yellow")
    return Text("held", style="green")


def _losses_table(losses: Sequence[Losses]) -> Table:
    rows = []
    for loss in losses:
        numbers = (loss.acknowledged, loss.prefix, loss.middle, loss.suffix)
        rows.append((loss.topic, loss.publisher, *(f"{n:,}" for n in numbers)))
    columns = ("topic", "publisher or subscriber", "#acknowledged", "#beginning", "#middle", "#end")
    return text_table("lost messages, by where they stood", columns, rows)


def _last_line(verdict: Verdict, *, complete: bool) -> Text:
    broken = [rule.rule for rule in verdict.rules if not rule.holds]
    if broken:
        return Text(f"VIOLATED: {', '.join(broken)}", style="bold red")
    judged = sum(rule.checked > 0 for rule in verdict.rules)
    count = f"{judged} of {len(verdict.rules)} rules judged"
    if not complete:
        return Text(
            f"NOT DECIDED: no rule is violated, and evidence is missing; {count}", "bold yellow"
        )
    return Text(f"holds: {count}", style="bold green")
