"""Audits of recipes and statements: what is shipped is not refuted, and planted faults are caught.

Layers that rest on chance run at a confidence of one in a million; layers 0 and 1 leave nothing to chance.
"""

import math
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import sfumato as sf
from helpers.as_written import as_written
from helpers.drawn import change_draws
from helpers.projects import write_project
from sfumato.accounting import Cost
from sfumato.audit import AuditError, audit
from sfumato.audit.neighbours import list_fields, list_individuals, make_table
from sfumato.audit.noise_off import RecordingNoise, compare_neighbours, run_base
from sfumato.audit.one_run import try_canaries
from sfumato.audit.targets import Harness, RecipeTarget, read_target
from sfumato.core import door
from sfumato.core.engine import aggregates as execute
from sfumato.core.engine import duckdb as engine_module
from sfumato.core.facts.project import parse_project, read_project
from sfumato.core.questions import counts
from sfumato.core.questions.choices import NormChoice

SURE = 1 - 1e-6
ONE, NONE = (Fraction(1),), Fraction(0)
DESCRIBED = {
    "c": {"range": [0, 4]},
    "d": {"values": ["x", "y", "z"], "outside": "other"},
    "b": {"bins": [0, 10, 20], "bounds": [0, 20], "outside": "clamp"},
}
COLUMNS = {"p": pa.string(), "c": pa.int64(), "d": pa.string(), "b": pa.float64(), "o": pa.string()}


@pytest.fixture
def project(tmp_path):
    def make(*, max_records=3, neighbours="add-remove", bounding="truncate"):
        empty = pa.table({name: pa.array([], kind) for name, kind in COLUMNS.items()})
        unit = {"unit": "p", "max_records": max_records, "neighbours": neighbours, "bounding": bounding}
        return write_project(tmp_path, DESCRIBED, rows=empty, epsilon=1, delta=1e-5, **unit)

    return make


RECIPES = {
    "cell-counts": (sf.recipes.CellCounts(table="t", by=("c", "d")), 0),
    "cell-counts, gaussian": (sf.recipes.CellCounts(table="t", by=("c", "d"), noise="gaussian"), 1e-6),
    "capped-counts": (sf.recipes.CappedCounts(table="t", by=("c", "d")), 0),
    "map": (sf.recipes.Map(table="t", by=("c", "d", "b")), 0),
    "user-counts": (sf.recipes.UserCounts(table="t", by=("c", "d")), 0),
    "field-groups": (sf.recipes.FieldGroups(table="t", groups=(("c", "d"), ("b",))), 0),
    "tree": (sf.recipes.Tree(table="t"), 1e-6),
    "adaptive-grid, individuals": (
        sf.recipes.AdaptiveGrid(
            table="t",
            outer=(("c", "d"),),
            norms="auto",
            quantile="0.5",
            identifiers={"column": "c", "values": 2},
            credible=("c",),
        ),
        1e-6,
    ),
}


@pytest.mark.slow
@pytest.mark.statistical
@pytest.mark.parametrize("name", [each for each in RECIPES if each not in ("capped-counts", "tree")])
def test_no_shipped_recipe_is_refuted(project, name):
    recipe, delta = RECIPES[name]
    result = audit(recipe, project=project(), epsilon=1, delta=delta, effort="fast", confidence=SURE)
    assert result.verdict == "not refuted", str(result)
    assert 0.5 < result.epsilon_lower <= 1 + 1e-9
    assert result.pairs > 20


@pytest.mark.slow
@pytest.mark.statistical
@pytest.mark.parametrize(("name", "bounding"), [("cell-counts", "weight"), ("user-counts", "truncate")])
def test_no_shipped_recipe_is_refuted_under_replacement(project, name, bounding):
    recipe, delta = RECIPES[name]
    file = project(neighbours="replace", bounding=bounding)
    result = audit(recipe, project=file, epsilon=[1, 0.5], delta=delta, effort="fast", confidence=SURE)
    assert result.verdict == "not refuted", str(result)
    assert (result.epsilon, result.epsilon_lower) == (1.5, pytest.approx(1.5))


STATEMENTS = [
    "DP-SELECT 1 COUNT(*) FROM t",
    "DP-SELECT 1 d, SUM(b), AVG(b), COUNT(DISTINCT p) FROM t GROUP BY d",
    "DP-SELECT 1 d, MEDIAN(b) FROM t GROUP BY d",
    "DP-SELECT 1 DELTA 1e-6 o, COUNT(*), SUM(b) FROM t GROUP BY o",
    "DP-SELECT 1 d, c FROM t",
]


@pytest.mark.slow
@pytest.mark.statistical
@pytest.mark.parametrize("statement", STATEMENTS)
def test_no_statement_is_refuted(project, statement):
    result = audit(statement, project=project(), effort="fast", confidence=SURE)
    assert result.verdict == "not refuted", str(result)
    assert 0 < result.epsilon_lower <= result.epsilon + 1e-9


def test_nothing_is_read_and_nothing_is_spent(project):
    file = project()
    (file.parent / "t.parquet").unlink()
    result = audit(RECIPES["cell-counts"][0], project=file, epsilon=1, effort="fast", confidence=SURE)
    assert result.verdict == "not refuted"
    assert sorted(path.name for path in file.parent.iterdir()) == ["sfumato.toml"]


@pytest.mark.slow
@pytest.mark.statistical
def test_the_calibration_as_written_is_caught_in_every_layer(project):
    specimen = as_written("c", "d", "b")
    result = audit(specimen, project=project(max_records=20), effort="fast", confidence=SURE)
    assert result.verdict == "VIOLATED"
    assert result.epsilon_lower == 20
    assert {each.layer for each in result.findings if each.violated} >= {0, 1, 3}


def wide(tmp_path):
    """A table with cells enough for canaries."""
    document = {
        "budget": {"epsilon": 1},
        "tables": {
            "t": {
                "source": "t.parquet",
                "unit": "p",
                "max_records": 20,
                "columns": {"a": {"range": [1, 60]}, "b": {"range": [1, 60]}},
            }
        },
    }
    return parse_project(document, folder=tmp_path)


@pytest.mark.slow
@pytest.mark.statistical
def test_canaries_catch_it_in_one_run(tmp_path):
    project = wide(tmp_path)
    found = {}
    for recipe, subject in (
        ("as written", as_written("a", "b")),
        (
            "repaired",
            RecipeTarget(recipe=sf.recipes.UserCounts(table="t", by=("a", "b")), epsilons=ONE, delta=NONE),
        ),
    ):
        folder = tmp_path / recipe
        folder.mkdir()
        found[recipe] = try_canaries(
            Harness(project, subject, folder),
            most=160,
            epsilon=1,
            delta=0,
            miss=1e-6,
            progress=lambda _: None,
        )
    assert found["as written"].violated
    assert 1 < found["as written"].epsilon < 20
    assert not found["repaired"].violated


# Planted faults. Each changes one line of what is shipped.


def catch(mechanism, file, delta="0"):
    """What layer 1 finds wrong, with the few people that it takes."""
    project = read_project(file)
    if isinstance(mechanism, str):
        subject = read_target(mechanism, project)
    else:
        subject = RecipeTarget(recipe=mechanism, epsilons=(Fraction(1),), delta=Fraction(delta))
    folder = file.parent / "made up"
    folder.mkdir()
    harness = Harness(project, subject, folder)
    words = ("in one cell", "nobody else")
    people = list_individuals(harness.fields, harness.table, thorough=False)
    people = [person for person in people if any(word in person.what for word in words)]
    found = compare_neighbours(harness, thorough=False, progress=lambda _: None, people=people)
    assert any(each.violated for each in found.findings)
    return " / ".join(each.text for each in found.findings if each.violated)


COUNTS = RECIPES["cell-counts"][0]


def test_a_bound_that_is_not_enforced_is_caught(project, monkeypatch):
    original = engine_module.bounded_queries

    def unbounded(connection, table, columns, sealed):
        original(connection, table, columns, sealed)
        return ["SELECT c0, c1 FROM inside", "SELECT c0, c1 FROM encoded"]

    monkeypatch.setattr(engine_module, "bounded_queries", unbounded)
    assert "L1 distance 11, declared 3" in catch(COUNTS, project())


def test_a_sensitivity_of_half_is_caught(project, monkeypatch):
    original = counts.histogram_sensitivity
    monkeypatch.setattr(counts, "histogram_sensitivity", lambda **facts: original(**facts) / 2)
    assert "the worst pair shows epsilon 2" in catch(COUNTS, project())


def test_noise_of_half_the_scale_is_caught(project, monkeypatch):
    class Halved(RecordingNoise):
        def add_noise(self, values, *, kind, scale):
            return super().add_noise(values, kind=kind, scale=Fraction(scale) / 2)

    monkeypatch.setattr("sfumato.audit.noise_off.RecordingNoise", Halved)
    assert "noise of scale 1.5, declared 3" in catch(COUNTS, project())


def test_an_output_that_looks_past_the_noise_is_caught(project, monkeypatch):
    original = door.add_noise

    def leak(table, request, true_counts, noise):
        answer = original(table, request, true_counts, noise)
        return replace(answer, noisy_values=answer.noisy_values + (true_counts.true_values > 2))

    monkeypatch.setattr(door, "add_noise", leak)
    assert "the output depends on more than the noisy answers" in catch(COUNTS, project())


def test_an_error_that_depends_on_a_record_is_caught(project, monkeypatch):
    original = engine_module.DuckDBEngine.count

    def fail(self, table, marginals, **options):
        counts = original(self, table, marginals, **options)
        if int(counts[0].true_values.sum()) > 36:
            message = "too many"
            raise sf.SourceError(message)
        return counts

    monkeypatch.setattr(engine_module.DuckDBEngine, "count", fail)
    assert "an error depends on the records" in catch(COUNTS, project())


def test_a_stage_that_tells_a_count_is_caught(project, monkeypatch):
    original = engine_module.DuckDBEngine.count

    def tell(self, table, questions, *, progress):
        counts = original(self, table, questions, progress=progress)
        progress(f"{int(counts[0].true_values.sum())} records read")
        return counts

    monkeypatch.setattr(engine_module.DuckDBEngine, "count", tell)
    assert "the progress messages depend" in catch(COUNTS, project())


def test_a_choice_at_twice_the_rate_is_caught(project, monkeypatch):
    original = NormChoice.rate
    monkeypatch.setattr(NormChoice, "rate", lambda choice, table: 4 * original(choice, table))
    assert "scores move by epsilon" in catch(
        RECIPES["adaptive-grid, individuals"][0], project(), delta="1e-6"
    )


def test_noise_scaled_by_the_records_is_caught(project, monkeypatch):
    def scaled(plan, true_aggregates, source):
        size = 1 + int(np.abs(true_aggregates.true_values[0]).sum())
        noises = tuple(replace(each, scale=each.scale / size) for each in plan.noises)
        return original(replace(plan, noises=noises), true_aggregates, source)

    original = change_draws(monkeypatch, scaled)
    assert "neighbours ask for different noise" in catch(STATEMENTS[0], project())


def test_rows_that_are_not_bounded_are_caught(project, monkeypatch):
    original = execute._bound_crowd

    def unbounded(connection, plan, *rest):
        return original(connection, replace(plan, unit=replace(plan.unit, max_records=10**6)), *rest)

    monkeypatch.setattr(execute, "_bound_crowd", unbounded)
    assert "L1 distance" in catch("DP-SELECT 1 d, SUM(b) FROM t GROUP BY d", project())


@pytest.mark.slow
@pytest.mark.statistical
def test_noise_of_another_law_is_caught(project, monkeypatch):
    def narrow(values, *, kind, scale):
        from sfumato.core.noise import add_noise

        return add_noise(values, kind=kind, scale=Fraction(scale) / 2)

    monkeypatch.setattr("sfumato.audit.layers.add_noise", narrow)
    result = audit(COUNTS, project=project(), epsilon=1, effort="fast", confidence=SURE)
    assert any("does not have its law" in each.text for each in result.findings if each.violated)


@pytest.mark.slow
def test_the_same_noise_twice_is_caught(project, monkeypatch):
    monkeypatch.setattr(
        "sfumato.core.noise.add_noise", lambda values, *, kind, scale: values + np.arange(values.size) % 5
    )
    result = audit(COUNTS, project=project(max_records=9), epsilon=1, effort="fast", confidence=SURE)
    assert any("seed" in each.text for each in result.findings if each.violated)


# What audits are made of.


@pytest.mark.slow
@pytest.mark.parametrize("neighbours", ["add-remove", "replace"])
def test_rows_as_individuals(tmp_path, neighbours):
    document = {
        "budget": {"epsilon": 1},
        "tables": {
            "t": {
                "source": "t.csv",
                "unit": "row",
                "neighbours": neighbours,
                "columns": {
                    "when": {"period": "month"},
                    "pair": {"from": ["u", "v"], "values": [[1, "a"], [2, "b"]]},
                },
            }
        },
    }
    recipe = sf.recipes.CellCounts(table="t", by=("when", "pair"))
    result = audit(
        recipe, project=parse_project(document, folder=tmp_path), epsilon=2, effort="fast", confidence=SURE
    )
    assert result.verdict == "not refuted"
    assert result.epsilon_lower == pytest.approx(2)


def test_people_cover_what_a_schema_does_not_expect(project):
    table = read_project(project()).table("t")
    people = list_individuals(list_fields(table, {}), table, thorough=True)
    what = " ".join(person.what for person in people)
    for word in ("over the bound", "every marginal", "without a name", "missing", "end of bounds", "odd"):
        assert word in what
    stored = [value for person in people for record in person.records for part in record for value in part]
    assert any(isinstance(value, float) and math.isnan(value) for value in stored)
    assert math.inf in stored
    assert 2**63 - 1 in stored
    assert None in stored
    assert "never seen" in stored
    made = make_table(list_fields(table, {}), [(1, people[0].records)], unit="p", unit_kind="text")
    assert made.num_rows == len(people[0].records)


def test_the_second_table_hears_the_answers_of_the_first(project):
    recipe, delta = RECIPES["tree"]
    subject = RecipeTarget(recipe=recipe, epsilons=(Fraction(1),), delta=Fraction(delta))
    folder = project().parent / "made up"
    folder.mkdir()
    harness = Harness(read_project(project()), subject, Path(folder))
    base = run_base(harness, crowd=True, mode="on")
    person = list_individuals(harness.fields, harness.table, thorough=False)[1]
    noise = RecordingNoise(replay=base.noise.answers)
    harness.run((person,), noise)
    assert [each.terms for each in noise.requests] == [each.terms for each in base.noise.requests]
    assert all(np.array_equal(a[0], b[0]) for a, b in zip(noise.answers, base.noise.answers, strict=True))


@pytest.mark.slow
def test_costs_that_are_fewer_than_the_answers_are_caught(project):
    recipe = sf.recipes.FieldGroups(table="t", groups=(("c",), ("b",)))
    subject = RecipeTarget(
        recipe=recipe,
        epsilons=(Fraction(1),),
        delta=Fraction(0),
        claimed=lambda table: (Cost(kind="laplace", scale=Fraction(9), sensitivity=Fraction(3), unit="p"),),
    )
    folder = project().parent / "made up"
    folder.mkdir()
    harness = Harness(read_project(project()), subject, Path(folder))
    found = compare_neighbours(harness, thorough=False, progress=lambda _: None)
    assert any("L1 distance" in each.text and "declared 3" in each.text for each in found.findings)


@pytest.mark.slow
def test_drafted_domains_are_named(project):
    file = project()
    text = file.read_text().replace(
        "range = [0, 4]", "range = [0, 4]\ndrafted_from_data = true\naccept_drafted = true"
    )
    file.write_text(text)
    result = audit(COUNTS, project=file, epsilon=1, effort="fast", confidence=SURE)
    assert any("drafted from the data" in note for note in result.notes)


@pytest.mark.parametrize(
    ("mechanism", "message"),
    [
        ("SELECT COUNT(*) FROM t", "only a DP-SELECT"),
        ("EXPLAIN DP-SELECT 1 COUNT(*) FROM t", "only a DP-SELECT"),
        ("DP-SELECT 1 COUNT(*) FROM other", "names no table"),
        ("DP-SELECT 1 SUM(o) FROM t", "not answered"),
        (RECIPES["tree"][0], "delta above zero"),
    ],
)
def test_what_is_not_answered_is_not_audited(project, mechanism, message):
    with pytest.raises(AuditError, match=message):
        audit(mechanism, project=project(), epsilon=1)


def test_a_recipe_needs_an_epsilon(project):
    with pytest.raises(AuditError, match="epsilon"):
        audit(COUNTS, project=project())


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [1e-6, 50])
def test_tiny_and_large_claims(project, epsilon):
    result = audit(
        sf.recipes.CellCounts(table="t", by=("c",)),
        project=project(),
        epsilon=epsilon,
        effort="fast",
        confidence=SURE,
    )
    assert result.verdict == "not refuted"
    assert result.epsilon_lower == pytest.approx(epsilon)


@pytest.mark.slow
def test_a_statement_about_two_tables(project):
    file = project()
    more = '[tables.u]\nsource = "u.csv"\nunit = "q"\nmax_records = 2\n[tables.u.columns.e]\nrange = [1, 3]\n'
    file.write_text(file.read_text() + more)
    (file.parent / "u.csv").write_text("q,e\n")
    result = audit(
        "DP-SELECT 1 COUNT(*), COUNT(DISTINCT t.p) FROM t JOIN u ON t.p = u.q",
        project=file,
        effort="fast",
        confidence=SURE,
    )
    assert result.verdict == "not refuted"
