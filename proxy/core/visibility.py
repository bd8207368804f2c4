"""What the rights of a key mean for the state: the topics of a COMMIT, and those that are shown."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from msgspec import UNSET
from msgspec.structs import replace

from reliable_pubsub.common.access.core.authorisation import ShownTopics
from reliable_pubsub.common.access.core.needs import Need
from reliable_pubsub.common.core.interest_messages import Subscriptions
from reliable_pubsub.common.core.requests import AnyRequest
from reliable_pubsub.common.core.status import Status, StatusReport
from reliable_pubsub.common.core.transaction_messages import Commit
from reliable_pubsub.common.core.tree_messages import InterestRequest, Node

from .account_status import with_uses
from .broker import without_waiting
from .interests import subscriptions
from .records import Decision
from .state import State
from .status_report import status

if TYPE_CHECKING:
    from .engine import Engine


def needs_of_staged(state: State, request: AnyRequest | InterestRequest | Node) -> Iterator[Need]:
    """A COMMIT needs the right to put to each topic that it names by its staged batches.

    Another key with the same id may have staged them, and rights may have changed since.
    """
    if not isinstance(request, Commit):
        return
    one = state.staging.of(request.client, request.transaction)
    staged = (batch for part in request.parts for batch in one.batches(part) or ())
    for topic in {batch.topic: None for batch in staged}:
        yield Need("put", topic)


def part_of(
    engine: Engine, request: AnyRequest, key: str, now_ns: int, shown: ShownTopics
) -> Decision:
    """SUBSCRIPTIONS or a STATUS of what a key may be shown, without figures of the whole proxy."""
    state = engine.state
    if isinstance(request, Subscriptions):
        part = subscriptions(state, request, b"", now_ns, shown)
    else:
        assert isinstance(request, Status)
        report = status(state, request, b"", now_ns, shown).reply
        assert isinstance(report, StatusReport)
        uses = engine.uses(state.authority.name_of(key, request))
        part = Decision(with_uses(request, replace(report, sessions_count=0, staging=UNSET), uses))
    return without_waiting(state, request, part) if engine.disk_hangs else part
