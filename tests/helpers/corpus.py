"""Statements made up at random over tables of edges, for engines that must agree on exact aggregates."""

import random
from dataclasses import replace
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal

import numpy as np
import pyarrow as pa

from sfumato.core.engine import aggregates as execute
from sfumato.core.engine.encode import connect
from sfumato.core.errors import SfumatoError
from sfumato.core.facts.project import parse_project
from sfumato.curator.statements import Desk
from sfumato.sql.rows import selects_rows
from sfumato.sql.statement import read_statement

NAN, INF = float("nan"), float("inf")
TEXTS = [
    "a", "b", "A", "é", "e\u0301", "", " ", "a ", " a", "ab", "aé", "ß", "雪", "\U0001f328", "o'clock", "%",
    "_", "back\\slash", "5", "05", "5.0", "1e3", "true", "NULL", "2020-01-01", "x" * 40, "Z", "~", None,
    None,
]  # fmt: skip
WHOLE = [0, 1, 2, 3, 4, 5, 6, -1, -5, 100, 2**31, 2**53, 2**53 + 1, 2**63 - 1, -(2**63), None]
NUMBERS = [
    0.0, -0.0, 0.1, 0.5, 1.0, 1.5, 2.5, 3.5, -0.5, -2.5, 3.0, 7.0, 29.999999999999996, 30.0, 99.99, 1e-5,
    5e-324, -5e-324, 1e300, -1e300, 1.7976931348623157e308, 2.0**53, 0.49999999999999994, NAN, INF, -INF,
    None,
]  # fmt: skip
MOMENTS = [
    datetime(1970, 1, 1),
    datetime(1969, 12, 31, 23, 59, 59, 999999),
    datetime(2020, 2, 29, 12, 30),
    datetime(2020, 12, 31, 23, 59, 59, 999999),
    datetime(2021, 1, 1),
    datetime(2021, 3, 14, 1, 59, 26, 535897),
    datetime(60, 5, 5),
    datetime(71, 5, 5),
    datetime(9890, 1, 1),
    datetime(9999, 12, 31, 23),
    None,
]
DAYS = [
    date(1970, 1, 1),
    date(1969, 12, 31),
    date(2020, 2, 29),
    date(2020, 12, 31),
    date(2021, 1, 1),
    date(2021, 3, 14),
    date(1, 1, 1),
    date(44, 3, 15),
    date(9999, 12, 31),
    date(2019, 6, 30),
    None,
]
CASH = [
    None if each is None else Decimal(each)
    for each in ("0", "1.00", "2.50", "-3.10", "99999.99", "0.01", None)
]

COLUMNS = {
    "c": {"values": ["a", "b", "é", "雪", "o'clock"]},
    "co": {"from": "c", "values": ["a", "ab", "5", ""], "outside": "other"},
    "n": {"range": [0, 5]},
    "nc": {"from": "n", "range": [1, 4], "outside": "clamp"},
    "no": {"from": "n", "values": [0, 2, 100, -5], "outside": "other"},
    "k": {"range": [0, 5], "outside": "other"},
    "x": {"bounds": [-5, 7]},
    "b": {"from": "x", "bins": [0, 1, 2.5, 30]},
    "bc": {"from": "x", "bins": [-1, 0.5, 3], "outside": "clamp"},
    "y": {"bounds": [0, 100]},
    "cash": {"bounds": [-10, 1000]},
    "m": {"from": "at", "period": "month"},
    "h": {"from": "at", "period": "hour"},
    "w": {"from": "z", "period": "day_of_week"},
    "yr": {"from": "day", "period": "year", "range": [1960, 2030]},
    "day": {"range": ["2019-01-01", "2021-12-31"]},
    "at": {"range": ["2019-01-01", "2021-12-31"]},
}
KEYS = [
    "c", "c", "co", "n", "nc", "no", "k", "b", "bc", "m", "h", "w", "yr", "f", "n > 2", "c = 'a'",
    "CASE WHEN x > 1 THEN 'high' ELSE 'low' END", "CASE WHEN n IN (1, 2) THEN 1 WHEN f THEN 2 END",
    "EXTRACT(month FROM day)", "EXTRACT(hour FROM at)", "DATE_TRUNC('month', day)",
    "DATE_TRUNC('year', at)", "EXTRACT(isodow FROM day)", "EXTRACT(quarter FROM at)", "s = 'a'",
    "DATE_TRUNC('day', day)", "DATE_TRUNC('week', at)", "DATE_TRUNC('quarter', at)", "CAST(at AS DATE)",
    "EXTRACT(dow FROM z)", "EXTRACT(week FROM at)", "YEAR(day)", "CAST(day AS DATE)",
]  # fmt: skip
MEASURES = [
    "COUNT(*)", "COUNT(*)", "COUNT(x)", "COUNT(c)", "COUNT(s)", "COUNT(day)", "COUNT(cash)", "SUM(x)",
    "AVG(x)", "SUM(n)", "AVG(k)", "SUM(y)", "AVG(cash)", "VARIANCE(x)", "STDDEV(n)", "MEDIAN(x)", "MAX(n)",
    "MIN(cash)", "COUNT(*) FILTER (WHERE x > 0)", "SUM(CASE WHEN f THEN x ELSE 0 END)",
    "SUM(CASE WHEN n = 1 THEN 2 END)", "AVG(CASE WHEN c = 'a' THEN 1 ELSE 0 END)", "COUNT(DISTINCT {unit})",
    "SUM(x + n)", "SUM(2 * x)", "SUM(b)", "COUNT(CASE WHEN day > DATE '2020-01-01' THEN 1 END)",
    "CORR(x, n)", "COUNT(DISTINCT c)", "SUM(ABS(x))", "AVG(EXTRACT(hour FROM at) * 1.0)", "SUM(no)",
    "MODE(c)", "MODE(n)",
]  # fmt: skip
CONSTANTS = {
    "n": [
        "0",
        "1",
        "2.5",
        "-1",
        "100",
        "9007199254740993",
        "9223372036854775807",
        "1e3",
        "5.0",
        "0.1",
        "2147483648",
    ],
    "x": [
        "0",
        "0.1",
        "-0.5",
        "2.5",
        "1e300",
        "1.7976931348623157e308",
        "3",
        "0.30000000000000004",
        "7",
        "1e-5",
    ],
    "s": [
        "'a'",
        "'b'",
        "'é'",
        "''",
        "'A'",
        "'ab'",
        "'o''clock'",
        "'%'",
        "'back\\slash'",
        "'5'",
        "'~'",
        "'雪'",
    ],
    "day": [
        "DATE '2020-02-29'",
        "DATE '1970-01-01'",
        "'2020-12-31'",
        "DATE '0044-03-15'",
        "DATE '9999-12-31'",
    ],
    "at": [
        "TIMESTAMP '2020-02-29 12:30:00'",
        "DATE '2021-01-01'",
        "'2020-12-31 23:59:59.999999'",
        "DATE '1970-01-01'",
    ],
}
KINDS = {
    "n": "n",
    "k": "n",
    "nc": "n",
    "no": "n",
    "m": "n",
    "h": "n",
    "w": "n",
    "yr": "n",
    "x": "x",
    "y": "x",
    "cash": "x",
    "b": "x",
    "c": "s",
    "co": "s",
    "s": "s",
    "day": "day",
    "at": "at",
    "z": "at",
    "raw": "n",
    "single": "x",
}
ODD = [
    "s LIKE 'a%'", "s LIKE '_'", "s NOT LIKE '%a%'", "c LIKE '__'", "s LIKE '%\\\\%'",
    "s LIKE '雪' OR s LIKE ''", "LENGTH(s) > 1", "UPPER(c) = 'A'", "n + 1 > 2", "x * 2 < n",
    "COALESCE(n, 0) = 0", "x < n", "CAST(s AS DOUBLE) > 1", "ABS(x) < 3", "n % 2 = 0", "s || c = 'ab'",
    "EXTRACT(year FROM at) = 2020", "c = s", "at > day", "EXTRACT(doy FROM day) < 100", "n = k", "f = TRUE",
    "(x > 0) = f", "CASE WHEN f THEN n > 1 ELSE x > 1 END",
]  # fmt: skip


TABLES = [("t", "person"), ("t", "person"), ("i", "number"), ("r", "c")]


def make_table(seed, rows=160):
    """A table of edges in every column, and a few individuals with many records."""
    draw = random.Random(f"corpus {seed}")

    def column(values, kind):
        return pa.array([draw.choice(values) for _ in range(rows)], kind)

    people = [
        "ana",
        "ben",
        "Ana",
        "ana ",
        "1",
        "01",
        "é",
        "e\u0301",
        "",
        "zoé",
        None,
        *(f"p{i}" for i in range(40)),
    ]
    numbers = [0, 1, -1, 2**63 - 1, -(2**63), 7, None, *range(10, 50)]
    # Most have few records, some have many.
    weights = [6, 5, 4, 3, *([1] * 60)]
    plus = [None if each is None else each.replace(tzinfo=timezone.utc) for each in MOMENTS]  # noqa: UP017
    tame = [each + timedelta(days=draw.randint(0, 700)) for each in [datetime(2019, 5, 5, 5)] * 9]
    single = [None if each is None else float(np.float32(np.clip(each, -1e38, 1e38))) for each in NUMBERS]
    return pa.table(
        {
            "id": pa.array(range(rows), pa.int64()),
            "person": pa.array(draw.choices(people, weights[: len(people)], k=rows), pa.string()),
            "number": pa.array(draw.choices(numbers, weights[: len(numbers)], k=rows), pa.int64()),
            "c": column(["a", "a", "b", "é", "雪", "o'clock", "ab", "5", "", None], pa.string()),
            "s": column(TEXTS, pa.string()),
            "n": column(WHOLE, pa.int64()),
            "raw": column(WHOLE, pa.int64()),
            "k": column([0, 1, 2, 3, 5, 6, -1, 32767, None], pa.int16()),
            "x": column(NUMBERS, pa.float64()),
            "y": column([*single, INF, -INF], pa.float32()),
            "single": column(single, pa.float32()),
            "cash": column(CASH, pa.decimal128(7, 2)),
            "f": column([True, False, None], pa.bool_()),
            "day": column([*DAYS, *(each.date() for each in tame)], pa.date32()),
            "at": column([*MOMENTS, *tame], pa.timestamp("us")),
            "z": column(plus, pa.timestamp("us", tz="UTC")),
        }
    )


def make_project(sources, folder):
    """A project of three tables over the same records: by text, by whole number, and by row."""
    text, number, row = sources
    tables = {
        "t": {"source": text, "unit": "person", "max_records": 3},
        "i": {"source": number, "unit": "number", "max_records": 2, "max_groups": 1},
        "r": {"source": row, "unit": "row"},
    }
    spec = {"budget": {"epsilon": 1e6, "delta": 1e-6}}
    return parse_project(
        {**spec, "tables": {k: {**v, "columns": COLUMNS} for k, v in tables.items()}}, folder=folder
    )


def make_statements(count, seed, *, about=TABLES):
    """Statements of the language, most of them about columns that every engine treats alike."""
    draw = random.Random(f"statements {seed}")
    return [_statement(draw, about) for _ in range(count)]


def _statement(draw, about):
    table, unit = draw.choice(about)
    keys = draw.sample(KEYS, draw.choice([0, 0, 1, 1, 1, 2]))
    measures = [draw.choice(MEASURES).format(unit=unit) for _ in range(draw.choice([1, 1, 2, 3]))]
    items = [f"{key} AS k{place}" for place, key in enumerate(keys)]
    items += [f"{each} AS v{place}" for place, each in enumerate(measures)]
    where = f" WHERE {_condition(draw, 2)}" if draw.random() < 0.7 else ""
    source = table
    if draw.random() < 0.1:
        source = f"(SELECT * FROM {table} WHERE {_condition(draw, 1)}) AS q"
    grouped = f" GROUP BY {', '.join(f'k{place}' for place in range(len(keys)))}" if keys else ""
    return f"DP-SELECT 1 {', '.join(items)} FROM {source}{where}{grouped}"


def _condition(draw, depth):
    if depth and draw.random() < 0.5:
        one, other = _condition(draw, depth - 1), _condition(draw, depth - 1)
        return draw.choice([f"({one} AND {other})", f"({one} OR {other})", f"NOT ({one})"])
    if draw.random() < 0.15:
        return draw.choice(ODD)
    name = draw.choice(list(KINDS))
    listed = CONSTANTS[KINDS[name]]
    match draw.randrange(6):
        case 0:
            return f"{name} IS {draw.choice(['', 'NOT '])}NULL"
        case 1:
            chosen = draw.sample(listed, draw.randint(1, 3))
            return f"{name} {draw.choice(['', 'NOT '])}IN ({', '.join(chosen)})"
        case 2:
            return f"{name} BETWEEN {draw.choice(listed)} AND {draw.choice(listed)}"
        case 3 if draw.random() < 0.3:
            return draw.choice(["f", "NOT f", "f IS NULL"])
        case _:
            return f"{name} {draw.choice(['=', '<>', '<', '<=', '>', '>='])} {draw.choice(listed)}"


def plan_statement(text, project, engine):
    """The plan of a statement, or None if it is refused; no charge is made."""
    desk = Desk(
        project=project,
        engine=engine,
        find_budget=lambda: project_budget(project),
        report=None,
        open_ledger=None,
    )
    try:
        statement = desk.prepare(read_statement(text), epsilon=None)
        if selects_rows(statement.query):
            return None
        plan = desk.plan(statement, desk.catalog(statement))
        engine.bind(plan.query, {name: project.tables[name] for name in plan.relation.tables})
    except SfumatoError:
        return None
    return plan


def project_budget(project):
    """What a statement may spend, as the project file says."""
    from sfumato.curator import Curator

    return Curator(project)._budget


def list_rows(plan, table, engine):
    """What DuckDB makes of every record that a statement about rows keeps: codes of keys, then values."""
    checked = engine.bind(plan.query, {table.name: table})
    with connect(plainly=True) as connection:
        execute.open_sealed(connection, checked, table, engine._seal(table, execute.names_in(checked)))
        rows = connection.sql(execute._encoded(checked, with_unit=True, part="inside")).fetchall()
    return {row[0]: tuple(None if each is None else int(each) for each in row[1:]) for row in rows}


def pushed_items(pushed):
    """The SQL of what a server makes of a record: whether it is kept, then keys and values."""
    return [
        f"CASE WHEN {pushed.condition} THEN 1 ELSE 0 END",
        *(key.sql for key in pushed.keys),
        *pushed.values.values(),
    ]


def read_rows(pushed, columns):
    """As `list_rows`, from the columns of `pushed_items` in the order of records."""
    found = {}
    for number, (kept, *row) in enumerate(zip(*columns, strict=True)):
        codes = [
            (key.other if each is None else each - key.low)
            if key.codes is None
            else key.codes.get(each, key.other)
            for key, each in zip(pushed.keys, row, strict=False)
        ]
        if kept and None not in codes:
            found[number] = (*codes, *row[len(codes) :])
    return found


def differ(one, other):
    """Whether two engines' aggregates are not the same."""
    if (one.true_keys is None) != (other.true_keys is None) or len(one.true_values) != len(other.true_values):
        return True
    if one.true_keys is None:
        pairs = zip(one.true_values, other.true_values, strict=True)
        return not all(np.array_equal(a, b) for a, b in pairs)

    def by_key(found):
        columns = zip(found.true_individuals, *found.true_values, strict=True)
        return dict(zip(found.true_keys, columns, strict=True))

    return by_key(one) != by_key(other)


def move(project, sources):
    """The project with its tables elsewhere."""
    tables = {
        name: replace(table, source=source)
        for (name, table), source in zip(project.tables.items(), sources, strict=True)
    }
    return replace(project, tables=tables)
