"""`--log-format json`: what a command writes to stderr, as one JSON object a line.

Standard `logging` carries it: a handler on the logger `reliable_pubsub`, under which the library
logs too. Without that handler commands write paragraphs for people (`command_line.complain`).
"""

from __future__ import annotations

import json
import logging
import re
import sys
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Final

from .core.settings import LogFormat

LOGGER: Final = "reliable_pubsub"
# What every record has; other attributes are facts.
_USUAL: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_BEGIN: Final = re.compile(r"(?P<word>error|warning|waiting)(?: \[(?P<code>[A-Z_]+)\])?: ")
_LEVELS: Final = {"error": logging.ERROR, "warning": logging.WARNING, "waiting": logging.WARNING}


class JsonLine(logging.Formatter):
    """A record as one line: time, level, logger, message, and its facts."""

    def format(self, record: logging.LogRecord) -> str:
        """See the class; what JSON does not know is written as text."""
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "pid": record.process,
            "message": record.getMessage(),
        }
        line |= {name: value for name, value in vars(record).items() if name not in _USUAL}
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


def use_log_format(wanted: LogFormat) -> None:
    """Write JSON lines from now on; "text" changes nothing."""
    logger = logging.getLogger(LOGGER)
    if wanted != "json" or writes_json():
        return
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLine())
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    sys.excepthook = _tell_bug


def writes_json() -> bool:
    """Whether this process writes JSON lines."""
    handlers = logging.getLogger(LOGGER).handlers
    return any(isinstance(one.formatter, JsonLine) for one in handlers)


def log_line(text: str) -> None:
    """Log a paragraph for people: `warning [QOS]: ...` is a record of that level and code."""
    found = _BEGIN.match(text)
    level = _LEVELS[found["word"]] if found else logging.INFO
    facts = {"code": found["code"]} if found and found["code"] else {}
    message = text[found.end() :] if found else text
    logging.getLogger(f"{LOGGER}.command").log(level, "%s", message, extra=facts)


def _tell_bug(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    logging.getLogger(f"{LOGGER}.command").critical(
        "ended by an error that is a bug: %s", error, exc_info=(kind, error, trace)
    )
