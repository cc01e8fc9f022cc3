"""Counts with a privately chosen bound: charge, resumption, scaling, and what is refused."""

import json
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sfumato as sf
import sfumato.core.noise
from helpers.projects import write_project
from sfumato.accounting import Allowance
from sfumato.core.errors import RecipeError, VerificationFailed
from sfumato.core.facts.table import parse_table
from sfumato.core.questions.choices import Chosen
from sfumato.core.questions.measurement import ask_cost
from sfumato.recipes import CappedCounts
from sfumato.release.certificate import pack_json
from sfumato.release.files import PackedAnswers, split_answers

SPEC = {
    "source": "t.parquet",
    "unit": "p",
    "max_records": 12,
    "columns": {"a": {"range": [0, 3]}, "b": {"values": ["x", "y", "z"]}},
}
RECIPE = CappedCounts(table="t", by=("a", "b"))


def describe(**facts):
    return parse_table("t", {**SPEC, **facts})


def make_rows(people=900, *, heavy=40):
    """Most people have one record, some have many."""
    random = np.random.default_rng(8)
    records = np.where(np.arange(people) < heavy, 12, 1)
    person = np.repeat(np.arange(people), records)
    return pa.table(
        {
            "p": person,
            "a": random.integers(0, 4, person.size),
            "b": np.array(["x", "y", "z"])[random.integers(0, 3, person.size)],
        }
    )


@pytest.fixture
def lay(tmp_path):
    """Writes a project and its table; returns the project file."""

    def write(rows=None, *, budget=1000, **facts):
        rows = make_rows() if rows is None else rows
        return write_project(tmp_path, rows=rows, epsilon=budget, **{**SPEC, **facts})

    return write


@pytest.mark.parametrize("neighbours", ["add-remove", "replace"])
@pytest.mark.parametrize("bounding", ["truncate", "weight"])
@pytest.mark.parametrize("epsilon", ["0.3", [2, "0.1"]])
def test_the_charge_is_epsilon_exactly_and_verifies(lay, neighbours, bounding, epsilon):
    file = lay(neighbours=neighbours, bounding=bounding)
    curator = sf.open(file)
    release = curator.release(RECIPE, epsilon=epsilon, out=file.parent / "out")
    whole = sum(map(Fraction, map(str, epsilon if isinstance(epsilon, list) else [epsilon])))
    assert Fraction(release.certificate["total"]["epsilon"]) == whole
    assert curator.budget().sums.epsilon == whole
    assert sum(Fraction(each["epsilon"]) for each in release.certificate["measurements"]) == whole
    assert not sf.verify(file.parent / "out", ledger=file.parent / "ledger.db").unchecked
    assert curator.release(RECIPE, epsilon=epsilon).repeated
    assert curator.budget().sums.epsilon == whole
    assert release.table.num_rows == 12 * (2 if isinstance(epsilon, list) else 1)
    assert min(release.table["count"].to_pylist()) >= 0


def asks_of(table, recipe, epsilon, bound):
    return (*recipe._first_asks(table, epsilon, ""), recipe._counts(table, epsilon, "", bound=bound))


@given(
    epsilon=st.fractions(Fraction(1, 90), 10, max_denominator=97),
    share=st.fractions(Fraction(1, 90), Fraction(89, 90), max_denominator=97),
    most=st.integers(2, 300),
    neighbours=st.sampled_from(["add-remove", "replace"]),
    bounding=st.sampled_from(["truncate", "weight"]),
    data=st.data(),
)
@settings(max_examples=60, deadline=None)
def test_costs_sum_to_epsilon_for_every_bound(epsilon, share, most, neighbours, bounding, data):
    table = describe(max_records=most, neighbours=neighbours, bounding=bounding)
    bound = data.draw(st.integers(1, most))
    asks = asks_of(table, CappedCounts(table="t", by=("a",), share=share), epsilon, bound)
    costs = [ask_cost(table, ask) for ask in asks]
    assert [cost.epsilon for cost in costs] == [
        epsilon * share / 2,
        epsilon * share / 2,
        epsilon * (1 - share),
    ]
    factor = 2 if neighbours == "replace" else 1
    assert asks[2].scale * epsilon * (1 - share) == bound * table.grid * factor
    assert asks[1].scale * epsilon * share / 2 == most * table.grid * factor


def within(epsilon, share):
    table = describe()
    recipe = CappedCounts(table="t", by=("a",), share=share)
    plan = recipe.plan(table, epsilons=(Fraction(epsilon),), delta=Fraction(0))
    allowance = Allowance(plan.costs)
    return all(allowance.pay(ask_cost(table, ask)) for ask in asks_of(table, recipe, Fraction(epsilon), 3))


@pytest.mark.parametrize("share", ["0.01", "0.1", "0.5", "0.9"])
@pytest.mark.parametrize("epsilon", ["0.001", "0.1", 1, 4, 10])
def test_all_answers_stay_within_the_charge(epsilon, share):
    assert within(epsilon, share)


@pytest.mark.parametrize(("epsilon", "share"), [(50, "0.5"), (500, "0.1")])
def test_all_answers_of_a_large_epsilon_stay_within_the_charge(epsilon, share):
    assert within(epsilon, share)


def test_a_large_epsilon_is_released(lay):
    sf.open(lay()).release(CappedCounts(table="t", by=("a", "b"), share="0.5"), epsilon=50)


@pytest.mark.parametrize(("most", "epsilon"), [(10**6, "0.01"), (200, "1e-6")])
def test_noise_beyond_all_counts_is_refused_before_spending(lay, most, epsilon):
    curator = sf.open(lay(max_records=most, bounding="weight"))
    with pytest.raises(RecipeError, match=r"2\^50"):
        curator.release(RECIPE, epsilon=epsilon)
    assert curator.budget().spent == 0


class Interrupted(BaseException):
    pass


@pytest.mark.parametrize("stop", [1, 2, 3])
def test_an_interrupted_release_is_resumed_under_its_charge(lay, monkeypatch, stop):
    """Stopped before the first, the second or the third answer is drawn."""
    file, calls = lay(), []

    def interrupt(draw):
        def drawn(*values, **law):
            calls.append(law)
            if len(calls) == stop:
                raise Interrupted
            return draw(*values, **law)

        return drawn

    curator = sf.open(file)
    with monkeypatch.context() as patch:
        for name in ("add_noise", "exponential_choice"):
            patch.setattr(sfumato.core.noise, name, interrupt(getattr(sfumato.core.noise, name)))
        with pytest.raises(Interrupted):
            curator.release(RECIPE, epsilon=2, out=file.parent / "out")
    assert curator.budget().sums.epsilon == 2
    kept = curator.kept(file.parent / "out")
    assert kept == (2 if stop == 3 else 0)
    before = find_bound(curator)
    release = curator.resume(file.parent / "out")
    assert release.resumed
    assert curator.budget().sums.epsilon == 2
    if stop == 3:
        # What was kept is what is released: it is not drawn again.
        assert release.certificate["postprocessing"]["bounds"][0]["records"] == before
    sf.verify(file.parent / "out", ledger=file.parent / "ledger.db")
    assert curator.release(RECIPE, epsilon=2).repeated


def find_bound(curator):
    """The bound that was kept in the ledger, if one was."""
    plan = curator.check(RECIPE, epsilon=2).plan
    ledger = curator._ledger()
    version = curator._engine.version(plan.table, secret=ledger.secret)
    _, kept = ledger.find_progress(plan_digest=plan.digest, table_version=version)
    if not kept:
        return None
    chosen, _ = PackedAnswers(split_answers(kept), plan.table).take(
        RECIPE._first_asks(plan.table, Fraction(2), "")
    )
    assert isinstance(chosen, Chosen)
    return chosen.choice.caps[chosen.index]


def test_a_table_of_one_record_each_is_refused_before_spending(lay):
    curator = sf.open(lay(max_records=1))
    with pytest.raises(RecipeError, match="use cell-counts"):
        curator.release(RECIPE, epsilon=1)
    assert curator.budget().spent == 0


@pytest.mark.parametrize("max_records", [2, 200])
def test_bounds_of_every_size_are_released(lay, max_records):
    file = lay(max_records=max_records)
    release = sf.open(file).release(RECIPE, epsilon=1, out=file.parent / "out")
    (facts,) = release.certificate["postprocessing"]["bounds"]
    assert 1 <= facts["records"] <= max_records
    assert release.measurements[1].request.counted.max_records == facts["records"]
    sf.verify(file.parent / "out")


def test_a_bound_is_chosen_that_fits_the_records(lay, seeded_noise):
    # Over 4,000 cells with one record each person, every bound above the smallest is e^10 times less likely.
    columns = {**SPEC["columns"], "a": {"range": [0, 3999]}}
    recipe = CappedCounts(table="t", by=("a",))
    release = sf.open(lay(make_rows(500, heavy=0), columns=columns)).release(recipe, epsilon=8)
    assert release.certificate["postprocessing"]["bounds"][0]["records"] <= 2
    # Where everybody has all records and cells are few, every step down is e^9 times less likely.
    release = sf.open(lay(make_rows(500, heavy=500))).release(RECIPE, epsilon=8)
    assert release.certificate["postprocessing"]["bounds"][0]["records"] >= 10


@pytest.mark.parametrize("bounding", ["truncate", "weight"])
def test_the_scaled_total_is_close_to_the_truth(lay, bounding, seeded_noise):
    # 860 + 480 records; at this epsilon the noise of the total is below 10 % by far.
    release = sf.open(lay(bounding=bounding)).release(RECIPE, epsilon=40)
    assert abs(sum(release.table["count"].to_pylist()) - 1340) < 134


def test_records_outside_the_domains_are_not_scaled_in(lay, monkeypatch):
    """Six of ten records have an `a` that its domain drops; `b`, the smaller column, keeps all of them."""
    monkeypatch.setattr("sfumato.core.noise.exponential_choice", lambda scores, *, rate: np.array([3]))
    rows = make_rows(900, heavy=60)
    a = np.where(np.arange(rows.num_rows) % 10 < 6, 99, rows["a"].to_numpy())
    rows = rows.set_column(1, "a", pa.array(a))
    release = sf.open(lay(rows)).release(RECIPE, epsilon=20)
    true = int((a < 99).sum())
    assert release.certificate["postprocessing"]["bounds"][0]["records"] == 4
    assert abs(sum(release.table["count"].to_pylist()) - true) < 0.3 * true


def test_an_empty_table_is_released_as_noise(lay, seeded_noise):
    file = lay(make_rows(0, heavy=0))
    release = sf.open(file).release(RECIPE, epsilon=1, out=file.parent / "out")
    assert release.table.num_rows == 12
    # Threshold 3: a count that is noise alone is rarely seen.
    assert sum(value > 0 for value in release.table["count"].to_pylist()) <= 4
    sf.verify(file.parent / "out")


def test_the_write_up_tells_of_the_bound(lay):
    file = lay()
    release = sf.open(file).release(RECIPE, epsilon=1, out=file.parent / "out")
    writeup = (file.parent / "out" / "writeup.md").read_text()
    assert "up to 12" in writeup
    names = [each["name"] for each in release.certificate["measurements"]]
    bound = release.certificate["postprocessing"]["bounds"][0]["records"]
    assert names == ["bound on records", "number of records", f"counts of at most {bound} records"]
    assert release.certificate["measurements"][2]["records"] == bound
    assert release.certificate["measurements"][0]["candidates"] == 12


@pytest.mark.parametrize(
    "change",
    [
        lambda c: c["postprocessing"]["bounds"][0].update(records=1, scaled_by="1.0"),
        lambda c: c["postprocessing"]["bounds"][0].update(scaled_by="2.000000"),
        lambda c: c["measurements"][2].update(records=1, sensitivity="1"),
        lambda c: c["measurements"].pop(0),
        lambda c: c["plan"]["allowance"][0].update(scale="0.1"),
        lambda c: c["plan"]["recipe"].update(share="0.2"),
    ],
)
def test_an_edited_certificate_is_found(lay, change):
    file = lay(make_rows(300, heavy=300))
    sf.open(file).release(RECIPE, epsilon=4, out=file.parent / "out")
    path = file.parent / "out" / "certificate.json"
    certificate = json.loads(path.read_text())
    change(certificate)
    path.write_bytes(pack_json(certificate))
    with pytest.raises(VerificationFailed):
        sf.verify(file.parent / "out")


@pytest.mark.parametrize(
    ("facts", "match"),
    [
        ({"by": ()}, "by"),
        ({"by": "a"}, "by"),
        ({"by": ("a", "a")}, "by"),
        ({"share": 0}, "share"),
        ({"share": 1}, "share"),
        ({"share": "-0.1"}, "share"),
        ({"threshold": -1}, "threshold"),
    ],
)
def test_recipes_that_mean_nothing_are_refused(facts, match):
    with pytest.raises(RecipeError, match=match):
        CappedCounts(**{"table": "t", "by": ("a",), **facts})


def test_a_recipe_file_is_read(lay):
    file = lay()
    path = file.parent / "recipe.toml"
    path.write_text(
        'recipe = "capped-counts"\ntable = "t"\nby = ["b"]\nshare = 0.2\nthreshold = 0\nepsilon = 2\n'
    )
    release = sf.open(file).release(path)
    assert release.table.num_rows == 3
    assert release.certificate["total"]["epsilon"] == "2"
    assert release.certificate["measurements"][0]["epsilon"] == "0.2"


def test_a_recipe_reads_back_as_itself():
    recipe = CappedCounts(table="t", by=["b", "a"], share="1/7", threshold="2.5")
    record = recipe.to_record()
    del record["recipe"]
    assert CappedCounts(**json.loads(json.dumps(record))) == recipe


def test_columns_beyond_what_can_be_listed_are_refused(lay):
    columns = {"a": {"range": [0, 10**5]}, "b": {"range": [0, 10**5]}}
    with pytest.raises(RecipeError, match="cells"):
        CappedCounts(table="t", by=("a", "b")).plan(
            describe(columns=columns), epsilons=(Fraction(1),), delta=Fraction(0)
        )
