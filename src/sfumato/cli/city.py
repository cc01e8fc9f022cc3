"""The demo's files: a simulated city with its map, its project file, and a recipe."""

from __future__ import annotations

import json
import math
import shutil
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from sfumato.core.errors import ReleaseError
from sfumato.tables import quote_toml

_FIRST = ("Old", "North", "South", "East", "West", "Upper", "Lower", "New", "Great", "Little")
_SECOND = ("Harbour", "Mill", "Garden", "Bridge", "Market", "Chapel", "Orchard", "Quarry")
_INCIDENTS = (
    "noise complaint", "theft from car", "burglary", "vandalism", "traffic accident", "lost property",
    "assault", "shoplifting", "suspicious person", "fire alarm", "stolen bicycle", "fraud", "stray animal",
    "blocked street", "medical call", "missing person", "trespass", "stolen car", "robbery", "drug offence",
    "graffiti", "fireworks", "illegal dumping", "harassment",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class City:
    """The size of a simulated city: everything else follows from it and the seed."""

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
    names = [f"{first} {second}" for second in _SECOND for first in _FIRST]
    return [names[i] if i < len(names) else f"Ward {i}" for i in range(city.neighbourhoods)]


def incident_names(city: City) -> list[str]:
    """Returns the public names of the incident types."""
    return [_INCIDENTS[i] if i < len(_INCIDENTS) else f"code {i}" for i in range(city.incident_types)]


def simulate_map(city: City) -> str:
    """Returns a made-up map of the city in GeoJSON, one area with its `name` for every neighbourhood.

    Neighbours share their winding borders; one area has a lake, and the first an island of its own.

    >>> simulate_map(City(neighbourhoods=3)).count('"type": "Polygon"')
    2
    """
    random = np.random.default_rng(city.seed)
    across = math.ceil(math.sqrt(city.neighbourhoods * 1.25))
    rows = -(-city.neighbourhoods // across)
    corners = np.stack(np.meshgrid(np.arange(across + 1.0), np.arange(rows + 1.0), indexing="ij"), -1)
    corners += random.uniform(-0.24, 0.24, corners.shape)
    borders: dict[tuple[tuple[int, int], tuple[int, int]], NDArray[np.float64]] = {}

    def walk(start: tuple[int, int], stop: tuple[int, int]) -> NDArray[np.float64]:
        """Returns the border from one corner to the other, without its end: the same both ways."""
        one, other = sorted((start, stop))
        if (one, other) not in borders:
            line = np.linspace(corners[one], corners[other], 9)
            line[1:-1] += random.normal(0, 0.035, (7, 2))
            borders[one, other] = line
        line = borders[one, other]
        return (line if start == one else line[::-1])[:-1]

    features = []
    for place, name in enumerate(neighbourhood_names(city)):
        row, column = divmod(place, across)
        stops = [(column, row), (column + 1, row), (column + 1, row + 1), (column, row + 1), (column, row)]
        ring = np.concatenate([walk(*pair) for pair in pairwise(stops)])
        polygons = [[_locate(ring, across, rows)]]
        if place == rows // 2 * across + across // 3:
            polygons[0].append(_locate(_round((column + 0.5, row + 0.5), 0.2)[::-1], across, rows))
        if place == 0:
            polygons.append([_locate(_round((across * 0.3, -0.62), 0.34), across, rows)])
        kind = "Polygon" if len(polygons) == 1 else "MultiPolygon"
        geometry = {"type": kind, "coordinates": polygons[0] if kind == "Polygon" else polygons}
        features.append({"type": "Feature", "properties": {"name": name}, "geometry": geometry})
    note = "A made-up city: drawn from a public seed, and nowhere on the globe."
    return json.dumps({"type": "FeatureCollection", "note": note, "features": features})


def _round(centre: tuple[float, float], radius: float) -> NDArray[np.float64]:
    turns = np.linspace(0, 2 * np.pi, 17)[:-1]
    bent = radius * (1 + 0.18 * np.sin(3 * turns))
    return np.array(centre) + np.stack([bent * np.cos(turns), bent * np.sin(turns)], axis=1)


def _locate(points: NDArray[np.float64], across: int, rows: int) -> list[list[float]]:
    """Returns a closed ring in degrees, in the middle of an ocean: the city's grid bent towards a circle."""
    x, y = (points / (across, rows) * 2 - 1).T
    bent = np.stack(
        [x * np.sqrt(np.maximum(1 - y**2 / 3, 0.1)), y * np.sqrt(np.maximum(1 - x**2 / 3, 0.1))], 1
    )
    degrees = np.round(bent * (0.16, 0.1) + (-30.0, 41.0), 5)
    return [*degrees.tolist(), degrees[0].tolist()]


def _long_tail(size: int, steepness: float) -> NDArray[np.float64]:
    weights: NDArray[np.float64] = 1 / (np.arange(size) + 2.0) ** steepness
    weights /= weights.sum()
    return weights


def _named(names: list[str], codes: NDArray[np.int64]) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array(codes.astype(np.int32)), pa.array(names)).cast(pa.string())


_MARK = "# A demo of sfumato: the city is simulated."


def write_demo(folder: Path, *, force: bool = False) -> None:
    """Writes the simulated records, the map, the project file and the recipe into `folder`."""
    if folder.exists():
        project = folder / "sfumato.toml"
        ours = project.exists() and project.read_text(encoding="utf-8").startswith(_MARK)
        if not force or not ours:
            hint = "--force to replace it" if ours else "it is not a demo, so choose another"
            raise ReleaseError(f"folder {folder.name!r} exists already; {hint}")
        shutil.rmtree(folder)
    try:
        folder.mkdir(parents=True)
        city = City()
        pq.write_table(simulate_incidents(city), folder / "incidents.parquet")
        (folder / "sfumato.toml").write_text(_project_file(city), encoding="utf-8")
        (folder / "monthly.toml").write_text(_RECIPE, encoding="utf-8")
        (folder / "city.geojson").write_text(simulate_map(city), encoding="utf-8")
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


def _project_file(city: City) -> str:
    neighbourhoods = ",\n  ".join(quote_toml(name) for name in neighbourhood_names(city))
    incidents = ",\n  ".join(quote_toml(name) for name in incident_names(city))
    return f"""{_MARK}

[budget]
epsilon = 3.0

[tables.incidents]
source = "incidents.parquet"
unit = "resident"       # whom we protect: one resident, with all of their records
max_records = 20        # records of one resident beyond these do not count

[tables.incidents.columns.neighbourhood]
values = [
  {neighbourhoods},
]

[tables.incidents.columns.month]
from = "opened"
period = "month"

[tables.incidents.columns.incident]
values = [
  {incidents},
]
"""


_RECIPE = """# Counts of every neighbourhood and month.
recipe = "cell-counts"
table = "incidents"
by = ["neighbourhood", "month"]
epsilon = 1.0
"""
