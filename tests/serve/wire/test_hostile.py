"""Clients that send nonsense, read slowly, come in crowds, or say nothing."""

import asyncio
import base64
import hashlib
import hmac
import logging
import random
import resource
import socket
import ssl
import struct
import threading
import time
from contextlib import ExitStack
from types import SimpleNamespace

import pytest

from helpers.wire import PASSWORD, CountingService, RunningServer, SmallCatalog, make_certificate
from sfumato.serve.wire import server as wire_server
from sfumato.serve.wire.server import WireServer
from sfumato.serve.wire.session import Limits

STARTUP = b"user\0ana\0database\0visits\0\0"
STATEMENTS = (
    *("", ";", "SELECT 1", "DP-SELECT 0.1 clinic FROM visits", "DP-SELECT 0.1 k FROM many WHERE fee > $1"),
    *("BEGIN", "COMMIT", "ROLLBACK", "SAVEPOINT a", "ROLLBACK TO a", "SET sfumato.epsilon = 0.1", "SHOW ALL"),
    *("DECLARE c CURSOR FOR DP-SELECT 0.1 k FROM many", "FETCH 3 c", "MOVE LAST c", "FETCH BACKWARD ALL c"),
    *("COPY (DP-SELECT 0.1 clinic FROM t) TO STDOUT", "COPY (DP-SELECT 1 k FROM t) TO STDOUT BINARY"),
    *("EXPLAIN DP-SELECT 0.1 n FROM t", "SELECT set_config('a', $1, false)", "DISCARD ALL", "SELECT 'open"),
    *("SET a.b = 'x'; SELECT 1; CLOSE ALL", "DEALLOCATE ALL", "DP-SELECT 5 COUNT(*) FROM poor", "RESET ALL"),
)  # fmt: skip


def pack(kind, body):
    return kind + struct.pack("!i", len(body) + 4) + body


def startup(body=STARTUP, *, code=3 << 16):
    return struct.pack("!ii", len(body) + 8, code) + body


class Line:
    """The two ends of a connection in memory: what the client sends, and what it was sent."""

    def __init__(self):
        self.reader = asyncio.StreamReader()
        self.received = bytearray()
        self.transport = self
        self.arrived = asyncio.Event()

    def write(self, data):
        self.received += data
        self.arrived.set()

    async def drain(self):
        await asyncio.sleep(0)

    def close(self):
        self.arrived.set()

    abort = close

    def get_extra_info(self, _):
        return ("127.0.0.1", 1)

    async def hear(self, kind):
        """The body of the next message of this kind."""
        while True:
            while len(self.received) >= 5:
                size = int.from_bytes(self.received[1:5], "big")
                if len(self.received) < size + 1:
                    break
                body = bytes(self.received[5 : size + 1])
                found = self.received[:1]
                del self.received[: size + 1]
                if found == kind:
                    return body
            await self.more()

    async def more(self):
        """Waits until more has come."""
        self.arrived.clear()
        await asyncio.wait_for(self.arrived.wait(), 60)


SALTED = {}


async def log_in(line, body=STARTUP):
    line.reader.feed_data(startup(body))
    await line.hear(b"R")
    bare = "n=,r=abc"
    first = f"n,,{bare}".encode()
    line.reader.feed_data(pack(b"p", b"SCRAM-SHA-256\0" + struct.pack("!i", len(first)) + first))
    challenge = (await line.hear(b"R"))[4:].decode()
    nonce, salt, iterations = (part[2:] for part in challenge.split(","))
    if salt not in SALTED:
        raw = base64.b64decode(salt)
        SALTED[salt] = hashlib.pbkdf2_hmac("sha256", PASSWORD.encode(), raw, int(iterations))
    key = hmac.digest(SALTED[salt], b"Client Key", "sha256")
    last = f"c=biws,r={nonce}"
    words = f"{bare},{challenge},{last}".encode()
    signature = hmac.digest(hashlib.sha256(key).digest(), words, "sha256")
    proof = base64.b64encode(bytes(a ^ b for a, b in zip(key, signature, strict=True))).decode()
    line.reader.feed_data(pack(b"p", f"{last},p={proof}".encode()))
    await line.hear(b"Z")


def invent(draw):
    """A message that a client might send."""
    name = draw.choice([b"", b"", b"a", b"c"]) + b"\0"
    text = draw.choice(STATEMENTS).encode() + b"\0"
    values = [
        draw.choice([None, b"", b"1", b"2025-01-01", draw.randbytes(8)]) for _ in range(draw.randrange(3))
    ]
    packed = b"".join(b"\xff" * 4 if v is None else struct.pack("!i", len(v)) + v for v in values)
    forms = struct.pack("!HH", 1, draw.randrange(2)) if draw.random() < 0.5 else b"\0\0"
    types = [draw.choice([0, 16, 23, 701, 1082, 1700, 1009, 1016]) for _ in range(draw.randrange(3))]
    bodies = {
        b"Q": text,
        b"P": name + text + struct.pack(f"!H{len(types)}I", len(types), *types),
        b"B": name + draw.choice([b"\0", b"a\0"]) + forms + struct.pack("!H", len(values)) + packed + forms,
        b"D": draw.choice([b"S", b"P"]) + name,
        b"E": name + struct.pack("!i", draw.choice([0, 1, 7, -1])),
        b"C": draw.choice([b"S", b"P"]) + name,
        b"S": b"",
        b"H": b"",
        b"F": draw.randbytes(9),
        b"d": draw.randbytes(5),
    }
    kind = draw.choice([*bodies, b"S", b"S"])
    return kind, bodies[kind]


def mutate(draw, kind, body):
    """The message with something wrong with it, more often than not."""
    data = bytearray(body)
    for _ in range(draw.choice([0, 0, 0, 1, 2])):
        place = draw.randrange(len(data) + 1)
        match draw.randrange(4):
            case 0:
                data[place:place] = draw.randbytes(draw.randrange(1, 6))
            case 1:
                del data[place : place + draw.randrange(1, 6)]
            case 2 if place < len(data):
                data[place] = draw.randrange(256)
            case _:
                data[place:place] = data[: draw.randrange(20)]
    message = pack(kind if draw.random() < 0.999 else draw.randbytes(1), bytes(data))
    if draw.random() < 0.001:
        message = message[:1] + draw.randbytes(4) + message[5:]  # a length that lies
    return message


async def fuzz(count, seed):
    draw = random.Random(seed)
    service = CountingService()
    service.release.set()
    service.may_log_in = lambda name, origin: True
    limits = Limits(pause_seconds=0, login_seconds=20)
    wire = WireServer(service=service, limits=limits)
    sent = heard = 0
    while sent < count:
        line = Line()
        task = asyncio.create_task(wire.serve(line.reader, line))
        if draw.random() < 0.2:
            body = draw.choice([STARTUP, draw.randbytes(40)])
            code = draw.choice([3 << 16, (3 << 16) + 9, 80877102, 80877103, 80877104, 2 << 16])
            line.reader.feed_data(startup(mutate(draw, b"x", body)[5:], code=code) + mutate(draw, b"p", body))
            line.reader.feed_eof()
            sent += 2
        else:
            await log_in(line)
            for _ in range(draw.randrange(1, 150)):
                line.reader.feed_data(mutate(draw, *invent(draw)))
                sent += 1
                if draw.random() < 0.05:
                    await asyncio.sleep(0)
            line.reader.feed_data(pack(b"S", b"") + pack(b"X", b""))
            line.reader.feed_eof()
        await asyncio.wait_for(task, 60)
        heard += len(line.received)
        assert b"Traceback" not in line.received
        assert b".py" not in line.received
        service.asked.clear()
        service.described.clear()
    assert not wire._tasks
    assert not wire._keys
    await wire.close()
    return heard


@pytest.mark.parametrize("count", [4_000, pytest.param(100_000, marks=pytest.mark.slow)])
def test_nonsense_crashes_nothing(count, caplog):
    caplog.set_level(logging.ERROR)
    asyncio.run(fuzz(1_000, "warm"))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert asyncio.run(fuzz(count, f"seed {count}")) > count
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < 150_000  # kilobytes
    assert not caplog.records  # every refusal was meant


def test_oversized_messages_are_refused_before_they_are_read():
    async def send(first, *, logs_in):
        line = Line()
        wire = WireServer(service=CountingService())
        task = asyncio.create_task(wire.serve(line.reader, line))
        if logs_in:
            await log_in(line)
        line.reader.feed_data(first)
        await asyncio.wait_for(task, 20)
        await wire.close()
        return bytes(line.received)

    for data, logs_in in (
        (struct.pack("!i", 2**30), False),
        (struct.pack("!ii", 10_001, 3 << 16), False),
        (startup() + b"p" + struct.pack("!i", 100_000), False),
        (b"Q" + struct.pack("!i", 2**20 + 5), True),
        (b"Q" + struct.pack("!i", -5), True),
        (b"GET / HTTP/1.1\r\n\r\n", False),
    ):
        assert b"08P01" in asyncio.run(send(data, logs_in=logs_in))


def test_a_client_that_does_not_read_is_left_and_takes_no_memory():
    with RunningServer(limits=Limits(write_seconds=0.5)) as server:
        slow = socket.create_connection(("127.0.0.1", server.port))
        handshake(slow)
        slow.sendall(pack(b"Q", b"DP-SELECT 0.1 text FROM wide\0"))  # 50 MB
        while not server.service.asked or server.wire._tasks:
            time.sleep(0.05)
        received = 0
        with slow:
            try:
                while data := slow.recv(2**20):
                    received += len(data)
            except ConnectionResetError:
                pass
        assert received < 30_000_000


def handshake(client):
    """Logs in on a blocking socket, through the same steps as in memory."""

    async def run():
        await log_in(SocketLine(client))

    asyncio.run(run())


class SocketLine(Line):
    """The client's end of a connection over a socket."""

    def __init__(self, client):
        super().__init__()
        self.client, self.reader = client, self

    def feed_data(self, data):
        self.client.sendall(data)

    async def more(self):
        self.received += self.client.recv(2**16)


def test_an_error_is_told_at_once_to_who_flushes_and_does_not_end_the_batch():
    with RunningServer() as server, socket.create_connection(("127.0.0.1", server.port)) as client:
        client.settimeout(20)
        handshake(client)
        parse = pack(b"P", b"\0SELECT no FROM nowhere\0\0\0")
        client.sendall(parse + pack(b"D", b"S\0") + pack(b"H", b""))
        told = b""
        while len(told) < 6:  # the statement is read, its description refused
            told += client.recv(2**16)
        assert told[:6] == b"1\0\0\0\4E"


def test_silent_clients_are_left():
    with RunningServer(limits=Limits(login_seconds=0.2)) as server:
        with socket.create_connection(("127.0.0.1", server.port)) as silent:
            assert b"08006" in silent.recv(1000)
        with socket.create_connection(("127.0.0.1", server.port)) as half:
            half.sendall(startup()[:9])
            assert b"08006" in half.recv(1000)


def test_silent_clients_make_room_for_those_who_log_in(monkeypatch):
    psycopg = pytest.importorskip("psycopg")
    monkeypatch.setattr(wire_server, "_SPARE", 2)
    with RunningServer(limits=Limits(connections=4, login_seconds=120)) as server, ExitStack() as held:
        for _ in range(20):
            held.enter_context(socket.create_connection(("127.0.0.1", server.port)))
        kept = [held.enter_context(psycopg.connect(server.dsn(), autocommit=True)) for _ in range(4)]
        for _ in range(20):
            held.enter_context(socket.create_connection(("127.0.0.1", server.port)))
        with pytest.raises(psycopg.OperationalError, match="too many connections"):
            psycopg.connect(server.dsn())
        for connection in kept:  # who has logged in stays
            assert connection.execute("SELECT 1").fetchall() == [(1,)]


def test_idle_clients_are_left():
    async def connect():
        line = Line()
        wire = WireServer(service=CountingService(), limits=Limits(idle_seconds=0.01))
        task = asyncio.create_task(wire.serve(line.reader, line))
        await log_in(line)
        await asyncio.wait_for(task, 20)
        await wire.close()
        return bytes(line.received)

    assert b"57P05" in asyncio.run(connect())


class KnowsAll(CountingService):
    """Knows everybody by the same password."""

    def find_user(self, name, **_):
        return SimpleNamespace(name=name, role="analyst", epsilon=None, session_budget=None)

    def find_verifier(self, name):
        return self.verifier

    def admit(self, user, action):
        pass


class HeldCatalog(SmallCatalog):
    """Answers ana only when the gate is open."""

    def __init__(self):
        self.gate = threading.Event()
        self.asked = []

    def answer(self, text, *, user, **more):
        self.asked.append(user)
        assert user != "ana" or self.gate.wait(60)
        return super().answer(text, user=user, **more)


def test_the_catalog_queries_of_one_person_hold_up_nobody():
    psycopg = pytest.importorskip("psycopg")
    catalog = HeldCatalog()

    async def ask(server, user, statement):
        dsn = server.dsn(user=user)
        async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as connection:
            return await (await connection.execute(statement)).fetchall()

    async def crowd(server):
        long = [asyncio.create_task(ask(server, "ana", "SELECT 1")) for _ in range(8)]
        async with asyncio.timeout(60):
            while not catalog.asked:
                await asyncio.sleep(0.01)
            for user in ("ben", "cy"):
                assert await ask(server, user, "SELECT 1") == [(1,)]
                assert len(await ask(server, user, "DP-SELECT 0.1 clinic FROM visits")) == 3
        assert catalog.asked.count("ana") <= 2
        assert not any(task.done() for task in long)
        catalog.gate.set()
        assert await asyncio.gather(*long) == [[(1,)]] * 8

    with RunningServer(service=KnowsAll(), catalog=catalog) as server:
        try:
            asyncio.run(crowd(server))
        finally:
            catalog.gate.set()


def test_five_hundred_connections_and_one_too_many():
    psycopg = pytest.importorskip("psycopg")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < 1400 and hard >= 1400:
        resource.setrlimit(resource.RLIMIT_NOFILE, (1400, hard))

    async def ask(dsn, begin):
        async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as connection:
            await begin.wait()
            return await (await connection.execute("DP-SELECT 0.1 clinic FROM visits")).fetchall()

    async def crowd(server):
        begin = asyncio.Barrier(501)
        tasks = [asyncio.create_task(ask(server.dsn(), begin)) for _ in range(500)]
        while len(server.wire._keys) < 500:
            assert not any(task.done() for task in tasks)
            await asyncio.sleep(0.05)
        with pytest.raises(psycopg.OperationalError, match="too many connections"):
            await psycopg.AsyncConnection.connect(server.dsn())
        await begin.wait()
        return await asyncio.gather(*tasks)

    with RunningServer(limits=Limits(connections=500, login_seconds=120)) as server:
        answers = asyncio.run(crowd(server))
    assert len(answers) == 500
    assert all(len(rows) == 3 for rows in answers)


@pytest.fixture(scope="module")
def tls_server(tmp_path_factory):
    with RunningServer(tls=make_certificate(tmp_path_factory.mktemp("tls"))) as running:
        yield running


def test_tls_from_the_first_byte_needs_its_name(tls_server):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with socket.create_connection(("127.0.0.1", tls_server.port)) as raw, context.wrap_socket(raw) as wrapped:
        assert b"08P01" in wrapped.recv(1000)


def test_broken_tls_ends_quietly(tls_server):
    for first in (b"\x16\x03\x01\x00\x05hello", struct.pack("!ii", 8, 80877103) + b"not tls at all" * 9):
        with socket.create_connection(("127.0.0.1", tls_server.port)) as raw:
            raw.sendall(first)
            while raw.recv(1000):
                pass
    assert tls_server.failures == []


def test_what_was_sent_before_tls_is_not_taken_for_what_comes_in_it(tls_server):
    """A startup message slipped in before the handshake (CVE-2021-23214) breaks it."""
    with socket.create_connection(("127.0.0.1", tls_server.port)) as raw:
        raw.sendall(struct.pack("!ii", 8, 80877103) + startup())
        received = b""
        while data := raw.recv(1000):
            received += data
        assert received[:1] == b"S"
        assert b"SCRAM" not in received


def test_plain_connections_from_elsewhere_are_refused(monkeypatch):
    async def connect():
        line = Line()
        line.get_extra_info = lambda _: ("192.0.2.7", 1)
        wire = WireServer(service=CountingService())
        line.reader.feed_data(startup())
        await asyncio.wait_for(wire.serve(line.reader, line), 20)
        await wire.close()
        return bytes(line.received)

    assert b"sslmode=require" in asyncio.run(connect())


def test_a_dead_line_frees_its_place():
    with RunningServer() as server:
        clients = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(50)]
        for client in clients:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            threading.Thread(target=client.close).start()
        while server.wire._tasks:
            time.sleep(0.01)
