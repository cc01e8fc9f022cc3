"""Real clients and the real service: what each gets, and what it is charged for.

Metadata, descriptions and probes are free; a statement is charged once, whoever sends it again. The clients
are what `make clients` installs; who has not is told which test was left out.
"""

import json
import os
import shutil
import subprocess
from datetime import date, datetime
from fractions import Fraction
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from helpers.cases import read_cases
from helpers.wire import RunningServer

ROOT = Path(__file__).resolve().parents[3]
CLIENTS = Path(os.environ.get("SFUMATO_CLIENTS", ROOT / ".venv-clients"))
SCRIPTS = ROOT / "tests" / "helpers" / "clients"
JAR = Path("/usr/share/java/postgresql.jar")
PYTHON_CLIENTS = (
    *("psycopg2", "asyncpg", "pg8000", "sqlalchemy", "sqlalchemy_psycopg", "sqlalchemy_pg8000", "pandas"),
    *("adbc", "pyodbc", "polars"),
)
VARIED = """
[budget]
epsilon = 1000000
[tables.visits]
source = "visits.parquet"
unit = "person"
max_records = 5
[tables.visits.columns]
clinic = {values = ["North", "South"]}
fee = {bins = [0, 10, 20, 40]}
paid = {bounds = [0, 40]}
stay = {bounds = [0, 9]}
rooms = {range = [0, 3]}
beds = {range = [0, 3], missing_label = "none"}
day = {range = ["2024-01-01", "2024-01-31"]}
month = {from = "seen", period = "month"}
[tables.wards]
public = true
source = "wards.parquet"
"""
CHARTS = """
[budget]
epsilon = 1000000
delta = 1e-6
[tables.visits]
source = "visits.parquet"
unit = "person"
max_records = 1
[tables.visits.columns]
clinic = {values = ["North", "South", "East"]}
ward = {values = ["a", "b"]}
fee = {bounds = [0, 100]}
visited = {range = ["2024-01-01", "2024-12-31"]}
at = {range = ["2024-01-01", "2024-12-31"]}
[tables.clinics]
public = true
source = "clinics.csv"
"""
CLINICS = ["North", "South", "East"]  # ordered as the project file lists them


@pytest.fixture
def server(make_service):
    service = make_service()
    with RunningServer(service=service) as running:
        running.charges = lambda: sum(entry.kind == "charge" for entry in service.curator.budget().entries)
        running.facts = {
            "host": "127.0.0.1",
            "port": running.port,
            "user": "ana",
            "password": "ana's password",
            "dbname": "visits",
            "epsilon": "0.05",
        }
        yield running


def run(*command, env=None, stdin=None):
    """What a client prints; it must end well."""
    done = subprocess.run(
        [str(part) for part in command],
        input=stdin,
        env={**os.environ, **(env or {})},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def check(server, ask):
    """Metadata free, a statement once, the same statement stored; `ask` gives a client's rows for a stage."""
    assert ask("metadata") == [["visits"]]
    assert server.charges() == 0
    rows = ask("ask")
    assert [row[0] for row in rows] == CLINICS
    assert all(-2000 < float(row[1]) < 4000 for row in rows)
    assert server.charges() == 1
    assert ask("ask") == rows
    assert server.charges() == 1


@pytest.fixture
def varied(folder):
    """Tables with columns of all kinds in place of those of the folder."""
    rows = 40
    days = [date(2024, 1, 1 + row % 20) for row in range(rows)]
    table = {
        "person": range(rows),
        "clinic": ["North", "South"] * 20,
        "fee": [float(row % 30) for row in range(rows)],
        "paid": [float(row % 30) for row in range(rows)],
        "stay": [row % 9 for row in range(rows)],
        "rooms": [row % 4 for row in range(rows)],
        "beds": [row % 4 for row in range(rows)],
        "regular": [True, False] * 20,
        "day": days,
        "seen": pa.array([datetime(2024, 1, 1, row % 24) for row in range(rows)], pa.timestamp("us")),
        "note": ["x"] * rows,
    }
    pq.write_table(pa.table(table), folder / "visits.parquet")
    pq.write_table(
        pa.table({"size": pa.array([1, 2], pa.int32()), "day": days[:2]}), folder / "wards.parquet"
    )
    (folder / "sfumato.toml").write_text(VARIED, encoding="utf-8")


def test_types_in_the_catalog_are_those_of_answers(varied, server):
    psycopg = pytest.importorskip("psycopg")
    dsn = server.dsn(user="sue", password="sue\\'s password", options="-csfumato.epsilon=1000")
    attributes = (
        "SELECT attname, atttypid::int FROM pg_attribute WHERE attrelid = '{}'::regclass ORDER BY attnum"
    )
    with psycopg.connect(dsn, autocommit=True) as connection:
        told = dict(connection.execute(attributes.format("visits")).fetchall())

        def shape(text):
            return {each.name: each.type_code for each in connection.execute(text).description}

        assert shape("SELECT * FROM visits LIMIT 0") == told
        rows = "clinic, fee, paid, stay, rooms, beds, day, month, note"
        assert shape(f"SELECT {rows} FROM visits LIMIT 3").items() <= told.items()
        for name in ("clinic", "fee", "rooms", "beds", "regular", "day", "month"):
            assert shape(f"SELECT {name}, COUNT(*) AS n FROM visits GROUP BY {name}")[name] == told[name]
        assert (
            shape("SELECT MIN(day) AS day, MAX(paid) AS paid FROM visits").items()
            <= (
                told | {f"{name}_{end}": told[name] for name in ("day", "paid") for end in ("low", "high")}
            ).items()
        )
        assert {told[name] for name in ("clinic", "fee", "beds", "regular")} == {25}
        assert (told["paid"], told["day"], told["seen"]) == (701, 1082, 1114)
        assert shape("SELECT * FROM wards") == dict(connection.execute(attributes.format("wards")).fetchall())


def test_answers_may_be_without_columns_for_their_intervals(varied, server):
    psycopg = pytest.importorskip("psycopg")
    dsn = server.dsn(password="ana\\'s password", options="-csfumato.epsilon=0.1")
    text = "SELECT clinic, COUNT(*) AS n, APPROX_QUANTILES(paid, 2) AS q FROM visits GROUP BY clinic"
    with psycopg.connect(dsn, autocommit=True) as connection:

        def ask(**how):
            found = connection.execute(text, **how)
            return [each.name for each in found.description], found.fetchall()

        names, rows = ask()
        assert names[:4] == ["clinic", "n", "n_low", "n_high"]
        assert connection.execute("SHOW sfumato.intervals").fetchone() == ("columns",)
        connection.execute("SET sfumato.intervals = OFF")
        assert connection.execute("SELECT current_setting('sfumato.intervals')").fetchone() == ("off",)
        plain = ["clinic", "n", "q_0", "q_1", "q_2"]
        kept = [tuple(row[names.index(name)] for name in plain) for row in rows]
        assert ask() == ask(prepare=True) == ask(binary=True) == (plain, kept)
        assert [each.name for each in connection.execute(f"{text} LIMIT 0").description] == plain
        assert server.charges() == 1
        with pytest.raises(psycopg.errors.InvalidParameterValue, match="off or columns"):
            connection.execute("SET sfumato.intervals = narrow")
        connection.execute("RESET sfumato.intervals")
        assert ask() == (names, rows)
    with psycopg.connect(dsn + " options='-csfumato.epsilon=0.1 -csfumato.intervals=off'") as connection:
        assert ask() == (plain, kept)


def test_what_dashboards_ask_is_answered(folder, make_service):
    """Charts, probes and tests as tools write them, none of which names a price: a steward has set it."""
    psycopg = pytest.importorskip("psycopg")
    days = [date(2024, 1 + row % 12, 1 + row % 28) for row in range(400)]
    table = {
        "person": range(400),
        "clinic": ["North", "South", "East", "North"] * 100,
        "ward": ["a", "b"] * 200,
        "fee": [float(row % 90) for row in range(400)],
        "visited": days,
        "at": pa.array([datetime(day.year, day.month, day.day, 7) for day in days], pa.timestamp("us")),
    }
    pq.write_table(pa.table(table), folder / "visits.parquet")
    (folder / "clinics.csv").write_text("name,side\nNorth,city\nSouth,city\nEast,coast\n")
    (folder / "sfumato.toml").write_text(CHARTS, encoding="utf-8")
    service = make_service()
    service.state.set_limits("sue", {"epsilon": Fraction(100)})
    asked = [query for _, query in read_cases(__file__, "test_what_dashboards_ask_is_answered")]
    with RunningServer(service=service) as server:
        dsn = server.dsn(user="sue", password="sue\\'s password")
        with psycopg.connect(dsn, autocommit=True) as connection:
            for query in asked:
                names = [each.name for each in connection.execute(query).description]
                assert len(set(names)) == len(names)
            assert (spent := service.curator.budget().spent) > 0
            connection.execute("SET sfumato.intervals = off")
            for query in asked:
                names = [each.name for each in connection.execute(query).description]
                # The same answer, but for quantiles, which then spend nothing on their ends.
                assert service.curator.budget().spent == spent or "PERCENTILE" in query, query
                spent = service.curator.budget().spent
                assert not [name for name in names if name.endswith(("_low", "_high"))]


def test_pg_dump_is_refused_in_words(server):
    if not shutil.which("pg_dump"):
        pytest.skip("pg_dump is not installed")
    login = ("-h", "127.0.0.1", "-p", str(server.port), "-U", "ana", "visits")
    env = {**os.environ, "PGPASSWORD": "ana's password"}
    done = subprocess.run(["pg_dump", *login], env=env, capture_output=True, text=True, timeout=120)
    assert done.returncode
    assert "records are not dumped here" in done.stderr
    assert "download what was released" in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("client", ["pandas", "sqlalchemy", "sqlalchemy_psycopg", "ibis"])
def test_what_a_client_reflects_it_can_read(varied, server, client):
    """A whole table, and groups, through the columns that the client found in the catalog."""
    python = CLIENTS / "bin" / "python"
    if not python.exists():
        pytest.skip("make clients installs the other clients of PostgreSQL")
    facts = json.dumps(server.facts | {"epsilon": "0.3"})
    rows = json.loads(run(python, SCRIPTS / "ask.py", client, "reflect", facts))
    assert rows[-1] == ["ok"]
    assert {row[0] for row in rows[:-1]} == {"[0, 10)", "[10, 20)", "[20, 40]"}
    assert server.charges() > 1


@pytest.mark.slow
@pytest.mark.parametrize("client", PYTHON_CLIENTS)
def test_python_clients(server, client):
    python = CLIENTS / "bin" / "python"
    if not python.exists():
        pytest.skip("make clients installs the other clients of PostgreSQL")
    if client == "pyodbc" and not shutil.which("odbcinst"):
        pytest.skip("the Debian packages unixodbc and odbc-postgresql are not installed")
    facts = json.dumps(server.facts)
    check(server, lambda stage: json.loads(run(python, SCRIPTS / "ask.py", client, stage, facts)))


@pytest.mark.slow
def test_node(server):
    modules = CLIENTS / "node" / "node_modules"
    if not modules.exists() or not shutil.which("node"):
        pytest.skip("make clients installs pg for node, where npm is")
    env = {"NODE_PATH": str(modules)}
    facts = json.dumps(server.facts)
    check(server, lambda stage: json.loads(run("node", SCRIPTS / "ask.js", stage, facts, env=env)))


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["extended", "simple"])
def test_jdbc(server, mode):
    if not JAR.exists() or not shutil.which("javac"):
        pytest.skip("the Debian packages libpostgresql-jdbc-java and a JDK are not installed")
    url = f"jdbc:postgresql://127.0.0.1:{server.port}/visits?preferQueryMode={mode}"
    java = ("java", "-Xshare:auto", "-XX:TieredStopAtLevel=1", "-cp", JAR, SCRIPTS / "Ask.java")
    login = ("ana", "ana's password")
    check(server, lambda stage: json.loads(run(*java, url, *login, stage, "0.05")))


def psql(server, *arguments, stdin=None):
    if not shutil.which("psql"):
        pytest.skip("psql is not installed")
    dsn = f"host=127.0.0.1 port={server.port} user=ana dbname=visits"
    env = {"PGPASSWORD": "ana's password"}
    return run("psql", "-X", dsn, "-v", "ON_ERROR_STOP=1", *arguments, env=env, stdin=stdin)


def test_psql(server):
    tables = psql(server, "-At", "-c", "\\dt")
    assert "public|visits|table" in tables
    described = psql(server, "-At", "-c", "\\d visits")
    assert "clinic|text" in described
    statement = "DP-SELECT 0.05 clinic, COUNT(*) AS n FROM visits GROUP BY clinic"
    shape = psql(server, "-At", stdin=f"{statement} \\gdesc\n")
    assert shape.splitlines()[:2] == ["clinic|text", "n|bigint"]
    for command in ("\\d", "\\d+ visits", "\\l", "\\du", "\\dn", "\\df", "\\dv", "\\conninfo", "\\encoding"):
        psql(server, "-c", command)
    assert server.charges() == 0
    rows = psql(server, "-At", "-c", statement).splitlines()
    assert [row.split("|")[0] for row in rows] == ["North", "South", "East"]
    copied = psql(server, "-c", f"\\copy ({statement}) TO STDOUT WITH CSV HEADER").splitlines()
    assert copied[0] == "clinic,n,n_low,n_high"
    assert [line.split(",") for line in copied[1:]] == [row.split("|") for row in rows]
    plain = "SELECT clinic, COUNT(*) AS n FROM visits GROUP BY clinic;\n"
    priced = f"SET sfumato.epsilon = 0.05;\n\\set FETCH_COUNT 2\n{plain}"
    assert psql(server, "-Atq", stdin=priced).splitlines() == rows
    assert server.charges() == 1
    assert "epsilon" in psql(server, "-c", f"EXPLAIN {statement}")
    assert server.charges() == 1


def test_probes_are_free_and_prices_are_kept_to(server):
    psycopg = pytest.importorskip("psycopg")
    dsn = server.dsn(
        password="ana\\'s password", options="-csfumato.epsilon=0.1 -csfumato.session_budget=0.15"
    )
    with psycopg.connect(dsn, autocommit=True) as connection:
        for probe in (
            "SELECT clinic, COUNT(*) FROM visits WHERE 1 = 0 GROUP BY clinic",
            "SELECT COUNT(*) FROM visits LIMIT 0",
            "SELECT * FROM visits LIMIT 0",
        ):
            assert connection.execute(probe).description
        assert server.charges() == 0
        connection.execute("SELECT COUNT(*) FROM visits")
        connection.execute("SELECT COUNT(*) FROM visits")
        assert server.charges() == 1
        with pytest.raises(psycopg.errors.ConfigurationLimitExceeded):
            connection.execute("SELECT COUNT(*) FROM visits WHERE fee > 20")
        connection.execute("SELECT COUNT(*) FROM visits")
        assert server.charges() == 1
        for refused in (
            "SELECT person FROM visits",
            "SELECT pg_sleep(10)",
            "SELECT pg_read_file('/etc/passwd')",
        ):
            with pytest.raises(psycopg.Error) as found:
                connection.execute(refused)
            assert "/" not in str(found.value).replace("/etc/passwd", "")
        assert server.charges() == 1


def test_roles_hold_at_this_door(server):
    psycopg = pytest.importorskip("psycopg")
    dsn = server.dsn(user="vic", password="vic\\'s password")
    with psycopg.connect(dsn, autocommit=True) as connection:
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute("DP-SELECT 0.1 COUNT(*) FROM visits")
        for about in ("SELECT current_user", "SELECT attname FROM pg_attribute"):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                connection.execute(about)
    assert server.charges() == 0


@pytest.mark.parametrize("text", read_cases(__file__, "test_what_is_described_is_what_is_answered"))
def test_what_is_described_is_what_is_answered(server, text):
    """Names and types before the charge and after it, and the same values as text and as binary."""
    psycopg = pytest.importorskip("psycopg")

    def shape(result):
        return [(result.fname(place), result.ftype(place)) for place in range(result.nfields)]

    dsn = server.dsn(password="ana\\'s password", options="-csfumato.epsilon=0.1")
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.pgconn.send_prepare(b"s", text.encode())
        connection.wait(psycopg.generators.execute(connection.pgconn))
        connection.pgconn.send_describe_prepared(b"s")
        (described,) = connection.wait(psycopg.generators.execute(connection.pgconn))
        assert not described.error_message
        assert server.charges() == 0
        answered = connection.execute(text.replace("$1", "20"))
        assert shape(answered.pgresult) == shape(described)
        with psycopg.RawCursor(connection) as cursor:
            again = cursor.execute(text, [20.0] if "$1" in text else None, binary=True)
            assert shape(again.pgresult) == shape(described)
            assert again.fetchall() == answered.fetchall()
