"""The states of a subscription, and the events that each allows. Pure.

A subscription has two states, one towards the proxy and one towards the program, as a connection of
h11 has one for the client and one for the server.

Towards the proxy it is

- NONE: there is no place, so nothing can be resumed;
- UNCONFIRMED: there is a place, but the running proxy has not confirmed it: the proxy is new, or
  has restarted, or this client began another session. The next request sends SUB first, with our
  place as evidence (rules R13, R14);
- CONFIRMED: generation and boot are known, and requests can name them. Only now can messages
  be fetched, so entering or leaving this state drops the fetched messages that were not delivered.

Towards the program it is

- IDLE: no message is in hand;
- IN_HAND: it has messages, up to the last one of the last `get`. Its next call settles them;
- IN_RUN: a loop takes messages one by one. Taking one settles the one before, which costs a mark in
  the state and no write (`Run`). The next call of any other kind ends the run: messages that were
  not taken count as fetched, and the last one that was taken is in hand;
- LOSS_REPORTED: `get` raised LostError. The lost messages are skipped at the next call, not
  earlier: a process that dies before its program has seen the error must report it again;
- LETTER: a message is rejected, and the reply to its dead letter is in doubt. The same letter is
  sent until it is stored or refused; nothing else happens meanwhile. Later messages of the same
  `get` stay in hand.

The tables below say which events each state allows; any other is a programming error. Both states
are in memory only. A new process starts from the state on disk: UNCONFIRMED if it has a place, else
NONE, and IDLE. Messages in hand are then redelivered, marked, because the place counts deliveries.
The call after one that another package's exception interrupted begins in the same way (decision
0024), but what earlier calls delivered stays in hand (rule R31, `restoring.py`).
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Final


class _Key(Enum):
    """A key of the tables below, hashed in C: `Enum` hashes the name of a member, in Python."""

    __hash__ = object.__hash__


class ToProxy(_Key):
    """The state of a subscription towards the running proxy."""

    NONE = auto()
    UNCONFIRMED = auto()
    CONFIRMED = auto()


class ToProgram(_Key):
    """The state of a subscription towards the program."""

    IDLE = auto()
    IN_HAND = auto()
    IN_RUN = auto()
    LOSS_REPORTED = auto()
    LETTER = auto()


class SubscriptionEvent(_Key):
    """An event of a subscription."""

    # At the proxy.
    CONFIRM = auto()  # SUB_ACK
    FORGET = auto()  # STALE, NOT_SUB or LOG_CHANGED; or another session has begun
    END = auto()  # UNSUB_ACK, the end of a clean session, or a SUB that replaces the place
    STAND = auto()  # there is a place: from SUB_ACK, or kept after a refused SUB
    # At the program.
    HAND_OVER = auto()  # `get` returns messages
    BEGIN_RUN = auto()  # a loop is about to take messages
    END_RUN = auto()  # the next call after that
    SETTLE = auto()  # the next call: the messages in hand are processed
    LOSE = auto()  # `get` raises LostError
    BEGIN_LETTER = auto()  # a dead letter is about to be sent
    LETTER_STORED = auto()
    LETTER_REFUSED = auto()
    DROP = auto()  # the place was replaced or removed: forget the messages in hand


TO_PROXY: Final = {
    ToProxy.NONE: {
        SubscriptionEvent.STAND: ToProxy.UNCONFIRMED,
        SubscriptionEvent.FORGET: ToProxy.NONE,
        SubscriptionEvent.END: ToProxy.NONE,
    },
    ToProxy.UNCONFIRMED: {
        SubscriptionEvent.CONFIRM: ToProxy.CONFIRMED,
        SubscriptionEvent.FORGET: ToProxy.UNCONFIRMED,
        SubscriptionEvent.END: ToProxy.NONE,
    },
    ToProxy.CONFIRMED: {
        SubscriptionEvent.CONFIRM: ToProxy.CONFIRMED,
        SubscriptionEvent.FORGET: ToProxy.UNCONFIRMED,
        SubscriptionEvent.END: ToProxy.NONE,
    },
}

TO_PROGRAM: Final = {
    ToProgram.IDLE: {
        SubscriptionEvent.HAND_OVER: ToProgram.IN_HAND,
        SubscriptionEvent.BEGIN_RUN: ToProgram.IN_RUN,
        SubscriptionEvent.SETTLE: ToProgram.IDLE,
        SubscriptionEvent.LOSE: ToProgram.LOSS_REPORTED,
        SubscriptionEvent.BEGIN_LETTER: ToProgram.LETTER,  # it has reached max_deliveries
        SubscriptionEvent.DROP: ToProgram.IDLE,
    },
    ToProgram.IN_HAND: {
        SubscriptionEvent.SETTLE: ToProgram.IDLE,
        SubscriptionEvent.BEGIN_LETTER: ToProgram.LETTER,
        SubscriptionEvent.DROP: ToProgram.IDLE,
    },
    ToProgram.IN_RUN: {
        SubscriptionEvent.END_RUN: ToProgram.IDLE,  # then IN_HAND, if a message was taken
    },
    ToProgram.LOSS_REPORTED: {
        SubscriptionEvent.SETTLE: ToProgram.IDLE,
        SubscriptionEvent.DROP: ToProgram.IDLE,
    },
    ToProgram.LETTER: {
        SubscriptionEvent.LETTER_STORED: ToProgram.IDLE,  # then IN_HAND, if later messages are
        SubscriptionEvent.LETTER_REFUSED: ToProgram.IDLE,
        SubscriptionEvent.DROP: ToProgram.IDLE,
    },
}
