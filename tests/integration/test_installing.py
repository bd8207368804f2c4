"""pip, pipx and uvx install from whatever a person has, and the command runs.

What they need is fetched once, through pip as it is configured here; they find nothing else.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from shlex import quote

import pytest

from .test_packaging import build, run, source, without_links

__all__ = ["source"]  # the fixture
pytestmark = pytest.mark.long  # test_packaging.py builds from the same copies

TOOLS = ("pip", "setuptools", "wheel", "pipx", "uv")
DEPENDENCIES = ("pyzmq", "PyYAML", "click", "msgspec", "prometheus_client", "rich")


class Computer:
    """A home directory with pip, pipx, uv and the dependencies; its package index is a folder."""

    def __init__(self, home: Path, packages: Path) -> None:
        self.home = home
        self._environment = {
            "HOME": str(home),
            "PATH": f"{home}/venv/bin:{os.environ['PATH']}",
            "PIP_CONFIG_FILE": os.devnull,
            "PIP_FIND_LINKS": str(packages),
            "PIP_NO_INDEX": "1",
            "UV_FIND_LINKS": str(packages),
            "UV_OFFLINE": "1",
            "UV_PYTHON": sys.executable,
        }
        self.run(sys.executable, "-m", "venv", home / "venv")
        self.pip("install", "pipx", "uv", *DEPENDENCIES)

    def run(self, *command: str | Path) -> str:
        """Run a command somewhere; return what it says."""
        folder = self.home / "elsewhere"
        folder.mkdir(parents=True, exist_ok=True)
        return run(command, folder, **self._environment)

    def pip(self, *words: str | Path) -> None:
        """Run pip."""
        self.run("python", "-m", "pip", "-q", *words)

    def install(self, *what: str | Path) -> None:
        """Install the package instead of the one of the test before."""
        self.pip("install", "--force-reinstall", "--no-deps", *what)
        self.pip("check")


@pytest.fixture(scope="module")
def computer(tmp_path_factory: pytest.TempPathFactory) -> Computer:
    folder = tmp_path_factory.mktemp("packages")
    command = [sys.executable, "-m", "pip", "wheel", "-q", "-w", str(folder)]
    command += [*TOOLS, *DEPENDENCIES]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"pip reaches no package index: {done.stderr}")
    return Computer(tmp_path_factory.mktemp("home"), folder)


def zip_file(source: Path, folder: Path) -> str:
    """Make the ZIP that a repository's page offers: its links are files that name a target."""
    copy = without_links(source, folder / "reliable-pubsub-main")
    return shutil.make_archive(str(folder / "main"), "zip", folder, copy.name)


def repository(source: Path, folder: Path) -> str:
    shutil.copytree(source, folder / "repository", symlinks=True)
    author = ["-c", "user.name=test", "-c", "user.email=test@localhost"]
    for command in (["init", "-q"], ["add", "-A"], [*author, "commit", "-q", "-m", "all"]):
        run(["git", *command], folder / "repository")
    return f"git+file://{folder / 'repository'}"


FORMS: dict[str, Callable[[Path, Path], str]] = {
    "a ZIP": zip_file,
    "a repository": repository,
    "an sdist": lambda source, folder: str(build("sdist", source, folder / "sdist")),
    "a wheel": lambda source, folder: str(build("wheel", source, folder / "wheel")),
}


@pytest.mark.parametrize("form", FORMS)
def test_pip_installs_from(form: str, source: Path, computer: Computer, tmp_path: Path) -> None:
    computer.install(FORMS[form](source, tmp_path))

    assert "proxy-dies" in computer.run("reliable-pubsub", "lab", "list")
    computer.run("reliable-pubsub", "examples", tmp_path / "examples")
    assert (tmp_path / "examples" / "docs" / "teach" / "lab.md").is_file()


@pytest.mark.parametrize("options", [[], ["-e"]])
def test_pip_installs_a_clone_without_symbolic_links(
    options: Sequence[str], source: Path, computer: Computer, tmp_path: Path
) -> None:
    address = repository(source, tmp_path).removeprefix("git+")
    run(["git", "clone", "-q", "-c", "core.symlinks=false", address, "clone"], tmp_path)
    assert (tmp_path / "clone" / "reliable_pubsub" / "common").is_file()

    computer.install(*options, tmp_path / "clone")

    assert "proxy-dies" in computer.run("reliable-pubsub", "lab", "list")


def test_pipx_installs_the_command(source: Path, computer: Computer, tmp_path: Path) -> None:
    computer.run("pipx", "install", "--python", sys.executable, repository(source, tmp_path))

    command = computer.home / ".local" / "bin" / "reliable-pubsub"
    assert "proxy-dies" in computer.run(command, "lab", "list")


def test_uvx_runs_the_command(source: Path, computer: Computer, tmp_path: Path) -> None:
    words = ["uvx", "--from", zip_file(source, tmp_path), "reliable-pubsub", "lab", "list"]

    assert "proxy-dies" in computer.run(*words)


def test_the_lines_of_the_readme_work_in_a_fresh_clone(
    source: Path, computer: Computer, tmp_path: Path
) -> None:
    page = (source / "README.md").read_text(encoding="utf-8")
    (install,) = re.findall(r"(?ms)^```sh\n(.*?)^```", page)
    (program,) = re.findall(r"(?ms)^```python\n(.*?)^```", page)
    address = repository(source, tmp_path).removeprefix("git+")
    run(["git", "clone", "-q", address, "clone"], tmp_path)
    ports = {
        f"RELIABLE_PUBSUB_{name}_ENDPOINT": f"ipc://{tmp_path}/{name}"
        for name in ("PUBLISHER", "SUBSCRIBER", "PUSH", "INGRESS")
    }
    words = [f"export {name}={value}" for name, value in ports.items()]
    lines = [*words, "set -em", f"cd {tmp_path}/clone", install, "trap 'kill %1' EXIT"]

    said = computer.run("bash", "-c", "\n".join((*lines, f"python -c {quote(program)}")))

    assert "0 b'hello'" in said
