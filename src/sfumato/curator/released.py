"""What releases of the same ledger know of a statement: marginals that recipes measured, and their models.

Part of the curator. Only noisy answers and public facts are looked at here, so it costs nothing. The argument
is in docs/proofs/reuse.md.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from sqlglot import exp

from sfumato.core.errors import SfumatoError
from sfumato.core.exact import parse_delta, parse_exact
from sfumato.core.facts.table import UNIT
from sfumato.core.questions.counts import CappedMarginal, ClippedMarginal, IndividualCounts, Marginal
from sfumato.core.questions.measurement import Measurement, Request, ask_cost, request_grid
from sfumato.inference.files import unpack_models
from sfumato.recipes.base import parse_epsilons
from sfumato.recipes.files import parse_record
from sfumato.release.ask import ReleasedModel, can_ask
from sfumato.release.folder import PackedAnswers
from sfumato.release.release import replay_answers
from sfumato.sql.cells import read_axis
from sfumato.sql.finish import Answer
from sfumato.sql.plan import NoisyAggregates
from sfumato.sql.question import read_question
from sfumato.sql.reuse import Earlier
from sfumato.sql.statement import read_statement

if TYPE_CHECKING:
    from sfumato.core.facts.project import Project
    from sfumato.core.facts.table import Table
    from sfumato.core.ledger.chain import ChargeEntry
    from sfumato.core.ledger.ledger import Ledger
    from sfumato.recipes.base import Plan
    from sfumato.sql.plan import QueryPlan
    from sfumato.sql.question import Question
    from sfumato.sql.statement import Statement

_MOST_CELLS = 2**20
_MODELS = ("adaptive", "adaptive-grid", "tree")
_MODEL = "model.parquet"
_EVIDENCE = (Marginal, ClippedMarginal)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Released:
    """An answered charge of a recipe, with its plan made again; what it measured is read when it is needed.

    `make` plans a statement about its table at a price, `tables` is the record of that table. `columns` are
    those that mean in the plan what they mean in the project: others have bins that the recipe gave them.
    """

    entry: ChargeEntry
    plan: Plan
    ledger: Ledger
    make: Callable[[Statement], QueryPlan]
    tables: object
    columns: frozenset[str]
    _kept: dict[str, object] = field(default_factory=dict, repr=False)

    @property
    def name(self) -> str:
        """How messages call it."""
        return f"entry {self.entry.sequence} ({self.plan.recipe.kind})"

    @property
    def is_known(self) -> bool:
        """Whether all that it asked is known without following the recipe again."""
        return self.plan.allowance is None

    def has_columns(self, names: set[str]) -> bool:
        """Whether it is about the columns `names`, in lower case."""
        return names <= self.columns

    def list_measured(self, names: set[str]) -> list[Earlier]:
        """What it measured of whole marginals with the columns `names`, as earlier answers."""
        requests = self.plan.requests if self.is_known else tuple(each.request for each in self._measured)
        fitting = [
            each for each in requests if names <= self.columns & {name.lower() for name in each.columns}
        ]
        found = [self._keep(f"request {each.name}", partial(self._read, each)) for each in fitting]
        return [each for each in found if isinstance(each, Earlier)]

    def replay(self, progress: Callable[[str], None]) -> bytes | None:
        """Follows the recipe again from its stored answers, once; gives the model that it made of them."""
        if "model" not in self._kept:
            progress(f"deriving {self.name} again from its stored answers")
            answers, product = replay_answers(self.plan, self._packed())
            self._kept["measured"] = [each for each in answers if isinstance(each, Measurement)]
            self._kept["model"] = product.files.get(_MODEL)
        return self._kept["model"]  # type: ignore[return-value]

    def can_ask(self, statement: Statement) -> bool:
        """Whether it made a model that answers such a statement, by public facts."""
        own = {name.lower() for name in self.plan.columns} - self.columns
        return (
            self.plan.recipe.kind in _MODELS
            and not statement.around
            and not any(each.name.lower() in own for each in statement.query.find_all(exp.Column))
            and _means_the_same(statement.query, self.plan.table)
            and can_ask(replace(statement, mode="public", explain=False), self.plan.table, self.plan.columns)
        )

    def ask_model(self, statement: Statement, progress: Callable[[str], None]) -> Answer | None:
        """What its model expects of a statement, None if it does not answer that."""
        packed = self.replay(progress) if self.can_ask(statement) else None
        if packed is None:
            return None
        models = unpack_models(packed)
        key = max(models, key=lambda each: parse_exact(each, name="epsilon"))
        whole = [each.request for each in self._measured if isinstance(each.request.counted, _EVIDENCE)]
        model = ReleasedModel(
            table=self.plan.table,
            model=models[key],
            epsilon=key,
            # What was measured for another epsilon is no evidence of this model.
            requests=tuple(whole) if len(self.plan.epsilons) == 1 else (),
            queries={each.name: each.queries.to_record() for each in whole if each.queries is not None},
            packed=self._packed(),
        )
        found = model.answer(replace(statement, mode="public", explain=False))
        note = (
            f"an estimate of the model of {self.name} at epsilon {key}, whose error is not known; an "
            "interval beside it is that of noisy counts of the same records; nothing was spent"
        )
        partial = [name for name in self.plan.columns if not self._is_total(name)]
        left = f"not in it are records outside of the domain of {', '.join(partial)}"
        return replace(
            found,
            public=False,
            repeated=True,
            notes=(note, *((left,) if partial else ()), *found.notes),
            entries=(self.entry.sequence,),
        )

    @property
    def _measured(self) -> Sequence[Measurement]:
        if "measured" not in self._kept and self.is_known:
            answers = PackedAnswers((self._packed(),), self.plan.table).take(self.plan.requests)
            self._kept["measured"] = [each for each in answers if isinstance(each, Measurement)]
        return self._kept.get("measured", ())  # type: ignore[return-value]

    def _packed(self) -> bytes:
        digest, version = self.entry.plan_digest, self.entry.table_version
        found = self.ledger.find_answer(plan_digest=digest, table_version=version)
        assert found is not None, "an answer that was there is gone"
        return found[1]

    def _keep(self, key: str, make: Callable[[], object]) -> object:
        if key not in self._kept:
            self._kept[key] = make()
        return self._kept[key]

    def _read(self, request: Request) -> Earlier | None:
        """A measured marginal as the answer to the statement that asks for it; None if there is none."""
        table, counted = self.plan.table, request.counted
        if request.part is not None or not _is_whole(request) or table.cells(request.columns) > _MOST_CELLS:
            return None
        heads = counted.tally == "individuals"
        found = self._plan_marginal(request.columns, heads=heads)
        if found is None:
            return None
        plan, question = found
        grid = request_grid(table, request)
        repeats = counted.size(table) // plan.groups if heads else 1
        if heads and repeats * plan.groups != counted.size(table):
            return None  # of some cells alone
        cost = ask_cost(table, request)
        cost = replace(cost, scale=cost.scale / grid, sensitivity=cost.sensitivity / grid)
        noise = replace(plan.added[0], kind=request.noise, scale=cost.scale, costs=(cost,))
        # No statement of its own keeps the same records of who has too many.
        question = replace(question, choice=f"{self.name} {request.name}")

        def load() -> NoisyAggregates:
            (found,) = (each for each in self._measured if each.request.name == request.name)
            values: NDArray[np.int64] = found.noisy_values
            return NoisyAggregates(values=(values.reshape(-1, repeats).sum(axis=1),))

        return Earlier(
            entry=self.entry.sequence,
            plan=replace(plan, noises=(noise,), max_groups=plan.unit.max_records),
            question=question,
            load=load,
            grid=grid,
            repeats=repeats,
            rule=self._describe_rules(request),
        )

    def _plan_marginal(self, columns: tuple[str, ...], *, heads: bool) -> tuple[QueryPlan, Question] | None:
        """The plan of a statement whose groups are the cells of `columns`, and what it asks."""
        table = self.plan.table
        heads = heads and table.unit.column is not None
        counted = f"COUNT(DISTINCT {_quote(table.unit.column or '')})" if heads else "COUNT(*)"
        listed = ", ".join(map(_quote, columns))
        text = f"SELECT {listed}, {counted} FROM {_quote(table.name)} GROUP BY {listed}"
        try:
            plan = self.make(replace(read_statement(text), mode="private", epsilon=Fraction(1)))
        except SfumatoError:
            return None
        sizes = [table.column(name).size for name in columns]
        known = plan.selection is None and plan.tally is None and not plan.tallies and len(plan.noises) == 1
        if not known or [len(key.labels or ()) for key in plan.keys] != sizes:
            return None
        return plan, read_question(plan, self.tables)

    def _is_total(self, name: str) -> bool:
        """Whether every record has a code in a column."""

        def look() -> bool:
            found = self._plan_marginal((name,), heads=False)
            if found is None:
                return False
            plan, question = found
            return read_axis(plan.keys[0], plan.relation, question.aliases).is_total

        return bool(self._keep(f"column {name}", look))

    def _describe_rules(self, request: Request) -> str:
        """What is counted otherwise than by a statement: the records, or the bounds of individuals."""
        # Records without a code in any column of the plan are left out, in columns not asked about too.
        others = [each for each in self.plan.columns if each not in request.columns]
        partial = ", ".join(each for each in others if not self._is_total(each))
        rules = [f"leaves out records outside of the domain of {partial}"] if partial else []
        rules += filter(None, [self._describe_bound(request)])
        return f"{self.name} {' and '.join(rules)}" if rules else ""

    def _describe_bound(self, request: Request) -> str:
        """How individuals are held to a bound, where that is otherwise than by a statement."""
        table = self.plan.table
        match request.counted:
            case ClippedMarginal(norm=norm):
                return f"scales the counts of an individual down to a norm of {float(norm):g}"
            case _ if table.unit.column is None:
                return ""
            case CappedMarginal(max_records=most):
                return f"holds everybody to {most} records"
            case IndividualCounts(max_cells=most):
                return f"counts an individual in at most {most} groups, by all of its records"
        if table.bounding == "weight":
            most = table.unit.max_records
            return f"weighs the records of who has more than {most}, and leaves none out"
        return ""


def open_released(
    entry: ChargeEntry,
    *,
    project: Project,
    ledger: Ledger,
    make: Callable[[Statement], QueryPlan],
    tables: object,
) -> Released | None:
    """The release that a charge was for; None if planning it again does not give what was charged."""
    record = entry.description
    try:
        recipe = parse_record(record["recipe"])
        table = project.table(recipe.table)
        plan = recipe.plan(
            table, epsilons=parse_epsilons(record["epsilons"]), delta=parse_delta(record["delta"])
        )
    except (SfumatoError, LookupError, TypeError, ValueError, ArithmeticError):
        return None
    same = {name: plan.table.columns.get(name) == column for name, column in table.columns.items()}
    given = {name: table.columns[name] for name, is_same in same.items() if not is_same}
    # Bins that a recipe gives to a column without a domain are its own; a domain is never another one.
    kept = replace(plan.table, columns={**plan.table.columns, **given}) == table
    regrouped = any(column.domain is not None for column in given.values())
    if entry.plan_digest != plan.asked_digest or plan.stepwise or regrouped or not kept:
        return None
    columns = frozenset(name.lower() for name in plan.columns if name not in given)
    return Released(entry=entry, plan=plan, ledger=ledger, make=make, tables=tables, columns=columns)


def name_columns_asked(plan: QueryPlan) -> set[str] | None:
    """The names of all columns that a plan looks at, in lower case; None if it counts something else."""
    if plan.relation.joined or any(
        each.measure.statistic not in ("records", "present", "sum", "individuals") for each in plan.noises
    ):
        return None
    trees = [plan.relation.tree, *(key.node for key in plan.keys)]
    trees += [each.measure.tree for each in plan.noises if each.measure.tree is not None]
    return {column.name.lower() for tree in trees for column in tree.find_all(exp.Column)} - {UNIT}


def _is_whole(request: Request) -> bool:
    """Whether a request is for every cell of its columns."""
    counted = request.counted
    if isinstance(counted, IndividualCounts):
        if counted.together:
            return False
        repeats = int(np.count_nonzero(counted.cells == 0))
        # Who is in a cell is counted once there if one of the questions is about a single record.
        firsts = counted.times[:: max(repeats, 1)]
        cells = counted.rows // max(repeats, 1)
        return bool(
            np.array_equal(counted.cells, np.repeat(np.arange(cells), repeats)) and (firsts == 1).all()
        )
    return counted.tally in ("cells", "capped", "clipped") and counted.queries is None


def _means_the_same(query: exp.Select, table: Table) -> bool:
    """Whether conditions mean the same for a model's labels as for the values of records.

    A model has labels for other and missing values, which are neither equal to what is listed nor NULL.
    """
    where = query.args.get("where")
    for column in () if where is None else where.find_all(exp.Column):
        described = next(
            (table.columns[name] for name in table.columns if name.lower() == column.name.lower()), None
        )
        if described is not None and not described.extras:
            continue
        test = column.parent
        listed = isinstance(test, exp.EQ | exp.In) and test.find_ancestor(exp.Not) is None
        values = {str(each.this) for each in test.find_all(exp.Literal)} if test is not None else set()
        if described is None or not listed or values & set(described.extras):
            return False
    return True


def _quote(name: str) -> str:
    return exp.to_identifier(name, quoted=True).sql(dialect="duckdb")
