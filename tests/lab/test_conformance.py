"""How a client is judged, as values: the contract, the schedule, the evidence, the verdict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace

from reliable_pubsub.common.core.batch import crc32
from reliable_pubsub.common.core.errors import ConfigurationError
from reliable_pubsub.common.core.journal import AnyLine, Finished, Found, FoundEnd, Ok, Seen
from reliable_pubsub.lab.conformance_stage import tokens
from reliable_pubsub.lab.core.checker import check
from reliable_pubsub.lab.core.conformance import CASES, CLIENT, TOPIC, Given, chosen, payloads
from reliable_pubsub.lab.core.conformance_evidence import (
    Claim,
    ClientLife,
    publisher_lines,
    read_output,
    repeated_from,
    strangers,
)
from reliable_pubsub.lab.core.conformance_verdict import (
    Ended,
    Observed,
    exit_code,
    judge,
    not_tried,
    paragraphs,
)
from reliable_pubsub.lab.core.run import LabRun
from reliable_pubsub.lab.core.story import in_one_column, tell
from reliable_pubsub.lab.core.verdict import MessageKey, Verdict

PAGE = Path(__file__).resolve().parents[2] / "docs" / "internals" / "protocol.md"
GIVEN = Given("tcp://127.0.0.1:1", "client-1", "news", "/s", "/o", "/i")
LIVES = [ClientLife(7, 100)]
TOKENS = [f"{n:016x}" for n in range(50)]
MESSAGES = payloads(TOKENS[:4])
SENT_NS = {1: 200, 2: 300, 3: 600}  # the fourth one was not seen


def entry(offset: int, payload: bytes, *, sequence: int | None = None) -> Seen:
    return Seen(offset, CLIENT, sequence or offset + 1, crc32(payload))


def verdict_over(
    entries: Sequence[Seen], claims: Sequence[Claim], *, again_from: int | None = None
) -> Verdict:
    """The verdict over a publisher that ended with exit code 0."""
    claimed_ns: Mapping[int, int] = {claim.line: 1000 + claim.line for claim in claims}
    lines: list[AnyLine] = publisher_lines(
        LIVES, CLIENT, TOPIC, MESSAGES, SENT_NS, claimed_ns, claims, entries, again_from=again_from
    )
    found = {"at_ns": 5000, "process": "auditor", "pid": 8, "topic": TOPIC}
    lines.append(Found(**found, messages=tuple(entries)))  # type: ignore[arg-type]
    lines.append(FoundEnd(**found, start=0, end=len(entries), positions={}))  # type: ignore[arg-type]
    lines.append(
        Finished(at_ns=6000, process="lab", pid=9, target=CLIENT, done=True, messages=len(MESSAGES))
    )
    return check(LabRun(lines=lines, outputs={}))


def broken(verdict: Verdict) -> list[str]:
    return [rule.rule for rule in verdict.rules if not rule.holds]


ALL_STORED = [entry(n, payload) for n, payload in enumerate(MESSAGES)]
ALL_CLAIMED = [Claim(n + 1, payload, n) for n, payload in enumerate(MESSAGES)]


def seen(**facts: object) -> Observed:
    sound = {"messages": 60, "connected": True, "done": 60, "happened": 4, "claimed": 60}
    return Observed(**{**sound, **facts})  # type: ignore[arg-type]


class TestTheContract:
    def test_is_given_in_the_command_and_leaves_other_braces(self) -> None:
        words = ["--to={endpoint}", "{id}", "{other}", "{output}{input}"]

        assert GIVEN.command(words) == ["--to=tcp://127.0.0.1:1", "client-1", "{other}", "/o/i"]

    def test_is_given_in_the_environment(self) -> None:
        assert GIVEN.variables()["CONFORMANCE_STATE_DIR"] == "/s"
        assert all(name.startswith("CONFORMANCE_") for name in GIVEN.variables())

    def test_and_the_cases_are_on_the_protocol_page(self) -> None:
        page = PAGE.read_text(encoding="utf-8")
        for name, variable in zip(Given.__struct_fields__, GIVEN.variables(), strict=True):
            assert f"`{{{name}}}`" in page
            assert f"`{variable}`" in page or name == "input"
        for case in CASES:
            assert f"| `{case.name}` | {case.does} | {case.expects} |" in page


class TestACase:
    def test_spreads_its_acts_over_the_messages(self) -> None:
        acts = chosen(["client-killed"])[0].schedule(60, lambda: 0.5)

        assert [act.at for act in acts] == [12, 24, 36, 48]

    def test_that_does_not_exist_is_refused_with_the_closest_name(self) -> None:
        with pytest.raises(ConfigurationError, match="did you mean 'late-copies'"):
            chosen(["late-copys"])


class TestTheMessages:
    def test_are_lines_that_all_differ_and_are_not_only_ascii(self) -> None:
        messages = payloads(TOKENS)

        assert len(set(messages)) == 50
        assert not any(b"\n" in one or b"\t" in one or one != one.strip() for one in messages)
        assert any(not one.isascii() for one in messages)

    def test_hold_a_word_each_that_a_program_cannot_guess(self) -> None:
        for token, message in zip(TOKENS, payloads(TOKENS), strict=True):
            assert token.encode() in message
        assert len(set(tokens(100))) == 100


class TestAnOutput:
    @pytest.mark.parametrize(
        ("line", "claim"),
        [
            (b"7\ta b", Claim(1, b"a b", 7)),
            (b"a b", Claim(1, b"a b")),
            (b'{"offset":7,"payload":"a"}', Claim(1, b"a", 7)),
            (b'{"payload_base64":"/w=="}', Claim(1, b"\xff")),
        ],
    )
    def test_has_one_of_three_forms(self, line: bytes, claim: Claim) -> None:
        assert read_output(line + b"\n").claims == (claim,)

    def test_ends_with_its_last_line_end(self) -> None:
        assert read_output(b"1\ta\n2\tb").claims == (Claim(1, b"a", 1),)

    @pytest.mark.parametrize("line", [b"x\ty", b'{"offset":1}', b'{"payload_base64":"?"}', b"{"])
    def test_with_another_line_says_which(self, line: bytes) -> None:
        assert read_output(b"1\ta\n" + line + b"\n").unreadable == (2,)

    def test_that_names_what_must_not_be_put_says_where(self) -> None:
        assert strangers([Claim(1, MESSAGES[0]), Claim(2, b"client-1_2")], MESSAGES) == (2,)


class TestThePublishersEvidence:
    def test_of_all_stored_and_acknowledged_holds(self) -> None:
        assert broken(verdict_over(ALL_STORED, ALL_CLAIMED)) == []

    def test_shows_what_is_stored_twice_under_two_numbers(self) -> None:
        twice = [*ALL_STORED[:2], *(entry(n + 1, MESSAGES[n]) for n in (1, 2, 3))]

        claims = [ALL_CLAIMED[0], Claim(2, MESSAGES[1], 2)]

        assert broken(verdict_over(twice, claims)) == ["V2", "V11"]

    def test_lets_a_state_that_was_set_back_number_again(self) -> None:
        again = [*ALL_STORED[:3], *(entry(n + 2, MESSAGES[n]) for n in (1, 2, 3))]
        claims = [
            *ALL_CLAIMED[:3],
            *(Claim(n + 3, MESSAGES[n], n + 2) for n in (1, 2, 3)),
        ]

        assert repeated_from(again, CLIENT, since=3) == 3
        assert broken(verdict_over(again, claims, again_from=3)) == []
        assert "V2" in broken(verdict_over(again, claims))

    def test_shows_what_was_acknowledged_and_is_not_stored(self) -> None:
        assert "V1" in broken(verdict_over(ALL_STORED[:3], ALL_CLAIMED))

    def test_shows_what_was_acknowledged_at_another_offset(self) -> None:
        claims = [*ALL_CLAIMED[:3], Claim(4, MESSAGES[3], 9)]

        assert "V1" in broken(verdict_over(ALL_STORED, claims))

    def test_shows_another_order(self) -> None:
        order = [entry(n, MESSAGES[at]) for n, at in enumerate((0, 2, 1, 3))]

        assert "V2" in broken(verdict_over(order, []))

    def test_shows_what_was_left_out(self) -> None:
        assert "V12" in broken(verdict_over(ALL_STORED[:3], ALL_CLAIMED[:3]))


class TestTheStory:
    LIVES = (ClientLife(7, 100), ClientLife(8, 500))

    @pytest.fixture
    def run(self) -> LabRun:
        claimed_ns = {claim.line: 1000 for claim in ALL_CLAIMED}
        lines = publisher_lines(
            self.LIVES, CLIENT, TOPIC, MESSAGES, SENT_NS, claimed_ns, ALL_CLAIMED, ALL_STORED
        )
        return LabRun(lines=lines, outputs={})

    def test_has_the_time_at_which_the_link_saw_a_message_and_no_process_for_it(
        self, run: LabRun
    ) -> None:
        story = tell(run, MessageKey(TOPIC, CLIENT, 3))

        told = [(line.at_s, line.who, line.what) for line in story.lines]
        assert told[0] == (
            500e-9,
            CLIENT,
            f"put {TOPIC} sequence 3: its content first on the link",
        )
        assert told[-1][1:] == (CLIENT, "its output says: acknowledged at offset 2")
        assert not any("pid" in who for _, who, _ in told)
        assert story.observed == [CLIENT]

    def test_calls_what_was_not_seen_inferred_and_gives_it_no_time(self, run: LabRun) -> None:
        first, *_, last = in_one_column(tell(run, MessageKey(TOPIC, CLIENT, 4)))

        assert first.split(maxsplit=2) == [
            "inferred",
            CLIENT,
            f"put {TOPIC} sequence 4: sent at an unknown time",
        ]
        assert "keeps no journal" in last

    def test_has_a_line_of_the_output_that_was_written_after_the_last_look(self) -> None:
        lines = publisher_lines(
            LIVES, CLIENT, TOPIC, MESSAGES, SENT_NS, {}, ALL_CLAIMED[:1], ALL_STORED[:1]
        )

        assert [line.at_ns for line in lines if isinstance(line, Ok)] == [SENT_NS[1]]


class TestTheVerdict:
    @pytest.mark.parametrize(
        ("case", "facts", "judgement", "rule"),
        [
            ("plain", {}, "conforms", ""),
            ("plain", {"ahead": (9, 5)}, "broken", "R9"),
            ("plain", {"unsent": (3, b"a")}, "broken", "V6"),
            ("taken-over", {"took_back": True}, "broken", "R11"),
            ("taken-over", {"ended": (Ended(4, 9), Ended(0, 60))}, "conforms", ""),
            ("taken-over", {"ended": (Ended(0, 9),)}, "not as expected", ""),
            ("store-emptied", {"replaced": True, "continued": ("a",)}, "broken", "R14"),
            ("store-emptied", {"replaced": True, "ended": (Ended(0, 9),)}, "broken", "R14"),
            ("store-emptied", {"replaced": True, "ended": (Ended(4, 9),)}, "conforms", ""),
            ("store-emptied", {"happened": 0, "ended": (Ended(0, 9),)}, "not as expected", ""),
            ("plain", {"ended": (Ended(3, 9), Ended(0, 60))}, "conforms", ""),
            ("plain", {"ended": (Ended(1, 9),)}, "not as expected", ""),
            ("plain", {"hung": "there was no end"}, "not as expected", ""),
            ("plain", {"connected": False, "hung": "x"}, "not as expected", ""),
            ("plain", {"unreadable": (3,)}, "not as expected", ""),
            ("plain", {"claimed": 0}, "not as expected", ""),
            ("client-killed", {"happened": 0}, "not as expected", ""),
            ("state-set-back", {"ended": (Ended(4, 9),)}, "conforms", ""),
        ],
    )
    def test_follows_from_what_was_seen(
        self, case: str, facts: dict[str, object], judgement: str, rule: str
    ) -> None:
        result = judge(chosen([case])[0], "subscriber", seen(**facts), None)

        assert result.judgement == judgement, paragraphs(result)
        assert result.broken == ((rule,) if rule else ())

    def test_of_all_cases_is_the_worst_and_a_broken_rule_comes_first(self) -> None:
        sound = judge(CASES[0], "publisher", seen(), None)
        hung = replace(sound, judgement="not as expected")
        wrong = replace(sound, judgement="broken")
        left_out = not_tried(CASES[0], "no such machine")

        assert [exit_code(one) for one in ([sound], [sound, hung], [hung, wrong])] == [0, 6, 1]
        assert [exit_code(one) for one in ([sound, left_out], [left_out, hung])] == [7, 6]
