"""Small runs with which the tests of several rules begin."""

from __future__ import annotations

from .small_world import SmallWorld


def a_world_with_a_subscriber(count: int, **client: bool) -> SmallWorld:
    """A world where one client subscribes, and a number of messages follow.

    Args:
        client: of `start_client`.
    """
    world = SmallWorld()
    world.start_client("s1", "subscriber", **client)
    world.subscribe("s1", "t")
    world.start_client("p1", "publisher")
    world.put("p1", "t", count)
    return world


def begin_with_puts(world: SmallWorld, *names: str) -> None:
    """A new world: publishers put in turns, one message at a time."""
    fresh = SmallWorld()
    for name in dict.fromkeys(names):
        fresh.start_client(name, "publisher")
    for name in names:
        fresh.put(name, "t")
    fresh.audit()
    vars(world).update(vars(fresh))


def replay(world: SmallWorld, start: str, at: int) -> None:
    """A new world: five messages, and a subscriber that asks for some of them again."""
    fresh = a_world_with_a_subscriber(3)
    fresh.get("s1", "t", 3)
    fresh.put("p1", "t", 2)
    fresh.subscribe("s1", "t", start=start, at=at)
    fresh.put("p1", "t")
    fresh.get("s1", "t", 6)
    vars(world).update(vars(fresh))


def begin_with_deaths(world: SmallWorld) -> None:
    """A new world: a subscriber has done offset 0, has 1 in hand, dies, and is back."""
    fresh = a_world_with_a_subscriber(5)
    fresh.get("s1", "t")
    fresh.get("s1", "t")
    fresh.kill("s1")
    fresh.restart("s1")
    fresh.subscribe("s1", "t")
    vars(world).update(vars(fresh))


def begin_with_a_loss(
    world: SmallWorld, *, had: int = 0, lost: int = 3, output: bool = False
) -> None:
    """A new world: a topic loses what a subscriber did not have yet, and says so."""
    fresh = a_world_with_a_subscriber(5, output=output)
    if had:
        fresh.get("s1", "t", had)
    fresh.trim("t", lost)
    fresh.finish()
    vars(world).update(vars(fresh))


def a_world_with_an_output() -> SmallWorld:
    """A world with a subscriber and five messages, the first of which is in its output."""
    world = a_world_with_a_subscriber(5, output=True)
    world.get("s1", "t")
    return world


def offsets_in_output(world: SmallWorld) -> list[int]:
    return [line.message.offset for line in world.outputs["s1"]]
