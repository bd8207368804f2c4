"""A password of a connection string is shown nowhere."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from reliable_pubsub.common import config_show
from reliable_pubsub.common.core.connection_string import without_password

URL = "postgresql://user:se:cr@et@host:5432/base?sslmode=require"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (URL, "postgresql://user:***@host:5432/base?sslmode=require"),
        ("postgresql://user@host/base", "postgresql://user@host/base"),
        ("postgresql://host/base?password=x&port=1", "postgresql://host/base?password=***&port=1"),
        ("host=h password='a b' user=u", "host=h password=*** user=u"),
        ("tcp://127.0.0.1:5555", "tcp://127.0.0.1:5555"),
        ('unexpected " " in "postgres://u:a b@h"', 'unexpected " " in "postgres://u:***@h"'),
    ],
)
def test_is_shown_without_its_password(text: str, shown: str) -> None:
    assert without_password(text) == shown


@pytest.mark.parametrize("as_json", [True, False])
def test_the_settings_are_shown_without_the_password(as_json: bool) -> None:
    options = ["show", *(["--json"] if as_json else [])]

    result = CliRunner().invoke(
        config_show.main, options, env={"RELIABLE_PUBSUB_STORE": URL, "COLUMNS": "300"}
    )

    assert result.exit_code == 0
    assert "user:***@host" in result.output
    assert "cr@et" not in result.output


def test_a_refused_value_is_reported_without_the_password() -> None:
    wrong = URL.replace("postgresql", "mysql")

    result = CliRunner().invoke(config_show.main, ["show"], env={"RELIABLE_PUBSUB_STORE": wrong})

    assert result.exit_code == 2
    assert "RELIABLE_PUBSUB_STORE" in result.output
    assert "cr@et" not in result.output
