"""Write what pages in docs take from the code: see --help.

In docs/internals/protocol.md and docs/internals/protocol-push.md:

- In a table of fields (its first column is `field`): rows, types and defaults come from the type
  that the heading above names; the meanings stay. A field that is new gets the meaning `?`.
- In a fence ```` ```hex PART/NAME ````: the bytes of that message of tests/wire/vectors.json, with
  what they mean beside them. A step of a dialogue is `dialogues/NAME/NUMBER/request` or `/answer`.
- In the table of limits: the values.
- Below a verb, in a line that begins with `Answers, and [what to do]`: all of them, from the tables
  of answers.

All of docs/internals/guarantees-tests.md, from tests/guarantees.txt, and the pages of
docs/reference that `scripts/reference_pages.py` makes, for which Spark must be installed.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, get_args

import msgspec
from msgspec import UNSET, Struct, inspect

from reliable_pubsub.common.core import (
    actions,
    answers,
    group_messages,
    interest_messages,
    limits,
    message_base,
    pattern_messages,
    qos0_messages,
    requests,
    status,
    transaction_messages,
)
from reliable_pubsub.common.core import tree_messages as node_messages
from reliable_pubsub.common.core.names import (
    CLIENT_ID_PATTERN,
    SUBSCRIPTION_PATTERN,
    TOPIC_PATTERN,
)
from reliable_pubsub.common.core.patterns import pattern
from reliable_pubsub.relay.core.push import Pushed, PushedUnstored
from reliable_pubsub.relay.core.unstored import Offer
from scripts import guarantee_tests, reference_pages
from tests.wire.vectors import CONTENT, Vector, vector

DOCS = Path(__file__).parents[1] / "docs"
PAGES = (DOCS / "internals" / "protocol.md", DOCS / "internals" / "protocol-push.md")
BYTES_A_LINE = 16
VALUE_CHARS_MAX = 76

# Types in words.

PATTERNS = {
    CLIENT_ID_PATTERN: "id",
    SUBSCRIPTION_PATTERN: "id, or `group:` and a name",
    TOPIC_PATTERN: "topic",
}


def number(value: int) -> str:
    """A number as the pages write it."""
    return {2**63 - 1: "2^63-1", 2**32 - 1: "2^32-1"}.get(value, f"{value:,}")


def in_words(kind: inspect.Type) -> str:
    """A type as the pages write it."""
    match kind:
        case inspect.IntType(ge=low, le=high):
            return "integer" if high is None else f"integer {low} .. {number(high)}"
        case inspect.StrType(pattern=pattern, min_length=low, max_length=high):
            name = PATTERNS.get(pattern or "", "text")
            return name if high is None else f"{name} of {low or 0} .. {high} characters"
        case inspect.BytesType(min_length=low, max_length=high):
            return f"bytes {low}" if low == high else f"bytes {low} .. {high}"
        case inspect.LiteralType(values=values):
            return " or ".join(json.dumps(value) for value in values)
        case inspect.UnionType(types=types):
            return " or ".join(in_words(one) for one in types)
        case inspect.VarTupleType(item_type=item, max_length=most):
            return f"list of {'' if most is None else f'0 .. {most} '}{in_words(item)}"
        case inspect.StructType(cls=cls):
            return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", cls.__name__).lower()
    simple = {inspect.NoneType: "nil", inspect.BoolType: "true or false"}
    return {**simple, inspect.FloatType: "number"}[type(kind)]


def default_in_words(default: object) -> str:
    """The value of a field that is left out."""
    match default:
        case None:
            return "nil"
        case bool():
            return str(default).lower()
        case int():
            return number(default)
        case "":
            return '""'
        case ():
            return "empty"
        case Struct() if default == type(default)():
            return "all defaults"
    return str(default)


Row = dict[str, str]
_HEADS: dict[type[Struct], tuple[str, type[Struct] | None]] = {
    message_base.Request: ("verb", message_base.Request),
    message_base.Reply: ("answer", message_base.Reply),
}


def fields(struct: type[Struct]) -> list[Row]:
    """The fields of a type as rows of its table; what every message of its sort has is left out."""
    sort = next((one for one in _HEADS if issubclass(struct, one)), None)
    common = set(sort.__struct_fields__) if sort not in (None, struct) else set()
    absent = {f.name for f in msgspec.structs.fields(struct) if f.default is UNSET}
    info = inspect.type_info(struct)
    assert isinstance(info, inspect.StructType)
    rows = [
        {
            "field": f"`{field.name}`",
            "type": in_words(field.type) + (" or absent" if field.name in absent else ""),
            "default": "absent"
            if field.name in absent
            else "-"
            if field.required
            else default_in_words(field.default),
        }
        for field in info.fields
        if field.name not in common
    ]
    tag = struct.__struct_config__.tag_field
    if struct in _HEADS or struct in (Pushed, PushedUnstored, Offer):
        rows.insert(0, {"field": f"`{tag}`", "type": "text", "default": "-"})
    return rows


def by_tag(union: Any) -> dict[str, type[Struct]]:
    """The types of a union, by the word that names them on the wire."""
    return {str(one.__struct_config__.tag): one for one in get_args(union)}


VERBS = by_tag(requests.AnyRequest | node_messages.InterestRequest | node_messages.Node)
ANSWERS = by_tag(answers.AnyReply | node_messages.AnyInterestReply)
NESTED = {
    in_words(inspect.type_info(one)): one
    for module in (
        message_base,
        actions,
        status,
        requests,
        answers,
        pattern,
        pattern_messages,
        interest_messages,
        group_messages,
        qos0_messages,
        transaction_messages,
        node_messages,
    )
    for one in vars(module).values()
    if isinstance(one, type)
    and issubclass(one, Struct)
    and one is not Struct
    and not issubclass(one, message_base.Request | message_base.Reply)
}
OTHERS: dict[str, type[Struct]] = {
    "Every request": message_base.Request,
    "Every answer": message_base.Reply,
    "Push frames": Pushed,
    "A push of what is not stored": PushedUnstored,
    "An offer": Offer,
}


def type_of(heading: str, columns: Sequence[str]) -> type[Struct]:
    """The type whose fields a table shows: ACK is a verb, which has defaults, and an answer."""
    name = heading.strip("# ").removesuffix(", the answer")
    found = (VERBS if "default" in columns else ANSWERS).get(name)
    return found or OTHERS.get(name) or NESTED[name]


# Markdown.


def cells(line: str) -> list[str]:
    """The cells of a row."""
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def filled_table(heading: str, lines: Sequence[str]) -> list[str]:
    """A table of fields, with what the code says."""
    columns = cells(lines[0])
    meanings = {row[0]: row[-1] for row in map(cells, lines[2:])}
    found = [
        [*(row[name] for name in columns[:-1]), meanings.get(row["field"], "?")]
        for row in fields(type_of(heading, columns))
    ]
    return [*lines[:2], *(f"| {' | '.join(row)} |" for row in found)]


def filled_limits(lines: Sequence[str]) -> list[str]:
    """The table of limits, with the values of `common/core/limits.py`."""
    rest = {row[0]: row[2] for row in map(cells, lines[2:])}
    shown = [name for name in vars(limits) if name.isupper() and name not in ("KIB", "MIB", "GIB")]
    order = [name for name in rest if name.strip("`") in shown]
    order += [f"`{name}`" for name in shown if f"`{name}`" not in rest]
    return [
        *lines[:2],
        *(
            f"| {name} | {getattr(limits, name.strip('`')):,} | {rest.get(name, '?')} |"
            for name in order
        ),
    ]


ANSWERS_BEGIN = "Answers, and [what to do]("


def answer_lines() -> dict[str, str]:
    """Every answer to each verb with the word for what to do, from the two tables of that."""
    text = PAGES[0].read_text("utf-8")
    tables = re.findall(r"(?m)^\| a \w+ got \|.*\n(?:\|.*\n)+", text)
    found: dict[str, dict[str, str]] = {}
    for lines in map(str.splitlines, tables):
        verbs = cells(lines[0])[1:]
        for answer, *words in map(cells, lines[2:]):
            for verb, word in zip(verbs, words, strict=True):
                if word:
                    found.setdefault(verb, {})[answer] = word
    return {
        verb: ", ".join(f"{answer} *{word}*" for answer, word in sorted(words.items()))
        for verb, words in found.items()
    }


# Bytes.


def named_vector(path: str) -> tuple[str, Vector]:
    """A message of vectors.json: the part it is of, and itself."""
    part, name, *rest = path.split("/")
    one = next(one for one in CONTENT[part] if one["name"] == name)
    if part != "dialogues":
        return part, vector(one)
    step, side = rest
    return f"{side}s", vector(one["steps"][int(step) - 1][side])


def shown_value(value: Any) -> str:
    """A value beside its bytes."""
    text = _text_of(value)
    return text if len(text) <= VALUE_CHARS_MAX else f"{text[: VALUE_CHARS_MAX - 4]} ..."


def _text_of(value: Any) -> str:
    if isinstance(value, bytes):
        text = value.decode("latin-1")
        return (
            f'bytes "{text}"' if text.isascii() and text.isprintable() else f"bytes {value.hex()}"
        )
    if isinstance(value, list):
        return f"[{', '.join(map(_text_of, value))}]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {_text_of(one)}" for key, one in value.items()) + "}"
    return "nil" if value is None else json.dumps(value)


def hex_lines(content: bytes, meaning: str) -> Iterator[str]:
    """Bytes, sixteen on a line; what they mean is beside the first."""
    for at in range(0, len(content), BYTES_A_LINE):
        line = content[at : at + BYTES_A_LINE].hex(" ")
        yield f"{line:{3 * BYTES_A_LINE}} ; {meaning}" if at == 0 else line


def header_lines(frame: bytes) -> Iterator[str]:
    """A map, entry by entry."""
    said = msgspec.msgpack.decode(frame)
    pairs = [
        (key, value, b"".join(map(msgspec.msgpack.encode, (key, value))))
        for key, value in said.items()
    ]
    begin = frame[: len(frame) - sum(len(pair) for _, _, pair in pairs)]
    assert begin + b"".join(pair for _, _, pair in pairs) == frame
    yield from hex_lines(begin, f"a map of {len(said)}")
    for key, value, pair in pairs:
        yield from hex_lines(pair, f"{key}: {shown_value(value)}")


def batch_lines(frame: bytes) -> Iterator[str]:
    """A batch, column by column."""
    columns = msgspec.msgpack.decode(frame)
    yield from hex_lines(frame[:1], "the batch: an array of 4")
    names = ("payloads", "keys", "headers", "event_times_ns")
    for name, column in zip(names, columns, strict=True):
        yield from hex_lines(msgspec.msgpack.encode(column), f"{name}: {shown_value(column)}")


def hex_block(path: str) -> str:
    """A message as the pages show it."""
    part, one = named_vector(path) if path.split("/")[0] != "batches" else ("batches", None)
    if one is None:
        (found,) = [b for b in CONTENT["batches"] if f"batches/{b['name']}" == path]
        return "\n".join(batch_lines(bytes.fromhex(found["frame"])))
    lines: list[str] = []
    has_topic = part in ("pushes", "offers")
    for place, frame in enumerate(one.frames, 1):
        lines.append(f"frame {place}")
        kind = place - has_topic
        if kind == 0:
            lines += hex_lines(frame, "the topic and a zero byte")
        elif kind == 1:
            lines += hex_lines(frame, "RPS1")
        else:
            lines += header_lines(frame) if kind == 2 else batch_lines(frame)
    return "\n".join(lines)


def generated(text: str) -> str:
    """A page with everything that comes from the code as the code has it."""
    text = re.sub(
        r"(?ms)^```hex (\S[^\n]*)\n.*?^```$",
        lambda m: f"```hex {m[1]}\n{hex_block(m[1])}\n```",
        text,
    )
    heading, lines, out = "", text.split("\n"), list[str]()
    while lines:
        line = lines.pop(0)
        if line.startswith("#"):
            heading = line
        if line.startswith(ANSWERS_BEGIN):
            link = line.removeprefix(ANSWERS_BEGIN).partition(")")[0]
            line = f"{ANSWERS_BEGIN}{link}): {answer_lines()[heading.strip('# ')]}."
        if not line.startswith(("| field |", "| limit |")):
            out.append(line)
            continue
        block = [line]
        while lines and lines[0].startswith("|"):
            block.append(lines.pop(0))
        out += filled_table(heading, block) if "field" in line else filled_limits(block)
    return "\n".join(out)


def main(arguments: Sequence[str]) -> int:
    """Write the pages, or with --check say which are stale."""
    if arguments not in ([], ["--check"]):
        sys.stdout.write(f"{__doc__}\n  --check   write nothing; exit code 1 if a page is stale\n")
        return 0 if arguments in (["--help"], ["-h"]) else 2
    texts = {page: generated(page.read_text("utf-8")) for page in PAGES}
    texts |= {reference_pages.FOLDER / name: of() for name, of in reference_pages.PAGES.items()}
    try:
        texts[guarantee_tests.PAGE] = guarantee_tests.appendix()
    except LookupError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    stale = [
        page for page, text in texts.items() if not page.exists() or page.read_text("utf-8") != text
    ]
    for page in stale:
        if arguments:
            sys.stderr.write(f"{page.name} is stale: run scripts/protocol_tables\n")
        else:
            page.write_text(texts[page], "utf-8")
    return 1 if stale and arguments else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
