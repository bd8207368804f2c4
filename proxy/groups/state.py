"""What a proxy knows of a group: which of its messages are held, by which member, and which have
ended.

Everything below the cursor has ended, everything at or above the frontier was never taken. Between
the two, at most GROUP_WINDOW_MAX messages, runs without gaps give the state of each. All of it is
one value, which a record replaces as a whole.

Source: the in-flight records of Kafka's share groups (KIP-932), as runs of offsets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import inf
from typing import Final, Literal

from msgspec import Struct, field

from reliable_pubsub.common.core.group_messages import Outcome, Stretch
from reliable_pubsub.common.core.message_base import GroupTerms
from reliable_pubsub.common.core.names import GROUP_PREFIX

from ..core.lower_bounds import LowerBounds
from ..core.topic_log import TopicLog


def subscription_of_group(group: str) -> str:
    """The name of a group among the subscriptions of its topic."""
    return GROUP_PREFIX + group


def is_group(subscriber: str) -> bool:
    """Whether a subscription is that of a group."""
    return subscriber.startswith(GROUP_PREFIX)


RunState = Literal["granted", "held", "free", "ended"]


class GroupRun(Struct, frozen=True, gc=False, array_like=True):
    """Neighbouring messages that are in the same state.

    Where deliveries are bounded, a grant is no delivery until its member has confirmed that it came
    (rule R29): until then the messages are `granted`, and afterwards `held`.
    """

    first: int
    end: int
    how: RunState
    delivery: int = 0  # granted, held: the number of this one; free: how often it was delivered
    member: str = ""  # that holds them
    take: int = 0  # number of the request that was given them
    ms: int = 0  # granted, held: the lease; free: the delay before the next delivery
    until_s: float = inf  # by the clock of leases: when that is over; not stored

    @property
    def is_held(self) -> bool:
        """Return whether a member has the messages, or was granted them."""
        return self.how == "held" or self.how == "granted"

    @property
    def delivered(self) -> int:
        """Return how often the messages were delivered."""
        return self.delivery - (self.how == "granted")

    def is_due(self, now_s: float) -> bool:
        """Whether the messages may be given to a member."""
        return self.how != "ended" and self.until_s <= now_s


class Member(Struct, frozen=True, gc=False, array_like=True):
    """A member of a group, and what its last request was answered."""

    name: str
    epoch: int
    request: int = 0  # number of its last request that changed something
    refused: tuple[Stretch, ...] = ()
    letters: tuple[int, ...] = ()
    lost: tuple[Stretch, ...] = ()  # in the reply to its last TAKE; reported, if it sends another


class StoredGroup(Struct, frozen=True):
    """A group as the store holds it; its generation and cursor are those of its subscription."""

    topic_id: int
    group: str
    terms: GroupTerms
    runs: tuple[GroupRun, ...] = ()
    members: tuple[Member, ...] = ()
    lost: tuple[Stretch, ...] = ()


class Group(Struct):
    """One group of one topic."""

    terms: GroupTerms
    runs: tuple[GroupRun, ...]
    members: Mapping[str, Member]
    lost: tuple[Stretch, ...] = ()  # what no member is known to have reported
    keys: dict[int, bytes | None] = field(default_factory=dict)  # by offset; those that were read


class GroupIndex:
    """The groups of all topics."""

    def __init__(self) -> None:
        self.of: dict[int, dict[str, Group]] = {}  # by topic id, then by name
        self.members: dict[str, int] = {}  # by subscriber: groups that it is a member of
        self.due: LowerBounds[tuple[int, str]] = LowerBounds()  # by the next lease that ends
        self.seen_s = 0.0  # when `due` was last checked

    def in_topic(self, log: TopicLog | None) -> Mapping[str, Group]:
        """Return the groups of a topic, by name."""
        return self.of.get(log.topic_id, _NO_GROUPS) if log else _NO_GROUPS

    def count(self, client: str, joined: int) -> None:
        """A client has joined a group (1) or left it (-1)."""
        count = self.members.get(client, 0) + joined
        if count:
            self.members[client] = count
        else:
            del self.members[client]


_NO_GROUPS: Final[Mapping[str, Group]] = {}


def restored(stored: StoredGroup) -> Group:
    """A group from the store. Its leases and delays begin with the first tick."""
    members = {one.name: one for one in stored.members}
    return Group(stored.terms, at_rest(stored.runs), members, stored.lost)


def at_rest(runs: Iterable[GroupRun]) -> tuple[GroupRun, ...]:
    """Runs as they are in the store, without a time of this start of the proxy."""
    return tuple(GroupRun(*_stored_part(run)) for run in runs)


def stored_runs(runs: Iterable[GroupRun]) -> tuple[tuple[object, ...], ...]:
    """The columns of runs."""
    return tuple(_stored_part(run) for run in runs)


def _stored_part(
    run: GroupRun,
) -> tuple[int, int, RunState, int, str, int, int]:
    return (run.first, run.end, run.how, run.delivery, run.member, run.take, run.ms)


def begun(runs: Iterable[GroupRun], now_s: float) -> tuple[GroupRun, ...]:
    """The same runs; leases and delays that were restored begin now."""
    return tuple(
        GroupRun(*_stored_part(run), now_s + run.ms / 1000)
        if run.how != "ended" and run.until_s == inf
        else run
        for run in runs
    )


def next_due_s(runs: Iterable[GroupRun], after_s: float) -> float | None:
    """When the next lease or delay is over; None: there is none."""
    return min((r.until_s for r in runs if after_s < r.until_s < inf), default=None)


def may_settle(run: GroupRun, member: str, delivery: int) -> bool:
    """Whether a member still holds these messages, by this delivery."""
    return run.is_held and run.member == member and run.delivery == delivery


def settled(outcome: Outcome, run: GroupRun, *, now_s: float, lease_ms: int) -> GroupRun:
    """A run after its holder has reported its outcome."""
    first, end = run.first, run.end
    match outcome.how:
        case "ack" | "reject":
            return GroupRun(first, end, "ended")
        case "nack":
            delay_ms = outcome.delay_ms
            until_s = now_s + delay_ms / 1000
            return GroupRun(first, end, "free", run.delivery, ms=delay_ms, until_s=until_s)
        case "return":
            return GroupRun(first, end, "free", run.delivery - 1, until_s=now_s)
        case "extend":
            return held(run, run.member, run.delivery, run.take, now_s=now_s, lease_ms=lease_ms)


def held(
    run: GroupRun,
    member: str,
    delivery: int,
    take: int,
    *,
    now_s: float,
    lease_ms: int,
    how: RunState = "held",
) -> GroupRun:
    """Return a run in the hands of a member, whose lease begins now."""
    until_s = now_s + lease_ms / 1000
    return GroupRun(run.first, run.end, how, delivery, member, take, lease_ms, until_s)


def cut_run(run: GroupRun, first: int, end: int) -> GroupRun:
    """A part of a run."""
    if first == run.first and end == run.end:
        return run
    return GroupRun(first, end, run.how, run.delivery, run.member, run.take, run.ms, run.until_s)


def merged(runs: Iterable[GroupRun]) -> list[GroupRun]:
    """The same, with equal neighbours as one run."""
    found: list[GroupRun] = []
    for run in runs:
        last = found[-1] if found else None
        if (
            last is not None
            and last.end == run.first
            and last.how == run.how
            and (
                run.how == "ended"
                or (last.delivery, last.member, last.take, last.ms, last.until_s)
                == (run.delivery, run.member, run.take, run.ms, run.until_s)
            )
        ):
            found[-1] = GroupRun(last.first, *_stored_part(run)[1:], run.until_s)
        else:
            found.append(run)
    return found


def changed(
    runs: Sequence[GroupRun],
    parts: Sequence[tuple[int, int]],
    change: Callable[[int, GroupRun], GroupRun],
) -> list[GroupRun]:
    """Runs, with another state for some offsets; one pass over both.

    Args:
        parts: first and end of each, ascending and apart.
        change: gives the new state of a piece; called with the index of the part that it is in.
    """
    found: list[GroupRun] = []
    index = 0
    for run in runs:
        at = run.first
        while at < run.end:
            while index < len(parts) and parts[index][1] <= at:
                index += 1
            first, end = parts[index] if index < len(parts) else (run.end, run.end)
            if first > at:
                stop = min(first, run.end)
                found.append(cut_run(run, at, stop))
            else:
                stop = min(end, run.end)
                found.append(change(index, cut_run(run, at, stop)))
            at = stop
    return merged(found)


def without_ended(runs: Sequence[GroupRun], cursor: int) -> tuple[int, tuple[GroupRun, ...]]:
    """The cursor after what has ended at the beginning, and the runs from there on."""
    index = 0
    while index < len(runs) and runs[index].how == "ended":
        cursor = runs[index].end
        index += 1
    return cursor, tuple(runs[index:])
