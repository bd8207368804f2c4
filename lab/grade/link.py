"""A link whose faults are aimed at one request or answer, found by its text or by its frames."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final, Literal

from ..rig.link import Address, TcpLink, TcpLinks, Way

LinkAct = Literal["nothing", "lose the answer", "hold the request", "tell"]
ZMTP_SIGNATURE: Final = b"\xff"  # the first byte of a connection of ZeroMQ


class Encoding:
    """Whether the texts of messages are seen in what clients send; None: not known yet."""

    is_plain: bool | None = None


class AimedLink(TcpLink):
    """The link of one client. It knows nothing of the protocol of client and broker.

    The request or answer is the piece that contains a text of the message. Where no text is ever
    seen (a client compresses, encrypts, or has another encoding), it is the next piece, without
    the greetings and heartbeats of ZeroMQ.
    """

    def __init__(
        self, target: Callable[[], Address | None], links: TcpLinks, encoding: Encoding
    ) -> None:
        """Listen; `target` is where the broker is."""
        super().__init__(target, links.call)
        self._encoding = encoding  # shared by all links of a service
        self.has_fired = False
        self._act: LinkAct = "nothing"
        self._texts: tuple[bytes, ...] = ()
        self._in_answer = False
        self._has_asked = False  # the request has passed
        self._fires: Callable[[], object] = lambda: None
        self._frames: dict[Way, int] = {"requests": 0, "answers": 0}
        self._is_zmtp: bool | None = None
        self._released = asyncio.Event()
        links.add(self)

    def aim(
        self,
        act: LinkAct,
        texts: Sequence[str],
        fires: Callable[[], object] = lambda: None,
        *,
        in_answer: bool = False,
    ) -> None:
        """Wait for the next request, or for its answer.

        Args:
            texts: the piece contains one of them.
            in_answer: the texts are in the answer, as those of a get are.
            fires: called in the thread of the links, once.
        """

        self.has_fired = False

        def change() -> None:
            self._act, self._fires = act, fires
            self._texts = tuple(text.encode() for text in texts)
            self._in_answer = in_answer
            self._has_asked = in_answer and self._looks_for_text and act == "lose the answer"
            self._frames = {way: self._frames_of(way) for way in self._frames}

        self._call(change)

    def end(self) -> None:
        """Aim at nothing more; what is held stays held."""

        def change() -> None:
            if self._texts and not self._in_answer and self._encoding.is_plain is None:
                self._encoding.is_plain = False  # a put was answered, and its text was not seen
            self._act = "nothing"

        self._call(change)

    def release(self) -> None:
        """Let pass what is held."""

        def change() -> None:
            self._released.set()
            self._released = asyncio.Event()

        self._call(change)

    @property
    def _looks_for_text(self) -> bool:
        return bool(self._texts) and self._encoding.is_plain is not False

    def _frames_of(self, way: Way) -> int:
        return sum(one.frames for one in self._counters[way])

    def _is_message(self, way: Way, data: bytes) -> bool:
        """Return whether a piece is more than a greeting or heartbeat."""
        return not self._is_zmtp or self._frames_of(way) > self._frames[way]

    def _is_aimed_at(self, way: Way, data: bytes) -> bool:
        has_text = any(text in data for text in self._texts)
        if way == "requests" and has_text:
            self._encoding.is_plain = True
        if self._looks_for_text and (way == "answers") == self._in_answer:
            return has_text
        return bool(data) and self._is_message(way, data)

    async def admit(self, way: Way, data: bytes) -> None:
        if way != "requests" or not data:
            return
        if self._is_zmtp is None:
            self._is_zmtp = data.startswith(ZMTP_SIGNATURE)
        if self._has_asked or not self._is_aimed_at(way, data):
            return
        self._has_asked = True
        if self._act == "hold the request":
            self._fire()
            await self._released.wait()
        elif self._act == "tell":
            self._call(self._fire)  # after it is written

    def loses(self, way: Way, data: bytes) -> bool:
        if way != "answers" or self._act != "lose the answer" or not self._has_asked:
            return super().loses(way, data)
        if not self._is_aimed_at(way, data):
            return False
        self._fire()
        self._call(self._drop)
        return True

    def _fire(self) -> None:
        self._act, self.has_fired = "nothing", True
        self._fires()
