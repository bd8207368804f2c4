"""Levels of service against a real proxy: what comes twice, what does not, and who is warned."""

from __future__ import annotations

import warnings
from contextlib import ExitStack

import pytest

from reliable_pubsub import Earliest, QoSWarning
from reliable_pubsub.common.core.answers import PutAck
from reliable_pubsub.common.core.message_base import QoS

from .harness import BELIEVING, PATIENCE_S, Service, losing_link

LEVELS: tuple[QoS, ...] = (0, 1, 2)


@pytest.mark.filterwarnings("ignore::reliable_pubsub.QoSWarning")
def test_a_message_has_the_lower_level_of_publisher_and_subscription(running: Service) -> None:
    """Row 3.6, all nine: in the message, in the receipt, in status."""
    with ExitStack() as open_clients:
        publisher = open_clients.enter_context(running.open_publisher("p", retry=BELIEVING))
        subscribers = {
            qos: open_clients.enter_context(running.open_subscriber(f"s{qos}")) for qos in LEVELS
        }
        for qos, subscriber in subscribers.items():
            subscriber.subscribe("t", qos=qos)
        receipts = [publisher.put("t", b"%d" % put, qos=put) for put in LEVELS]
        found = {
            (int(message.payload), qos): message.qos
            for qos, subscriber in subscribers.items()
            for _ in LEVELS
            for message in subscriber.get("t", timeout_s=PATIENCE_S)
        }
        topic = running.topic("t")
    assert found == {(put, qos): min(put, qos) for put in LEVELS for qos in LEVELS}
    assert [receipt.qos for receipt in receipts] == [0, 1, 2]
    assert {one.subscriber: one.terms.qos for one in topic.subscriptions} == {
        "s0": 0,
        "s1": 1,
        "s2": 2,
    }
    assert [one.qos for one in topic.publishers] == [1, 2]


@pytest.mark.parametrize("qos", [1, 2])
def test_a_lost_answer_doubles_a_put_at_level_1_and_not_at_level_2(
    running: Service, qos: QoS
) -> None:
    """Row 0.4: the copy has the same id, so a handler that is idempotent knows it."""

    def mend(*_: object) -> None:
        if link.is_losing:
            link.heal()

    with (
        losing_link(running.publisher_endpoint, answers=0, kind=PutAck) as link,
        running.open_publisher("p", endpoint=link.endpoint, on_silence=mend) as publisher,
    ):
        publisher.put("t", b"once?", qos=qos)
    with running.open_subscriber("s") as subscriber:
        found = subscriber.history("t", 0)
    assert {m.payload for m in found} == {b"once?"}
    assert (len(found) > 1) == (qos == 1)  # a slow machine may ask for a third time
    assert len({m.message_id for m in found}) == 1


def test_a_subscription_above_the_level_of_a_publisher_is_warned_once(running: Service) -> None:
    """Row 3.7: a subscription alone does not make exactly-once."""
    with running.open_subscriber("s") as subscriber, running.open_publisher("p") as publisher:
        subscriber.subscribe("t")
        for _ in range(3):
            publisher.put("t", b"m", qos=1)
        with pytest.warns(QoSWarning, match="'p' puts at QoS 1") as told:
            subscriber.get("t", timeout_s=PATIENCE_S)
        assert len(told) == 1
        publisher.put("t", b"m", qos=1)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert [len(subscriber.get("t", timeout_s=PATIENCE_S)) for _ in range(3)] == [1, 1, 1]


def test_a_process_without_memory_marks_what_an_earlier_one_was_given(running: Service) -> None:
    """Row 3.4: the mark does not depend on the state of the process that died."""
    with running.open_publisher("p") as publisher:
        publisher.put_many("t", [b"1", b"2", b"3"])
    dies = running.open_subscriber("s")
    dies.subscribe("t", start=Earliest, qos=1)
    assert [m.redelivered for m in dies.get("t", timeout_s=PATIENCE_S)] == [False]
    dies.abandon()

    with running.open_publisher("p") as publisher, running.open_subscriber("s") as again:
        again.subscribe("t", qos=1)
        publisher.put("t", b"4")
        marks = [again.get("t", timeout_s=PATIENCE_S)[0].redelivered for _ in range(4)]
    assert marks == [True, True, True, False]


def test_step_files_name_levels_and_a_wrong_one_is_reported_with_its_line(running: Service) -> None:
    steps = "steps:\n  - topic: t\n    message: m\n    number_of_times: 3\n    qos: {}\n"
    subscribe = "steps:\n  - action: subscribe\n    topic: t\n    from: earliest\n    qos: {}\n"
    get = "  - action: get\n    topic: t\n    number_of_times: 3\n"
    running.publisher("p", steps.format(1)).done()
    running.subscriber("s", subscribe.format(1) + get).done()
    assert running.line_count("s") == 3
    assert [p.qos for p in running.topic("t").publishers] == [1]

    for process in (
        running.publisher("p2", steps.format(3)),
        running.subscriber("s2", subscribe.format("high") + get),
    ):
        assert process.wait() == 2
        text = " ".join(process.stderr.split())
        assert "line 5, steps[0].qos: found" in text
        assert "expected 0 (at most once), 1 (at least once) or 2 (exactly once)" in text
