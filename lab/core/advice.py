"""What the levels in a step file mean for it, and what would be better. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from reliable_pubsub.common.core.steps import PublisherStep, Step, SubscriberStep

BATCH = 100  # what a batch is advised to be
WORTH_A_BATCH = 100  # messages from which on one is advised


class Advice(Struct, frozen=True, kw_only=True):
    """One step, what it costs, and the advice on it."""

    step: int  # from 1
    topic: str
    qos: int
    messages: int | None  # that it puts; None: the lines of a file, or nothing is put
    fsyncs: int | None  # of the proxy, for them: one for each request, fewer beside others
    says: tuple[str, ...]


def advise(steps: Sequence[Step]) -> list[Advice]:
    """Advice for each step that has a level: puts and subscribes."""
    found: list[Advice] = []
    for number, step in enumerate(steps, start=1):
        if isinstance(step, PublisherStep):
            found.append(_put(number, step))
        elif step.action == "subscribe":
            found.append(_subscribe(number, step))
    return found


def _put(number: int, step: PublisherStep) -> Advice:
    messages = None if step.message_file is not None else step.number_of_times
    requests = None if messages is None else -(-messages // step.batch)
    says: list[str] = []
    if step.qos == 0 and step.message_file is not None:
        says.append("a line without a subscriber is lost; QoS 2 keeps it for later subscribers")
    if step.qos == 1:
        says.append(
            "a lost answer doubles a message, so handlers have to know a copy by its id; QoS 2 "
            "costs a put the same"
        )
    unhurried = step.batch == 1 and not step.sleep_between_messages_s
    if step.qos and unhurried and messages is not None and messages >= WORTH_A_BATCH:
        fewer = -(-messages // BATCH)
        says.append(f"batch: {BATCH} needs {fewer:,} fsyncs in place of {messages:,}")
    return Advice(
        step=number,
        topic=step.topic,
        qos=step.qos,
        messages=messages,
        fsyncs=0 if step.qos == 0 else requests,
        says=tuple(says),
    )


def _subscribe(number: int, step: SubscriberStep) -> Advice:
    says: list[str] = []
    if step.qos == 0 and not step.push:
        says.append("push: true brings messages before the ring of the topic is full")
    if step.qos == 0 and step.start is not None:
        says.append("a process that comes back begins with what comes then, not with `from`")
    if step.qos and step.session == "clean":
        says.append("what comes while it is away is not kept; session: persistent keeps it")
    if step.qos == 2:
        says.append("processed once, too, only with --output or a sink that keeps the offset")
    return Advice(
        step=number, topic=step.topic, qos=step.qos, messages=None, fsyncs=None, says=tuple(says)
    )
