"""Opens what a subscriber is made of: settings, journal, state, socket and engine."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from reliable_pubsub.common.asking import Asker
from reliable_pubsub.common.core import names
from reliable_pubsub.common.core.arguments import checked
from reliable_pubsub.common.core.retry import RetryPolicy, Silence, unheard
from reliable_pubsub.common.core.stopping import StopSignal
from reliable_pubsub.common.journal_file import open_journal
from reliable_pubsub.common.opened import Client, Opened
from reliable_pubsub.common.state_file import open_state
from reliable_pubsub.common.surroundings import client_here
from reliable_pubsub.common.world import World, world_here

from .core.engine import MakeFeature, SubscriberEngine
from .core.feature import Opening
from .core.fetching import OnLowerQoS
from .core.inbox import Inbox
from .core.push_timing import PushTiming
from .core.session import SubscriberSession
from .core.subscribing import OnLogChanged
from .qos_warning import warn_of_lower_qos


class OpenedSubscriber(Client[SubscriberEngine]):
    """A subscriber of either kind: its arguments, and what it is made of."""

    _role = "subscriber"
    _waits = False
    _features: ClassVar[tuple[MakeFeature, ...]] = ()

    @checked
    def __init__(
        self,
        client: str,
        *,
        endpoint: str | None = None,
        state_dir: Path | str | None = None,
        retry: RetryPolicy | None = None,
        allow_plaintext: bool = False,
        on_log_changed: OnLogChanged = "stop",
        on_silence: Silence = unheard,
        on_lower_qos: OnLowerQoS = warn_of_lower_qos,
        journal: Path | str | None = None,
        push_timing: PushTiming | None = None,
        push_via: str | None = None,
        _world: World | None = None,
    ) -> None:
        """Lock and read the state; the proxy is asked at the first call.

        Args:
            client: 1 to 64 of `A-Z a-z 0-9 . -`; one running process for each id.
            endpoint, state_dir, retry: what is not given here is taken from the settings
                (`reliable-pubsub config show CLIENT`): settings.json, the environment, a default.
                By default there is no state_dir, and the state is in memory.
            allow_plaintext: accept an endpoint outside this machine. Traffic is not encrypted.
            on_log_changed: if the proxy's log is not the one of the stored position: stop with an
                error, rewind to its start (may repeat), or adopt its end (may miss).
            on_silence: called for each attempt that goes unanswered.
            on_lower_qos: called once for each topic and publisher whose messages have a lower level
                than the subscription.
            push_timing: when a pushed topic is pulled nevertheless.
            push_via: endpoint of pushed data, if it differs from the one that the proxy announces,
                for example because of a tunnel.
            journal: append operations and their results to this file (docs/internals/journal.md).

        Raises:
            InvalidNameError, InUseError, DamagedError.
            ConfigurationError: a setting is wrong, an endpoint leaves this machine, or the journal
                cannot be opened.
        """
        client, world = names.client_id(client), _world or world_here()
        self._stops = StopSignal()
        here = client_here(
            self._role,
            client,
            *(endpoint, state_dir, retry),
            allow_plaintext=allow_plaintext,
            push_via=push_via,
            looks=world.is_real,
        )
        recorder = world.recorder or open_journal(journal, client)
        state = world.state or open_state(here.state_dir, self._role, client)
        nonce = world.token(16)
        stored, run = state.load(), int.from_bytes(nonce[:4], "big")
        self.inbox = inbox = Inbox(stored, lambda: state.marks, run=run)
        asker = Asker(
            client,
            here.endpoint,
            retry=here.retry,
            on_silence=on_silence,
            role=self._role,
            world=world,
        )
        engine = SubscriberEngine(
            SubscriberSession(asker, inbox, nonce=nonce, recorder=recorder),
            stored,
            on_log_changed=on_log_changed,
            on_lower_qos=on_lower_qos,
            now_s=asker.clock.now_s,
            features=self._features,
            opening=Opening(
                client=client,
                endpoint=here.endpoint,
                settings=here.settings,
                push_timing=push_timing,
                connect_data=world.connect_data,
            ),
        )
        super().__init__(client, Opened(self._role, recorder, state, asker, engine))
        self._gate.undo = inbox.undo

    def stop(self) -> None:
        """End `run` and loops over `messages` after the current message, or while waiting for one.

        They return as if there were no more messages, in less than 2 s, even while the proxy is
        unreachable or a failed handler pauses (its message is redelivered). If none is open, the
        next one ends. An unanswered `subscribe` raises `StoppedError`. You may call it from a
        handler, a signal handler or another thread.
        """
        self._stops.set()
