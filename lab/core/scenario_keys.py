"""The keys of a scenario, each once: name, kind of value, range, default, meaning.

As `common/core/step_keys.py` is for step files; `scenario_file.py` checks what a type cannot say.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from msgspec import UNSET, Meta, Struct, UnsetType, field

from reliable_pubsub.common.core.fields import SLEEP_S_MAX
from reliable_pubsub.common.core.limits import STEP_MESSAGES_MAX
from reliable_pubsub.common.core.step_keys import (
    STEPS_EXPECTED,
    GetKeys,
    PutKeys,
    SeekKeys,
    SubscribeKeys,
    UnsubscribeKeys,
)

from .scenario import (
    ACK_TIMEOUT_S,
    PATIENCE_S,
    PROXY,
    SEND_RETRIES,
    ByChance,
    Expectation,
    FaultyVariant,
    ScenarioDatabase,
    ScenarioRelay,
)

BYTES_MAX: Final = 2**31

_DURATION: Final = r"[0-9]{1,6}(\.[0-9]{1,6})? ?(ms|s)"
_DURATION_EXPECTED: Final = {"expected": "a duration such as 0.5s, 300ms or 2"}
Duration = (
    Annotated[float, Meta(ge=0, le=SLEEP_S_MAX, title="duration", extra=_DURATION_EXPECTED)]
    | Annotated[str, Meta(pattern=f"^{_DURATION}$", title="duration", extra=_DURATION_EXPECTED)]
)
Targets = (
    Annotated[str, Meta(title="name")]
    | Annotated[list[str], Meta(min_length=1, title="list of names")]
)
Count = Annotated[int, Meta(ge=1, le=STEP_MESSAGES_MAX)]


class TriggerKeys(Struct, kw_only=True, forbid_unknown_fields=True):
    """When a client has put, or got, a number of messages."""

    process: Annotated[str, Meta(description="name of a publisher or subscriber")]
    put: Annotated[Count | UnsetType, Meta(description="of a publisher: messages put")] = UNSET
    get: Annotated[Count | UnsetType, Meta(description="of a subscriber: messages got")] = UNSET


AllOrCount = Annotated[
    Literal["all"] | Count,
    Meta(
        description="messages to get; all (last step only): until everything is put and got, then "
        "the lab stops the subscriber"
    ),
]


class GetAllKeys(GetKeys, kw_only=True, tag="get"):
    """The get of a scenario; the last step may get all."""

    number_of_times: AllOrCount = 1  # type: ignore[assignment]  # wider than in a step file


class ScenarioClientKeys(Struct, kw_only=True, forbid_unknown_fields=True):
    """What publishers and subscribers have in common."""

    id: Annotated[
        str, Meta(description="id of the client, if not its name; two processes may have one")
    ] = ""
    start: (
        Annotated[
            Annotated[
                str,
                Meta(
                    pattern=f"^(subscribed|at once|{_DURATION})$",
                    title="subscribed, at once",
                    examples=["subscribed", "at once", "2s"],
                ),
            ]
            | Annotated[float, Meta(ge=0, le=SLEEP_S_MAX, title="duration")]
            | TriggerKeys,
            Meta(
                extra={
                    "expected": "subscribed, at once, a duration such as 0.5s, 300ms or 2, or "
                    "{process: NAME, put: 20}"
                },
                description="at once (default of subscribers); subscribed: when all subscribers "
                "are (default of publishers); a duration after that; or after {process: "
                "publisher-1, put: 50}",
            ),
        ]
        | UnsetType
    ) = UNSET
    ack_timeout: Annotated[
        Duration, Meta(description="time to wait for an answer; short, so that much happens")
    ] = ACK_TIMEOUT_S
    send_retries: Annotated[int, Meta(ge=0, le=1000, description="how often to ask again")] = (
        SEND_RETRIES
    )


class GetAllFile(Struct, forbid_unknown_fields=True):
    """A step file of a subscriber of a scenario."""

    steps: Annotated[
        list[SubscribeKeys | GetAllKeys | SeekKeys | UnsubscribeKeys],
        Meta(min_length=1, extra=STEPS_EXPECTED),
    ]


class PublisherKeys(ScenarioClientKeys, kw_only=True):
    """A publisher."""

    steps: Annotated[
        Annotated[list[PutKeys], Meta(min_length=1, title="steps")]
        | Annotated[str, Meta(title="name of a file")],
        Meta(description="as in a step file, or the name of one"),
    ]


class SubscriberKeys(ScenarioClientKeys, kw_only=True):
    """A subscriber."""

    steps: Annotated[
        Annotated[
            list[SubscribeKeys | GetAllKeys | SeekKeys | UnsubscribeKeys],
            Meta(min_length=1, title="steps"),
        ]
        | Annotated[str, Meta(title="name of a file")],
        Meta(description="as in a step file, or the name of one"),
    ]
    through: Annotated[str, Meta(description="the relay that it asks, else the proxy")] = PROXY


class EventKeys(Struct, kw_only=True, forbid_unknown_fields=True):
    """A time, `at` or `after`, and one thing that happens to a name, a list, or `everything`.

    Or, with `every`, one of several things again and again.
    """

    at: Annotated[Duration | UnsetType, Meta(description="delay after all are subscribed")] = UNSET
    after: Annotated[
        TriggerKeys | UnsetType,
        Meta(description="when a client has put or got this many: {process: publisher-1, put: 40}"),
    ] = UNSET
    kill: Annotated[
        Targets | UnsetType, Meta(description="kill -9; then the same command is started again")
    ] = UNSET
    stop: Annotated[
        Targets | UnsetType,
        Meta(description="SIGSTOP: it stops running, and keeps everything it holds"),
    ] = UNSET
    continue_: Annotated[Targets | UnsetType, Meta(description="SIGCONT")] = field(
        name="continue", default=UNSET
    )
    restart: (
        Annotated[
            Annotated[str, Meta(title="name")]
            | Annotated[list[str], Meta(min_length=1, title="list of names")]
            | Annotated[float, Meta(ge=0, le=SLEEP_S_MAX, title="duration")],
            Meta(
                description="SIGTERM if it runs, and start; with kill or rollback the time until "
                "the next start (default 0.5s), or never"
            ),
        ]
        | UnsetType
    ) = UNSET
    cut: Annotated[
        Targets | UnsetType,
        Meta(
            description="close the connections of a client or relay to the node above, for "
            "requests and pushes, and refuse new ones"
        ),
    ] = UNSET
    cut_push: Annotated[
        Targets | UnsetType,
        Meta(
            description="the same for the connection over which messages are pushed to a "
            "subscriber (push: true in its step) or a relay; requests still pass"
        ),
    ] = UNSET
    half_open: Annotated[
        Targets | UnsetType, Meta(description="requests of the client arrive, answers do not")
    ] = UNSET
    delay: Annotated[
        Targets | UnsetType,
        Meta(
            description="requests on connections that are open now arrive later (`by`), even "
            "when the client has given up; new connections are quick"
        ),
    ] = UNSET
    slow: Annotated[Targets | UnsetType, Meta(description="at most bytes_per_s passes")] = UNSET
    heal: Annotated[Targets | UnsetType, Meta(description="the link works again")] = UNSET
    fill_disk: Annotated[
        Targets | UnsetType,
        Meta(
            description="the proxy gets a disk of 32 MiB, and it is filled; needs user "
            "namespaces, else exit code 2"
        ),
    ] = UNSET
    free_disk: Annotated[Targets | UnsetType, Meta(description="space on that disk again")] = UNSET
    backup: Annotated[Targets | UnsetType, Meta(description="copy the data of the proxy")] = UNSET
    rollback: Annotated[
        Targets | UnsetType, Meta(description="kill the proxy, put the copy back, start")
    ] = UNSET
    lasts: Annotated[
        Duration | UnsetType,
        Meta(
            description="with stop, cut, cut_push, half_open, delay, slow, fill_disk: taken "
            "back after this long"
        ),
    ] = field(name="for", default=UNSET)
    by: Annotated[Duration | UnsetType, Meta(description="with delay: how much later")] = UNSET
    after_bytes: (
        Annotated[
            int,
            Meta(
                ge=0, le=BYTES_MAX, description="with cut: let this many bytes of a request through"
            ),
        ]
        | UnsetType
    ) = UNSET
    bytes_per_s: Annotated[int, Meta(ge=1, le=BYTES_MAX, description="with slow")] | UnsetType = (
        UNSET
    )
    to: Annotated[
        Literal["backup", "start"],
        Meta(description="with rollback: the newest copy, or that of the beginning"),
    ] = "backup"
    every: Annotated[
        Duration | UnsetType, Meta(description="one of these repeatedly, this far apart")
    ] = UNSET
    random: (
        Annotated[
            ByChance | Annotated[list[ByChance], Meta(min_length=1, title="a list of these")],
            Meta(description="with every: what may happen; the seed decides"),
        ]
        | UnsetType
    ) = UNSET
    until: Annotated[Duration | UnsetType, Meta(description="with every: the end of it")] = UNSET
    of: Annotated[
        Targets | UnsetType, Meta(description="with every: to whom; default: any process")
    ] = UNSET


class ScenarioKeys(Struct, kw_only=True, forbid_unknown_fields=True):
    """A scenario."""

    title: Annotated[
        str,
        Meta(
            min_length=1,
            description="one sentence",
            extra={"expected": "a sentence that says what happens"},
        ),
    ]
    publishers: Annotated[
        dict[str, PublisherKeys],
        Meta(description="by name", extra={"expected": "publishers by name, each with its steps"}),
    ] = {}
    subscribers: Annotated[
        dict[str, SubscriberKeys],
        Meta(description="by name", extra={"expected": "subscribers by name, each with its steps"}),
    ] = {}
    relays: Annotated[
        dict[str, ScenarioRelay],
        Meta(
            description="by name: relay-1: {} for an ordinary one",
            extra={"expected": "relays by name"},
        ),
    ] = {}
    proxy: Annotated[
        dict[str, Any], Meta(description="settings of the proxy, such as durability: os")
    ] = {}
    database: Annotated[
        ScenarioDatabase | UnsetType,
        Meta(
            description="two proxies, proxy and proxy-2, share a PostgreSQL server of this run; "
            "database: {} for one without a copy; needs PostgreSQL, else exit code 2"
        ),
    ] = UNSET
    events: Annotated[
        list[
            Annotated[
                EventKeys, Meta(extra={"expected": "a mapping such as {at: 1s, kill: proxy}"})
            ]
        ],
        Meta(description="what happens", extra={"expected": "a list of events"}),
    ] = []
    expect: Annotated[Expectation | UnsetType, Meta(description="how it ends")] = UNSET
    seed: Annotated[
        int, Meta(ge=0, le=BYTES_MAX, description="for events at random; --seed wins")
    ] = 1
    fault: Annotated[
        FaultyVariant | UnsetType, Meta(description="a fault of the product that is switched on")
    ] = UNSET
    patience: Annotated[
        Duration,
        Meta(
            description="give up after this long without progress; time in which a process waits "
            "for a core does not count"
        ),
    ] = PATIENCE_S
