"""Queries inside a statement that are answered first: what is released of them is a public table then.

`fee > (SELECT AVG(fee) FROM visits)` asks twice. The inner question is a statement of its own, with its share
of what may be spent, and its noisy answer stands in the outer one as a constant, or as a table that rows look
their value up in. What is asked of an individual's own records is no such question: it becomes a join.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import pyarrow as pa
from sqlglot import exp

from sfumato.core.errors import refuse
from sfumato.sql.aggregates import spell_position
from sfumato.sql.check import list_conditions
from sfumato.sql.constants import from_python
from sfumato.sql.inner import is_reference
from sfumato.sql.nested import aggregates, groups_individuals
from sfumato.sql.relation import Catalog, Field, read_table

NUMBER = "number"
"""The column of the numbers of public values, and what their table is called before it has a name."""

_KEY, _VALUE = "key {}", "value"
_TIED = "a subquery of one aggregate is tied to the outer rows by equalities of columns (v.clinic = w.clinic)"
_CLAUSES = ("group", "having", "distinct", "limit", "offset", "order", "qualify")
_Named = Mapping[str, Mapping[str, Field]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A query inside a statement that is answered first.

    It `asks` of people's records if it is `private`. With `keys`, public rows, it is asked for each of these;
    `grouped` are the columns of its answer that have their values. The answer is `put` in its place, as a
    table of that name, in the statement that the step was found in.
    """

    asks: exp.Select
    private: bool
    put: Callable[[pa.Table, exp.Identifier], object]
    keys: exp.Select | None = None
    grouped: Mapping[str, int] = field(default_factory=dict)

    def spread(self, answer: pa.Table, keys: pa.Table) -> pa.Table:
        """The answer with the values that it was asked for, in place of their numbers."""
        found = keys.take(answer.column(NUMBER))
        columns = {name: found.column(_KEY.format(place)) for name, place in self.grouped.items()}
        answer = answer.drop_columns([NUMBER])
        return pa.table({**columns, **dict(zip(answer.column_names, answer.columns, strict=True))})


def find_step(query: exp.Select, catalog: Catalog, units: Mapping[str, str]) -> Step | None:
    """The first query inside another that is answered by itself; None if all is one question.

    What is asked of each individual's own records is made a join in place. `units` are the unit columns of
    private tables, all names in lower case.
    """
    reader = _Reader(query, catalog)
    if not reader.is_private(query):
        return None
    named = [id(cte) for cte in query.find_all(exp.CTE)]

    def place(block: exp.Select) -> int:
        cte = block.find_ancestor(exp.CTE)
        return len(named) if cte is None else named.index(id(cte))

    # Those of WITH before what names them, and else the innermost first.
    blocks = list(query.find_all(exp.Select))
    blocks.reverse()
    blocks.sort(key=place)
    for block in blocks:
        if block is not query:
            step = _read_block(block, reader, units)
            if step is not None:
                return step
    return None


def is_plain(block: exp.Select) -> bool:
    """Whether an inner query chooses and computes rows alone, so that it is part of one question."""
    holder = block.parent.parent if block.parent is not None else None
    clauses = any(block.args.get(name) for name in _CLAUSES) or aggregates(block)
    return isinstance(holder, (exp.From, exp.Join)) and not clauses and not block.find(exp.Window)


class _Reader:
    """The tables and columns that the queries inside a statement can name."""

    def __init__(self, root: exp.Select, catalog: Catalog) -> None:
        self.root, self._catalog = root, {name.lower(): source for name, source in catalog.items()}
        self._ctes: dict[str, exp.CTE] = {}
        self._private = {name for name, source in self._catalog.items() if source.table is not None}
        self._offered: dict[str, Mapping[str, Field]] = {}
        for cte in root.find_all(exp.CTE):  # each may name those before it
            name = cte.alias.lower()
            private = self.is_private(cte.this)
            self._private = self._private | {name} if private else self._private - {name}
            self._offered[name] = self._outputs(cte.this)
            self._ctes[name] = cte

    def is_private(self, tree: exp.Expr) -> bool:
        """Whether a query reads people's records, itself or through WITH."""
        return any(each.name.lower() in self._private for each in tree.find_all(exp.Table))

    def fields(self, select: exp.Select) -> _Named:
        """The columns of FROM and JOIN by the names of their tables, all in lower case."""
        found: dict[str, Mapping[str, Field]] = {}
        for item in _list_items(select):
            alias, name = item.alias_or_name.lower(), item.name.lower()
            if isinstance(item, exp.Subquery):
                found[alias] = self._outputs(item.this)
            elif name in self._offered:
                found[alias] = self._offered[name]
            elif isinstance(item, exp.Table) and name in self._catalog:
                found[alias] = read_table(self._catalog[name], alias).fields[alias]
        return found

    def _outputs(self, query: exp.Expr) -> dict[str, Field]:
        query = query.find(exp.Select) or query
        known, offered = self.fields(query) if isinstance(query, exp.Select) else {}, dict[str, Field]()
        for item in query.expressions:
            if isinstance(item.unalias(), exp.Star) or isinstance(item.this, exp.Star):
                offered |= {name: each for named in known.values() for name, each in named.items()}
            else:
                found = _find_field(item.unalias(), known)
                offered[item.alias_or_name.lower()] = found[1] if found else Field(name="", kind="unknown")
        return offered

    def list_outer(self, block: exp.Select) -> list[exp.Column]:
        """The columns in a query that neither its own tables have nor those of queries inside it."""
        known = {id(each): self.fields(each) for each in block.find_all(exp.Select)}
        outer = []
        for column in block.find_all(exp.Column):
            select, inside = column.parent_select, isinstance(column.this, exp.Star)
            while isinstance(select, exp.Select) and id(select) in known:
                own = [item.alias.lower() for item in select.expressions] if not column.table else []
                inside |= column.name.lower() in own or _find_field(column, known[id(select)]) is not None
                select = select.parent_select
            outer += [] if inside else [column]
        return outer

    def attach(self, query: exp.Select) -> exp.Select:
        """A copy of a query with those of WITH that it names."""
        needed: dict[str, exp.CTE] = {}
        waiting = [query]
        while waiting:
            named = [each.name.lower() for each in waiting.pop().find_all(exp.Table)]
            found = {name: self._ctes[name] for name in named if name in self._ctes and name not in needed}
            needed |= found
            waiting += [each.this for each in found.values()]
        query = query.copy()
        if needed and query.args.get("with_") is None:
            listed = [cte.copy() for name, cte in self._ctes.items() if name in needed]
            query.set("with_", exp.With(expressions=listed))
        return query


def _find_field(node: exp.Expr, named: _Named) -> tuple[str, Field] | None:
    """The alias of the table and the field that a column names; None if there is none."""
    if not isinstance(node, exp.Column):
        return None
    name, alias = node.name.lower(), node.table.lower()
    found = [(key, fields[name]) for key, fields in named.items() if name in fields and alias in ("", key)]
    own = [each for each in found if not each[1].is_borrowed]
    return next(iter(own or found), None)


def _list_items(select: exp.Select) -> list[exp.Expr]:
    clauses = (select.args.get("from_"), *(select.args.get("joins") or []))
    return [each.this for each in clauses if each is not None]


def _read_block(block: exp.Select, reader: _Reader, units: Mapping[str, str]) -> Step | None:
    """A query that stands in FROM, WITH, IN or a union, if it is answered first; or one that is a value."""
    node: exp.Expr = block
    while isinstance(node.parent, (exp.Subquery, exp.Paren)):
        node = node.parent
    parent = node.parent
    listed = isinstance(parent, (exp.In, exp.SetOperation))
    if (
        isinstance(parent, exp.Exists)
        or parent is None
        or (isinstance(parent, exp.In) and node is parent.this)
    ):
        return None
    if not listed and not isinstance(parent, (exp.From, exp.Join, exp.CTE)):
        return _read_value(block, node, reader)
    asks, private = reader.attach(block), reader.is_private(block)
    gathered = any(block.args.get(name) for name in _CLAUSES) or block.find(exp.Window)
    alone = aggregates(block) and not groups_individuals(asks, units)
    first = alone if private else alone or gathered or len(list(block.find_all(exp.Select))) > 1
    if not first or reader.list_outer(block):
        return None
    if listed:

        def put_list(answer: pa.Table, name: exp.Identifier) -> None:
            ends = ("_low", "_high")
            names = [each for each in answer.column_names if not (each.endswith(ends) and len(each) > 5)]
            names = names[: 1 if isinstance(parent, exp.In) else len(block.expressions)]
            columns = [exp.column(each, quoted=True) for each in names]
            block.replace(exp.select(*columns).from_(exp.Table(this=name)))

        return Step(asks=asks, private=private, put=put_list)
    place = parent if isinstance(parent, exp.CTE) else node
    _name_columns(place, asks)

    def put_table(answer: pa.Table, name: exp.Identifier) -> None:
        if answer.num_rows == 1 and not asks.args.get("group"):
            _put_constants(place, answer, reader)
        _put_table(place, name, reader.root)

    step = Step(asks=asks, private=private, put=put_table)
    return _ask_for_keys(step, place, block, reader) if private else step


def _name_columns(place: exp.Expr, query: exp.Select) -> None:
    """Gives the columns of a query their names by WITH name(columns)."""
    alias = place.args.get("alias")
    listed = alias.columns if isinstance(alias, exp.TableAlias) else []
    if isinstance(alias, exp.TableAlias) and len(listed) == len(query.expressions):
        pairs = zip(query.expressions, listed, strict=True)
        query.set("expressions", [exp.alias_(item.unalias(), name.name, quoted=True) for item, name in pairs])
        alias.set("columns", None)


def _put_table(place: exp.Expr, name: exp.Identifier, root: exp.Select) -> None:
    """Puts a table in the place of an inner query, and of all that names it."""
    if not isinstance(place, exp.CTE):
        place.replace(exp.Table(this=name, alias=place.args.get("alias")))
        return
    for table in list(root.find_all(exp.Table)):
        if table.name.lower() == place.alias.lower():
            alias = exp.to_identifier(table.alias or place.alias)
            table.replace(exp.Table(this=name.copy(), alias=exp.TableAlias(this=alias)))
    clause = place.parent
    place.pop()
    if clause is not None and not clause.expressions:
        clause.pop()


def _put_constants(place: exp.Expr, answer: pa.Table, reader: _Reader) -> None:
    """Puts the one row of an inner query, which stands beside others, in the place of its columns."""
    for select in reader.root.find_all(exp.Select):
        joins = [each for each in select.args.get("joins") or [] if not each.args.get("on")]
        found = [
            each
            for each in joins
            if each.this is place
            or (isinstance(place, exp.CTE) and each.this.name.lower() == place.alias.lower())
        ]
        fields = reader.fields(select) if found else {}
        for column in list(select.find_all(exp.Column)) if found else []:
            named = _find_field(column, fields)
            mine = named is not None and named[0] == found[0].this.alias_or_name.lower()
            if not mine or column.name not in answer.column_names:
                continue
            if isinstance(column.parent, exp.Ordered):  # there, and in GROUP BY, a number would be a place
                column.parent.pop()
            elif isinstance(column.parent, exp.Group):
                column.pop()
            else:
                column.replace(exp.paren(from_python(answer.column(column.name)[0].as_py())))
        for each in found:
            each.pop()


def _read_value(block: exp.Select, node: exp.Expr, reader: _Reader) -> Step | None:
    """A query that stands for a value: of all rows, or of those that belong to an outer row."""
    private, outer = reader.is_private(block), reader.list_outer(block)
    if len(block.expressions) != 1 or isinstance(block.expressions[0], exp.Star):
        raise refuse("a subquery in an expression selects one value")
    if private and not aggregates(block):
        raise refuse("a subquery that gives a value of a record; aggregate: (SELECT AVG(fee) FROM ...)")
    if not outer:

        def put_value(answer: pa.Table, _: exp.Identifier) -> None:
            found = answer.column(0)[0].as_py() if answer.num_rows else None
            node.replace(exp.paren(from_python(found)))

        return Step(asks=reader.attach(block), private=private, put=put_value)
    inside = node.parent_select
    if not isinstance(inside, exp.Select) or any(block.args.get(name) for name in _CLAUSES):
        raise refuse(_TIED)
    own, pairs = _split_conditions(block, outer)
    fields, around = reader.fields(block), reader.fields(inside)
    if (
        len(pairs) < len(outer)
        or not aggregates(block)
        or any(not _find_field(each, around) for _, each in pairs)
    ):
        raise refuse(_TIED)
    keys = [one for one, _ in pairs]
    tied = [_say_table(other, around) for _, other in pairs]
    asks = reader.attach(block)
    asks.set("where", exp.Where(this=exp.and_(*own)) if own else None)
    value = exp.alias_(block.expressions[0].unalias().copy(), _VALUE, quoted=True)
    people = any(reader.is_private(exp.select("*").from_(each.copy())) for each in _list_items(inside))
    if private and people and _is_own(pairs, fields, around):
        _join_own(node, inside, asks, keys, tied, value, fields, around)
        return None

    def put_found(_: pa.Table, name: exp.Identifier) -> None:
        table = exp.Table(this=name, alias=exp.TableAlias(this=name.copy()))
        columns = [exp.column(_KEY.format(place), table=name.name, quoted=True) for place in range(len(tied))]
        found = exp.column(_VALUE, table=name.name, quoted=True)
        on = _equal(columns, tied)
        if people:
            inside.append("joins", exp.Join(this=table, on=on, side="LEFT"))
            node.replace(found)
        else:
            node.replace(exp.select(found).from_(table).where(on).subquery())

    public = _list_public(tied, inside, reader, filtered=True) if private else None
    places = {_KEY.format(place): place for place in range(len(keys))}
    if public is not None:
        asks = _group_by_number(asks, keys, [value])
        return Step(asks=asks, private=True, put=put_found, keys=public, grouped=places)
    named = [exp.alias_(key.copy(), name, quoted=True) for name, key in zip(places, keys, strict=True)]
    asks.set("expressions", [*named, value])
    asks.set("group", exp.Group(expressions=[key.copy() for key in keys]))
    return Step(asks=asks, private=private, put=put_found)


def _split_conditions(
    block: exp.Select, outer: list[exp.Column]
) -> tuple[list[exp.Expr], list[tuple[exp.Expr, exp.Column]]]:
    """The conditions of a query about its own rows, and its columns with the outer ones that they equal."""
    own: list[exp.Expr] = []
    pairs: list[tuple[exp.Expr, exp.Column]] = []
    where = block.args.get("where")
    for part in list_conditions(where.this) if where is not None else []:
        tied = [each for each in part.find_all(exp.Column) if any(each is one for one in outer)]
        sides = [part.this.unnest(), part.expression.unnest()] if isinstance(part, exp.EQ) else []
        others = [side for side in sides if all(side is not each for each in tied)]
        if not tied:
            own.append(part.copy())
        elif len(tied) == len(others) == 1:
            pairs.append((others[0], tied[0]))
    return own, pairs


def _say_table(column: exp.Column, named: _Named) -> exp.Column:
    """A column with the name of its table before it."""
    found = _find_field(column, named)
    return exp.column(column.name, table=found[0] if found else None, quoted=True)


def _equal(ones: list[exp.Column], others: list[exp.Column]) -> exp.Expr:
    pairs = zip(ones, others, strict=True)
    return exp.and_(*(exp.EQ(this=one.copy(), expression=other.copy()) for one, other in pairs))


def _is_own(pairs: list[tuple[exp.Expr, exp.Column]], fields: _Named, around: _Named) -> bool:
    """Whether an equality says that inner and outer rows are of one individual."""
    for one, other in pairs:
        mine, theirs = _find_field(one, fields), _find_field(other, around)
        if mine and theirs:
            units = mine[1].is_unit and theirs[1].is_unit
            if units or is_reference(mine[1], theirs[1]):
                return True
    return False


def _join_own(
    node: exp.Expr,
    inside: exp.Select,
    asks: exp.Select,
    keys: list[exp.Expr],
    tied: list[exp.Column],
    value: exp.Expr,
    fields: _Named,
    around: _Named,
) -> None:
    """Puts a join with one row for each individual, or for each of its keys, in the place of a value."""

    def find_unit(named: _Named) -> exp.Column:
        found = ((alias, name) for alias, each in named.items() for name, one in each.items() if one.is_unit)
        alias, name = next(found)
        return exp.column(name, table=alias, quoted=True)

    inner, outer = find_unit(fields), find_unit({tied[0].table: around[tied[0].table]})
    further = [
        (key, other)
        for key, other in zip(keys, tied, strict=True)
        if not ((found := _find_field(key, fields)) and found[1].is_unit)
    ]
    keys, tied = [inner, *(key for key, _ in further)], [outer, *(other for _, other in further)]
    name = f"own {len(inside.args.get('joins') or [])} of sfumato"
    columns = [exp.column(_KEY.format(place), table=name, quoted=True) for place in range(len(keys))]
    named = [exp.alias_(key.copy(), _KEY.format(place), quoted=True) for place, key in enumerate(keys)]
    asks.set("expressions", [*named, value])
    asks.set("group", exp.Group(expressions=[key.copy() for key in keys]))
    source = asks.subquery(exp.to_identifier(name, quoted=True))
    inside.append("joins", exp.Join(this=source, on=_equal(columns, tied), side="LEFT"))
    own: exp.Expr = exp.column(_VALUE, table=name, quoted=True)
    if isinstance(value.unalias(), exp.Count):
        own = exp.Coalesce(this=own, expressions=[exp.Literal.number(0)])
    node.replace(own)


def _ask_for_keys(step: Step, place: exp.Expr, block: exp.Select, reader: _Reader) -> Step:
    """A step whose groups are not public, asked for those public values that its columns are equal to."""
    query, group = step.asks, block.args.get("group")
    leaves = [] if group is None else group.expressions
    named = {item.alias.lower(): item.this for item in query.expressions if isinstance(item, exp.Alias)}
    keys = [spell_position(each, query, where="GROUP BY") for each in leaves]
    keys = [named.get(each.name.lower(), each) if isinstance(each, exp.Column) else each for each in keys]
    fields = reader.fields(block)
    found = [_find_field(each, fields) for each in keys]
    known = [each is None or each[1].column is not None or each[1].labels is not None for each in found]
    outputs = {
        item.alias_or_name.lower(): keys.index(item.unalias())
        for item in query.expressions
        if item.unalias() in keys
    }
    chosen: dict[int, exp.Column] = {}
    for select in reader.root.find_all(exp.Select):
        for number, column in _list_equal(select, place, outputs, reader):
            chosen.setdefault(number, column)
    if not keys or any(known) or set(chosen) != set(range(len(keys))):
        return step
    columns = [chosen[number] for number in range(len(keys))]
    public = _list_public(columns, columns[0].parent_select, reader, filtered=False)
    if public is None:
        return step
    items = [item for item in query.expressions if item.alias_or_name.lower() not in outputs]
    return Step(
        asks=_group_by_number(query, keys, items), private=True, put=step.put, keys=public, grouped=outputs
    )


def _list_equal(
    select: exp.Select, place: exp.Expr, outputs: Mapping[str, int], reader: _Reader
) -> Iterator[tuple[int, exp.Column]]:
    """The columns of a query that those of an inner one equal, each with the place of its key there."""
    aliases = {
        item.alias_or_name.lower()
        for item in _list_items(select)
        if item is place or (isinstance(place, exp.CTE) and item.name.lower() == place.alias.lower())
    }
    clauses = (select.args.get("where"), *(each.args.get("on") for each in select.args.get("joins") or []))
    parts = [each.this if isinstance(each, exp.Where) else each for each in clauses if each is not None]
    fields = reader.fields(select) if aliases else {}
    for part in (each for clause in parts if aliases for each in list_conditions(clause)):
        for one, other in (
            ((part.this, part.expression), (part.expression, part.this)) if isinstance(part, exp.EQ) else ()
        ):
            mine = _find_field(one, fields)
            if mine and mine[0] in aliases and one.name.lower() in outputs and isinstance(other, exp.Column):
                yield outputs[one.name.lower()], other


def _list_public(
    columns: list[exp.Column], select: exp.Select | None, reader: _Reader, *, filtered: bool
) -> exp.Select | None:
    """The different values of columns of public tables of a query; None if a table is private.

    If they are `filtered`, only those that the query's own conditions about these tables leave.
    """
    fields = {} if select is None else reader.fields(select)
    found = [_find_field(each, fields) for each in columns]
    aliases = {each[0] for each in found if each is not None}
    items = (
        []
        if select is None
        else [each for each in _list_items(select) if each.alias_or_name.lower() in aliases]
    )
    if None in found or select is None:
        return None
    listed = [exp.alias_(each.copy(), _KEY.format(place), quoted=True) for place, each in enumerate(columns)]
    query = exp.select(*listed).from_(items[0].copy()).distinct()
    for each in items[1:]:
        query = query.join(each.copy(), join_type="CROSS")
    where = select.args.get("where")
    for part in list_conditions(where.this) if where is not None and filtered else []:
        own = [each for each in part.find_all(exp.Column) if each.parent_select is select]
        sides = [_find_field(each, fields) for each in own]
        if all(each is not None and each[0] in aliases for each in sides) and not reader.is_private(part):
            query = query.where(part.copy())
    return None if reader.is_private(query) else reader.attach(query)


def _group_by_number(query: exp.Select, keys: list[exp.Expr], items: list[exp.Expr]) -> exp.Select:
    """A query that asks `items` for each of numbered public values, which its `keys` equal."""
    number = exp.column(NUMBER, table=NUMBER, quoted=True)
    name = exp.to_identifier(NUMBER, quoted=True)
    values = [exp.column(_KEY.format(place), table=NUMBER, quoted=True) for place in range(len(keys))]
    on = exp.and_(*(exp.EQ(this=key.copy(), expression=each) for key, each in zip(keys, values, strict=True)))
    query.append("joins", exp.Join(this=exp.Table(this=name, alias=exp.TableAlias(this=name.copy())), on=on))
    query.set("expressions", [exp.alias_(number, NUMBER, quoted=True), *(each.copy() for each in items)])
    query.set("group", exp.Group(expressions=[number.copy()]))
    return query
