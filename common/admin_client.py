"""`Admin`: what an operator may ask of a running proxy, as calls. Blocking."""

from __future__ import annotations

from typing import Annotated, Final

from msgspec import UNSET, Meta, Struct
from msgspec.structs import replace

from .asking import Asker
from .core import names
from .core.actions import (
    AdminAck,
    AdminRequest,
    AnyAction,
    DeleteTopic,
    EndSubscription,
    ForgetClient,
    Pause,
    Resume,
    SetCursor,
    Skip,
    Truncate,
)
from .core.answers import AnyReply
from .core.arguments import TimeoutS, checked
from .core.errors import StaleError, TimedOutError, UsageError
from .core.limits import PAUSE_REASON_CHARS_MAX
from .core.message_base import Natural, Request, Role, Start
from .core.retry import RetryPolicy, Silence, unheard
from .core.session import refusal
from .core.start import start_of
from .core.status import Clients, ClientsReport, ClientStatus, Status, StatusReport, TopicStatus
from .gate import Gate, closing, gated
from .surroundings import client_here
from .world import World, world_here

TRIES_MAX: Final = 10  # looks, each because another operator was faster
DRAIN_POLL_S: Final = 0.2
_NONCE_BYTES: Final = 16

PauseReason = Annotated[str, Meta(max_length=PAUSE_REASON_CHARS_MAX)]
WaitS = Annotated[float, Meta(ge=0, le=366 * 86_400)]


class AdminOutcome(Struct, frozen=True, kw_only=True):
    """What an action has done; with `look`, what it would do."""

    number: int  # of the action: 1, 2, 3, ... at this proxy
    done: bool  # False: it was only looked at, or there was nothing to do
    already: bool  # there was nothing to do
    first: int = 0  # truncate, skip: offsets first .. end - 1; set_cursor: moved from first
    end: int = 0  # to end
    generation: int = 0  # of the subscription, now
    subscriptions: int = 0  # that end, or lose messages


class Waiting(Struct, frozen=True, kw_only=True):
    """A subscription that has not acknowledged everything."""

    topic: str
    subscriber: str
    lag_messages: int


class Admin:
    """Lists and changes what a proxy keeps. Each change is done once, durably, or not at all.

    Where the proxy knows keys with rights, this needs the right `admin`: of the topic, or of every
    topic for what is not of one. One thread at a time. `look=True` changes nothing and says what
    the call would do.

    Every call raises `ProxyUnreachableError` if no answer came within its `timeout_s`, or after the
    retries of `retry`: a change is then in doubt, and may be asked for again. `NotPossibleError`
    means that nothing was changed.
    """

    @checked
    def __init__(
        self,
        *,
        endpoint: str | None = None,
        retry: RetryPolicy | None = None,
        allow_plaintext: bool = False,
        on_silence: Silence = unheard,
        _world: World | None = None,
    ) -> None:
        """Create it; the first call sends the first request.

        Args:
            endpoint: the subscriber endpoint of the proxy, or of a relay. What is not given is
                taken from the settings (`reliable-pubsub config show admin`).
            allow_plaintext: accept an endpoint outside this machine. Traffic is not encrypted.
            on_silence: called for each attempt that goes unanswered.
            _world: private.

        Raises:
            ConfigurationError: a setting is wrong, or an endpoint leaves this machine.
        """
        world = _world or world_here()
        here = client_here(
            "subscriber",
            "admin",
            *(endpoint, None, retry),
            allow_plaintext=allow_plaintext,
            looks=world.is_real,
        )
        self._token = world.token
        self._asker = Asker(
            f"admin-{world.token(4).hex()}",
            here.endpoint,
            retry=here.retry,
            on_silence=on_silence,
            role="subscriber",
            world=world,
        )
        self._gate = Gate(
            "the admin client",
            self._asker.transport.reopen,
            self._asker.patience,
            threads=False,
        )

    def __enter__(self) -> Admin:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Admin{' (closed)' if self._gate.closed else ''}>"

    @closing
    def close(self) -> None:
        """Close the socket."""
        self._gate.closed = True
        self._asker.close()

    # Looking.

    @gated
    def topics(self, *, timeout_s: TimeoutS = None) -> tuple[TopicStatus, ...]:
        """All topics, each with its subscriptions (the slowest first) and publishers."""
        return self._topics()

    @gated
    def clients(self, *, timeout_s: TimeoutS = None) -> tuple[ClientStatus, ...]:
        """All client ids that the proxy knows, in their order."""
        found: list[ClientStatus] = []
        after = ""
        while True:
            request = Clients(**self._asker.head(), after_client=after)
            reply = self._ask(request)
            if not isinstance(reply, ClientsReport):
                raise refusal(reply, client=request.client, epoch=0)
            found += reply.clients
            if reply.next_client is UNSET:
                return tuple(found)
            after = reply.next_client

    # Subscriptions and clients.

    @gated
    def end_subscription(
        self, topic: str, subscriber: str, *, look: bool = False, timeout_s: TimeoutS = None
    ) -> AdminOutcome:
        """End a subscription, as if it had unsubscribed; or the group `group:NAME`.

        A subscriber that still runs gets NOT_SUB; a persistent one then subscribes again at its
        own position, under a new generation. A member that still runs joins again, and so begins
        a group of this name at its `start`.
        """
        do = EndSubscription(topic=names.topic(topic), subscriber=names.subscription(subscriber))
        return self._act(do, look=look)

    @gated
    def forget_client(
        self,
        client: str,
        *,
        role: Role = "subscriber",
        look: bool = False,
        timeout_s: TimeoutS = None,
    ) -> AdminOutcome:
        """Forget an id that is gone for good: its subscriptions end, and nothing is kept of it.

        Raises:
            NotPossibleError: a publisher some of whose messages are still stored.
        """
        return self._act(ForgetClient(role=role, of=names.client_id(client)), look=look)

    @gated
    def set_cursor(
        self,
        topic: str,
        subscriber: str,
        start: Start,
        *,
        look: bool = False,
        timeout_s: TimeoutS = None,
    ) -> AdminOutcome:
        """Move a subscription to another place.

        Back: what it has acknowledged since comes again, marked as redelivered. Forward: it gets
        `LostError` for what lies between.

        Args:
            start: Earliest, Now, at_offset(n), newest(n), at_time(t) or ago(age).
        """
        do = SetCursor(
            topic=names.topic(topic), subscriber=_with_cursor(subscriber), start=_place(start)
        )
        return self._act(do, look=look)

    @gated
    def skip(
        self,
        topic: str,
        subscriber: str,
        *,
        end: Natural | None = None,
        look: bool = False,
        timeout_s: TimeoutS = None,
    ) -> AdminOutcome:
        """Move a subscription past messages that it cannot process; it gets `LostError` for them.

        Args:
            end: the first offset not to skip; None: past the batch at its cursor.
        """
        do = Skip(topic=names.topic(topic), subscriber=_with_cursor(subscriber), end=end)
        return self._act(do, look=look)

    # Topics.

    @gated
    def truncate(
        self, topic: str, start: Start, *, look: bool = False, timeout_s: TimeoutS = None
    ) -> AdminOutcome:
        """Remove the messages of a topic before a place, in whole batches, acknowledged or not.

        Subscribers that have not read them get `LostError`.

        Args:
            start: the first message to keep: Now (all go), at_offset(n), newest(n), at_time(t) or
                ago(age). The batch that holds it stays whole.
        """
        return self._act(Truncate(topic=names.topic(topic), start=_place(start)), look=look)

    @gated
    def delete_topic(
        self, topic: str, *, look: bool = False, timeout_s: TimeoutS = None
    ) -> AdminOutcome:
        """Remove a topic with all of its messages; end its subscriptions and groups.

        The numbers of its publishers stay, so that a repeated put is not stored again, and offsets
        go on where they were if a put or a subscribe makes the topic again. Subscribers that had
        not read everything get `LostError` if they come back.

        Raises:
            NotPossibleError: messages are being put to it at this moment.
        """
        return self._act(DeleteTopic(topic=names.topic(topic)), look=look)

    # Maintenance.

    @gated
    def pause(self, reason: PauseReason = "", *, timeout_s: TimeoutS = None) -> AdminOutcome:
        """Refuse puts (BUSY) until `resume`, across restarts of the proxy; gets continue.

        QoS 0 continues, too: it is never stored.

        Args:
            reason: shown to publishers and in status.
        """
        return self._act(Pause(reason=reason), look=False)

    @gated
    def resume(self, *, timeout_s: TimeoutS = None) -> AdminOutcome:
        """Accept puts again."""
        return self._act(Resume(), look=False)

    @gated
    def drain(self, reason: PauseReason = "", *, timeout_s: WaitS = 60.0) -> None:
        """Pause, and wait until every live subscription and group has acknowledged everything.

        Those that have expired, and those at QoS 0, are not waited for. Puts stay paused.

        Raises:
            TimedOutError: some have not; the text names them.
        """
        self._asker.patience.wait(timeout_s)
        self._act(Pause(reason=reason), look=False)
        clock = self._asker.clock
        deadline_s = clock.now_s() + timeout_s
        while waiting := _waiting(self._topics()):
            if clock.now_s() >= deadline_s:
                some = ", ".join(
                    f"{one.subscriber} on {one.topic!r} ({one.lag_messages:,} messages)"
                    for one in waiting[:10]
                )
                raise TimedOutError(
                    f"puts are paused, and after {timeout_s:g} s {len(waiting)} subscriptions "
                    f"have not acknowledged everything: {some}. Wait again, end them, or resume"
                )
            clock.sleep(DRAIN_POLL_S)

    # Requests.

    def _act(self, do: AnyAction, *, look: bool) -> AdminOutcome:
        """Look, so that the number and the place are known, and then do exactly that."""
        nonce = self._token(_NONCE_BYTES)
        for attempt in range(TRIES_MAX):
            seen = self._answered(AdminRequest(**self._asker.head(), do=do))
            if look or seen.already:
                break
            request = AdminRequest(
                **self._asker.head(), do=_fixed(do, seen), number=seen.number, nonce=nonce
            )
            try:
                seen = self._answered(request)
            except StaleError:  # another operator has used the number, so it was not done
                if attempt == TRIES_MAX - 1:
                    raise
                continue
            seen = replace(seen, already=not seen.done)  # a copy of it is the same action
            break
        effect = seen.effect
        return AdminOutcome(
            number=seen.number,
            done=seen.done,
            already=seen.already,
            first=effect.first,
            end=effect.end,
            generation=effect.generation,
            subscriptions=effect.subscriptions,
        )

    def _answered(self, request: AdminRequest) -> AdminAck:
        reply = self._ask(request)
        if not isinstance(reply, AdminAck):
            topic = getattr(request.do, "topic", "")
            raise refusal(reply, client=request.client, epoch=0, topic=topic)
        return reply

    def _topics(self) -> tuple[TopicStatus, ...]:
        topics: list[TopicStatus] = []
        after = ""
        while True:
            request = Status(**self._asker.head(), after_topic=after)
            reply = self._ask(request)
            if not isinstance(reply, StatusReport):
                raise refusal(reply, client=request.client, epoch=0)
            topics += reply.topics
            if reply.next_topic is UNSET:
                return tuple(topics)
            after = reply.next_topic

    def _ask(self, request: Request) -> AnyReply:
        return self._asker.ask(request)[0]


def _fixed(do: AnyAction, seen: AdminAck) -> AnyAction:
    """The action with the offset that was seen, so that a later copy means the same."""
    match do:
        case Truncate() | SetCursor():
            return replace(do, start=Start("offset", seen.effect.end))
        case Skip():
            return replace(do, end=seen.effect.end)
        case _:
            return do


def _with_cursor(subscriber: str) -> str:
    """The id of a subscriber; a group has no cursor that says what was acknowledged."""
    if subscriber.startswith(names.GROUP_PREFIX):
        raise UsageError(
            f"{subscriber!r} is a group, whose messages end in any order, so it cannot be moved; "
            "end it, and let a member begin it where you want (`start`). Nothing was done"
        )
    return names.client_id(subscriber)


def _place(start: int | Start) -> Start:
    """The place that an operator has named."""
    place = start_of(start)
    if place.at == "last":
        raise UsageError(
            "`last` (LastReceived) is where a subscriber was, and names no place for an operator; "
            "allowed is earliest, now, an offset, newest, a time or an age. Nothing was done"
        )
    return place


def _waiting(topics: tuple[TopicStatus, ...]) -> list[Waiting]:
    return [
        Waiting(topic=topic.topic, subscriber=one.subscriber, lag_messages=one.lag_messages)
        for topic in topics
        for one in topic.subscriptions
        if one.state != "expired" and one.terms.qos and one.lag_messages
    ] + [
        Waiting(
            topic=topic.topic,
            subscriber=names.GROUP_PREFIX + one.group,
            lag_messages=one.held + one.waiting,
        )
        for topic in topics
        for one in topic.groups or ()
        if one.state != "expired" and one.held + one.waiting
    ]
