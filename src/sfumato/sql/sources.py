"""From FROM, JOIN and WHERE to a relation, with the individual of every row carried along."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING

from sqlglot import exp

from sfumato.core.algebra.rows import (
    Among,
    Filter,
    Individuals,
    Item,
    Join,
    Listed,
    Named,
    Project,
    Rows,
    Scan,
    Union,
    list_expressions,
    list_pairs,
)
from sfumato.core.errors import refuse
from sfumato.core.facts.column import suggest_name
from sfumato.core.facts.table import code_name
from sfumato.sql.check import find_aggregates, list_conditions, refuse_clauses
from sfumato.sql.dates import derive_field, narrow_moments
from sfumato.sql.inner import COMMON_TYPES, gathers, group_individuals, keep_where, leads_to, match_columns
from sfumato.sql.relation import (
    Catalog,
    Field,
    Relation,
    Source,
    is_reserved,
    list_values,
    read_table,
    relate,
)
from sfumato.sql.settle import qualify

if TYPE_CHECKING:
    from collections.abc import Mapping


def resolve_sources(
    query: exp.Select, catalog: Catalog, outer: Mapping[str, Relation] | None = None
) -> Relation:
    """The relation that the FROM, JOIN and WHERE of `query` describe; `outer` are names of WITH around it."""
    ctes = _resolve_ctes(query, catalog) if query.args.get("with_") is not None else outer or {}
    from_ = query.args.get("from_")
    if from_ is None:
        raise refuse("a statement needs FROM")
    for name in ("laterals", "sample", "pivots", "connect", "match", "windows", "qualify", "into", "locks"):
        if query.args.get(name):
            instead = "; use HAVING, or a condition around the statement" if name == "qualify" else ""
            raise refuse(f"{name.upper()} is not answered{instead}")
    relation, where = _join_all(query, catalog, ctes)
    if where is not None:
        relation, condition = keep_where(
            where,
            relation,
            resolve=lambda inner: _resolve_rows(inner, catalog, ctes),
            resolve_from=lambda inner: resolve_sources(
                exp.Select(from_=inner.args.get("from_"), joins=inner.args.get("joins")), catalog, ctes
            ),
        )
        relation = list_values(condition, narrow_moments(condition, relation))
    return relation


def _join_all(
    query: exp.Select, catalog: Catalog, ctes: Mapping[str, Relation]
) -> tuple[Relation, exp.Expr | None]:
    """The relation of FROM with all its joins, and what is left of WHERE.

    A table after a comma is joined by the equalities of WHERE that tie it to those before, as if they were
    written after ON; of several the first that is tied comes first.
    """
    relation = _resolve_item(query.args["from_"].this, catalog, ctes)
    where = query.args.get("where")
    waiting = [(join, _resolve_item(join.this, catalog, ctes)) for join in query.args.get("joins") or []]
    commas = any(_is_comma(join) for join, _ in waiting)
    parts = [] if where is None or not commas else list_conditions(_factor(where.this))
    while waiting:
        ties = [_find_ties(join, parts, relation, right) for join, right in waiting]
        place = next((place for place, found in enumerate(ties) if found is not None), 0)
        join, right = waiting.pop(place)
        if _is_comma(join):
            tied = ties[place] or []
            parts = [part for part in parts if all(part is not each for each in tied)]
            join = exp.Join(this=join.this, on=exp.and_(*tied) if tied else None)
        elif own := _list_own(join, relation, right):
            # What ON asks of the joined table alone chooses its rows before they are joined.
            kept = exp.select("*").from_(join.this.copy()).where(*own)
            right = _wrap(_resolve_rows(kept, catalog, ctes), join.this.alias_or_name.lower())
            rest = [part for part in list_conditions(join.args["on"]) if part not in own]
            join = join.copy()
            join.set("on", exp.and_(*rest) if rest else None)
        relation = _join(relation, right, join)
    if commas:
        return relation, exp.and_(*parts) if parts else None
    return relation, None if where is None else where.this


def _is_comma(join: exp.Join) -> bool:
    return not any(join.args.get(name) for name in ("on", "using", "side", "kind", "method"))


def _list_own(join: exp.Join, left: Relation, right: Relation) -> list[exp.Expr]:
    """The conditions of ON that name columns of the joined table alone."""
    on = join.args.get("on")
    return [
        part
        for part in (list_conditions(on) if on is not None else [])
        if {_find_side(column, left, right) for column in part.find_all(exp.Column)} == {"right"}
    ]


def _find_ties(
    join: exp.Join, parts: list[exp.Expr], left: Relation, right: Relation
) -> list[exp.Expr] | None:
    """The equalities that tie a table to those before it; None if it has to wait for another one."""
    if not _is_comma(join):
        on = join.args.get("on")
        named = {column.table.lower() for column in (on.find_all(exp.Column) if on is not None else ())}
        return [] if named <= {"", *left.fields, *right.fields} else None
    ties: list[exp.Expr] = []
    for part in parts:
        sides = (part.this, part.expression) if isinstance(part, exp.EQ) else ()
        if {_find_side(side.unnest(), left, right) for side in sides} == {"left", "right"}:
            ties.append(part)
    return ties or None


def _find_side(node: exp.Expr, left: Relation, right: Relation) -> str:
    """Of which side of a join a column is; the empty text if of none, or nobody can tell."""
    if not isinstance(node, exp.Column):
        return ""
    name, alias = node.name.lower(), node.table.lower()
    sides = {
        side: [fields[name] for key, fields in each.fields.items() if name in fields and alias in ("", key)]
        for side, each in (("left", left), ("right", right))
    }
    found = [side for side, fields in sides.items() if fields]
    if len(found) > 1:
        found = [side for side in found if not all(each.is_borrowed for each in sides[side])]
    return found[0] if len(found) == 1 else ""


def _factor(condition: exp.Expr) -> exp.Expr:
    """A condition in which what all parts of an OR demand stands before it: (a AND b) OR (a AND c)."""
    factored = []
    for part in list_conditions(condition):
        branches = [list_conditions(each) for each in part.flatten()] if isinstance(part, exp.Or) else []
        common = [
            each
            for each in (branches[0] if branches else [])
            if all(any(each == other for other in branch) for branch in branches[1:])
        ]
        if not common:
            factored.append(part)
            continue
        factored += common
        rests = [[each for each in branch if each not in common] for branch in branches]
        if all(rests):
            factored.append(exp.paren(exp.or_(*(exp.and_(*rest) for rest in rests))))
    return exp.and_(*factored)


def prune_columns(relation: Relation, trees: list[exp.Expr]) -> Relation:
    """`relation` without the columns of inner queries that neither `trees` nor its own conditions name."""
    return replace(relation, rows=_prune(relation.beside, trees))


def _prune(node: Rows, trees: list[exp.Expr]) -> Rows:
    """Rows without the columns of inner queries that neither `trees` nor what stands around them names."""
    named = [*trees, *(tree for _, tree in list_expressions(node))]
    match node:
        case Scan():
            return node
        case Named():
            needed = {
                each.name for tree in trees for each in tree.find_all(exp.Column) if each.table == node.alias
            }
            return Named(_prune_list(node.rows, needed), node.alias)
        case Filter():
            return Filter(_prune(node.rows, named), node.condition)
        case Join():
            right = _prune(node.right, named)
            assert isinstance(right, Scan | Named)
            return replace(node, left=_prune(node.left, named), right=right)
        case Among():
            return replace(
                node,
                rows=_prune(node.rows, named),
                others=_prune(node.others, [pair.other for pair in list_pairs(node)]),
            )


def _prune_list(node: Listed, needed: set[str]) -> Listed:
    """An inner query that gives the needed columns alone, or one if none is; all parts of a union alike."""
    match node:
        case Union():
            return node
        case Individuals():
            results = tuple(each for each in node.results if each[0] in needed)
            trees = [tree for _, tree in list_expressions(replace(node, results=results))]
            return Individuals(_prune(node.rows, trees), node.keys, results)
        case Project():
            items = tuple(each for each in node.items if each.name in needed)
            return Project(_prune(node.rows, [each.tree for each in items]), items)


def expand_star(query: exp.Select, relation: Relation) -> list[exp.Expr]:
    """The select list with every star replaced by the columns it stands for."""
    items: list[exp.Expr] = []
    for item in query.expressions:
        star = item.find(exp.Star)
        if star is not None and any(star.args.values()):
            raise refuse("a star with EXCEPT, REPLACE or RENAME; name the columns")
        if isinstance(item, exp.Star) or (isinstance(item, exp.Column) and isinstance(item.this, exp.Star)):
            table = item.table.lower() if isinstance(item, exp.Column) else ""
            items += [
                exp.column(each.name, table=alias, quoted=True)
                for alias, fields in relation.fields.items()
                if table in ("", alias)
                for each in fields.values()
            ]
        else:
            items.append(item)
    return items


def _resolve_ctes(query: exp.Select, catalog: Catalog) -> dict[str, Relation]:
    """Every query of WITH, resolved once; each may name those before it."""
    clause = query.args["with_"]
    if clause.args.get("recursive"):
        raise refuse("WITH RECURSIVE is not supported")
    ctes: dict[str, Relation] = {}
    for cte in clause.expressions:
        name = cte.alias.lower()
        if not isinstance(cte.this, (exp.Select, exp.Union)) or name in ctes or name in catalog:
            raise refuse(f"WITH {cte.alias} must be one plain SELECT under a new name")
        if cte.args.get("alias") is not None and cte.args["alias"].columns:
            raise refuse("WITH name(columns) is not supported; name the columns inside with AS")
        ctes[name] = _resolve_query(cte.this, catalog, ctes)
    return ctes


def _resolve_item(item: exp.Expr, catalog: Catalog, ctes: Mapping[str, Relation]) -> Relation:
    if isinstance(item, exp.Subquery) and isinstance(item.this, (exp.Select, exp.Union)):
        if not item.alias:
            raise refuse("a subquery in FROM needs a name: (SELECT ...) AS name")
        return _wrap(_resolve_query(item.this, catalog, ctes), item.alias.lower())
    if isinstance(item, exp.Table) and item.name.lower() in ctes and not item.args.get("db"):
        return _wrap(ctes[item.name.lower()], (item.alias or item.name).lower())
    return read_table(find_source(item, catalog), (item.alias or item.name).lower())


def find_source(item: exp.Expr, catalog: Catalog) -> Source:
    """The described table that an item of FROM names."""
    if not isinstance(item, exp.Table) or not isinstance(item.this, exp.Identifier):
        named = item.sql().partition("(")[0][:60]
        raise refuse(
            f"FROM reads described tables only, not {named!r}; describe it in the project file: "
            "[tables.NAME] source = ..."
        )
    if item.args.get("db") or item.args.get("joins") or item.args.get("sample") or item.args.get("pivots"):
        raise refuse(f"FROM {item.sql()[:60]!r}: name a table of the project file, nothing more")
    source = {key.lower(): value for key, value in catalog.items()}.get(item.name.lower())
    if source is None:
        hint = suggest_name(item.name, sorted(catalog), word="described")
        raise refuse(f"no table {item.name[:80]!r}{hint}")
    return source


def _resolve_query(query: exp.Select | exp.Union, catalog: Catalog, ctes: Mapping[str, Relation]) -> Relation:
    """An inner query: one SELECT, or several with UNION ALL between them."""
    if isinstance(query, exp.Select):
        return _resolve_rows(query, catalog, ctes)
    return unite([_resolve_rows(each, catalog, ctes) for each in _list_parts(query)])


def _list_parts(query: exp.Expr) -> list[exp.Select]:
    query = query.unnest()
    if isinstance(query, exp.Select):
        return [query]
    if not isinstance(query, exp.Union) or query.args.get("distinct") or query.args.get("by_name"):
        raise refuse("UNION ALL of inner queries is read; UNION, INTERSECT and EXCEPT compare records")
    for name in ("order", "limit", "offset", "with_"):
        if query.args.get(name):
            raise refuse(f"{name.upper().rstrip('_')} after UNION ALL in an inner query")
    return [*_list_parts(query.this), *_list_parts(query.expression)]


def _resolve_rows(query: exp.Select, catalog: Catalog, ctes: Mapping[str, Relation]) -> Relation:
    """An inner select: one output row per input row, or per individual, with its individual carried along."""
    why = "in an inner query; inner queries choose and compute columns, row by row or for each individual"
    refuse_clauses(query, ("LIMIT", "OFFSET", "ORDER BY"), why)
    relation = resolve_sources(query, catalog, ctes)
    items = expand_star(query, relation)
    if relation.unit is not None and gathers(query):
        relation, items = group_individuals(query, items, relation)
    else:
        refuse_clauses(query, ("DISTINCT", "GROUP BY", "HAVING"), why)
    projections: list[Item] = []
    fields: dict[str, Field] = {}
    for item in items:
        name = item.alias_or_name
        inner = item.unalias()
        if is_reserved(name):
            raise refuse(f"an inner query may not name a column {name!r}")
        if not name:
            raise refuse(f"name the column {item.sql()[:60]!r} of the inner query with AS")
        if any(True for _ in find_aggregates(inner)):
            raise refuse("an aggregate in an inner query; only the outermost select list aggregates")
        checked = qualify(inner, relation, where="an inner select list")
        projections.append(Item(name, checked))
        derived = derive_field(name, checked, relation)
        if isinstance(checked, exp.Column) and derived.column is not None:
            code = exp.column(code_name(checked.name), table=checked.table, quoted=True)
            projections.append(Item(code_name(name), code))
        if name.lower() in fields:
            raise refuse(f"the inner query has two columns named {name!r}")
        fields[name.lower()] = derived
    return relate(Project(relation.beside, tuple(projections)), {"": fields}, relation.described)


def _wrap(relation: Relation, alias: str) -> Relation:
    """A finished row-level select as a source of its own."""
    ((_, fields),) = relation.fields.items()
    assert isinstance(relation.rows, Project | Individuals | Union)
    return relate(Named(relation.rows, alias), {alias: fields}, relation.described)


def _join(left: Relation, right: Relation, join: exp.Join) -> Relation:
    """The relation of rows of `left` and `right` that match, each with its one individual."""
    side, method = (join.side or "").upper(), (join.kind or "").upper()
    if method not in ("", "INNER", "OUTER") or side in ("RIGHT", "FULL") or join.method:
        kind = " ".join(word for word in ((join.method or "").upper(), side, method) if word)
        raise refuse(
            f"{kind} JOIN, by which rows would be nobody's or multiply; JOIN and LEFT JOIN are answered, "
            "with ON or USING"
        )
    if set(left.fields) & set(right.fields):
        raise refuse("two tables of a join have the same name; give one another with AS")
    if side == "LEFT" and left.unit is None and right.unit is not None:
        raise refuse("LEFT JOIN from a public to a private table; put the private table first")
    joined = replace(left, fields={**left.fields, **right.fields})
    pairs = _read_pairs(join, left, right, joined)
    both = left.unit is not None and right.unit is not None
    if both and not any(_matches_individuals(pair, left, right) for pair in pairs):
        raise refuse(
            "a join of private tables must match their units (ON a.unit = b.unit), or a reference with its "
            f"key{_hint_match(left, right)}: otherwise a row would belong to two individuals"
        )
    matches = tuple(match_columns(one, other, joined, where="ON") for one, other in pairs)
    assert isinstance(right.rows, Scan | Named)
    rows = Join(left.beside, right.rows, matches, outer=side == "LEFT")
    return relate(rows, joined.fields, left.described, right.described)


def _read_pairs(
    join: exp.Join, left: Relation, right: Relation, joined: Relation
) -> list[tuple[exp.Expr, exp.Expr]]:
    """What is compared with what in ON or USING; another condition is paired with itself."""
    using, on = join.args.get("using") or [], join.args.get("on")
    if using:
        columns = [exp.column(name.name) for name in using]
        return [
            (qualify(column, left, where="USING"), qualify(column, right, where="USING"))
            for column in columns
        ]
    if on is None:
        raise refuse(
            "a join without ON or USING multiplies records without a bound; say what matches: "
            "JOIN b ON a.x = b.y"
        )
    condition = qualify(on, joined, where="ON")
    return [
        (part.this.unnest(), part.expression.unnest()) if isinstance(part, exp.EQ) else (part, part)
        for part in list_conditions(condition)
    ]


def _matches_individuals(pair: tuple[exp.Expr, exp.Expr], left: Relation, right: Relation) -> bool:
    """Whether a unit is compared with a unit, or a reference with what it refers to, across the join."""
    for one, other in (pair, pair[::-1]):
        if not (isinstance(one, exp.Column) and isinstance(other, exp.Column)):
            return False
        if one.table not in left.fields or other.table not in right.fields:
            continue
        mine, theirs = left.field(one), right.field(other)
        if mine.is_unit and theirs.is_unit:
            return True
        if leads_to(mine, theirs) or leads_to(theirs, mine):
            return True
    return False


def _hint_match(left: Relation, right: Relation) -> str:
    """The reference that these tables have, or else their units, as the condition of a join."""
    sides = [
        [(alias, field) for alias, named in each.fields.items() for field in named.values()]
        for each in (left, right)
    ]
    for children, parents in (sides, sides[::-1]):
        for (alias, child), (other, parent) in product(children, parents):
            if leads_to(child, parent):
                return f" (ON {alias}.{child.name} = {other}.{parent.name})"
    return ""


_PART = "part of sfumato"
_WHOLE = "union of sfumato"


def unite(parts: list[Relation]) -> Relation:
    """The rows of all parts, with the column names of the first.

    Privacy: an individual may have as many rows as all parts together admit, and is held to that number;
    docs/proofs/sql.md, "Unions".
    """
    listed = [list(next(iter(part.fields.values())).values()) for part in parts]
    if len({len(fields) for fields in listed}) > 1:
        raise refuse("UNION ALL of queries with different numbers of columns")
    fields = [_merge([each[place] for each in listed]) for place in range(len(listed[0]))]
    selects = [_select(part, own, fields) for part, own in zip(parts, listed, strict=True)]
    offered = tuple(
        Item(item.name, exp.column(item.name, table=_WHOLE, quoted=True)) for item in selects[0].items
    )
    rows = Project(Named(Union(tuple(selects)), _WHOLE), offered)
    fields_of = {"": {field.name.lower(): field for field in fields}}
    return relate(rows, fields_of, *(part.described for part in parts))


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


def _select(part: Relation, own: list[Field], fields: list[Field]) -> Project:
    """The rows of one part, with its columns as they are called and converted in the whole."""
    items: list[Item] = []
    for mine, field in zip(own, fields, strict=True):
        value: exp.Expr = exp.column(mine.name, table=_PART, quoted=True)
        if field.type is None or field.is_unit:
            kind = "VARCHAR" if field.is_unit else COMMON_TYPES[field.kind]
            value = exp.TryCast(this=value, to=exp.DataType.build(kind))
        items.append(Item(field.name, value))
        if field.column is not None:
            code = exp.column(code_name(mine.name), table=_PART, quoted=True)
            items.append(Item(code_name(field.name), code))
    assert isinstance(part.rows, Project | Individuals | Union)
    return Project(Named(part.rows, _PART), tuple(items))
