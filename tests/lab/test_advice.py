"""What `explain qos --steps` says of a step file."""

from __future__ import annotations

import pytest

from reliable_pubsub.common.core.message_base import Start
from reliable_pubsub.common.core.steps import PublisherStep, Step, SubscriberStep
from reliable_pubsub.lab.core.advice import advise


def a_put(**more: object) -> PublisherStep:
    return PublisherStep(**{"topic": "t", "message": "m"} | more)  # type: ignore[arg-type]


def a_subscribe(**more: object) -> SubscriberStep:
    return SubscriberStep(action="subscribe", topic="t", **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("step", "said"),
    [
        (a_put(number_of_times=250), "batch: 100 needs 3 fsyncs in place of 250"),
        (a_put(qos=1), "QoS 2 costs a put the same"),
        (a_put(qos=0, message=None, message_file="f"), "a line without a subscriber is lost"),
        (a_subscribe(qos=0), "push: true"),
        (a_subscribe(qos=0, push=True, start=Start("earliest")), "begins with what comes then"),
        (a_subscribe(qos=1, session="clean"), "session: persistent keeps it"),
        (a_subscribe(), "only with --output"),
    ],
)
def test_a_step_that_has_a_snag_is_reported(step: Step, said: str) -> None:
    (advice,) = advise([step])

    assert said in " ".join(advice.says)


@pytest.mark.parametrize(
    "step",
    [
        a_put(number_of_times=99),
        a_put(number_of_times=500, batch=50),
        a_put(number_of_times=500, sleep_between_messages_s=1.0),
        a_put(number_of_times=500, qos=0),
        a_subscribe(qos=0, push=True),
        a_subscribe(qos=1),
    ],
)
def test_of_a_step_that_has_none_nothing_is_said(step: Step) -> None:
    (advice,) = advise([step])

    assert advice.says == ()


def test_what_puts_cost_is_counted_in_fsyncs() -> None:
    steps = [a_put(number_of_times=250, batch=100), a_put(number_of_times=250, qos=0)]

    assert [(one.messages, one.fsyncs) for one in advise(steps)] == [(250, 3), (250, 0)]


def test_steps_without_a_level_are_passed_over() -> None:
    steps = [SubscriberStep(action="get", topic="t"), a_subscribe()]

    assert [one.step for one in advise(steps)] == [2]
