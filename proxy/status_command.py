"""`reliable-pubsub status`: ask a running proxy what it holds, and show it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial

import click
import msgspec
from msgspec import UNSET
from rich import box
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from reliable_pubsub.common.command_line import (
    CONTEXT_SETTINGS,
    EXIT_CODES,
    accept_endpoint,
    from_option,
    key_options,
    readable_errors,
    settings_from,
)
from reliable_pubsub.common.core.endpoint import check_endpoint
from reliable_pubsub.common.core.errors import InDoubtError
from reliable_pubsub.common.core.status import (
    CommitterStatus,
    ConnectionsStatus,
    IngressStatus,
    PushStatus,
    RingStatus,
    StagingStatus,
    StatusReport,
    TopicStatus,
)
from reliable_pubsub.common.core.visible import visible
from reliable_pubsub.common.key_files import client_keys
from reliable_pubsub.common.signals import stop_on_signals
from reliable_pubsub.common.status_client import StatusClient
from reliable_pubsub.common.surroundings import retry_policy
from reliable_pubsub.common.terminal import cell


def view(report: StatusReport, rows_max: int = 1_000_000, *, is_plain: bool = False) -> Group:
    """A report as text and tables: the slowest subscriptions first.

    Args:
        rows_max: of each table; the rest is counted.
        is_plain: it was asked for without keys, so no endpoint of the proxy is encrypted.
    """
    keys = _keys(report, rows_max)
    head = _head(report)
    if is_plain and (risk := _plaintext_risk(report)):
        head.append(f"\nwarning: {risk}", "bold red")
    if not report.topics:
        return Group(head, Text("no topics yet"), *keys)
    subscriptions = [
        (
            topic.topic,
            one.subscriber,
            str(one.cursor),
            f"{one.lag_messages:,}",
            f"{one.lag_s:.1f}",
            str(one.terms.qos) + (" clean" if one.terms.session == "clean" else ""),
            one.state + (f" {one.silent_s:.0f} s" if one.state != "active" else ""),
        )
        for topic in report.topics
        for one in topic.subscriptions
    ]
    subscriptions.sort(key=lambda row: float(row[4]), reverse=True)
    topics = [
        (one.topic, str(one.start), str(one.end), _bytes(one.stored_bytes), _ring(one))
        for one in report.topics
    ]
    publishers = [
        (topic.topic, one.publisher, str(one.qos), str(one.last_sequence), str(one.last_offset))
        for topic in report.topics
        for one in topic.publishers
    ]
    groups = [
        (
            *(topic.topic, one.group, str(one.members), f"{one.held:,} by {one.held_by:,}"),
            *(f"{one.waiting:,}", f"{one.lag_s:.1f}", one.state),
        )
        for topic in report.topics
        for one in (topic.groups if isinstance(topic.groups, tuple) else ())
    ]
    of_groups = ("topic", "group", "members", "in hand", "waiting", "lag s", "state")
    names = (
        "topic",
        "subscriber",
        "cursor",
        "lag",
        "lag s",
        "QoS",
        "state",
    )
    return Group(
        head,
        _table("subscriptions, the slowest first", names, subscriptions, rows_max),
        *([_table("groups", of_groups, groups, rows_max)] if groups else []),
        _table("topics", ("topic", "start", "end", "stored", "at QoS 0"), topics, rows_max),
        _table(
            "publishers",
            ("topic", "publisher", "QoS", "last sequence", "last offset"),
            publishers,
            rows_max,
        ),
        *keys,
    )


def _keys(report: StatusReport, rows_max: int) -> list[Table | Text]:
    """What keys use of their quotas; nothing where no key uses anything or has a bound."""
    if not isinstance(report.accounts, tuple):
        return []
    rows = [
        (
            account.key,
            use.quota.removesuffix("_max"),
            _amount(use.quota, use.used),
            _amount(use.quota, use.most) if isinstance(use.most, int) else "",
        )
        for account in report.accounts
        for use in account.noted
    ]
    title = "keys, those nearest to a bound first"
    found = [_table(title, ("key", "quota", "used", "bound"), rows, rows_max)]
    if isinstance(report.accounts_left_out, int):
        found.append(Text(f"{report.accounts_left_out:,} more keys are not listed"))
    return found


def _amount(quota: str, count: int) -> str:
    return _bytes(count) if "bytes" in quota else f"{count:,}"


def _ring(topic: TopicStatus) -> str:
    """The QoS 0 messages of a topic, and how many were lost because they were read too late."""
    if not isinstance(topic.ring, RingStatus):
        return ""
    lost = sum(one.lost for one in topic.subscriptions if isinstance(one.lost, int))
    return f"{topic.ring.end:,}, {topic.ring.held:,} held, {lost:,} lost"


def _table(
    title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], rows_max: int
) -> Table | Text:
    if not rows:
        return Text(f"{title.split(',')[0]}: none")
    table = Table(
        title=title, title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), expand=True
    )
    for name in columns:
        if name in (
            "topic",
            "subscriber",
            "publisher",
            "group",
            "key",
        ):  # chosen by users, of any length
            table.add_column(name, overflow="fold", ratio=len(name))
        else:  # our own words and numbers are never cut
            table.add_column(name, justify="left" if name == "state" else "right", no_wrap=True)
    for row in rows[:rows_max]:
        table.add_row(*map(cell, row))  # names are not markup
    if len(rows) > rows_max:
        table.add_row(f"and {len(rows) - rows_max} more", *[""] * (len(columns) - 1))
    return table


def _add_states(report: StatusReport, text: Text) -> None:
    if isinstance(report.timestamps_ahead_s, float) and report.timestamps_ahead_s >= 1:
        text.append(
            f"\nTIMESTAMPS ARE {report.timestamps_ahead_s:,.0f} s AHEAD of the proxy's clock, "
            "which was set back or had been wrong",
            "bold red",
        )
    if isinstance(report.paused, str):
        why = f" ({visible(report.paused)})" if report.paused else ""
        text.append(
            f"\nPUTS ARE PAUSED{why}: an operator resumes them with `admin resume`", "bold red"
        )


def _head(report: StatusReport) -> Text:
    text = cell(
        f"proxy {report.store_path}\ndurability {report.durability}, boot {report.boot}\n"
        f"{report.topics_count} topics, {report.sessions_count} clients, "
        f"{report.dropped_requests} malformed requests"
    )
    if isinstance(report.waiting_gets, int):
        text.append(f", {report.waiting_gets:,} gets wait for messages")
    if isinstance(report.committer, CommitterStatus):
        committer = report.committer
        text.append(
            f"\ncommitter: {committer.queued_records} queued, {committer.records:,} records in "
            f"{committer.commits:,} commits, last {committer.last_commit_ms:.2f} ms"
        )
        if committer.storage_full:
            text.append("\nTHE DISK IS FULL: puts are refused until there is space", "bold red")
        if isinstance(committer.log_held_bytes, int):
            held = _bytes(committer.log_held_bytes)
            text.append(
                f"\nANOTHER PROGRAM READS THE STORE: its write-ahead log has {held} and cannot be "
                "emptied; end that program",
                "bold red",
            )
    _add_states(report, text)
    if isinstance(report.push, PushStatus):
        push = report.push
        text.append(
            f"\npush {push.endpoint}: {push.links} links, {push.plain} plain prefixes, "
            f"{push.sent:,} batches sent, {push.queued} queued, {push.dropped:,} dropped"
        )
    if isinstance(report.ingress, IngressStatus):
        come = report.ingress
        text.append(
            f"\ningress {come.endpoint}: {come.patterns} patterns asked for, "
            f"{come.taken:,} batches taken, {come.unwanted:,} unwanted, {come.refused:,} refused"
        )
    _add_process(text, report)
    if isinstance(report.staging, StagingStatus):
        staging = report.staging
        text.append(
            f"\ntransactions: {staging.transactions} not committed, with {staging.batches:,} "
            f"batches of {_bytes(staging.staged_bytes)}; {staging.writers} publishers use them"
        )
    left_out = sum(
        t.subscriptions_left_out + t.publishers_left_out + (t.groups_left_out or 0)
        for t in report.topics
    )
    if left_out:
        text.append(f"\n{left_out} more subscriptions, groups and publishers are not listed")
    return text


def _add_process(text: Text, report: StatusReport) -> None:
    """Add what concerns the process, whatever is stored."""
    if isinstance(report.why_dead, str):
        text.append(f"\nRESTART THE PROXY: {report.why_dead}", "bold red")
    if isinstance(report.connections, ConnectionsStatus):
        text.append(f"\nconnections: {report.connections.text}")
        if report.connections.warning:
            text.append(f"\n{report.connections.warning}", "bold red")
    if isinstance(report.standbys, int):
        style = "" if report.standbys else "bold red"
        text.append(f"\nproxies that stand by: {report.standbys}", style)


def _plaintext_risk(report: StatusReport) -> str | None:
    """A warning about endpoints that other machines reach; None: none.

    Of requests only the address is known by which this command came; the others are beside them.
    """
    places = [one.endpoint for one in (report.push, report.ingress) if one is not UNSET]
    risks = (check_endpoint(place, True, bind=True) for place in places)
    return next((risk for risk in risks if risk), None)


def _bytes(size: float) -> str:
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} GiB"


@click.command(
    epilog=EXIT_CODES,
    context_settings=CONTEXT_SETTINGS,
)
@click.option("--endpoint", help="The proxy's subscriber endpoint.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document, for programs.")
@click.option("--watch", is_flag=True, help="Ask every second until interrupted.")
@click.option("--ack-timeout", help="Seconds to wait for an answer.")
@click.option("--send-retries", help="How often to ask again.  [default here: 1]")
@click.option("--allow-plaintext", is_flag=True, help="Accept an endpoint on another machine.")
@key_options(server=False, client=True)
def main(
    endpoint: str | None, as_json: bool, watch: bool, allow_plaintext: bool, **said: str | None
) -> None:
    """Show topics, subscriptions with their lag, publishers, and the committer of a proxy.

    Lag is what a subscription has not acknowledged: in messages, and in seconds since the oldest
    of them was stored.
    """
    with readable_errors(), stop_on_signals(exit_code=0):
        if said["send_retries"] is None:
            said["send_retries"] = "1"
        asked = from_option("--endpoint", endpoint)
        settings = settings_from("status", {"subscriber_endpoint": asked, **said})
        keys = client_keys(settings)
        where = accept_endpoint(
            settings.subscriber_endpoint, allow_plaintext=allow_plaintext, keys=keys
        )
        client = StatusClient(where, retry_policy(settings))
        shown = partial(view, is_plain=keys is None)
        try:
            if as_json:
                _write_json(client, is_endless=watch)
            elif watch:
                _watch(client, shown)
            else:
                Console().print(shown(client.ask()))
        finally:
            client.close()


def _write_json(client: StatusClient, *, is_endless: bool) -> None:
    click.echo(msgspec.json.encode(client.ask()).decode())
    while is_endless:
        time.sleep(1)
        click.echo(msgspec.json.encode(client.ask()).decode())


def _watch(client: StatusClient, view: Callable[[StatusReport, int], Group]) -> None:
    """Show the state every second; wait for a proxy that does not answer."""
    console = Console()
    rows_max = max((console.height - 18) // 3, 3)
    shown = view(client.ask(), rows_max)
    with Live(shown, console=console, refresh_per_second=4) as live:
        since_s: float | None = None
        while True:
            time.sleep(1)
            try:
                shown = view(client.ask(), rows_max)
                since_s = None
                live.update(shown)
            except InDoubtError:
                since_s = since_s or time.monotonic()
                away = Text(f"no answer for {time.monotonic() - since_s:.0f} s", "bold red")
                live.update(Group(away, shown))
