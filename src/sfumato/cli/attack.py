"""`sfumato attack` and `explain`: what an adversary learns from a release, and what a guarantee allows."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from typer import Argument, BadParameter, Option

from sfumato.cli.output import Force, Json, note, print_result, split_names

if TYPE_CHECKING:
    import pyarrow as pa

    from sfumato.anonymity.attack.link import Linkage, Published


attack = typer.Typer(
    help="Attack a release as an adversary would: INTERNAL.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)

Epsilon = Annotated[str, Option("--epsilon", help="The epsilon of every count.")]
BudgetOption = Annotated[str, Option("--budget", help="The whole budget of the clinic.")]


@attack.command()
def link(
    release: Annotated[str, Argument(help="A release folder, or a Parquet, CSV or CSV.gz file.")],
    register: Annotated[str, Option("--with", help="A register of people with names.")],
    on: Annotated[str, Option(help="The quasi-identifiers: birthday,postcode,sex.")],
    reveal: Annotated[str | None, Option(help="The sensitive column.")] = None,
    before: Annotated[str | None, Option(help="An earlier release, attacked the same way.")] = None,
    truth: Annotated[str | None, Option(help="A file with the identity behind every row.")] = None,
    identity: Annotated[
        str | None, Option(help="The column that names people; the register's first by default.")
    ] = None,
    key: Annotated[str | None, Option(help="A column that joins truth and release.")] = None,
    count: Annotated[
        str | None, Option(help="The column that says how many records a row stands for.")
    ] = None,
    few: Annotated[int, Option(help="The most records that count as few.")] = 5,
    show: Annotated[int, Option(min=0, help="List so many linked people. Careful.")] = 0,
    json: Json = False,
) -> None:
    """Join a release with a register on quasi-identifiers, and count who is found.

    Example: sfumato attack link out.csv --with voters.csv --on birthday,postcode,sex --reveal diagnosis
    """
    from sfumato.anonymity.attack.link import (
        INTERNAL,
        describe_linkage,
        link_tables,
        open_published,
        read_identities,
        read_text,
    )

    columns = split_names(on)
    people = read_text(register, side="register")
    name = identity or next((each for each in people.column_names if each not in columns), None)
    known = None if truth is None else read_text(truth, side="truth")

    def run(source: str, side: str) -> tuple[Published, Linkage]:
        rows = open_published(source, count=count, side=side)
        owners = None
        if known is not None and name is not None:
            owners = read_identities(rows, known, identity=name, key=key)
        found = link_tables(
            rows, people, on=columns, reveal=reveal, identity=name, identities=owners, limit=few
        )
        return rows, found

    earlier = None if before is None else run(before, "before")[1]
    rows, found = run(release, "release")
    note(INTERNAL)
    shown = _list_links(rows, people, found, name=name, reveal=reveal, most=show)
    before_it = None if earlier is None else earlier.to_record()
    document = {"internal": INTERNAL, **found.to_record(), "before": before_it, "shown": shown}
    listed = ("  ".join(f"{key} {value!r}" for key, value in each.items()) for each in shown)
    print_result(document, describe_linkage(found, before=earlier), *listed, json=json)


@attack.command()
def difference(epsilon: Epsilon = "0.1", budget: BudgetOption = "1", json: Json = False) -> None:
    """Try to learn a secret from two counts of an invented clinic: plain SQL tells it, DP-SELECT does not."""
    from sfumato.audit.demonstrations import describe_difference, run_difference

    result = run_difference(epsilon=epsilon, budget=budget)
    print_result(result.to_record(), describe_difference(result), json=json)


@attack.command()
def average(
    epsilon: Epsilon = "0.1",
    budget: BudgetOption = "1",
    repeats: Annotated[int, Option(help="How often the same count is asked.")] = 50,
    json: Json = False,
) -> None:
    """Try to average the noise of one count away: repeats bring the same noise, and new words cost budget."""
    from sfumato.audit.demonstrations import describe_average, run_average

    result = run_average(epsilon=epsilon, budget=budget, repeats=repeats)
    print_result(result.to_record(), describe_average(result), json=json)


def _list_links(
    rows: Published, people: pa.Table, found: Linkage, *, name: str | None, reveal: str | None, most: int
) -> list[dict[str, Any]]:
    """Returns some linked people with what their record tells; says on stderr what that is."""
    if not most:
        return []
    note("WARNING: what follows names people and what their records say; do not keep it or pass it on")
    listed = []
    for person, row in found.pairs[:most].tolist():
        entry: dict[str, Any] = {"person": person if name is None else people[name][person].as_py()}
        entry["row"] = row
        if reveal is not None:
            entry[reveal] = rows.table[reveal][row].as_py()
        listed.append(entry)
    return listed


def explain(
    kind: Annotated[Literal["epsilon", "rho", "mu"], Argument(help="The kind of guarantee.")],
    amount: Annotated[str, Argument(help="The amount of one query.")],
    delta: Annotated[
        str | None, Option(help="The delta that goes with epsilon; for rho and mu, as --read-at.")
    ] = None,
    prior: Annotated[str, Option(help="What the adversary believed before.")] = "0.5",
    times: Annotated[int, Option(help="How many such queries are asked.")] = 1,
    read_at: Annotated[
        str | None, Option(help="The delta at which to read the guarantee as an epsilon; 1e-6.")
    ] = None,
    compositions: Annotated[
        bool, Option("--compositions", help="Compare rules for what all queries cost together.")
    ] = False,
    picture: Annotated[Path | None, Option(help="An SVG picture to write.")] = None,
    force: Force = False,
    json: Json = False,
) -> None:
    """Explain what a guarantee lets an adversary learn. The adversary knows everybody else's data.

    Example: sfumato explain epsilon 1.0 --prior 0.1 --times 10
    """
    from sfumato.core.exact import parse_exact
    from sfumato.core.files import check_file, write_file
    from sfumato.report.explain.composition import compare_compositions, describe_compositions
    from sfumato.report.explain.guarantee import Guarantee, describe_explanation, explain_guarantee

    if kind != "epsilon" and delta is not None:
        if read_at is not None:
            raise BadParameter(f"{kind} has no delta of its own; give --delta or --read-at, not both")
        delta, read_at = None, delta
    if picture is not None:
        check_file(picture, force=force)
    guarantee = Guarantee(
        kind=kind,
        amount=parse_exact(amount, name=kind),
        delta=parse_exact(delta or "0", name="delta"),
        times=times,
    )
    read_at = "1e-6" if read_at is None else read_at
    explanation = explain_guarantee(guarantee, prior=prior, read_at=read_at)
    lines = compare_compositions(guarantee, delta=read_at) if compositions else ()
    if picture is not None:
        from sfumato.report.explain.picture import draw_explanation

        write_file(picture, draw_explanation(explanation).encode(), force=force)
    document, text = explanation.to_record(), [describe_explanation(explanation)]
    if compositions:
        document["compositions"] = [line.to_record() for line in lines]
        text.append(describe_compositions(lines, delta=read_at))
    print_result({**document, "picture": picture}, *text, json=json)
    if picture is not None and not json:
        note(f"written: {picture}")
