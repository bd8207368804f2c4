"""The configuration found at run time: environment variables and `settings.json`.

Commands and library use it alike, so that a program reaches the same proxy with the same timeouts
as a command in the same place. An argument of a call has priority over everything found here.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from .core.endpoint import check_endpoint
from .core.keys import SecureEndpoint, keys_of_endpoint
from .core.message_base import Role
from .core.names import name_of_replica
from .core.resolving import (
    Resolved,
    resolve,
    settings_from_document,
    typed_settings,
    unknown_variables,
)
from .core.retry import RetryPolicy
from .core.settings import DIRECTORY_VARIABLE, Settings
from .descriptors import CLIENT_DESCRIPTORS, need_descriptors
from .key_files import client_keys


class Here(Struct, frozen=True):
    """The settings of a client: its arguments, else what was found."""

    endpoint: str
    state_dir: Path | str | None  # None: none was given, so the state is in memory
    retry: RetryPolicy
    settings: Settings


def resolve_here(
    component: str, said: Mapping[str, object], file: Mapping[str, Resolved] | None = None
) -> dict[str, Resolved]:
    """The settings of a process, each with its origin.

    Args:
        component: its own file is `$RELIABLE_PUBSUB_DIR/<component>/settings.json`.
        said: values with the highest priority.
        file: settings of a file that was given by name; they override `settings.json`.

    Raises:
        ConfigurationError: a value is wrong, also one that does not count; it names the origin.
    """
    path = Path(os.environ.get(DIRECTORY_VARIABLE, ".")) / component / "settings.json"
    found: dict[str, Resolved] = {}
    if path.exists():
        from .yaml_file import load_yaml  # 12 ms, and few processes have such a file

        found = settings_from_document(load_yaml(path))  # JSON is YAML
    return resolve(said, {**found, **(file or {})}, os.environ)


def client_here(
    role: Role,
    client: str,
    endpoint: str | None,
    state_dir: Path | str | None,
    retry: RetryPolicy | None,
    *,
    allow_plaintext: bool,
    push_via: str | None = None,
    looks: bool,
) -> Here:
    """Resolve the settings of a client of the library.

    Args:
        looks: False: the caller has passed a transport; use arguments and defaults only.

    Raises:
        ConfigurationError: a setting or key is wrong, or an endpoint leaves this machine and
            plaintext is not allowed.
        DescriptorsError: this process may not open as many files as a client needs.
    """
    if not looks:
        settings = typed_settings(resolve({}, None, {}))
        where: str = endpoint or getattr(
            settings, f"{role}_endpoint"
        )  # unless a transport was passed
        return Here(where, state_dir, retry or RetryPolicy(), settings)
    need_descriptors(CLIENT_DESCRIPTORS, f"client {client!r}")
    log = logging.getLogger(f"reliable_pubsub.{role}")
    for warning in unknown_variables(os.environ):
        log.warning(warning, extra={"client": client})
    found = resolve_here(name_of_replica(client), {"push_via": push_via})
    settings = typed_settings(found)
    if endpoint is None:
        endpoint = str(found[f"{role}_endpoint"].value)
    keys = keys_of_endpoint(endpoint) or client_keys(settings)
    if keys is not None:
        endpoint = SecureEndpoint(endpoint, keys)
    data = push_via or settings.push_via
    for place in [endpoint, data] if role == "subscriber" and data else [endpoint]:
        risk = check_endpoint(place, allow_plaintext, encrypted=keys is not None)
        if risk:
            log.warning(risk, extra={"client": client, "endpoint": place})
    if state_dir is None and found["state_dir"].origin != "default":
        state_dir = settings.state_dir
    if retry is None:
        retry = retry_policy(settings)
        if found["send_retries"].origin == "default":
            retry = replace(retry, retries_max=None)
    return Here(endpoint, state_dir, retry, settings)


def endpoint_here(component: str, role: Role, said: str | None) -> str:
    """Return the endpoint of a role, with the keys that a component's settings name.

    Args:
        said: has priority over the settings.

    Raises:
        ConfigurationError: a setting or a key is wrong.
    """
    settings = typed_settings(resolve_here(component, {}))
    keys = client_keys(settings)
    endpoint: str = getattr(settings, f"{role}_endpoint") if said is None else said
    return endpoint if keys is None else SecureEndpoint(endpoint, keys)


def retry_policy(settings: Settings) -> RetryPolicy:
    """The retry policy of the settings."""
    return RetryPolicy(timeout_s=settings.ack_timeout, retries_max=settings.send_retries)
