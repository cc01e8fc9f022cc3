"""Parts of the people: one individual more changes one part only, and no order of the file changes any."""

from collections import Counter
from dataclasses import replace
from fractions import Fraction
from hashlib import md5

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sfumato.core.engine import bounded
from sfumato.core.engine.counts import bounded_query, render, select_part
from sfumato.core.engine.statements import StatementEngine
from sfumato.core.errors import RecipeError, SchemaError
from sfumato.core.facts.part import SALT, Part
from sfumato.core.facts.table import parse_table
from sfumato.core.questions.counts import ClippedMarginal, Marginal
from sfumato.core.questions.residuals import Outcomes, Scorer, Term
from sfumato.recipes.shared.evaluation import split_people

COLUMNS = ("a", "b")
SILENT = {"progress": lambda _: None}
RECORDS = st.lists(
    st.tuples(st.integers(0, 4), st.one_of(st.integers(0, 2), st.none()), st.integers(0, 1)), max_size=30
)
FORMS = [
    {"unit": "p", "max_records": 3},
    {"unit": "p", "max_records": 3, "bounding": "weight"},
    {"unit": "row"},
]


def describe(**facts):
    columns = {"a": {"range": [0, 2]}, "b": {"range": [0, 1]}}
    return parse_table("t", {"source": "t.parquet", "columns": columns, **facts})


def split(share=Fraction(2, 5)):
    return split_people({"fit": 1 - share, "held out": share}, columns=COLUMNS)


def count(folder, records, table):
    """The counts of every part, as dictionaries from cells."""
    people, a, b = zip(*records, strict=True) if records else ((), (), ())
    rows = {"p": pa.array(people, pa.int64()), "a": pa.array(a, pa.int64()), "b": pa.array(b, pa.int64())}
    pq.write_table(pa.table(rows), folder / "t.parquet")
    engine = StatementEngine(folder)
    found = []
    for part in split():
        (counts,) = engine.count(replace(table, part=part), (Marginal(COLUMNS),), **SILENT)
        found.append(counts.true_values.reshape(3, 2))
    return found


@pytest.mark.parametrize("facts", FORMS, ids=["people", "weights", "rows"])
@settings(max_examples=25)
@given(records=RECORDS, own=RECORDS.filter(lambda each: 0 < len(each) < 4), order=st.randoms())
def test_one_individual_more_changes_one_part(tmp_path_factory, facts, records, own, order):
    folder, table = tmp_path_factory.mktemp("parts"), describe(**facts)
    own = [(9, a, b) for _, a, b in (own[:1] if facts["unit"] == "row" else own)]
    before = count(folder, records, table)
    mixed = [*own, *records]
    order.shuffle(mixed)
    after = count(folder, mixed, table)
    moved = [np.abs(one - other).sum() for one, other in zip(after, before, strict=True)]
    assert sum(each > 0 for each in moved) <= 1
    assert max(moved) <= table.contribution
    alone = count(folder, own, table)
    if facts["unit"] == "p":
        for one, other, mine in zip(after, before, alone, strict=True):
            assert (one - other == mine).all()


@pytest.mark.parametrize("facts", FORMS, ids=["people", "weights", "rows"])
def test_the_parts_are_all_of_the_table(tmp_path, facts):
    random = np.random.default_rng(4)
    records = [(int(p), int(a), int(b)) for p, a, b in random.integers(0, (500, 3, 2), (2000, 3))]
    table = describe(**facts)
    found = count(tmp_path, records, table)
    (whole,) = StatementEngine(tmp_path).count(table, (Marginal(COLUMNS),), **SILENT)
    assert (found[0] + found[1]).ravel().tolist() == whole.true_values.tolist()
    # Of equal records each is in a part by itself: every cell is split about as the people are.
    if facts["unit"] == "row":
        shares = found[1] / (found[0] + found[1])
        assert np.abs(shares - 0.4).max() < 5 * np.sqrt(0.24 / 300)


def test_the_parts_are_those_of_plain_python(tmp_path):
    records = [(person, person % 3, 1) for person in range(200)]
    names = [md5(f"{SALT}:{person}".encode()).hexdigest()[:8] for person in range(200)]
    held = sum(int(each, 16) >= int(Fraction(3, 5) * 2**32) for each in names)
    assert count(tmp_path, records, describe(unit="p", max_records=3))[1].sum() == held
    copies = Counter()
    held = 0
    for _, a, b in records:
        copies[a, b] += 1
        digest = md5(f"{SALT}:{a}:{b}:{copies[a, b]}".encode()).hexdigest()[:8]
        held += int(digest, 16) >= int(Fraction(3, 5) * 2**32)
    assert count(tmp_path, records, describe(unit="row"))[1].sum() == held


@pytest.mark.parametrize("facts", FORMS, ids=["people", "weights", "rows"])
@settings(max_examples=20)
@given(records=RECORDS)
def test_the_portable_query_gives_the_same_parts(tmp_path_factory, facts, records):
    table = describe(**facts)
    found = count(tmp_path_factory.mktemp("portable"), records, table)
    for part, expected in zip(split(), found, strict=True):
        with duckdb.connect() as connection:
            connection.execute("CREATE TABLE encoded (u BIGINT, c0 BIGINT, c1 BIGINT)")
            for person, a, b in records:
                codes = (a if a in (0, 1, 2) else None, b if b in (0, 1) else None)
                connection.execute("INSERT INTO encoded VALUES (?, ?, ?)", (person, *codes))
            query = render(bounded_query(replace(table, part=part), COLUMNS), dialect="duckdb")
            counts = np.zeros((3, 2), np.int64)
            for a, b, weight in connection.execute(query).fetchall():
                counts[a, b] += weight
        assert (counts == expected).all()


@pytest.mark.parametrize("dialect", ["postgres", "spark"])
@pytest.mark.parametrize("unit", ["p", "row"])
def test_every_dialect_can_say_it(dialect, unit):
    facts = {"unit": "p", "max_records": 3} if unit == "p" else {"unit": "row"}
    query = bounded_query(replace(describe(**facts), part=split()[1]), COLUMNS[:1])
    text = render(query, dialect=dialect)
    assert "MD5" in text
    assert ('COLLATE "C"' in text) == (dialect == "postgres")


def test_a_split_by_rows_is_told_from_ours(tmp_path, monkeypatch):
    """One record more, put first, moves everybody if parts go by the number of the row."""
    table = describe(unit="row")
    records = [(0, int(a), int(b)) for a, b in np.random.default_rng(2).integers(0, (3, 2), (60, 2))]

    def by_row(table, columns, *, source="encoded"):
        low, high = table.part.low, table.part.high
        numbered = f"(SELECT *, (row_number() OVER () - 1) % 5 AS number FROM {source})"
        return f"(SELECT * FROM {numbered} WHERE number >= {5 * low} AND number < {5 * high}) AS in_part"

    def moves():
        before, after = count(tmp_path, records, table), count(tmp_path, [(0, 0, 0), *records], table)
        return [int(np.abs(one - other).sum()) for one, other in zip(after, before, strict=True)]

    assert sorted(moves()) == [0, 1]
    monkeypatch.setattr(bounded, "select_part", by_row)
    assert min(moves()) > 1


def test_people_split_by_their_records_are_told_from_ours(tmp_path, monkeypatch):
    """A person whose records are split one by one is in both parts."""
    table = describe(unit="p", max_records=3)
    records = [(person, person % 3, record % 2) for person in range(30) for record in range(3)]
    own = [(99, 0, 0), (99, 1, 0), (99, 2, 1)]

    def by_record(table, columns, *, source="encoded"):
        digest = "substr(md5(concat_ws(':', CAST(u AS VARCHAR), CAST(place AS VARCHAR))), 1, 8)"
        within = f"{digest} >= '{table.part.first}'"
        within += "" if table.part.beyond is None else f" AND {digest} < '{table.part.beyond}'"
        return f"(SELECT * FROM {source} WHERE {within}) AS in_part"

    def moves():
        before, after = count(tmp_path, records, table), count(tmp_path, [*records, *own], table)
        return [int(np.abs(one - other).sum()) for one, other in zip(after, before, strict=True)]

    assert sorted(moves()) == [0, 3]
    monkeypatch.setattr(bounded, "select_part", by_record)
    assert min(moves()) > 0


def test_what_cannot_be_asked_of_a_part_is_refused(tmp_path):
    count(tmp_path, [(0, 0, 0)], describe(unit="row"))
    engine, table = StatementEngine(tmp_path), replace(describe(unit="row"), part=split()[0])
    narrow = replace(table, part=replace(split()[0], columns=("a",)))
    with pytest.raises(RecipeError, match="without a column"):
        engine.count(narrow, (Marginal(COLUMNS),), **SILENT)
    people = replace(describe(unit="p", max_records=3), part=split()[0])
    with pytest.raises(RecipeError, match="not asked of a part"):
        engine.count(people, (ClippedMarginal(("a",), Fraction(1)),), **SILENT)
    with pytest.raises(SchemaError, match="share"):
        Part(name="none", low=Fraction(1, 2), high=Fraction(1, 2))


def test_outcomes_are_those_of_plain_python(tmp_path):
    random = np.random.default_rng(8)
    records = [(place, int(a), int(b)) for place, (a, b) in enumerate(random.integers(0, (3, 2), (300, 2)))]
    table = describe(unit="row")
    count(tmp_path, records, table)
    scorer = Scorer(intercept=-3, terms=(Term(columns=("a",), scores=np.array([0, 5, 9])),))
    question = Outcomes(
        columns=COLUMNS, target="b", targets=np.array([0, 1]), scorers=(scorer,), edges=np.array([-2, 2])
    )
    (counts,) = StatementEngine(tmp_path).count(table, (question,), **SILENT)
    expected = np.zeros((3, 2), int)
    for _, a, b in records:
        score = -3 + [0, 5, 9][a]
        expected[sum(edge < score for edge in (-2, 2)), b] += 1
    assert counts.true_values.reshape(3, 2).tolist() == expected.tolist()
    by_group = replace(question, group="a")
    (counts,) = StatementEngine(tmp_path).count(table, (by_group,), **SILENT)
    assert counts.true_values.reshape(3, 3, 2).sum(axis=0).tolist() == expected.tolist()


def test_the_whole_is_asked_where_there_is_no_part():
    assert select_part(describe(unit="row"), COLUMNS) == "encoded"
