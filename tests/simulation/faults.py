"""Planted faults: each a system that is wrong in one place, to prove that the checker sees it.

A fault that no seed finds is a hole in the simulator. `pytest -s tests/simulation` prints the
table with the seeds that each one took; docs/runs.md has one from a run.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from reliable_pubsub.lab.variants import CursorMovesOnSend, DeduplicatesLastOnly

from . import faults_of_clients as clients
from . import faults_of_proxy as proxy
from . import faults_of_publishing as publishing
from . import faults_of_subscribing as subscribing
from .faults_of_bounds import FAULTS_OF_BOUNDS
from .faults_of_dead_letters import FAULTS_OF_DEAD_LETTERS
from .faults_of_forgetting import FAULTS_OF_FORGETTING
from .faults_of_numbering import FAULTS_OF_NUMBERING
from .faults_of_push import FAULTS_OF_PUSH
from .faults_of_sessions import FAULTS_OF_SESSIONS
from .faults_of_transactions import FAULTS_OF_TRANSACTIONS
from .faults_of_unstored import FAULTS_OF_UNSTORED
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
    "no dedup": Variant(broker=publishing.NoDeduplication),
    "dedup by last id only": Variant(broker=DeduplicatesLastOnly),
    "duplicate before durable": Variant(broker=publishing.DuplicateBeforeDurable),
    "wrong offset for a duplicate": Variant(broker=publishing.WrongDuplicateOffset),
    "conflict taken for a duplicate": Variant(broker=publishing.ConflictIsDuplicate),
    "gap accepted": Variant(broker=publishing.AcceptsGap),
    "FULL after the batch was taken": Variant(broker=publishing.FullAfterApply),
    "time follows the clock": Variant(broker=publishing.FollowsTheClock),
    "no fencing": Variant(broker=publishing.NoFencing),
    "late HELLO is granted": Variant(broker=publishing.GrantsLateHello),
    "HELLO before durable": Variant(broker=publishing.HelloBeforeDurable),
    "no nonce": Variant(broker=publishing.SameEpochForAll),
    "numbers without outbox": Variant(publisher=clients.NumbersWithoutOutbox),
    "numbering lost with power": Variant(publisher=clients.ForgetsNumberingInPowerLoss),
    "plan apart from outbox": Variant(publisher=clients.PlanAfterPut),
    "batch in doubt given up": Variant(publisher=clients.ForgetsBatchInDoubt),
    "adopts unasked": Variant(publisher=clients.AdoptsUnasked),
    "broken put goes on": Variant(publisher=clients.GoesOnAsIfNothingWas),
    "takes any answer": Variant(publisher=clients.TakesAnyAnswer),
    # Subscribers.
    "serves undurable offsets": Variant(broker=subscribing.ServesUndurable),
    "cursor moves on send": Variant(broker=CursorMovesOnSend),
    "late SUB resurrects": Variant(broker=subscribing.LateSubResurrects),
    "SUB before durable": Variant(broker=subscribing.SubBeforeDurable),
    "UNSUB before durable": Variant(broker=subscribing.UnsubBeforeDurable),
    "resume resets the cursor": Variant(broker=subscribing.ResumeResetsCursor),
    "resume forgets the cursor": Variant(broker=subscribing.ResumeForgetsCursor),
    "subscribes too early": Variant(broker=subscribing.SubscribesAtDurableEnd),
    "epoch not compared in ACK": Variant(broker=subscribing.AnyEpochAcknowledges),
    "generation not compared": Variant(broker=subscribing.AnyGenerationReads),
    "ACK rests on a lazy cursor": Variant(broker=subscribing.AckRestsOnLazyCursor),
    "acks before inbox is durable": Variant(subscriber=clients.AcknowledgesBeforeInbox),
    "asks before it writes": Variant(
        subscriber=clients.with_parts(session=clients.AsksBeforeItWrites)
    ),
    "output apart from cursor": Variant(subscriber=clients.OutputAndCursorApart),
    "redelivery not marked": Variant(
        subscriber=clients.with_parts(hand_over=clients.ForgetsWhatWasInHand)
    ),
    "cursor moves on hand-over": Variant(
        subscriber=clients.with_parts(hand_over=clients.AcknowledgesOnReceipt)
    ),
    "in hand before it is given": Variant(subscriber=clients.HandsOverBeforeItReturns),
    "older offsets taken": Variant(
        subscriber=clients.with_parts(
            fetching=clients.TakesOlderOffsets, dead_letters=clients.KeepsOlderOffsets
        )
    ),
    "fetched outlives unsubscribe": Variant(
        subscriber=clients.with_parts(
            subscription=clients.KeepsWhatItFetched, dead_letters=clients.KeepsOlderOffsets
        )
    ),
    # What is removed.
    "trims unread messages": Variant(broker=subscribing.TrimsUnread),
    "LOST one message too short": Variant(broker=subscribing.LostIsTooShort),
    "loss swallowed": Variant(subscriber=clients.with_parts(fetching=clients.SwallowsLosses)),
    "loss passed before it is told": Variant(
        subscriber=clients.with_parts(fetching=clients.PassesLossUntold)
    ),
    # A log that was set back.
    "LOG_CHANGED never told": Variant(broker=subscribing.NeverTellsLogChanged),
    "witness not compared": Variant(broker=subscribing.NoWitness),
    # Levels, starts and leases; push.
    **FAULTS_OF_SESSIONS,
    **FAULTS_OF_NUMBERING,
    **FAULTS_OF_BOUNDS,
    **FAULTS_OF_FORGETTING,
    **FAULTS_OF_DEAD_LETTERS,
    **FAULTS_OF_PUSH,
    **FAULTS_OF_TRANSACTIONS,
    **FAULTS_OF_UNSTORED,
}
