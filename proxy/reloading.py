"""SIGHUP: settings that can change while the proxy runs are read again (`systemctl reload`).

These are bounds and retention, by which requests are decided. What names a file, a socket or the
meaning of an acknowledgement is fixed at the start; a change of it is named, and waits for a
restart. Keys and rights need no signal: their folder is watched.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import Final

import msgspec
from msgspec import Struct

from reliable_pubsub.common import threads
from reliable_pubsub.common.access.core.inflow import ConnectionBounds
from reliable_pubsub.common.command_line import complain
from reliable_pubsub.common.core.errors import PubSubError
from reliable_pubsub.common.core.settings import BY_NAME, Settings
from reliable_pubsub.common.notify import ServiceManager
from reliable_pubsub.common.topic_settings import TOPIC_SETTINGS

from .core.state import BrokerSettings

RELOADABLE: Final = (
    "topics_max",
    "clients_max",
    "subscriptions_per_topic_max",
    "publishers_per_topic_max",
    "staged_bytes_max",
    "stored_bytes_max",
    "connections_max",
    "connections_per_s_max",
    *TOPIC_SETTINGS,
)


class Configured(Struct, frozen=True):
    """The settings of a proxy, as they are written at one moment."""

    settings: Settings
    broker: BrokerSettings  # what of them the core decides by, with those of single topics

    @property
    def connections(self) -> ConnectionBounds:
        """What of them the entrance decides by."""
        settings = self.settings
        return ConnectionBounds(
            connections_max=settings.connections_max, per_s_max=settings.connections_per_s_max
        )


def changed_settings(before: Configured, now: Configured) -> tuple[Sequence[str], Sequence[str]]:
    """What has changed, in words: what takes effect, and what needs a restart."""
    effective, fixed = [], []
    for name in Settings.__struct_fields__:
        old, new = getattr(before.settings, name), getattr(now.settings, name)
        if old != new and name in RELOADABLE:
            shown = BY_NAME[name].shown
            effective.append(f"{name} {shown(old)} -> {shown(new)}")
        elif old != new:
            fixed.append(name)
    old_topics, new_topics = before.broker.topics, now.broker.topics
    effective += [
        f"topics.{topic}"
        for topic in sorted({*old_topics, *new_topics})
        if old_topics.get(topic) != new_topics.get(topic)
    ]
    return effective, fixed


class Reloading:
    """Reads settings again at SIGHUP."""

    def __init__(
        self,
        now: Configured,
        *,
        read: Callable[[], Configured],
        use: Callable[[Configured], None],
        manager: ServiceManager,
        ready: str,
    ) -> None:
        """Settings as they are in use.

        Args:
            read: reads them again.
            use: is given what is to be decided by from now on; safe from any thread.
            manager: is notified of it. ready: its status line.
        """
        self._now = now
        self._read, self._use = read, use
        self._manager, self._ready = manager, ready
        self._asked: SimpleQueue[None] = SimpleQueue()  # the one queue that a handler may put to
        threads.start(self._run, name="reload")

    def begin(self) -> None:
        """Reload in a thread, so that no request waits for a file; safe in a signal handler."""
        self._asked.put(None)

    def _run(self) -> None:
        while True:
            self._asked.get()
            self.reload()

    def reload(self) -> None:
        """Read, compare, use; a mistake in the file changes nothing."""
        self._manager.reloading()
        try:
            found = self._read()
        except PubSubError as error:
            complain(
                f"error [{error.code}]: nothing was reloaded, and the proxy goes on as before: "
                f"{error}"
            )
        else:
            self._take(found)
        self._manager.ready(self._ready)

    def _take(self, found: Configured) -> None:
        effective, fixed = changed_settings(self._now, found)
        self._use(found)
        complain(f"reloaded: {', '.join(effective) or 'nothing has changed that can'}")
        if fixed:
            complain(f"warning: these take effect at the next start only: {', '.join(fixed)}")
        in_use = {name: getattr(self._now.settings, name) for name in fixed}
        self._now = Configured(msgspec.structs.replace(found.settings, **in_use), found.broker)
