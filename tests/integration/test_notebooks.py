"""The notebooks that need no Spark; `tests/pipeline/test_notebook.py` runs the other one."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from reliable_pubsub.testing import ProcessBroker
from tests.cells import NOTEBOOKS, run_cells


def test_there_are_three_notebooks() -> None:
    names = {path.name for path in NOTEBOOKS.glob("*.ipynb")}

    assert names == {"first_steps.ipynb", "topics_in_spark.ipynb", "watching_a_crash.ipynb"}


def test_the_first_steps_show_what_they_say(process_broker: ProcessBroker) -> None:
    values = run_cells("first_steps.ipynb")

    assert values == [
        0,
        "shop_1",
        [b"lamp", b"piano", b"chair"],
        [],
        [(0, b"lamp"), (1, b"piano"), (2, b"chair")],
        [(b"lamp", True), (b"piano", True), (b"chair", True)],
        {"item": "lamp", "count": 2},
        [b"lamp", b"piano"],
        None,
    ]


def test_a_crash_is_watched_and_nothing_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    names: dict[str, Any] = {}
    try:
        with patch.dict(os.environ):
            values = run_cells("watching_a_crash.ipynb", names=names)
    finally:
        if "publisher" in names:
            names["publisher"].close()
        if "broker" in names:
            names["broker"].kill()

    assert values == [
        None,
        3,
        False,
        "publisher_4",
        [b"0", b"1", b"2", b"3"],
        None,
        [(b"1", True), (b"2", False), (b"3", False)],
        None,
    ]
