"""What the jobs share: a YAML file with options, a proxy, a Spark, one ending."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar

import click
from msgspec import UNSET, Meta, UnsetType, defstruct
from msgspec.structs import replace

from reliable_pubsub.common.command_line import (
    RESUME,
    accept_endpoint,
    readable_errors,
    settings_from,
    signals_raise,
    stop_on_signals,
)
from reliable_pubsub.common.core import names
from reliable_pubsub.common.core.errors import UsageError
from reliable_pubsub.common.core.fields import Problems, read
from reliable_pubsub.common.core.retry import RetryPolicy
from reliable_pubsub.common.key_files import client_keys
from reliable_pubsub.common.surroundings import retry_policy
from reliable_pubsub.common.yaml_file import load_yaml

from .core.options import SourceOptions, parse_options
from .instants import instant_ns
from .sessions import open_session
from .tasks import GONE, SparkTasks

F = TypeVar("F", bound=Callable[..., Any])

# What Spark has to say goes to stderr, beside our own words: of a job that works, nothing.
_LOG: Final = Path(__file__).with_name("log4j2.properties")
QUIET_LOG: Final = {"spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={_LOG.as_uri()}"}


@contextmanager
def running_job() -> Iterator[None]:
    """Errors are one paragraph and an exit code; a signal ends the job, to be resumed."""
    with readable_errors(), stop_on_signals(RESUME):
        yield


# Options.


def config_option() -> Callable[[F], F]:
    """`-f FILE`: a YAML file whose keys are the long options; the command line wins."""
    return click.option(
        "-f",
        "--config-file",
        is_eager=True,
        expose_value=False,
        callback=_read_config,
        type=click.Path(path_type=Path, dir_okay=False),
        help="Options in a YAML file, by their long names (`rows-per-file: 1000`).",
    )


def _read_config(ctx: click.Context, parameter: click.Parameter, path: Path | None) -> None:
    if path is None:
        return
    with readable_errors():
        document = load_yaml(path)
        known = {
            name.removeprefix("--"): one
            for one in ctx.command.params
            if isinstance(one, click.Option) and one is not parameter
            for name in one.opts
            if name.startswith("--") and name != "--help"
        }
        kind = defstruct(
            "Options",
            [(f"option_{n}", _type_of(one), UNSET) for n, one in enumerate(known.values())],
            rename={f"option_{n}": key for n, key in enumerate(known)},
            forbid_unknown_fields=True,
        )
        problems = Problems(document)
        read(problems, (), document.data, kind)
        problems.raise_if_any()
        assert isinstance(document.data, dict)
    ctx.default_map = {
        str(known[key].name): _as_on_the_command_line(known[key], value)
        for key, value in document.data.items()
    }


def _type_of(option: click.Option) -> Any:
    """What the key of an option may have in a file."""
    if option.is_flag:
        return bool | UnsetType
    word = str | int | float
    expected = "text or a number" + (", or a list of them" * option.multiple)
    kind = word | list[str | int | float] if option.multiple else word
    return Annotated[kind, Meta(extra={"expected": expected})] | UnsetType


def _as_on_the_command_line(option: click.Option, value: Any) -> object:
    """A flag, or text, or several texts."""
    if option.is_flag:
        return value
    texts = [str(one) for one in (value if isinstance(value, list) else [value])]
    return texts if option.multiple else texts[0]


def topic_options() -> Callable[[F], F]:
    """Which topics."""
    topic = click.option("--topic", multiple=True, help="A topic; may be given several times.")
    pattern = click.option(
        "--pattern", default="", help="A regular expression: topics whose whole name matches."
    )
    return lambda command: topic(pattern(command))


def spark_option() -> Callable[[F], F]:
    """Where Spark runs."""
    return click.option(
        "--master", help="Spark's master: local[4], spark://host:7077, ...  [default: local[*,4]]"
    )


def subscriber_endpoint_option() -> Callable[[F], F]:
    """Where jobs that put look what is there."""
    return click.option(
        "--subscriber-endpoint", help="The proxy's subscriber endpoint, to see what is there."
    )


# What they mean.


def proxy_endpoint(
    role: str, *, endpoint: str | None, allow_plaintext: bool, **more: str | None
) -> tuple[str, RetryPolicy]:
    """The endpoint for publishers or subscribers, and how to ask there.

    Args:
        more: other settings that an option gives; see `asking_options`.

    Raises:
        ConfigurationError: before anything is sent.
    """
    settings = settings_from("pipeline", {f"{role}_endpoint": endpoint, **more})
    where: str = getattr(settings, f"{role}_endpoint")
    reached = accept_endpoint(where, allow_plaintext=allow_plaintext, keys=client_keys(settings))
    return reached, retry_policy(settings)


def topics_wanted(
    topics: Sequence[str], pattern: str, *, endpoint: str, retry: RetryPolicy, **more: Any
) -> SourceOptions:
    """What a job reads.

    Args:
        more: other fields of `SourceOptions`.

    Raises:
        UsageError: not exactly one of topics and pattern, or one that cannot be.
    """
    if bool(topics) == bool(pattern):
        raise UsageError("name the topics by --topic, or by --pattern; one of the two")
    if more.get("subscriber"):
        names.client_id(more["subscriber"])
    found = parse_options(
        {"subscribePattern": pattern or ".*", "allowPlaintext": "true", "endpoint": endpoint},
        instant_ns=instant_ns,
    )
    wanted = tuple(names.exact(topic) for topic in topics)
    return replace(found, topics=wanted, pattern=pattern, retry=retry, **more)


@contextmanager
def spark_tasks(name: str, master: str | None) -> Iterator[SparkTasks]:
    """A Spark for this job, ended with it."""
    spark = open_session(f"reliable-pubsub {name}", master=master, conf=QUIET_LOG)
    # It would write a traceback when Java dies; we say SPARK_GONE.
    spark.sparkContext._accumulatorServer.handle_error = (  # type: ignore[method-assign]
        lambda *_: None
    )
    try:
        with signals_raise():  # Spark has put its own in the place of ours
            yield SparkTasks(spark)
    finally:
        with suppress(*GONE):
            spark.stop()
