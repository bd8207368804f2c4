"""A process that forks while a client has its state open."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from reliable_pubsub.common.state_file import StateFile


def test_a_forked_child_that_ends_takes_nothing_from_its_parent(tmp_path: Path) -> None:
    """SQLite would empty and remove the log of a file that the child believes it owns."""
    program = f"""
import os, shutil, sys
from pathlib import Path
from reliable_pubsub.common.state_file import StateFile
state = StateFile(Path({str(tmp_path)!r}, "of parent"), "publisher", "p")
state.write({{"a": b"1"}}, durable=True)
if (child := os.fork()) == 0:
    sys.exit()
os.waitpid(child, 0)
state.write({{"b": b"2"}}, durable=True)
shutil.copytree(state.path.parent, {str(tmp_path / "after a crash")!r})
os._exit(0)
"""
    subprocess.run([sys.executable, "-c", program], check=True)

    found = StateFile(tmp_path / "after a crash", "publisher", "p")

    assert found.load() == {"a": b"1", "b": b"2"}
    found.close()
