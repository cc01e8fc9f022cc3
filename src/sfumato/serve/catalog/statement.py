"""A statement about system tables, read as PostgreSQL reads it and written for DuckDB.

Nothing of the client's text goes on: it is parsed, every part of the tree must be of a kind, a table or a
function that is known here, and what DuckDB gets is written from the tree anew.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from sqlglot import exp

from sfumato.core.errors import UnsupportedQuery
from sfumato.serve.catalog.grammar import (
    ALIASES,
    EMPTY,
    KEYWORDS,
    WORDS,
    Columns,
    Scope,
    as_list,
    call_own,
    call_plain,
    cast_to,
    common,
    compare_list,
    cut,
    element_of,
    expand,
    find_given,
    find_number,
    find_relation,
    fold,
    list_of,
    make_alias,
    make_list,
    name_column,
    quote_name,
    quoted,
    read_type,
    refuse,
    rename_columns,
    unescape,
)
from sfumato.serve.catalog.tables import TYPES, kept_as, read_functions

# What is put into a text many times is short, and so is the text: DuckDB makes the whole of thousands of rows
# before it cuts them, and is not interrupted meanwhile.
_CUT = {
    "replace": {0: 1_000, 2: 30},
    "regexp_replace": {0: 1_000, 2: 30},
    "string_to_array": {0: 1_000},
    "array_to_string": {1: 30, 2: 30},
}
MOST_ROWS = 50_000  # of an answer
_MOST_TABLES = 80  # a client names 61 at most; plans of many more take long
_MOST_PARTS = 30_000  # nodes that are written, whatever a star multiplies
_MOST_NESTED = 12  # calls and casts in one another; each may look up a name

_LISTS = read_functions()
_REG = frozenset(("regclass", "regtype", "regproc", "regnamespace", "regrole"))
_WHOLE = frozenset(("int2", "int4", "int8", "oid"))
_RETURNS: dict[str, str] = {
    **{name: type_ for type_ in ("name", "timestamptz") for name in _LISTS[type_]},
    **{f"to_{type_}": type_ for type_ in _REG},
    **TYPES["returns"],
}
_OPERATORS: dict[str, type[exp.Binary]] = {
    "=": exp.EQ, "<>": exp.NEQ, "!=": exp.NEQ, "<": exp.LT, ">": exp.GT, "<=": exp.LTE, ">=": exp.GTE,
    "~~": exp.Like, "~": exp.RegexpLike, "~*": exp.RegexpILike, "+": exp.Add, "-": exp.Sub,
}  # fmt: skip
# Parts of a statement that mean here what they mean in PostgreSQL, once their own parts are written.
_NODES = (
    exp.Add, exp.Alias, exp.All, exp.And, exp.Any, exp.Array, exp.Between, exp.BitwiseAnd, exp.BitwiseOr,
    exp.Boolean, exp.Bracket, exp.Case, exp.Distinct, exp.Div, exp.EQ, exp.Escape, exp.Exists, exp.Extract,
    exp.Filter, exp.GT, exp.GTE, exp.Group, exp.Having, exp.ILike, exp.If, exp.In, exp.Is, exp.LT, exp.LTE,
    exp.Like, exp.Limit, exp.Literal, exp.Mod, exp.Mul, exp.NEQ, exp.Neg, exp.Not, exp.Null, exp.NullSafeEQ,
    exp.NullSafeNEQ, exp.Offset, exp.Or, exp.Order, exp.Ordered, exp.Paren, exp.RegexpILike, exp.RegexpLike,
    exp.Slice, exp.Star, exp.StrPosition, exp.Sub, exp.Substring, exp.Trim, exp.Tuple, exp.Var, exp.Where,
    exp.Window, exp.WindowSpec,
)  # fmt: skip
_CLAUSES = ("where", "group", "having", "order", "limit", "offset", "distinct")
# What may stand in the statement for DuckDB besides, and the functions in it.
_OUTPUT = frozenset((
    *_NODES, exp.Cast, exp.Column, exp.CTE, exp.DataType, exp.DataTypeParam, exp.Dot, exp.DPipe, exp.Except,
    exp.From, exp.Identifier, exp.IntDiv, exp.Intersect, exp.Interval, exp.Join, exp.Lateral, exp.Placeholder,
    exp.Select, exp.Subquery, exp.TableAlias, exp.Union, exp.Values, exp.With,
))  # fmt: skip
_WRITTEN = _LISTS["allowed"] | _LISTS["inner"] | {"json_object", "list_concat", "list_contains", "unnest"}
_TRUTHS = (
    exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.And, exp.Or, exp.Not, exp.Is, exp.In, exp.Like,
    exp.ILike, exp.Exists, exp.Between, exp.RegexpLike, exp.RegexpILike, exp.Boolean,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Written:
    """A statement for DuckDB: its columns' names and PostgreSQL types if known, and those of parameters."""

    sql: str
    columns: tuple[str, ...]
    types: tuple[str | None, ...]
    parameters: tuple[str, ...]


def write_statement(tree: exp.Query) -> Written:
    """Writes the query for DuckDB; UnsupportedQuery for what is not allowed or not known."""
    writer = _Writer()
    try:
        types = writer.query(tree, {}, {}, outermost=True)
        if tree.args.get("limit") is None:
            tree = tree.limit(MOST_ROWS + 1, copy=False)
        count = max(writer.parameters, default=0)
        parameters = tuple(writer.parameters.get(number) or "text" for number in range(1, count + 1))
        for node in list(tree.find_all(exp.Placeholder)):
            # A value may come as text, whatever its type is.
            node.replace(cast_to(exp.Placeholder(this=node.name), parameters[int(node.name) - 1]))
        _check(tree)
        sql = tree.sql("duckdb", comments=False)
    except RecursionError:
        raise UnsupportedQuery("this statement is too deeply nested for the catalog") from None
    return Written(sql, tuple(name for name, _ in types), tuple(type_ for _, type_ in types), parameters)


def _check(tree: exp.Query) -> None:
    """Refuses what was not written here: a part that was passed over, such as PIVOT, and any name in it."""
    ctes = {cte.alias for cte in tree.find_all(exp.CTE)}
    for node in tree.walk():
        if isinstance(node, exp.Table):
            known = node.db in ("sys", "inf") or (not node.db and node.name in ctes)
        elif isinstance(node, exp.Anonymous):
            known = node.name.strip('"') in _WRITTEN
        else:
            known = type(node) in _OUTPUT
        if not known:
            raise refuse(f"{type(node).__name__.upper()} is not part of what the catalog answers")


@dataclass(slots=True)
class _Writer:
    """Writes one statement: changes its tree, and finds the PostgreSQL types of what it gives."""

    parameters: dict[int, str | None] = field(default_factory=dict)
    tables: int = 0
    size: int = 0
    factor: int = 1
    depth: int = 0

    # Queries

    def query(
        self, node: exp.Expr, ctes: Mapping[str, Columns], outer: Scope, *, outermost: bool = False
    ) -> Columns:
        """Writes a query in its place; its columns."""
        ctes = dict(ctes)
        with_ = node.args.get("with_")
        if with_ is not None:
            recursive = with_.args.get("recursive")
            for cte in with_.expressions:
                name, alias = fold(cte.args["alias"].this), cte.args["alias"]
                if recursive:
                    # Answered: asyncpg's search for types within types, pgAdmin's for roles within roles.
                    if name not in ("typeinfo_tree", "typebases", "cte") or not isinstance(
                        cte.this, exp.Union
                    ):
                        raise refuse("WITH RECURSIVE is not part of what the catalog answers")
                    ctes[name] = rename_columns(self.query(cte.this.left.copy(), ctes, outer), alias)
                found = self.query(cte.this, ctes, outer)
                cte.set("materialized", value=not recursive)  # planned once, however often it is named
                ctes[name] = rename_columns(found, alias)
        match node:
            case exp.Subquery():
                columns = self.query(node.this, ctes, outer, outermost=outermost)
                self.clauses(node, {"": dict(columns)}, ctes)
            case exp.SetOperation():
                columns = self.query(node.left, ctes, outer, outermost=outermost)
                others = self.query(node.right, ctes, outer, outermost=outermost)
                if len(columns) == len(others):
                    pairs = zip(columns, others, strict=True)
                    columns = [(name, common((one, two))) for (name, one), (_, two) in pairs]
                self.clauses(node, {"": dict(columns)}, ctes)
            case exp.Select():
                columns = self.select(node, ctes, outer, outermost=outermost)
            case exp.Values():
                columns = self.values(node, ctes, outer)
            case _:
                raise refuse(f"{type(node).__name__.upper()} is not part of what the catalog answers")
        return columns

    def clauses(self, node: exp.Expr, scope: Scope, ctes: Mapping[str, Columns]) -> None:
        for key in ("order", "limit", "offset"):
            if node.args.get(key) is not None:
                node.set(key, self.write(node.args[key], scope, ctes)[0])

    def values(self, node: exp.Values, ctes: Mapping[str, Columns], outer: Scope) -> Columns:
        for row in node.expressions:
            for value in row.expressions:
                value.replace(self.write(value, outer, ctes)[0])
        return [(f"column{place + 1}", None) for place in range(len(node.expressions[0].expressions))]

    def select(
        self, node: exp.Select, ctes: Mapping[str, Columns], outer: Scope, *, outermost: bool
    ) -> Columns:
        if find_given(node) - {"with_", "expressions", "from_", "joins", "windows", *_CLAUSES}:
            raise refuse("this form of SELECT is not part of what the catalog answers")
        inner: Scope = {}
        scope: Scope = dict(outer)
        if node.args.get("from_") is not None:
            self.source(node.args["from_"].this, ctes, scope, inner)
        self.joins(node, ctes, scope, inner)
        for key in _CLAUSES:
            if isinstance(node.args.get(key), exp.Expr):
                # An alias of the select list may be named in ORDER BY and in GROUP BY.
                node.set(key, self.write(node.args[key], scope, ctes)[0])
        for window in node.args.get("windows") or []:
            window.replace(self.write(window, scope, ctes)[0])
        columns: Columns = []
        projections: list[exp.Expr] = []
        merged = any(
            join.args.get("using") or join.args.get("method") for join in node.args.get("joins") or []
        )
        for each in node.expressions:
            if each.is_star:
                if find_given(each) - {"this", "table", "db"} or (each.this and find_given(each.this)):
                    raise refuse("of stars, * and t.* are answered")
                found = expand(each, inner)
                columns += [(name, type_) for _, name, type_ in found]
                if merged:  # columns of two tables are one
                    projections.append(exp.Star())
                    continue
                for table, name, type_ in found:
                    column = exp.column(quoted(name), table=quoted(table))
                    projections.append(self.project(column, name, type_, outermost))
                continue
            name = fold(each.args["alias"]) if isinstance(each, exp.Alias) else name_column(each)
            value, type_ = self.write(each.this if isinstance(each, exp.Alias) else each, scope, ctes)
            projections.append(self.project(value, name, type_, outermost))
            columns.append((name, type_))
        node.set("expressions", projections)
        return columns

    def project(self, value: exp.Expr, name: str, type_: str | None, outermost: bool) -> exp.Expr:  # noqa: FBT001
        """Returns a column of a select list; in the answer itself, numbers of objects are shown as names."""
        if outermost and type_ in _REG:
            value = call_own("named", exp.Literal.string(type_), value)
        return exp.alias_(value, name, quoted=True)

    def joins(self, node: exp.Expr, ctes: Mapping[str, Columns], scope: Scope, inner: Scope) -> None:
        for join in node.args.get("joins") or []:
            self.source(join.this, ctes, scope, inner)
            if join.args.get("on") is not None:
                join.set("on", self.write(join.args["on"], scope, ctes)[0])
            for identifier in join.args.get("using") or []:
                quote_name(identifier)
            if find_given(join) - {"this", "on", "using", "side", "kind", "method"}:
                raise refuse("this form of JOIN is not part of what the catalog answers")

    def source(self, node: exp.Expr, ctes: Mapping[str, Columns], scope: Scope, inner: Scope) -> None:
        """Writes what stands in FROM or JOIN, and adds its columns to the scopes."""
        self.tables += 1
        if self.tables > _MOST_TABLES:
            raise refuse(f"a statement about the catalog names at most {_MOST_TABLES} tables")
        alias = node.args.get("alias")
        if isinstance(node, exp.Table) and isinstance(node.this, exp.Identifier):
            if find_given(node) - {"this", "db", "catalog", "alias", "joins", "only"}:
                raise refuse("this form of FROM is not part of what the catalog answers")
            node.set("only", None)
            name = fold(node.this)
            if not node.db and name in ctes:
                columns, target = ctes[name], exp.Table(this=quoted(name))
            else:
                relation = find_relation(node)
                if relation is None:
                    raise refuse("a system table beside another one; ask about system tables alone")
                columns = [*relation.columns.items()]
                schema = "sys" if relation.schema == "p" else "inf"
                target = exp.Table(this=quoted(relation.name), db=quoted(schema))
                # Every row of a system table knows its table; these columns are not among those of `*`.
                scope["\x00" + (fold(alias.this) if alias else name)] = {"tableoid": str(relation.oid)}
            shown = fold(alias.this) if alias and alias.this else name
            columns = rename_columns(columns, alias)
            target.set("alias", make_alias(shown, alias))
            joins = node.args.get("joins")
            node.set("joins", None)
            node.replace(target)
            if joins:
                target.set("joins", joins)
            self.add(shown, columns, scope, inner)
            self.joins(target, ctes, scope, inner)
        elif isinstance(node, exp.Subquery) and isinstance(node.this, exp.Table | exp.Subquery) and not alias:
            self.source(node.this, ctes, scope, inner)
            self.joins(node, ctes, scope, inner)
        elif isinstance(node, exp.Subquery | exp.Values):
            columns = rename_columns(self.query(node, ctes, scope), alias)
            shown = fold(alias.this) if alias and alias.this else f"unnamed {len(inner)}"
            node.set("alias", make_alias(shown, alias))
            self.add(shown, columns, scope, inner)
            self.joins(node, ctes, scope, inner)
        elif isinstance(node, exp.Lateral) and isinstance(node.this, exp.Subquery):
            columns = rename_columns(self.query(node.this, ctes, scope), alias)
            shown = fold(alias.this) if alias else f"unnamed {len(inner)}"
            node.set("alias", make_alias(shown, alias))
            self.add(shown, columns, scope, inner)
        else:
            self.rows(node, ctes, scope, inner)

    def add(self, name: str, columns: Columns, scope: Scope, inner: Scope) -> None:
        inner[name] = scope[name] = dict(columns)

    def rows(self, node: exp.Expr, ctes: Mapping[str, Columns], scope: Scope, inner: Scope) -> None:
        """A function in FROM: becomes a subquery that unnests what the function lists."""
        alias = node.args.get("alias")
        call = node.this if isinstance(node, exp.Lateral | exp.Table) else node
        offset = node.args.get("offset") or (
            call.args.get("offset") if isinstance(call, exp.Unnest) else None
        )
        offset = offset or node.args.get("ordinality")
        name = "unnest" if isinstance(call, exp.Unnest) else call.name.lower()
        shown = fold(alias.this) if alias and alias.this else name
        titles = [fold(each) for each in (alias.args.get("columns") or [])] if alias else []
        if isinstance(offset, exp.Identifier):
            titles.append(fold(offset))
        if name in EMPTY:
            parts: list[tuple[exp.Expr, str | None, str]] = [
                (cast_to(exp.null(), "text"), "text", each) for each in EMPTY[name]
            ]
            if name == "pg_get_keywords":
                parts[0] = (call_plain("unnest", make_list(KEYWORDS)), "text", "word")
        elif name == "unnest":
            written = [self.write(each, scope, ctes) for each in call.expressions]
            parts = [(call_plain("unnest", value), element_of(type_), shown) for value, type_ in written]
            if offset:
                numbers = call_own("generate_subscripts", written[0][0].copy(), exp.Literal.number(1))
                parts.append((call_plain("unnest", numbers), "int8", "ordinality"))
        elif name in _LISTS["rows"] and isinstance(call, exp.Anonymous):
            value, type_ = self.write(call, scope, ctes)
            parts = [(value, type_, shown)]
            if name == "_pg_expandarray":
                parts = [
                    (exp.Dot(this=exp.paren(value.copy()), expression=quoted(key)), None, key)
                    for key in ("x", "n")
                ]
        elif isinstance(call, exp.Anonymous):
            value, type_ = self.write(call, scope, ctes)
            parts = [(value, type_, shown)]
        else:
            raise refuse("this kind of FROM is not part of what the catalog answers")
        names = [*titles, *(part[2] for part in parts[len(titles) :])]
        query = exp.Select(
            expressions=[
                exp.alias_(value, title, quoted=True)
                for (value, _, _), title in zip(parts, names, strict=False)
            ]
        )
        if name in EMPTY and name != "pg_get_keywords":
            query = query.where(exp.false(), copy=False)
        node.replace(exp.Subquery(this=query, alias=exp.TableAlias(this=quoted(shown))))
        self.add(
            shown, [(title, type_) for title, (_, type_, _) in zip(names, parts, strict=False)], scope, inner
        )

    # Expressions

    def write(self, node: exp.Expr, scope: Scope, ctes: Mapping[str, Columns]) -> tuple[exp.Expr, str | None]:
        """Returns an expression for DuckDB, and its PostgreSQL type if it is known."""
        self.size += self.factor
        if self.size > _MOST_PARTS:
            raise refuse("this statement is too long for the catalog")
        if isinstance(node, exp.Cast | exp.Anonymous):
            # Each may look up a name, and plans of lookups within lookups grow by powers.
            self.depth += 1
            if self.depth > _MOST_NESTED:
                raise refuse("calls and casts are nested too deeply for the catalog")
            written = self.write_inner(node, scope, ctes)
            self.depth -= 1
            return written
        return self.write_inner(node, scope, ctes)

    def write_inner(
        self, node: exp.Expr, scope: Scope, ctes: Mapping[str, Columns]
    ) -> tuple[exp.Expr, str | None]:
        """As `write`, for one node whose size and depth are counted."""
        match node:
            case exp.Column():
                return self.column(node, scope)
            case exp.Parameter():
                return self.parameter(node)
            case exp.Anonymous() | exp.Dot():
                return self.call(node, scope, ctes)
            case exp.Cast():
                return self.cast(node, scope, ctes)
            case exp.ByteString() | exp.RawString():
                text = node.name if isinstance(node, exp.RawString) else unescape(node.name)
                return exp.Literal.string(text), "unknown"
            case exp.Collate():
                return self.write(node.this, scope, ctes)
            case exp.Operator():
                return self.operator(node, scope, ctes)
            case exp.DPipe() | exp.Concat():
                return self.join_texts(node, scope, ctes)
            case exp.Interval():
                return exp.Interval(
                    this=exp.Literal.string(node.this.name), unit=node.args.get("unit")
                ), "interval"
            case exp.Subquery() | exp.Select() | exp.SetOperation():
                columns = self.query(node, ctes, scope)
                return node, columns[0][1] if columns else None
            case exp.Identifier():
                return quoted(fold(node)), None
        if isinstance(node, WORDS):
            return self.call(exp.Anonymous(this=node.sql_name().lower()), scope, ctes)
        if isinstance(node, exp.CurrentDate):
            return exp.cast(call_own("now"), "DATE"), "date"
        if not isinstance(node, _NODES) or (isinstance(node, exp.Var) and not node.name.isalpha()):
            raise refuse(f"{type(node).__name__.upper()} is not part of what the catalog answers")
        return self.parts(node, scope, ctes)

    def join_texts(
        self, node: exp.Expr, scope: Scope, ctes: Mapping[str, Columns]
    ) -> tuple[exp.Expr, str | None]:
        """Returns texts behind one another; lists too, of which one that is NULL counts as empty."""
        pairs = [self.write(each, scope, ctes) for each in node.iter_expressions()]
        lists = [type_ for _, type_ in pairs if type_ is not None and type_.startswith("_")]
        if lists:
            return cut(call_plain("list_concat", *(value for value, _ in pairs))), lists[0]
        if isinstance(node, exp.Concat):  # 'a' 'b', two literals
            return cut(call_plain("concat", *(value for value, _ in pairs))), "text"
        return cut(exp.DPipe(this=pairs[0][0], expression=pairs[1][0])), "text"

    def parts(self, node: exp.Expr, scope: Scope, ctes: Mapping[str, Columns]) -> tuple[exp.Expr, str | None]:
        """Writes all parts of a node that keeps its meaning; the type that follows from theirs."""
        types: dict[str, list[str | None]] = {}
        for key, value in list(node.args.items()):
            listed = value if isinstance(value, list) else [value]
            if not any(isinstance(part, exp.Expr) for part in listed):
                continue
            # DuckDB compares the value of CASE anew for every WHEN, so that nested ones grow by powers.
            times = len(node.args["ifs"]) if isinstance(node, exp.Case) and key == "this" else 1
            self.factor *= times
            pairs = [self.write(part, scope, ctes) for part in listed]
            self.factor //= times
            types[key] = [type_ for _, type_ in pairs]
            node.set(key, [part for part, _ in pairs] if isinstance(value, list) else pairs[0][0])
        first = types.get("this", [None])[0]
        match node:
            case exp.Filter() | exp.Window() if node.this.meta.get("cut"):
                node.set("this", node.this.this.this)
                return cut(node), first
            case exp.Any() | exp.All() | exp.Paren() | exp.Filter() | exp.Window() | exp.Neg() | exp.Order():
                return node, first
            case exp.Distinct():
                return node, types.get("expressions", [None])[0]
            case exp.If():
                return node, types["true"][0]
            case exp.Case():
                return node, common([*types.get("default", ["unknown"]), *types["ifs"]])
            case exp.Bracket():
                if first in ("int2vector", "oidvector"):  # counted from 0, unlike lists
                    node.set("expressions", [exp.paren(each + 1) for each in node.expressions])
                sliced = any(isinstance(each, exp.Slice) for each in node.expressions)
                return node, first if sliced else element_of(first)
            case exp.Array():
                return node, list_of(common(types.get("expressions", [])))
            case exp.Substring() | exp.Trim():
                return node, "text"
            case exp.Null():
                return node, "unknown"
            case exp.Literal():
                return node, "unknown" if node.is_string else "int4" if node.is_int and len(
                    node.name
                ) < 10 else None
        if isinstance(node, exp.Binary | exp.In | exp.Between):
            sides = [pair for key in types for pair in zip(as_list(node.args[key]), types[key], strict=True)]
            self.infer(sides)
        if isinstance(node, exp.Div) and {*types["this"], *types["expression"]} <= _WHOLE:
            return exp.IntDiv(this=node.this, expression=node.expression), common(
                (first, types["expression"][0])
            )
        if isinstance(node, exp.EQ | exp.NEQ) and isinstance(node.expression, exp.Any | exp.All):
            return compare_list(node), "bool"
        return node, "bool" if isinstance(node, _TRUTHS) else None

    def infer(self, sides: list[tuple[exp.Expr, str | None]]) -> None:
        """Gives parameters the types of what they are compared with."""
        known = next((type_ for _, type_ in sides if type_ not in (None, "unknown")), None)
        if known is None:
            return
        for side, _ in sides:
            listed = isinstance(side, exp.Any | exp.All)
            while isinstance(side, exp.Any | exp.All | exp.Paren):
                side = side.this
            if isinstance(side, exp.Placeholder) and self.parameters.get(int(side.name)) is None:
                plain = "oid" if known in _REG else known
                self.parameters[int(side.name)] = list_of(plain) if listed else plain

    def column(self, node: exp.Column, scope: Scope) -> tuple[exp.Expr, str | None]:
        name = fold(node.this)
        table = fold(node.args["table"]) if node.args.get("table") is not None else None
        if (
            table is None
            and name in ("user", "current_role")
            and not any(name in columns for columns in scope.values())
        ):
            return call_own(name), "name"
        if name in ("tableoid", "xmin", "xmax", "cmin", "cmax", "ctid"):
            for shown in reversed(scope):
                found = scope[shown]
                if shown.startswith("\x00") and table in (None, shown[1:]):
                    number = found["tableoid"] if name == "tableoid" else "0"
                    return cast_to(exp.Literal.number(str(number)), "oid"), "oid"
                if table in (None, shown) and name in found:
                    break
        written = exp.Column(this=quoted(name), table=None if table is None else quoted(table))
        for shown in reversed(scope):
            if table in (None, shown) and name in scope[shown]:
                return written, scope[shown][name]
        return written, None

    def parameter(self, node: exp.Parameter, type_: str | None = None) -> tuple[exp.Expr, str | None]:
        number = find_number(node)
        if self.parameters.get(number) is None:
            self.parameters[number] = type_
        return exp.Placeholder(this=str(number)), self.parameters[number]

    def call(self, node: exp.Expr, scope: Scope, ctes: Mapping[str, Columns]) -> tuple[exp.Expr, str | None]:
        """Returns a function that is allowed, or a part of a row that one gives."""
        if isinstance(node, exp.Dot):
            if isinstance(node.expression, exp.Anonymous) and isinstance(node.this, exp.Identifier):
                if fold(node.this) not in ("pg_catalog", "information_schema"):
                    raise refuse(f"no function {node.expression.name!r} in schema {node.this.name!r}")
                return self.call(node.expression, scope, ctes)
            if isinstance(node.expression, exp.Identifier):
                value, _ = self.write(node.this, scope, ctes)
                return exp.Dot(
                    this=exp.paren(value, copy=False), expression=quoted(fold(node.expression))
                ), None
            raise refuse("this form of a name is not part of what the catalog answers")
        name = node.name.lower()
        name = ALIASES.get(name, name)
        if name == "array":
            return self.parts(exp.Array(expressions=node.expressions), scope, ctes)
        if name == "all":
            return self.parts(exp.All(this=exp.paren(node.expressions[0])), scope, ctes)
        if name not in _LISTS["allowed"]:
            raise refuse(f"function {node.name[:60]!r} is not part of what the catalog answers")
        numbered = name in ("pg_get_userbyid", "format_type")
        pairs = [
            self.parameter(each, "oid" if numbered and place == 0 else None)
            if isinstance(each, exp.Parameter)
            else self.write(each, scope, ctes)
            for place, each in enumerate(node.expressions)
        ]
        values = [value for value, _ in pairs]
        first = pairs[0][1] if pairs else None
        type_ = common([each for _, each in pairs]) if name in _LISTS["same"] else _RETURNS.get(name)
        if name == "array_agg":
            return cut(call_plain(name, *values)), list_of(first)
        if name == "unnest":
            return call_plain("unnest", *values), element_of(first)
        if name in _LISTS["rows"]:
            return call_plain("unnest", call_own(name, *values)), _RETURNS.get(name)
        if name == "json_build_object":
            keys = [cast_to(value, "text") if place % 2 == 0 else value for place, value in enumerate(values)]
            return cut(cast_to(call_plain("json_object", *keys), "text")), "json"
        for place, most in _CUT.get(name, {}).items():
            values[place : place + 1] = [
                cut(cast_to(each, "text"), most) for each in values[place : place + 1]
            ]
        if name in _LISTS["text"]:
            return cut(call_plain(name, *values)), "text"
        if name in _LISTS["long"]:
            return cut(call_own(name, *values)), type_ or "text"
        return (call_plain if name in _LISTS["plain"] else call_own)(name, *values), type_

    def cast(self, node: exp.Cast, scope: Scope, ctes: Mapping[str, Columns]) -> tuple[exp.Expr, str | None]:
        to = read_type(node.to)
        inner = node.this
        while isinstance(inner, exp.Paren):
            inner = inner.this
        if isinstance(inner, exp.Parameter):
            value, _ = self.parameter(inner, "text" if to in _REG else to)
            from_: str | None = None
        else:
            value, from_ = self.write(node.this, scope, ctes)
        if to in _REG:
            if from_ in ("oid", "int4", "int8", *_REG):
                return cast_to(value, "oid"), to
            return call_own("numbered", exp.Literal.string(to), exp.cast(value, "VARCHAR")), to
        if from_ in _REG and kept_as(to) == "VARCHAR":
            return call_own("named", exp.Literal.string(from_), value), to
        if isinstance(inner, exp.Literal | exp.ByteString) and kept_as(to).endswith("[]"):
            value = make_list(inner.name)
        return cast_to(value, to), to

    def operator(
        self, node: exp.Operator, scope: Scope, ctes: Mapping[str, Columns]
    ) -> tuple[exp.Expr, str | None]:
        sign = str(node.args["operator"]).rpartition(".")[2]
        plain = sign.removeprefix("!") if sign in ("!~", "!~~", "!~*") else sign
        if plain not in _OPERATORS:
            raise refuse(f"operator {sign!r} is not part of what the catalog answers")
        written, type_ = self.write(
            _OPERATORS[plain](this=node.this, expression=node.expression), scope, ctes
        )
        return (exp.Not(this=exp.paren(written)) if plain != sign else written), type_
