"""`sfumato report`: one HTML file about a release, and about the truth if it is given."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sfumato.cli.output import Force, Json, note, print_json, progress, say

if TYPE_CHECKING:
    import pyarrow as pa

    from sfumato.core.facts.table import Table
    from sfumato.report.facts import Facts
    from sfumato.report.fields import Axes, Field


def report(
    folder: Annotated[str, typer.Argument(help="The folder of a release.")],
    truth: Annotated[
        str | None, typer.Option("--truth", help="The table of true records; the report is then INTERNAL.")
    ] = None,
    project: Annotated[
        str | None, typer.Option("--project", "-p", help="The project file; adds all charges of its ledger.")
    ] = None,
    out: Annotated[
        str | None, typer.Option("--out", "-o", help="The file to write, beside the folder by default.")
    ] = None,
    place: Annotated[str | None, typer.Option("--place", help="The column to draw as places.")] = None,
    time: Annotated[str | None, typer.Option("--time", help="The column to draw as time.")] = None,
    areas: Annotated[
        str | None, typer.Option("--map", help="A GeoJSON file of the places, to draw them on a map.")
    ] = None,
    key: Annotated[
        str | None,
        typer.Option("--key", help="The property of the map with their names; by default the likeliest."),
    ] = None,
    force: Force = False,
    json: Json = False,
) -> None:
    """Write one HTML file that explains a release: privacy, accuracy, maps, how to use it.

    Reads no record and spends nothing, unless --truth is given.
    """
    import sfumato
    from sfumato.core.errors import RecipeError
    from sfumato.core.files import check_file, write_file
    from sfumato.release.folder import open_folder
    from sfumato.release.verification import check_charge
    from sfumato.report.facts import read_facts
    from sfumato.report.geography import read_geography
    from sfumato.report.model import has_model
    from sfumato.report.page import build_report, find_axes, place_on_map
    from sfumato.report.pages.render import INTERNAL

    release = Path(folder)
    suffix = f"-report-{INTERNAL}.html" if truth is not None else "-report.html"
    target = Path(out) if out is not None else _beside(release, suffix)
    _refuse_inside(target, release)
    check_file(target, force=force)
    if key is not None and areas is None:
        raise RecipeError("--key names a property of a map; give the map with --map")
    geography = read_geography(areas) if areas is not None else None
    ledger = sfumato.open(project).budget() if project is not None else None
    comparison, maps = None, None
    with progress(quiet=json) as stage:
        stage("reading the release")
        open_folder(release, load=()).plan()
        if has_model(release):
            if geography is not None:
                raise RecipeError("a model has no counts of places, so --map has nothing to draw")
            _write_model(release, target, truth=truth, force=force, json=json)
            return
        facts = read_facts(release)
        if ledger is not None:
            check_charge(facts.certificate, [entry.hash for entry in ledger.entries])
        axes = find_axes(facts, place=place, time=time, geography=geography)
        notes = place_on_map(geography, axes, key=key).describe() if geography is not None else []
        if truth is not None:
            comparison, maps = _compare(facts, axes, Path(truth), stage)
        stage("drawing the report")
        content = build_report(
            release,
            ledger=ledger,
            comparison=comparison,
            maps=maps,
            place=place,
            time=time,
            geography=geography,
            key=key,
        )
    write_file(target, content, force=force)
    for each in notes:
        note(f"map: {each}")
    if json:
        print_json({"report": str(target), "bytes": len(content), "internal": truth is not None})
        return
    say(f"Wrote {target} ({len(content) / 1000:,.0f} kB).")
    if truth is not None:
        note(f"{INTERNAL}: the report compares with the truth; it is not private and must not be published")


def _write_model(release: Path, target: Path, *, truth: str | None, force: bool, json: bool) -> None:
    """Writes the report on a model."""
    from sfumato.core.errors import ReleaseError
    from sfumato.core.files import write_file
    from sfumato.report.model import build_model_report

    if truth is not None:
        raise ReleaseError("a model is no table of counts or rows, so --truth has nothing to compare it with")
    content = build_model_report(release)
    write_file(target, content, force=force)
    if json:
        print_json({"report": str(target), "bytes": len(content), "internal": False})
        return
    say(f"Wrote {target} ({len(content) / 1000:,.0f} kB).")


def _beside(folder: Path, suffix: str) -> Path:
    resolved = folder.resolve()
    name = f"{resolved.name}{suffix}"
    # The path as it was typed, where it has a parent; `.` and `..` have none of their own.
    return folder.parent / name if folder.name == resolved.name else resolved.parent / name


def _refuse_inside(target: Path, folder: Path) -> None:
    from sfumato.core.errors import ReleaseError

    inside = target.resolve()
    if folder.resolve() in (inside, *inside.parents):
        raise ReleaseError("a release folder holds release files only; write the report beside it")


def _compare(
    facts: Facts, axes: Axes, truth: Path, stage: Callable[[str], None]
) -> tuple[Any, dict[str, Any] | None]:
    """Compares with the truth, once per epsilon, and returns exact counts of the truth, too."""
    from sfumato.core.facts.table import parse_table

    (name, spec), *_ = facts.certificate["plan"]["table"].items()
    table = parse_table(name, spec)
    if not facts.has_epsilon or facts.best is None:
        record, maps = _compare_one(facts, axes, truth, table, facts.table, stage)
        return record, maps
    import pyarrow.compute as pc

    from sfumato.report.facts import read_epsilon

    comparisons, maps = [], None
    for epsilon in sorted(facts.epsilons, key=read_epsilon):
        mine = facts.table.filter(pc.equal(facts.table["epsilon"], read_epsilon(epsilon)))
        record, maps = _compare_one(facts, axes, truth, table, mine.drop_columns(["epsilon"]), stage)
        comparisons.append({"epsilon": epsilon, "comparison": record})
    return comparisons, maps


def _compare_one(
    facts: Facts, axes: Axes, truth: Path, table: Table, released: pa.Table, stage: Callable[[str], None]
) -> tuple[dict[str, Any], dict[str, Any] | None]:
    import numpy as np

    from sfumato.metrics import MetricError, compare_pair, encode_pair
    from sfumato.report.truth import choose_cells

    try:
        pair = encode_pair(truth, released, table=table, weight=facts.weight, unit=table.unit.column)
    except MetricError:  # the truth may have no column of individuals
        pair = encode_pair(truth, released, table=table, weight=facts.weight)
    record = compare_pair(pair, progress=stage).to_record()

    def count(fields: Sequence[Field]) -> Any:  # noqa: ANN401 - nested lists, as deep as there are fields
        cells = np.zeros(pair.truth.rows, np.int64)
        for field in fields:
            cells = cells * field.size + pair.truth.codes[field.name]
        shape = tuple(field.size for field in fields)
        counted = np.bincount(cells, pair.truth.weights, minlength=int(np.prod(shape)))
        return counted.reshape(shape).tolist()

    known = {field.name for field in facts.shown} & set(pair.columns)
    maps: dict[str, Any] = {
        "columns": {field.name: count([field]) for field in facts.shown if field.name in known}
    }
    drawn = [field for field in (axes.place, axes.time) if field is not None]
    if axes.place is not None and all(field.name in known for field in drawn):
        maps["truth"] = count(drawn)
    cells = choose_cells(facts, axes)
    if cells and all(field.name in known for field in cells):
        maps["cells"] = {"columns": [field.name for field in cells], "truth": np.ravel(count(cells)).tolist()}
    return record, maps
