"""Statements with queries inside that are answered first: each is paid for by itself, from one sum.

Part of the curator. All is planned with values that stand for the answers before anything is charged, so that
what cannot be answered or paid is refused for nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
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
from sfumato.sql.finish import Answer, rehearse_rows
from sfumato.sql.plan import QueryPlan, Stage
from sfumato.sql.rows import selects_rows
from sfumato.sql.statement import Statement
from sfumato.sql.steps import NUMBER, find_step, is_plain

if TYPE_CHECKING:
    from sfumato.core.facts.project import Project
    from sfumato.core.ledger.ledger import Ledger
    from sfumato.core.ledger.report import BudgetReport
    from sfumato.sql.relation import Catalog

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

    def catalog(self, statement: Statement) -> Catalog: ...
    def units(self, statement: Statement) -> dict[str, str]: ...
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
            inner = desk.prepare(_about(statement, asked, mode="private"), epsilon=None)
            table = ask(desk, inner)
        else:
            names = [item.alias_or_name for item in asked.expressions]
            table = pa.table(
                {each: pa.array([], pa.int64() if each == NUMBER else pa.float64()) for each in names}
            )
        table = table if keys is None else step.spread(table, keys)
        desk, name = _add_table(desk, table, folder)
        step.put(table, exp.to_identifier(name, quoted=True))
    rest = replace(rest, query=query)
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
    query, texts = statement.query, list(statement.texts)
    ends = {
        column.lower()
        for each in desk.project.public.values()
        if each.name.startswith("answer ")
        for column in pq.read_schema(each.source).names
    }
    if query.args.get("group") or query.args.get("distinct"):
        return statement
    items: list[exp.Expr] = []
    kept: list[str] = []
    for item, text in zip(query.expressions, texts, strict=True):
        items.append(item)
        kept.append(text)
        column = item.unalias()
        for end in ("_low", "_high"):
            if isinstance(column, exp.Column) and f"{column.name}{end}".lower() in ends:
                bound = exp.column(f"{column.name}{end}", table=column.args.get("table"), quoted=True)
                shown = f"{item.alias_or_name}{end}"
                items.append(exp.alias_(bound, shown, quoted=True))
                kept.append(shown)
    query.set("expressions", items)
    return replace(statement, texts=tuple(kept))
