"""Choices: certified weights, every rare path by scripted words, and what is refused."""

from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest

from sfumato.core.errors import RecipeError
from sfumato.core.noise import choice, exponential_choice, permute_and_flip
from sfumato.core.noise.choice import _choose

LOW, HIGH = np.iinfo(np.int64).min, np.iinfo(np.int64).max
ONES = (1 << 64) - 1
RATES = [Fraction(1, 3), Fraction(7), Fraction(1, 1000), Fraction(1, 10**6), Fraction("1e-12"), Fraction(400)]


def rows(*scores):
    return np.array(scores, np.int64)


def decimal(number):
    return Decimal(number.numerator) / Decimal(number.denominator)


def boundary(scores, rate, index, bits):
    """The floor of 2^bits times the probability of an index up to `index`, from 200 digits."""
    with localcontext(prec=200):
        weights = [(decimal(rate) * (score - max(scores))).exp() for score in scores]
        return int(sum(weights[: index + 1]) / sum(weights) * (1 << bits))


@pytest.mark.parametrize("rate", RATES)
@pytest.mark.parametrize("bits", [8, 46, 56])
def test_weights_lie_in_their_certified_enclosure(rate, bits):
    generator = np.random.Generator(np.random.PCG64(3))
    reach = min(int(60 / rate) + 2, 1 << 62)
    values = [0, 1, 2, (1 << 14) - 1, 1 << 14, (1 << 28) + 5, 1 << 63, ONES]
    differences = np.array([*values, *generator.integers(0, reach, 200).tolist()], np.uint64)
    weights = choice._weigh(differences[None], choice._build_tables(rate), bits)[0]
    with localcontext(prec=100):
        for difference, weight in zip(differences.tolist(), weights.tolist(), strict=True):
            exact = (-decimal(rate) * difference).exp() * (1 << bits)
            assert weight <= exact < weight + choice._ERROR


def test_products_fall_short_by_less_than_three():
    generator = np.random.Generator(np.random.PCG64(4))
    left, right = generator.integers(0, ONES, size=(2, 5000), dtype=np.uint64, endpoint=True)
    left[:3] = right[:2] = ONES
    for a, b, product in zip(left.tolist(), right.tolist(), choice._multiply(left, right), strict=True):
        assert 0 <= (a * b >> 64) - int(product) <= 2


@pytest.mark.parametrize("rate", RATES)
def test_tables_end_in_a_zero_and_are_read_only(rate):
    for table in choice._build_tables(rate):
        assert table[0] == ONES
        assert table[-1] == 0
        assert table.size <= (1 << choice.DIGIT_BITS) + 1
        with pytest.raises(ValueError, match="read-only"):
            table[0] = 0


@pytest.mark.parametrize("index", [0, 1, 2])
def test_a_word_at_a_boundary_is_extended_until_it_differs(index, scripted):
    scores, rate = [3, 1, 4, 1], Fraction(1, 2)
    exact = boundary(scores, rate, index, 192)
    first, second, third = exact >> 128, exact >> 64 & ONES, exact & ONES
    for last, expected in ((third - 1, index), (third + 1, index + 1)):
        source = scripted([first, second, last])
        assert _choose(rows(scores), rate, source).tolist() == [expected]
        assert source.left == 0


def test_words_beside_a_boundary_need_no_more_bits(scripted):
    scores, rate = [3, 1, 4, 1], Fraction(1, 2)
    for index in range(3):
        first = boundary(scores, rate, index, 64)
        for word, expected in ((first - 1, index), (first + 1, index + 1)):
            source = scripted([word])
            assert _choose(rows(scores), rate, source).tolist() == [expected]


def test_rational_boundaries_are_met_exactly(scripted):
    half = 1 << 63
    source = scripted([half - 1, half, 0, ONES])
    equal = np.full((4, 2), HIGH)
    assert _choose(equal, Fraction(1, 7), source).tolist() == [0, 1, 0, 1]
    assert source.left == 0


@pytest.mark.parametrize("position", [0, 1])
def test_a_candidate_beyond_the_table_is_reached(position, scripted):
    # Its weight is exp(-100), about 2^-144: only words that begin with 144 equal bits point to it.
    scores = [0, 0]
    scores[position] = -100
    exact = boundary(scores, Fraction(1), 0, 256)
    words = [exact >> shift & ONES for shift in (192, 128, 64, 0)]
    for last, expected in ((words[3] - 1, 0), (words[3] + 1, 1)):
        source = scripted([*words[:3], last])
        assert _choose(rows(scores), Fraction(1), source).tolist() == [expected]
        assert source.left == 0


@pytest.mark.parametrize("tiny", [LOW, -(10**6)])
def test_vanishing_candidates_need_a_word_of_ones_and_more(tiny, scripted):
    source = scripted([ONES, ONES, 12345])
    assert _choose(rows([HIGH, tiny]), Fraction(1), source).tolist() == [0]
    source = scripted([0, 0, 12345])
    assert _choose(rows([tiny, HIGH]), Fraction(1), source).tolist() == [1]


@pytest.mark.parametrize(("sum_bits", "word_bits"), [(6, 64), (12, 64), (62, 8), (10, 8), (62, 1)])
def test_less_precision_asks_for_more_bits_and_agrees(sum_bits, word_bits, seeded):
    """Whatever the precision, the index is where the whole stream of bits points."""
    generator = np.random.Generator(np.random.PCG64(8))
    rate = Fraction(1, 5)
    for _ in range(150):
        scores = generator.integers(-20, 20, size=generator.integers(1, 8)).tolist()
        words = generator.integers(0, ONES, size=3, dtype=np.uint64, endpoint=True).tolist()
        first = words[0] >> 64 - word_bits
        whole, bits = first, word_bits
        for word in words[1:]:
            whole, bits = whole << 64 | word, bits + 64
        expected = sum(boundary(scores, rate, k, bits) < whole for k in range(len(scores) - 1))
        found = _choose(rows(scores), rate, Replay(words), sum_bits=sum_bits, word_bits=word_bits)
        assert found.tolist() == [expected]


class Replay:
    def __init__(self, words):
        self.words = list(words)

    def fill(self, out):
        out[:] = [self.words.pop(0) for _ in range(out.size)]


def test_the_fast_path_decides_nearly_always(seeded, monkeypatch):
    def refuse(*rest):
        pytest.fail("a word in 2^30 needs more bits")

    monkeypatch.setattr(choice, "_resolve", refuse)
    scores = np.random.Generator(np.random.PCG64(1)).integers(-500, 500, size=(2000, 300))
    _choose(scores, Fraction(1, 100), seeded(1))


def test_cut_precision_leaves_much_to_the_exact_path(seeded, monkeypatch):
    calls = []
    resolve = choice._resolve
    monkeypatch.setattr(choice, "_resolve", lambda *rest: calls.append(1) or resolve(*rest))
    scores = np.tile(rows([3, 1, 4, 1, 5]), (1000, 1))
    _choose(scores, Fraction(1, 2), seeded(1), sum_bits=10)
    assert 100 < len(calls) < 900
    calls.clear()
    _choose(scores, Fraction(1, 2), seeded(1), word_bits=6)
    assert 30 < len(calls) < 900


def test_equal_scores_are_flipped_alike():
    found = permute_and_flip(np.zeros((4000, 4), np.int64), rate=1)
    assert np.bincount(found, minlength=4).min() > 800  # 1,000 each, 7 standard deviations


def test_flips_at_the_ends_of_the_integers():
    scores = np.tile(rows([LOW, HIGH, -1, LOW + 1, 0]), (500, 1))
    assert (permute_and_flip(scores, rate=1) == 1).all()
    # A coin of chance 1/e shows heads beside a sure one: half of these are chosen.
    found = permute_and_flip(np.tile(rows([LOW, HIGH]), (4000, 1)), rate=Fraction(1, ONES))
    assert 0.76 < found.mean() < 0.87
    assert set(permute_and_flip(np.full((200, 2), LOW), rate=3).tolist()) == {0, 1}


def test_one_candidate_is_always_chosen():
    scores = np.array([[LOW], [0], [HIGH]])
    assert exponential_choice(scores, rate="1e-9").tolist() == [0, 0, 0]
    assert exponential_choice(scores, rate=10**9).tolist() == [0, 0, 0]


def test_scores_at_the_ends_of_the_integers():
    scores = np.tile(rows([LOW, HIGH, -1, LOW + 1, 0]), (500, 1))
    assert (exponential_choice(scores, rate=1) == 1).all()
    # The ends are 2^64 - 1 apart: at this rate their weights are as e to one.
    found = exponential_choice(np.tile(rows([LOW, HIGH]), (4000, 1)), rate=Fraction(1, ONES))
    assert 0.67 < found.mean() < 0.79
    assert set(exponential_choice(np.full((200, 2), LOW), rate=3).tolist()) == {0, 1}


@pytest.mark.parametrize("rate", ["1e-400", "1e-30", "1/3", 10**30, "1e400"])
def test_rates_of_every_size(rate):
    found = exponential_choice(np.tile(rows([0, 1, -5]), (50, 1)), rate=rate)
    assert set(found.tolist()) <= {0, 1, 2}


@pytest.mark.parametrize("shape", [(0, 3), (1, 1), (7, 5), (3, 70_000), (70_000, 3), (129, 512)])
def test_every_row_gets_an_index(shape):
    scores = np.zeros(shape, np.int64)
    best = np.arange(shape[0]) % shape[1]
    scores[np.arange(shape[0]), best] = 10**6
    found = exponential_choice(scores, rate=1)
    assert found.dtype == np.int64
    assert (found == best).all()


def test_layout_in_memory_does_not_matter():
    scores = np.arange(12).reshape(3, 4) * 1000
    for view in (np.asfortranarray(scores), np.repeat(scores, 2, axis=1)[:, ::2], scores.copy()):
        before = view.copy()
        assert exponential_choice(view, rate=1).tolist() == [3, 3, 3]
        assert exponential_choice(view[:, ::-1], rate=1).tolist() == [0, 0, 0]
        assert (view == before).all()


@pytest.mark.parametrize(
    "scores",
    [
        [[1, 2]],
        np.zeros((2, 2)),
        np.zeros((2, 2), np.int32),
        np.zeros((2, 2), np.uint64),
        np.zeros(3, np.int64),
        np.zeros((2, 2, 2), np.int64),
        np.zeros((2, 0), np.int64),
        np.zeros((0, 0), np.int64),
    ],
)
def test_what_are_not_scores_is_refused(scores):
    with pytest.raises(RecipeError, match="scores"):
        exponential_choice(scores, rate=1)


@pytest.mark.parametrize("rate", [0, -1, float("nan"), float("inf"), "fast", None, True])
def test_bad_rates_are_refused(rate):
    with pytest.raises(RecipeError, match="rate"):
        exponential_choice(np.zeros((1, 2), np.int64), rate=rate)
