"""One run of a loop over all topics of a pattern that have messages: one mark, one write. Pure."""

from __future__ import annotations

from reliable_pubsub.common.core.conversation import Conversation, Save
from reliable_pubsub.common.core.errors import PubSubError

from .pattern_subscription import Part, PatternSubscription
from .place import marked
from .session import SubscriberSession
from .subscription import Changes, Running, Subscription


def begin_run(session: SubscriberSession, one: PatternSubscription) -> Conversation[Running | None]:
    """Let a loop take the fetched messages of a pattern, topic after topic.

    The same write settles what was taken before: the mark of that run counts until then, and the
    next run but one uses it again.

    Returns:
        None if the messages that are next are to be delivered one by one.
    """
    first = one.next()
    settled = unwritten(session, one)
    slot = one.slot
    if first is None or not first.can_run or not session.inbox.can_run(one):
        yield from save_all(settled, durable=False)
        return None
    assert one.slot is not None
    one.slot ^= 1
    number, marks = session.next_run()
    run = Running([], marks, one.slot, number << 32)
    marks[one.slot] = run.first
    ready = {each.topic: each for each in one.ready if each.can_run}
    batches = {topic: each.next_batches() for topic, each in ready.items()}
    total = sum(len(each.messages) for each in batches.values())
    for topic, each in ready.items():
        part = each.join_run(run, batches[topic], skip=len(run.messages), total=total)
        one.parts.append(Part(each, part))
        run.messages.extend(marked(each.place, part.messages))
    try:
        yield from save_all(settled | ready, durable=False)
    except PubSubError:  # nothing was delivered, and the rows of the run before still count
        one.end_run([])
        one.slot = slot
        raise
    one.moved |= ready
    return run


def save_all(some: dict[str, Subscription], *, durable: bool) -> Conversation[None]:
    """Write these places in one step."""
    changes: Changes = {}
    for each in some.values():
        changes |= each.row()
    if changes:
        yield Save(changes, durable)
        for each in some.values():
            each.written(durable=durable)


def unwritten(session: SubscriberSession, one: PatternSubscription) -> dict[str, Subscription]:
    """What is not written as it is; before the first run also what earlier processes have taken."""
    some = one.moved
    if one.slot is None:
        known = session.inbox.subscriptions.items()
        some = {topic: each for topic, each in known if each.run_slot is not None} | some
    return {topic: each for topic, each in some.items() if not each.is_saved}
