"""The call of a blocking publisher that opens a stream."""

from __future__ import annotations

import threading
from collections.abc import Callable

from reliable_pubsub.common.core.batch import Batch
from reliable_pubsub.common.core.errors import StoppedError
from reliable_pubsub.common.core.stopping import until_stopped
from reliable_pubsub.common.gate import gated

from ..core.outbox import encoded_batch
from ..core.puts import WaitingPut
from ..core.receipt import Receipt
from ..put_calls import PutCalls
from .stream import LingerS, Stream


class StreamCalls(PutCalls):
    """Puts without waiting."""

    @gated
    def stream(self, *, linger_s: LingerS = 0.005) -> Stream:
        """Put without waiting: messages are collected into batches, and sent in order by a thread.

        Use it in a `with` block; until it is closed, the publisher belongs to it.

        Args:
            linger_s: longest time that a message waits for its batch to fill.
        """
        self._check_is_free()
        life = self._gate.lives
        stop = threading.Event()
        put = lambda *batch: self._put_from_stream(life, stop.is_set, *batch)  # noqa: E731
        stream = Stream(put, linger_s=linger_s, payloads=self._payloads, stop=stop)
        self._sender = stream.sender
        return stream

    @gated
    def _put_from_stream(
        self, life: int, is_stopped: Callable[[], bool], topic: str, batch: Batch
    ) -> Receipt:
        self._gate.check_life(life, "this stream")
        if is_stopped():  # else it would be numbered, and not sent
            raise StoppedError
        put = WaitingPut(batch, encoded_batch(topic, batch), 2, is_alone=True)
        return self._run(until_stopped(self._engine.put(put), is_stopped))
