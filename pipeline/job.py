"""What the jobs share: a YAML file with options, a proxy, a Spark, one ending."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar, cast

import click
from msgspec import UNSET, Meta, Struct, UnsetType, defstruct
from msgspec.structs import replace
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from reliable_pubsub.common.command_line import (
    accept_endpoint,
    complain,
    readable_errors,
    settings_from,
)
from reliable_pubsub.common.core import names
from reliable_pubsub.common.core.errors import UsageError
from reliable_pubsub.common.core.fields import Problems, read
from reliable_pubsub.common.core.message_base import Role
from reliable_pubsub.common.core.places import check_archive, check_local, is_in_objects
from reliable_pubsub.common.core.retry import RetryPolicy
from reliable_pubsub.common.key_files import client_keys
from reliable_pubsub.common.signals import (
    RESUME,
    UNFINISHED,
    ignore_signals,
    signals_raise,
    signals_wait,
    stop_on_signals,
)
from reliable_pubsub.common.surroundings import retry_policy
from reliable_pubsub.common.yaml_file import load_yaml

from .core.options import SourceOptions, parse_options
from .core.spark_failure import SparkGoneError, first_line
from .proxy_topics import endpoints_by_role
from .sessions import open_session, start_java
from .tasks import GONE, SparkTasks, raise_known

_OF_PY4J: Final = "Exception while sending command"

F = TypeVar("F", bound=Callable[..., Any])


@contextmanager
def running_job(*, is_endless: bool = False) -> Iterator[None]:
    """Errors are one paragraph and an exit code; a signal ends the job, to be resumed.

    Args:
        is_endless: it runs until a signal, which is then its ordinary end.
    """
    code = 0 if is_endless else UNFINISHED
    with readable_errors(), stop_on_signals(RESUME, exit_code=code):
        yield


# Options.


class LocalPath(click.Path):
    """A file or folder of this machine's file system."""

    def __init__(self, *, check: Callable[[str], str] = check_local, **more: Any) -> None:
        """Take the check that comes before, and what `click.Path` takes."""
        super().__init__(**{"path_type": Path, **more})
        self._check = check

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        """Refuse an address before it is taken for the name of a folder."""
        with readable_errors():
            place = self._check(os.fspath(value))
        return place if is_in_objects(place) else super().convert(place, param, ctx)


def archive_path() -> LocalPath:
    """Where an archive is, as text: a folder, or `s3://bucket/prefix`."""
    return LocalPath(check=check_archive, file_okay=False, path_type=str)


def config_option() -> Callable[[F], F]:
    """`-f FILE`: a YAML file whose keys are the long options, and arguments by their names.

    The command line wins.
    """
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
            if one is not parameter
            for name in one.opts
            if (name.startswith("--") or isinstance(one, click.Argument)) and name != "--help"
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


def _is_flag(option: click.Parameter) -> bool:
    return isinstance(option, click.Option) and option.is_flag


def _type_of(option: click.Parameter) -> Any:
    """What the key of an option may have in a file."""
    if _is_flag(option):
        return bool | UnsetType
    word = str | int | float
    expected = "text or a number" + (", or a list of them" * option.multiple)
    kind = word | list[word] if option.multiple else word
    return Annotated[kind, Meta(extra={"expected": expected})] | UnsetType


def _as_on_the_command_line(option: click.Parameter, value: Any) -> object:
    """A flag, or text, or several texts."""
    if _is_flag(option):
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


def spark_options() -> Callable[[F], F]:
    """Which Spark, and how much of it: one argument `spark`, a `SparkWish`."""
    shown = {
        "--driver-memory": "spark.driver.memory",
        "--executor-memory": "spark.executor.memory",
        "--executor-cores": "spark.executor.cores",
        "--total-executor-cores": "spark.cores.max",
        "--py-files": "spark.submit.pyFiles",
    }

    def decorate(command: F) -> F:
        @wraps(command)
        def wished(*args: Any, master: str | None, conf: tuple[str, ...], **more: Any) -> Any:
            said = {key: more.pop(_argument(option)) for option, key in shown.items()}
            pairs = [(key, value) for key, value in said.items() if value]
            with readable_errors():
                pairs += [pair("--conf", one, begin="spark.") for one in conf]
            return command(*args, spark=SparkWish(master, tuple(pairs)), **more)

        options = [
            click.option(
                "--master",
                help="Spark's master: local[4], spark://host:7077, ...  [default: what "
                "Spark's own settings say, else local[*,4]]",
            ),
            *(
                click.option(option, help=f"As of spark-submit; sets {key}.")
                for option, key in shown.items()
            ),
            click.option(
                "--conf",
                multiple=True,
                help="A setting of Spark, KEY=VALUE; may be given several times.",
            ),
        ]
        for option in reversed(options):
            wished = option(wished)
        return cast(F, wished)

    return decorate


def _argument(option: str) -> str:
    return option.removeprefix("--").replace("-", "_")


def pair(option: str, text: str, *, begin: str = "") -> tuple[str, str]:
    """Parse NAME=VALUE.

    Raises:
        UsageError: it is something else, or the name begins otherwise.
    """
    name, equals, value = text.partition("=")
    if not equals or not name.startswith(begin):
        raise UsageError(f"{option}: found {text!r}, expected {begin}NAME=VALUE")
    return name, value


def subscriber_endpoint_option() -> Callable[[F], F]:
    """Where jobs that put look what is there."""
    return click.option(
        "--subscriber-endpoint",
        help="The proxy's subscriber endpoint.  [default: the proxy names it at --endpoint]",
    )


# What they mean.


class Access(Struct, frozen=True):
    """Where a job reads and puts. Endpoints have keys, which no option of Spark has."""

    read_at: str
    put_at: str
    retry: RetryPolicy


def access_to(subscriber_endpoint: str | None, *, endpoint: str | None, **asked: Any) -> Access:
    """Where a job that puts finds the proxy.

    Args:
        subscriber_endpoint: None: the proxy names it at `endpoint`, or the settings do.
        endpoint, asked: what `asking_options("publisher")` gives.

    Raises:
        ConfigurationError: before anything is sent.
        ProxyUnreachableError: at the only endpoint that was given.
    """
    put_at, retry = _named_endpoint("publisher", endpoint, **asked)
    read_at, _ = _named_endpoint("subscriber", subscriber_endpoint, **asked)
    if endpoint and not subscriber_endpoint:
        found = endpoints_by_role(put_at, retry)
        if found["publisher"] != found["subscriber"]:  # else it is the port of a tunnel
            return Access(found["subscriber"], found["publisher"], retry)
    return Access(read_at, put_at, retry)


def complain_of(text: str) -> None:
    """Warn a person on stderr."""
    complain(f"warning: {text}")


def reading_endpoint(*, endpoint: str | None, **asked: Any) -> tuple[str, RetryPolicy]:
    """Where a job that only reads finds the proxy, and how to ask there.

    Args:
        endpoint: either of the proxy's endpoints; None: the one of the settings.
        asked: what else `asking_options("subscriber")` gives.

    Raises:
        ConfigurationError: before anything is sent.
        ProxyUnreachableError: at the endpoint that was given.
    """
    where, retry = _named_endpoint("subscriber", endpoint, **asked)
    return endpoints_by_role(where, retry)["subscriber"] if endpoint else where, retry


def _named_endpoint(
    role: Role, endpoint: str | None, *, allow_plaintext: bool, **more: str | None
) -> tuple[str, RetryPolicy]:
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
    )
    wanted = tuple(names.exact(topic) for topic in topics)
    return replace(found, topics=wanted, pattern=pattern, retry=retry, **more)


class SparkWish(Struct, frozen=True):
    """Which Spark a command line asks for."""

    master: str | None = None
    conf: tuple[tuple[str, str], ...] = ()


@contextmanager
def spark_tasks(name: str, wish: SparkWish, *, quiet: bool = True) -> Iterator[SparkTasks]:
    """A Spark for this job, ended with it.

    Args:
        quiet: in a terminal Spark does not show how far its tasks are.

    Raises:
        SparkGoneError: it cannot be started.
        ConfigurationError: the same.
    """
    shown = ("spark.ui.showConsoleProgress", str(sys.stderr.isatty() and not quiet).lower())
    spark = _opened(name, SparkWish(wish.master, (shown, *wish.conf)))
    with signals_raise():  # Spark has replaced our handlers by its own
        try:
            yield SparkTasks(spark)
        finally:
            ignore_signals()  # the work is over, one way or the other
            with suppress(*GONE, PySparkException):
                spark.stop()


def _opened(name: str, wish: SparkWish) -> SparkSession:
    before = SparkContext._gateway
    try:
        with signals_wait():
            start_java(wish.master, dict(wish.conf), quiet=True)
        spark = open_session(f"reliable-pubsub {name}", master=wish.master, conf=dict(wish.conf))
    except (*GONE, PySparkException) as error:
        raise_known(error)
        raise SparkGoneError(f"Spark cannot be started: {first_line(str(error))}") from error
    except BaseException:
        if SparkContext._gateway is not before:  # another one is not ours to end
            _kill_java()
        raise
    # They would write tracebacks when Java dies; we say SPARK_GONE.
    logging.getLogger().addFilter(lambda one: _OF_PY4J not in str(one.msg))
    spark.sparkContext._accumulatorServer.handle_error = (  # type: ignore[method-assign]
        lambda *_: None
    )
    return spark


def _kill_java() -> None:
    """End a Java that is left in the middle of its start: it would complain in a hundred lines."""
    process = getattr(SparkContext._gateway, "proc", None)
    if process is not None:
        process.kill()
