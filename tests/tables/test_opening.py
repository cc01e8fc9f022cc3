"""Files as they come: every format gives the same records, and no record changes another."""

import gzip
import json
import zipfile
from xml.sax.saxutils import escape

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sfumato as sf
from helpers.projects import project_text
from sfumato.core.engine.opening import LONGEST_RECORD, open_text, spell_sheet
from sfumato.core.errors import SourceError
from sfumato.tables.read import read_table

ROWS = [
    {"person": "p1", "region": "north, old", "born": "2001-02-28", "fee": "12.50"},
    {"person": "p2", "region": 'a "b"\nc', "born": None, "fee": "7"},
    {"person": "p3", "region": "Süd", "born": "1999-12-31", "fee": None},
]
NAMES = list(ROWS[0])
MAIN = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
LINKS = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"


def write_zip(path, **members):
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return path


def write_book(path, rows, *, sheets=("visible",), shared=(), styles="", properties=""):
    """A workbook whose first sheet has `rows`, each the XML of its cells."""
    listed = "".join(
        f'<sheet name="s{place}" sheetId="{place}" state="{state}" r:id="r{place}"/>'
        for place, state in enumerate(sheets, start=1)
    )
    links = "".join(
        f'<Relationship Id="r{place}" Target="worksheets/s{place}.xml"/>'
        for place in range(1, len(sheets) + 1)
    )
    body = "".join(f"<row>{cells}</row>" for cells in rows)
    texts = "".join(f"<si>{each}</si>" for each in shared)
    return write_zip(
        path,
        **{
            "xl/workbook.xml": f'<workbook xmlns="{MAIN}" xmlns:r="{LINKS}">{properties}'
            f"<sheets>{listed}</sheets></workbook>",
            "xl/_rels/workbook.xml.rels": f'<Relationships xmlns="x">{links}</Relationships>',
            "xl/sharedStrings.xml": f'<sst xmlns="{MAIN}">{texts}</sst>',
            "xl/styles.xml": f'<styleSheet xmlns="{MAIN}">{styles}</styleSheet>',
            "xl/worksheets/s1.xml": f'<worksheet xmlns="{MAIN}"><sheetData>{body}</sheetData></worksheet>',
        },
    )


def text_cell(value):
    return "<c/>" if value is None else f'<c t="inlineStr"><is><t>{escape(value)}</t></is></c>'


def spell_lines(rows):
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def spell_csv(rows):
    quoted = [
        ",".join('"' + (value or "").replace('"', '""') + '"' for value in row.values()) for row in rows
    ]
    return "\n".join([",".join(NAMES), *quoted, ""]).encode()


def write_as(folder, name, rows=ROWS):
    path = folder / name
    if name.endswith(".xlsx"):
        cells = [dict(zip(NAMES, NAMES, strict=True)), *rows]
        return write_book(path, ["".join(map(text_cell, row.values())) for row in cells])
    content = spell_lines(rows) if "json" in name else spell_csv(rows)
    if name.endswith(".zip"):
        return write_zip(path, **{name.removesuffix(".zip"): content, "__MACOSX/._x": b"", "a/": b""})
    path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    return path


@pytest.mark.parametrize(
    "name", ["t.csv", "t.csv.gz", "t.csv.zip", "t.jsonl", "t.ndjson.gz", "t.jsonl.zip", "t.xlsx"]
)
def test_every_format_gives_the_same_records(name, tmp_path):
    path = write_as(tmp_path, name)
    assert read_table(path, side="table").to_pylist() == ROWS
    assert read_table(path, side="table", columns=["fee"]).column_names == ["fee"]
    # And where records are counted; the noise of epsilon 1000 is none.
    (tmp_path / "sfumato.toml").write_text(
        f'[budget]\nepsilon = 5000\n[tables.t]\nsource = "{name}"\nunit = "person"\nmax_records = 1\n'
        '[tables.t.columns]\nregion = { values = ["Süd", "north, old", "a \\"b\\"\\nc"] }\n'
        'born = { period = "year", range = [1999, 2002] }\nfee = { bounds = [0, 20] }\n'
    )
    curator = sf.open(tmp_path / "sfumato.toml")
    found = curator.sql(
        "DP-SELECT 1000 region, COUNT(*) AS n FROM t GROUP BY region ORDER BY region"
    ).to_arrow()
    assert dict(zip(found["region"].to_pylist(), found["n"].to_pylist(), strict=True)) == {
        row["region"]: 1 for row in ROWS
    }
    total = curator.sql("DP-SELECT 1000 SUM(fee) AS s FROM t").to_arrow()["s"][0].as_py()
    assert abs(total - 19.5) < 1  # fifty times the scale of its noise


def test_lines_are_read_each_by_itself(tmp_path):
    path = tmp_path / "t.jsonl"
    long = json.dumps({"a": "x" * LONGEST_RECORD})
    lines = [
        '\ufeff{"a": 1.50, "b": true}',
        '{"a": 12345678901234567890123, "c": 3}',
        '{"a": NaN, "b": [1]}',
        "[1, 2]",
        "{broken",
        "[" * 100_000,
        long,
        '{"b": false, "a": "\\ud800x"}',
        "",
        '{"a": {"b": 1}, "b": "last"}',
    ]
    path.write_text("\n".join(lines), encoding="utf-8")
    with open_text(path, names=("a", "b")) as file:
        spelled = file.read().decode(errors="surrogatepass")
    assert spelled.splitlines() == [
        '"a","b"',
        '"1.50","true"',
        '"12345678901234567890123",""',
        '"",""',
        '"\ud800x","false"',
        '"","last"',
    ]


def test_which_keys_a_line_has_is_never_told(tmp_path):
    """A description of a column that the first line lacks is no error, nor is one that no line has."""
    path = tmp_path / "t.jsonl"
    answers = []
    for first in ({"a": "x"}, {"b": "y"}, {"c": "z"}):
        path.write_bytes(spell_lines([first, {"a": "x", "b": "y"}]))
        (tmp_path / "sfumato.toml").write_text(
            '[budget]\nepsilon = 1\n[tables.t]\nsource = "t.jsonl"\nunit = "row"\n'
            '[tables.t.columns]\na = { values = ["x"] }\nb = { values = ["y"] }\n'
        )
        curator = sf.open(tmp_path / "sfumato.toml")
        answers.append((curator.describe_table("t"), curator.describe("DP-SELECT 1 COUNT(b) AS n FROM t")))
        with pytest.raises(sf.UnsupportedQuery):
            curator.sql("DP-SELECT 1 COUNT(c) AS n FROM t")
    assert answers[0] == answers[1] == answers[2]
    assert answers[0][0] == {"a": "text", "b": "text"}


def test_separators_in_names_do_not_mislead(tmp_path):
    path = tmp_path / "t.jsonl"
    path.write_bytes(spell_lines([{"a;b;c": "1", "d|e|f|g": "2"}]))
    assert read_table(path, side="table").to_pylist() == [{"a;b;c": "1", "d|e|f|g": "2"}]


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ({}, "holds 0 files"),
        ({"a.csv": b"x\n1\n", "b.csv": b"x\n2\n"}, "holds 2 files and should hold one"),
        ({"a.parquet": b"x"}, "must hold a .csv, .tsv or .jsonl file"),
    ],
)
def test_an_archive_holds_one_file(members, message, tmp_path):
    with pytest.raises(SourceError, match=message):
        read_table(write_zip(tmp_path / "t.zip", **members), side="table")


def test_cells_are_what_a_text_file_would_have(tmp_path):
    cells = [
        '<c r="A2"><v>45000</v></c>',  # a number, and the same as a date
        '<c r="A2" s="1"><v>45000</v></c>',
        '<c r="A2" s="1"><v>45000.75</v></c>',
        '<c r="A2" s="2"><v>0.5</v></c>',
        '<c r="A2" s="1"><v>59</v></c>',
        '<c r="A2" s="1"><v>61</v></c>',
        '<c r="A2" s="1"><v>-3</v></c>',
        '<c r="A2" s="1"><v>1E300</v></c>',
        '<c r="A2" s="3"><v>1.5</v></c>',  # [Red]0.0 "days" is no format of dates
        '<c r="A2"><v>3.0</v></c>',
        '<c r="A2"><v>0.30000000000000004</v></c>',
        '<c r="A2" t="b"><v>1</v></c>',
        '<c r="A2" t="e"><v>#N/A</v></c>',
        '<c r="A2" t="s"><v>0</v></c>',
        '<c r="A2" t="s"><v>99</v></c>',
        '<c r="A2" t="str"><f>A1</f><v>made</v></c>',
        '<c r="C2"><v>7</v></c><c r="D2"><v>beyond</v></c>',
    ]
    styles = (
        '<numFmts><numFmt numFmtId="170" formatCode="[Red]0.0 &quot;days&quot;"/>'
        '<numFmt numFmtId="171" formatCode="hh:mm"/></numFmts>'
        '<cellXfs><xf numFmtId="0"/><xf numFmtId="14"/><xf numFmtId="171"/><xf numFmtId="170"/></cellXfs>'
    )
    header = "".join(map(text_cell, ["a", "b", "c"]))
    shared = ["<r><t>rich </t></r><r><t>text</t></r><rPh><t>spoken</t></rPh>"]
    path = write_book(tmp_path / "t.xlsx", [header, *cells, "<c/>", ""], shared=shared, styles=styles)
    rows = list(spell_sheet(path))
    assert rows.pop(0) == ["a", "b", "c"]
    assert rows.pop() == ["", "", "7"]
    assert [row[0] for row in rows] == [
        "45000", "2023-03-15", "2023-03-15 18:00:00", "12:00:00", "1900-02-28", "1900-03-01", "1.5", "3",
        "0.30000000000000004", "true", "rich text", "made",
    ]  # fmt: skip
    late = write_book(
        tmp_path / "l.xlsx", [header, cells[1]], styles=styles, properties='<workbookPr date1904="1"/>'
    )
    assert list(spell_sheet(late))[1][0] == "2027-03-16"


def test_a_workbook_has_one_visible_sheet(tmp_path):
    rows = [text_cell("a"), text_cell("1")]
    path = write_book(tmp_path / "t.xlsx", rows, sheets=("visible", "hidden", "veryHidden"))
    assert read_table(path, side="table").to_pylist() == [{"a": "1"}]
    with pytest.raises(SourceError, match="has 2 visible sheets and should have one"):
        read_table(write_book(tmp_path / "u.xlsx", rows, sheets=("visible", "visible")), side="table")


@pytest.mark.parametrize("name", ["t.jsonl", "t.xlsx", "t.zip"])
def test_damaged_files_and_other_encodings_are_refused_before_a_charge(name, tmp_path):
    (tmp_path / "sfumato.toml").write_text(
        f'[budget]\nepsilon = 1\n[tables.t]\nsource = "{name}"\nunit = "row"\nencoding = "latin-1"\n'
        '[tables.t.columns]\nregion = { values = ["a"] }\n'
    )
    curator = sf.open(tmp_path / "sfumato.toml")
    recipe = sf.recipes.CellCounts(table="t", by=("region",))
    if name == "t.zip":
        (tmp_path / name).write_bytes(b"PK no archive")
    else:
        write_as(tmp_path, name)
    message = "cannot be read as zip" if name == "t.zip" else "leave encoding and quoting out"
    with pytest.raises(SourceError, match=message):
        curator.release(recipe, epsilon=1)
    assert not (tmp_path / "ledger.db").exists()


def spend_on(curator, how, *, epsilon=1):
    recipe = sf.recipes.CellCounts(table="t", by=("fee",))
    asks = {
        "release": lambda: curator.release(recipe, epsilon=epsilon),
        "statement": lambda: curator.sql(f"DP-SELECT {epsilon} COUNT(*) FROM t"),
    }
    return asks[how]()


@pytest.mark.parametrize("how", ["release", "statement"])
@pytest.mark.parametrize("name", ["t.csv.gz", "t.zip", "t.xlsx"])
def test_a_packed_file_that_is_damaged_behind_its_header_is_refused_before_a_charge(name, how, tmp_path):
    many = [{**ROWS[0], "region": str(each) * 500} for each in range(1_200)]
    path = write_as(tmp_path, name, many)
    if name == "t.zip":
        write_zip(path, **{"t.csv": spell_csv(many)})
    (tmp_path / "sfumato.toml").write_text(
        f'[budget]\nepsilon = 2\n[tables.t]\nsource = "{name}"\nunit = "row"\n[tables.t.columns]\n'
        'fee = { values = ["7"] }\n'
    )
    whole = path.read_bytes()
    # A digit of a late record; where all is packed small, of the sum at the end.
    place = len(whole) - 8 if name.endswith(".gz") else whole.rindex(b"1199") + 1
    path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
    curator = sf.open(tmp_path / "sfumato.toml")
    with pytest.raises(SourceError, match="is damaged: it cannot be unpacked to its end") as refused:
        spend_on(curator, how)
    assert "119" not in str(refused.value)
    # What does not fit is refused without a look at the file.
    with pytest.raises(sf.BudgetExceeded):
        spend_on(curator, how, epsilon=3)
    assert curator.budget().spent == 0
    path.write_bytes(whole)
    assert spend_on(curator, how) is not None
    assert curator.budget().spent == 1


def cut_sheet(path):
    """Leaves an archive whose sums are right, and in it a sheet that breaks off."""
    with zipfile.ZipFile(path) as archive:
        members = {each: archive.read(each) for each in archive.namelist()}
    sheet = members["xl/worksheets/s1.xml"]
    write_zip(path, **members | {"xl/worksheets/s1.xml": sheet[: len(sheet) * 2 // 3]})


def spoil_pages(path):
    """Overwrites pages before the last ones, and leaves the footer."""
    whole = path.read_bytes()
    start = pq.ParquetFile(path).metadata.row_group(2).column(1).data_page_offset
    path.write_bytes(whole[:start] + b"\xff" * 400 + whole[start + 400 :])


@pytest.mark.parametrize("how", ["release", "statement"])
@pytest.mark.parametrize(("name", "spoil"), [("t.xlsx", cut_sheet), ("t.parquet", spoil_pages)])
def test_a_file_that_is_damaged_where_its_records_stand_is_refused_before_a_charge(
    name, spoil, how, tmp_path
):
    many = [{**ROWS[0], "region": f"{each:04}" * 500} for each in range(1_200)]
    path = tmp_path / name
    if name == "t.parquet":
        pq.write_table(pa.Table.from_pylist(many), path, row_group_size=300)
    else:
        write_as(tmp_path, name, many)
    (tmp_path / "sfumato.toml").write_text(project_text({"fee": {"values": ["7"]}}, source=name, epsilon=2))
    whole = path.read_bytes()
    spoil(path)
    curator = sf.open(tmp_path / "sfumato.toml")
    with pytest.raises(SourceError, match="is damaged: it cannot be unpacked to its end"):
        spend_on(curator, how)
    assert curator.budget().spent == 0
    path.write_bytes(whole)
    assert spend_on(curator, how) is not None
    assert curator.budget().spent == 1


@pytest.mark.parametrize("first", ['{"a": 1}', "{}", '{"A": 1, "a": 2}', '{"a": 1, "": 2}'])
def test_no_record_says_which_columns_a_table_has_that_names_none(tmp_path, first):
    (tmp_path / "t.jsonl").write_text(f'{first}\n{{"b": 2}}\n')
    (tmp_path / "sfumato.toml").write_text(
        '[budget]\nepsilon = 1000\n[tables.t]\nsource = "t.jsonl"\nunit = "row"\n'
    )
    answer = sf.open(tmp_path / "sfumato.toml").sql("DP-SELECT 900 COUNT(*) AS n FROM t")
    assert answer.table["n"].to_pylist() == [2]
