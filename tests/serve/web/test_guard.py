"""What every request passes: names, origins, sessions, headers, and silence about failures."""

import asyncio
from dataclasses import replace

import pytest

from helpers.cases import read_cases
from helpers.site import send_scope
from sfumato.serve.web.app import make_app
from sfumato.serve.web.exchange import check_origin, parse_json, to_plain

PAGES = ("/login", "/ask", "/static/style.css", "/static/serve.js", "/openapi.json", "/healthz", "/nothing")


@pytest.mark.parametrize("path", PAGES)
def test_every_reply_is_strict(site, path):
    got = site.call("GET", path)
    policy = got.headers["Content-Security-Policy"]
    for rule in (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "frame-ancestors 'none'",
        "base-uri 'none'",
    ):
        assert rule in policy
    assert "unsafe" not in policy
    assert got.headers["X-Content-Type-Options"] == "nosniff"
    assert got.headers["Referrer-Policy"] == "same-origin"
    assert got.headers["Cache-Control"]


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example", "localhost.evil.example:80", "", "[::2]"]
)
def test_other_names_for_this_machine_are_refused(site, host):
    assert site.call("GET", "/healthz", headers={"Host": host}).status == 421


@pytest.mark.parametrize("host", ["localhost:{}", "127.0.0.1:{}", "[::1]:{}", "LOCALHOST", "[::1]"])
def test_its_own_names_are_not(site, host):
    assert site.call("GET", "/healthz", headers={"Host": host.format(site.port)}).status == 200


@pytest.mark.parametrize("headers", read_cases(__file__, "test_other_sites_change_nothing"))
def test_other_sites_change_nothing(site, headers):
    cookie = site.login("ana")
    csrf = site.call("GET", "/ask", cookie=cookie).csrf
    form = {"csrf": csrf, "sql": "DP-SELECT 1 COUNT(*) FROM visits", "action": "price"}
    for path in ("/ask", "/logout", "/login", "/api/sql", "/mcp"):
        got = site.call("POST", path, cookie=cookie, form=form, headers=headers)
        assert got.status == 403
    assert site.call("POST", "/ask", cookie=cookie, form=form, headers={"Origin": site.url}).status == 200


def test_a_form_needs_the_token_of_its_session(site):
    cookie, other = site.login("ana"), site.login("ana")
    foreign = site.call("GET", "/ask", cookie=other).csrf
    for csrf in ("", "wrong", foreign):
        assert site.call("POST", "/ask", cookie=cookie, form={"csrf": csrf, "sql": ""}).status == 403
    sent = {"sql": "DP-SELECT 0.1 COUNT(*) FROM visits"}
    assert site.call("POST", "/api/explain", cookie=cookie, send=sent).status == 403
    own = site.call("GET", "/ask", cookie=cookie).csrf
    assert (
        site.call("POST", "/api/explain", cookie=cookie, send=sent, headers={"X-CSRF-Token": own}).status
        == 200
    )


def test_a_session_begins_and_ends(site):
    got = site.call("POST", "/login", form={"name": "ana", "password": "ana password", "next": "/tables"})
    assert (got.status, got.headers["Location"]) == (303, "/tables")
    flags = got.headers["Set-Cookie"].lower()
    assert "httponly" in flags
    assert "samesite=strict" in flags
    page = site.call("GET", "/tables", cookie=got.cookie)
    assert page.status == 200
    out = site.call("POST", "/logout", cookie=got.cookie, form={"csrf": page.csrf})
    assert out.headers["Location"] == "/login"
    assert site.call("GET", "/tables", cookie=got.cookie).headers["Location"] == "/login?next=%2Ftables"


def test_wrong_passwords_say_nothing_of_names(site):
    replies = {
        site.call("POST", "/login", form={"name": name, "password": "wrong", "next": "/"}).text.replace(
            f'"{name}"', "NAME"
        )
        for name in ("vic", "nobody")
    }
    assert len(replies) == 1


@pytest.mark.parametrize("onward", ["https://evil.example", "//evil.example", "/\\evil.example", ""])
def test_nobody_is_sent_elsewhere_after_signing_in(site, onward):
    got = site.call("POST", "/login", form={"name": "vic", "password": "vic password", "next": onward})
    assert got.headers["Location"] == "/"


def test_the_stewards_link_opens_once(site):
    link = site.service.make_steward_link()
    got = site.call("GET", f"/enter?link={link}")
    assert got.status == 303
    assert site.call("GET", "/", cookie=got.cookie).status == 200
    assert site.call("GET", f"/enter?link={link}").status == 403
    assert site.call("GET", "/enter").status == 403


def test_an_unforeseen_failure_says_nothing(site, monkeypatch, caplog):
    async def fail(_):
        raise ValueError("a value of a record")

    monkeypatch.setattr(site.service, "budget", fail)
    got = site.call("GET", "/api/budget", by="ana")
    assert got.status == 500
    assert got.json["error"]["kind"] == "Failure"
    assert "a value of a record" not in got.text + caplog.text
    assert "ValueError" in caplog.text


def call_directly(app, path, *, host, scheme="https", method="GET", body=b""):
    scope = {
        "type": "http",
        "method": method,
        "scheme": scheme,
        "path": path,
        "query_string": b"",
        "headers": [(b"host", host.encode())],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 443),
    }
    return asyncio.run(send_scope(app, scope, body))


def test_over_tls_the_cookie_stays_with_it(site):
    body = b"name=vic&password=vic+password&next=/"
    _, headers, _ = call_directly(site.app, "/login", host="localhost", method="POST", body=body)
    assert headers["set-cookie"].startswith("__Host-sfumato=")
    assert "Secure" in headers["set-cookie"]
    assert "Path=/" in headers["set-cookie"]


@pytest.mark.parametrize(
    ("changed", "host", "status"), read_cases(__file__, "test_the_settings_say_which_names_are_its_own")
)
def test_the_settings_say_which_names_are_its_own(site, changed, host, status):
    class Named:
        settings = replace(site.settings, **changed)

    assert call_directly(make_app(Named), "/healthz", host=host)[0] == status


def test_origins():
    assert check_origin({"host": "a:1"}) is None
    assert check_origin({"host": "a:1", "origin": "http://a:1"}) is None
    assert check_origin({"host": "a:1", "origin": "http://a:2"}) is not None
    assert check_origin({"host": "a:1", "origin": "http://a:1", "sec-fetch-site": "cross-site"}) is not None


def test_json_is_read_within_limits():
    assert parse_json(b'{"a": "]]]]\\"[[[["}') == {"a": ']]]]"[[[['}
    assert to_plain({1: [float("inf"), b"\0"]}) == {"1": [None, "AA=="]}
