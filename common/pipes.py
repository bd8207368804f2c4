"""What the commands for pipes share: options, lines of stdin and stdout, ends, topic completion."""

from __future__ import annotations

import os
import secrets
import select
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, redirect_stderr
from typing import Any, Final

import click
from msgspec.structs import replace

from .command_line import (
    F,
    asking_options,
    client_settings,
    discard_output,
    key_options,
    readable_errors,
    report_silence,
    writing_out,
)
from .core.client_state import MemoryState
from .core.errors import ConfigurationError
from .core.limits import PAYLOAD_BYTES_MAX
from .core.message_base import Role
from .core.names import id_of_replica
from .core.retry import RetryPolicy, unheard
from .signals import Stopped, signals_raise
from .status_client import StatusClient
from .surroundings import retry_policy
from .system import system_errors
from .world import REAL

NO_ID: Final = "shell"  # whose settings count without --id
READ_BYTES: Final = 65_536
PAUSE_S: Final = 0.02  # without input, after which what is there is put
LINE_BYTES_MAX: Final = 2 * PAYLOAD_BYTES_MAX  # base64, key and headers included
COMPLETION_S: Final = 0.5  # that a shell waits for topics

PIPE_EXIT_CODES: Final = (
    "Exit codes: 0 done, or the reader of stdout has closed it · 2 usage or configuration · "
    "3 too few messages, proxy unreachable, or in doubt · 4 refused · 5 damaged or failed storage "
    "· 130 Ctrl-C, 143 SIGTERM."
)


def pipe_options(role: Role, id_help: str, *, required: bool = False) -> Callable[[F], F]:
    """Return the options of a command that puts or gets lines; see `client_from`."""

    def decorate(command: F) -> F:
        state_dir = click.option(
            "--state-dir", type=click.Path(), help="Where --id keeps its state."
        )
        client = click.option("-i", "--id", "client", required=required, help=id_help)
        keys = key_options(server=False, client=True)
        return client(state_dir(asking_options(role)(keys(command))))

    return decorate


def client_from(
    role: Role, *, client: str | None, allow_plaintext: bool, quiet: bool, **said: str | None
) -> dict[str, Any]:
    """Return the arguments of a client: with an id its state is kept, else it is in memory."""
    settings, where = client_settings(role, client or NO_ID, said, allow_plaintext=allow_plaintext)
    return {
        "client": client or id_of_replica(NO_ID, secrets.token_bytes(8), is_kept=False),
        "endpoint": where,
        "state_dir": settings.state_dir if client else None,
        "retry": retry_policy(settings),
        "allow_plaintext": True,  # or it was refused above
        "on_silence": unheard if quiet else report_silence(),
        "_world": None if client else replace(REAL, state=MemoryState()),
    }


def complete_topic(context: click.Context, _arg: click.Parameter, begun: str) -> list[str]:
    """Offer the topics that the proxy has; none if it does not answer soon."""
    said = {name: context.params.get(name) for name in ("endpoint", "secret_key", "server_key")}
    retry = RetryPolicy(timeout_s=COMPLETION_S, retries_max=0)
    with open(os.devnull, "w", encoding="utf-8") as nowhere, redirect_stderr(nowhere):
        try:
            if context.command.name == "put":  # its endpoint is another one
                said["endpoint"] = None
            _, where = client_settings("subscriber", NO_ID, said, allow_plaintext=True)
            with closing(StatusClient(where, retry)) as client:
                topics = client.ask(rows_max=0).topics
        except Exception:
            return []
    return [one.topic for one in topics if one.topic.startswith(begun)]


def topic_argument(*, many: bool = False) -> Callable[[F], F]:
    """Return the argument for a topic, or for several as `topics`, which the shell completes."""
    if many:
        return click.argument(
            "topics", nargs=-1, required=True, shell_complete=complete_topic, metavar="TOPIC..."
        )
    return click.argument("topic", shell_complete=complete_topic)


@contextmanager
def ends_as_in_a_pipe() -> Iterator[None]:
    """Exit with 128 and the number of a signal; end quietly when the reader closes the pipe."""
    try:
        with readable_errors(), signals_raise():
            yield
    except Stopped as stopped:
        sys.exit(128 + stopped.args[0])
    except BrokenPipeError:
        discard_output()


def write_out(data: bytes) -> None:
    """Write to stdout and flush.

    Raises:
        StorageFailedError: it cannot be written. BrokenPipeError: its reader has closed it.
    """
    with writing_out():
        click.echo(data, nl=False)


def check_reader() -> None:
    """Raise BrokenPipeError if stdout is a pipe whose reader has closed it."""
    poll = select.poll()
    poll.register(1, 0)
    if any(event & select.POLLERR for _, event in poll.poll(0)):
        raise BrokenPipeError


def lines_of_stdin() -> Iterator[list[bytes]]:
    r"""Yield the lines of each read, without their \n; an empty list while the input pauses.

    Raises:
        ConfigurationError: stdin cannot be read, or has a line that no message can hold.
    """
    rest = b""
    wrong = "standard input cannot be read"
    if sys.stdin is None:
        raise ConfigurationError(f"{wrong}: it is closed")
    while True:
        with system_errors(lambda error: ConfigurationError(f"{wrong}: {error.strerror}")):
            data = os.read(0, READ_BYTES)
        if not data:
            break
        *lines, rest = (rest + data).split(b"\n")
        if lines:
            yield lines
        if len(rest) > LINE_BYTES_MAX:
            raise ConfigurationError(f"{wrong}: a line has more than {LINE_BYTES_MAX:,} bytes")
        if not select.select([0], [], [], PAUSE_S)[0]:
            yield []
    if rest:
        yield [rest]
