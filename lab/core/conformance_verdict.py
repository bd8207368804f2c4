"""The verdict on a client after a case. Pure.

The rules V1 to V12 are the checker's. What only the ending shows is held against rules of the
protocol: R9 (written, then acknowledged), R11 (who is fenced stops), R14 (another log is a stop).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, Literal

from msgspec import Struct
from msgspec.structs import replace

from .conformance import CLIENT, UNREACHABLE, Case, Role
from .verdict import Verdict

Judgement = Literal["conforms", "broken", "not as expected", "not tried"]
EXIT_CODES: Final[dict[Judgement, int]] = {
    "conforms": 0,
    "broken": 1,
    "not as expected": 6,
    "not tried": 7,
}
VIOLATIONS_SHOWN: Final = 3  # of each rule


REPEATED: Final = (
    "what its older state had forgotten is stored again under new numbers, as R24 lets a program "
    "do; a client that puts from a plan repeats its own numbers, and stores it once"
)


class Ended(Struct, frozen=True):
    """How a process of the client ended, other than by the tool."""

    code: int  # negative: by that signal
    done: int  # messages that were done by then


class Observed(Struct, frozen=True, kw_only=True):
    """What was seen of a client, besides journals and output."""

    client: str = CLIENT
    messages: int  # that there were for it
    connected: bool  # it was granted an epoch
    done: int  # messages that were stored, or are in its output
    ended: tuple[Ended, ...] = ()
    hung: str = ""  # what never came
    happened: int = 0  # acts that found it at work
    replaced: bool = False  # the store is another one since
    claimed: int = 0  # lines of its output
    unreadable: tuple[int, ...] = ()  # lines of its output that are no message
    strangers: tuple[int, ...] = ()  # lines of it that are none of the messages of the input
    repeated: bool = False  # it put again, under new numbers, what a set-back state had forgotten
    ahead: tuple[int, int] | None = None  # acknowledged up to, and the messages in its output then
    unsent: tuple[int, bytes] | None = None  # line of its output that was not sent to it before
    took_back: bool = False  # it asked for a higher epoch in the process that was fenced
    continued: tuple[str, ...] = ()  # messages of the new store that its output has
    said: str = ""  # the last line that it wrote
    failed: str = ""  # what the tool could not do


class Breach(Struct, frozen=True):
    """One thing that is wrong."""

    rule: str  # "V6", "R14"; "" if no rule is broken, and it is not as expected
    text: str


class Result(Struct, frozen=True, kw_only=True):
    """The outcome of a case."""

    case: str
    judgement: Judgement
    judged: tuple[str, ...]  # rules for which there was something to hold them against
    found: tuple[Breach, ...]
    ending: str  # how it ended, in words
    note: str = ""
    crash_point: int | None = None  # at which it broke

    @property
    def broken(self) -> tuple[str, ...]:
        """Rules, each once, in order."""
        return tuple(dict.fromkeys(one.rule for one in self.found if one.rule))


def judge(case: Case, role: Role, seen: Observed, verdict: Verdict | None) -> Result:
    """Judge a case.

    Args:
        verdict: of the checker; None: there was nothing to read.
    """
    found = [
        Breach(rule.rule, violation.text)
        for rule in (verdict.rules if verdict else ())
        for violation in rule.violations
    ]
    found += _broken_by_ending(case, role, seen)
    judged = [rule.rule for rule in (verdict.rules if verdict else ()) if rule.checked]
    if role == "subscriber":
        judged.append("R9")
    judged += {"resumes": ["R11"], "stops": ["R14"]}.get(case.ending, [])
    not_expected = list(_not_as_expected(case, seen)) if not found else []
    found += [Breach("", text) for text in not_expected]
    broken = any(one.rule for one in found)
    return Result(
        case=case.name,
        judgement="broken" if broken else "not as expected" if found else "conforms",
        judged=tuple(judged),
        found=tuple(found),
        ending=ending_in_words(seen),
        note=REPEATED if seen.repeated else "",
    )


def _broken_by_ending(case: Case, role: Role, seen: Observed) -> Iterator[Breach]:
    who = seen.client
    if seen.ahead is not None:
        cursor, written = seen.ahead
        yield Breach(
            "R9",
            f"{who} acknowledged everything below offset {cursor} when its output held "
            f"{written} messages: what lies between is lost if it dies there",
        )
    if seen.unsent is not None:
        line, payload = seen.unsent
        yield Breach(
            "V6",
            f"line {line} of the output has a message that was not sent to {who} before: "
            f"{payload.decode(errors='replace')[:40]!r}. The output is not what it received",
        )
    if seen.took_back:
        yield Breach(
            "R11",
            f"{who} was fenced, and the same process took a higher epoch: it stole its id back "
            "from the process that had taken over",
        )
    if case.ending == "stops" and seen.replaced:
        verb = "acknowledged" if role == "publisher" else "received"
        if seen.continued:
            shown = ", ".join(repr(one) for one in seen.continued[:VIOLATIONS_SHOWN])
            yield Breach(
                "R14",
                f"the store was replaced, and {who} continued in the other log: its output has "
                f"{len(seen.continued)} messages {verb} there ({shown})",
            )
        elif any(one.code == 0 for one in seen.ended):
            yield Breach(
                "R14",
                f"the store was replaced, and {who} ended with exit code 0, as if all were well",
            )


def _not_as_expected(case: Case, seen: Observed) -> Iterator[str]:
    who = seen.client
    said = f"; it said last: {seen.said}" if seen.said else ""
    refusals = [one for one in seen.ended if one.code not in (0, UNREACHABLE)]
    if seen.failed:
        yield seen.failed
    elif not seen.connected:
        how = f"it ended with exit code {seen.ended[-1].code}" if seen.ended else seen.hung
        yield f"{who} was granted no epoch: it never said HELLO under its id; {how}{said}"
    elif seen.hung:
        yield f"{seen.hung}{said}"
    elif case.ending == "done" and refusals:
        one = refusals[0]
        yield (
            f"{who} ended with exit code {one.code} after {one.done} of {seen.messages} "
            f"messages, where it should continue{said}"
        )
    elif case.ending == "resumes" and len(refusals) > 1:
        yield (
            f"{who} was started again after it had been taken over, and ended with exit code "
            f"{refusals[1].code}, where it should continue{said}"
        )
    elif case.ending == "resumes" and not refusals:
        yield f"{who} was taken over and ended with exit code 0; a process that is fenced stops"
    elif seen.unreadable:
        lines = ", ".join(map(str, seen.unreadable[:5]))
        yield (
            f"line {lines} of its output is no message: neither `offset<TAB>payload`, nor "
            "`payload`, nor JSON with `payload`"
        )
    elif seen.strangers:
        lines = ", ".join(map(str, seen.strangers[:5]))
        yield (
            f"line {lines} of its output is none of the messages of its input: it says of "
            "something else that it is acknowledged, or changes what it writes"
        )
    elif not seen.claimed and seen.done:
        yield f"its output is empty: {who} never said which messages it had"
    elif seen.happened < (min(1, len(case.acts)) if case.ending == "done" else len(case.acts)):
        yield (
            f"{who} was done before anything could be done to it, so this case judged nothing; "
            "give it more --messages, or make it put fewer in one request"
        )


def not_tried(case: Case, why: str) -> Result:
    """A case that this machine cannot run."""
    found = (Breach("", f"not tried: {why}"),)
    return Result(
        case=case.name, judgement="not tried", judged=(), found=found, ending="not started"
    )


def at_point(result: Result, number: int, which: str) -> Result:
    """A result with the crash point at which it came."""
    found = tuple(Breach(one.rule, f"{which}: {one.text}") for one in result.found)
    return replace(result, found=found, crash_point=number)


def with_points(result: Result, tried: int, missed: int) -> Result:
    """A result that held at all crash points.

    Args:
        missed: how many were not reached again, because the client made other calls.
    """
    note = f"crash points tried: {tried}"
    if missed:
        note += f", of which {missed} were not reached, because COMMAND made other calls that time"
    return replace(result, note=note)


def ending_in_words(seen: Observed) -> str:
    """How its processes ended."""
    if seen.hung:
        return "did not end"
    codes = [str(one.code) for one in seen.ended]
    return f"exit code {', then '.join(codes)}" if codes else "ended by SIGTERM"


def paragraphs(result: Result) -> list[str]:
    """What is wrong, one paragraph each; of each rule the first few."""
    lines: list[str] = []
    for rule in dict.fromkeys(one.rule for one in result.found):
        texts = [one.text for one in result.found if one.rule == rule]
        head = f"{rule}: " if rule else ""
        lines += [f"{head}{text}" for text in texts[:VIOLATIONS_SHOWN]]
        if len(texts) > VIOLATIONS_SHOWN:
            lines.append(f"{head}and {len(texts) - VIOLATIONS_SHOWN} more")
    return lines


def exit_code(results: Sequence[Result]) -> int:
    """The worst: 1 a rule is broken, 6 something was not as expected, 7 a case was not tried."""
    return min({EXIT_CODES[result.judgement] for result in results} - {0}, default=0)
