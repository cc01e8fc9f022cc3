"""Statements about the public tables: where no bound bites, intervals hold the exact values."""

import math

import duckdb
import pytest

import sfumato as sf

pytestmark = pytest.mark.shared

PROJECT = """
[budget]
epsilon = 1000000
delta = 1e-6

[tables.adult]
source = "{data}/adult/adult.parquet"
unit = "row"
[tables.adult.columns.age]
range = [17, 90]
[tables.adult.columns.sex]
values = ["Female", "Male"]
[tables.adult.columns.hours]
from = "hours-per-week"
bounds = [0, 100]

[tables.trips]
source = "{data}/chicago_taxi/trips.parquet"
unit = "taxi_id"
max_records = 50
[tables.trips.columns.shift]
range = [0, 20]
[tables.trips.columns.payment_type]
values = [-1, 0, 1, 2, 3, 5, 6, 7, 8]
[tables.trips.columns.pickup_community_area]
range = [-1, 77]
[tables.trips.columns.tips]
bounds = [-1, 100]

[tables.incidents]
source = "{data}/stlouis/incidents.parquet"
unit = "sim_resident"
max_records = 20
[tables.incidents.columns.neighborhood]
range = [0, 88]
[tables.incidents.columns.year]
range = [2015, 2019]
[tables.incidents.columns.hour]
range = [-1, 23]

[tables.areas]
public = true
source = "areas.csv"
"""

FILES = {
    "adult": "adult/adult.parquet",
    "trips": "chicago_taxi/trips.parquet",
    "incidents": "stlouis/incidents.parquet",
}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("shared")


@pytest.fixture
def curator(shared, place):
    if not (place / "sfumato.toml").exists():
        (place / "sfumato.toml").write_text(PROJECT.format(data=shared / "data"))
        (place / "areas.csv").write_text("area,side\n8,north\n32,centre\n28,west\n76,airport\n")
    return sf.open(place / "sfumato.toml")


@pytest.fixture
def exact(shared, place, curator):
    connection = duckdb.connect()
    for name, file in FILES.items():
        connection.execute(f"CREATE VIEW {name} AS SELECT * FROM '{shared / 'data' / file}'")
    connection.execute('CREATE VIEW adult_hours AS SELECT *, "hours-per-week" AS hours FROM adult')
    connection.execute(f"CREATE VIEW areas AS SELECT * FROM '{place / 'areas.csv'}'")
    return lambda text: connection.sql(text.replace("FROM adult", "FROM adult_hours")).fetchall()


def few(misses, cases):
    """Whether so many of the 95 % intervals may miss: more of them do for about one seed in a million."""
    return misses <= 1 + 0.05 * cases + 6 * math.sqrt(cases * 0.05 * 0.95)


def count_misses(answer, truth, keys):
    """How many intervals miss their exact value, and how many there are."""
    names = [
        name
        for name in answer.table.column_names
        if f"{name}_low" in answer.table.column_names and f"{name}_high" in answer.table.column_names
    ]
    known = {tuple(str(part) for part in row[:keys]): row[keys:] for row in truth}
    columns = answer.table.to_pydict()
    labels = list(zip(*list(columns.values())[:keys], strict=True)) if keys else [()]
    misses = cases = 0
    for row, label in enumerate(labels):
        wanted = known.get(tuple(str(part) for part in label), [0] * len(names))
        for name, value in zip(names, wanted, strict=True):
            cases += 1
            low, high = columns[f"{name}_low"][row], columns[f"{name}_high"][row]
            misses += value is not None and not low - 1e-9 <= float(value) <= high + 1e-9
    return misses, cases


@pytest.mark.parametrize(
    ("epsilon", "text", "keys"),
    [
        ("0.5", "age, COUNT(*) AS n FROM adult GROUP BY age", 1),
        (
            "1",
            "sex, COUNT(*) AS n, SUM(hours) AS s, AVG(hours) AS m, STDDEV(hours) AS d FROM adult "
            "GROUP BY sex",
            1,
        ),
        ("1", "age, AVG(hours) AS m FROM adult GROUP BY age", 1),
        ("1", "MEDIAN(hours) AS q, COUNT(DISTINCT occupation) AS o FROM adult", 0),
        ("0.5", "COUNT(*) AS n FROM adult WHERE age > 30 AND education LIKE 'Bach%'", 0),
        ("1", "shift, COUNT(*) AS n, COUNT(DISTINCT taxi_id) AS taxis FROM trips GROUP BY shift", 1),
        ("2", "payment_type, AVG(tips) AS m, SUM(tips) AS s FROM trips GROUP BY payment_type", 1),
        ("1", "pickup_community_area, COUNT(*) AS n FROM trips GROUP BY pickup_community_area", 1),
        (
            "1",
            "side, COUNT(*) AS n FROM trips JOIN areas ON trips.pickup_community_area = areas.area "
            "GROUP BY side",
            1,
        ),
        ("1", "neighborhood, COUNT(*) AS n FROM incidents GROUP BY neighborhood", 1),
        ("2", "year, hour, COUNT(*) AS n FROM incidents GROUP BY year, hour", 2),
        ("1", "COUNT(*) AS n, COUNT(DISTINCT sim_resident) AS people FROM incidents WHERE hour > 20", 0),
    ],
)
def test_intervals_hold_what_plain_sql_finds(curator, exact, epsilon, text, keys, seeded_noise):
    misses = cases = 0
    truth = exact(f"SELECT {text}")
    # The same question at slightly different prices is answered with new noise each time.
    for extra in range(3):
        answer = curator.sql(f"DP-SELECT FRESH {epsilon}{'' if '.' in epsilon else '.0'}{extra} {text}")
        found = count_misses(answer, truth, keys)
        misses, cases = misses + found[0], cases + found[1]
        assert answer.spent > 0
    assert few(misses, cases), f"{misses} of {cases}"


def test_open_groups_are_those_with_many_individuals(curator, exact):
    text = "company_id, COUNT(*) AS n FROM trips GROUP BY company_id"
    answer = curator.sql(f"DP-SELECT 4 DELTA 1e-7 {text}")
    people = dict(exact("SELECT company_id::VARCHAR, COUNT(DISTINCT taxi_id) FROM trips GROUP BY 1"))
    found = set(answer.table["company_id"].to_pylist())
    assert found <= set(people)
    assert max(people, key=people.get) in found


def test_synthetic_trips_resemble_the_trips(curator, exact, seeded_noise):
    answer = curator.sql("DP-SELECT 20 payment_type, shift FROM trips")
    ((rows,),) = exact("SELECT COUNT(*) FROM trips")
    assert answer.table.num_rows == pytest.approx(rows, rel=0.05)
    ((share,),) = exact("SELECT AVG((payment_type = 0)::INTEGER) FROM trips")
    drawn = answer.table["payment_type"].to_pylist()
    assert drawn.count(0) / len(drawn) == pytest.approx(share, abs=0.03)


def test_within_keeps_its_word(curator, exact):
    answer = curator.sql("DP-SELECT WITHIN 1% COUNT(*) AS n FROM trips").table.to_pydict()
    assert answer["n_high"][0] - answer["n_low"][0] <= 0.02 * answer["n"][0] + 2
