"""What recipes share that choose privately which marginals they measure.

`Selection` is their base: it charges all that (epsilon, delta) admits of Gaussian privacy beforehand, lets a
recipe ask until `RemainingBudget` is spent, and draws rows from the model of all answers. `Fitting` is that
model, over columns whose rare values are joined by `Compression`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from sfumato.core.errors import RecipeError
from sfumato.core.exact import format_exact
from sfumato.core.questions.measurement import Answer, Ask
from sfumato.inference.domain import Columns, Domain
from sfumato.inference.files import pack_model, quantise
from sfumato.inference.model import Model
from sfumato.recipes.base import (
    Conversation,
    Plan,
    Product,
    is_column_list,
    label_epsilon,
    refuse_clash,
    refuse_no_delta,
    released_names,
    stack_epsilons,
    to_plain,
)
from sfumato.recipes.shared.budget import RemainingBudget, allow_gaussian
from sfumato.recipes.shared.compression import Compression
from sfumato.recipes.shared.fitting import Asking, Fitting
from sfumato.recipes.shared.guide import TESTING, follow_guide, read_guide, unpack_guide
from sfumato.recipes.shared.private_bins import describe_grids, parse_bins
from sfumato.recipes.shared.public import parse_public
from sfumato.recipes.shared.repair import draw_obeying, turn_seed
from sfumato.recipes.shared.rows import RowOptions, build_rows, describe_bins, model_domain

if TYPE_CHECKING:
    from sfumato.core.facts.table import Table


_ROOM = Fraction(1, 10**13)  # of the squared privacy of a run, for what rounding adds to its costs
_MOST_COUNTED = 2**27  # cells of all marginals that may be asked about; so many counts fit into memory
_MOST_ROWS = 2**24  # that noise may ask for; a recipe may state more
_WHOLE = 2**21  # cells up to which a model is released over the full domain


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection(RowOptions):
    """The base of recipes with private selection: `columns` are those of the rows, by default all.

    A recipe states which marginals may be counted and how it measures, and what its write-up says.
    """

    texts: ClassVar[Mapping[str, str]]
    """The paragraphs idea, preprocessing and privatisation of the write-up."""

    columns: Sequence[str] | None = None
    guide: Any = None
    bins: Mapping[str, int] | None = None

    def __post_init__(self) -> None:
        if self.columns is not None:
            if not is_column_list(self.columns):
                raise RecipeError(f"{self.kind}: columns must list columns of the table, none twice")
            self._keep(columns=tuple(self.columns))
        self._keep(bins=parse_bins(self.bins, kind=self.kind))
        self._keep(guide=parse_public(self.guide, where=f"{self.kind}: guide", holds="codes"))
        RowOptions.__post_init__(self)

    def to_record(self) -> dict[str, Any]:
        """Return the recipe as a plain record; what is not given is left out."""
        given = {"guide": self.guide, "bins": self.bins}
        added = {key: to_plain(value) for key, value in given.items() if value is not None}
        return {**RowOptions.to_record(self), **added}

    def list_counted(self, domain: Domain) -> tuple[Columns, ...]:
        """Return all marginals that may be counted."""
        raise NotImplementedError

    def measure(
        self, budget: RemainingBudget, domain: Domain, label: str, progress: Callable[[str], None]
    ) -> Asking:
        """The model of what was chosen and measured with `budget`; names of questions begin with `label`."""
        raise NotImplementedError

    def plan(self, table: Table, *, epsilons: tuple[Fraction, ...], delta: Fraction) -> Plan:
        """Return one allowance per epsilon: all that (epsilon, delta) admits of Gaussian privacy."""
        table = describe_grids(table, self.bins, kind=self.kind)
        columns = self._find_columns(table)
        if not set(self.bins or ()) <= set(columns):
            raise RecipeError(f"{self.kind}: bins names a column that the rows do not have")
        _refuse_names(self.kind, columns)
        domain = model_domain(table, columns)
        counted = self.list_counted(domain)
        recipe = self.with_public(table, columns).with_types((table, columns))
        if isinstance(self.guide, str):
            recipe = replace(recipe, guide=read_guide(self.guide, table, columns))
        if recipe.guide is not None:
            unpack_guide(recipe.guide, domain)  # what cannot be read is refused before a charge
        refuse_no_delta(self.kind, delta)
        cells = sum(domain.cells(columns) for columns in counted)
        if cells > _MOST_COUNTED:
            raise RecipeError(
                f"{self.kind}: the marginals that may be chosen have {cells:,} cells together, more than "
                f"{_MOST_COUNTED:,}; state a smaller workload, fewer columns or coarser domains"
            )
        return Plan(
            recipe=recipe,
            table=table,
            epsilons=epsilons,
            delta=delta,
            allowance=tuple(allow_gaussian(table, epsilon, delta) for epsilon in epsilons),
            counted=counted,
        )

    def run(self, plan: Plan, *, progress: Callable[[str], None]) -> Conversation:
        """Return the rows of a model of what was chosen and measured, for one epsilon after the other."""
        columns = self._find_columns(plan.table)
        domain = model_domain(plan.table, columns)
        models: dict[str, Model] = {}
        tables, facts = [], []
        for epsilon, cost in zip(plan.epsilons, plan.costs, strict=True):
            assert cost.mu_squared is not None
            budget = RemainingBudget(plan.table, mu_squared=cost.mu_squared, room=_ROOM)
            label = label_epsilon(plan.epsilons, epsilon)
            fitting = yield from self.measure(budget, domain, label, progress)
            assert fitting.model is not None
            whole = fitting.compression.expand_model(fitting.model, limit=_WHOLE)
            model = quantise(fitting.model if whole is None else whole)
            model.seed = self.seed
            models[format_exact(epsilon)] = model
            count = min(round(model.total), _MOST_ROWS) if self.rows is None else self.rows
            compression = fitting.compression if whole is None else None
            codes = self._draw(plan.table, columns, model, compression, rows=count)
            within = self.within_bins
            tables.append(
                build_rows(plan.table, columns, codes, seed=self.seed, public=within, types=self.types)
            )
            sizes = fitting.domain
            facts.append(
                {
                    "epsilon": format_exact(epsilon),
                    "rows": tables[-1].num_rows,
                    "cliques": [list(clique) for clique in model.tree.cliques],
                    "compressed_to": {name: sizes[name] for name in columns if sizes[name] != domain[name]},
                    **({} if self.guide is None else {"guided": [list(each) for each in fitting.guided]}),
                }
            )
        return Product(
            table=stack_epsilons(plan.epsilons, tables),
            files={"model.parquet": pack_model(models)},
            facts={"models": facts},
        )

    def describe(self, plan: Plan) -> dict[str, str]:
        """Return the paragraphs of the privacy write-up that are this recipe's own."""
        columns = self._find_columns(plan.table)
        bins = describe_bins(plan.table, columns, self.within_bins, self.types)
        facts = {"columns": ", ".join(columns), "bins": bins}
        texts = {**self.texts, "postprocessing": _POSTPROCESSING}
        told = {key: text.format(**facts) for key, text in texts.items()}
        if self.bins:
            told["postprocessing"] = _BINS.format(", ".join(self.bins)) + told["postprocessing"]
        if self.guide is not None:
            told["preprocessing"] += f" {_GUIDE_READ}"
            told["privatisation"] += f" {_GUIDE_ASKED}"
        return told

    def split_guide(self, budget: RemainingBudget) -> RemainingBudget:
        """Return the part of `budget` for asking whether the guide holds; nothing without a guide."""
        return budget.split(Fraction(0) if self.guide is None else TESTING)

    def follow_guide(
        self, testing: RemainingBudget, fitting: Fitting, label: str, *, most_cells: int
    ) -> Generator[tuple[Ask, ...], tuple[Answer, ...], None]:
        """Lets fits begin at the guide, if there is one, as far as what `testing` pays for bears it out."""
        if self.guide is not None:
            allowed = self.list_counted(fitting.compression.full)
            yield from follow_guide(self.guide, testing, fitting, allowed, label=label, most_cells=most_cells)

    def _draw(
        self, table: Table, columns: Columns, model: Model, compression: Compression | None, *, rows: int
    ) -> dict[str, NDArray[np.int64]]:
        """Return codes of rows that obey the rules; `compression` is that of a model over joined values."""

        def draw(count: int, turn: int) -> dict[str, NDArray[np.int64]]:
            seed = turn_seed(self.seed, turn)
            codes = model.sample(count, seed=seed)
            return codes if compression is None else compression.expand(codes, seed=seed)

        return draw_obeying(table, columns, draw, rows=rows, seed=self.seed)

    def _find_columns(self, table: Table) -> Columns:
        """Return the columns of the rows: those that are listed, or all that have a domain."""
        if self.columns is not None:
            names = tuple(self.columns)
        else:
            names = tuple(name for name, column in table.columns.items() if column.domain is not None)
        if not names:
            raise RecipeError(f"{self.kind}: table {table.name!r} describes no column with a domain")
        for name in names:
            table.column(name)
        refuse_clash(self.kind, ["epsilon", *released_names(table, names)])
        return names


def _refuse_names(kind: str, columns: Columns) -> None:
    """Refuses columns that are called like a question about others, which need names of their own."""
    for name in columns:
        joins = " x " in name and set(name.split(" x ")) <= set(columns)
        if joins or re.fullmatch(r"(choice|round|pair) \d+(: .*)?|(again|at last|guide): .*", name):
            raise RecipeError(
                f"{kind}: column {name!r} is called like a question that is asked of other columns; describe "
                "it under another name, with `from`"
            )


_POSTPROCESSING = (
    "Values too rare to be told from noise are joined, and rows are spread over them again in the "
    "proportions that their noisy counts have. Rows are drawn from the model from a public seed. {bins} All "
    "of it uses noisy answers and public facts only, so it costs nothing."
)
_BINS = (
    "Columns without a domain ({}) are measured on a public grid between their bounds; neighbouring cells "
    "are joined to bins between noisy quantiles, over which marginals are measured. "
)
_GUIDE_READ = (
    "A public table, the guide, is read before any record: it tells which pairs of columns depend on each "
    "other, and how."
)
_GUIDE_ASKED = (
    "A fortieth of the budget goes to the guide: for each of its pairs one sum of counts, with signs, is "
    "measured with Gaussian noise once single columns are. It tells whether the records are rather as the "
    "guide says or as independent columns would be. Fits begin at the model of the pairs that hold."
)
