"""`sfumato check`, `describe` and `doctor`: what is known of a release or a table before it is paid for."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, BadParameter, Exit, Option

from sfumato.cli.output import (
    Delta,
    Epsilons,
    Force,
    Json,
    ProjectOption,
    note,
    print_json,
    print_result,
    print_table,
    say,
    show_check,
)

if TYPE_CHECKING:
    from sfumato.core.facts.project import Project
    from sfumato.curator import Curator
    from sfumato.curator.check import Check


def check(
    recipe: Annotated[str, Argument(help="The recipe file.")],
    project: ProjectOption = "sfumato.toml",
    epsilon: Epsilons = None,
    delta: Delta = None,
    through: Annotated[str | None, Option(help="The last period of a series (running) to release.")] = None,
    records: Annotated[
        int | None, Option(min=1, help="About how many records the table has, for a forecast.")
    ] = None,
    picture: Annotated[
        Path | None, Option(help="An SVG picture to write: expected error by epsilon.")
    ] = None,
    force: Force = False,
    json: Json = False,
) -> None:
    """Dry run: unit, sensitivity, noise, expected error, cost. Reads no row, spends nothing.

    Exit code 3 if the release would not fit into what is left.
    """
    import sfumato
    from sfumato.core.files import check_file, write_file

    if picture is not None:
        check_file(picture, force=force)
    curator = sfumato.open(project)
    result = curator.check(recipe, epsilon=epsilon, delta=delta, through=through, records=records)
    if picture is not None:
        write_file(picture, _draw_curve(curator, recipe, delta, result).encode(), force=force)
    if json:
        print_json({**result.to_record(), **({} if picture is None else {"picture": picture})})
    else:
        show_check(result)
    if picture is not None:
        note(f"written: {picture}")
    if not result.admitted:
        raise Exit(3)


def _draw_curve(curator: Curator, recipe: str, delta: str | None, result: Check) -> str:
    """Expected error against epsilon: the recipe planned again at other epsilons, from public facts alone."""
    from sfumato.core.errors import RecipeError, SfumatoError
    from sfumato.curator.check import list_errors
    from sfumato.report.pages.answers import ErrorPoint, draw_errors

    chosen = [float(each) for each in result.plan.epsilons]
    if not list_errors(result.plan, result.records):
        raise RecipeError(
            "the noise of this recipe is not known beforehand"
            + (f": {why}" if (why := result.plan.recipe.unforeseen) else "; say --records")
        )
    points = []
    steps = {each * 2.0 ** (step / 2) for each in chosen for step in range(-8, 9)}
    for each in sorted(step for step in steps if min(chosen) / 17 < step < 17 * max(chosen)):
        try:
            check = curator.check(recipe, epsilon=f"{each:.12g}", delta=delta)
            planned = list_errors(check.plan, result.records)
        except SfumatoError:  # too little for this recipe, or too much
            continue
        errors = [row["expected_error_95"] for row in planned if row["expected_error_95"] > 0]
        if errors:
            points.append(ErrorPoint(epsilon=each, least=min(errors), most=max(errors)))
    if len(points) < 2:
        raise RecipeError("this recipe adds no noise that could be drawn; leave --picture out")
    left = str(result.left)
    return draw_errors(
        points,
        chosen=chosen,
        left=float(left) if left.replace(".", "", 1).isdecimal() else None,
        title="What more epsilon buys",
        shown=f"error of one noisy count of {result.plan.recipe.kind} on {result.plan.table.name}",
    )


def choose_epsilon(
    recipe: Annotated[str, Argument(help="The recipe file.")],
    project: ProjectOption = "sfumato.toml",
    delta: Delta = None,
    records: Annotated[int | None, Option(min=1, help="About how many records the table has.")] = None,
    json: Json = False,
) -> None:
    """Weigh epsilons for a recipe: its error, what an attacker learns, what others took.

    Reads no row and spends nothing.
    """
    import sfumato
    from sfumato.core.errors import RecipeError
    from sfumato.curator.check import read_deployments, recommend, weigh_epsilons

    curator = sfumato.open(project)
    rows = weigh_epsilons(lambda each: curator.check(recipe, epsilon=each, delta=delta, records=records))
    if not rows:
        curator.check(recipe, delta=delta)  # which says what is wrong with it
        raise RecipeError("this recipe takes none of the epsilons from 0.05 to 10")
    chosen, reason = recommend(rows, curator.check(recipe, delta=delta).plan.recipe.unforeseen)
    others = read_deployments()
    if json:
        print_json({"recommended": chosen, "reason": reason, "epsilons": rows, "deployments": others})
        return

    columns = [
        ("epsilon", [row["epsilon"] for row in rows]),
        ("95 % of errors within", [_tell(row["expected_error_95"], "+-{:.4g}") for row in rows]),
        ("an average cell is off by", [_tell(row["noise_share"], "{:.1%}") for row in rows]),
        ("coefficients that stand out", [_tell(row["stand_out"], "{}") for row in rows]),
        ("right guesses", [f"{row['right_guesses']:.1%}" for row in rows]),
        ("fits", ["yes" if row["admitted"] else "no" for row in rows]),
    ]
    columns = [(heading, told) for heading, told in columns if any(told)]
    say(f"recommended: epsilon {chosen}: {reason}" if chosen else f"no recommendation: {reason}")
    print_table(*(heading for heading, _ in columns), rows=zip(*(told for _, told in columns), strict=True))
    say("right guesses: of whether somebody is in the table, by whoever knows all others; 50 % is chance")
    say("what others took, per unit that is protected:")
    for each in others:
        say(f"  {each['epsilon']:<6g} {each['name']}, for {each['unit']}: {each['source']}")


def _tell(value: float | None, form: str) -> str:
    return "" if value is None else form.format(value)


def describe(
    table: Annotated[str | None, Argument(help="One table of the project; all of them by default.")] = None,
    rules: Annotated[
        str | None, Option(help="A public table like this one: propose rules that all its rows obey.")
    ] = None,
    project: ProjectOption = "sfumato.toml",
    json: Json = False,
) -> None:
    """Show what is publicly known of a table's columns. Reads no record and spends nothing."""
    import sfumato
    from sfumato.core.errors import UnsupportedQuery

    curator = sfumato.open(project)
    names = [table] if table is not None else list(curator.project.tables)
    if rules is not None:
        if len(names) != 1:
            raise BadParameter("--rules needs the name of one table")
        _propose(curator.project, names[0], rules, json=json)
        return
    listed, left_out = {}, {}
    for name in names:
        quoted = name.replace('"', '""')
        try:
            listed[name] = curator.sql(f'DESCRIBE "{quoted}"').table
        except UnsupportedQuery as error:  # of a unit over time, which leaves the other tables as they are
            if table is not None:
                raise
            left_out[name] = str(error)
            note(f"not described: {error}")
    if json:
        tables = {name: rows.to_pylist() for name, rows in listed.items()}
        print_json({"tables": tables, **({"left_out": left_out} if left_out else {})})
        return
    for name, rows in listed.items():
        lines = [[str(value or "") for value in row.values()] for row in rows.to_pylist()]
        print_table(*rows.column_names, rows=lines, title=name)


def _propose(project: Project, name: str, public: str, *, json: bool) -> None:
    """Prints rules that every row of a public table obeys, as comments for the project file."""
    from sfumato.core.facts.project import refuse_private_file
    from sfumato.recipes.grouping.rules import draft_rules, find_rules, read_columns

    refuse_private_file(public, project)
    found = find_rules(project.table(name).columns, read_columns(Path(public)))
    lines = draft_rules(found, origin=Path(public).name)
    print_result({"table": name, "proposed": [asdict(rule) for rule in found]}, *lines, json=json)
    said = f"these belong under [tables.{name}]; none is in force until you take its # away"
    if not json:
        note(said if found else "no rule was found that holds in every public row and chance would break")


_MOST_NAMED = 3  # columns that lose the most records


def doctor(
    table: Annotated[
        str | None,
        Argument(help="One table of the project, or a recipe file (.toml); all tables by default."),
    ] = None,
    project: ProjectOption = "sfumato.toml",
    json: Json = False,
) -> None:
    """INTERNAL: how many records count, and what loses the others.

    Others miss a value, cannot be read, or lie outside a domain. Reads the records and counts exactly: not
    private, not for publication. Spends nothing.
    """
    import sfumato

    curator = sfumato.open(project)
    fits = [curator.examine(name) for name in ([table] if table else curator.project.tables)]
    if json:
        print_json({"tables": fits})
    else:
        note("INTERNAL: exact counts of people's records, for their steward. Do not publish them.")
        for fit in fits:
            _show_fit(fit)
    empty = [fit["table"] for fit in fits if fit["records"] == fit["nobody"]]
    if empty:
        note(
            f"NO RECORD COUNTS of {', '.join(empty)}: whatever is asked would be paid for and answered with "
            "noise. Compare the header with the records: as many fields, and the unit's column filled"
        )
    asked = table is not None and table not in curator.project.tables  # a recipe file
    if empty or (asked and not any(fit["counting"] for fit in fits)):
        raise Exit(1)


def _show_fit(fit: dict[str, Any]) -> None:
    keys = ("inside", "outside", "missing", "unread", "changed")
    headings = ("column", "inside", "outside", "missing", "not read", "cut or mended", "what would help")
    rows = ((each["name"], *(f"{each[key]:,}" for key in keys), each["advice"]) for each in fit["columns"])
    title = f"INTERNAL: table {fit['table']}, {fit['records']:,} records"
    print_table(*headings, rows=rows, title=title, numbers=range(1, 6))
    cut = f", whose further {fit['cut']:,} records ({fit['cut'] / max(fit['records'], 1):.1%}) are cut"
    say(
        f"{fit['individuals']:,} individuals, {fit['over_max_records']:,} with more than max_records"
        f"{cut if fit['cut'] else ''}; {fit['nobody']:,} records of nobody"
    )
    if fit["repeating"]:
        say(
            f'{fit["repeating"]} repeats as names of people do, and unit = "row" protects each record alone: '
            f'unit = "{fit["repeating"]}" with max_records protects people'
        )
    if fit["lost"]:
        say(_describe_counting(fit))
    if (fit["lines"] or 0) > fit["records"]:
        say(
            f"{fit['lines']:,} lines after the header, {fit['lines'] - fit['records']:,} more than records: "
            "they hold texts with line breaks, or another number of fields than the header, or stand after a "
            'quote that is never closed, and then they are not read: if so, quoting = "line" or "none"'
        )
    if fit["open_quotes"]:
        say(
            f"{fit['open_quotes']:,} lines open a quote and do not close it. If fields hold line breaks, "
            'leave quoting out, or each line counts as a record; if quotes are text, quoting = "none"'
        )


def _describe_counting(fit: dict[str, Any]) -> str:
    """Returns how many records count at all, and which columns lose the others."""
    lost = sorted(((name, n) for name, n in fit["lost"].items() if n), key=lambda each: -each[1])
    counting = f"{fit['counting']:,} of {fit['records']:,} records count"
    text = f"{counting} where all {len(fit['lost'])} columns are asked about together"
    if not fit["counting"]:
        text = f"NO RECORD COUNTS: {text}"
    if lost:
        text += "; " + ", ".join(f"{n:,} lost to {name}" for name, n in lost[:_MOST_NAMED])
    missing = {each["name"]: each["missing"] for each in fit["columns"]}
    if any(missing.get(name) for name, _ in lost):
        text += "; keep missing as a value: nullable = true"
    return text
