"""Runs a case: lets the client work, does the acts, waits for the ending, judges the evidence."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from msgspec import Struct

from reliable_pubsub.common.core import journal
from reliable_pubsub.common.core.batch import crc32
from reliable_pubsub.common.core.errors import ConfigurationError, PubSubError
from reliable_pubsub.common.core.journal import AnyLine, Ok, Seen, decode_line, encode_line

from .auditor import NAME as AUDITOR
from .conformance_acts import Actor
from .conformance_stage import ConformanceStage, HungError
from .core.checker import check
from .core.conformance import CLIENT, TOPIC, Case, Role, payloads, portions
from .core.conformance_evidence import (
    ReadOutput,
    entries_of,
    output_lines,
    publisher_lines,
    read_output,
    repeated_from,
    strangers,
    subscriber_lines,
)
from .core.conformance_verdict import Observed, Result, judge
from .core.run import LabRun
from .core.verdict import Verdict
from .reading import read_run
from .rig.child_process import NotReadyError

CALM_S: Final = 0.3  # after the last message: what does not come within it is not awaited
PORTIONS_AT_ONCE: Final = 2


class Candidate(Struct, frozen=True):
    """What the tool has to judge."""

    role: Role
    command: tuple[str, ...]
    messages: int
    seed: int
    patience_s: float


class Judged(Struct, frozen=True):
    """A case with the evidence for it."""

    result: Result
    run: LabRun | None  # None: there was nothing to read
    verdict: Verdict | None


def run_case(case: Case, wanted: Candidate, directory: Path) -> Judged:
    """Run a case and judge it; every process is ended and reaped, whatever happens.

    Args:
        directory: for all that is written; made here.

    Raises:
        ConfigurationError: the command cannot be started.
        NotReadyError: the proxy cannot.
    """
    directory.mkdir(parents=True)
    messages = payloads(wanted.messages)
    stage = ConformanceStage(
        directory,
        wanted.role,
        wanted.command,
        messages,
        patience_s=wanted.patience_s,
    )
    trial = _Trial(case, wanted, stage)
    hung = failed = ""
    try:
        try:
            trial.perform()
        except ConfigurationError:
            raise
        except HungError as error:
            hung = str(error)
        except (PubSubError, NotReadyError) as error:
            failed = f"the case could not be carried out: {error}"
        seen = trial.finish(hung, failed)
    finally:
        stage.close()
    run = verdict = None
    if seen.connected and not failed:
        run = read_run(stage.evidence)
        verdict = check(run)
    return Judged(judge(case, wanted.role, seen, verdict), run, verdict)


class _Trial:
    """One case."""

    def __init__(self, case: Case, wanted: Candidate, stage: ConformanceStage) -> None:
        self._case, self._role, self._stage = case, wanted.role, stage
        chance = random.Random(f"{wanted.seed} {case.name}")
        self._acts = case.schedule(wanted.messages, chance.random)
        self._portions = portions(wanted.messages, chance.random)
        self._actor = Actor(stage, self._feed_some)
        self._is_finished = False

    # The work.

    def perform(self) -> None:
        """Start the client, do the acts, wait for the ending.

        Raises:
            HungError: nothing moves any more.
            PubSubError, NotReadyError: the proxy does not do its part.
        """
        stage = self._stage
        stage.start_client()
        if self._role == "publisher":
            ready = stage.wait(lambda: bool(stage.seen.epochs), "HELLO of it")
        else:
            ready = stage.wait(lambda: stage.seen.subscribed is not None, "SUB of it")
        if not ready:
            return
        for act in self._acts:
            self._feed_up_to(act.at)
            if not stage.wait(lambda at=act.at: stage.done >= at, f"message {act.at}"):  # type: ignore[misc]
                return
            self._actor.do(act)
        {
            "done": self._to_the_end,
            "either": self._to_the_end,
            "resumes": self._resumes,
            "stops": self._stops,
        }[self._case.ending]()

    def _to_the_end(self) -> None:
        stage = self._stage
        self._feed_up_to(len(stage.messages))
        if self._role == "publisher":
            stage.wait(lambda: False, "exit of it")
            self._is_finished = bool(stage.ended) and stage.ended[-1].code == 0
        elif stage.wait(stage.has_last, "last message in its output"):
            stage.watch(CALM_S)
            stage.stop_client()
            self._is_finished = True

    def _resumes(self) -> None:
        stage = self._stage
        stage.resumable = False
        if stage.wait(self._took_back, "exit of the process that was fenced"):
            return
        if stage.ended[-1].code == 0:
            return
        stage.resumable = True
        stage.start_client()
        self._to_the_end()

    def _took_back(self) -> bool:
        return max(self._stage.seen.epochs, default=0) > self._actor.took_over_at

    def _stops(self) -> None:
        """It stops; started again it stops again, because nothing has been decided."""
        stage = self._stage
        for _ in range(2):
            if stage.wait(
                lambda: bool(self._of_the_new_store()),
                "exit of it after the store had been replaced",
            ):
                return
            if stage.ended[-1].code == 0:
                return
            if len(stage.ended) < 2:
                stage.start_client()

    def _of_the_new_store(self) -> list[str]:
        """What its output has of the new store."""
        stage = self._stage
        self._actor.continue_writing()
        if not self._actor.replaced or stage.lines <= self._actor.kept_lines:
            return []
        output = self._output()
        if output.is_journal:
            lines = stage.output.read_bytes().splitlines()[self._actor.kept_lines :]
            puts = [one for one in map(decode_line, lines) if isinstance(one, Ok)]
            return [f"{CLIENT}_{one.sequence}" for one in puts if one.op == "put"]
        kept = {entry.crc for entry in self._entries()}
        return [
            claim.payload.decode(errors="replace")
            for claim in output.claims
            if claim.line > self._actor.kept_lines and crc32(claim.payload) not in kept
        ]

    # What a subscriber is given.

    def _feed_some(self) -> None:
        if self._role == "subscriber" and self._portions:
            self._stage.feed([self._portions.pop(0) for _ in self._portions[:PORTIONS_AT_ONCE]])

    def _feed_up_to(self, count: int) -> None:
        while self._role == "subscriber" and self._stage.fed < count:
            self._stage.feed([self._portions.pop(0)])

    # The evidence.

    def _output(self) -> ReadOutput:
        path = self._stage.output
        return read_output(path.read_bytes() if path.exists() else b"")

    def _entries(self) -> list[Seen]:
        path = self._stage.evidence / "journals" / f"{AUDITOR}.jsonl"
        return entries_of(_lines_of(path), TOPIC)

    def finish(self, hung: str, failed: str) -> Observed:
        """Read the log to its end, stop the client, write the evidence."""
        stage, actor = self._stage, self._actor
        stage.look()
        continued = self._of_the_new_store()
        stage.kill_client()
        actor.close()
        connected = bool(stage.seen.epochs)
        if connected and not actor.replaced and not failed:
            try:
                stage.audit()
            except PubSubError as error:
                failed = f"the log could not be read: {error}"
        output = self._output()
        if connected and not failed:
            self._write(output)
        is_publisher = self._role == "publisher"
        claims = stage.lines if output.is_journal else len(output.claims)
        return Observed(
            messages=len(stage.messages),
            connected=connected,
            done=stage.done,
            ended=tuple(stage.ended),
            hung=hung,
            happened=actor.happened,
            replaced=actor.replaced,
            claimed=claims,
            unreadable=output.unreadable,
            strangers=strangers(output.claims, stage.messages) if is_publisher else (),
            repeated=is_publisher and self._again_from(self._entries()) is not None,
            ahead=stage.ahead,
            took_back=self._case.ending == "resumes"
            and len(stage.lives) == 1
            and self._took_back_in_place(),
            continued=tuple(continued),
            said=stage.said(),
            failed=failed,
        )

    def _again_from(self, entries: Sequence[Seen]) -> int | None:
        """Where a publisher began again because its state had been set back."""
        since = self._actor.set_back_at
        return None if since is None else repeated_from(entries, CLIENT, since=since)

    def _took_back_in_place(self) -> bool:
        return bool(self._actor.took_over_at) and self._took_back()

    def _write(self, output: ReadOutput) -> None:
        """Write what the checker reads, of the log that the client began with."""
        stage = self._stage
        journals = stage.evidence / "journals"
        entries = self._entries()
        claims = output.claims
        if self._actor.replaced:
            claims = tuple(one for one in claims if one.line <= self._actor.kept_lines)
        if self._role == "subscriber":
            name = f"{CLIENT}.jsonl"
            written = b"".join(output_lines(claims, TOPIC, entries))
            (stage.evidence / "outputs" / name).write_bytes(written)
            subscribed = stage.seen.subscribed
            lines = subscriber_lines(stage.lives, CLIENT, TOPIC, subscribed, name)
        elif output.is_journal:
            lines = None
            kept = stage.output.read_bytes()
            if self._actor.replaced:
                kept = b"".join(kept.splitlines(keepends=True)[: self._actor.kept_lines])
            (journals / f"{CLIENT}.jsonl").write_bytes(kept)
        else:
            lines = publisher_lines(
                stage.lives,
                CLIENT,
                TOPIC,
                stage.messages,
                stage.claimed_ns,
                claims,
                entries,
                again_from=self._again_from(entries),
            )
        if lines is not None:
            (journals / f"{CLIENT}.jsonl").write_bytes(b"".join(map(encode_line, lines)))
        stage.recorder.line(
            journal.Finished,
            target=CLIENT,
            done=self._is_finished,
            expected=self._is_finished,
            drained=self._is_finished and self._role == "subscriber",
            messages=len(stage.messages) if self._role == "publisher" else None,
        )


def _lines_of(path: Path) -> list[AnyLine]:
    return [decode_line(text) for text in path.read_bytes().splitlines()] if path.exists() else []
