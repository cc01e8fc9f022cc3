"""Parts of the individuals of a table: by a public digest of each, or by the period that each is of.

Proof that parts compose in parallel: docs/proofs/parallel.md, and of windows: docs/proofs/renewal.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from sfumato.core.errors import SchemaError
from sfumato.core.exact import format_exact

SALT = "sfumato split 1"
"""What every digest begins with; public. Another one would be another split."""
_DIGESTS = 2**32


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """The individuals whose digest, as a share of all digests, is at least `low` and below `high`.

    The digest of an individual is that of its name. Where every row is an individual, it is that of the codes
    of the record in `columns` and of its number among the records that have the same: equal records are
    interchangeable, so one more of them puts one more record into one part, and moves no other.

    >>> Part(name="held out", low=Fraction(4, 5), high=Fraction(1)).first
    'cccccccc'
    """

    name: str
    low: Fraction
    high: Fraction
    columns: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not 0 <= self.low < self.high <= 1:
            raise SchemaError(f"part {self.name!r} must begin at a share from 0 on, and end at one up to 1")

    @property
    def first(self) -> str:
        """The first eight digits of the least digest that is in it."""
        return f"{int(self.low * _DIGESTS):08x}"

    @property
    def beyond(self) -> str | None:
        """The first eight digits of the least digest beyond it; None if all others are in it."""
        return None if self.high == 1 else f"{int(self.high * _DIGESTS):08x}"

    @property
    def share(self) -> Fraction:
        """The share of people who are expected in it."""
        return self.high - self.low

    def meets(self, other: Part) -> bool:
        """Whether an individual may be in both: other columns are another split."""
        return self.columns != other.columns or (self.low < other.high and other.low < self.high)

    def to_record(self) -> dict[str, Any]:
        """The part as a plain record."""
        return {"name": self.name, "from": format_exact(self.low), "to": format_exact(self.high)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """The periods that are read of a table whose individuals are each of one period; all others are not.

    `axis` names the table and says what its periods are, without saying how many there are: within one axis a
    record has one period, whatever is listed. Periods are named by their labels.

    >>> Window(axis="month of incidents", periods=frozenset(["2025-01"])).to_record()
    {'axis': 'month of incidents', 'periods': ['2025-01']}
    """

    axis: str
    periods: frozenset[str]

    def to_record(self) -> dict[str, Any]:
        """The window as a plain record."""
        return {"axis": self.axis, "periods": sorted(self.periods)}

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> Window:
        """The window that `to_record` wrote."""
        window = cls(axis=str(record["axis"]), periods=frozenset(map(str, record["periods"])))
        if not window.periods or window.to_record() != dict(record):
            raise SchemaError("a recorded window has an axis, and at least one period in order")
        return window
