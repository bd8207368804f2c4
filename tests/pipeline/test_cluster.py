"""A standalone cluster: master, workers and executors are processes of their own.

All tests use one. In the first tests its Python has not got the package: that is sent, or packed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from scripts.spark_cluster import SPARK, Cluster, cluster
from tests.integration.harness import Service

from .parts_on_cluster import ROWS, TASKS, TOPIC
from .quick_java import java_options

ROOT = Path(__file__).parents[2]
BOUND_S = 1_800.0
SETTINGS = {
    "spark.driver.host": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "3",
}


def package_zip(path: Path) -> Path:
    """The package and nothing else, as `--py-files` takes it."""
    with zipfile.ZipFile(path, "w") as archive:
        for file in sorted((ROOT / "reliable_pubsub").rglob("*")):
            if file.is_file() and "__pycache__" not in file.parts:
                archive.write(file, file.relative_to(ROOT))
        for room in (ROOT / "reliable_pubsub").iterdir():
            for file in sorted(room.resolve().rglob("*.py")) if room.is_symlink() else ():
                inside = Path("reliable_pubsub", room.name, file.relative_to(room.resolve()))
                if str(inside) not in archive.namelist():
                    archive.write(file, inside)
    return path


def bare_python(folder: Path) -> Path:
    """A Python with everything that this one has, except the package, installed by reference."""
    venv.create(folder, symlinks=True)
    (python,) = folder.glob("bin/python")
    packages = sysconfig.get_path("purelib", vars={"base": str(folder)})
    Path(packages, "others.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return python


def packed(folder: Path, package: Path) -> Path:
    """The folder `environment`, with the package first, as docs/how-to/pipeline.md packs it."""
    environment = folder / "environment"
    (site,) = environment.glob("lib/*/site-packages")
    with zipfile.ZipFile(package) as files:
        files.extractall(site)
    path = folder / "environment.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        archive.add(environment, ".")
    return path


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Two workers whose Python does not have the package; the last test ends one."""
    folder = tmp_path_factory.mktemp("cluster")
    with cluster(folder, 2, environment={"PYTHONPATH": ""}, java_options=java_options()) as found:
        yield found


@pytest.mark.long
@pytest.mark.parametrize("way", ["sent", "packed"])
def test_a_cluster_to_which_the_package_is_sent_puts_and_reads_each_row_once_also_when_an_executor_dies(  # noqa: E501
    running: Cluster, service: Service, tmp_path: Path, way: str
) -> None:
    """Rows are put where the package is sent; where it is packed they are there, and read."""
    service.start_proxy()
    rows = [b"row %d" % n for n in range(4_500)]
    if way == "sent":
        (tmp_path / "rows.txt").write_bytes(b"\n".join(rows))
    else:
        with service.open_publisher("p") as publisher:
            publisher.put_many("t", rows)
    python = str(bare_python(tmp_path / "environment"))
    without = [python, "-c", "import zmq; import reliable_pubsub"]
    here = subprocess.run(without, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "No module named 'reliable_pubsub'" in here.stderr
    script = tmp_path / "on_cluster.py"
    script.write_bytes(Path(__file__).with_name("on_cluster.py").read_bytes())
    package = package_zip(tmp_path / "package.zip")
    shipped = ("--py-files", str(package))
    if way == "packed":
        shipped = ("--archives", f"{packed(tmp_path, package)}#environment")
        python = "./environment/bin/python"

    settings = SETTINGS | {"spark.executor.extraJavaOptions": java_options()}
    words = [f"--conf={key}={value}" for key, value in settings.items()]
    # The driver has it, too: a session that an earlier test has made leaves its own Python here.
    environment = {"PYSPARK_PYTHON": python, "PYSPARK_DRIVER_PYTHON": python, "PYTHONPATH": ""}
    run = subprocess.run(
        [
            *(str(SPARK / "bin" / "spark-submit"), "--master", running.master),
            *("--name", "nightly", *words),
            *shipped,
            str(script),
            *(str(tmp_path), service.publisher_endpoint, service.subscriber_endpoint),
        ],
        env={
            **os.environ,
            **environment,
            "SPARK_HOME": str(SPARK),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_SUBMIT_OPTS": java_options(),
        },
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=BOUND_S,
        check=False,
    )

    assert run.returncode == 0, run.stderr[-3_000:]
    seen = json.loads((tmp_path / "seen.json").read_text())
    assert (package if way == "sent" else tmp_path / "environment") in Path(seen["package"]).parents
    assert seen["master"] == running.master
    assert (seen["name"], seen["shuffle"]) == ("nightly", "3")
    if way == "sent":
        assert sum(sum(part) for part in seen["parts"]) == len(rows)
        # The split whose executor had died.
        assert any(put == 0 and before > 0 for put, before in seen["parts"])
    assert (seen["batch"], seen["stream"]) == (len(rows), len(rows))
    assert sorted(service.payloads("t")) == sorted(rows)


@pytest.mark.long
def test_a_write_in_parts_stores_each_row_once_when_an_executor_and_a_worker_are_killed(
    running: Cluster, service: Service, tmp_path: Path
) -> None:
    service.start_proxy()
    endpoints = (service.publisher_endpoint, service.subscriber_endpoint)
    module = ("-m", "tests.pipeline.parts_on_cluster")
    run = subprocess.run(
        [sys.executable, *module, running.master, str(tmp_path), *endpoints],
        env={
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_SUBMIT_OPTS": java_options(),
        },
        capture_output=True,
        text=True,
        timeout=BOUND_S,
        check=False,
    )
    killed = [one for one in running.workers if not one.runs]

    assert run.returncode == 0, run.stderr[-3_000:]
    assert len(killed) == 1
    assert (tmp_path / "died").exists()
    stored = [int(text) for text in service.payloads(TOPIC)]
    assert sorted(stored) == [*range(ROWS)]  # though all of it was written once more
    size = ROWS // TASKS
    for first in range(0, ROWS, size):
        of_task = range(first, first + size)
        assert [number for number in stored if number in of_task] == [*of_task]
