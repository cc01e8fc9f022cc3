"""The measurements of a release as evidence for intervals: read when a question first needs them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from sfumato.core.errors import VerificationFailed
from sfumato.core.questions.counts import ClippedMarginal, Marginal
from sfumato.core.questions.measurement import Request, request_grid
from sfumato.inference.domain import Domain, merge_measurements
from sfumato.inference.domain import Measurement as Noisy
from sfumato.inference.evidence import Evidence, NoisyCounts
from sfumato.recipes.base import MOST_ANSWERS
from sfumato.recipes.shared.compression import Compression, take_contrasts
from sfumato.recipes.shared.rules import find_zeros
from sfumato.release.files import split_values
from sfumato.tables.arrays import read_parquet

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from sfumato.core.facts.table import Table
    from sfumato.inference.domain import Columns

    _Numbers = NDArray[np.float64]

MEASUREMENTS = "measurements.parquet"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Source:
    """Evidence about counts of the same kind of contribution.

    `maps` has the columns whose values were joined, with what each became. The noise of a count lies on
    multiples of `step`.
    """

    evidence: Evidence
    requests: tuple[Request, ...]
    step: float
    maps: Mapping[str, NDArray[np.int64]] = field(default_factory=dict)

    @property
    def has_laplace(self) -> bool:
        """Return whether some of the noise has the tails of Laplace's."""
        return not all(each.law.shape.normal for each in self.requests)

    def shape(self, columns: Columns, sizes: Mapping[str, int]) -> tuple[int, ...]:
        """Return the numbers of values of `columns`, of which the whole domains have `sizes`."""
        return tuple(int(self.maps[name].max()) + 1 if name in self.maps else sizes[name] for name in columns)

    def describe(self, columns: Columns) -> str:
        """Return what an interval about `columns` comes from, in a line."""
        best = [each for each in self.requests if set(columns) <= set(each.columns)] or list(self.requests)
        more = "" if len(best) == 1 else f" and {len(best) - 1} more"
        noise = "laplace" if self.has_laplace else "gaussian"
        sizes = self.evidence.sizes

        def variance(request: Request) -> float:
            return float(request.scale) ** 2 * math.prod(sizes[name] for name in request.columns)

        name = min(best, key=variance).name
        deviation = self.evidence.deviation(columns)
        return (
            f"intervals from {name}{more}: {noise} noise, standard deviation "
            f"{deviation:.6g} per combination of the columns asked about"
        )


class Measured:
    """What was measured of the marginals of a table, packed.

    `requests` are in the order in which they were asked. `queries` has, by the name of a request, the record
    of queries where sums of cells were asked.
    """

    def __init__(
        self,
        table: Table,
        columns: Iterable[str],
        requests: tuple[Request, ...],
        queries: Mapping[str, Mapping[str, Any]],
        packed: bytes,
    ) -> None:
        self._table = table
        self._domain = Domain({name: table.column(name).size for name in columns})
        # A certificate has the digest of queries alone, so that requests are taken to be without them.
        self._requests = tuple(
            replace(each, counted=Marginal(each.columns)) if each.counted.tally == "cells" else each
            for each in requests
            if set(each.columns) <= set(self._domain)
        )
        self._queries = queries
        self._packed = packed

    def find_sources(self, columns: Columns) -> list[Source]:
        """Evidence about `columns`: of the cells themselves, then of cells in which values were joined."""
        kinds: dict[object, list[Request]] = {}
        for each in self._requests:
            # Individuals that are scaled down to another norm are other counts.
            norm = each.counted.norm if isinstance(each.counted, ClippedMarginal) else None
            kinds.setdefault(norm, []).append(each)
        found = []
        for requests in kinds.values():
            whole = [each for each in requests if each.name not in self._queries]
            if whole:
                evidence = Evidence(self._domain, [self._counts[each.name] for each in whole])
                found.append(self._source(evidence, whole))
        # Which is used must depend on public facts alone, never on the noisy values themselves.
        found.sort(key=lambda source: np.nan_to_num(source.evidence.deviation(columns), nan=np.inf))
        joined = self._joined
        if joined is not None and set(columns) & set(joined.maps):
            return [*found[:1], joined]
        # Where no value was joined, differences tell of the same counts as those that were asked whole.
        return [joined] if joined is not None and joined.evidence.has_contrasts else found[:1]

    def _source(self, evidence: Evidence, requests: list[Request], **more: Any) -> Source:  # noqa: ANN401
        step = max(1 / request_grid(self._table, each) for each in requests)
        return Source(evidence=evidence, requests=tuple(requests), step=step, **more)

    @cached_property
    def _joined(self) -> Source | None:
        """Evidence of counts over columns whose rare values were joined, if that is how sums were asked."""
        asked = [each.name in self._queries for each in self._requests]
        if True not in asked or any(each.counted.tally == "clipped" for each in self._requests):
            return None
        # Values are joined by what was known of single columns before the first sums were asked.
        first = asked.index(True)
        singles = {
            each.columns[0]: each
            for each in merge_measurements(
                self._domain, [self._noisy(each) for each in self._requests[:first] if len(each.columns) == 1]
            )
        }
        if set(singles) != set(self._domain):
            return None
        zeros = {name for names, _ in find_zeros(self._table, tuple(self._domain)) for name in names}
        known = {name: (each.values, each.sigma) for name, each in singles.items()}
        compression = Compression(self._domain, known, whole=zeros)
        counts, used = [], []
        for each in self._requests:
            queries, signed = compression.queries(each.columns), None
            if each.name in self._queries:
                record = self._queries[each.name]
                if queries is None or queries.to_record() != record:
                    signed = take_contrasts(compression, each.columns)
                    if signed is None or signed.queries.to_record() != record:
                        return None  # neither sums of joined values nor differences
            elif queries is not None:
                continue
            told = self._reshape(each, compression.domain.shape(each.columns))
            if signed is not None:
                scale = signed.scale * signed.queries.grid
                told = replace(
                    told, values=told.values / scale, variance=told.variance / scale**2, along=signed.along
                )
            counts.append(told)
            used.append(each)
        # Those that decided which values are joined would say that the joined ones are fewer than they are.
        finest = [each for each in self._requests[first:] if len(each.columns) == 1 and each not in used]
        for single in merge_measurements(self._domain, [self._noisy(each) for each in finest]):
            codes, size = compression.maps[single.columns[0]], compression.domain.cells(single.columns)
            counts.append(
                NoisyCounts(
                    columns=single.columns,
                    values=np.bincount(codes, weights=single.values, minlength=size).astype(np.float64),
                    variance=single.variance,
                    added=np.bincount(codes, minlength=size).astype(np.float64),
                )
            )
        return self._source(Evidence(compression.domain, counts), used + finest, maps=compression.maps)

    @cached_property
    def _counts(self) -> dict[str, NoisyCounts]:
        return {
            each.name: self._reshape(each, self._domain.shape(each.columns))
            for each in self._requests
            if each.name not in self._queries
        }

    def _noisy(self, request: Request) -> Noisy:
        counts = self._counts[request.name]
        return Noisy(columns=request.columns, values=counts.values, sigma=counts.variance**0.5)

    def _reshape(self, request: Request, shape: tuple[int, ...]) -> NoisyCounts:
        grid = request_grid(self._table, request)
        try:
            values = self._values[request.name].reshape(shape) / grid
        except (LookupError, ValueError) as error:
            raise VerificationFailed(
                f"{MEASUREMENTS} does not hold {request.name!r} ({type(error).__name__})"
            ) from None
        variance = (request.standard_deviation / grid) ** 2
        return NoisyCounts(columns=request.columns, values=values, variance=variance)

    @cached_property
    def _values(self) -> dict[str, _Numbers]:
        """Return the noisy values of every measurement, in units of its grid."""
        try:
            parts = split_values(read_parquet(self._packed, rows=MOST_ANSWERS))
        except (pa.ArrowException, LookupError, ValueError, OSError) as error:
            raise VerificationFailed(f"{MEASUREMENTS} cannot be read ({type(error).__name__})") from None
        return {name: values.astype(np.float64) for name, (values, _) in parts.items()}
