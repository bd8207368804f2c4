"""The proxy that the dialogues of `vectors.json` speak with: new, and with nothing by chance."""

from __future__ import annotations

from msgspec.structs import replace

from tests.fakes import EMPTY, MemoryProxy

STORE_ID = "9b1c7e22d04f5a36"
BOOT = "6f1d2c3b4a596877"
CLOCK_NS = 1_790_000_000_000_000_000


def a_proxy_of_dialogues() -> MemoryProxy:
    """A new proxy for each dialogue; its clock does not move."""
    proxy = MemoryProxy(replace(EMPTY, store_id=STORE_ID), boot=BOOT)
    proxy.now_ns = CLOCK_NS
    return proxy
