"""Reading scenarios: the keys are checked by their types, then what no type can say.

Pure: it takes a document that `common/yaml_file.py` has parsed, and gives a `Scenario`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, cast

from msgspec import UNSET
from msgspec.structs import replace

from reliable_pubsub.common.core import names
from reliable_pubsub.common.core.dead_letter import is_dead
from reliable_pubsub.common.core.errors import ConfigurationError, InvalidNameError
from reliable_pubsub.common.core.fields import Problems, read
from reliable_pubsub.common.core.limits import STEP_MESSAGES_MAX
from reliable_pubsub.common.core.step_file import or_else, publisher_steps, subscriber_steps
from reliable_pubsub.common.core.step_keys import PublisherFile
from reliable_pubsub.common.core.steps import PublisherStep, SubscriberStep
from reliable_pubsub.common.core.wording import did_you_mean, expected, in_words

from .scenario import (
    AT_ONCE,
    DATABASE,
    EVERYTHING,
    PROXY,
    STANDBY,
    After,
    AllSubscribed,
    At,
    Expectation,
    Role,
    Scenario,
    ScenarioClient,
    ScenarioRelay,
    When,
)
from .scenario_events import EventReader
from .scenario_keys import (
    Count,
    GetAllFile,
    GetAllKeys,
    PublisherKeys,
    ScenarioClientKeys,
    ScenarioKeys,
    SubscriberKeys,
    TriggerKeys,
)

if TYPE_CHECKING:
    from reliable_pubsub.common.yaml_file import Document, KeyPath

NOT_FOR_CLIENTS: Final = (PROXY, EVERYTHING, "lab", "auditor")
LAB_CHOOSES: Final = frozenset(
    {"publisher_endpoint", "subscriber_endpoint", "push_endpoint", "data_dir", "state_dir"}
    | {"store", "ack_timeout", "send_retries"}
)

Load = Callable[[str], "Document"]  # a step file, by its name in the scenario
CheckProxy = Callable[["Document"], object]  # refuses what is wrong with settings of a proxy


def parse_scenario(document: Document, *, load: Load, check_proxy: CheckProxy) -> Scenario:
    """Read a scenario.

    Raises:
        ConfigurationError: all keys that are wrong (the first 20), one line each: file, line, key
            path, what was found, what was expected; if none is, all that does not fit together.
    """
    problems = Problems(document)
    if not isinstance(document.data, dict):
        found = in_words(document.data)
        problems.add((), f"found {found}, expected a scenario: title, publishers, subscribers")
        problems.raise_if_any()
    keys = read(problems, (), document.data, ScenarioKeys)
    problems.raise_if_any()
    assert keys is not None
    return _Reader(problems, keys, load, check_proxy).scenario()


class _Reader:
    """Reads one scenario whose keys are right; notes what does not fit together."""

    def __init__(
        self, problems: Problems, keys: ScenarioKeys, load: Load, check_proxy: CheckProxy
    ) -> None:
        self._problems = problems
        self._document = problems.document
        self._data = cast("dict[str, Any]", self._document.data)
        self._keys = keys
        self._load = load
        self._check_proxy = check_proxy
        self._roles: dict[str, Role] = {PROXY: "proxy"}
        self._events = EventReader(problems, self._data, keys.events, self._roles)

    def scenario(self) -> Scenario:
        keys = self._keys
        if keys.database is not UNSET:
            self._roles |= {STANDBY: "proxy", DATABASE: "database"}
        self._note_roles("relay", keys.relays)
        by_role: dict[Role, Mapping[str, ScenarioClientKeys]]
        by_role = {"publisher": keys.publishers, "subscriber": keys.subscribers}
        for role, given in by_role.items():
            self._note_roles(role, given)
        clients = {
            name: self._client(role, name, one)
            for role, given in by_role.items()
            for name, one in given.items()
        }
        if not clients and not ("publishers" in self._data or "subscribers" in self._data):
            self._problems.add((), "found neither, expected publishers and subscribers")
        self._check_put(clients)
        self._check_counts(clients)
        self._check_starts(clients)
        self._check_settings()
        found = Scenario(
            title=keys.title,
            seed=keys.seed,
            fault=or_else(keys.fault, ""),
            patience_s=self._events.seconds(("patience",), keys.patience),
            proxy=keys.proxy,
            database=or_else(keys.database, None),
            relays=self._relays(),
            clients=clients,
            events=self._events.fixed(),
            random=self._events.random(),
            expect=self._expect(),
        )
        self._problems.raise_if_any()
        return found

    # Who takes part.

    def _check_settings(self) -> None:
        for key in self._keys.proxy:
            if key in LAB_CHOOSES:
                text = "found a setting that the lab itself gives; leave it out"
                self._problems.add((PROXY, key), text)
        if PROXY in self._data:
            try:
                self._check_proxy(self._document.part(PROXY))
            except ConfigurationError as error:
                self._problems.add_from((PROXY,), error)

    def _note_roles(self, role: Role, given: Iterable[str]) -> None:
        """Learn the names first: one client may wait for another that is defined below it."""
        for name in given:
            path = (f"{role}s", name)
            try:
                names.client_id(name)
            except InvalidNameError as error:
                self._problems.add(
                    path, f"found {name!r:.70}, expected {error.expected}", at_key=True
                )
            if name in NOT_FOR_CLIENTS:
                self._problems.add(path, "found a name that the lab uses itself", at_key=True)
            elif name in self._roles:
                self._problems.add(
                    path, f"found the name of a {self._roles[name]} again", at_key=True
                )
            else:
                self._roles[name] = role

    def _relays(self) -> Mapping[str, ScenarioRelay]:
        above = [PROXY]  # those above it in the file: no ring
        for name, one in self._keys.relays.items():
            self._through(("relays", name), one.through, above)
            above.append(name)
        return self._keys.relays

    def _through(self, key_path: KeyPath, given: str, nodes: Sequence[str]) -> str:
        """The node above."""
        if given not in nodes:
            expected = f"{' or '.join(nodes)}{did_you_mean(given, nodes)}"
            self._events.wrong((*key_path, "through"), given, expected)
        return given

    def _check_put(self, clients: Mapping[str, ScenarioClient]) -> None:
        """Note each get that waits forever, because nothing is put on its topic."""
        put = {s.topic for c in clients.values() for s in c.steps if isinstance(s, PublisherStep)}
        for client in clients.values():
            for index, step in enumerate(client.steps):
                if not isinstance(step, SubscriberStep) or step.action != "get" or not step.topic:
                    continue
                waits = step.on_empty == "wait" and step.timeout_s is None
                if waits and step.topic not in put and not is_dead(step.topic):
                    self._problems.add(
                        ("subscribers", client.name, "steps", index, "topic"),
                        f"found {in_words(step.topic)}, on which no publisher of the scenario puts"
                        + did_you_mean(step.topic, put),
                    )

    def _check_counts(self, clients: Mapping[str, ScenarioClient]) -> None:
        """Note each get that waits forever, because fewer messages are put than it waits for.

        Members of a group share what is put. Below QoS 2, and with a fault, copies count too.
        """
        puts: Counter[str] = Counter()
        for client in clients.values():
            for put in client.steps:
                if isinstance(put, PublisherStep):
                    has_copies = put.qos < 2 or self._keys.fault is not UNSET
                    puts[put.topic] += STEP_MESSAGES_MAX if has_copies else put.number_of_times
        waited: Counter[tuple[str, str]] = Counter()  # by topic, and by subscriber or group
        for client in clients.values():
            groups: dict[str, str] = {}
            for index, step in enumerate(client.steps):
                if not isinstance(step, SubscriberStep) or step.match:
                    continue
                if step.action == "subscribe":
                    groups[step.topic] = step.group or ""
                group = groups.get(step.topic)
                key = (step.topic, f"group {group}" if group else client.name)
                if step.action == "seek" or step.start:
                    waited[key] = 0  # it may get again what it had
                if step.action != "get" or step.topic not in puts or step.settle != "ack":
                    continue
                if step.on_empty == "wait" and step.timeout_s is None:
                    is_all = client.gets_all and step.number_of_times == STEP_MESSAGES_MAX
                    waited[key] += 0 if is_all else step.number_of_times
                if waited[key] > puts[step.topic]:
                    self._problems.add(
                        ("subscribers", client.name, "steps", index, "number_of_times"),
                        f"found {waited[key]:,} messages of {in_words(step.topic)} to get by then, "
                        f"expected at most {puts[step.topic]:,}: so many are put, and it would "
                        "wait forever",
                    )

    def _check_starts(self, clients: Mapping[str, ScenarioClient]) -> None:
        """Note each client that never starts, because another one never gets that far."""
        for client in clients.values():
            start = client.start
            other = clients.get(start.process) if isinstance(start, After) else None
            if not isinstance(start, After) or other is None or other.gets_all:
                continue
            word = "put" if other.role == "publisher" else "get"
            planned = sum(
                step.number_of_times
                for step in other.steps
                if isinstance(step, PublisherStep) or step.action == "get"
            )
            if start.count > planned:
                self._problems.add(
                    (f"{client.role}s", client.name, "start", word),
                    f"found {start.count:,}, expected at most {planned:,}: so many are in the plan "
                    f"of {other.name}, and {client.name} would never start",
                )

    def _client(self, role: Role, name: str, keys: ScenarioClientKeys) -> ScenarioClient:
        path: KeyPath = (f"{role}s", name)
        try:
            names.client_id(keys.id or "sound")
        except InvalidNameError as error:
            self._events.wrong((*path, "id"), keys.id, error.expected)
        steps, plan, gets_all = self._steps(path, cast("PublisherKeys | SubscriberKeys", keys))
        relays = [one for one, kind in self._roles.items() if kind == "relay"]
        through = PROXY
        if isinstance(keys, SubscriberKeys):
            through = self._through(path, keys.through, (PROXY, *relays))
        start: When = AllSubscribed() if role == "publisher" else AT_ONCE
        return ScenarioClient(
            name=name,
            role=role,
            id=keys.id or name,
            steps=steps,
            plan=plan,
            gets_all=gets_all,
            through=through,
            start=start if keys.start is UNSET else self._start((*path, "start"), keys.start),
            ack_timeout_s=self._events.seconds((*path, "ack_timeout"), keys.ack_timeout),
            send_retries=keys.send_retries,
        )

    def _steps(
        self, path: KeyPath, client: PublisherKeys | SubscriberKeys
    ) -> tuple[tuple[PublisherStep, ...] | tuple[SubscriberStep, ...], object, bool]:
        """The steps, the step file to write for them, and whether the last one gets all."""
        problems, at = self._problems, path
        plan: Any = {"steps": self._data[str(path[0])][path[1]]["steps"]}
        if isinstance(client.steps, str):
            try:
                document = self._load(client.steps)
                problems, at, plan = Problems(document), (), document.data
                kind = PublisherFile if isinstance(client, PublisherKeys) else GetAllFile
                file = cast("PublisherFile | GetAllFile | None", read(problems, (), plan, kind))
                problems.raise_if_any()
            except ConfigurationError as error:
                self._problems.add_from((*path, "steps"), error)
                return (), None, False
            assert file is not None
            keys: Any = file.steps
        else:
            keys = client.steps
        if isinstance(client, PublisherKeys):
            puts = publisher_steps(problems, at, keys)
            for index, step in enumerate(puts):
                if step.message_file is not None:
                    where = (*at, "steps", index, "message_file")
                    problems.add(where, "found a file, expected message: a scenario is one file")
            self._take_over(problems, (*path, "steps"))
            return puts, plan, False
        keys, plan, gets_all = _without_all(problems, at, keys, plan)
        gets = subscriber_steps(problems, at, keys)
        _check_subscribed(problems, at, gets)
        self._take_over(problems, (*path, "steps"))
        return gets, plan, gets_all

    def _take_over(self, problems: Problems, key_path: KeyPath) -> None:
        """Note what was found wrong in another file."""
        if problems is not self._problems:
            try:
                problems.raise_if_any()
            except ConfigurationError as error:
                self._problems.add_from(key_path, error)

    def _start(self, key_path: KeyPath, start: float | str | TriggerKeys) -> When:
        if isinstance(start, TriggerKeys):
            return self._events.trigger(key_path, start)
        if start == "subscribed":
            return AllSubscribed()
        return (
            AT_ONCE if start == "at once" else At(self._events.seconds(key_path, start, zero=True))
        )

    # What is expected.

    def _expect(self) -> Expectation:
        expect = or_else(self._keys.expect, Expectation())
        for name in expect.exit_codes:
            if self._roles.get(name, "proxy") in ("proxy", "relay", "database"):
                text = f"found no client of this name{did_you_mean(name, self._roles)}"
                self._problems.add(("expect", "exit_codes", name), text)
        return expect


def _check_subscribed(problems: Problems, path: KeyPath, steps: Sequence[SubscriberStep]) -> None:
    """Note each get of a topic to which the steps before it do not subscribe: it would fail."""
    subscribed: set[str] = set()
    for index, step in enumerate(steps):
        if step.action == "subscribe":
            subscribed.add(step.topic)
        elif step.topic and step.topic not in subscribed:
            advice = did_you_mean(step.topic, subscribed)
            problems.add(
                (*path, "steps", index, "topic"),
                f"found {in_words(step.topic)}, to which no step before subscribes{advice}",
            )
        elif step.action == "unsubscribe":
            subscribed.discard(step.topic)


def _without_all(
    problems: Problems, path: KeyPath, keys: Sequence[Any], plan: Any
) -> tuple[Sequence[Any], object, bool]:
    """Put the highest number in the place of `number_of_times: all` of the last step."""
    every = [index for index, one in enumerate(keys) if _gets_all(one)]
    for index in every:
        if index < len(keys) - 1:
            where = (*path, "steps", index, "number_of_times")
            problems.add(
                where, f"found 'all', expected {expected(Count)}: the last step alone gets all"
            )
    if not every:
        return keys, plan, False
    counted = [
        replace(one, number_of_times=STEP_MESSAGES_MAX) if _gets_all(one) else one for one in keys
    ]
    endless = {**plan["steps"][-1], "number_of_times": STEP_MESSAGES_MAX}
    return counted, {"steps": [*plan["steps"][:-1], endless]}, True


def _gets_all(keys: object) -> bool:
    return isinstance(keys, GetAllKeys) and keys.number_of_times == "all"
