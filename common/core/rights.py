"""What a key may do, as an operator writes it. `common/access/core/authorisation.py` decides by it.

    # clients/rights.yaml, beside sensor-1.key
    sensor-1:
      ids: [sensor-1, sensor-1.*]
      put: [readings.*]
      topics_max: 10

Patterns are globs (`*` any text, `?` one character, `[abc]` one of these). A right that is
not named is denied, a quota that is not named is not bounded by key (`proxy/access/quotas.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Final, Literal, TypeVar, get_args

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from .certificates import KEY_CHARS, is_key
from .errors import ConfigurationError
from .limits import CLIENT_ID_CHARS_MAX, NUMBER_MAX, PATTERN_CHARS_MAX
from .schemas import convert

PATTERNS_MAX: Final = 1_000  # of one right

R = TypeVar("R", bound="Rights")
_Glob = Annotated[str, Meta(min_length=1, max_length=PATTERN_CHARS_MAX)]
Bound = Annotated[int, Meta(ge=0, le=NUMBER_MAX)] | UnsetType
Rate = Annotated[int, Meta(ge=1, le=NUMBER_MAX)] | UnsetType
Quota = Literal[
    "connections_max",
    "clients_max",
    "topics_max",
    "subscriptions_max",
    "staged_bytes_max",
    "stored_bytes_max",
    "bytes_per_s_max",
]
QUOTAS: Final[tuple[Quota, ...]] = get_args(Quota)
Globs = Annotated[tuple[_Glob, ...], Meta(max_length=PATTERNS_MAX)]


class Rights(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What one key may do: each right with the names that it holds for, and its quotas."""

    ids: Globs | UnsetType = UNSET  # that it may use; unset: the name of the key
    put: Globs = ()  # topics; with their listeners, subscriptions and deliveries
    get: Globs = ()  # topics; subscribe, get, acknowledge, and be pushed to
    history: Globs = ()  # topics; read without a subscription
    dead_letters: Globs = ()  # topics that end with `.dead`: to reject into, and to read
    status: Globs = ()  # topics that are shown to it
    admin: Globs = ()  # topics to administer
    relay: bool = False  # whether it may speak for other keys, within its own rights
    # Quotas: how much of it the key may have. Unset: what the proxy as a whole may have.
    connections_max: Bound = UNSET  # to all endpoints of the process, that have said something
    clients_max: Bound = UNSET  # client ids, publishers and subscribers together
    topics_max: Bound = UNSET  # that it has made and that are not deleted
    subscriptions_max: Bound = UNSET  # that have not ended
    staged_bytes_max: Bound = UNSET  # of transactions that are not committed
    stored_bytes_max: Bound = UNSET  # of bodies that it has put, in all topics
    bytes_per_s_max: Rate = UNSET  # of bodies that it puts, stages or rejects; twice that at once

    @property
    def has_quotas(self) -> bool:
        """Whether any quota is said."""
        return any(getattr(self, word) is not UNSET for word in QUOTAS)


NOTHING: Final = Rights(ids=())


class KnownKey(Struct, frozen=True, kw_only=True):
    """A known key."""

    name: str
    rights: Rights = NOTHING
    expires: datetime | None = None  # it may not connect from then on


class _Entry(Rights, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The value of a YAML map of public keys."""

    name: Annotated[str, Meta(min_length=1, max_length=CLIENT_ID_CHARS_MAX)]


def clients_of(document: object, path: str) -> dict[str, KnownKey]:
    """Read a document that maps public keys to names, or to a name with its rights.

    Returns:
        The client by public key; one without rights may do nothing.

    Raises:
        ConfigurationError: it is another sort of document, or a key, name or right is not one.
    """
    if not isinstance(document, dict) or not document:
        raise ConfigurationError(
            f"{path}: expected a map of public keys to names, as `{'x' * 4}...: sensor-1`"
        )
    named: dict[str, str] = {}
    rights: dict[str, Rights] = {}
    for key, value in document.items():
        if not isinstance(key, str) or not is_key(key):
            raise ConfigurationError(
                f"{path}: {key!r:.80} is not a public key: expected {KEY_CHARS} characters of Z85, "
                "which `reliable-pubsub keys show NAME` prints; put it in quotes"
            )
        if isinstance(value, dict):
            entry = _converted(value, _Entry, f"{path}: the key {key}")
            named[key], rights[key] = entry.name, entry
        elif isinstance(value, str) and value:
            named[key] = value
        else:
            raise ConfigurationError(f"{path}: the key {key} has no name, but {value!r:.80}")
    return {
        key: KnownKey(name=name, rights=rights.get(key, NOTHING)) for key, name in named.items()
    }


def rights_of(document: object, path: str) -> dict[str, Rights]:
    """Read a document that maps names of keys to their rights.

    Raises:
        ConfigurationError: it is another sort of document, or a right is not one.
    """
    if document is None:
        return {}
    if not isinstance(document, dict):
        raise ConfigurationError(
            f"{path}: expected a map of names to rights, as `sensor-1: {{put: [readings.*]}}`"
        )
    return {name: _converted(one, Rights, f"{path}: {name}") for name, one in document.items()}


def with_rights(
    names: Mapping[str, str],
    rights: Mapping[str, Rights],
    expires: Mapping[str, datetime | None] = {},
) -> dict[str, KnownKey]:
    """The clients of a folder: a name without an entry may do nothing.

    Args:
        names: by public key. rights: by name; names without a key have no effect.
        expires: when keys expire, by public key.
    """
    return {
        key: KnownKey(name=name, rights=rights.get(name, NOTHING), expires=expires.get(key))
        for key, name in names.items()
    }


def _converted(value: object, kind: type[R], where: str) -> R:
    try:
        return convert(value, kind)
    except msgspec.ValidationError as error:
        words = ", ".join(field.name for field in msgspec.structs.fields(kind))
        raise ConfigurationError(
            f"{where}: {error}; expected rights with lists of patterns and quotas with numbers, "
            f"of {words}"
        ) from None
