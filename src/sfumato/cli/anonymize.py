"""`sfumato anonymize`: a k-anonymous table, judged as it was written. Not differential privacy."""

from __future__ import annotations

import signal
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

from typer import Argument, BadParameter, Option

from sfumato.cli.output import Force, Json, note, note_compiling, print_result, progress, split_names

if TYPE_CHECKING:
    import pyarrow as pa

    from sfumato.anonymity.release import Released
    from sfumato.anonymity.summary import Summary


def anonymize(
    table: Annotated[str, Argument(help="A Parquet, CSV or CSV.gz file of people's records.")],
    quasi: Annotated[list[str], Option(help="The quasi-identifiers: age,sex,postcode; may repeat.")],
    k: Annotated[int, Option(help="At least so many records look the same.")],
    out: Annotated[str, Option("--out", "-o", help="The file to write: .parquet, .csv or .csv.gz.")],
    sensitive: Annotated[
        list[str] | None, Option(help="Sensitive columns, kept as they are; may repeat.")
    ] = None,
    keep: Annotated[list[str] | None, Option(help="Further columns to keep as they are; may repeat.")] = None,
    identifiers: Annotated[
        list[str] | None, Option(help="Columns that name people and must not come out; may repeat.")
    ] = None,
    individual: Annotated[str | None, Option(help="The column of people; k then counts people.")] = None,
    rows_are_people: Annotated[
        bool, Option("--rows-are-people", help="Nobody has several records; no column is suspected.")
    ] = False,
    hierarchies: Annotated[str | None, Option(help="A TOML file of hierarchies, by column.")] = None,
    method: Annotated[str, Option(help="local, cuts, strict, relaxed, lattice or microaggregate.")] = "local",
    l: Annotated[  # noqa: E741 - the field's word
        int | None, Option(help="At least so many different sensitive values in a class.")
    ] = None,
    entropy_l: Annotated[float | None, Option(help="Entropy l-diversity.")] = None,
    recursive: Annotated[str | None, Option(help="Recursive (c,l)-diversity, as C,L: 3,2.")] = None,
    t: Annotated[float | None, Option(help="t-closeness: the largest distance, 0 to 1.")] = None,
    distance: Annotated[
        list[str] | None, Option(help="Of t: equal or ordered, or COLUMN=ordered; may repeat.")
    ] = None,
    delta: Annotated[float | None, Option(help="Delta-disclosure, above 0.")] = None,
    register: Annotated[str | None, Option(help="A file of the population, for risk and linkage.")] = None,
    k_map: Annotated[
        bool, Option("--k-map", help="k counts the people of --register, not the table's records.")
    ] = False,
    weight: Annotated[
        list[str] | None, Option(help="COLUMN=NUMBER: how much its loss counts; may repeat.")
    ] = None,
    survey_weights: Annotated[str | None, Option(help="The column of survey weights, for risk only.")] = None,
    max_suppressed: Annotated[float, Option(help="The largest share of records to leave out.")] = 0.0,
    max_suppressed_cells: Annotated[float, Option(help="The largest share of cells that are *.")] = 1.0,
    target: Annotated[
        str | None, Option(help="The column to predict; the first sensitive one by default.")
    ] = None,
    report: Annotated[str | None, Option(help="An HTML file to write, INTERNAL.")] = None,
    force: Force = False,
    json: Json = False,
) -> None:
    """Make quasi-identifiers so coarse that every record is one of k. Not differential privacy.

    The written file is read again and measured; one that lacks what was asked is not handed over (exit
    code 4).

    Example: sfumato anonymize people.csv --quasi age,sex,postcode --sensitive ill --k 5 --out coarse.csv
    """
    from sfumato.anonymity.options import Options
    from sfumato.anonymity.release import release_table
    from sfumato.anonymity.summary import (
        INTERNAL,
        build_page,
        check_target,
        describe_summary,
        read_register,
        summarise,
    )
    from sfumato.core.files import write_file

    options = Options(
        quasi_identifiers=split_names(*quasi),
        k=k,
        sensitive=split_names(*(sensitive or ())),
        keep=split_names(*(keep or ())),
        identifiers=split_names(*(identifiers or ())),
        individual=individual,
        rows_are_people=rows_are_people,
        hierarchies=hierarchies,  # type: ignore[arg-type]  # a path is read and checked there
        method=method,  # type: ignore[arg-type]  # checked there
        l=l,
        entropy_l=entropy_l,
        recursive=_read_recursive(recursive),
        t=t,
        distance=_read_distance(distance or []),
        delta=delta,
        k_map=k_map,
        weights=_read_weights(weight or []),
        max_suppressed=max_suppressed,
        max_suppressed_cells=max_suppressed_cells,
    )
    check_target(options, target)
    if k_map and register is None:
        _misuse("--k-map counts the people of a register; give --register FILE")
    if register is not None and survey_weights is not None:
        _misuse("give --register or --survey-weights as the population, not both")
    if hierarchies is not None:
        _refuse_records(table, Path(hierarchies))
    goal, page = _check_files(out, report, inputs=(table, register, hierarchies), force=force)
    _clean_up_when_stopped()
    note_compiling("anonymity/kernels")
    with progress(quiet=json) as report_step:
        population: dict[str, Any] = {}
        if register is not None:
            population["register"] = read_register(register, options)
        if survey_weights is not None:
            population["survey_weights"] = _read_column(table, survey_weights)
        summaries: list[Summary] = []

        def summarise_and_report(released: Released) -> None:
            """What is said of the file, before it gets its name: what fails here must leave no file."""
            report_step("measuring what was kept")
            summaries.append(summarise(released, target=target, **population))
            if page is not None:
                write_file(page, build_page(summaries[0], name=goal.name), force=True)

        release_table(
            Path(table),
            options,
            register=Path(register) if register is not None and k_map else None,
            out=goal,
            force=force,
            progress=report_step,
            before=summarise_and_report,
        )
    (summary,) = summaries
    lines = [f"Wrote {goal}, and measured it as it was written.", describe_summary(summary)]
    if page is not None:
        lines.append(f"Wrote {page} ({page.stat().st_size / 1000:,.0f} kB).")
    print_result({"out": goal, "report": page, **summary.to_record()}, *lines, json=json)
    if not json:
        note(INTERNAL)


def _refuse_records(table: str, hierarchies: Path) -> None:
    """Raises an error if a list of labels, which is published, is the table itself."""
    from sfumato.core.errors import RecipeError
    from sfumato.core.facts.project import find_private, read_toml

    sections = read_toml(hierarchies, what="hierarchy file").values()
    files = [hierarchies.parent / each["file"] for each in sections if "file" in each]
    reason = find_private(files, {Path(table).name: table}, folder=Path())
    if reason is not None:
        raise RecipeError(reason)


def _check_files(
    out: str, report: str | None, *, inputs: tuple[str | None, ...], force: bool
) -> tuple[Path, Path | None]:
    """Returns the paths to write to; an error if one may not be written, or is read."""
    from sfumato.anonymity.release import refuse_target
    from sfumato.core.files import check_file

    read = {Path(each).resolve() for each in inputs if each is not None}
    if Path(out).resolve() in read:
        _misuse(f"--out {Path(out).name!r} is a file that is read; choose another name")
    goal = refuse_target(out, force=force)
    if report is None:
        return goal, None
    page = Path(report)
    if page.resolve() in {*read, goal.resolve()}:
        _misuse(f"--report {page.name!r} is a file that is read or written otherwise; choose another name")
    check_file(page, force=force)
    return goal, page


def _read_column(table: str, name: str) -> pa.ChunkedArray:
    from sfumato.tables.read import read_table

    return read_table(table, side="table", columns=[name], typed=True).column(name)


def _read_recursive(text: str | None) -> tuple[float, int] | None:
    if text is None:
        return None
    try:
        c, l = text.split(",")  # noqa: E741 - the field's word
        return float(c), int(l)
    except ValueError:
        _misuse("--recursive is C,L: a number and a whole number, such as 3,2")


def _read_distance(given: list[str]) -> Any:  # noqa: ANN401 - checked with the options
    """Returns one distance for all sensitive columns, or one by column."""
    if not given:
        return "equal"
    if len(given) == 1 and "=" not in given[0]:
        return given[0]
    if not all("=" in each for each in given):
        _misuse("--distance is equal or ordered, or COLUMN=equal and COLUMN=ordered, which may repeat")
    return dict(each.rsplit("=", 1) for each in given)


def _read_weights(given: list[str]) -> dict[str, float]:
    weights = {}
    for each in given:
        name, sign, number = each.rpartition("=")
        try:
            weights[name] = float(number)
        except ValueError:
            sign = ""
        if not sign:
            _misuse("--weight is COLUMN=NUMBER, such as age=2")
    return weights


def _clean_up_when_stopped() -> None:
    """Lets what a stopped process was writing be removed: its file is not judged yet."""

    def stop(number: int, _: object) -> NoReturn:
        raise SystemExit(128 + number)

    if threading.current_thread() is threading.main_thread():
        for name in ("SIGTERM", "SIGHUP"):
            if hasattr(signal, name):
                signal.signal(getattr(signal, name), stop)


def _misuse(message: str) -> NoReturn:
    raise BadParameter(message)
