"""A right answer to the task sheet (docs/teach/grading.md), which `grade` gives full marks.

The broker is a REP socket. A background thread writes snapshots of the whole state, and an answer
leaves when a snapshot has it. The client is a Lazy Pirate: without an answer it opens a new socket
and sends the same request again.

    python graded_service.py broker --port 5555 --data DIR
    python graded_service.py client --broker ENDPOINT --id ID --state DIR
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import zmq

TIMEOUT_MS: Final = 500
TIMEOUT_MS_MAX: Final = 4_000

Request = dict[str, Any]
Answer = dict[str, Any]
Item = list[Any]  # number, id, message


def replace_file(path: Path, text: str) -> None:
    """Write a file so that a kill leaves the old one or the new one."""
    new = path.with_suffix(".new")
    with new.open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)


class Snapshots:
    """A thread that writes the newest state; who needs it on disk waits."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._changed = threading.Condition()
        self._text, self._wanted, self._written = "", 0, 0
        threading.Thread(target=self._write, daemon=True).start()

    def save(self, state: dict[str, Any]) -> int:
        """Take the state; return the number of its snapshot."""
        with self._changed:
            self._text = json.dumps(state)
            self._wanted += 1
            self._changed.notify_all()
            return self._wanted

    def wait(self, number: int) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._written >= number)

    def _write(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._wanted > self._written)
                text, number = self._text, self._wanted
            replace_file(self.path, text)
            with self._changed:
                self._written = number
                self._changed.notify_all()


class Broker:
    """The state, and what each request does to it."""

    def __init__(self, data: Path) -> None:
        self.path = data / "state.json"
        self.state: dict[str, Any] = {"number": 0, "ids": {}, "queues": {}, "newest": {}}
        if self.path.exists():
            self.state = json.loads(self.path.read_text())
        self.snapshots = Snapshots(self.path)

    def answer(self, request: Request) -> Answer:
        """Handle a request; return when its effect is on disk."""
        newest = self.state["newest"]
        if request["n"] < newest.get(request["client"], [0, 0]):
            return {"error": "late"}  # its client has asked for something else since
        newest[request["client"]] = request["n"]
        found = self.handle(request)
        self.keep(request)
        return found

    def handle(self, request: Request) -> Answer:
        found: Answer = getattr(self, request["op"])(request)
        return found

    def keep(self, request: Request) -> None:
        self.snapshots.wait(self.snapshots.save(self.state))

    def queues(self, topic: str) -> dict[str, list[Item]]:
        """Return what each subscriber of a topic has not acknowledged."""
        found: dict[str, list[Item]] = self.state["queues"].setdefault(topic, {})
        return found

    def subscribe(self, request: Request) -> Answer:
        self.queues(request["topic"]).setdefault(request["client"], [])
        return {"ok": True}

    def unsubscribe(self, request: Request) -> Answer:
        self.queues(request["topic"]).pop(request["client"], None)
        return {"ok": True}

    def is_new(self, request: Request) -> bool:
        """Return whether a put is not the repetition of another; remember it."""
        ids = self.state["ids"].setdefault(f"{request['client']} {request['topic']}", [])
        if request["id"] in ids:
            return False
        ids.append(request["id"])
        return True

    def put(self, request: Request) -> Answer:
        if self.is_new(request):
            self.store(request)
        return {"ok": True}

    def store(self, request: Request) -> None:
        self.state["number"] += 1
        item = [self.state["number"], request["id"], request["message"]]
        for queue in self.queues(request["topic"]).values():
            queue.append(item)

    def settle(self, request: Request) -> None:
        """Remove what the client acknowledges, if it is still there."""
        queue = self.queues(request["topic"])[request["client"]]
        if queue and queue[0][0] == request["acknowledges"]:
            del queue[0]

    def get(self, request: Request) -> Answer:
        if request["client"] not in self.queues(request["topic"]):
            return {"error": "not subscribed"}
        self.settle(request)
        queue = self.queues(request["topic"])[request["client"]]
        if not queue:
            return {"message": None}
        number, id, message = queue[0]
        return {"number": number, "id": id, "message": message}

    def ack(self, request: Request) -> Answer:
        if request["client"] in self.queues(request["topic"]):
            self.settle(request)
        return {"ok": True}

    def serve(self, port: int) -> None:
        rep: Any = zmq.Context.instance().socket(zmq.REP)
        rep.bind(f"tcp://127.0.0.1:{port}")
        while True:
            rep.send_json(self.answer(rep.recv_json()))


class LazyPirate:
    """The client: it numbers its requests, and repeats each until it is answered."""

    def __init__(self, broker: str, id: str, state: Path) -> None:
        self.broker, self.id, self.state = broker, id, state
        runs = state / "runs"
        self.run = int(runs.read_text()) + 1 if runs.exists() else 1
        replace_file(runs, str(self.run))
        self.count = 0
        self.unacknowledged: dict[str, int] = {}  # by topic: what this run returned last
        self.socket: Any = None

    def answer(self, line: Request) -> Answer:
        """Do what a line asks for."""
        self.count += 1
        topic = line["topic"]
        request = line | {"client": self.id, "n": [self.run, self.count]}
        found = self.asked(request | {"acknowledges": self.unacknowledged.get(topic)})
        if line["op"] in ("get", "ack", "unsubscribe"):
            self.unacknowledged.pop(topic, None)
        if "number" in found:
            self.unacknowledged[topic] = found.pop("number")
        return found

    def asked(self, request: Request) -> Answer:
        """Send a request until it is answered."""
        timeout_ms = TIMEOUT_MS
        while True:
            if self.socket is None:
                self.socket = zmq.Context.instance().socket(zmq.REQ)
                self.socket.connect(self.broker)
            self.socket.send_json(request)
            if self.socket.poll(timeout_ms):
                found: Answer = self.socket.recv_json()
                return found
            self.socket.close(linger=0)
            self.socket = None
            timeout_ms = min(2 * timeout_ms, TIMEOUT_MS_MAX)

    def serve(self) -> None:
        for line in sys.stdin:
            sys.stdout.write(json.dumps(self.answer(json.loads(line))) + "\n")
            sys.stdout.flush()


def main(
    arguments: list[str],
    broker: Callable[[Path], Any] = Broker,
    client: Callable[[str, str, Path], Any] = LazyPirate,
) -> None:
    """Start the broker or a client."""
    parser = argparse.ArgumentParser()
    parser.add_argument("role", choices=("broker", "client"))
    for option in ("--port", "--data", "--broker", "--id", "--state"):
        parser.add_argument(option)
    given = parser.parse_args(arguments)
    if given.role == "broker":
        broker(Path(given.data)).serve(int(given.port))
    else:
        client(given.broker, given.id, Path(given.state)).serve()


if __name__ == "__main__":
    main(sys.argv[1:])
