from collections import Counter
from fractions import Fraction

import numpy as np
import pytest

from sfumato.core.law import Law
from sfumato.core.noise import samplers
from sfumato.core.noise.samplers import draw_narrow, draw_wide
from sfumato.core.noise.thresholds import build_thresholds, loss_floor

KINDS = ["laplace", "gaussian"]


def draw(method, law, source, size=1, **options):
    out = np.full(size, 1 << 60, np.int64)
    method(law, out, source, **options)
    return out


@pytest.mark.parametrize("kind", KINDS)
def test_every_decided_byte_goes_to_its_magnitude(kind, scripted):
    law = Law(kind, Fraction(5))
    thresholds = build_thresholds(law, folded=True, bits=8)
    decided = [byte for byte in range(255) if byte not in thresholds]
    positive = draw(draw_narrow, law, scripted([b << 56 for b in decided]), size=len(decided), bits=8)
    negative = draw(draw_narrow, law, scripted([b << 56 | 1 for b in decided]), size=len(decided), bits=8)
    assert (negative == -positive).all()
    counts = Counter(positive.tolist())
    edges = [-1, *thresholds, 255]
    for k in range(len(edges) - 1):
        assert counts[k] == max(edges[k + 1] - edges[k] - 1, 0)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("sign", [0, 1])
@pytest.mark.parametrize("k", [0, 1, 17])
def test_an_undecided_word_is_extended_until_it_differs(kind, sign, k, scripted):
    law = Law(kind, Fraction(20))
    exact = build_thresholds(law, folded=True, bits=191)[k]
    first, second, third = exact >> 128, exact >> 64 & (1 << 64) - 1, exact & (1 << 64) - 1
    for last, magnitude in ((third - 1, k), (third + 1, k + 1)):
        source = scripted([first << 1 | sign, second, last])
        value = draw(draw_narrow, law, source)[0]
        assert value == (-magnitude if sign else magnitude)
        assert source.left == 0


@pytest.mark.parametrize("kind", KINDS)
def test_the_tail_beyond_the_table_is_reached(kind, scripted):
    law = Law(kind, Fraction(2))
    known = len(build_thresholds(law, folded=True, bits=63))
    beyond = build_thresholds(law, folded=True, bits=127)[known + 3]
    source = scripted([(1 << 64) - 2, (beyond & (1 << 64) - 1) + 1])
    assert draw(draw_narrow, law, source)[0] == known + 4
    assert source.left == 0


def test_a_tiny_scale_meets_its_tail_only_past_all_ones(scripted):
    ones = (1 << 64) - 1
    law = Law("laplace", Fraction(1, 1000))
    assert draw(draw_narrow, law, scripted([ones, ones, ones, 7]))[0] == 0


@pytest.mark.parametrize("kind", KINDS)
def test_a_negative_zero_is_drawn_again(kind, scripted):
    law = Law(kind, Fraction(1 << 20))
    keep = (1 << 64) - (1 << 10)  # offset zero, decision high
    source = scripted([1, 0, keep, keep + 3, 0, keep + 5])
    # The first of two draws is -0 and gives way to the third.
    assert draw(draw_wide, law, source, size=2, block_bits=samplers.BLOCK_BITS).tolist() == [5, 3]
    assert source.left == 0


@pytest.mark.parametrize("kind", KINDS)
def test_a_close_decision_is_settled_exactly(kind, scripted):
    law = Law(kind, Fraction(1 << 20))
    plan = samplers._make_plan(law, 63, samplers.BLOCK_BITS)
    offset = (1 << plan.shift) - 1
    exact = loss_floor(plan.loss(0, offset), plan.keep_bits + 64)
    second = (exact >> 64) << plan.shift | offset
    last = exact & (1 << 64) - 1
    keep_all = (1 << 64) - 1
    kept = scripted([0, second, last + 1])
    assert draw(draw_wide, law, kept, block_bits=samplers.BLOCK_BITS).tolist() == [offset]
    lost = scripted([0, second, last - 1, 0, keep_all - 1])
    assert draw(draw_wide, law, lost, block_bits=samplers.BLOCK_BITS).tolist() == [offset - 1]
    assert kept.left == lost.left == 0


@pytest.mark.parametrize("kind", KINDS)
def test_a_block_beyond_the_table_is_judged_exactly(kind, scripted, monkeypatch):
    law = Law(kind, Fraction(1 << 20))
    plan = samplers._make_plan(law, 63, samplers.BLOCK_BITS)
    known = len(plan.blocks.thresholds)
    beyond = build_thresholds(plan.blocks.law, folded=False, bits=127)[known + 3]
    judged = []
    keep = samplers._keep
    monkeypatch.setattr(samplers, "_keep", lambda *rest: judged.append(rest[1]) or keep(*rest))
    # The decision is as high as can be, yet `sure` has no word on this block.
    source = scripted([(1 << 64) - 2, (1 << 64) - 1, (beyond & (1 << 64) - 1) + 1])
    value = draw(draw_wide, law, source, block_bits=samplers.BLOCK_BITS)[0]
    assert value == (known + 5 << plan.shift) - 1
    assert [block.tolist() for block in judged] == [[known + 4]]


def test_a_magnitude_that_does_not_fit_is_an_error(scripted, monkeypatch):
    monkeypatch.setattr(samplers, "_resolve", lambda table, value, source: 1 << 23)
    with pytest.raises(OverflowError, match="64-bit"):
        draw(draw_wide, Law("laplace", Fraction(1 << 50)), scripted([(1 << 64) - 2, 0]))


@pytest.mark.parametrize("kind", KINDS)
def test_the_bound_of_a_block_covers_its_losses(kind):
    plan = samplers._make_plan(Law(kind, Fraction(100_000)), 63, samplers.BLOCK_BITS)
    for block in (0, 1, 777, plan.sure_by_block.size - 1):
        worst = loss_floor(plan.loss(block, (1 << plan.shift) - 1), plan.keep_bits)
        assert worst < int(plan.sure_by_block[block]) <= plan.sure


def test_the_bounds_only_settle_what_the_exact_rule_settles(seeded):
    law = Law("gaussian", Fraction(3000))
    plan = samplers._make_plan(law, 16, 3)
    generator = np.random.Generator(np.random.PCG64(12))
    block = generator.integers(0, 60, size=3000)
    offset = generator.integers(0, 1 << plan.shift, size=3000)
    decisions = generator.integers(0, 1 << plan.keep_bits, size=3000).astype(np.uint64)
    kept = samplers._keep(plan, block, offset, decisions, seeded(1))
    for b, o, decision, keep in zip(block, offset, decisions, kept, strict=True):
        loss = plan.loss(int(b), int(o))
        floor = loss_floor(loss, plan.keep_bits) if loss else -1
        if int(decision) != floor:
            assert bool(keep) == (int(decision) > floor)


def test_blocks_need_a_wide_scale(seeded):
    with pytest.raises(ValueError, match="no blocks"):
        draw(draw_wide, Law("laplace", Fraction(20)), seeded(1))


@pytest.mark.parametrize("size", [0, 1, 8191, 8192, 8193, 20_000])
@pytest.mark.parametrize(("method", "scale"), [(draw_narrow, 30), (draw_wide, 1 << 30)])
def test_every_place_is_filled_at_any_size(method, scale, size, seeded):
    drawn = draw(method, Law("laplace", Fraction(scale)), seeded(2), size=size)
    assert (np.abs(drawn) < 60 * scale).all()
