"""The log: a transaction that a crash has torn is normal, everything else is damage (P6)."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from reliable_pubsub.common.core.errors import DamagedError
from reliable_pubsub.common.core.message_base import Durability
from reliable_pubsub.proxy.check import check_store
from reliable_pubsub.proxy.core.write_ahead_log import (
    HEADER_BYTES,
    Frame,
    parse_frame,
    parse_header,
    parse_index,
)
from reliable_pubsub.proxy.shutdown_marker import (
    ShutdownMarker,
    machine_boot,
    read_shutdown_marker,
    write_shutdown_marker,
)
from reliable_pubsub.proxy.store import MARK_NAME, Store
from reliable_pubsub.proxy.stored_state import FILE_NAME, read_state
from reliable_pubsub.proxy.wal_check import WalDamage
from tests.fakes import a_beginning, an_append

LOG_NAME = f"{FILE_NAME}-wal"
INDEX_NAME = f"{FILE_NAME}-shm"
BATCHES = 6  # each in a commit of its own
FRAME_BYTES = 4096 + 24


def kill(directory: Path, *, durability: Durability = "sync", batches: int = BATCHES) -> None:
    """A store that was killed: its commits stand in the log only."""
    store = Store(directory.with_name("running"), durability)
    store.commit(a_beginning())
    for base in range(batches):
        store.commit([an_append(base)])
    shutil.copytree(directory.with_name("running"), directory)
    store.close()


@pytest.fixture
def killed(tmp_path: Path) -> Path:
    kill(tmp_path / "killed")
    return tmp_path / "killed"


def end_of(directory: Path, *, accept_loss: bool = False) -> tuple[int, list[WalDamage]]:
    """Start, and stop: where the topic ends, and what was reported."""
    reported: list[WalDamage] = []
    store = Store(directory, "sync", accept_loss=accept_loss, report=reported.append)
    try:
        state = read_state(store.connection, check_store(store.connection).segments)
    finally:
        store.close()
    return state.topics[0].end if state.topics else 0, reported


def refusal(directory: Path) -> str:
    before = {path.name: path.read_bytes() for path in directory.iterdir()}
    with pytest.raises(DamagedError) as caught:
        Store(directory, "sync")
    assert {path.name: path.read_bytes() for path in directory.iterdir()} == before
    return str(caught.value)


def frames(directory: Path) -> list[Frame]:
    """The frames that carry the salts of the log."""
    content = (directory / LOG_NAME).read_bytes()
    header = parse_header(content)
    assert header is not None
    found = [
        parse_frame(content[place : place + FRAME_BYTES])
        for place in range(HEADER_BYTES, len(content) - FRAME_BYTES, FRAME_BYTES)
    ]
    return [frame for frame in found if frame.salts == header.salts]


def flip(directory: Path, place: int, name: str = LOG_NAME) -> None:
    content = bytearray((directory / name).read_bytes())
    content[place] ^= 1
    (directory / name).write_bytes(content)


def commits(directory: Path) -> list[int]:
    """The numbers of the frames that end a transaction, from 0."""
    return [n for n, frame in enumerate(frames(directory)) if frame.database_pages]


def cut(directory: Path, frame: int) -> None:
    """Zeros from a frame on, as if it and all after it had never been written."""
    content = (directory / LOG_NAME).read_bytes()
    length = HEADER_BYTES + frame * FRAME_BYTES
    (directory / LOG_NAME).write_bytes(content[:length].ljust(len(content), b"\0"))


def without_index(directory: Path) -> None:
    (directory / INDEX_NAME).unlink()


def after_power_loss(directory: Path, durability: Durability = "sync") -> None:
    """The machine was down: the index is as old as the system had last written it, here gone."""
    without_index(directory)
    write_shutdown_marker(directory / MARK_NAME, ShutdownMarker(durability, "another boot"))


class TestALogThatIsWhole:
    def test_is_read_back(self, killed: Path) -> None:
        assert end_of(killed) == (BATCHES, [])

    def test_is_read_back_without_its_index(self, killed: Path) -> None:
        without_index(killed)

        assert end_of(killed) == (BATCHES, [])

    def test_is_read_back_after_a_power_loss_that_left_an_older_index(
        self, killed: Path, tmp_path: Path
    ) -> None:
        kill(tmp_path / "older" / "killed", batches=2)
        write_shutdown_marker(killed / MARK_NAME, ShutdownMarker("sync", "another boot"))
        shutil.copy(tmp_path / "older" / "killed" / INDEX_NAME, killed)

        assert end_of(killed) == (BATCHES, [])

    def test_is_read_back_though_frames_of_an_older_round_stand_after_it(
        self, tmp_path: Path
    ) -> None:
        store = Store(tmp_path / "running", "sync")
        store.commit(a_beginning())
        for base in range(BATCHES):
            store.commit([an_append(base)])
        store.connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
        store.commit([an_append(BATCHES)])
        shutil.copytree(tmp_path / "running", tmp_path / "killed")
        store.close()
        assert end_of(tmp_path / "killed") == (BATCHES + 1, [])

    def test_may_begin_with_the_header_of_the_round_before(self, tmp_path: Path) -> None:
        """Killed between the new salts in the index and the new header in the log."""
        store = Store(tmp_path / "running", "sync")
        store.commit(a_beginning())
        store.connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
        before = (tmp_path / "running" / LOG_NAME).read_bytes()
        store.connection.execute("PRAGMA wal_checkpoint(RESTART)").fetchall()
        shutil.copytree(tmp_path / "running", tmp_path / "killed")
        (tmp_path / "killed" / LOG_NAME).write_bytes(before)
        store.close()

        assert end_of(tmp_path / "killed") == (0, [])

    def test_stands_nowhere_after_a_clean_stop(self, tmp_path: Path) -> None:
        Store(tmp_path, "sync").close()

        last = read_shutdown_marker(tmp_path / MARK_NAME)

        assert not (tmp_path / LOG_NAME).exists()
        assert last is not None
        assert last.wal_moved


class TestATornTransaction:
    @pytest.mark.parametrize("left", [0, 1, 2])
    def test_is_normal_after_a_power_loss(self, left: int, killed: Path) -> None:
        after_power_loss(killed)
        cut(killed, commits(killed)[-2] + 1 + left)

        assert end_of(killed) == (BATCHES - 1, [])

    def test_is_normal_in_whatever_order_its_frames_were_written(self, killed: Path) -> None:
        after_power_loss(killed)
        flip(killed, HEADER_BYTES + (commits(killed)[-2] + 1) * FRAME_BYTES + 500)

        assert end_of(killed) == (BATCHES - 1, [])

    def test_is_none_if_the_index_says_that_it_was_committed(self, killed: Path) -> None:
        """The log alone cannot tell; the index survives kill -9, and says more."""
        flip(killed, HEADER_BYTES + (commits(killed)[-2] + 1) * FRAME_BYTES + 500)

        text = refusal(killed)

        assert "at least 1 commit cannot be read" in text
        assert f"topic number 1 offsets after {BATCHES - 2} to at least {BATCHES - 1}" in text


class TestDamage:
    @pytest.mark.parametrize("spoil", [lambda _: None, without_index, after_power_loss])
    @pytest.mark.parametrize("part", [0, 4, 8, 16, 24, 4000], ids=str)
    @pytest.mark.parametrize("commit", [False, True])
    def test_in_the_middle_is_named_and_changes_nothing(
        self, commit: bool, part: int, spoil: Callable[[Path], None], killed: Path
    ) -> None:
        """P6: page number, end of the transaction, salts, checksum, page; of any frame."""
        frame, count = commits(killed)[-3] + (0 if commit else 1), len(frames(killed))
        flip(killed, place := HEADER_BYTES + frame * FRAME_BYTES + part)
        spoil(killed)

        text = refusal(killed)

        first = place - part
        assert f"{LOG_NAME} bytes {first} to" in text
        assert f"frames {frame + 1} to {count}" in text
        assert "at least 2 commits" in text or "at least 3 commits" in text
        assert "--accept-loss" in text

    @pytest.mark.parametrize("spoil", [lambda _: None, without_index])
    @pytest.mark.parametrize("place", range(0, HEADER_BYTES, 3))
    def test_in_the_header_is_named(
        self, place: int, spoil: Callable[[Path], None], killed: Path
    ) -> None:
        """SQLite would take the whole log for an empty one."""
        spoil(killed)
        flip(killed, place)

        assert "its header is not as it was written" in refusal(killed)

    def test_is_found_though_one_half_of_the_index_is_damaged_too(self, killed: Path) -> None:
        flip(killed, HEADER_BYTES + (commits(killed)[-1]) * FRAME_BYTES + 500)
        for place in (16, 48 + 16):
            flip(killed, place, INDEX_NAME)
            refusal(killed)
            flip(killed, place, INDEX_NAME)

    def test_is_a_log_that_is_gone(self, killed: Path) -> None:
        (killed / LOG_NAME).unlink()
        assert "is missing" in refusal(killed)

        without_index(killed)
        assert "is missing" in refusal(killed)

    def test_is_an_older_copy_of_the_log(self, killed: Path, tmp_path: Path) -> None:
        kill(tmp_path / "older" / "killed", batches=2)
        shutil.copy(tmp_path / "older" / "killed" / LOG_NAME, killed)

        assert "is not the write-ahead log that was written last" in refusal(killed)

    @pytest.mark.parametrize("content", [b"", b"x" * 100_000, b"\x37\x7f\x06\x82" * 9, b"\0" * 99])
    def test_is_anything_else_in_its_place(self, content: bytes, killed: Path) -> None:
        (killed / LOG_NAME).write_bytes(content)

        assert "header" in refusal(killed)


class TestAcceptedLoss:
    def test_continues_with_the_commits_before_it_and_is_reported(self, killed: Path) -> None:
        flip(killed, HEADER_BYTES + (commits(killed)[-3] + 1) * FRAME_BYTES + 500)

        end, (damage,) = end_of(killed, accept_loss=True)

        assert end == BATCHES - 2
        assert damage.commits == 2
        assert end_of(killed) == (BATCHES - 2, [])

    @pytest.mark.parametrize("lose_index", [False, True])
    def test_is_not_met_a_second_time_in_the_same_log(
        self, lose_index: bool, killed: Path, tmp_path: Path
    ) -> None:
        flip(killed, HEADER_BYTES + (commits(killed)[-4] + 1) * FRAME_BYTES + 500)
        store = Store(killed, "sync", accept_loss=True)
        store.commit([an_append(BATCHES - 3)])
        shutil.copytree(killed, tmp_path / "again")
        store.close()
        if lose_index:
            after_power_loss(tmp_path / "again")

        assert end_of(tmp_path / "again") == (BATCHES - 2, [])


class TestDurabilityWithoutSync:
    def test_loses_its_newest_commits_with_the_power_and_says_so(self, tmp_path: Path) -> None:
        """What was promised, so there is nothing to accept."""
        directory = tmp_path / "killed"
        kill(directory, durability="os")
        after_power_loss(directory, "os")
        flip(directory, HEADER_BYTES + (commits(directory)[-3] + 1) * FRAME_BYTES + 500)

        end, (damage,) = end_of(directory)

        assert end == BATCHES - 2
        assert damage.expected

    def test_loses_nothing_without_power_loss(self, tmp_path: Path) -> None:
        kill(tmp_path / "killed", durability="os")
        flip(tmp_path / "killed", HEADER_BYTES + commits(tmp_path / "killed")[-1] * FRAME_BYTES)

        assert "at least 1 commit" in refusal(tmp_path / "killed")


def test_the_machine_tells_one_boot_from_another() -> None:
    assert len(machine_boot()) > 8


@pytest.mark.parametrize("content", [b"", b"{}", b"{} 00000000", b"x" * 128, b"\xff"])
def test_a_note_of_the_last_run_that_cannot_be_read_claims_nothing(
    content: bytes, killed: Path
) -> None:
    (killed / MARK_NAME).write_bytes(content)

    assert read_shutdown_marker(killed / MARK_NAME) is None
    assert end_of(killed) == (BATCHES, [])


def test_an_index_that_is_cut_short_holds_no_mark(killed: Path) -> None:
    content = (killed / INDEX_NAME).read_bytes()

    assert parse_index(content) is not None
    assert parse_index(content[:47]) is None
    assert parse_index(content[:95]) == parse_index(content)
