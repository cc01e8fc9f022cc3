"""Tries to draw noise that nobody was charged for: all draws beside the ledger, and planted faults."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sfumato.core.noise
from helpers.drawn import change_draws, find_miscount, find_overdraft, watch_draws
from helpers.exact import RECIPES, Exact
from sfumato.accounting import Cost
from sfumato.audit.noise_off import NoiseRequest
from sfumato.core import door
from sfumato.core.questions.gradients import Gradients
from sfumato.curator import describe_source
from sfumato.curator.draft import draft_privately
from sfumato.recipes import field_groups

STATEMENTS = {
    "added": "COUNT(*), COUNT(DISTINCT person), SUM(debt), AVG(fare), CORR(fare, debt) FROM t",
    "Gaussian": "DELTA 1e-7 region, COUNT(*), SUM(fare) FROM t GROUP BY region",
    "chosen groups": "DELTA 1e-7 note, COUNT(*), AVG(fare) FROM t GROUP BY note",
    "levels": "region, ok, COUNT(*), SUM(fare) FROM t GROUP BY ROLLUP(region, ok)",
    "quantile": "region, MEDIAN(fare), QUANTILE(fare, 0.95), MIN(debt) FROM t GROUP BY region",
    "all quantiles": "ok, APPROX_QUANTILES(fare, 4) FROM t GROUP BY ok",
    "labels": "region, TOP(month, 2), MODE(note IN ('n1')) FROM t GROUP BY region",
    "bins": "HISTOGRAM(fare, 6) FROM t",
    "private bounds": "ok, SUM(fare BOUNDED PRIVATELY), MEDIAN(debt BOUNDED PRIVATELY) FROM t GROUP BY ok",
    "private records": "region, COUNT(*), SUM(fare) FROM private GROUP BY region",
    "inner rows": "SUM(n), MEDIAN(n) FROM (SELECT person, COUNT(*) AS n FROM t GROUP BY person) AS q",
    "rows": "region, fare, age FROM t WHERE fare > 5",
    "within": "WITHIN 30 COUNT(*) FROM t",
    "within a share": "WITHIN 20% SUM(fare) FROM t",
}


def spell(name):
    text = STATEMENTS[name]
    return f"DP-SELECT {'' if text.startswith('WITHIN') else '4 '}{text}"


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    return Exact(tmp_path_factory.mktemp("drawn"))


@pytest.fixture
def fresh(tmp_path):
    return Exact(tmp_path)


@pytest.mark.parametrize("name", STATEMENTS)
def test_a_statement_draws_what_the_ledger_was_charged(project, name):
    charges = project.ask(spell(name))
    assert charges
    assert find_overdraft(charges) is None


def first_of_each(recipes):
    return {each["recipe"]: each for each in reversed(recipes)}.values()


@pytest.mark.parametrize("recipe", first_of_each(RECIPES), ids=lambda each: each["recipe"])
def test_a_recipe_draws_what_the_ledger_was_charged(project, recipe):
    charges, release = project.release(recipe)
    assert charges
    assert find_overdraft(charges, release) is None


def test_counts_too_many_to_list_draw_what_the_ledger_was_charged(fresh, monkeypatch):
    monkeypatch.setattr(field_groups, "LARGEST_LISTED", 1)
    charges, release = fresh.release({"recipe": "field-groups", "groups": [["region", "month"]]})
    assert {draw.kind for charge in charges for draw in charge.draws} == {"sparse"}
    assert find_overdraft(charges, release) is None


@pytest.mark.parametrize("metric", ["pie-chart", "l1"])
def test_a_score_draws_what_the_ledger_was_charged(fresh, metric):
    fresh.curator.release(
        sfumato.recipes.CellCounts(table="t", by=("region", "month")),
        epsilon=[1, 4],
        out=fresh.folder / "out",
    )
    with watch_draws() as charges:
        fresh.curator.publish_score(fresh.folder / "out", epsilon=2, metric=metric)
    assert len(charges) == 1
    assert [draw.scale for draw in charges[0].draws] == [cost.scale for cost in charges[0].costs]
    assert [draw.true_values.size for draw in charges[0].draws] == [1, 1]  # the score of each table


def test_a_draft_draws_what_the_ledger_was_charged(tmp_path):
    rows = {"person": [f"p{n}" for n in range(400)], "ward": ["ab"[n % 2] for n in range(400)]}
    pq.write_table(pa.table({**rows, "age": [n % 80 for n in range(400)]}), tmp_path / "people.parquet")
    facts = {"unit": "person", "max_records": 1, "epsilon": 400, "budget": 1000, "delta": "1e-6"}
    with watch_draws(mode="on") as charges:
        kinds = describe_source("people.parquet", folder=tmp_path)
        draft_privately("people.parquet", kinds, **facts, folder=tmp_path)
    assert len(charges) > 1
    assert find_overdraft(charges) is None


def test_every_period_of_a_series_draws_what_the_first_was_charged(fresh):
    recipe = {"recipe": "running", "period": "month", "by": ["ok"], "delta": "1e-6"}
    for through in (2, 4):
        charges, release = fresh.release({**recipe, "through": through})
        assert len(charges) == 2  # a charge of its own, or a part of that one, for every new period
        paid = release.measurements[0].request.scale
        assert [draw.scale for charge in charges for draw in charge.draws] == [paid, paid]
        if through == 2:
            assert find_overdraft(charges) is None


# Planted faults. Each changes one line of what draws.


def halve(drawer):
    """A drawer of noise that draws half of what it is asked for, or chooses twice as surely."""

    def less(*given, **named):
        return drawer(*given, **{key: each / 2 if key == "scale" else each for key, each in named.items()})

    return less


class Careless:
    """The noise of a charge, of which each drawer may be replaced."""

    def __init__(self, source, **drawers):
        self.source, self.drawers = source, drawers

    def __getattr__(self, name):
        plain = getattr(self.source, name)
        return self.drawers[name](plain) if name in self.drawers else plain


def change_drawers(monkeypatch, **drawers):
    """Has statements draw by other means."""
    plain = change_draws(
        monkeypatch, lambda plan, exact, source: plain(plan, exact, Careless(source, **drawers))
    )


@pytest.mark.parametrize("name", ["added", "Gaussian", "chosen groups", "levels", "all quantiles", "bins"])
def test_half_the_noise_of_a_statement_is_caught(fresh, monkeypatch, name):
    change_drawers(monkeypatch, add_noise=halve)
    assert "drawn, not charged" in find_overdraft(fresh.ask(spell(name)))


def test_half_the_noise_of_a_selection_alone_is_caught(fresh, monkeypatch):
    def draw(plan, exact, source):
        chosen = replace(plan.selection, scale=plan.selection.scale / 2)
        return plain(replace(plan, selection=chosen), exact, source)

    plain = change_draws(monkeypatch, draw)
    assert "drawn, not charged" in find_overdraft(fresh.ask(spell("chosen groups")))


def test_noise_that_is_drawn_twice_is_caught(fresh, monkeypatch):
    def twice(drawer):
        return lambda *given, **named: (drawer(*given, **named), drawer(*given, **named))[1]

    change_drawers(monkeypatch, add_noise=twice)
    assert "drawn, not charged" in find_overdraft(fresh.ask(spell("levels")))


@pytest.mark.parametrize("kind", ["cell-counts", "capped-counts", "adaptive", "network", "running"])
def test_half_the_noise_of_a_recipe_is_caught(fresh, monkeypatch, kind):
    recipe = next(each for each in RECIPES if each["recipe"] == kind)
    plain = door.add_noise
    monkeypatch.setattr(
        door,
        "add_noise",
        lambda table, request, exact, noise: plain(table, request, exact, Careless(noise, add_noise=halve)),
    )
    assert find_overdraft(*fresh.release(recipe)) is not None


def test_a_sample_twice_as_large_as_was_charged_is_caught(fresh, monkeypatch):
    recipe = next(each for each in RECIPES if each.get("sampling"))
    assert find_overdraft(*fresh.release(recipe)) is None
    plain = door.Records._sample

    def sample(self, request, question: Gradients, noise):
        twice = lambda drawer: lambda *, size, rate: drawer(size=size, rate=2 * rate)  # noqa: E731
        return plain(self, request, question, Careless(noise, poisson_sample=twice))

    monkeypatch.setattr(door.Records, "_sample", sample)
    again = {**recipe, "epsilon": 3}
    assert "drawn, not charged" in find_overdraft(*fresh.release(again))


def test_noise_before_any_charge_is_caught():
    with watch_draws(), pytest.raises(AssertionError, match="before anything is charged"):
        sfumato.core.noise.add_noise(np.zeros(3, np.int64), kind="laplace", scale=Fraction(1))


def test_kind_scale_number_and_sample_are_compared():
    def draw(**facts):
        return NoiseRequest(**{"kind": "gaussian", "scale": Fraction(4), "true_values": np.zeros(1)} | facts)

    cost = Cost(kind="gaussian", scale=Fraction(4), count=2)
    assert find_miscount([draw(), draw()], [cost]) is None
    for wrong in ([draw()], [draw()] * 3, [draw(), draw(kind="laplace")], [draw(), draw(scale=Fraction(3))]):
        assert find_miscount(wrong, [cost]) is not None
    assert find_miscount([draw(), draw(sampling=Fraction(1, 2))], [cost]) is not None
