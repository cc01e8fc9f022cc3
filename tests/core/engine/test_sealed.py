"""Sealed tables: a record is read, made plain and ordered by itself, whatever stands beside it."""

import codecs
import csv
import gzip
import random
from datetime import date
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from helpers.asking import cells
from helpers.projects import write_project
from sfumato.core.engine import textfile
from sfumato.core.engine.opening import LONGEST_RECORD
from sfumato.core.engine.sealed import NUMBER, Sealed, clean_column, seal_table
from sfumato.core.engine.source import find_files
from sfumato.core.engine.statements import StatementEngine
from sfumato.core.engine.textfile import read_text
from sfumato.core.errors import SchemaError, SourceError, UnsupportedQuery
from sfumato.core.facts.table import UNIT, parse_table


class Exact:
    """A stand-in for the noise that adds none and remembers what it was asked for."""

    def __init__(self):
        self.seen = []

    def add_noise(self, values, *, kind, scale):
        self.seen.append((kind, scale, values.copy()))
        return values.copy()

    def exponential_choice(self, scores, *, rate):
        raise AssertionError

    add_sparse_noise = exponential_choice


def open_with(folder, source, *, most=3, more=""):
    from sfumato.core.facts.project import read_project
    from sfumato.curator import Curator

    file = write_project(folder, {}, source=source, unit="p", max_records=most, epsilon=1e9, more=more)
    noise = Exact()
    return Curator(read_project(file), noise=noise), noise


def ask(folder, table, statement, *, most=3, more=""):
    """The exact value behind the one number of a statement."""
    folder.mkdir(exist_ok=True)
    pq.write_table(table, folder / "t.parquet", row_group_size=200)
    curator, noise = open_with(folder, "t.parquet", most=most, more=more)
    curator.sql(statement)
    ((_, _, values),) = noise.seen
    return int(values[0])


def read_rows(data, fields, *, folder, suffix=".csv", delimiter=",", encoding="utf-8", quoting=None):
    path = folder / f"t{suffix}"
    path.write_bytes(gzip.compress(data) if suffix.endswith(".gz") else data)
    names = tuple(f"f{index}" for index in range(fields))
    text = {"delimiter": delimiter, "encoding": encoding, "quoting": quoting}
    batches = read_text(path, columns=names, include=names, **text)
    return [row for batch in batches for row in zip(*(c.to_pylist() for c in batch.columns), strict=True)]


def close_quote(data, place):
    """Where the quote at a place is closed; None if it is not."""
    place += 1
    while (place := data.find(b'"', place)) >= 0:
        if data[place + 1 : place + 2] != b'"':
            return place
        place += 2
    return None


def read_plainly(data, fields, *, quoting, longest=LONGEST_RECORD):
    """The rule of the reader, one byte after another."""
    rows, start = [], 0
    while start < len(data):
        parts, place, whole = [], start, True
        stop = data.find(b"\n", start)
        line = data if quoting == "multiline" else data[: stop if stop >= 0 else len(data)]
        while True:
            first = place
            if quoting != "none" and data[place : place + 1] == b'"':
                closed = close_quote(line, place)
                whole &= closed is not None
                place = closed or (place if quoting == "line" else len(data))
            while place < len(data) and data[place] not in b",\n":
                place += 1
            parts.append(data[first:place])
            if data[place : place + 1] != b",":
                break
            place += 1
        length, empty = place + 1 - start, data[start:place] in (b"", b"\r")
        parts[-1] = parts[-1].removesuffix(b"\r")
        if (
            start
            and len(parts) == fields
            and length <= longest
            and not empty
            and (whole or quoting == "line")
        ):
            strip = [quoting != "none" and len(p) > 1 and p[:1] == p[-1:] == b'"' for p in parts]
            rows.append(
                tuple(
                    (p[1:-1].replace(b'""', b'"') if inner else p) or None
                    for p, inner in zip(parts, strip, strict=True)
                )
            )
        start = place + 1
    return rows


@pytest.mark.parametrize("quoting", ["line", "multiline", "none"])
@pytest.mark.parametrize("chunk", [3, 7, 2**23])
def test_where_a_record_ends_does_not_depend_on_how_much_is_read_at_once(
    tmp_path, monkeypatch, chunk, quoting
):
    monkeypatch.setattr(textfile, "_CHUNK", chunk)
    source = random.Random(chunk)
    for number in range(500):
        longest = 12 if number % 3 else LONGEST_RECORD
        monkeypatch.setattr(textfile, "LONGEST_RECORD", longest)
        body = bytes(source.choice(b'ab,"\n\r"x') for _ in range(source.randint(0, 40)))
        data = b"f0,f1\n" + body
        found = read_rows(data, 2, folder=tmp_path, quoting=quoting)
        assert found == read_plainly(data, 2, quoting=quoting, longest=longest), data


PIPES = b'p,note\n1,12" pipe\n2,"12"" pipe, red"\n3,"Big" Joe\n4,"open\n5,x\n6,"a\nb"\n7,y\n'


@pytest.mark.parametrize(
    ("suffix", "quoting", "notes"),
    [
        (".csv", "line", [b'12" pipe', b'12" pipe, red', b'"Big" Joe', b'"open', b"x", b'"a', b"y"]),
        (".csv", "multiline", [b'12" pipe', b'12" pipe, red', b'"Big" Joe', b'"open\n5,x\n6,"a', b"y"]),
        (".csv", "none", [b'12" pipe', b'"Big" Joe', b'"open', b"x", b'"a', b"y"]),
        (".tsv", None, [b'12" pipe', b'"Big" Joe', b'"open', b"x", b'"a', b"y"]),
    ],
)
def test_a_quote_within_a_field_is_text_and_one_that_opens_it_ends_with_the_line(
    tmp_path, suffix, quoting, notes
):
    found = read_rows(PIPES, 2, folder=tmp_path, suffix=suffix, quoting=quoting)
    assert [note for _, note in found if note != b'b"'] == notes


def test_an_open_quote_moves_nobody_else(tmp_path):
    """400 people behind it once went with it, where 3 records are declared."""
    lines = [f"u{person},plain" for person in range(400)]
    found = []
    for odd in ('odd,12" pipe', 'odd,"a"b"', 'odd,"12 pipe', 'odd,"'):
        # One that opens a field and is never closed is told from a line break only where lines are records.
        more = 'quoting = "line"' if odd in ('odd,"12 pipe', 'odd,"') else ""
        (tmp_path / "t.csv").write_text("\n".join(["p,note", odd, *lines, ""]))
        curator, noise = open_with(tmp_path, "t.csv", more=more)
        curator.sql("DP-SELECT 1 COUNT(*) FROM t")
        found.append(noise.seen[0][2].tolist()[0])
        (tmp_path / "ledger.db").unlink()
    assert found == [401] * 4


@pytest.mark.parametrize(
    ("header", "quoting", "names"),
    [
        ('p,"a\nb"\n', "multiline", ["p", "a\nb"]),
        ('p,"a, b"\n', None, ["p", "a, b"]),
        ('p,12" pipe\n', "line", ["p", '12" pipe']),
        ('p,"a\n', "none", ["p", '"a']),
        ('p,"a\nb"\n', "line", None),
        ('p,12" pipe\n', "multiline", None),
    ],
)
def test_the_quotes_of_a_header_mean_what_those_of_records_mean(tmp_path, header, quoting, names):
    (tmp_path / "t.csv").write_text(header)
    how = {"folder": tmp_path, "table": "t", "quoting": quoting}
    if names is None:
        with pytest.raises(SourceError, match=r'a quote in its header is not closed .* say quoting = "none'):
            find_files("t.csv", **how)
    else:
        assert list(find_files("t.csv", **how).columns) == names


@pytest.mark.parametrize(
    ("header", "remedy"), [("p,x,", "name that last column"), ("p,,x", "column 2 of 3 has none$")]
)
def test_a_header_that_ends_with_a_separator_is_refused_with_a_remedy(tmp_path, header, remedy):
    (tmp_path / "t.csv").write_text(f"{header}\n1,a,\n")
    with pytest.raises(SourceError, match=remedy):
        find_files("t.csv", folder=tmp_path, table="t")


def test_a_record_leaves_the_others_as_they_are(tmp_path):
    source = random.Random(5)
    pieces = [
        b'1,"a\nb"\n',
        b"2,plain\n",
        b'3,"say ""x"""\n',
        b'4,a"b"c\n',
        b"5\n",
        b"6,a,b\n",
        b"7,\xff\n",
        b"\n",
    ]
    for _ in range(200):
        records = [source.choice(pieces) for _ in range(12)]
        rule = {"folder": tmp_path, "quoting": "multiline"}
        whole = read_rows(b"f0,f1\n" + b"".join(records), 2, **rule)
        each = [row for record in records for row in read_rows(b"f0,f1\n" + record, 2, **rule)]
        assert whole == each


def test_a_well_formed_text_file_of_many_megabytes_is_read_as_it_is(tmp_path):
    """Line breaks in quotes, and lines within them that look like records."""
    rows = 120_000
    note = "first line\n7,second line looks like a record\nthird, with commas" + "x" * 120
    with (tmp_path / "t.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["p", "note"])
        for index in range(rows):
            writer.writerow([f"u{index}", note if index % 3 == 0 else "one line"])
        writer.writerow(["long", 'an "address" over\nlines' * 12])
    assert (tmp_path / "t.csv").stat().st_size > 2**23
    curator, noise = open_with(tmp_path, "t.csv", more='quoting = "multiline"')
    curator.sql("DP-SELECT 1 COUNT(*) FROM t")
    assert noise.seen[0][2].tolist() == [rows + 1]


def test_records_that_are_none_are_left_out_by_themselves(tmp_path):
    huge = b"9," + b"z" * (2 * LONGEST_RECORD) + b"\n"
    data = b"f0,f1\n1,a\n" + huge + b"2,b\n3\n4,a,b\n5,c\n"
    assert read_rows(data, 2, folder=tmp_path) == [(b"1", b"a"), (b"2", b"b"), (b"5", b"c")]
    quoted = b'9,"' + b"z\n" * LONGEST_RECORD + b'"\n'
    rule = {"folder": tmp_path, "quoting": "multiline"}
    assert read_rows(b"f0,f1\n1,a\n" + quoted + b"2,b\n", 2, **rule) == [(b"1", b"a"), (b"2", b"b")]
    assert read_rows(b'f0,f1\n1,a\n2,"never closed\n3,b\n', 2, **rule) == [(b"1", b"a")]


def test_other_encodings_and_packed_files(tmp_path):
    text = "f0,f1\n1,Süd\n2,\u20ac\n"
    for encoding in ("utf-16", "windows-1252"):
        rows = read_rows(text.encode(encoding), 2, folder=tmp_path, suffix=".csv.gz", encoding=encoding)
        assert rows == [(b"1", "Süd".encode()), (b"2", "\u20ac".encode())]
    (tmp_path / "t.csv").write_bytes("p,Süd\n1,a\n".encode("latin-1"))
    described = parse_table("t", {"source": "t.csv", "unit": "p", "max_records": 1})
    with pytest.raises(SourceError, match="encoding"):
        StatementEngine(tmp_path).describe(described)
    with pytest.raises(SchemaError, match="encoding must be one of"):
        parse_table("t", {"source": "t.csv", "unit": "row", "encoding": "hz"})


ODD_NAMES = {
    ("jsonl", "utf-8"): [b"q\\ud800", b"q\\udfff", b"q\\udcff", b"q\xff", b"q\xfe", b"q\xef\xbf\xbd", b"q?"],
    ("csv", "utf-8"): [b"q\xff", b"q\xfe", b"q\xed\xa0\x80", b"q\xef\xbf\xbd"],
    ("csv", "windows-1250"): [b"Jos\x81", b"Jos\x83", b"Jos\x88", b"Jos\xe9"],
    ("csv", "windows-1251"): [b"Jos\x98", b"Jos\x99"],
    ("csv", "windows-1252"): [b"Jos\x81", b"Jos\x8d", b"Jos\x90", b"Jos\xe9", b"Jos"],
    ("csv", "utf-16"): [b"q\0\0\xd8", b"q\0\xff\xdf", b"q\0\0\xd8\xff\xdf\0\xd8", b"q\0\xfd\xff", b"q\0"],
}


@pytest.mark.parametrize(("suffix", "encoding"), ODD_NAMES)
def test_names_that_are_no_text_stay_apart(tmp_path, suffix, encoding):
    names = ODD_NAMES[suffix, encoding]
    before, after = ('{"p": "', '"}\n') if suffix == "jsonl" else ("", ",1\n")
    encode = codecs.getincrementalencoder(encoding)()  # with one mark of byte order, at the start
    data = encode.encode("" if suffix == "jsonl" else "p,x\n")
    data += b"".join(2 * (encode.encode(before) + name + encode.encode(after)) for name in names)
    (tmp_path / f"t.{suffix}").write_bytes(data)
    curator, noise = open_with(tmp_path, f"t.{suffix}", most=2, more=f'encoding = "{encoding}"')
    curator.sql("DP-SELECT 1 COUNT(*) FROM t")
    assert noise.seen[0][2].tolist() == [2 * len(names)]


def test_half_a_pair_is_not_taken_for_bytes_that_are_no_text(tmp_path):
    (tmp_path / "t.jsonl").write_bytes(
        b'{"p": "q\\udcff", "x": "\xff"}\n{"p": "q\xff"}\n{"p": "q\xed\xb3\xbf"}\n{"p": "q\\udcff"}\n'
    )
    curator, noise = open_with(tmp_path, "t.jsonl", most=1)
    curator.sql("DP-SELECT 1 COUNT(*) FROM t")
    assert noise.seen[0][2].tolist() == [2]


ODD_TEXTS = [b"fine", b"x\xff", None, "é".encode() * 5, b"long" * 10, b"", b"\xed\xa0\x80", b"sha256 x"]


def test_a_name_that_spells_a_digest_is_not_whom_it_stands_for():
    long = "x" * 200
    (digest,) = clean_column(pa.array([long]), limit=100, keep_apart=True).to_pylist()
    assert len(digest) < 100
    names = clean_column(pa.array([long, digest, "sha256 "]), limit=100, keep_apart=True).to_pylist()
    assert names[0] == digest
    assert len(set(names)) == 3


def test_a_person_and_a_period_do_not_run_together(tmp_path):
    """Person 1 in period 12 is not person 11 in period 2, nor is any code read into a name."""
    lines = [f"{person},{period}" for person in (1, 11, 111) for period in range(1, 13)]
    (tmp_path / "t.csv").write_text("\n".join(["p,m", *lines]) + "\n")
    spec = {"source": "t.csv", "unit": ["p", "m"], "max_records": 1, "columns": {"m": {"range": [1, 12]}}}
    (counts,) = StatementEngine(tmp_path).count(parse_table("t", spec), cells((("m",),)), progress=print)
    assert counts.true_values.tolist() == [3] * 12


@pytest.mark.parametrize("keep_apart", [False, True])
def test_a_value_is_made_plain_by_itself(keep_apart):
    def as_text(values):
        raw = pa.array(values, pa.binary())
        return pa.Array.from_buffers(pa.string(), len(raw), raw.buffers(), raw.null_count)

    cleaned = clean_column(as_text(ODD_TEXTS), limit=6, keep_apart=keep_apart)
    cleaned.validate(full=True)
    alone = [clean_column(as_text([each]), limit=6, keep_apart=keep_apart)[0].as_py() for each in ODD_TEXTS]
    assert cleaned.to_pylist() == alone
    if keep_apart:
        assert len({each for each in alone if each is not None}) == len(ODD_TEXTS) - 1
    else:
        assert all(each is None or len(each) <= 6 for each in alone)


def test_decimals_of_more_digits_than_their_type_has_are_missing():
    stored = [1, 1 + 2**16, -9999, 10_000, 2**127 - 1, -(2**127)]
    data = b"".join(value.to_bytes(16, "little", signed=True) for value in stored)
    odd = pa.Array.from_buffers(pa.decimal128(4, 2), len(stored), [None, pa.py_buffer(data)])
    cleaned = clean_column(odd, limit=9).to_pylist()
    assert cleaned == [Decimal("0.01"), None, Decimal("-99.99"), None, None, None]


def test_numbers_and_moments_are_made_plain():
    odd = pa.array([1.5, float("nan"), float("inf"), float("-inf"), -0.0, None])
    cleaned = clean_column(odd, limit=9).to_pylist()
    assert cleaned == [1.5, None, np.finfo(np.float64).max, -np.finfo(np.float64).max, 0.0, None]
    assert not np.signbit(cleaned[4])
    for unit in ("s", "ms", "us", "ns"):
        moments = pa.array([0, None, 2**62, -(2**62)], pa.int64()).cast(pa.timestamp(unit))
        found = clean_column(moments, limit=9)
        assert found.type == pa.timestamp("us")
        assert found.cast(pa.int64()).to_pylist()[:2] == [0, None]
        assert (found.null_count == 3) == (unit != "ns")
    days = pa.array([0, 2**31 - 1, -(2**31) + 1], pa.int32()).cast(pa.date32())
    assert clean_column(days, limit=9).to_pylist() == [date(1970, 1, 1), None, None]


def seal(table, *, most, names=("x",), columns=None):
    described = parse_table(
        "t", {"source": "t.parquet", "unit": "p", "max_records": most, "columns": columns or {}}
    )
    from sfumato.core.engine.source import describe_stored

    stored = {field.name: describe_stored(field.type) for field in table.schema}
    return seal_table(described, stored, table.schema, table.to_batches(), names=frozenset(names))


def crowd_of(sealed, unit):
    ordered = sealed.order_crowd(frozenset(["x"]))
    return ordered.filter(pa.array([each == unit for each in ordered[UNIT].to_pylist()]))["x"].to_pylist()


@pytest.mark.parametrize("kind", [pa.int32(), pa.string()])
def test_the_order_of_an_individual_depends_on_its_own_records_alone(kind):
    source = random.Random(11)
    records = [(source.randint(0, 6), source.choice([None, 1, 2, 3])) for _ in range(300)]

    def sealed(chosen):
        table = pa.table(
            {
                "p": pa.array([p for p, _ in chosen]).cast(kind),
                "x": pa.array([x for _, x in chosen], pa.int64()),
            }
        )
        return seal(table, most=5)

    whole = sealed(records)
    assert set(whole.crowd[UNIT].to_pylist()) == {pa.scalar(p).cast(kind).as_py() for p in range(7)}
    for gone in range(7):
        shuffled = [each for each in records if each[0] != gone]
        source.shuffle(shuffled)
        without = sealed(shuffled)
        for unit in set(without.crowd[UNIT].to_pylist()):
            assert crowd_of(without, unit) == crowd_of(whole, unit)


def test_parts_hold_every_record_once(tmp_path):
    table = pa.table({"p": ["a"] * 4 + ["b"] * 2 + [None], "x": list(range(7))})
    sealed = seal(table, most=3)
    assert sorted(sealed.inside["x"].to_pylist()) == [4, 5]
    assert sorted(sealed.crowd["x"].to_pylist()) == [0, 1, 2, 3]
    assert sealed.individuals == 2
    assert NUMBER in sealed.inside.column_names
    assert "4" not in repr(sealed)
    assert repr(sealed).endswith("values withheld)")
    with pytest.raises(TypeError):
        __import__("pickle").dumps(sealed)


def test_many_records_are_kept_in_a_file_that_nobody_finds(tmp_path, monkeypatch):
    from sfumato.core.engine import sealed as module

    monkeypatch.setattr(module, "_IN_MEMORY", 1000)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    table = pa.table({"p": [each % 50 for each in range(2000)], "x": list(range(2000))})
    found: Sealed = seal(table, most=39)
    mapped = Path("/proc/self/maps").read_text()
    assert f"{tmp_path}/" in mapped  # its records are not in memory
    assert not [each for each in tmp_path.rglob("*") if each.is_file()]
    assert sorted(found.inside["x"].to_pylist() + found.crowd["x"].to_pylist()) == list(range(2000))
    del found
    assert f"{tmp_path}/" not in Path("/proc/self/maps").read_text()


def test_a_table_is_sealed_once_until_it_changes(tmp_path, monkeypatch):
    from sfumato.core.engine import duckdb as module

    calls = []
    original = module.seal_fetched

    def seal(*args, rows=True):
        if rows:  # the dry run seals a table without records
            calls.append(args)
        return original(*args, rows=rows)

    monkeypatch.setattr(module, "seal_fetched", seal)

    def count(statement):
        calls.clear()
        curator.sql(statement)
        return len(calls)

    pq.write_table(pa.table({"p": [1, 2], "x": [1.0, 2.0], "y": [1, 2]}), tmp_path / "t.parquet")
    curator, noise = open_with(tmp_path, "t.parquet")
    assert count("DP-SELECT 1 COUNT(*) FROM t WHERE x > 1") == 1
    assert count("DP-SELECT 2 COUNT(*) FROM t WHERE x > 0") == 0
    assert count("DP-SELECT 2 COUNT(*) FROM t WHERE y > 0") == 1
    assert count("DP-SELECT 2 COUNT(*) FROM t WHERE x + y > 0") == 0
    pq.write_table(pa.table({"p": [1, 2, 3], "x": [1.0, 2.0, 3.0], "y": [1, 2, 3]}), tmp_path / "t.parquet")
    assert count("DP-SELECT 2 COUNT(*) FROM t WHERE x > 1") == 1
    assert noise.seen[-1][2].tolist() == [2]


def test_a_sealed_table_may_be_kept_for_later_runs(tmp_path, monkeypatch):
    from sfumato.core.engine import duckdb as module

    (tmp_path / "t.csv").write_text("p,x\n1,5\n1,6\n1,7\n1,8\n2,9\n")
    more = 'sealed = "file"\n[tables.t.columns.x]\nrange = [0, 9]'

    def count(statement):
        reads = []
        original = module.seal_table
        with monkeypatch.context() as patch:
            patch.setattr(
                module, "seal_table", lambda *args, **facts: reads.append(1) or original(*args, **facts)
            )
            curator, noise = open_with(tmp_path, "t.csv", more=more)
            curator.sql(statement)
        return len(reads) - 1, int(noise.seen[0][2][0])

    assert count("DP-SELECT 1 COUNT(*) FROM t WHERE x > 5") == (1, 4)
    assert count("DP-SELECT 2 COUNT(*) FROM t WHERE x > 5") == (0, 4)
    folder = tmp_path / ".sfumato"
    assert all(each.stat().st_mode & 0o077 == 0 for each in (folder, *folder.iterdir()) if each.is_dir())
    assert (folder / ".gitignore").read_text() == "*\n"
    (tmp_path / "t.csv").write_text("p,x\n1,5\n1,6\n")
    assert count("DP-SELECT 2 COUNT(*) FROM t WHERE x > 5") == (1, 1)
    for each in folder.rglob("inside.arrow"):
        each.write_bytes(b"spoiled")
    assert count("DP-SELECT 3 COUNT(*) FROM t WHERE x > 5") == (1, 1)


def test_texts_that_double_stay_short_and_change_no_outcome(tmp_path):
    inner = "(SELECT p, CASE WHEN p = 'u1' AND fee >= 64 THEN 'x' ELSE '' END AS s FROM t) AS a0"
    for depth in range(1, 28):
        inner = f"(SELECT p, s || s AS s FROM {inner}) AS a{depth}"
    found = []
    for fee in (10.0, 90.0):
        table = pa.table({"p": ["u1", "u2"], "fee": [fee, 5.0]})
        folder = tmp_path / str(fee)
        try:
            found.append(ask(folder, table, f"DP-SELECT 1e-6 COUNT(*) FROM {inner} WHERE LENGTH(s) >= 0"))
        except UnsupportedQuery as error:
            found.append(str(error))
    assert found[0] == found[1]
    short = "SELECT p, s || s AS s FROM (SELECT p, CONCAT(x, x) AS s FROM t) AS a"
    table = pa.table({"p": ["u1"], "x": ["y" * 900]})
    assert (
        ask(tmp_path / "short", table, f"DP-SELECT 1 COUNT(*) FROM ({short}) AS b WHERE LENGTH(s) = 1000")
        == 1
    )


def test_what_a_join_may_make_of_one_individual_is_bounded(tmp_path):
    table = pa.table({"p": ["a"] * 8 + ["b"], "x": list(range(9))})
    joins = "".join(f" JOIN t a{index} ON a0.p = a{index}.p" for index in range(1, 9))
    with pytest.raises(UnsupportedQuery, match="rows of one individual"):
        ask(tmp_path / "many", table, f"DP-SELECT 1 COUNT(*) FROM t a0{joins}", most=8)
    # Of each individual at most max_records records enter, and at most as many rows count.
    assert ask(tmp_path / "two", table, "DP-SELECT 1 COUNT(*) FROM t a JOIN t b ON a.p = b.p", most=3) == 4


def test_public_rows_that_repeat_a_key_are_counted_into_that_bound(tmp_path):
    pq.write_table(pa.table({"k": [1] * 2000, "z": list(range(2000))}), tmp_path / "names.parquet")
    more = '[tables.names]\npublic = true\nsource = "names.parquet"'
    table = pa.table({"p": ["a"], "k": [1]})
    once = "DP-SELECT 1 COUNT(*) FROM t JOIN names n ON t.k = n.k"
    assert ask(tmp_path, table, once, most=3, more=more) == 3
    with pytest.raises(UnsupportedQuery, match="rows of one individual"):
        ask(tmp_path, table, f"{once} JOIN names m ON t.k = m.k", most=3, more=more)


def test_how_values_are_written_is_part_of_the_schema(tmp_path):
    (tmp_path / "t.csv").write_bytes(
        b'p;day;fee;stamp;sex\n1;31.12.2025;"1.234,50";1767139200;\n2;01.02.2025;7,25;bad;f\n3;12/31/2025;x;;NA\n'
    )
    columns = {
        "month": {"from": "day", "period": "month", "format": "%d.%m.%Y"},
        "fee": {"bins": [0, 10, 2000], "decimal": ","},
        "year": {"from": "stamp", "period": "year", "range": [2025, 2026], "format": "epoch"},
        "sex": {"values": ["f", "m"], "missing": ["NA"], "missing_label": "unknown"},
    }
    described = parse_table("t", {"source": "t.csv", "unit": "row", "columns": columns})
    engine = StatementEngine(tmp_path)

    def count(name):
        engine.check(described, ((name,),))
        (counts,) = engine.count(described, cells(((name,),)), progress=lambda _: None)
        return counts.true_values.tolist()

    assert count("month") == [0, 1, *[0] * 9, 1]
    assert count("fee") == [1, 1]
    assert count("year") == [1, 0]
    assert described.column("sex").labels == ("f", "m", "unknown")
    assert count("sex") == [1, 0, 2]
    for wrong in (
        {"format": "%Q"},
        {"format": "no sign"},
        {"decimal": ";"},
        {"values": ["a"], "missing_label": "a"},
        {"missing": "NA"},
        {"missing_label": "x"},
    ):
        with pytest.raises(SchemaError):
            parse_table("t", {"source": "t.csv", "unit": "row", "columns": {"c": wrong}})


@pytest.mark.parametrize(
    ("form", "text"),
    [("%d.%m.%Y", "01.12.2025"), ("%m/%d/%Y %I:%M %p", "12/31/2025 11:22 PM"), ("%d-%b-%y", "31-Dec-25")],
)
def test_a_date_in_a_format_is_read_from_its_own_text(form, text):
    columns = {"m": {"from": "x", "period": "month", "format": form, "outside": "other"}}
    texts = [text[:stop] + end for stop in range(len(text) + 1) for end in ("", " ", "x" * 14)]

    def codes(values):
        table = pa.table({"p": list(range(len(values))), "x": values})
        sealed = seal(table, most=1, names=["code of m"], columns=columns)
        return sealed.inside["code of m"].to_pylist()

    alone = [codes([each])[0] for each in texts]
    assert alone.count(11) >= 1
    for other in ("0", "25", " PM", "ec-25", "9" * 20):
        assert codes([each for one in texts for each in (one, other)])[::2] == alone


def test_narrow_types_do_not_overflow(tmp_path):
    table = pa.table({"c": pa.array([45, -90, 90, -128], pa.int8())})
    pq.write_table(table, tmp_path / "t.parquet")
    described = parse_table(
        "t", {"source": "t.parquet", "unit": "row", "columns": {"c": {"range": [-90, 90]}}}
    )
    (counts,) = StatementEngine(tmp_path).count(described, cells((("c",),)), progress=lambda _: None)
    assert np.flatnonzero(counts.true_values).tolist() == [0, 135, 180]


def test_how_many_individuals_there_are_does_not_change_an_order():
    # Their hashes agree in the bits that so many individuals leave free, and not in all.
    values = [25478142, 16385758]

    def order(people):
        rows = [(person, value) for person in people for value in values]
        table = pa.table({"p": pa.array([p for p, _ in rows], pa.int32()), "x": [x for _, x in rows]})
        return crowd_of(seal(table, most=1), 0)

    # So many that the bits their numbers leave are fewer than those that the two hashes share.
    assert order([0]) == order(range(200))


def test_files_that_do_not_belong_together_are_not_taken_for_a_sealed_table(tmp_path):
    from sfumato.core.engine.sealed import load_sealed, save_sealed

    parts = []
    for name in ("one", "two"):
        table = pa.table({"p": [1, 1, 2], "x": [1, 2, 3]})
        save_sealed(seal(table, most=1), tmp_path / "kept" / name, facts="f")
        parts.append(tmp_path / "kept" / name)
    assert load_sealed(parts[0], facts="f") is not None
    assert load_sealed(parts[0], facts="g") is None
    (parts[1] / "crowd.arrow").replace(parts[0] / "crowd.arrow")
    assert load_sealed(parts[0], facts="f") is None


def test_described_columns_that_differ_in_case_only_are_refused():
    columns = {"G": {"values": ["a", "b", "c", "d"]}, "g": {"values": ["a", "b"]}}
    with pytest.raises(SchemaError, match="differ in case only"):
        parse_table("t", {"source": "t.csv", "unit": "row", "columns": columns})


def test_numbers_of_a_range_are_compared_with_all_their_decimals(tmp_path):
    (tmp_path / "t.csv").write_text("p,fee\n1,50.5\n2,99.9\n3,12.1\n4,80\n")
    curator, noise = open_with(tmp_path, "t.csv", more="[tables.t.columns.fee]\nrange = [0, 100]")
    curator.sql("DP-SELECT 1 COUNT(*) FROM t WHERE fee > 50")
    assert noise.seen[0][2].tolist() == [3]
