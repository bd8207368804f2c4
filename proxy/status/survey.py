"""The survey: every topic and subscription looked at once, in pieces of bounded cost. Pure.

A scrape asks for lags and sums over all that the proxy holds. The loop does not keep them up to
date, which would cost each put and get, and does not compute them in one go, which would delay what
waits: it goes on with the survey for one piece in each turn. So a survey is not of one moment;
each of its numbers was true during it.
"""

from __future__ import annotations

from collections.abc import Generator
from heapq import heappush, heapreplace, nlargest
from typing import Final

from msgspec import Struct

from reliable_pubsub.common.core.dead_letter import DEAD_SUFFIX, is_dead
from reliable_pubsub.common.core.status import AccountStatus, SubscriptionState

from ..access.uses import KeyUses
from ..core.state import State
from ..core.topic_log import TopicLog
from .report import lag_s

ROWS_MAX: Final = 100  # subscriptions, and topics, that are named; the others are in the sums
PIECE_ROWS: Final = 256  # subscriptions in one piece; a topic counts as so many as it has, and one
PIECE_READS: Final = 4  # of the store, each of them one place of an index

STATES: Final[tuple[SubscriptionState, ...]] = ("active", "suspended", "expired")


class SurveyedSubscription(Struct, frozen=True):
    """One of the subscriptions with the greatest lag."""

    lag_messages: int
    topic: str
    subscriber: str
    lag_s: float = 0.0  # age of the oldest message not yet acknowledged; 0 if there is none


class SurveyedTopic(Struct, frozen=True):
    """One of the topics with the most bytes."""

    stored_bytes: int
    topic: str
    end: int  # durable: how many messages it ever had
    subscriptions: int


class Survey(Struct, frozen=True, kw_only=True):
    """What was found."""

    messages: int = 0  # ever stored, in all topics
    stored_bytes: int = 0
    topics: int = 0
    subscriptions: dict[SubscriptionState, int] = {}
    lag_messages: int = 0  # of all subscriptions together
    slowest: tuple[SurveyedSubscription, ...] = ()  # the greatest lag first
    largest: tuple[SurveyedTopic, ...] = ()  # the most bytes first
    dead_letters: dict[str, int] = {}  # ever stored, by the topic of the messages; the most
    # The fullest topic in each respect, as shares of its bound.
    topic_bytes: float = 0.0
    topic_subscriptions: float = 0.0
    topic_publishers: float = 0.0
    waiting_messages: float = 0.0  # for one subscription
    keys: tuple[AccountStatus, ...] = ()  # those nearest to a bound of theirs first


class _Running:
    """A survey that is under way."""

    def __init__(self, state: State, rows_max: int) -> None:
        self.state, self.rows_max = state, rows_max
        self.messages = self.stored_bytes = self.topics = self.lag_messages = 0
        self.subscriptions = dict.fromkeys(STATES, 0)
        self.slowest: list[tuple[int, str, str]] = []  # heaps: the smallest of these first
        self.largest: list[tuple[int, str, int, int]] = []
        self.dead_letters: list[tuple[int, str]] = []
        self.topic_bytes = self.topic_subscriptions = self.topic_publishers = self.waiting = 0.0

    def topic(self, log: TopicLog) -> None:
        settings = self.state.settings
        self.topics += 1
        self.messages += log.durable_end
        self.stored_bytes += log.stored_bytes
        live = log.live_count
        share = log.stored_bytes / log.retention.topic_bytes_max
        self.topic_bytes = max(self.topic_bytes, share)
        share = live / settings.subscriptions_per_topic_max
        self.topic_subscriptions = max(self.topic_subscriptions, share)
        share = self.state.lasting_publishers(log) / settings.publishers_per_topic_max
        self.topic_publishers = max(self.topic_publishers, share)
        if is_dead(log.topic):
            self.dead_letters.append((log.durable_end, log.topic.removesuffix(DEAD_SUFFIX)))
        row = (log.stored_bytes, log.topic, log.durable_end, live)
        if len(self.largest) < self.rows_max:
            heappush(self.largest, row)
        elif row > self.largest[0]:
            heapreplace(self.largest, row)

    def subscription(self, log: TopicLog, name: str) -> None:
        one = log.subscriptions.get(name)  # it may have ended meanwhile
        # One that is not durable yet could be gone after a crash.
        if one is None or not (one.active or one.expired) or one.lsn > self.state.durable_lsn:
            return
        self.subscriptions[self.state.leases.state_of(name, one)] += 1
        lag = max(log.durable_end - one.cursor, 0)
        self.lag_messages += lag
        if one.holds:
            self.waiting = max(self.waiting, lag / log.retention.waiting_messages_max)
        row = (lag, log.topic, name)
        if len(self.slowest) < self.rows_max:
            heappush(self.slowest, row)
        elif row > self.slowest[0]:
            heapreplace(self.slowest, row)

    def lag_s(self, topic: str, name: str) -> float:
        log = self.state.topics.get(topic)
        one = log.subscriptions.get(name) if log else None
        if log is None or one is None:
            return 0.0
        return lag_s(self.state, log, one.cursor)


def surveyed(
    state: State,
    *,
    rows_max: int = ROWS_MAX,
    uses: Generator[None, None, KeyUses] | None = None,
) -> Generator[None, None, Survey]:
    """Look at everything once; yield after each piece.

    Args:
        rows_max: of subscriptions and of topics that are named.
        uses: counts what keys use, which goes on after the rest; None: no keys.

    Returns:
        The survey.
    """
    running = _Running(state, rows_max)
    rows = 0
    for log in list(state.topics.values()):
        if log.topic in state.deleted_topics:
            continue
        running.topic(log)
        rows += 1
        for name in list(log.subscriptions):
            running.subscription(log, name)
            rows += 1
            if rows >= PIECE_ROWS:
                rows = 0
                yield
        if rows >= PIECE_ROWS:
            rows = 0
            yield
    slowest: list[SurveyedSubscription] = []
    reads = 0
    for lag, topic, name in nlargest(rows_max, running.slowest):
        if lag and (reads := reads + 1) % PIECE_READS == 0:
            yield
        lag_s = running.lag_s(topic, name) if lag else 0.0
        slowest.append(SurveyedSubscription(lag, topic, name, lag_s))
    keys = () if uses is None else (yield from uses).rows
    return Survey(
        keys=keys,
        messages=running.messages,
        stored_bytes=running.stored_bytes,
        topics=running.topics,
        subscriptions=running.subscriptions,
        lag_messages=running.lag_messages,
        slowest=tuple(slowest),
        largest=tuple(SurveyedTopic(*row) for row in nlargest(rows_max, running.largest)),
        dead_letters={name: end for end, name in nlargest(rows_max, running.dead_letters)},
        topic_bytes=running.topic_bytes,
        topic_subscriptions=running.topic_subscriptions,
        topic_publishers=running.topic_publishers,
        waiting_messages=running.waiting,
    )
