"""Counts of individuals: the same as plain Python counts them, and nobody in more cells than allowed."""

import hashlib
import tempfile
from collections import Counter, defaultdict
from datetime import date
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfumato.core.engine.statements import StatementEngine
from sfumato.core.errors import SfumatoError
from sfumato.core.facts.table import parse_table
from sfumato.core.questions.counts import IndividualCounts
from sfumato.core.questions.measurement import Request

SIZES = {"c": 4, "d": 3}
DESCRIBED = {"c": {"range": [0, 3]}, "d": {"values": ["x", "y"], "outside": "other"}}
COLUMNS = [("c",), ("c", "d"), ("d", "c")]
TYPES = {"integer": pa.int64(), "text": pa.string()}
PEOPLE = {
    "integer": st.one_of(st.integers(-1, 1), st.sampled_from([2**62, -(2**62)]), st.none()),
    "text": st.one_of(st.text(max_size=2), st.sampled_from(["1", "01", "1:1", "null", " 1"]), st.none()),
}


def describe(**facts):
    spec = {"source": "t.parquet", "unit": "p", "max_records": 2, "columns": DESCRIBED, **facts}
    return parse_table("t", spec)


def ask(columns, pairs, max_cells, noise="laplace", together=False):
    cells, times = (np.array(each, np.int64) for each in zip(*sorted(pairs), strict=True))
    asked = IndividualCounts(
        columns=columns, max_cells=max_cells, cells=cells, times=times, together=together
    )
    return Request(name="r", counted=asked, noise=noise, scale=Fraction(10))


@st.composite
def records_of(draw, kind):
    """Few people and few values, so that they meet often; numbers of equal records up to seven."""
    some = st.tuples(
        PEOPLE[kind],
        st.one_of(st.integers(-1, 4), st.none()),
        st.sampled_from(["x", "y", "z", None]),
        st.integers(1, 7),
    )
    # Lists of any size are mostly short: half of these are not.
    drawn = draw(st.one_of(st.lists(some, max_size=25), st.lists(some, min_size=15, max_size=30)))
    return [(p, c, d) for p, c, d, times in drawn for _ in range(times)]


@st.composite
def requests_of(draw):
    columns = draw(st.sampled_from(COLUMNS))
    together = draw(st.booleans())
    size = 1 if together else int(np.prod([SIZES[name] for name in columns]))
    pairs = st.tuples(st.integers(0, size - 1), st.integers(1, 8))
    return ask(
        columns, draw(st.sets(pairs, min_size=1, max_size=30)), draw(st.integers(1, 3)), together=together
    )


def count(records, request, *, kind="integer", source="t.parquet", **facts):
    """The answers of the engine to `request` about `records`."""
    table = pa.table(
        {
            "p": pa.array([person for person, _, _ in records], TYPES.get(kind, kind)),
            "c": pa.array([c for _, c, _ in records], pa.int64()),
            "d": pa.array([d for _, _, d in records], pa.string()),
        }
    )
    with tempfile.TemporaryDirectory() as folder:
        if source.endswith(".parquet"):
            pq.write_table(table, Path(folder, source))
        else:
            pyarrow.csv.write_csv(table, Path(folder, source))
        engine = StatementEngine(Path(folder))
        described = describe(source=source, **facts)
        return engine.count(described, (request.counted,), progress=lambda _: None)[0].true_values


def cell_of(columns, c, d):
    codes = {"c": c if c is not None and 0 <= c <= 3 else None, "d": {"x": 0, "y": 1}.get(d, 2)}
    cell = 0
    for name in columns:
        if codes[name] is None:
            return None
        cell = cell * SIZES[name] + codes[name]
    return cell


def reference(records, request, *, rows=False):
    """The answers by plain dictionaries."""
    heads = request.counted
    asked = defaultdict(list)
    for question, (cell, times) in enumerate(zip(heads.cells.tolist(), heads.times.tolist(), strict=True)):
        asked[cell].append((times, question))
    people = defaultdict(Counter)
    for number, (person, c, d) in enumerate(records):
        cell = cell_of(request.columns, c, d)
        cell = 0 if heads.together and cell is not None else cell
        if cell is not None and (rows or person is not None):
            people[number if rows else person][cell] += 1
    answers = [0] * heads.rows
    for person, cells in people.items():
        met = []
        for cell, n in cells.items():
            reached = [(times, question) for times, question in asked[cell] if times <= n]
            if reached:
                times, question = max(reached)
                digest = hashlib.md5(f"{person}:{cell}".encode()).hexdigest()
                met.append((-times, digest, cell, question))
        for *_, question in sorted(met)[: heads.max_cells]:
            answers[question] += 1
    return answers


@pytest.mark.parametrize("kind", PEOPLE)
@given(data=st.data())
def test_answers_are_those_of_plain_python(kind, data):
    records, request = data.draw(records_of(kind)), data.draw(requests_of())
    values = count(records, request, kind=kind)
    assert values.dtype == np.int64
    assert values.tolist() == reference(records, request)


@given(records=records_of("integer"), request=requests_of())
def test_a_row_is_an_individual_of_its_own(records, request):
    values = count(records, request, unit="row", max_records=1)
    assert values.tolist() == reference(records, request, rows=True)


CROWD = [(person, person % 4, "xyz"[person % 3]) for person in range(40)]


def test_ties_fall_differently_for_different_people():
    request = ask(("c",), [(cell, 1) for cell in range(4)], 1)
    records = [(person, c, "x") for person in range(400) for c in range(4)]
    values = count(records, request)
    # Each of 400 people keeps one of four cells: 100 in each, give or take five standard deviations.
    assert values.sum() == 400
    assert np.abs(values - 100).max() < 5 * np.sqrt(75)


@pytest.mark.parametrize(
    ("kind", "people"),
    [
        (pa.bool_(), [True, False]),
        (pa.date32(), [date(2020, 1, 1), date(2020, 1, 2)]),
        (pa.decimal128(20, 2), [Decimal("1.00"), Decimal("1.01")]),
        (pa.int8(), [-128, 127]),
    ],
)
def test_individuals_of_any_type_are_told_apart(kind, people):
    request = ask(("c",), [(cell, 1) for cell in range(4)], 3)
    records = [(person, c, "x") for person in [*people, None] for c in range(4)]
    assert count(records, request, kind=kind).sum() == 3 * len(people)


def test_cells_beyond_the_domain_are_refused():
    with pytest.raises(SfumatoError):
        count(CROWD, ask(("c",), [(4, 1)], 1))


def test_combinations_beyond_64_bits_are_refused_whatever_the_records_hold():
    wide = {name: {"range": [0, 10**7 - 1]} for name in ("c", "e", "f")}
    request = Request(
        name="r",
        counted=IndividualCounts(
            columns=("c", "e", "f"), max_cells=1, cells=np.array([0]), times=np.array([1])
        ),
        noise="laplace",
        scale=Fraction(1),
    )
    for c in (0, 10**7 - 1):
        with tempfile.TemporaryDirectory() as folder:
            pq.write_table(pa.table({"p": [1], "c": [c], "e": [c], "f": [c]}), Path(folder, "t.parquet"))
            with pytest.raises(SfumatoError):
                StatementEngine(Path(folder)).count(
                    describe(columns=wide), (request.counted,), progress=lambda _: None
                )[0]
