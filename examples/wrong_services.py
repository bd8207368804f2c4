"""Wrong services: the reference with one fault each, and the stage that must find it.

python -m reliable_pubsub.lab.grade.wrong NAME broker --port 5555 --data DIR
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, Final

import graded_service
import zmq
from graded_service import Answer, Broker, Item, LazyPirate, Request


class StoresTwice(Broker):
    """Stores every copy of a put."""

    def is_new(self, request: Request) -> bool:
        return True


class ForgetsIds(Broker):
    """Keeps the ids of puts in memory alone."""

    def keep(self, request: Request) -> None:
        ids, self.state["ids"] = self.state["ids"], {}
        super().keep(request)
        self.state["ids"] = ids


class AnswersFirst(Broker):
    """Answers a put before a snapshot has it."""

    def keep(self, request: Request) -> None:
        if request["op"] != "put":
            super().keep(request)


class RemovesAsItSends(Broker):
    """Removes a message when it is sent, not when it is acknowledged."""

    def get(self, request: Request) -> Answer:
        found = super().get(request)
        if "number" in found:
            del self.queues(request["topic"])[request["client"]][0]
        return found


class ForgetsSubscriptions(Broker):
    """Keeps subscriptions in memory alone."""

    def keep(self, request: Request) -> None:
        queues, self.state["queues"] = self.state["queues"], {}
        super().keep(request)
        self.state["queues"] = queues


class ForgetsAcks(Broker):
    """Keeps acknowledgements in memory alone."""

    def keep(self, request: Request) -> None:
        if request["op"] != "ack":
            super().keep(request)


class AcknowledgesByCount(Broker):
    """Takes any get for the acknowledgement of the message that was sent before."""

    def settle(self, request: Request) -> None:
        queue = self.queues(request["topic"])[request["client"]]
        sent = self.state.setdefault("sent", {})
        if queue and sent.get(request["client"]) == queue[0][0]:
            del queue[0]

    def get(self, request: Request) -> Answer:
        found = super().get(request)
        self.state.setdefault("sent", {})[request["client"]] = found.get("number")
        return found


class RemembersTheLastId(Broker):
    """Compares a put with the last one of its client alone, and takes late requests."""

    def answer(self, request: Request) -> Answer:
        self.state["newest"] = {}
        return super().answer(request)

    def is_new(self, request: Request) -> bool:
        at = f"{request['client']} {request['topic']}"
        is_new: bool = self.state["ids"].get(at) != request["id"]
        self.state["ids"][at] = request["id"]
        return is_new


class OneSetOfIds(Broker):
    """Takes the same id of two clients for the same put."""

    def is_new(self, request: Request) -> bool:
        return super().is_new(request | {"client": "all"})


class ComparesTexts(Broker):
    """Takes a put with the same text for the same put."""

    def is_new(self, request: Request) -> bool:
        return super().is_new(request | {"id": request["message"]})


class OneQueue(Broker):
    """Gives each message to one of the subscribers."""

    def store(self, request: Request) -> None:
        queues = self.queues(request["topic"])
        others = list(queues)[1:]
        kept = {name: list(queues[name]) for name in others}
        super().store(request)
        for name in others:
            queues[name][:] = kept[name]


class NewestFirst(Broker):
    """Returns the newest message first."""

    def store(self, request: Request) -> None:
        super().store(request)
        for queue in self.queues(request["topic"]).values():
            if len(queue) > 1:
                queue.insert(1, queue.pop())


class NeverUnsubscribes(Broker):
    """Answers unsubscribe, and does nothing."""

    def unsubscribe(self, request: Request) -> Answer:
        return {"ok": True}


class ResubscribeDrops(Broker):
    """Drops what is not acknowledged when a client subscribes again."""

    def subscribe(self, request: Request) -> Answer:
        fresh: list[Item] = []
        self.queues(request["topic"])[request["client"]] = fresh
        return {"ok": True}


class NumbersByRun(LazyPirate):
    """Gives a put an id of its own, which a restart forgets."""

    def asked(self, request: Request) -> Answer:
        if request["op"] == "put":
            request["client"] = f"{self.id}-{self.run}"
        return super().asked(request)


class AcknowledgesOnReturn(LazyPirate):
    """Acknowledges a message before it returns it."""

    def answer(self, line: Request) -> Answer:
        found = super().answer(line)
        if line["op"] == "get" and found.get("message") is not None:
            super().answer({"op": "ack", "topic": line["topic"]})
        return found


class AcknowledgesAfterRestart(LazyPirate):
    """Keeps what it returned on disk, and acknowledges it in the next run."""

    def __init__(self, broker: str, id: str, state: Path) -> None:
        super().__init__(broker, id, state)
        self.file = state / "returned"
        if self.file.exists():
            topic, _, number = self.file.read_text().rpartition(" ")
            self.unacknowledged[topic] = int(number)

    def answer(self, line: Request) -> Answer:
        found = super().answer(line)
        for topic, number in self.unacknowledged.items():
            graded_service.replace_file(self.file, f"{topic} {number}")
        return found


class GivesUp(LazyPirate):
    """Ends when three tries were not answered."""

    def asked(self, request: Request) -> Answer:
        for _ in range(3):
            socket: Any = zmq.Context.instance().socket(zmq.REQ)
            socket.connect(self.broker)
            socket.send_json(request)
            if socket.poll(2 * graded_service.TIMEOUT_MS):
                found: Answer = socket.recv_json()
                return found
            socket.close(linger=0)
        sys.exit("no answer")


WRONG: Final[dict[str, type[Broker] | type[LazyPirate]]] = {
    "one-set-of-ids": OneSetOfIds,
    "compares-texts": ComparesTexts,
    "one-queue": OneQueue,
    "newest-first": NewestFirst,
    "never-unsubscribes": NeverUnsubscribes,
    "resubscribe-drops": ResubscribeDrops,
    "stores-twice": StoresTwice,
    "removes-as-it-sends": RemovesAsItSends,
    "acknowledges-by-count": AcknowledgesByCount,
    "remembers-the-last-id": RemembersTheLastId,
    "forgets-ids": ForgetsIds,
    "answers-first": AnswersFirst,
    "forgets-subscriptions": ForgetsSubscriptions,
    "forgets-acks": ForgetsAcks,
    "numbers-by-run": NumbersByRun,
    "acknowledges-on-return": AcknowledgesOnReturn,
    "acknowledges-after-restart": AcknowledgesAfterRestart,
    "gives-up": GivesUp,
}


def main(name: str, *arguments: str) -> None:
    kind = WRONG[name]
    if issubclass(kind, Broker):
        graded_service.main(list(arguments), broker=kind)
    else:
        graded_service.main(list(arguments), client=kind)


if __name__ == "__main__":
    main(*sys.argv[1:])
