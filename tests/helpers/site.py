"""A served project with three people, over real sockets: what the tests of the web call."""

import asyncio
import http.client
import json
import re
import socket
import threading
from dataclasses import dataclass
from urllib.parse import urlencode

import pyarrow as pa
import pyarrow.parquet as pq

import sfumato as sf

PROJECT = """
[budget]
epsilon = 60.0
delta = 1e-6

[serve]
approve_above = 3.0

[tables.visits]
source = "visits.parquet"
unit = "person"
max_records = 2
[tables.visits.columns.clinic]
values = ["North", "South", "Harbour"]
[tables.visits.columns.month]
range = [1, 12]
[tables.visits.columns.fee]
bounds = [0, 100]

[tables.clinics]
public = true
source = "clinics.csv"
"""
ROWS = 2000
COUNT = "DP-SELECT 0.5 clinic, COUNT(*) AS n FROM visits GROUP BY clinic"


@dataclass(frozen=True)
class Got:
    """One reply."""

    status: int
    headers: http.client.HTTPMessage
    body: bytes

    @property
    def text(self):
        return self.body.decode()

    @property
    def json(self):
        return json.loads(self.body)

    @property
    def cookie(self):
        """The session's cookie, as it is sent back."""
        return self.headers["Set-Cookie"].partition(";")[0]

    @property
    def csrf(self):
        """The token in the forms of a page."""
        return re.search(r'name="csrf" value="([^"]+)"', self.text)[1]


def write_visits(folder):
    """Writes the project and its tables."""
    places = range(ROWS)
    pq.write_table(
        pa.table(
            {
                "person": [f"p{i // 2}" for i in places],
                "clinic": [("North", "South", "Harbour")[i % 3] for i in places],
                "month": [1 + i % 12 for i in places],
                "fee": [float(i % 100) for i in places],
            }
        ),
        folder / "visits.parquet",
    )
    (folder / "clinics.csv").write_text("name,side\nNorth,city\nSouth,city\nHarbour,coast\n")
    (folder / "sfumato.toml").write_text(PROJECT)


class Site:
    """A server in a thread; `people` has each one's token, and their password is `<name> password`."""

    def __init__(self, folder):
        self.folder = folder
        write_visits(folder)

    def __enter__(self):
        # The protocol by its number: asyncio sends small pieces at once only over what is TCP by name.
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        self._socket.bind(("127.0.0.1", 0))
        self._socket.listen(64)  # who calls early waits
        self.port = self._socket.getsockname()[1]
        ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve(ready)))
        self._thread.start()
        assert ready.wait(60)
        return self

    def __exit__(self, *_):
        self._server.should_exit = True
        self._thread.join()
        self._socket.close()

    async def _serve(self, ready):
        import uvicorn

        from sfumato.serve.service import Service, add_user
        from sfumato.serve.settings import read_settings
        from sfumato.serve.state import FileTables, State
        from sfumato.serve.web.app import make_app

        curator = sf.open(self.folder / "sfumato.toml")
        self.settings = read_settings(curator.project)
        state = State(FileTables(self.folder / "serve.db"))
        self.people = {
            name: add_user(state, curator, name, role, share, f"{name} password")
            for name, role, share in (
                ("ada", "steward", None),
                ("ana", "analyst", 30),
                ("vic", "viewer", None),
            )
        }
        self.service = Service(curator, settings=self.settings, state=state)
        self.app = make_app(self.service)
        config = uvicorn.Config(
            self.app, log_config=None, lifespan="off", ws="none", timeout_graceful_shutdown=2
        )
        self._server = uvicorn.Server(config)
        ready.set()
        await self._server.serve(sockets=[self._socket])
        await self.service.close()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    def call(self, method, path, *, by=None, send=None, form=None, body=None, headers=None, cookie=None):
        """The reply to one request, of the person `by`, with JSON, a form or any bytes in it."""
        sent = {"Host": f"127.0.0.1:{self.port}", **(headers or {})}
        if by is not None:
            sent["Authorization"] = f"Bearer {self.people.get(by, by)}"
        if cookie is not None:
            sent["Cookie"] = cookie
        if send is not None:
            body = json.dumps(send).encode()
            sent.setdefault("Content-Type", "application/json")
        if form is not None:
            body = urlencode(form, doseq=True).encode()
            sent["Content-Type"] = "application/x-www-form-urlencoded"
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request(method, path, body=body, headers=sent)
            answer = connection.getresponse()
            return Got(status=answer.status, headers=answer.headers, body=answer.read())
        finally:
            connection.close()

    def login(self, name):
        """The cookie of a new session."""
        form = {"name": name, "password": f"{name} password", "next": "/"}
        got = self.call("POST", "/login", form=form)
        assert got.status == 303, got.text
        return got.cookie

    def spent(self):
        """What was charged in all."""
        return float(self.service.curator.budget().spent)


async def send_scope(app, scope, body=b""):
    """What an application replies to a request as a server hands it on: status, headers and body."""
    parts = [body[: len(body) // 2], body[len(body) // 2 :]]
    told = []

    async def receive():
        if parts:
            return {"type": "http.request", "body": parts.pop(0), "more_body": bool(parts)}
        return await asyncio.Future()  # who has sent all waits for the reply

    async def keep(message):
        told.append(message)

    await app(scope, receive, keep)
    headers = {name.decode(): value.decode("latin-1") for name, value in told[0]["headers"]}
    return told[0]["status"], headers, b"".join(each.get("body", b"") for each in told[1:])
