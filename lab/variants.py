"""Faults switched on: a process in which one part is wrong, for exercises and for the simulation.

The product has no switch for this. A function or a class is put in the place of another, here and
only here:

    python -m reliable_pubsub.lab.variants cursor_on_send proxy --data-dir ...
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

import click
from msgspec.structs import replace

from reliable_pubsub import __main__ as command
from reliable_pubsub import proxy
from reliable_pubsub.common.core.answers import Busy, Conflict, Duplicate, MessageBatches, PutAck
from reliable_pubsub.common.core.batch import StoredBatch
from reliable_pubsub.common.core.message_base import BatchHeader
from reliable_pubsub.common.core.requests import Get, Put
from reliable_pubsub.common.core.wire import direct_batches
from reliable_pubsub.proxy import store, stored_state
from reliable_pubsub.proxy.core.appending import next_batch
from reliable_pubsub.proxy.core.feature import Tables
from reliable_pubsub.proxy.core.publishing import put
from reliable_pubsub.proxy.core.reading import get
from reliable_pubsub.proxy.core.records import Decision
from reliable_pubsub.proxy.core.replies import decided, echo
from reliable_pubsub.proxy.core.state import Hooks, State
from reliable_pubsub.proxy.core.subscription_records import CursorMoved
from reliable_pubsub.proxy.features import SCHEMA
from reliable_pubsub.subscriber.core import fetching

Rule = Callable[..., Any]  # a verb, or another function of `proxy/core`


def plant(sound: Rule, faulty: Rule) -> None:
    """Put a function in the place of another: as a name, a method, or an entry of a table.

    All of `proxy` is searched.

    With the two exchanged it is undone.
    """
    for name, module in list(sys.modules.items()):
        if not name.startswith(f"{proxy.__name__}."):
            continue
        for known_as, value in list(vars(module).items()):
            if value is sound:
                setattr(module, known_as, faulty)
            elif isinstance(value, type) and value.__module__ == name:
                for method, one in list(vars(value).items()):
                    if one is sound:
                        setattr(value, method, faulty)
            elif not known_as.startswith("__"):
                _replace_in(value, sound, faulty)


def _replace_in(rows: object, sound: Rule, faulty: Rule) -> None:
    """Replace it in tables, and in the tables and lists within them."""
    if isinstance(rows, Tables | Hooks):
        for name in rows.__struct_fields__:
            _replace_in(getattr(rows, name), sound, faulty)
    elif isinstance(rows, dict | list):
        for key, entry in list(rows.items() if isinstance(rows, dict) else enumerate(rows)):
            if entry is sound:
                rows[key] = faulty
            elif isinstance(entry, list):
                _replace_in(entry, sound, faulty)


@contextmanager
def planted(rules: Mapping[Rule, Rule]) -> Iterator[None]:
    """Plant faults for a while."""
    for sound, faulty in rules.items():
        plant(sound, faulty)
    try:
        yield
    finally:
        for sound, faulty in rules.items():
            plant(faulty, sound)


def append_again(state: State, request: Put, body: bytes, now_ns: int) -> Decision:
    """Store a batch that is stored already: shared by the faults that do not recognise it."""
    log = state.topics[request.topic]
    batch = next_batch(
        state,
        log,
        request,
        body,
        count=request.count,
        crc=request.crc,
        now_ns=now_ns,
        first_sequence=request.first_sequence,
        qos=request.qos,
    )
    return decided(state, PutAck(**echo(state, request), offset=batch.base), batch)


def deduplicate_last_only(state: State, request: Put, body: bytes, now_ns: int) -> Decision:
    """Only the newest number is known: a late copy of an older one is stored again."""
    decision = put(state, request, body, now_ns)
    if not isinstance(decision.reply, Duplicate | Conflict | Busy):
        return decision
    mark = state.topics[request.topic].publishers[request.client]
    if request.first_sequence == mark.first_sequence:
        return decision
    return append_again(state, request, body, now_ns)


def move_cursor_on_send(state: State, request: Get, body: bytes, now_ns: int) -> Decision:
    """Sending a message moves the cursor."""
    log = state.topics.get(request.topic)
    known = log.subscriptions.get(request.client) if log else None
    if known and known.generation == request.generation:
        request = replace(request, cursor=max(known.cursor, request.cursor))
    decision = get(state, request, body, now_ns)
    if log and known and isinstance(decision.reply, MessageBatches):
        last = decision.reply.batches[-1]
        end = last.base + last.count
        moved = CursorMoved(log.topic_id, request.client, known.generation, end, False)
        return replace(decision, records=(*decision.records, moved))
    return decision


def whatever_follows(
    topic: str, cursor: int, batches: Sequence[BatchHeader], body: bytes
) -> list[StoredBatch]:
    """A subscriber that trusts the answer: a gap before the first batch is accepted."""
    first = max(cursor, batches[0].base) if batches else cursor
    return direct_batches(topic, first, batches, body)


def cursor_on_send() -> None:
    """The classic lost message: sent counts as received, and no one looks for a gap."""
    plant(get, move_cursor_on_send)
    fetching.direct_batches = whatever_follows  # type: ignore[attr-defined]


def dedup_last_id() -> None:
    """The classic doubled message. The store alone would refuse the copy, so it has to forget."""
    plant(put, deduplicate_last_only)
    for module in (store, stored_state):
        vars(module)["SCHEMA"] = SCHEMA.replace("UNIQUE INDEX batch_once", "INDEX batch_once")


FAULTS: Final[Mapping[str, Callable[[], None]]] = {
    function.__name__: function for function in (cursor_on_send, dedup_last_id)
}
# A subscriber that trusts the answer takes the proxy's position for its own.
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
