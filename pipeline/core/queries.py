"""A query of SQL over topics: the columns that it sees, the messages that its rows become. Pure.

What Spark refuses is said in words that name the way out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Literal, get_args

from msgspec import Struct

from reliable_pubsub.common.core import names
from reliable_pubsub.common.core.errors import UsageError
from reliable_pubsub.common.core.payload import CONTENT_TYPE
from reliable_pubsub.common.core.wording import did_you_mean

from .sink_options import COLUMNS

OutputMode = Literal["append", "update"]
OUTPUT_MODES: Final[tuple[OutputMode, ...]] = get_args(OutputMode)

# What is read of a message, and the columns that a view makes of it.
READ: Final = (
    "topic string, offset bigint, timestamp timestamp, key binary, value binary, publisher string, "
    "sequence bigint, headers map<string,string>, event_time_ns bigint"
)
VIEW: Final[Mapping[str, str]] = {
    "topic": "topic",
    "offset": "offset",
    "timestamp": "timestamp",
    "event_time": "coalesce(timestamp_micros(event_time_ns div 1000), timestamp)",
    "key": "string(key)",
    "value": "string(value)",
    "headers": "headers",
    "publisher": "publisher",
    "sequence": "sequence",
}
TIMES: Final = ("timestamp", "event_time")
_TEXT: Final = "text/plain; charset=utf-8"
_JSON: Final = "application/json"
_NO_HEADERS: Final = "cast(map() as map<string,string>)"

WATERMARK_ADVICE: Final = (
    "Say how late a message may come, so that Spark knows when a result is final: --watermark "
    "'timestamp 1 minute', or in the query `FROM topic WATERMARK timestamp DELAY OF INTERVAL 1 "
    "MINUTE`"
)
# By what Spark says: what to do.
_ADVICE: Final = (
    ("not supported without a watermark in the join", WATERMARK_ADVICE),
    (
        "without watermark",
        f"{WATERMARK_ADVICE}. Or give --output-mode update: each change of a result is a message",
    ),
    (
        "Sorting is not supported",
        "What comes without end has no order but that of its topic: leave ORDER BY out, or run "
        "the query over what is stored now, without --checkpoint",
    ),
    (
        "NON_TIME_WINDOW",
        "Group by window(timestamp, '1 minute') instead of OVER (...), or run the query over what "
        "is stored now, without --checkpoint",
    ),
    (
        "Malformed records are detected",
        "A message is not the JSON that --json says. To go on after such messages leave --json "
        "out and write from_json(value, '...') in the query: it gives NULL for them",
    ),
)
_CONDITION: Final = re.compile(  # of the innermost error: no other condition before its state
    r"\[([A-Z][A-Z_]+(?:\.[A-Z_]+)*)\] "
    r"((?:(?!\[[A-Z_]{4,}[.\]]|\n\s+at )[\s\S])+?) SQLSTATE: (\w{5})"
)
_OF_A_QUERY: Final = ("0A", "22", "42")  # classes of SQLSTATE: not supported, data, syntax


class Query(Struct, frozen=True, kw_only=True):
    """What is computed, from what, and where the result goes."""

    sql: str
    topics: tuple[str, ...]  # each is a view
    target: str
    fields: Mapping[str, str] = {}  # by topic: the fields of its values, which are JSON
    watermark: tuple[str, str] | None = None  # of each view: column and delay
    output_mode: OutputMode = "append"


def parse_query(
    sql: str,
    sources: Iterable[str],
    target: str,
    json: Iterable[str],
    watermark: str,
    output_mode: OutputMode,
) -> Query:
    """Check what a command line says.

    Args:
        sources: topics, separated by commas.
        json: of some topics TOPIC=FIELDS.
        watermark: "": none; else a column and a delay.

    Raises:
        UsageError: something of it cannot be.
    """
    if not sql.strip():
        raise UsageError("the query is empty: write a SELECT over the topics of --from")
    found = [one.strip() for text in sources for one in text.split(",")]
    topics = tuple(dict.fromkeys(names.exact(topic) for topic in found))
    if target in topics:
        raise UsageError(f"--to {target} is one of --from: the query would read its own results")
    fields: dict[str, str] = {}
    for text in json:
        topic, equals, columns = text.partition("=")
        if not equals or not columns.strip():
            raise UsageError(
                f"--json: found {text!r:.80}, expected TOPIC=FIELDS such as "
                "orders='customer string, amount double'"
            )
        if topic not in topics:
            raise UsageError(
                f"--json: topic {topic!r} is not one of --from{did_you_mean(topic, topics)}"
            )
        fields[topic] = columns.strip()
    return Query(
        sql=sql,
        topics=topics,
        target=names.exact(target),
        fields=fields,
        watermark=_watermark(watermark) if watermark else None,
        output_mode=output_mode,
    )


def _watermark(text: str) -> tuple[str, str]:
    column, _, delay = text.strip().partition(" ")
    if column not in TIMES or not delay.strip():
        raise UsageError(
            f"--watermark: found {text!r:.80}, expected a column ({' or '.join(TIMES)}) and a "
            "delay, such as 'timestamp 1 minute'"
        )
    return column, delay.strip()


def quoted(name: str) -> str:
    """A name as SQL has it, whatever it contains."""
    return f"`{name.replace('`', '``')}`"


def view_columns(fields: str = "") -> list[str]:
    """The columns of a view, as expressions over `READ`.

    Args:
        fields: of values that are JSON; "": they are text.
    """
    made = dict(VIEW)
    if fields:
        text = fields.replace("\\", "\\\\").replace("'", "\\'")
        made["value"] = f"from_json(string(value), '{text}', map('mode', 'FAILFAST'))"
    return [f"{expression} AS {name}" for name, expression in made.items()]


def message_columns(columns: Sequence[tuple[str, str]]) -> list[str]:
    """Return the sink's columns, as expressions over those of a result.

    A column `value` is the payload. Without one the columns are a JSON object, apart from `key`,
    `headers` and `event_time`; NULL is null there, so that every message has every field.

    Args:
        columns: names and types, as Spark writes them.

    Raises:
        UsageError: no message can be made of them.
    """
    kinds = dict(columns)
    if len(kinds) < len(columns):
        twice = next(one for one in kinds if [name for name, _ in columns].count(one) > 1)
        raise UsageError(f"the query gives two columns {twice!r}: name them apart, with AS")
    rest = [name for name in kinds if name not in ("key", "value", "headers", "event_time")]
    if "value" in kinds:
        if rest:
            raise UsageError(
                f"the query gives a column 'value', which is the whole payload, and "
                f"{', '.join(map(repr, rest))} beside it: leave these out; or name 'value' "
                "otherwise, and all columns become a JSON object"
            )
    elif not rest:
        raise UsageError(
            "the query gives no column for the payload: SELECT a column 'value' (text or bytes), "
            "or others, which become a JSON object"
        )
    for name in ("value", "headers", "event_time"):
        if kinds.get(name, COLUMNS[name][0]) not in COLUMNS[name]:
            raise UsageError(
                f"column {name!r} is {kinds[name]}, and not {' or '.join(COLUMNS[name])}: convert "
                "it, or give it another name"
            )
    payload = "value" if "value" in kinds else _json_object(rest)
    made = [f"{payload} AS value", f"{_headers(kinds)} AS headers"]
    if "key" in kinds:
        made.append(f"{'key' if kinds['key'] == 'binary' else 'string(key)'} AS key")
    if "event_time" in kinds:
        made.append("event_time")
    return made


def _json_object(columns: Sequence[str]) -> str:
    named = ", ".join(map(quoted, columns))
    return f"to_json(struct({named}), map('ignoreNullFields', 'false'))"


def _headers(kinds: Mapping[str, str]) -> str:
    """The headers, with the content type that readers go by."""
    given = f"coalesce(headers, {_NO_HEADERS})" if "headers" in kinds else _NO_HEADERS
    if "value" not in kinds:
        others = f"map_filter({given}, (name, _) -> lower(name) != '{CONTENT_TYPE}')"
        return f"map_concat({others}, map('{CONTENT_TYPE}', '{_JSON}'))"
    if "headers" in kinds or kinds["value"] != "string":
        return given
    return f"map('{CONTENT_TYPE}', '{_TEXT}')"


def query_error(text: str, query: Query, *, analysed: bool) -> UsageError | None:
    """What Spark says against a query, with what to do; None: it is not about the query.

    Args:
        text: what the exception says.
        analysed: Spark has said it before anything ran.
    """
    said = ""
    for condition, sentence, state in _CONDITION.findall(text):
        if state[:2] in _OF_A_QUERY:  # the last one is the cause of those before
            said = f"{sentence.splitlines()[0]} [{condition}]"
    if not said and analysed:
        said = next((line.rstrip("; ") for line in text.splitlines() if line.strip()), "")
    if not said:
        return None
    advice = next((advice for sign, advice in _ADVICE if sign in text), "")
    if "TABLE_OR_VIEW_NOT_FOUND" in said:
        views = ", ".join(map(quoted, query.topics))
        advice = f"Views are the topics of --from: {views}; in backticks if they are no plain word"
    elif "UNRESOLVED_COLUMN" in said:
        advice = f"A view has {', '.join(VIEW)}"
    return UsageError(f"Spark refuses the query: {said}. {advice}".replace("..", ".").strip())


def changed_field(before: Query, now: Query) -> str:
    """What a checkpoint was begun with and is not given now; "": nothing."""
    return next(
        (name for name in Query.__struct_fields__ if getattr(before, name) != getattr(now, name)),
        "",
    )
