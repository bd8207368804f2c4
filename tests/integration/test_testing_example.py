"""The example of a tested service: pytest finds the fixtures, and every test of it passes."""

from __future__ import annotations

import subprocess
import sys

from .harness import REPOSITORY


def test_the_tests_of_the_example_pass() -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", "/dev/null"]
    done = subprocess.run(
        [*command, "test_orders.py"], cwd=REPOSITORY / "examples", capture_output=True, text=True
    )

    assert "5 passed" in done.stdout, done.stdout + done.stderr
