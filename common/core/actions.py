"""ADMIN: what an operator may ask for, and what it does."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from .limits import (
    PAUSE_REASON_CHARS_MAX,
)
from .message_base import (
    ClientField,
    Natural,
    Nonce,
    Reply,
    Request,
    Role,
    Start,
    SubscriptionField,
    TopicField,
)


class Action(Struct, frozen=True, kw_only=True, tag_field="action", forbid_unknown_fields=True):
    """What an operator asks for in ADMIN."""


class EndSubscription(Action, frozen=True, kw_only=True, tag="end_subscription"):
    """End a subscription, as UNSUB does; or a group, for all its members."""

    topic: TopicField
    subscriber: SubscriptionField


class ForgetClient(Action, frozen=True, kw_only=True, tag="forget_client"):
    """Forget an id: its subscriptions end, and its session, or its numbers, are removed."""

    role: Role
    of: ClientField  # the id


class Truncate(Action, frozen=True, kw_only=True, tag="truncate"):
    """Remove the messages of a topic before a place, in whole batches."""

    topic: TopicField
    start: Start  # the first message to keep; `last` means nothing here


class DeleteTopic(Action, frozen=True, kw_only=True, tag="delete_topic"):
    """Remove the messages of a topic, and end its subscriptions and groups.

    Its name, its end and the numbers of its publishers stay: a repeated put is still a DUPLICATE,
    and if a put or a subscribe creates the topic again, its offsets continue.
    """

    topic: TopicField


class Skip(Action, frozen=True, kw_only=True, tag="skip"):
    """Move a subscription past messages, for which its subscriber gets LOST."""

    topic: TopicField
    subscriber: ClientField
    end: Natural | None = None  # the first offset not to skip; None: past the batch at its cursor


class SetCursor(Action, frozen=True, kw_only=True, tag="set_cursor"):
    """Move a subscription to a place, back or forward."""

    topic: TopicField
    subscriber: ClientField
    start: Start  # where it continues; `last` means nothing here


class Pause(Action, frozen=True, kw_only=True, tag="pause"):
    """Answer PUT, STAGE and COMMIT with BUSY from now on; survives a restart of the proxy."""

    reason: Annotated[str, Meta(max_length=PAUSE_REASON_CHARS_MAX)] = ""  # shown to publishers


class Resume(Action, frozen=True, kw_only=True, tag="resume"):
    """Accept puts again."""


AnyAction = (
    EndSubscription | ForgetClient | Truncate | DeleteTopic | Skip | SetCursor | Pause | Resume
)


class Effect(Struct, frozen=True, kw_only=True):
    """What an action does, or has done; zeros where it has no such effect."""

    first: int = 0  # removed or skipped: offsets first .. end - 1. Moved: from first
    end: int = 0  # to end
    generation: int = 0  # of the subscription, now
    subscriptions: int = 0  # that end, or lose messages


class AdminRequest(Request, frozen=True, kw_only=True, tag="ADMIN"):
    """Look at what an action would do, or do it, exactly once however often it is sent.

    Answered by ADMIN_ACK, STALE, NOT_POSSIBLE, TRUNCATED, MALFORMED or STORAGE_FULL. Needs no
    session (`epoch` is ignored).

    The proxy numbers actions without gaps. The answer to a look has the next number; the same
    action with that number and a nonce does it. It is STALE if another one has taken the number.
    """

    do: AnyAction
    number: Natural = 0  # of this action; 0: only look
    nonce: Nonce | None = None  # random, for each action that is done; every copy repeats it


class AdminAck(Reply, frozen=True, kw_only=True, tag="ADMIN_ACK"):
    """The action is done, durably; after a look, what it would do."""

    number: int  # of the action; after a look, the next one
    done: bool  # False: it was only looked at, or there was nothing to do
    already: bool  # done: by an earlier copy; else: there is nothing to do
    effect: Effect
