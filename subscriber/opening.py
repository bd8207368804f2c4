"""Opens what a subscriber is made of: settings, journal, state, socket and engine."""

from __future__ import annotations

from pathlib import Path

from reliable_pubsub.common.asking import Asker
from reliable_pubsub.common.core.retry import RetryPolicy, Silence
from reliable_pubsub.common.journal_file import open_journal
from reliable_pubsub.common.opened import Opened
from reliable_pubsub.common.state_file import open_state
from reliable_pubsub.common.surroundings import client_here
from reliable_pubsub.common.world import World

from .core.engine import SubscriberEngine
from .core.fetching import OnLowerQoS
from .core.inbox import Inbox
from .core.pull_timer import PushTiming, timing_of
from .core.pushing import Pushing
from .core.session import SubscriberSession
from .core.subscribing import OnLogChanged
from .push_link import ZmqPushLink


def open_subscriber(
    client: str,
    endpoint: str | None,
    state_dir: Path | str | None,
    retry: RetryPolicy | None,
    *,
    allow_plaintext: bool,
    on_log_changed: OnLogChanged,
    on_silence: Silence,
    on_lower_qos: OnLowerQoS,
    journal: Path | str | None,
    push_timing: PushTiming | None,
    push_via: str | None,
    world: World,
) -> Opened[SubscriberEngine]:
    """Lock and read the state; the arguments are those of `Subscriber`."""
    here = client_here(
        "subscriber",
        client,
        *(endpoint, state_dir, retry),
        allow_plaintext=allow_plaintext,
        push_via=push_via,
        looks=world.is_real,
    )
    recorder = world.recorder or open_journal(journal, client)
    state = world.state or open_state(here.state_dir, "subscriber", client)
    nonce = world.token(16)
    inbox = Inbox(state.load(), lambda: state.marks, run=int.from_bytes(nonce[:4], "big"))
    asker = Asker(
        client,
        here.endpoint,
        retry=here.retry,
        on_silence=on_silence,
        role="subscriber",
        world=world,
    )
    session = SubscriberSession(asker, inbox, nonce=nonce, recorder=recorder)
    connect = world.connect_data or (
        lambda endpoint: ZmqPushLink(endpoint, client, here.settings.push_via)
    )
    pushing = Pushing(
        inbox,
        lambda: connect(here.endpoint),
        timing=push_timing or timing_of(here.settings),
        now_s=asker.clock.now_s,
    )
    engine = SubscriberEngine(
        session,
        pushing,
        on_log_changed=on_log_changed,
        on_lower_qos=on_lower_qos,
        now_s=asker.clock.now_s,
    )
    return Opened("subscriber", recorder, state, asker, engine)
