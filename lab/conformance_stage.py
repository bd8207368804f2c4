"""The processes and files of one case: a proxy, a faulty link, the client that is judged.

    COMMAND ── tcp ──► LinkTo ── tcp ──► proxy ◄── our publisher, for a subscriber

Everything that is written is kept, in one directory:

    evidence/   journals and output in the form that `reliable-pubsub lab check` reads
    output      what COMMAND wrote        input   the messages that it is given
    state/      its state directory       data/   the data directory of the proxy
    command.log, 000-proxy.stderr, ...    what both printed for the user
"""

from __future__ import annotations

import shutil
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from reliable_pubsub.common.core import journal
from reliable_pubsub.common.core.client_state import MemoryState
from reliable_pubsub.common.core.errors import ConfigurationError, PubSubError
from reliable_pubsub.common.core.retry import RetryPolicy
from reliable_pubsub.common.journal_file import open_journal
from reliable_pubsub.common.world import World
from reliable_pubsub.publisher.client import Publisher

from .auditor import NAME as AUDITOR
from .auditor import audit
from .core.conformance import CLIENT, TOPIC, UNREACHABLE, Given, Role
from .core.conformance_evidence import ClientLife, Watched, read_output, watched
from .core.conformance_verdict import Ended
from .rig.child_process import ChildProcess
from .rig.link import LinkTo
from .rig.progress import GrowingJournal
from .rig.service import Service

LOOK_AGAIN_S: Final = 0.003
RESTART_S: Final = 0.2  # between an exit code 3 and the next start
LIVES_MAX: Final = 40
DEADLINE_S: Final = 300.0  # of a case, whatever moves
PACE_BYTES_PER_S: Final = 20_000  # of the link, so that there is a moment in which to act
PATIENT: Final = RetryPolicy(timeout_s=2.0, retries_max=10)
SAID_CHARS_MAX: Final = 300


class HungError(Exception):
    """Nothing has moved for as long as the patience is."""


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
    ) -> None:
        """Start the proxy and open the link; the client does not run yet.

        Args:
            directory: empty.
            messages: those of a publisher; those that a subscriber is to get.

        Raises:
            NotReadyError: the proxy does not start.
        """
        self.directory, self.role, self.messages = directory, role, messages
        self.service = Service(directory)
        self.evidence = directory / "evidence"
        self.state_dir, self.output = self.service.state_dir, directory / "output"
        for folder in (self.evidence / "journals", self.evidence / "outputs", self.state_dir):
            folder.mkdir(parents=True)
        self._input = directory / "input"
        self._input.write_bytes(b"".join(one + b"\n" for one in messages))
        self._command, self._patience_s = command, patience_s
        self.lives: list[ClientLife] = []
        self.ended: list[Ended] = []
        self.resumable = True  # whether exit code 3 means to start it again
        self.is_over = False  # it has ended, and is not started again automatically
        self.ahead: tuple[int, int] | None = None
        self.checks_acknowledged = role == "subscriber"
        self.claimed_ns: dict[int, int] = {}  # by line of the output, when it was seen
        self.lines = 0  # of the output
        self.last_line = b""
        self.seen = Watched()
        self._journal = GrowingJournal(self.proxy_journal)
        self._output_bytes = 0
        self._picture: object = None
        self._began_s = self._moved_s = time.monotonic()
        self._restart_s: float | None = None
        self._child: ChildProcess | None = None
        self._feeder: Publisher | None = None
        self.fed = 0
        self.recorder = open_journal(self.evidence / "journals" / "lab.jsonl", "lab")
        self.recorder.begin("lab")
        self.link = LinkTo(self.endpoint)
        try:
            self.start_proxy()
            self.calm()
        except BaseException:
            self.close()
            raise

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
        audit(endpoint, open_journal(file, AUDITOR), topics=[TOPIC])

    # What a subscriber is given.

    def feed(self, sizes: Sequence[int]) -> None:
        """Put the next messages, in batches of these sizes.

        Raises:
            PubSubError: the proxy does not take them.
        """
        if self._feeder is None:
            self._feeder = self.publisher("feeder-1", self.evidence / "journals" / "feeder.jsonl")
        for size in sizes:
            self._feeder.put_many(TOPIC, self.messages[self.fed : self.fed + size])
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
            CLIENT,
            TOPIC,
            str(self.state_dir),
            str(self.output),
            str(self._input),
        )
        command = given.command(self._command)
        began_ns = time.monotonic_ns()
        try:
            self._child = ChildProcess(
                command,
                self.directory / "command.log",
                environment=given.variables(),
                standard_input=self._input if self.role == "publisher" else None,
            )
        except OSError as error:
            raise ConfigurationError(
                f"{command[0]}: cannot be started: {error.strerror}"
            ) from error
        self.lives.append(ClientLife(self._child.pid, began_ns))
        self.is_over, self._restart_s = False, None
        self._moved_s = time.monotonic()
        self.note("restart" if len(self.lives) > 1 else "start", CLIENT, f"life {len(self.lives)}")

    def kill_client(self) -> None:
        """SIGKILL for it and all that it has started."""
        if self._child is not None:
            self._child.kill_group()
            self._child = None
            self.note("kill", CLIENT)

    def stop_client(self) -> None:
        """SIGTERM; what it does then is not judged."""
        if self._child is not None:
            self._child.end()
            self._child = None

    def said(self) -> str:
        """The last line that it wrote to stdout or stderr."""
        try:
            text = (self.directory / "command.log").read_text(errors="replace").strip()
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
        cursor = self.seen.cursor
        if self.checks_acknowledged and cursor > self.lines and self.ahead is None:
            self.ahead = (cursor, self.lines)
        picture = (self.seen, self._output_bytes, len(self.lives), self.is_over)
        if picture != self._picture:
            self._picture, self._moved_s = picture, time.monotonic()

    def _look_at_proxy(self) -> None:
        if lines := self._journal.new_lines():
            self.seen = watched(self.seen, lines, self.role, CLIENT)

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

    def _look_at_client(self) -> None:
        now_s = time.monotonic()
        if self._restart_s is not None and now_s >= self._restart_s:
            self.start_client()
        code = None if self._child is None else self._child.exit_code
        if self._child is None or code is None:
            return
        self._child.kill_group()  # what it has started ends with it
        self._child = None
        self.ended.append(Ended(code, self.done))
        self.note("end", CLIENT, f"exit code {code}")
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
            if now_s - self._moved_s > self._patience_s:
                raise HungError(
                    f"there was no {what}: nothing has moved for {self._patience_s:g} s, at "
                    f"{self.done} of {len(self.messages)} messages"
                )
            time.sleep(LOOK_AGAIN_S)

    def watch(self, for_s: float) -> None:
        """Look for this long."""
        self.wait(lambda: False, "end", at_most_s=for_s)

    def has_last(self) -> bool:
        """Whether the output ends with the last message, or with one that comes after it."""
        if not self.last_line:
            return False
        claims = read_output(self.last_line).claims
        if not claims:
            return False
        last = claims[-1]
        at_end = last.offset is not None and last.offset >= len(self.messages) - 1
        return at_end or last.payload == self.messages[-1]

    # The link.

    def calm(self) -> None:
        """Everything passes, at a pace at which it can be observed."""
        self.link.heal()
        self.link.slow(PACE_BYTES_PER_S)

    # The end.

    def close(self) -> None:
        """End and reap everything, whatever has happened."""
        self.kill_client()
        if self._feeder is not None:
            with suppress(PubSubError):
                self._feeder.close()
        self.service.close()
        self.link.close()
        self.recorder.end()
