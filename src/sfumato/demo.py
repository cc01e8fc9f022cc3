"""The demo's files: a simulated city, its project file, and a recipe."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from sfumato.errors import ReleaseError
from sfumato.schema import quote_toml
from sfumato.simulate import City, incident_names, neighbourhood_names, simulate_incidents

_MARK = "# A demo of sfumato: the city is simulated."


def write_demo(folder: Path, *, force: bool = False) -> None:
    """Writes the simulated records, the project file and the recipe into `folder`."""
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
    except OSError as error:
        raise ReleaseError(f"the demo could not be written to {folder.name!r}: {error.strerror}") from None


def draw_bars(table: pa.Table, *, width: int = 40) -> str:
    """The released incidents per month as a small bar chart."""
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
