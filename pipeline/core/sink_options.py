"""The options of the sink, checked as those of the source are. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final, Literal

from msgspec import Meta, field

from reliable_pubsub.common.core import names
from reliable_pubsub.common.core.errors import UsageError
from reliable_pubsub.common.core.limits import CLIENT_ID_CHARS_MAX, NUMBER_MAX
from reliable_pubsub.common.core.retry import RetryPolicy
from reliable_pubsub.common.core.settings import PUBLISHER_ENDPOINT

from .options import ProxyWords, option_names, typed_options


class SinkWords(ProxyWords, frozen=True, kw_only=True, rename="camel"):
    """The options of the sink, as written. docs/how-to/pipeline.md has their meanings."""

    endpoint: str = PUBLISHER_ENDPOINT
    topic: str = ""  # "": the column says so
    codec: Literal["json", "text"] | None = None
    sink_id: str = ""
    app_id: str = field(default="", name="txnAppId")  # "": a name of its own for each write
    version: Annotated[int, Meta(ge=0, le=NUMBER_MAX)] | None = field(
        default=None, name="txnVersion"
    )
    atomic: bool = True


SINK_OPTIONS: Final = option_names(SinkWords)
OF_SPARK: Final = frozenset({"checkpointlocation", "queryname", "outputmode"})  # it keeps them here
SINK_ID: Final = "spark"  # begins the publisher's id of a query that has no option sinkId
RUN_ID_CHARS: Final = 37  # "-" and a UUID
TASK_CHARS: Final = 12  # "-part-" and the number of a task
PARTS_MAX: Final = 2**20  # transactions of one task of a batch that is not atomic, with its marks
PARTED_VERSION_MAX: Final = NUMBER_MAX // PARTS_MAX - 1
COLUMNS: Final[Mapping[str, tuple[str, ...]]] = {  # with the types that a query may give them
    "topic": ("string",),
    "key": ("binary", "string"),
    "value": ("binary", "string"),
    "headers": ("map<string,string>",),
    "event_time": ("timestamp",),
    "event_time_ns": ("bigint",),
}
# Of a frame of the source. The proxy gives each message new ones.
IGNORED: Final[Mapping[str, str]] = {
    "offset": "bigint",
    "timestamp": "timestamp",
    "timestamp_ns": "bigint",
    "publisher": "string",
    "sequence": "bigint",
    "qos": "tinyint",
}
CONTENT_TYPES: Final = {"json": "application/json", "text": "text/plain; charset=utf-8"}


class SinkOptions(SinkWords, frozen=True, kw_only=True):
    """Where a query writes, and as whom."""

    content_type: str = ""  # of rows whose headers name none
    sink_id: str = SINK_ID
    version: int = 0
    retry: RetryPolicy = RetryPolicy()

    def writer_of(self, run_id: str) -> str:
        """The publisher's id of a query, or of a batch without a name.

        A query's own id is part of it: with a new checkpoint its batches begin with 0 again, and
        under an old name they would be taken for repeats.
        """
        return names.client_id(f"{self.sink_id}-{run_id}")

    @staticmethod
    def writer_of_task(writer: str, task: int) -> str:
        """The publisher's id of one task of a batch that is not atomic."""
        return names.client_id(f"{writer}-part-{task}")


def parse_sink_options(given: Mapping[str, str], *, streaming: bool) -> SinkOptions:
    """Check the options of a query that writes; `path` is what `.save("a")` says: the topic.

    Raises:
        UsageError: a name that does not exist (with the closest), or a value that cannot be.
    """
    ours = {name: value for name, value in given.items() if name.lower() not in OF_SPARK}
    words = typed_options(ours, SinkWords)
    asked = words.asked()
    if words.path and words.topic:
        raise UsageError("the topic is named twice: by option 'topic', and by .save() or .start()")
    topic = words.topic or words.path
    if bool(words.app_id) != (words.version is not None):
        raise UsageError("options txnAppId and txnVersion are given together")
    if words.app_id and (streaming or words.sink_id):
        raise UsageError(
            "txnAppId names the publisher of a batch; a stream has sinkId and the batches of its "
            "checkpoint"
        )
    sink_id = names.client_id(words.sink_id or SINK_ID)
    app_id = names.client_id(words.app_id) if words.app_id else ""
    if streaming and not words.atomic:
        raise UsageError(
            "option atomic is of a batch; a batch of a stream is one transaction: make it smaller "
            "with maxOffsetsPerTrigger of its source"
        )
    most = CLIENT_ID_CHARS_MAX - (0 if words.atomic else TASK_CHARS)
    for name, given_id, chars in (
        ("sinkId", sink_id, most - RUN_ID_CHARS),
        ("txnAppId", app_id, most),
    ):
        if len(given_id) > chars:
            raise UsageError(f"option {name}: {given_id!r} is longer than {chars} characters")
    version = words.version or 0
    if not words.atomic and version > PARTED_VERSION_MAX:
        raise UsageError(
            f"option txnVersion: with atomic=false at most {PARTED_VERSION_MAX}, not {version}"
        )
    made = {
        "topic": names.exact(topic) if topic else "",
        "content_type": CONTENT_TYPES.get(words.codec or "", ""),
        "sink_id": sink_id,
        "app_id": app_id,
        "version": version,
    }
    return SinkOptions(**asked | made)


def check_columns(columns: Mapping[str, str], options: SinkOptions) -> None:
    """See that rows of these columns can become messages.

    Args:
        columns: type by name, as Spark writes it.

    Raises:
        UsageError: a column is missing, or is unknown, or has another type.
    """
    for name, kind in columns.items():
        if IGNORED.get(name) == kind:
            continue
        if kind not in COLUMNS.get(name, ()):
            known = ", ".join(f"{one} ({' or '.join(kinds)})" for one, kinds in COLUMNS.items())
            raise UsageError(
                f"column {name!r} {kind} is not one of this sink; it takes {known}: select these"
            )
    if "value" not in columns:
        raise UsageError("there is no column 'value'; it becomes the payload")
    if not options.topic and IGNORED.keys() & columns.keys():
        raise UsageError(
            "these rows were read from topics, and would be put "
            "back on them: set the option 'topic'"
        )
    if not options.topic and "topic" not in columns:
        raise UsageError(
            "where to? Give the option 'topic', or a column 'topic' (CREATE TABLE forgets options: "
            "use CREATE TEMPORARY VIEW)"
        )
