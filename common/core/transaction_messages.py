"""STAGE, COMMIT, ABORT: batches of several topics that become visible together, or never."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from .limits import TRANSACTION_TASKS_MAX
from .message_base import (
    Count,
    Crc32,
    Natural,
    Nonce,
    Positive,
    Reply,
    Request,
    TopicField,
)


class Stage(Request, frozen=True, kw_only=True, tag="STAGE"):
    """Stage one batch (the body frame) of a transaction; it is not visible before COMMIT.

    Answered by STAGE_ACK, COMMIT_ACK (the transaction is over), STAGE_LOST, CONFLICT, FENCED, LIMIT
    or FULL.

    Needs a session of its writer, of any epoch: what is staged has no effect, and the tasks
    of a writer may run on many machines. A second copy of a batch changes nothing.
    """

    transaction: Positive  # the writer's own number, growing, not dense
    task: Natural  # a part of the writer's work; its batches are contiguous in the log
    attempt: Nonce  # per try of the task: only one of them is named in COMMIT
    chunk: Natural  # 0, 1, 2, ... within the attempt
    topic: TopicField
    count: Count  # messages in the batch
    crc: Crc32  # CRC-32 of the body frame
    first_sequence: Positive | None = None  # as in PUT; None: the proxy numbers it, at COMMIT


class Part(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The staged batches of one task."""

    task: Natural
    attempt: Nonce
    chunks: Positive  # batches


class Commit(Request, frozen=True, kw_only=True, tag="COMMIT"):
    """Make exactly these staged batches visible, in all their topics at once, one time.

    Answered by COMMIT_ACK, STAGE_LOST, GAP, CONFLICT, FENCED, LIMIT, FULL or STORAGE_FULL.
    """

    transaction: Positive
    parts: Annotated[tuple[Part, ...], Meta(max_length=TRANSACTION_TASKS_MAX)]  # in log order
    digest: Nonce | None = None  # of the content; a repeat with another one is CONFLICT


class Abort(Request, frozen=True, kw_only=True, tag="ABORT"):
    """Drop the staged batches of a transaction: idempotent; a committed one stays.

    Answered by ABORT_ACK, COMMIT_ACK (too late) or FENCED.
    """

    transaction: Positive


class StageAck(Reply, frozen=True, kw_only=True, tag="STAGE_ACK"):
    """The batch is staged: in memory, until COMMIT, ABORT, or the end of this proxy."""


class TopicReceipt(Struct, frozen=True):
    """The messages of a transaction in one topic; they are contiguous."""

    topic: str
    first_sequence: int
    count: int
    offset: int  # of the first


class CommitAck(Reply, frozen=True, kw_only=True, tag="COMMIT_ACK"):
    """The transaction is stored, whole."""

    already: bool  # an earlier request had done it
    receipts: tuple[TopicReceipt, ...] | None  # None: not kept, because a later one is stored


class AbortAck(Reply, frozen=True, kw_only=True, tag="ABORT_ACK"):
    """Nothing is staged for the transaction."""

    dropped: int  # batches
