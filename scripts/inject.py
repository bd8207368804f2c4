"""System calls that fail, on the real processes: each call of a short run, killed or refused there.

One proxy, one publisher with a step file, one subscriber with an output file. strace makes the n-th
call of one kind, on the files of one process, fail or kill. What died is started again without
strace; then each message must be in the output file once, and the store must be sound.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import click
from msgspec import Struct
from rich import box
from rich.table import Table

from reliable_pubsub.common.core.errors import InDoubtError, PubSubError
from reliable_pubsub.common.core.retry import RetryPolicy
from reliable_pubsub.common.progress import progress_bar
from reliable_pubsub.lab.rig.service import Process, Service
from reliable_pubsub.lab.rig.waiting import eventually
from reliable_pubsub.lab.text_table import text_table, wide_console
from reliable_pubsub.proxy.check import check_store
from reliable_pubsub.proxy.store import Store
from scripts.delivery import compare

MESSAGES = 6
DEADLINE_S = 120.0
ONCE = RetryPolicy(timeout_s=0.2, retries_max=0)
RETRY = ("--ack-timeout", "0.5", "--send-retries", "100", "--quiet")
READABLE = (2, 3, 4, 5)  # exit codes of PubSubError

PROCESSES = ("proxy", "publisher", "subscriber")
AGAIN = "proxy-again"  # with a store that was there: its first calls are those of the commits
VICTIMS = ("proxy", AGAIN, "publisher", "subscriber")
FILE_CALLS = ("openat", "write", "pwrite64", "fsync", "fdatasync", "ftruncate", "unlink", "rename")
SEND_CALLS = ("sendto", "sendmsg")
FILE_FAULTS = ("SIGKILL", "EIO", "ENOSPC")
SEND_FAULTS = ("SIGKILL", "ECONNRESET")

PUBLISHER_PLAN = f"steps: [{{topic: t, message: m, number_of_times: {MESSAGES}}}]\n"
SUBSCRIBER_PLAN = f"""steps:
  - {{action: subscribe, topic: t}}
  - {{action: get, topic: t, number_of_times: {MESSAGES}, batch: 2}}
"""


class Case(Struct, frozen=True):
    """One fault."""

    victim: str  # one of VICTIMS
    call: str
    fault: str
    number: int  # of the call, from 1, in each thread

    @property
    def process(self) -> str:
        """Which of the three it is."""
        return process_of(self.victim)

    def __str__(self) -> str:
        return f"{self.victim}:{self.call}:{self.fault}:{self.number}"


def process_of(victim: str) -> str:
    return victim.split("-", maxsplit=1)[0]


class Outcome(Struct, frozen=True):
    """What a fault came to."""

    case: Case
    fate: str  # killed | refused | unharmed | not reached
    violations: Sequence[str] = ()


class Run:
    """One proxy and its two clients in a directory; one of them may run under strace."""

    def __init__(self, directory: Path, victim: str = "", strace: Sequence[str] = ()) -> None:
        """Start nothing yet.

        Args:
            strace: what precedes the first command line of the victim.
        """
        self._service = service = Service(directory)
        # Sockets in the directory: no other run can take them, and no network is asked about.
        for name in ("publisher", "subscriber", "push", "ingress"):
            setattr(service, f"{name}_endpoint", f"ipc://{directory}/{name}.socket")
        self._strace = {process_of(victim): strace}
        if victim == AGAIN:
            Store(service.data_dir, "sync").close()
        self.processes: dict[str, Process] = {}
        self.first_codes: dict[str, int] = {}  # exit codes of the runs under strace
        self.violations: list[str] = []
        self._again: Counter[str] = Counter()

    def start(self, name: str) -> None:
        """Start it; under strace only the first time."""
        service, prefix = self._service, self._strace.pop(name, ())
        if name == "proxy":
            process = service.launch_proxy(prefix=prefix)
        elif name == "publisher":
            process = service.publisher("p", PUBLISHER_PLAN, options=RETRY, prefix=prefix)
        else:
            process = service.subscriber("s", SUBSCRIBER_PLAN, options=RETRY, prefix=prefix)
        self.processes[name] = process
        if not prefix:
            self._again[name] += 1

    def turn(self) -> None:
        """Start again what has died; the end of a run without a fault must be a good one."""
        for name, process in self.processes.items():
            code = process.exit_code
            if code is None or (code == 0 and name != "proxy"):
                continue
            if name not in self.first_codes and not self._again[name]:
                self.first_codes[name] = code
            elif code not in (0, 3):  # unreachable: the proxy was the victim
                raise TimeoutError(f"{name}, without a fault, ended with exit code {code}")
            self.start(name)

    def done(self, name: str) -> bool:
        """Whether a client has come to the end of its steps."""
        process = self.processes.get(name)
        return process is not None and process.exit_code == 0

    def until(self, name: str, seen: Callable[[], bool]) -> None:
        """Take turns until something is seen.

        Raises:
            TimeoutError: it was not, in DEADLINE_S.
        """

        def look() -> bool:
            self.turn()
            return seen()

        eventually(look, name, timeout_s=DEADLINE_S)

    def subscribed(self) -> bool:
        """Whether the proxy answers, and has the subscription."""
        try:
            return any(topic.subscriptions for topic in self._service.status(ONCE).topics)
        except InDoubtError:
            return False

    def play(self) -> None:
        """The whole run; what is wrong comes into `violations`."""
        try:
            self.start("proxy")
            self.start("subscriber")
            self.until("subscription", self.subscribed)
            self.start("publisher")
            self.until("end of the publisher", partial(self.done, "publisher"))
            self.until("end of the subscriber", partial(self.done, "subscriber"))
            self._stop_proxy()
        except TimeoutError as error:
            self.violations.append(str(error))
            return
        finally:
            self._service.close()
            self._read_logs()
        self._judge()

    def _stop_proxy(self) -> None:
        """SIGTERM; a fault that had not come yet may come now.

        One that has just been started again is given the time to be ready: before that, the signal
        ends it as it ends any program.
        """
        self.until("answer of the proxy", self.subscribed)
        proxy = self.processes["proxy"]
        proxy.signal(signal.SIGTERM)
        code = proxy.wait(DEADLINE_S)
        if not self._again["proxy"]:
            self.first_codes["proxy"] = code
        elif code != 0:
            self.violations.append(f"the proxy stopped with exit code {code}")

    def _read_logs(self) -> None:
        for process in self._service.processes:
            text = process.stdout + process.stderr
            if "Traceback" in text or "Assertion" in text:
                self.violations.append(f"{process}: {text[-600:]}")

    def _judge(self) -> None:
        """Exactly once, from the output file alone; and a sound store."""
        payloads = [b"m_%d" % number for number in range(1, MESSAGES + 1)]
        output = self._service.output("s")
        (verdict,) = compare({"s": output}, {"s": ["t"]}, {"t": {"p": payloads}})
        if not verdict.perfect:
            self.violations.append(f"not once each: {verdict}")
        try:
            store = Store(self._service.data_dir, "sync")
            try:
                messages = check_store(store.connection).messages
            finally:
                store.close()
            if messages != MESSAGES:
                self.violations.append(f"{messages} messages are in the store")
        except PubSubError as error:
            self.violations.append(f"the store: {error}")


def watched(directory: Path, call: str) -> list[str]:
    """What strace is to look at: the files of all three; for sockets there are no paths."""
    if call in SEND_CALLS:
        return []
    stores = ["data/proxy.sqlite3", "state/publisher-p.sqlite3", "state/subscriber-s.sqlite3"]
    names = [f"{store}{ending}" for store in stores for ending in ("", "-wal", "-shm", "-journal")]
    names += ["data/lock", "data/initialised", "data", "state", "s.jsonl"]
    names += ["state/publisher-p.lock", "state/subscriber-s.lock"]
    return [word for name in names for word in ("-P", str(directory / name))]


def strace(directory: Path, calls: Sequence[str], *more: str) -> list[str]:
    """strace as a grandchild (-D), so that the victim is our own child, with its own exit code.

    Without --seccomp-bpf: with it, version 6.1 never sends the signal.
    """
    quiet = ("-D", "-f", "-qq", "-e", "signal=none")
    where = ("-o", str(directory / "calls"), *watched(directory, calls[0]))
    return ["strace", *quiet, *where, "-e", f"trace={','.join(calls)}", *more]


def count_calls(victim: str) -> dict[str, int]:
    """A run without a fault: of each kind of call, the most that one thread of the victim makes."""
    found: dict[str, int] = {}
    for calls in (FILE_CALLS, SEND_CALLS):
        with tempfile.TemporaryDirectory(prefix="inject-") as scratch:
            directory = Path(scratch)
            run = Run(directory, victim, strace(directory, calls))
            run.play()
            if run.violations:
                raise click.ClickException(f"a run without a fault failed: {run.violations}")
            lines = (directory / "calls").read_text(errors="replace").splitlines()
            counts = Counter(
                match.groups() for line in lines if (match := re.match(r"(\d+) +(\w+)\(", line))
            )
            for (_, call), count in counts.items():
                found[call] = max(found.get(call, 0), count)
    return found


def inject(case: Case, keep: Path | None = None) -> Outcome:
    """One run with one fault."""
    scratch = keep or Path(tempfile.mkdtemp(prefix="inject-"))
    scratch.mkdir(exist_ok=True)
    what = "signal=SIGKILL" if case.fault == "SIGKILL" else f"error={case.fault}"
    option = f"inject={case.call}:{what}:when={case.number}"
    run = Run(scratch, case.victim, strace(scratch, [case.call], "-e", option))
    try:
        run.play()
        calls = scratch / "calls"
        text = calls.read_text(errors="replace") if calls.exists() else ""
    finally:
        if keep is None and not run.violations:
            shutil.rmtree(scratch, ignore_errors=True)
    code = run.first_codes.get(case.process, 0)
    if code == -signal.SIGKILL and case.fault == "SIGKILL":
        fate = "killed"
    elif code:
        fate = "refused"
        if code not in READABLE:
            run.violations.append(f"{case.victim} ended with exit code {code}")
    else:
        fate = "unharmed" if "(INJECTED)" in text else "not reached"
    return Outcome(case, fate, run.violations)


def cases_of(counts: Mapping[str, Mapping[str, int]], every: int) -> Iterator[Case]:
    """Every call of every kind that a process makes, with every fault."""
    for victim, calls in counts.items():
        for call, count in calls.items():
            if victim == AGAIN and call == "write":
                continue  # they write the log beforehand, as at the first start
            faults = SEND_FAULTS if call in SEND_CALLS else FILE_FAULTS
            for number in range(1, count + 1, every):
                for fault in faults:
                    yield Case(victim, call, fault, number)


def table_of(outcomes: Sequence[Outcome]) -> Table:
    """One row for each victim, call and fault."""
    fates = ("killed", "refused", "unharmed", "not reached")
    alike: dict[tuple[str, str, str], list[Outcome]] = {}
    for one in outcomes:
        alike.setdefault((one.case.victim, one.case.call, one.case.fault), []).append(one)
    rows = []
    for key, mine in alike.items():
        found = Counter(one.fate for one in mine)
        bad = sum(bool(one.violations) for one in mine)
        rows.append((*key, *map(str, (len(mine), *(found[fate] for fate in fates), bad))))
    columns = ("victim", "call", "fault", "#runs", *(f"#{fate}" for fate in fates), "#violations")
    title = "each call of a short run, killed or refused there"
    return text_table(title, columns, rows, box=box.SIMPLE)


def parse_case(_context: click.Context, _option: click.Parameter, text: str | None) -> Case | None:
    """VICTIM:CALL:FAULT:NUMBER"""
    if text is None:
        return None
    try:
        victim, call, fault, number = text.split(":")
        return Case(victim, call, fault, int(number))
    except ValueError:
        raise click.BadParameter("expected VICTIM:CALL:FAULT:NUMBER") from None


@click.command()
@click.option("--every", default=1, type=click.IntRange(1), help="Only each so-manieth call.")
@click.option("--jobs", default=os.cpu_count() or 1, type=click.IntRange(1), help="Runs at once.")
@click.option("--victim", "victims", multiple=True, type=click.Choice(VICTIMS), help="Only this.")
@click.option("--case", callback=parse_case, help="One case: VICTIM:CALL:FAULT:NUMBER.")
@click.option("--keep", type=click.Path(path_type=Path), help="With --case: where its files stay.")
def main(
    every: int, jobs: int, victims: tuple[str, ...], case: Case | None, keep: Path | None
) -> None:
    """Make each system call of a short run fail or kill; exit code 1 if a message is lost or twice.

    Calls on the files of proxy, publisher and subscriber (write, fsync, open, ...), and what they
    send. Needs strace.
    """
    if shutil.which("strace") is None:
        raise click.ClickException("strace is not installed (apt-get install strace)")
    console = wide_console(110)
    if case is not None:
        outcome = inject(case, keep.resolve() if keep else None)
        words = "\n".join((f"{case}: {outcome.fate}", *outcome.violations))
        console.print(words, markup=False)
        sys.exit(bool(outcome.violations))
    counts = {victim: count_calls(victim) for victim in victims or VICTIMS}
    console.print(f"calls of one run: {counts}", markup=False)
    cases = list(cases_of(counts, every))
    outcomes: list[Outcome] = []
    with progress_bar(len(cases), 0, quiet=False) as advance, ThreadPoolExecutor(jobs) as pool:
        for outcome in pool.map(inject, cases):
            outcomes.append(outcome)
            advance(1, "inject")
            for violation in outcome.violations:
                line = f"VIOLATION: scripts/inject --case {outcome.case}  {violation:.700}"
                console.print(line, markup=False)
    console.print(table_of(outcomes))
    sys.exit(any(outcome.violations for outcome in outcomes))


if __name__ == "__main__":
    main()
