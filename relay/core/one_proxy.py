"""Whether all nodes above lead to the same proxy. Pure.

Offsets, log ids and cursors belong to one proxy, and requests go to the first node above only. What
came from another one would be dropped by every subscriber without a word. So all are asked at the
same moment which start of a proxy they lead to; two different answers, twice in a row from each,
are two proxies, and not one that was restarted between two answers.
"""

from __future__ import annotations

from typing import Final

from reliable_pubsub.common.core.errors import TwoProxiesError

ROUND_S: Final = 1.0


class OneProxy:
    """Rounds of questions to the nodes above."""

    def __init__(self, endpoints: tuple[str, ...]) -> None:
        """Nothing was asked yet.

        Args:
            endpoints: of the nodes above.
        """
        self._endpoints = endpoints
        self._before: dict[str, str] = {}
        self._now: dict[str, str] = {}
        self._due_at_s = float("-inf")
        self.round = 0

    def is_due(self, now_s: float) -> bool:
        """Whether all are to be asked now; then a round begins."""
        if len(self._endpoints) < 2 or now_s < self._due_at_s:
            return False
        self._due_at_s = now_s + ROUND_S
        self._before, self._now = self._now, {}
        self.round += 1
        return True

    def answered(self, endpoint: str, boot: str, number: int) -> None:
        """A node above leads to this start of a proxy.

        Raises:
            TwoProxiesError: another one leads to another proxy.
        """
        if number != self.round:
            return  # late: of another round
        self._now[endpoint] = boot
        steady = [
            one
            for one in self._endpoints
            if one in self._now and self._now[one] == self._before.get(one)
        ]
        for other in steady:
            if endpoint in steady and self._now[other] != boot:
                raise TwoProxiesError(first=other, second=endpoint)
