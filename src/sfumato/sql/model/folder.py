"""A release folder opened for questions: its model, its table's description, its measurements.

Everything in it is public, so no question costs anything, and no project file or ledger is looked at.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from sfumato.errors import RecipeError, ReleaseError, UnsupportedQuery, VerificationFailed
from sfumato.exact import parse_exact, parse_positive
from sfumato.inference.files import unpack_models
from sfumato.questions import NORM_GRID, ClippedMarginal, Marginal, Request
from sfumato.recipes import MOST_ANSWERS
from sfumato.release.folder import failing_closed, open_folder
from sfumato.sql.aggregates import name_item, read_whole, spell_position
from sfumato.sql.check import refuse, refuse_deep
from sfumato.sql.finish import Answer
from sfumato.sql.model.fields import Evidence, Field, Fields, read_fields, respond
from sfumato.sql.statement import Statement, read_statement
from sfumato.tables.arrays import read_parquet, to_numpy

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from numpy.typing import NDArray

    from sfumato.inference.model import Model
    from sfumato.schema import Table


_READ = ("expressions", "from_", "where", "group", "order", "limit", "offset", "kind", "hint")


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """A column of the answer: a key, a number of records, or a sum or average of a field."""

    kind: Literal["key", "count", "sum", "average"]
    field: Field | None = None
    name: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A checked statement; `columns` are those of the model that it looks at."""

    fields: Fields
    keys: tuple[Field, ...]
    outputs: tuple[Output, ...]
    condition: exp.Expr | None
    order: tuple[tuple[Output, bool], ...]
    limit: int | None
    offset: int
    columns: tuple[str, ...]


def read_question(statement: Statement, fields: Fields) -> Question:
    """The question that a statement asks of the model of one table, or a refusal that says why."""
    if statement.mode == "private" or statement.explain:
        raise refuse("a released model is asked with a plain SELECT, which spends nothing")
    query = statement.query
    for name, clause in query.args.items():
        if clause and name not in _READ:
            raise refuse(f"{name.strip('_').upper()} in a question to a model")
    fields = replace(fields, alias=_read_source(query, fields))
    keys = _read_keys(query, fields)
    outputs = tuple(
        replace(_read_output(item.unalias(), fields, keys), name=name_item(item, text))
        for item, text in zip(query.expressions, statement.texts, strict=True)
    )
    names = [
        output.name + suffix
        for output in outputs
        for suffix in (("",) if output.kind == "key" else ("", "_low", "_high"))
    ]
    if len(set(names)) != len(names):
        raise refuse("two columns of the answer, with those of their intervals, have the same name; use AS")
    where, order = query.args.get("where"), query.args.get("order")
    condition = None if where is None else where.this
    ordered = tuple(
        (_read_order(each.this, query, fields, keys, outputs), bool(each.args.get("desc")))
        for each in (order.expressions if order is not None else ())
    )
    used = [*keys, *(each.field for each in (*outputs, *(output for output, _ in ordered)) if each.field)]
    if condition is not None:
        used += [fields.find(column) for column in condition.find_all(exp.Column)]
    return Question(
        fields=fields,
        keys=keys,
        outputs=outputs,
        condition=condition,
        order=ordered,
        limit=read_whole(query.args.get("limit"), "LIMIT"),
        offset=read_whole(query.args.get("offset"), "OFFSET") or 0,
        columns=tuple(dict.fromkeys(field.column for field in used)),
    )


def _read_source(query: exp.Select, fields: Fields) -> str:
    """The name by which the statement calls the table of the model."""
    source = query.args.get("from_")
    table = source.this if source is not None else None
    if (
        not isinstance(table, exp.Table)
        or not isinstance(table.this, exp.Identifier)
        or any(value for name, value in table.args.items() if name not in ("this", "alias"))
    ):
        raise refuse(f"a model is asked with FROM {fields.alias}, its one table, and nothing beside it")
    if table.name.lower() != fields.alias.lower():
        raise refuse(f"no table {table.name[:60]!r}; the model is of {fields.alias!r}")
    return str(table.alias or table.name)


def _read_keys(query: exp.Select, fields: Fields) -> tuple[Field, ...]:
    group = query.args.get("group")
    if group is None:
        return ()
    if any(value for name, value in group.args.items() if name != "expressions"):
        raise refuse("GROUP BY ALL, ROLLUP, CUBE and GROUPING SETS; list the columns")
    keys = []
    aliases = {item.alias.lower(): item.this for item in query.expressions if isinstance(item, exp.Alias)}
    for item in group.expressions:
        node = spell_position(item, query, where="GROUP BY")
        if isinstance(node, exp.Column) and not node.table and node.name.lower() not in fields.named:
            node = aliases.get(node.name.lower(), node)
        if not isinstance(node, exp.Column):
            raise refuse(f"GROUP BY {node.sql()[:60]!r}; a model is grouped by its columns")
        keys.append(fields.find(node))
    if len(set(keys)) != len(keys):
        raise refuse("GROUP BY names a column twice")
    return tuple(keys)


def _read_output(node: exp.Expr, fields: Fields, keys: tuple[Field, ...]) -> Output:
    match node:
        case exp.Column() if not isinstance(node.this, exp.Star):
            field = fields.find(node)
            if field not in keys:
                raise refuse(
                    f"column {field.name!r} is neither aggregated nor in GROUP BY; rows are in the "
                    "release's own table"
                )
            return Output(kind="key", field=field)
        case exp.Count() if isinstance(node.this, exp.Star) and not node.expressions:
            return Output(kind="count")
        case exp.Sum() | exp.Avg() if isinstance(node.this, exp.Column):
            field = fields.find(node.this)
            if field.ends is None:
                raise refuse(f"{node.key.upper()} of {field.name!r}, which holds no numbers")
            return Output(kind="sum" if isinstance(node, exp.Sum) else "average", field=field)
        case _:
            raise refuse(
                f"{node.sql()[:60]!r} in the select list; a model answers COUNT(*), SUM(column), AVG(column) "
                "and the columns of GROUP BY"
            )


def _read_order(
    node: exp.Expr, query: exp.Select, fields: Fields, keys: tuple[Field, ...], outputs: tuple[Output, ...]
) -> Output:
    if isinstance(node, exp.Column) and not node.table:
        for output in outputs:
            if output.name.lower() == node.name.lower():
                return output
    return _read_output(spell_position(node, query, where="ORDER BY"), fields, keys)


_MOST_CELLS = 2**22
_MODEL, _MEASUREMENTS = "model.parquet", "measurements.parquet"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Measured:
    """A measurement of every cell of a marginal: its request, in units of 1 / grid."""

    request: Request
    grid: int

    @property
    def target(self) -> tuple[frozenset[str], Fraction | None]:
        """What it is a noisy version of: measurements of the same may be averaged."""
        counted = self.request.counted
        return frozenset(counted.columns), counted.norm if isinstance(counted, ClippedMarginal) else None

    @property
    def variance(self) -> float:
        """The variance of the noise of a cell, in records."""
        return (self.request.standard_deviation / self.grid) ** 2


class ReleasedModel:
    """The model of a release, which answers plain SELECTs at no cost."""

    def __init__(
        self, *, table: Table, model: Model, epsilon: str, measured: tuple[_Measured, ...], packed: bytes
    ) -> None:
        self.table = table
        self.model = model
        self.epsilon = epsilon
        self._measured = measured
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
        statement = read_statement(text)
        try:
            question = read_question(statement, self._fields)
            cells = self.model.domain.cells(question.columns)
            if cells > _MOST_CELLS:
                raise refuse(f"the columns have {cells:,} combinations, more than {_MOST_CELLS:,}; use fewer")
            expected = self.model.marginal(question.columns).reshape(-1)
            evidence = self._find_evidence(question.columns)
            table = respond(question, self.model.domain, expected, evidence)
        except RecipeError as error:
            raise UnsupportedQuery(str(error)) from None
        told = _tell(evidence)
        names = [output.name for output in question.outputs if output.kind != "key"]
        notes: tuple[str, ...] = ()
        if evidence is None and names:
            notes = (
                f"no interval: no measurement counts {' x '.join(question.columns)} cell by cell; the answer "
                "rests on what the model takes to be independent",
            )
        return Answer(table=table, public=True, scales=dict.fromkeys(names, told), notes=notes)

    def _find_evidence(self, columns: tuple[str, ...]) -> Evidence | None:
        """The noisy counts of `columns` with the least noise, from the measurements of one marginal."""
        groups: dict[object, list[_Measured]] = {}
        for each in self._measured:
            if set(columns) <= set(each.request.columns):
                groups.setdefault(each.target, []).append(each)
        if not groups:
            return None

        # Which is used must depend on public facts alone, never on the noisy values themselves.
        def noise(group: list[_Measured]) -> float:
            cells = self.table.cells(group[0].request.columns) / self.table.cells(columns)
            return cells / sum(1 / each.variance for each in group)

        best = min(groups.values(), key=noise)
        precision = sum(1 / each.variance for each in best)
        values = np.zeros(self.table.cells(columns))
        for each in best:
            values += self._read_counts(each, columns) * (1 / each.variance / precision)
        return Evidence(
            name=best[0].request.name
            if len(best) == 1
            else f"{best[0].request.name} and {len(best) - 1} more",
            values=values,
            deviation=float(np.sqrt(noise(best))),
            step=1 / best[0].grid,
            noise="laplace" if any(each.request.noise == "laplace" for each in best) else "gaussian",
        )

    def _read_counts(self, measured: _Measured, columns: tuple[str, ...]) -> NDArray[np.float64]:
        """The noisy counts of a measurement in records, summed up to `columns`, flat."""
        names = measured.request.columns
        try:
            rows = read_parquet(self._packed, columns=["measurement", "noisy_value"], rows=MOST_ANSWERS)
            mine = rows.filter(pc.equal(rows["measurement"], measured.request.name))
            flat = to_numpy(mine["noisy_value"].combine_chunks()).astype(np.float64)
            counts = flat.reshape([self.table.cells((name,)) for name in names]) / measured.grid
        except (pa.ArrowException, LookupError, ValueError, OSError) as error:
            raise VerificationFailed(
                f"{_MEASUREMENTS} does not hold {measured.request.name!r} ({type(error).__name__})"
            ) from None
        summed = counts.sum(axis=tuple(at for at, name in enumerate(names) if name not in columns))
        left = [name for name in names if name in columns]
        return np.asarray(summed.transpose([left.index(name) for name in columns])).reshape(-1)


def open_model(folder: Path | str, *, epsilon: object = None) -> ReleasedModel:
    """The model of the release in `folder`; `epsilon` chooses if it holds several.

    The files are compared with the digests in the certificate; that they follow from the measurements is
    for `verify` to say.
    """
    opened = open_folder(folder, wanted=(_MODEL, _MEASUREMENTS))
    if _MODEL not in opened.files:
        raise ReleaseError(f"the release {opened.name!r} has no {_MODEL}; its recipe makes no model")
    table = opened.described()
    with failing_closed("the release cannot be asked"):
        models = unpack_models(opened.files[_MODEL])
        measured = _read_measured(table, opened.certificate["measurements"])
    key, model = _choose(models, epsilon)
    released = ReleasedModel(
        table=table, model=model, epsilon=key, measured=measured, packed=opened.files[_MEASUREMENTS]
    )
    if not released.columns:
        raise VerificationFailed(f"{_MODEL} is of no column that the certificate describes")
    return released


def _choose(models: Mapping[str, Model], epsilon: object) -> tuple[str, Model]:
    held = ", ".join(models)
    if epsilon is None:
        if len(models) > 1:
            raise RecipeError(f"the release holds models at epsilon {held}; choose one with --epsilon")
        return next(iter(models.items()))
    wanted = parse_positive(epsilon, name="epsilon")
    for key, model in models.items():
        try:
            if parse_exact(key, name="epsilon") == wanted:
                return key, model
        except RecipeError:
            continue
    raise RecipeError(f"the release holds no model at that epsilon; it has {held}")


def _read_measured(table: Table, asks: list[Any]) -> tuple[_Measured, ...]:
    """The measurements of whole marginals; those of queries tell nothing here about single cells."""
    measured = []
    for ask in asks:
        if not isinstance(ask, dict):
            raise TypeError("a measurement is not described")
        if "columns" not in ask or "queries" in ask:
            continue
        norm = parse_positive(ask["contribution_norm"], name="norm") if "contribution_norm" in ask else None
        columns = tuple(ask["columns"])
        request = Request(
            name=str(ask["name"]),
            counted=Marginal(columns) if norm is None else ClippedMarginal(columns, norm),
            noise=ask["kind"],
            scale=parse_positive(ask["scale"], name="scale"),
        )
        table.cells(request.columns)
        measured.append(_Measured(request=request, grid=table.grid if norm is None else NORM_GRID))
    return tuple(measured)


def _tell(evidence: Evidence | None) -> str:
    if evidence is None:
        return "no measurement counts these columns cell by cell, so there is no interval"
    return (
        f"intervals from {evidence.name}: {evidence.noise} noise, standard deviation "
        f"{evidence.deviation:.6g} per combination of the columns asked about"
    )
