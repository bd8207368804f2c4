"""A real browser, for the tests of pages that people look at."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
from PIL import Image

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or ""
QUIET = (
    *("--disable-quic", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync", "--disable-gpu"),
)
SCHEMES = {"dark": 0, "light": 1}  # blink::mojom::PreferredColorScheme
PAGE = {"light": (255, 255, 255), "dark": (20, 23, 27)}  # background of our pages

needs_browser = pytest.mark.skipif(
    not CHROMIUM, reason="chromium is not installed (Debian: apt-get install chromium)"
)


def browse(page: Path, directory: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Open a page in a browser without a past."""
    profile = f"--user-data-dir={directory / 'profile'}"
    command = [CHROMIUM, "--headless", "--no-sandbox", *QUIET, profile, *options, page.as_uri()]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=600, check=True, cwd=directory
    )


class Screenshot:
    """What a reader with a dark or a light screen sees of a page."""

    def __init__(self, page: Path, directory: Path, scheme: str, size: tuple[int, int]) -> None:
        path = directory / "shot.png"
        browse(
            page,
            directory,
            f"--screenshot={path}",
            f"--window-size={size[0]},{size[1]}",
            f"--blink-settings=preferredColorScheme={SCHEMES[scheme]}",
        )
        self._image = Image.open(path).convert("RGB")
        self.size = self._image.size
        self.colors = self._image.getcolors(size[0] * size[1]) or []

    def has_corner(self, color: Sequence[int]) -> bool:
        """Whether the background is of this color."""
        corner = self._image.getpixel((2, 2))
        assert isinstance(corner, tuple)
        return _near(corner, color, 2)

    def pixels(self, color: Sequence[int], distance: int = 24) -> int:
        """How many are of this color, or nearly."""
        return sum(
            count
            for count, one in self.colors
            if isinstance(one, tuple) and _near(one, color, distance)
        )


def _near(pixel: Sequence[int], color: Sequence[int], distance: int) -> bool:
    return max(abs(one - two) for one, two in zip(pixel, color, strict=False)) <= distance
