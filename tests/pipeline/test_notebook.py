"""The notebook in `examples/`, cell by cell, as a user runs it."""

from __future__ import annotations

import ast
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.integration.harness import Service

NOTEBOOK = Path(__file__).parents[2] / "examples" / "from_topics_to_a_plot.ipynb"
FORMAT = 'format("reliable_pubsub")'


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """What pandas was asked to draw. It draws with matplotlib, which the tests do not install."""
    pandas = pytest.importorskip("pandas")
    found: list[Any] = []
    backend: Any = ModuleType("drawing")
    backend.plot = lambda table, **how: found.append(table)
    monkeypatch.setitem(sys.modules, "drawing", backend)
    with pandas.option_context("plotting.backend", "drawing"):
        yield found


def run(cells: list[dict[str, Any]], endpoint: str) -> list[object]:
    """Run the cells; return the value of each one's last expression."""
    names: dict[str, object] = {}
    values: list[object] = []
    for cell in cells:
        # Spark's Java was started before this test chose a port and a directory.
        text = "".join(cell["source"]).replace(FORMAT, f'{FORMAT}.option("endpoint", {endpoint!r})')
        text = text.replace('path="', f'path="{Path.cwd()}/')
        text = text.replace('checkpointLocation="', f'checkpointLocation="{Path.cwd()}/')
        body = ast.parse(text).body
        if isinstance(body[-1], ast.Expr):
            body[-1] = ast.Assign([ast.Name("shown", ast.Store())], body[-1].value)
        names["shown"] = None
        code = ast.fix_missing_locations(ast.Module(body, []))
        exec(compile(code, str(NOTEBOOK), "exec"), names)
        values.append(names["shown"])
    return values


def test_the_notebook_goes_from_topics_to_a_plot_in_ten_cells(
    spark: SparkSession, service: Service, drawn: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    service.start_proxy()
    monkeypatch.chdir(service.directory)
    monkeypatch.setenv("RELIABLE_PUBSUB_PUBLISHER_ENDPOINT", str(service.publisher_endpoint))
    cells = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    assert len(cells) == 10

    values = run(
        [cell for cell in cells if cell["cell_type"] == "code"], str(service.subscriber_endpoint)
    )

    assert {"readings": 0} in values
    (table,) = drawn
    assert list(table.columns) == ["cellar", "roof"]
    assert 60 <= len(table) <= 61
    assert len(service.payloads("means")) == 2 * len(table)
