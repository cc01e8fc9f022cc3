"""What recipes share that select their marginals privately: a budget, a model, rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa

from sfumato.accounting import Cost, max_mu
from sfumato.errors import RecipeError
from sfumato.exact import format_exact
from sfumato.inference.files import pack_model, quantise
from sfumato.recipes.adapt import Purse
from sfumato.recipes.base import Plan, Product, refuse_no_delta
from sfumato.recipes.layout import refuse_clash
from sfumato.recipes.public import parse_public, public_values, read_public
from sfumato.recipes.rows import build_rows, mark_epsilon, model_domain, name_rows, tell_bins

if TYPE_CHECKING:
    from sfumato.inference import Domain, Model
    from sfumato.recipes.adapt import Asking
    from sfumato.recipes.base import Conversation, Recipe
    from sfumato.recipes.rows import WithinBins
    from sfumato.schema import Table

Columns = tuple[str, ...]

_GRAIN = 10**12
_LEAST = Fraction(1, 10**5)
_MOST_COUNTED = 2**27
_MOST_ROWS = 2**24  # that noise may ask for; a recipe may state more
_WHOLE = 2**21  # cells up to which a model is released over the full domain


class Selecting(Protocol):
    """The options that recipes with private selection share."""

    @property
    def kind(self) -> str:
        """The recipe's name in a recipe file."""

    @property
    def columns(self) -> Sequence[str] | None:
        """The columns of the rows; None for all that have a domain."""

    @property
    def public(self) -> Any:  # noqa: ANN401 - a file's name, or what was read of it
        """A public table for values within bins."""

    @property
    def seed(self) -> int:
        """The public seed of rows."""

    @property
    def rows(self) -> int | None:
        """The number of rows, by default the estimated one."""


def check_options(recipe: Selecting) -> dict[str, Any]:
    """The shared options as they are kept, or an error that names the one that is wrong."""
    kind, columns = recipe.kind, recipe.columns
    if columns is not None and (
        not isinstance(columns, (list, tuple))
        or not columns
        or not all(isinstance(name, str) for name in columns)
        or len(set(columns)) != len(columns)
    ):
        raise RecipeError(f"{kind}: columns must list columns of the table, none twice")
    for key, value, least in (("seed", recipe.seed, 0), ("rows", recipe.rows, 0)):
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < least):
            raise RecipeError(f"{kind}: {key} must be a whole number of at least {least}")
    return {
        "columns": None if columns is None else tuple(columns),
        "public": parse_public(recipe.public, where=f"{kind}: public"),
    }


def find_columns(recipe: Selecting, table: Table) -> Columns:
    """The columns of the rows: those that are listed, or all that have a domain."""
    if recipe.columns is not None:
        names = tuple(recipe.columns)
    else:
        names = tuple(name for name, column in table.columns.items() if column.domain is not None)
    if not names:
        raise RecipeError(f"{recipe.kind}: table {table.name!r} describes no column with a domain")
    for name in names:
        table.column(name)
    refuse_clash(recipe.kind, ["epsilon", *name_rows(table, names)])
    return names


def read_values(recipe: Selecting, table: Table) -> Any:  # noqa: ANN401 - as the recipe keeps it
    """What the recipe's public table tells about values within bins, read if it is still a file."""
    if isinstance(recipe.public, str):
        return read_public(recipe.public, table, find_columns(recipe, table), groups=None)
    return recipe.public


def plan_selection(
    recipe: Recipe,
    table: Table,
    *,
    epsilons: tuple[Fraction, ...],
    delta: Fraction,
    counted: tuple[Columns, ...],
) -> Plan:
    """A plan that charges, for every epsilon, all that (epsilon, delta) admits of Gaussian privacy."""
    refuse_no_delta(recipe.kind, delta)
    domain = model_domain(table, tuple(dict.fromkeys(name for columns in counted for name in columns)))
    cells = sum(domain.cells(columns) for columns in counted)
    if cells > _MOST_COUNTED:
        raise RecipeError(
            f"{recipe.kind}: the marginals that may be chosen have {cells:,} cells together, more than "
            f"{_MOST_COUNTED:,}; state a smaller workload, fewer columns or coarser domains"
        )
    return Plan(
        recipe=recipe,
        table=table,
        requests=(),
        epsilons=epsilons,
        delta=delta,
        allowance=tuple(_allow(table, epsilon, delta) for epsilon in epsilons),
        counted=counted,
    )


def run_selection(
    recipe: Selecting,
    plan: Plan,
    *,
    measure: Callable[[Purse, Domain, str], Asking],
) -> Conversation:
    """The rows of a model for every epsilon; `measure` asks with a purse, a domain and a label for names."""
    several = len(plan.epsilons) > 1
    columns = find_columns(recipe, plan.table)
    domain = model_domain(plan.table, columns)
    models: dict[str, Model] = {}
    tables, facts = [], []
    for epsilon, cost in zip(plan.epsilons, plan.costs, strict=True):
        assert cost.mu_squared is not None
        label = f"epsilon {format_exact(epsilon)}, " if several else ""
        fitting = yield from measure(Purse(plan.table, squared=cost.mu_squared), domain, label)
        assert fitting.model is not None
        whole = fitting.compression.expand_model(fitting.model, limit=_WHOLE)
        model = quantise(fitting.model if whole is None else whole)
        model.seed = recipe.seed
        models[format_exact(epsilon)] = model
        count = min(round(model.total), _MOST_ROWS) if recipe.rows is None else recipe.rows
        codes = model.sample(count, seed=recipe.seed)
        if whole is None:
            codes = fitting.compression.expand(codes, seed=recipe.seed)
        rows = build_rows(plan.table, columns, codes, seed=recipe.seed, public=_told(recipe))
        tables.append(mark_epsilon(rows, epsilon) if several else rows)
        facts.append(
            {
                "epsilon": format_exact(epsilon),
                "rows": rows.num_rows,
                "cliques": [list(clique) for clique in model.tree.cliques],
                "compressed_to": {
                    name: fitting.domain[name] for name in columns if fitting.domain[name] != domain[name]
                },
            }
        )
    return Product(
        table=pa.concat_tables(tables, promote_options="default"),
        files={"model.parquet": pack_model(models)},
        facts={"models": facts},
    )


def tell_rows(recipe: Selecting, plan: Plan) -> str:
    """The paragraph of the write-up on how rows come of the model."""
    columns = find_columns(recipe, plan.table)
    return (
        "Values too rare to be told from noise are joined, and rows are spread over them again in the "
        "proportions that their noisy counts have. Rows are drawn from the model from a public seed. "
        + tell_bins(plan.table, columns, _told(recipe))
        + " All of it uses noisy answers and public facts only, so it costs nothing."
    )


def _told(recipe: Selecting) -> WithinBins | None:
    return public_values(recipe.public if isinstance(recipe.public, Mapping) else None)


def _allow(table: Table, epsilon: Fraction, delta: Fraction) -> Cost:
    # A hair less than all, so that no rounding of sums exceeds epsilon.
    scale = Fraction(int(max_mu(epsilon, delta) * (1 - 1e-9) * _GRAIN), _GRAIN)
    if scale < _LEAST:
        raise RecipeError(
            f"epsilon {format_exact(epsilon)} at this delta buys less than can be measured; spend more"
        )
    return Cost(kind="filter", scale=scale, neighbours=table.unit.neighbours, unit=table.unit.column or "row")
