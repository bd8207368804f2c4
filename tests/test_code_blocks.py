"""The code of the pages runs: each block in a test, and each command line is one that exists.

A block that no test can run has the reason above it, as a comment: `<!-- not run: ... -->`.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import click
import pytest
import yaml
from click.testing import CliRunner

from reliable_pubsub import Publisher, Subscriber
from reliable_pubsub.__main__ import main
from reliable_pubsub.common.core.errors import ConfigurationError
from reliable_pubsub.common.key_files import new_pair, read_clients
from reliable_pubsub.publisher.__main__ import main as publisher
from reliable_pubsub.subscriber.__main__ import main as subscriber
from reliable_pubsub.testing import MemoryBroker
from scripts import guarantee_tests, reference_pages

ROOT: Final = Path(__file__).parents[1]
DOCS: Final = ROOT / "docs"
GENERATED: Final = {guarantee_tests.PAGE, DOCS / "reference" / "keys.md"} | {
    reference_pages.FOLDER / name for name in reference_pages.PAGES
}
# Which tests run the blocks of a page.
RUN_BY: Final = {
    "README.md": ("tests/integration/test_readme.py", "tests/integration/test_installing.py"),
    "docs/how-to/back-up.md": ("tests/integration/test_restore.py",),
    "docs/how-to/pipeline.md": ("tests/pipeline/test_recipes.py",),
    "docs/how-to/testing.md": ("tests/lab/test_memory_broker.py",),
    "docs/internals/journal.md": ("tests/test_journal_page.py",),
    "docs/internals/protocol.md": ("tests/test_docs.py",),
    "docs/start/python.md": ("tests/integration/test_readme.py",),
    "docs/start/shell.md": ("tests/integration/test_shell_commands.py",),
    "docs/start/tutorial.md": ("tests/integration/test_tutorial.py",),
    "docs/teach/lab.md": ("tests/lab/test_scenario.py",),
}
# Pages whose blocks need a machine that no test has.
BLOCK: Final = re.compile(
    r"(?ms)(<!-- not run: [^\n]+ -->\n)?^```(?:python|sh|yaml|json)\n(.*?)^```$"
)
ANY_BLOCK: Final = re.compile(r"(?ms)^```\w*[^\n]*\n(.*?)^```$|^((?:    reliable-pubsub .*\n)+)")
COMMAND: Final = r"^(?:[\w -]+[$] +|.*[|] |) *reliable-pubsub "
PAGES: Final = [
    page for page in sorted({*DOCS.rglob("*.md"), ROOT / "README.md"}) if page not in GENERATED
]


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def block(page: str, kind: str, number: int = 0) -> str:
    text = (DOCS / page).read_text("utf-8")
    return str(re.findall(rf"(?ms)^```{kind}\n(.*?)^```$", text)[number])


@pytest.fixture
def broker() -> Iterator[MemoryBroker]:
    with MemoryBroker() as broker, broker.serving():
        yield broker


def examples() -> str:
    """Return the code of all examples, which have tests; indentation does not count."""
    files = [
        path for path in sorted((ROOT / "examples").iterdir()) if path.suffix in (".py", ".sh")
    ]
    return "".join(without_indentation(path.read_text("utf-8")) for path in files)


def without_indentation(text: str) -> str:
    return re.sub(r"(?m)^ +", "", text)


# Blocks that the tests below run, by their first line.
RUN_HERE: Final = {
    "docs/how-to/administration.md": ["from reliable_pubsub import Admin, Earliest"],
    "docs/how-to/console.md": ['console: {ids: ["again-*"]'],
    "docs/how-to/operating.md": ["rule_files: [configs/operating/alerts.yaml]"],
    "docs/how-to/replicas.md": ["from reliable_pubsub import Publisher, Subscriber"],
    "docs/how-to/security.md": ["# clients/rights.yaml", "sensor-1:"],
    "docs/start/command-line.md": ["steps:", "steps:"],
}


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_each_block_of_a_page_is_run_by_a_test_or_says_why_not(page: Path) -> None:
    name = name_of(page)
    found = [code for reason, code in BLOCK.findall(page.read_text("utf-8")) if not reason]
    here = list(RUN_HERE.get(name, ()))

    left = []
    for code in found:
        if here and code.startswith(here[0]):
            here.pop(0)
        elif without_indentation(code) not in examples():
            left.append(code)

    assert here == []
    assert not left or name in RUN_BY, left
    for test in RUN_BY.get(name, ()) if left else ():
        assert page.name in (ROOT / test).read_text("utf-8"), f"{test} does not read {name}"


def command_lines(text: str) -> Iterator[list[str]]:
    """Yield the words of each `reliable-pubsub` command in the blocks."""
    for whole, indented in ANY_BLOCK.findall(text):
        for line in re.sub(r"\\\n *", "", whole or indented).splitlines():
            words = shlex.shlex(line, posix=True, punctuation_chars="|&;<>")
            words.whitespace_split = True
            yield from commands_in(list(words) if re.search(COMMAND, line) else [])


def commands_in(words: list[str]) -> Iterator[list[str]]:
    """Yield the words after each `reliable-pubsub`, up to a pipe or the like."""
    for place, word in enumerate(words):
        if word == "reliable-pubsub":
            rest = words[place + 1 :]
            end = next((at for at, one in enumerate(rest) if one[0] in "|&;<>"), len(rest))
            yield [one for one in rest[:end] if one != "..."]


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_each_command_line_of_a_page_is_one_that_exists(page: Path) -> None:
    for words in command_lines(page.read_text("utf-8")):
        command: click.Command = main
        context = click.Context(main, info_name="reliable-pubsub")
        while isinstance(command, click.Group) and words and not words[0].startswith("-"):
            name = words.pop(0)
            try:
                found = command.get_command(context, name)
            except SystemExit:  # the jobs of the pipeline, without Spark
                break
            assert found is not None, f"{command.name} {name}"
            command, context = found, click.Context(found, context, name)
        else:
            command.make_parser(context).parse_args(args=words)


def test_the_actions_of_the_page_for_operators_run(broker: MemoryBroker) -> None:
    with Publisher("p") as put, Subscriber("display-1") as display:
        display.subscribe("news")
        put.put("news", b"x")
        display.get("news")

        exec(block("how-to/administration.md", "python"), {})

        assert display.get("news")[0].redelivered


def test_the_clients_of_replicas_run(broker: MemoryBroker) -> None:
    names: dict[str, Subscriber] = {}

    exec(block("how-to/replicas.md", "python"), names)

    assert str(names["worker"]).count("worker.unique-")


@pytest.mark.parametrize(
    ("page", "number", "clients"),
    [
        ("how-to/security.md", 0, ["sensor-1", "display-1", "operator", "relay-1"]),
        ("how-to/security.md", 1, ["sensor-1"]),
        ("how-to/console.md", 0, ["console"]),
    ],
)
def test_the_rights_of_a_page_can_be_read(
    page: str, number: int, clients: list[str], tmp_path: Path
) -> None:
    for client in clients:
        new_pair(tmp_path, client)
    rights = tmp_path / "rights.yaml"
    rights.write_text(block(page, "yaml", number), "utf-8")

    found = {one.name: one.rights for one in read_clients(tmp_path).values()}
    assert sorted(found) == sorted(clients)
    assert all((one is not None and one.put) or (one and one.get) for one in found.values())
    rights.write_text(f"{rights.read_text('utf-8')}  maximum: 1\n", "utf-8")
    with pytest.raises(ConfigurationError):
        read_clients(tmp_path)


@pytest.mark.parametrize(("number", "command"), [(0, publisher), (1, subscriber)])
def test_the_step_files_of_the_page_can_be_read(
    number: int, command: click.Command, tmp_path: Path
) -> None:
    (tmp_path / "lines.txt").write_text("a\nb\n")
    steps = tmp_path / "steps.yaml"
    steps.write_text(block("start/command-line.md", "yaml", number), "utf-8")

    shown = CliRunner().invoke(command, ["-f", str(steps), "-i", "x", "--dry-run"])

    assert shown.exit_code == 0, shown.output
    assert "topic1" in shown.output


def test_the_prometheus_of_the_page_for_operators_names_files_that_exist() -> None:
    configuration = yaml.safe_load(block("how-to/operating.md", "yaml"))

    assert [file for file in configuration["rule_files"] if not (ROOT / file).is_file()] == []
    dashboard = (ROOT / "configs" / "operating" / "alerts.yaml").read_text("utf-8")
    assert f'job="{configuration["scrape_configs"][0]["job_name"]}"' in dashboard
