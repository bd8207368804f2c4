"""What the proxy knows of its operators' actions: the newest ones, and whether puts are paused."""

from __future__ import annotations

from collections import deque

from msgspec import Struct, to_builtins

from reliable_pubsub.common.core.actions import (
    AnyAction,
    DeleteTopic,
    Effect,
    ForgetClient,
    Pause,
    Resume,
    Truncate,
)
from reliable_pubsub.common.core.limits import ACTIONS_KEPT

from ..core.state import State


class StoredAction(Struct, frozen=True):
    """What an operator did."""

    number: int  # 1, 2, 3, ...
    nonce: bytes
    at_ns: int  # wall clock
    who: str  # name of the key; "": the proxy knows no keys
    client: str
    action: AnyAction
    effect: Effect


class StoredPause(Struct, frozen=True):
    """Puts are paused."""

    reason: str


class Deed(Struct, frozen=True):
    """An operator's action that is durable, for the audit log."""

    record: StoredAction

    @property
    def fields(self) -> dict[str, object]:
        """The fields of its line in the audit log."""
        one = self.record
        return {
            "name": one.who,
            "client": one.client,
            "number": one.number,
            "action": to_builtins(one.action),
            "effect": to_builtins(one.effect),
        }


class Administration:
    """The newest actions. Changed by records only, but for `asker` and `done`."""

    def __init__(self) -> None:
        self.asker = ""  # name of the key whose request is decided
        self.done: deque[StoredAction] = deque()  # durable, and not yet output
        self.paused: str | None = None  # the reason why puts are paused; None: they are not
        self.lsn = 0  # record number of the newest action
        self.newest: dict[int, StoredAction] = {}  # by number

    @property
    def last_number(self) -> int:
        """The number of the newest action; 0: there is none."""
        return next(reversed(self.newest), 0)

    def add(self, record: StoredAction, lsn: int) -> None:
        """An action is done."""
        self.lsn = lsn
        match record.action:
            case Pause(reason=reason):
                self.paused = reason
            case Resume():
                self.paused = None
        self.remember(record)

    def remember(self, record: StoredAction) -> None:
        """Keep an action, and remove the oldest that are no longer kept."""
        self.newest[record.number] = record
        self.newest.pop(record.number - ACTIONS_KEPT, None)


def note_removed(state: State, record: StoredAction) -> None:
    """Note in a topic which messages an action has removed."""
    if isinstance(record.action, Truncate | DeleteTopic):
        state.topics[record.action.topic].removed_to = record.effect.end


def client_of(action: AnyAction) -> str:
    """The client that an action is about, or the name of a group's subscription; "": none."""
    return action.of if isinstance(action, ForgetClient) else getattr(action, "subscriber", "")


def subscriber_of(action: AnyAction) -> str:
    """The subscriber that an action is about; "": none."""
    of_publisher = isinstance(action, ForgetClient) and action.role == "publisher"
    return "" if of_publisher else client_of(action)


def topic_of_action(action: AnyAction) -> str:
    """The topic that an action is about; "": none."""
    return getattr(action, "topic", "")
