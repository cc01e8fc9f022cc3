"""What an individual adds to a sum, held to a norm over the groups: exact values, bounds and refusals."""

from fractions import Fraction
from math import sqrt

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sqlglot import exp

from sfumato.core.algebra.asks import Aggregation, Levelled, Noised, list_costs, sum_levels
from sfumato.core.algebra.measures import (
    MOST_STEPS,
    NORMS,
    Clip,
    Group,
    Measure,
    Query,
    check_query,
    find_sensitivity,
)
from sfumato.core.algebra.rows import Counted, Individuals, Join, Named, Pair, Scan
from sfumato.core.engine.statements import StatementEngine
from sfumato.core.errors import UnsupportedQuery
from sfumato.core.facts.project import parse_project

SEEN = [("a", 0, 3.0)] * 6 + [("a", 1, 3.0)] * 2 + [("b", 0, 1.0), ("c", 2, -2.0), ("d", None, 9.0)]
ODD = [("e", 1, float("nan")), ("e", 1, None), ("f", 2, float("inf")), ("f", 1, float("-inf"))]
GROUPS = (Group(exp.column("g", table="t", quoted=True), 4),)
RECORDS = Measure(statistic="records")


def total(clip=None, **facts):
    tree = exp.column("x", table="t", quoted=True)
    return Measure(statistic="sum", tree=tree, low=Fraction(-10), high=Fraction(10), clip=clip, **facts)


def records(clip, grid=1024):
    return Measure(statistic="records", clip=clip, grid=grid)


def ask(*measures, groups=GROUPS, rows=Scan("t", "t"), **facts):  # noqa: B008 - frozen
    return Query(rows=rows, groups=groups, measures=measures, max_records=16, **facts)


@pytest.fixture
def people(tmp_path):
    def write(rows=(*SEEN, *ODD), neighbours="add-remove", unit="p", most="private"):
        kinds = {"p": pa.string(), "g": pa.int64(), "x": pa.float64()}
        columns = {
            name: pa.array(each, kinds[name])
            for name, each in zip(kinds, zip(*rows, strict=True), strict=True)
        }
        pq.write_table(pa.table(columns), tmp_path / "t.parquet")
        facts = {"source": "t.parquet", "unit": unit, "neighbours": neighbours}
        if unit != "row":
            facts["max_records"] = most
        tables = {"t": facts, "s": facts}
        project = parse_project({"budget": {"epsilon": 1}, "tables": tables}, folder=tmp_path)
        engine = StatementEngine(tmp_path)
        return project.tables, lambda query: [
            each.tolist() for each in engine.aggregate(query, project.tables, progress=str).true_values
        ]

    return write


@pytest.mark.parametrize("most", ["private", 2])
def test_an_individual_is_scaled_down_to_its_norm_and_no_record_is_cut(people, most):
    _, answer = people(SEEN, most=most)
    # Of a there are 6 and 2 records, in L1 8 and in L2 a little more than 6.
    within = [7 * 1024, 2 * 1024, 1024, 0]
    assert answer(ask(records(Clip("L1", 8 * 1024)))) == [within]
    assert answer(ask(records(Clip("L1", 4 * 1024)))) == [[4 * 1024, 1024, 1024, 0]]
    (held,) = answer(ask(records(Clip("L2", 5 * 1024))))
    # Rounded down, by a root that is rounded up.
    assert held[:2] == [1024 + int(6 * 5 * 1024 / sqrt(40)) - 1, int(2 * 5 * 1024 / sqrt(40)) - 1]
    assert answer(ask(total(Clip("L1", 12)))) == [[1 + 9, 3, -2, 0]]
    assert answer(ask(total(Clip("L1", 12)), groups=())) == [[12 + 1 - 2 + 9]]


def test_values_that_are_no_numbers_add_nothing_and_infinite_ones_the_bound(people):
    _, answer = people()
    assert answer(ask(total(Clip("L1", 100)))) == [[18 + 1, 6 - 10, -2 + 10, 0]]
    assert answer(ask(total(Clip("L1", 4)))) == [[3 + 1, 1 - 2, -2 + 2, 0]]
    # A bound that everybody exceeds leaves nothing of what cannot be divided.
    assert answer(ask(total(Clip("L1", 1)))) == [[1, 0, -1, 0]]


def test_clipped_measures_stand_beside_those_whose_records_are_cut(people):
    _, answer = people(SEEN, most=2)
    found = answer(ask(RECORDS, records(Clip("L1", 64 * 1024)), Measure(statistic="individuals")))
    assert sum(found[0]) == 4
    assert found[1] == [7 * 1024, 2 * 1024, 1024, 0]
    assert sum(found[2]) >= 3


def test_individuals_are_counted_once_by_their_norm(people):
    _, answer = people(SEEN)
    (found,) = answer(ask(records(Clip("L1"), grid=1)))
    assert {NORMS[place]: n for place, n in enumerate(found) if n} == {1: 2, 8: 1}
    (found,) = answer(ask(total(Clip("L2"))))
    assert sum(found) == 3
    (found,) = answer(ask(total(Clip("L1")), groups=()))
    assert {NORMS[place]: n for place, n in enumerate(found) if n} == {1: 1, 2: 1, 11: 1, 32: 1}


def test_what_is_held_to_a_norm_may_be_joined(people):
    _, answer = people(SEEN)
    unit = Pair(exp.column("p", table="t", quoted=True), exp.column("p", table="s", quoted=True), "VARCHAR")
    joined = Join(Scan("t", "t"), Scan("s", "s"), (unit,))
    assert answer(ask(records(Clip("L1", 70), grid=1), groups=(), rows=joined)) == [[64 + 3]]
    assert answer(ask(records(Clip("L1", 5), grid=1), groups=(), rows=joined)) == [[5 + 3]]
    # Without a stated bound at most so many records of one enter the join.
    few = Query(rows=joined, groups=(), measures=(records(Clip("L1", 70), grid=1),), max_records=3)
    assert answer(few) == [[9 + 3]]
    each = Named(Individuals(Scan("t", "t"), (), (("n", Counted()),)), "t")
    counted = Measure(
        statistic="sum", tree=exp.column("n", table="t", quoted=True), high=Fraction(20), clip=Clip("L1", 5)
    )
    assert answer(Query(rows=each, groups=(), measures=(counted,), max_records=3)) == [[5 + 3]]


@pytest.mark.parametrize(("neighbours", "times"), [("add-remove", 1), ("replace", 2)])
def test_the_sensitivity_is_that_of_the_clip(people, neighbours, times):
    tables, _ = people(neighbours=neighbours)
    whole, part = total(Clip("L1", 12)), records(Clip("L2", 12))
    checked = check_query(ask(whole, part, total(Clip("L1"))), tables)
    assert find_sensitivity(whole, checked, norm="L1") == 12 * times
    assert find_sensitivity(whole, checked, norm="L2") == 12 * times  # two may be opposite
    assert float(find_sensitivity(part, checked, norm="L2")) == pytest.approx(12 * sqrt(times))
    for norm in ("L1", "L2"):
        assert find_sensitivity(total(Clip(norm)), checked, norm="L1") == times
    with pytest.raises(UnsupportedQuery, match="L2 norm"):
        find_sensitivity(part, checked, norm="L1")


@pytest.mark.parametrize("neighbours", ["add-remove", "replace"])
def test_neighbours_differ_by_the_sensitivity_and_by_no_more(people, neighbours):
    """Over all groups, with the opposite in its place: bounds that are reached."""
    clips = [total(Clip(norm, 2**30), grid=2**30) for norm in ("L1", "L2")]
    spread = [("me", group, 7.0) for group in range(4)] * 9
    tables, answer = people([*SEEN, *spread], neighbours=neighbours)
    one = np.array(answer(ask(*clips)))
    other = [("me", group, -7.0) for group in range(4)] * 5 if neighbours == "replace" else []
    _, answer = people([*SEEN, *other], neighbours=neighbours)
    moved = one - np.array(answer(ask(*clips)))
    checked = check_query(ask(*clips), tables)
    for clip, gap, distance in zip(
        clips, moved, (np.abs(moved[0]).sum(), np.hypot.reduce(moved[1])), strict=True
    ):
        most = float(find_sensitivity(clip, checked, norm=clip.clip.norm))
        assert 0.999 * most < distance <= most, gap
    noised = Aggregation(query=ask(clips[1]), drawn=(Noised("laplace", Fraction(1)),))
    with pytest.raises(UnsupportedQuery, match="L2 norm"):
        list_costs(check_query(noised.query, tables), noised)


def test_sums_over_groups_may_exceed_an_l2_norm_and_counts_of_people_are_not_added(people):
    tables, _ = people()
    levels = Levelled("gaussian", Fraction(1), ((0,), ()))
    for measure in (records(Clip("L2", 12)), records(Clip("L1"))):
        asked = ask(measure)
        assert list_costs(
            check_query(asked, tables), Aggregation(query=asked, drawn=(Noised("gaussian", 1),))
        )
        with pytest.raises(UnsupportedQuery):
            list_costs(check_query(asked, tables), Aggregation(query=asked, drawn=(levels,)))
    asked = ask(records(Clip("L1", 12)))
    assert len(list_costs(check_query(asked, tables), Aggregation(query=asked, drawn=(levels,)))) == 2


def test_a_level_of_what_is_held_to_an_l2_norm_moves_by_more_than_the_norm(people):
    tables, answer = people([("a", group, 1.0) for group in range(4)] * 9)
    asked = ask(records(Clip("L2", 1024)))
    (held,) = answer(asked)
    assert np.hypot.reduce(held) <= 1024 < sum_levels(np.array(held), [4], [()])[0].sum()
    levels = Levelled("gaussian", Fraction(1), ((),))
    with pytest.raises(UnsupportedQuery, match="L2 norm"):
        list_costs(check_query(asked, tables), Aggregation(query=asked, drawn=(levels,)))


def test_what_cannot_be_held_to_a_norm_is_refused(people):
    tables, _ = people()
    for bound in (0, -1, MOST_STEPS + 1):
        with pytest.raises(ValueError, match="clip"):
            Clip("L1", bound)
    for facts in ({"statistic": "individuals"}, {"statistic": "records", "grid": 2}):
        with pytest.raises(ValueError, match=r"clip|grid"):
            Measure(**({"clip": Clip("L1", 3)} if "grid" not in facts else {}), **facts)
    with pytest.raises(UnsupportedQuery, match="public groups"):
        check_query(ask(records(Clip("L1", 3)), groups=(Group(GROUPS[0].tree, None),)), tables)
    with pytest.raises(UnsupportedQuery, match="nobody chose"):
        check_query(Query(rows=Scan("t", "t"), groups=(), measures=(records(Clip("L1", 3)),)), tables)
    rows, _ = people(unit="row")
    with pytest.raises(UnsupportedQuery, match="names them"):
        check_query(ask(records(Clip("L1", 3))), rows)


def test_the_order_and_the_others_change_nothing_of_what_one_adds(people):
    rng = np.random.default_rng(5)
    mine = [("me", int(rng.integers(3)), float(rng.normal() * 9)) for _ in range(60)]
    clips = [total(Clip("L1", 17)), total(Clip("L2", 17)), records(Clip("L2", 3000))]
    _, answer = people(SEEN)
    before = answer(ask(*clips))
    _, answer = people([*mine, *SEEN])
    first = answer(ask(*clips))
    _, answer = people([*SEEN, *(mine[place] for place in rng.permutation(60))])
    assert answer(ask(*clips)) == first
    _, answer = people(mine)
    alone = answer(ask(*clips))
    assert (np.array(alone) + np.array(before) == np.array(first)).all()
