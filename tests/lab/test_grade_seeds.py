"""Each stage finds its wrong services with every seed: their code runs here without processes.

`tests/integration/test_grade.py` judges the same services as processes, with one seed.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from random import Random
from types import ModuleType
from typing import Any

import pytest

from reliable_pubsub.common.examples import shipped
from reliable_pubsub.lab.grade.core.plan import BROKER, Ask, Deliver, Kill, Plan, line_of
from reliable_pubsub.lab.grade.core.stages import STAGES, plan_of
from reliable_pubsub.lab.grade.core.verdict import BrokenRule, ClientCall, judge
from reliable_pubsub.lab.grade.self_test import ENDS, WRONG

SEEDS = 20
GETS_MAX = 60  # at the end of a run: more than there are messages


class WrittenNow:
    """Snapshots without a thread."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def save(self, state: dict[str, Any]) -> int:
        self.path.write_text(json.dumps(state))
        return 1

    def wait(self, number: int) -> None:
        """It is written."""


class World:
    """The broker and the clients of a service, as objects."""

    def __init__(self, services: ModuleType, kind: type[Any], folder: Path) -> None:
        base = services.LazyPirate
        self._is_broker = issubclass(kind, services.Broker)
        self._broker_kind = kind if self._is_broker else services.Broker
        self._client_kind = base if self._is_broker else kind
        self._folder = folder
        self._clients: dict[str, Any] = {}
        self._lives: dict[str, int] = {}
        self._late: list[Any] = []
        self._aim = ""
        self.calls: list[ClientCall] = []
        self.restart_broker()

    def restart_broker(self) -> None:
        self.broker = self._broker_kind(self._folder)

    def restart(self, client: str) -> None:
        state = self._folder / client
        state.mkdir(exist_ok=True)
        self._lives[client] = self._lives.get(client, 0) + 1
        self._clients[client] = self._client_kind("", client, state)

    def answer(self, request: Any) -> Any:
        """Carry a request to the broker, with the fault of the step."""
        aim, self._aim = self._aim, ""
        if aim in ("answer lost", "broker killed at the answer", "client killed at the answer"):
            self.broker.answer(json.loads(json.dumps(request)))
        if aim == "client killed at the answer":
            raise InterruptedError
        if aim == "request late":
            self._late.append(request)
        if aim.startswith("broker"):
            self.restart_broker()
        return json.loads(json.dumps(self.broker.answer(json.loads(json.dumps(request)))))

    def ask(self, ask: Ask) -> Any:
        if ask.client not in self._clients:
            self.restart(ask.client)
        now = 2 * len(self.calls)
        call = ClientCall(
            client=ask.client,
            life=self._lives[ask.client],
            op=ask.op,
            topic=ask.topic,
            id=ask.id,
            message=ask.message,
            began=now,
        )
        self.calls.append(call)
        self._aim = ask.aim
        try:
            call.answer = self._clients[ask.client].answer(line_of(ask))
            call.ended = now + 1
        except InterruptedError:
            self.restart(ask.client)
        return call.answer

    def play(self, plan: Plan) -> list[BrokenRule]:
        for step in plan:
            match step:
                case Ask():
                    self.ask(step)
                case Kill(who=who):
                    self.restart_broker() if who == BROKER else self.restart(who)
                case Deliver():
                    for request in self._late:
                        self.broker.answer(request)
        asks = [step for step in plan if isinstance(step, Ask)]
        for client, topic in dict.fromkeys((a.client, a.topic) for a in asks if a.op == "put"):
            self.ask(Ask(client=client, op="put", topic=topic, id=f"last-{client}", message=client))
        for client, topic in dict.fromkeys(
            (a.client, a.topic) for a in asks if a.op == "subscribe"
        ):
            get = Ask(client=client, op="get", topic=topic)
            for _ in range(GETS_MAX):
                if self.ask(get).get("message") is None:
                    break
        return judge(self.calls, is_over=True)


@pytest.fixture
def services(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(shipped("examples")))
    service = import_module("graded_service")
    monkeypatch.setattr(service, "Snapshots", WrittenNow)
    return import_module("wrong_services")


@pytest.fixture
def broken(
    services: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Callable[[type[Any], int, int], list[BrokenRule]]:
    """Play a run of a stage with a seed."""

    def play(kind: type[Any], stage: int, seed: int) -> list[BrokenRule]:
        folder = tmp_path / f"{stage}-{seed}"
        folder.mkdir()
        world = World(services, kind, folder)
        monkeypatch.setattr(services.LazyPirate, "asked", lambda _, request: world.answer(request))
        return world.play(plan_of(STAGES[stage - 1], Random(f"{stage}/{seed}")))

    return play


@pytest.mark.parametrize(
    ("name", "stage"), [(name, stage) for name, stage in WRONG.items() if name != ENDS]
)
def test_a_wrong_service_is_found_with_every_seed(
    name: str,
    stage: int,
    services: ModuleType,
    broken: Callable[[type[Any], int, int], list[BrokenRule]],
) -> None:
    assert [seed for seed in range(SEEDS) if not broken(services.WRONG[name], stage, seed)] == []


@pytest.mark.parametrize("stage", [stage.number for stage in STAGES])
def test_the_reference_passes_with_every_seed(
    stage: int,
    services: ModuleType,
    broken: Callable[[type[Any], int, int], list[BrokenRule]],
) -> None:
    assert [found for seed in range(SEEDS) if (found := broken(services.Broker, stage, seed))] == []


def test_the_wrong_services_are_those_of_the_self_test(services: ModuleType) -> None:
    assert services.WRONG.keys() == WRONG.keys()
