"""Sampled runs: their law against an independent one, both orders of neighbours, and planted faults."""

import math
import sys
import types
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from sfumato.accounting import Budget, Cost, Spent, add_costs, admits, mu_to_delta, sampled_delta
from sfumato.core.cost import sampling
from sfumato.core.errors import RecipeError

SOURCE = Path(sampling.__file__).read_text(encoding="utf-8")
RUNS = [
    (1.0, Fraction(1, 100), 3),
    (0.8, Fraction(1, 20), 7),
    (2.0, Fraction(1, 4), 30),
    (4.0, Fraction(1, 2), 24),
]
# delta at epsilon 1 and 3 by dp_accounting's PLD accountant; benchmarks/network.py measures them.
MEASURED = {
    (1.0, Fraction(1, 100), 1000): (0.002612, 9.223e-10),
    (2.8, Fraction(1, 8), 200): (0.02876, 2.869e-06),
    (5.0, Fraction(1, 2), 60): (0.05798, 6.100e-05),
    (1.1, Fraction(1, 100), 10000): (0.1733, 0.005968),
    (1.5, Fraction(1, 8), 50): (0.03217, 2.467e-05),
}


def lower_delta(epsilon, sigma, rate, count, *, removed, step=2e-4):
    """delta from below: losses of both laws on a fine grid, rounded down, added up by Fourier transform."""
    q, m = float(rate), 1 / sigma
    places = np.linspace(-9, 9 + m, 400_001)
    middles = (places[1:] + places[:-1]) / 2
    density = np.exp(-(middles**2) / 2) / math.sqrt(2 * math.pi) * (places[1] - places[0])
    ratio = 1 - q + q * np.exp(m * middles - m * m / 2)
    losses, masses = (np.log(ratio), density * ratio) if removed else (-np.log(ratio), density)
    bins = np.floor(losses / step).astype(int)
    low = int(bins.min())
    law = np.bincount(bins - low, weights=masses)
    size = 1 << (count * law.size).bit_length()
    total = np.fft.irfft(np.fft.rfft(law, size) ** count, size)
    at = (np.arange(size) + count * low) * step
    above = at > epsilon
    return float((total[above] * -np.expm1(epsilon - at[above])).sum())


def one_step_delta(epsilon, sigma, rate):
    """delta of one step, from the two tails beyond the outcome whose loss is epsilon; rounded down."""
    q, m = float(rate), 1 / sigma
    place = math.log(math.expm1(epsilon) / q + 1) / m + m / 2
    present, without = (math.erfc((place - mean) / math.sqrt(2)) / 2 for mean in (m, 0))
    return (q * present - (math.expm1(epsilon) + q) * without) * (1 - 1e-9)


def check(module, sigma, rate, count):
    """The stated deltas bound those from below, and the stated mu covers the whole curve."""
    run = module.SampledRun(sigma=sigma, sampling=rate, count=count)
    failure = 1e-6
    mu = run.mu(failure=failure)
    for epsilon in (0.05, 0.3, 1.0, 2.0):
        true = max(lower_delta(epsilon, sigma, rate, count, removed=each) for each in (True, False))
        stated = run.delta(epsilon)
        assert stated >= true
        if true > 1e-6:
            assert stated <= true * 1.1
        assert (1 - failure) * mu_to_delta(mu, epsilon) + failure >= true
    # On a grid of twice the step the law tells at least as much; between its points it is a line over e^x.
    for order in ("removed", "added"):
        law, _ = module._one_step(sigma, rate, order)
        (losses, deltas), (places, coarse) = law.deltas(), law.coarsen().deltas()
        assert (np.interp(np.exp(losses), np.exp(places), coarse) >= deltas * (1 - 1e-9)).all()
    # Beyond the last loss of the grid there is a tail, which a smaller failure must not hide.
    tiny = 1e-30
    mu = module.SampledRun(sigma=sigma, sampling=rate, count=1).mu(failure=tiny)
    for epsilon in (3, 5, 6, 8):
        assert (1 - tiny) * mu_to_delta(mu, epsilon) + tiny >= one_step_delta(epsilon, sigma, rate)


def check_all(module):
    for run in RUNS:
        check(module, *run)


def test_the_law_of_a_run_bounds_both_orders_and_is_close():
    check_all(sampling)


def test_both_orders_differ_and_neither_is_the_larger_everywhere():
    larger = [
        lower_delta(each, 0.8, Fraction(1, 4), 1, removed=True)
        > lower_delta(each, 0.8, Fraction(1, 4), 1, removed=False)
        for each in (0.05, 1.0)
    ]
    assert any(larger)
    run = sampling.SampledRun(sigma=0.8, sampling=Fraction(1, 4), count=1)
    assert run._curve("removed")[1].tolist() != run._curve("added")[1].tolist()


FAULTS = {
    "one order only": ('for order in ("removed", "added"):\n', 'for order in ("added",):\n'),
    "one order of spans only": (
        'for order in ("removed", "added") for span',
        'for order in ("added",) for span',
    ),
    "one step for all": ("left = count\n", "left = 1\n"),
    "coarser without weights": (
        "split / (1 + math.exp(-self.step))",
        "split / (1 + math.exp(4 * self.step))",
    ),
    "rounded down": ("masses[1:] += upper", "masses[:-1] += upper"),
    "half the rate": ("math.nextafter(float(sampling), 1.0), 1 / sigma", "float(sampling) / 2, 1 / sigma"),
    "twice the noise": ("math.nextafter(float(sampling), 1.0), 1 / sigma", "float(sampling), 0.5 / sigma"),
    "failure forgotten": ("_covers(mu, failure, *span)", "_covers(mu, 0.01, *span)"),
    "coarser towards smaller losses": (
        "math.exp(-self.step))\n        kept[:-1] += split / (1 + math.exp(self.step))",
        "math.exp(self.step))\n        kept[:-1] += split / (1 + math.exp(-self.step))",
    ),
    "no tail": ("[1][-1] > failure for order", "[1][-1] > 1 for order"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_faults_are_noticed(name, monkeypatch):
    old, new = FAULTS[name]
    assert SOURCE.count(old) == 1
    broken = types.ModuleType("broken_sampling")
    monkeypatch.setitem(sys.modules, broken.__name__, broken)  # where dataclasses look for it
    exec(compile(SOURCE.replace(old, new), "broken", "exec"), broken.__dict__)
    with pytest.raises(AssertionError):
        check_all(broken)


@pytest.mark.parametrize("run", MEASURED)
def test_figures_of_a_peer(run):
    for epsilon, measured in zip((1, 3), MEASURED[run], strict=True):
        stated = sampled_delta(epsilon=epsilon, sigma=run[0], sampling=run[1], count=run[2])
        assert measured * 0.999 < stated < measured * 1.03


def test_without_a_failure_sampling_gains_nothing_and_never_costs_more():
    plain = Cost(kind="gaussian", scale=Fraction(40), sensitivity=Fraction(10), count=50)
    facts = {"kind": "sampled", "scale": Fraction(40), "sensitivity": Fraction(10), "count": 50}
    whole = Cost(**facts, sampling=Fraction(1, 4))
    assert (whole.mu_squared, whole.rho) == (plain.mu_squared, plain.rho)
    run = Cost(**facts, sampling=Fraction(1, 4), delta=Fraction(1, 10**9))
    assert run.mu_squared < plain.mu_squared / 10
    assert 0 <= run.rho - run.mu_squared / 2 < Fraction(1, 10**18)  # of the law that does not fail, both
    assert run.failure == 50 * run.delta
    assert run.epsilon is None


def test_a_failure_that_explains_everything_still_costs_something():
    run = sampling.SampledRun(sigma=50.0, sampling=Fraction(1, 100), count=1)
    assert 0 < run.mu(failure=0.5) < 1e-5


def test_a_run_is_recorded_and_read_and_others_are_as_before():
    run = Cost(kind="sampled", scale=Fraction(9), sampling=Fraction(1, 3), delta=Fraction(1, 10**9), count=7)
    assert Cost.from_record(run.to_record()) == run
    assert "sampling" not in Cost(kind="gaussian", scale=Fraction(9)).to_record()
    with pytest.raises(RecipeError):
        Cost.from_record({**Cost(kind="gaussian", scale=Fraction(9)).to_record(), "sampling": "1"})


@pytest.mark.parametrize(
    "wrong",
    [
        {"sampling": 1},
        {"sampling": Fraction(1, 2000)},
        {"neighbours": "replace"},
        {"delta": 1},
        {"count": 10**6},
        {"kind": "gaussian"},
    ],
)
def test_what_is_not_proved_is_refused(wrong):
    with pytest.raises(RecipeError):
        Cost(**{"kind": "sampled", "scale": Fraction(9), "sampling": Fraction(1, 3), **wrong})


def test_a_ledger_pays_a_run_as_a_whole_beside_other_charges():
    facts = {"kind": "sampled", "sampling": Fraction(1, 8), "count": 100, "delta": Fraction(1, 10**9)}
    run = Cost(**facts, scale=Fraction(2200), sensitivity=Fraction(1000))
    budget = Budget(3, "1e-5")
    assert admits(budget, Spent(), [run])
    # A hundred runs of one step each would cost far more than the run.
    steps = [Cost(**{**facts, "count": 1}, scale=Fraction(2200), sensitivity=Fraction(1000))] * 100
    assert not admits(budget, Spent(), steps)
    spent = add_costs(Spent(), [run])
    assert spent.delta == run.failure
    assert admits(budget, spent, [Cost(kind="gaussian", scale=Fraction(10))])
    assert not admits(budget, spent, [run])
    assert not admits(Budget(3), Spent(), [run])
    assert not admits(Budget(3, run.failure / 2), Spent(), [run])
    # Failures beyond what a budget keeps for them are refused.
    failing = Cost(**{**facts, "delta": Fraction(1, 10**8)}, scale=Fraction(9000), sensitivity=Fraction(1000))
    assert not admits(budget, Spent(), [failing])
