"""`reliable-pubsub history`: what is stored, from a place on, without a subscription or a state."""

from __future__ import annotations

import json
from collections.abc import Sequence

from reliable_pubsub.common.core.limits import BATCH_MESSAGES_MAX

from .harness import Process, Service


def printed(service: Service, *options: str) -> Process:
    process = service.run("", "history", *options, "--endpoint", service.subscriber_endpoint)
    process.done()
    return process


def offsets(lines: str) -> Sequence[int]:
    return [json.loads(line)["offset"] for line in lines.splitlines()]


def test_prints_a_topic_from_a_place_on_or_its_last_message(service: Service) -> None:
    """Rows 2.2, 2.5 and 2.17 without a program."""
    service.start_proxy()
    with service.open_publisher("p") as publisher:
        for number in range(3):
            publisher.put("t", b"m%d" % number)

    assert printed(service, "t").stdout == "t 0 p_1: m0\nt 1 p_2: m1\nt 2 p_3: m2\n"
    assert printed(service, "t", "--last").stdout == "t 2 p_3: m2\n"
    assert offsets(printed(service, "t", "--from", "offset 1", "--json").stdout) == [1, 2]
    assert offsets(printed(service, "t", "--from", "age 1h", "--json").stdout) == [0, 1, 2]
    assert offsets(printed(service, "t", "--from", "newest 2", "-n", "1", "--json").stdout) == [1]


def test_reads_on_until_the_end_of_the_topic(service: Service) -> None:
    service.start_proxy()
    count = BATCH_MESSAGES_MAX + 10
    with service.open_publisher("p") as publisher:
        publisher.put_many("t", [b"x"] * BATCH_MESSAGES_MAX)
        publisher.put_many("t", [b"x"] * 10)

    assert offsets(printed(service, "t", "--json").stdout) == list(range(count))
    assert offsets(printed(service, "t", "--json", "-n", "65537").stdout) == list(range(65_537))


def test_leaves_neither_a_client_nor_a_subscription_nor_a_topic(service: Service) -> None:
    service.start_proxy()

    process = printed(service, "t", "--from", "age 1h")

    assert process.stdout == ""
    assert "no message of 't' is stored" in process.stderr
    report = service.status()
    assert (report.topics_count, report.sessions_count) == (0, 0)


def test_a_place_that_means_nothing_without_a_subscription_is_refused(service: Service) -> None:
    process = service.run("", "history", "t", "--from", "now", "--endpoint", "tcp://127.0.0.1:1")

    assert process.wait() == 2
    assert "history does not begin at Now" in process.stderr
