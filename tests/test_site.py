"""The site has every page, needs no network, and its reference has all that the code has."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

import reliable_pubsub
from reliable_pubsub import aio, pipeline, testing
from scripts import reference_pages, site_pages

ROOT = Path(__file__).parents[1]
PAGES = {path.name: path.read_text("utf-8") for path in reference_pages.FOLDER.glob("*.md")}
ROOMS = ("common", "console", "lab", "pipeline", "proxy", "publisher", "relay", "subscriber")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [
        sys.executable,
        "-m",
        "mkdocs",
        "build",
        "--strict",
        "--quiet",
        "--site-dir",
        str(folder),
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def test_the_site_has_each_page_of_docs(site: Path) -> None:
    pages = [path.relative_to(site_pages.DOCS) for path in site_pages.DOCS.rglob("*.md")]

    missing = [page for page in pages if not (site / page.with_suffix(".html")).is_file()]

    assert missing == [Path("README.md")]  # it is index.html
    assert (site / "index.html").is_file()


def test_the_site_loads_nothing_from_a_network(site: Path) -> None:
    pages = [page.read_text("utf-8") for page in site.rglob("*.html")]
    tags = re.findall(r"<(?:script|link|img|iframe|source)\b[^>]*>", "".join(pages))

    loaded = {tag for tag in tags if re.search(r"""(?:src|href|srcset)=["']?(?:\w+:)?//""", tag)}

    assert len(tags) > len(pages)
    assert loaded == set()


def test_the_site_has_an_entry_for_each_public_name(site: Path) -> None:
    entries = {
        name
        for page in (site / "reference").glob("*.html")
        for name in re.findall(r'id="(reliable_pubsub\.[\w.]+)"', page.read_text("utf-8"))
    }

    public = {
        f"{module.__name__}.{name}"
        for module in (reliable_pubsub, aio, testing, pipeline)
        for name in module.__all__
    } - {"reliable_pubsub.aio"}  # it has a page

    assert public - entries == set()


@pytest.mark.parametrize("name", reference_pages.PAGES)
def test_a_page_of_the_reference_is_as_the_code_says(name: str) -> None:
    if name == "commands.md" and find_spec("pyspark") is None:
        pytest.skip("the commands of the pipeline need the extra spark")

    assert reference_pages.PAGES[name]() == PAGES[name], "stale: run scripts/protocol_tables"


def test_the_reference_has_each_code_that_an_error_of_the_product_has() -> None:
    codes = {
        code
        for room in ROOMS
        for path in (ROOT / room).rglob("*.py")
        for code in re.findall(r'(?m)^    code(?:: str)? = "([A-Z_]+)"$', path.read_text("utf-8"))
    }

    assert len(codes) > 30
    assert [code for code in sorted(codes) if f"`{code}`" not in PAGES["errors.md"]] == []


def test_the_reference_has_each_metric_of_the_dashboard_and_the_alerts() -> None:
    texts = [path.read_text("utf-8") for path in (ROOT / "configs" / "operating").iterdir()]
    used = set(re.findall(r"\breliable_pubsub_\w+", "".join(texts)))

    listed = set(re.findall(r"`(reliable_pubsub_\w+)`", PAGES["metrics.md"]))

    parts = re.compile("_(bucket|count|sum)$")  # of a histogram
    assert used
    assert {one for one in used if parts.sub("", one) not in listed} == set()
