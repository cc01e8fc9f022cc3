"""Parents and children: keys fit, bounds hold whatever the rows, and what is drawn is alike."""

from fractions import Fraction
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sfumato as sf
from sfumato.core.engine.statements import StatementEngine
from sfumato.core.errors import RecipeError, SchemaError, SourceError
from sfumato.core.facts.project import read_project
from sfumato.core.facts.table import Table
from sfumato.core.questions.counts import Marginal
from sfumato.inference import Domain, Measurement, estimate
from sfumato.inference.conditional import Conditional
from sfumato.recipes import Related

PROJECT = """
[budget]
epsilon = 1000000
delta = 1e-6

[tables.homes]
source = "homes.parquet"
unit = "id"
max_records = 1
[tables.homes.columns.area]
range = [0, 2]

[tables.people]
source = "people.parquet"
references = {home = "homes.id"}
max_records = 3
[tables.people.columns.age]
bins = [0, 18, 65, 100]
[tables.people.columns.work]
values = ["no", "yes"]
"""


def write(folder: Path, homes: list[tuple], people: list[tuple], *, text: str = PROJECT) -> Path:
    """A project of homes (id, area) and people (home, line, age, work)."""
    kinds = {"id": pa.int64(), "area": pa.int64()}
    columns = list(zip(*homes, strict=True)) or [()] * 2
    pq.write_table(
        pa.table(
            {
                name: pa.array(list(each), kind)
                for (name, kind), each in zip(kinds.items(), columns, strict=True)
            }
        ),
        folder / "homes.parquet",
    )
    kinds = {"home": pa.int64(), "line": pa.int64(), "age": pa.int64(), "work": pa.string()}
    columns = list(zip(*people, strict=True)) or [()] * 4
    pq.write_table(
        pa.table(
            {
                name: pa.array(list(each), kind)
                for (name, kind), each in zip(kinds.items(), columns, strict=True)
            }
        ),
        folder / "people.parquet",
    )
    (folder / "sfumato.toml").write_text(text)
    return folder / "sfumato.toml"


def linked(project: Path, *, order: str | None = "line") -> tuple[Table, StatementEngine]:
    """The table of a family's records, and an engine for it."""
    table = read_project(project).table("people")
    plan = Related(table="people", order=order).plan(table, epsilons=(Fraction(1),), delta=Fraction(1, 10**6))
    expected = plan.recipe.expect(plan, 10**4)
    assert {(name,) for name in plan.table.columns} | set(plan.marginals) >= {
        tuple(each.name.split(" x ")) for each in expected
    }
    return plan.table, StatementEngine(project.parent)


def count_all(
    project: Path, marginals: list[tuple[str, ...]], *, order: str | None = "line"
) -> list[np.ndarray]:
    """The exact counts of marginals of the family, in whole parents."""
    table, engine = linked(project, order=order)
    found = engine.count(table, tuple(map(Marginal, marginals)), progress=lambda _: None)
    return [
        (counts.true_values / table.grid).reshape([table.column(name).size for name in columns])
        for columns, counts in zip(marginals, found, strict=True)
    ]


def count(project: Path, *columns: str) -> np.ndarray:
    """The exact counts of one marginal."""
    return count_all(project, [columns])[0]


HOMES = [(1, 0), (2, 1), (3, 2), (4, 0)]
PEOPLE = [
    (1, 2, 30, "yes"),
    (1, 1, 70, "no"),
    (2, 1, 5, "no"),
    (9, 1, 5, "no"),  # nobody's
    (3, 1, 20, "elsewhere"),  # outside a domain
    (3, 2, 40, "yes"),
]


def test_every_parent_counts_once_and_children_stand_in_their_order(tmp_path: Path) -> None:
    project = write(tmp_path, HOMES, PEOPLE)
    assert count(project, "homes.area", "number of people").round(4).tolist() == [
        [1, 0, 1, 0],
        [0, 1, 0, 0],
        [0, 1, 0, 0],
    ]
    # Ages 0-17, 18-64, 65-, none: of home 1 one half each, of home 4 that there is nobody.
    assert count(project, "people.age").tolist() == [1, 1.5, 0.5, 1]
    pairs = count(project, "previous people.age", "people.age")
    assert pairs[2].tolist() == [0, 0.5, 0, 0]  # the second of home 1 follows the one of seventy
    assert pairs[3].tolist() == [1, 1, 0.5, 1]
    assert count(project, "later people").tolist() == [3.5, 0.5]


def test_siblings_beyond_the_bound_are_left_out_in_their_order(tmp_path: Path) -> None:
    many = [(1, line, 30 if line < 3 else 90, "yes") for line in range(10_000)]
    project = write(tmp_path, [(1, 0)], many)
    assert count(project, "number of people").tolist() == [0, 0, 0, pytest.approx(1, abs=1e-5)]
    assert count(project, "people.age").round(4).tolist() == [0, 1, 0, 0]


def make_homes(count: int) -> tuple[list[tuple], list[tuple]]:
    """Homes whose area decides the number of people, and people who are as the one before."""
    generator = np.random.default_rng(1)
    homes, people = [], []
    for number in range(count):
        area = int(generator.integers(3))
        homes.append((number, area))
        age, work = 40, "yes" if area == 1 else "no"
        for line in range(area):  # nobody in area 0
            age = age if line else (10 if generator.random() < 0.5 else 80)
            people.append((number, line, age, work))
    return homes, people


@pytest.fixture(scope="module")
def released(tmp_path_factory: pytest.TempPathFactory) -> tuple[sf.Curator, sf.Release, Path]:
    folder = tmp_path_factory.mktemp("related")
    project = write(folder, *make_homes(600))
    curator = sf.open(project)
    recipe = Related(table="people", order="line", seed=3)
    return curator, curator.release(recipe, epsilon="1000", delta="1e-6", out=folder / "out"), folder / "out"


def test_keys_fit_and_the_release_verifies(released: tuple[sf.Curator, sf.Release, Path]) -> None:
    curator, release, out = released
    parents = release.parents
    assert parents is not None
    assert parents.column_names == ["id", "area"]
    assert release.table.column_names == ["home", "place", "age", "work"]
    assert set(release.table["home"].to_pylist()) <= set(parents["id"].to_pylist())
    assert len(set(parents["id"].to_pylist())) == parents.num_rows
    assert {path.name for path in out.iterdir()} >= {"parents.csv", "parents.parquet", "table.csv"}
    assert sf.verify(out, ledger=curator.ledger_path).verdict.startswith("verified")
    assert pq.read_table(out / "parents.parquet").num_rows == parents.num_rows


def test_what_was_drawn_is_alike(released: tuple[sf.Curator, sf.Release, Path]) -> None:
    _, release, _ = released
    assert release.parents is not None
    area = dict(zip(release.parents["id"].to_pylist(), release.parents["area"].to_pylist(), strict=True))
    rows = release.table.to_pylist()
    numbers = dict.fromkeys(area, 0)
    for row in rows:
        numbers[row["home"]] += 1
    # Nobody in area 0, one in area 1, two in area 2, who are alike; the noise is far below one home in ten.
    fits = [numbers[home] == code for home, code in area.items()]
    assert np.mean(fits) > 0.9
    assert np.mean([(row["work"] == "yes") == (area[row["home"]] == 1) for row in rows]) > 0.9
    pairs = [(one["age"] < 18, two["age"] < 18) for one, two in pairwise(rows) if two["place"] == 2]
    assert np.mean([one == two for one, two in pairs]) > 0.9
    assert abs(len(area) - 600) < 30


def test_sequences_need_no_parents(tmp_path: Path) -> None:
    text = PROJECT.replace('references = {home = "homes.id"}', 'unit = "home"')
    project = write(
        tmp_path,
        HOMES,
        [(home, line, 30 + line, "yes") for home in range(40) for line in range(2)],
        text=text,
    )
    release = sf.open(project).release(Related(table="people", order="line"), epsilon="1000", delta="1e-6")
    assert release.parents is None
    assert release.table.column_names == ["home", "place", "age", "work"]
    homes = release.table["home"].to_pylist()
    assert max(map(homes.count, set(homes))) <= 3


@pytest.mark.slow
def test_children_keep_the_order_that_they_are_released_with(tmp_path: Path) -> None:
    text = PROJECT + "[tables.people.columns.line]\nrange = [0, 5]\n"
    generator = np.random.default_rng(3)
    people = [(home, int(line), 30, "yes") for home in range(300) for line in generator.integers(6, size=3)]
    project = write(tmp_path, [(home, 0) for home in range(300)], people, text=text)
    release = sf.open(project).release(Related(table="people", order="line"), epsilon="20", delta="1e-6")
    rows = release.table.to_pylist()
    pairs = [(one["line"], two["line"]) for one, two in pairwise(rows) if two["place"] > 1]
    assert len(pairs) > 300
    assert all(one <= two for one, two in pairs)


@pytest.mark.slow
@pytest.mark.parametrize("homes", [0, 1, 12])
def test_noise_that_drowns_everything_leaves_rows_that_fit(tmp_path: Path, homes: int) -> None:
    project = write(tmp_path, *make_homes(homes))
    curator = sf.open(project)
    for epsilon in ("0.01", "0.3", "3"):
        release = curator.release(
            Related(table="people", order="line", rows=40), epsilon=epsilon, delta="1e-6"
        )
        assert release.parents is not None
        assert release.parents.num_rows == 40
        assert set(release.table["home"].to_pylist()) <= set(range(1, 41))


def test_what_cannot_be_is_refused_before_the_charge(tmp_path: Path) -> None:
    project = write(tmp_path, HOMES, PEOPLE)
    curator = sf.open(project)
    for recipe, error, words in [
        (Related(table="people", order="nothing"), SourceError, "ordered by"),
        (Related(table="people", columns=["nothing"]), SchemaError, "describes no column"),
        (Related(table="people", parent_columns=["age"]), SchemaError, "describes no column"),
        (Related(table="homes", parent_columns=["area"]), RecipeError, "refers to no table"),
    ]:
        with pytest.raises(error, match=words):
            curator.release(recipe, epsilon="1", delta="1e-6")
    with pytest.raises(RecipeError, match="delta above zero"):
        curator.release(Related(table="people"), epsilon="1")
    for old, new, words in [
        ("max_records = 1\n", "max_records = 2\n", "a parent is one"),
        ("max_records = 3", "max_records = 5000", "numbers of children up to"),
        ('references = {home = "homes.id"}\nmax_records = 3', 'unit = "row"', "have no parent"),
        ('unit = "id"', 'unit = "id"\ntext_limit = 9', "text_limit"),
    ]:
        other = sf.open(write(tmp_path, HOMES, PEOPLE, text=PROJECT.replace(old, new)))
        with pytest.raises(RecipeError, match=words):
            other.release(Related(table="people"), epsilon="1", delta="1e-6")
    assert not curator.has_ledger() or curator.budget().spent == 0


@pytest.mark.statistical
def test_columns_are_drawn_as_the_model_has_them_given_the_others() -> None:
    generator = np.random.default_rng(2)
    domain = Domain({"a": 3, "b": 4, "c": 2, "d": 3})
    noisy = [
        Measurement(columns=pair, values=generator.gamma(1.0, 100.0, domain.cells(pair)), sigma=1.0)
        for pair in (("a", "b"), ("b", "c"), ("c", "d"))
    ]
    model = estimate(domain, noisy)
    joint = model.marginal(("a", "b", "c", "d"))
    draws = Conditional(model, ("a", "d"))
    rows = 40_000
    for one in range(3):
        for other in range(3):
            known = {"a": np.full(rows, one), "d": np.full(rows, other)}
            found = draws.sample(known, seed=one * 3 + other)
            expected = joint[one, :, :, other] / joint[one, :, :, other].sum()
            shares = np.bincount(found["b"] * 2 + found["c"], minlength=8) / rows
            assert np.abs(shares - expected.reshape(-1)).max() < 0.02
    barred = Conditional(model, ("a", "d"), excluded={"b": np.array([1])})
    assert 1 not in barred.sample({"a": np.zeros(500, int), "d": np.zeros(500, int)}, seed=0)["b"]


def test_counts_of_parents_are_not_taken_for_counts_of_records(
    released: tuple[sf.Curator, sf.Release, Path],
) -> None:
    curator, _, _ = released
    with pytest.raises(sf.SfumatoError, match="FREE"):
        curator.sql("DP-SELECT FREE COUNT(*) FROM people")
