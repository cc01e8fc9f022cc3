"""The engine of statements: sealed tables, aggregated as a checked query states."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import TYPE_CHECKING

import duckdb
import pyarrow as pa

from sfumato.core.engine.duckdb import DuckDBEngine
from sfumato.core.engine.encode import connect, connect_walled, escape_pattern, hide_failures, quote_name
from sfumato.core.engine.sealed import Sealed, clean_column, clean_schema, register_columns
from sfumato.core.errors import SfumatoError, SourceError, UnsupportedQuery, refuse
from sfumato.core.facts.table import PublicTable, Table

if TYPE_CHECKING:
    from sqlglot import exp

    from sfumato.core.algebra.measures import Checked, Query
    from sfumato.core.algebra.rows import Tables
    from sfumato.core.engine.aggregates import TrueAggregates


_PUBLIC_TEXT = 100_000


class StatementEngine(DuckDBEngine):
    """An engine that answers checked queries from sealed tables, and queries of public tables exactly."""

    _bound: tuple[Query, Tables, Checked] | None = None

    def column_types(self, table: Table) -> dict[str, pa.DataType]:
        """The types of the stored columns that a query may name, as statements see them; reads no record."""
        if table.unit.period is not None:
            raise UnsupportedQuery(
                f"table {table.name!r} protects {table.unit.name}, and statements are answered for whole "
                "individuals only; use a recipe, or describe the table with another unit in another project"
            )
        kept = frozenset(name.lower() for name in self.describe(table))
        schema = clean_schema(self._open(table, kept).schema)
        return {field.name: field.type for field in schema}

    def aggregate(self, query: Query, tables: Tables, *, progress: Callable[[str], None]) -> TrueAggregates:
        """The exact aggregates of a query, bounded as the described tables state, whoever planned it.

        Privacy: docs/proofs/algebra.md; what cannot be bounded is refused before a record is read.
        """
        return self.aggregate_checked(self.find_bound(query, tables), progress=progress)

    def aggregate_checked(self, checked: Checked, *, progress: Callable[[str], None]) -> TrueAggregates:
        """Returns the exact aggregates of a query that was bound."""
        from sfumato.core.engine.aggregates import count_aggregates

        hidden = hide_failures(f"the tables {', '.join(checked.shape.tables)}")
        with hidden, connect(plainly=True) as connection:
            sealed = self._open_tables(connection, checked, rows=True)
            progress("aggregating")
            return count_aggregates(connection, checked, sealed)

    def find_bound(self, query: Query, tables: Tables) -> Checked:
        """Returns what `bind` found of the query, if it was the last that was bound; else binds it now."""
        last, self._bound = self._bound, None
        known = last is not None and last[0] == query and last[1] == tables
        return last[2] if last is not None and known else self.bind(query, tables)

    def bind(self, query: Query, tables: Tables) -> Checked:
        """Checks a query, and refuses one that could only fail: it is run on sealed tables without a record.

        Nothing of people's records is read, so that whatever happens here may be told.
        """
        from sfumato.core.algebra.measures import check_query
        from sfumato.core.engine.aggregates import bind_aggregates, check_forms, check_joins

        query = deepcopy(query)  # whoever has its trees may write to them before they are read
        checked = check_query(query, tables)
        try:
            with connect(plainly=True) as connection:
                sealed = self._open_tables(connection, checked, rows=False)
                self._check_names(checked)
                check_forms(connection, checked)
                check_joins(connection, checked)
                bind_aggregates(connection, checked, sealed)
        except SfumatoError:
            raise
        except Exception as error:
            reason = (
                str(error).splitlines()[0].partition(" Error: ")[2] if isinstance(error, duckdb.Error) else ""
            )
            reason = reason[:200].rstrip(". ") or f"it cannot be computed ({type(error).__name__})"
            raise UnsupportedQuery(f"not answered: {reason}. Nothing was spent") from None
        self._bound = query, tables, checked
        return checked

    def _check_names(self, checked: Checked) -> None:
        """Refuses a union of tables that may spell one individual in two ways: each would be bounded."""
        from sfumato.core.algebra.rows import Union, walk_rows

        if not any(isinstance(each, Union) for each in walk_rows(checked.query.rows)):
            return
        tables = [each for name in checked.shape.private if isinstance(each := checked.tables[name], Table)]
        spelled = {table.name: self._describe_names(table) for table in tables}
        if len(set(spelled.values())) > 1:
            told = ", ".join(f"{name}: {spelling}" for name, spelling in spelled.items())
            raise refuse(
                f"UNION ALL of tables that store their units differently ({told}), so that one individual "
                "could have two names; store them alike, with one text_limit"
            )

    def _describe_names(self, table: Table) -> str:
        column = table.unit.column or ""
        kind, stored = self.describe(table).get(column, "text"), self.column_types(table).get(column)
        if kind == "text":
            # A longer name becomes a digest.
            return f"text of at most {table.text_limit} characters"
        if stored is not None and pa.types.is_decimal(stored):
            return f"decimals with {stored.scale} places"
        return kind

    def select(self, tree: exp.Query, tables: Mapping[str, PublicTable], *, rows: bool = True) -> pa.Table:
        """The exact answer to a query that reads public tables alone; without `rows`, its columns alone."""
        from sfumato.core.algebra.expressions import check_public

        text = tree.sql(dialect="duckdb")
        check_public(text, tables)
        try:
            views = {name: f"SELECT * FROM {self._scan_public(table)}" for name, table in tables.items()}
            files = [str(path) for table in tables.values() for path in self._find(table).paths]
            files += [escape_pattern(each) for each in files]  # which finds that file and no other
            with connect_walled(views, files) as connection:
                return connection.sql(text if rows else f"SELECT * FROM ({text}) LIMIT 0").to_arrow_table()
        except (duckdb.BinderException, duckdb.CatalogException, duckdb.ParserException) as error:
            raise refuse(str(error).splitlines()[0].partition(" Error: ")[2][:200].rstrip(". ")) from None
        except duckdb.Error as error:
            raise SourceError(
                f"the public tables could not be read: {str(error).splitlines()[0][:200]}"
            ) from None

    def _open_tables(
        self, connection: duckdb.DuckDBPyConnection, checked: Checked, *, rows: bool
    ) -> dict[str, Sealed]:
        """Makes relations of all tables that a query reads; without `rows`, private ones have no record."""
        from sfumato.core.engine.aggregates import names_in, open_sealed

        names = names_in(checked)
        opened = {}
        for name in dict.fromkeys(checked.shape.tables):
            table = checked.tables[name]
            if isinstance(table, PublicTable):
                register_columns(connection, name, self._read_public(table))
                continue
            sealed = self._seal(table, names) if rows else self._seal_nothing(table, names)
            open_sealed(connection, checked, table, sealed)
            opened[name] = sealed
        return opened

    def _read_public(self, table: PublicTable) -> pa.Table:
        """The rows of a public table, made plain as records are: what is compared with text is text."""
        kinds = self.describe(table)
        with connect() as connection:
            columns = [
                f"CAST({quote_name(each)} AS VARCHAR) AS {quote_name(each)}"
                if kind == "text"
                else quote_name(each)
                for each, kind in kinds.items()
            ]
            rows = connection.sql(
                f"SELECT {', '.join(columns)} FROM {self._scan_public(table)}"
            ).to_arrow_table()
        cleaned = {
            name: clean_column(rows[name].combine_chunks(), limit=_PUBLIC_TEXT) for name in rows.column_names
        }
        return pa.table(cleaned)
