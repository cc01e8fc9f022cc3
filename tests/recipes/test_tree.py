"""The recipe `tree`: a forest of pairs, chosen and then measured."""

from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest

import sfumato as sf
from sfumato.core.facts.project import read_project
from sfumato.core.questions.choices import Chosen
from sfumato.core.questions.measurement import Measurement
from sfumato.inference import unpack_models
from sfumato.recipes import Tree

CHAIN = "".join(f"[tables.t.columns.{name}]\nrange = [0, 3]\n" for name in "vwxyz")


def make_chain():
    """Five columns, each a noisy copy of the one before, in a shuffled order of columns."""
    random = np.random.default_rng(8)
    columns = [random.integers(0, 4, 6000)]
    for _ in range(4):
        fresh = random.random(6000) < 0.15
        columns.append(np.where(fresh, random.integers(0, 4, 6000), columns[-1]))
    return pa.table(dict(zip("xzvyw", columns, strict=True)))


def choices(release):
    return [each for each in release.answers if isinstance(each, Chosen)]


def pairs(release):
    return [each.choice.candidates[each.index].columns for each in choices(release)]


def test_pairs_form_a_tree_and_are_measured(lay_out):
    project = lay_out()
    release = sf.open(project).release(Tree(table="t", columns=["a", "b", "c", "d"]), epsilon=5, delta=1e-6)
    edges = pairs(release)
    joined = {name: {name} for name in "abcd"}
    for left, right in edges:
        assert joined[left] is not joined[right], "no pair closes a loop"
        whole = joined[left] | joined[right]
        joined |= dict.fromkeys(whole, whole)
    assert [each.request.columns for each in release.measurements] == [(name,) for name in "abcd"] + edges
    assert ("a", "b") in edges


def test_candidates_never_close_a_loop(lay_out):
    release = sf.open(lay_out()).release(Tree(table="t", columns=["a", "b", "c", "d"]), epsilon=5, delta=1e-6)
    taken = []
    for each in choices(release):
        offered = [gap.columns for gap in each.choice.candidates]
        assert len(set(offered)) == len(offered)
        assert not set(taken) & set(offered)
        taken.append(offered[each.index])


def test_a_chain_is_found(lay_out):
    project = lay_out(make_chain(), columns=CHAIN)
    release = sf.open(project).release(Tree(table="t"), epsilon=5, delta=1e-6)
    assert {frozenset(pair) for pair in pairs(release)} == {
        frozenset(pair) for pair in ("xz", "zv", "vy", "yw")
    }
    rows = {name: release.table[name].to_numpy() for name in "vwxyz"}
    for left, right in ("xz", "zv", "vy", "yw"):
        assert (rows[left] == rows[right]).mean() == pytest.approx(0.8875, abs=0.04)
    # Across two steps of the chain, though no pair of them was measured: 0.85^2 + (1 - 0.85^2) / 4.
    assert (rows["x"] == rows["v"]).mean() == pytest.approx(0.79, abs=0.06)


def test_all_pairs_are_counted_and_large_ones_left_out(lay_out):
    columns = (
        CHAIN + "[tables.t.columns.wide]\nrange = [1, 5000]\n[tables.t.columns.broad]\nrange = [1, 5000]\n"
    )
    table = read_project(lay_out(columns=columns)).table("t")
    plan = Tree(table="t").plan(table, epsilons=(Fraction(1),), delta=Fraction(1, 10**6))
    assert ("v", "wide") in plan.marginals
    assert ("wide", "broad") not in plan.marginals
    assert len(plan.marginals) == 7 + 20


def test_every_answer_but_choices_is_a_measurement_and_the_model_is_kept(lay_out):
    release = sf.open(lay_out()).release(Tree(table="t"), epsilon=1, delta=1e-6)
    assert all(isinstance(each, (Measurement, Chosen)) for each in release.answers)
    (model,) = unpack_models(release.files["model.parquet"]).values()
    (facts,) = release.certificate["postprocessing"]["models"]
    assert [tuple(clique) for clique in facts["cliques"]] == list(model.tree.cliques)
    assert max(map(len, model.tree.cliques)) == 2
    assert facts["rows"] == release.table.num_rows == round(model.total)


def test_a_tree_with_next_to_no_noise_is_released(lay_out, seeded_noise):
    project = lay_out(budget=10_000)
    rows = sf.open(project).release(Tree(table="t", columns=["a", "b"]), epsilon=2000, delta=1e-6).table
    assert (rows["a"].to_numpy() == rows["b"].to_numpy()).mean() > 0.98
