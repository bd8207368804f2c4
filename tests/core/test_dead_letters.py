"""A subscriber that gives messages up: by its own word, or because they came too often."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from msgspec.structs import replace

from reliable_pubsub.common.core.batch import Message
from reliable_pubsub.common.core.dead_letter import dead_letter
from reliable_pubsub.common.core.errors import (
    DeadLetterRefusedError,
    InDoubtError,
    InvalidNameError,
    LimitError,
    ProxyUnreachableError,
    StorageFailedError,
    UsageError,
)
from reliable_pubsub.common.core.limits import BODY_BYTES_MAX, PAYLOAD_BYTES_MAX
from reliable_pubsub.common.core.plan_mark import PlanMark
from reliable_pubsub.common.core.retry import RetryPolicy
from reliable_pubsub.common.core.steps import SubscriberStep
from reliable_pubsub.common.core.wire import decode_batch
from reliable_pubsub.publisher.client import Publisher
from reliable_pubsub.subscriber.client import Subscriber
from reliable_pubsub.subscriber.output import Shown
from reliable_pubsub.subscriber.runner import SubscriberRun
from tests.fakes import Disk, FakeClock, FakeTransport, Link, MemoryProxy, a_world

ONCE = RetryPolicy(retries_max=0)


class House:
    """A proxy, a publisher, and a subscriber that keeps its state on a disk."""

    def __init__(self) -> None:
        self.link = Link(MemoryProxy())
        self.disk = Disk()
        self.publisher = Publisher("p", _world=a_world(self.link))

    def subscriber(self, *, retry: RetryPolicy = RetryPolicy()) -> Subscriber:  # noqa: B008
        """A process of the subscriber; the next one continues with its disk."""
        clock = FakeClock()
        transport = FakeTransport(self.link, clock)
        return Subscriber("s", _world=a_world(transport, clock, self.disk), retry=retry)

    def subscribed(self, *payloads: bytes, max_deliveries: int | None = None) -> Subscriber:
        """A subscriber, and messages that were put after it subscribed."""
        subscriber = self.subscriber()
        subscriber.subscribe("t", max_deliveries=max_deliveries)
        self.publisher.put_many("t", payloads, headers=[{"kind": "note"}] * len(payloads))
        return subscriber

    def dead(self) -> list[Message]:
        """The dead letters."""
        return self.subscriber().history("t.dead")


def texts(messages: list[Message]) -> list[str]:
    return [message.payload.decode() for message in messages]


class TestAMessageThatIsRejected:
    def test_never_comes_again_and_stands_among_the_dead_letters(self) -> None:
        house = House()
        subscriber = house.subscribed(b"a", b"b")
        (first,) = subscriber.get("t")

        offset = subscriber.reject(first, "cannot be read")

        assert offset == 0
        assert texts(subscriber.get("t")) == ["b"]
        assert texts(house.dead()) == ["a"]

    def test_says_whose_it_was_and_why(self) -> None:
        house = House()
        subscriber = house.subscribed(b"a")
        (message,) = subscriber.get("t")

        subscriber.reject(message, "cannot be read")

        (letter,) = house.dead()
        assert letter.headers == {
            "kind": "note",
            "dead-letter-topic": "t",
            "dead-letter-offset": "0",
            "dead-letter-message-id": "p_1",
            "dead-letter-subscriber": "s",
            "dead-letter-deliveries": "1",
            "dead-letter-reason": "cannot be read",
        }

    def test_leaves_in_hand_what_came_with_it(self) -> None:
        house = House()
        subscriber = house.subscribed(b"a", b"b", b"c")
        messages = subscriber.get("t", max_messages=3)

        subscriber.reject(messages[1], "no")

        assert subscriber.inbox.places["t"].cursor == 2
        assert subscriber.get("t") == []
        assert subscriber.inbox.places["t"].cursor == 3

    def test_must_be_in_hand(self) -> None:
        house = House()
        subscriber = house.subscribed(b"a", b"b")
        (first,) = subscriber.get("t")
        subscriber.get("t")

        with pytest.raises(UsageError, match="not in hand"):
            subscriber.reject(first, "too late")

    @pytest.mark.parametrize("reason", ["", "x" * 1001])
    def test_needs_a_reason_that_can_be_sent(self, reason: str) -> None:
        house = House()
        subscriber = house.subscribed(b"a")
        (message,) = subscriber.get("t")

        with pytest.raises(UsageError, match="1 to 1,000"):
            subscriber.reject(message, reason)

    @pytest.mark.parametrize("script", [">", "<", "<<", "><<"])
    def test_is_one_letter_whatever_the_link_loses(self, script: str) -> None:
        house = House()
        subscriber = house.subscribed(b"a", b"b")
        (first,) = subscriber.get("t")
        house.link.script(script)

        subscriber.reject(first, "no")

        assert texts(house.dead()) == ["a"]

    @pytest.mark.parametrize("lost", [">", "<"])
    def test_in_doubt_is_settled_by_the_next_get(self, lost: str) -> None:
        house = House()
        house.subscribed(b"a", b"b", b"c").close()
        subscriber = house.subscriber(retry=ONCE)
        first, _ = subscriber.get("t", max_messages=2)
        house.link.script(lost)
        with pytest.raises(ProxyUnreachableError):
            subscriber.reject(first, "no")

        assert texts(subscriber.get("t")) == ["c"]
        assert texts(house.dead()) == ["a"]

    @pytest.mark.parametrize("lost", [">", "<"])
    def test_in_doubt_is_settled_by_the_next_process(self, lost: str) -> None:
        house = House()
        house.subscribed(b"a", b"b").close()
        subscriber = house.subscriber(retry=ONCE)
        (first,) = subscriber.get("t")
        house.link.script(lost)
        with pytest.raises(InDoubtError):
            subscriber.reject(first, "no")
        house.disk.lose_power()

        assert texts(house.subscriber().get("t")) == ["b"]
        (letter,) = house.dead()
        assert letter.headers is not None
        assert letter.headers["dead-letter-reason"] == "no"

    @pytest.mark.parametrize("lost", [">", "<"])
    def test_is_one_letter_if_the_proxy_dies_in_between(self, lost: str) -> None:
        house = House()
        house.subscribed(b"a", b"b").close()
        subscriber = house.subscriber(retry=ONCE)
        (first,) = subscriber.get("t")
        house.link.script(lost)
        with pytest.raises(InDoubtError):
            subscriber.reject(first, "no")
        house.link.proxy = house.link.proxy.restarted()

        assert subscriber.reject(first, "no") == 0
        assert texts(subscriber.get("t")) == ["b"]
        assert texts(house.dead()) == ["a"]


class TestMaxDeliveries:
    def test_gives_up_what_was_handed_over_so_often(self) -> None:
        house = House()
        house.subscribed(b"poison", b"b", max_deliveries=2).abandon()

        for _ in range(2):
            process = house.subscriber()
            assert texts(process.get("t")) == ["poison"]
            process.abandon()

        assert texts(house.subscriber().get("t")) == ["b"]
        (letter,) = house.dead()
        assert letter.headers is not None
        assert letter.headers["dead-letter-deliveries"] == "2"
        assert letter.headers["dead-letter-reason"] == "max_deliveries"

    def test_does_not_make_the_neighbours_of_a_bad_message_suffer(self) -> None:
        """What comes again comes alone; so a batch that dies again and again loses one message."""
        house = House()
        house.subscribed(b"a", b"poison", b"c", max_deliveries=2).abandon()
        done: list[str] = []

        for _ in range(5):
            process = house.subscriber()
            while messages := process.get("t", max_messages=3):
                if b"poison" in [message.payload for message in messages]:
                    break
                done += texts(messages)
            process.abandon()

        assert done == ["a", "c"]
        assert texts(house.dead()) == ["poison"]

    def test_that_is_not_given_lets_a_message_come_again_forever(self) -> None:
        house = House()
        house.subscribed(b"a").abandon()

        for delivery in range(1, 20):
            process = house.subscriber()
            (message,) = process.get("t")
            assert message.delivery_count == delivery
            process.abandon()

    def test_finds_the_next_message_within_the_same_get(self) -> None:
        house = House()
        house.subscribed(b"a", max_deliveries=1).abandon()
        process = house.subscriber()
        process.get("t")
        process.abandon()
        house.publisher.put("t", b"b")

        assert texts(house.subscriber().get("t", timeout_s=1.0)) == ["b"]

    @pytest.mark.parametrize("wrong", [0, -1, 1001])
    def test_has_a_range(self, wrong: int) -> None:
        with pytest.raises(UsageError, match="1 to 1,000"):
            House().subscriber().subscribe("t", max_deliveries=wrong)

    def test_needs_a_state_that_counts(self) -> None:
        forgetful = Subscriber("s", _world=a_world(FakeTransport(Link(MemoryProxy()))))

        with pytest.raises(UsageError, match="state_dir"):
            forgetful.subscribe("t", max_deliveries=3)

    @pytest.mark.parametrize("topic", ["t.dead", "t" * 251])
    def test_is_not_for_topics_without_dead_letters(self, topic: str) -> None:
        with pytest.raises(UsageError, match="no dead letters"):
            House().subscriber().subscribe(topic, max_deliveries=3)


def test_no_publisher_puts_to_a_topic_of_dead_letters() -> None:
    with pytest.raises(InvalidNameError, match="only subscribers make dead letters"):
        House().publisher.put("t.dead", b"a")
    with (
        pytest.raises(InvalidNameError, match="only subscribers make dead letters"),
        House().publisher.transaction() as transaction,
    ):
        transaction.put("t.dead", b"a")


def test_a_payload_that_does_not_fit_with_its_headers_is_left_out_and_reported() -> None:
    payload = bytes(PAYLOAD_BYTES_MAX)
    message = Message("t", 7, "p", 8, 0, payload)

    letter = dead_letter(message, "s", 3, "no")

    assert len(letter) < BODY_BYTES_MAX
    batch = decode_batch(letter, 1)
    assert batch.payloads == [b""]
    assert batch.headers is not None
    assert batch.headers[0] is not None
    assert batch.headers[0]["dead-letter-left-out"] == str(len(payload))
    assert batch.headers[0]["dead-letter-offset"] == "7"


class FullDisk(Disk):
    """A state whose writes fail while it is full."""

    full = False

    def write(self, changes: Mapping[str, bytes | None], *, durable: bool) -> None:
        if self.full:
            raise StorageFailedError("the disk is full")
        super().write(changes, durable=durable)


class TestALetterThatCannotBeMade:
    """Nothing changes before everything that can fail has succeeded."""

    def test_because_its_reason_has_no_utf_8_form_leaves_the_message_in_hand(self) -> None:
        house = House()
        subscriber = house.subscribed(b"a", b"b")
        (first,) = subscriber.get("t")

        with pytest.raises(UsageError, match="no UTF-8 form"):
            subscriber.reject(first, "broken \ud800")

        subscriber.reject(first, "broken")
        assert texts(house.dead()) == ["a"]
        assert texts(subscriber.get("t")) == ["b"]

    @pytest.mark.parametrize("reason", ["", "x" * 1001, "broken \ud800", 5, None, ValueError("x")])
    @pytest.mark.parametrize("reads", ["get", "messages", "next process"])
    def test_is_no_acknowledgement_of_its_message(self, reads: str, reason: Any) -> None:
        house = House()
        subscriber = house.subscribed(b"a", b"b")
        loop = subscriber.messages("t", timeout_s=0)
        message = subscriber.get("t")[0] if reads == "get" else next(loop)

        with pytest.raises(UsageError):
            subscriber.reject(message, reason)

        if reads == "next process":
            subscriber.close()
            loop = house.subscriber().messages("t", timeout_s=0)
        again = subscriber.get("t")[0] if reads == "get" else next(loop)
        assert (again.payload, again.redelivered) == (b"a", True)

    def test_and_an_acknowledgement_that_is_meant_go_together(self) -> None:
        house = House()
        subscriber = house.subscribed(b"a", b"b")
        (message,) = subscriber.get("t")
        with pytest.raises(UsageError):
            subscriber.reject(message, "")

        subscriber.acknowledge("t")

        assert texts(subscriber.get("t")) == ["b"]

    def test_because_the_message_was_altered_leaves_it_in_hand(self) -> None:
        house = House()
        subscriber = house.subscribed(b"a", b"b")
        (first,) = subscriber.get("t")

        with pytest.raises(UsageError):
            subscriber.reject(replace(first, headers={"bad": "\ud800"}), "no")

        subscriber.reject(first, "no")
        assert texts(house.dead()) == ["a"]

    def test_because_the_disk_is_full_leaves_it_in_hand(self) -> None:
        house = House()
        disk = house.disk = FullDisk()
        subscriber = house.subscribed(b"a", b"b")
        (first,) = subscriber.get("t")
        place = subscriber.inbox.places["t"]
        disk.full = True

        with pytest.raises(StorageFailedError):
            subscriber.reject(first, "no")

        disk.full = False
        assert subscriber.inbox.places["t"] == place
        assert house.dead() == []
        assert texts(subscriber.get("t")) == ["a"], "it was not rejected, nor processed"

    def test_is_not_made_for_what_was_never_handed_over(self) -> None:
        """A get that fails at the disk has delivered nothing, and counts nothing."""
        house = House()
        disk = house.disk = FullDisk()
        subscriber = house.subscribed(b"a", max_deliveries=1)
        disk.full = True
        with pytest.raises(StorageFailedError):
            subscriber.get("t")
        disk.full = False

        (message,) = subscriber.get("t")

        assert not message.redelivered
        assert house.dead() == []

    def test_is_made_before_the_letter_of_the_next_message(self) -> None:
        """Two that came together are rejected, and the first is in doubt: both are letters."""
        house = House()
        house.subscribed(b"a", b"b", b"c").close()
        subscriber = house.subscriber(retry=ONCE)
        first, second = subscriber.get("t", max_messages=2)
        house.link.script(">")
        with pytest.raises(InDoubtError):
            subscriber.reject(first, "no")

        subscriber.reject(second, "no")

        assert texts(house.dead()) == ["a", "b"]
        assert texts(subscriber.get("t")) == ["c"]


class TestALetterThatIsRefused:
    def full_house(self, *payloads: bytes, max_deliveries: int | None = None) -> House:
        """Two topics, and none for dead letters."""
        house = House()
        house.link.proxy.allow(topics_max=2)
        subscriber = house.subscribed(*payloads, max_deliveries=max_deliveries)
        subscriber.subscribe("other")
        house.publisher.put("other", b"x")
        subscriber.abandon()
        return house

    def test_is_reported_and_its_message_comes_again(self) -> None:
        subscriber = self.full_house(b"a", b"b").subscriber()
        first, _ = subscriber.get("t", max_messages=2)

        with pytest.raises(LimitError, match="the next get gives it again") as told:
            subscriber.reject(first, "no")

        assert isinstance(told.value, DeadLetterRefusedError)
        assert (told.value.topic, told.value.offset, told.value.why.code) == ("t", 0, "LIMIT")
        again = subscriber.get("t", max_messages=2)
        assert [(m.payload, m.redelivered) for m in again] == [(b"a", True), (b"b", True)]

    def test_lets_topic_and_subscriber_continue(self) -> None:
        house = self.full_house(b"a", b"b")
        subscriber = house.subscriber()
        (first,) = subscriber.get("t")
        with pytest.raises(LimitError):
            subscriber.reject(first, "no")

        assert texts(subscriber.get("other")) == ["x"]
        assert texts(subscriber.get("t")) == ["a"]
        assert texts(subscriber.get("t")) == ["b"]
        subscriber.close()
        assert house.subscriber().get("t") == []

    def test_is_not_known_to_the_next_process(self) -> None:
        house = self.full_house(b"a")
        subscriber = house.subscriber()
        (first,) = subscriber.get("t")
        with pytest.raises(LimitError):
            subscriber.reject(first, "no")
        subscriber.abandon()

        (message,) = house.subscriber().get("t")

        assert message.redelivered

    def test_in_doubt_and_then_refused_is_reported_by_the_next_get(self) -> None:
        subscriber = self.full_house(b"a").subscriber(retry=ONCE)
        (first,) = subscriber.get("t")
        subscriber._opened.asker.transport._answer.script(">")  # type: ignore[attr-defined]
        with pytest.raises(InDoubtError):
            subscriber.reject(first, "no")

        with pytest.raises(LimitError):
            subscriber.get("t")

        assert texts(subscriber.get("t")) == ["a"]

    def test_of_a_message_that_came_too_often_is_reported_each_time(self) -> None:
        """The topic is not blocked: after each word the message is delivered once more."""
        house = self.full_house(b"poison", b"b", max_deliveries=1)
        house.subscriber().get("t")

        for delivery in (2, 3):
            process = house.subscriber()
            with pytest.raises(DeadLetterRefusedError):
                process.get("t")
            (message,) = process.get("t")
            assert message.delivery_count == delivery

        assert texts(process.get("t")) == ["b"], "the program came back: it is acknowledged"

    def test_is_tried_again_when_there_is_room(self) -> None:
        house = self.full_house(b"a")
        subscriber = house.subscriber()
        (first,) = subscriber.get("t")
        with pytest.raises(LimitError):
            subscriber.reject(first, "no")
        house.link.proxy.allow(topics_max=3)
        (again,) = subscriber.get("t")

        subscriber.reject(again, "no")

        assert texts(house.dead()) == ["a"]

    def test_is_a_warning_for_a_step_file_which_continues(self) -> None:
        house = self.full_house(b"a", b"b", max_deliveries=1)
        house.subscriber().get("t")
        warnings: list[str] = []
        shown: list[str] = []
        process = house.subscriber()
        steps = [SubscriberStep(action="get", topic="t", number_of_times=2)]

        SubscriberRun(
            process,
            steps,
            Shown(shown.append, 0),
            sleep=lambda seconds: None,
            advance=lambda count, what: None,
            warn=lambda error: warnings.append(error.code),
        ).run(PlanMark(""))

        assert warnings == ["DEAD_LETTER_REFUSED"]
        assert [line.partition(": ")[2] for line in shown] == ["a", "b"]


def test_a_record_whose_write_failed_is_made_whole_by_the_next() -> None:
    """Place and plan are one step: a plan ahead of its place would repeat an output line."""
    house = House()
    disk = house.disk = FullDisk()
    subscriber = house.subscribed(b"a", b"b")
    subscriber.get("t")
    disk.full = True
    with pytest.raises(StorageFailedError):
        subscriber.record("t", PlanMark("", 0, 1).note)
    disk.full = False

    subscriber.record("t", PlanMark("", 0, 1).note)

    assert texts(house.subscriber().get("t")) == ["b"]
