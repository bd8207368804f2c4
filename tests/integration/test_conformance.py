"""`reliable-pubsub conformance`: what conforms passes every case, and each wrong client is found.

Proxies and clients are real processes; ours are forked, so that a start costs little.
"""

from __future__ import annotations

import json
import platform
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner

from reliable_pubsub.lab.conformance import main as conformance
from reliable_pubsub.lab.conformance_run import Candidate, run_case
from reliable_pubsub.lab.conformance_stage import LOG_BYTES_MAX
from reliable_pubsub.lab.core.conformance import CASES, CRASH_POINTS, Role, chosen
from reliable_pubsub.lab.core.conformance_verdict import Result, paragraphs
from reliable_pubsub.lab.rig import crash_points
from reliable_pubsub.lab.rig.crash_points import why_not_here
from reliable_pubsub.lab.run_directory import claimed

from .harness import REPOSITORY, STUBBORN_OPTIONS

MESSAGES = 15
MESSAGES_TO_BE_FOUND = 40  # a busy machine may look late, and acts need a client at work
PATIENCE_S = 120.0  # without progress
GIVEN = ("{endpoint}", "{id}", "{topic}", "{state_dir}", "{output}")
needs_crash_points = pytest.mark.skipif(bool(why_not_here()), reason=why_not_here())


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the clients of the protocol page ask again soon."""
    monkeypatch.setenv("TIMEOUT_S", "0.3")


def judged(
    directory: Path,
    role: Role,
    case: str,
    command: Sequence[str],
    *,
    messages: int = MESSAGES,
    patience_s: float = PATIENCE_S,
    crash_point: int | None = None,
) -> Result:
    """One case."""
    wanted = Candidate(role, tuple(command), messages, 1, patience_s, crash_point)
    return run_case(chosen([case])[0], wanted, directory / case).result


def program(name: str) -> list[str]:
    return [sys.executable, "-m", "tests.integration.wrong_clients", name, *GIVEN]


# Each case is passed by one of two: our command-line client, or the one of the protocol page.
OURS: dict[Role, tuple[str, ...]] = {
    "publisher": (
        "lost-answers",
        "client-killed",
        "taken-over",
        "state-set-back",
        "store-set-back",
    ),
    "subscriber": ("late-copies", "client-killed", "taken-over", "state-set-back", "store-emptied"),
}
EXAMPLES: dict[Role, tuple[str, ...]] = {
    role: tuple(case.name for case in CASES if case.name not in (*ours, CRASH_POINTS))
    for role, ours in OURS.items()
}


def each(cases: dict[Role, tuple[str, ...]]) -> list[tuple[Role, str]]:
    return [(role, name) for role, names in cases.items() for name in names]


def check_passed(result: Result, role: Role) -> None:
    assert result.judgement == "conforms", paragraphs(result)
    assert {"V1", "V2", "V3", "V4"} <= set(result.judged)
    assert ("V6" in result.judged) == (role == "subscriber")


@pytest.mark.parametrize(("role", "case"), each(EXAMPLES))
def test_the_example_client_passes(role: Role, case: str, tmp_path: Path) -> None:
    check_passed(judged(tmp_path, role, case, program(role.capitalize())), role)


@needs_crash_points
@pytest.mark.long  # its shorter form is the next test
@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("role", OURS)
def test_the_example_client_passes_at_every_crash_point(
    role: Role, seed: int, tmp_path: Path
) -> None:
    wanted = Candidate(role, tuple(program(role.capitalize())), MESSAGES, seed, PATIENCE_S)

    result = run_case(chosen([CRASH_POINTS])[0], wanted, tmp_path / CRASH_POINTS).result

    check_passed(result, role)
    assert int(result.note.split()[-1]) > 15


@needs_crash_points
@pytest.mark.parametrize("role", OURS)
def test_the_example_client_passes_when_it_dies_before_it_writes_output(
    role: Role, tmp_path: Path
) -> None:
    result = judged(tmp_path, role, CRASH_POINTS, program(role.capitalize()), crash_point=10)

    check_passed(result, role)
    assert result.note == "crash points tried: 1"


@needs_crash_points
def test_a_place_that_is_recorded_before_the_output_breaks_a_rule_at_a_named_crash_point(
    tmp_path: Path,
) -> None:
    result = judged(tmp_path, "subscriber", CRASH_POINTS, program("RecordsItsPlaceFirst"))

    assert result.judgement == "broken", paragraphs(result)
    assert "V6" in result.broken
    number = result.crash_point
    assert number is not None
    assert f"V6: crash point {number} of " in "\n".join(paragraphs(result))
    assert "before write(output): client-" in "\n".join(paragraphs(result))


STEPS = {
    "publisher": "steps: [{topic: conformance, message_file: INPUT}]",
    "subscriber": """
steps:
  - {action: subscribe, topic: conformance}
  - {action: get, topic: conformance, number_of_times: 1000000, batch: 10}
""",
}


@pytest.mark.parametrize(("role", "case"), each(OURS))
def test_our_command_line_client_passes(role: Role, case: str, tmp_path: Path) -> None:
    steps = tmp_path / "steps.yaml"
    steps.write_text(STEPS[role].replace("INPUT", str(tmp_path / case / "input")))
    output = "--output" if role == "subscriber" else "--journal"
    command = [sys.executable, "-m", "reliable_pubsub", role, "-f", str(steps), "-i", "{id}"]
    command += ["--endpoint", "{endpoint}", "--state-dir", "{state_dir}", output, "{output}"]

    result = judged(tmp_path, role, case, [*command, *STUBBORN_OPTIONS])

    check_passed(result, role)


@pytest.mark.parametrize("role", OURS)
def test_the_adapters_of_our_command_line_clients_keep_the_contract(
    role: Role, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHON", sys.executable)
    adapter = REPOSITORY / "examples" / f"conformance_{role}.sh"

    check_passed(judged(tmp_path, role, "plain", [str(adapter), *STUBBORN_OPTIONS]), role)


@pytest.mark.parametrize(
    ("name", "role", "case", "rules"),
    [
        ("RenumbersWhatWasNotAnswered", "publisher", "lost-answers", "V2"),
        ("ForgetsItsState", "publisher", "client-killed", "V2"),
        ("SaysItBeforeItIsStored", "publisher", "lost-answers", "V1"),
        ("TakesAnyAnswer", "publisher", "late-copies", "V1"),
        ("LeavesOneOut", "publisher", "plain", "V12"),
        ("ClaimsWhatItNeverPut", "publisher", "plain", "V1"),
        ("AltersWhatItPuts", "publisher", "plain", "V2"),
        ("TakesItsIdBack", "publisher", "taken-over", "R11"),
        ("ContinuesInAnyLog", "publisher", "store-set-back", "R14"),
        ("WritesAfterItHasAcknowledged", "subscriber", "client-killed", "R9 V6"),
        ("ForgetsItsPlace", "subscriber", "client-killed", "V6"),
        pytest.param(
            *("NeverCutsItsOutputBack", "subscriber", CRASH_POINTS, "V6"), marks=needs_crash_points
        ),
        pytest.param(
            *("RecordsBeforeItPuts", "publisher", CRASH_POINTS, "V12"), marks=needs_crash_points
        ),
        ("SubscribesAgainWhenItsPlaceIsRefused", "subscriber", "store-emptied", "R14"),
    ],
)
def test_a_wrong_client_is_found_by_the_case_for_its_fault(
    name: str, role: Role, case: str, rules: str, tmp_path: Path
) -> None:
    patience_s = PATIENCE_S if case == CRASH_POINTS else 60.0  # some hang, so it takes that long
    result = judged(
        tmp_path, role, case, program(name), messages=MESSAGES_TO_BE_FOUND, patience_s=patience_s
    )

    assert result.judgement == "broken", paragraphs(result)
    assert set(rules.split()) <= set(result.broken), paragraphs(result)


@pytest.mark.parametrize(
    ("name", "patience_s", "sentence"),
    [
        (
            "Hangs",
            1.0,
            "never said HELLO under its id; there was no HELLO of it: nothing has moved",
        ),
        ("ConnectsAndHangs", 60.0, "nothing has moved for 60 s, at 0 of 15 messages"),
        (
            "IsDead",
            PATIENCE_S,
            "it ended with exit code 4; it said last: client-1 stops: no such library",
        ),
        (
            "SaysSomethingElse",
            PATIENCE_S,
            "line 1 of its output is none of the messages of its input",
        ),
        (
            "WritesNothing",
            PATIENCE_S,
            "its output is empty: client-1 never said which messages it had",
        ),
    ],
)
def test_a_client_that_cannot_be_judged_ends_in_bounded_time_with_a_sentence(
    name: str, patience_s: float, sentence: str, tmp_path: Path
) -> None:
    result = judged(tmp_path, "publisher", "plain", program(name), patience_s=patience_s)

    assert result.judgement == "not as expected"
    assert any(sentence in line for line in paragraphs(result)), paragraphs(result)


def test_a_subscriber_that_reads_no_answer_finds_nothing_to_copy(tmp_path: Path) -> None:
    result = judged(tmp_path, "subscriber", "plain", program("CopiesItsInput"), patience_s=8.0)

    assert result.judgement != "conforms"
    assert not (tmp_path / "plain" / "input").exists()


class TestNothingSurvivesTheVerdict:
    DETACHES = (
        "(setsid sh -c 'echo $$ > \"{state_dir}/pid\"; exec env -i sleep 600' &); "
        "until [ -s '{state_dir}/pid' ]; do sleep 0.01; done; "
        "yes to the log | head -c 3000000; exit 4"
    )
    FILLS = "for n in 1 2 3; do head -c 30000000 /dev/zero > '{state_dir}'/$n; done; sleep 600"

    def test_nor_what_detaches_itself_nor_a_long_log(self, tmp_path: Path) -> None:
        result = judged(tmp_path, "publisher", "plain", ["sh", "-c", self.DETACHES])

        pid = (tmp_path / "plain" / "state" / "pid").read_text().strip()
        assert "it ended with exit code 4" in paragraphs(result)[0]
        assert not Path(f"/proc/{pid}").exists()
        assert (tmp_path / "plain" / "command.log").stat().st_size <= LOG_BYTES_MAX

    def test_a_state_that_would_fill_the_disk_ends_the_case(self, tmp_path: Path) -> None:
        result = judged(tmp_path, "publisher", "plain", ["sh", "-c", self.FILLS])

        assert "for a few messages, so it was killed" in "\n".join(paragraphs(result))


def test_a_publisher_with_an_older_state_may_put_again_what_it_has_forgotten(
    tmp_path: Path,
) -> None:
    """It puts them as new messages (R24); the report says so."""
    result = judged(
        tmp_path,
        "publisher",
        "state-set-back",
        program("NumbersAsAProgramDoes"),
        messages=3 * MESSAGES_TO_BE_FOUND,  # it must be at work when its state is set back
    )

    assert result.judgement == "conforms", paragraphs(result)
    assert "stored again under new numbers" in result.note


class TestTheCommand:
    def test_says_what_is_wrong_where_the_files_are_and_how_to_repeat_it(
        self, tmp_path: Path
    ) -> None:
        liar = "while read -r line; do echo \"$line\" >> '{output}'; done; exit 0"
        options = ["--role", "publisher", "--case", "plain", "--dir", str(tmp_path / "run")]

        result = CliRunner().invoke(conformance, [*options, "--", "sh", "-c", liar])

        output = " ".join(result.output.split())
        assert result.exit_code == 6
        assert "never said HELLO under its id; it ended with exit code 0" in output
        assert "DOES NOT CONFORM: plain" in output
        assert "again: reliable-pubsub conformance --role publisher --case plain" in output
        document = json.loads((tmp_path / "run" / "conformance.json").read_bytes())
        assert (document["conforms"], document["cases"][0]["case"]) == (False, "plain")

    @pytest.mark.parametrize(
        ("arguments", "sentence"),
        [
            (["--", "true"], "--role publisher or --role subscriber"),
            (["--role", "publisher"], "COMMAND is missing"),
            (["--role", "publisher", "--", "/no/such/program"], "there is no such program"),
            (["--role", "publisher", "--case", "plian", "--", "true"], "'plian' is not one of"),
        ],
    )
    def test_cannot_be_used_otherwise(
        self, arguments: list[str], sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)

        result = CliRunner().invoke(conformance, arguments)

        assert result.exit_code == 2
        assert sentence in " ".join(result.output.split())

    def test_empties_no_directory_of_others(self, tmp_path: Path) -> None:
        (tmp_path / "mine").write_text("mine")
        options = ["--role", "publisher", "--dir", str(tmp_path)]

        result = CliRunner().invoke(conformance, [*options, "--", "true"])

        assert result.exit_code == 2
        assert "nothing was removed" in " ".join(result.output.split())
        assert (tmp_path / "mine").read_text() == "mine"

    def test_does_not_use_a_directory_that_another_run_uses(self, tmp_path: Path) -> None:
        options = ["--role", "publisher", "--dir", str(tmp_path), "--", "true"]

        with claimed(tmp_path, lambda _: True, "conformance.json", b""):
            result = CliRunner().invoke(conformance, options)

        assert result.exit_code == 2
        assert "another run uses this directory now" in " ".join(result.output.split())

    def test_says_that_crash_points_are_not_tried_where_they_cannot_be(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(platform, "machine", lambda: "sparc")
        options = ["--role", "publisher", "--case", CRASH_POINTS, "--dir", str(tmp_path)]

        result = CliRunner().invoke(conformance, [*options, "--", "true"])

        assert result.exit_code == 7
        assert "not tried: needs Linux on x86_64 or aarch64" in " ".join(result.output.split())
        assert "NOT TRIED: crash-points" in result.output

    @needs_crash_points
    def test_sees_a_kernel_that_takes_no_answer(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(crash_points, "CONTINUE", 2)  # a flag that no kernel knows

        reason = crash_points.why_a_trial_fails.__wrapped__()

        assert reason.startswith("the kernel takes no answer to a system call")

    def test_lists_its_cases(self) -> None:
        result = CliRunner().invoke(conformance, ["--list"])

        assert result.exit_code == 0
        for case in CASES:
            assert case.name in result.output
