"""The Lazy Pirate: the same bytes again, on a new socket, a bounded number of times (R1, R21)."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from reliable_pubsub.common.asking import Asker
from reliable_pubsub.common.core.answers import AnyReply, Busy, Full, Malformed, PutAck
from reliable_pubsub.common.core.errors import MalformedError, ProxyUnreachableError, TryLaterError
from reliable_pubsub.common.core.message_base import Reply
from reliable_pubsub.common.core.requester import Requester
from reliable_pubsub.common.core.retry import RetryPolicy, poll_pause_s
from reliable_pubsub.common.core.wire import encode
from reliable_pubsub.common.transport import Shell
from tests.fakes import FakeClock, FakeTransport, a_hello, a_put, a_world, put_body

REQUEST = a_put(1, request=7)
BODY = put_body(1)
ANSWER = PutAck(client="p", epoch=1, request=7, offset=0)
FULL = Full(client="p", epoch=1, request=7, text="the topic is full")
QUICK = RetryPolicy(timeout_s=2.0, retries_max=3, pause_s=0.1, pause_s_max=10.0)


def a_requester(endpoint: str, retry: RetryPolicy, *, chance: float = 0.0) -> Requester:
    return Requester("p", endpoint, retry=retry, chance=lambda: chance)


class Script:
    """Answers one after the other; None is silence."""

    def __init__(self, *answers: Reply | None) -> None:
        self.clock = FakeClock()
        self.transport = FakeTransport(self._next, self.clock)
        self._answers = list(answers)

    def _next(self, _frames: Sequence[bytes]) -> Sequence[bytes] | None:
        answer = self._answers.pop(0)
        return None if answer is None else encode(answer)

    def ask(self, retry: RetryPolicy = QUICK, *, chance: float = 0.0) -> AnyReply:
        requester = a_requester(self.transport.endpoint, retry, chance=chance)
        asking = requester.asking(REQUEST, BODY)
        return Shell(self.transport, self.clock).run(asking)[0]


class TestAnAnswer:
    def test_that_comes_at_once_ends_the_request(self) -> None:
        script = Script(ANSWER)

        assert script.ask() == ANSWER
        assert (len(script.transport.sent), script.transport.reopened) == (1, 0)
        assert script.clock.sleeps == []

    def test_that_was_lost_is_asked_for_with_the_same_bytes(self) -> None:
        script = Script(None, None, ANSWER)

        assert script.ask() == ANSWER
        assert len(script.transport.sent) == 3
        assert len(set(script.transport.sent)) == 1

    def test_that_was_lost_costs_the_socket(self) -> None:
        """R1: a REQ socket that misses its answer may not send again."""
        script = Script(None, None, ANSWER)

        script.ask()

        assert script.transport.reopened == 2

    @pytest.mark.parametrize(
        "foreign",
        [
            replace(ANSWER, request=6),
            replace(ANSWER, epoch=2),
            replace(ANSWER, client="another"),
        ],
        ids=["request", "epoch", "client"],
    )
    def test_to_another_request_is_dropped(self, foreign: PutAck) -> None:
        """H1, R1: the answer to a dead attempt is never taken for the answer to a live one."""
        script = Script(replace(foreign, offset=99), ANSWER)

        assert script.ask() == ANSWER
        assert script.transport.reopened == 1

    def test_that_says_malformed_is_final(self) -> None:
        script = Script(Malformed(client="", epoch=0, request=0, text="no such verb"))

        with pytest.raises(MalformedError, match="no such verb"):
            script.ask()


class TestNotNow:
    @pytest.mark.parametrize("later", [FULL, Busy(client="p", epoch=1, request=7, text="busy")])
    def test_is_asked_again_on_the_same_socket(self, later: Full | Busy) -> None:
        """R17: FULL is no loss; the put waits its turn."""
        script = Script(later, later, ANSWER)

        assert script.ask() == ANSWER
        assert script.transport.reopened == 0
        assert len(script.clock.sleeps) == 2

    def test_at_the_last_attempt_is_reported_with_its_code(self) -> None:
        script = Script(FULL, FULL, FULL, FULL)

        with pytest.raises(TryLaterError) as caught:
            script.ask()

        assert (caught.value.code, caught.value.attempts) == ("FULL", 4)
        assert "the topic is full" in str(caught.value)

    def test_followed_by_silence_is_silence(self) -> None:
        script = Script(FULL, FULL, FULL, None)

        with pytest.raises(ProxyUnreachableError):
            script.ask()


class TestSilence:
    def test_to_every_attempt_means_in_doubt(self) -> None:
        """R21: the end of all retries is not an outcome."""
        script = Script(None, None, None, None)

        with pytest.raises(ProxyUnreachableError) as caught:
            script.ask()

        assert caught.value.attempts == len(script.transport.sent) == 4
        assert (caught.value.endpoint, caught.value.verb) == ("fake://proxy", "PUT")

    def test_takes_as_long_as_the_policy_says(self) -> None:
        script = Script(None, None, None, None)

        with pytest.raises(ProxyUnreachableError) as caught:
            script.ask()

        assert script.clock.sleeps == [0.1, 0.2, 0.4]
        assert caught.value.waited_s == pytest.approx(4 * 2.0 + 0.7)

    def test_is_followed_by_pauses_that_chance_shortens(self) -> None:
        """Row 0.11: clients that lost the same proxy do not all come back at once."""
        script = Script(None, None, None, None)

        with pytest.raises(ProxyUnreachableError):
            script.ask(chance=0.5)

        assert script.clock.sleeps == pytest.approx([0.075, 0.15, 0.3])

    def test_is_borne_once_if_there_are_no_retries(self) -> None:
        """0 retries are 0 retries, not the default."""
        script = Script(None)

        with pytest.raises(ProxyUnreachableError):
            script.ask(RetryPolicy(retries_max=0))

        assert len(script.transport.sent) == 1


class TestSeveralEndpoints:
    """Endpoints of one service, with commas; a transport that is reopened uses the next one."""

    def test_are_asked_one_after_the_other_and_a_pause_follows_a_round(self) -> None:
        script = Script(None, None, None, ANSWER)
        script.transport.endpoint = "tcp://a:5555,tcp://b:5555"

        assert script.ask() == ANSWER
        assert script.transport.reopened == 3
        assert script.clock.sleeps == [QUICK.pause_s]

    def test_are_each_asked_as_often_as_one_would_be(self) -> None:
        script = Script(*[None] * 8)
        script.transport.endpoint = "tcp://a:5555,tcp://b:5555"

        with pytest.raises(ProxyUnreachableError):
            script.ask()
        assert isinstance(QUICK.retries_max, int)
        assert len(script.transport.sent) == 2 * (QUICK.retries_max + 1)

    def test_are_all_known_to_what_asks_for_a_client(self) -> None:
        script = Script(None, ANSWER)
        world = a_world(script.transport, script.clock)
        asker = Asker("p", "tcp://a:5555,tcp://b:5555", retry=QUICK, world=world)

        asker.ask(REQUEST, BODY)

        assert script.clock.sleeps == []  # a pause follows a round


class TestPauses:
    def test_double_up_to_a_bound(self) -> None:
        policy = RetryPolicy(pause_s=1.0, pause_s_max=5.0)

        assert [policy.pause_before(n, 0.0) for n in (1, 2, 3, 4, 5)] == [1.0, 2.0, 4.0, 5.0, 5.0]

    @given(
        retry=st.integers(1, 10_000),
        chance=st.floats(0, 1, exclude_max=True),
    )
    def test_are_spread_over_the_upper_half(self, retry: int, chance: float) -> None:
        policy = RetryPolicy()

        longest = policy.pause_before(retry, 0.0)
        shortest = policy.pause_before(retry, 1.0)

        assert shortest == pytest.approx(longest / 2)
        assert shortest <= policy.pause_before(retry, chance) <= longest <= policy.pause_s_max

    def test_between_empty_gets_grow_to_a_bound(self) -> None:
        pauses = [poll_pause_s(empty) for empty in range(1, 12)]

        assert pauses == sorted(pauses)
        assert (pauses[0], pauses[-1], poll_pause_s(10_000)) == (0.001, 0.064, 0.064)


def test_an_interrupt_leaves_a_socket_that_can_send_again() -> None:
    class Interrupted(FakeTransport):
        def receive(self, timeout_s: float) -> list[bytes] | None:
            raise KeyboardInterrupt

    clock = FakeClock()
    transport = Interrupted(lambda frames: None, clock)
    request = a_hello("publisher", "p")

    shell = Shell(transport, clock)
    for _ in range(2):
        asking = a_requester("", RetryPolicy()).asking(request)
        with pytest.raises(KeyboardInterrupt):
            shell.run(asking)

    assert transport.reopened == 2
