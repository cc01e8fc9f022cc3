"""What is asked of a table, and what a measured table lacks of it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sfumato.errors import AnonymityError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sfumato.anonymity.check import Anonymity
    from sfumato.anonymity.measures import Distance, Diversity

_ROUNDING = 1e-9
"""Entropies and distances are sums of floats: a shortfall smaller than this is one of rounding."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """The least that a table must have; what is None is not asked.

    `recursive` is the pair (c, l), `t` is measured by `distance`, and `delta` bounds delta-disclosure.
    """

    k: int
    l: int | None = None  # noqa: E741 - the field's word
    entropy_l: float | None = None
    recursive: tuple[float, int] | None = None
    t: float | None = None
    distance: Distance | Mapping[str, Distance] = "equal"
    delta: float | None = None
    k_map: int | None = None

    def __post_init__(self) -> None:
        for name in ("k", "l", "k_map"):
            _require_count(getattr(self, name), name)
        _require(self.entropy_l is None or self.entropy_l >= 1, "entropy l must be at least 1")
        _require(self.t is None or 0 <= self.t <= 1, "t must be from 0 to 1")
        _require(self.delta is None or self.delta > 0, "delta must be above 0")
        if self.recursive is not None:
            c, number = self.recursive
            _require(c > 0 and math.isfinite(c), "c of recursive diversity must be above 0")
            _require_count(number, "l of recursive diversity")

    @property
    def needs_sensitive(self) -> bool:
        """Whether anything is asked of sensitive columns."""
        return any(each is not None for each in (self.l, self.entropy_l, self.recursive, self.t, self.delta))


def find_shortfalls(measured: Anonymity, wanted: Wanted) -> tuple[str, ...]:
    """What `measured` lacks of what is `wanted`, in words; empty if nothing.

    A table without records lacks everything.

    >>> from sfumato.anonymity.check import measure_anonymity
    >>> found = measure_anonymity({"age": [61, 61, 33]}, quasi_identifiers=["age"])
    >>> find_shortfalls(found, Wanted(k=2))
    ('k is 1, asked 2',)
    """
    if wanted.needs_sensitive and not measured.by_column:
        raise AnonymityError(
            "diversity or closeness is asked for, but no sensitive column was measured; name one"
        )
    if wanted.k_map is not None and measured.k_map is None:
        raise AnonymityError("k-map is asked for, but no register was measured with; give one")
    if not measured.records:
        return ("the table has no records",)
    found = []
    if measured.k < wanted.k:
        found.append(f"k is {measured.k}, asked {wanted.k}")
    if wanted.k_map is not None and measured.k_map is not None and measured.k_map < wanted.k_map:
        hint = " (labels that the register cannot be matched with? groups can be `spelled`)"
        found.append(f"k-map is {measured.k_map}, asked {wanted.k_map}{'' if measured.k_map else hint}")
    for each in measured.by_column.values():
        found += [f"{fault} (column {each.column!r})" for fault in _find_faults(each, wanted)]
    return tuple(found)


def _find_faults(measured: Diversity, wanted: Wanted) -> Iterator[str]:
    if wanted.l is not None and measured.l < wanted.l:
        yield f"l is {measured.l}, asked {wanted.l}"
    if wanted.entropy_l is not None and measured.entropy_l < wanted.entropy_l * (1 - _ROUNDING):
        yield f"entropy l is {measured.entropy_l:.6g}, asked {wanted.entropy_l:g}"
    if wanted.recursive is not None and not measured.is_recursive(*wanted.recursive):
        yield "recursive ({:g}, {})-diversity does not hold".format(*wanted.recursive)
    if wanted.t is not None:
        _require_distance(measured, wanted)
        if measured.t > wanted.t + _ROUNDING:
            yield f"t is {measured.t:.6g}, asked {wanted.t:g}"
    if wanted.delta is not None and measured.delta_disclosure >= wanted.delta:
        yield f"delta is {measured.delta_disclosure:.6g}, asked below {wanted.delta:g}"


def _require_distance(measured: Diversity, wanted: Wanted) -> None:
    asked = wanted.distance
    if isinstance(asked, Mapping):
        asked = asked.get(measured.column, "equal")
    message = f"t of column {measured.column!r} is asked by the {asked} distance, but measured by another"
    _require(asked == measured.distance, message)


def _require_count(number: int | None, name: str) -> None:
    fine = number is None or (isinstance(number, int) and not isinstance(number, bool) and number >= 1)
    _require(fine, f"{name} must be a whole number of at least 1")


def _require(fine: bool, message: str) -> None:  # noqa: FBT001 - read as a sentence
    if not fine:
        raise AnonymityError(message)
