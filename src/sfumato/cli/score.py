"""`sfumato score`, `report` and `audit`: how close a release is to the records, its page, and its claim."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from typer import Argument, BadParameter, Exit, Option

from sfumato.cli.output import (
    Force,
    Json,
    ProjectOption,
    note,
    open_curator,
    print_json,
    print_result,
    print_table,
    progress,
    say,
)

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

    from sfumato.audit.layers import Effort
    from sfumato.core.facts.table import Table
    from sfumato.metrics.scoring import Scores
    from sfumato.report.facts import Facts
    from sfumato.report.fields import Axes, Field


_SHOWN = 10
_PARTS = {
    "pie-chart": ("mean", "total", "jsd", "misleading", "bias"),
    "k-marginal": ("score",),
    "taxi": ("score", "k_marginal", "graph_edge", "conjunction"),
    "match3": ("score", "marginals", "conjunctions", "income"),
}


def score(
    release: Annotated[str, Argument(help="The folder of a release, or a Parquet, CSV or CSV.gz file.")],
    truth: Annotated[str | None, Option(help="The file of the private records.")] = None,
    project: Annotated[
        str | None, Option("--project", "-p", help="Take records and columns from this project file.")
    ] = None,
    table: Annotated[str | None, Option(help="The project's table, if the release does not name it.")] = None,
    metric: Annotated[
        Literal["general", "pie-chart", "k-marginal", "taxi", "match3", "l1"], Option(help="What to measure.")
    ] = "general",
    column: Annotated[list[str] | None, Option(help="general: compare these only; may repeat.")] = None,
    weight: Annotated[str | None, Option(help="The column that counts records; 'count' if there.")] = None,
    unit: Annotated[str | None, Option(help="The truth's column that tells individuals apart.")] = None,
    target: Annotated[str | None, Option(help="general: the column that classifiers predict.")] = None,
    place: Annotated[
        list[str] | None, Option(help="pie-chart, k-marginal: the columns of the place; may repeat.")
    ] = None,
    time: Annotated[
        list[str] | None, Option(help="pie-chart, k-marginal: the columns of the time; may repeat.")
    ] = None,
    kind: Annotated[str | None, Option(help="pie-chart: the column whose shares are compared.")] = None,
    bias_cutoff: Annotated[
        int | None,
        Option(help="k-marginal, taxi: worst distance where counts differ by this; 0 for no rule."),
    ] = None,
    official_alignment: Annotated[
        bool, Option("--official-alignment", help="taxi: repeat the contest code's reading of lost columns.")
    ] = False,
    seed: Annotated[int, Option(help="Draws the references and what is sampled; public.")] = 0,
    publish_epsilon: Annotated[
        str | None, Option(help="Spend this on a noisy score that may be published (pie-chart, l1).")
    ] = None,
    json: Json = False,
) -> None:
    """Compare a release with the private records. INTERNAL: the figures are not private.

    Every score stands beside those of an all-zero release, of a uniform one and of half of the
    individuals. Releases of several epsilons are scored one by one.
    """
    if publish_epsilon is not None:
        columns = tuple(column or ()) or (*(place or ()), *(time or ()), *((kind,) if kind else ()))
        _publish(release, project, metric=metric, epsilon=publish_epsilon, columns=columns, json=json)
        return
    if metric == "l1":
        raise BadParameter("l1 is for --publish-epsilon; the general metrics have it for every marginal")

    from sfumato.metrics import INTERNAL
    from sfumato.metrics.scoring import Request, score_release

    if truth is None and project is None:
        raise BadParameter("give --truth FILE, or --project FILE to take the project's own table")
    if json or not sys.stdout.isatty():
        note(INTERNAL)
    request = Request(
        release=Path(release),
        truth=None if truth is None else Path(truth),
        project=None if project is None else Path(project),
        table=table,
        metric=metric,
        columns=tuple(column) if column else None,
        weight=weight,
        unit=unit,
        target=target,
        place=tuple(place or ()),
        time=tuple(time or ()),
        kind=kind,
        bias_cutoff=bias_cutoff,
        official_alignment=official_alignment,
        seed=seed,
    )
    with progress(quiet=json) as stage:
        scores = score_release(request, progress=stage)
    if json:
        print_json(scores.to_record())
        return
    say(INTERNAL)
    _show(scores)


def _publish(
    release: str, project: str | None, *, metric: str, epsilon: str, columns: tuple[str, ...], json: bool
) -> None:
    """Charges the ledger of the project and prints a noisy score."""
    from sfumato.core.exact import format_exact

    if project is None:
        raise BadParameter("--publish-epsilon needs --project FILE: the score is charged to its ledger")
    curator = open_curator(project)
    with progress(quiet=json) as stage:
        found = curator.publish_score(
            release, metric=metric, epsilon=epsilon, columns=columns or None, progress=stage
        )
    lines = []
    for each in found.scores:
        label = f"epsilon {each['epsilon']:g}: " if "epsilon" in each else ""
        lines.append(f"{label}{metric} {each['score']:.4g} (95 %: {each['low']:.4g} to {each['high']:.4g})")
    spent = "nothing: it was published before" if found.repeated else f"epsilon {format_exact(found.spent)}"
    lines.append(f"Noisy, so it may be published. Compared with bounded records. Spent {spent}.")
    print_result(found.to_record(), *lines, json=json)


def _show(scores: Scores) -> None:
    for epsilon, record in scores.results:
        if epsilon is not None:
            say(f"\nepsilon {epsilon:g}")
        if scores.metric == "general":
            _show_general(record)
        else:
            parts = _PARTS[scores.metric]
            _show_rows([scores.metric, *parts], record["references"], "name", *parts)
    if scores.overall is not None:
        say("\nall epsilons: " + ", ".join(f"{name} {value:.6g}" for name, value in scores.overall.items()))


def _show_general(record: dict[str, Any]) -> None:
    rows, found = record["rows"], record["propensity"]
    say(f"records: truth {rows['truth']:,}, release {rows['release']:,.10g}; distances from 0 (equal) to 1")
    headings = ["mean distance of", "one column", "two columns", "three columns"]
    _show_rows(headings, record["references"], "name", "tvd1", "tvd2", "tvd3")
    share = record["ladder"]["share"]
    percent = "less than 1 %" if share is None else f"{100 * share:.3g} %"
    say(f"pairs of columns are as close as in a plain sample of {percent} of the individuals")
    _show_rows(["worst marginals", "distance"], record["marginals"]["list"][:_SHOWN], "columns", "tvd")
    headings = ["most changed associations (Cramer's V)", "truth", "release"]
    _show_rows(headings, record["associations"]["worst"][: _SHOWN // 2], "columns", "truth", "release")
    if found is not None:
        say(
            f"told apart by a classifier: AUC {found['auc']:.3f} (0.5: not at all), "
            f"pMSE {found['pmse']:.3g}, {found['ratio']:.3g} times what chance gives"
        )
    headings = ["a classifier of", "trained on release", "trained on truth", "most frequent value"]
    _show_rows(headings, record["downstream"], "target", "trained_on_release", "trained_on_truth", "majority")
    groups = [
        {**each, "value": str(each["value"]), **{key: f"{each[key]:,.10g}" for key in ("truth", "release")}}
        for each in record["groups"][:_SHOWN]
    ]
    headings = ["worst groups", "value", "truth", "release", "distance"]
    _show_rows(headings, groups, "column", "value", "truth", "release", "tvd")


def _show_rows(headings: list[str], records: list[dict[str, Any]], *keys: str) -> None:
    """Prints what records have under `keys` as a table, if there are any."""
    if records:
        print_table(*headings, rows=([_show_value(record[key]) for key in keys] for record in records))


def _show_value(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, (int, float)):
        return f"{value:,.0f}" if abs(value) >= 10_000 else f"{value:.4g}"
    return " x ".join(value) if isinstance(value, (list, tuple)) else str(value)


def report(
    folder: Annotated[str, Argument(help="The folder of a release.")],
    truth: Annotated[
        str | None, Option(help="The table of true records; the report is then INTERNAL.")
    ] = None,
    project: Annotated[
        str | None, Option("--project", "-p", help="The project file; adds all charges of its ledger.")
    ] = None,
    out: Annotated[
        str | None, Option("--out", "-o", help="The file to write, beside the folder by default.")
    ] = None,
    place: Annotated[str | None, Option(help="The column to draw as places.")] = None,
    time: Annotated[str | None, Option(help="The column to draw as time.")] = None,
    areas: Annotated[
        str | None, Option("--map", help="A GeoJSON file of the places, to draw them on a map.")
    ] = None,
    key: Annotated[
        str | None, Option(help="The property of the map with their names; by default the likeliest.")
    ] = None,
    force: Force = False,
    json: Json = False,
) -> None:
    """Write one HTML file that explains a release. It tells of privacy, accuracy, maps, and how to use it.

    Reads no record and spends nothing, unless --truth is given.
    """
    import sfumato
    from sfumato.core.errors import RecipeError, ReleaseError
    from sfumato.core.files import check_file, write_file
    from sfumato.release.folder import open_folder
    from sfumato.release.verification import check_charge
    from sfumato.report.facts import read_facts
    from sfumato.report.geography import read_geography
    from sfumato.report.model import build_model_report, has_model
    from sfumato.report.page import build_report, find_axes, place_on_map
    from sfumato.report.pages.render import INTERNAL

    release = Path(folder)
    suffix = f"-report-{INTERNAL}.html" if truth is not None else "-report.html"
    target = Path(out) if out is not None else _beside(release, suffix)
    inside = target.resolve()
    if release.resolve() in (inside, *inside.parents):
        raise ReleaseError("a release folder holds release files only; write the report beside it")
    check_file(target, force=force)
    if key is not None and areas is None:
        raise RecipeError("--key names a property of a map; give the map with --map")
    geography = read_geography(areas) if areas is not None else None
    ledger = sfumato.open(project).budget() if project is not None else None
    comparison, maps, notes = None, None, []
    with progress(quiet=json) as stage:
        stage("reading the release")
        open_folder(release, load=()).plan()
        if has_model(release):
            if geography is not None:
                raise RecipeError("a model has no counts of places, so --map has nothing to draw")
            if truth is not None:
                raise ReleaseError("a model is no table of counts or rows, so --truth has nothing to compare")
            content = build_model_report(release)
        else:
            facts = read_facts(release)
            if ledger is not None:
                check_charge(facts.certificate, [entry.hash for entry in ledger.entries])
            axes = find_axes(facts, place=place, time=time, geography=geography)
            if geography is not None:
                notes = place_on_map(geography, axes, key=key).describe()
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
    document = {"report": str(target), "bytes": len(content), "internal": truth is not None}
    print_result(document, f"Wrote {target} ({len(content) / 1000:,.0f} kB).", json=json)
    if truth is not None and not json:
        note(f"{INTERNAL}: the report compares with the truth; it is not private and must not be published")


def explore(
    folder: Annotated[str, Argument(help="The folder of a release with a model.")],
    epsilon: Annotated[str | None, Option(help="Which model, if the release has several.")] = None,
    out: Annotated[
        str | None, Option("--out", "-o", help="The file to write, beside the folder by default.")
    ] = None,
    force: Force = False,
    json: Json = False,
) -> None:
    """Write one HTML file that answers questions about a model. It works offline, and spends nothing."""
    from sfumato.core.files import check_file, write_file
    from sfumato.report.explorer import build_explorer

    target = Path(out) if out is not None else _beside(Path(folder), "-explore.html")
    check_file(target, force=force)
    content = build_explorer(folder, epsilon=epsilon)
    write_file(target, content, force=force)
    document = {"explorer": str(target), "bytes": len(content)}
    print_result(document, f"Wrote {target} ({len(content) / 1000:,.0f} kB).", json=json)


def _beside(folder: Path, suffix: str) -> Path:
    resolved = folder.resolve()
    name = f"{resolved.name}{suffix}"
    # The path as it was typed, where it has a parent; `.` and `..` have none of their own.
    return folder.parent / name if folder.name == resolved.name else resolved.parent / name


def _compare(
    facts: Facts, axes: Axes, truth: Path, stage: Callable[[str], None]
) -> tuple[Any, dict[tuple[str, ...], NDArray[np.float64]]]:
    """Compares with the truth, once per epsilon, and returns exact counts of the truth, too."""
    from sfumato.core.facts.table import parse_table

    (name, spec), *_ = facts.certificate["plan"]["table"].items()
    table = parse_table(name, spec)
    if not facts.has_epsilon or facts.best is None:
        return _compare_one(facts, axes, truth, table, facts.table, stage)
    import pyarrow.compute as pc

    from sfumato.report.facts import read_epsilon

    comparisons = []
    maps: dict[tuple[str, ...], NDArray[np.float64]] = {}
    for epsilon in sorted(facts.epsilons, key=read_epsilon):
        mine = facts.table.filter(pc.equal(facts.table["epsilon"], read_epsilon(epsilon)))
        record, maps = _compare_one(facts, axes, truth, table, mine.drop_columns(["epsilon"]), stage)
        comparisons.append({"epsilon": epsilon, "comparison": record})
    return comparisons, maps


def _compare_one(
    facts: Facts, axes: Axes, truth: Path, table: Table, released: pa.Table, stage: Callable[[str], None]
) -> tuple[Any, dict[tuple[str, ...], NDArray[np.float64]]]:
    import numpy as np

    from sfumato.metrics import MetricError, compare_pair, encode_pair
    from sfumato.report.places import choose_cells

    try:
        pair = encode_pair(truth, released, table=table, weight=facts.weight, unit=table.unit.column)
    except MetricError:  # the truth may have no column of individuals
        pair = encode_pair(truth, released, table=table, weight=facts.weight)
    record = compare_pair(pair, progress=stage).to_record()

    def count(fields: Sequence[Field]) -> Any:  # noqa: ANN401 - as many axes as fields
        shape = tuple(field.size for field in fields)
        codes = np.stack([pair.truth.codes[field.name] for field in fields])
        kept = (codes < np.array(shape)[:, None]).all(axis=0)  # a series has released its first periods
        cells = np.ravel_multi_index(tuple(codes[:, kept]), shape)
        weights = None if pair.truth.weights is None else pair.truth.weights[kept]
        return np.bincount(cells, weights, minlength=int(np.prod(shape))).reshape(shape)

    drawn = tuple(field for field in (axes.place, axes.time) if field is not None)
    wanted = [*((field,) for field in facts.shown), drawn, choose_cells(facts, axes)]
    named = {tuple(field.name for field in fields): fields for fields in wanted if fields}
    return record, {
        names: count(fields) for names, fields in named.items() if set(names) <= set(pair.columns)
    }


TableKind = Literal["arrow", "rows", "pandas", "polars", "path"]
"""What a function is handed as its table."""


def audit(
    mechanism: Annotated[
        str | None, Argument(help="A recipe file, or FILE.py:NAME of a function of a table.")
    ] = None,
    sql: Annotated[str | None, Option(help="Audit this DP-SELECT statement.")] = None,
    project: ProjectOption = "sfumato.toml",
    with_: Annotated[str | None, Option("--with", help="A function's table with the individual.")] = None,
    without: Annotated[str | None, Option(help="The same table without the individual.")] = None,
    neighbours: Annotated[
        str | None, Option(help="FILE.py:NAME of a pair of tables, or a function that makes one.")
    ] = None,
    table_as: Annotated[
        TableKind, Option("--as", help="How a function gets the tables of --with and --without.")
    ] = "arrow",
    epsilon: Annotated[list[str] | None, Option(help="What is claimed; a recipe has its own.")] = None,
    delta: Annotated[str | None, Option(help="What is claimed; 0 by default.")] = None,
    runs: Annotated[int | None, Option(help="Runs on each side; by default as many as are quick.")] = None,
    confidence: Annotated[float, Option(help="How sure bounds by chance must be.")] = 0.95,
    timeout: Annotated[float, Option(help="Seconds that one run of a function may take.")] = 10.0,
    memory: Annotated[int | None, Option(help="Megabytes that a function may use.")] = None,
    fast: Annotated[bool, Option("--fast", help="Fewer tables, fewer runs, no canaries.")] = False,
    thorough: Annotated[bool, Option("--thorough", help="More of everything; minutes.")] = False,
    json: Json = False,
) -> None:
    """Try to refute a privacy claim. Exit code 4 if it is refuted; nothing is spent.

    A recipe or a statement runs on tables made up from the project file: no record is read. A function
    runs on the two tables it is given, in a process of its own.
    """
    if (mechanism is None) == (sql is None):
        raise BadParameter("give a recipe file, FILE.py:NAME, or --sql STATEMENT")
    if sql is not None and (epsilon is not None or delta is not None):
        raise BadParameter("a statement says itself what it spends; leave --epsilon and --delta out")
    effort: Effort = "fast" if fast else "thorough" if thorough else "normal"
    with progress(quiet=json) as stage:
        if mechanism is not None and ".py:" in mechanism:
            from sfumato.audit.callables import ProcessRunner, audit_runners
            from sfumato.core.exact import parse_exact

            if epsilon is None or len(epsilon) != 1:
                raise BadParameter("a function needs --epsilon once: what it claims")
            tables = _choose_tables(with_, without, neighbours, table_as)
            result = audit_runners(
                [ProcessRunner({"where": mechanism, "memory": memory, **tables}, timeout)],
                name=mechanism,
                epsilon=float(parse_exact(epsilon[0], name="epsilon")),
                delta=float(parse_exact(delta or "0", name="delta")),
                runs=runs,
                confidence=confidence,
                progress=stage,
            )
        else:
            from sfumato.audit import audit as audit_mechanism
            from sfumato.audit.targets import read_target
            from sfumato.core.facts.project import read_project

            opened = read_project(project)
            result = audit_mechanism(
                mechanism if sql is None else read_target(sql, opened),
                project=opened,
                epsilon=epsilon,
                delta=delta,
                effort=effort,
                runs=runs,
                confidence=confidence,
                progress=stage,
            )
    print_result(result.to_record(), str(result), json=json)
    if result.verdict == "VIOLATED":
        raise Exit(4)


def _choose_tables(
    with_: str | None, without: str | None, neighbours: str | None, kind: TableKind
) -> dict[str, object]:
    """Returns where a function's two tables come from: two files, or code that makes them."""
    if neighbours is not None and with_ is None and without is None:
        return {"neighbours": neighbours}
    if neighbours is not None or with_ is None or without is None:
        raise BadParameter("a function needs --with FILE and --without FILE, or --neighbours FILE.py:NAME")
    for file in (with_, without):
        if not Path(file).is_file():
            raise BadParameter(f"{file!r} does not exist")
    return {"files": [with_, without], "kind": kind}
