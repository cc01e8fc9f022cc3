"""UNION ALL of inner queries: the rows of all of them, each with its individual."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa
from sqlglot import exp

from sfumato.core.facts.table import UNIT, PrivacyUnit, code_name
from sfumato.sql.check import refuse
from sfumato.sql.relation import Field, Relation, Source, alias_table
from sfumato.sql.semijoins import COMMON_TYPES

_PART = "part of sfumato"
_WHOLE = "union of sfumato"


def unite(parts: list[Relation]) -> Relation:
    """The rows of all parts, with the column names of the first.

    Privacy: an individual may have as many rows as all parts together admit, and is held to that number;
    docs/proofs/sql.md, "Unions".
    """
    unit = _unite_units([part.unit for part in parts])
    listed = [list(next(iter(part.fields.values())).values()) for part in parts]
    if len({len(fields) for fields in listed}) > 1:
        raise refuse("UNION ALL of queries with different numbers of columns")
    fields = [_merge([each[place] for each in listed]) for place in range(len(listed[0]))]
    selects = [_select(part, own, fields) for part, own in zip(parts, listed, strict=True)]
    union: exp.Expr = selects[0]
    for select in selects[1:]:
        union = exp.Union(this=union, expression=select, distinct=False)
    names = [each.alias for each in selects[0].expressions]
    offered = [exp.alias_(exp.column(name, table=_WHOLE, quoted=True), name, quoted=True) for name in names]
    source = exp.Subquery(this=union, alias=alias_table(_WHOLE))
    return Relation(
        tree=exp.Select().from_(source).select(*offered),
        fields={"": {field.name.lower(): field for field in fields}},
        unit=unit,
        unit_alias=None if unit is None else _WHOLE,
        tables=tuple(name for part in parts for name in part.tables),
        private=tuple(dict.fromkeys(name for part in parts for name in part.private)),
        joined=True,
        multiplied=any(part.multiplied for part in parts),
    )


def check_names(sources: Sequence[Source]) -> None:
    """Refuses tables that may spell one individual in two ways: each would be bounded by itself."""
    spelled = {source.name: _describe_names(source) for source in sources if source.table is not None}
    if len(set(spelled.values())) > 1:
        told = ", ".join(f"{name}: {spelling}" for name, spelling in spelled.items())
        raise refuse(
            f"UNION ALL of tables that store their units differently ({told}), so that one individual could "
            "have two names; store them alike, with one text_limit"
        )


def _describe_names(source: Source) -> str:
    assert source.table is not None
    column = source.table.unit.column
    if column is None:
        return "row"
    kind, stored = source.stored.get(column, "text"), source.types.get(column)
    if kind == "text":
        # A longer name becomes a digest.
        return f"text of at most {source.table.text_limit} characters"
    if stored is not None and pa.types.is_decimal(stored):
        return f"decimals with {stored.scale} places"
    return kind


def _unite_units(units: list[PrivacyUnit | None]) -> PrivacyUnit | None:
    known = [unit for unit in units if unit is not None]
    if not known:
        return None
    if len(known) < len(units):
        raise refuse("UNION ALL of people's records with a public table: its rows would be nobody's")
    if any(unit.column is None for unit in known) or len({unit.neighbours for unit in known}) > 1:
        raise refuse("UNION ALL of private tables needs a unit column in each, and the same neighbours")
    groups = [unit.max_groups or unit.max_records for unit in known]
    total = sum(unit.max_records for unit in known)
    limited = any(unit.max_groups is not None for unit in known)
    return replace(known[0], max_records=total, max_groups=sum(groups) if limited else None)


def _merge(fields: list[Field]) -> Field:
    """What is known of a column that takes the values of several."""
    first = fields[0]
    kinds = {field.kind for field in fields}
    kinds = {"number"} if kinds == {"integer", "number"} else kinds
    if len(kinds) > 1 or "unknown" in kinds:
        raise refuse(f"UNION ALL of column {first.name[:60]!r}: its types differ or are not known; cast it")
    bounds = [field.bounds for field in fields if field.bounds is not None]
    moments = [field.moments for field in fields if field.moments is not None]
    begins = [each[0] for each in moments]
    ends = [each[1] for each in moments]
    ranged = len(moments) == len(fields) and None not in begins and None not in ends
    same = all(_facts(field) == _facts(first) for field in fields)
    return Field(
        name=first.name,
        kind=kinds.pop(),
        bounds=(min(each[0] for each in bounds), max(each[1] for each in bounds))
        if len(bounds) == len(fields)
        else None,
        column=first.column if same else None,
        is_unit=all(field.is_unit for field in fields),
        labels=first.labels if same else None,
        is_drafted=any(field.is_drafted for field in fields),
        type=first.type if len({field.type for field in fields}) == 1 else None,
        moments=(min(each for each in begins if each), max(each for each in ends if each))
        if ranged
        else None,
        period=first.period if same else None,
        counted=all(field.counted for field in fields),
        is_private=any(field.is_private for field in fields),
    )


def _facts(field: Field) -> tuple[object, ...]:
    """What must be the same of columns whose labels are to be one list."""
    column = field.column
    described = None if column is None else (column.domain, column.labels)
    return described, field.labels, field.period


def _select(part: Relation, own: list[Field], fields: list[Field]) -> exp.Select:
    """The rows of one part, with its columns as they are called and converted in the whole."""
    items: list[exp.Expr] = []
    for mine, field in zip(own, fields, strict=True):
        value: exp.Expr = exp.column(mine.name, table=_PART, quoted=True)
        if field.type is None or field.is_unit:
            kind = "VARCHAR" if field.is_unit else COMMON_TYPES[field.kind]
            value = exp.TryCast(this=value, to=exp.DataType.build(kind))
        items.append(exp.alias_(value, field.name, quoted=True))
        if field.column is not None:
            code = exp.column(code_name(mine.name), table=_PART, quoted=True)
            items.append(exp.alias_(code, code_name(field.name), quoted=True))
    if part.unit is not None:
        unit = exp.TryCast(this=exp.column(UNIT, table=_PART, quoted=True), to=exp.DataType.build("VARCHAR"))
        items.append(exp.alias_(unit, UNIT, quoted=True))
    source = exp.Subquery(this=part.tree.copy(), alias=alias_table(_PART))
    return exp.Select().from_(source).select(*items)
