"""Requests and replies of the web: what may be sent, who sends it, and how a failure is told."""

from __future__ import annotations

import asyncio
import base64
import datetime
import hmac
import json
import math
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from importlib.resources import files
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request

from sfumato.core.errors import SfumatoError

if TYPE_CHECKING:
    import pyarrow as pa

    from sfumato.serve.service import Service
    from sfumato.serve.state import User

MOST_BODY = 2**20  # bytes
_MOST_DEPTH = 32  # of JSON; much deeper would exhaust the parser's stack
_MOST_FIELDS = 4000
_SECONDS = 30.0  # that a body may take to arrive
_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "number": (int, float),
    "integer": (int,),
    "boolean": (bool,),
    "null": (type(None),),
    "array": (),
}
_TEXTS = re.compile(rb'"(?:[^"\\]|\\.)*+"', re.DOTALL)

WORDS: dict[str, dict[str, Any]] = tomllib.loads(files(__package__).joinpath("words.toml").read_text("utf-8"))
"""Words and lists of the pages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asker:
    """Who sends a request; `csrf` is the token of their session, None if they came with a bearer token."""

    user: User
    csrf: str | None


def find_service(request: Request) -> Service:
    """Returns the service behind the doors."""
    service: Service = request.app.state.service
    return service


def name_cookie(request: Request) -> str:
    """Returns the session's cookie, of its base; over TLS the prefix keeps other hosts from setting it."""
    base = find_service(request).settings.base
    prefix = ("__Secure-" if base else "__Host-") if request.scope["scheme"] == "https" else ""
    return f"{prefix}sfumato{base.replace('/', '-')}"


async def find_asker(request: Request) -> Asker | None:
    """Returns who asks: by a bearer token, else by the cookie of a session."""
    service = find_service(request)
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    if scheme:
        user = (
            await run_in_threadpool(service.check_token, token.strip())
            if scheme.lower() == "bearer"
            else None
        )
        return None if user is None else Asker(user=user, csrf=None)
    secret = request.cookies.get(name_cookie(request))
    found = await run_in_threadpool(service.state.find_session, secret) if secret else None
    return None if found is None else Asker(user=found[0], csrf=found[1])


async def require_asker(request: Request, *, csrf: str | None = None) -> Asker:
    """Returns who asks; what changes something needs the token of the session, in a header or as `csrf`."""
    asker = await find_asker(request)
    if asker is None:
        headers = {"WWW-Authenticate": "Bearer"}
        raise HTTPException(401, "sign in, or send `Authorization: Bearer TOKEN`", headers=headers)
    if asker.csrf is not None and request.method not in ("GET", "HEAD"):
        given = request.headers.get("x-csrf-token") if csrf is None else csrf
        if not hmac.compare_digest((given or "").encode(), asker.csrf.encode()):
            raise HTTPException(403, "the form is too old or came from elsewhere; load the page again")
    return asker


def check_origin(headers: Mapping[str, str], *, names: Sequence[str] = ()) -> str | None:
    """Returns why a request that changes something must be refused: a page of another site sent it.

    `names` are the server's own, which a proxy need not pass on as the host.
    """
    if headers.get("sec-fetch-site", "none") not in ("same-origin", "none"):
        return "requests from pages of other sites are refused"
    origin = headers.get("origin")
    place = (origin or "").partition("://")[2].lower()
    own = place == headers.get("host", "").lower() or re.sub(r":\d+$", "", place) in names
    if origin is not None and not own:
        return "requests from pages of other origins are refused"
    return None


async def read_body(request: Request) -> bytes:
    """Returns the body of a request, if it is not too long, sent within half a minute."""
    too_large = HTTPException(413, f"a request may have {MOST_BODY:,} bytes")
    length = request.headers.get("content-length", "0")
    if not length.isdecimal() or int(length) > MOST_BODY:
        raise too_large
    parts, size = [], 0
    try:
        async with asyncio.timeout(_SECONDS):
            async for part in request.stream():
                size += len(part)
                if size > MOST_BODY:
                    raise too_large
                parts.append(part)
    except TimeoutError:
        raise HTTPException(408, "the request was not sent in time") from None
    return b"".join(parts)


def parse_json(body: bytes) -> Any:  # noqa: ANN401 - any JSON
    """Returns the JSON in `body`: nested a little, no infinite numbers.

    >>> parse_json(b'{"a": [1, 0.5]}')
    {'a': [1, 0.5]}
    """
    depth = 0
    for sign in re.findall(rb"[][{}]", _TEXTS.sub(b"", body)):
        depth += 1 if sign in b"[{" else -1
        if depth > _MOST_DEPTH:
            raise HTTPException(400, f"JSON may be nested {_MOST_DEPTH} deep")
    try:
        sent = json.loads(body, parse_constant=_refuse_constant)
        if b"\\u" in body:
            json.dumps(sent, ensure_ascii=False).encode()  # half a surrogate pair is no text
    except (ValueError, RecursionError):
        raise HTTPException(400, "the request is no JSON") from None
    return sent


async def read_json(request: Request, schema: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the JSON object that was sent, held to `schema`."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise HTTPException(415, "send JSON, with `Content-Type: application/json`")
    sent = parse_json(await read_body(request))
    reason = refuse_fields(sent, schema)
    if reason is not None:
        raise HTTPException(422, reason)
    fields: dict[str, Any] = sent
    return fields


def refuse_fields(sent: object, schema: Mapping[str, Any]) -> str | None:
    """Returns why `sent` is not an object of `schema`; None if it is one.

    >>> refuse_fields({"sql": 5}, {"properties": {"sql": {"type": "string"}}, "required": ["sql"]})
    "'sql' must be string"
    """
    known = schema["properties"]
    if not isinstance(sent, dict):
        return "send a JSON object"
    for key in sent:
        if key not in known:
            return f"unknown key {str(key)[:40]!r}; known: {', '.join(known) or 'none'}"
    for key in schema.get("required", ()):
        if key not in sent:
            return f"the key {key!r} is needed"
    for key, value in sent.items():
        if not _fits(value, known[key]):
            kinds = known[key].get("enum") or known[key]["type"]
            return f"{key!r} must be {kinds if isinstance(kinds, str) else ' or '.join(kinds)}"
    return None


def _fits(value: object, schema: Mapping[str, Any]) -> bool:
    if "enum" in schema:
        return value in schema["enum"]
    kinds = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    if isinstance(value, list):
        return "array" in kinds and all(_fits(each, schema["items"]) for each in value)
    return any(type(value) in _TYPES[kind] for kind in kinds)


async def read_form(request: Request) -> dict[str, list[str]]:
    """Returns the fields of a form that a page sent."""
    try:
        body = (await read_body(request)).decode()
        plain = re.sub("%0d%0a", "%0A", body, flags=re.IGNORECASE)  # line breaks as they were typed
        return parse_qs(plain, keep_blank_values=True, errors="strict", max_num_fields=_MOST_FIELDS)
    except ValueError:
        raise HTTPException(400, "the form cannot be read") from None


def field(form: Mapping[str, list[str]], name: str) -> str:
    """Returns the field `name` of a form without spaces around it, or an empty text."""
    return form.get(name, [""])[0].strip()


def find_status(error: Exception) -> tuple[int, str]:
    """Returns the HTTP status of a failure, and the name of its kind.

    >>> from sfumato.core.errors import UnsupportedQuery
    >>> find_status(UnsupportedQuery("no"))
    (422, 'UnsupportedQuery')
    """
    if isinstance(error, HTTPException):
        return error.status_code, WORDS["failures"].get(str(error.status_code), "Failure")
    if isinstance(error, SfumatoError):
        kinds = [kind.__name__ for kind in type(error).__mro__]
        return next(WORDS["statuses"][kind] for kind in kinds if kind in WORDS["statuses"]), kinds[0]
    return 500, "Failure"


def describe_error(error: Exception) -> dict[str, Any]:
    """Returns a failure as the API tells it; of an unforeseen one only that it happened."""
    kind = find_status(error)[1]
    if isinstance(error, HTTPException):
        message = error.detail
    elif isinstance(error, SfumatoError):
        message = str(error)
    else:
        message = "something failed that should not; the server's log names it"
    record: dict[str, Any] = {"kind": kind, "message": message}
    number = getattr(error, "number", None)
    return {"error": record if number is None else {**record, "number": number}}


def to_plain(value: Any) -> Any:  # noqa: ANN401 - walks any tree
    """Returns `value` as JSON has it: fractions as numbers, dates as text, nothing for what is no number.

    >>> to_plain({"spent": Fraction(1, 10), "rows": [(float("nan"), datetime.date(2025, 1, 31))]})
    {'spent': 0.1, 'rows': [[None, '2025-01-31']]}
    """
    if value is None or isinstance(value, (str, bool, int)):
        return value
    if isinstance(value, (float, Fraction, Decimal)):
        number = float(value)
        return number if math.isfinite(number) else None
    if isinstance(value, Mapping):
        return {str(key): to_plain(each) for key, each in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [to_plain(each) for each in value]
    if isinstance(value, (datetime.date, datetime.time)):
        return value.isoformat()
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return str(value)


def list_rows(table: pa.Table, *, most: int | None = None) -> list[list[Any]]:
    """Returns the rows of a table as JSON has them, the first ones if there are more than `most`."""
    shown = table if most is None else table.slice(0, most)
    columns = [to_plain(column.to_pylist()) for column in shown.columns]
    return [list(row) for row in zip(*columns, strict=True)]


def _refuse_constant(_: str) -> None:
    raise ValueError
