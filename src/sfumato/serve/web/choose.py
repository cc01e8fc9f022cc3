"""Questions without SQL: what a form may choose of a table, the statement that it means, what errors cost.

All choices come from public facts of the project file. A price is asked of the planner for every error that
is offered, as EXPLAIN and WITHIN do: nothing is read and nothing is spent.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, TypeGuard

from sfumato.core.dates import read_day
from sfumato.core.errors import RecipeError, SfumatoError
from sfumato.core.exact import format_exact, parse_exact
from sfumato.report.pages.words import short

if TYPE_CHECKING:
    from sfumato.serve.service import Service
    from sfumato.serve.state import User

MOST_KEYS = 200  # values of a column that answers are divided by
_MOST_GROUPS = 2000
_MOST_LISTED = 2000  # values of a column that may be picked
_PERIODS = {"month": (1, 12), "hour": (0, 23)}
_NAMES = {"AVG": "average", "SUM": "total", "MEDIAN": "median"}
_PRICES = (Fraction(1, 50), Fraction(1, 20), Fraction(1, 10), Fraction(1, 5), Fraction(1, 2), Fraction(1))


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnOffer:
    """A column of which something may be chosen: `size` values to divide by, 0 if it has too many or none.

    It is filtered by some of its `values`, each with its name for people and whether it is picked, or between
    `ends`, with what was typed for each, which says nothing of whole groups if they are `binned`; `numeric`
    ones can be averaged. `condition` is what was chosen.
    """

    name: str
    size: int
    values: Sequence[tuple[str, str, bool]]
    ends: Sequence[tuple[str, str, str]]
    numeric: bool
    binned: bool
    condition: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Rung:
    """An error that may be chosen: how a statement asks for it, in words, and its price."""

    head: str
    words: str
    price: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenQuestion:
    """What was chosen of `table`; `body` is its statement without a price, after SELECT."""

    tables: Sequence[tuple[str, str]]
    table: str
    columns: Sequence[ColumnOffer]
    measures: Sequence[tuple[str, str]]
    measure: str
    keys: Sequence[str]
    body: str


def spell_name(name: str) -> str:
    """Returns a name as a statement has it, in quotes where it needs them.

    >>> spell_name("month"), spell_name("Date Type")
    ('month', '"Date Type"')
    """
    return name if re.fullmatch(r"[A-Za-z_]\w*", name) else '"' + name.replace('"', '""') + '"'


def read_choice(
    tables: Sequence[Mapping[str, Any]], form: Mapping[str, Sequence[str]]
) -> ChosenQuestion | None:
    """Returns what a form chose, the first of everything where it chose nothing; None without a table."""
    private = [each for each in tables if not each.get("public")]
    if not private:
        return None
    asked = _first(form, "table")
    table = next((each for each in private if each["name"] == asked), private[0])
    columns = [found for each in table["columns"] if (found := _read_column(each, form)) is not None]
    measures = _list_measures(table, columns)
    measure = next((each for each, _ in measures if each == _first(form, "measure")), measures[0][0])
    by = [_first(form, name) for name in ("by", "then")]
    sizes = {each.name: each.size for each in columns if each.size}
    keys = [name for name in dict.fromkeys(by) if name in sizes]
    if math.prod(sizes[name] for name in keys) > _MOST_GROUPS:
        keys = keys[:1]
    written = [spell_name(name) for name in keys]
    # What is asked of a key is asked of its groups, or those that were not wished would be empty ones.
    rows = [each.condition for each in columns if each.condition and (each.binned or each.name not in keys)]
    groups = [each.condition for each in columns if each.condition and not each.binned and each.name in keys]
    lines = [
        ", ".join([*written, f"{measure} AS {_name_measure(measure, taken=keys)}"]),
        f"FROM {spell_name(table['name'])}",
        "WHERE " + "\n  AND ".join(rows) if rows else "",
        f"GROUP BY {', '.join(written)}" if written else "",
        "HAVING " + "\n  AND ".join(groups) if groups else "",
    ]
    body = "\n".join(filter(None, lines))
    return ChosenQuestion(
        tables=[(each["name"], each["name"]) for each in private],
        table=table["name"],
        columns=columns,
        measures=measures,
        measure=measure,
        keys=keys,
        body=body,
    )


async def list_rungs(service: Service, user: User, body: str) -> list[Rung]:
    """Returns errors that may be wished for an answer, from a rough one to an exact one, each with its price.

    Where the error does not depend on the records they are round, and the price is what WITHIN takes; else
    they are what EXPLAIN expects for round prices.
    """
    # Measured by itself: an answer that is stored says nothing of what a price buys.
    try:
        price = await service.explain(user, f"DP-SELECT FRESH 1 {body}")
    except SfumatoError:
        return []  # the price of the page says why
    halves = [half for half in (price.get("errors") or {}).values() if half]
    if halves and len(halves) == len(price["errors"]):
        heads = [f"WITHIN {format_exact(each)}" for each in _round_errors(max(halves))]
    else:
        heads = [format_exact(each) for each in _PRICES]
    found: list[Rung] = []
    for head in heads:
        try:
            price = await service.explain(user, f"DP-SELECT {head} {body}")
        except SfumatoError:
            continue
        known = head.startswith("WITHIN")
        words = f"±{short(float(head[7:]))}" if known else "; ".join(price["expected"].values())
        found.append(
            Rung(head=head, words=words.replace("+-", "±").removeprefix("95 % within "), price=price)
        )
    return found


def _round_errors(half: float) -> list[Fraction]:
    """Returns six errors of one leading digit that cost about 0.02 to 2, where epsilon 1 errs by `half`.

    >>> [float(each) for each in _round_errors(6.0)]
    [200.0, 100.0, 50.0, 20.0, 10.0, 5.0]
    """
    power = math.floor(math.log10(half * 50))
    steps = [Fraction(10) ** (power - each) * factor for each in range(3) for factor in (5, 2, 1)]
    return [each for each in steps if each <= half * 50][:6]


def _read_column(column: Mapping[str, Any], form: Mapping[str, Sequence[str]]) -> ColumnOffer | None:
    name, values, bounds = column["name"], column.get("values"), column.get("bounds")
    bins = column.get("bins")
    given = column.get("range", _PERIODS.get(str(column.get("period"))))
    counted = _are_plain(given) and all(isinstance(each, int) for each in given)
    if "period" in column and not counted:
        given = None  # months of a calendar are texts
    ends = given or bounds or ((bins[0], bins[-1]) if bins else None)
    written = [(str(each), _quote(each)) for each in values or ()] if _are_plain(values) else []
    numeric = bool(bounds) or (counted and "period" not in column)
    size = int(column.get("size") or 0)
    if not (size or written or numeric or ends):
        return None
    asked = {*form.get(f"in {name}", ())}
    picked = [sql for text, sql in written if text in asked]
    typed = [_first(form, f"{end} {name}") for end in ("from", "to")]
    condition = ""
    if written and 0 < len(picked) < len(written):
        condition = f"{spell_name(name)} IN ({', '.join(picked)})"
    elif not written:
        tests = zip((">=", "<="), map(_read_end, typed), strict=True)
        condition = " AND ".join(f"{spell_name(name)} {sign} {end}" for sign, end in tests if end)
    names = column.get("names") or [text for text, _ in written]
    return ColumnOffer(
        name=name,
        size=size if size <= MOST_KEYS else 0,
        values=[(text, str(label), text in asked) for (text, _), label in zip(written, names, strict=True)][
            :_MOST_LISTED
        ],
        ends=[]
        if written or ends is None
        else [
            (word, text, "" if isinstance(ends, str) else str(end))
            for word, text, end in zip(("from", "to"), typed, ends if _are_plain(ends) else "  ", strict=True)
        ],
        numeric=numeric,
        binned=bool(bins),
        condition=condition,
    )


def _are_plain(values: object) -> TypeGuard[Sequence[str | float]]:
    return isinstance(values, (list, tuple)) and all(isinstance(each, (str, int, float)) for each in values)


def _quote(value: object) -> str:
    if isinstance(value, (bool, int, float)):
        return str(value).upper()
    return "'" + str(value).replace("'", "''") + "'"


def _read_end(text: str) -> str:
    """Returns a number or a date as a statement has it, nothing for nothing.

    >>> _read_end("1.50"), _read_end("2025-03-01"), _read_end("")
    ('1.5', "DATE '2025-03-01'", '')
    """
    if not text:
        return ""
    if re.fullmatch(r"\d{4}-\d\d-\d\d", text):
        if read_day(text) is None:
            raise RecipeError(f"there is no day {text}")
        return f"DATE '{text}'"
    return format_exact(parse_exact(text, name="the end of a filter"))


def _first(form: Mapping[str, Sequence[str]], name: str) -> str:
    return form.get(name, [""])[0].strip()


def _list_measures(table: Mapping[str, Any], columns: Sequence[ColumnOffer]) -> list[tuple[str, str]]:
    """Returns what may be asked of a table as SQL, each with its name for people."""
    unit = table.get("unit")
    unit = unit[0] if isinstance(unit, list) else unit
    found = [("COUNT(*)", "how many records")]
    if unit not in (None, "row"):
        found.append((f"COUNT(DISTINCT {spell_name(unit)})", f"how many of {unit}"))
    for each in columns:
        if each.numeric:
            found += [
                (f"{function}({spell_name(each.name)})", f"{word} {each.name}")
                for function, word in _NAMES.items()
            ]
    return found


def _name_measure(measure: str, *, taken: Sequence[str]) -> str:
    function, _, inner = measure.partition("(")
    plain = re.sub(r"\W+", "_", inner.removeprefix("DISTINCT ").rstrip(")").strip('"')).strip("_")
    name = f"{_NAMES[function]}_{plain}" if function in _NAMES else f"{plain}s" if plain else "records"
    return name if name.lower() not in {each.lower() for each in taken} else f"{name}_found"
