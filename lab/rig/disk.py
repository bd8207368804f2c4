"""A small disk for the proxy, which can be filled: a tmpfs in a mount namespace of its own.

Only processes that are started through `enter` see it, and it disappears with the process that
holds it. No rights are needed where the system lets users make namespaces (unshare(1)).
"""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Final

from reliable_pubsub.common.core.errors import ConfigurationError

from .child_process import ChildProcess, NotReadyError

SIZE_MIB: Final = 32
PATIENCE_S: Final = 120.0


class SmallDisk:
    """The disk under one directory."""

    def __init__(
        self, directory: Path, log: Path, *, size_mib: int = SIZE_MIB, ballast_mib: int = 0
    ) -> None:
        """Mount it over an empty directory.

        Args:
            log: where what the system says goes.
            ballast_mib: this much is taken from the start.

        Raises:
            ConfigurationError: this machine does not allow it.
        """
        # `cat` holds the namespace, and ends with us, however we end.
        script = (
            f'mount -t tmpfs -o size={size_mib}m none "$1" && '
            f'head -c {ballast_mib}M /dev/zero > "$1/ballast" && echo ready: disk && exec cat'
        )
        command = ["unshare", "--map-root-user", "--mount", "sh", "-c", script, "sh"]
        try:
            self._holder = ChildProcess([*command, str(directory)], log, talks=True)
            self._holder.ready()
        except OSError as error:
            raise _not_here(f"unshare(1) cannot be run: {error.strerror}") from error
        except NotReadyError:
            self._holder.kill()
            why = self._holder.said().strip()
            raise _not_here(why.splitlines()[-1] if why else "unshare(1) failed") from None
        self.enter = (
            *("nsenter", f"--target={self._holder.pid}", "--user", "--mount"),
            *("--preserve-credentials", f"--wd={Path.cwd()}", "--"),
        )
        self._ballast = directory / "ballast"

    def fill(self) -> None:
        """Take all the space that is left; the last write must fail."""
        self._run("sh", "-c", f"cat /dev/zero >> '{self._ballast}'")

    def free(self) -> None:
        """Free it."""
        self._run("rm", "-f", str(self._ballast))

    def _run(self, *command: str) -> None:
        subprocess.run(
            [*self.enter, *command],
            check=False,
            timeout=PATIENCE_S,
            stdin=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def close(self) -> None:
        self._holder.kill()


def _not_here(why: str) -> ConfigurationError:
    return ConfigurationError(
        f"this scenario fills a disk, and needs a small one of its own, which this machine does "
        f"not allow ({why}). Skipped: nothing was run. It needs user and mount namespaces: "
        "unshare --map-root-user --mount true"
    )
