"""What is measured of rows: bounded numbers per group, and how far one individual moves each of them.

Everything a sensitivity rests on is here: what one row adds at most (`Measure.largest`), how many rows and
groups of one individual count (`Checked`), and from both the contribution (docs/proofs/sql.md, section 3).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray
from sqlglot import exp

from sfumato.core.algebra.rows import Rows, Scan, Shape, Tables, check_in_scope, check_rows, walk_rows
from sfumato.core.cost.curves import histogram_sensitivity
from sfumato.core.errors import refuse
from sfumato.core.exact import round_up
from sfumato.core.facts.domain import Label
from sfumato.core.facts.table import MOST_RECORDS, PrivacyUnit, Table, cap_records
from sfumato.core.law import Norm

CELLS = 1024
"""Steps between bounds if nothing else is said: those of labels, and of trees of all quantiles."""

MOST_PLACES = 2**14
"""The most steps between bounds among which a private quantile chooses."""

LARGEST = 2**32
"""The most steps that one record adds to a sum between chosen bounds, whichever they are."""

OPEN = (Fraction(0), Fraction(1, 3))
"""What stands for bounds before they are chosen; no two edges of their grid."""

CAPS: tuple[int, ...] = tuple(2**power for power in range(MOST_RECORDS.bit_length()))
"""The bounds on records among which one is chosen. Who has more than the largest is counted with it."""

MOST_GROUPS = 2**24

MOST_STEPS = 2**51
"""The largest clip, and the most of one individual in a group that is told apart, in units of 1 / grid."""

NORMS: tuple[int, ...] = tuple(sorted({math.isqrt(2**power) for power in range(103)}))
"""The norms that individuals are counted by, in half octaves: powers of the root of 2 up to MOST_STEPS."""

ADDED: tuple[str, ...] = ("records", "present", "sum", "square")
"""What is a sum over records, so that an individual's part of it can be scaled down."""

Statistic = Literal[
    "records", "present", "individuals", "distinct", "sum", "square", "quantile", "records per individual"
]


@dataclass(frozen=True, slots=True)
class Clip:
    """The most that all records of an individual together add to a measure, as a norm over the groups.

    The `bound` is in units of 1 / grid. Who adds more is scaled down to it; no record is cut. Without a bound
    the measure is not answered, but individuals are counted by the norm of what they add to it.
    """

    norm: Norm
    bound: int | None = None

    def __post_init__(self) -> None:
        if self.norm not in get_args(Norm):
            raise ValueError("a norm that nobody holds to")
        if self.bound is not None and not (isinstance(self.bound, int) and 1 <= self.bound <= MOST_STEPS):
            raise ValueError("a clip of nothing, or beyond what is told apart")


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """One number per group that is measured with noise of its own.

    `tree` is the value of a record in [`low`, `high`]; of different values `high` are public, or 0. A sum
    adds round((value - centre) * grid), one of squares round(((value - centre) / half the range)^2 * grid).

    A quantile, a `whole` number or any, is one of the `steps` between the bounds. With `labels` these are
    their codes, and the `chosen` most frequent of them are asked for in place of a rank: to the engine both
    are one histogram. TOP numbers its columns, MODE does not. With `chosen` 0 all counts of the labels are
    asked for. With `edges` a record counts in the interval between two of them that holds its value, or in
    the outermost. With `parts`, all quantiles that divide the records so, from one tree of counts.

    With `private`, the operand, its bounds are chosen from a noisy histogram first. Until then it `is_open`:
    its bounds stand for all others.

    With a `clip`, all records of an individual count, and what they add together is held to a norm. A count
    then has a `grid` too: a record adds so many units.
    """

    statistic: Statistic
    tree: exp.Expr | None = None
    low: Fraction = Fraction(0)
    high: Fraction = Fraction(0)
    centre: Fraction = Fraction(0)
    grid: int = 1
    quantile: Fraction | None = None
    is_number: bool = False
    labels: tuple[Label, ...] | None = None
    chosen: int = 1
    numbered: bool = False
    private: exp.Expr | None = None
    edges: tuple[Fraction, ...] | None = None
    parts: int = 0
    clip: Clip | None = None
    steps: int = CELLS
    whole: bool = False

    def __post_init__(self) -> None:
        if self.statistic not in get_args(Statistic):
            raise ValueError("a statistic whose sensitivity is not known")
        if self.edges is not None and self.statistic != "quantile":
            raise ValueError("intervals are counted, and their numbers add up to nothing")
        if self.quantile is not None and not 0 <= self.quantile <= 1:
            raise ValueError("a quantile at a share that is none")
        if self.clip is not None and self.statistic not in ADDED:
            raise ValueError("a clip of what is no sum over records")
        if self.statistic in ("records", "present") and not 1 <= self.grid <= (
            MOST_STEPS if self.clip else 1
        ):
            raise ValueError("a grid of counts that nobody holds to a norm, or that is too fine")
        if self.private is not None and self.statistic == "sum" and self._farthest > LARGEST:
            raise ValueError("a record would add more than is charged for")
        if self.edges is not None and not (len(self.edges) <= CELLS and sorted(self.edges) == [*self.edges]):
            raise ValueError("intervals that are too many, or not in order")
        if not 1 <= self.steps <= MOST_PLACES or (self.steps != CELLS and (self.labels or self.parts)):
            raise ValueError("steps that are none, too many, or of what has no others")
        if self.statistic in ("sum", "square", "quantile") and self.edges is None:
            self._refuse_inexact()

    def _refuse_inexact(self) -> None:
        """Refuses bounds between which doubles would add more than the exact bound that is charged."""
        low, high, centre = (float(each) for each in (self.low, self.high, self.centre))
        half = float((self.high - self.low) / 2)
        if self.grid < 1 or not (low < high and half > 0) or self.largest > 2**53:
            raise ValueError("bounds without a range, or too far apart to be added up exactly")
        if self.statistic == "quantile":
            if math.floor((high - low) * self.steps / (2 * half)) > self.steps:
                raise ValueError("bounds so close together that doubles do not tell steps apart")
            return
        reached = [((end - centre) / (half if self.statistic == "square" else 1)) for end in (low, high)]
        ends = [(each * each if self.statistic == "square" else each) * self.grid for each in reached]
        # Every step in between rises with the value, so that what lies between the ends adds no more.
        if max(math.floor(abs(end) + 0.5) for end in ends) > self.largest:
            raise ValueError("bounds so close together, or so far away, that doubles do not keep them")
        if not self.is_signed and self.statistic == "sum" and ends[0] <= -0.5:
            raise ValueError("a sum that is said to have no sign falls below zero")

    @property
    def is_open(self) -> bool:
        """Whether its bounds are still to be chosen."""
        return self.private is not None and (self.low, self.high) == OPEN

    @property
    def is_histogram(self) -> bool:
        """Whether all counts of public labels are measured, each with noise of its own."""
        return self.labels is not None and self.chosen == 0

    @property
    def largest(self) -> int:
        """The most that one record adds, in units of 1 / grid."""
        if self.statistic == "sum":
            # The same for all bounds that may be chosen, so that the charge is made before they are.
            return self._farthest if self.private is None else LARGEST
        return self.grid if self.statistic in ADDED else 1

    @property
    def _farthest(self) -> int:
        ends = (self.low - self.centre, self.high - self.centre)
        return max(1, *(-(-abs(end * self.grid) // 1) for end in ends))  # however halves are rounded

    @property
    def is_signed(self) -> bool:
        """Whether a record may add less than nothing."""
        return self.statistic == "sum" and (self.low < self.centre or self.private is not None)

    def describe(self) -> str:
        """The measure in one canonical line."""
        inner = "*" if self.tree is None else self.tree.sql(dialect="duckdb")
        if self.is_histogram:
            return f"histogram of {len(self.labels or ())} intervals({inner})"
        if self.labels is not None:
            return f"{self.chosen} most frequent of {len(self.labels)} labels({inner})"
        facts = ""
        if self.statistic in ("sum", "square", "quantile"):
            facts = f" in [{self.low}, {self.high}] from {self.centre} by 1/{self.grid}"
            facts = " in the chosen bounds" if self.is_open else facts
            facts += "" if self.steps == CELLS else f" in {self.steps} steps"
        where = "" if self.quantile is None else f" at {self.quantile}"
        where = f" in {self.parts} parts" if self.parts else where
        if self.clip is not None and self.clip.bound is None:
            where += f", individuals by its {self.clip.norm} norm"
        elif self.clip is not None:
            where += f", of each individual up to {self.clip.bound}/{self.grid} in {self.clip.norm}"
        return f"{self.statistic}({inner}){facts}{where}"


@dataclass(frozen=True, slots=True)
class Group:
    """A key of groups: the expression for the code of a row's group, and how many codes are public.

    Without a `size` it is a text, and its groups are those that the records have.
    """

    tree: exp.Expr
    size: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """What outside code may ask of records: measures of rows, in groups.

    An individual counts in at most `max_groups` groups, but in measures with a clip. `max_records` is the
    bound for tables that state none.
    """

    rows: Rows
    groups: tuple[Group, ...]
    measures: tuple[Measure, ...]
    max_groups: int = 1
    max_records: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """A query that the core has looked at, with what it derived: whose rows there are, and their bounds."""

    query: Query
    tables: Tables
    shape: Shape
    unit: PrivacyUnit

    @property
    def is_open(self) -> bool:
        """Whether groups are in the records only."""
        return any(group.size is None for group in self.query.groups)

    @property
    def size(self) -> int:
        """The number of groups with public codes; 1 without keys."""
        return math.prod(group.size for group in self.query.groups if group.size is not None)

    @property
    def most_groups(self) -> int:
        """The most groups that an individual is in."""
        return min(self.query.max_groups, self.unit.max_records) if self.query.groups else 1

    @property
    def chooses_groups(self) -> bool:
        """Whether some of an individual's groups may have to be left out."""
        return bool(self.query.groups) and self.query.max_groups < self.unit.max_records

    @property
    def only_counts(self) -> bool:
        """Whether one number of records per individual is all that is needed."""
        counted = ("records", "individuals", "records per individual")
        cut = [each for each in self.query.measures if each.clip is None]
        return not self.query.groups and all(each.statistic in counted for each in cut)

    @property
    def clipped(self) -> Checked | None:
        """The same for the measures with a clip; None if there are none."""
        return self._select([each for each in self.query.measures if each.clip is not None])

    @property
    def cut(self) -> Checked | None:
        """The same for the measures without a clip, for which records are cut; None if there are none."""
        return self._select([each for each in self.query.measures if each.clip is None])

    def _select(self, measures: list[Measure]) -> Checked | None:
        return replace(self, query=replace(self.query, measures=tuple(measures))) if measures else None


def check_query(query: Query, tables: Tables) -> Checked:
    """Return the query with what follows for it from the described tables; refuses what cannot be bounded.

    Nothing that the planner says of bounds, individuals or sensitivities is used: docs/proofs/algebra.md.
    """
    # A class made of one of these could say something else of itself every time that it is asked.
    if type(query) is not Query or any(type(each) is not Measure for each in query.measures):
        raise refuse("a query, or a measure, of no known kind")
    for part in walk_rows(query.rows):
        table = tables.get(part.table) if isinstance(part, Scan) else None
        if isinstance(table, Table) and table.unit.private_records:
            if query.max_records is None or not 1 <= query.max_records <= MOST_RECORDS:
                raise refuse("a bound on records that nobody chose")
            # From here on it is as if the table stated it.
            tables = {**tables, table.name: cap_records(table, query.max_records)}
    shape = check_rows(query.rows, tables)
    unit = shape.unit
    if unit is None:
        raise refuse("a private query of public tables")
    tallied = any(each.statistic == "records per individual" for each in query.measures)
    if tallied and (len(query.measures) > 1 or query.groups or shape.joined or unit.column is None):
        raise refuse("individuals are counted by their records alone, without groups")
    for measure in query.measures:
        counts = measure.statistic in ("records", "individuals", "records per individual")
        if counts != (measure.tree is None):
            raise refuse(f"{measure.statistic} of a value that is missing, or that nobody asks for")
        if measure.statistic == "individuals" and unit.column is None:
            raise refuse("a number of individuals where every row is one; count the rows")
    for tree in (*(each.tree for each in query.groups), *(each.tree for each in query.measures)):
        if tree is not None:
            check_in_scope(tree, shape.scope)
    checked = Checked(query=query, tables=tables, shape=shape, unit=unit)
    sizes = [group.size for group in query.groups if group.size is not None]
    if query.max_groups < 1 or min(sizes, default=1) < 1 or checked.size > MOST_GROUPS or not query.measures:
        raise refuse("groups, or measures, that are none or too many")
    if checked.is_open and any(each.statistic == "quantile" for each in query.measures):
        raise refuse("quantiles of groups that are not public")
    if checked.clipped is not None and (checked.is_open or unit.column is None):
        raise refuse("individuals are held to a norm in public groups, where a column names them")
    return checked


def find_sensitivity(measure: Measure, checked: Checked, *, norm: Literal["L1", "L2"]) -> Fraction:
    """Return the most that neighbouring tables differ in a measure of a query, in units of 1 / grid."""
    return bound_measure(measure, checked.unit, checked.most_groups, norm=norm)


def bound_measure(measure: Measure, unit: PrivacyUnit, groups: int, *, norm: Literal["L1", "L2"]) -> Fraction:
    """Return the same for rows of a unit, of which an individual is in at most so many groups.

    Privacy: an individual has at most max_records rows, in at most so many groups, and each row adds at most
    `largest` in absolute value; with a clip all that it has adds a vector of at most that norm, or 1 to one
    count. docs/proofs/sql.md, section 3.
    """
    clip = measure.clip
    if clip is not None:
        is_held = clip.bound is not None
        if is_held and norm == "L1" and clip.norm == "L2":
            raise refuse("noise for what is bounded in L1 on what is held to an L2 norm")
        return histogram_sensitivity(
            contribution=Fraction(clip.bound or 1),
            norm=norm,
            neighbours=unit.neighbours,
            signed=is_held and measure.is_signed,
        )
    match measure.statistic:
        case "records per individual":
            contribution = Fraction(1)
        case "individuals":
            root = round_up(math.sqrt(groups) * (1 + 1e-15), places=9)
            contribution = Fraction(groups) if norm == "L1" else root
        case _:
            contribution = Fraction(unit.max_records * measure.largest)
    return histogram_sensitivity(
        contribution=contribution, norm=norm, neighbours=unit.neighbours, signed=measure.is_signed
    )


def tally_norms(true_norms: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return how many individuals have at most each of NORMS, and more than the one before.

    >>> tally_norms(np.array([0, 1, 1, 3, 5]))[:4].tolist()
    [2, 0, 1, 1]
    """
    places = np.searchsorted(NORMS, true_norms[true_norms > 0])
    return np.bincount(np.minimum(places, len(NORMS) - 1), minlength=len(NORMS)).astype(np.int64)


def tally_individuals(true_sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return how many individuals have at most each bound of records, and more than the one before.

    >>> tally_individuals(np.array([0, 1, 1, 3, 5000]))[:3].tolist()
    [2, 0, 1]
    """
    places = np.searchsorted(CAPS, true_sizes[true_sizes > 0])
    return np.bincount(np.minimum(places, len(CAPS) - 1), minlength=len(CAPS)).astype(np.int64)
