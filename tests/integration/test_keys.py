"""Encrypted endpoints: real proxies, relays and clients, known and unknown keys."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import zmq
from zmq.auth import load_certificate

from reliable_pubsub import DeniedError, ProxyUnreachableError
from reliable_pubsub.common.key_files import new_pair, read_pair
from reliable_pubsub.common.transport import ReqTransport
from reliable_pubsub.lab.rig.keyed_service import EVERYTHING, ONCE, KeyedService

from .harness import PATIENCE_S, eventually, zmq_context


@pytest.fixture
def service(tmp_path: Path) -> Iterator[KeyedService]:
    with KeyedService(tmp_path) as service:
        yield service


@pytest.mark.filterwarnings("ignore::reliable_pubsub.QoSWarning")
def test_a_known_key_puts_gets_and_is_pushed_to_at_every_level(service: KeyedService) -> None:
    service.start()
    with service.open_subscriber("s") as subscriber, service.open_publisher("p") as publisher:
        subscriber.subscribe("t", push=True)
        for qos in (2, 1):
            publisher.put("t", b"%d" % qos, qos=qos)
        stream = subscriber.messages("t")
        got = [next(stream).payload for _ in range(2)]

        eventually(lambda: publisher.put("t", b"0", qos=0).fate == "sent", "ingress")

        assert got == [b"2", b"1"]
        assert next(stream).payload == b"0"
        assert service.status().push is not None


@pytest.mark.parametrize("how", ["unknown key", "no key", "key of another server"])
def test_a_stranger_is_not_heard(service: KeyedService, how: str) -> None:
    service.start()
    plain = str(service.publisher_endpoint)
    endpoint = {
        "unknown key": service.reach(plain, "stranger"),
        "no key": plain,
        "key of another server": service.reach(plain, "sensor-1", server="stranger"),
    }[how]

    def what_is_said() -> str:
        with (
            pytest.raises(ProxyUnreachableError) as refused,
            service.open_publisher("p", endpoint=endpoint, retry=ONCE) as publisher,
        ):
            publisher.put("t", b"x")
        return str(refused.value)

    if how == "no key":
        assert "does not know ours" not in what_is_said()
    else:
        eventually(lambda: "does not know ours" in what_is_said(), "reason")
    assert len(service.status().topics) == 0


def test_keys_without_rights_may_do_nothing_and_the_proxy_warns_of_it(
    service: KeyedService,
) -> None:
    (service.known / "rights.yaml").unlink()
    service.start()

    with (
        pytest.raises(DeniedError, match="rights"),
        service.open_publisher("sensor-1") as publisher,
    ):
        publisher.put("t", b"x")
    assert "these keys may do nothing" in service.proxy.complaints


def test_keys_come_and_go_without_a_restart(service: KeyedService) -> None:
    service.start()
    assert not service.is_heard("stranger")

    shutil.copy(service.keys / "stranger.key", service.known)
    eventually(lambda: service.is_heard("stranger"), "a key that was added")

    (service.known / "stranger.key").unlink()
    eventually(lambda: not service.is_heard("stranger"), "a key that was revoked")
    eventually(lambda: service.is_heard("sensor-1"), "the key that stayed")


def test_the_only_key_with_rights_is_revoked_as_any_other(service: KeyedService) -> None:
    """The file of rights is there; that it says nothing of the keys that stay is no mistake."""
    service.say_rights(sensor_1=EVERYTHING)
    service.add_key("other")
    service.start()
    assert service.is_heard("sensor-1")

    (service.known / "sensor-1.key").unlink()

    eventually(lambda: not service.is_heard("sensor-1"), "a key that was revoked")


def test_a_client_that_waits_is_heard_as_soon_as_its_key_is_known(service: KeyedService) -> None:
    """A refusal is for the time being: libzmq keeps trying, and so does the client."""
    service.start()
    endpoint = service.reach(service.publisher_endpoint, "stranger")
    with service.open_publisher("p", endpoint=endpoint) as publisher:
        assert not service.is_heard("stranger")
        shutil.copy(service.keys / "stranger.key", service.known)

        assert publisher.put("t", b"x").offset == 0


def test_a_list_of_clients_that_is_wrong_changes_nothing(service: KeyedService) -> None:
    service.start()
    (service.known / "broken.key").write_text("nonsense")
    shutil.copy(service.keys / "stranger.key", service.known)

    eventually(lambda: service.is_heard("sensor-1"), "the known key")
    assert not service.is_heard("stranger")


def test_a_relay_has_a_key_above_and_one_below(service: KeyedService) -> None:
    """It is a client of the proxy, and a server for those below."""
    service.start()
    service.add_key("relay-1")
    endpoint = service.start_relay("relay-1", service.subscriber_endpoint)
    below = service.reach(endpoint, "sensor-1", server="relay-1")

    with (
        service.open_subscriber("s", endpoint=below) as subscriber,
        service.open_publisher("p") as publisher,
    ):
        subscriber.subscribe("t", push=True)
        publisher.put_many("t", [b"1", b"2"])
        stream = subscriber.messages("t")

        assert [next(stream).payload for _ in range(2)] == [b"1", b"2"]


def test_the_commands_take_the_same_keys(service: KeyedService) -> None:
    service.start()
    keys = ("--secret-key", service.secret("sensor-1"), "--server-key", service.keys / "proxy.key")
    plain = str(service.subscriber_endpoint)
    subscriber = service.subscriber("s", "steps:\n- {action: subscribe, topic: t}\n", *keys)
    subscriber.done()
    service.publisher("p", "steps:\n- {topic: t, message: m}\n", *keys).done()

    status = service.run("", "status", "--endpoint", plain, *keys)
    status.done()

    assert "1 topics" in status.stdout


def test_other_programs_of_zeromq_read_the_files(tmp_path: Path) -> None:
    public_file, secret_file = new_pair(tmp_path, "proxy")
    pair = read_pair(secret_file)

    assert load_certificate(secret_file) == (pair.public.encode(), pair.secret.encode())
    assert load_certificate(public_file) == (pair.public.encode(), None)


def test_a_revoked_key_is_not_heard_on_the_connections_that_it_has(service: KeyedService) -> None:
    service.start()
    with service.open_publisher("p", retry=ONCE) as publisher:

        def is_heard() -> bool:
            try:
                publisher.put("t", b"y")
            except ProxyUnreachableError:
                return False
            return True

        eventually(is_heard, "an answer on the connection")
        (service.known / "sensor-1.key").unlink()

        eventually(lambda: not is_heard(), "the end of a connection")


def test_a_send_to_a_server_that_refuses_for_good_does_not_wait(service: KeyedService) -> None:
    """Status 400 of ZAP, as other servers give: libzmq then gives the connection up."""
    pair = read_pair(service.secret("proxy"))
    with zmq_context() as context:
        server, zap = context.socket(zmq.ROUTER), context.socket(zmq.REP)
        zap.bind("inproc://zeromq.zap.01")
        server.setsockopt(zmq.CURVE_SERVER, 1)
        server.setsockopt(zmq.CURVE_SECRETKEY, pair.secret.encode())
        port = server.bind_to_random_port("tcp://127.0.0.1")
        transport = ReqTransport(service.reach(f"tcp://127.0.0.1:{port}", "stranger"))
        version, request, *_ = zap.recv_multipart()
        zap.send_multipart([version, request, b"400", b"no", b"", b""])
        ends = "the end of the connection at the client"
        eventually(lambda: not transport._socket.poll(0, zmq.POLLOUT), ends)
        sending = threading.Thread(target=transport.send, args=([b"RPS1", b""],), daemon=True)
        sending.start()
        sending.join(PATIENCE_S)

        assert not sending.is_alive()
        transport.close()
