"""`[serve]` of the project file: where a server listens, and what it allows."""

from __future__ import annotations

import ipaddress
import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

from sfumato.core.errors import SchemaError
from sfumato.core.exact import parse_positive
from sfumato.core.facts.column import refuse_unknown_keys
from sfumato.core.facts.project import Project
from sfumato.serve.oidc import Oidc, is_safe, read_oidc

_PORTS = range(65536)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How a project is served.

    `certificate` and `key` are files of a TLS certificate, needed wherever others than this machine may
    connect; `names` are the names under which it is reached. What costs more than epsilon `approve_above`
    waits for a steward, and so does what takes anybody's charges of 24 hours above `approve_daily`; with
    `approve_stewards` stewards wait for another one, too. `session_budget` is the most that one connection or
    agent may spend unless it says otherwise, `per_minute` the questions of one person in a minute,
    `connections` all at once, `workers` the new questions that are answered at a time. `releases` is the
    folder where releases are published, `reply_every` the first reply time in seconds (docs/proofs/serve.md).
    Whatever waits for an approval is told to `webhook`, without what it is.
    Pages stand at the path `base` of their host, and `projects` are the folders of more of them, by name.
    The audit log begins a new file after `audit_megabytes`, and keeps `audit_files` besides.
    """

    host: str = "127.0.0.1"
    http_port: int = 8439
    pg_port: int = 5439
    certificate: str | None = None
    key: str | None = None
    names: tuple[str, ...] = ()
    approve_above: Fraction | None = None
    approve_daily: Fraction | None = None
    approve_stewards: bool = False
    session_budget: Fraction | None = None
    per_minute: int = 3000
    connections: int = 500
    workers: int = 4
    audit_megabytes: int = 64
    audit_files: int = 100
    releases: str = "releases"
    reply_every: float = 0.05
    behind_proxy: bool = False
    base: str = ""
    projects: Mapping[str, str] = field(default_factory=dict)
    oidc: Oidc | None = None
    webhook: str | None = None

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can connect."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False


def read_settings(project: Project, **given: object) -> Settings:
    """Returns the settings of `project`; what is `given` on the command line and not None takes their place.

    >>> from sfumato.core.facts.project import parse_project
    >>> document = {"budget": {"epsilon": 1}, "tables": {"t": {"source": "t.csv", "unit": "row"}}}
    >>> project = parse_project(document | {"serve": {"pg_port": 6000}}, folder=Path())
    >>> settings = read_settings(project, http_port=6001)
    >>> settings.pg_port, settings.http_port
    (6000, 6001)
    """
    known = {each.name for each in fields(Settings)}
    refuse_unknown_keys(project.serve, tuple(sorted(known)), where="[serve]")
    wanted = {**project.serve, **{key: value for key, value in given.items() if value is not None}}
    oidc = wanted.pop("oidc", None)
    parsed: dict[str, Any] = {key: _parse(key, value) for key, value in wanted.items()}
    settings = replace(Settings(), **parsed)
    if oidc is not None:
        settings = replace(settings, oidc=read_oidc(oidc, base=settings.base))
    if (settings.certificate is None) != (settings.key is None):
        raise SchemaError("[serve] needs both certificate and key, or neither")
    if not settings.is_loopback and settings.certificate is None and not settings.behind_proxy:
        raise SchemaError(
            f"[serve] host = {settings.host!r} lets other machines connect, so it needs TLS: give "
            "certificate and key (files in PEM form), or behind_proxy = true if a proxy before it ends TLS"
        )
    return settings


def read_mounted(project: Project, main: Settings, name: str | None = None) -> Settings:
    """Returns the settings of a project whose server listens as `main` says, as its project `name` if given.

    >>> from sfumato.core.facts.project import parse_project
    >>> document = {"budget": {"epsilon": 1}, "tables": {"t": {"source": "t.csv", "unit": "row"}}}
    >>> read_mounted(parse_project(document, folder=Path()), Settings(base="/dp"), "heart").base
    '/dp/p/heart'
    """
    given: dict[str, Any] = {key: getattr(main, key) for key in _OF_SERVER}
    if name is not None:
        given |= {"base": f"{main.base}/p/{name}", "projects": {}}
    return read_settings(project, **given)


_OF_SERVER = (  # what a server that runs does not change
    "host",
    "http_port",
    "pg_port",
    "certificate",
    "key",
    "names",
    "behind_proxy",
    "base",
    "projects",
    "workers",
    "connections",
)


def load_tls(settings: Settings, folder: Path) -> ssl.SSLContext | None:
    """Returns what encrypts connections, from the files that the settings name; None if there are none."""
    if settings.certificate is None or settings.key is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(folder / settings.certificate, folder / settings.key)
    except (OSError, ssl.SSLError) as error:
        raise SchemaError(f"[serve] certificate or key cannot be used ({type(error).__name__})") from None
    return context


def _parse(key: str, value: Any) -> object:  # noqa: ANN401 - as TOML or a command line gives it
    if key == "webhook":
        if not is_safe(value):
            raise SchemaError("[serve] webhook is an address that begins with https://, but on this machine")
        return value
    if key in ("approve_above", "approve_daily", "session_budget"):
        return parse_positive(value, name=f"[serve] {key}")
    if key == "base":
        if not isinstance(value, str) or not re.fullmatch(r"(/[A-Za-z0-9_~-][A-Za-z0-9._~-]*)*", value):
            raise SchemaError(
                "[serve] base is the path of the pages, such as /sfumato, without a slash at its end"
            )
        return value
    if key == "projects":
        if not isinstance(value, Mapping) or not all(
            re.fullmatch(r"[A-Za-z0-9_-]{1,60}", name) and isinstance(folder, str)
            for name, folder in value.items()
        ):
            raise SchemaError('[serve.projects] has a folder for each name, such as heart = "../heart"')
        return dict(value)
    if key == "names":
        if not isinstance(value, (list, tuple)) or not all(isinstance(name, str) for name in value):
            raise SchemaError("[serve] names is a list of host names")
        return tuple(name.lower() for name in value)
    if key in ("behind_proxy", "approve_stewards"):
        if not isinstance(value, bool):
            raise SchemaError(f"[serve] {key} is true or false")
        return value
    if key == "reply_every":
        seconds = float(parse_positive(value, name=f"[serve] {key}"))
        if not 0.001 <= seconds <= 60:
            raise SchemaError("[serve] reply_every is a number of seconds from 0.001 to 60")
        return seconds
    if isinstance(getattr(Settings(), key), int):
        if not isinstance(value, int) or isinstance(value, bool) or value < (0 if "port" in key else 1):
            raise SchemaError(f"[serve] {key} is a whole number")
        if "port" in key and value not in _PORTS:
            raise SchemaError(f"[serve] {key} is a port, at most 65535")
        return value
    if not isinstance(value, str) or not value:
        raise SchemaError(f"[serve] {key} is a text")
    return value
