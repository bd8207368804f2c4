"""A sample of `scripts/inject`: a system call that fails or kills loses and doubles nothing."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from scripts.inject import Case, Run, inject

KILLED = [
    Case("proxy-again", "fdatasync", "SIGKILL", 2),
    Case("publisher", "pwrite64", "SIGKILL", 25),
    Case("subscriber", "write", "SIGKILL", 2),
]
REFUSED = [
    Case("proxy-again", "fdatasync", "EIO", 4),
    Case("subscriber", "write", "ENOSPC", 2),
]
UNHARMED = [
    Case("proxy-again", "pwrite64", "ENOSPC", 14),  # puts wait until there is space
]
AT_THE_START = [  # of a store
    (Case("proxy", "pwrite64", "SIGKILL", 24), "killed"),
    (Case("proxy", "openat", "EIO", 5), "refused"),
    (Case("proxy", "pwrite64", "ENOSPC", 24), "refused"),
    (Case("proxy", "write", "ENOSPC", 3), "unharmed"),  # no space to write the log beforehand
]


@pytest.fixture(autouse=True, scope="module")
def strace() -> None:
    """strace, where it is installed and may look at processes."""
    if shutil.which("strace") is None:
        pytest.skip("strace is not installed: apt-get install strace")
    tried = subprocess.run(["strace", "-qq", "true"], capture_output=True, check=False, timeout=600)
    if tried.returncode:
        pytest.skip(f"strace may not look at processes here: {tried.stderr.decode()[-200:]}")


@pytest.mark.parametrize(
    ("fate", "cases"), [("killed", KILLED), ("refused", REFUSED), ("unharmed", UNHARMED)]
)
def test_a_process_at_whose_system_call_something_fails_continues_where_it_was(
    fate: str, cases: Sequence[Case]
) -> None:
    with ThreadPoolExecutor(len(cases)) as pool:
        outcomes = list(pool.map(inject, cases))

    assert [one for one in outcomes if one.violations or one.fate != fate] == []


@pytest.mark.long  # the three above are the shorter ones
def test_a_proxy_at_whose_first_start_something_fails_starts_again() -> None:
    with ThreadPoolExecutor(len(AT_THE_START)) as pool:
        outcomes = list(pool.map(inject, (case for case, _ in AT_THE_START)))

    assert [one.fate for one in outcomes] == [fate for _, fate in AT_THE_START]
    assert not any(one.violations for one in outcomes)


def test_the_judge_of_these_runs_sees_a_message_that_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("scripts.inject.MESSAGES", 7)  # one more than the step file puts

    run = Run(tmp_path)
    run.play()

    assert any("lost=1" in violation for violation in run.violations)
