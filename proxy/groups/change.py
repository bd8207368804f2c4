"""What one request of a member changes in its group: settle, give back, grant.

A mutable draft of the group's value; the resulting record replaces the value.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec import Struct

from reliable_pubsub.common.core.dead_letter import DELIVERIES_USED_UP
from reliable_pubsub.common.core.group_messages import Grant, Outcome, Settle, Stretch, Take
from reliable_pubsub.common.core.limits import (
    GROUP_GRANTS_MAX,
    GROUP_REASONS_MAX,
    GROUP_WINDOW_MAX,
)

from ..core.records import Decision
from ..core.state import Record, State
from ..core.topic_log import TopicLog
from ..dead_letters.verbs import GroupLetters
from .reading import GroupReading
from .records import GroupChanged
from .state import (
    GroupIndex,
    GroupRun,
    Member,
    RunState,
    changed,
    cut_run,
    held,
    may_settle,
    merged,
    settled,
    subscription_of_group,
    without_ended,
)


class Answered(Struct):
    """What a reply contains besides its grants; kept for repeats of the request."""

    refused: list[Stretch]
    letters: list[int]


class Change:
    """A group while one request of a member is decided."""

    def __init__(
        self, state: State, log: TopicLog, request: Take | Settle, member: Member, now_ns: int
    ) -> None:
        """Begin with what the group is now.

        Args:
            now_ns: wall clock, for timestamps of dead letters.
        """
        self._state = state
        self._log = log
        self._request = request
        self._now_ns = now_ns
        self._now_s = state.leases.now_s
        self.member = member
        group = state.part(GroupIndex).of[log.topic_id][request.group]
        self._known = log.subscriptions[subscription_of_group(request.group)]
        self._group = group
        self._runs: list[GroupRun] = list(group.runs)
        self._cursor = self._known.cursor
        self._members = dict(group.members)
        self._letters = GroupLetters(state, request, log)
        self.is_changed = False
        self.answer = Answered([], [])
        self._lost = list(group.lost)
        self._told = member.lost
        self.grants: list[Grant] = []
        self.is_unconfirmed = False  # the grants are no deliveries yet
        self._settled: list[Outcome] = []
        self.reading = GroupReading(state.reader, log, group.keys)

    @property
    def lease_ms(self) -> int:
        """How long the group lets a member hold a message."""
        return self._group.terms.lease_ms

    # What comes back.

    def give_back(self, which: Callable[[GroupRun], bool], *, counted: bool) -> None:
        """Free the messages of some runs of the sender.

        Args:
            counted: they may have been delivered, so that counts as a delivery.
        """

        def freed(run: GroupRun) -> GroupRun:
            delivery = run.delivered if counted else run.delivery - 1
            return GroupRun(run.first, run.end, "free", delivery, until_s=self._now_s)

        mine = [run for run in self._runs if self._is_mine(run) and which(run)]
        if mine:
            self._runs = merged(
                freed(run) if self._is_mine(run) and which(run) else run for run in self._runs
            )
            self.is_changed = True

    def _is_mine(self, run: GroupRun) -> bool:
        return run.is_held and run.member == self._request.client

    def heard(self, lost: Sequence[Stretch]) -> None:
        """The sender has reported these losses to its program, so no other member has to."""
        if lost:
            self._lost = [one for one in self._lost if one not in lost]
            self._told = ()
            self.is_changed = True

    def tell_lost(self) -> tuple[Stretch, ...]:
        """The losses for the reply: those that no member is known to have reported."""
        self._lost = list(dict.fromkeys(self._lost))  # the same from a hole and from the cursor
        if self._told != tuple(self._lost):
            self._told = tuple(self._lost)
            self.is_changed = True
        return self._told

    def forget_lost(self) -> None:
        """End the messages that the topic no longer keeps for this group."""
        floor = max(self._log.start, self._log.kept_from)
        if self._cursor < floor:
            lost = [(r.first, min(r.end, floor)) for r in self._runs if r.how != "ended"]
            if self._frontier < floor:
                lost.append((self._frontier, floor))
            self._lost += [Stretch(a, b - a) for a, b in lost if a < b]
            self._runs = [
                cut_run(run, max(run.first, floor), run.end)
                for run in self._runs
                if run.end > floor
            ]
            self._cursor = floor
            self.is_changed = True

    @property
    def _frontier(self) -> int:
        return self._runs[-1].end if self._runs else self._cursor

    # What is settled.

    def settle(self, outcomes: Sequence[Outcome]) -> Decision | None:
        """Settle what the sender holds; what it does not hold any more is refused.

        Returns:
            The refusal of the whole request, if a dead letter cannot be stored.
        """
        for one in outcomes:
            if one.how == "reject" and self._holds(one):
                made = self._letters.add(one.first, one.delivery, one.reason, self._now_ns)
                if isinstance(made, Decision):
                    return made
                self.answer.letters.append(made)
        refused = self.answer.refused

        def refuse(one: Outcome, first: int, end: int) -> None:
            if first < end and one.how != "return":  # no program has worked on it in vain
                refused.append(Stretch(first, end - first))

        for one in outcomes:
            refuse(one, one.first, min(one.first + one.count, self._cursor))

        def change(index: int, run: GroupRun) -> GroupRun:
            one = outcomes[index]
            if not may_settle(run, self._request.client, one.delivery):
                refuse(one, run.first, run.end)
                return run
            self.is_changed = True
            count = run.end - run.first
            self._settled.append(Outcome(run.first, count, one.delivery, one.how))
            return settled(one, run, now_s=self._now_s, lease_ms=self.lease_ms)

        parts = [(one.first, one.first + one.count) for one in outcomes]
        frontier = self._frontier
        self._runs = changed(self._runs, parts, change)
        for one, (first, end) in zip(outcomes, parts, strict=True):
            refuse(one, max(first, frontier), end)
        refused.sort(key=lambda one: one.first)
        return None

    def _holds(self, one: Outcome) -> bool:
        return any(
            run.first <= one.first < run.end and self._is_mine(run) and run.delivery == one.delivery
            for run in self._runs
        )

    # What is granted.

    def granted_before(self, request: Take) -> None:
        """Show again what this request was granted."""
        self.reading.bytes_left = request.bytes_max
        for run in self._runs:
            if self._is_mine(run) and run.take == request.request:
                end = self.reading.read(run.first, run.end)
                if end > run.first:
                    self.grants.append(Grant(run.first, end - run.first, run.delivery))
                    self.is_unconfirmed |= run.how == "granted"

    def grant(self, request: Take) -> None:
        """Give the sender the first messages that may be delivered."""
        self.reading.bytes_left = request.bytes_max
        is_ordered = self._group.terms.ordered_by == "key"
        find = self._ordered if is_ordered else self._unordered
        buried: list[tuple[int, int]] = []
        parts = find(request.messages_max, buried)
        self._end(buried)

        def hold(_: int, run: GroupRun) -> GroupRun:
            delivery = run.delivered + 1
            self.grants.append(Grant(run.first, run.end - run.first, delivery))
            now_s, lease_ms, by = self._now_s, self.lease_ms, (request.client, delivery)
            return held(run, *by, request.request, now_s=now_s, lease_ms=lease_ms, how=how)

        how: RunState = "granted" if self._group.terms.max_deliveries else "held"
        self.is_unconfirmed = how == "granted" and bool(parts)
        if parts:
            self._runs = changed(self._runs, parts, hold)
            self.is_changed = True
        if self.reading.holes:
            self._end(self.reading.holes)
            self._lost += [Stretch(first, end - first) for first, end in self.reading.holes]

    def _end(self, parts: Sequence[tuple[int, int]]) -> None:
        if parts:
            self._runs = changed(self._runs, parts, lambda _, r: GroupRun(r.first, r.end, "ended"))
            self.is_changed = True

    def _unordered(self, left: int, buried: list[tuple[int, int]]) -> list[tuple[int, int]]:
        parts: list[tuple[int, int]] = []
        for run in self._runs:
            if left <= 0 or len(parts) >= GROUP_GRANTS_MAX:
                return parts
            if not run.is_due(self._now_s):
                continue
            first = self._bury(run, buried)
            is_alone = self._goes_alone(run.delivered)
            if is_alone and parts and first < run.end:
                return parts
            end = self.reading.read(first, min(run.end, first + (1 if is_alone else left)))
            if end > first:
                parts.append((first, end))
                left -= end - first
            if end < run.end or (parts and is_alone):
                return parts
        is_alone = self._goes_alone(0)
        if parts and is_alone:
            return parts
        first = self._frontier
        left = min(left, 1) if is_alone else left
        limit = min(self._log.durable_end, self._cursor + GROUP_WINDOW_MAX, first + left)
        end = (
            self.reading.whole(first, self.reading.read(first, limit), left)
            if first < limit
            else first
        )
        for hole_first, hole_end in self.reading.holes:
            if hole_first == end:
                self._runs.append(GroupRun(hole_first, hole_end, "free"))
        if end > first:
            self._runs.insert(_place(self._runs, first), GroupRun(first, end, "free"))
            parts.append((first, end))
        return parts

    def _ordered(self, left: int, buried: list[tuple[int, int]]) -> list[tuple[int, int]]:
        """Only messages without an older one of the same key that has not ended."""
        parts: list[tuple[int, int]] = []
        blocked: set[bytes] = set()
        limit = min(self._log.durable_end, self._cursor + GROUP_WINDOW_MAX)
        beyond = [GroupRun(self._frontier, limit, "free")] if self._frontier < limit else []
        for run in (*self._runs, *beyond):
            if run.how == "ended":
                continue
            is_new = bool(beyond) and run is beyond[0]
            is_due = is_new or run.is_due(self._now_s)
            first = self._bury(run, buried) if is_due else run.first
            is_alone = self._goes_alone(run.delivered)
            for offset in range(first, run.end):
                if left <= 0 or len(parts) >= GROUP_GRANTS_MAX:
                    self._extend_to(offset if is_new else self._frontier)
                    return parts
                key = self.reading.key(offset, limit)
                is_free = is_due and key not in blocked
                if key is not None:
                    blocked.add(key)
                if not is_free:
                    continue
                if (is_alone and parts) or self.reading.read(offset, offset + 1) == offset:
                    self._extend_to(offset if is_new else self._frontier)
                    return parts
                left = 0 if is_alone else left - 1
                if parts and parts[-1][1] == offset:
                    parts[-1] = (parts[-1][0], offset + 1)
                else:
                    parts.append((offset, offset + 1))
        self._extend_to(limit)
        return parts

    def _goes_alone(self, delivery: int) -> bool:
        """Return whether a message with this delivery count is granted alone.

        A confirmed grant counts as a delivery of all its messages, even those a loop has ahead.
        Where deliveries are bounded, messages are redelivered one at a time, so that a message
        which kills its members takes no other one with it to the dead letters.
        """
        bound = self._group.terms.max_deliveries
        return bound > 0 and delivery + 1 >= min(bound, 2)

    def _extend_to(self, end: int) -> None:
        """Move the frontier up to this offset, unless it is above already."""
        if end > self._frontier:
            self._runs = merged([*self._runs, GroupRun(self._frontier, end, "free", until_s=0.0)])
            self.is_changed = True

    def _bury(self, run: GroupRun, buried: list[tuple[int, int]]) -> int:
        """Make dead letters of what was delivered too often; return the first message left.

        If there is no room for a letter, its message is delivered again: it is never lost. What is
        too much for one request is left for the next one.
        """
        bound = self._group.terms.max_deliveries
        offset = run.first
        while bound and run.delivered >= bound and offset < run.end:
            if len(self._letters) >= GROUP_REASONS_MAX:
                return run.end
            made = self._letters.add(offset, run.delivered, DELIVERIES_USED_UP, self._now_ns)
            if isinstance(made, Decision):
                break
            buried.append((offset, offset + 1))
            offset += 1
        return offset

    # The record.

    def records(self) -> tuple[Record, ...]:
        """The records that make the change; none if nothing has changed."""
        if not self.is_changed:
            return ()
        request, answer = self._request, self.answer
        cursor, runs = without_ended(self._runs, self._cursor)
        self._members[request.client] = Member(
            request.client,
            request.epoch,
            request.request,
            tuple(answer.refused),
            tuple(answer.letters),
            self._told,
        )
        made = GroupChanged(
            self._log.topic_id,
            request.group,
            self._known.generation,
            cursor,
            self._group.terms,
            runs,
            tuple(self._members.values()),
            tuple(self._lost),
            keys=tuple((at, key) for at, key in self.reading.keys.items() if at >= cursor),
            member=request.client,
            epoch=request.epoch,
            granted=tuple(self.grants),
            settled=tuple(self._settled),
        )
        return (*self._letters.records, made)


def _place(runs: Sequence[GroupRun], first: int) -> int:
    """The index at which a run that begins at an offset is inserted."""
    return next((index for index, run in enumerate(runs) if run.first > first), len(runs))
