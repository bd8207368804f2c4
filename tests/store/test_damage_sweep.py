"""A sample of `scripts/damage`: no changed byte of any file goes unnoticed (P6)."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from reliable_pubsub.proxy import store
from reliable_pubsub.proxy.core.write_ahead_log import FRAME_HEADER_BYTES, HEADER_BYTES
from scripts.damage import (
    REFUSED,
    SILENT,
    THERE,
    Case,
    cases_of,
    judge_all,
)
from scripts.small_store import PAGE_BYTES, Subject, build


@pytest.fixture(scope="module", params=["killed", "stopped"])
def subject(request: pytest.FixtureRequest) -> Iterator[Subject]:
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as scratch:
        patch.setattr(store, "WAL_BYTES", store.WAL_BYTES)  # put back what `build` sets
        yield build(Path(scratch), request.param)


def test_a_changed_byte_loses_nothing_or_is_refused(subject: Subject) -> None:
    outcomes = judge_all(list(cases_of(subject, 251)), subject)

    assert [one for one in outcomes if one.verdict not in (THERE, REFUSED)] == []
    assert {one.verdict for one in outcomes} == {THERE, REFUSED}


def test_the_sweep_finds_what_sqlite_keeps_to_itself(
    subject: Subject, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the check of the log: the sweep can fail."""
    if subject.state != "killed":
        pytest.skip("no log stands there")
    monkeypatch.setattr(store, "check_wal", lambda *_: None)
    frame = HEADER_BYTES + 5 * (FRAME_HEADER_BYTES + PAGE_BYTES)
    case = Case("killed", "proxy.sqlite3-wal", "lowest", frame + 100)

    (outcome,) = judge_all([case], subject)

    assert outcome.verdict == SILENT
