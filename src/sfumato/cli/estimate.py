"""`sfumato estimate`: what many private answers say together."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sfumato.cli.output import Json, print_json, print_table, say
from sfumato.cli.respond import Bloom, Cohorts, Hashes, ReportEpsilon, Values, ask_mechanism, split_labels

if TYPE_CHECKING:
    from sfumato.local import Estimate, MeanEstimate
    from sfumato.local.files import Described


def estimate(
    file: Annotated[str, typer.Argument(help="The file of answers: Parquet, CSV or TSV, also as .gz.")],
    column: Annotated[str | None, typer.Option(help="The column of answers, if there are several.")] = None,
    mechanism: Annotated[
        str | None, typer.Option(help="The mechanism, if it does not travel with the answers.")
    ] = None,
    epsilon: Annotated[str | None, typer.Option(help="The clients' epsilon.")] = None,
    values: Values = None,
    categories: Annotated[int | None, typer.Option(help="In place of --values: how many.")] = None,
    range_: Annotated[str | None, typer.Option("--range", help="For means: low,high.")] = None,
    report_epsilon: ReportEpsilon = None,
    bloom: Bloom = None,
    hashes: Hashes = None,
    cohorts: Cohorts = None,
    projection: Annotated[
        str, typer.Option(help="none (unbiased), sum, clip, or simplex (no negative shares, sum 1).")
    ] = "none",
    confidence: Annotated[float, typer.Option(help="The confidence of the intervals.")] = 0.95,
    json: Json = False,
) -> None:
    """Estimate shares or a mean from answers of `sfumato respond`, with standard errors.

    The mechanism is read from the answers; options that contradict it are refused.

    Example: sfumato estimate answers.parquet --json
    """
    from sfumato.local import FrequencyMechanism
    from sfumato.local.files import read_column, unpack_responses
    from sfumato.local.mechanism import check_projection
    from sfumato.local.planning import MEAN

    path = Path(file)
    options = {
        "epsilon": epsilon,
        "values": values,
        "categories": categories,
        "range_": range_,
        "report_epsilon": report_epsilon,
        "bloom": bloom,
        "hashes": hashes,
        "cohorts": cohorts,
    }
    project = check_projection(projection)
    described = _describe(path, mechanism, options)
    answers = unpack_responses(read_column(path, column), described.mechanism)
    result: Estimate | MeanEstimate
    if isinstance(described.mechanism, FrequencyMechanism):
        result = described.mechanism.estimate(answers, project=project)
    else:
        if project != "none":
            raise typer.BadParameter(
                f"--projection is for shares; {described.mechanism.name} gives one of {', '.join(MEAN)}"
            )
        result = described.mechanism.estimate(answers)
    _show(result, described, confidence=confidence, json=json)


def _describe(path: Path, name: str | None, options: dict[str, Any]) -> Described:
    """The description that travels with the answers, compared with the options; or that of the options."""
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
    from sfumato.local import Estimate

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
