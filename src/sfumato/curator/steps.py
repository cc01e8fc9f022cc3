"""Statements with queries inside that are answered first: each is paid for by itself, from one sum.

`fee > (SELECT AVG(fee) FROM visits)` asks twice. The inner question is a statement of its own, with its share
of what may be spent, and its noisy answer, a public table then, stands in the outer one as a constant, or as
a table that rows look their value up in. What is asked of an individual's own records is no such question: it
becomes a join.

Part of the curator. All is planned with values that stand for the answers before anything is charged, so that
what cannot be answered or paid is refused for nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from sqlglot import exp

from sfumato.core.engine.arrays import to_arrow
from sfumato.core.errors import BudgetExceeded, refuse
from sfumato.core.exact import digest
from sfumato.core.facts.table import PublicTable
from sfumato.sql.aggregates import spell_position
from sfumato.sql.check import list_conditions
from sfumato.sql.constants import from_python
from sfumato.sql.finish import Answer, rehearse_rows
from sfumato.sql.inner import is_reference
from sfumato.sql.nested import aggregates, groups_individuals, picks_rows
from sfumato.sql.plan import QueryPlan, Stage
from sfumato.sql.relation import Catalog, Field, read_table
from sfumato.sql.rows import selects_rows

if TYPE_CHECKING:
    from sfumato.core.facts.project import Project
    from sfumato.core.ledger.ledger import Ledger
    from sfumato.core.ledger.report import BudgetReport
    from sfumato.sql.statement import Statement

NUMBER = "number"
"""The column of the numbers of public values, and what their table is called before it has a name."""
_KEY = "key {}"
_VALUE = "value"
_TIED = "a subquery of one aggregate is tied to the outer rows by equalities of columns (v.clinic = w.clinic)"
_CLAUSES = ("group", "having", "distinct", "limit", "offset", "order", "qualify")
_Named = Mapping[str, Mapping[str, Field]]

_MOST_KEYS = 2**18


class _Desk(Protocol):
    """What answers one question at a time; described in `statements`."""

    @property
    def project(self) -> Project: ...
    @property
    def report(self) -> Callable[[], BudgetReport]: ...
    @property
    def open_ledger(self) -> Callable[..., Ledger]: ...
    @property
    def asked_by(self) -> str | None: ...
    @property
    def at_most(self) -> Fraction | None: ...
    @property
    def intervals(self) -> bool: ...

    def catalog(self, statement: Statement) -> Catalog: ...
    def units(self, statement: Statement) -> dict[str, set[str]]: ...
    def named(self, statement: Statement) -> Sequence[object]: ...
    def prepare(self, statement: Statement, *, epsilon: Fraction | None) -> Statement: ...
    def plan(self, statement: Statement, catalog: Catalog) -> QueryPlan: ...
    def bind(self, plan: QueryPlan) -> None: ...
    def is_stored(self, plan: QueryPlan) -> bool: ...
    def explain(self, plans: tuple[QueryPlan, ...]) -> Answer: ...
    def schema(self, statement: Statement, catalog: Catalog) -> pa.Schema: ...
    def answer_free(self, statement: Statement, catalog: Catalog) -> pa.Table | None: ...
    def answer_public(self, statement: Statement) -> pa.Table: ...
    def answer_prepared(self, statement: Statement, *, progress: Callable[[str], None]) -> Answer: ...
    def with_table(self, table: PublicTable) -> _Desk: ...
    def with_most(self, at_most: Fraction | None) -> _Desk: ...
    def with_intervals(self, intervals: bool) -> _Desk: ...  # noqa: FBT001


def has_steps(desk: _Desk, statement: Statement) -> bool:
    """Whether a query inside a statement is answered by itself before the rest.

    What is asked of each individual's own records is made a join, in place.
    """
    inner = [each for each in statement.query.find_all(exp.Select) if each is not statement.query]
    if all(is_plain(each) for each in inner):
        return False
    return find_step(statement.query, desk.catalog(statement), desk.units(statement)) is not None


def answer_steps(desk: _Desk, statement: Statement, *, progress: Callable[[str], None]) -> Answer:
    """The answer to a statement whose inner queries are answered first, each with an equal share."""
    with TemporaryDirectory(prefix="sfumato-") as folder:
        planned, rest, plans = _rehearse(desk, statement, Path(folder))
        if statement.explain and plans:
            return planned.explain(tuple(reversed(plans)))
        if not statement.free and not all(map(planned.is_stored, plans[:-1])):
            fresh = [each for each in plans if not planned.is_stored(each)]
            check_affordable(desk, fresh, "the statement and the queries inside it")
        answers: list[Answer] = []

        def ask(at: _Desk, asked: Statement) -> pa.Table:
            spent = sum((each.spent for each in answers), Fraction(0))
            left = None if at.at_most is None else at.at_most - spent
            answers.append(at.with_most(left).answer_prepared(asked, progress=progress))
            return answers[-1].table

        last, rest = _run(desk, _share(statement, max(1, len(plans))), Path(folder), ask)
        table = last.answer_public(rest) if rest.mode == "public" else ask(last, rest)
        if not answers:  # no public value was left to be asked for
            return Answer(table=table, public=True)
        told = f"{len(plans) - (rest.mode == 'private')} inner queries were asked first"
        notes = [note for each in answers for note in each.notes]
        return Answer(
            table=table,
            spent=sum((each.spent for each in answers), Fraction(0)),
            delta=sum((each.delta for each in answers), Fraction(0)),
            repeated=all(each.repeated for each in answers),
            synthetic=answers[-1].synthetic,
            scales=answers[-1].scales,
            notes=(
                *dict.fromkeys(notes),
                f"{told}, each with an equal share of epsilon; intervals take their noisy answers as given",
            ),
            entries=tuple(sorted({entry for each in answers for entry in each.entries})),
        )


def describe_steps(desk: _Desk, statement: Statement) -> pa.Schema:
    """The schema of the answer to a statement whose inner queries are answered first."""
    with TemporaryDirectory(prefix="sfumato-") as folder:
        planned, rest, _ = _rehearse(desk, statement, Path(folder))
        return planned.schema(rest, planned.catalog(rest))


def check_affordable(desk: _Desk, plans: Sequence[QueryPlan], what: str) -> None:
    """Refuses plans, each of them a charge, that together cost more than there is."""
    costs = tuple(cost for plan in plans for cost in plan.costs)
    epsilon = sum((plan.epsilon for plan in plans), Fraction(0))
    reports = [desk.report()]
    if plans and desk.asked_by is not None:
        share = desk.open_ledger().report_share(desk.asked_by)
        reports += [] if share is None else [share]
    for report in reports if plans else ():
        if not report.admits(costs):
            told = f"{what} need epsilon {epsilon}, and {report.left} is left; nothing was spent"
            raise BudgetExceeded(told, left=report.left)
    if desk.at_most is not None and epsilon > desk.at_most:
        told = f"{what} need epsilon {epsilon}, and at most {desk.at_most} was to be spent; nothing was spent"
        raise BudgetExceeded(told, left=desk.at_most)


def _share(statement: Statement, parts: int) -> Statement:
    assert statement.epsilon is not None
    return replace(statement, epsilon=statement.epsilon / parts, delta=statement.delta / parts)


def _rehearse(desk: _Desk, statement: Statement, folder: Path) -> tuple[_Desk, Statement, list[QueryPlan]]:
    """What is left of a statement, and all its plans, with values that stand for answers."""
    if statement.within is not None or statement.epsilon is None:
        raise refuse("WITHIN beside queries that are answered first; state epsilon")
    plans: list[QueryPlan] = []

    def ask(at: _Desk, asked: Statement) -> pa.Table:
        free = at.answer_free(asked, at.catalog(asked))
        if free is not None:
            return free
        plan = at.plan(asked, at.catalog(asked))
        at.bind(plan)
        plans.append(plan)
        plain = replace(plan, stages=tuple(Stage() for _ in plan.stages))
        return rehearse_rows(plain, groups=1 if plan.sets else plan.groups)

    last, rest, parts = desk, statement, 0
    while parts != max(1, len(plans)):
        parts = max(1, len(plans))
        plans.clear()
        last, rest = _run(desk, _share(statement, parts), folder, ask)
        if rest.mode == "public":
            last.schema(rest, last.catalog(rest))
        elif selects_rows(rest.query):
            raise refuse("rows chosen by an answer to another question; ask for COUNT, SUM and the like")
        else:
            ask(last, rest)
    return last, rest, plans


def _run(
    desk: _Desk, statement: Statement, folder: Path, ask: Callable[[_Desk, Statement], pa.Table]
) -> tuple[_Desk, Statement]:
    """Answers inner queries one after the other, and returns what is left, at a desk that has the answers."""
    query = statement.query.copy()
    rest = replace(statement, query=query, explain=False, stepwise=False)
    # Inner answers have intervals whatever is shown: else what follows from them would be another question.
    shown, desk = desk.intervals, desk.with_intervals(True)  # noqa: FBT003
    while (step := find_step(query, desk.catalog(rest), desk.units(rest))) is not None:
        asked, keys = step.asks, None
        if step.keys is not None:
            keys = desk.answer_public(_about(statement, step.keys, mode="public"))
            if keys.num_rows > _MOST_KEYS:
                raise refuse(f"an inner query for {keys.num_rows:,} public values, at most {_MOST_KEYS:,}")
            numbered = keys.append_column(NUMBER, to_arrow(np.arange(keys.num_rows)))
            desk, name = _add_table(desk, numbered, folder)
            asked = asked.transform(  # type: ignore[assignment]
                lambda node, name=name: (
                    exp.Table(this=exp.to_identifier(name, quoted=True), alias=node.args["alias"])
                    if isinstance(node, exp.Table) and node.name == NUMBER
                    else node
                )
            )
        if not step.private:
            table = desk.answer_public(_about(statement, asked, mode="public"))
        elif keys is None or keys.num_rows:
            inner = replace(_about(statement, asked, mode="private"), picked=picks_rows(query, asked))
            table = ask(desk, desk.prepare(inner, epsilon=None))
        else:
            names = [item.alias_or_name for item in asked.expressions]
            kinds = [pa.int64() if each == NUMBER else pa.float64() for each in names]
            table = pa.schema(zip(names, kinds, strict=True)).empty_table()
        table = table if keys is None else step.spread(table, keys)
        desk, name = _add_table(desk, table, folder)
        step.put(table, exp.to_identifier(name, quoted=True))
    rest, desk = replace(rest, query=query), desk.with_intervals(shown)
    if desk.named(rest):
        return desk, desk.prepare(rest, epsilon=None)
    return desk, _with_ends(replace(rest, mode="public", around=()), desk)


def _about(statement: Statement, query: exp.Select, *, mode: str) -> Statement:
    texts = tuple(item.alias or item.sql(dialect="duckdb") for item in query.expressions)
    return replace(statement, query=query, texts=texts, mode=mode, around=(), explain=False, stepwise=False)  # type: ignore[arg-type]


def _add_table(desk: _Desk, table: pa.Table, folder: Path) -> tuple[_Desk, str]:
    """A desk that has a table more, which is public; its name tells what it holds."""
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, store_schema=False)
    payload = sink.getvalue().to_pybytes()
    name = f"answer {digest(payload.hex())[:16]}"
    path = folder / f"{name.replace(' ', '-')}.parquet"
    path.write_bytes(payload)
    return desk.with_table(PublicTable(name=name, source=str(path))), name


def _with_ends(statement: Statement, desk: _Desk) -> Statement:
    """A query of answers with the ends of their intervals beside the columns that are shown as they are."""
    query = statement.query
    ends = {
        column.lower()
        for each in desk.project.public.values()
        if each.name.startswith("answer ")
        for column in pq.read_schema(each.source).names
    }
    if query.args.get("group") or query.args.get("distinct") or not desk.intervals:
        return statement
    items: list[tuple[exp.Expr, str]] = []
    for item, text in zip(query.expressions, statement.texts, strict=True):
        items.append((item, text))
        column = item.unalias()
        for end in ("_low", "_high"):
            if isinstance(column, exp.Column) and f"{column.name}{end}".lower() in ends:
                bound = exp.column(f"{column.name}{end}", table=column.args.get("table"), quoted=True)
                shown = f"{item.alias_or_name}{end}"
                items.append((exp.alias_(bound, shown, quoted=True), shown))
    query.set("expressions", [item for item, _ in items])
    return replace(statement, texts=tuple(text for _, text in items))


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


def find_step(query: exp.Select, catalog: Catalog, units: Mapping[str, set[str]]) -> Step | None:
    """The first query inside another that is answered by itself; None if all is one question.

    What is asked of each individual's own records is made a join in place. `units` are the unit columns of
    private tables, all names in lower case.
    """
    reader = _Reader(query, catalog)
    if not reader.is_private(query):
        return None
    places = {id(cte): place for place, cte in enumerate(query.find_all(exp.CTE))}
    # Those of WITH before what names them, and else the innermost first.
    blocks = [block for block in query.find_all(exp.Select) if block is not query][::-1]
    blocks.sort(key=lambda block: places.get(id(block.find_ancestor(exp.CTE)), len(places)))
    return next((step for block in blocks if (step := _read_block(block, reader, units)) is not None), None)


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


def _stands_for(item: exp.Expr, place: exp.Expr) -> bool:
    """Whether an item of FROM is an inner query, or names one of WITH."""
    return item is place or (isinstance(place, exp.CTE) and item.name.lower() == place.alias.lower())


def _list_items(select: exp.Select) -> list[exp.Expr]:
    clauses = (select.args.get("from_"), *(select.args.get("joins") or []))
    return [each.this for each in clauses if each is not None]


def _read_block(block: exp.Select, reader: _Reader, units: Mapping[str, set[str]]) -> Step | None:
    """A query that stands in FROM, WITH, IN or a union, if it is answered first; or one that is a value."""
    node: exp.Expr = block
    while isinstance(node.parent, (exp.Subquery, exp.Paren)):
        node = node.parent
    parent = node.parent
    listed = isinstance(parent, (exp.In, exp.SetOperation))
    if parent is None or isinstance(parent, exp.Exists):
        return None
    if isinstance(parent, exp.In) and node is parent.this:
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
        found = [each for each in joins if _stands_for(each.this, place)]
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
    known = all(_find_field(each, around) for _, each in pairs)
    if len(pairs) < len(outer) or not aggregates(block) or not known:
        raise refuse(_TIED)
    keys = [one for one, _ in pairs]
    sides = [(other.name, _find_field(other, around)) for _, other in pairs]
    tied = [exp.column(name, table=found[0] if found else None, quoted=True) for name, found in sides]
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


def _equal(ones: list[exp.Column], others: list[exp.Column]) -> exp.Expr:
    pairs = zip(ones, others, strict=True)
    return exp.and_(*(exp.EQ(this=one.copy(), expression=other.copy()) for one, other in pairs))


def _is_own(pairs: list[tuple[exp.Expr, exp.Column]], fields: _Named, around: _Named) -> bool:
    """Whether an equality says that inner and outer rows are of one individual."""
    found = [(_find_field(one, fields), _find_field(other, around)) for one, other in pairs]
    both = [(mine[1], theirs[1]) for mine, theirs in found if mine and theirs]
    return any((one.is_unit and other.is_unit) or is_reference(one, other) for one, other in both)


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
    owned = [bool((found := _find_field(key, fields)) and found[1].is_unit) for key in keys]
    keys = [inner, *(key for key, own in zip(keys, owned, strict=True) if not own)]
    tied = [outer, *(other for other, own in zip(tied, owned, strict=True) if not own)]
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
    given = {item.alias_or_name.lower(): item.unalias() for item in query.expressions}
    outputs = {name: keys.index(tree) for name, tree in given.items() if tree in keys}
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
    return replace(step, asks=_group_by_number(query, keys, items), keys=public, grouped=outputs)


def _list_equal(
    select: exp.Select, place: exp.Expr, outputs: Mapping[str, int], reader: _Reader
) -> Iterator[tuple[int, exp.Column]]:
    """The columns of a query that those of an inner one equal, each with the place of its key there."""
    aliases = {item.alias_or_name.lower() for item in _list_items(select) if _stands_for(item, place)}
    clauses = (select.args.get("where"), *(each.args.get("on") for each in select.args.get("joins") or []))
    parts = [each.this if isinstance(each, exp.Where) else each for each in clauses if each is not None]
    fields = reader.fields(select) if aliases else {}
    for part in (each for clause in parts if aliases for each in list_conditions(clause)):
        sides = [part.this, part.expression] if isinstance(part, exp.EQ) else []
        for one, other in zip(sides, sides[::-1], strict=True):
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
    if None in found or select is None:
        return None
    aliases = {each[0] for each in found if each is not None}
    items = [each for each in _list_items(select) if each.alias_or_name.lower() in aliases]
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
