"""Dead letters against a real proxy: one letter for each bad message, across kills."""

from __future__ import annotations

import random
import sys
from itertools import count
from pathlib import Path

from reliable_pubsub.common.core.start import Earliest

from .harness import PATIENCE_S, Process, Service

MESSAGES = 40
BAD = {3, 17, 18, 39}  # the second and third are neighbours
LIVES_MAX = 40

# A program that dies of some messages, in the middle of its work, as by kill -9.
PROGRAM = """
import os, sys
from reliable_pubsub import Subscriber

endpoint, state, journal, done = sys.argv[1:]
subscriber = Subscriber("s", endpoint=endpoint, state_dir=state, journal=journal)
subscriber.subscribe("t", max_deliveries=2)
with open(done, "a") as file:
    while messages := subscriber.get("t", max_messages=5, timeout_s=1.0):
        for message in messages:
            if message.payload.startswith(b"bad"):
                os.kill(os.getpid(), 9)
            print(message.payload.decode(), file=file, flush=True)
subscriber.close()
"""


def a_life(service: Service, folder: Path) -> Process:
    """Start the program once more."""
    arguments = (service.subscriber_endpoint, service.state_dir, folder / "s.jsonl")
    done = service.directory / "done"
    command = [sys.executable, "-c", PROGRAM, *map(str, arguments), str(done)]
    return service.run_command("program", command)


def test_a_bad_message_becomes_a_dead_letter_once_whichever_process_is_killed(
    service: Service, chance: random.Random
) -> None:
    """Row 0.9: nothing twice, nothing lost, and the checker calls it neither a loss nor a gap."""
    folder = service.directory / "journals"
    folder.mkdir()
    service.start_proxy("--journal", folder / "proxy.jsonl")
    with service.open_subscriber("s", state_dir=service.state_dir) as subscriber:
        subscriber.subscribe("t", max_deliveries=2)
    payloads = [b"bad %d" % n if n in BAD else b"good %d" % n for n in range(MESSAGES)]
    with service.open_publisher("p", journal=folder / "p.jsonl") as publisher:
        for first in range(0, MESSAGES, 4):
            publisher.put_many("t", payloads[first : first + 4])

    for life in count():
        assert life < LIVES_MAX
        program = a_life(service, folder)
        if chance.random() < 0.6:
            service.restart_proxy()
        if program.wait() == 0:
            break

    with service.open_subscriber("reader", journal=folder / "reader.jsonl") as reader:
        letters = reader.history("t.dead")
    assert [letter.payload for letter in letters] == [b"bad %d" % n for n in sorted(BAD)]
    assert {letter.headers["dead-letter-offset"] for letter in letters if letter.headers} == {
        str(n) for n in BAD
    }
    done = (service.directory / "done").read_text().splitlines()
    assert set(done) == {f"good {n}" for n in set(range(MESSAGES)) - BAD}
    (subscription,) = service.topic("t").subscriptions
    assert subscription.cursor == MESSAGES
    check = service.run("", "lab", "check", folder)
    assert check.wait() == 0, check.stdout


def test_a_rejected_message_is_replayed_from_the_dead_letters_after_a_restart(
    service: Service,
) -> None:
    service.start_proxy()
    with service.open_subscriber("s") as subscriber, service.open_publisher("p") as publisher:
        subscriber.subscribe("t")
        publisher.put_many("t", [b"1", b"2", b"3"])
        messages = subscriber.get("t", max_messages=3, timeout_s=PATIENCE_S)
        subscriber.reject(messages[1], "cannot be read")
        service.restart_proxy()
        publisher.put("t", b"4")
        assert [m.payload for m in subscriber.get("t", timeout_s=PATIENCE_S)] == [b"4"]

        with service.open_subscriber("repair") as repair:
            repair.subscribe("t.dead", start=Earliest)
            (letter,) = repair.get("t.dead", timeout_s=PATIENCE_S)
    assert (letter.payload, letter.message_id) == (b"2", "s_1")
    assert service.topic("t.dead").end == 1
