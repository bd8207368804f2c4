"""Every setting in one table: default, range, unit and meaning; `resolving` picks the value."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta, Struct

from .endpoint import ADDRESS_EXAMPLE, ENDPOINT_EXAMPLE
from .limits import (
    BODY_BYTES_MAX,
    CHOSEN_MAX,
    CHOSEN_TOPICS_MAX,
    CONNECTIONS_MAX,
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
from .message_base import Durability
from .retry import RETRIES_MAX
from .wording import expected, facts

Value = int | float | str
OnBound = Literal["reject", "lose_oldest", "expire"]
LogFormat = Literal["text", "json"]
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

    def shown(self, value: object) -> str:
        """A value with its unit, for people."""
        return "no bound" if value == NUMBER_MAX else f"{value} {self.unit}".strip()

    @property
    def help(self) -> str:
        """What the setting is for."""
        return str(facts(self.type)["description"])

    @property
    def expected(self) -> str:
        """What a value has to be, in words."""
        return expected(self.type) + (", or nothing" if self.default == "" else "")


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
Address = Annotated[
    str,
    Meta(title="an address", examples=[ADDRESS_EXAMPLE], extra_json_schema={"format": "address"}),
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
        Annotated[int, Meta(ge=0, le=1000)] | Literal["forever"],
        Meta(
            description="how often a client retries before it reports the outcome as in doubt; "
            "unless it is set, `run` and loops over messages retry until they are stopped"
        ),
    ] = RETRIES_MAX
    publisher_endpoint: Annotated[
        Endpoint,
        Meta(
            description="where publishers reach the proxy; for clients also several, with commas, "
            "that are tried in turn. IPv6 addresses are in brackets; host names mean IPv4"
        ),
    ] = PUBLISHER_ENDPOINT
    subscriber_endpoint: Annotated[
        Endpoint,
        Meta(
            description="where subscribers reach the proxy, or a relay; and where a relay finds "
            "what is above; clients may list several, separated by commas, and try them in turn"
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
    secret_key_readers: Annotated[
        Literal["owner", "group"],
        Meta(
            description="who may read the files of secret_key and metrics_token: their owner, or "
            "also their group. Root's file may always be group-readable"
        ),
    ] = "owner"
    server_key: Annotated[
        KeyPlace,
        Meta(description="the public key of the proxy or relay to talk with, or its file"),
    ] = ""
    clients: Annotated[
        KeyPlace,
        Meta(
            description="whose keys may connect: a folder of .key files, or a YAML file of public "
            "keys and names, with their rights; read again when it changes. Default: any key"
        ),
    ] = ""
    audit_log: Annotated[
        KeyPlace,
        Meta(
            description="the file of requests that were refused for lack of a right. Default: "
            "audit.jsonl in the data directory of a proxy; a relay has none"
        ),
    ] = ""
    metrics_endpoint: Annotated[
        Address,
        Meta(
            description="where a proxy or relay serves /metrics for Prometheus, /healthz and "
            "/readyz over HTTP. Default: nowhere"
        ),
    ] = ""
    metrics_token: Annotated[
        KeyPlace,
        Meta(
            description="the file of a token that /metrics asks for (Authorization: Bearer); "
            "/healthz and /readyz ask for none. Default: no token"
        ),
    ] = ""
    log_format: Annotated[
        LogFormat,
        Meta(
            description="what is written to stderr: paragraphs for people, or one JSON object a "
            "line for programs"
        ),
    ] = "text"
    data_dir: Annotated[Directory, Meta(description="where the proxy keeps its store")] = (
        "proxy-data"
    )
    store: Annotated[
        str,
        Meta(
            pattern=r"^(postgres(ql)?://[^\0]+)?$",
            title="a connection string such as postgresql://user@host/database",
            description="a PostgreSQL database that keeps the log, and that several proxies may "
            "share: one serves, the others stand by. Default: a store of its own in data_dir",
        ),
    ] = ""
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
    topics_max: Annotated[
        Positive,
        Meta(
            le=CHOSEN_TOPICS_MAX,
            description="how many topics a proxy has, without deleted ones",
        ),
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
        Meta(description="how many publishers of a topic are kept, to compare their numbers"),
    ] = PUBLISHERS_PER_TOPIC_MAX
    staged_bytes_max: Annotated[
        Bytes,
        Meta(
            ge=2 * MIB,
            description="bytes in memory of all transactions that are not committed",
        ),
    ] = STAGED_BYTES_MAX
    stored_bytes_max: Annotated[
        Bytes,
        Meta(ge=2 * MIB, description="bytes of messages stored in all topics together"),
    ] = NUMBER_MAX
    connections_max: Annotated[
        Chosen,
        Meta(
            description="how many connections all endpoints of a proxy or relay have together, "
            "silent ones included; further ones are kept out. At most 7 of 8 descriptors that the "
            "process may have"
        ),
    ] = CONNECTIONS_MAX
    connections_per_s_max: Annotated[
        int,
        Meta(
            ge=0,
            le=CHOSEN_MAX,
            description="how many connections come into all of them in a second, and ten times as "
            "many at once; further ones are kept out, and ask again. 0: 100 with keys, 1000 "
            "without",
        ),
    ] = 0
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
