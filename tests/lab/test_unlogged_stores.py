"""Without an auditor, what a killed proxy had no time to write is believed of others."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from reliable_pubsub.common.core.journal import AnyLine, Begin, End, Ok, Seen, StoredLine
from reliable_pubsub.lab.core.checker import check
from reliable_pubsub.lab.core.verdict import Verdict

from .small_world import PROXY, SmallWorld

FIRST, SECOND = PROXY, ("proxy", 99)
PUTS, UNTOLD = 5, 2  # the message with this offset has no `stored` line


def a_world(*, read: bool, clean: bool = False, killed: bool = True) -> SmallWorld:
    """Puts and gets; after the third put's invoke the proxy was started again.

    Args:
        read: whether a subscriber was given the messages; its lines are the only evidence then.
        clean: whether the first life wrote its end.
        killed: whether there was a second one.
    """
    world = SmallWorld()
    world.start_client("p", "publisher")
    if read:
        world.start_client("s", "subscriber")
        world.subscribe("s", "t")
    for offset in range(PUTS):
        world.put("p", "t")
        if offset == UNTOLD:
            _forget_the_line(world, clean=clean, killed=killed)
        if read:
            world.get("s", "t")
    if read:
        _forget_receipts(world)
    if killed:
        _belong_to_the_second_life(world)
    return world


def _belong_to_the_second_life(world: SmallWorld) -> None:
    """What the proxy wrote after its second start is of another process."""
    begun = next(n for n, line in enumerate(world.lines) if (line.process, line.pid) == SECOND)
    world.lines[begun:] = [
        replace(line, pid=SECOND[1]) if (line.process, line.pid) == FIRST else line
        for line in world.lines[begun:]
    ]


def _forget_the_line(world: SmallWorld, *, clean: bool, killed: bool) -> None:
    answer = world.lines.pop()
    world.lines.pop()
    if killed:
        if clean:
            world.write(FIRST, End)
        world.write(SECOND, Begin, role="proxy", wall_ns=0, boot="b2", durability="sync")
    world.lines.append(_now(world, answer))


def _now(world: SmallWorld, line: AnyLine) -> AnyLine:
    """The same line, a little later."""
    world.write(FIRST, Begin, role="", wall_ns=0)
    return type(line)(
        **{name: getattr(line, name) for name in line.__struct_fields__}
        | {"at_ns": world.lines.pop().at_ns}
    )


def _forget_receipts(world: SmallWorld) -> None:
    """The publisher did not hear of the message: there is no receipt for it."""
    world.lines = [
        line
        for line in world.lines
        if not (isinstance(line, Ok) and line.op == "put" and line.offset == UNTOLD)
    ]


def broken(verdict: Verdict) -> set[str]:
    return {rule.rule for rule in verdict.rules if not rule.holds}


@pytest.mark.parametrize("read", [False, True], ids=["by a receipt", "by a subscriber"])
def test_a_message_that_a_kill_left_unwritten_is_known_from_others(read: bool) -> None:
    verdict = check(a_world(read=read).run)

    assert broken(verdict) == set()
    assert any("1 messages are known from others only" in one for one in verdict.warnings)


@pytest.mark.parametrize("read", [False, True], ids=["by a receipt", "by a subscriber"])
@pytest.mark.parametrize(
    "fault",
    [{"killed": False}, {"clean": True}],
    ids=["of a proxy that lived", "of a proxy that ended without a kill"],
)
def test_a_missing_line_is_a_fault(fault: dict[str, bool], read: bool) -> None:
    assert "V3" in broken(check(a_world(read=read, **fault).run))


def test_a_message_that_was_acknowledged_before_the_kill_is_lost() -> None:
    """The line is written before the answer leaves: it would be there."""
    world = a_world(read=False)
    world.lines = [
        line
        for line in world.lines
        if not (isinstance(line, StoredLine) and line.messages[0].offset == 1)
    ]

    assert "V1" in broken(check(world.run))


def test_an_auditor_is_believed_more_than_others() -> None:
    world = a_world(read=False)
    world.log["t"] = [seen for seen in world.log["t"] if seen.offset != UNTOLD]
    world.audit()

    assert {"V1", "V3"} <= broken(check(world.run))


def test_a_line_of_the_proxy_is_believed_more_than_others() -> None:
    world = a_world(read=False)
    other = Seen(UNTOLD, "q", 1, 7, 1_000 + UNTOLD)
    world.write(SECOND, StoredLine, topic="t", epoch=0, messages=(other,))

    assert "V1" in broken(check(world.run))


def replaced_in_place(code: str | None) -> SmallWorld:
    """The proxy continues as the same process after a third message, of which it wrote nothing."""
    world = SmallWorld()
    world.start_client("p", "publisher")
    for offset in range(PUTS):
        world.put("p", "t")
        if offset == UNTOLD:
            del world.lines[-2]
            if code is not None:
                world.write(FIRST, End, code=code)
                world.write(FIRST, Begin, role="proxy", wall_ns=0, boot="b2", durability="sync")
    world.audit_again()
    return world


def test_a_proxy_that_has_lost_its_term_need_not_have_written_of_its_last_commit() -> None:
    world = replaced_in_place("NOT_SERVING")

    assert not broken(check(world.run))


def test_a_proxy_that_continues_must_have_written_of_every_commit() -> None:
    world = replaced_in_place(None)

    assert broken(check(world.run)) == {"V3"}
