"""What engines are asked in tests."""

from fractions import Fraction

import numpy as np

from sfumato.core.algebra.asks import Aggregation, Noised
from sfumato.core.algebra.measures import Measure, Query
from sfumato.core.algebra.rows import Scan
from sfumato.core.door import Bill, Charged
from sfumato.core.engine.aggregates import TrueAggregates
from sfumato.core.facts.project import parse_project
from sfumato.core.questions.choices import Chosen
from sfumato.core.questions.counts import Marginal, OccupiedCells
from sfumato.core.questions.measurement import Measurement, Request, request_grid, request_size
from sfumato.curator.conversation import Conversation


def cells(marginals, occupied=()):
    """Questions for the counts of `marginals` over all their cells, then of `occupied` where records are."""
    return (*map(Marginal, marginals), *map(OccupiedCells, occupied))


def answer_zeros(plan, asks):
    """Answers of nothing but zeros to measurements that a recipe asks for."""
    return tuple(
        Measurement(
            request=ask,
            noisy_values=np.zeros(request_size(plan.table, ask), np.int64),
            grid=request_grid(plan.table, ask),
        )
        for ask in asks
    )


def answer_anything(plan, asks):
    """Answers without records to whatever is asked: noise around some counts, and first candidates."""
    generator, answers = np.random.default_rng(len(asks)), []
    for ask in asks:
        if not isinstance(ask, Request):
            answers.append(Chosen(choice=ask, index=0))
            continue
        grid = request_grid(plan.table, ask)
        cells = np.arange(3) if ask.threshold is not None else None
        size = 3 if cells is not None else request_size(plan.table, ask)
        values = 100 * grid + np.rint(generator.normal(0, float(ask.scale), size)).astype(np.int64)
        answers.append(Measurement(request=ask, noisy_values=values, grid=grid, cells=cells))
    return tuple(answers)


class Stub:
    """A ledger and an entry of it that keep nothing."""

    secret = b"0" * 32
    sequence = 1

    def __init__(self, version, costs=()):
        self.table_version, self.costs = version, costs

    def store_answer(self, entry, payload, *, after, labels=()):
        pass

    store_progress = store_answer


def converse(plan, engine, *, kept=None):
    """The conversation of `plan` under a charge that nobody made."""
    stub = Stub(engine.version(plan.table, secret=Stub.secret), plan.costs)
    bill = Bill(
        digest=plan.digest,
        description={},
        tables=plan.table.name,
        costs=plan.costs,
        version=lambda secret: engine.version(plan.table, secret=secret),
        table=plan.table,
        parts=plan.parts,
    )
    charge = Charged(bill, stub, ledger=stub, noise=None, kept=kept)
    return Conversation(plan, charge, engine=engine, progress=lambda _: None)


TABLES = parse_project(
    {
        "budget": {"epsilon": 1},
        "tables": {"t": {"source": "t.csv", "unit": "p", "max_records": 2, "columns": {}}},
    },
    folder=None,
).tables


def count_records(scale):
    """What a statement asks that counts the records of a table, of which an individual has two."""
    query = Query(rows=Scan("t", "t"), groups=(), measures=(Measure(statistic="records"),))
    return Aggregation(query=query, drawn=(Noised("laplace", Fraction(scale)),))


class Counted:
    """An engine that counts seven of whatever is asked, and how often it is."""

    times = 0

    def aggregate(self, query, tables, *, progress):
        self.times += 1
        return TrueAggregates((np.array([7]),), None, None)

    def ask(self, charge, asked):
        """The answer under a charge."""
        (value,) = charge.ask_groups(asked, engine=self, progress=str).values[0]
        return value
