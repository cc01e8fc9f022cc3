"""The explorer's page answers in a real browser what `sfumato sql --model` answers, intervals included."""

import json
import random

import numpy as np
import pandas as pd
import pytest

import sfumato as sf
from helpers.cli import run_main
from helpers.sources import seed_noise
from sfumato.core.errors import ReleaseError
from sfumato.release.ask import open_model
from sfumato.report.explorer import build_explorer

COLUMNS = {
    "region": ["a", "b's", 'c "<', "d"],
    "shop": [f"shop {n}" for n in range(60)],
    "month": {"range": [1, 12]},
    "age": {"bins": [0, 18, 40, 65, 100]},
    "code": {"values": [7, 8], "outside": "other"},
    "season": {"from": ["year", "half"], "values": [[2024, "h1"], [2024, "h2"], [2025, "h1"]]},
}


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Releases with models: a tree, and one whose rare values were joined."""
    draw = np.random.default_rng(5)
    region, season = draw.integers(0, 4, 4000), draw.integers(0, 3, 4000)
    month = 1 + (region * 3 + draw.integers(0, 4, 4000)) % 12
    frame = pd.DataFrame(
        {
            "region": np.array(COLUMNS["region"])[region],
            "shop": np.array(COLUMNS["shop"])[np.minimum(draw.geometric(0.15, 4000) - 1 + region, 59)],
            "month": month,
            "age": np.minimum(99, month * 6 + draw.integers(0, 20, 4000)),
            "code": 7 + draw.integers(0, 3, 4000),
            "year": np.where(season == 2, 2025, 2024),
            "half": np.where(season == 1, "h2", "h1"),
        }
    )
    path = tmp_path_factory.mktemp("explored")
    curator = sf.from_frame(
        frame, unit="row", columns=COLUMNS, epsilon=10, delta=1e-6, name="t", ledger=path / "ledger.db"
    )
    with seed_noise():
        curator.release(sf.recipes.Tree(table="t"), epsilon=1, delta=1e-8, out=path / "tree")
        curator.release(sf.recipes.Adaptive(table="t"), epsilon="0.3", delta=1e-8, out=path / "adaptive")
        curator.release(sf.recipes.CellCounts(table="t", by=("region",)), epsilon=1, out=path / "plain")
    return path


def draw_question(draw, fields):
    """A question as the page puts it together: any columns, choices of labels, and any of its numbers."""
    places = range(len(fields))
    kind = draw.choice(("count", "count", "sum", "average", "share"))
    question = {"keys": draw.sample(places, draw.randint(0, 2)), "kind": kind, "filters": []}
    for at in draw.sample(places, draw.choice((0, 0, 1, 1, 2))):
        labels = range(len(fields[at]["distinct"]))
        question["filters"].append([at, sorted(draw.sample(labels, draw.randint(1, len(labels))))])
    if kind in ("sum", "average"):
        question["field"] = draw.choice([at for at in places if fields[at]["ends"]])
    if kind == "share":
        question["field"] = draw.choice(places)
        question["label"] = draw.randrange(len(fields[question["field"]]["distinct"]))
    return question


def compare(browser, folder, count):
    """Asks `count` questions both ways; the numbers differ by the rounding of the model's tables alone."""
    page = folder.parent / f"{folder.name}.html"
    page.write_bytes(build_explorer(folder))
    browser.open(page, width=1280)
    fields = json.loads(browser.evaluate("opened.then(all => JSON.stringify(all.fields))"))
    assert browser.heard() == ([page.as_uri()], [])
    model, draw, known = open_model(folder), random.Random(count), 0
    for _ in range(count):
        question = draw_question(draw, fields)
        told = f"(all => JSON.stringify([all.sql(q), all.ask(q)]))(all, q = {json.dumps(question)})"
        statement, rows = json.loads(browser.evaluate(f"opened.then(all => {{ let q; return {told} }})"))
        answers = {
            tuple(str(row[fields[at]["name"]]) for at in question["keys"]): row
            for row in model.sql(statement).to_arrow().to_pylist()
        }
        # Without a column to group by, SQL has a row even where nothing is left.
        assert len(answers) == len(rows) or (not rows and not question["keys"]), statement
        scale = max([1.0, *(abs(row["answer"] or 0) for row in answers.values())])
        for row in rows:
            pairs = zip(question["keys"], row["labels"], strict=True)
            answer = answers[tuple(str(fields[at]["distinct"][label]) for at, label in pairs)]
            for mine, theirs in (("value", "answer"), ("low", "answer_low"), ("high", "answer_high")):
                expected = None if answer[theirs] is None else pytest.approx(answer[theirs], abs=1e-5 * scale)
                assert row[mine] == expected, (statement, mine)
            known += row["low"] is not None
    return known


@pytest.mark.parametrize("name", ["tree", "adaptive"])
def test_the_page_answers_as_sql_does(browser, folders, name):
    assert compare(browser, folders / name, 40) > 40


@pytest.mark.slow
@pytest.mark.parametrize("name", ["tree", "adaptive"])
def test_the_page_answers_a_thousand_questions_as_sql_does(browser, folders, name):
    assert compare(browser, folders / name, 1000) > 1000


def test_one_asks_by_choosing(browser, folders):
    page = folders / "choose.html"
    page.write_bytes(build_explorer(folders / "tree"))
    choose = "(id, to) => { find(id).value = to; find(id).dispatchEvent(new Event('change')); }"
    for width in (390, 1280):
        browser.open(page, width=width)
        browser.evaluate("opened.then(() => true)")
        browser.evaluate(
            f"for (const [id, to] of [['first', 2], ['second', 0], ['where', 3]]) ({choose})(id, to)"
        )
        assert browser.evaluate("document.querySelectorAll('.sheet').length") == 4
        browser.evaluate("document.querySelector('#filters input').click()")
        assert "IN ('[0, 18)')" in browser.evaluate("document.querySelector('#answer pre').textContent")
        assert browser.evaluate("document.documentElement.scrollWidth") <= width
    browser.evaluate(f"({choose})('second', '')")
    assert browser.evaluate("document.querySelector('.finding').textContent").startswith(
        "Most records: month "
    )


def test_nothing_is_said_to_stand_above_what_has_no_interval(browser, folders):
    page = folders / "stands.html"
    page.write_bytes(build_explorer(folders / "tree"))
    browser.open(page, width=1280)
    top = {"labels": [0], "value": 100, "low": 90, "high": 110}
    surely, perhaps = ({"labels": [1], "value": 80, "low": None, "high": high} for high in (85, None))
    surely["low"] = 75
    for others, said in (([surely], "all others."), ([surely, perhaps], "all others that have an interval.")):
        asked = f"tell(all, {{kind: 'count', keys: [0], filters: []}}, {json.dumps([top, *others])})"
        assert browser.evaluate(f"opened.then(all => {asked})").endswith(f"It stands above {said}")


def test_a_release_without_a_model_is_refused_with_what_works(folders):
    with pytest.raises(ReleaseError, match="holds no model to ask; draw it with: sfumato report"):
        build_explorer(folders / "plain")
    told = json.loads(run_main("explore", "tree", "--json", cwd=folders).stdout)
    assert told["bytes"] == (folders / told["explorer"]).stat().st_size < 200_000
