"""The planted journals: each is a damage to a sound run, with the rules that must find it.

A file `test_rules_of_*.py` plants those of its rules, and runs them.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import pytest

from reliable_pubsub.lab.core.checker import check

from .damage import broken, texts
from .small_world import SmallWorld, sound_world

Damage = Callable[[SmallWorld], None]

_PLANTED: list[tuple[set[str], Damage]] = []


def planted(*rules: str) -> Callable[[Damage], Damage]:
    """Register a damage that breaks these rules and no others."""

    def add(damage: Damage) -> Damage:
        _PLANTED.append((set(rules), damage))
        return damage

    return add


def all_planted() -> list[tuple[set[str], Damage]]:
    """The planted damages of every file."""
    for file in sorted(Path(__file__).parent.glob("test_rules_of_*.py")):
        import_module(f"{__package__}.{file.stem}")
    return _PLANTED


def with_each(journals: list[tuple[set[str], Damage]]) -> pytest.MarkDecorator:
    """Run a test with the `rules` and the `damage` of each."""
    names = [damage.__name__ for _, damage in journals]
    return pytest.mark.parametrize(("rules", "damage"), journals, ids=names)


def planted_in(module: str) -> pytest.MarkDecorator:
    """Run a test with each damage that this module has registered so far."""
    return with_each([one for one in _PLANTED if one[1].__module__ == module])


def assert_found(damage: Damage, rules: set[str]) -> None:
    """The damage breaks its rules and no others."""
    world = sound_world()

    damage(world)

    verdict = check(world.run)
    assert broken(verdict) == rules, texts(verdict)
