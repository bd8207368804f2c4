"""Spark's rules over a log give the checker's verdict, word for word."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from msgspec.structs import replace
from pyspark.cloudpickle import dumps, loads
from pyspark.sql import SparkSession

from reliable_pubsub.common.core.journal import Found, FoundEnd, Seen
from reliable_pubsub.common.core.keys import ClientKeys, KeyPair, SecureEndpoint, keys_of_endpoint
from reliable_pubsub.lab.core.checker import check
from reliable_pubsub.lab.core.run import LabRun
from reliable_pubsub.lab.core.verdict import RuleVerdict, Verdict
from reliable_pubsub.pipeline.computing import job_format
from reliable_pubsub.pipeline.core.log_verdict import extents, log_verdict
from reliable_pubsub.pipeline.core.planning import TopicExtent
from reliable_pubsub.pipeline.job import Access
from reliable_pubsub.pipeline.log_rules import ARCHIVED, LIVE, look_at
from reliable_pubsub.pipeline.tasks import SparkTasks
from tests.integration.harness import NOWHERE, STUBBORN
from tests.lab.planted import all_planted
from tests.lab.small_world import sound_world

from .sightings import Sighting, with_log

STRETCH = 4  # so that a history of a dozen messages has borders of stretches
KINDS = (
    "topic string, offset bigint, publisher string, sequence bigint, crc bigint, "
    "timestamp_ns bigint, qos tinyint, source int"
)


class Histories:
    """Many logs, each under names of its own, for one judgement."""

    def __init__(self) -> None:
        self.archived: list[Sighting] = []
        self.live: list[Sighting] = []
        self.now: dict[str, TopicExtent] = {}

    def add(
        self,
        topic: str,
        *,
        archived: list[Seen] | None = None,
        live: list[Seen] | None = None,
        first: int = 0,
        end: int = 0,
    ) -> None:
        """A log from `first` to `end`, as an archive has it, or the proxy, or both."""
        if archived is not None:
            here = sorted(archived, key=lambda seen: seen.offset)
            self.archived.append(Sighting(topic, "x.1", first, end, messages=here))
        if live is not None:
            here = sorted(live, key=lambda seen: seen.offset)
            self.live.append(Sighting(topic, "x.1", first, end, messages=here))
            self.now[topic] = TopicExtent("x.1", first, end)

    def by_the_checker(self) -> Verdict:
        nothing = LabRun(lines=[], outputs={})
        archived, live = (
            sorted(some, key=lambda one: one.topic) for some in (self.archived, self.live)
        )
        return check(with_log(nothing, archived, live, self.now, pid=1))

    def by_spark(self, spark: SparkSession) -> Verdict:
        rows = [
            (one.topic, s.offset, s.publisher, s.sequence, s.crc, s.timestamp_ns, s.qos, source)
            for source, some in ((ARCHIVED, self.archived), (LIVE, self.live))
            for one in some
            for s in one.messages
        ]
        known = extents([*self.archived, *self.live], self.now)
        frame = spark.createDataFrame(rows, KINDS)
        sights, faults = look_at(SparkTasks(spark), frame, known, stretch=STRETCH)
        return log_verdict(known, sights, faults, pid=1)


def sound_log(count: int) -> list[Seen]:
    """Three publishers in turn; the third one's messages are at QoS 1."""
    return [
        Seen(n, f"p{n % 3}", n // 3 + 1, 7 * n, 1_000 + n, qos=1 if n % 3 == 2 else 2)
        for n in range(count)
    ]


def damaged(log: list[Seen], chance: random.Random) -> list[Seen]:
    """One or two things are wrong with it, or nothing."""
    log = list(log)
    for _ in range(chance.randrange(3)):
        at = chance.randrange(len(log))
        seen, other = log[at], chance.choice(log)
        log[at] = chance.choice(
            [
                replace(seen, crc=9),
                replace(seen, timestamp_ns=chance.choice([0, 5])),
                replace(seen, sequence=chance.randrange(1, 9)),
                replace(seen, qos=3 - seen.qos),
                replace(other, offset=seen.offset),
            ]
        )
        if chance.random() < 0.4 and len(log) > 2:
            at = chance.randrange(len(log))
            del log[at : at + 2]
    return log


def planted_logs() -> Iterator[tuple[str, int, int, list[Seen]]]:
    """The log of each planted history, as the lab's auditor found it; each one once."""
    known = set()
    for _, damage in all_planted():
        world = sound_world()
        damage(world)
        for end in (line for line in world.lines if isinstance(line, FoundEnd)):
            found = [
                seen
                for line in world.lines
                if isinstance(line, Found) and line.topic == end.topic
                for seen in line.messages
            ]
            is_read_so = found == sorted(found, key=lambda seen: seen.offset)
            key = (end.topic, end.start, end.end, tuple(map(repr, found)))
            if is_read_so and key not in known:
                known.add(key)
                yield f"{damage.__name__}/{end.topic}", end.start, end.end, found


def held(rules: list[RuleVerdict]) -> list[RuleVerdict]:
    """The rules with their violations in one order."""
    return [
        replace(rule, violations=sorted(rule.violations, key=lambda one: one.text))
        for rule in rules
    ]


def test_the_keys_of_an_endpoint_travel_with_the_format_of_a_job() -> None:
    keys = ClientKeys(own=KeyPair(public="p" * 40, secret="s" * 40), server="t" * 40)
    access = Access(SecureEndpoint(NOWHERE, keys), SecureEndpoint(NOWHERE, keys), STUBBORN)

    kind = loads(dumps(job_format(access)))  # type: ignore[no-untyped-call]

    assert keys_of_endpoint(kind({"subscribe": "t"}).parsed().endpoint) == keys
    assert keys_of_endpoint(kind({"topic": "t"}).parsed_sink(streaming=True).endpoint) == keys


@pytest.fixture(scope="module")
def verdicts(spark: SparkSession) -> tuple[Verdict, Verdict]:
    """The checker's and Spark's, over all histories at once."""
    histories = Histories()
    for number, (name, first, end, found) in enumerate(planted_logs()):
        histories.add(f"planted/{number}/{name}", live=found, first=first, end=end)
        histories.add(f"archived/{number}/{name}", archived=found, first=first, end=end)
    for seed in range(300):
        chance = random.Random(seed)
        log = sound_log(chance.randrange(1, 14))
        end = len(log) + chance.choice([0, 0, 0, -1, 1])
        archived, live = damaged(log, chance), damaged(log, chance)
        first = chance.choice([0, 0, 3])
        match chance.randrange(3):
            case 0:
                histories.add(f"seed/{seed}", archived=archived, first=first, end=end)
            case 1:
                histories.add(f"seed/{seed}", live=live, first=first, end=end)
            case _:
                histories.add(f"seed/{seed}", archived=archived, live=live, first=first, end=end)
    histories.add("empty", live=[], first=0, end=0)
    histories.add("a-hole-only", live=[], first=2, end=5)
    return histories.by_the_checker(), histories.by_spark(spark)


@pytest.mark.parametrize("rule", range(13))
def test_spark_finds_what_the_checker_finds_in_every_history(
    rule: int, verdicts: tuple[Verdict, Verdict]
) -> None:
    (of_checker,), (of_spark,) = (held([verdict.rules[rule]]) for verdict in verdicts)

    assert of_spark == of_checker


def test_the_histories_break_each_rule_of_a_log_in_many_ways(
    verdicts: tuple[Verdict, Verdict],
) -> None:
    of_checker, _ = verdicts

    texts = [one.text for rule in of_checker.rules for one in rule.violations]

    for words in (
        "twice: at offsets",
        "for the log, and",
        "the time goes back",
        "the log has nothing",
        "said the log ends",
        "the auditor found offset",
        "after sequence",
        "is missing before",
    ):
        assert sum(words in text for text in texts) > 10, words
