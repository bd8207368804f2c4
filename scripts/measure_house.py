"""How large the code is, and which functions one put and one get pass.

A real proxy process and real clients run under `sys.setprofile`, in all of their threads.
"""

from __future__ import annotations

import ast
import json
import os
import re
import runpy
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, Final

import click

from reliable_pubsub import Publisher, Subscriber
from reliable_pubsub.lab.child_process import ANY_PORT, PROXY_ENDPOINTS, ChildProcess

ROOT: Final = Path(__file__).resolve().parent.parent
PACKAGE: Final = ROOT / "reliable_pubsub"
ROUNDS: Final = 50  # what all of them pass belongs to the call; what only some do, to a timer
FILES_SHOWN: Final = 10
TOPIC: Final = "measured"
ANOTHER_TOPIC: Final = "not-measured"

Calls = set[tuple[str, str, str]]  # thread, file, function

# Lines.


def _sources(folder: str) -> list[Path]:
    """Python files of a folder that are, or may be, committed."""
    command = ["git", "ls-files", "-co", "--exclude-standard", "--", f"{folder}/*.py"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [path for name in listed.splitlines() if (path := ROOT / name).is_file()]


def _line_count(path: Path) -> int:
    return len(path.read_text(encoding="utf-8").splitlines())


def _longest_function(paths: list[Path]) -> tuple[int, Path, str]:
    """Its lines, with docstring and decorators."""
    found = [
        ((node.end_lineno or 0) - node.lineno + 1, path, node.name)
        for path in paths
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    return max(found)


def _product() -> list[Path]:
    rooms = [path.name for path in PACKAGE.iterdir() if path.is_dir() and path.name[0] != "_"]
    return [path for room in ["reliable_pubsub", *rooms] for path in _sources(room)]


def show_lines() -> None:
    """Print lines by kind, the largest files, and the longest function."""
    product, tools, tests = _product(), _sources("scripts"), _sources("tests")
    proof = [*_sources("simulator"), *_sources("fuzzer")]
    kinds = (("product", product), ("tools", tools), ("proof", proof), ("tests", tests))
    for name, paths in kinds:
        click.echo(f"{name:<8} {sum(map(_line_count, paths)):>7,} lines in {len(paths)} files")
    click.echo(f"\nThe {FILES_SHOWN} largest files of product and tools:")
    ours = product + tools
    for path in sorted(ours, key=_line_count, reverse=True)[:FILES_SHOWN]:
        click.echo(f"{_line_count(path):>6}  {path.relative_to(ROOT)}")
    length, path, name = _longest_function(ours)
    click.echo(f"The longest function: {length} lines, {name} in {path.relative_to(ROOT)}\n")


# The walk.


class Profile:
    """The functions of the package that are called, by thread."""

    def __init__(self) -> None:
        """Nothing was called; what starts the processes and asks them does not count."""
        ours = [path for path in _product() if path.parent.name != "lab"]
        self._ours = {str(path): str(path.relative_to(ROOT)) for path in ours}
        self._seen: dict[tuple[str, Any], None] = {}

    def begin(self) -> None:
        """Profile this thread, and every thread that is started from now on."""
        threading.setprofile(self._called)
        sys.setprofile(self._called)

    def end(self) -> None:
        """Profile no more."""
        sys.setprofile(None)
        threading.setprofile(None)

    def taken(self) -> Calls:
        """What was called since this was asked last."""
        seen, self._seen = self._seen, {}
        return {
            (thread, file, code.co_qualname)
            for thread, code in seen
            if (file := self._ours.get(os.path.realpath(code.co_filename)))
            and not re.search(r"<(list|dict|set)comp>|<genexpr>$", code.co_qualname)
        }

    def _called(self, frame: FrameType, event: str, _: Any) -> None:
        if event == "call":
            self._seen[threading.current_thread().name, frame.f_code] = None


def run_profiled_proxy(arguments: list[str]) -> None:
    """Be a proxy; a line that comes in is answered with what was called since the last one."""
    profile = Profile()

    def answer() -> None:
        for _ in sys.stdin:
            print(json.dumps(sorted(profile.taken())), flush=True)  # noqa: T201

    threading.Thread(target=answer, daemon=True).start()
    profile.begin()
    sys.argv = ["proxy", *arguments]
    runpy.run_module("reliable_pubsub.proxy", run_name="__main__", alter_sys=True)


@contextmanager
def profiled_proxy(directory: Path) -> Iterator[tuple[str, str, Callable[[], Calls]]]:
    """Its endpoints for publishers and subscribers, and what asks for its calls."""
    options = ("--data-dir", str(directory / "data"))
    command = [sys.executable, "-m", "scripts.measure_house", "--be-proxy", "--"]
    for option in PROXY_ENDPOINTS.values():
        command += [option, ANY_PORT]
    log, errors = directory / "log", directory / "errors"
    with ChildProcess([*command, *options], log, errors=errors, cwd=ROOT, talks=True) as process:

        def taken() -> Calls:
            # Its threads change places: either may commit, so the whole process is one part.
            return {("proxy", *call) for _, *call in json.loads(process.ask(""))}

        endpoints = process.endpoints()
        yield endpoints["publishers"], endpoints["subscribers"], taken


def show_walk(*, named: bool) -> None:
    """Print what a put and a get at QoS 2 pass, both clients with a state directory."""
    profile = Profile()
    puts: list[Calls] = []
    gets: list[Calls] = []
    with (
        tempfile.TemporaryDirectory() as directory,
        profiled_proxy(Path(directory)) as (publishers, subscribers, proxy_taken),
        Publisher("p", endpoint=publishers, state_dir=f"{directory}/p") as publisher,
        Subscriber("s", endpoint=subscribers, state_dir=f"{directory}/s") as subscriber,
    ):

        def taken() -> Calls:
            mine = {("client", file, function) for _, file, function in profile.taken()}
            return mine | proxy_taken()

        subscriber.subscribe(TOPIC, qos=2)
        profile.begin()
        for n in range(ROUNDS + 1):
            # A get leaves its cursor to be written with the next commit: that of another topic.
            publisher.put(ANOTHER_TOPIC, b"%d" % n, qos=2)
            taken()
            publisher.put(TOPIC, b"%d" % n, qos=2)
            puts.append(taken())
            assert subscriber.get(TOPIC, timeout_s=10.0)
            gets.append(taken())
        profile.end()
    for name, rounds in (("put", puts), ("get", gets)):
        _show_calls(name, set.intersection(*rounds[1:]), named)  # the first one says hello


def _show_calls(name: str, calls: Calls, named: bool) -> None:
    for part in ["", *sorted({thread for thread, *_ in calls})]:
        some = {call for call in calls if part in ("", call[0])}
        functions = len({call[1:] for call in some})
        files = len({file for _, file, _ in some})
        click.echo(f"{name}  {part or 'all':<16} {functions:>3} functions in {files} files")
        if named and part:
            click.echo("".join(f"    {file}  {function}\n" for _, file, function in sorted(some)))


@click.command()
@click.option("--names", is_flag=True, help="Name the functions of put and get, too.")
@click.option("--be-proxy", is_flag=True, hidden=True)
@click.argument("rest", nargs=-1, type=click.UNPROCESSED)
def main(names: bool, be_proxy: bool, rest: tuple[str, ...]) -> None:
    """Print lines of product, tests and tools, the largest files, the longest function, and the
    functions of ours that one put and one get pass at QoS 2.

    The functions are counted in the client and in the proxy, each once.
    """
    if be_proxy:
        run_profiled_proxy(list(rest))
    else:
        show_lines()
        show_walk(named=names)


if __name__ == "__main__":
    main(prog_name="scripts/measure_house")
