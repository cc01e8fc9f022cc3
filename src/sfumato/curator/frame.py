"""A table in memory as a project of its own: described in Python, answered as any other."""

from __future__ import annotations

import hashlib
import tempfile
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from sfumato.core.engine.encode import connect, hide_failures, quote_name, quote_text
from sfumato.core.errors import SchemaError
from sfumato.core.exact import format_short
from sfumato.core.facts.column import suggest_name
from sfumato.core.facts.project import parse_project
from sfumato.curator import Curator
from sfumato.tables.read import TableLike, read_table

if TYPE_CHECKING:
    from fractions import Fraction

    from numpy.typing import NDArray

_FILE = "frame.parquet"
# What numbers are written as where a column of them has become text, or floats.
_NUMBER = "^(-?)0*([0-9]+)([.]0*)?$"
_NUMERIC = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal)
_SAMPLED = 20_000  # individuals whose values are compared where their names are mere numbers
_ALIKE = 0.6  # of the values that two tables have of the same numbers, if these are the same people
_DENSE = 1.5  # whole numbers up to so many times their count name nobody: they are counted through


@dataclass(slots=True, kw_only=True)
class _Known:
    """Hashes by which a table is known again: of its people, of what stands beside them, and of its rows.

    `named` says whether names of people are more than numbers that are counted through. `cells` are of some
    of the people: of a name, a column and a value; `columns` are hashes of columns, one for each cell. `rows`
    are in order, and `times` says how often each is there.
    """

    named: bool
    people: NDArray[np.uint64]
    cells: NDArray[np.uint64]
    columns: NDArray[np.uint64]
    rows: NDArray[np.uint64]
    times: NDArray[np.int64]

    def meets(self, other: _Known) -> bool:
        """Whether both tables are of people in common, as far as can be told."""
        if self._has_rows_of(other) or other._has_rows_of(self):
            return True
        if not np.isin(self.people, other.people).any():
            return False
        if self.named or other.named:
            return True
        mine, others = (
            one.cells[np.isin(one.columns, two.columns)] for one, two in ((self, other), (other, self))
        )
        return bool(np.isin(mine, others).sum() > _ALIKE * min(mine.size, others.size))

    def covers(self, other: _Known) -> bool:
        """Whether this table has all people, or else all rows, of the other."""
        return (
            bool(np.isin(other.people, self.people).all()) if other.people.size else self._has_rows_of(other)
        )

    def _has_rows_of(self, other: _Known) -> bool:
        if not other.rows.size or other.rows.size > self.rows.size:
            return False
        places = np.minimum(np.searchsorted(self.rows, other.rows), self.rows.size - 1)
        return bool((self.rows[places] == other.rows).all() and (self.times[places] >= other.times).all())


@dataclass(slots=True)
class _Opened:
    """A budget that tables of this process were opened with, and what these are known by."""

    ledger: str
    budget: tuple[Fraction, Fraction]
    tables: list[_Known]


_opened: list[_Opened] = []
_opening = Lock()


def from_frame(
    frame: TableLike,
    *,
    unit: str,
    columns: Mapping[str, object],
    epsilon: object,
    delta: object = 0,
    max_records: int | str | None = None,
    name: str = "t",
    ledger: Path | str | None = None,
    **options: object,
) -> Curator:
    """The curator of a table in memory: a pandas or polars frame, an Arrow table, a mapping of columns.

    Args:
        frame: The records. A copy of them is kept in a folder that only this user can enter, and goes with
            this process.
        unit: The column that names the individual, or "row".
        columns: What each column may hold, known without looking at the records: a list of values, a pair
            (low, high) of bounds, a `range` of whole numbers, or the keys of the project file as a mapping.
        epsilon: The most that may ever be spent on these records.
        delta: The delta of that budget; zero leaves pure epsilon.
        max_records: The most records of one individual that count.
        name: What statements and recipes call the table.
        ledger: Where the budget is kept, whosever records they are. Without one it lives as long as this
            process, and is that of the table opened before, here, that has an individual in common with this
            one: in whatever order, with whatever columns and types, whoever else was added. Where individuals
            are only numbered through, most of their values must agree as well; with the unit "row", one table
            must have all rows of the other. What is not known again so, and a process that starts anew, is a
            second budget for the same people.
        **options: Further keys of a table in the project file, such as `neighbours`.

    Spends nothing. Warns, which is for the holder of the records alone, where another table has some of these
    people, and where rows are all there is to know them by.

    >>> import sfumato as sf
    >>> visits = {"person": ["ana", "ana", "ben"], "clinic": ["North", "South", "North"]}
    >>> curator = sf.from_frame(
    ...     visits, unit="person", max_records=2, columns={"clinic": ["North", "South"]}, epsilon=1.0
    ... )
    >>> curator.describe("DP-SELECT 0.5 COUNT(*) AS visits FROM t").columns[0][0]
    'visits'
    >>> curator.budget().left
    1

    """
    if isinstance(frame, (str, Path)):
        raise SchemaError("from_frame takes a table in memory; describe a file in sfumato.toml and open that")
    description: dict[str, Any] = {
        "source": _FILE,
        "unit": unit,
        **({} if max_records is None else {"max_records": max_records}),
        **options,
        "columns": {str(key): _describe_column(key, each) for key, each in columns.items()},
    }
    folder, records = _keep_records(frame, unit=unit)
    # With a ledger of its own nobody asks whose records they are.
    known = _hash_records(records, unit) if ledger is None else None
    with _opening:
        opened = None if known is None else _find_opened(known)
        place = str(folder / "ledger.db" if ledger is None else ledger) if opened is None else opened.ledger
        document = {
            "budget": {
                "epsilon": epsilon,
                "delta": delta,
                "ledger": place if "://" in place else str(Path(place).absolute()),
            },
            "tables": {name: description},
        }
        curator = Curator(parse_project(document, folder=folder), file="sf.from_frame")
        stored = curator.describe_table(name)
        described = curator.project.table(name).columns.values()
        missing = [(each.name, part) for each in described for part in each.stored if part not in stored]
        if missing:
            column, part = missing[0]
            raise SchemaError(
                f"column {column!r}: the table has no plain column {part!r}{suggest_name(part, stored)}"
            )
        budget = curator.project.epsilon, curator.project.delta
        if opened is not None and opened.budget != budget:
            stated = " and delta ".join(map(format_short, opened.budget))
            raise SchemaError(
                f"people of this table were opened before, with a budget of epsilon {stated}: state the "
                'same, or if these are others, a ledger of their own: ledger="other.db"'
            )
        if known is None or (opened is not None and any(each.covers(known) for each in opened.tables)):
            return curator
        if opened is not None:
            warnings.warn(
                "people of this table were opened before in this process: one budget is for both. If these "
                'are others, or draws of made-up people, name a ledger of their own: ledger="other.db"',
                stacklevel=2,
            )
            opened.tables.append(known)
        else:
            _opened.append(_Opened(place, budget, [known]))
            if unit == "row":
                warnings.warn(
                    "rows are known again in this process by what stands in them, not people: with another "
                    "column, or after a restart, they have a second budget. Name one that stays: "
                    'ledger="ledger.db"',
                    stacklevel=2,
                )
    return curator


def _find_opened(known: _Known) -> _Opened | None:
    """The budget of this process that people of a table were opened with before."""
    found = [each for each in _opened if any(known.meets(table) for table in each.tables)]
    if len(found) > 1:
        raise SchemaError(
            "people of this table stand in tables that were opened apart, each with a budget of its own: "
            'open the table that has all of them first, or name a ledger: ledger="study.db"'
        )
    return found[0] if found else None


def _describe_column(name: str, given: object) -> dict[str, Any]:
    """The keys of the project file for a column that is described in Python's own words."""
    if isinstance(given, Mapping):
        return dict(given)
    if isinstance(given, range):
        if given.step != 1 or not given:
            raise SchemaError(f"column {name!r}: a range of whole numbers goes up by one; list other values")
        return {"range": [given.start, given.stop - 1]}
    if isinstance(given, tuple):
        if len(given) != 2:
            raise SchemaError(f"column {name!r}: a pair is (low, high); values stand in a list")
        return {"bounds": [_plain(end) for end in given]}
    if isinstance(given, (str, bytes)) or not hasattr(given, "__iter__"):
        raise SchemaError(
            f"column {name!r}: give a list of values, a pair of bounds, a range, or a mapping such as "
            '{"bins": [0, 10, 50]}'
        )
    return {"values": [_plain(each) for each in given]}


def _plain(value: Any) -> object:  # noqa: ANN401 - a scalar of Python or numpy
    return value.item() if hasattr(value, "item") else value


def _keep_records(frame: TableLike, *, unit: object) -> tuple[Path, pa.Table]:
    """The folder with the records as a file, one for equal records, and what is in it."""
    records = read_table(frame, side="frame").replace_schema_metadata()
    if unit in records.column_names and pa.types.is_floating(records[unit].type):
        # pandas makes floats of whole numbers where one is missing. As texts they can be told apart.
        numbers = pc.add(records[unit], 0.0)  # one zero, not two
        names = pc.if_else(pc.is_nan(numbers), None, numbers.cast(pa.string()))
        records = records.set_column(records.column_names.index(unit), unit, names)
    root = Path(_make_folder().name)
    with tempfile.TemporaryDirectory(dir=root) as draft:
        path = Path(draft) / _FILE
        pq.write_table(records, path, compression="lz4", write_statistics=False)
        with path.open("rb") as written:
            folder = root / f"sha256-{hashlib.file_digest(written, 'sha256').hexdigest()}"
        if not (folder / _FILE).exists():
            folder.mkdir(exist_ok=True)
            path.rename(folder / _FILE)
    return folder, records


def _hash_records(records: pa.Table, unit: object) -> _Known:
    """What a table is known by again, whatever the types of its columns and the order of its records."""
    values = {
        each.name: f"CAST({quote_name(each.name)} AS "
        f"{'DOUBLE' if any(test(each.type) for test in _NUMERIC) else 'VARCHAR'})"
        for each in sorted(records.schema, key=lambda field: field.name)
        # Two types that DuckDB does not know, and that name nobody.
        if not (pa.types.is_float16(each.type) or pa.types.is_decimal256(each.type))
    }
    if isinstance(unit, list):
        unit = unit[0]  # of a unit over time, the individuals
    nobody: NDArray[np.uint64] = np.empty(0, np.uint64)
    if not values:
        times = np.empty(0, np.int64)
        return _Known(named=False, people=nobody, cells=nobody, columns=nobody, rows=nobody, times=times)
    row = ", ".join(f"{quote_text(name)}, {value}" for name, value in values.items())
    with hide_failures("the table"), connect() as connection:
        connection.register("records", records.select(list(values)))

        def fetch(query: str) -> list[NDArray[Any]]:
            return [np.asarray(each) for each in connection.sql(query).fetchnumpy().values()]

        named, people, cells, columns = False, nobody, nobody, nobody
        where = ""
        if isinstance(unit, str) and unit in values:
            own = quote_name(unit)
            where = f"WHERE {own} IS NOT NULL"  # rows of nobody are left out
            text = f"regexp_replace(trim(CAST({own} AS VARCHAR)), '{_NUMBER}', '\\1\\2')"
            connection.execute(
                f"CREATE TEMP TABLE names AS SELECT {own} AS name, {text} AS text, hash({text}) AS h "
                f"FROM (SELECT DISTINCT {own} FROM records {where})"
            )
            (people,) = fetch("SELECT DISTINCT h FROM names")
            ((most, numbers),) = connection.execute(
                "SELECT max(abs(TRY_CAST(text AS BIGINT))), count(TRY_CAST(text AS BIGINT)) FROM names"
            ).fetchall()
            named = numbers < people.size or most > _DENSE * people.size + 1
            others = [(quote_text(name), value) for name, value in values.items() if name != unit]
            if others and not named:
                kept = "SELECT hash({0}) AS c, hash(h, {0}, {1}) AS v FROM records JOIN sampled ON {2} = name"
                connection.execute(f"CREATE TEMP TABLE sampled AS FROM names ORDER BY h LIMIT {_SAMPLED}")
                columns, cells = fetch(
                    "SELECT DISTINCT c, v FROM ("
                    + " UNION ALL ".join(kept.format(name, value, own) for name, value in others)
                    + ")"
                )
        rows, times = fetch(
            f"SELECT hash({row}) AS h, count(*) AS n FROM records {where} GROUP BY h ORDER BY h"
        )
    return _Known(named=named, people=people, cells=cells, columns=columns, rows=rows, times=times)


@cache
def _make_folder() -> tempfile.TemporaryDirectory[str]:
    """A folder that only this user may enter, removed when the process ends."""
    return tempfile.TemporaryDirectory(prefix="sfumato-")
