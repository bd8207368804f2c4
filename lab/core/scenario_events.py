"""Reading what happens in a scenario, and when: its events, and the moments of `start`. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from msgspec import UNSET

from reliable_pubsub.common.core.fields import SLEEP_S_MAX, Problems
from reliable_pubsub.common.core.step_file import or_else
from reliable_pubsub.common.core.wording import did_you_mean, expected, in_words

from .scenario import (
    ACTIONS,
    AT_ONCE,
    DATABASE,
    DOWN_S,
    END_OF,
    EVERYTHING,
    OF_LINKS,
    OF_THE_DISK,
    PROXY,
    After,
    At,
    RandomEvents,
    Role,
    ScenarioEvent,
    What,
    When,
)
from .scenario_keys import (
    Count,
    EventKeys,
    TriggerKeys,
)

if TYPE_CHECKING:
    from reliable_pubsub.common.yaml_file import KeyPath

# Keys that go with some actions only.
GOES_WITH: Final[Mapping[str, tuple[What, ...]]] = {
    "for": tuple(END_OF),
    "by": ("delay",),
    "after_bytes": ("cut",),
    "bytes_per_s": ("slow",),
    "to": ("rollback",),
}
RANDOM_KEYS: Final = frozenset({"every", "random", "until", "of"})


def duration_of(value: float | str) -> float | None:
    """Seconds of a duration: a number, or text such as `0.5s`, `2 s`, `300ms`; None if wrong."""
    seconds = None if isinstance(value, str) else float(value)
    if isinstance(value, str):
        found = re.fullmatch(r"([0-9]{1,6}(?:\.[0-9]{1,6})?) ?(ms|s)", value.strip())
        seconds = float(found[1]) / (1000 if found[2] == "ms" else 1) if found else None
    return seconds if seconds is not None and seconds <= SLEEP_S_MAX else None


class EventReader:
    """Reads events whose keys are right; notes what does not fit together."""

    def __init__(
        self,
        problems: Problems,
        data: Mapping[str, Any],
        events: Sequence[EventKeys],
        roles: Mapping[str, Role],
    ) -> None:
        """Read nothing yet; `roles` are filled before anything is read."""
        self._problems = problems
        self._data = data
        self._events = events
        self._roles = roles

    def wrong(self, key_path: KeyPath, found: object, expected: str) -> None:
        """Note a value that cannot be."""
        self._problems.add(key_path, f"found {in_words(found)}, expected {expected}")

    def seconds(self, key_path: KeyPath, value: float | str, *, zero: bool = False) -> float:
        """Seconds of a duration, above 0 if not `zero`."""
        seconds = duration_of(value)
        if seconds is None or not (seconds or zero):
            above = "" if zero else ", above 0"
            self.wrong(key_path, value, f"a duration such as 0.5s, 300ms or 2{above}")
        return seconds or 0.0

    def trigger(self, key_path: KeyPath, keys: TriggerKeys) -> When:
        """`{process: publisher-1, put: 40}`."""
        role = self._roles.get(keys.process)
        if role not in ("publisher", "subscriber"):
            nodes = ("proxy", "relay", "database")
            clients = [name for name, one in self._roles.items() if one not in nodes]
            allowed = f"one of {', '.join(clients)}{did_you_mean(keys.process, clients)}"
            self.wrong((*key_path, "process"), keys.process, allowed)
            return AT_ONCE
        key, other = ("get", "put") if role == "subscriber" else ("put", "get")
        if getattr(keys, other) is not UNSET:
            self._problems.add((*key_path, other), f"found for a {role}, expected {key}")
        count = getattr(keys, key)
        if count is UNSET:
            self.wrong((*key_path, key), None, expected(Count))
            return AT_ONCE
        return After(keys.process, count)

    # What happens.

    def fixed(self) -> tuple[ScenarioEvent, ...]:
        """Those that happen at a moment that the file names."""
        events: list[ScenarioEvent] = []
        for index, one in enumerate(self._events):
            if not _is_random(one):
                events += self._event(("events", index), one)
        self._check_disk(events)
        return tuple(events)

    def random(self) -> tuple[RandomEvents, ...]:
        """Those that happen by chance."""
        return tuple(
            self._random_events(("events", index), one)
            for index, one in enumerate(self._events)
            if _is_random(one)
        )

    def _event(self, path: KeyPath, event: EventKeys) -> list[ScenarioEvent]:
        keys = self._data["events"][path[1]]
        given: list[What] = [action for action in ACTIONS if action in keys]
        if set(given) in ({"kill", "restart"}, {"rollback", "restart"}):
            given.remove("restart")  # there it says when
        if ("at" in keys) == ("after" in keys):
            found = "both" if "at" in keys else "neither"
            self._problems.add(path, f"found {found}, expected one of at and after")
        if len(given) != 1:
            found = " and ".join(given) or "none"
            self._problems.add(path, f"found {found}, expected one of {', '.join(ACTIONS)}")
            return []
        what = given[0]
        self._check_beside(path, keys, what)
        restart_s: float | None = DOWN_S
        if event.restart == "never":
            restart_s = None
        elif event.restart is not UNSET and what != "restart":
            restart = "" if isinstance(event.restart, list) else event.restart
            restart_s = self.seconds((*path, "restart"), restart)
        return [
            ScenarioEvent(
                when=self._when(path, event),
                what=what,
                targets=self._targets((*path, what), keys[what], what),
                lasts_s=None if event.lasts is UNSET else self.seconds((*path, "for"), event.lasts),
                restart_s=restart_s,
                by_s=0.0 if event.by is UNSET else self.seconds((*path, "by"), event.by),
                after_bytes=or_else(event.after_bytes, 0),
                bytes_per_s=or_else(event.bytes_per_s, 0),
                to=event.to,
            )
        ]

    def _check_beside(self, path: KeyPath, keys: Mapping[str, object], what: What) -> None:
        """Note keys that do not go with an action, and the one that has to."""
        for key, actions in GOES_WITH.items():
            if key in keys and what not in actions:
                text = f"found with {what}, expected only with {', '.join(actions)}"
                self._problems.add((*path, key), text)
        for key in sorted(RANDOM_KEYS & keys.keys()):
            self._problems.add((*path, key), "found without every, expected only with it")
        needed = {"delay": "by", "slow": "bytes_per_s"}.get(what)
        if needed and needed not in keys:
            self._problems.add(path, f"found {what} without {needed}, expected both")

    def _when(self, path: KeyPath, event: EventKeys) -> When:
        if event.after is not UNSET:
            return self.trigger((*path, "after"), event.after)
        return At(self.seconds((*path, "at"), 0.0 if event.at is UNSET else event.at, zero=True))

    def _random_events(self, path: KeyPath, event: EventKeys) -> RandomEvents:
        keys = self._data["events"][path[1]]
        for key in keys:
            if key not in RANDOM_KEYS:
                self._problems.add((*path, key), "found with every, expected only without it")
        for key in ("every", "random", "until"):
            if key not in keys:
                text = f"found no {key}, expected every: 0.5s, random: [kill] and until: 5s"
                self._problems.add(path, text)
        kinds = [] if event.random is UNSET else event.random
        everyone = tuple(name for name in self._roles if name != DATABASE)
        return RandomEvents(
            every_s=self.seconds((*path, "every"), 1.0 if event.every is UNSET else event.every),
            until_s=self.seconds((*path, "until"), 1.0 if event.until is UNSET else event.until),
            kinds=(kinds,) if isinstance(kinds, str) else tuple(kinds),
            targets=everyone if event.of is UNSET else self._targets((*path, "of"), event.of, None),
        )

    def _targets(self, path: KeyPath, given: str | list[str], what: What | None) -> tuple[str, ...]:
        """Who it happens to: a name, a list of names, or everything."""
        allowed: Sequence[str] = tuple(self._roles)
        if what == "cut_push":
            allowed = tuple(n for n, role in self._roles.items() if role in ("relay", "subscriber"))
        elif what in OF_LINKS:
            without = (DATABASE,) if DATABASE in self._roles else (PROXY,)
            allowed = tuple(name for name in self._roles if name not in without)
        elif what in OF_THE_DISK:
            allowed = () if DATABASE in self._roles else (PROXY,)
        if given == EVERYTHING:
            return tuple(allowed)
        found = given if isinstance(given, list) else [given]
        wrong = [name for name in found if name not in allowed]
        if wrong:
            advice = did_you_mean(str(wrong[0]), allowed)
            some = "" if what in OF_THE_DISK else f"{EVERYTHING}, or "
            self.wrong(path, given, f"{some}{', '.join(allowed)}{advice}")
            return ()
        return tuple(found)

    def _check_disk(self, events: Sequence[ScenarioEvent]) -> None:
        """A small disk lives in a namespace of its own, where no copy of it is made."""
        kinds = {event.what for event in events}
        if kinds & {"fill_disk", "free_disk"} and kinds & {"backup", "rollback"}:
            self._problems.add(
                ("events",), "found fill_disk and rollback, expected them in two scenarios"
            )


def _is_random(event: EventKeys) -> bool:
    return event.every is not UNSET or event.random is not UNSET
