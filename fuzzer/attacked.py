"""What is attacked, with honest and hostile clients in processes of their own, and what is judged.

One honest subscriber polls; where a second one is pushed to, it is below the relay if that is
attacked. What each wrote is compared with what was put.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from math import inf
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, ClassVar, Final

from msgspec.structs import replace

from reliable_pubsub.common.core.errors import PubSubError
from scripts.delivery import Verdict, compare
from tests.integration.harness import Process, Service, eventually
from tests.integration.relay_tree import RelayProcess

from . import accomplices, honest
from .attacks import Scene
from .board import Board, forked
from .floods import RELAY, SCENE, Endpoint

PUSHED: Final = replace(SCENE, subscriber="honest-pushed")
# What a process says when more connections come than it lets in, which is what they are for.
ENTRANCE: Final = re.compile(
    r"warning: connections are kept out, .*?docs/operating\.md"
    r"|going on: no connections are kept out .*? of [\d,]+ s"
    r"|warning: [\d,]+ connections with unknown keys .*? every \d+ s"
)
END_S = 60.0  # an honest client has ended by then
STOP_S = 2.0  # a client that does not end within it after the stop is killed


def make_known(service: Service, *more: Scene) -> None:
    """Give the honest clients an epoch that will be an old one, and the subscriptions."""
    with service.open_publisher(SCENE.publisher) as publisher:
        publisher.connect()
    for scene in (SCENE, *more):
        with service.open_subscriber(scene.subscriber) as subscriber:
            subscriber.subscribe(scene.topic)


class Attacked:
    """A service, and its clients by the names of their processes."""

    subscribers: ClassVar[Mapping[str, Scene]] = {"subscriber": SCENE, "pushed": PUSHED}

    def __init__(
        self, directory: Path, service: Service, *, seed: int, attacks_per_s: float
    ) -> None:
        """Prepare; nothing runs yet."""
        self._service = service
        self._seed = seed
        self._attacks_per_s = attacks_per_s
        self._board = Board()  # what the clients report, and what they must do
        self._clients: dict[str, BaseProcess] = {}
        self._attacked: dict[str, Process] = {}
        names = [scene.subscriber for scene in self.subscribers.values()]
        self._outputs = {name: directory / f"{name}.jsonl" for name in names}

    # Starting.

    def _start_relay(self, chosen: frozenset[Endpoint], upstream: str, *options: str) -> None:
        """Note the proxy that runs; start a relay beside it if that is attacked."""
        self._attacked["proxy"] = self._service.proxy
        if RELAY in chosen:
            self._relay = RelayProcess(self._service, "relay", "--upstream", upstream, *options)
            self._attacked["relay"] = self._relay.process

    def _endpoints(self) -> dict[str, str]:
        """All that can be attacked, without keys, by the names that `floods.places` takes."""
        service = self._service
        at = {
            "publisher": str(service.publisher_endpoint),
            "subscriber": str(service.subscriber_endpoint),
            "push": service.push_endpoint,
            "ingress": service.ingress_endpoint,
        }
        if "relay" in self._attacked:
            at |= {"relay": self._relay.endpoint, "relay_push": self._relay.push_endpoint}
        return at

    def _start(self, name: str, target: Callable[..., None], *given: Any, **more: Any) -> None:
        """Start a client; the board is its first argument."""
        process = forked.Process(
            target=target, args=(self._board, *given), kwargs=more, daemon=True
        )
        process.start()
        self._clients[name] = process

    def _start_honest(
        self, publisher_at: str, *subscribers_at: str, puts_per_s: float = inf
    ) -> None:
        for (name, scene), endpoint in zip(self.subscribers.items(), subscribers_at, strict=True):
            output = str(self._outputs[scene.subscriber])
            is_pushed = name == "pushed"
            self._start(name, honest.subscribe, scene, endpoint, output, is_pushed=is_pushed)
        self._start("publisher", honest.publish, SCENE, publisher_at, puts_per_s)

    def _await_honest(self) -> None:
        """Wait until every honest client is at work."""
        board = self._board
        for name in self.subscribers:
            slot = "pushed_deliveries" if name == "pushed" else "deliveries"
            eventually(lambda slot=slot: board[slot] > 50, "delivery to the honest")  # type: ignore[misc]

    # Ending.

    def _stop(self) -> None:
        """End everything."""
        self._board["all_end"] = 1
        for process in self._clients.values():
            process.join(STOP_S)
            process.kill()
            process.join()
        self._service.close()

    def _broken(self) -> list[str]:
        """What leaves nothing to wait for."""
        found = [
            f"the {name} ended with exit code {one.exit_code}: {one.stderr}"
            for name, one in self._attacked.items()
            if one.exit_code is not None
        ]
        hostile = self._clients.keys() - {"publisher", *self.subscribers}
        return found + [
            f"the process of the {name} has ended; see above"
            for name in sorted(hostile)
            if not self._clients[name].is_alive()
        ]

    def _end(self) -> Iterator[str]:
        """Let the honest finish, the publisher first; say what went wrong with any process."""
        for names, ends in (
            (["publisher"], "publishing_ends"),
            (list(self.subscribers), "delivering_ends"),
        ):
            self._board[ends] = 1
            for name in names:
                process = self._clients[name]
                process.join(END_S)
                if process.exitcode != 0:
                    yield f"the honest {name} failed: exit code {process.exitcode}"
        yield from self._broken()
        for name, attacked in self._attacked.items():
            if unexpected := ENTRANCE.sub("", attacked.complaints).strip():
                yield f"the {name} complained: {unexpected}"
        try:
            self._service.status()
        except PubSubError as error:
            yield f"the proxy does not answer: {error}"

    def _judge(self, problems: list[str]) -> dict[str, Verdict]:
        """Compare the file of each honest subscriber with what was put; add the differences."""
        board = self._board
        puts = {
            SCENE.publisher: [honest.payload(n + 1) for n in range(board["puts"])],
            accomplices.PUBLISHER: [
                accomplices.payload(n + 1) for n in range(board["accomplice_puts"])
            ],
        }
        topics = {name: [SCENE.topic] for name in self._outputs}
        found = compare(self._outputs, topics, {SCENE.topic: puts})
        problems += [
            f"the file of {one.subscriber} is not what was put: {one}"
            for one in found
            if not one.perfect
        ]
        return {one.subscriber: one for one in found}
