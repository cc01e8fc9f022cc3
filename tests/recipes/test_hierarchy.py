"""Levels that add up: what is asked, what it costs, what comes out, what is refused before a charge."""

from fractions import Fraction

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest
from tests.helpers.cli import invoke

import sfumato as sf
from sfumato.metrics.released import open_release
from sfumato.recipes import Hierarchy, hierarchy
from sfumato.recipes.files import parse_record

COLUMNS = """
[tables.t.columns.tract]
values = ["t1", "t2", "t3", "t4", "t5", "t6"]
outside = "other"
[tables.t.columns.month]
range = [1, 12]
[tables.t.columns.county]
values = ["x"]
"""
TREE = [
    ["tract", "district", "state"],
    ["t1", "d1", "s1"],
    ["t2", "d1", "s1"],
    ["t3", "d2", "s1"],
    ["t4", "d1", "s2"],
    ["t5", "d1", "s2"],
    ["t6", "d3", "s2"],
    ["elsewhere", "d9", "s9"],
]
RECIPE = Hierarchy(table="t", column="tract", tree=TREE, by=("month",))
MEASURED = ("total", "state x month", "district x month", "tract x month")


def make_people(people=3000):
    random = np.random.default_rng(7)
    return pa.table(
        {
            "p": np.arange(people) // 2,
            "tract": random.choice(
                ["t1", "t2", "t3", "t4", "t5", "unheard"], people, p=[0.4, 0.2, 0.2, 0.1, 0.05, 0.05]
            ),
            "month": random.integers(1, 13, people),
            "county": ["x"] * people,
        }
    )


@pytest.fixture
def curator(lay_out):
    return sf.open(lay_out(make_people(), columns=COLUMNS, unit='unit = "p"\nmax_records = 2'))


def rows_of(release, level):
    return [row for row in release.table.to_pylist() if row["level"] == level]


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
def test_levels_add_up_and_the_budget_is_spent_exactly(curator, tmp_path, noise):
    recipe = Hierarchy(table="t", column="tract", tree=TREE, by=("month",), noise=noise)
    release = curator.release(recipe, epsilon=1, delta=1e-6, out=tmp_path / "o")
    total = release.certificate["total"]
    if noise == "laplace":
        assert total["epsilon"] == "1"
    else:
        assert 0.99 < float(total["epsilon_at_delta"]["1e-6"]) <= 1
    counts = {level: rows_of(release, level) for level in MEASURED}
    assert [len(rows) for rows in counts.values()] == [1, 36, 60, 84]
    for coarse, fine, keys in (
        ("total", "state x month", ()),
        ("state x month", "district x month", ("state", "month")),
        ("district x month", "tract x month", ("state", "district", "month")),
    ):
        sums = {}
        for row in counts[fine]:
            key = tuple(row[each] for each in keys)
            sums[key] = sums.get(key, 0) + row["count"]
        assert sums == {tuple(row[each] for each in keys): row["count"] for row in counts[coarse]}
    for row in release.table.to_pylist():
        assert 0 <= row["low_95"] <= row["count"] <= row["high_95"]
    # Two districts of one name in two states are two nodes.
    assert len({(row["state"], row["district"]) for row in counts["district x month"]}) == 5
    assert counts["total"][0]["month"] is None
    assert sf.verify(tmp_path / "o", ledger=curator.ledger_path).verdict.startswith("verified")
    assert curator.release(recipe, epsilon=1, delta=1e-6).repeated


@pytest.mark.parametrize("tree", [None, TREE])
def test_a_tree_need_not_be_crossed_and_one_level_need_not_have_a_tree(curator, tmp_path, tree):
    recipe = Hierarchy(table="t", column="tract", tree=tree)
    release = curator.release(recipe, epsilon=1, out=tmp_path / "o")
    assert len({row["level"] for row in release.table.to_pylist()}) == (2 if tree is None else 4)
    assert not sf.verify(tmp_path / "o", ledger=curator.ledger_path).unchecked


def test_much_epsilon_gives_the_truth_at_every_level(curator):
    release = curator.release(RECIPE, epsilon=90)
    truth = make_people().to_pandas()
    assert rows_of(release, "total")[0]["count"] == len(truth)
    found = {(row["tract"], row["month"]): row["count"] for row in rows_of(release, "tract x month")}
    exact = truth.assign(tract=truth["tract"].replace("unheard", "other")).groupby(["tract", "month"]).size()
    assert {key: count for key, count in found.items() if count} == exact.to_dict()
    assert sum(found.values()) == len(truth)


def test_shares_and_errors_divide_the_budget(curator):
    shares = dict(zip(MEASURED, (1, 1, 2, 4), strict=True))
    plan = curator.check(
        Hierarchy(table="t", column="tract", tree=TREE, by=["month"], shares=shares), epsilon=1
    ).plan
    assert [cost.epsilon for cost in plan.costs] == [Fraction(each, 8) for each in (1, 1, 2, 4)]
    errors = dict(zip(MEASURED, (400, 200, 100, 50), strict=True))
    recipe = Hierarchy(table="t", column="tract", tree=TREE, by=["month"], errors=errors)
    plan = curator.check(recipe, epsilon=1).plan
    assert sum(cost.epsilon for cost in plan.costs) == 1
    for request, error in zip(plan.requests, errors.values(), strict=True):
        assert request.law.half_width() <= error
    scales = [float(request.scale) for request in plan.requests]
    assert scales == pytest.approx([8 * scales[-1], 4 * scales[-1], 2 * scales[-1], scales[-1]])
    with pytest.raises(sf.RecipeError, match="epsilon must be about"):
        curator.check(recipe, epsilon=0.01)
    assert curator.budget().spent == 0


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
def test_balanced_shares_leave_the_finest_level_nearly_what_it_would_have_alone(curator, noise):
    """By default, from the sizes of levels: the finest has at most 1.15 times its noise alone."""
    given = {"table": "t", "column": "tract", "tree": TREE, "by": ("month",), "noise": noise}
    check = curator.check(Hierarchy(**given), epsilon=1, delta=1e-6)
    alone = curator.check(Hierarchy(**given | {"levels": ("tract x month",)}), epsilon=1, delta=1e-6).plan
    equal = curator.check(Hierarchy(**given, shares="equal"), epsilon=1, delta=1e-6).plan
    scales = [float(request.scale) for request in check.plan.requests]
    assert scales == sorted(scales, reverse=True)
    assert 1.1 < scales[-1] / float(alone.requests[0].scale) < 1.1501
    assert len({request.scale for request in equal.requests}) == 1
    assert scales[-1] < 0.6 * float(equal.requests[-1].scale)
    # All of the budget is divided, as before.
    if noise == "laplace":
        assert sum(cost.epsilon for cost in check.plan.costs) == 1
    else:
        spent, before = (sum(cost.mu_squared for cost in plan.costs) for plan in (check.plan, equal))
        assert float(spent) == pytest.approx(float(before), rel=1e-4)
    own, best = (each.requests[-1].law.half_width() for each in (check.plan, alone))
    assert f"by up to {own:.4g} in 95 %" in check.notes[-1]
    assert check.notes[-1].endswith(f"alone, by {best:.4g}")


def test_shares_follow_from_sizes_whatever_these_are():
    """No level is left out, however small it is, and wide trees leave the finest level nearly all."""
    for power in (1, 2):
        shares = hierarchy._balance({"total": 1, "leaf": 10**9}, power)
        assert 0 < shares["total"] < Fraction(2, 1000)
        assert hierarchy._balance({"leaf": 5}, power) == {"leaf": 1}
        same = hierarchy._balance({"one": 5, "two": 5, "three": 5}, power)
        assert sum(same.values()) == 1
        assert float(same["three"]) == pytest.approx(1.15**-power, rel=1e-5)


def test_a_release_of_an_earlier_version_is_read_with_the_shares_it_had():
    """Certificates that state no shares had equal ones; what is errors stays what it was."""
    equal = Hierarchy(table="t", column="tract", tree=TREE, shares="equal")
    assert "shares" not in equal.to_record()
    assert parse_record(equal.to_record()) == equal
    errors = Hierarchy(table="t", column="tract", errors={"total": 1, "tract": 1})
    assert "shares" not in errors.to_record()
    assert parse_record(errors.to_record()) == errors
    usual = Hierarchy(table="t", column="tract")
    assert parse_record(usual.to_record()) == usual != equal


def test_known_counts_are_met_and_named_as_not_protected(curator, tmp_path):
    known = {"total": 3000, "state": {"s1": 2500, "s2": 500, "other": 0}}
    recipe = Hierarchy(
        table="t",
        column="tract",
        tree=TREE,
        by=["month"],
        levels=["total", "state", "state x month", "tract x month"],
        known=known,
    )
    release = curator.release(recipe, epsilon=1, out=tmp_path / "o")
    assert {each.request.name for each in release.measurements} == {
        "counts of state x month",
        "counts of tract x month",
    }
    assert {row["state"]: row["count"] for row in rows_of(release, "state")} == known["state"]
    assert all(row["low_95"] == row["high_95"] for row in rows_of(release, "state"))
    tracts = rows_of(release, "tract x month")
    assert sum(row["count"] for row in tracts if row["state"] == "s1") == 2500
    writeup = (tmp_path / "o" / "writeup.md").read_text()
    assert "Not protected: the counts of `total`, `state` were declared public" in writeup
    sf.verify(tmp_path / "o", ledger=curator.ledger_path)


def test_a_tree_in_a_file_is_read_as_public(curator, lay_out, tmp_path):
    lines = "\n".join(",".join(row) for row in TREE)
    (tmp_path / "tree.csv").write_text(lines + "\n")
    (tmp_path / "h.toml").write_text(
        'recipe = "hierarchy"\ntable = "t"\ncolumn = "tract"\ntree = "tree.csv"\nby = ["month"]\n'
        "epsilon = 1\n"
    )
    done = invoke(
        "release", tmp_path / "h.toml", "--project", tmp_path / "sfumato.toml", "--out", tmp_path / "o"
    )
    assert done.exit_code == 0, done.stderr
    assert "tree.csv` (sha256" in (tmp_path / "o" / "writeup.md").read_text()
    (tmp_path / "tree.csv").unlink()
    sf.verify(tmp_path / "o", ledger=curator.ledger_path)
    with pytest.raises(sf.RecipeError, match="itself, which is not public"):
        curator.check(Hierarchy(table="t", column="tract", tree=str(tmp_path / "t.parquet")), epsilon=1)


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_a_long_tree_is_kept_without_its_leaves_and_gives_the_same_levels(
    curator, tmp_path, monkeypatch, kind
):
    rows = pa.table(dict(zip(TREE[0], zip(*TREE[1:], strict=True), strict=True)))
    if kind == "csv":
        pacsv.write_csv(rows, tmp_path / "tree.csv")
    else:
        pq.write_table(
            rows.set_column(1, "district", rows["district"].dictionary_encode()), tmp_path / "tree.parquet"
        )
    recipe = Hierarchy(table="t", column="tract", tree=str(tmp_path / f"tree.{kind}"), by=["month"])
    listed = curator.release(recipe, epsilon=1)
    monkeypatch.setattr(hierarchy, "_MOST_LINES", 3)
    release = curator.release(recipe, epsilon=1, out=tmp_path / "o")
    kept = release.certificate["plan"]["recipe"]["tree"]
    assert sorted(kept) == ["file", "labels", "names", "places", "sha256"]
    assert kept["names"] == ["state", "district"]
    assert kept["labels"] == [["s1", "s2", "other"], ["d1", "d2", "d1", "d3", "other"]]
    shown = ["level", "state", "district", "tract", "month"]
    assert release.table.select(shown).equals(listed.table.select(shown))
    (tmp_path / f"tree.{kind}").unlink()
    sf.verify(tmp_path / "o", ledger=curator.ledger_path)
    for broken in ({"places": kept["places"][:-8]}, {"labels": [["s1"], kept["labels"][1]]}):
        damaged = Hierarchy(table="t", column="tract", tree=kept | broken, by=["month"])
        with pytest.raises(sf.RecipeError, match="tree"):
            curator.check(damaged, epsilon=1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tree": [["tract", "district"], ["t1", "d1"]]}, "lacks 5 values of 'tract', such as 't2'"),
        ({"tree": [["place", "district"], ["t1", "d1"]]}, "first column of the tree must be 'tract'"),
        ({"tree": [*TREE, ["t1", "d2", "s1"]]}, "'t1' in two places"),
        ({"tree": [["tract", "county"], *([f"t{n}", "c"] for n in range(1, 7))]}, "is a column of the table"),
        ({"levels": ["tract x month", "total"]}, "does not refine"),
        ({"levels": ["month", "state", "tract x month"]}, "does not refine"),
        ({"levels": ["total", "state"]}, "last of levels is the finest"),
        ({"levels": ["total", "region", "tract x month"]}, "there are: total, state, district, tract, month"),
        ({"shares": {"total": 1}}, "shares must name every level"),
        ({"shares": "fair"}, "balanced, equal, or a number"),
        ({"shares": {"total": 1}, "errors": {"total": 1}}, "give one of them"),
        ({"known": {"total": -1}}, "whole number"),
        ({"known": {"state": {"s1": 1}}}, "none of the levels"),
        ({"levels": ["state", "tract x month"], "known": {"state": {"s1": 1}}}, "it lacks 's2'"),
        (
            {"levels": ["total", "state", "tract x month"],
             "known": {"total": 2, "state": {"s1": 1, "s2": 0, "other": 0}}},
            "do not add up",
        ),
        ({"by": ["tract"]}, "not in by"),
        ({"column": "month", "tree": None, "by": ["month"]}, "not in by"),
    ],
)  # fmt: skip
def test_what_cannot_be_answered_is_refused_before_a_charge(curator, options, message):
    with pytest.raises(sf.RecipeError, match=message):
        curator.release(
            Hierarchy(**{"table": "t", "column": "tract", "tree": TREE, "by": ("month",), **options}),
            epsilon=1,
        )
    assert curator.budget().spent == 0


def test_a_release_is_scored_by_its_finest_level(curator, tmp_path):
    release = curator.release(RECIPE, epsilon=1, out=tmp_path / "o")
    opened = open_release(tmp_path / "o")
    assert opened.columns == ("tract", "month")
    assert set(opened.table["level"].to_pylist()) == {"tract x month"}
    total = rows_of(release, "total")[0]["count"]
    assert sum(opened.table["count"].to_pylist()) == total
    pq.write_table(make_people(), tmp_path / "truth.parquet")
    truth = str(tmp_path / "truth.parquet")
    shown = invoke("score", str(tmp_path / "o"), "--truth", truth, "--json")
    assert shown.exit_code == 0, shown.output
    assert f'"release": {total}' in shown.output
