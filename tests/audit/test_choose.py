"""Tries to break private choices: exact probabilities of every outcome on neighbouring scores.

For whole scores every law here is a rational function of x = exp(-rate), so at a rational x its likelihood
ratios are exact fractions, and e^epsilon is a power of 1 / x. Where a law sums over all integers, the sum is
cut off far out and what is left is bounded, so that each probability lies between two fractions. Negative
controls show that mechanisms known to be wrong are caught: the exponential mechanism without its factor 2,
noise of half the scale, a sparse vector that noises too little or keeps its threshold.
"""

import itertools
import math
from fractions import Fraction
from functools import cache

import pytest

from sfumato.choose import Terms, noise_scales, split_epsilon

RATIOS = [Fraction(1, 2), Fraction(1, 10), Fraction(97, 100)]


def exponential_law(scores, x):
    weights = [x ** (max(scores) - score) for score in scores]
    return [weight / sum(weights) for weight in weights]


def flip_law(scores, x):
    """a_i times the integral over t in [0, 1] of the product of 1 - a_j t over the others, exactly."""
    heads = [x ** (max(scores) - score) for score in scores]
    law = []
    for index, own in enumerate(heads):
        terms = [Fraction(1)]
        for other, chance in enumerate(heads):
            if other != index:
                longer = [*terms, Fraction(0)]
                for power, coefficient in enumerate(terms):
                    longer[power + 1] -= chance * coefficient
                terms = longer
        law.append(own * sum(each / (power + 1) for power, each in enumerate(terms)))
    return law


def permuted_law(scores, x):
    """The same by its definition: over all orders, the first heads wins."""
    heads = [x ** (max(scores) - score) for score in scores]
    law = [Fraction(0)] * len(scores)
    orders = list(itertools.permutations(range(len(scores))))
    for order in orders:
        reached = Fraction(1, len(orders))
        for index in order:
            law[index] += reached * heads[index]
            reached *= 1 - heads[index]
    return law


def worst(law, one, two, x):
    """The largest likelihood ratio between two vectors of scores, either way."""
    pairs = list(zip(law(one, x), law(two, x), strict=True))
    return max(max(a / b, b / a) for a, b in pairs)


def neighbours(count, *, monotone):
    """All score vectors of `count` candidates in steps of 0 to 4, and what an individual may make of them."""
    moves = (0, 1) if monotone else (-1, 0, 1)
    for scores in itertools.product(range(0, 5, 2), repeat=count):
        for moved in itertools.product(moves, repeat=count):
            yield scores, tuple(score + move for score, move in zip(scores, moved, strict=True))


LAWS = {"exponential": exponential_law, "permute-and-flip": flip_law}


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize(("monotone", "power"), [(False, 2), (True, 1)])
@pytest.mark.parametrize("x", RATIOS)
def test_no_neighbour_moves_a_choice_beyond_its_epsilon(law, monotone, power, x):
    # With a sensitivity of 1 the rate is epsilon / power, so e^epsilon = x^-power.
    for count in (1, 2, 3):
        for one, two in neighbours(count, monotone=monotone):
            assert worst(LAWS[law], one, two, x) <= x**-power


def test_permute_and_flip_attains_its_epsilon():
    for x in RATIOS:
        assert worst(flip_law, (0, 6), (1, 5), x) == x**-2
        assert worst(flip_law, (0, 6), (1, 6), x) == x**-1


def test_the_exponential_mechanism_comes_near_its_epsilon():
    x = Fraction(1, 2)
    assert worst(exponential_law, (0, 60), (1, 59), x) > x**-2 * (1 - Fraction(1, 2**50))
    assert worst(exponential_law, (0, 60), (1, 60), x) > x**-1 * (1 - Fraction(1, 2**50))


@pytest.mark.parametrize("law", LAWS)
def test_the_formula_without_the_factor_two_is_caught(law):
    # exp(epsilon * score / sensitivity), as in the lecture: e^epsilon would be 1 / x.
    x = Fraction(1, 2)
    assert worst(LAWS[law], (0, 14), (1, 13), x) > Fraction(199, 100) * x**-1
    found = [worst(LAWS[law], one, two, x) for one, two in neighbours(3, monotone=False)]
    assert max(found) > x**-1
    allowed = [worst(LAWS[law], one, two, x) for one, two in neighbours(3, monotone=True)]
    assert max(allowed) <= x**-1, "for monotone scores it is right"


def test_the_range_of_the_exponential_mechanism_is_its_epsilon():
    # What its cost in zCDP rests on: the largest ratio over the smallest, monotone or not.
    for monotone, power in ((False, 2), (True, 1)):
        for one, two in neighbours(3, monotone=monotone):
            pairs = zip(exponential_law(one, RATIOS[0]), exponential_law(two, RATIOS[0]), strict=True)
            ratios = [a / b for a, b in pairs]
            assert max(ratios) / min(ratios) <= RATIOS[0] ** -power


def test_permute_and_flip_has_no_such_range():
    x = Fraction(1, 2)
    ratios = [a / b for a, b in zip(flip_law((0, 1, 0), x), flip_law((1, 0, 1), x), strict=True)]
    assert max(ratios) / min(ratios) > x**-2


def test_both_forms_of_permute_and_flip_agree():
    for x in RATIOS:
        for scores in itertools.product(range(3), repeat=4):
            assert flip_law(scores, x) == permuted_law(scores, x)
            assert sum(flip_law(scores, x)) == 1


def test_permute_and_flip_is_never_worse_in_expectation():
    for x in RATIOS:
        for scores in itertools.product(range(5), repeat=3):
            expected = [
                sum(p * score for p, score in zip(law(scores, x), scores, strict=True))
                for law in (flip_law, exponential_law)
            ]
            assert expected[0] >= expected[1]


# --- the largest after discrete Laplace noise, ties broken at random --------------------------------------

REACH = 40


@cache
def laplace_weights(x):
    """P(X = k) for k from -REACH to REACH, and the probability of all the rest."""
    weights = [(1 - x) / (1 + x) * x ** abs(k) for k in range(-REACH, REACH + 1)]
    return weights, 2 * x ** (REACH + 1) / (1 + x)


def laplace_max_law(scores, x):
    """Lower bounds of the probabilities of every index, and how far each may fall short."""
    weights, rest = laplace_weights(x)
    law = [Fraction(0)] * len(scores)
    places = [{k - REACH + score: weight for k, weight in enumerate(weights)} for score in scores]
    below = []
    for own in places:
        total, sums = Fraction(0), {}
        for value in range(-REACH - 9, REACH + 10):
            sums[value] = total
            total += own.get(value, 0)
        below.append(sums)
    for value in range(-REACH - 9, REACH + 10):
        for count in range(1, len(scores) + 1):
            for tied in itertools.combinations(range(len(scores)), count):
                chance = math.prod(
                    places[i].get(value, Fraction(0)) if i in tied else below[i][value]
                    for i in range(len(scores))
                )
                for index in tied:
                    law[index] += chance / count
    return law, rest * len(scores)


@pytest.mark.parametrize("x", [Fraction(1, 2), Fraction(1, 4)])
@pytest.mark.parametrize(("monotone", "power"), [(False, 2), (True, 1)])
def test_the_largest_after_laplace_noise_stays_within_its_epsilon(x, monotone, power):
    limit = x**-power
    worst_seen = Fraction(0)
    for one, two in [*neighbours(2, monotone=monotone), ((0, 2, 2), (1, 2 - power + 1, 3 - power))]:
        (a, slack), (b, _) = laplace_max_law(one, x), laplace_max_law(two, x)
        assert all(abs(sum(law) - 1) <= slack for law in (a, b))
        for p, q in zip(a, b, strict=True):
            assert p <= limit * (q + slack)
            assert q <= limit * (p + slack)
            worst_seen = max(worst_seen, p / (q + slack))
    assert worst_seen > limit * Fraction(6, 10)


def test_laplace_noise_of_half_the_scale_is_caught():
    x = Fraction(1, 4)  # of noise at half the scale that e^epsilon = 1 / x^1 would need
    (a, slack), (b, _) = laplace_max_law((0, 4), x), laplace_max_law((1, 3), x)
    assert a[1] <= 1 <= sum(b) + slack
    assert b[0] > (a[0] + slack) / x


# --- above a threshold ------------------------------------------------------------------------------------


@cache
def transcript_law(queries, transcript, y, z, *, threshold=0):
    """Bounds of the probability of one run's answers: threshold noise with y, noise of answers with z.

    The sum over the threshold's noise is cut at +-REACH; all that is left out weighs at most its tail.
    """
    weights, rest = laplace_weights(y)
    total = Fraction(0)
    for place, weight in enumerate(weights):
        noisy = threshold + place - REACH
        chance = weight
        for value, above in zip(queries, transcript, strict=True):
            reached = tail(noisy - value, z)
            chance *= reached if above else 1 - reached
        total += chance
    return total, total + rest


def tail(k, z):
    """P(X >= k), exactly."""
    return z**k / (1 + z) if k >= 0 else 1 - z ** (1 - k) / (1 + z)


def transcripts(length):
    """All that one run may say about `length` queries: noes, then at most one yes."""
    yield (False,) * length
    for place in range(length):
        yield (False,) * place + (True,)


def runs(*, monotone):
    moves = (0, 1) if monotone else (-1, 0, 1)
    for queries in itertools.product((-1, 0, 2), repeat=3):
        for moved in itertools.product(moves, repeat=3):
            yield queries, tuple(query + move for query, move in zip(queries, moved, strict=True))


def breaks(one, two, y, z, limit):
    """How many transcripts certainly have a ratio above the limit."""
    count = 0
    for transcript in transcripts(3):
        length = len(transcript)
        (low, high), (other_low, other_high) = (
            transcript_law(each[:length], transcript, y, z) for each in (one, two)
        )
        count += (low > limit * other_high) + (other_low > limit * high)
    return count


Y, Z = Fraction(1, 3), Fraction(1, 2)


@pytest.mark.parametrize(("monotone", "limit"), [(False, 1 / (Y * Z**2)), (True, 1 / (Y * Z))])
def test_one_run_above_a_threshold_stays_within_its_epsilon(monotone, limit):
    # y = exp(-e1 / D) and z = exp(-e2 / (2 D)), or exp(-e2 / D) if monotone, so this limit is e^(e1 + e2).
    for one, two in runs(monotone=monotone):
        assert breaks(one, two, Y, Z, limit) == 0


def test_the_scales_are_those_of_the_limit():
    for monotone, factor in ((False, 2), (True, 1)):
        terms = Terms(epsilon=Fraction(3), sensitivity=Fraction(7), monotone=monotone)
        first, second = noise_scales(terms, count=4, grid=1)
        assert 7 / first + factor * 7 / second == Fraction(3, 4)
        assert split_epsilon(Fraction(3, 4), monotone=monotone)[0] == 7 / first


def test_the_limit_above_a_threshold_is_nearly_reached():
    # Many noes that turn into yeses but for the last: the threshold's noise is all that hides them.
    one, two = (0,) * 12 + (-9,), (1,) * 12 + (-10,)
    transcript = (False,) * 12 + (True,)
    (low, _), (_, high) = (transcript_law(each, transcript, Y, Z, threshold=-8) for each in (one, two))
    assert low > high / (Y * Z**2) * Fraction(999, 1000)


def test_answers_with_too_little_noise_are_caught():
    # Scale D / e2 in place of 2 D / e2: fine for monotone queries, and caught for others.
    one, two = (0,) * 12 + (-9,), (1,) * 12 + (-10,)
    transcript = (False,) * 12 + (True,)
    (low, _), (_, high) = (transcript_law(each, transcript, Y, Z, threshold=-8) for each in (one, two))
    assert low > high / (Y * Z)


def test_a_threshold_that_keeps_its_noise_at_this_scale_is_caught():
    # After a yes the same noisy threshold serves the next run, at the answers' noise of a single yes.
    one, two = (-9, -9, -9), (-10, -10, -10)
    answers = (True, True, True)
    (low, _), (_, high) = (transcript_law(each, answers, Y, Z) for each in (one, two))
    assert low > high / Z * Fraction(99, 100), "the second yes costs again"
    (one, two), answers = ((0,) * 8 + (-9, -9), (1,) * 8 + (-10, -10)), (False,) * 8 + (True, True)
    (low, _), (_, high) = (transcript_law(each, answers, Y, Z, threshold=-8) for each in (one, two))
    assert low > high / (Y * Z**2), "more than one run's epsilon"


def test_answers_without_noise_are_caught():
    # With z = 0 an answer is exact given the noisy threshold: two queries that change places betray it.
    tiny = Fraction(1, 10**9)
    (low, _), (_, high) = (transcript_law(each, (False, True), Y, tiny) for each in ((0, 1), (1, 0)))
    assert low > 1000 * high
