"""`ExternalCursor`: a subscription whose cursor is stored elsewhere, with its effects.

A job with a checkpoint, or a sink that stores the offset with its rows, reads with `LogReader` and
needs no inbox. It needs a subscription only so that the proxy knows its cursor, for lag and
retention. One verb does that: SUB with a cursor (rule R13).
"""

from __future__ import annotations

from reliable_pubsub.common.asking import Asker, BlockingSession
from reliable_pubsub.common.core import names
from reliable_pubsub.common.core.answers import AnyReply, SubAck
from reliable_pubsub.common.core.requests import Sub
from reliable_pubsub.common.core.retry import RetryPolicy
from reliable_pubsub.common.core.settings import SUBSCRIBER_ENDPOINT
from reliable_pubsub.common.world import REAL, World

from .core.place import Place


class ExternalCursor:
    """Subscribes, and reports its owner's cursor to the proxy. One running process for each id."""

    def __init__(
        self,
        client: str,
        endpoint: str = SUBSCRIBER_ENDPOINT,
        *,
        retry: RetryPolicy = RetryPolicy(),  # noqa: B008  (frozen)
        _world: World = REAL,
    ) -> None:
        """Create a client; the first call sends the first request.

        Args:
            _world: private.

        Raises:
            InvalidNameError.
        """
        self.client = names.client_id(client)
        asker = Asker(self.client, endpoint, retry=retry, role="subscriber", world=_world)
        self._session = BlockingSession(asker, "subscriber")
        self._control = 0

    def tell(self, topic: str, place: Place | None = None) -> Place:
        """Begin a subscription, or move its cursor: everything below the place is processed.

        Args:
            place: None begins at the end of the topic, or resumes an existing subscription.

        Returns:
            Where the subscription is now: the greater of the place and what the proxy knew.

        Raises:
            LogChangedError: the place is not one of this log.
            FencedError: a newer process uses this id.
            LimitError, ProxyUnreachableError, TryLaterError.
        """
        reply = self._session.ask_as_known(lambda: self._sub(names.topic(topic), place))
        if not isinstance(reply, SubAck):
            self._session.refused(reply)
        return Place(reply.log, reply.cursor, reply.witness_ns)

    def close(self) -> None:
        """Close the socket; the subscription stays."""
        self._session.asker.close()

    def _sub(self, topic: str, place: Place | None) -> AnyReply:
        self._control += 1
        return self._session.ask(
            Sub(
                **self._session.head(),
                topic=topic,
                control=self._control,
                log=place.log if place else None,
                cursor=place.cursor if place else None,
                witness_ns=place.witness_ns if place else None,
            )
        )
