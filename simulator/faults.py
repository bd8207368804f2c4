"""Planted faults: each a system that is wrong in one place, to prove that the checker sees it.

A fault that no seed finds is a hole in the simulator. `pytest -s tests/simulation` prints the
table with the seeds that each one took; docs/runs.md has one from a run.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from reliable_pubsub.lab.variants import deduplicate_last_only, move_cursor_on_send
from reliable_pubsub.proxy.core.appending import make_room
from reliable_pubsub.proxy.core.applying import append
from reliable_pubsub.proxy.core.changed_log import log_changed, not_this_log
from reliable_pubsub.proxy.core.forgetting import trims_due
from reliable_pubsub.proxy.core.publishing import put, repeated_put
from reliable_pubsub.proxy.core.reading import (
    ack,
    batches_from,
    cursor_moved,
    get,
    subscription_of,
)
from reliable_pubsub.proxy.core.sessions import fence, hello
from reliable_pubsub.proxy.core.subscribing import sub, unsub

from . import faults_of_clients as clients
from . import faults_of_proxy as proxy
from . import faults_of_publishing as publishing
from . import faults_of_subscribing as subscribing
from .faults_of_administration import FAULTS_OF_ADMINISTRATION
from .faults_of_bounds import FAULTS_OF_BOUNDS
from .faults_of_dead_letters import FAULTS_OF_DEAD_LETTERS
from .faults_of_forgetting import FAULTS_OF_FORGETTING
from .faults_of_groups import FAULTS_OF_GROUPS
from .faults_of_interests import FAULTS_OF_INTERESTS
from .faults_of_loops import FAULTS_OF_LOOPS
from .faults_of_numbering import FAULTS_OF_NUMBERING
from .faults_of_patterns import FAULTS_OF_PATTERNS
from .faults_of_push import FAULTS_OF_PUSH
from .faults_of_sessions import FAULTS_OF_SESSIONS
from .faults_of_standby import FAULTS_OF_STANDBY
from .faults_of_transactions import FAULTS_OF_TRANSACTIONS
from .faults_of_unstored import FAULTS_OF_UNSTORED
from .faults_of_waiting import FAULTS_OF_WAITING
from .simulation import Variant

FAULTS: Final[Mapping[str, Variant]] = {
    # What leaves the proxy, and when.
    "ack before durable": Variant(engine=proxy.AckBeforeDurable),
    "full disk: memory kept": Variant(engine=proxy.ForgetsNothingOnFullDisk),
    "full disk: acknowledged": Variant(engine=proxy.AcknowledgesFullDisk),
    "hanging disk: acknowledged": Variant(engine=proxy.AcknowledgesWhatTheDiskHasNot),
    "answers outlive the process": Variant(proxy=proxy.AnswersAfterItsDeath),
    "failed commit is retried": Variant(proxy=proxy.RetriesFailedCommit),
    # What outlives it.
    "torn commit": Variant(store=proxy.TornCommit),
    "numbering not stored": Variant(store=proxy.ForgetsNumbering),
    "unsubscribe not stored": Variant(store=proxy.ForgetsUnsubscribe),
    "epochs not stored": Variant(store=proxy.ForgetsEpochs),
    "cursors not stored": Variant(store=proxy.ForgetsCursors),
    "generations not stored": Variant(store=proxy.ForgetsGenerations),
    "control numbers not stored": Variant(store=proxy.ForgetsControlNumbers),
    # Publishers.
    "no dedup": Variant(rules={put: publishing.no_deduplication}),
    "dedup by last id only": Variant(rules={put: deduplicate_last_only}),
    "duplicate before durable": Variant(rules={repeated_put: publishing.duplicate_before_durable}),
    "wrong offset for a duplicate": Variant(
        rules={repeated_put: publishing.wrong_duplicate_offset}
    ),
    "conflict taken for a duplicate": Variant(
        rules={repeated_put: publishing.conflict_is_duplicate}
    ),
    "gap accepted": Variant(rules={put: publishing.accept_gap}),
    "FULL after the batch was taken": Variant(rules={make_room: publishing.full_after_apply}),
    "time follows the clock": Variant(
        rules={put: publishing.time_of_the_clock, append: publishing.append_in_any_order}
    ),
    "no fencing": Variant(rules={fence: publishing.no_fencing}),
    "late HELLO is granted": Variant(rules={hello: publishing.grant_late_hello}),
    "HELLO before durable": Variant(rules={hello: publishing.hello_before_durable}),
    "no nonce": Variant(rules={hello: publishing.same_epoch_for_all}),
    "numbers without outbox": Variant(publisher=clients.NumbersWithoutOutbox),
    "numbering lost with power": Variant(publisher=clients.ForgetsNumberingInPowerLoss),
    "plan apart from outbox": Variant(publisher=clients.PlanAfterPut),
    "batch in doubt given up": Variant(publisher=clients.ForgetsBatchInDoubt),
    "adopts unasked": Variant(publisher=clients.AdoptsUnasked),
    "broken put goes on": Variant(publisher=clients.GoesOnAsIfNothingWas),
    "takes any answer": Variant(publisher=clients.TakesAnyAnswer),
    # Subscribers.
    "serves undurable offsets": Variant(
        rules={append: subscribing.readable_at_once, batches_from: subscribing.read_from_memory}
    ),
    "cursor moves on send": Variant(rules={get: move_cursor_on_send}),
    "late SUB resurrects": Variant(
        rules={sub: subscribing.late_sub_resurrects, unsub: subscribing.late_unsub_ends}
    ),
    "SUB before durable": Variant(rules={sub: subscribing.sub_before_durable}),
    "UNSUB before durable": Variant(rules={unsub: subscribing.unsub_before_durable}),
    "resume resets the cursor": Variant(rules={sub: subscribing.resume_at_the_end}),
    "resume forgets the cursor": Variant(rules={sub: subscribing.resume_forgets_cursor}),
    "subscribes too early": Variant(rules={sub: subscribing.subscribe_at_durable_end}),
    "epoch not compared in ACK": Variant(rules={ack: subscribing.any_epoch_acknowledges}),
    "generation not compared": Variant(rules={subscription_of: subscribing.any_generation_reads}),
    "ACK rests on a lazy cursor": Variant(
        rules={cursor_moved: subscribing.ack_rests_on_lazy_cursor}
    ),
    "acks before inbox is durable": Variant(subscriber=clients.AcknowledgesBeforeInbox),
    "asks before it writes": Variant(
        subscriber=clients.with_parts(inbox=clients.AsksBeforeItWrites)
    ),
    "a get writes once": Variant(
        subscriber=clients.with_parts(inbox=clients.WritesOnceForAGet, requests=clients.MarksGets)
    ),
    "output apart from cursor": Variant(subscriber=clients.OutputAndCursorApart),
    "redelivery not marked": Variant(
        subscriber=clients.with_parts(delivering=clients.ForgetsWhatWasInHand)
    ),
    "cursor moves on hand-over": Variant(
        subscriber=clients.with_parts(delivering=clients.AcknowledgesOnReceipt)
    ),
    "in hand before it is given": Variant(subscriber=clients.HandsOverBeforeItReturns),
    "older offsets taken": Variant(
        subscriber=clients.with_parts(fetching=clients.TakesOlderOffsets)
    ),
    "fetched outlives unsubscribe": Variant(
        subscriber=clients.with_parts(subscription=clients.KeepsWhatItFetched)
    ),
    # What is removed.
    "trims unread messages": Variant(rules={trims_due: subscribing.trim_unread}),
    "LOST one message too short": Variant(rules={get: subscribing.report_too_few_lost}),
    "loss swallowed": Variant(subscriber=clients.with_parts(fetching=clients.SwallowsLosses)),
    "loss passed before it is told": Variant(
        subscriber=clients.with_parts(fetching=clients.PassesLossUntold)
    ),
    # A log that was set back.
    "LOG_CHANGED never told": Variant(
        rules={
            log_changed: subscribing.accept_any_log,
            not_this_log: subscribing.answer_for_any_log,
        }
    ),
    "witness not compared": Variant(rules={sub: subscribing.no_witness}),
    # Levels, starts and leases; push.
    **FAULTS_OF_WAITING,
    **FAULTS_OF_SESSIONS,
    **FAULTS_OF_NUMBERING,
    **FAULTS_OF_BOUNDS,
    **FAULTS_OF_FORGETTING,
    **FAULTS_OF_ADMINISTRATION,
    **FAULTS_OF_DEAD_LETTERS,
    **FAULTS_OF_PUSH,
    **FAULTS_OF_LOOPS,
    **FAULTS_OF_GROUPS,
    **FAULTS_OF_PATTERNS,
    **FAULTS_OF_INTERESTS,
    **FAULTS_OF_TRANSACTIONS,
    **FAULTS_OF_UNSTORED,
    **FAULTS_OF_STANDBY,
}
