"""Opens what a publisher is made of: settings, journal, state, socket and engine."""

from __future__ import annotations

from pathlib import Path

from reliable_pubsub.common.asking import Asker
from reliable_pubsub.common.core.retry import RetryPolicy, Silence
from reliable_pubsub.common.journal_file import open_journal
from reliable_pubsub.common.opened import Opened
from reliable_pubsub.common.state_file import open_state
from reliable_pubsub.common.surroundings import client_here
from reliable_pubsub.common.world import World
from reliable_pubsub.relay.above import reachable

from .core.engine import PublisherEngine
from .core.lower_qos_puts import LowerQoSPuts
from .core.outbox import Outbox
from .core.session import OnLogChanged, PublisherSession
from .offer_link import ZmqOfferLink


def open_publisher(
    client: str,
    endpoint: str | None,
    state_dir: Path | str | None,
    retry: RetryPolicy | None,
    *,
    allow_plaintext: bool,
    on_log_changed: OnLogChanged,
    on_silence: Silence,
    journal: Path | str | None,
    world: World,
) -> Opened[PublisherEngine]:
    """Lock and read the state; the arguments are those of `Publisher`."""
    here = client_here(
        "publisher",
        client,
        *(endpoint, state_dir, retry),
        allow_plaintext=allow_plaintext,
        looks=world.is_real,
    )
    recorder = world.recorder or open_journal(journal, client)
    state = world.state or open_state(here.state_dir, "publisher", client)
    outbox = Outbox(state.load())
    asker = Asker(
        client,
        here.endpoint,
        retry=here.retry,
        on_silence=on_silence,
        role="publisher",
        world=world,
    )
    session = PublisherSession(
        asker,
        outbox,
        nonce=world.token(16),
        on_log_changed=on_log_changed,
        recorder=recorder,
    )
    lower_qos = LowerQoSPuts(
        session,
        outbox,
        recorder=recorder,
        connect=world.connect_data
        or (lambda at: ZmqOfferLink(reachable(at, asker.transport.endpoint))),
        now_s=asker.clock.now_s,
    )
    engine = PublisherEngine(session, outbox, lower_qos, recorder=recorder, token=world.token)
    return Opened("publisher", recorder, state, asker, engine)
