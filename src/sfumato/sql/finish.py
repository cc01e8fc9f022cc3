"""From noisy measures to an answer: ratios, arithmetic, HAVING, ORDER BY and LIMIT, with intervals.

A pure function of the plan and the noisy values, so it costs nothing and gives the same answer twice.
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from sqlglot import exp

from sfumato.core.algebra.measures import Measure
from sfumato.core.cost.cost import Cost
from sfumato.core.engine.arrays import to_arrow, to_numpy
from sfumato.core.errors import LedgerError
from sfumato.core.exact import format_short
from sfumato.core.ledger.report import describe_cost
from sfumato.sql.bands import Band
from sfumato.sql.check import AGGREGATE, is_key, is_moment, is_rank, is_text
from sfumato.sql.clips import note_clip
from sfumato.sql.evaluate import Evaluator
from sfumato.sql.expected import PAIRED, ExpectedError
from sfumato.sql.laws import Held, note_total
from sfumato.sql.plan import (
    Noise,
    NoisyAggregates,
    PrivateChoice,
    QueryPlan,
    find_mode,
    find_quantiles,
    half_width,
    name_columns,
)
from sfumato.tables.arrays import read_parquet

_MOST_GROUPS = 2**24
_NEAR = 20  # part of the bounds within which an average is near an end
_CHOSEN = "chosen "


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """What a statement would cost and err, before it is bought.

    `errors` has half the width of the 95 % confidence interval of each column, None where it depends on the
    records; `expected` has it for groups of several sizes, too. `groups` is their number, None if they are
    chosen privately. `admitted` says whether the budget has room for it, `stored` whether it was answered
    before and is free. `free` has what `errors` would be for the answer that follows from earlier ones, if
    there is one; `costs` are what would be charged. `most` is what all tries of WITHIN n % may cost, of which
    the rest tells of the first.
    """

    epsilon: Fraction
    delta: Fraction
    errors: Mapping[str, float | None]
    expected: Mapping[str, ExpectedError]
    groups: int | None
    admitted: bool
    stored: bool
    free: Mapping[str, float | None] | None = None
    costs: tuple[Cost, ...] = ()
    most: Fraction | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Answer:
    """The answer to a statement.

    Aggregates have their 95 % confidence interval beside them, in `<name>_low` and `<name>_high`. `scales`
    names the noise behind each column, `spent` what was charged now: nothing for a repeated statement,
    `notes` what should be known of the answer before it is used. EXPLAIN answers with a `price`. `entries`
    are those of the ledger that it follows from, where these are not its own alone.
    """

    table: pa.Table
    spent: Fraction = Fraction(0)
    delta: Fraction = Fraction(0)
    repeated: bool = False
    synthetic: bool = False
    public: bool = False
    scales: Mapping[str, str] = field(default_factory=dict)
    explanation: str | None = None
    price: Price | None = None
    notes: tuple[str, ...] = ()
    entries: tuple[int, ...] = ()

    def to_arrow(self) -> pa.Table:
        """The answer as an Arrow table."""
        return self.table

    def to_pandas(self) -> Any:  # noqa: ANN401 - pandas is not a dependency
        """The answer as a pandas frame; pandas must be installed."""
        return self.table.to_pandas()

    def to_polars(self) -> Any:  # noqa: ANN401 - polars is not a dependency
        """The answer as a polars frame; polars must be installed."""
        from sfumato.tables.read import to_polars

        return to_polars(self.table)

    def plot(self, column: str | None = None, *, ax: Any = None) -> Any:  # noqa: ANN401 - matplotlib's axes
        """A picture of `column`, by default the first with an interval; on matplotlib's axes if given."""
        from sfumato.report.pages.plot import plot_table

        return plot_table(self.table, column, title="Answer", ax=ax)

    def __repr__(self) -> str:
        return self.explanation or f"Answer({self.table.num_rows} rows: {', '.join(self.table.column_names)})"

    def _repr_html_(self) -> str:
        from sfumato.report.pages.notebook import MOST_ROWS, render_card, render_table

        if self.explanation is not None:
            return render_card("Price", text=self.explanation, notes=self.notes)
        cost = describe_cost(f"epsilon {format_short(self.spent)}" if self.spent else "nothing")
        return render_table(
            "Synthetic rows" if self.synthetic else "Answer",
            self.table.column_names,
            [tuple(row.values()) for row in self.table.slice(0, MOST_ROWS).to_pylist()],
            count=self.table.num_rows,
            notes=(*self.notes, "" if self.public else cost),
        )


def finish_query(plan: QueryPlan, noisy: NoisyAggregates) -> pa.Table:
    """The answer as a table: one column per output, with its `_low` and `_high` beside aggregates."""
    return _finish(plan, Evaluator(plan, noisy))


def _finish(plan: QueryPlan, evaluator: Evaluator) -> pa.Table:
    rows = np.arange(evaluator.rows)
    for number, stage in enumerate(plan.stages):
        before = rows.size
        if stage.having is not None:
            rows = rows[evaluator.test(stage.having)[rows]]
        evaluator.enter(number, rows)
        order = [(evaluator.sort_key(tree), descending) for tree, descending in stage.order]
        rows = sort_rows(rows, order, limit=stage.limit, offset=stage.offset)
        noisy = (column for tree in stage.trees for column in tree.find_all(exp.Column))
        if any(column.table == AGGREGATE for column in noisy):
            # Noise picks itself: the largest values are too large. Of intervals that miss so much less often,
            # no more than stated is false among those that are shown (Benjamini and Yekutieli 2005).
            evaluator.picked *= max(1, rows.size) / max(1, before)
    columns: dict[str, pa.Array] = {}
    for output in plan.outputs:
        names = name_columns(output, plan.aggregates)
        arrays: list[pa.Array]
        mode = find_mode(output.tree, plan.aggregates)
        if is_key(output.tree):
            arrays = [evaluator.labels(int(output.tree.name), rows)]
        elif mode is not None:
            arrays = evaluator.chosen_labels(mode, rows)
        elif (quantiles := find_quantiles(output.tree, plan.aggregates)) is not None:
            arrays = [to_arrow(each[rows]) for each in evaluator.quantiles(quantiles)]
        elif is_text(output.tree):
            arrays = [pa.array(evaluator.texts(output.tree)[rows], pa.string())]
        elif is_rank(output.tree):
            arrays = [to_arrow(evaluator.places(output.tree)[rows])]
        elif is_moment(output.tree):
            arrays = [evaluator.moments(output.tree).take(pa.array(rows))]
        elif (dates := evaluator.dates(output.tree)) is not None:
            arrays = [each.take(pa.array(rows)) for each in dates]
        else:
            band = _hold_values(evaluator.band(output.tree), output.tree, plan)
            arrays = [to_arrow(each[rows]) for each in (band.value, band.low, band.high)]
        pairs = list(zip(names, arrays, strict=True))
        banded = mode is None and len(pairs) > 1
        columns |= dict(pairs if plan.intervals or not banded else pairs[::3])
    return pa.table(columns)


def _hold_values(band: Band, tree: exp.Expr, plan: QueryPlan) -> Band:
    """A band held to what public facts allow.

    Only what is shown is held, so that what is computed from it stays without bias.
    """
    found = _find_ends(tree, plan)
    return (
        band
        if found is None
        else Band(*(np.clip(each, *found) for each in (band.value, band.low, band.high)))
    )


def _find_ends(tree: exp.Expr, plan: QueryPlan) -> tuple[float, float | None] | None:
    """The least and the largest value of a column by public facts, None where they are not known here.

    A count of different values is at most their number, a part of a whole at most the whole.
    """
    times, tree = _split(tree.this if isinstance(tree, exp.Round) else tree)
    if isinstance(tree, exp.Column) and tree.table == AGGREGATE and times == 1:
        measure = plan.aggregates[int(tree.name)].measures[0]
        return (0, int(measure.high) or None) if measure.statistic == "distinct" else None
    if not isinstance(tree, exp.Div):
        return None
    more, part = _split(tree.this)
    found = _find_share(part, tree.expression, plan)
    return None if found is None else (times * more * found[0], times * more * found[1])


def _split(tree: exp.Expr) -> tuple[float, exp.Expr]:
    """A number that is no less than 0, and what it is multiplied by."""
    tree = tree.unnest()
    for one, other in ((tree.this, tree.expression), (tree.expression, tree.this)):
        if isinstance(tree, exp.Mul) and isinstance(one, exp.Literal):
            return float(one.this), other.unnest()
    return 1.0, tree


def _find_share(part: exp.Expr, whole: exp.Expr, plan: QueryPlan) -> tuple[float, float] | None:
    """The least and the largest ratio of aggregates of the same rows, if one is a part of the other."""
    pair = part, (whole.this if isinstance(whole, exp.Nullif) else whole).unnest()
    if not all(isinstance(each, exp.Column) and each.table == AGGREGATE for each in pair):
        return None
    found = [plan.aggregates[int(each.name)] for each in pair]
    if any(each.kind != "measure" for each in found):
        return None
    one, all_of = (each.measures[0] for each in found)
    counts, summed = ("records", "present"), one.statistic == all_of.statistic == "sum"
    if one.statistic in counts and all_of.statistic == "records":
        return 0.0, 1.0
    if one.statistic == "sum" and not one.is_open and all_of.statistic in counts:
        if all_of.tree is None:
            return min(0.0, float(one.low)), max(0.0, float(one.high))
        return (float(one.low), float(one.high)) if all_of.tree == one.tree else None
    if summed and not all_of.is_open and all_of.low >= 0 and isinstance(one.tree, exp.Case):
        results = [each.args["true"] for each in one.tree.args["ifs"]] + [one.tree.args.get("default")]
        nothing = (None, exp.Literal.number(0), exp.null())
        return (0.0, 1.0) if all(each in nothing or each == all_of.tree for each in results) else None
    return None


def sort_rows(
    rows: NDArray[np.intp], order: list[tuple[NDArray[Any], bool]], *, limit: int | None, offset: int
) -> NDArray[np.intp]:
    """The rows that ORDER BY, LIMIT and OFFSET leave; `order` has ranks and whether they descend."""
    for ranks, descending in reversed(order):
        rows = rows[np.argsort(-ranks[rows] if descending else ranks[rows], kind="stable")]
    return rows[offset:][:limit]


def note_counts(plan: QueryPlan, noisy: NoisyAggregates) -> tuple[str, ...]:
    """That all counts of an answer together may be noise alone, if they may."""
    found = [
        (half_width(noise, count=values.size), float(values.sum(dtype=object)))
        for noise, values in zip(plan.noises, noisy.values, strict=True)
        if isinstance(noise, Noise)
        and noise.measure.statistic in ("records", "present", "individuals")
        and values.size
    ]
    if not found or plan.selection is not None or plan.sets is not None:
        return ()
    reach, total = min(found)
    note = note_total(total, reach, of="answer")
    return () if note is None else (note,)


def note_cuts(plan: QueryPlan) -> tuple[str, ...]:
    """What the bounds of a statement may leave out, by public facts: records, groups, and parts of values."""
    notes: tuple[str, ...] = ()
    heads = all(noise.measure.statistic == "individuals" for noise in plan.noises)
    # Private bounds have notes of their own; of an individual's one row of an inner query nothing is cut.
    chosen = plan.tally is not None or bool(plan.tallies)
    if not chosen and not plan.relation.individuals and not (heads and not plan.keys):
        notes = plan.unit.note_bound()
    grouped = plan.unit.column is not None and plan.keys and not plan.tallies
    if grouped and plan.max_groups < plan.unit.max_records:
        notes += (f"groups beyond {plan.max_groups} per individual are not counted",)
    clamped = {_brief_column(measure): measure for measure in _list_clamped(plan)}
    return notes + tuple(
        f"{name} is clamped to [{format_short(measure.low)}, {format_short(measure.high)}]"
        for name, measure in clamped.items()
    )


def note_edges(plan: QueryPlan, noisy: NoisyAggregates) -> tuple[str, ...]:
    """Which averages and quantiles lie at or near an end of their bounds, where values beyond may be cut.

    If the values between bounds are on average so far from an end, half of them are within twice as far.
    """
    evaluator = Evaluator(plan, noisy)
    found: dict[str, None] = {}
    for number, each in enumerate(plan.aggregates):
        measure = each.measures[0]
        quantile = each.kind == "measure" and measure.quantile not in (None, 0, 1)
        if measure not in _list_clamped(plan) or not (quantile or each.kind == "average"):
            continue
        values = evaluator.band(exp.column(str(number), table=AGGREGATE)).value
        # A quantile is the middle of a step.
        step = (measure.high - measure.low) / measure.steps if quantile and not measure.whole else 0
        near = (measure.high - measure.low) / _NEAR * (each.kind == "average")
        for end, away in ((measure.low, values - measure.low), (measure.high, measure.high - values)):
            what = f"the end {format_short(end)} of its bounds"
            if (away <= step).any():
                found[f"an answer about {_brief_column(measure)} is at {what}: what lies beyond is cut"] = (
                    None
                )
            elif end and (away <= near).any():  # below 0 there are often no values
                within = format_short(2 * near)
                found[
                    f"an average of {_brief_column(measure)} is near {what}: at least half of the values are "
                    f"within {within} of it, or beyond it and cut"
                ] = None
    return tuple(found)


def _list_clamped(plan: QueryPlan) -> list[Measure]:
    """The sums and quantiles of columns of numbers with bounds."""
    return [
        measure
        for each in plan.aggregates
        for measure in each.measures[: 2 if each.kind in PAIRED else 1]
        if measure.statistic in ("sum", "quantile")
        and measure.labels is None
        and measure.private is None
        and each.type is None
        and _brief_column(measure)
    ]


def _brief_column(measure: Measure) -> str:
    """The name of the one column that is added up, under its condition if it has one."""
    tree = measure.tree
    if isinstance(tree, exp.Case) and len(tree.args["ifs"]) == 1:
        tree = tree.args["ifs"][0].args["true"]
    return tree.name if isinstance(tree, exp.Column) else ""


def note_bounds(plan: QueryPlan) -> tuple[str, ...]:
    """The bounds that were chosen privately for a statement."""
    most = plan.unit.max_records
    records = (
        f"at most {most} {'record' if most == 1 else 'records'} of an individual counted, chosen privately"
    )
    norms = (note_clip(each.measure, held) for each, held in zip(plan.tallies, plan.held, strict=False))
    values = (
        f"{name} was clamped to [{format_short(low)}, {format_short(high)}], chosen privately"
        for name, (low, high) in plan.relation.chosen.items()
    )
    return (*(() if plan.tally is None else (records,)), *norms, *values)


def note_selection(plan: QueryPlan) -> tuple[str, ...]:
    """Which groups are not in an answer because too few individuals are in them."""
    return () if plan.selection is None else (plan.selection.describe(),)


def rehearse_query(plan: QueryPlan) -> pa.Schema:
    """The schema of the answer to `plan`, or the refusal that finishing it would end in."""
    return rehearse_rows(plan, groups=1).schema


def rehearse_rows(plan: QueryPlan, *, groups: int) -> pa.Table:
    """What stands for an answer with so many groups before there is one: its labels, and zeros."""
    groups = 0 if plan.selection is not None else groups
    kind = np.float64 if plan.sets is not None and plan.sets.is_fitted else np.int64
    values = tuple(
        np.zeros((len(noise.costs), groups) if isinstance(noise, PrivateChoice) else groups, kind)
        for noise in plan.noises
    )
    noisy = NoisyAggregates(values=values, keys=() if plan.selection is not None else None)
    return _finish(plan, Evaluator(plan, noisy, rehearse=True))


def pack_noisy(noisy: NoisyAggregates) -> bytes:
    """Noisy aggregates as bytes for the ledger; holds no exact value."""
    columns = {
        f"{index}/{part}": to_arrow(row)
        for index, values in enumerate(noisy.values)
        for part, row in enumerate(np.atleast_2d(values))
    }
    if noisy.bounds or noisy.cap is not None or noisy.clips:
        rows = max((values.shape[-1] for values in noisy.values), default=0)
        # In the name of a column, so that it is kept of an answer without groups too.
        chosen = json.dumps({"bounds": noisy.bounds, "cap": noisy.cap, "clips": noisy.clips})
        columns[f"{_CHOSEN}{chosen}"] = to_arrow(np.zeros(rows, np.int64))
    if noisy.keys is not None:
        columns["keys"] = pa.array([json.dumps(key) for key in noisy.keys], pa.string())
    sink = io.BytesIO()
    pq.write_table(pa.table(columns), sink, compression="zstd", store_schema=False)
    return sink.getvalue()


def sum_records(payload: bytes, place: int) -> tuple[int, int]:
    """The noisy count at a `place` of a stored answer, summed over all groups, and their number."""
    try:
        column = read_parquet(payload, rows=_MOST_GROUPS)[f"{place}/0"]
    except (pa.ArrowException, KeyError, OSError, ValueError):
        raise LedgerError("a stored answer cannot be read; verify the ledger") from None
    return int(to_numpy(column).sum(dtype=object)), len(column)


def unpack_noisy(payload: bytes, plan: QueryPlan) -> NoisyAggregates:
    """The noisy aggregates of a stored answer to `plan`."""
    try:
        table = read_parquet(payload, rows=_MOST_GROUPS)
        values = []
        for index, noise in enumerate(plan.noises):
            stored = sum(name.startswith(f"{index}/") for name in table.column_names)
            rows = [to_numpy(table[f"{index}/{part}"]) for part in range(max(1, stored))]
            several = isinstance(noise, PrivateChoice) or noise.measure.parts
            values.append(np.stack(rows) if several else rows[0])
        keys = None
        if plan.selection is not None:
            keys = tuple(tuple(json.loads(text)) for text in table["keys"].to_pylist())
        found = [name for name in table.column_names if name.startswith(_CHOSEN)]
        chosen: dict[str, Any] = json.loads(found[0].removeprefix(_CHOSEN)) if found else {}
        bounds = tuple((int(first), int(last)) for first, last in chosen.get("bounds", ()))
        clips = tuple(Held(*map(int, each)) for each in chosen.get("clips", ()))
    except (pa.ArrowException, KeyError, OSError, TypeError, ValueError):
        raise LedgerError("a stored answer cannot be read; verify the ledger") from None
    return NoisyAggregates(values=tuple(values), keys=keys, bounds=bounds, cap=chosen.get("cap"), clips=clips)
