"""Records that no planner writes: charged too little for what one individual moves, or failing by rows."""

from fractions import Fraction

import numpy as np
import pytest
from sqlglot import exp

from helpers.asking import TABLES, Counted, Stub, count_records
from sfumato.core.algebra.asks import sum_levels
from sfumato.core.algebra.measures import Clip, Measure, Query, check_query
from sfumato.core.algebra.rows import Item, Join, Named, Pair, Project, Scan
from sfumato.core.cost.cost import Cost
from sfumato.core.door import Bill, Charged
from sfumato.core.engine.statements import StatementEngine
from sfumato.core.errors import UnsupportedQuery

X, N = (exp.column(name, table="t", quoted=True) for name in ("x", "UNIT OF SFUMATO"))
RANGE = {"low": Fraction(0), "high": Fraction(1000), "tree": X}
RECORDS = Measure(statistic="records")
PAIRS = Pair(exp.Cast(this=X, to=exp.DataType.build("BIGINT")), X, "BIGINT"), Pair(X, X, "JSON")
FORGED = {
    "edges": lambda: Measure(statistic="sum", tree=X, edges=(Fraction(0), Fraction(1))),
    "statistic": lambda: Measure(statistic="total", **RANGE),
    "share": lambda: Measure(statistic="quantile", quantile=Fraction(2**40), **RANGE),
    "norm": lambda: Clip("l2", 5),
    "unit": lambda: ask(Scan("t", "t"), Measure(statistic="present", tree=N)),
    "name": lambda: ask(Named(Project(Scan("t", "t"), (Item(N.name, X),)), "n")),
    "cast": lambda: ask(Join(Scan("t", "t"), Scan("t", "o"), PAIRS[:1])),
    "kind": lambda: ask(Join(Scan("t", "t"), Scan("t", "o"), PAIRS[1:])),
    "largest": lambda: ask(Scan("t", "t"), Small(statistic="records")),
    "query": lambda: check_query(Other(rows=Scan("t", "t"), groups=(), measures=(RECORDS,)), TABLES),
    "wrap": lambda: 1 / (sum_levels(np.array([2**62, 2**62]), [2], [()])[0] < 0).sum().item(),
}


class Small(Measure):
    largest = Fraction(1, 1000)


class Other(Query):
    """One that could give other measures when it is read than when it was priced."""


def ask(rows, measure=None):
    return check_query(Query(rows=rows, groups=(), measures=(measure or RECORDS,)), TABLES)


@pytest.mark.parametrize("name", FORGED)
def test_what_is_forged_is_refused(name):
    with pytest.raises((ValueError, ZeroDivisionError)):
        FORGED[name]()


def test_a_tree_that_is_written_to_after_the_check_is_checked_again(tmp_path):
    """What is run was looked at: not the tree that somebody still has in hand."""
    (tmp_path / "t.csv").write_text("p,x\n1,5\n", encoding="utf-8")
    measure = Measure(statistic="sum", **RANGE | {"tree": X.copy()})
    asked = Query(rows=Scan("t", "t"), groups=(), measures=(measure,))
    engine = StatementEngine(tmp_path)
    bound = engine.bind(asked, TABLES)
    before = bound.query.measures[0].tree.sql()
    asked.measures[0].tree.this.set("this", "UNIT OF SFUMATO")
    assert bound.query.measures[0].tree.sql() == before
    with pytest.raises(UnsupportedQuery):
        engine.find_bound(asked, TABLES)


def test_the_door_reads_a_copy_of_what_it_priced():
    asked, engine = count_records(4), Counted()
    costs = (Cost(kind="laplace", scale=Fraction(4), sensitivity=Fraction(2), unit="p"),)
    bill = Bill(digest="d", description={}, tables="t", costs=costs, version=lambda _: "v", described=TABLES)
    seen = []
    engine.aggregate = lambda query, *_, **__: (
        seen.append(query) or Counted.aggregate(engine, query, *_, **__)
    )
    engine.ask(Charged(bill, Stub("v", costs), ledger=Stub("v"), noise=None), asked)
    assert seen == [asked.query]
    assert seen[0] is not asked.query
