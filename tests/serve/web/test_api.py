"""The JSON API: what it answers, what it refuses, and that its description says so."""

import asyncio
import json
import re
import time

import pytest

from helpers.site import COUNT, send_scope
from sfumato.core.errors import LedgerError
from sfumato.serve.web.api import read_description

RECIPE = 'recipe = "cell-counts"\ntable = "visits"\nby = ["clinic"]\nepsilon = 0.25\n'


def fits(value, schema):
    """Whether `value` is what a schema says, as far as our schemas go."""
    if "$ref" in schema:
        return fits(value, read_description()["components"]["schemas"][schema["$ref"].rpartition("/")[2]])
    if "oneOf" in schema:
        return any(fits(value, each) for each in schema["oneOf"])
    if "enum" in schema:
        return value in schema["enum"]
    kinds = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    types = {
        "string": str,
        "number": (int, float),
        "integer": int,
        "boolean": bool,
        "array": list,
        "object": dict,
    }
    if value is None or ("null" in kinds and value is None):
        return "null" in kinds
    if not any(isinstance(value, types[kind]) for kind in kinds if kind != "null"):
        return False
    if isinstance(value, list):
        return (
            all(fits(each, schema.get("items", {"type": "object"})) for each in value)
            if "items" in schema
            else True
        )
    if isinstance(value, dict):
        known = schema.get("properties", {})
        return set(schema.get("required", ())) <= set(value) and all(
            fits(value[key], each) for key, each in known.items() if key in value
        )
    return True


@pytest.fixture(scope="module")
def call(site):
    """Calls the API, and holds every reply to the OpenAPI document."""
    document = read_description()

    def check(method, path, **sent):
        got = site.call(method, path, **sent)
        for pattern, operations in document["paths"].items():
            if re.fullmatch(re.sub(r"{\w+}", "[^/]+", pattern), path) and method.lower() in operations:
                told = operations[method.lower()]["responses"]
                content = told.get(str(got.status), told["default"])["content"]
                kind = got.headers["Content-Type"].partition(";")[0]
                if "application/json" in content:
                    assert kind == "application/json"
                    assert fits(got.json, content["application/json"]["schema"]), (path, got.json)
        return got

    return check


def test_every_route_is_described_and_no_other(site):
    document = read_description()
    described = {(path, method) for path, each in document["paths"].items() for method in each}
    routed = {
        (re.sub(r":\w+}", "}", route.path), method.lower())
        for route in site.app.routes
        for method in route.methods - {"HEAD"}
        if route.path.startswith(("/api", "/healthz", "/readyz", "/metrics", "/openapi.json"))
    }
    assert described == routed
    named = set(re.findall(r"#/components/schemas/(\w+)", str(document)))
    assert named == set(document["components"]["schemas"])
    operations = [
        each["operationId"]
        for path in document["paths"].values()
        for each in path.values()
        if "operationId" in each
    ]
    assert len(operations) == len(set(operations))
    assert site.call("GET", "/openapi.json").json == document


def test_an_answer_with_its_cost(call, site):
    before = site.spent()
    got = call("POST", "/api/sql", by="ana", send={"sql": COUNT})
    assert got.status == 200
    answer = got.json
    assert answer["columns"] == ["clinic", "n", "n_low", "n_high"]
    assert [row[0] for row in answer["rows"]] == ["North", "South", "Harbour"]
    assert answer["spent"] == 0.5
    assert site.spent() == pytest.approx(before + 0.5)
    again = call("POST", "/api/sql", by="ada", send={"sql": COUNT}).json
    assert again["repeated"]
    assert again["spent"] == 0
    assert again["rows"] == answer["rows"]
    assert site.spent() == pytest.approx(before + 0.5)


def test_a_plain_select_with_a_price_and_parameters(call):
    sent = {
        "sql": "SELECT COUNT(*) AS n FROM visits WHERE clinic = $1 AND fee > 0",
        "epsilon": "1/4",
        "parameters": ["South"],
    }
    got = call("POST", "/api/sql", by="ana", send=sent)
    assert got.status == 200, got.text
    assert got.json["spent"] == 0.25


def test_the_price_comes_before_the_purchase(call, site):
    before = site.spent()
    sql = "DP-SELECT 0.75 clinic, COUNT(*) AS n FROM visits GROUP BY clinic"
    price = call("POST", "/api/explain", by="ana", send={"sql": sql}).json
    assert price["epsilon"] == 0.75
    assert price["admitted"]
    assert not price["stored"]
    assert price["errors"]["n"] > 0
    columns = call("POST", "/api/describe", by="ana", send={"sql": sql}).json["columns"]
    assert [each["name"] for each in columns] == ["clinic", "n", "n_low", "n_high"]
    assert [each["type"] for each in columns[:2]] == ["string", "int64"]
    assert site.spent() == before
    refused = call("POST", "/api/sql", by="ana", send={"sql": sql, "at_most": 0.5})
    assert refused.status == 402
    assert site.spent() == before


def test_tables_and_budget(call):
    tables = {each["name"]: each for each in call("GET", "/api/tables", by="ana").json["tables"]}
    assert set(tables) == {"visits", "clinics"}
    assert tables["clinics"]["public"]
    clinic = next(each for each in tables["visits"]["columns"] if each["name"] == "clinic")
    assert clinic["values"] == ["North", "South", "Harbour"]
    budget = call("GET", "/api/budget", by="ana").json
    assert budget["total"] == 60
    assert budget["share"]["total"] == 30
    assert budget["exact"]["total"] == "60"


@pytest.mark.parametrize("text", ["SHOW TABLES", "DESCRIBE visits", "SUMMARIZE visits"])
def test_public_facts_are_free_in_sql_too(call, site, text):
    before = site.spent()
    answer = call("POST", "/api/sql", by="ana", send={"sql": text}).json
    assert "visits" in str(answer["rows"]) or "clinic" in str(answer["rows"])
    assert answer["spent"] == 0
    columns = call("POST", "/api/describe", by="ana", send={"sql": text}).json["columns"]
    assert [each["name"] for each in columns] == answer["columns"]
    assert call("POST", "/api/explain", by="ana", send={"sql": text}).json["free"]
    assert site.spent() == before


@pytest.mark.parametrize(
    ("status", "sent"),
    [
        (401, {"send": {"sql": COUNT}}),
        (401, {"send": {"sql": COUNT}, "by": "nobody's token"}),
        (401, {"send": {"sql": COUNT}, "headers": {"Authorization": "Basic YTpi"}}),
        (403, {"send": {"sql": COUNT}, "by": "vic"}),
        (400, {"body": b"{", "headers": {"Content-Type": "application/json"}, "by": "ana"}),
        (400, {"body": b"[" * 100_000, "headers": {"Content-Type": "application/json"}, "by": "ana"}),
        (400, {"body": b'{"sql": NaN}', "headers": {"Content-Type": "application/json"}, "by": "ana"}),
        (400, {"body": b"9" * 9999, "headers": {"Content-Type": "application/json"}, "by": "ana"}),
        (400, {"body": b'{"sql": "\xff"}', "headers": {"Content-Type": "application/json"}, "by": "ana"}),
        (400, {"body": b'{"sql": "\\ud800"}', "headers": {"Content-Type": "application/json"}, "by": "ana"}),
        (413, {"body": b" " * (2**20 + 1), "headers": {"Content-Type": "application/json"}, "by": "ana"}),
        (415, {"body": b"{}", "by": "ana"}),
        (422, {"send": [], "by": "ana"}),
        (422, {"send": {}, "by": "ana"}),
        (422, {"send": {"sql": 5}, "by": "ana"}),
        (422, {"send": {"sql": COUNT, "price": 1}, "by": "ana"}),
        (422, {"send": {"sql": COUNT, "epsilon": "much"}, "by": "ana"}),
        (422, {"send": {"sql": COUNT, "epsilon": -1}, "by": "ana"}),
        (422, {"send": {"sql": COUNT, "parameters": [[]]}, "by": "ana"}),
        (422, {"send": {"sql": "DROP TABLE visits"}, "by": "ana"}),
        (402, {"send": {"sql": "DP-SELECT 900 COUNT(*) FROM visits"}, "by": "ada"}),
    ],
)
def test_what_is_refused_says_why_and_costs_nothing(call, site, status, sent):
    before = site.spent()
    got = call("POST", "/api/sql", **sent)
    assert got.status == status
    assert got.json["error"]["message"]
    assert got.json["error"]["kind"]
    assert site.spent() == before


def test_unknown_places_and_methods(call):
    assert call("GET", "/api/nothing", by="ana").json["error"]["kind"] == "NotFound"
    assert call("GET", "/api/sql", by="ana").status == 405
    assert call("GET", "/api/jobs/999", by="ana").status == 404
    assert call("GET", "/api/jobs/x", by="ana").status == 404
    assert call("GET", "/api/releases/none/table.csv", by="vic").status == 404
    assert call("GET", "/api/releases/..%2F..%2Fetc/passwd", by="vic").status == 404
    assert call("GET", "/api/reports/none", by="vic").status == 404


def test_what_waits_for_a_steward(call, site):
    sql = "DP-SELECT 4 COUNT(*) AS n FROM visits WHERE month = 3"
    waits = call("POST", "/api/sql", by="ana", send={"sql": sql})
    assert waits.status == 409
    number = waits.json["error"]["number"]
    assert call("POST", "/api/approvals", by="ana", send={"number": number, "approve": True}).status == 403
    assert call("POST", "/api/approvals", by="ada", send={"number": "1", "approve": True}).status == 422
    approvals = call("GET", "/api/approvals", by="ada").json["approvals"]
    assert [each["subject"] for each in approvals if each["number"] == number] == [sql]
    decided = call("POST", "/api/approvals", by="ada", send={"number": number, "approve": True})
    assert decided.json["status"] == "approved"
    assert call("POST", "/api/sql", by="ana", send={"sql": sql}).json["spent"] == 4


def test_people(call):
    sent = {"name": "bo", "role": "analyst", "share": 0.5}
    assert call("POST", "/api/users", by="ana", send=sent).status == 403
    assert call("POST", "/api/users", by="ada", send={**sent, "role": "king"}).status == 422
    added = call("POST", "/api/users", by="ada", send=sent)
    assert added.status == 201
    token = added.json["token"]
    assert call("GET", "/api/budget", by=token).json["share"]["left"] == 0.5
    assert {"name": "bo", "role": "analyst"}.items() <= next(
        each for each in call("GET", "/api/users", by="ada").json["users"] if each["name"] == "bo"
    ).items()
    assert call("POST", "/api/users/bo/share", by="ada", send={"share": "1/4"}).json["share"] == 0.25
    assert call("GET", "/api/budget", by=token).json["share"]["left"] == 0.25
    assert call("POST", "/api/users/bo/share", by="ana", send={"share": 9}).status == 403
    assert call("POST", "/api/users/bo/share", by="ana", send={"daily": 9}).status == 403
    limits = {"daily": "1/8", "epsilon": None}
    assert call("POST", "/api/users/bo/share", by="ada", send=limits).json["daily"] == 0.125
    assert call("GET", "/api/budget", by=token).json["share"]["left"] == 0.25  # as it was
    (bo,) = (each for each in call("GET", "/api/users", by="ada").json["users"] if each["name"] == "bo")
    assert bo["daily"] == "0.125"
    assert "epsilon" not in bo
    fresh = call("POST", "/api/users/bo/token", by="ada").json["token"]
    assert call("GET", "/api/budget", by=token).status == 401
    assert call("GET", "/api/budget", by=fresh).status == 200
    assert call("DELETE", "/api/users/bo", by="ada").json == {"removed": "bo"}
    assert call("GET", "/api/budget", by=fresh).status == 401


def test_a_release_from_recipe_to_report(call, site):
    assert call("POST", "/api/check", by="ana", send={"recipe": RECIPE}).json["admitted"]
    assert call("POST", "/api/release", by="vic", send={"recipe": RECIPE, "name": "a"}).status == 403
    assert call("POST", "/api/release", by="ada", send={"recipe": "x", "name": "a"}).status == 422
    begun = call("POST", "/api/release", by="ada", send={"recipe": RECIPE, "name": "by-clinic"})
    assert begun.status == 202
    number = begun.json["number"]
    events = site.call("GET", f"/api/jobs/{number}/events", by="ada")
    assert events.headers["Content-Type"].startswith("text/event-stream")
    assert '"status": "done"' in events.text
    assert events.text.endswith("event: end\ndata: {}\n\n")
    until = time.monotonic() + 60
    while call("GET", f"/api/jobs/{number}", by="ada").json["status"] != "done":
        assert time.monotonic() < until
    assert call("POST", "/api/release", by="ada", send={"recipe": RECIPE, "name": "by-clinic"}).status == 409
    assert len(call("GET", "/api/jobs", by="ada").json["jobs"]) >= 1
    (release,) = [
        each
        for each in call("GET", "/api/releases", by="vic").json["releases"]
        if each["name"] == "by-clinic"
    ]
    assert release["table"] == "visits"
    assert "certificate.json" in release["files"]
    table = call("GET", "/api/releases/by-clinic/table.csv", by="vic")
    assert table.text.startswith("clinic,count")
    assert table.headers["Content-Disposition"].startswith("attachment")
    report = call("GET", "/api/reports/by-clinic", by="vic")
    assert report.text.startswith("<!doctype html>")
    assert report.headers["Content-Security-Policy"].startswith("sandbox;")
    assert (
        call(
            "POST", "/api/releases/by-clinic/sql", by="vic", send={"sql": "SELECT COUNT(*) FROM visits"}
        ).status
        == 404
    )
    assert call("POST", "/api/releases/by-clinic/predict", by="vic", send={"rows": "x\n1\n"}).status == 404


def test_the_audit_log_is_exported_to_stewards(call, site):
    (site.folder / "audit-20260101T000000000000.jsonl").write_text('{"event": "start"}\n')
    (site.folder / "audit.jsonl").write_text('{"event": "stop"}\n')
    got = call("GET", "/api/audit", by="ada")
    assert [json.loads(line)["event"] for line in got.text.splitlines()] == ["start", "stop"]
    assert call("GET", "/api/audit", by="ana").status == 403


def test_the_ledger_is_for_stewards(call):
    call("POST", "/api/sql", by="ana", send={"sql": COUNT})
    assert call("GET", "/api/ledger", by="ana").status == 403
    entries = call("GET", "/api/ledger", by="ada").json["entries"]
    assert any(each["asked_by"] == "ana" for each in entries)


def test_a_server_is_not_ready_without_a_table_or_a_ledger_and_tells_nothing_of_them(site, monkeypatch):
    source = site.folder / "visits.parquet"
    source.rename(site.folder / "away.parquet")
    try:
        gone = site.call("GET", "/readyz")
    finally:
        (site.folder / "away.parquet").rename(source)
    with monkeypatch.context() as patch:

        def fail(_):
            raise LedgerError("no connection to ledger.internal:5432")

        patch.setattr(type(site.service.curator), "budget", fail)
        lost = site.call("GET", "/readyz")
    assert (gone.status, lost.status) == (503, 503)
    assert gone.text == lost.text
    assert "internal" not in lost.text
    assert "visits" not in gone.text
    assert site.call("GET", "/readyz").status == 200


def test_over_tls_browsers_are_told_to_stay_there(site):
    scope = {
        "type": "http",
        "method": "GET",
        "path": "/healthz",
        "raw_path": b"/healthz",
        "query_string": b"",
    }
    scope |= {"headers": [(b"host", b"localhost")], "http_version": "1.1", "server": ("localhost", 1)}
    for scheme, told in (("https", "max-age=31536000"), ("http", None)):
        _, headers, _ = asyncio.run(send_scope(site.app, {**scope, "scheme": scheme}))
        assert headers.get("strict-transport-security") == told


def test_health_and_metrics_need_no_token(site):
    assert site.call("GET", "/healthz").text == "ok\n"
    assert site.call("GET", "/readyz").text == "ready\n"
    metrics = site.call("GET", "/metrics").text
    assert re.search(r"^sfumato_requests\S* \d+$", metrics, re.MULTILINE)
    assert "visits" not in metrics
    for name in ("budget_epsilon 60", "budget_epsilon_left", "charges", "approvals_waiting", "queued 0"):
        assert f"\nsfumato_{name}" in metrics
    assert "# TYPE sfumato_budget_epsilon gauge\n" in metrics
