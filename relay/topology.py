"""`reliable-pubsub topology`: ask a node, and those above it, who they are and what they want."""

from __future__ import annotations

import secrets

import click
import msgspec
from rich.console import Console
from rich.tree import Tree

from reliable_pubsub.common.command_line import (
    CONTEXT_SETTINGS,
    EXIT_CODES,
    accept_endpoint,
    readable_errors,
    stop_on_signals,
)
from reliable_pubsub.common.errors import ProxyUnreachableError, RefusedError
from reliable_pubsub.common.transport import ReqTransport
from reliable_pubsub.common.wire import encode_request

from .messages import Node, NodeReport
from .wire import decode_node_reply

TIMEOUT_S = 2.0
HEIGHT_MAX = 32  # nodes above each other; a longer way up is a ring


def ask_node(endpoint: str, *, timeout_s: float = TIMEOUT_S) -> NodeReport:
    """Ask one node.

    Raises:
        ProxyUnreachableError: no answer.
        RefusedError: it is no node of the push tree.
    """
    transport = ReqTransport(endpoint)
    try:
        request = Node(client=f"topology-{secrets.token_hex(4)}", epoch=0, request=1)
        transport.send(encode_request(request))
        frames = transport.receive(timeout_s)
    finally:
        transport.close()
    if frames is None:
        raise ProxyUnreachableError(
            endpoint=endpoint, attempts=1, waited_s=timeout_s, verb="STATUS"
        )
    reply = decode_node_reply(frames)
    if not isinstance(reply, NodeReport):
        raise RefusedError(f"{endpoint} answered {type(reply).__name__} to NODE: it is no relay")
    return reply


def ask_upwards(endpoint: str) -> list[NodeReport | str]:
    """Ask a node and what is above it, one behind the other; what does not answer, by endpoint."""
    found: list[NodeReport | str] = [ask_node(endpoint)]
    seen = {endpoint}
    waiting = [found[0]]
    while waiting and len(found) < HEIGHT_MAX:
        report = waiting.pop(0)
        assert isinstance(report, NodeReport)
        for above in report.above:
            if above.endpoint in seen:
                continue
            seen.add(above.endpoint)
            try:
                found.append(ask_node(above.endpoint))
                waiting.append(found[-1])
            except (ProxyUnreachableError, RefusedError):
                found.append(above.endpoint)
    return found


def view(reports: list[NodeReport | str]) -> Tree:
    """The nodes on the way up, each with what is below it."""
    tree = Tree("from the node that was asked, upwards")
    for report in reports:
        if isinstance(report, str):
            tree.add(f"{report}: no relay, or no answer")
            continue
        feed = "everything" if report.is_full else f"{report.patterns} patterns"
        branch = tree.add(
            f"{report.node}: asks for {feed}, received {report.received:,}; requests: "
            f"{report.passed:,} passed on, {report.from_cache:,} from the cache, "
            f"{report.shared:,} shared"
        )
        for kind in report.unknown_kinds:
            branch.add(f"kind {kind!r} is not known here: everything is sent")
        for above in report.above:
            state = above.refused or ("settled" if above.settled else "not settled")
            branch.add(f"above {above.endpoint}: {state}, {above.said:,} messages about interest")
        for below in report.below:
            full = "everything (above the cap)" if below.is_full else f"{below.patterns} patterns"
            branch.add(f"below {below.client}: {full}")
        if report.below_left_out:
            branch.add(f"and {report.below_left_out} more below")
        if report.plain:
            branch.add(f"plain subscribers: {report.plain} prefixes")
    return tree


@click.command(epilog=EXIT_CODES, context_settings=CONTEXT_SETTINGS)
@click.option("--endpoint", required=True, help="The request endpoint of a relay.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document, for programs.")
@click.option("--allow-plaintext", is_flag=True, help="Accept an endpoint on another machine.")
def main(endpoint: str, as_json: bool, allow_plaintext: bool) -> None:
    """Show a relay and the nodes above it: interest, consumers, counts."""
    with readable_errors(), stop_on_signals():
        reports = ask_upwards(accept_endpoint(endpoint, allow_plaintext=allow_plaintext))
        if as_json:
            click.echo(msgspec.json.encode(reports).decode())
        else:
            Console().print(view(reports), markup=False)


if __name__ == "__main__":
    main(prog_name="reliable-pubsub topology")
