"""The deliveries in a report: how long they took, how many they were, who got them."""

from __future__ import annotations

import pytest

from reliable_pubsub.common.core.journal import AnyLine, Begin, FoundEnd, Invoke, Ok, Seen
from reliable_pubsub.lab.core.run import LabRun
from reliable_pubsub.lab.report_deliveries import SLICES, bars, deliveries
from reliable_pubsub.lab.report_numbers import Numbers, numbers
from reliable_pubsub.lab.report_panels import Scale

from .report_runs import holding_verdict, sound_run
from .test_report import Tags, figure_of, page_of

MS = 1_000_000
SECOND = 1_000_000_000


def a_get(at_ns: int, *sequences: int, taken_ns: int = 0, again: bool = False) -> Ok:
    messages = tuple(
        Seen(n - 1, "p", n, 0, taken_ns, delivery_count=2 if again else 1) for n in sequences
    )
    return Ok(at_ns=at_ns, process="s", pid=2, op="get", call=1, topic="t", messages=messages)


def a_put(at_ns: int, sequence: int) -> Invoke:
    return Invoke(
        at_ns=at_ns, process="p", pid=1, op="put", call=1, topic="t", sequence=sequence, crcs=(0,)
    )


class TestALatency:
    def test_is_from_the_call_of_put_to_the_first_delivery(self) -> None:
        lines: list[AnyLine] = [a_put(10 * MS, 1), a_get(13 * MS, 1), a_get(50 * MS, 1, again=True)]

        assert numbers(lines)["s"].delivery_latencies_ns == [3 * MS]

    def test_of_a_publisher_without_journal_is_from_when_the_proxy_took_the_message(self) -> None:
        begin = Begin(at_ns=5, process="s", pid=2, role="subscriber", wall_ns=1_000 * SECOND + 5)
        taken_ns = 1_000 * SECOND + 7 * MS

        lines: list[AnyLine] = [begin, a_get(9 * MS, 1, taken_ns=taken_ns)]

        assert numbers(lines)["s"].delivery_latencies_ns == [2 * MS]
        assert numbers(lines[1:])["s"].delivery_latencies_ns == []


class TestTheSlicesOfARun:
    def test_have_the_percentiles_of_what_was_delivered_in_them(self) -> None:
        lines: list[AnyLine] = [a_put(0, n) for n in range(1, 101)]
        lines += [a_get(n * MS, n) for n in range(1, 101)]

        found = deliveries(numbers(lines), 0, SLICES * SECOND)

        assert {name: values[0] for name, values in found.latencies_ns.items()} == {
            "p50": 50 * MS,
            "p90": 90 * MS,
            "p99": 99 * MS,
        }
        assert found.latencies_ns["p99"][1:] == [None] * (SLICES - 1)

    def test_have_the_rate_of_each_subscriber_repeats_included(self) -> None:
        lines = [a_get(SECOND, 1, 2), a_get(SECOND + 1, 1, again=True)]

        found = deliveries(numbers(lines), 0, 2 * SLICES * SECOND)

        assert found.rates["s"][0] == 1.5
        assert found.rates["s"][1:] == [0.0] * (SLICES - 1)

    def test_hold_what_happened_at_the_very_end(self) -> None:
        found = deliveries(numbers([a_get(SLICES * SECOND, 1)]), 0, SLICES * SECOND)

        assert found.rates["s"][-1] == 1


@pytest.mark.parametrize(("value", "share"), [(1, 0.0), (10, 0.5), (100, 1.0), (0, 0.0)])
def test_a_scale_by_powers_has_equal_steps(value: float, share: float) -> None:
    assert Scale([(1, ""), (10, ""), (100, "")], by_power=True).share(value) == share


def test_there_is_a_bar_for_each_subscriber_as_long_as_its_deliveries() -> None:
    drawing = bars({"a": Numbers(delivered=100, redelivered=50), "b": Numbers(delivered=200)})
    assert drawing is not None

    widths = {
        kind: [float(one.get("width", 0)) for one in drawing.iter() if one.get("class") == kind]
        for kind in ("delivery", "redelivery")
    }

    assert widths["delivery"][1] == 4 * widths["delivery"][0] == 4 * widths["redelivery"][0]
    assert "100, 50 again" in "".join(drawing.itertext())
    assert bars({"p": Numbers(acknowledged=3)}) is None


def test_the_page_has_the_curves_and_a_bar_for_each_subscriber() -> None:
    page = page_of(sound_run(), holding_verdict())

    drawn = ["".join(one.itertext()) for one in figure_of(page).iter() if one.tag == "path"]
    assert {"p50", "p90", "p99", "subscriber-1", "subscriber-2"} <= set(drawn)
    assert "Deliveries by subscriber" in Tags(page).text


def test_a_log_without_histories_is_a_table_and_no_empty_picture() -> None:
    positions = {"s": 7}
    end = FoundEnd(
        at_ns=1, process="auditor", pid=1, topic="t", start=2, end=1_010, positions=positions
    )

    page = page_of(LabRun(lines=[end], outputs={}), holding_verdict())

    assert "What happened" not in page
    assert "<script>" not in page
    cells = Tags(page[page.index("The log at the end") :]).text
    assert "t21,010s71,003" in cells
