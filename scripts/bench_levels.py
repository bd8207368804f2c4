"""QoS 0, 1 and 2 against each other, and replay against live."""

from __future__ import annotations

import statistics
import time

from reliable_pubsub import Earliest, Subscriber
from reliable_pubsub.common.core.message_base import QoS
from reliable_pubsub.subscriber.push.push_feature import PushFeature

from .measuring import PAYLOAD, Putting, Row, Worker, compared, fill, proxy

BATCH = 100
LEVEL_MESSAGES = 200_000
ROOM_PAUSE_S = 0.0005  # of a publisher at QoS 0 whose link is full


def level_rows(rounds: int, replayed: int) -> list[Row]:
    """All of it.

    Args:
        replayed: messages of the replay.
    """
    return [*levels(rounds), *replay(rounds, replayed)]


class PuttingBatches(Putting):
    """A process that puts at one level, as fast as it can."""

    def put_batches(self, qos: QoS, messages: int) -> None:
        """Put a number of messages."""
        payloads = [PAYLOAD] * BATCH
        for _ in range(messages // BATCH):
            while self.publisher.put_many(self.topic, payloads, qos=qos).fate == "dropped":
                time.sleep(ROOM_PAUSE_S)


def received_at(qos: QoS, messages: int) -> tuple[float, float]:
    """Messages a second from the first put to the last one here, and the share that was lost."""
    with (
        proxy() as running,
        Worker(PuttingBatches, "bench-level", running.publishers, "bench") as putting,
        Subscriber(
            "bench-level", endpoint=running.subscribers, on_lower_qos=lambda *_: None
        ) as subscriber,
    ):
        subscriber.subscribe("bench", qos=qos, push=True)
        while subscriber._engine.feature(PushFeature).pushing.is_polled("bench"):
            subscriber.get("bench", timeout_s=0.05)
        putting.begin("put_batches", qos, messages)
        received = 0
        begin_s = time.perf_counter()
        while received + subscriber.unstored_counts("bench").lost < messages:
            received += len(subscriber.get("bench", max_messages=BATCH, timeout_s=10))
        seconds = time.perf_counter() - begin_s
        putting.result()
    return received / seconds, 1 - received / messages


def levels(rounds: int) -> list[Row]:
    rates: dict[QoS, list[float]] = {0: [], 1: [], 2: []}
    lost: list[float] = []
    for _ in range(rounds):
        for qos, found in rates.items():
            rate, share = received_at(qos, LEVEL_MESSAGES)
            found.append(rate)
            if qos == 0:
                lost.append(share)
    unit = "messages/s"
    batches = f"batches of {BATCH}, pushed"
    return [
        compared(f"QoS 2, {batches}", unit, rates[2], rates[1], "QoS 1", 0.8),
        compared(f"QoS 0, {batches}", unit, rates[0], rates[1], "QoS 1"),
        Row(work="of QoS 0 lost", ours=100 * statistics.median(lost), unit="%"),
    ]


def replay(rounds: int, messages: int) -> list[Row]:
    """Everything that is stored, read from the beginning, against what comes now."""
    with proxy() as running:
        fill(running, messages, BATCH)
        rates: list[float] = []
        live: list[float] = []
        for index in range(rounds):
            live.append(received_at(2, LEVEL_MESSAGES)[0])
            with Subscriber(f"bench-replay-{index}", endpoint=running.subscribers) as subscriber:
                begin_s = time.perf_counter()
                subscriber.subscribe("bench", start=Earliest)
                received = 0
                while received < messages:
                    received += len(subscriber.get("bench", max_messages=BATCH, timeout_s=10))
                rates.append(messages / (time.perf_counter() - begin_s))
    what = f"replay of {messages:,} messages in batches of {BATCH}"
    return [compared(what, "messages/s", rates, live, "live end to end, QoS 2", 0.8)]
