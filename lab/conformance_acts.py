"""What is done to a client, act by act."""

from __future__ import annotations

import secrets
import shutil
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from reliable_pubsub.common.asking import Asker
from reliable_pubsub.common.core.answers import Fenced, MessageBatches, PutAck
from reliable_pubsub.common.core.errors import PubSubError
from reliable_pubsub.common.core.message_base import Reply
from reliable_pubsub.common.core.requests import Hello
from reliable_pubsub.publisher.client import Publisher

from .conformance_stage import PATIENT, ConformanceStage, tokens
from .core.conformance import REPLACES_THE_STORE, Act, Role, What, payloads
from .rig.link import beginning_of

MOMENT_S: Final = 0.03  # what happens at a random moment happens within it
ON_ITS_WAY_S: Final = 0.15  # by then a request that has left is answered, and its effect written
ASKS_AGAIN_S_MAX: Final = 20.0  # for this long at most answers vanish
CUT_S: Final = 0.3
WRITE_AGAIN_S: Final = 0.2
AFTER_BYTES_MAX: Final = 400
# The answers whose loss matters: to a PUT, and to a GET that finds something.
TELLING: Final[dict[Role, type[Reply]]] = {"publisher": PutAck, "subscriber": MessageBatches}
NEW_STORE: Final = "new-store "  # what the messages of another log begin with


class Actor:
    """Does the acts of one case."""

    def __init__(self, stage: ConformanceStage, feed: Callable[[], None]) -> None:
        """Nothing is done yet.

        Args:
            feed: puts the next few messages for a subscriber.
        """
        self.happened = 0
        self.replaced = False  # the store is another one
        self.took_over_at = 0  # the epoch under which another process said HELLO
        self.set_back_at: int | None = None  # where the log ended when the state was set back
        self.kept_lines = 0  # of the output, before the store was replaced
        self._stage = stage
        self._feed = feed
        self._writer: Publisher | None = None  # into the new store
        self._written, self._written_s = 0, 0.0
        self._asks_again_s = 0.0  # how long it waits for an answer, as observed
        self._acts: Mapping[What, Callable[[Act], None]] = {
            "lose_answers": lambda act: self._lose("answers"),
            "lose_requests": lambda act: self._lose("requests"),
            "late_copy": lambda act: self._late_copy(),
            "kill_client": self._kill_client,
            "kill_unanswered": self._kill_unanswered,
            "kill_proxy": self._kill_proxy,
            "cut": self._cut,
            "copy_state": lambda act: self._copy_state(),
            "set_state_back": lambda act: self._set_state_back(),
            "copy_store": lambda act: stage.copy_data(self._store_copy),
            "set_store_back": lambda act: self._replace_store(act.what),
            "empty_store": lambda act: self._replace_store(act.what),
            "take_over": lambda act: self._take_over(),
        }

    def do(self, act: Act) -> None:
        """Do it.

        Raises:
            PubSubError, NotReadyError: the proxy does not do what the act needs.
        """
        self.happened += 1
        if act.what not in ("kill_client", "kill_unanswered", "kill_proxy"):
            self._stage.note(
                act.what, "proxy" if act.what in REPLACES_THE_STORE else self._stage.client
            )
        self._acts[act.what](act)

    # Silence.

    def _lose(self, way: str) -> None:
        """Lose what is sent one way, until the client asks again; note how long that takes."""
        stage, link = self._stage, self._stage.link
        if way == "answers":
            link.lose_answers(0, TELLING[stage.role])
        else:
            link.half_open("requests")
        self._feed()
        if stage.wait(lambda: link.is_losing, "answer", at_most_s=ASKS_AGAIN_S_MAX):
            asked_s = time.monotonic()
            stage.watch(ON_ITS_WAY_S)
            reads = link.up_reads
            if stage.wait(lambda: link.up_reads > reads, "request", at_most_s=ASKS_AGAIN_S_MAX):
                self._asks_again_s = time.monotonic() - asked_s
        stage.calm()

    def _late_copy(self) -> None:
        """Requests over connections that are open now arrive when they were given up."""
        stage, link = self._stage, self._stage.link
        late_s = min(1.5 * self._asks_again_s + 0.3, ASKS_AGAIN_S_MAX)
        link.delay(late_s)
        self._feed()
        stage.watch(late_s + ON_ITS_WAY_S)
        stage.wait(lambda: not link.holds, "late copy", at_most_s=ASKS_AGAIN_S_MAX)
        stage.calm()

    def _cut(self, act: Act) -> None:
        stage = self._stage
        stage.link.cut(after_bytes=1 + int(act.chance * AFTER_BYTES_MAX))
        self._feed()
        stage.watch(CUT_S)
        stage.link.drop()
        stage.calm()

    # Deaths.

    def _kill_client(self, act: Act) -> None:
        self._feed()
        self._stage.watch(act.chance * MOMENT_S)
        self._again()

    def _kill_unanswered(self, act: Act) -> None:
        """Kill it after a request had its effect, before the answer arrives."""
        stage, link = self._stage, self._stage.link
        awaited = [beginning_of(TELLING[stage.role])]
        if stage.role == "subscriber":
            awaited.append(beginning_of())  # to what it does with the messages
        link.half_open("answers", awaited=awaited)
        self._feed()
        stage.wait(
            lambda: link.lost is not None and len(link.awaited) < len(awaited),
            "answer",
            at_most_s=ASKS_AGAIN_S_MAX,
        )
        stage.watch(ON_ITS_WAY_S)
        self._again()

    def _again(self) -> None:
        """Kill it, heal the link, start it again by the same command."""
        if not self._stage.is_over:
            self._stage.kill_client()
            self._stage.link.drop()
            self._stage.calm()
            self._stage.start_client()

    def _kill_proxy(self, act: Act) -> None:
        stage = self._stage
        self._feed()
        stage.watch(act.chance * MOMENT_S)
        stage.note("kill", "proxy")
        stage.service.proxy.kill()
        stage.watch(CUT_S)
        stage.start_proxy()
        stage.note("restart", "proxy")

    def _take_over(self) -> None:
        """Say HELLO as another process of this id does."""
        stage = self._stage
        stage.look()
        epoch = max(stage.seen.epochs, default=0)
        asker = Asker(self._stage.client, stage.endpoint, retry=PATIENT)
        try:
            reply: object = None
            while reply is None or isinstance(reply, Fenced):
                epoch += 1
                nonce = secrets.token_bytes(16)
                reply, _ = asker.ask(Hello(**asker.head(epoch), role=stage.role, nonce=nonce))
        finally:
            asker.close()
        self.took_over_at = epoch
        self._feed()

    # Files that are set back.

    def _copy_state(self) -> None:
        """Back up the state while the client does not run."""
        stage = self._stage
        stage.kill_client()
        shutil.copytree(stage.state_dir, stage.directory / "state.copy")
        stage.start_client()

    def _set_state_back(self) -> None:
        stage = self._stage
        stage.watch(ON_ITS_WAY_S)  # what it acknowledged is written
        stage.checks_acknowledged = False  # its output may rightly be cut back to that state
        if stage.is_over:
            return
        stage.kill_client()
        stage.watch(ON_ITS_WAY_S)  # what it had sent is stored
        self.set_back_at = stage.seen.stored
        shutil.rmtree(stage.state_dir)
        shutil.copytree(stage.directory / "state.copy", stage.state_dir)
        stage.start_client()

    @property
    def _store_copy(self) -> Path:
        return self._stage.private / "data.copy"

    def _replace_store(self, what: What) -> None:
        """Read the log to its end, then put another store in its place; it grows past the first.

        The client is cut off meanwhile, so that it meets nothing but the new store.
        """
        stage = self._stage
        stage.link.cut()
        stage.watch(ON_ITS_WAY_S)
        stage.audit()
        self.kept_lines = stage.lines
        stage.checks_acknowledged = False
        stage.service.proxy.kill()
        shutil.rmtree(stage.service.data_dir)
        if what == "set_store_back":
            shutil.copytree(self._store_copy, stage.service.data_dir)
        stage.start_proxy(journal_file=stage.private / "proxy-of-the-new-store.jsonl")
        self.replaced = True
        if stage.role == "subscriber":
            self._writer = stage.publisher("feeder-2")
            self._writer.put_many(
                self._stage.topic, payloads(tokens(len(stage.messages)), prefix=NEW_STORE)
            )
        stage.watch(0.0)
        stage.resumable = False
        stage.calm()

    def continue_writing(self) -> None:
        """Put more into the new store now and then, for one that has subscribed at its end."""
        now_s = time.monotonic()
        if self._writer is not None and now_s - self._written_s > WRITE_AGAIN_S:
            self._written_s, self._written = now_s, self._written + 1
            self._writer.put(self._stage.topic, f"{NEW_STORE}more {self._written}".encode())

    def close(self) -> None:
        if self._writer is not None:
            with suppress(PubSubError):
                self._writer.close()
