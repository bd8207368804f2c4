"""Our own service as a submission for `reliable-pubsub grade`: a proxy, and library clients.

The task sheet gives a service one port, and a proxy has one for publishers and one for
subscribers. So the first byte of each connection says which of them it is for.

    python graded_library.py broker --port 5555 --data DIR
    python graded_library.py client --broker ENDPOINT --id ID --state DIR
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

from graded_service import Answer, Request, main, replace_file

from reliable_pubsub import NotSubscribedError, Publisher, RetryPolicy, Subscriber
from reliable_pubsub.lab.rig.child_process import endpoints_in, proxy_command

DOORS: Final = {b"p": "publishers", b"s": "subscribers"}
CHUNK_BYTES: Final = 65_536

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


async def copy(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await source.read(CHUNK_BYTES):
            sink.write(data)
            await sink.drain()
    sink.close()


async def join(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, port: int, door: bytes = b""
) -> None:
    """Connect a connection to a port of this machine, and begin with the byte of a door."""
    try:
        other_reader, other_writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        writer.close()
        return
    other_writer.write(door)
    await asyncio.gather(copy(reader, other_writer), copy(other_reader, writer))


class ProxyBroker:
    """A proxy, and the port that leads to both of its doors."""

    def __init__(self, data: Path) -> None:
        command = proxy_command(data)
        self._proxy = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self._proxy.stdout is not None
        self._endpoints = endpoints_in(next(self._proxy.stdout))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        door = DOORS.get(await reader.read(1))
        if door is None:
            writer.close()
            return
        await join(reader, writer, int(self._endpoints[door].rsplit(":", 1)[1]))

    def serve(self, port: int) -> None:
        async def run() -> None:
            server = await asyncio.start_server(self._serve, "127.0.0.1", port)
            await server.serve_forever()

        asyncio.run(run())


class Doors:
    """Two ports of this process that lead to the doors of the broker."""

    def __init__(self, broker_port: int) -> None:
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, daemon=True).start()
        self.endpoints: dict[str, str] = {}
        for byte, name in DOORS.items():
            serve = partial(join, port=broker_port, door=byte)
            work = asyncio.start_server(serve, "127.0.0.1", 0)
            server = asyncio.run_coroutine_threadsafe(work, self._loop).result()
            port = server.sockets[0].getsockname()[1]
            self.endpoints[name] = f"tcp://127.0.0.1:{port}"


class LibraryClient:
    """A publisher and a subscriber, with an id of the task sheet for each put."""

    def __init__(self, broker: str, id: str, state: Path) -> None:
        endpoints = Doors(int(broker.rsplit(":", 1)[1])).endpoints
        retry = RetryPolicy(timeout_s=0.5, retries_max="forever", pause_s_max=1)
        self._open: dict[str, Callable[[], Any]] = {
            "publisher": lambda: Publisher(
                id, endpoint=endpoints["publishers"], state_dir=state, retry=retry
            ),
            "subscriber": lambda: Subscriber(
                id, endpoint=endpoints["subscribers"], state_dir=state, retry=retry
            ),
        }
        self._opened: dict[str, Any] = {}
        self._topics: set[str] = set()  # subscribed by this run: a subscribe would undo its get
        self._ids = state / "ids.json"
        # The sequence of each put, written before it: a larger one is next if it is stored.
        self._sequences: dict[str, int] = (
            json.loads(self._ids.read_text()) if self._ids.exists() else {}
        )

    def _client(self, role: str) -> Any:
        if role not in self._opened:
            self._opened[role] = self._open[role]()
        return self._opened[role]

    def answer(self, line: Request) -> Answer:
        try:
            return self._put(line) if line["op"] == "put" else self._subscriber(**line)
        except NotSubscribedError:
            return {"ok": True} if line["op"] == "ack" else {"error": "not subscribed"}

    def _put(self, line: Request) -> Answer:
        topic, publisher = line["topic"], self._client("publisher")
        key = f"{topic} {line['id']}"
        sequence = publisher.ready_for(topic)
        if sequence <= self._sequences.setdefault(key, sequence):
            replace_file(self._ids, json.dumps(self._sequences))
            publisher.put(topic, {"id": line["id"], "message": line["message"]}, codec="json")
        return {"ok": True}

    def _subscriber(self, op: str, topic: str) -> Answer:
        subscriber = self._client("subscriber")
        if op == "get":
            for message in subscriber.get(topic):
                found: Answer = json.loads(message.payload)
                return found
            return {"message": None}
        if op == "subscribe" and topic in self._topics:
            return {"ok": True}
        {
            "subscribe": subscriber.subscribe,
            "ack": subscriber.acknowledge,
            "unsubscribe": subscriber.unsubscribe,
        }[op](topic)
        if op != "ack":
            (self._topics.add if op == "subscribe" else self._topics.discard)(topic)
        return {"ok": True}

    def serve(self) -> None:
        for line in sys.stdin:
            sys.stdout.write(json.dumps(self.answer(json.loads(line))) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1:], broker=ProxyBroker, client=LibraryClient)
