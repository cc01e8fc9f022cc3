"""Inputs of a model as public features: what every code of a column stands for, scaled to [-1, 1].

A number is scaled by its public bounds. A label is 1 where it is and 0 elsewhere; the first label of a column
is left out, and coefficients are differences from it. Missing values with a label of their own, and `other`,
are labels beside the number.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np

from sfumato.core.errors import RecipeError
from sfumato.core.exact import format_exact
from sfumato.core.facts.column import Column
from sfumato.core.facts.domain import Bins, Domain, IntegerRange, Label, Period, Values
from sfumato.core.facts.table import Table
from sfumato.tables.arrays import Floats, Whole

STEPS = 512
"""Equal steps between the bounds of a column that has bounds and no domain."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Term:
    """One feature: a number between `low` and `high`, or with a `label` whether the column has it."""

    column: str
    label: Label | None = None
    low: Fraction = Fraction(-1)
    high: Fraction = Fraction(1)

    @property
    def is_number(self) -> bool:
        """Return whether it is the number itself."""
        return self.label is None

    @property
    def middle(self) -> Fraction:
        """Return what is scaled to 0; of a label 0 itself."""
        return (self.low + self.high) / 2 if self.is_number else Fraction(0)

    @property
    def half(self) -> Fraction:
        """Return what is scaled to 1, from the middle; never 0."""
        return ((self.high - self.low) / 2 or Fraction(1)) if self.is_number else Fraction(1)

    def to_record(self) -> dict[str, Any]:
        """Return the term as a plain record."""
        if self.is_number:
            return {"column": self.column, "low": format_exact(self.low), "high": format_exact(self.high)}
        return {"column": self.column, "label": self.label}


def number_term(column: Column) -> Term:
    """Return a column of numbers as a term."""
    low, high = code_ends(column.domain)
    return Term(column=column.name, low=low, high=high)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Design:
    """The features of a model, column by column, and a table of whole numbers for each column's codes."""

    columns: tuple[str, ...]
    terms: tuple[Term, ...]
    scores: tuple[Whole, ...]
    left_out: Mapping[str, Label]


def find_inputs(table: Table, *, target: str, inputs: Sequence[str] | None, kind: str) -> tuple[str, ...]:
    """Return the input columns: those that are listed, or all others that have a domain or bounds.

    What is made of a stored column of the target is no input: left out by default, and refused in a list.
    """
    if target not in table.columns:
        table.column(target)  # raises what is wrong with it
    own = set(table.columns[target].stored)
    if inputs is None:
        inputs = [
            name
            for name, column in table.columns.items()
            if name not in (target, table.unit.column)
            and is_described(column)
            and not own & set(column.stored)
        ]
    if not inputs:
        raise RecipeError(
            f"{kind}: table {table.name!r} has no column with a domain or bounds to predict {target!r} from; "
            "describe one"
        )
    for name in inputs:
        if name not in table.columns or not is_described(table.columns[name]):
            table.column(name)  # raises what is wrong with it
        if own & set(table.columns[name].stored):
            raise RecipeError(
                f"{kind}: input {name!r} is made of the stored column of the target {target!r}; leave it out"
            )
    return tuple(inputs)


def is_described(column: Column) -> bool:
    """Return whether a column has a domain, or bounds that one can be made of."""
    return column.domain is not None or column.bounds is not None


def bound_columns(table: Table, names: Sequence[str], *, steps: int = STEPS) -> Table:
    """`table` with a domain of equal `steps` for columns with bounds only; numbers beyond are clamped."""
    columns = dict(table.columns)
    for name in names:
        column = columns.get(name)
        if column is not None and column.domain is None and column.bounds is not None:
            low, high = column.bounds
            edges = tuple(low + (high - low) * step / steps for step in range(steps + 1))
            columns[name] = replace(column, domain=Bins(edges), outside="clamp")
    bounded = replace(table, columns=columns)
    for name in names:
        bounded.column(name)  # raises what is wrong with it
    return bounded


def build_design(
    table: Table, inputs: Sequence[str], *, categorical: Sequence[str] = (), grid: int
) -> Design:
    """Return the features of `inputs`; those that are `categorical` are labels even if they are numbers."""
    return design_columns({name: table.column(name) for name in inputs}, categorical=categorical, grid=grid)


def design_columns(columns: Mapping[str, Column], *, categorical: Sequence[str] = (), grid: int) -> Design:
    """Return the features of described `columns`, as `build_design` makes them."""
    terms: list[Term] = []
    scores, left_out = [], {}
    for name, column in columns.items():
        values = None if name in categorical else number_values(column)
        if values is None:
            labels = column.labels
            left_out[name] = labels[0]
            terms += [Term(column=name, label=label) for label in labels[1:]]
            scores.append(np.eye(len(labels), dtype=np.int64)[:, 1:] * grid)
            continue
        term = number_term(column)
        terms += [term, *(Term(column=name, label=label) for label in column.extras)]
        scores.append(scale_numbers(values, term, extras=len(column.extras), grid=grid))
    return Design(columns=tuple(columns), terms=tuple(terms), scores=tuple(scores), left_out=left_out)


def average_products(design: Design, *, grid: int) -> Floats:
    """What a record adds to the products of the constant and all features, if inputs are spread evenly."""
    scaled = [scores / grid for scores in design.scores]
    means = np.concatenate([[1.0], *(each.mean(axis=0) for each in scaled)])
    matrix, first = np.outer(means, means), 1
    for each in scaled:
        last = first + each.shape[1]
        matrix[first:last, first:last] = each.T @ each / each.shape[0]
        first = last
    return np.asarray(matrix)


def code_values(domain: Domain | None) -> list[Fraction] | None:
    """Return the number behind every code of a domain, in a bin its middle; None if they are no numbers."""
    if isinstance(domain, Bins):
        return [(low + high) / 2 for low, high in pairwise(domain.edges)]
    if isinstance(domain, (IntegerRange, Period, Values)) and isinstance(domain.labels[0], int):
        return [Fraction(label) for label in domain.labels]
    return None


def code_ends(domain: Domain | None) -> tuple[Fraction, Fraction]:
    """Return the least and the largest number of a domain of numbers."""
    if isinstance(domain, Bins):
        return domain.edges[0], domain.edges[-1]
    values = code_values(domain)
    assert values is not None
    return min(values), max(values)


def number_values(column: Column) -> list[Fraction] | None:
    """Return the number that every code stands for where a straight line may go through them; None of labels.

    Listed values are labels. So are months, days and hours, which go round: of dates only years are numbers.
    """
    domain = column.domain
    listed = isinstance(domain, Values) or (isinstance(domain, Period) and domain.part != "year")
    return None if listed else code_values(domain)


def scale_numbers(values: Sequence[Fraction], term: Term, *, extras: int, grid: int) -> Whole:
    """The scaled numbers of all codes, rounded and then held to [-grid, grid], and labels of the extras."""
    middle, half = term.middle, term.half
    rounded = [round((value - middle) / half * grid) for value in values]
    held = [min(max(each, -grid), grid) for each in rounded]  # after rounding, so that the bound is certain
    scores = np.zeros((len(held) + extras, 1 + extras), np.int64)
    scores[: len(held), 0] = held
    for place in range(extras):
        scores[len(held) + place, 1 + place] = grid
    return scores
