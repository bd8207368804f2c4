"""The clients of a trial, each in a process of its own, and what is judged when the honest end."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, Final

from reliable_pubsub.common.core.errors import PubSubError
from scripts.delivery import Verdict, compare
from tests.integration.harness import Process, Service

from . import honest
from .attacks import Scene
from .board import Board, forked

# What a process says when more connections come than it lets in, which is what they are for.
ENTRANCE: Final = re.compile(
    r"warning: connections are kept out, .*?docs/operating\.md"
    r"|going on: no connections are kept out .*? of [\d,]+ s"
)
END_S = 60.0  # an honest client has ended by then
STOP_S = 2.0  # a client that is told to stop ends by itself, or is killed


class ClientProcesses:
    """Honest and hostile clients, by name."""

    def __init__(self, board: Board) -> None:
        """Start with none.

        Args:
            board: what they say and are told.
        """
        self._board = board
        self._by_name: dict[str, BaseProcess] = {}

    def __getitem__(self, name: str) -> BaseProcess:
        return self._by_name[name]

    def start(self, name: str, target: Callable[..., None], *arguments: Any, **more: Any) -> None:
        """Start one; the board is its first argument."""
        process = forked.Process(
            target=target, args=(self._board, *arguments), kwargs=more, daemon=True
        )
        process.start()
        self._by_name[name] = process

    def stop(self) -> None:
        """End all of them."""
        self._board["all_end"] = 1
        for process in self._by_name.values():
            process.join(STOP_S)
            process.kill()
            process.join()

    def end_honest(self, *subscribers: str) -> Iterator[str]:
        """Let the honest finish, the publisher first; yield who failed."""
        for names, ends in (
            (("publisher",), "publishing_ends"),
            (subscribers, "delivering_ends"),
        ):
            self._board[ends] = 1
            for name in names:
                self._by_name[name].join(END_S)
                if self._by_name[name].exitcode != 0:
                    yield f"the honest {name} failed: exit code {self._by_name[name].exitcode}"


def ended(attacked: Mapping[str, Process]) -> list[str]:
    """Which of the attacked processes have ended; that leaves nothing to wait for."""
    return [
        f"the {name} ended with exit code {one.exit_code}: {one.stderr}"
        for name, one in attacked.items()
        if one.exit_code is not None
    ]


def unexpected_of(process: Process) -> str:
    """What a process complained of, without what hostile connections are for."""
    return ENTRANCE.sub("", process.complaints).strip()


def complaints(attacked: Mapping[str, Process], service: Service) -> Iterator[str]:
    """What the attacked processes complained of, and whether the proxy still answers."""
    for name, process in attacked.items():
        if unexpected := unexpected_of(process):
            yield f"the {name} complained: {unexpected}"
    try:
        service.status()
    except PubSubError as error:
        yield f"the proxy does not answer: {error}"


def verdicts_of(board: Board, scene: Scene, outputs: Mapping[str, Path]) -> dict[str, Verdict]:
    """Compare the file of each honest subscriber with what the honest publisher put."""
    payloads: Sequence[bytes] = [honest.payload(n + 1) for n in range(board["puts"])]
    topics = {name: [scene.topic] for name in outputs}
    found = compare(dict(outputs), topics, {scene.topic: {scene.publisher: payloads}})
    return dict(zip(outputs, found, strict=True))


def differences(verdicts: Mapping[str, Verdict]) -> Iterator[str]:
    """The files that are not what was put."""
    for name, one in verdicts.items():
        if not one.perfect:
            yield f"the file of {name} is not what was put: {one}"
