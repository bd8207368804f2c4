"""The few changes of a file system that an archive is made of; each happens whole or not at all."""

from __future__ import annotations

from pathlib import Path

from reliable_pubsub.common.system import sync_directory, sync_file


def write_whole(path: Path, content: bytes) -> None:
    """A file that is there with all of its content, or not at all; `sync` makes the name last."""
    part = path.with_name(f"{path.name}.part")
    with part.open("wb") as file:
        file.write(content)
        file.flush()
        sync_file(file.fileno())
    part.rename(path)


def move(source: Path, target: Path) -> None:
    """Give a file its name."""
    source.rename(target)


def link(source: Path, target: Path) -> None:
    """A second name of the same file."""
    target.hardlink_to(source)


def point(name: Path, target: str) -> None:
    """Let a symbolic link lead elsewhere, in one step."""
    part = name.with_name(f"{name.name}.part")
    part.unlink(missing_ok=True)
    part.symlink_to(target)
    part.rename(name)


def sync(folder: Path) -> None:
    """The names in a folder survive power loss."""
    sync_directory(folder)
