"""Processes of Python that begin with everything imported: a start costs 20 ms instead of 600.

A helper process imports the product once and forks for each command it is sent; the child has its
own output, directory and environment, and runs what `python -m` or `python -c` would. It is as real
as any other process: it has its own id, holds its own sockets and files, and dies of `kill -9`.

The helper opens no socket of ZeroMQ and starts no thread, so a fork of it is sound. It imports no
`__main__` of the product: a child does that itself. A child that starts processes of its own can
have a helper likewise, forked from what it is (`fork_from_here`).
"""

from __future__ import annotations

import atexit
import gc
import importlib
import io
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, Final, NoReturn

from reliable_pubsub.common.core.journal import line_decoder
from reliable_pubsub.common.core.wire import reply_decoder, request_decoder
from reliable_pubsub.lab.rig.child_process import Executed, RunningProcess

REPOSITORY: Final = Path(__file__).resolve().parents[2]
_FRAME_BYTES_MAX: Final = 1 << 18


class ForkedProcess:
    """The part of `subprocess.Popen` that the tests use, for a child of the helper."""

    stdin = None  # nothing is written to it

    def __init__(self, helper: Helper, pid: int) -> None:
        self.pid = pid
        self._helper = helper
        self._returncode: int | None = None
        self._reaping = threading.Lock()  # of two threads that ask for its end, one reaps it
        self._end = os.pidfd_open(pid)  # its id is not used again before it is reaped

    def __del__(self) -> None:
        os.close(self._end)

    def _has_ended(self, timeout_s: float | None = 0.0) -> bool:
        return bool(select.select([self._end], [], [], timeout_s)[0])

    def poll(self) -> int | None:
        """Its exit code; None while it runs."""
        with self._reaping:
            if self._returncode is None and self._has_ended():
                self._returncode = self._helper.ask({"poll": self.pid})
            return self._returncode

    def pause(self) -> None:
        """Send SIGSTOP, and wait until it is stopped: only a parent hears of it."""
        self._helper.ask({"pause": self.pid})

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end.

        Raises:
            subprocess.TimeoutExpired: it still runs.
        """
        if self._returncode is None and not self._has_ended(timeout):
            raise subprocess.TimeoutExpired(str(self.pid), timeout or 0.0)
        code = self.poll()
        assert code is not None
        return code

    def send_signal(self, number: int) -> None:
        """Send a signal, if it has not been reaped."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """kill -9."""
        self.send_signal(signal.SIGKILL)


class Helper:
    """This side of the process that forks; it ends with this one, when the socket closes."""

    def __init__(self, channel: socket.socket, process: Any = None) -> None:
        """It runs already.

        Args:
            process: kept with this.
        """
        self._asking = threading.Lock()
        self._socket, self._process = channel, process

    def ask(self, request: Mapping[str, Any], descriptors: Sequence[int] = ()) -> Any:
        """Send a request; return the answer."""
        with self._asking:
            socket.send_fds(self._socket, [json.dumps(request).encode()], descriptors)
            answer = self._socket.recv(_FRAME_BYTES_MAX)
        assert answer, "the fork server has ended"
        return json.loads(answer)

    def start(self, command: Sequence[str], **options: Any) -> ForkedProcess | None:
        """Run `python -m module ...` or `python -c program ...`, in a process group of its own;
        None for any other command, and for one whose standard input is a pipe.

        Args:
            options: of `subprocess.Popen`: `cwd` and `env`; `stdout` and `stderr`, and perhaps
                `stdin`, as files.
        """
        standard_input = options.get("stdin", subprocess.DEVNULL)
        if (
            command[0] != sys.executable
            or command[1] not in ("-m", "-c")
            or standard_input == subprocess.PIPE
        ):
            return None
        request = {
            "is_module": command[1] == "-m",
            "runs": command[2],
            "arguments": list(command[3:]),
            "directory": str(options["cwd"] or Path.cwd()),
            "environment": dict(options["env"]),
        }
        files = [options["stdout"], options["stderr"]]
        files += [standard_input] if standard_input != subprocess.DEVNULL else []
        return ForkedProcess(self, self.ask(request, [file.fileno() for file in files]))

    def close(self) -> None:
        """End it."""
        self._socket.close()


@cache
def helper() -> Helper:
    """The one of this process, which has imported everything."""
    rooms = ("common", "proxy", "publisher", "subscriber", "relay", "lab")
    paths = (path for room in rooms for path in sorted((REPOSITORY / room).rglob("*.py")))
    names = [
        ".".join(("reliable_pubsub", *path.relative_to(REPOSITORY).with_suffix("").parts))
        for path in paths
    ]
    imports = ["reliable_pubsub.public", *(name for name in names if not name.endswith("__"))]
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        module, number = "tests.integration.fork_server", theirs.fileno()
        process = subprocess.Popen(
            [sys.executable, "-m", module, str(number), *imports],
            pass_fds=[number],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,  # no terminal: what a child writes is buffered
            cwd=REPOSITORY,
            env={k: v for k, v in os.environ.items() if not k.startswith("RELIABLE_PUBSUB_")},
        )
    return Helper(ours, process)


def fork_from_here() -> Helper:
    """A helper that is a fork of this process, which has no thread yet.

    This process waits for it at its end, so that what it has used is counted.
    """
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    if (pid := os.fork()) == 0:
        ours.close()
        _run(_serve(theirs))
    theirs.close()
    helper = Helper(ours)

    def end() -> None:
        helper.close()
        os.waitpid(pid, 0)

    atexit.register(end)
    return helper


def forking(helper: Callable[[], Helper]) -> Callable[..., RunningProcess]:
    """Return a `ChildProcess.execute` that forks what it can, and executes the rest."""

    def execute(command: Sequence[str], **options: Any) -> RunningProcess:
        options["env"] = {"PYTHONPATH": str(REPOSITORY), **options["env"]}
        return helper().start(command, **options) or Executed(command, **options)

    return execute


# The helper's side.


def _serve(channel: socket.socket) -> dict[str, Any]:
    """Answer requests; return in each child, with what it is to run.

    When the test process is gone, so is everything that it had started.
    """
    running: set[int] = set()
    while True:
        message, descriptors, _, _ = socket.recv_fds(channel, _FRAME_BYTES_MAX, 3)
        if not message:
            for child in running:
                os.kill(child, signal.SIGKILL)
            os._exit(0)
        request = json.loads(message)
        if "poll" in request:
            pid, status = os.waitpid(request["poll"], os.WNOHANG)
            running.discard(pid)
            answer = os.waitstatus_to_exitcode(status) if pid else None
        elif "pause" in request:
            os.kill(request["pause"], signal.SIGSTOP)
            os.waitid(os.P_PID, request["pause"], os.WSTOPPED | os.WEXITED | os.WNOWAIT)
            answer = None
        elif (answer := os.fork()) == 0:
            os.setpgid(0, 0)
            channel.close()
            for descriptor, number in zip(descriptors, (1, 2, 0), strict=False):
                os.dup2(descriptor, number)
                os.close(descriptor)
            return dict(request)
        else:
            with suppress(PermissionError, ProcessLookupError):  # the child did it, and more
                os.setpgid(answer, answer)
            running.add(answer)
        for descriptor in descriptors:
            os.close(descriptor)
        channel.send(json.dumps(answer).encode())


def main() -> None:
    """Import, then fork on request."""
    channel = socket.socket(fileno=int(sys.argv[1]))
    for name in sys.argv[2:]:
        importlib.import_module(name)
    for decoder in (request_decoder, reply_decoder, line_decoder):  # else each child makes its own
        decoder()
    gc.collect()
    gc.freeze()  # a collection in a child touches, and so copies, nothing of this
    _run(_serve(channel))


def _run(request: Mapping[str, Any]) -> NoReturn:
    """In the child: run the request for which it was forked."""
    os.environ.clear()
    os.environ.update(request["environment"])
    if "PYTHONUNBUFFERED" in request["environment"]:
        for stream in (sys.stdout, sys.stderr):
            assert isinstance(stream, io.TextIOWrapper)
            stream.reconfigure(write_through=True)
    os.chdir(request["directory"])
    runs = request["runs"]
    sys.argv = [runs if request["is_module"] else "-c", *request["arguments"]]
    sys.path.insert(0, request["directory"] if request["is_module"] else "")  # as Python has it
    status: object = None
    try:
        if request["is_module"]:
            runpy.run_module(runs, run_name="__main__", alter_sys=True)
        else:
            sys.modules["__main__"] = program = ModuleType("__main__")
            exec(compile(runs, "<string>", "exec"), vars(program))
    except SystemExit as end:
        status = end.code
    _end(status)


def _end(status: object) -> NoReturn:
    """End as an interpreter does, but leave alone what was there before the fork.

    A whole shutdown takes every module apart that the helper had imported: each page of them would
    be copied first, which costs more than all else that a short process does.
    """
    if not (status is None or isinstance(status, int)):
        sys.exit(status)  # type: ignore[arg-type]  # a text, which Python prints
    threading._shutdown()  # type: ignore[attr-defined]  # waits for those that are no daemons
    atexit._run_exitfuncs()
    gc.collect()  # what the module has left: clients, sockets, files
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit((status or 0) & 0xFF)


if __name__ == "__main__":
    main()
