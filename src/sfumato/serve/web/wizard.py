"""From a file to a first release: a steward's facts become the two files that the command line reads.

Of the records only the names and kinds of columns are read. The preview runs the whole of a release on
records that are made up from the stated domains.
"""

from __future__ import annotations

import csv
import re
import tempfile
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from sfumato.core.errors import SchemaError, SfumatoError
from sfumato.core.exact import format_exact, parse_positive
from sfumato.core.facts.project import Project, list_files, parse_project, refuse_private_file
from sfumato.core.facts.table import Table
from sfumato.curator import Curator, describe_source
from sfumato.recipes.files import parse_recipe
from sfumato.report.pages.answers import Interval, draw_intervals_of
from sfumato.serve.web import api
from sfumato.serve.web.exchange import WORDS, Asker, field, find_service, read_form, require_asker
from sfumato.serve.web.frame import show
from sfumato.tables import quote_key, quote_toml
from sfumato.tables.codebook import find_suffix, parse_codebook
from sfumato.tables.draft import describe_column, is_text_file, name_table, write_inline

if TYPE_CHECKING:
    from sfumato.serve.service import Service

_SUFFIXES = (".parquet", ".csv", ".csv.gz", ".tsv")
_LISTS = (".csv", ".txt", ".tsv")
_MOST_FILES = 200  # listed to choose from
_SIMULATED = 20_000  # invented records behind the preview
_DRAWN = 12
_PERIODS = ("month", "day_of_week", "hour")


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What a steward has stated so far, as typed; `columns` has the way and the words for each column.

    Of a table that is `served` already only `by` and `epsilon` are asked.
    """

    source: str
    served: bool
    name: str
    unit: str
    max_records: str
    epsilon: str
    by: tuple[str, ...]
    columns: Mapping[str, tuple[str, str]]


async def _wizard(request: Request) -> Response:
    """Returns one form for all steps: what was stated travels with it, and nothing is kept in between."""
    form: dict[str, list[str]] = {}
    if request.method == "GET":
        asker = await require_asker(request)
    else:
        form = await read_form(request)
        asker = await require_asker(request, csrf=field(form, "csrf"))
    service = find_service(request)
    service.admit(asker.user, "draft")
    step, served = field(form, "step"), service.project.tables.get(field(form, "table"))
    try:
        if served is not None:
            kinds = await service.run(asker.user, lambda: service.curator.describe_table(served.name))
            facts = _read_facts(form, served.source, kinds, name=served.name)
        elif field(form, "source"):
            kinds = await run_in_threadpool(_read_kinds, field(form, "source"), service.project)
            facts = _read_facts(form, field(form, "source"), kinds)
        else:
            return await _choose(request, asker, service, message="")
    except SfumatoError as error:
        return await _choose(request, asker, service, message=str(error))
    message = ""
    if step == "codebook":
        try:
            facts = _apply_codebook(facts, form.get("codebook", [""])[0], kinds)
        except SfumatoError as error:
            message = str(error)
    if step in ("preview", "project", "recipe", "serve", "release"):
        try:
            return await _conclude(request, asker, facts, kinds, step=step, release=field(form, "release"))
        except SfumatoError as error:
            message = str(error)
    named = (
        {name: kinds.get(column.stored[0], "") for name, column in served.columns.items() if column.domain}
        if served
        else kinds
    )
    return await show(
        request,
        asker,
        "wizard.html",
        status=422 if message else 200,
        step=2,
        facts=facts,
        served=served,
        kinds=named,
        ways={
            name: {
                way: WORDS["ways"][way] for way in WORDS["fitting"].get(_find_kind(facts.source, kind), ("",))
            }
            for name, kind in kinds.items()
        },
        codebook=form.get("codebook", [""])[0],
        message=message,
    )


async def _conclude(
    request: Request, asker: Asker, facts: Facts, kinds: Mapping[str, str], *, step: str, release: str
) -> Response:
    """Returns the last step: a preview, one of the files, or the release itself, which is then a job."""
    service = find_service(request)
    served = facts.served
    stated = "" if served else write_project_file(facts, kinds)
    described = service.project if served else await run_in_threadpool(_parse, stated, service.project)
    private = described.tables[facts.name].unit.private_records
    files = stated, write_recipe_file(facts, kind="capped-counts" if private else "cell-counts")
    if step == "release":
        job = await api.start_release(service, asker.user, {"recipe": files[1], "name": release})
        return RedirectResponse(f"/jobs/{job['number']}", 303)
    if step == "serve":
        await service.add_table(asker.user, facts.name, stated[stated.index("[tables.") :])
        return RedirectResponse("/tables", 303)
    if step in ("project", "recipe"):
        return _send_file(step, facts, files)
    same = service.project.tables.get(facts.name) == described.tables[facts.name]
    return await show(
        request,
        asker,
        "wizard.html",
        step=3,
        facts=facts,
        served=served,
        fields=_list_fields(facts),
        files=files,
        preview=await run_in_threadpool(_preview, described, files[1], kinds),
        ready=same,  # what is not served as described cannot be released here
        message="",
    )


async def _choose(request: Request, asker: Asker, service: Service, *, message: str) -> Response:
    files = await run_in_threadpool(lambda: list(_list_files(service.project.folder)))
    status = 422 if message else 200
    return await show(
        request,
        asker,
        "wizard.html",
        status=status,
        step=1,
        files=files,
        tables=list(service.project.tables),
        message=message,
    )


def _list_files(folder: Path) -> Iterator[str]:
    """Files of the project's folder that may hold records; those of releases do not."""
    for place in (folder, *sorted(each for each in folder.iterdir() if each.is_dir())):
        if (place / "certificate.json").exists() or place.name.startswith("."):
            continue
        for path in sorted(place.iterdir())[:_MOST_FILES]:
            if path.name.endswith(_SUFFIXES) and path.is_file():
                yield path.relative_to(folder).as_posix()


def _locate(name: str, folder: Path, suffixes: tuple[str, ...]) -> Path:
    """Returns the file `name` in the project's folder, and nowhere else."""
    path = (folder / name).resolve()
    if not name.endswith(suffixes) or not path.is_relative_to(folder.resolve()) or not path.is_file():
        raise SchemaError(
            f"there is no file {name[:80]!r} ({', '.join(suffixes)}) in the project's folder; put it there"
        )
    return path


def _read_kinds(source: str, project: Project) -> dict[str, str]:
    _locate(source, project.folder, _SUFFIXES)
    return describe_source(source, folder=project.folder)


def _read_facts(
    form: Mapping[str, list[str]], source: str, kinds: Mapping[str, str], *, name: str | None = None
) -> Facts:
    """Gives the facts in a form about the file `source`, or about the table `name` that is served already."""
    columns = {
        column: (field(form, f"way.{place}"), form.get(f"words.{place}", [""])[0].strip())
        for place, column in enumerate(kinds)
    }
    return Facts(
        source=source,
        served=name is not None,
        name=name or field(form, "name") or name_table(source),
        unit=field(form, "unit"),
        max_records=field(form, "max_records"),
        epsilon=field(form, "epsilon") or "0.5",
        by=tuple(each for each in form.get("by", []) if name is not None or each in kinds),
        columns=columns,
    )


def _apply_codebook(facts: Facts, text: str, kinds: Mapping[str, str]) -> Facts:
    """Adds what a codebook says to the facts, in any form that `sfumato init` reads, drafted as there.

    Besides, a line such as `opened: month` says which part of a date counts.
    """
    columns = dict(facts.columns)
    parts = {
        name.strip(): way.strip()
        for name, _, way in (line.partition(":") for line in text.splitlines())
        if way.strip() in (*_PERIODS, "year")
    }
    for name, known in parse_codebook(text, Path(f"codebook{find_suffix(text)}")).items():
        if name not in columns:
            continue
        kind = _find_kind(facts.source, kinds[name])
        if name in parts and parts[name] in WORDS["fitting"][kind]:
            columns[name] = (parts[name], "")
            continue
        drafted = describe_column(name, kinds[name], known, text=kind == "written")
        if years := drafted.get(f"{name}_year"):
            columns[name] = ("year", _join(years["range"], "..")) if name not in parts else columns[name]
        elif spec := drafted.get(name):
            way = next(each for each in ("range", "bins", "values") if each in spec)
            columns[name] = (way, _join(spec[way], ".." if way == "range" else ", "))
    return replace(facts, columns=columns)


def _join(values: Iterable[object], sign: str) -> str:
    """Returns what `_split_list` and `_split_ends` read."""
    texts = [format_exact(each) if isinstance(each, Fraction) else str(each) for each in values]
    return sign.join(
        f'"{each.replace(chr(34), chr(34) * 2)}"' if {",", '"'} & {*each} else each for each in texts
    )


def _find_kind(source: str, kind: str) -> str:
    """Returns the kind of a column; in a text file everything is text that may stand for anything."""
    return "written" if kind == "text" and is_text_file(source) else kind


def name_column(column: str, way: str) -> str:
    """Returns what a column is called in the project file: part of a date has a name of its own.

    >>> name_column("opened", "month"), name_column("ward", "values")
    ('opened_month', 'ward')
    """
    return f"{column}_{way}" if way in (*_PERIODS, "year") else column


def write_project_file(facts: Facts, kinds: Mapping[str, str]) -> str:
    """Writes the part of the project file that says what `facts` say; the rest of it stays as it is."""
    unit = "row" if facts.unit in ("", "row") else facts.unit
    lines = [
        "# Public facts: whom to protect, and what columns may hold.",
        "",
        f"[tables.{quote_key(facts.name)}]",
        f"source = {quote_toml(facts.source)}",
        f"unit = {quote_toml(unit)}",
    ]
    if unit != "row":
        most = facts.max_records and _read_whole(facts.max_records, "the number of records")
        lines.append(f"max_records = {write_inline(most or 'private')}")
    for column, (way, words) in facts.columns.items():
        if not way:
            continue
        name = name_column(column, way)
        lines += ["", f"[tables.{quote_key(facts.name)}.columns.{quote_key(name)}]"]
        if name != column:
            lines.append(f"from = {quote_toml(column)}")
        try:
            described = _describe_domain(way, words, kinds[column])
        except SfumatoError as error:
            raise SchemaError(f"column {column!r}: {error}") from None
        lines += [f"{key} = {write_inline(value)}" for key, value in described.items()]
    return "\n".join(lines) + "\n"


def _describe_domain(way: str, words: str, kind: str) -> dict[str, Any]:
    """Returns what the project file says of a column that is described in this way."""
    if way in _PERIODS:
        return {"period": way}
    if way == "year":
        return {"period": way, "range": _split_ends(words)}
    if way == "values_file":
        return {way: words}
    if way in ("range", "bounds"):
        return {way: _split_ends(words)}
    entries = _split_list(words)
    if not entries:
        raise SchemaError("list what it may hold, with commas between")
    if way == "bins":
        return {way: [_read_number(each, "an edge") for each in entries]}
    if kind == "integer":
        return {way: [_read_whole(each, "a value", low=None) for each in entries]}
    if kind == "boolean" and {each.lower() for each in entries} <= {"true", "false"}:
        return {way: [each.lower() == "true" for each in entries]}
    return {way: entries}


def _split_list(words: str) -> list[str]:
    """Entries between commas or line breaks; quotes keep a comma inside one."""
    try:
        rows = list(csv.reader(words.splitlines(), skipinitialspace=True))
    except csv.Error:
        raise SchemaError(
            "the list cannot be read; close every quote, and put a long one into a file"
        ) from None
    return [each.strip() for row in rows for each in row if each.strip()]


def _split_ends(words: str) -> list[Fraction]:
    found = re.fullmatch(r"\s*(\S+?)\s*(?:\.\.|,|\bto\b)\s*(\S+)\s*", words)
    if found is None:
        raise SchemaError("write the first and the last, such as 0..99")
    return [_read_number(end, "an end") for end in found.groups()]


def _read_number(text: str, name: str) -> Fraction:
    if not re.fullmatch(r"-?\d{1,30}(\.\d{1,30})?([eE]-?\d{1,2})?", text, re.ASCII):
        raise SchemaError(f"{name} must be a number, got {text[:40]!r}")
    return Fraction(text)


def _read_whole(text: str, name: str, *, low: int | None = 1) -> int:
    if not re.fullmatch(r"-?\d{1,15}", text, re.ASCII) or (low is not None and int(text) < low):
        raise SchemaError(f"{name} must be a whole number, got {text[:40]!r}")
    return int(text)


def write_recipe_file(facts: Facts, *, kind: str = "cell-counts") -> str:
    """Returns the recipe file of the first release: counts of every combination of the chosen columns."""
    by = list(facts.by)
    for place, column in enumerate(by if not facts.served else ()):
        way = facts.columns[column][0]
        if way in ("", "bounds"):
            raise SchemaError(f"column {column!r}: to count by it, list its values, intervals or a range")
        by[place] = name_column(column, way)
    if not by:
        raise SchemaError("choose the columns to count by")
    parse_positive(facts.epsilon, name="the price of the release")
    return (
        "# Counts of every combination.\n"
        f'recipe = "{kind}"\n'
        f"table = {quote_toml(facts.name)}\n"
        f"by = {write_inline(by)}\n"
        f"epsilon = {format_exact(_read_number(facts.epsilon, 'the price'))}\n"
    )


def _parse(text: str, project: Project) -> Project:
    """Returns the project file, read as the command line reads it.

    Files of values that it names must be declared public: what a page shows of them is what they hold.
    """
    document = tomllib.loads(text, parse_float=Decimal)
    public = [file for each in project.public.values() for file in list_files(each.source, project.folder)]
    for table in document["tables"].values():
        for column in table.get("columns", {}).values():
            if "values_file" in column:
                path = _locate(column["values_file"], project.folder, _LISTS)
                if not any(file.is_file() and path.samefile(file) for file in public):
                    raise SchemaError(
                        f"{path.name!r} is not declared public, so nothing of it is shown here. If it holds "
                        "nobody's records, give it a table with public = true in sfumato.toml and start the "
                        "server again; or type the values"
                    )
                refuse_private_file(path, project)
    described = parse_project({"budget": {"epsilon": 1}, **document}, folder=project.folder)
    return replace(project, tables={**project.tables, **described.tables})


def _send_file(step: str, facts: Facts, files: tuple[str, str]) -> Response:
    name, text = (
        (f"{facts.name}-table.toml", files[0])
        if step == "project"
        else (f"{facts.name}-counts.toml", files[1])
    )
    plain = re.sub(r"[^A-Za-z0-9_.-]", "_", name)
    headers = {"Content-Disposition": f'attachment; filename="{plain}"'}
    return Response(text, media_type="application/toml", headers=headers)


def _list_fields(facts: Facts) -> list[tuple[str, str]]:
    """Returns the facts as fields of a form, to be sent again."""
    return [
        ("table", facts.name) if facts.served else ("source", facts.source),
        ("name", facts.name),
        ("unit", facts.unit),
        ("max_records", facts.max_records),
        ("epsilon", facts.epsilon),
        *(("by", each) for each in facts.by),
        *((f"way.{place}", way) for place, (way, _) in enumerate(facts.columns.values())),
        *((f"words.{place}", words) for place, (_, words) in enumerate(facts.columns.values())),
    ]


def _preview(described: Project, recipe_text: str, kinds: Mapping[str, str]) -> dict[str, Any]:
    """Gives what the release would look like, had these been the records: made up, released, thrown away."""
    recipe = parse_recipe(tomllib.loads(recipe_text, parse_float=Decimal))
    table = described.table(recipe.recipe.table)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        # What a text file has as text is made up as what it stands for.
        stored = {} if is_text_file(table.source) else kinds
        pq.write_table(simulate_records(table, stored), folder / "simulated.parquet")
        tables = {table.name: replace(table, source="simulated.parquet")}
        own: dict[str, Any] = {
            "folder": folder,
            "ledger": "ledger.db",
            "tables": tables,
            "public": {},
            "views": {},
        }
        curator = Curator(replace(described, **own))
        check = curator.check(recipe.recipe, epsilon=recipe.epsilons).to_record()
        release = curator.release(recipe.recipe, epsilon=recipe.epsilons)
    half = float(check["measurements"][0]["expected_error_95"])
    rows = release.table.slice(0, _DRAWN).to_pylist()
    drawn = [
        Interval(
            label=", ".join(str(value) for name, value in row.items() if name != "count"),
            value=float(row["count"]),
            low=max(0.0, row["count"] - half),
            high=row["count"] + half,
        )
        for row in rows
    ]
    return {
        "rows": release.table.num_rows,
        "simulated": _SIMULATED,
        "half": half,
        "chart": draw_intervals_of(drawn, "released counts of simulated records, with 95 % intervals"),
        "drawn": len(drawn),
    }


def simulate_records(table: Table, kinds: Mapping[str, str], *, records: int = _SIMULATED) -> pa.Table:
    """Made-up records that fit the description of `table`, from its domains alone: the same every time."""
    from sfumato.audit.neighbours import list_fields, make_table

    described = {name for column in table.columns.values() for name in column.stored}
    filled = list_fields(table, {name: kind for name, kind in kinds.items() if name in described})
    # Multiples of an irrational number are spread evenly; a power makes some values more frequent.
    shares = (((np.arange(records) * np.sqrt(2.0 + 3 * turn)) % 1) ** 1.6 for turn in range(len(filled)))
    chosen = [
        [each.usual[place] for place in (share * len(each.usual)).astype(np.int64).tolist()]
        for each, share in zip(filled, shares, strict=True)
    ]
    most = min(table.unit.max_records, 3)
    people = [(place // most, [row]) for place, row in enumerate(zip(*chosen, strict=True))]
    return make_table(filled, people, unit=table.unit.column, unit_kind="integer")


ROUTES = [Route("/wizard", _wizard, methods=["GET", "POST"])]
