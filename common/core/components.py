"""Which settings a component does not use: a proxy, a relay, a client by its id, or a command."""

from __future__ import annotations

from typing import Final

TOPIC_SETTINGS: Final = (  # of a proxy, also for single topics
    "history_bytes",
    "history_s",
    "history_messages",
    "waiting_messages_max",
    "topic_bytes_max",
    "on_bound",
)
_OF_REQUESTS: Final = frozenset({"ack_timeout", "send_retries"})
_OF_CLIENTS: Final = frozenset({"push_silence_min", "push_silence_max", "state_dir"})
_OF_RELAYS: Final = frozenset(
    {
        "relay_endpoint",
        "relay_push_endpoint",
        "relay_strategy",
        "relay_max_subscriptions",
        "relay_lease",
    }
)
_OF_SERVERS: Final = frozenset(
    {"clients", "audit_log", "metrics_endpoint", "metrics_token"}
    | {"connections_max", "connections_per_s_max"}
)
_OF_PROXIES: Final = frozenset(
    {
        "push_endpoint",
        "ingress_endpoint",
        "data_dir",
        "store",
        "durability",
        "snapshot_interval_ms",
        "topics_max",
        "clients_max",
        "subscriptions_per_topic_max",
        "publishers_per_topic_max",
        "staged_bytes_max",
        "stored_bytes_max",
        *TOPIC_SETTINGS,
    }
)
_BY_CLIENTS: Final = _OF_RELAYS | _OF_SERVERS | _OF_PROXIES
_BY_COMMANDS: Final = _BY_CLIENTS | _OF_CLIENTS | {"push_via"}
_UNUSED_BY: Final = {
    "proxy": _OF_REQUESTS | _OF_CLIENTS | _OF_RELAYS | {"push_via", "server_key"},
    "relay": _OF_REQUESTS | _OF_CLIENTS | _OF_PROXIES | {"publisher_endpoint"},
    **dict.fromkeys(("status", "admin", "topology", "console", "shell", "pipeline"), _BY_COMMANDS),
}
COMPONENTS: Final = tuple(_UNUSED_BY)  # that are no ids


def unused_settings(component: str, *, is_client: bool) -> frozenset[str]:
    """Return the names of the settings that have no effect for a component.

    Args:
        is_client: a publisher or subscriber has this id; else a relay may have it, too.
    """
    of_an_id = _BY_CLIENTS if is_client else _OF_PROXIES
    return _UNUSED_BY.get(component, of_an_id)
