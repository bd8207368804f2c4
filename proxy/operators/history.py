"""What the proxy knows of its operators' actions: the newest ones, and whether puts are paused."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from reliable_pubsub.common.core.actions import (
    AnyAction,
    DeleteTopic,
    ForgetClient,
    Pause,
    Resume,
    Truncate,
)
from reliable_pubsub.common.core.limits import ACTIONS_KEPT

from ..core.stored import StoredAction


class Administration:
    """The newest actions. Changed by records only, but for `asker` and `done`."""

    def __init__(self, actions: Iterable[StoredAction], paused: str | None) -> None:
        """Begin with the stored ones.

        Args:
            actions: in the order of their numbers.
            paused: the reason why puts are paused; None: they are not.
        """
        self.asker = ""  # name of the key whose request is decided
        self.done: deque[StoredAction] = deque()  # durable, and not yet output
        self.paused = paused
        self.lsn = 0  # record number of the newest action
        self.newest: dict[int, StoredAction] = {}  # by number
        self._removed: dict[str, int] = {}  # by topic: messages below it were removed by operators
        for one in actions:
            self._remember(one)

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
        self._remember(record)

    def _remember(self, record: StoredAction) -> None:
        self.newest[record.number] = record
        self.newest.pop(record.number - ACTIONS_KEPT, None)
        if isinstance(record.action, Truncate | DeleteTopic):
            self._removed[record.action.topic] = record.effect.end

    def has_removed(self, topic: str, offset: int) -> bool:
        """Whether an operator has removed the message at an offset, as far as it is remembered."""
        return offset < self._removed.get(topic, 0)


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
