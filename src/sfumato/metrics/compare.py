"""Two tables compared: marginals, associations, classifiers, groups, samples, references."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sfumato.errors import MetricError
from sfumato.metrics.associations import Associations, measure_associations
from sfumato.metrics.downstream import Downstream, choose_targets, measure_downstream
from sfumato.metrics.encode import encode_pair
from sfumato.metrics.groups import Group, measure_groups
from sfumato.metrics.ladder import Ladder, deal_truth, measure_ladder
from sfumato.metrics.marginals import Marginals, measure_marginals
from sfumato.metrics.propensity import Propensity, measure_propensity

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sfumato.metrics.pair import CodedPair
    from sfumato.metrics.tables import TableLike
    from sfumato.schema import Table

INTERNAL = "INTERNAL: compares with the private records, not private, do not publish"
_GROUPS = 100
_MOST_TRIPLES = 1000
_MOST_RECORDS = 50_000
_FEWEST_RECORDS = 2000
_MOST_PRODUCTS = 30_000_000


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Comparison:
    """Everything that was compared. Made of the private records: internal, not for publication."""

    rows: tuple[float, float]
    columns: tuple[str, ...]
    marginals: Marginals
    associations: Associations
    propensity: Propensity | None
    downstream: tuple[Downstream, ...]
    groups: tuple[Group, ...]
    ladder: Ladder

    def __repr__(self) -> str:
        return f"Comparison(columns={self.columns}, internal)"

    def to_record(self) -> dict[str, Any]:
        """The comparison as a plain record, ready for JSON."""
        return {
            "internal": INTERNAL,
            "rows": {"truth": int(self.rows[0]), "release": _plain(self.rows[1])},
            "columns": list(self.columns),
            "marginals": self.marginals.to_record(),
            "associations": self.associations.to_record(),
            "propensity": None if self.propensity is None else self.propensity.to_record(),
            "downstream": [each.to_record() for each in self.downstream],
            "groups": [group.to_record() for group in self.groups[:_GROUPS]],
            "ladder": self.ladder.to_record(),
            "references": [reference.to_record() for reference in self.marginals.references],
            "seconds": None,
        }


def compare_tables(
    truth: TableLike,
    release: TableLike,
    *,
    columns: Sequence[str] | None = None,
    weight: str | None = None,
    target: str | None = None,
    unit: str | None = None,
    table: Table | None = None,
    seed: int = 0,
    most_triples: int = _MOST_TRIPLES,
    most_records: int = _MOST_RECORDS,
) -> Comparison:
    """How `release` differs from `truth`, for any two tables of categories or numbers.

    `weight` names the column of a histogram that counts records, `unit` the column of the truth that
    tells individuals apart, `target` a column that classifiers are to tell from the others (by
    default up to three with few values), `table` a description whose domains the columns have. All
    marginals are counted over all records; `most_triples` of three columns at most, and classifiers
    see `most_records` records at most (fewer of tables with many columns), drawn from the public `seed`.

    >>> people = {"sex": ["f", "m"] * 50, "area": ["n", "n", "s", "s"] * 25}
    >>> comparison = compare_tables(people, {"sex": ["f"] * 10, "area": ["n", "s"] * 5})
    >>> comparison.marginals.marginals[0].tvd, comparison.marginals.marginals[-1].tvd
    (0.5, 0.0)
    """
    pair = encode_pair(truth, release, table=table, columns=columns, weight=weight, unit=unit)
    return compare_pair(pair, target=target, seed=seed, most_triples=most_triples, most_records=most_records)


def compare_pair(
    pair: CodedPair,
    *,
    target: str | None = None,
    seed: int = 0,
    most_triples: int = _MOST_TRIPLES,
    most_records: int = _MOST_RECORDS,
    progress: Callable[[str], None] = lambda _: None,
) -> Comparison:
    """The comparison of two sides that are coded already."""
    if target is not None and target not in pair.columns:
        raise MetricError(f"no column {target!r} to tell from the others")
    # A regression's time grows with the square of the columns.
    affordable = max(_FEWEST_RECORDS, _MOST_PRODUCTS // len(pair.columns) ** 2)
    most_records = min(most_records, affordable)
    domain = [pair.sizes[name] for name in pair.columns]
    pair = pair.compact()
    deal = deal_truth(pair, seed=seed)
    progress("comparing marginals")
    marginals = measure_marginals(pair, deal.sample(0.5), domain=domain, seed=seed, most_triples=most_triples)
    progress("comparing associations and groups")
    associations = measure_associations(pair)
    groups = measure_groups(pair)
    ladder = measure_ladder(pair, deal, seed=seed)
    progress("training classifiers")
    targets = (target,) if target is not None else choose_targets(pair, associations)
    return Comparison(
        rows=(pair.truth.total, pair.release.total),
        columns=pair.columns,
        marginals=marginals,
        associations=associations,
        propensity=measure_propensity(pair, seed=seed, most_records=most_records),
        downstream=measure_downstream(pair, targets, seed=seed, most_records=most_records),
        groups=groups,
        ladder=ladder,
    )


def _plain(count: float) -> float | int:
    return int(count) if count == int(count) else count
