"""Retention topic by topic: the `topics:` part of the proxy's settings file (rule R17).

history_bytes: 268435456        # for every topic
topics:
  telemetry:                    # for this one
    on_bound: lose_oldest
    topic_bytes_max: 67108864
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from msgspec.structs import replace

from .core import names
from .core.components import TOPIC_SETTINGS as TOPIC_SETTINGS
from .core.errors import ConfigurationError, InvalidNameError
from .core.resolving import Resolved, settings_from_document
from .core.wording import did_you_mean, key_in_words

if TYPE_CHECKING:
    from .yaml_file import Document, KeyPath


def split_document(
    document: Document,
) -> tuple[dict[str, Resolved], dict[str, dict[str, Resolved]]]:
    """Split a document into general settings and those of single topics.

    Raises:
        ConfigurationError: file, line, key, what was expected.
    """
    if not isinstance(document.data, dict) or "topics" not in document.data:
        return settings_from_document(document), {}
    rest = {name: value for name, value in document.data.items() if name != "topics"}
    topics = document.data["topics"]
    if not isinstance(topics, dict):
        raise ConfigurationError(
            f"{document.path}, line {document.line_of(('topics',))}, topics: expected topic names, "
            "each with its settings"
        )
    key_lines, value_lines = map(_by_topic, (document.key_lines, document.value_lines))
    return (
        settings_from_document(replace(document, data=rest)),
        {
            str(topic): _of_topic(document, str(topic), key_lines[topic], value_lines[topic])
            for topic in topics
        },
    )


def _by_topic(lines: Mapping[KeyPath, int]) -> dict[str, dict[KeyPath, int]]:
    """The lines of each topic, with paths as in a separate file."""
    found: dict[str, dict[KeyPath, int]] = {}
    for path, line in lines.items():
        if len(path) > 1 and path[0] == "topics":
            found.setdefault(str(path[1]), {})[path[2:]] = line
    return found


def _of_topic(
    document: Document,
    topic: str,
    key_lines: Mapping[KeyPath, int],
    value_lines: Mapping[KeyPath, int],
) -> dict[str, Resolved]:
    """The settings of one topic, checked as if they were in a separate file."""
    path = ("topics", topic)
    where = f"{document.path}, line {document.key_line_of(path)}, topics.{key_in_words(topic)}"
    try:
        names.exact(topic)
    except InvalidNameError as error:
        raise ConfigurationError(f"{where}: {error}") from error
    assert isinstance(document.data, dict)
    data = document.data["topics"][topic]
    for name in data if isinstance(data, dict) else ():
        if name not in TOPIC_SETTINGS:
            line = document.key_line_of((*path, name))
            raise ConfigurationError(
                f"{document.path}, line {line}, topics.{key_in_words(topic)}.{key_in_words(name)}: "
                "not a setting of a topic"
                f"{did_you_mean(str(name), TOPIC_SETTINGS)}; expected {', '.join(TOPIC_SETTINGS)}"
            )
    return settings_from_document(
        replace(document, data=data, key_lines=key_lines, value_lines=value_lines)
    )
