"""Rows from groups of columns: costs, laws, domains, and what verification finds."""

import hashlib
import io
import json
import math
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import sfumato as sf
import sfumato.core.noise
from helpers.asking import converse
from helpers.projects import write_project
from sfumato.accounting import Budget, Cost, Spent, add_costs, admits, mu_to_epsilon
from sfumato.core.door import add_noise
from sfumato.core.engine.statements import StatementEngine
from sfumato.core.errors import RecipeError, SchemaError, VerificationFailed
from sfumato.core.facts.table import parse_table
from sfumato.core.questions.counts import OccupiedCells
from sfumato.core.questions.measurement import Measurement, Request, ask_cost
from sfumato.recipes import FieldGroups, field_groups
from sfumato.recipes.base import Plan, Product
from sfumato.release.certificate import pack_json
from sfumato.release.folder import append_answers

SPEC = {
    "source": "t.parquet",
    "unit": "p",
    "max_records": 3,
    "columns": {
        "a": {"range": [0, 7]},
        "b": {"range": [0, 7]},
        "c": {"values": ["x", "y", "z"], "outside": "other"},
        "d": {"bins": [0, 10, 50, 100]},
        "e": {"values": ["u", "v"]},
    },
}
# Its product is 2^63 - 1.
FACTORS = (49, 73, 127, 337, 92_737, 649_657)


def describe(**facts):
    return parse_table("t", {**SPEC, **facts})


def make_rows(count=1500):
    """b is a, c follows from a, d and e stand alone."""
    random = np.random.default_rng(4)
    a = random.integers(0, 8, count)
    return pa.table(
        {
            "p": np.arange(count) // 3,
            "a": a,
            "b": a,
            "c": np.array(["x", "y", "z"])[a % 3],
            "d": random.uniform(0, 100, count).round(1),
            "e": np.array(["u", "v"])[(random.random(count) < 0.25).astype(int)],
        }
    )


@pytest.fixture
def lay(tmp_path):
    """Writes a project and its table; returns the project file."""

    def write(rows=None, *, budget=1000, **facts):
        rows = make_rows() if rows is None else rows
        return write_project(tmp_path, rows=rows, epsilon=budget, **{**SPEC, **facts})

    return write


@pytest.fixture
def no_noise(monkeypatch):
    """Answers without noise; sparse ones with occupied cells that reach the threshold."""

    def sparse(cells, values, *, size, scale, threshold):
        kept = values >= threshold
        return cells[kept].copy(), values[kept].copy()

    monkeypatch.setattr("sfumato.core.noise.add_noise", lambda values, *, kind, scale: values.copy())
    monkeypatch.setattr("sfumato.core.noise.add_sparse_noise", sparse)


def share_out(recipe, table, *epsilons):
    plan = recipe.plan(table, epsilons=tuple(map(Fraction, epsilons)), delta=Fraction(0))
    return plan, [ask_cost(table, request).epsilon for request in plan.requests]


@pytest.mark.parametrize("neighbours", ["add-remove", "replace"])
@pytest.mark.parametrize("bounding", ["truncate", "weight"])
@pytest.mark.parametrize("max_records", [1, 3, 17])
def test_equal_shares_sum_to_epsilon_exactly(neighbours, bounding, max_records):
    table = describe(neighbours=neighbours, bounding=bounding, max_records=max_records)
    recipe = FieldGroups(table="t", groups=[["b", "a"], ["c", "d"]])
    plan, shares = share_out(recipe, table, "0.7")
    assert [request.columns for request in plan.requests] == [("b", "a"), ("c", "d"), ("e",)]
    assert shares == [Fraction(7, 30)] * 3
    most = max_records * table.grid * (2 if neighbours == "replace" else 1)
    assert {request.scale for request in plan.requests} == {most / Fraction(7, 30)}


@given(
    weights=st.lists(st.fractions(Fraction(1, 90), 100, max_denominator=97), min_size=2, max_size=2),
    epsilon=st.fractions(Fraction(1, 50), 20, max_denominator=60),
    sparse=st.booleans(),
)
def test_stated_shares_sum_to_epsilon_exactly(weights, epsilon, sparse):
    recipe = FieldGroups(table="t", groups=[["a", "b"], ["c", "d"]], weights=weights)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(field_groups, "LARGEST_LISTED", 5 if sparse else 2**16)
        plan, shares = share_out(recipe, describe(), epsilon)
    assert sum(shares) == epsilon
    assert shares[0] / shares[1] == weights[0] / weights[1]
    assert shares[2] / shares[0] == 1 / weights[0]
    assert [request.threshold is not None for request in plan.requests] == [sparse, sparse, False]


def test_weights_may_be_written_in_any_exact_way():
    recipe = FieldGroups(table="t", groups=[["a"], ["b"]], weights=["1/3", 0.1])
    assert recipe.weights == (Fraction(1, 3), Fraction(1, 10))
    assert recipe.to_record()["weights"] == ["1/3", "0.1"]


def joint(rows, names):
    return np.unique(
        np.stack([np.asarray(rows[name].to_pylist()).astype(str) for name in names]),
        axis=1,
        return_counts=True,
    )


@pytest.mark.usefixtures("no_noise")
@pytest.mark.parametrize("listed", [2**16, 4])
@pytest.mark.parametrize("bounding", ["truncate", "weight"])
def test_without_noise_groups_keep_their_joint_distribution(lay, monkeypatch, listed, bounding):
    monkeypatch.setattr(field_groups, "LARGEST_LISTED", listed)
    recipe = FieldGroups(table="t", groups=[["b", "c", "a"], ["d"]], cut="0.001")
    release = sf.open(lay(bounding=bounding)).release(recipe, epsilon=100)
    assert release.table.num_rows == 1500
    for names in (["a", "b", "c"], ["e"]):
        (labels, counts), (expected, true) = (joint(rows, names) for rows in (release.table, make_rows()))
        assert labels.tolist() == expected.tolist()
        assert np.abs(counts - true).max() <= 1
    for low, high in ((0, 10), (10, 50), (50, 101)):
        drawn, true = (
            sum(low <= value < high for value in rows["d"].to_pylist())
            for rows in (release.table, make_rows())
        )
        assert abs(drawn - true) <= 1


@pytest.mark.usefixtures("no_noise")
@pytest.mark.parametrize("seed", [0, 1, 2**40])
def test_groups_are_independent_of_each_other(lay, seed):
    """Correlations of 20,000 rows, at one false alarm in a million; the rows follow from a public seed."""
    recipe = FieldGroups(table="t", groups=[["a", "c"]], cut="0.001", rows=20_000, seed=seed)
    rows = sf.open(lay()).release(recipe, epsilon=100).table
    columns = {name: np.asarray(rows[name].to_pylist(), float) for name in ("a", "b", "d")}
    columns["e"] = np.asarray(rows["e"].to_pylist()) == "u"
    for first, second in (("a", "b"), ("a", "d"), ("b", "d"), ("d", "e"), ("a", "e")):
        found = np.corrcoef(columns[first], columns[second])[0, 1]
        assert abs(found) < 4.9 / math.sqrt(20_000), (first, second)
    # Nor do neighbouring rows know of each other.
    assert abs(np.corrcoef(columns["a"][1:], columns["a"][:-1])[0, 1]) < 4.9 / math.sqrt(20_000)


def test_columns_keep_the_order_of_the_table_or_of_the_recipe(lay):
    curator = sf.open(lay())
    recipe = FieldGroups(table="t", groups=[["e", "b"]], rows=5)
    assert curator.release(recipe, epsilon=1).table.column_names == ["a", "b", "c", "d", "e"]
    recipe = FieldGroups(table="t", groups=[["e", "b"]], columns=["d", "b", "e"], rows=5)
    release = curator.release(recipe, epsilon=1)
    assert release.table.column_names == ["d", "b", "e"]
    assert [each.request.columns for each in release.measurements] == [("e", "b"), ("d",)]
    assert set(release.certificate["plan"]["table"]["t"]["columns"]) == {"d", "b", "e"}


def test_the_number_of_rows_is_the_noisy_number_of_records(lay):
    release = sf.open(lay()).release(FieldGroups(table="t", groups=[["a", "b"]]), epsilon=50)
    whole = [each.noisy_values for each in release.measurements]
    weights = [1 / values.size for values in whole]
    expected = sum(values.sum() * w for values, w in zip(whole, weights, strict=True)) / sum(weights)
    assert release.table.num_rows == round(expected)
    assert abs(release.table.num_rows - 1500) < 50


def test_the_number_of_rows_where_no_histogram_is_whole(lay, monkeypatch):
    monkeypatch.setattr(field_groups, "LARGEST_LISTED", 1)
    release = sf.open(lay()).release(FieldGroups(table="t"), epsilon=100)
    assert all(each.cells is not None for each in release.measurements)
    sums = [int(each.noisy_values.sum()) for each in release.measurements]
    assert release.table.num_rows == max(sums)
    assert abs(release.table.num_rows - 1500) < 50


@pytest.mark.parametrize("rows", [0, 1, 7])
def test_the_number_of_rows_may_be_given(lay, rows):
    recipe = FieldGroups(table="t", groups=[["a", "b"]], rows=rows)
    release = sf.open(lay()).release(recipe, epsilon=1, out=lay().parent / "out")
    assert release.table.num_rows == rows
    sf.verify(lay().parent / "out")


def inside(rows):
    """Whether every value of the rows lies in its domain."""
    return (
        set(rows["a"].to_pylist()) <= set(range(8))
        and set(rows["b"].to_pylist()) <= set(range(8))
        and set(rows["c"].to_pylist()) <= {"x", "y", "z", "other"}
        and all(0 <= value <= 100 for value in rows["d"].to_pylist())
        and set(rows["e"].to_pylist()) <= {"u", "v"}
    )


@pytest.mark.parametrize("listed", [2**16, 4])
@pytest.mark.parametrize("cut", ["2.3", 100])
def test_nothing_above_the_cut_still_gives_rows(lay, monkeypatch, listed, cut):
    monkeypatch.setattr(field_groups, "LARGEST_LISTED", listed)
    file = lay(make_rows(6))
    recipe = FieldGroups(table="t", groups=[["a", "b"]], rows=400, cut=cut)
    release = sf.open(file).release(recipe, epsilon="0.001", out=file.parent / "out")
    assert inside(release.table)
    if cut == 100:
        (facts,) = release.certificate["postprocessing"]["groups"]
        assert facts["nothing_passed"] == [["a", "b"], ["c"], ["d"], ["e"]]
        assert len(set(zip(release.table["a"].to_pylist(), release.table["b"].to_pylist(), strict=True))) > 50
    sf.verify(file.parent / "out", ledger=file.parent / "ledger.db")


def test_nothing_at_all_passes_and_the_answer_is_still_kept(lay, monkeypatch):
    """A file of measurements without a row is an answer: it is not drawn anew."""
    monkeypatch.setattr(field_groups, "LARGEST_LISTED", 1)
    file = lay(make_rows(0))
    curator, recipe = sf.open(file), FieldGroups(table="t", cut=90)
    release = curator.release(recipe, epsilon=1, out=file.parent / "out")
    assert pq.read_table(file.parent / "out" / "measurements.parquet")["cell"].to_pylist() == [-1] * 5
    assert curator.release(recipe, epsilon=1).repeated
    assert release.table.num_rows == 0
    assert sf.verify(file.parent / "out", ledger=file.parent / "ledger.db").unchecked == ()


def huge(extra=()):
    sizes = (*FACTORS, *extra)
    return {f"c{i}": {"range": [0, size - 1]} for i, size in enumerate(sizes)}


def test_a_group_of_almost_all_integers_is_released(lay, seeded_noise):
    """2^63 - 1 bins, a crowd in the first and in the last of them."""
    columns = huge()
    ends = {f"c{i}": pa.array([0] * 200 + [size - 1] * 400, pa.int64()) for i, size in enumerate(FACTORS)}
    file = lay(pa.table({"p": np.arange(600), **ends}), columns=columns, max_records=1)
    recipe = FieldGroups(table="t", groups=[list(columns)])
    release = sf.open(file).release(recipe, epsilon=2, out=file.parent / "out")
    (measurement,) = release.measurements
    assert measurement.cells[[0, -1]].tolist() == [0, 2**63 - 2]
    assert release.certificate["measurements"][0]["cells"] == 2**63 - 1
    counts = joint(release.table, list(columns))[1]
    assert np.abs(np.sort(counts)[-2:] - [200, 400]).max() < 30
    sf.verify(file.parent / "out", ledger=file.parent / "ledger.db")


def test_a_group_beyond_all_integers_is_refused_before_spending(lay):
    columns = {f"c{i}": {"range": [0, 2**21 - 1]} for i in range(3)}
    rows = pa.table({"p": [1], **{name: [0] for name in columns}})
    file = lay(rows, columns=columns, max_records=1)
    with pytest.raises(RecipeError, match=r"2\^63"):
        sf.open(file).release(FieldGroups(table="t", groups=[list(columns)]), epsilon=1)
    assert sf.open(file).budget().spent == 0


def test_a_cut_that_lets_too_much_pass_is_refused_before_spending(lay):
    columns = {f"c{i}": {"range": [0, 999]} for i in range(3)}
    rows = pa.table({"p": [1], **{name: [0] for name in columns}})
    file = lay(rows, columns=columns, max_records=1)
    with pytest.raises(RecipeError, match="raise `cut`"):
        sf.open(file).release(FieldGroups(table="t", groups=[list(columns)], cut="0.1"), epsilon=1)
    assert sf.open(file).budget().spent == 0


def test_columns_whose_names_look_like_groups(lay):
    rows = make_rows(30).append_column("a x b", pa.array([1] * 30))
    columns = {"a x b": {"range": [0, 1]}, "a": SPEC["columns"]["a"], "b": SPEC["columns"]["b"]}
    curator = sf.open(lay(rows, columns=columns))
    try:
        curator.release(FieldGroups(table="t", groups=[["a", "b"]]), epsilon=1)
    except RecipeError:
        assert curator.budget().spent == 0


@pytest.mark.parametrize(
    ("facts", "match"),
    [
        ({"groups": "ab"}, "groups"),
        ({"groups": ["ab"]}, "groups"),
        ({"groups": [[]]}, "groups"),
        ({"groups": [["a", 1]]}, "groups"),
        ({"groups": [["a", "a"]]}, "groups"),
        ({"groups": [["a", "b"], ["c", "a"]]}, "'a' is in two groups"),
        ({"columns": []}, "columns"),
        ({"columns": "a"}, "columns"),
        ({"columns": ["a", "a"]}, "columns"),
        ({"groups": [["a"]], "weights": []}, "weights"),
        ({"groups": [["a"]], "weights": [1, 2]}, "weights"),
        ({"groups": [["a"]], "weights": [0]}, "weight"),
        ({"groups": [["a"]], "weights": [-1]}, "weight"),
        ({"groups": [["a"]], "weights": "1"}, "weights"),
        ({"groups": [["a"]], "weights": [float("nan")]}, "weight"),
        ({"weights": [1]}, "weights"),
        ({"cut": 0}, "cut"),
        ({"cut": -1}, "cut"),
        ({"cut": "deep"}, "cut"),
        ({"rows": -1}, "rows"),
        ({"rows": 1.5}, "rows"),
        ({"rows": True}, "rows"),
        ({"rows": 10**8 + 1}, "rows"),
        ({"seed": -1}, "seed"),
        ({"seed": "x"}, "seed"),
        ({"seed": None}, "seed"),
        ({"public": 5}, "public"),
    ],
)
def test_recipes_that_mean_nothing_are_refused(facts, match):
    with pytest.raises(RecipeError, match=match):
        FieldGroups(table="t", **facts)


@pytest.mark.parametrize(
    ("facts", "match"),
    [
        ({"groups": [["a", "zebra"]]}, "zebra"),
        ({"groups": [["a", "b"]], "columns": ["a"]}, "not among `columns`"),
        ({"columns": ["zebra"]}, "zebra"),
    ],
)
def test_recipes_that_do_not_fit_the_table_are_refused(facts, match):
    with pytest.raises((RecipeError, SchemaError), match=match):
        share_out(FieldGroups(table="t", **facts), describe(), 1)


# Verification of sparse measurements.


@pytest.fixture
def out(lay, monkeypatch, seeded_noise):
    monkeypatch.setattr(field_groups, "LARGEST_LISTED", 10)
    file = lay()
    recipe = FieldGroups(table="t", groups=[["a", "b"]], cut=12)
    sf.open(file).release(recipe, epsilon=8, out=file.parent / "out")
    return file.parent / "out"


def edit_rows(folder, change):
    """Changes the rows of the measurements and their digest, as a careful forger would."""
    rows = pq.read_table(folder / "measurements.parquet").to_pylist()
    sink = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(change(rows) or rows), sink)
    (folder / "measurements.parquet").write_bytes(sink.getvalue())
    path = folder / "certificate.json"
    certificate = json.loads(path.read_text())
    certificate["files"]["measurements.parquet"] = hashlib.sha256(sink.getvalue()).hexdigest()
    path.write_bytes(pack_json(certificate))


def swap(rows):
    rows[0], rows[1] = rows[1], rows[0]


@pytest.mark.parametrize(
    "change",
    [
        swap,
        lambda rows: rows[1].update(cell=rows[0]["cell"]),
        lambda rows: rows[0].update(cell=-1),
        lambda rows: rows[7].update(cell=64),
        lambda rows: rows[7].update(cell=2**62),
        lambda rows: rows[0].update(noisy_value=1),
        lambda rows: rows[0].update(noisy_value=-5),
        lambda rows: rows[0].update(noisy_value=10**6),
        lambda rows: rows[0].update(noise_scale=1.0),
        lambda rows: rows[0].update(measurement="c"),
        lambda rows: rows[0].update(measurement=None),
        lambda rows: rows[3].update(measurement=None),
        lambda rows: rows[0].update(cell=None),
        lambda rows: rows.pop(0) and None,
        lambda rows: rows.pop() and None,
        lambda rows: rows[8:],
        lambda rows: [rows[0], *rows],
        lambda rows: [*rows, {**rows[0], "measurement": "more"}],
        lambda rows: [*rows, rows[0]],
        lambda rows: rows.reverse(),
    ],
)
def test_edited_sparse_measurements_are_found(out, change):
    assert pq.read_table(out / "measurements.parquet").num_rows == 8 + 4 + 3 + 2
    sf.verify(out)
    edit_rows(out, change)
    with pytest.raises(VerificationFailed):
        sf.verify(out)


# The law of what is released, dense and sparse.


def draw_many(folder, table, recipe, runs):
    """The counts of the group after cut and rounding, in `runs` answers to one request."""
    plan = recipe.plan(table, epsilons=(Fraction(1, 10),), delta=Fraction(0))
    (request,) = plan.requests
    counts = np.zeros((runs, table.cells(request.columns)), np.int64)
    (true_counts,) = StatementEngine(folder).count(table, (request.counted,), progress=lambda _: None)
    for turn in range(runs):
        cells, values = recipe._cut(table, add_noise(table, request, true_counts, sfumato.core.noise))
        counts[turn, slice(None) if cells is None else cells] = values
    return counts


@pytest.mark.statistical
@pytest.mark.parametrize("bounding", ["truncate", "weight"])
def test_sparse_and_dense_groups_are_released_with_one_law(tmp_path, monkeypatch, bounding):
    """How often each bin of a group passes the cut, and what it holds then, in 1,500 answers of each kind."""
    pq.write_table(
        pa.table({"p": np.arange(30), "a": [0] * 10 + [1] * 20, "b": [0] * 30}), tmp_path / "t.parquet"
    )
    columns = {"a": {"range": [0, 3]}, "b": {"range": [0, 3]}}
    table = describe(columns=columns, max_records=1, bounding=bounding)
    recipe = FieldGroups(table="t", groups=[["a", "b"]], cut="0.7")
    runs, drawn = 1500, []
    for listed in (2**16, 4):
        monkeypatch.setattr(field_groups, "LARGEST_LISTED", listed)
        drawn.append(draw_many(tmp_path, table, recipe, runs))
    dense, sparse = drawn
    assert 0.1 < (dense > 0).mean(axis=0).min() < 0.3
    assert 0.7 < (dense > 0).mean(axis=0).max() < 1
    # Differences of shares and of means: 5.5 standard errors, for 32 of them one false alarm in a million.
    share = (dense > 0).mean(axis=0)
    errors = np.sqrt(2 * share * (1 - share) / runs)
    assert (np.abs(share - (sparse > 0).mean(axis=0)) < 5.5 * errors).all()
    errors = np.sqrt((dense.var(axis=0) + sparse.var(axis=0)) / runs)
    assert (np.abs(dense.mean(axis=0) - sparse.mean(axis=0)) < 5.5 * errors).all()
    # A control: noise of a scale 30 % smaller would be seen.
    smaller = np.where(sparse > 0, np.round(sparse * 0.7), 0)
    assert (np.abs(dense.mean(axis=0) - smaller.mean(axis=0)) > 5.5 * errors).any()


WIDE = {f"w{place}": {"range": [0, 9]} for place in range(30)}


@pytest.mark.parametrize("neighbours", ["add-remove", "replace"])
def test_gaussian_shares_cost_epsilon_and_delta_and_no_more(monkeypatch, neighbours):
    monkeypatch.setattr(field_groups, "LARGEST_LISTED", 50)  # two groups of the many are too large to list
    table = describe(columns=WIDE, neighbours=neighbours)
    groups = [["w0", "w1"], ["w2", "w3"]]
    delta = Fraction(1, 10**6)
    recipe = FieldGroups(table="t", groups=groups, weights=[4, 1], rows=10)
    plan = recipe.plan(table, epsilons=(Fraction(1),), delta=delta)
    assert [each.noise for each in plan.requests] == ["laplace"] * 2 + ["gaussian"] * 26
    spent = add_costs(Spent(), plan.costs)
    assert admits(Budget(1, delta), Spent(), plan.costs)
    assert 0.999 < mu_to_epsilon(math.sqrt(spent.mu_squared), delta) <= 1
    shares = [ask_cost(table, each).mu_squared / spent.mu_squared for each in plan.requests]
    assert [float(share) for share in shares] == pytest.approx([4 / 31] + [1 / 31] * 27, rel=1e-4)
    least = min(float(each.scale) for each in plan.requests if each.noise == "gaussian")
    pure = recipe.plan(table, epsilons=(Fraction(1),), delta=Fraction(0))
    assert math.sqrt(2) * min(float(each.scale) for each in pure.requests[2:]) > 1.5 * least


def test_without_delta_the_noise_is_laplace():
    table = describe(columns=WIDE)
    recipe = FieldGroups(table="t", rows=10)
    delta = Fraction(1, 10**6)
    pure = recipe.plan(table, epsilons=(Fraction(1),), delta=Fraction(0))
    assert {each.noise for each in pure.requests} == {"laplace"}
    plan = recipe.plan(table, epsilons=(Fraction(1),), delta=delta)
    assert {each.noise for each in plan.requests} == {"gaussian"}
    assert plan.recipe.to_record()["noise"] == "auto"
    # One group alone has less noise from Laplace's law, where delta is small.
    one = FieldGroups(table="t", columns=["w0"], rows=10).plan(table, epsilons=(Fraction(1),), delta=delta)
    assert [each.noise for each in one.requests] == ["laplace"]
    with pytest.raises(RecipeError, match="delta"):
        FieldGroups(table="t", noise="gaussian").plan(table, epsilons=(Fraction(1),), delta=Fraction(0))


class AskInTurn:
    """A recipe that asks its requests one by one, under an allowance."""

    kind, table = "in turn", "t"

    def to_record(self):
        return {"recipe": self.kind}

    def run(self, plan, *, progress):
        for request in plan.requests:
            yield (request,)
        return Product(table=pa.table({"one": [1]}))


@pytest.mark.parametrize("answered", [1, 2])
def test_a_kept_answer_in_which_nothing_passed_is_not_drawn_again(tmp_path, monkeypatch, answered):
    pq.write_table(pa.table({"c": [1, 2]}), tmp_path / "t.parquet")
    table = parse_table("t", {"source": "t.parquet", "unit": "row", "columns": {"c": {"range": [0, 99]}}})
    requests = tuple(
        Request(
            name=f"n{turn}", counted=OccupiedCells(("c",)), noise="laplace", scale=Fraction(2), threshold=500
        )
        for turn in range(3)
    )
    empty = np.empty(0, np.int64)
    kept = tuple(Measurement(request=each, noisy_values=empty, cells=empty) for each in requests[:answered])
    plan = Plan(
        recipe=AskInTurn(),
        table=table,
        requests=requests,
        epsilons=(Fraction(2),),
        delta=Fraction(0),
        allowance=(Cost(kind="pure", scale=Fraction(2), neighbours="add-remove", unit="row"),),
    )
    drawn = []

    def sparse(cells, values, *, size, scale, threshold):
        drawn.append(scale)
        return empty.copy(), empty.copy()

    monkeypatch.setattr("sfumato.core.noise.add_sparse_noise", sparse)
    engine = StatementEngine(tmp_path)
    with converse(plan, engine, kept=append_answers(b"", kept) if kept else None) as conversation:
        conversation.run()
    assert len(drawn) == 3 - answered
