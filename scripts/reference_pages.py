"""Make the pages of docs/reference from the code: names, commands, settings, metrics and errors.

`scripts/protocol_tables` writes them; `python -m reliable_pubsub.lab.keys` writes that of the keys.
"""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import Any, Final

import click
from prometheus_client.core import Metric

import reliable_pubsub
from reliable_pubsub import aio, pipeline, testing
from reliable_pubsub.__main__ import main
from reliable_pubsub.common.command_line import EXIT_CODES
from reliable_pubsub.common.core import errors
from reliable_pubsub.common.core.errors import PubSubError, TryLaterError
from reliable_pubsub.common.core.settings import BY_NAME, Setting
from reliable_pubsub.common.core.status import ConnectionsStatus, IngressStatus, PushStatus
from reliable_pubsub.common.metrics_server import Pages
from reliable_pubsub.common.pipes import PIPE_EXIT_CODES
from reliable_pubsub.common.scrapes import Scrapes
from reliable_pubsub.pipeline.core.holding import NotHeldError
from reliable_pubsub.pipeline.core.loss import DataLossError
from reliable_pubsub.pipeline.core.spark_failure import SparkFailedError, SparkGoneError
from reliable_pubsub.proxy import exposition
from reliable_pubsub.proxy.core.storage import NotServingError
from reliable_pubsub.proxy.status.figures import REFUSALS, Figures, Histogram
from reliable_pubsub.proxy.status.survey import Survey
from reliable_pubsub.relay import metrics as relay_metrics
from reliable_pubsub.relay.metrics import RelayFigures
from scripts.benchmark_page import benchmarks_page

FOLDER: Final = Path(__file__).parents[1] / "docs" / "reference"
PROGRAM: Final = "reliable-pubsub"
NOTICE: Final = "Generated from the code by `scripts/protocol_tables`.\n"
# Errors of commands, which no program imports.
OTHER_ERRORS: Final = (
    *(DataLossError, NotHeldError, NotServingError, SparkFailedError, SparkGoneError),
)
TRY_LATER: Final = ("FULL", "BUSY", "STORAGE_FULL")  # codes of one error


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def cell(text: str) -> str:
    """Return a text for a cell, in one line; a bar would end the cell."""
    parts = " ".join(text.replace("|", "/").split()).split("`")
    parts[::2] = [re.sub(r"([*<])", r"\\\1", part) for part in parts[::2]]  # others are code
    return "`".join(parts)


# Public names.


def entries(title: str, about: str, module: ModuleType, names: Iterable[str]) -> str:
    """Return a page in which mkdocstrings describes each name."""
    lines = "\n".join(f"::: {module.__name__}.{name}" for name in names)
    return f"# Python: {title}\n\n{about}\n\n{lines}\n"


def is_error(name: str) -> bool:
    """Return whether a public name is that of an error; those have a page of their own."""
    one = getattr(reliable_pubsub, name)
    return inspect.isclass(one) and issubclass(one, PubSubError)


def api_page() -> str:
    """Return the page of the package; the clients come first."""
    names = [one for one in reliable_pubsub.__all__ if not is_error(one) and one != "aio"]
    names.sort(key=lambda one: one not in ("Publisher", "Subscriber"))
    about = "`from reliable_pubsub import ...` finds these names and the [errors](errors.md)."
    return entries("reliable_pubsub", about, reliable_pubsub, names)


def aio_page() -> str:
    """Return the page of the clients for asyncio."""
    about = "The same clients for asyncio: `from reliable_pubsub import aio`."
    return entries("asyncio", about, aio, aio.__all__)


def testing_page() -> str:
    """Return the page of the brokers for tests."""
    about = "Brokers for the tests of your program. [Testing](../how-to/testing.md) has examples."
    return entries("testing", about, testing, testing.__all__)


def pipeline_page() -> str:
    """Return the page of the functions for Spark."""
    about = "Topics in Spark. [The pipeline](../how-to/pipeline.md) has the options and examples."
    return entries("Spark", about, pipeline, pipeline.__all__)


# Commands.


def commands(command: click.Command, context: click.Context) -> Iterator[click.Context]:
    """Yield a command and all below it."""
    yield context
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            one = command.get_command(context, name)
            if one is not None and not one.hidden:
                yield from commands(one, click.Context(one, context, name))


def paragraphs(text: str) -> Iterator[str]:
    r"""Yield a help text in Markdown; what `\b` marks is a block."""
    for part in re.split(r"\n\s*\n", textwrap.dedent(text).strip()):
        if part.startswith("\b"):
            yield f"```\n{textwrap.dedent(part[1:].strip(chr(10)))}\n```"
        else:
            yield cell(part)


def command_entry(context: click.Context) -> str:
    """Return what the page has of one command."""
    command = context.command
    usage = " ".join(command.collect_usage_pieces(context))
    parts = [f"## {context.command_path}", f"```\n{context.command_path} {usage}\n```"]
    parts += paragraphs(inspect.cleandoc(command.help or ""))
    records = (one.get_help_record(context) for one in command.params)
    rows = [(f"`{one[0].replace('|', '/')}`", cell(one[1])) for one in records if one]
    if rows:
        parts.append(table(("option", "meaning"), rows).rstrip())
    if command.epilog and command.epilog not in (EXIT_CODES, PIPE_EXIT_CODES):
        parts += paragraphs(command.epilog)
    return "\n\n".join(parts) + "\n"


def commands_page() -> str:
    """Return the page of the commands. It needs the extra `spark`."""
    head = (
        f"# Commands\n\n{NOTICE}[Keys](keys.md) has the keys of step files, "
        "[exit codes](errors.md#exit-codes) what an exit code means.\n"
    )
    found = commands(main, click.Context(main, info_name=PROGRAM))
    return "\n".join([head, *map(command_entry, found)])


# Settings.


def setting_row(setting: Setting) -> tuple[str, ...]:
    """Return the row of one setting."""
    default = f"`{setting.shown(setting.default)}`" if setting.default != "" else ""
    return f"`{setting.name}`", cell(setting.expected), default, cell(setting.help)


def settings_page() -> str:
    """Return the page of the settings."""
    head = f"""# Settings

{NOTICE}
The setting `ack_timeout` has four sources, and the first one that is given counts: the option
`--ack-timeout`, the key `ack_timeout` in `ID/settings.json` (of a proxy also in its settings file),
the variable `RELIABLE_PUBSUB_ACK_TIMEOUT`, and the default.
`{PROGRAM} config show` prints each value and its source.

"""
    return head + table(
        ("setting", "value", "default", "meaning"), map(setting_row, BY_NAME.values())
    )


# Metrics.


def filled(kind: type[Any]) -> Any:
    """Return a struct with 1 in each field; a limit of 0 would be divided by."""
    return kind(**dict.fromkeys(kind.__struct_fields__, 1))


def proxy_figures() -> Figures:
    """Return figures with which a proxy shows all of its metrics."""
    values: dict[str, Any] = dict.fromkeys(Figures.__struct_fields__, 1)
    values |= {"survey": Survey(), "commits": Histogram((), (0,), 0.0)}
    values |= {name: {} for name in ("requests", "refusals", "bounds")}
    values |= {"push": filled(PushStatus), "ingress": filled(IngressStatus)}
    values |= {"connections": filled(ConnectionsStatus)}
    return Figures(**values)


def relay_figures() -> RelayFigures:
    """Return figures with which a relay shows all of its metrics."""
    values: dict[str, Any] = dict.fromkeys(RelayFigures.__struct_fields__, 1)
    return RelayFigures(**values | {"ways_up": {}, "connections": filled(ConnectionsStatus)})


def metric_row(metric: Metric) -> tuple[str, ...]:
    """Return the row of one metric."""
    name = metric.name + ("_total" if metric.type == "counter" else "")
    labels = ", ".join(f"`{one}`" for one in getattr(metric, "_labelnames", ()))
    return f"`{name}`", metric.type, labels, cell(metric.documentation)


def metrics_page() -> str:
    """Return the page of the metrics."""
    scrapes = Scrapes[Any]()
    scrapes.role = "serving"
    of_each = Pages(scrapes, lambda _: ())._all(None)
    with TemporaryDirectory() as data_dir:
        Path(data_dir, "last-backup").touch()
        of_a_proxy = list(exposition.exposition(proxy_figures(), Path(data_dir)))
    parts: dict[str, Iterable[Metric]] = {
        "Every process": of_each,
        "A proxy": of_a_proxy,
        "A relay": relay_metrics.exposition(relay_figures()),
    }
    text = f"""# Metrics

{NOTICE}
`--metrics-endpoint` serves them ([operating](../how-to/operating.md#metrics-health-alerts)).
On Linux there are also the usual `process_...` metrics: memory, CPU, descriptors.
"""
    for title, metrics in parts.items():
        rows = map(metric_row, metrics)
        text += f"\n## {title}\n\n" + table(("metric", "type", "labels", "meaning"), rows)
    return text


# Errors and exit codes.


def error_classes() -> list[type[PubSubError]]:
    """Return every error: the public ones from the root down, and the others."""
    public = [getattr(reliable_pubsub, one) for one in reliable_pubsub.__all__ if is_error(one)]
    order = list(vars(errors).values())
    return [*sorted(public, key=order.index), *OTHER_ERRORS]


def codes_of(error: type[PubSubError]) -> tuple[str, ...]:
    """Return the codes that an error may have."""
    return TRY_LATER if error is TryLaterError else (error.code,)


def error_row(error: type[PubSubError]) -> tuple[str, ...]:
    """Return the row of one error."""
    codes = ", ".join(f"`{one}`" for one in codes_of(error))
    return f"`{error.__name__}`", codes, str(error.exit_code), cell(inspect.getdoc(error) or "")


def exit_code_rows(text: str) -> Iterator[tuple[str, str]]:
    """Yield each exit code of an epilog with its meaning."""
    for part in text.removeprefix("Exit codes: ").removesuffix(".").split(" · "):
        code, _, meaning = part.partition(" ")
        yield code, cell(meaning)


def errors_page() -> str:
    """Return the page of errors and exit codes."""
    found = error_classes()
    public = [one.__name__ for one in found if one not in OTHER_ERRORS]
    entries = "".join(
        f"\n::: reliable_pubsub.{one}\n    options:\n      heading_level: 3\n" for one in public
    )
    refusals = sorted(str(one.__struct_config__.tag) for one in REFUSALS)
    return f"""# Errors and exit codes

{NOTICE}
Every error is a `PubSubError`. Its `code` is for programs, its text for people. A command prints
`error [CODE]: text` and ends with the exit code.

{table(("error", "code", "exit code", "meaning"), map(error_row, found))}
The proxy's refusals have these codes, which the metric `reliable_pubsub_refusals_total` counts:
{", ".join(f"`{one}`" for one in refusals)}. A client handles `GAP` itself.

## Exit codes

{table(("exit code", "meaning"), exit_code_rows(EXIT_CODES))}
Commands for pipes (`put`, `get`, `tail`, `subscribe`, `unsubscribe`, `topics`, `dead`):

{table(("exit code", "meaning"), exit_code_rows(PIPE_EXIT_CODES))}
## Each error
{entries}"""


PAGES: Final[Mapping[str, Callable[[], str]]] = {
    "api.md": api_page,
    "api-aio.md": aio_page,
    "api-testing.md": testing_page,
    "api-pipeline.md": pipeline_page,
    "commands.md": commands_page,
    "settings.md": settings_page,
    "metrics.md": metrics_page,
    "errors.md": errors_page,
    "benchmarks.md": benchmarks_page,
}
