"""What a person sees of a plan while it runs, and what a log file does not."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from reliable_pubsub.common import plan_view


def shown(monkeypatch: pytest.MonkeyPatch, *, is_terminal: bool, quiet: bool = False) -> str:
    """What a run of ten messages, three of them done, writes to stderr."""
    stderr = io.StringIO()
    console = Console(file=stderr, force_terminal=is_terminal, width=80)
    monkeypatch.setattr(plan_view, "Console", lambda **_: console)
    with plan_view.progress_bar(10, 3, quiet=quiet) as advance:
        advance(1, "put topic1 [1]")
    return stderr.getvalue()


def test_a_run_has_a_progress_bar_where_a_person_watches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Row 1.44."""
    text = shown(monkeypatch, is_terminal=True)

    assert "4/10" in text
    assert "put topic1 [1]" in text


def test_a_run_writes_no_bar_into_a_file_and_none_if_it_is_to_be_quiet(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert shown(monkeypatch, is_terminal=False) == ""
    assert shown(monkeypatch, is_terminal=True, quiet=True) == ""
