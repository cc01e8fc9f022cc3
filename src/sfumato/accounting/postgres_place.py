"""The URL of a ledger in PostgreSQL: what it may say, and what must stay out of it."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from sfumato.errors import LedgerError

if TYPE_CHECKING:
    from collections.abc import Mapping

_DEFAULT_SCHEMA = "sfumato"
# What says how to reach the server. Settings of the session are the ledger's own business.
_PARAMETERS = (
    "channel_binding",
    "gssencmode",
    "host",
    "passfile",
    "port",
    "service",
    "sslcert",
    "sslkey",
    "sslmode",
    "sslrootcert",
    "target_session_attrs",
    "user",
)
_SECRETS = {"password", "sslpassword"}


@dataclass(frozen=True, slots=True, kw_only=True)
class PostgresPlace:
    """Which server, database and schema; `name` is for messages and holds neither user nor password."""

    url: str = field(repr=False)
    parameters: Mapping[str, str] = field(repr=False)
    schema: str
    name: str


def parse_place(url: str) -> PostgresPlace:
    """The place that a URL names; refuses one that holds a password.

    >>> parse_place("postgresql://ana@db.example.org:5433/privacy").name
    'postgresql://db.example.org:5433/privacy?schema=sfumato'
    """
    try:
        parts = urlsplit(url)
        given = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=True) if parts.query else []
        port, secret = parts.port, parts.password is not None
    except ValueError:
        raise LedgerError(_form("its URL cannot be read")) from None
    if secret or _SECRETS & {key for key, _ in given}:
        raise LedgerError(
            "the URL of a ledger must not hold a password; remove it, and give it in PGPASSWORD, "
            "in ~/.pgpass or in a service file (?service=NAME)"
        )
    query = dict(given)
    if parts.fragment or len(query) != len(given) or not set(query) <= {*_PARAMETERS, "schema"}:
        allowed = ", ".join(("schema", *_PARAMETERS))
        raise LedgerError(_form(f"after the question mark it may say, each once: {allowed}"))
    schema = query.pop("schema", _DEFAULT_SCHEMA)
    if not re.fullmatch(r"[a-z_][a-z0-9_]{0,62}", schema) or schema.startswith("pg_"):
        raise LedgerError(_form("schema is a name of small letters, digits and underscores, not pg_..."))
    if schema in ("public", "information_schema"):
        raise LedgerError(_form("a ledger has a schema to itself, which 'public' is not"))
    parameters = _merge(parts, port, query)
    if "," in parameters.get("host", "") or "," in parameters.get("port", ""):
        raise LedgerError(_form("it names several servers; a ledger has one"))
    return PostgresPlace(url=url, parameters=parameters, schema=schema, name=_tell(parameters, schema))


def _merge(parts: SplitResult, port: int | None, query: Mapping[str, str]) -> dict[str, str]:
    stated = {
        "user": unquote(parts.username or ""),
        "host": unquote(parts.hostname or ""),
        "port": "" if port is None else str(port),
        "dbname": unquote(parts.path.removeprefix("/")),
    }
    return {key: value for key, value in {**stated, **query}.items() if value}


def _tell(parameters: Mapping[str, str], schema: str) -> str:
    host, port = parameters.get("host", ""), parameters.get("port", "")
    local = host.startswith("/")  # the folder of a socket, which tells nobody more than "here"
    where = ("" if local else host) + (f":{port}" if port else "")
    service = f"service={parameters['service']}&" if "service" in parameters else ""
    return f"postgresql://{where}/{parameters.get('dbname', '')}?{service}schema={schema}"


def _form(fault: str) -> str:
    return f"[budget] ledger: {fault}. It is written postgresql://USER@HOST/DATABASE?schema=NAME"
