"""A released model as SQL: a SELECT with one CASE per term, plain enough for any database."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from sfumato.core.facts.column import Column
from sfumato.core.facts.domain import Bins, IntegerRange, Period, Tuples, Values

if TYPE_CHECKING:
    from sfumato.inference.models.additive import AdditiveModel, Score
    from sfumato.inference.models.regression import RegressionModel

_PARTS = {"year": "YEAR", "month": "MONTH", "hour": "HOUR"}
_MOST_BRANCHES = 16  # of bins of one width, before a line through them is written as a formula
_FAR = 700  # scores beyond it are more than EXP can take


def score_sql(model: AdditiveModel, columns: Mapping[str, Column], *, table: str) -> str:
    """Return the statement that predicts for every row of `table`."""
    unit = _double(model.unit)
    scores = [_sum(score, columns) for score in model.scores]
    if model.family == "classification":
        chances = [f"1.0 / (1.0 + EXP(-{unit} * ({score})))" for score in scores]
        if len(chances) == 1:
            shown = [f'{chances[0]} AS "probability"']
        else:
            total = " + ".join(f"({chance})" for chance in chances)
            shown = [
                f"({chance}) / ({total}) AS {quote(f'probability of {label}')}"
                for chance, label in zip(chances, model.classes, strict=True)
            ]
    else:
        inner = f"{unit} * ({scores[0]})"
        number = f"EXP({inner})" if model.family == "counts" else f"{_double(model.low)} + {inner}"
        shown = [f'{_hold(number, model.low, model.high)} AS "predicted"']
    return f"SELECT *, {', '.join(shown)} FROM {quote(table)}"


def regression_sql(model: RegressionModel, columns: Mapping[str, Column], *, table: str) -> str:
    """Return the statement that predicts for every row of `table` with a linear or logistic model."""
    parts, reach = [_double(model.constant)], abs(model.constant)
    for name, effects in model.effects.items():
        unknown = model.unknown[name]
        if not effects.any() and not unknown:
            continue
        reach += max(float(np.abs(effects).max()), abs(unknown))
        texts = [_double(each) for each in effects.tolist()]
        line = _line(columns[name], model.slopes[name], texts) if name in model.slopes else None
        parts.append(_case(columns[name], texts, rest=_double(unknown), line=line))
    score = " + ".join(parts)
    if model.bounds is not None:
        shown = f'{_hold(score, *model.bounds)} AS "predicted"'
    else:
        held = score if reach < _FAR else _hold(score, -_FAR, _FAR)
        shown = f'1.0 / (1.0 + EXP(-({held}))) AS "probability"'
    return f"SELECT *, {shown} FROM {quote(table)}"


def _hold(number: str, least: float | Fraction, most: float | Fraction) -> str:
    """Return `number`, held between two others."""
    low, high = _double(least), _double(most)
    return f"CASE WHEN {number} < {low} THEN {low} WHEN {number} > {high} THEN {high} ELSE {number} END"


def _line(column: Column, slope: float, scores: list[str]) -> list[tuple[str, str]] | None:
    """Return conditions for a line through the numbers of a column, or None if every code gets its own."""
    domain = column.domain
    size = len(scores) - len(column.extras)
    clamp = column.outside == "clamp"
    if isinstance(domain, Bins):
        low, high = domain.edges[0], domain.edges[-1]
        width = (high - low) / size
        if size <= _MOST_BRANCHES or any(two - one != width for one, two in pairwise(domain.edges)):
            return None
        # The first and the last bin are told from the others, so that no rounding leads out of the domain.
        name = quote(column.stored[0])
        place = f"FLOOR(({name} - {_double(low)}) / {_double(width)})"
        middle = f"{_double(slope)} * ({_double(low + width / 2)} + {_double(width)} * {place})"
        ends = (low, low + width, True, False), (high - width, high, False, True), (low, high, True, True)
        found = [_between(name, *end, clamp=clamp) for end in ends]
        return list(zip(found, (scores[0], scores[size - 1], middle), strict=True))
    name, low_end, high_end = _whole_number(column)
    found = [f"{name} BETWEEN {low_end} AND {high_end}"]
    texts = [f"{_double(slope)} * {name}"]
    if clamp:
        found += [f"{name} < {low_end}", f"{name} > {high_end}"]
        texts += [scores[0], scores[size - 1]]
    return list(zip(found, texts, strict=True))


def quote(name: str) -> str:
    """Return a name as SQL writes it."""
    return '"' + name.replace('"', '""') + '"'


def _sum(score: Score, columns: Mapping[str, Column]) -> str:
    parts = [str(score.intercept)]
    for shape in score.shapes:
        if shape.scores.any():
            texts = [str(each) for each in shape.scores.tolist()]
            parts.append(_nest([columns[name] for name in shape.columns], texts))
    return " + ".join(parts)


def _nest(columns: Sequence[Column], scores: list[str]) -> str:
    """Return the score of a term: by the first column, and within each of its values by the next."""
    column, rest = columns[0], columns[1:]
    if rest:
        step = len(scores) // column.size
        scores = [_nest(rest, scores[start : start + step]) for start in range(0, len(scores), step)]
    return _case(column, scores, rest="0")


def _case(column: Column, scores: list[str], *, rest: str, line: list[tuple[str, str]] | None = None) -> str:
    """Return score of one term: first of a missing value, then by value or `line`, at last of any other."""
    size = len(scores) - len(column.extras)
    extras = dict(zip(column.extras, scores[size:], strict=True))
    first = quote(column.stored[0])
    whens = []
    if column.missing_label is not None:
        absent = f"{first} IS NULL"
        if column.missing:
            absent += f" OR CAST({first} AS VARCHAR) IN ({', '.join(map(literal, column.missing))})"
        whens.append((absent, extras[column.missing_label]))
    whens += line or _conditions(column, scores[:size])
    rest = extras["other"] if column.outside == "other" else rest
    listed = " ".join(f"WHEN {condition} THEN {score}" for condition, score in whens if score != rest)
    # What is equal to the rest needs no branch of its own, unless a later one would catch it.
    if any(score == rest for _, score in whens):
        listed = " ".join(f"WHEN {condition} THEN {score}" for condition, score in whens)
    return f"CASE {listed} ELSE {rest} END" if listed else rest


def _conditions(column: Column, scores: list[str]) -> list[tuple[str, str]]:
    domain, name = column.domain, quote(column.stored[0])
    if isinstance(domain, Values):
        if column.calendar is not None:
            length = len(str(domain.labels[0]))
            name = f"SUBSTR(CAST(DATE_TRUNC('{column.calendar}', {name}) AS VARCHAR), 1, {length})"
        by_score: dict[str, list[str]] = {}
        for label, score in zip(domain.labels, scores, strict=True):
            by_score.setdefault(score, []).append(literal(label))
        return [(f"{name} IN ({', '.join(labels)})", score) for score, labels in by_score.items()]
    if isinstance(domain, Tuples):
        return [
            (
                " AND ".join(
                    f"{quote(part)} = {literal(each)}"
                    for part, each in zip(column.stored, value, strict=True)
                ),
                score,
            )
            for value, score in zip(domain.values, scores, strict=True)
        ]
    clamp = column.outside == "clamp"
    if isinstance(domain, Bins):
        edges = domain.edges
        return list(
            _runs(
                scores,
                lambda a, b: _between(
                    name, edges[a], edges[b + 1], a == 0, b == len(scores) - 1, clamp=clamp
                ),
            )
        )
    name, low, _ = _whole_number(column)

    def whole(a: int, b: int) -> str:
        if clamp and a == 0:
            return f"{name} <= {low + b}"
        if clamp and b == len(scores) - 1:
            return f"{name} >= {low + a}"
        return f"{name} BETWEEN {low + a} AND {low + b}"

    return list(_runs(scores, whole))


def _whole_number(column: Column) -> tuple[str, int, int]:
    """Return a column of whole numbers or parts of dates as SQL writes it, and its ends."""
    domain, name = column.domain, quote(column.stored[0])
    assert isinstance(domain, (IntegerRange, Period))
    if isinstance(domain, IntegerRange):
        return name, domain.low, domain.high
    part = _PARTS.get(domain.part)
    # Days of the week are numbered from Monday on.
    name = f"EXTRACT({part} FROM {name})" if part else f"(EXTRACT(ISODOW FROM {name}) - 1)"
    return name, domain.span.low, domain.span.high


def _between(name: str, low: Fraction, high: Fraction, first: bool, last: bool, *, clamp: bool) -> str:  # noqa: FBT001
    parts = []
    if not (clamp and first):
        parts.append(f"{name} >= {_number(low)}")
    if not (clamp and last):
        parts.append(f"{name} {'<=' if last else '<'} {_number(high)}")
    return " AND ".join(parts) or f"{name} IS NOT NULL"


def _runs(scores: list[str], condition: Callable[[int, int], str]) -> Iterator[tuple[str, str]]:
    """Return a condition for every run of equal scores, from its first code to its last."""
    start = 0
    for place in range(1, len(scores) + 1):
        if place == len(scores) or scores[place] != scores[start]:
            yield condition(start, place - 1), scores[start]
            start = place


def literal(value: int | str) -> str:
    """Return a label as SQL writes it."""
    return str(value) if isinstance(value, int) else "'" + value.replace("'", "''") + "'"


def _double(value: float | Fraction) -> str:
    """Return a number with an exponent, which no database takes for a decimal of few digits."""
    text = repr(float(value))
    return text if "e" in text else f"{text}e0"


def _number(value: Fraction) -> str:
    return str(int(value)) if value.denominator == 1 else repr(float(value))
