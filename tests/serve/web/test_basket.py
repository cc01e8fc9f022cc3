"""The basket: planned together, bought once, within all limits of who asks."""

import html
import re

import pytest

from helpers.site import Site
from sfumato.serve.web.basket import drop_price

QUESTIONS = (
    "DP-SELECT 0.2 clinic, COUNT(*) AS n FROM visits GROUP BY clinic",
    "DP-SELECT WITHIN 30 clinic, month, COUNT(*) AS n FROM visits GROUP BY clinic, month",
    "DP-SELECT 0.1 COUNT(*) AS n FROM visits",
)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    with Site(tmp_path_factory.mktemp("basket")) as served:
        yield served


def send(site, cookie, **form):
    csrf = site.call("GET", "/ask/basket", cookie=cookie).csrf if cookie else ""
    place = "/ask" if form.get("action") == "basket" else "/ask/basket"
    return site.call("POST", place, cookie=cookie, form={"csrf": csrf, **form})


def seen(page):
    return re.search(r'name="seen" value="(\w*)"', page.text)[1]


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("dp-select 0.5 a FROM t", "SELECT a FROM t"),
        ("DP-SELECT FRESH 1e-1 DELTA 1e-6 a", "SELECT a"),
        ("DP-SELECT WITHIN 5% a", "SELECT a"),
        ("DP-SELECT WITHIN 5 % DELTA 1e-6 a", "SELECT a"),
        ("DP-SELECT FREE a", "SELECT a"),
        ("SELECT a", "SELECT a"),
    ],
)
def test_a_basket_has_statements_without_a_price(text, plain):
    assert drop_price(text) == plain


def test_questions_are_planned_together_and_bought_once(site):
    ana, before = site.login("ana"), site.spent()
    assert "Nothing is in it" in site.call("GET", "/ask/basket", cookie=ana).text
    for sql in QUESTIONS:
        assert send(site, ana, action="basket", sql=sql).status == 303
        assert send(site, ana, action="basket", sql=sql).status == 303  # which is there already
    page = site.call("GET", "/ask/basket", cookie=ana)
    assert page.text.count("Take out") == 3
    planned = send(site, ana, action="price", epsilon="0.6")
    assert "One by one, answers as exact as these would cost about" in planned.text
    assert site.spent() == before
    # What was not shown is not bought: another price, or another basket.
    for form in ({"epsilon": "0.7", "seen": seen(planned)}, {"epsilon": "0.6", "seen": ""}):
        assert "Buy all" in send(site, ana, action="buy", **form).text
    send(site, ana, action="drop", place="1")
    assert "Buy all" in send(site, ana, action="buy", epsilon="0.6", seen=seen(planned)).text
    assert site.spent() == before
    planned = send(site, ana, action="price", epsilon="0.6")
    bought = send(site, ana, action="buy", epsilon="0.6", seen=seen(planned))
    assert "0.6 spent" in html.unescape(bought.text).replace("\xa0", " ")
    assert bought.text.count('<section class="answer"') == 2
    assert site.spent() == pytest.approx(before + 0.6)
    again = send(site, ana, action="buy", epsilon="0.6", seen=seen(planned))
    assert "already paid for" in again.text
    assert site.spent() == pytest.approx(before + 0.6)
    # Each is free from now on, on a dashboard, too.
    free = re.search(r'name="sql" value="([^"]*)"', bought.text)[1]
    form = {"csrf": page.csrf, "sql": html.unescape(free), "name": "Of the basket", "title": "First"}
    assert site.call("POST", "/dashboards", cookie=ana, form=form).status == 303
    assert site.spent() == pytest.approx(before + 0.6)
    send(site, ana, action="empty")
    assert "Nothing is in it" in site.call("GET", "/ask/basket", cookie=ana).text


def test_a_basket_is_its_owners_alone(site):
    ana, ada, vic = (site.login(name) for name in ("ana", "ada", "vic"))
    send(site, ana, action="basket", sql="DP-SELECT 0.1 COUNT(*) AS secret_plan FROM visits")
    assert "secret_plan" not in site.call("GET", "/ask/basket", cookie=ada).text
    send(site, ada, action="empty")
    assert "secret_plan" in site.call("GET", "/ask/basket", cookie=ana).text
    ((number,),) = site.service.state.run("SELECT number FROM dashboards WHERE shared = ?", "basket")
    for cookie in (ana, ada, vic):
        assert site.call("GET", f"/dashboards/{number}", cookie=cookie).status == 404
    assert site.call("GET", "/ask/basket", cookie=vic).status == 403
    csrf = site.call("GET", "/dashboards", cookie=vic).csrf
    for place, action in (("/ask", "basket"), ("/ask/basket", "buy"), ("/ask/basket", "empty")):
        form = {"csrf": csrf, "action": action, "sql": QUESTIONS[0], "epsilon": "1"}
        assert site.call("POST", place, cookie=vic, form=form).status == 403
    foreign = site.call("GET", "/ask/basket", cookie=ada).csrf
    for csrf in ("", foreign):
        form = {"csrf": csrf, "action": "empty"}
        assert site.call("POST", "/ask/basket", cookie=ana, form=form).status == 403
    send(site, ana, action="empty")


def test_it_keeps_to_shares_and_approvals(site):
    ana, ada, before = site.login("ana"), site.login("ada"), site.spent()
    events = []
    site.service._log = events.append
    for sql in QUESTIONS[::2]:
        send(site, ana, action="basket", sql=sql)
    large = send(site, ana, action="price", epsilon="40")
    assert "does not fit" in large.text
    assert send(site, ana, action="buy", epsilon="40", seen=seen(large)).status == 402
    high = send(site, ana, action="price", epsilon="4")  # above approve_above
    assert "ask for approval" in high.text
    waits = send(site, ana, action="buy", epsilon="4", seen=seen(high))
    assert waits.status == 409
    assert site.spent() == before
    people = site.call("GET", "/people", cookie=ada)
    (number,) = re.findall(r'name="number" value="(\d+)"', people.text)
    form = {"csrf": people.csrf, "number": number, "action": "approve"}
    site.call("POST", "/people", cookie=ada, form=form)
    assert send(site, ana, action="buy", epsilon="4", seen=seen(high)).status == 200
    assert site.spent() == pytest.approx(before + 4)
    told = [(each["outcome"], each.get("spent")) for each in events if each["event"] == "ask"]
    assert told == [("refused", None), ("refused", None), ("charged", "4")]
    send(site, ana, action="empty")


def test_what_cannot_be_planned_says_so(site):
    ana = site.login("ana")
    for sql in ("DROP TABLE visits", "SELECT 1"):
        assert send(site, ana, action="basket", sql=sql).status in (303, 422)
    nasty = 'DP-SELECT 0.1 COUNT(*) AS "<script>alert(1)</script>" FROM visits'
    send(site, ana, action="empty")
    send(site, ana, action="basket", sql=nasty)
    page = site.call("GET", "/ask/basket", cookie=ana).text
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert" in page
    for epsilon in ("", "nan", "-1", "x" * 20):
        assert send(site, ana, action="price", epsilon=epsilon).status in (200, 422)
    for place in ("-1", "99999999", "x"):
        send(site, ana, action="drop", place=place)
    assert "alert" in site.call("GET", "/ask/basket", cookie=ana).text
