"""Requests made of broken parts: none may fail unforeseen, spend anything or hold memory."""

import asyncio
import random
import re
import resource

import pytest

from helpers.site import COUNT, Site, send_scope

# Nothing here is a statement that spends.
SCRAPS = (
    b"",
    b"{}",
    b"[]",
    b"null",
    b"{",
    b"\0",
    b"\xff\xfe",
    b"[" * 50,
    b"a" * 5000,
    b"%" * 99,
    b"&" * 9999,
    b'{"sql": "SELECT"}',
    b'{"sql": null}',
    b'{"sql": "EXPLAIN DP-SELECT 1 COUNT(*) FROM visits"}',
    b'{"sql": "SELECT side FROM clinics", "parameters": [' + b"1," * 500 + b"1]}",
    b'{"epsilon": 1e999, "sql": "SELECT 1"}',
    b'{"number": 1, "approve": true}',
    b'{"recipe": "x = 1", "name": "../x"}',
    b'{"name": "\\ud800", "role": "viewer"}',
    b'{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "budget"}}',
    b'{"jsonrpc": "2.0", "id": {}, "method": []}',
    b'{"jsonrpc": "2.0", "method": "x"}',
    b"sql=SELECT&action=buy&seen=&price=1",
    b"source=..%2F..%2Fetc%2Fpasswd",
    b"source=visits.parquet&step=preview&by=%00",
    b"source=clinics.csv&unit=row&way.0=values&words.0=a,%22b&by=name&step=project",
    b"table=visits&by=clinic&step=recipe&epsilon=1e-400",
    b"name=%FF&password=%ED%A0%80",
    b"action=add&name=%00&role=viewer",
    b"action=approve&number=%C2%B2",
)
VALUES = (
    "application/json", "application/x-www-form-urlencoded", "multipart/form-data;boundary=x", "text/html",
    "*/*", "127.0.0.1", "evil.example", "null", "cross-site", "same-origin", "Bearer", "Basic x", "0", "-1",
    "9" * 12, "chunked", "2025-11-25", "2026-07-28", "1999-01-01", "sfumato=x;sfumato=y", "http://[",
    "http://127.0.0.1", "bytes=0-1", "\xff",
)  # fmt: skip
NAMES = (
    "content-type", "accept", "host", "origin", "sec-fetch-site", "authorization", "content-length", "cookie",
    "mcp-protocol-version", "mcp-method", "mcp-session-id", "x-csrf-token", "range", "if-none-match",
)  # fmt: skip
QUERIES = (b"", b"sql=SELECT", b"next=//x", b"link=x", b"\xff=%", b"sql=" + b"(" * 300, b"sql=%00")
WORDS = ("..", "%00", "é", "a" * 300, "x y", "?sql=DP-SELECT", "-", "1e9", "%2e%2e", "\ud83d")
METHODS = ("GET", "POST", "DELETE", "HEAD", "OPTIONS", "X")


class Fuzz:
    """Requests from a seed, each by nobody or by one of the people, by token or by session."""

    def __init__(self, site, seed):
        self._random = random.Random(seed)
        self._routes = [
            (re.sub(r"{\w+(:int)?}", "1", each.path), sorted(each.methods)) for each in site.app.routes
        ]
        self._askers = [([], "")]
        for name, token in site.people.items():
            cookie = site.login(name)
            csrf = site.service.state.find_session(cookie.partition("=")[2])[1]
            self._askers += [
                ([(b"authorization", f"Bearer {token}".encode())], ""),
                ([(b"cookie", cookie.encode())], csrf),
            ]

    def make(self):
        """One request: its scope, as servers hand it on, and its body."""
        draw = self._random
        path, methods = draw.choice(self._routes)
        path += f"/{draw.choice(WORDS)}" if draw.random() < 0.1 else ""
        body = draw.choice(SCRAPS)
        if draw.random() < 0.3:
            place = draw.randrange(len(body) + 1)
            body = body[:place] + draw.randbytes(draw.randrange(8)) + body[place + draw.randrange(4) :]
        asker, csrf = draw.choice(self._askers)
        headers = [(b"host", b"127.0.0.1"), *asker]
        if b"=" in body:
            body += b"&csrf=" + csrf.encode()
        if draw.random() < 0.8:
            headers += [(b"content-type", b"application/json"), (b"x-csrf-token", csrf.encode())]
        for _ in range(draw.choice((0, 0, 0, 1, 2))):
            headers.insert(0, (draw.choice(NAMES).encode(), draw.choice(VALUES).encode("latin-1")))
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": draw.choice(methods if draw.random() < 0.9 else METHODS),
            "scheme": "http",
            "path": path,
            "raw_path": path.encode("utf-8", "replace"),
            "query_string": draw.choice(QUERIES),
            "root_path": "",
            "headers": headers,
            "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", 80),
        }
        return scope, body


def run(site, count, seed):
    """Sends so many requests; returns how often each status came."""
    fuzz, seen = Fuzz(site, seed), {}

    async def main():
        for _ in range(count):
            scope, body = fuzz.make()
            status, _, reply = await send_scope(site.app, scope, body)
            assert status != 500, (scope, body)
            assert b"Traceback" not in reply
            assert str(site.folder).encode() not in reply, (scope, body)
            seen[status] = seen.get(status, 0) + 1

    asyncio.run(main())
    return seen


@pytest.mark.parametrize("count", [1500, pytest.param(20_000, marks=pytest.mark.slow)])
def test_no_request_fails_unforeseen(tmp_path, count):
    with Site(tmp_path) as site:
        site.call("POST", "/api/sql", by="ana", send={"sql": COUNT})
        object.__setattr__(site.service.settings, "per_minute", 10**9)
        before = site.spent()
        run(site, 300, seed=1)
        held = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        seen = run(site, count, seed=2)
        assert site.spent() == before
        assert {200, 400, 401, 403, 404, 405, 421, 422} <= set(seen)
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - held
        assert grown < 200_000, f"{grown} kB more"
        assert site.call("GET", "/readyz").status == 200
