"""Statements and recipes made up at random, over neighbouring tables that are as nasty as tables can be.

A world is a project, a crowd, and one individual who is on one of its two sides only, or whose records the
sides have exchanged. Every case of a world is asked on both sides through the curator, with the noise off
and everything recorded that was about to be noised. Both sides must ask for the same noise, on vectors no
further apart than was declared, and must fail or succeed alike; after a charge nothing may fail at all.
Rows in another order, in groups of another size, must change nothing.

    for fault in run_cases(500, seed="any text"):
        print(fault)
"""

import math
import random
import shutil
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import sfumato as sf
from helpers import nasty_tables as nasty
from sfumato.audit.noise_off import NoiseRequest, RecordingNoise, find_excess, measure_difference
from sfumato.audit.targets import RecipeTarget
from sfumato.core.errors import SfumatoError
from sfumato.core.exact import parse_positive
from sfumato.core.facts.project import read_project
from sfumato.curator import Curator

TOLD = 2**40
# fmt: off

STORED = {
    "c": ["plain", "plain", "text", "large"],
    "n": ["integer", "byte", "natural", "double", "decimal", "text"],
    "b": ["double", "float", "decimal", "integer", "text"],
    "x": ["double", "float", "decimal", "integer"],
    "at": ["moment", "zoned", "milli", "second", "nano", "day", "text"],
    "s": ["text", "large", "plain"],
    "d": ["day", "moment", "zoned", "milli", "nano"],
    "q": ["double", "float", "decimal"],
    "i": ["integer", "byte", "natural"],
    "f": ["truth"],
    "o": ["plain"],
}
PLAIN_CONDITIONS = [
    *("t.x >= 0", "t.n < 4", "t.o IS NOT NULL", "t.c = 'a'", "t.c <> 'b'", "t.b < 20", "t.m > 1"),
    *("t.x IS NOT NULL", "t.s LIKE '%a%'", "t.c IN ('a', 'c')", "t.x BETWEEN -1 AND 5", "t.x < t.b"),
]
CHAINED = """
[tables.r]
source = "r.{format}"
references = {{c = "v.c"}}
max_records = {most}
[tables.r.columns.w]
bounds = [0, 5]
"""
TESTS = [
    *("t.p IN (SELECT v.p FROM v WHERE v.c = 'a')", "t.p NOT IN (SELECT p FROM v WHERE v.q > 0)"),
    *("EXISTS (SELECT 1 FROM v WHERE v.p = t.p AND v.q > 0)", "NOT EXISTS (SELECT 1 FROM r WHERE r.p = t.p)"),
    *("t.p IN (SELECT r.p FROM r WHERE r.w > 1)", "EXISTS (SELECT * FROM r WHERE t.p = r.p AND r.w < 4)"),
    *("t.c IN (SELECT z.c FROM z WHERE z.w > 0)", "t.c NOT IN (SELECT c FROM z WHERE z.y = 'l')"),
    *("EXISTS (SELECT 1 FROM z WHERE z.c = t.c AND z.w IS NOT NULL)", "t.x IN (SELECT w FROM z)"),
    "t.p IN (SELECT q.p FROM (SELECT v.p, COUNT(*) AS n FROM v GROUP BY v.p) AS q WHERE q.n > 1)",
]
UNITS = {
    "text": ["u1", "u2", "A", "a", " 5 ", "é", "e\u0301", 'q"uo', "line\nbreak", "nul\x00", "0x1", ""],
    "integer": [0, -1, 1, 2**63 - 1, -(2**63), 2**53, 2**53 + 1, 7, 8, 9, 10, 11],
    "natural": [0, 1, 2**64 - 1, 2**63, 4, 5, 6, 7, 8, 9],
    "decimal": [Decimal(each) for each in ("0", "0.0000000001", "-1", "9" * 28, "1", "2", "3", "4", "5")],
    "day": [0, 1, -1, 2_932_896, 200_000_000, 2, 3, 4, 5, 19_000],
    "truth": [True, False],
}

# fmt: on


@dataclass(frozen=True)
class Fault:
    """Something that tells neighbours apart, or that failed after its charge, and how to make it again."""

    world: str
    case: int
    what: str
    asked: str

    def __str__(self):
        return f"world {self.world!r}, case {self.case}: {self.what}\n    {self.asked[:1500]}"


@dataclass
class World:
    """A project, its people, and the folders of its sides: one, two, and the first again in other order."""

    name: str
    draw: random.Random
    format: str
    stored: dict
    unit_kind: str
    by_row: bool
    neighbours: str
    max_records: int
    broken: bool = False
    seen: dict = field(default_factory=dict)
    moods: dict = field(default_factory=dict)
    toml: str = ""


def make_world(name, *, broken=0.15):
    """The world of this name; `broken` is the chance of text that is not UTF-8."""
    draw = random.Random(f"world {name}")
    world = World(
        name=name,
        draw=draw,
        format=draw.choice(["parquet", "parquet", "csv", "csv.gz"]),
        stored={column: draw.choice(kinds) for column, kinds in STORED.items()},
        unit_kind=draw.choice(["text", "text", "integer", "natural", "decimal", "day", "truth"]),
        by_row=draw.random() < 0.1,
        neighbours=draw.choice(["add-remove", "add-remove", "replace"]),
        max_records=draw.choice([1, 2, 3, 7]),
    )
    if world.by_row:
        world.max_records = 1
    if world.format != "parquet":
        world.stored["at"] = "text"
    world.toml, described = describe(world)
    for column, kind in world.stored.items():
        world.seen[column] = "text" if world.format != "parquet" else nasty.SEEN_AS[kind]
    world.seen |= described
    world.seen.pop("at") if world.seen["at"] == "text" else None
    world.broken = draw.random() < broken
    return world


def describe(world):
    """The project file, and what statements take the described columns for."""
    draw = world.draw
    unit = 'unit = "row"' if world.by_row else f'unit = "p"\nmax_records = {world.max_records}'
    if not world.by_row and draw.random() < 0.4:
        unit += f"\nmax_groups = {draw.choice([1, 2])}"
    if not world.by_row and draw.random() < 0.2:
        unit += '\nbounding = "weight"'
    period = draw.choice(["month", "hour", "day_of_week", "year"])
    second = 'unit = "row"' if world.by_row else f'unit = "p"\nmax_records = {draw.choice([1, 2, 4])}'
    listed, ordered = ("drop", "other"), ("drop", "clamp", "other")
    # Texts that several people hold are keys, too.
    chained = "" if world.by_row else CHAINED.format(format=world.format, most=draw.choice([1, 2, 5]))
    text = f"""
[budget]
epsilon = 1e9
delta = 1e-5
[tables.t]
source = "t.{world.format}"
{unit}
neighbours = "{world.neighbours}"
[tables.t.columns.c]
values = ["a", "b", "c"]
outside = "{draw.choice(listed)}"
[tables.t.columns.n]
range = [0, 5]
outside = "{draw.choice(ordered)}"
[tables.t.columns.b]
bins = [0, 10, 20, 30]
bounds = [0, 30]
outside = "{draw.choice(ordered)}"
[tables.t.columns.x]
bounds = [-5, 7]
[tables.t.columns.m]
from = "at"
period = "{period}"
{"range = [2018, 2024]" if period == "year" else ""}
outside = "{draw.choice(ordered)}"
[tables.v]
source = "v.{world.format}"
{second}
neighbours = "{world.neighbours}"
[tables.v.columns.c]
values = ["a", "b"]
{chained}
[tables.z]
public = true
source = "z.parquet"
"""
    return text, {"c": "text", "n": "number", "b": "number", "x": "number", "m": "number"}


def make_sides(world, folder):
    """Writes the project three times; side 2 is side 0 in another order."""
    draw = world.draw
    names = list(UNITS[world.unit_kind])
    if world.format != "parquet":
        names = [each for each in names if each != ""]
    draw.shuffle(names)
    somebody, *others = names
    # In some columns the crowd has one value, so that all that a file states about them is up to one record.
    world.moods = {
        place: math.nan
        if kind in ("double", "float") and draw.random() < 0.5
        else draw.choice(nasty.KINDS[kind][1])
        for place, kind in enumerate(world.stored.values())
        if draw.random() < 0.2
    }
    crowd = [(name, make_records(world, how_many(world))) for name in others[: draw.choice([0, 3, 5, 8, 10])]]
    if draw.random() < 0.3:
        crowd.append((None, make_records(world, draw.randint(1, 4))))
    world.moods = {}
    mine = make_records(world, how_many(world) or 1)
    theirs = make_records(world, how_many(world)) if world.neighbours == "replace" else []
    if world.by_row:
        mine, theirs = mine[:1], theirs[:1] or make_records(world, 1)
        theirs = theirs if world.neighbours == "replace" else []
    sides = [[*crowd, (somebody, mine)], [*crowd, (somebody, theirs)]]
    if draw.random() < 0.5:
        sides.reverse()
    places = []
    for number, people in enumerate([*sides, sides[0]]):
        rows = [(name, record) for name, records in people for record in records]
        if number:
            draw.shuffle(rows)
        place = folder / str(number)
        place.mkdir()
        (place / "sfumato.toml").write_text(world.toml)
        size = draw.choice([1, 3, 1000, 1000])
        nasty.write_table(
            place / f"t.{world.format}", [("p", world.unit_kind), *world.stored.items()], rows, size
        )
        few = [("p", world.unit_kind), ("c", world.stored["c"]), ("q", "double")]
        cut = [
            (name, (record[0], record[1] if isinstance(record[1], float) else 1.5)) for name, record in rows
        ]
        nasty.write_table(place / f"v.{world.format}", few, cut, size)
        if not world.by_row:
            kind = world.stored["c"]
            texts = ["a", "b", "c", "a", *nasty.KINDS[kind][1]]
            lines = [(text, (weight,)) for text in texts for weight in (0.5, 7.0, math.nan)]
            nasty.write_table(place / f"r.{world.format}", [("c", kind), ("w", "double")], lines, size)
        public = {
            "c": ["a", "b", "b", "zz", None],
            "w": [1.5, math.nan, math.inf, None, -0.0],
            "y": [*"kllmm"],
        }
        pq.write_table(pa.table(public), place / "z.parquet")
        places.append(place)
    return places


def how_many(world):
    most = world.max_records
    return world.draw.choice([0, 1, 1, most, most, most, most + 1, most + 1, 3 * most + 1, 20])


def make_records(world, count):
    draw = world.draw
    records = []
    for _ in range(count):
        if records and draw.random() < 0.2:
            records.append(records[-1])
            continue
        record = []
        for place, kind in enumerate(world.stored.values()):
            if place in world.moods and draw.random() < 0.9:
                record.append(world.moods[place])
                continue
            value = draw.choice(
                nasty.TAME[kind] if kind in nasty.TAME and draw.random() < 0.5 else nasty.KINDS[kind][1]
            )
            if nasty.SEEN_AS[kind] == "text" and kind != "plain":
                chance = draw.random()
                if chance < 0.01:
                    value = nasty.LONG_TEXT
                elif chance < 0.1 and world.broken:
                    value = draw.choice(nasty.BROKEN_TEXTS)
            record.append(value)
        records.append(tuple(record))
    return records


# fmt: off
class Statements:
    """Makes statements over the columns of a world, most of which the planner accepts."""

    def __init__(self, world, draw):
        self.world, self.draw = world, draw
        self.columns = [(f"t.{name}", kind) for name, kind in world.seen.items()]
        self.extra = []

    def pick(self, *ways):
        return self.draw.choice(ways)()

    def column(self, kind):
        found = [name for name, held in [*self.columns, *self.extra] if held == kind]
        return self.draw.choice(found) if found else None

    def bounded(self, depth):
        """A number whose bounds the planner can find."""
        if depth <= 0:
            return self.draw.choice(["t.x", "t.b", "t.n", "t.x", "1", "2.5", "-3"])
        one, two = self.bounded(depth - 1), self.bounded(depth - 2)
        return self.draw.choice(
            [
                *(f"({one} + {two})", f"({one} - {two})", f"({one} * {two})", f"({one} / 3)", f"ABS({one})"),
                *(f"ROUND({one})", f"FLOOR({one})", f"CEIL({one})", f"COALESCE({one}, 0)"),
                *(f"GREATEST({one}, {two})", f"LEAST({one}, {two})", f"CAST({one} AS DOUBLE)", f"-({one})"),
                f"CASE WHEN {self.condition(1)} THEN {one} ELSE {two} END",
                *(one, one, one),
            ]
        )

    def number(self, depth):
        if depth <= 0:
            held = self.column("number")
            return self.draw.choice([*[held] * 9, "0", "1", "-2.5", "1e300", "0.1"])
        one, two = self.number(depth - 1), self.number(depth - 2)
        text, date = self.text(depth - 1), self.date(depth - 1)
        kind = self.draw.choice(["TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "DECIMAL(9, 2)"])
        part = self.draw.choice(["YEAR", "QUARTER", "MONTH", "DAY", "DAYOFWEEK", "HOUR", "MINUTE"])
        return self.draw.choice(
            [
                *(f"({one} {sign} {two})" for sign in ("+", "-", "*", "/", "//", "%")),
                *(f"{name}({one})" for name in ("ABS", "FLOOR", "CEIL", "SIGN", "SQRT", "LN", "EXP")),
                *(f"POW({one}, {two})", f"LOG({one})", f"ROUND({one})", f"LENGTH({text})"),
                f"ROUND({one}, 2)",
                *(f"CAST({one} AS {kind})", f"CAST({text} AS {kind})", f"TRY_CAST({text} AS {kind})"),
                *(f"{part}({date})", f"EXTRACT({self.draw.choice(['dow', 'isodow', 'hour'])} FROM {date})"),
                f"CASE WHEN {self.condition(depth - 1)} THEN {one} ELSE {two} END",
                f"IF({self.condition(depth - 1)}, {one}, {two})",
                *(f"COALESCE({one}, {two})", f"NULLIF({one}, {two})"),
                *(f"GREATEST({one}, {two})", f"LEAST({one}, {two})"),
            ]
        )

    def text(self, depth):
        if depth <= 0:
            literals = ["'a'", "''", "'5'", "'e\u0301'", "'2020-01-01 12:34:56+01:'"]
            return self.draw.choice([*[self.column("text")] * 9, *literals])
        one, two = self.text(depth - 1), self.text(depth - 2)
        other = self.pick(lambda: self.number(depth - 1), lambda: self.date(depth - 1))
        return self.draw.choice(
            [
                *(f"{name}({one})" for name in ("LOWER", "UPPER", "TRIM")),
                *(f"SUBSTRING({one}, 1, 3)", f"SUBSTRING({one}, -2, 2)"),
                f"LEFT({one}, 2)",
                f"RIGHT({one}, 2)",
                *(f"({one} || {two})", f"CONCAT({one}, {two})", f"CAST({other} AS VARCHAR)"),
                *(f"COALESCE({one}, {two})", f"NULLIF({one}, {two})", f"GREATEST({one}, {two})"),
                f"CASE WHEN {self.condition(depth - 1)} THEN {one} ELSE {two} END",
            ]
        )

    def date(self, depth):
        if depth <= 0:
            return self.column("date") or "DATE '2020-02-29'"
        one, text = self.date(depth - 1), self.text(depth - 1)
        kind = self.draw.choice(["DATE", "TIMESTAMP"])
        return self.draw.choice(
            [
                *(one, f"CAST({text} AS {kind})", f"TRY_CAST({text} AS {kind})", f"CAST({one} AS {kind})"),
                f"COALESCE({one}, CAST({text} AS {kind}))",
            ]
        )

    def condition(self, depth):
        if self.draw.random() < 0.35:
            return self.draw.choice(PLAIN_CONDITIONS)
        kind = self.draw.choice(["number", "number", "text", "text", "date", "boolean"])
        if depth > 1 and self.draw.random() < 0.4:
            one, two = self.condition(depth - 1), self.condition(depth - 1)
            both, either = f"({one} AND {two})", f"({one} OR {two})"
            return self.draw.choice([both, either, either, f"NOT ({one})"])
        if kind == "boolean":
            held = self.column("boolean")
            inner = self.pick(lambda: self.text(depth - 1), lambda: self.number(depth - 1))
            return held if held and self.draw.random() < 0.5 else f"CAST({inner} AS BOOLEAN)"
        make = {"number": self.number, "text": self.text, "date": self.date}[kind]
        one, two = make(depth - 1), make(depth - 2)
        sign = self.draw.choice(["=", "<>", "<", "<=", ">", ">="])
        ways = [f"{one} {sign} {two}"] * 3
        ways += [f"{one} IS NULL", f"{one} IS NOT NULL"]
        ways += [f"{one} BETWEEN {two} AND {one}", f"{one} IN ({two}, {one})"]
        if kind == "text":
            pattern = self.draw.choice(["%a%", "_", "%", "a%", "%\\%", "é%"])
            ways += [f"{one} LIKE '{pattern}'", f"{one} ILIKE '{pattern}'", f"STARTS_WITH({one}, {two})"]
        return self.draw.choice(ways)

    def value(self, depth):
        return self.pick(
            lambda: self.number(depth),
            lambda: self.text(depth),
            lambda: self.date(depth),
            lambda: self.condition(depth),
        )

    def aggregate(self, *, grouped_openly):
        depth = self.draw.choice([0, 1, 1, 2])
        share = self.draw.choice(["0.1", "0.5", "0.99", "0", "1"])
        inner = self.bounded(depth)
        while not inner.count("t."):
            inner = self.bounded(depth)
        ways = [
            *("COUNT(*)", f"COUNT({self.value(depth)})", f"COUNT_IF({self.condition(depth + 1)})"),
            *(f"COUNT(DISTINCT {self.value(depth)})", f"SUM({inner})", f"AVG({inner})", f"SUM({inner})"),
            *(f"VARIANCE({inner})", f"VAR_POP({inner})", f"STDDEV({inner})", f"STDDEV_POP({inner})"),
        ]
        if not self.world.by_row:
            ways.append("COUNT(DISTINCT t.p)")
        if not grouped_openly:
            ways += [
                *(f"MEDIAN({inner})", f"MIN({inner})", f"MAX({inner})", f"QUANTILE_CONT({inner}, {share})"),
                f"PERCENTILE_CONT({share}) WITHIN GROUP (ORDER BY {inner})",
                *("MODE(t.c)", "MODE(t.n)", "TOP(t.c, 2)", "TOP(t.b, 2)"),
            ]
        found = self.draw.choice(ways)
        if self.draw.random() < 0.25 and found != "COUNT(DISTINCT t.p)":
            found += f" FILTER (WHERE {self.condition(2)})"
        return found

    def source(self):
        """What stands before, and what stands in FROM; the main relation is always called t."""
        ways = ["inner", "inner", "with", "deep", "public", "public", "self", "self", "second"]
        way = self.draw.choice(["plain"] * 4 + ways + ["individuals"] * 4 + ["several"] * 3)
        if way == "individuals" and not self.world.by_row:
            return self.individuals()
        if way == "several" and not self.world.by_row:
            return self.several()
        passed = ", ".join(f"t.{name}" for name in self.world.seen)
        keep = "" if self.world.by_row else "t.p, "
        if way in ("inner", "with", "deep"):
            kind = self.draw.choice(["number", "text", "date"])
            made = {"number": self.number, "text": self.text, "date": self.date}[kind](2)
            inner = f"SELECT {keep}{passed}, {made} AS e FROM t"
            inner += f" WHERE {self.condition(2)}" if self.draw.random() < 0.5 else ""
            if way == "deep":
                inner = f"SELECT {keep}{passed}, t.e FROM ({inner}) AS t WHERE {self.condition(2)}"
            self.extra.append(("t.e", kind))
            return (f"WITH w AS ({inner}) ", "w AS t") if way == "with" else ("", f"({inner}) AS t")
        if way == "public":
            self.extra += [("z.w", "number"), ("z.y", "text")]
            on = self.draw.choice(["t.c = z.c", "t.c = z.c", "t.x = z.w", "t.o = z.c"])
            return "", f"t {self.draw.choice(['', 'LEFT '])}JOIN z ON {on}"
        if way == "self" and not self.world.by_row:
            names = [name for name, kind in self.world.seen.items() if kind != "boolean"]
            matched = self.draw.sample(names, self.draw.choice([0, 1, 1, 2]))
            more = "".join(f" AND t.{name} = u.{name}" for name in matched)
            left = "t"
            if self.draw.random() < 0.5:
                held = self.column(self.draw.choice(["number", "number", "text", "date"])) or "t.x"
                held = f"t.{matched[0]}" if matched and self.draw.random() < 0.7 else held
                end = {"number": "1.0", "text": "'b'", "date": "DATE '2020-06-01'"}[dict(self.columns)[held]]
                sign = self.draw.choice([">=", "<", "<>"])
                left = f"(SELECT t.p, {passed} FROM t WHERE {held} {sign} {end}) AS t"
            self.extra += [("u.x", "number"), ("u.c", "text")]
            return "", f"{left} {self.draw.choice(['', 'LEFT '])}JOIN t AS u ON t.p = u.p{more}"
        if way == "second" and not self.world.by_row:
            self.extra += [("v.c", "text")]
            return "", f"t {self.draw.choice(['', 'LEFT '])}JOIN v ON t.p = v.p"
        return "", "t"

    def individuals(self):
        """Rows of individuals under the name t, with the columns of t as aggregates of its records."""
        names = list(self.world.seen)
        further = self.draw.sample(names, self.draw.choice([0, 0, 0, 1, 2]))
        items = [f"t.{name}" if name in further else f"{self.of_records(name)} AS {name}" for name in names]
        keys = ", ".join(["t.p", *(f"t.{name}" for name in further)])
        way = self.draw.choice(["t", "t", "t", "nested", "public", "self"])
        if way == "nested":
            passed = ", ".join(f"t.{name}" for name in names)
            source = f"(SELECT DISTINCT t.p, {passed} FROM t WHERE {self.condition(2)}) AS t"
        else:
            source = {"t": "t", "public": "t JOIN z ON t.c = z.c", "self": "t JOIN v ON t.p = v.p"}[way]
        where = f" WHERE {self.condition(2)}" if self.draw.random() < 0.5 else ""
        tests = ["COUNT(*) > 1", f"COUNT(DISTINCT {self.value(1)}) < 3", "BOOL_OR(t.x > 0)"]
        tests.append(f"{self.of_records('x')} > 0")
        having = f" HAVING {self.draw.choice(tests)}" if self.draw.random() < 0.3 else ""
        inner = f"SELECT t.p, {', '.join(items)} FROM {source}{where} GROUP BY {keys}{having}"
        if self.draw.random() < 0.3:
            return f"WITH w AS ({inner}) ", "w AS t"
        joined = " LEFT JOIN z ON t.c = z.c" if self.draw.random() < 0.15 else ""
        joined = " JOIN v ON t.p = v.p" if not joined and self.draw.random() < 0.15 else joined
        return "", f"({inner}) AS t{joined}"

    def several(self):
        """Rows of several tables under the name t: unions, and joins along a reference."""
        passed = ", ".join(f"t.{name}" for name in self.world.seen)
        way = self.draw.choice(["union", "union", "along", "inner"])
        if way == "union":
            parts = [f"SELECT t.p, {passed} FROM t WHERE {self.condition(1)}", f"SELECT t.p, {passed} FROM t"]
            parts += [f"SELECT t.p, {passed} FROM t JOIN v ON t.p = v.p"] if self.draw.random() < 0.3 else []
            self.draw.shuffle(parts)
            return "", f"({' UNION ALL '.join(parts)}) AS t"
        self.extra.append(("r.w", "number"))
        if way == "along":
            return "", "t JOIN v ON t.p = v.p JOIN r ON r.c = v.c"
        made = self.draw.choice(["COUNT(*)", "SUM(w)", "MIN(w)", "AVG(w)"])
        inner = f"SELECT p, {made} AS w FROM r GROUP BY p"
        return "", f"t {self.draw.choice(['', 'LEFT '])}JOIN ({inner}) AS r ON r.p = t.p"

    def of_records(self, name):
        """An aggregate of an individual's values of a column, of the same kind as the column."""
        kind, held = self.world.seen[name], f"t.{name}"
        order = self.pick(lambda: self.number(1), lambda: self.text(1), lambda: self.date(1))
        chosen = [f"MIN({held})", f"MAX({held})", f"ARG_MAX({held}, {order})"]
        chosen.append(f"FIRST({held} ORDER BY {order})")
        chosen.append(f"LAST({held} ORDER BY {order} DESC, t.c DESC)")
        if kind == "boolean":
            return self.draw.choice([f"BOOL_OR({held})", f"BOOL_AND({held})"])
        if kind == "number" and name in ("x", "b", "n"):
            made = self.bounded(1)
            made = made if "t." in made else held
            chosen += [f"SUM({made})", f"AVG({made})", f"SUM({held})", f"AVG({held})", "COUNT(*)"] * 2
            chosen += [f"COUNT(DISTINCT {self.value(1)})", f"COUNT({self.value(1)})"]
            chosen += [f"MIN({made})", f"MAX({made})"]
            chosen += [f"SUM({held}) / COUNT(*)", f"MAX({held}) - MIN({held})"]
        found = self.draw.choice(chosen)
        plain = "/" not in found and " - " not in found
        return f"{found} FILTER (WHERE {self.condition(1)})" if plain and self.draw.random() < 0.15 else found

    def doubled(self):
        """A text that is twice as long at every step, if a record fulfils a condition."""
        keep = "" if self.world.by_row else "t.p, "
        inner = f"SELECT {keep}CASE WHEN {self.condition(2)} THEN 'x' ELSE '' END AS e FROM t"
        for _ in range(25):
            inner = f"SELECT {keep}t.e || t.e AS e FROM ({inner}) AS t"
        return f"DP-SELECT 1 COUNT(t.e) AS a0 FROM ({inner}) AS t"

    def make(self):
        """A statement, and the number of its open keys."""
        self.extra = []
        if self.draw.random() < 0.002:
            return self.doubled(), 0
        before, source = self.source()
        where = f" WHERE {self.condition(3)}" if self.draw.random() < 0.45 else ""
        if not self.world.by_row and self.draw.random() < 0.2:
            test, either = self.draw.choice(TESTS), self.draw.choice(["AND", "AND", "OR"])
            where = f"{where} {either} {test}" if where else f" WHERE {test}"
        chance = self.draw.random()
        if chance < 0.06:
            listed = ", ".join(self.draw.sample(["t.c", "t.n", "t.b", "t.m"], self.draw.choice([1, 2])))
            return f"{before}DP-SELECT 1 {listed} FROM {source}{where}", 0
        keys, opened = [], chance > 0.85
        if opened:
            made = [f"LOWER({self.text(1)})", f"({self.text(1)} || {self.text(0)})"]
            keys = [self.draw.choice(["t.o", "t.o", *made])]
            if self.draw.random() < 0.3:
                keys.append("t.c")
        elif chance > 0.35:
            ways = ["t.c", "t.n", "t.b", "t.m", self.condition(2), f"MONTH({self.date(1)})"]
            ways += [f"CASE WHEN {self.condition(2)} THEN 'k' WHEN {self.condition(1)} THEN 'l' END"]
            ways += ["z.y"] if "JOIN z" in source else []
            ways += ["t.f"] if self.world.seen.get("f") == "boolean" else []
            keys = self.draw.sample(ways, self.draw.choice([1, 1, 2]))
        # Other keys may be open, too, where delta is given: what an inner query makes of public labels.
        delta = opened or self.draw.random() < 0.2
        opened = delta and bool(keys)
        made = [self.aggregate(grouped_openly=opened) for _ in range(self.draw.choice([1, 1, 2, 3]))]
        if opened:
            made.insert(0, "COUNT(*)" if self.world.by_row else "COUNT(DISTINCT t.p)")
        items = [f"{key} AS k{place}" for place, key in enumerate(keys)]
        items += [f"{each} AS a{place}" for place, each in enumerate(made)]
        group = f" GROUP BY {', '.join(f'k{place}' for place in range(len(keys)))}" if keys else ""
        price = "1"
        if delta:
            price = "1 DELTA 1e-7"
        elif self.draw.random() < 0.05:
            price = self.draw.choice(["WITHIN 50", "WITHIN 50", "WITHIN 90%"])
        after = ""
        if keys and not opened and self.draw.random() < 0.2 and made[0].startswith("COUNT"):
            after = self.draw.choice([" HAVING a0 > 1", " ORDER BY a0 DESC LIMIT 2", " ORDER BY k0"])
        text = f"{before}DP-SELECT {price} {', '.join(items)} FROM {source}{where}{group}{after}"
        return text, len(keys) if opened else 0

# fmt: on


def make_recipe(world, draw):
    """A recipe with small settings, and its delta."""
    recipes = sf.recipes
    by = draw.sample(["c", "n", "b", "m"], draw.choice([1, 2, 3]))
    gaussian = draw.random() < 0.5
    ways = [
        lambda: recipes.CellCounts(table="t", by=by, noise="gaussian" if gaussian else "laplace"),
        lambda: recipes.CellCounts(table="t", by=by, threshold=draw.choice([0, 2])),
        lambda: recipes.UserCounts(table="t", by=by, max_cells=draw.choice([None, 1, 2])),
        lambda: recipes.UserCounts(table="t", by=by, noise="gaussian" if gaussian else "laplace"),
        lambda: recipes.FieldGroups(table="t", groups=(("c", "n"), ("b", "m"))),
        lambda: recipes.CappedCounts(table="t", by=by),
        lambda: recipes.Map(table="t", by=("c", "m", "b")),
        lambda: recipes.AdaptiveGrid(table="t", outer=(("c", "n"), ("c", "b"))),
        lambda: recipes.Tree(table="t", columns=("c", "n", "b")),
        lambda: recipes.Adaptive(table="t", columns=("c", "n", "b")),
    ]
    weights = [3, 3, 3, 3, 2, 3, 1, 1, 1, 1]
    (way,) = draw.choices(ways, weights)
    try:
        recipe = way()
    except SfumatoError:
        recipe = recipes.CellCounts(table="t", by=by)
    needs = isinstance(recipe, (recipes.AdaptiveGrid, recipes.Tree, recipes.Adaptive)) or gaussian
    return RecipeTarget(
        recipe=recipe, epsilons=(Fraction(1),), delta=Fraction(1, 10**6) if needs else Fraction(0)
    )


@dataclass
class Opened(RecordingNoise):
    """A noise source that releases every open group, so that their values can be compared by name."""

    opened: bool = False

    def add_noise(self, values, *, kind, scale):
        if not self.opened or self.requests:
            return RecordingNoise.add_noise(self, values, kind=kind, scale=scale)
        exact = parse_positive(scale, name="scale")
        self.requests.append(NoiseRequest(kind=kind, scale=exact, true_values=np.sort(values)))
        self.answers.append((np.full(values.shape, TOLD), None))
        return np.full(values.shape, TOLD)


class Door:
    """The noise source of a curator, exchanged for every case."""

    def __init__(self):
        self.noise = None

    def __getattr__(self, name):
        return getattr(self.noise, name)


@dataclass
class Outcome:
    """What came of one case on one side."""

    noise: RecordingNoise
    error: str | None = None
    known: bool = True
    shown: object = None
    table: object = None
    charges: int = 0
    charged: tuple = ()
    declared: tuple = ()


class Side:
    """A curator of one folder, and what came of all cases."""

    def __init__(self, folder):
        self.door = Door()
        self.curator = Curator(read_project(folder / "sfumato.toml"), noise=self.door)
        self.outcomes = []

    def ask(self, case, *, opened=0, answers=None, mode="off"):
        noise = Opened(mode=mode, replay=answers or (), opened=bool(opened))
        self.door.noise = noise
        found, stages = Outcome(noise), []
        try:
            if isinstance(case, str):
                answer = self.curator.sql(case, progress=stages.append)
                found.table = answer.table
                found.shown = (repr(answer.table.to_pydict()), str(answer.table.schema), answer.spent)
            else:
                found.shown, found.declared = case.ask(self.curator, progress=stages.append)
        except SfumatoError as error:
            found.error = f"{type(error).__name__}: {error}"
        except Exception as error:  # what is not ours may quote a record
            found.error, found.known = f"{type(error).__name__}: {error}", False
        found.charges = stages.count("charging the ledger")
        self.outcomes.append(found)
        return found

    def read_charges(self):
        """Gives every outcome what the ledger was charged for it."""
        entries = [entry for entry in self.curator.budget().entries if entry.kind == "charge"]
        assert len(entries) == sum(each.charges for each in self.outcomes)
        for each in self.outcomes:
            mine, entries = entries[: each.charges], entries[each.charges :]
            each.charged = tuple(cost for entry in mine for cost in entry.costs)
            each.declared = each.declared or each.charged


def find_fault(one, two, *, opened, is_statement):
    """What tells two sides apart, or None."""
    for each in (one, two):
        if not each.known:
            return f"an error that is not ours: {each.error[:300]}"
    if one.error != two.error:
        return f"the outcome depends on the records: {str(one.error)[:200]!r} / {str(two.error)[:200]!r}"
    if one.charged != two.charged:
        return "the sides are charged differently"
    if one.error is not None and one.charged and (is_statement or one.error.startswith("SourceError")):
        return f"an error after the charge: {one.error[:300]}"
    if len(one.noise.requests) != len(two.noise.requests):
        return "the sides ask for noise a different number of times"
    if one.error is not None or not one.noise.requests:
        return None
    if len(one.declared) != len(one.noise.requests):
        return f"{len(one.noise.requests)} noisy answers, but {len(one.declared)} costs"
    if opened:
        return find_open_fault(one, two, keys=opened)
    for turn, (first, second, cost) in enumerate(
        zip(one.noise.requests, two.noise.requests, one.declared, strict=True)
    ):
        if first.terms != second.terms:
            return f"answer {turn}: different noise, {first.terms} / {second.terms}"
        wrong = find_other_noise(first, cost) or find_excess(first, measure_difference(first, second), cost)
        if wrong:
            return f"answer {turn}: {wrong}"
    if one.shown != two.shown:
        return "the output depends on more than the noisy answers"
    return None


def find_other_noise(asked, cost):
    kinds = {"sparse": ("laplace",), "laplace": ("laplace", "selection")}
    kinds |= {"choice": ("exponential",), "flip": ("permute-and-flip",)}
    if cost.kind not in kinds.get(asked.kind, (asked.kind,)):
        return f"noise of kind {asked.kind}, declared {cost.kind}"
    if asked.kind not in ("choice", "flip") and asked.scale != cost.scale:
        return f"noise of scale {asked.scale}, declared {cost.scale}"
    return None


def find_open_fault(one, two, *, keys):
    """As above, with groups known by name; a group that only one side has must hold one individual."""
    named = []
    for each in (one, two):
        columns = [each.table.column(place).to_pylist() for place in range(keys)]
        names = list(zip(*columns, strict=True))
        if len(set(names)) != len(names):
            return "two groups have one name"
        if any(asked.true_values.shape != (len(names),) for asked in each.noise.requests):
            return "groups were told that are not in the answer"
        named.append(names)
    lone = set(named[0]) ^ set(named[1])
    for turn, (first, second, cost) in enumerate(
        zip(one.noise.requests, two.noise.requests, one.declared, strict=True)
    ):
        if first.terms[:2] != second.terms[:2]:
            return f"answer {turn}: different noise"
        wrong = find_other_noise(first, cost)
        if wrong or turn == 0:  # the selection itself has no names; the first measure stands for it
            if wrong:
                return f"answer {turn}: {wrong}"
            continue
        values = [
            dict(zip(names, asked.true_values.tolist(), strict=True))
            for names, asked in zip(named, (first, second), strict=True)
        ]
        if turn == 1:
            if any(held[name] != 1 for held in values for name in lone if name in held):
                return "a group of several individuals is on one side only"
            moved = sum(
                abs(values[0].get(name, 0) - values[1].get(name, 0)) for name in {*values[0], *values[1]}
            )
            if moved > one.declared[0].sensitivity:
                return f"selection: individuals move by {moved}, declared {one.declared[0].sensitivity}"
        gaps = [values[0][name] - values[1][name] for name in set(named[0]) - lone]
        if cost.norm == "L2":
            if sum(gap * gap for gap in gaps) > cost.sensitivity**2:
                return f"answer {turn}: the square of an L2 distance is {sum(gap * gap for gap in gaps)}"
        elif sum(map(abs, gaps)) > cost.sensitivity:
            return f"answer {turn}: L1 distance {sum(map(abs, gaps))}, declared {float(cost.sensitivity):.6g}"
    return None


def find_change(one, again, *, opened):
    """What the order of rows or the size of their groups changed, or None."""
    if one.error != again.error or one.charged != again.charged:
        return (
            f"the outcome depends on the order of rows: {str(one.error)[:200]!r} / {str(again.error)[:200]!r}"
        )
    if one.error is None and one.shown != again.shown and not opened:
        return "the output depends on the order of rows"
    if len(one.noise.requests) != len(again.noise.requests):
        return "the order of rows changes how often noise is asked for"
    for turn, (first, second) in enumerate(zip(one.noise.requests, again.noise.requests, strict=True)):
        if first.terms != second.terms or measure_difference(first, second).amounts:
            return f"answer {turn}: the order of rows changes the exact values"
    return None


def run_world(name, *, cases, broken=0.15, counts=None):
    """The faults of one world; `counts` collects what was answered and what was refused."""
    world = make_world(name, broken=broken)
    folder = Path(tempfile.mkdtemp(prefix="fuzz-", dir="/dev/shm" if Path("/dev/shm").is_dir() else None))
    faults, ran = [], []
    counts = Counter() if counts is None else counts
    try:
        sides = [Side(place) for place in make_sides(world, folder)]
        ran += [run_case(world, sides, random.Random(f"case {name} {case}")) for case in range(cases)]
        for side in sides:
            side.read_charges()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    for case, (asked, opened, one, two, again) in enumerate(ran):
        what = find_fault(one, two, opened=opened, is_statement=isinstance(asked, str))
        if what is None and again is not None:
            what = find_change(one, again, opened=opened)
        if what is not None:
            told = asked if isinstance(asked, str) else repr(asked.recipe)
            faults.append(Fault(world=name, case=case, what=what, asked=f"{told}\n    {summary(world)}"))
        refused = f"refused: {one.error}" if not one.charged else "failed"
        counts["answered" if one.error is None else refused] += 1
    return faults


def is_open(curator, statement):
    """Whether the groups of a statement are chosen privately: what is computed of public labels is public."""
    try:
        return "chosen privately" in str(curator.sql(f"EXPLAIN {statement}"))
    except SfumatoError:
        return False


def run_case(world, sides, draw):
    """What is asked, and the outcomes on both sides; now and then also with the rows in another order."""
    is_statement = draw.random() < 0.95
    asked, opened = Statements(world, draw).make() if is_statement else (make_recipe(world, draw), 0)
    if opened and not is_open(sides[0].curator, asked):
        opened = 0
    one = sides[0].ask(asked, opened=opened)
    if one.error is not None and one.charges and not is_statement:
        one = sides[0].ask(asked, mode="on")  # exact answers may be more than a recipe was made for
    two = sides[1].ask(asked, opened=opened, answers=one.noise.answers)
    again = None
    # The third side is not asked each case: what was answered before is charged there.
    if one.error is None and draw.random() < 0.15 and one.charges:
        again = sides[2].ask(asked, opened=opened, answers=one.noise.answers)
    return asked, opened, one, two, again


def summary(world):
    facts = f"{world.format}, unit {world.unit_kind}, {world.neighbours}, max_records {world.max_records}"
    return f"{facts}, stored {world.stored}"


def run_cases(count, *, seed, each=10, progress=lambda done: None, broken=0.15, counts=None):
    """The faults of `count` cases, world by world."""
    for number in range(-(-count // each)):
        progress(number * each)
        yield from run_world(
            f"{seed}/{number}", cases=min(each, count - number * each), broken=broken, counts=counts
        )
