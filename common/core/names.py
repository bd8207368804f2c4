"""The types of names and numbers, each with one meaning, and the checks of names."""

from __future__ import annotations

import re
from typing import NewType

from .errors import InvalidNameError
from .limits import CLIENT_ID_CHARS_MAX, TOPIC_BYTES_MAX

Topic = NewType("Topic", str)  # a named stream of messages, 1..255 bytes of UTF-8
ClientId = NewType("ClientId", str)  # a publisher or a subscriber; see CLIENT_ID_PATTERN
Offset = NewType("Offset", int)  # position of a message in its topic: 0, 1, 2, ...; never changes
Sequence = NewType("Sequence", int)  # a publisher's own number in a topic: 1, 2, 3, ...
Epoch = NewType("Epoch", int)  # incarnation of a client, 1, 2, 3, ...; a higher one fences

# `_` is missing on purpose: it separates publisher and sequence in a message id.
CLIENT_ID_PATTERN = rf"^[A-Za-z0-9][A-Za-z0-9.-]{{0,{CLIENT_ID_CHARS_MAX - 1}}}\Z"
# What is subscribed to a topic: a client, or a group; no client id has a colon.
GROUP_PREFIX = "group:"
SUBSCRIPTION_PATTERN = CLIENT_ID_PATTERN.replace("^", f"^(?:{GROUP_PREFIX})?", 1)
TOPIC_PATTERN = rf"^[^\x00-\x1f\x7f-\x9f]{{1,{TOPIC_BYTES_MAX}}}\Z"

KEY_PATTERN = r"^[0-9A-Za-z.\-:+=^!/*?&<>()\[\]{}@%$#]{40}\Z"  # a public key, in Z85

_client_id = re.compile(CLIENT_ID_PATTERN)
_topic = re.compile(TOPIC_PATTERN)
_replica = re.compile(r"(.+)\.(unique|slot)-[0-9a-f]{16}\Z")
_passing = re.compile(r"(?:admin|reader|status|topology)-[0-9a-f]{8}\Z")
_pattern_marks = re.compile(r"[*?\[\]]|(?:^|/)[+#](?:/|\Z)")  # of globs, and of MQTT


def client_id(text: str, *, kind: str = "id") -> ClientId:
    """Accept a publisher or subscriber id, or another name that has the same form.

    Args:
        kind: what it names, for the error.

    Raises:
        InvalidNameError: anything but 1 to 64 of `A-Z a-z 0-9 . -`, first a letter or digit.
    """
    if not _client_id.match(text):
        is_endpoint = "; this is an endpoint, which is given as `endpoint`" if "://" in text else ""
        raise InvalidNameError(
            kind=kind,
            name=text,
            expected=f"1 to {CLIENT_ID_CHARS_MAX} of A-Z a-z 0-9 . -, beginning with a letter or a "
            f"digit ('_' separates publisher and sequence in message ids){is_endpoint}",
        )
    return ClientId(text)


def subscription(text: str) -> str:
    """Accept a subscriber id, or `group:` and the name of a group.

    Raises:
        InvalidNameError: as of `client_id`.
    """
    is_group = text.startswith(GROUP_PREFIX)
    client_id(text.removeprefix(GROUP_PREFIX), kind="group" if is_group else "id")
    return text


def id_of_replica(name: str, token: bytes, *, is_kept: bool) -> ClientId:
    """Make the id of one process of several that run the same program.

    Args:
        token: 8 random bytes.
        is_kept: the id has a state, and another process continues it. Otherwise it ends with its
            process, so a proxy may forget its numbers.

    Raises:
        InvalidNameError.
    """
    end = f".{'slot' if is_kept else 'unique'}-{token.hex()}"
    if len(client_id(name)) + len(end) > CLIENT_ID_CHARS_MAX:
        most = CLIENT_ID_CHARS_MAX - len(end)
        raise InvalidNameError(kind="name", name=name, expected=f"at most {most} characters")
    return ClientId(name + end)


def name_of_replica(text: str) -> str:
    """Return the name that an id of `id_of_replica` was made from; any other id as it is."""
    found = _replica.match(text)
    return found[1] if found else text


def is_unique_id(text: str) -> bool:
    """Return whether an id ends with its process: no other process ever uses it."""
    found = _replica.match(text)
    return found is not None and found[2] == "unique"


def is_passing_id(text: str) -> bool:
    """Whether it is a random id, as readers and commands have it: no state belongs to it."""
    return _passing.match(text) is not None


def topic(text: str) -> Topic:
    """Accept a topic name.

    Raises:
        InvalidNameError: empty, longer than 255 bytes of UTF-8, or with control characters.
    """
    if not _topic.match(text) or not topic_fits(text):
        raise InvalidNameError(
            kind="topic",
            name=text,
            expected=f"1 to {TOPIC_BYTES_MAX} bytes of UTF-8 without control characters",
        )
    return Topic(text)


class ExactTopic(str):
    """The name of one topic that contains characters of patterns: `ExactTopic("t*")`.

    For topics that were created before such names were refused.
    """

    __slots__ = ()


TopicName = str | ExactTopic  # for calls that may create a topic


def exact(text: TopicName) -> Topic:
    """Accept the name of one topic, and refuse what looks like a pattern.

    Raises:
        InvalidNameError: as `topic`; or it has `*`, `?`, `[` or `]`, or one of its levels, between
            slashes, is `+` or `#`, and it is not an `ExactTopic`.
    """
    found = topic(str.__str__(text))
    if _pattern_marks.search(found) and not isinstance(text, ExactTopic):
        raise InvalidNameError(
            kind="topic",
            name=text,
            expected="the name of one topic: * ? [ ] and the levels + and # are marks of patterns, "
            "and `subscribe(match=glob(...))` takes these. A program names an existing topic "
            "with such a name by ExactTopic(...)",
        )
    return found


def topic_fits(text: str) -> bool:
    """Whether a topic with valid characters has at most 255 bytes of valid UTF-8."""
    if text.isascii():
        return len(text) <= TOPIC_BYTES_MAX
    return is_encodable(text) and len(text.encode()) <= TOPIC_BYTES_MAX


def is_encodable(text: str) -> bool:
    """Whether text has a UTF-8 form; a lone surrogate has none."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def message_id(publisher: str, sequence: int) -> str:
    """Name a message: `<publisher>_<sequence>`, unique within its topic."""
    return f"{publisher}_{sequence}"
