"""A real proxy that knows keys, and rights if a test says some."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from reliable_pubsub import ProxyUnreachableError, RetryPolicy, secure
from reliable_pubsub.common.core.message_base import Reply
from reliable_pubsub.common.core.wire import encode
from reliable_pubsub.common.key_files import new_pair, read_public
from reliable_pubsub.common.transport import ReqTransport
from reliable_pubsub.relay.core.wire import decode_node_reply

from .harness import PATIENCE_S, Process, Service, eventually

ONCE = RetryPolicy(timeout_s=4.0, retries_max=0)
EVERYTHING: dict[str, Any] = {
    right: ["*"] for right in ("ids", "put", "get", "history", "dead_letters", "status", "admin")
}


class KeyedService(Service):
    """A service whose proxy has a key and knows `sensor-1`; `stranger` has one, too.

    Unless a test says something else, these two and `relay-1` may do everything.
    """

    def __init__(self, directory: Path) -> None:
        """Make the keys; the endpoints are those of `sensor-1`."""
        super().__init__(directory)
        self.more_options: tuple[str, ...] = ()  # of the proxy
        self.keys = directory / "keys"
        self.known = directory / "clients"
        self.known.mkdir()
        for name in ("proxy", "sensor-1", "stranger"):
            new_pair(self.keys, name)
        shutil.copy(self.keys / "sensor-1.key", self.known)
        self.say_rights(
            sensor_1=EVERYTHING, stranger=EVERYTHING, relay_1=EVERYTHING | {"relay": True}
        )

    def start(self) -> None:
        """Start the proxy; look at it as `sensor-1`."""
        keys = ("--secret-key", self.secret("proxy"), "--clients", self.known)
        self.start_proxy(*keys, *self.more_options)
        self.publisher_endpoint = self.reach(self.publisher_endpoint, "sensor-1")
        self.subscriber_endpoint = self.reach(self.subscriber_endpoint, "sensor-1")

    def secret(self, name: str) -> Path:
        """A file of a secret key."""
        return self.keys / f"{name}.key_secret"

    def reach(self, endpoint: str, name: str, server: str = "proxy") -> str:
        """An endpoint as one of the names reaches it."""
        return secure(endpoint, str(self.keys / f"{server}.key"), str(self.secret(name)))

    def is_heard(self, name: str) -> bool:
        """Whether the proxy answers one of the names."""
        endpoint = self.reach(self.publisher_endpoint, name)
        try:
            with self.open_publisher(name, endpoint=endpoint, retry=ONCE) as publisher:
                publisher.put("t", name.encode())
        except ProxyUnreachableError:
            return False
        return True

    # Rights.

    def add_key(self, name: str) -> None:
        """Make a key that the proxy knows."""
        new_pair(self.keys, name)
        shutil.copy(self.keys / f"{name}.key", self.known)

    def public(self, name: str) -> str:
        """A public key."""
        return read_public(str(self.keys / f"{name}.key"))

    def say_rights(self, **rights: Mapping[str, object]) -> None:
        """Write the rights of all names (`_` stands for `-`), as an editor does: at once."""
        text = json.dumps({name.replace("_", "-"): one for name, one in rights.items()})
        (self.directory / "rights.new").write_text(text)  # JSON is YAML
        os.replace(self.directory / "rights.new", self.known / "rights.yaml")

    def audit(self, count: int) -> list[dict[str, Any]]:
        """The lines of the audit log, once there are this many: a thread writes them."""

        def lines() -> list[str]:
            whole = (self.data_dir / "audit.jsonl").read_text().split("\n")[:-1]
            return whole if len(whole) >= count else []

        return [json.loads(line) for line in eventually(lines, "audit log")]

    def ask(self, endpoint: str, request: Any, body: bytes | None = None) -> Reply:
        """Ask by hand, whatever the library would say to it."""
        transport = ReqTransport(endpoint)
        try:
            transport.send(encode(request, body))
            frames = transport.receive(PATIENCE_S)
        finally:
            transport.close()
        assert frames is not None
        return decode_node_reply(frames[:2])

    def start_relay(
        self, name: str, above: str, *, server: str = "proxy", knows_keys: bool = True
    ) -> str:
        """Start a relay that knows the same keys; return its endpoint, without keys."""
        clients = ("--clients", self.known) if knows_keys else ()
        endpoint, push = self.own_endpoint(), self.own_endpoint()
        relay: Process = self.run(
            *("relay", "-i", name, "--endpoint", endpoint, "--push-endpoint", push),
            *("--upstream", str(above), *clients),
            *("--secret-key", self.secret(name), "--server-key", self.keys / f"{server}.key"),
        )
        relay.ready()
        return endpoint
