"""Checks SQLite's write-ahead log (WAL) for damage before SQLite opens the store.

SQLite stops its recovery silently at the first frame with a wrong checksum. It takes that frame
for a transaction torn by a crash; but one changed byte looks the same, and would discard every
later commit. How the two are told apart: docs/decisions/0003.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import BinaryIO, Final

from msgspec import Struct

from reliable_pubsub.common.core.errors import StorageFailedError

from .core.schema import KNOWN_ENDS
from .core.write_ahead_log import (
    FRAME_HEADER_BYTES,
    HEADER_BYTES,
    INDEX_BYTES,
    Frame,
    IndexMark,
    WalHeader,
    batches_in,
    checksum_of,
    parse_frame,
    parse_header,
    parse_index,
)
from .shutdown_marker import ShutdownMarker, machine_boot

_CHUNK_BYTES: Final = 1 << 16
_PAGE_BYTES: Final = 4096  # where nothing says how long a page is


class WalDamage(Struct, frozen=True, kw_only=True):
    """Commits of the WAL that cannot be read back."""

    path: str
    why: str
    first_byte: int = 0
    end_byte: int = 0  # 0: there is no such file
    frames: str = ""  # which, of how many
    commits: int = 1  # at least so many
    offsets: tuple[str, ...] = ()  # of topics, as far as the frames can be read
    expected: bool = False  # durability `os` or `snapshot`, and the machine has rebooted since

    def __str__(self) -> str:
        where = f" bytes {self.first_byte} to {self.end_byte - 1}" if self.end_byte else ""
        frames = f" ({self.frames})" if self.frames else ""
        commits = f"{self.commits} commit{'s' if self.commits != 1 else ''}"
        offsets = f", with {'; '.join(self.offsets)}" if self.offsets else ""
        return f"{self.path}{where}{frames}: {self.why}; at least {commits} cannot be read{offsets}"


class _Broken(Struct, frozen=True):
    """Where the chain of frames ends before the last commit."""

    why: str
    frame: int = 0  # the first that is not as it was written, counted from 0
    frames: int = 0  # that were committed, as far as known


def check_wal(database: Path, last: ShutdownMarker | None) -> WalDamage | None:
    """Check the WAL of a store that no process has open; nothing is changed.

    Returns:
        None if everything that was committed to it can be read back.

    Raises:
        StorageFailedError: the system cannot read it.
    """
    wal = Path(f"{database}-wal")
    mark = _read_index(Path(f"{database}-shm"))
    boot = machine_boot()
    same_boot = last is not None and bool(boot) and last.machine_boot == boot
    with _readable(wal):
        try:
            file = wal.open("rb")
        except FileNotFoundError:
            return _missing(wal, mark, last)
        with file:
            header = parse_header(file.read(HEADER_BYTES))
            if header is None:
                broken = _without_header(file, mark, same_boot)
                header = _guessed_header(file, database, mark)
            else:
                broken = _broken(file, header, mark, same_boot)
            if broken is None:
                return None
            expected = not same_boot and last is not None and last.durability != "sync"
            return _describe(file, header, broken, database, expected=expected)


def _missing(wal: Path, mark: IndexMark | None, last: ShutdownMarker | None) -> WalDamage | None:
    """A running proxy always has a WAL; one that stops first records that it was moved."""
    needed = bool(mark and mark.frames) if last is None else not last.wal_moved
    if not needed:
        return None
    return WalDamage(
        path=str(wal),
        why="is missing, though the last proxy was killed and had commits in it, or may have had "
        "(another program that opens the store moves the write-ahead log into it; then nothing is "
        "lost)",
        commits=1 if mark and mark.frames else 0,
    )


def _without_header(file: BinaryIO, mark: IndexMark | None, same_boot: bool) -> _Broken | None:
    """Check a WAL without a valid header, which SQLite takes for an empty one."""
    if mark is not None and mark.frames:
        return _Broken("its header is not as it was written", 0, mark.frames)
    if mark is not None and same_boot:  # everything is in the file
        return None
    while chunk := file.read(_CHUNK_BYTES):
        if chunk.count(0) < len(chunk):
            return _Broken("its header is not as it was written, though frames follow it")
    return None


def _broken(
    file: BinaryIO, header: WalHeader, mark: IndexMark | None, same_boot: bool
) -> _Broken | None:
    """Follow the chain; the index mark of this WAL says how far it must reach."""
    if mark is not None and mark.salts != header.salts:
        if same_boot and mark.frames:
            return _Broken("is not the write-ahead log that was written last", 0, mark.frames)
        if not same_boot:
            mark = None  # it is of an older WAL, and was not written back before the power failed
    needed = mark.frames if mark is not None and mark.salts == header.salts else 0
    exact = mark is not None and same_boot
    checksum, count = header.checksum, 0
    bad = None
    for frame in _frames(file, header):
        computed = checksum_of(frame, checksum, header.order)
        if frame.salts != header.salts or frame.checksum != computed or not frame.number:
            bad = frame
            break
        checksum, count = computed, count + 1
        if mark is not None and count == needed and checksum != mark.checksum:
            return _Broken("is not the write-ahead log that was written last", 0, needed)
    if count < needed:
        return _Broken("a frame is not as it was written", count, needed)
    if bad is None or exact:
        return None
    return _later_commit(file, header, bad, checksum, count)


def _later_commit(
    file: BinaryIO, header: WalHeader, bad: Frame, checksum: tuple[int, int], count: int
) -> _Broken | None:
    """Find a transaction that continues one which ends at or after the bad frame.

    A transaction is synced before the next one is written. So only the last one can be torn, and
    no frame is chained to its end. Frames of a failed transaction are chained to nothing.
    """
    before, seeds = bad, {bad.checksum, checksum_of(bad, checksum, header.order)}
    for frame in _frames(file, header, count + 1):
        if (
            before.database_pages
            and frame.salts == header.salts
            and any(checksum_of(frame, seed, header.order) == frame.checksum for seed in seeds)
        ):
            return _Broken("a frame is not as it was written, and later commits follow it", count)
        before, seeds = frame, {frame.checksum}
    return None


def _frames(file: BinaryIO, header: WalHeader, first: int = 0) -> Iterator[Frame]:
    """The frames of a WAL from number `first`; a partial last frame is ignored."""
    file.seek(HEADER_BYTES + first * header.frame_bytes)
    while len(data := file.read(header.frame_bytes)) == header.frame_bytes:
        yield parse_frame(data)


def _describe(
    file: BinaryIO, header: WalHeader, broken: _Broken, database: Path, *, expected: bool
) -> WalDamage:
    """Describe what follows the break, as far as it can be read."""
    known = _known_ends(database)
    readable = {topic_id: end for topic_id, (_, end) in known.items()}
    newest: dict[int, int] = {}
    last, commits = broken.frames, 0
    for number, frame in enumerate(_frames(file, header)):
        ours = frame.salts == header.salts or number < broken.frames
        if number < broken.frame or ours:
            for topic_id, base in batches_in(frame.page):
                if number < broken.frame:
                    readable[topic_id] = max(readable.get(topic_id, 0), base + 1)
                elif base >= readable.get(topic_id, 0):
                    newest[topic_id] = max(newest.get(topic_id, 0), base)
        if number >= broken.frame and ours:
            commits += bool(frame.database_pages)
            last = max(last, number + 1)
    return WalDamage(
        path=file.name,
        why=broken.why,
        first_byte=HEADER_BYTES + broken.frame * header.frame_bytes if broken.frame else 0,
        end_byte=max(HEADER_BYTES + last * header.frame_bytes, 1),
        frames=f"frames {broken.frame + 1} to {last}",
        commits=max(commits, 1),
        offsets=tuple(
            f"{_topic(topic_id, known)} offsets after {readable.get(topic_id, 0) - 1} "
            f"to at least {base}"
            for topic_id, base in sorted(newest.items())
        ),
        expected=expected,
    )


def _topic(topic_id: int, known: Mapping[int, tuple[str, int]]) -> str:
    return f"topic {known[topic_id][0]!r}" if topic_id in known else f"topic number {topic_id}"


def _known_ends(database: Path) -> dict[int, tuple[str, int]]:
    """Name and end of each topic in the file without its WAL; empty if it is unreadable."""
    uri = f"{database.absolute().as_uri()}?mode=ro&immutable=1"
    try:
        with closing(sqlite3.connect(uri, uri=True)) as connection:
            rows = connection.execute(KNOWN_ENDS).fetchall()
            return {topic_id: (topic, end) for topic_id, topic, _, end in rows}
    except sqlite3.Error:
        return {}


def _guessed_header(wal: BinaryIO, database: Path, mark: IndexMark | None) -> WalHeader:
    """A guess at an unreadable WAL header, used for the description only."""
    page_bytes = _PAGE_BYTES
    if database.exists():
        with database.open("rb") as file:
            page_bytes = int.from_bytes(file.read(18)[16:], "big")
    if page_bytes < 512 or page_bytes & (page_bytes - 1):
        page_bytes = 1 << 16 if page_bytes == 1 else _PAGE_BYTES
    wal.seek(HEADER_BYTES)
    first = wal.read(FRAME_HEADER_BYTES).ljust(FRAME_HEADER_BYTES, b"\0")
    salts = mark.salts if mark is not None and mark.frames else parse_frame(first).salts
    return WalHeader(page_bytes, salts, "<", (0, 0))


def _read_index(index: Path) -> IndexMark | None:
    try:
        with _readable(index), index.open("rb") as file:
            return parse_index(file.read(INDEX_BYTES))
    except FileNotFoundError:
        return None


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        raise
    except OSError as error:
        text = os.strerror(error.errno) if error.errno else str(error)
        raise StorageFailedError(f"{path} cannot be read: {text}") from error
