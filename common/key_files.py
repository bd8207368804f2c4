"""Key files: written once with the rights they need, read without following strangers' links."""

from __future__ import annotations

import os
import re
import stat
from datetime import datetime
from pathlib import Path
from typing import Final, Literal

from .core.arguments import checked
from .core.certificates import (
    NO_DATES,
    PUBLIC_SUFFIX,
    SECRET_SUFFIX,
    KeyDates,
    certificate,
    is_key,
    parse_certificate,
    parse_dates,
)
from .core.endpoint import check_endpoint
from .core.errors import ConfigurationError
from .core.keys import ClientKeys, KeyPair, SecureEndpoint, ServerKeys
from .core.names import client_id
from .core.rights import KnownKey, clients_of, rights_of, with_rights
from .core.settings import Settings
from .owner import denied_to, ids_of, owner_of
from .system import system_errors

FILE_BYTES_MAX: Final = 64 * 1024
RIGHTS_FILE: Final = "rights.yaml"  # in a folder of clients


def new_pair(
    folder: Path, name: str, dates: KeyDates = NO_DATES, *, owner: str = "", group: str = ""
) -> tuple[Path, Path]:
    """Make a key pair; write `NAME.key` and `NAME.key_secret` (0600) into a folder.

    Args:
        owner: of the files, and of the folder if it is new; "": the user of this process.
        group: the same; it may then read the secret (0640).

    Returns:
        The public and the secret file.

    Raises:
        InvalidNameError: the name is no client id.
        ConfigurationError: one of the files exists, or cannot be written or given away.
    """
    name = client_id(name)
    uid, gid = ids_of(owner, group)
    pair = _new_keys()
    public_file, secret_file = (folder / (name + end) for end in (PUBLIC_SUFFIX, SECRET_SUFFIX))
    try:
        is_new = not folder.exists()
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        mode = 0o640 if group else 0o600
        _write(secret_file, certificate(name, pair.public, pair.secret, dates), mode, uid, gid)
        try:
            if is_new:
                os.chown(folder, uid, gid)
                folder.chmod(0o750 if group else 0o700)
            public = certificate(name, pair.public, dates=dates)
            _write(public_file, public, 0o644, uid, gid)
        except OSError:
            secret_file.unlink()  # of a pair that was not made
            raise
    except FileExistsError as error:
        raise ConfigurationError(
            f"{error.filename} exists: a key is never overwritten. Choose another name, or remove "
            f"{public_file.name} and {secret_file.name} if nothing uses them any more"
        ) from None
    except OSError as error:
        raise ConfigurationError(
            f"cannot write the key {error.filename}: {error.strerror}"
        ) from error
    return public_file, secret_file


def _new_keys() -> KeyPair:
    import zmq  # the commands that talk with no proxy do without

    public, secret = (key.decode() for key in zmq.curve_keypair())
    return KeyPair(public=public, secret=secret)


def _write(path: Path, text: str, mode: int, uid: int, gid: int) -> None:
    """Write a new file, and give it away by its descriptor: its folder may be another user's."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        with os.fdopen(os.open(path, flags, 0o600), "w", encoding="ascii") as file:
            os.fchown(file.fileno(), uid, gid)
            os.fchmod(file.fileno(), mode)
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
    except FileExistsError:
        raise
    except OSError:
        path.unlink(missing_ok=True)
        raise


def _read(path: Path, *, secret_readers: Literal["owner", "group"] | None = None) -> str:
    """Read a key file.

    Args:
        secret_readers: who may read a secret; None: it is none.

    Raises:
        ConfigurationError: it is another user's link or no file, cannot be read, or others may read
            a secret.
    """

    def unreadable(error: OSError) -> ConfigurationError:
        return ConfigurationError(
            f"the key file {path} cannot be read: {error.strerror}{denied_to(path, error)}"
        )

    try:
        with system_errors(unreadable):
            if os.lstat(path).st_uid not in (0, os.geteuid()) and os.path.islink(path):
                raise ConfigurationError(
                    f"the key file {path} cannot be read: it is a link of {owner_of(path)}, and "
                    "only links of root or of the process's own user are followed"
                )
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except ValueError as error:  # a NUL, or no UTF-8 form
        raise ConfigurationError(
            f"the key file {str(path)!r:.120} cannot be read: no file can have this name"
        ) from error
    try:
        facts = os.fstat(descriptor)
        mode = facts.st_mode
        if not stat.S_ISREG(mode):  # `open` does not take a folder
            raise ConfigurationError(f"{path} is no file: expected a key file")
        # As libpq: root may let a group read it, such as that of a Kubernetes Secret.
        for_group = secret_readers == "group" or facts.st_uid == 0
        if secret_readers and mode & (0o037 if for_group else 0o077):
            raise ConfigurationError(
                f"others may read the secret key {path} (mode {stat.S_IMODE(mode):04o}): run "
                f"`chmod 600 {path}`; if another user may have read it, make a new one. Only "
                "root's file may be group-readable (0640 or 0440), unless secret_key_readers is "
                "`group`"
            )
        with open(descriptor, "rb", closefd=False) as file:
            return file.read(FILE_BYTES_MAX).decode("ascii", errors="replace")
    finally:
        os.close(descriptor)


def read_pair(path: Path, readers: Literal["owner", "group"] = "owner") -> KeyPair:
    """Read a file that `keys new` wrote.

    Args:
        path: `NAME.key_secret`, or `NAME.key` beside it.
        readers: who may read it besides root.

    Raises:
        ConfigurationError: it cannot be read safely, or holds no secret key.
    """
    path = path.with_suffix(SECRET_SUFFIX) if path.suffix == PUBLIC_SUFFIX else path
    text = _read(path, secret_readers=readers)
    public, secret = parse_certificate(text, str(path))
    if secret is None:
        raise ConfigurationError(f"{path}: holds no secret key: name the file {SECRET_SUFFIX}")
    expires = parse_dates(text, str(path)).expires
    return KeyPair(public=public, secret=secret, expires=expires)


def read_dates(path: Path) -> KeyDates:
    """Read the dates of a public key from its file.

    Raises:
        ConfigurationError: it cannot be read, or a date has another form.
    """
    return parse_dates(_read(path), str(path))


def read_public(text: str) -> str:
    """A public key, given as such or as the path of its file.

    A path may have the length and the characters of a key; what ends as a key file does, is one.

    Raises:
        ConfigurationError: the file cannot be read or holds no key.
    """
    if is_key(text) and not text.endswith(PUBLIC_SUFFIX):
        return text
    if not text:
        raise ConfigurationError(
            "the public key of the server is empty: expected the key, or the path of its "
            f"{PUBLIC_SUFFIX} file"
        )
    return parse_certificate(_read(Path(text)), text)[0]


def public_files(folder: Path) -> list[Path]:
    """Return the files of public keys in a folder.

    Raises:
        ConfigurationError: it cannot be listed; `Path.glob` would find nothing.
    """
    try:
        names = os.listdir(folder)
    except OSError as error:
        raise ConfigurationError(
            f"the key folder {folder} cannot be listed: {error.strerror}{denied_to(folder, error)}"
        ) from error
    return [folder / name for name in sorted(names) if name.endswith(PUBLIC_SUFFIX)]


def read_clients(path: Path) -> dict[str, KnownKey]:
    """Who may connect, and what each may do.

    A folder has `NAME.key` files and perhaps `rights.yaml`, a map of names to rights. A YAML file
    maps public keys to names, or to a name and its rights.

    Returns:
        The client by public key.

    Raises:
        ConfigurationError: it is not there, a file is wrong, or one key has two names.
    """
    from .yaml_file import load_yaml  # few processes read YAML: 12 ms

    if not path.is_dir():
        return clients_of(load_yaml(path).data, str(path))
    names: dict[str, str] = {}
    expires: dict[str, datetime | None] = {}
    for file in public_files(path):
        text = _read(file)
        key = parse_certificate(text, str(file))[0]
        expires[key] = parse_dates(text, str(file)).expires
        if key in names:
            raise ConfigurationError(
                f"{path}: {names[key]} and {file.stem} have the same key: remove one file"
            )
        names[key] = file.stem
    rights = path / RIGHTS_FILE
    said = load_yaml(rights).data if os.path.lexists(rights) else None
    return with_rights(names, rights_of(said, str(rights)), expires)


@checked
def secure(endpoint: str, server_key: str, secret_key: str = "") -> str:
    """An endpoint that is reached by keys, for every argument that takes an endpoint.

    Args:
        server_key: the public key of the proxy or relay there, or its `.key` file. Another server
            cannot answer.
        secret_key: the file of the client's own key (`reliable-pubsub keys new`); "": one that
            ends with this process, enough where the server accepts any key.

    Raises:
        ConfigurationError: a key cannot be read, or the endpoint has another form.
    """
    check_endpoint(endpoint, allow_plaintext=False, encrypted=True)
    return SecureEndpoint(endpoint, _client_keys(server_key, secret_key))


def _client_keys(
    server_key: str, secret_key: str, readers: Literal["owner", "group"] = "owner"
) -> ClientKeys:
    own = read_pair(Path(secret_key), readers) if secret_key else _new_keys()
    return ClientKeys(own=own, server=read_public(server_key))


def client_keys(settings: Settings) -> ClientKeys | None:
    """The keys of a client, by its settings; None: it speaks plaintext.

    Raises:
        ConfigurationError: a key cannot be read, or there is one for the client and none to expect
            of the server.
    """
    if not settings.server_key:
        if settings.secret_key:
            raise ConfigurationError(
                "secret_key without server_key: a client must know the public key of the server "
                "that it talks with; set server_key (--server-key) to it"
            )
        return None
    return _client_keys(settings.server_key, settings.secret_key, settings.secret_key_readers)


def read_token(settings: Settings) -> str:
    """Return the token of the metrics; "": there is none.

    Raises:
        ConfigurationError: its file cannot be read, or holds no token.
    """
    if not settings.metrics_token:
        return ""
    path = Path(settings.metrics_token)
    token = _read(path, secret_readers=settings.secret_key_readers).strip()
    if not re.fullmatch(r"[A-Za-z0-9._~+/=-]{16,}", token):
        raise ConfigurationError(
            f"{path}: holds no token: expected one line of at least 16 letters, digits and "
            "._~+/=-, such as `openssl rand -hex 32` prints"
        )
    return token


def server_keys(settings: Settings, *, are_required: bool = False) -> ServerKeys | None:
    """The keys of a proxy or relay, by its settings; None: its endpoints are plaintext.

    Args:
        are_required: refuse to do without (`--require-keys`).

    Raises:
        ConfigurationError: the key cannot be read, there are clients and no key, or keys are
            required and missing.
    """
    missing = [one for one in ("secret_key", "clients") if not getattr(settings, one)]
    if are_required and missing:
        raise ConfigurationError(
            f"--require-keys: {' and '.join(missing)} not set, so any client could connect. Set "
            "secret_key to a .key_secret file (`reliable-pubsub keys new`) and clients to the "
            "folder of the keys that may connect"
        )
    if not settings.secret_key:
        if settings.clients:
            raise ConfigurationError(
                "clients without secret_key: clients are identified by their keys only; make a key "
                "with `reliable-pubsub keys new proxy` and set secret_key to its .key_secret file"
            )
        return None
    own = read_pair(Path(settings.secret_key), settings.secret_key_readers)
    return ServerKeys(own=own, clients=settings.clients, audit_log=settings.audit_log)
