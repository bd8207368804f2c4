"""An operator who does things at random, through the real `Admin`."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import ClassVar

from reliable_pubsub.common.admin_client import Admin, AdminOutcome
from reliable_pubsub.common.core.errors import (
    InDoubtError,
    NotPossibleError,
    StaleError,
    TruncatedError,
)
from reliable_pubsub.common.core.message_base import Start
from reliable_pubsub.common.core.recorder import Recorder
from reliable_pubsub.common.core.start import Earliest, Now, at_offset, newest
from reliable_pubsub.proxy.core.records import Appended
from reliable_pubsub.proxy.operators.records import Administered

from .machine import Machine
from .simulated_members import GROUP
from .simulated_members import TOPIC as GROUP_TOPIC
from .simulated_proxy import TOPICS
from .world import Process

ACTIONS_MAX = 12


class OperatorMachine(Machine):
    """Does some actions, each at a random moment; at the end puts continue."""

    role = "operator"
    choices: ClassVar[tuple[str, ...]] = ("stop",)

    def begin(self, subscribers: Sequence[str], *, forgets: bool, truncates: bool) -> None:
        """Know the names.

        Args:
            forgets: also clients; then no two processes may have one id.
            truncates: also removes messages; then no comparison may need a removed one.
        """
        self._chance = random.Random(f"operator {self._world.seed}")
        self._subscribers = subscribers
        self._forgets, self._truncates = forgets, truncates
        self._left = self._chance.randint(1, ACTIONS_MAX)
        self.acted: list[AdminOutcome] = []

    def program(self, process: Process, recorder: Recorder) -> bool:
        """Do the actions that are left, then check that puts are not paused."""
        admin = Admin(
            retry=self._retry,
            _world=self.around(
                process, "subscriber", token=lambda count: self._chance.randbytes(count)
            ),
        )
        while self._left > 0:
            process.wait(self._chance.uniform(0.0, 0.15))
            if self._world.quiet or self._left <= 0:  # a twin of it has done the last
                break
            self._do(admin, process)
            self._left -= 1
        while True:
            try:
                admin.resume()
                break
            except InDoubtError as error:
                self.wait_or_end(process, error)
        return True

    def _do(self, admin: Admin, process: Process) -> None:
        """One action; what is in doubt is left so."""
        name, act = self._drawn(admin)
        try:
            outcome = act()
        except (InDoubtError, NotPossibleError, StaleError, TruncatedError) as error:
            self._world.note(process.name, f"{name}: {error.code}")
            return
        self._world.happened("operate", process.name, f"{name}: {outcome}")
        self._world.counts[name] += outcome.done
        if outcome.done:
            known = self.recording.actions.get(outcome.number)
            assert known is not None, f"{name} was acknowledged before it was durable"
            self.acted.append(outcome)

    def _drawn(self, admin: Admin) -> tuple[str, Callable[[], AdminOutcome]]:
        chance = self._chance
        topic, subscriber = chance.choice(TOPICS), chance.choice(self._subscribers)
        places: tuple[Start, ...] = (
            Earliest,
            Now,
            newest(chance.randint(0, 6)),
            at_offset(chance.randint(0, 15)),
        )
        place = chance.choice(places)
        acts: dict[str, Callable[[], AdminOutcome]] = {
            "set cursor": lambda: admin.set_cursor(topic, subscriber, place),
            "skip": lambda: admin.skip(topic, subscriber),
            "end subscription": lambda: admin.end_subscription(topic, subscriber),
            "end group": lambda: admin.end_subscription(GROUP_TOPIC, f"group:{GROUP}"),
            "pause": lambda: admin.pause("maintenance"),
            "resume": admin.resume,
        }
        if self._truncates:
            acts["truncate"] = lambda: admin.truncate(topic, place)
            acts["delete topic"] = lambda: admin.delete_topic(topic)
        if self._forgets:
            acts["forget client"] = lambda: admin.forget_client(subscriber)
        name = chance.choice(list(acts))
        return name, acts[name]

    def judge(self, appended: Iterable[Appended]) -> Iterator[str]:
        """Check that no action is done twice, and that none that was acknowledged is gone."""
        durable = self.recording.actions
        nonces: dict[bytes, Administered] = {}
        for one in durable.values():
            if one.nonce in nonces:
                yield f"actions {nonces[one.nonce].number} and {one.number} are one, done twice"
            nonces[one.nonce] = one
        if list(durable) != list(range(1, len(durable) + 1)):
            yield f"the actions have the numbers {list(durable)}"
