"""A client's statement, read as PostgreSQL reads it: its tree, what it is about, and the names in it.

Pieces of a statement for DuckDB stand here too, with the types of what they give.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import sqlglot
from sqlglot import exp
from sqlglot.dialects.postgres import Postgres

from sfumato.core.errors import UnsupportedQuery
from sfumato.serve.catalog.tables import TYPES, Relation, kept_as, read_description, read_functions
from sfumato.sql.constants import read_array

_LONGEST = 100_000  # signs; the parser's time grows with them
EMPTY: dict[str, list[str]] = TYPES["empty"]
KEYWORDS = str(TYPES["keywords"])
ALIASES: dict[str, str] = TYPES["aliases"]
WORDS = (
    exp.CurrentUser,
    exp.SessionUser,
    exp.CurrentRole,
    exp.CurrentCatalog,
    exp.CurrentSchema,
    exp.CurrentTimestamp,
    exp.Localtimestamp,
)
"""Functions that are called without brackets."""
_ONE_CHAR = "one_char"  # a spelling of "char" in quotes, which some parsers do not tell from char
# Strings, quoted names and comments are passed over. Parameters, lists of numbered types and columns that are
# called as a statement is get a spelling that the parser reads.
_TOKENS = re.compile(
    r"""(?P<char>::\s*(?:pg_catalog\s*\.\s*)?"char")|"""
    r"""(?P<kept>[eE]'(?:[^'\\]|\\.|'')*'|'(?:[^']|'')*'|"(?:[^"]|"")*"|--[^\n]*|/\*.*?\*/"""
    r"""|\$(?P<tag>[A-Za-z_]\w*)?\$.*?\$(?P=tag)?\$)"""
    r"""|\$(?P<number>\d{1,4})|\b(?P<type>oid|xid|reg[a-z]+|name)\s*\[\s*\]"""
    r"""|\bAS\s+(?P<word>select|table|update|insert|delete)\b""",
    re.DOTALL | re.IGNORECASE,
)


class _Dialect(Postgres):
    class Parser(Postgres.Parser):  # type: ignore[misc, valid-type]
        # Functions keep the names that were written, so that the list of those allowed is of names.
        FUNCTIONS: dict[str, Any] = {}  # noqa: RUF012 - as in the parent
        FUNCTION_PARSERS = {  # noqa: RUF012
            name: parse
            for name, parse in Postgres.Parser.FUNCTION_PARSERS.items()
            if name in ("CAST", "EXTRACT", "POSITION", "SUBSTRING", "TRIM")
        }

        def _warn_unsupported(self) -> None:
            """Does not log the client's text, as the parent does."""


def read_statement(text: str) -> exp.Query | None:
    """Returns the tree of a query, or None if it is nothing that could be about system tables alone."""
    if (
        len(text) > _LONGEST
        or re.match(r"[\s(]*(?:/\*.*?\*/\s*|--[^\n]*\n\s*)*(?:SELECT|WITH|VALUES|TABLE)\b", text, re.I | re.S)
        is None
    ):
        return None
    try:
        trees = _Dialect().parse(_TOKENS.sub(_spell, text))
    except (sqlglot.errors.SqlglotError, RecursionError):
        return None
    if len(trees) != 1 or not isinstance(trees[0], exp.Query):
        return None
    for call in trees[0].find_all(exp.Anonymous):  # a function that lists what the table has
        if isinstance(call.parent, exp.Table) and call.name.lower() == "pg_show_all_settings":
            call.replace(exp.to_identifier("pg_settings"))
    return trees[0]


def is_about_system(tree: exp.Query) -> bool:
    """Returns whether a query names a system table, or no table and known functions alone."""
    ctes = {cte.alias.lower() for cte in tree.find_all(exp.CTE)}
    named = [table for table in tree.find_all(exp.Table) if isinstance(table.this, exp.Identifier)]
    named = [table for table in named if table.db or table.name.lower() not in ctes]
    if named:
        return any(find_relation(table) is not None for table in named)
    return {node.name.lower() for node in tree.find_all(exp.Anonymous)} <= read_functions()["allowed"] | {
        *ALIASES,
        *EMPTY,
        "all",
        "array",
    }


def refuse(reason: str) -> UnsupportedQuery:
    """Returns the error for what is not answered."""
    return UnsupportedQuery(f"{reason}; nothing was spent")


def find_relation(table: exp.Table) -> Relation | None:
    """Returns the system table that is named, or None; without a schema, those of pg_catalog are found."""
    schema = fold(table.args["db"]) if isinstance(table.args.get("db"), exp.Expr) else "pg_catalog"
    if schema not in ("pg_catalog", "information_schema"):
        return None
    return read_description().relations.get((schema[0], fold(table.this)))


def read_list(text: str) -> list[str]:
    """Returns the texts in PostgreSQL's spelling of a list, `{a,"b c"}`."""
    try:
        return [each for each in read_array(text) if each is not None]
    except ValueError as error:
        raise refuse(str(error)) from None


def read_type(node: exp.Expr) -> str:
    """Returns the name that pg_type has for a type in a cast."""
    if isinstance(node, exp.DataType) and node.this == exp.DataType.Type.ARRAY:
        return f"_{read_type(node.expressions[0])}"
    kind = node.args.get("kind") or node.this
    if isinstance(node.this, exp.DataType.Type) and node.this != exp.DataType.Type.USERDEFINED:
        name = str(node.this.value).lower()
    elif isinstance(kind, exp.Dot):
        name = kind.expression.name.lower()
    else:
        name = (kind.name if isinstance(kind, exp.Expr) else str(kind)).lower()
    name = str(TYPES["casts"].get(name, name))
    if name not in read_description().oids:
        raise refuse(f"type {name[:60]!r} is not part of what the catalog answers")
    return name


def name_column(node: exp.Expr) -> str:
    """Returns the name that PostgreSQL gives to a column without one."""
    return _find_name(node)[0]


def _find_name(node: exp.Expr) -> tuple[str, bool]:
    """Returns a name, and whether a cast or a CASE around it leaves it."""
    match node:
        case exp.Column():
            return fold(node.this), True
        case exp.Anonymous():
            return node.name.lower(), True
        case exp.Dot() if isinstance(node.expression, exp.Identifier):
            return fold(node.expression), True
        case exp.Dot():
            return _find_name(node.expression)
        case exp.Paren() | exp.Filter() | exp.Window() | exp.Collate() | exp.Bracket():
            return _find_name(node.this)
        case exp.Subquery() if node.this.selects:
            first = node.this.selects[0]
            return (fold(first.args["alias"]), True) if isinstance(first, exp.Alias) else _find_name(first)
        case exp.Cast():
            name, strong = _find_name(node.this)
            return (name, True) if strong else (read_type(node.to).removeprefix("_"), False)
        case exp.Case():
            name, strong = _find_name(node.args.get("default") or exp.Null())
            return (name, True) if strong else ("case", False)
        case exp.Trim():
            return "btrim", True
        case exp.Boolean():
            return "bool", False
    if isinstance(node, (*WORDS, exp.Array, exp.Exists, exp.Substring, exp.Extract)):
        return node.sql_name().lower(), True
    return "?column?", False


def fold(node: exp.Expr) -> str:
    """Returns a name as PostgreSQL takes it: in small letters unless it is quoted."""
    return node.name if node.args.get("quoted") else node.name.lower()


def find_number(node: exp.Parameter) -> int:
    """Returns the number of a parameter, which was spelled @p1."""
    found = re.fullmatch(r"p(\d{1,4})", node.name)
    if found is None or int(found[1]) == 0:
        raise refuse("parameters are written $1, $2, ...")
    return int(found[1])


def _spell(found: re.Match[str]) -> str:
    if found["number"]:
        return f"@p{found['number']}"
    if found["char"]:
        return f"::{_ONE_CHAR}"
    if found["word"]:
        return f'AS "{found["word"].lower()}"'
    return f"_{found['type']}" if found["type"] else found[0]


def unescape(text: str) -> str:
    """Returns the text of an E'...' string."""
    signs = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}
    return re.sub(r"\\(.)", lambda found: signs.get(found[1], found[1]), text, flags=re.DOTALL)


_MOST_TEXT = 10_000  # of what `||` and its like make, so that doubling leads nowhere
Columns = list[tuple[str, str | None]]
"""The columns of a relation in order, with their PostgreSQL types where these are known."""
Scope = dict[str, dict[str, str | None]]
"""The relations that a name may be looked up in, with the types of their columns."""


def compare_list(node: exp.Expr) -> exp.Expr:
    """Returns `x = ANY (list)` and `x <> ALL (list)`; what compares with a query stays as it is."""
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
    """Returns the tables, names and types of the columns that a star stands for."""
    table = fold(star.args["table"]) if isinstance(star, exp.Column) else None
    return [
        (shown, name, type_)
        for shown, columns in inner.items()
        if table in (None, shown)
        for name, type_ in columns.items()
    ]


def rename_columns(columns: Columns, alias: exp.TableAlias | None) -> Columns:
    """Returns columns under the names that an alias gives them."""
    titles = [fold(each) for each in (alias.args.get("columns") or [])] if alias is not None else []
    return [
        (titles[place] if place < len(titles) else name, type_) for place, (name, type_) in enumerate(columns)
    ]


def make_alias(shown: str, alias: exp.TableAlias | None) -> exp.TableAlias:
    """Returns an alias for a relation, with the names of its columns if they were given."""
    titles = (alias.args.get("columns") or []) if alias is not None else []
    return exp.TableAlias(this=quoted(shown), columns=[quoted(fold(each)) for each in titles])


def find_given(node: exp.Expr) -> set[str]:
    """Returns the arguments of a node that are there."""
    return {key for key, value in node.args.items() if value}


def quote_name(node: exp.Identifier) -> None:
    """Gives a name the letters that PostgreSQL takes it for."""
    node.set("this", fold(node))
    node.args["quoted"] = True


def quoted(name: str) -> exp.Identifier:
    """Returns a name in quotes."""
    return exp.to_identifier(name, quoted=True)


def call_own(name: str, *values: exp.Expr) -> exp.Expr:
    """Returns a function of tables.sql."""
    return exp.Dot(
        this=exp.to_identifier("sys"), expression=exp.Anonymous(this=f'"{name}"', expressions=list(values))
    )


def call_plain(name: str, *values: exp.Expr) -> exp.Expr:
    """Returns a function of DuckDB."""
    return exp.Anonymous(this=name, expressions=list(values))


def cast_to(node: exp.Expr, type_: str) -> exp.Expr:
    """Returns a value as DuckDB keeps one of a PostgreSQL type."""
    return exp.cast(node, exp.DataType.build(kept_as(type_), dialect="duckdb"), copy=False)


def cut(node: exp.Expr, most: int = _MOST_TEXT) -> exp.Expr:
    """Returns a text or list, no longer than it may grow."""
    span = exp.Slice(this=exp.Literal.number(1), expression=exp.Literal.number(most))
    written = exp.Bracket(this=exp.paren(node, copy=False), expressions=[span])
    written.meta["cut"] = True
    return written


def make_list(text: str) -> exp.Expr:
    """Returns a list from PostgreSQL's spelling of one."""
    return cast_to(exp.Array(expressions=[exp.Literal.string(each) for each in read_list(text)]), "_text")


def list_of(type_: str | None) -> str | None:
    """Returns the type of lists of a type."""
    return None if type_ is None else "_text" if type_ == "unknown" else f"_{type_}"


def common(types: Sequence[str | None]) -> str | None:
    """Returns the type of values of several types, None where PostgreSQL's choice is not plain."""
    known = [type_ for type_ in types if type_ != "unknown"]
    if len({*known}) > 1:
        return known[0] if {*known} <= {"text", "name", "varchar"} else None
    return known[0] if known else "unknown"


def as_list(value: object) -> list[exp.Expr]:
    """Returns the parts of an argument that is one or several."""
    return value if isinstance(value, list) else [value]  # type: ignore[list-item]


def element_of(type_: str | None) -> str | None:
    """Returns the type of the elements of a list."""
    if type_ in ("int2vector", "oidvector"):
        return {"int2vector": "int2", "oidvector": "oid"}[type_]
    return type_[1:] if type_ is not None and type_.startswith("_") else None
