"""The judge: what clients were asked and what they answered, held against the rules. Pure.

It imports nothing of a product, and sees only the input and output of clients: no journal, no log,
no state. A call without an answer is one that a kill interrupted; its effect may have happened.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, Literal

from msgspec import Struct

Rule = Literal[
    "nothing acknowledged is lost",
    "nothing twice",
    "the publisher's order is kept",
    "nothing invented",
    "a subscription outlives every process",
    "nothing after unsubscribe",
    "an unanswered put is stored once or never",
    "the service resumes after the last fault",
    "each answer has the form of the task sheet",
    "the submission stays within its limits",
]
SHOWN_CHARS_MAX: Final = 60


class ClientCall(Struct, kw_only=True):
    """A line for a client, and its answer."""

    client: str
    life: int  # of the client: 1, and one more after each kill
    op: str
    topic: str
    id: str = ""
    message: str = ""
    began: int  # a count: what began later has a larger one
    ended: int | None = None
    answer: Any = None  # as decoded; text that is no object stays text

    @property
    def is_ok(self) -> bool:
        return isinstance(self.answer, dict) and self.answer.get("ok") is True


class BrokenRule(Struct, frozen=True, kw_only=True):
    """A broken rule."""

    rule: Rule
    text: str
    client: str = ""
    topic: str = ""
    id: str = ""


class PutMessage(Struct, frozen=True, kw_only=True):
    """A message, however often it was put."""

    publisher: str
    topic: str
    id: str
    text: str
    number: int  # among those of its publisher on its topic
    began: int  # its first put
    is_acknowledged: bool


Key = tuple[str, str, str]  # topic, id, text


def messages_put(calls: Sequence[ClientCall]) -> dict[Key, PutMessage]:
    """Return all messages; a put with the same client, topic and id is the same message."""
    puts = [call for call in calls if call.op == "put"]
    first: dict[tuple[str, str, str], ClientCall] = {}
    numbers: dict[tuple[str, str], int] = {}
    found: dict[Key, PutMessage] = {}
    for call in puts:
        same = (call.client, call.topic, call.id)
        if same in first:
            continue
        first[same] = call
        number = numbers[same[:2]] = numbers.get(same[:2], 0) + 1
        found[call.topic, call.id, call.message] = PutMessage(
            publisher=call.client,
            topic=call.topic,
            id=call.id,
            text=call.message,
            number=number,
            began=call.began,
            is_acknowledged=any(
                one.is_ok for one in puts if (one.client, one.topic, one.id) == same
            ),
        )
    return found


def wrong_form(call: ClientCall) -> bool:
    """Return whether an answer has another form than the task sheet gives it."""
    answer = call.answer
    if not isinstance(answer, dict):
        return True
    if call.op != "get":
        return answer.get("ok") is not True
    if "error" in answer:
        return not isinstance(answer["error"], str)
    text = answer.get("message", 0)
    return text is not None and not (isinstance(text, str) and isinstance(answer.get("id"), str))


class TopicReading:
    """One subscriber and topic: what it was given, and what it must still be given."""

    def __init__(self, client: str, topic: str, messages: dict[Key, PutMessage]) -> None:
        self.breaches: list[BrokenRule] = []
        self.subscribed: bool | None = False  # None: a kill interrupted the call
        self.done: set[Key] = set()  # acknowledged
        self._client, self._topic, self._messages = client, topic, messages
        self._since = 0  # of the subscription
        self._open: PutMessage | None = None  # returned, and not acknowledged
        self._open_life = self._life = 0
        self._may_be_done = False  # an interrupted call may have acknowledged the open one
        self._passed: dict[str, int] = {}  # number of the newest one, by publisher

    def _broken(self, rule: Rule, text: str, message: PutMessage | None = None) -> None:
        id = message.id if message else ""
        self.breaches.append(
            BrokenRule(rule=rule, text=text, client=self._client, topic=self._topic, id=id)
        )

    def take(self, call: ClientCall) -> None:
        """Judge the next call."""
        self._life = call.life
        if call.ended is not None and wrong_form(call):
            text = f"{call.client} answered {call.op} with {shown(call.answer)}"
            self._broken("each answer has the form of the task sheet", text)
        elif call.op == "get":
            self._get(call)
        elif call.op == "ack":
            self._acknowledge(call)
        elif call.op == "subscribe":
            if call.ended is not None and self.subscribed is not True:
                self._since = call.ended
            self.subscribed = None if call.ended is None and not self.subscribed else True
        elif call.op == "unsubscribe":
            self._lose([one for one in self.owed(set()) if one not in self.awaited()])
            self.subscribed = None if call.ended is None and self.subscribed is not False else False
            if self._open is not None:  # after a new subscribe it may be returned again
                self._passed[self._open.publisher] = self._open.number - 1
            self._open = None

    def _acknowledge(self, call: ClientCall) -> None:
        if self._open is None or self._open_life != call.life:
            return
        if call.ended is None:
            self._may_be_done = True
        else:
            self._settle()

    def _settle(self) -> None:
        assert self._open is not None
        self.done.add(key_of(self._open))
        self._open, self._may_be_done = None, False

    def _get(self, call: ClientCall) -> None:
        if call.ended is None or "error" not in call.answer:
            self._acknowledge(call)
        if call.ended is None:
            return
        text = call.answer.get("message")
        if "error" in call.answer:
            if self.subscribed:
                self._broken(
                    "a subscription outlives every process",
                    f"{self._client} is subscribed to {self._topic}, and get answered "
                    f"{shown(call.answer)}",
                )
        elif self.subscribed is False:
            what = "null" if text is None else shown(text)
            self._broken(
                "nothing after unsubscribe",
                f"{self._client} is not subscribed to {self._topic}, and get answered {what} "
                "where it must answer with an error",
            )
        elif text is not None:
            self._returned(call, (self._topic, call.answer["id"], text))

    def _returned(self, call: ClientCall, key: Key) -> None:
        message = self._messages.get(key)
        if message is None or message.began > call.began:
            same = [one for one in self._messages.values() if one.text == key[2]]
            where = f"; {same[0].publisher} put it on {same[0].topic}" if same else ""
            text = f"{self._client} got {shown(key[2])} with id {shown(key[1])} on {self._topic}"
            self._broken("nothing invented", f"{text}, which no client put there{where}")
            return
        if self._open is not None:
            if message is not self._open and not self._may_be_done:
                self._broken(
                    "nothing acknowledged is lost",
                    f"{self._client} got {self._open.id} and died before it acknowledged it; its "
                    f"first message after the restart must be {self._open.id}, not {message.id}",
                    self._open,
                )
            if message is not self._open:
                self._settle()
        if key in self.done:
            self._broken(
                "nothing twice", f"{self._client} got {message.id} again after it acknowledged it",
                message,
            )  # fmt: skip
            return
        passed = self._passed.get(message.publisher, 0)
        if message.number < passed:
            self._broken(
                "the publisher's order is kept",
                f"{self._client} got {message.id} after a message that {message.publisher} put "
                "later",
                message,
            )
        self._passed[message.publisher] = max(message.number, passed)
        self._open, self._open_life, self._may_be_done = message, call.life, False

    def owed(self, stored: set[Key]) -> list[PutMessage]:
        """Return what this subscriber must still get.

        Args:
            stored: messages that count as stored although no put of them was answered.
        """
        if not self.subscribed:
            return []
        return [
            one
            for key, one in self._messages.items()
            if one.topic == self._topic
            and one.began > self._since
            and (one.is_acknowledged or key in stored)
            and key not in self.done
            and (one is not self._open or self._is_owed_again)
        ]

    @property
    def _is_owed_again(self) -> bool:
        """Return whether the open message belongs to a client that died with it."""
        return self._open_life < self._life and not self._may_be_done

    def awaited(self) -> list[PutMessage]:
        """Return what can still arrive in order."""
        owed = self.owed(set())
        passed = self._passed
        return [
            one for one in owed if one is self._open or one.number > passed.get(one.publisher, 0)
        ]

    def close(self, stored: set[Key]) -> None:
        """Judge the end: nothing more is returned."""
        self._lose(self.owed(stored))

    def _lose(self, messages: Sequence[PutMessage]) -> None:
        """Report messages that cannot be returned any more."""
        for one in messages:
            if one.is_acknowledged:
                self._broken(
                    "nothing acknowledged is lost",
                    f"the put of {one.id} was acknowledged to {one.publisher}; {self._client}, "
                    f"subscribed before, never got it",
                    one,
                )
            else:
                self._broken(
                    "an unanswered put is stored once or never",
                    f"the put of {one.id} was never answered; another subscriber got it, and "
                    f"{self._client} did not",
                    one,
                )


def key_of(message: PutMessage) -> Key:
    return message.topic, message.id, message.text


def shown(value: object) -> str:
    """Return a value as people read it, shortened."""
    text = repr(value) if isinstance(value, str) else str(value)
    return text if len(text) <= SHOWN_CHARS_MAX else f"{text[: SHOWN_CHARS_MAX - 4]}...{text[-1]}"


def readings(calls: Sequence[ClientCall]) -> dict[tuple[str, str], TopicReading]:
    """Judge what each subscriber got, by subscriber and topic."""
    messages = messages_put(calls)
    found: dict[tuple[str, str], TopicReading] = {}
    for call in calls:
        if call.op == "put":
            continue
        at = call.client, call.topic
        found.setdefault(at, TopicReading(*at, messages)).take(call)
    return found


def _wrong_puts(calls: Sequence[ClientCall]) -> Iterator[BrokenRule]:
    for call in calls:
        if call.op == "put" and call.ended is not None and wrong_form(call):
            text = f"{call.client} answered the put of {call.id} with {shown(call.answer)}"
            yield BrokenRule(
                rule="each answer has the form of the task sheet",
                text=text,
                client=call.client,
                topic=call.topic,
                id=call.id,
            )


def judge(calls: Sequence[ClientCall], *, is_over: bool) -> list[BrokenRule]:
    """Return every broken rule.

    Args:
        is_over: every subscriber was asked until nothing more came.
    """
    found = readings(calls)
    stored = {
        (call.topic, call.answer["id"], call.answer["message"])
        for call in calls
        if call.op == "get" and call.ended is not None and not wrong_form(call)
        if "error" not in call.answer and call.answer["message"] is not None
    }
    for reading in found.values() if is_over else ():
        reading.close(stored)
    return [*_wrong_puts(calls), *(one for reading in found.values() for one in reading.breaches)]
