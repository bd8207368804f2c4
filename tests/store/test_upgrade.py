"""A store of another schema is refused and left as it is: no release wrote one."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from reliable_pubsub.common.core.errors import DamagedError
from reliable_pubsub.proxy.core.schema import SCHEMA_VERSION
from reliable_pubsub.proxy.store import Store


@pytest.mark.parametrize("version", [SCHEMA_VERSION - 1, SCHEMA_VERSION + 1])
def test_a_store_of_another_schema_is_refused_and_unchanged(version: int, tmp_path: Path) -> None:
    Store(tmp_path, "os").close()
    file = tmp_path / "proxy.sqlite3"
    with closing(sqlite3.connect(file)) as connection:
        connection.execute(f"PRAGMA user_version = {version}")

    with pytest.raises(DamagedError, match=f"schema version {version}.*Use the version"):
        Store(tmp_path, "os")

    with closing(sqlite3.connect(file)) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (version,)
