"""The time by which a process judges the silence of its peers (rule R30)."""

from __future__ import annotations

import pytest

from reliable_pubsub.common.core.answers import NoMessagesYet
from reliable_pubsub.common.core.attention import RETURN_S_MAX, Attention
from reliable_pubsub.common.core.group_messages import Outcome, Settled
from reliable_pubsub.common.core.message_base import Terms
from reliable_pubsub.proxy.transactions.staging import Staging
from reliable_pubsub.relay.core.interest_link import LEASE_S
from tests.core.test_groups import LEASE_S as HOLD_S
from tests.core.test_groups import Members, ack
from tests.fakes import MemoryProxy, a_broker, a_get, a_stage, a_sub, put_body
from tests.relay.test_interest_link import LINK, a_node, a_wish, exact, settle


def turning(attention: Attention, since_s: float, until_s: float) -> float:
    """Look as a loop does that turns every 50 ms."""
    looks = round((until_s - since_s) / 0.05)
    return max(attention.at(since_s + 0.05 * (number + 1)) for number in range(looks))


def test_a_loop_that_turns_measures_the_time_that_passes() -> None:
    attention = Attention()
    attention.at(5.0)

    assert turning(attention, 5.0, 15.0) == pytest.approx(15.0)


@pytest.mark.parametrize("pause_s", [0.5, 3.0, 10_000.0])
def test_stands_still_in_a_pause_and_while_peers_return(pause_s: float) -> None:
    attention = Attention()
    attention.at(0.0)

    assert attention.at(pause_s) == 0.0
    returned_s = pause_s + min(pause_s, RETURN_S_MAX)
    assert turning(attention, pause_s, returned_s) == 0.0
    assert turning(attention, returned_s, returned_s + 1.0) == pytest.approx(1.0)


def test_passes_by_a_tick_a_turn_where_every_turn_is_late() -> None:
    attention = Attention(tick_s=0.1)

    times = [attention.at(0.5 * turn) for turn in range(101)]

    assert times == sorted(times)
    assert times[-1] == pytest.approx(9.9)  # a tick for each turn


def test_never_goes_back() -> None:
    attention = Attention()
    attention.at(1.0)

    assert attention.at(1.1) == attention.at(1.05) == attention.at(1.1) == 1.1


class TestAProxyThatWasPaused:
    """It judges leases after it has read the requests that wait."""

    def paused(self, **terms: object) -> MemoryProxy:
        proxy = a_broker(attention=Attention())
        proxy.tick(now_s=0.0)
        return proxy

    @pytest.mark.parametrize("session", ["clean", "persistent"])
    def test_ends_no_lease_of_a_client_whose_request_waits(self, session: str) -> None:
        proxy = self.paused()
        proxy.ask(a_sub(terms=Terms(session=session, lease_ms=1000)))  # type: ignore[arg-type]

        proxy.tick(now_s=60.0)

        assert isinstance(proxy.ask(a_get(0)), NoMessagesYet)

    def test_leaves_a_message_with_the_member_whose_outcome_waits(self) -> None:
        proxy = a_broker(subscribers=("w1", "w2"), attention=Attention())
        proxy.tick(now_s=0.0)
        group = Members(proxy)
        for name in ("w1", "w2"):
            group.join(name)
        proxy.put(1)
        group.take("w1")

        proxy.tick(now_s=2 * HOLD_S)

        assert group.given("w2") == []
        reply = group.settle("w1", Outcome(0, 1, 1, "extend"))
        assert isinstance(reply, Settled)
        assert reply.refused == ()
        assert group.refused("w1", ack(0)) == []

    def test_keeps_what_is_staged(self) -> None:
        proxy = self.paused()
        proxy.ask(a_stage(1), put_body(1))

        proxy.tick(now_s=86_400.0)

        assert proxy.state.part(Staging).batches == 1

    def test_keeps_its_links(self) -> None:
        attention, wish = Attention(), a_wish()
        node = a_node()
        wish.want(exact("t"))
        settle(wish, node, attention.at(0.0))

        assert node.expire(attention.at(10 * LEASE_S)) == []
        assert node.expire(turning(attention, 10 * LEASE_S, 13 * LEASE_S)) == [LINK]
