"""Rules found in a public table: what always holds is proposed, what chance explains is not."""

import json
import re
import tomllib

import numpy as np
import pyarrow as pa
import pyarrow.csv as pc
import pytest

from helpers.cli import invoke
from sfumato.core.facts.column import parse_column
from sfumato.core.facts.table import parse_table
from sfumato.recipes.grouping.rules import MOST_RULES, draft_rules, find_rules
from sfumato.tables.rules import parse_impossible, parse_rule

COLUMNS = {
    "county": {"values": [f"c{place}" for place in range(12)]},
    "state": {"values": ["north", "south", "east"]},
    "country": {"values": ["here", "there"]},
    "age": {"range": [0, 99]},
    "work status": {"values": ["none", "works", "retired"]},
    "income": {"bins": [0, 1, 10_000, 50_000, 1_000_000], "missing_label": "-"},
    "fare": {"bins": [0, 50, 100, 200]},
    "tips": {"bins": [0, 10, 20, 50]},
    "total": {"bins": [0, 50, 100, 250]},
    "start": {"range": [0, 200]},
    "end": {"range": [0, 200]},
}


def make(count=4000):
    random = np.random.default_rng(3)
    county = random.integers(0, 12, count)
    age = random.integers(0, 100, count)
    works = np.where(age < 15, 0, np.where(age >= 70, 2, random.integers(0, 3, count)))
    income = np.where(age < 15, np.nan, np.round(random.lognormal(10, 1, count)).clip(0, 900_000))
    cents = random.integers(100, 20_000, count), random.integers(0, 4_000, count)
    start = random.integers(0, 150, count)
    return pa.table(
        {
            "county": [f"c{place}" for place in county],
            "state": np.array(["north", "south", "east"])[county % 3],
            "country": np.array(["here", "there", "there"])[county % 3],
            "age": age,
            "work status": np.array(["none", "works", "retired"])[works],
            "income": pa.array(income, from_pandas=True),
            "fare": cents[0] / 100,
            "tips": cents[1] / 100,
            "total": cents[0] / 100 + cents[1] / 100,
            "start": start,
            "end": start + random.integers(0, 50, count),
        }
    )


@pytest.fixture(scope="module")
def described():
    return {name: parse_column(name, spec) for name, spec in COLUMNS.items()}


@pytest.fixture(scope="module")
def found(described):
    return find_rules(described, make())


def test_what_always_holds_is_found(found):
    texts = {key: [rule.text for rule in found if rule.key == key] for key in ("rules", "impossible")}
    assert set(texts["rules"]) == {
        "county -> state",
        "state -> country",
        "income is missing exactly when age < 15",
        "start <= end",
        "total = fare + tips",
    }
    assert "age < 15 and \"work status\" != 'none'" in texts["impossible"]
    assert "age >= 70 and \"work status\" != 'retired'" in texts["impossible"]


def test_what_follows_from_others_is_left_out(found):
    texts = [rule.text for rule in found]
    assert "county -> country" not in texts, "by way of the state"
    assert "fare <= total" not in texts, "by the sum"
    assert not [text for text in texts if "county" in text and "=" in text], "by the dependence"
    assert not [text for text in texts if "income" in text and "work" in text], "by way of the age"


def test_columns_that_have_nothing_to_do_with_each_other_have_no_rule(described):
    random, rows = np.random.default_rng(8), make()
    shuffled = pa.table(
        {name: rows[name].take(random.permutation(rows.num_rows)) for name in rows.column_names}
    )
    assert find_rules(described, shuffled) == ()


def test_what_few_rows_say_is_not_believed(described):
    assert not [rule for rule in find_rules(described, make().slice(0, 12)) if rule.broken < 12]
    assert find_rules(described, make().slice(0, 1)) == ()
    assert find_rules(described, make().slice(0, 0)) == ()
    assert find_rules(described, make().select(["age"])) == ()


def test_an_exception_ends_a_rule(described):
    rows = make()
    states = rows["state"].to_pylist()
    states[17] = {"north": "south", "south": "east", "east": "north"}[states[17]]
    changed = rows.set_column(rows.column_names.index("state"), "state", pa.array(states))
    texts = [rule.text for rule in find_rules(described, changed)]
    assert "county -> state" not in texts
    assert "county -> country" in texts, "no longer by way of the state"


def test_every_rule_is_one_that_a_project_file_understands(found, described):
    for rule in found:
        if rule.key == "rules":
            assert parse_rule(rule.text, described, folder=None).text == rule.text
        else:
            assert parse_impossible(rule.text, described).text == rule.text


def test_rules_are_comments_until_somebody_approves(found):
    lines = draft_rules(found, origin="last year.csv")
    assert all(line.startswith("#") for line in lines)
    assert draft_rules((), origin="x") == []
    entries = [line.removeprefix("# ") for line in lines[2:]]
    approved = tomllib.loads("\n".join(entries))
    assert len(approved["rules"]) == 5
    table = parse_table("t", {"source": "t.csv", "unit": "row", "columns": COLUMNS, **approved})
    assert len(table.rules) == len(found)
    assert re.search(r"held in all 4,000 public rows; by chance about [\d,]+ would break it", lines[3])


def test_few_rules_are_proposed_the_best_first(described):
    names = [f"n{place}" for place in range(30)]
    columns = {name: parse_column(name, {"range": [0, 40]}) for name in names}
    first = np.random.default_rng(2).integers(0, 10, 2000)
    rows = pa.table({name: first + place for place, name in enumerate(names)})
    for key in ("rules", "impossible"):
        own = [rule for rule in find_rules(columns, rows) if rule.key == key]
        assert len(own) <= MOST_RULES
        assert [rule.broken for rule in own] == sorted((rule.broken for rule in own), reverse=True)


def test_names_and_values_with_quotes_are_quoted():
    columns = {
        'a "b"': parse_column('a "b"', {"values": ["it's", "no"]}),
        "missing": parse_column("missing", {"values": ["x", "y"]}),
    }
    codes = np.arange(400) % 2
    rows = pa.table({'a "b"': np.array(["it's", "no"])[codes], "missing": np.array(["x", "y"])[codes]})
    found = find_rules(columns, rows)
    assert found
    for rule in found:
        parse_rule(rule.text, columns, folder=None)


PROJECT = """
[budget]
epsilon = 1
[tables.t]
source = "records.csv"
unit = "row"
[tables.t.columns]
county = { values = ["c0", "c1", "c2", "c3", "c4", "c5", "c6", "c7", "c8", "c9", "c10", "c11"] }
state = { values = ["north", "south", "east"] }
age = { range = [0, 99] }
"""


def test_a_table_of_a_project_gets_proposals(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sfumato.toml").write_text(PROJECT)
    pc.write_csv(make(50), tmp_path / "records.csv")
    pc.write_csv(make(), tmp_path / "public.csv")
    shown = invoke("describe", "t", "--rules", "public.csv")
    assert '#   "county -> state",' in shown.stdout
    assert all(line.startswith("#") for line in shown.stdout.splitlines())
    told = json.loads(invoke("describe", "t", "--rules", "public.csv", "--json").stdout)
    assert [rule["text"] for rule in told["proposed"]] == ["county -> state"]
    refused = invoke("describe", "t", "--rules", "records.csv", code=None)
    assert "not public" in str(refused.exception)


def test_a_draft_from_a_public_table_proposes_rules(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pc.write_csv(make(50).drop_columns(["income"]), tmp_path / "records.csv")
    pc.write_csv(make().drop_columns(["income"]), tmp_path / "public.csv")
    text = invoke("init", "records.csv", "--public", "public.csv", "--unit", "row").stdout
    assert '#   "county -> state",' in text
    assert "rules" not in tomllib.loads(text)["tables"]["records"]
    block = text[text.index("# rules = [") : text.index("[tables.records.columns]")]
    approved = text.replace(block, "\n".join(line.removeprefix("# ") for line in block.splitlines()) + "\n")
    tables = tomllib.loads(approved)["tables"]["records"]
    assert len(parse_table("records", tables).rules) > 3
