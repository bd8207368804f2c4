"""`Publisher.interests`: a feed of subscriptions that waits."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from reliable_pubsub.common.core.retry import limit_s

from .core.interests import InterestChange, InterestWatch


class Interests(Iterator[InterestChange]):
    """Changes of what is subscribed to. After an error it may be asked for the next one again."""

    def __init__(
        self,
        watch: InterestWatch,
        look: Callable[..., None],
        sleep: Callable[[float], None],
    ) -> None:
        """Begin with what is there; made by `Publisher.interests`."""
        self._watch, self._look, self._sleep = watch, look, sleep

    def __repr__(self) -> str:
        return f"<Interests in {self._watch.match}>"

    def __next__(self) -> InterestChange:
        """Wait for the next change."""
        for pause_s in self._watch.pauses():
            self._sleep(pause_s)
            self._look(self._watch, timeout_s=limit_s(self._watch.timeout_s))
        change = self._watch.take()
        if change is None:
            raise StopIteration
        return change
