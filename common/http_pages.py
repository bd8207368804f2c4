"""Serves the pages of `metrics_server.py` over HTTP, to a few peers at once."""

from __future__ import annotations

import socket
import socketserver
import sys
import threading
from collections import OrderedDict
from contextlib import suppress
from hmac import compare_digest
from http.server import BaseHTTPRequestHandler, HTTPServer, ThreadingHTTPServer
from ipaddress import IPv6Address, ip_address
from typing import Any, Final, Protocol

from .scrapes import Scrapes
from .threads import Shortage

CONNECTIONS_MAX: Final = 8  # at once; another one takes the place of the oldest
REQUEST_S_MAX: Final = 5.0  # that a peer may take for each line of its request
TEXT: Final = "text/plain; charset=utf-8"


class Served(Protocol):
    """What the pages show."""

    scrapes: Scrapes[Any]

    def metrics(self) -> bytes:
        """Return the text exposition format."""


def server_for(host: str, port: int, pages: Served, token: str = "") -> ThreadingHTTPServer:
    """Bind a server of these pages.

    Args:
        host: "*" is every interface.
        token: that /metrics asks for; "": none. The answers of the others name no topic.

    Raises:
        OSError: it cannot be bound.
    """
    kind = _Server
    try:
        if isinstance(ip_address(host), IPv6Address):
            kind = _ServerOf6
    except ValueError:
        pass  # a name, or every interface
    return kind(("" if host == "*" else host, port), pages, token)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 16

    def __init__(self, address: tuple[str, int], pages: Served, token: str) -> None:
        self.pages = pages
        self.authorization = f"Bearer {token}".encode() if token else b""
        self._open: OrderedDict[socket.socket, None] = OrderedDict()  # the oldest first
        self._changing = threading.Lock()  # of the line above
        self._shortage = Shortage("the metrics endpoint")
        super().__init__(address, _Handler)

    def server_bind(self) -> None:
        """Bind without asking for the name of this host, which may take seconds."""
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = "", self.server_address[1]

    def get_request(self) -> tuple[Any, Any]:
        """Accept a connection; without a descriptor for it, pause instead of trying all the time.

        Raises:
            OSError: there is none; `serve_forever` drops it.
        """
        with self._shortage.survived():
            return super().get_request()
        raise ConnectionAbortedError

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve in a thread; peers that are slow must not keep a supervisor out.

        A request is answered within milliseconds, so the oldest of many is the slowest.
        """
        with self._changing:
            self._open[request] = None
            oldest = (
                self._open.popitem(last=False)[0] if len(self._open) > CONNECTIONS_MAX else None
            )
        if oldest is not None:
            with suppress(OSError):  # it has left
                oldest.shutdown(socket.SHUT_RDWR)  # its thread finds this, and ends
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            with self._changing:
                self._open.pop(request, None)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log an error, unless it is a peer that has closed its connection."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)


class _ServerOf6(_Server):
    address_family = socket.AF_INET6


class _Handler(BaseHTTPRequestHandler):
    timeout = REQUEST_S_MAX
    server: HTTPServer

    def do_GET(self) -> None:
        """Serve a page."""
        assert isinstance(self.server, _Server)
        pages = self.server.pages
        match self.path.split("?")[0]:
            case "/metrics" if not self._is_authorized(self.server.authorization):
                self._answer(401, b"the token is missing or wrong\n", TEXT)
            case "/metrics":
                self._answer(200, pages.metrics(), "text/plain; version=0.0.4; charset=utf-8")
            case "/healthz":
                self._verdict(pages.scrapes.why_dead())
            case "/readyz":
                self._verdict(pages.scrapes.why_not_ready())
            case _:
                self._answer(404, b"there are /metrics, /healthz and /readyz\n", TEXT)

    do_HEAD = do_GET

    def _is_authorized(self, wanted: bytes) -> bool:
        given = self.headers.get("Authorization", "").encode("latin-1", errors="replace")
        return not wanted or compare_digest(given, wanted)

    def _verdict(self, why_not: str) -> None:
        self._answer(503 if why_not else 200, f"{why_not or 'ok'}\n".encode(), TEXT)

    def _answer(self, code: int, body: bytes, kind: str) -> None:
        self.send_response(code)
        if code == 401:
            self.send_header("WWW-Authenticate", "Bearer")
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def version_string(self) -> str:
        """The product; no versions for strangers."""
        return "reliable-pubsub"

    def log_message(self, format: str, *args: Any) -> None:
        """Requests are not logged."""
