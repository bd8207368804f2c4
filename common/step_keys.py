"""The keys of a step file, each once: name, kind of value, range, default, meaning.

These types describe what a person writes. The help of the commands, the tables of docs/keys.md and
the JSON Schema that editors complete from are made of them (`key_tables.py`), and `step_file.py`
takes the names of the keys from here. What a schema cannot say, such as "one of message and
message_file", is checked by `step_file.py`; `tests/core/test_step_keys.py` holds the two together.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

from msgspec import UNSET, Meta, Struct, UnsetType, field
from msgspec.structs import fields

from .fields import SLEEP_S_MAX
from .limits import (
    BATCH_MESSAGES_MAX,
    DELIVERIES_MAX,
    DELIVERY_SUBSCRIBERS_MAX,
    LEASE_MS_MAX,
    STEP_MESSAGES_MAX,
)
from .steps import DELIVERED_S

Topic = Annotated[str, Meta(min_length=1, max_length=255)]
Pause = Annotated[float, Meta(ge=0, le=SLEEP_S_MAX)]
Timeout = Annotated[float, Meta(gt=0, le=SLEEP_S_MAX)]
Times = Annotated[int, Meta(ge=1, le=STEP_MESSAGES_MAX)]
BatchSize = Annotated[int, Meta(ge=1, le=BATCH_MESSAGES_MAX)]
QoSLevel = Annotated[
    Literal[0, 1, 2], Meta(description="0 at most once, 1 at least once, 2 exactly once")
]
ProfileName = Annotated[
    Literal["telemetry", "command", "billing"],
    Meta(description="preset for the other keys; what the step says itself wins"),
]


class PutKeys(Struct, kw_only=True, forbid_unknown_fields=True):
    """A step of a publisher: put a message, or the lines of a file, a number of times."""

    topic: Annotated[Topic, Meta(description="where to put")]
    message: Annotated[str, Meta(description="text to put; this or message_file")] | UnsetType = (
        UNSET
    )
    message_file: (
        Annotated[str, Meta(description="file beside the step file, one message a line, unaltered")]
        | UnsetType
    ) = UNSET
    number_of_times: Annotated[
        Times, Meta(description="how often to put the message, or the whole file")
    ] = 1
    sleep_between_messages: Annotated[Pause, Meta(description="seconds between requests")] = 0
    sleep_after: Annotated[Pause, Meta(description="seconds after the last request")] = 0
    batch: Annotated[BatchSize, Meta(description="messages in one request, at most")] = 1
    numbered: (
        Annotated[
            bool,
            Meta(
                description="append _1, _2, ... to the message; default true, with a file always "
                "false"
            ),
        ]
        | UnsetType
    ) = UNSET
    qos: QoSLevel = 2
    profile: ProfileName | UnsetType = UNSET
    wait: Annotated[
        Literal["stored", "delivered"],
        Meta(description="delivered: each put waits until subscribers have acknowledged it"),
    ] = "stored"
    acknowledged_by: Annotated[
        Literal["all"] | Annotated[int, Meta(ge=1, le=DELIVERY_SUBSCRIBERS_MAX)],
        Meta(description="with wait: delivered: how many subscribers have to acknowledge"),
    ] = "all"
    timeout: Annotated[
        Timeout, Meta(description="with wait: delivered: seconds to wait for them")
    ] = DELIVERED_S


class SubscribeKeys(
    Struct, kw_only=True, forbid_unknown_fields=True, tag_field="action", tag="subscribe"
):
    """A step of a subscriber: subscribe, or resume a subscription."""

    topic: Annotated[Topic, Meta(description="what to subscribe to")]
    start: (
        Annotated[
            str,
            Meta(
                description="where to begin: now, last, earliest, offset 42, newest 10, "
                "time 2026-11-01T12:00:00Z, age 1h; what was acknowledged does not come again; "
                "default: where the subscription stands, or now"
            ),
        ]
        | UnsetType
    ) = field(name="from", default=UNSET)
    replay: Annotated[
        bool,
        Meta(description="begin there also if that was acknowledged: it comes again, marked"),
    ] = False
    qos: QoSLevel = 2
    profile: ProfileName | UnsetType = UNSET
    session: Annotated[
        Literal["persistent", "clean"],
        Meta(description="clean ends with this process, or when its lease does"),
    ] = "persistent"
    lease: (
        Annotated[
            float,
            Meta(
                ge=0.001,
                le=LEASE_MS_MAX // 1000,
                description="seconds of silence after which the subscription is suspended; "
                "default: none, clean 60",
            ),
        ]
        | UnsetType
    ) = UNSET
    push: Annotated[bool, Meta(description="be pushed to, instead of polling")] = False
    max_deliveries: (
        Annotated[
            int,
            Meta(
                ge=1,
                le=DELIVERIES_MAX,
                description="after so many deliveries without an acknowledgement a message "
                "goes to <topic>.dead; default: never",
            ),
        ]
        | UnsetType
    ) = UNSET
    sleep_after: Annotated[Pause, Meta(description="seconds after it")] = 0


class GetKeys(Struct, kw_only=True, forbid_unknown_fields=True, tag_field="action", tag="get"):
    """A step of a subscriber: get messages."""

    topic: Annotated[Topic, Meta(description="where to get messages from")]
    number_of_times: Annotated[Times, Meta(description="messages to get, not attempts")] = 1
    sleep_between: Annotated[Pause, Meta(description="seconds between gets")] = 0
    sleep_between_messages: (
        Annotated[Pause, Meta(description="the same as sleep_between")] | UnsetType
    ) = UNSET
    sleep_after: Annotated[Pause, Meta(description="seconds after the last one")] = 0
    batch: Annotated[BatchSize, Meta(description="messages to get at once, at most")] = 1
    on_empty: Annotated[
        Literal["wait", "skip"],
        Meta(description="skip: a get that finds nothing counts as done"),
    ] = "wait"
    timeout: (
        Annotated[Timeout, Meta(description="seconds that one get may wait; default: no end")]
        | UnsetType
    ) = UNSET


class UnsubscribeKeys(
    Struct, kw_only=True, forbid_unknown_fields=True, tag_field="action", tag="unsubscribe"
):
    """A step of a subscriber: end a subscription."""

    topic: Annotated[Topic, Meta(description="what to unsubscribe from")]
    sleep_after: Annotated[Pause, Meta(description="seconds after it")] = 0


class PublisherFile(Struct, forbid_unknown_fields=True):
    """A step file of a publisher."""

    steps: Annotated[list[PutKeys], Meta(min_length=1, description="one after the other")]


class SubscriberFile(Struct, forbid_unknown_fields=True):
    """A step file of a subscriber."""

    steps: Annotated[
        list[SubscribeKeys | GetKeys | UnsubscribeKeys],
        Meta(min_length=1, description="one after the other"),
    ]


def keys_of(kind: type[Struct]) -> tuple[str, ...]:
    """The keys of a mapping, as they are written."""
    return tuple(one.encode_name for one in fields(kind))


PUBLISHER_KEYS: Final = keys_of(PutKeys)
GET_KEYS: Final = tuple(k for k in keys_of(GetKeys) if k not in keys_of(UnsubscribeKeys))
SUBSCRIBE_KEYS: Final = tuple(
    k for k in keys_of(SubscribeKeys) if k not in keys_of(UnsubscribeKeys)
)
SUBSCRIBER_KEYS: Final = ("action", *keys_of(UnsubscribeKeys), *SUBSCRIBE_KEYS, *GET_KEYS)
