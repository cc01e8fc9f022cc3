"""Pieces of a statement for DuckDB, and the types of what they give."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from sfumato.serve.catalog.grammar import fold, read_list, refuse
from sfumato.serve.catalog.tables import kept_as

_MOST_TEXT = 10_000  # of what `||` and its like make, so that doubling leads nowhere
Columns = list[tuple[str, str | None]]
"""The columns of a relation in order, with their PostgreSQL types where these are known."""
Scope = dict[str, dict[str, str | None]]
"""The relations that a name may be looked up in, with the types of their columns."""


def unroll(with_: exp.With) -> None:
    """Writes asyncpg's search for types within types, the one recursion that is answered, as three steps."""
    cte = with_.expressions[0]
    name, alias, union = cte.alias, cte.args["alias"], cte.this
    if (
        name not in ("typeinfo_tree", "typebases")
        or len(with_.expressions) > 1
        or not isinstance(union, exp.Union)
    ):
        raise refuse("WITH RECURSIVE is not part of what the catalog answers")
    steps = [exp.CTE(this=union.left.copy(), alias=_step(alias, 0))]
    for number in range(1, 3):
        step = union.right.copy()
        for table in step.find_all(exp.Table):
            if table.name == name:
                table.set("alias", table.args.get("alias") or exp.TableAlias(this=exp.to_identifier(name)))
                table.set("this", exp.to_identifier(f"{name}_{number - 1}"))
        steps.append(exp.CTE(this=step, alias=_step(alias, number)))
    whole: exp.Expr = exp.select("*").from_(f"{name}_0")
    for number in range(1, 3):
        whole = exp.Union(this=whole, expression=exp.select("*").from_(f"{name}_{number}"), distinct=False)
    with_.set("recursive", None)
    with_.set("expressions", [*steps, exp.CTE(this=whole, alias=alias.copy())])


def _step(alias: exp.TableAlias, number: int) -> exp.TableAlias:
    copy = alias.copy()
    copy.set("this", exp.to_identifier(f"{alias.name}_{number}"))
    return copy


def compare_list(node: exp.Expr) -> exp.Expr:
    """`x = ANY (list)` and `x <> ALL (list)`; what compares with a query stays as it is."""
    inner = node.expression.this
    while isinstance(inner, exp.Paren):
        inner = inner.this
    if isinstance(inner, exp.Query):
        return node
    wanted = exp.Any if isinstance(node, exp.EQ) else exp.All
    if not isinstance(node.expression, wanted):
        raise refuse("of lists, `= ANY` and `<> ALL` are answered")
    if isinstance(inner, exp.Literal) and inner.is_string:
        inner = make_list(inner.name)
    found = call_plain("list_contains", inner, node.this)
    return found if wanted is exp.Any else exp.Not(this=found)


def expand(star: exp.Expr, inner: Scope) -> list[tuple[str, str, str | None]]:
    """The tables, names and types of the columns that a star stands for."""
    table = fold(star.args["table"]) if isinstance(star, exp.Column) else None
    return [
        (shown, name, type_)
        for shown, columns in inner.items()
        if table in (None, shown)
        for name, type_ in columns.items()
    ]


def rename_columns(columns: Columns, alias: exp.TableAlias | None) -> Columns:
    """Columns under the names that an alias gives them."""
    titles = [fold(each) for each in (alias.args.get("columns") or [])] if alias is not None else []
    return [
        (titles[place] if place < len(titles) else name, type_) for place, (name, type_) in enumerate(columns)
    ]


def make_alias(shown: str, alias: exp.TableAlias | None) -> exp.TableAlias:
    """An alias for a relation, with the names of its columns if they were given."""
    titles = (alias.args.get("columns") or []) if alias is not None else []
    return exp.TableAlias(this=quoted(shown), columns=[quoted(fold(each)) for each in titles])


def find_given(node: exp.Expr) -> set[str]:
    """The arguments of a node that are there."""
    return {key for key, value in node.args.items() if value}


def quote_name(node: exp.Identifier) -> None:
    """Gives a name the letters that PostgreSQL takes it for."""
    node.set("this", fold(node))
    node.args["quoted"] = True


def quoted(name: str) -> exp.Identifier:
    """A name in quotes."""
    return exp.to_identifier(name, quoted=True)


def call_own(name: str, *values: exp.Expr) -> exp.Expr:
    """A function of tables.sql."""
    return exp.Dot(
        this=exp.to_identifier("sys"), expression=exp.Anonymous(this=f'"{name}"', expressions=list(values))
    )


def call_plain(name: str, *values: exp.Expr) -> exp.Expr:
    """A function of DuckDB."""
    return exp.Anonymous(this=name, expressions=list(values))


def cast_to(node: exp.Expr, type_: str) -> exp.Expr:
    """A value as DuckDB keeps one of a PostgreSQL type."""
    return exp.cast(node, exp.DataType.build(kept_as(type_), dialect="duckdb"), copy=False)


def cut(node: exp.Expr, most: int = _MOST_TEXT) -> exp.Expr:
    """A text or list, no longer than it may grow."""
    span = exp.Slice(this=exp.Literal.number(1), expression=exp.Literal.number(most))
    written = exp.Bracket(this=exp.paren(node, copy=False), expressions=[span])
    written.meta["cut"] = True
    return written


def make_list(text: str) -> exp.Expr:
    """A list from PostgreSQL's spelling of one."""
    return cast_to(exp.Array(expressions=[exp.Literal.string(each) for each in read_list(text)]), "_text")


def list_of(type_: str | None) -> str | None:
    """The type of lists of a type."""
    return None if type_ is None else "_text" if type_ == "unknown" else f"_{type_}"


def common(types: Sequence[str | None]) -> str | None:
    """The type of values of several types, where PostgreSQL's choice is plain; None if it is not known."""
    known = [type_ for type_ in types if type_ != "unknown"]
    if len({*known}) > 1:
        return known[0] if {*known} <= {"text", "name", "varchar"} else None
    return known[0] if known else "unknown"


def as_list(value: object) -> list[exp.Expr]:
    """The parts of an argument that is one or several."""
    return value if isinstance(value, list) else [value]  # type: ignore[list-item]


def element_of(type_: str | None) -> str | None:
    """The type of the elements of a list."""
    if type_ in ("int2vector", "oidvector"):
        return {"int2vector": "int2", "oidvector": "oid"}[type_]
    return type_[1:] if type_ is not None and type_.startswith("_") else None
