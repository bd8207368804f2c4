"""Quotas: bounds on the client ids, topics, subscriptions and bytes of a key."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from reliable_pubsub.common.core.actions import AdminAck, DeleteTopic
from reliable_pubsub.common.core.answers import (
    Busy,
    Fenced,
    Full,
    HelloAck,
    MessageBatches,
    PutAck,
    SubAck,
    UnsubAck,
)
from reliable_pubsub.common.core.answers import Limit as LimitAnswer
from reliable_pubsub.common.core.batch import crc32
from reliable_pubsub.common.core.errors import ConfigurationError
from reliable_pubsub.common.core.group_messages import Outcome, Settle, Take
from reliable_pubsub.common.core.limits import STAGED_BATCH_BYTES
from reliable_pubsub.common.core.message_base import GroupTerms, Reply
from reliable_pubsub.common.core.requests import Dead
from reliable_pubsub.common.core.rights import QUOTAS, rights_of
from reliable_pubsub.common.core.start import Earliest
from reliable_pubsub.common.core.transaction_messages import CommitAck, StageAck
from reliable_pubsub.proxy.access.accounts import Accounts
from reliable_pubsub.proxy.access.quotas import Quotas
from reliable_pubsub.proxy.core.applying import apply
from reliable_pubsub.proxy.core.records import Forgotten
from reliable_pubsub.proxy.core.state import BrokerSettings
from reliable_pubsub.proxy.core.topic_log import Retention
from reliable_pubsub.proxy.operators.history import Administration
from reliable_pubsub.proxy.transactions.staging import Staging
from tests.core.rights_world import GovernedProxy, Said, authority, key_of
from tests.fakes import (
    NONCE,
    MemoryProxy,
    a_commit,
    a_get,
    a_hello,
    a_put,
    a_stage,
    a_sub,
    an_abort,
    an_ack,
    an_action,
    an_unsub,
    put_body,
)

ALL: Said = {"ids": ["*"], "put": ["*"], "get": ["*"], "dead_letters": ["*"]}
BODY = put_body(1)
STAGED_BYTES = len(BODY) + STAGED_BATCH_BYTES  # what one staged batch counts


class Bounded(GovernedProxy):
    """A proxy with two keys of all rights: `a` with quotas, `b` without; and a relay."""

    def __init__(self, **quotas: int) -> None:
        super().__init__(a=ALL | quotas, b=ALL | {"admin": ["*"]}, relay=ALL | {"relay": True})

    def restart(self) -> None:
        """Kill this proxy; start it again from what is durable."""
        rights = self.engine.state.authority
        self.engine = self.restarted().engine
        self.engine.govern(rights)

    def hello(
        self, client: str, *, role: Any = "publisher", key: str = "a", epoch: int = 1
    ) -> Reply | None:
        return self.ask_as(key, a_hello(role, client, epoch=epoch))

    def put(  # type: ignore[override]
        self, topic: str, client: str = "p", *, key: str = "a", sequence: int = 1
    ) -> Reply | None:
        put = a_put(sequence, topic=topic, client=client)
        return self.ask_as(key, put, put_body(sequence))

    def delete(self, topic: str) -> None:
        """An operator deletes a topic."""
        number = self.state.part(Administration).last_number + 1
        deleted = self.ask_as("b", an_action(DeleteTopic(topic=topic), number=number))
        assert isinstance(deleted, AdminAck)

    def stage(self, transaction: int, client: str = "p", *, key: str = "a") -> Reply | None:
        return self.ask_as(key, a_stage(transaction, client=client), BODY)

    def sub(self, topic: str, control: int, client: str = "s", *, key: str = "a") -> Reply | None:
        return self.ask_as(key, a_sub(control, topic=topic, client=client))


def refusal(answer: Reply | None) -> LimitAnswer:
    """A refusal, which names the key, the quota and what to do."""
    assert isinstance(answer, LimitAnswer), answer
    assert "'a'" in answer.text
    assert "nothing was changed" in answer.text
    assert "rights.yaml" in answer.text
    return answer


class TestClientIds:
    def test_are_taken_up_to_the_quota_and_refused_beyond_it(self) -> None:
        proxy = Bounded(clients_max=2)

        assert isinstance(proxy.hello("p1"), HelloAck)
        assert isinstance(proxy.hello("p2"), HelloAck)
        refused = refusal(proxy.hello("p3"))

        assert refused.limit == 2
        assert "clients_max" in refused.text
        assert ("publisher", "p3") not in proxy.state.sessions

    def test_count_as_publisher_and_as_subscriber(self) -> None:
        proxy = Bounded(clients_max=1)
        proxy.hello("p1")

        refusal(proxy.hello("p1", role="subscriber"))

    def test_that_are_in_use_continue_beyond_the_quota(self) -> None:
        proxy = Bounded()
        for client in ("p1", "p2"):
            proxy.hello(client)
        proxy.engine.govern(authority(a=ALL | {"clients_max": 1}))

        assert isinstance(proxy.put("t", "p1"), PutAck)
        assert isinstance(proxy.hello("p2", epoch=2), HelloAck)

    @pytest.mark.parametrize("role", ["publisher", "subscriber"])
    def test_of_another_key_count_as_soon_as_they_are_used(self, role: Any) -> None:
        """Two keys that share ids have at most the quotas of both."""
        proxy = Bounded(clients_max=1)
        proxy.hello("shared", role=role, key="b")
        assert isinstance(proxy.hello("shared", role=role, epoch=2), HelloAck)
        proxy.hello("shared-2", role=role, key="b")

        refusal(proxy.hello("shared-2", role=role, epoch=2))

        assert proxy.state.sessions[role, "shared-2"].epoch == 1
        assert proxy.state.part(Accounts).key_of(role, "shared-2") == "b"

    def test_that_were_forgotten_make_room(self) -> None:
        proxy = Bounded(clients_max=1)
        proxy.hello("p1")
        apply(proxy.state, [Forgotten("session", ("publisher", "p1"))])

        assert isinstance(proxy.hello("p2"), HelloAck)

    def test_bound_those_that_stage_because_a_stage_needs_a_session(self) -> None:
        proxy = Bounded(clients_max=1)
        proxy.hello("p1")

        assert isinstance(proxy.stage(1, "p1"), StageAck)
        assert isinstance(proxy.stage(1, "p2"), Fenced)
        refusal(proxy.hello("p2"))

        assert set(proxy.state.part(Staging).clients) == {"p1"}


class TestTopics:
    def test_are_made_up_to_the_quota_and_refused_beyond_it(self) -> None:
        proxy = Bounded(topics_max=1)
        proxy.hello("p")
        assert isinstance(proxy.put("t1"), PutAck)

        refused = refusal(proxy.put("t2"))

        assert "topics_max" in refused.text
        assert set(proxy.state.topics) == {"t1"}

    def test_that_exist_already_take_what_is_put(self) -> None:
        proxy = Bounded(topics_max=0)
        proxy.hello("q", key="b")
        proxy.put("t1", "q", key="b")
        proxy.hello("p")

        assert isinstance(proxy.put("t1"), PutAck)

    def test_are_made_by_a_subscription_too(self) -> None:
        proxy = Bounded(topics_max=0)
        proxy.hello("s", role="subscriber")

        refusal(proxy.sub("t1", 1))

    def test_are_made_by_a_commit_whole_or_not_at_all(self) -> None:
        proxy = Bounded(topics_max=1)
        proxy.hello("p")
        for chunk, topic in enumerate(("t1", "t2")):
            proxy.ask_as("a", a_stage(1, chunk, topic=topic), BODY)

        refusal(proxy.ask_as("a", a_commit(1, (0, NONCE, 2))))

        assert not proxy.state.topics

    def test_that_were_deleted_make_room(self) -> None:
        proxy = Bounded(topics_max=1)
        proxy.hello("p")
        proxy.put("t1")
        proxy.delete("t1")

        assert isinstance(proxy.put("t2"), PutAck)

    def test_that_are_made_again_count_for_the_key_that_makes_them(self) -> None:
        proxy = Bounded(topics_max=1)
        proxy.hello("q", key="b")
        proxy.put("t1", "q", key="b")
        proxy.delete("t1")
        proxy.hello("p")
        assert isinstance(proxy.put("t1"), PutAck)

        refusal(proxy.put("t2"))
        proxy.delete("t1")

        assert isinstance(proxy.put("t2"), PutAck)
        refusal(proxy.put("t1", sequence=2))

    def test_count_after_a_restart(self) -> None:
        proxy = Bounded(topics_max=1)
        proxy.hello("p")
        proxy.put("t1")

        proxy.restart()

        refusal(proxy.put("t2"))


class TestStoredBytes:
    def test_are_taken_up_to_the_quota_and_refused_beyond_it(self) -> None:
        proxy = Bounded(stored_bytes_max=2 * len(BODY))
        proxy.hello("p")
        assert isinstance(proxy.put("t1"), PutAck)
        assert isinstance(proxy.put("t2"), PutAck)

        refused = refusal(proxy.put("t3"))

        assert refused.limit == 2 * len(BODY)
        assert "stored_bytes_max" in refused.text
        assert "acknowledge" in refused.text
        assert set(proxy.state.topics) == {"t1", "t2"}

    def test_are_counted_over_all_ids_of_the_key_and_no_other(self) -> None:
        proxy = Bounded(stored_bytes_max=len(BODY))
        proxy.hello("other", key="b")
        proxy.put("t1", "other", key="b")
        for client in ("p", "p2"):
            proxy.hello(client)
        assert isinstance(proxy.put("t1", "p"), PutAck)

        refusal(proxy.put("t2", "p2"))

        assert isinstance(proxy.put("t2", "other", key="b"), PutAck)

    def test_that_are_removed_make_room(self) -> None:
        proxy = Bounded(stored_bytes_max=len(BODY))
        proxy.hello("p")
        proxy.put("t1")
        refusal(proxy.put("t2"))

        proxy.delete("t1")

        assert isinstance(proxy.put("t2"), PutAck)

    def test_that_a_put_makes_room_for_do_not_count(self) -> None:
        proxy = Bounded(stored_bytes_max=len(BODY))
        retention = Retention(topic_bytes_max=len(BODY), on_bound="lose_oldest")
        proxy.engine.reconfigure(BrokerSettings(retention=retention))
        proxy.hello("p")
        proxy.put("t1")

        assert isinstance(proxy.put("t1", sequence=2), PutAck)

    def test_count_after_a_restart(self) -> None:
        proxy = Bounded(stored_bytes_max=len(BODY))
        proxy.hello("p")
        proxy.put("t1")

        proxy.restart()

        refusal(proxy.put("t2"))

    def test_count_for_the_key_that_has_put_under_their_id_last(self) -> None:
        proxy = Bounded(stored_bytes_max=2 * len(BODY))
        proxy.hello("p", key="b")
        for sequence in (1, 2):
            proxy.put("t1", key="b", sequence=sequence)

        refusal(proxy.put("t1", sequence=3))
        proxy.hello("p", epoch=2)

        assert proxy.state.part(Accounts).of["a"].stored_bytes == 2 * len(BODY)
        assert proxy.state.part(Accounts).of["b"].stored_bytes == 0

    def test_come_with_the_id_of_another_key(self) -> None:
        proxy = Bounded(stored_bytes_max=2 * len(BODY) - 1)
        for client in ("p", "p2"):
            proxy.hello(client, key="b")
            proxy.put("t1", client, key="b")
        assert isinstance(proxy.hello("p", epoch=2), HelloAck)

        refusal(proxy.hello("p2", epoch=2))

        assert proxy.state.part(Accounts).of["a"].stored_bytes == len(BODY)

    def test_from_before_the_proxy_had_rights_stop_no_session(self) -> None:
        proxy = Bounded(stored_bytes_max=0)
        proxy.ask(a_hello("publisher", "p"))
        MemoryProxy.put(proxy, 1)

        assert isinstance(proxy.hello("p", epoch=2), HelloAck)
        assert proxy.state.part(Accounts).of["a"].stored_bytes == len(BODY)

    def test_of_a_transaction_count_when_it_is_committed(self) -> None:
        proxy = Bounded(stored_bytes_max=len(BODY))
        proxy.hello("p")
        for chunk, topic in enumerate(("t1", "t2")):
            assert isinstance(proxy.ask_as("a", a_stage(1, chunk, topic=topic), BODY), StageAck)

        refusal(proxy.ask_as("a", a_commit(1, (0, NONCE, 2))))

        assert not proxy.state.topics

    def test_of_dead_letters_count_for_the_key_that_rejects(self) -> None:
        proxy = Bounded(stored_bytes_max=0)
        proxy.hello("q", key="b")
        proxy.put("t", "q", key="b")
        proxy.hello("s", role="subscriber")
        proxy.ask_as("a", a_sub(1, cursor=0))

        head: dict[str, Any] = {"client": "s", "epoch": 1, "request": 9, "boot": "boot-1"}
        dead = Dead(**head, topic="t", generation=1, cursor=0, crc=crc32(BODY))

        refusal(proxy.ask_as("a", dead, BODY))

    def test_of_a_dead_letter_that_a_waiting_take_makes_count_for_its_own_key(self) -> None:
        """Whatever key has asked for something meanwhile."""
        proxy = Bounded(stored_bytes_max=0)
        proxy.hello("p", key="b")
        proxy.put("t", key="b")
        terms = GroupTerms(lease_ms=1000, max_deliveries=1)
        for member in ("w1", "w2"):
            proxy.hello(member, role="subscriber", key="b")
            joins = replace(a_sub(1, client=member, start=Earliest), group="g", group_terms=terms)
            proxy.ask_as("b", joins)
        takes: dict[str, Any] = {"epoch": 1, "request": 9, "topic": "t", "group": "g"}
        proxy.ask_as("b", Take(client="w1", generation=1, **takes))
        came = (Outcome(0, 1, 1, "extend"),)
        confirms = takes | {"request": 10}
        proxy.ask_as("b", Settle(client="w1", generation=1, outcomes=came, **confirms))
        waits = Take(client="w2", generation=1, wait_ms=30_000, **takes)
        assert proxy.ask_as("b", waits) is None
        idle = a_get(0, client="idle")
        assert isinstance(proxy.ask_as("a", idle, over="another connection"), Fenced)

        proxy.tick(now_s=2.0)

        assert proxy.state.topics["t.dead"].end == 1
        assert proxy.state.part(Accounts).key_of("subscriber", "w2") == "b"

    def test_of_all_keys_together_have_a_bound_too(self) -> None:
        proxy = Bounded()
        proxy.engine.reconfigure(BrokerSettings(stored_bytes_max=len(BODY)))
        proxy.hello("p")
        proxy.hello("q", key="b")
        assert isinstance(proxy.put("t"), PutAck)

        full = proxy.put("t", "q", key="b")
        proxy.delete("t")

        assert isinstance(full, Full)
        assert "stored_bytes_max" in full.text
        assert isinstance(proxy.put("t", "q", key="b"), PutAck)

    def test_what_has_ended_has_no_record_forever(self) -> None:
        proxy = Bounded()
        proxy.hello("p")
        proxy.put("t")
        proxy.delete("t")
        assert list(proxy.durable.part(Accounts).ended) == [("topic", "t")]

        proxy.tick()

        assert not proxy.durable.part(Accounts).ended


class TestSubscriptions:
    def test_are_begun_up_to_the_quota_and_refused_beyond_it(self) -> None:
        proxy = Bounded(subscriptions_max=1)
        proxy.hello("s", role="subscriber")
        assert isinstance(proxy.sub("t1", 1), SubAck)

        refused = refusal(proxy.sub("t2", 2))

        assert "subscriptions_max" in refused.text
        assert "t2" not in proxy.state.topics

    def test_are_counted_over_all_ids_of_the_key(self) -> None:
        proxy = Bounded(subscriptions_max=1)
        for client in ("s1", "s2"):
            proxy.hello(client, role="subscriber")
        proxy.sub("t1", 1, "s1")

        refusal(proxy.sub("t1", 1, "s2"))

    def test_come_with_the_id_of_another_key(self) -> None:
        proxy = Bounded(subscriptions_max=1)
        for client in ("s1", "s2"):
            proxy.hello(client, role="subscriber", key="b")
            proxy.sub("t", 1, client, key="b")
        assert isinstance(proxy.hello("s1", role="subscriber", epoch=2), HelloAck)

        refusal(proxy.hello("s2", role="subscriber", epoch=2))

    def test_may_be_resumed_and_moved(self) -> None:
        proxy = Bounded(subscriptions_max=1)
        proxy.hello("s", role="subscriber")
        proxy.sub("t1", 1)

        assert isinstance(proxy.sub("t1", 2), SubAck)

    def test_that_have_ended_make_room(self) -> None:
        proxy = Bounded(subscriptions_max=1)
        proxy.hello("s", role="subscriber")
        proxy.sub("t1", 1)
        assert isinstance(proxy.ask_as("a", an_unsub(2, topic="t1")), UnsubAck)

        assert isinstance(proxy.sub("t2", 3), SubAck)

    def test_by_a_group_count_after_a_restart(self) -> None:
        proxy = Bounded(subscriptions_max=2)
        for client, key in (("s", "a"), ("other", "b")):
            proxy.hello(client, role="subscriber", key=key)
        joins = replace(a_sub(1), group="g", group_terms=GroupTerms(lease_ms=1000))
        assert isinstance(proxy.ask_as("a", joins), SubAck)
        assert isinstance(proxy.ask_as("b", replace(joins, client="other")), SubAck)
        proxy.restart()

        assert isinstance(proxy.sub("t2", 2), SubAck)
        refusal(proxy.sub("t3", 3))
        ends = replace(an_unsub(4), group="g", ends_group=True)
        assert isinstance(proxy.ask_as("a", ends), UnsubAck)
        assert isinstance(proxy.sub("t3", 5), SubAck)


def test_groups_that_have_ended_are_not_remembered() -> None:
    """Also where no quota counts the subscriptions of the key."""
    proxy = Bounded(bytes_per_s_max=1)
    proxy.hello("s", role="subscriber")
    terms = GroupTerms(lease_ms=1000)
    for number in range(1, 400, 2):
        name = f"workers-{number}"
        begins = replace(a_sub(number), group=name, group_terms=terms)
        ends = replace(an_unsub(number + 1), group=name, ends_group=True)
        assert isinstance(proxy.ask_as("a", begins), SubAck)
        assert isinstance(proxy.ask_as("a", ends), UnsubAck)

    assert len(proxy.state.kept(Quotas)._running["a"].groups) <= 64


class TestStagedBytes:
    def test_are_taken_up_to_the_quota_and_refused_beyond_it(self) -> None:
        proxy = Bounded(staged_bytes_max=2 * STAGED_BYTES - 1)
        proxy.hello("p")
        assert isinstance(proxy.stage(1), StageAck)

        refused = refusal(proxy.stage(2))

        assert "staged_bytes_max" in refused.text
        assert proxy.state.part(Staging).held_bytes == STAGED_BYTES

    def test_exactly_the_quota_is_allowed(self) -> None:
        proxy = Bounded(staged_bytes_max=2 * STAGED_BYTES)
        proxy.hello("p")

        assert isinstance(proxy.stage(1), StageAck)
        assert isinstance(proxy.stage(2), StageAck)

    def test_are_counted_over_all_ids_of_the_key(self) -> None:
        proxy = Bounded(staged_bytes_max=STAGED_BYTES)
        proxy.hello("p1")
        proxy.hello("p2")
        proxy.stage(1, "p1")

        refusal(proxy.stage(1, "p2"))

    def test_count_for_the_key_that_stages_and_not_for_that_of_the_session(self) -> None:
        proxy = Bounded(staged_bytes_max=STAGED_BYTES)
        proxy.hello("p", key="b")

        assert isinstance(proxy.stage(1), StageAck)
        refusal(proxy.stage(2))

    @pytest.mark.parametrize(
        "end", [a_commit(1, (0, NONCE, 1)), an_abort(1)], ids=["commit", "abort"]
    )
    def test_are_free_again_after(self, end: Any) -> None:
        proxy = Bounded(staged_bytes_max=STAGED_BYTES)
        proxy.hello("p")
        proxy.stage(1)

        proxy.ask_as("a", end)

        assert isinstance(proxy.stage(2), StageAck)


class TestBytesPerSecond:
    def test_are_taken_for_two_seconds_at_once_and_then_as_time_passes(self) -> None:
        proxy = Bounded(bytes_per_s_max=len(BODY))
        proxy.hello("p")
        for transaction in (1, 2):
            assert isinstance(proxy.stage(transaction), StageAck)

        busy = proxy.stage(3)
        proxy.now_s += 1.0

        assert isinstance(busy, Busy)
        assert "bytes_per_s_max" in busy.text
        assert isinstance(proxy.stage(3), StageAck)
        assert isinstance(proxy.stage(4), Busy)

    def test_a_refused_put_is_not_stored_and_uses_nothing_up(self) -> None:
        proxy = Bounded(bytes_per_s_max=1)
        proxy.hello("p")
        assert isinstance(proxy.put("t1"), PutAck)

        for _ in range(3):
            assert isinstance(proxy.put("t2"), Busy)
        proxy.now_s += len(BODY)

        assert set(proxy.state.topics) == {"t1"}
        assert isinstance(proxy.put("t2"), PutAck)

    def test_a_commit_and_what_has_no_body_are_not_paced(self) -> None:
        proxy = Bounded(bytes_per_s_max=1)
        proxy.hello("p")
        proxy.stage(1)
        assert isinstance(proxy.stage(2), Busy)

        assert isinstance(proxy.ask_as("a", a_commit(1, (0, NONCE, 1))), CommitAck)
        assert isinstance(proxy.hello("s", role="subscriber"), HelloAck)

    def test_have_another_rate_at_once(self) -> None:
        proxy = Bounded(bytes_per_s_max=1)
        proxy.hello("p")
        proxy.stage(1)
        assert isinstance(proxy.stage(2), Busy)

        proxy.engine.govern(authority(a=ALL | {"bytes_per_s_max": 1_000}))

        assert isinstance(proxy.stage(2), StageAck)


class TestAKey:
    def test_without_quotas_is_not_bounded_and_pays_for_no_other(self) -> None:
        proxy = Bounded(clients_max=0, topics_max=0, subscriptions_max=0, staged_bytes_max=0)

        assert isinstance(proxy.hello("p", key="b"), HelloAck)
        assert isinstance(proxy.put("t", key="b"), PutAck)
        assert isinstance(proxy.stage(1, key="b"), StageAck)
        assert isinstance(proxy.ask_as("b", a_commit(1, (0, NONCE, 1))), CommitAck)
        assert isinstance(proxy.hello("s", role="subscriber", key="b"), HelloAck)
        assert isinstance(proxy.sub("t", 1, key="b"), SubAck)

    def test_that_asks_by_way_of_a_relay_has_its_own_quotas(self) -> None:
        proxy = Bounded(clients_max=1)
        hello = replace(a_hello("publisher", "p1"), key=key_of("a"))
        assert isinstance(proxy.ask_as("relay", hello), HelloAck)

        refusal(proxy.hello("p2"))

    def test_is_refused_and_answered_by_the_verb_alone_if_that_makes_nothing(self) -> None:
        proxy = Bounded(clients_max=0)

        assert isinstance(proxy.put("t"), Fenced)

    def test_whose_quotas_are_used_up_continues_with_what_it_has(self) -> None:
        proxy = Bounded(clients_max=2, topics_max=1, subscriptions_max=1)
        proxy.hello("p")
        proxy.hello("s", role="subscriber")
        proxy.sub("t", 1)

        assert isinstance(proxy.put("t"), PutAck)
        assert isinstance(proxy.ask_as("a", a_get(0)), MessageBatches)
        assert isinstance(proxy.ask_as("a", an_ack(1)), PutAck)

    def test_has_other_quotas_at_once(self) -> None:
        proxy = Bounded(clients_max=1)
        proxy.hello("p1")
        refusal(proxy.hello("p2"))

        proxy.engine.govern(authority(a=ALL | {"clients_max": 2}))

        assert isinstance(proxy.hello("p2"), HelloAck)
        refusal(proxy.hello("p3"))


class TestAFileOfRights:
    @pytest.mark.parametrize("quota", QUOTAS)
    def test_says_quotas_beside_rights(self, quota: str) -> None:
        rights = rights_of({"a": {"put": ["t"], quota: 3}}, "rights.yaml")["a"]

        assert getattr(rights, quota) == 3
        assert rights.has_quotas

    @pytest.mark.parametrize("value", [-1, "many", 1.5, 2**64])
    def test_has_quotas_that_are_numbers(self, value: object) -> None:
        with pytest.raises(ConfigurationError, match="quotas with numbers"):
            rights_of({"a": {"topics_max": value}}, "rights.yaml")
