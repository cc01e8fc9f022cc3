"""How exact the measurements are, from public facts: their noise is stated, and so is their size."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from sfumato.questions.measurement import NORM_GRID, Request

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pyarrow as pa

About = Literal["cells", "held", "sums", "individuals", "large cells", "choice"]

_EPSILON = re.compile(r"\bepsilon ([0-9][0-9./e-]*[0-9]|[0-9])")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Measured:
    """One measurement or choice: what it is about, its noise in records, its noisy values in records.

    `about` tells what an answer is: the count of one cell, a weighted sum of cells, a count of
    individuals, the count of a cell that reached a threshold, or a choice. `epsilon` is the one that
    its name states.
    """

    name: str
    columns: tuple[str, ...]
    about: About
    cells: int
    noise: str
    deviation: float
    half: float
    epsilon: str | None
    cost: Mapping[str, str | None]
    values: NDArray[np.float64]
    places: NDArray[np.int64]

    @property
    def answers(self) -> int:
        """The number of noisy values."""
        return int(self.values.size)

    @property
    def is_plain(self) -> bool:
        """Whether there is one answer for every cell, a count of records."""
        return self.about == "cells" and self.answers == self.cells

    @property
    def near_zero(self) -> float:
        """The share of answers that noise alone could explain: zero lies in their interval."""
        return float((np.abs(self.values) <= self.half).mean()) if self.answers else math.nan

    @property
    def mean_noise(self) -> float:
        """The expected size of the noise, E|z|, in records."""
        # E|z| = sigma sqrt(2/pi) for a Gaussian law and sigma / sqrt(2) for a Laplace law.
        return self.deviation * (math.sqrt(2 / math.pi) if self.noise == "gaussian" else math.sqrt(0.5))


def read_measured(certificate: Mapping[str, Any], answers: pa.Table) -> tuple[Measured, ...]:
    """The measurements that a certificate lists, with their noisy values."""
    parts = {name: (values, places) for name, values, places in _cut(answers)}
    empty = np.zeros(0, np.int64)
    unit_grid = int((certificate.get("unit") or {}).get("grid", 1))
    told = []
    for record in certificate.get("measurements") or ():
        values, places = parts.get(str(record.get("name")), (empty, empty))
        told.append(_read_one(record, values, places, unit_grid=unit_grid))
    return tuple(told)


def combine_deviations(deviations: list[float]) -> float:
    """The standard deviation of the average of measurements of the same, weighted by precision.

    >>> combine_deviations([3, 4])
    2.4
    """
    if any(each == 0 for each in deviations):
        return 0.0
    return 1 / math.sqrt(sum(1 / each**2 for each in deviations))


def _read_one(
    record: Mapping[str, Any], values: NDArray[np.int64], places: NDArray[np.int64], *, unit_grid: int
) -> Measured:
    name = str(record.get("name"))
    found = _EPSILON.search(name)
    columns = tuple(str(each) for each in record.get("columns") or ())
    noise = str(record.get("kind"))
    cost = {key: record.get(key) for key in ("epsilon", "rho", "mu")}
    deviation, half, grid = math.nan, math.nan, 1
    about = _about(record)
    if about != "choice":
        grid = _grid(record, unit_grid)
        request = Request(name=name, columns=columns, noise=noise, scale=Fraction(str(record["scale"])))  # type: ignore[arg-type]
        deviation, half = request.standard_deviation / grid, request.interval / grid
    return Measured(
        name=name,
        columns=columns,
        about=about,
        cells=int(record.get("cells") or record.get("candidates") or 0),
        noise=noise,
        deviation=deviation,
        half=half,
        epsilon=found[1] if found else None,
        cost=cost,
        values=values / grid,
        places=places,
    )


def _about(record: Mapping[str, Any]) -> About:
    if record.get("kind") not in ("laplace", "gaussian") or not record.get("columns"):
        return "choice"
    if record.get("queries") is not None:
        return "sums"
    if record.get("individuals") is not None:
        return "individuals"
    if record.get("records") is not None:
        return "held"
    return "cells" if record.get("threshold") is None else "large cells"


def _grid(record: Mapping[str, Any], unit_grid: int) -> int:
    """The denominator of the answers, as sfumato.questions.measurement.request_grid has it."""
    if record.get("individuals") is not None:
        return 1
    grid = unit_grid if record.get("contribution_norm") is None else NORM_GRID
    queries = record.get("queries")
    return grid * int(queries["grid"]) if isinstance(queries, dict) else grid


def _cut(answers: pa.Table) -> Iterator[tuple[str, NDArray[np.int64], NDArray[np.int64]]]:
    """The rows of every measurement, which follow each other."""
    named = answers["measurement"].combine_chunks()
    codes = named.dictionary_encode() if not hasattr(named, "indices") else named
    if hasattr(codes, "chunks"):
        codes = codes.unify_dictionaries().combine_chunks()
    names = codes.dictionary.to_pylist()
    which = codes.indices.to_numpy(zero_copy_only=False)
    values = answers["noisy_value"].to_numpy()
    places = answers["cell"].to_numpy()
    starts = np.flatnonzero(np.append(True, which[1:] != which[:-1])) if which.size else np.zeros(0, int)
    for start, stop in zip(starts, [*starts[1:], which.size], strict=False):
        yield str(names[which[start]]), values[start:stop], places[start:stop]
