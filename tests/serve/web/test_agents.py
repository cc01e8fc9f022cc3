"""The agents' endpoint: by hand, and with the official client where it is installed."""

import json
import subprocess
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest

from helpers.cases import read_cases
from helpers.cli import invoke
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
    assert set(tools) == {"tables", "explain", "propose", "ask", "budget"}
    before = site.spent()
    assert {each["name"] for each in call_tool(site, "tables")["structuredContent"]["tables"]} == {
        "visits",
        "clinics",
    }
    sql = COUNT.replace("0.5", "FRESH 0.22")
    assert call_tool(site, "explain", sql=sql)["structuredContent"]["epsilon"] == 0.22
    assert site.spent() == before
    answer = call_tool(site, "ask", sql=sql)
    assert answer["structuredContent"]["spent"] == 0.22
    assert json.loads(answer["content"][0]["text"]) == answer["structuredContent"]
    assert call_tool(site, "ask", sql=sql)["structuredContent"]["repeated"]
    assert site.spent() == pytest.approx(before + 0.22)
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


def test_every_number_has_a_claim_that_the_ledger_confirms(site):
    sql = COUNT.replace("0.5", "FRESH 0.21")
    told = call_tool(site, "ask", sql=sql)["structuredContent"]
    figures = told["figures"]
    assert [each["of"]["clinic"] for each in figures] == ["North", "South", "Harbour"]
    for each, row in zip(figures, told["rows"], strict=True):
        assert [each["value"], *each["interval"]] == row[1:]
        assert each["price"] == 0.21
    again = call_tool(site, "ask", sql=sql)["structuredContent"]
    assert (again["spent"], again["figures"]) == (0, figures)
    before, project = site.spent(), f"--project={site.folder / 'sfumato.toml'}"
    for each in figures:
        found = invoke("claim", each["claim"], project, "--json")
        record = json.loads(found.stdout)
        assert (record["value"], record["interval"]) == (each["value"], each["interval"])
        assert (record["row"]["clinic"], record["asked_by"], record["statement"]) == (
            each["of"]["clinic"],
            "ana",
            sql,
        )
    told = invoke("claim", figures[0]["claim"], project)
    assert f"n = {figures[0]['value']}" in told.stdout
    name, row, column = figures[0]["claim"].split(".")
    changed = ("f" if name[0] != "f" else "0") + name[1:]
    for wrong in (f"{changed}.{row}.{column}", f"{name}.9.{column}", f"{name}.{row}.9", name, "x"):
        invoke("claim", wrong, project, code=4)
    assert site.spent() == before
    # A statement that the claim was not given for does not confirm it.
    other = json.dumps([COUNT.replace("0.5", "FRESH 0.15"), None, []])
    site.service.state.run("UPDATE claims SET asked = ? WHERE name = ?", other, name)
    invoke("claim", figures[0]["claim"], project, code=4)
    assert site.spent() == before


def test_the_cheapest_way_to_a_precision_is_proposed(site):
    body = "month, COUNT(DISTINCT person) AS people FROM visits WHERE clinic = 'South' GROUP BY month"
    before = site.spent()
    (way,) = call_tool(site, "propose", sql=f"SELECT {body}", error=30)["structuredContent"]["ways"]
    assert way["sql"] == f"DP-SELECT WITHIN 30 {body}"
    assert 0 < way["errors"]["people"] <= 30
    dearer = call_tool(site, "propose", sql=f"DP-SELECT 9 {body}", error=10)["structuredContent"]["ways"]
    assert dearer[0]["epsilon"] > way["epsilon"]
    assert site.spent() == before
    bought = call_tool(site, "ask", sql=dearer[0]["sql"])["structuredContent"]
    assert bought["spent"] == dearer[0]["epsilon"]
    free = call_tool(site, "propose", sql=f"SELECT {body}", error=30)["structuredContent"]["ways"]
    assert free[0]["epsilon"] == 0
    assert call_tool(site, "ask", sql=free[0]["sql"])["structuredContent"]["spent"] == 0
    assert call_tool(site, "propose", sql="SELECT 1 FROM nothing", error=1)["isError"]
    assert call_tool(site, "propose", by="vic", sql=f"SELECT {body}", error=30)["isError"]


def test_a_conversation_has_a_budget(site):
    def ask(price, session, *, at_most=None):
        sql = f"DP-SELECT FRESH {price} COUNT(*) AS n FROM visits WHERE month = 11"
        given = {"sql": sql} if at_most is None else {"sql": sql, "at_most": at_most}
        headers = {} if session is None else {"Mcp-Session-Id": session}
        told = send(site, "tools/call", headers=headers, name="ask", arguments=given).json["result"]
        return None if told["isError"] else told["structuredContent"]["spent"]

    def begin():
        return send(site, "initialize", protocolVersion=VERSIONS[0]).headers["Mcp-Session-Id"]

    kept = site.service.settings
    site.service.settings = replace(kept, session_budget=Fraction(3, 10))
    try:
        first, second = begin(), begin()
        assert first != second
        assert ask(0.201, first) == 0.201
        assert ask(0.102, first) is None
        assert ask(0.102, first, at_most=5) is None  # nor is it the agent that sets it
        assert ask(0.201, first) == 0  # what is stored stays free
        assert ask(0.098, first) == 0.098
        assert ask(0.102, second) == 0.102
        assert ask(0.301, None) is None  # without a session it bounds each question
        assert ask(0.299, None) == 0.299
        assert ask(0.298, None) == 0.298
        site.service.state.set_limits("ana", {"session_budget": Fraction(1, 2)})
        assert ask(0.35, second) == 0.35
    finally:
        site.service.state.set_limits("ana", {"session_budget": None})
        site.service.settings = kept


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
    assert [each["name"] for each in tools["tools"]] == ["tables", "explain", "propose", "ask", "budget"]
    assert answer["structuredContent"]["spent"] == price
    assert wrong["isError"]
