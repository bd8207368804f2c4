"""A client of docs/internals/protocol.md, levels 1 to 4, with ZeroMQ, msgpack and CRC-32 alone.

It keeps the contract of `reliable-pubsub conformance`, and passes it:

    reliable-pubsub conformance --role publisher -- \\
        python examples/conforming_client.py publisher {endpoint} {id} {topic} {state_dir} {output}

As a publisher it puts the lines of its standard input; as a subscriber it appends what it gets.
"""

from __future__ import annotations

import json
import os
import secrets
import sys
import time
import zlib
from pathlib import Path
from typing import Any, NoReturn

import zmq
from msgspec.msgpack import decode, encode  # any msgpack library will do

TIMEOUT_S = float(os.environ.get("TIMEOUT_S", "1"))  # for each answer
ATTEMPTS = 60
PAUSE_S = 0.05
UNREACHABLE, REFUSED = 3, 4  # exit codes


class Client:
    """Levels 1 and 2: it asks again, and knows what to do with each answer."""

    def __init__(self, role: str, endpoint: str, client: str, state_dir: str) -> None:
        self.role, self.endpoint, self.client = role, endpoint, client
        self.path = Path(state_dir) / "state.json"
        self.state: dict[str, Any] = json.loads(self.path.read_text()) if self.path.exists() else {}
        self.epoch, self.request = self.state.get("epoch", 0), 0
        self.nonce = secrets.token_bytes(16)  # one for each process
        self.socket: zmq.SyncSocket | None = None

    def keep(self, **values: Any) -> None:
        """Write the state as one record: a kill leaves the old one or the new one."""
        self.state |= values
        new = self.path.with_suffix(".new")
        with new.open("w") as file:
            json.dump(self.state, file)
            file.flush()
            os.fsync(file.fileno())
        new.replace(self.path)

    def stop(self, why: str) -> NoReturn:
        """Keep the state, tell a person."""
        print(f"{self.client} stops: {why}", file=sys.stderr)
        sys.exit(REFUSED)

    def hello(self, *topics: str) -> dict[str, Any]:
        """Get an epoch that no earlier process had."""
        self.epoch += 1
        while True:
            answer = self.ask("HELLO", role=self.role, nonce=self.nonce, topics=topics)
            if answer["answer"] == "HELLO_ACK":
                self.keep(epoch=self.epoch)
                return answer
            self.epoch = answer["current_epoch"] + 1

    def ask(self, verb: str, frame: bytes | None = None, **fields: Any) -> dict[str, Any]:
        """Send a request until it is answered: the same bytes, each time over a new socket."""
        self.request += 1
        head = {"client": self.client, "epoch": self.epoch, "request": self.request}
        frames = [b"RPS1", encode({"verb": verb, **head, **fields})]
        for _ in range(ATTEMPTS):
            answer = self.attempt(frames if frame is None else [*frames, frame])
            if answer is None or any(answer[name] != value for name, value in head.items()):
                if self.socket is not None:
                    self.socket.close(linger=0)
                    self.socket = None
            elif answer["answer"] not in ("BUSY", "STORAGE_FULL", "FULL"):
                self.refuse(verb, answer)
                return answer
            time.sleep(PAUSE_S)
        print(f"{self.endpoint} does not answer: in doubt, start me again", file=sys.stderr)
        sys.exit(UNREACHABLE)

    def attempt(self, frames: list[bytes]) -> dict[str, Any] | None:
        """One attempt; None: no answer came in time."""
        if self.socket is None:
            self.socket = zmq.Context.instance().socket(zmq.REQ)
            self.socket.connect(self.endpoint)
        self.socket.send_multipart(frames)
        if not self.socket.poll(int(TIMEOUT_S * 1000)):
            return None
        _, header, *body = self.socket.recv_multipart()
        return {**decode(header), "body": body}

    def refuse(self, verb: str, answer: dict[str, Any]) -> None:
        """Stop where waiting does not help, and where another process has taken over."""
        what = answer["answer"]
        if what in ("DENIED", "LIMIT", "MALFORMED", "CONFLICT", "LOST"):
            self.stop(f"{verb} was answered {what}: {answer}")
        if what == "FENCED" and verb != "HELLO" and answer["current_epoch"] > self.epoch:
            self.stop(f"FENCED: another process has epoch {answer['current_epoch']}")


class Publisher(Client):
    """Level 3: line n of the input is message n, so the input is the outbox."""

    def run(self, topic: str, output: str) -> None:
        self.topic = topic
        number = self.compare() + 1
        with Path(output).open("ab", buffering=0) as out:
            for line, text in enumerate(sys.stdin.buffer, start=1):
                if line >= number:
                    payload = text.rstrip(b"\n")
                    offset = self.put(line, payload)
                    out.write(b"%d\t%s\n" % (offset, payload))
                    self.acknowledged(line, offset)

    def compare(self) -> int:
        """Begin a session; the number of the last message that was acknowledged to us."""
        (position,) = self.hello(self.topic)["positions"]
        mine, log = self.state.get("number", 0), self.state.get("log")
        if log is not None and position["log"] != log:
            self.stop(f"the log is another one: {position['log']!r}, and not {log!r}")
        if position["last_sequence"] < mine:
            self.stop(f"the proxy has {position['last_sequence']} messages of {mine}")
        if (
            position["last_sequence"] == mine
            and mine
            and position["offset"] != self.state["offset"]
        ):
            self.stop("what was acknowledged stands at another place")
        self.log = position["log"]
        return int(mine)

    def put(self, number: int, payload: bytes) -> int:
        """Put one message until it is stored; its offset."""
        batch = encode([[payload], None, None, None])
        head = {"topic": self.topic, "first_sequence": number, "count": 1}
        while True:
            answer = self.ask("PUT", batch, **head, crc=zlib.crc32(batch))
            if answer["answer"] in ("ACK", "DUPLICATE"):
                return int(answer["offset"])
            self.compare()  # GAP, or FENCED with a lower epoch

    def acknowledged(self, number: int, offset: int) -> None:
        """Remember it, with the log that it is in."""
        if not self.log:  # the first put has made the topic
            self.log = self.ask_for_log()
        self.keep(number=number, offset=offset, log=self.log)

    def ask_for_log(self) -> str:
        """Repeat HELLO in our own epoch, with our nonce."""
        answer = self.ask("HELLO", role=self.role, nonce=self.nonce, topics=[self.topic])
        return str(answer["positions"][0]["log"])


class Subscriber(Client):
    """Level 4: the place is written together with the length of the output, before it is said."""

    def run(self, topic: str, output: str) -> None:
        self.topic, self.control = topic, 0
        self.hello()
        with Path(output).open("ab", buffering=0) as out:
            out.truncate(self.state.get("length", 0))  # what was written and not recorded
            self.subscribe()
            while True:
                self.get(out)

    def subscribe(self) -> None:
        """Subscribe, or resume at our place."""
        self.control += 1
        place = {name: self.state.get(name) for name in ("log", "cursor", "witness_ns")}
        answer = self.ask("SUB", topic=self.topic, control=self.control, **place)
        if answer["answer"] == "FENCED":  # with a lower epoch: the proxy has forgotten it
            self.control = 0
            self.hello()
            self.subscribe()
            return
        if answer["answer"] != "SUB_ACK":
            self.stop(f"SUB was answered {answer['answer']}")
        if place["cursor"] is not None and answer["cursor"] > place["cursor"]:
            self.stop(f"the proxy knows of {answer['cursor']}: our state is an older copy")
        self.where = {name: answer[name] for name in ("generation", "boot")}
        self.keep(**{name: answer[name] for name in place})

    def get(self, out: Any) -> None:
        """Say what is processed, take what follows."""
        cursor = self.state["cursor"]
        fields = {"cursor": cursor, "messages_max": 10, "wait_ms": int(TIMEOUT_S * 500)}
        answer = self.ask("GET", topic=self.topic, **fields, **self.where)
        if answer["answer"] == "MESSAGE":
            self.take(out, answer)
        elif answer["answer"] == "NO_MESSAGES_YET":
            time.sleep(0.001)
        else:  # STALE, NOT_SUB, LOG_CHANGED, FENCED with a lower epoch
            self.subscribe()

    def take(self, out: Any, answer: dict[str, Any]) -> None:
        """Write the direct followers, then the place; the next GET says it."""
        body, place = answer["body"][0], 0
        for base, count, _, _, time_ns, crc, size, *_ in answer["batches"]:
            batch, place, cursor = body[place : place + size], place + size, self.state["cursor"]
            if not base <= cursor < base + count:
                continue
            if zlib.crc32(batch) != crc:
                self.stop(f"the batch at offset {base} is damaged")
            for offset, payload in enumerate(decode(batch)[0], start=base):
                if offset >= cursor:
                    self.write(out, offset, payload)
            self.keep(cursor=base + count, witness_ns=time_ns, length=out.tell())

    def write(self, out: Any, offset: int, payload: bytes) -> None:
        out.write(b"%d\t%s\n" % (offset, payload))


ROLES: dict[str, type[Client]] = {"publisher": Publisher, "subscriber": Subscriber}

if __name__ == "__main__":
    role, endpoint, client, topic, state_dir, output = sys.argv[1:]
    ROLES[role](role, endpoint, client, state_dir).run(topic, output)  # type: ignore[attr-defined]
