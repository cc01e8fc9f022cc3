"""The JSON API in OpenAPI 3.1, described from the same rows as its routes; requests are held to it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from sfumato._version import __version__

if TYPE_CHECKING:
    from sfumato.serve.web.api import Endpoint

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
    """The OpenAPI document."""
    paths: dict[str, dict[str, Any]] = {}
    for endpoint in endpoints:
        paths.setdefault(plain_path(endpoint.path), {})[endpoint.method.lower()] = _describe(endpoint)
    for path, summary in (
        ("/healthz", "Whether the process lives"),
        ("/readyz", "Whether it can answer"),
        ("/metrics", "Counters for Prometheus, without data"),
    ):
        told = {"description": "text", "content": {"text/plain": {"schema": _TEXT}}}
        paths[path] = {"get": {"summary": summary, "security": [], "responses": {"200": told}}}
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
    """A path of a route as OpenAPI writes it.

    >>> plain_path("/api/jobs/{number:int}")
    '/api/jobs/{number}'
    """
    return re.sub(r":\w+}", "}", path)


def _describe(endpoint: Endpoint) -> dict[str, Any]:
    responses: dict[str, Any] = {
        code: {"description": said, "content": _content("Error")} for code, said in _FAILURES.items()
    }
    responses[str(endpoint.status)] = {"description": endpoint.summary, "content": _content(endpoint.reply)}
    path = plain_path(endpoint.path)
    named = f"{endpoint.method.lower()}{path.removeprefix('/api')}"
    told: dict[str, Any] = {
        "summary": endpoint.summary,
        "operationId": re.sub(r"\W+", "_", named).strip("_"),
        "responses": dict(sorted(responses.items())),
    }
    inside = re.findall(r"{(\w+)}", path)
    if inside:
        told["parameters"] = [
            {"name": name, "in": "path", "required": True, "schema": _TEXT} for name in inside
        ]
    if endpoint.body is not None:
        told["requestBody"] = {"required": True, "content": _content(endpoint.body)}
    return told


def _content(name: str) -> dict[str, Any]:
    if "/" in name:
        return {name: {"schema": _TEXT}}
    return {"application/json": {"schema": {"$ref": f"#/components/schemas/{name}"}}}
