"""A foreign exception leaves a call at any line, and the program continues with its client (R25).

Each test runs one program once for every line of our clients that it executes, and once more with
a second exception after the first. What is judged is what `kill -9` is judged by.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any

import pytest

from reliable_pubsub.common.core.batch import Message
from reliable_pubsub.common.core.client_state import ClientState, MemoryState
from reliable_pubsub.common.core.errors import LeaseLostError, NotSubscribedError, UsageError
from reliable_pubsub.common.core.message_base import QoS
from reliable_pubsub.common.core.wire import decode_batch
from reliable_pubsub.publisher.client import Publisher
from reliable_pubsub.publisher.core.receipt import Receipt
from reliable_pubsub.subscriber.client import Subscriber
from tests.fakes import Disk, Link, MemoryProxy, a_world, groups_of
from tests.interrupting import Interrupted, Interrupter, paused

SECOND_AFTER = (1, 5)  # lines between two exceptions
MESSAGES = 3
STEP = 11  # of a whole program every so-many-th line; the get that counts has all of them
STATES: dict[str, Callable[[], ClientState]] = {"memory": MemoryState, "disk": Disk}
# The gate has the disk, `--all` both.
EACH_STATE = ("disk", pytest.param("memory", marks=pytest.mark.long))


class CalmLink(Link):
    """A link whose far side is never interrupted."""

    def __call__(self, frames: Sequence[bytes]) -> Sequence[bytes] | None:
        with paused():
            return super().__call__(frames)


class House:
    """A proxy and its clients."""

    def __init__(self, state: Callable[[], ClientState]) -> None:
        self.link = CalmLink(MemoryProxy())
        self.state = state

    def publisher(self, name: str = "p") -> Publisher:
        return Publisher(name, _world=a_world(self.link, state=self.state()))

    def subscriber(self) -> Subscriber:
        return Subscriber("s", _world=a_world(self.link, state=self.state()))

    def stored(self, topic: str = "t") -> list[tuple[str, int, bytes]]:
        """Publisher, sequence and payload of each message of a topic, in order."""
        log = self.link.proxy.state.topics.get(topic)
        batches = self.link.proxy.log.batches.get(log.topic_id, []) if log else []
        return [
            (batch.publisher, batch.first_sequence + index, payload)
            for batch in batches
            for index, payload in enumerate(decode_batch(batch.body, batch.count).payloads)
        ]


Program = Callable[[House, Callable[[], Interrupter]], None]


def at_every_line(
    program: Program,
    state: Callable[[], ClientState],
    *,
    opcodes: bool = False,
    step: int = 1,
) -> None:
    """Run a program with an exception at each line of its calls, or at each `step`-th.

    At some of them a second one comes after the first.
    """
    calm = Interrupter(opcodes=opcodes)
    program(House(state), lambda: calm)
    assert calm.count > 50, "nothing was counted"
    for first in range(1, calm.count + 1, step):
        seconds = SECOND_AFTER if first % 5 == 0 else ()
        for at in ((first,), *((first, first + more) for more in seconds)):
            interrupter = Interrupter(at, opcodes=opcodes)
            try:
                program(House(state), lambda one=interrupter: one)  # type: ignore[misc]
            except BaseException as error:
                raise AssertionError(f"interrupted at {interrupter.places}: {error!r}") from error


def until_it_returns(interrupter: Interrupter, call: Callable[[], Any]) -> Any:
    """A program that asks again."""
    while True:
        try:
            with interrupter:
                return call()
        except Interrupted:
            continue


# What a subscriber sees.


class Seen:
    """What calls that returned have handed over."""

    def __init__(self) -> None:
        self.messages: list[Message] = []

    def judge(self, house: House, count: int) -> None:
        """Each message was seen, in order, and again only with a mark."""
        first_time: set[int] = set()
        for message in self.messages:
            assert message.offset in first_time or message.offset == len(first_time), "a gap"
            assert message.offset not in first_time or message.redelivered, "doubled, unmarked"
            first_time.add(message.offset)
        assert len(first_time) == count, "lost"
        cursor = house.link.proxy.state.topics["t"].subscriptions["s"].cursor
        assert cursor <= count

    def acknowledged_is_seen(self, house: House) -> None:
        """What the proxy holds for acknowledged was handed over by a call that returned."""
        cursor = house.link.proxy.state.topics["t"].subscriptions["s"].cursor
        assert {message.offset for message in self.messages} >= set(range(cursor))


def subscribed(house: House, qos: QoS = 2, **more: Any) -> Subscriber:
    subscriber = house.subscriber()
    subscriber.subscribe("t", qos=qos, **more)
    house.publisher().put_many("t", [b"%d" % number for number in range(MESSAGES)])
    return subscriber


def drain(house: House, subscriber: Subscriber, seen: Seen, interrupter: Interrupter) -> None:
    while found := until_it_returns(interrupter, lambda: subscriber.get("t", max_messages=2)):
        seen.messages += found
        seen.acknowledged_is_seen(house)
    until_it_returns(interrupter, lambda: subscriber.acknowledge("t"))
    seen.acknowledged_is_seen(house)
    seen.judge(house, MESSAGES)


def gets_at(qos: QoS) -> Program:
    def gets(house: House, make: Callable[[], Interrupter]) -> None:
        drain(house, subscribed(house, qos), Seen(), make())

    return gets


def reads_one_by_one(house: House, make: Callable[[], Interrupter]) -> None:
    """A loop over `messages`, that is begun again."""
    subscriber, seen, interrupter = subscribed(house), Seen(), make()

    def loop() -> None:
        for message in subscriber.messages("t", timeout_s=0.1):
            seen.messages.append(message)

    until_it_returns(interrupter, loop)
    until_it_returns(interrupter, lambda: subscriber.acknowledge("t"))
    seen.acknowledged_is_seen(house)
    seen.judge(house, MESSAGES)


def subscribes_and_leaves(house: House, make: Callable[[], Interrupter]) -> None:
    subscriber, interrupter = house.subscriber(), make()
    until_it_returns(interrupter, lambda: subscriber.subscribe("t"))
    house.publisher().put("t", b"0")
    assert [m.payload for m in until_it_returns(interrupter, lambda: subscriber.get("t"))] == [b"0"]
    until_it_returns(interrupter, subscriber.keep_alive)
    until_it_returns(interrupter, lambda: subscriber.read("t"))
    until_it_returns(interrupter, lambda: subscriber.unsubscribe("t"))
    assert not house.link.proxy.state.topics["t"].subscriptions["s"].active
    until_it_returns(interrupter, subscriber.close)
    assert subscriber._gate.closed


def closes(house: House, make: Callable[[], Interrupter]) -> None:
    subscriber, seen, interrupter = subscribed(house), Seen(), make()
    seen.messages += until_it_returns(interrupter, lambda: subscriber.get("t", max_messages=4))
    until_it_returns(interrupter, subscriber.close)
    seen.acknowledged_is_seen(house)
    publisher = house.publisher("q")
    until_it_returns(interrupter, lambda: publisher.ready_for("u"))
    until_it_returns(interrupter, publisher.close)
    assert publisher._gate.closed


def rejects(house: House, make: Callable[[], Interrupter]) -> None:
    """The second of two messages is poison: it is in the dead letters, or comes again."""
    subscriber, seen, interrupter = subscribed(house), Seen(), make()
    while found := until_it_returns(interrupter, lambda: subscriber.get("t", max_messages=2)):
        seen.messages += found
        for message in found:
            if message.payload == b"1":
                try:
                    until_it_returns(interrupter, lambda: subscriber.reject(message, "poison"))  # noqa: B023
                except UsageError:  # it was broken off, and the message comes again
                    break
    until_it_returns(interrupter, lambda: subscriber.acknowledge("t"))
    seen.judge(house, MESSAGES)
    dead = [payload for _, _, payload in house.stored("t.dead")]
    assert dead == [b"1"], f"{len(dead)} letters"


SUBSCRIBERS: dict[str, Program] = {
    "gets at QoS 2": gets_at(2),
    "gets at QoS 1": gets_at(1),
    "reads one by one": reads_one_by_one,
    "subscribes and leaves": subscribes_and_leaves,
    "closes": closes,
    "rejects": rejects,
}


@pytest.mark.parametrize("state", EACH_STATE)
@pytest.mark.parametrize("program", SUBSCRIBERS)
def test_a_subscriber_continues_after_an_exception(program: str, state: str) -> None:
    at_every_line(SUBSCRIBERS[program], STATES[state], step=STEP)


def settles_in_a_group(house: House, make: Callable[[], Interrupter]) -> None:
    """A member acknowledges, gives back, rejects, loops: what has ended was seen, and is."""
    member, interrupter = house.subscriber(), make()
    until_it_returns(interrupter, lambda: member.subscribe("t", group="g", max_deliveries=9))
    house.publisher().put_many("t", [b"%d" % number for number in range(5)])
    seen: dict[int, Message] = {}
    ended: set[int] = set()

    def given(messages: Iterable[Message]) -> None:
        for message in messages:
            assert message.offset not in ended, "it had ended"
            assert message.offset not in seen or message.redelivered, "doubled, unmarked"
            seen[message.offset] = message

    def settle(call: Callable[..., Any], message: Message, *more: str) -> bool:
        """Whether it was done. What was broken off comes again."""
        try:
            with interrupter:
                call(message, *more)
        except (Interrupted, UsageError, LeaseLostError):
            return False
        return True

    while found := until_it_returns(interrupter, lambda: member.get("t", max_messages=3)):
        given(found)
        for message in found:
            until_it_returns(interrupter, member.keep_alive)
            settle(member.extend, message)
            if message.payload == b"1" and not message.redelivered:
                settle(member.nack, message)
            elif message.payload == b"2":
                ended |= {2} if settle(member.reject, message, "poison") else set()
            elif settle(member.ack, message):
                ended.add(message.offset)
    until_it_returns(interrupter, lambda: given(member.messages("t", timeout_s=0)))
    assert set(seen) == set(range(5)), "lost"
    dead = [payload for _, _, payload in house.stored("t.dead")]
    assert dead == [b"2"] or (dead == [] and 2 not in ended)
    with suppress(UsageError, NotSubscribedError):  # it was ended, and then broken off
        until_it_returns(interrupter, lambda: member.unsubscribe("t", ends_group=True))
    assert not groups_of(house.link.proxy.state)
    until_it_returns(interrupter, member.close)


@pytest.mark.parametrize("step", [7 * STEP, pytest.param(3 * STEP, marks=pytest.mark.long)])
def test_a_member_of_a_group_continues_after_an_exception(step: int) -> None:
    at_every_line(settles_in_a_group, MemoryState, step=step)


def gets_twice(house: House, make: Callable[[], Interrupter]) -> None:
    """The first get is done; the second acknowledges it, and the third that one."""
    subscriber, seen, interrupter = subscribed(house), Seen(), make()
    seen.messages += subscriber.get("t")
    seen.messages += until_it_returns(interrupter, lambda: subscriber.get("t"))
    while found := subscriber.get("t"):
        seen.messages += found
        seen.acknowledged_is_seen(house)
    seen.judge(house, MESSAGES)


def test_a_get_that_did_not_return_has_acknowledged_nothing_at_any_line() -> None:
    at_every_line(gets_twice, MemoryState)


def test_a_get_that_did_not_return_has_acknowledged_nothing_at_any_step() -> None:
    """Between two lines too: a value that was on its way to the program has not arrived."""
    at_every_line(gets_twice, MemoryState, opcodes=True, step=7)


def takes_a_second(house: House, make: Callable[[], Interrupter]) -> None:
    """The first step of a loop is done; the second settles it, and the next call that one."""
    subscriber, seen, interrupter = subscribed(house), Seen(), make()
    loop = subscriber.messages("t", timeout_s=0.1)
    seen.messages.append(next(loop))
    try:
        with interrupter:
            second = next(loop)
        seen.messages.append(second)
    except Interrupted:
        pass
    until_it_returns(interrupter, lambda: subscriber.acknowledge("t"))
    seen.acknowledged_is_seen(house)
    seen.messages += subscriber.messages("t", timeout_s=0.1)
    seen.judge(house, MESSAGES)


@pytest.mark.parametrize("state", EACH_STATE)
def test_a_step_of_a_loop_that_did_not_return_has_acknowledged_nothing_at_any_line(
    state: str,
) -> None:
    at_every_line(takes_a_second, STATES[state])


@pytest.mark.parametrize("step", [11, pytest.param(3, marks=pytest.mark.long)])
def test_a_step_of_a_loop_that_did_not_return_has_acknowledged_nothing_at_any_step(
    step: int,
) -> None:
    at_every_line(takes_a_second, Disk, opcodes=True, step=step)


# What a publisher has put.


def payloads() -> Iterator[bytes]:
    yield from (b"%d" % number for number in range(2))


def puts_at(qos: QoS) -> Program:
    def puts(house: House, make: Callable[[], Interrupter]) -> None:
        publisher, interrupter = house.publisher(), make()
        returned: list[tuple[Receipt, bytes]] = []
        for payload in payloads():
            try:
                with interrupter:
                    receipt = publisher.put("t", payload, qos=qos)
            except Interrupted:
                continue  # it may be stored, or kept, or neither; what comes next must be
            returned.append((receipt, payload))
        until_it_returns(interrupter, publisher.resume)
        assert until_it_returns(interrupter, lambda: publisher.in_doubt) is None
        stored = house.stored()
        for receipt, payload in returned:
            assert receipt.offset is not None
            assert stored[receipt.offset] == ("p", receipt.first_sequence, payload)
        ids = [sequence for _, sequence, _ in stored]
        assert ids == sorted(set(ids))
        found = [payload for _, _, payload in stored]
        if qos == 2:
            assert ids == list(range(1, len(ids) + 1))
        assert found == sorted(found)
        assert qos == 1 or len(set(found)) == len(found)

    return puts


def commits(house: House, make: Callable[[], Interrupter]) -> None:
    """Each transaction is in both topics, or in none."""
    publisher, interrupter = house.publisher(), make()
    returned = []
    for payload in payloads():
        try:
            with interrupter, publisher.transaction() as transaction:
                transaction.put("t", payload)
                transaction.put("u", payload)
        except Interrupted:
            continue
        returned.append(payload)
    until_it_returns(interrupter, publisher.resume)
    stored = [payload for _, _, payload in house.stored("t")]
    assert stored == [payload for _, _, payload in house.stored("u")]
    assert len(set(stored)) == len(stored)
    assert set(stored) >= set(returned)
    assert publisher.put("t", b"after").offset == len(stored)


def streams(house: House, make: Callable[[], Interrupter]) -> None:
    """What a ticket says is so; whatever else was put stands there once or not at all."""
    publisher, interrupter = house.publisher(), make()
    tickets = []
    stream = publisher.stream(linger_s=0.0)
    for payload in (b"0", b"1", b"2"):
        try:
            with interrupter:
                ticket = stream.put("t", payload)
        except Interrupted:
            continue
        tickets.append((ticket, payload))
    until_it_returns(interrupter, stream.flush)
    until_it_returns(interrupter, stream.close)
    stored = [payload for _, _, payload in house.stored()]
    assert stored == sorted(set(stored))
    for ticket, payload in tickets:
        offset = ticket.result(timeout_s=10).offset
        assert offset is not None
        assert stored[offset] == payload
    assert publisher.put("t", b"after").offset == len(stored)


def test_a_stream_continues_after_an_exception() -> None:
    at_every_line(streams, MemoryState, step=3)


PUBLISHERS: dict[str, Program] = {
    "puts at QoS 2": puts_at(2),
    "puts at QoS 1": puts_at(1),
    "commits": commits,
}


@pytest.mark.parametrize("state", EACH_STATE)
@pytest.mark.parametrize("program", PUBLISHERS)
def test_a_publisher_continues_after_an_exception(program: str, state: str) -> None:
    at_every_line(PUBLISHERS[program], STATES[state], step=STEP)
