"""A release folder as a report sees it: the certificate, the columns, the table and the measurements."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sfumato.release.folder import failing_closed, open_folder
from sfumato.report.fields import Field, encode_column, read_fields
from sfumato.report.measured import Measured, read_measured
from sfumato.report.posterior import Total, read_total


@dataclass(frozen=True, kw_only=True, eq=False)
class Facts:
    """Everything a report is made of when the truth is not known."""

    name: str
    certificate: dict[str, Any]
    fields: tuple[Field, ...]
    table: pa.Table
    measured: tuple[Measured, ...]
    files: tuple[str, ...]

    @property
    def recipe(self) -> dict[str, Any]:
        """The recipe as a plain record."""
        return dict(self.certificate.get("plan", {}).get("recipe") or {})

    @property
    def kind(self) -> str:
        """The recipe's name."""
        return str(self.recipe.get("recipe", "unknown"))

    @property
    def source(self) -> str:
        """The name of the table that was described."""
        return str(next(iter(self.certificate.get("plan", {}).get("table") or {}), "table"))

    @property
    def unit(self) -> dict[str, Any]:
        """Whom the release protects, as a plain record."""
        return dict(self.certificate.get("unit") or {})

    @cached_property
    def total(self) -> Total:
        """What the release spent."""
        return read_total(self.certificate.get("total") or {})

    @property
    def delta(self) -> str:
        """The delta of the plan, as text."""
        return str(self.certificate.get("plan", {}).get("delta", "0"))

    @property
    def epsilons(self) -> tuple[str, ...]:
        """The epsilons of the plan, as text."""
        return tuple(str(each) for each in self.certificate.get("plan", {}).get("epsilons") or ())

    @property
    def notes(self) -> tuple[str, ...]:
        """What the release says should be known before it is used."""
        told = self.certificate.get("notes")
        return tuple(map(str, told)) if isinstance(told, list) else ()

    @property
    def best(self) -> str | None:
        """The largest epsilon of a release of several; None if there is one only."""
        if len(self.epsilons) < 2:
            return None
        return max(self.epsilons, key=_number)

    @property
    def described(self) -> frozenset[str]:
        """The released columns that the schema describes."""
        return frozenset(name for field in self.fields for name in field.released)

    @property
    def weight(self) -> str | None:
        """The column of counts, if the table has one row per cell."""
        return "count" if "count" in self.table.column_names and "count" not in self.described else None

    @property
    def has_epsilon(self) -> bool:
        """Whether the rows of several epsilons are told apart by a column."""
        return "epsilon" in self.table.column_names and "epsilon" not in self.described

    @property
    def shown(self) -> tuple[Field, ...]:
        """The described columns that the table holds."""
        held = set(self.table.column_names)
        return tuple(field for field in self.fields if set(field.released) <= held)

    def field(self, name: str) -> Field | None:
        """The described column `name`, if there is one."""
        return next((field for field in self.fields if field.name == name), None)

    @cached_property
    def _codes(self) -> dict[str, NDArray[np.int64]]:
        return {}

    @cached_property
    def _rows(self) -> tuple[NDArray[np.bool_] | None, NDArray[np.float64] | None]:
        """Which rows are of the best epsilon, and what each counts for; None for all and for one."""
        mine = None
        if self.has_epsilon and self.best is not None:
            values = self.table["epsilon"].to_numpy()
            mine = np.isclose(values, _number(self.best), rtol=1e-12)
        weights = None
        if self.weight is not None:
            weights = self.table[self.weight].cast(pa.float64()).to_numpy()
        return mine, weights

    def count(self, fields: tuple[Field, ...]) -> NDArray[np.float64]:
        """The released records in every combination of `fields`, at the best epsilon."""
        shape = tuple(field.size for field in fields)
        mine, weights = self._rows
        place = np.zeros(self.table.num_rows, np.int64)
        known = np.ones(self.table.num_rows, np.bool_) if mine is None else mine.copy()
        for field in fields:
            if field.name not in self._codes:
                self._codes[field.name] = encode_column(field, self.table)
            codes = self._codes[field.name]
            known &= codes >= 0
            place = place * field.size + codes
        counted = np.bincount(
            place[known],
            weights=None if weights is None else weights[known],
            minlength=int(np.prod(shape)),
        )
        return counted.reshape(shape).astype(np.float64)

    @cached_property
    def size(self) -> float:
        """The number of released records, at the best epsilon."""
        mine, weights = self._rows
        if weights is None:
            return float(self.table.num_rows if mine is None else mine.sum())
        return float((weights if mine is None else weights[mine]).sum())


def read_facts(folder: Path | str) -> Facts:
    """The release in `folder`, with every file held to the digest that the certificate states."""
    opened = open_folder(folder, wanted=("table.parquet", "measurements.parquet"))
    certificate = dict(opened.certificate)
    with failing_closed("certificate.json does not describe the table and its measurements"):
        spec: dict[str, Any] = next(iter((certificate["plan"].get("table") or {}).values()), {})
        fields = read_fields(spec.get("columns") or {}, certificate.get("public") or {})
        measured = read_measured(certificate, opened.table("measurements.parquet"))
    return Facts(
        name=opened.name,
        certificate=certificate,
        fields=fields,
        table=opened.table("table.parquet"),
        measured=measured,
        files=("certificate.json", *sorted(certificate["files"])),
    )


def _number(text: str) -> float:
    try:
        top, _, bottom = text.partition("/")
        return float(top) / float(bottom or 1)
    except (ValueError, ZeroDivisionError):
        return 0.0
