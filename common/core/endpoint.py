"""Endpoints: their form, and whether they are reachable from other machines."""

from __future__ import annotations

import ipaddress
import re
from typing import Final

from .errors import ConfigurationError

ENDPOINT_EXAMPLE: Final = "tcp://127.0.0.1:5555 or ipc:///run/pubsub.sock"
ADDRESS_EXAMPLE: Final = "127.0.0.1:9464"
IPC_PATH_BYTES_MAX: Final = 107  # of a Unix socket's address on Linux


_NEXT = re.compile(r",(?=tcp://|ipc://)")


def endpoints_of(several: str) -> list[str]:
    """The endpoints of a service that may be at any of them: `tcp://a:5555,tcp://b:5555`."""
    return _NEXT.split(several)


def check_endpoint(
    endpoint: str,
    allow_plaintext: bool,
    *,
    bind: bool = False,
    encrypted: bool = False,
    allowing: str = "pass --allow-plaintext (in a program allow_plaintext=True)",
) -> str | None:
    """Accept `tcp://host:port` or `ipc://path`, and for a client several of them with commas.

    Returns a warning, or None.

    Args:
        allow_plaintext: accept an address outside this machine. Traffic is not encrypted.
        bind: accept what only a server can use: every interface (`*`), a port chosen by the
            system (`*`).
        encrypted: traffic is encrypted, so an address outside this machine is no risk.
        allowing: how a person allows plaintext here.

    Raises:
        ConfigurationError: another form, or an address outside this machine without
            `allow_plaintext` or encryption. Loopback is 127.0.0.0/8, ::1 and localhost; ipc is
            local.
    """
    if not bind and len(several := endpoints_of(endpoint)) > 1:
        risks = [
            check_endpoint(one, allow_plaintext, encrypted=encrypted, allowing=allowing)
            for one in several
        ]
        return next((risk for risk in risks if risk), None)
    host = host_of(endpoint, bind=bind)
    if host is None:
        expected = f"expected an endpoint such as {ENDPOINT_EXAMPLE}"
        raise ConfigurationError(f"endpoint {endpoint!r:.120}: {expected}")
    if encrypted or is_local(host):
        return None
    facts = f"endpoint {endpoint} is not a loopback address, and traffic is not encrypted: who "
    facts += "can see the network can read and forge messages"
    if not allow_plaintext:
        raise ConfigurationError(
            f"{facts}; use keys (reliable-pubsub keys --help), or {allowing} if that network is "
            "trusted"
        )
    return facts


def check_http_address(
    address: str, allow_plaintext: bool, *, has_token: bool = False
) -> str | None:
    """Accept `host:port` for a page that is served without encryption; return a warning, or None.

    Args:
        has_token: the page asks for a token.

    Raises:
        ConfigurationError: another form, or an address outside this machine without
            `allow_plaintext` and without a token.
    """
    host = host_of(f"tcp://{address}", bind=True)
    if host is None:
        expected = f"expected an address such as {ADDRESS_EXAMPLE}"
        raise ConfigurationError(f"metrics_endpoint {address!r:.120}: {expected}")
    if is_local(host) or has_token:
        return None
    facts = (
        f"metrics_endpoint {address} is not a loopback address: who can reach it reads the names "
        "of topics and subscribers, without a key"
    )
    if not allow_plaintext:
        raise ConfigurationError(
            f"{facts}; set --metrics-token to the file of a token that /metrics asks for, or pass "
            "--metrics-allow-plaintext if that network is trusted (--allow-plaintext is for the "
            "endpoints of messages)"
        )
    return facts


def data_endpoint_of(requests: str, default: str) -> str:
    """The default data endpoint: on the interface of the request endpoint.

    Args:
        requests: the request endpoint of the same peers; with `ipc:` the default is returned.
        default: gives the port.
    """
    host = host_of(requests, bind=True)
    return tcp_endpoint(host, default.rsplit(":", 1)[1]) if host else default


def with_any_port(endpoint: str) -> str:
    """The same interface, with a port chosen by the system."""
    return tcp_endpoint(host_of(endpoint, bind=True) or "127.0.0.1", "*")


def tcp_endpoint(host: str, port: str) -> str:
    """Return the endpoint of a host as `host_of` returns it."""
    return f"tcp://[{host}]:{port}" if ":" in host else f"tcp://{host}:{port}"


def reaches_requests_only(requests: str, data: str) -> bool:
    """Whether other machines reach the request endpoint but not its data endpoint."""
    hosts = [host_of(one, bind=True) for one in (requests, data)]
    return [host is not None and is_local(host) for host in hosts] == [False, True]


_TCP = re.compile(r"tcp://(?:\[(?P<v6>[^\]]*)\]|(?P<host>[^:\[\]/]+)):(?P<port>\*|[0-9]{1,5})\Z")
_HOST_NAME = re.compile(r"(?=.{1,253}\Z)[A-Za-z0-9_]([A-Za-z0-9._-]*[A-Za-z0-9_])?\Z")
_DIGITS_AND_DOTS = re.compile(r"[0-9.]+\Z")


def host_of(endpoint: str, *, bind: bool) -> str | None:
    """Return the host of a well-formed endpoint, "" for ipc, or None for another form."""
    if endpoint.startswith("ipc://"):
        path = endpoint.removeprefix("ipc://")
        size = len(path.encode(errors="replace"))
        return "" if 1 <= size <= IPC_PATH_BYTES_MAX and "\0" not in path else None
    match = _TCP.match(endpoint)
    if not match:
        return None
    port_fits = bind if match["port"] == "*" else 1 <= int(match["port"]) <= 65_535
    if not port_fits:
        return None
    if match["v6"] is not None:
        return match["v6"] if _address_of(match["v6"], ipaddress.IPv6Address) else None
    host = match["host"]
    if host == "*":
        return host if bind else None
    if _DIGITS_AND_DOTS.match(host):
        return host if _address_of(host, ipaddress.IPv4Address) else None
    return host if _HOST_NAME.match(host) else None


def _address_of(
    host: str, kind: type[ipaddress.IPv4Address] | type[ipaddress.IPv6Address]
) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return kind(host)
    except ValueError:
        return None


def is_local(host: str) -> bool:
    """Whether a host of `host_of` is this machine."""
    if host == "" or host.lower() == "localhost":
        return True
    kind = ipaddress.IPv6Address if ":" in host else ipaddress.IPv4Address
    address = _address_of(host, kind)
    if isinstance(address, ipaddress.IPv6Address):
        address = address.ipv4_mapped or address
    return address is not None and address.is_loopback


def is_ipv6(endpoint: str) -> bool:
    """Return whether it names an IPv6 address, as `tcp://[::1]:5555` does."""
    return ":" in (host_of(endpoint, bind=True) or "")
