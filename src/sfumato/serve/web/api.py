"""The JSON API: one row of `ENDPOINTS` for each thing that may be asked.

The pages and the agents' endpoint call the same functions, so that all doors say the same.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import (
    FileResponse,
    HTMLResponse,
    JSONResponse,
    PlainTextResponse,
    Response,
    StreamingResponse,
)
from starlette.routing import Route

from sfumato.errors import ReleaseError
from sfumato.exact import parse_exact, parse_positive
from sfumato.serve.web.exchange import (
    find_service,
    list_rows,
    read_json,
    require_asker,
    to_plain,
)

if TYPE_CHECKING:
    from sfumato.serve.service import Reply, Service
    from sfumato.serve.state import User

SANDBOX = "sandbox; default-src 'none'; style-src 'unsafe-inline'; img-src data:; frame-ancestors 'none'"
"""What a report, one file with its styles in it, may do: nothing but look as it does."""

_NAME = re.compile(r"\w[\w .-]{0,99}")
_AMOUNTS = ("total", "spent", "left", "delta", "epsilon")


async def tell_budget(service: Service, user: User) -> dict[str, Any]:
    """The budget with its amounts as numbers, and under `exact` as they are."""
    found = await service.budget(user)
    share = found.get("share")
    return {
        **to_plain(_to_numbers(found)),
        "share": None if share is None else to_plain(_to_numbers(share)),
        "exact": to_plain({key: str(found[key]) for key in _AMOUNTS if found.get(key) is not None}),
    }


async def list_tables(service: Service, user: User) -> list[dict[str, Any]]:
    """The tables with their public columns."""
    found: list[dict[str, Any]] = to_plain(await service.tables(user))
    return found


async def explain(service: Service, user: User, given: dict[str, Any]) -> dict[str, Any]:
    """The price of a statement and its expected error, before it is bought."""
    found = await service.explain(
        user, given["sql"], epsilon=_read_amount(given, "epsilon"), parameters=_read_parameters(given)
    )
    return tell_price(found)


def tell_price(found: dict[str, Any]) -> dict[str, Any]:
    """What `Service.explain` says, with its amounts as numbers."""
    told: dict[str, Any] = to_plain(_to_numbers(found))
    return told


async def ask(service: Service, user: User, given: dict[str, Any]) -> dict[str, Any]:
    """The answer to a statement, with what it has cost."""
    reply = await service.ask(
        user,
        given["sql"],
        epsilon=_read_amount(given, "epsilon"),
        at_most=_read_amount(given, "at_most"),
        parameters=_read_parameters(given),
    )
    return await run_in_threadpool(_tell_reply, reply)


def _tell_reply(reply: Reply) -> dict[str, Any]:
    return {
        "columns": reply.table.column_names,
        "types": [str(kind) for kind in reply.table.schema.types],
        "rows": list_rows(reply.table),
        "spent": to_plain(reply.spent),
        "left": to_plain(reply.left),
        "repeated": reply.repeated,
        "notes": list(reply.notes),
    }


async def _get_budget(_: Request, service: Service, user: User) -> object:
    return await tell_budget(service, user)


async def _get_tables(_: Request, service: Service, user: User) -> object:
    return {"tables": await list_tables(service, user)}


async def _post_sql(request: Request, service: Service, user: User) -> object:
    known = ("sql", "epsilon", "at_most", "parameters")
    return await ask(service, user, await read_json(request, known=known, needed=("sql",)))


async def _post_explain(request: Request, service: Service, user: User) -> object:
    known = ("sql", "epsilon", "parameters")
    return await explain(service, user, await read_json(request, known=known, needed=("sql",)))


async def _post_describe(request: Request, service: Service, user: User) -> object:
    given = await read_json(request, known=("sql", "epsilon"), needed=("sql",))
    found = await service.describe(user, given["sql"], epsilon=_read_amount(given, "epsilon"))
    columns = [{"name": name, "type": str(kind)} for name, kind in found.columns]
    return {"columns": columns, "parameters": [str(kind) for kind in found.parameters]}


async def _post_check(request: Request, service: Service, user: User) -> object:
    given = await read_json(request, known=("recipe",), needed=("recipe",))
    return await service.check(user, given["recipe"])


async def _post_release(request: Request, service: Service, user: User) -> object:
    given = await read_json(request, known=("recipe", "name"), needed=("recipe", "name"))
    return await start_release(service, user, given["recipe"], name=given["name"])


async def start_release(service: Service, user: User, recipe: str, *, name: str) -> dict[str, Any]:
    """Begins a release; a name that is taken is a conflict."""
    try:
        return await service.start_release(user, recipe, name=name)
    except ReleaseError as error:
        raise HTTPException(409, str(error)) from None


async def _get_jobs(_: Request, service: Service, user: User) -> object:
    return {"jobs": await service.jobs(user)}


async def _get_job(request: Request, service: Service, user: User) -> object:
    return await service.job(user, request.path_params["number"])


async def _get_events(request: Request, service: Service, user: User) -> Response:
    number = request.path_params["number"]
    await service.job(user, number)  # who may not see it hears so before the stream begins
    return StreamingResponse(_tell_events(service.watch_job(user, number)), media_type="text/event-stream")


async def _tell_events(records: AsyncIterator[dict[str, Any]]) -> AsyncIterator[str]:
    async for record in records:
        yield f"data: {json.dumps(to_plain(record))}\n\n"
    yield "event: end\ndata: {}\n\n"


async def _get_releases(_: Request, service: Service, user: User) -> object:
    return {"releases": await service.releases(user)}


async def _get_file(request: Request, service: Service, user: User) -> Response:
    name, file = (check_name(request.path_params[key]) for key in ("name", "file"))
    path = await service.release_file(user, name, file)
    return FileResponse(path, filename=f"{name}-{file}", headers={"Content-Security-Policy": SANDBOX})


async def _post_model(request: Request, service: Service, user: User) -> object:
    given = await read_json(request, known=("sql",), needed=("sql",))
    table = await service.ask_release(user, check_name(request.path_params["name"]), given["sql"])
    rows = await run_in_threadpool(list_rows, table)
    return {"columns": table.column_names, "types": [str(each) for each in table.schema.types], "rows": rows}


async def _get_report(request: Request, service: Service, user: User) -> Response:
    page = await service.report_page(user, check_name(request.path_params["name"]))
    return HTMLResponse(page, headers={"Content-Security-Policy": SANDBOX})


async def _get_ledger(_: Request, service: Service, user: User) -> object:
    return {"entries": await service.ledger(user)}


async def _get_users(_: Request, service: Service, user: User) -> object:
    return {"users": await service.users(user)}


async def _post_users(request: Request, service: Service, user: User) -> object:
    known = ("name", "role", "share", "password")
    given = await read_json(request, known=known, needed=("name", "role"))
    token = await add_user(service, user, given)
    return {"name": given["name"], "role": given["role"], "token": token}


async def add_user(service: Service, user: User, given: dict[str, Any]) -> str:
    """Adds the user that `given` describes, and returns their token."""
    share = None if given.get("share") in (None, "") else parse_positive(given["share"], name="share")
    password = given.get("password") or None
    if password is not None and not isinstance(password, str):
        raise HTTPException(422, "a password is a text")
    role = given["role"]
    if role not in ("steward", "analyst", "viewer"):
        raise HTTPException(422, "a role is one of steward, analyst, viewer")
    return await service.add_user(user, name=given["name"], role=role, share=share, password=password)


async def _delete_user(request: Request, service: Service, user: User) -> object:
    await service.remove_user(user, request.path_params["name"])
    return {"removed": request.path_params["name"]}


async def _post_token(request: Request, service: Service, user: User) -> object:
    name = request.path_params["name"]
    return {"name": name, "token": await service.new_token(user, name)}


async def _get_approvals(_: Request, service: Service, user: User) -> object:
    return {"approvals": await service.approvals(user)}


async def _post_approvals(request: Request, service: Service, user: User) -> object:
    given = await read_json(request, known=("number", "approve"), needed=())
    number, approve = given.get("number"), given.get("approve")
    if isinstance(number, bool) or not isinstance(number, int) or not isinstance(approve, bool):
        raise HTTPException(422, 'send {"number": ..., "approve": true or false}')
    return await service.decide(user, number, approve=approve)


def check_name(name: str) -> str:
    """`name`, if a release or one of its files may be called so."""
    if not _NAME.fullmatch(name):
        raise HTTPException(404, "no such release or file: a name has letters, digits, dots and hyphens")
    return name


def _read_amount(given: dict[str, Any], key: str) -> Any:  # noqa: ANN401 - None, or what Service takes
    value = given.get(key)
    return None if value is None or value == "" else parse_positive(value, name=key)


def _read_parameters(given: dict[str, Any]) -> tuple[object, ...]:
    values = given.get("parameters", [])
    if not isinstance(values, list) or any(isinstance(each, (list, dict)) for each in values):
        raise HTTPException(422, "parameters are a list of texts, numbers, true, false or null")
    return tuple(values)


def _to_numbers(record: dict[str, Any]) -> dict[str, Any]:
    """The record with its amounts as numbers; what is none stays as it is."""
    told = dict(record)
    for key in _AMOUNTS:
        if isinstance(told.get(key), str):
            told[key] = parse_exact(told[key], name=key)
    return told


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """One thing that may be asked: where, what for, what is sent and what comes back.

    `body` and `reply` name schemas of `openapi`, or a media type for what is no JSON.
    """

    method: str
    path: str
    summary: str
    answer: Callable[[Request, Service, User], Awaitable[object]]
    reply: str
    body: str | None = None
    status: int = 200

    async def __call__(self, request: Request) -> Response:
        """The reply to `request`, for whoever sent it."""
        asker = await require_asker(request)
        found = await self.answer(request, find_service(request), asker.user)
        return found if isinstance(found, Response) else JSONResponse(to_plain(found), self.status)


def _endpoint(
    method: str, path: str, answer: Callable[..., Awaitable[object]], summary: str, reply: str,
    *, body: str | None = None, status: int = 200,
) -> Endpoint:  # fmt: skip
    return Endpoint(
        method=method, path=path, answer=answer, summary=summary, reply=reply, body=body, status=status
    )


ENDPOINTS = (
    _endpoint("GET", "/api/budget", _get_budget, "What may be spent, is spent, and is left", "Budget"),
    _endpoint("GET", "/api/tables", _get_tables, "The tables and their public columns", "Tables"),
    _endpoint("POST", "/api/sql", _post_sql, "Buy the answer to a statement", "Answer", body="Question"),
    _endpoint("POST", "/api/explain", _post_explain, "The price of a statement; free", "Price", body="Plan"),
    _endpoint(
        "POST", "/api/describe", _post_describe, "The columns of an answer; free", "Columns", body="Statement"
    ),
    _endpoint("POST", "/api/check", _post_check, "A dry run of a recipe; free", "Check", body="Recipe"),
    _endpoint(
        "POST", "/api/release", _post_release, "Begin a release", "Job", body="NamedRecipe", status=202
    ),
    _endpoint("GET", "/api/jobs", _get_jobs, "Releases that were begun", "Jobs"),
    _endpoint("GET", "/api/jobs/{number:int}", _get_job, "One of them", "Job"),
    _endpoint("GET", "/api/jobs/{number:int}/events", _get_events, "How it goes on", "text/event-stream"),
    _endpoint("GET", "/api/releases", _get_releases, "What was released", "Releases"),
    _endpoint("GET", "/api/releases/{name}/{file}", _get_file, "A released file", "application/octet-stream"),
    _endpoint(
        "POST", "/api/releases/{name}/sql", _post_model, "Ask a released model; free", "Rows", body="Asked"
    ),
    _endpoint("GET", "/api/reports/{name}", _get_report, "The report on a release", "text/html"),
    _endpoint("GET", "/api/ledger", _get_ledger, "All charges; for stewards", "Ledger"),
    _endpoint("GET", "/api/users", _get_users, "Users and their shares; for stewards", "Users"),
    _endpoint(
        "POST", "/api/users", _post_users, "Add a user; for stewards", "NewUser", body="User", status=201
    ),
    _endpoint("DELETE", "/api/users/{name}", _delete_user, "Remove a user; for stewards", "Removed"),
    _endpoint("POST", "/api/users/{name}/token", _post_token, "A new token for a user", "Token"),
    _endpoint("GET", "/api/approvals", _get_approvals, "What waits for a steward", "Approvals"),
    _endpoint(
        "POST", "/api/approvals", _post_approvals, "Decide on it; for stewards", "Decided", body="Decision"
    ),
)


async def _tell_health(_: Request) -> Response:
    return PlainTextResponse("ok\n")


async def _tell_readiness(request: Request) -> Response:
    await run_in_threadpool(find_service(request).find_user, "")
    return PlainTextResponse("ready\n")


async def _tell_metrics(request: Request) -> Response:
    lines = []
    for name, value in sorted(find_service(request).metrics().items()):
        lines += [f"# TYPE sfumato_{name} counter", f"sfumato_{name} {value:g}"]
    media = "text/plain; version=0.0.4; charset=utf-8"
    return PlainTextResponse("\n".join(lines) + "\n", media_type=media)


ROUTES = [
    *(Route(each.path, each.__call__, methods=[each.method]) for each in ENDPOINTS),
    Route("/healthz", _tell_health),
    Route("/readyz", _tell_readiness),
    Route("/metrics", _tell_metrics),
]
