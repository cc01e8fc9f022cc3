"""The frame of all pages, their files, and the way in and out."""

from __future__ import annotations

import hashlib
from functools import cache
from importlib.resources import files
from urllib.parse import urlencode

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route

from sfumato.report.pages.answers import draw_icon
from sfumato.report.pages.render import render_page
from sfumato.serve.web.exchange import (
    WORDS,
    Asker,
    field,
    find_asker,
    find_service,
    name_cookie,
    read_form,
    require_asker,
)

HOMES: dict[str, str] = {role: pages[0][0] for role, pages in WORDS["places"].items()}


@cache
def _asset(name: str) -> tuple[bytes, str]:
    """Returns a file of the pages, and a short digest of it."""
    if name == "style.css":
        content: bytes = render_page("serve/style.css", internal=False)
    elif name == "icon.png":
        content = draw_icon()
    else:
        content = files("sfumato.report.pages").joinpath("templates", "serve", name).read_bytes()
    return content, hashlib.sha256(content).hexdigest()[:12]


async def _send_asset(request: Request) -> Response:
    name = request.path_params["name"]
    kinds = {"style.css": "text/css", "serve.js": "text/javascript", "icon.png": "image/png"}
    if name not in kinds:
        raise HTTPException(404, "there is no such file")
    return Response(
        _asset(name)[0],
        media_type=kinds[name],
        headers={"Cache-Control": "public, max-age=31536000, immutable"},
    )


async def show(
    request: Request, asker: Asker | None, template: str, *, status: int = 200, **values: object
) -> Response:
    """Sends the page of `template` with what all have: who asks, where they may go, the token."""
    user = None if asker is None else asker.user
    page = await run_in_threadpool(
        render_page,
        f"serve/{template}",
        user=user,
        csrf="" if asker is None else asker.csrf,
        places=() if user is None else WORDS["places"][user.role],
        here=request.scope["path"],
        style=_asset("style.css")[1],
        script=_asset("serve.js")[1],
        icon=_asset("icon.png")[1],
        **values,
    )
    return HTMLResponse(page, status)


async def show_failure(request: Request, status: int, message: str) -> Response:
    """Returns a page that says what failed; who has to sign in first is sent there."""
    if status == 401 and request.method == "GET":
        query = request.scope["query_string"].decode("latin-1")
        asked = request.scope["path"] + (f"?{query}" if query else "")
        return RedirectResponse(f"/login?{urlencode({'next': asked}, errors='replace')}", 303)
    return await show(request, await find_asker(request), "failure.html", status=status, message=message)


async def enter_form(request: Request) -> tuple[Asker, dict[str, list[str]]]:
    """Returns who sends a form, and its fields."""
    form = await read_form(request)
    return await require_asker(request, csrf=field(form, "csrf")), form


async def _login(request: Request) -> Response:
    onward = request.query_params.get("next", "/")
    if request.method == "GET":
        return await show(request, None, "login.html", onward=onward, name="", message="")
    form = await read_form(request)
    service, name = find_service(request), field(form, "name")
    onward = field(form, "next")
    # Not stripped: spaces are part of a password.
    origin = request.client.host if request.client is not None else ""
    password = form.get("password", [""])[0]
    user = await run_in_threadpool(service.check_password, name, password, origin=origin)
    if user is None:
        message = "This name and password do not belong together."
        return await show(
            request, None, "login.html", status=401, onward=onward, name=name[:64], message=message
        )
    inside = onward.startswith("/") and not onward.startswith(("//", "/\\"))
    return _begin(
        request, await run_in_threadpool(service.state.open_session, user.name), onward if inside else "/"
    )


async def _enter(request: Request) -> Response:
    service = find_service(request)
    secret = await run_in_threadpool(service.enter_by_link, request.query_params.get("link", ""))
    if secret is None:
        message = "This link was used already or is too old. `sfumato serve --link NAME` prints a new one."
        return await show(request, None, "failure.html", status=403, message=message)
    return _begin(request, secret, "/")


def _begin(request: Request, secret: str, onward: str) -> Response:
    response = RedirectResponse(onward, 303)
    encrypted = request.scope["scheme"] == "https"
    response.set_cookie(name_cookie(request), secret, httponly=True, samesite="strict", secure=encrypted)
    return response


async def _logout(request: Request) -> Response:
    await enter_form(request)
    secret = request.cookies.get(name_cookie(request), "")
    await run_in_threadpool(find_service(request).state.close_session, secret)
    response = RedirectResponse("/login", 303)
    encrypted = request.scope["scheme"] == "https"
    response.delete_cookie(name_cookie(request), httponly=True, samesite="strict", secure=encrypted)
    return response


async def _send_robots(_: Request) -> Response:
    return PlainTextResponse("User-agent: *\nDisallow: /\n")


ROUTES = [
    Route("/login", _login, methods=["GET", "POST"]),
    Route("/enter", _enter),
    Route("/logout", _logout, methods=["POST"]),
    Route("/robots.txt", _send_robots),
    Route("/static/{name}", _send_asset),
]
