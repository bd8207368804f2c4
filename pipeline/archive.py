"""An archive: topics as Parquet files in a folder that others may read at every moment.

    FOLDER/messages -> _generations/000001        the link that readers follow
    FOLDER/_generations/000001/NAME.parquet       one range of one topic each
    FOLDER/_generations/000001/_manifests/NAME.json
    FOLDER/_staging/RUN/...                       what is being written

The manifest is the decision, the file's name its effect: first the manifests of some files are
durable, then the files get their names. Who dies in between leaves a decision that the next run
carries out. Merging makes a new generation beside the old one, and moves the link.
"""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from reliable_pubsub.common.core.errors import ConfigurationError, DamagedError
from reliable_pubsub.common.lock import FileLock

from . import files
from .core.manifest import Manifest, decode_manifest, encode_manifest, in_order

MESSAGES: Final = "messages"
GENERATIONS: Final = "_generations"
MANIFESTS: Final = "_manifests"
STAGING: Final = "_staging"
_FIRST: Final = "000001"


def read_manifests(folder: Path) -> list[Manifest]:
    """What an archive holds now; also while another job adds to it.

    Raises:
        ConfigurationError: it is no archive.
        DamagedError: a file that a manifest names is not there.
    """
    if not (folder / MESSAGES).is_dir():
        raise ConfigurationError(
            f"{folder}: is no archive (it has no {MESSAGES}); `reliable-pubsub pipeline archive "
            f"--folder {folder}` makes one"
        )
    generation = (folder / MESSAGES).resolve()
    return [one for one in _decided(generation) if _is_there(one, folder, generation)]


def _decided(generation: Path) -> list[Manifest]:
    paths = sorted((generation / MANIFESTS).glob("*.json"))
    return in_order(decode_manifest(path.read_bytes(), str(path)) for path in paths)


def _is_there(manifest: Manifest, folder: Path, generation: Path) -> bool:
    """Whether a file has its name; False: it will get it.

    Raises:
        DamagedError: it is nowhere.
    """
    named, staged = generation / manifest.name, folder / manifest.staged
    if named.is_file():
        return True
    # It may get its name between two looks, so the last look is at the name.
    if staged.is_file() or named.is_file():
        return named.is_file()
    raise DamagedError(
        f"{named}: is not there, and its manifest says that it holds offsets {manifest.first} to "
        f"{manifest.end - 1} of {manifest.topic!r}. Nothing was changed: bring the file back, or "
        "archive the topic to another folder"
    )


class Archive:
    """The one process that may change an archive."""

    def __init__(self, folder: Path) -> None:
        """Take the folder, or make it; carry out what an earlier run had decided.

        Raises:
            InUseError: another process has it.
            ConfigurationError: it cannot be made, or holds something else.
            DamagedError: an archived file is missing.
        """
        self.folder = folder
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigurationError(f"{folder}: cannot be made: {error.strerror}") from error
        known = {MESSAGES, f"{MESSAGES}.part", GENERATIONS, STAGING, "_lock"}
        strange = sorted({path.name for path in folder.iterdir()} - known)
        if strange:
            raise ConfigurationError(
                f"{folder}: holds {strange[0]!r}, which is not of an archive; nothing was changed. "
                "Choose an empty folder"
            )
        self._lock = FileLock(folder / "_lock", what="the archive")
        try:
            self._begin()
        except BaseException:
            self._lock.close()
            raise

    def __enter__(self) -> Archive:
        return self

    def __exit__(self, *_: object) -> None:
        self._lock.close()

    def _begin(self) -> None:
        link = self.folder / MESSAGES
        if not link.is_symlink():
            (self.folder / GENERATIONS / _FIRST / MANIFESTS).mkdir(parents=True, exist_ok=True)
            files.point(link, f"{GENERATIONS}/{_FIRST}")
            files.sync(self.folder)
        self.generation = link.resolve()
        self.manifests = _decided(self.generation)
        late = [one for one in self.manifests if not self._has(one)]
        self._name(late)
        self._sweep()
        self.run = f"{STAGING}/{secrets.token_hex(6)}"  # where tasks of this run write, below it
        (self.folder / self.run).mkdir(parents=True)

    def _has(self, manifest: Manifest) -> bool:
        return _is_there(manifest, self.folder, self.generation)

    def _sweep(self) -> None:
        """Remove staging files, and generations that are unfinished or no longer needed.

        The generation before this one stays: a reader may have it open.
        """
        shutil.rmtree(self.folder / STAGING, ignore_errors=True)
        current = int(self.generation.name)
        for path in (self.folder / GENERATIONS).iterdir():
            if int(path.name) not in (current, current - 1):
                shutil.rmtree(path)

    def path_of(self, manifest: Manifest) -> Path:
        """The path of a file."""
        return self.generation / manifest.name

    def add(self, manifests: Sequence[Manifest]) -> None:
        """Files that were staged become part of the archive, each at one moment."""
        self._decide(self.generation, manifests)
        self._name(manifests)
        self.manifests = in_order([*self.manifests, *manifests])

    def _decide(self, generation: Path, manifests: Sequence[Manifest]) -> None:
        for one in manifests:
            path = (generation / MANIFESTS / one.name).with_suffix(".json")
            files.write_whole(path, encode_manifest(one))
        files.sync(generation / MANIFESTS)

    def _name(self, manifests: Sequence[Manifest]) -> None:
        for one in manifests:
            files.move(self.folder / one.staged, self.path_of(one))
        if manifests:
            files.sync(self.generation)

    def replace(self, merged: Mapping[Manifest, Sequence[Manifest]]) -> None:
        """Staged files replace others, all at the same moment.

        Args:
            merged: each with those that it has the rows of.
        """
        number = int(self.generation.name) + 1
        new = self.folder / GENERATIONS / f"{number:06}"
        (new / MANIFESTS).mkdir(parents=True)
        gone = {one.name for group in merged.values() for one in group}
        kept = [one for one in self.manifests if one.name not in gone]
        for one in kept:
            files.link(self.path_of(one), new / one.name)
        for one in merged:
            files.move(self.folder / one.staged, new / one.name)
        self._decide(new, [*kept, *merged])
        files.sync(new)
        files.sync(new.parent)
        files.point(self.folder / MESSAGES, f"{GENERATIONS}/{new.name}")
        files.sync(self.folder)
        self.generation = new.resolve()
        self.manifests = in_order([*kept, *merged])


def archived_files(folder: Path) -> Iterator[tuple[Manifest, Path]]:
    """The files of an archive with their places, by topic and offset; see `read_manifests`."""
    generation = (folder / MESSAGES).resolve()
    for one in read_manifests(folder):
        yield one, generation / one.name
