"""A small recipe that asks by what it has seen, and misbehaves on demand. For tests only."""

import io
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from sfumato.accounting import Cost
from sfumato.core.questions.choices import Candidate, Choice, NormChoice
from sfumato.core.questions.counts import ClippedMarginal, Marginal
from sfumato.core.questions.measurement import Request, request_sensitivity
from sfumato.recipes.base import Plan, Product
from sfumato.recipes.files import RECIPES

MARGINALS = (("region",), ("month",))
HOOK: Callable[[int], None] = lambda batch: None  # noqa: E731 - called when a batch is answered


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    kind: ClassVar[str] = "probe"

    table: str
    rounds: int = 2
    mode: str = "honest"

    def to_record(self):
        return {"recipe": self.kind, "table": self.table, "rounds": self.rounds, "mode": self.mode}

    def plan(self, table, *, epsilons, delta):
        unit = {"neighbours": table.unit.neighbours, "unit": table.unit.column or "row"}
        if self.mode == "norms":
            cost = Cost(kind="filter", scale=Fraction(2), **unit)
        else:
            cost = Cost(kind="pure", scale=epsilons[0], **unit)
        return Plan(
            recipe=self,
            table=table,
            requests=(),
            epsilons=epsilons,
            delta=delta,
            allowance=(cost,),
            counted=MARGINALS,
        )

    def describe(self, plan):
        return {"idea": "A probe.", "preprocessing": "None.", "postprocessing": "None."}

    def request(self, plan, name, columns, epsilon):
        probe = Request(name=name, counted=Marginal(columns), noise="laplace", scale=Fraction(1))
        scale = request_sensitivity(plan.table, probe) / epsilon
        return Request(name=name, counted=Marginal(columns), noise="laplace", scale=scale)

    def run(self, plan, *, progress):
        share = plan.epsilons[0] / (1 + 2 * self.rounds)
        if self.mode == "norms":
            return (yield from self.run_norms(plan))
        if self.mode == "silent":
            return Product(table=pa.table({"count": [1]}))
        if self.mode == "foreign":
            yield (self.request(plan, "pairs", ("region", "month"), share),)
        if self.mode == "empty":
            yield ()
        (answer,) = yield (self.request(plan, "by region", ("region",), share),)
        HOOK(0)
        known = {("region",): answer.noisy_values, ("month",): np.zeros(12, np.int64)}
        for number in range(self.rounds):
            estimates = {columns: values.copy() for columns, values in known.items()}
            if self.mode == "bad estimate":
                estimates["month",] = np.zeros(11, np.int64)
            gaps = tuple(
                Candidate(columns=columns, estimate=partial(estimates.get, columns)) for columns in MARGINALS
            )
            (chosen,) = yield (Choice(name=f"choice {number}", candidates=gaps, epsilon=share),)
            HOOK(1 + 2 * number)
            columns = MARGINALS[chosen.index]
            progress(f"measuring {columns[0]}")
            name = f"round {0 if self.mode == 'twice' else number}: {columns[0]}"
            (answer,) = yield (self.request(plan, name, columns, share),)
            HOOK(2 + 2 * number)
            known[columns] = answer.noisy_values
        if self.mode == "greedy":
            yield (self.request(plan, "one more", ("region",), Fraction(1, 10**6)),)
        table = pa.table({"month": np.arange(1, 13), "count": np.maximum(known["month",], 0)})
        sink = io.BytesIO()
        pq.write_table(pa.table({"region": known["region",]}), sink)
        facts = {"rounds": self.rounds, "mode": self.mode}
        return Product(table=table, files={"model.parquet": sink.getvalue()}, varied=("count",), facts=facts)

    def run_norms(self, plan):
        norms = (Fraction(1), Fraction(2), Fraction(4))
        choice = NormChoice(
            name="norm", columns=("region",), norms=norms, quantile=Fraction(9, 10), epsilon=Fraction(1, 2)
        )
        (chosen,) = yield (choice,)
        clipped = Request(
            name=f"clipped at {norms[chosen.index]}",
            counted=ClippedMarginal(("region",), norms[chosen.index]),
            noise="gaussian",
            scale=Fraction(2**24),
        )
        plain = Request(name="plain", counted=Marginal(("month",)), noise="gaussian", scale=Fraction(20))
        first, second = yield (clipped, plain)
        counts = first.noisy_values // first.grid
        return Product(table=pa.table({"count": np.concatenate([counts, second.noisy_values])}))


def register():
    RECIPES["probe"] = Probe
