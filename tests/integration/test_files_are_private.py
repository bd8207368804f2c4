"""What processes write is their user's alone; a folder of keys that cannot be read revokes none."""

from __future__ import annotations

import errno
import os
from contextlib import closing
from pathlib import Path

import pytest

from reliable_pubsub.common.access.authentication import LOOK_S, Authentication
from reliable_pubsub.common.core.keys import ServerKeys
from reliable_pubsub.common.journal_file import JournalFile
from reliable_pubsub.common.key_files import new_pair, read_pair
from reliable_pubsub.subscriber.output import OutputFile

from .harness import zmq_context


def test_journals_and_outputs_can_be_read_by_their_user_only(tmp_path: Path) -> None:
    old = os.umask(0o022)
    try:
        for opened in (JournalFile(tmp_path / "journal", "p"), OutputFile(tmp_path / "output", 0)):
            opened.close()
    finally:
        os.umask(old)

    modes = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir()}
    assert modes == {"journal": 0o600, "output": 0o600}


@pytest.mark.parametrize("code", [errno.EACCES, errno.EMFILE])
def test_known_keys_stay_while_their_folder_cannot_be_listed(
    code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = read_pair(new_pair(tmp_path / "own", "proxy")[1])
    known = read_pair(new_pair(tmp_path / "clients", "sensor-1")[1]).public
    warnings: list[str] = []
    keys = ServerKeys(own=own, clients=str(tmp_path / "clients"))

    def fails(folder: Path) -> list[str]:
        raise OSError(code, os.strerror(code), str(folder))

    with (
        zmq_context() as context,
        closing(Authentication(context, keys, tmp_path / "audit.jsonl", warnings.append)) as zap,
    ):
        warnings.clear()
        with monkeypatch.context() as patched:
            patched.setattr(os, "listdir", fails)
            changed = [zap.look(LOOK_S * look) for look in (2, 4)]
        assert changed == [frozenset()] * 2
        assert len(warnings) == 1
        assert "keys and rights are unchanged" in warnings[0]

        other = read_pair(new_pair(tmp_path / "clients", "sensor-2")[1]).public
        assert zap.look(LOOK_S * 6) == {other}
        for file in (tmp_path / "clients").iterdir():
            file.unlink()
        assert zap.look(LOOK_S * 8) == {known, other}
        assert "no client can connect" in warnings[-1]
