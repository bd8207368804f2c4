"""Files, folders and databases by their addresses. Pure."""

from __future__ import annotations

import re
from typing import Final

from reliable_pubsub.common.core.errors import UsageError

_ADDRESS: Final = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*):/")


def check_local(path: str) -> str:
    """Give a path back that is one.

    Raises:
        UsageError: it is an address, such as `s3a://bucket/folder`.
    """
    address = _ADDRESS.match(path)
    if address is None:
        return path
    if address["scheme"].lower() == "file":
        raise UsageError(f"{path}: write the path itself, without `file:`")
    raise UsageError(
        f"{path}: {address['scheme']}: is not written or read here: tasks write and sync files of "
        "a file system. Give a folder of one that all machines see (NFS, a mounted volume), and "
        "copy it from there; the copy of an archive is a Delta table too"
    )


def is_database(store: str) -> bool:
    """Whether the store of a proxy is in PostgreSQL, as `--store` of the proxy says it."""
    return store.startswith(("postgresql://", "postgres://"))


def check_store(store: str) -> str:
    """Give back what can be the store of a proxy: its data directory, or a database.

    Raises:
        UsageError: an address of something else, or a path that is another one in each process.
    """
    if not store or is_database(store) or check_local(store).startswith("/"):
        return store
    raise UsageError(
        f"store {store!r:.80}: tasks run in other directories; give the absolute path of the "
        "proxy's data directory, or postgresql://..."
    )
