"""V11, for transactions: whole or not at all."""

from __future__ import annotations

from msgspec.structs import replace

from reliable_pubsub.common.core.journal import Failed, Invoke, Unknown

from .damage import assert_sound, change, line_at, places
from .planted import Damage, assert_found, planted, planted_in
from .small_world import SmallWorld


@planted("V11")
def a_transaction_with_an_unknown_outcome_stands_in_part(world: SmallWorld) -> None:
    """Its message on `t` is there, the one on `u` is not."""
    sequence = line_at(world, places(world, Unknown, op="put")[0]).sequence
    index = places(world, Invoke, op="put", process="p2", sequence=sequence)[0]
    change(world, index, transaction=1)
    here = line_at(world, index)
    there = replace(here, topic="u", call=here.call + 1000, sequence=1, crcs=(1,), plan="")
    world.lines.insert(index, there)


class TestATransaction:
    def a_world(self) -> SmallWorld:
        """One transaction over two topics, then a put."""
        world = SmallWorld()
        world.start_client("p1", "publisher")
        world.put("p1", "t", 2)
        world.put("p1", "u")
        for index in places(world, Invoke, op="put"):
            change(world, index, transaction=1)
        world.put("p1", "t")
        return world

    def test_that_is_whole_is_counted_once(self) -> None:
        world = self.a_world()
        world.finish()

        (rule,) = [rule for rule in assert_sound(world).rules if rule.rule == "V11"]

        assert rule.checked == 1

    def test_that_failed_may_give_its_number_to_the_next(self) -> None:
        world = self.a_world()
        first = places(world, Invoke, op="put", transaction=1)[0]
        line = replace(line_at(world, first), call=1000, crcs=(1,))
        world.lines[first:first] = [
            line,
            Failed(
                at_ns=line.at_ns,
                process="p1",
                pid=line.pid,
                op="put",
                call=1000,
                code="LIMIT",
                topic="t",
            ),
        ]
        world.finish()

        assert_sound(world)

    def test_whose_number_also_carried_a_put_of_equal_content_is_not_judged(self) -> None:
        """The publisher's state was set back after it: it is unknown which of them is stored."""
        world = SmallWorld()
        p1 = world.start_client("p1", "publisher")
        for topic in ("t", "u"):
            world.put("p1", topic, outcome="killed", stored=False)
            p1.under_way = None
        for index in places(world, Invoke, op="put"):
            change(world, index, transaction=1, plan="")
        world.kill("p1")
        world.restart("p1")
        p1.planned = 0  # the content of the first message again
        world.put("p1", "t")
        change(world, places(world, Invoke, op="put")[-1], plan="")
        world.audit()

        assert_sound(world)


@planted_in(__name__)
def test_a_planted_damage_breaks_its_rule_and_no_other(rules: set[str], damage: Damage) -> None:
    assert_found(damage, rules)
