"""A clinic of invented people to ask about: its records, its project file, its own ledger, and one target."""

from __future__ import annotations

import json
import math
from collections import Counter
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from sfumato.attack.town import DIAGNOSES, POSTCODES, invent_town
from sfumato.curator import Curator, open_project
from sfumato.errors import AttackError
from sfumato.exact import ExactLike, format_exact, parse_positive

if TYPE_CHECKING:
    from pathlib import Path

SECRET = "cancer"
_YEAR = 2010
_MOST = 200
"""The most statements that a demonstration asks and pays for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """A noisy count with its interval of 95 %, and what was charged for it."""

    value: int
    low: int
    high: int
    spent: Fraction
    repeated: bool

    def to_record(self) -> dict[str, object]:
        """The reply for JSON."""
        return {
            "value": self.value,
            "low": self.low,
            "high": self.high,
            "spent": format_exact(self.spent),
            "repeated": self.repeated,
        }


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Clinic:
    """The curator of an invented clinic, and the condition that fits one of its patients only."""

    curator: Curator
    file: Path
    epsilon: Fraction
    budget: Fraction
    target: str

    def count(self, condition: str) -> int:
        """The exact number of records, as a plain database tells it."""
        query = f"SELECT COUNT(*) FROM read_parquet(?) WHERE {condition}"
        with duckdb.connect() as connection:
            found = connection.execute(query, [str(self.file)]).fetchone()
        return 0 if found is None else int(found[0])

    def ask(self, condition: str) -> Reply:
        """The noisy number of records, charged to the ledger of the clinic."""
        text = f"DP-SELECT {format_exact(self.epsilon)} COUNT(*) AS n FROM patients WHERE {condition}"
        answer = self.curator.sql(text)
        (row,) = answer.table.to_pylist()
        return Reply(
            value=row["n"],
            low=row["n_low"],
            high=row["n_high"],
            spent=answer.spent,
            repeated=answer.repeated,
        )


def open_clinic(
    folder: Path, *, epsilon: ExactLike, budget: ExactLike, people: int = 2000, least: int = 1
) -> Clinic:
    """A clinic written to `folder`, which asks `epsilon` for a count and has `budget` to spend in all.

    The budget must pay for `least` counts.

    >>> import tempfile
    >>> from pathlib import Path
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     clinic = open_clinic(Path(folder), epsilon="0.1", budget=1)
    ...     clinic.count(clinic.target)
    1
    """
    each = parse_positive(epsilon, name="epsilon")
    total = parse_positive(budget, name="budget")
    if not least <= total / each <= _MOST:
        raise AttackError(
            f"the budget must pay for at least {least} and at most {_MOST} counts of this epsilon"
        )
    patients = invent_town(people).patients
    ages = [_YEAR - int(birthday[:4]) for birthday in patients["birthday"].to_pylist()]
    table = patients.drop_columns(["birthday"]).append_column("age", pa.array(ages))
    target = _find_target(table)
    file = folder / "patients.parquet"
    pq.write_table(table, file)
    project = folder / "sfumato.toml"
    text = _PROJECT.format(
        epsilon=format_exact(total), postcodes=json.dumps(POSTCODES), diagnoses=json.dumps(DIAGNOSES)
    )
    project.write_text(text, encoding="utf-8")
    return Clinic(curator=open_project(project), file=file, epsilon=each, budget=total, target=target)


def noise_deviation(epsilon: Fraction) -> float:
    """The standard deviation of the noise of a count at `epsilon`, one record per person.

    >>> round(noise_deviation(Fraction(1, 10)), 2)
    14.14
    """
    # Discrete Laplace noise with q = e^-epsilon has variance 2 q / (1 - q)^2.
    return math.sqrt(2 * math.exp(-float(epsilon))) / -math.expm1(-float(epsilon))


def _find_target(table: pa.Table) -> str:
    rows = table.select(["age", "postcode", "sex", "diagnosis"]).to_pylist()
    seen = Counter((row["age"], row["postcode"], row["sex"]) for row in rows)
    for row in rows:
        if row["diagnosis"] == SECRET and seen[row["age"], row["postcode"], row["sex"]] == 1:
            return f"age = {row['age']} AND postcode = '{row['postcode']}' AND sex = '{row['sex']}'"
    raise AttackError("nobody in so small a clinic can be singled out; take more people")


_PROJECT = """
[budget]
epsilon = {epsilon}

[tables.patients]
source = "patients.parquet"
unit = "name"
max_records = 1

[tables.patients.columns.age]
range = [0, 99]
[tables.patients.columns.postcode]
values = {postcodes}
[tables.patients.columns.sex]
values = ["f", "m"]
[tables.patients.columns.diagnosis]
values = {diagnoses}
"""
