"""What is removed by time or at a bound: acknowledged messages, and entries that have ended.

An entry that has ended and can have no effect costs nothing forever (rule R26).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final

from reliable_pubsub.common.core.message_base import Role

from .records import Forgotten, Trimmed, trimmed_to
from .state import Record, State
from .topic_log import TopicLog

# An older version granted any epoch. A higher one is kept, else it would become everyone's floor.
EPOCH_FORGOTTEN_MAX: Final = 2**62


def trims_due(state: State) -> Sequence[Trimmed]:
    """Return the trims of retention now, in topics that changed or aged."""
    now_ns = state.local_ns or 0
    records: list[Trimmed] = []
    topics = state.topic_by_id
    touched, state.touched_topics = state.touched_topics, set()
    touched.update(state.ages.take_below(now_ns, lambda one: topics[one].ages_at_ns))
    for topic_id in sorted(touched):
        log = topics[topic_id]
        start = log.start_due(now_ns)
        ages_at_ns = log.ages_at_ns
        if start is not None:
            records.append(trimmed_to(log, start))
            state.touched_topics.add(topic_id)  # one record removes only so much
        elif ages_at_ns is not None and ages_at_ns >= now_ns:
            state.ages.add(topic_id, ages_at_ns)
        # Else a subscription keeps the old segment; its acknowledgement touches the topic.
    return records


def forgotten(state: State) -> Sequence[Record]:
    """Ended entries without effect beyond the number that is kept.

    Only durable ones: a crash must not bring back an entry that a client saw as removed.
    """
    at_once_max = state.settings.memory.at_once_max
    records: list[Record] = []
    for session in _sessions(state):
        records += session
        if len(records) >= at_once_max:
            return records  # without a cut: a session goes with its numbers
    for topic_id in sorted(state.crowded_topics):
        records += _entries_of(state, state.topic_by_id[topic_id])
    return records[:at_once_max]


def session_forgotten(state: State, role: Role, client: str) -> Sequence[Record]:
    """Return the records that remove an id; its epochs and lower ones are not granted again.

    The numbers of a unique id go with it: no later process compares its own with them.
    """
    epoch = state.sessions[role, client].epoch
    floor = max(epoch, state.epoch_floor)
    gone: list[Record] = [Forgotten("session", (role, client), floor)]
    if role == "publisher" and client in state.unique_numbers:
        topics = sorted(state.unique_numbers[client])
        gone += [Forgotten("publisher", (topic_id, client, 2)) for topic_id in topics]
    gone += [record for forgets in state.hooks.forgets for record in forgets(state, role, client)]
    return gone


def _sessions(state: State) -> Iterator[Sequence[Record]]:
    memory = state.settings.memory
    excess = len(state.idle_sessions) - memory.idle_sessions_max
    idle = (one for one in state.idle_sessions if state.sessions[one].epoch <= EPOCH_FORGOTTEN_MAX)
    for key in islice(idle, min(max(excess, 0), memory.at_once_max)):
        if state.sessions[key].lsn <= state.durable_lsn and _has_durable_numbers(state, key[1]):
            yield session_forgotten(state, *key)


def _has_durable_numbers(state: State, client: str) -> bool:
    """Return whether all numbers of a unique publisher are durable; of another one always."""
    logs = (state.topic_by_id[one] for one in state.unique_numbers.get(client, ()))
    return all(log.publishers[client].lsn <= state.durable_lsn for log in logs)


def _entries_of(state: State, log: TopicLog) -> Iterator[Forgotten]:
    memory = state.settings.memory
    for names, most in (
        (log.ended["clean"], memory.ended_clean_max),
        (log.ended["persistent"], memory.ended_max),
    ):
        for name in islice(names, min(max(len(names) - most, 0), memory.at_once_max)):
            one = log.subscriptions[name]
            if one.lsn <= state.durable_lsn:
                floor = max(one.generation, state.generation_floor)
                yield Forgotten("subscription", (log.topic_id, name), floor)
    excess = min(max(len(log.unnumbered) - memory.unnumbered_max, 0), memory.at_once_max)
    for name in islice(log.unnumbered, excess):
        if log.unnumbered[name].lsn <= state.durable_lsn:
            yield Forgotten("publisher", (log.topic_id, name, 1))
