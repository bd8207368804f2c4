"""CURVE keys as values: pairs, and endpoints with the keys to reach them.

Every TCP endpoint can speak CURVE (ZeroMQ RFC 25/ZMTP-CURVE, RFC 26/CURVE): a client knows the
public key of the server beforehand, a server knows the keys of its clients through ZAP (RFC 27).
Keys are 40 characters of Z85 (RFC 32).
"""

from __future__ import annotations

from datetime import datetime

from msgspec import Struct


class KeyPair(Struct, frozen=True, kw_only=True):
    """A public key and its secret, in Z85."""

    public: str
    secret: str
    expires: datetime | None = None

    def __repr__(self) -> str:
        """Without the secret: values are printed in errors and logs."""
        return f"KeyPair(public={self.public!r})"


class ClientKeys(Struct, frozen=True, kw_only=True):
    """What a client needs to reach an encrypted endpoint."""

    own: KeyPair
    server: str  # public key of the endpoint; another server cannot answer


class SecureEndpoint(str):
    """An endpoint with the keys to reach it. It goes wherever an endpoint goes."""

    __slots__ = ("keys",)
    keys: ClientKeys

    def __new__(cls, endpoint: str, keys: ClientKeys) -> SecureEndpoint:
        """Args: as the fields; `endpoint` as `check_endpoint` takes it."""
        made = super().__new__(cls, endpoint)
        made.keys = keys
        return made

    def __getnewargs__(self) -> tuple[str, ClientKeys]:  # type: ignore[override]
        """So that it can be copied, and sent to tasks of Spark."""
        return str(self), self.keys


def keys_of_endpoint(endpoint: str) -> ClientKeys | None:
    """The keys to reach an endpoint; None: plaintext."""
    return endpoint.keys if isinstance(endpoint, SecureEndpoint) else None


class ServerKeys(Struct, frozen=True, kw_only=True):
    """What an endpoint needs to be encrypted."""

    own: KeyPair
    clients: str = ""  # folder or file of the keys that may connect; "": any key may
    audit_log: str = ""  # file of refused requests; "": where the process has its data, if it has
