"""The link of a subscriber to its proxy: sessions, subscriptions, and the cursor it tells.

What a restart of the proxy asks for is done here, out of sight: a new session, a subscription
confirmed with our own place as evidence (rules R11 to R14).
"""

from __future__ import annotations

import logging
from typing import Any, Literal, assert_never

from msgspec import Struct
from msgspec.structs import replace

from reliable_pubsub.common import names
from reliable_pubsub.common.asking import SESSIONS_MAX, Asker, Session
from reliable_pubsub.common.batch import crc32
from reliable_pubsub.common.errors import (
    LogChangedError,
    NotSubscribedError,
    StaleError,
    TryLaterError,
)
from reliable_pubsub.common.messages import (
    Ack,
    AnyReply,
    Bye,
    ByeAck,
    Dead,
    DeadAck,
    Fenced,
    Get,
    LogChanged,
    Lost,
    MessageBatches,
    NoMessagesYet,
    NotSub,
    Ring,
    SessionKind,
    Stale,
    Start,
    Sub,
    SubAck,
    Terms,
    Unsub,
    UnsubAck,
)
from reliable_pubsub.common.recorder import Call, Recorder
from reliable_pubsub.common.start import in_words
from reliable_pubsub.common.state_file import ClientState

from .inbox import Changes, Inbox, Place
from .ring_queue import RingQueue

OnLogChanged = Literal["stop", "rewind", "adopt"]

CLEAN_LEASE_MS = 60_000  # of a clean session that names none


class Asked(Struct, frozen=True, kw_only=True):
    """What a program asks of a subscription."""

    start: Start | None = None  # begin there instead
    replay: bool = False  # also where that lies below what was acknowledged
    log: str | None = None  # log id that `start` speaks of, if it is known
    terms: Terms = Terms()
    max_deliveries: int | None = None

    @property
    def goes_on(self) -> bool:
        """Whether nothing that was acknowledged is to come again, wherever it begins."""
        return self.start is not None and not self.replay and self.start.at not in ("now", "last")


class _Session:
    """What the proxy of this moment knows of one subscription."""

    __slots__ = ("boot", "generation", "told")

    def __init__(self, generation: int, boot: str, told: int) -> None:
        self.generation = generation
        self.boot = boot
        self.told = told  # the cursor that the proxy was told last


class SubscriberLink(Session):
    """Speaks the protocol for one subscriber."""

    def __init__(
        self,
        asker: Asker,
        inbox: Inbox,
        state: ClientState,
        *,
        on_log_changed: OnLogChanged,
        recorder: Recorder,
    ) -> None:
        """Prepare; the proxy is asked at the first call."""
        super().__init__(asker, "subscriber", memory=inbox, state=state, recorder=recorder)
        self.told: dict[str, _Session] = {}  # by topic: what the proxy of this moment knows
        self.rings: dict[str, RingQueue] = {}  # by topic, of those confirmed in this process
        self.durable: dict[str, int] = {}  # cursors that are known to survive power loss here
        self._inbox = inbox
        self._on_log_changed = on_log_changed
        self._control = 0

    def connect(self) -> None:
        """Begin a session; see `Session.connect`."""
        super().connect()
        self._control = 0
        self.told.clear()

    def begin_again(self) -> None:
        """Forget what was learned; see `Session.begin_again`. A late SUB has no effect as it is."""
        super().begin_again()
        self.told.clear()
        self.durable.clear()
        self.rings = {topic: ring for topic, ring in self.rings.items() if ring.is_confirmed}
        for ring in self.rings.values():
            ring.begin_again()

    def subscribe(self, topic: str, asked: Asked | None = None) -> None:
        """Begin or resume a subscription, with our own place as evidence (rules R13, R14).

        Args:
            asked: what the program asked for; None resumes what there is.
        """
        if asked is None:
            place = self._inbox.places.get(topic)
            asked = Asked()
            if place is not None:
                asked = Asked(terms=place.terms, max_deliveries=place.max_deliveries)
        with self._recorder.call("subscribe", topic) as call:
            self._subscribe_call(topic, call, asked)

    def _subscribe_call(self, topic: str, call: Call, asked: Asked) -> None:
        place = self._inbox.places.get(topic)
        before = place if asked.start is not None else None  # that it may have no longer
        if place is not None and asked.start is not None:
            # The proxy may move the subscription though we never hear of it.
            if asked.start.at == "last":
                asked, before = replace(asked, start=None), None  # we know it better than the proxy
            elif asked.goes_on and asked.log in (None, place.log):
                self._state.write(self._inbox.asking(topic), durable=True)
            else:
                # Our place is none to go on from: who does without asking again gets NOT_SUB.
                asked, place = replace(asked, replay=True), None
                self._state.write(self._inbox.unsubscribed(topic), durable=True)
        anew = asked.start is not None or topic not in self.rings
        if asked.terms.qos == 0 and asked.start is None and anew:
            # What came meanwhile is not waited for; what came before may have been handed over.
            asked, place = replace(asked, start=Start("now")), None
        reply = self._ask_sub(topic, place, call, asked)
        if isinstance(reply, LogChanged):
            if self._on_log_changed == "stop":
                self._keep(topic, before)
                raise LogChangedError(reply.text)
            start = _start_in_other_log(self._on_log_changed, reply.end)
            begins = f"the log has changed; begins at {in_words(start)} ({self._on_log_changed})"
            self.tell(logging.WARNING, begins, topic)
            asked = replace(asked, start=start, log=None, replay=True)
            reply = self._ask_sub(topic, None, call, asked)
        if isinstance(reply, NotSub) and place is not None:
            self._ended(topic)  # a clean session that we went on with
        if not isinstance(reply, SubAck):
            self._keep(topic, before)
            self.refused(reply, topic)
        if asked.start is not None:
            changes = self._inbox.repositioned(reply, before)
        elif self._inbox.gave_up(reply):
            self._tell_given_up(reply)
            changes = self._inbox.subscribed(reply)
        else:
            changes = self._inbox.subscribed(reply, adopt=self._on_log_changed == "adopt")
        changes |= self._inbox.bounded(topic, asked.max_deliveries)
        if changes:
            self._state.write(changes, durable=True)
            self.durable[topic] = self._inbox.places[topic].cursor
        call.ok(
            epoch=self._inbox.epoch,
            log=reply.log,
            generation=reply.generation,
            cursor=self._inbox.places[topic].cursor,
            qos=reply.terms.qos,
        )
        self.told[topic] = _Session(reply.generation, reply.boot, reply.cursor)
        ring = self.rings.setdefault(topic, RingQueue())
        ring.confirmed(reply.boot, reply.ring, anew=anew)

    def _tell_given_up(self, reply: SubAck) -> None:
        """Of the dead letter that an earlier process sent, and could not write down.

        Nothing is asked of the proxy here, so no invoke: somebody may have replaced us by now.
        """
        with self._recorder.call("reject", reply.topic) as call:
            call.ok(epoch=self._inbox.epoch, cursor=reply.cursor)

    def _ask_sub(self, topic: str, place: Place | None, call: Call, asked: Asked) -> AnyReply:
        return self.ask_as_known(lambda: self._sub(topic, place, call, asked))

    def _sub(self, topic: str, place: Place | None, call: Call, asked: Asked) -> AnyReply:
        self._control += 1  # orders SUB and UNSUB in a session (rule R12)
        if place is not None:
            self._make_durable(topic, place.cursor)
        cursor = place.cursor if place else 0 if asked.goes_on else None
        call.invoke(
            epoch=self._inbox.epoch,
            cursor=cursor,
            start=in_words(asked.start) if asked.start else "",
        )
        return self.ask(
            Sub(
                **self.head(),
                topic=topic,
                control=self._control,
                log=place.log if place else asked.log,
                cursor=cursor,
                witness_ns=place.witness_ns if place else None,
                start=asked.start,
                terms=asked.terms,
            )
        )

    def unsubscribe(self, topic: str, call: Call) -> None:
        """End a subscription at the proxy (rule R12)."""
        reply = self.ask_as_known(lambda: self._unsub(topic, call))
        if not isinstance(reply, UnsubAck):
            self.refused(reply)
        self.told.pop(topic, None)
        self.rings.pop(topic, None)
        self.durable.pop(topic, None)

    def _unsub(self, topic: str, call: Call) -> AnyReply:
        self._control += 1
        call.invoke(epoch=self._inbox.epoch)
        return self.ask(Unsub(**self.head(), topic=topic, control=self._control))

    def ask_with_cursor(
        self,
        kind: type[Get | Ack | Dead],
        topic: str,
        call: Call,
        *,
        body: bytes | None = None,
        given_up: int | None = None,
        **more: Any,
    ) -> tuple[AnyReply, bytes]:
        """Ask with our cursor; confirm the subscription first where the proxy needs it.

        Args:
            body, given_up: of DEAD, and the offset of its message. It stays, also where the
                confirmation shows that it is done: the proxy then says so once more.
        """
        names.topic(topic)
        if topic not in self._inbox.places:
            names.exact(topic)
            client = self.client
            raise NotSubscribedError(f"{client!r} is not subscribed to {topic!r}; subscribe")
        for _ in range(SESSIONS_MAX):
            # Forgotten, and the new HELLO in doubt: our old epoch may be fenced by our own new one.
            if topic not in self.told or not self.connected:
                self.subscribe(topic)
            session = self.told[topic]
            place = self._inbox.places[topic]
            cursor = place.cursor if given_up is None else given_up
            if given_up is not None and not (place.giving_up or place.cursor == given_up + 1):
                raise StaleError(
                    f"topic {topic!r}: the place was chosen anew before offset {given_up} was "
                    "given up; it was not"
                )
            if cursor > session.told:
                self._make_durable(topic, cursor)
            if kind is not Get:  # a GET changes nothing but what an earlier line has told
                call.invoke(epoch=self._inbox.epoch, cursor=cursor)
            reply, answer = self.asker.ask(
                kind(
                    **self.head(),
                    topic=topic,
                    generation=session.generation,
                    boot=session.boot,
                    cursor=cursor,
                    **more,
                ),
                body,
            )
            session.told = cursor
            if isinstance(reply, NotSub) and self._is_clean(topic):
                self._ended(topic)
                self.refused(reply)
            if isinstance(reply, Stale | NotSub | LogChanged) or self.is_forgotten(reply):
                # The proxy has restarted, or has forgotten us: our own place is the evidence.
                del self.told[topic]
                continue
            return reply, answer
        if isinstance(reply, Stale | Fenced):  # it has restarted, or forgotten us, every time
            code = "STALE" if isinstance(reply, Stale) else "FENCED"
            raise TryLaterError(code=code, text=reply.text, attempts=SESSIONS_MAX)
        self.refused(reply)

    def pass_lost(self, topic: str, reply: Lost) -> None:
        """At QoS 0 what is gone is counted, and we stand behind it."""
        self.rings[topic].counts.lost += reply.end - reply.first
        self._state.write(self._inbox.lost(topic, reply.end), durable=False)

    def _keep(self, topic: str, before: Place | None) -> None:
        """The proxy has moved nothing: the subscription is where it was."""
        if before is not None:
            self._state.write(self._inbox.kept(topic, before), durable=True)

    def read_ring(self, topic: str, messages_max: int) -> None:
        """Read what no push has brought of what was put at QoS 0."""
        ring, session = self.rings.get(topic), self.told.get(topic)
        while ring is not None and session is not None and ring.is_missing:
            reply, body = self.asker.ask(
                Ring(
                    **self.head(),
                    topic=topic,
                    generation=session.generation,
                    boot=session.boot,
                    place=ring.place,
                    messages_max=messages_max,
                )
            )
            match reply:
                case MessageBatches(first=int() as first):
                    ring.read(topic, first, reply.batches, body)
                    if ring.place >= reply.end:
                        ring.emptied()
                case NoMessagesYet():
                    ring.emptied()
                case _:
                    self.told.pop(topic, None)  # the next request finds out what is wrong
                    return

    def give_up(self, topic: str, offset: int, letter: bytes, call: Call) -> DeadAck:
        """Send a dead letter until the proxy has it, and the cursor behind its message."""
        reply, _ = self.ask_with_cursor(
            Dead, topic, call, body=letter, given_up=offset, crc=crc32(letter)
        )
        if not isinstance(reply, DeadAck):
            self.refused(reply)
        return reply

    def _ended(self, topic: str) -> None:
        """A clean session has ended, and with it what was not delivered."""
        self.told.pop(topic, None)
        self.rings.pop(topic, None)
        self._state.write(self._inbox.unsubscribed(topic), durable=True)

    def _is_clean(self, topic: str) -> bool:
        return self._inbox.places[topic].terms.session == "clean"

    def bye(self) -> None:
        """Leave; the proxy ends our clean sessions now, not when their leases do.

        Where no proxy was reached they are not over, and their places stay.
        """
        clean = [topic for topic in self._inbox.places if self._is_clean(topic)]
        if not clean or not self.connected:
            return
        reply = self.ask(Bye(**self.head()))
        if not isinstance(reply, ByeAck | Fenced):
            self.refused(reply)
        changes: Changes = {}
        for topic in clean:
            self.told.pop(topic, None)
            changes |= self._inbox.unsubscribed(topic)
        self._state.write(changes, durable=True)

    def compare(self, topic: str, end: int) -> None:
        """See that the log, which ends at `end`, still has what was in hand at a crash."""
        forget = self._on_log_changed != "stop"
        changes = self._inbox.compared(topic, end, forget=forget)
        if changes:
            self._state.write(changes, durable=True)

    def _make_durable(self, topic: str, cursor: int) -> None:
        """A cursor is durable here before the proxy hears of it (rule R9), at QoS 2."""
        if self._inbox.places[topic].terms.qos == 2 and cursor > self.durable.get(topic, -1):
            self._state.write(self._inbox.restated(topic), durable=True)
            self.durable[topic] = cursor


def _start_in_other_log(on_log_changed: Literal["rewind", "adopt"], end: int) -> Start:
    match on_log_changed:
        case "rewind":
            return Start("earliest")
        case "adopt":
            return Start("offset", end)
        case never:
            assert_never(never)


def lease_ms_of(session: SessionKind, lease_s: float | None) -> int:
    """A lease as the wire has it; 0: none.

    A clean session that names none has one all the same.
    """
    if lease_s is not None:
        return round(lease_s * 1000)
    match session:
        case "clean":
            return CLEAN_LEASE_MS
        case "persistent":
            return 0
        case never:
            assert_never(never)
