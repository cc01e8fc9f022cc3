"""Rules that hold in every row of a public table, proposed for approval and never applied.

Four kinds are looked for: dependences of two columns, orders and sums of numbers, and what one column says of
another: conditions that no row meets, and patterns of missing values. Whether a rule may hold by chance is
asked of independent columns: of how many rows they would break it. A rule is proposed only if chance would
not leave one like it among all that are tried.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations, permutations
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sfumato.core.engine.arrays import to_numpy
from sfumato.core.errors import RecipeError
from sfumato.core.exact import format_exact
from sfumato.core.facts.column import Column
from sfumato.core.facts.domain import Bins, IntegerRange, Period
from sfumato.recipes.shared.public import read_numbers, read_public_table
from sfumato.report.pages.words import list_names, plain_text
from sfumato.tables import quote_toml
from sfumato.tables.arrays import Flags, Floats, Whole
from sfumato.tables.codes import encode_public
from sfumato.tables.rules import quote_column

if TYPE_CHECKING:
    from sfumato.core.facts.table import Table


MOST_VALUES = 100
"""Numbers with more distinct values than this are cut into bins."""

BINS = 20

_MISSING = ("", "na", "n/a", "#n/a", "nan", "null", "none")  # among numbers that are written as text


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PublicCodes:
    """Codes for every row of a public table, by column, the size of each domain, and what is worth saying.

    `unknown` are described columns that the public table does not have.
    """

    codes: Mapping[str, Whole]
    sizes: Mapping[str, int]
    notes: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()


def read_columns(path: Path) -> pa.Table:
    """Return table in a Parquet, CSV or CSV.gz file, with columns of different names and at least one row."""
    shown = plain_text(path.name)
    rows, _ = read_public_table(path)
    names = rows.column_names
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise RecipeError(
            f"public table {shown!r} has several columns named {plain_text(twice[0])!r}; rename them"
        )
    if not names or not rows.num_rows:
        raise RecipeError(f"public table {shown!r} has no {'rows' if names else 'columns'}")
    return rows


def encode_values(rows: pa.Table, *, columns: Sequence[str] | None = None) -> PublicCodes:
    """Return the codes of the columns by their own values, a missing value being one of them.

    Numbers and dates with more than MOST_VALUES values are cut into BINS bins of about equal counts.

    >>> found = encode_values(pa.table({"a": ["x", "y", None], "b": [7, 7, 8]}))
    >>> found.codes["a"].tolist(), dict(found.sizes)
    ([0, 1, 2], {'a': 3, 'b': 2})
    """
    codes: dict[str, Whole] = {}
    sizes: dict[str, int] = {}
    binned, missing, own = [], [], []
    for name in _choose(rows.column_names, columns, where="the public table"):
        values = _plain_values(name, rows[name])
        if values.null_count == len(values):
            missing.append(name)
            continue
        distinct = pc.count_distinct(values).as_py()
        if not pa.types.is_floating(values.type) and distinct > max(MOST_VALUES, len(values) // 2):
            own.append(name)
        if distinct > MOST_VALUES and _is_number(values.type):
            codes[name] = _cut(values)
            binned.append(name)
        else:
            codes[name] = _number(values)
        sizes[name] = int(codes[name].max()) + 1
    if not codes:
        raise RecipeError("no column of the public table has a value")
    notes = (
        (binned, f"cut into {BINS} bins, because they have more than {MOST_VALUES} numbers or dates"),
        (missing, "left out, because they have no value in any row"),
        (own, "nearly a value of its own for every row; leave identifiers out (--columns)"),
        (_constant(codes), "one value in all rows: nothing to group, yet each takes a share of the budget"),
    )
    return PublicCodes(codes=codes, sizes=sizes, notes=_list_notes(notes))


def encode_described(rows: pa.Table, table: Table, *, columns: Sequence[str] | None = None) -> PublicCodes:
    """Return the codes of the columns by the domains of the described `table`, -1 outside of them."""
    described = [name for name, column in table.columns.items() if column.domain is not None]
    codes: dict[str, Whole] = {}
    sizes: dict[str, int] = {}
    unknown = []
    for name in _choose(described, columns, where=f"table {table.name!r}, with a domain"):
        column = table.column(name)
        if set(column.stored) <= set(rows.column_names):
            codes[name] = encode_public(column, rows)
        else:
            unknown.append(name)
            codes[name] = np.full(rows.num_rows, -1, np.int64)
        sizes[name] = column.size
    if len(unknown) == len(codes):
        raise RecipeError(f"the public table has none of the columns of table {table.name!r}")
    outside = [name for name in codes if name not in unknown and int(codes[name].max()) < 0]
    notes = (
        (unknown, "not in the public table, so they stay alone"),
        (
            outside,
            "no public row has a value of the domain, so they stay alone; are values written otherwise?",
        ),
        (_constant(codes), "one value in all rows: nothing to group, yet each takes a share of the budget"),
    )
    return PublicCodes(codes=codes, sizes=sizes, notes=_list_notes(notes), unknown=tuple(unknown))


def _choose(names: Sequence[str], chosen: Sequence[str] | None, *, where: str) -> list[str]:
    if chosen is None:
        return list(names)
    strange = [name for name in chosen if name not in names]
    if strange:
        raise RecipeError(f"no column {plain_text(strange[0])!r} in {where}")
    # In the order of the table, each once: the groups do not depend on how the option is typed.
    return [name for name in names if name in set(chosen)]


def _plain_values(name: str, column: pa.ChunkedArray) -> pa.Array:
    """Return the values as numbers or text, missing where there is none."""
    values = column.combine_chunks()
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    kind = values.type
    if pa.types.is_null(kind):
        return pa.nulls(len(values), pa.int64())
    if pa.types.is_boolean(kind):
        return values
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        few = pc.count_distinct(values).as_py() <= MOST_VALUES
        return values if few else _read_numbers(values)
    numbers = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    if numbers or (pa.types.is_temporal(kind) and kind != pa.month_day_nano_interval()):
        return _plain_numbers(values)
    what = "text that is not UTF-8" if pa.types.is_binary(kind) else "neither numbers, text nor dates"
    raise RecipeError(
        f"column {plain_text(name)!r} of the public table holds {what}; save the file as UTF-8, or choose "
        "other columns (--columns)"
    )


def _read_numbers(values: pa.Array) -> pa.Array:
    """Return text as the numbers or dates it is written for, if all of it is; otherwise as it is."""
    marked = pc.is_in(pc.utf8_lower(values), value_set=pa.array(_MISSING, values.type))
    known = pc.if_else(marked, None, values)
    if known.null_count == len(known):
        return values
    for kind in (pa.int64(), pa.float64(), pa.timestamp("us")):
        try:
            return _plain_numbers(known.cast(kind))
        except pa.ArrowException:
            continue
    return values


def _plain_numbers(values: pa.Array) -> pa.Array:
    """Return numbers and dates as numbers, missing where there is none."""
    kind = values.type
    if pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        values = values.cast(pa.float64(), safe=False)
        return pc.if_else(pc.is_nan(values), None, values)
    if pa.types.is_temporal(kind):
        return values.cast(pa.int32() if kind.bit_width == 32 else pa.int64())
    return values


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))


def _number(values: pa.Array) -> Whole:
    """Return a number for every distinct value, in order of appearance; the last one for a missing value."""
    encoded = values.dictionary_encode()
    return to_numpy(encoded.indices.fill_null(len(encoded.dictionary))).astype(np.int64)


def _cut(values: pa.Array) -> Whole:
    """Return bins of numbers, by cuts at equal shares of the rows; a frequent number has a bin of its own."""
    known = to_numpy(values.is_valid().cast(pa.uint8())).astype(bool)
    numbers = to_numpy(values.drop_null())
    ordered = np.sort(numbers)
    cuts = ordered[np.arange(1, BINS) * ordered.size // BINS]
    often = np.unique(cuts[1:][cuts[1:] == cuts[:-1]])
    after = np.searchsorted(ordered, often, side="right")
    cuts = np.unique(np.concatenate([cuts, ordered[after[after < ordered.size]]]))
    bins = np.searchsorted(cuts, numbers, side="right")
    codes = np.full(len(values), cuts.size + 1, np.int64)
    codes[known] = bins
    return np.unique(codes, return_inverse=True)[1].reshape(-1).astype(np.int64)


def _constant(codes: Mapping[str, Whole]) -> list[str]:
    return [name for name, each in codes.items() if each.max() >= 0 and each.max() == each.min()]


def _list_notes(notes: Sequence[tuple[Sequence[str], str]]) -> tuple[str, ...]:
    return tuple(f"{list_names(names)}: {text}" for names, text in notes if names)


MOST_RULES = 12
"""Rules that are proposed, of `rules` and of `impossible` each."""

_CHANCE = 1e-3  # of one rule among all that are tried, if columns were independent
_MOST_CELLS = 2**20
_MOST_TRIED = 1000  # conditions, the best first, of which those are left out that follow from others
_MOST_PARTS = 3  # of a sum
_MOST_EACH = 2  # conditions of the same two columns
_SAMPLE = 64
_LISTED = 20  # whole numbers up to which each of them is a value of its own
_FEW = 10  # values that make numbers of codes, and rows in which a part of a sum is there
_DIGITS = 6

_Codes = Mapping[str, Whole]
_Numbers = Mapping[str, Floats]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProposedRule:
    """A rule as a project file states it under `key`.

    It holds in all `rows` public rows that it speaks of; independent columns would `break` it that often.
    """

    key: Literal["rules", "impossible"]
    text: str
    rows: int
    broken: float

    def describe(self) -> str:
        """Return what speaks for it."""
        return f"held in all {self.rows:,} public rows; by chance about {self.broken:,.0f} would break it"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Side:
    """Some of the codes that occur in a column, and how a condition states them."""

    column: str
    codes: Flags
    text: str


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Apart:
    """Two sides that no row has both; of independent columns so many rows would."""

    one: _Side
    other: _Side
    broken: float


def find_rules(columns: Mapping[str, Column], rows: pa.Table) -> tuple[ProposedRule, ...]:
    """Rules of described `columns` that hold in all of the public `rows`, the best first under each key.

    >>> from sfumato.core.facts.column import parse_column
    >>> described = {name: parse_column(name, {"range": [0, 99]}) for name in ("age", "school")}
    >>> ages = np.arange(1000) % 100
    >>> found = find_rules(described, pa.table({"age": ages, "school": np.minimum(ages, 12)}))
    >>> [rule.text for rule in found if rule.key == "rules"]
    ['age -> school', 'school <= age']
    """
    known = {
        name: column
        for name, column in columns.items()
        if column.domain is not None
        and not isinstance(column.domain, Period)
        and set(column.stored) <= set(rows.column_names)
    }
    codes = {name: encode_public(column, rows) for name, column in known.items()}
    numbers = {
        name: read_numbers(column, rows)
        for name, column in known.items()
        if isinstance(column.domain, Bins | IntegerRange)
    }
    numbers = {
        name: each for name, each in numbers.items() if np.unique(each[np.isfinite(each)]).size >= _FEW
    }
    depends = _find_dependences(known, codes)
    sums = list(_find_sums(numbers))
    orders = _find_orders(numbers, sums)
    conditions = _find_conditions(
        known,
        codes,
        decided={pair for pair, _ in depends},
        ordered={pair for names, *_ in [*sums, *orders] for pair in permutations(names, 2)},
    )
    stated = [
        *(
            ProposedRule(key="rules", text=text, rows=count, broken=broken)
            for _, text, count, broken in [*sums, *orders]
        ),
        *(rule for _, rule in depends),
        *conditions,
    ]
    stated.sort(key=lambda rule: (-rule.broken, rule.text))
    kept = [[rule for rule in stated if rule.key == key][:MOST_RULES] for key in ("rules", "impossible")]
    return (*kept[0], *kept[1])


def draft_rules(rules: Sequence[ProposedRule], *, origin: str) -> list[str]:
    """Lines of a project file, all of them comments, that propose `rules` found in the table `origin`."""
    if not rules:
        return []
    lines = [
        f"# Rules that hold in every row of {quote_toml(origin)}. They are proposed and not in force:",
        "# keep what you know to hold for everybody, strike out the rest, and take away the first #.",
    ]
    for key in ("rules", "impossible"):
        own = [rule for rule in rules if rule.key == key]
        if own:
            entries = [f"#   {quote_toml(rule.text)},  # {rule.describe()}" for rule in own]
            lines += [f"# {key} = [", *entries, "# ]"]
    return lines


def _find_dependences(
    columns: Mapping[str, Column], codes: _Codes
) -> list[tuple[tuple[str, str], ProposedRule]]:
    """Pairs of columns of which the first decides the second, without those that follow from others."""
    found: dict[tuple[str, str], tuple[int, float]] = {}
    needed = _needed(len(columns) ** 2)
    for one, other in combinations(columns, 2):
        table = _count(columns, codes, one, other)
        if table is None:
            continue
        for pair, counts in (((one, other), table), ((other, one), table.T)):
            sizes, shares = counts.sum(axis=1), counts.sum(axis=0) / counts.sum()
            if (shares > 0).sum() < 2 or ((counts > 0).sum(axis=1) > 1).any():
                continue
            # The logarithm of the chance that all rows of a value agree, over all values.
            often = sizes[sizes > 1]
            most = float(shares.max())
            chance = sum(
                size * math.log(most) + math.log(float(((shares / most) ** size).sum()))
                for size in often.tolist()
            )
            if -chance > needed:
                repeated = (often - 1).sum() * (1 - float((shares**2).sum()))
                found[pair] = (int(sizes.sum()), float(repeated))
    through = {
        (one, other)
        for one, other in found
        for middle in columns
        if (one, middle) in found and (middle, other) in found and (other, middle) not in found
        and (middle, one) not in found
    }  # fmt: skip
    return [
        (
            pair,
            ProposedRule(
                key="rules",
                text=f"{quote_column(pair[0])} -> {quote_column(pair[1])}",
                rows=count,
                broken=broken,
            ),
        )
        for pair, (count, broken) in found.items()
        if pair not in through
    ]


def _find_orders(
    numbers: _Numbers, sums: Sequence[tuple[tuple[str, ...], str, int, float]]
) -> list[tuple[tuple[str, ...], str, int, float]]:
    """Pairs of numbers of which the first never exceeds the second, without those that follow from others."""
    found: dict[tuple[str, str], tuple[int, float]] = {}
    needed = _needed(len(numbers) ** 2)
    added = {(part, each[0]) for each, *_ in sums for part in each[1:]}
    for low, high in permutations(numbers, 2):
        both = np.isfinite(numbers[low]) & np.isfinite(numbers[high])
        one, other = numbers[low][both], numbers[high][both]
        if (low, high) in added or not one.size or (one > other).any() or not (one < other).any():
            continue
        # Of independent columns, the share of rows that would be the other way round.
        above = 1 - np.searchsorted(np.sort(one), other, side="right").sum() / one.size**2
        if above * one.size > needed:
            found[low, high] = (int(one.size), float(above * one.size))
    through = {
        (low, high) for low, high in found for mid in numbers if (low, mid) in found and (mid, high) in found
    }
    return [
        (pair, f"{quote_column(pair[0])} <= {quote_column(pair[1])}", count, broken)
        for pair, (count, broken) in found.items()
        if pair not in through
    ]


def _find_sums(numbers: _Numbers) -> Iterator[tuple[tuple[str, ...], str, int, float]]:
    """Numbers that are the sum of two or three others in every row, found in a few rows and then checked."""
    whole = np.ones(next(iter(numbers.values()), np.empty(0)).size, np.bool_)
    for each in numbers.values():
        whole &= np.isfinite(each)
    names = [name for name in numbers if np.unique(numbers[name][whole]).size > 1]
    if whole.sum() < _SAMPLE or len(names) < 3:
        return
    places = np.flatnonzero(whole)[:: max(1, int(whole.sum()) // _SAMPLE)]
    few = {name: numbers[name][places] for name in names}
    pairs = {_key(few[one] + few[other]): (one, other) for one, other in combinations(names, 2)}
    for total in names:
        wholes: list[tuple[str, ...] | None] = [pairs.get(_key(few[total]))]
        wholes += [
            (part, *pairs[_key(few[total] - few[part])])
            for part in names
            if part != total and _key(few[total] - few[part]) in pairs
        ]  # fmt: skip
        for parts in dict.fromkeys(tuple(sorted(each)) for each in wholes if each is not None):
            if total in parts or len(set(parts)) < len(parts) or len(parts) > _MOST_PARTS:
                continue
            known = np.min([np.isfinite(numbers[name]) for name in (total, *parts)], axis=0)
            added = sum(numbers[name][known] for name in parts)
            # A part that is next to never there is none.
            several = [int(np.count_nonzero(numbers[name][known])) for name in parts]
            if np.abs(added - numbers[total][known]).max() < 10**-_DIGITS and min(several) >= _FEW:
                shares = np.unique(numbers[total][known], return_counts=True)[1] / known.sum()
                broken = float(known.sum() * (1 - (shares**2).sum()))
                text = f"{quote_column(total)} = {' + '.join(map(quote_column, parts))}"
                yield (total, *parts), text, int(known.sum()), broken
                break


def _key(numbers: Floats) -> bytes:
    return (np.round(numbers, _DIGITS) + 0.0).tobytes()


def _find_conditions(
    columns: Mapping[str, Column],
    codes: _Codes,
    *,
    decided: Collection[tuple[str, str]],
    ordered: Collection[tuple[str, str]],
) -> list[ProposedRule]:
    """Patterns of missing values, and conditions that no row meets, without those that follow from others.

    Pairs of which one is `decided` by the other need none for that, and pairs that are `ordered` none at all.
    """
    seen = {name: np.unique(codes[name][codes[name] >= 0]) for name in columns}
    sides = {name: list(_list_sides(column, seen[name])) for name, column in columns.items()}
    needed = _needed(sum(map(len, sides.values())) ** 2)
    found: list[tuple[_Apart, str | None, int]] = []
    kept: dict[str, list[tuple[_Side, _Side]]] = {name: [] for name in columns}

    def keep(one: _Side, other: _Side) -> None:
        kept[one.column].append((one, other))
        kept[other.column].append((other, one))

    # Of columns that decide each other one speaks for both.
    twins = {max(pair) for pair in decided if pair[::-1] in decided}
    for one, other in combinations([name for name in columns if name not in twins], 2):
        table = _count(columns, codes, one, other)
        if table is None or (one, other) in ordered or (other, one) in ordered:
            continue
        table = table[np.ix_(seen[one], seen[other])]
        for first, second, counts in ((one, other, table), (other, one, table.T)):
            if (first, second) in decided:
                for side, never in _follow_dependence(sides[first], counts, second):
                    keep(side, never)
            rows = int(counts.sum())
            found += [
                (each, text, rows)
                for each, text in _find_missing(sides[first], sides[second], counts, needed)
            ]
            found += [(each, None, rows) for each in _find_apart(sides[first], sides[second], counts, needed)]
    # A pattern of missing values says more than a condition that is as good.
    found.sort(key=lambda each: (-each[0].broken, each[1] is None))
    rules: list[ProposedRule] = []
    told: Counter[frozenset[str]] = Counter()
    for each, text, rows in found[:_MOST_TRIED]:
        pair = frozenset((each.one.column, each.other.column))
        if told[pair] >= _MOST_EACH or _follows(each, kept):
            continue
        told[pair] += 1
        keep(each.one, each.other)
        stated = f"{each.one.text} and {each.other.text}" if text is None else text
        key: Literal["rules", "impossible"] = "impossible" if text is None else "rules"
        rules.append(ProposedRule(key=key, text=stated, rows=rows, broken=each.broken))
        if text is not None:
            keep(_deny(each.one), _deny(each.other))
    return rules


def _list_sides(column: Column, seen: Whole) -> Iterator[_Side]:
    """What a condition may say of a column: that it has a value or not, and numbers below or from a bound.

    Codes are places among those `seen`. Of a missing value only `is missing` speaks.
    """
    domain, name = column.domain, quote_column(column.name)
    assert domain is not None
    label = column.missing_label
    missing = np.array(
        [label is not None and column.labels[code] == label for code in seen.tolist()], np.bool_
    )

    def say(codes: Flags, text: str) -> _Side:
        return _Side(column=column.name, codes=codes, text=f"{name} {text}")

    if missing.any():
        yield say(missing, "is missing")
        yield say(~missing, "is not missing")
    if isinstance(domain, Bins | IntegerRange):
        for code in seen[(seen > 0) & (seen < domain.size)].tolist():
            edge = domain.edges[code] if isinstance(domain, Bins) else Fraction(domain.low + code)
            yield say((seen < code) & ~missing, f"< {format_exact(edge)}")
            yield say((seen >= code) & (seen < domain.size) & ~missing, f">= {format_exact(edge)}")
    if isinstance(domain, Bins) or (isinstance(domain, IntegerRange) and column.size > _LISTED):
        return
    for code in seen[(seen < domain.size) & ~missing].tolist():
        value = column.labels[code]
        shown = str(value) if isinstance(value, int) else "'" + str(value).replace("'", "''") + "'"
        yield say(seen == code, f"= {shown}")
        yield say((seen != code) & ~missing, f"!= {shown}")


def _find_apart(
    ones: Sequence[_Side], others: Sequence[_Side], counts: Whole, needed: float
) -> Iterator[_Apart]:
    """Return for each side of the second column the largest of the first that no row has with it."""
    if not ones or not others:
        return
    first, second = (np.array([side.codes for side in each], np.float64) for each in (ones, others))
    met = np.rint(first @ counts @ second.T)
    expected = np.outer(first @ counts.sum(axis=1), second @ counts.sum(axis=0)) / counts.sum()
    broken = np.where(met == 0, expected, 0.0)
    for place in np.flatnonzero(broken.max(axis=0) > needed).tolist():
        best = int(np.argmax(broken[:, place]))
        yield _Apart(one=ones[best], other=others[place], broken=float(broken[best, place]))


def _find_missing(
    ones: Sequence[_Side], others: Sequence[_Side], counts: Whole, needed: float
) -> Iterator[tuple[_Apart, str]]:
    """Return what the second column says exactly where the first is missing."""
    missing = next((side for side in ones if side.text.endswith(" is missing")), None)
    if missing is None:
        return
    within = counts[missing.codes].sum(axis=0)
    size = int(within.sum())
    for side in others:
        same = int(within[side.codes].sum()) == size == int(counts[:, side.codes].sum())
        broken = size * (1 - size / int(counts.sum()))
        if same and broken > needed:
            yield (
                _Apart(one=missing, other=_deny(side), broken=broken),
                f"{missing.text} exactly when {side.text}",
            )
            return


def _follow_dependence(ones: Sequence[_Side], counts: Whole, decided: str) -> Iterator[tuple[_Side, _Side]]:
    """Return each value of a column that decides another, apart from what it does not decide."""
    for side in ones:
        if side.codes.sum() == 1:
            never = counts[side.codes].sum(axis=0) == 0
            yield side, _Side(column=decided, codes=never, text="")


def _follows(each: _Apart, kept: Mapping[str, Sequence[tuple[_Side, _Side]]]) -> bool:
    """Return whether that two sides are apart follows from those `kept`, by any number of steps.

    What is kept is listed by the column of the first of two sides.
    """
    known = {each.one.column: each.one.codes}
    changed = [each.one.column]
    while changed:
        codes = known[changed[-1]]
        for given, never in kept.get(changed.pop(), ()):
            before = known.get(never.column)
            if (codes & ~given.codes).any() or (before is not None and not (before & never.codes).any()):
                continue
            known[never.column] = ~never.codes if before is None else before & ~never.codes
            if never.column == each.other.column and not (known[never.column] & each.other.codes).any():
                return True
            changed.append(never.column)
    return False


def _deny(side: _Side) -> _Side:
    return _Side(column=side.column, codes=~side.codes, text="")


def _count(columns: Mapping[str, Column], codes: _Codes, one: str, other: str) -> Whole | None:
    """Return public rows by the values of two columns; None where combinations are too many, or no rows."""
    shape = columns[one].size, columns[other].size
    if shape[0] * shape[1] > _MOST_CELLS:
        return None
    known = (codes[one] >= 0) & (codes[other] >= 0)
    cells = codes[one][known] * shape[1] + codes[other][known]
    return np.bincount(cells, minlength=shape[0] * shape[1]).reshape(shape) if cells.size else None


def _needed(tried: int) -> float:
    """Return how many rows must speak for a rule, if so many are tried: its chance is e to the minus that."""
    return math.log(max(1, tried) / _CHANCE)
