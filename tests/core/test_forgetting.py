"""What has ended and can have no effect is forgotten: no limit is used up forever (rule R26)."""

from __future__ import annotations

import pytest

from reliable_pubsub.common.core.answers import (
    AnyReply,
    Fenced,
    HelloAck,
    Limit,
    NotSub,
    PutAck,
    Stale,
    SubAck,
)
from reliable_pubsub.common.core.limits import EPOCH_STEP_MAX, NUMBER_MAX
from reliable_pubsub.common.core.message_base import Role, Start, Terms
from reliable_pubsub.common.core.names import id_of_replica, is_unique_id, name_of_replica
from reliable_pubsub.common.core.transaction_messages import CommitAck, StageAck
from reliable_pubsub.proxy.core.applying import apply, committed
from reliable_pubsub.proxy.core.forgetting import EPOCH_FORGOTTEN_MAX, forgotten
from reliable_pubsub.proxy.core.records import Granted
from reliable_pubsub.proxy.core.state import BrokerSettings, Memory
from tests.fakes import (
    LOG,
    MemoryProxy,
    a_broker,
    a_bye,
    a_commit,
    a_get,
    a_hello,
    a_put,
    a_stage,
    a_sub,
    an_unsub,
    put_body,
    sub_ack,
)

CLEAN = Terms(session="clean", lease_ms=10_000)
NOTHING = Memory(idle_sessions_max=0, ended_max=0, ended_clean_max=0)


def a_forgetful_broker(memory: Memory = NOTHING, **limits: int) -> MemoryProxy:
    proxy = MemoryProxy(settings=BrokerSettings(memory=memory))
    proxy.allow(**limits)
    return proxy


def tick(proxy: MemoryProxy) -> None:
    """What has ended is durable, and then forgotten."""
    proxy.tick(now_s=proxy.now_s + 1)


def begun(proxy: MemoryProxy, client: str, role: Role = "subscriber") -> int:
    """Say HELLO as a client does that knows nothing; return the epoch."""
    reply = proxy.ask(a_hello(role, client))
    if isinstance(reply, HelloAck):
        return 1
    assert isinstance(reply, Fenced)
    epoch = reply.current_epoch + 1
    assert isinstance(proxy.ask(a_hello(role, client, epoch=epoch)), HelloAck)
    return epoch


class TestATopic:
    @pytest.mark.parametrize("ends", ["with BYE", "with its lease", "with UNSUB"])
    def test_takes_any_number_of_subscribers_one_after_another(self, ends: str) -> None:
        proxy = a_forgetful_broker(Memory(), subscriptions_per_topic_max=2, clients_max=4)
        terms = Terms() if ends == "with UNSUB" else CLEAN

        for number in range(20):
            client = f"s{number}"
            epoch = begun(proxy, client)
            sub_ack(proxy.ask(a_sub(client=client, epoch=epoch, terms=terms)))
            if ends == "with BYE":
                proxy.ask(a_bye(client=client, epoch=epoch))
            elif ends == "with UNSUB":
                proxy.ask(an_unsub(2, client=client, epoch=epoch))
            else:
                proxy.tick(now_s=proxy.now_s + 30)
            if number == 10:
                proxy = proxy.restarted()

        assert len(proxy.state.sessions) <= 4

    def test_that_has_as_many_as_it_may_is_refused_with_what_can_be_done(self) -> None:
        proxy = a_broker(subscribers=["s", "s2"])
        proxy.allow(subscriptions_per_topic_max=1)
        proxy.ask(a_sub())

        refused = proxy.ask(a_sub(client="s2"))
        proxy.ask(an_unsub(2))
        taken = proxy.ask(a_sub(client="s2"))

        assert isinstance(refused, Limit)
        assert "Unsubscribe those that are gone" in refused.text
        assert "subscriptions_per_topic_max" in refused.text
        assert isinstance(taken, SubAck)

    def test_remembers_the_newest_that_have_ended(self) -> None:
        proxy = a_broker(
            subscribers=["s1", "s2", "s3"], settings=BrokerSettings(memory=Memory(ended_max=2))
        )
        for client in ("s1", "s2", "s3"):
            proxy.ask(a_sub(client=client))
            proxy.put(int(client[1:]))
            proxy.ask(a_get(1, client=client))
        for client in ("s2", "s1", "s3"):
            proxy.ask(an_unsub(2, client=client))

        tick(proxy)
        again = proxy.restarted()

        assert sorted(proxy.state.topics["t"].subscriptions) == ["s1", "s3"]
        assert sorted(again.state.topics["t"].subscriptions) == ["s1", "s3"]
        began = sub_ack(again.ask(a_sub(3, client="s3", start=Start("last"))))
        assert began.cursor == 2  # where it ended, not at the end


class TestASubscriptionThatIsForgotten:
    def ended(self) -> MemoryProxy:
        """Its subscriber has seen one of two messages, left, and lives."""
        proxy = a_forgetful_broker()
        proxy.ask(a_hello("subscriber", "s"))
        proxy.ask(a_hello("publisher", "p"))
        proxy.put(1)
        sub_ack(proxy.ask(a_sub(topic="other")))
        sub_ack(proxy.ask(a_sub(2, start=Start("earliest"), terms=CLEAN)))
        proxy.put(2)
        proxy.ask(a_get(1))
        proxy.ask(a_bye())
        tick(proxy)
        assert "s" not in proxy.state.topics["t"].subscriptions
        return proxy

    def test_is_not_begun_again_by_a_late_copy_of_its_sub(self) -> None:
        proxy = self.ended()

        for late in (a_sub(2, terms=CLEAN), a_sub(2, start=Start("earliest"), terms=CLEAN)):
            assert isinstance(proxy.ask(late), NotSub)
        assert isinstance(proxy.ask(a_sub(2)), Stale)
        assert "s" not in proxy.state.topics["t"].subscriptions

    def test_is_reported_to_a_subscriber_that_continues_with_it(self) -> None:
        proxy = self.ended()

        assert isinstance(proxy.ask(a_get(1)), NotSub)
        assert isinstance(proxy.ask(a_sub(3, log=LOG, cursor=1, terms=CLEAN)), NotSub)

    @pytest.mark.parametrize("restarts", [False, True])
    def test_is_never_taken_for_the_next_one(self, restarts: bool) -> None:
        """A late GET of the old one would move the cursor of the new one, and lose messages."""
        proxy = self.ended()
        if restarts:
            proxy = proxy.restarted()

        begun = sub_ack(proxy.ask(a_sub(3, start=Start("earliest"), terms=CLEAN)))
        late = proxy.ask(a_get(2, boot=proxy.state.boot))

        assert isinstance(late, Stale)
        assert begun.generation > 1
        assert proxy.state.topics["t"].subscriptions["s"].cursor == 0

    def test_is_forgotten_only_when_its_end_is_durable(self) -> None:
        proxy = a_forgetful_broker()
        proxy.ask(a_hello("subscriber", "s"))
        proxy.ask(a_sub())
        proxy.decide(an_unsub(2))

        assert forgotten(proxy.state) == []


class TestAnId:
    @pytest.mark.parametrize("role", ["publisher", "subscriber"])
    def test_that_has_no_effect_makes_room_for_others(self, role: Role) -> None:
        proxy = a_forgetful_broker(Memory(), clients_max=3)

        for number in range(20):
            begun(proxy, f"c{number}", role)

        assert len(proxy.state.sessions) == 3
        assert len(proxy.restarted().state.sessions) == 3

    def test_is_remembered_by_its_subscription(self) -> None:
        proxy = a_forgetful_broker()
        proxy.ask(a_hello("subscriber", "s"))
        proxy.ask(a_sub())

        tick(proxy)

        assert ("subscriber", "s") in proxy.restarted().state.sessions

    @pytest.mark.parametrize("how", ["a put", "a transaction"])
    def test_is_remembered_by_its_numbers(self, how: str) -> None:
        """Otherwise a put of an older process would be compared with those of a newer one."""
        proxy = a_forgetful_broker()
        proxy.ask(a_hello("publisher", "p", epoch=2))
        if how == "a put":
            assert isinstance(proxy.ask(a_put(1, epoch=2), put_body(1)), PutAck)
        else:
            assert isinstance(proxy.ask(a_stage(1), put_body(1)), StageAck)
            assert isinstance(proxy.ask(a_commit(1, epoch=2)), CommitAck)

        tick(proxy)
        proxy = proxy.restarted()
        tick(proxy)

        fenced = proxy.ask(a_put(1), put_body(1))
        assert isinstance(fenced, Fenced)
        assert fenced.current_epoch == 2

    def test_heard_last_is_forgotten_last(self) -> None:
        proxy = a_forgetful_broker(Memory(idle_sessions_max=2))
        for client in ("a", "b", "c"):
            proxy.ask(a_hello("subscriber", client))
        proxy.decide(a_get(0, client="a"))

        tick(proxy)

        assert sorted(client for _, client in proxy.state.sessions) == ["a", "c"]


class TestAnIdThatIsForgotten:
    def forgotten(self) -> MemoryProxy:
        proxy = a_forgetful_broker()
        proxy.ask(a_hello("subscriber", "s", epoch=7))
        tick(proxy)
        assert not proxy.state.sessions
        return proxy

    @pytest.mark.parametrize("restarts", [False, True])
    def test_is_never_granted_an_epoch_that_it_had(self, restarts: bool) -> None:
        """A late HELLO of a dead process would fence the living one (decisions/0004)."""
        proxy = self.forgotten()
        if restarts:
            proxy = proxy.restarted()

        late = proxy.ask(a_hello("subscriber", "s", epoch=7))

        assert isinstance(late, Fenced)
        assert late.current_epoch == 7
        assert begun(proxy, "s") == 8

    def test_learns_that_it_is_not_known_and_not_that_another_has_taken_over(self) -> None:
        reply = self.forgotten().ask(a_get(0, epoch=7))

        assert isinstance(reply, Fenced)
        assert reply.current_epoch == 0

    def test_is_not_one_whose_epoch_leaves_no_room_for_others(self) -> None:
        """An older version granted any epoch."""
        proxy = a_forgetful_broker()
        apply(proxy.state, (Granted("publisher", "old", EPOCH_FORGOTTEN_MAX + 1, b""),))
        committed(proxy.state, proxy.state.lsn)

        tick(proxy)

        assert proxy.state.epoch_floor == 0
        assert begun(proxy, "another") == 1

    def test_leaves_the_ids_of_others_as_they_are(self) -> None:
        proxy = a_forgetful_broker(Memory(idle_sessions_max=1))
        proxy.ask(a_hello("subscriber", "old", epoch=9))
        proxy.ask(a_hello("subscriber", "young"))

        tick(proxy)

        assert [client for _, client in proxy.state.sessions] == ["young"]
        assert isinstance(proxy.ask(a_hello("subscriber", "young", epoch=2)), HelloAck)


def put_and_end(proxy: MemoryProxy, publisher: str, *topics: str) -> None:
    """A process that puts once and is killed."""
    assert isinstance(proxy.ask(a_hello("publisher", publisher)), HelloAck | Fenced)
    epoch = proxy.state.epoch_floor + 1
    if ("publisher", publisher) not in proxy.state.sessions:
        assert isinstance(proxy.ask(a_hello("publisher", publisher, epoch=epoch)), HelloAck)
    epoch = proxy.state.sessions["publisher", publisher].epoch
    for topic in topics:
        put = a_put(1, client=publisher, epoch=epoch, topic=topic)
        assert isinstance(proxy.ask(put, put_body(1)), PutAck)


class TestAUniquePublisher:
    """Its id ends with its process, so its numbers are not kept for good."""

    def ids(self, count: int) -> list[str]:
        return [id_of_replica("web", n.to_bytes(8), is_kept=False) for n in range(count)]

    @pytest.mark.parametrize("restarts", [False, True])
    def test_that_has_ended_leaves_no_limit_used_up(self, restarts: bool) -> None:
        limits = {"clients_max": 6, "publishers_per_topic_max": 2}
        proxy = a_forgetful_broker(Memory(idle_sessions_max=4), **limits)
        put_and_end(proxy, "p", "t")  # one whose state another process continues
        for client in self.ids(30):
            put_and_end(proxy, client, "t", "u")
            tick(proxy)
            if restarts:
                proxy = proxy.restarted()
                proxy.allow(**limits)

        assert len(proxy.state.sessions) <= 6
        assert len(proxy.state.topics["t"].publishers) <= 6
        assert proxy.state.unique_numbers.keys() == set(self.ids(30)[-4:])
        assert "p" in proxy.state.topics["t"].publishers
        assert proxy.state.topics["t"].end == 31

    def test_that_was_forgotten_stores_nothing_late(self) -> None:
        proxy = a_forgetful_broker()
        (client,) = self.ids(1)
        put_and_end(proxy, client, "t")
        tick(proxy)
        assert not proxy.state.sessions

        late = proxy.ask(a_put(1, client=client, topic="t"), put_body(1))

        assert isinstance(late, Fenced)
        assert proxy.state.topics["t"].end == 1

    def test_is_told_from_a_slot_by_the_end_of_its_id(self) -> None:
        (unique,) = self.ids(1)
        slot = id_of_replica(unique, bytes(8), is_kept=True)

        assert (is_unique_id(unique), is_unique_id(slot)) == (True, False)
        assert (name_of_replica(unique), name_of_replica(slot)) == ("web", unique)

    def test_is_kept_while_it_stages_a_transaction(self) -> None:
        proxy = a_forgetful_broker()
        (client,) = self.ids(1)
        put_and_end(proxy, client, "t")
        assert isinstance(proxy.ask(a_stage(1, client=client), put_body(1)), StageAck)

        tick(proxy)

        assert ("publisher", client) in proxy.state.sessions


class TestAnEpoch:
    def ask(self, proxy: MemoryProxy, epoch: int) -> AnyReply:
        return proxy.ask(a_hello("publisher", "p", epoch=epoch))

    def test_far_above_the_current_one_is_refused_and_uses_nothing_up(self) -> None:
        proxy = MemoryProxy()

        refused = self.ask(proxy, NUMBER_MAX)

        assert isinstance(refused, Fenced)
        assert refused.current_epoch == 0
        assert isinstance(self.ask(proxy, 1), HelloAck)

    def test_may_be_above_the_current_one_by_a_step(self) -> None:
        proxy = MemoryProxy()

        assert isinstance(self.ask(proxy, EPOCH_STEP_MAX), HelloAck)
        assert isinstance(self.ask(proxy, 2 * EPOCH_STEP_MAX + 1), Fenced)
        assert isinstance(self.ask(proxy, 2 * EPOCH_STEP_MAX), HelloAck)
