"""Layer 0: what can be read off before anything is run on records, made up or not."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from sfumato.accounting import Spent, add_costs, mu_to_epsilon, rho_to_epsilon
from sfumato.audit.people import MOST_RECORDS
from sfumato.audit.result import Finding

if TYPE_CHECKING:
    from sfumato.accounting import Cost
    from sfumato.audit.desk import Answered
    from sfumato.schema import Table

_HAIR = 1e-6


def check_charges(table: Table, answered: Answered, *, epsilon: float, delta: float) -> tuple[Finding, ...]:
    """Whom the claim is about, and whether what is charged and declared is what is claimed."""
    unit = table.unit.describe()
    findings = [Finding(layer=0, text=f"protects one individual: {unit}; bounding by {table.bounding}")]
    neighbours = {cost.neighbours for cost in (*answered.charged, *answered.declared)}
    norms = {cost.norm for cost in answered.declared if cost.kind in ("laplace", "gaussian")}
    if neighbours - {table.unit.neighbours} or None in norms:
        text = "a cost is declared for other neighbours, or without a norm"
        findings.append(Finding(layer=0, text=text, violated=True))
    charged = read_epsilon(answered.charged, delta=delta)
    failure = float(sum(cost.failure for cost in answered.charged))
    over = charged > epsilon * (1 + _HAIR) or failure > delta * (1 + _HAIR)
    text = f"the charges come to epsilon {charged:.6g}" + (f" at delta {delta:.6g}" if delta else "")
    findings.append(Finding(layer=0, text=f"{text}; the claim is {epsilon:.6g}", violated=over))
    declared, allowed = (add_costs(Spent(), costs) for costs in (answered.declared, answered.charged))
    if declared.rho > allowed.rho * (1 + 10**-9):
        text = "the answers are declared to cost more than is charged"
        findings.append(Finding(layer=0, text=text, violated=True))
    return tuple(findings)


def note_facts(table: Table) -> tuple[str, ...]:
    """What a reader should know about the description that everything rests on."""
    notes = []
    drafted = sorted(name for name, column in table.columns.items() if column.drafted)
    if drafted:
        notes.append(
            f"not public: the domains of {', '.join(drafted)} were drafted from the data, which no audit of "
            "what follows can make private"
        )
    if table.unit.max_records > MOST_RECORDS:
        notes.append(
            f"made-up individuals have {MOST_RECORDS:,} records at most, fewer than max_records: their "
            "epsilon is a part of what one individual may cause"
        )
    return tuple(notes)


def read_epsilon(costs: tuple[Cost, ...], *, delta: float) -> float:
    """The least epsilon that the costs prove at `delta`, as the ledger reads them.

    >>> from fractions import Fraction
    >>> from sfumato.accounting import Cost
    >>> read_epsilon((Cost(kind="laplace", scale=Fraction(2)),) * 3, delta=0.0)
    1.5
    """
    if not costs:
        return 0.0
    spent = add_costs(Spent(), costs)
    readings = [] if spent.epsilon is None else [float(spent.epsilon)]
    rest = delta - float(spent.delta)
    if rest > 0:
        readings.append(rho_to_epsilon(spent.rho, rest))
        if spent.mu_squared is not None:
            readings.append(mu_to_epsilon(math.sqrt(spent.mu_squared), rest))
    return min(readings, default=math.inf)
