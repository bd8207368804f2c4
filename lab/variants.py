"""Faults switched on: a process in which one part is wrong, for exercises and for the simulation.

The product has no switch for this. A class is put in the place of another, here and only here:

    python -m reliable_pubsub.lab.variants cursor_on_send proxy --data-dir ...
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import click
from msgspec.structs import replace

from reliable_pubsub import __main__ as command
from reliable_pubsub.common.core.batch import Message
from reliable_pubsub.common.core.messages import BatchHeader, Get, MessageBatches, Put, PutAck
from reliable_pubsub.proxy import store
from reliable_pubsub.proxy.core.broker import Broker
from reliable_pubsub.proxy.core.engine import Engine
from reliable_pubsub.proxy.core.records import Appended, CursorMoved, Decision
from reliable_pubsub.proxy.core.schema import TABLES
from reliable_pubsub.proxy.core.topic_log import PublisherMark, TopicLog
from reliable_pubsub.subscriber import fetching
from reliable_pubsub.subscriber.core.direct_followers import direct_followers


class AppendsAgain(Broker):
    """Shared by the faults that store what they should know."""

    def _put(self, request: Put, body: bytes, now_ns: int) -> Decision:
        self.body, self.now_ns = body, now_ns
        return super()._put(request, body, now_ns)

    def _append_again(self, request: Put, log: TopicLog) -> Decision:
        batch = Appended(
            topic_id=log.topic_id,
            base=log.end,
            count=request.count,
            publisher=request.client,
            epoch=request.epoch,
            first_sequence=request.first_sequence,
            timestamp_ns=log.next_timestamp_ns(self.now_ns, 1),
            crc=request.crc,
            body=self.body,
        )
        return self._decided(PutAck(**self._echo(request), offset=batch.base), batch)


class DeduplicatesLastOnly(AppendsAgain):
    """Only the newest number is known: a late copy of an older one is stored again."""

    def _repeated_put(self, request: Put, log: TopicLog, mark: PublisherMark) -> Decision:
        if request.first_sequence == mark.first_sequence:
            return super()._repeated_put(request, log, mark)
        return self._append_again(request, log)


class CursorMovesOnSend(Broker):
    """The seed's way: sending a message moves the cursor."""

    def _get(self, request: Get, body: bytes, now_ns: int) -> Decision:
        log = self.topics.get(request.topic)
        known = log.subscriptions.get(request.client) if log else None
        if known and known.generation == request.generation:
            request = replace(request, cursor=max(known.cursor, request.cursor))
        decision = super()._get(request, body, now_ns)
        if log and known and isinstance(decision.reply, MessageBatches):
            last = decision.reply.batches[-1]
            end = last.base + last.count
            moved = CursorMoved(log.topic_id, request.client, known.generation, end, False)
            return replace(decision, records=(*decision.records, moved))
        return decision


def whatever_follows(
    topic: str, cursor: int, batches: Sequence[BatchHeader], body: bytes, *, qos: int = 2
) -> list[Message]:
    """A subscriber that believes what it gets: a gap before the first batch is no matter."""
    first = max(cursor, batches[0].base) if batches else cursor
    return direct_followers(topic, first, batches, body, qos=qos)


def cursor_on_send() -> None:
    """The classic lost message: sent counts as received, and no one looks for a gap."""
    Engine.broker_class = CursorMovesOnSend
    fetching.direct_followers = whatever_follows  # type: ignore[attr-defined]


def dedup_last_id() -> None:
    """The classic doubled message. The store alone would refuse the copy, so it has to forget."""
    Engine.broker_class = DeduplicatesLastOnly
    store.TABLES = TABLES.replace("UNIQUE INDEX batch_once", "INDEX batch_once")  # type: ignore[attr-defined]


FAULTS: Final[Mapping[str, Callable[[], None]]] = {
    function.__name__: function for function in (cursor_on_send, dedup_last_id)
}
# A subscriber that believes what it gets takes the proxy's position for its own.
OPTIONS: Final[Mapping[tuple[str, str], Sequence[str]]] = {
    ("cursor_on_send", "subscriber"): ("--on-log-changed", "adopt"),
}


@click.command(context_settings={"ignore_unknown_options": True, "help_option_names": []})
@click.argument("fault", type=click.Choice(list(FAULTS)))
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def main(fault: str, arguments: tuple[str, ...]) -> None:
    """Run a command of reliable-pubsub with a fault switched on."""
    FAULTS[fault]()
    command.main(args=list(arguments), prog_name="reliable-pubsub")


if __name__ == "__main__":
    main()
