"""The routes of the console: values of the core as JSON, errors as sentences."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from functools import partial
from importlib.resources import files
from typing import Annotated, Any, Final, get_args

import msgspec
from msgspec import Meta, Struct
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from reliable_pubsub.common.core.dead_letter import dead_topic
from reliable_pubsub.common.core.errors import (
    DeniedError,
    InDoubtError,
    NotPossibleError,
    PubSubError,
    UsageError,
)
from reliable_pubsub.common.core.limits import TOPIC_BYTES_MAX
from reliable_pubsub.common.core.schemas import json_decoder

from .access import ConsoleClients
from .core.actions import AskedAction, action_in_words, as_seen
from .core.board import Board, Order
from .core.content import parse_bytes, row_of, view_of
from .core.history import ALL
from .core.keys import quota_rows
from .core.story import story_of
from .watch import Watch, WatchedBoard, as_the_page_says

FIRST_LOOK_S: Final = 1.5  # that a page waits for the first look
ORDERS: Final[tuple[Order, ...]] = get_args(Order)
KINDS: Final = {
    ".html": "text/html",
    ".css": "text/css",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
}

Page = Callable[[Request], Awaitable[Response]]


class _Act(Struct, frozen=True, forbid_unknown_fields=True):
    """The body of an action."""

    asked: AskedAction
    look: bool  # only say what it would do


class _Again(Struct, frozen=True, forbid_unknown_fields=True):
    """The body of "put again"."""

    topic: Annotated[str, Meta(max_length=TOPIC_BYTES_MAX)]
    offset: int
    log: Annotated[str, Meta(max_length=200)]


class Console:
    """The routes; `app` is what a server runs."""

    def __init__(self, watch: Watch, access: ConsoleClients, endpoint: str) -> None:
        """Create them.

        Args:
            endpoint: of the proxy, to be shown.
        """
        self._watch = watch
        self._access = access
        self._endpoint = str(endpoint)  # without its keys
        of_page = files(__package__).joinpath("page")
        self._files = {one.name: one.read_bytes() for one in of_page.iterdir() if one.is_file()}
        get = partial(Route, methods=["GET"])
        self.app = Starlette(
            routes=[
                get("/", self._file),
                get("/api/head", _told(self._head)),
                get("/api/topics", _told(self._topics)),
                get("/api/topic", _told(self._topic)),
                get("/api/history", _told(self._history)),
                get("/api/slow", _told(self._slow)),
                get("/api/nodes", _told(self._nodes)),
                get("/api/clients", _told(self._clients)),
                get("/api/messages", _told(self._messages)),
                get("/api/message", _told(self._message)),
                get("/api/letters", _told(self._letters)),
                Route("/api/act", _told(self._act, _Act), methods=["POST"]),
                Route("/api/again", _told(self._again, _Again), methods=["POST"]),
                get("/{name}", self._file),
            ]
        )

    async def _file(self, request: Request) -> Response:
        name = request.path_params.get("name", "index.html")
        kind = KINDS.get(name[name.rfind(".") :])
        if name not in self._files or kind is None:
            return Response("There is no such page.\n", 404, media_type="text/plain")
        return Response(self._files[name], media_type=kind)

    # Looks.

    def _head(self, request: Request) -> object:
        seen = self._watch.seen(wait_s=FIRST_LOOK_S)
        return {
            "number": seen.number,
            "endpoint": self._endpoint,
            "age_s": time.monotonic() - seen.at_s if seen.board else None,
            "error": seen.error,
            "head": seen.board.head() if seen.board else None,
        }

    def _topics(self, request: Request) -> object:
        asked = request.query_params
        order: Any = asked.get("order", "name")
        return self._board().topics(
            asked.get("search", ""),
            order if order in ORDERS else "name",
            first=_number(asked.get("first", "0")),
            opened=frozenset(asked.getlist("open")),
        )

    def _topic(self, request: Request) -> object:
        name = request.query_params.get("topic", "")
        board = self._board()
        found = board.topic(name)
        if found is None:
            raise NotPossibleError(
                f"the proxy shows no topic {name!r}: nothing was put on it, or the key lacks the "
                "right `status` for it"
            )
        dead = dead_topic(name)
        return {"topic": found, "dead": dead if dead and board.status_of(dead) else None}

    def _history(self, request: Request) -> object:
        return self._watch.history(request.query_params.get("topic", ALL))

    def _slow(self, request: Request) -> object:
        return self._board().slow

    def _nodes(self, request: Request) -> object:
        return self._board().nodes()

    def _clients(self, request: Request) -> object:
        rows, following = self._access.clients(request.query_params.get("after", ""))
        return {"rows": rows, "next": following, "keys": quota_rows(self._board().status)}

    # Messages.

    def _messages(self, request: Request) -> object:
        asked = request.query_params
        key = asked.get("key", "")
        listed = self._access.messages(
            asked.get("topic", ""), asked.get("at", "newest 50"), parse_bytes(key) if key else None
        )
        return {
            "rows": [row_of(one) for one in listed.messages],
            "first": listed.first,
            "next": listed.next,
            "is_end": listed.is_end,
        }

    def _message(self, request: Request) -> object:
        asked = request.query_params
        topic, offset = asked.get("topic", ""), _number(asked.get("offset", ""))
        message, batch = self._access.message(topic, offset)
        status = self._board().status_of(topic)
        dead = self._board().status_of(dead_topic(topic) or "")
        letters = self._access.letter_of(message, dead.log) if dead else ()
        return {"message": view_of(message), "story": story_of(message, batch, status, letters)}

    def _letters(self, request: Request) -> object:
        asked = request.query_params
        board = self._board()
        topic = asked.get("topic", "")
        if not topic:
            return {"topics": board.dead_letter_topics()}
        status = board.status_of(topic)
        if status is None:
            raise NotPossibleError(f"the proxy shows no topic {topic!r}")
        listed, rows = self._access.letters(topic, asked.get("at", "earliest"), status.log)
        return {
            "log": status.log,
            "rows": rows,
            "next": listed.next,
            "is_end": listed.is_end,
            "end": status.end,
        }

    # Changes.

    def _act(self, _request: Request, body: _Act) -> object:
        outcome = self._access.act(body.asked, look=body.look)
        return {
            "words": action_in_words(body.asked, outcome),
            "asked": as_seen(body.asked, outcome),
            "already": outcome.already,
            "number": outcome.number,
        }

    def _again(self, _request: Request, body: _Again) -> object:
        return {"now": self._access.put_again(body.topic, body.offset, body.log)}

    def _board(self) -> Board:
        seen: WatchedBoard = self._watch.seen(wait_s=FIRST_LOOK_S)
        if seen.board is None:
            raise InDoubtError(seen.error or "the proxy has not answered yet")
        return seen.board


def _told(answer: Callable[..., object], body: type[Any] | None = None) -> Page:
    """A route that answers with JSON; a PubSubError is a sentence, with its status."""

    async def tell(request: Request) -> Response:
        try:
            more = (json_decoder(body).decode(await request.body()),) if body else ()
            found = await run_in_threadpool(answer, request, *more)
        except msgspec.MsgspecError as error:
            return _json({"code": "USAGE", "text": f"the request is no such one: {error}"}, 400)
        except PubSubError as error:
            return _json({"code": error.code, "text": as_the_page_says(error)}, _status_of(error))
        return _json(found, 200)

    return tell


def _json(value: object, status: int) -> Response:
    return Response(msgspec.json.encode(value), status, media_type="application/json")


def _status_of(error: PubSubError) -> int:
    match error:
        case DeniedError():
            return 403
        case UsageError():
            return 400
        case InDoubtError():
            return 503
        case _:
            return 409


def _number(text: str) -> int:
    if not text.isdecimal() or len(text) > 19:
        raise UsageError(f"{text!r:.40} is no number from 0 on")
    return int(text)
