"""The judge of `reliable-pubsub grade`: each rule is broken once, and a right run breaks none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, get_args

import pytest

from reliable_pubsub.lab.grade.core.verdict import BrokenRule, ClientCall, Rule, judge, readings

OK = {"ok": True}
NONE = {"message": None}
NOT_SUBSCRIBED = {"error": "not subscribed"}
KILLED = None  # the answer to a call that a kill interrupted

Line = tuple[str, str, Any]  # client (and life), what it is asked, its answer


def calls_of(*lines: Line) -> list[ClientCall]:
    """Read lines such as `("s1", "get", got("m1"))`; `s1/2` is the second life of s1."""
    calls = []
    for number, (who, asked, answer) in enumerate(lines):
        client, _, life = who.partition("/")
        op, *words = asked.split()
        id = words[0] if op == "put" else ""
        calls.append(
            ClientCall(
                client=client,
                life=int(life or 1),
                op=op,
                topic="t",
                id=id,
                message=f"text of {id}" if id else "",
                began=2 * number + 1,
                ended=None if answer is KILLED else 2 * number + 2,
                answer=answer,
            )
        )
    return calls


def got(id: str) -> dict[str, str]:
    return {"id": id, "message": f"text of {id}"}


def broken(*lines: Line) -> list[BrokenRule]:
    return judge(calls_of(*lines), is_over=True)


def rules(*lines: Line) -> list[str]:
    return [one.rule for one in broken(*lines)]


SUBSCRIBED: Line = ("s1", "subscribe", OK)
PUT_1: Line = ("p1", "put m1", OK)
PUT_2: Line = ("p1", "put m2", OK)

RIGHT: dict[str, Sequence[Line]] = {
    "messages in order": [SUBSCRIBED, PUT_1, PUT_2, ("s1", "get", got("m1")),
                          ("s1", "get", got("m2")), ("s1", "get", NONE)],
    "two publishers in any order": [SUBSCRIBED, PUT_1, ("p2", "put m2", OK),
                                    ("s1", "get", got("m2")), ("s1", "get", got("m1"))],
    "a message put before the subscribe may be missing": [PUT_1, SUBSCRIBED, ("s1", "get", NONE)],
    "a message put before the subscribe may be there": [PUT_1, SUBSCRIBED,
                                                        ("s1", "get", got("m1"))],
    "a repeated put is one message": [SUBSCRIBED, ("p1", "put m1", KILLED),
                                      ("p1/2", "put m1", OK), ("s1", "get", got("m1")),
                                      ("s1", "get", NONE)],
    "an unanswered put may be stored": [SUBSCRIBED, ("p1", "put m1", KILLED),
                                        ("s1", "get", got("m1"))],
    "an unanswered put may be missing": [SUBSCRIBED, ("p1", "put m1", KILLED),
                                         ("s1", "get", NONE)],
    "an unacknowledged message is redelivered": [SUBSCRIBED, PUT_1, PUT_2,
                                                 ("s1", "get", got("m1")),
                                                 ("s1/2", "get", got("m1")),
                                                 ("s1/2", "get", got("m2"))],
    "an interrupted get may have acknowledged": [SUBSCRIBED, PUT_1, PUT_2,
                                                 ("s1", "get", got("m1")), ("s1", "get", KILLED),
                                                 ("s1/2", "get", got("m2"))],
    "an interrupted get may have not acknowledged": [SUBSCRIBED, PUT_1, PUT_2,
                                                     ("s1", "get", got("m1")),
                                                     ("s1", "get", KILLED),
                                                     ("s1/2", "get", got("m1")),
                                                     ("s1/2", "get", got("m2"))],
    "an error without a subscription": [("s1", "get", NOT_SUBSCRIBED), SUBSCRIBED, PUT_1,
                                        ("s1", "unsubscribe", OK), ("s1", "get", NOT_SUBSCRIBED)],
    "a new subscription may return what was not acknowledged": [
        SUBSCRIBED, PUT_1, ("s1", "get", got("m1")), ("s1", "unsubscribe", OK), SUBSCRIBED,
        ("s1", "get", got("m1"))],
}  # fmt: skip

LOST = "nothing acknowledged is lost"
WRONG: dict[str, tuple[str, Sequence[Line]]] = {
    "a message is missing": (LOST, [SUBSCRIBED, PUT_1, ("s1", "get", NONE)]),
    "a message is skipped": (LOST, [SUBSCRIBED, PUT_1, PUT_2, ("s1", "get", got("m2"))]),
    "a message is skipped before an unsubscribe": (
        LOST, [SUBSCRIBED, PUT_1, PUT_2, ("s1", "get", got("m2")), ("s1", "unsubscribe", OK)]),
    "a repeated subscribe loses": (LOST, [SUBSCRIBED, PUT_1, SUBSCRIBED, ("s1", "get", NONE)]),
    "an unacknowledged message is not redelivered": (
        LOST, [SUBSCRIBED, PUT_1, ("s1", "get", got("m1")), ("s1/2", "get", NONE)]),
    "another one comes first after a restart": (
        LOST, [SUBSCRIBED, PUT_1, PUT_2, ("s1", "get", got("m1")), ("s1/2", "get", got("m2"))]),
    "an ack of a run without a message": (
        LOST, [SUBSCRIBED, PUT_1, PUT_2, ("s1", "get", got("m1")), ("s1/2", "ack", OK),
               ("s1/2", "get", got("m2"))]),
    "an acknowledged message comes again": (
        "nothing twice", [SUBSCRIBED, PUT_1, ("s1", "get", got("m1")), ("s1", "get", got("m1"))]),
    "it comes again after an ack and a restart": (
        "nothing twice", [SUBSCRIBED, PUT_1, ("s1", "get", got("m1")), ("s1", "ack", OK),
                          ("s1/2", "get", got("m1"))]),
    "the order is reversed": (
        "the publisher's order is kept",
        [SUBSCRIBED, PUT_1, PUT_2, ("s1", "get", got("m2")), ("s1", "get", got("m1"))]),
    "a message that was never put": ("nothing invented", [SUBSCRIBED, ("s1", "get", got("m9"))]),
    "a message with the id of another": (
        "nothing invented",
        [SUBSCRIBED, ("p1", "put m1", KILLED),
         ("s1", "get", {"id": "m2", "message": "text of m1"})]),
    "an error in spite of a subscription": (
        "a subscription outlives every process",
        [SUBSCRIBED, ("s1/2", "get", NOT_SUBSCRIBED)]),
    "a message after unsubscribe": (
        "nothing after unsubscribe",
        [SUBSCRIBED, PUT_1, ("s1", "unsubscribe", OK), ("s1", "get", got("m1"))]),
    "no error after unsubscribe": (
        "nothing after unsubscribe",
        [SUBSCRIBED, ("s1", "unsubscribe", OK), ("s1", "get", NONE)]),
    "an unanswered put is stored for one subscriber": (
        "an unanswered put is stored once or never",
        [SUBSCRIBED, ("s2", "subscribe", OK), ("p1", "put m1", KILLED), PUT_2,
         ("s1", "get", got("m1")), ("s1", "get", got("m2")), ("s2", "get", got("m2"))]),
    "text that is no JSON": (
        "each answer has the form of the task sheet", [("s1", "subscribe", "done")]),
    "a put that is answered false": (
        "each answer has the form of the task sheet", [("p1", "put m1", {"ok": False})]),
    "a message without an id": (
        "each answer has the form of the task sheet",
        [SUBSCRIBED, ("p1", "put m1", KILLED), ("s1", "get", {"message": "text of m1"})]),
}  # fmt: skip


@pytest.mark.parametrize("lines", RIGHT.values(), ids=RIGHT)
def test_a_right_run_breaks_no_rule(lines: Sequence[Line]) -> None:
    assert rules(*lines) == []


@pytest.mark.parametrize(("rule", "lines"), WRONG.values(), ids=WRONG)
def test_a_wrong_run_breaks_its_rule_alone(rule: str, lines: Sequence[Line]) -> None:
    assert set(rules(*lines)) == {rule}


def test_every_rule_that_answers_can_show_is_broken_here() -> None:
    seen_by_the_run = {
        "the service resumes after the last fault",
        "the submission stays within its limits",
    }

    assert {rule for rule, _ in WRONG.values()} == set(get_args(Rule)) - seen_by_the_run


def test_a_run_that_is_not_over_has_lost_nothing_yet() -> None:
    assert judge(calls_of(SUBSCRIBED, PUT_1), is_over=False) == []


def test_what_can_still_arrive_is_awaited_and_what_was_skipped_is_not() -> None:
    calls = calls_of(SUBSCRIBED, PUT_1, PUT_2, ("p1", "put m3", OK), ("s1", "get", got("m2")))

    awaited = readings(calls)["s1", "t"].awaited()

    assert [one.id for one in awaited] == ["m3"]
