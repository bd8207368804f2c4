"""The example client, and clients that each do one thing wrong; run as a program.

python -m tests.integration.wrong_clients NAME ENDPOINT ID TOPIC STATE_DIR OUTPUT
"""

from __future__ import annotations

import io
import os
import sys
import time
import zlib
from pathlib import Path
from typing import Any

import zmq
from msgspec.msgpack import decode, encode

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples"))
from conforming_client import Client, Publisher, Subscriber


class RenumbersWhatWasNotAnswered(Publisher):
    """It takes silence for "not stored", and asks for the next number."""

    def put(self, number: int, payload: bytes) -> int:
        batch = encode([[payload], None, None, None])
        while True:
            (position,) = self.hello(self.topic)["positions"]
            self.request += 1
            head = {"client": self.client, "epoch": self.epoch, "request": self.request}
            where = {"topic": self.topic, "first_sequence": position["last_sequence"] + 1}
            fields = {"verb": "PUT", **head, **where, "count": 1, "crc": zlib.crc32(batch)}
            answer = self.attempt([b"RPS1", encode(fields), batch])
            if answer is not None and answer["answer"] == "ACK":
                return int(answer["offset"])
            assert self.socket is not None
            self.socket.close(linger=0)
            self.socket = None


class ForgetsItsState(Publisher):
    """Started again it puts everything again, as new messages."""

    def keep(self, **values: Any) -> None:
        self.state |= values

    def compare(self) -> int:
        (position,) = self.hello(self.topic)["positions"]
        self.log, self.before = position["log"], position["last_sequence"]
        return 0

    def put(self, number: int, payload: bytes) -> int:
        return super().put(self.before + number, payload)


class SaysItBeforeItIsStored(Publisher):
    """It says of a message that it is acknowledged when it has sent it."""

    def put(self, number: int, payload: bytes) -> int:
        with Path(sys.argv[6]).open("ab", buffering=0) as out:
            out.write(payload + b"\n")
        return super().put(number, payload)


class ContinuesInAnyLog(Publisher):
    """It takes the numbers of the proxy, whatever it has forgotten."""

    def compare(self) -> int:
        (position,) = self.hello(self.topic)["positions"]
        self.log = position["log"]
        self.skew = int(self.state.get("number", 0)) - position["last_sequence"]
        return int(self.state.get("number", 0))

    def put(self, number: int, payload: bytes) -> int:
        batch = encode([[payload], None, None, None])
        head = {"topic": self.topic, "count": 1, "crc": zlib.crc32(batch)}
        while True:
            answer = self.ask("PUT", batch, **head, first_sequence=number - self.skew)
            if answer["answer"] in ("ACK", "DUPLICATE"):
                return int(answer["offset"])
            self.compare()


class NumbersAsAProgramDoes(Publisher):
    """Not wrong: what its state does not know of it puts as new, after the last of its numbers."""

    def compare(self) -> int:
        (position,) = self.hello(self.topic)["positions"]
        self.log, self.last = position["log"], position["last_sequence"]
        return int(self.state.get("number", 0))

    def put(self, number: int, payload: bytes) -> int:
        line, sequence = self.state.get("outbox", (0, 0))
        if line != number:
            sequence = self.last + 1
            self.keep(outbox=(number, sequence))
        self.last = max(self.last, sequence)
        return super().put(sequence, payload)


class SaysSomethingElse(Publisher):
    """It writes a number of its own for each message."""

    def run(self, topic: str, output: str) -> None:
        super().run(topic, os.devnull)
        Path(output).write_bytes(b"client-1_1\n")


class TakesItsIdBack(Publisher):
    """Fenced, it asks for the next epoch."""

    def refuse(self, verb: str, answer: dict[str, Any]) -> None:
        if answer["answer"] != "FENCED":
            super().refuse(verb, answer)


class TakesAnyAnswer(Publisher):
    """One DEALER for all attempts, and it does not look whose answer comes."""

    def ask(self, verb: str, frame: bytes | None = None, **fields: Any) -> dict[str, Any]:
        self.request += 1
        head = {"client": self.client, "epoch": self.epoch, "request": self.request}
        frames = [b"", b"RPS1", encode({"verb": verb, **head, **fields})]
        if self.socket is None:
            self.socket = zmq.Context.instance().socket(zmq.DEALER)
            self.socket.connect(self.endpoint)
        while True:
            self.socket.send_multipart(frames if frame is None else [*frames, frame])
            if self.socket.poll(300):
                return {"offset": 0, **decode(self.socket.recv_multipart()[2])}


class LeavesOneOut(Publisher):
    """It never puts the fourth line, and is done."""

    def run(self, topic: str, output: str) -> None:
        lines = sys.stdin.buffer.readlines()
        with io.TextIOWrapper(io.BytesIO(b"".join(lines[:3] + lines[4:]))) as sys.stdin:
            super().run(topic, output)


class ClaimsWhatItNeverPut(Publisher):
    """It says of the fourth line that it is acknowledged, and never puts it."""

    def put(self, number: int, payload: bytes) -> int:
        if number == 4:
            return 3
        return super().put(number - (number > 4), payload)


class RecordsBeforeItPuts(Publisher):
    """It keeps the number of a message before the message is stored."""

    def put(self, number: int, payload: bytes) -> int:
        self.keep(number=number, offset=number - 1, log=self.log or None)
        return super().put(number, payload)

    def compare(self) -> int:
        (position,) = self.hello(self.topic)["positions"]
        self.log = position["log"]
        self.skipped = int(self.state.get("number", 0)) - position["last_sequence"]
        return int(self.state.get("number", 0))

    def ask(self, verb: str, frame: bytes | None = None, **fields: Any) -> dict[str, Any]:
        if verb == "PUT":
            fields["first_sequence"] -= self.skipped
        return super().ask(verb, frame, **fields)


class AltersWhatItPuts(Publisher):
    """It takes the bytes for text of another encoding."""

    def put(self, number: int, payload: bytes) -> int:
        return super().put(number, payload.decode("latin-1").encode())


class WritesAfterItHasAcknowledged(Subscriber):
    """It writes what it got when the next GET, which acknowledges it, was answered."""

    def __init__(self, *given: str) -> None:
        super().__init__(*given)
        self.held: list[tuple[int, bytes]] = []

    def write(self, out: Any, offset: int, payload: bytes) -> None:
        self.held.append((offset, payload))

    def get(self, out: Any) -> None:
        before = list(self.held)
        super().get(out)
        for offset, payload in before:
            super().write(out, offset, payload)
        del self.held[: len(before)]


class NeverCutsItsOutputBack(Subscriber):
    """What it wrote and did not record, it writes again."""

    def run(self, topic: str, output: str) -> None:
        self.topic, self.control = topic, 0
        self.hello()
        with Path(output).open("ab", buffering=0) as out:
            self.subscribe()
            while True:
                self.get(out)


class RecordsItsPlaceFirst(NeverCutsItsOutputBack):
    """It keeps its place before it writes the messages: the classic fault."""

    def take(self, out: Any, answer: dict[str, Any]) -> None:
        self.held: list[tuple[int, bytes]] = []
        super().take(out, answer)
        for offset, payload in self.held:
            super().write(out, offset, payload)

    def write(self, out: Any, offset: int, payload: bytes) -> None:
        self.held.append((offset, payload))


class CopiesItsInput(Subscriber):
    """It asks as it should, reads no answer, and writes what it finds in files near its own."""

    def get(self, out: Any) -> None:
        here = Path(sys.argv[6])
        files = [Path(os.environ["CONFORMANCE_INPUT"]), *here.parent.rglob("*")]
        lines = [
            line
            for file in files
            if file.is_file() and file != here
            for line in file.read_bytes().splitlines()
            if line.startswith(b"%d " % (self.state["cursor"] + 1))
        ]
        if lines:
            self.write(out, self.state["cursor"], lines[0])
            self.keep(cursor=self.state["cursor"] + 1, length=out.tell())
        fields = {"cursor": self.state["cursor"], "messages_max": 10, "wait_ms": 100}
        self.ask("GET", topic=self.topic, **fields, **self.where)


class SubscribesAgainWhenItsPlaceIsRefused(Subscriber):
    """It ignores LOG_CHANGED."""

    def subscribe(self) -> None:
        try:
            super().subscribe()
        except SystemExit:
            self.state |= {"log": None, "cursor": None, "witness_ns": None}
            super().subscribe()


class ForgetsItsPlace(Subscriber):
    """It keeps no place, and begins at the beginning."""

    def keep(self, **values: Any) -> None:
        self.state |= values

    def run(self, topic: str, output: str) -> None:
        self.state["length"] = Path(output).stat().st_size if Path(output).exists() else 0
        super().run(topic, output)

    def subscribe(self) -> None:
        self.control += 1
        start = ("earliest",)
        answer = self.ask("SUB", topic=self.topic, control=self.control, start=start)
        self.where = {name: answer[name] for name in ("generation", "boot")}
        self.state |= {"cursor": 0}


class Hangs(Client):
    """It does nothing."""

    def run(self, topic: str, output: str) -> None:
        time.sleep(600)


class ConnectsAndHangs(Publisher):
    """It says HELLO, and nothing more."""

    def put(self, number: int, payload: bytes) -> int:
        time.sleep(600)
        return 0


class IsDead(Client):
    """It ends at once."""

    def run(self, topic: str, output: str) -> None:
        self.stop("no such library")


class WritesNothing(Publisher):
    """It does all of it right, and does not say so."""

    def run(self, topic: str, output: str) -> None:
        super().run(topic, os.devnull)


KINDS = {kind.__name__: kind for kind in (Publisher, Subscriber)} | {
    name: kind
    for name, kind in list(globals().items())
    if isinstance(kind, type) and issubclass(kind, Client)
}


def main() -> None:
    name, endpoint, client, topic, state_dir, output = sys.argv[1:]
    kind = KINDS[name]
    role = "subscriber" if issubclass(kind, Subscriber) else "publisher"
    with Path(os.environ["CONFORMANCE_INPUT"]).open() as sys.stdin:  # forked, it has none
        kind(role, endpoint, client, state_dir).run(topic, output)  # type: ignore[attr-defined]


if __name__ == "__main__":
    main()
