"""Entries: what a document describes, sound where it is not, from the records of a pack to a submission.

Every epsilon of a pack is a release with a certificate of its own, charged to one ledger of the entry or
to one each. An entry `as_written` adds the noise of its document and is charged what that truly costs.
The scoreboard has every submission by the official metric, beside zeros and a sample: INTERNAL, since scores
compare with the records.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as arrow_csv

from sfumato.core.cost.curves import mu_to_epsilon
from sfumato.core.errors import SchemaError
from sfumato.core.exact import format_exact, round_up
from sfumato.core.facts.column import OTHER
from sfumato.core.files import check_file, check_parent, write_file
from sfumato.metrics import match3, pie_chart, taxi
from sfumato.metrics.compare import HALF, ZEROS
from sfumato.metrics.contests.packs import COUNTED, Contest, Pack
from sfumato.metrics.scoring import score_records
from sfumato.report.pages.render import Page, render_page, render_text
from sfumato.tables.arrays import Whole
from sfumato.tables.read import table_to_csv

if TYPE_CHECKING:
    from sfumato.core.facts.table import Bounding, Table
    from sfumato.recipes.base import Recipe
    from sfumato.release.release import Release
    from sfumato.tables.contest import Run


Entry = Literal["nmd", "syncity", "adaptive-granularity", "gardn999", "best"]
ENTRIES: tuple[Entry, ...] = get_args(Entry)
Ledgers = Literal["one", "each"]

_CONTEST: Mapping[Entry, Contest] = {
    "nmd": "sprint1",
    "syncity": "sprint1",
    "adaptive-granularity": "sprint3",
    "gardn999": "match3",
}

# Sections of a release's write-up, and how the templates of the documents' write-ups name them.
_OURS = ("", "Main idea", "Pre-processing", "Privatisation and proof", "Post-processing", "How to check")
_SECTIONS = dict(zip(("about", "idea", "preparation", "proof", "finish", "check"), _OURS, strict=True))

# Adaptive Granularity: what the seven outer marginals have beside area and shift, and the copied pair.
_PLACE = ("pickup_community_area", "shift")
_OUTER = (
    ("fare", "trip_total"),
    ("trip_total", "trip_seconds"),
    ("dropoff_community_area", "fare"),
    ("payment_type", "trip_total"),
    ("fare", "trip_miles"),
    ("company_id",),
    ("tips", "trip_total"),
)
_COPIED = {"columns": ["pickup_community_area", "dropoff_community_area"], "times": 7}
_MARGINALS = 66
# Ours at a small epsilon: marginals of area with two others, and fewer of area with shift.
_SMALL_COPIES = (
    {**_COPIED, "times": 4},
    {"columns": ["pickup_community_area"], "times": 2},
    {"columns": list(_PLACE), "times": 1},
)
_LARGE_EPSILON = 3
_CLIPPED = Fraction(3, 4)  # 150 of 200 records, at epsilon 1

# 39 groups of 98 fields, and the size of what was handed in.
_GROUPED = Fraction(39, 98)
_MOST_GROUP = 10**7
ROWS_1940 = 800_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """What an entry hands in: its files by name, and a release with its certificate for every epsilon."""

    contest: Contest
    entry: Entry
    folder: Path
    files: Mapping[str, bytes]
    releases: tuple[Release, ...]
    charged: tuple[str, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Task:
    """One epsilon of an entry: what it asks of which table, and what that costs."""

    run: Run
    table: Table
    recipe: Recipe
    epsilon: Fraction
    delta: Fraction


def run_entry(
    pack: Pack,
    entry: Entry,
    *,
    out: Path | str | None = None,
    ledger: Ledgers = "one",
    as_written: bool = False,
    rows: int | None = None,
    seed: int = 0,
    force: bool = False,
    progress: Callable[[str], None] = lambda _: None,
) -> Submission:
    """Runs `entry` on `pack` and returns its submission, written to `out`, by default a folder in the pack.

    `ledger` says whether one ledger pays for every epsilon or one each. With `as_written` the noise is
    that of the document, at the epsilon that it truly has. `rows` is how many rows a census entry hands in.

    Privacy: each epsilon is a release by a recipe, charged before a record is read; what two entries
    release of the same people adds up.
    """
    from sfumato.curator import Curator

    if _CONTEST.get(entry, pack.contest) != pack.contest:
        raise SchemaError(
            f"{entry} is an entry of {_CONTEST[entry]}, and the pack is one of {pack.contest}; "
            f"entries for it: {', '.join(list_entries(pack.contest))}"
        )
    if as_written and entry == "best":
        raise SchemaError("as_written is for the entry of a document, and no document is about best")
    folder = Path(out) if out is not None else pack.folder / (entry + ("-as-written" if as_written else ""))
    tasks = _list_tasks(pack, entry, as_written=as_written, rows=rows, seed=seed)
    for each in tasks:
        # What cannot be asked at one epsilon is refused before another is charged.
        each.recipe.plan(each.table, epsilons=(each.epsilon,), delta=each.delta)
    check_parent(folder)
    if folder.exists():
        for name in _name_files(pack):
            check_file(folder / name, force=force)
    budget = (sum(each.epsilon for each in tasks), sum(each.delta for each in tasks))
    releases = []
    folder.mkdir(exist_ok=True)
    for each in tasks:
        label = format_exact(each.run.epsilon)
        progress(f"epsilon {label}")
        epsilon, delta = budget if ledger == "one" else (each.epsilon, each.delta)
        kept = folder / ("ledger.db" if ledger == "one" else f"ledger-{label}.db")
        project = pack.make_project(
            each.table, epsilon=Fraction(epsilon), delta=Fraction(delta), ledger=kept.resolve()
        )
        place = folder / f"epsilon-{label}"
        releases.append(
            Curator(project).release(
                each.recipe,
                epsilon=each.epsilon,
                delta=each.delta,
                out=place,
                force=force or place.exists(),
                progress=progress,
            )
        )
    progress("writing the submission")
    files = dict(zip(_name_files(pack), _format_files(pack, releases), strict=True))
    files["writeup.md"] = _join_writeups(entry, pack, releases)
    for name, content in files.items():
        write_file(folder / name, content, force=True)
    return Submission(
        contest=pack.contest,
        entry=entry,
        folder=folder,
        files=files,
        releases=tuple(releases),
        charged=tuple(format_exact(each.epsilon) for each in tasks),
        notes=tuple(_list_notes(pack, entry, tasks, ledger=ledger, as_written=as_written)),
    )


def list_entries(contest: Contest) -> tuple[Entry, ...]:
    """The entries for a contest.

    >>> list_entries("match3")
    ('gardn999', 'best')
    """
    return tuple(each for each in ENTRIES if _CONTEST.get(each, contest) == contest)


def _list_tasks(pack: Pack, entry: Entry, *, as_written: bool, rows: int | None, seed: int) -> list[_Task]:
    """What the entry asks at every epsilon of the pack."""
    if rows is not None and pack.contest != "match3":
        raise SchemaError(f"rows is for entries of match3; {pack.contest} fixes what is handed in")
    if rows is not None and rows < 1:
        raise SchemaError(f"rows must be at least 1, got {rows}")
    match pack.contest:
        case "sprint1":
            return [_plan_counts(pack, entry, run, as_written=as_written, seed=seed) for run in pack.runs]
        case "sprint3":
            return [_plan_trips(pack, entry, run, as_written=as_written, seed=seed) for run in pack.runs]
        case "match3":
            return _plan_census(pack, entry, rows=ROWS_1940 if rows is None else rows, seed=seed)


def _plan_counts(pack: Pack, entry: Entry, run: Run, *, as_written: bool, seed: int) -> _Task:
    from sfumato.recipes import CellCounts, Map, UserCounts

    table, epsilon = pack.describe_table(run), run.epsilon
    public = None if pack.public is None else str(pack.public)
    recipe: Recipe
    match entry:
        case "nmd":
            recipe = CellCounts(table=table.name, by=COUNTED, noise="laplace")
        case "syncity":
            public = str(pack.require_public(need="syncity asks what occurs in"))
            recipe = UserCounts(
                table=table.name,
                by=COUNTED,
                noise="laplace",
                times=(1, 2),
                public=public,
                period="period",
                reach=3,
            )
            if as_written:
                # Noise of scale 1 / epsilon, and one person is counted in as many cells as it has records.
                epsilon *= run.max_records
        case _:
            recipe = Map(table=table.name, by=COUNTED, public=public, seed=seed)
    return _Task(run, table, recipe, epsilon, Fraction(0))


def _plan_trips(pack: Pack, entry: Entry, run: Run, *, as_written: bool, seed: int) -> _Task:
    from sfumato.recipes import AdaptiveGrid

    bounding: Bounding = "weight"
    outer = [[*_PLACE, *each] for each in _OUTER]
    if not 0 < run.delta < 1:
        raise SchemaError("parameters.json: Gaussian noise needs a delta above 0 and below 1")
    if entry == "adaptive-granularity":
        large = run.epsilon > _LARGE_EPSILON
        bound = run.max_records if large else max(1, int(run.max_records * _CLIPPED))
        public = pack.require_public(need="adaptive-granularity takes taxi ids from")
        recipe = AdaptiveGrid(
            table="records",
            outer=outer,
            copies=[_COPIED],
            public=str(public),
            identifiers=["shift", "company_id"],
            seed=seed,
        )
        table = pack.describe_table(run, bound=bound, bounding=bounding)
        epsilon = _epsilon_as_written(run, bound=bound) if as_written else run.epsilon
        return _Task(run, table, recipe, epsilon, run.delta)
    options: dict[str, Any] = {"outer": outer, "copies": [_COPIED]}
    if run.epsilon <= _LARGE_EPSILON:
        small = [[_PLACE[0], *each] for each in _OUTER]
        options = {"outer": [list(_PLACE), *small], "copies": _SMALL_COPIES, "quantile": Fraction(1, 2)}
    recipe = AdaptiveGrid(
        table="records",
        norms="auto",
        credible=_PLACE,
        identifiers={"column": "shift", "values": 2},
        public=None if pack.public is None else str(pack.public),
        seed=seed,
        **options,
    )
    return _Task(run, pack.describe_table(run, bounding=bounding), recipe, run.epsilon, run.delta)


def _epsilon_as_written(run: Run, *, bound: int) -> Fraction:
    """The epsilon of the document's noise, which it calibrates by the first conversion of zCDP.

    That solves epsilon = rho + 2 sqrt(rho log(1/delta)); exact accounting needs less noise.
    """
    sigma = noise_as_written(run.epsilon, run.delta, bound=bound)
    mu = math.sqrt(_MARGINALS) * bound / sigma
    return round_up(Fraction(mu_to_epsilon(Fraction(mu), run.delta)), places=4)


def noise_as_written(epsilon: Fraction, delta: Fraction, *, bound: int) -> float:
    """The Gaussian noise that Adaptive Granularity adds to each of its 66 marginals.

    >>> round(noise_as_written(Fraction(1), Fraction(25, 10**6), bound=150), 2)
    5739.36
    """
    log = math.log(1 / delta)
    rho = (math.sqrt(log + float(epsilon)) - math.sqrt(log)) ** 2
    return bound * math.sqrt(_MARGINALS / (2 * rho))


def _plan_census(pack: Pack, entry: Entry, *, rows: int, seed: int) -> list[_Task]:
    from sfumato.recipes import FieldGroups
    from sfumato.recipes.grouping.groups import find_groups
    from sfumato.recipes.grouping.rules import encode_described, read_columns

    public = read_columns(pack.require_public(need=f"{entry} groups fields by"))

    def plan(run: Run) -> _Task:
        table: Table = pack.describe_table(run)
        known = encode_described(public, table)
        if entry == "gardn999":
            groups = group_fields(known.codes, known.sizes)
        else:
            found = find_groups(known.codes, known.sizes, epsilon=float(run.epsilon))
            groups = [each.columns for each in found.groups]
        joined = [list(group) for group in groups if len(group) > 1]
        recipe = FieldGroups(table=table.name, groups=joined, rows=rows, noise="laplace", seed=seed)
        return _Task(run, table, recipe, run.epsilon, Fraction(0))

    if entry != "gardn999":
        return [plan(run) for run in pack.runs]
    first = plan(pack.runs[0])
    return [replace(first, run=run, epsilon=run.epsilon) for run in pack.runs]


def group_fields(codes: Mapping[str, Any], sizes: Mapping[str, int]) -> list[tuple[str, ...]]:
    """The fields of a public table in 39 groups of 98 fields: the most associated are joined first.

    Two groups are as associated as the least of their pairs, and none gets more than 10^7 bins.
    """
    from sfumato.recipes.grouping.association import make_partition, measure_association

    names = list(codes)
    links = measure_association([make_partition(np.asarray(codes[name])) for name in names])
    groups = [[place] for place in range(len(names))]
    bins = [int(sizes[name]) for name in names]
    np.fill_diagonal(links, -1.0)
    wanted = max(1, math.ceil(_GROUPED * len(names)))
    while len(groups) > wanted:
        first, second = sorted(divmod(int(np.argmax(links)), len(groups)))
        if links[first, second] < 0:
            break
        if bins[first] * bins[second] > _MOST_GROUP:
            links[first, second] = links[second, first] = -1.0
            continue
        least = np.minimum(links[first], links[second])
        links[first], links[:, first] = least, least
        links[first, first] = -1.0
        links = np.delete(np.delete(links, second, axis=0), second, axis=1)
        bins[first] *= bins.pop(second)
        groups[first] += groups.pop(second)
    return [tuple(names[place] for place in sorted(group)) for group in groups]


def _name_files(pack: Pack) -> list[str]:
    if pack.contest != "match3":
        return ["submission.csv"]
    return [f"submission-{format_exact(run.epsilon)}.csv" for run in pack.runs]


def _format_files(pack: Pack, releases: Sequence[Release]) -> list[bytes]:
    """The files of a submission, in the contest's layout."""
    if pack.contest == "sprint1":
        return [_format_counts(pack, releases)]
    tables = [_format_rows(pack, release.table) for release in releases]
    if pack.contest == "match3":
        return [table_to_csv(each.select(pack.header), bare_names=True) for each in tables]
    labelled = [
        each.append_column("epsilon", pa.array([float(run.epsilon)] * each.num_rows))
        for run, each in zip(pack.runs, tables, strict=True)
    ]
    return [table_to_csv(pa.concat_tables(labelled).select(pack.header), bare_names=True)]


def _format_counts(pack: Pack, releases: Sequence[Release]) -> bytes:
    """A line per epsilon, neighbourhood and month, with a count per kind."""
    neighbourhoods, periods, kinds = (pack.columns[name].labels for name in COUNTED)
    order = [[str(kind) for kind in kinds].index(name) for name in pack.header[4:]]
    sink = io.StringIO()
    writer = csv.writer(sink, lineterminator="\n")
    writer.writerow(pack.header)
    for run, release in zip(pack.runs, releases, strict=True):
        counts = release.table["count"].to_numpy().reshape(len(neighbourhoods), len(periods), len(kinds))
        for neighbourhood, block in zip(neighbourhoods, counts[..., order].tolist(), strict=True):
            for period, row in zip(periods, block, strict=True):
                year, month = str(period).rsplit("-", 1)
                writer.writerow([float(run.epsilon), neighbourhood, year, month, *row])
    return sink.getvalue().encode()


def _format_rows(pack: Pack, table: pa.Table) -> pa.Table:
    """The rows with whole numbers only; what is in no bin becomes the field's largest code."""
    for name, column in pack.columns.items():
        if column.outside == OTHER:
            assert column.domain is not None
            values = table[name].cast(pa.string())
            known = pc.if_else(pc.equal(values, OTHER), str(column.domain.labels[-1]), values)
            table = table.set_column(table.schema.get_field_index(name), name, known.cast(pa.int64()))
    return table


def _join_writeups(entry: Entry, pack: Pack, releases: Sequence[Release]) -> bytes:
    """One write-up in the document's sections: what is the same at every epsilon is said once."""
    labels = [f"Epsilon {format_exact(run.epsilon)}" for run in pack.runs]
    texts = [_split_writeup(release.files["writeup.md"].decode()) for release in releases]
    joined = {name: _join_section(labels, [each[ours] for each in texts]) for name, ours in _SECTIONS.items()}
    return (render_text(f"contests/{entry}.txt", **joined) + "\n").encode()


def _split_writeup(text: str) -> dict[str, list[str]]:
    """The paragraphs of each section, those before the first under no name."""
    text = text.replace("`sfumato verify` on this folder", "`sfumato verify` on the folder of a release")
    for start in (" In total:", " The charge is entry"):  # sentences about one epsilon
        text = text.replace(start, "\n\n" + start.strip())
    parts = [section.partition("\n") for section in text.split("\n## ")]
    return {"" if name[:2] == "# " else name: rest.strip().split("\n\n") for name, _, rest in parts}


def _join_section(labels: Sequence[str], sections: Sequence[Sequence[str]]) -> str:
    """The paragraphs that all of `sections` have; where they differ, those of each behind its label."""
    joined: list[str] = []
    rests = [list(section) for section in sections]
    for stop in (*sections[0], None):
        if stop is not None and not all(stop in rest for rest in rests):
            continue
        for label, rest in zip(labels, rests, strict=True):
            place = len(rest) if stop is None else rest.index(stop)
            if place:
                # A table or a list needs an empty line before it.
                joined.append(f"**{label}.**" + ("\n\n" if rest[0][0] in "|-" else " ") + rest[0])
            joined += rest[1:place]
            del rest[: place + 1]
        joined += [] if stop is None else [stop]
    return "\n\n".join(joined)


def _list_notes(
    pack: Pack, entry: Entry, tasks: Sequence[_Task], *, ledger: Ledgers, as_written: bool
) -> list[str]:
    """What must be known of the submission as a whole."""
    epsilons = [format_exact(each.epsilon) for each in tasks]
    total = format_exact(sum((each.epsilon for each in tasks), Fraction(0)))
    notes = [
        f"one ledger was charged for every epsilon: {' + '.join(epsilons)} = {total} together"
        if ledger == "one"
        else f"each epsilon has a ledger of its own; published together they cost {total}"
    ]
    most = max(run.max_records for run in pack.runs)
    if entry == "syncity" and as_written:
        notes.append(f"noise as the document adds it protects a person {most} times less than it says")
    elif entry == "syncity":
        notes.append(f"noise is {most} times the document's: one person is counted in up to {most} cells")
    elif entry == "adaptive-granularity":
        notes.append(
            "noise as the document adds it is more than its epsilon asks for"
            if as_written
            else "noise is what epsilon asks for by the exact formula, less than the document's"
        )
    elif as_written:
        notes.append("as written and sound are the same noise here")
    if entry == "gardn999":
        notes.append("all domains are public; the document reads five of them from the private records")
    return notes


_SEED = 2020
_METRICS = {
    "sprint1": ("the mean pie chart score of a neighbourhood and month", 1),
    "sprint3": ("the taxi score", 1000),
    "match3": ("the mean of three scores", 1_000_000),
}
_PARTS = {
    "sprint1": ("jsd", "misleading", "bias"),
    "sprint3": ("k_marginal", "graph_edge", "conjunction"),
    "match3": ("marginals", "conjunctions", "income"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """The score of one submission at one epsilon, and what it is made of; epsilon None is a reference."""

    entry: str
    epsilon: Fraction | None
    score: float
    parts: dict[str, float]

    @property
    def label(self) -> str:
        """The entry with its epsilon."""
        return self.entry if self.epsilon is None else f"{self.entry}, epsilon {format_exact(self.epsilon)}"


def score_pack(
    pack: Pack, *, truth: Path | str | None = None, progress: Callable[[str], None] = lambda _: None
) -> tuple[Score, ...]:
    """The scores of every entry in the folder of `pack` against `truth`, by default the pack's own records.

    Two references come first: a release of nothing, and a sample of the individuals without any noise.
    """
    path = pack.folder / pack.records if truth is None else Path(truth)
    records = _read_csv(path)
    lacks = {stored for each in pack.columns.values() for stored in each.stored} - {*records.column_names}
    if lacks or not records.num_rows:
        raise SchemaError(f"{path.name} has no records with the columns of this contest")
    found = sorted({each.parent for each in pack.folder.glob("*/submission*.csv")})
    if not found:
        raise SchemaError(
            f"pack {pack.folder.name!r} has no submission; make one by `contest run ENTRY PACK`"
        )
    submitted = [
        (folder.name, epsilon, rows) for folder in found for epsilon, rows in _read_submission(pack, folder)
    ]
    references, judge = _make_judge(pack, records, submitted[0][2])
    scores = [_keep(pack, name, None, record) for name, record in references.items()]
    for name, epsilon, rows in submitted:
        progress(f"scoring {name} at epsilon {format_exact(epsilon)}")
        scores.append(_keep(pack, name, epsilon, judge(rows)))
    return tuple(scores)


def build_board(boards: Sequence[tuple[Pack, tuple[Score, ...]]]) -> Page:
    """One page with the scores of every pack."""
    sections = []
    for pack, scores in boards:
        metric, perfect = _METRICS[pack.contest]
        parts = [name for name in _PARTS[pack.contest] if any(name in each.parts for each in scores)]
        record = {
            "contest": pack.contest,
            "metric": metric,
            "perfect": perfect,
            "parts": [name.replace("_", " ") for name in parts],
            "rows": [(each.label, each.score) for each in scores],
            "scores": [
                {
                    "entry": each.entry,
                    "epsilon": "" if each.epsilon is None else format_exact(each.epsilon),
                    "score": each.score,
                    "parts": [each.parts.get(name) for name in parts],
                }
                for each in scores
            ],
        }
        section = {"name": pack.contest, "heading": pack.folder.name, "template": "contests/board.html"}
        sections.append({**section, "record": record})
    return render_page(
        "contests/page.html",
        title="What each document's entry scores",
        internal=True,
        notice="scores compare with the private records; do not publish",
        printed="compares with the records",
        sections=sections,
    )


Record = dict[str, Any]


def _make_judge(
    pack: Pack, records: pa.Table, rows: pa.Table
) -> tuple[dict[str, Record], Callable[[pa.Table], Record]]:
    """The records of the references, nothing and half of the individuals, and the scorer of a submission."""
    if pack.contest == "sprint1":
        truth = _count(pack, records)
        people, place = np.unique(records[pack.unit].to_numpy(zero_copy_only=False), return_inverse=True)
        chosen = np.random.default_rng(_SEED).random(people.size) < 0.5
        half = _count(pack, records.filter(pa.array(chosen[place])))
        references = {
            ZEROS: pie_chart(truth, np.zeros_like(truth)).to_record(),
            HALF: pie_chart(truth, half).to_record(),
        }
        return references, lambda each: pie_chart(truth, _read_counts(pack, each)).to_record()
    if pack.contest == "sprint3":
        scored = score_records("taxi", records, rows, unit=pack.unit, seed=_SEED)
        return {name: scored[name] for name in (ZEROS, HALF)}, lambda each: taxi(records, each).to_record()
    largest = {
        name: max(map(int, column.domain.labels)) for name, column in pack.columns.items() if column.domain
    }
    options: dict[str, Any] = {"largest": largest}
    if not {"SEX", "CITY", "INCWAGE"} <= set(largest):
        options["income"] = None
    scored = score_records("match3", records, rows, seed=_SEED, options=options)
    references = {name: scored[name] for name in (ZEROS, HALF)}
    return references, lambda each: match3(records, each, **options).to_record()


def _keep(pack: Pack, entry: str, epsilon: Fraction | None, record: Record) -> Score:
    score = record["mean"] if pack.contest == "sprint1" else record["score"]
    parts = {name: float(value) for name in _PARTS[pack.contest] if (value := record[name]) is not None}
    return Score(entry=entry, epsilon=epsilon, score=float(score), parts=parts)


def _count(pack: Pack, records: pa.Table) -> Whole:
    """The counts of records, a line per neighbourhood and month and a number per kind."""
    cells = np.zeros(records.num_rows, np.int64)
    inside = np.ones(records.num_rows, bool)
    for name in COUNTED:
        column = pack.columns[name]
        texts = [records[stored].cast(pa.string()) for stored in column.stored]
        joined = pc.binary_join_element_wise(*texts, "-") if len(texts) > 1 else texts[0]
        labels = pa.array([str(label) for label in column.labels])
        places = pc.fill_null(pc.index_in(joined, labels), -1).to_numpy()
        inside &= places >= 0
        cells = cells * len(labels) + places
    shape = [pack.columns[name].size for name in COUNTED]
    counts = np.bincount(cells[inside], minlength=int(np.prod(shape)))
    return counts.reshape(-1, shape[-1]).astype(np.int64)


def _read_counts(pack: Pack, rows: pa.Table) -> Whole:
    """The counts of a submission in the order of the records' lines."""
    lines: dict[tuple[str, str], list[int]] = {}
    kinds = [str(kind) for kind in pack.columns["incident_type"].labels]
    for row in rows.to_pylist():
        lines[str(row["neighborhood"]), f"{row['year']}-{row['month']}"] = [row[kind] for kind in kinds]
    order = [
        (str(place), str(period))
        for place in pack.columns["neighborhood"].labels
        for period in pack.columns["period"].labels
    ]
    if set(order) - set(lines):
        raise SchemaError("a submission lacks lines for some neighbourhoods and months of parameters.json")
    return np.array([lines[each] for each in order], np.int64)


def _read_submission(pack: Pack, folder: Path) -> list[tuple[Fraction, pa.Table]]:
    if pack.contest == "match3":
        paths = [(run.epsilon, folder / f"submission-{format_exact(run.epsilon)}.csv") for run in pack.runs]
        return [(epsilon, _read_csv(path)) for epsilon, path in paths if path.is_file()]
    rows = _read_csv(folder / "submission.csv")
    if set(rows.column_names) != set(pack.header):
        raise SchemaError(f"{folder.name}/submission.csv has other columns than submission_format.csv")
    return [(run.epsilon, rows.filter(pc.equal(rows["epsilon"], float(run.epsilon)))) for run in pack.runs]


def _read_csv(path: Path) -> pa.Table:
    try:
        return arrow_csv.read_csv(io.BytesIO(path.read_bytes()))
    except (OSError, pa.ArrowInvalid):
        raise SchemaError(f"{path.name} cannot be read as a table") from None
