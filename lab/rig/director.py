"""Runs a scenario: starts its processes, carries out its events, watches, ends.

    begin ──► events ──► quiet (all healed, all alive) ──► drained ──► over

The time of the scenario begins when all subscribers are subscribed; then the publishers begin.
"""

from __future__ import annotations

import random
import signal
from collections.abc import Callable
from typing import Final, Literal

from msgspec import Struct

from reliable_pubsub.common.core import journal
from reliable_pubsub.common.core.errors import InDoubtError
from reliable_pubsub.common.core.recorder import Recorder
from reliable_pubsub.common.core.retry import RetryPolicy
from reliable_pubsub.common.core.steps import SubscriberStep
from reliable_pubsub.common.status_client import StatusClient

from ..core.scenario import (
    AT_ONCE,
    DOWN_S,
    END_OF,
    IN_WORDS,
    OF_LINKS,
    PROXY,
    After,
    AllSubscribed,
    At,
    RandomEvents,
    Scenario,
    ScenarioEvent,
    What,
    When,
)
from ..core.working_time import WorkingTime
from .member import ScenarioMember
from .processes import Processes

RESUMABLE: Final = 3  # exit code: in doubt, run the same command again
LIVES_MAX: Final = 50  # of one process
NODES: Final = ("proxy", "relay", "database")  # they end only when they are stopped
CALM_S: Final = 0.3  # nothing has come for this long, and the proxy has nothing left
DEADLINE_S: Final = 240.0  # of a whole run, by working time
ASK: Final = RetryPolicy(timeout_s=0.5, retries_max=0)

Phase = Literal["begin", "events", "quiet", "over"]


class Due(Struct, frozen=True):
    """Something that happens later, at its time."""

    at_s: float
    what: What
    target: str


class Director:
    """One run of a scenario; `turn` is called again and again until it says that all is over."""

    def __init__(
        self,
        scenario: Scenario,
        processes: Processes,
        recorder: Recorder,
        *,
        clock: Callable[[], float],
        tell: Callable[[str], None],
    ) -> None:
        """Prepare; nothing runs yet.

        Args:
            recorder: writes the journal of the lab.
            clock: seconds, monotonic.
            tell: called with what happens, in words.
        """
        self.phase: Phase = "begin"
        self.not_happened: list[ScenarioEvent] = []
        self.unfinished: dict[str, str] = {}  # by client: why not
        self._scenario = scenario
        self._processes = processes
        self._recorder = recorder
        self._clock = clock
        self._tell = tell
        self._chance = random.Random(scenario.seed)
        self._begin_s = clock()
        self._zero_s: float | None = None  # when all were subscribed
        self._waiting = list(scenario.events)
        self._random: list[tuple[float, RandomEvents]] = []
        self._due: list[Due] = []
        self._no_restart: set[str] = set()
        self._ended: set[str] = set()  # clients that are not started again
        self._working = WorkingTime(self._begin_s)
        self._moved_s = 0.0  # by working time, as the deadline
        self._picture: object = None
        self._gave_up = False

    # The run.

    def turn(self) -> bool:
        """Do what is due; say whether all is over."""
        now_s = self._clock()
        for member in self._processes.members.values():
            member.look()
        self._notice_movement(now_s)
        if self.phase == "begin":
            self._begin(now_s)
            return False
        self._start_clients(now_s)
        self._raise_the_dead(now_s)
        for due in sorted((d for d in self._due if d.at_s <= now_s), key=lambda d: d.at_s):
            self._due.remove(due)
            self.do(ScenarioEvent(when=AT_ONCE, what=due.what, targets=(due.target,)))
        if self.phase == "events":
            self._events(now_s)
        elif self.phase == "quiet" and self._drained():
            self._end()
        return self.phase == "over"

    def _notice_movement(self, now_s: float) -> None:
        members = self._processes.members.values()
        each = [(m.lives, m.runs, m.has_begun, m.count) for m in members]
        picture = (self.phase, len(self._waiting), each)
        waited_s = {(m.name, m.lives): m.waited_s for m in members if m.runs}
        work_s = self._working.advance(now_s, waited_s)
        if picture != self._picture:
            self._picture, self._moved_s = picture, work_s

    def _stuck(self) -> bool:
        """Return whether the processes made no progress in a long time to work."""
        work_s = self._working.seconds
        return work_s > DEADLINE_S or work_s - self._moved_s > self._scenario.patience_s

    def _begin(self, now_s: float) -> None:
        """Start the proxy, and all others when it is ready."""
        proxy = self._processes.proxy
        if proxy.lives == 0:
            self._start(PROXY)
        elif self._processes.look_for_doors():
            if any(event.to == "start" and event.what == "rollback" for event in self._waiting):
                self._processes.back_up("start")
            for name in self._scenario.proxies[1:]:
                self._start(name)
            for name in self._scenario.relays:
                self._start(name)
            self.phase = "events"
        elif not proxy.runs or self._stuck():
            self._gave_up = True
            self._tell(f"the proxy did not become ready, see {proxy.log}")
            self.phase = "over"

    def _start_clients(self, now_s: float) -> None:
        """Start each client when its time has come."""
        if self._zero_s is None and self._all_subscribed():
            self._zero_s = now_s
            self._random = [(now_s + r.every_s, r) for r in self._scenario.random]
        for client in self._processes.clients.values():
            member = self._processes.members[client.name]
            if member.lives == 0 and self._has_come(client.start, now_s):
                self._start(client.name)

    def _all_subscribed(self) -> bool:
        """Whether those who subscribe at once have done it."""
        for client in self._processes.clients.values():
            if client.start != AT_ONCE or client.role != "subscriber":
                continue
            firsts = 0
            for step in client.steps:
                if not isinstance(step, SubscriberStep) or step.action != "subscribe":
                    break
                firsts += 1
            if self._processes.members[client.name].done.subscribed < firsts:
                return False
        return True

    def _has_come(self, when: When, now_s: float) -> bool:
        match when:
            case AllSubscribed():
                return self._zero_s is not None
            case After():
                return self._processes.members[when.process].count >= when.count
            case At():
                if when == AT_ONCE:
                    return True
                return self._zero_s is not None and now_s >= self._zero_s + when.at_s

    def _raise_the_dead(self, now_s: float) -> None:
        """Restart what died, as a user would, until it has done its work."""
        self._processes.look_for_doors()
        for member in self._processes.members.values():
            name, code = member.name, member.exit_code
            coming = any(due.what == "restart" and due.target == name for due in self._due)
            if code is None or name in self._ended or name in self._no_restart or coming:
                continue
            is_node = member.role in NODES
            if code >= 0 and not (is_node and code == 0) and code != RESUMABLE:
                self._ended.add(name)
                self._tell(f"{name} has ended: exit code {code}")
            elif member.lives < LIVES_MAX:
                if code == RESUMABLE:
                    self._tell(f"{name} gave up for now: exit code {code}, in doubt")
                self._due.append(Due(now_s + DOWN_S, "restart", name))
            else:
                self._ended.add(name)

    # Events.

    def _events(self, now_s: float) -> None:
        for event in [e for e in self._waiting if self._has_come(e.when, now_s)]:
            self._waiting.remove(event)
            self.do(event)
        for index, (at_s, one) in enumerate(self._random):
            if at_s <= now_s and self._zero_s is not None:
                self._random[index] = (at_s + one.every_s, one)
                if now_s < self._zero_s + one.until_s:
                    self._by_chance(one)
        coming = [e for e in self._waiting if not self._never_comes(e.when)]
        late = any(link.holds for m in self._processes.members.values() for link in m.links)
        busy = coming or late or self._due or not self._work_is_done()
        if self._no_proxy_is_left or not busy:
            self._be_quiet()
        elif self._stuck():
            self._tell(f"nothing has moved for {self._scenario.patience_s:g} s")
            self._be_quiet()

    @property
    def _no_proxy_is_left(self) -> bool:
        return self._ended.issuperset(self._scenario.proxies)

    def _never_comes(self, when: When) -> bool:
        return isinstance(when, After) and when.process in self._ended

    def _work_is_done(self) -> bool:
        """Whether every process that ends without a signal has ended."""
        return all(c.gets_all or c.name in self._ended for c in self._processes.clients.values())

    def _by_chance(self, one: RandomEvents) -> None:
        """Do one of several things to a running process, for a random time."""
        what = self._chance.choice(one.kinds)
        target = self._chance.choice(one.targets)
        lasts_s = self._chance.uniform(0.1, 0.8)
        if what in OF_LINKS:
            able = [
                m.name
                for m in self._processes.members.values()
                if (m.push_link if what == "cut_push" else m.links)
            ]
            if target not in able:
                target = self._chance.choice(able)
        if self._processes.members[target].runs and all(due.target != target for due in self._due):
            lasts = lasts_s if what in END_OF else None
            self.do(ScenarioEvent(when=AT_ONCE, what=what, targets=(target,), lasts_s=lasts))

    def do(self, event: ScenarioEvent) -> None:
        """Do it now, record it, and note what undoes it."""
        for target in event.targets:
            member = self._processes.members[target]
            if event.what in ("kill", "stop", "continue") and not member.runs:
                continue  # it has ended without a signal
            if event.what == "restart" and target in self._ended:
                continue
            detail = self._done_to(member, event)
            self._recorder.line(journal.Event, what=event.what, target=target, detail=detail)
            self._tell(f"{IN_WORDS[event.what].format(target)}{detail and f' ({detail})'}")
            now_s = self._clock()
            if event.lasts_s is not None:
                self._due.append(Due(now_s + event.lasts_s, END_OF[event.what], target))
            if event.what in ("kill", "rollback"):
                if event.restart_s is None:
                    self._no_restart.add(target)
                else:
                    self._due.append(Due(now_s + event.restart_s, "restart", target))

    def _done_to(self, member: ScenarioMember, event: ScenarioEvent) -> str:
        """Do it to one process; return a detail for the journal."""
        match event.what:
            case "kill":
                member.kill()
            case "stop":
                member.pause()
            case "continue":
                member.signal(signal.SIGCONT)
            case "restart":
                member.end()
                self._no_restart.discard(member.name)
                self._due = [d for d in self._due if (d.what, d.target) != ("restart", member.name)]
                self._processes.start(member.name)
                return f"life {member.lives}"
            case "backup":
                self._processes.back_up("backup")
            case "rollback":
                member.kill()
                self._processes.roll_back(event.to)
                return f"to the {event.to}"
            case "fill_disk" | "free_disk":
                disk = self._processes.disk
                assert disk is not None
                disk.fill() if event.what == "fill_disk" else disk.free()
            case _:
                return member.change_links(event)
        return ""

    def _start(self, name: str) -> None:
        self._processes.start(name)
        self._tell(f"started {name}")

    # The end.

    def _be_quiet(self) -> None:
        """End all faults, and start each process that has work left."""
        self.not_happened, self._waiting, self._due = self._waiting, [], []
        self._no_restart.clear()
        for member in self._processes.members.values():
            member.signal(signal.SIGCONT)
            for link in member.links:
                link.heal()
        if self._processes.disk is not None:
            self._processes.disk.free()
        self._recorder.line(journal.Event, what="quiet")
        self._tell("no more faults; the rest is delivered")
        self.phase = "quiet"

    def _drained(self) -> bool:
        """Whether nothing is left to do; or nothing has moved for so long that nothing will."""
        if self._stuck() or self._no_proxy_is_left:
            self._gave_up = True
            return True
        alive = self._processes.look_for_doors() and not self._due
        calm = self._working.seconds - self._moved_s > CALM_S
        return alive and calm and self._work_is_done() and self._all_is_delivered()

    def _all_is_delivered(self) -> bool:
        """Ask the proxy whether each subscriber that gets all has acknowledged all."""
        gets_all = {c.id: c for c in self._processes.clients.values() if c.gets_all}
        waiting = {name for name, c in gets_all.items() if c.name not in self._ended}
        if not waiting:
            return True
        if not all(self._processes.members[gets_all[name].name].has_begun for name in waiting):
            return False
        asking = StatusClient(self._processes.endpoint, ASK)
        try:
            report = asking.ask()
        except InDoubtError:
            return False
        finally:
            asking.close()
        lagging = {
            one.subscriber
            for topic in report.topics
            for one in topic.subscriptions
            if one.cursor < topic.end
        } | {
            client.id
            for topic in report.topics
            for group in topic.groups or ()
            if group.cursor < topic.end
            for client in gets_all.values()
            if client.is_in(topic.topic, group.group)
        }
        return not (lagging & waiting)

    def _end(self) -> None:
        """Stop the subscribers that get all, and record how each process ended."""
        for client in self._processes.clients.values():
            member = self._processes.members[client.name]
            if client.gets_all and not self._gave_up and member.runs:
                member.end()
                member.is_over = True
        for client in self._processes.clients.values():
            self._finish(self._processes.members[client.name])
        for client in self._processes.clients.values():  # those that never ended
            self._processes.members[client.name].kill()  # nothing is put while the auditor reads
        self.phase = "over"

    def _finish(self, member: ScenarioMember) -> None:
        client = self._processes.clients[member.name]
        wanted = self._scenario.expect.exit_codes.get(client.name, 0)
        code = member.exit_code
        if member.is_over and code == RESUMABLE:
            code = 0  # its plan has no other end
        detail = f"exit code {code}" if code is not None else "it never ended"
        if code != wanted:
            self.unfinished[client.name] = f"{detail}, expected was exit code {wanted}"
        # Journals name puts by client id, not by which of several processes put them.
        puts = client.role == "publisher" and client.id == client.name
        planned = self._scenario.messages_planned(client) if puts else None
        self._recorder.line(
            journal.Finished,
            target=client.name,
            done=code == 0,
            expected=wanted == 0,
            drained=client.gets_all and wanted == 0,
            messages=planned,
            detail=detail,
        )
