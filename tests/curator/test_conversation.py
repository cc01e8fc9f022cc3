"""Recipes that ask, look, and ask again: held to their charge, kept on the way, finished once."""

import os
import subprocess
import sys
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import sfumato as sf
import sfumato.core.noise
from helpers.asking import converse
from sfumato.accounting import Cost, Spent, add_costs
from sfumato.core.engine.statements import StatementEngine
from sfumato.core.errors import ChargeKept
from sfumato.core.facts.project import read_project
from sfumato.core.facts.table import parse_table
from sfumato.core.questions import choices
from sfumato.core.questions.choices import Candidate, Choice, Chosen, NormChoice, measure_distance
from sfumato.core.questions.counts import Marginal
from sfumato.core.questions.measurement import Measurement, Request, ask_cost
from sfumato.recipes.base import Plan, Product, follow_recipe
from sfumato.release.folder import append_answers

TESTS = Path(__file__).resolve().parents[1]


def spent(project):
    return sf.open(project).budget().spent


def charges(project):
    return [entry for entry in sf.open(project).budget().entries if entry.kind == "charge"]


class Stopped(Exception):
    """What a test raises in place of a crash."""


def stop_after(probe, monkeypatch, batch):
    def stop(number):
        if number == batch:
            raise Stopped

    monkeypatch.setattr(probe, "HOOK", stop)


def test_an_adaptive_release_is_charged_once_and_verifies(project, probe):
    out = project.parent / "out"
    stages = []
    release = sf.open(project).release(probe.Probe(table="t"), epsilon=1, out=out, progress=stages.append)
    assert spent(project) == 1
    assert len(charges(project)) == 1
    assert [type(answer) for answer in release.answers] == [
        Measurement,
        Chosen,
        Measurement,
        Chosen,
        Measurement,
    ]
    assert len(release.measurements) == 3
    assert not release.repeated
    assert not release.resumed
    assert sorted(path.name for path in out.iterdir()) == sorted(release.files)
    assert "model.parquet" in release.files
    certificate = release.certificate
    assert certificate["postprocessing"] == {"rounds": 2, "mode": "honest"}
    assert certificate["total"]["epsilon"] == "1"
    assert [each["name"] for each in certificate["measurements"]][:2] == ["by region", "choice 0"]
    assert certificate["measurements"][1]["candidates"] == 2
    assert certificate["measurements"][1]["kind"] == "exponential"
    assert certificate["plan"]["allowance"][0]["kind"] == "pure"
    assert any(stage.startswith("measuring") for stage in stages)
    result = sf.verify(out, ledger=project.parent / "ledger.db")
    assert any("model.parquet" in line for line in result.checked)


def test_the_same_adaptive_plan_is_answered_from_the_ledger(project, probe):
    first = sf.open(project).release(probe.Probe(table="t"), epsilon=1)
    second = sf.open(project).release(probe.Probe(table="t"), epsilon=1)
    assert second.repeated
    assert not second.resumed
    assert second.files == first.files
    assert spent(project) == 1


def test_norms_are_chosen_and_enforced(project, probe):
    out = project.parent / "out"
    recipe = probe.Probe(table="t", mode="norms")
    release = sf.open(project).release(recipe, epsilon=1, delta=1e-9, out=out)
    choice, clipped, plain = release.answers
    assert isinstance(choice.choice, NormChoice)
    assert clipped.grid == 2**20
    assert plain.grid == 1
    told = release.certificate["measurements"]
    assert told[0]["candidates"] == 3
    assert told[1]["contribution_norm"] == str(choice.choice.norms[choice.index])
    sf.verify(out, ledger=project.parent / "ledger.db")


@pytest.mark.parametrize(
    ("mode", "words"),
    [
        ("greedy", "more than its plan charges"),
        ("foreign", "columns that its plan does not name"),
        ("twice", "asked 'round 0"),
        ("bad estimate", "12 whole numbers"),
        ("empty", "no questions"),
        ("silent", "asked nothing"),
    ],
)
def test_a_recipe_that_breaks_its_plan_is_refused(project, probe, monkeypatch, mode, words):
    def first_of_two(scores, *, rate):
        return np.array([0])

    monkeypatch.setattr("sfumato.core.noise.exponential_choice", first_of_two)
    with pytest.raises(sf.RecipeError, match=words):
        sf.open(project).release(probe.Probe(table="t", mode=mode), epsilon=1)
    assert spent(project) == 1, "the charge is kept"


def test_a_refused_batch_draws_no_noise(project, probe, monkeypatch):
    drawn = []
    original = sfumato.core.noise.add_noise

    def count_draws(values, **options):
        drawn.append(values.size)
        return original(values, **options)

    monkeypatch.setattr("sfumato.core.noise.add_noise", count_draws)
    with pytest.raises(sf.RecipeError):
        sf.open(project).release(probe.Probe(table="t", mode="greedy"), epsilon=1)
    assert len(drawn) == 3


class Listed:
    """A recipe that asks what it is given, in batches."""

    kind, table = "listed", "t"

    def __init__(self, batches):
        self.batches = batches

    def to_record(self):
        return {"recipe": self.kind}

    def run(self, plan, *, progress):
        for batch in self.batches:
            _ = yield batch
        return Product(table=pa.table({"count": [1]}))


def give_zeros(asks):
    return tuple(
        Measurement(request=ask, noisy_values=np.zeros(3, np.int64))
        if isinstance(ask, Request)
        else Chosen(choice=ask, index=0)
        for ask in asks
    )


PEOPLE = {
    "unit": "person",
    "max_records": 3,
    "source": "t.parquet",
    "columns": {"region": {"values": [*"abc"]}},
}
KINDS = st.tuples(st.sampled_from(["laplace", "gaussian", "choice"]), st.integers(1, 50), st.booleans())


@given(st.lists(KINDS, min_size=1, max_size=8), KINDS)
def test_what_is_planned_is_answered_and_anything_more_is_refused(drawn, more):

    table = parse_table("t", PEOPLE)
    gap = Candidate(columns=("region",), estimate=lambda: np.zeros(3, np.int64))

    def make(name, kind, scale):
        if kind == "choice":
            return Choice(name=name, candidates=(gap,), epsilon=Fraction(1, scale))
        return Request(name=name, counted=Marginal(("region",)), noise=kind, scale=Fraction(scale + 2))

    asks = [make(str(place), kind, scale) for place, (kind, scale, _) in enumerate(drawn)]
    batches = [[]]
    for ask, (_, _, new) in zip(asks, drawn, strict=True):
        if new and batches[-1]:
            batches.append([])
        batches[-1].append(ask)
    batches = [tuple(batch) for batch in batches]
    plan = Plan(
        recipe=Listed(batches),
        table=table,
        requests=(),
        epsilons=(Fraction(1),),
        delta=Fraction(0),
        allowance=tuple(ask_cost(table, ask) for ask in asks),
        counted=(("region",),),
    )
    answers, _ = follow_recipe(plan, answer=give_zeros, progress=lambda _: None)
    assert [answer.ask for answer in answers] == asks

    seen = []

    def watch(batch):
        seen.extend(batch)
        return give_zeros(batch)

    extra = make("more", more[0], more[1])
    with pytest.raises(sf.RecipeError, match="more than its plan charges"):
        follow_recipe(
            replace(plan, recipe=Listed([*batches, (extra,)])), answer=watch, progress=lambda _: None
        )
    assert seen == asks


def test_more_values_than_can_be_kept_are_refused(project):
    table = read_project(project).table("t")
    text = project.read_text().replace("range = [1, 12]", "range = [1, 40000000]")
    project.write_text(text)
    table = read_project(project).table("t")
    asks = tuple(
        Request(name=str(number), counted=Marginal(("month",)), noise="laplace", scale=Fraction(1000))
        for number in range(4)
    )
    plan = Plan(recipe=Listed([asks]), table=table, requests=asks, epsilons=(Fraction(1),), delta=Fraction(0))
    with pytest.raises(sf.RecipeError, match="more than the 134,217,728"):
        follow_recipe(plan, answer=give_zeros, progress=lambda _: None)


@pytest.mark.parametrize("neighbours", ["add-remove", "replace"])
def test_a_choice_is_made_at_the_rate_its_sensitivity_asks_for(project, probe, monkeypatch, neighbours):
    text = project.read_text().replace("max_records = 3", f'max_records = 3\nneighbours = "{neighbours}"')
    project.write_text(text)
    seen = []

    def record(scores, *, rate):
        seen.append((scores, rate))
        return np.zeros(1, np.int64)

    def exact(values, **_):
        return values.copy()

    monkeypatch.setattr("sfumato.core.noise.exponential_choice", record)
    monkeypatch.setattr("sfumato.core.noise.add_noise", exact)
    sf.open(project).release(probe.Probe(table="t", rounds=1), epsilon=3)
    ((scores, rate),) = seen
    assert rate == Fraction(1) / (2 * 3 * (2 if neighbours == "replace" else 1))
    assert scores.tolist() == [[0, 24]], "the known marginal has no gap; of the other, all bounded records"


def test_scores_are_exact_and_held_within_64_bits():
    values = np.array([2**60, 0, 5], np.int64)
    estimate = np.array([-(2**60), 2**60, 7], np.int64)
    assert measure_distance(values, estimate) == 3 * 2**60 + 2
    assert choices._clamp(2**70) == 2**63 - 1
    assert choices._clamp(-(2**70)) == -(2**63)


@pytest.mark.parametrize(("neighbours", "step"), [("add-remove", 9), ("replace", 10)])
def test_a_norm_is_scored_by_its_distance_from_the_quantile(neighbours, step):
    spec = {"source": "t.parquet", "unit": "p", "max_records": 1, "neighbours": neighbours}
    norms = (Fraction(1), Fraction(2))
    choice = NormChoice(
        name="n", columns=("region",), norms=norms, quantile=Fraction(9, 10), epsilon=Fraction(1)
    )
    assert choice.score(np.array([4, 9, 10])) == [-50, 0]
    assert choice.rate(parse_table("t", spec)) == Fraction(1, 2 * step)


@pytest.mark.parametrize("batch", range(5))
def test_an_interrupted_release_is_finished_under_its_charge(project, probe, monkeypatch, batch):
    recipe, out = probe.Probe(table="t"), project.parent / "out"
    stop_after(probe, monkeypatch, batch)
    with pytest.raises(Stopped):
        sf.open(project).release(recipe, epsilon=1, out=out)
    assert [path.name for path in out.iterdir()] == ["resume.json"]
    assert spent(project) == 1
    assert sf.open(project).kept(out) == batch + 1
    assert sf.open(project).check(recipe, epsilon=1).begun
    stop_after(probe, monkeypatch, -1)
    release = sf.open(project).release(recipe, epsilon=1, out=out)
    assert release.resumed
    assert not release.repeated
    assert len(charges(project)) == 1
    assert "resume.json" not in {path.name for path in out.iterdir()}
    sf.verify(out, ledger=project.parent / "ledger.db")
    again = sf.open(project).release(recipe, epsilon=1)
    assert again.repeated
    assert again.files == release.files


def test_what_was_answered_before_the_interrupt_stays(project, probe, monkeypatch):
    recipe, seen = probe.Probe(table="t"), []
    original = sfumato.core.noise.add_noise

    def remember(values, **options):
        noisy = original(values, **options)
        seen.append(noisy.tolist())
        return noisy

    monkeypatch.setattr("sfumato.core.noise.add_noise", remember)
    stop_after(probe, monkeypatch, 2)
    with pytest.raises(Stopped):
        sf.open(project).release(recipe, epsilon=1)
    stop_after(probe, monkeypatch, -1)
    release = sf.open(project).release(recipe, epsilon=1)
    assert len(seen) == 3, "nothing is drawn twice"
    assert [each.noisy_values.tolist() for each in release.measurements] == seen


def test_an_interrupt_while_counting_is_finished_too(project, probe, monkeypatch):

    class Breaking(StatementEngine):
        def count(self, table, marginals, *, occupied=(), progress):
            raise KeyboardInterrupt

    recipe, out = probe.Probe(table="t"), project.parent / "out"
    with monkeypatch.context() as patch:
        patch.setattr("sfumato.servers.project.open_engine", Breaking)
        with pytest.raises(KeyboardInterrupt):
            sf.open(project).release(recipe, epsilon=1, out=out)
    assert sf.open(project).kept(out) == 0
    assert sf.open(project).resume(out).resumed
    assert spent(project) == 1


def test_a_changed_table_is_a_new_charge_and_is_not_resumed(project, probe, monkeypatch, people):
    recipe, out = probe.Probe(table="t"), project.parent / "out"
    stop_after(probe, monkeypatch, 1)
    with pytest.raises(Stopped):
        sf.open(project).release(recipe, epsilon=1, out=out)
    stop_after(probe, monkeypatch, -1)
    pq.write_table(people.slice(1), project.parent / "t.parquet")
    with pytest.raises(sf.ReleaseError, match="Nothing was spent"):
        sf.open(project).resume(out)
    assert spent(project) == 1
    assert not sf.open(project).release(recipe, epsilon=1, out=out).resumed
    assert spent(project) == 2


def test_answers_are_durable_before_they_are_shown(project, probe, monkeypatch):
    from sfumato.accounting import Ledger

    stored = []
    original = Ledger.store_progress

    def slow(self, entry, payload, *, after):
        import time

        time.sleep(0.05)
        original(self, entry, payload, after=after)
        stored.append(payload)

    monkeypatch.setattr(Ledger, "store_progress", slow)
    shown = []

    def show(stage):
        if stage.startswith("measuring"):
            shown.append(len(stored))

    sf.open(project).release(probe.Probe(table="t"), epsilon=1, progress=show)
    assert shown == [2, 4]


def test_an_error_is_raised_after_its_answers_are_durable(project, probe, monkeypatch):
    recipe = probe.Probe(table="t")
    seen = []

    def stop(number):
        raise Stopped

    monkeypatch.setattr(probe, "HOOK", stop)
    try:
        sf.open(project).release(recipe, epsilon=1, out=project.parent / "out")
    except Stopped:
        seen.append(sf.open(project).kept(project.parent / "out"))
    assert seen == [1]


def test_of_two_that_go_on_with_one_charge_only_one_is_heard(project, probe):
    recipe, out = probe.Probe(table="t"), project.parent / "out"
    finished = []

    def overtake(stage):
        # What is shown is durable, so the other goes on from here.
        if stage.startswith("measuring") and not finished:
            finished.append(sf.open(project).release(recipe, epsilon=1))

    with pytest.raises(sf.LedgerError, match="already has an answer"):
        sf.open(project).release(recipe, epsilon=1, out=out, progress=overtake)
    assert finished[0].resumed
    release = sf.open(project).resume(out)
    assert len(charges(project)) == 1
    assert release.files == finished[0].files


def test_a_recipe_that_asks_otherwise_than_before_is_not_finished(project, probe, monkeypatch):
    recipe = probe.Probe(table="t")
    stop_after(probe, monkeypatch, 0)
    with pytest.raises(Stopped):
        sf.open(project).release(recipe, epsilon=1)
    stop_after(probe, monkeypatch, -1)
    original = probe.Probe.request
    monkeypatch.setattr(
        probe.Probe,
        "request",
        lambda self, plan, name, columns, epsilon: original(self, plan, f"new {name}", columns, epsilon),
    )
    with pytest.raises(sf.ReleaseError, match="version"):
        sf.open(project).release(recipe, epsilon=1)
    assert spent(project) == 1


def test_a_release_that_is_to_be_replaced_stays_until_then(project, probe, monkeypatch):
    out = project.parent / "out"
    sf.open(project).release(probe.Probe(table="t"), epsilon=1, out=out)
    before = (out / "table.csv").read_bytes()
    stop_after(probe, monkeypatch, 3)
    with pytest.raises(Stopped):
        sf.open(project).release(probe.Probe(table="t"), epsilon=2, out=out, force=True)
    assert (out / "table.csv").read_bytes() == before
    with pytest.raises(sf.VerificationFailed, match=r"resume\.json"):
        sf.verify(out)
    stop_after(probe, monkeypatch, -1)
    sf.open(project).resume(out)
    assert sf.verify(out, ledger=project.parent / "ledger.db").total["epsilon"] == "2"


def test_a_folder_of_a_begun_release_may_be_replaced(project, probe, monkeypatch):
    out = project.parent / "out"
    stop_after(probe, monkeypatch, 0)
    with pytest.raises(Stopped):
        sf.open(project).release(probe.Probe(table="t"), epsilon=1, out=out)
    with pytest.raises(sf.ReleaseError, match="--resume"):
        sf.verify(out)
    other = sf.recipes.CellCounts(table="t", by=("region",))
    sf.open(project).release(other, epsilon=1, out=out)
    sf.verify(out)


@pytest.mark.parametrize("content", [None, "", "[]", "{}", '{"format": "sfumato resume 1", "recipe": 3}'])
def test_a_folder_that_cannot_be_resumed_says_what_to_do(project, content):
    out = project.parent / "out"
    out.mkdir()
    if content is not None:
        (out / "resume.json").write_text(content)
    with pytest.raises(sf.ReleaseError, match=r"run (the same|`sfumato) release"):
        sf.open(project).resume(out)
    assert not (project.parent / "ledger.db").exists()


def run_command(project, *arguments, signal="None", batch=-1):
    """The command line in a process of its own that knows the probe and sends itself a signal."""
    code = (
        "import os, signal, sys\n"
        f"sys.path.insert(0, {str(TESTS)!r})\n"
        "from helpers import probe_recipe\n"
        "probe_recipe.register()\n"
        "def stop(number):\n"
        f"    if number == {batch}:\n"
        f"        os.kill(os.getpid(), {signal})\n"
        "probe_recipe.HOOK = stop\n"
        "from sfumato.cli import main\n"
        "main()\n"
    )
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        cwd=project.parent,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "NO_COLOR": "1", "COLUMNS": "200"},
    )


@pytest.mark.parametrize(("signal", "code"), [("signal.SIGINT", 130), ("signal.SIGKILL", -9)])
def test_a_stopped_command_is_finished_by_resume(project, probe, signal, code):
    (project.parent / "probe.toml").write_text('recipe = "probe"\ntable = "t"\nepsilon = 1.0\n')
    arguments = ("release", "probe.toml", "--out", "out")
    done = run_command(project, *arguments, signal=signal, batch=2)
    assert done.returncode == code, done.stderr
    if code == 130:
        assert "the charge and 3 measurements are kept" in done.stderr
        assert "sfumato release --resume out\n" in done.stderr
    assert "Traceback" not in done.stderr
    assert spent(project) == 1
    done = run_command(project, "release", "--resume", "out/", "--json")
    assert done.returncode == 0, done.stderr
    assert '"resumed": true' in done.stdout
    assert spent(project) == 1
    sf.verify(project.parent / "out", ledger=project.parent / "ledger.db")
    done = run_command(project, "release", "--resume", "out")
    assert done.returncode == 1
    assert "has no resume.json" in done.stderr
    assert run_command(project, "release", "probe.toml", "--resume", "out").returncode == 2
    assert run_command(project, "release", "--out", "two").returncode == 2
    assert run_command(project, "check", "probe.toml").returncode == 0
    assert "probe" in run_command(project, "budget").stdout


@pytest.mark.parametrize("batches", [1, 2])
def test_a_batch_is_compared_with_its_charge_where_rho_alone_is_known(batches):
    """Gaussian noise this narrow has no epsilon and no mu, so that nothing but rho speaks for it."""

    table = parse_table("t", PEOPLE)
    asks = [
        Request(name=name, counted=Marginal(("region",)), noise="gaussian", scale=Fraction(3, 2))
        for name in "ab"
    ]
    costs = [ask_cost(table, ask) for ask in asks]
    assert [(cost.epsilon, cost.mu_squared) for cost in costs] == [(None, None)] * 2
    plan = Plan(
        recipe=Listed([tuple(asks)] if batches == 1 else [(ask,) for ask in asks]),
        table=table,
        requests=(),
        epsilons=(Fraction(1),),
        delta=Fraction(0),
        allowance=tuple(costs),
        counted=(("region",),),
    )
    answers, _ = follow_recipe(plan, answer=give_zeros, progress=lambda _: None)
    assert len(answers) == 2
    seen = []

    def watch(batch):
        seen.extend(batch)
        return give_zeros(batch)

    with pytest.raises(sf.RecipeError, match="more than its plan charges"):
        follow_recipe(replace(plan, allowance=(costs[0],)), answer=watch, progress=lambda _: None)
    assert len(seen) == batches - 1


DEARER = {
    "Gaussian noise for a pure item": ([("pure", 1), ("filter", "0.15")], [("gaussian", "3.2")]),
    "pure ones larger than their items": ([("pure", 3)] + [("pure", "0.05")] * 100, [("laplace", 3)] * 6),
}


@pytest.mark.parametrize("case", DEARER)
def test_what_is_dearer_is_refused_though_all_sums_are_within_the_charge(case, project, monkeypatch):
    """The filter admits a list of costs, not its sums: docs/proofs/ledger.md has why."""
    charged, asked = DEARER[case]
    table = parse_table("t", PEOPLE)
    unit = table.unit.name
    asks = tuple(
        Request(name=str(place), counted=Marginal(("region",)), noise=noise, scale=Fraction(scale))
        for place, (noise, scale) in enumerate(asked)
    )
    plan = Plan(
        recipe=Listed([asks]),
        table=table,
        requests=(),
        epsilons=(Fraction(1),),
        delta=Fraction(0),
        allowance=tuple(Cost(kind=kind, scale=Fraction(each), unit=unit) for kind, each in charged),
        counted=(("region",),),
    )
    spent = add_costs(Spent(), (ask_cost(table, ask) for ask in asks))
    allowed = add_costs(Spent(), plan.allowance)
    assert spent.rho <= allowed.rho
    assert spent.mu_squared <= allowed.mu_squared
    assert allowed.epsilon is None or spent.epsilon <= allowed.epsilon
    with pytest.raises(sf.RecipeError, match="more than its plan charges"):
        follow_recipe(plan, answer=lambda _: pytest.fail("it was answered"), progress=lambda _: None)
    # The door holds whoever asks to the charge, also one who does not follow the plan.
    conversation = converse(plan, StatementEngine(project.parent))
    monkeypatch.setattr(conversation._records, "read", lambda _: pytest.fail("records were read"))
    with pytest.raises(ChargeKept, match="more is asked than was charged"):
        conversation._answer(asks)


def test_what_is_replayed_is_paid_for_too(project, monkeypatch):
    table = parse_table("t", PEOPLE)
    first, second = (
        Request(name=name, counted=Marginal(("region",)), noise="laplace", scale=Fraction(10))
        for name in "ab"
    )
    plan = Plan(
        recipe=Listed([(first,), (second,)]),
        table=table,
        requests=(),
        epsilons=(Fraction(1),),
        delta=Fraction(0),
        allowance=(ask_cost(table, first),),
        counted=(("region",),),
    )
    kept = append_answers(b"", give_zeros((first,)))
    conversation = converse(plan, StatementEngine(project.parent), kept=kept)
    assert conversation._answer((first,))[0].noisy_values.tolist() == [0, 0, 0]
    monkeypatch.setattr(conversation._records, "read", lambda _: pytest.fail("records were read"))
    with pytest.raises(ChargeKept, match="more is asked than was charged"):
        conversation._answer((second,))


def test_an_allowance_that_is_swapped_for_a_dearer_one_pays_for_nothing(project, monkeypatch):
    """Whoever follows the plan reads what was swapped in; the door has what was charged."""
    table = parse_table("t", PEOPLE)
    cheap, dear = (
        Request(name="a", counted=Marginal(("region",)), noise="laplace", scale=Fraction(scale))
        for scale in (10, 2)
    )
    plan = Plan(
        recipe=Listed([(dear,)]),
        table=table,
        requests=(),
        epsilons=(Fraction(1),),
        delta=Fraction(0),
        allowance=(ask_cost(table, cheap),),
        counted=(("region",),),
    )
    conversation = converse(plan, StatementEngine(project.parent))
    object.__setattr__(plan, "allowance", (ask_cost(table, dear),))
    monkeypatch.setattr(conversation._records, "read", lambda _: pytest.fail("records were read"))
    with pytest.raises(ChargeKept, match="more is asked than was charged"):
        conversation.run()
