"""Likelihood ratios, computed in rationals from the thresholds: never above e^epsilon, and close to it."""

from decimal import Context, Decimal
from fractions import Fraction
from itertools import combinations, product
from math import comb

import numpy as np
import pytest

import sfumato.local.categories as categories_module
from sfumato.core.errors import RecipeError
from sfumato.local import (
    CoinResponse,
    DuchiMean,
    HadamardResponse,
    LaplaceMean,
    LocalHashing,
    PiecewiseMean,
    RandomizedResponse,
    Rappor,
    SubsetSelection,
    UnaryEncoding,
    means,
)
from sfumato.local.draws import WORDS, lie_threshold, log_above, power_above, scaled_exp, weigh_threshold
from sfumato.local.means import STEPS

EPSILONS = ["1e-6", "0.1", "1", "3", "10", "50"]
PRECISE = Context(prec=120)


def e_to(epsilon):
    """e^epsilon to 100 digits, as a rational."""
    number = PRECISE.divide(Decimal(Fraction(epsilon).numerator), Decimal(Fraction(epsilon).denominator))
    return Fraction(PRECISE.exp(number))


def logarithm(ratio):
    return PRECISE.ln(PRECISE.divide(Decimal(ratio.numerator), Decimal(ratio.denominator)))


def worst_ratio(laws):
    """The largest ratio of chances of one answer under any two of the laws; None if it is infinite."""
    answers = set().union(*laws)
    worst = Fraction(1)
    for answer in answers:
        chances = [law.get(answer, Fraction(0)) for law in laws]
        if max(chances) > 0:
            if min(chances) == 0:
                return None
            worst = max(worst, max(chances) / min(chances))
    return worst


def coins(chances):
    """The law of independent bits that are on with these chances."""
    law = {}
    for bits in product((0, 1), repeat=len(chances)):
        chance = Fraction(1)
        for bit, on in zip(bits, chances, strict=True):
            chance *= on if bit else 1 - on
        law[bits] = chance
    return law


def krr_laws(mechanism):
    lie, k = Fraction(mechanism.lie, WORDS), mechanism.categories
    return [{a: 1 - (k - 1) * lie if a == v else lie for a in range(k)} for v in range(k)]


def unary_laws(mechanism):
    miss = Fraction(mechanism.lie, WORDS)
    hit = Fraction(1, 2) if mechanism.flips == "optimized" else 1 - miss
    k = mechanism.categories
    return [coins([hit if bit == v else miss for bit in range(k)]) for v in range(k)]


def olh_laws(mechanism):
    g, digits = mechanism.hash_size, mechanism.digits
    inner = krr_laws(RandomizedResponse(epsilon=mechanism.epsilon, categories=g))
    laws = []
    for v in range(mechanism.categories):
        law = {}
        for member in range(mechanism.members):
            place = sum((member // g**i % g) * (v // g**i % g) for i in range(digits)) % g
            for answer, chance in inner[place].items():
                law[member * g + answer] = chance / mechanism.members
        laws.append(law)
    return laws


def hadamard_laws(mechanism):
    lie = Fraction(mechanism.lie, WORDS)
    laws = []
    for v in range(mechanism.categories):
        law = {}
        for row in range(mechanism.members):
            sign = (row & v).bit_count() & 1
            law[2 * row + sign] = (1 - lie) / mechanism.members
            law[2 * row + 1 - sign] = lie / mechanism.members
        laws.append(law)
    return laws


def subset_laws(mechanism):
    inside, k, size = Fraction(mechanism.inside, WORDS), mechanism.categories, mechanism.subset_size
    sets = [frozenset(each) for each in combinations(range(k), size)]
    own, other = inside / comb(k - 1, size - 1), (1 - inside) / comb(k - 1, size)
    return [{each: own if v in each else other for each in sets} for v in range(k)]


def coin_laws(mechanism):
    yes, no = mechanism.false_yes, mechanism.false_no
    return [{1: yes, 0: 1 - yes}, {1: 1 - no, 0: no}]


def duchi_laws(mechanism):
    places = (0, 1, STEPS // 3, STEPS - 1, STEPS)
    import numpy as np

    highs = [Fraction(int(t), WORDS) for t in mechanism.threshold(np.array(places))]
    return [{1: high, 0: 1 - high} for high in highs]


def permanent_laws(mechanism):
    flip = Fraction(mechanism.flip, WORDS)
    k = mechanism.categories
    return [coins([1 - flip if bit == v else flip for bit in range(k)]) for v in range(k)]


def report_laws(mechanism):
    """One report, summed over all permanent responses it may come from."""
    on, off = Fraction(mechanism.on_if_on, WORDS), Fraction(mechanism.on_if_off, WORDS)
    laws = []
    for permanent in permanent_laws(mechanism):
        law = {}
        for bits, chance in permanent.items():
            for report, given in coins([on if bit else off for bit in bits]).items():
                law[report] = law.get(report, Fraction(0)) + chance * given
        laws.append(law)
    return laws


CASES = [
    (krr_laws, lambda e: RandomizedResponse(epsilon=e)),
    (krr_laws, lambda e: RandomizedResponse(epsilon=e, categories=7)),
    (unary_laws, lambda e: UnaryEncoding(epsilon=e, categories=4)),
    (unary_laws, lambda e: UnaryEncoding(epsilon=e, categories=4, flips="symmetric")),
    (olh_laws, lambda e: LocalHashing(epsilon=e, categories=6, hash_size=3)),
    (hadamard_laws, lambda e: HadamardResponse(epsilon=e, categories=5)),
    (subset_laws, lambda e: SubsetSelection(epsilon=e, categories=7)),
    (subset_laws, lambda e: SubsetSelection(epsilon=e, categories=7, subset_size=3)),
    (duchi_laws, lambda e: DuchiMean(epsilon=e, low=0, high=1)),
    (permanent_laws, lambda e: Rappor(epsilon=e, categories=3)),
]


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize(("laws", "make"), CASES)
def test_no_ratio_is_above_e_to_epsilon_and_the_worst_is_the_stated_one(laws, make, epsilon):
    mechanism = make(epsilon)
    found = laws(mechanism)
    assert all(sum(law.values()) == 1 for law in found)
    assert worst_ratio(found) == mechanism.likelihood_ratio
    assert mechanism.likelihood_ratio <= e_to(epsilon)
    assert mechanism.exact_epsilon <= mechanism.epsilon == Fraction(epsilon)
    assert logarithm(mechanism.likelihood_ratio) <= Decimal(float(mechanism.exact_epsilon)) + Decimal("1e-14")


@pytest.mark.parametrize("epsilon", EPSILONS[:-1])
@pytest.mark.parametrize(("laws", "make"), CASES)
def test_the_ratio_is_tight_up_to_one_unit_of_a_word(laws, make, epsilon):
    mechanism = make(epsilon)
    # One word more or less moves a chance by 2^-64, and the ratio by that over the least chance, squared.
    assert mechanism.exact_epsilon > Fraction(epsilon) * (1 - Fraction(1, 10**10)) - Fraction(1, 10**12)


def test_beyond_what_words_can_tell_less_is_delivered_and_said():
    mechanism = RandomizedResponse(epsilon=50)
    assert mechanism.lie == 1
    assert mechanism.likelihood_ratio == WORDS - 1
    assert 44 < mechanism.exact_epsilon < 45


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_both_levels_of_rappor(epsilon):
    whole, single = Fraction(epsilon), Fraction(epsilon) / 4
    made = Rappor(epsilon=whole, report_epsilon=single, categories=3)
    assert made.likelihood_ratio <= e_to(whole)
    assert made.report_likelihood_ratio <= e_to(single)
    assert made.exact_report_epsilon <= single
    if epsilon != "50":
        assert made.exact_report_epsilon > single * (1 - Fraction(1, 10**10)) - Fraction(1, 10**12)


@pytest.mark.parametrize("rates", [None, ("1/2", "1/2", "3/4"), ("1/3", "0.1", "0.8")])
def test_a_report_of_basic_rappor_has_the_stated_ratio(rates):
    if rates is None:
        mechanism = Rappor(epsilon=4, report_epsilon=1, categories=3)
    else:
        mechanism = Rappor(categories=3, rates=rates)
    assert worst_ratio(permanent_laws(mechanism)) == mechanism.likelihood_ratio
    assert worst_ratio(report_laws(mechanism)) == mechanism.report_likelihood_ratio
    assert mechanism.exact_report_epsilon <= mechanism.report_epsilon < mechanism.epsilon


def test_the_rates_of_the_paper_have_the_epsilons_of_the_paper():
    mechanism = Rappor(categories=3, rates=("1/2", "1/2", "3/4"))
    assert mechanism.likelihood_ratio == 9  # epsilon = 2 ln 3
    q_star, p_star = Fraction(11, 16), Fraction(9, 16)
    assert (mechanism.hit, mechanism.miss) == (q_star, p_star)
    assert mechanism.report_likelihood_ratio == q_star * (1 - p_star) / (p_star * (1 - q_star))


def test_control_a_client_that_never_switches_a_true_bit_off_is_caught():
    mechanism = Rappor(epsilon=4, report_epsilon=1, categories=3)
    flip = Fraction(mechanism.flip, WORDS)
    broken = [coins([Fraction(1) if bit == v else flip for bit in range(3)]) for v in range(3)]
    assert worst_ratio(broken) is None


def test_control_thresholds_to_the_nearest_violate():
    violations = 0
    for tenths in range(1, 60):
        epsilon = Fraction(tenths, 10)
        nearest = round(WORDS / (e_to(epsilon) + 1))
        violations += Fraction(WORDS - nearest, nearest) > e_to(epsilon)
        assert lie_threshold(epsilon, 1) in (nearest, nearest + 1)
    assert violations > 10


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_the_window_of_the_piecewise_law(epsilon):
    mechanism = PiecewiseMean(epsilon=epsilon, low=0, high=1)
    inside = Fraction(mechanism.inside, WORDS) / mechanism.window
    outside = (1 - Fraction(mechanism.inside, WORDS)) / STEPS
    assert inside / outside == mechanism.likelihood_ratio <= e_to(epsilon)
    assert mechanism.exact_epsilon > Fraction(epsilon) * (1 - Fraction(1, 10**6))


def test_the_coin_is_ln_3_exactly():
    mechanism = CoinResponse()
    assert worst_ratio(coin_laws(mechanism)) == mechanism.likelihood_ratio == 3
    assert mechanism.epsilon == mechanism.exact_epsilon
    assert abs(Fraction(mechanism.epsilon) - Fraction(logarithm(Fraction(3)))) < Fraction(1, 10**29)


@pytest.mark.parametrize("truth", ["1/3", "0.9", "0.001"])
@pytest.mark.parametrize("yes", ["1/7", "1/2", "0.99"])
def test_biased_coins_are_rounded_toward_privacy(truth, yes):
    mechanism = CoinResponse(truth=truth, yes=yes)
    assert worst_ratio(coin_laws(mechanism)) == mechanism.likelihood_ratio
    assert mechanism.exact_epsilon <= mechanism.epsilon
    lies = (1 - Fraction(truth)) * (1 - Fraction(yes)), (1 - Fraction(truth)) * Fraction(yes)
    assert mechanism.likelihood_ratio <= max((1 - lies[0]) / lies[1], (1 - lies[1]) / lies[0])


def test_laplace_noise_is_exact():
    mechanism = LaplaceMean(epsilon="0.3", low=0, high=9)
    assert STEPS / mechanism.law.scale == mechanism.exact_epsilon == Fraction(3, 10)
    assert e_to("0.3") <= mechanism.likelihood_ratio < e_to("0.3") * (1 + Fraction(1, 1 << 100))


@pytest.mark.parametrize("ratio", [Fraction(3), Fraction(10**40 + 1, 10**40), Fraction(WORDS - 1)])
def test_logarithms_are_rounded_up(ratio):
    found = log_above(ratio)
    true = Fraction(logarithm(ratio))
    assert true <= found <= true + Fraction(2, 10**30)
    assert log_above(Fraction(1)) == 0


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("sizes", [(1, 1), (5, 1000), (1 << 24, 3)])
def test_shares_inside_and_outside(epsilon, sizes):
    inside, outside = sizes
    threshold = weigh_threshold(Fraction(epsilon), inside, outside)
    assert Fraction(threshold, inside) <= e_to(epsilon) * Fraction(WORDS - threshold, outside)
    if threshold < WORDS - 1:
        above = threshold + 1
        assert Fraction(above, inside) > e_to(epsilon) * Fraction(WORDS - above, outside)


def test_small_exponentials():
    assert scaled_exp(Fraction(50), STEPS) == 1
    assert abs(scaled_exp(Fraction(1, 2), STEPS) - STEPS / e_to("0.5")) <= Fraction(1, 2)
    assert power_above(Fraction(1)) >= e_to(1)


def test_an_epsilon_that_words_cannot_tell_from_zero_is_refused():
    with pytest.raises(RecipeError, match="too small"):
        RandomizedResponse(epsilon="1e-12", categories=1_000_000)


def piecewise_laws(mechanism, steps, monkeypatch):
    """The law of every place, by drawing each choice of a cell inside and outside once."""
    laws = []
    share = Fraction(mechanism.inside, WORDS)
    for place in range(steps + 1):
        law = {}
        for inside, size, weight in ((True, mechanism.window, share), (False, steps, 1 - share)):

            def enumerate_all(bound, count, source, *, wanted=size):
                assert bound in (mechanism.window, steps)
                return (np.arange(count) if bound == wanted else np.zeros(count)).astype(np.uint64)

            with monkeypatch.context() as patch:
                patch.setattr(means, "draw_uniform", enumerate_all)
                patch.setattr(
                    means, "draw_events", lambda t, count, source, side=inside: np.full(count, side)
                )
                cells = mechanism._draw(np.full(size, place, np.int64), None)
            for cell in cells.tolist():
                law[cell] = law.get(cell, Fraction(0)) + weight / size
        laws.append(law)
    return laws


@pytest.mark.parametrize("steps", [7, 16])
@pytest.mark.parametrize("epsilon", ["0.5", "1", "3"])
def test_the_piecewise_law_is_exact_at_the_edges_of_its_window(monkeypatch, epsilon, steps):
    monkeypatch.setattr(means, "STEPS", steps)
    mechanism = PiecewiseMean(epsilon=epsilon, low=0, high=1)
    assert mechanism.window != steps
    laws = piecewise_laws(mechanism, steps, monkeypatch)
    inside = Fraction(mechanism.inside, WORDS) / mechanism.window
    outside = (1 - Fraction(mechanism.inside, WORDS)) / steps
    for place, law in enumerate(laws):
        assert law == {
            cell: inside if place <= cell < place + mechanism.window else outside
            for cell in range(steps + mechanism.window)
        }
    assert worst_ratio(laws) == mechanism.likelihood_ratio <= e_to(epsilon)


@pytest.mark.parametrize("place", [0, 1, STEPS // 2, STEPS - 1, STEPS])
def test_cells_outside_begin_where_the_window_ends(scripted_draws, place):
    mechanism = PiecewiseMean(epsilon=1, low=0, high=1)
    far = [each for each in (place - 1, place, STEPS - 1, 0) if 0 <= each < STEPS]
    cells = scripted_draws(mechanism, place, far=far)
    window = range(place, place + mechanism.window)
    assert not any(cell in window for cell in cells)
    assert cells == [each if each < place else each + mechanism.window for each in far]


@pytest.fixture
def scripted_draws(monkeypatch):
    """What answers with given choices of cells outside the window."""

    def draw(mechanism, place, *, far):
        words = {mechanism.window: np.zeros(len(far), np.uint64), STEPS: np.array(far, np.uint64)}
        monkeypatch.setattr(means, "draw_uniform", lambda bound, count, source: words[bound])
        monkeypatch.setattr(means, "draw_events", lambda *_: np.zeros(len(far), bool))
        return mechanism._draw(np.full(len(far), place, np.int64), None).tolist()

    return draw


@pytest.mark.parametrize(("categories", "size"), [(5, 1), (5, 2), (6, 3), (5, 4)])
@pytest.mark.parametrize("value", [0, 2, 4])
def test_every_set_of_the_others_is_drawn_equally_often(monkeypatch, categories, size, value):
    """Each sequence of uniform draws once, on either side of the threshold: the sets have the stated law."""
    mechanism = SubsetSelection(epsilon=1, categories=categories, subset_size=size)
    inside = Fraction(mechanism.inside, WORDS)
    law = {}
    for truly, weight in ((True, inside), (False, 1 - inside)):
        bounds = range(categories - 1 - size + truly + 1, categories)
        sequences = np.array(list(product(*(range(bound) for bound in bounds))), np.uint64)
        turns = iter(bounds)

        def draw(bound, count, source, *, each=sequences, left=turns, all_bounds=bounds):
            if count == 0:
                return np.empty(0, np.uint64)
            assert bound == next(left)
            return each[:, bound - all_bounds[0]].copy()

        with monkeypatch.context() as patch:
            patch.setattr(categories_module, "draw_uniform", draw)
            patch.setattr(categories_module, "draw_events", lambda t, n, source, side=truly: np.full(n, side))
            rows = mechanism._draw(np.full(len(sequences), value), None)
        assert (rows.sum(axis=1) == size).all()
        for row in rows:
            answer = frozenset(np.flatnonzero(row).tolist())
            law[answer] = law.get(answer, Fraction(0)) + weight / len(sequences)
    assert law == subset_laws(mechanism)[value]
