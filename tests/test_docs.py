"""The documents say what the code does: tables, limits, hex, names of tests and of decisions.

A table in docs/protocol.md is compared cell by cell with the type it describes. The hex of its
example is decoded, encoded again, and asked of the real broker.
"""

from __future__ import annotations

import ast
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest
from msgspec import UNSET, Struct, inspect
from msgspec.structs import replace

from reliable_pubsub.common import history, limits, messages
from reliable_pubsub.common.batch import Batch, crc32, decode_batch
from reliable_pubsub.common.names import CLIENT_ID_PATTERN, TOPIC_PATTERN
from reliable_pubsub.common.retry import RetryPolicy, poll_pause_s
from reliable_pubsub.common.settings import BY_NAME
from reliable_pubsub.common.steps import DELIVERED_S
from reliable_pubsub.common.wire import decode_reply, decode_request, encode_reply, encode_request
from reliable_pubsub.relay.messages import Interest, InterestAck, Loop, Node, NodeReport
from reliable_pubsub.relay.pattern import Kinds, Pattern
from reliable_pubsub.relay.push import Pushed, PushedUnstored, decode_push, encode_push
from reliable_pubsub.relay.unstored import LINKED, Offer
from reliable_pubsub.subscriber.link import CLEAN_LEASE_MS
from tests.fakes import EMPTY, MemoryProxy, a_hello, a_sub, sub_ack
from tests.lab.test_checker import PLANTED
from tests.simulation.faults import FAULTS

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = sorted({*DOCS.rglob("*.md"), *ROOT.glob("*.md")})
PROTOCOL = (DOCS / "protocol.md").read_text(encoding="utf-8")
FEATURES = (DOCS / "features.md").read_text(encoding="utf-8")
HISTORY = (DOCS / "history.md").read_text(encoding="utf-8")
GUARANTEES = (DOCS / "guarantees.md").read_text(encoding="utf-8")
GLOSSARY = (DOCS / "glossary.md").read_text(encoding="utf-8")

Row = dict[str, str]


# Reading markdown.


def sections(text: str, marks: str) -> dict[str, str]:
    """What stands below each heading of one level, up to the next of this level or above."""
    found = re.split(rf"(?m)^(?=#{{1,{len(marks)}}} )", text)
    below = (part.split("\n", 1) for part in found if part.startswith(f"{marks} "))
    return {heading.removeprefix(f"{marks} ").strip(): rest for heading, rest in below}


def tables(text: str) -> Iterator[list[Row]]:
    """Each table of a text, its rows by the headings of its columns."""
    for block in re.findall(r"(?m)(?:^\|.*\|\n)+", text + "\n"):
        head, _, *rows = [
            [cell.strip() for cell in line.strip("|").split("|")] for line in block.splitlines()
        ]
        yield [dict(zip(head, row, strict=True)) for row in rows]


def table(text: str, first_column: str) -> list[Row]:
    """The one table that has this first column."""
    found = [rows for rows in tables(text) if rows and next(iter(rows[0])) == first_column]
    assert len(found) == 1, f"{len(found)} tables begin with the column {first_column!r}"
    return found[0]


def plain(cell: str) -> str:
    return cell.strip("`")


PARTS = sections(PROTOCOL, "##")
REQUESTS = sections(PARTS["Requests"], "###")
ANSWERS = sections(PARTS["Answers"], "###")
NESTED = sections(PARTS["Nested values"], "###")


# Types in words.


def number(value: int) -> str:
    return {2**63 - 1: "2^63-1", 2**32 - 1: "2^32-1"}.get(value, f"{value:,}")


def in_words(kind: inspect.Type) -> str:
    """A type as docs/protocol.md writes it."""
    match kind:
        case inspect.IntType(ge=low, le=high):
            return "integer" if high is None else f"integer {low} .. {number(high)}"
        case inspect.StrType(pattern=pattern):
            return {CLIENT_ID_PATTERN: "id", TOPIC_PATTERN: "topic"}.get(pattern or "", "text")
        case inspect.BytesType(min_length=low, max_length=high):
            return f"bytes {low} .. {high}"
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


def fields(struct: type[Struct], *, without: type[Struct] = Struct) -> list[Row]:
    """The fields of a type as rows of its table."""
    common = {field.name for field in msgspec.structs.fields(without)}
    absent = {f.name for f in msgspec.structs.fields(struct) if f.default is UNSET}
    info = inspect.type_info(struct)
    assert isinstance(info, inspect.StructType)
    return [
        {
            "field": field.name,
            "type": in_words(field.type) + (" or absent" if field.name in absent else ""),
            "default": "-" if field.required else default_in_words(field.default),
        }
        for field in info.fields
        if field.name not in common
    ]


def default_in_words(default: object) -> str:
    match default:
        case None:
            return "nil"
        case int():
            return number(default)
        case "":
            return '""'
        case ():
            return "empty"
        case Struct() if default == type(default)():
            return "all defaults"
    return str(default)


def documented(text: str, *columns: str) -> list[Row]:
    """The table of fields in a section, if there is one; only these columns."""
    found = [rows for rows in tables(text) if rows and next(iter(rows[0])) == "field"]
    assert len(found) <= 1
    return [{name: plain(row[name]) for name in columns} for rows in found for row in rows]


def by_tag(union: Any) -> dict[str, type[Struct]]:
    return {str(one.__struct_config__.tag): one for one in get_args(union)}


VERBS = by_tag(messages.AnyRequest)
REPLIES = by_tag(messages.AnyReply)
NESTED_TYPES = {
    in_words(inspect.type_info(one)): one
    for one in vars(messages).values()
    if isinstance(one, type)
    and issubclass(one, Struct)
    and one is not Struct
    and not issubclass(one, messages.Request | messages.Reply)
}


def only(rows: list[Row], *columns: str) -> list[Row]:
    return [{name: row[name] for name in columns} for row in rows]


class TestTheProtocolPage:
    def test_has_a_section_for_each_verb_and_no_other(self) -> None:
        assert set(REQUESTS) == {"Every request", *VERBS}

    def test_has_a_section_for_each_answer_and_no_other(self) -> None:
        assert set(ANSWERS) == {"Every answer", *REPLIES}

    def test_has_a_section_for_each_nested_value_and_no_other(self) -> None:
        assert set(NESTED) == set(NESTED_TYPES)

    @pytest.mark.parametrize("verb", VERBS)
    def test_has_the_fields_of_each_request_with_types_and_defaults(self, verb: str) -> None:
        columns = ("field", "type", "default")

        assert documented(REQUESTS[verb], *columns) == fields(VERBS[verb], without=messages.Request)

    @pytest.mark.parametrize("answer", REPLIES)
    def test_has_the_fields_of_each_answer_with_types(self, answer: str) -> None:
        columns = ("field", "type")
        expected = fields(REPLIES[answer], without=messages.Reply)

        assert documented(ANSWERS[answer], *columns) == only(expected, *columns)

    @pytest.mark.parametrize("value", NESTED_TYPES)
    def test_has_the_fields_of_each_nested_value_with_types(self, value: str) -> None:
        columns = ("field", "type")
        expected = fields(NESTED_TYPES[value])

        assert documented(NESTED[value], *columns) == only(expected, *columns)
        is_array = NESTED_TYPES[value].__struct_config__.array_like
        assert ("An array" in NESTED[value]) == is_array

    def test_has_what_every_request_and_every_answer_repeats(self) -> None:
        tag = {"field": "verb", "type": "text", "default": "-"}
        assert documented(REQUESTS["Every request"], "field", "type", "default") == [
            tag,
            *fields(messages.Request),
        ]
        assert documented(ANSWERS["Every answer"], "field", "type") == [
            {"field": "answer", "type": "text"},
            *only(fields(messages.Reply), "field", "type"),
        ]

    def test_lists_each_verb_once_with_answers_that_exist(self) -> None:
        rows = table(PARTS["Verbs"], "verb")
        answers = {answer for row in rows for answer in row["answers"].split()}

        assert sorted(row["verb"] for row in rows) == sorted(VERBS)
        assert answers | {"MALFORMED", "STORAGE_FULL"} == set(REPLIES)

    def test_has_every_limit_with_its_value(self) -> None:
        expected = {
            name: value
            for name, value in vars(limits).items()
            if name.isupper() and name not in ("KIB", "MIB", "GIB")
        }

        rows = table(PARTS["Limits"], "limit")

        shown = {plain(row["limit"]): int(row["value"].replace(",", "")) for row in rows}
        assert shown == expected

    def test_has_the_retry_policy_as_it_is(self) -> None:
        rows = table(PARTS["Asking again"], "our client")

        shown = {plain(row["our client"]): float(row["default"]) for row in rows}
        assert shown == msgspec.structs.asdict(RetryPolicy())

    def test_has_each_rule_once_in_order(self) -> None:
        numbers = re.findall(r"(?m)^(\d+)\. \*\*R(\d+)\*\* ", PARTS["Rules"])

        assert numbers == [(str(n), str(n)) for n in range(1, 24)]

    def test_names_the_columns_of_a_batch(self) -> None:
        columns = [plain(row["column"]) for row in table(PARTS["The batch"], "column")]

        assert columns == [field.name for field in msgspec.structs.fields(Batch)]

    def test_gives_the_right_checksum_to_compare_with(self) -> None:
        assert f"`{crc32(b'123456789'):08x}`" in PROTOCOL


LINES = by_tag(history.AnyLine)


def names(struct: type[Struct], *, without: type[Struct] = Struct) -> list[str]:
    """The fields of a type, in their order."""
    common = {field.name for field in msgspec.structs.fields(without)}
    return [f.name for f in msgspec.structs.fields(struct) if f.name not in common]


class TestTheHistoryPage:
    def test_has_the_fields_of_each_line_in_their_order(self) -> None:
        shown = {row["line"]: row["fields"] for row in table(HISTORY, "line")}

        assert shown == {
            f"`{tag}`": " ".join(f"`{name}`" for name in names(line, without=history.Line))
            for tag, line in LINES.items()
        }

    def test_says_what_each_line_means_once(self) -> None:
        cells = [row["type"] for rows in tables(HISTORY) for row in rows if "type" in row]
        named = re.findall(r"`(\w+)`", " ".join(cells))

        assert sorted([*named, "invoke"]) == sorted(LINES)

    def test_says_what_every_line_has(self) -> None:
        (sentence,) = re.findall(r"(?s)Every line has (.*?)\. ", HISTORY)

        assert re.findall(r"`(\w+)`", sentence) == ["type", *names(history.Line)]

    def test_says_in_which_order_a_message_stands_in_its_array(self) -> None:
        (sentence,) = re.findall(r"`messages` is an array: (.*?)\.\n", HISTORY)

        assert re.findall(r"`(\w+)`", sentence) == names(history.Seen)

    def test_has_an_example_that_is_read_and_written_the_same(self) -> None:
        (example,) = re.findall(r"(?ms)^```json\n(.*?)^```$", HISTORY)

        for line in example.encode().splitlines(keepends=True):
            assert history.encode_line(history.decode_line(line)) == line


# The example in hex.


def frames_of(block: str) -> list[bytes]:
    """Frames of a hex block; what stands behind `;` is for people."""
    frames = [re.sub(r";.*", "", part) for part in re.split(r"(?m)^frame \d+$", block)]
    assert not frames[0].strip(), "a block begins with `frame 1`"
    return [bytes.fromhex(frame) for frame in frames[1:]]


HEX = dict(re.findall(r"(?ms)^```hex (\S+)\n(.*?)^```$", PROTOCOL))


def the_proxy_of_the_example() -> MemoryProxy:
    """A proxy to which publisher and subscriber have said hello, and one has subscribed."""
    answer, _ = decode_reply(frames_of(HEX["MESSAGE"]))
    assert isinstance(answer, messages.MessageBatches)
    proxy = MemoryProxy(replace(EMPTY, store_id="9b1c7e22d04f5a36"), boot=answer.boot)
    proxy.now_ns = answer.batches[0].timestamp_ns
    proxy.ask(a_hello("publisher", "sensor-1"))
    proxy.ask(a_hello("subscriber", "display-1"))
    subscribed = sub_ack(proxy.ask(a_sub(topic="topic1", client="display-1")))
    assert f"log `{subscribed.log}`" in PARTS["An example in hex"]
    return proxy


class TestTheExampleInHex:
    def test_has_a_put_and_a_get_with_their_answers(self) -> None:
        assert list(HEX) == ["PUT", "ACK", "GET", "MESSAGE"]

    @pytest.mark.parametrize("verb", ["PUT", "GET"])
    def test_has_requests_that_are_read_and_written_the_same(self, verb: str) -> None:
        frames = frames_of(HEX[verb])

        request, body = decode_request(frames)

        assert type(request).__struct_config__.tag == verb
        assert encode_request(request, body or None) == frames

    @pytest.mark.parametrize("answer", ["ACK", "MESSAGE"])
    def test_has_answers_that_are_read_and_written_the_same(self, answer: str) -> None:
        frames = frames_of(HEX[answer])

        reply, body = decode_reply(frames)

        assert type(reply).__struct_config__.tag == answer
        assert encode_reply(reply, body or None) == frames

    def test_is_what_the_broker_answers(self) -> None:
        proxy = the_proxy_of_the_example()

        assert proxy.frames(frames_of(HEX["PUT"])) == frames_of(HEX["ACK"])
        assert proxy.frames(frames_of(HEX["GET"])) == frames_of(HEX["MESSAGE"])

    def test_carries_the_two_messages_that_the_text_names(self) -> None:
        reply, body = decode_reply(frames_of(HEX["MESSAGE"]))
        assert isinstance(reply, messages.MessageBatches)
        (header,) = reply.batches

        assert decode_batch(body, header.count).payloads == [b"hello_1", b"hello_2"]
        assert header.crc == crc32(body)
        assert f"witness {header.timestamp_ns}" in PARTS["An example in hex"]
        assert f"{header.body_bytes} bytes of body" in PARTS["An example in hex"]

    @pytest.mark.parametrize("name", HEX)
    def test_says_beside_the_bytes_what_they_mean(self, name: str) -> None:
        header = re.split(r"(?m)^frame \d+$", HEX[name])[2]
        entries = re.findall(r"(?m)^([0-9a-f ]+); (\w+): (.*)\n((?:[0-9a-f ]+\n)*)", header)

        for first, key, value, more in entries:
            pair = msgspec.msgpack.decode(b"\x92" + bytes.fromhex(first + more))
            assert pair == [key, json.loads(value)]

        assert {key for _, key, _, _ in entries} == set(
            msgspec.msgpack.decode(frames_of(HEX[name])[1])
        )


# The push tree.

TREE = sections(PARTS["The push tree"], "###")
TREE_TYPES = {
    str(one.__struct_config__.tag): one for one in (Interest, Node, InterestAck, Loop, NodeReport)
}


UNSTORED = sections(PARTS["Levels of service"], "###")["Messages at QoS 0"]


class TestMessagesAtLevel0:
    @pytest.mark.parametrize(
        ("column", "struct"), [("an offer", Offer), ("a push", PushedUnstored)]
    )
    def test_have_the_fields_of_their_headers(self, column: str, struct: type[Struct]) -> None:
        rows = table(UNSTORED, f"of {column}")

        shown = [(plain(row[f"of {column}"]), row["type"]) for row in rows]
        assert shown == [("push", "text"), *((f["field"], f["type"]) for f in fields(struct))]
        assert f'"{struct.__struct_config__.tag}"' in rows[0]["meaning"]

    def test_are_asked_for_by_the_byte_that_is_named(self) -> None:
        assert f"`{LINKED.hex()}`" in UNSTORED


class TestThePushTree:
    def test_has_a_section_for_each_message_between_nodes(self) -> None:
        assert set(TREE) == {*TREE_TYPES, "Patterns", "Push frames"}

    @pytest.mark.parametrize("tag", TREE_TYPES)
    def test_has_the_fields_of_each_message(self, tag: str) -> None:
        struct = TREE_TYPES[tag]
        is_request = issubclass(struct, messages.Request)
        columns = ("field", "type", "default") if is_request else ("field", "type")
        expected = fields(struct, without=messages.Request if is_request else messages.Reply)

        assert documented(TREE[tag], *columns) == only(expected, *columns)

    def test_has_the_fields_of_a_push(self) -> None:
        tag = {"field": "push", "type": "text"}

        assert documented(TREE["Push frames"], "field", "type") == [
            tag,
            *only(fields(Pushed), "field", "type"),
        ]

    def test_has_every_kind_of_pattern(self) -> None:
        kinds = [plain(row["kind"]) for row in table(TREE["Patterns"], "kind")]

        assert all(Kinds().knows(Pattern(kind, "a")) for kind in kinds)
        assert not Kinds().knows(Pattern("sql", "a"))

    def test_shows_a_push_that_is_read_and_written_the_same(self) -> None:
        (block,) = re.findall(r"(?ms)^```hex-of-a-push\n(.*?)^```$", PROTOCOL)
        frames = frames_of(block)

        push = decode_push(frames)

        assert push.body is not None
        assert encode_push(push.topic, push.pushed, push.body) == frames
        assert decode_batch(push.body, push.pushed.batch.count).payloads == [b"hello_1", b"hello_2"]


# Names of tests, decisions, files.


def known_tests() -> Mapping[str, set[str]]:
    """Every test function, by the name of its class; "" has all of them, and the modules."""
    found: dict[str, set[str]] = {"": set()}
    for path in (ROOT / "tests").rglob("*.py"):
        found[""].add(path.stem)
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                methods = {one.name for one in node.body if isinstance(one, ast.FunctionDef)}
                found.setdefault(node.name, set()).update(methods)
            elif isinstance(node, ast.FunctionDef):
                found[""].add(node.name)
    return found


TESTS = known_tests()


def page_name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("page", PAGES, ids=page_name)
class TestAPage:
    def test_names_tests_that_exist(self, page: Path) -> None:
        named = re.findall(r"(?:\b(Test\w+)\.)?\b(test_\w+)", page.read_text(encoding="utf-8"))

        missing = [one for one in named if one[1] not in TESTS.get(one[0], ())]

        assert not missing

    def test_names_planted_faults_that_exist(self, page: Path) -> None:
        text = page.read_text(encoding="utf-8")

        lists = re.findall(r"planted faults? ((?:\"[^\"]+\"(?:, )?)+)", text)

        assert {name for names in lists for name in re.findall(r'"([^"]+)"', names)} <= set(FAULTS)

    def test_names_decisions_that_exist(self, page: Path) -> None:
        known = {path.name[:4] for path in (DOCS / "decisions").glob("*.md")}

        named = re.findall(r"decisions/(\d{4})", page.read_text(encoding="utf-8"))

        assert set(named) <= known

    def test_links_to_files_and_headings_that_exist(self, page: Path) -> None:
        text = page.read_text(encoding="utf-8")
        links = re.findall(r"\]\(([^)\s]+)\)", re.sub(r"(?s)```.*?```|`[^`]*`", "", text))

        for link in links:
            if re.match(r"https?://", link):
                continue
            file, _, heading = link.partition("#")
            target = (page.parent / file) if file else page
            assert target.exists(), link
            if heading:
                assert heading in anchors(target.read_text(encoding="utf-8")), link


def anchors(text: str) -> set[str]:
    """Headings as links name them."""
    headings = re.findall(r"(?m)^#+ (.+)$", text)
    return {re.sub(r"[^\w\- ]", "", heading).lower().replace(" ", "-") for heading in headings}


class TestThePageOfNumbers:
    PAGE = (DOCS / "decisions" / "0022-the-numbers.md").read_text(encoding="utf-8")

    def test_has_the_defaults_of_the_settings(self) -> None:
        for row in table(self.PAGE, "setting"):
            setting = BY_NAME[row["setting"].strip("`")]
            default = setting.default
            value = f"{default:,.6g}" if isinstance(default, float) else f"{default}"
            value = f"{default:,}" if isinstance(default, int) else value
            assert row["default"] == f"{value} {setting.unit}".strip(), setting.name

    def test_has_the_fixed_values(self) -> None:
        policy = RetryPolicy()
        values = {row["what"]: row["value"] for row in table(self.PAGE, "what")}

        assert f"{policy.pause_s:g} s, doubling to {policy.pause_s_max:g} s" in str(values)
        assert values["pause of a get that finds nothing"] == (
            f"{poll_pause_s(1) * 1000:g} ms, doubling to {poll_pause_s(99) * 1000:g} ms"
        )
        assert values["lease"] == f"none; {CLEAN_LEASE_MS // 1000} s for a clean session"
        assert values["`wait: delivered`"] == f"all, {DELIVERED_S:g} s"


class TestTheGuaranteesPage:
    def test_has_a_row_for_each_planted_fault(self) -> None:
        rows = table(GUARANTEES, "planted fault")

        assert [row["planted fault"] for row in rows] == list(FAULTS)

    def test_counts_the_planted_histories(self) -> None:
        assert f"{len(PLANTED)} planted damages" in GUARANTEES


class TestTheFeaturesPage:
    def test_has_each_row_of_the_first_seed_once(self) -> None:
        rows = re.findall(r"(?m)^\| (1\.\d+) \|", FEATURES)

        assert rows == [f"1.{number}" for number in range(1, 47)]

    @pytest.mark.parametrize(("seed", "last"), [(0, 23), (2, 20), (3, 12), (4, 25)])
    def test_has_each_row_of_the_other_seeds_once(self, seed: int, last: int) -> None:
        rows = re.findall(rf"(?m)^\| ({seed}\.\d+) \|", FEATURES)

        assert rows == [f"{seed}.{number}" for number in range(1, last + 1)]

    def test_has_each_hole_once(self) -> None:
        rows = re.findall(r"(?m)^\| (H\d+) \|", FEATURES)

        assert rows == [f"H{number}" for number in range(1, 31)]

    def test_shows_every_row_by_a_test_or_a_decision(self) -> None:
        rows = [row for rows in tables(FEATURES) for row in rows]

        bare = [row for row in rows if not re.search(r"test_\w+|decisions/\d{4}", row["shown by"])]

        assert not bare

    def test_names_only_rules_that_the_protocol_has(self) -> None:
        named = set(re.findall(r"\bR\d+\b", FEATURES))

        assert named <= set(re.findall(r"\*\*(R\d+)\*\*", PARTS["Rules"]))


class TestTheGlossary:
    def test_has_only_words_that_the_code_uses(self) -> None:
        source = " ".join(
            path.read_text(encoding="utf-8").lower()
            for room in ("common", "proxy", "publisher", "relay", "subscriber")
            for path in sorted((ROOT / room).glob("*.py"))
        )
        spoken = f" {' '.join(re.findall(r'[a-z0-9]+', source))} "

        words = [row["word"] for row in table(GLOSSARY, "word")]
        assert [word for word in words if f" {word} " not in spoken] == []

    def test_has_each_word_once_in_the_order_of_the_alphabet(self) -> None:
        words = [row["word"].lower() for row in table(GLOSSARY, "word")]

        assert words == sorted(words)
        assert not [word for word, count in Counter(words).items() if count > 1]

    def test_names_files_that_exist(self) -> None:
        named = re.findall(r"`((?:common|proxy|publisher|relay|subscriber)/\w+\.py)`", GLOSSARY)

        assert named
        assert [file for file in named if not (ROOT / file).exists()] == []
