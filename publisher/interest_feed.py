"""`Publisher.interests`: the two shells of a feed of subscriptions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

from .core.interests import InterestChange, InterestWatch


class Interests(Iterator[InterestChange]):
    """Changes of what is subscribed to. After an error it may be asked for the next one again."""

    def __init__(
        self,
        watch: InterestWatch,
        look: Callable[[InterestWatch], None],
        sleep: Callable[[float], None],
    ) -> None:
        """Begin with what is there; made by `Publisher.interests`."""
        self._watch, self._look, self._sleep = watch, look, sleep

    def __next__(self) -> InterestChange:
        """Wait for the next change."""
        for pause_s in self._watch.pauses():
            self._sleep(pause_s)
            self._look(self._watch)
        change = self._watch.take()
        if change is None:
            raise StopIteration
        return change


class AioInterests(AsyncIterator[InterestChange]):
    """The same for asyncio."""

    def __init__(
        self, watch: InterestWatch, look: Callable[[InterestWatch], Awaitable[None]]
    ) -> None:
        """Begin with what is there; made by `aio.Publisher.interests`."""
        self._watch, self._look = watch, look

    async def __anext__(self) -> InterestChange:
        """Wait for the next change."""
        for pause_s in self._watch.pauses():
            await asyncio.sleep(pause_s)
            await self._look(self._watch)
        change = self._watch.take()
        if change is None:
            raise StopAsyncIteration
        return change
