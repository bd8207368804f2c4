"""Cuts a run by topics into parts that the checker can judge apart. Pure.

Lines without a topic (lives, epochs, events) are in every part. What the rules look at across
topics ties those topics into one part; a run in which that cannot be determined stays whole. So the
verdicts of the parts add up: what each says beyond the lines that all of them have.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from typing import Final, TypeVar

from msgspec import Struct, field

from reliable_pubsub.common.core import journal
from reliable_pubsub.common.core.dead_letter import DEAD_SUFFIX

from .verdict import RuleVerdict, Verdict

PARTS_MAX: Final = 200  # lines without a topic are judged again in each

Judged = TypeVar("Judged", bound=Hashable)


def topic_of_line(line: journal.AnyLine) -> str:
    """The topic whose part has the line; "" if each part has it."""
    return "" if isinstance(line, journal.AdministeredLine) else getattr(line, "topic", "")


class Sketch(Struct, kw_only=True):
    """What decides how a run can be cut, as far as some of its lines show it."""

    facts: dict[str, int] = field(default_factory=dict)  # by topic: lines and messages
    logged: set[str] = field(default_factory=set)  # topics of which there is a log
    tied: dict[str, set[str]] = field(default_factory=dict)  # by what ties them: topics
    puts: dict[str, set[str]] = field(default_factory=dict)  # by process: its topics
    is_of_proxy: bool = False  # a proxy wrote about a topic
    is_whole: bool = False  # there is something that every topic's rules look at
    publishers: set[str] = field(default_factory=set)  # that say so when they begin

    def take(self, line: journal.AnyLine) -> str:
        """Look at the next line of a file, and return its `topic_of`."""
        if isinstance(line, journal.Begin) and line.role == "publisher":
            self.publishers.add(line.process)
        topic = topic_of_line(line)
        if not topic:
            # The lines after an action are its effect.
            self.is_whole |= isinstance(line, journal.AdministeredLine)
            return topic
        many = len(getattr(line, "messages", ())) + len(getattr(line, "crcs", ()))
        self.facts[topic] = self.facts.get(topic, 0) + 1 + many
        match line:
            case journal.Invoke(op="put"):
                self.puts.setdefault(line.process, set()).add(topic)
                if line.transaction:
                    self.tied.setdefault(f"transactions of {line.process}", set()).add(topic)
            case journal.Failed() | journal.Unknown():
                self.is_whole |= line.code == "LOG_CHANGED"  # it excuses losses of all topics
            case journal.StoredLine() | journal.Found() | journal.FoundEnd():
                self.logged.add(topic)
            case journal.DeadLetteredLine():
                self.logged.add(line.dead_topic)
                self.facts.setdefault(line.dead_topic, 0)
        self.is_of_proxy |= isinstance(
            line, journal.StoredLine | journal.PositionLine | journal.TrimmedLine
        )
        return topic

    def take_output(self, name: str, lines: Mapping[str, int]) -> None:
        """An output, with the number of its lines by topic: a story counts them over all topics."""
        self.tied[f"output {name}"] = set(lines)
        for topic, count in lines.items():
            self.facts[topic] = self.facts.get(topic, 0) + count


def says_which_run(line: journal.AnyLine) -> bool:
    """Whether a line of a topic tells one run from another (`one_run`)."""
    return (
        isinstance(line, journal.CreatedLine)
        or (isinstance(line, journal.Ok) and line.op == "subscribe")
        or (isinstance(line, journal.Failed | journal.Unknown) and line.code == "LOG_CHANGED")
    )


def cut(
    shared: Iterable[journal.AnyLine], sketches: Sequence[Sketch], logs: Mapping[str, int]
) -> dict[str, int]:
    """The part of each topic, from 0.

    Args:
        shared: lines without a topic.
        sketches: of all lines.
        logs: topics whose log is read besides, with the number of their messages.
    """
    facts = Counter(logs)
    puts: dict[str, set[str]] = {}
    for one in sketches:
        facts.update(one.facts)
        for process, topics in one.puts.items():
            puts.setdefault(process, set()).update(topics)
    lines = list(shared)
    is_whole = (
        any(one.is_whole for one in sketches)
        # A part has to know of each publisher that it has a journal.
        or not puts.keys() <= {name for one in sketches for name in one.publishers}
        # Rules ask whether a proxy wrote a journal; a grant says so to each part.
        or (
            any(one.is_of_proxy for one in sketches)
            and not any(isinstance(line, journal.GrantedLine) for line in lines)
        )
    )
    logged = set(logs).union(*(one.logged for one in sketches))
    if is_whole or not logged:
        return dict.fromkeys(facts, 0)
    # Beside a log, what was put on a topic without one is missing.
    ties = [{min(logged), *(facts.keys() - logged)}]
    ties += [{topic, topic + DEAD_SUFFIX} for topic in facts if topic + DEAD_SUFFIX in facts]
    ties += [puts.get(line.target, set()) for line in lines if isinstance(line, journal.Finished)]
    for name in {name for one in sketches for name in one.tied}:  # lives may be in several files
        ties.append(set().union(*(one.tied.get(name, set()) for one in sketches)))
    return _numbered(facts, ties)


def _numbered(facts: Mapping[str, int], ties: Iterable[Collection[str]]) -> dict[str, int]:
    """Topics that are tied are in one part; parts are about as large as each other."""
    above: dict[str, str] = {}

    def root(name: str) -> str:
        while name in above:
            name = above[name]
        return name

    for topics in ties:
        first, *others = sorted(map(root, topics)) or [""]
        above |= {other: first for other in others if other != first}
    groups: dict[str, list[str]] = {}
    for topic in sorted(facts):
        groups.setdefault(root(topic), []).append(topic)
    sizes = {name: sum(facts[topic] for topic in topics) for name, topics in groups.items()}
    held = [0] * min(PARTS_MAX, len(groups))
    parts: dict[str, int] = {}
    for name in sorted(groups, key=lambda name: (-sizes[name], name)):
        part = held.index(min(held))
        held[part] += sizes[name] + 1
        parts |= dict.fromkeys(groups[name], part)
    return parts


def together(shared: Verdict, parts: Sequence[Verdict]) -> Verdict:
    """The verdict over a run, by those over its parts.

    Args:
        shared: over the lines that each part has.
    """
    if not parts:
        return shared
    return Verdict(
        rules=[
            _rule(rule, [part.rules[place] for part in parts])
            for place, rule in enumerate(shared.rules)
        ],
        losses=_sum(shared.losses, [part.losses for part in parts]),
        warnings=_sum(shared.warnings, [part.warnings for part in parts]),
    )


def _rule(shared: RuleVerdict, parts: Sequence[RuleVerdict]) -> RuleVerdict:
    checked = sum(part.checked for part in parts) - (len(parts) - 1) * shared.checked
    violations = _sum(shared.violations, [part.violations for part in parts])
    others = (part.reason for part in parts if part.reason not in ("", shared.reason))
    reason = "" if checked or violations else next(others, shared.reason)
    return RuleVerdict(shared.rule, shared.title, checked, violations, reason)


def _sum(shared: Sequence[Judged], parts: Sequence[Sequence[Judged]]) -> list[Judged]:
    """What is said of the lines of all parts counts once, also if it takes a part to see it."""
    of_all, of_each = Counter(shared), [Counter(part) for part in parts]
    found: list[Judged] = []
    for one in dict.fromkeys([*shared, *(one for part in parts for one in part)]):
        counts = [of[one] for of in of_each]
        count = max(counts)
        if one in of_all:
            count = sum(counts) - (len(parts) - 1) * of_all[one]
        found += [one] * count
    return found
