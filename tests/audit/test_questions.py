"""Tries to break every kind of question: adversarial neighbours, noise off and on, and planted faults.

With the noise off, the exact answers to a question about neighbouring tables lie no further apart than its
sensitivity, scores no further than its rate allows, and some pair comes near to that, or the audit would see
too little. With the noise on, no event proves more than is charged. What one fault of the bounding, of a
sensitivity or of a rate does to one kind of question is noticed. Recipes ask nothing else: see
tests/recipes/test_contract.py. Series, parts, windows and samples have audits of their own.
"""

import math
from dataclasses import replace
from fractions import Fraction
from functools import partial
from itertools import combinations, product

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sfumato.accounting import mu_to_delta
from sfumato.core.engine import bounded, duckdb
from sfumato.core.engine import counts as engine_counts
from sfumato.core.engine.gradients import TrueRecords
from sfumato.core.engine.statements import StatementEngine
from sfumato.core.facts.table import parse_table
from sfumato.core.noise import add_noise, add_sparse_noise, exponential_choice
from sfumato.core.questions import choices, counts
from sfumato.core.questions import moments as engine_moments
from sfumato.core.questions.choices import Candidate, Choice, NormChoice
from sfumato.core.questions.counts import (
    CappedMarginal,
    ClippedMarginal,
    IndividualCounts,
    Marginal,
    OccupiedCells,
)
from sfumato.core.questions.gradients import Gradients
from sfumato.core.questions.measurement import (
    Measurement,
    Request,
    ask_cost,
    request_grid,
    request_sensitivity,
)
from sfumato.core.questions.moments import Moments
from sfumato.core.questions.question import Queries
from sfumato.core.questions.residuals import Outcomes, Residuals
from sfumato.inference import Domain
from sfumato.recipes import Additive, Clusters, Linear, Logistic, Network
from sfumato.recipes.base import follow_recipe
from sfumato.recipes.shared.budget import calibrate
from sfumato.recipes.shared.compression import Compression, take_contrasts

MOST = 3
CROWD = [(f"c{i // 2}", float(i % 5), "xyz"[i % 3], float(i % 11), i % 7) for i in range(120)]
PEOPLE = {
    "nobody": [],
    "one record": [(1.0, "x", 10.0, 6)],
    "all in one cell": [(4.0, "z", 10.0, 6)] * MOST,
    "in three cells": [(0.0, "x", 0.0, 0), (1.0, "y", 5.0, 3), (2.0, "z", 10.0, 6)],
    "far over the bound, in one cell": [(4.0, "z", 10.0, 6)] * 400,
    "far over the bound, at the other end": [(0.0, "x", 0.0, 0)] * 400,
    "a record in each cell": [(float(i % 5), "xyz"[i % 3], float(i % 11), i % 7) for i in range(60)],
    "at opposite ends": [(0.0, "x", 0.0, 6), (4.0, "z", 10.0, 0)] * 9,
    "where signs agree": [(0.0, "x", 5.0, 3), (1.0, "y", 5.0, 3)] * 90,
    "beyond all bounds": [(1e300, "zebra", 1e300, -(10**9)), (-7.0, "", -1e300, 10**9)] * 9,
    "no numbers": [(math.nan, "x", math.nan, 1), (math.inf, "y", -math.inf, 6)] * 9,
    "missing": [(None, None, None, None), (None, "x", 3.0, 1), (1.0, None, 10.0, 6)] * 9,
    "long texts": [(3.0, "x" * 10_000, 2.5, 2), (2.5, "xyz", 0.1, 5)] * 9,
}
VARIANTS = [
    (neighbours, bounding)
    for neighbours in ("add-remove", "replace")
    for bounding in ("truncate", "weight", "row")
]
DELTA = Fraction(1, 10**6)


def describe(neighbours="add-remove", bounding="truncate"):
    columns = {
        "a": {"range": [0, 4], "outside": "clamp"},
        "b": {"values": ["x", "y", "z"], "outside": "other"},
        "c": {"bounds": [0, 10]},
        "t": {"range": [0, 6], "outside": "clamp"},
    }
    unit = {"unit": "row"} if bounding == "row" else {"unit": "p", "max_records": MOST, "bounding": bounding}
    return parse_table("t", {"source": "t.parquet", "neighbours": neighbours, **unit, "columns": columns})


class World:
    """The crowd with each of the people in turn, each behind an engine of its own."""

    def __init__(self, folder):
        kinds = (pa.string(), pa.float64(), pa.string(), pa.float64(), pa.int64())
        self.engines = {}
        for place, (name, records) in enumerate(PEOPLE.items()):
            (folder / str(place)).mkdir()
            rows = zip(*CROWD, *(("eve", *each) for each in records), strict=True)
            columns = [pa.array(each, kind) for each, kind in zip(rows, kinds, strict=True)]
            pq.write_table(pa.table(columns, ["p", "a", "b", "c", "t"]), folder / str(place) / "t.parquet")
            self.engines[name] = StatementEngine(folder / str(place))

    def count(self, name, table, asks):
        """What is noised of each request, and the scores of each choice, as numbers of any size.

        What the engine counts is asked for at once, so that the table is read and bounded once.
        """
        engine, questions = self.engines[name], [read_question(ask) for ask in asks]
        counted = tuple(each for each in questions if not isinstance(each, (Gradients, Choice)))
        found = iter(engine.count(table, counted, progress=lambda _: None) if counted else ())
        records = {
            each.columns: engine.read_records(table, each.columns, progress=lambda _: None)
            for each in questions
            if isinstance(each, Gradients)
        }
        exact = []
        for ask, question in zip(asks, questions, strict=True):
            if isinstance(question, Gradients):
                of = records[question.columns]
                values = of.sum_gradients(question, np.ones(of.individuals, bool))
            elif isinstance(question, Choice):
                values = np.array([self.score(engine, table, each) for each in ask.candidates], object)
            else:
                values = read_values(table, ask, question, next(found))
            exact.append(values.astype(object))
        return exact

    def score(self, engine, table, candidate):
        (found,) = engine.count(table, (Marginal(candidate.columns),), progress=lambda _: None)
        queries = candidate.queries
        return candidate.score(found.true_values if queries is None else queries.apply(found.true_values))


def read_question(ask):
    """What the engine is asked: counts of all cells where sums of them are noised."""
    question = ask.counted if isinstance(ask, Request) else ask
    return Marginal(question.columns) if isinstance(question, Marginal) else question


def read_values(table, ask, question, found):
    """What is noised of an engine's answer."""
    if not isinstance(ask, Request):
        return np.array(ask.score(found.true_values))
    if found.cells is not None:
        whole = np.zeros(question.size(table), np.int64)
        whole[found.cells] = found.true_values
        return whole
    if isinstance(ask.counted, Marginal) and ask.counted.queries is not None:
        return ask.counted.queries.apply(found.true_values)
    return found.true_values


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    return World(tmp_path_factory.mktemp("world"))


def make_queries(dense, grid):
    members = [np.flatnonzero(row) for row in dense]
    return Queries(
        cells=dense.shape[1],
        grid=grid,
        starts=np.cumsum([0, *(each.size for each in members)]),
        members=np.concatenate(members),
        weights=np.concatenate([row[each] for row, each in zip(dense, members, strict=True)]),
    )


# The questions of each kind, about the columns a (5 values) and b (3, and others): 20 cells.

CELLS = np.arange(20)
SUMS = make_queries(np.stack([CELLS < 7, CELLS >= 7]).astype(np.int64), 1)
SIGNS = make_queries(np.stack([(-1) ** CELLS, np.where(CELLS < 10, 1, -1)]) * 700_000, 2**20)
AB = ("a", "b")


def ask_laplace(table, counted, **more):
    probe = Request(name="laplace", counted=counted, noise="laplace", scale=Fraction(1), **more)
    scale = request_sensitivity(table, probe)
    return replace(probe, scale=scale, **{key: 3 * math.ceil(scale) for key in more})


def ask_both(table, counted):
    return [ask_laplace(table, counted), calibrate(table, "gaussian", counted, Fraction(1))]


def ask_gaussian(table, *counted):
    return [calibrate(table, "gaussian", each, Fraction(1)) for each in counted]


def ask_contrasts(table):
    sizes = {name: table.column(name).size for name in AB}
    singles = {name: (np.full(size, 100.0), 1.0) for name, size in sizes.items()}
    return ask_gaussian(table, Marginal(AB, take_contrasts(Compression(Domain(sizes), singles), AB).queries))


def ask_individuals(table):
    cells, times = np.repeat(CELLS, 2), np.tile([1, 4], 20)
    return ask_both(table, IndividualCounts(columns=AB, max_cells=2, cells=cells, times=times))


def ask_crowds(table):
    times = np.array([1, 2, 4, 9])
    return ask_both(
        table, IndividualCounts(columns=AB, max_cells=1, cells=0 * times, times=times, together=True)
    )


def constant(size, value):
    return np.full(size, value, np.int64)


def choose_marginal(table, penalty=0):
    """Candidates that one individual pulls apart: it brings counts nearer to some estimates only."""
    far = 10**6 * table.grid
    return [
        Choice(
            name="choice",
            candidates=(
                Candidate(columns=("a",), estimate=partial(constant, 5, 0), weight=3, penalty=penalty),
                Candidate(columns=("a",), estimate=partial(constant, 5, far), weight=3, penalty=-(15 * far)),
                Candidate(columns=("b",), estimate=partial(constant, 4, 10 * table.grid), weight=1),
                Candidate(columns=AB, estimate=partial(constant, 2, 0), weight=2, queries=SUMS),
            ),
            epsilon=Fraction(1),
        )
    ]


def choose_norm(table):
    norms = tuple(Fraction(k, 2) for k in (1, 2, 3, 7, 20))
    quantiles = (Fraction(1, 2), Fraction(2, 7), Fraction(9, 10))
    return [
        NormChoice(name="norm", columns=AB, norms=norms, quantile=each, epsilon=Fraction(1, 2))
        for each in quantiles
    ]


def follow(world, recipe, kind):
    """The questions of `kind` of a run about the crowd, one of each name; and the table of its plan."""

    def ask(table):
        plan = recipe.plan(table, epsilons=(Fraction(20),), delta=DELTA)
        asked = {}

        def answer(asks):
            given = []
            for each in asks:
                asked.setdefault((each.columns, each.name.split(":")[0].strip("0123456789 ")), each)
                (exact,) = world.count("one record", plan.table, [replace(each, part=None)])
                noisy = add_noise(exact.astype(np.int64), kind="gaussian", scale=each.scale)
                grid = request_grid(plan.table, each)
                given.append(Measurement(request=each, noisy_values=noisy, grid=grid))
            return tuple(given)

        follow_recipe(plan, answer=answer, progress=lambda _: None)
        found = [replace(each, part=None) for each in asked.values() if isinstance(each.counted, kind)]
        assert found
        return plan.table, found

    return ask


# Of each kind: who makes its questions, and what part of the bound some pair of neighbours reaches.
KINDS = {
    "cells": (lambda table: ask_both(table, Marginal(AB)), 1),
    "sums of cells": (lambda table: ask_both(table, Marginal(AB, SUMS)), 1),
    "signed sums": (lambda table: ask_gaussian(table, Marginal(AB, SIGNS)), 0.9),
    "contrasts": (ask_contrasts, 0.7),
    "occupied cells": (lambda table: [ask_laplace(table, OccupiedCells(AB), threshold=1)], 1),
    "cells under a bound of their own": (lambda table: ask_both(table, CappedMarginal(AB, 2)), 1),
    "sums under a bound of their own": (lambda table: ask_both(table, CappedMarginal(AB, 1, SUMS)), 1),
    "cells under a bound beyond that of the table": (
        lambda table: ask_both(table, CappedMarginal(AB, 10**6)),
        1,
    ),
    "cells under a norm": (lambda table: ask_gaussian(table, ClippedMarginal(AB, Fraction(7, 2))), 0.9),
    "sums under a norm": (
        lambda table: ask_gaussian(
            table, *(ClippedMarginal(AB, Fraction(7, 2), each) for each in (SUMS, SIGNS))
        ),
        0.8,
    ),
    "individuals": (ask_individuals, 1),
    "individuals by all their records": (ask_crowds, 1),
    "a choice of a marginal": (choose_marginal, 1),
    "a choice of a norm": (choose_norm, 1),
}
RECIPES = {
    "moments": (Linear(table="t", target="t"), Moments, 0.3),
    "weighted moments": (Logistic(table="t", target="b", positive="y"), Moments, 0.3),
    "sums by the nearest centre": (Clusters(table="t", columns=["c", "t"], clusters=3), Moments, 0.4),
    "residuals of numbers": (Additive(table="t", target="t", pairs=2), Residuals, 0.2),
    "residuals of counts": (Additive(table="t", target="t", pairs=0, family="counts"), Residuals, 0.2),
    "residuals of classes": (Additive(table="t", target="b", pairs=1), Residuals, 0.2),
    "outcomes": (Linear(table="t", target="t", holdout="0.4", groups="b"), Outcomes, 0.3),
    "gradients": (
        Network(table="t", target="t", hidden=[3], steps=2, clip="0.01", family="classification"),
        Gradients,
        0.5,
    ),
}
# Where every row is an individual, there is no norm and no bound to choose.
NEEDS_PEOPLE = {"cells under a norm", "sums under a norm", "a choice of a bound", "a choice of a norm"}


def list_asks(world, kind, table):
    """The table that is asked, the questions of a kind, and the part of their bounds that is reached."""
    if kind in KINDS:
        make, least = KINDS[kind]
        return table, make(table), least
    recipe, question, least = RECIPES[kind]
    return *follow(world, recipe, question)(table), least


def find_reach(world, table, asks):
    """The largest distance of neighbours, as a part of what is declared, over all questions and people."""
    row = table.unit.column is None
    names = [name for name, records in PEOPLE.items() if not row or len(records) <= 1]
    found = {name: world.count(name, table, asks) for name in names}
    pairs = combinations(names, 2) if table.unit.neighbours == "replace" else product(names, ["nobody"])
    return max(
        float(find_loss(table, ask, found[one][place] - found[other][place]))
        for one, other in pairs
        for place, ask in enumerate(asks)
    )


def find_loss(table, ask, moved):
    """A distance of exact answers as a part of what is declared; exact, but for a root of Gaussian ones."""
    if not isinstance(ask, Request):
        return 2 * ask.rate(table) * max(map(abs, moved.tolist())) / ask.epsilon
    declared = request_sensitivity(table, ask)
    if ask.noise == "laplace":
        return Fraction(int(sum(map(abs, moved)))) / declared
    square = Fraction(int(sum(each**2 for each in moved))) / declared**2
    return square if square > 1 else math.sqrt(square)


@pytest.mark.parametrize(
    ("kind", "neighbours", "bounding"),
    [
        (kind, *variant)
        for variant in VARIANTS  # one after another: engines keep a table bounded as it was asked about last
        for kind in (*KINDS, *RECIPES)
        if (variant[1] != "row" or kind not in NEEDS_PEOPLE)
        # Weights bound a recipe's questions by the same code whether people are removed or replaced.
        and (variant != ("replace", "weight") or kind in KINDS)
    ],
)
def test_no_individual_moves_an_answer_further_than_declared(world, kind, neighbours, bounding):
    table = describe(neighbours, bounding)
    table, asks, least = list_asks(world, kind, table)
    reach = find_reach(world, table, asks)
    assert reach <= 1
    if (neighbours, bounding) == ("add-remove", "truncate"):
        assert reach >= 0.999 * least, "the bound should be nearly reached, or the audit tries too little"


# Planted faults: what each breaks, in which kind of question, and how.


def unbounded_queries(connection, table, columns, sealed, plain=duckdb.bounded_queries):
    plain(connection, table, columns, sealed)
    codes = ", ".join(f"c{place}" for place in range(len(columns)))
    return [f"SELECT {codes} FROM inside", f"SELECT {codes} FROM encoded"]


def in_all_cells(connection, table, request, plain=bounded.count_individuals):
    return plain(connection, table, replace(request, max_cells=10**9))


def in_every_class(connection, table, request, plain=bounded.count_individuals):
    counts = plain(connection, table, request).true_values
    return bounded.TrueCounts(request.columns, counts[::-1].cumsum()[::-1])


def skip_symmetric_clip(values, low, high):
    return values if low == -high else np.minimum(values, high)


def count_twice(features, weighed, centres, plain=engine_moments._sum_nearest):
    return plain(features, weighed, centres) + plain(features, weighed, centres[::-1])[::-1]


def forget_products(question):
    return sum(int((each.astype(object) ** 4).sum(axis=1).max()) for each in question.scores if each.size)


def divide(function, by):
    return lambda *given, **named: function(*given, **named) / by


FAULTS = {
    "records are not bounded": ("cells", duckdb, "bounded_queries", unbounded_queries),
    "half the sensitivity": (
        "cells",
        counts,
        "histogram_sensitivity",
        divide(counts.histogram_sensitivity, 2),
    ),
    "half the sensitivity of occupied cells": (
        "occupied cells",
        counts,
        "histogram_sensitivity",
        divide(counts.histogram_sensitivity, 2),
    ),
    "a person in more cells": ("individuals", duckdb, "count_individuals", in_all_cells),
    "a bound of its own is not kept": (
        "cells under a bound of their own",
        engine_counts,
        "cap_records",
        lambda table, most: table,
    ),
    "a norm is not kept": (
        "cells under a norm",
        engine_counts,
        "scale_factor",
        lambda bound: f"CAST({counts.NORM_GRID} AS BIGINT)",
    ),
    "twice the norm": (
        "sums under a norm",
        engine_counts,
        "scale_factor",
        lambda bound, plain=engine_counts.scale_factor: plain(2 * bound),
    ),
    "a person in every class below its own": (
        "individuals by all their records",
        duckdb,
        "count_individuals",
        in_every_class,
    ),
    "weights of candidates are forgotten": (
        "a choice of a marginal",
        choices,
        "find_sensitivity",
        divide(choices.find_sensitivity, 3),
    ),
    "twice the rate of a norm": (
        "a choice of a norm",
        NormChoice,
        "rate",
        divide(NormChoice.rate, Fraction(1, 2)),
    ),
    "a clip is skipped": ("residuals of numbers", bounded.np, "clip", skip_symmetric_clip),
    "a record in two clusters": ("sums by the nearest centre", engine_moments, "_sum_nearest", count_twice),
    "products are forgotten": ("moments", Moments, "_bound_record", forget_products),
    "gradients count twice": (
        "gradients",
        TrueRecords,
        "sum_gradients",
        lambda *given, plain=TrueRecords.sum_gradients: 2 * plain(*given),
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_noticed(world, monkeypatch, fault):
    kind, place, name, faulty = FAULTS[fault]
    table, asks, _ = list_asks(world, kind, describe())
    if fault == "a clip is skipped":  # so narrow that the clip holds everybody
        asks = [replace(each, counted=replace(each.counted, clip=1)) for each in asks]
    assert find_reach(world, table, asks) <= 1
    monkeypatch.setattr(place, name, faulty)
    if place is Moments:
        table, asks, _ = list_asks(world, kind, describe())
    assert find_reach(world, table, asks) > 1


# With the noise on: the best event of the two worst neighbours, drawn many times.

RUNS = 20_000


def share_gap(one, two, epsilon):
    """By how much the draws of one table exceed those of the other beyond epsilon, at the best threshold."""
    ends = np.quantile(np.concatenate((one, two)), np.linspace(0, 1, 200))
    above = [((one >= end).mean(), (two >= end).mean()) for end in ends]
    return max(first - math.exp(epsilon) * second for first, second in above)


def allowed_gap(cost, epsilon):
    """The delta at `epsilon` of what was charged."""
    if cost.epsilon is not None:
        return 1.0 if epsilon < cost.epsilon else 0.0
    return mu_to_delta(math.sqrt(cost.mu_squared), epsilon)


def tell_apart(noisy, moved, kind):
    """What tells best whether draws are around `moved` or around zero: the ratio of likelihoods."""
    if kind == "gaussian":
        return noisy @ moved
    return (np.abs(noisy) - np.abs(noisy - moved)).sum(axis=1)


@pytest.mark.statistical
@pytest.mark.parametrize("fault", [None, "half the noise"])
@pytest.mark.parametrize("neighbours", ["add-remove", "replace"])
@pytest.mark.parametrize("kind", ["cells", "signed sums", "individuals", "cells under a norm"])
def test_draws_prove_no_more_than_is_charged(world, kind, neighbours, fault):
    table, asks, _ = list_asks(world, kind, describe(neighbours))
    for ask in asks:
        if ask.noise == "gaussian" and ask.scale < 3:
            continue  # so narrow that discrete noise is charged for more than it costs
        found = {name: world.count(name, table, [ask])[0] for name in PEOPLE}
        others = PEOPLE if neighbours == "replace" else ["nobody"]
        pairs = [(one, other) for one in PEOPLE for other in others]
        one, two = max(pairs, key=lambda pair: find_loss(table, ask, found[pair[0]] - found[pair[1]]))
        moved = (found[one] - found[two]).astype(float)
        scale = ask.scale / (2 if fault else 1)
        draws = []
        for shift in (moved, 0 * moved):
            noise = add_noise(np.zeros(RUNS * moved.size, np.int64), kind=ask.noise, scale=scale)
            draws.append(tell_apart(noise.reshape(RUNS, -1) + shift, moved, ask.noise))
        cost = ask_cost(table, ask)
        gaps = [share_gap(*draws, epsilon) - allowed_gap(cost, epsilon) for epsilon in (0.0, 0.5, 1.0)]
        # Five standard deviations of a share of draws, twice.
        slack = 5 * math.sqrt(0.25 / RUNS) * (1 + math.e)
        assert (max(gaps) > slack) == (fault is not None)


def pull(penalty):
    """Two candidates: the individual brings counts nearer to one estimate, and farther from the other."""
    return Choice(
        name="choice",
        candidates=(
            Candidate(columns=("a",), estimate=partial(constant, 5, 0), penalty=penalty),
            Candidate(columns=("b",), estimate=partial(constant, 4, 1000)),
        ),
        epsilon=Fraction(1),
    )


@pytest.mark.statistical
@pytest.mark.parametrize(("times", "caught"), [(1, False), (2, True)])
def test_choices_prove_no_more_than_is_charged(world, times, caught):
    """How often a rare candidate is chosen with the individual and without: rare, the odds are chances."""
    table, who = describe(), ("far over the bound, in one cell", "nobody")
    (scores,) = world.count("nobody", table, [pull(0)])
    choice = pull(int(scores[0] - scores[1] + 4 / pull(0).rate(table)))
    rate, runs, shares = times * choice.rate(table), 200_000, []
    for name in who:
        (scores,) = world.count(name, table, [choice])
        drawn = exponential_choice(np.tile(scores.astype(np.int64), (runs, 1)), rate=rate)
        shares.append(float((drawn == 0).mean()))
    high, low = max(shares), min(shares)
    # Bounds five standard errors wide: a false alarm in less than one of a million audits.
    lower = high - 5 * math.sqrt(high * (1 - high) / runs)
    upper = low + 5 * math.sqrt(low * (1 - low) / runs)
    assert (math.log(lower / upper) > choice.epsilon) == caught
    assert math.log(high / low) > 0.9 * times


@pytest.mark.statistical
@pytest.mark.parametrize(("factor", "caught"), [(1, False), (Fraction(1, 3), True)])
@pytest.mark.parametrize("true_value", [0, 6])
def test_sparse_noise_proves_no_more_than_is_charged(factor, caught, true_value):
    """Whether a cell passes, with the individual's records in it and without: once empty, once occupied.

    An empty cell becomes occupied by the individual alone: the two ways of drawing must not tell them apart.
    """
    runs, shares = 200_000, []
    for value in (true_value, true_value + MOST):
        cells = np.arange(runs) if value else np.empty(0, np.int64)
        values = np.full(cells.size, value)
        found, _ = add_sparse_noise(cells, values, size=runs, scale=Fraction(MOST) * factor, threshold=8)
        shares.append(found.size / runs)
    high, low = max(shares), min(shares)
    lower = high - 5 * math.sqrt(high * (1 - high) / runs)
    upper = low + 5 * math.sqrt(max(low, 1 / runs) / runs)
    assert (math.log(lower / upper) > 1) == caught
    if not caught:
        assert math.log(high / low) > 0.85
