"""A put that waits for its subscribers, one that dies and one that expires, and a real proxy."""

from __future__ import annotations

import threading

import pytest

from reliable_pubsub import NotDeliveredError, Subscriber

from .harness import PATIENCE_S, Service, eventually


def work(subscriber: Subscriber, count: int) -> None:
    """A program: get a number of messages of topic t, and acknowledge each."""
    for _ in range(count):
        assert subscriber.get("t", timeout_s=PATIENCE_S)
        subscriber.acknowledge("t")


def test_a_put_returns_when_all_have_acknowledged_and_says_who(running: Service) -> None:
    with running.open_subscriber("s1") as one, running.open_subscriber("s2") as two:
        one.subscribe("t")
        two.subscribe("t")
        threads = [threading.Thread(target=work, args=(s, 3)) for s in (one, two)]
        for thread in threads:
            thread.start()
        with running.open_publisher("p") as publisher:
            for _ in range(3):
                receipt = publisher.put("t", b"m", wait="delivered")
                assert receipt.delivery is not None
                assert receipt.delivery.acknowledged == ("s1", "s2")
                assert receipt.delivery.waiting == ()
        for thread in threads:
            thread.join()


def test_a_put_that_waits_for_a_dead_subscriber_names_it_and_may_keep_waiting(
    running: Service,
) -> None:
    steps = """
        steps:
          - {action: subscribe, topic: t}
          - {action: get, topic: t, number_of_times: 1}
          - {action: get, topic: t, number_of_times: 1}
    """
    dying = running.subscriber("dying", steps)
    running.subscribed("t", "dying")
    dying.kill()
    with running.open_publisher("p") as publisher, running.open_subscriber("s") as subscriber:
        subscriber.subscribe("t")
        receipt = publisher.put("t", b"m")
        work(subscriber, 1)
        one = publisher.wait_delivered(receipt, acknowledged_by=1)
        assert (one.acknowledged, one.waiting) == (("s",), ("dying",))
        with pytest.raises(NotDeliveredError) as error:
            publisher.wait_delivered(receipt, timeout_s=0.3)
        assert (error.value.acknowledged, error.value.waiting) == (("s",), ("dying",))

        running.subscriber("dying", steps)
        publisher.put("t", b"next")
        delivery = publisher.wait_delivered(receipt)
    assert delivery.acknowledged == ("dying", "s")


def test_a_put_does_not_wait_for_a_subscriber_that_expires_and_names_it(running: Service) -> None:
    with (
        running.open_subscriber("silent") as silent,
        running.open_subscriber("s") as subscriber,
        running.open_publisher("p") as publisher,
    ):
        silent.subscribe("t", lease_s=3.0)  # not before the put
        subscriber.subscribe("t")
        thread = threading.Thread(target=work, args=(subscriber, 1))
        thread.start()
        receipt = publisher.put("t", b"m", wait="delivered")
        thread.join()
        assert receipt.delivery is not None
        assert (receipt.delivery.acknowledged, receipt.delivery.left) == (("s",), ("silent",))


def test_a_step_that_waits_keeps_waiting_after_a_kill_and_puts_nothing_twice(
    running: Service,
) -> None:
    with running.open_subscriber("s") as subscriber:
        subscriber.subscribe("t")
        steps = "steps: [{topic: t, message: m, number_of_times: 2, wait: delivered}]"
        running.publisher("p", steps)
        eventually(lambda: running.topic("t").end == 1, "first message")
        impatient = running.publisher(
            "p2", "steps: [{topic: t, message: n, wait: delivered, timeout: 0.2}]"
        )
        assert impatient.wait() == 3
        assert "must not be put again" in impatient.stderr
        again = running.publisher(
            "p2", "steps: [{topic: t, message: n, wait: delivered, timeout: 0.2}]"
        )
        assert again.wait() == 3
        work(subscriber, 3)
    assert sorted(running.payloads("t")) == [b"m_1", b"m_2", b"n_1"]
