"""Codebooks: what is publicly known of a table's columns, in the forms in which it is written down.

JSON with an entry for each column, contest parameters, Frictionless table schemas, CSVW metadata; CSV with a
line for each column or each code; SQL with types and checks; notes such as `age: 0..99`, a line a column.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import date
from fractions import Fraction
from pathlib import Path
from typing import Any

from sfumato.core.dates import read_day
from sfumato.core.errors import RecipeError, SchemaError
from sfumato.core.exact import parse_exact
from sfumato.core.files import MOST_TEXT, read_regular
from sfumato.tables.draft import Known

_KINDS = {
    "integer": "integer|int|int8|int16|int32|int64|uint8|uint16|uint32|uint64|bigint|smallint|tinyint|year"
    "|long|short|byte|positiveinteger|negativeinteger|unsignedlong|unsignedint|unsignedshort|unsignedbyte",
    "number": "number|float|float16|float32|float64|double|real|decimal|numeric|money",
    "boolean": "boolean|bool|logical",
    "date": "date|datetime|datetime64|datetimestamp|timestamp|timestamptz|time",
    "text": "string|str|text|object|category|categorical|varchar|char|character|factor|enum|nvarchar",
}
_NAMES = ("name", "column", "variable", "field", "attribute", "column_name", "field_name")
_CODES = ("values", "value", "codes", "code", "categories", "levels", "enum", "allowed_values", "keyValues")
_LABELS = ("label", "labels", "meaning", "value_label")
_LOW = ("min", "minimum", "low", "from", "lower", "minval")
_HIGH = ("max", "maximum", "high", "to", "upper", "maxval")
_TYPES = ("type", "dtype", "kind", "data_type", "class", "datatype")
_MARKS = ("null_value", "missing_values", "missing_codes", "na_values")
_NULLS = ("has_null", "nullable", "missing", "blank", "nulls", "allow_null")
_RANGE = re.compile(r"\s*(-?\d+(?:\.\d+)?)\s*(?:\.\.|to|-)\s*(-?\d+(?:\.\d+)?)\s*")
_DAYS = re.compile(r"(\d{4}-\d\d-\d\d)\s*(?:\.\.|to)\s*(\d{4}-\d\d-\d\d)")
_ENUM = re.compile(r"create\s+type\s+\"?(\w+)\"?\s+as\s+enum\s*\(([^)]*)\)", re.IGNORECASE)
_MOST_COLUMNS = 10_000
_CHECKED = ("kind", "values", "low", "high", "nullable", "identifier")


def read_codebook(path: Path | str) -> dict[str, Known]:
    """Returns what the codebook at `path` says of each column: a JSON, CSV or SQL file.

    A codebook must be public: what it lists is taken as known to everybody.
    """
    path = Path(path)
    if path.suffix.lower() not in _READERS:
        raise SchemaError(f"codebook {path.name!r} must end in .json, .csv, .tsv, .sql or .txt")
    try:
        text = read_regular(path, most=MOST_TEXT).decode("utf-8-sig")
    except OSError:
        raise SchemaError(f"codebook {path.name!r} cannot be read; check its name") from None
    except ValueError:
        raise SchemaError(f"codebook {path.name!r} is not text in UTF-8; save it as that") from None
    return parse_codebook(text, path)


def parse_codebook(text: str, path: Path) -> dict[str, Known]:
    """Returns what the text of a codebook says, which is read as the suffix of `path` tells.

    >>> parse_codebook("age: 0..110", Path("notes.txt"))["age"].high
    Fraction(110, 1)
    """
    try:
        known = _READERS[path.suffix.lower()](text, path.name)
    except SchemaError:
        raise
    except (ValueError, TypeError, AttributeError, RecursionError, csv.Error) as error:
        raise SchemaError(
            f"codebook {path.name!r} cannot be understood ({type(error).__name__}); it needs an entry for "
            'each column, such as {"age": {"min": 0, "max": 99}, "sex": {"values": ["f", "m"]}}'
        ) from None
    if not known:
        raise SchemaError(
            f"codebook {path.name!r} says nothing of any column; it needs an entry for each, such as "
            '{"age": {"min": 0, "max": 99}}'
        )
    return known


def _read_json(text: str, origin: str) -> dict[str, Known]:
    document = json.loads(text, parse_float=str)
    if isinstance(document, dict) and isinstance(document.get("resources"), list):
        document = document["resources"][0]["schema"]  # a data package of Frictionless
    if isinstance(document, dict) and isinstance(document.get("schema"), dict):
        document = document["schema"]
    if isinstance(document, dict) and isinstance(document.get("tableSchema"), dict):
        document = [_read_partitions(each) for each in document["tableSchema"]["columns"]]
    marks: tuple[str, ...] = ()
    if isinstance(document, dict) and isinstance(document.get("fields"), (list, dict)):
        marks = tuple(str(each) for each in document.get("missingValues", ()) if str(each))
        document = document["fields"]
    if isinstance(document, list):
        document = {str(_first(each, _NAMES)): each for each in document}
    known = {}
    for name, entry in list(document.items())[:_MOST_COLUMNS]:
        found = _read_entry(entry, origin, marks)
        if found is not None:
            known[str(name)] = found
    return known


def read_csvw_unit(path: Path | str) -> tuple[str | None, int | None]:
    """Return who is protected by CSVW-EO metadata, and the most records of one, as far as it says."""
    try:
        document = json.loads(read_regular(Path(path), most=MOST_TEXT))
        unit, most = document.get("privacyUnit"), document.get("maxContributions")
    except (OSError, ValueError, AttributeError):
        raise SchemaError(f"{Path(path).name!r} cannot be read as CSVW metadata, a JSON object") from None
    return (str(unit) if unit else None, most if type(most) is int and most > 0 else None)


def _read_partitions(column: Mapping[str, Any]) -> dict[str, Any]:
    """Return a column of CSVW-EO with the values of its partitions listed as those of any codebook."""
    predicates = [each.get("predicate", {}) for each in column.get("partitions") or ()]
    values = [each["partitionValue"] for each in predicates if "partitionValue" in each]
    ends = [each[key] for each in predicates for key in ("lowerBound", "upperBound") if key in each]
    found = {key: value for key, value in column.items() if not key.startswith("@")}
    if values:
        found.setdefault("keyValues", values)
    if ends:
        found |= {"minimum": found.get("minimum", min(ends)), "maximum": found.get("maximum", max(ends))}
    return found


def _read_entry(entry: object, origin: str, marks: tuple[str, ...]) -> Known | None:
    """Returns what one entry of a JSON codebook says."""
    if isinstance(entry, int) and not isinstance(entry, bool):
        return (
            Known(origin=origin, kind="integer", low=Fraction(0), high=Fraction(entry - 1)) if entry else None
        )
    if isinstance(entry, list):
        coded = all(isinstance(each, dict) and "code" in each for each in entry)
        if not coded:
            plain = [each for each in entry if not isinstance(each, (dict, list))]
            return Known(origin=origin, values=tuple(plain)) if plain else None
        entry = {"values": {str(each["code"]): str(each.get("name", each["code"])) for each in entry}}
    if not isinstance(entry, dict):
        return None
    facts = {**entry, **entry["constraints"]} if isinstance(entry.get("constraints"), dict) else dict(entry)
    kind = find_kind(_first(facts, _TYPES))
    listed = _first(facts, _CODES)
    nulls = facts.get("required") is not True and all(facts.get(key) is not False for key in _NULLS)
    given = _first(facts, _MARKS)
    marked = (given,) if isinstance(given, str) else tuple(given or ())
    names: tuple[str, ...] = ()
    values: tuple[Any, ...] = ()
    if isinstance(listed, dict):
        # Some list codes and a range in one place: {"N": "not asked", "min": 0, "max": 500}.
        facts |= {key: listed[key] for key in ("min", "max") if key in listed}
        codes = {key: str(label) for key, label in listed.items() if key not in ("min", "max")}
        values, names = tuple(codes), tuple(codes.values())
    elif isinstance(listed, list):
        values = tuple(each for each in listed if not isinstance(each, (dict, list)) and each is not None)
        labels = _first(facts, ("names", *_LABELS))
        names = tuple(map(str, labels)) if isinstance(labels, list) else ()
    low, high = _first(facts, _LOW), _first(facts, _HIGH)
    if high is not None and low is None and "maxval" in facts:
        low = 0
    return _build(
        origin,
        kind=kind,
        values=values,
        names=names,
        low=low,
        high=high,
        format=facts.get("format"),
        decimal=facts.get("decimalChar", "."),
        missing=(*(str(each) for each in marked), *marks),
        nullable=nulls,
        identifier=facts.get("kind") == "id" or facts.get("unique") is True or facts.get("privacyId") is True,
    )


def _read_csv(text: str, origin: str) -> dict[str, Known]:
    lines = text.splitlines()
    first = lines[0] if lines else ""
    delimiter = max(",;|\t", key=first.count)
    rows = list(csv.DictReader(io.StringIO(text), delimiter=delimiter))
    grouped: dict[str, list[dict[str, str]]] = {}
    for row in rows:
        facts = {
            key.strip().lower().replace(" ", "_"): value.strip()
            for key, value in row.items()
            if isinstance(key, str) and isinstance(value, str) and value.strip()
        }
        name = _first(facts, _NAMES)
        if name:
            grouped.setdefault(name, []).append(facts)
    return {name: _read_lines(found, origin) for name, found in list(grouped.items())[:_MOST_COLUMNS]}


def _read_lines(rows: list[dict[str, str]], origin: str) -> Known:
    """Returns what the lines of one column say: one line with all, or one for each code."""
    facts: dict[str, str] = {}
    for row in rows:
        facts = {**row, **facts}
    low, high = _first(facts, _LOW), _first(facts, _HIGH)
    codes = [str(_first(row, _CODES)) for row in rows if _first(row, _CODES) is not None]
    names = [str(_first(row, _LABELS)) for row in rows if _first(row, _LABELS) is not None]
    if len(rows) == 1 and codes:
        found = _RANGE.fullmatch(codes[0])
        if found and low is None:
            low, high, codes = found[1], found[2], []
        else:
            parts = re.split(r"\s*[|;]\s*" if re.search(r"[|;]", codes[0]) else r"\s*,\s*", codes[0])
            pairs = [re.split(r"\s*=\s*", part, maxsplit=1) for part in parts if part]
            codes = [pair[0] for pair in pairs]
            names = [pair[1] for pair in pairs if len(pair) == 2]
    marks = re.split(r"\s*[|;,]\s*", str(_first(facts, _MARKS) or ""))
    nulls = str(_first(facts, _NULLS) or "").lower() not in ("no", "false", "0", "n")
    return _build(
        origin,
        kind=find_kind(_first(facts, _TYPES)),
        values=tuple(codes),
        names=tuple(names),
        low=low,
        high=high,
        format=facts.get("format"),
        missing=tuple(mark for mark in marks if mark),
        nullable=nulls,
    )


def find_suffix(text: str) -> str:
    """Returns how the file of a codebook would end, by its text.

    >>> find_suffix('{"age": 3}'), find_suffix("age: 0..99"), find_suffix("name,min,max"), find_suffix("")
    ('.json', '.txt', '.csv', '.txt')
    """
    if text.lstrip()[:1] in ("{", "["):
        return ".json"
    if re.search(r"\bcreate\s+(?:table|type)\b", text, re.IGNORECASE):
        return ".sql"
    first = re.split(r"[,;|\t]", text.lstrip().partition("\n")[0].lower())
    return ".csv" if len(first) > 1 and not {each.strip() for each in first}.isdisjoint(_NAMES) else ".txt"


def _read_notes(text: str, origin: str) -> dict[str, Known]:
    known = {}
    for line in text.splitlines():
        name, _, words = (part.strip() for part in line.partition(":"))
        if not name or not words:
            continue
        listed = [each.strip() for each in next(csv.reader([words], skipinitialspace=True))]
        rows = [{"values": each} for each in listed if each]
        ends = _DAYS.fullmatch(words)
        if ends:
            rows = [{"min": ends[1], "max": ends[2]}]
        known[name] = _read_lines(rows, origin)
    return known


def _read_sql(text: str, origin: str) -> dict[str, Known]:
    import sqlglot  # commands that read no SQL need not wait for it
    from sqlglot import exp

    # Types come first, by themselves: not every dialect knows them.
    enums, rest = dict(_ENUM.findall(text)), _ENUM.sub("", text)
    dialect = "mysql" if re.search(r"\benum\s*\(|`", rest, re.IGNORECASE) else "postgres"
    try:
        statements = [each for each in sqlglot.parse(rest, dialect=dialect) if each is not None]
    except sqlglot.errors.SqlglotError:
        raise SchemaError(
            f"codebook {origin!r} is not SQL that can be read; CREATE TABLE is needed"
        ) from None
    lists = {name.lower(): tuple(re.findall(r"'((?:[^']|'')*)'", body)) for name, body in enums.items()}
    known: dict[str, Known] = {}
    for statement in statements:
        for column in statement.find_all(exp.ColumnDef):
            written = column.kind.sql(dialect=dialect) if column.kind is not None else ""
            constraints = [each.kind for each in column.args.get("constraints") or ()]
            primary = any(isinstance(each, exp.PrimaryKeyColumnConstraint) for each in constraints)
            required = primary or any(isinstance(each, exp.NotNullColumnConstraint) for each in constraints)
            values = lists.get(written.strip('"').lower(), ())
            if written.upper().startswith("ENUM"):
                values = tuple(re.findall(r"'((?:[^']|'')*)'", written))
            known[column.name] = _build(
                origin,
                kind="text" if values else find_kind(written),
                values=tuple(each.replace("''", "'") for each in values),
                nullable=not required,
                identifier=primary,
            )
        checks = [*statement.find_all(exp.CheckColumnConstraint), *statement.find_all(exp.Check)]
        for check in checks:
            for name, found in _read_check(check.this).items():
                before = known.get(name)
                if before is not None:
                    kept = {key: getattr(before, key) for key in _CHECKED}
                    known[name] = _build(origin, **{**kept, **found})
    return known


def _read_check(condition: Any) -> dict[str, dict[str, Any]]:  # noqa: ANN401 - of sqlglot
    """Returns what a CHECK says of columns: lists, ranges, and comparisons with constants joined by AND."""
    from sqlglot import exp

    found: dict[str, dict[str, Any]] = {}
    parts = condition.unnest().flatten() if isinstance(condition.unnest(), exp.And) else [condition]
    for part in parts:
        part = part.unnest()
        if not isinstance(part.this, exp.Column):
            continue
        facts = found.setdefault(part.this.name, {})
        if isinstance(part, exp.In):
            facts["values"] = tuple(_literal(each) for each in part.expressions)
        elif isinstance(part, exp.Between):
            facts |= {"low": _literal(part.args["low"]), "high": _literal(part.args["high"])}
        elif isinstance(part, (exp.GTE, exp.GT)):
            facts["low"] = _literal(part.expression)
        elif isinstance(part, (exp.LTE, exp.LT)):
            facts["high"] = _literal(part.expression)
    return {name: {key: value for key, value in facts.items() if value} for name, facts in found.items()}


def _literal(node: Any) -> str:  # noqa: ANN401 - of sqlglot
    return str(node.sql()).strip("'") if node is not None else ""


def _build(
    origin: str,
    *,
    kind: str | None = None,
    values: Iterable[Any] = (),
    names: tuple[str, ...] = (),
    low: object = None,
    high: object = None,
    format: object = None,  # noqa: A002 - as the project file calls it
    decimal: object = ".",
    missing: tuple[str, ...] = (),
    nullable: bool = True,
    identifier: bool = False,
) -> Known:
    """Returns the facts brought together: codes beside a range mark missing values, or widen it."""
    first, last = _read_end(low), _read_end(high)
    listed = tuple(dict.fromkeys(values))
    if isinstance(first, Fraction) and isinstance(last, Fraction):
        for code in listed:
            number = _read_end(code)
            if isinstance(number, Fraction):
                first, last = min(first, number), max(last, number)
            else:
                missing = (*missing, str(code))
        listed = names = ()
    elif listed and missing:
        # What is listed is a value of its own, also if it stands for a missing one.
        missing = tuple(each for each in missing if each not in map(str, listed))
    return Known(
        origin=origin,
        kind=kind,
        values=listed,
        names=names,
        low=first if type(first) is type(last) else None,
        high=last if type(first) is type(last) else None,
        format=format if isinstance(format, str) and "%" in format else None,
        decimal=str(decimal) if decimal in (".", ",") else ".",
        missing=tuple(dict.fromkeys(missing)),
        nullable=nullable,
        identifier=identifier,
    )


def _read_end(value: object) -> Fraction | date | None:
    if isinstance(value, (Fraction, date)):
        return value
    if isinstance(value, str):
        day = read_day(value)
        if day is not None:
            return day
    with suppress(RecipeError):
        return parse_exact(value, name="end") if value is not None else None
    return None


def find_kind(given: object) -> str | None:
    """Returns the kind of values that a type of any language names; None if it is not known.

    >>> find_kind("VARCHAR(20)"), find_kind("Int32"), find_kind("datetime64[ns]"), find_kind("blob")
    ('text', 'integer', 'date', None)
    """
    word = re.match(r"[a-z]+\d*", str(given or "").strip().lower())
    if word is None:
        return None
    return next((kind for kind, words in _KINDS.items() if word[0] in words.split("|")), None)


def _first(facts: Mapping[str, Any], keys: Iterable[str]) -> Any:  # noqa: ANN401 - whatever is written
    return next((facts[key] for key in keys if facts.get(key) is not None), None)


_READERS = {
    ".json": _read_json, ".csv": _read_csv, ".tsv": _read_csv, ".sql": _read_sql, ".txt": _read_notes
}  # fmt: skip
