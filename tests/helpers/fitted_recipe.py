"""A small recipe that measures given marginals and releases the model of them. For tests only."""

from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import numpy as np
import pyarrow as pa

from sfumato.core.exact import format_exact
from sfumato.core.questions.counts import ClippedMarginal, Marginal
from sfumato.core.questions.measurement import Request, request_sensitivity
from sfumato.inference import Domain, Measurement, estimate
from sfumato.inference.files import pack_model, quantise
from sfumato.recipes.base import Plan, Product


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitted:
    kind: ClassVar[str] = "fitted"

    table: str
    columns: tuple[str, ...]
    marginals: tuple[tuple[str, ...], ...]
    copies: int = 1
    norm: int | None = None
    noise: str = "gaussian"

    def to_record(self):
        return {
            "recipe": self.kind,
            "table": self.table,
            "columns": list(self.columns),
            "marginals": [list(each) for each in self.marginals],
            "copies": self.copies,
            "norm": self.norm,
            "noise": self.noise,
        }

    def plan(self, table, *, epsilons, delta):
        requests = tuple(
            self.request(
                table,
                f"{' x '.join(columns)}, copy {copy}, epsilon {format_exact(epsilon)}",
                columns,
                epsilon,
            )
            for epsilon in epsilons
            for columns in map(tuple, self.marginals)
            for copy in range(self.copies)
        )
        return Plan(recipe=self, table=table, requests=requests, epsilons=epsilons, delta=delta)

    def request(self, table, name, columns, epsilon):
        counted = Marginal(columns) if self.norm is None else ClippedMarginal(columns, Fraction(self.norm))
        probe = Request(name=name, counted=counted, noise=self.noise, scale=Fraction(1))
        scale = request_sensitivity(table, probe) / epsilon * (1 if self.noise == "laplace" else 4)
        return Request(name=name, counted=counted, noise=self.noise, scale=scale)

    def describe(self, plan):
        return {"idea": "A model.", "preprocessing": "None.", "postprocessing": "A fit."}

    def run(self, plan, *, progress):
        answers = yield plan.requests
        domain = Domain({name: plan.table.column(name).size for name in self.columns})
        models = {}
        for epsilon in plan.epsilons:
            noisy = [
                Measurement(
                    columns=each.request.columns,
                    values=each.noisy_values / each.grid,
                    sigma=each.request.standard_deviation / each.grid,
                )
                for each in answers
                if each.request.name.endswith(f"epsilon {format_exact(epsilon)}")
            ]
            models[format_exact(epsilon)] = quantise(estimate(domain, noisy))
        table = pa.table({"total": np.array([model.total for model in models.values()])})
        return Product(table=table, files={"model.parquet": pack_model(models)})
