"""What each key uses of its quotas is seen: by STATUS, `status` and metrics, beside its bounds."""

from __future__ import annotations

from collections.abc import Sequence
from io import StringIO

from msgspec import UNSET
from msgspec.structs import replace
from rich.console import Console

from reliable_pubsub.common.access.core.attendance import Attendance
from reliable_pubsub.common.core.answers import Limit
from reliable_pubsub.common.core.limits import (
    STAGED_BATCH_BYTES,
    STATUS_ACCOUNTS_MAX,
    STATUS_TOPICS_MAX,
)
from reliable_pubsub.common.core.rights import QUOTAS
from reliable_pubsub.common.core.status import AccountStatus, QuotaUse, Status, StatusReport
from reliable_pubsub.common.core.wire import decode_request
from reliable_pubsub.common.status_client import StatusClient
from reliable_pubsub.proxy.access.quotas import PIECE_IDS, Quotas
from reliable_pubsub.proxy.access.uses import key_uses
from reliable_pubsub.proxy.exposition import _keys
from reliable_pubsub.proxy.status.survey import surveyed
from reliable_pubsub.proxy.status_command import view
from tests.core.rights_world import GovernedProxy, Said
from tests.fakes import PATIENT, a_hello, a_put, a_stage, a_sub, a_world, put_body

ALL: Said = {right: ["*"] for right in ("ids", "put", "get", "dead_letters")}
BODY = put_body(1)
Uses = dict[str, tuple[int, int | None]]


def a_proxy(**more: Said) -> GovernedProxy:
    """The key `a` has every quota, `b` none; `operator` may see all topics."""
    quotas = dict.fromkeys(QUOTAS, 10_000)
    return GovernedProxy(a=ALL | quotas, b=ALL, operator={"status": ["*"]}, **more)


def filled(proxy: GovernedProxy, key: str = "a") -> None:
    """The key has a publisher, a subscriber, a topic, a subscription, bytes stored and staged."""
    proxy.ask_as(key, a_hello("publisher", "p"))
    proxy.ask_as(key, a_put(1, client="p"), BODY)
    proxy.ask_as(key, a_hello("subscriber", "s"))
    proxy.ask_as(key, a_sub(1, client="s"))
    proxy.ask_as(key, a_stage(1, client="p"), BODY)


def asked(proxy: GovernedProxy, key: str = "operator", *, rows_max: int = 250) -> StatusReport:
    request = Status(client="status-0123abcd", epoch=0, request=1, rows_max=rows_max)
    report = proxy.ask_as(key, request)
    assert isinstance(report, StatusReport), report
    return report


def accounts(report: StatusReport) -> dict[str, Uses]:
    """Used and bound of each quota, by key."""
    rows = () if report.accounts is UNSET else report.accounts
    return {
        row.key: {
            use.quota: (use.used, None if use.most is UNSET else use.most) for use in row.uses
        }
        for row in rows
    }


class TestStatus:
    def test_shows_what_a_key_uses_of_each_quota_beside_its_bound(self) -> None:
        proxy = a_proxy()
        filled(proxy)

        assert accounts(asked(proxy)) == {
            "a": {
                "connections_max": (0, 10_000),
                "clients_max": (2, 10_000),
                "topics_max": (1, 10_000),
                "subscriptions_max": (1, 10_000),
                "staged_bytes_max": (len(BODY) + STAGED_BATCH_BYTES, 10_000),
                "stored_bytes_max": (len(BODY), 10_000),
                "bytes_per_s_max": (len(BODY), 10_000),  # two bodies, in the last two seconds
            }
        }

    def test_shows_a_key_without_bounds_by_what_it_uses(self) -> None:
        proxy = a_proxy()
        filled(proxy, "b")

        of_b = accounts(asked(proxy))["b"]

        assert of_b["stored_bytes_max"] == (len(BODY), None)
        assert of_b["clients_max"] == (2, None)
        assert "bytes_per_s_max" not in of_b  # they are not counted

    def test_shows_the_connections_that_count(self) -> None:
        proxy = a_proxy()
        proxy.state.kept(Quotas).connections = lambda: {"a": 7}

        assert accounts(asked(proxy))["a"]["connections_max"] == (7, 10_000)

    def test_shows_a_bound_as_reached_when_the_next_is_refused(self) -> None:
        proxy = a_proxy(c=ALL | {"clients_max": 1})
        proxy.ask_as("c", a_hello("publisher", "p"))

        assert accounts(asked(proxy))["c"]["clients_max"] == (1, 1)
        assert isinstance(proxy.ask_as("c", a_hello("publisher", "p2")), Limit)

    def test_shows_a_key_that_may_not_see_all_topics_its_own_row(self) -> None:
        proxy = a_proxy(c=ALL | {"status": ["t"], "topics_max": 5})
        filled(proxy)

        assert set(accounts(asked(proxy, "c"))) == {"c"}
        assert set(accounts(asked(proxy))) == {"a", "c"}

    def test_shows_no_keys_where_none_are_known_or_no_rows_are_wanted(self) -> None:
        without = GovernedProxy()
        filled(without)
        proxy = a_proxy()
        filled(proxy)

        assert asked(without, "").accounts is UNSET
        assert asked(proxy, rows_max=0).accounts is UNSET

    def test_shows_those_nearest_to_a_bound_first_and_counts_those_left_out(self) -> None:
        many: dict[str, Said] = {f"k{n:03}": {"topics_max": 5} for n in range(STATUS_ACCOUNTS_MAX)}
        proxy = a_proxy(zz=ALL | {"clients_max": 2}, **many)
        proxy.ask_as("zz", a_hello("publisher", "p"))

        report = asked(proxy)

        assert next(iter(accounts(report))) == "zz"
        assert len(accounts(report)) == STATUS_ACCOUNTS_MAX
        assert report.accounts_left_out == 2

    def test_keeps_them_when_it_has_several_pages(self) -> None:
        proxy = a_proxy()
        filled(proxy)
        for number in range(STATUS_TOPICS_MAX):
            proxy.ask_as("b", a_hello("publisher", "q"))
            proxy.ask_as("b", a_put(1, topic=f"u{number}", client="q"), BODY)

        def answer(frames: Sequence[bytes]) -> Sequence[bytes]:
            proxy.ask_as("operator", decode_request(frames)[0])
            return list(proxy.frames_of_answer)

        report = StatusClient("", PATIENT, _world=a_world(answer)).ask()

        assert len(report.topics) == STATUS_TOPICS_MAX + 1
        assert set(accounts(report)) == {"a", "b"}
        assert report.kept is not UNSET


class TestASurvey:
    def test_counts_the_same_in_pieces_of_bounded_cost(self) -> None:
        proxy = a_proxy()
        filled(proxy)
        for number in range(3 * PIECE_IDS):
            proxy.ask_as("b", a_hello("publisher", f"p{number}"))
        running = surveyed(proxy.state, uses=key_uses(proxy.state))
        pieces = 0
        while True:
            try:
                next(running)
            except StopIteration as end:
                found = end.value
                break
            pieces += 1

        assert found.keys == asked(proxy).accounts
        assert pieces >= 3 + 3  # keys, and the ids of `b`
        shown = {
            (sample.name, *sorted(sample.labels.values())): sample.value
            for family in _keys(found)
            for sample in family.samples
        }
        assert shown["reliable_pubsub_key_used", "a", "clients_max"] == 2
        assert shown["reliable_pubsub_key_bound_used_ratio", "a", "clients_max"] == 0.0002
        assert ("reliable_pubsub_key_bound_used_ratio", "b", "clients_max") not in shown


class TestTheTable:
    def test_names_key_quota_use_and_bound(self) -> None:
        uses = (
            QuotaUse(quota="clients_max", used=1_234, most=2_000),
            QuotaUse(quota="stored_bytes_max", used=2**21),
            QuotaUse(quota="topics_max", used=0),
        )
        row = AccountStatus(key="sensor-1", uses=uses)
        page = StringIO()
        report = replace(asked(a_proxy()), accounts=(row,), accounts_left_out=3)
        Console(width=80, file=page).print(view(report))

        lines = [line.split() for line in page.getvalue().splitlines()]
        assert ["sensor-1", "clients", "1,234", "2,000"] in lines
        assert ["sensor-1", "stored_bytes", "2.0", "MiB"] in lines
        assert not any("topics" in line and "sensor-1" in line for line in lines)
        assert "3 more keys are not listed" in page.getvalue()


def test_a_connection_that_has_ended_is_not_shown() -> None:
    attendance = Attendance()
    for number in range(3):
        attendance.excess("a", number, 5, lambda _: False)

    assert attendance.counts(lambda one: one == 1) == {"a": 2}
    assert attendance.counts(lambda one: False) == {"a": 2}
