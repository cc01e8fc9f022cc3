"""What is refused is refused with the nearest thing that works, and for nothing."""

from pathlib import Path

import duckdb
import pytest

import sfumato as sf
from helpers.pairs import read_pairs

FIXTURES = Path(__file__).with_name("fixtures")
RECORDS = {
    "visits.csv": "person, clinic, fee, visited, mood, ward",
    "t.parquet": "person, region, month, amount, balance, month AS visits, note, visited AS at",
    "modes.parquet": "person, city, month, amount, note, flag",
    "bounded.parquet": "person, ward AS clinic, amount AS fee, amount AS free, debt, age, note AS text, "
    "visited AS day",
    "levels.parquet": "person, region AS a, month AS b, ward AS c, amount AS fee",
    "days.parquet": "person, clinic, visited, CAST(visited AS TIMESTAMP) AS at, amount AS fee, ward, month",
}
VALUES = """i AS person, 'North' AS clinic, 1 AS fee, DATE '2025-02-03' AS visited, 'Elated' AS mood,
    'w' AS ward, 'a' AS region, 1 AS month, 1.5 AS amount, 1.5 AS balance, 'n' AS note, 'ash' AS city,
    true AS flag, 1.5 AS debt, 1 AS age"""
COUNT = "DP-SELECT 1 COUNT(*) FROM visits"


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    folder = tmp_path_factory.mktemp("refusals")
    for name, columns in RECORDS.items():
        records = f"SELECT {columns} FROM (SELECT {VALUES} FROM range(9) AS t(i))"
        duckdb.execute(f"COPY ({records}) TO '{folder / name}'")
    (folder / "clinics.csv").write_text("name,side\nNorth,city\nSouth,coast\n")
    (folder / "zones.csv").write_text("zone,side\na,north\nb,south\n")
    (folder / "sfumato.toml").write_text((FIXTURES / "refusals.toml").read_text())
    (folder / "tried.toml").write_text(
        (FIXTURES / "refusals.toml").read_text().replace("[budget]", '[budget]\nledger = "tried.db"')
    )
    return folder


@pytest.fixture(scope="module")
def curator(project):
    return sf.open(project / "sfumato.toml")


@pytest.fixture(scope="module")
def trying(project):
    return sf.open(project / "tried.toml")


def refuse(curator, statement, words):
    with pytest.raises(sf.SfumatoError) as refused:
        curator.sql(statement)
    assert words in str(refused.value)
    assert refused.value.exit_code == 2


def test_every_line_is_read():
    lines = (FIXTURES / "refusals.sql").read_text().splitlines()
    told = [line for line in lines if line and not line.startswith("--")]
    assert 2 * len(REFUSED + TRIED) == len(told) >= 600
    assert len(dict(REFUSED + TRIED)) == len(REFUSED + TRIED)


PAIRS = read_pairs(FIXTURES / "refusals.sql", marks=("=>", "~>"))
REFUSED, TRIED = ([(one, other) for one, other, mark in PAIRS if mark == each] for each in ("=>", "~>"))


@pytest.mark.parametrize(("statement", "words"), REFUSED, ids=[statement for statement, _ in REFUSED])
def test_what_is_refused_names_what_works_and_opens_nothing(curator, statement, words):
    refuse(curator, statement, words)
    assert not curator.has_ledger()


@pytest.mark.parametrize(("statement", "words"), TRIED)
def test_what_fails_for_every_record_is_refused_for_nothing(trying, statement, words):
    refuse(trying, statement, words)
    assert trying.budget().spent == 0


def test_values_of_records_are_never_offered(curator):
    for name in ("Elated", "elate", '"Elated"', "w", '"Glum"'):
        with pytest.raises(sf.UnsupportedQuery) as refused:
            curator.sql(f"{COUNT} WHERE clinic = {name}")
        told = str(refused.value).partition("; ")[2]
        assert not any(word in told for word in ("Elated", "Glum", "ward"))


def test_names_of_columns_that_nobody_described_are_never_offered(curator):
    with pytest.raises(sf.UnsupportedQuery) as refused:
        curator.sql(f"{COUNT} WHERE wards = 'x'")
    assert "'ward'" not in str(refused.value)


@pytest.mark.parametrize("condition", ["clinic LIKE 'Nroth'", "clinic = 'Elsewhere'", "mood = 'Elatde'"])
def test_other_values_may_be_asked_for_and_drafted_ones_are_not_told(curator, condition):
    assert "North" not in str(curator.sql(f"EXPLAIN {COUNT} WHERE {condition}"))


@pytest.mark.parametrize(
    "condition",
    ["ward >= '06/01/2020'", "'31.12.25' > ward", "ward BETWEEN '2020-01-01' AND '1-Jan-2021 8:00'"],
)
def test_dates_are_not_put_into_the_order_of_their_letters(curator, condition):
    spent = curator.budget().spent
    with pytest.raises(
        sf.UnsupportedQuery, match=r"'ward' is text, .* describe the column in the project file"
    ):
        curator.sql(f"{COUNT} WHERE {condition}")
    assert curator.budget().spent == spent
    # As text they may well be what is asked for, and so may text in its own order.
    for other in ("ward = '06/01/2020'", "ward > 'b12/1/2020'", "ward < '12/1'"):
        assert not curator.sql(f"EXPLAIN {COUNT} WHERE {other}").notes[1:]


@pytest.mark.parametrize("condition", ["ward >= '2025-02-01'", "ward BETWEEN '2025-01-01' AND '2025-02-01'"])
def test_what_compares_text_with_a_date_says_so_before_it_is_paid(curator, condition):
    note, _ = curator.sql(f"EXPLAIN {COUNT} WHERE {condition}").notes
    assert note.startswith("ward is text and is compared letter by letter")
    assert not curator.sql(f"EXPLAIN {COUNT} WHERE visited >= '2025-02-01'").notes[1:]
