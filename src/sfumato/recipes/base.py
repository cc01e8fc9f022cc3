"""What a recipe is: a plan made of public facts, then questions and what is made of their noisy answers.

`Recipe` is what the recipes of this room inherit from, `Plan` what a recipe makes of a described table, and
`follow_recipe` asks its questions within the plan. Below are helpers for options and for released columns.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, fields
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, NoReturn, TypeGuard, TypeVar

import numpy as np
import pyarrow as pa

from sfumato.core.cost.cost import Cost
from sfumato.core.cost.parallel import Allowance
from sfumato.core.engine.arrays import to_arrow
from sfumato.core.errors import RecipeError
from sfumato.core.exact import digest, format_exact, parse_positive
from sfumato.core.facts.column import Column
from sfumato.core.facts.domain import Label, Tuples
from sfumato.core.facts.part import Part
from sfumato.core.facts.table import Table, table_spec
from sfumato.core.questions.choices import Choice
from sfumato.core.questions.measurement import (
    Answer,
    Ask,
    Request,
    ask_cost,
    check_asks,
    list_costs,
    request_grid,
    request_size,
)
from sfumato.core.questions.residuals import Residuals
from sfumato.tables.arrays import label_array

_PARAGRAPHS = ("idea", "preprocessing", "bounding", "sensitivity", "privatisation", "postprocessing")

EXTRA_FILES = ("model.json", "model.parquet", "parents.csv", "parents.parquet")
MOST_ANSWERS = 2**27

# How a table is read, and from where: what may change from one period of a series to the next.
_READING = ("source", "snapshot", "encoding", "quoting", "text_limit")

FILE_KEYS = ("public", "guide", "asked", "tree")
"""The options of recipes that may name a file, which is read as public."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """The noise to expect in numbers of a release: its standard deviation, and what holds 95 % of errors.

    `cells` share the records; None of what is no count. Of several alike, such as all pairs of columns, the
    `group` is named.
    """

    name: str
    cells: int | None
    deviation: float
    half_width: float
    group: str = ""

    def to_record(self) -> dict[str, Any]:
        """Return the noise as a plain record."""
        return {
            "name": self.name,
            "cells": self.cells,
            "typical_error": self.deviation,
            "expected_error_95": self.half_width,
            **({"group": self.group} if self.group else {}),
        }


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Product:
    """What a recipe makes of its answers: the table, and what else belongs into the release.

    `files` are further files of the release, of EXTRA_FILES. `varied` names the whole-number columns of
    the table whose values rarely repeat. `facts` are public facts about the post-processing, plain
    enough for JSON, which the certificate tells.
    """

    table: pa.Table
    files: Mapping[str, bytes] = field(default_factory=dict)
    varied: tuple[str, ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        unknown = sorted(set(self.files) - set(EXTRA_FILES))
        if unknown:
            raise RecipeError(
                f"a release has no file {unknown[0]!r}; a recipe may add {', '.join(EXTRA_FILES)}"
            )


T = TypeVar("T")

Progress = Callable[[str], None]
"""Is told, now and then, what is being done."""

# What a recipe is sent for every batch it asks: a Measurement for a Request, a Chosen for a choice.
Asking = Generator[tuple[Ask, ...], tuple[Any, ...], T]
Conversation = Asking[Product]


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """An algorithm that asks for measurements and makes a release of them.

    Its fields are the keys of its recipe file, checked when they are given.
    """

    kind: ClassVar[str]
    """The recipe's name in a recipe file."""
    record_keys: ClassVar[tuple[str, ...]] = ()
    """The order in which certificates state the options, where it is not that of the fields."""
    optional: ClassVar[tuple[str, ...]] = ()
    """The options that certificates state only where they differ from the default."""
    former: ClassVar[Mapping[str, Any]] = {}
    """What options that certificates did not state at first meant then; these values are still not stated."""
    drawn_by: ClassVar[tuple[str, ...]] = ()
    """The options that decide only what is drawn from the noisy answers, and nothing that is asked."""
    own_bound: ClassVar[str] = ""
    """The option that bounds what an individual adds where it is given, whatever max_records says."""
    unforeseen: ClassVar[str] = ""
    """Why its noise cannot be told before it is paid, if it cannot."""
    texts: ClassVar[Mapping[str, str]] = {}
    """What its write-up says, paragraph by paragraph, where it does not stand in writeups.toml."""

    table: str

    def to_record(self) -> dict[str, Any]:
        """Return the recipe as a plain record that reads back as the same recipe."""
        usual = {each.name: each.default for each in fields(self)}
        keys = self.record_keys or tuple(usual)
        given = {key: getattr(self, key) for key in keys}
        kept = [key for key in keys if key not in self.optional or given[key] != usual[key]]
        kept = [key for key in kept if key not in self.former or given[key] != self.former[key]]
        return {"recipe": self.kind, **{key: to_plain(given[key]) for key in kept}}

    def plan(self, table: Table, *, epsilons: tuple[Fraction, ...], delta: Fraction) -> Plan:
        """Return what will be asked of `table`, from public facts alone."""
        raise NotImplementedError

    def run(self, plan: Plan, *, progress: Progress) -> Conversation:
        """Return the product: a pure function of public facts and of the answers to what it asks on the way.

        Every batch of questions it yields is answered by a tuple in the same order: a Measurement for
        a Request, a Chosen for a choice. Names are unique within a run.
        """
        raise NotImplementedError

    def expect(self, plan: Plan, records: int | None) -> Sequence[Expected]:
        """Return the noise to expect by public facts and about so many `records`; none if `unforeseen`.

        What a series adds up of noisy sums has another error than its request.
        """
        return () if plan.series else [expect_noise(plan.table, each) for each in plan.requests]

    def tell(self, plan: Plan) -> dict[str, Any]:
        """Return the facts that the write-up names, beside the name of the table."""
        raise NotImplementedError

    def describe(self, plan: Plan) -> dict[str, str]:
        """Return the paragraphs of the privacy write-up that are this recipe's own."""
        texts = self.texts or _read_writeups()[self.kind]
        facts = {"table": plan.table.name, **self.tell(plan)}
        return {key: texts[key].format(**facts).strip() for key in _PARAGRAPHS if key in texts}

    def part(self, name: str, **facts: object) -> str:
        """Return a part of this recipe's write-up that not every release has, with these facts."""
        return write_part(self.kind, name, **facts)

    def refuse_no_delta(self, delta: Fraction) -> None:
        """Raises an error if there is no delta for Gaussian noise."""
        if delta == 0:
            raise RecipeError(
                f"{self.kind} adds Gaussian noise, which needs delta above zero: set delta in the recipe, "
                "and [budget] delta in the project file"
            )

    def refuse_clash(self, names: list[str]) -> None:
        """Raises an error if two released columns would have one name."""
        clash = next((name for name in names if names.count(name) > 1), None)
        if clash is not None:
            raise RecipeError(
                f"{self.kind}: two released columns would be named {clash!r}; describe one by another name"
            )

    def refuse_cells(self, table: Table, columns: tuple[str, ...], most: int, *, advice: str) -> None:
        """Raises an error if a marginal has more cells than the recipe can work on."""
        cells = table.cells(columns)
        if cells > most:
            raise RecipeError(
                f"{self.kind}: {' x '.join(columns)} has {cells:,} cells, more than {most:,}; {advice}"
            )

    def _keep_columns(self, *keys: str, empty: bool = False) -> None:
        """Keeps options that list columns, if they are given; lists may be `empty`."""
        usual = {each.name: each.default for each in fields(self)}
        for key in keys:
            value = getattr(self, key)
            if value is None and usual[key] is None:
                continue
            if not (is_column_list(value) or (empty and value in ([], ()))):
                raise RecipeError(f"{self.kind}: {key} must list columns of the table, none twice")
            self._keep(**{key: tuple(value)})

    def _keep(self, **options: object) -> None:
        """Keeps checked options in place of what was given."""
        for key, value in options.items():
            object.__setattr__(self, key, value)


def refuse_unbounded(recipe: Recipe, table: Table) -> None:
    """Raises an error if `table` states no bound on records and the recipe has none of its own."""
    own = getattr(recipe, "own_bound", "")
    if table.unit.private_records and not getattr(recipe, own, None):
        unless = f", unless {own} is given" if own else ""
        raise RecipeError(
            f'{recipe.kind}: table {table.name!r} has max_records = "private", and this recipe chooses no '
            f"bound on the records of an individual{unless}; recipes capped-counts and map do, and so does "
            "SQL: use one of them, or declare a number, such as max_records = 5"
        )


@cache
def _read_writeups() -> dict[str, dict[str, str]]:
    return tomllib.loads(Path(__file__).with_name("writeups.toml").read_text(encoding="utf-8"))


def write_part(section: str, name: str, **facts: object) -> str:
    """Return a part of write-ups with these facts in place."""
    return _read_writeups()[section][name].format(**facts)


def cite_claims(*names: str) -> str:
    """Return the numbers of the claims that recipes, questions and noise of these names rest on.

    >>> cite_claims("cell-counts", "laplace")
    'C44, C6, C7 and C20'
    """
    known = _read_writeups()["claims"]
    return ", ".join(dict.fromkeys(known[name] for name in names if name in known))


@dataclass(frozen=True, slots=True)
class Plan:
    """A recipe applied to a described table: what may be asked and its cost, before a record is read.

    A recipe that knows all its requests lists them. One that asks by what it has seen lists what it
    knows, and states the costs to be charged up front as its `allowance`; `counted` are then all
    marginals whose counts it may ask about, `clipped` those it may ask about with a norm, or a bound on
    records, of its own only. With `parts`, what is charged is what each of these disjoint parts of the people
    may be asked for, beside what is asked of everybody. If it is `stepwise`, the allowance is the most that
    may be spent, and every batch is charged by itself before it is answered. If it is a `series`, its one
    request is answered period by period, under one charge for all periods to come.
    """

    recipe: Recipe
    table: Table
    epsilons: tuple[Fraction, ...]
    delta: Fraction
    _: KW_ONLY
    requests: tuple[Request, ...] = ()
    allowance: tuple[Cost, ...] | None = None
    counted: tuple[tuple[str, ...], ...] | None = None
    clipped: tuple[tuple[str, ...], ...] = ()
    parts: tuple[Part, ...] = ()
    stepwise: bool = False
    series: bool = False

    def __post_init__(self) -> None:
        check_asks(self.table, (), parts=self.parts)

    @property
    def marginals(self) -> tuple[tuple[str, ...], ...]:
        """Return every combination of columns that is counted, once."""
        if self.counted is not None:
            return self.counted
        dense = (request for request in self.requests if request.counted.tally == "cells")
        return tuple(dict.fromkeys(request.columns for request in dense))

    @property
    def occupied(self) -> tuple[tuple[str, ...], ...]:
        """Return every combination of columns that is counted where records are, once."""
        return tuple(dict.fromkeys(each.columns for each in self.requests if each.threshold is not None))

    @property
    def columns(self) -> tuple[str, ...]:
        """Return every column that may be asked for, once."""
        asked = (*self.marginals, *self.clipped, *(request.columns for request in self.requests))
        return tuple(dict.fromkeys(name for columns in asked for name in columns))

    @property
    def costs(self) -> tuple[Cost, ...]:
        """Return what is charged up front, or at most: the allowance, or the cost of every request."""
        if self.allowance is not None:
            return self.allowance
        return tuple(ask_cost(self.table, request) for request in self.requests)

    @property
    def mu_squared(self) -> Fraction:
        """Return the squared Gaussian privacy of a plan with one allowance of it."""
        (cost,) = self.costs
        assert cost.mu_squared is not None
        return cost.mu_squared

    def label(self, epsilon: Fraction) -> str:
        """Return how the names of questions begin that are asked for one of several epsilons."""
        return f"epsilon {format_exact(epsilon)}, " if len(self.epsilons) > 1 else ""

    def stack(self, tables: Sequence[pa.Table]) -> pa.Table:
        """One table of what was made for every epsilon, which the first column names if there are several."""
        if len(self.epsilons) > 1:
            tables = [
                rows.add_column(0, "epsilon", to_arrow(np.full(rows.num_rows, float(epsilon))))
                for rows, epsilon in zip(tables, self.epsilons, strict=True)
            ]
        return pa.concat_tables(tables, promote_options="default")

    def charged(self, asks: Iterable[Ask]) -> tuple[Cost, ...]:
        """Return what is charged once `asks` are all that was asked."""
        return tuple(ask_cost(self.table, ask) for ask in asks) if self.stepwise else self.costs

    def step_record(self, asks: tuple[Ask, ...]) -> dict[str, Any]:
        """Return one batch of a stepwise plan as a plain record: what is asked, and of what table.

        The options of the recipe are no part of it: whoever asks the same again, on the way to something
        more exact, finds the answer.
        """
        return {
            "recipe": {"recipe": self.recipe.kind},
            "table": {self.table.name: table_spec(self.table, self.columns)},
            "requests": [ask.to_record() for ask in asks],
        }

    def period_record(self, period: int) -> dict[str, Any]:
        """What is asked of one period of a series, as a plain record, whatever else is released of it."""
        (request,) = self.requests
        spec = table_spec(self.table, self.columns)
        kept = ("recipe", "table", "period", "by", "late")
        asked = {key: value for key, value in request.to_record().items() if key != "series"}
        facts = {
            key: value for key, value in request.counted.to_record()["series"].items() if key != "periods"
        }
        return {
            "recipe": {key: value for key, value in self.recipe.to_record().items() if key in kept},
            "table": {self.table.name: {key: spec[key] for key in spec if key not in _READING}},
            "request": {**asked, "series": facts},
            "period": period,
        }

    def to_record(self) -> dict[str, Any]:
        """Return the plan as a plain record; what may be counted follows from recipe and table."""
        record = {
            "recipe": self.recipe.to_record(),
            "table": {self.table.name: table_spec(self.table, self.columns)},
            "epsilons": list(self.epsilons),
            "delta": self.delta,
            "requests": [request.to_record() for request in self.requests],
        }
        if self.allowance is not None:
            record["allowance"] = [cost.to_record() for cost in self.allowance]
        if self.parts:
            record["parts"] = [part.to_record() for part in self.parts]
        return record

    @property
    def digest(self) -> str:
        """Return the SHA-256 of the plan's record: equal plans have equal digests."""
        return digest(self.to_record())

    @property
    def asked_digest(self) -> str:
        """The digest of what is asked: plans that differ in what is drawn from the answers have the same."""
        record, drawn_by = self.to_record(), getattr(self.recipe, "drawn_by", ())
        record["recipe"] = {key: value for key, value in record["recipe"].items() if key not in drawn_by}
        return digest(record)


def expect_noise(table: Table, request: Request) -> Expected:
    """Return the noise of the numbers that a request asks for."""
    grid = request_grid(table, request)
    return Expected(
        name=request.name,
        cells=request_size(table, request),
        deviation=request.law.deviation / grid,
        half_width=request.law.half_width() / grid,
    )


def follow_recipe(
    plan: Plan, *, answer: Callable[[tuple[Ask, ...]], tuple[Answer, ...]], progress: Progress
) -> tuple[tuple[Answer, ...], Product]:
    """Return all answers that the recipe of `plan` asked for, and what it made of them.

    Privacy: no batch reaches `answer` unless all that was asked so far is what the plan allows and
    costs no more than the plan charges.
    """
    asked = _Asked(plan)
    answers: list[Answer] = []
    run = plan.recipe.run(plan, progress=progress)
    try:
        batch = next(run)
        while True:
            asked.admit(batch)
            given = answer(batch)
            answers += given
            batch = run.send(given)
    except StopIteration as done:
        product = done.value
    finally:
        run.close()
    if not isinstance(product, Product) or not answers:
        raise RecipeError(f"recipe {plan.recipe.kind!r} asked nothing, or made no product of its answers")
    return tuple(answers), product


@dataclass(slots=True)
class _Asked:
    """What a recipe has asked so far."""

    plan: Plan
    names: set[str] = field(default_factory=set)
    size: int = 0
    marginals: frozenset[tuple[str, ...]] = field(init=False)
    allowance: Allowance = field(init=False)

    def __post_init__(self) -> None:
        self.marginals = frozenset(self.plan.marginals)
        self.allowance = Allowance(self.plan.costs)

    def admit(self, batch: tuple[Ask, ...]) -> None:
        """Refuses the whole batch, from public facts alone."""
        if not isinstance(batch, tuple) or not batch:
            self._refuse("yielded no questions")
        check_asks(self.plan.table, batch, parts=self.plan.parts)
        for ask in batch:
            if ask.name in self.names:
                self._refuse(f"asked {ask.name!r} twice; every question needs a name of its own")
            self.names.add(ask.name)
            self._check_columns(ask)
            self.size += request_size(self.plan.table, ask) if isinstance(ask, Request) else 1
        if self.size > MOST_ANSWERS:
            self._refuse(f"asked for {self.size:,} values, more than the {MOST_ANSWERS:,} that are kept")
        if not all(self.allowance.pay(cost, part=part) for cost, part in list_costs(self.plan.table, batch)):
            self._refuse("asked for more than its plan charges")

    def _check_columns(self, ask: Ask) -> None:
        plan = self.plan
        if isinstance(ask, Choice):
            known = {each.columns for each in ask.candidates} <= self.marginals
        elif isinstance(ask, Request) and ask.counted.tally == "cells":
            known = ask.columns in self.marginals
        elif isinstance(ask, Request) and ask.threshold is not None:
            known = ask.columns in plan.occupied
        else:
            asked = ask.counted if isinstance(ask, Request) else ask
            # Of residuals the answer depends on more columns than those it is counted by.
            columns = asked.known if isinstance(asked, Residuals) else asked.columns
            known = set(columns) <= set(plan.columns)
        if not known:
            self._refuse(f"asked {ask.name!r} of columns that its plan does not name")

    def _refuse(self, reason: str) -> NoReturn:
        raise RecipeError(f"recipe {self.plan.recipe.kind!r} {reason}")


def refuse_large_answers(plan: Plan) -> None:
    """Raises an error if the answers of a plan are too many to be kept in a ledger."""
    cells = sum(request_size(plan.table, request) for request in plan.requests)
    if cells > MOST_ANSWERS:
        raise RecipeError(
            f"the release would have {cells:,} cells, more than {MOST_ANSWERS:,}; "
            "use fewer columns, coarser domains or fewer epsilons"
        )


def parse_epsilons(value: object) -> tuple[Fraction, ...]:
    """Return the epsilons that `value`, one number or a list, stands for.

    >>> parse_epsilons([1, 0.5])
    (Fraction(1, 1), Fraction(1, 2))
    """
    entries = value if isinstance(value, (list, tuple)) else [value]
    epsilons = tuple(parse_positive(entry, name="epsilon") for entry in entries)
    if not epsilons:
        raise RecipeError("epsilon is an empty list")
    if len(set(epsilons)) != len(epsilons):
        raise RecipeError("an epsilon is listed twice")
    return epsilons


def is_column_list(value: object) -> TypeGuard[Sequence[str]]:
    """Return whether `value` is a list of names, not empty and none twice."""
    if not isinstance(value, (list, tuple)) or not all(isinstance(name, str) for name in value):
        return False
    return 0 < len(value) == len(set(value))


def cell_columns(table: Table, names: tuple[str, ...]) -> dict[str, pa.Array]:
    """Return one array per released column, with a label for every cell in row-major order."""
    sizes = [table.column(name).size for name in names]
    columns: dict[str, pa.Array] = {}
    for index, name in enumerate(names):
        inner, outer = math.prod(sizes[index + 1 :]), math.prod(sizes[:index])
        codes = np.tile(np.repeat(np.arange(sizes[index], dtype=np.int32), inner), outer)
        for label_name, labels in column_labels(table.column(name)).items():
            columns[label_name] = label_array(codes, labels)
    return columns


def released_names(table: Table, names: tuple[str, ...]) -> list[str]:
    """Return the names under which the columns are released."""
    columns = [table.column(name) for name in names]
    return [name for each in columns for name in (each.stored if _is_parted(each) else (each.name,))]


def column_labels(column: Column) -> dict[str, tuple[Label, ...]]:
    """Return the released columns that `column` becomes, each with a label for every code."""
    if isinstance(column.domain, Tuples) and _is_parted(column):
        parts = zip(*column.domain.values, strict=True)
        return {name: tuple(part) for name, part in zip(column.stored, parts, strict=True)}
    return {column.name: column.labels}


def to_plain(value: Any) -> Any:  # noqa: ANN401 - any option
    """Return an option as certificates state it."""
    if isinstance(value, Fraction):
        return format_exact(value)
    if isinstance(value, Mapping):
        return {str(key): to_plain(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return list(value) if set(map(type, value)) <= {str, int} else [to_plain(each) for each in value]
    return value


def _is_parted(column: Column) -> bool:
    """Return whether a combination is released as the columns it is made of."""
    return isinstance(column.domain, Tuples) and column.outside != "other"
