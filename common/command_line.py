"""What the commands share: options, settings, one readable paragraph for every error.

A command line error is a sentence and an exit code, never a traceback; a bug is a traceback.
"""

from __future__ import annotations

import gc
import importlib
import io
import logging
import os
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeVar

import click
from msgspec import Struct

from .core.endpoint import check_endpoint, check_http_address
from .core.errors import PubSubError, StorageFailedError
from .core.key_tables import help_text, key_rows
from .core.keys import ClientKeys, SecureEndpoint, ServerKeys
from .core.names import client_id
from .core.requester import in_words
from .core.resolving import Resolved, typed_settings, unknown_variables
from .core.retry import Silence
from .core.settings import BY_NAME, Settings
from .core.visible import visible
from .core.wording import did_you_mean
from .key_files import client_keys, read_token
from .log_lines import LOGGER, log_line, use_log_format, writes_json
from .surroundings import resolve_here

EXIT_CODES = (
    "Exit codes: 0 done · 2 usage or configuration · 3 stopped before the end, proxy unreachable, "
    "in doubt: run again to resume · 4 refused (fenced, conflict, log changed, in use) · 5 damaged "
    "or failed storage."
)

CONTEXT_SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": 100}

_SENTENCE_CHARS_MAX: Final = 1000  # so that no sentence of a group's help is cut
# A text that the shell completes; its setting says what it may be, and whom it belongs to.
_PATH: Final = click.Path(readable=False)

# Commands tell people themselves (`complain`); the library's log is for `--log-format json`.
logging.getLogger(LOGGER).addHandler(logging.NullHandler())

F = TypeVar("F", bound=Callable[..., Any])


class CommandGroup(click.Group):
    """A group whose help has the first sentence of each command, on several lines if need be."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands; click would cut each at the end of its line."""
        commands = ((name, self.get_command(ctx, name)) for name in self.list_commands(ctx))
        rows = [
            (name, command.get_short_help_str(_SENTENCE_CHARS_MAX))
            for name, command in commands
            if command
        ]
        with formatter.section("Commands"):
            formatter.write_dl(rows)


class LazyGroup(CommandGroup):
    """A group of commands whose modules are loaded on first use."""

    def __init__(
        self,
        *args: Any,
        modules: Mapping[str, str],
        former: Mapping[str, str] = {},
        **more: Any,
    ) -> None:
        """Create a group; its own commands are listed first.

        Args:
            modules: by command name, the module whose `main` is the command, or `module:name`.
            former: by earlier name, that of a command; not shown.
        """
        super().__init__(*args, **more)
        self._modules = modules
        self._former = former

    def main(self, *args: Any, **more: Any) -> Any:
        """Run a command, whose output may fail as anything else."""
        if type(sys.stdout) is io.TextIOWrapper:  # None if it is closed, another one in tests
            sys.stdout = StandardOutput(sys.stdout)
        with readable_errors():
            try:
                return super().main(*args, **more)
            finally:
                click.echo(nl=False)  # flushes

    def list_commands(self, ctx: click.Context) -> list[str]:
        """List the commands in the order of their definition."""
        return [*self.commands, *self._modules]

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find a command; click looks for the closest name only among those that are loaded."""
        args = [self._former.get(args[0], args[0]), *args[1:]]
        name, known = args[0], self.list_commands(ctx)
        if name not in known and not name.startswith("-") and not ctx.resilient_parsing:
            raise click.UsageError(f"No such command {name!r}{did_you_mean(name, known)}", ctx)
        return super().resolve_command(ctx, args)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self._modules:
            return super().get_command(ctx, cmd_name)
        gc.disable()  # what is loaded stays: to look for garbage in it takes a tenth of a start
        try:
            module, _, name = self._modules[cmd_name].partition(":")
            command = getattr(importlib.import_module(module), name or "main")
        finally:
            gc.freeze()
            gc.enable()
        assert isinstance(command, click.Command)
        return command


class StandardOutput(io.TextIOWrapper):
    """Writes what the encoding of the terminal lacks as escapes; a failure is a PubSubError."""

    def __init__(self, plain: io.TextIOWrapper) -> None:
        """Write where a plain one writes."""
        super().__init__(
            plain.buffer,
            encoding=plain.encoding,
            errors="backslashreplace",
            line_buffering=plain.line_buffering,
        )

    def write(self, text: str) -> int:
        """Write; raise StorageFailedError."""
        with writing_out():
            return super().write(text)

    def flush(self) -> None:
        """Flush; raise StorageFailedError."""
        with writing_out():
            super().flush()


@contextmanager
def writing_out() -> Iterator[None]:
    """Turn a failed write to standard output into a StorageFailedError."""
    try:
        yield
    except BrokenPipeError:  # `| head` has what it wants
        raise
    except OSError as error:
        discard_output()
        raise StorageFailedError(
            f"standard output cannot be written: {error.strerror}. What was put and "
            "acknowledged until then is kept; make room, and run the command again"
        ) from error


def discard_output() -> None:
    """Let what is left to flush go nowhere."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


class StepFileCommand(click.Command):
    """A command that runs a step file: its help ends with a table of all keys."""

    def __init__(self, *args: Any, step_keys: Mapping[str, type[Struct]], **more: Any) -> None:
        """Create a command.

        Args:
            step_keys: the types of the mappings of a step, by their titles in the help.
        """
        super().__init__(*args, **more)
        self._step_keys = step_keys

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the keys before the exit codes."""
        for title, kind in self._step_keys.items():
            formatter.write(f"\n{title}:\n{help_text(key_rows(kind))}\n")
        super().format_epilog(ctx, formatter)


class RenamedOption(click.Option):
    """An option whose former names are taken and not shown."""

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        """As of an option with its first name only."""
        names, self.opts = self.opts, self.opts[:1]
        try:
            return super().get_help_record(ctx)
        finally:
            self.opts = names


@contextmanager
def readable_errors() -> Iterator[None]:
    """Turn a PubSubError into one paragraph on stderr and its exit code."""
    try:
        yield
    except PubSubError as error:
        complain(f"error [{error.code}]: {error}")
        sys.exit(error.exit_code)


def complain(text: str) -> None:
    """Write a paragraph to stderr, wrapped; line breaks in the text are kept. Or a JSON line."""
    if writes_json():
        log_line(text)
        return
    width = min(shutil.get_terminal_size().columns, 100) if sys.stderr.isatty() else 100
    for line in visible(text).splitlines():
        wrapped = textwrap.fill(line, width, break_long_words=False, break_on_hyphens=False)
        click.echo(wrapped, err=True)


def report_silence() -> Silence:
    """Report on stderr, once for each outage, that the proxy does not answer and when it does."""
    reported = False

    def tell(endpoint: str, attempt: int, attempts: int) -> None:
        nonlocal reported
        if attempt and not reported:
            complain(
                f"waiting: no answer from {endpoint} (attempt {in_words(attempt, attempts)}); is "
                "the proxy running? `reliable-pubsub proxy` starts it"
            )
        elif not attempt and reported:
            complain(f"going on: {endpoint} answers again")
        reported = bool(attempt)

    return tell


def settings_from(
    component: str, command_line: Mapping[str, object], file: Mapping[str, Resolved] | None = None
) -> Settings:
    """Resolve the settings of a process.

    Args:
        component: names the directory whose `settings.json` counts: `$RELIABLE_PUBSUB_DIR/<it>`.
        file: settings of a YAML file given by name; they win over `settings.json`.
    """
    return typed_settings(resolve_all(component, command_line, file))


def from_option(flag: str, value: str | None) -> Resolved | None:
    """The value of an option that is not called as its setting is, such as `--endpoint`."""
    return None if value is None else Resolved(value, flag)


def resolve_all(
    component: str, command_line: Mapping[str, object], file: Mapping[str, Resolved] | None = None
) -> dict[str, Resolved]:
    """The settings of a process, each with its origin; warn of mistyped variables."""
    for warning in unknown_variables(os.environ):
        complain(f"warning: {warning}")
    resolved = resolve_here(component, command_line, file)
    use_log_format(typed_settings(resolved).log_format)
    return resolved


def client_settings(
    role: str, client: str, said: Mapping[str, str | None], *, allow_plaintext: bool
) -> tuple[Settings, str]:
    """The settings of a publisher or subscriber, and its endpoint with its keys, checked.

    Args:
        said: the options of `client_options` that are settings, by their names; `endpoint` is
            that of the role.

    Raises:
        InvalidNameError, ConfigurationError: before anything is sent.
    """
    name = f"{role}_endpoint"
    given = {option: value for option, value in said.items() if option != "endpoint"}
    endpoint = from_option("--endpoint", said.get("endpoint"))
    settings = settings_from(client_id(client), {**given, name: endpoint})
    keys = client_keys(settings)
    if settings.push_via:
        accept_endpoint(settings.push_via, allow_plaintext=allow_plaintext, keys=keys)
    where: str = getattr(settings, name)
    return settings, accept_endpoint(where, allow_plaintext=allow_plaintext, keys=keys)


def accept_endpoint(
    endpoint: str,
    *,
    allow_plaintext: bool,
    bind: bool = False,
    keys: ClientKeys | ServerKeys | None = None,
) -> str:
    """Check an endpoint; warn where plaintext leaves this machine.

    Args:
        keys: None: traffic is not encrypted.
    """
    warning = check_endpoint(endpoint, allow_plaintext, bind=bind, encrypted=keys is not None)
    if warning:
        complain(f"warning: {warning}")
    return SecureEndpoint(endpoint, keys) if isinstance(keys, ClientKeys) else endpoint


def accept_metrics(settings: Settings, *, allow_plaintext: bool) -> str:
    """Check where metrics are served; warn where that leaves this machine; return their token."""
    token = read_token(settings)
    if settings.metrics_endpoint:
        warning = check_http_address(
            settings.metrics_endpoint, allow_plaintext, has_token=bool(token)
        )
        if warning:
            complain(f"warning: {warning}")
    return token


def metrics_option() -> Callable[[F], F]:
    """The options of every process that serves metrics."""
    return _all_of(
        click.option(
            "--metrics-endpoint",
            help="Where to serve /metrics for Prometheus, /healthz and /readyz: 127.0.0.1:9464.",
        ),
        click.option(
            "--metrics-token",
            type=_PATH,
            help="The file of a token that /metrics asks for; needed beyond this machine, or:",
        ),
        click.option(
            "--metrics-allow-plaintext",
            is_flag=True,
            help="Serve metrics to other machines without a token.",
        ),
    )


def key_options(*, server: bool, client: bool) -> Callable[[F], F]:
    """The options of a process that encrypts: its own key, and those of the other side."""
    options = [
        click.option(
            "--secret-key", type=_PATH, help="The file of its own key: `keys new` makes one."
        )
    ]
    if client:
        options.append(
            click.option(
                "--server-key",
                type=_PATH,
                help="The public key of the server, or its .key file.",
            )
        )
    if server:
        options.append(
            click.option(
                "--clients",
                type=_PATH,
                help="Whose keys may connect: a folder of .key files or YAML.",
            )
        )
        options.append(
            click.option(
                "--require-keys",
                is_flag=True,
                help="Refuse to start without --secret-key and --clients, wherever it listens.",
            )
        )
    return _all_of(*options)


def journal_option() -> Callable[[F], F]:
    """The option of every process that writes a journal."""
    return click.option(
        "--journal",
        "--history",  # its name until that word had two meanings
        cls=RenamedOption,
        type=click.Path(path_type=Path, dir_okay=False),
        help="Append what this process does and sees to this file, as JSON lines, before and "
        "after each step; `kill -9` loses none of them. Read it with docs/internals/journal.md.",
    )


def one_of(*words: str) -> Callable[[click.Context, click.Parameter, str], list[str]]:
    """What the shell offers for an option whose setting is one of these words."""
    return lambda _context, _option, begun: [word for word in words if word.startswith(begun)]


def log_format_option() -> Callable[[F], F]:
    """The option of every process that runs for long: what it writes to stderr."""

    def begin(_context: click.Context, _option: click.Parameter, value: str | None) -> str | None:
        said = value or os.environ.get(BY_NAME["log_format"].variable)
        if said == "json":  # so that an error in the settings is such a line, too
            use_log_format("json")
        return value

    return click.option(
        "--log-format",
        callback=begin,
        shell_complete=one_of("text", "json"),
        help="text: paragraphs on stderr. json: one JSON object a line, with level and facts.",
    )


def asking_options(role: str) -> Callable[[F], F]:
    """The options of every command that sends requests: endpoint, retries, output."""
    return _all_of(
        click.option("--endpoint", help=f"The proxy's {role} endpoint."),
        click.option("--ack-timeout", help="Seconds to wait for an answer before asking again."),
        click.option(
            "--send-retries", help="Retries before giving up with exit code 3, or `forever`."
        ),
        click.option(
            "--allow-plaintext",
            is_flag=True,
            help="Accept an endpoint that is not on this machine; traffic is not encrypted.",
        ),
        click.option(
            "-q", "--quiet", is_flag=True, help="Print no progress: neither a bar nor lines."
        ),
    )


def client_options(role: str) -> Callable[[F], F]:
    """The options of both publisher and subscriber."""
    return _all_of(
        click.option(
            "-f",
            "--config-file",
            required=True,
            type=click.Path(path_type=Path, dir_okay=False),
            help="Step file (YAML): what to do, one step after another. - reads it from stdin.",
        ),
        click.option(
            "-i",
            "--id",
            "client",
            required=True,
            help=f"Id of this {role}: 1 to 64 of A-Z a-z 0-9 . - ; one running process for each.",
        ),
        click.option("--state-dir", type=_PATH, help="Where to keep what must survive a crash."),
        asking_options(role),
        key_options(server=False, client=True),
        click.option(
            "--again",
            is_flag=True,
            help="Run a plan that is finished, or another file, from its beginning.",
        ),
        click.option("--dry-run", is_flag=True, help="Show the plan as a table; send nothing."),
        journal_option(),
        log_format_option(),
    )


def _all_of(*options: Callable[[F], F]) -> Callable[[F], F]:
    """Options in the order in which `--help` shows them."""

    def decorate(command: F) -> F:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate
