"""Reading scenarios: every value is checked, every problem is kept, all are told at once.

Pure: it takes a document that `common/yaml_file.py` has parsed, and gives a `Scenario`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, cast, get_args

from reliable_pubsub.common import names
from reliable_pubsub.common.dead_letter import is_dead
from reliable_pubsub.common.errors import ConfigurationError, InvalidNameError
from reliable_pubsub.common.fields import Fields, Problems, seconds_of
from reliable_pubsub.common.limits import STEP_MESSAGES_MAX
from reliable_pubsub.common.step_file import read_publisher_steps, read_subscriber_steps
from reliable_pubsub.common.steps import PublisherStep, SubscriberStep
from reliable_pubsub.common.wording import did_you_mean, in_words
from reliable_pubsub.relay.pattern import Strategy

from .scenario import (
    ACK_TIMEOUT_S,
    ACTIONS,
    AT_ONCE,
    BY_CHANCE,
    DOWN_S,
    END_OF,
    EVERYTHING,
    FAULTS,
    OF_LINKS,
    OF_THE_DISK,
    PATIENCE_S,
    PROXY,
    SEND_RETRIES,
    After,
    At,
    Client,
    Event,
    Expectation,
    RandomEvents,
    Relay,
    Role,
    Scenario,
    Subscribed,
    What,
    When,
)
from .scenario_keys import (
    EVENT_KEYS,
    EXPECT_KEYS,
    PUBLISHER_KEYS,
    RANDOM_KEYS,
    RELAY_KEYS,
    SCENARIO_KEYS,
    SUBSCRIBER_KEYS,
    TRIGGER_KEYS,
)

if TYPE_CHECKING:
    from reliable_pubsub.common.yaml_file import Document, KeyPath

NOT_FOR_CLIENTS: Final = (PROXY, EVERYTHING, "lab", "auditor")
# Keys that go with some actions only.
GOES_WITH: Final[Mapping[str, tuple[What, ...]]] = {
    "for": tuple(END_OF),
    "by": ("delay",),
    "after_bytes": ("cut",),
    "bytes_per_s": ("slow",),
    "to": ("rollback",),
}
LAB_CHOOSES: Final = frozenset(
    {"publisher_endpoint", "subscriber_endpoint", "push_endpoint", "data_dir", "state_dir"}
    | {"ack_timeout", "send_retries"}
)
DURATION: Final = "a duration such as 0.5s, 300ms or 2"

Load = Callable[[str], "Document"]  # a step file, by its name in the scenario
CheckProxy = Callable[["Document"], object]  # refuses what is wrong with settings of a proxy


def parse_scenario(document: Document, *, load: Load, check_proxy: CheckProxy) -> Scenario:
    """Read a scenario.

    Raises:
        ConfigurationError: all that is wrong with the file (the first 20), one line each: file,
            line, key path, what was found, what was expected.
    """
    problems = Problems(document)
    if not isinstance(document.data, dict):
        found = in_words(document.data)
        problems.add((), f"found {found}, expected a scenario: title, publishers, subscribers")
        problems.raise_if_any()
    return _Reader(problems, load, check_proxy).scenario()


def duration_of(value: object) -> float | None:
    """Seconds of a duration: a number, or text such as `0.5s`, `2 s`, `300ms`; None if wrong."""
    if not isinstance(value, str):
        return seconds_of(value)
    found = re.fullmatch(r"([0-9]{1,6}(?:\.[0-9]{1,6})?) ?(ms|s)", value.strip())
    if found is None:
        return None
    return seconds_of(float(found[1]) / (1000 if found[2] == "ms" else 1))


class _Part(Fields):
    """A mapping of a scenario."""

    def __init__(self, problems: Problems, key_path: KeyPath, data: Mapping[str, object]) -> None:
        super().__init__(problems, key_path, data)
        self.key_path = key_path
        self.data = data

    def duration(self, key: str, default: float) -> float:
        """Give a duration above 0."""
        if not self.has(key):
            return default
        found = duration_of(self.data[key])
        if not found:
            self.wrong(key, f"{DURATION}, above 0")
            return default
        return found

    def count(self, key: str, low: int, high: int) -> int:
        """Give a whole number."""
        value = self.data.get(key)
        if isinstance(value, int) and not isinstance(value, bool) and low <= value <= high:
            return value
        self.wrong(key, f"a whole number from {low:,} to {high:,}")
        return low


class _Reader:
    """Reads one scenario; what is wrong is noted, and something harmless stands in its place."""

    def __init__(self, problems: Problems, load: Load, check_proxy: CheckProxy) -> None:
        self._problems = problems
        self._document = problems.document
        self._load = load
        self._check_proxy = check_proxy
        self._roles: dict[str, Role] = {PROXY: "proxy"}

    def scenario(self) -> Scenario:
        """Read all of it."""
        whole = self._part(())
        assert whole is not None
        whole.check_keys(SCENARIO_KEYS)
        title = whole.text("title")
        if title == "" or not whole.has("title"):
            whole.wrong("title", "a sentence that says what happens")
        self._note_roles("relay")
        self._note_roles("publisher")
        self._note_roles("subscriber")
        relays = self._relays()
        clients = {**self._clients("publisher"), **self._clients("subscriber")}
        if not clients and not (whole.has("publishers") or whole.has("subscribers")):
            whole.problem(None, "found nobody, expected publishers and subscribers")
        self._check_put(clients)
        proxy = self._proxy()
        events, random = self._events()
        expect = self._expect()
        found = Scenario(
            title=title or "",
            seed=whole.count("seed", 0, 2**31) if whole.has("seed") else 1,
            fault=whole.choice("fault", ("", *FAULTS), default="") or "",
            patience_s=whole.duration("patience", PATIENCE_S),
            proxy=proxy,
            relays=relays,
            clients=clients,
            events=events,
            random=random,
            expect=expect,
        )
        self._problems.raise_if_any()
        return found

    def _part(self, key_path: KeyPath, what: str = "a mapping") -> _Part | None:
        """The mapping that stands at a key path; None, and a problem, if it is none."""
        data: object = self._document.data
        for key in key_path:
            data = data[key]  # type: ignore[index]  # the caller has seen the key
        if isinstance(data, dict):
            return _Part(self._problems, key_path, data)
        self._problems.add(key_path, f"found {in_words(data)}, expected {what}")
        return None

    def _has(self, key: str) -> bool:
        return isinstance(self._document.data, dict) and key in self._document.data

    # Who takes part.

    def _proxy(self) -> Mapping[str, object]:
        if not self._has(PROXY):
            return {}
        part = self._part((PROXY,), "settings of the proxy, such as durability: sync")
        if part is None:
            return {}
        for key in part.data:
            if key in LAB_CHOOSES:
                part.problem(key, "found a setting that the lab itself gives; leave it out")
        try:
            self._check_proxy(self._document.part(PROXY))
        except ConfigurationError as error:
            self._problems.add_from(part.key_path, error)
        return part.data

    def _note_roles(self, role: Role) -> None:
        """Learn the names first: one client may wait for another that stands below it."""
        clients = cast("dict[str, object]", self._document.data).get(f"{role}s")
        for name in clients if isinstance(clients, dict) else ():
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

    def _relays(self) -> Mapping[str, Relay]:
        part = self._part(("relays",), "relays by name") if self._has("relays") else None
        found: dict[str, Relay] = {}
        for name in part.data if part is not None else ():
            relay = self._part(("relays", name), "a relay: a mapping, {} for the usual one")
            if relay is None:
                continue
            relay.check_keys(RELAY_KEYS)
            strategy = relay.choice("strategy", get_args(Strategy), default="subsume")
            found[name] = Relay(
                name=name,
                through=self._through(
                    relay, (PROXY, *found)
                ),  # those above it in the file: no ring
                strategy=cast("Strategy", strategy or "subsume"),
            )
        return found

    def _through(self, part: _Part, nodes: Sequence[str]) -> str:
        """The node above; the proxy, if nothing is said."""
        if not part.has("through"):
            return PROXY
        given = part.text("through")
        if given is not None and given not in nodes:
            part.wrong("through", f"{' or '.join(nodes)}{did_you_mean(given, nodes)}")
        return given if given is not None and given in nodes else PROXY

    def _clients(self, role: Role) -> Mapping[str, Client]:
        key = f"{role}s"
        part = self._part((key,), f"{key} by name, each with its steps") if self._has(key) else None
        found: dict[str, Client] = {}
        for name in part.data if part is not None else ():
            client = self._part((key, name), f"a {role}: a mapping with the key steps")
            if client is not None:
                found[name] = self._client(role, name, client)
        return found

    def _check_put(self, clients: Mapping[str, Client]) -> None:
        """Note each get that waits for ever, because nothing is put on its topic."""
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

    def _client(self, role: Role, name: str, part: _Part) -> Client:
        part.check_keys(PUBLISHER_KEYS if role == "publisher" else SUBSCRIBER_KEYS)
        client_id = part.text("id") if part.has("id") else None
        try:
            names.client_id(client_id if client_id is not None else "sound")
        except InvalidNameError as error:
            part.wrong("id", error.expected)
        steps, plan, gets_all = self._steps(role, part)
        start = self._start(part) if part.has("start") else None
        default = Subscribed() if role == "publisher" else AT_ONCE
        relays = [one for one, kind in self._roles.items() if kind == "relay"]
        retries = part.count("send_retries", 0, 1000) if part.has("send_retries") else SEND_RETRIES
        return Client(
            name=name,
            role=role,
            id=client_id or name,
            steps=steps,
            plan=plan,
            gets_all=gets_all,
            through=self._through(part, (PROXY, *relays)),
            start=start or default,
            ack_timeout_s=part.duration("ack_timeout", ACK_TIMEOUT_S),
            send_retries=retries,
        )

    def _steps(
        self, role: Role, part: _Part
    ) -> tuple[tuple[PublisherStep, ...] | tuple[SubscriberStep, ...], object, bool]:
        """The steps, the step file to write for them, and whether the last one gets all."""
        given = part.data.get("steps")
        problems, path = self._problems, part.key_path
        if isinstance(given, str):
            try:
                document = self._load(given)
            except ConfigurationError as error:
                problems.add_from((*path, "steps"), error)
                return (), None, False
            problems, path, data = Problems(document), (), document.data
        else:
            data = {"steps": given} if part.has("steps") else {}
        data, gets_all = _without_all(data) if role == "subscriber" else (data, False)
        if role == "subscriber":
            steps = read_subscriber_steps(problems, path, data)
            _check_subscribed(problems, path, steps)
            return steps, data, gets_all
        publisher_steps = read_publisher_steps(problems, path, data)
        for index, step in enumerate(publisher_steps):
            if step.message_file is not None:
                where = (*path, "steps", index, "message_file")
                problems.add(where, "found a file, expected message: a scenario is one file")
        if problems is not self._problems:
            try:
                problems.raise_if_any()
            except ConfigurationError as error:
                self._problems.add_from((*part.key_path, "steps"), error)
        return publisher_steps, data, False

    def _start(self, part: _Part) -> When | None:
        value = part.data["start"]
        if value == "subscribed":
            return Subscribed()
        if value == "at once":
            return AT_ONCE
        if isinstance(value, dict):
            return self._trigger((*part.key_path, "start"))
        seconds = duration_of(value)
        if seconds is None:
            expected = f"subscribed, at once, {DURATION}, or {{process: NAME, put: 20}}"
            part.wrong("start", expected)
            return None
        return At(seconds)

    def _trigger(self, key_path: KeyPath) -> When:
        """`{process: publisher-1, put: 40}`."""
        part = self._part(key_path, "a mapping such as {process: publisher-1, put: 40}")
        if part is None:
            return AT_ONCE
        part.check_keys(TRIGGER_KEYS)
        process = part.text("process") or ""
        role = self._roles.get(process)
        if role not in ("publisher", "subscriber"):
            clients = [name for name, one in self._roles.items() if one not in ("proxy", "relay")]
            part.wrong("process", f"one of {', '.join(clients)}{did_you_mean(process, clients)}")
            return AT_ONCE
        key = "put" if role != "subscriber" else "get"
        other = "get" if key == "put" else "put"
        if part.has(other):
            part.problem(other, f"found for a {role}, expected {key}")
        return After(process, part.count(key, 1, STEP_MESSAGES_MAX))

    # What happens.

    def _events(self) -> tuple[tuple[Event, ...], tuple[RandomEvents, ...]]:
        if not self._has("events"):
            return (), ()
        data = cast("dict[str, object]", self._document.data)["events"]
        if not isinstance(data, list):
            self._problems.add(("events",), f"found {in_words(data)}, expected a list of events")
            return (), ()
        events: list[Event] = []
        random: list[RandomEvents] = []
        for index in range(len(data)):
            part = self._part(("events", index), "a mapping such as {at: 1s, kill: proxy}")
            if part is None:
                continue
            if part.has("random") or part.has("every"):
                random.append(self._random(part))
            else:
                events += self._event(part)
        self._check_disk(events)
        return tuple(events), tuple(random)

    def _event(self, part: _Part) -> list[Event]:
        part.check_keys(EVENT_KEYS)
        given = [action for action in ACTIONS if part.has(action)]
        if set(given) in ({"kill", "restart"}, {"rollback", "restart"}):
            given.remove("restart")  # there it says when
        if part.has("at") == part.has("after"):
            found = "both" if part.has("at") else "neither"
            part.problem(None, f"found {found}, expected one of at and after")
        if len(given) != 1:
            found = " and ".join(given) or "none"
            part.problem(None, f"found {found}, expected one of {', '.join(ACTIONS)}")
            return []
        what = given[0]
        for key, actions in GOES_WITH.items():
            if part.has(key) and what not in actions:
                part.problem(key, f"found with {what}, expected only with {', '.join(actions)}")
        if what in ("delay", "slow"):
            needed = "by" if what == "delay" else "bytes_per_s"
            if not part.has(needed):
                part.problem(None, f"found {what} without {needed}, expected both")
        restart_s: float | None = DOWN_S
        if part.data.get("restart") == "never":
            restart_s = None
        elif part.has("restart") and what != "restart":
            restart_s = part.duration("restart", DOWN_S)
        high = 2**31
        return [
            Event(
                when=self._when(part),
                what=what,
                targets=self._targets(part, what, what),
                lasts_s=part.duration("for", 1.0) if part.has("for") else None,
                restart_s=restart_s,
                by_s=part.duration("by", 0.1) if part.has("by") else 0.0,
                after_bytes=part.count("after_bytes", 0, high) if part.has("after_bytes") else 0,
                bytes_per_s=part.count("bytes_per_s", 1, high) if part.has("bytes_per_s") else 0,
                to=part.choice("to", ("backup", "start"), default="backup") or "backup",
            )
        ]

    def _when(self, part: _Part) -> When:
        if part.has("after"):
            return self._trigger((*part.key_path, "after"))
        seconds = duration_of(part.data.get("at", 0))
        if seconds is None:
            part.wrong("at", DURATION)
        return At(seconds or 0.0)

    def _random(self, part: _Part) -> RandomEvents:
        part.check_keys(RANDOM_KEYS)
        given = part.data.get("random")
        kinds = [given] if isinstance(given, str) else given
        if not isinstance(kinds, list) or not kinds or any(kind not in BY_CHANCE for kind in kinds):
            part.wrong("random", f"a list of {', '.join(BY_CHANCE)}")
            kinds = list(BY_CHANCE)
        for key in ("every", "until"):
            if not part.has(key):
                part.problem(None, f"found no {key}, expected every: 0.5s and until: 5s")
        every_s = part.duration("every", 1.0)
        return RandomEvents(
            every_s=every_s,
            until_s=part.duration("until", 1.0),
            kinds=tuple(kinds),
            targets=self._targets(part, "of", None) if part.has("of") else tuple(self._roles),
        )

    def _targets(self, part: _Part, key: str, what: What | None) -> tuple[str, ...]:
        """Who it happens to: a name, a list of names, or everything."""
        given = part.data.get(key)
        allowed: Sequence[str] = tuple(self._roles)
        if what == "cut_push":
            allowed = tuple(n for n, role in self._roles.items() if role in ("relay", "subscriber"))
        elif what in OF_LINKS:
            allowed = tuple(name for name in self._roles if name != PROXY)
        elif what in OF_THE_DISK:
            allowed = (PROXY,)
        if given == EVERYTHING:
            return tuple(allowed)
        found = given if isinstance(given, list) else [given]
        wrong = [name for name in found if name not in allowed]
        if wrong or not found:
            word = wrong[0] if wrong else None
            advice = did_you_mean(word, allowed) if isinstance(word, str) else ""
            some = "" if what in OF_THE_DISK else f"{EVERYTHING}, or "
            part.wrong(key, f"{some}{', '.join(allowed)}{advice}")
            return ()
        return tuple(found)

    def _check_disk(self, events: Sequence[Event]) -> None:
        """A small disk lives in a namespace of its own, where no copy of it is made."""
        kinds = {event.what for event in events}
        if kinds & {"fill_disk", "free_disk"} and kinds & {"backup", "rollback"}:
            self._problems.add(
                ("events",), "found fill_disk and rollback, expected them in two scenarios"
            )

    # What is expected.

    def _expect(self) -> Expectation:
        if not self._has("expect"):
            return Expectation()
        part = self._part(("expect",), "a mapping such as {violated: [R1]}")
        if part is None:
            return Expectation()
        part.check_keys(EXPECT_KEYS)
        codes: dict[str, int] = {}
        if part.has("exit_codes"):
            given = self._part(("expect", "exit_codes"), "exit codes by name of a process")
            for name in given.data if given is not None else ():
                assert given is not None
                if self._roles.get(name, "proxy") in ("proxy", "relay"):
                    given.problem(
                        name, f"found no client of this name{did_you_mean(name, self._roles)}"
                    )
                codes[name] = given.count(name, 0, 5)
        violated = part.data.get("violated", [])
        good = isinstance(violated, list) and all(
            isinstance(rule, str) and re.fullmatch(r"R([1-9]|1[0-2])", rule) for rule in violated
        )
        if not good:
            part.wrong("violated", "a list of rules, R1 to R12")
        return Expectation(exit_codes=codes, violated=tuple(violated) if good else ())  # type: ignore[arg-type]


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


def _without_all(data: object) -> tuple[object, bool]:
    """Put the highest number in the place of `number_of_times: all` of the last step."""
    steps = data.get("steps") if isinstance(data, dict) else None
    last = steps[-1] if isinstance(steps, list) and steps else None
    if not isinstance(last, dict) or last.get("number_of_times") != "all":
        return data, False
    assert isinstance(steps, list)
    endless = {**last, "number_of_times": STEP_MESSAGES_MAX}
    return {"steps": [*steps[:-1], endless]}, True
