"""Every setting in one table, and the one rule that says which value counts.

Command line > settings file > environment > default. Each value keeps its origin, so that
`config show` can say where it comes from. Every value that is given is checked, also one that a
higher origin overrides: a wrong word in a file is told today and not on the day it counts.

Nothing here opens a file or looks at the process's environment: both are arguments.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, Literal, get_args

import msgspec
from msgspec import Struct

from .endpoint import ENDPOINT_EXAMPLE, host_of
from .errors import ConfigurationError
from .limits import (
    BODY_BYTES_MAX,
    CHOSEN_MAX,
    CHOSEN_TOPICS_MAX,
    GIB,
    HELD_REQUESTS_MAX,
    INTEREST_PATTERNS_MAX,
    MIB,
    NUMBER_MAX,
    PUBLISHERS_PER_TOPIC_MAX,
    SESSIONS_MAX,
    SUBSCRIPTIONS_PER_TOPIC_MAX,
    TOPICS_MAX,
)
from .messages import Durability

if TYPE_CHECKING:
    from .yaml_file import Document

Value = int | float | str
Kind = Literal["seconds", "whole number", "choice", "path", "endpoint"]
OnBound = Literal["reject", "lose_oldest", "expire"]
RelayStrategy = Literal["none", "dedup", "subsume", "all"]

PROBLEMS_MAX: Final = 20  # of one file, told at once
ENVIRONMENT_PREFIX: Final = "RELIABLE_PUBSUB_"
DIRECTORY_VARIABLE: Final = ENVIRONMENT_PREFIX + "DIR"  # where settings.json files are


class Setting(Struct, frozen=True, kw_only=True):
    """One setting: what it may be, and its names on the command line and in the environment."""

    name: str  # also the key in a settings file
    kind: Kind
    default: Value
    unit: str = ""
    low: float = 0
    low_included: bool = True
    high: float = NUMBER_MAX
    choices: tuple[str, ...] = ()
    help: str

    @property
    def flag(self) -> str:
        """The option of the command line: `--ack-timeout`."""
        return "--" + self.name.replace("_", "-")

    @property
    def variable(self) -> str:
        """The environment variable: `RELIABLE_PUBSUB_ACK_TIMEOUT`."""
        return ENVIRONMENT_PREFIX + self.name.upper()

    @property
    def expected(self) -> str:
        """What a value has to be, in words."""
        if self.kind == "choice":
            return f"one of {', '.join(self.choices)}"
        if self.kind == "path":
            return "the path of a directory"
        if self.kind == "endpoint":
            nothing = "" if self.default else ", or nothing"
            return f"an endpoint such as {ENDPOINT_EXAMPLE}{nothing}"
        what = "a whole number" if self.kind == "whole number" else "a number"
        low = f"from {self.low:,}" if self.low_included else f"above {self.low:,}"
        unit = f" ({self.unit})" if self.unit else ""
        return f"{what} {low} to {self.high:,}{unit}"


class Resolved(Struct, frozen=True):
    """The value that counts, and who said so."""

    value: Value
    origin: str  # "--ack-timeout", "settings.json", "RELIABLE_PUBSUB_ACK_TIMEOUT" or "default"


PUBLISHER_ENDPOINT: Final = "tcp://127.0.0.1:5555"
SUBSCRIBER_ENDPOINT: Final = "tcp://127.0.0.1:5556"
PUSH_ENDPOINT: Final = "tcp://127.0.0.1:5557"
RELAY_MAX_SUBSCRIPTIONS: Final = 32  # seed 004 names it
RELAY_LEASE_S: Final = 15.0
RELAY_ENDPOINT: Final = "tcp://127.0.0.1:5558"
RELAY_PUSH_ENDPOINT: Final = "tcp://127.0.0.1:5559"
INGRESS_ENDPOINT: Final = "tcp://127.0.0.1:5554"

SETTINGS: Final[tuple[Setting, ...]] = (
    Setting(
        name="ack_timeout",
        kind="seconds",
        default=2.0,
        unit="s",
        low_included=False,
        high=3600,
        help="how long a client waits for an answer before it asks again",
    ),
    Setting(
        name="send_retries",
        kind="whole number",
        default=10,
        high=1000,
        help="how often a client asks again before it reports the outcome as in doubt",
    ),
    Setting(
        name="publisher_endpoint",
        kind="endpoint",
        default=PUBLISHER_ENDPOINT,
        help="where publishers reach the proxy",
    ),
    Setting(
        name="subscriber_endpoint",
        kind="endpoint",
        default=SUBSCRIBER_ENDPOINT,
        help="where subscribers reach the proxy, or a relay; and where a relay finds what is above",
    ),
    Setting(
        name="push_endpoint",
        kind="endpoint",
        default=PUSH_ENDPOINT,
        help="where the proxy pushes. Default: on the interface of subscriber_endpoint; any free "
        "port if it is taken, which peers are told",
    ),
    Setting(
        name="push_via",
        kind="endpoint",
        default="",
        help="where a subscriber or relay finds pushed data, if not where the node above says: "
        "behind a tunnel",
    ),
    Setting(
        name="ingress_endpoint",
        kind="endpoint",
        default=INGRESS_ENDPOINT,
        help="where publishers send what is put at QoS 0. Default: on the interface of "
        "publisher_endpoint; any free port if it is taken, which publishers are told",
    ),
    Setting(
        name="push_silence_min",
        kind="seconds",
        default=0.05,
        unit="s",
        low_included=False,
        high=3600,
        help="the shortest silence of pushes after which a subscriber asks the proxy",
    ),
    Setting(
        name="push_silence_max",
        kind="seconds",
        default=5.0,
        unit="s",
        low_included=False,
        high=3600,
        help="the longest silence of pushes after which a subscriber asks the proxy",
    ),
    Setting(
        name="relay_endpoint",
        kind="endpoint",
        default=RELAY_ENDPOINT,
        help="where subscribers and further relays reach a relay",
    ),
    Setting(
        name="relay_push_endpoint",
        kind="endpoint",
        default=RELAY_PUSH_ENDPOINT,
        help="where a relay pushes",
    ),
    Setting(
        name="relay_strategy",
        kind="choice",
        default="subsume",
        choices=get_args(RelayStrategy),
        help="how a relay joins the interest below it before it goes up",
    ),
    Setting(
        name="relay_max_subscriptions",
        kind="whole number",
        default=RELAY_MAX_SUBSCRIPTIONS,
        unit="patterns",
        low=1,
        high=INTEREST_PATTERNS_MAX,
        help="of one consumer of a relay; with more it gets everything, until it is well below",
    ),
    Setting(
        name="relay_lease",
        kind="seconds",
        default=RELAY_LEASE_S,
        unit="s",
        low=1,
        high=3600,
        help="how long the interest of a link lives without a word",
    ),
    Setting(
        name="data_dir",
        kind="path",
        default="proxy-data",
        help="where the proxy keeps its store",
    ),
    Setting(
        name="state_dir",
        kind="path",
        default="client-state",
        help="where publishers and subscribers keep what must survive their crash",
    ),
    Setting(
        name="durability",
        kind="choice",
        default="sync",
        choices=("sync", "os", "snapshot"),
        help="what an acknowledgement of the proxy means",
    ),
    Setting(
        name="snapshot_interval_ms",
        kind="whole number",
        default=10,
        unit="ms",
        low=1,
        high=60_000,
        help="pause between commits with durability snapshot",
    ),
    Setting(
        name="rep_sockets",
        kind="whole number",
        default=32,
        low=1,
        high=HELD_REQUESTS_MAX,
        help="requests of one endpoint that the proxy holds at the same time",
    ),
    Setting(
        name="topics_max",
        kind="whole number",
        default=TOPICS_MAX,
        low=1,
        high=CHOSEN_TOPICS_MAX,
        help="how many topics a proxy makes; none is removed",
    ),
    Setting(
        name="clients_max",
        kind="whole number",
        default=SESSIONS_MAX,
        low=1,
        high=CHOSEN_MAX,
        help="how many client ids with numbers or subscriptions a proxy holds",
    ),
    Setting(
        name="subscriptions_per_topic_max",
        kind="whole number",
        default=SUBSCRIPTIONS_PER_TOPIC_MAX,
        low=1,
        high=CHOSEN_MAX,
        help="how many subscriptions of a topic may not have ended",
    ),
    Setting(
        name="publishers_per_topic_max",
        kind="whole number",
        default=PUBLISHERS_PER_TOPIC_MAX,
        low=1,
        high=CHOSEN_MAX,
        help="how many publishers of a topic have their numbers compared, for ever",
    ),
    Setting(
        name="history_bytes",
        kind="whole number",
        default=256 * MIB,
        unit="bytes",
        help="acknowledged messages that stay in each topic",
    ),
    Setting(
        name="history_s",
        kind="whole number",
        default=86_400,
        unit="s",
        high=3650 * 86_400,
        help="how long acknowledged messages stay",
    ),
    Setting(
        name="history_messages",
        kind="whole number",
        default=NUMBER_MAX,
        help="how many acknowledged messages stay in each topic, about: whole segments go",
    ),
    Setting(
        name="waiting_messages_max",
        kind="whole number",
        default=NUMBER_MAX,
        low=1,
        help="how many messages may wait for one subscription; on_bound says what happens then",
    ),
    Setting(
        name="topic_bytes_max",
        kind="whole number",
        default=4 * GIB,
        unit="bytes",
        low=BODY_BYTES_MAX,
        help="the bound of one topic",
    ),
    Setting(
        name="on_bound",
        kind="choice",
        default="reject",
        choices=("reject", "lose_oldest", "expire"),
        help="what happens at that bound: refuse puts, report the oldest messages as lost, or let "
        "the slowest subscriptions expire",
    ),
)
BY_NAME: Final[Mapping[str, Setting]] = {setting.name: setting for setting in SETTINGS}


class Settings(Struct, frozen=True, kw_only=True):
    """The values that count, each with its type; ranges, units and defaults are in `SETTINGS`."""

    ack_timeout: float
    send_retries: int
    publisher_endpoint: str
    subscriber_endpoint: str
    push_endpoint: str
    push_via: str
    ingress_endpoint: str
    push_silence_min: float
    push_silence_max: float
    relay_endpoint: str
    relay_push_endpoint: str
    relay_strategy: RelayStrategy
    relay_max_subscriptions: int
    relay_lease: float
    data_dir: str
    state_dir: str
    durability: Durability
    snapshot_interval_ms: int
    rep_sockets: int
    topics_max: int
    clients_max: int
    subscriptions_per_topic_max: int
    publishers_per_topic_max: int
    history_bytes: int
    history_s: int
    history_messages: int
    waiting_messages_max: int
    topic_bytes_max: int
    on_bound: OnBound


def resolve(
    command_line: Mapping[str, object],
    file: Mapping[str, Resolved] | None,
    environment: Mapping[str, str],
) -> dict[str, Resolved]:
    """Give each setting the value of its highest origin, in the order of the table.

    Args:
        command_line: by setting name, text or already parsed; None means "not given".
        file: from `parse_settings_json` or `settings_from_document`.
        environment: all variables of the process; only those of the table are looked at.

    Raises:
        ConfigurationError: all that is wrong, one line for each value, naming flag or variable.
    """
    problems: list[str] = []
    given: dict[str, Resolved] = {}
    for setting in SETTINGS:
        if setting.variable in environment:
            text = environment[setting.variable]
            origin = setting.variable
            _take(given, problems, setting, text, where=origin, origin=origin, from_text=True)
    given.update(file or {})
    for name, value in command_line.items():
        if value is None:
            continue
        if name not in BY_NAME:
            flag = "--" + name.replace("_", "-")
            problems.append(f"{flag}: unknown setting{did_you_mean(name, BY_NAME)}")
            continue
        flag = BY_NAME[name].flag
        _take(given, problems, BY_NAME[name], value, where=flag, origin=flag, from_text=True)
    if problems:
        raise ConfigurationError("\n".join(problems))
    return {
        setting.name: given.get(setting.name, Resolved(setting.default, "default"))
        for setting in SETTINGS
    }


def typed(resolved: Mapping[str, Resolved]) -> Settings:
    """Give the values of `resolve` their types."""
    return msgspec.convert({name: item.value for name, item in resolved.items()}, Settings)


def parse_settings_json(text: str, path: str) -> dict[str, Resolved]:
    """Read a settings file: one JSON object, its keys the names of the table.

    Raises:
        ConfigurationError: not JSON (with line and column), not a mapping, or what
            `_from_mapping` refuses.
    """
    try:
        data = json.loads(
            text, object_pairs_hook=_without_double_keys, parse_constant=_refuse_constant
        )
    except json.JSONDecodeError as error:
        raise ConfigurationError(
            f"{path}, line {error.lineno}, column {error.colno}: is not JSON: {error.msg}"
        ) from error
    except (ValueError, RecursionError) as error:
        raise ConfigurationError(f"{path}: is not JSON as we use it: {error}") from error
    if not isinstance(data, dict):
        raise _not_a_mapping(path, data)
    return _from_mapping(data, path, {})


def settings_from_document(document: Document) -> dict[str, Resolved]:
    """Read the settings of a YAML file: a mapping, its keys the names of the table.

    Raises:
        ConfigurationError: not a mapping, unknown keys, values out of range; with lines.
    """
    lines = {str(at[0]): line for at, line in document.key_lines.items() if len(at) == 1}
    if not isinstance(document.data, dict):
        raise _not_a_mapping(f"{document.path}, line {document.line_of(())}", document.data)
    return _from_mapping(document.data, document.path, lines)


def unknown_variables(environment: Mapping[str, str]) -> list[str]:
    """Warn, in one sentence each, of variables that look like a setting but are none."""
    known = [DIRECTORY_VARIABLE, *(setting.variable for setting in SETTINGS)]
    return [
        f"{name}: unknown variable, it has no effect{did_you_mean(name, known)}"
        for name in sorted(environment)
        if name.startswith(ENVIRONMENT_PREFIX) and name not in known
    ]


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Name the closest known word, as the end of a sentence; nothing, if none is close."""
    by_lower = {name.lower(): name for name in known}
    plain = word[:64].lower().replace("-", "_").replace(" ", "_")
    closest = difflib.get_close_matches(plain, by_lower, n=1)
    return f"; did you mean {by_lower[closest[0]]!r}?" if closest else ""


def in_words(value: object) -> str:
    """Say what was found, in at most 60 characters and one line."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list):
        return f"a list of {len(value)}"
    if isinstance(value, str):
        return f"{value!r:.60}"
    return f"{value!s:.60}"


def key_in_words(key: str) -> str:
    """Give a key of a file in one line of at most 60 characters."""
    return f"{key if key.isprintable() else repr(key):.60}"


def first_of(problems: Sequence[str]) -> str:
    """The problems of a file, one on a line; of many the first, and how many more."""
    told = list(problems[:PROBLEMS_MAX])
    if len(problems) > PROBLEMS_MAX:
        told.append(f"... and {len(problems) - PROBLEMS_MAX} more")
    return "\n".join(told)


def _not_a_mapping(where: str, data: object) -> ConfigurationError:
    return ConfigurationError(
        f"{where}: found {in_words(data)}, expected a mapping of settings such as ack_timeout: 2.0"
    )


def _from_mapping(
    data: Mapping[str, object], path: str, lines: Mapping[str, int]
) -> dict[str, Resolved]:
    """Check the content of a settings file.

    Raises:
        ConfigurationError: unknown keys, values of the wrong type or out of range.
    """
    problems: list[str] = []
    taken: dict[str, Resolved] = {}
    for name, value in data.items():
        origin = f"{path}, line {lines[name]}" if name in lines else path
        where = f"{origin}, {key_in_words(name)}"
        if name in BY_NAME:
            setting = BY_NAME[name]
            _take(taken, problems, setting, value, where=where, origin=origin, from_text=False)
        else:
            advice = did_you_mean(name, BY_NAME) or f"; known are {', '.join(BY_NAME)}"
            problems.append(f"{where}: unknown setting{advice}")
    if problems:
        raise ConfigurationError(first_of(problems))
    return taken


def _take(
    taken: dict[str, Resolved],
    problems: list[str],
    setting: Setting,
    value: object,
    *,
    where: str,
    origin: str,
    from_text: bool,
) -> None:
    """Note a value under its setting, or what is wrong with it."""
    parsed = _parse(setting, value, from_text=from_text)
    if parsed is None:
        problems.append(f"{where}: found {in_words(value)}, expected {setting.expected}")
    else:
        taken[setting.name] = Resolved(parsed, origin)


def _parse(setting: Setting, value: object, *, from_text: bool) -> Value | None:
    """Give the value of a setting, or None if it may not be.

    Args:
        from_text: text such as "2.5" is a number, as on the command line; in a file it is not.
    """
    if setting.kind in ("seconds", "whole number"):
        number = _number_of(value) if from_text and isinstance(value, str) else value
        if isinstance(number, bool) or not isinstance(number, int | float):
            return None
        above = number >= setting.low if setting.low_included else number > setting.low
        if not (above and number <= setting.high):  # so that NaN is refused
            return None
        if setting.kind == "seconds":
            return float(number)
        return number if isinstance(number, int) else None
    if not isinstance(value, str):
        return None
    if setting.kind == "choice":
        return value if value in setting.choices else None
    if setting.kind == "endpoint":
        nothing = not value and not setting.default
        return value if nothing or host_of(value, bind=True) is not None else None
    return value if value and "\0" not in value else None


_WHOLE = re.compile(r"[+-]?[0-9]{1,30}\Z")
_NUMBER = re.compile(r"[+-]?([0-9]{1,30}(\.[0-9]{0,30})?|\.[0-9]{1,30})([eE][+-]?[0-9]{1,3})?\Z")


def _number_of(text: str) -> int | float | None:
    """Give the number that text shows: no `1_000`, no `nan`, no digits beyond 0 to 9."""
    text = text.strip()
    if _WHOLE.match(text):
        return int(text)
    return float(text) if _NUMBER.match(text) else None


def _without_double_keys(pairs: Sequence[tuple[str, object]]) -> dict[str, object]:
    mapping: dict[str, object] = {}
    for key, value in pairs:
        if key in mapping:
            raise ValueError(f"key {key!r:.60} is given twice")
        mapping[key] = value
    return mapping


def _refuse_constant(name: str) -> object:
    raise ValueError(f"{name} is not a number that a setting may have")
