"""The pages of each role, without scripts: forms sent by hand."""

import html
import re
import time

import pytest

import sfumato as sf
from helpers.projects import write_project
from helpers.site import Site
from sfumato.serve.facts import describe_tables
from sfumato.serve.web.pages import _write_examples

PRICED = "DP-SELECT 0.25 month, COUNT(*) AS n, AVG(fee) AS mean FROM visits GROUP BY month ORDER BY month"


@pytest.fixture
def ana(site):
    return site.login("ana")


@pytest.fixture
def ada(site):
    return site.login("ada")


def hidden(page, name):
    return html.unescape(re.search(rf'name="{name}" value="([^"]*)"', page)[1])


def test_a_question_is_priced_then_bought_then_free(site, ana):
    page = site.call("GET", "/ask", cookie=ana)
    assert "visits" in page.text
    before = site.spent()
    form = {"csrf": page.csrf, "sql": PRICED.replace(" FROM", "\r\nFROM")}
    priced = site.call("POST", "/ask", cookie=ana, form={**form, "action": "price"})
    assert hidden(priced.text, "price") == "0.25"
    assert "in 95 of 100 cases" in priced.text
    assert site.spent() == before
    bought = site.call(
        "POST", "/ask", cookie=ana,
        form={**form, "action": "buy", "seen": hidden(priced.text, "seen"), "price": "0.25"},
    )  # fmt: skip
    assert bought.status == 200
    assert "ε 0.25 spent" in bought.text.replace("\xa0", " ")
    assert "<svg" in bought.text.split('id="answer"')[1]
    assert site.spent() == pytest.approx(before + 0.25)
    again = site.call("POST", "/ask", cookie=ana, form={**form, "action": "price"})
    assert "already paid for" in again.text
    file = site.call("POST", "/ask/csv", cookie=ana, form=form)
    assert file.text.startswith('"month","n","n_low","n_high","mean"')
    assert site.spent() == pytest.approx(before + 0.25)
    history = site.call("GET", "/history", cookie=ana).text
    assert "mean FROM visits" in " ".join(html.unescape(history).split())


def test_the_price_of_within_is_the_most_that_its_tries_may_cost(site, ana):
    form = {"csrf": site.call("GET", "/ask", cookie=ana).csrf}
    form["sql"] = "DP-SELECT WITHIN 30% COUNT(*) AS n FROM visits WHERE month >= 2"
    priced = site.call("POST", "/ask", cookie=ana, form={**form, "action": "price"}).text
    told = site.call("POST", "/api/explain", by="ana", send={"sql": form["sql"]}).json
    assert told["epsilon"] < told["most"] <= 2.5
    assert hidden(priced, "price") == f"{told['most']:g}"
    assert f"up to ε {told['most']:g}" in html.unescape(priced).replace("\xa0", " ")
    before = site.spent()
    form |= {name: hidden(priced, name) for name in ("seen", "price")}
    assert 'id="answer"' in site.call("POST", "/ask", cookie=ana, form={**form, "action": "buy"}).text
    assert told["epsilon"] < site.spent() - before <= told["most"], "more than the first try"


def test_nothing_is_bought_unseen(site, ana):
    csrf, before = site.call("GET", "/ask", cookie=ana).csrf, site.spent()
    sql = "DP-SELECT 0.3 COUNT(*) AS other FROM visits"
    for seen, price in (("", ""), ("0" * 64, "0.3"), ("", "20")):
        got = site.call(
            "POST",
            "/ask",
            cookie=ana,
            form={"csrf": csrf, "sql": sql, "action": "buy", "seen": seen, "price": price},
        )
        assert "Buy this answer" in got.text
    priced = site.call("POST", "/ask/price", cookie=ana, form={"csrf": csrf, "sql": sql}).text
    assert not priced.lstrip().startswith("<!doctype")
    cheaper = {"csrf": csrf, "sql": sql, "action": "buy", "seen": hidden(priced, "seen"), "price": "0.1"}
    assert site.call("POST", "/ask", cookie=ana, form=cheaper).status == 402
    assert site.call("POST", "/ask/csv", cookie=ana, form={"csrf": csrf, "sql": sql}).status == 402
    assert site.spent() == before


def test_names_that_need_quotes_have_them(tmp_path):
    columns = {"Date Type": {"values": ["a", "b"]}, "education-num": {"values": ["c"]}}
    (tmp_path / "t.csv").write_text("Date Type,education-num\na,c\n")
    curator = sf.open(write_project(tmp_path, columns, source="t.csv", table="drug-deaths"))
    examples = _write_examples(describe_tables(curator))
    assert len(examples) == 3
    for sql in examples:
        assert curator.sql(f"EXPLAIN {sql}").price.admitted


def test_what_costs_much_goes_to_a_steward_and_back(site, ana, ada):
    csrf = site.call("GET", "/ask", cookie=ana).csrf
    sql = "DP-SELECT 3.5 COUNT(*) AS n FROM visits WHERE month = 7"
    form = {"csrf": csrf, "sql": sql, "action": "price"}
    priced = site.call("POST", "/ask", cookie=ana, form=form).text
    assert "ask for approval" in priced
    form |= {"action": "buy", "seen": hidden(priced, "seen"), "price": hidden(priced, "price")}
    assert site.call("POST", "/ask", cookie=ana, form=form).status == 409
    assert "waits for your approval" in site.call("GET", "/", cookie=ada).text
    people = site.call("GET", "/people", cookie=ada)
    number = re.search(r'name="number" value="(\d+)"', people.text)[1]
    decided = {"csrf": people.csrf, "number": number, "action": "approve"}
    assert site.call("POST", "/people", cookie=ada, form=decided).status == 303
    assert "Buy it" in site.call("GET", "/history", cookie=ana).text
    assert "3.5 spent" in site.call("POST", "/ask", cookie=ana, form=form).text.replace("\xa0", " ")
    assert site.call("POST", "/people", cookie=ada, form=decided).status == 403


def test_a_steward_adds_and_removes_people(site, ada):
    csrf = site.call("GET", "/people", cookie=ada).csrf
    form = {
        "csrf": csrf,
        "action": "add",
        "name": "cy",
        "role": "analyst",
        "share": "0.5",
        "password": "long enough",
    }
    added = site.call("POST", "/people", cookie=ada, form=form)
    token = re.search(r"<pre[^>]*>(sf_\S+)</pre>", added.text)[1]
    assert site.call("GET", "/api/budget", by=token).json["share"]["total"] == 0.5
    assert site.call("POST", "/people", cookie=ada, form=form).status in (403, 409)
    changed = {"csrf": csrf, "action": "share", "name": "cy", "share": "0.75"}
    assert site.call("POST", "/people", cookie=ada, form=changed).status == 303
    assert site.call("GET", "/api/budget", by=token).json["share"]["total"] == 0.75
    assert site.call("POST", "/people", cookie=ada, form={**changed, "share": "-1"}).status == 422
    assert (
        site.call("POST", "/people", cookie=ada, form={**form, "name": "d", "share": "<much>"}).status == 422
    )
    assert site.call("POST", "/people", cookie=ada, form={"csrf": csrf, "action": "none"}).status == 422
    fresh = site.call(
        "POST", "/people", cookie=ada, form={"csrf": csrf, "action": "token", "name": "cy"}
    ).text
    assert token not in fresh
    limits = {"csrf": csrf, "action": "share", "name": "cy", "epsilon": "0.1", "daily": "2"}
    assert site.call("POST", "/people", cookie=ada, form=limits).status == 303
    assert "ε 0.1 a plain SELECT" in site.call("GET", "/people", cookie=ada).text
    taken = {**limits, "epsilon": "none", "daily": ""}
    assert site.call("POST", "/people", cookie=ada, form=taken).status == 303
    shown = site.call("GET", "/people", cookie=ada).text
    assert "ε 2 a day" in shown
    assert "a plain SELECT</span>" not in shown
    remove = {"csrf": csrf, "action": "remove", "name": "cy"}
    assert "Remove <b>cy</b>?" in site.call("POST", "/people", cookie=ada, form=remove).text  # asked first
    assert "cy" in [each.name for each in site.service.state.users()]
    assert site.call("POST", "/people", cookie=ada, form={**remove, "sure": "yes"}).status == 303
    assert site.call("GET", "/api/budget", by=token).status == 401


def test_each_role_sees_its_own_pages(site, ana, ada):
    vic = site.login("vic")
    for path, seen in {
        "/": (200, 303, 303), "/ask": (200, 200, 403), "/tables": (200, 200, 403),
        "/history": (200, 200, 403),
        "/ledger": (200, 403, 403), "/people": (200, 403, 403), "/wizard": (200, 403, 403),
        "/releases": (200, 200, 200),
        "/connect": (200, 200, 200),
    }.items():  # fmt: skip
        assert tuple(site.call("GET", path, cookie=each).status for each in (ada, ana, vic)) == seen, path
    assert site.call("GET", "/releases/none", cookie=vic).status == 404
    assert site.call("GET", "/jobs/99", cookie=vic).status == 403


def test_the_wizard_ends_in_a_release_that_viewers_read(site, ada):
    csrf = site.call("GET", "/wizard", cookie=ada).csrf
    form = {"csrf": csrf, "source": "visits.parquet", "step": "facts"}
    page = site.call("POST", "/wizard", cookie=ada, form=form).text
    assert "What the columns may hold" in page
    form |= {
        "unit": "person", "max_records": "2", "epsilon": "0.5", "step": "codebook",
        "codebook": "clinic: North, South, Harbour\r\nmonth: 1..12\r\nfee: 0..100",
    }  # fmt: skip
    filled = site.call("POST", "/wizard", cookie=ada, form=form).text
    ways = re.findall(r'<option value="(\w+)" selected>', filled)
    assert ways == ["person", "values", "range", "bins"]
    del form["codebook"]
    form |= {
        "way.1": "values", "words.1": "North, South, Harbour", "way.2": "range", "words.2": "1..12",
        "way.3": "bounds", "words.3": "0..100", "by": ["clinic", "month"], "step": "preview",
    }  # fmt: skip
    preview = site.call("POST", "/wizard", cookie=ada, form=form).text
    assert "simulated records" in preview
    assert 'values = ["North", "South", "Harbour"]' in html.unescape(preview)
    assert "Begin the release" in preview
    project = site.call("POST", "/wizard", cookie=ada, form={**form, "step": "project"})
    assert "[tables.visits.columns.clinic]" in project.text
    assert "attachment" in project.headers["Content-Disposition"]
    begun = site.call("POST", "/wizard", cookie=ada, form={**form, "step": "release", "release": "first"})
    assert begun.status == 303
    until = time.monotonic() + 60
    while "Finished." not in site.call("GET", begun.headers["Location"], cookie=ada).text:
        assert time.monotonic() < until
        time.sleep(0.05)
    vic = site.login("vic")
    assert "first" in site.call("GET", "/releases", cookie=vic).text
    shown = site.call("GET", "/releases/first", cookie=vic).text
    assert "/api/reports/first" in shown
    assert shown.index("<svg") < shown.index('id="files"')  # the picture comes before the files
    assert "certificate.json" in shown


def test_viewers_read_the_report_and_ask_the_model(tmp_path):
    with Site(tmp_path) as site:
        recipe = 'recipe = "adaptive"\ntable = "visits"\ncolumns = ["clinic", "month"]\n'
        recipe += "epsilon = 2.0\ndelta = 1e-7\n"
        begun = site.call("POST", "/api/release", by="ada", send={"recipe": recipe, "name": "model"}).json
        site.call("GET", f"/api/jobs/{begun['number']}/events", by="ada")
        vic, before = site.login("vic"), site.spent()
        page = site.call("GET", "/releases/model", cookie=vic)
        assert 'src="/api/reports/model"' in page.text
        report = site.call("GET", "/api/reports/model", cookie=vic).headers
        assert report["Content-Security-Policy"].startswith("sandbox; default-src 'none'")
        assert "frame-ancestors 'self'" in report["Content-Security-Policy"]
        assert report["X-Frame-Options"] == "SAMEORIGIN"
        form = {"csrf": page.csrf, "by": ["clinic", ""]}
        told = site.call("POST", "/releases/model", cookie=vic, form=form).text
        assert "95 % interval" in told
        assert told.count('class="whisker"') == 9
        odd = {"csrf": page.csrf, "by": ['"; DROP', "x"]}
        assert site.call("POST", "/releases/model", cookie=vic, form=odd).status == 422
        assert site.spent() == before


def test_everybody_renews_their_own_token(site):
    old = site.people["vic"]
    cookie = site.login("vic")
    page = site.call("GET", "/connect", cookie=cookie)
    assert f"{site.url}/api/releases" in page.text
    made = site.call("POST", "/connect", cookie=cookie, form={"csrf": page.csrf})
    site.people["vic"] = re.search(r"<pre[^>]*>(sf_\S+)</pre>", made.text)[1]
    assert site.call("GET", "/api/releases", by=old).status == 401
    assert site.call("GET", "/api/releases", by="vic").status == 200
    assert "user=ana dbname" in site.call("GET", "/connect", cookie=site.login("ana")).text


def test_the_ledger_page_draws_who_spent_what(site, ana, ada):
    csrf = site.call("GET", "/ask", cookie=ana).csrf
    assert site.call("POST", "/ask/price", cookie=ana, form={"csrf": csrf, "sql": ""}).status == 200
    site.call("POST", "/api/sql", by="ana", send={"sql": "DP-SELECT 0.1 COUNT(*) AS n FROM visits"})
    page = site.call("GET", "/ledger", cookie=ada).text
    assert 'class="charge a"' in page
    assert "ana" in page


def test_no_page_has_inline_styles_or_scripts(site, ada):
    for path in (
        "/",
        "/ask?sql=DP-SELECT%200.1%20COUNT(*)%20FROM%20visits",
        "/tables",
        "/ledger",
        "/people",
        "/wizard",
        "/releases",
        "/login",
        "/none",
    ):
        page = site.call("GET", path, cookie=ada).text
        assert not re.search(r"<style|\sstyle=|<script(?! src)|\son\w+=|javascript:", page), path
        assert not re.search(r'(?:src|href|action)="(?!/|#|data:image)', page), path
