"""A table: its source, the unit it protects, and its described columns.

`Table.contribution` is the bound that every sensitivity rests on: the most that one individual adds to
the counts of a marginal (docs/proofs/bounds.md).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from sfumato.core.errors import SchemaError
from sfumato.core.exact import check_option, digest, parse_whole
from sfumato.core.facts.column import Column, column_spec, parse_column, refuse_unknown_keys
from sfumato.core.facts.domain import Tuples, Values, take_domain
from sfumato.core.facts.part import Window
from sfumato.core.facts.rules import Rule, find_readers, rule_spec

if TYPE_CHECKING:
    from sfumato.core.facts.domain import Label
    from sfumato.core.facts.part import Part

Neighbours = Literal["add-remove", "replace"]
Bounding = Literal["truncate", "weight"]
Place = Literal["file", "postgres", "spark"]

# Weights are whole multiples of 1 / WEIGHT_GRID, so that their sums are exact.
WEIGHT_GRID = 2**20

MOST_RECORDS = 2**10
"""The most records of an individual where max_records is "private"."""

_KEYS = (
    *("source", "snapshot", "unit", "window", "max_records", "max_groups", "neighbours", "bounding"),
    *("references", "parameters", "columns", "impossible", "rules", "public"),
    *("encoding", "quoting", "text_limit", "sealed"),
)
_ENCODINGS = (
    *("utf-8", "utf-16", "latin-1", "iso-8859-2", "iso-8859-15"),
    *("windows-1250", "windows-1251", "windows-1252"),
)
_OPTIONS = {
    "sealed": ("memory", "file"),
    "quoting": ("line", "multiline", "none", None),
    "bounding": ("truncate", "weight"),
}
_LONGEST_TEXT = 100_000
_MOST_PERIODS = 10_000
_NO_AXIS = (
    *("values", "ranges", "range", "names"),
    *("origin", "density", "nullable", "bounds", "drafted_from_data", "accept_drafted"),
)
"""What of a column's description may change without moving a record to another period."""
_SECRETS = ("password", "sslpassword", "oauth_client_secret", "scram_client_key", "scram_server_key")
_PUBLIC_PARTS = ("host", "port", "dbname", "service", "table")


UNIT = "unit of sfumato"
"""The column that names the individual of a row, in every relation over private tables."""


def code_name(name: str) -> str:
    """The name of the column that holds the code of `name`."""
    return f"code of {name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PrivacyUnit:
    """One individual: the column that names them (None: every row is one), and their bound.

    Two tables are neighbours if one individual's records, all of them, are added or removed
    (`add-remove`) or exchanged for any other records (`replace`). With `private_records` nobody knows a good
    bound: every statement chooses one, and `max_records` is what it is at most.

    With a `period`, a column, an individual is what one value of the unit column did in one period: that is
    protected, and not all that it did in several of them. With a `window`, the labels of a first and a last
    period, only records of these are read, and only these pay for what is asked.

    >>> PrivacyUnit(column="resident", max_records=20).describe()
    'resident, at most 20 records, add-remove'
    """

    column: str | None
    max_records: int
    neighbours: Neighbours = "add-remove"
    max_groups: int | None = None
    private_records: bool = False
    period: str | None = None
    window: tuple[str, str] | None = None

    def __post_init__(self) -> None:
        check_option(self.neighbours, get_args(Neighbours), name="neighbours", error=SchemaError)
        if isinstance(self.max_records, bool) or not isinstance(self.max_records, int):
            raise SchemaError(
                'max_records must be a whole number, or "private" to have it chosen'
                if self.column is not None
                else 'every row has one record: leave max_records out with unit = "row"'
            )
        if not 1 <= self.max_records <= 10**9:
            raise SchemaError(f"max_records must lie between 1 and 10^9, got {self.max_records}")
        if self.max_groups is not None:
            groups = parse_whole(self.max_groups, name="max_groups", error=SchemaError)
            object.__setattr__(self, "max_groups", groups)
        if self.column is None and self.max_records != 1:
            raise SchemaError("with unit = 'row' every row is an individual, so max_records must be 1")

    @property
    def name(self) -> str:
        """What is protected, as costs and certificates name it."""
        if self.period is not None:
            return f"{self.column} x {self.period}"
        return self.column or "row"

    def note_bound(self, bounding: Bounding = "truncate") -> tuple[str, ...]:
        """What is said of records that the bound leaves out; nothing where every row is an individual."""
        if self.column is None:
            return ()
        if self.private_records:
            return ("records of an individual beyond a number that is chosen privately are not counted",)
        whose = "individual" if self.period is None else f"individual and {self.period}"
        if bounding == "weight":
            return (f"who has more than {self.max_records} records per {whose} counts as so many",)
        return (f"records beyond {self.max_records} per {whose} are not counted",)

    def describe(self) -> str:
        """The unit in one line."""
        name = self.name
        if self.period is not None:
            name += f" (one {self.column}'s records of one {self.period}, not of all)"
        records = "1 record" if self.max_records == 1 else f"at most {self.max_records} records"
        chosen = ", or fewer that are chosen privately" if self.private_records else ""
        read = ""
        if self.window is not None:
            first, last = self.window
            read = (
                f", read from {first} to {last}; the budget is for each {self.period}, new ones have it whole"
            )
        return f"{name}, {records}{chosen}, {self.neighbours}{read}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PublicTable:
    """A table that is about nobody, such as a list of districts: queries read it as it is."""

    name: str
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """A column that holds keys of another table: a record is of whoever has the row with its key."""

    column: str
    table: Table
    key: str


_EXACT = 16  # numbers of children up to which each has a bin of its own
_FINE = 8  # above, a bin is as wide as an eighth of where it begins


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """A table of children, the columns that are asked about, and the column that orders siblings.

    The parent of a child is the individual that it is of: a row of the table that the children refer to, or,
    where they refer to none, nobody but the name that their unit column holds.
    """

    child: Table
    columns: tuple[str, ...]
    parent_columns: tuple[str, ...] = ()
    order: str | None = None

    @property
    def parent(self) -> Table | None:
        """The table of the parents, if there is one."""
        return None if self.child.reference is None else self.child.reference.table

    @property
    def steps(self) -> tuple[int, ...]:
        """The numbers of children at which a bin begins: wider ones above; the last ends at max_records."""
        most = self.child.unit.max_records
        steps = list(range(1 if self.parent is None else 0, min(_EXACT, most) + 1))
        while steps[-1] + max(1, steps[-1] // _FINE) <= most:
            steps.append(steps[-1] + max(1, steps[-1] // _FINE))
        return tuple(steps)

    @property
    def number(self) -> str:
        """The column that holds the number of children."""
        return f"number of {self.child.name}"

    @property
    def later(self) -> str:
        """The column that tells a first child, or none, from those after it."""
        return f"later {self.child.name}"

    def of_parent(self, name: str) -> str:
        """What a column of the parent is called beside those of a child."""
        assert self.parent is not None
        return f"{self.parent.name}.{name}"

    def of_child(self, name: str) -> str:
        """What a column of the child is called beside those of its parent."""
        return f"{self.child.name}.{name}"

    def of_previous(self, name: str) -> str:
        """What a column of the child before is called."""
        return f"previous {self.child.name}.{name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A described table of people's records.

    `bounding` says how an individual's records are bounded by `max_records`: `truncate` keeps at most
    that many, `weight` keeps all and gives each the weight min(1, max_records / records). `impossible`
    lists what no record can be, by public knowledge: each entry gives columns values that never meet.
    `rules` are conditions that no record meets, and what holds for every record.

    A text file is in `encoding`, and quotes mean in it what `quoting` says, by default what they mean in
    files of such a name. Texts longer than `text_limit` characters are cut there. What was read is
    kept, `sealed` in memory or in a private file, for the next question. Of a table on a lake, `snapshot` is
    the number of the one that is asked, and None stands for the latest. With a `reference`, the individual
    of a record is that of a row of another table, and its unit has the name that it has there.
    """

    name: str
    source: str
    unit: PrivacyUnit
    columns: Mapping[str, Column] = field(default_factory=dict)
    bounding: Bounding = "truncate"
    impossible: tuple[Mapping[str, tuple[Label, ...]], ...] = ()
    rules: tuple[Rule, ...] = ()
    encoding: str = "utf-8"
    quoting: Literal["line", "multiline", "none"] | None = None
    text_limit: int = 1000
    sealed: Literal["memory", "file"] = "memory"
    reference: Reference | None = None
    snapshot: int | None = None
    part: Part | None = None
    """The part of its people that is asked; None for all of them. No part of its description."""
    family: Family | None = None
    """The family whose records these are; then its description is that of the family's tables."""

    def __post_init__(self) -> None:
        where = f"table {self.name!r}"
        for key, options in _OPTIONS.items():
            check_option(getattr(self, key), options, name=f"{where}: {key}", error=SchemaError)
        if self.encoding not in _ENCODINGS:
            raise SchemaError(f"{where}: encoding must be one of {', '.join(_ENCODINGS)}")
        name = f"{where}: text_limit"
        limit = parse_whole(self.text_limit, name=name, high=_LONGEST_TEXT, error=SchemaError)
        object.__setattr__(self, "text_limit", limit)
        folded: dict[str, str] = {}
        for name in self.columns:
            twin = folded.setdefault(name.casefold(), name)
            if twin != name:
                # SQL does not tell such names apart, and would take the codes of one for those of the other.
                raise SchemaError(f"{where}: columns {twin!r} and {name!r} differ in case only")
        period = self.unit.period
        if period is not None and (period not in self.columns or self.columns[period].domain is None):
            raise SchemaError(
                f"{where}: the period of the unit, {period!r}, must be a column with a domain; "
                f"describe it as [tables.{self.name}.columns.{period}]"
            )
        if period is not None and (self.reference is not None or self.unit.private_records):
            raise SchemaError(f"{where}: a unit with a period needs a stated max_records, and no references")
        if self.unit.window is not None:
            _check_window(self, self.unit.window)
        unit = None if self.unit.column is None else folded.get(self.unit.column.casefold())
        if unit is not None:
            column = self.columns[unit]
            if column.domain is not None or unit != self.unit.column:
                raise SchemaError(
                    f"{where}: {self.unit.column!r} names the individual, so it cannot have a domain; "
                    "remove its column table"
                )

    @property
    def window(self) -> Window | None:
        """The periods that are read; None if all records are.

        Privacy: the axis holds how a record's period follows from what is stored. What may change in it is
        which periods are listed: a label stands for the same records in every list.
        """
        if self.unit.window is None:
            return None
        column = self.columns[str(self.unit.period)]
        listed = column.domain.values[0] if isinstance(column.domain, (Values, Tuples)) else ()
        parts = listed if isinstance(listed, tuple) else (listed,)
        read = {
            "of": [self.name, column.name],  # which might run together below
            "texts": [self.encoding, self.quoting, self.text_limit],
            "kinds": [type(column.domain).__name__, *(type(each).__name__ for each in parts)],
            "spec": {key: value for key, value in column_spec(column).items() if key not in _NO_AXIS},
        }
        return Window(
            axis=f"{column.name} of {self.name}: {digest(read)[:32]}",
            periods=frozenset(map(str, column.labels)),
        )

    @property
    def grid(self) -> int:
        """The denominator of every count of this table: counts are whole multiples of 1 / grid."""
        return WEIGHT_GRID if self.bounding == "weight" else 1

    @property
    def contribution(self) -> int:
        """The most that one individual adds to the counts of any one marginal, in units of 1 / grid.

        Privacy: `truncate` keeps at most max_records records of weight 1; `weight` gives each of R
        records floor(max_records * grid / R) or less. Both sums are at most max_records * grid.
        """
        return self.unit.max_records * self.grid

    def column(self, name: str) -> Column:
        """The described column `name`, ready to be counted, or an error that says what to do."""
        if name not in self.columns:
            known = ", ".join(sorted(self.columns)) or "none"
            raise SchemaError(f"table {self.name!r} describes no column {name!r} (described: {known})")
        column = self.columns[name]
        if column.domain is None:
            raise SchemaError(
                f"column {name!r} of table {self.name!r} has no public domain; "
                "declare values, values_file, bins, range or period"
            )
        if column.drafted and not column.accepted:
            raise SchemaError(
                f"column {name!r} of table {self.name!r}: its domain was drafted from the data, which "
                "is not private. Replace it by a public list, or set accept_drafted = true and the "
                "write-up will say so"
            )
        return column

    def cells(self, names: tuple[str, ...]) -> int:
        """The number of combinations of the columns `names`."""
        return math.prod(self.column(name).size for name in names)


def parse_table(
    name: str,
    spec: Mapping[str, Any],
    *,
    folder: Path | None = None,
    others: Mapping[str, Any] | None = None,
    above: tuple[str, ...] = (),
) -> Table:
    """The table that `spec` (a table of the project file) describes.

    `others` are the descriptions of all tables of the file, which `references` names; `above` are those that
    led to this one.
    """
    where = f"table {name!r}"
    if not isinstance(spec, dict):
        raise SchemaError(f"{where} must be a table of keys such as source, unit and columns")
    refuse_unknown_keys(spec, _KEYS, where=where)
    columns: dict[str, Column] = {}
    if "parameters" in spec:
        if folder is None:
            raise SchemaError(f"{where}: parameters needs a project file beside it")

        columns |= find_readers().read_columns(folder / str(spec["parameters"]))
    described = spec.get("columns", {})
    if not isinstance(described, dict):
        raise SchemaError(f"{where}: columns must be tables, [tables.{name}.columns.NAME]")
    try:
        columns |= {key: parse_column(key, value, folder=folder) for key, value in described.items()}
        reference = _parse_reference(name, spec.get("references"), others or {}, folder=folder, above=above)
        unit = _parse_unit(spec) if reference is None else _derive_unit(spec, reference)
        columns = _take_window(unit, columns)
    except SchemaError as error:
        raise SchemaError(f"{where}: {error}") from None
    source = spec.get("source")
    if not isinstance(source, str) or not source or source == "TODO":
        raise SchemaError(
            f"{where}: source must name a file (.parquet, .csv, .jsonl, .zip, .xlsx), or a table by its URL"
        )
    check_location(source, where=f"{where}: source")
    snapshot = spec.get("snapshot")
    if snapshot is not None and (find_lake(source) is None or type(snapshot) is not int or snapshot < 0):
        raise SchemaError(f"{where}: snapshot is a number, of a table on a lake (delta:..., iceberg:...)")
    impossible: tuple[Mapping[str, tuple[Label, ...]], ...] = ()
    rules: tuple[Rule, ...] = ()
    if "impossible" in spec or "rules" in spec:
        impossible, rules = find_readers().parse_rules(spec, columns, folder=folder, where=where)
    return Table(
        name=name,
        source=source,
        unit=unit,
        columns=columns,
        bounding=spec.get("bounding", "truncate"),
        impossible=impossible,
        rules=rules,
        encoding=spec.get("encoding", "utf-8"),
        quoting=spec.get("quoting"),
        text_limit=spec.get("text_limit", 1000),
        sealed=spec.get("sealed", "memory"),
        reference=reference,
        snapshot=snapshot,
    )


def parse_public(name: str, spec: Mapping[str, Any]) -> PublicTable:
    """The public table that `spec` describes: `public = true` and a source, nothing more."""
    refuse_unknown_keys(spec, ("public", "source"), where=f"public table {name!r}")
    source = spec.get("source")
    if spec["public"] is not True or not isinstance(source, str) or not source:
        raise SchemaError(f"public table {name!r} needs public = true and a source")
    return PublicTable(name=name, source=source)


def table_spec(table: Table, columns: tuple[str, ...]) -> dict[str, Any]:
    """The description that reads back as `table` with the named columns only.

    That of a family's records is the description of its table of children, with that of the parents inside.
    """
    if table.family is not None:
        return _family_spec(table.family)
    unit, period = table.unit, table.unit.period
    if period is not None:
        columns = tuple(dict.fromkeys((*columns, period)))
    impossible: list[Any] = [
        {name: list(labels) for name, labels in rule.items()}
        for rule in table.impossible
        if set(rule) <= set(columns)
    ]
    kept = [rule for rule in table.rules if set(rule.columns) <= set(columns)]
    impossible += [rule.text for rule in kept if rule.kind == "impossible"]
    rules = [rule_spec(rule) for rule in kept if rule.kind != "impossible"]
    spec = {
        "source": public_location(table.source),
        "snapshot": table.snapshot,
        "unit": unit.name if period is None else [unit.column, period],
        "window": None if unit.window is None else list(unit.window),
        "max_records": "private" if unit.private_records else unit.max_records,
        "neighbours": unit.neighbours,
        "bounding": table.bounding,
        "columns": {name: column_spec(table.columns[name]) for name in columns},
        "impossible": impossible or None,
        "rules": rules or None,
        "encoding": None if table.encoding == "utf-8" else table.encoding,
        "quoting": table.quoting,
        "text_limit": None if table.text_limit == 1000 else table.text_limit,
        "references": None if table.reference is None else _reference_spec(table.reference),
    }
    return {key: value for key, value in spec.items() if value is not None}


def _reference_spec(reference: Reference, columns: tuple[str, ...] = ()) -> dict[str, Any]:
    """A reference with the description of the table it leads to, so that it reads back by itself."""
    parent = reference.table
    facts = {"table": parent.name, "key": reference.key, **table_spec(parent, columns)}
    return {reference.column: facts}


def _family_spec(family: Family) -> dict[str, Any]:
    child = family.child
    ordered = (family.order,) if family.order in child.columns and family.order is not None else ()
    spec = table_spec(child, tuple(dict.fromkeys((*family.columns, *ordered))))
    if child.reference is not None:
        spec["references"] = _reference_spec(child.reference, family.parent_columns)
    return spec


def cap_records(table: Table, most: int) -> Table:
    """`table` with every individual capped at `most` records, or at max_records if these are fewer."""
    return replace(table, unit=cap_unit(table.unit, most))


def cap_unit(unit: PrivacyUnit, most: int) -> PrivacyUnit:
    """`unit` with at most `most` records, a bound that is known."""
    return replace(unit, max_records=min(most, unit.max_records), private_records=False)


def find_place(location: str) -> Place:
    """The kind of place that `location` names, by how it begins.

    >>> find_place("postgresql://db.example.org/city?table=public.trips"), find_place("trips.parquet")
    ('postgres', 'file')
    """
    lowered = location.lower()
    if lowered.startswith(("postgresql:", "postgres:")):
        return "postgres"
    return "spark" if lowered.startswith("spark:") else "file"


def find_database(source: str) -> tuple[str, str] | None:
    """The file and the table that duckdb:FILE?table=NAME names; None for another kind of source.

    >>> find_database("duckdb:city.db?table=main.trips"), find_database("trips.parquet")
    (('city.db', 'main.trips'), None)
    """
    if not source.lower().startswith("duckdb:"):
        return None
    file, _, query = source[len("duckdb:") :].partition("?")
    given = parse_qsl(query, keep_blank_values=True)
    schema, _, relation = given[0][1].rpartition(".") if [key for key, _ in given] == ["table"] else ("",) * 3
    if not file or not relation or "." in schema or "*" in file:
        raise SchemaError(f"source {source!r} must name one file and one table: duckdb:FILE?table=NAME")
    return file, given[0][1]


def find_lake(source: str) -> tuple[str, str] | None:
    """The format and the place of a table on a lake; None for another kind of source.

    >>> find_lake("delta:lake/trips"), find_lake("trips.parquet")
    (('delta', 'lake/trips'), None)
    """
    kind, _, place = source.partition(":")
    if kind not in ("delta", "iceberg"):
        return None
    if not place or "*" in place or "://" in place:
        raise SchemaError(f"source {source!r} must name one table, by its folder: {kind}:FOLDER")
    return kind, place


def check_location(location: str, *, where: str) -> None:
    """Raises an error if a location is misspelt or holds a secret: project files are shared and kept."""
    find_database(location)
    find_lake(location)
    if find_place(location) != "postgres":
        return
    try:
        parts = urlsplit(location)
        written = ":" in parts.netloc.rpartition("@")[0]
        keys = {key.lower() for key, _ in parse_qsl(parts.query, keep_blank_values=True)}
    except ValueError:
        raise SchemaError(f"{where} is no URL; write postgresql://host/database?table=schema.name") from None
    if written or keys & set(_SECRETS):
        raise SchemaError(
            f"{where} holds a password, which would be kept with the project; remove it and give it in "
            "PGPASSWORD, in ~/.pgpass or in a service file (service=NAME)"
        )
    if not location.lower().startswith(("postgresql://", "postgres://")):
        raise SchemaError(f"{where} must begin with postgresql://")


def public_location(location: str) -> str:
    """`location` as releases tell it: without the user and the options of a URL.

    >>> public_location("postgresql://ana@db:5432/city?table=public.trips&sslmode=require")
    'postgresql://db:5432/city?table=public.trips'
    """
    if find_place(location) != "postgres":
        return location
    parts = urlsplit(location)
    host = parts.netloc.rpartition("@")[2]
    kept = [(key, value) for key, value in parse_qsl(parts.query) if key in _PUBLIC_PARTS]
    query = urlencode(kept, quote_via=quote, safe="/.")
    return f"postgresql://{host}{parts.path}" + (f"?{query}" if query else "")


def _parse_reference(
    name: str, value: object, others: Mapping[str, Any], *, folder: Path | None, above: tuple[str, ...]
) -> Reference | None:
    """What `references = {visit = "visits.id"}` says: a column of this table, and a key of another."""
    if value is None:
        return None
    if not isinstance(value, dict) or len(value) != 1:
        raise SchemaError('references names one column and what it holds keys of: {visit = "visits.id"}')
    ((column, target),) = value.items()
    if isinstance(target, dict):  # as a release tells it, with the description of the other table
        target = dict(target)
        table, key = str(target.pop("table", "")), str(target.pop("key", ""))
        others = {table: target}
    else:
        table, _, key = str(target).rpartition(".")
    if not column or not table or not key:
        raise SchemaError(f'references: {column!r} needs a table and its key, such as "visits.id"')
    path = (*above, name)
    if table in path:
        raise SchemaError(f"references go in a circle: {' -> '.join((*path, table))}")
    if table not in others:
        raise SchemaError(
            f"references: no table {table!r} (described: {', '.join(sorted(others)) or 'none'})"
        )
    if isinstance(others[table], dict) and others[table].get("public"):
        raise SchemaError(f"references: table {table!r} is public, and its rows are nobody's")
    parent = parse_table(table, others[table], folder=folder, others=others, above=path)
    if parent.unit.period is not None:
        raise SchemaError(f"references: table {table!r} has a unit over time, which no other table shares")
    if parent.unit.column is None:
        raise SchemaError(
            f'references: table {table!r} has unit = "row", so it names nobody whose records those of '
            f"{name!r} could be; give it a unit column"
        )
    return Reference(column=column, table=parent, key=key)


def _derive_unit(spec: Mapping[str, Any], reference: Reference) -> PrivacyUnit:
    """The unit of a table that refers to another: that of the other, with a bound of its own."""
    unit, given = reference.table.unit, spec.get("unit")
    if "window" in spec:
        raise SchemaError("a window needs a unit over time, which a table with references cannot have")
    if given is not None and given != unit.column:
        raise SchemaError(
            f"unit comes from references: it is {unit.column!r} of table {reference.table.name!r}; "
            "remove one of both"
        )
    if "neighbours" in spec and spec["neighbours"] != unit.neighbours:
        raise SchemaError(
            f"neighbours is that of the individuals, {unit.neighbours!r} in table {reference.table.name!r}"
        )
    if "max_records" not in spec or spec["max_records"] == "TODO":
        raise SchemaError("references needs max_records, the most records of one individual that may count")
    private = spec["max_records"] == "private"
    return replace(
        unit,
        max_records=MOST_RECORDS if private else spec["max_records"],
        max_groups=spec.get("max_groups"),
        private_records=private,
    )


def _parse_unit(spec: Mapping[str, Any]) -> PrivacyUnit:
    unit, period = spec.get("unit"), None
    if isinstance(unit, list):
        if len(unit) != 2 or not all(isinstance(each, str) and each for each in unit) or unit[0] == "row":
            raise SchemaError("a unit over time is two columns, who and when: unit = ['person', 'month']")
        unit, period = unit
    window = spec.get("window")
    if window is not None:
        if period is None:
            raise SchemaError("a window needs a unit over time, such as unit = ['person', 'month']")
        if (
            not isinstance(window, (list, tuple))
            or [type(each) in (str, int) for each in window] != [True] * 2
        ):
            raise SchemaError("window is the first and the last period to be read: ['2025-01', '2025-12']")
        window = (str(window[0]), str(window[1]))
    if not isinstance(unit, str) or not unit or unit == "TODO":
        raise SchemaError("unit must name the column that identifies an individual, or be 'row'")
    neighbours = spec.get("neighbours", "add-remove")
    if unit == "row":
        return PrivacyUnit(column=None, max_records=spec.get("max_records", 1), neighbours=neighbours)
    if "max_records" not in spec or spec["max_records"] == "TODO":
        raise SchemaError(
            f"unit {unit!r} needs max_records, the most records of one individual that may count; "
            "further records of that individual are cut"
        )
    private = spec["max_records"] == "private"
    return PrivacyUnit(
        column=unit,
        max_records=MOST_RECORDS if private else spec["max_records"],
        private_records=private,
        neighbours=neighbours,
        max_groups=spec.get("max_groups"),
        period=period,
        window=window,
    )


def _take_window(unit: PrivacyUnit, columns: Mapping[str, Column]) -> dict[str, Column]:
    """The columns, of the periods those of the window only: no others are read, counted or released."""
    column = None if unit.period is None else columns.get(unit.period)
    if unit.window is None or column is None or column.domain is None:
        return dict(columns)  # what is missing is refused where the table is made
    if column.size > _MOST_PERIODS:
        raise SchemaError(f"window: {column.name!r} has more than {_MOST_PERIODS:,} periods")
    labels = [str(label) for label in column.labels]
    for each in unit.window:
        if each not in labels:
            raise SchemaError(
                f"window: {each[:40]!r} is no value of {column.name!r}, which go from {labels[0]!r} to "
                f"{labels[-1]!r}"
            )
    first, last = map(labels.index, unit.window)
    if first > last:
        raise SchemaError("window is the first and the last period to be read, and they are exchanged")
    return {**columns, column.name: replace(column, domain=take_domain(column.domain, first, last))}


def _check_window(table: Table, window: tuple[str, str]) -> None:
    """Refuses a window whose periods cannot be told apart, or are not all that the column has."""
    where, unit = f"table {table.name!r}: window", table.unit
    if unit.period is None:
        raise SchemaError(f"{where} needs a unit over time, such as unit = ['person', 'month']")
    if unit.neighbours != "add-remove":
        raise SchemaError(f"{where} needs neighbours = 'add-remove': exchanged records may be of two periods")
    column = table.columns[unit.period]
    if column.outside != "drop" or column.extras:
        raise SchemaError(
            f"{where}: {column.name!r} must have outside = 'drop' and no missing_label, so that the "
            "period of a record does not depend on which periods are listed"
        )
    if (str(column.labels[0]), str(column.labels[-1])) != window:
        raise SchemaError(f"{where}: the values of {column.name!r} must be those of the window alone")
