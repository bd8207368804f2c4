"""A scenario, as values: who takes part, what happens to them, what is expected of it.

`scenario_file.py` reads them; docs/teach/lab.md has the table of keys.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final, Literal, get_args

from msgspec import Meta, Struct

from reliable_pubsub.common.core.patterns.matching import Strategy
from reliable_pubsub.common.core.steps import PublisherStep, SubscriberStep

PROXY: Final = "proxy"
STANDBY: Final = "proxy-2"  # with a database only, as the next one
DATABASE: Final = "database"
EVERYTHING: Final = "everything"
FaultyVariant = Literal["cursor_on_send", "dedup_last_id"]  # `variants.py` has them
FAULTS: Final[tuple[FaultyVariant, ...]] = get_args(FaultyVariant)

Rule = Annotated[str, Meta(pattern=r"^V([1-9]|1[0-3])$", extra={"expected": "a rule, V1 to V13"})]
Role = Literal["proxy", "relay", "publisher", "subscriber", "database"]
What = Literal[
    "kill",
    "stop",
    "continue",
    "restart",
    "cut",
    "cut_push",
    "half_open",
    "delay",
    "slow",
    "heal",
    "fill_disk",
    "free_disk",
    "backup",
    "rollback",
]
OF_PROCESSES: Final[tuple[What, ...]] = ("kill", "stop", "continue", "restart")
OF_LINKS: Final[tuple[What, ...]] = ("cut", "cut_push", "half_open", "delay", "slow", "heal")
OF_THE_DISK: Final[tuple[What, ...]] = ("fill_disk", "free_disk", "backup", "rollback")
ACTIONS: Final = (*OF_PROCESSES, *OF_LINKS, *OF_THE_DISK)
ByChance = Literal["kill", "stop", "cut", "cut_push", "half_open"]
# What takes it back, where `for` says how long it lasts.
END_OF: Final[Mapping[What, What]] = {
    "stop": "continue",
    "cut": "heal",
    "cut_push": "heal",
    "half_open": "heal",
    "delay": "heal",
    "slow": "heal",
    "fill_disk": "free_disk",
}
# {}: its target.
IN_WORDS: Final[Mapping[What, str]] = {
    "kill": "kill -9 {}",
    "stop": "stopped {} (SIGSTOP)",
    "continue": "{} continues (SIGCONT)",
    "restart": "started {} again",
    "cut": "cut the link of {}",
    "cut_push": "cut the push link of {}",
    "half_open": "{} hears no answers (half-open link)",
    "delay": "requests of {} are late",
    "slow": "the link of {} is slow",
    "heal": "healed the link of {}",
    "fill_disk": "filled the disk of the {}",
    "free_disk": "freed the disk of the {}",
    "backup": "copied the data of the {}",
    "rollback": "set the data of the {} back",
}

DOWN_S: Final = 0.5  # between a death and the next start
PATIENCE_S: Final = 20.0  # twice the longest pause of a client that asks again
ACK_TIMEOUT_S: Final = 0.3  # shorter than the product's own, so that a class sees more in a minute
SEND_RETRIES: Final = 100


class At(Struct, frozen=True):
    """A time, in seconds from when all subscribers are subscribed and the publishers begin."""

    at_s: float


class After(Struct, frozen=True):
    """When a process has put, or got, a number of messages."""

    process: str
    count: int  # 1, 2, 3, ...


class AllSubscribed(Struct, frozen=True):
    """When all subscribers that start at once are subscribed."""


When = At | After | AllSubscribed
AT_ONCE: Final = At(float("-inf"))


class ScenarioEvent(Struct, frozen=True, kw_only=True):
    """Something that is done to processes, to their links, or to the proxy's disk."""

    when: When
    what: What
    targets: tuple[str, ...]
    lasts_s: float | None = None  # then it is taken back (`END_OF`)
    restart_s: float | None = DOWN_S  # kill, rollback; None: it is not started before the end
    by_s: float = 0.0  # delay
    after_bytes: int = 0  # cut: this many bytes still pass, so it may fall into a frame
    bytes_per_s: int = 0  # slow
    to: Literal["backup", "start"] = "backup"  # rollback: to which copy

    @property
    def in_words(self) -> str:
        """`kill proxy, after publisher-1 has put or got 40`."""
        when = ""
        if isinstance(self.when, After):
            when = f", after {self.when.process} has put or got {self.when.count}"
        elif isinstance(self.when, At):
            when = f", at {self.when.at_s:g} s"
        return f"{self.what} {', '.join(self.targets)}{when}"


class RandomEvents(Struct, frozen=True, kw_only=True):
    """Repeated events: one of several actions, on one of several processes; the seed decides."""

    every_s: float
    until_s: float
    kinds: tuple[What, ...]
    targets: tuple[str, ...]


class ScenarioDatabase(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A PostgreSQL server that two proxies share."""

    copy: Annotated[
        bool,
        Meta(description="a synchronous standby server, promoted when the first one is killed"),
    ] = False


class ScenarioRelay(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A relay."""

    through: Annotated[str, Meta(description="the relay above, earlier in the file")] = PROXY
    strategy: Annotated[
        Strategy, Meta(description="how interest is joined on its way up (relay.md)")
    ] = "subsume"


class ScenarioClient(Struct, frozen=True, kw_only=True):
    """A publisher or a subscriber that takes part."""

    name: str  # of the process
    role: Role
    id: str  # two processes may have one
    steps: tuple[PublisherStep, ...] | tuple[SubscriberStep, ...]
    plan: object  # the step file, as plain data
    gets_all: bool = False  # its last step is `number_of_times: all`; the lab ends it
    through: str = PROXY  # of a subscriber: the proxy, or a relay
    start: When = AT_ONCE
    ack_timeout_s: float = ACK_TIMEOUT_S
    send_retries: int = SEND_RETRIES

    def is_in(self, topic: str, group: str) -> bool:
        """Whether a step makes it a member of a group."""
        return any(
            isinstance(step, SubscriberStep) and (step.topic, step.group) == (topic, group)
            for step in self.steps
        )


class Expectation(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How the run ends."""

    exit_codes: Annotated[
        dict[str, Annotated[int, Meta(ge=0, le=5)]],
        Meta(description="of clients, where it is not 0: {publisher-1: 4}"),
    ] = {}
    violated: Annotated[
        list[Rule], Meta(description="the rules that must break, and no others: [V1, V3]")
    ] = []


class Scenario(Struct, frozen=True, kw_only=True):
    """A scenario."""

    title: str
    seed: int = 1
    fault: str = ""  # one of `FAULTS`: a switched-on exercise
    patience_s: float = PATIENCE_S  # nothing moves for this long: it has failed
    proxy: Mapping[str, object] = {}  # settings file of the proxy, as plain data
    database: ScenarioDatabase | None = None  # None: one proxy, with a file
    relays: Mapping[str, ScenarioRelay] = {}
    clients: Mapping[str, ScenarioClient]
    events: tuple[ScenarioEvent, ...] = ()
    random: tuple[RandomEvents, ...] = ()
    expect: Expectation = Expectation()

    @property
    def proxies(self) -> tuple[str, ...]:
        """Those that share the log."""
        return (PROXY,) if self.database is None else (PROXY, STANDBY)

    @property
    def processes(self) -> tuple[str, ...]:
        """All, the proxies first."""
        database = () if self.database is None else (DATABASE,)
        return (*self.proxies, *database, *self.relays, *self.clients)

    @property
    def needs_small_disk(self) -> bool:
        """Whether an event fills the disk of the proxy."""
        return any(event.what in ("fill_disk", "free_disk") for event in self.events)

    @property
    def topics(self) -> frozenset[str]:
        """All topics that are put to or read."""
        return frozenset(step.topic for client in self.clients.values() for step in client.steps)

    def puts_planned(self, topic: str) -> int:
        """Messages that the step files put on a topic."""
        return sum(
            step.number_of_times
            for client in self.clients.values()
            for step in client.steps
            if isinstance(step, PublisherStep) and step.topic == topic
        )

    def messages_planned(self, client: ScenarioClient) -> int:
        """Messages that a client puts or gets, by its plan."""
        if client.role == "publisher":
            return sum(step.number_of_times for step in client.steps)
        gets = [s for s in client.steps if isinstance(s, SubscriberStep) and s.action == "get"]
        if not client.gets_all:
            return sum(step.number_of_times for step in gets)
        before = sum(step.number_of_times for step in gets[:-1])
        return max(before, self.puts_planned(gets[-1].topic))
