"""The contract: every engine gives the numbers that DuckDB gives for the same records, bit for bit."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from helpers.asking import cells
from helpers.contract_tables import source_name
from sfumato.core.errors import SfumatoError
from sfumato.core.facts.table import parse_table
from sfumato.core.questions.choices import NormChoice
from sfumato.core.questions.counts import ClippedMarginal, IndividualCounts
from sfumato.core.questions.measurement import Request
from sfumato.core.questions.moments import SCORE_GRID, LinkWeights, Moments
from sfumato.core.questions.question import Queries
from sfumato.core.questions.residuals import Link, Outcomes, Residuals, Scorer, Term
from sfumato.recipes.shared.evaluation import split_people
from sfumato.sql.planner import plan_query
from sfumato.sql.relation import Source
from sfumato.sql.statement import read_statement

SILENT = {"progress": lambda _: None}
NAMES = [
    *(f"edges by {unit}" for unit in ("who", "number", "day", "cash", "flag", "row")),
    "skewed", "weighted", "empty", "one row", "taxi", "stlouis", "adult",
]  # fmt: skip
PEOPLE = ["skewed", "weighted", "empty", "one row", "edges by who", "edges by day", "taxi", "stlouis"]


@pytest.fixture
def both(place, file_engine, tables):
    """What opens a table twice: in the engine under test, and in files."""
    engine, source_of = place

    def describe(name, **facts):
        if name not in tables:
            pytest.skip("the public tables (../shared) are not beside the project")
        _, spec, marginals = tables[name]
        kept = source_name(name)
        here = parse_table("t", {"source": source_of(kept), **spec, **facts})
        there = parse_table("t", {"source": f"{kept}.parquet", **spec, **facts})
        return (engine, here), (file_engine, there), marginals

    return describe


def same(one, other):
    assert len(one) == len(other)
    for here, there in zip(one, other, strict=True):
        assert here.columns == there.columns
        assert here.true_values.dtype == there.true_values.dtype
        assert here.true_values.tolist() == there.true_values.tolist(), here.columns
        assert not here.true_values.flags.writeable
        assert (here.cells is None) == (there.cells is None)
        if here.cells is not None:
            assert here.cells.tolist() == there.cells.tolist()


@pytest.mark.parametrize("name", NAMES)
def test_counts_are_the_same(both, name):
    (engine, here), (files, there), marginals = both(name)
    if name.startswith("edges"):
        # One column at a time: what a column drops must not hide what another one holds.
        for marginal in marginals:
            engine.check(here, (marginal,))
            same(
                engine.count(here, cells((marginal,)), **SILENT),
                files.count(there, cells((marginal,)), **SILENT),
            )
        return
    asked = tuple(marginals)
    engine.check(here, asked)
    same(
        engine.count(here, cells(asked, asked[-2:]), **SILENT),
        files.count(there, cells(asked, asked[-2:]), **SILENT),
    )


@pytest.mark.parametrize("name", ["edges by who", "edges by row"])
def test_many_columns_at_once_are_the_same(both, name):
    (engine, here), (files, there), _ = both(name)
    asked = (("t_month", "t_hour"), ("d_text", "w_text"), ("c_text", "y_text", "pair"), ("t_whole",))
    same(
        engine.count(here, cells(asked, (("three", "t_day"),)), **SILENT),
        files.count(there, cells(asked, (("three", "t_day"),)), **SILENT),
    )


@pytest.mark.parametrize("most", [1, 2, 1000])
@pytest.mark.parametrize("bounding", ["truncate", "weight"])
def test_every_bound_decides_the_same(both, bounding, most):
    (engine, here), (files, there), marginals = both("skewed", bounding=bounding, max_records=most)
    asked = tuple(marginals)
    same(engine.count(here, cells(asked), **SILENT), files.count(there, cells(asked), **SILENT))


@pytest.mark.parametrize("name", [*PEOPLE, "edges by number", "edges by cash", "edges by row", "adult"])
def test_everybody_is_in_the_same_part(both, name):
    """Counts and outcomes of a part: the digest of a name, or of a record and its number, is the same."""
    (engine, here), (files, there), marginals = both(name)
    known = tuple(dict.fromkeys(column for marginal in marginals[:3] for column in marginal))
    generator = np.random.default_rng(5)
    term = Term(columns=known[:1], scores=generator.integers(-20, 20, here.cells(known[:1])))
    targets = generator.integers(0, 2, here.cells(known[-1:]))
    outcomes = Outcomes(
        columns=known,
        target=known[-1],
        targets=targets,
        scorers=(Scorer(intercept=3, terms=(term,)),),
        edges=np.array([-9, 0, 8]),
        group=known[1],
    )
    asked = (*cells(tuple(marginals[:3])), outcomes)
    found = []
    for part in split_people({"fit": Fraction(2, 3), "held out": Fraction(1, 3)}, columns=known):
        one = engine.count(replace(here, part=part), asked, **SILENT)
        same(one, files.count(replace(there, part=part), asked, **SILENT))
        found.append(one)
    for parts in zip(*found, files.count(there, asked, **SILENT), strict=True):
        fit, held, whole = (each.true_values for each in parts)
        assert (fit + held).tolist() == whole.tolist()


@pytest.mark.parametrize("name", [*PEOPLE, "adult"])
def test_sums_of_residuals_are_the_same(both, name):
    (engine, here), (files, there), marginals = both(name)
    known = tuple(dict.fromkeys(column for marginal in marginals[:3] for column in marginal))
    generator = np.random.default_rng(3)
    size = here.cells(known[-1:])
    asked = tuple(
        Residuals(
            columns=columns,
            known=known,
            target=known[-1],
            targets=generator.integers(-90, 90, size),
            clip=60,
            intercept=-4,
            terms=tuple(
                Term(columns=term, scores=generator.integers(-20, 20, here.cells(term)))
                for term in ((known[0],), known[:2][::-1])
            ),
            link=link,
            absolute=link is None,
        )
        for columns in ((), known[:1])
        for link in (None, Link(low=-25, values=generator.integers(-50, 50, 40)))
    )
    same(engine.count(here, asked, **SILENT), files.count(there, asked, **SILENT))


@pytest.mark.parametrize("name", PEOPLE)
def test_clipped_sums_are_the_same(both, name):
    (engine, here), (files, there), marginals = both(name)
    columns = marginals[0]
    cells = here.cells(columns)
    queries = Queries(
        cells=cells,
        grid=1000,
        starts=[0, cells, cells + 1],
        members=[*range(cells), 0],
        weights=[600 if cell % 2 else -600 for cell in range(cells)] + [799],
    )
    requests = tuple(
        Request(
            name=f"r{place}",
            counted=ClippedMarginal(columns, norm, asked),
            noise="gaussian",
            scale=Fraction(9),
        )
        for place, (norm, asked) in enumerate(
            [(Fraction(1, 3), None), (Fraction(7), None), (Fraction(5, 2), queries)]
        )
    )
    same(
        engine.count(here, tuple(each.counted for each in requests), **SILENT),
        files.count(there, tuple(each.counted for each in requests), **SILENT),
    )


@pytest.mark.parametrize("name", [*PEOPLE, "adult", "edges by row"])
def test_counts_of_individuals_are_the_same(both, name):
    (engine, here), (files, there), marginals = both(name)
    columns = marginals[-1]
    size = min(here.cells(columns), 500)
    asked = IndividualCounts(
        columns=columns, max_cells=2, cells=np.repeat(np.arange(size), 3), times=np.tile([1, 2, 5], size)
    )
    same(engine.count(here, (asked,), **SILENT), files.count(there, (asked,), **SILENT))


@pytest.mark.parametrize("name", [*PEOPLE, "adult", "edges by row"])
def test_sums_of_products_are_the_same(both, name):
    (engine, here), (files, there), marginals = both(name)
    columns = tuple(dict.fromkeys(name for marginal in marginals for name in marginal))[:3]
    random = np.random.default_rng(5)
    scores = tuple(random.integers(-SCORE_GRID, SCORE_GRID, (here.column(each).size, 2)) for each in columns)
    link = LinkWeights(
        offsets=tuple(random.integers(-(2**17), 2**17, each.shape[0]) for each in scores),
        branches=np.arange(scores[-1].shape[0]) % 2,
        weights=random.integers(-100, 100, (2, 64)),
        shift=10,
    )
    asked = (
        Moments(columns=columns, scores=scores),
        Moments(columns=columns, scores=scores, link=link),
        Moments(columns=columns, scores=scores, order=1, link=link),
        Moments(
            columns=columns, scores=scores, order=1, centres=random.integers(-900, 900, (7, 2 * len(columns)))
        ),
    )
    same(engine.count(here, asked, **SILENT), files.count(there, asked, **SILENT))


@pytest.mark.parametrize("name", PEOPLE)
def test_choices_are_scored_the_same(both, name):
    (engine, here), (files, there), marginals = both(name)
    half, one = Fraction(1, 2), Fraction(1)
    norms = NormChoice(
        name="n",
        columns=marginals[0],
        norms=(half, one, Fraction(3), Fraction(10**30)),
        quantile=half,
        epsilon=one,
    )
    same([engine.count(here, (norms,), **SILENT)[0]], [files.count(there, (norms,), **SILENT)[0]])
    times = np.array([1, 2, 3])
    people = IndividualCounts(columns=marginals[0], max_cells=1, cells=0 * times, times=times, together=True)
    same([engine.count(here, (people,), **SILENT)[0]], [files.count(there, (people,), **SILENT)[0]])


STATEMENTS = {
    "skewed": [
        "count(*) FROM t",
        "b, count(*), sum(c), avg(c) FROM t GROUP BY b",
        "a, count(DISTINCT p), median(c) FROM t WHERE a + 1 > 1 GROUP BY a",
        "count(*) FROM t WHERE 1 / (a - 2) > 0 AND c < 3",
        "variance(c) FROM t",
    ],
    "edges by who": [
        "count(*) FROM t WHERE text LIKE '2020%' AND CAST(text AS DATE) > DATE '2020-01-01'",
        "flag, count(*), sum(w) FROM t GROUP BY flag",
        "short, count(DISTINCT who) FROM t WHERE CAST(text AS DOUBLE) BETWEEN 0 AND 5 GROUP BY short",
        "count(*) FROM t WHERE moment < TIMESTAMP '2020-06-01' OR day = DATE '2020-02-29' OR cash = 2.5",
        "t_month, count(*) FROM t WHERE double > 0.05 GROUP BY t_month",
        "count(*) FROM t WHERE instant > TIMESTAMP '2019-01-01' AND wide > 1 AND single < 2",
    ],
    "edges by cash": ["count(*), count(DISTINCT cash) FROM t", "flag, count(*) FROM t GROUP BY flag"],
    "edges by day": ["flag, count(*) FROM t WHERE whole >= 0 GROUP BY flag"],
}
BOUNDS = {"c": {"bins": [0, 1, 2], "bounds": [0, 2]}, "w": {"from": "whole", "bounds": [-5, 5]}}


@pytest.mark.parametrize(
    ("name", "text"), [(name, text) for name, texts in STATEMENTS.items() for text in texts]
)
def test_statements_are_aggregated_the_same(both, tables, name, text):
    _, spec, _ = tables[name]
    stated = {**spec["columns"], **{key: BOUNDS[key] for key in (["c"] if name == "skewed" else ["w"])}}
    (engine, here), (files, there), _ = both(name, columns=stated)
    assert engine.describe(here) == files.describe(there)
    found = []
    for each, table in ((engine, here), (files, there)):
        catalog = {"t": Source(name="t", stored=each.describe(table), table=table)}
        statement = read_statement(f"DP-SELECT 1.0 {text}")
        try:
            plan = plan_query(statement, catalog, epsilon=statement.epsilon, selection_delta=Fraction(0))
        except SfumatoError as error:
            found.append(str(error))
            continue
        each.bind(plan.query, {"t": table})
        counted = each.aggregate(plan.query, {"t": table}, **SILENT)
        found.append([values.tolist() for values in counted.true_values])
    assert found[0] == found[1]
    assert not isinstance(found[0], str), found[0]


def test_a_version_is_keyed_and_stays(both):
    (engine, here), _, _ = both("skewed")
    version = engine.version(here, secret=b"one")
    assert len(version) == 64
    assert engine.version(here, secret=b"one") == version
    assert engine.version(here, secret=b"two") != version
    with engine.snapshot(here):
        assert engine.version(here, secret=b"one") == version


def test_what_public_facts_refuse_is_refused_alike(both):
    for facts in (
        {"unit": "nobody"},
        {"columns": {"a": {"from": "missing", "range": [0, 3]}}},
        {"columns": {"a": {"period": "month"}}},
        {"unit": "c", "columns": {"a": {"range": [0, 3]}}},
    ):
        (engine, here), (files, there), _ = both("skewed", **facts)
        for each, table in ((engine, here), (files, there)):
            with pytest.raises(SfumatoError):
                each.check(table, (("a",),))
