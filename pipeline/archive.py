"""An archive: topics as one Delta table, which others may read at every moment.

    FOLDER/_delta_log/...                   the log of the table: which files it has
    FOLDER/TOPIC.HASH/DAY/NAME.parquet      messages of one log and one day

Tasks write files under random names. The driver makes them part of the table by one
commit, which records in the same moment how far each log is archived (an application transaction:
its version is the end offset). A driver that dies before leaves files that the table does not know;
`DeltaTable(FOLDER).vacuum()` removes them. If two drivers continue from the same end, Delta lets
one of them commit.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final
from urllib.parse import unquote

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Schema, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import AddAction

from reliable_pubsub.common.core.errors import (
    ConfigurationError,
    DamagedError,
    StorageFailedError,
)
from reliable_pubsub.common.core.places import readable

from .archive_files import LOG, ArchivePlace, Location
from .core.columns import TABLE_SCHEMA
from .core.manifest import (
    PARTITIONS,
    ArchivedFile,
    Manifest,
    app_id,
    archived_to,
    from_log,
    in_order,
    newest_logs,
)
from .core.offsets import TopicOffset

_UNSYNCED_MAX: Final = 16  # newest commits: so many drivers may have died before they synced one
_SCHEMA: Final = Schema.from_arrow(TABLE_SCHEMA)

Logs = Collection[tuple[str, str]]  # topic and log id
Ends = Mapping[tuple[str, str], int]  # the end offset of each


def open_table(place: ArchivePlace) -> DeltaTable:
    """The table of an archive, as it is now.

    Raises:
        ConfigurationError: it is no archive.
        DamagedError: its log cannot be read.
    """
    try:
        with _asked(place):
            table = DeltaTable(place.address, storage_options=place.options)
    except TableNotFoundError as error:
        raise ConfigurationError(
            f"{place.name}: is not an archive (it has no {LOG}); `reliable-pubsub pipeline archive "
            f"--folder {place.name}` makes one"
        ) from error
    if table.metadata().partition_columns != [*PARTITIONS]:
        raise ConfigurationError(
            f"{place.name}: is a Delta table, but not of an archive: it is not partitioned by "
            f"{', '.join(PARTITIONS)}; nothing was changed. Choose an empty folder"
        )
    return table


@contextmanager
def _asked(place: ArchivePlace) -> Iterator[None]:
    """Raise what `deltalake` cannot read as a PubSubError; its decisions as they are."""
    try:
        yield
    except (TableNotFoundError, CommitFailedError):
        raise
    except (DeltaError, OSError) as error:
        raise place.failure(error) from error


def read_manifests(folder: Location) -> list[Manifest]:
    """What an archive holds now; also while another job adds to it.

    Raises:
        ConfigurationError: it is no archive.
        DamagedError: a file of it is not there.
    """
    place = ArchivePlace(folder)
    return _manifests(open_table(place), place)


def _manifests(table: DeltaTable, place: ArchivePlace) -> list[Manifest]:
    rows = pa.table(table.get_add_actions(flatten=True)).to_pylist()
    try:
        found = in_order(map(from_log, rows))
    except (TypeError, KeyError) as error:
        raise DamagedError(
            f"{place.name}/{LOG}: does not say of each file which offsets it has; it was changed "
            "by another program"
        ) from error
    for one in found:
        if place.lacks(unquote(one.path)):
            raise DamagedError(
                f"{place.address}/{unquote(one.path)}: is not there, and the table says that it "
                f"holds offsets {one.first} to {one.end - 1} of {one.topic!r}. Nothing was "
                "changed: bring the file back, or archive the topic to another folder"
            )
    return found


def archived_files(folder: Location) -> Iterator[ArchivedFile]:
    """The files of an archive, by topic and offset; see `read_manifests`."""
    place = ArchivePlace(folder)
    for one in read_manifests(folder):
        yield ArchivedFile(one, f"{place.address}/{unquote(one.path)}")


class Archive:
    """An archive that is to be added to. Others may do so at the same time."""

    def __init__(self, folder: Location) -> None:
        """Open it, or make it.

        Raises:
            ConfigurationError: the folder holds something else.
            DamagedError: an archived file is missing.
        """
        self.place = ArchivePlace(folder)
        with _asked(self.place):
            is_there = DeltaTable.is_deltatable(self.place.address, self.place.options)
        if not is_there:
            strange = sorted(self.place.entries() - {LOG})
            if strange:
                raise ConfigurationError(
                    f"{self.place.name}: holds {strange[0]!r}, which does not belong to an "
                    f"archive; nothing was changed. Choose an empty folder"
                )
            make_table(self.place)
        self._version = -1
        self.refresh()

    def refresh(self) -> None:
        """See what others have committed; what is seen is on disk."""
        self._table = open_table(self.place)
        known, self._version = self._version, self._table.version()
        self.place.sync_log(range(known + 1, self._version + 1)[-_UNSYNCED_MAX:])
        self.manifests = _manifests(self._table, self.place)

    def ends(self, logs: Logs) -> dict[tuple[str, str], int]:
        """How far the table says that logs are archived; without those that it does not know."""
        found = {log: self._table.transaction_version(app_id(*log)) for log in logs}
        return {log: end for log, end in found.items() if end is not None}

    def reached(self, logs: Logs = ()) -> dict[str, TopicOffset]:
        """Where the archive ends in each topic.

        Args:
            logs: others than those that it has messages of.
        """
        newest = {(topic, files[-1].log) for topic, files in newest_logs(self.manifests).items()}
        return archived_to(self.manifests, self.ends({*newest, *logs}))

    def add(self, files: Sequence[Manifest], ends: Ends) -> bool:
        """Files come in and logs are archived so far: at one moment, or nothing of it.

        Args:
            ends: how far each log is then; each goes on from where `ends` of this object says.

        Returns:
            False: another driver was there first. Nothing was added; `ends` says how far it is.

        Raises:
            StorageFailedError: the commit could not be written.
        """
        before = self.ends(ends)
        self.refresh()
        if self.ends(ends) != before:
            return False
        now_ms = time.time_ns() // 1_000_000
        actions = [
            AddAction(one.path, one.bytes, one.partition, now_ms, True, one.statistics)
            for one in files
        ]
        noted = [Transaction(app_id(*log), end) for log, end in ends.items()]
        version = self._version
        failure: Exception | None = None
        try:
            commit(self._table, actions, noted)
        except (DeltaError, OSError) as error:
            failure = error
        self.refresh()  # a commit that failed may have happened
        if failure is not None and self._version == version:
            raise StorageFailedError(
                f"{self.place.name}: nothing could be added to the archive: {readable(failure)}. "
                "It is as it was; run the same command again when the cause is mended"
            ) from failure
        return self._has(files) and self.ends(ends) == dict(ends)

    def _has(self, files: Sequence[Manifest]) -> bool:
        return {one.path for one in files} <= {one.path for one in self.manifests}


# What others see; each happens whole or not at all.


def make_table(place: ArchivePlace) -> None:
    """An archive without messages; another process may make it at the same moment."""
    try:
        with _asked(place):
            DeltaTable.create(
                place.address,
                _SCHEMA,
                mode="ignore",
                partition_by=[*PARTITIONS],
                name="messages",
                storage_options=place.options,
            )
    except CommitFailedError:
        open_table(place)  # it was the other one


def commit(table: DeltaTable, actions: Sequence[AddAction], noted: Sequence[Transaction]) -> None:
    """One commit, by whose conflicts Delta tells two drivers apart."""
    table.create_write_transaction(
        [*actions],
        "append",
        _SCHEMA,
        [*PARTITIONS],
        commit_properties=CommitProperties(app_transactions=[*noted]),
    )
