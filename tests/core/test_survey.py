"""What a scrape shows: the survey of topics and subscriptions, and the counts of the engine."""

from __future__ import annotations

from reliable_pubsub.common.core.answers import Full
from reliable_pubsub.common.core.message_base import Role
from reliable_pubsub.common.core.requests import Get, Put
from reliable_pubsub.common.core.wire import encode
from reliable_pubsub.proxy.core.state import BrokerSettings
from reliable_pubsub.proxy.core.topic_log import Retention
from reliable_pubsub.proxy.status.survey import (
    PIECE_READS,
    PIECE_ROWS,
    Survey,
    SurveyedSubscription,
    surveyed,
)
from tests.core.test_broker_dead_letters import LETTER, a_dead, with_messages
from tests.fakes import (
    NOW_NS,
    MemoryProxy,
    a_broker,
    a_get,
    a_put,
    a_sub,
    an_unsub,
    as_stored,
    put_body,
)


def survey(proxy: MemoryProxy, *, rows_max: int = 100) -> tuple[Survey, int]:
    """A survey, and the number of its pieces."""
    pieces = 1
    running = surveyed(proxy.state, rows_max=rows_max)
    while True:
        try:
            next(running)
        except StopIteration as end:
            return end.value, pieces
        pieces += 1


def with_subscribers(*names: str) -> MemoryProxy:
    """Each is subscribed to topic `t`, which is empty."""
    proxy = a_broker(subscribers=names)
    for name in names:
        proxy.ask(a_sub(client=name))
    return proxy


class TestASurvey:
    def test_names_the_subscriptions_with_most_lag_and_sums_all(self) -> None:
        proxy = with_subscribers("a", "b", "c")
        proxy.put(1, count=10)
        for name, cursor in (("a", 10), ("b", 4), ("c", 9)):
            proxy.ask(a_get(cursor, client=name))

        proxy.tick(now_s=7.0)

        found, _ = survey(proxy, rows_max=2)

        assert found.slowest == (
            SurveyedSubscription(6, "t", "b", 7.0),
            SurveyedSubscription(1, "t", "c", 7.0),
        )
        assert found.lag_messages == 7
        assert found.subscriptions == {"active": 3, "suspended": 0, "expired": 0}

    def test_names_the_topics_with_the_most_bytes_and_sums_all(self) -> None:
        proxy = a_broker()
        for topic, count in (("small", 1), ("large", 50), ("middle", 20)):
            proxy.put(1, count=count, topic=topic)

        found, _ = survey(proxy, rows_max=2)

        assert [(one.topic, one.end) for one in found.largest] == [("large", 50), ("middle", 20)]
        assert (found.topics, found.messages) == (3, 71)
        assert found.stored_bytes == sum(log.stored_bytes for log in proxy.state.topics.values())

    def test_says_how_much_of_each_bound_the_fullest_topic_uses(self) -> None:
        proxy = with_subscribers("a", "b")
        proxy.put(1, count=5)
        size = proxy.state.topics["t"].stored_bytes
        retention = Retention(topic_bytes_max=4 * size, waiting_messages_max=20)
        settings = BrokerSettings(
            retention=retention, subscriptions_per_topic_max=8, publishers_per_topic_max=10
        )
        proxy.engine.reconfigure(settings)

        found, _ = survey(proxy)

        assert (found.topic_bytes, found.waiting_messages) == (0.25, 0.25)
        assert (found.topic_subscriptions, found.topic_publishers) == (0.25, 0.1)

    def test_is_made_in_pieces_of_bounded_cost(self) -> None:
        names = [f"s{number}" for number in range(3 * PIECE_ROWS)]
        proxy = with_subscribers(*names)
        _, empty_pieces = survey(proxy, rows_max=8)
        proxy.put(1)

        _, pieces = survey(proxy, rows_max=8)

        assert empty_pieces == 4
        assert pieces == empty_pieces + 8 // PIECE_READS

    def test_leaves_out_what_ends_meanwhile_and_is_not_durable(self) -> None:
        names = [f"s{number:03}" for number in range(2 * PIECE_ROWS)]
        proxy = with_subscribers(*names)
        running = surveyed(proxy.state)
        next(running)
        for name in names:
            proxy.ask(an_unsub(2, client=name))
        proxy.decide(a_sub(client=names[-1], control=3))  # not committed
        try:
            while True:
                next(running)
        except StopIteration as end:
            found = end.value

        assert found.subscriptions["active"] < PIECE_ROWS


class TestTheCounts:
    def test_are_of_requests_by_verb_and_of_refusals_by_code(self) -> None:
        proxy = with_subscribers("a")
        small = Retention(waiting_messages_max=1)
        proxy.engine.reconfigure(BrokerSettings(retention=small))
        proxy.put(1)
        before = dict(proxy.engine.counts.refusals)

        refused = proxy.ask(a_put(2), put_body(2))

        assert isinstance(refused, Full)
        assert proxy.engine.counts.refusals[Full] == before.get(Full, 0) + 1

    def test_are_of_messages_and_bodies_that_were_sent(self) -> None:
        proxy = with_subscribers("a")
        proxy.put(1, count=3)

        proxy.send(a_get(0, client="a", messages_max=10), reply_to="a")

        assert proxy.engine.counts.sent_messages == 3
        assert proxy.engine.counts.sent_bytes == proxy.state.topics["t"].stored_bytes

    def test_know_verbs_of_requests_from_the_wire(self) -> None:
        proxy = with_subscribers("a")
        body = put_body(1)
        requests: list[tuple[Role, list[bytes]]] = [
            ("publisher", encode(a_put(1), body)),
            ("subscriber", encode(a_get(0, client="a"))),
            ("subscriber", encode(a_put(1), body)),  # it does not belong there
        ]
        for role, frames in requests:
            proxy.engine.receive(frames, None, role=role, now_s=0.0, now_ns=NOW_NS)

        assert dict(proxy.engine.counts.requests) == {Put: 1, Get: 1}
        assert proxy.engine.counts.received_bytes == len(body)
        assert proxy.engine.malformed_count == 1


class TestSettingsThatChange:
    def test_hold_for_topics_that_exist_and_after_a_failed_commit(self) -> None:
        proxy = with_subscribers("a")
        proxy.put(1)
        small = Retention(waiting_messages_max=1)
        other = Retention(waiting_messages_max=5)

        proxy.engine.reconfigure(BrokerSettings(retention=small, topics={"u": other}))

        assert isinstance(proxy.ask(a_put(2), put_body(2)), Full)
        assert proxy.state.retention("u") == other
        proxy.engine.failed(as_stored(proxy.durable), "full", now_s=0.0)
        assert proxy.state.topics["t"].retention == small

    def test_let_retention_look_at_every_topic_again(self) -> None:
        proxy = a_broker(settings=BrokerSettings(retention=Retention(history_s=3600.0)))
        proxy.put(1)
        proxy.tick(now_s=1.0)
        proxy.tick(now_s=61.0)
        assert proxy.state.topics["t"].start == 0

        proxy.engine.reconfigure(BrokerSettings(retention=Retention(history_s=10.0)))
        proxy.tick(now_s=62.0)

        assert proxy.state.topics["t"].start == 1


def test_dead_letters_are_counted_by_the_topic_of_their_messages() -> None:
    proxy = with_messages()

    proxy.ask(a_dead(0), LETTER)

    assert survey(proxy)[0].dead_letters == {"t": 1}
