"""Plays a run: the broker and the clients of a submission, and the link between them."""

from __future__ import annotations

import random
import socket
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import Any, Final, Self

import msgspec
from msgspec import Struct

from ..rig.child_process import ChildProcess
from ..rig.link import TcpLinks
from .core.plan import AIMS, BROKER, Ask, Deliver, Kill, Plan, Step, line_of
from .core.submission import Commands
from .core.telling import JUDGE, RunEvent
from .core.verdict import BrokenRule, ClientCall, Rule, judge, readings, shown
from .link import AimedLink, Encoding, LinkAct

LOOK_AGAIN_S: Final = 0.004
LOST_AGAIN_S: Final = 10.0  # a request is held this long; then its client has not asked again
LIMITS_S: Final = 1.0
PAUSE_S: Final = (0.02, 0.4)  # between gets that find nothing: at first, at most
NULLS_MAX: Final = 2  # at the end, when nothing is awaited
ANSWER_BYTES_MAX: Final = 1_000_000
LAST_WORDS_CHARS: Final = 300
PORTS: Final = range(20_000, 30_000)  # no outgoing connection has one of these


class RunEnded(Exception):
    """The run cannot continue: a broken rule."""

    def __init__(
        self,
        text: str,
        ask: Ask | None = None,
        rule: Rule = "the service resumes after the last fault",
    ) -> None:
        super().__init__(text)
        self.breach = BrokenRule(
            rule=rule,
            text=text,
            client=ask.client if ask else "",
            topic=ask.topic if ask else "",
            id=ask.id if ask else "",
        )


class Broken(Exception):
    """A rule is broken, and the run shows it."""


class RunOutcome(Struct, frozen=True):
    """A run, judged."""

    breaches: list[BrokenRule]
    events: list[RunEvent]
    missed: tuple[str, ...]  # faults that did not occur


class JudgedClient:
    """A client of the submission, its link, and the lives it has had."""

    def __init__(self, name: str, link: AimedLink, start: Callable[[], ChildProcess]) -> None:
        self.name, self.link, self._start = name, link, start
        self.life = 0
        self.restart()

    def restart(self) -> None:
        self.life += 1
        self.process = self._start()
        self._read_bytes = self.process.output.stat().st_size
        self.is_killed = False

    def kill(self) -> None:
        """Send SIGKILL to it and all that it has started."""
        self.is_killed = True
        self.process.kill_group()

    def tell(self, line: str) -> None:
        with suppress(BrokenPipeError):  # it has ended, which is found when its answer is awaited
            self.process.tell(line)

    def answer(self) -> bytes | None:
        """Return the next line of its output, if it is there."""
        with self.process.output.open("rb") as file:
            file.seek(self._read_bytes)
            line = file.readline(ANSWER_BYTES_MAX)
        if not line.endswith(b"\n") and len(line) < ANSWER_BYTES_MAX:
            return None
        self._read_bytes += len(line)
        return line


class JudgedService:
    """One broker with its clients, in a folder of its own."""

    def __init__(
        self,
        commands: Commands,
        source: Path,
        folder: Path,
        *,
        resume_s: float,
        check: Callable[[], None] = lambda: None,
        clean: Callable[[], None] = lambda: None,
    ) -> None:
        """Start the broker.

        Args:
            source: the submission, in which commands are run.
            resume_s: the run ends after this long without an answer.
            check: raises if the submission is beyond its limits.
            clean: ends what the processes of a run have left.
        """
        self._commands, self._source, self._folder = commands, source, folder
        self._resume_s, self._check, self._clean = resume_s, check, clean
        self._clients: dict[str, JudgedClient] = {}
        self._encoding = Encoding()
        self._began_s = time.monotonic()
        self._restart_broker_s: float | None = None  # when
        self._heal_s: float | None = None
        self._is_late_since_s: float | None = None
        self.calls: list[ClientCall] = []
        self.events: list[RunEvent] = []
        self.missed: list[str] = []
        self._clock = 0
        (folder / "data").mkdir(parents=True)
        with ExitStack() as stack:
            self._port = _reserved_port(stack)
            stack.callback(self._clean)
            self._links = stack.enter_context(closing(TcpLinks()))
            self._check()
            self._start_broker()
            stack.callback(lambda: self._broker.kill_group())  # the one that runs then
            self._stack = stack.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    # Processes.

    def _launch(self, command: Sequence[str], name: str, *, talks: bool) -> ChildProcess:
        """Start a process. Crash points (a kill at its Nth system call) would wrap it here."""
        output = self._folder / f"{name}.out"
        output.touch()
        try:
            return ChildProcess(
                command,
                output,
                errors=self._folder / f"{name}.err",
                cwd=self._source,
                talks=talks,
            )
        except OSError as error:
            time.sleep(LIMITS_S)  # too many processes are a limit, which is looked at now and then
            self._check()
            raise RunEnded(f"{command[0]} cannot be started: {error.strerror}") from error

    def _start_broker(self) -> None:
        command = self._commands.broker_command(self._port, str(self._folder / "data"))
        self._broker = self._launch(command, BROKER, talks=False)
        self._is_broker_killed = False

    def _kill_broker(self) -> None:
        self._is_broker_killed = True
        self._broker.kill_group()

    def _client(self, name: str) -> JudgedClient:
        if name not in self._clients:
            link = AimedLink(lambda: ("127.0.0.1", self._port), self._links, self._encoding)
            state = self._folder / f"{name}.state"
            state.mkdir()
            command = self._commands.client_command(
                f"tcp://127.0.0.1:{link.address[1]}", name, str(state)
            )
            self._clients[name] = JudgedClient(
                name, link, lambda: self._launch(command, name, talks=True)
            )
            self._stack.callback(self._clients[name].kill)
        return self._clients[name]

    # Steps.

    def play(self, plan: Plan) -> RunOutcome:
        """Take every step, then ask until nothing more comes; judge."""
        breaches, is_over = [], False
        try:
            for name in dict.fromkeys(one.client for one in plan if isinstance(one, Ask)):
                self._client(name)
            for step in plan:
                self._take(step)
            self._drain(plan)
            is_over = True
        except Broken:
            is_over = False
        except RunEnded as ended:
            breaches = [ended.breach]
        found = judge(self.calls, is_over=is_over)
        return RunOutcome([*found, *breaches], self.events, tuple(self.missed))

    def _take(self, step: Step) -> None:
        match step:
            case Ask():
                self._ask(step)
            case Kill(who=who):
                self._say(JUDGE, f"kill -9 {who}")
                if who == BROKER:
                    self._kill_broker()
                else:
                    self._client(who).kill()
                self._mend()
            case Deliver():
                self._deliver()

    def _deliver(self) -> None:
        if self._is_late_since_s is not None:
            self._say(JUDGE, "lets the late request pass")
        self._is_late_since_s = None
        for client in self._clients.values():
            client.link.release()

    def _ask(self, ask: Ask) -> None:
        client = self._client(ask.client)
        call = ClientCall(
            client=ask.client,
            life=client.life,
            op=ask.op,
            topic=ask.topic,
            id=ask.id,
            message=ask.message,
            began=self._now(),
        )
        self.calls.append(call)
        self._aim(ask, client)
        self._say(ask.client, _words(ask))
        client.tell(msgspec.json.encode(line_of(ask)).decode())
        try:
            line = self._awaited(ask, client)
        finally:
            has_fired = client.link.has_fired or ask.aim in ("", "broker down", "link cut")
            client.link.end()
        if not has_fired:
            self.missed.append(f"{ask.aim}: {ask.client} {ask.op}")
            self._say(JUDGE, f"no fault: {ask.client} answered without what the judge waited for")
        if line is not None:
            call.ended, call.answer = self._now(), _decoded(line)
            self._say(ask.client, _words_of_answer(call.answer), is_answer=True)
            if judge(self.calls, is_over=False):
                self._say(JUDGE, "the rule breaks here")
                raise Broken

    def _aim(self, ask: Ask, client: JudgedClient) -> None:
        """Prepare the fault of a step."""
        in_answer = ask.op == "get"
        texts = [ask.message.split()[-1]] if ask.op == "put" and ask.message.split() else []
        if in_answer:
            puts = [call for call in self.calls if call.op == "put" and call.topic == ask.topic]
            texts = [call.message.split()[-1] for call in puts if call.message.split()]
        words = AIMS[ask.aim].format(client=ask.client, seconds=ask.seconds) if ask.aim else ""
        act: LinkAct = "lose the answer"
        kill: Callable[[], object] | None = None
        match ask.aim:
            case "":
                act = "nothing"
            case "request late":
                act = "hold the request"
                self._is_late_since_s = time.monotonic()
            case "broker killed at the request":
                act, kill = "tell", self._kill_broker
            case "broker killed at the answer":
                kill = self._kill_broker
            case "client killed at the answer":
                kill = client.kill
            case "broker down":
                act = "nothing"
                self._kill_broker()
                self._restart_broker_s = time.monotonic() + ask.seconds
                self._say(JUDGE, words)
            case "link cut":
                act = "nothing"
                client.link.cut()
                self._heal_s = time.monotonic() + ask.seconds
                self._say(JUDGE, words)

        def fires() -> None:
            self._say(JUDGE, words)
            if kill is not None:
                kill()

        client.link.aim(act, texts, fires, in_answer=in_answer)

    def _awaited(self, ask: Ask, client: JudgedClient) -> bytes | None:
        """Wait for the answer; None: the client was killed."""
        life, silent_since_s = client.life, time.monotonic()
        while True:
            is_killed = client.is_killed
            line = client.answer()
            if line is not None and not is_killed:
                return line
            if self._mend():
                silent_since_s = time.monotonic()
            if client.life != life:
                return None
            if not client.process.runs and not client.is_killed:
                raise RunEnded(_words_of_end(ask.client, client.process, ask), ask)
            waited_s = time.monotonic() - silent_since_s
            if self._is_late_since_s is not None and client.link.has_fired:
                if waited_s > LOST_AGAIN_S:
                    self._deliver()
                    silent_since_s = time.monotonic()
            elif waited_s > self._resume_s:
                raise RunEnded(
                    f"{ask.client} did not answer {_words(ask)} within {self._resume_s:g} s of the "
                    "last fault",
                    ask,
                )
            time.sleep(LOOK_AGAIN_S)

    def _mend(self) -> bool:
        """Restart what was killed, when it is due; return whether a fault is or was under way."""
        self._check()
        now_s = time.monotonic()
        changed = False
        if self._heal_s is not None:
            changed = True
            if now_s > self._heal_s:
                self._heal_s = None
                for client in self._clients.values():
                    client.link.heal()
        if self._is_broker_killed:
            changed = True
            if self._restart_broker_s is None or now_s > self._restart_broker_s:
                self._restart_broker_s = None
                self._broker.wait()
                self._say(JUDGE, "restarts the broker")
                self._start_broker()
        elif not self._broker.runs:
            raise RunEnded(_words_of_end("the broker", self._broker))
        for client in self._clients.values():
            if client.is_killed:
                changed = True
                client.process.wait()
                self._say(JUDGE, f"restarts {client.name}")
                client.restart()
        return changed

    def _drain(self, plan: Plan) -> None:
        """Ask until nothing more can come. A last message of each publisher shows that none will:
        what it put before either came before, or is lost.
        """
        self._deliver()
        asks = [step for step in plan if isinstance(step, Ask)]
        lines = dict.fromkeys((one.client, one.topic) for one in asks if one.op == "put")
        for client, topic in lines:
            text = f"last of {client}"
            self._ask(Ask(client=client, op="put", topic=topic, id=f"last-{client}", message=text))
        for client, topic in dict.fromkeys(
            (one.client, one.topic) for one in asks if one.op == "subscribe"
        ):
            self._drain_one(Ask(client=client, op="get", topic=topic))

    def _drain_one(self, ask: Ask) -> None:
        nulls, pause_s = 0, PAUSE_S[0]
        moved_s = time.monotonic()
        while True:
            before = len(self.events)
            self._ask(ask)
            answer = self.calls[-1].answer
            if not isinstance(answer, dict) or "error" in answer:
                return
            if answer.get("message") is not None:
                nulls, pause_s, moved_s = 0, PAUSE_S[0], time.monotonic()
                continue
            nulls += 1
            if nulls > 1:
                del self.events[before:]
            is_awaited = bool(readings(self.calls)[ask.client, ask.topic].awaited())
            if nulls >= NULLS_MAX and not is_awaited:
                return
            if time.monotonic() - moved_s > self._resume_s:
                return
            time.sleep(pause_s)
            pause_s = min(1.3 * pause_s, PAUSE_S[1])

    def _now(self) -> int:
        self._clock += 1
        return self._clock

    def _say(self, who: str, does: str, *, is_answer: bool = False) -> None:
        at_s = time.monotonic() - self._began_s
        self.events.append(RunEvent(at_s, who, does, is_answer=is_answer))


def _reserved_port(stack: ExitStack) -> int:
    """Return a free port that no other judge takes until the stack is closed.

    The broker must be able to bind it, so it is reserved by a UDP socket.
    """
    for port in random.sample(PORTS, len(PORTS)):
        with ExitStack() as held, suppress(OSError), socket.socket() as found:
            reservation = held.enter_context(socket.socket(type=socket.SOCK_DGRAM))
            reservation.bind(("127.0.0.1", port))
            found.bind(("127.0.0.1", port))
            stack.enter_context(held.pop_all())
            return port
    raise RunEnded("no port is free")


def _decoded(line: bytes) -> Any:
    try:
        return msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return line.decode(errors="replace").rstrip("\n")


def _words(ask: Ask) -> str:
    """Return a step in words."""
    return f"{ask.op} {shown(ask.id)[1:-1]}" if ask.op == "put" else ask.op


def _words_of_answer(answer: Any) -> str:
    """Return an answer in words, if it has the form of the task sheet."""
    match answer:
        case {"ok": True}:
            return "ok"
        case {"error": str(text)}:
            return f"error: {shown(text)}"
        case {"message": None}:
            return "no message"
        case {"message": str(), "id": str(id)}:
            return shown(id)[1:-1]
    return shown(answer)


def _words_of_end(who: str, process: ChildProcess, ask: Ask | None = None) -> str:
    errors = process.errors.read_bytes()[-4 * LAST_WORDS_CHARS :].decode(errors="replace")
    last = errors.strip()[-LAST_WORDS_CHARS:]
    when = f" before it answered {_words(ask)}" if ask else ""
    code = process.exit_code
    how = f"exit code {code}" if code is not None and code >= 0 else f"signal {-(code or 0)}"
    return f"{who} ended by itself{when}, with {how}" + (f": {last}" if last else "")


def play(plan: Plan, commands: Commands, source: Path, folder: Path, **options: Any) -> RunOutcome:
    """Run a plan with processes of its own, and judge it; `options` are of `JudgedService`."""
    try:
        with JudgedService(commands, source, folder, **options) as service:
            return service.play(plan)
    except RunEnded as ended:
        return RunOutcome([ended.breach], [], ())
