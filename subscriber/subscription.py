"""One subscription: everything that a subscriber holds of one topic, and the states it is in. Pure.

A subscription stands between two parties, and has one state for each of them, as a connection of
h11 has one for the client and one for the server.

Towards the proxy it is

- NONE: there is no place, so nothing is known that could be resumed;
- UNCONFIRMED: there is a place, but the proxy of this moment has not confirmed it. It is new, or
  has restarted, or began another session: the next request sends SUB first, with our place as
  evidence (rules R13, R14);
- CONFIRMED: generation and boot are known, and requests can name them. Only now can messages
  be fetched, so whatever enters or leaves this state drops what was fetched and not handed over.

Towards the program it is

- IDLE: the program has nothing that it could acknowledge;
- IN_HAND: it has messages, up to the last of the last `get`. When it comes back for more, all of
  them are processed;
- LOSS_TOLD: it was told that messages are lost. When it comes back they are passed. Not earlier:
  a process that dies before its program has seen the error must report it again;
- LETTER: a message is being given up, and the answer to its dead letter is in doubt. The same
  letter is sent until it is stored, or refused for good; nothing else happens meanwhile. Messages
  that were handed over with it and after it stay in hand.

The tables below say what may happen in which state; what is not there is a programming error.
Both states are of this process only. A process that begins, and a call that was left by a foreign
exception (decision 0024), begin with what the state on disk says: UNCONFIRMED if it has a place,
else NONE, and IDLE. What was in hand comes again then, with a mark, because the place counts it.
"""

from __future__ import annotations

from collections import deque
from enum import Enum, auto
from typing import Final, NamedTuple

import msgspec

from reliable_pubsub.common.batch import Message
from reliable_pubsub.common.messages import SubAck

from .place import Place
from .push_queue import PushQueue
from .qos0_queue import QoS0Queue

Changes = dict[str, bytes | None]

TOPIC: Final = "topic:"  # prefix of the names of rows
_encode = msgspec.msgpack.Encoder().encode


class ToProxy(Enum):
    """What a subscription is to the proxy of this moment."""

    NONE = auto()
    UNCONFIRMED = auto()
    CONFIRMED = auto()


class ToProgram(Enum):
    """What a subscription is to the program."""

    IDLE = auto()
    IN_HAND = auto()
    LOSS_TOLD = auto()
    LETTER = auto()


class Event(Enum):
    """What happens to a subscription."""

    # At the proxy.
    CONFIRM = auto()  # SUB_ACK
    FORGET = auto()  # STALE, NOT_SUB or LOG_CHANGED; or another session has begun
    END = auto()  # UNSUB_ACK, the end of a clean session, or a SUB that gives our place up
    STAND = auto()  # there is a place: SUB_ACK names it, or such a SUB was refused
    # At the program.
    HAND_OVER = auto()  # `get` returns messages
    SETTLE = auto()  # the program comes back: what it had is processed
    LOSE = auto()  # `get` raises LostError
    GIVE_UP = auto()  # a dead letter is about to be sent
    LETTER_STORED = auto()
    LETTER_REFUSED = auto()
    DROP = auto()  # the place was chosen again, or ended: nothing of before counts


TO_PROXY: Final = {
    ToProxy.NONE: {
        Event.STAND: ToProxy.UNCONFIRMED,
        Event.FORGET: ToProxy.NONE,
        Event.END: ToProxy.NONE,
    },
    ToProxy.UNCONFIRMED: {
        Event.CONFIRM: ToProxy.CONFIRMED,
        Event.FORGET: ToProxy.UNCONFIRMED,
        Event.END: ToProxy.NONE,
    },
    ToProxy.CONFIRMED: {
        Event.CONFIRM: ToProxy.CONFIRMED,
        Event.FORGET: ToProxy.UNCONFIRMED,
        Event.END: ToProxy.NONE,
    },
}

TO_PROGRAM: Final = {
    ToProgram.IDLE: {
        Event.HAND_OVER: ToProgram.IN_HAND,
        Event.SETTLE: ToProgram.IDLE,
        Event.LOSE: ToProgram.LOSS_TOLD,
        Event.GIVE_UP: ToProgram.LETTER,  # it has used up its deliveries
        Event.DROP: ToProgram.IDLE,
    },
    ToProgram.IN_HAND: {
        Event.SETTLE: ToProgram.IDLE,
        Event.GIVE_UP: ToProgram.LETTER,
        Event.DROP: ToProgram.IDLE,
    },
    ToProgram.LOSS_TOLD: {
        Event.SETTLE: ToProgram.IDLE,
        Event.DROP: ToProgram.IDLE,
    },
    ToProgram.LETTER: {
        Event.LETTER_STORED: ToProgram.IDLE,  # and IN_HAND again, if something still is
        Event.LETTER_REFUSED: ToProgram.IDLE,
        Event.DROP: ToProgram.IDLE,
    },
}


class Confirmation:
    """What the proxy of this moment knows of a subscription."""

    __slots__ = ("boot", "generation", "told")

    def __init__(self, generation: int, boot: str, told: int) -> None:
        self.generation = generation
        self.boot = boot  # which start of the proxy
        self.told = told  # the cursor that it knows


class Letter(NamedTuple):
    """A dead letter that is being sent."""

    message: Message
    body: bytes
    rest: Message | None  # the last message that stays in hand


class _WithProgram(NamedTuple):
    """The state towards the program, with what it is about; replaced in one step."""

    state: ToProgram
    last: Message | None = None  # IN_HAND: the last message that was handed over
    lost_end: int = 0  # LOSS_TOLD: messages below it are lost
    letter: Letter | None = None  # LETTER


_IDLE: Final = _WithProgram(ToProgram.IDLE)


class Subscription:
    """Everything that a subscriber holds of one topic."""

    new_qos0_queue = QoS0Queue

    def __init__(self, topic: str, place: Place | None = None) -> None:
        """Begin with what the state on disk says; a topic without a place is not subscribed.

        Args:
            place: as it is stored; whether it survives power loss is not known.
        """
        self.topic = topic
        self.fetched: deque[Message] = deque()  # from the cursor on, not handed over
        self.qos0: QoS0Queue | None = None  # what was put at QoS 0, once confirmed
        self.pushes: PushQueue | None = None  # None: push is off
        self.refused_letter: int | None = None  # offset of the message whose letter was refused
        self.lower_qos: set[str] = set()  # publishers whose lower level was reported
        self.reload(place)

    def reload(self, place: Place | None) -> None:
        """Begin again with what is stored; a call was left by a foreign exception.

        Its queues stay, with their counts, and are reset by those who feed them.
        """
        self._place = self._saved = place
        self.durable_cursor = -1  # below it, power loss takes nothing from here
        self._to_proxy = ToProxy.NONE if place is None else ToProxy.UNCONFIRMED
        self.confirmation: Confirmation | None = None  # None: the proxy has not confirmed it
        self._with_program = _IDLE
        self.fetched.clear()
        if self.qos0 is not None:
            if self.qos0.is_confirmed:
                self.qos0.begin_again()
            else:
                self.qos0 = None

    # The place, and what of it is written.

    @property
    def place(self) -> Place:
        """Where the subscriber stands; only while it is subscribed."""
        assert self._place is not None, f"no subscription to {self.topic!r}"
        return self._place

    @property
    def is_subscribed(self) -> bool:
        """Whether there is a place."""
        return self._place is not None

    @property
    def is_clean(self) -> bool:
        """Whether it is one of a clean session, which ends with its process or its lease."""
        return self.place.terms.session == "clean"

    @property
    def is_saved(self) -> bool:
        """Whether the place was written as it is, so that it survives `kill -9`."""
        return self._place is self._saved

    def move(self, place: Place) -> None:
        """Stand there from now on; `row` is still to be written."""
        if self._place is None:
            self._happens_at_proxy(Event.STAND)
        self._place = place

    def row(self) -> Changes:
        """The whole place, to be written: earlier changes that failed to be written included."""
        return {TOPIC + self.topic: None if self._place is None else _encode(self._place)}

    def written(self, *, durable: bool) -> None:
        """The row was written as it is now."""
        self._saved = self._place
        if durable and self._place is not None:
            self.durable_cursor = self._place.cursor

    # The proxy.

    def is_to_be_told(self, *, ahead: bool) -> bool:
        """Whether the proxy of this moment is behind our cursor.

        Args:
            ahead: also if it has sent messages that were not handed over.
        """
        if self.confirmation is None:
            return False
        return self.place.cursor > self.confirmation.told or (ahead and bool(self.fetched))

    def confirmed(self, reply: SubAck, *, anew: bool) -> None:
        """The proxy has confirmed the subscription; its place was taken already.

        Args:
            anew: it begins in this process, so what was put at QoS 0 before is left.
        """
        self._happens_at_proxy(Event.CONFIRM)
        self.confirmation = Confirmation(reply.generation, reply.boot, reply.cursor)
        if self.qos0 is None:
            self.qos0 = self.new_qos0_queue()
        self.qos0.confirmed(reply.boot, reply.ring, anew=anew)

    def forgotten(self) -> None:
        """The proxy of this moment does not know the subscription: it is to be confirmed again."""
        self._happens_at_proxy(Event.FORGET)

    def given_up(self) -> None:
        """The place is none to resume any more; the proxy may have another one already."""
        self._happens_at_proxy(Event.END)
        self._place = None

    def ended(self) -> None:
        """The subscription has ended, with what was not delivered."""
        self.given_up()
        self.qos0 = None
        self.durable_cursor = -1

    def _happens_at_proxy(self, event: Event) -> None:
        before, self._to_proxy = self._to_proxy, TO_PROXY[self._to_proxy][event]
        if self._to_proxy is not ToProxy.CONFIRMED:
            self.confirmation = None
        if ToProxy.CONFIRMED in (before, self._to_proxy):
            self.drop_fetched()

    # The program.

    @property
    def has_next(self) -> bool:
        """Whether something can be handed over."""
        return bool(self.fetched or self.qos0)

    def drop_fetched(self) -> None:
        """What was fetched and not handed over may not be what follows: it is fetched again."""
        self.fetched.clear()

    @property
    def in_hand(self) -> Message | None:
        """The last message that was handed over and not acknowledged, unless it is given up."""
        return self._with_program.last

    @property
    def letter(self) -> Letter | None:
        """The dead letter that is under way."""
        return self._with_program.letter

    def handed_over(self, last: Message) -> None:
        """The program has messages up to this one."""
        self._happens_at_program(Event.HAND_OVER, last=last)

    def settle(self) -> None:
        """The program came back: what it had in hand is processed, what it was told is passed."""
        held = self._with_program
        self._happens_at_program(Event.SETTLE)
        if held.state is ToProgram.IN_HAND and held.last is not None:
            self._place = self.place.moved(held.last.offset + 1, held.last.timestamp_ns)
        elif held.state is ToProgram.LOSS_TOLD:
            self._place = self.place.moved(held.lost_end, None)

    def lost(self, end: int) -> None:
        """The program is told that what follows is lost, up to `end`."""
        self._happens_at_program(Event.LOSE, lost_end=end)

    def gives_up(self, message: Message, body: bytes) -> None:
        """A dead letter of this message is about to be sent; what was before it is processed."""
        last = self._with_program.last
        rest = last if last is not None and last.offset > message.offset else None
        self._happens_at_program(Event.GIVE_UP, letter=Letter(message, body, rest))

    def letter_stored(self) -> None:
        """The dead letter is stored; what came with its message and after it is still in hand."""
        letter = self._with_program.letter
        self._happens_at_program(Event.LETTER_STORED)
        if letter is not None and letter.rest is not None:
            self._happens_at_program(Event.HAND_OVER, last=letter.rest)

    def letter_refused(self, offset: int) -> None:
        """The dead letter will never be stored: its message, and what was in hand, comes again."""
        self._happens_at_program(Event.LETTER_REFUSED)
        self.drop_fetched()
        self.refused_letter = offset

    def drop(self) -> None:
        """Nothing of before counts: the place was chosen again, or there is none."""
        self._happens_at_program(Event.DROP)
        self.drop_fetched()
        self.refused_letter = None

    def _happens_at_program(
        self,
        event: Event,
        *,
        last: Message | None = None,
        lost_end: int = 0,
        letter: Letter | None = None,
    ) -> None:
        state = TO_PROGRAM[self._with_program.state][event]
        self._with_program = _WithProgram(state, last, lost_end, letter)
