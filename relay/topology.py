"""`reliable-pubsub topology`: ask a node, and those above it, who they are and what they want."""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from importlib.resources import files
from pathlib import Path

import click
import msgspec
from rich.console import Console
from rich.tree import Tree as RichTree

from reliable_pubsub.common.command_line import (
    CONTEXT_SETTINGS,
    EXIT_CODES,
    accept_endpoint,
    key_options,
    readable_errors,
    settings_from,
)
from reliable_pubsub.common.core.answers import Denied
from reliable_pubsub.common.core.errors import (
    ConfigurationError,
    MalformedError,
    ProxyUnreachableError,
    RefusedError,
)
from reliable_pubsub.common.core.retry import RetryPolicy
from reliable_pubsub.common.core.session import refusal
from reliable_pubsub.common.core.status import ConnectionsStatus
from reliable_pubsub.common.core.tree_messages import Node, NodeReport
from reliable_pubsub.common.core.wire import encode
from reliable_pubsub.common.key_files import client_keys
from reliable_pubsub.common.signals import stop_on_signals
from reliable_pubsub.common.status_client import StatusClient
from reliable_pubsub.common.terminal import cell
from reliable_pubsub.common.transport import ReqTransport

from .above import reachable
from .core.tree import TreeSnapshot, tree_of
from .core.tree_figure import TreeFigure, page_text, svg_text
from .core.wire import decode_node_reply

TIMEOUT_S = 2.0
NODES_MAX = 64  # that are asked
TITLE = "Who sends what to whom"
_FILE = click.Path(path_type=Path, dir_okay=False)


def ask_node(endpoint: str, *, timeout_s: float = TIMEOUT_S) -> NodeReport:
    """Ask one node.

    Raises:
        ProxyUnreachableError: no answer.
        RefusedError: it is no node of the push tree, or its answer cannot be read.
        DeniedError: the key may not ask.
    """
    transport = ReqTransport(endpoint)
    try:
        request = Node(client=f"topology-{secrets.token_hex(4)}", epoch=0, request=1)
        transport.send(encode(request))
        frames = transport.receive(timeout_s)
    finally:
        transport.close()
    if frames is None:
        raise ProxyUnreachableError(
            endpoint=endpoint, attempts=1, waited_s=timeout_s, verb="STATUS"
        )
    try:
        reply = decode_node_reply(frames)
    except MalformedError as error:
        raise MalformedError(
            f"the answer of {endpoint} cannot be read ({error}): nothing there is a node of the "
            "push tree of this version"
        ) from error
    if isinstance(reply, Denied):
        raise refusal(reply, client=request.client, epoch=0)
    if not isinstance(reply, NodeReport):
        raise RefusedError(f"{endpoint} answered {type(reply).__name__} to NODE: it is no relay")
    return reply


def ask_upwards(endpoints: Sequence[str]) -> dict[str, NodeReport | None]:
    """Ask nodes and those above them, by endpoint; None: it did not answer, or is no node.

    Raises:
        ProxyUnreachableError, RefusedError: of an endpoint that was given.
    """
    found: dict[str, NodeReport | None] = {one: ask_node(one) for one in endpoints}
    waiting = list(endpoints)
    while waiting and len(found) < NODES_MAX:
        asked = waiting.pop(0)
        report = found[asked]
        for above in report.above if report else ():
            if above.endpoint in found:
                continue
            there = reachable(above.endpoint, asked)
            try:
                found[there] = ask_node(there)
            except (ProxyUnreachableError, RefusedError):
                found[there] = None
            waiting.append(there)
    return found


def look(endpoints: Sequence[str]) -> TreeSnapshot:
    """Ask every node once, and the proxy at the top for its status."""
    at_s = time.monotonic()
    found = ask_upwards(endpoints)
    nodes = {endpoint: report for endpoint, report in found.items() if report is not None}
    tops = [endpoint for endpoint, report in nodes.items() if not report.above]
    status = None
    if tops:
        asking = StatusClient(tops[0], RetryPolicy(timeout_s=TIMEOUT_S, retries_max=0))
        try:
            status = asking.ask()
        finally:
            asking.close()
    return TreeSnapshot(at_s, nodes, [one for one in found if one not in nodes], status)


def tree_view(reports: Mapping[str, NodeReport | None]) -> RichTree:
    """The nodes on the way up, each with what is below it."""
    tree = RichTree("from the node that was asked, upwards")
    for endpoint, report in reports.items():
        if report is None:
            tree.add(cell(f"{endpoint}: no relay, or no answer"))
            continue
        feed = "everything" if report.is_full else f"{report.patterns} patterns"
        branch = tree.add(
            cell(
                f"{report.node}: asks for {feed}, received {report.received:,}; requests: "
                f"{report.passed:,} passed on, {report.from_cache:,} from the cache, "
                f"{report.shared:,} shared"
            )
        )
        for kind in report.unknown_kinds:
            branch.add(cell(f"kind {kind!r} is unknown here: the node sends everything"))
        for above in report.above:
            state = above.refused or ("settled" if above.settled else "not settled")
            branch.add(
                cell(f"above {above.endpoint}: {state}, {above.said:,} messages about interest")
            )
        for below in report.below:
            full = "everything (above the cap)" if below.is_full else f"{below.patterns} patterns"
            branch.add(cell(f"below {below.client}: {full}"))
        if report.below_left_out:
            branch.add(cell(f"and {report.below_left_out} more below"))
        if isinstance(report.why_dead, str):
            branch.add(cell(f"RESTART THIS RELAY: {report.why_dead}"))
        if isinstance(report.connections, ConnectionsStatus):
            branch.add(cell(f"connections: {report.connections.text}"))
            if report.connections.warning:
                branch.add(cell(report.connections.warning))
        if report.plain:
            branch.add(cell(f"plain subscribers: {report.plain} prefixes"))
    return tree


def draw(endpoints: Sequence[str], interval_s: float) -> TreeFigure:
    """Look twice, and draw what was seen the second time, with the rates in between."""
    earlier = look(endpoints)
    time.sleep(interval_s)
    now = look(endpoints)
    seen = datetime.now().astimezone().strftime("%Y-%m-%d %H:%M:%S %Z")
    about = f"Seen on {seen}; rates are those of {now.at_s - earlier.at_s:.1f} s before."
    style = files(__package__).joinpath("topology.css").read_text("utf-8")
    return TreeFigure(tree_of(now, earlier), title=TITLE, about=about, style=style)


def write_file(path: Path, text: str) -> None:
    """Write a drawing.

    Raises:
        ConfigurationError: it cannot be written.
    """
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigurationError(f"{path}: cannot be written: {error.strerror}") from error


@click.command(epilog=EXIT_CODES, context_settings=CONTEXT_SETTINGS)
@click.option(
    "--endpoint",
    "endpoints",
    required=True,
    multiple=True,
    help="The request endpoint of a relay, or of the proxy; those above are found. Repeat it for "
    "relays side by side.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON document, for programs.")
@click.option("--svg", type=_FILE, help="Draw publishers, topics, relays and subscribers.")
@click.option("--html", type=_FILE, help="The same as a page.")
@click.option(
    "--interval",
    type=click.FloatRange(0.1, 3600),
    default=1.0,
    show_default=True,
    help="Seconds between the two looks that a drawing takes its rates from.",
)
@click.option("--allow-plaintext", is_flag=True, help="Accept an endpoint on another machine.")
@key_options(server=False, client=True)
def main(
    endpoints: tuple[str, ...],
    as_json: bool,
    svg: Path | None,
    html: Path | None,
    interval: float,
    allow_plaintext: bool,
    **said: str | None,
) -> None:
    """Show relays and the nodes above them: interest, consumers, counts."""
    with readable_errors(), stop_on_signals(exit_code=0):
        keys = client_keys(settings_from("topology", said))
        endpoints = tuple(
            accept_endpoint(endpoint, allow_plaintext=allow_plaintext, keys=keys)
            for endpoint in endpoints
        )
        if svg or html:
            figure = draw(endpoints, interval)
            if svg:
                write_file(svg, svg_text(figure))
            if html:
                write_file(html, page_text(figure, TITLE))
            return
        reports = ask_upwards(endpoints)
        if as_json:
            shown = [report or endpoint for endpoint, report in reports.items()]
            click.echo(msgspec.json.encode(shown).decode())
        else:
            Console().print(tree_view(reports))


if __name__ == "__main__":
    main(prog_name="reliable-pubsub topology")
