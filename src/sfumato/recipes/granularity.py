"""The rounds of adaptive granularity: what is measured, with which noise, and what its answers flag."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

from sfumato.accounting import Cost, max_mu
from sfumato.accounting.constants import sqrt_up
from sfumato.accounting.cost import SMOOTHING
from sfumato.exact import round_up
from sfumato.inference import estimate_total, merge_measurements
from sfumato.measurement import (
    Answer,
    Ask,
    Chosen,
    Measurement,
    NormChoice,
    Request,
    ask_cost,
    in_records,
    request_cost,
    request_sensitivity,
)
from sfumato.queries import Queries
from sfumato.recipes.blocks import GRID, Block, Blocks, Pool, children, expand_blocks
from sfumato.recipes.norms import SHARE, mix_norms, norm_choices, stated_norm

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from sfumato.inference import Domain
    from sfumato.recipes.norms import Norms
    from sfumato.schema import Table

Columns = tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """All noisy sums of a run, the number of records that single columns show, and numbers of cells."""

    pool: Pool
    total: float
    cells: int
    flagged: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Rounds:
    """Marginals, closed downwards, to be measured at one epsilon: `times` says how often each.

    Privacy: `costs` are all that will be asked, from public facts alone. A measurement has the ratio of
    sensitivity to noise of the planned `cost`, whatever its queries and its norm, and never more.
    """

    table: Table
    domain: Domain
    times: Mapping[Columns, int]
    threshold: Fraction
    norms: Norms
    epsilon: Fraction
    delta: Fraction
    label: str = ""

    @property
    def choices(self) -> tuple[NormChoice, ...]:
        """The choices of norms, if they are not stated."""
        if self.norms != "auto":
            return ()
        return norm_choices(
            self.domain,
            tuple(self.times),
            most=self.table.unit.max_records,
            squared=SHARE * self._squared,
            label=self.label,
        )

    @property
    def cost(self) -> Cost:
        """The planned cost of each measurement: the exact Gaussian calibration for their number."""
        left = self._squared
        for choice in self.choices:
            left -= ask_cost(self.table, choice).mu_squared or 0
        probe = _probe(tuple(self.domain)[:1])
        squared = sum(self.times.values()) * request_sensitivity(self.table, probe) ** 2 / left
        scale = round_up(sqrt_up(squared + SMOOTHING), places=6)
        return request_cost(self.table, replace(probe, scale=scale))

    @property
    def costs(self) -> tuple[Cost, ...]:
        """What is charged beforehand."""
        chosen = [ask_cost(self.table, choice) for choice in self.choices]
        return (*chosen, *[self.cost] * sum(self.times.values()))

    def check_noise(self) -> None:
        """Refuses noise that is too wide to be drawn."""
        norms = {stated_norm(self.norms, len(columns)) for columns in self.times}
        if self.norms == "auto":
            norms = {Fraction(self.table.unit.max_records)}
        for norm in norms:
            self._calibrate(self.cost, replace(_probe(tuple(self.domain)[:1]), norm=norm))

    def measure(
        self, progress: Callable[[str], None]
    ) -> Generator[tuple[Ask, ...], tuple[Answer, ...], Measured]:
        """The noisy sums of all rounds, from single columns upwards."""
        chosen: dict[int, Fraction] = {}
        if self.choices:
            progress("choosing contribution norms")
            answers = yield self.choices
            for choice, answer in zip(self.choices, answers, strict=True):
                assert isinstance(answer, Chosen)
                chosen[len(choice.columns)] = choice.norms[answer.index]
        blocks, pool = Blocks(self.domain), Pool(self.domain)
        mixed: dict[Columns, Fraction] = {}
        cost, total, cells, flagged = self.cost, 1.0, 0, 0
        sizes = sorted({len(columns) for columns in self.times})
        for size in sizes:
            wanted = [columns for columns in self.times if len(columns) == size]
            progress(f"round {size} of {sizes[-1]}{self.label}: {len(wanted)} marginals")
            built = {columns: blocks.build(columns) for columns in wanted}
            for columns in wanted:
                if chosen:
                    share = _flagged_share(pool, blocks, columns)
                    coarse = [mixed[child] for child in children(columns)]
                    mixed[columns] = mix_norms(share, chosen[size], coarse)
            norms = {columns: mixed.get(columns, stated_norm(self.norms, size)) for columns in wanted}
            answers = yield tuple(
                ask for columns in wanted for ask in self._asks(cost, columns, built[columns], norms[columns])
            )
            place = 0
            for columns in wanted:
                for answer in answers[place : place + self.times[columns]]:
                    assert isinstance(answer, Measurement)
                    noisy, deviation = in_records(answer)
                    pool.add(built[columns], noisy, sigma=deviation)
                place += self.times[columns]
                values, sigma = pool.cells(columns)
                large = values >= float(self.threshold) * sigma
                blocks.flag(columns, large)
                cells, flagged = cells + large.size, flagged + int(large.sum())
            if size == 1:
                total = estimate_total(self.domain, merge_measurements(self.domain, pool.measurements()))
        return Measured(pool=pool, total=total, cells=cells, flagged=flagged)

    @property
    def _squared(self) -> Fraction:
        """The squared Gaussian privacy that epsilon and delta allow, a hair less."""
        return Fraction(max_mu(self.epsilon, self.delta)) ** 2

    def _asks(
        self, cost: Cost, columns: Columns, built: tuple[tuple[Block, int], ...], norm: Fraction | None
    ) -> list[Request]:
        """The requests for one marginal: the same queries as often as it is measured."""
        place = list(self.times).index(columns) + 1
        first = self._calibrate(
            cost,
            Request(
                name=f"{place}: {' x '.join(columns)}{self.label}",
                columns=columns,
                noise="gaussian",
                scale=Fraction(1),
                queries=expand_blocks(self.domain, columns, built),
                norm=norm,
            ),
        )
        copies = range(2, self.times[columns] + 1)
        return [first, *(replace(first, name=f"{first.name}, copy {number}") for number in copies)]

    def _calibrate(self, cost: Cost, request: Request) -> Request:
        """The request with noise that makes it cost no more than `cost`, in zCDP and in Gaussian privacy."""
        ratio = (request_sensitivity(self.table, request) / cost.sensitivity) ** 2
        zcdp = ratio * cost.scale**2
        gaussian = ratio * (cost.scale**2 - SMOOTHING) + SMOOTHING
        return replace(request, scale=round_up(sqrt_up(max(zcdp, gaussian)), places=6))


def _flagged_share(pool: Pool, blocks: Blocks, columns: Columns) -> Fraction:
    """About which share of all records lies in plausible cells, by what the children showed."""
    shares = [1.0]
    total = max(1.0, float(pool.cells(columns[:1])[0].sum())) if children(columns) else 1.0
    for child in children(columns):
        values, _ = pool.cells(child)
        flags = blocks.flags[child][blocks.plausible[child]]
        shares.append(float(values[flags].sum()) / total)
    return Fraction(round(1000 * min(1.0, max(0.0, min(shares)))), 1000)


def _probe(columns: Columns) -> Request:
    """A request with queries on the grid of all queries, to find sensitivities by."""
    one = np.array([0])
    queries = Queries(cells=1, grid=GRID, starts=np.array([0, 1]), members=one, weights=one + GRID)
    return Request(name="noise", columns=columns, noise="gaussian", scale=Fraction(1), queries=queries)
