"""The Model Context Protocol for agents: streamable HTTP, one JSON-RPC request and one reply at a time.

No session and no stream of the server's own: every request says with its token who asks.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from sfumato.core import __version__
from sfumato.core.errors import SfumatoError
from sfumato.serve.web import api
from sfumato.serve.web.exchange import find_asker, find_service, parse_json, read_body, refuse_fields

if TYPE_CHECKING:
    from sfumato.serve.service import Service
    from sfumato.serve.state import User

VERSIONS = ("2025-11-25", "2025-06-18", "2025-03-26")
"""The versions of the protocol that begin with `initialize`."""

STATELESS = "2026-07-28"
"""The version in which every request says by itself what the others say at the beginning."""

_DESCRIPTION = json.loads(files(__package__).joinpath("agents.json").read_text("utf-8"))
_TOOLS: list[dict[str, Any]] = _DESCRIPTION.pop("tools")  # leaves capabilities and instructions
_SERVER = {"name": "sfumato", "title": "sfumato", "version": __version__}
_FRESH = {"ttlMs": 0, "cacheScope": "private"}


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
    match method:
        case "server/discover" if version == STATELESS:
            result: dict[str, Any] = {"supportedVersions": [STATELESS, *VERSIONS], **_DESCRIPTION, **_FRESH}
        case "initialize":
            asked = given.get("protocolVersion")
            spoken = asked if asked in VERSIONS else VERSIONS[0]
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
            result = await _call(_ANSWERS[called], find_service(request), asker.user, arguments)
        case _:
            return _fail(number, -32601, "no such method", status=404 if version == STATELESS else 200)
    if version == STATELESS:
        result |= {"resultType": "complete", "_meta": {"io.modelcontextprotocol/serverInfo": _SERVER}}
    return JSONResponse({"jsonrpc": "2.0", "id": number, "result": result})


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


async def _ask(service: Service, user: User, given: dict[str, Any]) -> dict[str, Any]:
    # There is no session to hold an agent to, so that what bounds one bounds every question of an agent.
    limit = service.settings.session_budget
    return await api.ask(service, user, given if limit is None else {"at_most": limit, **given})


_ANSWERS: dict[Any, Callable[..., Awaitable[dict[str, Any]]]] = {
    "tables": api.list_tables,
    "explain": api.explain,
    "ask": _ask,
    "budget": api.read_budget,
}


def _fail(number: object, code: int, message: str, *, status: int = 200, data: object = None) -> Response:
    error = {"code": code, "message": message} | ({} if data is None else {"data": data})
    return JSONResponse({"jsonrpc": "2.0", "id": number, "error": error}, status)


ROUTES = [Route("/mcp", answer_agent, methods=["POST"])]
