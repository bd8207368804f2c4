"""Runs a case: lets the client work, does the acts, waits for the ending, judges the evidence."""

from __future__ import annotations

import random
import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from reliable_pubsub.common.core import journal
from reliable_pubsub.common.core.batch import crc32
from reliable_pubsub.common.core.errors import ConfigurationError, PubSubError
from reliable_pubsub.common.core.journal import AnyLine, Ok, Seen, decode_line, encode_line

from .auditor import NAME as AUDITOR
from .conformance_acts import Actor
from .conformance_stage import ConformanceStage, CrashRun, HungError, tokens
from .core.checker import check
from .core.conformance import (
    CRASH_MESSAGES,
    CRASH_POINTS,
    Case,
    Role,
    payloads,
    portions,
)
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
from .core.conformance_verdict import Observed, Result, at_point, judge, not_tried, with_points
from .core.run import LabRun
from .core.verdict import Verdict
from .reading import read_run
from .rig.child_process import NotReadyError
from .rig.crash_points import CrashPoint, why_not_here
from .rig.service import Service

CALM_S: Final = 0.3  # after the last message: what does not come within it is not awaited
CRASH_CALM_S: Final = 0.1
ACKNOWLEDGED_S_MAX: Final = 30.0  # longer than any client that acknowledges needs
PORTIONS_AT_ONCE: Final = 2


class Candidate(Struct, frozen=True):
    """What the tool has to judge."""

    role: Role
    command: tuple[str, ...]
    messages: int
    seed: int
    patience_s: float

    crash_point: int | None = None  # the only one to try; None: all


class Judged(Struct, frozen=True):
    """A case with the evidence for it."""

    result: Result
    directory: Path
    run: LabRun | None = None  # None: there was nothing to read
    verdict: Verdict | None = None
    points: Mapping[CrashPoint, str] = {}  # of its first process


def run_case(case: Case, wanted: Candidate, directory: Path) -> Judged:
    """Run a case and judge it; every process is ended and reaped, whatever happens.

    Args:
        directory: for all that is written; made here.

    Raises:
        ConfigurationError: the command cannot be started, or has no such crash point.
        NotReadyError: the proxy cannot.
    """
    if case.name != CRASH_POINTS:
        return _run_once(case, wanted, directory)
    if reason := why_not_here():
        return Judged(not_tried(case, reason), directory)
    with TemporaryDirectory(prefix="conformance-") as folder, Service(Path(folder)) as service:
        service.start_proxy("--journal", Path(folder) / "proxy.jsonl")
        return _run_points(case, replace(wanted, messages=CRASH_MESSAGES), directory, service)


def _run_points(case: Case, wanted: Candidate, directory: Path, service: Service) -> Judged:
    """Count the crash points, then try one after another, until one does not hold."""
    where = directory / "without-a-crash"
    counted = _run_once(case, wanted, where, CrashRun(service, 1, None))
    points, only = counted.points, wanted.crash_point
    if counted.result.judgement != "conforms":
        return counted
    if only is not None and only > len(points):
        raise ConfigurationError(
            f"there is no crash point {only}: COMMAND has {len(points)}, from 1"
        )
    missed = 0
    for number, (point, name) in enumerate(points.items(), start=1):
        if only in (None, number):
            where = directory / f"crash-point-{number}"
            judged = _run_once(case, wanted, where, CrashRun(service, 1 + number, point))
            missed += point not in judged.points
            if judged.result.judgement != "conforms":
                which = f"crash point {number} of {len(points)}: {judged.points.get(point, name)}"
                return replace(judged, result=at_point(judged.result, number, which), points=points)
            shutil.rmtree(where)
    tried = len(points) if only is None else 1
    return replace(counted, result=with_points(counted.result, tried, missed))


def _run_once(
    case: Case, wanted: Candidate, directory: Path, crash: CrashRun | None = None
) -> Judged:
    directory.mkdir(parents=True)
    stage = ConformanceStage(
        directory,
        wanted.role,
        wanted.command,
        payloads(tokens(wanted.messages)),
        patience_s=wanted.patience_s,
        crash=crash,
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
    points = stage.crash.points if stage.crash else {}
    return Judged(judge(case, wanted.role, seen, verdict), directory, run, verdict, points)


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
        count = len(stage.messages)
        if self._role == "publisher":
            stage.wait(lambda: False, "exit of it")
            self._is_finished = bool(stage.ended) and stage.ended[-1].code == 0
            return
        while True:  # with crash points in portions, so that each run makes the same calls
            self._feed_up_to(count if stage.crash is None else stage.fed + 1)
            if not stage.wait(
                lambda: stage.has(stage.fed - 1), f"message {stage.fed} in its output"
            ):
                return
            if stage.fed == count:
                break
        if stage.crash is not None:  # it has written its state when it acknowledges
            stage.wait(
                lambda: stage.seen.cursor >= count,
                "acknowledgement of all",
                at_most_s=min(ACKNOWLEDGED_S_MAX, stage.patience_s),
            )
        stage.watch(CALM_S if stage.crash is None else CRASH_CALM_S)
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
            return [f"{self._stage.client}_{one.sequence}" for one in puts if one.op == "put"]
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
        return entries_of(_lines_of(path), self._stage.topic)

    def finish(self, hung: str, failed: str) -> Observed:
        """Read the log to its end, stop the client, write the evidence."""
        stage, actor = self._stage, self._actor
        with suppress(HungError, NotReadyError):  # what it has written counts all the same
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
            client=stage.client,
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
            unsent=stage.unsent,
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
        return None if since is None else repeated_from(entries, self._stage.client, since=since)

    def _took_back_in_place(self) -> bool:
        return bool(self._actor.took_over_at) and self._took_back()

    def _write(self, output: ReadOutput) -> None:
        """Write what the checker reads, of the log that the client began with."""
        stage = self._stage
        own = stage.evidence / "journals" / f"{stage.client}.jsonl"
        entries = self._entries()
        claims = output.claims
        if self._actor.replaced:
            claims = tuple(one for one in claims if one.line <= self._actor.kept_lines)
        if self._role == "subscriber":
            name = f"{stage.client}.jsonl"
            written = b"".join(output_lines(claims, stage.topic, entries))
            (stage.evidence / "outputs" / name).write_bytes(written)
            subscribed = stage.seen.subscribed
            lines = subscriber_lines(stage.lives, stage.client, stage.topic, subscribed, name)
        elif output.is_journal:
            lines = None
            kept = stage.output.read_bytes()
            if self._actor.replaced:
                kept = b"".join(kept.splitlines(keepends=True)[: self._actor.kept_lines])
            own.write_bytes(kept)
        else:
            lines = publisher_lines(
                stage.lives,
                stage.client,
                stage.topic,
                stage.messages,
                stage.sent_ns(),
                stage.claimed_ns,
                claims,
                entries,
                again_from=self._again_from(entries),
            )
        if lines is not None:
            own.write_bytes(b"".join(map(encode_line, lines)))
        stage.recorder.line(
            journal.Finished,
            target=stage.client,
            done=self._is_finished,
            expected=self._is_finished,
            drained=self._is_finished and self._role == "subscriber",
            messages=len(stage.messages) if self._role == "publisher" else None,
        )


def _lines_of(path: Path) -> list[AnyLine]:
    return [decode_line(text) for text in path.read_bytes().splitlines()] if path.exists() else []
