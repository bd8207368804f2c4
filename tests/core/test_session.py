"""What both clients make of the answers of a proxy."""

from __future__ import annotations

from typing import Any, TypeVar

import pytest

from reliable_pubsub.common.core.answers import (
    AnyReply,
    Conflict,
    Fenced,
    Gap,
    HelloAck,
    Limit,
    LogChanged,
    NotSub,
    PutAck,
    Stale,
)
from reliable_pubsub.common.core.conversation import Conversation
from reliable_pubsub.common.core.errors import (
    ConflictError,
    FencedError,
    LimitError,
    LogChangedError,
    NotSubscribedError,
    RefusedError,
    StaleError,
)
from reliable_pubsub.common.core.session import claim_epoch, is_forgotten, refusal

T = TypeVar("T")
WHO: dict[str, Any] = {"client": "c", "epoch": 3, "request": 1}


def result(conversation: Conversation[T]) -> T:
    """The result of a conversation without effects."""
    with pytest.raises(StopIteration) as end:
        next(conversation)
    value: T = end.value.value
    return value


@pytest.mark.parametrize(
    ("reply", "kind"),
    [
        (Fenced(**WHO, text="", current_epoch=4), FencedError),
        (Conflict(**WHO, text="", first_sequence=1, count=1), ConflictError),
        (Gap(**WHO, text="", expected=2), LogChangedError),
        (LogChanged(**WHO, text="", topic="t", log="", start=0, end=0), LogChangedError),
        (NotSub(**WHO, text=""), NotSubscribedError),
        (Stale(**WHO, text=""), StaleError),
        (Limit(**WHO, text="", limit=1), LimitError),
        (PutAck(**WHO, offset=0), RefusedError),
    ],
)
def test_each_definite_no_is_an_error_of_its_own(reply: AnyReply, kind: type[RefusedError]) -> None:
    assert type(refusal(reply, client="c", epoch=3)) is kind


def test_an_epoch_is_asked_for_above_the_one_that_fences() -> None:
    asked: list[int] = []

    def hello(epoch: int) -> Conversation[AnyReply]:
        asked.append(epoch)
        if epoch <= 7:
            return Fenced(**WHO, text="", current_epoch=7)
        return HelloAck(**WHO)
        yield

    assert result(claim_epoch(2, hello, client="c")) == 8
    assert asked == [3, 8]


def test_a_proxy_that_knows_much_less_is_asked_for_the_next_epoch_that_it_grants() -> None:
    """Ours comes from another data directory, and is further above than a HELLO may ask."""
    asked: list[int] = []

    def hello(epoch: int) -> Conversation[AnyReply]:
        asked.append(epoch)
        return HelloAck(**WHO) if epoch == 3 else Fenced(**WHO, text="", current_epoch=2)
        yield

    assert result(claim_epoch(5_000_000, hello, client="c")) == 3
    assert asked == [5_000_001, 3]


def test_an_epoch_that_may_have_been_granted_is_asked_for_again() -> None:
    def hello(epoch: int) -> Conversation[AnyReply]:
        return HelloAck(**WHO)
        yield

    assert result(claim_epoch(2, hello, asked_epoch=5, client="c")) == 5
    assert result(claim_epoch(5, hello, asked_epoch=5, client="c")) == 6


def test_a_proxy_that_fences_with_an_older_epoch_has_forgotten_us() -> None:
    assert is_forgotten(Fenced(**WHO, text="", current_epoch=2), 3)
    assert not is_forgotten(Fenced(**WHO, text="", current_epoch=4), 3)
    assert not is_forgotten(HelloAck(**WHO), 3)
