"""STAGE, COMMIT, ABORT: several topics at once, or none of them, one time (rule R23)."""

from __future__ import annotations

import pytest
from msgspec import UNSET
from msgspec.structs import replace

from reliable_pubsub.common.core import limits
from reliable_pubsub.common.core.actions import ForgetClient
from reliable_pubsub.common.core.answers import (
    AnyReply,
    Conflict,
    Fenced,
    Full,
    Gap,
    HelloAck,
    Limit,
    PutAck,
    StageLost,
    StorageFull,
)
from reliable_pubsub.common.core.limits import KIB, MIB, STAGED_BATCH_BYTES, STAGED_IDLE_S_MAX
from reliable_pubsub.common.core.pattern_messages import Match, Matched
from reliable_pubsub.common.core.patterns.matching import EVERYTHING
from reliable_pubsub.common.core.status import StagingStatus, Status, StatusReport
from reliable_pubsub.common.core.transaction_messages import (
    AbortAck,
    Commit,
    CommitAck,
    Part,
    StageAck,
    TopicReceipt,
)
from reliable_pubsub.common.core.wire import encode
from reliable_pubsub.proxy.core.applying import committed
from reliable_pubsub.proxy.core.records import Appended
from reliable_pubsub.proxy.core.state import BrokerSettings
from reliable_pubsub.proxy.core.topic_log import Retention
from reliable_pubsub.proxy.transactions import verbs
from reliable_pubsub.proxy.transactions.records import Staged
from reliable_pubsub.proxy.transactions.staging import Staging
from tests.fakes import (
    NONCE,
    MemoryProxy,
    a_body,
    a_broker,
    a_commit,
    a_hello,
    a_stage,
    an_abort,
    an_action,
    as_stored,
    put_body,
)

OTHER_TRY = b"nonce-02"
OTHER = a_body(b"other content")


def staged(proxy: MemoryProxy, transaction: int, *topics: str, client: str = "p") -> AnyReply:
    """Stage one batch for each topic, and commit them."""
    for chunk, topic in enumerate(topics):
        request = a_stage(transaction, chunk, topic=topic, client=client)
        assert isinstance(proxy.ask(request, put_body(1)), StageAck)
    return proxy.ask(a_commit(transaction, (0, NONCE, len(topics)), client=client))


def ends(proxy: MemoryProxy) -> dict[str, int]:
    return {topic: log.durable_end for topic, log in proxy.state.topics.items()}


def held(proxy: MemoryProxy) -> int:
    return proxy.state.part(Staging).held_bytes


class TestWhatIsStaged:
    def test_is_seen_by_no_client(self) -> None:
        proxy = a_broker()

        reply = proxy.ask(a_stage(1), put_body(1))

        assert isinstance(reply, StageAck)
        assert proxy.state.topics == {}

    def test_waits_for_no_disk(self) -> None:
        proxy = a_broker()

        decision = proxy.decide(a_stage(1), put_body(1))

        assert decision.visible_at == 0
        assert [type(record) for record in decision.records] == [Staged]

    def test_needs_a_session_of_its_writer(self) -> None:
        proxy = a_broker(publishers=())

        refused = proxy.ask(a_stage(1), put_body(1))
        proxy.ask(a_hello("publisher", "p"))

        assert isinstance(refused, Fenced)
        assert (refused.current_epoch, refused.forgotten) == (0, UNSET)
        assert "send HELLO first" in refused.text
        assert isinstance(proxy.ask(a_stage(1), put_body(1)), StageAck)

    def test_may_come_under_any_epoch(self) -> None:
        """Tasks stage on many machines; what they stage has no effect."""
        proxy = a_broker()
        proxy.ask(a_hello("publisher", "p", epoch=7))

        assert isinstance(proxy.ask(a_stage(1), put_body(1)), StageAck)

    def test_keeps_its_writer_from_being_forgotten(self) -> None:
        proxy = a_broker(publishers=("p", "q"))
        proxy.ask(a_stage(1), put_body(1))

        assert ("publisher", "p") not in proxy.state.idle_sessions
        proxy.ask(an_abort(1))
        assert [*proxy.state.idle_sessions][-1] == ("publisher", "p")

    def test_ends_with_the_session_of_its_writer(self) -> None:
        proxy = a_broker()
        proxy.ask(a_stage(1), put_body(1))

        proxy.ask(an_action(ForgetClient(of="p", role="publisher"), number=1))

        assert ("publisher", "p") not in proxy.state.sessions
        assert held(proxy) == proxy.state.part(Staging).transactions == 0

    def test_is_staged_once_however_often_it_comes(self) -> None:
        proxy = a_broker()
        proxy.ask(a_stage(1), put_body(1))

        again = proxy.ask(a_stage(1), put_body(1))

        assert isinstance(again, StageAck)
        assert proxy.state.part(Staging).batches == 1

    def test_is_not_changed_by_another_content_under_its_place(self) -> None:
        proxy = a_broker()
        proxy.ask(a_stage(1), put_body(1))

        reply = proxy.ask(a_stage(1, body=OTHER), OTHER)

        assert isinstance(reply, Conflict)
        assert "task 0 is staged with another content" in reply.text

    def test_has_no_holes(self) -> None:
        """After a restart of the proxy a task learns of it at its next batch, not at the end."""
        proxy = a_broker()

        reply = proxy.ask(a_stage(1, 1), put_body(1))

        assert isinstance(reply, StageLost)
        assert "stage the transaction again" in reply.text

    def test_ends_with_the_proxy(self) -> None:
        proxy = a_broker()
        proxy.ask(a_stage(1), put_body(1))

        proxy = proxy.restarted()

        assert isinstance(proxy.ask(a_commit(1)), StageLost)
        assert ends(proxy) == {}

    def test_ends_when_nothing_is_staged_for_its_transaction_any_more(self) -> None:
        proxy = a_broker()
        proxy.ask(a_stage(1), put_body(1))
        proxy.tick(now_s=STAGED_IDLE_S_MAX - 1)
        proxy.ask(a_stage(1, task=1), put_body(1))
        proxy.tick(now_s=STAGED_IDLE_S_MAX + 1)
        assert proxy.state.part(Staging).batches == 2

        proxy.tick(now_s=2 * STAGED_IDLE_S_MAX)

        assert held(proxy) == proxy.state.part(Staging).batches == 0


class TestACommit:
    def test_appends_to_all_its_topics_with_one_record_of_the_store(self) -> None:
        proxy = a_broker()
        proxy.ask(a_stage(1, 0, topic="a"), put_body(1))
        proxy.ask(a_stage(1, 1, topic="b", count=2), put_body(1, 2))

        decision = proxy.decide(a_commit(1, (0, NONCE, 2)))

        assert ends(proxy) == {"a": 0, "b": 0}
        assert decision.visible_at == proxy.state.lsn
        proxy.commit()
        assert ends(proxy) == {"a": 1, "b": 2}
        assert decision.reply == CommitAck(
            client="p",
            epoch=1,
            request=1,
            boot="boot-1",
            already=False,
            receipts=(TopicReceipt("a", 1, 1, 0), TopicReceipt("b", 1, 2, 0)),
        )
        assert held(proxy) == 0

    def test_continues_with_the_numbers_that_puts_have_begun(self) -> None:
        proxy = a_broker()
        proxy.put(1, count=3)

        reply = staged(proxy, 1, "t", "t")

        assert isinstance(reply, CommitAck)
        assert reply.receipts == (TopicReceipt("t", 4, 2, 3),)
        assert isinstance(proxy.put(6), PutAck)

    def test_gives_each_of_its_batches_a_later_timestamp(self) -> None:
        proxy = a_broker()

        staged(proxy, 1, "t", "t", "t")

        batches = proxy.log.read(1, 0, messages_max=9, bytes_max=999)
        times = [batch.timestamp_ns for batch in batches]
        assert times == sorted(set(times))
        assert len(times) == 3

    def test_takes_the_tries_that_it_names_in_its_order_and_no_others(self) -> None:
        proxy = a_broker()
        one, two, lost = (a_body(text) for text in (b"one", b"two", b"lost"))
        proxy.ask(a_stage(1, task=0, body=lost), lost)
        proxy.ask(a_stage(1, task=1, body=two), two)
        proxy.ask(a_stage(1, task=0, attempt=OTHER_TRY, body=one), one)

        proxy.ask(a_commit(1, (0, OTHER_TRY, 1), (1, NONCE, 1)))

        batches = proxy.log.read(1, 0, messages_max=9, bytes_max=999)
        assert [batch.body for batch in batches] == [one, two]
        assert held(proxy) == 0

    def test_of_less_than_it_names_stores_nothing(self) -> None:
        proxy = a_broker()
        proxy.ask(a_stage(1, topic="a"), put_body(1))

        reply = proxy.ask(a_commit(1, (0, NONCE, 1), (1, NONCE, 1)))

        assert isinstance(reply, StageLost)
        assert reply.task == 1
        assert ends(proxy) == {}

    def test_may_be_empty_and_counts_all_the_same(self) -> None:
        proxy = a_broker()

        empty = replace(a_commit(3), parts=())
        first, again = proxy.ask(empty), proxy.ask(empty)

        assert isinstance(first, CommitAck)
        assert isinstance(again, CommitAck)
        assert (first.already, again.already) == (False, True)

    def test_at_a_bound_stores_nothing_anywhere(self) -> None:
        bound = BrokerSettings(topics={"b": Retention(topic_bytes_max=1)})
        proxy = a_broker(settings=bound)
        proxy.ask(a_stage(1, 0, topic="a"), put_body(1))
        proxy.ask(a_stage(1, 1, topic="b"), put_body(1))

        reply = proxy.ask(a_commit(1, (0, NONCE, 2)))

        assert isinstance(reply, Full)
        assert "topic 'b' holds" in reply.text
        assert ends(proxy) == {}
        assert proxy.state.part(Staging).batches == 2

    def test_of_an_older_process_is_fenced(self) -> None:
        proxy = a_broker()
        proxy.ask(a_stage(1), put_body(1))
        proxy.ask(a_hello("publisher", "p", epoch=2))

        assert isinstance(proxy.ask(a_commit(1)), Fenced)
        assert isinstance(proxy.ask(an_abort(1)), Fenced)
        assert isinstance(proxy.ask(a_commit(1, epoch=2)), CommitAck)

    def test_on_a_full_disk_is_refused_while_staging_continues(self) -> None:
        proxy = a_broker()
        proxy.engine.failed(as_stored(proxy.durable), "the disk is full", now_s=0.0)
        proxy.is_full = True

        stage, commit = proxy.ask(a_stage(1), put_body(1)), proxy.ask(a_commit(1))

        assert isinstance(stage, StageAck)
        assert isinstance(commit, StorageFull)


class TestARepeatedCommit:
    def test_is_answered_with_the_same_receipts_and_stores_nothing(self) -> None:
        proxy = a_broker()
        first = staged(proxy, 7, "a", "b")

        proxy = proxy.restarted()
        again = proxy.ask(a_commit(7, (0, OTHER_TRY, 9)))

        assert isinstance(first, CommitAck)
        assert isinstance(again, CommitAck)
        assert (again.already, again.receipts) == (True, first.receipts)
        assert ends(proxy) == {"a": 1, "b": 1}

    def test_of_an_older_transaction_is_stored_too_and_its_receipts_are_forgotten(self) -> None:
        proxy = a_broker()
        staged(proxy, 1, "a")
        staged(proxy, 4, "a")

        replies = [proxy.ask(a_commit(number)) for number in (1, 3)]

        assert [(r.already, r.receipts) for r in replies if isinstance(r, CommitAck)] == [
            (True, None),
            (True, None),
        ]
        assert ends(proxy) == {"a": 2}

    def test_waits_for_the_first_one_to_be_durable(self) -> None:
        proxy = a_broker()
        proxy.ask(a_stage(1), put_body(1))
        proxy.decide(a_commit(1))

        late = [proxy.decide(a_commit(1)), proxy.decide(a_stage(1), put_body(1))]
        late.append(proxy.decide(an_abort(1)))
        hello = proxy.decide(a_hello("publisher", "p"))

        assert all(isinstance(one.reply, CommitAck) for one in late)
        assert all(one.visible_at == proxy.state.lsn for one in [*late, hello])

    def test_with_another_digest_is_a_conflict(self) -> None:
        proxy = a_broker()
        proxy.ask(a_stage(1), put_body(1))
        proxy.ask(a_commit(1, digest=b"content1"))

        digests = (b"content1", b"content2", None)
        same, other, silent = (proxy.ask(a_commit(1, digest=digest)) for digest in digests)

        assert isinstance(same, CommitAck)
        assert isinstance(other, Conflict)
        assert "another content" in other.text
        assert isinstance(silent, CommitAck)

    def test_is_one_for_each_writer(self) -> None:
        proxy = a_broker(publishers=("p", "q"))
        staged(proxy, 1, "t", client="p")

        reply = staged(proxy, 1, "t", client="q")

        assert isinstance(reply, CommitAck)
        assert not reply.already
        assert ends(proxy) == {"t": 2}

    def test_a_late_stage_of_it_stages_nothing(self) -> None:
        proxy = a_broker()
        staged(proxy, 1, "t")

        assert isinstance(proxy.ask(a_stage(1), put_body(1)), CommitAck)
        assert held(proxy) == 0

    def test_is_known_by_the_number_that_hello_tells(self) -> None:
        proxy = a_broker()
        staged(proxy, 12, "t")

        publisher = proxy.ask(a_hello("publisher", "p", epoch=2))
        stranger = proxy.ask(a_hello("publisher", "stranger"))

        assert isinstance(publisher, HelloAck)
        assert isinstance(stranger, HelloAck)
        assert publisher.transaction == 12
        assert stranger.transaction is UNSET


class TestNumbersOfTheWritersOwn:
    """A publisher numbers its messages itself, so that a message id is known before it is sent."""

    def test_are_kept_where_they_follow(self) -> None:
        proxy = a_broker()
        proxy.put(1)
        proxy.ask(a_stage(1, first_sequence=2), put_body(1))

        reply = proxy.ask(a_commit(1))

        assert isinstance(reply, CommitAck)
        assert reply.receipts == (TopicReceipt("t", 2, 1, 1),)

    @pytest.mark.parametrize("sequence", [1, 3])
    def test_that_do_not_follow_store_nothing(self, sequence: int) -> None:
        proxy = a_broker()
        proxy.put(1)
        proxy.ask(a_stage(1, 0, topic="a"), put_body(1))
        proxy.ask(a_stage(1, 1, first_sequence=sequence), put_body(1))

        reply = proxy.ask(a_commit(1, (0, NONCE, 2)))

        assert isinstance(reply, Gap)
        assert reply.expected == 2
        assert ends(proxy) == {"t": 1}


class TestAnAbort:
    def test_drops_every_try(self) -> None:
        proxy = a_broker()
        proxy.ask(a_stage(1), put_body(1))
        proxy.ask(a_stage(1, attempt=OTHER_TRY), put_body(1))

        first, again = proxy.ask(an_abort(1)), proxy.ask(an_abort(1))

        assert isinstance(first, AbortAck)
        assert isinstance(again, AbortAck)
        assert (first.dropped, again.dropped) == (2, 0)
        assert isinstance(proxy.ask(a_commit(1)), StageLost)
        assert held(proxy) == 0

    def test_leaves_other_transactions_alone(self) -> None:
        proxy = a_broker()
        proxy.ask(a_stage(1), put_body(1))
        proxy.ask(a_stage(2), put_body(1))

        proxy.ask(an_abort(2))

        assert isinstance(proxy.ask(a_commit(1)), CommitAck)

    def test_of_a_committed_one_says_that_it_is_too_late(self) -> None:
        proxy = a_broker()
        staged(proxy, 1, "t")

        reply = proxy.ask(an_abort(1))

        assert isinstance(reply, CommitAck)
        assert reply.already
        assert ends(proxy) == {"t": 1}


BOUNDED = BrokerSettings(staged_bytes_max=6 * MIB)


class TestTheBoundsOfStaging:
    @pytest.fixture(autouse=True)
    def bounds(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Smaller ones: the rules are the same."""
        monkeypatch.setattr(verbs, "TRANSACTION_BYTES_MAX", 4 * MIB)

    def test_a_smaller_bound_of_all_is_one_of_each(self) -> None:
        proxy = a_broker(settings=BrokerSettings(staged_bytes_max=2 * MIB))
        replies = [self.stage(proxy, 1, task) for task in range(3)]

        assert [type(reply) for reply in replies] == [StageAck] * 2 + [Limit]

    BODY = a_body(b"x" * (MIB - 2 * KIB))

    def stage(
        self, proxy: MemoryProxy, transaction: int, task: int = 0, attempt: bytes = NONCE
    ) -> AnyReply:
        return proxy.ask(
            a_stage(transaction, task=task, attempt=attempt, body=self.BODY), self.BODY
        )

    def test_a_transaction_above_its_own_is_refused_for_good(self) -> None:
        proxy = a_broker(settings=BOUNDED)
        replies = [self.stage(proxy, 1, task) for task in range(5)]

        assert [type(reply) for reply in replies] == [StageAck] * 4 + [Limit]
        size = len(self.BODY) + STAGED_BATCH_BYTES
        asked = (
            f"has {4 * size:,} bytes staged, and a batch of {size:,} more is above the {4 * MIB:,}"
        )
        text = str(getattr(replies[-1], "text", ""))
        assert asked in text
        assert "make smaller transactions" in text

    def test_all_together_above_theirs_have_to_wait(self) -> None:
        proxy = a_broker(settings=BOUNDED)
        for number in range(1, 7):
            assert isinstance(self.stage(proxy, number), StageAck)

        assert isinstance(self.stage(proxy, 7), Full)
        proxy.ask(an_abort(1))
        assert isinstance(self.stage(proxy, 7), StageAck)

    def test_a_try_that_a_newer_one_replaces_makes_room_the_oldest_first(self) -> None:
        """A crash loop of a writer must not lock itself out."""
        proxy = a_broker(settings=BOUNDED)
        for task in range(4):
            self.stage(proxy, 1, task)

        replies = [self.stage(proxy, 1, task, OTHER_TRY) for task in range(4)]

        assert all(isinstance(reply, StageAck) for reply in replies)
        parts = [(task, OTHER_TRY, 1) for task in range(4)]
        assert isinstance(proxy.ask(a_commit(1, *parts)), CommitAck)
        assert held(proxy) == 0

    def test_the_try_that_wants_room_is_not_its_own_victim(self) -> None:
        proxy = a_broker(settings=BOUNDED)
        self.stage(proxy, 1, 0)
        for chunk in range(3):
            request = a_stage(1, chunk, task=0, attempt=OTHER_TRY, body=self.BODY)
            assert isinstance(proxy.ask(request, self.BODY), StageAck)

        request = a_stage(1, 1, task=0, body=self.BODY)
        assert isinstance(proxy.ask(request, self.BODY), StageAck)
        assert isinstance(proxy.ask(a_commit(1, (0, NONCE, 2))), CommitAck)

    def test_a_transaction_has_so_many_topics(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(verbs, "TRANSACTION_TOPICS_MAX", 2)
        proxy = a_broker(settings=BOUNDED)

        assert isinstance(staged(proxy, 1, "a", "b"), CommitAck)
        assert isinstance(staged(proxy, 2, "a", "b", "c"), Limit)

    def test_its_new_topics_count_together(self) -> None:
        proxy = a_broker(settings=BOUNDED)
        proxy.allow(topics_max=2)

        assert isinstance(staged(proxy, 1, "a", "b", "c"), Limit)
        assert ends(proxy) == {}

    def test_subscriptions_that_begin_with_its_topics_count_for_no_topic(self) -> None:
        proxy = a_broker(settings=BOUNDED)
        proxy.allow(topics_max=2)
        every = Match(client="s", epoch=1, request=2, match=EVERYTHING, control=1, ends=False)
        assert isinstance(proxy.ask(every), Matched)

        assert isinstance(staged(proxy, 1, "a", "b"), CommitAck)

        assert [log.topic_id for log in proxy.state.topics.values()] == [1, 2]

    def test_a_commit_at_its_limits_fits_in_a_header(self) -> None:
        huge = 2**63 - 1
        nonce = b"x" * limits.NONCE_BYTES_MAX
        parts = tuple(Part(huge, nonce, huge) for _ in range(limits.TRANSACTION_TASKS_MAX))
        commit = Commit(client="p", epoch=1, request=1, transaction=huge, parts=parts, digest=nonce)
        topic = "x" * limits.TOPIC_BYTES_MAX
        receipts = (TopicReceipt(topic, huge, huge, huge),) * limits.TRANSACTION_TOPICS_MAX
        ack = CommitAck(client="p", epoch=1, request=1, already=False, receipts=receipts)

        for frames in (encode(commit), encode(ack)):
            assert len(frames[1]) <= limits.HEADER_BYTES_MAX


class TestStatus:
    def ask(self, proxy: MemoryProxy) -> object:
        report = proxy.ask(Status(client="w", epoch=0, request=1))
        assert isinstance(report, StatusReport)
        return report.staging

    def test_says_nothing_where_there_never_was_a_transaction(self) -> None:
        assert not isinstance(self.ask(a_broker()), StagingStatus)

    def test_counts_what_is_staged_and_who_has_committed(self) -> None:
        proxy = a_broker()
        staged(proxy, 1, "t")
        proxy.ask(a_stage(2), put_body(1))
        proxy.ask(a_stage(2, task=1), put_body(1))

        assert self.ask(proxy) == StagingStatus(
            transactions=1,
            batches=2,
            staged_bytes=2 * (len(put_body(1)) + limits.STAGED_BATCH_BYTES),
            writers=1,
        )


def test_a_record_of_staging_is_no_message_of_a_topic() -> None:
    proxy = a_broker()
    proxy.decide(a_stage(1), put_body(1))

    shown = committed(proxy.state, proxy.state.lsn)

    assert not any(isinstance(record, Appended) for record in shown)
