"""What docs/protocol.md promises to clients that know nothing else, with a real proxy."""

from __future__ import annotations

import sys

import msgspec
import zmq

from tests.wire.vectors import MALFORMED

from .harness import PATIENCE_S, REPOSITORY, Service

EXAMPLE = REPOSITORY / "examples" / "smallest_client.py"


def test_the_smallest_client_runs_as_it_stands(service: Service) -> None:
    """It goes on where it was, because its second process gets the next epoch and numbering."""
    service.start_proxy()
    endpoints = [service.publisher_endpoint, service.subscriber_endpoint]

    for first in (0, 2):
        run = service.run_command("smallest", [sys.executable, str(EXAMPLE), *endpoints])
        run.done()
        assert run.stdout.splitlines() == [
            "ACK",
            f"{first} sensor-1_{first + 1} b'hello_1'",
            f"{first + 1} sensor-1_{first + 2} b'hello_2'",
            "NO_MESSAGES_YET",
        ]


def test_every_malformed_vector_is_answered_malformed(service: Service) -> None:
    """Also those that a DEALER can send and a REQ could not; each has exactly one answer."""
    service.start_proxy()
    context: zmq.Context[zmq.SyncSocket] = zmq.Context.instance()
    endpoints = {
        "publisher": service.publisher_endpoint,
        "subscriber": service.subscriber_endpoint,
    }
    for name, one in MALFORMED.items():
        with context.socket(zmq.DEALER) as socket:
            socket.linger = 0
            socket.connect(endpoints[one.to])

            socket.send_multipart([b"", *one.frames])

            assert socket.poll(int(PATIENCE_S * 1000)), name
            delimiter, protocol, header = socket.recv_multipart()
            answer = msgspec.msgpack.decode(header)
            assert (delimiter, protocol, answer["answer"]) == (b"", b"RPS1", "MALFORMED"), name
            repeated = (answer["client"], answer["epoch"], answer["request"])
            assert (repeated != ("", 0, 0)) == one.echo, name
