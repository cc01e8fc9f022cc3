"""`sfumato contest`: a contest pack in, its submission out.

A pack asks for a histogram of incidents per neighbourhood and month, in the contest's own layout.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from sfumato.cli.output import Force, Json, print_json, progress, say
from sfumato.core.errors import SchemaError

if TYPE_CHECKING:
    import numpy as np

    from sfumato.core.facts.contest import Parameters
    from sfumato.core.facts.project import Project
    from sfumato.release.release import Release

_UNIT = "sim_resident"
_BY = ("neighborhood", "period", "incident_type")


def contest(
    sprint: Annotated[Literal["sprint1"], typer.Argument(help="Which contest.")],
    pack: Annotated[
        str, typer.Argument(help="A folder with incidents.csv, parameters.json, submission_format.csv.")
    ],
    out: Annotated[
        str | None, typer.Option("--out", "-o", help="The submission file; PACK/submission.csv by default.")
    ] = None,
    force: Force = False,
    json: Json = False,
) -> None:
    """Read a contest pack and write its submission, every epsilon charged to a ledger in the pack."""
    target = Path(out) if out else Path(pack) / "submission.csv"
    with progress(quiet=json) as stage:
        release = make_submission(Path(pack), target, force=force, progress=stage)
    if json:
        print_json({"contest": sprint, "submission": str(target), "total": release.certificate["total"]})
        return
    spent = (
        "nothing (answered before)"
        if release.repeated
        else f"epsilon {release.certificate['total']['epsilon']}"
    )
    say(f"Wrote {target}; spent {spent}.")


def make_submission(
    pack: Path,
    out: Path,
    *,
    force: bool = False,
    progress: Callable[[str], None] = lambda _: None,
) -> Release:
    """The release behind the submission for `pack`; the submission itself is written to `out`.

    Every epsilon of the pack is a measurement of its own and charged to `ledger.db` in the pack.
    """
    import numpy as np

    from sfumato.core.facts.contest import read_parameters
    from sfumato.core.files import check_file, write_file
    from sfumato.curator import Curator
    from sfumato.recipes.cell_counts import CellCounts

    if not pack.is_dir():
        raise SchemaError(f"there is no folder {pack.name!r}; a pack is a folder")
    parameters = read_parameters(pack / "parameters.json")
    missing = [name for name in _BY if name not in parameters.columns]
    if missing or not parameters.runs:
        raise SchemaError(f"parameters.json is not of this contest: it lacks {', '.join(missing) or 'runs'}")
    header = _read_header(pack / "submission_format.csv", parameters)
    check_file(out, force=force)
    curator = Curator(_make_project(pack, parameters))
    epsilons = [run.epsilon for run in parameters.runs]
    release = curator.release(CellCounts(table="incidents", by=_BY), epsilon=epsilons, progress=progress)
    counts = np.maximum(np.stack([each.noisy_values for each in release.measurements]), 0)
    write_file(out, _format_rows(header, parameters, counts), force=force)
    return release


def _make_project(pack: Path, parameters: Parameters) -> Project:
    from sfumato.core.facts.project import Project
    from sfumato.core.facts.table import PrivacyUnit, Table

    bounds = {run.max_records for run in parameters.runs}
    if len(bounds) != 1:
        raise SchemaError("parameters.json: its runs have different max_records_per_individual")
    table = Table(
        name="incidents",
        source="incidents.csv",
        unit=PrivacyUnit(column=parameters.unit or _UNIT, max_records=bounds.pop()),
        columns=parameters.columns,
    )
    return Project(
        folder=pack.resolve(),
        epsilon=sum((run.epsilon for run in parameters.runs), Fraction(0)),
        delta=Fraction(0),
        ledger="ledger.db",
        tables={"incidents": table},
    )


def _read_header(path: Path, parameters: Parameters) -> list[str]:
    try:
        with path.open(newline="", encoding="utf-8-sig") as lines:
            header = next(csv.reader(lines), [])
    except OSError:
        raise SchemaError("the pack has no readable submission_format.csv") from None
    codes = {str(code) for code in parameters.columns["incident_type"].labels}
    index = ["epsilon", "neighborhood", "year", "month"]
    if header[:4] != index or set(header[4:]) != codes:
        raise SchemaError(
            "submission_format.csv must have the columns epsilon, neighborhood, year, month and then one "
            "per incident code of parameters.json"
        )
    return header


def _format_rows(header: list[str], parameters: Parameters, counts: np.ndarray) -> bytes:
    """One line per epsilon, neighbourhood and period, one field per incident code."""
    neighbourhoods = parameters.columns["neighborhood"].labels
    periods = parameters.columns["period"].labels
    codes = [str(code) for code in parameters.columns["incident_type"].labels]
    order = [codes.index(name) for name in header[4:]]
    cube = counts.reshape(len(parameters.runs), len(neighbourhoods), len(periods), len(codes))
    sink = io.StringIO()
    writer = csv.writer(sink, lineterminator="\n")
    writer.writerow(header)
    for run, blocks in zip(parameters.runs, cube[..., order].tolist(), strict=True):
        for neighbourhood, block in zip(neighbourhoods, blocks, strict=True):
            for period, row in zip(periods, block, strict=True):
                year, month = str(period).rsplit("-", 1)
                writer.writerow([float(run.epsilon), neighbourhood, year, month, *row])
    return sink.getvalue().encode()
