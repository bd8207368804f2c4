"""`reliable-pubsub proxy`: parse, wire up, run, exit code."""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import click

from reliable_pubsub.common.access.sockets import allow_connections
from reliable_pubsub.common.command_line import (
    CONTEXT_SETTINGS,
    EXIT_CODES,
    accept_endpoint,
    accept_metrics,
    complain,
    journal_option,
    key_options,
    log_format_option,
    metrics_option,
    one_of,
    readable_errors,
    resolve_all,
)
from reliable_pubsub.common.core.endpoint import data_endpoint_of, reaches_requests_only
from reliable_pubsub.common.core.keys import ServerKeys
from reliable_pubsub.common.core.resolving import Resolved, typed_settings
from reliable_pubsub.common.core.settings import Settings
from reliable_pubsub.common.journal_file import open_journal
from reliable_pubsub.common.key_files import server_keys
from reliable_pubsub.common.metrics_server import Pages, metrics_served
from reliable_pubsub.common.notify import ServiceManager
from reliable_pubsub.common.scrapes import Scrapes
from reliable_pubsub.common.signals import (
    Stopped,
    reloaded_by_signal,
    signals_raise,
    stopped_by_signals,
)
from reliable_pubsub.common.system import share_one_heap
from reliable_pubsub.common.terminal import say

from .core.state import BrokerSettings
from .core.topic_log import Retention
from .reloading import Configured, Reloading
from .server import Server
from .server_settings import EndpointSettings, ServerSettings
from .standing_by import starts_again


def broker_settings(
    resolved: Mapping[str, Resolved], topics: Mapping[str, Mapping[str, Resolved]]
) -> BrokerSettings:
    """The broker's part of the settings of the process and of single topics."""
    settings = typed_settings(resolved)
    return BrokerSettings(
        retention=retention(settings),
        topics_max=settings.topics_max,
        clients_max=settings.clients_max,
        subscriptions_per_topic_max=settings.subscriptions_per_topic_max,
        publishers_per_topic_max=settings.publishers_per_topic_max,
        staged_bytes_max=settings.staged_bytes_max,
        stored_bytes_max=settings.stored_bytes_max,
        topics={
            name: retention(typed_settings({**resolved, **own})) for name, own in topics.items()
        },
    )


def retention(settings: Settings) -> Retention:
    """The retention that settings ask for."""
    return Retention(
        history_bytes=settings.history_bytes,
        history_s=float(settings.history_s),
        topic_bytes_max=settings.topic_bytes_max,
        on_bound=settings.on_bound,
        history_messages=settings.history_messages,
        waiting_messages_max=settings.waiting_messages_max,
    )


def server_settings(
    resolved: Mapping[str, Resolved],
    configured: Configured,
    keys: ServerKeys | None,
    *,
    accept_loss: bool,
) -> ServerSettings:
    """The settings of a process as those of a server."""
    settings = configured.settings
    return ServerSettings(
        data_dir=Path(settings.data_dir),
        publisher_endpoint=settings.publisher_endpoint,
        subscriber_endpoint=settings.subscriber_endpoint,
        push=data_endpoint(resolved["push_endpoint"], settings.subscriber_endpoint),
        ingress=data_endpoint(resolved["ingress_endpoint"], settings.publisher_endpoint),
        durability=settings.durability,
        snapshot_interval_s=settings.snapshot_interval_ms / 1000,
        accept_loss=accept_loss,
        store=settings.store,
        broker=configured.broker,
        keys=keys,
        connections=configured.connections,
    )


def data_endpoint(chosen: Resolved, requests: str) -> EndpointSettings:
    """A data endpoint: as chosen, or on the interface of the request endpoint."""
    endpoint = str(chosen.value)
    if chosen.origin != "default":
        return EndpointSettings(endpoint=endpoint)
    return EndpointSettings(endpoint=data_endpoint_of(requests, endpoint), is_default=True)


def reachability_warnings(settings: ServerSettings) -> list[str]:
    """Warnings about endpoints that clients on other machines cannot reach."""
    warnings = []
    if reaches_requests_only(settings.publisher_endpoint, settings.ingress.endpoint):
        warnings.append(
            f"publishers on other machines cannot reach the ingress endpoint "
            f"{settings.ingress.endpoint}, so that what they put at QoS 0 is dropped; give "
            "--ingress-endpoint an address that they reach, or leave it out"
        )
    if reaches_requests_only(settings.subscriber_endpoint, settings.push.endpoint):
        warnings.append(
            f"subscribers and relays on other machines do not reach the push endpoint "
            f"{settings.push.endpoint}, so that nothing is pushed to them and they poll; give "
            "--push-endpoint an address that they reach, or leave it out"
        )
    return warnings


LOG = logging.getLogger("reliable_pubsub.proxy")


@click.command(
    epilog=EXIT_CODES,
    context_settings=CONTEXT_SETTINGS,
)
@click.option(
    "-f",
    "--config-file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Settings file (YAML), for example `durability: sync`. Names: `config show`.",
)
@click.option(
    "--data-dir",
    type=click.Path(readable=False),
    help="Directory of the store, one per proxy; made if missing.",
)
@click.option(
    "--store",
    metavar="postgresql://...",
    help="Keep the log in this PostgreSQL database instead. Several proxies may be started on it: "
    "one serves, the others stand by.",
)
@click.option("--publisher-endpoint", help="Endpoint for publishers.")
@click.option("--subscriber-endpoint", help="Endpoint for subscribers.")
@click.option(
    "--push-endpoint", help="Where data is pushed to relays and subscribers that want it."
)
@click.option("--ingress-endpoint", help="Where publishers send what is put at QoS 0.")
@click.option(
    "--durability",
    shell_complete=one_of("sync", "os", "snapshot"),
    help="What an acknowledgement means. sync: on disk (fsync). os: survives kill -9, not power "
    "loss. snapshot: acknowledged first, written every 10 ms; loses, for labs.",
)
@click.option(
    "--accept-loss",
    is_flag=True,
    help="Start a damaged store without its damaged batches; each is reported, and subscribers "
    "that had not read them get LOST.",
)
@click.option(
    "--allow-plaintext",
    is_flag=True,
    help="Accept endpoints that other machines reach; traffic is not encrypted.",
)
@key_options(server=True, client=False)
@metrics_option()
@journal_option()
@log_format_option()
def main(
    config_file: Path | None,
    accept_loss: bool,
    allow_plaintext: bool,
    require_keys: bool,
    metrics_allow_plaintext: bool,
    journal: Path | None,
    **said: str | None,
) -> None:
    """Run the proxy: it keeps each message until all subscribers have acknowledged it.

    Kill it at any moment and start it again with the same --data-dir: whatever was acknowledged
    is there, and clients go on by themselves. SIGTERM and SIGINT end it cleanly; SIGHUP reads
    bounds and retention again.

    \b
    A settings file has the names of `reliable-pubsub config show`, and may differ by topic:
      durability: sync
      history_s: 86400               # how long acknowledged messages stay
      topics:
        telemetry:
          topic_bytes_max: 67108864
          waiting_messages_max: 10000  # for each subscription
          on_bound: lose_oldest      # or expire (the slowest), or reject (the default)
    """
    with readable_errors():
        asked = threading.Event()
        reloaded_by_signal(asked.set)  # also while it starts, or stands by
        resolved, configured = _configured(config_file, said)
        settings = configured.settings
        keys = server_keys(settings, are_required=require_keys)
        wanted = server_settings(resolved, configured, keys, accept_loss=accept_loss)
        for endpoint in (
            wanted.publisher_endpoint,
            wanted.subscriber_endpoint,
            wanted.push.endpoint,
            wanted.ingress.endpoint,
        ):
            accept_endpoint(endpoint, allow_plaintext=allow_plaintext, bind=True, keys=wanted.keys)
        token = accept_metrics(settings, allow_plaintext=metrics_allow_plaintext)
        allow_connections()
        share_one_heap()
        manager = ServiceManager()
        read = partial(_configured, config_file, said)
        scrapes: Scrapes[Any] = Scrapes()

        def served() -> Pages[Any]:
            from .observation import pages  # a feature, and it loads `prometheus_client`

            return pages(scrapes, wanted.data_dir)

        with (
            starts_again(is_shared=bool(wanted.store)) as ending,
            metrics_served(settings.metrics_endpoint, served, token) as metrics,
        ):
            try:
                server = _opened(wanted, journal, manager, scrapes)
            except Stopped:  # while it stood by
                return
            warnings = reachability_warnings(wanted)
            run = partial(_serve, server, configured, manager, warnings, metrics)
            run(lambda: read()[1], asked, ending)


def _opened(
    wanted: ServerSettings, journal: Path | None, manager: ServiceManager, scrapes: Scrapes[Any]
) -> Server:
    """Open the store, and bind; while another proxy serves the store, stand by."""
    said = ""
    scrapes.role = "starting"

    def stand_by(text: str) -> None:
        nonlocal said
        scrapes.role = "standby"
        scrapes.beat(f"standby: {text}")
        manager.starting(f"standby: {text}")
        if text != said:
            said = text
            say(f"standby: proxy {text}")

    with _checking(manager) as progress, signals_raise() if wanted.store else nullcontext():

        def advance(messages: int) -> None:
            scrapes.beat(f"it checks its store: {messages:,} messages")
            progress(messages)

        return Server(
            wanted,
            report_loss=lambda bad: complain(f"warning [LOST]: given up: {bad}"),
            progress=advance,
            warn=complain,
            recorder=open_journal(journal, "proxy"),
            manager=manager,
            stand_by=stand_by,
            scrapes=scrapes,
        )


def _configured(
    config_file: Path | None, said: Mapping[str, str | None]
) -> tuple[dict[str, Resolved], Configured]:
    """The settings as they are written now; each with its origin, and as the proxy uses them."""
    file, topics = _settings_file(config_file) if config_file else ({}, {})
    resolved = resolve_all("proxy", said, file)
    return resolved, Configured(typed_settings(resolved), broker_settings(resolved, topics))


def _serve(
    server: Server,
    configured: Configured,
    manager: ServiceManager,
    warnings: Sequence[str],
    metrics: str,
    read: Callable[[], Configured],
    asked: threading.Event,
    ending: threading.Event,
) -> None:
    """Print the ready line, and run until a signal comes.

    Args:
        metrics: where they are served; "": nowhere.
        asked: whether a reload was asked for before this.
        ending: set when a signal has come.
    """
    settings = configured.settings

    def stop() -> None:
        ending.set()
        manager.stopping()
        server.stop()

    def use(now: Configured) -> None:
        server.reconfigure(now.broker)
        server.endpoints.entrance.change(now.connections)

    with stopped_by_signals(stop):
        ready = _ready_line(server, settings) + (f" metrics={metrics}" if metrics else "")
        status = ready.removeprefix("ready: ")
        reloading = Reloading(configured, read=read, use=use, manager=manager, ready=status)
        reloaded_by_signal(reloading.begin)
        if asked.is_set():
            reloading.begin()
        say(ready)
        LOG.info(ready)
        manager.ready(status)
        if settings.durability == "snapshot":
            complain(
                "warning: durability snapshot acknowledges before it writes; a crash loses "
                "acknowledged messages (docs/concepts/guarantees.md)"
            )
        for warning in warnings:
            complain(f"warning: {warning}")
        server.run()
        LOG.info("stopped: every answer was durable before it left")


def _settings_file(path: Path) -> tuple[dict[str, Resolved], dict[str, dict[str, Resolved]]]:
    """Read it; YAML is loaded only for that."""
    from reliable_pubsub.common.topic_settings import split_document
    from reliable_pubsub.common.yaml_file import load_yaml

    return split_document(load_yaml(path))


@contextmanager
def _checking(manager: ServiceManager) -> Iterator[Callable[[int], None]]:
    """Show the progress of the store check on a terminal; `rich` is loaded only then."""
    if not sys.stderr.isatty():
        yield lambda messages: manager.starting(f"checking the store: {messages:,} messages")
        return
    from rich.console import Console

    with Console(stderr=True).status("checking the store") as status:
        yield lambda messages: status.update(f"checking the store: {messages:,} messages")


def _ready_line(server: Server, settings: Settings) -> str:
    """The line that scripts wait for; it names the ports that the system chose."""
    publishers, subscribers = (door.endpoint for door in server.endpoints.doors)
    return (
        f"ready: proxy publishers={publishers} subscribers={subscribers} "
        f"durability={server.promise} "
        + (f"store={server.store_path} " if settings.store else f"data-dir={settings.data_dir} ")
        + f"topics={len(server.engine.state.topics)} messages={server.checked.messages}"
        + "".join(f" {one.ready}" for one in server.endpoints.extensions if one.ready)
        + (f" curve={'known-keys' if settings.clients else 'any-key'}" * bool(settings.secret_key))
    )


if __name__ == "__main__":
    main(prog_name="reliable-pubsub proxy")
