"""The door of this package: a table goes in, and one that was judged comes out."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sfumato.anonymity.check import measure_anonymity
from sfumato.anonymity.files import decode_text, judge_table, refuse_target, write_judged
from sfumato.anonymity.plan import make_plan
from sfumato.anonymity.run import run_plan
from sfumato.anonymity.tables import give_back, read_table
from sfumato.errors import VerificationFailed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import pyarrow as pa

    from sfumato.anonymity.check import Anonymity
    from sfumato.anonymity.hierarchy_base import Hierarchy
    from sfumato.anonymity.measures import Distance
    from sfumato.anonymity.plan import Plan
    from sfumato.anonymity.run import Anonymized
    from sfumato.anonymity.tables import TableLike


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Released:
    """What came of a plan: the original columns, the released ones, and how anonymous they were found."""

    plan: Plan
    original: pa.Table
    made: Anonymized
    measured: Anonymity


def anonymize(
    table: TableLike,
    *,
    quasi_identifiers: Sequence[str] | str,
    k: int,
    sensitive: Sequence[str] | str | None = None,
    keep: Sequence[str] | str = (),
    identifiers: Sequence[str] | str = (),
    individual: str | None = None,
    hierarchies: Mapping[str, Hierarchy] | Path | str | None = None,
    method: str = "local",
    l: int | None = None,  # noqa: E741 - the field's word
    entropy_l: float | None = None,
    recursive: tuple[float, int] | None = None,
    t: float | None = None,
    distance: Distance | Mapping[str, Distance] = "equal",
    delta: float | None = None,
    register: TableLike | None = None,
    weights: Mapping[str, float] | None = None,
    max_suppressed: float = 0.0,
    max_suppressed_cells: float = 1.0,
    out: Path | str | None = None,
    force: bool = False,
    progress: Callable[[str], None] | None = None,
) -> TableLike:
    """The table with quasi-identifiers so coarse that every record is one of k that look the same.

    It is the kind of table it was given, in the order of its rows; with `out` it is the path of a file,
    whose rows are in the order of what they say. Only the named columns come out. This is not differential
    privacy: whoever knows more than the quasi-identifiers may still find people. docs/anonymity.md tells
    what the other arguments mean.

    >>> people = {"age": [61, 72, 40, 35], "postcode": ["1001", "1001", "6732", "6910"]}
    >>> anonymize(people, quasi_identifiers=["age", "postcode"], k=2)
    {'age': ['61-72', '61-72', '35-40', '35-40'], 'postcode': ['1001', '1001', '6732|6910', '6732|6910']}
    """
    plan = make_plan(
        quasi_identifiers=quasi_identifiers,
        k=k,
        sensitive=sensitive,
        keep=keep,
        identifiers=identifiers,
        individual=individual,
        hierarchies=hierarchies,
        method=method,
        l=l,
        entropy_l=entropy_l,
        recursive=recursive,
        t=t,
        distance=distance,
        delta=delta,
        k_map=register is not None,
        weights=weights,
        max_suppressed=max_suppressed,
        max_suppressed_cells=max_suppressed_cells,
    )
    released = release_table(table, plan, register=register, out=out, force=force, tell=progress)
    if out is not None:
        return Path(out) if isinstance(table, Path) else str(out) if isinstance(table, str) else Path(out)
    return give_back(decode_text(released.made.table), like=table)


def release_table(
    source: TableLike,
    plan: Plan,
    *,
    register: TableLike | None = None,
    out: Path | str | None = None,
    force: bool = False,
    tell: Callable[[str], None] | None = None,
) -> Released:
    """What came of the plan, judged; with `out`, it is the written file that was judged."""
    say = tell or (lambda _: None)
    path = None if out is None else refuse_target(out, force=force, apart=(source, register))
    say("reading the table")
    table = read_table(source, side="table", columns=(*plan.needed, *plan.identifiers))
    people = None
    if register is not None:
        people = read_table(register, side="register", columns=plan.quasi_identifiers)
    made = run_plan(table, plan, register=people, by_class=path is not None, tell=say)
    _judge_individuals(table, plan, made)
    say("checking what was written")
    if path is None:
        measured = judge_table(made.table, plan, register=people)
    else:
        measured = write_judged(made.table, path, plan, register=people, force=force)
    return Released(plan, table, made, measured)


def _judge_individuals(table: pa.Table, plan: Plan, made: Anonymized) -> None:
    """Raises VerificationFailed: who is behind a row is not in the file, so it is judged before."""
    if plan.individual is None:
        return
    owners = table.column(plan.individual).take(made.rows)
    named: Any = made.table.append_column(plan.individual, owners)
    measured = measure_anonymity(named, quasi_identifiers=plan.quasi_identifiers, individual=plan.individual)
    if measured.k < plan.k:
        raise VerificationFailed(
            f"the released table is not what was asked, and is not handed over: a class has {measured.k} "
            f"individuals, asked {plan.k}"
        )
