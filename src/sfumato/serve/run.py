"""One process that serves a project: its doors opened, watched over, and closed in order."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import uvicorn
from cryptography import x509
from uvicorn.protocols.http.h11_impl import H11Protocol

from sfumato.core.errors import SfumatoError, SourceError
from sfumato.curator import open_project
from sfumato.serve.facts import AUDIT_FILE, list_audit_files
from sfumato.serve.service import Service
from sfumato.serve.settings import Settings, load_tls, read_mounted
from sfumato.serve.state import open_state
from sfumato.serve.turns import choose_silent
from sfumato.serve.web.app import make_app
from sfumato.serve.wire.server import WireServer, load_certificate
from sfumato.serve.wire.session import Limits

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from sfumato.curator import Curator


class Log:
    """Events as lines of JSON, in files of a bounded size and number and, if asked, on a stream."""

    def __init__(self, path: Path, *, settings: Settings, stream: TextIO | None = None) -> None:
        self._path = path
        self._settings = settings
        path.touch(mode=0o600)
        path.chmod(0o600)  # it names people, and where they ask from
        self._stream = stream
        self._guard = threading.Lock()

    def __call__(self, event: dict[str, Any]) -> None:
        """Appends one event; a disk that is full must not stop an answer."""
        line = json.dumps({"at": datetime.now(UTC).isoformat(timespec="milliseconds"), **event}, default=str)
        with self._guard:
            with contextlib.suppress(OSError):
                if self._path.exists() and self._path.stat().st_size > 10**6 * self._settings.audit_megabytes:
                    self._rotate()
            with (
                contextlib.suppress(OSError),
                # Opened for each line, so that other servers and programs may rotate it, too.
                open(
                    self._path, "a", encoding="utf-8", opener=lambda at, how: os.open(at, how, 0o600)
                ) as file,
            ):
                file.write(line + "\n")
            if self._stream is not None:
                with contextlib.suppress(OSError):
                    self._stream.write(line + "\n")
                    self._stream.flush()

    def _rotate(self) -> None:
        """Sets the file aside under the time it ends at, and removes the oldest ones that are too many."""
        self._path.rename(self._path.with_name(f"audit-{datetime.now(UTC):%Y%m%dT%H%M%S%f}.jsonl"))
        for old in list_audit_files(self._path.parent)[: -self._settings.audit_files]:
            old.unlink(missing_ok=True)


def run_server(
    curator: Curator,
    settings: Settings,
    *,
    announce: Callable[[dict[str, str]], None],
    log_stream: TextIO | None = None,
    link: str | None = None,
) -> None:
    """Serves until it is stopped; what was charged by then is finished and stored.

    `announce` is called with the addresses once all doors are open: among them a one-time link for the
    steward that `link` names, for the only one if it is empty, and none if it is None.
    """
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_serve(curator, settings, announce=announce, log_stream=log_stream, link=link))


async def _serve(
    curator: Curator,
    settings: Settings,
    *,
    announce: Callable[[dict[str, str]], None],
    log_stream: TextIO | None,
    link: str | None,
) -> None:
    folder = curator.project.folder
    tls = load_tls(settings, folder)
    service = _open_service(curator, settings, log_stream)
    projects = {}
    for name, place in settings.projects.items():
        mounted = open_project(folder / place / "sfumato.toml")
        projects[name] = _open_service(mounted, read_mounted(mounted.project, settings, name), log_stream)
    secret = None if link is None else service.make_steward_link(link)
    wire = WireServer(
        service=service,
        projects=projects,
        tls=tls,
        certificate=_read_certificate(service, folder),
        plain=settings.behind_proxy,
        limits=Limits(connections=settings.connections),
    )
    http = _make_http(make_app(service, projects), settings, folder)
    try:
        listening = await asyncio.start_server(
            wire.serve, settings.host, settings.pg_port, backlog=settings.connections
        )
    except OSError:
        raise SourceError(
            f"port {settings.pg_port} cannot be opened; choose another with --pg-port"
        ) from None
    stop, again = asyncio.Event(), asyncio.Event()
    # A terminal that is closed ends the server; who keeps it running sends this to have its files read again.
    terminal = any(stream.isatty() for stream in (sys.stdin, sys.stdout) if stream is not None)
    for name, event in {"SIGINT": stop, "SIGTERM": stop, "SIGHUP": stop if terminal else again}.items():
        with contextlib.suppress(NotImplementedError, AttributeError):  # Windows
            asyncio.get_running_loop().add_signal_handler(getattr(signal, name), event.set)
    serving = asyncio.create_task(_run_http(http))
    while not http.started and not serving.done():
        await asyncio.sleep(0.01)
    if serving.done():
        listening.close()
        serving.result()
        raise SourceError(f"port {settings.http_port} cannot be opened; choose another with --http-port")
    services = (service, *projects.values())
    for each in services:
        each.resume_jobs()
    announce(_addresses(settings, http, listening, link=secret))
    service.note("start", "")

    async def reload() -> None:
        while await again.wait():
            again.clear()
            try:
                load_tls(settings, folder)
                for context in (tls, http.config.ssl):
                    if context is not None and settings.certificate and settings.key:
                        context.load_cert_chain(folder / settings.certificate, folder / settings.key)
                wire.renew(_read_certificate(service, folder))
            except (SfumatoError, OSError) as error:
                service.note("reload", "", outcome="refused", text=str(error))
                continue
            for each in services:
                with contextlib.suppress(SfumatoError, OSError):  # which the log tells
                    await each.reload("")

    reloading = asyncio.create_task(reload())
    stopped = asyncio.create_task(stop.wait())
    await asyncio.wait({stopped, serving}, return_when=asyncio.FIRST_COMPLETED)
    reloading.cancel()
    listening.close()
    await asyncio.gather(*(each.close() for each in services))
    await wire.close()
    http.should_exit = True
    await serving
    service.note("stop", "")


def _open_service(curator: Curator, settings: Settings, log_stream: TextIO | None) -> Service:
    log = Log(curator.project.folder / AUDIT_FILE, settings=settings, stream=log_stream)
    curator.budget()  # a ledger that cannot be used is noticed before anybody connects
    service = Service(curator, settings=settings, state=open_state(curator.project), log=log)
    service.catalog  # noqa: B018 - made before anybody waits for it
    return service


def _read_certificate(service: Service, folder: Path) -> bytes | None:
    if service.settings.certificate is None:
        return None
    found = load_certificate((folder / service.settings.certificate).read_text(encoding="ascii"))
    ends = x509.load_der_x509_certificate(found).not_valid_after_utc
    service.gauges["certificate_ends"] = ends.timestamp()
    return found


def _make_http(app: ASGIApp, settings: Settings, folder: Path) -> uvicorn.Server:
    files = {}
    if settings.certificate is not None and settings.key is not None:
        files = {"ssl_certfile": folder / settings.certificate, "ssl_keyfile": str(folder / settings.key)}
    config = uvicorn.Config(
        app,
        host=settings.host,
        port=settings.http_port,
        http=PatientProtocol,
        log_config=None,
        access_log=False,
        server_header=False,
        limit_concurrency=settings.connections,
        timeout_keep_alive=30,
        timeout_graceful_shutdown=2,  # who still follows a job; questions are answered by then
        h11_max_incomplete_event_size=64 * 1024,
        proxy_headers=settings.behind_proxy,
        lifespan="off",
        ws="none",
        **files,  # type: ignore[arg-type]
    )
    return uvicorn.Server(config)


async def _run_http(server: uvicorn.Server) -> None:
    # Signals are ours: what was charged is finished before the doors close.
    try:
        await server._serve()
    except SystemExit:
        return


def _addresses(
    settings: Settings, http: uvicorn.Server, listening: asyncio.Server, *, link: str | None
) -> dict[str, str]:
    http_port = http.servers[0].sockets[0].getsockname()[1]
    pg_port = listening.sockets[0].getsockname()[1]
    host = settings.names[0] if settings.names else settings.host
    shown = f"[{host}]" if ":" in host else host
    page = f"{'https' if settings.certificate else 'http'}://{shown}:{http_port}{settings.base}"
    return {
        "page": page,
        **({} if link is None else {"steward": f"{page}/enter?link={link}"}),
        "api": f"{page}/openapi.json",
        "agents": f"{page}/mcp",
        **{f"project {name}": f"{page}/p/{name}" for name in settings.projects},
        "postgresql": f"host={host} port={pg_port}",
        "http_port": str(http_port),
        "pg_port": str(pg_port),
    }


_PATIENCE = 30.0
"""How long a connection may take from its beginning, or a request from its first byte, to its headers end."""


class PatientProtocol(H11Protocol):
    """HTTP/1.1 that waits for requests only so long; uvicorn itself waits for ever once a byte has come."""

    _late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begins to wait for the first request; where there are too many, lets go one that waits."""
        super().connection_made(transport)
        self._since = self.loop.time()
        alive = (each for each in self.connections if isinstance(each, PatientProtocol))
        living = [each for each in alive if not each.transport.is_closing()]
        if self.limit_concurrency is not None and len(living) >= self.limit_concurrency:
            living.sort(key=lambda each: each._since)
            waiting = {each: each.client[0] if each.client else "" for each in living if each._is_silent}
            silent = choose_silent(waiting)
            if silent is not None:
                silent.transport.abort()
        self._wait()

    def data_received(self, data: bytes) -> None:
        """Goes on to wait while the request is not there."""
        super().data_received(data)
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        """Waits no more."""
        if self._late is not None:
            self._late.cancel()
        super().connection_lost(exc)

    @property
    def _is_silent(self) -> bool:
        """Whether the client owes a request, or the rest of one."""
        return self._is_waiting or bool(self.cycle.more_body)

    @property
    def _is_waiting(self) -> bool:
        return self.cycle is None or bool(self.cycle.response_complete)

    def _wait(self) -> None:
        if not self._is_waiting and self._late is not None:
            self._late.cancel()
            self._late = None
        elif self._is_waiting and self._late is None:
            self._late = self.loop.call_later(_PATIENCE, self._give_up)

    def _give_up(self) -> None:
        self._late = None
        if self._is_waiting and not self.transport.is_closing():
            self.transport.close()
