"""The house rules, as tests: rooms, core files, imports, sizes.

A rule is a function from a file's syntax tree to what is wrong in it. The last tests break each
rule once, so that a rule which finds nothing is known to be able to find something.
"""

from __future__ import annotations

import ast
import re
import tokenize
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TESTS = ROOT / "tests"
PACKAGE = "reliable_pubsub"
FUNCTION_LINES_MAX = 70  # with its docstring; the rule of TigerStyle
LONG_FUNCTIONS = {("proxy/server.py", "__init__")}  # make this list shorter

# What each room may import besides itself. Dependencies go down only.
ROOMS: dict[str, frozenset[str]] = {
    "common": frozenset(),
    # Interest and push frames: what every node of the push tree has, whatever else it is.
    "relay": frozenset({"common"}),
    "proxy": frozenset({"common", "relay"}),
    "publisher": frozenset({"common", "relay"}),
    "subscriber": frozenset({"common", "relay"}),
    # A client like any other, with all that clients can ask.
    "console": frozenset({"common", "relay", "publisher", "subscriber"}),
    # It puts faulty parts in the place of sound ones, so it must know them.
    "lab": frozenset({"common", "relay", "proxy", "publisher", "subscriber"}),
    # Its audit is the lab's checker over what Spark has read.
    "pipeline": frozenset({"common", "publisher", "subscriber", "lab"}),
}

# Folders of the proxy in which every file is core, and what each imports besides `proxy/core`.
OTHER_FEATURES: dict[str, frozenset[str]] = {
    "access": frozenset({"groups", "transactions", "status"}),  # what quotas count and rights hide
    "dead_letters": frozenset({"groups"}),
    "groups": frozenset({"dead_letters"}),
    "operators": frozenset({"groups", "patterns", "transactions"}),  # what they end
    "patterns": frozenset({"qos0"}),  # FETCH reads rings
    "push": frozenset({"access"}),
    "qos0": frozenset({"patterns", "push"}),  # who listens
    "status": frozenset({"access", "groups", "operators", "patterns", "qos0", "transactions"}),
    "transactions": frozenset(),
}


def is_core(file: Path) -> bool:
    room, *folders = file.relative_to(ROOT).parts
    is_feature = room == "proxy" and (folders[0] in OTHER_FEATURES or folders == ["features.py"])
    return "core" in folders or is_feature


# Values in, values out: no socket, clock, file, thread or chance.
CORE_FILES = [
    file.relative_to(ROOT).as_posix()
    for room in ROOMS
    for file in sorted((ROOT / room).rglob("*.py"))
    if is_core(file)
]
WORLD = frozenset(
    {"zmq", "socket", "select", "signal", "sys", "os", "io", "fcntl", "sqlite3", "psycopg"}
    | {"yaml"}
    | {"pathlib", "shutil", "tempfile", "click", "rich"}
    | {"time", "random", "secrets", "uuid"}
    | {"threading", "queue", "asyncio", "concurrent", "multiprocessing", "subprocess"}
)
# The only core file with a lock. All of msgspec that describes types is called there.
SCHEMAS = "common/core/schemas.py"
CLOCKS = frozenset({"now", "today", "utcnow"})  # datetime is arithmetic but for these
# "Behind" for after, and people where processes act.
RIDDLES = re.compile(
    r"\b(?:whoever|nobody|somebody|anybody|everybody|anew|behind)\b", re.IGNORECASE
)
# Phrases that code does not use; in tools and tests things also continue, and must be.
PHRASES = re.compile(r"\b(?:for\s+ever|of\s+ours|bec[ao]mes?\s+of)\b")
TOOL_PHRASES = re.compile(r"\b(?:(?:goes|go|went)\s+on|(?:is|are|was|were)\s+to\s+be)\b")
TOOLS = frozenset({"lab", "scripts", "tests"})
WORDS_OF_A_NAME = re.compile(r"[A-Z]?[a-z]+|[A-Z]+")
HANGING_S = 600  # of a process that must hang
# One thing in two kinds: a program imports it from `reliable_pubsub` or from `reliable_pubsub.aio`.
TWINS: dict[str, str] = {
    "Publisher": "the client that blocks, and that of asyncio",
    "Stream": "of the publisher that blocks, and of that of asyncio",
    "Subscriber": "the client that blocks, and that of asyncio",
    "Ticket": "of a stream that blocks, and of one of asyncio",
    "Transaction": "`with publisher.transaction()`, and `async with`",
}
# Lines of Python by folder. Lower one freely; raise one only with the reason beside it.
LINES_MAX: dict[str, int] = {
    "common": 18_640,  # backups in series, object stores (from `pipeline`), dates of keys
    "console": 2_470,  # the history of the last hours
    "lab": 17_720,  # crash points by system calls, and grading of any service
    "pipeline": 6_770,
    "proxy": 17_320,  # backups in a series; parts, hooks and tables of features
    "publisher": 5_090,  # a folder for each feature, and the registry
    "relay": 3_660,
    "reliable_pubsub": 300,
    "scripts": 17_250,  # with the reference, the benchmarks by version and the site, 470 lines
    "subscriber": 8_990,  # the registry of features, and calls by feature
    "tests": 72_700,  # the examples, notebooks, tutorial, how-to pages and the site
}
VECTORS = "tests.wire.vectors"  # data, which a tool writes into the pages
WAITING = frozenset({"zmq", "time", "socket", "threading", "subprocess", "multiprocessing"})

ROOM_FILES = [f for room in ROOMS for f in sorted((ROOT / room).rglob("*.py"))]
# The lists of features, and what knows them all, are no part of it.
CORE_OF_CLIENTS = [
    file
    for room in ("publisher", "subscriber")
    for folder in (room, f"{room}/core")
    for file in sorted((ROOT / folder).glob("*.py"))
    if file.name not in ("features.py", "aio.py")
]
SCRIPT_FILES = sorted((ROOT / "scripts").glob("*.py"))
DOOR_FILES = sorted((ROOT / PACKAGE).glob("*.py"))
TEST_FILES = [
    f
    for d in ("tests", "scripts/simulator", "scripts/fuzzer")
    for f in sorted((ROOT / d).rglob("*.py"))
]
ALL_FILES = [*ROOM_FILES, *SCRIPT_FILES, *DOOR_FILES, *TEST_FILES]

Rule = Callable[[ast.Module, str], Iterator[str]]


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


@cache
def nodes_of(tree: ast.Module) -> list[ast.AST]:
    return list(ast.walk(tree))


@cache
def modules(tree: ast.AST, *, at_run_time: bool = False) -> list[tuple[int, int, str]]:
    """Every import, as (line, leading dots, module); without those only for types, if asked."""
    return list(_modules(tree, at_run_time=at_run_time))


def _modules(tree: ast.AST, *, at_run_time: bool) -> Iterator[tuple[int, int, str]]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, 0, alias.name
        elif isinstance(node, ast.ImportFrom):
            yield node.lineno, node.level, node.module or ""
            if not node.module or node.module == PACKAGE:
                for alias in node.names:
                    yield node.lineno, node.level, f"{node.module or ''}.{alias.name}".strip(".")
        elif not isinstance(node, ast.expr) and not (at_run_time and is_for_types(node)):
            yield from _modules(node, at_run_time=at_run_time)


def is_for_types(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"


def called(call: ast.Call) -> str:
    """The last word of what is called: to write out every call would take seconds."""
    match call.func:
        case ast.Attribute(attr=name) | ast.Name(id=name):
            return name
    return ""


def names_given(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Every name that is given here, with its line."""
    for node in nodes_of(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield name, node.lineno
            case ast.ClassDef(name=name) | ast.arg(arg=name):
                yield name, node.lineno
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                yield name, node.lineno


# The rules.


def rooms_import_only_downwards(tree: ast.Module, file: str) -> Iterator[str]:
    room = file.split("/")[0]
    for line, dots, module in modules(tree):
        parts = module.split(".")
        if not dots and parts[0] == PACKAGE and len(parts) > 1:
            other = parts[1]
            if other in ROOMS and other != room and other not in ROOMS[room]:
                yield f"{file}:{line}: {room} may not import {other}"


def inside_a_room_imports_are_relative_and_across_rooms_absolute(
    tree: ast.Module, file: str
) -> Iterator[str]:
    room = file.split("/")[0]
    for line, dots, module in modules(tree):
        if not dots and f"{module}.".startswith(f"{PACKAGE}.{room}."):
            yield f"{file}:{line}: inside {room} write `from .{module.split('.')[-1]} import ...`"
        if dots > file.count("/"):
            yield f"{file}:{line}: across rooms write `from {PACKAGE}. ...`"


def no_room_is_imported_under_a_second_name(tree: ast.Module, file: str) -> Iterator[str]:
    for line, dots, module in modules(tree):
        if not dots and module.split(".")[0] in ROOMS:
            yield f"{file}:{line}: `{module}` would be a second copy of {PACKAGE}.{module}"


def core_files_touch_nothing(tree: ast.Module, file: str) -> Iterator[str]:
    for line, dots, module in modules(tree, at_run_time=True):
        if not dots and module.split(".")[0] in WORLD and (file, module) != (SCHEMAS, "threading"):
            yield f"{file}:{line}: a core file imports {module}"
    for node in nodes_of(tree):
        called = node.func if isinstance(node, ast.Call) else None
        if isinstance(called, ast.Name) and called.id in ("open", "input", "print"):
            yield f"{file}:{called.lineno}: a core file calls {called.id}"
        if isinstance(called, ast.Attribute) and called.attr in CLOCKS:
            yield f"{file}:{called.lineno}: a core file looks at a clock: {called.attr}"


def core_files_import_only_core_files(tree: ast.Module, file: str) -> Iterator[str]:
    here = file.split("/")[:-1]
    for line, dots, module in modules(tree, at_run_time=True):
        if dots and module:
            target = "/".join([*here[: len(here) + 1 - dots], *module.split(".")[:2]])
        elif module.startswith(f"{PACKAGE}.") and module.count(".") > 1:
            target = "/".join(module.split(".")[1:4])
        else:
            continue
        if not is_core(ROOT / f"{target}.py") and not is_core(ROOT / target / "__init__.py"):
            yield f"{file}:{line}: a core file imports {target}.py, which is shell"


def the_core_of_a_client_imports_no_feature(tree: ast.Module, file: str) -> Iterator[str]:
    """A client keeps the promise with the folders of its features deleted."""
    room, *folders, _ = file.split("/")
    for line, dots, module in modules(tree):
        own = module.removeprefix(f"{PACKAGE}.{room}.").split(".")[0]
        is_own = dots == len(folders) + 1 or (not dots and module.startswith(f"{PACKAGE}.{room}"))
        if (is_own and (ROOT / room / own).is_dir() and own != "core") or dots > len(folders) + 1:
            yield f"{file}:{line}: the core of a {room} imports {module}"


def features_of_a_proxy_import_only_what_is_named(tree: ast.Module, file: str) -> Iterator[str]:
    """A proxy keeps the promise with every feature folder deleted, so its core imports none."""
    folder = file.split("/")[1]
    for line, dots, module in modules(tree):
        other = module.split(".")[0]
        if dots > 1 and (folder == "core" or other not in {"core", *OTHER_FEATURES[folder]}):
            yield f"{file}:{line}: proxy/{folder} imports proxy/{other}"


def types_are_described_by_one_thread_at_a_time(tree: ast.Module, file: str) -> Iterator[str]:
    """Otherwise threads that create their first clients together end the process with SIGSEGV."""
    for node in nodes_of(tree):
        if file == SCHEMAS or not isinstance(node, ast.Call):
            continue
        function = ast.unparse(node.func)
        describes = re.fullmatch(r"(msgspec\.)?((json|msgpack)\.Decoder|Decoder)", function)
        reads = function.endswith("decode") and any(one.arg == "type" for one in node.keywords)
        if describes or reads or function.endswith(("msgspec.convert", "type_info")):
            yield f"{file}:{node.lineno}: call {function} through {SCHEMAS}"


def functions_are_short(tree: ast.Module, file: str) -> Iterator[str]:
    for node in nodes_of(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert node.end_lineno is not None
            lines = node.end_lineno - node.lineno + 1
            if lines > FUNCTION_LINES_MAX and (file, node.name) not in LONG_FUNCTIONS:
                yield f"{file}:{node.lineno}: {node.name} has {lines} lines"


def tools_import_no_tests(tree: ast.Module, file: str) -> Iterator[str]:
    for line, dots, module in modules(tree):
        if not dots and module.split(".")[0] == "tests" and module != VECTORS:
            yield f"{file}:{line}: imports {module}; what both use belongs to lab/rig"


def texts_and_names_use_plain_words(tree: ast.Module, file: str) -> Iterator[str]:
    """Names, docstrings, comments and texts for users."""
    rules = [RIDDLES, PHRASES, *([TOOL_PHRASES] if file.split("/")[0] in TOOLS else [])]
    texts = [(line, " ".join(WORDS_OF_A_NAME.findall(name))) for name, line in names_given(tree)]
    texts += [
        (node.lineno, node.value)
        for node in nodes_of(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]
    path = ROOT / file  # a tree has no comments
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    if any(rule.search(text) for rule in rules):
        with path.open("rb") as source:
            tokens = tokenize.tokenize(source.readline)
            texts += [(t.start[0], t.string) for t in tokens if t.type == tokenize.COMMENT]
    for line, text in texts:
        for word in (word for rule in rules for word in rule.findall(text)):
            yield f"{file}:{line}: {word!r}; use the terms of docs/reference/glossary.md"


def no_test_waits(tree: ast.Module, file: str) -> Iterator[str]:
    for line, dots, module in modules(tree):
        if not dots and module.split(".")[0] in WAITING:
            yield f"{file}:{line}: imports {module}; time and chance are arguments"


def no_test_sleeps_a_fixed_time(tree: ast.Module, file: str) -> Iterator[str]:
    """It would be too short on some machine; a moment that is drawn is no wait for anything."""
    for node in nodes_of(tree):
        if (
            isinstance(node, ast.Call)
            and called(node) == "sleep"
            and ast.unparse(node.func) in ("time.sleep", "sleep")
        ):
            (seconds,) = node.args or (ast.Constant(None),)
            if isinstance(seconds, ast.Constant) and seconds.value != HANGING_S:
                yield f"{file}:{node.lineno}: sleeps; wait for a condition (`eventually`)"


def nothing_outlives_its_test(tree: ast.Module, file: str) -> Iterator[str]:
    """A context that a failed test leaves to the garbage collector blocks whichever test runs then;
    a process that was sent SIGSTOP continues for a moment.
    """
    for node in nodes_of(tree):
        if not isinstance(node, ast.Call):
            continue
        if called(node) == "Context" and ast.unparse(node) == "zmq.Context()":
            yield f"{file}:{node.lineno}: opens a context; use `zmq_context` of the harness"
        elif called(node) == "signal" and ast.unparse(node).endswith("signal(signal.SIGSTOP)"):
            yield f"{file}:{node.lineno}: does not wait for the stop; use `pause`"


def conversations_catch_only_our_errors(tree: ast.Module, file: str) -> Iterator[str]:
    """One that was left by another exception is collected later, and must do nothing then."""
    for function in nodes_of(tree):
        is_conversation = isinstance(function, ast.FunctionDef) and "Conversation[" in ast.unparse(
            function.returns or ast.Constant(None)
        )
        for node in ast.walk(function) if is_conversation else ():
            if isinstance(node, ast.Try) and node.finalbody:
                yield f"{file}:{node.lineno}: a conversation has a `finally`"
            elif isinstance(node, ast.ExceptHandler):
                caught = ast.unparse(node.type) if node.type else "BaseException"
                if caught in ("BaseException", "Exception", "GeneratorExit"):
                    yield f"{file}:{node.lineno}: a conversation catches {caught}"


RULES: list[tuple[Rule, list[Path]]] = [
    (conversations_catch_only_our_errors, [ROOT / file for file in CORE_FILES]),
    (rooms_import_only_downwards, ROOM_FILES),
    (inside_a_room_imports_are_relative_and_across_rooms_absolute, ROOM_FILES),
    (no_room_is_imported_under_a_second_name, ALL_FILES),
    (core_files_touch_nothing, [ROOT / file for file in CORE_FILES]),
    (core_files_import_only_core_files, [ROOT / file for file in CORE_FILES]),
    (the_core_of_a_client_imports_no_feature, CORE_OF_CLIENTS),
    (
        features_of_a_proxy_import_only_what_is_named,
        [file for one in ("core", *OTHER_FEATURES) for file in (ROOT / "proxy" / one).glob("*.py")],
    ),
    (types_are_described_by_one_thread_at_a_time, ROOM_FILES),
    (functions_are_short, [*ROOM_FILES, *SCRIPT_FILES, *DOOR_FILES]),
    (
        tools_import_no_tests,
        [f for f in [*ROOM_FILES, *SCRIPT_FILES, *TEST_FILES] if not f.is_relative_to(TESTS)],
    ),
    (
        texts_and_names_use_plain_words,
        [file for file in ALL_FILES if file != Path(__file__)],  # that has the words
    ),
    (
        no_test_waits,
        [f for f in TEST_FILES if f.parent.name in ("core", "relay", "wire", "store")],
    ),
    (no_test_sleeps_a_fixed_time, [f for f in TEST_FILES if f.is_relative_to(ROOT / "tests")]),
    (
        nothing_outlives_its_test,
        [
            f
            for f in TEST_FILES
            if f.is_relative_to(ROOT / "tests") and f.name not in ("harness.py", "fork_server.py")
        ],
    ),
]


@pytest.mark.parametrize(("rule", "files"), RULES, ids=[rule.__name__ for rule, _ in RULES])
def test_the_house_rule(rule: Rule, files: list[Path]) -> None:
    """The rest of docs/internals/architecture.md; what ruff knows is in pyproject.toml."""
    problems = {name_of(file): list(rule(tree_of(file), name_of(file))) for file in files}
    broken = {name for name, found in problems.items() if found}

    assert problems
    assert not broken, [found for name in broken for found in problems[name]]


def classes_and_aliases(tree: ast.Module) -> Iterator[tuple[str, bool]]:
    """Public names that are written as those of classes are, and whether each is one."""
    for node in nodes_of(tree):
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            yield node.name, True
    for node in tree.body:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                is_variable = isinstance(value, ast.Call) and called(value) == "TypeVar"
                if re.match("[A-Z].*[a-z]", name) and not is_variable:
                    yield name, False


def class_names_given_twice(trees: dict[str, ast.Module]) -> dict[str, list[str]]:
    """The files of each name of a class that another class, or a type alias, has too."""
    files: dict[str, list[str]] = defaultdict(list)
    classes = set()
    for file, tree in trees.items():
        for name, is_class in classes_and_aliases(tree):
            files[name].append(file)
            classes |= {name} if is_class else set()
    return {name: files[name] for name in sorted(classes) if len(files[name]) > 1}


def test_the_name_of_a_class_is_given_once_in_the_rooms() -> None:
    """A search for it ends at the one thing; what is not a twin gets the more exact name."""
    twice = class_names_given_twice({name_of(file): tree_of(file) for file in ROOM_FILES})

    assert twice.keys() == TWINS.keys(), twice


def test_a_name_that_a_class_shares_is_told_with_the_files() -> None:
    sources = {
        "proxy/x.py": "class Granted: ...\nclass _Row: ...\nT = TypeVar('T')",
        "common/x.py": "class Granted: ...\nclass _Row: ...\nT = TypeVar('T')",
        "proxy/y.py": "class Place: ...\nTopic = str",
        "common/y.py": "Place = int | None\nTopic = str",
    }

    assert class_names_given_twice({file: ast.parse(text) for file, text in sources.items()}) == {
        "Granted": ["proxy/x.py", "common/x.py"],
        "Place": ["proxy/y.py", "common/y.py"],
    }


def lines_by_folder() -> dict[str, int]:
    lines: dict[str, int] = defaultdict(int)
    for path in ALL_FILES:
        lines[name_of(path).split("/")[0]] += len(path.read_text(encoding="utf-8").splitlines())
    return lines


def over_budget(lines: dict[str, int], most: dict[str, int]) -> list[str]:
    return [
        f"{folder} has {count:,} lines, its budget is {most[folder]:,}: delete, or raise it in "
        "LINES_MAX with the reason"
        for folder, count in sorted(lines.items())
        if count > most[folder]
    ]


def test_each_folder_has_a_budget_of_lines_and_keeps_it() -> None:
    lines = lines_by_folder()

    assert lines.keys() == LINES_MAX.keys()
    assert over_budget(lines, LINES_MAX) == []


def test_a_folder_over_its_budget_is_reported_with_its_lines() -> None:
    (problem,) = over_budget({"proxy": 101, "relay": 100}, {"proxy": 100, "relay": 100})

    assert problem.startswith("proxy has 101 lines, its budget is 100")


def imported_by(trees: dict[str, ast.Module]) -> dict[str, set[str]]:
    """The modules of ours that each module imports, those for types included."""
    imported: dict[str, set[str]] = {name: set() for name in trees}
    for name, tree in trees.items():
        for node in nodes_of(tree):
            if not isinstance(node, ast.ImportFrom):
                continue
            folder = name.split(".")[: -node.level] if node.level else []
            module = (node.module or "").removeprefix(f"{PACKAGE}.").split(".")
            target = ".".join([*folder, *filter(None, module)])
            for alias in node.names:
                found = {f"{target}.{alias.name}", target} & trees.keys()
                imported[name].update(sorted(found, key=len)[-1:])
    return imported


def test_imports_close_no_circle() -> None:
    files = [file for file in ROOM_FILES if file.stem != "__init__"]
    trees = {name_of(file)[:-3].replace("/", "."): tree_of(file) for file in files}
    imported = imported_by(trees)

    assert len([*TopologicalSorter(imported).static_order()]) == len(trees)


def test_imports_that_close_a_circle_are_found() -> None:
    sources = {
        "proxy.a": "from .core.b import B",
        "proxy.core.b": f"if TYPE_CHECKING:\n    from {PACKAGE}.proxy.a import A",
    }
    imported = imported_by({name: ast.parse(text) for name, text in sources.items()})

    with pytest.raises(CycleError):
        TopologicalSorter(imported).prepare()


def test_every_room_has_its_rule() -> None:
    """A new room is linked into the package, and says here what it may import."""
    linked = {path.name for path in (ROOT / PACKAGE).iterdir() if path.is_symlink()}

    assert linked == ROOMS.keys()


def test_a_room_is_a_link_to_the_folder_beside_the_package() -> None:
    assert all((ROOT / PACKAGE / room).resolve() == ROOT / room for room in ROOMS)


# Each rule can fail.

BREAKS: list[tuple[Rule, str, str]] = [
    (rooms_import_only_downwards, "proxy/x.py", f"from {PACKAGE}.publisher.outbox import Outbox"),
    (rooms_import_only_downwards, "common/x.py", f"import {PACKAGE}.proxy.broker"),
    (rooms_import_only_downwards, "publisher/x.py", f"from {PACKAGE} import subscriber"),
    (
        inside_a_room_imports_are_relative_and_across_rooms_absolute,
        "proxy/x.py",
        f"from {PACKAGE}.proxy.broker import Broker",
    ),
    (
        inside_a_room_imports_are_relative_and_across_rooms_absolute,
        "proxy/x.py",
        "from ..common.names import Topic",
    ),
    (no_room_is_imported_under_a_second_name, "tests/x.py", "import proxy"),
    (no_room_is_imported_under_a_second_name, "tests/x.py", "from common.names import Topic"),
    (core_files_touch_nothing, "proxy/core/broker.py", "import time"),
    (core_files_touch_nothing, "proxy/core/broker.py", "def f():\n    from os import path"),
    (core_files_touch_nothing, "proxy/core/broker.py", "open('x')"),
    (types_are_described_by_one_thread_at_a_time, "relay/core/x.py", "msgspec.convert(1, Order)"),
    (types_are_described_by_one_thread_at_a_time, "relay/core/x.py", "msgpack.Decoder(Order)"),
    (types_are_described_by_one_thread_at_a_time, "relay/core/x.py", "decode(b'', type=Order)"),
    (core_files_import_only_core_files, "proxy/core/broker.py", "from ..store import Store"),
    (
        core_files_import_only_core_files,
        "proxy/core/broker.py",
        f"from {PACKAGE}.common.transport import SystemClock",
    ),
    (
        the_core_of_a_client_imports_no_feature,
        "subscriber/core/inbox.py",
        "from ..groups.core.membership import Membership",
    ),
    (
        features_of_a_proxy_import_only_what_is_named,
        "proxy/core/state.py",
        "from ..patterns.index import PatternIndex",
    ),
    (
        features_of_a_proxy_import_only_what_is_named,
        "proxy/transactions/verbs.py",
        "from ..patterns.index import PatternIndex",
    ),
    (
        the_core_of_a_client_imports_no_feature,
        "subscriber/opening.py",
        "from .push.push_feature import PushFeature",
    ),
    (
        the_core_of_a_client_imports_no_feature,
        "publisher/put_calls.py",
        f"from {PACKAGE}.publisher.streams.stream import Stream",
    ),
    (functions_are_short, "proxy/x.py", "def f():\n" + "    x = 1\n" * FUNCTION_LINES_MAX),
    (tools_import_no_tests, "scripts/fuzzer/x.py", "from tests.integration.harness import Service"),
    (texts_and_names_use_plain_words, "proxy/x.py", '"""The offset behind its last message."""'),
    (texts_and_names_use_plain_words, "lab/x.py", 'why = f"at {place}, behind {offset}"'),
    (
        texts_and_names_use_plain_words,
        "tests/core/test_x.py",
        "def test_goes_on_behind_it(): ...",
    ),
    (texts_and_names_use_plain_words, "tests/core/test_x.py", "NOBODY_ASKS = born_at = 1"),
    (texts_and_names_use_plain_words, "scripts/simulator/x.py", "class ReadsAnew: ..."),
    (
        texts_and_names_use_plain_words,
        "proxy/x.py",
        '"""What becomes of a put.\n\nWaits for\never."""',
    ),
    (texts_and_names_use_plain_words, "scripts/fuzzer/x.py", "why = 'no connection of ours'"),
    (texts_and_names_use_plain_words, "lab/x.py", "why = f'{who} goes on at {place}'"),
    (texts_and_names_use_plain_words, "tests/core/test_x.py", "def test_is_to_be_read(): ..."),
    (no_test_waits, "tests/core/x.py", "from time import sleep"),
    (no_test_sleeps_a_fixed_time, "tests/integration/test_x.py", "time.sleep(0.3)"),
    (nothing_outlives_its_test, "tests/integration/test_x.py", "context: Any = zmq.Context()"),
    (nothing_outlives_its_test, "tests/integration/test_x.py", "proxy.signal(signal.SIGSTOP)"),
    (
        conversations_catch_only_our_errors,
        "publisher/core/x.py",
        "def f() -> Conversation[None]:\n    try:\n        yield\n    finally:\n        x = 1",
    ),
    (
        conversations_catch_only_our_errors,
        "publisher/core/x.py",
        "def f() -> Conversation[None]:\n    try:\n        yield\n    except BaseException: raise",
    ),
]


@pytest.mark.parametrize(
    ("rule", "file", "source"),
    BREAKS,
    ids=[f"{rule.__name__}: {source.splitlines()[0]}" for rule, _, source in BREAKS],
)
def test_a_house_rule_that_is_broken_is_reported_with_file_and_line(
    rule: Rule, file: str, source: str
) -> None:
    (problem, *_) = rule(ast.parse(source), file)

    assert problem.startswith(f"{file}:")


@pytest.mark.parametrize(
    ("rule", "file", "source"),
    [
        (rooms_import_only_downwards, "proxy/x.py", f"from {PACKAGE}.common.names import Topic"),
        (
            inside_a_room_imports_are_relative_and_across_rooms_absolute,
            "proxy/x.py",
            f"from .broker import Broker\nfrom {PACKAGE}.common import names",
        ),
        (
            core_files_touch_nothing,
            "common/core/steps.py",
            "if TYPE_CHECKING:\n    from pathlib import Path",
        ),
        (texts_and_names_use_plain_words, "tests/core/x.py", "class TestANewSubscription: ..."),
        (
            texts_and_names_use_plain_words,
            "lab/x.py",
            '"""Goes once; on a disk that has to be full."""',
        ),
        (functions_are_short, "x.py", "def f():\n    '''a\n" + "b\n" * 67 + "    '''"),
    ],
)
def test_what_keeps_a_house_rule_is_not_reported(rule: Rule, file: str, source: str) -> None:
    assert list(rule(ast.parse(source), file)) == []


def test_every_rule_was_broken_once() -> None:
    assert {rule for rule, _, _ in BREAKS} == {rule for rule, _ in RULES}
