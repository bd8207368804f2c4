"""The ids of several processes that run the same program, without ids to assign.

Without a state directory an id is random, and ends with its process. With one it is the first slot
that no process uses, so a process continues the state of one that has ended.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from msgspec.structs import replace

from .core.client_state import MemoryState
from .core.errors import InUseError
from .core.message_base import Role
from .core.names import ClientId, id_of_replica
from .surroundings import resolve_here
from .world import World, world_here

C = TypeVar("C")


def open_replica(
    role: Role,
    name: str,
    state_dir: Path | str | None,
    make: Callable[[ClientId, Path | None, World], C],
) -> C:
    """Make the client of one process.

    Args:
        name: of the program; the id begins with it.
        state_dir: None: the one in the settings, if they have one.
        make: makes a client with this id, state directory and world.

    Raises:
        InvalidNameError, ConfigurationError, DamagedError.
    """
    token = secrets.token_bytes(8)
    unique, slot = (id_of_replica(name, token, is_kept=is_kept) for is_kept in (False, True))
    if state_dir is None:
        found = resolve_here(name, {})["state_dir"]
        state_dir = None if found.origin == "default" else str(found.value)
    if state_dir is None:
        return make(unique, None, replace(world_here(), state=MemoryState()))
    directory = Path(state_dir)
    for path in sorted(directory.glob(f"{role}-{name}.slot-{'[0-9a-f]' * 16}.sqlite3")):
        try:
            return make(ClientId(path.stem.removeprefix(f"{role}-")), directory, world_here())
        except InUseError:
            continue
    return make(slot, directory, world_here())
