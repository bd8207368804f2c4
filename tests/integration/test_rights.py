"""Rights over real CURVE connections: what a known key tries beyond them."""

from __future__ import annotations

import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
import zmq
from msgspec import UNSET
from msgspec.structs import replace

from reliable_pubsub import DeniedError, Subscriber
from reliable_pubsub.common.core.actions import Pause
from reliable_pubsub.common.core.answers import Denied, HelloAck, MessageBatches, SubAck
from reliable_pubsub.common.core.batch import crc32
from reliable_pubsub.common.core.patterns.matching import EVERYTHING
from reliable_pubsub.common.core.requests import Put
from reliable_pubsub.common.core.status import Status, StatusReport
from reliable_pubsub.common.core.tree_messages import InterestAck
from reliable_pubsub.common.status_client import StatusClient
from reliable_pubsub.common.transport import use_keys_of
from reliable_pubsub.lab.rig.keyed_service import KeyedService
from reliable_pubsub.relay.core.unstored import Offer, encode_offer, topic_frame
from tests.core.test_rights import an_interest, exact
from tests.fakes import a_get, a_hello, a_history, a_put, a_sub, an_action, put_body

from .harness import BELIEVING, IMPATIENT, eventually, zmq_context
from .relay_tree import SILENCE_MS

ALL_TOPICS: dict[str, object] = {
    right: ["*"] for right in ("put", "get", "history", "dead_letters", "status")
}
OPERATOR = {"ids": ["*"], **ALL_TOPICS}
SENSOR = {"ids": ["sensor-1", "sensor-1.*"], "put": ["readings.*"], "get": ["commands"]}


class GovernedService(KeyedService):
    """The keys `sensor-1` and `operator` have rights; the tests look on as `operator`."""

    def start(self, **rights: Mapping[str, object]) -> None:
        self.add_key("operator")
        said: dict[str, Mapping[str, object]] = {"sensor_1": SENSOR, "operator": OPERATOR}
        self.say_rights(**said | rights)
        self.start_proxy("--secret-key", self.secret("proxy"), "--clients", self.known)
        plain = (self.publisher_endpoint, self.subscriber_endpoint)
        self.of_sensor = tuple(self.reach(one, "sensor-1") for one in plain)
        self.publisher_endpoint, self.subscriber_endpoint = (
            self.reach(one, "operator") for one in plain
        )

    @contextmanager
    def data_socket(self, kind: int, endpoint: str, name: str) -> Iterator[zmq.Socket[bytes]]:
        """A socket of a stranger's own program, with a known key."""
        with zmq_context() as context, context.socket(kind) as socket:
            socket.setsockopt(zmq.LINGER, 0)
            use_keys_of(self.reach(endpoint, name), socket)
            socket.connect(endpoint)
            yield socket


@pytest.fixture
def service(tmp_path: Path) -> Iterator[GovernedService]:
    with GovernedService(tmp_path) as service:
        yield service


def test_a_key_puts_and_gets_within_its_rights_and_no_further(service: GovernedService) -> None:
    service.start()
    publish, subscribe = service.of_sensor
    with (
        service.open_publisher("sensor-1", endpoint=publish) as sensor,
        service.open_subscriber("sensor-1.in", endpoint=subscribe) as commands,
        service.open_publisher("boss") as boss,
    ):
        commands.subscribe("commands", push=True)
        boss.put("commands", b"on")
        assert next(commands.messages("commands")).payload == b"on"
        sensor.put("readings.1", b"21.5")
        with pytest.raises(DeniedError) as refused:
            sensor.put("commands", b"mine")
        with pytest.raises(DeniedError) as unread:
            commands.subscribe("readings.1")
        sensor.put("readings.1", b"21.6")  # the refused put is not in its way

    error = refused.value
    assert (error.code, error.exit_code) == ("DENIED", 4)
    assert (error.client, error.right, error.topic) == ("sensor-1", "put", "commands")
    assert (unread.value.right, unread.value.topic) == ("get", "readings.1")
    assert service.payloads("commands") == [b"on"]
    assert service.payloads("readings.1") == [b"21.5", b"21.6"]


def test_a_key_learns_who_wants_what_it_may_put(service: GovernedService) -> None:
    service.start()
    with (
        service.open_publisher("sensor-1", endpoint=service.of_sensor[0]) as sensor,
        service.open_subscriber("reader") as reader,
        service.open_publisher("commander", endpoint=service.publisher_endpoint) as operator,
    ):
        for topic in ("commands", "readings.1"):
            reader.subscribe(topic)

        assert [one.topics for one in sensor.interests(timeout_s=0)] == ["readings.1"]
        assert len(list(operator.interests(timeout_s=0))) == 2
        with pytest.raises(DeniedError) as refused:
            next(sensor.interests("commands"))
    assert (refused.value.right, refused.value.topic) == ("put", "commands")


def test_what_names_several_topics_is_refused_as_a_whole(service: GovernedService) -> None:
    service.start(sensor_1=SENSOR | {"put": ["readings.*"], "history": ["*"]})
    with service.open_publisher("sensor-1", endpoint=service.of_sensor[0]) as sensor:
        with (  # noqa: PT012  (it is raised at the end)
            pytest.raises(DeniedError) as refused,
            sensor.transaction() as transaction,
        ):
            transaction.put("readings.1", b"1")
            transaction.put("commands", b"2")
        with pytest.raises(DeniedError):
            sensor.put_many("commands", [b"3", b"4"])
        assert sensor.interest("readings.1") is not None
        with pytest.raises(DeniedError):
            sensor.interest("commands")
        sensor.put("readings.1", b"5")

    assert refused.value.topic == "commands"
    assert service.payloads("readings.1") == [b"5"]
    assert [one.topic for one in service.status().topics] == ["readings.1"]


def test_a_stolen_id_is_refused_and_written_down(service: GovernedService) -> None:
    service.start()
    with service.open_publisher("sensor-2") as honest:
        honest.put("readings.2", b"1")
        with (
            pytest.raises(DeniedError) as refused,
            service.open_publisher(
                "sensor-2", endpoint=service.of_sensor[0], retry=BELIEVING
            ) as thief,
        ):
            thief.put("readings.2", b"forged")
        honest.put("readings.2", b"2")  # it was not fenced

    assert refused.value.right == "id"
    assert service.payloads("readings.2") == [b"1", b"2"]
    (line,) = service.audit(1)
    assert (line["event"], line["name"], line["client"]) == ("denied", "sensor-1", "sensor-2")
    assert (line["verb"], line["right"]) == ("HELLO", "id")


def test_rights_come_and_go_without_a_restart(service: GovernedService) -> None:
    service.start()

    def may_put(topic: str) -> bool:
        with service.open_publisher("sensor-1", endpoint=service.of_sensor[0]) as sensor:
            try:
                sensor.put(topic, b"x")
            except DeniedError:
                return False
            return True

    assert not may_put("alarms")
    service.say_rights(sensor_1=SENSOR | {"put": ["alarms"]}, operator=OPERATOR)
    eventually(lambda: may_put("alarms"), "a right that was given")
    assert not may_put("readings.1")

    (service.known / "rights.yaml").write_text("sensor-1: {puts: ['*']}")
    eventually(lambda: "keys and rights are unchanged" in service.proxy.complaints, "complaint")
    (service.known / "rights.yaml").unlink()
    eventually(lambda: "there are no rights any more" in service.proxy.complaints, "complaint")
    assert may_put("alarms")
    assert not may_put("readings.1")


def test_a_publisher_whose_right_is_taken_continues_with_other_topics(
    service: GovernedService,
) -> None:
    service.start()
    with service.open_publisher("sensor-1", endpoint=service.of_sensor[0]) as sensor:
        sensor.put("readings.1", b"1")
        service.say_rights(sensor_1=SENSOR | {"put": ["alarms"]}, operator=OPERATOR)

        def is_denied() -> bool:
            try:
                sensor.put("readings.1", b"more")
            except DeniedError:
                return True
            return False

        eventually(is_denied, "refusal")
        sensor.put("alarms", b"2")
        service.say_rights(sensor_1=SENSOR, operator=OPERATOR)
        eventually(lambda: not is_denied(), "right")

    assert service.payloads("alarms") == [b"2"]


def test_status_and_history_are_of_the_topics_of_the_key(service: GovernedService) -> None:
    service.start(sensor_1=SENSOR | {"status": ["readings.*"], "history": ["readings.1"]})
    with service.open_publisher("boss") as boss:
        for topic in ("readings.1", "readings.2", "secret"):
            boss.put(topic, b"x")
    client = StatusClient(service.of_sensor[1], IMPATIENT)
    report = client.ask()
    client.close()

    with Subscriber("sensor-1", endpoint=service.of_sensor[1], retry=IMPATIENT) as reader:
        assert [one.payload for one in reader.history("readings.1")] == [b"x"]
        with pytest.raises(DeniedError):
            list(reader.history("secret"))
    assert [one.topic for one in report.topics] == ["readings.1", "readings.2"]
    assert report.store_path == ""


def test_an_attacker_with_a_key_gets_nowhere_by_hand(service: GovernedService) -> None:
    """Requests that the library would not send."""
    service.start()
    publish, subscribe = service.of_sensor
    with service.open_publisher("victim") as victim, service.open_subscriber("reader") as reader:
        reader.subscribe("t")
        victim.put("t", b"1")
        body = put_body(1)
        own = {"client": "sensor-1", "epoch": 1}
        tried = [
            (publish, a_hello("publisher", "victim", epoch=9), None),
            (publish, a_put(2, topic="t", client="victim"), body),
            (publish, replace(a_put(1, topic="READINGS.1"), **own), body),
            (publish, replace(a_put(1, topic="readings"), **own), body),
            (publish, replace(a_put(1, topic="readings.1"), key=service.public("operator")), body),
            (subscribe, a_hello("subscriber", "reader", epoch=9), None),
            (subscribe, a_get(1, topic="t", client="reader"), None),
            (subscribe, a_sub(2, topic="t", client="reader"), None),
            (subscribe, replace(a_sub(1, topic="commands.dead"), **own), None),
            (subscribe, replace(a_history(0, topic="t"), client="reader-0123abcd"), None),
            (subscribe, replace(a_history(0, topic="t"), key=service.public("operator")), None),
            (subscribe, an_interest(EVERYTHING, client="sensor-1"), None),
            (subscribe, an_interest(*exact("t"), client="sensor-1"), None),
            (subscribe, Status(client="status-0123abcd", epoch=0, request=1), None),
        ]
        before = service.status()

        for endpoint, request, sent in tried:
            if isinstance(request, Put):
                request = replace(request, crc=crc32(sent or b""))
            assert isinstance(service.ask(endpoint, request, sent), Denied), request

        after = service.status()
        victim.put("t", b"2")
        assert [one.payload for _ in range(2) for one in reader.get("t")] == [b"1", b"2"]
    assert (before.topics_count, before.sessions_count) == (
        after.topics_count,
        after.sessions_count,
    )
    assert len(service.audit(len(tried))) == len(tried)


def test_what_is_put_at_level_0_under_a_stolen_id_or_topic_is_dropped(
    service: GovernedService,
) -> None:
    """There is no answer on that endpoint; it is counted and written down."""
    service.start(sensor_1=SENSOR | {"ids": ["sensor-1", "stolen.*"]})
    with service.open_subscriber("s", retry=IMPATIENT) as subscriber:
        for topic in ("readings.1", "secret"):
            subscriber.subscribe(topic, qos=0)
        for client in ("sensor-1", "victim"):
            reply = service.ask(service.publisher_endpoint, a_hello("publisher", client))
            assert isinstance(reply, HelloAck)
        with service.data_socket(zmq.XPUB, service.ingress_endpoint, "sensor-1") as socket:
            seen: set[bytes] = set()
            while not {b"\1" + topic_frame(one) for one in ("readings.1", "secret")} <= seen:
                seen.add(socket.recv())
            for client, topic in (
                ("victim", "readings.1"),
                ("sensor-1", "secret"),
                ("sensor-1", "readings.1"),
            ):
                offer = Offer(
                    publisher=client, epoch=1, first_sequence=1, count=1, crc=crc32(put_body(1))
                )
                socket.send_multipart(encode_offer(topic, offer, put_body(1)))

            def refused_and_taken() -> bool:
                ingress = service.status().ingress
                return bool(ingress and (ingress.refused, ingress.taken) == (2, 1))

            eventually(refused_and_taken, "count")
    assert {(line["verb"], line["right"]) for line in service.audit(2)} == {
        ("OFFER", "id"),
        ("OFFER", "put"),
    }


def test_a_plain_subscriber_of_zeromq_is_sent_what_its_key_may_get(
    service: GovernedService,
) -> None:
    service.start()
    with (
        service.data_socket(zmq.SUB, service.push_endpoint, "sensor-1") as plain,
        service.open_publisher("boss") as boss,
    ):
        for prefix in (b"", b"secret", b"commands", b"comm", b"commands\0"):
            plain.setsockopt(zmq.SUBSCRIBE, prefix)
        plain.setsockopt(zmq.RCVTIMEO, 100)

        def commands_come() -> bytes:
            boss.put("secret", b"x")
            boss.put("commands2", b"x")
            boss.put("commands", b"on")
            try:
                return plain.recv_multipart()[0]
            except zmq.Again:
                return b""

        assert eventually(commands_come, "push") == b"commands\0"
        for _ in range(5):
            assert commands_come() in (b"", b"commands\0")
    assert {line["verb"] for line in service.audit(4)} == {"SUBSCRIBE"}


def test_what_a_plain_subscriber_may_get_is_sent_to_no_other_key_after_a_strangers_message(
    service: GovernedService,
) -> None:
    """libzmq counts such a message as a subscription, and takes each that follows for one of a
    later connection (tests/integration/test_relay.py)."""
    service.start()
    at = service.push_endpoint
    with (
        service.data_socket(zmq.XSUB, at, "sensor-1") as stranger,
        service.data_socket(zmq.XSUB, at, "operator") as reader,
        service.data_socket(zmq.XSUB, at, "sensor-1") as thief,
        service.open_publisher("boss") as boss,
    ):
        said = ((stranger, b"no subscription"), (reader, b"\1secret"), (thief, b"\1commands\0"))
        for one, _ in said:
            one.setsockopt(zmq.RCVTIMEO, SILENCE_MS)
            one.send(b"\1connected")
            one.send(b"\0connected")
            one.poll(SILENCE_MS)
        service.proxy.pause()
        for one, message in said:
            one.send(message)
            one.poll(SILENCE_MS)  # each arrives before the next
        service.proxy.signal(signal.SIGCONT)

        def comes_to(one: zmq.Socket[bytes], topic: str) -> bool:
            boss.put("secret", b"x")
            boss.put("commands", b"on")
            try:
                assert one.recv_multipart()[0] == topic_frame(topic)
            except zmq.Again:
                return False
            return True

        eventually(lambda: comes_to(thief, "commands"), "push to the other key")
        eventually(lambda: comes_to(reader, "secret"), "push to the reader")


def test_pushes_end_with_the_right_to_get(service: GovernedService) -> None:
    """On the connection that is open; revoking a key ends its data connections too."""
    service.start()
    with (
        service.data_socket(zmq.SUB, service.push_endpoint, "sensor-1") as plain,
        service.open_publisher("boss") as boss,
    ):
        plain.setsockopt(zmq.SUBSCRIBE, b"commands\0")
        plain.setsockopt(zmq.RCVTIMEO, 500)

        def comes() -> bool:
            boss.put("commands", b"on")
            try:
                plain.recv_multipart()
            except zmq.Again:
                return False
            return True

        eventually(comes, "push")
        service.say_rights(sensor_1=SENSOR | {"get": []}, operator=OPERATOR)
        eventually(lambda: not comes(), "end of the pushes")
        service.say_rights(sensor_1=SENSOR, operator=OPERATOR)
        eventually(comes, "push to the connection that came again")
        (service.known / "sensor-1.key").unlink()
        eventually(lambda: not comes(), "end of the pushes")


class TestARelay:
    RELAY = {"ids": ["*"], "relay": True, **ALL_TOPICS}  # noqa: RUF012

    @pytest.fixture
    def below(self, service: GovernedService) -> str:
        """The endpoint of a relay that the proxy trusts."""
        service.add_key("relay-1")
        service.start(relay_1=self.RELAY)
        return service.start_relay("relay-1", service.subscriber_endpoint)

    def test_passes_on_whose_request_it_is(self, service: GovernedService, below: str) -> None:
        at = service.reach(below, "sensor-1", server="relay-1")
        with (
            service.open_subscriber("sensor-1", endpoint=at) as subscriber,
            service.open_publisher("boss") as boss,
        ):
            subscriber.subscribe("commands", push=True)
            boss.put("commands", b"on")
            assert next(subscriber.messages("commands")).payload == b"on"
            with pytest.raises(DeniedError) as refused:
                subscriber.subscribe("secret")

        assert "asked by 'sensor-1', by way of 'relay-1'" in str(refused.value)
        assert service.audit(1)[-1]["via"] == "relay-1"

    def test_serves_no_one_what_another_may_read(
        self, service: GovernedService, below: str
    ) -> None:
        """Its cache, requests that it shares, and keys that are named by those below."""
        honest = service.reach(below, "operator", server="relay-1")
        thief = service.reach(below, "sensor-1", server="relay-1")
        with service.open_publisher("boss") as boss:
            boss.put("t", b"1")
        assert isinstance(service.ask(honest, a_hello("subscriber", "reader")), HelloAck)
        sub = service.ask(honest, a_sub(topic="t", client="reader", cursor=0))
        assert isinstance(sub, SubAck)
        get = a_get(0, topic="t", client="reader", generation=sub.generation, boot=sub.boot)

        for _ in range(3):  # confirmed, cached, and asked again
            assert isinstance(service.ask(honest, get), MessageBatches)
            assert isinstance(service.ask(thief, get), Denied)
            named = replace(get, key=service.public("operator"))
            assert isinstance(service.ask(thief, named), Denied)
            assert isinstance(service.ask(thief, a_history(0, topic="t")), Denied)
        assert isinstance(service.ask(thief, an_interest(EVERYTHING, client="sensor-1")), Denied)
        assert isinstance(
            service.ask(thief, an_interest(*exact("commands"), client="sensor-1")), InterestAck
        )
        status = Status(client="status-0123abcd", epoch=0, request=1)
        assert isinstance(service.ask(thief, status), Denied)
        assert isinstance(service.ask(honest, status), StatusReport)

    def test_without_the_right_to_be_one_is_refused(self, service: GovernedService) -> None:
        service.add_key("relay-1")
        service.start(relay_1=OPERATOR)
        below = service.start_relay("relay-1", service.subscriber_endpoint)
        at = service.reach(below, "operator", server="relay-1")

        reply = service.ask(at, a_hello("subscriber", "reader"))

        assert isinstance(reply, Denied)
        assert reply.right == "relay"

    def test_that_knows_no_keys_does_not_lend_its_own(self, service: GovernedService) -> None:
        service.add_key("relay-1")
        service.start(relay_1=self.RELAY)
        below = service.start_relay("relay-1", service.subscriber_endpoint, knows_keys=False)
        at = service.reach(below, "stranger", server="relay-1")

        for key in (UNSET, service.public("operator")):
            reply = service.ask(at, replace(a_hello("subscriber", "reader"), key=key))
            assert isinstance(reply, Denied)
            assert reply.right == "relay"

    def test_below_another_says_whose_request_it_is(self, service: GovernedService) -> None:
        service.add_key("relay-1")
        service.add_key("relay-2")
        service.start(relay_1=self.RELAY, relay_2=self.RELAY)
        upper = service.start_relay("relay-1", service.subscriber_endpoint)
        lower = service.start_relay("relay-2", upper, server="relay-1")
        at = service.reach(lower, "sensor-1", server="relay-2")

        with service.open_subscriber("sensor-1", endpoint=at) as subscriber:
            assert subscriber.subscribe("commands") is not None
            with pytest.raises(DeniedError, match="asked by 'sensor-1', by way of 'relay-1'"):
                subscriber.subscribe("secret")

    def test_below_another_is_held_to_its_own_entry(self, service: GovernedService) -> None:
        """A thief of its key names the operator, whose rights the relay above may pass on."""
        service.add_key("relay-1")
        service.add_key("relay-2")
        lower = {"ids": ["sensor-1"], "relay": True, "get": ["commands"]}
        admin = {"admin": ["*"]}
        service.start(relay_1=self.RELAY | admin, relay_2=lower, operator=OPERATOR | admin)
        upper = service.start_relay("relay-1", service.subscriber_endpoint)
        stolen = service.reach(upper, "relay-2", server="relay-1")

        for request, right in (
            (a_sub(topic="secret", client="sensor-1"), "get"),
            (a_hello("subscriber", "boss"), "id"),
            (an_action(Pause()), "admin"),
        ):
            reply = service.ask(stolen, replace(request, key=service.public("operator")))
            assert isinstance(reply, Denied)
            assert (reply.right, "the key 'relay-2' may not" in reply.text) == (right, True)
        hello = replace(a_hello("subscriber", "sensor-1"), key=service.public("sensor-1"))
        assert isinstance(service.ask(stolen, hello), HelloAck)
