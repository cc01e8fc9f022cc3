"""The contests' `parameters.json` as described columns.

Two layouts exist. The first contest lists `periods`, and codes with names per column; the later
ones have a table per column with `kind`, and `values` or `min` and `max`.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

from sfumato.core.errors import SchemaError
from sfumato.core.exact import parse_exact, parse_positive
from sfumato.core.facts.column import Column
from sfumato.core.facts.domain import Tuples, Values
from sfumato.core.files import MOST_TEXT, read_regular


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One setting a contest asks for."""

    epsilon: Fraction
    delta: Fraction
    max_records: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameters:
    """What a contest's parameter file fixes: the runs, the columns, the individual's column if named."""

    runs: tuple[Run, ...]
    columns: dict[str, Column]
    unit: str | None


def read_parameters(path: Path) -> Parameters:
    """The runs and columns of the contest parameter file at `path`."""
    try:
        content = read_regular(path, most=MOST_TEXT)
        document = json.loads(content)
        origin = f"{path.name} (sha256 {hashlib.sha256(content).hexdigest()})"
        columns, unit = _parse_columns(document["schema"])
        runs = tuple(
            Run(
                epsilon=parse_positive(run["epsilon"], name="epsilon"),
                delta=parse_exact(run.get("delta", 0), name="delta"),
                max_records=int(run["max_records_per_individual"]),
            )
            for run in document.get("runs", [])
        )
    except OSError:
        raise SchemaError(
            f"parameters file {path.name!r} cannot be read; check the name and the folder"
        ) from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        lacks = f"no {error}" if isinstance(error, KeyError) else "it needs runs, and a schema by column"
        said = error if isinstance(error, ValueError) else lacks
        raise SchemaError(f"parameters file {path.name!r} is not a contest parameter file: {said}") from None
    columns = {name: replace(column, origin=origin) for name, column in columns.items()}
    return Parameters(runs=runs, columns=columns, unit=unit)


def _parse_columns(schema: dict[str, Any]) -> tuple[dict[str, Column], str | None]:
    columns: dict[str, Column] = {}
    unit = None
    for name, entry in schema.items():
        if name == "periods":
            periods = tuple((int(period["year"]), int(period["month"])) for period in entry)
            columns["period"] = Column(name="period", stored=("year", "month"), domain=Tuples(periods))
        elif isinstance(entry, list):
            codes = tuple(int(item["code"]) for item in entry)
            names = tuple(str(item.get("name", item["code"])) for item in entry)
            columns[name] = Column(name=name, stored=(name,), domain=Values(codes, names))
        elif entry.get("kind") == "id":
            unit = name
        else:
            columns[name] = _parse_described(name, entry)
    return columns, unit


def _parse_described(name: str, entry: dict[str, Any]) -> Column:
    if "values" in entry:
        names = tuple(str(label) for label in entry["names"]) if "names" in entry else None
        return Column(name=name, stored=(name,), domain=Values(tuple(entry["values"]), names))
    low, high = parse_exact(entry["min"], name="min"), parse_exact(entry["max"], name="max")
    return Column(name=name, stored=(name,), bounds=(low, high))
