"""What is refused is refused with the nearest thing that works, and for nothing."""

import duckdb
import pytest

import sfumato as sf

PROJECT = """
[budget]
epsilon = 50
[tables.visits]
source = "visits.csv"
unit = "person"
max_records = 5
[tables.visits.columns.clinic]
values = ["North", "South"]
[tables.visits.columns.fee]
bounds = [0, 100]
[tables.visits.columns.visited]
range = ["2025-01-01", "2025-12-31"]
[tables.visits.columns.mood]
values = ["Elated", "Glum"]
drafted_from_data = true
[tables.clinics]
public = true
source = "clinics.csv"
"""


@pytest.fixture(scope="module")
def curator(tmp_path_factory):
    folder = tmp_path_factory.mktemp("refusals")
    duckdb.execute(f"""COPY (SELECT i AS person, 'North' AS clinic, 1 AS fee, DATE '2025-02-03' AS visited,
        'Elated' AS mood, 'w' AS ward FROM range(9) AS t(i)) TO '{folder / "visits.csv"}'""")
    (folder / "clinics.csv").write_text("name,side\nNorth,city\nSouth,coast\n")
    (folder / "sfumato.toml").write_text(PROJECT)
    return sf.open(folder / "sfumato.toml")


COUNT = "DP-SELECT 1 COUNT(*) FROM visits"
NOT_HERE = "records are changed where they are kept"

REFUSED = [
    # Slips that would be paid for in vain
    (f"{COUNT} WHERE clinic = 'Nroth'", "not among the listed values of 'clinic'; did you mean 'North'?"),
    (f"{COUNT} WHERE clinic IN ('South', 'NORTH')", "did you mean 'North'? For records that are written so"),
    (f"{COUNT} WHERE visited > '2025-13-01'", "a date such as '2025-01-31'"),
    (f"{COUNT} WHERE fee > 'abc'", "what it is compared with, a number"),
    (f"{COUNT} WHERE fee = NULL", "write IS NULL"),
    (f"{COUNT} GROUP BY", "nothing stands behind GROUP BY"),
    # What is no question
    (f"{COUNT} UNION SELECT COUNT(*) FROM visits", "not UNION of statements: each is charged by itself"),
    (f"{COUNT} UNION ALL {COUNT}", "FROM (SELECT ... UNION ALL SELECT ...) AS a"),
    (f"{COUNT} EXCEPT SELECT 1 FROM clinics", "Send them one by one"),
    ("INSERT INTO visits VALUES (1)", f"not INSERT; {NOT_HERE}"),
    ("UPDATE visits SET fee = 0", f"not UPDATE; {NOT_HERE}"),
    ("DELETE FROM visits", f"not DELETE; {NOT_HERE}"),
    ("CREATE TABLE x AS SELECT * FROM visits", f"not CREATE; {NOT_HERE}"),
    ("DROP TABLE visits", f"not DROP; {NOT_HERE}"),
    ("COPY visits TO 'x.csv'", f"not COPY; {NOT_HERE}"),
    ("SELCT COUNT(*) FROM visits", "did you mean SELECT?"),
    ("DP-SELCT 1 COUNT(*) FROM visits", "did you mean DP-SELECT?"),
    ("EXPLIAN SELECT 1", "did you mean EXPLAIN?"),
    ("hello", "DESCRIBE or SUMMARIZE, not with 'HELLO'"),
    ("(SELECT side FROM clinics)", "leave away the brackets around it"),
    (f"{COUNT}; {COUNT}", "send them one by one"),
    ("DP-SELECT 1 COUNT(* FROM visits", "1 brackets are opened and 0 closed"),
    ("DP-SELECT 1 FROM visits", "name what to select, COUNT(*) or columns"),
    (f"{COUNT} WHERE clinic = 'North", "a quote or a comment is not closed"),
    # What may be spent
    ("DP-SELECT COUNT(*) FROM visits", "DP-SELECT needs epsilon: DP-SELECT 0.5 COUNT(*)"),
    ("DP-SELECT MEDIAN(fee) FROM visits", "DP-SELECT needs epsilon: DP-SELECT 0.5"),
    ("SELECT COUNT(*) FROM visits", "write DP-SELECT epsilon in place of SELECT"),
    ("DP-SELECT 0 COUNT(*) FROM visits", "epsilon must be above zero"),
    ("DP-SELECT 1 COUNT(*) FROM clinics", "a plain SELECT answers exactly and spends nothing"),
    ("DP-SELECT WITHIN 5% AVG(fee) FROM visits", "state epsilon instead"),
    # Names
    ("DP-SELECT 1 COUNT(*) FROM visit", "no table 'visit'; did you mean 'visits'?"),
    ("DP-SELECT 1 COUNT(*) FROM hospitals", "described: clinics, visits"),
    (f"{COUNT} WHERE clinc = 'North'", "no column 'clinc'; did you mean 'clinic'?"),
    (f"{COUNT} WHERE shoe = 1", "described: clinic, fee, visited"),
    (f'{COUNT} WHERE clinic = "North"', "text stands in single quotes: 'North'"),
    (f"{COUNT} WHERE clinic = South", "text stands in single quotes: 'South'"),
    (f'{COUNT} WHERE clinic = "Elsewhere"', "double quotes are around names, text stands in single quotes"),
    (f"{COUNT} AS v WHERE visits.fee > 1", "no table is called 'visits' here; there are: v"),
    (f"{COUNT} WHERE vists.fee > 1", "no table is called 'vists' here; did you mean 'visits'?"),
    ("DP-SELECT 1 COUNT(*) AS n FROM visits WHERE n > 3", "conditions about groups stand in HAVING"),
    # Functions
    ("DP-SELECT 1 AVERAGE(fee) FROM visits", "the select list uses AVERAGE, "),
    ("DP-SELECT 1 MEAN(fee) FROM visits", "use AVG"),
    ("DP-SELECT 1 MEDAIN(fee) FROM visits", "did you mean MEDIAN?"),
    (f"{COUNT} WHERE uper(clinic) = 'NORTH'", "did you mean UPPER?"),
    (f"{COUNT} WHERE ifnul(fee, 0) > 1", "did you mean COALESCE?"),
    ("DP-SELECT 1 STRING_AGG(clinic, ',') FROM visits", "list public values with SELECT DISTINCT"),
    ("DP-SELECT 1 FIRST(fee) FROM visits", "use MODE, MIN or MEDIAN"),
    ("DP-SELECT 1 BOOL_OR(fee > 3) FROM visits", "use COUNT(*) FILTER (WHERE condition)"),
    ("DP-SELECT 1 SKEWNESS(fee) FROM visits", "use AVG, STDDEV and QUANTILE"),
    (f"{COUNT} WHERE random() < 0.5", "noise is added for you"),
    ("DP-SELECT 1 RANK() OVER (ORDER BY fee) FROM visits", "put it over aggregates, or GROUP BY"),
    # Bounds and groups
    ("DP-SELECT 1 SUM(ward) FROM visits", "bounds = [low, high]"),
    ("DP-SELECT 1 AVG(mood) FROM visits", "write public bounds, or accept_drafted = true"),
    ("DP-SELECT 1 SUM(DISTINCT fee) FROM visits", "SUM without DISTINCT has, or COUNT(DISTINCT)"),
    ("DP-SELECT 1 COUNT(DISTINCT clinic, ward) FROM visits", "COUNT(DISTINCT a || ' ' || b)"),
    ("DP-SELECT 1 COUNT() FROM visits", "COUNT(*), COUNT(fare)"),
    ("DP-SELECT 1 QUANTILE(fee, 90) FROM visits", "between 0 and 1, such as QUANTILE(fare, 0.9)"),
    ("DP-SELECT 1 DISTINCT clinic FROM visits", "a plain SELECT DISTINCT of one column"),
    ("SELECT DISTINCT ward FROM visits", "DP-SELECT 1 DELTA 1e-9 column, COUNT(*)"),
    ("DP-SELECT 1 ward, COUNT(*) FROM visits GROUP BY ward", "or declare its values in the project file"),
    ("DP-SELECT 1 clinic, COUNT(*) FROM visits", "add GROUP BY clinic"),
    ("DP-SELECT 1 MODE(ward) FROM visits", "values = [...]"),
    ("DP-SELECT 1 person, COUNT(*) FROM visits GROUP BY person", "COUNT(DISTINCT unit) counts them"),
    (f"{COUNT} WHERE COUNT(*) > 3", "conditions about groups stand in HAVING"),
    (f"{COUNT} WHERE fee", "compare it with something"),
    (f"{COUNT} WHERE visited > 2025-01-01", "a date stands in quotes: DATE '2025-01-01'"),
    ("DP-SELECT 1 COUNT(*), COUNT(*) FROM visits", "use AS"),
    # Joins and sources
    (f"{COUNT}, clinics", "say what matches: JOIN b ON a.x = b.y"),
    (f"{COUNT} RIGHT JOIN clinics ON name = clinic", "RIGHT JOIN, by which rows would be nobody's"),
    (f"{COUNT} CROSS JOIN clinics", "JOIN and LEFT JOIN are answered"),
    (f"{COUNT} QUALIFY 1", "use HAVING"),
    ("DP-SELECT 1 COUNT(*) FROM clinics LEFT JOIN visits ON name = clinic", "put the private table first"),
    (f"{COUNT} JOIN clinics ON clinic > name", "put other conditions into WHERE"),
    ("DP-SELECT 1 COUNT(*) FROM 'visits.csv'", "did you mean 'visits'?"),
    ("DP-SELECT 1 COUNT(*) FROM read_csv('visits.csv')", "describe it in the project file: [tables.NAME]"),
    (f"{COUNT} LIMIT 50%", "a whole number of rows"),
]  # fmt: skip


def test_there_are_enough_of_them():
    assert len({statement for statement, _ in REFUSED}) == len(REFUSED) >= 60


@pytest.mark.parametrize(("statement", "remedy"), REFUSED, ids=[statement for statement, _ in REFUSED])
def test_a_refusal_names_what_works(curator, statement, remedy):
    with pytest.raises(sf.SfumatoError) as refused:
        curator.sql(statement)
    assert remedy in str(refused.value)
    assert refused.value.exit_code == 2
    assert not curator.has_ledger()


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
