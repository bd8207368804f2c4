"""The stages: what each run asks, and which faults it aims where. Pure.

Every run of a stage has all faults of the stage, so that no seed misses one. The seed decides
names, texts, how many messages come before, and the order of the episodes. A step is `CLIENT OP`,
with a number of times, `@other` for another topic, or `!AIM` for a fault; or `kill WHO`,
`deliver` (what is held back), `CLIENT again` (repeat its last put).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, cast

from msgspec import Struct
from msgspec.structs import replace

from .plan import Aim, Ask, Deliver, Kill, Plan, Step

if TYPE_CHECKING:
    from random import Random

OUTAGE_S: Final = 12.0  # a client that gives up after a few tries is found; the sheet asks for 30 s
CUT_S: Final = 2.0
TEXT_CHARS: Final = 10_000
ID_CHARS: Final = 100
BEGIN: Final = "s1 subscribe; s2 subscribe; p1 put; p2 put; s1 get"


class GradeStage(Struct, frozen=True, kw_only=True):
    """A part of the grade: steps, and episodes in any order, a few puts before each."""

    number: int
    name: str
    points: int
    does: str
    begin: str = BEGIN
    episodes: tuple[str, ...]
    end: str = ""


STAGES: Final = (
    GradeStage(
        number=1,
        name="put and get",
        points=15,
        does="no fault",
        begin="s1 subscribe; s2 subscribe; s1 subscribe @other; s1 get",
        episodes=(
            "p1 put id=1; p2 put id=1; p1 put id=1 @other; s1 get 2",
            "p1 put; p1 put same; p1 again; s1 get 2",
            "p1 put quoted; p1 put long; s1 get 2",
            "p2 put; s1 get; s1 ack 2; s1 get",
        ),
        end="s2 get 2; s1 get @other",
    ),
    GradeStage(
        number=2,
        name="subscribe and unsubscribe",
        points=10,
        does="no fault",
        begin=f"s1 get; p1 put; {BEGIN}; s1 subscribe @other",
        episodes=(
            "p1 put 2; s2 subscribe; s2 get",
            "s1 get 2; s1 unsubscribe; s1 get; p1 put; s1 get; s1 subscribe; p2 put; s1 get",
            "s2 subscribe @other; p1 put @other; s2 unsubscribe @other; s2 get @other; "
            "s1 get @other; s2 get",
        ),
    ),
    GradeStage(
        number=3,
        name="answers lost",
        points=15,
        does="the answer to a put, get or ack is lost",
        episodes=(
            "p1 put !answer lost",
            "p1 put; s1 get !answer lost; s1 get",
            "p1 put; s1 get; s1 ack !answer lost",
        ),
    ),
    GradeStage(
        number=4,
        name="requests late",
        points=10,
        does="a request arrives late, after its retry",
        episodes=(
            "p1 put !request late; p1 put; s1 get 2; deliver; p2 put",
            "p1 put 2; s1 get !request late; s1 get; deliver; s1 get",
        ),
    ),
    GradeStage(
        number=5,
        name="broker killed",
        points=15,
        does="kill -9 before and after an answer",
        episodes=(
            "p1 put; kill broker; s1 get",
            "p2 put; s1 get; kill broker; s1 get",
            "p1 put; s1 get; s1 ack; kill broker; s1 get",
            "p1 put !broker killed at the answer; p2 put !broker killed at the request",
            "p1 put; s1 get !broker killed at the answer; s1 get",
            "s2 subscribe @other; kill broker; p1 put @other; s2 get @other; "
            "s2 unsubscribe @other; kill broker; s2 get @other",
        ),
    ),
    GradeStage(
        number=6,
        name="publisher killed",
        points=10,
        does="kill -9 in and after a put",
        episodes=(
            "p1 put !client killed at the answer; p1 again; p1 put",
            "p1 put !client killed at the answer; p1 put",
            "p2 put; kill p2; p2 again; p2 put",
        ),
        end="s1 get 2",
    ),
    GradeStage(
        number=7,
        name="subscriber killed",
        points=15,
        does="kill -9 in and after a get",
        episodes=(
            "p1 put; p2 put; s1 get; kill s1; s1 get 2",
            "p1 put; s1 get; s1 ack; kill s1; s1 get",
            "p2 put; s1 get; kill s1; s1 ack; s1 get",
            "p1 put 2; s1 get; s1 get !client killed at the answer; s1 get",
        ),
    ),
    GradeStage(
        number=8,
        name="everything dies",
        points=10,
        does="every process, then 12 s without a broker",
        episodes=(
            "p2 put !broker killed at the answer; p1 put; s1 get; kill s2; kill broker; kill p1; "
            "kill s1; kill p2; p1 again; s1 get 2",
            "p1 put !broker down",
            "s1 get !link cut",
        ),
    ),
)
SECONDS: Final = {"broker down": OUTAGE_S, "link cut": CUT_S}


class Draft:
    """The steps of a run so far."""

    def __init__(self, random: Random) -> None:
        self.steps: list[Step] = []
        self._random = random
        mark = f"{random.randrange(16**4):04x}"
        self._topics = {True: f"other-{mark}", False: f"topic-{mark}"}
        self._puts: dict[str, Ask] = {}  # the last one of each client

    def take(self, text: str) -> None:
        for step in filter(None, map(str.strip, text.split(";"))):
            words, _, aim = step.partition("!")
            match words.split():
                case ["kill", who]:
                    self.steps.append(Kill(who))
                case ["deliver"]:
                    self.steps.append(Deliver())
                case [client, "again"]:
                    self.steps.append(replace(self._puts[client], aim=""))
                case [client, op, *options]:
                    self._ask(client, op, options, cast("Aim", aim))

    def _ask(self, client: str, op: Any, options: list[str], aim: Aim) -> None:
        ask = Ask(
            client=client,
            op=op,
            topic=self._topics["@other" in options],
            aim=aim,
            seconds=SECONDS.get(aim, 0.0),
        )
        for _ in range(next((int(one) for one in options if one.isdecimal()), 1)):
            self.steps.append(self._put(ask, options) if op == "put" else ask)

    def _put(self, ask: Ask, options: list[str]) -> Ask:
        """Return a put with a text that no submission can guess."""
        number = sum(isinstance(one, Ask) and one.op == "put" for one in self.steps) + 1
        id = next((one[3:] for one in options if one.startswith("id=")), f"m{number}")
        text = f"m{number} {self._random.randrange(16**12):012x}"
        if "same" in options:
            text = self._puts[ask.client].message
        elif "quoted" in options:
            text = f'"quoted", {{braces}}, \\ and\na new line: äöü ∑ 🙂 {text}'
        elif "long" in options:
            id = text.replace(" ", "-").ljust(ID_CHARS, "x")
            text = f"{'é' * (TEXT_CHARS - 1 - len(text))} {text}"
        self._puts[ask.client] = put = replace(ask, id=id, message=text)
        return put


def plan_of(stage: GradeStage, random: Random) -> Plan:
    """Return a run of a stage; the same chance gives the same run."""
    draft = Draft(random)
    draft.take(stage.begin)
    for episode in random.sample(stage.episodes, len(stage.episodes)):
        for _ in range(random.randint(1, 3)):
            draft.take(f"{random.choice(('p1', 'p2'))} put")
        draft.take(episode)
    draft.take(stage.end)
    return tuple(draft.steps)
