"""The notebook with Spark."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.cells import NOTEBOOKS, run_cells
from tests.integration.harness import Service

NOTEBOOK = "topics_in_spark.ipynb"
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


def test_the_notebook_goes_from_topics_to_a_plot_in_ten_cells(
    spark: SparkSession, service: Service, drawn: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    service.start_proxy()
    monkeypatch.chdir(service.directory)
    monkeypatch.setenv("RELIABLE_PUBSUB_PUBLISHER_ENDPOINT", str(service.publisher_endpoint))
    assert len(json.loads((NOTEBOOKS / NOTEBOOK).read_text(encoding="utf-8"))["cells"]) == 10

    def prepare(text: str) -> str:
        """Name what Spark's Java cannot know: it was started before this test chose its places."""
        text = text.replace(FORMAT, f'{FORMAT}.option("endpoint", "{service.subscriber_endpoint}")')
        text = text.replace('path="', f'path="{Path.cwd()}/')
        return text.replace('checkpointLocation="', f'checkpointLocation="{Path.cwd()}/')

    values = run_cells(NOTEBOOK, prepare)

    assert {"readings": 0} in values
    (table,) = drawn
    assert list(table.columns) == ["cellar", "roof"]
    assert 60 <= len(table) <= 61
    assert len(service.payloads("means")) == 2 * len(table)
