"""Exact bounded counts of files, with DuckDB embedded.

A source is sealed once: read in order, each record made plain and encoded by itself. Everything is counted
from that. numpy counts codes as they stream by, all marginals in one pass. Only individuals over their
bound take the slower road through a window.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from threading import Lock, RLock
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa

from sfumato.core.engine.arrays import to_numpy
from sfumato.core.engine.base import (
    Fetched,
    TrueCounts,
    all_columns,
    check_columns,
    describe_columns,
    described_names,
    name_source,
    refuse_large_marginals,
    sign_version,
)
from sfumato.core.engine.bounded import (
    BoundedCodes,
    bounded_queries,
    count_individuals,
    create_encoded,
    join_codes,
    list_codes,
    read_codes,
    read_columns,
    restrict_sealed,
    sum_residuals,
)
from sfumato.core.engine.chain import check_order, family_names, follow_reference, link_records
from sfumato.core.engine.counts import CountingEngine, OccupiedTally, Tally, number_table, render
from sfumato.core.engine.encode import (
    connect,
    encode_column,
    escape_pattern,
    hide_failures,
    quote_text,
    sql_kind,
    value_list,
)
from sfumato.core.engine.sealed import (
    NUMBER,
    Sealed,
    load_sealed,
    needed_columns,
    save_sealed,
    seal_table,
)
from sfumato.core.engine.source import FileSource, file_facts, find_files, sign_contents
from sfumato.core.errors import SourceError
from sfumato.core.exact import digest
from sfumato.core.facts.table import (
    UNIT,
    PrivacyUnit,
    PublicTable,
    Table,
    table_spec,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from sfumato.core.engine.counts import Ask, Beside
    from sfumato.core.engine.gradients import TrueRecords
    from sfumato.core.facts.part import Part
    from sfumato.core.facts.table import Family
    from sfumato.core.questions.counts import IndividualCounts
    from sfumato.core.questions.question import Adder, Question
    from sfumato.core.questions.residuals import Residuals
    from sfumato.core.questions.series import Period, RunningSums

_MOST_KEPT = 2**29  # bytes of codes that are kept for the next sums of residuals
_MOST_EMPTIED = 64
_MOST_CHUNKS = 32
_SEALING = "sealing 2"  # changes with how records are made plain, so that what is kept is made anew


class DuckDBEngine(CountingEngine):
    """An engine over Parquet, CSV and CSV.gz files, looked up from one folder."""

    crowds = False  # all that is sealed is here, in far fewer records

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._sealed: dict[str, tuple[str, Sealed]] = {}
        self._sealing = RLock()
        self._signed: dict[str, str] = {}
        self._signing: dict[str, Lock] = {}
        self._emptied: dict[tuple[frozenset[str], str], tuple[Any, Sealed]] = {}
        self._described: tuple[Table, str] | None = None
        self._logged: tuple[str, tuple[str, ...], pa.Table] | None = None
        self._bounded: tuple[Table, tuple[str, ...], Sealed, BoundedCodes] | None = None
        self._whole: tuple[Table, Table] | None = None
        self._parts: dict[Part, tuple[Sealed, Sealed]] = {}
        self._linked: tuple[Family, Sealed, Sealed | None, Sealed] | None = None

    def snapshot(self, table: Table) -> AbstractContextManager[None]:
        """Files have none: that a file did not change while it was read is seen when it is sealed."""
        return nullcontext()

    def check(self, table: Table, marginals: tuple[tuple[str, ...], ...]) -> None:
        """Raises an error that names the table, the column and the remedy. Reads no record."""
        refuse_large_marginals(table, marginals)
        if table.family is not None:
            self._check_family(table, table.family)
            return
        if table.unit.period is not None:
            marginals = (*marginals, (table.unit.period,))
        source, stored = self._find(table), self._open(table, frozenset()).columns
        columns = check_columns(
            table,
            marginals,
            stored,
            where=name_source(table),
            other="has a nested or binary type; leave it out",
            # A text file without a header line would show its first record here.
            listed=source.format != "csv",
        )
        for column in columns:
            encode_column(table.column(column), stored, list_type="unused")
            if source.format == "csv" and "" in (value_list(table.column(column)) or ()):
                raise SourceError(
                    f"table {table.name!r}: column {column!r} lists an empty text, but an empty field of a "
                    'text file is a missing value; leave it out, and count it as one: missing_label = "none"'
                )
        try:
            # The very same encoding, of no record: what can be known to fail is known before a charge.
            seal_fetched(table, self._open(table, list_codes(columns)), list_codes(columns), rows=False)
        except duckdb.Error as error:
            raise SourceError(
                f"{name_source(table)} cannot be encoded: {str(error).splitlines()[0][:200]}"
            ) from None

    def version(self, table: Table | PublicTable, *, secret: bytes) -> str:
        """A keyed digest of what the files hold, and those of the tables that its references lead to."""
        kept_in = self._folder / ".sfumato" / f"{sign_version(table.name, secret=secret)[:16]}.json"
        with self._signing.setdefault(table.name, Lock()):  # who asks meanwhile finds what was read
            facts = sign_contents(self._find(table), secret=secret, known=self._signed, kept_in=kept_in)
        if isinstance(table, Table) and table.reference is not None:
            facts += "\n" + self.version(table.reference.table, secret=secret)
        return sign_version(facts, secret=secret)

    def _count_cells(
        self,
        table: Table,
        marginals: tuple[tuple[str, ...], ...],
        occupied: tuple[tuple[str, ...], ...],
        progress: Callable[[str], None],
    ) -> tuple[TrueCounts, ...]:
        columns = all_columns((*marginals, *occupied))
        tallies: list[Tally | OccupiedTally] = [Tally(table, marginal) for marginal in marginals]
        tallies += [OccupiedTally(table, marginal) for marginal in occupied]
        self._tally_records(table, columns, tallies, progress)
        return tuple(tally.finish() for tally in tallies)

    def _add_streamed(
        self, table: Table, questions: tuple[Question, ...], progress: Callable[[str], None]
    ) -> tuple[TrueCounts, ...]:
        tallies = [question.start(table) for question in questions]
        self._tally_records(table, questions[0].columns, tallies, progress)
        return tuple(TrueCounts(questions[0].columns, tally.finish()) for tally in tallies)

    def _tally_records(
        self,
        table: Table,
        columns: tuple[str, ...],
        tallies: Sequence[Tally | OccupiedTally | Adder],
        progress: Callable[[str], None],
    ) -> None:
        """Shows the codes of every bounded record to every tally."""
        with hide_failures(name_source(table)), connect() as connection:
            sealed = self._seal(table, list_codes(columns))
            progress("bounding contributions")
            queries = bounded_queries(connection, table, columns, sealed)
            progress("counting")
            for query in queries:
                for codes, weights, rows in read_codes(connection, query, columns):
                    for tally in tallies:
                        tally.add(codes, weights, rows=rows)

    @contextmanager
    def _ask(self, table: Table, columns: tuple[str, ...]) -> Iterator[Ask]:
        with hide_failures(name_source(table)), connect() as connection:
            sealed = self._seal(table, list_codes(columns))
            create_encoded(connection, sealed.everything, columns, unit=NUMBER, complete=False)

            def ask(query: str, beside: Beside) -> list[list[NDArray[Any]]]:
                for name, numbers in beside.items():
                    connection.register(name, number_table(numbers))
                return [read_columns(connection, render(query, dialect="duckdb"))]

            yield ask

    def _count_individuals(
        self, table: Table, question: IndividualCounts, progress: Callable[[str], None]
    ) -> TrueCounts:
        with hide_failures(name_source(table)), connect() as connection:
            sealed = self._seal(table, list_codes(question.columns) | {UNIT})
            unit = None if table.unit.column is None else UNIT
            create_encoded(connection, sealed.everything, question.columns, unit=unit)
            progress("counting individuals")
            return count_individuals(connection, table, question)

    def _sum_residuals(
        self, table: Table, question: Residuals, progress: Callable[[str], None]
    ) -> TrueCounts:
        with hide_failures(name_source(table)):
            sealed = self._seal(table, list_codes(question.known))
            with self._sealing:
                known = self._bounded
            # A recipe asks again and again of the same records, so their codes are kept while they fit.
            if known is not None and known[0] is table and known[1] == question.known and known[2] is sealed:
                return sum_residuals(question, table, (known[3],))
            progress("bounding contributions")
            with connect() as connection:
                read = [
                    each
                    for query in bounded_queries(connection, table, question.known, sealed)
                    for each in read_codes(connection, query, question.known)
                ]
            bounded = join_codes(table, question.known, read)
            if bounded.nbytes <= _MOST_KEPT:
                with self._sealing:
                    self._bounded = (table, question.known, sealed, bounded)
            return sum_residuals(question, table, (bounded,))

    def read_records(
        self, table: Table, columns: tuple[str, ...], *, progress: Callable[[str], None]
    ) -> TrueRecords:
        """The codes of all records that have every one of `columns`, each individual's together.

        Of a table on a server the stored columns are fetched and encoded here, as for statements.
        """
        from sfumato.core.engine.gradients import TrueRecords

        with hide_failures(name_source(table)), connect() as connection:
            sealed = self._seal(table, list_codes(columns))
            progress("reading codes")
            unit = None if table.unit.column is None else NUMBER
            # Whoever has more records than may count is held by the norm, so nothing is cut off.
            create_encoded(connection, sealed.everything, columns, unit=unit)
            found = connection.sql("SELECT * FROM encoded").to_arrow_table()
            arrays = [to_numpy(each.combine_chunks()) for each in found.columns]
        numbers = None if unit is None else arrays.pop(0)
        return TrueRecords(dict(zip(columns, arrays, strict=True)), numbers)

    def check_arrivals(self, stream: str, entries: tuple[str, ...]) -> None:
        """Raises an error if what counted in earlier periods is not kept, as under the charges `entries`."""
        self._load_log(stream, entries)

    def sum_arrivals(
        self, table: Table, question: RunningSums, *, until: Period, progress: Callable[[str], None]
    ) -> TrueCounts:
        """The weighted sums of all that arrived up to a period, of which what is new is kept from now on.

        Individuals are kept under digests with the period's secret. Of a table on a server the stored columns
        are fetched and encoded here, as for statements.

        Privacy: one individual has at most max_records arrivals in all periods (docs/proofs/running.md).
        """
        from sfumato.core.engine.arrivals import find_arrivals, save_arrivals, sum_log

        period = len(until.entries) - 1
        with hide_failures(name_source(table)), connect() as connection:
            log = self._load_log(until.stream, until.entries[:-1])
            unit = None if table.unit.column is None else UNIT
            sealed = self._seal(table, list_codes(question.columns) | ({UNIT} if unit else set()))
            create_encoded(connection, sealed.everything, question.columns, unit=unit)
            progress("bounding contributions")
            arrived = find_arrivals(connection, table, question, log, period=period, secret=until.secret)
            save_arrivals(self._folder, until.stream, period, arrived, entry=until.entries[-1])
            return sum_log(table, question, pa.concat_tables([log, arrived]), period=period)

    def _load_log(self, stream: str, entries: tuple[str, ...]) -> pa.Table:
        """What counted in the earlier periods of a series, all of them answered; what was read is kept.

        A period that is being answered is not among them: if that is interrupted, another process may count
        it anew, and then the file holds what counts.
        """
        known: tuple[str, ...] = ()
        logs = []
        kept = self._logged  # looked at once: other threads may go on with other series
        if kept is not None and (stream, entries[: len(kept[1])]) == kept[:2]:
            known, logs = kept[1], [kept[2]]
        from sfumato.core.engine.arrivals import load_log

        log = pa.concat_tables([*logs, load_log(self._folder, stream, entries, after=len(known))])
        if log["n"].num_chunks > _MOST_CHUNKS:
            log = log.combine_chunks()  # every period adds one, and whatever reads them reads them all
        self._logged = (stream, entries, log)
        return log

    def describe(self, table: Table | PublicTable) -> dict[str, str]:
        """The kinds of the stored columns that a query may name, from headers and footers alone."""
        if isinstance(table, PublicTable):
            with connect() as connection:
                rows = connection.sql(f"DESCRIBE SELECT * FROM {self._scan_public(table)}").fetchall()
            return {name: sql_kind(kind) for name, kind, *_ in rows}
        return describe_columns(table, self._open(table, frozenset()).columns, where=name_source(table))

    def _seal(self, table: Table, names: frozenset[str]) -> Sealed:
        """The sealed table with at least `names`, read again if its source changed or more is asked of it.

        Of a part of the people, it has nobody else: whatever is asked of a part is asked of that.
        """
        if table.part is not None:
            return self._seal_part(table, table.part, names)
        if table.family is not None:
            return self._seal_family(table, table.family)
        with self._sealing:
            facts = self._facts(table)
            kept_in = self._folder / ".sfumato" / digest(table.name)[:16] if table.sealed == "file" else None
            seen, sealed = self._sealed.pop(table.name, ("", None))
            if seen != facts:
                sealed = None if kept_in is None else load_sealed(kept_in, facts=facts)
            if sealed is not None and not (names <= sealed.names and sealed.most <= table.unit.max_records):
                names |= sealed.names
                sealed = None
            if sealed is None:
                sealed = seal_fetched(table, self._open(table, names), names)
                if self._facts(table) != facts:
                    # By its content alone a file that was written again, and read half done, looks as it was.
                    raise SourceError(f"{name_source(table)} changed while it was read; run it again")
                if kept_in is not None:
                    with suppress(OSError):
                        save_sealed(sealed, kept_in, facts=facts)
            self._sealed[table.name] = (facts, sealed)
            return sealed

    def _check_family(self, table: Table, family: Family) -> None:
        """Checks both tables of a family, and links them without a record."""
        self.check(family.child, tuple((name,) for name in family.columns))
        if family.parent is not None:
            self.check(family.parent, tuple((name,) for name in family.parent_columns))
        check_order(family, self._open(family.child, frozenset()).columns)
        with self._sealing:
            tables = [
                None if each is None else seal_fetched(each, self._open(each, names), names, rows=False)
                for each, names in family_names(family)
            ]
        try:
            assert tables[0] is not None
            link_records(table, tables[0], tables[1])
        except duckdb.Error as error:
            raise SourceError(
                f"{name_source(table)} cannot be joined with its parents: {str(error).splitlines()[0][:200]}"
            ) from None

    def _seal_family(self, table: Table, family: Family) -> Sealed:
        """The records of a family, linked anew if one of its tables was read anew."""
        with self._sealing:
            child, parent = (
                None if each is None else self._seal(each, names) for each, names in family_names(family)
            )
            assert child is not None
            known = self._linked
            if known is None or known[0] is not family or known[1] is not child or known[2] is not parent:
                self._linked = known = (family, child, parent, link_records(table, child, parent))
            return known[3]

    def _seal_part(self, table: Table, part: Part, names: frozenset[str]) -> Sealed:
        """The sealed table without the people of other parts; that of every part is kept."""
        with self._sealing:
            if self._whole is None or self._whole[0] is not table:
                whole = replace(table, part=None)
                if self._whole is not None and self._whole[1] == whole:
                    whole = self._whole[1]  # the same object: what was read of it is kept by that
                self._whole = (table, whole)
            digested = {UNIT} if table.unit.column is not None else list_codes(part.columns)
            sealed = self._seal(self._whole[1], names | digested)
            seen = self._parts.get(part)
            if seen is None or seen[0] is not sealed:
                # Of other tables, or of an earlier state of this one: nothing of them is asked again.
                self._parts = {each: kept for each, kept in self._parts.items() if kept[0] is sealed}
                self._parts[part] = seen = (sealed, restrict_sealed(sealed, table))
            return seen[1]

    def _seal_nothing(self, table: Table, names: frozenset[str]) -> Sealed:
        """The sealed table without a record, which only its description decides; the last ones are kept."""
        key = (names, digest(table_spec(table, tuple(table.columns))))
        fetched = self._open(table, names)
        with self._sealing:
            seen, sealed = self._emptied.get(key, (None, None))
            if sealed is None or seen != (fetched.schema, fetched.columns):
                sealed = seal_fetched(table, fetched, names, rows=False)
                if len(self._emptied) >= _MOST_EMPTIED:
                    self._emptied.pop(next(iter(self._emptied)))
                self._emptied[key] = ((fetched.schema, fetched.columns), sealed)
            return sealed

    def _facts(self, table: Table) -> str:
        """What a sealed table rests on: the files as they are, and how their records are read and encoded."""
        # A recipe asks hundreds of times of one table, whose description takes longer to spell than to count.
        described = self._described
        if described is None or described[0] is not table:
            spec = {**table_spec(table, tuple(table.columns)), "max_records": None, "source": None}
            described = self._described = (table, digest(spec))
        whose = "" if table.reference is None else f"\n{self._facts(table.reference.table)}"
        source = self._find(table)
        return f"{_SEALING}\n{file_facts(source.paths)}{source.version}\n{described[1]}{whose}"

    def _open(self, table: Table, names: frozenset[str]) -> Fetched:
        """The columns that `names` asks of a table, and the one that names individuals."""
        if table.reference is None:
            return self._open_stored(table, names)
        reference = table.reference
        # By itself it has no unit: who it is of stands in the other table.
        alone = replace(table, unit=PrivacyUnit(column=None, max_records=1), reference=None)
        own = self._open_stored(alone, names | {reference.column.lower()})
        return follow_reference(table, own, self._open(reference.table, frozenset([reference.key.lower()])))

    def _open_stored(self, table: Table, names: frozenset[str]) -> Fetched:
        source = self._find(table)
        return source.fetch(needed_columns(table, names, source.columns))

    def _scan_public(self, table: PublicTable) -> str:
        source = find_files(table.source, folder=self._folder, table=table.name)
        if not table.source.lower().endswith((".parquet", ".csv", ".csv.gz", ".tsv", ".tsv.gz")):
            raise SourceError(f"public table {table.name!r}: source must be Parquet, CSV or TSV")
        files = ", ".join(quote_text(escape_pattern(str(path))) for path in source.paths)
        # The rows of a public table are public, so that its types may be guessed from them.
        return (
            f"read_parquet([{files}])" if source.format == "parquet" else f"read_csv([{files}], header=true)"
        )

    def _find(self, table: Table | PublicTable) -> FileSource:
        where: Any = {"folder": self._folder, "table": table.name}
        if isinstance(table, PublicTable):
            return find_files(table.source, **where)
        where |= {"encoding": table.encoding, "quoting": table.quoting}
        return find_files(table.source, **where, names=described_names(table))


def seal_fetched(table: Table, fetched: Fetched, names: frozenset[str], *, rows: bool = True) -> Sealed:
    """The sealed table of what was fetched; without `rows`, one that has no record."""
    batches: Iterator[pa.RecordBatch] = fetched.read() if rows else iter(())
    return seal_table(table, fetched.columns, fetched.schema, batches, names=names, rows=rows)
