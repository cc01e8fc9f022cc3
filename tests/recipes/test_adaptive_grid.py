"""The recipe as a whole: counts of measurements, noise, refusals, releases small and large."""

import json
import shutil
from fractions import Fraction
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

import sfumato as sf
from helpers.projects import project_text, write_project
from sfumato.accounting import Budget, Spent, add_costs, admits
from sfumato.core.engine.statements import StatementEngine
from sfumato.core.errors import RecipeError
from sfumato.core.facts.project import read_project
from sfumato.core.facts.table import parse_table
from sfumato.core.questions.choices import Chosen, NormChoice
from sfumato.core.questions.counts import ClippedMarginal, IndividualCounts, Marginal
from sfumato.core.questions.measurement import Measurement, ask_cost, request_grid, request_size
from sfumato.inference.shrinkage import shrink_counts
from sfumato.recipes import AdaptiveGrid, read_recipe
from sfumato.recipes.base import follow_recipe

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "taxi"
OUTER = [["region", "month"], ["region", "age"]]

PROJECT = project_text(
    {
        "region": {"values": ["a", "b", "c"]},
        "month": {"range": [1, 12]},
        "age": {"bins": [0, 20, 40, 60, 80, 100]},
    },
    unit="person",
    epsilon=100,
    delta=1e-05,
    max_records=6,
)


@pytest.fixture
def crowd(tmp_path):
    """Two thousand people with one to nine records; region and month, region and age go together."""
    generator = np.random.default_rng(5)
    records = 1 + np.arange(2000) % 9
    person = np.repeat(np.arange(2000), records)
    region = generator.choice(3, person.size, p=[0.6, 0.3, 0.1])
    rows = {
        "person": person,
        "region": np.array(["a", "b", "c"])[region],
        "month": 1 + (4 * region + generator.integers(0, 3, person.size)) % 12,
        "age": 40 * region + generator.integers(0, 20, person.size),
    }
    pq.write_table(pa.table(rows), tmp_path / "t.parquet")
    (tmp_path / "sfumato.toml").write_text(PROJECT)
    return sf.open(tmp_path / "sfumato.toml")


def recipe(**options):
    return AdaptiveGrid(table="t", outer=OUTER, **options)


def taxi(max_records):
    project = read_project(EXAMPLE / "sfumato.toml")
    table = project.table("trips")
    spec = {
        "source": table.source,
        "unit": "taxi_id",
        "max_records": max_records,
        "bounding": "weight",
        "columns": {},
    }
    described = parse_table("trips", spec)
    object.__setattr__(described, "columns", table.columns)
    return described


def ask_all(plan, answer):
    """Everything that a run asks, and its product, with `answer` for the noisy values of a request."""
    asked = []

    def reply(batch):
        asked.extend(batch)
        return tuple(
            Measurement(request=ask, noisy_values=answer(ask), grid=request_grid(plan.table, ask))
            for ask in batch
        )

    _, product = follow_recipe(plan, answer=reply, progress=lambda _: None)
    return asked, product


def test_the_taxi_recipe_has_59_marginals_and_66_measurements():
    file = read_recipe(EXAMPLE / "adaptive-grid.toml")
    assert len(file.recipe.marginals) == len(set(file.recipe.marginals)) == 59
    assert [sum(len(each) == size for each in file.recipe.marginals) for size in (1, 2, 3, 4)] == [
        10,
        23,
        20,
        6,
    ]
    plan = file.recipe.plan(taxi(200), epsilons=(Fraction(1),), delta=file.delta)
    assert len(plan.costs) == 66
    assert plan.marginals == file.recipe.marginals
    assert file.epsilons == (1, 10)


def test_a_release_is_near_its_table_and_verifies(crowd, tmp_path):
    release = crowd.release(recipe(identifiers=True), epsilon=50, delta="1e-5", out=tmp_path / "out")
    rows = release.table.to_pylist()
    assert release.table.column_names == ["person", "region", "month", "age"]
    assert max(np.bincount(release.table["person"].to_numpy())) <= 6
    together = [row["age"] // 40 == "abc".index(row["region"]) and row["age"] % 40 <= 20 for row in rows]
    assert np.mean(together) > 0.97
    kept = np.minimum(1 + np.arange(2000) % 9, 6).sum()
    assert len(rows) == pytest.approx(kept, rel=0.01)
    share = np.mean([row["region"] == "a" for row in rows])
    assert share == pytest.approx(0.6, abs=0.03)
    result = sf.verify(tmp_path / "out", ledger=crowd.ledger_path)
    assert not result.unchecked
    assert any("model.parquet" in each for each in result.checked)
    assert crowd.release(recipe(identifiers=True), epsilon=50, delta="1e-5").repeated


def test_a_tiny_epsilon_falls_back_to_single_columns(crowd, tmp_path, seeded_noise):
    # No cell is flagged, so nothing beyond single columns is plausible; the total may be near zero.
    release = crowd.release(recipe(rows=50), epsilon="0.001", delta="1e-5", out=tmp_path / "out")
    (facts,) = release.certificate["postprocessing"]["models"]
    assert facts["cells_flagged"] == 0
    assert facts["cells_measured_one_by_one"] == 3 + 12 + 5
    assert release.table.num_rows == 50
    assert sf.verify(tmp_path / "out")


def test_a_total_below_zero_is_still_a_release(crowd):
    plan = recipe().plan(crowd.project.table("t"), epsilons=(Fraction(1),), delta=Fraction(1, 10**5))
    _, product = ask_all(plan, lambda ask: np.full(ask.queries.rows, -(10**6)))
    assert product.table.num_rows <= 1
    assert product.table.column_names == ["region", "month", "age"]


@pytest.mark.parametrize("norms", [2, {"1": 3, "2": "1.5"}, "auto"])
def test_norms_hold_every_individual_end_to_end(crowd, norms, tmp_path):
    release = crowd.release(recipe(norms=norms), epsilon=20, delta="1e-5", out=tmp_path / "out")
    assert release.table.num_rows > 1000
    sf.verify(tmp_path / "out", ledger=crowd.ledger_path)
    table, engine = crowd.project.table("t"), StatementEngine(tmp_path)
    requests = tuple(each.request for each in release.measurements)
    assert all(isinstance(request.counted, ClippedMarginal) for request in requests)
    # One individual less, the one with the most records: exact answers move by the norm at most.
    with_all = engine.count(table, tuple(each.counted for each in requests), progress=lambda _: None)
    rows = pq.read_table(tmp_path / "t.parquet")
    others = rows.filter(pa.compute.not_equal(rows["person"], 8))
    assert rows.num_rows - others.num_rows == 9
    pq.write_table(others, tmp_path / "t.parquet")
    without = engine.count(table, tuple(each.counted for each in requests), progress=lambda _: None)
    for request, before, after in zip(requests, with_all, without, strict=True):
        moved = [int(number) for number in before.true_values - after.true_values]
        bound = request.counted.norm * request_grid(table, request)
        assert 0 < sum(number**2 for number in moved) <= bound**2


SPAN = {"column": "month", "values": 2}


@pytest.mark.parametrize("neighbours", ["add-remove", "replace"])
def test_records_and_people_are_charged_as_measurements(crowd, neighbours):
    spec = {"source": "t.parquet", "unit": "person", "max_records": 6, "neighbours": neighbours}
    table = parse_table("t", {**spec, "columns": {}})
    object.__setattr__(table, "columns", crowd.project.table("t").columns)
    made = recipe(norms="auto", quantile="0.5", identifiers=SPAN, credible=["region", "month"])
    plan = made.plan(table, epsilons=(Fraction(1),), delta=Fraction(1, 10**5))
    asked = []

    def reply(batch):
        asked.extend(batch)
        return tuple(
            Chosen(choice=ask, index=1)
            if isinstance(ask, NormChoice)
            else Measurement(
                request=ask,
                noisy_values=np.full(request_size(table, ask), 500 * request_grid(table, ask), np.int64),
                grid=request_grid(table, ask),
            )
            for ask in batch
        )

    follow_recipe(plan, answer=reply, progress=lambda _: None)
    assert [ask.quantile for ask in asked[:2]] == [Fraction(1, 2)] * 2
    records, people = asked[2:4]
    assert isinstance(records.counted, Marginal)
    assert records.queries.rows == 1  # the sum of all cells, under the full bound
    assert isinstance(people.counted, IndividualCounts)
    assert people.counted.max_cells == 2
    assert len(asked) == len(plan.costs) == 2 + 2 + 5
    spent = add_costs(Spent(), (ask_cost(table, ask) for ask in asked))
    charged = add_costs(Spent(), plan.costs)
    assert charged.mu_squared * Fraction(9999, 10000) < spent.mu_squared <= charged.mu_squared
    assert charged.rho * Fraction(99, 100) < spent.rho <= charged.rho
    assert admits(Budget(1, Fraction(1, 10**5)), Spent(), plan.costs)


def test_rows_lie_where_records_are_expected_and_identifiers_have_as_many_as_people(
    crowd, tmp_path, seeded_noise
):
    options = {"norms": "auto", "quantile": "0.5", "identifiers": SPAN}
    made = recipe(credible=["region", "month"], **options)
    release = crowd.release(made, epsilon=20, delta="1e-5", out=tmp_path / "out")
    sf.verify(tmp_path / "out", ledger=crowd.ledger_path)
    rows = release.table.to_pandas()
    assert len(rows) == pytest.approx(np.minimum(1 + np.arange(2000) % 9, 6).sum(), rel=0.02)
    people = rows.groupby("person")
    assert people.size().max() <= 6
    assert (people["month"].max() - people["month"].min()).max() <= 2
    # What was measured does not depend on the list, so that rows without it are free.
    spent = crowd.budget().spent
    again = crowd.release(recipe(**options), epsilon=20, delta="1e-5")
    assert crowd.budget().spent == spent
    assert again.table.num_rows == len(rows)
    # Of each region, records have three months of twelve.
    cells, others = (each.groupby(["region", "month"]).ngroups for each in (rows, again.table.to_pandas()))
    assert 9 <= cells < others
    text = release.files["writeup.md"].decode()
    assert "about 50 % of" in text
    assert "where less than one record is expected" in text


def test_shrunk_counts_are_nearer_and_none_is_below_zero():
    generator = np.random.default_rng(3)
    truth = np.concatenate([np.zeros(30), np.full(40, 60.0), [3000.0, 9000.0]])
    noisy = truth + generator.normal(0, 80, truth.size)
    means, deviations = shrink_counts(noisy, np.full(truth.size, 80.0))
    assert means.min() >= 0
    assert np.abs(means - truth).sum() < 0.8 * np.abs(np.maximum(noisy, 0) - truth).sum()
    assert means[-2:] == pytest.approx(truth[-2:], rel=0.1)
    assert deviations[0] < 80


def test_counts_shrink_towards_their_predictions_as_far_as_these_hold():
    generator = np.random.default_rng(4)
    predicted = generator.uniform(20, 200, 300)
    noise = np.full(300, 60.0)
    for ratios in (np.ones(300), np.where(np.arange(300) % 10, 0.2, 8.2)):
        truth = predicted * ratios
        noisy = truth + generator.normal(0, noise)
        means, deviations = shrink_counts(noisy, noise, predicted)
        assert means.min() >= 0
        assert np.abs(means - truth).sum() < 0.6 * np.abs(np.maximum(noisy, 0) - truth).sum()
        assert deviations.mean() < 40
    # What is far above any multiple of a prediction by chance is believed all the same.
    means, _ = shrink_counts(np.append(np.zeros(50), 480.0), np.full(51, 60.0), np.full(51, 0.5))
    assert means[-1] > 400
    assert means[:-1].max() < 10


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"quantile": "0.5"}, "needs norms = 'auto'"),
        ({"quantile": 1, "norms": "auto"}, "must be below 1"),
        ({"credible": ["month", "age"]}, "columns of one outer marginal"),
        ({"credible": []}, "credible needs lists of columns"),
        ({"identifiers": {"column": "month"}}, "identifiers need a column of outer"),
        ({"identifiers": {"column": "nothing", "values": 1}}, "identifiers need a column of outer"),
        ({"identifiers": {"column": "month", "values": 0}}, "values of identifiers"),
        ({"identifiers": {"column": "month", "values": 101}}, "values of identifiers"),
    ],
)
def test_what_cannot_be_is_refused(options, match):
    with pytest.raises(RecipeError, match=match):
        recipe(**options)


def test_identifiers_over_millions_of_values_are_refused_before_a_charge(tmp_path):
    (tmp_path / "t.csv").write_text("person,place\np,1\n")
    columns = {"place": {"range": [1, 6_000_000]}}
    curator = sf.open(
        write_project(tmp_path, columns, source="t.csv", unit="person", max_records=200, delta=1e-5)
    )
    made = AdaptiveGrid(table="t", outer=[["place"]], identifiers={"column": "place", "values": 2})
    # 23 numbers of records up to 200 are told apart, and every place is counted by itself, too.
    with pytest.raises(RecipeError, match="at least 144,000,000 values are asked for"):
        curator.release(made, epsilon=1, delta="1e-6")
    assert not (tmp_path / "ledger.db").exists()


def test_rows_as_individuals_and_odd_columns(tmp_path):
    generator = np.random.default_rng(0)
    rows = {
        "one": np.full(3000, 7),
        "year": generator.choice([2020, 2021], 3000),
        "month": generator.choice([1, 2], 3000),
        "fare": generator.normal(10, 20, 3000),
    }
    pq.write_table(pa.table(rows), tmp_path / "t.parquet")
    (tmp_path / "sfumato.toml").write_text(
        """
        [budget]
        epsilon = 10
        delta = 1e-5
        [tables.t]
        source = "t.parquet"
        unit = "row"
        [tables.t.columns.one]
        values = [7]
        [tables.t.columns.when]
        from = ["year", "month"]
        values = [[2020, 1], [2020, 2], [2021, 1], [2021, 2]]
        [tables.t.columns.fare]
        bins = [0, 10.5, 21]
        outside = "other"
        """
    )
    made = AdaptiveGrid(table="t", outer=[["one", "when", "fare"]])
    release = sf.open(tmp_path / "sfumato.toml").release(made, epsilon=5, delta="1e-5", out=tmp_path / "out")
    assert release.table.column_names == ["one", "year", "month", "fare"]
    assert release.table.num_rows == pytest.approx(3000, abs=50)
    assert set(release.table["fare"].to_pylist()) == {"[0, 10.5)", "[10.5, 21]", "other"}
    sf.verify(tmp_path / "out")


def test_a_public_table_is_part_of_the_plan_and_not_needed_again(crowd, tmp_path):
    public = pa.table(
        {"age": [3, 44, 45, 80], "region": ["a", "b", "b", "c"], "person": ["x", "y", "y", "z"]}
    )
    pa.csv.write_csv(public, tmp_path / "public.csv")
    (tmp_path / "recipe.toml").write_text(
        'recipe = "adaptive-grid"\ntable = "t"\npublic = "public.csv"\nidentifiers = ["region"]\n'
        f"outer = {OUTER}\nepsilon = 20\ndelta = 1e-5\n"
    )
    release = crowd.release(tmp_path / "recipe.toml", out=tmp_path / "out")
    (tmp_path / "public.csv").unlink()
    sf.verify(tmp_path / "out", ledger=crowd.ledger_path)
    assert set(release.table["age"].to_pylist()) >= {3, 44, 45, 80}
    assert max(np.bincount(release.table["person"].to_numpy())) <= 6
    stated = json.loads(release.files["certificate.json"])["plan"]["recipe"]["public"]
    assert stated["file"] == "public.csv"
    assert str(tmp_path) not in release.files["certificate.json"].decode()


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"outer": []}, "at least one"),
        ({"outer": "region"}, "list"),
        ({"outer": [["region", "region"]]}, "twice"),
        ({"outer": [[f"c{index}" for index in range(9)]]}, "more than 8"),
        ({"copies": [{"columns": ["month", "age"], "times": 1}]}, "no part"),
        ({"copies": [{"columns": ["age"], "times": 0}]}, "at least 1"),
        ({"copies": [{"columns": ["age"], "times": 1}] * 2}, "marginal twice"),
        ({"copies": [{"columns": ["age"]}]}, "entries such as"),
        ({"threshold": 0}, "above zero"),
        ({"norms": "much"}, "'auto'"),
        ({"norms": {"0": 1}}, "keys such as"),
        ({"norms": {"1": -1}}, "above zero"),
        ({"public": 3}, "name a"),
        ({"identifiers": ["region"]}, "public table"),
        ({"seed": -1}, "seed"),
        ({"rows": 1.5}, "rows"),
    ],
)
def test_recipes_that_make_no_sense_are_refused(options, told):
    with pytest.raises(RecipeError, match=told):
        AdaptiveGrid(**{"table": "t", "outer": OUTER, **options})


@pytest.mark.slow
@pytest.mark.shared
def test_the_taxi_example_releases_and_verifies(shared, tmp_path, seeded_noise):
    for file in EXAMPLE.iterdir():
        shutil.copy(file, tmp_path)
    shutil.copyfile(shared / "data" / "chicago_taxi" / "trips.parquet", tmp_path / "trips.parquet")
    curator = sf.open(tmp_path / "sfumato.toml")
    release = curator.release(tmp_path / "adaptive-grid.toml", epsilon=10, out=tmp_path / "out")
    assert len(release.measurements) == 66
    table = curator.project.table("trips")
    rows = release.table
    assert rows.num_rows == pytest.approx(48_600, rel=0.1)
    assert np.bincount(rows["taxi_id"].to_numpy()).max() <= 20
    for name in ("pickup_community_area", "dropoff_community_area", "shift", "company_id", "payment_type"):
        assert set(rows[name].to_pylist()) <= set(table.column(name).labels)
    for name in ("fare", "tips", "trip_total", "trip_seconds", "trip_miles"):
        values, edges = rows[name].to_numpy(), table.column(name).domain.edges
        assert rows[name].type == pa.int64()
        assert edges[0] <= values.min()
        assert values.max() <= edges[-1]
    assert float(release.certificate["total"]["epsilon_at_delta"]["2.5e-5"]) < 10.2
    assert not sf.verify(tmp_path / "out", ledger=curator.ledger_path).unchecked
