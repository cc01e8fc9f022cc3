"""`sfumato score`: how close a release is to the private records. Internal."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from sfumato.cli.output import Json, note, open_curator, print_json, print_table, progress, say

if TYPE_CHECKING:
    from sfumato.metrics.scoring import Scores

_SHOWN = 10
_PARTS = {
    "pie-chart": ("mean", "total", "jsd", "misleading", "bias"),
    "k-marginal": ("score",),
    "taxi": ("score", "k_marginal", "graph_edge", "conjunction"),
    "match3": ("score", "marginals", "conjunctions", "income"),
}


def score(
    release: Annotated[
        str, typer.Argument(help="The folder of a release, or a Parquet, CSV or CSV.gz file.")
    ],
    truth: Annotated[str | None, typer.Option(help="The file of the private records.")] = None,
    project: Annotated[
        str | None, typer.Option("--project", "-p", help="Take records and columns from this project file.")
    ] = None,
    table: Annotated[
        str | None, typer.Option(help="The project's table, if the release does not name it.")
    ] = None,
    metric: Annotated[
        Literal["general", "pie-chart", "k-marginal", "taxi", "match3", "l1"],
        typer.Option(help="What to measure."),
    ] = "general",
    column: Annotated[list[str] | None, typer.Option(help="general: compare these only; may repeat.")] = None,
    weight: Annotated[
        str | None, typer.Option(help="The column that counts records; 'count' if there.")
    ] = None,
    unit: Annotated[str | None, typer.Option(help="The truth's column that tells individuals apart.")] = None,
    target: Annotated[str | None, typer.Option(help="general: the column that classifiers predict.")] = None,
    place: Annotated[
        list[str] | None, typer.Option(help="pie-chart, k-marginal: the columns of the place; may repeat.")
    ] = None,
    time: Annotated[
        list[str] | None, typer.Option(help="pie-chart, k-marginal: the columns of the time; may repeat.")
    ] = None,
    kind: Annotated[str | None, typer.Option(help="pie-chart: the column whose shares are compared.")] = None,
    bias_cutoff: Annotated[
        int | None,
        typer.Option(help="k-marginal, taxi: worst distance where counts differ by this; 0 for no rule."),
    ] = None,
    official_alignment: Annotated[
        bool,
        typer.Option("--official-alignment", help="taxi: repeat the contest code's reading of lost columns."),
    ] = False,
    seed: Annotated[int, typer.Option(help="Draws the references and what is sampled; public.")] = 0,
    publish_epsilon: Annotated[
        str | None, typer.Option(help="Spend this on a noisy score that may be published (pie-chart, l1).")
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
        raise typer.BadParameter(
            "l1 is for --publish-epsilon; the general metrics have it for every marginal"
        )

    from sfumato.metrics import INTERNAL
    from sfumato.metrics.scoring import Request, score_release

    if truth is None and project is None:
        raise typer.BadParameter("give --truth FILE, or --project FILE to take the project's own table")
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
        raise typer.BadParameter("--publish-epsilon needs --project FILE: the score is charged to its ledger")
    curator = open_curator(project)
    with progress(quiet=json) as stage:
        found = curator.publish_score(
            release, metric=metric, epsilon=epsilon, columns=columns or None, progress=stage
        )
    if json:
        print_json(found.to_record())
        return
    for each in found.scores:
        label = f"epsilon {each['epsilon']:g}: " if "epsilon" in each else ""
        say(f"{label}{metric} {each['score']:.4g} (95 %: {each['low']:.4g} to {each['high']:.4g})")
    spent = "nothing: it was published before" if found.repeated else f"epsilon {format_exact(found.spent)}"
    say(f"Noisy, so it may be published. Compared with bounded records. Spent {spent}.")


def _show(scores: Scores) -> None:
    for epsilon, record in scores.results:
        if epsilon is not None:
            say(f"\nepsilon {epsilon:g}")
        if scores.metric == "general":
            _show_general(record)
        else:
            _show_official(scores.metric, record)
    if scores.overall is not None:
        say("\nall epsilons: " + ", ".join(f"{name} {value:.6g}" for name, value in scores.overall.items()))


def _show_official(metric: str, record: dict[str, Any]) -> None:
    rows = [(row["name"], *(_figure(row[part]) for part in _PARTS[metric])) for row in record["references"]]
    _print_table((metric, *_PARTS[metric]), rows)


def _show_general(record: dict[str, Any]) -> None:
    rows = record["rows"]
    say(f"records: truth {rows['truth']:,}, release {rows['release']:,.10g}; distances from 0 (equal) to 1")
    _print_table(
        ("mean distance of", "one column", "two columns", "three columns"),
        [(row["name"], *(_figure(row[f"tvd{n}"]) for n in (1, 2, 3))) for row in record["references"]],
    )
    share = record["ladder"]["share"]
    percent = "less than 1 %" if share is None else f"{100 * share:.3g} %"
    say(f"pairs of columns are as close as in a plain sample of {percent} of the individuals")
    listed = record["marginals"]["list"][:_SHOWN]
    _print_table(
        ("worst marginals", "distance"), [(" x ".join(m["columns"]), _figure(m["tvd"])) for m in listed]
    )
    _print_table(
        ("most changed associations (Cramer's V)", "truth", "release"),
        [
            (" x ".join(pair["columns"]), _figure(pair["truth"]), _figure(pair["release"]))
            for pair in record["associations"]["worst"][: _SHOWN // 2]
        ],
    )
    _show_classifiers(record)
    _print_table(
        ("worst groups", "value", "truth", "release", "distance"),
        [
            (g["column"], str(g["value"]), f"{g['truth']:,}", f"{g['release']:,.10g}", _figure(g["tvd"]))
            for g in record["groups"][:_SHOWN]
        ],
    )


def _show_classifiers(record: dict[str, Any]) -> None:
    found = record["propensity"]
    if found is not None:
        say(
            f"told apart by a classifier: AUC {found['auc']:.3f} (0.5: not at all), "
            f"pMSE {found['pmse']:.3g}, {found['ratio']:.3g} times what chance gives"
        )
    _print_table(
        ("a classifier of", "trained on release", "trained on truth", "most frequent value"),
        [
            (
                each["target"],
                *(_figure(each[key]) for key in ("trained_on_release", "trained_on_truth", "majority")),
            )
            for each in record["downstream"]
        ],
    )


def _print_table(header: tuple[str, ...], rows: list[tuple[str, ...]]) -> None:
    if rows:
        print_table(*header, rows=rows)


def _figure(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if abs(value) >= 10_000 else f"{value:.4g}"
