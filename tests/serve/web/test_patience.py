"""Clients that connect and do not ask."""

import asyncio
from contextlib import asynccontextmanager

import pytest

from sfumato.serve import run

uvicorn = pytest.importorskip("uvicorn")


async def _app(scope, receive, send):
    while (message := await receive()).get("more_body"):
        pass
    if message["type"] == "http.disconnect":
        return
    await asyncio.sleep(0.5)
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})


@asynccontextmanager
async def _serve(**options):
    config = uvicorn.Config(
        _app, port=0, http=run.PatientProtocol, log_config=None, lifespan="off", **options
    )
    server = uvicorn.Server(config)
    serving = asyncio.create_task(server._serve())
    while not server.started:
        await asyncio.sleep(0.01)
    yield server.servers[0].sockets[0].getsockname()[1]
    server.should_exit = True
    await serving


@pytest.mark.parametrize(
    "sent",
    [b"", b"GET / HTTP/1.1\r\nHost: x\r\nX", b"GET / HTTP/1.1\r\nHost: x\r\n\r\nGET / HTTP/1.1\r\nX"],
    ids=["nothing", "half a request", "one and a half"],
)
def test_who_does_not_ask_in_time_is_left(monkeypatch, sent):
    monkeypatch.setattr(run, "_PATIENCE", 0.3)

    async def connect():
        async with _serve(timeout_keep_alive=1) as port:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(sent)
            async with asyncio.timeout(20):  # the server itself would wait for 30
                answered = await reader.read()
            writer.close()
        return answered

    answered = asyncio.run(connect())
    assert answered.endswith(b"ok") == (sent.count(b"GET") == 2)


@pytest.mark.parametrize(
    "sent",
    [b"", b"GET / HTTP/1.1\r\nHost: x\r\nX", b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n1"],
    ids=["nothing", "half a request", "half a body"],
)
def test_who_asks_finds_room_among_those_who_do_not(sent):
    async def connect():
        async with _serve(limit_concurrency=5, timeout_graceful_shutdown=1) as port:
            held = []
            for _ in range(20):
                held.append(await asyncio.open_connection("127.0.0.1", port))
                held[-1][1].write(sent)
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            answered = await reader.read()
            for _, line in [*held, (reader, writer)]:
                line.close()
        return answered

    assert asyncio.run(connect()).endswith(b"ok")
