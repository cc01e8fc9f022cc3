"""EXPLAIN: the plan of a statement in words. Rests on public facts only."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

from sqlglot import exp

from sfumato.exact import format_exact, format_short
from sfumato.sql.check import AGGREGATE
from sfumato.sql.intervals import half_width
from sfumato.sql.modes import mode_reach

if TYPE_CHECKING:
    from sfumato.sql.plan import Noise, QueryPlan


def explain_query(plan: QueryPlan, *, left: Fraction, admitted: bool) -> str:
    """The plan, its sensitivities, expected errors and cost, as text."""
    unit = plan.unit
    lines = [
        plan.text,
        f"  protects     one individual: {unit.describe()}",
        f"  reads        {', '.join(dict.fromkeys(plan.relation.tables))}; nothing is read for EXPLAIN",
    ]
    if unit.column is None:
        lines.append("  bounding     every row is an individual")
    else:
        lines.append(f"  bounding     at most {unit.max_records} rows of an individual are aggregated")
        if plan.keys:
            lines.append(f"               in at most {plan.max_groups} groups")
    if plan.keys:
        names = ", ".join(key.node.sql(dialect="duckdb") for key in plan.keys)
        count = "chosen privately" if plan.selection else f"{plan.groups:,}, public, each answered"
        lines.append(f"  groups       {names}: {count}")
    if plan.selection is not None:
        chosen = plan.selection
        lines.append(
            f"  selection    noisy number of individuals at or above {chosen.threshold}, "
            f"noise scale {_short(chosen.scale)}, delta {_short(chosen.cost.delta)}"
        )
    for noise in plan.noises:
        lines.append(f"  measures     {noise.measure.describe()}")
        lines.append(f"               {_describe_noise(noise)}")
    pure = [cost.epsilon for cost in plan.costs]
    rho = sum((cost.rho for cost in plan.costs), start=plan.epsilon * 0)
    if None in pure:
        pair = f"(epsilon {_short(plan.epsilon)}, delta {_short(plan.delta)})"
        lines.append(f"  cost         {pair}; rho {float(rho):.6g}")
    else:
        total = sum((each for each in pure if each is not None), start=plan.epsilon * 0)
        lines.append(f"  cost         epsilon {_short(total)}; rho {float(rho):.6g}")
    verdict = "fits" if admitted else "does NOT fit"
    lines.append(
        f"  budget       epsilon {format_exact(left)} left; this statement {verdict}; nothing was spent"
    )
    return "\n".join(lines)


def describe_scales(plan: QueryPlan) -> dict[str, str]:
    """For every output with an aggregate, the noise behind it."""
    scales = {}
    index = {noise.measure: noise for noise in plan.noises}
    for output in plan.outputs:
        numbers = [int(node.name) for node in output.tree.find_all(exp.Column) if node.table == AGGREGATE]
        noises = [index[m] for number in numbers for m in plan.aggregates[number].measures]
        if noises:
            scales[output.name] = "; ".join(_describe_noise(noise) for noise in noises)
    return scales


def _describe_noise(noise: Noise) -> str:
    if noise.measure.labels is not None:
        left = " left" if noise.measure.chosen > 1 else ""
        spent = sum((cost.scale for cost in noise.costs), start=noise.scale * 0)
        return (
            f"exponential mechanism among {len(noise.measure.labels):,} public labels, scale "
            f"{_short(noise.scale)} records, epsilon {_short(spent)}, 95 % within "
            f"{mode_reach(noise, 0.05)} records of the most frequent{left}"
        )
    if noise.kind == "exponential":
        return f"exponential mechanism over public steps, epsilon {_short(noise.scale)}"
    grid = noise.measure.grid
    width = half_width(noise, 0.05) / grid
    return (
        f"discrete {noise.kind} noise, scale {float(noise.scale) / grid:.6g}, sensitivity "
        f"{float(noise.costs[0].sensitivity) / grid:.6g} ({noise.costs[0].norm}), 95 % within +-{width:.4g}"
    )


def _short(number: Fraction) -> str:
    return f"{float(number):g}" if 0 < number < Fraction(1, 10**5) else format_short(number)
