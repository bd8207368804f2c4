"""Requests about the push tree, which have a form of their own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from reliable_pubsub.common.core.errors import MalformedError
from reliable_pubsub.relay.core.wire import decode_node_request, is_for_node

from ..access.admission import is_denied
from ..core.batches import LogBatch
from ..core.feature import Arrival, Feature, Runtime
from ..core.replies import malformed, too_many
from ..core.state import Hooks, State
from ..core.stored import StoredState
from .pushes import Pushes


def node_asked(engine: Runtime, frames: Sequence[bytes], arrival: Arrival) -> bool:
    """Answer a request about the push tree."""
    if arrival.role != "subscriber" or not is_for_node(frames):
        return False
    state, reply_to, key = engine.state, arrival.reply_to, arrival.key
    try:
        request = decode_node_request(frames)
    except MalformedError as error:
        engine.answer(reply_to, malformed(state, str(error)))
        return True
    if arrival.excess is not None:
        engine.answer(reply_to, too_many(state, request, arrival.excess))
    elif not is_denied(engine, request, reply_to, key):
        may_all = state.authority.gets_everything(key)
        heard_s = state.setup.attention.at(arrival.now_s)
        engine.has_turn_work = True
        reply = state.kept(Pushes).answer(request, heard_s, key=key, may_get_all=may_all)
        engine.answer(reply_to, reply)
    return True


def begin(state: State, _stored: StoredState) -> None:
    """Have no links, if the shell has given none."""
    if Pushes not in state.setup.kept:
        state.setup.kept.add(Pushes(boot=state.boot))


def take(engine: Runtime, batches: Sequence[LogBatch]) -> None:
    """Queue what can be read from now on for the links that want it."""
    pushes = engine.state.kept(Pushes)
    if not pushes.is_used:
        return
    for batch in batches:
        log = engine.state.topic_by_id[batch.topic_id]
        pushes.take(log.topic, log.log, batch)
    engine.has_turn_work |= pushes.is_turn_due


def turn(engine: Runtime) -> bool:
    """Push some of what is queued; return whether more is."""
    pushes = engine.state.kept(Pushes)
    engine.outputs.extend(pushes.turn())
    return pushes.is_turn_due


def revoke(engine: Runtime, keys: frozenset[str]) -> None:
    """Forget the links of keys whose rights have changed."""
    engine.state.kept(Pushes).revoke(keys)


FEATURE: Final = Feature(
    name="push",
    foreign=node_asked,
    visible=take,
    turn=turn,
    governed=revoke,
    hooks=Hooks(restore=[begin]),
)
