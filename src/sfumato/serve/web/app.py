"""The web application: all routes, and the guard that every request passes."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sfumato.core.errors import SfumatoError
from sfumato.serve.service import CALLER
from sfumato.serve.web import api, basket, dashboards, frame, pages, wizard
from sfumato.serve.web.exchange import check_origin, describe_error, find_status

if TYPE_CHECKING:
    from sfumato.serve.service import Service

_ROOMS = (frame, pages, dashboards, basket, wizard, api)
_LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
_PROGRAMS = ("/api/", "/mcp", "/healthz", "/readyz", "/metrics", "/openapi.json")
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self' data:; connect-src 'self'; form-action 'self'; frame-src 'self'; "
    "frame-ancestors 'none'; base-uri 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    # With no-referrer a browser would call the origin of our own forms "null".
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Cache-Control": "no-store",
}
_OVER_TLS = {"Strict-Transport-Security": "max-age=31536000"}

_log = logging.getLogger("sfumato.serve.web")


def make_app(service: Service, projects: Mapping[str, Service] | None = None) -> Starlette:
    """Returns the application of `service`: pages, API and the agents' endpoint; `projects` are under /p/.

    It answers to the names in its settings and to those of this machine. Only if it listens elsewhere and
    has no names it answers to all: on loopback no page can reach it under a name of its own.
    """
    settings = service.settings
    named = tuple(name.lower() for name in settings.names)
    hosts = (*named, *_LOOPBACK, settings.host) if named or settings.is_loopback else ()
    app = Starlette(
        routes=[route for room in _ROOMS for route in room.ROUTES],
        middleware=[
            Middleware(
                _Signpost, base=settings.base, apps={k: make_app(v) for k, v in (projects or {}).items()}
            ),
            Middleware(_Guard, hosts=hosts, names=named, base=settings.base),
        ],
        exception_handlers={HTTPException: _answer_failure, SfumatoError: _answer_failure},
    )
    app.router.redirect_slashes = False
    app.state.service = service
    return app


class _Signpost:
    """Takes the base off a path, as a proxy may have done, and leads to the project in it."""

    def __init__(self, app: ASGIApp, *, base: str, apps: Mapping[str, ASGIApp]) -> None:
        self._app = app
        self._base = base
        self._apps = apps

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        app, path = self._app, str(scope.get("path", ""))
        if path == self._base or path.startswith(f"{self._base}/"):
            path = path.removeprefix(self._base)
        named = path.split("/", 3)
        if named[:2] == ["", "p"] and len(named) > 2 and named[2] in self._apps:
            app, path = self._apps[named[2]], "/".join(["", *named[3:]])
        await app({**scope, "path": path or "/"}, receive, send)


class _Guard:
    """Refuses calls under other names and from other sites, adds the headers, and hides what failed."""

    def __init__(self, app: ASGIApp, *, hosts: tuple[str, ...], names: tuple[str, ...], base: str) -> None:
        self._app = app
        self._names = names
        self._hosts = hosts
        self._base = base

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "websocket":
                await send({"type": "websocket.close", "code": 1008})
            else:
                await self._app(scope, receive, send)
            return
        begun = False
        program = scope["path"].startswith(_PROGRAMS)
        CALLER.set({"door": "http" if program else "web", "address": (scope.get("client") or ("",))[0]})
        headers = _HEADERS | (_OVER_TLS if scope["scheme"] == "https" else {})

        async def send_guarded(message: Message) -> None:
            nonlocal begun
            if message["type"] == "http.response.start":
                begun = True
                sent = MutableHeaders(scope=message)
                for name, value in headers.items():
                    sent.setdefault(name, value)
                if self._base:
                    self._move(sent)
            await send(message)

        refusal = self._refuse(scope)
        if refusal is not None:
            reply = JSONResponse(describe_error(refusal), refusal.status_code)
            await reply(scope, receive, send_guarded)
            return
        try:
            await self._app(scope, receive, send_guarded)
        except Exception as error:
            status, _ = find_status(error)
            if status == 500:
                # The kind alone: what an unforeseen error says may hold anything.
                _log.error("%s %s failed: %s", scope["method"], scope["path"], type(error).__name__)
            if not begun:
                await JSONResponse(describe_error(error), status)(scope, receive, send_guarded)

    def _move(self, sent: MutableHeaders) -> None:
        """Lets redirects and cookies, which know paths of the application alone, begin with the base."""
        for name, before in (("location", "/"), ("refresh", "0; url=/")):
            told = sent.get(name, "")
            if told.startswith(before) and not told.startswith(f"{before}/"):
                sent[name] = f"{before[:-1]}{self._base}{told.removeprefix(before[:-1])}"
        cookies = sent.getlist("set-cookie")
        del sent["set-cookie"]
        for each in cookies:
            sent.append("set-cookie", re.sub("(?i)(; path=)/(?=;|$)", rf"\1{self._base}", each))

    def _refuse(self, scope: Scope) -> HTTPException | None:
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        name = host if host.endswith("]") else host.rpartition(":")[0] or host
        if self._hosts and name.lower() not in self._hosts:
            return HTTPException(421, "this server is not called so; use the address that it printed")
        if scope["method"] not in ("GET", "HEAD"):
            reason = check_origin(headers, names=self._names)
            if reason is not None:
                return HTTPException(403, reason)
        return None


async def _answer_failure(request: Request, error: Exception) -> Response:
    """Returns a failure as JSON to programs, as a page to people."""
    status, _ = find_status(error)
    headers = dict(getattr(error, "headers", None) or {})
    if status == 429:
        headers.setdefault("Retry-After", "1")
    if request.scope["path"].startswith(_PROGRAMS):
        return JSONResponse(describe_error(error), status, headers=headers)
    return await frame.show_failure(request, status, describe_error(error)["error"]["message"])
