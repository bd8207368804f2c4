"""`reliable-pubsub console`: parse, listen, serve, exit code."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from contextlib import closing

import click

from reliable_pubsub.common.command_line import (
    CONTEXT_SETTINGS,
    EXIT_CODES,
    accept_endpoint,
    complain,
    from_option,
    key_options,
    log_format_option,
    readable_errors,
    settings_from,
)
from reliable_pubsub.common.core.endpoint import host_of, is_local
from reliable_pubsub.common.core.errors import ConfigurationError
from reliable_pubsub.common.core.retry import RetryPolicy
from reliable_pubsub.common.key_files import client_keys
from reliable_pubsub.common.signals import stopped_by_signals
from reliable_pubsub.common.surroundings import retry_policy

BACKLOG = 64


def listen_on(address: str, *, allow_plaintext: bool) -> socket.socket:
    """Listen on `host:port`; the port `*` takes a free one.

    Raises:
        ConfigurationError: it is no address, is taken, or leaves this machine.
    """
    port = address.rpartition(":")[2]
    name = host_of(f"tcp://{address}", bind=True)
    if name is None:
        raise ConfigurationError(
            f"--listen {address!r:.80}: expected an address such as 127.0.0.1:8080"
        )
    if not is_local(name):
        facts = (
            f"--listen {address} is not a loopback address: what is read and done on the page, "
            "and its token, cross the network without encryption"
        )
        if not allow_plaintext:
            raise ConfigurationError(
                f"{facts}; listen on 127.0.0.1 and reach it by `ssh -L 8080:127.0.0.1:8080 HOST`, "
                "or pass --allow-plaintext if that network is trusted"
            )
        complain(f"warning: {facts}")
    try:
        family, _, _, _, place = socket.getaddrinfo(
            None if name == "*" else name,
            0 if port == "*" else int(port),
            type=socket.SOCK_STREAM,
            flags=socket.AI_PASSIVE,
        )[0]
        found = socket.socket(family)
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind(place)
        found.listen(BACKLOG)
    except OSError as error:
        reason = error.strerror or error
        raise ConfigurationError(
            f"--listen {address} cannot be bound: {reason}; is another console running? Choose "
            "another port, or * for a free one"
        ) from error
    return found


@click.command(epilog=EXIT_CODES, context_settings=CONTEXT_SETTINGS)
@click.option("--endpoint", help="The proxy's subscriber endpoint, or a relay's.")
@click.option("--publisher-endpoint", help='The proxy\'s publisher endpoint, for "put again".')
@click.option(
    "--relay",
    "relays",
    multiple=True,
    help="Endpoint of a relay to show with what is below it; repeat it for several.",
)
@click.option(
    "--listen",
    default="127.0.0.1:8080",
    show_default=True,
    help="Where browsers find the page; with port * a free one.",
)
@click.option("--ack-timeout", help="Seconds to wait for an answer.")
@click.option("--send-retries", help="How often to ask again.  [default here: 1]")
@click.option(
    "--allow-plaintext",
    is_flag=True,
    help="Accept endpoints, and listen, outside this machine; traffic is not encrypted.",
)
@key_options(server=False, client=True)
@log_format_option()
def main(
    endpoint: str | None,
    publisher_endpoint: str | None,
    relays: tuple[str, ...],
    listen: str,
    allow_plaintext: bool,
    **said: str | None,
) -> None:
    """Show a running proxy in the browser: who sends what to whom, who is slow and why.

    Topics with rates, lag and leases; messages by offset, time or key; the story of one; dead
    letters, to put again; and the actions of `admin`, each after a confirmation. Open the link
    that is printed: its token lets this browser in. The page needs no other site.

    It is a client like any other: what its key may not do, the page says. For everything, it needs
    the rights status, history, dead_letters, admin and put, and the ids `again-*`.

    \b
      reliable-pubsub console
      reliable-pubsub console --endpoint tcp://127.0.0.1:5556 --relay tcp://127.0.0.1:5558
      reliable-pubsub console --secret-key ops.key_secret --server-key proxy.key
    """
    with readable_errors():
        if said["send_retries"] is None:
            said["send_retries"] = "1"
        settings = settings_from(
            "console",
            {
                "subscriber_endpoint": from_option("--endpoint", endpoint),
                "publisher_endpoint": publisher_endpoint,
                **said,
            },
        )
        keys = client_keys(settings)
        subscribers, publishers, *above = (
            accept_endpoint(one, allow_plaintext=allow_plaintext, keys=keys)
            for one in (settings.subscriber_endpoint, settings.publisher_endpoint, *relays)
        )
        with closing(listen_on(listen, allow_plaintext=allow_plaintext)) as place:
            serve(place, listen, subscribers, publishers, above, retry_policy(settings))


def serve(
    place: socket.socket,
    address: str,
    subscribers: str,
    publishers: str,
    relays: Sequence[str],
    retry: RetryPolicy,
) -> None:
    """Serve until SIGTERM or SIGINT.

    Raises:
        ConfigurationError: the extra `console` is not installed.
    """
    try:
        from .server import PageServer
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            f"the console needs {error.name}, which is not installed: pip install "
            "'reliable-pubsub[console]'"
        ) from error
    server = PageServer(place, address, subscribers, publishers, relays, retry)
    with stopped_by_signals(server.stop):
        server.run()


if __name__ == "__main__":
    main(prog_name="reliable-pubsub console")
