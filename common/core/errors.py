"""What can go wrong, as a tree. Each error says what happened, what it means and what to do.

PubSubError                      code                 exit
├── UsageError                   USAGE                2     the request is invalid
│   ├── InvalidNameError         INVALID_NAME
│   ├── InvalidPatternError      INVALID_PATTERN
│   ├── TooLargeError            TOO_LARGE
│   ├── ForkedError              FORKED
│   └── ConfigurationError       CONFIGURATION
├── InDoubtError                 IN_DOUBT             3     outcome unknown; run again to resume
│   ├── ProxyUnreachableError    PROXY_UNREACHABLE
│   ├── TryLaterError            FULL, BUSY, STORAGE_FULL
│   ├── StoppedError             STOPPED
│   ├── StageLostError           STAGE_LOST
│   ├── SettledInDoubtError      SETTLED_IN_DOUBT
│   ├── TimedOutError            TIMED_OUT
│   ├── DescriptorsError         DESCRIPTORS
│   └── NotDeliveredError        NOT_DELIVERED
├── RefusedError                 REFUSED              4     decided: no
│   ├── PayloadError             PAYLOAD
│   ├── TwoProxiesError          TWO_PROXIES
│   ├── FencedError              FENCED
│   ├── ConflictError            CONFLICT
│   ├── LogChangedError          LOG_CHANGED
│   ├── NotSubscribedError       NOT_SUB
│   ├── StaleError               STALE
│   ├── LeaseLostError           LEASE_LOST
│   ├── TruncatedError           TRUNCATED
│   ├── OutOfRangeError          OUT_OF_RANGE
│   ├── NotPossibleError         NOT_POSSIBLE
│   ├── LostError                LOST
│   ├── DeniedError              DENIED
│   ├── LimitError               LIMIT
│   │   └── DeadLetterRefusedError  DEAD_LETTER_REFUSED
│   ├── MalformedError           MALFORMED
│   └── InUseError               IN_USE
└── DamagedError                 DAMAGED              5     stored data cannot be read
    └── StorageFailedError       STORAGE_FAILED       5     a write or sync failed
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from .keys import SecureEndpoint


class PubSubError(Exception):
    """The root of all errors of this package; `code` is for machines, the text for people."""

    code: str = "ERROR"
    exit_code: ClassVar[int] = 1

    def __reduce__(self) -> tuple[object, ...]:
        """Copied and pickled as it is: a pool of processes sends it to the process that waits.

        By default `__init__` would be called with the text, which few of these take.
        """
        return _made_of, (type(self), self.args), vars(self)


def _made_of(cls: type[PubSubError], arguments: tuple[object, ...]) -> PubSubError:
    return cls.__new__(cls, *arguments)


class UsageError(PubSubError):
    """The caller's request is invalid; nothing was sent."""

    code = "USAGE"
    exit_code = 2


class InvalidNameError(UsageError, ValueError):
    """An id or a topic breaks the rules for names."""

    code = "INVALID_NAME"

    def __init__(self, *, kind: str, name: str, expected: str) -> None:
        super().__init__(f"{kind} {name!r:.80} is not allowed; expected {expected}")
        self.kind = kind
        self.name = name
        self.expected = expected


class InvalidPatternError(UsageError, ValueError):
    """A pattern of topics, or a predicate over headers, cannot be read."""

    code = "INVALID_PATTERN"

    def __init__(self, *, pattern: str, problem: str) -> None:
        super().__init__(f"pattern {pattern!r:.80} cannot be used: {problem}")
        self.pattern = pattern
        self.problem = problem


class TooLargeError(UsageError, ValueError):
    """A message or batch is above a limit; nothing was sent."""

    code = "TOO_LARGE"

    def __init__(self, *, what: str, size: int, size_max: int, advice: str) -> None:
        super().__init__(f"{what} is {size:,}, at most {size_max:,} is allowed; {advice}")
        self.size = size
        self.size_max = size_max


class ForkedError(UsageError):
    """A client is used in a child of the process that made it; nothing was sent."""

    code = "FORKED"

    def __init__(self, *, what: str, pid: int) -> None:
        super().__init__(
            f"{what} belongs to process {pid}, and this one is its child by fork; make a client "
            "here, with an id of its own, or start processes with the method spawn"
        )
        self.pid = pid


class ConfigurationError(UsageError):
    """A file, flag or variable holds what we cannot use."""

    code = "CONFIGURATION"


class InDoubtError(PubSubError):
    """No definite answer came. State is kept: the same request may be asked again, safely."""

    code = "IN_DOUBT"
    exit_code = 3
    kept = False  # of a put: it is stored here, and sent again by the next call
    timeout_s: float | None = None  # of the call, if that ended it


class ProxyUnreachableError(InDoubtError):
    """Every attempt of a request went unanswered."""

    code = "PROXY_UNREACHABLE"

    def __init__(
        self,
        *,
        endpoint: str,
        attempts: int,
        waited_s: float,
        verb: str,
        timeout_s: float | None = None,
    ) -> None:
        if verb in ("HELLO", "STATUS", "CLIENTS", "HISTORY", "DELIVERY", "SUBSCRIPTIONS"):
            fate = "nothing was changed: start it (reliable-pubsub proxy) and run the command again"
        else:
            fate = (
                "the outcome is in doubt, nothing is lost: start the proxy and run the same "
                "command again, it resumes"
            )
        if isinstance(endpoint, SecureEndpoint):
            fate += "; if it runs, it has another key than was expected, or does not know ours"
        else:
            fate += "; if it runs, it is at another endpoint, or asks for keys"
        within = "" if timeout_s is None else f" (timeout_s={timeout_s})"
        super().__init__(
            f"no answer to {verb} from {endpoint} in {attempts} attempts over {waited_s:.1f} s"
            f"{within}; {fate}"
        )
        self.timeout_s = timeout_s
        self.endpoint = str(endpoint)  # without its keys
        self.attempts = attempts
        self.waited_s = waited_s
        self.verb = verb


class TryLaterError(InDoubtError):
    """The proxy answers, but cannot take this now (FULL, BUSY, STORAGE_FULL)."""

    def __init__(
        self, *, code: str, text: str, attempts: int, timeout_s: float | None = None
    ) -> None:
        super().__init__(f"{text} (tried {attempts} times; the request is kept and can be resumed)")
        self.timeout_s = timeout_s
        self.code = code
        self.why = text
        self.attempts = attempts


class StoppedError(InDoubtError):
    """`stop`, or the end of a stream, interrupted a wait for the proxy."""

    code = "STOPPED"

    def __init__(self) -> None:
        super().__init__(
            "interrupted before the proxy answered; the outcome of this request is unknown. "
            "The next call, or the next process with this state, resolves it"
        )


class StageLostError(InDoubtError):
    """The staged batches of a transaction were lost repeatedly; none of them was stored."""

    code = "STAGE_LOST"


class TimedOutError(InDoubtError):
    """The `timeout_s` of a call, or the `timeout` of a step, has expired."""

    code = "TIMED_OUT"


class DescriptorsError(InDoubtError):
    """This process has too few free file descriptors. The call works once there are enough."""

    code = "DESCRIPTORS"

    def __init__(self, *, what: str, needed: int, free: int, limit: int) -> None:
        super().__init__(
            f"{what} needs {needed} free file descriptors, and there are {free}: this process may "
            f"have {limit} (RLIMIT_NOFILE, `ulimit -n`). A client uses up to 11, with pushes or "
            "QoS 0 up to 20. Close unneeded clients and files, or raise the limit"
        )
        self.needed = needed
        self.free = free
        self.limit = limit


class NotDeliveredError(InDoubtError):
    """A message is stored, but too few subscribers have acknowledged it in time."""

    code = "NOT_DELIVERED"

    def __init__(
        self,
        why: str,
        *,
        message_id: str,
        topic: str,
        acknowledged: tuple[str, ...],
        waiting: tuple[str, ...],
        left: tuple[str, ...],
    ) -> None:
        super().__init__(
            f"topic {topic!r}: {message_id} is stored and must not be put again, but {why}. "
            f"Acknowledged by: {_names(acknowledged)}; not by: {_names(waiting)}; gone without: "
            f"{_names(left)}. Wait again with wait_delivered, or run the same command again"
        )
        self.message_id = message_id
        self.topic = topic
        self.acknowledged = acknowledged
        self.waiting = waiting
        self.left = left


def _names(names: tuple[str, ...]) -> str:
    """The first twenty ids, as text."""
    more = f" and {len(names) - 20:,} more" if len(names) > 20 else ""
    return (", ".join(names[:20]) or "none") + more


class RefusedError(PubSubError):
    """The proxy refused the request. The same request will be refused again."""

    code = "REFUSED"
    exit_code = 4


class PayloadError(RefusedError, ValueError):
    """A payload is not what its codec, its content type or its schema says."""

    code = "PAYLOAD"

    def __init__(
        self, text: str, *, topic: str, content_type: str | None, offset: int | None = None
    ) -> None:
        super().__init__(text)
        self.topic = topic
        self.content_type = content_type
        self.offset = offset  # of a message that was received


class TwoProxiesError(RefusedError):
    """The nodes above a relay lead to different proxies."""

    code = "TWO_PROXIES"

    def __init__(self, *, first: str, second: str) -> None:
        super().__init__(
            f"{first} and {second} lead to different proxies; subscribers below would get the "
            "messages of one and silently none of the other: start a relay for each proxy, or give "
            "--upstream ways to the same one"
        )
        self.first = first
        self.second = second


class FencedError(RefusedError):
    """A newer process with the same id has taken over; this one must stop."""

    code = "FENCED"

    def __init__(self, *, client: str, epoch: int, current_epoch: int) -> None:
        super().__init__(
            f"client {client!r} epoch {epoch} is fenced: epoch {current_epoch} of the same id is "
            "active; stop this process, or give it an id of its own"
        )
        self.client = client
        self.epoch = epoch
        self.current_epoch = current_epoch


class ConflictError(RefusedError):
    """A sequence number was used before for other content."""

    code = "CONFLICT"


class LogChangedError(RefusedError):
    """The log of the proxy is not the one of this client's position."""

    code = "LOG_CHANGED"


class NotSubscribedError(RefusedError):
    """The client is not subscribed to the topic."""

    code = "NOT_SUB"


class StaleError(RefusedError):
    """The request is for a subscription that a later one has replaced."""

    code = "STALE"


class SettledInDoubtError(InDoubtError):
    """Messages of a group were settled, or they come again: the proxy began another session."""

    code = "SETTLED_IN_DOUBT"

    def __init__(self, *, topic: str, offsets: Sequence[int]) -> None:
        count = len(offsets)
        which = ", ".join(map(str, offsets[:5])) + (", ..." if count > 5 else "")
        super().__init__(
            f"topic {topic!r}: {count} message(s) (offset {which}) were being settled when the "
            "session with the proxy was lost: each of them either is settled, or comes again, "
            "marked as redelivered"
        )
        self.topic = topic
        self.offsets = tuple(offsets)


class LeaseLostError(RefusedError):
    """Messages of a group were settled too late: another member has them now, or they have ended.

    What was settled with them in time has had its effect.
    """

    code = "LEASE_LOST"

    def __init__(self, *, topic: str, offsets: Sequence[int]) -> None:
        count = len(offsets)
        which = ", ".join(map(str, offsets[:5])) + (", ..." if count > 5 else "")
        super().__init__(
            f"topic {topic!r}: {count} message(s) were no longer held here (offset {which}): the "
            "lease had ended, so another member of the group has them or has settled them. Undo "
            "what can be undone, and use a longer lease_s or `extend`"
        )
        self.topic = topic
        self.offsets = tuple(offsets)


class TruncatedError(RefusedError):
    """The requested start is before the oldest stored message."""

    code = "TRUNCATED"

    def __init__(self, text: str, *, topic: str, start: int, start_ns: int | None) -> None:
        super().__init__(text)
        self.topic = topic
        self.start = start  # the first stored offset
        self.start_ns = start_ns  # when the proxy stored it; None: nothing is stored


class OutOfRangeError(RefusedError):
    """The requested start is after the end of the topic."""

    code = "OUT_OF_RANGE"

    def __init__(self, text: str, *, topic: str, start: int, end: int) -> None:
        super().__init__(text)
        self.topic = topic
        self.start = start
        self.end = end  # start to end can be asked for


class NotPossibleError(RefusedError):
    """An action of an operator cannot be done as things are."""

    code = "NOT_POSSIBLE"


class LostError(RefusedError):
    """Messages were removed before they were acknowledged; the next get continues after them."""

    code = "LOST"

    def __init__(
        self,
        *,
        topic: str,
        first: int,
        end: int,
        waiting_max: int | None = None,
        by_operator: bool = False,
    ) -> None:
        why = "are no longer stored"
        if by_operator:
            why = "were skipped or removed by an operator"
        if waiting_max is not None:
            why = f"are more than the {waiting_max:,} that may wait for one subscription"
        super().__init__(
            f"topic {topic!r}: offsets {first} to {end - 1} ({end - first} messages) {why}, and "
            "were not acknowledged here. They will not be delivered or redelivered; the next get "
            f"continues at offset {end}"
        )
        self.waiting_max = waiting_max  # None: they are no longer stored
        self.by_operator = by_operator  # some of them
        self.topic = topic
        self.first = first
        self.end = end


class DeniedError(RefusedError):
    """The key of this client lacks a right; nothing was changed."""

    code = "DENIED"

    def __init__(self, text: str, *, client: str, right: str, topic: str) -> None:
        super().__init__(text)
        self.client = client
        self.right = right  # id, relay, or put, get, history, dead_letters, status, admin
        self.topic = topic  # "": it is not of one topic


class LimitError(RefusedError):
    """The proxy has reached its limit of topics, clients or subscriptions."""

    code = "LIMIT"


class DeadLetterRefusedError(LimitError):
    """The proxy refused a dead letter; its message is not rejected and will be redelivered."""

    code = "DEAD_LETTER_REFUSED"

    def __init__(self, why: RefusedError, *, topic: str, offset: int) -> None:
        super().__init__(
            f"topic {topic!r}: offset {offset} could not become a dead letter: {why}. It is not "
            "given up: the next get gives it again, marked as redelivered. Acknowledge it to go "
            "on without a dead letter, or give the proxy room for the topic of dead letters"
        )
        self.why = why
        self.topic = topic
        self.offset = offset


class MalformedError(RefusedError):
    """Bytes that are not a message of this protocol."""

    code = "MALFORMED"

    def __init__(self, text: str, *, is_our_request: bool = False) -> None:
        super().__init__(text)
        self.is_our_request = is_our_request  # the proxy reported it, and did nothing


class InUseError(RefusedError):
    """Another process, or a call of this one, uses this data directory or client state."""

    code = "IN_USE"

    def __init__(self, *, path: str, what: str, is_here: bool = False) -> None:
        if is_here:
            by = "this process, in a call or a stream that has not ended; close that one first"
        else:
            by = "another process; stop that one first"
        super().__init__(f"{what} {path} is in use by {by}, or choose another")
        self.path = path


class DamagedError(PubSubError):
    """Stored data cannot be read back as it was written. Nothing was changed."""

    code = "DAMAGED"
    exit_code = 5


class StorageFailedError(DamagedError):
    """The operating system could not write or sync; the data on disk is unchanged."""

    code = "STORAGE_FAILED"
