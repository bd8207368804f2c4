"""A child process of the lab, a tool or a test: started, awaited, asked, signalled, reaped."""

from __future__ import annotations

import os
import re
import resource
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import IO, Any, ClassVar, Final, Protocol, Self

import click

from .reaper import REAPER

READY_S_MAX: Final = 600.0  # of one that lives; on a busy machine a start takes long
END_S_MAX: Final = 10.0  # between SIGTERM and SIGKILL
LOOK_AGAIN_S: Final = 0.005
ANY_PORT: Final = "tcp://127.0.0.1:*"
# By the names that a proxy gives its endpoints when it is ready: the options that set them.
PROXY_ENDPOINTS: Final = {
    "publishers": "--publisher-endpoint",
    "subscribers": "--subscriber-endpoint",
    "push": "--push-endpoint",
    "ingress": "--ingress-endpoint",
}
READY: Final = re.compile(r"^(ready: .*)\n", re.MULTILINE)
STANDBY: Final = re.compile(r"^(standby: .* serving=.*)\n", re.MULTILINE)
STATES: Final = re.compile(r"^((?:ready|standby): .*)\n", re.MULTILINE)
ENDPOINT: Final = re.compile(r"\b(\w+)=((?:tcp|ipc|inproc|http)://\S+)")


class NotReadyError(click.ClickException):
    """A process ended, or wrote nothing for too long."""

    exit_code = 2


class RunningProcess(Protocol):
    """The part of `Executed` that is used."""

    pid: int

    @property
    def stdin(self) -> IO[bytes] | None: ...
    def poll(self) -> int | None: ...
    def wait(self, timeout: float | None = None) -> int: ...
    def send_signal(self, sig: int, /) -> None: ...
    def kill(self) -> None: ...
    def pause(self) -> None: ...


class Executed(subprocess.Popen[bytes]):
    """A process group that can be stopped, and that ends with this process."""

    def __init__(self, command: Sequence[str], **options: Any) -> None:
        """Start it; `options` are those of `Popen`."""
        super().__init__(command, process_group=0, **options)
        REAPER.add(self.pid)

    def poll(self) -> int | None:
        is_known = self.returncode is not None
        code = super().poll()
        if code is not None and not is_known:
            REAPER.remove(self.pid)
        return code

    def wait(self, timeout: float | None = None) -> int:
        is_known = self.returncode is not None
        code = super().wait(timeout)
        if not is_known:
            REAPER.remove(self.pid)
        return code

    def pause(self) -> None:
        """Send SIGSTOP, and wait until it has stopped: until then it still runs."""
        self.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)


def proxy_command(
    data_dir: Path,
    *options: str,
    endpoints: Mapping[str, str] | None = None,
    module: str = "reliable_pubsub.proxy",
) -> list[str]:
    """The command that starts a proxy, on free ports of loopback where no endpoint is given."""
    given = endpoints or {}
    pairs = ((option, given.get(name, ANY_PORT)) for name, option in PROXY_ENDPOINTS.items())
    command = [sys.executable, "-m", module, "--data-dir", str(data_dir)]
    return [*command, *(word for pair in pairs for word in pair), *options]


def endpoints_in(line: str) -> dict[str, str]:
    """The endpoints that a process names when it is ready, by the names that it gives them."""
    return dict(ENDPOINT.findall(line))


class ChildProcess:
    """One process; what it writes is appended to files."""

    # Starts a command, with the options of `Popen`. Tests fork what they would execute.
    execute: ClassVar[Callable[..., RunningProcess]] = Executed

    def __init__(
        self,
        command: Sequence[str],
        output: Path,
        *,
        errors: Path | None = None,
        cwd: Path | None = None,
        environment: Mapping[str, str] | None = None,
        talks: bool = False,
        standard_input: Path | None = None,
        file_bytes_max: int | None = None,
    ) -> None:
        """Start it, in a process group of its own: Ctrl-C is for the parent, which ends it.

        Args:
            errors: where its standard error goes, if not to `output`.
            environment: added to ours, from which the settings of this product are taken out.
            talks: it answers the lines of its standard input (`ask`).
            standard_input: a file that it reads from its beginning.
            file_bytes_max: longer files it cannot write (Linux).
        """
        self.command = command
        self.output, self.errors = output, errors or output
        ours = {k: v for k, v in os.environ.items() if not k.startswith("RELIABLE_PUBSUB_")}
        with ExitStack() as stack:
            stdout = stack.enter_context(self.output.open("ab"))
            stderr = stack.enter_context(self.errors.open("ab"))
            stdin: int | IO[bytes] = subprocess.PIPE if talks else subprocess.DEVNULL
            if standard_input is not None:
                stdin = stack.enter_context(standard_input.open("rb"))
            self._begin_bytes = stdout.tell()
            self._child = ChildProcess.execute(
                command,
                cwd=cwd,
                env={**ours, "COLUMNS": "100", **(environment or {})},
                stdin=stdin,
                stdout=stdout,
                stderr=stderr,
            )
        self.pid = self._child.pid
        if file_bytes_max is not None and sys.platform == "linux":
            with suppress(ProcessLookupError):  # it has ended already
                resource.prlimit(self.pid, resource.RLIMIT_FSIZE, (file_bytes_max,) * 2)
                resource.prlimit(self.pid, resource.RLIMIT_CORE, (0, 0))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.end()

    @property
    def exit_code(self) -> int | None:
        """None while it runs; negative: the signal that ended it."""
        return self._child.poll()

    @property
    def runs(self) -> bool:
        """Whether it lives, stopped or not."""
        return self.exit_code is None

    @property
    def waited_s(self) -> float:
        """Return how long it was ready and waited for a core; 0 if the system does not count."""
        try:
            return int(Path(f"/proc/{self.pid}/schedstat").read_text().split()[1]) / 1e9
        except (OSError, IndexError):
            return 0.0

    # What it says.

    def said(self) -> str:
        """What it has written so far; what an earlier process wrote to the file is left out."""
        with self.output.open("rb") as file:
            file.seek(self._begin_bytes)
            return file.read().decode(errors="replace")

    def ready_line(self) -> str | None:
        """The line `ready: ...`, if it is there."""
        found = READY.search(self.said())
        return found and found[1]

    def newest_state(self) -> str | None:
        """The last line by which a proxy said that it is ready; None if it stands by since."""
        found = STATES.findall(self.said())
        return found[-1] if found and found[-1].startswith("ready: ") else None

    def ready(self, within_s: float = READY_S_MAX) -> str:
        """Wait for the line that says it is ready, and return that line.

        Raises:
            NotReadyError: it ended before, or did not say it in time.
        """
        return self._awaited(self.ready_line, within_s)

    def standing_by(self, within_s: float = READY_S_MAX) -> str:
        """Wait for the line that says that another proxy serves, and return that line."""
        return self._awaited(lambda: (found := STANDBY.search(self.said())) and found[1], within_s)

    def endpoints(self, within_s: float = READY_S_MAX) -> dict[str, str]:
        """Wait until it is ready, and return the endpoints that it names."""
        return endpoints_in(self.ready(within_s))

    def ask(self, line: str, within_s: float = READY_S_MAX) -> str:
        """Write a line to its standard input, and wait for the next line of its output."""
        before = self.said().count("\n")

        def answer() -> str | None:
            lines = self.said().split("\n")
            return lines[before] if len(lines) > before + 1 else None

        self.tell(line)
        return self._awaited(answer, within_s)

    def tell(self, line: str) -> None:
        """Write a line to its standard input."""
        assert self._child.stdin is not None
        self._child.stdin.write(f"{line}\n".encode())
        self._child.stdin.flush()

    def _awaited(self, look: Callable[[], str | None], within_s: float) -> str:
        deadline_s = time.monotonic() + within_s
        while True:
            over = not self.runs or time.monotonic() > deadline_s
            if (line := look()) is not None:
                return line
            if over:
                said = self.errors.read_text(errors="replace")[-1000:]
                raise NotReadyError(f"{shlex.join(self.command)}: no answer: {said}")
            time.sleep(LOOK_AGAIN_S)

    # How it ends.

    def signal(self, number: int) -> None:
        """Send a signal, if it lives."""
        if self.runs:
            self._child.send_signal(number)

    def pause(self) -> None:
        """Send SIGSTOP, and wait until it is stopped."""
        if self.runs:
            self._child.pause()

    def wait(self, within_s: float | None = None) -> int:
        """Wait for its end, and return the exit code.

        Raises:
            subprocess.TimeoutExpired: it still runs.
        """
        code = self._child.wait(within_s)
        if self._child.stdin is not None:
            with suppress(BrokenPipeError):  # it has ended without reading all that it was told
                self._child.stdin.close()
        return code

    def kill(self) -> int:
        self._child.kill()
        return self.wait()

    def kill_group(self) -> int:
        """SIGKILL for it and what it has started."""
        with suppress(ProcessLookupError):  # all of it has ended
            os.killpg(self.pid, signal.SIGKILL)
        return self.wait()

    def end(self, within_s: float = END_S_MAX) -> int:
        """SIGTERM for it and what it has started; SIGKILL for what then still runs."""
        if self.runs:
            os.killpg(self.pid, signal.SIGTERM)
            try:
                return ChildProcess.wait(self, within_s)
            except subprocess.TimeoutExpired:
                os.killpg(self.pid, signal.SIGKILL)
        return self.wait()
