"""Contrasts are counts less their means, and no record weighs more in them than in counts."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfumato.core.facts.table import parse_table
from sfumato.core.questions.choices import Choice, Chosen
from sfumato.core.questions.measurement import Measurement as Answered
from sfumato.core.questions.measurement import Request, ask_cost, request_grid
from sfumato.inference import Domain, Measurement, estimate
from sfumato.recipes import Adaptive
from sfumato.recipes.base import follow_recipe
from sfumato.recipes.shared.compression import Compression, count_told, take_contrasts

NAMES = ("a", "b", "c")


def compress(sizes, rare=()):
    """The compression of columns, of which some have two rare values at their end."""
    domain = Domain(dict(zip(NAMES, sizes, strict=False)))
    singles = {}
    for name, size in domain.items():
        values = np.full(size, 100.0)
        if name in rare:
            values[-2:] = 0.0
        singles[name] = (values, 1.0)
    return domain, Compression(domain, singles)


@given(
    sizes=st.lists(st.integers(2, 6), min_size=1, max_size=3),
    rare=st.sets(st.sampled_from(NAMES)),
    seed=st.integers(0, 10**6),
)
def test_contrasts_are_centred_counts_and_their_weights_have_norm_one(sizes, rare, seed):
    domain, compression = compress(sizes, {name for name in rare if name in NAMES[: len(sizes)]})
    columns = tuple(domain)
    found = take_contrasts(compression, columns)
    along = [n for n in columns if n not in compression.maps and domain[n] <= 4]
    assert (found is None) == (not along)
    assert count_told(compression, columns) == math.prod(
        compression.domain[n] - (n in along) for n in columns
    )
    if found is None:
        return
    assert list(found.along) == along
    squares = np.bincount(found.queries.members, weights=found.queries.weights.astype(float) ** 2)
    assert squares.max() <= found.queries.grid**2, "else the noise would not cover a record"
    assert squares.min() >= 0.98 * found.queries.grid**2, "else the noise would cover more than a record"
    counts = np.random.default_rng(seed).integers(0, 1000, domain.cells(columns))
    joined = compression.queries(columns)
    centred = (counts if joined is None else joined.apply(counts)).astype(float)
    centred = centred.reshape(compression.domain.shape(columns))
    for axis, name in enumerate(columns):
        if name in along:
            centred = centred - centred.mean(axis=axis, keepdims=True)
    told = found.queries.apply(counts) / found.queries.grid
    assert told == pytest.approx(centred.reshape(-1) * found.scale, abs=1e-6)


def make_plan(count, *, size=2, unit="row", **options):
    columns = {f"c{place}": {"range": [1, size]} for place in range(count)}
    table = parse_table("t", {"source": "t.parquet", "unit": unit, "columns": columns, **options})
    return Adaptive(table="t").plan(table, epsilons=(Fraction(1),), delta=Fraction(1, 10**9))


def run_plan(plan, *, records, codes=None):
    """All questions of a run, by default about a column that is there twice and coins, and its product."""
    random = np.random.default_rng(5)
    names = list(plan.table.columns)
    if codes is None:
        codes = {name: random.integers(0, 2, records) for name in names}
        codes[names[0]] = codes[names[1]]
    asked = []

    def answer(batch):
        answers = []
        for ask in batch:
            asked.append(ask)
            if isinstance(ask, Choice):
                answers.append(Chosen(choice=ask, index=0))
                continue
            places = np.zeros(records, np.int64)
            for name in ask.columns:
                places = places * plan.table.column(name).size + codes[name]
            counts = np.bincount(places, minlength=plan.table.cells(ask.columns)) * plan.table.grid
            values = counts if ask.queries is None else ask.queries.apply(counts)
            drawn = np.rint(random.normal(0, float(ask.scale), values.size)).astype(np.int64)
            grid = request_grid(plan.table, ask)
            answers.append(Answered(request=ask, noisy_values=values + drawn, grid=grid))
        return tuple(answers)

    _, product = follow_recipe(plan, answer=answer, progress=lambda _: None)
    return asked, product


def test_many_records_of_few_columns_have_all_pairs_measured_in_contrasts():
    plan = make_plan(5)
    asked, product = run_plan(plan, records=50_000)
    requests = [ask for ask in asked if isinstance(ask, Request)]
    pairs = [ask.columns for ask in requests if len(ask.columns) == 2]
    assert len(pairs) == len(set(pairs)) == 10
    assert all(ask.queries.is_signed for ask in requests if len(ask.columns) > 1)
    assert all(len(each.columns) == 3 for ask in asked if isinstance(ask, Choice) for each in ask.candidates)
    spent = sum(ask_cost(plan.table, ask).mu_squared for ask in asked)
    assert Fraction(999, 1000) * plan.costs[0].mu_squared <= spent <= plan.costs[0].mu_squared
    # Two columns that are one: what contrasts tell of them is in the rows.
    rows = product.table
    assert (rows["c0"].to_numpy() == rows["c1"].to_numpy()).mean() > 0.99


@pytest.mark.parametrize(
    ("plan", "records"),
    [
        (make_plan(5), 100),  # not every pair is worth its noise
        (make_plan(18), 50_000),  # the model of all pairs would be too large
        (make_plan(5, neighbours="replace"), 50_000),  # contrasts would cost more than counts
    ],
    ids=["few records", "many columns", "replaced"],
)
def test_other_tables_choose_from_the_first_pair_on(plan, records):
    asked, _ = run_plan(plan, records=records)
    requests = [ask for ask in asked if isinstance(ask, Request)]
    assert not any(ask.queries is not None and ask.queries.is_signed for ask in requests)


def test_nothing_is_asked_that_the_plan_does_not_name():
    # All that is left of a column of 100 values is small enough, but triples of all values are not counted.
    plan = make_plan(3, size=100)
    random = np.random.default_rng(7)
    records = 500_000
    asked, _ = run_plan(
        plan, records=records, codes={name: random.integers(0, 10, records) for name in plan.table.columns}
    )
    assert any(ask.name.startswith("pair ") for ask in asked), "all pairs were measured"
    columns = [ask.columns for ask in asked if isinstance(ask, Request)]
    columns += [each.columns for ask in asked if isinstance(ask, Choice) for each in ask.candidates]
    assert set(columns) <= set(plan.counted)


def test_columns_of_one_value_leave_triples_what_they_have():
    def count(constants):
        columns = {f"c{place}": {"range": [1, 2 if place < 4 else 1]} for place in range(4 + constants)}
        table = parse_table("t", {"source": "t.parquet", "unit": "row", "columns": columns})
        plan = Adaptive(table="t").plan(table, epsilons=(Fraction(1),), delta=Fraction(1, 10**9))
        random = np.random.default_rng(8)
        codes = {
            name: random.integers(0, 2 if place < 4 else 1, 50_000) for place, name in enumerate(columns)
        }
        asked, _ = run_plan(plan, records=50_000, codes=codes)
        return [ask.columns for ask in asked if isinstance(ask, Request)]

    assert {each for each in count(3) if len(each) == 3} == {each for each in count(0) if len(each) == 3}


def test_a_model_stays_small_when_a_second_look_tells_more_values_apart(monkeypatch):
    monkeypatch.setattr("sfumato.recipes.adaptive._DENSE_CELLS", 2000)
    plan = make_plan(3, size=40)
    random = np.random.default_rng(9)
    records = 1_000_000
    # Most values stand out of the noise of the second look alone.
    chances = np.full(40, 6e-5)
    chances[:2] = (1 - 38 * 6e-5) / 2
    codes = {name: random.choice(40, records, p=chances) for name in plan.table.columns}
    asked, product = run_plan(plan, records=records, codes=codes)
    assert any(ask.name.startswith("pair ") for ask in asked)
    (facts,) = product.facts["models"]
    sizes = [facts["compressed_to"].get(name, 40) for name in plan.table.columns]
    assert math.prod(sizes) <= 2000


def test_questions_about_columns_that_are_called_like_others_have_names_of_their_own():
    names = ["a", "a x b", "c", "b x c"]
    columns = {name: {"range": [1, 2]} for name in names}
    table = parse_table("t", {"source": "t.parquet", "unit": "row", "columns": columns})
    plan = Adaptive(table="t").plan(table, epsilons=(Fraction(1),), delta=Fraction(1, 10**9))
    random = np.random.default_rng(6)
    codes = {name: random.integers(0, 2, 50_000) for name in names}
    asked, _ = run_plan(plan, records=50_000, codes=codes)
    assert len({ask.name for ask in asked}) == len(asked)


def test_a_release_of_contrasts_is_derived_again_byte_for_byte_and_has_intervals(tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    import sfumato as sf

    random = np.random.default_rng(1)
    base = random.integers(0, 2, 60_000)
    columns = {"a": base, "b": np.where(random.random(60_000) < 0.8, base, 1 - base)}
    columns["c"] = (columns["a"] + random.integers(0, 3, 60_000)) % 3
    columns["d"] = random.integers(0, 2, 60_000)
    pq.write_table(pa.table(columns), tmp_path / "t.parquet")
    sizes = {"a": 2, "b": 2, "c": 3, "d": 2}
    described = "".join(
        f"[tables.t.columns.{name}]\nrange = [0, {size - 1}]\n" for name, size in sizes.items()
    )
    project = tmp_path / "sfumato.toml"
    project.write_text(
        "[budget]\nepsilon = 4.0\ndelta = 1e-6\n[tables.t]\nsource = 't.parquet'\nunit = 'row'\n" + described
    )
    out = tmp_path / "out"
    release = sf.open(project).release(Adaptive(table="t"), epsilon=1, delta=1e-6, out=out)
    assert any("queries" in each for each in release.certificate["measurements"])
    sf.verify(out, ledger=tmp_path / "ledger.db")
    answer = sf.open_release(out).sql("SELECT a, b, COUNT(*) AS n FROM t GROUP BY a, b").to_pandas()
    free = sf.open(project).sql("DP-SELECT FREE a, b, COUNT(*) AS n FROM t GROUP BY a, b").to_pandas()
    assert free.equals(answer), "what the ledger holds says the same as the files of the release"
    true = np.bincount(columns["a"] * 2 + columns["b"])
    assert answer["n_low"].notna().all()
    widths = (answer["n_high"] - answer["n_low"]).to_numpy()
    # What all answers together tell has a deviation of some tens of records at this budget.
    assert (np.abs(answer["n"].to_numpy() - true[answer["a"] * 2 + answer["b"]]) < 5 * widths).all()
    assert (widths < 1000).all()


def test_shared_sums_fit_the_same_model():
    random = np.random.default_rng(2)
    sizes = {f"c{place}": 2 for place in range(8)}
    domain = Domain(sizes)
    weights = random.dirichlet(np.full(256, 0.3)) * 10_000
    table = weights.reshape([2] * 8)
    measured = []
    for one in range(8):
        for other in range(one + 1, 8):
            rest = tuple(at for at in range(8) if at not in (one, other))
            values = table.sum(axis=rest).reshape(-1)
            measured.append(Measurement(columns=(f"c{one}", f"c{other}"), values=values, sigma=5.0))
    from sfumato.inference import build_tree, fit_model, merge_measurements

    parts = merge_measurements(domain, measured)
    tree = build_tree(domain, [part.columns for part in parts], limit=2**20)
    plain, shared = (
        fit_model(tree, parts, total=10_000.0, share_sums=share, evaluations=200) for share in (False, True)
    )
    for part in parts:
        assert shared.flat_marginal(part.columns) == pytest.approx(plain.flat_marginal(part.columns), abs=2.0)
        assert shared.flat_marginal(part.columns) == pytest.approx(part.values, abs=15.0)
    assert estimate(domain, measured, total=10_000.0).loss == pytest.approx(plain.loss, abs=5.0)
