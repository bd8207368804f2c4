"""Every setting in one table, and the rule that decides which value counts.

Command line > settings file > environment > default. Each value keeps its origin, so that
`config show` can say where it comes from. Every value that is given is checked, also one that a
higher origin overrides: an error in a file is reported now, not when the value is first used.

Nothing here opens a file or looks at the process's environment: both are arguments.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta, Struct

from .endpoint import ENDPOINT_EXAMPLE, host_of
from .errors import ConfigurationError
from .limits import (
    BODY_BYTES_MAX,
    CHOSEN_MAX,
    CHOSEN_TOPICS_MAX,
    GIB,
    INTEREST_PATTERNS_MAX,
    MIB,
    NUMBER_MAX,
    PUBLISHERS_PER_TOPIC_MAX,
    SESSIONS_MAX,
    STAGED_BYTES_MAX,
    SUBSCRIPTIONS_PER_TOPIC_MAX,
    TOPICS_MAX,
)
from .messages import Durability
from .wording import did_you_mean, expected, facts, first_of, in_words, key_in_words, refused

if TYPE_CHECKING:
    from ..yaml_file import Document

Value = int | float | str
OnBound = Literal["reject", "lose_oldest", "expire"]
RelayStrategy = Literal["none", "dedup", "subsume", "all"]

ENVIRONMENT_PREFIX: Final = "RELIABLE_PUBSUB_"
DIRECTORY_VARIABLE: Final = ENVIRONMENT_PREFIX + "DIR"  # where settings.json files are


class Setting(Struct, frozen=True, kw_only=True):
    """One setting, as `Settings` describes it, with its names and its range in words."""

    name: str
    default: Value
    type: Any  # annotated with range, unit and meaning

    @property
    def flag(self) -> str:
        """The option of the command line: `--ack-timeout`."""
        return "--" + self.name.replace("_", "-")

    @property
    def variable(self) -> str:
        """The environment variable: `RELIABLE_PUBSUB_ACK_TIMEOUT`."""
        return ENVIRONMENT_PREFIX + self.name.upper()

    @property
    def unit(self) -> str:
        """Unit of the value, or ""."""
        return str(facts(self.type).get("unit", ""))

    @property
    def help(self) -> str:
        """What the setting is for."""
        return str(facts(self.type)["description"])

    @property
    def expected(self) -> str:
        """What a value has to be, in words."""
        return expected(self.type) + (", or nothing" if self.default == "" else "")


class Resolved(Struct, frozen=True):
    """The value that counts, and its origin."""

    value: Value
    origin: str  # "--ack-timeout", "settings.json", "RELIABLE_PUBSUB_ACK_TIMEOUT" or "default"


PUBLISHER_ENDPOINT: Final = "tcp://127.0.0.1:5555"
SUBSCRIBER_ENDPOINT: Final = "tcp://127.0.0.1:5556"
PUSH_ENDPOINT: Final = "tcp://127.0.0.1:5557"
RELAY_MAX_SUBSCRIPTIONS: Final = 32
RELAY_LEASE_S: Final = 15.0
RELAY_ENDPOINT: Final = "tcp://127.0.0.1:5558"
RELAY_PUSH_ENDPOINT: Final = "tcp://127.0.0.1:5559"
INGRESS_ENDPOINT: Final = "tcp://127.0.0.1:5554"

Endpoint = Annotated[
    str,
    Meta(
        title="an endpoint", examples=[ENDPOINT_EXAMPLE], extra_json_schema={"format": "endpoint"}
    ),
]
Seconds = Annotated[float, Meta(gt=0, le=3600, extra_json_schema={"unit": "s"})]
Bytes = Annotated[int, Meta(le=NUMBER_MAX, extra_json_schema={"unit": "bytes"})]
Positive = Annotated[int, Meta(ge=1)]
Chosen = Annotated[Positive, Meta(le=CHOSEN_MAX)]
KeyPlace = Annotated[str, Meta(pattern=r"^[^\0]*$", title="a key, a file or a folder")]
Directory = Annotated[str, Meta(pattern=r"^[^\0]+$", title="the path of a directory")]


class Settings(Struct, frozen=True, kw_only=True):
    """Every setting once: type, range, unit, default, meaning. Its key in a file is its name."""

    ack_timeout: Annotated[
        Seconds, Meta(description="how long a client waits for an answer before it asks again")
    ] = 2.0
    send_retries: Annotated[
        int,
        Meta(
            ge=0,
            le=1000,
            description="how often a client asks again before it reports the outcome as in doubt",
        ),
    ] = 10
    publisher_endpoint: Annotated[
        Endpoint, Meta(description="where publishers reach the proxy")
    ] = PUBLISHER_ENDPOINT
    subscriber_endpoint: Annotated[
        Endpoint,
        Meta(
            description="where subscribers reach the proxy, or a relay; and where a relay finds "
            "what is above"
        ),
    ] = SUBSCRIBER_ENDPOINT
    push_endpoint: Annotated[
        Endpoint,
        Meta(
            description="where the proxy pushes. Default: on the interface of "
            "subscriber_endpoint; any free port if it is taken, which peers learn"
        ),
    ] = PUSH_ENDPOINT
    push_via: Annotated[
        Endpoint,
        Meta(
            description="where a subscriber or relay finds pushed data, if not where the node "
            "above says: through a tunnel"
        ),
    ] = ""
    ingress_endpoint: Annotated[
        Endpoint,
        Meta(
            description="where publishers send what is put at QoS 0. Default: on the interface of "
            "publisher_endpoint; any free port if it is taken, which publishers learn"
        ),
    ] = INGRESS_ENDPOINT
    push_silence_min: Annotated[
        Seconds,
        Meta(description="the shortest silence of pushes after which a subscriber asks the proxy"),
    ] = 0.05
    push_silence_max: Annotated[
        Seconds,
        Meta(description="the longest silence of pushes after which a subscriber asks the proxy"),
    ] = 5.0
    relay_endpoint: Annotated[
        Endpoint, Meta(description="where subscribers and further relays reach a relay")
    ] = RELAY_ENDPOINT
    relay_push_endpoint: Annotated[Endpoint, Meta(description="where a relay pushes")] = (
        RELAY_PUSH_ENDPOINT
    )
    relay_strategy: Annotated[
        RelayStrategy,
        Meta(description="how a relay joins the interest below it before it goes up"),
    ] = "subsume"
    relay_max_subscriptions: Annotated[
        int,
        Meta(
            ge=1,
            le=INTEREST_PATTERNS_MAX,
            description="of one consumer of a relay; with more it gets everything, until it is "
            "well below",
            extra_json_schema={"unit": "patterns"},
        ),
    ] = RELAY_MAX_SUBSCRIPTIONS
    relay_lease: Annotated[
        float,
        Meta(
            ge=1,
            le=3600,
            description="how long the interest of a silent link is kept",
            extra_json_schema={"unit": "s"},
        ),
    ] = RELAY_LEASE_S
    secret_key: Annotated[
        KeyPlace,
        Meta(
            description="the file of this process's own key (reliable-pubsub keys new): endpoints "
            "that it binds are encrypted with it, and servers know it by it"
        ),
    ] = ""
    server_key: Annotated[
        KeyPlace,
        Meta(description="the public key of the proxy or relay to talk with, or its file"),
    ] = ""
    clients: Annotated[
        KeyPlace,
        Meta(
            description="whose keys may connect: a folder of .key files, or a YAML file of public "
            "keys and names, with their rights; looked at again when it changes. Default: any key"
        ),
    ] = ""
    audit_log: Annotated[
        KeyPlace,
        Meta(
            description="the file of requests that were refused for lack of a right. Default: "
            "audit.jsonl in the data directory of a proxy; a relay has none"
        ),
    ] = ""
    data_dir: Annotated[Directory, Meta(description="where the proxy keeps its store")] = (
        "proxy-data"
    )
    state_dir: Annotated[
        Directory,
        Meta(description="where publishers and subscribers keep what must survive their crash"),
    ] = "client-state"
    durability: Annotated[
        Durability, Meta(description="what an acknowledgement of the proxy means")
    ] = "sync"
    snapshot_interval_ms: Annotated[
        int,
        Meta(
            ge=1,
            le=60_000,
            description="pause between commits with durability snapshot",
            extra_json_schema={"unit": "ms"},
        ),
    ] = 10
    rep_sockets: Annotated[
        Positive,
        Meta(
            le=64,
            description="without effect since the proxy holds any number of requests; accepted "
            "so that older files stay valid",
        ),
    ] = 32
    topics_max: Annotated[
        Positive,
        Meta(le=CHOSEN_TOPICS_MAX, description="how many topics a proxy makes; none is removed"),
    ] = TOPICS_MAX
    clients_max: Annotated[
        Chosen,
        Meta(description="how many client ids with numbers or subscriptions a proxy holds"),
    ] = SESSIONS_MAX
    subscriptions_per_topic_max: Annotated[
        Chosen, Meta(description="how many subscriptions of a topic may not have ended")
    ] = SUBSCRIPTIONS_PER_TOPIC_MAX
    publishers_per_topic_max: Annotated[
        Chosen,
        Meta(description="how many publishers of a topic have their numbers compared, for ever"),
    ] = PUBLISHERS_PER_TOPIC_MAX
    staged_bytes_max: Annotated[
        Bytes,
        Meta(
            ge=2 * MIB,
            description="bytes in memory of all transactions that are not committed",
        ),
    ] = STAGED_BYTES_MAX
    history_bytes: Annotated[
        Bytes, Meta(ge=0, description="acknowledged messages that stay in each topic")
    ] = 256 * MIB
    history_s: Annotated[
        int,
        Meta(
            ge=0,
            le=3650 * 86_400,
            description="how long acknowledged messages stay",
            extra_json_schema={"unit": "s"},
        ),
    ] = 86_400
    history_messages: Annotated[
        int,
        Meta(
            ge=0,
            le=NUMBER_MAX,
            description="how many acknowledged messages stay in each topic, about: whole segments "
            "go",
        ),
    ] = NUMBER_MAX
    waiting_messages_max: Annotated[
        Positive,
        Meta(
            le=NUMBER_MAX,
            description="how many messages may wait for one subscription; on_bound says what "
            "happens then",
        ),
    ] = NUMBER_MAX
    topic_bytes_max: Annotated[
        Bytes, Meta(ge=BODY_BYTES_MAX, description="the bound of one topic")
    ] = 4 * GIB
    on_bound: Annotated[
        OnBound,
        Meta(
            description="what happens at that bound: refuse puts, report the oldest messages as "
            "lost, or let the slowest subscriptions expire"
        ),
    ] = "reject"


SETTINGS: Final = tuple(
    Setting(name=one.name, default=one.default, type=one.type)
    for one in msgspec.structs.fields(Settings)
)
BY_NAME: Final[Mapping[str, Setting]] = {setting.name: setting for setting in SETTINGS}


def resolve(
    command_line: Mapping[str, object],
    file: Mapping[str, Resolved] | None,
    environment: Mapping[str, str],
) -> dict[str, Resolved]:
    """Return the value of highest priority for each setting, in the order of the table.

    Args:
        command_line: by setting name, text or already parsed; None means "not given".
        file: from `parse_settings_json` or `settings_from_document`.
        environment: all variables of the process; only those of the table are read.

    Raises:
        ConfigurationError: all problems, one line for each value, naming flag or variable.
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
    """Convert the values of `resolve` to `Settings`."""
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
        problems.append(f"{where}: {refused(value, setting.type, expects=setting.expected)}")
    else:
        taken[setting.name] = Resolved(parsed, origin)


def _parse(setting: Setting, value: object, *, from_text: bool) -> Value | None:
    """Return the value of a setting, or None if it is invalid.

    Args:
        from_text: text such as "2.5" is a number, as on the command line; in a file it is not.
    """
    try:
        given = value.strip() if from_text and isinstance(value, str) else value
        parsed: Value = msgspec.convert(given, setting.type, strict=not from_text)
    except msgspec.ValidationError:
        return None
    endpoint = facts(setting.type).get("format") == "endpoint"
    nothing = parsed == setting.default == ""
    return None if endpoint and not nothing and host_of(str(parsed), bind=True) is None else parsed


def _without_double_keys(pairs: Sequence[tuple[str, object]]) -> dict[str, object]:
    mapping: dict[str, object] = {}
    for key, value in pairs:
        if key in mapping:
            raise ValueError(f"key {key!r:.60} is given twice")
        mapping[key] = value
    return mapping


def _refuse_constant(name: str) -> object:
    raise ValueError(f"{name} is not a number that a setting may have")
