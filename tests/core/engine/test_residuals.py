"""Sums of residuals are those that plain Python gives, and hold everybody."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sfumato.core.engine.bounded import BoundedCodes
from sfumato.core.engine.statements import StatementEngine
from sfumato.core.facts.table import parse_table
from sfumato.core.questions.residuals import Link, Residuals, Term

SIZES = {"a": 4, "b": 3, "y": 2}
CLIP = 30
MANY = [(i % 4, i % 3, i % 2) for i in range(500)]
CROWD = [(f"crowd{i}", i % 4, i % 3, i % 2) for i in range(40)]


def describe(*, bounding="truncate", neighbours="add-remove", unit="p"):
    columns = {name: {"range": [0, size - 1]} for name, size in SIZES.items()}
    bound = {} if unit == "row" else {"max_records": 3, "neighbours": neighbours}
    return parse_table(
        "t", {"source": "t.parquet", "unit": unit, "bounding": bounding, "columns": columns, **bound}
    )


def make_question(columns=("a",), *, queries=None, absolute=False, clip=CLIP, link=True):
    generator = np.random.default_rng(5)
    terms = (
        Term(columns=("a",), scores=generator.integers(-9, 10, 4)),
        Term(columns=("b", "a"), scores=generator.integers(-9, 10, 12)),
    )
    return Residuals(
        columns=columns,
        known=("a", "b", "y"),
        target="y",
        targets=np.array([-50, 70]),
        clip=clip,
        intercept=3,
        terms=terms,
        link=Link(low=-12, values=np.arange(25) * 2) if link else None,
        absolute=absolute,
        queries=queries,
    )


def engine_over(folder, records):
    rows = {"p": [each[0] for each in records]}
    rows |= {name: [each[place + 1] for each in records] for place, name in enumerate(SIZES)}
    kinds = {"p": pa.string(), **dict.fromkeys(SIZES, pa.int64())}
    pq.write_table(pa.table({n: pa.array(v, kinds[n]) for n, v in rows.items()}), folder / "t.parquet")
    return StatementEngine(folder)


def count(folder, records, table, question):
    (found,) = engine_over(folder, records).count(table, (question,), progress=lambda _: None)
    return found.true_values


def plain(question, records, table):
    """The sums by plain Python, of records that nothing cuts."""
    sums = np.zeros(table.cells(question.columns), np.int64)
    for _, *codes in records:
        code = dict(zip(SIZES, codes, strict=True))
        score = question.intercept
        for term in question.terms:
            cell = 0
            for name in term.columns:
                cell = cell * SIZES[name] + code[name]
            score += int(term.scores[cell])
        if question.link is not None:
            values = question.link.values
            score = int(values[min(max(score - question.link.low, 0), values.size - 1)])
        residual = int(question.targets[code["y"]]) - score
        residual = abs(residual) if question.absolute else residual
        cell = 0
        for name in question.columns:
            cell = cell * SIZES[name] + code[name]
        sums[cell] += min(max(residual, -question.clip), question.clip)
    return sums


@pytest.mark.parametrize("columns", [(), ("a",), ("y",), ("b", "a")])
@pytest.mark.parametrize("options", [{}, {"absolute": True}, {"link": False}, {"clip": 2**20}], ids=str)
def test_the_sums_are_those_of_plain_python(tmp_path, columns, options):
    question, table = make_question(columns, **options), describe()
    assert (
        count(tmp_path, CROWD, table, question).tolist() == (found := plain(question, CROWD, table)).tolist()
    )
    assert found.any() or not columns


def test_a_model_that_changes_is_scored_as_if_it_were_new(tmp_path):
    table, first = describe(unit="row"), make_question()
    engine = engine_over(tmp_path, CROWD)
    (before,) = engine.count(table, (first,), progress=lambda _: None)
    other = Residuals(
        columns=("b",),
        known=first.known,
        target="y",
        targets=first.targets,
        clip=CLIP,
        terms=(Term(columns=("b",), scores=np.array([5, -5, 1])), first.terms[0]),
    )
    (found,) = engine.count(table, (other,), progress=lambda _: None)
    assert found.true_values.tolist() == plain(other, CROWD, table).tolist()
    (again,) = engine.count(table, (first,), progress=lambda _: None)
    assert again.true_values.tolist() == before.true_values.tolist()


def test_codes_do_not_leave_the_room():
    import pickle

    codes = BoundedCodes({"a": np.array([1, 2])}, None)
    assert "2" not in repr(codes)
    with pytest.raises(TypeError):
        pickle.dumps(codes)
