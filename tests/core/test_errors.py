"""The tree of errors: codes and exit codes for machines, facts and advice for people."""

from __future__ import annotations

import copy
import inspect
import pickle
import re
from collections.abc import Callable

import pytest

import reliable_pubsub
from reliable_pubsub.common.core import errors
from reliable_pubsub.common.core.errors import (
    FencedError,
    InDoubtError,
    InUseError,
    InvalidNameError,
    LostError,
    OutOfRangeError,
    ProxyUnreachableError,
    PubSubError,
    RefusedError,
    TooLargeError,
    TruncatedError,
    TryLaterError,
)
from reliable_pubsub.common.core.keys import ClientKeys, KeyPair, SecureEndpoint
from reliable_pubsub.proxy.core.storage import StorageFullError

CLASSES: dict[str, type[PubSubError]] = {
    name: value
    for name, value in vars(errors).items()
    if inspect.isclass(value) and issubclass(value, PubSubError)
}


def drawn_tree() -> list[tuple[int, str, str, str]]:
    """The tree of the docstring: depth, class, code and exit code as they stand there."""
    rows = []
    for line in (errors.__doc__ or "").splitlines():
        found = re.match(
            r"([│├└─ ]*)(\w+Error)\s+([A-Z_, a-z]*?)(?:\s{2,}(\d))?(?:\s{2,}.*)?$", line
        )
        if found:
            indent, name, code, exit_code = found.groups()
            rows.append((len(indent) // 4, name, code.strip(), exit_code or ""))
    return rows


class TestTheTree:
    def test_that_is_drawn_is_the_one_that_is_built(self) -> None:
        drawn, path = {}, list[str]()
        for depth, name, _, _ in drawn_tree():
            path = [*path[:depth], name]
            drawn[name] = path[depth - 1] if depth else ""

        built = {}
        for name, one in CLASSES.items():
            parents = [base.__name__ for base in one.__bases__ if issubclass(base, PubSubError)]
            built[name] = parents[0] if parents else ""

        assert drawn == built

    @pytest.mark.parametrize("row", drawn_tree(), ids=lambda row: row[1])
    def test_shows_each_code_and_exit_code(self, row: tuple[int, str, str, str]) -> None:
        _, name, code, exit_code = row

        if name not in ("PubSubError", "TryLaterError"):  # the one is a root, the other has three
            assert CLASSES[name].code == code
        if exit_code:
            assert CLASSES[name].exit_code == int(exit_code)

    @pytest.mark.parametrize("error", CLASSES.values(), ids=lambda error: error.__name__)
    def test_gives_every_error_the_exit_code_of_its_branch(self, error: type[PubSubError]) -> None:
        branches = [one for one in CLASSES.values() if PubSubError in one.__bases__]
        branch = next((one for one in branches if issubclass(error, one)), PubSubError)

        assert error.exit_code == branch.exit_code

    def test_has_an_exit_code_of_its_own_for_every_branch(self) -> None:
        codes = [one.exit_code for one in CLASSES.values() if PubSubError in one.__bases__]

        assert sorted(codes) == [2, 3, 4, 5]

    def test_has_a_code_of_its_own_for_every_leaf(self) -> None:
        codes = [one.code for one in CLASSES.values() if one is not TryLaterError]

        assert len(set(codes)) == len(codes)

    def test_says_what_each_error_means(self) -> None:
        assert all(one.__doc__ for one in CLASSES.values())

    def test_is_what_the_public_door_shows(self) -> None:
        shown = {name for name in reliable_pubsub.__all__ if name.endswith("Error")}

        assert shown <= set(CLASSES)
        assert all(getattr(reliable_pubsub, name) is CLASSES[name] for name in shown)


class TestFacts:
    """Each error keeps its facts as attributes, and its text holds them too."""

    @pytest.mark.parametrize(
        ("error", "facts"),
        [
            (
                InvalidNameError(kind="id", name="a_b", expected="no _"),
                {"kind": "id", "name": "a_b", "expected": "no _"},
            ),
            (
                TooLargeError(what="payload", size=9, size_max=5, advice="split it"),
                {"size": 9, "size_max": 5},
            ),
            (
                ProxyUnreachableError(endpoint="tcp://h:1", attempts=3, waited_s=6.0, verb="PUT"),
                {"endpoint": "tcp://h:1", "attempts": 3, "waited_s": 6.0, "verb": "PUT"},
            ),
            (
                TryLaterError(code="FULL", text="the topic is full", attempts=4),
                {"code": "FULL", "attempts": 4},
            ),
            (
                FencedError(client="p", epoch=3, current_epoch=8),
                {"client": "p", "epoch": 3, "current_epoch": 8},
            ),
            (
                TruncatedError("'t' begins at offset 7, at 5 ns", topic="t", start=7, start_ns=5),
                {"topic": "t", "start": 7, "start_ns": 5},
            ),
            (
                OutOfRangeError("'t' can be read from 3 to 9", topic="t", start=3, end=9),
                {"topic": "t", "start": 3, "end": 9},
            ),
            (LostError(topic="t", first=2, end=7), {"topic": "t", "first": 2, "end": 7}),
            (InUseError(path="/data", what="data directory"), {"path": "/data"}),
        ],
        ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
    )
    def test_are_attributes(self, error: PubSubError, facts: dict[str, object]) -> None:
        assert {name: getattr(error, name) for name in facts} == facts
        shown = [value for name, value in facts.items() if name != "code"]
        assert all(str(value) in str(error) for value in shown)

    def test_of_a_silent_endpoint_name_keys_as_a_reason(self) -> None:
        text = str(
            ProxyUnreachableError(endpoint="tcp://h:1", attempts=3, waited_s=6.0, verb="PUT")
        )

        assert text.endswith("; if it runs, it is at another endpoint, or asks for keys")

    def test_of_a_loss_name_the_last_offset_that_is_gone(self) -> None:
        """H17: offsets 2 to 6 are gone, five of them, and 7 is next."""
        text = str(LostError(topic="t", first=2, end=7))

        assert "offsets 2 to 6 (5 messages)" in text
        assert "continues at offset 7" in text


class TestMeaning:
    def test_a_wrong_name_is_a_value_error_too(self) -> None:
        assert issubclass(InvalidNameError, ValueError)
        assert issubclass(TooLargeError, ValueError)

    def test_what_may_be_asked_again_is_in_doubt(self) -> None:
        """R21: an unknown outcome is one branch, so a program can catch it as one."""
        assert issubclass(ProxyUnreachableError, InDoubtError)
        assert issubclass(TryLaterError, InDoubtError)
        assert InDoubtError.exit_code == 3

    def test_a_long_name_does_not_flood_the_text(self) -> None:
        assert len(str(InvalidNameError(kind="id", name="x" * 10_000, expected="less"))) < 200

    def test_a_full_disk_has_the_code_that_the_wire_has(self) -> None:
        assert StorageFullError.code == "STORAGE_FULL"


def an_error(cls: type[PubSubError]) -> PubSubError:
    """An error of a class, with some value for each argument of its `__init__`."""
    if cls.__init__ is Exception.__init__:
        return cls("what happened")
    values: dict[str, object] = {"why": RefusedError("no"), "offsets": (4, 5)}
    values |= dict.fromkeys(("acknowledged", "waiting", "left"), ("display-1",))
    values |= dict.fromkeys(("size", "size_max", "waited_s", "first", "end", "waiting_max"), 7)
    arguments = inspect.signature(cls).parameters.values()
    names = [one.name for one in arguments if one.kind is one.KEYWORD_ONLY]
    text = ["what happened"] * (len(names) < len(arguments))
    return cls(*text, **{name: values.get(name, name) for name in names})


def sent(error: PubSubError) -> PubSubError:
    """The error as another process gets it from a pool."""
    again: PubSubError = pickle.loads(pickle.dumps(error))  # noqa: S301
    return again


class TestAnErrorThatAWorkerProcessReturns:
    """A pool of processes pickles it; one that cannot be read again breaks or hangs the pool."""

    @pytest.mark.parametrize("cls", CLASSES.values(), ids=CLASSES)
    @pytest.mark.parametrize("copied", [sent, copy.copy])
    def test_has_its_text_and_its_facts(
        self, cls: type[PubSubError], copied: Callable[[PubSubError], PubSubError]
    ) -> None:
        error = an_error(cls)
        error.add_note("of the worker")

        again = copied(error)

        assert type(again) is cls
        assert str(again) == str(error)
        assert repr(vars(again)) == repr(vars(error))

    def test_has_no_secret_key(self) -> None:
        keys = ClientKeys(own=KeyPair(public="ours", secret="hidden"), server="theirs")
        error = ProxyUnreachableError(
            endpoint=SecureEndpoint("tcp://proxy:5555", keys), attempts=2, waited_s=4, verb="PUT"
        )

        assert b"hidden" not in pickle.dumps(error)
