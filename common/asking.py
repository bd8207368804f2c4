"""Blocking requests of a client: `Asker` if they need no session, else `BlockingSession`."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import TypeVar

from .core.answers import AnyReply
from .core.conversation import Conversation
from .core.message_base import Request, Role
from .core.requester import Requester
from .core.retry import RetryPolicy, Silence, unheard
from .core.session import ClientSession
from .transport import Shell
from .world import REAL, World

T = TypeVar("T")


class Asker(Requester):
    """A requester with its socket. One thread at a time."""

    def __init__(
        self,
        client: str,
        endpoint: str,
        *,
        retry: RetryPolicy,
        on_silence: Silence = unheard,
        role: Role | None = None,
        world: World = REAL,
    ) -> None:
        """Create an asker; its socket connects in the background."""
        self.clock = world.clock
        self.transport = world.transport(endpoint)
        self.shell = Shell(self.transport, self.clock)
        super().__init__(
            client,
            endpoint,
            retry=retry,
            chance=world.chance,
            now_s=self.clock.now_s,
            on_silence=on_silence,
            role=role,
        )

    def ask(self, request: Request, body: bytes | None = None) -> tuple[AnyReply, bytes]:
        """Send a request until it is answered; see `Requester.asking`."""
        return self.shell.run(self.asking(request, body))

    def close(self) -> None:
        close = getattr(self.transport, "close", None)  # a test's transport may have none
        if close is not None:
            close()


class BlockingSession(ClientSession):
    """A session whose requests block, with an epoch that ends with its process."""

    def __init__(self, asker: Asker, role: Role) -> None:
        super().__init__(asker, role, nonce=secrets.token_bytes(16))
        self.asker = asker

    def ask(self, request: Request, body: bytes | None = None) -> AnyReply:
        """Send a request until it is answered; for answers without a body."""
        return self.asker.ask(request, body)[0]

    def ask_as_known(self, ask: Callable[[], AnyReply]) -> AnyReply:
        """Send a request in a session; see `ClientSession.asking_as_known`."""
        return self.asker.shell.run(self.asking_as_known(_blocking, ask))

    def ask_as_joined(self, ask: Callable[[], AnyReply]) -> AnyReply:
        """Send a request in any session of this id; see `ClientSession.asking_as_joined`."""
        return self.asker.shell.run(self.asking_as_joined(_blocking, ask))


def _blocking(call: Callable[[], T]) -> Conversation[T]:
    """A call that blocks, as a conversation without effects."""
    return call()
    yield  # what makes it a conversation
