"""Make docs/internals/guarantees-tests.md from tests/guarantees.txt."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

from scripts.simulator.faults import FAULTS

ROOT: Final = Path(__file__).parents[1]
PAGE: Final = ROOT / "docs" / "internals" / "guarantees-tests.md"
FAULT: Final = "planted fault: "
HEAD: Final = """# Tests of the guarantees

Each of these tests fails if its [guarantee](../concepts/guarantees.md) breaks. For
planted faults see [runs.md](runs.md#planted-faults).
`scripts/protocol_tables` writes this page from `tests/guarantees.txt`: change that file.
"""


@cache
def _files() -> dict[str, set[str]]:
    """Return the files of each test by its name, alone and with its class, and of each class."""
    files: dict[str, set[str]] = {}
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        for name in _names(ast.parse(path.read_text("utf-8"))):
            files.setdefault(name, set()).add(path.relative_to(ROOT).as_posix())
    return files


def _names(module: ast.Module) -> Iterator[str]:
    for node in module.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name
        if isinstance(node, ast.ClassDef):
            for method in (one for one in node.body if isinstance(one, ast.FunctionDef)):
                yield from (method.name, f"{node.name}.{method.name}")


def appendix() -> str:
    """Return the page.

    Raises:
        LookupError: a test or a planted fault does not exist.
    """
    lines = (ROOT / "tests" / "guarantees.txt").read_text("utf-8").splitlines()
    return HEAD + "\n" + "".join(map(_in_markdown, lines))


def _in_markdown(line: str) -> str:
    """Return a line of the list as the page has it; without an indent it is a heading."""
    name = line.strip()
    if not name:
        return "\n"
    if name == line:
        return f"## {name}\n\n"
    if name.startswith(FAULT):
        fault = name.removeprefix(FAULT)
        if fault not in FAULTS:
            raise LookupError(f"tests/guarantees.txt names a fault that does not exist: {fault}")
        return f'- planted fault "{fault}"\n'
    files = sorted(_files().get(name, ()))
    if not files:
        raise LookupError(f"tests/guarantees.txt names a test that does not exist: {name}")
    return f"- `{name}` in {', '.join(f'[{file}](../../{file})' for file in files)}\n"
