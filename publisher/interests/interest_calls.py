"""The call of a blocking publisher that follows what is subscribed to."""

from __future__ import annotations

from reliable_pubsub.common.core.arguments import Seconds, checked
from reliable_pubsub.common.core.patterns.pattern import Topics
from reliable_pubsub.common.gate import gated

from ..put_calls import PutCalls
from .core.interests import EVERY_S, EVERY_TOPIC, EveryS, InterestWatch
from .interest_feed import Interests


class InterestCalls(PutCalls):
    """Follows what is subscribed to."""

    @checked
    def interests(
        self,
        topics: Topics = EVERY_TOPIC,
        *,
        every_s: EveryS = EVERY_S,
        timeout_s: Seconds | None = None,
    ) -> Interests:
        """Iterate over subscriptions: first those that exist, then each change of them.

        The proxy is asked every `every_s`. What begins and ends between two looks is missed; all
        else is seen, also across restarts of the proxy. Not shown are the messages that a
        subscriber's `where` lets through, and pushes without a subscription (see `interest`).

        Args:
            topics: a topic, or a pattern; subscriptions by patterns that may share a topic with
                it are included. The topics that they match now are listed as well.
            timeout_s: end after this long without a change; 0 ends after those that exist now,
                None waits forever.

        Raises:
            InvalidNameError, InvalidPatternError.
            DeniedError: the key may put to none of these topics; only those are shown.
            InDoubtError: no answer. The next `next` continues.
        """
        clock = self._opened.asker.clock
        watch = InterestWatch(topics, every_s=every_s, timeout_s=timeout_s, now_s=clock.now_s)
        return Interests(watch, self._look_at_interests, clock.sleep)

    @gated
    def _look_at_interests(self, watch: InterestWatch, *, timeout_s: float | None) -> None:
        self._gate.patience.wait(watch.timeout_s)
        return self._run(watch.look(self._engine.session))
