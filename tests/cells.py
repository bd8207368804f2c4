"""Notebooks, cell by cell, as a user runs them."""

from __future__ import annotations

import ast
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

NOTEBOOKS = Path(__file__).parents[1] / "examples" / "notebooks"


def run_cells(
    notebook: str,
    prepare: Callable[[str], str] = str,
    names: dict[str, Any] | None = None,
) -> list[object]:
    """Run the code cells of a notebook; return the value of each one's last expression.

    Args:
        prepare: changes the text of a cell for the test.
        names: is given the names of the notebook, also when a cell fails.
    """
    cells: list[dict[str, Any]] = json.loads((NOTEBOOKS / notebook).read_text("utf-8"))["cells"]
    names = {} if names is None else names
    values: list[object] = []
    for cell in (one for one in cells if one["cell_type"] == "code"):
        body = ast.parse(prepare("".join(cell["source"]))).body
        if isinstance(body[-1], ast.Expr):
            body[-1] = ast.Assign([ast.Name("shown", ast.Store())], body[-1].value)
        names["shown"] = None
        code = ast.fix_missing_locations(ast.Module(body, []))
        exec(compile(code, notebook, "exec"), names)
        values.append(names["shown"])
    return values
