"""The handlers of a subscriber: a function for each topic, and the policy if it fails. Pure."""

from __future__ import annotations

import inspect
from collections.abc import (
    AsyncGenerator,
    Awaitable,
    Callable,
    Coroutine,
    Generator,
    Iterator,
    Sequence,
)
from typing import Annotated, Any, Final, Literal

from msgspec import Meta, Struct

from reliable_pubsub.common.core import names
from reliable_pubsub.common.core.batch import Message
from reliable_pubsub.common.core.dead_letter import check_may_die
from reliable_pubsub.common.core.errors import UsageError
from reliable_pubsub.common.core.limits import REASON_CHARS_MAX
from reliable_pubsub.common.core.patterns.pattern import Pattern, Topics

PAUSE_S_MAX: Final = 60.0
# Messages of one topic that are handled before the others are looked at.
TURN_MESSAGES: Final = 1_000

OnFailure = Literal["stop", "reject"]
PauseS = Annotated[float, Meta(ge=0, le=PAUSE_S_MAX)]
Handles = Callable[[Message], object]
AioHandles = Callable[[Message], Awaitable[object] | object]


class Handler(Struct, frozen=True):
    """What is called with the messages of one topic."""

    call: Callable[[Message], Any]
    retries: int
    pause_s: float
    on_failure: OnFailure
    group: str | None = None  # the topic is read as a member of it

    def pause_before(self, retry: int) -> float | None:
        """Seconds before retry 1, 2, ..., doubling; None: the message has failed."""
        if retry > self.retries:
            return None
        longest: float = min(self.pause_s * 2.0 ** min(retry - 1, 60), PAUSE_S_MAX)
        return longest


class Handlers:
    """The handlers by topic, and which topic is looked at first."""

    def __init__(self) -> None:
        self.is_awaited = False  # by a `run` of asyncio
        self._by_topic: dict[Topics, Handler] = {}
        self._turn = 0

    def add(
        self,
        topic: Topics,
        call: Callable[[Message], Any],
        *,
        awaits: bool,
        group: str | None,
        retries: int,
        pause_s: float,
        on_failure: OnFailure | None,
    ) -> None:
        """Check the arguments of `on`, and handle the messages of a topic or a pattern.

        Args:
            awaits: a coroutine is awaited.

        Raises:
            InvalidNameError: of the topic, or of the group.
            UsageError: the topic can have no dead letters; a pattern with a group; or calling
                the handler does nothing yet.
        """
        if isinstance(topic, str):
            topic = names.exact(topic)
        check_call(call, awaits=awaits)
        if isinstance(topic, Pattern) and group is not None:
            raise UsageError("a pattern has no group: call `on` for each topic")
        if group is not None:
            names.client_id(group, kind="group")
        on_failure = on_failure or ("stop" if group is None else "reject")
        if on_failure == "reject":
            check_may_die(topic if isinstance(topic, str) else topic.text)
        self._by_topic[topic] = Handler(call, retries, pause_s, on_failure, group)

    def remove(self, topic: Topics) -> bool:
        """Remove the handler of a topic or a pattern; return whether there was one."""
        return self._by_topic.pop(topic, None) is not None

    def of(self, topic: Topics) -> Handler | None:
        return self._by_topic.get(topic)

    @property
    def are_none(self) -> bool:
        """Return whether every handler was removed."""
        return not self._by_topic

    def groups(self) -> Iterator[tuple[str, str]]:
        """The topics that are read as a member of a group, each with the group."""
        for topic, one in self._by_topic.items():
            if one.group is not None and isinstance(topic, str):
                yield topic, one.group

    def in_turn(self) -> Sequence[Topics]:
        """The topics and patterns, beginning with another one at each call: none waits for others.

        Raises:
            UsageError: there is none.
        """
        topics = list(self._by_topic)
        if not topics:
            raise UsageError("nothing to run: call `on(topic, handler)` first")
        self._turn = (self._turn + 1) % len(topics)
        return topics[self._turn :] + topics[: self._turn]


def check_call(call: Callable[..., object], *, awaits: bool) -> None:
    """Refuse a function whose call does nothing yet: its message would count as handled.

    Args:
        awaits: a coroutine is awaited.

    Raises:
        UsageError: it is a generator function, or a coroutine function where none is awaited.
    """
    functions = (call, getattr(call, "func", None), getattr(call, "__call__", None))  # noqa: B004
    if any(map(inspect.isgeneratorfunction, functions)) or any(
        map(inspect.isasyncgenfunction, functions)
    ):
        raise UsageError(f"{_NOT_RUN.format('a generator')}. Nothing was done")
    if not awaits and any(map(inspect.iscoroutinefunction, functions)):
        raise UsageError(f"{_NOT_RUN.format('a coroutine')}, or use `aio`. Nothing was done")


def check_finished(message: Message, result: object) -> None:
    """Refuse what a handler gives instead of its work.

    Raises:
        UsageError: its message is not acknowledged.
    """
    if isinstance(result, Awaitable | Generator | AsyncGenerator):
        if isinstance(result, Coroutine | Generator):
            result.close()  # or Python warns
        raise UsageError(
            f"{_NOT_RUN.format(f'a {type(result).__name__}')}, or use `aio`. The message at offset "
            f"{message.offset} of topic {message.topic!r} is not acknowledged"
        )


_NOT_RUN: Final = "the handler gives {}, of which nothing has been executed: give a plain function"


def reason_of(error: Exception, attempts: int) -> str:
    """Why a message was rejected, for its dead letter."""
    try:
        text = str(error)
    except Exception as own:  # of the program's class; the failure is that of the handler still
        text = f"its text cannot be shown, {type(own).__name__}"
    what = f"{type(error).__name__}: {text} (handled {attempts} times)"
    return what.encode(errors="backslashreplace").decode()[:REASON_CHARS_MAX]
