"""The benchmark runs, with tiny loads: its figures are not looked at."""

from __future__ import annotations

import ast
import re
from contextlib import suppress
from importlib.util import resolve_name
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner
from msgspec.structs import replace

from scripts import bench_push, bench_security
from scripts.bench import main
from scripts.bench_peers import ratio
from scripts.bench_profile import (
    Cost,
    Profile,
    is_worse,
    lower_quartile,
    profile_of,
    ratios_of,
    ratios_to,
    sure_range,
)
from scripts.bench_scale import flat, memory
from scripts.cpu_costs import REQUESTS
from scripts.measuring import BROUGHT, ROOT
from scripts.peer_servers import SYSTEMS
from scripts.peer_stations import LAST, Receiving, body

TINY_PROFILE = ("profile", "--seconds", "0", "--scale", "0.01")
TINY_PEERS = ("peers", "--seconds", "0.02", "--rounds", "1", "--clients", "3")


def test_profile_shows_the_cpu_of_each_thread_and_compares_it_with_a_commit() -> None:
    others = running_below("tree/run")  # another benchmark on this machine

    ran = CliRunner().invoke(main, [*TINY_PROFILE, "--against", "HEAD"], catch_exceptions=False)

    assert ran.exit_code in (0, 1), ran.output  # 1: by chance, of 3 tiny passes
    for part in (
        "to HEAD",
        "committer",
        "loop",
        "libzmq IO",
        "put to handler",
        "requests a second",
    ):
        assert part in ran.output
    # The proxy of the other version has ended.
    assert set(running_below("tree/run")) <= set(others)


def test_what_runs_in_another_version_imports_only_what_every_version_has() -> None:
    """The package moves its modules; its public names stay, and the files of BROUGHT come along."""
    brought = {f"reliable_pubsub.{name.removesuffix('.py').replace('/', '.')}" for name in BROUGHT}
    serving = ("cpu_costs", "measuring", "watched_proxy")
    files = {ROOT / "scripts" / f"{name}.py": "scripts" for name in serving}
    files |= {
        ROOT / name: f"reliable_pubsub.{str(Path(name).parent).replace('/', '.')}"
        for name in BROUGHT
    }

    imported = {
        resolve_name("." * node.level + (node.module or ""), package) if node.level else node.module
        for file, package in files.items()
        for node in ast.parse(file.read_text()).body
        if isinstance(node, ast.ImportFrom)
    }

    ours = {name for name in imported if name and name.startswith("reliable_pubsub")}
    counting = "reliable_pubsub.lab.core.zmtp_frames"  # where it is missing, nothing is counted
    assert ours - brought == {"reliable_pubsub", counting}


def running_below(folder: str) -> list[str]:
    """The commands of processes that name a folder."""
    commands = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended meanwhile
            commands.append((process / "cmdline").read_bytes().replace(b"\0", b" ").decode())
    return [command for command in commands if folder in command]


def test_profile_counts_functions_that_are_called_in_client_and_proxy() -> None:
    ran = CliRunner().invoke(main, [*TINY_PROFILE, "--calls", "--json"], catch_exceptions=False)

    costs = msgspec.json.decode(ran.stdout, type=Profile).costs
    put = {cost.process: cost.threads for cost in costs if cost.work == "put"}
    assert put["publisher"]["main"] > 10
    assert put["proxy"]["loop"] > 10


@pytest.mark.parametrize(
    ("ratios", "worse"),
    [
        ([1.2, 1.15, 1.2, 1.3, 1.2, 1.1, 1.2, 1.2], True),
        ([1.05, 1.08, 1.02, 1.09, 1.1, 1.1, 1.1, 1.1], False),  # less than a tenth
        ([1.2, 0.8, 1.3, 1.5, 1.2, 1.4, 1.2, 1.2], False),  # noise
        ([1.5, 1.5, 1.5, 1.5, 1.5, 1.5, 1.5], False),  # seven say nothing for sure
        ([0.5] * 9, False),
        ([1.5], True),  # to a kept profile
    ],
)
def test_a_cost_is_worse_if_it_surely_grew_and_by_a_tenth(ratios: list[float], worse: bool) -> None:
    assert is_worse(ratios) == worse


def test_the_cost_of_a_process_is_compared_pass_by_pass_over_all_of_its_threads() -> None:
    before = [{("put", "proxy", "loop"): 10.0, ("put", "proxy", "door"): 10.0}] * 2
    now = [{("put", "proxy", "loop"): us} for us in (30.0, 10.0)]  # the front door's thread is gone

    assert ratios_of(now, before) == {("put", "proxy"): [1.5, 0.5]}


def test_a_kept_profile_is_compared_by_what_both_have() -> None:
    before = Profile("1", 3, 0.0, 20.0, [Cost("put", "proxy", 10.0, {}), Cost("old", "x", 1.0, {})])
    now = Profile("2", 3, 0.0, 20.0, [Cost("put", "proxy", 12.0, {}), Cost("new", "x", 1.0, {})])

    assert ratios_to(now, before) == {("put", "proxy"): [1.2]}


@pytest.mark.parametrize(("count", "outside"), [(8, 0), (11, 0), (12, 1), (20, 3), (25, 5)])
def test_the_range_of_a_median_is_that_of_the_sign_test(count: int, outside: int) -> None:
    ratios = [float(n) for n in range(count)]

    assert sure_range(ratios) == (outside, count - 1 - outside)


def test_the_threads_of_a_process_add_up_to_it_where_work_moves_between_them() -> None:
    loop, committer = ("put", "proxy", "loop"), ("put", "proxy", "committer")
    passes = [{loop: 30.0, committer: 10.0}, {loop: 10.0, committer: 30.0}]

    cost = profile_of("1", passes, {REQUESTS: 0.0}, 0.0).costs[0]

    assert cost.us == 40.0
    assert cost.threads == {"loop": 20.0, "committer": 20.0}


def test_what_is_shown_is_what_a_quarter_of_the_passes_are_below() -> None:
    assert lower_quartile([5.0, 1.0, 2.0, 3.0, 4.0]) == 2.0
    assert lower_quartile([5.0]) == 5.0


PEERS = [
    "redis",
    *(pytest.param(n, marks=pytest.mark.long) for n in ("nats", "mosquitto", "rabbitmq")),
]


@pytest.mark.parametrize("name", PEERS)
def test_a_peer_is_started_measured_judged_and_ended(name: str) -> None:
    if how := SYSTEMS[name].missing():
        pytest.skip(how)

    ran = CliRunner().invoke(main, [*TINY_PEERS, "--only", name], catch_exceptions=False)

    assert ran.exit_code == 0, ran.output
    assert f"{name}: " in ran.output
    assert "each exactly once" in ran.output


def test_ours_is_measured_beside_a_bare_loop_as_tables_for_the_readme() -> None:
    ran = CliRunner().invoke(
        main, [*TINY_PEERS, "--only", "ours,bare", "--markdown"], catch_exceptions=False
    )

    assert ran.exit_code in (0, 1), ran.output  # 1: a goal is missed
    assert ran.stdout.startswith("| work | here | bare loop | here to it |\n| --- | ---: |")
    for row in ("3 processes, each `put`", "the same, pushed, ms, p50", "with `stream()`, /s"):
        assert row in ran.output
    for station in ("ours", "ours, pushed", "ours, streamed"):
        assert re.search(rf"(?m)^{station}: [\d,]+ messages, each exactly once\.$", ran.output)


def test_a_peer_that_is_not_installed_is_named_with_the_package_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gone = replace(SYSTEMS["redis"], binary="no-such-server")
    monkeypatch.setitem(SYSTEMS, "redis", gone)

    ran = CliRunner().invoke(main, [*TINY_PEERS, "--only", "redis"], catch_exceptions=False)

    assert "Redis is not measured: apt-get install redis-server" in ran.stderr


def test_what_a_reader_misses_or_has_twice_is_counted() -> None:
    reader = Receiving("redis", "")
    reader._bodies = [body(0, 1), body(0, 1), body(0, 3), LAST]

    assert reader.verdict({0: 3}) == {"sent": 3, "lost": 1, "doubled": 1}


def test_a_ratio_is_taken_within_a_round_and_above_1_ours_is_better() -> None:
    assert ratio([100.0, 10.0, 30.0], [50.0, 5.0, 10.0], "/s") == 2.0
    assert ratio([1.0], [3.0], "ms, p50") == 3.0
    assert ratio([1.0], None, "/s") is None


def test_the_cost_of_a_put_and_a_get_is_compared_between_proxies_of_several_sizes() -> None:
    rows = flat("leases", [1, 3], 2)

    assert [(row.work, row.against) for row in rows] == [("put and get with 3 leases", "1")]
    assert rows[0].ratio is not None


def test_memory_is_compared_before_and_after_messages_that_pass() -> None:
    row = memory(10_000)

    assert row.ratio == row.ours / (row.bare or 0)


def test_the_cost_of_keys_is_compared_with_that_of_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_security, "CONNECTIONS", 1)
    monkeypatch.setattr(bench_security, "SIZES", {"100 bytes": (100, 1), "100 KB": (100_000, 1)})
    rows = bench_security.security_rows(1)

    assert [row.against for row in rows] == 6 * ["no keys", "keys"]
    assert all(row.ours > 0 for row in rows)


def test_a_fan_out_and_zapping_are_compared_with_what_has_no_relays(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, small in {"LEAVES": 4, "FAN_OUT_MESSAGES": 2, "VIEWERS": 2, "ZAPS": 3}.items():
        monkeypatch.setattr(bench_push, name, small)
    monkeypatch.setattr(bench_push, "STRATEGIES", ("subsume",))
    fan_out, *tiers = bench_push.push_rows()

    assert fan_out.ours < (fan_out.bare or 0)
    assert [row.against for row in tiers] == 2 * ["plain XPUB/XSUB devices"]
    assert all(row.ours > 0 for row in tiers)


@pytest.mark.parametrize(
    "command", ["profile", "peers", "scale", "threads", "push", "levels", "security"]
)
def test_each_subcommand_explains_itself(command: str) -> None:
    assert command in CliRunner().invoke(main, ["--help"]).output
    assert CliRunner().invoke(main, [command, "--help"]).exit_code == 0
