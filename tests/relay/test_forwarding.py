"""Requests through a node: passed on, shared, answered from the cache, and reported above."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import UNSET
from msgspec.structs import replace

from reliable_pubsub.common.core.answers import AnyReply, Fenced, MessageBatches
from reliable_pubsub.common.core.batch import ENTRY_BYTES, crc32
from reliable_pubsub.common.core.message_base import BatchHeader
from reliable_pubsub.common.core.pattern_messages import Fetch, Match
from reliable_pubsub.common.core.patterns.pattern import glob
from reliable_pubsub.common.core.status import Status
from reliable_pubsub.common.core.wire import decode_reply, decode_request, encode
from reliable_pubsub.relay.core.batch_cache import BatchCache
from reliable_pubsub.relay.core.forwarding import (
    CONFIRMED_S,
    FLIGHT_BYTES,
    PEER_WAITING_MAX,
    TELL_S,
    TIMEOUT_S,
    UNDER_WAY_MAX,
    WAITING_BYTES_MAX,
    Envelope,
    Forwarding,
    ToAbove,
    ToPeer,
)
from tests.fakes import MemoryProxy, a_get, a_hello, a_history, a_sub


def envelope(client: str) -> Envelope:
    return (client.encode(), b"")


class ANode:
    """A node below a proxy in memory; answers come when the test says so."""

    def __init__(self, *clients: str) -> None:
        self.proxy = MemoryProxy()
        self.forwarding = Forwarding(BatchCache())
        self.above: list[ToAbove] = []
        self.answers: list[tuple[str, AnyReply, bytes]] = []
        self.now_s = 0.0
        self.proxy.ask(a_hello("publisher", "p"))
        for client in clients:
            self.proxy.ask(a_hello("subscriber", client))
            self.proxy.ask(a_sub(client=client))

    def ask(self, client: str, cursor: int, **more: object) -> None:
        get = a_get(cursor, client=client, **more)  # type: ignore[arg-type]
        self.forwarding.request(envelope(client), encode(get), self.now_s)
        self.collect()

    def collect(self) -> None:
        for action in self.forwarding.actions():
            match action:
                case ToPeer():
                    reply, body = decode_reply(action.frames)
                    self.answers.append((action.envelope[0].decode(), reply, body))
                case ToAbove():
                    self.above.append(action)

    def answer(self, count: int = 100) -> None:
        """Have the proxy answer what is under way."""
        for one in self.above[:count]:
            self.above.remove(one)
            self.forwarding.answer(one.ticket, self.proxy.frames(one.frames), self.now_s)
            self.collect()

    def verbs(self) -> list[str]:
        return [type(decode_request(one.frames)[0]).__name__ for one in self.above]

    def taken(self) -> list[tuple[str, AnyReply, bytes]]:
        answers, self.answers = self.answers, []
        return answers


def names(answers: Sequence[tuple[str, AnyReply, bytes]]) -> list[tuple[str, str]]:
    return [(client, type(reply).__name__) for client, reply, _ in answers]


def confirmed(*clients: str) -> ANode:
    """A node whose readers have asked once at the end of the topic."""
    node = ANode(*clients)
    for client in clients:
        node.ask(client, 0)
        node.answer()
    node.taken()
    return node


class TestARequest:
    def test_is_passed_on_as_it_is_and_its_answer_comes_back(self) -> None:
        node = ANode("one")
        node.forwarding.request(envelope("one"), encode(a_sub(client="one", control=2)), 0.0)
        node.collect()
        node.answer()

        assert names(node.taken()) == [("one", "SubAck")]

    def test_by_pattern_does_not_wait_above(self) -> None:
        """It would take the place of a request under way; its sender asks again."""
        node = ANode("one")
        head: dict[str, Any] = {"client": "one", "epoch": 1, "match": glob("sensor/*")}
        node.proxy.ask(Match(**head, request=8, control=2))
        fetch = Fetch(**head, request=9, boot="", wait_ms=1000)

        node.forwarding.request(envelope("one"), encode(fetch), 0.0)
        node.collect()
        (above,) = node.above
        node.answer()

        assert decode_request(above.frames)[0] == replace(fetch, wait_ms=UNSET)
        assert names(node.taken()) == [("one", "Fetched")]

    def test_that_cannot_be_read_is_left_to_the_proxy(self) -> None:
        node = ANode()
        node.forwarding.request(envelope("x"), [b"RPS1", b"rubbish"], 0.0)
        node.collect()
        (one,) = node.above
        assert one.frames == [b"RPS1", b"rubbish"]
        node.forwarding.answer(one.ticket, [b"RPS1", b"an answer of tomorrow"], 0.0)

        (action,) = node.forwarding.actions()
        assert action == ToPeer(envelope("x"), [b"RPS1", b"an answer of tomorrow"])

    def test_of_a_reader_that_is_not_confirmed_is_judged_by_the_proxy(self) -> None:
        node = confirmed("one")
        node.proxy.put(1)
        node.ask("one", 0)
        node.answer()

        for stranger in ({"generation": 9}, {"boot": "boot-9"}, {"epoch": 9}):
            node.ask("one", 0, **stranger)
            assert node.verbs() == ["Get"]
            node.answer()

        assert names(node.taken()[1:]) == [("one", "Stale"), ("one", "Stale"), ("one", "Fenced")]

    def test_waits_when_many_are_under_way(self) -> None:
        clients = [f"s{number}" for number in range(UNDER_WAY_MAX + 3)]
        node = ANode(*clients)
        for client in clients:
            node.ask(client, 0)

        assert len(node.above) == UNDER_WAY_MAX
        node.answer(1)
        assert len(node.above) == UNDER_WAY_MAX
        node.answer()
        node.answer()
        assert len(node.taken()) == len(clients)

    def test_wait_in_bounds_however_short_they_are(self) -> None:
        """Each counts what it takes here beside its frames; STATUS has 80 bytes."""
        forwarding = Forwarding(BatchCache())
        status = encode(Status(client="stranger", epoch=0, request=1))
        many = WAITING_BYTES_MAX // FLIGHT_BYTES
        for number in range(many + UNDER_WAY_MAX):
            forwarding.request((b"peer %d" % (number // PEER_WAITING_MAX), b""), status, 0.0)

        assert forwarding.dropped_count > 0
        assert len(forwarding.actions()) == UNDER_WAY_MAX

    def test_of_one_peer_do_not_wait_for_all_of_another(self) -> None:
        node = ANode("honest")
        status = encode(Status(client="stranger", epoch=0, request=1))
        for _ in range(10 * PEER_WAITING_MAX):
            node.forwarding.request(envelope("stranger"), status, node.now_s)
        node.ask("honest", 0)
        assert node.forwarding.dropped_count == 9 * PEER_WAITING_MAX - UNDER_WAY_MAX
        assert node.verbs() == ["Status"] * UNDER_WAY_MAX

        node.answer(2)
        assert node.verbs()[-2:] == ["Status", "Get"]

    def test_that_is_not_answered_is_forgotten_and_its_late_answer_dropped(self) -> None:
        node = ANode(*(f"s{number}" for number in range(UNDER_WAY_MAX + 1)))
        for number in range(UNDER_WAY_MAX + 1):
            node.ask(f"s{number}", 0)
        lost, node.above = node.above, []
        node.forwarding.tick(TIMEOUT_S)
        node.collect()

        for one in lost:
            node.forwarding.answer(one.ticket, node.proxy.frames(one.frames), TIMEOUT_S)
        node.collect()

        assert node.taken() == []
        assert node.forwarding.dropped_count == UNDER_WAY_MAX + 1


class TestOneFetch:
    def test_serves_all_that_asked_before_it_was_sent(self) -> None:
        """At the end of a topic all of them wait for the same place."""
        node = confirmed("one", "two", "three", *(f"s{n}" for n in range(UNDER_WAY_MAX)))
        node.now_s = 2 * CONFIRMED_S  # not confirmed any more: their requests fill the way
        for number in range(UNDER_WAY_MAX):
            node.ask(f"s{number}", 0)
        blocked, node.above = node.above, []
        node.now_s = CONFIRMED_S / 2
        for client in ("one", "two", "three"):
            node.ask(client, 0)
        assert node.above == []
        node.above = blocked
        node.answer()

        assert node.verbs() == ["Get"]
        node.answer()

        served = [client for client, _, _ in node.taken() if not client.startswith("s")]
        assert served == ["one", "two", "three"]

    def test_that_found_nothing_does_not_answer_who_asked_after_it_was_sent(self) -> None:
        """A message may have come in between."""
        node = confirmed("one", "two")
        node.ask("one", 0)
        (sent,) = node.above
        node.above = []
        nothing_yet = node.proxy.frames(sent.frames)
        node.ask("two", 0)
        node.proxy.put(1)
        node.forwarding.answer(sent.ticket, nothing_yet, 0.0)
        node.collect()
        assert names(node.taken()) == [("one", "NoMessagesYet")]

        node.answer()

        ((client, reply, _),) = node.taken()
        assert client == "two"
        assert isinstance(reply, MessageBatches)

    def test_that_found_something_serves_all_others_from_the_cache(self) -> None:
        node = confirmed("one", "two", "three")
        node.proxy.put(1)
        for client in ("one", "two"):
            node.ask(client, 0)
        node.answer()
        node.ask("three", 0)

        answers = node.taken()
        assert names(answers) == [(name, "MessageBatches") for name in ("one", "two", "three")]
        assert len({body for _, _, body in answers}) == 1
        assert [reply.client for _, reply, _ in answers] == ["one", "two", "three"]
        assert (node.forwarding.passed_count, node.forwarding.from_cache_count) == (4, 2)

    def test_is_not_shared_between_other_limits(self) -> None:
        node = confirmed("one", "two")
        node.ask("one", 0, messages_max=1)
        node.ask("two", 0, messages_max=2)

        assert len(node.above) == 2

    def test_of_history_is_the_proxys_each_time_and_fills_the_cache(self) -> None:
        node = confirmed("one")
        node.proxy.put(1)
        for client in ("x", "y"):
            history = replace(a_history(0), client=client)
            node.forwarding.request(envelope(client), encode(history), 0.0)
            node.collect()
        assert node.verbs() == ["History"]
        node.answer()
        node.answer()
        passed = node.forwarding.passed_count
        node.ask("one", 0)

        answers = node.taken()
        assert passed == 3  # with the GET that confirmed the reader
        assert sorted(names(answers)) == [(name, "MessageBatches") for name in ("one", "x", "y")]
        assert [reply.client for _, reply, _ in answers] == [client for client, _, _ in answers]
        assert node.above == []


class TestACursor:
    def test_that_moved_here_is_sent_above_soon(self) -> None:
        node = confirmed("one", "two")
        for sequence in (1, 2):
            node.proxy.put(sequence)
        node.ask("one", 0, messages_max=2)
        node.answer()
        node.ask("two", 1)  # from the cache: it says that 0 is processed
        assert node.forwarding.unsent_cursors == 1
        node.forwarding.tick(TELL_S)
        node.collect()
        assert node.verbs() == ["Ack"]
        node.answer()

        log = node.proxy.state.topics["t"]
        assert log.subscriptions["two"].cursor == 1
        assert node.forwarding.unsent_cursors == 0

    def test_is_sent_again_without_an_answer(self) -> None:
        node = confirmed("one", "two")
        node.proxy.put(1)
        node.proxy.put(2)
        node.ask("one", 0, messages_max=2)
        node.answer()
        node.ask("two", 1)
        node.forwarding.tick(TELL_S)
        node.collect()
        node.above.clear()

        node.forwarding.tick(2 * TELL_S)
        node.collect()

        assert node.verbs() == ["Ack"]

    def test_of_a_fenced_reader_ends_what_it_gets_here(self) -> None:
        node = confirmed("one", "two")
        for sequence in (1, 2, 3):
            node.proxy.put(sequence)
        node.ask("one", 0, messages_max=3)
        node.answer()
        node.proxy.ask(a_hello("subscriber", "two", epoch=2, nonce=b"another-one"))
        node.ask("two", 1)
        node.forwarding.tick(TELL_S)
        node.collect()
        node.answer()
        node.taken()

        node.ask("two", 2)
        node.answer()

        ((_, reply, _),) = node.taken()
        assert isinstance(reply, Fenced)

    def test_is_confirmed_for_a_second_at_most(self) -> None:
        node = confirmed("one", "two")
        node.proxy.put(1)
        node.ask("one", 0)
        node.answer()
        node.now_s = CONFIRMED_S

        node.ask("two", 0)

        assert node.verbs() == ["Get"]


class TestTheCache:
    def header(self, base: int, count: int = 1, body: bytes = b"x") -> BatchHeader:
        return BatchHeader(base, count, "p", base + 1, 1, crc32(body), len(body))

    def test_answers_as_the_proxy_does(self) -> None:
        node = ANode("s")
        cache = BatchCache()
        for sequence, count in ((1, 3), (4, 1), (5, 2), (7, 5)):
            node.proxy.put(sequence, count=count)
        whole, body = decode_reply(node.proxy.frames(encode(a_history(0, messages_max=99))))
        assert isinstance(whole, MessageBatches)
        begin = 0
        for header in whole.batches:
            cache.add("t", whole.boot, header, body[begin : begin + header.body_bytes])
            begin += header.body_bytes

        for offset in range(11):
            for messages_max in (1, 2, 5, 99):
                for bytes_max in (0, 30, 60, 1000):
                    request = a_get(
                        offset, messages_max=messages_max, bytes_max=bytes_max, client="s"
                    )
                    frames = node.proxy.frames(encode(request))
                    reply, body = decode_reply(frames)
                    found = cache.read("t", offset, messages_max=messages_max, bytes_max=bytes_max)
                    assert found is not None
                    assert isinstance(reply, MessageBatches)
                    assert (found.headers, found.body, found.end) == (
                        reply.batches,
                        body,
                        reply.end,
                    )

    def test_has_nothing_at_its_end_or_before_its_beginning(self) -> None:
        cache = BatchCache()
        cache.add("t", "b", self.header(5), b"x")

        for offset in (4, 6):
            assert cache.read("t", offset, messages_max=1, bytes_max=1) is None
        assert cache.read("u", 5, messages_max=1, bytes_max=1) is None

    def test_begins_again_after_a_gap_and_at_a_restart(self) -> None:
        cache = BatchCache()
        cache.add("t", "b", self.header(0), b"x")
        cache.add("t", "b", self.header(2), b"x")
        assert cache.read("t", 0, messages_max=1, bytes_max=1) is None
        assert cache.read("t", 2, messages_max=1, bytes_max=1) is not None

        cache.add("u", "another boot", self.header(0), b"x")

        assert cache.read("t", 2, messages_max=1, bytes_max=1) is None

    def test_takes_no_batch_twice(self) -> None:
        cache = BatchCache()
        for base in (0, 1, 0, 1):
            cache.add("t", "b", self.header(base), b"x")

        found = cache.read("t", 0, messages_max=9, bytes_max=9)
        assert found is not None
        assert [header.base for header in found.headers] == [0, 1]

    def test_is_bounded_and_gives_up_the_oldest(self) -> None:
        cache = BatchCache(bytes_max=3 * (ENTRY_BYTES + 1))
        for base in range(4):
            cache.add("t", "b", self.header(base), b"x")
        cache.add("u", "b", self.header(0), b"x")

        assert cache.size_bytes <= 3 * (ENTRY_BYTES + 1)
        assert cache.read("t", 1, messages_max=1, bytes_max=9) is None
        assert cache.read("t", 2, messages_max=1, bytes_max=9) is not None
        assert cache.read("u", 0, messages_max=1, bytes_max=9) is not None
