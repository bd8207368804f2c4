"""Whom files belong to: kept by commands that root runs, and named where access is denied."""

from __future__ import annotations

import errno
import os
import pwd
import stat
from collections.abc import Iterable
from pathlib import Path


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
