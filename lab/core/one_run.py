"""Whether the lines of a directory are of one run: a verdict over two runs is worthless.

A run is one data directory of the proxy, one state of each client, one set of files. Files of two
runs, read together, look like the worst faults there are: numbers that are granted twice, offsets
with two contents. So they are refused before any rule is judged. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from reliable_pubsub.common.core.errors import ConfigurationError
from reliable_pubsub.common.core.journal import (
    AnyLine,
    Begin,
    CreatedLine,
    Event,
    Failed,
    Invoke,
    Ok,
    Unknown,
)

HOW = "Put the files of each run into a directory of their own, and check one"


def check_one_folder(folder: str, proxies: Sequence[str]) -> None:
    """Refuse a directory with several runs below it.

    Args:
        proxies: journal files in which lives of a proxy begin, relative to `folder`. A run has
            one proxy, and one file of it; the lives of a client may be in several.

    Raises:
        ConfigurationError: they are in several directories.
    """
    folders = sorted({name.rpartition("/")[0] or "the directory itself" for name in proxies})
    if len(folders) > 1:
        more = f" and {len(folders) - 2} more" if len(folders) > 2 else ""
        raise ConfigurationError(
            f"{folder}: holds several runs: there are journals of a proxy in {folders[0]} and "
            f"{folders[1]}{more}. Name the directory of one run"
        )


def check_one_run(folder: str, lines: Sequence[AnyLine]) -> None:
    """Refuse the lines of two runs that were written into the same files.

    Args:
        lines: of all processes, by time.

    Raises:
        ConfigurationError: a topic has two logs, though the proxy was not set back and no client
            got LOG_CHANGED; or a client that keeps a state began without its earlier one.
    """
    for why in (*_second_logs(lines), *_forgotten_states(lines)):
        raise ConfigurationError(f"{folder}: holds more than one run: {why}. {HOW}")


def _second_logs(lines: Sequence[AnyLine]) -> Iterator[str]:
    was_told = any(
        (isinstance(line, Event) and line.what == "rollback")
        or (isinstance(line, Failed | Unknown) and line.code == "LOG_CHANGED")
        for line in lines
    )
    if was_told:
        return
    logs: dict[str, str] = {}
    for line in lines:
        if isinstance(line, CreatedLine) or (isinstance(line, Ok) and line.op == "subscribe"):
            first = logs.setdefault(line.topic, line.log)
            if line.log and line.log != first:
                yield (
                    f"the log of topic {line.topic!r} is {first!r} and later {line.log!r}, so the "
                    "proxy was given another data directory"
                )


def _forgotten_states(lines: Sequence[AnyLine]) -> Iterator[str]:
    begins: dict[tuple[str, int], Begin] = {}
    ends_ns = {(line.process, line.pid): line.at_ns for line in lines}
    granted: dict[tuple[str, str], list[tuple[str, int]]] = {}  # lives by process and role
    greeted: set[tuple[str, int]] = set()
    for line in lines:
        life = (line.process, line.pid)
        begin = begins.get(life)
        if isinstance(line, Begin):
            begins[life] = line
        elif begin is None or not begin.remembers:
            continue
        elif isinstance(line, Invoke) and line.op == "hello" and life not in greeted:
            greeted.add(life)
            earlier = granted.get((begin.process, begin.role), ())
            # Two processes of one id at a time may have two states; that is not our question.
            if line.epoch == 1 and any(ends_ns[one] < begin.at_ns for one in earlier):
                yield (
                    f"{begin.role} {begin.process!r} (pid {begin.pid}) began without the state of "
                    "its earlier life, so its state directory was another one or was removed"
                )
        elif isinstance(line, Ok) and line.op == "hello":
            granted.setdefault((begin.process, begin.role), []).append(life)
