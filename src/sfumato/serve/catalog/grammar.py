"""A client's statement, read as PostgreSQL reads it: its tree, what it is about, and the names in it."""

from __future__ import annotations

import re
from typing import Any

import sqlglot
from sqlglot import exp
from sqlglot.dialects.postgres import Postgres

from sfumato.core.errors import UnsupportedQuery
from sfumato.serve.catalog.tables import Relation, read_description, read_functions
from sfumato.sql.constants import read_array

_LONGEST = 100_000
# Functions in FROM that have no rows to give here, with their columns.
EMPTY = {
    "pg_get_keywords": ("word", "catcode", "catdesc"),
    "pg_options_to_table": ("option_name", "option_value"),
    "aclexplode": ("grantor", "grantee", "privilege_type", "is_grantable"),
    "pg_timezone_names": ("name", "abbrev", "utc_offset", "is_dst"),
    "pg_available_extensions": ("name", "default_version", "comment"),
}
KEYWORDS = "{analyse,analyze,freeze,ilike,isnull,limit,notnull,offset,returning,variadic}"
"""Words that PostgreSQL keeps for itself and standard SQL does not."""
ALIASES = {
    **dict.fromkeys(("clock_timestamp", "localtimestamp", "current_timestamp"), "now"),
    **dict.fromkeys(("statement_timestamp", "transaction_timestamp"), "now"),
    "character_length": "char_length",
}
"""Functions under another name of theirs."""
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
# Types that casts name otherwise than pg_type. Domains of the information schema are what they stand for.
_TYPES = {
    "int": "int4",
    "integer": "int4",
    "bigint": "int8",
    "smallint": "int2",
    "boolean": "bool",
    "double": "float8",
    "double precision": "float8",
    "float": "float8",
    "real": "float4",
    "decimal": "numeric",
    "varchar": "varchar",
    "nvarchar": "varchar",
    "char": "bpchar",
    _ONE_CHAR: "char",
    "varbinary": "bytea",
    "timestamp without time zone": "timestamp",
    "timestamptz": "timestamptz",
    "regprocedure": "regproc",
    "sql_identifier": "name",
    "character_data": "varchar",
    "cardinal_number": "int4",
    "yes_or_no": "varchar",
}
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
    """The tree of a query, or None if it is nothing that could be about system tables alone."""
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
    return trees[0] if len(trees) == 1 and isinstance(trees[0], exp.Query) else None


def is_about_system(tree: exp.Query) -> bool:
    """Whether a query names a system table, or no table at all and functions that are known here alone."""
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
    """The error for what is not answered."""
    return UnsupportedQuery(f"{reason}; nothing was spent")


def find_relation(table: exp.Table) -> Relation | None:
    """The system table that is named, or None; without a schema, those of pg_catalog are found."""
    schema = fold(table.args["db"]) if isinstance(table.args.get("db"), exp.Expr) else "pg_catalog"
    if schema not in ("pg_catalog", "information_schema"):
        return None
    return read_description().relations.get((schema[0], fold(table.this)))


def read_list(text: str) -> list[str]:
    """The texts in PostgreSQL's spelling of a list, `{a,"b c"}`."""
    try:
        return [each for each in read_array(text) if each is not None]
    except ValueError as error:
        raise refuse(str(error)) from None


def read_type(node: exp.Expr) -> str:
    """The name that pg_type has for a type in a cast."""
    if isinstance(node, exp.DataType) and node.this == exp.DataType.Type.ARRAY:
        return f"_{read_type(node.expressions[0])}"
    kind = node.args.get("kind") or node.this
    if isinstance(node.this, exp.DataType.Type) and node.this != exp.DataType.Type.USERDEFINED:
        name = str(node.this.value).lower()
    elif isinstance(kind, exp.Dot):
        name = kind.expression.name.lower()
    else:
        name = (kind.name if isinstance(kind, exp.Expr) else str(kind)).lower()
    name = _TYPES.get(name, name)
    if name not in read_description().oids:
        raise refuse(f"type {name[:60]!r} is not part of what the catalog answers")
    return name


def name_column(node: exp.Expr) -> str:
    """The name that PostgreSQL gives to a column without one."""
    return _find_name(node)[0]


def _find_name(node: exp.Expr) -> tuple[str, bool]:
    """A name, and whether a cast or a CASE around it leaves it."""
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
    """A name as PostgreSQL takes it: in small letters unless it is quoted."""
    return node.name if node.args.get("quoted") else node.name.lower()


def find_number(node: exp.Parameter) -> int:
    """The number of a parameter, which was spelled @p1."""
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
    """The text of an E'...' string."""
    signs = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}
    return re.sub(r"\\(.)", lambda found: signs.get(found[1], found[1]), text, flags=re.DOTALL)
