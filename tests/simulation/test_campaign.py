"""A campaign is many seeds in several processes."""

from __future__ import annotations

import sys
from pathlib import Path

from reliable_pubsub.lab.rig.child_process import ChildProcess
from tests.integration.harness import children, eventually


def ended(pid: int) -> bool:
    """It is gone, or its parent has not reaped it yet."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def test_workers_end_with_a_campaign_that_is_killed(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "scripts.simulator", "--seeds", "100000", "--jobs", "2"]
    campaign = ChildProcess(command, tmp_path / "log")
    try:
        eventually(lambda: len(children(campaign.pid)) == 2, "workers")
        workers = children(campaign.pid)
    finally:
        campaign.kill()

    eventually(lambda: all(map(ended, workers)), "end of the workers")
