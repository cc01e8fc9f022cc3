"""Records that no planner writes: charged too little for what one individual moves, or failing by rows."""

from fractions import Fraction

import numpy as np
import pytest
from sqlglot import exp

from helpers.asking import TABLES
from sfumato.core.algebra.asks import sum_levels
from sfumato.core.algebra.measures import Clip, Measure, Query, check_query
from sfumato.core.algebra.rows import Item, Join, Named, Pair, Project, Scan

X, N = (exp.column(name, table="t", quoted=True) for name in ("x", "UNIT OF SFUMATO"))
RANGE = {"low": Fraction(0), "high": Fraction(1000), "tree": X}
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
    "wrap": lambda: 1 / (sum_levels(np.array([2**62, 2**62]), [2], [()])[0] < 0).sum().item(),
}


def ask(rows, measure=None):
    return check_query(
        Query(rows=rows, groups=(), measures=(measure or Measure(statistic="records"),)), TABLES
    )


@pytest.mark.parametrize("name", FORGED)
def test_what_is_forged_is_refused(name):
    with pytest.raises((ValueError, ZeroDivisionError)):
        FORGED[name]()
