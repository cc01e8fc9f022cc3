"""Statements at the door: planned, charged, answered by the engine, noised, and finished.

Part of the curator: the same order as for a release, for one DP-SELECT at a time.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from sqlglot import exp

from sfumato.core.algebra.asks import list_costs
from sfumato.core.algebra.measures import CAPS
from sfumato.core.cost.parallel import Allowance
from sfumato.core.door import Bill, Charged, answer_under_charge
from sfumato.core.errors import RecipeError, UnsupportedQuery, refuse
from sfumato.core.exact import digest
from sfumato.core.facts.project import list_files, refuse_private_file
from sfumato.core.facts.table import table_spec
from sfumato.curator.reuse import (
    StoredQuestions,
    finish_derived,
    finish_measured,
    label_question,
    load_earlier,
)
from sfumato.curator.steps import answer_steps, check_affordable, describe_steps, has_steps
from sfumato.sql.asks import ask_plan, list_asks, read_bounds
from sfumato.sql.check import refuse_deep, refuse_large
from sfumato.sql.finish import Answer, note_cuts, pack_noisy, rehearse_query, unpack_noisy
from sfumato.sql.listing import (
    add_views,
    answer_listing,
    change_views,
    is_probe,
    list_constants,
    list_labels,
    name_columns_of,
    probe_rows,
    read_listing,
    summarize_public,
)
from sfumato.sql.nested import flatten
from sfumato.sql.normalize import bind_parameters, count_stands, find_stands, normalize, stand_in
from sfumato.sql.plan import NoisyAggregates, QueryPlan, half_width, least_epsilon
from sfumato.sql.planner import plan_public, prepare_query
from sfumato.sql.question import Question, digest_question, reorder_plan
from sfumato.sql.relation import Source, list_unit_names
from sfumato.sql.rows import describe_rows, finish_rows, plan_rows, selects_rows
from sfumato.sql.statement import price_statement, read_statement

# What earlier answers and releases tell, EXPLAIN, WITHIN and descriptions are imported where they are needed:
# most statements need none of them, and a process begins with a third less to load.
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from sfumato.core.cost.budget import Budget
    from sfumato.core.facts.project import Project
    from sfumato.core.facts.table import PublicTable, Table
    from sfumato.core.law import NoiseSource
    from sfumato.core.ledger.chain import ChargeEntry
    from sfumato.core.ledger.ledger import Ledger
    from sfumato.core.ledger.report import BudgetReport
    from sfumato.curator.released import Released
    from sfumato.servers.project import Engine
    from sfumato.sql.listing import Listing
    from sfumato.sql.relation import Catalog
    from sfumato.sql.reuse import Derived, Earlier
    from sfumato.sql.settle import Description
    from sfumato.sql.statement import Statement, Within

    # How many entries the ledger had, and which answers of them may help.
    _Known = tuple[int, list[Earlier]]
    _Bounds = Mapping[str, tuple[Fraction, Fraction]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Desk:
    """Answers statements about the tables of `project`, which `engine` reads.

    `find_budget` tells the budget and `report` what is left of it. `open_ledger` opens what is charged; given
    a bill and its preparation, it makes no new ledger where these refuse. `noise` is another source of it for
    audits. `asked_by` is who asks, `at_most` the most epsilon that a statement may cost; `pace` is that of
    the door. An answer of public groups that would have more than `most_values` numbers is refused; with
    `intervals` it has columns for their ends. `stored` is what is known of the ledger's answers from earlier
    statements, `views` are those of who asks.
    """

    project: Project
    engine: Engine
    find_budget: Callable[[], Budget]
    report: Callable[[], BudgetReport]
    open_ledger: Callable[..., Ledger]
    noise: NoiseSource | None = None
    asked_by: str | None = None
    at_most: Fraction | None = None
    pace: Callable[[], None] = lambda: None
    most_values: int | None = None
    intervals: bool = True
    stored: StoredQuestions = field(default_factory=StoredQuestions)
    views: dict[str, str] = field(default_factory=dict)

    def answer(
        self,
        text: str,
        *,
        epsilon: Fraction | None,
        parameters: Sequence[object],
        progress: Callable[[str], None],
    ) -> Answer:
        """The answer to the statement `text`.

        `epsilon` is the price of a plain SELECT of private tables, `parameters` are the values of `$1`, `$2`,
        ...; `progress` is called with each stage.
        """
        listing = read_listing(text)
        if listing is not None:
            from sfumato.curator.explain import explain_facts

            return explain_facts() if listing.explain else Answer(table=self._list(listing), public=True)
        told = self._change_views(text)
        if told is not None:
            return Answer(table=told, public=True)
        statement = read_statement(text)
        bind_parameters(statement.query, parameters)
        return self.answer_prepared(self.prepare(statement, epsilon=epsilon), progress=progress)

    def answer_prepared(self, statement: Statement, *, progress: Callable[[str], None]) -> Answer:
        """The answer to a statement that was made plain."""
        with ExitStack() as held:
            for table in self.named(statement):
                # The whole statement is about the same records.
                held.enter_context(self.engine.snapshot(table))
            return self._answer_held(statement, progress=progress)

    def describe(
        self, text: str, *, epsilon: Fraction | None, types: Sequence[pa.DataType | None]
    ) -> Description:
        """The columns that the answer to a statement would have; opens no ledger.

        `types` are what is known of the types of `$1`, `$2`, ...; the rest is found out.
        """
        from sfumato.curator.explain import explain_facts
        from sfumato.sql.settle import Description, kinds_of_parameters, parameter_type, stands_for

        listing = read_listing(text)
        if listing is not None:
            table = explain_facts().table if listing.explain else self._list(listing)
            return Description(columns=tuple((field.name, field.type) for field in table.schema))
        if replace(self, views=dict(self.views))._change_views(text) is not None:
            return Description(columns=(("view", pa.string()),))
        statement = read_statement(text)
        stand_in(statement.query, stands_for(types))
        count = count_stands(statement.query)
        statement = self.prepare(statement, epsilon=epsilon)
        schema = self.schema(statement, self.catalog(statement))
        stages = [tree for each in statement.around for tree in each.trees]
        stands = find_stands([statement.query, *stages])
        found = [
            parameter_type(stands[number]) if number in stands else pa.string()
            for number in range(1, count + 1)
        ]
        return Description(
            columns=tuple((field.name, field.type) for field in schema),
            parameters=kinds_of_parameters(found, types),
        )

    def _change_views(self, text: str) -> pa.Table | None:
        """Makes or drops a view of the session, if `text` says so."""
        told = change_views(text, self.views, taken=[*self.tables, *self.project.views])
        return None if told is None else pa.table({"view": [told]})

    def _list(self, asked: Listing) -> pa.Table:
        """The answer to a question about the tables themselves."""
        return answer_listing(
            asked,
            self.project,
            find_source=self._source,
            describe=lambda text: self.describe(text, epsilon=Fraction(1), types=()).schema,
        )

    @refuse_deep
    def prepare(self, statement: Statement, *, epsilon: Fraction | None) -> Statement:
        """The statement made plain: its price known, constants computed, outer queries merged."""
        add_views(statement.query, {**self.project.views, **self.views})
        if self.named(statement):
            statement = price_statement(statement, epsilon=epsilon)
        normalize(statement.query, numbers=bool(self.named(statement)))
        if statement.mode == "public" and not is_probe(statement.query):
            return statement
        units = self.units(statement)
        try:
            flat = flatten(statement, units)
        except UnsupportedQuery:
            if not has_steps(self, statement):
                raise
            return replace(statement, stepwise=True)
        if flat.query is not statement.query:
            refuse_large(flat.query)  # names stand for what they are now
        return replace(flat, stepwise=has_steps(self, flat))

    def units(self, statement: Statement) -> dict[str, set[str]]:
        """The columns that name individuals, of the private tables that a statement names, in lower case."""
        return {
            table.name.lower(): list_unit_names(table)
            for table in self.named(statement)
            if table.unit.column is not None
        }

    def with_table(self, table: PublicTable) -> Desk:
        """A desk that has a public table more."""
        public = {**self.project.public, table.name: table}
        return replace(self, project=replace(self.project, public=public))

    def with_most(self, at_most: Fraction | None) -> Desk:
        """A desk where a statement may cost so much epsilon at most."""
        return replace(self, at_most=at_most)

    def with_intervals(self, intervals: bool) -> Desk:  # noqa: FBT001
        """A desk whose answers have columns for the ends of intervals, or none."""
        return replace(self, intervals=intervals)

    def named(self, statement: Statement) -> list[Table]:
        """The private tables that a statement names."""
        named = {table.name.lower() for table in statement.query.find_all(exp.Table)}
        return [table for name, table in self.project.tables.items() if name.lower() in named]

    def schema(self, statement: Statement, catalog: Catalog) -> pa.Schema:
        """The schema of the answer, from the plan alone."""
        if statement.stepwise and not statement.explain:
            return describe_steps(self, statement)
        free = self.answer_free(statement, catalog)
        if statement.explain and (statement.mode == "private" or free is not None):
            return pa.schema([("plan", pa.string())])
        if free is not None:
            return free.schema
        if statement.mode == "public":
            return self.answer_public(statement, rows=False).schema
        if selects_rows(statement.query):
            return describe_rows(plan_rows(statement, catalog, epsilon=statement.epsilon or Fraction(1)))
        if statement.within is not None and statement.within.relative:
            statement = replace(statement, within=None, epsilon=Fraction(1))
        return rehearse_query(self.plan(statement, catalog))

    def answer_free(self, statement: Statement, catalog: Catalog) -> pa.Table | None:
        """The answer to a question that public facts answer, None for any other."""
        if not self.named(statement):
            return None
        if any(is_probe(query) for query in (statement.query, *(each.rows for each in statement.around))):
            priced = replace(statement, mode="private", epsilon=statement.epsilon or Fraction(1))
            if selects_rows(statement.query):
                return probe_rows(priced, catalog).empty_table()
            if priced.within is not None and priced.within.relative:
                priced = replace(priced, within=None)
            return rehearse_query(self.plan(priced, catalog)).empty_table()
        constants = list_constants(statement) if statement.plain else None
        return list_labels(statement, catalog) if constants is None else constants

    def _answer_held(self, statement: Statement, *, progress: Callable[[str], None]) -> Answer:
        if statement.stepwise:
            return answer_steps(self, statement, progress=progress)
        catalog = self.catalog(statement)
        free = self.answer_free(statement, catalog)
        if free is not None and statement.explain:
            from sfumato.curator.explain import explain_facts

            return explain_facts()
        if free is not None:
            return Answer(table=free, public=True)
        if statement.mode == "public":
            return Answer(table=self.answer_public(statement), public=True)
        if selects_rows(statement.query):
            return self._select_rows(statement, catalog, progress=progress)
        if statement.within is not None and statement.within.relative:
            return self._answer_within(statement, statement.within, catalog, progress=progress)
        plan = self.plan(statement, catalog)
        if statement.explain:
            free = self._derive(plan, self._know(plan, catalog))
            return self.explain((plan,), free=free, more="" if free else self._offer_models(plan, statement))
        bind = partial(self.plan, statement, catalog)
        if statement.free:
            return self._give(plan, statement, catalog, bind=bind, progress=progress)
        known = None
        if not statement.fresh and not self.is_stored(plan):
            known = self._know(plan, catalog)
            derived = self._derive(plan, known)
            if derived is not None and self._suffices(derived, plan, statement):
                return finish_derived(derived)
        return self._pay(
            plan, catalog, combine=not statement.fresh, known=known, bind=bind, progress=progress
        )

    def _answer_within(
        self, statement: Statement, goal: Within, catalog: Catalog, *, progress: Callable[[str], None]
    ) -> Answer:
        from sfumato.curator.explain import answer_within, explain_within

        def plan_at(epsilon: Fraction) -> QueryPlan:
            return self.plan(replace(statement, within=None, epsilon=epsilon), catalog, clip=False)

        if statement.explain:
            return explain_within(goal, plan_at, self.explain)
        return answer_within(goal, statement.delta, plan_at, partial(self.measure, progress=progress))

    def answer_public(self, statement: Statement, *, rows: bool = True) -> pa.Table:
        """The exact answer to a statement about public tables; without `rows`, its columns alone."""
        tree, names = plan_public(statement.query, self.catalog(statement))
        tables = {name: self.project.public[name] for name in names}
        return name_columns_of(self.engine.select(tree, tables, rows=rows), statement)

    def _give(
        self,
        plan: QueryPlan,
        statement: Statement,
        catalog: Catalog,
        *,
        bind: Callable[..., QueryPlan],
        progress: Callable[[str], None],
    ) -> Answer:
        """The best answer that nothing is paid for, or a refusal."""
        derived = self._derive(plan, self._know(plan, catalog))
        if derived is not None:
            return finish_derived(derived)
        if self.is_stored(plan):
            unpaid = replace(self, at_most=Fraction(0))
            return unpaid._pay(plan, catalog, combine=False, bind=bind, progress=progress)
        expected = self._ask_releases(plan, statement, progress=progress)
        if expected is not None and not self.intervals:
            return replace(expected, table=expected.table.select(rehearse_query(plan).names))
        if expected is not None:
            return expected
        raise refuse(
            "nothing that was paid for answers this; write what may be spent, DP-SELECT epsilon, in place of "
            "DP-SELECT FREE"
        )

    def _pay(
        self,
        plan: QueryPlan,
        catalog: Catalog,
        *,
        combine: bool,
        known: _Known | None = None,
        bind: Callable[..., QueryPlan],
        progress: Callable[[str], None],
    ) -> Answer:
        """The answer to `plan`, stored or charged now, together with what was known when it was charged.

        That is what is `known` already, unless others were charged since.
        """
        noisy, spent, entry = self.measure(plan, bind=bind, progress=progress)
        if noisy.bounds or noisy.cap is not None or noisy.clips:
            plan = bind(chosen=read_bounds(plan, noisy.bounds), cap=noisy.cap, clips=noisy.clips)
        if combine and entry.description.get("question") is not None:
            if known is None or known[0] != entry.sequence - 1:
                known = self._know(plan, catalog, before=entry.sequence)
            derived = self._derive(plan, known, fresh=noisy)
            if derived is not None and derived.entries:
                return finish_derived(derived, spent=spent, delta=plan.charged_delta, entry=entry.sequence)
        return finish_measured(plan, noisy, spent)

    def _derive(
        self, plan: QueryPlan, known: _Known, *, fresh: NoisyAggregates | None = None
    ) -> Derived | None:
        """The answer that follows from what is `known`; with `fresh`, what was just measured, of both."""
        question = self.question(plan)
        if question is None or not known[1]:
            return None
        from sfumato.sql.reuse import derive_answer

        return derive_answer(plan, question, known[1], fresh=fresh)

    def _know(self, plan: QueryPlan, catalog: Catalog, *, before: int | None = None) -> _Known:
        """What the ledger has that may help with `plan`, of what was answered `before` an entry."""
        count, question = len(self.report().entries), self.question(plan)
        if not count or question is None:
            return count, []
        ledger, tables = self.open_ledger(), self.described(plan)
        version = self._version(plan, ledger.secret)
        known: list[Earlier] = []
        rows = plan.unit.column is None
        for entry in self.stored.find(ledger, question, rows=rows, version=version, before=before):
            planned = self.stored.plan(entry, lambda each: self._plan_again(each, catalog), tables)
            if planned is not None:
                known.append(load_earlier(entry, *planned, ledger))
        for released in self._releases(plan, before=before):
            from sfumato.curator.released import name_columns_asked

            names = name_columns_asked(plan)
            known += [] if names is None else released.list_measured(names)
        return count, known

    def _releases(self, plan: QueryPlan, *, before: int | None = None) -> list[Released]:
        """The releases in the ledger about the one table that a plan reads."""
        tables = plan.relation.tables
        table = self.project.tables.get(tables[0]) if len(tables) == 1 else None
        if table is None or not self.report().entries:
            return []
        ledger = self.open_ledger()

        def open_released(entry: ChargeEntry) -> Released | None:
            from sfumato.curator.released import open_released

            return open_released(
                entry,
                project=self.project,
                ledger=ledger,
                make=lambda statement: self._plan_again(statement, self.catalog(statement)),
                tables=self.described(plan),
            )

        return self.stored.find_released(
            ledger,
            table.name,
            version=self.engine.version(table, secret=ledger.secret),
            before=before,
            open_released=open_released,
        )

    def _ask_releases(
        self, plan: QueryPlan, statement: Statement, *, progress: Callable[[str], None]
    ) -> Answer | None:
        """What recipes measured as they went, or what their models expect; None if they know nothing."""
        from sfumato.curator.released import name_columns_asked
        from sfumato.sql.reuse import derive_answer

        names, question = name_columns_asked(plan), self.question(plan)
        if names is None or question is None:
            return None
        releases = [each for each in self._releases(plan) if each.has_columns(names)]
        for released in releases:
            if not released.is_known:
                released.replay(progress)
                derived = derive_answer(plan, question, released.list_measured(names))
                if derived is not None:
                    return finish_derived(derived)
        answers = (each.ask_model(statement, progress) for each in releases)
        return next((answer for answer in answers if answer is not None), None)

    def _offer_models(self, plan: QueryPlan, statement: Statement) -> str:
        """What EXPLAIN says of models that answer a statement; they are not derived for that."""
        found = [each.name for each in self._releases(plan) if each.can_ask(statement)]
        more = "a model whose error is not known, for nothing: DP-SELECT FREE ..."
        return f"\n  estimate     {found[0]} has {more}" if found else ""

    def _plan_again(self, statement: Statement, catalog: Catalog) -> QueryPlan:
        """The plan of a statement as a ledger has it."""
        prepared = self.prepare(statement, epsilon=None)
        delta = self.find_budget().selection
        make = prepare_query(prepared, catalog, selection_delta=delta, intervals=self.intervals)
        return make(prepared.epsilon or Fraction(0))

    def _suffices(self, derived: Derived, plan: QueryPlan, statement: Statement) -> bool:
        """Whether a free answer is as good as the one that would be paid for."""
        if derived.is_as_narrow(plan):
            return True
        goal = statement.within
        return (
            goal is not None
            and derived.max_groups is None
            and all(half_width(noise) <= goal.amount * noise.measure.grid for noise in derived.plan.added)
        )

    def plan(self, statement: Statement, catalog: Catalog, **bounds: Any) -> QueryPlan:  # noqa: ANN401
        """The plan of a statement, with `bounds` that were chosen under its charge: see `prepare_query`."""
        if statement.delta > 0 and self.project.delta == 0:
            raise RecipeError("delta above zero needs [budget] delta above zero in the project file")
        selection_delta = self.find_budget().selection
        prepare = partial(prepare_query, intervals=self.intervals)
        plan_at = prepare(statement, catalog, selection_delta=selection_delta, **bounds)
        epsilon = statement.epsilon or Fraction(0)
        if statement.within is not None:
            epsilon = least_epsilon(plan_at, statement.within.amount)
        plan = plan_at(epsilon)
        if plan.tally is not None and bounds.get("cap") is None:
            for each in CAPS:  # whatever will be chosen is possible, and paid for
                bound = self.plan(replace(statement, within=None, epsilon=epsilon), catalog, cap=each)
                if not all(map(Allowance(plan.costs).pay, bound.costs)):
                    raise refuse('max_records = "private" of this statement; declare a number of records')
        values = plan.rows * (len(plan.noises) + 3 * len(plan.outputs))
        if self.most_values is not None and values > self.most_values:
            raise refuse(
                f"the answer would have {plan.rows:,} groups of {len(plan.outputs)} columns, more than is "
                "sent here; group by fewer columns or longer periods, or ask for fewer columns"
            )
        return plan

    def _select_rows(
        self, statement: Statement, catalog: Catalog, *, progress: Callable[[str], None]
    ) -> Answer:
        if statement.free:
            raise refuse(
                "DP-SELECT FREE of rows; free are COUNT, SUM and the like of groups that were measured"
            )
        if statement.epsilon is None:
            raise RecipeError("a row selection needs epsilon: DP-SELECT 1.0 columns FROM table")
        plan = plan_rows(statement, catalog, epsilon=statement.epsilon)
        if statement.explain:
            return self.explain(plan.parts)
        fresh = [part for part in plan.parts if not self.is_stored(part)]
        check_affordable(self, fresh, "the rows")
        answers = [self.measure(part, progress=progress) for part in plan.parts]
        spent = sum((cost for _, cost, _ in answers), Fraction(0))
        table = finish_rows(plan, tuple(noisy for noisy, _, _ in answers))
        notes = tuple(dict.fromkeys(note for part in plan.parts for note in note_cuts(part)))
        if plan.blanks:
            notes += (
                f"nothing is told of {', '.join(plan.blanks)}: no public domain, or names of individuals",
            )
        delta = sum((part.charged_delta for part in fresh), Fraction(0))
        return Answer(table=table, spent=spent, delta=delta, repeated=spent == 0, synthetic=True, notes=notes)

    def measure(
        self,
        plan: QueryPlan,
        *,
        spent: Fraction = Fraction(0),
        bind: Callable[..., QueryPlan] | None = None,
        progress: Callable[[str], None],
    ) -> tuple[NoisyAggregates, Fraction, ChargeEntry]:
        """The noisy aggregates of `plan`, the epsilon that was charged for them now, and the entry.

        `spent` is what the statement has cost so far. `bind` gives the plan with bounds that were chosen, for
        one that has choices.
        """
        question = self.question(plan)
        asked = _Asked(self, plan, question, bind, progress)
        bill = Bill(
            digest=self._digest(plan, question),
            purpose="statement",
            subject="; then ".join((plan.text, *plan.around)),
            description={
                **plan.to_record(),
                **({} if question is None else {"question": question.to_record()}),
            },
            tables=", ".join(plan.relation.tables),
            costs=plan.costs,
            version=lambda secret: self._version(plan, secret),
            packed=lambda: tuple(
                path for name in plan.relation.tables for path in self.engine.packed(self.tables[name])
            ),
            units=self._units(plan),
            described=self._list_described(plan),
            asked_by=self.asked_by,
            at_most=None if self.at_most is None else self.at_most - spent,
            labels=lambda version: () if question is None else label_question(question, version),
        )
        prepare = partial(self.bind, plan)
        noisy, charged = answer_under_charge(
            bill,
            ledger=self.open_ledger(bill, prepare),
            noise=self.noise,
            prepare=prepare,
            measure=asked.measure,
            pack=pack_noisy,
            unpack=lambda stored: unpack_noisy(stored, asked.plan),
            progress=progress,
            pace=self.pace,
            under=asked.meet,
        )
        if asked.plan is not plan:
            from sfumato.sql.reuse import reorder_noisy

            noisy = reorder_noisy(noisy, asked.plan, plan)
        assert asked.entry is not None
        return noisy, plan.epsilon if charged else Fraction(0), asked.entry

    def explain(self, plans: tuple[QueryPlan, ...], *, more: str = "", free: Derived | None = None) -> Answer:
        """The answer to EXPLAIN; what cannot be asked is refused as it would be."""
        from sfumato.curator.explain import explain_plans

        for plan in plans:
            self.bind(plan)
        return explain_plans(
            plans,
            report=self.report(),
            open_ledger=self.open_ledger,
            stored=all(map(self.is_stored, plans)),
            more=more,
            free=free,
        )

    def bind(self, plan: QueryPlan) -> None:
        """Refuses a plan that could only fail."""
        derived = list_costs(self.engine.bind(plan.query, self._list_described(plan)), ask_plan(plan))
        if not all(map(Allowance(plan.costs).pay, derived)):
            raise refuse("a plan that costs more than it says, which is a fault of sfumato; please report it")
        if plan.choices:
            self.engine.bind(plan.choice_plan.query, self._list_described(plan))

    def is_stored(self, plan: QueryPlan) -> bool:
        """Whether a plan was answered before, of the same records."""
        if not self.report().entries:
            return False
        ledger = self.open_ledger()
        name = self._digest(plan, self.question(plan))
        if not ledger.knows(name):
            return False  # without reading files to know their version
        version = self._version(plan, ledger.secret)
        return ledger.find_answer(plan_digest=name, table_version=version) is not None

    def described(self, plan: QueryPlan) -> dict[str, object]:
        """The described tables that a plan reads, as a record."""
        return {
            name: table_spec(table, tuple(table.columns))
            for name, table in self.project.tables.items()
            if name in plan.relation.tables
        }

    def question(self, plan: QueryPlan) -> Question | None:
        """What a plan asks; None if it is found again by its text alone."""
        return self.stored.read(plan, partial(self.described, plan))

    def _digest(self, plan: QueryPlan, question: Question | None) -> str:
        """The digest under which the answer to a plan is stored: that of its question, or of its text."""
        if question is not None:
            return digest_question(plan, question)
        return digest({"plan": plan.to_record(), "tables": self.described(plan)})

    def _units(self, plan: QueryPlan) -> dict[str, str]:
        """The unit of every private table that a plan reads."""
        private = {name: self.project.tables.get(name) for name in plan.relation.tables}
        return {name: table.unit.column or "row" for name, table in private.items() if table is not None}

    def _list_described(self, plan: QueryPlan) -> dict[str, Table | PublicTable]:
        """The tables of a plan, whose versions its charge is about; no query under it reads another."""
        return {name: self.tables[name] for name in plan.relation.tables}

    def _version(self, plan: QueryPlan, secret: bytes) -> str:
        names = sorted(set(plan.relation.tables))
        return digest([self.engine.version(self.tables[name], secret=secret) for name in names])

    def catalog(self, statement: Statement) -> Catalog:
        """The tables of the project; of those that the statement names, also their stored columns."""
        named = {table.name.lower() for table in statement.query.find_all(exp.Table)}
        catalog: Catalog = {}
        for name in self.tables:
            used = name.lower() in named
            unused = Source(name=name, stored={}, table=self.project.tables.get(name))
            catalog[name] = self._source(name) if used else unused
        return catalog

    def _source(self, name: str) -> Source:
        """A table with its stored columns, from headers, footers and catalogues alone."""
        if name in self.project.tables:
            table = self.project.tables[name]
            types = self.engine.column_types(table)
            return Source(name=name, stored=self.engine.describe(table), table=table, types=types)
        public = self.project.public[name]
        refuse_private_file(public, self.project)
        stored = self.engine.describe(public)
        known = self.stored.public
        files = tuple(each.stat() for each in list_files(public.source, self.project.folder))
        key = public.source, tuple((each.st_ino, each.st_mtime_ns, each.st_size) for each in files)
        labels, bounds = known.get(key) or summarize_public(public, stored, self.engine.select)
        known[key] = labels, bounds
        return Source(name=name, stored=stored, labels=labels, bounds=bounds)

    @property
    def tables(self) -> dict[str, Table | PublicTable]:
        """All described tables, those of people and public ones."""
        return {**self.project.tables, **self.project.public}


@dataclass(slots=True)
class _Asked:
    """One statement under its charge: asks a step, is told the noisy answer, and asks the next."""

    desk: Desk
    plan: QueryPlan
    question: Question | None
    bind: Callable[..., QueryPlan] | None
    progress: Callable[[str], None]
    entry: ChargeEntry | None = None

    def meet(self, entry: ChargeEntry) -> None:
        """Notes the entry of the charge, and takes the order in which the question was first asked.

        In that order it is stored, and drawn.
        """
        self.entry, record = entry, entry.description.get("question")
        if record is not None and self.question is not None and record != self.question.to_record():
            self.plan = reorder_plan(self.plan, self.question, record)

    def measure(self, charge: Charged) -> NoisyAggregates:
        """Returns what is measured under the charge, step by step."""
        asks = list_asks(self.plan, bind=self.bind)
        asked = next(asks)
        while True:
            try:
                asked = asks.send(charge.ask_groups(asked, engine=self.desk.engine, progress=self.progress))
            except StopIteration as end:
                found: NoisyAggregates = end.value
                return found
