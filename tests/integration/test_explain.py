"""`explain qos`: what it says comes from a run, and the levels differ as they promise."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from reliable_pubsub.lab.levels import Measured

from .harness import Service

MESSAGES = 20


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Measured:
    service = Service(tmp_path_factory.mktemp("explain"))
    try:
        process = service.run("", "explain", "qos", "--json", "--messages", str(MESSAGES))
        process.done()
        return msgspec.json.decode(process.stdout, type=dict[str, Measured])["measured"]
    finally:
        service.close()


class TestExplainQoS:
    def test_measures_what_a_put_costs(self, measured: Measured) -> None:
        at_most, at_least, exactly = (level.put for level in measured.levels)

        assert (at_most.round_trips, at_most.proxy_fsyncs) == (0, 0)
        assert at_most.frames == 4 * MESSAGES  # topic, RPS1, header, body
        for stored in (at_least, exactly):
            assert stored.round_trips == MESSAGES
            assert stored.proxy_fsyncs >= MESSAGES
            assert stored.frames == 7 * MESSAGES  # with the empty frame of REQ: 4 up, 3 down
        assert 0 < at_most.bytes < min(at_least.bytes, exactly.bytes)

    def test_measures_what_a_subscriber_writes_durably(self, measured: Measured) -> None:
        at_most, at_least, exactly = (level.get for level in measured.levels)

        assert (at_most.client_fsyncs, at_least.client_fsyncs) == (0, 0)
        assert exactly.client_fsyncs > 0

    def test_tries_what_survives_what(self, measured: Measured) -> None:
        tried = measured.tried
        kept = {level.qos: level.kept for level in measured.levels}

        assert [kept[qos].after_proxy_kill for qos in (0, 1, 2)] == [0, tried, tried]
        assert [kept[qos].after_absence for qos in (0, 1, 2)] == [0, tried, tried]
        assert [kept[qos].after_lost_answer for qos in (0, 1, 2)] == [1, 2, 1]
        assert [kept[qos].after_subscriber_death for qos in (0, 1, 2)] == [1, 2, 2]
        assert [kept[qos].marked_after_subscriber_death for qos in (0, 1, 2)] == [0, 1, 1]


def test_explain_qos_is_a_table_for_people(service: Service, tmp_path: Path) -> None:
    process = service.run("", "explain", "qos", "--messages", "2")
    process.done()
    assert "QoS 2" in process.stdout
