"""The portable SQL, run by DuckDB: the numbers of plain Python, and one text for every engine."""

import hashlib
import math
from collections import Counter, defaultdict
from fractions import Fraction

import duckdb
import numpy as np
import pyarrow as pa
import pytest
import sqlglot
from hypothesis import given
from hypothesis import strategies as st

from sfumato.core.engine import counts
from sfumato.core.facts.table import parse_table
from sfumato.core.questions.counts import NORM_GRID, IndividualCounts
from sfumato.core.questions.measurement import Request
from sfumato.servers.engine import counted_query

SIZES = {"a": 3, "b": 2, "c": 4}
COLUMNS = tuple(SIZES)
RECORDS = st.lists(
    st.tuples(
        st.one_of(st.integers(0, 4), st.none()),
        *(st.one_of(st.integers(0, size - 1), st.none()) for size in SIZES.values()),
    ),
    max_size=40,
)
MARGINALS = (("a",), ("c", "a"), ("a", "c"), (), ("b", "c"), ("a", "b", "c"), ("a",))


def describe(*, unit="p", bounding="truncate", most=2):
    spec = {"source": "t.parquet", "unit": unit, "bounding": bounding}
    spec["columns"] = {name: {"range": [0, size - 1]} for name, size in SIZES.items()}
    return parse_table("t", spec | ({} if unit == "row" else {"max_records": most}))


def run(query, records, columns=COLUMNS, **beside):
    """The rows of `query`, with `encoded` made from `records` as the engines make it."""
    rows = [[person, *(codes[COLUMNS.index(name)] for name in columns)] for person, *codes in records]
    names = ["u", *(f"c{index}" for index in range(len(columns)))]
    encoded = pa.table({n: pa.array([row[i] for row in rows], pa.int64()) for i, n in enumerate(names)})
    with duckdb.connect() as connection:
        for name, table in {"encoded": encoded, **beside}.items():
            connection.register(name, table)
        return connection.sql(counts.render(query, dialect="duckdb")).fetchall()


def bounded(table, records, columns=COLUMNS):
    """The bounded records and their weights, by plain dictionaries."""
    people = defaultdict(list)
    for number, (person, *codes) in enumerate(records):
        kept = [codes[COLUMNS.index(name)] for name in columns]
        if None not in kept and (person is not None or table.unit.column is None):
            people[number if table.unit.column is None else person].append(tuple(kept))
    for person, rows in people.items():
        most = table.unit.max_records
        if len(rows) <= most:
            yield from ((row, table.grid) for row in rows)
        elif table.bounding == "weight":
            yield from ((row, table.contribution // len(rows)) for row in rows)
        else:
            text = [":".join(map(str, [person, *row])).encode() for row in rows]
            order = sorted(range(len(rows)), key=lambda place: hashlib.md5(text[place]).hexdigest())
            yield from ((rows[place], 1) for place in order[:most])


def cell_of(columns, row, marginal):
    cell = 0
    for name in marginal:
        cell = cell * SIZES[name] + row[columns.index(name)]
    return cell


@pytest.mark.parametrize("facts", [{}, {"bounding": "weight"}, {"unit": "row"}])
@given(records=RECORDS)
def test_bounded_records_are_those_of_plain_python(facts, records):
    table = describe(**facts)
    found = run(counts.bounded_query(table, COLUMNS), records)
    assert Counter(found) == Counter((*row, weight) for row, weight in bounded(table, records))


@pytest.mark.parametrize("facts", [{}, {"bounding": "weight"}, {"unit": "row"}])
@given(records=RECORDS)
def test_many_marginals_are_counted_at_once(facts, records):
    table = describe(**facts)
    columns = counts.all_columns(MARGINALS)
    expected = Counter()
    for row, weight in bounded(table, records, columns):
        for place, marginal in enumerate(MARGINALS):
            expected[place, cell_of(columns, row, marginal)] += weight
    found = run(counted_query(table, MARGINALS), records, columns)
    assert {(m, cell): n for m, cell, n in found} == dict(expected)
    assert len(found) == len(expected)


def test_marginals_of_more_columns_than_bits_are_counted():
    names = [f"x{index}" for index in range(70)]
    table = parse_table(
        "t", {"source": "t", "unit": "row", "columns": {name: {"range": [0, 1]} for name in names}}
    )
    marginals = (*((name,) for name in names), *((names[0], name) for name in names[1:]))
    with duckdb.connect() as connection:
        codes = ", ".join(f"{index % 2} AS c{index}" for index in range(70))
        connection.execute(f"CREATE TABLE encoded AS SELECT {codes} FROM range(3)")
        found = connection.sql(counted_query(table, marginals)).fetchall()
    assert {m: (cell, n) for m, cell, n in found} == {
        place: (cell, 3) for place, cell in enumerate([index % 2 for index in [*range(70), *range(1, 70)]])
    }


@given(records=RECORDS, most=st.integers(1, 3), unit=st.sampled_from(["p", "row"]))
def test_individuals_are_counted_as_by_plain_python(records, most, unit):
    table, columns = describe(unit=unit), ("c", "a")
    pairs = [(cell, times) for cell in range(0, 12, 2) for times in (1, 2, 4)]
    cells, times = (np.array(each) for each in zip(*pairs, strict=True))
    request = Request(
        name="r",
        counted=IndividualCounts(columns=columns, max_cells=most, cells=cells, times=times),
        noise="laplace",
        scale=Fraction(10),
    )
    people = defaultdict(Counter)
    for number, (person, a, _, c) in enumerate(records):
        if None not in (a, c) and (unit == "row" or person is not None):
            people[number if unit == "row" else person][c * 3 + a] += 1
    expected = Counter()
    for person, shares in people.items():
        met = []
        for cell, n in shares.items():
            reached = [(t, place) for place, (x, t) in enumerate(pairs) if x == cell and t <= n]
            if reached:
                digest = hashlib.md5(f"{person}:{cell}".encode()).hexdigest()
                met.append((-max(reached)[0], digest, cell, max(reached)[1]))
        expected.update(place for *_, place in sorted(met)[:most])
    questions = pa.table({"cell": cells, "times": times, "question": np.arange(len(pairs))})
    found = run(counts.individuals_query(table, request.counted), records, columns, questions=questions)
    assert dict(found) == dict(expected)


@pytest.mark.parametrize("dialect", ["duckdb", "postgres", "spark"])
def test_every_query_is_told_in_every_dialect(dialect):
    table = describe(bounding="weight")
    told = counts.render(counted_query(table, MARGINALS), dialect=dialect)
    assert sqlglot.parse_one(told, read=dialect)
    ordered = counts.render(counts.bounded_query(describe(), COLUMNS), dialect=dialect)
    assert ('COLLATE "C"' in ordered) == (dialect == "postgres")


def test_a_root_rounds_the_same_way_for_any_square():
    # Two words of 60 bits: exact for small squares, one rounding of each word for large ones.
    squares = [1, 2**53 - 1, 2**60, 2**60 + 1, 3**70, 2**120 - 1]
    factor = counts.render(f"SELECT {counts.scale_factor(Fraction(3))} AS f FROM t", dialect="duckdb")
    constant = float((NORM_GRID * 3) ** 2 * (1 - Fraction(1, 2**40)))
    for square in squares:
        with duckdb.connect() as connection:
            connection.execute(f"CREATE TABLE t AS SELECT {square}::HUGEINT AS s")
            (found,) = connection.execute(factor).fetchone()
        high, low = divmod(square, 2**60)
        assert found == math.floor(math.sqrt(constant / (float(high) * 2.0**60 + float(low))))
        assert found**2 * square <= (NORM_GRID * 3) ** 2
