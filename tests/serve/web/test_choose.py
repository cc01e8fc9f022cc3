"""Questions that are chosen instead of written: their statements, the prices of errors, and the form."""

import datetime
import html
import re

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sfumato as sf
from helpers.walk import Walk
from sfumato.serve.facts import describe_tables
from sfumato.serve.web.choose import read_choice
from sfumato.serve.web.exchange import to_plain

PROJECT = """
[budget]
epsilon = 20.0
[tables."my t"]
source = "t.parquet"
unit = "who"
max_records = 1
[tables."my t".columns."Age x"]
bins = [0, 18, 40, 90]
[tables."my t".columns.code]
values = [0, 1, 2]
names = ["zero", "one", "two"]
[tables."my t".columns.ok]
values = [true, false]
[tables."my t".columns.city]
values = ["a'b", "c"]
[tables."my t".columns.day]
range = ["2025-01-01", "2025-12-31"]
[tables."my t".columns.mon]
from = "day"
period = "month"
[tables."my t".columns.w]
bounds = [0, 1000]
"""


@pytest.fixture(scope="module")
def odd(tmp_path_factory):
    """A project with every kind of column, and its tables as a page has them."""
    folder = tmp_path_factory.mktemp("odd")
    places = range(400)
    columns = {
        "who": [f"p{i}" for i in places],
        "Age x": [i % 90 for i in places],
        "day": [datetime.date(2025, 1 + i % 12, 1) for i in places],
        "code": [i % 3 for i in places],
        "ok": [bool(i % 2) for i in places],
        "w": [i * 1.5 for i in places],
        "city": ["a'b" if i % 2 else "c" for i in places],
    }
    pq.write_table(pa.table(columns), folder / "t.parquet")
    (folder / "sfumato.toml").write_text(PROJECT)
    curator = sf.open(folder / "sfumato.toml")
    return curator, to_plain(describe_tables(curator))


def choose(odd, **form):
    return read_choice(
        odd[1], {name: [value] if isinstance(value, str) else value for name, value in form.items()}
    )


def test_every_choice_is_a_statement_with_a_price(odd):
    whole = choose(odd)
    chosen = [choose(odd, measure=measure) for measure, _ in whole.measures]
    assert [each.measure for each in chosen] == [measure for measure, _ in whole.measures]
    for column in whole.columns:
        chosen += [
            choose(odd, by=column.name, measure=each) for each in ("COUNT(*)", "AVG(w)") if column.size
        ]
        chosen += [
            choose(odd, by=by, **{f"in {column.name}": column.values[0][:1]})
            for by in ("", column.name)
            if column.values
        ]
        if column.ends:
            low = column.ends[0][2]
            chosen += [choose(odd, by=by, **{f"from {column.name}": low}) for by in ("", column.name)]
    assert len({each.body for each in chosen}) >= 25
    for each in chosen:
        assert odd[0].sql(f"EXPLAIN DP-SELECT 0.1 {each.body}").price.admitted, each.body


def test_groups_that_were_not_wished_are_not_answered(odd):
    found = choose(odd, by="code", then="city", **{"in code": ["1", "2"], "in city": ["a'b"]})
    rows = odd[0].sql(f"DP-SELECT 0.5 {found.body}").to_arrow().to_pylist()
    assert {(row["code"], row["city"]) for row in rows} == {(1, "a'b"), (2, "a'b")}


def test_only_what_is_public_can_be_chosen(odd):
    plain = choose(odd)
    form = {"table": "other", "measure": "MAX(w)", "by": "who", "then": "w", "in city": ["d", "c') OR 1=1"]}
    assert choose(odd, **form).body == plain.body
    assert read_choice([{"name": "t", "public": True, "columns": []}], {}) is None
    for end in ("1; DROP", "2025-02-31", "nan"):
        with pytest.raises(sf.SfumatoError):
            choose(odd, **{"from w": end})


def read_rungs(page):
    """The errors that a page offers with their prices, the roughest first."""
    found = re.findall(r"<b>([^<]+)</b>\s*<span>([^<]+)</span></label>", page)
    return [(words, html.unescape(price).replace("\xa0", " ")) for words, price in found]


def test_a_wished_error_is_bought_for_the_price_that_within_takes(site):
    ana, before = site.login("ana"), site.spent()
    page = site.call("GET", "/ask/choose?by=clinic&from+month=3&to+month=9", cookie=ana)
    rungs = read_rungs(page.text)
    assert [words for words, _ in rungs] == ["±200", "±100", "±50", "±20", "±10", "±5"]
    explained = (
        "DP-SELECT WITHIN 20 clinic, COUNT(*) AS n FROM visits WHERE month >= 3 AND month <= 9 GROUP BY 1"
    )
    price = site.call("POST", "/api/explain", by="ana", send={"sql": explained}).json["epsilon"]
    assert rungs[3][1] == f"ε {price}"
    form = {"csrf": page.csrf, "by": "clinic", "from month": "3", "to month": "9", "rung": "3"}
    priced = site.call("POST", "/ask/choose", cookie=ana, form={**form, "action": "price"})
    assert site.spent() == before
    hidden = {
        name: re.search(rf'name="{name}" value="([^"]*)"', priced.text)[1] for name in ("seen", "price")
    }
    # What was priced is bought, and nothing else: not another error, and not for more.
    other = {**form, **hidden, "rung": "4", "action": "buy"}
    assert 'id="answer"' not in site.call("POST", "/ask/choose", cookie=ana, form=other).text
    assert (
        site.call(
            "POST", "/ask/choose", cookie=ana, form={**form, **hidden, "price": "0.01", "action": "buy"}
        ).status
        == 402
    )
    assert site.spent() == before
    bought = site.call("POST", "/ask/choose", cookie=ana, form={**form, **hidden, "action": "buy"})
    assert site.spent() == pytest.approx(before + price)
    assert bought.text.split('id="answer"')[1].count("<rect") == 3
    again = site.call("POST", "/ask/choose", cookie=ana, form={**form, "action": "price"})
    assert read_rungs(again.text)[2:4] == [
        ("±50", "a more exact one is paid for"),
        ("±20", "already paid for"),
    ]


def test_an_average_is_offered_by_price(site):
    rungs = read_rungs(site.call("GET", "/ask/choose?measure=AVG(fee)", cookie=site.login("ana")).text)
    assert [price for _, price in rungs] == ["ε 0.02", "ε 0.05", "ε 0.1", "ε 0.2", "ε 0.5", "ε 1"]
    # Where little is paid, fewer records may have no error that is worth a number.
    said = re.compile(r"about ±\S+ for [\d,]+ records(, ±\S+ for [\d,]+)*")
    assert [words for words, _ in rungs if not said.fullmatch(words)] == []


def test_a_form_that_cannot_be_a_question_says_why(site):
    got = site.call("GET", "/ask/choose?from+fee=cheap", cookie=site.login("ana"))
    assert (got.status, "end of a filter" in got.text) == (422, True)
    assert site.call("GET", "/ask/choose", cookie=site.login("vic")).status == 403


@pytest.mark.slow
@pytest.mark.parametrize(("width", "dark"), [(1280, False), (390, True)], ids=["laptop", "phone in the dark"])
def test_an_analyst_chooses_with_keys_alone(browser, site, width, dark):
    walk = Walk(browser, site, width=width, dark=dark)
    walk.login("ana")
    walk.go("/ask/choose")

    def change(selector, value):
        field = f"document.querySelector({selector!r})"
        walk.ask(f"{field}.focus(); {field}.value = {value!r}")
        walk.ask(f"{field}.dispatchEvent(new Event('change', {{bubbles: true}}))")

    change("[name=by]", "month")
    walk.wait("document.querySelector('[data-part=sql] pre').textContent.includes('GROUP BY month')")
    assert walk.ask("document.activeElement.name") == "by"  # where the keyboard was
    change("[name=then]", "clinic")
    walk.wait("document.querySelector('[data-part=sql] pre').textContent.includes('GROUP BY month, clinic')")
    walk.ask("document.querySelector('[name=rung]:checked').focus()")
    walk.key("ArrowDown")
    walk.wait("document.querySelector('[data-part=sql] pre').textContent.includes('WITHIN 20')")
    assert walk.ask("document.activeElement.value") == "3"
    walk.ask("document.querySelector('#filter-1').open = true")
    for place, last in enumerate(("North", "South") if dark else ("North",)):
        walk.ask(f"document.querySelectorAll('#filter-1 input')[{place}].focus()")
        walk.key(" ", "Space")
        walk.wait(f"document.querySelector('[data-part=sql] pre').textContent.includes(`'{last}')`)")
    assert walk.ask("document.querySelector('#filter-1').open")
    walk.look()
    walk.wait("document.querySelector('[value=buy]:not(:disabled)') !== null")
    walk.press("[value=buy]")
    assert walk.ask("document.activeElement.id") == "answer"
    assert walk.ask("document.querySelectorAll('.answer svg .band').length") == 1 + dark
    change("[name=rung]:checked", "3")
    walk.wait("!document.querySelector('#answer')")  # it no longer belongs to what is chosen
