"""V13: a message of a group is with one live member at a time, and ends once."""

from __future__ import annotations

from collections import Counter
from typing import Any

from reliable_pubsub.common.core.journal import (
    AdministeredLine,
    AnyLine,
    Begin,
    DeadLetteredLine,
    Failed,
    Finished,
    FoundEnd,
    GrantedLine,
    Invoke,
    Ok,
    Seen,
    Unknown,
)
from reliable_pubsub.lab.core.indexing import index_run
from reliable_pubsub.lab.core.rules_of_groups import one_holder
from reliable_pubsub.lab.core.run import LabRun, OutputLine

MS = 10**6


class History:
    """What members of a group wrote; a millisecond passes with each line."""

    def __init__(self) -> None:
        self.lines: list[AnyLine] = []
        self.now_ns = 0
        self.calls = 0
        self.deliveries: Counter[int] = Counter()  # by offset
        self.outputs: dict[str, list[OutputLine]] = {}
        for name in ("w1", "w2"):
            self.line(Begin, name, role="subscriber", wall_ns=0)
            self.answered(name, "join", log="log", generation=1, cursor=0)

    def line(self, kind: Any, process: str, *, pid: int = 1, **facts: Any) -> None:
        self.now_ns += MS
        self.lines.append(kind(at_ns=self.now_ns, process=process, pid=pid, **facts))

    def answered(self, name: str, op: str, *outcomes: Any, **facts: Any) -> None:
        self.asked(name, op, *outcomes)
        self.line(Ok, name, op=op, call=self.calls, topic="t", group="g", **{"epoch": 1, **facts})

    def asked(self, name: str, op: str, *outcomes: Any) -> None:
        self.calls += 1
        facts: dict[str, Any] = {"op": op, "call": self.calls, "topic": "t", "group": "g"}
        self.line(Invoke, name, epoch=1, outcomes=outcomes, **facts)

    def take(
        self, name: str, *offsets: int, lease_ms: int = 100, delivery: int = 0, **facts: Any
    ) -> None:
        self.deliveries.update(offsets)
        seen = tuple(
            Seen(at, "p", at + 1, 7, delivery_count=delivery or self.deliveries[at])
            for at in offsets
        )
        self.answered(name, "take", messages=seen, lease_ms=lease_ms, **facts)

    def ack(self, name: str, *offsets: int, **facts: Any) -> None:
        self.answered(name, "settle", *[(at, 1, 1, "ack") for at in offsets], **facts)

    def end(self, messages: int) -> None:
        """The log is read, and the members had everything."""
        self.line(FoundEnd, "auditor", topic="t", start=0, end=messages, positions={})
        for name in ("w1", "w2"):
            self.line(Finished, "lab", target=name, done=True, drained=True)

    @property
    def broken(self) -> list[str]:
        finding = one_holder(index_run(LabRun(lines=self.lines, outputs=self.outputs)))
        return [one.text for one in finding.violations]


def test_a_message_for_each_and_an_end_for_each_is_sound() -> None:
    history = History()
    history.take("w1", 0)
    history.take("w2", 1)
    history.ack("w2", 1)
    history.ack("w1", 0)
    history.end(2)

    assert history.broken == []


def test_two_holders_at_a_time_are_found() -> None:
    history = History()
    history.take("w1", 0)
    history.take("w2", 0)

    assert len(history.broken) == 1
    assert "came to w2 while w1 still held it" in history.broken[0]


def test_two_holders_one_after_the_other_are_sound() -> None:
    """After the lease, after it was given back, and after a newer process has the id."""
    history = History()
    history.take("w1", 0, lease_ms=1)
    history.take("w2", 0)
    history.take("w1", 1)
    history.answered("w1", "settle", (1, 1, 1, "nack"))
    history.take("w2", 1)
    history.take("w1", 2)
    history.line(GrantedLine, "proxy", role="subscriber", client="w1", epoch=2)
    history.take("w2", 2)

    assert history.broken == []


def test_two_deliveries_with_one_number_are_found() -> None:
    history = History()
    for name in ("w1", "w2", "w1"):
        history.take(name, 0, lease_ms=1, delivery=1)

    assert [text.partition(", both")[0] for text in history.broken] == [
        "offset 0 of 't' in group 'g' came to w1 and again to w2",
        "offset 0 of 't' in group 'g' came to w1 and again to w1",
    ]


def test_a_dead_letter_that_no_member_was_handed_is_found() -> None:
    history = History()
    history.take("w1", 0)
    history.asked("w2", "take", (1, 1, 1, "extend"))  # it dies in this call, perhaps of the message
    for offset in (0, 1, 2):
        history.line(
            DeadLetteredLine,
            "proxy",
            topic="t",
            subscriber="group:g",
            generation=1,
            offset=offset,
            dead_topic="t.dead",
            letter=Seen(offset, "w1", 1, 7),
            epoch=0,
        )

    assert history.broken == [
        "offset 2 of 't' in group 'g' is a dead letter, and no member was handed it"
    ]


def test_a_lease_that_is_extended_is_longer() -> None:
    history = History()
    history.take("w1", 0, lease_ms=3)
    history.answered("w1", "settle", (0, 1, 1, "extend"), lease_ms=100)
    history.take("w2", 0)

    assert "while w1 still held it" in history.broken[0]


def test_a_call_that_was_broken_off_holds_nothing() -> None:
    history = History()
    history.take("w1", 0)
    history.line(Begin, "w1", role="subscriber", wall_ns=0)
    history.take("w2", 0)

    assert history.broken == []


def test_what_was_acknowledged_and_comes_again_is_found() -> None:
    history = History()
    history.take("w1", 0)
    history.ack("w1", 0)
    history.take("w2", 0)

    assert "came to w2 after it had been acknowledged" in history.broken[0]


def test_what_is_acknowledged_twice_is_found() -> None:
    history = History()
    history.take("w1", 0, lease_ms=1)
    history.take("w2", 0)
    history.ack("w2", 0)
    history.ack("w1", 0)

    assert "was acknowledged a second time, by w1" in history.broken[0]


def test_a_late_acknowledgement_that_is_refused_is_sound() -> None:
    history = History()
    history.take("w1", 0, lease_ms=1)
    history.take("w2", 0)
    history.ack("w1", 0, refused=((0, 1),))
    history.ack("w2", 0)
    history.end(1)

    assert history.broken == []


def test_a_late_acknowledgement_that_counts_while_another_holds_it_is_found() -> None:
    history = History()
    history.take("w1", 0, lease_ms=1)
    history.take("w2", 0)
    history.ack("w1", 0)

    assert "was acknowledged by w1 while w2 held it" in history.broken[0]


def test_what_is_acknowledged_and_not_in_the_output_of_its_member_is_found() -> None:
    history = History()
    history.outputs = {"w1": [OutputLine("t", Seen(0, "p", 1, 7))]}
    history.take("w1", 0, 1)
    history.ack("w1", 0, 1)
    history.take("w2", 2)
    history.ack("w2", 2)

    assert len(history.broken) == 1
    assert "offset 1 of 't' in group 'g' was acknowledged by w1, and is not" in history.broken[0]


def test_a_message_that_no_member_has_ended_is_found() -> None:
    history = History()
    history.take("w1", 0)
    history.ack("w1", 0)
    history.end(3)

    assert len(history.broken) == 1
    assert "offset 1 to 2 of 't'" in history.broken[0]


def test_an_end_in_doubt_and_a_dead_letter_are_ends() -> None:
    history = History()
    history.take("w1", 0, 1)
    history.asked("w1", "settle", (0, 1, 1, "ack"))
    history.line(Unknown, "w1", op="settle", call=history.calls, code="PROXY_UNREACHABLE")
    history.line(
        DeadLetteredLine,
        "proxy",
        topic="t",
        subscriber="group:g",
        generation=1,
        offset=1,
        dead_topic="t.dead",
        letter=Seen(0, "w1", 1, 7),
        epoch=0,
    )
    history.end(2)

    assert history.broken == []


def test_what_was_removed_is_no_loss_if_reported_to_a_member_and_is_one_if_not() -> None:
    history = History()
    removed: dict[str, Any] = {"topic": "t", "first": 0, "end": 2}
    history.line(AdministeredLine, "proxy", number=1, action="truncate", **removed)
    history.line(Failed, "w1", op="take", call=77, topic="t", code="LOST", first=0, end=1)
    history.end(2)

    assert len(history.broken) == 1
    assert "offset 1 of 't'" in history.broken[0]


def test_a_group_that_an_operator_ended_owes_no_end_and_the_next_one_does() -> None:
    """The next one of this name may be given what the first one had ended."""
    history = History()
    history.take("w1", 0)
    history.ack("w1", 0)
    ended: dict[str, Any] = {"topic": "t", "subscriber": "group:g", "generation": 1}
    history.line(AdministeredLine, "proxy", number=1, action="end_subscription", **ended)
    history.answered("w2", "join", log="log", generation=2, cursor=0)
    history.take("w2", 0)
    history.ack("w2", 0)
    history.end(2)

    assert len(history.broken) == 1
    assert "offset 1 of 't'" in history.broken[0]
