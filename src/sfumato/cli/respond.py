"""`sfumato respond`: a column answered with local privacy."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sfumato.cli.output import Force, Json, note, print_json, refuse_inputs

if TYPE_CHECKING:
    from sfumato.local import FrequencyMechanism, MeanMechanism
    from sfumato.local.files import Described

Values = Annotated[str | None, typer.Option(help="The categories: a,b,c.")]
ReportEpsilon = Annotated[
    str | None, typer.Option(help="rappor: the epsilon of one report; --epsilon covers all.")
]
Bloom = Annotated[int | None, typer.Option(help="rappor: the bits of a Bloom filter.")]
Hashes = Annotated[int | None, typer.Option(help="rappor: the hashes of the Bloom filter.")]
Cohorts = Annotated[int | None, typer.Option(help="rappor: the cohorts of the Bloom filter.")]


def respond(
    file: Annotated[str, typer.Argument(help="The file with the values: Parquet, CSV or TSV, also as .gz.")],
    out: Annotated[str, typer.Option("--out", "-o", help="The file to write: .parquet or .csv.")],
    column: Annotated[str | None, typer.Option(help="The column to answer about.")] = None,
    mechanism: Annotated[
        str,
        typer.Option(help="krr, oue, sue, olh, hadamard, rappor, coin; laplace, duchi, piecewise, hybrid."),
    ] = "krr",
    epsilon: Annotated[str | None, typer.Option(help="The epsilon of one answer.")] = None,
    values: Values = None,
    categories: Annotated[
        int | None, typer.Option(help="In place of --values: the column holds codes 0, 1, ... below this.")
    ] = None,
    range_: Annotated[
        str | None, typer.Option("--range", help="For means: low,high; values are clamped to it.")
    ] = None,
    default: Annotated[
        str | None, typer.Option(help="What a missing value, or one outside the categories, counts as.")
    ] = None,
    report_epsilon: ReportEpsilon = None,
    bloom: Bloom = None,
    hashes: Hashes = None,
    cohorts: Cohorts = None,
    force: Force = False,
    json: Json = False,
) -> None:
    """Answer a column with local privacy: every row is randomised on its own.

    The mechanism travels with the answers. Answering again costs its epsilon again.

    Example: sfumato respond poll.csv --column vote --epsilon 1 --values yes,no -o answers.parquet
    """
    from sfumato.core.files import check_file, write_file
    from sfumato.local.files import is_csv, pack_responses, read_column, side_file

    described = ask_mechanism(
        mechanism,
        epsilon=epsilon,
        values=values,
        categories=categories,
        range_=range_,
        report_epsilon=report_epsilon,
        bloom=bloom,
        hashes=hashes,
        cohorts=cohorts,
    )
    source, target = Path(file), Path(out)
    csv = is_csv(target)
    if not target.name.lower().endswith((".parquet", ".csv")):
        raise typer.BadParameter("answers are written as .parquet or .csv")
    written = (target, side_file(target)) if csv else (target,)
    for path in written:
        refuse_inputs(path, source)
        check_file(path, force=force)
    answers = _answer(described, read_column(source, column), default)
    content, beside = pack_responses(answers, described, column=column or "response", csv=csv)
    if beside is not None:
        write_file(side_file(target), beside, force=force)
    write_file(target, content, force=force)
    _report(described.mechanism, [str(path) for path in written], json=json)


def ask_mechanism(
    name: str,
    *,
    values: str | None,
    categories: int | None,
    range_: str | None,
    **parameters: Any,  # noqa: ANN401
) -> Described:
    """The mechanism that the options describe, with the names of its categories."""
    from sfumato.core.errors import RecipeError
    from sfumato.local import make_mechanism
    from sfumato.local.files import Described
    from sfumato.local.planning import MEAN

    given = {key: value for key, value in parameters.items() if value is not None}
    if name in MEAN:
        if range_ is None or values is not None or categories is not None:
            raise RecipeError(
                f"{name} answers with a number: give --range low,high and neither --values nor --categories"
            )
        low, _, high = range_.partition(",")
        return Described(mechanism=make_mechanism(name, low=low, high=high, **given), values=None)
    if range_ is not None or (values is None) == (categories is None):
        raise RecipeError(
            f"{name} answers with a category: give --values a,b,c or --categories NUMBER, and no --range"
        )
    labels = None if values is None else split_labels(values)
    count = categories if labels is None else len(labels)
    if name == "coin":
        if count != 2:
            raise RecipeError("coin answers yes or no: give two --values, no first")
    else:
        given["categories"] = count
    return Described(mechanism=make_mechanism(name, **given), values=labels)


def split_labels(values: str) -> tuple[str, ...]:
    """The categories that --values names."""
    return tuple(each.strip() for each in values.split(","))


def _answer(described: Described, column: Any, default: str | None) -> Any:  # noqa: ANN401 - Arrow, numpy
    from sfumato.core.exact import parse_exact
    from sfumato.local import FrequencyMechanism
    from sfumato.local.files import encode_labels, encode_numbers

    mechanism = described.mechanism
    if isinstance(mechanism, FrequencyMechanism):
        labels = mechanism.categories if described.values is None else described.values
        return mechanism.respond(encode_labels(column, labels, default=default))
    instead = None if default is None else float(parse_exact(default, name="--default"))
    return mechanism.respond(encode_numbers(column), default=instead)


def _report(mechanism: FrequencyMechanism | MeanMechanism, files: list[str], *, json: bool) -> None:
    from sfumato.core.exact import format_exact
    from sfumato.local import Rappor

    claimed, exact = format_exact(mechanism.epsilon), format_exact(mechanism.exact_epsilon)
    if json:
        document = {"files": files, **mechanism.to_record(), "epsilon": claimed, "exact_epsilon": exact}
        if isinstance(mechanism, Rappor):
            document["exact_report_epsilon"] = format_exact(mechanism.exact_report_epsilon)
        print_json(document)
        return
    for path in files:
        note(f"written: {path}")
    note(
        f"{mechanism.name}: each row is randomised with epsilon {claimed} (delivered: {exact}); "
        "answers about the same value again add to it"
    )
