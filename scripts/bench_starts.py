"""`scripts/bench starts`: the CPU of a process before it does anything, which is imports."""

from __future__ import annotations

import resource
import subprocess
import sys
from collections import defaultdict
from typing import Final

from .measuring import Row, compared

LIBRARIES: Final = "import zmq, msgspec, logging"  # without these there is no client and no proxy
_MAIN: Final = "from reliable_pubsub.__main__ import main; main({})"
PROGRAMS: Final = {
    "reliable-pubsub --help": _MAIN.format(["--help"]),
    "reliable-pubsub status --help": _MAIN.format(["status", "--help"]),
    "reliable-pubsub proxy --help": _MAIN.format(["proxy", "--help"]),
    "import reliable_pubsub": "import reliable_pubsub",
    "from reliable_pubsub import Publisher": "from reliable_pubsub import Publisher",
}


def start_rows(rounds: int) -> list[Row]:
    """CPU of Python with our modules, beside Python with our libraries, in turn."""
    for program in (LIBRARIES, *PROGRAMS.values()):  # compiled before anything is measured
        _cpu_ms(program)
    taken_ms = defaultdict[str, list[float]](list)
    for _ in range(rounds):
        for work, program in {"": LIBRARIES, **PROGRAMS}.items():
            taken_ms[work].append(_cpu_ms(program))
    return [
        compared(f"start: {work}", "ms of CPU", taken_ms[work], taken_ms[""], "zmq and msgspec")
        for work in PROGRAMS
    ]


def _cpu_ms(program: str) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", program], stdout=subprocess.DEVNULL, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return 1000 * (after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime)
