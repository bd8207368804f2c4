"""Which value of a setting is used.

Command line > settings file > environment > default. Each value keeps its origin, so that
`config show` can say where it comes from. Every value that is given is checked, also one that a
higher origin overrides: an error in a file is reported now, not when the value is first used.

Nothing here opens a file or looks at the process's environment: both are arguments.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Struct

from .connection_string import without_password
from .endpoint import endpoints_of, host_of
from .errors import ConfigurationError
from .schemas import convert
from .settings import (
    BY_NAME,
    DIRECTORY_VARIABLE,
    ENVIRONMENT_PREFIX,
    SETTINGS,
    Setting,
    Settings,
    Value,
)
from .wording import did_you_mean, facts, first_of, in_words, key_in_words, refused

if TYPE_CHECKING:
    from ..yaml_file import Document


class Resolved(Struct, frozen=True):
    """The value that is used, and its origin."""

    value: Value
    origin: str  # "--ack-timeout", "settings.json", "RELIABLE_PUBSUB_ACK_TIMEOUT" or "default"


def resolve(
    command_line: Mapping[str, object],
    file: Mapping[str, Resolved] | None,
    environment: Mapping[str, str],
) -> dict[str, Resolved]:
    """Return the value of highest priority for each setting, in the order of the table.

    Args:
        command_line: by setting name, text or already parsed; None means "not given". A `Resolved`
            has the option that gave it as its origin, if that is not called as the setting is.
        file: from `settings_from_document`.
        environment: all variables of the process; only those of the table are read.

    Raises:
        ConfigurationError: all problems, one line for each value, naming flag or variable.
    """
    problems: list[str] = []
    given: dict[str, Resolved] = {}
    for setting in SETTINGS:
        if setting.variable in environment:
            text = environment[setting.variable]
            origin = setting.variable
            _take(given, problems, setting, text, where=origin, origin=origin, from_text=True)
    given.update(file or {})
    for name, value in command_line.items():
        if value is None:
            continue
        if name not in BY_NAME:
            flag = "--" + name.replace("_", "-")
            problems.append(f"{flag}: unknown setting{did_you_mean(name, BY_NAME)}")
            continue
        flag, said = BY_NAME[name].flag, value
        if isinstance(value, Resolved):
            flag, said = value.origin, value.value
        _take(given, problems, BY_NAME[name], said, where=flag, origin=flag, from_text=True)
    if problems:
        raise ConfigurationError("\n".join(problems))
    return {
        setting.name: given.get(setting.name, Resolved(setting.default, "default"))
        for setting in SETTINGS
    }


def typed_settings(resolved: Mapping[str, Resolved]) -> Settings:
    """Convert the values of `resolve` to `Settings`."""
    return convert({name: item.value for name, item in resolved.items()}, Settings)


def settings_from_document(document: Document) -> dict[str, Resolved]:
    """Read the settings of a file: a mapping, its keys the names of the table.

    Raises:
        ConfigurationError: not a mapping, unknown keys, values of the wrong type or out of range;
            with lines.
    """
    if not isinstance(document.data, dict):
        raise ConfigurationError(
            f"{document.path}, line {document.line_of(())}: found {in_words(document.data)}, "
            "expected a mapping of settings such as ack_timeout: 2.0"
        )
    problems: list[str] = []
    taken: dict[str, Resolved] = {}
    for name, value in document.data.items():
        origin = f"{document.path}, line {document.key_line_of((name,))}"
        where = f"{origin}, {key_in_words(name)}"
        if name in BY_NAME:
            setting = BY_NAME[name]
            _take(taken, problems, setting, value, where=where, origin=origin, from_text=False)
        else:
            advice = did_you_mean(name, BY_NAME) or f"; known are {', '.join(BY_NAME)}"
            problems.append(f"{where}: unknown setting{advice}")
    if problems:
        raise ConfigurationError(first_of(problems))
    return taken


def unknown_variables(environment: Mapping[str, str]) -> list[str]:
    """Warn, in one sentence each, of variables that only look like a setting.

    Those that Kubernetes sets for a service with our name have one sentence together.
    """
    known = [DIRECTORY_VARIABLE, *(setting.variable for setting in SETTINGS)]
    unknown = [
        name
        for name in sorted(environment)
        if name.startswith(ENVIRONMENT_PREFIX) and name not in known
    ]
    of_services = [name for name in unknown if _is_of_service(name, environment[name])]
    warnings = [
        f"{name}: unknown variable; it has no effect{did_you_mean(name, known)}"
        for name in unknown
        if name not in of_services
    ]
    if of_services:
        warnings.append(
            f"variables such as {of_services[0]} ({len(of_services)} in all) have no effect: "
            "Kubernetes sets them for a service whose name begins with reliable-pubsub. To end "
            "this warning, set enableServiceLinks: false in the pod, or rename the service"
        )
    return warnings


_OF_SERVICE: Final = re.compile(
    r"_(SERVICE_(HOST|PORT(_\w+)?)|PORT_[0-9]+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)\Z"
)


def _is_of_service(name: str, value: str) -> bool:
    """Return whether Kubernetes set this variable, as it does for each service of a namespace."""
    return bool(_OF_SERVICE.search(name)) or (name.endswith("_PORT") and "://" in value)


def _take(
    taken: dict[str, Resolved],
    problems: list[str],
    setting: Setting,
    value: object,
    *,
    where: str,
    origin: str,
    from_text: bool,
) -> None:
    """Note a value under its setting, or what is wrong with it."""
    parsed = _parse(setting, value, from_text=from_text)
    if parsed is None:
        problem = refused(value, setting.type, expects=setting.expected)
        problems.append(f"{where}: {without_password(problem)}")
    else:
        taken[setting.name] = Resolved(parsed, origin)


def _parse(setting: Setting, value: object, *, from_text: bool) -> Value | None:
    """Return the value of a setting, or None if it is invalid.

    Args:
        from_text: text such as "2.5" is a number, as on the command line; in a file it is not.
    """
    try:
        given = value.strip() if from_text and isinstance(value, str) else value
        parsed: Value = convert(given, setting.type, strict=not from_text)
    except msgspec.ValidationError:
        return None
    before = _SCHEMES.get(str(facts(setting.type).get("format")))
    nothing = parsed == setting.default == ""
    if before is None or nothing:
        return parsed
    hosts = [host_of(f"{before}{one}", bind=True) for one in endpoints_of(str(parsed))]
    return None if None in hosts else parsed


_SCHEMES: Final = {"endpoint": "", "address": "tcp://"}  # by format: what `host_of` reads besides
