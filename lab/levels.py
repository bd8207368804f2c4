"""What each level of service costs and keeps, measured with a proxy of its own.

Costs are counts, not times: frames and bytes on the links, requests by the client's transport,
commits by the proxy's own count (one fsync each, durability `sync`), durable writes of the client's
state. What is kept is tried: a proxy is killed, an answer lost, a subscriber dies or is away.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from msgspec import UNSET, Struct

from reliable_pubsub.common.core.client_state import ClientState, Marks, MemoryState
from reliable_pubsub.common.core.errors import TimedOutError
from reliable_pubsub.common.core.message_base import QoS
from reliable_pubsub.common.core.retry import RetryPolicy
from reliable_pubsub.common.state_file import open_state
from reliable_pubsub.common.transport import ReqTransport
from reliable_pubsub.common.world import World
from reliable_pubsub.publisher.client import Publisher
from reliable_pubsub.publisher.qos0.offer_link import ZmqOfferLink
from reliable_pubsub.subscriber.client import Subscriber

from .rig.link import LinkTo, Passed
from .rig.service import Service

LEVELS: Final[tuple[QoS, ...]] = (0, 1, 2)
PAYLOAD: Final = b"x" * 100
TRIED: Final = 10  # messages of each trial
PATIENCE_S: Final = 30.0
SILENCE_S: Final = 0.5  # a message that does not come within it is not counted
RETRY: Final = RetryPolicy(timeout_s=1.0, retries_max=30, pause_s=0.05, pause_s_max=0.2)


class Cost(Struct, frozen=True, kw_only=True):
    """What one side pays, for all messages of a measurement together."""

    frames: int  # on the link, both ways
    bytes: int
    round_trips: int
    proxy_fsyncs: int
    client_fsyncs: int


class Kept(Struct, frozen=True, kw_only=True):
    """How many messages of a trial were handed over, and how often."""

    after_proxy_kill: int  # put, then kill -9 of the proxy before any read
    after_absence: int  # put while a persistent subscriber was away
    after_lost_answer: int  # copies of one message whose answer was lost
    after_subscriber_death: int  # of one message in hand, not recorded, when the subscriber died
    marked_after_subscriber_death: int  # of them said `redelivered`


class Level(Struct, frozen=True, kw_only=True):
    """One level of service."""

    qos: QoS
    put: Cost
    get: Cost  # and the acknowledgement at the end
    kept: Kept


class Measured(Struct, frozen=True, kw_only=True):
    """All of it."""

    messages: int  # of each cost, put and got one by one
    tried: int  # of a trial
    payload_bytes: int
    durability: str
    levels: Sequence[Level]


class CountingTransport(ReqTransport):
    """A REQ socket that counts requests, and can lose the next answer to one of them."""

    def __init__(self, endpoint: str) -> None:
        super().__init__(endpoint)
        self.round_trips = 0
        self.loses_next = False

    def send(self, frames: Sequence[bytes]) -> None:
        self.round_trips += 1
        super().send(frames)

    def receive(self, timeout_s: float) -> Sequence[bytes] | None:
        """Lose the answer to a request that arrived, if that was asked for."""
        answer = super().receive(timeout_s)
        if self.loses_next:
            self.loses_next = False
            return None
        return answer


class CountingState:
    """A client's state that counts the writes which wait for the disk. Implements `ClientState`."""

    def __init__(self, state: ClientState) -> None:
        self.durable_count = 0
        self.load = state.load
        self.close = state.close
        self._state = state

    @property
    def marks(self) -> Marks:
        """They wait for no disk."""
        return self._state.marks

    def write(self, changes: Mapping[str, bytes | None], *, durable: bool) -> None:
        self.durable_count += durable
        self._state.write(changes, durable=durable)


def measure(directory: Path, messages: int, report: Callable[[str], None]) -> Measured:
    """Measure every level.

    Args:
        directory: for the proxy and for client state; empty.
        messages: of each cost.
        report: called with what is being done.
    """
    with Service(directory) as service:
        service.start_proxy("--durability", "sync")
        levels = [_Trial(service, qos, report).level(messages) for qos in LEVELS]
        durability = service.status().durability
    return Measured(
        messages=messages,
        tried=TRIED,
        payload_bytes=len(PAYLOAD),
        durability=durability,
        levels=levels,
    )


class _Trial:
    """One level with the clients that it is tried by."""

    def __init__(self, service: Service, qos: QoS, report: Callable[[str], None]) -> None:
        self._service = service
        self._qos = qos
        self._report = report
        self._clients = 0

    def level(self, messages: int) -> Level:
        put, get = self._costs(messages)
        handed, marked = self._after_subscriber_death()
        return Level(
            qos=self._qos,
            put=put,
            get=get,
            kept=Kept(
                after_proxy_kill=self._after_proxy_kill(),
                after_absence=self._after_absence(),
                after_lost_answer=self._after_lost_answer(),
                after_subscriber_death=handed,
                marked_after_subscriber_death=marked,
            ),
        )

    # The cost.

    def _costs(self, messages: int) -> tuple[Cost, Cost]:
        topic = f"cost-{self._qos}"
        self._report(f"QoS {self._qos}: {messages} messages, put and got one by one")
        links = [
            LinkTo(self._service.publisher_endpoint),
            LinkTo(self._service.ingress_endpoint),
            LinkTo(self._service.subscriber_endpoint),
        ]
        put_link, offer_link, get_link = links
        puts, gets = CountingTransport(put_link.endpoint), CountingTransport(get_link.endpoint)
        put_state, get_state = self._state("publisher"), self._state("subscriber")
        publisher = Publisher(
            self._client(),
            retry=RETRY,
            _world=World(
                connect=lambda _: puts,
                connect_data=lambda _: ZmqOfferLink(offer_link.endpoint),
                state=put_state,
            ),
        )
        subscriber = Subscriber(
            self._client(),
            _world=World(connect=lambda _: gets, state=get_state),
            retry=RETRY,
            on_lower_qos=_unheard,
        )
        with publisher, subscriber:
            subscriber.subscribe(topic, qos=self._qos)
            publisher.put(topic, PAYLOAD, qos=self._qos)  # what is asked once for each topic
            self._got(subscriber, topic, 1)

            counted = self._counter((put_link, offer_link), puts, put_state)
            for _ in range(messages):
                publisher.put(topic, PAYLOAD, qos=self._qos)
            self._arrived(topic, messages + 1)
            put = counted()
            counted = self._counter((get_link,), gets, get_state)
            self._got(subscriber, topic, messages)
            subscriber.acknowledge(topic)
            get = counted()
        for link in links:
            link.close()
        return put, get

    def _counter(
        self, links: Sequence[LinkTo], transport: CountingTransport, state: CountingState
    ) -> Callable[[], Cost]:
        """Begin to count; the function gives what has been counted since."""
        passed = [link.passed for link in links]
        trips, durable = transport.round_trips, state.durable_count
        commits = self._commits()

        def cost() -> Cost:
            since = [link.passed.since(one) for link, one in zip(links, passed, strict=True)]
            both = Passed(sum(one.frames for one in since), sum(one.bytes for one in since))
            return Cost(
                frames=both.frames,
                bytes=both.bytes,
                round_trips=transport.round_trips - trips,
                proxy_fsyncs=self._commits() - commits,
                client_fsyncs=state.durable_count - durable,
            )

        return cost

    def _arrived(self, topic: str, count: int) -> None:
        """Wait until the proxy has a number of messages of a topic, stored or in its ring."""
        deadline_s = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline_s:
            (status,) = [one for one in self._service.status().topics if one.topic == topic]
            in_ring = 0 if status.ring is UNSET else status.ring.end
            if status.end + in_ring >= count:
                return
            time.sleep(0.01)
        raise TimedOutError(f"{count} messages of {topic!r} did not arrive in {PATIENCE_S:g} s")

    def _commits(self) -> int:
        """Of the proxy's committer."""
        committer = self._service.status().committer
        assert committer is not UNSET
        return committer.commits

    # What is kept.

    def _after_proxy_kill(self) -> int:
        self._report(f"QoS {self._qos}: kill -9 of the proxy")
        with self._publisher() as publisher, self._subscriber() as subscriber:
            subscriber.subscribe("kill", qos=self._qos)
            for _ in range(TRIED):
                publisher.put("kill", PAYLOAD, qos=self._qos)
            self._service.restart_proxy()
            count = self._rest(subscriber, "kill")
            subscriber.unsubscribe("kill")
        return count

    def _after_absence(self) -> int:
        self._report(f"QoS {self._qos}: a subscriber that is away")
        name = self._client()
        with self._subscriber_on_disk(name) as subscriber:
            subscriber.subscribe("away", qos=self._qos)
        with self._publisher() as publisher:
            for _ in range(TRIED):
                publisher.put("away", PAYLOAD, qos=self._qos)
        with self._subscriber_on_disk(name) as subscriber:
            subscriber.subscribe("away", qos=self._qos)
            count = self._rest(subscriber, "away")
            subscriber.unsubscribe("away")
        return count

    def _after_lost_answer(self) -> int:
        self._report(f"QoS {self._qos}: an answer that is lost")
        transport = CountingTransport(self._service.publisher_endpoint)
        with (
            self._subscriber() as subscriber,
            Publisher(
                self._client(), retry=RETRY, _world=World(connect=lambda _: transport)
            ) as publisher,
        ):
            subscriber.subscribe("answer", qos=self._qos)
            publisher.put("answer", PAYLOAD, qos=self._qos)
            self._got(subscriber, "answer", 1)
            transport.loses_next = True
            publisher.put("answer", PAYLOAD, qos=self._qos)
            count = self._rest(subscriber, "answer")
            subscriber.unsubscribe("answer")
        return count

    def _after_subscriber_death(self) -> tuple[int, int]:
        """The message in hand, then what the next process of the same id is handed."""
        self._report(f"QoS {self._qos}: a subscriber that dies with a message in hand")
        name = self._client()
        dies = self._subscriber_on_disk(name)
        with self._publisher() as publisher:
            dies.subscribe("death", qos=self._qos)
            publisher.put("death", PAYLOAD, qos=self._qos)
            self._got(dies, "death", 1)
            dies.abandon()
        with self._subscriber_on_disk(name) as again:
            again.subscribe("death", qos=self._qos)
            rest = list(again.messages("death", timeout_s=SILENCE_S))
            again.unsubscribe("death")
        return 1 + len(rest), sum(message.redelivered for message in rest)

    # Clients.

    def _client(self) -> str:
        self._clients += 1
        return f"qos-{self._qos}-{self._clients}"

    def _state(self, role: Any) -> CountingState:
        return CountingState(open_state(self._service.state_dir, role, f"qos-{self._qos}-cost"))

    def _publisher(self) -> Publisher:
        return self._service.open_publisher(
            self._client(), retry=RETRY, _world=World(state=MemoryState())
        )

    def _subscriber(self) -> Subscriber:
        world = World(state=MemoryState())
        return self._service.open_subscriber(
            self._client(), retry=RETRY, on_lower_qos=_unheard, _world=world
        )

    def _subscriber_on_disk(self, client: str) -> Subscriber:
        return self._service.open_subscriber(
            client, retry=RETRY, state_dir=self._service.state_dir, on_lower_qos=_unheard
        )

    def _got(self, subscriber: Subscriber, topic: str, count: int) -> None:
        for _ in range(count):
            if not subscriber.get(topic, timeout_s=PATIENCE_S):
                raise TimedOutError(f"a message of {topic!r} did not come in {PATIENCE_S:g} s")

    def _rest(self, subscriber: Subscriber, topic: str) -> int:
        """What still comes."""
        return sum(1 for _ in subscriber.messages(topic, timeout_s=SILENCE_S))


def _unheard(_topic: str, _publisher: str, _qos: int) -> None:
    """Ignore warnings about lower QoS levels."""
