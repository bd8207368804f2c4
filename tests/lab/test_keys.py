"""The described keys of step files and scenarios are those that are read, with the same ranges."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from click.testing import CliRunner
from msgspec import Struct

from reliable_pubsub.__main__ import main
from reliable_pubsub.common.core.errors import ConfigurationError
from reliable_pubsub.common.core.key_tables import json_schema, key_rows
from reliable_pubsub.common.core.step_file import parse_publisher_steps, parse_subscriber_steps
from reliable_pubsub.common.core.step_keys import (
    GetKeys,
    PublisherFile,
    PutKeys,
    SubscribeKeys,
    SubscriberFile,
    UnsubscribeKeys,
)
from reliable_pubsub.common.topic_settings import split_document
from reliable_pubsub.common.yaml_file import parse_yaml
from reliable_pubsub.lab.core.scenario_file import parse_scenario
from reliable_pubsub.lab.core.scenario_keys import EventKeys, ScenarioKeys
from reliable_pubsub.lab.keys import SCHEMAS, generated

REPOSITORY = Path(__file__).parents[2]
CONFIGS = REPOSITORY / "configs"
SHIPPED = [
    *(
        ("publisher", path)
        for path in (*CONFIGS.glob("*_publisher.yaml"), *CONFIGS.glob("demo/p*"))
    ),
    *(
        ("subscriber", path)
        for path in (*CONFIGS.glob("*_subscriber.yaml"), *CONFIGS.glob("demo/s*"))
    ),
    *(("scenario", path) for path in (*CONFIGS.glob("lab/*.yaml"), CONFIGS / "demo" / "demo.yaml")),
]
# One step that a reader accepts, for each sort; other keys are added to it.
STEPS: dict[type[Struct], dict[str, Any]] = {
    PutKeys: {"topic": "t", "message": "m"},
    SubscribeKeys: {"action": "subscribe", "topic": "t"},
    GetKeys: {"action": "get", "topic": "t"},
    UnsubscribeKeys: {"action": "unsubscribe", "topic": "t"},
}
# What else a key needs beside it, or cannot have.
WITH: dict[tuple[type[Struct], str], dict[str, Any]] = {
    (PutKeys, "acknowledged_by"): {"wait": "delivered"},
    (PutKeys, "timeout"): {"wait": "delivered"},
    (GetKeys, "delay"): {"settle": "nack"},
}
# The step before: some keys are for members of a group.
BEFORE: dict[type[Struct], dict[str, Any]] = {
    kind: {"action": "subscribe", "topic": "t", "group": "g"} for kind in (GetKeys, UnsubscribeKeys)
}
ODD: list[object] = [None, [], {}, True, "x", "1", 0, -1, 1.5, 2, 10**12, float("inf")]
CASES = [(kind, row.key) for kind in STEPS for row in key_rows(kind) if row.key != "action"]


def schema_of(kind: type[Struct]) -> dict[str, Any]:
    return json_schema(PublisherFile if kind is PutKeys else SubscriberFile, "")


def steps(kind: type[Struct], step: Mapping[str, Any]) -> list[dict[str, Any]]:
    """A step, after what it needs before it."""
    return [*([BEFORE[kind]] if kind in BEFORE else []), dict(step)]


def accepted_by_schema(kind: type[Struct], step: Mapping[str, Any]) -> bool:
    return jsonschema.Draft202012Validator(schema_of(kind)).is_valid({"steps": steps(kind, step)})


def read(kind: type[Struct], step: Mapping[str, Any]) -> object:
    document = parse_yaml(yaml.safe_dump({"steps": steps(kind, step)}), "f.yaml")
    return (parse_publisher_steps if kind is PutKeys else parse_subscriber_steps)(document)


def accepted_by_reader(kind: type[Struct], step: Mapping[str, Any]) -> bool:
    try:
        read(kind, step)
    except ConfigurationError:
        return False
    return True


def with_key(kind: type[Struct], key: str, value: object) -> dict[str, Any]:
    step = {**STEPS[kind], **WITH.get((kind, key), {}), key: value}
    if key == "message_file":
        del step["message"]
    return step


def bounds(kind: type[Struct], key: str) -> dict[str, float]:
    properties = schema_of(kind)["$defs"][kind.__name__]["properties"][key]
    found: dict[str, float] = {}
    for one in (properties, *properties.get("anyOf", ())):
        found |= {k: v for k, v in one.items() if k in ("minimum", "maximum", "exclusiveMinimum")}
    return found


@pytest.mark.parametrize(("kind", "key"), CASES)
def test_what_the_reader_accepts_the_schema_accepts(kind: type[Struct], key: str) -> None:
    for value in ODD:
        step = with_key(kind, key, value)
        if accepted_by_reader(kind, step):
            assert accepted_by_schema(kind, step), step


@pytest.mark.parametrize(
    ("kind", "key"), [case for case in CASES if bounds(*case) and case[1] != "batch"]
)
def test_a_number_is_accepted_up_to_its_bounds_and_not_beyond(kind: type[Struct], key: str) -> None:
    found = bounds(kind, key)
    low = found.get("minimum", found.get("exclusiveMinimum", 0))
    inside = [found["maximum"], low + 1] + ([low] if "minimum" in found else [])
    outside = [found["maximum"] + 1, low - 1] + ([low] if "exclusiveMinimum" in found else [])

    for accepted in (accepted_by_reader, accepted_by_schema):
        assert [accepted(kind, with_key(kind, key, value)) for value in inside] == [True] * len(
            inside
        )
        assert not any(accepted(kind, with_key(kind, key, value)) for value in outside)


@pytest.mark.parametrize(("kind", "key"), CASES)
def test_a_default_that_is_written_changes_nothing(kind: type[Struct], key: str) -> None:
    one = schema_of(kind)["$defs"][kind.__name__]["properties"][key]
    written = with_key(kind, key, one.get("default"))
    if "default" in one:
        left_out = {name: value for name, value in written.items() if name != key}

        assert read(kind, written) == read(kind, left_out)


@pytest.mark.parametrize("kind", STEPS)
def test_an_unknown_key_is_refused_by_both(kind: type[Struct]) -> None:
    step = {**STEPS[kind], "colour": 1}

    assert not accepted_by_schema(kind, step)
    assert not accepted_by_reader(kind, step)


@pytest.mark.parametrize(
    ("kind", "path"), SHIPPED, ids=lambda one: one.stem if isinstance(one, Path) else one
)
def test_every_shipped_file_is_valid_by_its_schema_and_names_it(kind: str, path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    first, _, _ = text.partition("\n")

    jsonschema.validate(yaml.safe_load(text), json_schema(*SCHEMAS[kind]))

    named = first.removeprefix("# yaml-language-server: $schema=")
    assert (path.parent / named).resolve() == REPOSITORY / "configs" / "schema" / f"{kind}.json"


def scenario(extra: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "title": "x",
        "publishers": {"p": {"steps": [{"topic": "t", "message": "m"}]}},
        "subscribers": {"s": {"steps": [{"action": "subscribe", "topic": "t"}]}},
        **extra,
    }


@pytest.mark.parametrize(
    "extra",
    [{"colour": 1}, *({"events": [{"at": 1, "kill": "p", key: []}]} for key in ("for", "by"))],
)
def test_a_scenario_that_the_schema_refuses_the_reader_refuses(extra: Mapping[str, Any]) -> None:
    data = scenario(extra)

    assert not jsonschema.Draft202012Validator(json_schema(ScenarioKeys, "")).is_valid(data)
    with pytest.raises(ConfigurationError):
        parse_scenario(
            parse_yaml(yaml.safe_dump(data), "s.yaml"),
            load=lambda name: parse_yaml("", name),
            check_proxy=split_document,
        )


def test_the_generated_files_are_those_of_the_types() -> None:
    stale = [
        name
        for name, text in generated().items()
        if (REPOSITORY / name).read_text(encoding="utf-8") != text
    ]

    assert not stale, "run: python -m reliable_pubsub.lab.keys"


@pytest.mark.parametrize(
    ("command", "kinds"),
    [("publisher", [PutKeys]), ("subscriber", [SubscribeKeys, GetKeys, UnsubscribeKeys])],
)
def test_help_names_every_key_with_its_meaning(command: str, kinds: list[type[Struct]]) -> None:
    shown = " ".join(CliRunner().invoke(main, [command, "--help"]).output.split())

    for kind in kinds:
        for row in key_rows(kind):
            assert f"{row.key} " in shown
            assert row.meaning in shown


@pytest.mark.parametrize("kind", SCHEMAS)
def test_a_schema_is_printed_for_an_editor(kind: str) -> None:
    said = CliRunner().invoke(main, ["schema", kind])

    assert said.output == generated()[f"configs/schema/{kind}.json"]


def test_every_key_has_a_meaning() -> None:
    kinds: tuple[type[Struct], ...] = (*STEPS, ScenarioKeys, EventKeys)
    for kind in kinds:
        assert all(row.meaning for row in key_rows(kind) if row.key != "action")
