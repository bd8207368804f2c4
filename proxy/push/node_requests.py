"""Requests about the push tree, which have a form of their own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from reliable_pubsub.common.core.errors import MalformedError
from reliable_pubsub.relay.core.wire import decode_node_request, is_for_node

from ..access.admission import is_denied
from ..core.feature import Arrival, Feature
from ..core.replies import malformed, too_many


def node_asked(engine: Any, frames: Sequence[bytes], arrival: Arrival) -> bool:
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
        reply = engine.pushes.answer(request, heard_s, key=key, may_get_all=may_all)
        engine.answer(reply_to, reply)
    return True


FEATURE: Final = Feature(name="push", foreign=node_asked)
