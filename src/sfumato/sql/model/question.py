"""Reading a plain SELECT about a model: what it groups by, what it sums up, and how it is cut."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from sqlglot import exp

from sfumato.sql.check import refuse
from sfumato.sql.keys import name_item, read_whole, spell_position

if TYPE_CHECKING:
    from sfumato.sql.model.fields import Field, Fields
    from sfumato.sql.statement import Statement

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
