"""The samplers against what the proofs are about: the same words give the same noise."""

import math
import random
from fractions import Fraction

import numpy as np
import pytest

from helpers.oracle import read_numbers
from sfumato.core.law import make_law
from sfumato.core.noise import samplers, thresholds
from sfumato.core.noise.choice import _choose, _flip, _resolve, _sample
from sfumato.core.noise.samplers import draw_narrow, draw_wide
from sfumato.core.noise.thresholds import build_thresholds, exp_bounds, loss_floor

pytestmark = pytest.mark.slow
WORD = 1 << 64
WIDTHS = (63, 127, 191)


class Words:
    """A source that gives these words and then ends."""

    def __init__(self, words):
        self.words, self.place = words, 0

    def fill(self, out):
        taken = self.words[self.place : self.place + out.size]
        if len(taken) < out.size:
            raise EOFError
        self.place += out.size
        out[:] = np.array(taken, np.uint64)


def rational(draw):
    numerator = draw.choice([draw.randint(0, 50), draw.getrandbits(40), draw.getrandbits(90)])
    return Fraction(numerator, draw.choice([1, draw.randint(1, 100), draw.getrandbits(60) | 1]))


def test_the_enclosure_of_exp_is_that_of_the_lemma_exp_enclosed(oracle):
    draw = random.Random(1)
    cases = [(rational(draw), draw.choice([1, 8, 63, 64, 159, 223, 300])) for _ in range(400)]
    cases += [(Fraction(bits * 10 + each, 10), bits) for bits in (1, 7, 64) for each in (-1, 0, 1)]
    asked = [("exp", exponent.numerator, exponent.denominator, bits) for exponent, bits in cases]
    for (exponent, bits), answer in zip(cases, oracle.ask_all(asked), strict=True):
        assert tuple(read_numbers(answer)) == exp_bounds(exponent, bits), ("Exp.exp_enclosed", exponent, bits)


def test_the_floor_of_a_loss_is_that_of_the_lemma_loss_floor_right(oracle):
    draw = random.Random(2)
    cases = [(rational(draw) + Fraction(1, 7**9), draw.choice([1, 5, 52, 63, 116])) for _ in range(200)]
    asked = [("floor", loss.numerator, loss.denominator, bits) for loss, bits in cases]
    for (loss, bits), answer in zip(cases, oracle.ask_all(asked), strict=True):
        assert int(answer, 2) == loss_floor(loss, bits), ("Exp.loss_floor_right", loss, bits)


def test_laplace_thresholds_are_those_of_the_lemma_laplace_thresholds_right(oracle):
    for scale in ("1", "1/3", "7/2", "20"):
        rate = 1 / Fraction(scale)
        for bits, guard in ((4, 1), (8, 3), (8, 8), (16, 2), (63, 4), (63, 96), (127, 96)):
            for folded in (True, False):
                found = thresholds._laplace_thresholds(rate, folded=folded, bits=bits, guard=guard)
                asked = ("laplace", rate.numerator, rate.denominator, bits, guard, int(folded))
                answer = oracle.ask(*asked)
                known = None if answer == "none" else read_numbers(answer.removeprefix("some"))
                assert known == found, ("Samplers.laplace_thresholds_right", asked)


def test_gaussian_thresholds_are_those_of_the_lemma_gaussian_thresholds_right(oracle):
    for scale in ("1/2", "1", "7/2", "20"):
        rate = make_law("gaussian", scale).exponent(1)
        for bits, guard in ((4, 8), (8, 8), (8, 24), (63, 16), (63, 96)):
            for folded in (True, False):
                found = thresholds._gaussian_thresholds(rate, folded=folded, bits=bits, guard=guard)
                asked = ("gaussian", rate.numerator, rate.denominator, bits, guard, int(folded))
                answer = oracle.ask(*asked)
                known = None if answer == "none" else read_numbers(answer.removeprefix("some"))
                assert known == found, ("Gauss.gaussian_thresholds_right", asked)


def give_tables(oracle, law, *, folded):
    for bits in WIDTHS:
        oracle.ask("table", bits, build_thresholds(law, folded=folded, bits=bits))


def nasty_words(draw, law, size, *, folded, first):
    """Uniform words, and among them ones whose leading bits equal a threshold, so that more must be drawn."""
    words = [draw.getrandbits(64) for _ in range(size)]
    ends = [*build_thresholds(law, folded=folded, bits=63), (1 << 63) - 1, 0]
    long = build_thresholds(law, folded=folded, bits=127)
    for place in range(0, size, 7):
        at = draw.randrange(len(ends))
        words[place] = ends[at] << 1 | draw.getrandbits(1)
        if first and at < len(long) and place + 1 < size and draw.random() < 0.5:
            words[place + 1] = long[at] & (WORD - 1)  # equal again: a third word is drawn
    return words


@pytest.mark.parametrize("kind", ["laplace", "gaussian"])
@pytest.mark.parametrize("scale", ["1/4", "3", "40/3"])
def test_narrow_noise_is_that_of_the_lemma_narrow_law(oracle, kind, scale):
    law, draw = make_law(kind, scale), random.Random(f"{kind} {scale}")
    give_tables(oracle, law, folded=True)
    for words in (
        [draw.getrandbits(64) for _ in range(9000)],
        nasty_words(draw, law, 2000, folded=True, first=True),
    ):
        known = read_numbers(oracle.ask("narrow", words))
        source, found = Words(words), []
        while True:
            out = np.empty(1, np.int64)
            try:
                draw_narrow(law, out, source)
            except EOFError:
                break
            found.append(int(out[0]))
        assert found == known, ("Samplers.narrow_law", kind, scale)


def blocks_of(law):
    """The parameters of a plan for few draws, and the law of its blocks."""
    plan = samplers._make_plan(law, 63, 5)
    return plan, plan.blocks.law


@pytest.mark.parametrize("kind", ["laplace", "gaussian"])
@pytest.mark.parametrize("scale", ["2048", "10001/3", str(2**30 + 7), str(2**50)])
def test_wide_noise_is_that_of_the_lemma_wide_law(oracle, kind, scale):
    law, draw = make_law(kind, scale), random.Random(f"{kind} {scale}")
    plan, blocks = blocks_of(law)
    give_tables(oracle, blocks, folded=False)
    power = law.shape.power
    oracle.ask("law", power, law.scale.numerator, law.scale.denominator, plan.shift, plan.keep_bits)
    streams = [[draw.getrandbits(64) for _ in range(6000)]]
    # Blocks, offsets and decisions at the edge: zeros of both signs, pairs that the tests leave open.
    words = nasty_words(draw, blocks, 3000, folded=False, first=False)
    for place in range(1, 3000, 5):
        block, offset = draw.randrange(60), draw.getrandbits(plan.shift)
        loss = plan.loss(block, offset)
        edge = loss_floor(loss, plan.keep_bits) if loss else 0
        decision = min(max(edge + draw.choice([-2, -1, 0, 0, 1]), 0), (1 << plan.keep_bits) - 1)
        ends = [0, *build_thresholds(blocks, folded=False, bits=63)]
        first = (ends[min(block, len(ends) - 1)] + 1) << 1 | draw.getrandbits(1)
        words[place - 1] = first
        words[place] = decision << (64 - plan.keep_bits) | offset
    streams += [words, [0, 0, 1, 0, 0, 1, *words[:100]]]
    for words in streams:
        known = read_numbers(oracle.ask("wide", words))
        source, found = Words(words), []
        while True:
            out = np.empty(1, np.int64)
            try:
                draw_wide(law, out, source, block_bits=5)
            except EOFError:
                break
            found.append(int(out[0]))
        assert len(found) > len(words) / 4
        assert found == known, ("Samplers.wide_law", kind, scale)


def test_a_decision_is_that_of_the_lemma_keep_tests(oracle):
    draw, cases = random.Random(5), []
    for _ in range(150):
        loss = Fraction(draw.getrandbits(20) + 1, draw.getrandbits(draw.choice([20, 24, 40])) + 1)
        bits = draw.choice([3, 8, 20, 52])
        edges = (loss_floor(loss, bits), math.ceil(loss * 2**bits), draw.getrandbits(bits))
        cases += [
            (loss, bits, edge + step)
            for edge in edges
            for step in (-2, -1, 0, 1)
            if 0 <= edge + step < 1 << bits
        ]
    asked = [("keep", loss.numerator, loss.denominator, bits, decision) for loss, bits, decision in cases]
    for (loss, bits, decision), answer in zip(cases, oracle.ask_all(asked), strict=True):
        try:
            found = "kept" if samplers._keep_one(loss, decision, bits, Words([])) else "lost"
        except EOFError:
            found = "open"
        assert found == answer, ("Samplers.keep_tests", loss, bits, decision)


def test_a_coin_follows_the_enclosure_as_in_the_lemma_flip_law(oracle):
    draw = random.Random(6)
    for _ in range(300):
        gamma = rational(draw) + Fraction(1, 9**9)
        low, high = read_numbers(oracle.ask("exp", gamma.numerator, gamma.denominator, 64))
        for word in (low - 1, low, high - 1, high, draw.getrandbits(64)):
            if 0 <= word < WORD:
                try:
                    found = _flip(gamma, Words([word]))
                except EOFError:
                    found = None
                assert found == (True if word < low else False if word >= high else None), "Samplers.flip_law"


def test_a_choice_is_that_of_the_theorem_choice_law(oracle):
    draw = random.Random(7)
    for _ in range(60):
        losses = [0, *(draw.randint(0, 60) for _ in range(draw.randint(1, 6)))]
        draw.shuffle(losses)
        rate, bits = Fraction(draw.randint(1, 40), 20), draw.choice([2, 5, 64])
        precision = bits + 64 + len(losses).bit_length()
        enclosed = [exp_bounds(rate * loss, precision) for loss in losses]
        lows, highs = zip(*enclosed, strict=True)
        for value in {0, (1 << bits) - 1, *(draw.getrandbits(bits) for _ in range(6))}:
            answer = oracle.ask("choose", bits, value, lows, highs)
            try:
                found = str(_resolve(losses, rate, value, bits, Words([]), {}))
            except EOFError:
                found = "more"
            assert found == answer, ("Choices.choice_law", losses, rate, bits, value)
            if bits == 64 and answer != "more":
                scores = np.array([[-loss for loss in losses]], np.int64)
                assert str(_choose(scores, rate, Words([value]))[0]) == answer, "Choices.choice_law"


def test_a_sample_is_that_of_the_theorem_coin_law(oracle):
    draw = random.Random(8)
    for _ in range(300):
        rate = Fraction(draw.randint(1, 99), draw.choice([100, 128, 977]))
        whole, rest = divmod(rate.numerator << 64, rate.denominator)
        second = (rest << 64) // rate.denominator
        first = draw.choice([whole - 1, whole, whole, whole + 1, draw.getrandbits(64)])
        words = [first, draw.choice([max(second - 1, 0), second + 1])]
        answer = oracle.ask("coin", rate.numerator, rate.denominator, words)
        found = "heads" if _sample(1, rate, Words(words))[0] else "tails"
        assert found == answer, ("Choices.coin_law", rate, words)
