"""The agents' endpoint: by hand, and with the official client where it is installed."""

import json
import subprocess
from pathlib import Path

import pytest

from helpers.cases import read_cases
from helpers.site import COUNT
from sfumato.serve.web.api import STATELESS, VERSIONS

CLIENTS = Path(__file__).resolve().parents[3] / ".venv-clients" / "bin" / "python"
ACCEPT = {"Accept": "application/json, text/event-stream"}


def send(site, method, *, by="ana", number=1, headers=None, **params):
    message = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
    return site.call("POST", "/mcp", by=by, send=message, headers={**ACCEPT, **(headers or {})})


def call_tool(site, name, *, by="ana", **arguments):
    return send(site, "tools/call", by=by, name=name, arguments=arguments).json["result"]


def test_versions_are_negotiated(site):
    for asked in (*VERSIONS, "1999-01-01"):
        told = send(site, "initialize", protocolVersion=asked, capabilities={}, clientInfo={}).json["result"]
        assert told["protocolVersion"] == (asked if asked in VERSIONS else VERSIONS[0])
        assert "tools" in told["capabilities"]
    begun = {"jsonrpc": "2.0", "method": "notifications/initialized"}
    assert site.call("POST", "/mcp", by="ana", send=begun, headers=ACCEPT).status == 202
    assert send(site, "ping").json["result"] == {}
    unknown = send(site, "ping", headers={"MCP-Protocol-Version": "1999-01-01"})
    assert unknown.status == 400
    assert STATELESS in unknown.json["error"]["data"]["supported"]


def test_the_version_without_a_beginning(site):
    headers = {"MCP-Protocol-Version": STATELESS, "Mcp-Method": "server/discover"}
    told = send(site, "server/discover", headers=headers).json["result"]
    assert told["supportedVersions"][0] == STATELESS
    assert told["resultType"] == "complete"
    assert send(site, "ping", headers=headers).json["error"]["code"] == -32020
    assert send(site, "none", headers={"MCP-Protocol-Version": STATELESS}).status == 404
    assert send(site, "server/discover").json["error"]["code"] == -32601


def test_tools_are_listed_and_answer(site):
    tools = {each["name"]: each for each in send(site, "tools/list").json["result"]["tools"]}
    assert set(tools) == {"tables", "explain", "ask", "budget"}
    before = site.spent()
    assert {each["name"] for each in call_tool(site, "tables")["structuredContent"]["tables"]} == {
        "visits",
        "clinics",
    }
    sql = COUNT.replace("0.5", "FRESH 0.2")
    assert call_tool(site, "explain", sql=sql)["structuredContent"]["epsilon"] == 0.2
    assert site.spent() == before
    answer = call_tool(site, "ask", sql=sql)
    assert answer["structuredContent"]["spent"] == 0.2
    assert json.loads(answer["content"][0]["text"]) == answer["structuredContent"]
    assert call_tool(site, "ask", sql=sql)["structuredContent"]["repeated"]
    assert site.spent() == pytest.approx(before + 0.2)
    assert call_tool(site, "budget")["structuredContent"]["share"]["total"] == 30


def test_what_an_agent_can_mend_is_a_result(site):
    for given in (
        {"sql": "DROP TABLE visits"},
        {"sql": "DP-SELECT 0.4 COUNT(*) FROM visits", "at_most": 0.1},
    ):
        told = call_tool(site, "ask", **given)
        assert told["isError"]
        assert told["content"][0]["text"]
    assert call_tool(site, "ask", by="vic", sql=COUNT)["isError"]


@pytest.mark.parametrize(("code", "params"), read_cases(__file__, "test_calls_that_do_not_fit"))
def test_calls_that_do_not_fit(site, code, params):
    assert send(site, "tools/call", **params).json["error"]["code"] == code


def test_messages_that_are_none(site):
    assert send(site, "resources/list").json["error"]["code"] == -32601
    for body, status in ((b"{", 400), (b"[]", 400), (b'{"id": 1}', 400), (b" " * (2**20 + 1), 413)):
        got = site.call("POST", "/mcp", by="ana", body=body, headers=ACCEPT)
        assert got.status == status
        assert got.json["error"]["code"] in (-32700, -32600)
    assert send(site, "ping", number=[1]).status == 400
    assert send(site, "ping", by="wrong").status == 401
    assert send(site, "ping", headers={"Accept": "text/html"}).status == 406
    assert site.call("GET", "/mcp", by="ana").status == 405
    assert site.call("DELETE", "/mcp", by="ana").status == 405
    cookie = site.login("ana")
    assert (
        site.call("POST", "/mcp", cookie=cookie, send={"jsonrpc": "2.0", "id": 1, "method": "ping"}).status
        == 401
    )


CLIENT = """
import asyncio, json, sys
import httpx2
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client

url, token, mode, sql = sys.argv[1:]

async def main():
    http = httpx2.AsyncClient(headers={"Authorization": "Bearer " + token})
    async with http, Client(streamable_http_client(url, http_client=http), mode=mode) as client:
        tools = await client.list_tools()
        answer = await client.call_tool("ask", {"sql": sql})
        wrong = await client.call_tool("ask", {"sql": "DROP TABLE visits"})
        plain = lambda each: each.model_dump(by_alias=True, mode="json")
        print(json.dumps([client.protocol_version, *map(plain, (tools, answer, wrong))]))

asyncio.run(main())
"""


@pytest.mark.parametrize(("mode", "version"), [("legacy", VERSIONS[0]), ("auto", STATELESS)])
def test_the_official_client_asks(site, mode, version):
    if not CLIENTS.exists():
        pytest.skip("`make clients` installs the clients that this test drives")
    needed = "import httpx2, mcp.client.client"
    if subprocess.run([CLIENTS, "-c", needed], capture_output=True, check=False).returncode:
        pytest.skip("the package `mcp`, 2 or later, is not among the clients")
    price = {"legacy": 0.15, "auto": 0.16}[mode]
    ran = subprocess.run(
        [
            CLIENTS,
            "-c",
            CLIENT,
            f"{site.url}/mcp",
            site.people["ana"],
            mode,
            COUNT.replace("0.5", f"FRESH {price}"),
        ],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert ran.returncode == 0, ran.stderr
    spoken, tools, answer, wrong = json.loads(ran.stdout)
    assert spoken == version
    assert [each["name"] for each in tools["tools"]] == ["tables", "explain", "ask", "budget"]
    assert answer["structuredContent"]["spent"] == price
    assert wrong["isError"]
