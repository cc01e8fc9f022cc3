"""Group keys: what GROUP BY groups by, and which groups there are before a record is read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlglot import exp

from sfumato.schema import Label
from sfumato.sql.check import refuse
from sfumato.sql.qualify import qualify
from sfumato.sql.relation import Relation, code_name

if TYPE_CHECKING:
    from collections.abc import Sequence

_PARTS: dict[str, tuple[int, int]] = {
    "QUARTER": (1, 4),
    "MONTH": (1, 12),
    "DAY": (1, 31),
    "DOW": (0, 6),
    "DAYOFWEEK": (0, 6),
    "ISODOW": (1, 7),
    "HOUR": (0, 23),
    "MINUTE": (0, 59),
}
_PART_NODES: dict[type[exp.Expr], str] = {
    exp.Quarter: "QUARTER",
    exp.Month: "MONTH",
    exp.Day: "DAY",
    exp.DayOfWeek: "DOW",
    exp.Hour: "HOUR",
    exp.Minute: "MINUTE",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """A group key: the tree that gives its code (or its text), and its labels if they are public."""

    node: exp.Expr
    tree: exp.Expr
    labels: tuple[Label, ...] | None

    @property
    def is_open(self) -> bool:
        """Whether the groups are in the records only, so that they must be chosen privately."""
        return self.labels is None


def read_keys(query: exp.Select, relation: Relation) -> tuple[Key, ...]:
    """The keys of GROUP BY, by name, by position, by alias or by expression."""
    group = query.args.get("group")
    if group is None:
        return ()
    for name in ("grouping_sets", "cube", "rollup", "totals", "all"):
        if group.args.get(name):
            raise refuse(f"GROUP BY {name.upper().replace('_', ' ')} is not supported; list the columns")
    keys = tuple(read_key(_target(item, query), relation) for item in group.expressions)
    texts = [key.node.sql() for key in keys]
    if len(set(texts)) != len(texts):
        raise refuse("GROUP BY names a column twice")
    return keys


def _target(item: exp.Expr, query: exp.Select) -> exp.Expr:
    item = spell_position(item, query, where="GROUP BY")
    if isinstance(item, exp.Column) and not item.table:
        for selected in query.expressions:
            if isinstance(selected, exp.Alias) and selected.alias.lower() == item.name.lower():
                named: exp.Expr = selected.this
                return named
    return item


def spell_position(node: exp.Expr, query: exp.Select, *, where: str) -> exp.Expr:
    """The item of the select list that a whole number stands for; anything else as it is."""
    if not (isinstance(node, exp.Literal) and node.is_int):
        return node
    position = int(node.this)
    if not 1 <= position <= len(query.expressions):
        raise refuse(f"{where} {position}: the select list has {len(query.expressions)} items")
    target: exp.Expr = query.expressions[position - 1].unalias()
    return target


def read_key(node: exp.Expr, relation: Relation, *, where: str = "GROUP BY") -> Key:
    """The key that groups by `node`; `where` is what a refusal calls the place."""
    tree = qualify(node, relation, where=where)
    if isinstance(tree, exp.Column):
        alias, field = relation.find(tree)
        if field.is_unit:
            raise refuse("GROUP BY the unit would single out individuals")
        if field.column is not None:
            code = exp.column(code_name(field.name), table=alias, quoted=True)
            return Key(node=tree, tree=code, labels=field.column.labels)
        if field.is_drafted:
            raise refuse(f"{where} {field.name}: its domain was drafted from the data; see accept_drafted")
        if field.labels is not None:
            return Key(node=tree, tree=_code_of(tree, field.labels), labels=field.labels)
        if field.kind == "boolean":
            return Key(node=tree, tree=_code_of(tree, (False, True)), labels=("false", "true"))
    elif any(relation.find(column)[1].is_unit for column in tree.find_all(exp.Column)):
        raise refuse("GROUP BY computes with the unit, which would single out individuals")
    labels = _finite_labels(tree)
    if labels is not None:
        shown = tuple(str(each).lower() if isinstance(each, bool) else each for each in labels)
        return Key(node=tree, tree=_code_of(tree, labels), labels=shown)
    return Key(node=tree, tree=exp.cast(tree, "VARCHAR"), labels=None)


def _finite_labels(tree: exp.Expr) -> tuple[Label, ...] | None:
    """The values that the form of an expression allows, if they are few and public."""
    if isinstance(tree, exp.Paren):
        return _finite_labels(tree.this)
    if isinstance(tree, (exp.Predicate, exp.And, exp.Or, exp.Not)):
        return (False, True)
    part = tree.name.upper() if isinstance(tree, exp.Extract) else _PART_NODES.get(type(tree), "")
    if part in _PARTS:
        low, high = _PARTS[part]
        return tuple(range(low, high + 1))
    if isinstance(tree, exp.Case):
        results = [branch.args["true"] for branch in tree.args["ifs"]]
        default = tree.args.get("default")
        results += [default] if default is not None and not isinstance(default, exp.Null) else []
        if all(isinstance(result, exp.Literal) for result in results):
            values = [
                str(result.this) if result.is_string else int(result.this) if result.is_int else None
                for result in results
            ]
            kinds = {type(value) for value in values}
            if None not in values and len(kinds) == 1:
                return tuple(dict.fromkeys(value for value in values if value is not None))
    return None


def _code_of(tree: exp.Expr, labels: Sequence[Label | bool]) -> exp.Expr:
    """A CASE that gives the position of the label that `tree` takes, NULL if it takes none."""
    case = exp.Case()
    for index, label in enumerate(labels):
        literal = exp.convert(label)
        case = case.when(exp.EQ(this=exp.paren(tree.copy()), expression=literal), exp.Literal.number(index))
    return case


def name_item(item: exp.Expr, text: str) -> str:
    """The name of an item of a select list: its alias, or else `text`."""
    return str(item.alias) if isinstance(item, exp.Alias) else text


def read_whole(clause: exp.Expr | None, name: str) -> int | None:
    """The whole number of a clause such as LIMIT, None if there is none."""
    if clause is None:
        return None
    node = clause.expression
    if not isinstance(node, exp.Literal) or not node.is_int or clause.args.get("limit_options"):
        raise refuse(f"{name} takes a whole number of rows, not a share")
    return int(node.this)
