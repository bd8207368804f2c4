"""The report as a reader sees it: a real browser draws it, in light and in dark."""

from __future__ import annotations

from pathlib import Path

import pytest

from reliable_pubsub.lab.report import write_report
from tests.browser import PAGE, SCHEMES, Screenshot, browse, needs_browser

from .report_runs import LIVES, broken_verdict, damaged_run, sound_run

SIZE = (1300, 2300)
KILL = {"light": (200, 50, 30), "dark": (255, 111, 85)}
PUT = {"light": (0, 114, 178), "dark": (86, 180, 233)}

pytestmark = needs_browser


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("report") / "report.html"
    write_report(path, damaged_run(sound_run()), broken_verdict(), title="Seen in a browser")
    return path


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_reader_sees_the_page_with_its_marks(scheme: str, page: Path, tmp_path: Path) -> None:
    seen = Screenshot(page, tmp_path, scheme, SIZE)

    assert seen.size == SIZE
    assert seen.has_corner(PAGE[scheme]), "the background follows the reader's scheme"
    assert seen.pixels(KILL[scheme]) > 100, "kills are seen"
    assert seen.pixels(PUT[scheme]) > 500, "puts are seen"
    assert len(seen.colors) > 50, "text and figure are drawn"


def test_the_script_runs_without_error_and_nothing_is_asked_of_the_network(
    page: Path, tmp_path: Path
) -> None:
    ended = browse(page, tmp_path, "--enable-logging=stderr", "--v=0", "--dump-dom")

    complaints = [line for line in ended.stderr.splitlines() if "CONSOLE" in line]
    assert complaints == []
    for process in LIVES:
        assert process in ended.stdout
    assert "stretch" in ended.stdout, "the script has added its buttons"
