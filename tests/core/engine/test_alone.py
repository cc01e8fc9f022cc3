"""Every function, operator and cast that statements may use, on one record alone and beside all others.

A grid of awkward values is stored once as a table of all of them, each an individual and a group of its own,
and once as a table of one record for each. What a statement counts for a record must not depend on the rest.
"""

import math
import random
from collections import Counter

import pytest

import sfumato as sf
from helpers import nasty_tables as nasty
from helpers.projects import write_project
from sfumato.audit.noise_off import RecordingNoise
from sfumato.core.facts.project import read_project
from sfumato.curator import Curator

NUMBER_TYPES = ("TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "DECIMAL(9, 2)", "DECIMAL(38, 10)")
DATE_PARTS = (
    *("YEAR", "QUARTER", "MONTH", "DAY", "DAYOFWEEK", "HOUR", "MINUTE"),
    *("SECOND", "WEEK", "WEEKOFYEAR", "DAYOFYEAR"),
)
PERIODS = ("second", "hour", "day", "week", "month", "quarter", "year", "decade", "century")
PROBES = {
    "number": ("{} IS NULL", "{} >= 3"),
    "text": ("{} IS NULL", "{} <= '5a'"),
    "date": ("{} IS NULL", "{} < DATE '2021-01-01'"),
    "condition": ("{}", "NOT ({})"),
}
OF_TEXT = {
    "number": [
        *("LENGTH(v)", "POSITION('5' IN v)"),
        *(f"CAST(v AS {kind})" for kind in NUMBER_TYPES),
        *(f"{part}(CAST(v AS TIMESTAMP))" for part in DATE_PARTS),
        *(f"EXTRACT({part} FROM CAST(v AS DATE))" for part in ("dow", "isodow", "year")),
    ],
    "text": [
        *(f"{name}(v)" for name in ("LOWER", "UPPER", "TRIM")),
        *("SUBSTRING(v, 2, 3)", "SUBSTRING(v, -2, 2)", "LEFT(v, 3)", "RIGHT(v, 3)", "LEFT(v, -1)"),
        *("v || v", "CONCAT(v, '5')", "v || '30'", "COALESCE(v, '5')", "NULLIF(v, '5')", "GREATEST(v, '5')"),
        *("LEAST(v, '5')", "CASE WHEN v > '5' THEN v ELSE '5' END", "IF(v = 'a', v, 'b')"),
        *(
            "CAST(CAST(v AS DOUBLE) AS VARCHAR)",
            "CAST(CAST(v AS DATE) AS VARCHAR)",
            "CAST(CAST(v AS TIMESTAMP) AS VARCHAR)",
        ),
    ],
    "date": [
        "CAST(v AS DATE)",
        "CAST(v AS TIMESTAMP)",
        "CAST(v || '' AS TIMESTAMP)",
        "CAST(TRIM(v) AS DATE)",
    ],
    "condition": [
        *("STARTS_WITH(v, '2')", "v LIKE '%a%'", "v LIKE '_'", "v ILIKE '%A%'", "v IN ('5', 'a', '')"),
        *("v BETWEEN '2' AND 'a'", "CAST(v AS BOOLEAN)", "v = '5'", "v <> '5'", "v >= 'infinity'"),
        *("v ~ '^[0-9a]+$'", "v ~ '(a|5)*b?'", "v ~* 'A'", "v !~ '.{3,5}'"),
    ],
}
OF_NUMBER = {
    "number": [
        *(f"v {sign} 3" for sign in ("+", "-", "*", "/", "//", "%")),
        *("v + v", "v * v", "v - v", "v / v", "v // 0", "v % 0", "3 % v", "1 / v", "-v"),
        *(
            f"{name}(v)"
            for name in ("ABS", "ROUND", "FLOOR", "CEIL", "TRUNC", "SIGN", "SQRT", "LN", "LOG", "EXP")
        ),
        *("ROUND(v, 1)", "POW(v, 2)", "POW(v, 0.5)", "POW(2, v)", "GREATEST(v, 5)", "LEAST(v, 5)"),
        *("COALESCE(v, 5)", "NULLIF(v, 5)", "CASE WHEN v > 1 THEN v ELSE 5 END", "IF(v > 1, v, 5)"),
        *(f"CAST(v AS {kind})" for kind in NUMBER_TYPES),
        *(f"CAST(CAST(v AS VARCHAR) AS {kind})" for kind in ("INT", "DOUBLE")),
    ],
    "text": ["CAST(v AS VARCHAR)", "CAST(v AS VARCHAR) || 'a'"],
    "date": ["TO_TIMESTAMP(v)", "CAST(TO_TIMESTAMP(v * 1000) AS DATE)"],
    "condition": [
        "v = 5",
        "v > 1",
        "v <> v",
        "v <= 2",
        "v BETWEEN 0 AND 10",
        "v IN (0, 5)",
        "CAST(v AS BOOLEAN)",
        "v >= 1e300",
    ],
}
OF_DATE = {
    "number": [
        *(f"{part}(v)" for part in DATE_PARTS),
        *("EXTRACT(isodow FROM v)", "EXTRACT(dow FROM v)", "EXTRACT(epoch FROM v)", "EXTRACT(doy FROM v)"),
    ],
    "text": [
        *("CAST(v AS VARCHAR)", "LEFT(CAST(v AS VARCHAR), 4)"),
        *("STRFTIME(v, '%Y-%m-%d %H:%M:%S')", "TO_CHAR(v, 'IYYY-IW DDD DY MON')"),
    ],
    "date": [
        *("CAST(v AS DATE)", "CAST(v AS TIMESTAMP)", "COALESCE(v, DATE '2020-05-05')"),
        *(f"DATE_TRUNC('{period}', v)" for period in PERIODS),
        *(
            "v + INTERVAL '1 month'",
            "v - INTERVAL '90 days'",
            "v + INTERVAL '2 hours'",
            "v - INTERVAL '9999 years'",
        ),
    ],
    "condition": ["v > DATE '2020-01-01'", "v = v", "v BETWEEN DATE '1960-01-01' AND DATE '2030-01-01'"],
}
OF_TRUTH = {
    "condition": ["v", "NOT v", "v AND v", "v OR v"],
    "text": ["CAST(v AS VARCHAR)"],
    "number": ["CAST(v AS INT)"],
}
EXPRESSIONS = {"text": OF_TEXT, "number": OF_NUMBER, "date": OF_DATE, "boolean": OF_TRUTH}


def distinct(values):
    """The values once each, also NaN and the two zeros."""
    return list({repr(value): value for value in values}.values())


class Grid:
    """Tables of some of the values of a grid, and what a statement counts for each record of them."""

    def __init__(self, folder, kind, values, *, form="parquet"):
        self.folder, self.kind, self.values, self.form = folder, kind, values, form
        self.turn = 0

    def count(self, places, probes, *, size=10**6, dictionary=True):
        """For every probe, the counts by the number of the value, which may stand at several places."""
        self.turn += 1
        folder = self.folder / str(self.turn)
        folder.mkdir()
        rows = [(f"u{row}", (place, self.values[place])) for row, place in enumerate(places)]
        columns = [("p", "text"), ("id", "integer"), ("v", self.kind)]
        nasty.write_table(folder / f"t.{self.form}", columns, rows, size, dictionary=dictionary)
        columns = {"id": {"range": [0, len(self.values) - 1]}}
        file = write_project(folder, columns, source=f"t.{self.form}", unit="p", max_records=1, epsilon=1e9)
        noise = RecordingNoise()
        curator = Curator(read_project(file), noise=noise)
        listed = ", ".join(f"COUNT_IF({probe}) AS a{number}" for number, probe in enumerate(probes))
        curator.sql(f"DP-SELECT 1 id, {listed} FROM t GROUP BY id")
        assert len(noise.requests) == len(probes)
        return [each.true_values for each in noise.requests]

    def accepted(self):
        """The probes that the planner accepts; most are."""
        self.count([0], ["v IS NULL"])
        curator = sf.open(self.folder / str(self.turn) / "sfumato.toml")
        as_seen = "text" if self.form != "parquet" else nasty.SEEN_AS[self.kind]
        expressions = EXPRESSIONS[as_seen]
        probes = [
            probe.format(f"({each})" if kind == "condition" else each)
            for kind, listed in expressions.items()
            for each in listed
            for probe in PROBES[kind]
        ]
        kept = _keep(list(dict.fromkeys(probes)), curator)
        assert len(kept) > 0.7 * len(probes), sorted(set(probes) - set(kept))
        return kept


def _keep(probes, curator):
    """The probes that are not refused, halving the list until a refusal is found."""
    listed = ", ".join(f"COUNT_IF({probe}) AS a{number}" for number, probe in enumerate(probes))
    try:
        curator.sql(f"EXPLAIN DP-SELECT 1 id, {listed} FROM t GROUP BY id")
    except sf.SfumatoError:
        middle = len(probes) // 2
        return [*_keep(probes[:middle], curator), *_keep(probes[middle:], curator)] if middle else []
    return probes


GRIDS = {
    "text": ("text", [*nasty.TEXTS, "2020-05-05", "2.5", "xyz", nasty.LONG_TEXT], "parquet"),
    "text in a text file": ("text", [*nasty.TEXTS[1::2], "2020-05-05", "2.5"], "csv"),
    "double": ("double", nasty.NUMBERS, "parquet"),
    "float": ("float", [*nasty.NUMBERS[:9], 1.0, 2.5, 5.0, math.pi], "parquet"),
    "integer": ("integer", nasty.INTEGERS, "parquet"),
    "natural": ("natural", nasty.NATURALS, "parquet"),
    "decimal": ("decimal", nasty.DECIMALS, "parquet"),
    "day": ("day", nasty.DAYS, "parquet"),
    "moment": ("moment", nasty.MOMENTS, "parquet"),
    "milli": ("milli", nasty.MOMENTS, "parquet"),
    "zoned": ("zoned", nasty.MOMENTS, "parquet"),
    "nano": ("nano", nasty.MOMENTS, "parquet"),
    "truth": ("truth", nasty.TRUTHS, "parquet"),
    "text that is not UTF-8": ("text", [*nasty.BROKEN_TEXTS, "a", "5", None], "parquet"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", GRIDS)
def test_a_record_has_the_value_it_has_alone(tmp_path, name):
    kind, values, form = GRIDS[name]
    grid = Grid(tmp_path, kind, distinct(values), form=form)
    places = list(range(len(grid.values)))
    probes = grid.accepted()
    alone = [grid.count([place], probes) for place in places]
    # Every value stands once before every other, in memory as in the file.
    pairs = [place for one in places for two in places for place in (one, two)]
    tables = [
        (places, {"size": 7}),
        (random.Random(0).sample(places, len(places)), {}),
        (pairs, {"dictionary": False}),
        (pairs, {"size": 100}),
    ]
    wrong = set()
    for order, options in tables:
        beside, often = grid.count(order, probes, **options), Counter(order)
        for turn, probe in enumerate(probes):
            wrong |= {
                (probe, repr(grid.values[place])[:60])
                for place in places
                if beside[turn][place] != often[place] * alone[place][turn][place]
            }

    told = f"{sorted({value for _, value in wrong})} by {sorted({probe for probe, _ in wrong})}"
    assert not wrong, told


def test_the_grid_uses_all_that_statements_may_use():
    """A function that is newly allowed must be entered here."""
    from sqlglot import exp, parse_one

    from sfumato.core.algebra.expressions import _ALLOWED

    used = set()
    for listed in EXPRESSIONS.values():
        for kind, expressions in listed.items():
            for each in expressions:
                for probe in PROBES[kind]:
                    used |= {
                        type(node) for node in parse_one(probe.format(f"({each})"), read="duckdb").walk()
                    }
    # DATE_TRUNC of what the parser takes for a date is written as that of a moment.
    structure = {
        exp.TryCast,
        exp.Var,
        exp.DataTypeParam,
        exp.Identifier,
        exp.Boolean,
        exp.Is,
        exp.Column,
        exp.Null,
        exp.IsNan,
    }
    assert set(_ALLOWED) - used <= structure
