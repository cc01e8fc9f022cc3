"""The system tables of PostgreSQL 15, in a DuckDB database of their own that holds names and types alone.

`postgres.txt` says what the tables look like (made by tests/helpers/describe_postgres.py), `tables.sql`
fills them and defines the functions that may be called.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from sfumato.core.facts.domain import Bins, IntegerRange, Period, Values
from sfumato.sql.relation import Source, describe_field

if TYPE_CHECKING:
    import duckdb

    from sfumato.core.facts import column as facts
    from sfumato.core.facts.project import Project

KINDS = {"integer": "int8", "number": "float8", "boolean": "bool", "date": "timestamp"}
"""The PostgreSQL type of a column by its kind, where no more is known; text otherwise."""

_FIRST = 16400  # numbers of tables begin here: above those of PostgreSQL's own objects
_SCHEMAS = {"p": 11, "i": 13207, "u": 2200}
_MOST_LISTED = 20

TYPES: dict[str, dict[str, Any]] = tomllib.loads(files(__package__).joinpath("types.toml").read_text("utf-8"))
"""Types and functions of PostgreSQL, as the catalog takes them."""
KEPT: dict[str, str] = TYPES["kept"]
_FUNCTIONS = "typsubscript typinput typoutput typreceive typsend typmodin typmodout typanalyze"
_TYPE_KEYS = (
    "oid typname format typarray typlen typbyval typtype typcategory typispreferred typdelim typalign "
    f"typstorage typelem typcollation {_FUNCTIONS}"
).split()
_NUMBERS = {"oid", "typarray", "typlen", "typelem", "typcollation"}


@dataclass(frozen=True, slots=True)
class Column:
    """A column of an answer: its name, and the object identifier of its PostgreSQL type."""

    name: str
    oid: int


@dataclass(frozen=True, slots=True)
class Relation:
    """A table or view: its number, the letter of its schema, its kind, and its columns with their types."""

    oid: int
    schema: str
    kind: str
    name: str
    columns: Mapping[str, str]
    filled: frozenset[str] = frozenset()
    remark: str = ""
    remarks: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Description:
    """What PostgreSQL's system tables look like, and the types that it has."""

    relations: Mapping[tuple[str, str], Relation]
    types: tuple[Mapping[str, str | int], ...]
    functions: Mapping[str, int]
    ranges: tuple[tuple[int, ...], ...]
    oids: Mapping[str, int]


@cache
def read_description() -> Description:
    """Returns the description of PostgreSQL 15, read once."""
    lines: dict[str, list[list[str]]] = {letter: [] for letter in "LRTFG"}
    for line in _read("postgres.txt").splitlines():
        letter, *words = line.split(" ")
        lines[letter].append(words)
    letters = dict(word.split("=") for word in lines["L"][0])
    relations = {}
    for oid, where, name, *words in lines["R"]:
        parts = [word.rstrip("!").split(":") for word in words]
        columns = {column: letters.get(type_, type_) for column, type_ in parts}
        filled = frozenset(word.split(":")[0] for word in words if word.endswith("!"))
        relations[where[0], name] = Relation(int(oid), where[0], where[1], name, columns, filled)
    types: list[dict[str, str | int]] = []
    for words in lines["T"]:
        row = {
            key: int(word) if key in _NUMBERS else word for key, word in zip(_TYPE_KEYS, words, strict=True)
        }
        row["format"] = str(row["format"]).replace("~", " ")
        types.append(row)
        if row["typarray"]:
            types.append(_make_array(row))
    return Description(
        relations=relations,
        types=tuple(types),
        functions={"-": 0, **{name: int(oid) for oid, name in lines["F"]}},
        ranges=tuple(tuple(map(int, words)) for words in lines["G"]),
        oids={str(row["typname"]): int(row["oid"]) for row in types},
    )


@cache
def read_functions() -> Mapping[str, frozenset[str]]:
    """Returns the lists of functions in tables.sql by their titles, and all that are `allowed`."""
    script = _read("tables.sql")
    lists: dict[str, frozenset[str]] = {}
    for title, words in re.findall(r"(?m)^--: (\w+) (.*)", script):
        lists[title] = lists.get(title, frozenset()) | frozenset(words.split())
    defined = frozenset(re.findall(r'MACRO sys\."?(\w+)', script))
    return lists | {"allowed": (defined | lists["plain"] | lists["text"]) - lists["inner"]}


def kept_as(type_: str) -> str:
    """Returns the type under which DuckDB keeps values of a PostgreSQL type."""
    if type_ in KEPT:
        return KEPT[type_]
    return f"{kept_as(type_[1:])}[]" if type_.startswith("_") else "VARCHAR"


def make_tables(
    project: Project, stored: Mapping[str, Mapping[str, str]], types: Mapping[str, Mapping[str, int]]
) -> duckdb.DuckDBPyConnection:
    """Returns a new database in memory with all system tables, filled for the tables of `project`.

    `stored` has the kinds of the stored columns of each table, `types` the numbers of the types that columns
    have in answers, as far as they are known.
    """
    import duckdb

    connection = duckdb.connect(":memory:", config={"threads": 1, "temp_directory": ""})
    connection.execute("CREATE SCHEMA sys; CREATE SCHEMA inf;")
    connection.execute(";".join(_define(each) for each in read_description().relations.values()))
    facts = _list_facts(list(_describe_project(project, stored, types)))
    for name, rows in facts.items():
        # As parameters: DuckDB's other ways to take a table load half of pandas.
        columns = ", ".join(f"unnest(${place}) AS {key}" for place, key in enumerate(rows[0], 1))
        values = [[row[key] for row in rows] for key in rows[0]]
        connection.execute(f"CREATE TEMP TABLE {name} AS SELECT {columns}", values)
    connection.execute(_read("tables.sql"))
    connection.execute(";".join(f"DROP TABLE {name}" for name in facts))
    # From here on nothing can be read, written, loaded or set that lies outside of these tables.
    connection.execute(
        "SET memory_limit = '128MB'; SET enable_external_access = false; "
        "SET autoload_known_extensions = false; SET autoinstall_known_extensions = false; "
        "SET python_enable_replacements = false; SET lock_configuration = true;"
    )
    return connection


def _list_facts(described: Sequence[Relation]) -> dict[str, list[dict[str, str | int | bool]]]:
    """Returns what tables.sql fills the tables from, by the names that it has there."""
    description = read_description()
    relations = [*description.relations.values(), *described]
    row_types = [row for each in described for row in _make_row_types(each)]
    return {
        "relations": [
            {
                "oid": each.oid,
                "namespace": _SCHEMAS[each.schema],
                "kind": each.kind,
                "name": each.name,
                "width": len(each.columns),
                "rowtype": each.oid + 1 if each.schema == "u" else 0,
                "remark": each.remark,
            }
            for each in relations
        ],
        "fields": [
            {
                "relation": each.oid,
                "position": position,
                "name": column,
                "type": type_,
                "filled": column in each.filled,
                "remark": each.remarks.get(column, ""),
            }
            for each in relations
            for position, (column, type_) in enumerate(each.columns.items(), 1)
        ],
        "types": [
            {"typrelid": 0, "typnamespace": _SCHEMAS["p"], **row} for row in (*description.types, *row_types)
        ],
        "functions": [{"oid": oid, "name": name} for name, oid in description.functions.items()],
        "ranges": [
            dict(zip(("rngtypid", "rngsubtype", "rngmultitypid"), row, strict=True))
            for row in description.ranges
        ],
    }


def _read(name: str) -> str:
    return files("sfumato.serve.catalog").joinpath(name).read_text(encoding="utf-8")


def _define(relation: Relation) -> str:
    """Returns the statement that makes a system table; columns never NULL begin empty."""
    empty = {"BOOLEAN": "false", "VARCHAR": "''"}
    columns = []
    for name, type_ in relation.columns.items():
        kept = kept_as(type_)
        default = "[]" if kept.endswith("[]") else empty.get(kept, "0" if "INT" in kept else "NULL")
        columns.append(f'"{name}" {kept}' + (f" DEFAULT {default}" if name in relation.filled else ""))
    schema = "sys" if relation.schema == "p" else "inf"
    return f'CREATE TABLE {schema}."{relation.name}" ({", ".join(columns)})'


def _make_array(row: Mapping[str, str | int]) -> dict[str, str | int]:
    functions = "array_subscript_handler array_in array_out array_recv array_send - - array_typanalyze"
    return {
        **row,
        "oid": row["typarray"],
        "typname": f"_{row['typname']}",
        "format": f"{row['format']}[]",
        "typarray": 0,
        "typlen": -1,
        "typbyval": "f",
        "typtype": "p" if row["typname"] == "record" else "b",
        "typcategory": "P" if row["typname"] == "record" else "A",
        "typispreferred": "f",
        "typdelim": row["typdelim"],
        "typalign": "d" if row["typalign"] == "d" else "i",
        "typstorage": "x",
        "typelem": row["oid"],
        **dict(zip(_FUNCTIONS.split(), functions.split(), strict=True)),
    }


def _make_row_types(relation: Relation) -> Iterator[dict[str, str | int]]:
    """Yields the type of a table's rows, and that of lists of them."""
    quoted = relation.name if re.fullmatch(r"[a-z_][a-z0-9_]*", relation.name) else f'"{relation.name}"'
    first: list[str | int] = [relation.oid + 1, relation.name, quoted, relation.oid + 2]
    # As in the lines of postgres.txt.
    words = "-1 f c C f , d x 0 0 - record_in record_out record_recv record_send - - -"
    rest = words.split(" ")
    row = dict(zip(_TYPE_KEYS, [*first, *rest], strict=True))
    facts = {"typlen": -1, "typelem": 0, "typcollation": 0, "typnamespace": _SCHEMAS["u"]}
    yield {**row, **facts, "typrelid": relation.oid}
    yield _make_array({**row, **facts})


def _describe_project(
    project: Project, stored: Mapping[str, Mapping[str, str]], types: Mapping[str, Mapping[str, int]]
) -> Iterator[Relation]:
    """Describes the project's tables as relations of `public`, with public facts as comments."""
    oid = _FIRST
    names = {number: name for name, number in read_description().oids.items()}

    def find_types(table: str, kinds: Mapping[str, str]) -> dict[str, str]:
        known = types.get(table, {})
        return {
            key: names[known[key]] if key in known else KINDS.get(kind, "text") for key, kind in kinds.items()
        }

    for name, table in project.tables.items():
        known = stored.get(name, {})
        source = Source(name=name, stored=known, table=table)
        described = {key: describe_field(key, column, source) for key, column in table.columns.items()}
        kinds = {**known, **{key: field.kind for key, field in described.items()}}
        if table.unit.column is not None and table.unit.column not in kinds:
            kinds = {table.unit.column: "text", **kinds}
        columns = find_types(name, kinds)
        remarks = {key: _describe_column(column) for key, column in table.columns.items()}
        if table.unit.column is not None:
            remarks[table.unit.column] = "names the individual whom answers protect"
        yield Relation(
            oid, "u", "r", name, columns, remark=f"private: {table.unit.describe()}", remarks=remarks
        )
        oid += 10
    for name in project.public:
        columns = find_types(name, stored.get(name, {}))
        yield Relation(oid, "u", "r", name, columns, remark="public: answered exactly and free")
        oid += 10


def _describe_column(column: facts.Column) -> str:
    """Gives what is publicly known of a column, in a few words: nothing that was drafted from the records."""
    if column.drafted and not column.accepted:
        return ""
    match column.domain:
        case Values(values):
            more = f", ... ({len(values)} values)" if len(values) > _MOST_LISTED else ""
            return "one of " + ", ".join(str(value) for value in values[:_MOST_LISTED]) + more
        case IntegerRange(low, high):
            return f"whole numbers from {low} to {high}"
        case Bins(edges):
            return f"{len(edges) - 1} bins from {float(edges[0]):g} to {float(edges[-1]):g}"
        case Period(part):
            return f"{part.replace('_', ' ')} of {column.stored[0]}"
        case None if column.dates is not None:
            return "dates from {} to {}".format(*column.dates)
    return "" if column.bounds is None else "from {:g} to {:g}".format(*map(float, column.bounds))
