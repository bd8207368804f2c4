"""The shortest run that still breaks a rule: fewest faults, then fewest messages. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from msgspec.structs import replace

from .plan import Ask, Deliver, Kill, Plan, Step, is_fault
from .verdict import BrokenRule


def guesses(plan: Plan, breach: BrokenRule) -> Iterator[Plan]:
    """Return runs that may show it, shortest first: the message, with each fault alone or none."""
    topic = [step for step in plan if not isinstance(step, Ask) or step.topic == breach.topic]

    def kept(keep: Callable[[Step], bool]) -> Plan:
        return tuple(
            step
            for step in topic
            if keep(step)
            or (isinstance(step, Ask) and step.op == "subscribe" and not step.aim)
            or (isinstance(step, Ask) and step.op == "put" and step.id == breach.id)
        )

    faults = [step for step in topic if is_fault(step)]
    yield kept(lambda step: False)
    for fault in faults:
        yield _plain(kept(lambda step, one=fault: step is one or isinstance(step, Deliver)), fault)  # type: ignore[misc]
    for fault in faults:  # and whatever its client does before
        yield _plain(
            kept(lambda step, one=fault: step is one or not is_fault(step)),  # type: ignore[misc]
            fault,
        )
    yield kept(lambda step: isinstance(step, Ask) and step.op == "put" and not step.aim)
    yield tuple(topic)


def _plain(plan: Plan, only: Step) -> Plan:
    """Return a plan with one fault alone."""
    steps = (step if step is only else without_fault(step) for step in plan)
    return tuple(step for step in steps if step is not None)


def without_fault(step: Step) -> Step | None:
    """Return a step without its fault; None: it is nothing else."""
    if isinstance(step, Ask):
        return replace(step, aim="", seconds=0.0) if step.aim else step
    return None if isinstance(step, Kill) else step


def shrink(plan: Plan, breach: BrokenRule, breaks: Callable[[Plan], bool | None]) -> Plan:
    """Return the shortest plan found.

    Args:
        breaks: run a plan; return whether the same rule is broken, or None when time is up.
    """
    best = plan
    for guess in dict.fromkeys(guesses(plan, breach)):
        found = breaks(guess) if guess and guess != best else False
        if found is None:
            return best
        if found:
            best = guess
            break
    return _without_single_steps(best, breaks)


def _without_single_steps(best: Plan, breaks: Callable[[Plan], bool | None]) -> Plan:
    """Remove parts while the rule stays broken: halves, quarters, at last each step and fault."""
    size = max(len(best) // 2, 1)
    while size:
        end = len(best)
        while end > 0:
            smaller = best[: max(end - size, 0)] + best[end:]
            found = breaks(smaller) if smaller else False
            if found is None:
                return best
            best = smaller if found else best
            end -= size
        size //= 2
    for place, step in enumerate(best):
        plain = without_fault(step)
        if plain is not None and plain != step:
            simpler = (*best[:place], plain, *best[place + 1 :])
            best = simpler if breaks(simpler) else best
    return best
