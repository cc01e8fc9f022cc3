"""`sfumato respond` and `sfumato estimate`: a column answered with local privacy, and what answers say."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, BadParameter, Option

from sfumato.cli.output import Force, Json, note, print_json, print_table, refuse_inputs, say

if TYPE_CHECKING:
    from sfumato.local.files import Described
    from sfumato.local.means import MeanMechanism
    from sfumato.local.mechanism import Estimate, FrequencyMechanism, MeanEstimate


Values = Annotated[str | None, Option(help="The categories: a,b,c.")]
ReportEpsilon = Annotated[str | None, Option(help="rappor: the epsilon of one report; --epsilon covers all.")]


def respond(
    file: Annotated[str, Argument(help="The file with the values: Parquet, CSV or TSV, also as .gz.")],
    out: Annotated[str, Option("--out", "-o", help="The file to write: .parquet or .csv.")],
    column: Annotated[str | None, Option(help="The column to answer about.")] = None,
    mechanism: Annotated[
        str, Option(help="krr, oue, sue, subset, olh, hadamard, rappor, coin; laplace, duchi, piecewise.")
    ] = "krr",
    epsilon: Annotated[str | None, Option(help="The epsilon of one answer.")] = None,
    values: Values = None,
    categories: Annotated[
        int | None, Option(help="In place of --values: the column holds codes 0, 1, ... below this.")
    ] = None,
    range_: Annotated[
        str | None, Option("--range", help="For means: low,high; values are clamped to it.")
    ] = None,
    default: Annotated[
        str | None, Option(help="What a missing value, or one outside the categories, counts as.")
    ] = None,
    report_epsilon: ReportEpsilon = None,
    force: Force = False,
    json: Json = False,
) -> None:
    """Answer a column with local privacy, row by row.

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
    )
    source, target = Path(file), Path(out)
    csv = is_csv(target)
    if not target.name.lower().endswith((".parquet", ".csv")):
        raise BadParameter("answers are written as .parquet or .csv")
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
    """Returns the mechanism that the options describe, with the names of its categories."""
    from sfumato.core.errors import RecipeError
    from sfumato.local.files import Described
    from sfumato.local.planning import MEAN, make_mechanism

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
    """Returns the categories that --values names."""
    return tuple(each.strip() for each in values.split(","))


def _answer(described: Described, column: Any, default: str | None) -> Any:  # noqa: ANN401 - Arrow, numpy
    from sfumato.core.exact import parse_exact
    from sfumato.local.files import encode_labels, encode_numbers
    from sfumato.local.mechanism import FrequencyMechanism

    mechanism = described.mechanism
    if isinstance(mechanism, FrequencyMechanism):
        labels = mechanism.categories if described.values is None else described.values
        return mechanism.respond(encode_labels(column, labels, default=default))
    instead = None if default is None else float(parse_exact(default, name="--default"))
    return mechanism.respond(encode_numbers(column), default=instead)


def _report(mechanism: FrequencyMechanism | MeanMechanism, files: list[str], *, json: bool) -> None:
    from sfumato.core.exact import format_exact
    from sfumato.local.rappor import Rappor

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


def estimate(
    file: Annotated[str, Argument(help="The file of answers: Parquet, CSV or TSV, also as .gz.")],
    column: Annotated[str | None, Option(help="The column of answers, if there are several.")] = None,
    mechanism: Annotated[
        str | None, Option(help="The mechanism, if it does not travel with the answers.")
    ] = None,
    epsilon: Annotated[str | None, Option(help="The clients' epsilon.")] = None,
    values: Values = None,
    categories: Annotated[int | None, Option(help="In place of --values: how many.")] = None,
    range_: Annotated[str | None, Option("--range", help="For means: low,high.")] = None,
    report_epsilon: ReportEpsilon = None,
    projection: Annotated[
        str,
        Option(help="none (unbiased), sum, clip, simplex (no negative shares, sum 1) or bayes (likeliest)."),
    ] = "none",
    confidence: Annotated[float, Option(help="The confidence of the intervals.")] = 0.95,
    json: Json = False,
) -> None:
    """Estimate shares or a mean from locally private answers.

    The mechanism is read from the answers; options that contradict it are refused.

    Example: sfumato estimate answers.parquet --json
    """
    from sfumato.local.files import read_column, unpack_responses
    from sfumato.local.mechanism import FrequencyMechanism, check_projection
    from sfumato.local.planning import MEAN

    path = Path(file)
    options = {
        "epsilon": epsilon,
        "values": values,
        "categories": categories,
        "range_": range_,
        "report_epsilon": report_epsilon,
    }
    project = check_projection(projection)
    described = _describe(path, mechanism, options)
    answers = unpack_responses(read_column(path, column), described.mechanism)
    result: Estimate | MeanEstimate
    if isinstance(described.mechanism, FrequencyMechanism):
        result = described.mechanism.estimate(answers, project=project)
    else:
        if project != "none":
            raise BadParameter(
                f"--projection is for shares; {described.mechanism.name} gives one of {', '.join(MEAN)}"
            )
        result = described.mechanism.estimate(answers)
    _show(result, described, confidence=confidence, json=json)


def _describe(path: Path, name: str | None, options: dict[str, Any]) -> Described:
    """Returns the description that travels with the answers, or that of the options."""
    from sfumato.core.errors import RecipeError, SchemaError, SourceError
    from sfumato.local.files import read_described

    if not path.is_file():
        raise SourceError(f"there is no file {path.name!r}")
    found = read_described(path)
    given = {key: value for key, value in options.items() if value is not None}
    if found is None:
        if name is None:
            raise RecipeError(
                f"no mechanism travels with {path.name!r}; give --mechanism, --epsilon and --values or "
                "--range as the clients had them"
            )
        return ask_mechanism(name, **options)
    if name is not None or given:
        _compare(found, name, given)
        if found.values is None and "values" in given:
            labels = split_labels(given["values"])
            if len(labels) != getattr(found.mechanism, "categories", None):
                raise SchemaError(
                    "--values differs in number from the categories that travel with the answers"
                )
            return replace(found, values=labels)
    return found


def _compare(found: Described, name: str | None, given: dict[str, Any]) -> None:
    """Raises an error that names the first option that contradicts the answers' own description."""
    from sfumato.core.errors import SchemaError
    from sfumato.core.exact import parse_exact

    record = found.mechanism.to_record()

    def differs(key: str, value: Any) -> bool:  # noqa: ANN401 - text or a number
        if key == "values":
            return found.values is not None and split_labels(value) != found.values
        if key == "range_":
            ends = [parse_exact(each, name="--range") for each in value.split(",")]
            return ends != [parse_exact(record.get(end, "0"), name=end) for end in ("low", "high")]
        if key in ("epsilon", "report_epsilon"):
            known = getattr(found.mechanism, key, None)
            return known is None or parse_exact(value, name=key) != known
        return bool(record.get(key) != value)

    options = {"mechanism": name, **given} if name is not None else given
    for key, value in options.items():
        if differs(key, value):
            option = "--" + key.strip("_").replace("_", "-")
            raise SchemaError(
                f"{option} contradicts the mechanism that travels with the answers; leave it out"
            )


def _show(result: Estimate | MeanEstimate, described: Described, *, confidence: float, json: bool) -> None:
    from sfumato.local.mechanism import Estimate

    if json:
        document = result.to_record() | {"confidence": confidence}
        if isinstance(result, Estimate):
            document["values"] = None if described.values is None else list(described.values)
            document["intervals"] = result.interval(confidence=confidence).tolist()
        else:
            document["interval"] = list(result.interval(confidence=confidence))
        print_json(document)
        return
    if isinstance(result, Estimate):
        _show_shares(result, described, confidence)
    else:
        low, high = result.interval(confidence=confidence)
        say(f"mean {result.mean:.6g}, standard error {result.standard_error:.3g}")
        say(f"{confidence:.0%} interval {low:.6g} to {high:.6g}")
    say(f"{result.people:,} answers by {result.mechanism}, epsilon {float(result.epsilon):.6g} each")


def _show_shares(result: Estimate, described: Described, confidence: float) -> None:
    names = described.values or tuple(map(str, range(result.frequencies.size)))
    intervals = result.interval(confidence=confidence)
    rows = (
        (name, f"{share:.4f}", f"{low:.4f} to {high:.4f}", f"{count:,.0f}")
        for name, share, (low, high), count in zip(
            names, result.frequencies, intervals, result.counts, strict=True
        )
    )
    print_table("value", "share", f"{confidence:.0%} interval", "people", rows=rows)
