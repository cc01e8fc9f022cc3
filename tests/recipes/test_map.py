"""Sparse maps: charge, bounds, splits, guides, verification, and what is refused before anything is spent."""

import re
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import sfumato as sf
import sfumato.core.noise
from helpers.projects import write_project
from sfumato.accounting import Allowance
from sfumato.core.errors import RecipeError, SfumatoError
from sfumato.core.facts.table import parse_table
from sfumato.core.questions.measurement import ask_cost
from sfumato.recipes import CappedCounts, Map, parse_recipe
from sfumato.recipes.capped_counts import BoundChoice
from sfumato.recipes.map import CELLS, KINDS
from sfumato.report.page import build_report

SPEC = {
    "source": "t.parquet",
    "unit": "p",
    "max_records": 6,
    "columns": {
        "place": {"range": [0, 9]},
        "month": {"range": [1, 4]},
        "kind": {"values": ["x", "y", "z"]},
    },
}
BY = ("place", "month", "kind")
RECIPE = Map(table="t", by=BY)


def describe(**facts):
    return parse_table("t", {**SPEC, **facts})


def make_rows(people=600, *, heavy=40, seed=8):
    """Most people have one record, some have many; half of all are in the first place."""
    random = np.random.default_rng(seed)
    records = np.where(np.arange(people) < heavy, 6, 1)
    person = np.repeat(np.arange(people), records)
    place = np.where(random.random(person.size) < 0.5, 0, random.integers(0, 10, person.size))
    kinds = np.where(place == 0, random.integers(0, 2, person.size), random.integers(0, 3, person.size))
    return pa.table(
        {
            "p": person,
            "place": place,
            "month": random.integers(1, 5, person.size),
            "kind": np.array(["x", "y", "z"])[kinds],
        }
    )


@pytest.fixture
def lay(tmp_path):
    """Writes a project and its table; returns the project file."""

    def write(rows=None, *, budget=1000, **facts):
        rows = make_rows() if rows is None else rows
        return write_project(tmp_path, rows=rows, epsilon=budget, **{**SPEC, **facts})

    return write


def choose(monkeypatch, bound):
    """Has this bound chosen."""
    read = BoundChoice.read
    monkeypatch.setattr(BoundChoice, "read", lambda choice, answers: (bound, read(choice, answers)[1]))


def asks_of(table, recipe, epsilon, bound):
    return (recipe.choose_bound(table, epsilon, "").ask, *recipe.ask_counts(table, epsilon, "", bound=bound))


@given(
    epsilon=st.fractions(Fraction(1, 90), 20, max_denominator=97),
    share=st.fractions(Fraction(1, 90), Fraction(89, 90), max_denominator=97),
    most=st.integers(2, 60),
    neighbours=st.sampled_from(["add-remove", "replace"]),
    bounding=st.sampled_from(["truncate", "weight"]),
    data=st.data(),
)
def test_costs_sum_to_epsilon_for_every_bound(epsilon, share, most, neighbours, bounding, data):
    table = describe(max_records=most, neighbours=neighbours, bounding=bounding)
    bound = data.draw(st.integers(1, most))
    recipe = Map(table="t", by=BY, share=share)
    choice, *levels = asks_of(table, recipe, epsilon, bound)
    costs = [ask_cost(table, ask) for ask in (choice, *levels)]
    assert sum(cost.epsilon for cost in costs) == epsilon
    assert costs[0].epsilon == epsilon * share
    factor = 2 if neighbours == "replace" else 1
    split = recipe._split(table, epsilon)
    assert sum(split.values()) == 1
    assert min(split.values()) > 0
    for level, ask in zip((KINDS, (0, 1), (0, 2), (1, 2), CELLS), levels, strict=True):
        assert ask.scale * epsilon * (1 - share) * split[level] == bound * table.grid * factor
    plan = recipe.plan(table, epsilons=(epsilon,), delta=Fraction(0))
    assert all(map(Allowance(plan.costs).pay, costs))


def test_cells_get_more_of_a_larger_epsilon():
    table = describe()
    shares = [RECIPE._split(table, Fraction(epsilon))[CELLS] for epsilon in ("0.01", 1, 2, 10, 1000)]
    assert shares == sorted(shares)
    assert shares[0] < Fraction(1, 10)
    assert shares[-1] > Fraction(9, 10)


def test_a_release_without_noise_is_the_table(lay, monkeypatch):
    """The sums that are asked for are those of the map, and are put back where they belong."""
    choose(monkeypatch, 6)
    monkeypatch.setattr(sfumato.core.noise, "add_noise", lambda values, *, kind, scale: values.copy())
    rows = make_rows()
    release = sf.open(lay(rows)).release(Map(table="t", by=BY, goal="counts"), epsilon=100)
    keys = zip(*(rows[name].to_pylist() for name in BY), strict=True)
    truth = {}
    for key in keys:
        truth[key] = truth.get(key, 0) + 1
    for row in release.table.to_pylist():
        assert row["count"] == truth.get(tuple(row[name] for name in BY), 0)


@pytest.mark.parametrize("index", [0, 3])
def test_all_levels_are_held_to_the_chosen_bound(lay, monkeypatch, tmp_path, index):
    seen = []

    def keep(values, *, kind, scale):
        seen.append((values.copy(), scale))
        return values.copy()

    choose(monkeypatch, index + 1)
    monkeypatch.setattr(sfumato.core.noise, "add_noise", keep)
    release = sf.open(lay()).release(RECIPE, epsilon=10)
    held = 560 + 40 * (index + 1)  # people with one record, and with six
    assert [int(values.sum()) for values, _ in seen] == [600] + [held] * 5
    assert [values.size for values, _ in seen] == [6, 3, 40, 30, 12, 120]
    (facts,) = release.certificate["postprocessing"]["levels"]
    assert facts["records"] == index + 1
    assert float(facts["scaled_by"]) == pytest.approx(800 / held, abs=1e-6)
    release.write(tmp_path / "out")
    told = re.sub(r"\s+", " ", build_report(tmp_path / "out").decode())
    assert f"was chosen privately: {index + 1} of 6" in told
    assert f"are the noisy ones times {facts['scaled_by']}, and so" in told
    assert "where few individuals have many records, counts are too low" in told
    # What was cut may order places anew: none is said to have most, whatever the noise.
    cut = f"the {1 - held / 800:.0%} beyond are made up for by one factor, {800 / held:.2f}"
    assert cut in told
    assert "recipe capped-counts is for totals of places" in told
    assert "whatever the noise" not in told
    assert "Which places differ" not in told


def test_records_outside_a_domain_are_in_no_level(lay, monkeypatch):
    seen = []
    choose(monkeypatch, 6)
    monkeypatch.setattr(
        sfumato.core.noise,
        "add_noise",
        lambda values, *, kind, scale: seen.append(int(values.sum())) or values.copy(),
    )
    columns = {**SPEC["columns"], "place": {"range": [1, 9]}}
    sf.open(lay(columns=columns)).release(RECIPE, epsilon=1)
    assert len(set(seen[1:])) == 1


@pytest.mark.parametrize("unit", ["row", "p"])
def test_with_one_record_each_there_is_no_bound_to_choose(lay, unit):
    facts = {"unit": unit, **({"max_records": 1} if unit == "p" else {})}
    spec = {key: value for key, value in SPEC.items() if key != "max_records"}
    file = write_project(lay().parent, rows=make_rows(heavy=0), epsilon=10, **{**spec, **facts})
    release = sf.open(file).release(RECIPE, epsilon=1, out=file.parent / "out")
    assert len(release.certificate["measurements"]) == 5
    assert Fraction(release.certificate["total"]["epsilon"]) == 1
    sf.verify(file.parent / "out")


def test_several_columns_make_a_place(lay):
    rows = make_rows()
    rows = rows.append_column("year", pa.array([2020 + i % 2 for i in range(rows.num_rows)]))
    file = lay(rows, columns={**SPEC["columns"], "year": {"range": [2020, 2021]}})
    release = sf.open(file).release(Map(table="t", by=("place", "year", "month", "kind")), epsilon=2)
    assert release.table.column_names == ["place", "year", "month", "kind", "count", "expected"]
    assert release.table.num_rows == 240


def test_another_goal_guide_or_seed_is_free_and_verifies(lay):
    file = lay()
    pq.write_table(make_rows(seed=9).drop(["p"]), file.parent / "earlier.parquet")
    curator = sf.open(file)
    first = curator.release(RECIPE, epsilon=2)
    guide = str(file.parent / "earlier.parquet")
    for place, change in enumerate(({"seed": 5}, {"goal": "counts"}, {"public": guide})):
        out = file.parent / f"out{place}"
        release = curator.release(replace(RECIPE, **change), epsilon=2, out=out)
        assert release.repeated
        assert not sf.verify(out, ledger=file.parent / "ledger.db").unchecked
        pairs = zip(release.measurements, first.measurements, strict=True)
        assert all(np.array_equal(one.noisy_values, other.noisy_values) for one, other in pairs)
    assert curator.budget().sums.epsilon == 2
    assert curator.check(replace(RECIPE, seed=9), epsilon=2).answered
    assert not curator.release(replace(RECIPE, share="0.2"), epsilon=2).repeated


def test_a_guide_beside_the_recipe_file_is_found(tmp_path):
    document = {"recipe": "map", "table": "t", "by": list(BY), "public": "earlier.csv", "epsilon": 1}
    assert parse_recipe(document, folder=tmp_path).recipe.public == str(tmp_path / "earlier.csv")


def write_guide(folder, rows):
    path = folder / "guide.parquet"
    pq.write_table(rows, path)
    return str(path)


def release(file, options):
    return sf.open(file).release(Map(**options), epsilon=1)


@pytest.mark.parametrize(
    ("options", "facts", "words"),
    [
        ({"by": ("place", "month")}, {}, "at least three columns"),
        ({"goal": "best"}, {}, "pies or counts"),
        ({"share": 1}, {}, "below 1"),
        ({"seed": -1}, {}, "seed"),
        ({"public": 7}, {}, "must name"),
        ({}, {"place": {"range": [3, 3]}}, "one place only"),
        ({}, {"month": {"range": [3, 3]}}, "one period only"),
        ({}, {"kind": {"values": ["x"]}}, "one kind only"),
        ({}, {"kind": {"values": []}}, "at least one value"),
        ({}, {"place": {"range": [0, 10**6]}}, "more than 4,194,304"),
        ({"by": ("place", "month", "sort")}, {}, "sort"),
    ],
)
def test_what_cannot_be_is_refused_before_spending(lay, options, facts, words):
    file = lay(columns={**SPEC["columns"], **facts})
    with pytest.raises(SfumatoError, match=words):
        release(file, {"table": "t", "by": BY, **options})
    # What charges opens the ledger first.
    assert not (file.parent / "ledger.db").exists() or sf.open(file).budget().spent == 0


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda rows: rows.drop(["kind"]), "has no column 'kind'"),
        (lambda rows: rows.rename_columns(["p", "spot", "month", "kind"]), "has no column 'place'"),
        (lambda rows: rows.slice(0, 0), "no row in the domains"),
        (lambda rows: rows.set_column(1, "place", pa.array([99] * rows.num_rows)), "no row in the domains"),
    ],
)
def test_a_guide_that_does_not_fit_is_refused_before_spending(lay, change, words):
    file = lay()
    curator = sf.open(file)
    recipe = Map(table="t", by=BY, public=write_guide(file.parent, change(make_rows())))
    with pytest.raises(RecipeError, match=words):
        curator.release(recipe, epsilon=1)
    assert curator.budget().spent == 0


@pytest.mark.parametrize("counts", ["", "eJw=", 7])
def test_a_guide_that_was_tampered_with_is_refused(lay, counts):
    curator = sf.open(lay())
    recipe = Map(table="t", by=BY, public={"file": "f", "sha256": "0" * 64, "counts": counts})
    with pytest.raises(RecipeError, match="public file"):
        curator.release(recipe, epsilon=1)
    assert curator.budget().spent == 0


@pytest.mark.slow
def test_a_sparse_map_is_nearer_than_capped_counts(lay, seeded_noise):
    """Over 4,800 cells with 900 records, of which the marginals are strong."""
    random = np.random.default_rng(5)
    place = np.minimum(random.geometric(0.02, 900) - 1, 99)
    rows = pa.table(
        {
            "p": np.arange(900) // 2,
            "place": place,
            "month": random.integers(1, 13, 900),
            "kind": np.array(["x", "y", "z", "w"])[(place + (random.random(900) < 0.2)) % 4],
        }
    )
    columns = {
        "place": {"range": [0, 99]},
        "month": {"range": [1, 12]},
        "kind": {"values": ["x", "y", "z", "w"]},
    }
    curator = sf.open(lay(rows, columns=columns))
    truth = np.zeros((100, 12, 4))
    np.add.at(
        truth,
        (
            place,
            rows["month"].to_numpy() - 1,
            [("x", "y", "z", "w").index(k) for k in rows["kind"].to_pylist()],
        ),
        1,
    )
    ours = curator.release(Map(table="t", by=BY), epsilon=1).table["expected"].to_numpy()
    theirs = curator.release(CappedCounts(table="t", by=BY, threshold=0), epsilon=1).table["count"].to_numpy()
    wrong = [np.abs(each - truth.reshape(-1)).sum() for each in (ours, theirs)]
    assert wrong[0] < 0.5 * wrong[1]
