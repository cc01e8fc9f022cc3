"""The JSON API, and the endpoint of agents: openapi.json and agents.json say what may be asked.

The pages call the same functions, so that all doors say the same. Each takes the service, who asks, and
what was sent: the body and the names in the path, held to its schema.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from importlib.resources import files
from pathlib import Path
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
from sfumato.core.errors import BudgetExceeded, ReleaseError, SfumatoError
from sfumato.core.exact import format_short, parse_exact, parse_positive
from sfumato.serve.claims import keep_claim, list_figures
from sfumato.serve.purchase import Conversation, drop_price
from sfumato.serve.state import LIMITS
from sfumato.serve.web.exchange import (
    find_asker,
    find_service,
    list_rows,
    parse_json,
    read_body,
    read_json,
    refuse_fields,
    require_asker,
    to_plain,
)

if TYPE_CHECKING:
    from sfumato.serve.purchase import Reply
    from sfumato.serve.service import Service
    from sfumato.serve.state import User


@cache
def read_description() -> dict[str, Any]:
    """Returns the OpenAPI document: that of `openapi.json`, with the failures that all calls may end in."""
    document: dict[str, Any] = json.loads(files(__package__).joinpath("openapi.json").read_text("utf-8"))
    document["info"]["version"] = __version__
    content = {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
    said = document.pop("x-failures")
    failures = {code: {"description": words, "content": content} for code, words in said.items()}
    for operation in list_operations(document).values():
        operation["responses"] = dict(sorted((failures | operation["responses"]).items()))
    return document


def list_operations(document: dict[str, Any]) -> dict[tuple[str, str], dict[str, Any]]:
    """Returns what the API does, by method and path."""
    return {
        (method, path): operation
        for path, operations in document["paths"].items()
        for method, operation in operations.items()
        if "operationId" in operation
    }


Given = dict[str, Any]

SANDBOX = "sandbox; default-src 'none'; style-src 'unsafe-inline'; img-src data:; frame-ancestors 'none'"
"""What a report, one file with its styles in it, may do: nothing but look as it does."""

_NAME = re.compile(r"\w[\w .-]{0,99}")
_AMOUNTS = ("total", "spent", "left", "delta", "epsilon", "most")


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
    return await _describe_reply(reply)


async def _describe_reply(reply: Reply) -> Given:
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


async def _send_audit(service: Service, user: User, _: Given) -> Response:
    def read(files: list[Path]) -> Iterator[bytes]:
        for path in files:
            with contextlib.suppress(FileNotFoundError), path.open("rb") as lines:
                yield from lines

    return StreamingResponse(read(await service.audit_files(user)), media_type="application/x-ndjson")


async def _send_file(service: Service, user: User, given: Given) -> Response:
    name, file = check_name(given["name"]), check_name(given["file"])
    path = await service.release_file(user, name, file)
    return FileResponse(path, filename=f"{name}-{file}", headers={"Content-Security-Policy": SANDBOX})


async def _send_report(service: Service, user: User, given: Given) -> Response:
    page = await service.report_page(user, check_name(given["name"]))
    # A page of this server may show it in a frame, where it still may do nothing.
    policy = SANDBOX.replace("frame-ancestors 'none'", "frame-ancestors 'self'")
    return HTMLResponse(page, headers={"Content-Security-Policy": policy, "X-Frame-Options": "SAMEORIGIN"})


async def _remove_user(service: Service, user: User, given: Given) -> Given:
    await service.remove_user(user, given["name"])
    return {"removed": given["name"]}


async def _renew_token(service: Service, user: User, given: Given) -> Given:
    return {"name": given["name"], "token": await service.new_token(user, given["name"])}


async def set_limits(service: Service, user: User, given: Given) -> Given:
    """Changes the share and the other limits of a person that are given; null takes one away."""
    amounts = {key: _read_amount(given, key) for key in ("share", *LIMITS) if key in given}
    if "share" in amounts:
        await service.set_share(user, given["name"], amounts["share"])
    if limits := {key: amount for key, amount in amounts.items() if key != "share"}:
        await service.set_limits(user, given["name"], limits)
    return {"name": given["name"], **to_plain(amounts)}


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
    """One thing that may be asked: who answers it, the names of its schemas in openapi.json, its status."""

    answer: Callable[[Service, User, Given], Awaitable[object]]
    reply: str
    body: str
    status: int

    async def __call__(self, request: Request) -> Response:
        """Returns the reply to `request`, for whoever sent it."""
        asker = await require_asker(request)
        schemas = read_description()["components"]["schemas"]
        given = await read_json(request, schemas[self.body]) if self.body else {}
        found = await self.answer(find_service(request), asker.user, {**given, **request.path_params})
        if isinstance(found, pa.Table):
            found = await _describe_table(found)
        elif isinstance(found, list):
            found = {schemas[self.reply]["required"][0]: found}
        return found if isinstance(found, Response) else JSONResponse(to_plain(found), self.status)


def _make_route(method: str, path: str, operation: dict[str, Any]) -> Route:
    status, reply = next(iter(operation["responses"].items()))
    body = _name_schema(operation.get("requestBody", {}))
    endpoint = Endpoint(_ANSWERS[operation["operationId"]], _name_schema(reply), body, int(status))
    return Route(path.replace("{number}", "{number:int}"), endpoint.__call__, methods=[method.upper()])


def _name_schema(part: dict[str, Any]) -> str:
    """Returns the schema of a body or reply; none for what is no JSON."""
    schema: dict[str, str] = part.get("content", {}).get("application/json", {}).get("schema", {})
    return schema.get("$ref", "").rpartition("/")[2]


_ANSWERS: dict[str, Callable[[Service, User, Given], Awaitable[object]]] = {
    "get_budget": read_budget,
    "get_tables": list_tables,
    "post_sql": ask,
    "post_explain": explain,
    "post_describe": _describe,
    "post_check": lambda s, u, g: s.check(u, g["recipe"]),
    "post_release": start_release,
    "get_jobs": lambda s, u, _: s.jobs(u),
    "get_jobs_number": lambda s, u, g: s.job(u, g["number"]),
    "get_jobs_number_events": _follow_job,
    "get_releases": lambda s, u, _: s.releases(u),
    "get_releases_name_file": _send_file,
    "post_releases_name_sql": lambda s, u, g: s.ask_release(u, check_name(g["name"]), g["sql"]),
    "post_releases_name_predict": lambda s, u, g: s.predict(u, check_name(g["name"]), g["rows"]),
    "get_reports_name": _send_report,
    "get_audit": _send_audit,
    "get_ledger": lambda s, u, _: s.ledger(u),
    "get_users": lambda s, u, _: s.users(u),
    "post_users": add_user,
    "delete_users_name": _remove_user,
    "post_users_name_token": _renew_token,
    "post_users_name_share": set_limits,
    "get_approvals": lambda s, u, _: s.approvals(u),
    "post_approvals": lambda s, u, g: s.decide(u, g["number"], approve=g["approve"]),
}


# The Model Context Protocol for agents: streamable HTTP, one JSON-RPC request and one reply at a time.
# No stream of the server's own: every request says with its token who asks, a session only sums what it
# spent.

VERSIONS = ("2025-11-25", "2025-06-18", "2025-03-26")
"""The versions of the protocol that begin with `initialize`."""

STATELESS = "2026-07-28"
"""The version in which every request says by itself what the others say at the beginning."""

_DESCRIPTION = json.loads(files(__package__).joinpath("agents.json").read_text("utf-8"))
_TOOLS: list[dict[str, Any]] = _DESCRIPTION.pop("tools")  # leaves capabilities and instructions
_SERVER = {"name": "sfumato", "title": "sfumato", "version": __version__}
_FRESH = {"ttlMs": 0, "cacheScope": "private"}
_MOST_CONVERSATIONS = 10_000  # that are remembered with what they spent
_LONGEST_SESSION = 64


async def answer_agent(request: Request) -> Response:
    """Returns the reply to one message of an agent."""
    accepted = request.headers.get("accept", "*/*")
    if not any(kind in accepted for kind in ("application/json", "application/*", "*/*")):
        raise HTTPException(406, "accept application/json")
    version = request.headers.get("mcp-protocol-version", VERSIONS[0])
    asker = await find_asker(request)
    if asker is None or asker.csrf is not None:
        headers = {"WWW-Authenticate": "Bearer"}
        raise HTTPException(401, "send `Authorization: Bearer TOKEN`", headers=headers)
    try:
        message = parse_json(await read_body(request))
    except HTTPException as error:
        return _fail(None, -32700, error.detail, status=error.status_code)
    if not isinstance(message, dict) or message.get("jsonrpc") != "2.0":
        return _fail(None, -32600, "send one JSON-RPC 2.0 message, no batch", status=400)
    number, method, given = message.get("id"), message.get("method"), message.get("params", {})
    if number is None or method is None:
        return Response(status_code=202)  # a notification, or a reply to what was never asked
    if not isinstance(number, (int, str)) or not isinstance(given, dict):
        return _fail(None, -32600, "an id is a number or a text, params are an object", status=400)
    if method != "initialize" and version not in (*VERSIONS, STATELESS):
        versions = {"supported": [STATELESS, *VERSIONS], "requested": version}
        return _fail(number, -32022, "unsupported protocol version", status=400, data=versions)
    if version == STATELESS and request.headers.get("mcp-method", method) != method:
        return _fail(number, -32020, "the header Mcp-Method names another method", status=400)
    begun: dict[str, str] = {}  # headers of a conversation that begins here
    CONVERSATION.set(request.headers.get("mcp-session-id", "")[:_LONGEST_SESSION])
    match method:
        case "server/discover" if version == STATELESS:
            result: dict[str, Any] = {"supportedVersions": [STATELESS, *VERSIONS], **_DESCRIPTION, **_FRESH}
        case "initialize":
            asked = given.get("protocolVersion")
            spoken = asked if asked in VERSIONS else VERSIONS[0]
            begun["Mcp-Session-Id"] = secrets.token_urlsafe(16)
            result = {"protocolVersion": spoken, "serverInfo": _SERVER, **_DESCRIPTION}
        case "ping":
            result = {}
        case "tools/list":
            result = {"tools": _TOOLS, **(_FRESH if version == STATELESS else {})}
        case "tools/call":
            called, arguments = given.get("name"), given.get("arguments") or {}
            tool = next((each for each in _TOOLS if each["name"] == called), None)
            if tool is None:
                return _fail(number, -32602, "no such tool; tools/list names them")
            reason = refuse_fields(arguments, tool["inputSchema"])
            if reason is not None:
                return _fail(number, -32602, reason)
            result = await _call(_TOOL_ANSWERS[called], find_service(request), asker.user, arguments)
        case _:
            return _fail(number, -32601, "no such method", status=404 if version == STATELESS else 200)
    if version == STATELESS:
        result |= {"resultType": "complete", "_meta": {"io.modelcontextprotocol/serverInfo": _SERVER}}
    return JSONResponse({"jsonrpc": "2.0", "id": number, "result": result}, headers=begun)


async def _call(
    answer: Callable[..., Awaitable[dict[str, Any]]], service: Service, user: User, given: dict[str, Any]
) -> dict[str, Any]:
    """Returns what a tool returns: a failure that the agent can mend is a result, too."""
    try:
        found = await answer(service, user, given)
    except (SfumatoError, HTTPException) as error:
        message = error.detail if isinstance(error, HTTPException) else str(error)
        return {"content": [{"type": "text", "text": message}], "isError": True}
    text = json.dumps(found, ensure_ascii=False, allow_nan=False)
    return {"content": [{"type": "text", "text": text}], "structuredContent": found, "isError": False}


CONVERSATION: ContextVar[str] = ContextVar("conversation", default="")
"""The conversation that an agent's message belongs to."""


async def _ask(service: Service, user: User, given: dict[str, Any]) -> dict[str, Any]:
    """Returns an answer with a claim for each number, paid for out of what its conversation may spend."""
    limit, named = user.session_budget or service.settings.session_budget, CONVERSATION.get()
    talk = Conversation()  # what has no name bounds each question by itself
    if named:
        talk = service.conversations.setdefault(f"{user.name} {named}", talk)
    while len(service.conversations) > _MOST_CONVERSATIONS:
        del service.conversations[next(iter(service.conversations))]
    async with talk.turn:
        most = [each for each in (_read_amount(given, "at_most"),) if each is not None]
        if limit is not None:
            most.append(max(limit - talk.spent, Fraction(0)))
        epsilon, parameters = _read_amount(given, "epsilon"), tuple(given.get("parameters", ()))
        try:
            reply = await service.ask(
                user, given["sql"], epsilon=epsilon, at_most=min(most, default=None), parameters=parameters
            )
        except BudgetExceeded as error:
            if limit is not None and CONVERSATION.get():
                left = format_short(max(limit - talk.spent, Fraction(0)))
                raise BudgetExceeded(
                    f"{error}; {left} is left to this conversation", left=error.left
                ) from None
            raise
        talk.spent += reply.spent
    found = await _describe_reply(reply)
    if reply.public or reply.synthetic:
        return found
    price = (await service.explain(user, given["sql"], epsilon=epsilon, parameters=parameters))["epsilon"]

    def claim() -> list[dict[str, Any]]:
        name = keep_claim(service.state, user.name, given["sql"], epsilon, parameters, reply.table)
        return list_figures(name, reply.table, to_plain(parse_exact(price, name="price")))

    return {**found, "figures": to_plain(await service.run(user, claim))}


async def _propose(service: Service, user: User, given: dict[str, Any]) -> dict[str, Any]:
    """Returns statements that answer a question within an error, the cheapest first, with their prices."""
    body = re.sub(r"(?i)^select\s+", "", drop_price(given["sql"]))
    within = f"WITHIN {given['error']:.12g}"
    ways = []
    paid = await explain(service, user, {"sql": f"DP-SELECT {within} {body}"})
    known = paid.get("known") or {}
    if known and all(each is not None and each <= given["error"] for each in known.values()):
        ways.append({"sql": f"DP-SELECT FREE {body}", "epsilon": 0, "errors": known})
    cost = 0 if paid["free"] else paid["epsilon"]
    ways.append({"sql": f"DP-SELECT {within} {body}", "epsilon": cost, "errors": paid.get("errors", {})})
    left = (await read_budget(service, user, {}))["share"]
    return {"ways": ways, "left": None if left is None else left["left"]}


_TOOL_ANSWERS: dict[Any, Callable[..., Awaitable[dict[str, Any]]]] = {
    "tables": list_tables,
    "explain": explain,
    "propose": _propose,
    "ask": _ask,
    "budget": read_budget,
}


def _fail(number: object, code: int, message: str, *, status: int = 200, data: object = None) -> Response:
    error = {"code": code, "message": message} | ({} if data is None else {"data": data})
    return JSONResponse({"jsonrpc": "2.0", "id": number, "error": error}, status)


async def _answer_health(_: Request) -> Response:
    return PlainTextResponse("ok\n")


async def _answer_readiness(request: Request) -> Response:
    if not await find_service(request).is_ready():
        raise HTTPException(503, "not ready; the server's log says why")
    return PlainTextResponse("ready\n")


async def _answer_metrics(request: Request) -> Response:
    lines = []
    for kind, found in zip(("counter", "gauge"), await find_service(request).metrics(), strict=True):
        for name, value in sorted(found.items()):
            lines += [f"# TYPE sfumato_{name} {kind}", f"sfumato_{name} {value:.15g}"]
    media = "text/plain; version=0.0.4; charset=utf-8"
    return PlainTextResponse("\n".join(lines) + "\n", media_type=media)


async def _answer_description(request: Request) -> Response:
    base = find_service(request).settings.base
    return JSONResponse(read_description() | ({"servers": [{"url": base}]} if base else {}))


ROUTES = [
    *(_make_route(*key, operation) for key, operation in list_operations(read_description()).items()),
    Route("/mcp", answer_agent, methods=["POST"]),
    Route("/openapi.json", _answer_description),
    Route("/healthz", _answer_health),
    Route("/readyz", _answer_readiness),
    Route("/metrics", _answer_metrics),
]
