"""How a client is tested: the contract, the cases, the messages. Pure.

A client is any program that keeps the contract. It knows nothing of the case that it is in: the
tool stands between it and the proxy, and does to them what the acts of the case say.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Literal

from msgspec import Struct
from msgspec.structs import asdict

from reliable_pubsub.common.core.errors import ConfigurationError
from reliable_pubsub.common.core.wording import did_you_mean

Role = Literal["publisher", "subscriber"]
ROLES: Final[tuple[Role, ...]] = ("publisher", "subscriber")

What = Literal[
    "lose_answers",
    "lose_requests",
    "late_copy",
    "kill_client",
    "kill_unanswered",
    "kill_proxy",
    "cut",
    "copy_state",
    "set_state_back",
    "copy_store",
    "set_store_back",
    "empty_store",
    "take_over",
]

# done: it finishes its work. stops: it ends with an exit code other than 0, and does so again when
# it is started again. either: one of the two. resumes: it stops, and started again it finishes.
Ending = Literal["done", "stops", "either", "resumes"]

# The client may begin again after these; after the others its lines are about another log.
REPLACES_THE_STORE: Final = ("set_store_back", "empty_store")

VARIABLE_PREFIX: Final = "CONFORMANCE_"
CLIENT: Final = "client-1"
TOPIC: Final = "conformance"
MESSAGES: Final = 60
MESSAGES_MIN: Final = 10  # fewer leave no room between the acts
MESSAGES_MAX: Final = 2_000
UNREACHABLE: Final = 3  # exit code: the proxy does not answer, start it again


class Given(Struct, frozen=True):
    """What a client is given, by variables and by placeholders in its command."""

    endpoint: str  # where the proxy answers this role; the same for all of a case
    id: str
    topic: str
    state_dir: str  # there, and empty at first
    output: str  # to append to
    input: str  # a publisher's messages, one a line; also on its standard input. Else /dev/null

    def variables(self) -> dict[str, str]:
        """`CONFORMANCE_ENDPOINT` and so on."""
        return {f"{VARIABLE_PREFIX}{name.upper()}": value for name, value in asdict(self).items()}

    def command(self, words: Sequence[str]) -> list[str]:
        """A command with `{endpoint}`, `{id}` ... replaced; other braces stay as they are."""
        replaced = []
        for word in words:
            for name, value in asdict(self).items():
                word = word.replace(f"{{{name}}}", value)
            replaced.append(word)
        return replaced


class Act(Struct, frozen=True):
    """Something that is done to the client, to its link, to the proxy or to their files."""

    at: int  # after this many messages: stored by the proxy, or in a subscriber's output
    what: What
    chance: float  # 0 to 1: where exactly, for what happens at a random moment


class Case(Struct, frozen=True, kw_only=True):
    """One trial, with a proxy of its own."""

    name: str
    does: str  # one line
    expects: str  # one line
    acts: tuple[What, ...] = ()
    ending: Ending = "done"

    def schedule(self, messages: int, draw: Callable[[], float]) -> tuple[Act, ...]:
        """Its acts, spread over the messages.

        Args:
            draw: gives a number from 0 to 1.
        """
        parts = len(self.acts) + 1
        return tuple(
            Act(messages * number // parts, what, draw())
            for number, what in enumerate(self.acts, start=1)
        )


ONCE: Final = "every message once, in order"
CRASH_POINTS: Final = "crash-points"
CRASH_MESSAGES: Final = 6  # of each of its runs: enough for a first, a next and a last write
STOPS: Final = "an exit code other than 0, and no further message, also when it is started again"

CASES: Final[tuple[Case, ...]] = (
    Case(name="plain", does="nothing happens", expects=ONCE),
    Case(
        name="lost-answers",
        does="answers vanish, then requests, until it asks again",
        expects=ONCE,
        acts=("lose_answers", "lose_requests", "lose_answers", "lose_requests"),
    ),
    Case(
        name="late-copies",
        does="a request that it has given up arrives after the one that replaced it",
        expects=ONCE,
        acts=("lose_answers", "late_copy", "late_copy"),
    ),
    Case(
        name="client-killed",
        does="kill -9 at random moments, and while an answer is on its way; started again",
        expects=ONCE,
        acts=("kill_client", "kill_unanswered", "kill_unanswered", "kill_client"),
    ),
    Case(
        name=CRASH_POINTS,
        does="kill -9 before and after each write, rename and sync of its state and output, one in "
        "each run; started again",
        expects=ONCE,
    ),
    Case(
        name="proxy-killed",
        does="kill -9 of the proxy at random moments; started again",
        expects=ONCE,
        acts=("kill_proxy", "kill_proxy"),
    ),
    Case(
        name="connection-cut",
        does="connections are cut in the middle of a frame, and refused for a moment",
        expects=ONCE,
        acts=("cut", "cut", "cut"),
    ),
    Case(
        name="taken-over",
        does="another process says HELLO under its id; later it is started again",
        expects="an exit code other than 0 (FENCED); started again, " + ONCE,
        acts=("take_over",),
        ending="resumes",
    ),
    Case(
        name="state-set-back",
        does="its state directory is replaced by an older copy; its output is not",
        expects=ONCE + ", or an exit code other than 0; a publisher may also put again, under new "
        "numbers, what the copy does not know of (R24)",
        acts=("copy_state", "set_state_back"),
        ending="either",
    ),
    Case(
        name="store-set-back",
        does="the proxy's data directory is replaced by an older copy",
        expects=STOPS,
        acts=("copy_store", "set_store_back"),
        ending="stops",
    ),
    Case(
        name="store-emptied",
        does="the proxy's data directory is replaced by an empty one",
        expects=STOPS,
        acts=("empty_store",),
        ending="stops",
    ),
)


def chosen(names: Sequence[str]) -> tuple[Case, ...]:
    """The cases of these names, in our order; all if there are no names.

    Raises:
        ConfigurationError: there is no such case.
    """
    known = [case.name for case in CASES]
    for name in names:
        if name not in known:
            raise ConfigurationError(
                f"there is no case {name!r}{did_you_mean(name, known)}; `--list` shows them all"
            )
    return tuple(case for case in CASES if not names or case.name in names)


_TEXTS: Final = ("plain", "", "ünïcödé ✓", 'two  spaces, "quotes", \\ and {braces}', "x" * 2000)


def payloads(tokens: Sequence[str], *, prefix: str = "") -> list[bytes]:
    """The messages of a run: lines of UTF-8 without a tab, no two of them the same.

    Args:
        tokens: one for each message, drawn so that no program can guess it.
        prefix: distinguishes the messages of different writers.
    """
    texts = (f"{n} {one} {_TEXTS[n % len(_TEXTS)]}" for n, one in enumerate(tokens, start=1))
    return [f"{prefix}{text}".rstrip().encode() for text in texts]


def portions(count: int, draw: Callable[[], float]) -> list[int]:
    """Sizes of batches, 1 to 4 messages, that add up to a number of messages."""
    sizes: list[int] = []
    while (left := count - sum(sizes)) > 0:
        sizes.append(min(left, 1 + int(draw() * 4)))
    return sizes
