"""How large the code is, and which functions one put and one get pass.

A real proxy process and real clients run under `sys.setprofile`, in all of their threads.
"""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import threading
from pathlib import Path
from typing import Final

import click

from reliable_pubsub import Publisher, Subscriber

from .measuring import ROOT, folder, proxy
from .watched_proxy import NAMES, functions_called, name_calls

PACKAGE: Final = ROOT / "reliable_pubsub"
ROUNDS: Final = 50  # a function that all of them pass belongs to the call; others, to a timer
FILES_SHOWN: Final = 10
TOPIC: Final = "measured"
ANOTHER_TOPIC: Final = "not-measured"

Calls = set[tuple[str, str, str]]  # client or proxy, file, function

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
    product, scripts, tests = _product(), _sources("scripts"), _sources("tests")
    proof = [path for path in scripts if path.parent.name in ("simulator", "fuzzer")]
    tools = [path for path in scripts if path not in proof]
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


def show_walk(*, named: bool) -> None:
    """Print what a put and a get at QoS 2 pass, both clients with a state directory."""
    # What starts the processes and asks them does not count.
    ours = {str(path.relative_to(ROOT)) for path in _product() if path.parent.name != "lab"}
    puts: list[Calls] = []
    gets: list[Calls] = []
    with (
        proxy() as running,
        folder() as state,
        Publisher("p", endpoint=running.publishers, state_dir=state / "p") as publisher,
        Subscriber("s", endpoint=running.subscribers, state_dir=state / "s") as subscriber,
    ):

        def taken() -> Calls:
            # The threads of the proxy change places: either may commit, so it is one part.
            parts = {"client": functions_called(), "proxy": running.functions_called()}
            return {
                (part, file, name)
                for part, called in parts.items()
                for file, name in called
                if file in ours and not re.search(r"<(list|dict|set)comp>|<genexpr>$", name)
            }

        subscriber.subscribe(TOPIC, qos=2)
        name_calls()
        for n in range(ROUNDS + 1):
            # A get leaves its cursor to be written with the next commit: that of another topic.
            publisher.put(ANOTHER_TOPIC, b"%d" % n, qos=2)
            taken()
            publisher.put(TOPIC, b"%d" % n, qos=2)
            puts.append(taken())
            assert subscriber.get(TOPIC, timeout_s=10.0)
            gets.append(taken())
        sys.setprofile(None)
        threading.setprofile(None)
    for name, rounds in (("put", puts), ("get", gets)):
        _show_calls(name, set.intersection(*rounds[1:]), named)  # the first one says hello


def _show_calls(name: str, calls: Calls, named: bool) -> None:
    for part in ["", *sorted({part for part, *_ in calls})]:
        some = {call for call in calls if part in ("", call[0])}
        functions = len({call[1:] for call in some})
        files = len({file for _, file, _ in some})
        click.echo(f"{name}  {part or 'all':<16} {functions:>3} functions in {files} files")
        if named and part:
            click.echo("".join(f"    {file}  {function}\n" for _, file, function in sorted(some)))


@click.command()
@click.option("--names", is_flag=True, help="Name the functions of put and get, too.")
def main(names: bool) -> None:
    """Print lines of product, tests and tools, the largest files, the longest function, and the
    functions of this project that one put and one get pass at QoS 2.

    The functions are counted in the client and in the proxy, each once.
    """
    show_lines()
    os.environ[NAMES] = "yes"  # the proxy sees it
    try:
        show_walk(named=names)
    finally:
        del os.environ[NAMES]


if __name__ == "__main__":
    main(prog_name="scripts/measure_house")
