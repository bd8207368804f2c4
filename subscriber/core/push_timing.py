"""`PushTiming`: when a subscriber pulls although it receives pushes. Pure."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from reliable_pubsub.common.core.arguments import check_fields
from reliable_pubsub.common.core.message_base import Positive

SilenceS = Annotated[float, Meta(gt=0, le=86_400)]


class PushTiming(Struct, frozen=True, kw_only=True):
    """When a subscriber pulls although it receives pushes."""

    silence_s_min: SilenceS = 0.05  # the shortest silence after which it asks
    silence_s_max: SilenceS = 5.0  # the longest
    tell_s: SilenceS = 1.0  # a cursor that moved is sent to the proxy within this time
    misses_max: Positive = 3  # in a row: then pushing counts as failed

    def __post_init__(self) -> None:
        check_fields(self)
