"""`get`, `tail`, `subscribe`, `unsubscribe`: messages as lines on stdout."""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from math import inf
from pathlib import Path
from typing import Any, Final

import click

from reliable_pubsub.common.command_line import CONTEXT_SETTINGS, F, complain
from reliable_pubsub.common.core.batch import Message
from reliable_pubsub.common.core.errors import (
    DeadLetterRefusedError,
    LostError,
    TimedOutError,
    UsageError,
)
from reliable_pubsub.common.core.message_base import Start
from reliable_pubsub.common.core.message_lines import message_line
from reliable_pubsub.common.core.plan_mark import PlanMark, mark_of
from reliable_pubsub.common.core.start import Earliest, Now, parse_start
from reliable_pubsub.common.core.steps import PlanPosition
from reliable_pubsub.common.core.visible import visible
from reliable_pubsub.common.pipes import (
    PIPE_EXIT_CODES,
    check_reader,
    client_from,
    ends_as_in_a_pipe,
    pipe_options,
    topic_argument,
    write_out,
)
from reliable_pubsub.common.signals import signals_wait
from reliable_pubsub.common.terminal import say

from .client import Subscriber
from .core.fetching import lower_qos_in_words
from .output import OutputFile, Shown, begin_output

NextMessages = Callable[[int, float], list[Message]]
WriteMessages = Callable[[Sequence[Message]], object]

MESSAGES_MAX: Final = 1_000  # written and acknowledged together
LOOK_AGAIN_S: Final = 0.2
LOOKS_S: Final = 1.0  # after which a wait checks that stdout is still read
_PIPED: Final = "piped"  # the digest of a mark that is not of a step file
_FROM_HELP: Final = (
    "First message: earliest, now, 'newest N', 'age 1h', 'time ISO-8601' or 'offset N'. A "
    "subscription that exists resumes."
)
_ID_HELP: Final = (
    "Subscribe with this id, and resume where it stopped. A message is acknowledged after its line "
    "was written. Without an id, nothing is left at the proxy."
)


def _options(command: F) -> F:
    output = click.option(
        "--output",
        type=click.Path(path_type=Path, dir_okay=False),
        help="With --id: append lines to this file; each message once, across crashes.",
    )
    as_json = click.option("--json", "as_json", is_flag=True, help="Print all of a message.")
    return as_json(output(pipe_options("subscriber", _ID_HELP)(command)))


@click.command(epilog=PIPE_EXIT_CODES, context_settings=CONTEXT_SETTINGS)
@topic_argument()
@click.option("--from", "start", default="earliest", show_default=True, help=_FROM_HELP)
@click.option(
    "-n",
    "--messages",
    "wanted",
    type=click.IntRange(min=1),
    help="Stop after this many; exit code 3 if there are fewer. Without it: all there are.",
)
@click.option("--timeout", "timeout_s", default=0.0, help="Wait this many seconds for messages.")
@_options
def get(topic: str, start: str, wanted: int | None, timeout_s: float, **options: Any) -> None:
    """Print the stored messages of TOPIC, one payload a line, and end.

    \b
    reliable-pubsub get orders --from 'age 1h' --json
    reliable-pubsub get orders --id report -n 10 --timeout 60    # the next ten
    """
    got = sys.maxsize  # enough, if the reader of stdout closes it
    with _opened([topic], start, **options) as (take, write):
        got = _copy(take, write, wanted or sys.maxsize, time.monotonic() + timeout_s)
    if wanted and got < wanted:
        raise TimedOutError(
            f"topic {topic!r}: {got:,} of {wanted:,} messages came within {timeout_s:g} s"
        )
    if not got and not options["quiet"]:
        complain(f"no message of {topic!r} is stored from there on")


@click.command(epilog=PIPE_EXIT_CODES, context_settings=CONTEXT_SETTINGS)
@topic_argument(many=True)
@click.option("--from", "start", default="newest 10", show_default=True, help=_FROM_HELP)
@_options
def tail(topics: tuple[str, ...], start: str, **options: Any) -> None:
    """Print the messages of TOPICs as they come, until Ctrl-C.

    \b
    reliable-pubsub tail orders payments --from now --json
    reliable-pubsub tail orders --id archive --output orders.txt    # each once
    """
    options["send_retries"] = options["send_retries"] or "forever"
    with _opened(topics, start, **options) as (take, write):
        _copy(take, write, sys.maxsize, inf)


@click.command(epilog=PIPE_EXIT_CODES, context_settings=CONTEXT_SETTINGS)
@topic_argument(many=True)
@click.option("--from", "start", default="now", show_default=True, help=_FROM_HELP)
@pipe_options("subscriber", "The subscriber.", required=True)
def subscribe(topics: tuple[str, ...], start: str, **options: Any) -> None:
    """Keep messages of TOPICs for `get` and `tail` with this --id.

    \b
    reliable-pubsub subscribe orders --id report
    """
    with ends_as_in_a_pipe(), Subscriber(**client_from("subscriber", **options)) as subscriber:
        for topic in topics:
            offset = subscriber.subscribe(topic, start=parse_start(start))
            say(f"{subscriber.client} is subscribed to {topic}, from offset {offset}")


@click.command(epilog=PIPE_EXIT_CODES, context_settings=CONTEXT_SETTINGS)
@topic_argument(many=True)
@pipe_options("subscriber", "The subscriber.", required=True)
def unsubscribe(topics: tuple[str, ...], **options: Any) -> None:
    """End subscriptions: nothing more is kept for this --id.

    \b
    reliable-pubsub unsubscribe orders --id report
    """
    with ends_as_in_a_pipe(), Subscriber(**client_from("subscriber", **options)) as subscriber:
        for topic in topics:
            subscriber.unsubscribe(topic)


def _copy(take: NextMessages, write: WriteMessages, wanted: int, until_s: float) -> int:
    """Write messages until there are enough, or none at a time; return their number."""
    got = 0
    while got < wanted:
        left_s = until_s - time.monotonic()
        messages = take(min(wanted - got, MESSAGES_MAX), min(max(left_s, 0.0), LOOKS_S))
        if messages:
            with signals_wait():  # not between a line and its acknowledgement
                write(messages)
        elif left_s <= 0:
            break
        else:
            check_reader()
        got += len(messages)
    return got


@contextmanager
def _opened(
    topics: Sequence[str], start: str, *, output: Path | None, as_json: bool, **options: Any
) -> Iterator[tuple[NextMessages, WriteMessages]]:
    """Yield where messages come from, and what writes and acknowledges them."""
    line = message_line if as_json else _plain
    is_shown = not as_json and sys.stdout is not None and sys.stdout.isatty()
    printed = _Printed(_shown if is_shown else line)
    has_id = options["client"] is not None
    with ends_as_in_a_pipe():
        begin = parse_start(start)
        if output is not None and not has_id:
            raise UsageError("--output needs --id, which remembers what was written")
        arguments = client_from("subscriber", **options)
        with Subscriber(**arguments, on_lower_qos=_tell_lower_qos) as subscriber:
            if not has_id:
                yield _stored(subscriber, topics, begin), printed.append
                return
            before = mark_of(subscriber.note)
            mark = before if before and before.digest == _PIPED else PlanMark(_PIPED, 1)
            if output is not None:
                mark = begin_output(mark, output, again=False)
                subscriber.write_note(mark.note)
            printed.length = mark.output_bytes
            file = OutputFile(output, mark.output_bytes, line) if output else printed

            def write(messages: Sequence[Message]) -> None:
                file.append(messages)
                note = mark.at(PlanPosition(), file.length).note
                subscriber.record(messages[0].topic, note)

            with closing(file):
                yield _subscribed(subscriber, topics, begin), write


def _stored(subscriber: Subscriber, topics: Sequence[str], start: Start) -> NextMessages:
    """Read topics without a subscription; they take turns."""
    places: dict[str, int | Start] = dict.fromkeys(topics, start)
    if start == Now:
        places = {topic: subscriber.read(topic).position.offset for topic in topics}

    def take(count: int, wait_s: float) -> list[Message]:
        for topic, place in places.items():
            if messages := subscriber.history(topic, place, max_messages=count):
                del places[topic]
                places[topic] = messages[-1].offset + 1
                return messages
            if isinstance(place, Start) and place.at == "newest":  # whatever comes is newer
                places[topic] = Earliest
        time.sleep(min(wait_s, LOOK_AGAIN_S))
        return []

    return take


def _subscribed(subscriber: Subscriber, topics: Sequence[str], start: Start) -> NextMessages:
    """Get the messages of subscriptions; topics take turns."""
    turns = deque(topics)
    for topic in topics:
        subscriber.subscribe(topic, start=start)

    def take(count: int, wait_s: float) -> list[Message]:
        each_s = wait_s if len(turns) == 1 else min(wait_s, LOOK_AGAIN_S)
        left = len(turns)
        while left:
            try:
                if messages := subscriber._get_by_retries(turns[0], count, each_s):
                    return messages
            except (LostError, DeadLetterRefusedError) as error:
                complain(f"warning [{error.code}]: {error}")
                continue  # with the messages after it
            turns.rotate(-1)
            left -= 1
        return []

    return take


class _Printed(Shown):
    """Messages as lines on stdout, at least once: a kill may come before the acknowledgement."""

    def __init__(self, line: Callable[[Message], bytes]) -> None:
        super().__init__(say, 0)
        self._line = line

    def append(self, messages: Sequence[Message]) -> int:
        """Write and flush."""
        write_out(b"".join(map(self._line, messages)))
        return self.length


def _plain(message: Message) -> bytes:
    return message.payload + b"\n"


def _shown(message: Message) -> bytes:
    """Return a line for a terminal, which no payload may control."""
    return visible(message.payload.decode(errors="replace")).encode() + b"\n"


def _tell_lower_qos(topic: str, publisher: str, qos: int) -> None:
    complain(f"warning [QOS]: {lower_qos_in_words(topic, publisher, qos)}")
