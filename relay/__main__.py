"""`reliable-pubsub relay`: parse, wire up, run, exit code."""

from __future__ import annotations

import logging
from functools import partial
from pathlib import Path
from typing import Final

import click

from reliable_pubsub.common.access.core.inflow import ConnectionBounds
from reliable_pubsub.common.access.sockets import a_node_name, allow_connections
from reliable_pubsub.common.command_line import (
    CONTEXT_SETTINGS,
    EXIT_CODES,
    accept_endpoint,
    accept_metrics,
    complain,
    from_option,
    journal_option,
    key_options,
    log_format_option,
    metrics_option,
    one_of,
    readable_errors,
    resolve_all,
)
from reliable_pubsub.common.core.endpoint import data_endpoint_of
from reliable_pubsub.common.core.names import client_id
from reliable_pubsub.common.core.recorder import Recorder
from reliable_pubsub.common.core.resolving import typed_settings
from reliable_pubsub.common.journal_file import open_journal
from reliable_pubsub.common.key_files import client_keys, server_keys
from reliable_pubsub.common.metrics_server import Pages, metrics_served
from reliable_pubsub.common.notify import ServiceManager
from reliable_pubsub.common.signals import stopped_by_signals
from reliable_pubsub.common.system import share_one_heap
from reliable_pubsub.common.terminal import say

from .metrics import exposition
from .server import Relay, RelaySettings

LOG = logging.getLogger("reliable_pubsub.relay")
# The others are those of a relay alone.
_SETTING_OF: Final = {
    name: name
    for name in (
        *("push_via", "secret_key", "server_key", "clients"),
        *("metrics_endpoint", "metrics_token", "log_format"),
    )
}


@click.command(epilog=EXIT_CODES, context_settings=CONTEXT_SETTINGS)
@click.option(
    "--upstream",
    "upstreams",
    multiple=True,
    help="Subscriber endpoint of the proxy, or endpoint of a relay, above. Data comes from all of "
    "them, requests go to the first.  [default: the setting subscriber_endpoint]",
)
@click.option(
    "--publisher",
    "publishers",
    multiple=True,
    help="A plain ZeroMQ publisher (PUB or XPUB) above, served as it is.",
)
@click.option("--endpoint", help="Endpoint for subscribers and further relays, as at the proxy.")
@click.option("--push-endpoint", help="Endpoint of pushed data, also for plain ZeroMQ subscribers.")
@click.option("--push-via", help="Push endpoint of the first --upstream, if not the announced one.")
@click.option(
    "-i", "--id", "node", help="Name of this relay, alone in its tree.  [default: random]"
)
@click.option(
    "--strategy",
    shell_complete=one_of("none", "dedup", "subsume", "all"),
    help="How interest is joined before it goes up: none, dedup, subsume or all.",
)
@click.option(
    "--max-subscriptions",
    help="Patterns of one consumer; with more it gets everything, until it is well below.",
)
@click.option("--lease", help="Seconds without a word after which the interest of a link ends.")
@click.option(
    "--allow-plaintext",
    is_flag=True,
    help="Accept endpoints that other machines reach; traffic is not encrypted.",
)
@key_options(server=True, client=True)
@metrics_option()
@journal_option()
@log_format_option()
def main(
    upstreams: tuple[str, ...],
    publishers: tuple[str, ...],
    node: str | None,
    allow_plaintext: bool,
    require_keys: bool,
    metrics_allow_plaintext: bool,
    journal: Path | None,
    **given: str | None,
) -> None:
    """Run a relay: a node of the tree between the proxy and many subscribers.

    A batch comes down once if anyone below wants it. Kill a relay at any moment: it keeps nothing.

    Everything else is a setting: `reliable-pubsub config show relay` shows it.
    """
    with readable_errors():
        command_line = {
            _SETTING_OF.get(name, f"relay_{name}"): from_option(f"--{name.replace('_', '-')}", text)
            for name, text in given.items()
        }
        resolved = resolve_all(client_id(node) if node else "relay", command_line)
        settings = typed_settings(resolved)
        push_endpoint = settings.relay_push_endpoint
        if resolved["relay_push_endpoint"].origin == "default":
            push_endpoint = data_endpoint_of(settings.relay_endpoint, push_endpoint)
        above = upstreams or (() if publishers else (settings.subscriber_endpoint,))
        keys = server_keys(settings, are_required=require_keys)
        keys_above = client_keys(settings) if settings.server_key else None
        above = tuple(
            accept_endpoint(one, allow_plaintext=allow_plaintext, keys=keys_above) for one in above
        )
        if via := settings.push_via:
            accept_endpoint(via, allow_plaintext=allow_plaintext, keys=keys_above)
        for one in publishers:
            accept_endpoint(one, allow_plaintext=allow_plaintext)
        for one in (settings.relay_endpoint, push_endpoint):
            accept_endpoint(one, allow_plaintext=allow_plaintext, bind=True, keys=keys)
        token = accept_metrics(settings, allow_plaintext=metrics_allow_plaintext)
        allow_connections()
        share_one_heap()
        manager = ServiceManager()
        relay = Relay(
            RelaySettings(
                node=client_id(node or a_node_name()),
                upstreams=above,
                publishers=publishers,
                endpoint=settings.relay_endpoint,
                push_endpoint=push_endpoint,
                push_via=settings.push_via,
                strategy=settings.relay_strategy,
                cap=settings.relay_max_subscriptions,
                lease_s=settings.relay_lease,
                keys=keys,
                connections=ConnectionBounds(
                    connections_max=settings.connections_max,
                    per_s_max=settings.connections_per_s_max,
                ),
            ),
            warn=complain,
            manager=manager,
        )
        _serve(
            relay,
            open_journal(journal, relay.settings.node),
            manager,
            f"upstream={','.join((*above, *publishers))} strategy={settings.relay_strategy}",
            settings.metrics_endpoint,
            token,
        )


def _serve(
    relay: Relay, recorder: Recorder, manager: ServiceManager, facts: str, address: str, token: str
) -> None:
    """Say that it is ready; run until a signal comes."""

    def stop() -> None:
        manager.stopping()
        relay.stop()

    pages = partial(Pages, relay.scrapes, exposition)
    with stopped_by_signals(stop), metrics_served(address, pages, token) as metrics:
        recorder.begin("relay")
        status = (
            f"relay {relay.settings.node} requests={relay.endpoint} "
            f"push={relay.fan_out.endpoint} {facts}" + (f" metrics={metrics}" if metrics else "")
        )
        say(f"ready: {status}")
        LOG.info("ready: %s", status)
        manager.ready(status)
        relay.run()
        LOG.info("stopped")
        recorder.end()


if __name__ == "__main__":
    main(prog_name="reliable-pubsub relay")
