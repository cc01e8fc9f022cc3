"""Sparse noise: certified floors, every rare path by scripted words, and cells that stay inside."""

from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.sources import SeededSource
from sfumato.core.errors import RecipeError
from sfumato.core.law import Law
from sfumato.core.noise import add_sparse_noise, sparse
from sfumato.core.noise.sparse import LARGEST_DOMAIN, draw_passing

ONES = (1 << 64) - 1
LAWS = [  # scale and threshold: from half of all cells to none that anybody will see
    (Fraction(1, 2), 1),
    (Fraction(3), 1),
    (Fraction(1), 30),
    (Fraction(7, 3), 100),
    (Fraction(2047), 9 * 2047),
    (Fraction(5000), 10**5),
    (Fraction(2**50), 1),
    (Fraction(2**50), 2**50),
    (Fraction(1, 10), 40),
]


def laplace(scale):
    return Law("laplace", Fraction(scale))


def exact_floors(scale, threshold, *, count, width):
    """The floors of 2^width times each chance, from 400 digits."""
    with localcontext(prec=400):
        rate = Decimal(scale.denominator) / Decimal(scale.numerator)
        power = 1 - (-rate * threshold).exp() / (1 + (-rate).exp())
        floors = []
        for _ in range(count):
            floors.append(int(power / (1 + power) * (1 << width)))
            power *= power
        return (*floors, int(power * (1 << width)))


@pytest.mark.parametrize(("scale", "threshold"), LAWS)
@pytest.mark.parametrize("width", [64, 128, 192])
def test_floors_are_those_of_four_hundred_digits(scale, threshold, width):
    for count in (1, 17, 63):
        found = sparse._floors(laplace(scale), threshold, count=count, width=width)
        assert found == exact_floors(scale, threshold, count=count, width=width)


@given(
    scale=st.fractions(Fraction(1, 20), 10**6, max_denominator=1000),
    threshold=st.integers(1, 400),
    count=st.integers(1, 63),
)
@settings(max_examples=60)
def test_floors_of_any_law_are_exact(scale, threshold, count):
    threshold = max(1, int(threshold * min(scale, 1)))
    found = sparse._floors(laplace(scale), threshold, count=count, width=64)
    assert found == exact_floors(scale, threshold, count=count, width=64)


def test_too_little_precision_is_noticed():
    law = laplace(1)
    assert sparse._certify(law, 60, count=63, width=64, precision=66) is None
    assert sparse._certify(law, 60, count=63, width=64, precision=400) is not None


def test_a_chance_too_small_to_certify_is_an_error_and_not_a_guess(monkeypatch):
    monkeypatch.setattr(sparse, "_GUARDS", (2,))
    with pytest.raises(sparse.SfumatoError, match="cannot be certified"):
        sparse._floors.__wrapped__(laplace(1), 100, count=4, width=64)


@pytest.mark.parametrize(("scale", "threshold"), [("1/2000", 1), (1, 5000)])
def test_a_threshold_that_nothing_reaches_is_answered(scale, threshold):
    cells, values = add_sparse_noise(
        np.array([5]), np.array([90_000]), size=2**60, scale=scale, threshold=threshold
    )
    assert cells.tolist() == [5]
    assert abs(values[0] - 90_000) < 100


def words_of(gap, count, *, beyond=False):
    """The words that make one gap: 0 is below every floor, all ones above."""
    bits = [gap >> place & 1 for place in range(count)]
    return [0 if bit else ONES for bit in (*bits, beyond)]


def by_row(*gaps):
    """The words of several gaps as they are asked for: bit by bit, all gaps of a batch at once."""
    return [word for row in zip(*gaps, strict=True) for word in row]


@pytest.fixture
def one_by_one(monkeypatch):
    monkeypatch.setattr(sparse, "_batch", lambda *rest: 1)


@pytest.mark.usefixtures("one_by_one")
@pytest.mark.parametrize(
    ("gaps", "expected"),
    [
        ([2, 0, 5, 0], [2, 3, 9]),  # the last cell ends the domain, whatever is left in the script
        ([9], [9]),
        ([10], []),
        ([15], []),
        ([0] * 10, list(range(10))),
        ([8, 1], [8]),
        ([8, 0], [8, 9]),
    ],
)
def test_gaps_lead_from_cell_to_cell(scripted, gaps, expected):
    source = scripted([word for gap in gaps for word in words_of(gap, 4)])
    assert draw_passing(laplace(1), 1, size=10, source=source).tolist() == expected


@pytest.mark.usefixtures("one_by_one")
def test_a_gap_that_passes_every_domain_ends_the_draw(scripted):
    source = scripted([*words_of(3, 4), *words_of(0, 4, beyond=True)])
    assert draw_passing(laplace(1), 1, size=10, source=source).tolist() == [3]
    assert source.left == 0


def test_what_follows_a_gap_beyond_the_domain_is_left_out(scripted, monkeypatch):
    monkeypatch.setattr(sparse, "_batch", lambda *rest: 3)
    for middle in (words_of(15, 4), words_of(0, 4, beyond=True)):
        source = scripted(by_row(words_of(1, 4), middle, words_of(0, 4)))
        assert draw_passing(laplace(1), 1, size=10, source=source).tolist() == [1]


@pytest.mark.parametrize("size", [LARGEST_DOMAIN, 2**62, 2**62 + 1])
@pytest.mark.parametrize("batch", [1, 2, 3, 9])
def test_sums_near_the_end_of_the_integers(scripted, monkeypatch, size, batch):
    monkeypatch.setattr(sparse, "_batch", lambda *rest: batch)
    count, law = size.bit_length(), laplace(1)

    def draw(gap):
        # Enough words for two batches: the draw must have ended by then.
        words = by_row(*[words_of(gap, count)] * batch)
        return draw_passing(law, 48, size=size, source=scripted(words * 2)).tolist()

    top = 2**count - 1
    assert draw(top) == []
    assert draw(size) == []
    assert draw(size - 1) == [size - 1]
    assert draw(size // 2)[0] == size // 2
    assert all(0 <= cell < size for cell in draw(size // 2))


@pytest.mark.usefixtures("one_by_one")
@pytest.mark.parametrize("place", [0, 1, 3, 4])
def test_a_word_at_its_floor_is_extended_until_it_differs(scripted, place):
    scale, threshold, count = Fraction(2), 3, 4
    exact = exact_floors(scale, threshold, count=count, width=192)[place]
    first, second, third = exact >> 128, exact >> 64 & ONES, exact & ONES
    bits = sparse._gap_bits(laplace(scale), threshold, count=count)
    for last, expected in ((third - 1, True), (third + 1, False)):
        words = [ONES] * (count + 1)
        words[place] = first
        source = scripted([*words, second, last])
        gaps, ended = sparse._draw_gaps(bits, 1, source)
        assert source.left == 0
        if place == count:
            assert (gaps.tolist(), ended) == ([] if expected else [0], expected)
        else:
            assert (gaps.tolist(), ended) == ([expected << place], False)


def test_words_beside_a_floor_need_no_more_bits(scripted):
    bits = sparse._gap_bits(laplace(2), 3, count=4)
    for place, floor in enumerate(bits.floors[:4].tolist()):
        for word, expected in ((floor - 1, 1), (floor + 1, 0)):
            words = [ONES] * 5
            words[place] = word
            gaps, _ = sparse._draw_gaps(bits, 1, scripted(words))
            assert gaps.tolist() == [expected << place]


def test_a_chance_of_almost_one_is_undecided_by_a_word_of_ones(scripted):
    # The chance that a gap passes 2^10 cells is 1 - 2^-277: the floor is the word of ones itself.
    bits = sparse._gap_bits(laplace(1), 200, count=10)
    assert bits.floors[-1] == ONES
    source = scripted([*[ONES] * 11, ONES, ONES, 0])
    gaps, ended = sparse._draw_gaps(bits, 1, source)
    assert (gaps.size, ended) == (0, True)


def test_floors_are_read_only():
    with pytest.raises(ValueError, match="read-only"):
        sparse._gap_bits(laplace(1), 5, count=8).floors[0] = 0


class Remembering:
    """Hands on the words of a seeded source, and keeps them."""

    def __init__(self, source):
        self.source, self.words = source, []

    def fill(self, out):
        self.source.fill(out)
        self.words.append(out.copy())


@given(
    size=st.one_of(st.integers(1, 40), st.integers(1, LARGEST_DOMAIN)),
    spread=st.fractions(Fraction(1, 3), 20, max_denominator=50),
    batch=st.integers(1, 12),
    seed=st.integers(0, 2**32),
)
@settings(max_examples=120)
def test_positions_are_those_of_unbounded_integers(size, spread, batch, seed):
    """About `spread` cells pass; the same words are read again in Python's integers."""
    threshold = max(1, round(float(np.log(size / float(spread) + 1))))
    law, count = laplace(1), size.bit_length()
    source = Remembering(SeededSource(seed))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sparse, "_batch", lambda *rest: batch)
        found = draw_passing(law, threshold, size=size, source=source).tolist()
    floors = exact_floors(Fraction(1), threshold, count=count, width=64)
    words = iter(source.words)
    expected, start = [], 0
    while start < size:
        rows = [next(words).tolist() for _ in range(count + 1)]
        for column in range(batch):
            ones = [rows[place][column] < floor for place, floor in enumerate(floors)]
            place = start + sum(1 << bit for bit in range(count) if ones[bit])
            if ones[-1] or place >= size:
                start = size
                break
            expected.append(place)
            start = place + 1
    assert found == expected
    assert found == sorted(set(found))


def test_one_cell_passes_or_does_not():
    found = [add_sparse_noise(*nobody(), size=1, scale=3, threshold=1)[0].tolist() for _ in range(300)]
    assert {tuple(cells) for cells in found} == {(), (0,)}


def nobody():
    return np.empty(0, np.int64), np.empty(0, np.int64)


def test_the_largest_domain_with_a_tiny_chance_is_empty():
    cells, values = add_sparse_noise(*nobody(), size=LARGEST_DOMAIN, scale=1, threshold=200)
    assert cells.size == values.size == 0
    assert cells.dtype == values.dtype == np.int64


def test_the_largest_domain_with_many_passing_cells():
    # About 3,000 cells: all ascending, apart, inside, and not below the threshold.
    cells, values = add_sparse_noise(*nobody(), size=LARGEST_DOMAIN, scale=5000, threshold=175_000)
    assert 2000 < cells.size < 4000
    assert (np.diff(cells) > 0).all()
    assert cells[0] >= 0
    assert cells[-1] < LARGEST_DOMAIN
    assert values.min() >= 175_000
    assert np.histogram(cells.astype(float), bins=4, range=(0, 2.0**63))[0].min() > 300


def test_more_cells_than_fit_one_batch(monkeypatch):
    monkeypatch.setattr(sparse, "_CHUNK", 7)
    cells, values = add_sparse_noise(*nobody(), size=500, scale=2, threshold=1)
    assert (np.diff(cells) > 0).all()
    assert 60 < cells.size < 320
    assert values.min() >= 1


@given(data=st.data())
@settings(max_examples=60)
def test_cells_ascend_inside_the_domain_and_reach_the_threshold(data):
    size = data.draw(st.one_of(st.integers(1, 200), st.integers(2**40, LARGEST_DOMAIN)))
    cells = np.array(sorted(data.draw(st.sets(st.integers(0, size - 1), max_size=20))), np.int64)
    values = np.array(data.draw(st.lists(st.integers(0, 60), min_size=cells.size, max_size=cells.size)))
    scale = data.draw(st.sampled_from([Fraction(1, 3), Fraction(1), Fraction(9, 2)]))
    least = 1 if size <= 200 else int(scale * 45)
    threshold = data.draw(st.integers(least, least + 40))
    found, noisy = add_sparse_noise(
        cells, values.astype(np.int64), size=size, scale=scale, threshold=threshold
    )
    assert found.dtype == noisy.dtype == np.int64
    assert found.shape == noisy.shape
    assert (np.diff(found) > 0).all()
    assert all(0 <= cell < size for cell in found.tolist())
    assert (noisy >= threshold).all()


def test_values_at_the_ends_of_the_integers_are_held():
    top = np.iinfo(np.int64).max
    cells, values = add_sparse_noise(
        np.array([0, 2**40]), np.array([top, -top]), size=2**50, scale=1, threshold=100
    )
    assert cells.tolist() == [0]
    assert values[0] > top - 100


def test_the_given_arrays_are_left_alone():
    cells, values = np.array([1, 5, 9]), np.array([30, 40, 50])
    cells.flags.writeable = values.flags.writeable = False
    found, _ = add_sparse_noise(cells, values, size=10, scale="1/2", threshold=10)
    assert found.tolist() == [1, 5, 9]


@pytest.mark.parametrize(
    ("cells", "facts"),
    [
        ([], {"size": 0}),
        ([], {"size": 2**63}),
        ([], {"threshold": 0}),
        ([], {"threshold": -3}),
        ([10], {}),
        ([-1], {}),
        ([3, 3], {}),
        ([4, 3], {}),
        ([0, 5, 4, 9], {}),
    ],
)
def test_bad_histograms_are_refused(cells, facts):
    facts = {"size": 10, "threshold": 2, **facts}
    with pytest.raises(RecipeError, match="cells"):
        add_sparse_noise(np.array(cells, np.int64), np.ones(len(cells), np.int64), scale=1, **facts)


@pytest.mark.parametrize("scale", [0, -1, 2**51, "wide", float("nan")])
def test_bad_scales_are_refused(scale):
    with pytest.raises(RecipeError, match="scale"):
        add_sparse_noise(*nobody(), size=10, scale=scale, threshold=1)
