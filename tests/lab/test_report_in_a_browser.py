"""The report as a reader sees it: a real browser draws it, in light and in dark."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
from PIL import Image

from reliable_pubsub.lab.report import write_report

from .report_runs import LIVES, broken_verdict, damaged_run, sound_run

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or ""
QUIET = (
    *("--disable-quic", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync", "--disable-gpu"),
)
SIZE = (1300, 2300)
SCHEMES = {"dark": 0, "light": 1}  # blink::mojom::PreferredColorScheme
PAGE = {"light": (255, 255, 255), "dark": (20, 23, 27)}
KILL = {"light": (200, 50, 30), "dark": (255, 111, 85)}
PUT = {"light": (0, 114, 178), "dark": (86, 180, 233)}

pytestmark = pytest.mark.skipif(
    not CHROMIUM, reason="chromium is not installed (Debian: apt-get install chromium)"
)


def browse(page: Path, directory: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Open a page in a browser without a past."""
    profile = f"--user-data-dir={directory / 'profile'}"
    command = [CHROMIUM, "--headless", "--no-sandbox", *QUIET, profile, *options, page.as_uri()]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=120, check=True, cwd=directory
    )


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("report") / "report.html"
    write_report(path, damaged_run(sound_run()), broken_verdict(), title="Seen in a browser")
    return path


def near(pixel: Sequence[int], color: Sequence[int], distance: int = 24) -> bool:
    return max(abs(one - two) for one, two in zip(pixel, color, strict=False)) <= distance


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_reader_sees_the_page_with_its_marks(scheme: str, page: Path, tmp_path: Path) -> None:
    shot = tmp_path / "shot.png"
    browse(
        page,
        tmp_path,
        f"--screenshot={shot}",
        f"--window-size={SIZE[0]},{SIZE[1]}",
        f"--blink-settings=preferredColorScheme={SCHEMES[scheme]}",
    )

    image = Image.open(shot).convert("RGB")
    colors = image.getcolors(SIZE[0] * SIZE[1]) or []

    def pixels(color: Sequence[int]) -> int:
        return sum(count for count, one in colors if isinstance(one, tuple) and near(one, color))

    assert image.size == SIZE
    corner = image.getpixel((4, 4))
    assert isinstance(corner, tuple)
    assert near(corner, PAGE[scheme], 2), "the background follows the reader's scheme"
    assert pixels(KILL[scheme]) > 100, "kills are seen"
    assert pixels(PUT[scheme]) > 500, "puts are seen"
    assert len(colors) > 50, "text and figure are drawn"


def test_the_script_runs_without_error_and_nothing_is_asked_of_the_network(
    page: Path, tmp_path: Path
) -> None:
    ended = browse(page, tmp_path, "--enable-logging=stderr", "--v=0", "--dump-dom")

    complaints = [line for line in ended.stderr.splitlines() if "CONSOLE" in line]
    assert complaints == []
    for process in LIVES:
        assert process in ended.stdout
    assert "stretch" in ended.stdout, "the script has added its buttons"
