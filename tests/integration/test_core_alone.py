"""Proxy, publisher and subscriber without features, in a copy of the tree, survive kill -9."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import pytest

from scripts.delivery import compare

from .harness import PATIENCE_S, REPOSITORY, Process, Service, eventually

CORE: Final = ("reliable_pubsub", "common", "relay", "proxy", "publisher", "subscriber")
# Everything else in these rooms is the core; what lists the features lists the core instead.
FEATURE_FOLDERS: Final = {
    "proxy": (
        *("access", "dead_letters", "groups", "operators", "patterns", "push", "qos0"),
        *("status", "transactions"),
    ),
    "publisher": ("delivery", "interests", "qos0", "streams", "transactions"),
    "subscriber": ("groups", "handlers", "patterns", "push"),
}
FEATURE_SHELLS: Final = (
    *("proxy/admin.py", "proxy/admin_tables.py", "proxy/auditing.py", "proxy/backup.py"),
    *("proxy/check_command.py", "proxy/compact.py", "proxy/contents.py", "proxy/exposition.py"),
    *("proxy/ingress.py", "proxy/observation.py", "proxy/postgres_connection.py"),
    *("proxy/postgres_sql.py", "proxy/postgres_store.py", "proxy/push_sockets.py"),
    *("proxy/restore.py", "proxy/status_command.py", "proxy/term.py"),
    *("publisher/aio.py", "publisher/put_command.py", "publisher/writer.py"),
    *("subscriber/aio.py", "subscriber/get_command.py", "subscriber/external_cursor.py"),
    "subscriber/reader.py",
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
    "publisher/features.py": """
from .put_calls import PutCalls as PublisherCalls

__all__ = ["PublisherCalls"]
""",
    "subscriber/features.py": """
from .topic_calls import TopicCalls as SubscriberCalls

__all__ = ["SubscriberCalls"]
""",
}
COUNT: Final = 120
# Each message is put with a note, which says how many there were; so none is put twice.
PUBLISHER: Final = """
import sys
from reliable_pubsub.common.core.batch import Batch
from reliable_pubsub.common.core.retry import RetryPolicy
from reliable_pubsub.publisher.client import Publisher

endpoint, state_dir, count = sys.argv[1:]
retry = RetryPolicy(retries_max=1000)
with Publisher("p", endpoint=endpoint, state_dir=state_dir, retry=retry) as publisher:
    publisher.resume()
    for number in range(int(publisher.note or b"0"), int(count)):
        publisher.put_batch("t", Batch([b"m_%d" % (number + 1)]), b"%d" % (number + 1))
"""
# The note is the length of the output, written in one step with the cursor.
SUBSCRIBER: Final = """
import json, sys
from reliable_pubsub.common.core.retry import RetryPolicy
from reliable_pubsub.subscriber.client import Subscriber

endpoint, state_dir, count, path = sys.argv[1:]
retry = RetryPolicy(retries_max=1000)
subscriber = Subscriber("s", endpoint=endpoint, state_dir=state_dir, retry=retry)
with subscriber, open(path, "ab") as out:
    out.truncate(int(subscriber.note or b"0"))
    subscriber.subscribe("t")
    lines = open(path, "rb").read().count(b"\\n")
    while lines < int(count):
        for message in subscriber.get("t", max_messages=3, timeout_s=5.0):
            line = {"topic": message.topic, "offset": message.offset}
            line |= {"message_id": message.message_id, "payload": message.payload.decode()}
            out.write(json.dumps(line).encode() + b"\\n")
            lines += 1
        out.flush()
        subscriber.record("t", b"%d" % out.tell())
"""


@pytest.fixture
def core(tmp_path: Path) -> Path:
    """A copy of the tree in which the features are deleted."""
    tree = tmp_path / "core"
    ignored = shutil.ignore_patterns("__pycache__")
    for name in CORE:
        shutil.copytree(REPOSITORY / name, tree / name, symlinks=True, ignore=ignored)
    for room, folders in FEATURE_FOLDERS.items():
        for folder in folders:
            shutil.rmtree(tree / room / folder)
    for file in FEATURE_SHELLS:
        (tree / file).unlink()
    for file, text in LISTS.items():
        (tree / file).write_text(text)
    return tree


def from_copy(tree: Path) -> tuple[str, ...]:
    """Let a command import the copy, and not this tree."""
    return ("env", f"PYTHONPATH={tree}")


def kill_each_by_turns(
    service: Service, core: Path, starts: Mapping[str, Callable[[], Process]]
) -> None:
    """Start clients; kill -9 proxy and clients, by progress of the output, until all is there."""
    running = {name: start() for name, start in starts.items()}
    victims = ("proxy", *starts)
    for turn in range(3 * len(victims)):
        moment = (turn + 1) * COUNT // (4 * len(victims))
        eventually(
            lambda moment=moment: service.line_count("s") >= moment,  # type: ignore[misc]
            f"{moment} messages in the output",
            since=lambda: service.line_count("s"),
        )
        victim = victims[turn % len(victims)]
        if victim == "proxy":
            service.proxy.kill()
            service.start_proxy(prefix=from_copy(core))
        else:
            running[victim].kill()
            running[victim] = starts[victim]()
    eventually(
        lambda: all(one.exit_code is not None for one in running.values()),
        "end of the clients",
        timeout_s=PATIENCE_S,
        since=lambda: service.line_count("s"),
    )
    for one in running.values():
        one.done()


def assert_each_once(service: Service, puts: Mapping[str, Mapping[str, list[bytes]]]) -> None:
    (verdict,) = compare({"s": service.output("s")}, {"s": list(puts)}, puts)
    assert verdict.perfect, verdict


MESSAGES: Final = {"t": {"p": [b"m_%d" % n for n in range(1, COUNT + 1)]}}


def test_the_copy_imports_nothing_of_this_tree_and_no_feature(core: Path) -> None:
    program = (
        "import sys, reliable_pubsub.proxy.__main__\n"
        "import reliable_pubsub.publisher.__main__, reliable_pubsub.subscriber.__main__\n"
        "print(*(str(m.__file__) for n, m in sys.modules.items() if n.startswith('reliable_pub')))"
    )
    command = [*from_copy(core), sys.executable, "-c", program]
    done = subprocess.run(command, cwd=core.parent, capture_output=True, text=True)

    assert done.returncode == 0, done.stderr
    assert all(Path(file).is_relative_to(core) for file in done.stdout.split())


def test_step_files_deliver_each_message_once_without_the_features(
    service: Service, core: Path
) -> None:
    prefix = from_copy(core)
    service.start_proxy(prefix=prefix)
    gets = f"{{action: get, topic: t, number_of_times: {COUNT}, batch: 5}}"
    steps = f"steps: [{{action: subscribe, topic: t, from: earliest}}, {gets}]"
    put = f"{{topic: t, message: m, number_of_times: {COUNT}, sleep_between_messages: 0.02}}"

    kill_each_by_turns(
        service,
        core,
        {
            "publisher": lambda: service.publisher("p", f"steps: [{put}]", prefix=prefix),
            "subscriber": lambda: service.subscriber("s", steps, prefix=prefix),
        },
    )

    assert_each_once(service, MESSAGES)


def test_programs_deliver_each_message_once_without_the_features(
    service: Service, core: Path
) -> None:
    prefix = [*from_copy(core), sys.executable, "-c"]
    service.start_proxy(prefix=from_copy(core))
    to, at = service.publisher_endpoint, service.subscriber_endpoint
    states, count = str(service.state_dir), str(COUNT)
    service.output("s").touch()
    first = [*prefix, SUBSCRIBER, at, states, "0", str(service.output("s"))]
    service.run_command("begins", first).done()

    kill_each_by_turns(
        service,
        core,
        {
            "publisher": lambda: service.run_command("p", [*prefix, PUBLISHER, to, states, count]),
            "subscriber": lambda: service.run_command(
                "s", [*prefix, SUBSCRIBER, at, states, count, str(service.output("s"))]
            ),
        },
    )

    assert_each_once(service, MESSAGES)


def test_what_needs_a_feature_that_was_deleted_is_refused(service: Service, core: Path) -> None:
    service.start_proxy(prefix=from_copy(core))
    program = (
        "from reliable_pubsub.common.core.errors import UsageError\n"
        "from reliable_pubsub.common.core.patterns.pattern import glob\n"
        "from reliable_pubsub.publisher.client import Publisher\n"
        "from reliable_pubsub.subscriber.client import Subscriber\n"
        f"publisher = Publisher('p', endpoint={service.publisher_endpoint!r})\n"
        f"subscriber = Subscriber('s', endpoint={service.subscriber_endpoint!r})\n"
        "for call in (\n"
        "    lambda: publisher.put('t', b'', qos=0),\n"
        "    lambda: publisher.put('t', b'', wait='delivered'),\n"
        "    lambda: subscriber.subscribe('t', group='g'),\n"
        "    lambda: subscriber.subscribe(match=glob('t*')),\n"
        "):\n"
        "    try:\n"
        "        call()\n"
        "    except UsageError as error:\n"
        "        print(error)\n"
    )
    process = service.run_command("refused", [*from_copy(core), sys.executable, "-c", program])
    process.done()

    refused = process.stdout.splitlines()
    assert len(refused) == 4
    assert all("without" in line or "needs the name of a topic" in line for line in refused)
