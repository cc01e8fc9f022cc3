"""What is protected: one individual, and how two neighbouring tables differ."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from sfumato.errors import SchemaError

Neighbours = Literal["add-remove", "replace"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PrivacyUnit:
    """One individual: the column that names them (None: every row is one), and their bound.

    Two tables are neighbours if one individual's records, all of them, are added or removed
    (`add-remove`) or exchanged for any other records (`replace`).

    >>> PrivacyUnit(column="resident", max_records=20).describe()
    'resident, at most 20 records, add-remove'
    """

    column: str | None
    max_records: int
    neighbours: Neighbours = "add-remove"
    max_groups: int | None = None

    def __post_init__(self) -> None:
        if self.neighbours not in ("add-remove", "replace"):
            raise SchemaError(f"neighbours must be 'add-remove' or 'replace', got {self.neighbours!r}")
        if isinstance(self.max_records, bool) or not isinstance(self.max_records, int):
            raise SchemaError("max_records must be a whole number")
        if not 1 <= self.max_records <= 10**9:
            raise SchemaError(f"max_records must lie between 1 and 10^9, got {self.max_records}")
        if self.max_groups is not None and (
            isinstance(self.max_groups, bool) or not isinstance(self.max_groups, int) or self.max_groups < 1
        ):
            raise SchemaError("max_groups must be a whole number above zero")
        if self.column is None and self.max_records != 1:
            raise SchemaError("with unit = 'row' every row is an individual, so max_records must be 1")

    def describe(self) -> str:
        """The unit in one line."""
        name = self.column or "row"
        records = "1 record" if self.max_records == 1 else f"at most {self.max_records} records"
        return f"{name}, {records}, {self.neighbours}"
