"""A server of PostgreSQL's protocol in a thread, with a service and a catalog that count what is asked."""

import asyncio
import contextlib
import re
import ssl
import threading
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from types import SimpleNamespace

import pyarrow as pa
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from sfumato.core.errors import BudgetExceeded, UnsupportedQuery
from sfumato.serve.catalog.tables import Column
from sfumato.serve.service import CALLER
from sfumato.serve.state import User, make_verifier
from sfumato.serve.wire.server import WireServer, load_certificate
from sfumato.serve.wire.session import Limits

PASSWORD = "pencil"
CLINICS = pa.table(
    {
        "clinic": ["North", "South", None],
        "n": pa.array([10, -3, 2**40], pa.int64()),
        "share": [0.5, 1.0, float("nan")],
        "seen": pa.array([date(2025, 1, 3), date(1969, 12, 31), None]),
        "at": pa.array([datetime(2025, 1, 3, 4, 5, 6, 7), datetime(1999, 1, 1), None], pa.timestamp("us")),
        "zoned": pa.array([datetime(2025, 1, 3, 4, tzinfo=UTC)] * 3, pa.timestamp("us", "UTC")),
        "open": [True, False, None],
        "fee": pa.array([Decimal("12345.60"), Decimal("-0.05"), None], pa.decimal128(10, 2)),
        "small": pa.array([1, -1, None], pa.int16()),
        "tags": pa.array([["a", 'b "c"', None], [], None], pa.list_(pa.string())),
    }
)
MANY = pa.table({"k": pa.array(range(2500), pa.int64()), "text": [f"row {n}" for n in range(2500)]})


@dataclass
class CountingService:
    """Knows ana; answers any statement with a table chosen by a word in it, and keeps what it was asked."""

    asked: list = field(default_factory=list)
    described: list = field(default_factory=list)
    release: threading.Event = field(default_factory=threading.Event)
    settings: object = field(default_factory=lambda: SimpleNamespace(session_budget=None))
    logins: list = field(default_factory=list)
    verifier: object = field(default_factory=lambda: make_verifier(PASSWORD))
    catalog: object = field(default_factory=lambda: SmallCatalog())

    @property
    def state(self):
        return self

    def find_user(self, name, *, proven=None):
        return User(name=name, role="analyst") if name == "ana" else None

    def admit(self, user, action):
        assert user.name == "ana"
        assert action == "tables"

    def find_verifier(self, name):
        return self.verifier if name == "ana" else make_verifier("nobody knows", salt=b"s" * 16)

    def may_log_in(self, name, *, origin=""):
        return self.logins.count((name, False)) < 3

    def note_login(self, name, *, origin="", known):
        assert CALLER.get()["door"] == "wire"
        self.logins.append((name, known))

    async def describe(self, user, text, *, epsilon=None, parameter_types=(), intervals=True):
        self.described.append(text)
        table = self._find(text, epsilon)
        marks = sorted(set(re.findall(r"\$\d+", text)))
        kinds = [pa.float64() if f"fee > {mark}" in text else pa.string() for mark in marks]
        return SimpleNamespace(
            columns=tuple(zip(table.column_names, table.schema.types, strict=True)), parameters=tuple(kinds)
        )

    async def explain(self, user, text, *, epsilon=None, parameters=()):
        self._find(text, epsilon)
        return {"text": "COUNT(*)\n  noise 20"}

    async def ask(self, user, text, *, epsilon=None, at_most=None, parameters=(), intervals=True):
        table = self._find(text, epsilon)
        named = re.search(r"DP[-_]SELECT\s+(\d*\.?\d+)", text)
        price = Fraction(named[1]) if named else epsilon
        if price is None:
            raise UnsupportedQuery("DP-SELECT needs epsilon")
        if at_most is not None and price > at_most:
            raise BudgetExceeded("the session has spent what it may; nothing was spent", left=at_most)
        self.asked.append((text, epsilon, parameters))
        if "slow" in text:
            await asyncio.to_thread(self.release.wait)
        if "boom" in text:
            raise RuntimeError("at /secret/path: 42 records")
        note = f"epsilon {price} was spent"
        return SimpleNamespace(
            table=table, spent=price, left=Fraction(1), repeated=False, notes=(note,), scales={}
        )

    def _find(self, text, epsilon):
        if "FROM" not in text.upper():
            raise UnsupportedQuery("only SELECT is answered")
        if "poor" in text:
            raise BudgetExceeded(
                "epsilon 5 is more than the 1 that is left; nothing was spent", left=Fraction(1)
            )
        if "DP" not in text and epsilon is None:
            raise UnsupportedQuery("a plain SELECT has no price; SET sfumato.epsilon = 0.1")
        if "many" in text:
            return MANY
        if "wide" in text:
            return pa.table({"text": ["x" * 10_000] * 5000})
        return CLINICS if "clinic" in text else pa.table({"n": pa.array([42], pa.int64())})


class SmallCatalog:
    """Answers SELECT 1, version(), set_config, and an empty pg_class."""

    def covers(self, text):
        return re.search(r"\bfrom\b(?!\s+pg_)", re.sub(r"'[^']*'", "", text), re.IGNORECASE) is None

    def describe(self, text):
        count = len(set(re.findall(r"\$\d+", text)))
        return self._columns(text), (25,) * count

    def answer(self, text, *, user, database, settings, parameters):
        columns = self._columns(text)
        if "from pg_" in text.lower():
            return columns, []
        if not text.lower().startswith("select"):
            raise UnsupportedQuery("only SELECT is answered")
        value = settings["server_version"] if "version" in text else database if "database" in text else 1
        value = parameters[0] if parameters else value
        return columns, [(value,)]

    def _columns(self, text):
        words = "version" in text or "database" in text or "$1" in text or "set_config" in text
        return (Column("value", 25 if words else 23),)


class RunningServer:
    """A server on a free port, and what it was asked."""

    def __init__(self, *, service=None, catalog=None, limits=None, tls=None):
        self.service = service or CountingService()
        if catalog is not None:
            self.service.catalog = catalog
        self._limits = limits or Limits(pause_seconds=0.01)
        self._tls = tls
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._ready = threading.Event()
        self.failures = []

    def _run(self):
        asyncio.set_event_loop(self._loop)
        self._loop.set_exception_handler(lambda loop, context: self.failures.append(context))
        self._loop.run_until_complete(self._start())
        self._loop.run_forever()
        self._loop.run_until_complete(self._loop.shutdown_default_executor())
        self._loop.close()

    async def _start(self):
        tls = certificate = None
        if self._tls:
            tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            tls.load_cert_chain(*self._tls)
            certificate = load_certificate(self._tls[0].read_text())
        self.wire = WireServer(service=self.service, tls=tls, certificate=certificate, limits=self._limits)
        server = await asyncio.start_server(self.wire.serve, "127.0.0.1", 0, backlog=600)
        self.port = server.sockets[0].getsockname()[1]
        self._server = server
        self._ready.set()

    def __enter__(self):
        self._thread.start()
        assert self._ready.wait(60)
        return self

    def __exit__(self, *_):
        if isinstance(self.service, CountingService):
            self.service.release.set()
        asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result(60)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(60)
        assert not self.failures

    async def _stop(self):
        self._server.close()
        if not isinstance(self.service, CountingService):
            await self.service.close()
        await self.wire.close()

    def dsn(self, **more):
        """What psycopg and psql connect with."""
        facts = {
            "host": "127.0.0.1",
            "port": self.port,
            "user": "ana",
            "password": PASSWORD,
            "dbname": "visits",
        }
        return " ".join(f"{key}='{value}'" for key, value in {**facts, **more}.items())

    @property
    def counts(self):
        """How often the service was asked."""
        return len(self.service.asked)


def make_certificate(folder, *, algorithm=None, days=1):
    """A certificate for localhost and its key, as PEM files."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=2))
        .not_valid_after(now + timedelta(days=days))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, algorithm or hashes.SHA256())
    )
    files = folder / "server.crt", folder / "server.key"
    files[0].write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    files[1].write_bytes(private)
    return files


@contextlib.contextmanager
def spends(server, count):
    """Checks that the service is asked `count` times within."""
    before = server.counts
    yield
    assert server.counts - before == count
