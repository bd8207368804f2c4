"""Subscriptions by pattern: MATCH begins and ends them, FETCH reads all their topics. Pure.

Each topic is an ordinary subscription here, too, with its own place. FETCH shows what several
topics have at the cursors that the proxy knows. A topic for which that is not what this client
stands at, or of which something else is to be said, is asked for by its own SUB and GET.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from math import inf

from msgspec import UNSET
from msgspec.structs import replace

from reliable_pubsub.common.core.answers import AnyReply, NotSub, SubAck
from reliable_pubsub.common.core.conversation import Conversation, Pause, Save
from reliable_pubsub.common.core.errors import LogChangedError, NotSubscribedError, UsageError
from reliable_pubsub.common.core.limits import (
    BODY_BYTES_MAX,
    FETCH_BATCHES_MAX,
    FETCH_TOPICS_MAX,
)
from reliable_pubsub.common.core.message_base import Start, Terms
from reliable_pubsub.common.core.pattern import Pattern
from reliable_pubsub.common.core.pattern_messages import (
    Fetch,
    Fetched,
    FetchedTopic,
    Match,
    Matched,
    Told,
)
from reliable_pubsub.common.core.recorder import Call
from reliable_pubsub.common.core.retry import poll_pause_s
from reliable_pubsub.relay.core.pattern import Kinds, is_of

from .fetching import Fetching
from .pattern_pushes import PatternPushes
from .pattern_run import save_all, unwritten
from .pattern_subscription import FETCHED_MAX, AskedPattern, PatternSubscription
from .place import Place
from .pushing import Pushing
from .session import SubscriberSession
from .subscribing import Asked, Subscribing
from .subscription import Changes, Subscription

_kinds = Kinds()


class Patterns:
    """The patterns of one subscriber."""

    def __init__(
        self,
        session: SubscriberSession,
        subscribing: Subscribing,
        fetching: Fetching,
        pushing: Pushing,
        *,
        now_s: Callable[[], float],
    ) -> None:
        self._session = session
        self._subscribing = subscribing
        self._fetching = fetching
        self._pushing = pushing
        self._now_s = now_s

    def of(self, pattern: Pattern) -> PatternSubscription:
        """A pattern that is subscribed to.

        Raises:
            NotSubscribedError: it is not.
        """
        one = self._session.inbox.patterns.get(pattern)
        if one is None:
            client = self._session.client
            raise NotSubscribedError(f"{client!r} has no pattern {pattern}; subscribe")
        return one

    def covering(self, topic: str) -> Pattern | None:
        """A pattern that a topic is of."""
        return next((one for one in self._session.inbox.patterns if is_of(one, topic)), None)

    def subscribe(self, asked: AskedPattern, start: Start | None) -> Conversation[int]:
        """Begin a pattern, or resume it; return how many topics it matches now."""
        ending = self._clean(asked.pattern) if asked.terms.session == "clean" else []
        with ExitStack() as stack:
            self._ending_calls(stack, ending)  # of unknown outcome: they begin again
            yield from self._give_up(ending, {})
            call = stack.enter_context(self._session.recorder.call("match"))
            reply = yield from self._match(asked, call, start=start)
            if not isinstance(reply, Matched):
                self._session.refused(reply)
            call.ok(epoch=self._session.inbox.epoch)
        one = self._session.inbox.patterns.get(asked.pattern) or PatternSubscription(asked)
        one.ask(asked)
        changes = one.row()
        if not one.is_clean:  # it has made them persistent
            for each in self._clean(one.pattern):
                each.move(replace(each.place, terms=asked.terms))
                changes |= each.row()
        yield Save(changes, True)
        self._session.inbox.patterns[asked.pattern] = one
        return reply.topics

    def _clean(self, pattern: Pattern) -> list[Subscription]:
        """The clean subscriptions to topics of a pattern."""
        known = self._session.inbox.subscriptions.items()
        mine = [each for topic, each in known if each.is_subscribed and is_of(pattern, topic)]
        return [each for each in mine if each.is_clean]

    def _ending_calls(self, stack: ExitStack, ending: Sequence[Subscription]) -> list[Call]:
        """Record that these subscriptions are about to end."""
        recorder, epoch = self._session.recorder, self._session.inbox.epoch
        calls = [stack.enter_context(recorder.call("unsubscribe", each.topic)) for each in ending]
        for call in calls:
            call.invoke(epoch=epoch)
        return calls

    def _give_up(self, ending: Sequence[Subscription], changes: Changes) -> Conversation[None]:
        """Forget the places of subscriptions that end."""
        for each in ending:
            each.drop()
            each.ended()
            changes |= each.row()
        for one in self._session.inbox.patterns.values():
            one.drop_ended()
        if changes:
            yield Save(changes, True)
        for each in ending:
            each.written(durable=True)

    def ended(self, one: PatternSubscription) -> Conversation[None]:
        """A clean pattern has ended at the proxy; forget it, and its subscriptions."""
        yield from self._give_up(self._clean(one.pattern), one.row(ends=True))
        self._session.inbox.patterns.pop(one.pattern, None)
        self._pushing.use(one.pattern, False)

    def unsubscribe(
        self, pattern: Pattern, tell: Callable[[Subscription], Conversation[None]]
    ) -> Conversation[None]:
        """End a pattern, and the subscriptions that no other pattern has; also if it has ended.

        Args:
            tell: sends the cursor of a subscription that is about to end.
        """
        inbox = self._session.inbox
        one = inbox.patterns.get(pattern) or PatternSubscription(AskedPattern(pattern=pattern))
        others = [other for other in inbox.patterns if other != pattern]
        ending = [
            each
            for topic, each in inbox.subscriptions.items()
            if each.is_subscribed
            and is_of(pattern, topic)
            and not any(is_of(other, topic) for other in others)
        ]
        for each in ending:
            yield from tell(each)
        with ExitStack() as stack:
            calls = self._ending_calls(stack, ending)
            ending_all = stack.enter_context(self._session.recorder.call("unmatch"))
            reply = yield from self._match(one.asked, ending_all, ends=True)
            if not isinstance(reply, Matched):
                self._session.refused(reply)
            yield from self._give_up(ending, one.row(ends=True))
            inbox.patterns.pop(pattern, None)
            for call in (*calls, ending_all):
                call.ok(epoch=inbox.epoch)

    def _match(
        self, asked: AskedPattern, call: Call, *, start: Start | None = None, ends: bool = False
    ) -> Conversation[AnyReply]:
        def ask() -> Conversation[AnyReply]:
            head = self._session.control_head()
            call.invoke(epoch=self._session.inbox.epoch, match=_in_words(asked.pattern))
            return self._session.asking(
                Match(**head, match=asked.pattern, start=start, terms=asked.terms, ends=ends)
            )

        return self._session.asking_as_known(ask)

    def next(
        self, one: PatternSubscription, timeout_s: float, *, loops: bool = False, asks: bool = True
    ) -> Conversation[Subscription | None]:
        """The next subscription with messages; None if the time is over.

        The caller has settled what is in hand.

        Args:
            loops: fetch as many messages as a loop takes in a short time.
            asks: if there is no time, pull, even if pushes are waited for.

        Raises:
            LostError: messages of a topic are lost; the next call continues after them.
        """
        deadline_s = self._now_s() + timeout_s
        asks = asks and timeout_s <= 0
        empty = 0
        while (found := one.next()) is None:
            began_s = self._now_s()
            left_s = max(deadline_s - began_s, 0.0)
            if one.pushes is not None and (yield from self._take_pushed(one, asks=asks)):
                if not one.ready and left_s <= 0:
                    return None
                yield from self._listen(one, one.pushes, left_s)
                continue
            wait_s = self._wait_s(one, left_s)
            yield from self.save(one)
            if loops:
                one.pace.look_ahead(began_s)
            yield from self._fetch(one, wait_s, one.pace.ahead if loops else FETCHED_MAX)
            if not loops:  # else they are written with the run
                yield from save_all(unwritten(self._session, one), durable=False)
            if one.ready:
                continue
            left_s = deadline_s - self._now_s()
            if left_s <= 0:
                return None
            empty += 1
            is_held = wait_s and self._now_s() - began_s >= wait_s / 2  # the proxy did wait
            if one.pushes is None and not is_held:
                yield Pause(min(poll_pause_s(empty), left_s))
        one.current = found
        one.moved[found.topic] = found
        return found

    def _take_pushed(self, one: PatternSubscription, *, asks: bool) -> Conversation[bool]:
        """Take what was pushed; return False if a pull is due.

        Args:
            asks: also if nothing was pushed.
        """
        taken = self._pushing.take_of(one)
        for each in taken or ():
            yield from self._fetching.take_pushed(each, one.pace.ahead)
            one.ready.append(each.subscription)
        one.pace.found(sum(len(each.subscription.fetched) for each in taken or ()), self._now_s())
        return bool(taken) or (taken is not None and not asks)

    def _listen(
        self, one: PatternSubscription, pushes: PatternPushes, left_s: float
    ) -> Conversation[None]:
        """Wait until there is something to take or to pull; processed messages are written then."""
        if not one.ready:
            yield from save_all(unwritten(self._session, one), durable=False)
            yield from self._pushing.wait([pushes], left_s)

    def _wait_s(self, one: PatternSubscription, left_s: float) -> float:
        """How long the proxy may hold its answer; see `Fetching`. Not where pushes may come."""
        if one.pushes is not None and not self._pushing.is_refused:
            return 0.0
        lease_s = one.asked.terms.lease_ms / 1000 or inf
        return min(left_s, self._session.requester.retry.timeout_s, lease_s / 3)

    def _fetch(
        self, one: PatternSubscription, wait_s: float, messages_max: int
    ) -> Conversation[None]:
        """One FETCH: tell cursors, and take what comes."""
        told: list[Subscription] = []
        body = b""

        def ask() -> Conversation[AnyReply]:
            nonlocal told, body
            told = self._to_be_told(one)
            yield from self._save({each.topic: each for each in told})
            reply, body = yield from self._session.requester.asking(
                Fetch(
                    **self._session.head(),
                    match=one.pattern,
                    boot=one.boot,
                    told=tuple(map(_told, told)),
                    messages_max=messages_max,
                    wait_ms=int(wait_s * 1000) or UNSET,
                ),
                None,
                wait_s=wait_s,
            )
            return reply

        reply = yield from self._session.asking_as_known(ask)
        if isinstance(reply, NotSub):
            yield from self._forgotten(one, reply)
            return
        if not isinstance(reply, Fetched):
            self._session.refused(reply)
        if reply.boot == one.boot:
            for each in told:
                if each.confirmation is not None:
                    each.confirmation.told = each.place.cursor
                one.moved.pop(each.topic, None)
        one.boot = reply.boot
        shown = yield from self._take(one, reply, body)
        is_full = len(told) == FETCH_TOPICS_MAX or _is_full(reply, body, messages_max)
        self._pushing.pulled_of(one, shown, is_full=is_full)

    def _to_be_told(self, one: PatternSubscription) -> list[Subscription]:
        """The subscriptions whose cursors the running proxy does not know."""
        found = [
            each
            for each in one.moved.values()
            if each.confirmation is not None
            and each.confirmation.boot == one.boot
            and each.place.cursor > each.confirmation.told
        ]
        return found[:FETCH_TOPICS_MAX]

    def save(self, one: PatternSubscription) -> Conversation[None]:
        """Write the places of all of its topics, as before the proxy learns of them."""
        return self._save(one.moved)

    def _save(self, some: Mapping[str, Subscription]) -> Conversation[None]:
        """Write several places in one step before the proxy learns of them: durably at QoS 2."""
        ahead = [
            each
            for each in some.values()
            if each.is_subscribed
            and each.place.terms.qos == 2
            and each.place.cursor > max(each.durable_cursor, 0)  # it begins at 0
        ]
        changed = {topic: each for topic, each in some.items() if not each.is_saved}
        yield from save_all(changed | {each.topic: each for each in ahead}, durable=bool(ahead))

    def _forgotten(self, one: PatternSubscription, reply: NotSub) -> Conversation[None]:
        """The proxy does not know the pattern: it was replaced, or set back to an older copy.

        Or its session was clean, and has ended.
        """
        if one.is_clean:
            yield from self.ended(one)
            self._session.refused(reply)
        choice = self._subscribing.on_log_changed
        if choice == "stop":
            raise LogChangedError(
                f"{reply.text}. The proxy was replaced or set back to an older copy. Choose with "
                "--on-log-changed (on_log_changed): `rewind` reads its topics from their start "
                "and may repeat, `adopt` goes on at their end and may miss"
            )
        start = Start("earliest") if choice == "rewind" else None
        yield from self.subscribe(one.asked, start)

    def _take(
        self, one: PatternSubscription, reply: Fetched, body: bytes
    ) -> Conversation[list[Subscription]]:
        """Take what FETCH has shown; then ask for what it could not show.

        Returns:
            The topics that were shown, and had nothing fetched before.
        """
        at, count = 0, 0
        taken: list[Subscription] = []
        alone: list[tuple[Subscription, Terms]] = []
        for shown in reply.topics:
            part = body[at : (at := at + sum(batch.body_bytes for batch in shown.batches))]
            each = self._session.inbox.add(shown.topic)
            if each.has_next:
                one.ready.append(each)
                continue
            if not each.is_subscribed and shown.cursor == 0 and shown.batches:
                self._begin(one, each, shown, reply)
                one.moved[each.topic] = each  # to be written
            if not _stands_at(each, shown, reply.boot):
                alone.append((each, shown.terms or one.asked.terms))
                continue
            yield from self._fetching.received(each, shown.batches, part, end=shown.end)
            count += len(each.fetched)
            taken.append(each)
            one.ready.append(each)
        one.pace.found(count, self._now_s())
        for each, terms in alone:
            if each.confirmation is not None and each.confirmation.boot != reply.boot:
                each.forgotten()
            one.current = each  # so that the next call goes past what is lost
            yield from self._ask_alone(one, each, terms)
            one.ready.append(each)
            taken.append(each)
        return taken

    def _begin(
        self, one: PatternSubscription, each: Subscription, shown: FetchedTopic, reply: Fetched
    ) -> None:
        """A topic that is new here: the proxy has begun its subscription at its first message."""
        asked, terms = one.asked, shown.terms or one.asked.terms
        with self._session.recorder.call("subscribe", each.topic) as call:
            call.invoke(epoch=self._session.inbox.epoch, match=_in_words(asked.pattern))
            place = Place(
                shown.log,
                0,
                terms=terms,
                max_deliveries=asked.max_deliveries,
                shown=shown.shown,
            )
            each.move(place)
            each.confirmed(_as_sub_ack(shown, reply, terms), is_new=True)
            call.ok(
                epoch=self._session.inbox.epoch,
                log=shown.log,
                generation=shown.generation,
                cursor=0,
                qos=terms.qos,
            )

    def _ask_alone(
        self, one: PatternSubscription, each: Subscription, terms: Terms
    ) -> Conversation[None]:
        if not each.is_subscribed:
            asked = Asked(terms=terms, max_deliveries=one.asked.max_deliveries)
            yield from self._subscribing.subscribe(each, asked)
        with self._session.recorder.call("get", each.topic) as call:
            yield from self._fetching.look(each, call, FETCHED_MAX, 0.0, asks=True)


def check_pattern(pattern: Pattern) -> None:
    """Check the kind and the text of a pattern.

    Raises:
        UsageError: an unknown kind.
        InvalidPatternError: its text cannot be read.
    """
    if not _kinds.knows(pattern):
        raise UsageError(f"patterns are of the kinds exact, prefix, glob, regex: not {pattern}")
    _kinds.check(pattern)


def _in_words(pattern: Pattern) -> str:
    return f"{pattern.kind} {pattern.text}"


def _stands_at(each: Subscription, shown: FetchedTopic, boot: str) -> bool:
    """Whether what FETCH has shown of a topic follows what this client has."""
    confirmation = each.confirmation
    return (
        bool(shown.batches)
        and confirmation is not None
        and (confirmation.boot, confirmation.generation) == (boot, shown.generation)
        and (each.place.log, each.place.cursor) == (shown.log, shown.cursor)
    )


def _is_full(reply: Fetched, body: bytes, messages_max: int) -> bool:
    """Whether there may be more than the answer has; not told if a large batch had no room."""
    batches = [batch for shown in reply.topics for batch in shown.batches]
    is_cut = any(
        shown.batches[-1].base + shown.batches[-1].count < shown.end
        for shown in reply.topics
        if shown.batches
    )
    return (
        is_cut
        or len(reply.topics) == FETCH_TOPICS_MAX
        or len(batches) == FETCH_BATCHES_MAX
        or sum(batch.count for batch in batches) >= messages_max
        or len(body) > BODY_BYTES_MAX // 2
    )


def _told(each: Subscription) -> Told:
    assert each.confirmation is not None
    return Told(each.topic, each.confirmation.generation, each.place.cursor)


def _as_sub_ack(shown: FetchedTopic, reply: Fetched, terms: Terms) -> SubAck:
    return SubAck(
        client=reply.client,
        epoch=reply.epoch,
        request=reply.request,
        boot=reply.boot,
        topic=shown.topic,
        generation=shown.generation,
        log=shown.log,
        cursor=shown.cursor,
        already=True,
        terms=terms,
        shown=shown.shown,
        ring=shown.ring,
    )
