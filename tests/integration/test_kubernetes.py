"""The manifests for Kubernetes: their schemas, and the command that they run."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import yaml

from reliable_pubsub.common.key_files import new_pair

from .harness import REPOSITORY, Service
from .test_operating import metrics_url, page
from .test_service_keys import page_with

MANIFESTS = REPOSITORY / "configs" / "operating" / "kubernetes.yaml"
VERSIONS = ("1.29", "1.37")
USER = 10_001
AS_USER = ("setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups", "--no-new-privs")


def documents() -> list[Any]:
    return list(yaml.safe_load_all(MANIFESTS.read_text()))


def pod() -> Any:
    (found,) = (one for one in documents() if one["kind"] == "StatefulSet")
    return found["spec"]["template"]["spec"]


@pytest.mark.parametrize("version", VERSIONS)
def test_the_manifests_are_valid(version: str) -> None:
    validator = pytest.importorskip(
        "kubernetes_validate", reason="pip install kubernetes-validate (108 MB of schemas)"
    )

    try:
        validator.validate(documents()[0], version)
    except validator.utils.VersionNotSupportedError:
        pytest.skip(f"this kubernetes-validate does not know Kubernetes {version}")
    for document in documents():
        validator.validate(document, version, strict=True)

    with pytest.raises(validator.ValidationError):
        validator.validate(documents()[-1] | {"replicas": 1}, version, strict=True)


def test_the_names_in_the_manifests_fit_together() -> None:
    names = {one["kind"]: one["metadata"]["name"] for one in documents()}
    (container,) = pod()["containers"]
    ports = {one["name"] for one in container["ports"]}
    (service,) = (one for one in documents() if one["kind"] == "Service")
    volumes = {one["name"] for one in pod()["volumes"]} | {"data"}

    assert names["StatefulSet"] == names["Service"]
    assert ports == {one["name"] for one in service["spec"]["ports"]}
    assert volumes == {one["name"] for one in container["volumeMounts"]}
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        assert container[probe]["httpGet"]["port"] in ports


@pytest.fixture
def host() -> Iterator[Service]:
    """A service in a directory that another user may enter; the names in it are given to it."""
    as_user = [*AS_USER, sys.executable, "-c", "import reliable_pubsub"]
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        pytest.skip("only root can become another user, by setpriv (util-linux)")
    if subprocess.run(as_user, check=False, capture_output=True, cwd="/").returncode != 0:
        pytest.skip("another user cannot read this repository or its Python")
    with TemporaryDirectory() as folder:
        Path(folder).chmod(0o711)
        with Service(Path(folder)) as service:
            yield service


def test_the_proxy_of_the_manifest_serves_with_keys_of_its_group(host: Service) -> None:
    root = host.directory
    (container,) = pod()["containers"]
    modes = {one["name"]: one["secret"]["defaultMode"] for one in pod()["volumes"][1:]}
    for folder in ("keys", "clients", "data", "etc/pubsub"):
        (root / folder).mkdir(parents=True)
    public, _ = new_pair(root / "keys", "proxy")
    public.rename(root / "clients" / "proxy.key")
    (root / "keys" / "metrics-token").write_text("0123456789abcdef\n")
    (root / "etc" / "pubsub" / "proxy.yaml").write_text("history_s: 86400\n")
    for folder, mode in modes.items():
        for file in (root / folder).iterdir():
            os.chown(file, 0, USER)
            file.chmod(mode)
    os.chown(root / "data", 0, USER)
    (root / "data").chmod(0o2775)  # as fsGroup makes it
    words = [word.replace("=/", f"={root}/") for word in container["args"]]
    words = [word.rpartition(":")[0] + ":*" if "endpoint" in word else word for word in words]

    proxy = host.run("", *words, prefix=AS_USER)
    url = metrics_url(proxy).replace("0.0.0.0", "127.0.0.1")

    assert " curve=known-keys" in proxy.ready()
    assert page(url.replace("/metrics", "/readyz"))[0] == 200
    assert (page(url)[0], page_with(url, "0123456789abcdef")) == (401, 200)
