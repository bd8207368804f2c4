"""Stops a program before or after one of its writes: each is a point at which a run can end.

The program runs under a filter of system calls (seccomp, Linux). The kernel reports each write,
rename, sync and send before it happens, whatever the language, thread or child process, and waits
for our answer. At the chosen point it gets none, nor does any later call: files and connections
stay as they are until the program is killed. "After" a write is before the next send. strace could
kill there too, but it counts each thread by itself, and must know all files in advance.

This file is also the program that installs the filter, so it imports the standard library alone:

    python -I -S crash_points.py SOCKET COMMAND...
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import functools
import os
import platform
import queue
import secrets
import select
import socket
import struct
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple


class WatchedCall(NamedTuple):
    """A system call that changes files; where it names the file among its arguments."""

    name: str
    numbers: tuple[int, int]  # on x86_64, on aarch64; -1: not there
    kind: str  # "fd": open file; "path"; "at": open directory, then path
    place: int


CALLS: Final = (
    WatchedCall("write", (1, 64), "fd", 0),
    WatchedCall("pwrite", (18, 68), "fd", 0),
    WatchedCall("writev", (20, 66), "fd", 0),
    WatchedCall("pwritev", (296, 70), "fd", 0),
    WatchedCall("pwritev2", (328, 287), "fd", 0),
    WatchedCall("sendfile", (40, 71), "fd", 0),
    WatchedCall("copy_file_range", (326, 285), "fd", 2),
    WatchedCall("fsync", (74, 82), "fd", 0),
    WatchedCall("fdatasync", (75, 83), "fd", 0),
    WatchedCall("ftruncate", (77, 46), "fd", 0),
    WatchedCall("truncate", (76, 45), "path", 0),
    WatchedCall("rename", (82, -1), "path", 1),
    WatchedCall("rename", (264, 38), "at", 2),
    WatchedCall("rename", (316, 276), "at", 2),
    WatchedCall("link", (86, -1), "path", 1),
    WatchedCall("link", (265, 37), "at", 2),
    WatchedCall("unlink", (87, -1), "path", 0),
    WatchedCall("unlink", (263, 35), "at", 0),
    WatchedCall("send", (44, 206), "fd", 0),
    WatchedCall("send", (46, 211), "fd", 0),
    WatchedCall("send", (307, 269), "fd", 0),
)
# By machine: the place in `numbers`, the constant of its kernel, the number of seccomp().
MACHINES: Final = {"x86_64": (0, 0xC000003E, 317), "aarch64": (1, 0xC00000B7, 277)}
AT_CWD: Final = -100
PATH_BYTES_MAX: Final = 4096
LOOK_AGAIN_MS: Final = 100
TRIAL_S_MAX: Final = 300.0
TRIAL: Final = "import os; open('a', 'wb').write(b'1'); os.rename('a', 'b')"

# linux/seccomp.h, linux/filter.h and linux/prctl.h
SET_FILTER, GET_SIZES, NEW_LISTENER = 1, 3, 8
NOTIFY, ALLOW = 0x7FC00000, 0x7FFF0000
LOAD, JUMP_IF_EQUAL, RETURN = 0x20, 0x15, 0x06
NO_NEW_PRIVILEGES: Final = 38
RECEIVE, SEND = 0xC0502100, 0xC0182101
NOTIFICATION: Final = struct.Struct("=QIIiIQ6Q")  # id, pid, flags, call, machine, place, arguments
ANSWER: Final = struct.Struct("=QqiI")  # id, value, error, flags
CONTINUE: Final = 1


def why_not_here() -> str:
    """Return why crash points cannot be tried on this machine; "" if they can."""
    if sys.platform != "linux" or platform.machine() not in MACHINES:
        return f"needs Linux on x86_64 or aarch64, this is {sys.platform} on {platform.machine()}"
    sizes = (ctypes.c_uint16 * 3)()
    seccomp = MACHINES[platform.machine()][2]
    if ctypes.CDLL(None, use_errno=True).syscall(seccomp, GET_SIZES, 0, ctypes.byref(sizes)):
        return f"the kernel reports no system calls (seccomp): {os.strerror(ctypes.get_errno())}"
    if tuple(sizes[:2]) != (NOTIFICATION.size, ANSWER.size):
        return f"the kernel reports system calls in another form (seccomp): {tuple(sizes)}"
    return why_a_trial_fails()


@functools.cache
def why_a_trial_fails() -> str:
    """Return why a small program cannot be watched here; "" if it can.

    A kernel before 5.5 knows no CONTINUE, a container may have a filter of its own, and the memory
    of another process may be closed to us.
    """
    with tempfile.TemporaryDirectory() as folder:
        points = CrashPoints({"trial": Path(folder)})
        command = points.command([sys.executable, "-I", "-S", "-c", TRIAL])
        try:
            done = subprocess.run(
                command, cwd=folder, capture_output=True, text=True, timeout=TRIAL_S_MAX
            )
        except subprocess.TimeoutExpired:
            return f"a small program did not end in {TRIAL_S_MAX:g} s under the filter (seccomp)"
        finally:
            points.close()
    if points.error is not None:
        return f"the kernel takes no answer to a system call (seccomp): {points.error.strerror}"
    if done.returncode:
        said = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        return f"a small program failed under the filter (seccomp): {said[-1]}"
    if not {"before write(trial/a)", "before rename(trial/b)"} <= set(points.points.values()):
        return "the files of another process cannot be seen here (seccomp, ptrace)"
    return ""


class CrashPoint(NamedTuple):
    """A moment in a run of a program."""

    call: int  # 1, 2, 3, ...: of those that change a file that counts
    is_after: bool  # it has happened, and nothing was sent since

    def named(self, call: str) -> str:
        """`before write(output)`."""
        return f"{'after' if self.is_after else 'before'} {call}"


class CrashPoints:
    """The crash points of one run of a program."""

    def __init__(self, files: Mapping[str, Path], stop_at: CrashPoint | None = None) -> None:
        """Listen; nothing runs yet.

        Args:
            files: what counts, by the name to show: files, and folders with all that is in them.
            stop_at: nothing happens from there on; None: everything does.
        """
        self.points: dict[CrashPoint, str] = {}  # with their names, in order
        self.is_reached = False  # the program waits there, to be killed
        self.error: OSError | None = None  # the kernel refused an answer, and nothing is watched
        self._call = 0
        self._call_name = ""
        self._files = {name: os.path.realpath(path) for name, path in files.items()}
        self._stop_at = stop_at
        self._name = f"crash-points-{secrets.token_hex(8)}"
        self._door = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._door.bind(f"\0{self._name}")
        self._door.listen(1)
        self._is_closing = False
        column = MACHINES[platform.machine()][0]
        self._calls = {call.numbers[column]: call for call in CALLS}
        self._thread = threading.Thread(target=self._watch, name="crash-points", daemon=True)
        self._thread.start()

    def command(self, command: Sequence[str]) -> list[str]:
        """Return the command that runs a command so that its calls are reported here."""
        return [sys.executable, "-I", "-S", __file__, self._name, *command]

    def close(self) -> None:
        """End the thread; the program must have ended."""
        self._is_closing = True
        with suppress(OSError):
            self._door.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._door.close()

    def _watch(self) -> None:
        try:
            connection, _ = self._door.accept()
        except OSError:  # closed before the program began
            return
        with connection:
            _, descriptors, _, _ = socket.recv_fds(connection, 1, 1)
        for listener in descriptors:
            try:
                self._answer_all(listener)
            except OSError as error:
                self.error = error
            finally:
                os.close(listener)

    def _answer_all(self, listener: int) -> None:
        waiting = select.poll()
        waiting.register(listener, select.POLLIN)
        while not self._is_closing:
            for _, happened in waiting.poll(LOOK_AGAIN_MS):
                if happened & select.POLLHUP and not happened & select.POLLIN:
                    return  # all processes with the filter have ended
                notification = bytearray(NOTIFICATION.size)
                try:
                    fcntl.ioctl(listener, RECEIVE, notification)
                    number, pid, _, call, _, _, *arguments = NOTIFICATION.unpack(notification)
                    if self._lets(pid, self._calls[call], arguments):
                        answer = bytearray(ANSWER.pack(number, 0, 0, CONTINUE))
                        fcntl.ioctl(listener, SEND, answer)
                except OSError as error:
                    if error.errno not in (errno.ENOENT, errno.EINTR):  # killed; asked again
                        raise

    def _lets(self, pid: int, call: WatchedCall, arguments: Sequence[int]) -> bool:
        """Return whether a call may happen; note the point at which it is."""
        path = _path_in(pid, call, arguments)
        name = self._name_of(path)
        if self.is_reached:
            return False if name else not path.startswith("socket:")
        if name:
            self._call, self._call_name = self._call + 1, f"{call.name}({name})"
        elif not (self._call and path.startswith("socket:")):
            return True
        point = CrashPoint(self._call, is_after=not name)
        self.points.setdefault(point, point.named(self._call_name))
        self.is_reached = point == self._stop_at
        return not self.is_reached

    def _name_of(self, path: str) -> str:
        for name, place in self._files.items():
            if path == place:
                return name
            if path.startswith(f"{place}/") and not path.endswith(" (deleted)"):
                return name + path.removeprefix(place)
        return ""


def _path_in(pid: int, call: WatchedCall, arguments: Sequence[int]) -> str:
    """Return the file that a call names; "" if it is none, or the process has ended."""
    try:
        if call.kind == "fd":
            return os.readlink(f"/proc/{pid}/fd/{arguments[call.place] & 0xFFFFFFFF}")
        place, folder = call.place, AT_CWD
        if call.kind == "at":
            (folder,) = struct.unpack("=i", struct.pack("=I", arguments[place] & 0xFFFFFFFF))
            place += 1
        with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
            memory.seek(arguments[place])
            path = os.fsdecode(memory.read(PATH_BYTES_MAX).split(b"\0")[0])
        base = f"/proc/{pid}/cwd" if folder == AT_CWD else f"/proc/{pid}/fd/{folder}"
        head, tail = os.path.split(os.path.join(os.readlink(base), path))
        return os.path.join(os.path.realpath(head), tail)
    except (OSError, ValueError, OverflowError):
        return ""


# The program that installs the filter.


def filter_program() -> bytes:
    """Return the filter: report the calls of this machine's kind, allow all others."""
    column, machine, _ = MACHINES[platform.machine()]
    numbers = [call.numbers[column] for call in CALLS if call.numbers[column] >= 0]
    one = struct.Struct("=HBBI")
    checks = [
        one.pack(JUMP_IF_EQUAL, len(numbers) - place, 0, number)
        for place, number in enumerate(numbers)
    ]
    return b"".join(
        [
            one.pack(LOAD, 0, 0, 4),  # the machine
            one.pack(JUMP_IF_EQUAL, 1, 0, machine),
            one.pack(RETURN, 0, 0, ALLOW),
            one.pack(LOAD, 0, 0, 0),  # the number
            *checks,
            one.pack(RETURN, 0, 0, ALLOW),
            one.pack(RETURN, 0, 0, NOTIFY),
        ]
    )


def main(door: str, command: list[str]) -> None:
    """Install the filter, hand its other end over, and become the command.

    The filter is for one thread; another one hands over, since the filter would stop that.
    """
    handed_over = threading.Event()
    listeners: queue.SimpleQueue[int] = queue.SimpleQueue()
    threading.Thread(target=_become, args=(command, listeners, handed_over)).start()
    listener = listeners.get()
    if listener < 0:
        sys.exit(f"crash points: {os.strerror(-listener)}")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as judge:
        judge.connect(f"\0{door}")
        socket.send_fds(judge, [b"f"], [listener])
    os.close(listener)
    handed_over.set()


def _become(
    command: list[str], listeners: queue.SimpleQueue[int], handed_over: threading.Event
) -> None:
    program = filter_program()
    code = ctypes.create_string_buffer(program, len(program))
    header = ctypes.create_string_buffer(
        struct.pack("@HP", len(program) // 8, ctypes.addressof(code))
    )
    library = ctypes.CDLL(None, use_errno=True)
    library.prctl(NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    seccomp = MACHINES[platform.machine()][2]
    listener = library.syscall(seccomp, SET_FILTER, NEW_LISTENER, ctypes.byref(header))
    listeners.put(listener if listener >= 0 else -ctypes.get_errno())
    if listener >= 0:
        handed_over.wait()
        os.execvp(command[0], command)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
