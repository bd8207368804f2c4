"""How far a query is, as the JSON that Spark keeps in its checkpoint.

    {"topics": {"a": {"log": "9b1c7e22d04f5a36.1", "offset": 10, "witness_ns": 17...}}, "v": 1}

The log id tells a topic that was created again; the witness tells a log that was set back and has
grown again. Spark compares offsets as text, so keys come in order, and two calls that mean the
same write the same text. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec
from msgspec import Struct

from reliable_pubsub.common.core.errors import RefusedError
from reliable_pubsub.common.core.schemas import convert

VERSION: Final = 1


class TopicOffset(Struct, frozen=True, omit_defaults=True):
    """A place in one topic: everything below `offset` is read."""

    log: str  # log id that the offset refers to
    offset: int
    witness_ns: int | None = None  # timestamp of the batch that holds offset - 1
    first: int | None = None  # where reading began, in the batch that met the topic


Offsets = Mapping[str, TopicOffset]  # by topic


def to_json(offsets: Offsets) -> dict[str, Any]:
    """Plain values, the same text for the same offsets."""
    topics = {topic: msgspec.to_builtins(offsets[topic]) for topic in sorted(offsets)}
    return {"topics": topics, "v": VERSION}


def from_json(value: Mapping[str, Any]) -> dict[str, TopicOffset]:
    """Read what `to_json` wrote.

    Raises:
        RefusedError: a checkpoint of another version, or of another source.
    """
    try:
        if value["v"] != VERSION:
            raise RefusedError(
                f"the checkpoint has offsets of version {value['v']}, this program reads {VERSION}"
            )
        return convert(value["topics"], dict[str, TopicOffset])
    except (KeyError, TypeError, msgspec.ValidationError) as error:
        raise RefusedError(
            f"the checkpoint has offsets that are not of this source: {value!r:.200}"
        ) from error
