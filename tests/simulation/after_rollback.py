"""What holds when the proxy's store was set back to an earlier durable copy, once.

The log then has two lines: the one *before*, with everything that was ever durable until then, and
the *new* one, which shares its beginning. Nothing about it may be silent: who had been told of what
is gone stops with LOG_CHANGED, or never asks about that topic again; nobody goes on over the seam,
except a client that was asked to rewind or to adopt.

Not promised, because nothing remembers it: what a client had been told of a topic that it has
unsubscribed from, the offset of a receipt whose message comes back by a late copy, and that a
message which was handed over but not processed when its process died is the same one when it comes
again, marked, from a store that was set back in between and has grown again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from msgspec import Struct

from reliable_pubsub.common.batch import Message

from .history import Acknowledged, Entry, History, Log, entry_of


def _liveness_of_stopped(history: History, before: Log, new: Log) -> Iterator[str]:
    """Only a client that may have been told of what is gone stops."""
    for client, text in history.stopped.items():
        rollback = history.rollback
        if rollback is None or not (rollback.took_messages or rollback.took_subscription(client)):
            yield f"stops for a reason: {client} stopped, but nothing is gone: {text}"


def _each_put_stands_once(history: History, before: Log, new: Log) -> Iterator[str]:
    """On both lines: each message at most once, in order; what is missing was told, or is gone."""
    for log in (before, new):
        for topic, stored in log.items():
            for publisher in history.plans:
                here = [entry for entry in stored if entry[0] == publisher]
                parts = _late_and_others(history, here, topic) if log is new else [here]
                sequences = [sequence for _, sequence, _, _ in here]
                if not all(_in_order(history, part) for part in parts) or sequences != list(
                    range(1, len(here) + 1)
                ):
                    yield f"each put once, in order: {publisher} on {topic!r} has {here}"
    for publisher, plan in history.plans.items():
        stops = publisher in history.stopped
        for topic in {item.topic: None for item in plan}:
            entries = {
                e for e in (*before.get(topic, ()), *new.get(topic, ())) if e[0] == publisher
            }
            known = {_planned(entry)[1] for entry in entries}
            wanted = range(sum(item.count for item in plan if item.topic == topic))
            if not stops and known != set(wanted):
                yield f"each put once, in order: {publisher} on {topic!r} put only {sorted(known)}"


def _in_order(history: History, entries: Sequence[Entry]) -> bool:
    """Whether messages of one publisher are in the order in which it made them, none twice."""
    planned = [_planned(entry) for entry in entries]
    if entries and entries[0][0] not in history.no_state:
        planned = [(0, index) for _, index in planned]
    return planned == sorted(set(planned))


def _late_and_others(
    history: History, entries: Sequence[Entry], topic: str
) -> Sequence[Sequence[Entry]]:
    """Messages of one publisher: those whose put was called before the rollback, and the others.

    The set-back proxy has forgotten the epochs. A process that has forgotten its own gets one that
    was given before, and then a late put of the dead process that had it is not fenced: the order
    holds for each of the two, and not between them.
    """
    if not entries or entries[0][0] not in history.no_state:
        return [entries]
    assert history.rollback is not None
    publisher = entries[0][0]
    parts: tuple[list[Entry], list[Entry]] = ([], [])
    for entry in entries:
        life, index = _planned(entry)
        called = max(
            (first, at)
            for (who, its_life, where, first), at in history.invoked.items()
            if (who, its_life, where) == (publisher, life, topic) and first <= index
        )
        parts[called[1] > history.rollback.index].append(entry)
    return parts


def _planned(entry: Entry) -> tuple[int, int]:
    """Of a message: the life that made it, and its index in the plan."""
    _, planned, life = entry[2].decode().split("/")
    return int(life), int(planned)


def _acknowledged_is_stored(history: History, before: Log, new: Log) -> Iterator[str]:
    """What was acknowledged stood on one of the lines; since the rollback, on the new one."""
    assert history.rollback is not None
    for event in history.acknowledged:
        wanted = _messages_of(event)
        lines = [new] if event.called > history.rollback.index else [new, before]
        offset = event.receipt.offset
        if offset is None or not any(
            _facts(line.get(event.item.topic, [])[offset : offset + len(wanted)]) == wanted
            for line in lines
        ):
            yield f"acknowledged means stored: {event.receipt} stands on none of the lines"


def _nothing_told_is_gone_in_silence(history: History, before: Log, new: Log) -> Iterator[str]:
    """A publisher that was told of a message which is gone gets no further receipt, unasked."""
    assert history.rollback is not None
    gone: dict[tuple[str, int, str], Acknowledged] = {}
    for event in history.acknowledged:
        who = (event.publisher, event.life, event.item.topic)
        if event.called > history.rollback.index and who in gone:
            first = gone[who]
            if event.publisher not in history.choices and first.index < event.called:
                yield f"nothing is silent: {event.receipt} after {first.receipt}, which is gone"
        if not set(_messages_of(event)) <= set(_facts(new.get(event.item.topic, ()))):
            gone.setdefault(who, event)


def _messages_of(event: Acknowledged) -> list[tuple[str, int, int]]:
    receipt = event.receipt
    return [
        (event.publisher, receipt.first_sequence + n, event.item.first + n)
        for n in range(receipt.count)
    ]


def _facts(entries: Sequence[Entry]) -> list[tuple[str, int, int]]:
    return [(entry[0], entry[1], _planned(entry)[1]) for entry in entries]


def _readers_see_a_line(history: History, before: Log, new: Log) -> Iterator[str]:
    """Whatever anybody has seen stood on one of the lines."""
    for (topic, offset), reads in history.read.items():
        for reader, message in reads:
            if not (_stands(message, before) or _stands(message, new)):
                yield f"readers see the log: {reader} read at {topic!r} {offset} {message}"


def _stands(message: Message, log: Log) -> bool:
    stored = log.get(message.topic, [])
    return message.offset < len(stored) and stored[message.offset] == entry_of(message)


def _runs_keep_to_a_line(history: History, before: Log, new: Log) -> Iterator[str]:
    """What one subscription gave: one line, without gap, to its end; a seam only where chosen."""
    for run in _runs(history):
        choice = history.choices.get(run.subscriber, "stop")
        who = f"{run.subscriber} on {run.topic!r}, {choice}, from {run.begin}"
        messages = run.messages
        offsets = [message.offset for message in messages]
        seam = _seam(messages, before, new)
        if seam is None:
            yield f"one line of the log: {who} has {_shown(messages)}"
            continue
        parts = (messages[:seam], messages[seam:])
        kept = history.rollback.ends.get(run.topic, 0) if history.rollback else 0
        if parts[0] and parts[1] and (choice == "stop" or parts[0][-1].offset < kept):
            yield f"one line of the log: {who} goes on over the seam: {_shown(messages)}"
        for part in parts:
            first = part[0].offset if part else 0
            if [message.offset for message in part] != list(range(first, first + len(part))):
                yield f"once, in order, without gap: {who} has {offsets}"
        if messages and offsets[0] != run.begin and choice == "stop":
            yield f"once, in order, without gap: {who} has {offsets}"
        if choice == "rewind" and parts[0] and parts[1] and parts[1][0].offset != 0:
            yield f"once, in order, without gap: {who} does not begin anew: {offsets}"
        if not run.ended and run.subscriber not in history.stopped:
            yield from _reaches_the_end(history, run, choice, parts[1])


def _reaches_the_end(
    history: History, run: Run, choice: str, behind_seam: Sequence[Message]
) -> Iterator[str]:
    """A subscription that nobody ended holds all that the log had when its client was done.

    No more: a late copy of a put that was set back may arrive when everybody is done. No less,
    except that a client which was asked to go on elsewhere gets nothing there if nothing comes:
    it adopted the end, or began anew in a topic that is empty, or the message it had in hand when
    its process died is gone, and it stands before it.
    """
    drained = history.drained.get((run.subscriber, run.topic))
    if drained is None:  # it is not done, and `liveness` says so
        return
    messages = run.messages
    end = messages[-1].offset + 1 if messages else run.begin
    stands_before = messages[-run.in_hand].offset if run.in_hand else end
    elsewhere = {
        "stop": False,
        "rewind": drained.end in (0, stands_before),
        "adopt": True,
    }[choice]
    assert history.rollback is not None
    if end != drained.end and (
        behind_seam or drained.index < history.rollback.index or not elsewhere
    ):
        yield (
            f"to the end: {run.subscriber} on {run.topic!r}, {choice}, from {run.begin} ended at "
            f"{end} of {drained.end}"
        )


def _seam(run: Sequence[Message], before: Log, new: Log) -> int | None:
    """How many messages stand on the line before, where all behind them stand on the new one.

    As few as can be, and no more gaps than one; None if there is no such place.
    """
    for seam in range(len(run) + 1):
        if all(_stands(message, new) for message in run[seam:]):
            if not all(_stands(message, before) for message in run[:seam]):
                return None
            gap = next(
                (i for i in range(1, len(run)) if run[i].offset != run[i - 1].offset + 1), seam
            )
            return gap if gap > seam else seam
    return len(run)


def _shown(run: Sequence[Message]) -> list[tuple[int, str, int]]:
    return [(message.offset, message.publisher, message.sequence) for message in run]


class Run(Struct, frozen=True):
    """What one subscription gave."""

    subscriber: str
    topic: str
    begin: int  # its cursor at the begin
    messages: Sequence[Message]
    ended: bool  # by the client; or with its memory
    in_hand: int = 0  # so many of the last messages were in hand when their process died


def _runs(history: History) -> Iterator[Run]:
    """What each subscription gave, one after another."""
    for subscriber, lines in history.outputs.items():
        open_runs: dict[str, tuple[int, list[Message]]] = {}
        for line in lines:
            if line.kind == "subscribed" and line.topic not in open_runs:
                open_runs[line.topic] = (line.offset, [])
            elif line.kind == "unsubscribed":
                yield Run(subscriber, line.topic, *open_runs.pop(line.topic), ended=True)
            elif line.message is not None:
                open_runs[line.topic][1].append(line.message)
        for topic, (begin, messages) in open_runs.items():
            yield Run(subscriber, topic, begin, messages, ended=False)
    for (subscriber, topic), groups in history.handed_over.items():
        forgets = subscriber in history.no_state
        run: list[Message] = []
        last_count = 0
        for index, group in enumerate(groups):
            if index and groups[index - 1].life != group.life:
                if forgets:
                    yield Run(subscriber, topic, run[0].offset, run, ended=True)
                    run = []
                elif group.first == groups[index - 1].first:  # what was in hand comes again
                    run = run[: len(run) - last_count]
            run = [*run, *group.messages]
            last_count = len(group.messages)
        drained = history.drained.get((subscriber, topic))
        died = drained is not None and drained.life != groups[-1].life
        in_hand = last_count if died else 0
        yield Run(subscriber, topic, run[0].offset, run, died and forgets, in_hand)


RULES_AFTER_ROLLBACK: Sequence[Callable[[History, Log, Log], Iterator[str]]] = (
    _liveness_of_stopped,
    _each_put_stands_once,
    _acknowledged_is_stored,
    _nothing_told_is_gone_in_silence,
    _readers_see_a_line,
    _runs_keep_to_a_line,
)
