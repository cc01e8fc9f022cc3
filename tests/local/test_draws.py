"""Decisions at their thresholds: scripted words fall to the side that the proof says."""

import numpy as np
import pytest

from sfumato.local import DuchiMean, RandomizedResponse
from sfumato.local.draws import CHUNK, WORDS, chunks, draw_events, draw_fair, draw_uniform
from sfumato.local.means import STEPS


def word_of(*leading):
    """A word whose bytes, as this machine lays them out, are these."""
    return int(np.array([*leading, *[0] * (8 - len(leading))], np.uint8).view(np.uint64)[0])


def test_an_event_is_decided_by_its_byte_or_by_56_more_bits(scripted):
    threshold = (0x40 << 56) + 5
    words = [word_of(0x3F, 0x40, 0x41, 0x40), 4 << 8 | 0xFF, 5 << 8]
    events = draw_events(threshold, 4, scripted(words))
    assert events.tolist() == [True, True, False, False]


@pytest.mark.parametrize(("threshold", "expected"), [(0, False), (WORDS, True)])
def test_certain_events_draw_nothing(scripted, threshold, expected):
    assert draw_events(threshold, 3, scripted([])).tolist() == [expected] * 3


@pytest.mark.parametrize("size", [0, 1, 7, 8, 9, (1 << 16) - 1, 1 << 16, (1 << 16) + 1, 200_000])
def test_events_of_every_size(seeded, size):
    events = draw_events(WORDS // 4, size, seeded(3))
    assert events.shape == (size,)
    assert size < 1000 or abs(events.mean() - 0.25) < 5 * np.sqrt(0.1875 / size)
    assert draw_fair(size, seeded(3)).shape == (size,)


def test_a_uniform_draw_repeats_words_beyond_the_last_full_share(scripted):
    share = WORDS // 3
    words = [0, share - 1, share, 3 * share, 2 * share]
    assert draw_uniform(3, 4, scripted(words)).tolist() == [0, 0, 1, 2]
    assert draw_uniform(1, 1, scripted([5])).tolist() == [0]
    assert draw_uniform(4, 1, scripted([WORDS - 1])).tolist() == [3]
    with pytest.raises(ValueError, match="at least one"):
        draw_uniform(0, 1, scripted([]))


def test_chunks_cover_everything_once():
    for size in (0, 1, CHUNK, CHUNK + 1, 5 * CHUNK - 1):
        covered = [at for part in chunks(size) for at in range(part.start, part.stop)]
        assert covered == list(range(size))


@pytest.mark.parametrize("value", [0, 3, 6])
def test_each_share_of_a_word_is_one_other_category(scripted, value):
    mechanism = RandomizedResponse(epsilon=1, categories=7)
    lie = mechanism.lie
    for other in range(6):
        for word in (other * lie, (other + 1) * lie - 1):
            answer = mechanism._draw(np.array([value]), scripted([word]))
            assert answer.tolist() == [(value + 1 + other) % 7]
    for word in (6 * lie, WORDS - 1):
        assert mechanism._draw(np.array([value]), scripted([word])).tolist() == [value]


@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.int64, np.uint64, np.bool_])
def test_answers_have_the_type_of_the_values(seeded, dtype):
    mechanism = RandomizedResponse(epsilon=1)
    values = np.array([0, 1] * 500).astype(dtype)
    answers = mechanism._draw(values, seeded(1))
    assert answers.dtype == dtype
    assert 100 < np.count_nonzero(answers != values) < 400
    assert values.tolist() == np.array([0, 1] * 500).astype(dtype).tolist()


def test_large_codes_survive_in_small_types(seeded):
    mechanism = RandomizedResponse(epsilon="0.1", categories=256)
    answers = mechanism._draw(np.full(50_000, 255, np.uint8), seeded(2))
    assert answers.dtype == np.uint8
    assert len(set(answers.tolist())) == 256


def test_the_threshold_of_duchi_is_the_line_between_its_ends(scripted):
    mechanism = DuchiMean(epsilon="0.7", low=0, high=1)
    places = np.array([0, 1, 12345, STEPS // 2, STEPS - 1, STEPS])
    expected = [mechanism.lie + int(place) * (WORDS - 2 * mechanism.lie) // STEPS for place in places]
    found = mechanism.threshold(places).tolist()
    assert found == expected
    assert (found[0], found[-1]) == (mechanism.lie, WORDS - mechanism.lie)
    assert found == sorted(found)
    assert mechanism._draw(places[:1], scripted([mechanism.lie - 1])).tolist() == [1]
    assert mechanism._draw(places[:1], scripted([mechanism.lie])).tolist() == [0]
