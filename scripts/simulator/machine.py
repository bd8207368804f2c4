"""Client machines: a disk, a program over the real client classes, and processes that die.

A process ends by being killed, or by an error that a person would see as an exit code; then the
machine starts the next one from its disk, until the work is done.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from typing import Any, ClassVar

import msgspec

from reliable_pubsub.common.core.client_state import Marks, MemoryState
from reliable_pubsub.common.core.errors import (
    ConflictError,
    FencedError,
    InDoubtError,
    LogChangedError,
    RefusedError,
    StaleError,
)
from reliable_pubsub.common.core.message_base import Role
from reliable_pubsub.common.core.recorder import Recorder
from reliable_pubsub.common.core.retry import RetryPolicy
from reliable_pubsub.common.world import World as Surroundings
from reliable_pubsub.lab.core.run import OutputLine
from reliable_pubsub.proxy.core.records import Appended

from .network import Network, SimulatedClock, SimulatedTransport
from .recording import Recording
from .simulated_offers import OfferNetwork
from .simulated_push import PushNetwork
from .swarm import Faults
from .world import Killed, Process, World


class Disk:
    """What a machine keeps: named values, and an output file."""

    def __init__(self) -> None:
        self.values: dict[str, bytes] = {}
        self.output: list[OutputLine] = []
        self.copies: list[dict[str, bytes]] = []  # of the values before each write
        self.marks: dict[int, int] = {}
        self.old_marks: list[dict[int, int]] = [{}]  # at each write
        self._durable: dict[str, bytes] = {}
        self._lazy: list[Mapping[str, bytes | None]] = []

    def write(self, changes: Mapping[str, bytes | None], *, durable: bool) -> None:
        """One transaction."""
        self.copies.append(dict(self.values))
        self.old_marks.append(dict(self.marks))
        _merge(self.values, changes)
        self._lazy.append(dict(changes))
        if durable:
            self._durable = dict(self.values)
            self._lazy.clear()

    def lose_power(self, survivors: int, marks: dict[int, int]) -> None:
        """Go back to the last durable write, and the first `survivors` lazy ones after it.

        Args:
            marks: what is left of the marks, which keep no order with writes.
        """
        self.marks = dict(marks)
        self.values = dict(self._durable)
        for changes in self._lazy[:survivors]:
            _merge(self.values, changes)
        self._durable = dict(self.values)
        self._lazy.clear()

    def restore(self, copy: int) -> None:
        """Become an older copy, which was made before a write."""
        self.values = dict(self.copies[copy])
        self._durable = dict(self.values)
        self._lazy.clear()
        del self.copies[copy:]

    @property
    def lazy_writes(self) -> int:
        """Writes that power loss may take."""
        return len(self._lazy)

    def copy(self) -> Disk:
        """The same content, elsewhere."""
        copied = Disk()
        vars(copied).update((name, copy(kept)) for name, kept in vars(self).items())
        return copied


def _merge(values: dict[str, bytes], changes: Mapping[str, bytes | None]) -> None:
    for name, value in changes.items():
        if value is None:
            values.pop(name, None)
        else:
            values[name] = value


class SimulatedState:
    """A process' view of its disk, or of its memory. Implements `state_file.ClientState`."""

    def __init__(self, process: Process, machine: Machine, disk: Disk) -> None:
        self._disk = disk
        self._process = process
        self._machine = machine

    @property
    def marks(self) -> Marks:
        """See `ClientState`."""
        return self

    def __getitem__(self, slot: int) -> int:
        """See `Marks`."""
        return self._disk.marks.get(slot, 0)

    def __setitem__(self, slot: int, number: int) -> None:
        """Set a mark; the process may die before and after it."""
        self._process.step("mark")
        self._disk.marks[slot] = number
        self._process.step("marked")

    def load(self) -> dict[str, bytes]:
        """Every value by its name."""
        return dict(self._disk.values)

    def write(self, changes: Mapping[str, bytes | None], *, durable: bool) -> None:
        """Write; the process may die before and after it."""
        self._process.step("write")
        self._disk.write(changes, durable=durable)
        epoch = changes.get("epoch")
        if epoch is not None:
            self._process.epoch = msgspec.msgpack.decode(epoch, type=int)
            self._machine.has_claimed(self._process)
        self._process.step("written")

    def close(self) -> None:
        """Nothing to do."""


class SimulatedMemory(SimulatedState, MemoryState):
    """A state that ends with its process."""


class Machine:
    """One client id: its disk, and its processes one after another."""

    role: ClassVar[str]
    output: ClassVar[str] = ""  # name of its output file; "": it has none
    choices: ClassVar[tuple[str, ...]]  # what it may do about a changed log, besides stopping
    may_forget: ClassVar[bool] = True  # whether it makes sense without state on disk
    make: Callable[..., Any]  # its client: the class, or one with a planted fault
    pushes: PushNetwork
    offers: OfferNetwork

    def __init__(
        self, name: str, world: World, network: Network, faults: Faults, recording: Recording
    ) -> None:
        self.name = name
        self.done = False  # the work is finished, or cannot continue
        self.stopped_by: RefusedError | None = None  # why it cannot
        self.process: Process | None = None
        self.processes: list[Process] = []
        self.zombies: set[Process] = set()
        self.recording = recording
        self._has_twins = False
        self._may_conflict = False  # it may have put what it does not know any more
        self._disk = Disk()
        self._disks: dict[Process, Disk] = {}
        self._world = world
        self._network = network
        self._faults = faults
        chance = world.random
        self.no_state = self.may_forget and world.chance(faults.no_state)
        self.on_log_changed = "stop"
        if world.chance(faults.log_changed):
            self.on_log_changed = chance.choice(self.choices)
        self._retry = RetryPolicy(
            timeout_s=chance.uniform(0.015, 0.06),
            retries_max=chance.randint(2, 5),
            pause_s=0.004,
            pause_s_max=0.05,
        )

    def start(self, delay_s: float) -> None:
        """Start a process, and perhaps a second one beside it."""
        process = self._new_process(self._disk)
        if self._world.chance(self._faults.kill):
            process.points_left = self._world.random.randint(1, self._faults.life_points)
        self.process = process
        process.start(delay_s)
        if self.no_state and process.life > 1:
            self._world.happened("no_state", process.name, "begins, and remembers nothing")
        if self._world.happens("twin", self._faults.twin):
            twin = self._new_process(self._disk.copy())
            self._replaced(twin)
            self._has_twins = True
            self._world.note(twin.name, f"begins beside {process.name}, with its id")
            twin.start(delay_s + self._world.random.uniform(0.0, 0.01))

    def _new_process(self, disk: Disk) -> Process:
        life = len(self.processes) + 1
        process = Process(self._world, f"{self.name}#{life}", self._live)
        process.life = life
        process.on_end = self._ended
        self.processes.append(process)
        self._disks[process] = disk
        return process

    def _live(self, process: Process) -> None:
        """One life; where it ends without a kill, its journal says so."""
        recorder = self.recorder(process)
        try:
            is_done = self.program(process, recorder)
            self.done |= is_done and self.owns(process)
        except Exception as error:
            recorder.end(error)
            raise
        recorder.end()

    def recorder(self, process: Process) -> Recorder:
        """Writes the journal of a life."""
        return self.recording.recorder(self.name, process.life, output=self.output)

    def around(self, process: Process, role: Role, **more: Any) -> Surroundings:
        """What is around a client of a process that has this role for the proxy."""
        return Surroundings(
            connect=lambda _: SimulatedTransport(process, self._network, self.name, role),
            clock=SimulatedClock(process),
            **more,
        )

    def state_of(self, process: Process) -> SimulatedState:
        """What a process reads and writes as its state."""
        if self.no_state:
            return SimulatedMemory(process, self, Disk())
        return SimulatedState(process, self, self.disk_of(process))

    def program(self, process: Process, recorder: Recorder) -> bool:
        """What a process does; say whether the work is done."""
        raise NotImplementedError

    def judge(self, appended: Iterable[Appended]) -> Iterable[str]:
        """What is wrong with what it has stored, if no journal can tell; one sentence each."""
        return ()

    def disk_of(self, process: Process) -> Disk:
        """What a process reads and writes: the machine's disk, or its own copy of it."""
        return self._disks[process]

    def owns(self, process: Process) -> bool:
        """Whether a process is the machine's own, and not a zombie with a copy of its disk."""
        return process not in self.zombies

    def has_claimed(self, process: Process) -> None:
        """A process has an epoch. A twin continues when the fencing is due, and not before.

        What the newer of two processes does counts, and the machine does not know of it.
        """
        while not self.owns(process):
            owner = self.process
            if self.done or owner is None:
                raise Killed
            if owner.epoch >= process.epoch:
                return
            process.wait(0.01)

    def stand_still(self, seconds: float, fault: str = "client_stop") -> None:
        """Stop the process for a while, as by SIGSTOP."""
        process = self.process
        if process is None or not process.alive or process.frozen:
            return
        stopped = process
        self._world.happened(fault, process.name, f"stands still for {seconds:.3f} s")
        stopped.frozen = True
        self._world.at(seconds, stopped.thaw)

    def freeze_and_replace(self) -> None:
        """Stop the process, and start a new one from a copy of the disk.

        Later, when the new one has its epoch, the old one continues: a zombie that gets fenced.
        """
        process = self.process
        if process is None or not process.alive or not process.epoch or process.frozen:
            return
        self._world.note(process.name, "frozen; a new process takes its id")
        process.frozen = True
        process.points_left = None
        self._replaced(process)
        self._disk = self._disk.copy()
        self.start(self._world.random.uniform(0.001, 0.02))
        self._thaw_later(process)

    def _replaced(self, process: Process) -> None:
        """From here on another process continues with the machine's work; this one has a copy."""
        self.zombies.add(process)
        self.recording.event("replace", self.name, str(process.life))

    def _thaw_later(self, zombie: Process) -> None:
        def thaw() -> None:
            replaced = self.process is not None and self.process.epoch > zombie.epoch
            if not zombie.alive:
                return
            if replaced or self.done:
                self._world.happened("zombie", zombie.name, "continues, as a zombie")
                self._world.at(0.0, zombie.thaw)
            else:
                self._thaw_later(zombie)

        self._world.at(self._world.random.uniform(0.01, 0.1), thaw)

    def wait_or_end(self, process: Process, error: InDoubtError) -> None:
        """In doubt: continue in this process, or end it as a command line would."""
        self._world.happened("in doubt", process.name, f"in doubt: {error.code}")
        if self._world.random.random() < 0.5:
            raise error
        process.wait(self._world.random.uniform(0.005, 0.05))

    def _ended(self, process: Process, error: BaseException | None) -> None:
        owned = self.owns(process)
        if self._world.tracing:
            self._world.note(process.name, f"ends: {error!r}")
        if isinstance(error, RefusedError) and self._may_stop(error):
            if owned:
                self._world.counts["stopped"] += 1
                self.stopped_by = error
                self.done = True
            return
        expected = error is None or isinstance(error, Killed | InDoubtError)
        if isinstance(error, FencedError):
            expected = not owned or self._has_twins or self._fenced_by_the_past(process, error)
        if isinstance(error, ConflictError | StaleError):
            # It was given the epoch of a dead process again, and a late PUT or SUB of that one used
            # its numbers: it gets the refusal, and a user starts it again.
            expected = self.no_state and self.recording.rolled_back
        if not expected:
            assert error is not None
            raise error
        if not owned or self._world.closing or self.done:
            return
        if isinstance(error, Killed):
            self._world.counts["kill"] += 1
            self._lose_power()
        self.start(self._world.random.uniform(0.002, 0.05))

    def _fenced_by_the_past(self, process: Process, error: FencedError) -> bool:
        """Whether a late HELLO of another process has fenced this one.

        A proxy that was set back has forgotten the epochs too, so it may grant one to a process
        that is dead. Nothing distinguishes the living one from the dead then; the living one gets
        FENCED, and a user starts it again. A HELLO of its own never fences it.
        """
        nonces = self.recording.nonces(self.role, self.name, error.current_epoch)
        return self.recording.rolled_back and bool(nonces) and process.nonce not in nonces

    def _may_stop(self, error: RefusedError) -> bool:
        """Whether it is right that a client gets LOG_CHANGED, and cannot continue.

        It made other messages after a power loss, under numbers that its state had forgotten. Or
        it may know of what is gone, and was not asked to continue.

        A late copy of a SUB that is gone may begin the subscription again, elsewhere: the proxy
        then seems to know of more than its client has done, and a rewind does not help.
        """
        if isinstance(error, ConflictError):
            return self._may_conflict
        if not isinstance(error, LogChangedError):
            return False
        stops = self.recording.took_messages and self.on_log_changed == "stop"
        lost_place = self.name in self.recording.took_subscriptions
        # With two processes of one id, one of them may have begun the subscription elsewhere.
        lost_place = lost_place or (self._has_twins and self.role == "subscriber")
        return stops or (lost_place and self.on_log_changed != "adopt")

    def _copies(self) -> Sequence[int]:
        """Which copies of its state may be restored; none, if it cannot continue from one."""
        return ()

    def _lose_power(self) -> None:
        """Draw more than a kill: lazy writes may be gone, or an older copy comes back."""
        faults = self._faults
        copies = [] if self.no_state else self._copies()
        if copies and self._world.happens("set_back", faults.set_back):
            copy = self._world.random.choice(copies)
            # The proxy keeps only the last transaction, so an older one cannot be compared.
            self._may_conflict = faults.transaction > 0 or "transaction" in self._disk.copies[copy]
            self.recording.event("power_loss", self.name, f"an older state, of {copy} writes")
            self._world.note(self.name, f"its state is restored from before write {copy}")
            self._disk.restore(copy)
            return
        may = self.role == "subscriber" or faults.same_bytes or faults.other_bytes
        if may and not self.no_state and self._world.happens("power_loss", faults.power_loss):
            if self.role == "publisher":
                self._world.counts["same_bytes" if faults.same_bytes else "other_bytes"] += 1
            survivors = self._world.random.randint(0, self._disk.lazy_writes)
            self.recording.event("power_loss", self.name, f"{survivors} lazy writes survive")
            self._world.note(self.name, f"power loss, {survivors} lazy writes survive")
            marks = self._world.random.choice([self._disk.marks, *self._disk.old_marks])
            self._disk.lose_power(survivors, marks)
            if self.role == "publisher":
                in_doubt = "transaction" in self._disk.values
                self._may_conflict = faults.other_bytes or faults.transaction > 0 or in_doubt
