"""Connections from their first byte to their login, and those that only cancel.

The login is SCRAM-SHA-256 (RFC 5802, RFC 7677), with channel binding to the certificate (RFC 5929).
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import hmac
import ipaddress
import secrets
import ssl
import struct
from collections.abc import Mapping
from typing import TYPE_CHECKING

from cryptography import x509

from sfumato.core.exact import format_exact
from sfumato.serve.service import CALLER
from sfumato.serve.turns import Turns, choose_silent
from sfumato.serve.wire.answers import explain_failure
from sfumato.serve.wire.asking import Asker
from sfumato.serve.wire.commands import read_options
from sfumato.serve.wire.messages import Body, Refusal, Stream, cstring, error_response, message
from sfumato.serve.wire.session import Limits, Session
from sfumato.serve.wire.session_settings import EPSILON, SessionSettings

if TYPE_CHECKING:
    from sfumato.serve.service import Service
    from sfumato.serve.state import Verifier


MECHANISM = "SCRAM-SHA-256"
MECHANISM_PLUS = "SCRAM-SHA-256-PLUS"
_BINDING = "tls-server-end-point"


def hash_certificate(certificate: bytes) -> bytes | None:
    """Returns what binds a login to the TLS session: the digest of the server's certificate (DER).

    It uses the hash of the certificate's own signature, but never MD5 or SHA-1; None where the signature
    has none (Ed25519), for which no binding is defined.
    """
    algorithm = x509.load_der_x509_certificate(certificate).signature_hash_algorithm
    if algorithm is None:
        return None
    name = "sha256" if algorithm.name in ("md5", "sha1") else algorithm.name
    return hashlib.new(name, certificate).digest()


class Exchange:
    """One login: two messages of the client, two answers.

    `verifier` is that of the user who wants in, a made-up one if there is no such user; `mechanism` the one
    that the client has chosen. `binding` is the digest of the certificate, or None if channel binding was not
    offered, `nonce` the server's part of the nonce, drawn where it is not given.
    """

    def __init__(
        self, verifier: Verifier, *, mechanism: str, binding: bytes | None, nonce: str | None = None
    ) -> None:
        self._verifier = verifier
        self._plus = mechanism == MECHANISM_PLUS
        self._binding = binding
        self._nonce = nonce or secrets.token_urlsafe(18)
        self._header = ""
        self._said: list[str] = []

    def begin(self, data: bytes) -> bytes:
        """Returns the answer to the client's first message: the whole nonce, the salt and the iterations."""
        flag, _, rest = _text(data).partition(",")
        identity, _, bare = rest.partition(",")
        # "y" says: I could bind, but you did not offer it. If we did, someone took the offer away.
        unbound = flag == "n" or (flag == "y" and self._binding is None)
        fits = flag == f"p={_BINDING}" if self._plus else unbound
        parts = bare.split(",")
        if not fits or identity or len(parts) < 2 or parts[0][:2] != "n=" or parts[1][:2] != "r=":
            raise _malformed()
        self._header = f"{flag},{identity},"
        if not parts[1][2:]:
            raise _malformed()
        self._nonce = parts[1][2:] + self._nonce
        salt = base64.b64encode(self._verifier.salt).decode()
        first = f"r={self._nonce},s={salt},i={self._verifier.iterations}"
        self._said = [bare, first]
        return first.encode()

    def finish(self, data: bytes) -> bytes | None:
        """Returns the answer to the client's proof: the server's own, or None if the password is wrong."""
        bare, _, proof = _text(data).rpartition(",p=")
        fields = dict(part.split("=", 1) for part in bare.split(",") if "=" in part)
        channel = self._header.encode() + ((self._binding or b"") if self._plus else b"")
        if fields.get("r") != self._nonce:
            raise _malformed()
        if not hmac.compare_digest(_unbase64(fields.get("c", "")), channel):
            raise Refusal("28000", "the login is not bound to this TLS session", fatal=True)
        words = ",".join([*self._said, bare]).encode()
        signature = hmac.digest(self._verifier.stored_key, words, "sha256")
        given = _unbase64(proof)
        if len(given) != len(signature):
            raise _malformed()
        key = bytes(left ^ right for left, right in zip(given, signature, strict=True))
        if not hmac.compare_digest(hashlib.sha256(key).digest(), self._verifier.stored_key):
            return None
        return b"v=" + base64.b64encode(hmac.digest(self._verifier.server_key, words, "sha256"))


def _text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise _malformed() from None


def _unbase64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise _malformed() from None


def _malformed() -> Refusal:
    return Refusal("08P01", "the login does not follow SCRAM-SHA-256", fatal=True)


_SSL_REQUEST, _GSS_REQUEST, _CANCEL_REQUEST = 80877103, 80877104, 80877102
_MAJOR, _MINOR = 3, 2  # the newest version that is spoken
_STARTUP_BYTES = 10_000  # PostgreSQL's own limit
_LOGIN_BYTES = 8_192
_TLS_RECORD = 0x16  # the first byte of a handshake
_ALPN = "postgresql"
_SPARE = 100  # connections beyond the limit, for those who have not logged in yet


class WireServer:
    """PostgreSQL's protocol for a service; `serve` is the callback of asyncio.start_server.

    A database that is called as one of `projects` is that one; any other name is `service` itself.
    `tls` has the server's certificate and key; without it no connection is encrypted. `certificate` is the
    same (DER): clients may bind their login to it. `plain` says whether clients from other machines may
    connect without TLS; `limits` bound what clients may take.
    """

    def __init__(
        self,
        *,
        service: Service,
        projects: Mapping[str, Service] | None = None,
        tls: ssl.SSLContext | None = None,
        certificate: bytes | None = None,
        plain: bool = False,
        limits: Limits | None = None,
    ) -> None:
        self._service = service
        self._projects = projects or {}
        self._tls = tls
        self._binding = hash_certificate(certificate) if certificate and tls else None
        self._plain = plain
        self._limits = limits or Limits()
        self._threads = Turns(4, each=2, name="catalog")
        self._tasks: dict[asyncio.Task[None], Session | None] = {}
        self._silent: dict[asyncio.StreamWriter, str] = {}  # before their login
        self._keys: dict[int, tuple[bytes, Session]] = {}
        self._stopping = False
        if tls is not None:
            tls.set_alpn_protocols([_ALPN])
            tls.options |= ssl.OP_NO_RENEGOTIATION

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serves one connection to its end."""
        task = asyncio.current_task()
        full = len(self._tasks) >= self._limits.connections + _SPARE
        silent = choose_silent(self._silent) if full else None
        if task is None or self._stopping or (full and silent is None):
            writer.close()
            return
        if silent is not None:
            del self._silent[silent]
            silent.transport.abort()
        self._tasks[task] = None
        stream = Stream(reader, writer, patience=self._limits.write_seconds)
        host = str((writer.get_extra_info("peername") or ("",))[0])
        self._silent[writer] = host
        CALLER.set({"door": "wire", "address": host})
        try:
            session = await self._enter(stream, host=host)
            self._silent.pop(writer, None)
            if session is not None:
                await self._serve(stream, *session, task=task)
        except (ConnectionError, ssl.SSLError):
            pass  # the client left
        except asyncio.CancelledError:
            stream.send(error_response(Refusal("57P01", "the server is stopping", fatal=True)))
        except Exception as error:
            refusal = explain_failure(error)
            refusal.fatal = True
            stream.send(error_response(refusal))
        finally:
            self._silent.pop(writer, None)
            self._tasks.pop(task, None)
            await stream.close()

    def renew(self, certificate: bytes | None) -> None:
        """Has another certificate for connections to come."""
        self._binding = hash_certificate(certificate) if certificate and self._tls else None

    async def close(self) -> None:
        """Ends all connections: idle ones at once, the others when their statement is answered."""
        self._stopping = True
        for task, session in list(self._tasks.items()):
            if session is None or session.reading:
                task.cancel()
            else:
                session.stopping = True
        if self._tasks:
            await asyncio.wait(list(self._tasks))
        self._threads.close()

    async def _enter(self, stream: Stream, *, host: str) -> tuple[Session, int] | None:
        """Returns the session of who logs in, with the version they speak; None for who only cancels."""
        try:
            async with asyncio.timeout(self._limits.login_seconds):
                startup = await self._start(stream)
                if startup is None:
                    return None
                return await self._log_in(stream, startup[1], host=host), startup[0]
        except TimeoutError:
            raise Refusal("08006", "the login took too long", fatal=True) from None

    async def _serve(self, stream: Stream, session: Session, minor: int, *, task: asyncio.Task[None]) -> None:
        # Protocol 3.2 has room for a long secret, 3.0 for four bytes.
        secret = secrets.token_bytes(32 if minor >= 2 else 4)
        key = next(key for key in iter(lambda: secrets.randbelow(2**31), None) if key not in self._keys)
        self._tasks[task] = session
        self._keys[key] = secret, session
        stream.send(message(b"K", struct.pack("!i", key), secret))
        try:
            await session.run()
        finally:
            del self._keys[key]

    async def _start(self, stream: Stream) -> tuple[int, dict[str, str]] | None:
        """Gives version and parameters, after requests for encryption; None if this was to cancel."""
        if await stream.peek() == _TLS_RECORD:
            if self._tls is None:
                raise ConnectionAbortedError
            await stream.start_tls(self._tls)
            if stream.tls is None or stream.tls.selected_alpn_protocol() != _ALPN:
                raise Refusal(
                    "08P01", "TLS from the first byte needs the protocol name postgresql", fatal=True
                )
        for _ in range(3):
            length = int.from_bytes(await stream.take(4), "big")
            if not 8 <= length <= _STARTUP_BYTES:
                raise Refusal("08P01", "this is not PostgreSQL's protocol", fatal=True)
            body = Body(await stream.take(length - 4))
            code = body.int32()
            if code == _SSL_REQUEST and self._tls is not None and stream.tls is None:
                stream.send(b"S")
                await stream.flush()
                await stream.start_tls(self._tls)
            elif code in (_SSL_REQUEST, _GSS_REQUEST):
                stream.send(b"N")
                await stream.flush()
            elif code == _CANCEL_REQUEST:
                self._cancel(body.int32(), body.rest())
                return None
            else:
                return self._read_startup(stream, code, body)
        raise Refusal("08P01", "encryption was asked for too often", fatal=True)

    def _cancel(self, key: int, secret: bytes) -> None:
        known, session = self._keys.get(key, (b"", None))
        if session is not None and hmac.compare_digest(known, secret):
            session.asker.cancel()

    def _read_startup(self, stream: Stream, code: int, body: Body) -> tuple[int, dict[str, str]]:
        major, minor = divmod(code, 2**16)
        if major != _MAJOR:
            raise Refusal("0A000", "only version 3 of the protocol is spoken here", fatal=True)
        parameters: dict[str, str] = {}
        while name := body.text():
            parameters[name] = body.text()
        body.end()
        unknown = [name for name in parameters if name.startswith("_pq_.")]
        if minor > _MINOR or unknown:
            minor = min(minor, _MINOR)
            said = struct.pack("!ii", (_MAJOR << 16) + minor, len(unknown))
            stream.send(message(b"v", said, *map(cstring, unknown)))
        return minor, {name: parameters[name] for name in parameters if name not in unknown}

    async def _log_in(self, stream: Stream, given: dict[str, str], *, host: str) -> Session:
        name = given.pop("user", "")
        database = given.pop("database", "") or name
        if given.pop("replication", "false").lower() not in ("false", "off", "no", "0"):
            raise Refusal("0A000", "there is no replication here", fatal=True)
        if given.get("application_name") in ("pg_dump", "pg_dumpall", "pg_basebackup"):
            hint = "ask for counts and sums, or download what was released"
            raise Refusal("0A000", "records are not dumped here", fatal=True, hint=hint)
        if not name:
            raise Refusal("28000", "the connection names no user", fatal=True)
        if sum(each is not None for each in self._tasks.values()) >= self._limits.connections:
            raise Refusal("53300", "too many connections; try again later", fatal=True)
        if stream.tls is None and not self._plain and not _is_loopback(host):
            raise Refusal("28000", "connect with TLS: sslmode=require", fatal=True)
        service = self._projects.get(database, self._service)
        proven = await self._authenticate(stream, service, name, host=host)
        user = await asyncio.to_thread(service.state.find_user, name, proven=proven)
        if user is None:  # removed a moment ago
            raise _wrong(name)
        service.note_login(name, origin=host, known=True)
        stream.send(message(b"R", struct.pack("!i", 0)))
        price = [] if user.epsilon is None else [(EPSILON, format_exact(user.epsilon))]
        settings = SessionSettings(
            [*price, *read_options(given.pop("options", "")), *given.items()],
            user=name,
            budget=service.settings.session_budget,
        )
        asker = Asker(
            service=service,
            catalog=service.catalog,
            user=user,
            proven=proven,
            database=database,
            settings=settings,
            threads=self._threads,
        )
        return Session(stream, asker=asker, settings=settings, limits=self._limits)

    async def _authenticate(self, stream: Stream, service: Service, name: str, *, host: str) -> Verifier:
        """Returns what the client has proven to know the password of."""
        binding = self._binding if stream.tls is not None else None
        mechanisms = ([MECHANISM_PLUS] if binding else []) + [MECHANISM]
        stream.send(message(b"R", struct.pack("!i", 10), *map(cstring, mechanisms), b"\0"))
        await stream.flush()
        verifier = await asyncio.to_thread(service.state.find_verifier, name)
        body = Body(await _read_login(stream))
        mechanism = body.text()
        first = body.take(body.int32())
        body.end()
        if mechanism not in mechanisms:
            raise Refusal("08P01", "the login uses a method that was not offered", fatal=True)
        exchange = Exchange(verifier, mechanism=mechanism, binding=binding)
        stream.send(message(b"R", struct.pack("!i", 11), exchange.begin(first)))
        await stream.flush()
        proof = await _read_login(stream)
        # Asked only now, so that many logins that were begun at once are not many tries.
        if not service.may_log_in(name, origin=host):
            raise Refusal("28000", "too many wrong passwords; wait a minute", fatal=True)
        last = exchange.finish(proof)
        if last is None:
            service.note_login(name, origin=host, known=False)
            await asyncio.sleep(self._limits.pause_seconds)
            raise _wrong(name)
        stream.send(message(b"R", struct.pack("!i", 12), last))
        return verifier


def load_certificate(pem: str) -> bytes:
    """Returns the first certificate of a PEM file's text, as DER."""
    end = "-----END CERTIFICATE-----"
    start = pem.index("-----BEGIN CERTIFICATE-----")
    return ssl.PEM_cert_to_DER_cert(pem[start : pem.index(end, start) + len(end)])


async def _read_login(stream: Stream) -> bytes:
    kind, body = await stream.read_message(most=_LOGIN_BYTES)
    if kind != b"p":
        raise Refusal("08P01", "a message of the login was expected", fatal=True)
    return body


def _wrong(name: str) -> Refusal:
    return Refusal("28P01", f'password authentication failed for user "{name[:63]}"', fatal=True)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
