"""What the rights of a key mean for the state: the topics of a COMMIT, and those that are shown."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import UNSET
from msgspec.structs import replace

from reliable_pubsub.common.core.interest_messages import Subscriptions
from reliable_pubsub.common.core.requests import AnyRequest
from reliable_pubsub.common.core.status import Status, StatusReport
from reliable_pubsub.common.core.transaction_messages import Commit
from reliable_pubsub.relay.core.messages import Interest, Node
from reliable_pubsub.relay.core.needs import Need
from reliable_pubsub.relay.core.rights import Shown

from .interests import subscriptions
from .records import Decision
from .state import State
from .status_report import status


def needs_of_staged(state: State, request: AnyRequest | Interest | Node) -> Iterator[Need]:
    """A COMMIT needs the right to put to each topic that it names by its staged batches.

    Another key with the same id may have staged them, and rights may have changed since.
    """
    if not isinstance(request, Commit):
        return
    one = state.staging.of(request.client, request.transaction)
    staged = (batch for part in request.parts for batch in one.batches(part) or ())
    for topic in {batch.topic: None for batch in staged}:
        yield Need("put", topic)


def part_of(state: State, request: AnyRequest, now_ns: int, shown: Shown) -> Decision:
    """SUBSCRIPTIONS or a STATUS of some topics, without the figures of the whole proxy."""
    if isinstance(request, Subscriptions):
        return subscriptions(state, request, b"", now_ns, shown)
    assert isinstance(request, Status)
    report = status(state, request, b"", now_ns, shown).reply
    assert isinstance(report, StatusReport)
    return Decision(replace(report, sessions_count=0, staging=UNSET))
