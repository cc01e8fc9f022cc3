"""Clients that connect and do not ask."""

import asyncio

import pytest

from sfumato.serve import run

uvicorn = pytest.importorskip("uvicorn")


async def _app(scope, receive, send):
    await asyncio.sleep(0.5)
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})


@pytest.mark.parametrize(
    "sent",
    [b"", b"GET / HTTP/1.1\r\nHost: x\r\nX", b"GET / HTTP/1.1\r\nHost: x\r\n\r\nGET / HTTP/1.1\r\nX"],
    ids=["nothing", "half a request", "one and a half"],
)
def test_who_does_not_ask_in_time_is_left(monkeypatch, sent):
    monkeypatch.setattr(run, "_PATIENCE", 0.3)

    async def connect():
        config = uvicorn.Config(
            _app,
            port=0,
            http=run.PatientProtocol,
            log_config=None,
            lifespan="off",
            timeout_keep_alive=1,
        )
        server = uvicorn.Server(config)
        serving = asyncio.create_task(server._serve())
        while not server.started:
            await asyncio.sleep(0.01)
        port = server.servers[0].sockets[0].getsockname()[1]
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(sent)
        async with asyncio.timeout(20):  # the server itself would wait for 30
            answered = await reader.read()
        writer.close()
        server.should_exit = True
        await serving
        return answered

    answered = asyncio.run(connect())
    assert answered.endswith(b"ok") == (sent.count(b"GET") == 2)
