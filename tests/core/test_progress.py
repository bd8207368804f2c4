"""What a person sees of a plan while it runs, and what a log file does not."""

from __future__ import annotations

import io

import pytest

from reliable_pubsub.common import progress


class Stderr(io.StringIO):
    """A terminal, or a file."""

    def __init__(self, *, is_terminal: bool) -> None:
        super().__init__()
        self.isatty = lambda: is_terminal  # type: ignore[method-assign]


def shown(monkeypatch: pytest.MonkeyPatch, *, is_terminal: bool, quiet: bool = False) -> str:
    """What a run of ten messages, three of them done, writes to stderr."""
    stderr = Stderr(is_terminal=is_terminal)
    monkeypatch.setattr("sys.stderr", stderr)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")
    with progress.progress_bar(10, 3, quiet=quiet) as advance:
        advance(1, "put topic1 [1]")
    return stderr.getvalue()


def test_a_run_has_a_progress_bar_where_a_person_watches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Row 1.44."""
    text = shown(monkeypatch, is_terminal=True)

    assert "4/10" in text
    assert "put topic1 [1]" in text


def test_a_run_writes_no_bar_into_a_file_and_none_if_it_must_be_quiet(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert shown(monkeypatch, is_terminal=False) == ""
    assert shown(monkeypatch, is_terminal=True, quiet=True) == ""
