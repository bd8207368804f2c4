"""The output file: one JSON line for each message, each once, across crashes.

Its length is recorded in the same step as the cursors. At a restart anything after that length
belongs to messages that will be redelivered, and is cut off.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Sequence
from pathlib import Path

from msgspec.structs import replace

from reliable_pubsub.common.core.batch import NO_OFFSET, Message
from reliable_pubsub.common.core.errors import (
    ConfigurationError,
    DamagedError,
    InUseError,
    StorageFailedError,
)
from reliable_pubsub.common.core.message_lines import message_line
from reliable_pubsub.common.core.plan_mark import PlanMark
from reliable_pubsub.common.core.steps import PlanPosition, SubscriberStep
from reliable_pubsub.common.progress import message_in_words
from reliable_pubsub.common.system import sync_data, sync_directory, system_errors


def begin_output(mark: PlanMark, path: Path | None, *, again: bool) -> PlanMark:
    """Return the mark with the file that a run writes to, and its length.

    A run has one output from its first step to its last: with another one in between, or with
    none, messages would be missing from the file.

    Raises:
        ConfigurationError: the run has another output, or the file has content of another
            origin, which would be cut off.
    """
    name = str(path.absolute()) if path is not None else ""
    begun = mark.position != PlanPosition()
    if name == mark.output:
        return mark
    if begun and not again:
        before = f"with --output {mark.output}" if mark.output else "without --output"
        raise ConfigurationError(
            f"this run was begun {before}, and now it is {name or 'without --output'}: messages "
            "would be missing there. Go on as it was begun, or run with --again to start the plan "
            "over"
        )
    if path is not None and path.exists() and path.stat().st_size:
        raise ConfigurationError(
            f"output {path}: is not empty, and this subscriber has no record of it; choose another "
            "file, or remove it"
        )
    return replace(mark, output=name, output_bytes=0)


def check_repeats(steps: Sequence[SubscriberStep], mark: PlanMark) -> None:
    """Check that a run with an output writes no message there a second time.

    A seek, and a clean session with a `from`, may repeat messages that the file has already.

    Raises:
        ConfigurationError: such a step follows others that may have written its topic to the file.
    """
    if not mark.output:
        return
    begun = mark.position != PlanPosition()  # then it was checked when it began
    seen: set[str] = set()
    for index, step in enumerate(steps):
        may_repeat = step.action == "seek" or step.session == "clean"
        again = may_repeat and step.start is not None and step.start.at not in ("now", "last")
        if again and (step.topic in seen or (mark.output_bytes and not begun)):
            raise ConfigurationError(
                f"steps[{index}] may redeliver messages of {step.topic!r} that {mark.output} has "
                "already, and each message is there once. Leave `action: seek` (or `session: "
                "clean`) out, or give this run an --output of its own, with --again"
            )
        if step.action == "get":
            seen.add(step.topic)


class OutputFile:
    """An output file that is as long as its record says.

    It is cut back to the recorded length before the first message is appended, not earlier: only
    then has the proxy confirmed that this state is not an old copy.
    """

    def __init__(
        self,
        path: Path,
        recorded_bytes: int,
        line: Callable[[Message], bytes] = message_line,
    ) -> None:
        """Open and lock.

        Args:
            line: how a message is written.

        Raises:
            ConfigurationError: the file cannot be opened.
            InUseError: another process writes to it.
            DamagedError: it is shorter than recorded, so messages are missing from it.
        """
        self.path = path
        self._line = line
        with system_errors(lambda error: ConfigurationError(f"output {path}: {error.strerror}")):
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
            self._descriptor = os.open(path, flags, 0o600)
            sync_directory(path.parent)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(self._descriptor)
            raise InUseError(path=str(path), what="output file") from error
        length = os.fstat(self._descriptor).st_size
        if length < recorded_bytes:
            os.close(self._descriptor)
            raise DamagedError(
                f"output {path} has {length} bytes, but {recorded_bytes} were written and "
                "recorded: it was cut or replaced. Put it back, or choose another --state-dir "
                "and id to start over"
            )
        self._cut_back = False
        self.length = recorded_bytes

    def append(self, messages: Sequence[Message]) -> int:
        """Write messages durably; return the length to record.

        Raises:
            StorageFailedError: the disk is full or failed; nothing is recorded, so what was
                written in part will be cut off.
        """
        data = b"".join(map(self._line, messages))
        with system_errors(
            lambda error: StorageFailedError(
                f"output {self.path}: {error.strerror}; nothing is lost, make space and run the "
                "same command again"
            )
        ):
            if not self._cut_back:
                os.ftruncate(self._descriptor, self.length)
                os.lseek(self._descriptor, self.length, os.SEEK_SET)
                self._cut_back = True
            view = memoryview(data)
            while view:
                view = view[os.write(self._descriptor, view) :]
            sync_data(self._descriptor)
        self.length += len(data)
        return self.length

    def close(self) -> None:
        os.close(self._descriptor)


class Shown:
    """No file: messages are shown as they come, at least once (docs/concepts/guarantees.md)."""

    def __init__(self, show: Callable[[str], None], recorded_bytes: int) -> None:
        """Keep the recorded length, for a later run with a file."""
        self._show = show
        self.length = recorded_bytes

    def append(self, messages: Sequence[Message]) -> int:
        """Show messages, one a line."""
        for message in messages:
            offset = None if message.offset == NO_OFFSET else message.offset
            self._show(message_in_words(message.topic, offset, message.message_id, message.payload))
        return self.length

    def close(self) -> None:
        """Nothing to do."""
