"""Whom files belong to: kept by commands that root runs, and named where access is denied."""

from __future__ import annotations

import errno
import grp
import os
import pwd
import stat
from collections.abc import Iterable
from pathlib import Path

from .core.errors import ConfigurationError


def user_name(uid: int) -> str:
    """Return a user's name and number."""
    try:
        return f"{pwd.getpwuid(uid).pw_name} (uid {uid})"
    except KeyError:
        return f"uid {uid}"


def owner_of(path: Path) -> str:
    """Return the name of the owner of a file or directory."""
    return user_name(path.lstat().st_uid)


def denied_to(path: Path, error: OSError) -> str:
    """Explain a permission error for the end of its text; "" for other errors."""
    if error.errno not in (errno.EACCES, errno.EPERM):
        return ""
    place = path
    while not os.path.lexists(place) and place != place.parent:
        place = place.parent
    try:
        owner = owner_of(place)
    except OSError:
        return ""
    mode = stat.S_IMODE(place.lstat().st_mode)
    return (
        f" ({place} belongs to {owner}, mode {mode:04o}, and this process runs as "
        f"{user_name(os.geteuid())}: run it as the owner, or change the owner with chown)"
    )


def ids_of(owner: str, group: str) -> tuple[int, int]:
    """Return the ids of a user and a group, by name or number; -1 where none is given.

    Raises:
        ConfigurationError: this machine knows no such name.
    """
    kind = "user"
    try:
        uid = pwd.getpwnam(owner).pw_uid if owner and not owner.isdigit() else int(owner or -1)
        kind = "group"
        gid = grp.getgrnam(group).gr_gid if group and not group.isdigit() else int(group or -1)
    except (KeyError, OverflowError):
        name = owner if kind == "user" else group
        raise ConfigurationError(
            f"there is no {kind} {name!r:.80} on this machine: make it first, or give its number"
        ) from None
    return uid, gid


def give(paths: Iterable[Path], like: os.stat_result) -> None:
    """Let files belong to the owner of another file; only root can, and others need not.

    Files with several names are left alone: one of them may be anywhere.
    """
    if os.geteuid() != 0:
        return
    for path in paths:
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:  # it is not there, or a link
            continue
        try:
            facts = os.fstat(descriptor)
            is_alone = stat.S_ISDIR(facts.st_mode) or facts.st_nlink == 1
            if is_alone and (facts.st_uid, facts.st_gid) != (like.st_uid, like.st_gid):
                os.fchown(descriptor, like.st_uid, like.st_gid)
        finally:
            os.close(descriptor)
