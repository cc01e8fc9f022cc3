"""The frame of all pages, their files, and the way in and out."""

from __future__ import annotations

import hashlib
import re
from functools import cache
from importlib.resources import files
from urllib.parse import quote, urlencode, urlsplit

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route

from sfumato.report.pages.answers import draw_icon
from sfumato.report.pages.render import render_page
from sfumato.serve.oidc import CALLBACK, SECONDS
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

_LINKS = re.compile(rb'(\s(?:href|src|action|data-price|data-events)=")/(?!/)')
"""Where a page leads on this server; a text in it cannot be taken for one, since its quotes are escaped."""

_LONGEST = 1500  # characters of an address that a cookie has room for


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
        notices=await find_service(request).count_notices(user) if user and user.role != "viewer" else 0,
        style=_asset("style.css")[1],
        script=_asset("serve.js")[1],
        icon=_asset("icon.png")[1],
        **values,
    )
    base = find_service(request).settings.base.encode()
    return HTMLResponse(_LINKS.sub(rb"\1" + base + b"/", page), status)


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
    oidc = find_service(request).settings.oidc
    provider = "" if oidc is None else urlsplit(oidc.issuer).hostname
    if request.method == "GET":
        return await show(request, None, "login.html", onward=onward, name="", message="", provider=provider)
    form = await read_form(request)
    service, name = find_service(request), field(form, "name")
    onward = field(form, "next")
    # Not stripped: spaces are part of a password.
    origin = request.client.host if request.client is not None else ""
    password = form.get("password", [""])[0]
    user = await run_in_threadpool(service.check_password, name, password, origin=origin)
    if user is None:
        message = "This name and password do not belong together."
        values = {"onward": onward, "name": name[:64], "message": message, "provider": provider}
        return await show(request, None, "login.html", status=401, **values)
    return _begin(
        request, await run_in_threadpool(service.state.open_session, user.name), _keep_inside(onward)
    )


def _keep_inside(onward: str) -> str:
    """Returns the path to go on to, which is one of this server whatever was asked for."""
    # Browsers read "\\" as "/", and leave out tabs and line breaks before they look.
    plain = quote(re.sub(r"[\x00-\x1f]", "", onward), safe="/?=&%#+,;:@!$'()*-._~")
    return plain if plain.startswith("/") and not plain.startswith(("//", "/%5C")) else "/"


async def _leave_for_provider(request: Request) -> Response:
    service, onward = find_service(request), _keep_inside(request.query_params.get("next", "/"))
    origin = request.client.host if request.client is not None else ""
    address, kept = await service.begin_sign_in(onward if len(onward) < _LONGEST else "/", origin=origin)
    response = RedirectResponse(address, 303)
    # Lax, since the provider's page leads back here.
    response.set_cookie(
        f"{name_cookie(request)}-oidc",
        kept,
        max_age=SECONDS,
        httponly=True,
        samesite="lax",
        secure=request.scope["scheme"] == "https",
    )
    return response


async def _come_back(request: Request) -> Response:
    given = dict(request.query_params)
    if len(given) != len(request.query_params.multi_items()):  # which of two would be meant?
        raise HTTPException(400, "the reply of the provider cannot be read")
    name = f"{name_cookie(request)}-oidc"
    origin = request.client.host if request.client is not None else ""
    session, onward = await find_service(request).finish_sign_in(
        request.cookies.get(name, ""), given, origin=origin
    )
    response = _begin(
        request, session, "/", shown=await show(request, None, "entered.html", onward=_keep_inside(onward))
    )
    # A redirect would still come from the provider's page, for which no browser sends the session's cookie.
    response.headers["Refresh"] = f"0; url={_keep_inside(onward)}"
    response.delete_cookie(name, httponly=True, samesite="lax", secure=request.scope["scheme"] == "https")
    return response


async def _enter(request: Request) -> Response:
    service = find_service(request)
    secret = await run_in_threadpool(service.enter_by_link, request.query_params.get("link", ""))
    if secret is None:
        message = "This link was used already or is too old. `sfumato serve --link NAME` prints a new one."
        return await show(request, None, "failure.html", status=403, message=message)
    return _begin(request, secret, "/")


def _begin(request: Request, secret: str, onward: str, *, shown: Response | None = None) -> Response:
    response = shown or RedirectResponse(onward, 303)
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
    Route("/oidc", _leave_for_provider),
    Route(CALLBACK, _come_back),
    Route("/logout", _logout, methods=["POST"]),
    Route("/robots.txt", _send_robots),
    Route("/static/{name}", _send_asset),
]
