"""Contest packs as they were published: records, public facts about them, the form of a submission.

| contest | records | public facts | submission |
|---|---|---|---|
| sprint1 | `incidents.csv` | `parameters.json`: periods, places, kinds | counts, a column per kind |
| sprint3 | `ground_truth.csv` | `parameters.json`: columns | rows at every epsilon |
| match3 | `NAME.csv` | `NAME-specs.json`: largest codes, `codebook.cbk` | rows, a file per epsilon |

Public records of the development phase lie beside them as `public.csv`, or are named by the caller.
A simulated pack has the same form; everything in it follows from a public seed, and nobody in it is real.
"""

from __future__ import annotations

import csv
import io
import json
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sfumato.core.errors import ReleaseError, SchemaError
from sfumato.core.exact import format_exact
from sfumato.core.facts.column import Column, parse_ranges
from sfumato.core.facts.domain import Bins, IntegerRange, Values
from sfumato.core.facts.project import Project
from sfumato.core.facts.table import Bounding, PrivacyUnit, Table
from sfumato.core.files import MOST_TEXT, read_regular
from sfumato.release.folder import write_folder
from sfumato.tables.arrays import Floats, Whole
from sfumato.tables.contest import Parameters, Run, read_parameters
from sfumato.tables.read import table_to_csv

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

_CENSUS = tomllib.loads(files(__package__).joinpath("census.toml").read_text("utf-8"))
BINS_BY_HAND: Mapping[str, list[Any]] = _CENSUS["bins_by_hand"]


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


_YEAR, _PUBLIC_YEAR = 2016, 2019
_NEIGHBOURHOODS, _KINDS = 60, 20
_MOST = {"sprint1": 20, "sprint3": 200, "match3": 1}
_PEOPLE = {"sprint1": 40_000, "sprint3": 1_500, "match3": 20_000}
_DELTA = Fraction(25, 10**6)
_COMPANIES, _PAYMENTS = 57, (-1, 0, 1, 2, 3, 5, 6, 7, 8)
_AREAS = (-1, *range(1, 78))
_AMOUNTS = {"fare": 9900, "tips": 407, "trip_total": 9900, "trip_seconds": 86400, "trip_miles": 1428}


def make_pack(
    contest: Contest, out: Path | str, *, people: int | None = None, seed: int = 1940, force: bool = False
) -> Path:
    """The folder `out` with a simulated pack of `contest` about so many `people` (taxis, residents, persons).

    Public records are another draw from the same city or country, as the contests' development data were.
    """
    out = Path(out)
    if out.exists() and not force:
        raise ReleaseError(f"folder {out.name!r} exists already; --force replaces what it holds")
    count = _PEOPLE[contest] if people is None else people
    if count < 10:
        raise ReleaseError(f"a pack needs at least 10 people, got {count}")
    make = {"sprint1": _make_incidents, "sprint3": _make_trips, "match3": _make_census}[contest]
    write_folder(out, make(count, seed))
    return out


def _make_incidents(people: int, seed: int) -> dict[str, bytes]:
    neighbourhoods, kinds, months = range(_NEIGHBOURHOODS), range(_KINDS), range(1, 13)
    schema = {
        "periods": [{"year": _YEAR, "month": month} for month in months],
        "neighborhood": [{"code": code, "name": f"Neighborhood {code}"} for code in neighbourhoods],
        "incident_type": [{"code": code, "name": f"Kind {code}"} for code in kinds],
    }
    runs = [
        {"epsilon": epsilon, "delta": people**-2, "max_records_per_individual": 20}
        for epsilon in (1.0, 2.0, 10.0)
    ]
    header = ["epsilon", "neighborhood", "year", "month", *kinds]
    lines = [
        [run["epsilon"], place, _YEAR, month, *[0] * _KINDS]
        for run in runs
        for place in neighbourhoods
        for month in months
    ]
    return {
        "parameters.json": _pack_json({"runs": runs, "schema": schema}),
        "submission_format.csv": _pack_lines([header, *lines]),
        "incidents.csv": _pack_table(_draw_incidents(people, seed, turn=0, year=_YEAR)),
        "public.csv": _pack_table(_draw_incidents(people, seed, turn=1, year=_YEAR)),
    }


def _draw_incidents(people: int, seed: int, *, turn: int, year: int) -> dict[str, NDArray[Any]]:
    city = np.random.default_rng(seed)
    homes, kinds = city.dirichlet(np.full(_NEIGHBOURHOODS, 0.8)), city.dirichlet(np.full(_KINDS, 0.4))
    leaning = city.dirichlet(kinds * 30 + 0.05, size=_NEIGHBOURHOODS)
    random = np.random.default_rng([seed, turn])
    resident = np.repeat(np.arange(people), np.minimum(random.geometric(0.35, people), _MOST["sprint1"]))
    home = random.choice(_NEIGHBOURHOODS, people, p=homes)[resident]
    place = np.where(
        random.random(resident.size) < 0.8, home, random.choice(_NEIGHBOURHOODS, resident.size, p=homes)
    )
    month = np.clip(np.rint(random.normal(7, 3.4, resident.size)), 1, 12).astype(np.int64)
    kind = _draw_each(leaning[place], random)
    order = random.permutation(resident.size)
    return {
        "year": np.full(resident.size, year),
        "month": month[order],
        "day_of_week": random.integers(0, 7, resident.size),
        "neighborhood": place[order],
        "incident_type": kind[order],
        "sim_resident": 100_000 + resident[order],
    }


def _make_trips(people: int, seed: int) -> dict[str, bytes]:
    listed = {
        "shift": range(21),
        "company_id": range(_COMPANIES),
        "pickup_community_area": _AREAS,
        "dropoff_community_area": _AREAS,
        "payment_type": _PAYMENTS,
        "trip_day_of_week": range(7),
        "trip_hour_of_day": range(24),
    }
    schema: dict[str, Any] = {"taxi_id": {"dtype": "int64", "kind": "id"}}
    schema |= {name: {"kind": "categorical", "values": list(values)} for name, values in listed.items()}
    schema |= {name: {"kind": "numeric", "min": -1, "max": most} for name, most in _AMOUNTS.items()}
    runs = [
        {
            "epsilon": epsilon,
            "delta": float(_DELTA),
            "max_records": 10**6,
            "max_records_per_individual": _MOST["sprint3"],
        }
        for epsilon in (1.0, 10.0)
    ]
    trips = _draw_trips(people, seed, turn=0)
    header = ["epsilon", *(name for name in trips if not name.startswith(("trip_day", "trip_hour")))]
    return {
        "parameters.json": _pack_json({"runs": runs, "schema": schema}),
        "submission_format.csv": _pack_lines([header]),
        "ground_truth.csv": _pack_table(trips),
        "public.csv": _pack_table(_draw_trips(people, seed, turn=1)),
    }


def _draw_trips(taxis: int, seed: int, *, turn: int) -> dict[str, NDArray[Any]]:
    """Taxis with a company and two shifts a week; trips begin where people are and cost by their length."""
    city = np.random.default_rng(seed)
    busy, companies = city.dirichlet(np.full(len(_AREAS), 0.25)), city.dirichlet(np.full(_COMPANIES, 0.3))
    there = city.uniform(0, 25, (len(_AREAS), 2))
    random = np.random.default_rng([seed, turn])
    taxi = np.repeat(
        np.arange(taxis), np.minimum(1 + random.negative_binomial(1.2, 0.025, taxis), _MOST["sprint3"])
    )
    company = random.choice(_COMPANIES, taxis, p=companies)[taxi]
    shifts = random.integers(0, 21, (taxis, 2))
    shift = shifts[taxi, random.integers(0, 2, taxi.size)]
    pickup = random.choice(len(_AREAS), taxi.size, p=busy)
    same = random.random(taxi.size) < 0.25
    dropoff = np.where(same, pickup, random.choice(len(_AREAS), taxi.size, p=busy))
    miles = np.hypot(*(there[pickup] - there[dropoff]).T) + random.exponential(1, taxi.size)
    seconds = np.minimum(180 + 170 * miles * random.lognormal(0, 0.3, taxi.size), 80_000)
    fare = np.minimum(3 + 2.3 * miles, 400)
    payment = random.choice(
        len(_PAYMENTS), taxi.size, p=[0.005, 0.5, 0.4, 0.03, 0.03, 0.01, 0.01, 0.01, 0.005]
    )
    tips = np.where(payment == 2, fare * random.beta(4, 14, taxi.size), 0)
    amounts = {
        "fare": fare,
        "tips": tips,
        "trip_total": fare + tips,
        "trip_seconds": seconds,
        "trip_miles": miles,
    }
    return {
        "taxi_id": 1_000_000 + (7919 * (taxi + taxis * turn)) % 8_000_000,
        "shift": shift,
        "company_id": company,
        "pickup_community_area": np.array(_AREAS)[pickup],
        "dropoff_community_area": np.array(_AREAS)[dropoff],
        "payment_type": np.array(_PAYMENTS)[payment],
        "trip_day_of_week": shift // 3,
        "trip_hour_of_day": (4 + 8 * (shift % 3) + random.integers(0, 8, taxi.size)) % 24,
        **{name: np.rint(values).astype(np.int64) for name, values in amounts.items()},
    }


def _make_census(people: int, seed: int) -> dict[str, bytes]:
    found = re.findall(r"([A-Z]\w*) (\d+)(?: (\d+))?", _CENSUS["fields"])
    fields = {name: (int(most), int(listed) if listed else None) for name, most, listed in found}
    codes = {name: _list_codes(name, *facts) for name, facts in fields.items()}
    specs = {name: {"type": "enum", "maxval": facts[0], "optional": False} for name, facts in fields.items()}
    book = "".join(
        f"{name}\tField {name.lower()}\n"
        + "".join(f"{code}\tCode {code}\n" for code in codes[name].tolist())
        + "\n"
        for name, facts in fields.items()
        if facts[1] is not None
    )
    return {
        "colorado-specs.json": _pack_json(specs),
        "codebook.cbk": book.encode(),
        "colorado.csv": _pack_table(_draw_people(people, codes, seed, turn=0)),
        "public.csv": _pack_table(_draw_people(people, codes, seed, turn=1)),
    }


def _list_codes(name: str, most: int, listed: int | None) -> Whole:
    """The codes of a field that occur: those of the codebook, spread up to the largest, or all of them."""
    if name in BINS_BY_HAND:
        return np.array(parse_ranges(BINS_BY_HAND[name]))
    if listed is None:
        return np.arange(most + 1)
    if name == "SEX":
        return np.array([1, 2])
    return np.unique(np.linspace(0, most, min(listed, most + 1)).astype(np.int64))


def _draw_people(people: int, codes: Mapping[str, Whole], seed: int, *, turn: int) -> dict[str, NDArray[Any]]:
    """Persons whose fields follow three hidden numbers: of where they live, work, and come from."""
    country = np.random.default_rng(seed)
    facts = {
        name: (int(country.integers(0, 3)), float(country.uniform(0.3, 0.95)), float(country.uniform(1, 4)))
        for name in codes
    }
    random = np.random.default_rng([seed, turn])
    hidden = random.beta(0.6, 1.6, (3, people))
    drawn = {}
    for name, known in codes.items():
        which, weight, steep = facts[name]
        follows = random.random(people) < weight
        shares = np.where(follows, hidden[which], random.beta(0.6, 1.6, people))
        drawn[name] = known[np.minimum((shares**steep * known.size).astype(np.int64), known.size - 1)]
    return drawn


def _draw_each(shares: Floats, random: np.random.Generator) -> Whole:
    """One code per row of `shares`, drawn by them."""
    below = np.cumsum(shares, axis=1)
    codes: Whole = np.minimum((below < random.random(len(shares))[:, None]).sum(axis=1), shares.shape[1] - 1)
    return codes


def _pack_json(document: dict[str, Any]) -> bytes:
    return (json.dumps(document, indent=1) + "\n").encode()


def _pack_lines(lines: list[list[Any]]) -> bytes:
    sink = io.StringIO()
    csv.writer(sink, lineterminator="\n").writerows(lines)
    return sink.getvalue().encode()


def _pack_table(columns: Mapping[str, NDArray[Any]]) -> bytes:
    return table_to_csv(pa.table(dict(columns)), bare_names=True)
