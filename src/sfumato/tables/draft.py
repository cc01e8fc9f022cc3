"""A project file drafted: what is known of each column as a line, and what is still to be written."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from fractions import Fraction
from typing import Any

from sfumato.core.exact import format_exact
from sfumato.core.facts.column import NULL
from sfumato.tables import quote_key, quote_toml

MOST_LISTED = 500
"""More values than this belong into a file of their own."""

MISSING = "missing"
"""The label of missing values, where a draft gives them one."""

PERSON_NAMES = re.compile(
    r"(^|[_ .-])(ids?|uuid|guid|key|ssn|mrn|name|surname|e-?mail|phone|iban|person|people|patient|customer|"
    r"client|user|resident|citizen|employee|member|student|rider|driver)[_ .-]?(id|no|nr|number|name)?$",
    re.IGNORECASE,
)
"""What columns are called that name individuals."""

_MANY_RECORDS = 1000  # of which a twentieth to nine tenths are different values: then people repeat
_MOST_NAMES = 300  # characters of all names of values; longer ones stay in the codebook
_MOST_RANGE = 120  # whole numbers that are counted one by one
_BINS = 10
_STEPS = (Fraction(1), Fraction(2), Fraction(5, 2), Fraction(5), Fraction(10))
_TEXT_FILE = re.compile(r"\.(?:(?:[ct]sv|jsonl|ndjson)(?:\.gz)?|zip|xlsx)$", re.IGNORECASE)
_HINTS = {
    "integer": "{ range = [1, 12] }   # TODO: whole numbers; or values = [...], bins = [...]",
    "number": "{ bins = [0, 10, 20, 50], bounds = [0, 50] }   # TODO: numbers; bounds for sums",
    "text": '{ values = ["...", "..."] }   # TODO: text; or values_file = "names.csv"',
    "date": '{ range = ["2019-01-01", "2025-12-31"] }   # TODO: dates, for SQL; for recipes: '
    '{ from = "...", period = "month" }',
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What is publicly known of a column, and from where.

    Listed `values` with their `names`, or the ends `low` and `high` of numbers or dates, perhaps with
    `edges` of bins between them. `kind` is that of its values, None if only the source tells. `missing`
    lists what stands for no value; `nullable` is false only where it is known that there always is one. An
    `identifier` names individuals. What is not `complete` may lack values: others are then counted as such,
    and numbers beyond the ends as the ends.
    """

    origin: str
    kind: str | None = None
    values: tuple[Any, ...] = ()
    names: tuple[str, ...] = ()
    low: Fraction | date | None = None
    high: Fraction | date | None = None
    edges: tuple[Fraction, ...] = ()
    format: str | None = None
    decimal: str = "."
    missing: tuple[str, ...] = ()
    nullable: bool = True
    identifier: bool = False
    complete: bool = True


def repeats_as_names(name: str, records: int, values: int, *, named: bool = False) -> bool:
    """Whether so many different `values` in so many `records` repeat as the names of people do.

    >>> repeats_as_names("patient_id", 100, 60), repeats_as_names("ward", 100, 60)
    (True, False)
    """
    named = named or PERSON_NAMES.search(name) is not None
    many = records >= _MANY_RECORDS and 0.05 * records <= values <= 0.9 * records
    return 1 < values < records and (named or many)


def draft_project(
    source: str,
    kinds: Mapping[str, str],
    *,
    known: Mapping[str, Known] | None = None,
    unit: str | None = None,
    max_records: int | None = None,
    epsilon: str = "1.0",
    delta: str | None = None,
    rules: Sequence[str] = (),
) -> str:
    """Returns a project file for `source`, with a line for each of its columns, whose `kinds` are given.

    What is `known` of a column is written with its origin, the rest is left to do. `unit` and `max_records`
    are the individual, whose records are bounded privately without the latter; `epsilon` and `delta` are the
    budget. `rules` are lines that propose some.

    >>> known = {"district": Known(origin="codes.csv", values=("North", "South"))}
    >>> print(draft_project("calls.csv", {"district": "text"}, known=known).splitlines()[-1])
    district = { values = ["North", "South"], nullable = true, origin = "codes.csv" }
    """
    known = known or {}
    table = quote_key(name_table(source))
    lines = [
        "# Public facts. Domains and bounds are what you know without looking at the records: never copy",
        "# them out of the data. Each column is one line; what is still to be written is a comment.",
        "",
        "[budget]",
        f"epsilon = {epsilon}       # the most that this project may ever spend",
        f"delta = {delta}" if delta else "# delta = 1e-9      # needed for Gaussian noise and synthetic rows",
        "",
        f"[tables.{table}]",
        f"source = {quote_toml(source)}",
    ]
    todo = '"TODO"       # the column that names the individual (without a domain), or "row"'
    lines.append(f"unit = {todo if unit is None else quote_toml(unit)}")
    if unit != "row" and max_records is not None:
        lines.append(f"max_records = {max_records}")
    elif unit != "row":
        lines.append(
            'max_records = "private"   # chosen by each answer; or the most records of one individual that '
            f"count{'; not for row' if unit is None else ''}"
        )
    if is_text_file(source) and not known:
        lines += [
            "",
            "# All columns of a text file are text until they are described. Of numbers: range = [1, 12],",
            '# bins = [0, 10, 50] or bounds = [0, 50]. Of dates: period = "month", or for SQL',
            '# range = ["2019-01-01", "2025-12-31"].',
        ]
    if rules:
        lines += ["", *rules]
    lines += ["", f"[tables.{table}.columns]"]
    for column, kind in kinds.items():
        if column == unit:
            lines.append(f"# {quote_key(column)} names the individual, so it has no domain")
            continue
        lines += _draft_column(column, kind, known.get(column), text=is_text_file(source))
    lines += [
        f"# not a column of the source: {quote_toml(name)}" for name in known if name not in kinds and name
    ]
    return "\n".join(lines) + "\n"


def is_text_file(source: str) -> bool:
    """Returns whether the source is a text file, whose columns are all text until they are described."""
    return _TEXT_FILE.search(source) is not None


def name_table(source: str) -> str:
    """Returns what a table is called by default.

    >>> name_table("data/my calls.parquet")
    'my_calls'
    """
    return re.sub(r"\W+", "_", source.replace("\\", "/").rsplit("/", 1)[-1].split(".")[0]) or "records"


def describe_column(name: str, kind: str, known: Known, *, text: bool = False) -> dict[str, dict[str, Any]]:
    """Describes a stored column of which something is known, as the project file has it.

    None if nothing that is known describes it. `kind` is that of the source, `text` says that all columns of
    the source are text. A column of dates is described for statements, and its month and year for recipes.

    >>> describe_column("age", "integer", Known(origin="codes", low=Fraction(0), high=Fraction(99)))
    {'age': {'range': [0, 99], 'nullable': True, 'origin': 'codes'}}
    """
    reading = {
        **({} if known.format is None else {"format": known.format}),
        **({} if known.decimal == "." else {"decimal": known.decimal}),
        **({"missing": list(known.missing)} if known.missing else {}),
    }
    # A record without a value in one column would be left out of all that is asked of it.
    label: dict[str, Any] = {"nullable": True} if known.nullable or known.missing else {}
    if isinstance(known.low, date) and isinstance(known.high, date):
        first, last = known.low, known.high
        years = [first.year, last.year]
        described: dict[str, dict[str, Any]] = {
            name: {"range": [first.isoformat(), last.isoformat()], **reading},
            f"{name}_year": {"from": name, "period": "year", "range": years, **reading, **label},
            f"{name}_month": {"from": name, "period": "month", **reading, **label},
        }
        return {each: {**spec, "origin": known.origin} for each, spec in described.items()}
    spec = _describe_values(known, kind, text=text) if known.values else _describe_numbers(known, kind)
    if not spec and kind == "boolean":
        spec = {"values": [False, True]}
    if not spec:
        return {}
    if not known.complete:
        spec |= {"outside": "other" if "values" in spec and kind != "boolean" else "clamp"}
    if label and spec.get("outside") == "other":
        label = {"missing_label": MISSING}
    if known.nullable and not {MISSING, NULL}.isdisjoint(spec.get("values", ())):
        label = {}
    return {name: {**spec, **reading, **label, "origin": known.origin}}


def _draft_column(name: str, kind: str, known: Known | None, *, text: bool) -> Iterator[str]:
    key = quote_key(name)
    if known is not None and known.identifier:
        yield f"# {key} names individuals: it may be the unit, and has no domain"
        return
    if known is None and kind == "boolean":
        known = Known(origin="its type", kind=kind)
    described = {} if known is None else describe_column(name, kind, known, text=text)
    for each, spec in described.items():
        yield f"{quote_key(each)} = {write_inline(spec)}"
    if not described:
        hint = _HINTS.get(
            kind if known is None or known.kind is None else known.kind,
            "   # nested or binary: leave this column out",
        )
        if known is not None and len(known.values) > MOST_LISTED:
            hint = f'{{ values_file = "..." }}   # TODO: {len(known.values):,} values, too many to list here'
        yield f"# {key} = {hint}"


def _describe_values(known: Known, kind: str, *, text: bool) -> dict[str, Any]:
    if len(known.values) > MOST_LISTED:
        return {}
    values = [each for each in known.values if each is not None]
    whole = [_read_whole(each) for each in values]
    # Codes in a codebook are often texts; what the source holds decides, and in a text file either does.
    if (kind == "integer" or text or known.kind == "integer") and None not in whole:
        if kind != "text" or text:
            values = whole
    elif kind == "text":
        values = [str(each) for each in values]
    names = list(known.names) if len(known.names) == len(values) else []
    plain = [each for each in values if isinstance(each, int) and not isinstance(each, bool)]
    if len(plain) == len(values) and not names:
        values = sorted(plain)
        if len(values) > 2 and values[-1] - values[0] == len(values) - 1:
            return {"range": [values[0], values[-1]]}
    short = names and sum(map(len, names)) <= _MOST_NAMES and len(set(names)) == len(names)
    return {"values": values, **({"names": names} if short else {})}


def _describe_numbers(known: Known, kind: str) -> dict[str, Any]:
    if not isinstance(known.low, Fraction) or not isinstance(known.high, Fraction):
        return {}
    low, high = known.low, known.high
    whole = low.denominator == high.denominator == 1 and "number" not in (kind, known.kind)
    if whole and high - low < _MOST_RANGE and not known.edges:
        return {"range": [int(low), int(high)]}
    edges = known.edges or round_edges(low, high)
    if len(edges) < 2 or low >= high:
        return {}
    return {"bins": [*edges], "bounds": [low, high]}


def round_edges(low: Fraction, high: Fraction) -> tuple[Fraction, ...]:
    """Returns round edges of about ten bins of equal width that hold all from `low` to `high`.

    >>> [int(edge) for edge in round_edges(Fraction(3), Fraction(94))]
    [0, 10, 20, 30, 40, 50, 60, 70, 80, 90, 100]
    """
    if low >= high:
        return ()
    size = Fraction(10) ** math.floor(math.log10((high - low) / _BINS))
    step = next(each * size for each in _STEPS if (high - low) / (each * size) <= _BINS)
    first, last = math.floor(low / step), math.floor(high / step) + 1
    return tuple(step * place for place in range(first, last + 1))


def write_inline(value: object) -> str:
    """Returns `value` as TOML on one line.

    >>> write_inline({"range": [1, 12], "from": "a b"})
    '{ range = [1, 12], from = "a b" }'
    """
    if isinstance(value, Mapping):
        return f"{{ {', '.join(f'{quote_key(key)} = {write_inline(each)}' for key, each in value.items())} }}"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return f"[{', '.join(map(write_inline, value))}]"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, Fraction)):
        return format_exact(Fraction(value))
    if isinstance(value, float):
        return repr(value)
    return quote_toml(str(value))


def merge_known(first: Mapping[str, Known], second: Mapping[str, Known]) -> dict[str, Known]:
    """Merges what is known; of a column that both know, the first, with all missing marks.

    >>> merge_known({"a": Known(origin="x")}, {"a": Known(origin="y", nullable=True)})["a"].nullable
    True
    """
    merged = {**second, **first}
    for name in first.keys() & second.keys():
        one, other = first[name], second[name]
        merged[name] = replace(
            one,
            nullable=one.nullable or other.nullable,
            missing=one.missing or other.missing,
            format=one.format or other.format,
        )
    return merged


def _read_whole(value: object) -> int | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value
    if isinstance(value, str) and re.fullmatch(r"0|-?[1-9]\d{0,17}", value):
        return int(value)
    return None
