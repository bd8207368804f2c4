"""What operators do, against a real proxy: the command, the library, and the checker's word."""

from __future__ import annotations

import json

import pytest

from reliable_pubsub import Admin, Earliest, LostError, TryLaterError

from .harness import IMPATIENT, NOWHERE, PATIENCE_S, Service


def test_what_an_operator_does_survives_kill_9_is_reported_audited_and_agreed_to_by_the_checker(
    service: Service,
) -> None:
    folder = service.directory / "journals"
    folder.mkdir()
    service.start_proxy("--journal", folder / "proxy.jsonl")
    with (
        service.open_subscriber("s", journal=folder / "s.jsonl") as subscriber,
        service.open_publisher("p", journal=folder / "p.jsonl", retry=IMPATIENT) as publisher,
        Admin(endpoint=service.subscriber_endpoint) as admin,
    ):
        subscriber.subscribe("t")
        for number in range(6):
            publisher.put("t", b"%d" % number)
        subscriber.get("t", max_messages=3)
        subscriber.acknowledge("t")

        admin.set_cursor("t", "s", Earliest)
        admin.pause("a new disk")
        service.restart_proxy()

        with pytest.raises(TryLaterError, match="a new disk"):
            publisher.put("t", b"6")
        subscriber.acknowledge("t")  # what it had fetched before would be given first
        given = subscriber.get("t", max_messages=9, timeout_s=PATIENCE_S)
        assert [message.payload for message in given][:3] == [b"0", b"1", b"2"]
        assert given[0].redelivered
        admin.resume()
        publisher.resume()
        subscriber.acknowledge("t")
        publisher.put("t", b"7")
        admin.skip("t", "s")
        with pytest.raises(LostError, match="by an operator"):
            subscriber.get("t", max_messages=9, timeout_s=PATIENCE_S)
        admin.end_subscription("t", "s")
    check = service.run("", "lab", "check", folder)
    assert check.wait() == 0, check.stdout
    assert audited(service) == ["set_cursor", "pause", "resume", "skip", "end_subscription"]


def audited(service: Service) -> list[str]:
    lines = (service.data_dir / "audit.jsonl").read_text().splitlines()
    return [json.loads(line)["action"]["action"] for line in lines]


def test_an_action_whose_line_of_the_audit_log_was_not_written_has_it_after_the_next_start(
    service: Service,
) -> None:
    service.start_proxy()
    with Admin(endpoint=service.subscriber_endpoint) as admin:
        admin.pause("a new disk")
        admin.resume()
        file = service.data_dir / "audit.jsonl"
        first, second = file.read_text().splitlines()
        file.write_text(f"{first}\n{second[:20]}\n")  # as if killed in the midst of it
        service.restart_proxy()
        assert file.read_text().splitlines() == [first, second[:20], second]
        service.restart_proxy()
    assert len(file.read_text().splitlines()) == 3


def test_the_command_asks_before_it_acts_and_says_what_it_did(service: Service) -> None:
    service.start_proxy()
    endpoint = ("--endpoint", service.subscriber_endpoint)
    with service.open_subscriber("s") as subscriber, service.open_publisher("p") as publisher:
        subscriber.subscribe("t")
        for number in range(4):
            publisher.put("t", b"%d" % number)

    unsure = service.run("", "admin", "truncate", "t", "offset 2", *endpoint)
    assert unsure.wait() == 2
    assert "nothing was done" in unsure.complaints
    sure = service.run("", "admin", "truncate", "t", "offset 2", "--yes", "--json", *endpoint)
    assert sure.wait() == 0
    assert json.loads(sure.stdout)["end"] == 2
    wrong = service.run("", "admin", "skip", "t", "unknown", "--yes", *endpoint)
    assert wrong.wait() == 4
    assert "NOT_POSSIBLE" in wrong.complaints
    listed = service.run("", "admin", "list", "--json", *endpoint)
    assert listed.wait() == 0
    found = json.loads(listed.stdout)
    assert [one["start"] for one in found["topics"]] == [2]
    assert {one["client"] for one in found["clients"]} == {"p", "s"}

    deleted = service.run("", "admin", "delete-topic", "t", "--yes", *endpoint)
    assert deleted.wait() == 0
    assert "deletes t with offsets 2 to 3, and ends 1 subscription" in deleted.stdout
    ended = service.run("", "admin", "end-subscription", "t", "group:workers", "--yes", *endpoint)
    assert (ended.wait(), ended.stdout.strip()) == (0, "nothing to do")


def test_the_command_says_that_it_waits_for_a_proxy_that_is_away(service: Service) -> None:
    process = service.run(
        *("", "admin", "list", "--endpoint", NOWHERE, "--ack-timeout", "0.1", "--send-retries=0")
    )

    assert process.wait() == 3
    assert f"waiting: no answer from {NOWHERE}" in process.stderr
