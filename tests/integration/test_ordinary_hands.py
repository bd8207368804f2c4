"""What programs do to a client: threads, forks, signals, and forgetting to close it."""

from __future__ import annotations

import copy
import gc
import pickle
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from reliable_pubsub import (
    MalformedError,
    Message,
    Publisher,
    Receipt,
    Subscriber,
    UsageError,
    aio,
)
from tests.interrupting import Interrupter

from .harness import NOWHERE, PATIENCE_S, REPOSITORY, Service, eventually

ALARM_STEP_US, ALARM_US_MAX = 10, 5_000  # more than a get takes on a quiet machine

HEAD = """
import gc, multiprocessing, os, sys
from reliable_pubsub import ForkedError, Publisher, RetryPolicy, Subscriber
ONCE = RetryPolicy(timeout_s=0.05, retries_max=0)
publishers, subscribers, state = sys.argv[1:]

def in_doubt(client):
    try:
        client.put("t", b"unanswered")
    except Exception as error:
        assert error.exit_code == 3, error
"""


def run(program: str, publishers: str, subscribers: str, state: Path) -> str:
    """Run a program in a process of its own, which must end without a signal; return its stderr."""
    done = subprocess.run(
        [sys.executable, "-c", HEAD + program, publishers, subscribers, str(state)],
        cwd=REPOSITORY,
        timeout=5 * PATIENCE_S,  # some try each line of a long call
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stderr


@pytest.fixture
def small_heap() -> Iterator[None]:
    """Collections look at what the test makes only: a lock that is held makes one."""
    gc.freeze()
    yield
    gc.unfreeze()


def test_a_client_at_the_endpoint_of_the_other_role_learns_what_it_needs(running: Service) -> None:
    with (
        pytest.raises(MalformedError, match="connect it to the publisher endpoint"),
        Publisher("p", endpoint=running.subscriber_endpoint) as publisher,
    ):
        publisher.put("t", b"")
    with (
        pytest.raises(MalformedError, match="connect it to the subscriber endpoint"),
        Subscriber("s", endpoint=running.publisher_endpoint) as subscriber,
    ):
        subscriber.subscribe("t")


# C3: a client that was not closed.

A_PUBLISHER = "publisher = Publisher('p', endpoint=publishers, state_dir=state, retry=ONCE)\n"
UNCLOSED = {
    "deleted": A_PUBLISHER + "in_doubt(publisher)\ndel publisher\ngc.collect()",
    "deleted and made again": (
        A_PUBLISHER + "in_doubt(publisher)\ndel publisher\n" + A_PUBLISHER + "in_doubt(publisher)"
    ),
    "left to the end": A_PUBLISHER + "in_doubt(publisher)",
    "left with an error": (
        "def cell():\n    " + A_PUBLISHER + "    in_doubt(publisher)\n    raise ZeroDivisionError\n"
        "for _ in range(2):\n    try:\n        cell()\n    except ZeroDivisionError:\n        pass"
    ),
    "a stream, deleted": A_PUBLISHER
    + "stream = publisher.stream()\nstream.put('t', b'')\ndel publisher, stream\ngc.collect()",
    "a stream, left": A_PUBLISHER + "stream = publisher.stream()\nstream.put('t', b'')",
    "pushed to": "subscriber = Subscriber('s', endpoint=subscribers)\n"
    "subscriber.use_push('t', True)\ndel subscriber\ngc.collect()",
}


@pytest.mark.parametrize("program", UNCLOSED)
def test_a_client_that_was_not_closed_ends_on_its_own(program: str, tmp_path: Path) -> None:
    run(UNCLOSED[program], NOWHERE, NOWHERE, tmp_path / "state")


def test_a_stream_that_is_open_at_the_end_of_a_program_has_a_moment_to_be_stored(
    running: Service, tmp_path: Path
) -> None:
    program = "stream = Publisher('p', endpoint=publishers).stream()\nstream.put('t', b'1')"
    endpoints = running.publisher_endpoint, running.subscriber_endpoint

    assert run(program, *endpoints, tmp_path) == ""

    with running.open_subscriber("s") as subscriber:
        assert [message.payload for message in subscriber.history("t")] == [b"1"]


def test_a_stream_whose_messages_are_not_stored_at_the_end_of_a_program_says_how_many(
    tmp_path: Path,
) -> None:
    program = A_PUBLISHER + "stream = publisher.stream()\nfor _ in range(3): stream.put('t', b'')"

    said = run(program, NOWHERE, NOWHERE, tmp_path / "state")

    assert "3 messages" in said
    assert "close()" in said


# C4: fork.

FORKED = """
publisher = Publisher("p", endpoint=publishers, state_dir=state)
subscriber = Subscriber("s", endpoint=subscribers, state_dir=state)
subscriber.subscribe("t")
publisher.put("t", b"before")
assert [m.payload for m in subscriber.get("t")] == [b"before"]
transaction = publisher.transaction().__enter__()
streaming = Publisher("q", endpoint=publishers)
stream = streaming.stream(linger_s=3600)
ticket = stream.put("u", b"of the parent")

def refused(call, *arguments):
    try:
        call(*arguments)
    except ForkedError as error:
        assert error.code == "FORKED"
    else:
        raise AssertionError(call)

def child():
    refused(publisher.put, "t", b"child")
    refused(publisher.resume)
    refused(subscriber.get, "t")
    refused(subscriber.acknowledge, "t")
    transaction.put("t", b"child")
    refused(transaction.__exit__, None, None, None)
    refused(ticket.result)
    refused(stream.put, "u", b"child")
    refused(stream.flush)
    refused(stream.close)
    publisher.close()
    subscriber.close()
    publisher.__exit__(None, None, None)
    gc.collect()

process = multiprocessing.get_context("fork").Process(target=child)
process.start()
process.join()
assert process.exitcode == 0
pid = os.fork()
if not pid:
    child()
    sys.exit(7)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
stream.flush()
assert ticket.result().offset == 0
transaction.__exit__(None, None, None)
publisher.put("t", b"after")
assert [m.payload for m in subscriber.get("t")] == [b"after"]
child_has_them = os.fork()
if not child_has_them:
    os.read(int(os.environ.get("NOTHING", 0)), 1)  # stays, with whatever it has inherited
    os._exit(0)
publisher.close()
subscriber.close()
with Publisher("p", endpoint=publishers, state_dir=state) as again:
    again.put("t", b"once more")
os.kill(child_has_them, 9)
os.waitpid(child_has_them, 0)
"""


def test_a_forked_child_is_refused_by_name_and_its_parent_continues(running: Service) -> None:
    run(
        FORKED,
        running.publisher_endpoint,
        running.subscriber_endpoint,
        running.directory / "own",
    )

    assert running.payloads("t") == [b"before", b"after", b"once more"]


# C2: threads.


def test_puts_of_several_threads_are_each_stored_once(running: Service) -> None:
    receipts: dict[int, list[Receipt]] = {}

    def puts(thread: int) -> None:
        receipts[thread] = [publisher.put("t", b"%d/%d" % (thread, n)) for n in range(20)]

    with running.open_publisher("p") as publisher:
        threads = [threading.Thread(target=puts, args=(number,)) for number in range(8)]
        for one in threads:
            one.start()
        for one in threads:
            one.join()

    stored = running.payloads("t")
    assert len(stored) == 160
    for thread, of_thread in receipts.items():
        offsets = [receipt.offset for receipt in of_thread]
        assert offsets == sorted(offsets, key=lambda one: one or 0)
        expected = [b"%d/%d" % (thread, n) for n in range(20)]
        assert [stored[offset] for offset in offsets if offset is not None] == expected


def test_a_second_thread_in_a_subscriber_is_refused_by_name(running: Service) -> None:
    """It waits for messages in one thread; a call in another thread raises advice."""
    found: list[Message] = []
    with running.open_subscriber("s") as subscriber, running.open_publisher("p") as publisher:
        subscriber.subscribe("t")
        waits = threading.Thread(
            target=lambda: found.extend(subscriber.get("t", timeout_s=PATIENCE_S))
        )
        waits.start()
        eventually(lambda: running.status().waiting_gets == 1, "other one in its call")
        with pytest.raises(UsageError, match="another thread"):
            subscriber.history("t")
        publisher.put("t", b"for the first")
        waits.join()
        later = subscriber.get("t")

    assert [message.payload for message in found] == [b"for the first"]
    assert later == []


# A4: signals.


BROKEN_OFF = """
from tests.interrupting import Interrupter

SOCKETS = ("common/transport.py", "sugar/socket.py", "sugar/context.py")
TWICE = RetryPolicy(timeout_s=0.001, retries_max=1, pause_s=0.0)

class Alarm(BaseException):
    pass

def broken_off(line):
    try:
        with Interrupter((line,), error=Alarm, files=SOCKETS):
            publisher = Publisher("p", endpoint=publishers, retry=TWICE)
            in_doubt(publisher)
            publisher.close()
        return False
    except Alarm as error:
        kept = error  # as a logger does, or a notebook: all of it is collected together
        return True

line = 1
while broken_off(line):
    gc.collect()
    line += 1
assert line > 50, line
"""


def test_a_client_that_was_broken_off_at_any_line_of_its_sockets_does_not_hang_when_collected(
    tmp_path: Path,
) -> None:
    run(BROKEN_OFF, NOWHERE, NOWHERE, tmp_path)


@pytest.mark.usefixtures("small_heap")
@pytest.mark.parametrize("kind", [Publisher, Subscriber])
def test_what_a_signal_handler_raises_in_a_constructor_comes_out_and_the_id_is_free_again(
    kind: type[Publisher] | type[Subscriber], tmp_path: Path
) -> None:
    """`TimeoutError` is an `OSError`, as what the system says of a file is."""
    kept: BaseException | None = None
    for line in count(1):
        try:
            with Interrupter((line,), error=lambda: TimeoutError("an alarm")):
                client = kind("c", endpoint=NOWHERE, state_dir=tmp_path)
        except TimeoutError as error:
            kept = error  # with its frames, as a notebook or a logger does
        else:
            client.close()
            break

    assert kept is not None
    assert line > 100
    another = threading.Thread(
        target=lambda: kind("c", endpoint=NOWHERE, state_dir=tmp_path).close(), daemon=True
    )
    another.start()
    another.join(PATIENCE_S)
    assert not another.is_alive(), "a lock was left to this thread"


class Alarm(BaseException):
    """What the handler raises."""


class Alarms:
    """Count the alarms that raised."""

    def __init__(self) -> None:
        self.rung = 0
        self._armed = False

    def __enter__(self) -> Alarms:
        self._before = signal.signal(signal.SIGALRM, self._ring)
        return self

    def __exit__(self, *_: object) -> None:
        signal.signal(signal.SIGALRM, self._before)

    @contextmanager
    def after(self, delay_s: float) -> Iterator[None]:
        """Raise in the block once, unless it ends sooner."""
        self._armed = True
        signal.setitimer(signal.ITIMER_REAL, delay_s)
        try:
            yield
            self._armed = False  # the result is kept: a later alarm is none
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)

    def _ring(self, _number: int, _frame: FrameType | None) -> None:
        if self._armed:
            self._armed = False
            self.rung += 1
            raise Alarm


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # one in a finalizer
def test_alarms_at_any_moment_lose_and_double_nothing(running: Service) -> None:
    """Real signals and real sockets."""
    sent = [b"%d" % number for number in range(60)]
    seen: list[Message] = []
    with (
        running.open_subscriber("s") as subscriber,
        running.open_publisher("p") as publisher,
        Alarms() as alarms,
    ):
        subscriber.subscribe("t")
        publisher.put_many("t", sent)
        for delay_us in range(ALARM_STEP_US, ALARM_US_MAX, ALARM_STEP_US):
            found: list[Message] = []
            with suppress(Alarm), alarms.after(delay_us / 1e6):
                found = subscriber.get("t", timeout_s=0)
            seen += found
        while len({message.offset for message in seen}) < len(sent):  # undisturbed
            seen += subscriber.get("t", timeout_s=PATIENCE_S)
        subscriber.acknowledge("t")

    assert alarms.rung
    offsets = [message.offset for message in seen]
    assert list(dict.fromkeys(offsets)) == list(range(len(sent)))
    first = {offset: offsets.index(offset) for offset in offsets}
    assert all(one.redelivered for place, one in enumerate(seen) if first[one.offset] != place)


@pytest.mark.parametrize("kind", [Publisher, Subscriber, aio.Publisher, aio.Subscriber])
def test_a_client_that_is_pickled_says_to_make_one_in_each_process(
    kind: Callable[..., Any],
) -> None:
    client = kind("c", endpoint=NOWHERE)
    try:
        for duplicate in (pickle.dumps, copy.copy, copy.deepcopy):
            with pytest.raises(UsageError, match=r"'c' has a socket.* in each process"):
                duplicate(client)
    finally:
        client._opened.close(None)


@pytest.mark.parametrize(("kind", "role"), [(Publisher, "publisher"), (Subscriber, "subscriber")])
def test_a_client_shows_its_role_its_id_and_whether_it_is_closed(
    kind: Callable[..., Any], role: str
) -> None:
    with kind("c", endpoint=NOWHERE) as client:
        assert repr(client) == f"<{role} 'c'>"
    assert repr(client) == f"<{role} 'c' (closed)>"
