"""Clipped counts: the same as plain Python counts them, and never beyond the norm."""

import gzip
import math
import tempfile
from collections import Counter, defaultdict
from fractions import Fraction
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sfumato.core.engine import counts
from sfumato.core.engine.statements import StatementEngine
from sfumato.core.errors import RecipeError, SchemaError, SourceError
from sfumato.core.facts.table import parse_table
from sfumato.core.questions.choices import NormChoice
from sfumato.core.questions.counts import NORM_GRID, ClippedMarginal
from sfumato.core.questions.measurement import Request
from sfumato.core.questions.question import Queries

SIZES = {"c": 4, "d": 3}
DESCRIBED = {
    "c": {"range": [0, 3]},
    "d": {"values": ["x", "y"], "outside": "other"},
}
VALUES = st.one_of(st.integers(-1, 4), st.none())
RECORDS = st.lists(
    st.tuples(st.one_of(st.integers(0, 5), st.none()), VALUES, st.sampled_from(["x", "y", "z", None])),
    max_size=60,
)
NORMS = st.fractions(min_value=Fraction(1, 50), max_value=8, max_denominator=1000)
MARGINALS = [("c",), ("c", "d"), ("d", "c")]


def describe(**facts):
    spec = {"source": "t.parquet", "unit": "p", "max_records": 2, "columns": DESCRIBED, **facts}
    return parse_table("t", spec)


def ask(columns, norm, queries=None):
    return Request(
        name="r",
        counted=ClippedMarginal(columns, Fraction(norm), queries),
        noise="gaussian",
        scale=Fraction(10),
    )


def write(folder, records, *, source="t.parquet"):
    table = pa.table(
        {
            "p": pa.array([person for person, _, _ in records], pa.int64()),
            "c": pa.array([c for _, c, _ in records], pa.int64()),
            "d": pa.array([d for _, _, d in records], pa.string()),
        }
    )
    path = Path(folder, source)
    if source.endswith(".parquet"):
        pq.write_table(table, path)
        return
    pyarrow.csv.write_csv(table, path)
    if source.endswith(".gz"):
        path.write_bytes(gzip.compress(path.read_bytes()))


def clip(records, requests, *, source="t.parquet"):
    """The answers of the engine to `requests` about `records`."""
    with tempfile.TemporaryDirectory() as folder:
        write(folder, records, source=source)
        counted = StatementEngine(Path(folder)).count(
            describe(source=source), tuple(each.counted for each in tuple(requests)), progress=lambda _: None
        )
    return [each.true_values for each in counted]


def encode(column, value):
    if column == "c":
        return value if value is not None and 0 <= value <= 3 else None
    return {"x": 0, "y": 1}.get(value, 2)


def individual_answers(records, columns, queries):
    """What every individual adds to the answers before it is scaled, by plain dictionaries."""
    people = defaultdict(Counter)
    for person, c, d in records:
        codes = [encode(name, {"c": c, "d": d}[name]) for name in columns]
        if person is None or None in codes:
            continue
        cell = 0
        for name, code in zip(columns, codes, strict=True):
            cell = cell * SIZES[name] + code
        people[person][cell] += 1
    if queries is None:
        return people
    weights = defaultdict(list)
    for row in range(queries.rows):
        for k in range(queries.starts[row], queries.starts[row + 1]):
            weights[int(queries.members[k])].append((row, int(queries.weights[k])))
    answers = {}
    for person, cells in people.items():
        answers[person] = Counter()
        for cell, count in cells.items():
            for row, weight in weights[cell]:
                answers[person][row] += count * weight
    return answers


def reference(records, request):
    """The answers by plain Python numbers."""
    grid = 1 if request.queries is None else request.queries.grid
    bound = request.counted.norm * grid
    size = math.prod(SIZES[name] for name in request.columns)
    sums = [0] * (size if request.queries is None else request.queries.rows)
    for answers in individual_answers(records, request.columns, request.queries).values():
        square = sum(value**2 for value in answers.values())
        factor = NORM_GRID
        if square > bound**2:
            shrunk = (NORM_GRID * bound) ** 2 * (1 - Fraction(1, 2**40))
            factor = math.floor(math.sqrt(float(shrunk) / float(square)))
            assert factor**2 * square <= (NORM_GRID * bound) ** 2
        for row, value in answers.items():
            sums[row] += factor * value
    return sums


@st.composite
def queries_over(draw, cells):
    """Random queries with weights of both signs, the columns of norm 1 at most."""
    rows = draw(st.integers(1, 5))
    grid = draw(st.sampled_from([1, 7, 1000]))
    dense = np.array(
        draw(st.lists(st.integers(-grid, grid), min_size=rows * cells, max_size=rows * cells))
    ).reshape(rows, cells)
    for cell in range(cells):
        while (dense[:, cell] ** 2).sum() > grid**2:
            dense[:, cell] = np.trunc(dense[:, cell] / 2)
    members = [np.flatnonzero(row) for row in dense]
    return Queries(
        cells=cells,
        grid=grid,
        starts=np.cumsum([0, *(each.size for each in members)]),
        members=np.concatenate(members),
        weights=np.concatenate([row[each] for row, each in zip(dense, members, strict=True)]),
    )


@st.composite
def requests_of(draw):
    columns = draw(st.sampled_from(MARGINALS))
    cells = math.prod(SIZES[name] for name in columns)
    return ask(columns, draw(NORMS), draw(st.one_of(st.none(), queries_over(cells))))


@given(records=RECORDS, requests=st.lists(requests_of(), min_size=1, max_size=3))
def test_answers_are_those_of_plain_python(records, requests):
    for values, request in zip(clip(records, requests), requests, strict=True):
        assert values.dtype == np.int64
        assert values.tolist() == reference(records, request)


CROWD = [(person % 6, person % 4, "xy"[person % 2]) for person in range(40)]
SIGNED = Queries(
    cells=12,
    grid=2**20,
    starts=np.array([0, 12, 24]),
    members=np.tile(np.arange(12), 2),
    weights=np.concatenate([np.full(12, 700_000), np.full(12, 700_000) * (-1) ** np.arange(12)]),
)


@pytest.mark.parametrize("queries", [None, SIGNED])
def test_norms_of_any_size_hold_whoever_has_very_many_records(queries):
    records = CROWD + [(9, index % 4, "xyz"[index % 3]) for index in range(10**5)] + [(8, 1, "x")] * 10**4
    requests = [ask(("c", "d"), norm, queries) for norm in (Fraction(1, 10**400), 10**4, 10**30)]
    for values, request in zip(clip(records, requests), requests, strict=True):
        assert values.tolist() == reference(records, request)


@given(
    st.lists(
        st.one_of(
            st.integers(1, 10**6), st.integers(1, 2**60).map(lambda root: root**2), st.integers(1, 2**120)
        ),
        min_size=1,
        max_size=50,
    ),
    st.one_of(NORMS, st.fractions(min_value=Fraction(1, 10**12), max_value=2**61)),
)
def test_no_factor_exceeds_what_the_norm_allows(squares, bound):
    squares = [square for square in squares if square > counts.floor_square(bound)]
    listed = ", ".join(f"({square})" for square in squares) or "(NULL)"
    given_squares = f"SELECT CAST(s AS HUGEINT) AS s FROM (VALUES {listed}) AS t(s)"
    query = f"SELECT s, {counts.scale_factor(bound)} FROM ({given_squares})"
    for square, factor in duckdb.sql(query).fetchall():
        if square is not None:
            assert square > bound**2
            assert 0 <= factor < NORM_GRID + 1
            assert factor**2 * square <= (NORM_GRID * bound) ** 2
            assert (factor + 2) ** 2 * square > (NORM_GRID * bound) ** 2, "smaller than it need be"


@pytest.mark.parametrize("source", ["t.csv", "t.csv.gz"])
@given(records=RECORDS)
@settings(max_examples=15)
def test_text_files_give_the_same_answers(source, records):
    # In a text file a missing value is written as nothing, which no domain here holds either.
    requests = [ask(("c", "d"), Fraction(3, 2)), ask(("c",), 1)]
    records = [record for record in records if record[0] is not None]
    for one, other in zip(clip(records, requests, source=source), clip(records, requests), strict=True):
        assert one.tolist() == other.tolist()


def test_sums_are_held_to_what_fits(monkeypatch):
    monkeypatch.setattr(counts, "_SATURATED", 5 * NORM_GRID)
    cancel = Queries(
        cells=4, grid=1, starts=np.array([0, 1, 2]), members=np.array([0, 1]), weights=np.array([1, -1])
    )
    records = [(1, 0, "x")] * 50 + [(1, 1, "x")] * 50
    (values,) = clip(records, [ask(("c",), 1000, cancel)])
    assert values.tolist() == [5 * NORM_GRID, -5 * NORM_GRID]


def within(records, levels, columns=("c", "d")):
    choice = NormChoice(
        name="n", columns=columns, norms=tuple(levels), quantile=Fraction(9, 10), epsilon=Fraction(1)
    )
    with tempfile.TemporaryDirectory() as folder:
        write(folder, records)
        engine = StatementEngine(Path(folder))
        return engine.count(describe(), (choice,), progress=lambda _: None)[0].true_values.tolist()


@given(records=RECORDS, levels=st.lists(NORMS, min_size=1, max_size=5, unique=True))
def test_individuals_within_norms_are_those_of_plain_python(records, levels):
    levels = sorted(levels)
    squares = [
        sum(value**2 for value in answers.values())
        for answers in individual_answers(records, ("c", "d"), None).values()
    ]
    expected = [sum(square <= level**2 for square in squares) for level in levels]
    assert within(records, levels) == [*expected, len(squares)]


def test_what_cannot_be_held_to_a_norm_is_refused(tmp_path):
    write(tmp_path, CROWD)
    engine = StatementEngine(tmp_path)
    rows = parse_table("t", {"source": "t.parquet", "unit": "row", "columns": DESCRIBED})
    choice = NormChoice(
        name="n", columns=("c",), norms=(Fraction(1),), quantile=Fraction(1, 2), epsilon=Fraction(1)
    )
    with pytest.raises(SchemaError, match="name a unit column"):
        engine.count(rows, (ask(("c",), 1).counted,), progress=lambda _: None)
    with pytest.raises(SchemaError, match="name a unit column"):
        engine.count(rows, (choice,), progress=lambda _: None)[0]
    with pytest.raises(RecipeError, match="12 cells"):
        engine.count(describe(), (ask(("c",), 1, SIGNED).counted,), progress=lambda _: None)


def test_a_failure_does_not_quote_a_record(tmp_path, monkeypatch):
    write(tmp_path, CROWD)
    monkeypatch.setattr(counts, "scale_factor", lambda bound: "error('somebody')")
    with pytest.raises(SourceError, match="could not be read to the end") as caught:
        StatementEngine(tmp_path).count(
            describe(), tuple(each.counted for each in (ask(("c",), 1),)), progress=lambda _: None
        )
    assert "somebody" not in str(caught.value)


def test_a_weight_without_an_absolute_value_is_refused():
    with pytest.raises(RecipeError, match="exceeds 1"):
        Queries(
            cells=1,
            grid=1,
            starts=np.array([0, 1]),
            members=np.array([0]),
            weights=np.array([np.iinfo(np.int64).min]),
        )
