"""Files, folders and databases by their addresses. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final
from urllib.parse import urlsplit

from .endpoint import is_local
from .errors import (
    ConfigurationError,
    DamagedError,
    PubSubError,
    StorageFailedError,
    UsageError,
)

_ADDRESS: Final = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*):/")
S3: Final = "s3://"
_OBJECTS: Final = re.compile(r"s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9](/[A-Za-z0-9!_.*()=-]+)*")
_ENDPOINTS: Final = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
_COLOURS_AND_TREES: Final = re.compile(r"\x1b\[[0-9;]*m|↳|<[^>]*>")


def check_local(path: str) -> str:
    """Give a path back that is one.

    Raises:
        UsageError: it is an address, such as `s3a://bucket/folder`.
    """
    address = _ADDRESS.match(path)
    if address is None:
        return path
    if address["scheme"].lower() == "file":
        raise UsageError(f"{path}: write the path itself, without `file:`")
    raise UsageError(
        f"{path}: {address['scheme']}: is not written or read here: files are written to a file "
        "system and synced. Give a folder of one that all machines see (NFS, a mounted volume); "
        f"only archives and backups can be in an object store: {S3}BUCKET/PREFIX"
    )


def is_in_objects(archive: str) -> bool:
    """Whether an archive is in an object store, and not in a folder."""
    return archive.startswith(S3)


def check_archive(archive: str) -> str:
    """Give back where an archive can be: a folder, or `s3://bucket/prefix`.

    Raises:
        UsageError: it is another address, or a prefix that is not the same in every program.
    """
    if not is_in_objects(archive):
        if archive.startswith(("s3a://", "s3n://")):
            raise UsageError(
                f"{archive}: write {S3}{archive[6:]}; s3a is what Hadoop calls it, which is not "
                "needed here"
            )
        return check_local(archive)
    address = archive.rstrip("/")
    if not _OBJECTS.fullmatch(address) or {".", ".."} & {*address.split("/")}:
        raise UsageError(
            f"{archive!r:.200}: is no place in an object store; expected {S3}BUCKET/PREFIX, with "
            "letters, digits and !_.*()=- between the slashes of the prefix"
        )
    return address


def delta_options(environment: Mapping[str, str]) -> dict[str, str]:
    """What delta-rs is told of an object store besides its environment, which are AWS_*.

    A commit is put only where there is none (If-None-Match), so that of two drivers one wins. And
    traffic without encryption does not leave this machine, unless AWS_ALLOW_HTTP says so.
    """
    options = {"aws_conditional_put": "etag", "max_retries": "5", "retry_timeout": "30s"}
    endpoint = next((environment[name] for name in _ENDPOINTS if environment.get(name)), "")
    where = urlsplit(endpoint)
    if where.scheme == "http" and is_local(where.hostname or "?"):
        options["aws_allow_http"] = "true"
    return options


_REASONS: Final[tuple[tuple[str, type[PubSubError], str], ...]] = (
    (
        r"NoSuchBucket|NO_SUCH_BUCKET",
        ConfigurationError,
        "there is no such bucket. Make it, or give another one; AWS_ENDPOINT_URL says on which "
        "server it is, without it on Amazon's",
    ),
    (
        r"AccessKey|[Cc]redential|latest/api/token|AccessDenied|ACCESS_DENIED|Signature|"
        r"INVALID_ACCESS|40[13] ",
        ConfigurationError,
        "no credentials are set, or the store refuses them. Set AWS_ACCESS_KEY_ID and "
        "AWS_SECRET_ACCESS_KEY (and AWS_SESSION_TOKEN, where there is one) of a user who may list, "
        "get, put and delete below this prefix, for the command and for Spark's workers",
    ),
    (
        r"scheme is not allowed",
        ConfigurationError,
        "AWS_ENDPOINT_URL begins with http://, so messages would go to another machine without "
        "encryption. Give https://, or set AWS_ALLOW_HTTP=true",
    ),
    (
        r"error sending request|NETWORK_CONNECTION|[Tt]imed? ?out",
        StorageFailedError,
        "the store does not answer. See that AWS_ENDPOINT_URL (and AWS_REGION) are right and that "
        "it runs; then run the same command again, which goes on",
    ),
)


def readable(error: Exception) -> str:
    """What delta-rs says in a tree with colours, and a store in XML, on one line."""
    return " ".join(_COLOURS_AND_TREES.sub(" ", str(error)).split())


def folder_error(address: str, error: Exception) -> PubSubError:
    """Return what a failure of a file system means."""
    reason = getattr(error, "strerror", "") or readable(error)
    return DamagedError(
        f"{address}: cannot be read or written: {reason}. "
        "Nothing was changed: bring it back, or choose another place"
    )


def objects_error(address: str, error: Exception) -> PubSubError:
    """What a failure of an object store means: one paragraph, with what to do."""
    text = readable(error)
    for pattern, kind, meaning in _REASONS:
        if re.search(pattern, text):
            return kind(f"{address}: {meaning} ({text:.300})")
    return StorageFailedError(
        f"{address}: the object store has failed: {text:.600}. What is committed stays; run the "
        "same command again when the cause is mended"
    )
