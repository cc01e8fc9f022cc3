"""The JSON API: one row of `ENDPOINTS` for each thing that may be asked.

The pages and the agents' endpoint call the same functions, so that all doors say the same. Each takes the
service, who asks, and what was sent: the body and the names in the path, held to its schema.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
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

from sfumato.core import __version__
from sfumato.core.errors import ReleaseError
from sfumato.core.exact import parse_exact, parse_positive
from sfumato.serve.web.exchange import find_service, list_rows, read_json, require_asker, to_plain

if TYPE_CHECKING:
    from sfumato.serve.service import Service
    from sfumato.serve.state import User


_TEXT: dict[str, Any] = {"type": "string"}
_NUMBER: dict[str, Any] = {"type": "number"}
_FLAG: dict[str, Any] = {"type": "boolean"}
_TEXTS: dict[str, Any] = {"type": "array", "items": _TEXT}
_RECORDS: dict[str, Any] = {"type": "array", "items": {"type": "object"}}
_ROWS: dict[str, Any] = {"type": "array", "items": {"type": "array"}}
_EPSILON = {"type": ["number", "string", "null"], "description": "exact: 0.1, or a text such as 1/3"}
_SCALARS = {"type": "array", "items": {"type": ["string", "number", "boolean", "null"]}}
_WHOLE: dict[str, Any] = {"type": "integer"}
_ERRORS = {"type": "object", "additionalProperties": {"type": ["number", "null"]}}
_ROLE = {"enum": ["steward", "analyst", "viewer"]}


def _record(*needed: str, **known: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": known, "required": list(needed)}


SCHEMAS: dict[str, dict[str, Any]] = {
    "Error": _record("error", error=_record("kind", "message", kind=_TEXT, message=_TEXT, number=_WHOLE)),
    "Budget": _record(
        "total", "spent", "left", total=_NUMBER, spent=_NUMBER, left=_NUMBER, delta=_NUMBER,
        share={"oneOf": [{"type": "null"}, _record(total=_NUMBER, spent=_NUMBER, left=_NUMBER)]},
        exact={"type": "object", "additionalProperties": _TEXT},
    ),
    "Tables": _record("tables", tables=_RECORDS),
    "Question": _record("sql", sql=_TEXT, epsilon=_EPSILON, at_most=_EPSILON, parameters=_SCALARS),
    "Plan": _record("sql", sql=_TEXT, epsilon=_EPSILON, parameters=_SCALARS),
    "Statement": _record("sql", sql=_TEXT, epsilon=_EPSILON),
    "Asked": _record("sql", sql=_TEXT),
    "NewRows": _record("rows", rows={**_TEXT, "description": "new rows, as CSV with a header"}),
    "Answer": _record(
        "columns", "rows", "spent", "left", columns=_TEXTS, types=_TEXTS, rows=_ROWS, spent=_NUMBER,
        left=_NUMBER, repeated=_FLAG, notes=_TEXTS,
    ),
    "Rows": _record("columns", "rows", columns=_TEXTS, types=_TEXTS, rows=_ROWS),
    "Price": _record(
        "epsilon", "text", epsilon=_NUMBER, delta=_NUMBER, errors=_ERRORS,
        expected={"type": "object", "additionalProperties": _TEXT}, notes=_TEXTS,
        groups={"type": ["integer", "null"]}, text=_TEXT, stored=_FLAG,
        admitted=_FLAG, left=_NUMBER,
    ),
    "Columns": _record("columns", columns=_RECORDS, parameters=_TEXTS),
    "Recipe": _record("recipe", recipe={**_TEXT, "description": "a recipe file, in TOML"}),
    "NamedRecipe": _record("recipe", "name", recipe=_TEXT, name=_TEXT),
    "Check": _record("recipe", "table", recipe=_TEXT, table=_TEXT, measurements=_RECORDS, admitted=_FLAG),
    "Job": _record("number", "status", number=_WHOLE, name=_TEXT, status=_TEXT, person=_TEXT, stages=_TEXTS),
    "Jobs": _record("jobs", jobs=_RECORDS),
    "Releases": _record("releases", releases=_RECORDS),
    "Ledger": _record("entries", entries=_RECORDS),
    "Users": _record("users", users=_RECORDS),
    "User": _record(
        "name", "role", name=_TEXT, role=_ROLE, share=_EPSILON, password={"type": ["string", "null"]},
    ),
    "NewUser": _record("name", "token", name=_TEXT, role=_ROLE, token=_TEXT),
    "Token": _record("name", "token", name=_TEXT, token=_TEXT),
    "Limit": _record("share", share=_EPSILON),
    "Share": _record("name", "share", name=_TEXT, share={"type": ["number", "null"]}),
    "Removed": _record("removed", removed=_TEXT),
    "Approvals": _record("approvals", approvals=_RECORDS),
    "Decision": _record("number", "approve", number=_WHOLE, approve=_FLAG),
    "Decided": _record("number", "status", number=_WHOLE, status=_TEXT, person=_TEXT),
}  # fmt: skip

_FAILURES = {
    "400": "the request cannot be read",
    "401": "no token, or one that is not valid",
    "402": "the budget or the share does not hold as much; nothing was spent",
    "403": "not for this role",
    "404": "there is no such thing",
    "409": "it waits for a steward's approval, or stands in the way of what is there",
    "413": "more than a request may hold",
    "415": "no JSON",
    "422": "the statement, recipe or value is not accepted, and why; nothing was spent",
    "429": "too many requests; try again later",
    "503": "the records or the ledger cannot be reached; a charge that was made is kept",
    "default": "any other failure",
}


def describe_api(endpoints: Sequence[Endpoint]) -> dict[str, Any]:
    """Returns the OpenAPI document."""
    paths: dict[str, dict[str, Any]] = {}
    for endpoint in endpoints:
        paths.setdefault(plain_path(endpoint.path), {})[endpoint.method.lower()] = _describe_endpoint(
            endpoint
        )
    for path, summary in (
        ("/healthz", "Whether the process lives"),
        ("/readyz", "Whether it can answer"),
        ("/metrics", "Counters for Prometheus, without data"),
    ):
        described = {"description": "text", "content": {"text/plain": {"schema": _TEXT}}}
        paths[path] = {"get": {"summary": summary, "security": [], "responses": {"200": described}}}
    paths["/openapi.json"] = {"get": {"summary": "This document", "security": [], "responses": {
        "200": {"description": "OpenAPI 3.1", "content": {"application/json": {"schema": {"type": "object"}}}}
    }}}  # fmt: skip
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "sfumato",
            "version": __version__,
            "description": "A database that answers with noise, under a budget. Agents: POST /mcp.",
        },
        "security": [{"token": []}],
        "paths": paths,
        "components": {
            "schemas": SCHEMAS,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def plain_path(path: str) -> str:
    """Returns a path of a route as OpenAPI writes it.

    >>> plain_path("/api/jobs/{number:int}")
    '/api/jobs/{number}'
    """
    return re.sub(r":\w+}", "}", path)


def _describe_endpoint(endpoint: Endpoint) -> dict[str, Any]:
    responses: dict[str, Any] = {
        code: {"description": said, "content": _content("Error")} for code, said in _FAILURES.items()
    }
    responses[str(endpoint.status)] = {"description": endpoint.summary, "content": _content(endpoint.reply)}
    path = plain_path(endpoint.path)
    named = f"{endpoint.method.lower()}{path.removeprefix('/api')}"
    described: dict[str, Any] = {
        "summary": endpoint.summary,
        "operationId": re.sub(r"\W+", "_", named).strip("_"),
        "responses": dict(sorted(responses.items())),
    }
    inside = re.findall(r"{(\w+)}", path)
    if inside:
        described["parameters"] = [
            {"name": name, "in": "path", "required": True, "schema": _TEXT} for name in inside
        ]
    if endpoint.body is not None:
        described["requestBody"] = {"required": True, "content": _content(endpoint.body)}
    return described


def _content(name: str) -> dict[str, Any]:
    if "/" in name:
        return {name: {"schema": _TEXT}}
    return {"application/json": {"schema": {"$ref": f"#/components/schemas/{name}"}}}


Given = dict[str, Any]

SANDBOX = "sandbox; default-src 'none'; style-src 'unsafe-inline'; img-src data:; frame-ancestors 'none'"
"""What a report, one file with its styles in it, may do: nothing but look as it does."""

_NAME = re.compile(r"\w[\w .-]{0,99}")
_AMOUNTS = ("total", "spent", "left", "delta", "epsilon")


async def read_budget(service: Service, user: User, _: Given) -> Given:
    """Returns the budget with its amounts as numbers, and under `exact` as they are."""
    found = await service.budget(user)
    share = found.get("share")
    return {
        **to_numbers(found),
        "share": None if share is None else to_numbers(share),
        "exact": {key: str(found[key]) for key in _AMOUNTS if found.get(key) is not None},
    }


async def list_tables(service: Service, user: User, _: Given) -> Given:
    """Returns the tables with their public columns."""
    return {"tables": to_plain(await service.tables(user))}


async def explain(service: Service, user: User, given: Given) -> Given:
    """Returns the price of a statement and its expected error, before it is bought."""
    found = await service.explain(
        user,
        given["sql"],
        epsilon=_read_amount(given, "epsilon"),
        parameters=tuple(given.get("parameters", ())),
    )
    return to_numbers(found)


async def ask(service: Service, user: User, given: Given) -> Given:
    """Returns the answer to a statement, with what it has cost."""
    reply = await service.ask(
        user,
        given["sql"],
        epsilon=_read_amount(given, "epsilon"),
        at_most=_read_amount(given, "at_most"),
        parameters=tuple(given.get("parameters", ())),
    )
    costs = {"spent": to_plain(reply.spent), "left": to_plain(reply.left), "repeated": reply.repeated}
    return {**await _describe_table(reply.table), **costs, "notes": list(reply.notes)}


async def start_release(service: Service, user: User, given: Given) -> Given:
    """Begins a release; a name that is taken is a conflict."""
    try:
        return await service.start_release(user, given["recipe"], name=given["name"])
    except ReleaseError as error:
        raise HTTPException(409, str(error)) from None


async def add_user(service: Service, user: User, given: Given) -> Given:
    """Adds a person, and returns their token."""
    token = await service.add_user(
        user,
        name=given["name"],
        role=given["role"],
        share=_read_amount(given, "share"),
        password=given.get("password") or None,
    )
    return {"name": given["name"], "role": given["role"], "token": token}


def check_name(name: str) -> str:
    """Returns `name`, if a release or one of its files may be called so."""
    if not _NAME.fullmatch(name):
        raise HTTPException(404, "no such release or file: a name has letters, digits, dots and hyphens")
    return name


async def _describe(service: Service, user: User, given: Given) -> Given:
    found = await service.describe(user, given["sql"], epsilon=_read_amount(given, "epsilon"))
    columns = [{"name": name, "type": _name_type(kind)} for name, kind in found.columns]
    return {"columns": columns, "parameters": [str(kind) for kind in found.parameters]}


async def _check(service: Service, user: User, given: Given) -> Given:
    return await service.check(user, given["recipe"])


async def _follow_job(service: Service, user: User, given: Given) -> Response:
    await service.job(user, given["number"])  # who may not see it hears so before the stream begins
    events = _stream_events(service, service.watch_job(user, given["number"]))
    return StreamingResponse(events, media_type="text/event-stream")


async def _stream_events(service: Service, records: AsyncIterator[Given]) -> AsyncIterator[str]:
    """Yields the records as server-sent events, to their end or that of the server."""
    following = asyncio.ensure_future(anext(records, None))
    try:
        while not service.is_closing:
            await asyncio.wait({following}, timeout=1)
            if not following.done():
                continue
            record = following.result()
            if record is None:
                break
            yield f"data: {json.dumps(to_plain(record))}\n\n"
            following = asyncio.ensure_future(anext(records, None))
    finally:
        following.cancel()
    yield "event: end\ndata: {}\n\n"


async def _send_file(service: Service, user: User, given: Given) -> Response:
    name, file = check_name(given["name"]), check_name(given["file"])
    path = await service.release_file(user, name, file)
    return FileResponse(path, filename=f"{name}-{file}", headers={"Content-Security-Policy": SANDBOX})


async def _ask_model(service: Service, user: User, given: Given) -> pa.Table:
    return await service.ask_release(user, check_name(given["name"]), given["sql"])


async def _predict(service: Service, user: User, given: Given) -> pa.Table:
    return await service.predict(user, check_name(given["name"]), given["rows"])


async def _send_report(service: Service, user: User, given: Given) -> Response:
    page = await service.report_page(user, check_name(given["name"]))
    return HTMLResponse(page, headers={"Content-Security-Policy": SANDBOX})


async def _remove_user(service: Service, user: User, given: Given) -> Given:
    await service.remove_user(user, given["name"])
    return {"removed": given["name"]}


async def _renew_token(service: Service, user: User, given: Given) -> Given:
    return {"name": given["name"], "token": await service.new_token(user, given["name"])}


async def _set_share(service: Service, user: User, given: Given) -> Given:
    share = _read_amount(given, "share")
    await service.set_share(user, given["name"], share)
    return {"name": given["name"], "share": to_plain(share)}


async def _decide(service: Service, user: User, given: Given) -> Given:
    return await service.decide(user, given["number"], approve=given["approve"])


async def _describe_table(table: pa.Table) -> Given:
    rows = await run_in_threadpool(list_rows, table)
    return {"columns": table.column_names, "types": list(map(_name_type, table.schema.types)), "rows": rows}


def _name_type(kind: pa.DataType) -> str:
    """Returns the type of the values, however they are kept."""
    return str(kind.value_type if pa.types.is_dictionary(kind) else kind)


def _read_amount(given: Given, key: str) -> Any:  # noqa: ANN401 - None, or what the service takes
    value = given.get(key)
    return None if value in (None, "") else parse_positive(value, name=key)


def to_numbers(record: Given) -> Given:
    """Returns the record as JSON has it, its amounts as numbers."""
    amounts = {
        key: parse_exact(record[key], name=key) for key in _AMOUNTS if isinstance(record.get(key), str)
    }
    plain: Given = to_plain({**record, **amounts})
    return plain


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One thing that may be asked: where, what for, what comes back and what is sent.

    `reply` and `body` name `SCHEMAS`, or a media type for what is no JSON.
    """

    method: str
    path: str
    answer: Callable[[Service, User, Given], Awaitable[object]]
    summary: str
    reply: str
    body: str | None = None
    status: int = 200

    async def __call__(self, request: Request) -> Response:
        """Returns the reply to `request`, for whoever sent it."""
        asker = await require_asker(request)
        given = {} if self.body is None else await read_json(request, SCHEMAS[self.body])
        found = await self.answer(find_service(request), asker.user, {**given, **request.path_params})
        if isinstance(found, pa.Table):
            found = await _describe_table(found)
        elif isinstance(found, list):
            found = {SCHEMAS[self.reply]["required"][0]: found}
        return found if isinstance(found, Response) else JSONResponse(to_plain(found), self.status)


ENDPOINTS = (
    Endpoint("GET", "/api/budget", read_budget, "What may be spent, is spent, and is left", "Budget"),
    Endpoint("GET", "/api/tables", list_tables, "The tables and their public columns", "Tables"),
    Endpoint("POST", "/api/sql", ask, "Buy the answer to a statement", "Answer", "Question"),
    Endpoint("POST", "/api/explain", explain, "The price of a statement; free", "Price", "Plan"),
    Endpoint("POST", "/api/describe", _describe, "The columns of an answer; free", "Columns", "Statement"),
    Endpoint("POST", "/api/check", _check, "A dry run of a recipe; free", "Check", "Recipe"),
    Endpoint("POST", "/api/release", start_release, "Begin a release", "Job", "NamedRecipe", 202),
    Endpoint("GET", "/api/jobs", lambda s, u, _: s.jobs(u), "Releases that were begun", "Jobs"),
    Endpoint("GET", "/api/jobs/{number:int}", lambda s, u, g: s.job(u, g["number"]), "One of them", "Job"),
    Endpoint("GET", "/api/jobs/{number:int}/events", _follow_job, "How it goes on", "text/event-stream"),
    Endpoint("GET", "/api/releases", lambda s, u, _: s.releases(u), "What was released", "Releases"),
    Endpoint("GET", "/api/releases/{name}/{file}", _send_file, "A released file", "application/octet-stream"),
    Endpoint("POST", "/api/releases/{name}/sql", _ask_model, "Ask a released model; free", "Rows", "Asked"),
    Endpoint(
        "POST",
        "/api/releases/{name}/predict",
        _predict,
        "Predict with a released model; free",
        "Rows",
        "NewRows",
    ),
    Endpoint("GET", "/api/reports/{name}", _send_report, "The report on a release", "text/html"),
    Endpoint("GET", "/api/ledger", lambda s, u, _: s.ledger(u), "All charges; for stewards", "Ledger"),
    Endpoint(
        "GET", "/api/users", lambda s, u, _: s.users(u), "Users and their shares; for stewards", "Users"
    ),
    Endpoint("POST", "/api/users", add_user, "Add a user; for stewards", "NewUser", "User", 201),
    Endpoint("DELETE", "/api/users/{name}", _remove_user, "Remove a user; for stewards", "Removed"),
    Endpoint("POST", "/api/users/{name}/token", _renew_token, "A new token for a user", "Token"),
    Endpoint("POST", "/api/users/{name}/share", _set_share, "Change a share; for stewards", "Share", "Limit"),
    Endpoint(
        "GET", "/api/approvals", lambda s, u, _: s.approvals(u), "What waits for a steward", "Approvals"
    ),
    Endpoint("POST", "/api/approvals", _decide, "Decide on it; for stewards", "Decided", "Decision"),
)


async def _answer_health(_: Request) -> Response:
    return PlainTextResponse("ok\n")


async def _answer_readiness(request: Request) -> Response:
    if not await find_service(request).is_ready():
        raise HTTPException(503, "not ready; the server's log says why")
    return PlainTextResponse("ready\n")


async def _answer_metrics(request: Request) -> Response:
    lines = []
    for name, value in sorted(find_service(request).metrics().items()):
        lines += [f"# TYPE sfumato_{name} counter", f"sfumato_{name} {value:g}"]
    media = "text/plain; version=0.0.4; charset=utf-8"
    return PlainTextResponse("\n".join(lines) + "\n", media_type=media)


async def _answer_description(_: Request) -> Response:
    return JSONResponse(describe_api(ENDPOINTS))


ROUTES = [
    *(Route(each.path, each.__call__, methods=[each.method]) for each in ENDPOINTS),
    Route("/openapi.json", _answer_description),
    Route("/healthz", _answer_health),
    Route("/readyz", _answer_readiness),
    Route("/metrics", _answer_metrics),
]
