"""docs/internals/journal.md says what the lines of a journal hold."""

from __future__ import annotations

import re
from typing import Any, get_args

import msgspec
from msgspec import Struct

from reliable_pubsub.common.core import journal
from tests.test_docs import DOCS, table, tables

JOURNAL = (DOCS / "internals" / "journal.md").read_text(encoding="utf-8")


def by_tag(union: Any) -> dict[str, type[Struct]]:
    return {str(one.__struct_config__.tag): one for one in get_args(union)}


LINES = by_tag(journal.AnyLine)


def names(struct: type[Struct], *, without: type[Struct] = Struct) -> list[str]:
    """The fields of a type, in their order."""
    common = {field.name for field in msgspec.structs.fields(without)}
    return [f.name for f in msgspec.structs.fields(struct) if f.name not in common]


class TestTheJournalPage:
    def test_has_the_fields_of_each_line_in_their_order(self) -> None:
        shown = {row["line"]: row["fields"] for row in table(JOURNAL, "line")}

        assert shown == {
            f"`{tag}`": " ".join(f"`{name}`" for name in names(line, without=journal.Line))
            for tag, line in LINES.items()
        }

    def test_says_what_each_line_means_once(self) -> None:
        cells = [row["type"] for rows in tables(JOURNAL) for row in rows if "type" in row]
        named = re.findall(r"`(\w+)`", " ".join(cells))

        assert sorted([*named, "invoke"]) == sorted(LINES)

    def test_says_what_every_line_has(self) -> None:
        (sentence,) = re.findall(r"(?s)Every line has (.*?)\. ", JOURNAL)

        assert re.findall(r"`(\w+)`", sentence) == ["type", *names(journal.Line)]

    def test_says_in_which_order_a_message_stands_in_its_array(self) -> None:
        (sentence,) = re.findall(r"`messages` is an array: (.*?)\.\n", JOURNAL)

        assert re.findall(r"`(\w+)`", sentence) == names(journal.Seen)

    def test_has_an_example_that_is_read_and_written_the_same(self) -> None:
        (example,) = re.findall(r"(?ms)^```json\n(.*?)^```$", JOURNAL)

        for line in example.encode().splitlines(keepends=True):
            assert journal.encode_line(journal.decode_line(line)) == line
