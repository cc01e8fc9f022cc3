"""The scoreboard of a pack: every submission by the official metric, beside zeros and a sample. INTERNAL.

Scores compare with the records and are not private.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as arrow_csv
from numpy.typing import NDArray

from sfumato.core.errors import SchemaError
from sfumato.core.exact import format_exact
from sfumato.metrics import match3, pie_chart, taxi
from sfumato.metrics.compare import HALF, ZEROS
from sfumato.metrics.contests.packs import COUNTED, Pack
from sfumato.metrics.scoring import score_records
from sfumato.report.pages.render import Page, render_page

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


def _count(pack: Pack, records: pa.Table) -> NDArray[np.int64]:
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


def _read_counts(pack: Pack, rows: pa.Table) -> NDArray[np.int64]:
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
