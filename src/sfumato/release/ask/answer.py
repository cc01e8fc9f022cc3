"""A released model opened for questions, and its answers: sums over cells, with intervals from measurements.

Everything in a release is public, so no question costs anything, and no project file or ledger is looked at.
An answer is what the model expects. Its interval comes from the measurement with the least noise that
counted the same columns cell by cell; nothing is known about the error of the model itself.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sfumato.errors import RecipeError, ReleaseError, UnsupportedQuery, VerificationFailed
from sfumato.exact import parse_exact, parse_positive
from sfumato.inference.files import unpack_models
from sfumato.questions import ClippedMarginal, Marginal, Request, request_grid
from sfumato.recipes import MOST_ANSWERS
from sfumato.release.ask.question import Field, Output, Question, keep_cells, read_fields, read_question
from sfumato.release.folder import failing_closed, open_folder
from sfumato.sql.check import refuse, refuse_deep
from sfumato.sql.finish import Answer, sort_rows
from sfumato.sql.intervals import find_edge
from sfumato.sql.plan import MISS, normal_width
from sfumato.sql.statement import read_statement
from sfumato.tables.arrays import label_array, read_parquet, to_numpy

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from numpy.typing import NDArray

    from sfumato.inference.model import Model
    from sfumato.questions import NoiseKind
    from sfumato.schema import Table
    from sfumato.sql.statement import Statement

    _Numbers = NDArray[np.float64]

_MOST_CELLS = 2**22
_MODEL, _MEASUREMENTS = "model.parquet", "measurements.parquet"


def open_model(folder: Path | str, *, epsilon: object = None) -> ReleasedModel:
    """The model of the release in `folder`; `epsilon` chooses if it holds several.

    The files are compared with the digests in the certificate; that they follow from the measurements is
    for `verify` to say.
    """
    opened = open_folder(folder, load=(_MODEL, _MEASUREMENTS))
    if _MODEL not in opened.files:
        raise ReleaseError(f"the release {opened.name!r} has no {_MODEL}; its recipe makes no model")
    table = opened.described()
    with failing_closed("the release cannot be asked"):
        models = unpack_models(opened.files[_MODEL])
        requests = _read_requests(table, opened.certificate["measurements"])
    key, model = _choose(models, epsilon)
    released = ReleasedModel(
        table=table, model=model, epsilon=key, requests=requests, packed=opened.files[_MEASUREMENTS]
    )
    if not released.columns:
        raise VerificationFailed(f"{_MODEL} is of no column that the certificate describes")
    return released


def can_ask(statement: Statement, table: Table, columns: tuple[str, ...]) -> bool:
    """Whether a model of all `columns` of `table` answers a statement; looks at public facts alone."""
    sizes = {name: table.column(name).size for name in columns}
    try:
        question = read_question(statement, read_fields(table, sizes))
        keep_cells(question, sizes)
    except (RecipeError, UnsupportedQuery):
        return False
    return math.prod(sizes[name] for name in question.columns) <= _MOST_CELLS


class ReleasedModel:
    """The model of a release, which answers plain SELECTs at no cost."""

    def __init__(
        self, *, table: Table, model: Model, epsilon: str, requests: tuple[Request, ...], packed: bytes
    ) -> None:
        """`requests` are what was measured cell by cell, `packed` the file with the noisy values."""
        self.table = table
        self.model = model
        self.epsilon = epsilon
        self._requests = requests
        self._packed = packed
        self._fields = read_fields(table, model.domain)

    def __repr__(self) -> str:
        return f"ReleasedModel({self.table.name} at epsilon {self.epsilon}: {', '.join(self.columns)})"

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that may be asked about."""
        return tuple(field.name for field in self._fields.named.values())

    @refuse_deep
    def sql(self, text: str) -> Answer:
        """The answer to a plain SELECT about the model, with intervals where a measurement gives them."""
        return self.answer(read_statement(text))

    def answer(self, statement: Statement) -> Answer:
        """The answer to a statement that was read already."""
        try:
            question = read_question(statement, self._fields)
            cells = self.model.domain.cells(question.columns)
            if cells > _MOST_CELLS:
                raise refuse(f"the columns have {cells:,} combinations, more than {_MOST_CELLS:,}; use fewer")
            expected = self.model.marginal(question.columns).reshape(-1)
            evidence = self._find_evidence(question.columns)
            table = _respond(question, self.model.domain, expected, evidence)
        except RecipeError as error:
            raise UnsupportedQuery(str(error)) from None
        names = [output.name for output in question.outputs if output.kind != "key"]
        notes: tuple[str, ...] = ()
        if evidence is not None:
            scale = (
                f"intervals from {evidence.name}: {evidence.noise} noise, standard deviation "
                f"{evidence.deviation:.6g} per combination of the columns asked about"
            )
        else:
            scale = "no measurement counts these columns cell by cell, so there is no interval"
            note = (
                f"no interval: no measurement counts {' x '.join(question.columns)} cell by cell; the answer "
                "rests on what the model takes to be independent"
            )
            notes = (note,) if names else ()
        return Answer(table=table, public=True, scales=dict.fromkeys(names, scale), notes=notes)

    def _find_evidence(self, columns: tuple[str, ...]) -> _Evidence | None:
        """The noisy counts of `columns` with the least noise, from the measurements of one marginal."""
        groups: dict[object, list[Request]] = {}
        for request in self._requests:
            if set(columns) <= set(request.columns):
                # Measurements of the same counts may be averaged.
                norm = request.counted.norm if isinstance(request.counted, ClippedMarginal) else None
                groups.setdefault((frozenset(request.columns), norm), []).append(request)
        if not groups:
            return None

        def precision(request: Request) -> float:
            """One over the variance of a cell's noise, in records."""
            return 1 / (request.standard_deviation / request_grid(self.table, request)) ** 2

        # Which is used must depend on public facts alone, never on the noisy values themselves.
        def variance(group: list[Request]) -> float:
            cells = self.table.cells(group[0].columns) / self.table.cells(columns)
            return cells / sum(map(precision, group))

        best = min(groups.values(), key=variance)
        total = sum(map(precision, best))
        values = np.zeros(self.table.cells(columns))
        for request in best:
            values += self._read_counts(request, columns) * (precision(request) / total)
        more = "" if len(best) == 1 else f" and {len(best) - 1} more"
        return _Evidence(
            name=f"{best[0].name}{more}",
            values=values,
            deviation=float(np.sqrt(variance(best))),
            step=1 / request_grid(self.table, best[0]),
            noise="laplace" if any(each.noise == "laplace" for each in best) else "gaussian",
        )

    def _read_counts(self, request: Request, columns: tuple[str, ...]) -> _Numbers:
        """The noisy counts of a measurement in records, summed up to `columns`, flat."""
        names = request.columns
        try:
            rows = read_parquet(self._packed, columns=["measurement", "noisy_value"], rows=MOST_ANSWERS)
            mine = rows.filter(pc.equal(rows["measurement"], request.name))
            flat = to_numpy(mine["noisy_value"].combine_chunks()).astype(np.float64)
            sizes = [self.table.cells((name,)) for name in names]
            counts = flat.reshape(sizes) / request_grid(self.table, request)
        except (pa.ArrowException, LookupError, ValueError, OSError) as error:
            raise VerificationFailed(
                f"{_MEASUREMENTS} does not hold {request.name!r} ({type(error).__name__})"
            ) from None
        summed = counts.sum(axis=tuple(at for at, name in enumerate(names) if name not in columns))
        left = [name for name in names if name in columns]
        return np.asarray(summed.transpose([left.index(name) for name in columns])).reshape(-1)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Evidence:
    """Noisy counts of every cell that a question looks at, in records.

    The noise of a cell has the standard deviation `deviation`, in steps of `step`; the noises of cells
    are independent.
    """

    name: str
    values: _Numbers
    deviation: float
    step: float
    noise: NoiseKind

    @property
    def reach(self) -> float:
        """How far a cell's noise reaches to one side, with 97.5 %; that of a sum of n, sqrt(n) times.

        A sum of Laplace noises has lighter tails than one of them. Half a step is added because the
        noise is discrete.
        """
        laplace = self.noise == "laplace"
        far = math.log(1 / MISS) / math.sqrt(2) if laplace else normal_width(MISS)
        return far * self.deviation + self.step / 2


def _choose(models: Mapping[str, Model], epsilon: object) -> tuple[str, Model]:
    known = ", ".join(models)
    if epsilon is None:
        if len(models) > 1:
            raise RecipeError(f"the release holds models at epsilon {known}; choose one with --epsilon")
        return next(iter(models.items()))
    chosen = parse_positive(epsilon, name="epsilon")
    for key, model in models.items():
        try:
            if parse_exact(key, name="epsilon") == chosen:
                return key, model
        except RecipeError:
            continue
    raise RecipeError(f"the release holds no model at that epsilon; it has {known}")


def _read_requests(table: Table, asks: list[Any]) -> tuple[Request, ...]:
    """The requests for whole marginals; those for queries tell nothing here about single cells."""
    requests = []
    for ask in asks:
        if not isinstance(ask, dict):
            raise TypeError("a measurement is not described")
        if "columns" not in ask or "queries" in ask:
            continue
        columns = tuple(ask["columns"])
        counted: Marginal | ClippedMarginal = Marginal(columns)
        if "contribution_norm" in ask:
            counted = ClippedMarginal(columns, parse_positive(ask["contribution_norm"], name="norm"))
        request = Request(
            name=str(ask["name"]),
            counted=counted,
            noise=ask["kind"],
            scale=parse_positive(ask["scale"], name="scale"),
        )
        table.cells(request.columns)
        requests.append(request)
    return tuple(requests)


def _respond(
    question: Question, sizes: Mapping[str, int], expected: _Numbers, evidence: _Evidence | None
) -> pa.Table:
    """The answer to `question`; `expected` are the counts of the cells of its columns, flat."""
    groups = _Groups(question, sizes, expected, evidence)
    order: list[tuple[_Numbers, bool]] = [
        (groups.values(output), descending) for output, descending in question.order
    ]
    rows = sort_rows(np.arange(groups.rows), order, limit=question.limit, offset=question.offset)
    columns: dict[str, pa.Array] = {}
    for output in question.outputs:
        values = groups.values(output)[rows]
        if output.kind == "key" and output.field is not None:
            columns[output.name] = label_array(values.astype(np.int32), output.field.distinct)
            continue
        columns[output.name] = _to_nullable(values)
        for suffix, ends in zip(("_low", "_high"), groups.interval(output), strict=True):
            columns[output.name + suffix] = _to_nullable(ends[rows])
    return pa.table(columns)


class _Groups:
    """The cells that a question keeps, parted by its keys."""

    def __init__(
        self,
        question: Question,
        sizes: Mapping[str, int],
        expected: _Numbers,
        evidence: _Evidence | None,
    ) -> None:
        shape = tuple(sizes[name] for name in question.columns)
        cells = np.flatnonzero(np.broadcast_to(keep_cells(question, sizes), shape))
        places = np.unravel_index(cells, shape) if shape else ()
        self._codes = dict(zip(question.columns, places, strict=True))
        self._expected = expected[cells]
        self._reach = None if evidence is None else evidence.reach
        self._noisy = np.zeros(cells.size) if evidence is None else evidence.values[cells]
        groups = np.zeros(cells.size, np.int64)
        spans = [len(key.distinct) for key in question.keys]
        for key, span in zip(question.keys, spans, strict=True):
            groups = groups * span + self._place(key)
        # Without keys there is one group, even of no cell; with them, those that have a cell.
        present = np.unique(groups) if question.keys else np.zeros(1, np.int64)
        self._inverse = np.searchsorted(present, groups)
        self.rows = present.size
        self._keys: dict[Field, NDArray[np.int64]] = {}
        for key, span in reversed(list(zip(question.keys, spans, strict=True))):
            present, self._keys[key] = np.divmod(present, span)

    def values(self, output: Output) -> _Numbers:
        """An output per group; a key by the place of its label."""
        if output.kind == "key" and output.field is not None:
            return self._keys[output.field].astype(np.float64)
        count = self._sum(self._expected)
        if output.field is None:
            return count
        lows, highs = self._ends(output.field)
        total = self._sum(self._expected * (lows + highs) / 2)
        if output.kind == "sum":
            return total
        return np.divide(total, count, out=np.full_like(total, np.nan), where=count > 0)

    def interval(self, output: Output) -> tuple[_Numbers, _Numbers]:
        """The ends that hold the exact value with 95 %, and the model's value in any case."""
        if self._reach is None:
            unknown = np.full(self.rows, np.nan)
            return unknown, unknown
        if output.kind == "average" and output.field is not None:
            low, high = self._enclose_average(output.field, self._reach)
        else:
            # The sum is at least that of the exact counts with low weights, at most that with high ones.
            ones = np.ones_like(self._noisy)
            lows, highs = (ones, ones) if output.field is None else self._ends(output.field)
            low = self._sum(lows * self._noisy) - self._reach * np.sqrt(self._sum(lows**2))
            high = self._sum(highs * self._noisy) + self._reach * np.sqrt(self._sum(highs**2))
            low = np.maximum(low, 0) if output.field is None else low
        # A group without a record has no average, but its interval stands.
        values = self.values(output)
        return np.fmin(low, values), np.fmax(high, values)

    def _enclose_average(self, field: Field, reach: float) -> tuple[_Numbers, _Numbers]:
        assert field.ends is not None
        least, most = float(min(field.ends)[0]), float(max(high for _, high in field.ends))
        # Weights are taken from the middle: squares of far numbers would lose what they differ by.
        centre, half = (least + most) / 2, (most - least) / 2
        lows, highs = (each - centre for each in self._ends(field))
        smallest, largest = np.full(self.rows, half), np.full(self.rows, -half)
        np.minimum.at(smallest, self._inverse, lows)
        np.maximum.at(largest, self._inverse, highs)
        if not lows.size:
            smallest, largest = largest, smallest
        low = self._least_average(lows, smallest, largest, reach)
        high = -self._least_average(-highs, -largest, -smallest, reach)
        return centre + low, centre + high

    def _least_average(self, weights: _Numbers, low: _Numbers, high: _Numbers, reach: float) -> _Numbers:
        """The least average from `low` to `high`, per group, that the evidence does not speak against.

        An average r is spoken against if the evidence for the sum of (weight - r) is further above zero
        than noise reaches. The exact average is not, with 97.5 % (Fieller's argument), also where few
        records or none are behind it.
        """
        weighted, count = self._sum(weights * self._noisy), self._sum(self._noisy)
        total, squares = self._sum(weights), self._sum(weights**2)
        cells = self._sum(np.ones_like(weights))

        def speaks_above(ratio: _Numbers) -> NDArray[np.bool_]:
            spread = np.maximum(squares - 2 * ratio * total + ratio**2 * cells, 0)
            above: NDArray[np.bool_] = weighted - ratio * count > reach * np.sqrt(spread)
            return above

        return find_edge(high, low, speaks_above)

    def _sum(self, values: _Numbers) -> _Numbers:
        return np.bincount(self._inverse, weights=values, minlength=self.rows).astype(np.float64)

    def _ends(self, field: Field) -> tuple[_Numbers, _Numbers]:
        assert field.ends is not None
        codes = self._codes[field.column]
        lows, highs = (np.array([float(pair[end]) for pair in field.ends]) for end in (0, 1))
        return lows[codes], highs[codes]

    def _place(self, key: Field) -> NDArray[np.int64]:
        places = {label: place for place, label in enumerate(key.distinct)}
        return np.array([places[label] for label in key.labels], np.int64)[self._codes[key.column]]


def _to_nullable(values: _Numbers) -> pa.Array:
    """The values with NULL for what is not known."""
    return pa.array(values.tolist(), pa.float64(), from_pandas=True)
