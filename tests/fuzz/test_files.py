"""Files that a person writes: any text gives steps or settings, or says where it is wrong."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from reliable_pubsub.common.core.errors import ConfigurationError
from reliable_pubsub.common.core.limits import STEP_FILE_BYTES_MAX
from reliable_pubsub.common.core.resolving import resolve, typed_settings
from reliable_pubsub.common.core.settings import BY_NAME
from reliable_pubsub.common.core.step_file import parse_publisher_steps, parse_subscriber_steps
from reliable_pubsub.common.core.step_keys import (
    GetKeys,
    PutKeys,
    SeekKeys,
    SubscribeKeys,
    UnsubscribeKeys,
)
from reliable_pubsub.common.core.steps import describe, plan_digest
from reliable_pubsub.common.core.wording import PROBLEMS_MAX, keys_of
from reliable_pubsub.common.topic_settings import TOPIC_SETTINGS, split_document
from reliable_pubsub.common.yaml_file import Document, parse_yaml_bytes

CONFIGS = sorted((Path(__file__).parents[2] / "configs").rglob("*.yaml"))
SETTINGS_FILE = """\
durability: sync
history_s: 86400  # for all
data_dir: "proxy-data"
publisher_endpoint: tcp://127.0.0.1:5555
topics:
  telemetry:
    topic_bytes_max: 67108864
    on_bound: lose_oldest
"""
EXAMPLES = [*(path.read_bytes() for path in CONFIGS), SETTINGS_FILE.encode()]


def publisher_steps(document: Document) -> None:
    steps = parse_publisher_steps(document)
    assert describe(steps)
    assert plan_digest(steps, {str(step.message_file): "0" for step in steps})


def subscriber_steps(document: Document) -> None:
    steps = parse_subscriber_steps(document)
    assert describe(steps)
    assert plan_digest(steps, {})


def settings_of_the_proxy(document: Document) -> None:
    for_all, topics = split_document(document)
    typed_settings(resolve({}, for_all, {}))
    for own in topics.values():
        typed_settings(resolve({}, {**for_all, **own}, {}))


PUBLISHER_KEYS = keys_of(PutKeys)
SUBSCRIBER_KEYS = keys_of(SubscribeKeys, GetKeys, SeekKeys, UnsubscribeKeys)
READERS: list[Callable[[Document], None]] = [
    publisher_steps,
    subscriber_steps,
    settings_of_the_proxy,
]
each_reader = pytest.mark.parametrize("read", READERS, ids=lambda read: read.__name__)


def read_or_told_where(read: Callable[[Document], None], content: bytes) -> None:
    """A file is read, or each line of the error names a line that the file has."""
    try:
        told = refusal_of(read, parse_yaml_bytes(content, "x.yaml"))
    except ConfigurationError as error:
        told = str(error)
    is_told_where(told, content)


def refusal_of(read: Callable[[Document], None], document: Document) -> str:
    """What is wrong with a document; nothing, if it can be read."""
    try:
        read(document)
    except ConfigurationError as error:
        return str(error)
    return ""


def is_told_where(told: str, content: bytes) -> None:
    """Every line of an error begins with the file and a line that the file has."""
    lines = len(re.split(b"\r\n|[\n\r]|\xc2\x85|\xe2\x80[\xa8\xa9]", content))
    for paragraph in told.split("\n") if told else ():
        place = re.match(r"x\.yaml, line (\d+)|\.\.\. and \d+ more", paragraph)
        assert place, told
        assert 1 <= int(place[1] or 1) <= lines, told


# Documents of the right shape with values of any kind.

_SCALARS: st.SearchStrategy[Any] = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.sampled_from([0, 1, -1, 2**31, 2**63, 2**64, 10**400]),
    st.floats(),
    st.text(max_size=20),
    st.sampled_from(["subscribe", "get", "unsubscribe", "wait", "skip", "sync", "t", "topic1"]),
    st.dates(),
    st.datetimes(),
)
_ANY = st.recursive(
    _SCALARS,
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2)
    ),
    max_leaves=4,
)


def _mappings(keys: tuple[str, ...]) -> st.SearchStrategy[dict[str, Any]]:
    known = st.sampled_from(keys)
    return st.dictionaries(known, _ANY, max_size=5) | st.dictionaries(known | st.text(), _ANY)


_DOCUMENTS = st.one_of(
    st.fixed_dictionaries({"steps": st.lists(_mappings(PUBLISHER_KEYS) | _ANY, max_size=3)}),
    st.fixed_dictionaries({"steps": st.lists(_mappings(SUBSCRIBER_KEYS) | _ANY, max_size=3)}),
    _mappings((*BY_NAME, "topics")),
    st.fixed_dictionaries(
        {"topics": st.dictionaries(st.text(max_size=4), _mappings(TOPIC_SETTINGS) | _ANY)}
    ),
    _ANY,
)


class _Plainly(yaml.SafeDumper):
    def ignore_aliases(self, _: object) -> bool:
        return True


@each_reader
@given(_DOCUMENTS)
@example({"\n": None})  # a key with a line feed must not make two lines of one
@example({"topics": {"\n": {"\x1b[2J": 1}}})
@example({"topics": {"t": {"\n": 1}}})
@example({"steps": [{"\n": 1}]})
def test_values_of_any_kind(read: Callable[[Document], None], document: object) -> None:
    read_or_told_where(read, yaml.dump(document, Dumper=_Plainly).encode())


@each_reader
@given(st.binary(max_size=300) | st.text(max_size=300).map(str.encode))
@example(b"")
@example(b"\xff")
@example(b"topics: 5")
@example(b"topics:\n  a: 5")
@example(b"topics:\n  ? 5\n  : {}")
def test_any_bytes(read: Callable[[Document], None], content: bytes) -> None:
    read_or_told_where(read, content)


@each_reader
@given(
    content=st.sampled_from(EXAMPLES),
    at=st.integers(0, 2000),
    put=st.sampled_from([*"[]{},:?-|>'\"#&*!%@`\n\t =<.~", "\n  ", "- ", "\x00", "é", "---\n", ""]),
    taken=st.integers(0, 30),
)
def test_our_files_with_a_slip_of_the_pen(
    read: Callable[[Document], None], content: bytes, at: int, put: str, taken: int
) -> None:
    at %= len(content)
    read_or_told_where(read, content[:at] + put.encode() + content[at + taken :])


# What costs a reader most: large files of many small parts, and of one large part.

LARGE = {
    "steps without end": b"steps:\n" + b"- topic: t\n  message: m\n" * 1_500,
    "wrong steps without end": b"steps:\n" + b"- {q: 1}\n" * 3_000,
    "keys without end": b"".join(b"k%d: 1\n" % n for n in range(3_000)),
    "topics without end": b"topics:\n" + b"".join(b" t%d: {}\n" % n for n in range(6_000)),
    "wrong topics without end": b"topics:\n" + b"".join(b" t%d: 1\n" % n for n in range(3_000)),
    "one long line": b"a: " + b"x" * 1_000_000,
    "one long key": b"k" * 1_000_000 + b": 1",
    "levels without end": b"[" * 1_000_000,
    "quotes without end": b'"' * 1_000_000,
    "documents without end": b"---\n" * 250_000,
    "escapes without end": b'a: "' + b"\\u0041" * 50_000 + b'"',
    "a long number": b"a: " + b"9" * 1_000_000,
    "empty lines": b"\n" * 300_000,
}


@pytest.mark.parametrize("content", LARGE.values(), ids=LARGE)
def test_a_large_file_is_read_or_refused_in_a_few_lines(content: bytes) -> None:
    """Topics must not cost the square of their number, nor every unknown key a paragraph."""
    assert len(content) <= STEP_FILE_BYTES_MAX

    try:
        document = parse_yaml_bytes(content, "x.yaml")
    except ConfigurationError as error:
        refusals = [str(error)]
    else:
        refusals = [refusal_of(read, document) for read in READERS]

    for told in refusals:
        is_told_where(told, content)
        assert told.count("\n") <= PROBLEMS_MAX
