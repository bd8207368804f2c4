"""`Publisher`: puts that return when the proxy has the messages, once each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import assert_never

from msgspec.structs import replace

from reliable_pubsub.common.asking import Asker
from reliable_pubsub.common.core import names
from reliable_pubsub.common.core.arguments import Seconds, checked
from reliable_pubsub.common.core.batch import Batch, EventTimeNs
from reliable_pubsub.common.core.dead_letter import check_put_on
from reliable_pubsub.common.core.errors import (
    InDoubtError,
    LimitError,
    NotDeliveredError,
    PubSubError,
    UsageError,
)
from reliable_pubsub.common.core.messages import (
    AnyReply,
    Count,
    Delivered,
    QoS,
)
from reliable_pubsub.common.core.messages import Delivery as DeliveryRequest
from reliable_pubsub.common.core.names import TopicName
from reliable_pubsub.common.core.plan_mark import PlanMark
from reliable_pubsub.common.core.retry import (
    RetryPolicy,
    Silence,
    poll_pause_s,
    unheard,
)
from reliable_pubsub.common.core.steps import DELIVERED_S, Wait
from reliable_pubsub.common.gate import Gate, closing, gated, gated_after_close, sharing
from reliable_pubsub.common.history_file import open_history
from reliable_pubsub.common.state_file import MemoryState, StateFile, open_state
from reliable_pubsub.common.surroundings import client_here
from reliable_pubsub.common.world import REAL, World
from reliable_pubsub.relay.above import reachable

from .core.combining import WaitingPut, failed, fitting, joined, stored
from .core.delivery import AcknowledgedBy, Delivery, DeliveryS, DeliveryWatch
from .core.outbox import Outbox, Pending, PendingTransaction, Receipt
from .core.transaction import Encoded, Transaction
from .link import OnLogChanged, PublisherLink
from .offering import Interest, OfferCounts, ZmqOfferLink
from .settling import Settling
from .stream import LingerS, Stream, StreamSender
from .unnumbered import Unnumbered


class Publisher:
    """Puts messages on topics, each exactly once, across its own crashes and the proxy's.

    Threads: calls of several threads wait for each other; puts on one topic that wait are sent in
    one request. A forked child needs a client of its own.
    An exception that is not a `PubSubError` (Ctrl-C, an alarm) may interrupt a call and be caught:
    the next call begins as after a crash, so no message is lost or duplicated.

    With `state_dir` a message that was in flight when the process died is
    sent again, under its number, by the next process with this id; without it the publisher
    keeps its state in memory and takes its numbering from the proxy.
    """

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
        history: Path | str | None = None,
        _world: World | None = None,
    ) -> None:
        """Lock and read the state; the proxy is asked at the first put.

        Args:
            client: 1 to 64 of `A-Z a-z 0-9 . -`; one running process for each id.
            endpoint, state_dir, retry: what is not given here is taken from the settings
                (`reliable-pubsub config show CLIENT`): settings.json, the environment, a default.
                By default there is no state_dir, and the state is in memory.
            allow_plaintext: accept an endpoint outside this machine. Traffic is not encrypted.
            on_log_changed: when the proxy no longer has what it acknowledged: stop with an
                error, or adopt its numbering.
            on_silence: called for each attempt without an answer, as it happens.
            history: append operations and their results to this file (docs/history.md).
            _world: private.

        Raises:
            InvalidNameError, InUseError, DamagedError.
            ConfigurationError: a setting is wrong, an endpoint leaves this machine, or the history
                cannot be opened.
        """
        self.client = names.client_id(client)
        world = _world or REAL
        here = client_here(
            "publisher",
            self.client,
            *(endpoint, state_dir, retry),
            allow_plaintext=allow_plaintext,
            looks=world.is_real,
        )
        self._recorder = world.recorder or open_history(history, self.client)
        self._state = world.state or open_state(here.state_dir, "publisher", self.client)
        self.outbox = Outbox(self._state.load())
        self._asker = Asker(
            self.client,
            here.endpoint,
            retry=here.retry,
            transport=world.transport(here.endpoint),
            clock=world.clock,
            on_silence=on_silence,
            role="publisher",
        )
        self._link = PublisherLink(
            self._asker,
            self.outbox,
            self._state,
            on_log_changed=on_log_changed,
            recorder=self._recorder,
        )
        self._unnumbered = Unnumbered(
            self._link,
            self.outbox,
            recorder=self._recorder,
            connect_offers=world.connect_data
            or (lambda ingress: ZmqOfferLink(reachable(ingress, here.endpoint))),
        )
        self._settling = Settling(self._link, self.outbox, self._state, self._recorder)
        self._sender: StreamSender | None = None
        self._gate = Gate(f"publisher {self.client!r}", self._begin_again, threads=True)
        self._recorder.begin("publisher", remembers=not isinstance(self._state, MemoryState))
        if isinstance(self._state, StateFile):
            self._state.may_be_taken(self._make_way)

    def _make_way(self) -> bool:
        """Close for another client of this process, unless a call or a stream is open."""
        idle = self._sender is None or self._sender.is_idle
        return idle and self._gate.replace(lambda: self._end(None))

    def _begin_again(self) -> None:
        """Reset to the stored state, after an interrupted call."""
        self._asker.transport.reopen()
        self._unnumbered.offering.begin_again()
        self._sender = None
        self.outbox.reload(self._state.load())
        self._link.begin_again()
        self._recorder.begin("publisher", remembers=not isinstance(self._state, MemoryState))

    def __enter__(self) -> Publisher:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._free(error)

    def close(self) -> None:
        """Close the socket and the state. A batch in doubt stays in the state."""
        self._free(None)

    @closing
    def _free(self, error: BaseException | None) -> None:
        self._end(error)

    def _end(self, error: BaseException | None) -> None:
        self._gate.closed = True  # now it can only be closed, again if that is interrupted
        self._asker.close()
        self._unnumbered.offering.close()
        self._state.close()
        self._recorder.end(error)

    # Public calls.

    @checked
    def put(
        self,
        topic: TopicName,
        payload: bytes,
        *,
        key: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        event_time_ns: EventTimeNs | None = None,
        qos: QoS = 2,
        wait: Wait = "stored",
        acknowledged_by: AcknowledgedBy = "all",
        timeout_s: DeliveryS = DELIVERED_S,
    ) -> Receipt:
        """Put one message; return when it is stored as durably as the proxy promises.

        Args:
            payload: at most 1 MiB - 64 B.
            qos: 2 stores it once. 1 stores every copy that a retry makes, and keeps no state: the
                caller puts again what is in doubt. 0 stores nothing, sends no request and returns
                at once: it is sent once to the current listeners (`Receipt.fate`).
            wait: delivered returns only when subscribers have acknowledged the message too, and
                the receipt then says who; see `wait_delivered` for the other two.

        Raises:
            InvalidNameError, TooLargeError: nothing was sent.
            NotDeliveredError: the message is stored, and too few have acknowledged it in time.
            InDoubtError: no definite answer. If its `kept` is true, so is the message: `resume`,
                or the next put, or the next process with this state sends it again, still once.
                Otherwise it was not sent, because the proxy was not reached or an earlier one is
                still in doubt: put it again.
            FencedError, ConflictError, LogChangedError, LimitError: refused.
            StorageFailedError: the client's state cannot be written; nothing was sent or kept. Or
                the history cannot: then `in_doubt` shows whether the message is kept.
        """
        batch = Batch(
            [payload],
            None if key is None else [key],
            None if headers is None else [headers],
            None if event_time_ns is None else [event_time_ns],
        )
        match wait:
            case "stored":
                return self._put(topic, batch, None, qos)
            case "delivered":
                if qos == 0:
                    raise UsageError(
                        "wait='delivered' needs QoS 1 or 2: messages at QoS 0 are not stored and "
                        "never acknowledged. Nothing was sent"
                    )
                receipt = self._put(topic, batch, None, qos)
                delivery = self.wait_delivered(
                    receipt, acknowledged_by=acknowledged_by, timeout_s=timeout_s
                )
                return replace(receipt, delivery=delivery)
            case never:
                assert_never(never)

    @checked
    def wait_delivered(
        self,
        receipt: Receipt,
        *,
        acknowledged_by: AcknowledgedBy = "all",
        timeout_s: DeliveryS = DELIVERED_S,
    ) -> Delivery:
        """Wait until subscribers have acknowledged all messages of a receipt.

        The proxy is polled with growing pauses; it keeps no state for it. A
        subscriber acknowledges when it comes back for the next message, or calls `acknowledge`.

        Args:
            acknowledged_by: how many subscribers, 1 to 2,000; "all" that are subscribed, and at
                least one. Later subscriptions do not count; those that end are not waited for.
            timeout_s: above 0, at most a day; while the proxy does not answer, its retries count.

        Raises:
            NotDeliveredError: not in time; it has the ids that have acknowledged, and the others.
            LogChangedError: the proxy no longer has the message. LimitError: too many subscribers.
            UsageError.
        """
        deadline_s = self._asker.clock.now_s() + timeout_s
        watch = DeliveryWatch(acknowledged_by)
        looks = 0
        while True:
            try:
                reply = self._ask_delivery(receipt)
            except InDoubtError as error:
                raise _not_delivered(receipt, watch.delivery, "the proxy is away") from error
            if not isinstance(reply, Delivered):
                self._link.refused(reply)
            if watch.saw(reply):
                return watch.delivery
            left_s = deadline_s - self._asker.clock.now_s()
            if left_s <= 0:
                why = f"not acknowledged by {acknowledged_by} within {timeout_s:g} s"
                raise _not_delivered(receipt, watch.delivery, why)
            looks += 1
            self._asker.clock.sleep(min(poll_pause_s(looks), left_s))

    @gated
    def _ask_delivery(self, receipt: Receipt) -> AnyReply:
        if receipt.offset is None:
            why = "its offset is not known any more, because retention has removed it"
            raise _not_delivered(receipt, Delivery(), why)
        numbering = self.outbox.topics.get(receipt.topic) if receipt.qos == 2 else None
        return self._link.ask(
            DeliveryRequest(
                **self._link.head(),
                topic=receipt.topic,
                offset=receipt.offset + receipt.count - 1,
                log=(numbering.log or None) if numbering else None,
            )
        )

    @checked
    def put_many(
        self,
        topic: TopicName,
        payloads: Sequence[bytes],
        *,
        keys: Sequence[bytes | None] | None = None,
        headers: Sequence[Mapping[str, str] | None] | None = None,
        event_times_ns: Sequence[int | None] | None = None,
        qos: QoS = 2,
    ) -> Receipt:
        """Put messages as one batch: one request, one commit, all or none of them.

        Args:
            payloads: 1 to 65,536, encoded at most 1 MiB together.

        Raises:
            As `put`; also TooLargeError if they do not fit in one batch.
        """
        return self._put(topic, Batch(payloads, keys, headers, event_times_ns), None, qos)

    @checked
    def put_batch(
        self, topic: TopicName, batch: Batch, plan: PlanMark | None = None, *, qos: QoS = 2
    ) -> Receipt:
        """Put a batch; `plan` is written in the same step as its numbers (QoS 1: after it)."""
        return self._put(topic, batch, plan, qos)

    def _put(self, topic: TopicName, batch: Batch, plan: PlanMark | None, qos: QoS) -> Receipt:
        topic = names.exact(topic)
        check_put_on(topic)
        # QoS 0 has no reply to wait for; the messages of a plan are written with its position.
        return self._share(
            WaitingPut(topic, batch, qos, is_alone=not qos or plan is not None), plan
        )

    @sharing
    def _share(self, put: WaitingPut, plan: PlanMark | None) -> Receipt:
        while not put.is_settled:
            if self._streaming:
                raise UsageError("this publisher has an open stream; put through it, or close it")
            self._put_with_others(put, plan)
        receipt = put.result()
        if plan is not None and put.qos < 2:
            self._state.write(self.outbox.mark_plan(plan), durable=False)
        return receipt

    def _put_with_others(self, put: WaitingPut, plan: PlanMark | None = None) -> None:
        """Put it, in one request with the waiting puts of other threads on its topic.

        If the request is refused, they are put one by one: a single one may fit.
        """
        others = [one for one in self._gate.waiting() if isinstance(one, WaitingPut)]
        puts = fitting(put, others)
        try:
            if put.qos == 2:
                self._resume()  # settles it, if an interrupted call had taken it
            if put.is_settled:
                return
            if others:
                puts = [one for one in puts if not one.is_settled]
            receipt = self._put_once(puts, plan)
            if put.qos < 2:
                stored(puts, receipt)
        except LimitError as error:
            if put.is_alone or max(len(puts), self._settling.shares) == 1:
                failed(puts, error)
            for one in puts:
                one.is_alone = True
        except PubSubError as error:
            failed(puts, error)

    def _put_once(self, puts: Sequence[WaitingPut], plan: PlanMark | None) -> Receipt:
        match puts[0].qos:
            case 2:
                return self._settling.put(puts, plan)
            case 1:
                return self._unnumbered.put_at_least_once(puts[0].topic, *joined(puts))
            case 0:
                return self._unnumbered.offer(puts[0].topic, *joined(puts))
            case never:
                assert_never(never)

    @gated
    def interest(self, topic: TopicName) -> Interest:
        """Ask the proxy for the listeners of a topic; false if there are none.

        Raises:
            InvalidNameError, InDoubtError.
        """
        return self._unnumbered.where(topic).interest

    @gated
    def wait_for_interest(self, topic: TopicName, timeout_s: Seconds) -> Interest:
        """Wait until a topic has a listener, to avoid work that no subscriber needs.

        Returns:
            The listeners; false when the time is over. A QoS 0 message that is put right after it
            is sent, not dropped as unwanted.

        Raises:
            InvalidNameError, InDoubtError.
        """
        return self._unnumbered.offering.wait_for_interest(topic, timeout_s)

    @property
    def offer_counts(self) -> OfferCounts:
        """Counts of the QoS 0 messages of this process."""
        return self._unnumbered.offering.counts

    @property
    @gated_after_close
    def in_doubt(self) -> Pending | None:
        """The batch that is numbered and kept, and not known to be stored."""
        return self.outbox.pending

    @gated
    def stream(self, *, linger_s: LingerS = 0.005) -> Stream:
        """Put without waiting: messages are collected into batches, and sent in order by a thread.

        Use it in a `with` block; until it is closed, the publisher belongs to it.

        Args:
            linger_s: longest time that a message waits for its batch to fill.
        """
        if self._streaming:
            raise UsageError("this publisher has an open stream; close it first")
        life = self._gate.lives
        stream = Stream(
            lambda topic, batch: self._stream_batch(topic, batch, life), linger_s=linger_s
        )
        self._sender = stream.sender
        return stream

    @property
    def _streaming(self) -> bool:
        return self._sender is not None and not self._sender.is_over

    @gated
    def _stream_batch(self, topic: str, batch: Batch, life: int) -> Receipt:
        self._gate.check_life(life, "this stream")
        check_put_on(topic)
        put = WaitingPut(topic, batch, 2, is_alone=True)
        self._put_with_others(put)
        return put.result()

    @gated
    def transaction(self, plan: PlanMark | None = None) -> Transaction:
        """Put messages on several topics, all of them or none, exactly once.

            with publisher.transaction() as transaction:
                transaction.put("orders", order)
                transaction.put("audit", line)

        They are sent when the block ends, and visible at one moment. An error that leaves the
        block stores nothing. At most 128 MiB and 256 topics.

        Args:
            plan: written in the same step as the numbers.
        """
        if self._streaming:
            raise UsageError("this publisher has an open stream; close it first")
        life = self._gate.lives
        return Transaction(lambda batches: self._transact(batches, plan, life))

    @property
    @gated_after_close
    def transaction_in_doubt(self) -> PendingTransaction | None:
        """The transaction that is numbered and kept, and not known to be stored."""
        return self.outbox.transaction

    @gated
    def resume(self) -> Receipt | None:
        """Send what is in doubt, if there is anything.

        Returns:
            Its receipt; of a transaction that of its first topic.
        """
        return self._resume()

    def _resume(self) -> Receipt | None:
        return self._settling.settle()[0] if self.outbox.in_doubt else None

    @gated
    def ready_for(self, topic: str, plan: PlanMark | None = None, count: Count = 1) -> int:
        """Settle what is in doubt and get the numbering of a topic.

        Args:
            plan: the position after the next messages, if they belong to a plan.
            count: of these messages.

        Returns:
            The sequence that the next message of the topic gets.
        """
        self._resume()
        self._link.meet_all([names.topic(topic)])
        return self.outbox.next_sequence(topic, plan, count)

    @gated
    def begin_plan(self, plan: PlanMark, topics: Sequence[str]) -> None:
        """Begin a plan, or another run of one; a run that the state is in continues.

        The numbering of its topics is read before the begin is written. So if the state is later
        replaced by an older copy of this run, the numbers it lacks were used by this run: repeated
        from that copy's position, they are DUPLICATE.
        """
        if self.outbox.is_running(plan):
            return
        self._resume()
        self._link.meet_all([names.topic(topic) for topic in topics])
        met = self.outbox.meet_transactions(self._link.last_transaction) if topics else {}
        self._state.write({**met, **self.outbox.mark_plan(plan)}, durable=True)

    @gated
    def mark_plan(self, plan: PlanMark) -> None:
        """Write the position in a plan when no message belongs to it."""
        self._state.write(self.outbox.mark_plan(plan), durable=False)

    @gated
    def connect(self) -> None:
        """Get an epoch; any older process with this id is fenced from now on (rule R11)."""
        self._link.connect()

    # Implementation.

    @gated
    def _transact(
        self, batches: Sequence[Encoded], plan: PlanMark | None, life: int
    ) -> tuple[Receipt, ...]:
        self._gate.check_life(life, "this transaction")
        self._resume()
        return self._settling.transact(batches, plan)


def _not_delivered(receipt: Receipt, delivery: Delivery, why: str) -> NotDeliveredError:
    return NotDeliveredError(
        why,
        message_id=receipt.message_id,
        topic=receipt.topic,
        acknowledged=delivery.acknowledged,
        waiting=delivery.waiting,
        left=delivery.left,
    )
