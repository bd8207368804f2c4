"""The options of the sink, checked as those of the source are. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from reliable_pubsub.common import names
from reliable_pubsub.common.endpoint import check_endpoint
from reliable_pubsub.common.errors import UsageError
from reliable_pubsub.common.limits import CLIENT_ID_CHARS_MAX
from reliable_pubsub.common.retry import RetryPolicy
from reliable_pubsub.common.settings import PUBLISHER_ENDPOINT

from .options import Words, known_options

SINK_OPTIONS: Final[Mapping[str, str]] = {
    "endpoint": "the proxy's endpoint for publishers",
    "allowPlaintext": "true: the endpoint may be on another machine; traffic is not encrypted",
    "topic": "where all rows go; without it the column topic says so",
    "sinkId": "begin of the publisher's id; the query's own id follows",
    "txnAppId": "of a batch: the publisher's id, with txnVersion",
    "txnVersion": "of a batch: grows with each write; a repeated one stores nothing",
    "timeoutMs": "milliseconds to wait for one answer of the proxy",
    "retries": "how often to ask again",
}
OF_SPARK: Final = frozenset({"checkpointlocation", "queryname", "outputmode"})  # it keeps them here
RUN_ID_CHARS: Final = 37  # "-" and a UUID
COLUMNS: Final[Mapping[str, tuple[str, ...]]] = {  # with the types that a query may give them
    "topic": ("string",),
    "key": ("binary", "string"),
    "value": ("binary", "string"),
    "headers": ("map<string,string>",),
}


class SinkOptions(Struct, frozen=True, kw_only=True):
    """Where a query writes, and as whom."""

    endpoint: str
    topic: str = ""  # "": the column says so
    sink_id: str = "spark"
    app_id: str = ""  # "": a name of its own for each write
    version: int = 0
    retry: RetryPolicy = RetryPolicy()

    def writer_of(self, run_id: str) -> str:
        """The publisher's id of a query, or of a batch without a name.

        A query's own id is part of it: with a new checkpoint its batches begin with 0 again, and
        under an old name they would be taken for repeats.
        """
        return names.client_id(f"{self.sink_id}-{run_id}")


def parse_sink_options(given: Mapping[str, str], *, streaming: bool) -> SinkOptions:
    """Check the options of a query that writes; `path` is what `.save("a")` says: the topic.

    Raises:
        UsageError: a name that does not exist (with the closest), or a value that cannot be.
    """
    ours = {name: value for name, value in given.items() if name.lower() not in OF_SPARK}
    text = known_options(ours, SINK_OPTIONS)
    words = Words(text)
    if words.has("path") and words.has("topic"):
        raise UsageError("the topic is named twice: by option 'topic', and by .save() or .start()")
    topic = words.text("topic", words.text("path", ""))
    endpoint = words.text("endpoint", PUBLISHER_ENDPOINT)
    check_endpoint(endpoint, words.flag("allowPlaintext", default=False))
    if words.has("txnAppId") != words.has("txnVersion"):
        raise UsageError("options txnAppId and txnVersion are given together")
    if words.has("txnAppId") and (streaming or words.has("sinkId")):
        raise UsageError(
            "txnAppId names the publisher of a batch; a stream has sinkId and the batches of its "
            "checkpoint"
        )
    sink_id = names.client_id(words.text("sinkId", "spark"))
    if len(sink_id) > CLIENT_ID_CHARS_MAX - RUN_ID_CHARS:
        most = CLIENT_ID_CHARS_MAX - RUN_ID_CHARS
        raise UsageError(f"option sinkId: {sink_id!r} is longer than {most} characters")
    return SinkOptions(
        endpoint=endpoint,
        topic=names.exact(topic) if topic else "",
        sink_id=sink_id,
        app_id=names.client_id(words.text("txnAppId", "")) if words.has("txnAppId") else "",
        version=words.number("txnVersion", 0, 0),
        retry=words.retry(),
    )


def check_columns(columns: Mapping[str, str], options: SinkOptions) -> None:
    """See that rows of these columns can become messages.

    Args:
        columns: type by name, as Spark writes it.

    Raises:
        UsageError: a column is missing, or is not one of ours, or has another type.
    """
    for name, kind in columns.items():
        if kind not in COLUMNS.get(name, ()):
            known = ", ".join(f"{one} ({' or '.join(kinds)})" for one, kinds in COLUMNS.items())
            raise UsageError(
                f"column {name!r} {kind} is not one of this sink; it takes {known}: select these"
            )
    if "value" not in columns:
        raise UsageError("there is no column 'value'; it becomes the payload")
    if not options.topic and "topic" not in columns:
        raise UsageError("where to? Give the option 'topic', or a column 'topic'")
