"""`reliable-pubsub relay`: parse, wire up, run, exit code."""

from __future__ import annotations

import signal
from types import FrameType
from typing import get_args

import click

from reliable_pubsub.common.command_line import (
    CONTEXT_SETTINGS,
    EXIT_CODES,
    accept_endpoint,
    readable_errors,
)
from reliable_pubsub.common.limits import INTEREST_PATTERNS_MAX
from reliable_pubsub.common.names import client_id
from reliable_pubsub.common.settings import SUBSCRIBER_ENDPOINT

from .interest_link import LEASE_S
from .interest_table import CAP
from .pattern import Strategy
from .server import Relay, RelaySettings
from .sockets import a_node_name, allow_connections

REQUEST_ENDPOINT = "tcp://127.0.0.1:5558"
PUSH_ENDPOINT = "tcp://127.0.0.1:5559"


@click.command(epilog=EXIT_CODES, context_settings=CONTEXT_SETTINGS)
@click.option(
    "--upstream",
    "upstreams",
    multiple=True,
    help="Subscriber endpoint of the proxy, or endpoint of a relay, above. Data comes from all of "
    f"them, requests go to the first.  [default: {SUBSCRIBER_ENDPOINT}]",
)
@click.option(
    "--publisher",
    "publishers",
    multiple=True,
    help="A plain ZeroMQ publisher (PUB or XPUB) above, served as it is.",
)
@click.option(
    "--endpoint",
    default=REQUEST_ENDPOINT,
    show_default=True,
    help="Where subscribers and further relays come in, as at the proxy.",
)
@click.option(
    "--push-endpoint",
    default=PUSH_ENDPOINT,
    show_default=True,
    help="Where data leaves; plain ZeroMQ subscribers connect here.",
)
@click.option(
    "-i", "--id", "node", help="Name of this relay, alone in its tree.  [default: random]"
)
@click.option(
    "--strategy",
    type=click.Choice(get_args(Strategy)),
    default="subsume",
    show_default=True,
    help="How interest is joined before it goes up.",
)
@click.option(
    "--max-subscriptions",
    type=click.IntRange(1, INTEREST_PATTERNS_MAX),
    default=CAP,
    show_default=True,
    help="Patterns of one consumer; with more it gets everything, until it is well below.",
)
@click.option(
    "--lease",
    type=click.FloatRange(1, 3600),
    default=LEASE_S,
    show_default=True,
    help="Seconds without a word after which the interest of a link ends.",
)
@click.option(
    "--allow-plaintext",
    is_flag=True,
    help="Accept endpoints that other machines reach; traffic is not encrypted.",
)
def main(
    upstreams: tuple[str, ...],
    publishers: tuple[str, ...],
    endpoint: str,
    push_endpoint: str,
    node: str | None,
    strategy: Strategy,
    max_subscriptions: int,
    lease: float,
    allow_plaintext: bool,
) -> None:
    """Run a relay: a node of the tree between the proxy and many subscribers.

    Each batch comes down once, however many below want it; what nobody below wants does not come.
    Requests of subscribers are passed on, and answered here where many ask the same. A relay keeps
    nothing that cannot be had again: kill it at any moment and start it, or another one, again.
    """
    with readable_errors():
        above = upstreams or (() if publishers else (SUBSCRIBER_ENDPOINT,))
        for one in (*above, *publishers):
            accept_endpoint(one, allow_plaintext=allow_plaintext)
        for one in (endpoint, push_endpoint):
            accept_endpoint(one, allow_plaintext=allow_plaintext, bind=True)
        allow_connections()
        relay = Relay(
            RelaySettings(
                node=client_id(node or a_node_name()),
                upstreams=above,
                publishers=publishers,
                endpoint=endpoint,
                push_endpoint=push_endpoint,
                strategy=strategy,
                cap=max_subscriptions,
                lease_s=lease,
            )
        )

        def stop(_number: int, _frame: FrameType | None) -> None:
            relay.stop()

        signal.signal(signal.SIGTERM, stop)
        signal.signal(signal.SIGINT, stop)
        click.echo(
            f"ready: relay {relay.settings.node} requests={relay.endpoint} "
            f"push={relay.fan_out.endpoint} upstream={','.join((*above, *publishers))} "
            f"strategy={strategy}"
        )
        try:
            relay.run()
        finally:  # a second signal has nothing to add
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            signal.signal(signal.SIGINT, signal.SIG_IGN)


if __name__ == "__main__":
    main(prog_name="reliable-pubsub relay")
