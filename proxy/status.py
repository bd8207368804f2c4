"""`reliable-pubsub status`: ask a running proxy what it holds, and show it."""

from __future__ import annotations

import random
import secrets
import time

import click
import msgspec
from msgspec import UNSET
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from reliable_pubsub.common.command_line import (
    EXIT_CODES,
    accept_endpoint,
    readable_errors,
    retry_policy,
    settings_from,
    stop_on_signals,
)
from reliable_pubsub.common.errors import RefusedError
from reliable_pubsub.common.messages import CommitterStatus, Status, StatusReport, TopicStatus
from reliable_pubsub.common.retry import RetryPolicy, ask
from reliable_pubsub.common.transport import ReqTransport, SystemClock


class StatusClient:
    """Asks for all pages of a proxy's status."""

    def __init__(self, endpoint: str, retry: RetryPolicy) -> None:
        self._transport = ReqTransport(endpoint)
        self._clock = SystemClock()
        self._retry = retry
        self._name = f"status-{secrets.token_hex(4)}"
        self._request = 0

    def ask(self) -> StatusReport:
        """The whole state as one report.

        Raises:
            ProxyUnreachableError: no answer.
        """
        topics: list[TopicStatus] = []
        after = ""
        while True:
            self._request += 1
            reply, _ = ask(
                Status(client=self._name, epoch=0, request=self._request, after_topic=after),
                None,
                transport=self._transport,
                clock=self._clock,
                retry=self._retry,
                chance=random.random,
            )
            if not isinstance(reply, StatusReport):
                raise RefusedError(f"the proxy answered {type(reply).__name__} to STATUS")
            topics += reply.topics
            if reply.next_topic is UNSET:
                return msgspec.structs.replace(reply, topics=tuple(topics))
            after = reply.next_topic

    def close(self) -> None:
        """Close the socket."""
        self._transport.close()


def view(report: StatusReport) -> Group:
    """A report as tables."""
    topics = Table(title="topics", title_justify="left")
    subscriptions = Table(title="subscriptions, the slowest first", title_justify="left")
    publishers = Table(title="publishers", title_justify="left")
    for name in ("topic", "start", "end", "stored", "log"):
        topics.add_column(name, justify="left" if name in ("topic", "log") else "right")
    for name in ("topic", "subscriber", "cursor", "lag", "lag s", "generation"):
        left = name in ("topic", "subscriber")
        subscriptions.add_column(name, justify="left" if left else "right")
    for name in ("topic", "publisher", "last sequence", "last offset"):
        left = name in ("topic", "publisher")
        publishers.add_column(name, justify="left" if left else "right")
    for topic in report.topics:
        topics.add_row(
            topic.topic, str(topic.start), str(topic.end), _bytes(topic.stored_bytes), topic.log
        )
        for one in topic.subscriptions:
            subscriptions.add_row(
                topic.topic,
                one.subscriber,
                str(one.cursor),
                f"{one.lag_messages:,}",
                f"{one.lag_s:.1f}",
                str(one.generation),
            )
        if topic.subscriptions_left_out:
            subscriptions.add_row(topic.topic, f"and {topic.subscriptions_left_out} more")
        for publisher in topic.publishers:
            publishers.add_row(
                topic.topic,
                publisher.publisher,
                str(publisher.last_sequence),
                str(publisher.last_offset),
            )
        if topic.publishers_left_out:
            publishers.add_row(topic.topic, f"and {topic.publishers_left_out} more")
    return Group(_head(report), topics, subscriptions, publishers)


def _head(report: StatusReport) -> Text:
    text = Text(
        f"proxy {report.store_path}  boot {report.boot}  durability {report.durability}  "
        f"{report.topics_count} topics  {report.sessions_count} clients  "
        f"{report.dropped_requests} malformed requests"
    )
    if isinstance(report.committer, CommitterStatus):
        committer = report.committer
        text.append(
            f"\ncommitter: {committer.queued_records} queued, {committer.records:,} records in "
            f"{committer.commits:,} commits, last {committer.last_commit_ms:.2f} ms"
        )
        if committer.storage_full:
            text.append("\nTHE DISK IS FULL: puts are refused until there is space", "bold red")
    return text


def _bytes(size: float) -> str:
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} GiB"


@click.command(
    epilog=EXIT_CODES,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.option("--endpoint", help="The proxy's subscriber endpoint.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document, for programs.")
@click.option("--watch", is_flag=True, help="Ask every second until interrupted.")
@click.option("--ack-timeout", help="Seconds to wait for an answer.")
@click.option("--send-retries", help="How often to ask again.  [default here: 1]")
@click.option("--allow-plaintext", is_flag=True, help="Accept an endpoint on another machine.")
def main(
    endpoint: str | None,
    as_json: bool,
    watch: bool,
    ack_timeout: str | None,
    send_retries: str | None,
    allow_plaintext: bool,
) -> None:
    """Show topics, subscriptions with their lag, publishers, and the committer of a proxy.

    Lag is what a subscription has not acknowledged: in messages, and in seconds since the oldest
    of them was taken.
    """
    with readable_errors(), stop_on_signals():
        settings = settings_from(
            "status",
            {
                "subscriber_endpoint": endpoint,
                "ack_timeout": ack_timeout,
                "send_retries": 1 if send_retries is None else send_retries,
            },
        )
        client = StatusClient(
            accept_endpoint(settings.subscriber_endpoint, allow_plaintext=allow_plaintext),
            retry_policy(settings),
        )
        try:
            if not watch:
                _show(client.ask(), as_json)
            elif as_json:
                while True:
                    _show(client.ask(), as_json)
                    time.sleep(1)
            else:
                with Live(view(client.ask()), refresh_per_second=4) as live:
                    while True:
                        time.sleep(1)
                        live.update(view(client.ask()))
        finally:
            client.close()


def _show(report: StatusReport, as_json: bool) -> None:
    if as_json:
        click.echo(msgspec.json.encode(report).decode())
    else:
        Console().print(view(report))
