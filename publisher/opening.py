"""Opens what a publisher is made of: settings, journal, state, socket and engine."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from reliable_pubsub.common.asking import Asker
from reliable_pubsub.common.core import names
from reliable_pubsub.common.core.arguments import checked
from reliable_pubsub.common.core.payload import Codec
from reliable_pubsub.common.core.retry import RetryPolicy, Silence, unheard
from reliable_pubsub.common.journal_file import open_journal
from reliable_pubsub.common.opened import Client, Opened
from reliable_pubsub.common.state_file import open_state
from reliable_pubsub.common.surroundings import client_here
from reliable_pubsub.common.world import World, world_here

from .core.engine import MakeFeature, PublisherEngine
from .core.feature import PublisherOpening
from .core.outbox import Outbox
from .core.puts import Payloads, WaitingPut
from .core.session import OnLogChanged, PublisherSession


class OpenedPublisher(Client[PublisherEngine]):
    """A publisher of either kind: its arguments, and what it is made of."""

    _role = "publisher"
    _waits = True
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
        codecs: Mapping[str, Codec] | None = None,
        on_log_changed: OnLogChanged = "stop",
        on_silence: Silence = unheard,
        journal: Path | str | None = None,
        _world: World | None = None,
    ) -> None:
        """Lock and read the state; the proxy is asked at the first put.

        Args:
            client: 1 to 64 of `A-Z a-z 0-9 . -`; one running process for each id.
            endpoint, state_dir, retry: what is not given here is taken from the settings
                (`reliable-pubsub config show CLIENT`): settings.json, the environment, a default.
                By default there is no state_dir, and the state is in memory.
            allow_plaintext: accept an endpoint outside this machine. Traffic is not encrypted.
            codecs: by topic, what is put there is written with, for example {"orders":
                typed(Order)}: then it is checked at put to be an order, and nothing else can be
                put there.
            on_log_changed: when the proxy no longer has what it acknowledged: stop with an
                error, or adopt its numbering.
            on_silence: called for each attempt without an answer, as it happens.
            journal: append operations and their results to this file (docs/internals/journal.md).

        Raises:
            InvalidNameError, InUseError, DamagedError.
            ConfigurationError: a setting is wrong, an endpoint leaves this machine, or the journal
                cannot be opened.
        """
        client, world = names.client_id(client), _world or world_here()
        self._payloads = Payloads(codecs)
        self._waiting: list[WaitingPut] = []  # of other tasks, with asyncio
        here = client_here(
            self._role,
            client,
            *(endpoint, state_dir, retry),
            allow_plaintext=allow_plaintext,
            looks=world.is_real,
        )
        recorder = world.recorder or open_journal(journal, client)
        state = world.state or open_state(here.state_dir, self._role, client)
        self.outbox = outbox = Outbox(state.load())
        asker = Asker(
            client,
            here.endpoint,
            retry=here.retry,
            on_silence=on_silence,
            role=self._role,
            world=world,
        )
        session = PublisherSession(
            asker,
            outbox,
            nonce=world.token(16),
            on_log_changed=on_log_changed,
            recorder=recorder,
        )
        engine = PublisherEngine(
            session,
            outbox,
            recorder=recorder,
            features=self._features,
            opening=PublisherOpening(
                endpoint=asker.transport.endpoint,
                recorder=recorder,
                now_s=asker.clock.now_s,
                token=world.token,
                connect_data=world.connect_data,
            ),
        )
        super().__init__(client, Opened(self._role, recorder, state, asker, engine))
