"""Client machines: a disk, a program over the real client classes, and processes that die.

A process ends by being killed, or by an error that a person would see as an exit code; then the
machine starts the next one from its disk, until the work is done.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from reliable_pubsub.common.errors import FencedError, InDoubtError
from reliable_pubsub.common.retry import RetryPolicy

from .history import History, Line
from .network import Faults, Network
from .world import Killed, Process, World


class Disk:
    """What a machine keeps: named values, and an output file."""

    def __init__(self) -> None:
        """Begin empty."""
        self.values: dict[str, bytes] = {}
        self.output: list[Line] = []
        self._durable: dict[str, bytes] = {}
        self._lazy: list[Mapping[str, bytes | None]] = []

    def write(self, changes: Mapping[str, bytes | None], *, durable: bool) -> None:
        """One transaction."""
        _merge(self.values, changes)
        self._lazy.append(dict(changes))
        if durable:
            self._durable = dict(self.values)
            self._lazy.clear()

    def lose_power(self, survivors: int) -> None:
        """Go back to the last durable write, and the first `survivors` lazy ones behind it."""
        self.values = dict(self._durable)
        for changes in self._lazy[:survivors]:
            _merge(self.values, changes)
        self._durable = dict(self.values)
        self._lazy.clear()

    @property
    def lazy_writes(self) -> int:
        """Writes that power loss may take."""
        return len(self._lazy)

    def copy(self) -> Disk:
        """The same content, elsewhere."""
        copied = Disk()
        copied.values = dict(self.values)
        copied.output = list(self.output)
        copied._durable = dict(self._durable)
        copied._lazy = list(self._lazy)
        return copied


def _merge(values: dict[str, bytes], changes: Mapping[str, bytes | None]) -> None:
    for name, value in changes.items():
        if value is None:
            values.pop(name, None)
        else:
            values[name] = value


class SimulatedState:
    """A process' view of its disk. Implements `state_file.ClientState`."""

    def __init__(self, process: Process, machine: Machine) -> None:
        """Use the disk of a machine."""
        self.disk = machine.disk
        self._process = process

    def load(self) -> dict[str, bytes]:
        """Every value by its name."""
        return dict(self.disk.values)

    def write(self, changes: Mapping[str, bytes | None], *, durable: bool) -> None:
        """Write; the process may die before and after it."""
        self._process.point("write")
        self.disk.write(changes, durable=durable)
        if "epoch" in changes:
            self._process.has_epoch = True  # a zombie that has one is fenced, and stays so
        self._process.point("written")

    def close(self) -> None:
        """Nothing to do."""


class Machine:
    """One client id: its disk, and its processes one after another."""

    role: ClassVar[str]

    def __init__(self, name: str, world: World, network: Network, faults: Faults) -> None:
        """Begin switched off."""
        self.name = name
        self.disk = Disk()
        self.done = False
        self.incarnation = 0
        self.process: Process | None = None
        self.processes: list[Process] = []
        self.zombies: set[Process] = set()
        self.history: History
        self.power_losses = 0
        self._world = world
        self._network = network
        self._faults = faults
        chance = world.random
        self._retry = RetryPolicy(
            timeout_s=chance.uniform(0.015, 0.06),
            retries_max=chance.randint(2, 5),
            pause_s=0.004,
            pause_s_max=0.05,
        )

    def start(self, delay_s: float) -> None:
        """Start a process."""
        self.incarnation += 1
        process = Process(self._world, f"{self.name}#{self.incarnation}", self.program)
        process.on_end = self._ended
        if self._world.chance(self._faults.kill):
            process.points_left = self._world.random.randint(1, self._faults.life_points)
        self.process = process
        self.processes.append(process)
        process.start(delay_s)

    def program(self, process: Process) -> None:
        """What a process does."""
        raise NotImplementedError

    def owns(self, process: Process) -> bool:
        """Whether a process is the machine's own, and no zombie with a copy of its disk."""
        return process not in self.zombies

    def freeze_and_replace(self) -> None:
        """Let the process stop in its tracks, and a new one start from a copy of the disk.

        Later, when the new one has its epoch, the old one goes on: a zombie, to be fenced.
        """
        process = self.process
        if process is None or not process.alive or not process.has_epoch:
            return
        self._world.note(process.name, "frozen; a new process takes its id")
        process.frozen = True
        process.points_left = None
        self.zombies.add(process)
        self.disk = self.disk.copy()
        self.start(self._world.random.uniform(0.001, 0.02))
        self._thaw_later(process)

    def _thaw_later(self, zombie: Process) -> None:
        def thaw() -> None:
            replaced = self.process is not None and self.process.has_epoch
            if not zombie.alive:
                return
            if replaced or self.done:
                self._world.note(zombie.name, "goes on, as a zombie")
                self._world.at(0.0, zombie.thaw)
            else:
                self._thaw_later(zombie)

        self._world.at(self._world.random.uniform(0.01, 0.1), thaw)

    def wait_or_end(self, process: Process, error: InDoubtError) -> None:
        """In doubt: go on in this process, or end it as a command line would."""
        self._world.note(process.name, f"in doubt: {error.code}")
        if self._world.random.random() < 0.5:
            raise error
        process.wait(self._world.random.uniform(0.005, 0.05))

    def _ended(self, process: Process, error: BaseException | None) -> None:
        zombie = process in self.zombies
        if self._world.tracing:
            self._world.note(process.name, f"ends: {error!r}")
        expected = (Killed, InDoubtError, FencedError) if zombie else (Killed, InDoubtError)
        if error is not None and not isinstance(error, expected):
            raise error
        if zombie or self._world.closing or self.done:
            return
        if isinstance(error, Killed):
            self._lose_power()
        self.start(self._world.random.uniform(0.002, 0.05))

    def _lose_power(self) -> None:
        """Perhaps it was more than a kill: lazy writes may be gone."""
        may = self.role == "subscriber" or self._faults.same_bytes
        if may and self._world.chance(self._faults.power_loss):
            self.power_losses += 1
            survivors = self._world.random.randint(0, self.disk.lazy_writes)
            self._world.note(self.name, f"power loss, {survivors} lazy writes survive")
            self.disk.lose_power(survivors)
