"""The metric of the third match of 2018: marginals of three columns, conjunctions, incomes by city."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sfumato.core.errors import MetricError
from sfumato.metrics.columns import (
    align_counts,
    code_text,
    is_text,
    pack_codes,
    plain_column,
    read_sides,
    to_numbers,
    total_variation,
    whole_numbers,
)
from sfumato.metrics.k_marginal import require_records
from sfumato.tables.arrays import Floats, Whole

if TYPE_CHECKING:
    import pyarrow as pa

    from sfumato.tables.read import TableLike

# The contest's constants (docs/metrics.md).
_LARGEST = 1_000_000
_LEAST_SHARE = 1e-6  # as the contest has it, since a share of zero has no logarithm
_ALL_LOST = math.log(0.001)  # a root mean square error of a factor of 1000 scores nothing
_TRIPLES = 100
_BASE_ROWS = 300
_KEPT = 0.1

_FOREIGN = -1  # the code of a released value outside the domain
_BATCH = 1024  # values that are drawn at a time

_INCOME = ("SEX", "CITY", "INCWAGE")
_NOT_AVAILABLE = 999_998
_MAN, _WOMAN = 1, 2

Codes = dict[str, Whole]


class Condition(NamedTuple):
    """A column and the values that pass."""

    column: str
    allowed: Whole


class City(NamedTuple):
    """A city, the Gini coefficient of its wages, and the mean wage of men less that of women."""

    code: int
    gini: float
    pay_gap: float


@dataclass(frozen=True, slots=True, eq=False)
class Match3:
    """Three scores from 0 to 1,000,000, and what they were made of.

    `triples` holds the overlap of every marginal test, `shares` the share of records that pass every
    conjunction (truth, release), `cities` what was measured per city of the truth.
    """

    marginals: float
    conjunctions: float
    income: float | None
    triples: Floats
    shares: Floats
    cities: tuple[City, ...]

    @property
    def score(self) -> float:
        """The mean of the scores."""
        parts = [self.marginals, self.conjunctions]
        parts += [] if self.income is None else [self.income]
        return sum(parts) / len(parts)

    def of_no_records(self) -> Match3:
        """Returns what a release without any record would score."""
        shares = self.shares.copy()
        shares[:, 1] = 0
        return replace(
            self,
            marginals=0.0,
            conjunctions=_score_conjunctions(shares),
            income=None if self.income is None else 0.0,
            triples=np.zeros_like(self.triples),
            shares=shares,
        )

    def __repr__(self) -> str:
        income = "none" if self.income is None else f"{self.income:.0f}"
        return (
            f"Match3(score={self.score:.0f}, marginals={self.marginals:.0f}, "
            f"conjunctions={self.conjunctions:.0f}, income={income})"
        )

    def to_record(self) -> dict[str, Any]:
        """Returns the score as a plain record."""
        return {name: getattr(self, name) for name in ("score", "marginals", "conjunctions", "income")}


def match3(
    truth: TableLike,
    release: TableLike,
    *,
    largest: Mapping[str, int] | None = None,
    marginal_tests: Sequence[Any] | None = None,
    conjunction_tests: Sequence[Any] | None = None,
    income: Sequence[str] | None = _INCOME,
    seed: int = 0,
) -> Match3:
    """Returns the score of `release`, a table of whole numbers that may lack columns of `truth`.

    `largest` gives the largest value of each column's domain 0 .. largest, by default the largest of
    the truth. `marginal_tests` lists three columns each, by name or place; `conjunction_tests` lists
    conditions each, a column and its allowed values. Tests that are not given are drawn from the
    public `seed`: 100 triples and up to 300 conjunctions. `income` names the columns of sex (1 man, 2
    woman), city and wage; None leaves that score out.

    >>> people = {"SEX": [1, 2, 1, 2], "CITY": [0, 0, 5, 5], "INCWAGE": [90, 70, 40, 80], "AGE": [3, 4, 5, 6]}
    >>> match3(people, people).score
    1000000.0
    """
    ours, theirs = read_sides(truth, release)
    names = tuple(ours.column_names)
    require_records(ours, theirs, ())
    true_codes = {name: whole_numbers(ours, name, side="truth") for name in names}
    if below := [name for name in names if true_codes[name].min() < 0]:
        raise MetricError(f"truth: column {below[0]!r} must hold whole numbers from 0")
    sizes = _domain_sizes(true_codes, largest)
    codes = {name: _codes(theirs, name, sizes[name]) for name in names if name in theirs.column_names}
    if marginal_tests is None:
        marginal_tests = draw_triples(names, seed=seed)
    if conjunction_tests is None:
        conjunction_tests = draw_conjunctions(true_codes, sizes, seed=seed)
    triples = np.array([_overlap(_columns(test, names), true_codes, codes, sizes) for test in marginal_tests])
    conditions = [_conditions(test, names) for test in conjunction_tests]
    shares = np.array(
        [
            (_passing(each, true_codes, ours.num_rows), _passing(each, codes, theirs.num_rows))
            for each in conditions
        ]
    ).reshape(-1, 2)
    score, cities = _score_income(true_codes, theirs, income)
    return Match3(
        marginals=_LARGEST * float(triples.mean()) if triples.size else 0.0,
        conjunctions=_score_conjunctions(shares),
        income=score,
        triples=triples,
        shares=shares,
        cities=cities,
    )


def _score_conjunctions(shares: Floats) -> float:
    if not shares.size:
        return 0.0
    if (shares[:, 0] <= 0).any():
        raise MetricError("a conjunction test is passed by no record of the truth")
    errors = np.log(np.maximum(shares[:, 1], _LEAST_SHARE)) - np.log(shares[:, 0])
    return _LARGEST * max(0.0, 1 + math.sqrt(float(np.mean(errors**2))) / _ALL_LOST)


def _score_income(
    truth: Codes, release: pa.Table, income: Sequence[str] | None
) -> tuple[float | None, tuple[City, ...]]:
    if income is None:
        return None, ()
    missing = [name for name in income if name not in truth]
    if missing:
        raise MetricError(
            f"truth: no column {missing[0]!r} for the income score; name its columns, or leave it out"
        )
    cities = measure_cities(*(truth[name] for name in income))
    if len(cities) < 2:
        raise MetricError("truth: the income score needs at least two cities")
    if any(name not in release.column_names for name in income):
        return 0.0, tuple(cities.values())
    found = measure_cities(*(_codes(release, name, None) for name in income))
    return _LARGEST * score_cities(cities, found), tuple(cities.values())


def _overlap(columns: tuple[str, ...], truth: Codes, release: Codes, sizes: Mapping[str, int]) -> float:
    """1 - half of the sum of differences of shares over all value triples."""
    if any(name not in release for name in columns):
        return 0.0  # every record in one foreign cell
    # One code more for what is foreign.
    widths = [sizes[name] + 1 for name in columns]
    keys = [
        pack_codes([np.where(side[name] == _FOREIGN, sizes[name], side[name]) for name in columns], widths)
        for side in (truth, release)
    ]
    _, (ours, theirs) = align_counts(keys, math.prod(widths))
    return 1 - total_variation(ours, theirs)


def _passing(conditions: tuple[Condition, ...], codes: Codes, rows: int) -> float:
    """Returns the share of records whose values are all allowed; a column that is not there allows all."""
    left: NDArray[np.intp] | None = None
    for name, allowed in sorted(conditions, key=lambda condition: condition.allowed.size):
        if name in codes:
            values = codes[name] if left is None else codes[name][left]
            passed = np.isin(values, allowed)
            left = np.flatnonzero(passed) if left is None else left[passed]
    return 1.0 if left is None else left.size / rows


def _columns(test: object, names: tuple[str, ...]) -> tuple[str, ...]:
    listed = test["columns"] if isinstance(test, Mapping) else test
    if not isinstance(listed, Sequence) or len(listed) != 3:
        raise MetricError("a marginal test lists three columns")
    return tuple(_name(column, names) for column in listed)


def _conditions(test: object, names: tuple[str, ...]) -> tuple[Condition, ...]:
    listed = test["conditions"] if isinstance(test, Mapping) else test
    if not isinstance(listed, Sequence):
        raise MetricError("a conjunction test lists conditions: a column and its allowed values each")
    conditions = []
    for each in listed:
        column, allowed = (each["column"], each["allowed"]) if isinstance(each, Mapping) else each
        conditions.append(Condition(_name(column, names), np.asarray(allowed, np.int64)))
    return tuple(conditions)


def _name(column: object, names: tuple[str, ...]) -> str:
    if isinstance(column, str) and column in names:
        return column
    if isinstance(column, int) and 0 <= column < len(names):
        return names[column]
    raise MetricError(f"a test names column {column!r}, which the truth does not have")


def _codes(table: pa.Table, name: str, size: int | None) -> Whole:
    """Reads a released column; what is blank, not whole or outside 0 .. size - 1 is foreign."""
    array = plain_column(table, name)
    if is_text(array):
        codes, words = code_text(array)
        numbers = np.array([_parse(word) for word in words], np.float64)[codes]
    else:
        numbers = to_numbers(array).astype(np.float64)
    known = np.isfinite(numbers) & (numbers == np.floor(numbers)) & (numbers >= 0)
    known &= numbers < (2**53 if size is None else size)
    return np.where(known, numbers, _FOREIGN).astype(np.int64)


def _parse(word: object) -> float:
    text = str(word).strip()
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 16 else _FOREIGN


def _domain_sizes(truth: Codes, largest: Mapping[str, int] | None) -> dict[str, int]:
    sizes = {}
    for name, codes in truth.items():
        highest = int(codes.max())
        sizes[name] = 1 + int((largest or {}).get(name, highest))
        if highest >= sizes[name]:
            raise MetricError(f"truth: column {name!r} holds values above the largest of its domain")
    return sizes


def draw_triples(names: Sequence[str], *, seed: int, count: int = _TRIPLES) -> list[tuple[str, ...]]:
    """Returns `count` triples of different columns; the last column is never drawn, as in the contest.

    >>> draw_triples(("a", "b", "c", "d"), seed=0, count=1)
    [('c', 'a', 'b')]
    """
    if len(names) < 4:
        raise MetricError("truth needs at least four columns to draw triples from all but the last")
    generator = np.random.default_rng([seed, 1])
    return [
        tuple(names[place] for place in generator.permutation(len(names) - 1)[:3].tolist())
        for _ in range(count)
    ]


def draw_conjunctions(
    truth: Mapping[str, Whole], sizes: Mapping[str, int], *, seed: int, rows: int = _BASE_ROWS
) -> list[tuple[Condition, ...]]:
    """Returns one test per distinct base row: some columns, each with the row's value and further drawn ones.

    A column enters with probability 0.1. Values are added to its allowed set until one is drawn that
    the set has already.
    """
    generator = np.random.default_rng([seed, 2])
    records = next(iter(truth.values())).size
    base = np.unique(generator.integers(0, records, size=rows))
    return [
        tuple(
            Condition(name, _draw_allowed(int(codes[row]), sizes[name], generator))
            for name, codes in truth.items()
            if generator.random() < _KEPT
        )
        for row in base.tolist()
    ]


def _draw_allowed(value: int, size: int, generator: np.random.Generator) -> Whole:
    drawn = np.array([value], np.int64)
    while True:
        drawn = np.concatenate([drawn, generator.integers(0, size, size=_BATCH)])
        _, first = np.unique(drawn, return_index=True)
        if first.size < drawn.size:  # cut before the first value that was drawn a second time
            repeated = np.ones(drawn.size, np.bool_)
            repeated[first] = False
            return drawn[: int(np.argmax(repeated))]


def measure_cities(sex: Whole, city: Whole, wage: Whole) -> dict[int, City]:
    """Gives every city in the order of its first record; wages of 999,998 and more, or below 0, do not count.

    >>> measure_cities(np.array([1, 2]), np.array([4, 4]), np.array([30, 10]))
    {4: City(code=4, gini=-0.25, pay_gap=20.0)}
    """
    known = city >= 0
    sex, city, wage = sex[known], city[known], wage[known]
    codes, first, inverse = np.unique(city, return_index=True, return_inverse=True)
    paid = (wage >= 0) & (wage < _NOT_AVAILABLE)
    # By city, then by wage: a city's wages are a slice, sorted as the Gini coefficient needs them.
    order = np.lexsort((wage[paid], inverse[paid]))
    wages, cities, sexes = wage[paid][order].astype(np.float64), inverse[paid][order], sex[paid][order]
    starts = np.searchsorted(cities, np.arange(codes.size + 1))
    measured = {}
    for place in np.argsort(first, kind="stable").tolist():
        part = slice(int(starts[place]), int(starts[place + 1]))
        paid_to = (wages[part][sexes[part] == sex] for sex in (_MAN, _WOMAN))
        men, women = (float(each.mean()) if each.size else 0.0 for each in paid_to)
        code = int(codes[place])
        measured[code] = City(code, _gini(wages[part]), men - women)
    return measured


def score_cities(truth: Mapping[int, City], release: Mapping[int, City]) -> float:
    """Returns how well the release keeps every city's inequality and its rank by pay gap, from 0 to 1."""
    ranks, found = _rank(truth), _rank(release)
    both = [code for code in truth if code in release]
    inequality = sum((1 - abs(truth[code].gini - release[code].gini)) ** 2 for code in both)
    steps = len(truth) - 1
    ranking = sum(max(0.0, 1 - abs(ranks[code] - found[code]) / steps) ** 2 for code in both)
    return (math.sqrt(inequality / len(truth)) + math.sqrt(ranking / len(truth))) / 2


def _rank(cities: Mapping[int, City]) -> dict[int, int]:
    ordered = sorted(cities.values(), key=lambda city: -city.pay_gap)  # ties keep their order
    return {city.code: rank for rank, city in enumerate(ordered)}


def _gini(wages: Floats) -> float:
    total = float(wages.sum())
    if not total:
        return 1.0
    # The contest's formula, which is lower than the usual one by 1 / n.
    return 1 - 2 * float(np.cumsum(wages).sum()) / (wages.size * total)
