"""A proxy without its features, in a copy of the tree, keeps the guarantee over kill -9."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest

from scripts.delivery import compare

from .harness import PATIENCE_S, REPOSITORY, Service, eventually

ROOMS: Final = ("reliable_pubsub", "common", "relay", "proxy", "publisher", "subscriber")
# Everything else in these rooms is the core; what lists the features lists the core instead.
FEATURE_FOLDERS: Final[Mapping[str, tuple[str, ...]]] = {
    "proxy": (
        *("access", "dead_letters", "groups", "operators", "patterns", "push", "qos0"),
        *("status", "transactions"),
    ),
}
FEATURE_SHELLS: Final = (
    *("proxy/admin.py", "proxy/admin_tables.py", "proxy/auditing.py", "proxy/backup.py"),
    *("proxy/check_command.py", "proxy/compact.py", "proxy/contents.py", "proxy/exposition.py"),
    *("proxy/ingress.py", "proxy/observation.py", "proxy/postgres_connection.py"),
    *("proxy/postgres_sql.py", "proxy/postgres_store.py", "proxy/push_sockets.py"),
    *("proxy/restore.py", "proxy/status_command.py", "proxy/term.py"),
)
LISTS: Final = {
    "proxy/features.py": """
from .core.feature import schema_of, tables_of
from .core.verbs import CORE, FORGETTING, RETENTION

FEATURES = (CORE, RETENTION, FORGETTING)
TABLES = tables_of(FEATURES)
SCHEMA = schema_of(TABLES)
""",
    "proxy/shells.py": "SHELLS = ()\n",
}
COUNT: Final = 120
KILLS: Final = 4


@pytest.fixture
def core(tmp_path: Path) -> Path:
    """A copy of the tree in which the features are deleted."""
    tree = tmp_path / "core"
    ignored = shutil.ignore_patterns("__pycache__")
    for name in ROOMS:
        shutil.copytree(REPOSITORY / name, tree / name, symlinks=True, ignore=ignored)
    for room, folders in FEATURE_FOLDERS.items():
        for folder in folders:
            shutil.rmtree(tree / room / folder)
    for file in FEATURE_SHELLS:
        (tree / file).unlink()
    for file, text in LISTS.items():
        (tree / file).write_text(text)
    return tree


def test_a_proxy_without_its_features_delivers_each_message_once_over_kill_9(
    service: Service, core: Path
) -> None:
    prefix = ("env", f"PYTHONPATH={core}")
    service.start_proxy(prefix=prefix)
    subscribe = "{action: subscribe, topic: t, from: earliest}"
    gets = f"{{action: get, topic: t, number_of_times: {COUNT}, batch: 5}}"
    subscriber = service.subscriber("s", f"steps: [{subscribe}, {gets}]", prefix=prefix)
    put = f"{{topic: t, message: m, number_of_times: {COUNT}, sleep_between_messages: 0.02}}"
    publisher = service.publisher("p", f"steps: [{put}]", prefix=prefix)

    for kill in range(KILLS):
        eventually(
            lambda kill=kill: service.line_count("s") >= kill * COUNT // KILLS + 1,  # type: ignore[misc]
            "more messages in the output",
            since=lambda: service.line_count("s"),
        )
        service.proxy.kill()
        service.start_proxy(prefix=prefix)
    eventually(
        lambda: subscriber.exit_code is not None and publisher.exit_code is not None,
        "end of the clients",
        timeout_s=PATIENCE_S,
        since=lambda: service.line_count("s"),
    )

    publisher.done()
    subscriber.done()
    puts = {"t": {"p": [b"m_%d" % number for number in range(1, COUNT + 1)]}}
    (verdict,) = compare({"s": service.output("s")}, {"s": ["t"]}, puts)
    assert verdict.perfect, verdict


def test_the_copy_is_what_runs_and_has_no_feature(service: Service, core: Path) -> None:
    program = (
        "import sys, reliable_pubsub.proxy.__main__\n"
        "print(*(str(m.__file__) for n, m in sys.modules.items() if n.startswith('reliable_pub')))"
    )
    command = ["env", f"PYTHONPATH={core}", sys.executable, "-c", program]
    process = service.run_command("imports", command)
    process.done()

    assert all(Path(file).is_relative_to(core) for file in process.stdout.split())
