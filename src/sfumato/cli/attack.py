"""`sfumato attack`: linkage of a release with a register, and two attacks that DP-SELECT withstands."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from sfumato.cli.output import Json, note, print_json, say, split_names

if TYPE_CHECKING:
    import pyarrow as pa

    from sfumato.anonymity.attack.link import Linkage, Published

attack = typer.Typer(
    help="Attack a release as an adversary would: INTERNAL, on the private side.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)

Epsilon = Annotated[str, typer.Option("--epsilon", help="The epsilon of every count.")]
BudgetOption = Annotated[str, typer.Option("--budget", help="The whole budget of the clinic.")]


@attack.command()
def link(
    release: Annotated[str, typer.Argument(help="A release folder, or a Parquet, CSV or CSV.gz file.")],
    register: Annotated[str, typer.Option("--with", help="A register of people with names.")],
    on: Annotated[str, typer.Option("--on", help="The quasi-identifiers: birthday,postcode,sex.")],
    reveal: Annotated[str | None, typer.Option("--reveal", help="The sensitive column.")] = None,
    before: Annotated[
        str | None, typer.Option("--before", help="An earlier release, attacked the same way.")
    ] = None,
    truth: Annotated[
        str | None, typer.Option("--truth", help="A file with the identity behind every row.")
    ] = None,
    identity: Annotated[
        str | None,
        typer.Option("--identity", help="The column that names people; the register's first by default."),
    ] = None,
    key: Annotated[str | None, typer.Option("--key", help="A column that joins truth and release.")] = None,
    count: Annotated[
        str | None, typer.Option("--count", help="The column that says how many records a row stands for.")
    ] = None,
    few: Annotated[int, typer.Option("--few", help="The most records that count as few.")] = 5,
    show: Annotated[int, typer.Option("--show", min=0, help="List so many linked people. Careful.")] = 0,
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
    if json:
        document: dict[str, Any] = {"internal": INTERNAL, **found.to_record()}
        document["before"] = None if earlier is None else earlier.to_record()
        print_json({**document, "shown": shown})
        return
    say(describe_linkage(found, before=earlier))
    for each in shown:
        say("  ".join(f"{key} {value!r}" for key, value in each.items()))


@attack.command()
def difference(epsilon: Epsilon = "0.1", budget: BudgetOption = "1", json: Json = False) -> None:
    """Try to learn a secret from two counts of an invented clinic: plain SQL tells it, DP-SELECT does not."""
    from sfumato.audit.demonstrations import describe_difference, run_difference

    result = run_difference(epsilon=epsilon, budget=budget)
    if json:
        print_json(result.to_record())
        return
    say(describe_difference(result))


@attack.command()
def average(
    epsilon: Epsilon = "0.1",
    budget: BudgetOption = "1",
    repeats: Annotated[int, typer.Option("--repeats", help="How often the same count is asked.")] = 50,
    json: Json = False,
) -> None:
    """Try to average the noise of one count away: repeats bring the same noise, and new words cost budget."""
    from sfumato.audit.demonstrations import describe_average, run_average

    result = run_average(epsilon=epsilon, budget=budget, repeats=repeats)
    if json:
        print_json(result.to_record())
        return
    say(describe_average(result))


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
