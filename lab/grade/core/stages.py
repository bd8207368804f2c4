"""The stages: what each run asks, and which faults it aims where. Pure.

Every run of a stage has all faults of the stage, so that no seed misses one. The seed decides
names, texts, how many messages come before, and the order of the episodes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from .plan import BROKER, Aim, Ask, Deliver, Kill, Plan, Stage, Step, Verb

if TYPE_CHECKING:
    from random import Random

OUTAGE_S: Final = 12.0  # a client that gives up after a few tries is found; the sheet asks for 30 s
CUT_S: Final = 2.0
TEXT_CHARS: Final = 10_000
ID_CHARS: Final = 100


class Draft:
    """The steps of a run: two publishers, two subscribers, two topics."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.steps: list[Step] = []
        mark = f"{random.randrange(16**4):04x}"
        self.topic, self.other = f"topic-{mark}", f"other-{mark}"
        self._count = 0

    def ask(
        self, client: str, op: Verb, *, topic: str = "", aim: Aim = "", seconds: float = 0.0
    ) -> None:
        topic = topic or self.topic
        self.steps.append(Ask(client=client, op=op, topic=topic, aim=aim, seconds=seconds))

    def put(
        self,
        client: str = "p1",
        *,
        topic: str = "",
        id: str = "",
        text: str = "",
        aim: Aim = "",
        seconds: float = 0.0,
    ) -> Ask:
        """Put a new message, with a text that nobody can guess."""
        self._count += 1
        step = Ask(
            client=client,
            op="put",
            topic=topic or self.topic,
            id=id or f"m{self._count}",
            message=text or f"m{self._count} {self.random.randrange(16**12):012x}",
            aim=aim,
            seconds=seconds,
        )
        self.steps.append(step)
        return step

    def again(self, put: Ask) -> None:
        """Put the same message again."""
        self.steps.append(Ask(client=put.client, op="put", topic=put.topic, id=put.id,
                              message=put.message))  # fmt: skip

    def kill(self, who: str) -> None:
        self.steps.append(Kill(who))

    def get(self, client: str = "s1", count: int = 1, *, topic: str = "", aim: Aim = "") -> None:
        for _ in range(count):
            self.ask(client, "get", topic=topic, aim=aim)

    def some_puts(self) -> None:
        """Put a few messages that no fault meets."""
        for _ in range(self.random.randint(1, 3)):
            self.put(self.random.choice(("p1", "p2")))

    def in_any_order(self, *episodes: Callable[[Draft], None]) -> None:
        for episode in self.random.sample(episodes, len(episodes)):
            self.some_puts()
            episode(self)

    def begin(self) -> None:
        self.ask("s1", "subscribe")
        self.ask("s2", "subscribe")
        self.put("p1")
        self.put("p2")
        self.get("s1")


# 1: put and get.


def put_and_get(draft: Draft) -> None:
    for client, topic in (("s1", draft.topic), ("s2", draft.topic), ("s1", draft.other)):
        draft.ask(client, "subscribe", topic=topic)
    draft.get("s1")
    draft.in_any_order(_same_ids, _same_texts, _any_text, _acknowledged_alone)
    draft.get("s2", 2)
    draft.get("s1", topic=draft.other)


def _same_ids(draft: Draft) -> None:
    """An id counts for one client and topic."""
    draft.put("p1", id="1")
    draft.put("p2", id="1")
    draft.put("p1", id="1", topic=draft.other)
    draft.get("s1", 2)


def _same_texts(draft: Draft) -> None:
    first = draft.put("p1")
    draft.put("p1", text=first.message)
    draft.again(first)
    draft.get("s1", 2)


def _any_text(draft: Draft) -> None:
    mark = f"{draft.random.randrange(16**12):012x}"
    draft.put("p1", text=f'{mark} "quoted", {{braces}}, \\ and\na new line: äöü ∑ 🙂')
    draft.put("p1", text=mark.ljust(TEXT_CHARS, "é"), id=mark.ljust(ID_CHARS, "x"))
    draft.get("s1", 2)


def _acknowledged_alone(draft: Draft) -> None:
    draft.put("p2")
    draft.get("s1")
    draft.ask("s1", "ack")
    draft.ask("s1", "ack")
    draft.get("s1")


# 2: subscribe and unsubscribe.


def subscriptions(draft: Draft) -> None:
    draft.get("s1")
    draft.put("p1")
    draft.begin()
    draft.ask("s1", "subscribe", topic=draft.other)
    draft.in_any_order(_subscribed_twice, _subscribed_anew, _other_topic_stays)


def _subscribed_twice(draft: Draft) -> None:
    draft.put()
    draft.put()
    draft.ask("s1", "subscribe")
    draft.get("s1")


def _subscribed_anew(draft: Draft) -> None:
    draft.get("s1", 2)
    draft.ask("s1", "unsubscribe")
    draft.get("s1")
    draft.put("p1")
    draft.get("s1")
    draft.ask("s1", "subscribe")
    draft.put("p2")
    draft.get("s1")


def _other_topic_stays(draft: Draft) -> None:
    draft.put("p1", topic=draft.other)
    draft.ask("s2", "unsubscribe")
    draft.get("s1", topic=draft.other)
    draft.get("s2")
    draft.ask("s2", "subscribe")


# 3 and 4: answers lost, requests late.


def answers_lost(draft: Draft) -> None:
    draft.begin()

    def put(draft: Draft) -> None:
        draft.put("p1", aim="answer lost")

    def get(draft: Draft) -> None:
        draft.put()
        draft.get("s1", aim="answer lost")
        draft.get("s1")

    def ack(draft: Draft) -> None:
        draft.put()
        draft.get("s1")
        draft.ask("s1", "ack", aim="answer lost")

    draft.in_any_order(put, get, ack)


def requests_late(draft: Draft) -> None:
    draft.begin()

    def put(draft: Draft) -> None:
        draft.put("p1", aim="request late")
        draft.put("p1")
        draft.get("s1", 2)
        draft.steps.append(Deliver())
        draft.put("p2")

    def get(draft: Draft) -> None:
        draft.put()
        draft.put()
        draft.get("s1", aim="request late")
        draft.get("s1")
        draft.steps.append(Deliver())
        draft.get("s1")

    draft.in_any_order(put, get)


# 5 to 7: one process is killed.


def broker_killed(draft: Draft) -> None:
    draft.begin()

    def after_a_put(draft: Draft) -> None:
        draft.put("p1")
        draft.kill(BROKER)
        draft.get("s1")

    def after_a_get(draft: Draft) -> None:
        draft.put("p2")
        draft.get("s1")
        draft.kill(BROKER)
        draft.get("s1")

    def after_an_ack(draft: Draft) -> None:
        draft.put("p1")
        draft.get("s1")
        draft.ask("s1", "ack")
        draft.kill(BROKER)
        draft.get("s1")

    def at_a_put(draft: Draft) -> None:
        draft.put("p1", aim="broker killed at the answer")
        draft.put("p2", aim="broker killed at the request")

    def at_a_get(draft: Draft) -> None:
        draft.put("p1")
        draft.get("s1", aim="broker killed at the answer")
        draft.get("s1")

    def after_a_subscribe(draft: Draft) -> None:
        draft.ask("s2", "subscribe", topic=draft.other)
        draft.kill(BROKER)
        draft.put("p1", topic=draft.other)
        draft.get("s2", topic=draft.other)
        draft.ask("s2", "unsubscribe", topic=draft.other)
        draft.kill(BROKER)
        draft.get("s2", topic=draft.other)

    draft.in_any_order(
        after_a_put, after_a_get, after_an_ack, at_a_put, at_a_get, after_a_subscribe
    )


def publisher_killed(draft: Draft) -> None:
    draft.begin()

    def at_the_answer(draft: Draft) -> None:
        draft.again(draft.put("p1", aim="client killed at the answer"))
        draft.put("p1")

    def never_put_again(draft: Draft) -> None:
        draft.put("p1", aim="client killed at the answer")
        draft.put("p1")

    def after_the_answer(draft: Draft) -> None:
        put = draft.put("p2")
        draft.kill("p2")
        draft.again(put)
        draft.put("p2")

    draft.in_any_order(at_the_answer, never_put_again, after_the_answer)
    draft.get("s1", 2)


def subscriber_killed(draft: Draft) -> None:
    draft.begin()

    def before_it_acknowledges(draft: Draft) -> None:
        draft.put("p1")
        draft.put("p2")
        draft.get("s1")
        draft.kill("s1")
        draft.get("s1", 2)

    def after_an_ack(draft: Draft) -> None:
        draft.put("p1")
        draft.get("s1")
        draft.ask("s1", "ack")
        draft.kill("s1")
        draft.get("s1")

    def before_it_has_a_message(draft: Draft) -> None:
        draft.put("p2")
        draft.get("s1")
        draft.kill("s1")
        draft.ask("s1", "ack")
        draft.get("s1")

    def at_the_answer(draft: Draft) -> None:
        draft.put("p1")
        draft.put("p1")
        draft.get("s1")
        draft.get("s1", aim="client killed at the answer")
        draft.get("s1")

    draft.in_any_order(before_it_acknowledges, after_an_ack, before_it_has_a_message, at_the_answer)


# 8: everything.


def everything_dies(draft: Draft) -> None:
    draft.begin()

    def all_at_once(draft: Draft) -> None:
        put = draft.put("p1")
        draft.put("p2", aim="broker killed at the answer")
        draft.get("s1")
        for who in draft.random.sample((BROKER, "p1", "p2", "s1", "s2"), 5):
            draft.kill(who)
        draft.again(put)
        draft.get("s1", 2)

    def broker_down(draft: Draft) -> None:
        draft.put("p1", aim="broker down", seconds=OUTAGE_S)

    def link_cut(draft: Draft) -> None:
        draft.ask("s1", "get", aim="link cut", seconds=CUT_S)

    draft.in_any_order(all_at_once, broker_down, link_cut)


STAGES: Final = {
    Stage(1, "put and get", 15, "no fault"): put_and_get,
    Stage(2, "subscribe and unsubscribe", 10, "no fault"): subscriptions,
    Stage(3, "answers lost", 15, "the answer to a put, get or ack is lost"): answers_lost,
    Stage(4, "requests late", 10, "a request arrives late, after its retry"): requests_late,
    Stage(5, "broker killed", 15, "kill -9 before and after an answer"): broker_killed,
    Stage(6, "publisher killed", 10, "kill -9 in and after a put"): publisher_killed,
    Stage(7, "subscriber killed", 15, "kill -9 in and after a get"): subscriber_killed,
    Stage(8, "everything dies", 10, "every process, then 12 s without a broker"): everything_dies,
}


def plan_of(stage: Stage, random: Random) -> Plan:
    """Return a run of a stage; the same chance gives the same run."""
    draft = Draft(random)
    STAGES[stage](draft)
    return tuple(draft.steps)
