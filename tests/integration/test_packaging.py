"""What an install brings, from anything: the code with its types, scenarios, examples and pages.

A wheel is built once, from a copy, with what is installed here; it is unpacked and run elsewhere.
`test_installing.py` runs pip, pipx and uvx.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from zipfile import ZipFile

import pytest

from .harness import REPOSITORY

FILE_BYTES_MAX = 1024 * 1024

PROGRAM = """\
import reliable_pubsub
from reliable_pubsub import Publisher

with Publisher("p") as publisher:
    reveal_type(publisher.put("t", b"x"))
publisher.put("t", 5)
reliable_pubsub.Publishr
"""


def run(command: Sequence[str | Path], folder: Path, **environment: str) -> str:
    """Run a command somewhere; return what it says."""
    done = subprocess.run(
        command, cwd=folder, env=os.environ | environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def build(kind: str, source: Path, folder: Path) -> Path:
    """Build a wheel or an sdist as pip does, without asking for anything."""
    folder.mkdir(parents=True)
    builder = f"import setuptools.build_meta as b; b.build_{kind}({str(folder)!r})"
    run([sys.executable, "-c", builder], source, PYTHONPATH="")
    (built,) = folder.iterdir()
    return built


def without_links(source: Path, folder: Path) -> Path:
    """Copy a source as a ZIP of it unpacks, and as Git for Windows checks it out."""
    shutil.copytree(source, folder, symlinks=True)
    links = [path for path in folder.rglob("*") if path.is_symlink()]
    assert links
    for link in links:
        target = link.readlink()
        link.unlink()
        link.write_text(str(target))
    return folder


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of what is in the repository, without what was made there."""
    listed = run(["git", "ls-files", "-z", "-co", "--exclude-standard"], REPOSITORY)
    folder = tmp_path_factory.mktemp("source")
    for name in filter(None, listed.split("\0")):
        if (REPOSITORY / name).exists():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(REPOSITORY / name, folder / name, follow_symlinks=False)
    return folder


@pytest.fixture(scope="module")
def installed(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the wheel is unpacked, as `pip install .` does."""
    folder = tmp_path_factory.mktemp("installed")
    wheel = build("wheel", source, tmp_path_factory.mktemp("built") / "wheel")
    ZipFile(wheel).extractall(folder)
    return folder


def files_of(wheel: Path) -> set[str]:
    return {name for name in ZipFile(wheel).namelist() if ".dist-info/" not in name}


def files_below(installed: Path) -> set[str]:
    found = (path.relative_to(installed) for path in installed.rglob("*.*") if path.is_file())
    return {str(path) for path in found if ".dist-info" not in str(path)}


def test_a_copy_without_symbolic_links_builds_the_same_wheel(
    source: Path, installed: Path, tmp_path: Path
) -> None:
    copy = without_links(source, tmp_path / "copy")

    files = files_of(build("wheel", copy, tmp_path / "wheel"))

    assert files == files_below(installed)


@pytest.mark.parametrize("has_links", [True, False])
def test_an_sdist_builds_the_same_wheel(
    has_links: bool, source: Path, installed: Path, tmp_path: Path
) -> None:
    copy = source if has_links else without_links(source, tmp_path / "copy")
    sdist = build("sdist", copy, tmp_path / "sdist")
    shutil.unpack_archive(sdist, tmp_path / "unpacked")
    (unpacked,) = (tmp_path / "unpacked").iterdir()

    files = files_of(build("wheel", unpacked, tmp_path / "wheel"))

    assert files == files_below(installed)
    assert (unpacked / "CONTRIBUTING.md").is_file()


def test_a_clone_without_symbolic_links_runs_in_place(source: Path, tmp_path: Path) -> None:
    copy = without_links(source, tmp_path / "copy")

    assert "proxy-dies" in run([sys.executable, "-m", "reliable_pubsub", "lab", "list"], copy)


def test_a_wheel_has_all_that_the_readme_links_to(source: Path, installed: Path) -> None:
    linked = re.findall(
        r"\]\(((?:docs|examples|configs)[^)#]*)", (source / "README.md").read_text()
    )

    assert linked
    assert [one for one in linked if not (installed / "reliable_pubsub" / one).exists()] == []


def test_the_links_of_the_description_work_on_a_package_index(installed: Path) -> None:
    (metadata,) = installed.glob("*.dist-info/METADATA")
    text = metadata.read_text(encoding="utf-8")
    address = re.search(r"(?m)^(?:Home-page: |Project-URL: Homepage, )(\S+)$", text)
    assert address

    targets = re.findall(r"\]\(([^)\s]+)\)", re.sub(r"(?s)```.*?```", "", text))

    assert [one for one in targets if not re.match("https?:|#", one)] == []
    assert f"]({address[1]}/raw/main/docs/demo.svg)" in text
    assert "Project-URL: Issues, " in text


def test_a_wheel_has_every_file_of_the_rooms_and_of_the_examples(
    source: Path, installed: Path
) -> None:
    package = source / "reliable_pubsub"
    shipped = {
        path.relative_to(source)
        for folder in (package, *(one for one in package.iterdir() if one.is_dir()))
        for path in folder.rglob("*")
        if path.is_file()
    } | {
        Path("reliable_pubsub", path.relative_to(source))
        for folder in ("configs", "docs", "examples")
        for path in (source / folder).rglob("*")
        if path.is_file()
    }

    assert len(shipped) > 150
    assert {path for path in shipped if not (installed / path).is_file()} == set()


def test_scenarios_and_examples_are_found_from_any_directory(
    installed: Path, tmp_path: Path
) -> None:
    def command(*words: str) -> str:
        python = [sys.executable, "-P", "-m", "reliable_pubsub"]
        return run([*python, *words], tmp_path, PYTHONPATH=str(installed), COLUMNS="100")

    assert "proxy-dies" in command("lab", "list")
    assert command("examples").startswith("configs: ")
    assert (tmp_path / "docs" / "teach" / "lab.md").is_file()
    assert (tmp_path / "examples" / "service.py").is_file()
    plan = command("subscriber", "-f", "configs/figure4_subscriber.yaml", "-i", "s", "--dry-run")
    assert "subscribe" in plan


def test_a_clone_has_no_large_file(source: Path) -> None:
    """A package of another program was committed once: 19 MB in every clone."""
    large = [path.name for path in source.rglob("*") if path.stat().st_size > FILE_BYTES_MAX]

    assert large == []


def test_examples_overwrite_nothing(tmp_path: Path) -> None:
    (tmp_path / "configs").mkdir()

    with pytest.raises(AssertionError, match="nothing was copied"):
        run([sys.executable, "-m", "reliable_pubsub", "examples", tmp_path], REPOSITORY)


def test_an_editable_install_is_a_path_that_type_checkers_follow(
    source: Path, tmp_path: Path
) -> None:
    """A hook that maps names to folders would work for Python, and for nothing else."""
    wheel = ZipFile(build("editable", source, tmp_path / "editable"))

    paths = [name for name in wheel.namelist() if name.endswith(".pth")]
    assert [wheel.read(name).decode().strip() for name in paths] == [str(source)]
    assert not [name for name in wheel.namelist() if name.endswith(".py")]


@pytest.mark.long  # the test above is the shorter one
def test_a_type_checker_sees_the_types(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    command = [sys.executable, "-m", "mypy", "--strict", "program.py"]
    environment = os.environ | {"MYPYPATH": str(installed)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)

    assert 'Revealed type is "reliable_pubsub.publisher.core.receipt.Receipt"' in done.stdout
    assert 'program.py:6: error: No overload variant of "put"' in done.stdout
    assert 'program.py:7: error: Module has no attribute "Publishr"' in done.stdout


def test_on_windows_an_import_is_refused_with_the_way_out() -> None:
    program = "import platform; platform.system = lambda: 'Windows'; import reliable_pubsub"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=REPOSITORY, capture_output=True, text=True
    )

    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("ImportError: reliable_pubsub needs what Linux")
    assert "run it in WSL" in done.stderr
