"""The simulated disk keeps what the real one keeps: else its seeds prove nothing of the product."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from reliable_pubsub.common.core.messages import Terms
from reliable_pubsub.proxy.check import check_store
from reliable_pubsub.proxy.core.state import BrokerSettings
from reliable_pubsub.proxy.core.topic_log import Retention
from reliable_pubsub.proxy.store import Store, read_state
from tests.fakes import MemoryProxy, a_broker, a_hello, a_put, a_sub, in_order, put_body
from tests.store.test_store import take_step

from .simulated_store import SimulatedStore

STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            [
                *("put", "at level 1", "transact", "sub", "lease", "seek", "unsub", "get", "ack"),
                *("hello", "trim"),
            ]
        ),
        st.sampled_from(["t", "u"]),
        st.integers(0, 3),
    ),
    max_size=40,
)


def take(proxy: MemoryProxy, number: int, verb: str, topic: str, value: int) -> None:
    """Do one thing to a proxy, also at QoS 1, or with a lease that the next `trim` may end."""
    session = proxy.state.sessions.get(("subscriber", "s"))
    match verb:
        case "at level 1":
            request = a_put(number + 1, count=value + 1, topic=topic, qos=1)
            proxy.decide(request, put_body(number + 1, value + 1))
        case "lease":
            kind = Terms(qos=1, session=("persistent", "clean")[value % 2], lease_ms=1000)
            epoch = session.epoch if session else 1
            proxy.decide(a_sub(number + 1, topic=topic, epoch=epoch, terms=kind))
        case _:
            take_step(proxy, number, verb, topic, value)


@given(steps=STEPS, commit_every=st.integers(1, 7))
@settings(max_examples=60, deadline=None)
def test_both_stores_read_back_the_same_state(
    steps: list[tuple[str, str, int]], commit_every: int
) -> None:
    retention = Retention(history_bytes=60)
    proxy = a_broker(publishers=(), subscribers=(), settings=BrokerSettings(retention=retention))
    simulated = SimulatedStore(lambda records: None)
    with tempfile.TemporaryDirectory() as directory:
        store = Store(Path(directory), "os")

        def commit() -> None:
            store.commit(proxy.uncommitted)
            simulated.commit(list(proxy.uncommitted))
            proxy.commit()

        try:
            proxy.decide(a_hello("publisher", "p"))
            proxy.decide(a_hello("publisher", "q"))
            proxy.decide(a_hello("subscriber", "s"))
            for number, (verb, topic, value) in enumerate(steps):
                take(proxy, number, verb, topic, value)
                if number % commit_every == 0:
                    commit()
            commit()
            stored = read_state(store.connection, check_store(store.connection).segments)
        finally:
            store.close()

    there, here = in_order(stored), in_order(simulated.state())
    assert here.topics == there.topics
    assert here.sessions == there.sessions
    assert here.transactions == there.transactions
