"""A client asks for one topic by its name: what looks like a pattern is no name of a topic."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from reliable_pubsub import ExactTopic
from reliable_pubsub.common.core import names
from reliable_pubsub.common.core.errors import ConfigurationError, InvalidNameError
from reliable_pubsub.common.core.message_base import QoS
from reliable_pubsub.common.core.step_file import parse_publisher_steps, parse_subscriber_steps
from reliable_pubsub.common.yaml_file import parse_yaml
from reliable_pubsub.publisher.client import Publisher
from reliable_pubsub.publisher.qos0.qos0_feature import QoS0Feature
from reliable_pubsub.relay.core.unstored import LINKED
from reliable_pubsub.subscriber.client import Subscriber
from tests.fakes import FakeTransport, Link, MemoryProxy, a_world

PATTERNS = ["t*", "*", "sensor/?", "[ab]", "a]", "t.*", "sensors/#", "#", "+/temperature", "a/+/b"]
NAMES = ["t", "c++", "#general", "a+b", "news/#1", "$SYS", "a.b-c_d", "größe/°C", "(x)|{y}^"]


LEVELS: tuple[QoS, ...] = (0, 1, 2)


class QuietOfferLink:
    """A link that is up, and wants nothing. Implements `OfferLink`."""

    def prefixes(self) -> frozenset[bytes]:
        return frozenset({LINKED})

    def send(self, frames: Sequence[bytes]) -> bool:
        raise AssertionError("nothing is wanted")

    def wait(self, seconds: float) -> None:
        raise AssertionError("nothing is waited for")

    def close(self) -> None:
        pass


class House:
    """A proxy, and one client of each kind."""

    def __init__(self) -> None:
        self.proxy = MemoryProxy()
        self.publisher = Publisher("p", _world=a_world(Link(self.proxy)))
        self.subscriber = Subscriber("s", _world=a_world(FakeTransport(Link(self.proxy))))


def put_in_a_transaction(house: House, topic: str) -> None:
    with house.publisher.transaction() as transaction:
        transaction.put(topic, b"x")


def put_in_a_stream(house: House, topic: str) -> None:
    with house.publisher.stream() as stream:
        stream.put(topic, b"x")


DOORS: dict[str, Callable[[House, str], object]] = {
    "put": lambda house, topic: house.publisher.put(topic, b"x"),
    "put at QoS 1": lambda house, topic: house.publisher.put(topic, b"x", qos=1),
    "put at QoS 0": lambda house, topic: house.publisher.put(topic, b"x", qos=0),
    "put_many": lambda house, topic: house.publisher.put_many(topic, [b"x"]),
    "transaction": put_in_a_transaction,
    "stream": put_in_a_stream,
    "interest": lambda house, topic: house.publisher.interest(topic),
    "subscribe": lambda house, topic: house.subscriber.subscribe(topic),
    "get": lambda house, topic: house.subscriber.get(topic),
    "acknowledge": lambda house, topic: house.subscriber.acknowledge(topic),
    "unsubscribe": lambda house, topic: house.subscriber.unsubscribe(topic),
    "use_push": lambda house, topic: house.subscriber.use_push(topic, True),
    "history": lambda house, topic: house.subscriber.history(topic),
    "read": lambda house, topic: house.subscriber.read(topic),
}


@pytest.mark.parametrize("door", DOORS)
def test_a_name_that_is_none_or_looks_like_a_pattern_is_refused_at_every_door(door: str) -> None:
    house = House()

    for name in ("", "a\nb", "\ud800", "x" * 256):
        with pytest.raises(InvalidNameError):
            DOORS[door](house, name)
    for pattern in PATTERNS:
        with pytest.raises(InvalidNameError, match="marks of patterns"):
            DOORS[door](house, pattern)

    assert not house.proxy.state.topics
    house.subscriber.close()


@pytest.mark.parametrize("name", NAMES)
def test_other_marks_are_parts_of_a_name(name: str) -> None:
    assert names.exact(name) == name


def test_a_topic_that_has_such_a_name_already_is_read_and_put_by_its_exact_name() -> None:
    house = House()
    topic = ExactTopic("t*")
    house.subscriber.subscribe(topic)
    house.publisher.put(topic, b"x")
    put_in_a_stream(house, topic)
    put_in_a_transaction(house, topic)

    assert len(house.subscriber.get(topic, max_messages=9)) == 3
    house.subscriber.acknowledge(topic)
    assert len(house.subscriber.history(topic)) == 3
    house.subscriber.unsubscribe(topic)
    assert list(house.proxy.state.topics) == ["t*"]


def test_such_a_name_is_put_at_every_level() -> None:
    """At QoS 0 the listeners were asked for by a name that was no longer known to be exact."""
    house = House()
    lower_qos = house.publisher._engine.feature(QoS0Feature).lower_qos
    lower_qos.qos0._connect = lambda _: QuietOfferLink()

    fates = [house.publisher.put(ExactTopic("t*"), b"x", qos=qos).fate for qos in LEVELS]

    assert fates == ["unwanted", "stored", "stored"]


def test_that_a_name_was_exact_once_does_not_make_it_exact() -> None:
    """Names that were accepted are remembered; "t*" is equal to its exact name."""
    house = House()
    house.publisher.put(ExactTopic("t*"), b"x")

    with pytest.raises(InvalidNameError, match="marks of patterns"):
        house.publisher.put("t*", b"x")


def test_a_step_file_names_one_topic() -> None:
    put = parse_yaml("steps:\n- {topic: 't*', message: m}\n", "put.yaml")
    get = parse_yaml("steps:\n- {action: subscribe, topic: 'sensors/#'}\n", "get.yaml")

    with pytest.raises(ConfigurationError, match="marks of patterns"):
        parse_publisher_steps(put)
    with pytest.raises(ConfigurationError, match="marks of patterns"):
        parse_subscriber_steps(get)
