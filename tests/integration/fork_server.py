"""Processes of Python that begin with everything imported: a start costs 20 ms instead of 600.

A helper process imports the product once and forks for each command it is sent; the child has its
own output, directory and environment, and runs the module as `python -m` does. It is as real as
any other process: it has its own id, holds its own sockets and files, and dies of `kill -9`.

The helper opens no socket of ZeroMQ and starts no thread, so a fork of it is sound. It imports no
`__main__` of the product: a child does that itself.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final

_FRAME_BYTES_MAX: Final = 1 << 18


class ForkedProcess:
    """The part of `subprocess.Popen` that the tests use, for a child of the helper."""

    def __init__(self, helper: _Helper, pid: int) -> None:
        """It runs already."""
        self.pid = pid
        self._helper = helper
        self._returncode: int | None = None

    def poll(self) -> int | None:
        """Its exit code; None while it runs."""
        if self._returncode is None:
            self._returncode = self._helper.ask({"poll": self.pid})
        return self._returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end.

        Raises:
            subprocess.TimeoutExpired: it still runs.
        """
        if self.poll() is None:
            end = os.pidfd_open(self.pid)  # its id is not used again before it is reaped
            try:
                if not select.select([end], [], [], timeout)[0]:
                    raise subprocess.TimeoutExpired(str(self.pid), timeout or 0.0)
            finally:
                os.close(end)
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


class _Helper:
    """This side of the process that forks."""

    def __init__(self, imports: Sequence[str], repository: Path) -> None:
        self._asking = threading.Lock()
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "tests.integration.fork_server",
                    str(theirs.fileno()),
                    *imports,
                ],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,  # no terminal: what a child writes is buffered
                cwd=repository,
                env={k: v for k, v in os.environ.items() if not k.startswith("RELIABLE_PUBSUB_")},
            )

    def ask(self, request: Mapping[str, Any], descriptors: Sequence[int] = ()) -> Any:
        with self._asking:
            socket.send_fds(self._socket, [json.dumps(request).encode()], descriptors)
            answer = self._socket.recv(_FRAME_BYTES_MAX)
        assert answer, "the fork server has ended"
        return json.loads(answer)


@cache
def _helper(repository: Path) -> _Helper:
    """The one of this process; it ends with it, when the socket closes."""
    rooms = ("common", "proxy", "publisher", "subscriber", "relay", "lab")
    paths = (path for room in rooms for path in sorted((repository / room).rglob("*.py")))
    names = [
        ".".join(("reliable_pubsub", *path.relative_to(repository).with_suffix("").parts))
        for path in paths
    ]
    return _Helper([name for name in names if not name.endswith("__")], repository)


def start_forked(
    module: str,
    arguments: Sequence[str],
    *,
    repository: Path,
    directory: Path,
    environment: Mapping[str, str],
    stdout: int,
    stderr: int,
) -> ForkedProcess:
    """Run a module as `python -m` does, in a process of its own.

    Args:
        repository: from which everything is imported.
        stdout, stderr: descriptors for its output.
    """
    helper = _helper(repository)
    request = {
        "module": module,
        "arguments": list(arguments),
        "directory": str(directory),
        "environment": dict(environment),
    }
    return ForkedProcess(helper, helper.ask(request, [stdout, stderr]))


# The helper's side.


def _serve(channel: socket.socket) -> dict[str, Any]:
    """Answer requests; return in each child, with what it is to run.

    When the test process is gone, so is everything that it had started.
    """
    running: set[int] = set()
    while True:
        message, descriptors, _, _ = socket.recv_fds(channel, _FRAME_BYTES_MAX, 2)
        if not message:
            for child in running:
                os.kill(child, signal.SIGKILL)
            os._exit(0)
        request = json.loads(message)
        if "poll" in request:
            pid, status = os.waitpid(request["poll"], os.WNOHANG)
            running.discard(pid)
            answer = os.waitstatus_to_exitcode(status) if pid else None
        elif (answer := os.fork()) == 0:
            channel.close()
            for descriptor, number in zip(descriptors, (1, 2), strict=True):
                os.dup2(descriptor, number)
                os.close(descriptor)
            return dict(request)
        else:
            running.add(answer)
        for descriptor in descriptors:
            os.close(descriptor)
        channel.send(json.dumps(answer).encode())


def main() -> None:
    """Import, then fork on request."""
    channel = socket.socket(fileno=int(sys.argv[1]))
    for name in sys.argv[2:]:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()  # a collection in a child touches, and so copies, nothing of this
    request = _serve(channel)
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["directory"])
    sys.argv = [request["module"], *request["arguments"]]
    sys.path.insert(0, request["directory"])  # as `python -m` has it
    runpy.run_module(request["module"], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
