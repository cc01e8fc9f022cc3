"""The choice of an algorithm for a plan."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sfumato.anonymity.encode import encode_values
from sfumato.anonymity.local import cut_classes, find_classes
from sfumato.anonymity.models import (
    Closeness,
    DeltaDisclosure,
    DistinctL,
    EntropyL,
    Models,
    RecursiveL,
    count_values,
)
from sfumato.anonymity.values import is_text
from sfumato.errors import AnonymityError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

    from sfumato.anonymity.collapse import Tuples
    from sfumato.anonymity.encode import Quasi
    from sfumato.anonymity.models import Model, Partition, Sensitive
    from sfumato.anonymity.plan import Plan
    from sfumato.anonymity.space import Space


def divide_tuples(
    plan: Plan,
    table: pa.Table,
    columns: Sequence[Quasi],
    tuples: Tuples,
    people: NDArray[np.int64],
    space: Space,
    *,
    tell: Callable[[str], None],
) -> Partition:
    """The classes that the plan's method finds; every model of the plan holds in each."""
    if plan.method == "relaxed":
        from sfumato.anonymity.relaxed import divide_relaxed

        return divide_relaxed(tuples, people, space, plan.k)
    if plan.method == "microaggregate":
        from sfumato.anonymity.microaggregate import microaggregate

        return microaggregate(tuples, people, columns, space, plan.k)
    models = _build_models(plan, table, tuples)
    if plan.method == "lattice":
        from sfumato.anonymity.lattice import find_optimum

        tell("looking for the best levels")
        return find_optimum(tuples, people, columns, plan.k, models, plan.max_suppressed, space.units)
    if models:
        from sfumato.anonymity.modelled import cut_with_models

        return cut_with_models(tuples, people, space, plan.k, models, tell)
    if plan.method == "local":
        return find_classes(tuples, people, space, k=plan.k, tell=tell)
    return cut_classes(tuples, people, space, k=plan.k, lowest=plan.method == "cuts")


def _build_models(plan: Plan, table: pa.Table, tuples: Tuples) -> Models:
    """What every class must be, of each sensitive column and of the individuals."""
    wanted = plan.wanted
    models: list[Model] = []
    sensitives = []
    if plan.individual is not None:
        models.append(DistinctL(plan.individual, plan.k))
        sensitives.append(_count(plan.individual, table, tuples))
    for name in plan.sensitive if wanted.needs_sensitive else ():
        sensitives.append(_count(name, table, tuples))
        if wanted.l is not None:
            models.append(DistinctL(name, wanted.l))
        if wanted.entropy_l is not None:
            models.append(EntropyL(name, wanted.entropy_l))
        if wanted.recursive is not None:
            models.append(RecursiveL(name, *wanted.recursive))
        if wanted.t is not None:
            distance = (
                wanted.distance if isinstance(wanted.distance, str) else wanted.distance.get(name, "equal")
            )
            if distance == "ordered" and is_text(table.column(name).type):
                raise AnonymityError(
                    f"column {name!r} is text, which has no order; use the equal distance, or store it as "
                    "numbers in their order"
                )
            models.append(Closeness(name, wanted.t, distance))
        if wanted.delta is not None:
            models.append(DeltaDisclosure(name, wanted.delta))
    return Models(tuple(models), tuple(sensitives))


def _count(name: str, table: pa.Table, tuples: Tuples) -> Sensitive:
    codes, _ = encode_values(name, table.column(name))
    return count_values(name, tuples.tuple_of_row, codes, tuples=tuples.size)
