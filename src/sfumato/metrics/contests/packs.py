"""Contest packs as they were published: records, public facts about them, the form of a submission.

| contest | records | public facts | submission |
|---|---|---|---|
| sprint1 | `incidents.csv` | `parameters.json`: periods, places, kinds | counts, a column per kind |
| sprint3 | `ground_truth.csv` | `parameters.json`: columns | rows at every epsilon |
| match3 | `NAME.csv` | `NAME-specs.json`: largest codes, `codebook.cbk` | rows, a file per epsilon |

Public records of the development phase lie beside them as `public.csv`, or are named by the caller.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal, get_args

from sfumato.core.errors import SchemaError
from sfumato.core.exact import format_exact
from sfumato.core.facts.column import Column, parse_ranges
from sfumato.core.facts.contest import Parameters, Run, read_parameters
from sfumato.core.facts.domain import Bins, IntegerRange, Values
from sfumato.core.facts.limits import MOST_TEXT, read_regular
from sfumato.core.facts.project import Project
from sfumato.core.facts.table import Bounding, PrivacyUnit, Table

Contest = Literal["sprint1", "sprint3", "match3"]
CONTESTS: tuple[Contest, ...] = get_args(Contest)

COUNTED = ("neighborhood", "period", "incident_type")
"""The columns of the first sprint's cells, in their order."""

AMOUNTS = ("fare", "tips", "trip_total", "trip_seconds", "trip_miles")
"""The columns of a taxi trip that are cut into bins."""

EPSILONS_1940 = (Fraction(8), Fraction(1), Fraction(3, 10))
"""What the third match asked for; its packs state no epsilon."""

_TRIPS = (
    *("shift", "company_id", "pickup_community_area", "dropoff_community_area", "payment_type"),
    *AMOUNTS,
)
_RESIDENT = "sim_resident"
_EDGES, _SECONDS = tuple(range(0, 100, 10)), tuple(range(0, 2000, 200))
_CODE = re.compile(r"(\d+)(?:\s|$)")
_HEADING = re.compile(r"\s*([A-Z][A-Z0-9]*)(?:\s|$)")

# The fields whose bins the third match's winner chose by hand; codes that no bin holds count as others.
BINS_BY_HAND: Mapping[str, list[Any]] = {
    "SUPDIST": [[10, 630, 10]],
    "MIGSEA5": [[1, 502], 990, 991, 997],
    "INCWAGE": [[0, 5000], 999998],
    "VALUEH": [[0, 30000], 9999998, 9999999],
    "EDSCOR50": [[0, 1000], 9999],
    "ERSCOR50": [[0, 1000], 9999],
    "NPBOSS50": [[0, 1000], 9999],
    "MIGMET5": [[0, 9600, 20], 9999],
    "MIGCOUNTY": [[0, 8000, 10], 9997, 9999],
    "IND": [[0, 231], 995, 998, 999],
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Pack:
    """A contest pack: its folder and files, the epsilons it asks for, and its records' public description.

    `header` lists the columns of a submission in their order.
    """

    contest: Contest
    folder: Path
    records: str
    unit: str | None
    runs: tuple[Run, ...]
    columns: Mapping[str, Column]
    header: tuple[str, ...]
    public: Path | None

    def describe_table(self, run: Run, *, bound: int | None = None, bounding: Bounding = "truncate") -> Table:
        """The table of records as a run protects it, with at most `bound` records of an individual."""
        most = run.max_records if bound is None else bound
        return Table(
            name="records",
            source=self.records,
            unit=PrivacyUnit(column=self.unit, max_records=most if self.unit else 1),
            columns=self.columns,
            bounding=bounding,
        )

    def make_project(self, table: Table, *, epsilon: Fraction, delta: Fraction, ledger: Path) -> Project:
        """The project that charges what is asked of `table` to `ledger`."""
        return Project(
            folder=self.folder,
            epsilon=epsilon,
            delta=delta,
            ledger=str(ledger),
            tables={table.name: table},
        )

    def require_public(self, *, need: str) -> Path:
        """The public records; refused with what they are needed for where the pack has none."""
        if self.public is None:
            raise SchemaError(
                f"{need} public records: add public.csv to the pack, or name a file by --public"
            )
        return self.public


def read_pack(
    folder: Path | str, *, public: Path | str | None = None, max_records: int | None = None
) -> Pack:
    """The pack in `folder`; what it lacks or what does not fit is refused before a record is read.

    `max_records` is the bound that was announced for an individual's records, where parameters have another.

    >>> read_pack("nowhere")
    Traceback (most recent call last):
        ...
    sfumato.core.errors.SchemaError: there is no folder 'nowhere'; a pack is a folder
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise SchemaError(f"there is no folder {folder.name!r}; a pack is a folder")
    if public is None:
        known = folder / "public.csv"
        found = known if known.is_file() else None
    else:
        found = Path(public)
        if not found.is_file():
            raise SchemaError(f"there is no file of public records {found.name!r}")
    specs = sorted(folder.glob("*-specs.json"))
    pack = _read_census(folder, specs, found) if specs else _read_sprint(folder, found)
    for each in (pack.folder / pack.records, *([] if found is None else [found])):
        _check_header(pack, each)
    if max_records is None:
        return pack
    if pack.unit is None or max_records < 1:
        raise SchemaError(f"max_records must be at least 1, and people of {pack.contest} must have several")
    return replace(pack, runs=tuple(replace(run, max_records=max_records) for run in pack.runs))


def _read_sprint(folder: Path, public: Path | None) -> Pack:
    """The pack of a sprint, told from its parameters."""
    if not (folder / "parameters.json").is_file():
        raise SchemaError(
            f"pack {folder.name!r} has no parameters.json (sprint1, sprint3), and no NAME-specs.json (match3)"
        )
    parameters = read_parameters(folder / "parameters.json")
    if not parameters.runs:
        raise SchemaError("parameters.json lists no runs, the epsilons that are asked for")
    if len({run.epsilon for run in parameters.runs}) < len(parameters.runs):
        raise SchemaError("parameters.json lists an epsilon twice in its runs; a submission has each once")
    for contest, needed, read in (
        ("sprint1", COUNTED, _read_incidents),
        ("sprint3", _TRIPS, _read_trips),
    ):
        if set(needed) <= set(parameters.columns):
            return read(folder, parameters, public)
        if set(needed) & set(parameters.columns):
            lacks = ", ".join(name for name in needed if name not in parameters.columns)
            raise SchemaError(f"parameters.json is of {contest}, but its schema lacks {lacks}")
    raise SchemaError("parameters.json is of no contest that is known here: sprint1 or sprint3")


def _read_incidents(folder: Path, parameters: Parameters, public: Path | None) -> Pack:
    kinds = tuple(str(code) for code in parameters.columns["incident_type"].labels)
    index = ("epsilon", "neighborhood", "year", "month")
    header = _read_header(folder, (*index, *kinds), first=index)
    return Pack(
        contest="sprint1",
        folder=folder.resolve(),
        records="incidents.csv",
        unit=parameters.unit or _RESIDENT,
        runs=parameters.runs,
        columns={name: parameters.columns[name] for name in COUNTED},
        header=header,
        public=public,
    )


def _read_trips(folder: Path, parameters: Parameters, public: Path | None) -> Pack:
    if parameters.unit is None:
        raise SchemaError("parameters.json names no column of kind 'id', the taxi")
    header = _read_header(folder, ("epsilon", parameters.unit, *_TRIPS))
    columns = {
        name: cut_amount(column) if name in AMOUNTS else column
        for name, column in parameters.columns.items()
        if name in _TRIPS
    }
    return Pack(
        contest="sprint3",
        folder=folder.resolve(),
        records="ground_truth.csv",
        unit=parameters.unit,
        runs=parameters.runs,
        columns=columns,
        header=header,
        public=public,
    )


def _read_census(folder: Path, specs: list[Path], public: Path | None) -> Pack:
    if len(specs) > 1:
        raise SchemaError(f"pack {folder.name!r} has several -specs.json; a pack is about one table")
    if not (folder / "codebook.cbk").is_file():
        raise SchemaError(f"pack {folder.name!r} has no codebook.cbk, the codes of the fields")
    name = specs[0].name.removesuffix("-specs.json")
    try:
        fields = json.loads(read_regular(specs[0], most=MOST_TEXT))
        largest = {str(field): int(facts["maxval"]) for field, facts in fields.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise SchemaError(f"{specs[0].name} is not a specification: a maxval for each field") from None
    if not largest or min(largest.values()) < 0:
        raise SchemaError(f"{specs[0].name} lists no field, or one whose maxval is below 0")
    codes = read_codebook(folder / "codebook.cbk", fields=tuple(largest))
    if not codes:
        raise SchemaError(f"codebook.cbk lists the codes of no field that {specs[0].name} has")
    return Pack(
        contest="match3",
        folder=folder.resolve(),
        records=f"{name}.csv",
        unit=None,
        runs=tuple(Run(epsilon=epsilon, delta=Fraction(0), max_records=1) for epsilon in EPSILONS_1940),
        columns={
            field: _describe_field(field, most, codes, specs[0].name) for field, most in largest.items()
        },
        header=tuple(largest),
        public=public,
    )


def cut_amount(column: Column) -> Column:
    """An amount in the bins of the official metric: unknown, ten of one width, and all above.

    >>> cut_amount(Column(name="fare", stored=("fare",), bounds=(Fraction(-1), Fraction(9900)))).size
    11
    """
    inner = _SECONDS if column.name == "trip_seconds" else _EDGES
    most = Fraction(inner[-1] + 1) if column.bounds is None else column.bounds[1]
    if most <= inner[-1]:
        raise SchemaError(
            f"parameters.json: {column.name} has max {format_exact(most)}; bins need more than {inner[-1]}"
        )
    return replace(column, bounds=None, domain=Bins((*map(Fraction, (-1, *inner)), most)), outside="clamp")


def read_codebook(path: Path, *, fields: tuple[str, ...]) -> dict[str, tuple[int, ...]]:
    """The codes that a codebook lists under the heading of each field, ascending.

    A heading is a line that begins with a field's name; lines below that begin with numbers are its codes.
    """
    try:
        text = read_regular(path, most=MOST_TEXT).decode("latin-1")
    except OSError:
        raise SchemaError(f"{path.name} cannot be read") from None
    found: dict[str, set[int]] = {}
    field = None
    for line in text.splitlines():
        if heading := _HEADING.match(line):
            field = heading.group(1) if heading.group(1) in fields else None
        elif field is not None and (code := _CODE.match(line.strip())):
            found.setdefault(field, set()).add(int(code.group(1)))
    return {name: tuple(sorted(codes)) for name, codes in found.items()}


def _describe_field(name: str, most: int, codes: Mapping[str, tuple[int, ...]], specs: str) -> Column:
    """A census field: bins by hand, the codes of the codebook with the largest, or 0 to the largest."""
    if name in BINS_BY_HAND:
        domain: Values | IntegerRange = Values(parse_ranges(BINS_BY_HAND[name]))
        origin = "bins chosen by hand"
    elif name in codes:
        domain = Values(tuple(sorted({*codes[name], most})))
        origin = f"codebook.cbk and {specs}"
    else:
        domain, origin = IntegerRange(0, most), specs
    return Column(name=name, stored=(name,), domain=domain, outside="other", origin=origin)


def _read_header(folder: Path, columns: tuple[str, ...], *, first: tuple[str, ...] = ()) -> tuple[str, ...]:
    """The columns of a submission as submission_format.csv orders them; they must be `columns`."""
    header = _first_line(folder / "submission_format.csv")
    if set(header) != set(columns) or header[: len(first)] != first:
        kinds = f"{', '.join(first)}, and one column per kind" if first else ", ".join(columns)
        raise SchemaError(f"submission_format.csv must have the columns {kinds}, as parameters.json has them")
    return header


def _check_header(pack: Pack, path: Path) -> None:
    """Refuses records without the columns that the pack describes; the unit may lack in public ones."""
    header = _first_line(path)
    needed = [stored for column in pack.columns.values() for stored in column.stored]
    if pack.unit is not None and path.name == pack.records:
        needed.append(pack.unit)
    lacks = [name for name in needed if name not in header]
    if lacks:
        raise SchemaError(f"{path.name} lacks the columns {', '.join(lacks)}, which the pack describes")


def _first_line(path: Path) -> tuple[str, ...]:
    try:
        with path.open(newline="", encoding="utf-8-sig") as lines:
            return tuple(next(csv.reader(lines), ()))
    except (OSError, UnicodeDecodeError, csv.Error):
        raise SchemaError(f"the pack has no readable {path.name}") from None
