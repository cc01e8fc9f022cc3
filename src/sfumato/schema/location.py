"""Where records and ledgers may be: files beside the project file, or servers named by a URL."""

from __future__ import annotations

from typing import Literal
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from sfumato.errors import SchemaError

Place = Literal["file", "postgres", "spark"]

_SECRETS = ("password", "sslpassword", "oauth_client_secret", "scram_client_key", "scram_server_key")
_TOLD = ("host", "port", "dbname", "service", "table")


def find_place(location: str) -> Place:
    """The kind of place that `location` names, told by how it begins.

    >>> find_place("postgresql://db.example.org/city?table=public.trips"), find_place("trips.parquet")
    ('postgres', 'file')
    """
    lowered = location.lower()
    if lowered.startswith(("postgresql:", "postgres:")):
        return "postgres"
    return "spark" if lowered.startswith("spark:") else "file"


def check_location(location: str, *, where: str) -> None:
    """Raises an error if a URL holds a secret: project files are shared and kept."""
    if find_place(location) != "postgres":
        return
    try:
        parts = urlsplit(location)
        written = ":" in parts.netloc.rpartition("@")[0]
        keys = {key.lower() for key, _ in parse_qsl(parts.query, keep_blank_values=True)}
    except ValueError:
        raise SchemaError(f"{where} is no URL; write postgresql://host/database?table=schema.name") from None
    if written or keys & set(_SECRETS):
        raise SchemaError(
            f"{where} holds a password, which would be kept with the project; remove it and give it in "
            "PGPASSWORD, in ~/.pgpass or in a service file (service=NAME)"
        )
    if not location.lower().startswith(("postgresql://", "postgres://")):
        raise SchemaError(f"{where} must begin with postgresql://")


def public_location(location: str) -> str:
    """`location` as releases tell it: without the user and the options of a URL.

    >>> public_location("postgresql://ana@db:5432/city?table=public.trips&sslmode=require")
    'postgresql://db:5432/city?table=public.trips'
    """
    if find_place(location) != "postgres":
        return location
    parts = urlsplit(location)
    host = parts.netloc.rpartition("@")[2]
    told = [(key, value) for key, value in parse_qsl(parts.query) if key in _TOLD]
    query = urlencode(told, quote_via=quote, safe="/.")
    return f"postgresql://{host}{parts.path}" + (f"?{query}" if query else "")
