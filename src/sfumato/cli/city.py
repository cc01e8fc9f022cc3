"""The demo's files: a simulated city with its map, its project file, and a recipe."""

from __future__ import annotations

import shutil
import tomllib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from sfumato.core.errors import ReleaseError

_FILES = Path(__file__).with_name("demo_files")
_PROJECT = "sfumato.toml"
_MARK = "# A demo of sfumato: the city is simulated."


@dataclass(frozen=True, slots=True, kw_only=True)
class City:
    """The size of a simulated city, of up to 80 neighbourhoods: what happens follows from it and the seed."""

    neighbourhoods: int = 80
    incident_types: int = 24
    residents: int = 60_000
    seed: int = 1519


def simulate_incidents(city: City) -> pa.Table:
    """Returns one year of simulated incidents: resident, neighbourhood, opened (a date), incident.

    >>> simulate_incidents(City(residents=100)).column_names
    ['resident', 'neighbourhood', 'opened', 'incident']
    """
    random = np.random.default_rng(city.seed)
    records = np.minimum(random.geometric(0.42, city.residents), 20)
    resident = np.repeat(np.arange(city.residents), records)
    home = random.choice(city.neighbourhoods, city.residents, p=_long_tail(city.neighbourhoods, 1.1))
    # Most calls come from home, the rest from wherever people go.
    elsewhere = random.choice(city.neighbourhoods, resident.size, p=_long_tail(city.neighbourhoods, 0.6))
    neighbourhood = np.where(random.random(resident.size) < 0.8, home[resident], elsewhere)
    incident = random.choice(city.incident_types, resident.size, p=_long_tail(city.incident_types, 1.0))
    season = 1 + 0.35 * np.cos(2 * np.pi * (np.arange(365) - 200) / 365)
    day = random.choice(365, resident.size, p=season / season.sum())
    opened = np.datetime64("2025-01-01") + day
    order = random.permutation(resident.size)
    return pa.table(
        {
            "resident": pa.array(resident[order] + 100_000),
            "neighbourhood": _named(neighbourhood_names(city), neighbourhood[order]),
            "opened": pa.array(opened[order]),
            "incident": _named(incident_names(city), incident[order]),
        }
    )


def neighbourhood_names(city: City) -> list[str]:
    """Returns the public names of the city's neighbourhoods."""
    return _read_values("neighbourhood")[: city.neighbourhoods]


def incident_names(city: City) -> list[str]:
    """Returns the public names of the incident types."""
    return _read_values("incident")[: city.incident_types]


def _read_values(column: str) -> list[str]:
    project = tomllib.loads((_FILES / _PROJECT).read_text(encoding="utf-8"))
    values: list[str] = project["tables"]["incidents"]["columns"][column]["values"]
    return values


def _long_tail(size: int, steepness: float) -> NDArray[np.float64]:
    weights: NDArray[np.float64] = 1 / (np.arange(size) + 2.0) ** steepness
    weights /= weights.sum()
    return weights


def _named(names: list[str], codes: NDArray[np.int64]) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array(codes.astype(np.int32)), pa.array(names)).cast(pa.string())


def write_demo(folder: Path, *, force: bool = False) -> None:
    """Writes the simulated records, and the map, the project file and the recipe that belong to them."""
    if folder.exists():
        project = folder / _PROJECT
        ours = project.exists() and project.read_text(encoding="utf-8").startswith(_MARK)
        if not force or not ours:
            hint = "--force to replace it" if ours else "it is not a demo, so choose another"
            raise ReleaseError(f"folder {folder.name!r} exists already; {hint}")
        shutil.rmtree(folder)
    try:
        folder.mkdir(parents=True)
        pq.write_table(simulate_incidents(City()), folder / "incidents.parquet")
        for each in _FILES.iterdir():
            (folder / each.name).write_bytes(each.read_bytes())
    except OSError as error:
        raise ReleaseError(f"the demo could not be written to {folder.name!r}: {error.strerror}") from None


def draw_bars(table: pa.Table, *, width: int = 40) -> str:
    """Returns the released incidents per month as a small bar chart."""
    months = table.group_by("month").aggregate([("count", "sum")]).sort_by("month")
    counts = months["count_sum"].to_pylist()
    most = max(1, *counts)
    lines = ["released incidents per month"]
    for month, count in zip(months["month"].to_pylist(), counts, strict=True):
        lines.append(f"  {month:>2}  {'█' * round(width * count / most):<{width}}  {count:,}")
    return "\n".join(lines)
