"""The language of step files: the steps of a publisher or subscriber, in order.

Three parts: the steps (`step_file.py` reads them); the plan, which says what comes next from any
position, so that a killed process resumes where it was; and the description of a plan: its table
for users, its digest for later runs.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, Literal

import msgspec
from msgspec import Struct

from .errors import ConfigurationError
from .message_base import QoS, SessionKind, Start
from .patterns.pattern import Topics, glob
from .start import start_in_words

StepAction = Literal["subscribe", "get", "seek", "unsubscribe"]
OnEmpty = Literal["wait", "skip"]
Wait = Literal["stored", "delivered"]
Settles = Literal["ack", "nack", "reject"]

DELIVERED_S: Final = 30.0  # how long a put waits for its subscribers by default


class PublisherStep(Struct, frozen=True, kw_only=True):
    """Put a message, or the lines of a file, into a topic, a number of times.

    Either `message` or `message_file` is set. The lines of a file are messages unchanged,
    never numbered; `number_of_times` then repeats the whole file.
    """

    topic: str
    message: str | None = None
    message_file: str | None = None  # as written in the step file
    number_of_times: int = 1  # 1..STEP_MESSAGES_MAX
    sleep_between_messages_s: float = 0.0  # between requests; 0..SLEEP_S_MAX
    sleep_after_s: float = 0.0  # after the last request of the step; 0..SLEEP_S_MAX
    batch: int = 1  # messages in one request, at most; 1..BATCH_MESSAGES_MAX
    numbered: bool = True  # the payload is `<message>_<sequence>`; False with message_file
    qos: QoS = 2  # 1: at least once, and the sequence counts within the step
    wait: Wait = "stored"  # delivered: each request waits until subscribers have acknowledged it
    acknowledged_by: int | Literal["all"] = "all"  # with wait: delivered
    timeout_s: float = DELIVERED_S  # with wait: delivered


class SubscriberStep(Struct, frozen=True, kw_only=True):
    """Subscribe to a topic, get messages of it, seek, or unsubscribe.

    The fields from `start` on are for `subscribe` only (`start` also for `seek`), and `ends_group`
    is for `unsubscribe`; the
    others, except `topic` and `sleep_after_s`, are for `get`. Elsewhere they have their defaults.
    """

    action: StepAction
    topic: str
    number_of_times: int = 1  # messages to get, 1..STEP_MESSAGES_MAX
    sleep_between_s: float = 0.0  # between gets; 0..SLEEP_S_MAX
    sleep_after_s: float = 0.0  # after the last one; 0..SLEEP_S_MAX
    batch: int = 1  # messages to get at once, at most; 1..BATCH_MESSAGES_MAX
    on_empty: OnEmpty = "wait"  # skip: a get that finds nothing counts as done
    timeout_s: float | None = None  # how long one get may wait, above 0; None: forever
    settle: Settles = "ack"  # of a group: nack gives the messages back, reject lets them die
    delay_s: float = 0.0  # with nack: before they come again
    ends_group: bool = False  # of an unsubscribe: for all members
    start: Start | None = None  # of a subscribe: where a new one begins; of a seek: where it moves
    qos: QoS = 2
    session: SessionKind = "persistent"
    lease_s: float | None = None  # above 0; None: a persistent one has none, a clean one 60 s
    push: bool = False  # receive pushes instead of polling
    max_deliveries: int | None = None  # then a message becomes a dead letter; None: never
    group: str | None = None  # be a member of it; qos, session and push are not for groups
    ordered_by: Literal["key"] | None = None  # of a group
    match: bool = False  # of every action: `topic` is a glob of topics
    where: str = ""  # with `match`: condition on the headers; "": any message

    @property
    def topics(self) -> Topics:
        """What a call of the subscriber is about."""
        return glob(self.topic) if self.match else self.topic


Step = PublisherStep | SubscriberStep


# The plan: positions, and what comes next.


class PlanPosition(Struct, frozen=True, order=True):
    """The position of a run of a plan: the next message to put or to get.

    After the last message of a step comes message 0 of the next one; the end of a plan of n
    steps is step n, message 0.
    """

    step: int = 0  # 0, 1, 2, ...
    message: int = 0  # 0, 1, 2, ... within the step


class PutChunk(Struct, frozen=True, kw_only=True):
    """One request of a publisher: what to put, and the plan's position once it is stored."""

    step: int
    first_message: int  # number within the step, from 0
    count: int  # messages, 1..batch
    position_after: PlanPosition
    sleep_s: float  # pause after this request


def publisher_chunks(
    steps: Sequence[PublisherStep],
    position: PlanPosition,
    line_count_of: Callable[[int], int],
) -> Iterator[PutChunk]:
    """Return the remaining requests from a position, in order.

    A run that was stopped during a pause skips the rest of it.

    Args:
        line_count_of: lines of the message file of a step, by its index; called once for
            each such step, first, so that a missing file is reported before anything is sent.

    Raises:
        ConfigurationError: a message file without a line, or a position outside the plan.
    """
    totals = [_messages_in(step, index, line_count_of) for index, step in enumerate(steps)]
    _check_position(position, totals)
    return _chunks(steps, totals, position)


def subscriber_after(
    steps: Sequence[SubscriberStep], position: PlanPosition, count: int
) -> tuple[PlanPosition, float]:
    """Return the position and the pause in seconds after `count` messages of one request.

    A subscribe, seek or unsubscribe counts as one message; so does each skipped get.

    Raises:
        ConfigurationError: the position is outside the plan.
        ValueError: `count` is not 1 .. what is left of the step; nothing is left at the end.
    """
    _check_position(position, [step.number_of_times for step in steps])
    if position.step == len(steps):
        raise ValueError(f"{count} messages at the end of the plan")
    step = steps[position.step]
    total = step.number_of_times
    return _advance(position, count, total, step.sleep_between_s, step.sleep_after_s)


def message_lines(content: bytes) -> tuple[bytes, ...]:
    r"""Return the messages of a message file: its lines, without their \n.

    Nothing else is changed: an empty line is an empty message, and a \r stays.
    """
    lines = content.split(b"\n")
    return tuple(lines if lines[-1] else lines[:-1])


def payload_of(
    step: PublisherStep, index: int, sequence: int, lines: Sequence[bytes] = ()
) -> bytes:
    """Give the payload of one message of a step.

    Args:
        index: number of the message within the step, from 0.
        sequence: the number to append: 1, 2, 3, ... of this publisher in the topic.
        lines: of the message file, as in `message_lines`; used with `message_file` only.
    """
    if step.message is None:
        return lines[index % len(lines)]
    text = f"{step.message}_{sequence}" if step.numbered else step.message
    return text.encode()


# The description of a plan.


class PlanRow(Struct, frozen=True, kw_only=True):
    """One step in the table of a plan."""

    step: int  # from 1
    action: str  # put, subscribe, get, seek or unsubscribe
    topic: str
    messages: int | None  # 0 but for put and get; None: lines of a file not counted
    batch: int
    sleep_between_s: float
    sleep_after_s: float
    detail: str  # the message, the file, or how a get waits


def describe(
    steps: Sequence[Step], line_count_of: Callable[[int], int] | None = None
) -> list[PlanRow]:
    """Give the table of a plan, one row for each step.

    Args:
        line_count_of: as for `publisher_chunks`; without it files are not counted.

    Raises:
        ConfigurationError: a message file without a line.
    """
    return [_row(index, step, line_count_of) for index, step in enumerate(steps)]


def plan_digest(steps: Sequence[Step], file_digests: Mapping[str, str]) -> str:
    """Return the SHA-256, in hex, of a plan; plans that differ have different digests.

    A run may resume only under the digest it began with. A key that is left out and a key with
    its default give the same digest, and so does a field that a later version adds.

    Args:
        file_digests: by `message_file`, a digest of its content. Files that no step
            names are ignored.

    Raises:
        KeyError: the digest of a message file is missing.
    """
    files = {
        step.message_file: file_digests[step.message_file]
        for step in steps
        if isinstance(step, PublisherStep) and step.message_file is not None
    }
    plan = {"plan": 1, "steps": [_without_defaults(step) for step in steps], "files": files}
    return hashlib.sha256(msgspec.json.encode(plan, order="sorted")).hexdigest()


def _without_defaults(step: Step) -> dict[str, object]:
    """Give the fields whose value is not their default.

    Not left to msgspec's `omit_defaults`: that one asks whether a default is the same object, so
    a 0.0 from a file would count as another value.
    """
    values = msgspec.structs.asdict(step)
    defaults = {field.name: field.default for field in msgspec.structs.fields(step)}
    return {name: value for name, value in values.items() if value != defaults[name]}


def _row(index: int, step: Step, line_count_of: Callable[[int], int] | None) -> PlanRow:
    if isinstance(step, PublisherStep):
        counted = step.message is not None or line_count_of is not None
        return PlanRow(
            step=index + 1,
            action="put",
            topic=step.topic,
            messages=_messages_in(step, index, line_count_of) if counted else None,
            batch=step.batch,
            sleep_between_s=step.sleep_between_messages_s,
            sleep_after_s=step.sleep_after_s,
            detail=_message_in_words(step),
        )
    get = step.action == "get"
    return PlanRow(
        step=index + 1,
        action=step.action,
        topic=step.topic,
        messages=step.number_of_times if get else 0,
        batch=step.batch,
        sleep_between_s=step.sleep_between_s,
        sleep_after_s=step.sleep_after_s,
        detail=_get_in_words(step) if get else _subscribe_in_words(step),
    )


def _get_in_words(step: SubscriberStep) -> str:
    wait = step.on_empty if step.timeout_s is None else f"{step.on_empty} {step.timeout_s:g} s"
    if step.settle == "ack":
        return wait
    return f"{wait}, {step.settle}" + (f" for {step.delay_s:g} s" if step.delay_s else "")


def _subscribe_in_words(step: SubscriberStep) -> str:
    words = [f"group {step.group}"] if step.group else []
    words += ["ends the group"] if step.ends_group else []
    words += [f"from {start_in_words(step.start)}"] if step.start else []
    words += [f"ordered by {step.ordered_by}"] if step.ordered_by else []
    words += [f"where {step.where}"] if step.where else []
    words += [f"QoS {step.qos}"] if step.qos != 2 else []
    words += ["clean session"] if step.session == "clean" else []
    words += [f"lease {step.lease_s:g} s"] if step.lease_s else []
    words += [f"max_deliveries {step.max_deliveries}"] if step.max_deliveries else []
    return ", ".join(words + (["push"] if step.push else []))


def _message_in_words(step: PublisherStep) -> str:
    level = f", QoS {step.qos}" if step.qos != 2 else ""
    if step.wait == "delivered":
        level += f", delivered to {step.acknowledged_by} within {step.timeout_s:g} s"
    if step.message is None:
        return f"lines of {step.message_file}{level}"
    return (f"{step.message}_<sequence>" if step.numbered else step.message) + level


def _messages_in(
    step: PublisherStep, index: int, line_count_of: Callable[[int], int] | None
) -> int:
    """Count the messages of a step: at least 1.

    Raises:
        ConfigurationError: its message file has no line.
    """
    if step.message_file is None or line_count_of is None:
        return step.number_of_times
    lines = line_count_of(index)
    if lines < 1:
        raise ConfigurationError(
            f"steps[{index}].message_file: found {step.message_file} without a line, expected at "
            "least one; each line is a message"
        )
    return step.number_of_times * lines


def _check_position(position: PlanPosition, totals: Sequence[int]) -> None:
    end = PlanPosition(len(totals), 0)
    inside = 0 <= position.step < end.step and 0 <= position.message < totals[position.step]
    if not (inside or position == end):
        raise ConfigurationError(
            f"the run is at step {position.step + 1}, message {position.message + 1}, which "
            f"this plan of {end.step} steps does not have; it is the plan of another run: use "
            "another id or another state directory"
        )


def _chunks(
    steps: Sequence[PublisherStep], totals: Sequence[int], position: PlanPosition
) -> Iterator[PutChunk]:
    while position.step < len(steps):
        step, total = steps[position.step], totals[position.step]
        count = min(step.batch, total - position.message)
        after, sleep_s = _advance(
            position, count, total, step.sleep_between_messages_s, step.sleep_after_s
        )
        yield PutChunk(
            step=position.step,
            first_message=position.message,
            count=count,
            position_after=after,
            sleep_s=sleep_s,
        )
        position = after


def _advance(
    position: PlanPosition, count: int, total: int, between_s: float, after_s: float
) -> tuple[PlanPosition, float]:
    """Return the position after `count` messages of a step of `total`, and the pause there."""
    done = position.message + count
    if not (count >= 1 and done <= total):
        raise ValueError(f"{count} messages at {position.message} of a step of {total}")
    if done < total:
        return PlanPosition(position.step, done), between_s
    return PlanPosition(position.step + 1, 0), after_s
