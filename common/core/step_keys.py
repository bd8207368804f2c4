"""The keys of a step file, each once: name, kind of value, range, default, meaning.

These types are what a person writes. msgspec checks a file with them (`fields.py`), and the help of
the commands, the tables of docs/reference/keys.md and the JSON Schema for editors are made of them
(`key_tables.py`). Rules that a type cannot express, such as "one of message and message_file", are
checked by `step_file.py`. Defaults are those of the steps (`steps.py`).
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

from msgspec import UNSET, Meta, Struct, UnsetType, field

from .fields import SLEEP_S_MAX
from .limits import (
    BATCH_MESSAGES_MAX,
    DELIVERIES_MAX,
    DELIVERY_SUBSCRIBERS_MAX,
    LEASE_MS_MAX,
    PATTERN_CHARS_MAX,
    PREDICATE_CHARS_MAX,
    STEP_MESSAGES_MAX,
    TOPIC_BYTES_MAX,
)
from .message_base import DelayS, QoS, SessionKind
from .steps import OnEmpty, PublisherStep, Settles, SubscriberStep, Wait

STEPS_EXPECTED: Final = {"expected": "a list of steps"}
_PUT: Final = PublisherStep(topic="")
_GET: Final = SubscriberStep(action="get", topic="")

Topic = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=TOPIC_BYTES_MAX,
        extra={
            "expected": f"the name of a topic, 1 to {TOPIC_BYTES_MAX} bytes of UTF-8 without "
            "control characters"
        },
    ),
]
MatchKey = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=PATTERN_CHARS_MAX,
        description="a glob: all topics that it matches, now and later",
        extra={"expected": "a glob of topics, such as sensor/*/heat"},
    ),
]
SleepS = Annotated[float, Meta(ge=0, le=SLEEP_S_MAX, extra={"unit": "s"})]
Timeout = Annotated[float, Meta(gt=0, le=SLEEP_S_MAX, extra={"unit": "s"})]
Times = Annotated[int, Meta(ge=1, le=STEP_MESSAGES_MAX)]
BatchSize = Annotated[int, Meta(ge=1, le=BATCH_MESSAGES_MAX)]
QoSLevel = Annotated[
    QoS,
    Meta(
        description="0 at most once, 1 at least once, 2 exactly once",
        extra={"expected": "0 (at most once), 1 (at least once) or 2 (exactly once)"},
    ),
]


class PutKeys(Struct, kw_only=True, forbid_unknown_fields=True):
    """A step of a publisher: put a message, or the lines of a file, a number of times."""

    topic: Annotated[Topic, Meta(description="where to put")]
    message: Annotated[str | UnsetType, Meta(description="text to put; this or message_file")] = (
        UNSET
    )
    message_file: (
        Annotated[
            str,
            Meta(
                pattern=r"^[^\0]+$",
                description="file next to the step file, one message per line, taken as it is",
                extra={"expected": "the path of a file with one message in each line"},
            ),
        ]
        | UnsetType
    ) = UNSET
    number_of_times: Annotated[
        Times, Meta(description="how often to put the message, or the whole file")
    ] = _PUT.number_of_times
    sleep_between_messages: Annotated[SleepS, Meta(description="seconds between requests")] = (
        _PUT.sleep_between_messages_s
    )
    sleep_after: Annotated[SleepS, Meta(description="seconds after the last request")] = (
        _PUT.sleep_after_s
    )
    batch: Annotated[BatchSize, Meta(description="messages in one request, at most")] = _PUT.batch
    numbered: Annotated[
        bool | UnsetType,
        Meta(
            description="append _1, _2, ... to the message; default true, with a file always false"
        ),
    ] = UNSET
    qos: QoSLevel = 2
    wait: Annotated[
        Wait,
        Meta(description="delivered: each put waits until subscribers have acknowledged it"),
    ] = _PUT.wait
    acknowledged_by: Annotated[
        Literal["all"] | Annotated[int, Meta(ge=1, le=DELIVERY_SUBSCRIBERS_MAX)],
        Meta(description="with wait: delivered: how many subscribers have to acknowledge"),
    ] = _PUT.acknowledged_by
    timeout: Annotated[
        Timeout, Meta(description="with wait: delivered: seconds to wait for them")
    ] = _PUT.timeout_s


class SubscribeKeys(
    Struct, kw_only=True, forbid_unknown_fields=True, tag_field="action", tag="subscribe"
):
    """A step of a subscriber: subscribe, or resume a subscription."""

    topic: Annotated[Topic | UnsetType, Meta(description="what to subscribe to; this or match")] = (
        UNSET
    )
    match: MatchKey | UnsetType = UNSET
    where: (
        Annotated[
            str,
            Meta(
                min_length=1,
                max_length=PREDICATE_CHARS_MAX,
                description='with match: condition on the headers, such as region = "eu"',
            ),
        ]
        | UnsetType
    ) = UNSET
    start: Annotated[
        str | UnsetType,
        Meta(
            description="where a new subscription begins: now, last, earliest, offset 42, "
            "newest 10, time 2026-11-01T12:00:00Z, age 1h; an existing one resumes (see seek); "
            "default: now"
        ),
    ] = field(name="from", default=UNSET)
    qos: QoSLevel = 2
    session: Annotated[
        SessionKind, Meta(description="clean ends with this process, or when its lease does")
    ] = "persistent"
    lease: (
        Annotated[
            float,
            Meta(
                ge=0.001,
                le=LEASE_MS_MAX // 1000,
                description="seconds of silence after which the subscription is suspended; "
                "default: none, clean 60; of a group: after which what a member holds comes to "
                "another, default 30",
                extra={"unit": "s"},
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
                description="move a message to <topic>.dead after this many deliveries without "
                "an acknowledgement; default: never",
            ),
        ]
        | UnsetType
    ) = UNSET
    group: Annotated[
        str | UnsetType,
        Meta(
            description="be a member of this group, whose members share the messages; without "
            "qos, session and push"
        ),
    ] = UNSET
    ordered_by: Annotated[
        Literal["key"] | UnsetType,
        Meta(description="with group: of each key one message at a time, in their order"),
    ] = UNSET
    sleep_after: Annotated[SleepS, Meta(description="seconds after it")] = _GET.sleep_after_s


class GetKeys(Struct, kw_only=True, forbid_unknown_fields=True, tag_field="action", tag="get"):
    """A step of a subscriber: get messages."""

    topic: Annotated[
        Topic | UnsetType, Meta(description="where to get messages from; this or match")
    ] = UNSET
    match: MatchKey | UnsetType = UNSET
    number_of_times: Annotated[Times, Meta(description="messages to get, not attempts")] = (
        _GET.number_of_times
    )
    sleep_between: Annotated[
        SleepS,
        Meta(
            description="seconds between gets; in a group, what the last one gave is held meanwhile"
        ),
    ] = _GET.sleep_between_s
    sleep_between_messages: Annotated[
        SleepS | UnsetType, Meta(description="the same as sleep_between")
    ] = UNSET
    sleep_after: Annotated[SleepS, Meta(description="seconds after the last one")] = (
        _GET.sleep_after_s
    )
    batch: Annotated[BatchSize, Meta(description="messages to get at once, at most")] = _GET.batch
    on_empty: Annotated[
        OnEmpty,
        Meta(description="skip: a get that finds nothing counts as done"),
    ] = _GET.on_empty
    timeout: Annotated[
        Timeout | UnsetType,
        Meta(
            description="seconds that one get may wait; default: no end",
            extra={
                "expected": f"seconds above 0, at most {SLEEP_S_MAX:,}; leave it out to wait "
                "forever"
            },
        ),
    ] = UNSET
    settle: Annotated[
        Settles,
        Meta(
            description="in a group: ack with the next get, once written; nack gives the messages "
            "back, reject makes dead letters of them, and neither writes them"
        ),
    ] = _GET.settle
    delay: Annotated[
        DelayS,
        Meta(
            description="with settle: nack: seconds before they are redelivered",
            extra={"unit": "s"},
        ),
    ] = _GET.delay_s


class SeekKeys(Struct, kw_only=True, forbid_unknown_fields=True, tag_field="action", tag="seek"):
    """A step of a subscriber that moves an existing subscription."""

    topic: Annotated[
        Topic | UnsetType, Meta(description="the topic of the subscription; this or match")
    ] = UNSET
    match: MatchKey | UnsetType = UNSET
    start: Annotated[
        str,
        Meta(
            description="where to move the subscription, as in subscribe; redelivered "
            "messages are marked, and skipped ones are not delivered"
        ),
    ] = field(name="from")
    sleep_after: Annotated[SleepS, Meta(description="seconds after it")] = _GET.sleep_after_s


class UnsubscribeKeys(
    Struct, kw_only=True, forbid_unknown_fields=True, tag_field="action", tag="unsubscribe"
):
    """A step of a subscriber: end a subscription."""

    topic: Annotated[
        Topic | UnsetType, Meta(description="what to unsubscribe from; this or match")
    ] = UNSET
    match: MatchKey | UnsetType = UNSET
    ends_group: Annotated[
        bool, Meta(description="of a group: end it for all members, not only for this one")
    ] = _GET.ends_group
    sleep_after: Annotated[SleepS, Meta(description="seconds after it")] = _GET.sleep_after_s


class PublisherFile(Struct, forbid_unknown_fields=True):
    """A step file of a publisher."""

    steps: Annotated[
        list[PutKeys],
        Meta(
            min_length=1, description="one after the other", extra={"expected": "a list of steps"}
        ),
    ]


AnySubscriberKeys = SubscribeKeys | GetKeys | SeekKeys | UnsubscribeKeys


class SubscriberFile(Struct, forbid_unknown_fields=True):
    """A step file of a subscriber."""

    steps: Annotated[
        list[AnySubscriberKeys],
        Meta(
            min_length=1, description="one after the other", extra={"expected": "a list of steps"}
        ),
    ]
