"""A YAML file gives plain data with line numbers, or one readable sentence."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from reliable_pubsub.common.core.errors import ConfigurationError
from reliable_pubsub.common.core.limits import STEP_FILE_BYTES_MAX
from reliable_pubsub.common.yaml_file import (
    YAML_DEPTH_MAX,
    load_yaml,
    parse_yaml,
    parse_yaml_bytes,
)

STEPS = """\
# a comment
steps:
  - topic: topic1
    message: one

  - topic: topic2
    message: |
      two
      lines
    batch:
      3
"""


def refusal_of(text: str) -> str:
    with pytest.raises(ConfigurationError) as caught:
        parse_yaml(text, "x.yaml")
    return str(caught.value)


def test_a_file_gives_the_data_that_safe_load_gives(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    path.write_text(STEPS)

    assert load_yaml(path).data == yaml.safe_load(STEPS)


def test_every_value_and_key_knows_its_line() -> None:
    document = parse_yaml(STEPS, "x.yaml")

    assert document.line_of(("steps", 0, "topic")) == 3
    assert document.line_of(("steps", 1)) == 6
    assert document.line_of(("steps", 1, "message")) == 7
    assert document.key_line_of(("steps", 1, "batch")) == 10
    assert document.line_of(("steps", 1, "batch")) == 11


def test_a_value_that_is_not_there_has_the_line_of_its_nearest_parent() -> None:
    document = parse_yaml(STEPS, "x.yaml")

    assert document.line_of(("steps", 1, "sleep_after")) == 6
    assert document.key_line_of(("steps", 7, "topic")) == 3
    assert document.line_of(("nothing",)) == 2
    assert parse_yaml("", "x.yaml").line_of(("steps",)) == 1


def test_an_empty_file_gives_nothing() -> None:
    assert parse_yaml("", "x.yaml").data is None
    assert parse_yaml("# only a comment\n", "x.yaml").data is None


def test_a_byte_order_mark_is_no_part_of_the_data() -> None:
    assert parse_yaml_bytes(b"\xef\xbb\xbfa: 1\n", "x.yaml").data == {"a": 1}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("a: b: c", "x.yaml, line 1, column 5: mapping values are not allowed here"),
        ("ok: 1\n\tbad: 2", "x.yaml, line 2, column 1: found character '\\t'"),
        ("a: [1, 2\nb: 3", "(while parsing a flow sequence that begins on line 1)"),
        ("a: 1\nb: 2\na: 3", "x.yaml, line 3, column 1: key 'a' is given twice, first on line 1"),
        ("a: 1\n---\nb: 2", "x.yaml, line 2, column 1: found another document"),
        ("a: &x 1", "x.yaml, line 1, column 4: found the anchor &x"),
        ("a: 1\nb: *x", "x.yaml, line 2, column 4: found the alias *x"),
        ("a: !!python/object/apply:os.system [ls]", "found the tag"),
        ("a: !!str 5", "quote text that looks like something else"),
        ("on: 1", "found on as a key, expected text; quote it"),
        ("? [a]\n: 1", "found a list or a mapping as a key"),
        ("a: 2001-99-99", "x.yaml, line 1, column 4: cannot be understood: month must be"),
        ('a: "\\UFFFFFFFF"', "x.yaml, line 1, column 7: cannot be understood"),
        ('a: "\\ud800"', "x.yaml, line 1, column 4: found half of a surrogate pair"),
        ("a: 1\nb: \x00", "x.yaml, line 2, column 4: character '\\x00' is not allowed"),
        ("a: " + "1" * 200, "a number or date of more than 100 characters"),
    ],
)
def test_what_is_not_our_yaml_is_refused_with_its_place(text: str, told: str) -> None:
    assert told in refusal_of(text)


@pytest.mark.parametrize(
    "number",
    ["010", "-010", "00", "0o17", "0x1F", "0b11", "1_000", "1:30", "190:20:30.15", "1_0.5", "01.5",
     "08", "1e3", "12E4567"],
)  # fmt: skip
def test_a_number_that_is_not_written_in_decimal_digits_is_refused_unless_quoted(
    number: str,
) -> None:
    told = refusal_of(f"a: 1\nb: [{number}]")

    assert f"x.yaml, line 2, column 5: found {number}, which" in told
    assert "found 010, which" in refusal_of(f"010: {number}")
    assert parse_yaml(f"b: '{number}'", "x.yaml").data == {"b": number}


def test_a_number_in_decimal_digits_and_text_that_only_begins_like_one_are_read() -> None:
    text = "[0, -3, +5, 1.5, .5, 1., 1.5e+3, .inf, 12:75, 1.2.3, 0-1, 1e, v010]"

    expected = [0, -3, 5, 1.5, 0.5, 1.0, 1500.0, float("inf")]
    assert parse_yaml(text, "x.yaml").data == [*expected, "12:75", "1.2.3", "0-1", "1e", "v010"]


def test_a_merge_key_is_an_ordinary_key() -> None:
    assert parse_yaml("<<: {a: 1}", "x.yaml").data == {"<<": {"a": 1}}


@pytest.mark.parametrize("opening", ["[", "{", "- "])
def test_levels_are_bounded(opening: str) -> None:
    assert f"more than {YAML_DEPTH_MAX} levels" in refusal_of(opening * 100_000)


def test_as_many_levels_as_allowed_are_read() -> None:
    nested = "[" * YAML_DEPTH_MAX + "]" * YAML_DEPTH_MAX

    assert parse_yaml(nested, "x.yaml").data == yaml.safe_load(nested)
    assert "levels" in refusal_of(f"[{nested}]")


def test_a_file_may_be_as_large_as_the_limit_and_not_larger(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"

    path.write_bytes(b"#" * STEP_FILE_BYTES_MAX)
    assert load_yaml(path).data is None

    path.write_bytes(b"#" * (STEP_FILE_BYTES_MAX + 1))
    with pytest.raises(ConfigurationError, match="larger than 1,048,576 bytes"):
        load_yaml(path)


def test_a_file_that_cannot_be_read_is_reported_in_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"x\.yaml: cannot be read: No such file"):
        load_yaml(tmp_path / "x.yaml")
    with pytest.raises(ConfigurationError, match="cannot be read: Is a directory"):
        load_yaml(tmp_path)
    with pytest.raises(ConfigurationError, match=r"cannot be read: .*null"):
        load_yaml(Path("a\0b"))


def test_text_in_another_encoding_is_reported_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    path.write_bytes("a: 1\nb: é".encode("latin-1"))

    with pytest.raises(ConfigurationError, match=r"x\.yaml, line 2: is not UTF-8 text \(byte 0xe9"):
        load_yaml(path)


# Snippets that YAML gives a meaning to, so that chance finds more than "not UTF-8".
_PIECES = st.sampled_from(
    [*"[]{},:?-|>'\"#&*!%@`\n\t ~=<._+eE0:x", "\n  ", "- ", ": ", "? ", "---\n", "<<: ", "!!int ",
     "2001-01-01", "true", ".nan", "0x_", "0b_", "1:9", "\\U", "\\x", "&a", "*a", "ä", "%YAML 9"]
)  # fmt: skip


@settings(deadline=None)
@given(st.one_of(st.binary(), st.text().map(str.encode), st.lists(_PIECES).map(
    lambda pieces: "".join(pieces).encode()
)))  # fmt: skip
def test_any_bytes_give_data_or_a_configuration_error(content: bytes) -> None:
    try:
        document = parse_yaml_bytes(content, "x.yaml")
    except ConfigurationError:
        return
    assert all(line >= 1 for line in document.value_lines.values())


_WORDS = st.text().filter(lambda text: not text.strip("+-.")[:1].isdigit())  # no number of YAML 1.2
_PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | _WORDS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_WORDS, inner, max_size=4),
    max_leaves=12,
)


@settings(deadline=None)
@given(_PLAIN)
def test_what_yaml_writes_is_read_back(data: object) -> None:
    # The writer gives an anchor to an empty list or mapping that stands in two places.
    class Plainly(yaml.SafeDumper):
        def ignore_aliases(self, _: object) -> bool:
            return True

    text = yaml.dump(data, Dumper=Plainly, allow_unicode=True)
    try:
        expected = yaml.safe_load(text)
    except yaml.YAMLError:
        return
    assert parse_yaml(text, "x.yaml").data == expected
