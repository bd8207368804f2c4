"""DEAD: the letter is stored and the cursor moves, or neither; once, however often it is asked."""

from __future__ import annotations

from reliable_pubsub.common.core.answers import (
    DeadAck,
    Fenced,
    LogChanged,
    Malformed,
    NotSub,
    Stale,
    StorageFull,
)
from reliable_pubsub.common.core.batch import crc32
from reliable_pubsub.common.core.requests import Dead
from reliable_pubsub.proxy.core.state import BrokerSettings
from reliable_pubsub.proxy.core.topic_log import Retention
from reliable_pubsub.proxy.dead_letters.verbs import DeadLettered
from tests.fakes import (
    MemoryProxy,
    a_body,
    a_broker,
    a_get,
    a_hello,
    a_put,
    a_stage,
    a_sub,
    an_ack,
    put_body,
    shown,
)

LETTER = a_body(b"m1, given up")


def a_dead(cursor: int, *, topic: str = "t", epoch: int = 1, boot: str = "boot-1") -> Dead:
    return Dead(
        client="s",
        epoch=epoch,
        request=9,
        topic=topic,
        generation=1,
        boot=boot,
        cursor=cursor,
        crc=crc32(LETTER),
    )


def with_messages(count: int = 3, *, settings: BrokerSettings = BrokerSettings()) -> MemoryProxy:  # noqa: B008
    """A proxy with a subscriber at offset 0, and a number of messages."""
    proxy = a_broker(settings=settings)
    proxy.ask(a_sub(cursor=0))
    for sequence in range(1, count + 1):
        proxy.put(sequence)
    return proxy


def letters(proxy: MemoryProxy) -> list[tuple[str, int, bytes]]:
    """What stands in `t.dead`: whose, under which number, what."""
    log = proxy.state.topics.get("t.dead")
    batches = proxy.log.batches.get(log.topic_id, []) if log else []
    return [(batch.publisher, batch.first_sequence, batch.body) for batch in batches]


def cursor(proxy: MemoryProxy) -> int:
    return proxy.state.topics["t"].subscriptions["s"].cursor


class TestADead:
    def test_stores_the_letter_and_moves_the_cursor_in_one_record(self) -> None:
        proxy = with_messages()

        decision = proxy.decide(a_dead(0), LETTER)

        (record,) = [one for one in decision.records if isinstance(one, DeadLettered)]
        assert (record.letter.body, record.moved.cursor) == (LETTER, 1)
        assert isinstance(decision.reply, DeadAck)
        assert (decision.reply.offset, decision.reply.already) == (0, False)

    def test_is_answered_when_that_is_durable(self) -> None:
        proxy = with_messages()

        decision = proxy.decide(a_dead(0), LETTER)

        assert decision.visible_at > proxy.state.durable_lsn

    def test_numbers_the_letters_of_a_subscriber_as_if_it_were_their_publisher(self) -> None:
        proxy = with_messages()
        proxy.ask(a_dead(0), LETTER)

        proxy.ask(a_dead(2), LETTER)

        assert letters(proxy) == [("s", 1, LETTER), ("s", 2, LETTER)]

    def test_acknowledges_what_lies_before_its_message(self) -> None:
        proxy = with_messages()

        proxy.ask(a_dead(2), LETTER)

        assert cursor(proxy) == 3

    def test_lets_the_next_get_continue_after_it(self) -> None:
        proxy = with_messages()
        proxy.ask(a_dead(0), LETTER)

        assert shown(proxy.ask(a_get(1))) == [(1, 1)]

    def test_survives_the_death_of_the_proxy_whole_or_not_at_all(self) -> None:
        proxy = with_messages()
        proxy.decide(a_dead(0), LETTER)  # and no commit
        before = proxy.restarted()
        proxy.commit()
        after = proxy.restarted()

        assert (letters(before), cursor(before)) == ([], 0)
        assert (letters(after), cursor(after)) == ([("s", 1, LETTER)], 1)

    def test_may_be_read_like_any_message(self) -> None:
        proxy = with_messages()
        proxy.ask(a_dead(0), LETTER)
        proxy.ask(a_sub(2, topic="t.dead", cursor=0))

        decision = proxy.decide(a_get(0, topic="t.dead"))

        assert decision.body == LETTER


class TestARepeatedDead:
    def test_is_answered_as_already_done_and_stores_nothing(self) -> None:
        proxy = with_messages()
        proxy.ask(a_dead(0), LETTER)

        decision = proxy.decide(a_dead(0), LETTER)

        assert isinstance(decision.reply, DeadAck)
        assert (decision.reply.offset, decision.reply.already, decision.records) == (0, True, ())

    def test_waits_for_the_first_one_to_be_durable(self) -> None:
        proxy = with_messages()
        first = proxy.decide(a_dead(0), LETTER)

        assert proxy.decide(a_dead(0), LETTER).visible_at == first.visible_at

    def test_is_known_to_a_proxy_that_was_killed_in_between(self) -> None:
        proxy = with_messages()
        proxy.ask(a_dead(0), LETTER)
        proxy = proxy.restarted()
        proxy.ask(a_sub(2))

        reply = proxy.ask(a_dead(0, boot="boot-2"), LETTER)

        assert isinstance(reply, DeadAck)
        assert reply.already
        assert len(letters(proxy)) == 1


class TestADeadThatIsRefused:
    def test_because_its_message_was_acknowledged(self) -> None:
        proxy = with_messages()
        proxy.ask(an_ack(2))

        reply = proxy.ask(a_dead(1), LETTER)

        assert isinstance(reply, Stale)
        assert "cannot become a dead letter" in reply.text
        assert letters(proxy) == []

    def test_because_nothing_stands_there(self) -> None:
        proxy = with_messages(1)

        assert isinstance(proxy.ask(a_dead(1), LETTER), LogChanged)
        assert isinstance(proxy.ask(a_dead(2), LETTER), LogChanged)

    def test_because_dead_letters_have_none(self) -> None:
        proxy = with_messages()
        proxy.ask(a_dead(0), LETTER)
        proxy.ask(a_sub(2, topic="t.dead", cursor=0))

        reply = proxy.ask(a_dead(0, topic="t.dead"), LETTER)

        assert isinstance(reply, Malformed)
        assert "no dead letters" in reply.text

    def test_because_the_name_has_no_room_for_the_suffix(self) -> None:
        proxy = with_messages()
        topic = "t" * 251

        assert isinstance(proxy.ask(a_dead(0, topic=topic), LETTER), Malformed)

    def test_because_there_is_no_subscription_or_that_of_a_newer_process(self) -> None:
        proxy = with_messages()

        assert isinstance(proxy.ask(a_dead(0, topic="other"), LETTER), NotSub)
        proxy.ask(a_hello("subscriber", "s", epoch=2))
        assert isinstance(proxy.ask(a_dead(0), LETTER), Fenced)

    def test_because_the_disk_is_full(self) -> None:
        proxy = with_messages()
        proxy.state.is_storage_full = True

        assert isinstance(proxy.ask(a_dead(0), LETTER), StorageFull)
        assert cursor(proxy) == 0


class TestATopicOfDeadLetters:
    def test_takes_no_put(self) -> None:
        proxy = a_broker()

        reply = proxy.ask(a_put(1, topic="t.dead"), put_body(1))

        assert isinstance(reply, Malformed)
        assert "t.dead" not in proxy.state.topics

    def test_takes_nothing_of_a_transaction(self) -> None:
        reply = a_broker().ask(a_stage(1, topic="t.dead"), put_body(1))

        assert isinstance(reply, Malformed)

    def test_makes_room_for_new_ones_where_no_subscription_waits_for_the_old(self) -> None:
        bound = len(LETTER)
        settings = BrokerSettings(topics={"t.dead": Retention(topic_bytes_max=bound)})
        proxy = with_messages(settings=settings)
        proxy.ask(a_dead(0), LETTER)

        assert isinstance(proxy.ask(a_dead(1), LETTER), DeadAck)
        assert proxy.state.topics["t.dead"].start == 1
