"""The queue of pushes: direct followers only, and a pull only for what is missing."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reliable_pubsub.common.core.limits import MIB
from reliable_pubsub.common.core.message_base import BatchHeader
from reliable_pubsub.relay.core.push import Pushed, PushFrames
from reliable_pubsub.subscriber.core.place import Standing
from reliable_pubsub.subscriber.core.push_timing import PushTiming
from reliable_pubsub.subscriber.push.core.pull_timer import PullTimer
from reliable_pubsub.subscriber.push.core.push_queue import QUEUE_BYTES_MAX, PushQueue

LOG, BOOT = "log", "boot-1"
TIMING = PushTiming()


def a_push(
    base: int, count: int = 1, *, boot: str = BOOT, log: str = LOG, body: bytes | None = b"x"
) -> PushFrames:
    header = BatchHeader(base, count, "p", base + 1, base, 0, len(body or b""))
    return PushFrames("t", Pushed(boot=boot, log=log, batch=header), body)


def a_queue(cursor: int = 0, *, now_s: float = 0.0) -> PushQueue:
    """A queue that is linked and has pulled once, in vain."""
    queue = PushQueue(PullTimer(TIMING))
    queue.stand(Standing(LOG, BOOT, cursor, cursor))
    queue.timer.linked(True)
    queue.pulled(None, now_s)
    assert queue.pull_due_in_s(now_s) > 0
    return queue


def taken(queue: PushQueue) -> list[int]:
    return [header.base for header, _ in queue.take()]


def test_what_was_taken_and_dropped_is_pulled_at_once() -> None:
    """Its subscriber still has its cursor before it: no push brings it again."""
    queue = a_queue(7)
    queue.pushed(a_push(7), 1.0)
    taken(queue)

    queue.stand(Standing(LOG, BOOT, 7, 7))

    assert queue.pull_due_in_s(1.0) == 0


class TestAPush:
    def test_that_follows_directly_is_taken_without_a_pull(self) -> None:
        queue = a_queue(7)

        queue.pushed(a_push(7, 2), 1.0)
        queue.pushed(a_push(9), 1.0)

        assert taken(queue) == [7, 9]
        assert queue.pull_due_in_s(1.0) > 0

    def test_that_begins_below_and_ends_above_the_cursor_is_taken(self) -> None:
        queue = a_queue(8)

        queue.pushed(a_push(7, 3), 1.0)

        assert taken(queue) == [7]

    def test_that_came_before_is_dropped(self) -> None:
        queue = a_queue(0)

        for base in (0, 0, 1, 0, 1):
            queue.pushed(a_push(base), 1.0)

        assert taken(queue) == [0, 1]
        assert queue.timer.counts.repeats == 3

    @pytest.mark.parametrize(
        "push",
        [
            a_push(1),
            a_push(0, body=None),
            a_push(0, boot="boot-2"),
            a_push(0, log="other"),
        ],
        ids=["a jump", "a place only", "another start of the proxy", "another log"],
    )
    def test_that_cannot_be_taken_makes_a_pull_due(self, push: PushFrames) -> None:
        queue = a_queue(0)

        queue.pushed(push, 1.0)

        assert taken(queue) == []
        assert queue.pull_due_in_s(1.0) == 0

    def test_that_does_not_fit_any_more_is_pulled_after_what_is_queued(self) -> None:
        queue = a_queue(0)
        fitting = QUEUE_BYTES_MAX // MIB

        for base in range(fitting + 1):
            queue.pushed(a_push(base, body=bytes(MIB)), 1.0)

        assert queue.timer.counts.overflows == 1
        assert queue.pull_due_in_s(1.0) > 0
        assert len(taken(queue)) == fitting
        assert queue.pull_due_in_s(1.0) == 0


class TestASubscriber:
    def test_that_moved_elsewhere_is_pulled_for(self) -> None:
        queue = a_queue(5)
        queue.pushed(a_push(5), 1.0)

        queue.stand(Standing(LOG, BOOT, 2, 2))

        assert taken(queue) == []
        assert queue.pull_due_in_s(1.0) == 0

    def test_that_meets_a_new_start_of_the_proxy_forgets_what_was_pushed_before(self) -> None:
        queue = a_queue(5)
        queue.pushed(a_push(5), 1.0)

        queue.stand(Standing(LOG, "boot-2", 5, 5))

        assert taken(queue) == []
        assert queue.pull_due_in_s(1.0) == 0

    def test_tells_a_cursor_that_moved_with_a_pull_in_time(self) -> None:
        """Row 2.16: also where pushes come so often that nothing else makes a pull due."""
        queue = a_queue(0)
        pulled_s: list[float] = []
        told = 0
        for base in range(300):
            now_s = (base + 1) / 100
            queue.pushed(a_push(base), now_s)
            if queue.pull_due_in_s(now_s) == 0:
                pulled_s.append(now_s)
                queue.pulled(base + 1, now_s)
                told = base
            queue.take()
            queue.stand(Standing(LOG, BOOT, base + 1, told))

        assert pulled_s == [TIMING.tell_s * number for number in (1, 2, 3)]

    def test_that_has_a_lease_is_heard_within_half_of_it_however_much_is_pushed(self) -> None:
        """Otherwise the proxy takes it for silent, and ends its subscription."""
        queue = a_queue(0)
        heard_s, now_s = 0.0, 0.0
        for base in range(100):
            now_s += 0.01
            queue.pushed(a_push(base), now_s)
            if queue.pull_due_in_s(now_s) == 0:
                queue.pulled(base + 1, now_s)
                assert now_s - heard_s <= 0.06
                heard_s = now_s
            queue.take()
            queue.stand(Standing(LOG, BOOT, base + 1, base, heard_s=0.05))

        assert now_s - heard_s <= 0.06

    def test_pulls_once_when_its_link_stands_because_of_what_came_before(self) -> None:
        queue = PushQueue(PullTimer(TIMING))
        queue.stand(Standing(LOG, BOOT, 0, 0))
        queue.pulled(None, 0.0)

        queue.timer.linked(True)

        assert queue.pull_due_in_s(0.0) == 0


class TestSilence:
    def test_is_asked_about_ever_less_often(self) -> None:
        """Idle waiting does not poll: a second asks six times, a minute hardly more."""
        queue = a_queue()
        now_s, pulls = 0.0, 0
        while now_s < 60.0:
            now_s += queue.pull_due_in_s(now_s) or 1e-9
            queue.pulled(None, now_s)
            pulls += 1

        assert pulls <= 8 + 60 / TIMING.silence_s_max

    def test_that_is_usual_is_not_asked_about(self) -> None:
        queue = a_queue()
        now_s = 0.0
        for base in range(50):
            now_s += 0.5
            queue.pushed(a_push(base), now_s)
            queue.take()
            queue.stand(Standing(LOG, BOOT, base + 1, base + 1))

        assert 0.5 <= queue.pull_due_in_s(now_s) < 1.0

    def test_that_hid_messages_is_a_miss_and_three_in_a_row_are_a_failure(self) -> None:
        queue = a_queue()
        for end in range(1, TIMING.misses_max + 1):
            assert not queue.timer.is_polled
            queue.pulled(end, float(end))
            queue.stand(Standing(LOG, BOOT, end, end))

        assert queue.timer.counts.misses == TIMING.misses_max
        assert queue.timer.is_polled
        assert queue.pull_due_in_s(float(TIMING.misses_max)) < 0.1
        assert not queue.timer.wants_new_link(float(TIMING.misses_max))
        late_s = TIMING.misses_max + TIMING.silence_s_max
        assert queue.timer.wants_new_link(late_s)
        queue.timer.relinked()
        assert queue.timer.is_polled
        assert not queue.timer.wants_new_link(late_s)
        queue.timer.linked(True)
        assert not queue.timer.is_polled

    def test_ends_with_the_first_push_also_a_repeated_one(self) -> None:
        queue = a_queue()
        for end in range(1, TIMING.misses_max + 1):
            queue.pulled(end, float(end))
            queue.stand(Standing(LOG, BOOT, end, end))
        assert queue.timer.is_polled

        queue.pushed(a_push(0), 9.0)

        assert not queue.timer.is_polled

    def test_after_a_jump_is_no_miss(self) -> None:
        queue = a_queue()
        queue.pushed(a_push(3), 1.0)

        queue.pulled(4, 1.0)

        assert queue.timer.counts.misses == 0


class World:
    """A log, pushes on a way that loses, doubles and reorders them, and one subscriber."""

    def __init__(self, timing: PushTiming = TIMING) -> None:
        self.now_s = 0.0
        self.log: list[tuple[int, int]] = []  # base, count
        self.end = 0
        self.boot = 1
        self.way: list[PushFrames] = []
        self.is_pushed = True
        self.timing = timing
        self.queue: PushQueue | None = PushQueue(PullTimer(timing))
        self.cursor = self.told = 0
        self.confirmed = 0  # boot of the subscriber's session
        self.got: list[int] = []
        self.pulls = 0

    def put(self, count: int, *, place_only: bool = False) -> None:
        self.log.append((self.end, count))
        if self.is_pushed:
            body = None if place_only else b"x"
            self.way.append(a_push(self.end, count, boot=f"boot-{self.boot}", body=body))
        self.end += count

    def arrive(self, index: int, *, copies: int = 1) -> None:
        """One of the pushes under way comes now, in whatever order."""
        if self.way and self.queue is not None:
            push = self.way.pop(index % len(self.way))
            for _ in range(copies):
                self.queue.pushed(push, self.now_s)

    def restart(self) -> None:
        self.boot += 1

    def switch(self, push: bool) -> None:
        self.queue = PushQueue(PullTimer(self.timing)) if push else None

    def pull(self) -> int | None:
        """GET: the batches from the one with our cursor on, at most three."""
        self.pulls += 1
        self.confirmed, self.told = self.boot, self.cursor
        found = [one for one in self.log if sum(one) > self.cursor][:3]
        self.take(found)
        return sum(found[-1]) if found else None

    def take(self, batches: list[tuple[int, int]]) -> None:
        """The inbox: nothing but direct followers."""
        for base, count in batches:
            assert base <= self.cursor < base + count, "no direct follower"
            self.got += range(self.cursor, base + count)
            self.cursor = base + count

    def standing(self) -> Standing:
        return Standing(LOG, f"boot-{self.confirmed}", self.cursor, self.told)

    def step(self) -> None:
        """What `Subscriber.get` does in one turn of its waiting."""
        if self.queue is None:
            self.pull()
            return
        if self.confirmed:
            self.queue.stand(self.standing())
            self.queue.timer.linked(True)
            if self.queue.pull_due_in_s(self.now_s) > 0:
                self.take([(h.base, h.count) for h, _ in self.queue.take()])
                return
        cursor = self.cursor
        end = self.pull()
        self.cursor = cursor  # processed only later
        self.queue.stand(self.standing())
        self.queue.pulled(end, self.now_s)
        self.cursor = cursor if end is None else end

    def finish(self) -> None:
        """No more pushes; pass the time that the longest silence takes."""
        self.way.clear()
        for _ in range(12 + 4 * len(self.log)):
            self.step()
            self.now_s += self.timing.silence_s_max
        assert self.got == list(range(self.end))


ACTIONS = st.one_of(
    st.tuples(st.just("put"), st.integers(1, 4), st.booleans()),
    st.tuples(st.just("arrive"), st.integers(0, 9), st.integers(1, 3)),
    st.tuples(st.just("lose"), st.integers(0, 9), st.just(0)),
    st.tuples(st.just("cut"), st.booleans(), st.just(0)),
    st.tuples(st.just("restart"), st.just(0), st.just(0)),
    st.tuples(st.just("switch"), st.booleans(), st.just(0)),
    st.tuples(st.just("step"), st.integers(1, 3), st.just(0)),
    st.tuples(st.just("time"), st.sampled_from([0.001, 0.06, 1.1, 6.0]), st.just(0)),
)


class TestExactlyOnce:
    @settings(max_examples=400, deadline=None)
    @given(st.lists(ACTIONS, max_size=60))
    def test_holds_with_push_on_off_cut_doubled_and_reordered(
        self, actions: list[tuple[str, int, int]]
    ) -> None:
        """Rows 2.7, 2.14, 2.19: whatever happens to pushes, each offset comes once, in order."""
        world = World()
        for action, first, second in actions:
            match action:
                case "put":
                    world.put(int(first), place_only=bool(second))
                case "arrive":
                    world.arrive(int(first), copies=int(second))
                case "lose":
                    if world.way:
                        world.way.pop(int(first) % len(world.way))
                case "cut":
                    world.is_pushed = bool(first)
                case "restart":
                    world.restart()
                case "switch":
                    world.switch(bool(first))
                case "step":
                    for _ in range(int(first)):
                        world.step()
                case "time":
                    world.now_s += first
            assert world.got == list(range(world.cursor))

        world.finish()

    @pytest.mark.parametrize("seed", range(20))
    def test_holds_in_a_long_run_in_which_most_pushes_arrive(self, seed: int) -> None:
        """A small simulation: a second of time for each message, one push of ten goes wrong."""
        chance = random.Random(seed)
        world = World()
        for _ in range(300):
            world.put(chance.randint(1, 3))
            fate = chance.random()
            if fate < 0.05:
                world.way.pop()
            elif fate < 0.1:
                pass  # late: it comes with a later one, in another order
            while world.way and fate >= 0.1:
                world.arrive(chance.randrange(len(world.way)), copies=chance.choice((1, 1, 2)))
            if chance.random() < 0.01:
                world.restart()
            for _ in range(4):
                world.step()
                world.now_s += 0.25
        pulls = world.pulls
        world.finish()

        assert pulls < 450  # one a second tells the cursor; who polls asks 15 times a second
        assert all(b - a == 1 for a, b in pairwise(world.got))
