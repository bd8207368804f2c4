"""Reading without a subscription, and a subscription whose place is kept elsewhere."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from reliable_pubsub.common.core.batch import messages_in
from reliable_pubsub.common.core.errors import (
    FencedError,
    LogChangedError,
    MalformedError,
    ProxyUnreachableError,
    TruncatedError,
    UsageError,
)
from reliable_pubsub.common.core.message_base import Start
from reliable_pubsub.common.core.start import LastReceived, Now
from reliable_pubsub.common.status_client import StatusClient
from reliable_pubsub.proxy.core.state import BrokerSettings
from reliable_pubsub.proxy.core.topic_log import Retention
from reliable_pubsub.subscriber.core.place import Place
from reliable_pubsub.subscriber.external_cursor import ExternalCursor
from reliable_pubsub.subscriber.reader import LogReader
from tests.fakes import (
    LOG,
    PATIENT,
    FakeClock,
    FakeTransport,
    Link,
    MemoryProxy,
    a_broker,
    a_sub,
    a_world,
    an_ack,
)


def a_log(*counts: int) -> MemoryProxy:
    """A proxy with batches of this many messages: m1, m2, ..."""
    proxy = a_broker()
    sequence = 1
    for count in counts:
        proxy.put(sequence, count=count)
        sequence += count
    return proxy


def a_reader(link: Link) -> LogReader:
    clock = FakeClock()
    return LogReader(retry=PATIENT, _world=a_world(FakeTransport(link, clock), clock))


def a_keeper(link: Link, client: str = "job") -> ExternalCursor:
    clock = FakeClock()
    return ExternalCursor(client, retry=PATIENT, _world=a_world(FakeTransport(link, clock), clock))


class TestAReader:
    def test_gives_whole_batches_from_the_offset_on(self) -> None:
        (first, second) = a_reader(Link(a_log(3, 2))).read("t", 1)

        assert (first.skip, first.offset, first.count, first.end) == (1, 1, 2, 3)
        assert (second.skip, second.offset, second.count, second.end) == (0, 3, 2, 5)
        payloads = [message.payload for message in messages_in("t", [first, second])]
        assert payloads == [b"m2", b"m3", b"m4", b"m5"]

    def test_gives_nothing_at_the_end(self) -> None:
        assert a_reader(Link(a_log(3))).read("t", 3) == []

    @pytest.mark.parametrize("start", [LastReceived, Now])
    def test_refuses_a_start_that_has_a_meaning_for_a_subscription_only(self, start: Start) -> None:
        with pytest.raises(UsageError, match="does not begin at"):
            a_reader(Link(a_log(3))).read("t", start)

    def test_asks_again_when_requests_and_answers_are_lost(self) -> None:
        batches = a_reader(Link(a_log(3), "><>.")).read("t", 0)

        assert [batch.end for batch in batches] == [3]

    def test_says_endpoint_request_tries_and_time_without_an_answer(self) -> None:
        with pytest.raises(ProxyUnreachableError) as error:
            a_reader(Link(a_log(3), ">" * 11)).read("t", 0)

        assert "no answer to HISTORY from tcp://127.0.0.1:5556 in 11 attempts over" in str(
            error.value
        )

    def test_names_what_is_left_when_the_offset_is_gone(self) -> None:
        proxy = a_broker(settings=BrokerSettings(retention=Retention(history_bytes=0)))
        proxy.ask(a_sub(cursor=0))
        proxy.put(1, count=4)
        proxy.ask(an_ack(4))
        proxy.tick()

        with pytest.raises(TruncatedError) as error:
            a_reader(Link(proxy)).read("t", 1)

        assert error.value.start == 4

    def test_learns_that_the_log_is_another_one(self) -> None:
        with pytest.raises(LogChangedError, match=r"another\.1"):
            a_reader(Link(a_log(3))).read("t", 1, log="another.1")

    def test_takes_no_batch_whose_bytes_were_changed(self) -> None:
        link = Link(a_log(3))

        def damaged(frames: Sequence[bytes]) -> Sequence[bytes]:
            answer = link(frames)
            assert answer is not None
            return [*answer[:2], answer[2].replace(b"m2", b"mm")]

        with pytest.raises(MalformedError, match="CRC"):
            LogReader(_world=a_world(FakeTransport(damaged))).read("t", 0)


class TestAExternalCursor:
    def test_begins_at_the_end_if_no_place_is_given(self) -> None:
        assert a_keeper(Link(a_log(3))).tell("t").cursor == 3

    def test_begins_where_its_owner_stands_and_stays_there_when_asked_again(self) -> None:
        link = Link(a_log(3))

        assert a_keeper(link).tell("t", Place(LOG, 1)).cursor == 1
        assert a_keeper(link).tell("t").cursor == 1

    def test_moves_on_and_never_back(self) -> None:
        keeper = a_keeper(Link(a_log(3)))

        cursors = [keeper.tell("t", Place(LOG, cursor)).cursor for cursor in (1, 3, 2)]

        assert cursors == [1, 3, 3]

    def test_is_not_moved_by_what_a_lost_answer_hides(self) -> None:
        link = Link(a_log(3), ".<.<.")

        assert a_keeper(link).tell("t", Place(LOG, 2)).cursor == 2

    def test_continues_in_a_proxy_that_was_started_again(self) -> None:
        link = Link(a_log(3))
        keeper = a_keeper(link)
        keeper.tell("t", Place(LOG, 1))

        link.proxy = link.proxy.restarted()

        assert keeper.tell("t", Place(LOG, 2)).cursor == 2

    def test_is_known_again_in_a_proxy_that_has_forgotten_all_clients(self) -> None:
        link = Link(a_log(3))
        keeper = a_keeper(link)
        keeper.tell("t", Place(LOG, 1))

        link.proxy = a_log(3)

        assert keeper.tell("t", Place(LOG, 2)).cursor == 2

    def test_that_is_not_of_this_log_is_refused(self) -> None:
        with pytest.raises(LogChangedError):
            a_keeper(Link(a_log(3))).tell("t", Place("another.1", 1))

    def test_belongs_to_the_newest_process_with_its_id(self) -> None:
        link = Link(a_log(3))
        older = a_keeper(link)
        older.tell("t")

        a_keeper(link).tell("t")

        with pytest.raises(FencedError):
            older.tell("t", Place(LOG, 3))


def test_a_status_of_many_pages_is_one_report() -> None:
    proxy = a_broker()
    names = [f"t{number:03}" for number in range(230)]
    for name in names:
        proxy.put(1, topic=name)
    clock = FakeClock()
    client = StatusClient("", PATIENT, _world=a_world(Link(proxy), clock))

    report = client.ask(rows_max=0)

    assert [topic.topic for topic in report.topics] == names
