"""What a run says, arranged for the rules: lives, puts, subscriptions, logs. Pure.

A client that was killed, and one that was stopped and replaced, leave more than one life. Lives
differ by pid; a life that another one has replaced is *superseded* from there on, and what it still
shows to its own program proves nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from reliable_pubsub.common.core.journal import (
    AdministeredLine,
    Begin,
    CreatedLine,
    DeadLetteredLine,
    Failed,
    Finished,
    Found,
    FoundEnd,
    GrantedLine,
    Invoke,
    Ok,
    PositionLine,
    ProxyLine,
    Seen,
    StoredLine,
    TrimmedLine,
    Unknown,
)

from .final_log import FinalLog
from .run import LabRun, OutputLine
from .subscription import NEVER, SubscriberStream
from .verdict import MessageKey, key_of

REMOVING: Final = ("truncate", "delete_topic")  # actions that remove messages

# Run of the plan (of a process without memory: its life), step, message.
PlanPlace = tuple[int, int, int]


@dataclass(slots=True)
class Life:
    """One process of an id, from its begin to its end or its death."""

    process: str
    pid: int
    number: int  # 1, 2, 3, ... over all lives of the run
    memory: int  # number of the life whose memory it has: its own, unless it began again in place
    role: str = ""
    began_ns: int = 0
    output: str = ""
    durability: str = ""  # of a proxy
    remembers: bool = True
    epoch: int = 0  # the highest that it was granted
    epoch_ns: int = NEVER  # when it heard of it
    superseded_ns: int = NEVER
    code: str | None = None  # it ended without a signal, with this
    open: dict[int, Invoke] = field(default_factory=dict)
    open_attempts: dict[int, list[Attempt]] = field(default_factory=dict)


@dataclass(slots=True)
class Unstored:
    """A message that was put at QoS 0, and handed over."""

    life: Life
    at_ns: int
    topic: str
    seen: Seen


@dataclass(slots=True)
class Attempt:
    """A message under one number with one content, and the outcome of putting it."""

    topic: str
    publisher: str
    sequence: int
    crc: int
    invoked_ns: int  # for the first time
    place: PlanPlace | None
    remembers: bool
    qos: int = 2
    # Numbers of the transactions that put it, 0 for a put of its own: equal content under a number
    # that a set-back state used again.
    put_by: set[int] = field(default_factory=set)
    undecided: int = 0  # calls of unknown outcome
    acknowledged_ns: int = NEVER
    offset: int | None = None  # by its receipt
    durability: str = ""
    code: str = ""  # of its last definite refusal

    @property
    def acknowledged(self) -> bool:
        """Whether there is a receipt."""
        return self.acknowledged_ns != NEVER

    @property
    def failed(self) -> bool:
        """Whether it certainly had no effect."""
        return not self.acknowledged and not self.undecided

    @property
    def key(self) -> MessageKey:
        """What names it."""
        return MessageKey(self.topic, self.publisher, self.sequence)


Attempts = dict[tuple[int, int], Attempt]  # by sequence and CRC-32


@dataclass(slots=True)
class RunIndex:
    """A run, arranged."""

    run: LabRun
    lives: dict[tuple[str, int], Life] = field(default_factory=dict)
    puts: dict[tuple[str, str], Attempts] = field(default_factory=dict)  # topic, publisher
    # publisher, life, number: what was sent under it, by topic, sequence and CRC-32
    transactions: dict[tuple[str, int, int], dict[tuple[str, int, int], Attempt]] = field(
        default_factory=dict
    )
    streams: dict[tuple[str, str], SubscriberStream] = field(
        default_factory=dict
    )  # subscriber, topic
    logs: dict[str, FinalLog] = field(default_factory=dict)
    hellos: list[tuple[Life, int, Ok]] = field(default_factory=list)  # with the time of `invoke`
    effects: list[tuple[Life, Invoke, Ok]] = field(default_factory=list)  # with an epoch
    stored: list[StoredLine] = field(default_factory=list)
    found: list[Found] = field(default_factory=list)
    found_ends: dict[str, FoundEnd] = field(default_factory=dict)
    created: list[CreatedLine] = field(default_factory=list)
    granted: list[GrantedLine] = field(default_factory=list)
    dead_letters: list[DeadLetteredLine] = field(default_factory=list)
    positions: list[PositionLine] = field(default_factory=list)
    clean_ends: dict[tuple[str, str, int], int] = field(default_factory=dict)  # topic, subscriber,
    # generation: when a clean session had ended, by BYE, unsubscribe or its lease
    clean_begins: dict[tuple[str, str], PositionLine] = field(default_factory=dict)  # the last one
    refused_starts: list[tuple[Invoke, Unknown]] = field(default_factory=list)
    proxy_lines: list[ProxyLine] = field(default_factory=list)  # in its own order
    gets: list[Ok] = field(default_factory=list)  # of all lives
    trimmed: list[TrimmedLine] = field(default_factory=list)
    administered: list[AdministeredLine] = field(default_factory=list)
    # Topic, subscriber: by generation, the action of an operator that made it.
    moves: dict[tuple[str, str], dict[int, AdministeredLine]] = field(default_factory=dict)
    finished: dict[str, Finished] = field(default_factory=dict)
    power_losses: dict[str, list[int]] = field(default_factory=dict)  # by target: when
    rollbacks_ns: list[int] = field(default_factory=list)  # when the proxy was set back
    replaced: dict[tuple[str, int], int] = field(default_factory=dict)  # process, pid: when
    told_lost: list[tuple[Life, Failed]] = field(default_factory=list)
    told_changed: dict[str, None] = field(default_factory=dict)  # processes, in order
    offered: dict[MessageKey, int] = field(default_factory=dict)  # put at QoS 0: CRC-32
    unstored: list[Unstored] = field(default_factory=list)
    # Of groups: `begin`, `invoke` and answers, in order, with the life that wrote each.
    of_groups: list[tuple[Life, Begin | Invoke | Ok | Failed | Unknown]] = field(
        default_factory=list
    )
    # Processes that were in a group, and of which topic.
    members: set[tuple[str, str]] = field(default_factory=set)
    # By topic: answers to puts whose `invoke` is not there.
    unmatched: Counter[str] = field(default_factory=Counter)

    @property
    def writers(self) -> set[str]:
        """Publishers whose journal is here."""
        return {publisher for _, publisher in self.puts} | {
            life.process for life in self.lives.values() if life.role == "publisher"
        }

    @property
    def has_proxy(self) -> bool:
        """Whether a proxy wrote its part of the journal."""
        return bool(self.stored or self.granted or self.positions or self.trimmed)

    @property
    def outputs(self) -> Mapping[str, Sequence[OutputLine]]:
        """Of the subscribers that have one."""
        return self.run.outputs

    def attempts(self) -> Iterator[Attempt]:
        """All puts, message by message."""
        for attempts in self.puts.values():
            yield from attempts.values()

    def offset_of(self, attempt: Attempt) -> int | None:
        """Where a message is: by the log, or by its receipt."""
        log = self.logs.get(attempt.topic)
        if log is not None:
            place = log.place_of(attempt.publisher, attempt.sequence, attempt.crc)
            if place is not None:
                return place
        return attempt.offset

    def message_at(self, topic: str, offset: int | None) -> MessageKey | None:
        """The message at an offset, if the log is known."""
        log = self.logs.get(topic)
        entry = log.entries.get(offset) if log is not None and offset is not None else None
        return key_of(topic, entry) if entry else None

    def reported_to(self, topic: str, first: int | None = None, end: int | None = None) -> str:
        """The half sentence that says to which clients a loss was reported; "" if to none."""
        who = [
            f"{life.process} got LOST for offsets {line.first} to {line.end - 1}"
            for life, line in self.told_lost
            if line.topic == topic
            and (first is None or end is None or (line.first < end and first < line.end))
        ]
        if self.told_changed:
            who.append(f"{', '.join(self.told_changed)} got LOG_CHANGED")
        return f"; and it was reported: {', '.join(dict.fromkeys(who))}" if who else ""

    def was_told_lost(self, topic: str, offset: int) -> bool:
        """Whether this offset was reported to a client as lost."""
        return any(
            line.topic == topic and line.first <= offset < line.end for _, line in self.told_lost
        )

    def is_another(self, line: PositionLine) -> bool:
        """Whether a clean subscription begins again here; a move of its cursor does not."""
        before = self.clean_begins.get((line.topic, line.subscriber))
        return before is None or before.generation != line.generation

    def has_begun_again(self, topic: str, subscriber: str, generation: int, end: int) -> bool:
        """Whether another clean subscription began, of which its subscriber cannot have been told.

        By a pattern each life begins another one, and learns of it with its first message.

        Args:
            generation: of the last one that the subscriber was told of; 0: not known.
            end: of the topic. What came after the other one began, its subscriber must have.
        """
        begun = self.clean_begins.get((topic, subscriber))
        return begun is not None and 0 < generation < begun.generation and begun.cursor >= end

    def ended_by_operator(self, line: PositionLine | Ok, *, later: bool = False) -> bool:
        """Whether an operator ended a subscription: the one of this line, before it.

        Args:
            later: or after it.
        """
        who = line.subscriber if isinstance(line, PositionLine) else line.process
        return any(
            (later or one.at_ns < line.at_ns)
            and (one.action != "end_subscription" or one.generation == line.generation)
            for one in self.ends_by_operator(line.topic, who)
        )

    def ends_by_operator(self, topic: str, subscriber: str) -> Iterator[AdministeredLine]:
        """The actions that ended subscriptions of a subscriber to a topic."""
        for one in self.administered:
            forgets = one.action == "forget_client" and one.role == "subscriber"
            ends = one.action == "end_subscription" and one.topic == topic
            deletes = one.action == "delete_topic" and one.topic == topic
            if deletes or (one.subscriber == subscriber and (forgets or ends)):
                yield one

    def lost_by_operator(self, subscriber: str, line: Failed) -> AdministeredLine | None:
        """The action that explains a loss that was reported as the work of an operator."""
        done = [
            one for one in self.administered if one.topic == line.topic and one.at_ns < line.at_ns
        ]
        moves = (one for one in done if one.action in ("skip", "set_cursor"))
        cuts = (one for one in done if one.action in REMOVING and line.first < one.end)
        mine = (one for one in moves if (one.subscriber, one.end) == (subscriber, line.end))
        return next(mine, None) or next(cuts, None)

    def removed_below(self, topic: str) -> int:
        """Where a topic begins, by what may count as a reason for that.

        That is the word of the proxy; where its journal is missing, that of the auditor.
        """
        log = self.logs.get(topic)
        if log is None:
            return 0
        return log.trimmed if self.has_proxy else log.start
