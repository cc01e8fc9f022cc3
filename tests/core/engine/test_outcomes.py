"""Outcomes and moments of weighed records: an individual adds at most what it is charged for."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sfumato.core.engine.statements import StatementEngine
from sfumato.core.facts.table import parse_table
from sfumato.core.questions.measurement import Request, request_sensitivity
from sfumato.core.questions.moments import SCORE_GRID, Moments
from sfumato.core.questions.question import Queries
from sfumato.core.questions.residuals import Outcomes, Scorer, Term

COLUMNS = {"a": {"range": [0, 2]}, "b": {"range": [0, 1]}}


def describe(**facts):
    return parse_table("t", {"source": "t.parquet", "unit": "p", "columns": COLUMNS, **facts})


def outcomes(**more):
    term = Term(columns=("a",), scores=np.array([-5, 0, 5]))
    return Outcomes(
        columns=("a", "b"),
        target="b",
        targets=np.array([0, 1]),
        scorers=(Scorer(intercept=0, terms=(term,)),),
        edges=np.array([-1, 1]),
        **more,
    )


def count(folder, people, question, table):
    """The exact answers about records with these people, spread over all cells."""
    number = np.arange(len(people))
    rows = {"p": people, "a": number % 3, "b": number % 2}
    pq.write_table(
        pa.table({name: pa.array(each, pa.int64()) for name, each in rows.items()}), folder / "t.parquet"
    )
    (counts,) = StatementEngine(folder).count(table, (question,), progress=lambda _: None)
    return counts.true_values


@pytest.mark.parametrize("records", [1, 3, 7, 5000])
@pytest.mark.parametrize("most", [1, 3])
def test_an_individual_adds_outcomes_for_its_weight(tmp_path, records, most):
    table = describe(bounding="weight", max_records=most)
    question = outcomes()
    alone = count(tmp_path, [9] * records, question, table)
    assert 0 < alone.sum() <= question.contribution(table, "L1")
    if records <= most:
        assert alone.sum() == records * table.grid
    else:
        assert alone.sum() > 0.99 * table.contribution


@pytest.mark.parametrize("records", [1, 2, 2048, 2049, 5000])
def test_an_individual_whose_weight_rounds_to_nothing_adds_nothing_to_moments(tmp_path, records):
    """However many records it has: where weights are as coarse as those of moments, none of them counts."""
    table = describe(bounding="weight", max_records=2)
    question = Moments(columns=("a",), scores=(np.array([[-SCORE_GRID], [0], [SCORE_GRID]]),))
    added = count(tmp_path, [9] * records, question, table)
    request = Request(name="m", counted=question, noise="gaussian", scale=1)
    assert np.linalg.norm(added.astype(float)) <= float(request_sensitivity(table, request))
    assert (added[0] == 0) == (records > 2048)


@pytest.mark.parametrize(("neighbours", "factor"), [("add-remove", 1), ("replace", 2)])
def test_opposite_answers_that_are_exchanged_cost_twice(tmp_path, neighbours, factor):
    """One individual with three records of either outcome, in place of one with three of the other."""
    table = describe(max_records=3, neighbours=neighbours)
    signs = np.array([-1, 1] * 3)
    queries = Queries(cells=6, grid=1, starts=np.array([0, 6]), members=np.arange(6), weights=signs)
    question = outcomes(queries=queries)
    request = Request(name="o", counted=question, noise="gaussian", scale=1)
    added = []
    for outcome in (0, 1):
        rows = {"p": [9] * 3, "a": [0, 1, 2], "b": [outcome] * 3}
        pq.write_table(pa.table(rows), tmp_path / "t.parquet")
        (counts,) = StatementEngine(tmp_path).count(table, (question,), progress=lambda _: None)
        added.append(counts.true_values)
    assert np.abs(added[0] - added[1]).tolist() == [6]
    assert request_sensitivity(table, request) == 3 * factor
