"""`reliable-pubsub schema`, and the files generated from the keys of step files and scenarios.

With the JSON Schema files an editor completes and checks what a user writes; docs/reference/keys.md
is the same for reading. Both are in the repository, so that a link works; a test compares them with
the types, and `python -m reliable_pubsub.lab.keys` writes them again.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import click
import msgspec
from msgspec import Struct

from reliable_pubsub.common.command_line import CONTEXT_SETTINGS
from reliable_pubsub.common.core.key_tables import json_schema, key_rows, markdown
from reliable_pubsub.common.core.step_keys import (
    GetKeys,
    PublisherFile,
    PutKeys,
    SeekKeys,
    SubscribeKeys,
    SubscriberFile,
    UnsubscribeKeys,
)

from .core.scenario import Expectation, ScenarioRelay
from .core.scenario_keys import (
    EventKeys,
    PublisherKeys,
    ScenarioKeys,
    SubscriberKeys,
    TriggerKeys,
)

PAGE: Final = "docs/reference/keys.md"
SCHEMAS: Final[Mapping[str, tuple[type[Struct], str]]] = {
    "publisher": (PublisherFile, "Step file of a publisher"),
    "subscriber": (SubscriberFile, "Step file of a subscriber"),
    "scenario": (ScenarioKeys, "Scenario of the crash lab"),
}
_TABLES: Final[Mapping[str, tuple[tuple[str, type[Struct]], ...]]] = {
    "Step file of a publisher": (("each of `steps`", PutKeys),),
    "Step file of a subscriber": (
        ("`action: subscribe`", SubscribeKeys),
        ("`action: get`", GetKeys),
        ("`action: seek`", SeekKeys),
        ("`action: unsubscribe`", UnsubscribeKeys),
    ),
    "Scenario": (
        ("the file", ScenarioKeys),
        ("each of `publishers`", PublisherKeys),
        ("each of `subscribers`", SubscriberKeys),
        ("each of `relays`", ScenarioRelay),
        ("each of `events`", EventKeys),
        ("`after`, and `start` of a client", TriggerKeys),
        ("`expect`", Expectation),
    ),
}
_HEAD: Final = """\
# The keys of step files and scenarios

Generated from the types in `common/core/step_keys.py` and `lab/core/scenario_keys.py` by
`python -m reliable_pubsub.lab.keys`; `--help` of `publisher` and `subscriber` shows the same.

An editor with a YAML language server completes and checks a file whose first line names a schema:

```yaml
# yaml-language-server: $schema=schema/publisher.json
```

The schemas are in [configs/schema](../../configs/schema); `reliable-pubsub schema publisher` prints
one. A duration is a number of seconds, or text such as `0.5s` or `300ms`.
"""


def keys_page() -> str:
    """docs/reference/keys.md."""
    parts = [_HEAD]
    for title, tables in _TABLES.items():
        parts.append(f"\n## {title}\n")
        for name, kind in tables:
            heading = f"\n### {name[0].upper()}{name[1:]}\n\n" if len(tables) > 1 else "\n"
            parts.append(heading + markdown(key_rows(kind)))
    return "".join(parts)


def schema_text(name: str) -> str:
    """The JSON Schema of a sort of file."""
    schema = msgspec.json.encode(json_schema(*SCHEMAS[name]))
    return msgspec.json.format(schema, indent=2).decode() + "\n"


def generated() -> dict[str, str]:
    """Every generated file, by its path in the repository."""
    schemas = {f"configs/schema/{name}.json": schema_text(name) for name in SCHEMAS}
    return {PAGE: keys_page(), **schemas}


@click.command(context_settings=CONTEXT_SETTINGS)
@click.argument("kind", type=click.Choice(list(SCHEMAS)))
def main(kind: str) -> None:
    """Print the JSON Schema of a step file or scenario, for an editor.

    \b
      reliable-pubsub schema publisher > publisher.json
      # first line of a step file: # yaml-language-server: $schema=publisher.json
    """
    click.echo(schema_text(kind), nl=False)


if __name__ == "__main__":
    for where, text in generated().items():
        path = Path(__file__).resolve().parent.parent / where
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
