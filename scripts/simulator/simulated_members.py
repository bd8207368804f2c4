"""Members of a group, over the real `Subscriber`: they die, stall past their lease, come late.

They get and settle one by one, loop, and run a handler that fails now and then.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Literal

from msgspec import Struct

from reliable_pubsub.common.core.batch import Message
from reliable_pubsub.common.core.errors import (
    InDoubtError,
    LeaseLostError,
    LimitError,
    LostError,
    NotSubscribedError,
)
from reliable_pubsub.common.core.recorder import Recorder
from reliable_pubsub.common.core.start import Earliest
from reliable_pubsub.subscriber.client import Subscriber

from .simulated_store import SimulatedStore
from .simulated_subscribers import ClientMachine
from .world import Interrupted, Process

TOPIC = "a"
GROUP = "g"


class GroupTermsAsked(Struct, frozen=True):
    """What all members of the group of a seed ask for."""

    lease_s: float
    max_deliveries: int | None
    ordered_by: Literal["key"] | None

    @classmethod
    def drawn(cls, draw: random.Random) -> GroupTermsAsked:
        """Draw them."""
        return cls(
            draw.choice((0.06, 0.15, 0.3)),
            draw.choice((None, 1, 4, 20)),
            draw.choice((None, None, "key")),
        )


class Fails(Exception):
    """What a handler raises that cannot process its message."""


class MemberMachine(ClientMachine):
    """Takes messages and settles them one by one, in any order, until the group is drained."""

    choices = ()

    def begin_in(
        self,
        terms: GroupTermsAsked,
        store: SimulatedStore,
        end: Callable[[str], int | None],
        late_s: float,
    ) -> None:
        """Take what to do.

        Args:
            end: where a topic ends for good; None as long as something may be put.
            late_s: it comes so late, in its first life.
        """
        self._terms = terms
        self._store = store
        self._end = end
        self._late_s = late_s
        self.on_log_changed = "stop"

    def program(self, process: Process, recorder: Recorder) -> bool:
        """Join, and work until every message of the topic has ended."""
        if process.life == 1 and self._late_s > 0.6:
            process.wait(self._late_s)
        member = self.make_client(process, recorder)
        member.on(
            TOPIC,
            lambda message: self._handle(member, process, message),
            group=GROUP,
            pause_s=0.01,
        )
        while not self._is_drained():
            try:
                member.subscribe(
                    TOPIC,
                    group=GROUP,
                    start=Earliest,
                    lease_s=self._terms.lease_s,
                    max_deliveries=self._terms.max_deliveries,
                    ordered_by=self._terms.ordered_by,
                )
                self._work(member, process)
            except Interrupted:
                continue
            except (LeaseLostError, NotSubscribedError, LimitError, LostError) as error:
                self._world.happened("lease_lost", process.name, f"gets {error.code}")
            except InDoubtError as error:
                self.wait_or_end(process, error)
        return True

    def _work(self, member: Subscriber, process: Process) -> None:
        chance = self._world.random
        while not self._is_drained():
            way = chance.random()
            if way < 0.3:
                (self._loop if way < 0.2 else self._run)(member, process)
                continue
            found = member.get(
                TOPIC, max_messages=chance.randint(1, 4), timeout_s=chance.choice((0.0, 0.03))
            )
            if not found:
                process.wait(chance.uniform(0.001, 0.02))
            self._world.counts["group"] += bool(found)
            chance.shuffle(found)
            for message in found:
                self._settle(member, process, message)

    def _loop(self, member: Subscriber, process: Process) -> None:
        for _ in member.messages(TOPIC, timeout_s=0.0):
            process.point("in the loop")
            if self._world.random.random() < 0.3:
                return

    def _run(self, member: Subscriber, process: Process) -> None:
        member.run(timeout_s=0.0)
        process.wait(self._world.random.uniform(0.001, 0.02))

    def _handle(self, member: Subscriber, process: Process, message: Message) -> None:
        process.point("in the handler")
        world, chance = self._world, self._world.random.random()
        world.counts["group"] += 1
        if chance < 0.1:
            member.extend(message)
        elif chance < 0.2 and not world.quiet:
            raise Fails(message.message_id)
        elif chance < 0.3:
            member.stop()

    def _settle(self, member: Subscriber, process: Process, message: Message) -> None:
        """Do something with a message; often nothing, then the next get acknowledges it."""
        world, chance = self._world, self._world.random.random()
        process.point("processing")
        if chance < 0.4:
            return
        if world.quiet or chance < 0.7:
            member.ack(message)
        elif chance < 0.8:
            member.nack(message, delay_s=world.random.choice((0.0, 0.0, 0.02)))
        elif chance < 0.86:
            member.extend(message)
        elif chance < 0.9:
            member.reject(message, "chance")
        else:
            world.happened("stall", process.name, "holds a message beyond its lease")
            process.wait(1.2 * self._terms.lease_s)

    def _is_drained(self) -> bool:
        end = self._end(TOPIC)
        if end is None or self._store.group_cursor(TOPIC, GROUP) < end:
            return False
        return not self._store.group_is_untold(TOPIC, GROUP)
