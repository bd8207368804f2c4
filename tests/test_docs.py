"""The documents say what the code does: tables, limits, hex, names of tests and of decisions.

Tables and bytes of the protocol pages are written by `scripts/protocol_tables`; here is what keeps
them fresh, and what it cannot write. The bytes are tested in `tests/wire/test_golden.py`.
"""

from __future__ import annotations

import ast
import functools
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import get_args

import msgspec
import pytest

from reliable_pubsub.common.core.batch import Batch, crc32
from reliable_pubsub.common.core.patterns.matching import Kinds, Pattern
from reliable_pubsub.common.core.requests import AnyRequest
from reliable_pubsub.common.core.retry import RETRIES_MAX, RetryPolicy, poll_pause_s
from reliable_pubsub.common.core.settings import BY_NAME
from reliable_pubsub.common.core.start import parse_start
from reliable_pubsub.common.core.steps import DELIVERED_S
from reliable_pubsub.proxy.admin import main as admin
from reliable_pubsub.relay.core.interest_link import interest_digest
from reliable_pubsub.relay.core.unstored import LINKED
from reliable_pubsub.subscriber.core.subscribing import CLEAN_LEASE_MS
from scripts import guarantee_tests, protocol_tables
from scripts.simulator.faults import FAULTS
from tests.lab.planted import all_planted
from tests.test_architecture import RIDDLES
from tests.wire.vectors import CONTENT, DIALOGUES

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = sorted({*DOCS.rglob("*.md"), *ROOT.glob("*.md")})
PROTOCOL = (DOCS / "internals" / "protocol.md").read_text(encoding="utf-8")
PUSHING = (DOCS / "internals" / "protocol-push.md").read_text(encoding="utf-8")
FEATURES = (DOCS / "internals" / "features.md").read_text(encoding="utf-8")
GUARANTEES = (DOCS / "concepts" / "guarantees.md").read_text(encoding="utf-8")
RUNS = (DOCS / "internals" / "runs.md").read_text(encoding="utf-8")
GLOSSARY = (DOCS / "reference" / "glossary.md").read_text(encoding="utf-8")

TESTS = r"\.\./internals/guarantees-tests\.md"

Row = dict[str, str]


# Reading markdown.


def sections(text: str, marks: str) -> dict[str, str]:
    """The text below each heading of one level, up to the next of this level or above."""
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
PUSHING_PARTS = sections(PUSHING, "##")
ABOUT_REQUESTS = (
    PARTS["Requests"],
    PUSHING_PARTS["Requests of nodes"],
    PUSHING_PARTS["Requests for QoS 0"],
)
NESTED = {
    name: text
    for part in (PARTS["Nested values"], *PUSHING_PARTS.values())
    for name, text in sections(part, "###").items()
    if name in protocol_tables.NESTED or part is PARTS["Nested values"]
}


def verb_sections() -> dict[str, str]:
    """What is said of each verb itself, before its answers."""
    found = {name: text for part in ABOUT_REQUESTS for name, text in sections(part, "###").items()}
    known = {name: text.split("\n####")[0] for name, text in found.items()}
    return {name: text for name, text in known.items() if name == name.upper()}


def answer_sections() -> dict[str, str]:
    """What is said of each answer, below its verb or below the refusals."""
    found = sections(PARTS["Refusals"], "###")
    for part in ABOUT_REQUESTS:
        found |= sections(part, "####")
    return {name.removesuffix(", the answer"): text for name, text in found.items()}


VERB_SECTIONS = verb_sections()
ANSWER_SECTIONS = answer_sections()


def test_the_pages_use_plain_words() -> None:
    """And what else is read; Python: `test_architecture.py`. The changelog is of its time."""
    others = [p for room in ("configs", "console", "examples") for p in (ROOT / room).rglob("*.*")]
    others += [path for path in (ROOT / "scripts").iterdir() if path.is_file() and not path.suffix]
    others += [ROOT / "tests" / "wire" / "vectors.json"]
    texts = {
        path.name: re.sub(r"`[^`]*`", "", path.read_text(encoding="utf-8"))
        for path in (*PAGES, *others)
        if path.stem != "CHANGELOG" and path.suffix != ".pyc"
    }
    found = {name: RIDDLES.findall(text) for name, text in texts.items()}

    assert len(texts) > len(PAGES)
    assert {name: words for name, words in found.items() if words} == {}


class TestTheProtocolPages:
    @pytest.mark.parametrize("page", protocol_tables.PAGES, ids=lambda page: page.name)
    def test_are_as_the_types_and_the_vectors_say(self, page: Path) -> None:
        text = page.read_text(encoding="utf-8")

        assert protocol_tables.generated(text) == text, "stale: run scripts/protocol_tables"
        assert "| ? |" not in text, "a field without a meaning"

    def test_have_a_section_for_each_verb_once(self) -> None:
        assert sorted(VERB_SECTIONS) == sorted(protocol_tables.VERBS)

    def test_have_a_section_for_each_answer_once(self) -> None:
        assert sorted(ANSWER_SECTIONS) == sorted(protocol_tables.ANSWERS)

    def test_have_a_section_for_each_nested_value(self) -> None:
        for name, struct in protocol_tables.NESTED.items():
            assert ("An array" in NESTED[name]) == struct.__struct_config__.array_like
        assert NESTED.keys() == protocol_tables.NESTED.keys()

    def test_show_the_fields_of_every_message_that_has_some(self) -> None:
        """A table that is not there cannot be stale."""
        for found, types in (
            (VERB_SECTIONS, protocol_tables.VERBS),
            (ANSWER_SECTIONS, protocol_tables.ANSWERS),
            (NESTED, protocol_tables.NESTED),
        ):
            for name, text in found.items():
                assert ("| field |" in text) == bool(protocol_tables.fields(types[name])), name

    def test_list_each_verb_once_with_the_answers_of_the_table_beside_it(self) -> None:
        listed = {row["verb"]: set(row["answers"].split()) for row in table(PARTS["Verbs"], "verb")}
        rows = [row for rows in tables(PARTS["What to do with each answer"]) for row in rows]

        cells: dict[str, set[str]] = {}
        for row in rows:
            answer = next(iter(row.values()))
            for verb in row.keys() & listed.keys():
                if row[verb]:
                    cells.setdefault(verb, set()).add(answer)

        for answers in listed.values():
            answers |= {"MALFORMED", "STORAGE_FULL", "BUSY"}
        assert cells == listed
        assert listed.keys() == {one.__struct_config__.tag for one in get_args(AnyRequest)}

    def test_say_below_each_verb_which_answers_it_has(self) -> None:
        """The words come from the tables; `test_are_as_the_types_and_the_vectors_say`."""
        has_line = {v: protocol_tables.ANSWERS_BEGIN in text for v, text in VERB_SECTIONS.items()}

        assert [verb for verb, has in has_line.items() if not has] == ["INTEREST", "NODE"]

    def test_say_what_to_do_for_every_answer_that_a_dialogue_has(self) -> None:
        listed = {row["verb"]: row["answers"].split() for row in table(PARTS["Verbs"], "verb")}

        for step in (step for steps in DIALOGUES.values() for step in steps):
            answer = step.answer.header["answer"]
            assert answer in (*listed[step.request.header["verb"]], "MALFORMED")

    def test_explain_each_word_of_the_table_of_answers(self) -> None:
        text = PARTS["What to do with each answer"]
        words = {row["word"] for row in table(text, "word")}

        used = {
            cell
            for rows in tables(text)
            if "word" not in rows[0]
            for row in rows
            for cell in list(row.values())[1:]
        }

        assert used - {""} == words

    def test_have_the_retry_policy_as_it_is(self) -> None:
        rows = table(PARTS["Asking again"], "our client")

        shown = {plain(row["our client"]): float(row["default"]) for row in rows}
        assert shown == {**msgspec.structs.asdict(RetryPolicy()), "retries_max": RETRIES_MAX}

    def test_have_each_rule_once_in_order(self) -> None:
        numbers = re.findall(r"(?m)^(\d+)\. \*\*R(\d+)\*\* ", PARTS["Rules"])

        assert all(place == rule for place, rule in numbers)
        assert numbers == sorted(set(numbers), key=lambda one: int(one[0]))
        assert len(numbers) >= 23

    def test_name_the_columns_of_a_batch(self) -> None:
        columns = [plain(row["column"]) for row in table(PARTS["The batch"], "column")]

        assert columns == [field.name for field in msgspec.structs.fields(Batch)]

    def test_give_the_right_checksum_to_compare_with(self) -> None:
        assert f"`{crc32(b'123456789'):08x}`" in PROTOCOL

    def test_hold_the_smallest_client_as_it_is(self) -> None:
        """`test_the_smallest_client_runs_as_it_stands` runs the file."""
        file = (ROOT / "examples" / "smallest_client.py").read_text(encoding="utf-8")

        (shown,) = re.findall(r"(?ms)^```python\n(.*?)^```$", PARTS["The smallest client"])

        assert file.endswith(f"\n{shown}")
        assert len([line for line in shown.splitlines() if line]) <= 42

    def test_show_the_bytes_of_each_verb(self) -> None:
        shown = re.findall(r"(?m)^```hex (.*)$", PROTOCOL + PUSHING)
        verbs = {
            protocol_tables.named_vector(path)[1].header.get("verb")
            for path in shown
            if not path.startswith("batches")
        }

        assert verbs - {None} == protocol_tables.VERBS.keys()

    def test_say_what_the_vectors_have(self) -> None:
        parts = [row["part"] for row in table(PARTS["Vectors"], "part")]

        assert set(re.findall(r"`(\w+)`", " ".join(parts))) == CONTENT.keys() - {"about"}

    def test_name_the_byte_by_which_a_publisher_sees_its_link(self) -> None:
        assert f"`{LINKED.hex()}`" in PUSHING

    def test_name_the_digest_of_nothing(self) -> None:
        assert f"`{interest_digest((), ()).hex()}`" in PUSHING

    def test_have_every_kind_of_pattern(self) -> None:
        kinds = [plain(row["kind"]) for row in table(PUSHING_PARTS["Patterns"], "kind")]

        assert all(Kinds().knows(Pattern(kind, "a")) for kind in kinds)
        assert not Kinds().knows(Pattern("sql", "a"))


# Names of tests, decisions, files.


@functools.cache
def known_tests() -> Mapping[str, set[str]]:
    """Every test function, by the name of its class; "" has all of them, and the modules."""
    found: dict[str, set[str]] = {"": set()}
    for path in (*(ROOT / "tests").rglob("*.py"), *(ROOT / "examples").glob("test_*.py")):
        found[""].add(path.stem)
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                methods = {one.name for one in node.body if isinstance(one, ast.FunctionDef)}
                found.setdefault(node.name, set()).update(methods)
            elif isinstance(node, ast.FunctionDef):
                found[""].add(node.name)
    return found


def page_name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("page", PAGES, ids=page_name)
class TestAPage:
    def test_names_tests_that_exist(self, page: Path) -> None:
        text = re.sub(r"(?s)```.*?```", "", page.read_text(encoding="utf-8"))
        named = re.findall(r"(?:\b(Test\w+)\.)?\b(test_\w+)", text)

        missing = [one for one in named if one[1] not in known_tests().get(one[0], ())]

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


def test_the_starts_that_an_operator_is_shown_can_be_given() -> None:
    page = (DOCS / "how-to" / "administration.md").read_text(encoding="utf-8")
    helped = [one.help or "" for one in admin.commands.values()]

    starts = re.findall(r"'((?:offset|newest|time|age) \w[^']*)'", "".join((page, *helped)))

    assert {one.split()[0] for one in starts} == {"offset", "newest", "time", "age"}
    for start in starts:
        parse_start(start.replace(" N", " 3"))


def anchors(text: str) -> set[str]:
    """Headings as links name them."""
    headings = re.findall(r"(?m)^#+ (.+)$", text)
    return {re.sub(r"[^\w\- ]", "", heading).lower().replace(" ", "-") for heading in headings}


class TestTheReadme:
    PAGE = (ROOT / "README.md").read_text(encoding="utf-8")

    def test_has_at_most_800_words(self) -> None:
        assert len(self.PAGE.split()) <= 800

    def test_proves_each_problem_that_it_says_is_solved_by_a_test(self) -> None:
        rows = table(self.PAGE, "problem")

        assert len(rows) == 5
        assert [row["problem"] for row in rows if "test_" not in row["proof"]] == []

    def test_leads_to_every_page_by_the_page_of_pages(self) -> None:
        index = (DOCS / "README.md").read_text(encoding="utf-8")

        linked = set(re.findall(r"\]\(([\w/-]+\.md)\)", index)) | {"README.md"}

        assert "(docs/README.md)" in self.PAGE
        pages = {path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")}
        others = {page for page in pages if not page.startswith("decisions/")}
        # It belongs to the page of the guarantees.
        assert others - linked == {"internals/guarantees-tests.md"}


class TestTheDecisions:
    PAGES = sorted((DOCS / "decisions").glob("*.md"))

    def test_fill_at_most_25_pages_of_40_lines(self) -> None:
        lines = {page.name: len(page.read_text("utf-8").splitlines()) for page in self.PAGES}

        assert len(lines) <= 25
        assert {name: count for name, count in lines.items() if count > 40} == {}

    def test_say_their_status_first(self) -> None:
        heads = [page.read_text("utf-8").splitlines()[:3] for page in self.PAGES]

        assert [head for head in heads if not head[2].startswith("Status: ")] == []

    def test_have_a_number_each(self) -> None:
        numbers = Counter(page.name[:4] for page in self.PAGES)

        assert [number for number, pages in numbers.items() if pages > 1] == []


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
        rows = table(RUNS, "planted fault")

        assert [row["planted fault"] for row in rows] == list(FAULTS)

    def test_counts_the_planted_histories(self) -> None:
        assert f"{len(all_planted())} planted damages" in GUARANTEES

    def test_has_three_lines_per_guarantee_and_links_to_its_tests(self) -> None:
        bullets = re.findall(r"(?m)^- \*\*.*(?:\n  .*)*", GUARANTEES)

        assert len(bullets) >= 8
        for bullet in bullets:
            *_, last = lines = bullet.splitlines()
            assert len(lines) == 3, lines[0]
            assert re.fullmatch(rf"  \[Tests\]\({TESTS}#[\w-]+\)", last), lines[0]


class TestTheTestsOfTheGuarantees:
    PAGE = guarantee_tests.PAGE.read_text(encoding="utf-8")

    def test_exist_and_are_listed_as_generated(self) -> None:
        assert guarantee_tests.appendix() == self.PAGE, "stale: run scripts/protocol_tables"

    def test_are_each_linked_from_a_guarantee(self) -> None:
        linked = set(re.findall(r"guarantees-tests\.md#([\w-]+)", GUARANTEES))

        assert linked == set(anchors(self.PAGE)) - {"tests-of-the-guarantees"}


class TestTheFeaturesPage:
    def test_has_each_row_of_the_first_seed_once(self) -> None:
        rows = re.findall(r"(?m)^\| (1\.\d+) \|", FEATURES)

        assert rows == [f"1.{number}" for number in range(1, 47)]

    @pytest.mark.parametrize(("seed", "last"), [(0, 23), (2, 20), (3, 12), (4, 25), (5, 26)])
    def test_has_each_row_of_the_other_sources_once(self, seed: int, last: int) -> None:
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
            for path in sorted((ROOT / room).rglob("*.py"))
        )
        spoken = f" {' '.join(re.findall(r'[a-z0-9]+', source))} "

        words = [row["word"] for row in table(GLOSSARY, "word")]
        assert [word for word in words if f" {word} " not in spoken] == []

    def test_has_each_word_once_in_the_order_of_the_alphabet(self) -> None:
        words = [row["word"].lower() for row in table(GLOSSARY, "word")]

        assert words == sorted(words)
        assert not [word for word, count in Counter(words).items() if count > 1]

    def test_names_files_that_exist(self) -> None:
        named = re.findall(r"`((?:common|proxy|publisher|relay|subscriber)/[\w/]+\.py)`", GLOSSARY)

        assert named
        assert [file for file in named if not (ROOT / file).exists()] == []


def test_what_architecture_tells_to_read_first_can_be_read_in_an_afternoon() -> None:
    page = (DOCS / "internals" / "architecture.md").read_text(encoding="utf-8")
    rows = re.findall(r"(?m)^\| (`.+?`) \| ([0-9]+) \|", sections(page, "##")["To begin with"])
    assert len(rows) == 8
    total = 0
    for files, said in rows:
        first, *others = re.findall("`(.+?)`", files)
        paths = [ROOT / first, *(ROOT / Path(first).with_name(other) for other in others)]
        lines = sum(len(path.read_text(encoding="utf-8").splitlines()) for path in paths)
        assert abs(lines - int(said)) <= lines / 20, f"{files}: {lines} lines, the page says {said}"
        total += lines
    # Rules R29 to R38 took 60 lines of these files; the next one has to make room.
    assert total < 3_100


def is_in(path: Path, folders: set[str]) -> bool:
    file = path.relative_to(ROOT).as_posix()
    return any(file.startswith(f"{folder}/") for folder in folders)


def test_architecture_says_of_each_file_once_to_which_feature_it_belongs() -> None:
    page = (DOCS / "internals" / "architecture.md").read_text(encoding="utf-8")
    table = sections(page, "##")["Where a feature is"]
    folders = set(re.findall(r"`(\w+/[\w/]+)/`", table))
    cells = re.findall(r"`(\w+)`: ([^·|\n]+)", table)
    named = [(room, name) for room, names in cells for name in names.strip().split(", ")]
    rooms = {room for room, _ in named}
    files = [
        (room, path.stem if "core" in path.parts else f"*{path.stem}*")
        for room in rooms
        for path in (ROOT / room).rglob("*.py")
        if path.stem != "__init__" and not is_in(path, folders)
    ]

    assert rooms == {"common", "proxy", "publisher", "subscriber", "relay"}
    assert all(any((ROOT / folder).glob("*.py")) for folder in folders)
    assert sorted(named) == sorted(files)
