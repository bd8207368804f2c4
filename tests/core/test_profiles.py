"""Presets: the same in step files and in the library, and what a step says goes first."""

from __future__ import annotations

import inspect

import pytest

from reliable_pubsub import Publisher, Subscriber
from reliable_pubsub.common.core.errors import ConfigurationError
from reliable_pubsub.common.core.profiles import PROFILES, Profile
from reliable_pubsub.common.core.step_file import parse_publisher_steps, parse_subscriber_steps
from reliable_pubsub.common.core.steps import PublisherStep, SubscriberStep
from reliable_pubsub.common.yaml_file import parse_yaml

PUT = "steps:\n  - topic: t\n    message: m\n"
SUBSCRIBE = "steps:\n  - action: subscribe\n    topic: t\n"


def a_put(more: str) -> PublisherStep:
    (step,) = parse_publisher_steps(parse_yaml(PUT + more, "f.yaml"))
    return step


def a_subscribe(more: str) -> SubscriberStep:
    (step,) = parse_subscriber_steps(parse_yaml(SUBSCRIBE + more, "f.yaml"))
    return step


@pytest.mark.parametrize("profile", PROFILES.values(), ids=PROFILES)
class TestAProfile:
    def test_is_the_same_in_a_step_file_and_in_the_library(self, profile: Profile) -> None:
        line = f"    profile: {profile.name}\n"

        step = a_subscribe(line)

        assert a_put(line).qos == profile.putting["qos"] == profile.qos
        assert profile.subscribing == {
            "qos": step.qos,
            "session": step.session,
            "lease_s": step.lease_s,
            "push": step.push,
        }

    def test_has_keywords_that_the_library_takes(self, profile: Profile) -> None:
        assert profile.putting.keys() <= inspect.signature(Publisher.put).parameters.keys()
        takes = inspect.signature(Subscriber.subscribe).parameters.keys()
        assert profile.subscribing.keys() <= takes


def test_each_level_has_a_profile() -> None:
    assert sorted(profile.qos for profile in PROFILES.values()) == [0, 1, 2]


def test_what_a_step_says_itself_goes_before_its_profile() -> None:
    step = a_subscribe("    profile: telemetry\n    qos: 1\n    lease: 5\n    push: false\n")

    assert (step.qos, step.session, step.lease_s, step.push) == (1, "clean", 5.0, False)
    assert a_put("    profile: billing\n    qos: 0\n").qos == 0


def test_an_unknown_profile_is_reported_with_its_line_and_the_closest_word() -> None:
    with pytest.raises(ConfigurationError, match=r"line 4.*profile.*did you mean 'billing'"):
        a_put("    profile: biling\n")
