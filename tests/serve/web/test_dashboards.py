"""Dashboards: what is saved, who sees it, who changes it, and that a new price is a steward's decision."""

import html
import re

import pyarrow.parquet as pq
import pytest

from helpers.site import Site
from sfumato.serve.state import add_user
from sfumato.serve.web import dashboards

COUNT = "DP-SELECT 0.2 clinic, COUNT(*) AS n FROM visits GROUP BY clinic"
NASTY = "<script>alert(1)</script>\"'&{{7*7}}"


@pytest.fixture(scope="module")
def bob(site):
    """A second analyst."""
    add_user(site.service.state, site.service.curator, "bob", "analyst", 5, "bob password")
    return site.login("bob")


def save(site, cookie, *, sql=COUNT, onto="", **given):
    csrf = site.call("GET", "/dashboards", cookie=cookie).csrf
    form = {"csrf": csrf, "sql": sql, "onto": onto, "name": "Board", "title": "Visits", **given}
    got = site.call("POST", "/dashboards", cookie=cookie, form=form)
    assert got.status == 303, got.text
    return got.headers["Location"]


def change(site, cookie, place, action, **given):
    csrf = site.call("GET", "/dashboards", cookie=cookie).csrf
    return site.call("POST", place, cookie=cookie, form={"csrf": csrf, "action": action, **given})


def keys(site, cookie, place):
    return re.findall(r'id="card-(\w+)"', site.call("GET", place, cookie=cookie).text)


@pytest.fixture
def paid(site):
    site.call("POST", "/api/sql", by="ana", send={"sql": COUNT})
    return site.login("ana")


def test_only_what_is_paid_for_is_saved(site, paid):
    before = site.spent()
    csrf = site.call("GET", "/dashboards", cookie=paid).csrf
    form = {"csrf": csrf, "sql": "DP-SELECT 0.3 COUNT(*) AS unpaid FROM visits", "name": "x", "title": "x"}
    assert site.call("POST", "/dashboards", cookie=paid, form=form).status == 402
    place = save(site, paid)
    assert site.call("GET", place, cookie=paid).text.count("<rect") == 3
    assert site.spent() == before


def test_cards_are_arranged_and_sent_as_files(site, paid):
    place = save(site, paid, title="First")
    assert save(site, paid, onto=place.rpartition("/")[2], title="Second", note="read me") == place
    first, second = keys(site, paid, place)
    change(site, paid, place, "up", key=second)
    assert keys(site, paid, place) == [second, first]
    change(site, paid, place, "edit", key=first, title="Third", note="")
    change(site, paid, place, "rename", title="Renamed")
    page = site.call("GET", place, cookie=paid).text
    assert "<h1>Renamed</h1>" in page
    assert page.index("read me") < page.index("Third")
    sheet = site.call("GET", f"{place}/{first}/csv", cookie=paid)
    assert sheet.text.startswith('"clinic","n","n_low","n_high"')
    assert 'filename="Third.csv"' in sheet.headers["Content-Disposition"]
    drawn = site.call("GET", f"{place}/{first}/svg?column=n", cookie=paid)
    assert drawn.text.startswith("<svg")
    assert "sandbox" in drawn.headers["Content-Security-Policy"]
    assert site.call("GET", f"{place}/{first}/exe", cookie=paid).status == 404
    change(site, paid, place, "drop", key=first)
    assert keys(site, paid, place) == [second]
    assert change(site, paid, place, "drop", key=first).status == 404
    assert change(site, paid, place, "burn", key=second).status == 422
    change(site, paid, place, "remove")
    assert site.call("GET", place, cookie=paid).status == 404


def test_nobody_sees_or_changes_what_is_not_theirs(site, paid, bob):
    place = save(site, paid)
    (key,) = keys(site, paid, place)
    vic, ada = site.login("vic"), site.login("ada")
    paths = (place, f"{place}/{key}/csv", f"{place}/{key}/svg")
    for shared, seen in (("", ()), ("analyst", (bob, ada)), ("viewer", (bob, ada, vic)), ("", ())):
        assert change(site, paid, place, "share", shared=shared).status == 303
        for other in (bob, ada, vic):
            expected = 200 if other in seen else 404
            assert {site.call("GET", each, cookie=other).status for each in paths} == {expected}
            assert (place in site.call("GET", "/dashboards", cookie=other).text) == (other in seen)
    change(site, paid, place, "share", shared="viewer")
    for action in ("edit", "drop", "up", "rename", "share", "remove", "refresh", "renew"):
        given = {"key": key, "title": "mine", "shared": "viewer", "price": "1"}
        for other in (bob, ada):
            assert change(site, other, place, action, **given).status == 404, action
        assert change(site, vic, place, action, **given).status == 403
    # Nor is anything put onto somebody else's.
    csrf = site.call("GET", "/dashboards", cookie=bob).csrf
    onto = {"csrf": csrf, "sql": COUNT, "onto": place.rpartition("/")[2], "title": "x"}
    assert site.call("POST", "/dashboards", cookie=bob, form=onto).status == 404
    assert "mine" not in site.call("GET", place, cookie=paid).text
    assert change(site, paid, place, "share", shared="world").status == 422


def test_forms_need_the_token_of_the_session(site, paid, bob):
    place, foreign = save(site, paid), site.call("GET", "/dashboards", cookie=bob).csrf
    for csrf in ("", "wrong", foreign):
        form = {"csrf": csrf, "sql": COUNT, "action": "remove"}
        assert site.call("POST", "/dashboards", cookie=paid, form=form).status == 403
        assert site.call("POST", place, cookie=paid, form=form).status == 403
    assert site.call("GET", place, cookie=paid).status == 200


def test_texts_of_people_are_texts(site, paid):
    place = save(site, paid, title=NASTY, note=NASTY, name=NASTY)
    (key,) = keys(site, paid, place)
    for path in (place, "/dashboards", f"{place}/{key}/svg"):
        text = site.call("GET", path, cookie=paid).text
        assert "<script>alert" not in text, path
    assert (
        html.escape(NASTY).replace("&#x27;", "&#39;").replace("&quot;", "&#34;")
        in site.call("GET", place, cookie=paid).text
    )
    named = site.call("GET", f"{place}/{key}/csv", cookie=paid).headers["Content-Disposition"]
    assert named == 'attachment; filename="script_alert_1_script_7_7.csv"'


def test_a_dashboard_holds_so_much(site, paid, monkeypatch):
    monkeypatch.setattr(dashboards, "MOST_CARDS", 1)
    place = save(site, paid)
    csrf = site.call("GET", place, cookie=paid).csrf
    form = {"csrf": csrf, "sql": COUNT, "onto": place.rpartition("/")[2], "title": "x"}
    assert site.call("POST", "/dashboards", cookie=paid, form=form).status == 422
    monkeypatch.setattr(dashboards, "_MOST_BOARDS", 1)
    assert site.call("POST", "/dashboards", cookie=paid, form={**form, "onto": ""}).status == 422
    monkeypatch.setattr(dashboards, "_MOST_BYTES", 10)
    assert site.call("POST", "/dashboards", cookie=paid, form=form).status == 422


def test_a_refresh_is_free_until_a_steward_allows_a_price(tmp_path):
    with Site(tmp_path) as site:
        events = []
        site.service._log = events.append
        ana, ada = site.login("ana"), site.login("ada")
        site.call("POST", "/api/sql", by="ana", send={"sql": COUNT})
        place = save(site, ana)
        (key,) = keys(site, ana, place)
        before = site.spent()
        assert "records were replaced" not in change(site, ana, place, "refresh").text
        table = pq.read_table(tmp_path / "visits.parquet")
        pq.write_table(table.slice(10), tmp_path / "other.parquet")
        (tmp_path / "other.parquet").rename(tmp_path / "visits.parquet")
        old = site.call("GET", f"{place}/{key}/csv", cookie=ana).text
        stale = change(site, ana, place, "refresh")
        assert "A new answer costs ε 0.2" in html.unescape(stale.text)
        assert site.call("GET", f"{place}/{key}/csv", cookie=ana).text == old
        # Whatever price the form names: without a steward nothing is bought.
        for price in ("0.2", "5"):
            asked = change(site, ana, place, "renew", key=key, price=price)
            assert (asked.status, "approval" in asked.text) == (409, True)
        assert site.spent() == before
        people = site.call("GET", "/people", cookie=ada)
        (number,) = re.findall(r'name="number" value="(\d+)"', people.text)
        decided = {"csrf": people.csrf, "number": number, "action": "approve"}
        site.call("POST", "/people", cookie=ada, form=decided)
        assert change(site, ana, place, "renew", key=key, price="0.2").status == 200
        assert site.spent() == pytest.approx(before + 0.2)
        assert site.call("GET", f"{place}/{key}/csv", cookie=ana).text != old
        change(site, ana, place, "refresh")
        assert site.spent() == pytest.approx(before + 0.2)
        change(site, ana, place, "share", shared="viewer")
        told = [each for each in events if each["event"] == "dashboard"]
        assert {each["change"] for each in told} == {"save", "refresh", "share"}
        assert told[-1]["shared"] == "viewer"
        assert [each["spent"] for each in events if each.get("outcome") == "charged"] == ["0.2", "0.2"]
