"""Faults switched on: a process in which one part is wrong, for exercises and for the simulation.

The product has no switch for this. A class is put in the place of another, here and only here:

    python -m reliable_pubsub.lab.variants cursor_on_send proxy --data-dir ...
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence

import click
from msgspec.structs import replace

from reliable_pubsub import __main__ as command
from reliable_pubsub.common.batch import Message
from reliable_pubsub.common.messages import BatchHeader, Get, MessageBatches, Put, PutAck
from reliable_pubsub.proxy import server
from reliable_pubsub.proxy.broker import Broker
from reliable_pubsub.proxy.records import Appended, CursorMoved, Decision
from reliable_pubsub.proxy.topic_log import PublisherMark, TopicLog
from reliable_pubsub.subscriber import client
from reliable_pubsub.subscriber.inbox import direct_followers


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
    topic: str, cursor: int, batches: Sequence[BatchHeader], body: bytes
) -> list[Message]:
    """A subscriber that believes what it gets: a gap before the first batch is no matter."""
    first = max(cursor, batches[0].base) if batches else cursor
    return direct_followers(topic, first, batches, body)


# By name, as in a scenario: the broker, and whether subscribers believe what they get.
FAULTS: Mapping[str, tuple[type[Broker], bool]] = {
    "cursor_on_send": (CursorMovesOnSend, True),
    "dedup_last_id": (DeduplicatesLastOnly, False),
}


def options_of(fault: str, role: str) -> Sequence[str]:
    """Further options of a process that has a fault: a subscriber believes the proxy's position."""
    believes = bool(fault) and FAULTS[fault][1] and role == "subscriber"
    return ("--on-log-changed", "adopt") if believes else ()


@click.command(context_settings={"ignore_unknown_options": True, "help_option_names": []})
@click.argument("fault", type=click.Choice(list(FAULTS)))
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def main(fault: str, arguments: tuple[str, ...]) -> None:
    """Run a command of reliable-pubsub with a fault switched on."""
    broker, believes = FAULTS[fault]
    server.Broker = broker  # type: ignore[attr-defined]
    if believes:
        client.direct_followers = whatever_follows  # type: ignore[attr-defined]
    command.main(args=list(arguments), prog_name="reliable-pubsub")


if __name__ == "__main__":
    sys.exit(main())
