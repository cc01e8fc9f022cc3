"""Trees that no planner would write, and queries that lie, on neighbouring tables.

The core refuses them, alike on both tables, or its exact values differ by no more than what it would charge.
"""

import os
import random
from collections import Counter
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sqlglot import exp

from sfumato.core.algebra import measures as core
from sfumato.core.algebra.rows import (
    Added,
    Among,
    Counted,
    Filter,
    Held,
    Individuals,
    Item,
    Join,
    Named,
    Operand,
    Pair,
    Picked,
    Project,
    Scan,
    Tested,
    Union,
)
from sfumato.core.engine import aggregates
from sfumato.core.engine.statements import StatementEngine
from sfumato.core.errors import ChargeKept, SfumatoError, SourceError
from sfumato.core.facts.project import parse_project
from sfumato.core.facts.table import UNIT

COUNT = int(os.environ.get("SFUMATO_CORPUS", "400"))
NAMES = ["a", "b", "c", "d"]
COLUMNS = ["p", "d", "c", "i", "o", "n"]
KINDS = ["VARCHAR", "BIGINT", "DOUBLE", "TIMESTAMP", "BOOLEAN"]
CROWD = [(f"p{n % 9}", "xyz"[n % 3], n / 2 - 4, n % 5 - 2, f"o{n % 4}") for n in range(20)]
NASTY = [
    [("who", "x", 1e308, 9, "o1")] * 30,
    [("who", "xyz"[n % 3], float(n), n, f"o{n}") for n in range(25)],
    [("who", None, float("nan"), None, None), ("who", "y", float("-inf"), -(2**62), "2020-01-01:")],
    [("who", "never", -0.0, 0, "'; DROP TABLE t; --")],
]


def write(folder, rows):
    kinds = {"p": pa.string(), "d": pa.string(), "c": pa.float64(), "i": pa.int64(), "o": pa.string()}
    folder.mkdir()
    table = pa.table(
        {
            name: pa.array([row[place] for row in rows], kind)
            for place, (name, kind) in enumerate(kinds.items())
        }
    )
    pq.write_table(table, folder / "t.parquet")
    pq.write_table(table.slice(1), folder / "s.parquet")
    pq.write_table(table.slice(0, len(CROWD) + 1), folder / "rows.parquet")  # there a row is somebody
    fan = "".join(f"{d},{side},{n}\n" for n in range(4) for d in "xyz" for side in ("north", "south"))
    (folder / "fan.csv").write_text(f"d,o,n\n{fan}")


def parse(folder, neighbours):
    columns = {"d": {"values": ["x", "y", "z"]}, "c": {"bounds": [-10, 50]}, "i": {"range": [-2, 2]}}
    facts = {"unit": "p", "neighbours": neighbours, "columns": columns}
    tables = {
        "t": {"source": "t.parquet", "max_records": 4, **facts},
        "s": {"source": "s.parquet", "max_records": 2, **facts},
        "any": {"source": "t.parquet", "max_records": "private", **facts},
        "rows": {"source": "rows.parquet", **facts, "unit": "row"},
        "fan": {"source": "fan.csv", "public": True},
    }
    project = parse_project({"budget": {"epsilon": 1}, "tables": tables}, folder=folder)
    return {**project.tables, **project.public}


class Liar:
    """Makes up trees, expressions and measures, most of them possible and some of them forged."""

    def __init__(self, seed):
        self.draw = random.Random(f"algebra {seed}")

    def column(self, names):
        name = self.draw.choice(
            COLUMNS if self.draw.random() < 0.95 else [UNIT, "number of sfumato", "code of d"]
        )
        if names and self.draw.random() < 0.95:
            return exp.column(self.draw.choice(names), table=self.alias, quoted=True)
        return exp.column(name, table=self.draw.choice(NAMES), quoted=True)

    def expression(self, scope, depth=2):
        draw = self.draw
        self.alias = draw.choice(sorted(scope)) if scope else "a"
        if depth == 0 or draw.random() < 0.3:
            constants = [exp.Literal.number(draw.randint(0, 9)), exp.Literal.string(draw.choice("xyz1"))]
            return self.column(scope.get(self.alias)) if draw.random() < 0.75 else draw.choice(constants)
        one, other = self.expression(scope, depth - 1), self.expression(scope, depth - 1)
        forged = [
            exp.Anonymous(this="getenv", expressions=[one]),
            exp.Literal(this="1) OR (SELECT 1", is_string=False),
            exp.Subquery(this=exp.select("1").from_("t")),
            exp.Count(this=exp.Star()),
            exp.column("x) --", table="a"),
        ]
        if draw.random() < 0.04:
            return draw.choice(forged)
        kind = draw.choice([exp.Add, exp.Mul, exp.Div, exp.Mod, exp.DPipe, exp.GT, exp.EQ, exp.And, exp.Or])
        made = [
            kind(this=exp.paren(one), expression=exp.paren(other)),
            exp.Cast(this=one, to=exp.DataType.build(draw.choice(KINDS))),
            exp.Case().when(exp.Is(this=exp.paren(one), expression=exp.Null()), other.copy()),
            exp.Upper(this=one),
            exp.Year(this=exp.Cast(this=one, to=exp.DataType.build("DATE"))),
            exp.Ln(this=one),
        ]
        return draw.choice(made[:2] if draw.random() < 0.6 else made)

    def condition(self, scope):
        one = self.expression(scope, 1)
        return one if self.draw.random() < 0.1 else exp.GT(this=one, expression=self.expression(scope, 0))

    def listed(self, depth):
        """An inner query and the names of its columns."""
        draw = self.draw
        rows, scope = self.rows(depth - 1)
        match draw.randrange(4):
            case 0 | 1:
                items = tuple(Item(name, self.expression(scope, 1)) for name in draw.sample(COLUMNS, 3))
                return Project(rows, items), [item.name for item in items]
            case 2:
                made = tuple((name, self.gather(scope)) for name in ("c", "i"))
                keys = (("d", Operand(self.expression(scope, 1))),) if draw.random() < 0.4 else ()
                return Individuals(rows, keys, made), [name for name, _ in (*keys, *made)]
        parts = [Project(rows, tuple(Item(name, self.expression(scope, 1)) for name in ("d", "c")))]
        for _ in range(draw.randint(1, 2)):
            more, inner = self.rows(depth - 1)
            parts.append(Project(more, tuple(Item(name, self.expression(inner, 1)) for name in ("d", "c"))))
        return Union(tuple(parts)), ["d", "c"]

    def gather(self, scope):
        draw = self.draw
        of = self.expression(scope, 1)
        added = Added(
            of, Fraction(-3), Fraction(draw.choice([5, 2**20])), draw.choice([1, 10]), draw.random() < 0.3
        )
        return draw.choice(
            [
                Counted(),
                Counted(Operand(of, plain=draw.random() < 0.5), distinct=draw.random() < 0.5),
                Tested(self.condition(scope), every=draw.random() < 0.5),
                added,
                Held(Counted(), Fraction(0), Fraction(draw.randint(1, 9))),
                Picked(Operand(of), (Operand(self.expression(scope, 0)),), last=draw.random() < 0.5),
            ]
        )

    def rows(self, depth):
        """Rows, and for every alias the names of its columns."""
        draw, alias = self.draw, self.draw.choice(NAMES)
        if depth <= 0 or draw.random() < 0.25:
            table = draw.choice(["t", "t", "t", "s", "fan", "any", "rows"])
            return Scan(table, alias), {alias: ["d", "o", "n"] if table == "fan" else COLUMNS[:5]}
        rows, scope = self.rows(depth - 1)
        match draw.randrange(6):
            case 0 | 1:
                return Filter(rows, self.condition(scope)), scope
            case 2 | 3:
                listed, names = self.listed(depth)
                return Named(listed, alias), {alias: names}
            case 4:
                right, beside = self.rows(0) if draw.random() < 0.6 else self.wrapped(depth)
                pairs = tuple(self.pair(scope, beside) for _ in range(draw.randint(0, 2)))
                return Join(rows, right, pairs, outer=draw.random() < 0.4), {**scope, **beside}
        others, beside = self.rows(depth - 1)
        pairs = tuple(self.pair(scope, beside) for _ in range(draw.randint(0, 1)))
        sign = draw.choice(["<>", "<", "<=", ">", ">=", "<>"])
        apart = self.pair(scope, beside) if draw.random() < 0.4 else None
        return Among(rows, others, pairs, alias, apart, sign), {**scope, alias: ["found"]}

    def wrapped(self, depth):
        alias, (listed, names) = self.draw.choice(NAMES), self.listed(depth - 1)
        return Named(listed, alias), {alias: names}

    def pair(self, scope, beside):
        sides = []
        for each in (scope, beside):
            self.alias = self.draw.choice(sorted(each))
            sides.append(self.column(each[self.alias]))
        return Pair(*sides, self.draw.choice(KINDS))

    def measure(self, scope):
        draw, tree = self.draw, self.expression(scope)
        low, high = Fraction(draw.randint(-20, 5)), Fraction(draw.randint(-2, 2 ** draw.randint(2, 33)))
        statistic = draw.choice(
            ["records", "present", "individuals", "distinct", "sum", "square", "quantile"]
        )
        facts = {}
        if draw.random() < (0.6 if statistic in core.ADDED else 0.03):
            bound = draw.choice([None, draw.randint(1, 9), 2 ** draw.randint(0, 51), 1024 * 3])
            facts = {"clip": core.Clip(draw.choice(["L1", "L2"]), bound), "grid": draw.choice([1, 1024])}
        if statistic in ("records", "individuals"):
            return core.Measure(statistic=statistic, **facts)
        facts |= {"low": low, "high": high} if statistic in ("sum", "square", "quantile") else {}
        if statistic in ("sum", "square"):
            facts |= {
                "centre": draw.choice([Fraction(0), (low + high) / 2, low]),
                "grid": 2 ** draw.randint(0, 20),
            }
        return core.Measure(statistic=statistic, tree=tree, **facts)

    def query(self):
        draw = self.draw
        rows, scope = self.rows(draw.choice([0, 1, 2, 2, 3]))
        groups = [
            core.Group(self.expression(scope, 1), draw.choice([3, 3, 9, None]))
            for _ in range(draw.choice([0, 0, 1, 2]))
        ]
        made = tuple(self.measure(scope) for _ in range(draw.randint(1, 3)))
        return core.Query(
            rows=rows,
            groups=tuple(groups),
            measures=made,
            max_groups=draw.choice([1, 2, 4, 99]),
            max_records=draw.choice([1, 3, 2**10]),
        )


def answer(engine, query, tables):
    """The exact aggregates of a query, or the refusal; what fails after records are read is never right."""
    try:
        return engine.aggregate(query, tables, progress=str)
    except (ChargeKept, SourceError) as error:
        raise AssertionError("a query failed while records were read") from error
    except SfumatoError as error:
        return str(error)


def list_cells(found, place):
    if found.true_keys is None:
        return {(): found.true_values[place].ravel()}
    return {key: np.array([found.true_values[place][row]]) for row, key in enumerate(found.true_keys)}


def find_fault(one, two, checked):
    """The first measure whose exact values differ by more than its sensitivity."""
    for place, measure in enumerate(checked.query.measures):
        first, second = list_cells(one, place), list_cells(two, place)
        zero = np.zeros(1, np.int64) if one.true_keys is not None else None
        gaps = [
            first.get(key, zero).astype(float) - second.get(key, zero).astype(float)
            for key in {**first, **second}
        ]
        gap = np.concatenate(gaps) if gaps else np.zeros(1)
        for norm, size in (("L1", np.abs(gap).sum()), ("L2", np.sqrt((gap**2).sum()))):
            clip = measure.clip
            if norm == "L1" and clip is not None and clip.norm == "L2" and clip.bound is not None:
                continue  # which is refused
            if size > float(core.find_sensitivity(measure, checked, norm=norm)) * (1 + 1e-12):
                return f"{measure.statistic}: {norm} distance {size}"
    return None


def run(folder, neighbours, count=COUNT, seed=""):
    people = [CROWD, *([*CROWD, *nasty] for nasty in NASTY)]
    engines = []
    for place, rows in enumerate(people):
        write(folder / str(place), rows)
        engines.append(StatementEngine(folder / str(place)))
    tables, seen, faults = parse(folder, neighbours), Counter(), []
    for number in range(count):
        liar = Liar(f"{seed} {neighbours} {number}")
        try:
            query = liar.query()
        except (SfumatoError, ValueError):
            seen["no query"] += 1
            continue
        pairs = (
            (0, liar.draw.randint(1, 4)) if neighbours == "add-remove" else liar.draw.sample(range(1, 5), 2)
        )
        one, two = (answer(engines[each], query, tables) for each in pairs)
        if isinstance(one, str) or isinstance(two, str):
            assert one == two, (one, two)
            seen["refused"] += 1
            continue
        seen["answered"] += 1
        fault = find_fault(one, two, core.check_query(query, tables))
        if fault is not None:
            faults.append((number, fault, query))
    return seen, faults


@pytest.mark.parametrize("neighbours", ["add-remove", "replace"])
def test_whoever_plans_a_query_it_is_refused_or_moves_by_its_sensitivity(tmp_path, neighbours):
    seen, faults = run(tmp_path, neighbours)
    assert not faults, faults[0]
    assert seen["answered"] > COUNT / 10, seen
    assert seen["refused"] > COUNT / 10, seen


def test_clips_that_are_not_applied_are_noticed(tmp_path, monkeypatch):
    hold = aggregates.hold_to_norm

    def forget(shares, clip, **places):
        return hold(shares, core.Clip(clip.norm, clip.bound and core.MOST_STEPS), **places)

    monkeypatch.setattr(aggregates, "hold_to_norm", forget)
    assert run(tmp_path, "add-remove", count=150)[1]


def test_rows_that_are_not_bounded_are_noticed(tmp_path, monkeypatch):
    monkeypatch.setattr(aggregates, "_bound_rows", lambda connection, checked: "SELECT * FROM _sf_encoded")
    monkeypatch.setattr(aggregates, "_rank", lambda numbers: np.zeros(numbers.size, np.int64))
    assert run(tmp_path, "add-remove", count=130)[1]
