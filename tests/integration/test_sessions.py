"""Sessions against a real proxy: clean and persistent, BYE, leases, and what status shows."""

from __future__ import annotations

import pytest

from reliable_pubsub import LostError, NotSubscribedError, glob

from .harness import PATIENCE_S, Service, eventually


@pytest.fixture
def running(service: Service) -> Service:
    """A service whose proxy runs and keeps no history that all have acknowledged."""
    service.start_proxy("-f", service.file("proxy.yaml", "history_bytes: 0\n"))
    return service


def state_of(service: Service) -> list[str]:
    return [one.state for one in service.topic("t").subscriptions]


def test_a_clean_session_ends_with_its_process_and_begins_again(running: Service) -> None:
    """Row 3.8: nothing is queued for it while it is away."""
    with running.open_publisher("p") as publisher:
        with running.open_subscriber("s") as subscriber:
            subscriber.subscribe("t", session="clean")
            publisher.put("t", b"1")
            assert [m.payload for m in subscriber.get("t", timeout_s=PATIENCE_S)] == [b"1"]
        assert running.topic("t").subscriptions == ()
        publisher.put("t", b"missed")
        with running.open_subscriber("s") as subscriber:
            subscriber.subscribe("t", session="clean")
            publisher.put("t", b"2")
            assert [m.payload for m in subscriber.get("t", timeout_s=PATIENCE_S)] == [b"2"]


class TestACleanPattern:
    def test_ends_with_its_client_and_begins_again_with_new_messages(
        self, running: Service
    ) -> None:
        match = glob("*")
        with running.open_publisher("p") as publisher:
            with running.open_subscriber("s") as subscriber:
                subscriber.subscribe(match=match, session="clean")
                publisher.put("t", b"1")
                assert [m.payload for m in subscriber.get(match, timeout_s=PATIENCE_S)] == [b"1"]
            assert running.topic("t").subscriptions == ()
            publisher.put("t", b"missed")
            publisher.put("u", b"missed")
            assert running.topic("u").subscriptions == ()
            with running.open_subscriber("s") as subscriber:
                subscriber.subscribe(match=match, session="clean")
                publisher.put("t", b"2")
                assert [m.payload for m in subscriber.get(match, timeout_s=PATIENCE_S)] == [b"2"]

    def test_ends_with_its_lease_after_a_kill_of_its_process_and_of_the_proxy(
        self, running: Service
    ) -> None:
        """By a step file; it is then subscribed to no topic, old or new."""
        steps = """
            steps:
              - {action: subscribe, match: "*", session: clean, lease: 0.5}
              - {action: get, match: "*", number_of_times: 3, on_empty: wait}
        """
        with running.open_publisher("p") as publisher:
            publisher.put("t", b"before")
            process = running.subscriber("s", steps)
            running.subscribed("t", "s")
            publisher.put("t", b"1")
            eventually(lambda: running.line_count("s") == 1, "output")

            process.kill()
            running.restart_proxy()

            eventually(lambda: state_of(running) == ["expired"], "end of the lease")
            publisher.put("u", b"2")
            assert running.topic("u").subscriptions == ()


def test_a_persistent_session_gets_what_came_while_it_was_away(running: Service) -> None:
    with running.open_publisher("p") as publisher:
        with running.open_subscriber("s") as subscriber:
            subscriber.subscribe("t")
        publisher.put("t", b"1")
        with running.open_subscriber("s") as subscriber:
            subscriber.subscribe("t")
            assert [m.payload for m in subscriber.get("t", timeout_s=PATIENCE_S)] == [b"1"]


def test_a_silent_subscriber_is_suspended_then_expired_and_learns_what_is_gone(
    running: Service,
) -> None:
    """Row 2.10: visible before anything is dropped, and never in silence."""
    with running.open_subscriber("s") as subscriber, running.open_publisher("p") as publisher:
        subscriber.subscribe("t", lease_s=4.0)  # suspended for as long
        for _ in range(3):
            publisher.put("t", b"x" * 600_000)
        eventually(lambda: state_of(running) == ["suspended"], "suspended subscription")
        assert running.topic("t").start == 0
        eventually(lambda: state_of(running) == ["expired"], "expired subscription")
        running.removed("t")
        with pytest.raises(LostError) as lost:
            subscriber.get("t")
        assert lost.value.first == 0
        assert state_of(running) == ["active"]


def test_a_subscriber_that_is_pushed_to_keeps_its_lease(running: Service) -> None:
    """It waits without polling, and is heard all the same."""
    with running.open_subscriber("s") as subscriber:
        subscriber.subscribe("t", lease_s=3.0, push=True)
        assert subscriber.get("t", timeout_s=7.0) == []  # in silence it would have expired
        assert state_of(running) != ["expired"]


def test_a_clean_session_that_was_silent_learns_that_it_has_ended(running: Service) -> None:
    with running.open_subscriber("s") as subscriber:
        subscriber.subscribe("t", session="clean", lease_s=0.5)
        eventually(lambda: state_of(running) == ["expired"], "expired subscription")
        with pytest.raises(NotSubscribedError, match="silent for too long"):
            subscriber.get("t")
        subscriber.subscribe("t", session="clean", lease_s=PATIENCE_S)
        assert subscriber.get("t") == []


def test_step_files_name_session_and_lease(running: Service) -> None:
    steps = (
        "steps:\n  - action: subscribe\n    topic: t\n    session: clean\n    lease: {}\n"
        "  - action: get\n    topic: t\n    on_empty: skip\n"
    )
    running.subscriber("s", steps.format(60)).done()
    assert running.topic("t").subscriptions == ()

    bad = running.subscriber("s2", steps.format(0))
    assert bad.wait() == 2
    assert "steps[0].lease: found 0, expected a number from 0.001 to" in " ".join(
        bad.stderr.split()
    )
