"""What rules mean for cells and rows: judged by values, apart from the code that keeps them."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import sfumato as sf
from helpers.projects import write_project
from sfumato.core.errors import RecipeError, SchemaError
from sfumato.core.facts.table import parse_table, table_spec
from sfumato.recipes import Adaptive, AdaptiveGrid, FieldGroups, Tree
from sfumato.recipes.shared.repair import check_rules, draw_obeying
from sfumato.recipes.shared.rows import build_rows, describe_bins
from sfumato.recipes.shared.rules import active_rules, find_zeros, mask_rule

COLUMNS = {
    "age": {"bins": [0, 3, 10, 20, 40, 80]},
    "pay": {"bins": [0, 100, 500, 1000]},
    "rate": {"bins": [0, 0.5, 2.5, 10]},
    "job": {"values": ["none", "cook", "nurse"]},
    "start": {"bins": [0, 10, 20, 30]},
    "end": {"bins": [0, 5, 15, 30]},
    "fare": {"bins": [0, 2.5, 10, 50]},
    "tips": {"bins": [0, 0.5, 5, 20]},
    "total": {"bins": [0, 3.5, 12, 70]},
    "a": {"range": [0, 5]},
    "b": {"range": [0, 5]},
    "both": {"range": [0, 10]},
    "town": {"values": ["u", "v", "w", "x"]},
    "land": {"values": ["north", "south"], "missing_label": "unknown"},
}
CHILDREN = "age < 15 and pay > 0"
DECIDED = {"from": "town", "to": "land", "map": {"u": "north", "v": "south", "w": "south"}}


def make_table(*, impossible=(), rules=(), columns=COLUMNS):
    spec = {"source": "t.csv", "unit": "row", "columns": columns}
    return parse_table("t", {**spec, "impossible": list(impossible), "rules": list(rules)})


def draw_rows(table, count=3000, *, columns=None, seed=3):
    """Rows of independent columns, each value with equal chance, made to obey."""
    names = tuple(table.columns) if columns is None else columns

    def draw(rows, turn):
        generator = np.random.default_rng((seed, turn))
        return {name: generator.integers(0, table.column(name).size, rows) for name in names}

    codes = draw_obeying(table, names, draw, rows=count, seed=seed)
    return build_rows(table, names, codes, seed=seed).to_pydict()


def values(rows, *names):
    return [np.array(rows[name]) for name in names]


def test_a_cell_is_empty_only_if_none_of_its_values_obeys():
    table = make_table(impossible=["age < 15 and pay >= 100"])
    ((columns, mask),) = find_zeros(table, ("age", "pay", "job"))
    expected = np.zeros((5, 3), bool)
    expected[:2, 1:] = True  # [10, 20) holds people of 15, [0, 100) holds less than 100
    assert columns == ("age", "pay")
    assert (mask.reshape(5, 3) == expected).all()


def test_rules_of_the_same_columns_are_zeros_of_one_clique():
    table = make_table(impossible=["job = 'none' and pay >= 100", "pay < 100 and job != 'none'"])
    ((_, mask),) = find_zeros(table, ("job", "pay"))
    assert mask.reshape(3, 3).tolist() == [[False, True, True], [True, False, False], [True, False, False]]


WHOLE = {"x": {"bins": [0, 2, 5, 6]}, "y": {"bins": [0, 1, 4, 6]}, "z": {"range": [0, 3]}}
SIGNS = ("<", "<=", ">", ">=", "=", "!=")


@st.composite
def conditions(draw):
    """A condition as a rule, and the same for Python."""
    parts = []
    for _ in range(draw(st.integers(1, 3))):
        name, sign = draw(st.sampled_from("xyz")), draw(st.sampled_from(SIGNS))
        parts.append((name, sign, draw(st.integers(0, 3))))
    words = [draw(st.sampled_from(["and", "or"])) for _ in parts[1:]]
    denied = [draw(st.booleans()) for _ in parts]
    rule = python = ""
    for place, ((name, sign, number), no) in enumerate(zip(parts, denied, strict=True)):
        joint = f" {words[place - 1]} " if place else ""
        same = {"=": "=="}.get(sign, sign)
        rule += f"{joint}{'not ' if no else ''}({name} {sign} {number})"
        python += f"{joint}{'not ' if no else ''}({name} {same} {number})"
    return rule, python


@given(conditions())
def test_the_mask_of_a_condition_is_that_of_all_its_values(condition):
    text, python = condition
    table = make_table(impossible=[text], columns=WHOLE)
    mask = (
        mask_rule(table, table.rules[0], ("x", "y", "z"))
        if set(table.rules[0].columns) == set("xyz")
        else None
    )
    if mask is None:
        return
    spans = {"x": [(0, 1), (2, 4), (5, 6)], "y": [(0, 0), (1, 3), (4, 6)], "z": [(n, n) for n in range(4)]}
    code = compile(python, "rule", "eval")
    for cell, broken in zip(np.ndindex(3, 3, 4), mask, strict=True):
        inside = [range(spans[n][c][0], spans[n][c][1] + 1) for n, c in zip("xyz", cell, strict=True)]
        points = ((x, y, z) for x in inside[0] for y in inside[1] for z in inside[2])
        assert broken == all(eval(code, {"x": x, "y": y, "z": z}) for x, y, z in points)


@given(st.lists(conditions(), min_size=1, max_size=3))
def test_rows_obey_or_the_rules_are_refused(listed):
    table = make_table(impossible=[text for text, _ in listed], columns=WHOLE)
    points = [(x, y, z) for x in range(7) for y in range(7) for z in range(4)]
    codes = [compile(python, "rule", "eval") for _, python in listed]

    def obeys(x, y, z):
        return not any(eval(code, {"x": x, "y": y, "z": z}) for code in codes)

    if not any(obeys(*point) for point in points):
        with pytest.raises(RecipeError, match="rule"):
            check_rules(table, ("x", "y", "z"))
        return
    check_rules(table, ("x", "y", "z"))
    rows = draw_rows(table, 200)
    assert all(obeys(*row) for row in zip(*(rows[name] for name in "xyz"), strict=True))


def test_numbers_within_bins_obey_where_a_bin_is_cut_by_a_rule():
    rows = draw_rows(make_table(impossible=[CHILDREN, "rate = 0 or rate > 7.25"]))
    age, pay, rate = values(rows, "age", "pay", "rate")
    assert not ((age < 15) & (pay > 0)).any()
    assert ((age >= 15) & (age < 20)).sum() > 100, "the part of the bin that may have any pay is used"
    assert rate.min() > 0
    assert rate.max() <= 7.25
    assert (rate > 2.5).sum() > 500


def test_children_without_a_free_value_get_the_only_one():
    """Where only one number of a bin is allowed no draw finds it: numbers are moved there."""
    rows = draw_rows(make_table(impossible=["age < 40 and rate > 0"]))
    age, rate = values(rows, "age", "rate")
    assert (rate[age < 40] == 0).all()
    assert (age < 40).sum() > 100


def test_conditions_that_leave_one_number_of_a_bin_together_are_obeyed_together():
    table = make_table(impossible=["not age > 41", "age > 42", "rate > 3 or rate < 2.75"])
    check_rules(table, tuple(COLUMNS))
    age, rate = values(draw_rows(table, 300), "age", "rate")
    assert set(age) == {42}
    assert 2.75 <= rate.min() <= rate.max() <= 3


def test_orders_hold_within_bins_that_overlap():
    for rule in ("start <= end", "start < end", "end >= start"):
        rows = draw_rows(make_table(rules=[rule]))
        start, end = values(rows, "start", "end")
        assert (start < end if rule == "start < end" else start <= end).all()
        assert len(set(start)) > 20
    rows = draw_rows(make_table(rules=["a < b"]))
    assert (np.array(rows["a"]) < np.array(rows["b"])).all()


def test_sums_add_up_exactly_and_stay_in_the_bins_of_their_total():
    rows = draw_rows(make_table(rules=["total = fare + tips", "both = a + b"]))
    fare, tips, total, a, b, both = values(rows, "fare", "tips", "total", "a", "b", "both")
    assert (total == fare + tips).all()
    assert total.max() <= 70
    assert (both == a + b).all()
    assert len(set(both)) == 11


def test_what_is_decided_follows_a_list_or_else_most_rows():
    rows = draw_rows(make_table(rules=[DECIDED]))
    found = {}
    for town, land in zip(rows["town"], rows["land"], strict=True):
        found.setdefault(town, set()).add(land)
    assert found["u"] == {"north"}
    assert found["v"] == found["w"] == {"south"}
    assert len(found["x"]) == 3, "a town that is not listed may lie anywhere"
    rows = draw_rows(make_table(rules=["town -> job", "job -> a"]))
    assert len(set(zip(rows["town"], rows["job"], strict=True))) == 4
    assert len(set(zip(rows["job"], rows["a"], strict=True))) == len(set(rows["job"]))


def test_a_value_is_missing_exactly_when_it_should_be():
    rows = draw_rows(make_table(rules=["land is missing exactly when age < 10"]))
    missing = np.array(rows["land"]) == "unknown"
    assert (missing == (np.array(rows["age"]) < 10)).all()
    assert 0.1 < missing.mean() < 0.9


@pytest.mark.parametrize("test", ["x < 2", "x >= 2", "x = 1", "x != 1", "x in (0, 3)"])
def test_of_a_missing_value_a_comparison_says_nothing(test):
    columns = {"x": {"range": [0, 3], "missing_label": "none"}, "y": {"range": [0, 1]}}
    table = make_table(impossible=[f"{test} and y = 1", f"not {test} and y = 0"], columns=columns)
    ((_, mask),) = find_zeros(table, ("x", "y"))
    assert mask.reshape(5, 2)[4].tolist() == [False, False]


def test_all_rules_together_hold():
    table = make_table(
        impossible=[CHILDREN, "job = 'nurse' and age < 18"],
        rules=["start <= end", "total = fare + tips", DECIDED, "land is missing exactly when town = 'x'"],
    )
    check_rules(table, tuple(COLUMNS))
    rows = draw_rows(table)
    age, pay, job, start, end = values(rows, "age", "pay", "job", "start", "end")
    fare, tips, total, town, land = values(rows, "fare", "tips", "total", "town", "land")
    assert not ((age < 15) & (pay > 0)).any()
    assert not ((job == "nurse") & (age < 18)).any()
    assert (start <= end).all()
    assert (total == fare + tips).all()
    assert ((land == "unknown") == (town == "x")).all()


def test_the_same_seed_gives_the_same_rows():
    table = make_table(impossible=[CHILDREN], rules=["start <= end", "total = fare + tips"])
    assert draw_rows(table) == draw_rows(table)
    assert draw_rows(table) != draw_rows(table, seed=4)


@pytest.mark.parametrize(
    ("impossible", "rules", "match"),
    [
        (["age >= 0"], [], "'age >= 0' leaves no row within the domains of age"),
        (["a < 3", "a >= 3"], [], "contradict each other"),
        (["a < 4 or b >= 4"], ["a <= b"], "contradict each other"),
        ([], ["a < b", "b < a"], "contradict|no row was found"),
        ([], [DECIDED, {**DECIDED, "map": {"u": "south", "v": "north", "w": "north"}}, "town -> a"], None),
        (
            ["town = 'x'"],
            [DECIDED, {**DECIDED, "map": {"u": "south", "v": "north", "w": "north"}}],
            "no row was found",
        ),
        ([], ["a = fare + tips"], "whole"),
        (["fare > 2"], ["tips = fare + total", "fare = tips + total"], None),
        (["start < 20 or end >= 20"], ["start <= end"], "contradict|no row was found"),
    ],
)
def test_rules_that_contradict_are_refused_with_their_words(impossible, rules, match):
    table = make_table(impossible=impossible, rules=rules)
    if match is None:
        check_rules(table, tuple(COLUMNS))
        return
    with pytest.raises(RecipeError, match=match):
        check_rules(table, tuple(COLUMNS))


RECIPES = {
    "adaptive": Adaptive(table="t", columns=["a", "b", "c", "d"], workload=2),
    "tree": Tree(table="t", columns=["a", "b", "c", "d"]),
    "adaptive-grid": AdaptiveGrid(table="t", outer=[["a", "c"], ["b", "d"]]),
    "field-groups": FieldGroups(table="t", columns=["a", "b", "c", "d"], groups=[["a", "c"]]),
}
RULED = """unit = "row"
impossible = ["a < 8 and d > 20", "c = 'x' and b >= 12"]
rules = ["a <= b"]"""


@pytest.mark.parametrize("kind", RECIPES)
@pytest.mark.parametrize("epsilon", [0.05, 5])
@pytest.mark.usefixtures("seeded_noise")
def test_releases_obey_whatever_the_records_are(lay_out, tmp_path, kind, epsilon):
    """The records break all three rules; the rows do not, and verify."""
    project = lay_out(unit=RULED)
    out = tmp_path / "out"
    release = sf.open(project).release(RECIPES[kind], epsilon=epsilon, delta=1e-6, out=out)
    rows = release.table.to_pydict()
    a, b, c, d = (np.array(rows[name]) for name in "abcd")
    assert a.size > 0
    assert not ((a < 8) & (d > 20)).any()
    assert not ((c == "x") & (b >= 12)).any()
    assert (a <= b).all()
    sf.verify(out, ledger=tmp_path / "ledger.db")


@pytest.mark.parametrize("kind", RECIPES)
def test_rules_change_no_price(lay_out, kind):
    plain = sf.open(lay_out()).check(RECIPES[kind], epsilon=1, delta=1e-6)
    ruled = sf.open(lay_out(unit=RULED)).check(RECIPES[kind], epsilon=1, delta=1e-6)
    assert ruled.plan.costs == plain.plan.costs
    assert ruled.plan.digest != plain.plan.digest


@pytest.mark.parametrize("kind", RECIPES)
@pytest.mark.usefixtures("seeded_noise")
def test_entries_of_values_are_what_they_were_before_there_were_rules(lay_out, kind):
    """Models keep their cells empty; nothing is repaired, and no write-up speaks of rules."""
    listed = 'unit = "row"\nimpossible = [{a = [0, 1, 2], c = ["z"]}]'
    curator = sf.open(lay_out(unit=listed))
    (table,) = (curator.check(RECIPES[kind], epsilon=1, delta=1e-6).plan.table,)
    assert active_rules(table, tuple(table.columns)) == ()
    assert "rule" not in describe_bins(table, tuple(table.columns), None)
    rows = curator.release(RECIPES[kind], epsilon=1, delta=1e-6).table.to_pylist()
    met = any(row["a"] < 3 and row["c"] == "z" for row in rows)
    assert not met or kind == "field-groups"


def test_contradicting_rules_cost_nothing(lay_out):
    curator = sf.open(lay_out(unit='unit = "row"\nimpossible = ["a < 9", "a > 7"]'))
    for recipe in RECIPES.values():
        with pytest.raises(RecipeError, match="contradict"):
            curator.release(recipe, epsilon=1, delta=1e-6)
    assert curator.budget().spent == 0


def test_a_rule_too_large_for_the_model_holds_all_the_same():
    """Its cells are no zeros; rows are drawn anew and what is left copies a row that obeys."""
    columns = {"x": {"range": [0, 2999]}, "y": {"range": [0, 2999]}, "z": {"range": [0, 5998]}}
    table = make_table(impossible=["x > 100 and y > 100"], rules=["z = x + y"], columns=columns)
    assert find_zeros(table, ("x", "y", "z")) == []
    check_rules(table, ("x", "y", "z"))
    x, y, z = values(draw_rows(table, 2000), "x", "y", "z")
    assert not ((x > 100) & (y > 100)).any()
    assert (z == x + y).all()


def test_rows_that_are_drawn_anew_keep_what_no_rule_speaks_of():
    """Whole rows of the model take the place of broken ones, so that other columns still go with theirs."""
    columns = {name: {"range": [0, 9]} for name in ("x", "y", "twin")}
    table = make_table(impossible=["x < 5 and y < 5"], columns=columns)

    def draw(rows, turn):
        generator = np.random.default_rng((9, turn))
        x = generator.integers(0, 10, rows)
        return {"x": x, "y": generator.integers(0, 10, rows), "twin": x.copy()}

    codes = draw_obeying(table, tuple(columns), draw, rows=4000, seed=0)
    assert not ((codes["x"] < 5) & (codes["y"] < 5)).any()
    assert (codes["x"] == codes["twin"]).all()
    assert np.mean(codes["x"] < 5) == pytest.approx(1 / 3, abs=0.04), "as the model is, given the rule"


def test_a_column_of_one_value_may_be_in_a_rule():
    columns = {"one": {"values": ["only"]}, "a": {"range": [0, 3]}}
    table = make_table(impossible=["one = 'only' and a > 1"], columns=columns)
    check_rules(table, ("one", "a"))
    assert set(draw_rows(table, 100)["a"]) == {0, 1}
    with pytest.raises(RecipeError, match="leaves no row"):
        check_rules(make_table(impossible=["one = 'only'"], columns=columns), ("one", "a"))


NULLS = {
    "age": {"range": [0, 89]},
    "income": {"bins": [0, 100, 500], "nullable": True},
    "job": {"values": ["cook", "nurse"], "nullable": True},
    "rooms": {"range": [1, 9], "nullable": True},
    "fare": {"bins": [0, 2.5, 10], "nullable": True},
    "tips": {"bins": [0, 0.5, 5]},
    "paid": {"bins": [0, 3.5, 15], "nullable": True},
}


def test_missing_values_are_null_and_the_others_keep_their_type():
    table = make_table(columns=NULLS)
    codes = {name: np.arange(60) % table.column(name).size for name in NULLS}
    rows = build_rows(table, tuple(NULLS), codes, seed=1)
    kinds = {name: str(rows[name].type) for name in NULLS}
    assert kinds["age"] == kinds["income"] == kinds["rooms"] == "int64"
    assert kinds["fare"] == "double"
    assert "string" in kinds["job"]
    for name in ("income", "job", "rooms", "fare"):
        missing = codes[name] == table.column(name).size - 1
        assert missing.any()
        assert [value is None for value in rows[name].to_pylist()] == missing.tolist()
    assert set(rows["rooms"].drop_null().to_pylist()) == set(range(1, 10))
    assert set(rows["job"].drop_null().to_pylist()) == {"cook", "nurse"}


def test_rules_hold_among_missing_values():
    table = make_table(
        rules=["income is missing exactly when age < 15", "paid = fare + tips"],
        impossible=["job is missing and rooms > 3"],
        columns=NULLS,
    )
    check_rules(table, tuple(NULLS))
    rows = draw_rows(table)
    for age, income in zip(rows["age"], rows["income"], strict=True):
        assert (income is None) == (age < 15)
    for job, rooms in zip(rows["job"], rows["rooms"], strict=True):
        assert job is not None or rooms is None or rooms <= 3
    complete = 0
    for fare, tips, paid in zip(rows["fare"], rows["tips"], rows["paid"], strict=True):
        if fare is not None and paid is not None:
            complete += 1
            assert paid == fare + tips
    assert complete > 500
    assert None in rows["fare"]


@pytest.mark.parametrize("kind", ["tree", "field-groups"])
@pytest.mark.usefixtures("seeded_noise")
def test_a_release_with_nulls_verifies(tmp_path, kind):
    ages = np.arange(3000) % 90
    incomes = [None if age < 15 else int(age) for age in ages]
    rows = pa.table({"age": ages, "income": pa.array(incomes, pa.int64())})
    columns = {"age": {"range": [0, 89]}, "income": {"bins": [0, 50, 100], "nullable": True}}
    more = 'rules = ["income is missing exactly when age < 15"]'
    project = write_project(tmp_path, columns, rows=rows, delta=1e-6, more=more)
    grouped = FieldGroups(table="t", groups=[["age", "income"]])
    recipe = {"tree": Tree(table="t"), "field-groups": grouped}[kind]
    release = sf.open(project).release(recipe, epsilon=5, delta=1e-6, out=tmp_path / "out")
    assert release.table["income"].type == pa.int64()
    share = release.table["income"].null_count / release.table.num_rows
    assert abs(share - 1 / 6) < 0.05
    for row in release.table.to_pylist():
        assert (row["income"] is None) == (row["age"] < 15)
    sf.verify(tmp_path / "out", ledger=tmp_path / "ledger.db")


def test_independent_columns_that_are_drawn_given_a_rule_shift_their_counts():
    """As docs/rules.md says of rules beyond the model: 1/6 and 1/6 become 1/26."""
    columns = {"young": {"range": [0, 5]}, "income": {"range": [0, 4], "nullable": True}}
    table = make_table(rules=["income is missing exactly when young = 0"], columns=columns)
    rows = draw_rows(table, 20_000)
    assert rows["income"].count(None) / 20_000 == pytest.approx(1 / 26, abs=0.006)


def test_a_nullable_column_is_described_and_refused_where_it_means_nothing():
    table = make_table(columns=NULLS)
    again = parse_table("t", table_spec(table, tuple(NULLS)))
    assert again.columns == table.columns
    assert table.column("rooms").labels[-1] == "NULL"
    for spec in ({"bounds": [0, 1]}, {"range": [0, 1], "outside": "other"}):
        with pytest.raises(SchemaError, match="nullable"):
            make_table(columns={"x": {**spec, "nullable": True}})
