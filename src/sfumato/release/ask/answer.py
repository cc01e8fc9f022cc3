"""A released model opened for questions, and its answers: sums over cells, with intervals from measurements.

Everything in a release is public, so no question costs anything, and no project file or ledger is looked at.
An answer is what the model expects. Its interval comes from the measurements alone, where they tell all that
the answer needs; nothing is known about the error of the model itself.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from sfumato.core.engine.arrays import label_array
from sfumato.core.errors import RecipeError, ReleaseError, UnsupportedQuery, VerificationFailed, refuse
from sfumato.core.exact import parse_exact, parse_positive
from sfumato.core.questions.counts import ClippedMarginal, Marginal
from sfumato.core.questions.measurement import Request
from sfumato.inference.files import unpack_models
from sfumato.release.ask.intervals import Groups
from sfumato.release.ask.measured import MEASUREMENTS, Measured
from sfumato.release.ask.question import keep_cells, read_fields, read_question
from sfumato.release.ask.regression import regress
from sfumato.release.folder import failing_closed, open_folder
from sfumato.sql.check import refuse_deep
from sfumato.sql.finish import Answer, sort_rows
from sfumato.sql.statement import read_statement

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from sfumato.core.facts.table import Table
    from sfumato.inference.model import Model
    from sfumato.release.ask.question import ReleaseQuestion
    from sfumato.release.ask.regression import Regression
    from sfumato.sql.statement import Statement

    _Numbers = NDArray[np.float64]

_MOST_CELLS = 2**22  # of a question, whose array lies in memory
_MODEL = "model.parquet"


def open_model(folder: Path | str, *, epsilon: object = None) -> ReleasedModel:
    """Return the model of the release in `folder`; `epsilon` chooses if it holds several.

    The files are compared with the digests in the certificate; that they follow from the measurements is
    for `verify` to say.
    """
    opened = open_folder(folder, load=(_MODEL, MEASUREMENTS))
    if _MODEL not in opened.files:
        raise ReleaseError(f"the release {opened.name!r} has no {_MODEL}; its recipe makes no model")
    table = opened.described()
    with failing_closed("the release cannot be asked"):
        models = unpack_models(opened.files[_MODEL])
        requests, queries = _read_requests(table, opened.certificate["measurements"])
    key, model = _choose(models, epsilon)
    released = ReleasedModel(
        table=table,
        model=model,
        epsilon=key,
        requests=requests,
        queries=queries,
        packed=opened.files[MEASUREMENTS],
    )
    if not released.columns:
        raise VerificationFailed(f"{_MODEL} is of no column that the certificate describes")
    return released


def can_ask(statement: Statement, table: Table, columns: tuple[str, ...]) -> bool:
    """Return whether a model of all `columns` of `table` answers a statement; looks at public facts alone."""
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
        self,
        *,
        table: Table,
        model: Model,
        epsilon: str,
        requests: tuple[Request, ...],
        packed: bytes,
        queries: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> None:
        """Return `requests` are the marginals that were measured, `packed` is the file with the noisy values.

        `queries` has, by the name of a request, the record of queries where sums of cells were asked.
        """
        self.table = table
        self.model = model
        self.epsilon = epsilon
        self._fields = read_fields(table, model.domain)
        self._measured = Measured(table, model.domain, requests, queries or {}, packed)

    def __repr__(self) -> str:
        return f"ReleasedModel({self.table.name} at epsilon {self.epsilon}: {', '.join(self.columns)})"

    @property
    def columns(self) -> tuple[str, ...]:
        """Return the columns that may be asked about."""
        return tuple(field.name for field in self._fields.named.values())

    @refuse_deep
    def sql(self, text: str, *, population: bool = False) -> Answer:
        """Return the answer to a plain SELECT about the model, with intervals where measurements give them.

        They hold with 95 % what the records say; with `population`, what the population says that the
        records are a random sample of, one record of each individual.
        """
        return self.answer(read_statement(text), population=population)

    def answer(self, statement: Statement, *, population: bool = False) -> Answer:
        """Return the answer to a statement that was read already."""
        try:
            question = read_question(statement, self._fields)
            cells = self.model.domain.cells(question.columns)
            if cells > _MOST_CELLS:
                raise refuse(f"the columns have {cells:,} combinations, more than {_MOST_CELLS:,}; use fewer")
            if population:
                self._refuse_no_sample()
            expected = self.model.marginal(question.columns).reshape(-1)
            sources = self._measured.find_sources(question.columns)
            groups = Groups(question, self.model.domain, expected, sources, population=population)
            table, known = _respond(question, groups)
        except RecipeError as error:
            raise UnsupportedQuery(str(error)) from None
        names = [output.name for output in question.outputs if output.kind != "key"]
        asked = " x ".join(question.columns)
        missing = [name for name in names if known[name] < groups.rows]
        notes: tuple[str, ...] = ()
        if missing and not any(known.values()):
            notes = (
                f"no interval: no measurement counts {asked} cell by cell; the answer rests on what the "
                "model takes to be independent",
            )
        elif missing:
            notes = (
                f"no interval for some of {', '.join(missing)}: {asked} was measured with rare values "
                "joined, or not as far as they need; there the answer rests on what the model takes to be "
                "independent",
            )
        none = "no measurement counts these columns cell by cell, so there is no interval"
        best = [each for each in sources if each.evidence.knows(question.columns)] or sources
        scales = {name: best[0].describe(question.columns) if known[name] else none for name in names}
        return Answer(table=table, public=True, scales=scales, notes=notes)

    def regress(
        self, target: str, inputs: Sequence[str], *, family: Regression = "linear", population: bool = False
    ) -> Answer:
        """Return the coefficients of a regression, with intervals where measurements tell all that they need.

        `target` is a column of numbers or a condition such as "job = 'yes'", which counts 1 where it holds.
        Numbers in bins are taken for the middle of their bin. Of a column of labels the first is left out,
        and coefficients are differences from it. `family` is "linear" (least squares) or "logistic".
        Intervals hold with 95 % the coefficients of the same regression on the records; with `population`,
        those on the population that the records are a random sample of.
        """
        if population:
            self._refuse_no_sample()
        found = regress(
            self.model,
            self._fields,
            target,
            inputs,
            family=family,
            find_sources=self._measured.find_sources,
            population=population,
        )
        table = pa.table(
            {
                "term": pa.array(found.terms, pa.string()),
                "coefficient": _to_nullable(found.values),
                "coefficient_low": _to_nullable(found.low),
                "coefficient_high": _to_nullable(found.high),
            }
        )
        return Answer(table=table, public=True, scales={"coefficient": found.scale}, notes=found.notes)

    def _refuse_no_sample(self) -> None:
        """Raises an error if records cannot be taken for a simple random sample of a population."""
        if self.table.unit.max_records != 1:
            raise RecipeError(
                "an individual may have several records here, so that they are no simple random sample; ask "
                "without population"
            )


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


def _read_requests(table: Table, asks: list[Any]) -> tuple[tuple[Request, ...], dict[str, Mapping[str, Any]]]:
    """Return the requests for marginals, and by their names the records of queries where sums were asked."""
    requests: list[Request] = []
    queries: dict[str, Mapping[str, Any]] = {}
    for ask in asks:
        if not isinstance(ask, dict):
            raise TypeError("a measurement is not described")
        if "columns" not in ask:
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
        if "queries" in ask:
            queries[request.name] = dict(ask["queries"])
    return tuple(requests), queries


def _respond(question: ReleaseQuestion, groups: Groups) -> tuple[pa.Table, dict[str, int]]:
    """Return the answer to `question`, and for how many groups each of its outputs has an interval."""
    order: list[tuple[_Numbers, bool]] = [
        (groups.values(output), descending) for output, descending in question.order
    ]
    rows = sort_rows(np.arange(groups.rows), order, limit=question.limit, offset=question.offset)
    columns: dict[str, pa.Array] = {}
    known: dict[str, int] = {}
    for output in question.outputs:
        values = groups.values(output)[rows]
        if output.kind == "key" and output.field is not None:
            columns[output.name] = label_array(values.astype(np.int32), output.field.distinct)
            continue
        columns[output.name] = _to_nullable(values)
        interval = groups.interval(output)
        known[output.name] = int(np.count_nonzero(~np.isnan(interval[0])))
        for suffix, ends in zip(("_low", "_high"), interval, strict=True):
            columns[output.name + suffix] = _to_nullable(ends[rows])
    return pa.table(columns), known


def _to_nullable(values: _Numbers) -> pa.Array:
    """Return the values with NULL for what is not known."""
    return pa.array(values.tolist(), pa.float64(), from_pandas=True)
