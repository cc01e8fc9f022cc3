"""Statements at the door: planned, charged, answered by the engine, noised, and finished.

Part of the curator: the same order as for a release, for one DP-SELECT at a time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING, NoReturn

import numpy as np
import pyarrow as pa
from sqlglot import exp

from sfumato.accounting import add_costs, admits, max_mu, mu_to_epsilon
from sfumato.curator.door import Bill, Charged, answer_under_charge
from sfumato.curator.released import find_released_size
from sfumato.errors import BudgetExceeded, ChargeKept, RecipeError, SourceError
from sfumato.exact import digest, round_up
from sfumato.schema import refuse_private_file, table_spec
from sfumato.sql import (
    SIZES,
    Answer,
    Description,
    NoisyAggregates,
    Price,
    QueryPlan,
    Source,
    answer_listing,
    bind_parameters,
    bounds_around,
    check_within,
    choose_bounds,
    choose_step,
    count_levels,
    count_stands,
    describe_rows,
    describe_scales,
    expected_errors,
    explain_query,
    find_stands,
    finish_query,
    finish_rows,
    flatten,
    half_width,
    is_probe,
    kinds_of_parameters,
    label_counts,
    least_epsilon,
    list_constants,
    list_labels,
    name_item,
    normalize,
    note_bounds,
    note_counts,
    note_noise,
    note_selection,
    pack_noisy,
    parameter_type,
    plan_public,
    plan_rows,
    prepare_query,
    price_statement,
    probe_rows,
    quantile_ranks,
    quantile_scores,
    read_listing,
    read_statement,
    refuse,
    refuse_deep,
    refuse_large,
    rehearse_query,
    selects_rows,
    stand_in,
    stands_for,
    sum_levels,
    take_out,
    unpack_noisy,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from sfumato.accounting import Budget, BudgetReport, Ledger
    from sfumato.engines import Engine
    from sfumato.engines.execute import TrueAggregates
    from sfumato.noise import NoiseSource
    from sfumato.schema import Project, PublicTable, Table
    from sfumato.sql import Catalog, Listing, Noise, Statement, Within

    _Choose = Callable[..., NDArray[np.int64]]
    _Bounds = Mapping[str, tuple[Fraction, Fraction]]

_FIRST_TRY = Fraction(1, 100)
_LAST_TRY = Fraction(5, 2)


def answer_statement(
    text: str,
    *,
    project: Project,
    engine: Engine,
    find_budget: Callable[[], Budget],
    report: Callable[[], BudgetReport],
    open_ledger: Callable[[], Ledger],
    progress: Callable[[str], None],
    noise: NoiseSource | None = None,
    asked_by: str | None = None,
    at_most: Fraction | None = None,
    epsilon: Fraction | None = None,
    parameters: Sequence[object] = (),
    pace: Callable[[], None] = lambda: None,
    most_values: int | None = None,
) -> Answer:
    """The answer to the statement `text` about the tables of `project`.

    `epsilon` is the price of a plain SELECT of private tables, `parameters` are the values of `$1`, `$2`, ...
    `engine` reads the tables, `find_budget` tells the budget and `report` what is left of it, `open_ledger`
    opens what is charged; `progress` is called with each stage, `noise` is another source of it for audits.
    `asked_by` is who asks, `at_most` the most epsilon that it may cost; `pace` is that of the door. An answer
    of public groups that would have more than `most_values` numbers is refused.
    """
    desk = _Desk(
        project=project,
        engine=engine,
        find_budget=find_budget,
        report=report,
        open_ledger=open_ledger,
        noise=noise,
        asked_by=asked_by,
        at_most=at_most,
        pace=pace,
        most_values=most_values,
    )
    return desk.answer(text, epsilon=epsilon, parameters=parameters, progress=progress)


def describe_statement(
    text: str,
    *,
    project: Project,
    engine: Engine,
    budget: Budget,
    epsilon: Fraction | None = None,
    parameter_types: Sequence[pa.DataType | None] = (),
) -> Description:
    """The columns that the answer to `text` would have; `budget` is that of the project file.

    `epsilon` is the price of a plain SELECT of private tables, `parameter_types` are what is known of the
    types of `$1`, `$2`, ...; the rest is found out. `engine` tells the stored columns of `project`.
    """

    def refuse_ledger() -> NoReturn:
        raise AssertionError("what is only described has no ledger")

    desk = _Desk(
        project=project,
        engine=engine,
        find_budget=lambda: budget,
        report=refuse_ledger,
        open_ledger=refuse_ledger,
    )
    return desk.describe(text, epsilon=epsilon, types=parameter_types)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Desk:
    project: Project
    engine: Engine
    find_budget: Callable[[], Budget]
    report: Callable[[], BudgetReport]
    open_ledger: Callable[[], Ledger]
    noise: NoiseSource | None = None
    asked_by: str | None = None
    at_most: Fraction | None = None
    pace: Callable[[], None] = lambda: None
    most_values: int | None = None

    def answer(
        self,
        text: str,
        *,
        epsilon: Fraction | None,
        parameters: Sequence[object],
        progress: Callable[[str], None],
    ) -> Answer:
        listing = read_listing(text)
        if listing is not None:
            return _explain_free() if listing.explain else Answer(table=self._list(listing), public=True)
        statement = read_statement(text)
        bind_parameters(statement.query, parameters)
        statement = self._prepare(statement, epsilon=epsilon)
        with ExitStack() as held:
            for table in self._named(statement):
                # The whole statement is about the same records.
                held.enter_context(self.engine.snapshot(table))
            return self._answer_held(statement, progress=progress)

    def describe(
        self, text: str, *, epsilon: Fraction | None, types: Sequence[pa.DataType | None]
    ) -> Description:
        listing = read_listing(text)
        if listing is not None:
            table = _explain_free().table if listing.explain else self._list(listing)
            return Description(columns=tuple((field.name, field.type) for field in table.schema))
        statement = read_statement(text)
        stand_in(statement.query, stands_for(types))
        count = count_stands(statement.query)
        statement = self._prepare(statement, epsilon=epsilon)
        schema = self._schema(statement, self._catalog(statement))
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

    def _list(self, asked: Listing) -> pa.Table:
        """The answer to a question about the tables themselves."""

        def find_source(name: str) -> Source:
            try:
                return self._source(name)
            except SourceError:  # the project file has facts of its own
                return Source(name=name, stored={}, table=self.project.tables.get(name))

        def describe(text: str) -> pa.Schema:
            return self.describe(text, epsilon=Fraction(1), types=()).schema

        return answer_listing(asked, self.project, find_source=find_source, describe=describe)

    @refuse_deep
    def _prepare(self, statement: Statement, *, epsilon: Fraction | None) -> Statement:
        """The statement made plain: its price known, constants computed, outer queries merged."""
        if self._named(statement):
            statement = price_statement(statement, epsilon=epsilon)
        normalize(statement.query, numbers=bool(self._named(statement)))
        if statement.mode == "public" and not is_probe(statement.query):
            return statement
        flat = flatten(statement.query, statement.texts)
        if flat.query is not statement.query:
            refuse_large(flat.query)  # names stand for what they are now
        return replace(statement, query=flat.query, texts=flat.texts, around=flat.around)

    def _named(self, statement: Statement) -> list[Table]:
        """The private tables that a statement names."""
        named = {table.name.lower() for table in statement.query.find_all(exp.Table)}
        return [table for name, table in self.project.tables.items() if name.lower() in named]

    def _schema(self, statement: Statement, catalog: Catalog) -> pa.Schema:
        """The schema of the answer, from the plan alone."""
        free = self._answer_free(statement, catalog)
        if statement.explain and (statement.mode == "private" or free is not None):
            return pa.schema([("plan", pa.string())])
        if free is not None:
            return free.schema
        if statement.mode == "public":
            tree, names = plan_public(statement.query, catalog)
            tables = {name: self.project.public[name] for name in names}
            return _rename(self.engine.select(tree, tables, rows=False), statement).schema
        if selects_rows(statement.query):
            return describe_rows(plan_rows(statement, catalog, epsilon=statement.epsilon or Fraction(1)))
        if statement.within is not None and statement.within.relative:
            statement = replace(statement, within=None, epsilon=_FIRST_TRY)
        return rehearse_query(self._plan_statement(statement, catalog))

    def _answer_free(self, statement: Statement, catalog: Catalog) -> pa.Table | None:
        """The answer to a question that public facts answer, None for any other."""
        if not self._named(statement):
            return None
        if any(is_probe(query) for query in (statement.query, *(each.rows for each in statement.around))):
            priced = replace(statement, mode="private", epsilon=statement.epsilon or Fraction(1))
            if selects_rows(statement.query):
                return probe_rows(priced, catalog).empty_table()
            if priced.within is not None and priced.within.relative:
                priced = replace(priced, within=None)
            return rehearse_query(self._plan_statement(priced, catalog)).empty_table()
        constants = list_constants(statement) if statement.plain else None
        return list_labels(statement, catalog) if constants is None else constants

    def _answer_held(self, statement: Statement, *, progress: Callable[[str], None]) -> Answer:
        catalog = self._catalog(statement)
        free = self._answer_free(statement, catalog)
        if free is not None and statement.explain:
            return _explain_free()
        if free is not None:
            return Answer(table=free, public=True)
        if statement.mode == "public":
            tree, names = plan_public(statement.query, catalog)
            table = self.engine.select(tree, {name: self.project.public[name] for name in names})
            return Answer(table=_rename(table, statement), public=True)
        if selects_rows(statement.query):
            return self._select_rows(statement, catalog, progress=progress)
        if statement.within is not None and statement.within.relative:
            return self._approach(statement, statement.within, catalog, progress=progress)
        plan = self._plan_statement(statement, catalog)
        if statement.explain:
            return self._explain((plan,))
        bind = partial(self._plan_statement, statement, catalog)
        noisy, spent = self._answer(plan, bind=bind, progress=progress)
        return _finish(bind(chosen=_read_bounds(plan, noisy)) if noisy.bounds else plan, noisy, spent)

    def _plan_statement(
        self, statement: Statement, catalog: Catalog, *, chosen: _Bounds | None = None
    ) -> QueryPlan:
        """The plan of a statement; with `chosen`, bounds that were chosen under the charge for it."""
        if statement.delta > 0 and self.project.delta == 0:
            raise RecipeError("delta above zero needs [budget] delta above zero in the project file")
        selection_delta = self.find_budget().selection
        plan_at = prepare_query(statement, catalog, selection_delta=selection_delta, chosen=chosen)
        epsilon = statement.epsilon or Fraction(0)
        if statement.within is not None:
            epsilon = least_epsilon(plan_at, statement.within.amount)
        plan = plan_at(epsilon)
        values = plan.rows * (len(plan.noises) + 3 * len(plan.outputs))
        if self.most_values is not None and values > self.most_values:
            raise refuse(
                f"the answer would have {plan.rows:,} groups of {len(plan.outputs)} columns, more than is "
                "sent here; group by fewer columns or longer periods, or ask for fewer columns"
            )
        return plan

    def _approach(
        self, statement: Statement, goal: Within, catalog: Catalog, *, progress: Callable[[str], None]
    ) -> Answer:
        """Answers with doubled epsilon until every value is within the wanted share of itself."""
        epsilon, spent = _FIRST_TRY, Fraction(0)
        last: tuple[QueryPlan, NoisyAggregates] | None = None
        while True:
            plan = self._plan_statement(replace(statement, within=None, epsilon=epsilon), catalog)
            check_within(plan)
            averaged = _is_averaged(plan)
            if statement.explain:
                how = "grows by a quarter" if averaged else "doubles"
                most = "2.5" if averaged else "5.11"
                more = f"\n  WITHIN       begins with this and {how} until reached: at most {most} in all"
                return self._explain((plan,), more=more)
            if averaged:
                return self._refine(statement, goal, catalog, progress=progress)
            try:
                noisy, cost = self._answer(plan, spent=spent, progress=progress)
            except BudgetExceeded:  # of the whole, of a share, or of what this statement may cost
                if last is None:
                    raise
                return _finish(*last, spent)
            spent += cost
            last = plan, noisy
            pairs = zip(plan.noises, noisy.values, strict=True)
            reached = all((half_width(n, 0.05) <= goal.amount * np.abs(v)).all() for n, v in pairs)
            # A value near zero is never within a share of itself; its interval says how near it is.
            if reached or epsilon >= _LAST_TRY:
                return _finish(plan, noisy, spent)
            epsilon *= 2

    def _refine(
        self, statement: Statement, goal: Within, catalog: Catalog, *, progress: Callable[[str], None]
    ) -> Answer:
        """Averages fresh Gaussian answers until every value is within the wanted share of itself.

        Privacy: an answer that is to be as good as one at mu, where one at mu' is there, costs a fresh one at
        sqrt(mu^2 - mu'^2), and nothing is lost by going in steps (docs/proofs/refinement.md).
        """
        level, spent, seen = _FIRST_TRY, Fraction(0), Fraction(0)
        charged = Fraction(0)
        parts: list[tuple[QueryPlan, NoisyAggregates]] = []
        while True:
            wanted = max_mu(level, statement.delta) ** 2 - float(seen)
            step = mu_to_epsilon(math.sqrt(wanted), statement.delta) if wanted > 0 else float(_FIRST_TRY)
            epsilon = round_up(min(step, float(level)), places=6)
            plan = self._plan_statement(replace(statement, within=None, epsilon=epsilon), catalog)
            if not _is_averaged(plan):
                raise RecipeError("WITHIN n% of this statement cannot be refined; state epsilon instead")
            try:
                noisy, cost = self._answer(plan, spent=spent, progress=progress)
            except BudgetExceeded:  # of the whole, of a share, or of what this statement may cost
                if not parts:
                    raise
                return _finish(*_average(parts), spent)
            parts.append((plan, noisy))
            price = sum((each.mu_squared or Fraction(0) for each in plan.costs), Fraction(0))
            seen += price
            charged += price if cost else 0
            if charged:
                spent = round_up(mu_to_epsilon(math.sqrt(charged), statement.delta), places=6)
            combined, values = _average(parts)
            pairs = zip(combined.noises, values.values, strict=True)
            reached = all((half_width(n, 0.05) <= goal.amount * np.abs(v)).all() for n, v in pairs)
            if reached or level >= _LAST_TRY:
                return _finish(combined, values, spent)
            level = min(level * 5 / 4, _LAST_TRY)

    def _select_rows(
        self, statement: Statement, catalog: Catalog, *, progress: Callable[[str], None]
    ) -> Answer:
        if statement.epsilon is None:
            raise RecipeError("a row selection needs epsilon: DP-SELECT 1.0 columns FROM table")
        plan = plan_rows(statement, catalog, epsilon=statement.epsilon)
        if statement.explain:
            return self._explain(plan.parts)
        report = self.report()
        sums = report.sums
        for part in plan.parts:  # each is a charge of its own
            sums = add_costs(sums, part.costs)
        if not admits(report.budget, sums):
            raise BudgetExceeded(
                f"the rows need epsilon {statement.epsilon}, and {report.left} is left; nothing was spent",
                left=report.left,
            )
        most = self.at_most
        if most is not None and statement.epsilon > most and not all(map(self._is_stored, plan.parts)):
            raise BudgetExceeded(
                f"the rows need epsilon {statement.epsilon}, and at most {most} was to be spent; "
                "nothing was spent",
                left=most,
            )
        answers = [self._answer(part, progress=progress) for part in plan.parts]
        spent = sum((cost for _, cost in answers), Fraction(0))
        table = finish_rows(plan, tuple(noisy for noisy, _ in answers))
        notes: tuple[str, ...] = ()
        if plan.blanks:
            notes = (
                f"nothing is told of {', '.join(plan.blanks)}: no public domain, or names of individuals",
            )
        return Answer(table=table, spent=spent, repeated=spent == 0, synthetic=True, notes=notes)

    def _answer(
        self,
        plan: QueryPlan,
        *,
        spent: Fraction = Fraction(0),
        bind: Callable[..., QueryPlan] | None = None,
        progress: Callable[[str], None],
    ) -> tuple[NoisyAggregates, Fraction]:
        """The noisy aggregates of `plan`, and the epsilon that was charged for them now.

        `spent` is what the statement has cost so far. `bind` gives the plan with bounds that were chosen, for
        one that has choices.
        """

        def measure(charge: Charged, plan: QueryPlan) -> NoisyAggregates:
            return charge.measure(
                lambda: self.engine.aggregate(plan, self._tables, progress=progress),
                lambda exact, noise: _add_noise(plan, exact, noise),
            )

        def measure_all(charge: Charged) -> NoisyAggregates:
            if not plan.choices:
                return measure(charge, plan)
            assert bind is not None
            noisy = measure(charge, plan.choice_plan)
            pairs = zip(noisy.values, plan.choices, strict=True)
            bounds = tuple(choose_bounds(values, noise) for values, noise in pairs)
            bound = bind(chosen=_read_bounds(plan, NoisyAggregates(values=(), bounds=bounds)))
            if bound.costs != plan.costs:
                raise ChargeKept("the chosen bounds would cost more than was charged. The charge is kept")
            return replace(measure(charge, replace(bound, choices=())), bounds=bounds)

        def prepare() -> None:
            self.engine.bind(plan, self._tables)
            if plan.choices:
                self.engine.bind(plan.choice_plan, self._tables)

        noisy, charged = answer_under_charge(
            Bill(
                digest=self._digest(plan),
                description=plan.to_record(),
                tables=", ".join(plan.relation.tables),
                costs=plan.costs,
                version=lambda secret: self._version(plan, secret),
                units=self._units(plan),
                asked_by=self.asked_by,
                at_most=None if self.at_most is None else self.at_most - spent,
            ),
            ledger=self.open_ledger(),
            noise=self.noise,
            prepare=prepare,
            measure=measure_all,
            pack=pack_noisy,
            unpack=lambda stored: unpack_noisy(stored, plan),
            progress=progress,
            pace=self.pace,
        )
        return noisy, plan.epsilon if charged else Fraction(0)

    def _explain(self, plans: tuple[QueryPlan, ...], *, more: str = "") -> Answer:
        for plan in plans:
            self.engine.bind(plan, self._tables)
            if plan.choices:
                self.engine.bind(plan.choice_plan, self._tables)
        report = self.report()
        costs = tuple(cost for plan in plans for cost in plan.costs)
        admitted = admits(report.budget, report.sums, costs)
        likely = self._find_size(plans[0], report)
        errors = [expected_errors(plan, sizes=_list_sizes(plan, likely)) for plan in plans]
        text = "\n".join(
            explain_query(
                plan,
                errors={name: each.describe() for name, each in found.items()},
                left=report.left,
                admitted=admitted,
            )
            for plan, found in zip(plans, errors, strict=True)
        )
        notes = tuple(note for plan in plans for note in note_noise(plan, likely))
        text += more + "".join(f"\n  note         {note}" for note in notes)
        table = pa.table({"plan": text.splitlines()})
        price = Price(
            epsilon=sum((plan.epsilon for plan in plans), Fraction(0)),
            delta=sum((plan.delta for plan in plans), Fraction(0)),
            errors={name: each.width for name, each in errors[0].items()},
            expected=errors[0],
            groups=None if plans[0].selection is not None else plans[0].rows,
            admitted=admitted,
            stored=bool(report.entries) and all(map(self._is_stored, plans)),
        )
        return Answer(table=table, explanation=text, price=price, notes=notes)

    def _find_size(self, plan: QueryPlan, report: BudgetReport) -> int | None:
        """About how many records the one table of a plan has, by what was released of it before."""
        tables = set(plan.relation.tables)
        if len(plan.relation.tables) != 1 or not report.entries:
            return None
        return find_released_size(report, self.open_ledger(), tables.pop())

    def _is_stored(self, plan: QueryPlan) -> bool:
        ledger = self.open_ledger()
        version = self._version(plan, ledger.secret)
        return ledger.find_answer(plan_digest=self._digest(plan), table_version=version) is not None

    def _digest(self, plan: QueryPlan) -> str:
        """The digest of a plan and of the described tables it reads: what an answer is the answer to."""
        described = {
            name: table_spec(table, tuple(table.columns))
            for name, table in self.project.tables.items()
            if name in plan.relation.tables
        }
        return digest({"plan": plan.to_record(), "tables": described})

    def _units(self, plan: QueryPlan) -> dict[str, str]:
        """The unit of every private table that a plan reads."""
        private = {name: self.project.tables.get(name) for name in plan.relation.tables}
        return {name: table.unit.column or "row" for name, table in private.items() if table is not None}

    def _version(self, plan: QueryPlan, secret: bytes) -> str:
        names = sorted(set(plan.relation.tables))
        return digest([self.engine.version(self._tables[name], secret=secret) for name in names])

    def _catalog(self, statement: Statement) -> Catalog:
        """The tables of the project; of those that the statement names, also their stored columns."""
        named = {table.name.lower() for table in statement.query.find_all(exp.Table)}
        catalog: Catalog = {}
        for name in self._tables:
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
        return Source(name=name, stored=self.engine.describe(public), labels=self.engine.list_labels(public))

    @property
    def _tables(self) -> dict[str, Table | PublicTable]:
        return {**self.project.tables, **self.project.public}


def _list_sizes(plan: QueryPlan, likely: int | None) -> tuple[int, ...]:
    """The sizes of groups for which errors are told: usual ones, and the likely one if it is known."""
    known = () if likely is None or plan.selection is not None else (max(1, round(likely / plan.groups)),)
    return tuple(sorted({*SIZES, *known}))


def _explain_free() -> Answer:
    text = "public facts answer this: no record is read, and nothing is spent"
    return Answer(table=pa.table({"plan": [text]}), explanation=text, public=True)


def _is_averaged(plan: QueryPlan) -> bool:
    """Whether answers to `plan` can be averaged: all noise is Gaussian, and the groups are public."""
    return plan.selection is None and all(noise.kind == "gaussian" for noise in plan.noises)


def _average(parts: list[tuple[QueryPlan, NoisyAggregates]]) -> tuple[QueryPlan, NoisyAggregates]:
    """The mean of several answers by their precision, and a plan that states its noise."""
    noises, values = [], []
    for place, noise in enumerate(parts[-1][0].noises):
        precisions = [float(plan.noises[place].scale) ** -2 for plan, _ in parts]
        total = sum(precisions)
        mean = sum(
            (weight / total) * noisy.values[place]
            for weight, (_, noisy) in zip(precisions, parts, strict=True)
        )
        values.append(np.rint(mean).astype(np.int64))
        # Rounding to whole units adds at most a twelfth of one, squared, and nothing to a single answer.
        spread = math.sqrt(1 / total + (1 / 12 if len(parts) > 1 else 0))
        noises.append(replace(noise, scale=round_up(spread, places=6)))
    return replace(parts[-1][0], noises=tuple(noises)), NoisyAggregates(values=tuple(values))


def _add_noise(
    plan: QueryPlan, true_aggregates: TrueAggregates, noise_source: NoiseSource
) -> NoisyAggregates:
    """Noise on every measure of the groups that are answered. The caller has charged `plan.costs`."""
    add, choose = noise_source.add_noise, noise_source.exponential_choice
    true_values, keys = true_aggregates.true_values, None
    if plan.selection is not None and true_aggregates.true_individuals is not None:
        people = add(true_aggregates.true_individuals, kind="laplace", scale=plan.selection.scale)
        kept = np.flatnonzero(people >= plan.selection.threshold)
        true_keys = true_aggregates.true_keys or ()
        kept = np.array(
            sorted(kept.tolist(), key=lambda row: [str(part) for part in true_keys[row]]), np.int64
        )
        keys = tuple(true_keys[row] for row in kept)
        true_values = tuple(values[kept] for values in true_values)
    noisy = []
    for noise, values in zip(plan.noises, true_values, strict=True):
        if noise.kind != "exponential":
            levels = _list_levels(values, noise, plan)
            drawn = [add(each, kind=noise.kind, scale=noise.scale) for each in levels]
            if noise.measure.parts:
                noisy.append(np.hstack(drawn).T)
            else:
                noisy.append(drawn[0] if len(drawn) == 1 else np.concatenate(drawn))
        elif noise.measure.labels is not None:
            noisy.append(_choose_labels(label_counts(values, noise), noise, choose))
        else:
            steps: list[NDArray[np.int64]] = []
            for ranks in quantile_ranks(noise, plan):
                answers = steps[0] if steps else None
                places = choose(quantile_scores(values, noise, ranks, answers), rate=ranks.rate)
                steps.append(choose_step(places, ranks, answers))
            noisy.append(np.stack(steps))
    return NoisyAggregates(values=tuple(noisy), keys=keys)


def _list_levels(true_values: NDArray[np.int64], noise: Noise, plan: QueryPlan) -> list[NDArray[np.int64]]:
    """The exact vectors that noise is added to for a measure: one for each of its costs."""
    if noise.measure.parts:
        return count_levels(true_values)
    if noise.measure.is_histogram:
        return [label_counts(true_values, noise)]
    return [true_values] if plan.sets is None else sum_levels(true_values, plan.sets)


def _read_bounds(plan: QueryPlan, noisy: NoisyAggregates) -> _Bounds:
    """The bounds that were chosen, by the text of their operand."""
    pairs = zip(plan.unbounded, noisy.bounds, strict=True)
    return {operand.sql(dialect="duckdb"): bounds_around(*chosen) for operand, chosen in pairs}


def _choose_labels(true_counts: NDArray[np.int64], noise: Noise, choose: _Choose) -> NDArray[np.int64]:
    """For every group the codes of the chosen labels: each is taken out before the next is chosen."""
    groups = np.arange(len(true_counts))
    codes = np.broadcast_to(np.arange(true_counts.shape[1]), true_counts.shape)
    chosen = []
    for _ in noise.costs:
        places = choose(true_counts, rate=1 / noise.scale)
        chosen.append(codes[groups, places])
        true_counts, codes = take_out(true_counts, places), take_out(codes, places)
    return np.stack(chosen)


def _rename(table: pa.Table, statement: Statement) -> pa.Table:
    """The table with its columns named as they are written, if none stands for several."""
    items = statement.query.expressions
    if len(items) != table.num_columns or any(isinstance(item, exp.Star) for item in items):
        return table
    pairs = zip(items, statement.texts, strict=True)
    names = [name_item(item, text, plain=True) for item, text in pairs]
    return table.rename_columns(names)


def _finish(plan: QueryPlan, noisy: NoisyAggregates, spent: Fraction) -> Answer:
    return Answer(
        table=finish_query(plan, noisy),
        spent=spent,
        delta=plan.delta if spent else Fraction(0),
        repeated=spent == 0,
        scales=describe_scales(plan),
        notes=(*note_bounds(plan), *note_selection(plan), *note_counts(plan, noisy)),
    )
