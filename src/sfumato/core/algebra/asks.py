"""What it costs to answer measures of a query: the one place where the costs of statements are made.

Whoever asks says by which noise, or at which rate of a choice, each measure is answered; the core adds the
sensitivity that it derived and gets the cost. A planner that is wrong about a sensitivity asks for what its
charge does not pay, and nothing is read. Proof: docs/proofs/sql.md, sections 3 to 6.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from sfumato.core.algebra.measures import Checked, Measure, find_sensitivity
from sfumato.core.cost.cost import Cost
from sfumato.core.cost.curves import histogram_sensitivity, selection_threshold
from sfumato.core.errors import refuse
from sfumato.core.law import SHAPES, Kind


@dataclass(frozen=True, slots=True)
class Noised:
    """A measure that is answered by noise on its values, or on `times` sums of them over sets of groups."""

    kind: Kind
    scale: Fraction
    times: int = 1


@dataclass(frozen=True, slots=True)
class Picked:
    """A measure that is answered by exponential choices, one after the other, at these rates."""

    rates: tuple[Fraction, ...]


@dataclass(frozen=True, slots=True)
class Kept:
    """Groups are kept whose number of individuals, with Laplace noise of `scale`, reaches the threshold.

    One that a single individual is in is kept with a probability of at most `delta`.
    """

    scale: Fraction
    threshold: int
    delta: Fraction


Drawn = Noised | Picked


def list_costs(checked: Checked, drawn: tuple[Drawn, ...], kept: Kept | None = None) -> tuple[Cost, ...]:
    """Return every cost of answering a query so, in the order in which the answers are drawn.

    Privacy: sensitivities are those of `find_sensitivity`, and of ranks and counts that choices look at.
    """
    if (kept is not None) != checked.is_open:
        raise refuse("groups that are not public are chosen privately, and no others are")
    first = () if kept is None else (_cost_selection(checked, kept),)
    pairs = zip(checked.query.measures, drawn, strict=True)
    return (*first, *(cost for measure, each in pairs for cost in _cost_measure(checked, measure, each)))


def _cost_measure(checked: Checked, measure: Measure, drawn: Drawn) -> tuple[Cost, ...]:
    unit = checked.unit
    if isinstance(drawn, Picked):
        if measure.statistic != "quantile":
            raise refuse("a choice among what is no histogram")
        # A rank moves by the larger part of the share, a count by 1, for every row that comes or goes.
        moved = unit.max_records * (2 if unit.neighbours == "replace" else 1)
        if measure.labels is None:
            share = measure.quantile or Fraction(0)
            moved *= 2 * max(share.numerator, share.denominator - share.numerator)
        scales = [rate * moved for rate in drawn.rates]
        return tuple(
            Cost(kind="exponential", scale=scale, neighbours=unit.neighbours, unit=unit.name)
            for scale in scales
        )
    if drawn.times > 1 and measure.statistic == "individuals":
        raise refuse("numbers of individuals do not add up over groups")
    sensitivity = find_sensitivity(measure, checked, norm=SHAPES[drawn.kind].norm)
    cost = Cost(
        kind=drawn.kind,
        scale=drawn.scale,
        sensitivity=sensitivity,
        neighbours=unit.neighbours,
        unit=unit.name,
    )
    return (cost,) * drawn.times


def _cost_selection(checked: Checked, kept: Kept) -> Cost:
    groups, neighbours = checked.most_groups, checked.unit.neighbours
    if kept.threshold < selection_threshold(scale=kept.scale, sensitivity=groups, delta=kept.delta):
        raise refuse("groups that are kept with fewer individuals than delta allows")
    sensitivity = histogram_sensitivity(contribution=Fraction(groups), norm="L1", neighbours=neighbours)
    return Cost(
        kind="selection",
        scale=kept.scale,
        sensitivity=sensitivity,
        delta=kept.delta,
        neighbours=neighbours,
        unit=checked.unit.name,
    )
