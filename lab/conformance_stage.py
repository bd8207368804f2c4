"""The processes and files of one case: a proxy, a faulty link, the client that is judged.

    COMMAND ── tcp ──► LinkTo ── tcp ──► proxy ◄── our publisher, for a subscriber

Everything that is written is kept, in one directory:

    evidence/   journals and output in the form that `reliable-pubsub lab check` reads
    output      what COMMAND wrote        input   the messages that a publisher is given
    state/      its state directory       data/   the data directory of the proxy
    command.log, 000-proxy.stderr, ...    what both printed for the user

The evidence and the files of the proxy are in a private folder until the case is over: COMMAND is
given no path to them. The messages for a subscriber are in no file before they are put.
"""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from msgspec import Struct

from reliable_pubsub.common.core import journal
from reliable_pubsub.common.core.client_state import MemoryState
from reliable_pubsub.common.core.errors import ConfigurationError, PubSubError
from reliable_pubsub.common.core.retry import RetryPolicy
from reliable_pubsub.common.journal_file import open_journal
from reliable_pubsub.common.world import World
from reliable_pubsub.publisher.client import Publisher

from .auditor import NAME as AUDITOR
from .auditor import audit
from .core.conformance import TOPIC, UNREACHABLE, Given, Role
from .core.conformance_evidence import ClientLife, Watched, claims_in, watched
from .core.conformance_verdict import Ended
from .rig.child_process import ChildProcess, NotReadyError
from .rig.crash_points import CrashPoint, CrashPoints
from .rig.link import LinkTo
from .rig.progress import GrowingJournal
from .rig.service import Service
from .rig.strays import Strays

LOOK_AGAIN_S: Final = 0.003
RESTART_S: Final = 0.2  # between an exit code 3 and the next start
LIVES_MAX: Final = 40
DEADLINE_S: Final = 300.0  # of a case, whatever moves
PACE_BYTES_PER_S: Final = 20_000  # of the link, so that there is a moment in which to act
PATIENT: Final = RetryPolicy(timeout_s=2.0, retries_max=10)
SAID_CHARS_MAX: Final = 300
LOG_BYTES_MAX: Final = 1 << 20  # what it prints; more is dropped
LOG_BYTES_KEPT: Final = 1 << 16
DISK_BYTES_MAX: Final = 64 << 20  # its state and output together, and each file for itself
MEASURE_AGAIN_S: Final = 0.25


def tokens(count: int) -> list[str]:
    """Words that no program can guess, whatever the seed is."""
    return [secrets.token_hex(8) for _ in range(count)]


class CrashRun(Struct, frozen=True):
    """One of several runs of a client, with one proxy for all of them."""

    service: Service
    number: int  # 1, 2, 3, ...: each run has an id and a topic of its own
    stop_at: CrashPoint | None  # it is killed there; None: nowhere

    @property
    def journal(self) -> Path:
        """That of the proxy."""
        return self.service.directory / "proxy.jsonl"


class HungError(Exception):
    """Nothing has moved for as long as the patience is, or the disk was about to be filled."""


class ConformanceStage:
    """A case that runs. Everything is done in one thread, which calls `look` all the time."""

    def __init__(
        self,
        directory: Path,
        role: Role,
        command: Sequence[str],
        messages: Sequence[bytes],
        *,
        patience_s: float,
        crash: CrashRun | None = None,
    ) -> None:
        """Start the proxy and open the link; the client does not run yet.

        Args:
            directory: empty.
            crash: count the crash points of its first process, at a proxy that runs already.
            messages: those of a publisher; those that a subscriber is to get.

        Raises:
            NotReadyError: the proxy does not start.
        """
        self.directory, self.role, self.messages = directory, role, messages
        self.private = Path(tempfile.mkdtemp(prefix="conformance-"))
        self.service = Service(self.private) if crash is None else crash.service
        number = 1 if crash is None else crash.number
        self.client = f"client-{number}"
        self.topic = TOPIC if number == 1 else f"{TOPIC}-{number}"
        self.evidence = self.private / "evidence"
        self.state_dir, self.output = directory / "state", directory / "output"
        self._log = directory / "command.log"
        for folder in (self.evidence / "journals", self.evidence / "outputs", self.state_dir):
            folder.mkdir(parents=True)
        self._input = self._write_input()
        files = {"output": self.output, "state_dir": self.state_dir}
        self._crash_run = crash
        self.crash = None if crash is None else CrashPoints(files, crash.stop_at)
        self._command, self.patience_s = command, patience_s
        self.lives: list[ClientLife] = []
        self.ended: list[Ended] = []
        self.resumable = True  # whether exit code 3 means to start it again
        self.is_over = False  # it has ended, and is not started again automatically
        self.ahead: tuple[int, int] | None = None
        self.checks_acknowledged = role == "subscriber"
        self.claimed_ns: dict[int, int] = {}  # by line of the output, when it was seen
        self.lines = 0  # of the output
        self.last_line, self.seen = b"", Watched()
        self._journal_begin = 0 if crash is None else crash.journal.stat().st_size
        of_proxy = self.proxy_journal if crash is None else crash.journal
        self._journal = GrowingJournal(of_proxy, self._journal_begin)
        self._output_bytes = self._output_read = 0
        self.unsent: tuple[int, bytes] | None = None  # line of its output that was not sent to it
        self._measured_s = 0.0
        self._picture: object = None
        self._began_s = self._moved_s = time.monotonic()
        self._restart_s: float | None = None
        self._child: ChildProcess | None = None
        self._feeder: Publisher | None = None
        self.fed = 0
        self.recorder = open_journal(self.evidence / "journals" / "lab.jsonl", "lab")
        self.recorder.begin("lab")
        self.link = LinkTo(self.endpoint)
        self.link.transcripts = {}
        self._strays: Strays | None = None
        try:
            if crash is None:
                self.start_proxy()
            self._strays = Strays()
            self.calm()
        except BaseException:
            self.close()
            raise

    def _write_input(self) -> Path:
        """Return the standard input of the client; only a publisher has some."""
        if self.role == "subscriber":
            return Path(os.devnull)
        given = self.directory / "input"
        given.write_bytes(b"".join(one + b"\n" for one in self.messages))
        return given

    def note(self, what: str, target: str, detail: str = "") -> None:
        """Write into the journal of the lab what is done."""
        self.recorder.line(journal.Event, what=what, target=target, detail=detail)

    # The proxy.

    @property
    def proxy_journal(self) -> Path:
        return self.evidence / "journals" / "proxy.jsonl"

    @property
    def endpoint(self) -> str:
        """The proxy's, for the role, without a link between."""
        is_publisher = self.role == "publisher"
        return self.service.publisher_endpoint if is_publisher else self.service.subscriber_endpoint

    def start_proxy(self, *, journal_file: Path | None = None) -> None:
        """Start it, for the first time or again at the same endpoints."""
        self.service.start_proxy("--journal", journal_file or self.proxy_journal)

    def copy_data(self, copy: Path) -> None:
        """Copy its data directory, as it is at one moment."""
        self.service.proxy.pause()
        shutil.copytree(self.service.data_dir, copy)
        self.service.proxy.signal(signal.SIGCONT)

    def audit(self) -> None:
        """Read what the log holds, into the evidence.

        Raises:
            PubSubError: it cannot be read.
        """
        file = self.evidence / "journals" / f"{AUDITOR}.jsonl"
        endpoint = self.service.subscriber_endpoint
        others = self._crash_run is None  # the proxy has the topics of all runs
        audit(endpoint, open_journal(file, AUDITOR), topics=[self.topic], others=others)

    # What a subscriber is given.

    def feed(self, sizes: Sequence[int]) -> None:
        """Put the next messages, in batches of these sizes.

        Raises:
            PubSubError: the proxy does not take them.
        """
        if self._feeder is None:
            self._feeder = self.publisher("feeder-1", self.evidence / "journals" / "feeder.jsonl")
        for size in sizes:
            self._feeder.put_many(self.topic, self.messages[self.fed : self.fed + size])
            self.fed += size

    def publisher(self, client: str, journal_file: Path | None = None) -> Publisher:
        """Our publisher, which does not use the link."""
        world = World(state=MemoryState())
        return self.service.open_publisher(
            client, retry=PATIENT, journal=journal_file, _world=world
        )

    # The client.

    def start_client(self) -> None:
        """Start it, for the first time or again, with the same command.

        Raises:
            ConfigurationError: there is no such command.
        """
        given = Given(
            self.link.endpoint,
            self.client,
            self.topic,
            str(self.state_dir),
            str(self.output),
            str(self._input),
        )
        command = given.command(self._command)
        if self.crash is not None and not self.lives:
            command = self.crash.command(command)
        began_ns = time.monotonic_ns()
        try:
            self._child = ChildProcess(
                command,
                self._log,
                environment=given.variables(),
                standard_input=self._input if self.role == "publisher" else None,
                file_bytes_max=DISK_BYTES_MAX,
            )
        except OSError as error:
            raise ConfigurationError(
                f"{command[0]}: cannot be started: {error.strerror}"
            ) from error
        self.lives.append(ClientLife(self._child.pid, began_ns))
        self.is_over, self._restart_s = False, None
        self._moved_s = time.monotonic()
        self.note(
            "restart" if len(self.lives) > 1 else "start", self.client, f"life {len(self.lives)}"
        )

    def kill_client(self) -> None:
        """SIGKILL for it and all that it has started."""
        if self._child is not None:
            self._child.kill_group()
            self._child = None
            self.note("kill", self.client)
        self._end_strays()

    def _end_strays(self) -> None:
        if self._strays is not None:
            self._strays.end()

    def stop_client(self) -> None:
        """SIGTERM; what it does then is not judged."""
        if self._child is not None:
            self._child.end()
            self._child = None
        self._end_strays()

    def said(self) -> str:
        """The last line that it wrote to stdout or stderr."""
        try:
            text = self._log.read_text(errors="replace").strip()
        except OSError:
            return ""
        return text.splitlines()[-1][-SAID_CHARS_MAX:] if text else ""

    @property
    def done(self) -> int:
        """Messages that are stored, or in the output."""
        return self.seen.stored if self.role == "publisher" else self.lines

    # Watching.

    def look(self) -> None:
        """Read how far everything is, and start the client again if it ended with exit code 3."""
        self._look_at_proxy()
        self._look_at_output()
        self._look_at_client()
        self._look_at_sizes()
        cursor = self.seen.cursor
        if self.checks_acknowledged and cursor > self.lines and self.ahead is None:
            self.ahead = (cursor, self.lines)
        picture = (self.seen, self._output_bytes, len(self.lives), self.is_over)
        if picture != self._picture:
            self._picture, self._moved_s = picture, time.monotonic()

    def _look_at_proxy(self) -> None:
        if lines := self._journal.new_lines():
            self.seen = watched(self.seen, lines, self.role, self.client)

    def _look_at_output(self) -> None:
        if self.output.exists():
            size = self.output.stat().st_size
            if size != self._output_bytes:
                self._output_bytes = size
                data = self.output.read_bytes()
                self.lines = data.count(b"\n")
                self.last_line = data[data.rfind(b"\n", 0, data.rfind(b"\n")) + 1 :]
                now_ns = time.monotonic_ns()
                for line in range(len(self.claimed_ns) + 1, self.lines + 1):
                    self.claimed_ns[line] = now_ns
                if self.role == "subscriber":
                    self._compare_with_sent(data)

    def _compare_with_sent(self, output: bytes) -> None:
        """Hold the new lines of a subscriber's output against what has been sent to it so far."""
        begin = self._output_read if self._output_read <= len(output) else 0
        self._output_read = output.rfind(b"\n") + 1
        first = output.count(b"\n", 0, begin) + 1
        for claim in claims_in(output[begin : self._output_read].splitlines(), first).claims:
            if self.unsent is None and self.link.first_passed_ns("answers", claim.payload) is None:
                self.unsent = claim.line, claim.payload

    def _look_at_sizes(self) -> None:
        """See that COMMAND does not fill the disk.

        Raises:
            HungError: its state and output are too large.
        """
        with suppress(FileNotFoundError):  # it has not run yet
            if self._log.stat().st_size > LOG_BYTES_MAX:
                self._shorten_log()
        now_s = time.monotonic()
        if now_s - self._measured_s < MEASURE_AGAIN_S:
            return
        self._measured_s = now_s
        size = self._output_bytes
        for folder, _, names in os.walk(self.state_dir):
            for name in names:
                with suppress(OSError):  # removed meanwhile
                    size += os.lstat(os.path.join(folder, name)).st_size
        if size > DISK_BYTES_MAX:
            raise HungError(
                f"its state and output are {size >> 20} MiB, more than {DISK_BYTES_MAX >> 20} MiB "
                "for a few messages, so it was killed"
            )

    def _shorten_log(self) -> None:
        """Keep the end of what it printed; it appends, so it continues after that."""
        with self._log.open("r+b") as log:
            log.seek(-LOG_BYTES_KEPT, os.SEEK_END)
            end = log.read(LOG_BYTES_KEPT)
            log.truncate(0)
            log.seek(0)
            log.write(end)

    def _look_at_client(self) -> None:
        now_s = time.monotonic()
        if self.crash is not None and self.crash.error is not None:
            raise NotReadyError(f"its calls are no longer watched: {self.crash.error}")
        if self.crash is not None and self.crash.is_reached and len(self.lives) == 1:
            self.note("crash", self.client, list(self.crash.points.values())[-1])
            self.kill_client()
            self.start_client()
        if self._restart_s is not None and now_s >= self._restart_s:
            self.start_client()
        code = None if self._child is None else self._child.exit_code
        if self._child is None or code is None:
            return
        self._child.kill_group()  # what it has started ends with it
        self._child = None
        self._end_strays()
        self.ended.append(Ended(code, self.done))
        self.note("end", self.client, f"exit code {code}")
        if code == UNREACHABLE and self.resumable and len(self.lives) < LIVES_MAX:
            self._restart_s = now_s + RESTART_S
        else:
            self.is_over = True

    def wait(self, look: Callable[[], bool], what: str, *, at_most_s: float | None = None) -> bool:
        """Look until something is so; False: the client has ended before, or it took too long.

        Args:
            what: is waited for, as the end of "there was no ...".
            at_most_s: None: as long as something moves, and the patience after that.

        Raises:
            HungError: nothing has moved for this long.
        """
        began_s = self._moved_s = time.monotonic()
        while True:
            self.look()
            if look():
                return True
            if self.is_over:
                return False
            now_s = time.monotonic()
            if at_most_s is not None and now_s - began_s > at_most_s:
                return False
            if now_s - self._began_s > DEADLINE_S:
                raise HungError(f"there was no {what} in the {DEADLINE_S:g} s that a case may take")
            if now_s - self._moved_s > self.patience_s:
                raise HungError(
                    f"there was no {what}: nothing has moved for {self.patience_s:g} s, at "
                    f"{self.done} of {len(self.messages)} messages"
                )
            time.sleep(LOOK_AGAIN_S)

    def watch(self, for_s: float) -> None:
        """Look for this long."""
        self.wait(lambda: False, "end", at_most_s=for_s)

    def has(self, number: int) -> bool:
        """Whether the output ends with a message or a later one, or will never have it.

        Args:
            number: of the message, from 0.
        """
        if self.seen.cursor > number:
            return True  # it has acknowledged it, and will not be given it again
        claims = claims_in([self.last_line.rstrip(b"\n")]).claims if self.last_line else ()
        if not claims:
            return False
        last = claims[-1]
        at_end = last.offset is not None and last.offset >= number
        return at_end or last.payload in self.messages[number:]

    # The link.

    def sent_ns(self) -> dict[int, int]:
        """By number of a publisher's message, from 1: when the link first saw all of it."""
        seen = (self.link.first_passed_ns("requests", one) for one in self.messages)
        return {n: at_ns for n, at_ns in enumerate(seen, start=1) if at_ns is not None}

    def calm(self) -> None:
        """Everything passes, at a pace at which it can be observed."""
        self.link.heal()
        if self.crash is None:
            self.link.slow(PACE_BYTES_PER_S)

    # The end.

    def close(self) -> None:
        """End and reap everything, whatever has happened."""
        self.kill_client()
        if self._feeder is not None:
            with suppress(PubSubError):
                self._feeder.close()
        if self.crash is not None:
            self.crash.close()
        if self._crash_run is None:
            self.service.close()
        else:
            begin, *_ = (lines := self._crash_run.journal.read_bytes()).splitlines(keepends=True)
            self.proxy_journal.write_bytes(begin + lines[self._journal_begin :])
        self.link.close()
        self.recorder.end()
        with suppress(OSError):
            self._shorten_log()  # what it printed last
        for entry in self.private.iterdir():
            shutil.move(entry, self.directory / entry.name)
        self.private.rmdir()
        self.evidence = self.directory / self.evidence.name
