"""Sums of products: the numbers of plain Python, and bounded whatever the records hold."""

import hashlib
from collections import defaultdict

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sfumato.core.engine.statements import StatementEngine
from sfumato.core.errors import RecipeError
from sfumato.core.facts.table import parse_table
from sfumato.core.questions import moments as engine_moments
from sfumato.core.questions.moments import (
    LARGEST_CURVATURE,
    LARGEST_WEIGHT,
    SCORE_GRID,
    LinkWeights,
    Moments,
    MomentTally,
)

SPEC = {"a": {"range": [0, 3]}, "b": {"values": ["x", "y", "z"]}}
A = np.array([[-SCORE_GRID], [-300], [517], [SCORE_GRID]])
B = np.eye(3, dtype=np.int64)[:, 1:] * SCORE_GRID
SILENT = {"progress": lambda _: None}


def describe(**facts):
    return parse_table("t", {"source": "t.parquet", "unit": "row", "columns": SPEC, **facts})


def ask(order=2, *, linked=False):
    largest = LARGEST_WEIGHT if order == 1 else LARGEST_CURVATURE
    link = LinkWeights(
        offsets=(np.array([0, 700, -90_000, 2]), np.array([5, -7, 0])),
        branches=np.array([0, 1, 1]),
        weights=np.stack([np.arange(8), -np.arange(8) * (largest // 8)]),
        shift=8,
    )
    return Moments(columns=("a", "b"), scores=(A, B), order=order, link=link if linked else None)


def record_adds(question, codes):
    rows = [scores[code] for scores, code in zip(question.scores, codes, strict=True)]
    features = [SCORE_GRID, *np.concatenate(rows).tolist()]
    weight = 1
    if question.link is not None:
        link = question.link
        place = sum(int(offsets[code]) for offsets, code in zip(link.offsets, codes, strict=True))
        level = min(max(place >> link.shift, -4), 3) + 4
        weight = int(link.weights[link.branches[codes[-1]], level])
    return np.array(
        [weight * features[i] * (features[j] if question.order == 2 else 1) for i, j in swap(question)],
        object,
    )


def swap(question):
    return [(j, i) for i, j in question.pairs]


def bounded(table, records):
    people = defaultdict(list)
    for number, (person, a, b) in enumerate(records):
        if a is not None and b is not None and (person is not None or table.unit.column is None):
            people[number if table.unit.column is None else person].append((a, b))
    for person, rows in people.items():
        most = table.unit.max_records
        if len(rows) <= most:
            yield from ((row, min(table.grid, 2**10)) for row in rows)
        elif table.bounding == "weight":
            yield from ((row, table.contribution // len(rows) // 2**10) for row in rows)
        else:
            text = [":".join(map(str, [person, *row])).encode() for row in rows]
            order = sorted(range(len(rows)), key=lambda place: hashlib.md5(text[place]).hexdigest())
            yield from ((rows[place], 1) for place in order[:most])


RECORDS = st.lists(
    st.tuples(
        st.one_of(st.integers(0, 3), st.none()),
        st.one_of(st.integers(0, 3), st.none()),
        st.one_of(st.integers(0, 2), st.none()),
    ),
    max_size=30,
)


@pytest.mark.parametrize("facts", [{}, {"unit": "p", "max_records": 2}, {"unit": "p", "bounding": "weight"}])
@given(records=RECORDS)
@settings(max_examples=12)
def test_sums_are_those_of_plain_python(tmp_path_factory, facts, records):
    folder = tmp_path_factory.mktemp("moments")
    labels = [None if b is None else "xyz"[b] for _, _, b in records]
    rows = {
        "p": pa.array([person for person, _, _ in records], pa.int64()),
        "a": pa.array([a for _, a, _ in records], pa.int64()),
        "b": pa.array(labels, pa.string()),
    }
    pq.write_table(pa.table(rows), folder / "t.parquet")
    table = describe(**({"max_records": 2} | facts if "unit" in facts else facts))
    questions = (ask(), ask(linked=True), ask(1), ask(1, linked=True))
    found = StatementEngine(folder).count(table, questions, **SILENT)
    for question, counts in zip(questions, found, strict=True):
        expected = np.zeros(len(question.pairs), object)
        for codes, weight in bounded(table, records):
            if table.unit.column is None:
                weight = 1
            expected = expected + weight * record_adds(question, codes)
        assert counts.true_values.tolist() == expected.tolist()


@given(records=RECORDS)
@settings(max_examples=12)
def test_sums_by_the_nearest_centre_are_those_of_plain_python(tmp_path_factory, records):
    folder = tmp_path_factory.mktemp("centres")
    labels = [None if b is None else "xyz"[b] for _, _, b in records]
    rows = {"a": pa.array([a for _, a, _ in records], pa.int64()), "b": pa.array(labels, pa.string())}
    pq.write_table(pa.table(rows), folder / "t.parquet")
    places = np.array([[0, 0, 0], [400, 0, SCORE_GRID], [0, 0, 0], [-SCORE_GRID, SCORE_GRID, 7]])
    question = Moments(columns=("a", "b"), scores=(A, B), order=1, centres=places)
    (found,) = StatementEngine(folder).count(describe(), (question,), **SILENT)
    expected = np.zeros((4, 4), object)
    for _, a, b in records:
        if a is None or b is None:
            continue
        features = np.concatenate((A[a], B[b]))
        nearest = min(range(4), key=lambda place: (int(((features - places[place]) ** 2).sum()), place))
        expected[nearest] += np.concatenate(([SCORE_GRID], features))
    assert found.true_values.tolist() == expected.reshape(-1).tolist()
    assert question.size(describe()) == 16


@pytest.mark.parametrize(
    "change",
    [{"order": 2}, {"centres": np.zeros((1, 2), np.int64)}, {"centres": np.zeros((0, 3), np.int64)},
     {"centres": np.full((1, 3), SCORE_GRID + 1)}, {"centres": np.zeros((1, 3))}],
)  # fmt: skip
def test_centres_that_do_not_fit_are_refused(change):
    options = {"columns": ("a", "b"), "scores": (A, B), "order": 1, "centres": np.zeros((2, 3), np.int64)}
    with pytest.raises(RecipeError):
        Moments(**(options | change))


def test_floats_are_exact_at_the_ends(monkeypatch):
    """The largest products, weights and links of a whole block still add up exactly."""
    rows = engine_moments._ROWS
    ends = np.full((1, 1), SCORE_GRID)
    for order, largest in ((1, LARGEST_WEIGHT), (2, LARGEST_CURVATURE)):
        link = LinkWeights(
            offsets=(np.zeros(1, np.int64),),
            branches=np.zeros(1, np.int64),
            weights=np.full((1, 2), largest),
            shift=0,
        )
        question = Moments(columns=("a",), scores=(ends,), order=order, link=link)
        spec = {"a": {"range": [0, 0]}}
        table = parse_table(
            "t", {"source": "t", "unit": "p", "max_records": 9, "bounding": "weight", "columns": spec}
        )
        tally = MomentTally(table, question)
        weights = np.full(rows, table.grid, np.int64)
        weights[0] -= 2**10
        tally.add({"a": np.zeros(rows, np.int64)}, weights, rows=rows)
        one = largest * SCORE_GRID**order
        assert set(tally.finish().tolist()) == {one * (rows * 2**10 - 1)}
        assert one * rows * 2**10 <= 2**53


def test_sums_beyond_63_bits_are_held(monkeypatch):
    tally = MomentTally(describe(), ask())
    tally._high += 2**40
    assert set(np.abs(tally.finish()).tolist()) == {2**62}


def test_counting_pairs_of_codes_gives_the_same_sums(monkeypatch):
    random = np.random.default_rng(2)
    sizes = {"a": 9, "b": 7, "c": 2}
    columns = {name: {"range": [0, size - 1]} for name, size in sizes.items()}
    table = parse_table(
        "t", {"source": "t", "unit": "p", "max_records": 3, "bounding": "weight", "columns": columns}
    )
    scores = (
        np.eye(9, dtype=np.int64)[:, 1:] * SCORE_GRID,
        np.hstack(
            [random.integers(-SCORE_GRID, SCORE_GRID, (7, 1)), np.eye(7, dtype=np.int64)[:, 5:] * SCORE_GRID]
        ),
        np.zeros((2, 0), np.int64),
    )
    link = LinkWeights(
        offsets=tuple(random.integers(-(2**12), 2**12, size) for size in sizes.values()),
        branches=np.array([0, 1]),
        weights=random.integers(-LARGEST_CURVATURE, LARGEST_CURVATURE, (2, 64)),
        shift=7,
    )
    codes = {name: random.integers(0, size, 20_000) for name, size in sizes.items()}
    weights = random.integers(0, table.grid + 1, 20_000)
    for each in (None, link):
        question = Moments(columns=tuple(sizes), scores=scores, link=each)
        found = []
        for most in (2**20, 0):
            monkeypatch.setattr(engine_moments, "_MOST_PAIRED", most)
            tally = MomentTally(table, question)
            assert tally._paired == bool(most)
            for start in range(0, 20_000, 7000):
                part = slice(start, start + 7000)
                rows = weights[part].size
                tally.add({name: code[part] for name, code in codes.items()}, weights[part], rows=rows)
            found.append(tally.finish().tolist())
        assert found[0] == found[1]
