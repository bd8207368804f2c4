"""kill -9 of every role, at random moments and at chosen ones; the output files are the judge."""

from __future__ import annotations

import random
import shutil
import sqlite3
import threading
import time
from collections.abc import Callable
from contextlib import closing

import pytest

from reliable_pubsub import Receipt
from scripts.delivery import Puts, compare, read_lines

from .harness import BELIEVING_OPTIONS, PATIENCE_S, Process, Service, eventually, losing_link

KILLS = 30
ROLES = ("proxy", "publisher", "subscriber")

# Odd lines on purpose: empty, with \r, not UTF-8, long.
LINES = [b"line %d" % n for n in range(300)]
LINES[7:7] = [b"", b"ends with \r", b"\xff\xfe no text", b"x" * 3000]

PUBLISHER_PLANS = {
    "one": """
        steps:
          - {topic: alpha, message: a, number_of_times: 300, sleep_between_messages: 0.02}
          - {topic: beta, message: b, number_of_times: 40, sleep_between_messages: 0.01}
    """,
    "mixed": """
        steps:
          - {topic: alpha, message: m, number_of_times: 250, batch: 7, sleep_between_messages: 0.05}
          - {topic: beta, message: "n \u00fc", number_of_times: 400, batch: 13,
             sleep_between_messages: 0.05}
          - {topic: alpha, message: o, number_of_times: 150, batch: 3,
             sleep_between_messages: 0.03}
    """,
    "lines": """
        steps:
          - {topic: gamma, message_file: lines.txt, batch: 4, sleep_between_messages: 0.06}
          - {topic: beta, message: same, numbered: false, number_of_times: 60, batch: 50}
          - {topic: gamma, message_file: lines.txt, sleep_between_messages: 0.005}
    """,
}
PUTS: Puts = {
    "alpha": {
        "one": [b"a_%d" % n for n in range(1, 301)],
        "mixed": [b"m_%d" % n for n in range(1, 251)] + [b"o_%d" % n for n in range(251, 401)],
    },
    "beta": {
        "one": [b"b_%d" % n for n in range(1, 41)],
        "mixed": [f"n \u00fc_{n}".encode() for n in range(1, 401)],
        "lines": [b"same"] * 60,
    },
    "gamma": {"lines": LINES * 2},
}
TOPICS = {
    "s1": ("alpha",),
    "s2": ("alpha", "beta"),
    "s3": ("gamma", "beta"),
    "s4": ("gamma", "alpha", "beta"),
}
BATCHES = {"s1": 1, "s2": 10, "s3": 3, "s4": 25}


def messages_on(topic: str) -> int:
    return sum(len(payloads) for payloads in PUTS[topic].values())


def subscriber_plan(client: str) -> str:
    """Subscribe to all topics, then get them in turn, a third of each at a time."""
    lines = ["steps:"]
    lines += [f"  - {{action: subscribe, topic: {topic}}}" for topic in TOPICS[client]]
    for part in range(3):
        for topic in TOPICS[client]:
            total = messages_on(topic)
            count = total * (part + 1) // 3 - total * part // 3
            options = f"number_of_times: {count}, batch: {BATCHES[client]}"
            lines.append(f"  - {{action: get, topic: {topic}, {options}}}")
    return "\n".join(lines) + "\n"


class Crew:
    """The processes of one run. One that is killed is started again with the same command."""

    def __init__(self, service: Service, chance: random.Random) -> None:
        self.service = service
        self.chance = chance
        self.kills = dict.fromkeys(ROLES, 0)
        self.clients: dict[str, Process] = {}
        self._starts: dict[str, Callable[[], Process]] = {}
        self._roles: dict[str, str] = {}

    def join(self, role: str, client: str, start: Callable[[], Process]) -> None:
        self._roles[client] = role
        self._starts[client] = start
        self.clients[client] = start()

    def running(self, role: str) -> list[str]:
        """Clients that have not finished; one that ended badly fails the run."""
        left = []
        for client, process in self.clients.items():
            if process.exit_code is None:
                left.append(client)
            else:
                process.done()
        return [client for client in left if self._roles[client] == role]

    def kill_one(self, role: str) -> None:
        """Kill one of a role, sometimes also in the middle of its next start."""
        while True:
            candidates = self.running(role)
            if role != "proxy" and not candidates:
                role = "proxy"  # all of them have finished
            self.kills[role] += 1
            if role == "proxy":
                self.service.proxy.kill()
                self.service.launch_proxy()
            else:
                client = self.chance.choice(candidates)
                self.clients[client].kill()
                self.clients[client] = self._starts[client]()
            if self.chance.random() < 0.75:
                return
            time.sleep(self.chance.uniform(0, 0.4))  # the moment, not a wait for anything

    def finished(self) -> bool:
        return not self.running("publisher") and not self.running("subscriber")


def start_crew(service: Service, chance: random.Random) -> Crew:
    service.file("lines.txt", "")
    (service.directory / "lines.txt").write_bytes(b"".join(line + b"\n" for line in LINES))
    service.start_proxy()
    crew = Crew(service, chance)
    for client in TOPICS:
        plan = subscriber_plan(client)
        crew.join("subscriber", client, lambda c=client, p=plan: service.subscriber(c, p))  # type: ignore[misc]
    for topic in PUTS:
        service.subscribed(topic, *(name for name, topics in TOPICS.items() if topic in topics))
    for client, plan in PUBLISHER_PLANS.items():
        crew.join("publisher", client, lambda c=client, p=plan: service.publisher(c, p))  # type: ignore[misc]
    return crew


def test_thirty_kills_at_random_moments_lose_double_and_disorder_nothing(
    service: Service, chance: random.Random
) -> None:
    total = sum(messages_on(topic) for topics in TOPICS.values() for topic in topics)
    roles = [ROLES[n % 3] for n in range(KILLS)]
    chance.shuffle(roles)
    # By progress and not by the clock, so that 30 kills hit a slow machine as well as a fast one.
    moments = sorted(chance.randrange(total * 8 // 10) for _ in range(KILLS))

    crew = start_crew(service, chance)
    for moment, role in zip(moments, roles, strict=True):
        eventually(
            lambda m=moment: sum(map(service.line_count, TOPICS)) >= m,  # type: ignore[misc]
            f"{moment} messages in the output files",
        )
        time.sleep(chance.uniform(0, 0.05))  # the moment, not a wait for anything
        crew.kill_one(role)
    eventually(crew.finished, "end of all clients", timeout_s=4 * PATIENCE_S)

    verdicts = compare({name: service.output(name) for name in TOPICS}, TOPICS, PUTS)
    assert all(verdict.perfect for verdict in verdicts), verdicts
    assert sum(crew.kills.values()) >= KILLS
    assert min(crew.kills.values()) >= 3, crew.kills  # who has finished is not killed
    service.proxy.ready()
    assert {topic.topic: topic.end for topic in service.status().topics} == {
        topic: messages_on(topic) for topic in PUTS
    }


def test_a_subscriber_killed_inside_a_batch_continues_inside_it(service: Service) -> None:
    service.start_proxy()
    plan = """
        steps:
          - {action: subscribe, topic: t}
          - {action: subscribe, topic: gate}
          - {action: get, topic: t, number_of_times: 14, batch: 7}
          - {action: get, topic: gate}
          - {action: get, topic: t, number_of_times: 86, batch: 7}
    """
    subscriber = service.subscriber("s", plan)
    service.subscribed("gate", "s")
    service.publisher("p", "steps: [{topic: t, message: m, number_of_times: 100, batch: 100}]")

    eventually(lambda: service.line_count("s") == 14, "second get")
    subscriber.kill()
    before = service.output("s").read_bytes()
    subscriber = service.subscriber("s", plan)
    service.publisher("q", "steps: [{topic: gate, message: open}]")
    subscriber.done()

    assert service.output("s").read_bytes().startswith(before)
    puts = {"t": {"p": [b"m_%d" % n for n in range(1, 101)]}, "gate": {"q": [b"open_1"]}}
    (verdict,) = compare({"s": service.output("s")}, {"s": ["t", "gate"]}, puts)
    assert verdict.perfect, verdict


def test_what_a_killed_subscriber_had_not_recorded_is_cut_off_and_comes_once(
    service: Service,
) -> None:
    service.start_proxy()
    plan = """
        steps:
          - {action: subscribe, topic: t}
          - {action: get, topic: t, number_of_times: 10}
    """
    subscriber = service.subscriber("s", plan)
    service.subscribed("t", "s")
    service.publisher("p", "steps: [{topic: t, message: m, number_of_times: 2}]").done()
    eventually(lambda: service.line_count("s") == 2, "second message")
    subscriber.kill()
    service.publisher("q", "steps: [{topic: t, message: m, number_of_times: 8}]").done()

    with service.output("s").open("ab") as file:  # as if it had died before the record
        file.write(b'{"topic":"t","offset":2,"mess')
    service.subscriber("s", plan).done()

    assert [line and line.offset for line in read_lines(service.output("s"))] == list(range(10))


@pytest.mark.parametrize("durability", ["sync", "os"])
def test_no_acknowledged_put_is_missing_after_kills_of_the_proxy(
    durability: str, service: Service, chance: random.Random
) -> None:
    service.start_proxy("--durability", durability)
    receipts: list[tuple[Receipt, list[bytes]]] = []
    enough = threading.Event()

    def put_all(client: str, batch: int) -> None:
        with service.open_publisher(client) as publisher:
            number = 0
            while not enough.is_set():
                payloads = [b"%s %d" % (client.encode(), number + n) for n in range(batch)]
                number += batch
                receipts.append((publisher.put_many("t", payloads), payloads))

    threads = [
        threading.Thread(target=put_all, args=(f"p{n}", batch), daemon=True)
        for n, batch in enumerate((1, 3, 50))
    ]
    for thread in threads:
        thread.start()
    for _ in range(5):
        count = len(receipts) + chance.randrange(5, 200)
        eventually(lambda c=count: len(receipts) >= c, f"{count} receipts")  # type: ignore[misc]
        service.restart_proxy()
    enough.set()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert not any(thread.is_alive() for thread in threads)
    service.restart_proxy()

    found = service.payloads("t")
    for receipt, payloads in receipts:
        assert receipt.offset is not None
        assert found[receipt.offset : receipt.offset + receipt.count] == payloads
    assert len(found) == sum(receipt.count for receipt, _ in receipts)


def pending(service: Service, client: str) -> bool:
    """Whether a publisher has a message in its outbox that is not known to be stored."""
    name, copy = f"publisher-{client}.sqlite3", service.directory / "copy"
    copy.mkdir(exist_ok=True)
    for file in (f"{name}-wal", name):  # the publisher has locked them
        shutil.copy(service.state_dir / file, copy)
    with closing(sqlite3.connect(copy / name)) as state:
        return bool(state.execute("SELECT 1 FROM state WHERE name = 'pending'").fetchall())


def stored(service: Service) -> int:
    return sum(topic.end for topic in service.status().topics)


PUBLISHER_PLAN = """
    steps:
      - {topic: t, message: m, number_of_times: 6, batch: 2, sleep_between_messages: 3.0}
"""


def test_a_publisher_killed_between_outbox_and_send_puts_its_message_once(
    service: Service,
) -> None:
    service.start_proxy()
    publisher = service.publisher("p", PUBLISHER_PLAN)
    eventually(lambda: stored(service), "first put")
    service.proxy.kill()  # whatever comes now cannot arrive
    eventually(lambda: pending(service, "p"), "message in the outbox")
    publisher.kill()

    service.start_proxy()
    assert stored(service) < 6
    service.publisher("p", PUBLISHER_PLAN).done()

    assert service.payloads("t") == [b"m_%d" % n for n in range(1, 7)]


def test_a_publisher_killed_before_it_hears_the_answer_puts_its_message_once(
    service: Service,
) -> None:
    service.start_proxy()
    answers = 3  # to two HELLOs (an epoch, the numbering) and to the first PUT
    with losing_link(service.publisher_endpoint, answers=answers) as link:
        publisher = service.publisher(
            "p", PUBLISHER_PLAN, "--endpoint", link.endpoint, options=BELIEVING_OPTIONS
        )
        eventually(lambda: stored(service) == 4, "put whose answer is lost")
        publisher.kill()
    assert pending(service, "p")

    service.publisher("p", PUBLISHER_PLAN).done()

    assert service.payloads("t") == [b"m_%d" % n for n in range(1, 7)]
