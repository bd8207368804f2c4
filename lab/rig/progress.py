"""How far a process is, read from the files that it writes while it runs."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import msgspec

from reliable_pubsub.common.core.journal import AnyLine, Ok, decode_line


class GrowingJournal:
    """Reads a journal while it is written."""

    def __init__(self, path: Path, position: int = 0) -> None:
        """Begin at its first line, or at the one at a position; the file may not be there yet."""
        self._path = path
        self._position = self._bytes = position

    def new_lines(self) -> list[AnyLine]:
        """The whole lines that have come since."""
        try:
            if self._path.stat().st_size == self._bytes:
                return []
            with self._path.open("rb") as file:
                file.seek(self._position)
                new = file.read()
        except FileNotFoundError:
            return []
        self._bytes = self._position + len(new)
        whole = new[: new.rfind(b"\n") + 1]  # the last line may still be on its way
        self._position += len(whole)
        lines: list[AnyLine] = []
        for text in whole.splitlines():
            with suppress(msgspec.DecodeError):  # torn by a kill; the judge counts these
                lines.append(decode_line(text))
        return lines


class JournalProgress:
    """Reads a growing journal, and counts."""

    def __init__(self, path: Path) -> None:
        self.put = 0  # messages that were acknowledged
        self.subscribed = 0  # subscriptions that were confirmed, repeats included
        self._journal = GrowingJournal(path)

    def look(self) -> None:
        """Read what has come."""
        for line in self._journal.new_lines():
            if isinstance(line, Ok):
                self.put += line.count if line.op == "put" else 0
                self.subscribed += line.op in ("subscribe", "join")


class OutputProgress:
    """Counts the lines of an output file; after a crash it is cut back, and shrinks."""

    def __init__(self, path: Path) -> None:
        """The file may not be there yet."""
        self.lines = 0
        self._path = path
        self._bytes = 0

    def look(self) -> None:
        """Count again, if its length has changed."""
        try:
            length = self._path.stat().st_size
            if length != self._bytes:
                self.lines = self._path.read_bytes().count(b"\n")
                self._bytes = length
        except FileNotFoundError:
            return
