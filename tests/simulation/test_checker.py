"""The checker sees each kind of damage, done by hand to the history of a sound run."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from reliable_pubsub.proxy.records import Appended, CursorMoved, Granted

from .checker import check
from .history import History
from .simulation import history_of
from .world import World

SEED = 3  # a run with two readers with an output file, one without, and no retention


def _first(history: History, kind: type) -> int:
    return next(i for i, record in enumerate(history.committed) if isinstance(record, kind))


def _message_line(history: History) -> tuple[str, int]:
    """A subscriber, and the place of the second message in its output."""
    subscriber = next(iter(history.outputs))
    lines = history.outputs[subscriber]
    places = [i for i, line in enumerate(lines) if line.kind == "message"]
    return subscriber, places[1]


def _store_twice(history: History) -> None:
    history.committed.append(history.committed[_first(history, Appended)])


def _lose_stored(history: History) -> None:
    last = max(i for i, r in enumerate(history.committed) if isinstance(r, Appended))
    del history.committed[last]


def _repeat_epoch(history: History) -> None:
    history.committed.append(history.committed[_first(history, Granted)])


def _move_cursor_back(history: History) -> None:
    moved = next(r for r in reversed(history.committed) if isinstance(r, CursorMoved))
    history.committed.append(replace(moved, cursor=moved.cursor - 1))


def _put_with_old_epoch(history: History) -> None:
    place = _first(history, Appended)
    record = history.committed[place]
    assert isinstance(record, Appended)
    history.committed[place] = replace(record, epoch=record.epoch + 1)


def _acknowledge_elsewhere(history: History) -> None:
    event = history.acknowledged[0]
    assert event.receipt.offset is not None
    receipt = replace(event.receipt, offset=event.receipt.offset + 1)
    history.acknowledged[0] = replace(event, receipt=receipt)


def _skip_a_message(history: History) -> None:
    subscriber, place = _message_line(history)
    del history.outputs[subscriber][place]


def _repeat_a_message(history: History) -> None:
    subscriber, place = _message_line(history)
    lines = history.outputs[subscriber]
    lines.insert(place, lines[place])


def _stop_early(history: History) -> None:
    subscriber, _ = _message_line(history)
    lines = history.outputs[subscriber]
    last = max(i for i, line in enumerate(lines) if line.kind == "message")
    del lines[last]


def _subscribe_too_late(history: History) -> None:
    event = history.subscribed[0]
    history.subscribed[0] = replace(event, cursor=event.cursor + 30)


def _read_another_message(history: History) -> None:
    key, [(reader, message)] = next(iter(history.read.items()))
    history.read[key] = [(reader, replace(message, payload=b"p0/99/1"))]


def _stay_subscribed(history: History) -> None:
    final = history.final[0]
    history.final[0] = replace(final, active=not final.active)


def _tell_a_loss_of_what_is_there(history: History) -> None:
    history.was_lost("s0", "a", 0, 1)


@pytest.fixture
def sound() -> History:
    return history_of(World(SEED))


def test_a_sound_history_has_no_violation(sound: History) -> None:
    assert check(sound) == []


@pytest.mark.parametrize(
    "damage",
    [
        _store_twice,
        _lose_stored,
        _repeat_epoch,
        _move_cursor_back,
        _put_with_old_epoch,
        _acknowledge_elsewhere,
        _skip_a_message,
        _repeat_a_message,
        _stop_early,
        _subscribe_too_late,
        _read_another_message,
        _stay_subscribed,
        _tell_a_loss_of_what_is_there,
    ],
)
def test_damage_is_seen(sound: History, damage: Callable[[History], None]) -> None:
    damage(sound)

    assert check(sound)
