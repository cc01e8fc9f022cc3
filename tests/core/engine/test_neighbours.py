"""What one record must not do to the answer about all others, however strange it is.

Each test is a way in which a database let one record decide about others: by a failure, by what a reader
skipped, by a shortcut of its optimiser, by a byte read too far. Both neighbours are asked through the
curator with the noise off; they must fail or succeed alike and move by no more than was declared.
"""

import math
import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sfumato as sf
from helpers.projects import write_project as write_file
from sfumato.audit.noise_off import RecordingNoise
from sfumato.core.facts.project import read_project
from sfumato.curator import Curator


def write_project(folder, table, *, source="t.parquet", most=3):
    folder.mkdir()
    columns = {"g": {"values": ["a", "b", "c"]}}
    write_file(folder, columns, source=source, unit="p", max_records=most, epsilon=1000)
    if isinstance(table, bytes):
        (folder / source).write_bytes(table)
    else:
        pq.write_table(table, folder / source)
    return folder


def ask(folder, statement):
    """The exact values that were about to be noised, or the error, and whether anything was charged."""
    noise = RecordingNoise()
    curator = Curator(read_project(folder / "sfumato.toml"), noise=noise)
    try:
        curator.sql(statement)
    except sf.SfumatoError as error:
        return f"{type(error).__name__}: {error}", curator.budget().spent > 0
    return [each.true_values.tolist() for each in noise.requests], curator.budget().spent > 0


def as_text(values):
    """Texts of any bytes, as a file may hold them and Arrow would refuse to make them."""
    return pa.array(values, pa.binary()).view(pa.string())


NOTES = {
    "looks like records": "\n".join(f"{number},a,text" for number in range(20)),
    "looks like quoted records": "\n".join(f'{number},a,""text""' for number in range(20)),
    "breaks and commas": "x\n,y,\n" * 50,
    "many breaks": "\n" * 300,
    "breaks of two characters": "\r\n".join(f"{number},a,text" for number in range(20)),
}
LINES = 60_000


def long_file(note, *, without=None):
    """Over 8 MB of well-formed records with line breaks in quotes, two of each person."""
    rows = [
        f'{number // 2},{"abc"[number % 3]},"{note}"\n' for number in range(LINES) if number // 2 != without
    ]
    return ("p,g,note\n" + "".join(rows)).encode()


@pytest.mark.slow
@pytest.mark.parametrize("note", NOTES.values(), ids=NOTES)
def test_line_breaks_in_quotes_make_and_lose_no_record_of_a_long_file(tmp_path, note):
    content = long_file(note)
    assert len(content) > 8 * 2**20
    folder = write_project(tmp_path / "one", content, source="t.csv")
    assert ask(folder, "DP-SELECT 1 COUNT(*), COUNT(DISTINCT p) FROM t")[0] == [[LINES], [LINES // 2]]
    assert ask(folder, "DP-SELECT 1 g, COUNT(*) FROM t GROUP BY g")[0] == [[LINES // 3] * 3]


@pytest.mark.slow
@pytest.mark.parametrize("person", [0, 11_234])
@pytest.mark.parametrize("note", NOTES.values(), ids=NOTES)
def test_a_person_moves_a_long_file_by_their_own_records(tmp_path, note, person):
    statement = "DP-SELECT 1 COUNT(*) FROM t"
    (one, _), (two, _) = (
        ask(write_project(tmp_path / name, content, source="t.csv"), statement)
        for name, content in (("one", long_file(note)), ("two", long_file(note, without=person)))
    )
    assert one[0][0] - two[0][0] == 2


@pytest.mark.parametrize("rows", [2, 1000])
def test_the_records_of_one_do_not_hide_the_nan_of_others(tmp_path, rows):
    """A file states the least and the largest number of its parts, and leaves NaN out of both."""
    statement = (
        "DP-SELECT 1 COUNT(*) FROM (SELECT p, x FROM t WHERE x >= 1.0) a JOIN t b ON a.p = b.p AND a.x = b.x"
    )
    crowd = [(f"u{number}", math.nan) for number in range(400)]
    sides = []
    for name, mine in (("with", [("somebody", 0.5)]), ("without", [])):
        people, numbers = zip(*(*crowd, *mine), strict=True)
        table = pa.table({"p": people, "g": ["a"] * len(people), "x": numbers})
        folder = write_project(tmp_path / name, table)
        pq.write_table(table, folder / "t.parquet", row_group_size=rows)
        sides.append(ask(folder, statement)[0])
    assert abs(sides[0][0][0] - sides[1][0][0]) <= 3, sides


ODD = ["2020-01-01 12:34:56+01:", "2020-01-01 12:34:56+01:3", "2020-01-01T00:00:00-", "2020-01-0"]
AFTER = [
    *(" of somebody else, for sure", "x" * 32, "x" * 13, "30 of somebody", "9" * 48),
    *("", "0", ":30", "30", "1 12:00:00"),
]


@pytest.mark.parametrize("kind", ["DATE", "TIMESTAMP"])
@pytest.mark.parametrize("way", ["note", "note || ''", "TRIM(note)", "SUBSTRING(note, 1, 23)"])
def test_a_text_is_read_to_its_end_and_no_further(tmp_path, way, kind):
    """What follows a text in memory is another text, or its length: 32 is the number of a space."""
    statement = f"DP-SELECT 1 COUNT(*) FROM t WHERE CAST({way} AS {kind}) IS NOT NULL AND g = 'a'"
    for number, odd in enumerate(ODD):
        counts = []
        beside = [each for after in AFTER for each in (odd, after)] * 4
        for name, notes in (("alone", [odd] * 4 * len(AFTER)), ("beside", beside)):
            people = [f"u{place}" for place in range(len(notes))]
            groups = ["a" if name == "alone" or place % 2 == 0 else "b" for place in range(len(notes))]
            table = pa.table({"p": people, "g": groups, "note": notes})
            folder = write_project(tmp_path / f"{name}{number}", table)
            pq.write_table(table, folder / "t.parquet", use_dictionary=False)
            counts.append(ask(folder, statement)[0])
        assert counts[0] == counts[1], odd


BROKEN = [
    b"\xff",
    b"ok \xc3",
    b"\xed\xa0\x80",
    b"\xf4\x90\x80\x80",
    b"\xc0\x80",
    b"long enough to be apart \xfe\xff",
]


@pytest.mark.parametrize("broken", BROKEN)
@pytest.mark.parametrize(
    "statement",
    [
        "COUNT(note) FROM t",
        "COUNT(DISTINCT note) FROM t",
        "g, COUNT(*) FROM t GROUP BY g",
        "COUNT(*) FROM t WHERE LOWER(note) LIKE '%o%'",
        "COUNT(*) FROM t WHERE CAST(note AS INT) > 1 OR LENGTH(note) > 2",
    ],
)
def test_text_that_is_not_utf_8_fails_for_nobody(tmp_path, statement, broken):
    people = [*(f"u{number}" for number in range(20)), "odd"]
    notes = [*(f"note {number}".encode() for number in range(20)), broken]
    table = pa.table({"p": people, "g": as_text([b"a"] * 20 + [broken]), "note": as_text(notes)})
    (one, spent), (two, again) = (
        ask(write_project(tmp_path / name, each), f"DP-SELECT 1 {statement}")
        for name, each in (("with", table), ("without", table.slice(0, 20)))
    )
    assert spent
    assert again
    assert not isinstance(two, str)
    assert not isinstance(one, str), one
    assert sum(abs(a - b) for a, b in zip(one[0], two[0], strict=True)) <= 1


def test_text_that_is_not_utf_8_fails_for_no_recipe(tmp_path):
    table = pa.table({"p": ["u", "v"], "g": as_text([b"a", b"\xff"])})
    noise = RecordingNoise()
    folder = write_project(tmp_path / "one", table)
    Curator(read_project(folder / "sfumato.toml"), noise=noise).release(
        sf.recipes.CellCounts(table="t", by=("g",)), epsilon=1
    )
    assert [each.true_values.tolist() for each in noise.requests] == [[1, 0, 0]]


JOINED = """
import sys
sys.path.insert(0, {here!r})
from pathlib import Path
from test_neighbours import ask
joins = " ".join(f"JOIN t AS t{{n}} ON t0.p = t{{n}}.p" for n in range(1, 9))
print(ask(Path(sys.argv[1]), "DP-SELECT 1 COUNT(*) FROM t AS t0 " + joins)[0])
"""


def test_records_that_multiply_in_joins_are_bounded_before(tmp_path):
    """Twenty records in eight joins are 20^9 rows, of one individual; held to two records each, 2^9."""
    crowd = [f"u{number}" for number in range(50)]
    outcomes = []
    for name, mine in (("one", ["many"] * 20), ("two", [])):
        people = [*crowd, *mine]
        folder = write_project(tmp_path / name, pa.table({"p": people, "g": ["a"] * len(people)}), most=2)
        done = subprocess.run(
            [sys.executable, "-c", JOINED.format(here=str(Path(__file__).parent)), str(folder)],
            capture_output=True,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            timeout=60,
            check=True,
        )
        outcomes.append(done.stdout.strip())
    assert outcomes == ["[[52]]", "[[50]]"]
