"""Who may use the page: the browser that was given the token, by a name of this machine.

A page of another site cannot read or act through the browser of the operator: it has no cookie
(`SameSite=Strict`), another `Origin`, and a name of its own that points here (DNS rebinding) is
refused by `Host`.
"""

from __future__ import annotations

import hmac
import secrets
from ipaddress import ip_address
from typing import Final
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
        "img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
BODY_BYTES_MAX: Final = 65_536
NO_TOKEN: Final = (
    "This browser does not have the token of this console: open the link that it printed when it "
    "was started (`ready: ...`). Each start has another one.\n"
)


class RequestGuard:
    """An ASGI app around another one: refuses what does not come from the page itself."""

    def __init__(self, app: ASGIApp, *, token: str, host: str, port: int) -> None:
        """Guard an app.

        Args:
            token: of this start, random.
            host: on which it listens; it may be named besides addresses and `localhost`.
        """
        self._app = app
        self._token = token
        self._host = host.casefold()
        self._cookie = f"reliable-pubsub-{port}"  # cookies of one host are shared by its ports

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or refuse it."""
        if scope["type"] != "http":
            return  # there are no WebSockets here, and nothing to do at start and end
        refused = self._refused(Request(scope))
        await (refused or self._app)(scope, receive, _with_headers(send))

    def _refused(self, request: Request) -> Response | None:
        host = request.headers.get("host", "")
        if not self._is_ours(host):
            text = f"The name {host!r:.80} is not one of this console: use its address.\n"
            return PlainTextResponse(text, 421)
        given = request.query_params.get("token")
        if request.url.path == "/" and given is not None:
            return self._welcome(given)
        if not self._is_token(request.cookies.get(self._cookie, "")):
            return PlainTextResponse(NO_TOKEN, 401)
        if request.method not in ("GET", "HEAD"):
            return _not_of_the_page(request, host)
        return None

    def _is_ours(self, host: str) -> bool:
        """An address cannot be made to point elsewhere; a name can, so only known ones count."""
        try:
            name = (urlsplit(f"//{host}").hostname or "").casefold()
            if name in ("localhost", self._host):
                return bool(name)
            ip_address(name)
        except ValueError:
            return False
        return True

    def _welcome(self, given: str) -> Response:
        """Keep the token in a cookie, and take it out of the address."""
        if not self._is_token(given):
            return PlainTextResponse(NO_TOKEN, 401)
        response = RedirectResponse("/", 303)
        response.set_cookie(self._cookie, self._token, httponly=True, samesite="strict")
        return response

    def _is_token(self, given: str) -> bool:
        return hmac.compare_digest(given.encode(), self._token.encode())


def new_token() -> str:
    """A random token."""
    return secrets.token_urlsafe(24)


def _not_of_the_page(request: Request, host: str) -> Response | None:
    """Refuse a change that another page asks for."""
    origin = request.headers.get("origin", "")
    kind = request.headers.get("content-type", "").partition(";")[0]
    length = request.headers.get("content-length", "")
    if urlsplit(origin).netloc != host or kind != "application/json":
        return PlainTextResponse("Only the page of this console may ask for that.\n", 403)
    if not length.isdecimal() or int(length) > BODY_BYTES_MAX:
        return PlainTextResponse("That is too long.\n", 413)
    return None


def _with_headers(send: Send) -> Send:
    async def tell(message: Message) -> None:
        if message["type"] == "http.response.start":
            extra = [(name.lower().encode(), value.encode()) for name, value in HEADERS.items()]
            message = {**message, "headers": [*message.get("headers", ()), *extra]}
        await send(message)

    return tell
