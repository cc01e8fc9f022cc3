"""Clients of PostgreSQL, each as people use it, in an environment of its own; prints what it got as JSON.

    python ask.py CLIENT metadata|ask|reflect FACTS

FACTS are JSON: host, port, user, password, dbname, and for `ask` an epsilon. `metadata` is what must be free:
tables, columns, the shape of an answer. `ask` buys one answer, with a parameter where the client has them;
`reflect` reads a table and its groups by the columns that the client finds in the catalog.
"""

import asyncio
import json
import sys
from urllib.parse import quote

TEXT = (
    "DP-SELECT {epsilon} clinic, COUNT(*) AS n FROM visits WHERE fee > {mark} GROUP BY clinic ORDER BY clinic"
)
TABLES = "SELECT table_name FROM information_schema.tables WHERE table_schema = 'public' ORDER BY 1"


def psycopg2(facts, stage, text):
    import psycopg2

    login = {key: facts[key] for key in ("host", "port", "user", "password", "dbname")}
    with psycopg2.connect(**login) as connection, connection.cursor() as cursor:
        if stage == "metadata":
            cursor.execute(TABLES)
            return cursor.fetchall()
        cursor.execute(text("%s"), (20,))
        return cursor.fetchall()


def asyncpg(facts, stage, text):
    import asyncpg

    async def run():
        login = {key: facts[key] for key in ("host", "port", "user", "password")}
        connection = await asyncpg.connect(**login, database=facts["dbname"])
        try:
            if stage == "metadata":
                prepared = await connection.prepare(text("$1"))
                assert [attribute.name for attribute in prepared.get_attributes()][:2] == ["clinic", "n"]
                assert prepared.get_parameters()[0].name in ("float8", "int8", "numeric")
                return [list(row) for row in await connection.fetch(TABLES)]
            async with connection.transaction():
                return [list(row) for row in await connection.fetch(text("$1"), 20)]
        finally:
            await connection.close()

    return asyncio.run(run())


def pg8000(facts, stage, text):
    import pg8000.native

    login = {key: facts[key] for key in ("user", "host", "port", "password")}
    connection = pg8000.native.Connection(**login, database=facts["dbname"])
    try:
        return connection.run(TABLES) if stage == "metadata" else connection.run(text(":fee"), fee=20)
    finally:
        connection.close()


def _engine(facts, driver, **more):
    import sqlalchemy

    host = f"{facts['user']}:{quote(facts['password'])}@{facts['host']}:{facts['port']}"
    return sqlalchemy.create_engine(f"postgresql+{driver}://{host}/{facts['dbname']}", connect_args=more)


def _priced(facts):
    return {"options": f"-csfumato.epsilon={facts['epsilon']} -csfumato.intervals=off"}


def _reflect(facts, driver):
    """Rows and groups by a reflected table; groups have no column that was not asked for."""
    import sqlalchemy

    engine = _engine(facts, driver, **_priced(facts))
    table = sqlalchemy.Table("visits", sqlalchemy.MetaData(), autoload_with=engine)
    count = sqlalchemy.func.count().label("n")
    with engine.connect() as connection:
        assert len(connection.execute(sqlalchemy.select(table).limit(3)).fetchall()) <= 3
        rows = connection.execute(sqlalchemy.select(table.c.fee, count).group_by(table.c.fee).limit(3))
        return [*map(list, rows), ["ok"]]


def ibis(facts, stage, text):
    import ibis

    login = {key: facts[key] for key in ("host", "port", "user", "password")}
    connection = ibis.postgres.connect(**login, database=facts["dbname"])
    connection.raw_sql(f"SET sfumato.epsilon = {facts['epsilon']}")
    connection.raw_sql("SET sfumato.intervals = off")
    table = connection.table("visits")
    assert len(table.limit(3).to_pandas()) <= 3
    return [*table.group_by("fee").agg(n=table.count()).to_pandas().to_numpy().tolist(), ["ok"]]


def sqlalchemy(facts, stage, text, driver="psycopg2"):
    import sqlalchemy

    if stage == "reflect":
        return _reflect(facts, driver)
    engine = _engine(facts, driver)
    if stage == "metadata":
        inspector = sqlalchemy.inspect(engine)
        assert {"clinic", "fee"} <= {column["name"] for column in inspector.get_columns("visits")}
        inspector.get_pk_constraint("visits")
        inspector.get_indexes("visits")
        inspector.get_foreign_keys("visits")
        assert not inspector.get_view_names()
        sqlalchemy.MetaData().reflect(engine)
        return [[name] for name in inspector.get_table_names()]
    with engine.connect() as connection:
        return [list(row) for row in connection.execute(sqlalchemy.text(text(":fee")), {"fee": 20})]


def sqlalchemy_psycopg(facts, stage, text):
    return sqlalchemy(facts, stage, text, "psycopg")


def sqlalchemy_pg8000(facts, stage, text):
    return sqlalchemy(facts, stage, text, "pg8000")


def pandas(facts, stage, text):
    import pandas
    import pandas.io.sql

    engine = _engine(facts, "psycopg2", **(_priced(facts) if stage == "reflect" else {}))
    if stage == "reflect":
        assert set(pandas.read_sql_table("visits", engine)["fee"]) <= {"[0, 10)", "[10, 20)", "[20, 40]"}
        groups = pandas.read_sql("SELECT fee, COUNT(*) AS n FROM visits GROUP BY fee", engine)
        return [*groups.to_numpy().tolist(), ["ok"]]
    if stage == "metadata":
        assert pandas.io.sql.has_table("visits", engine)
        assert not pandas.io.sql.has_table(text("20"), engine)
        return pandas.read_sql(TABLES, engine).to_numpy().tolist()
    return pandas.read_sql(text("20"), engine).to_numpy().tolist()


def adbc(facts, stage, text):
    import adbc_driver_postgresql.dbapi

    host = f"{facts['user']}:{quote(facts['password'])}@{facts['host']}:{facts['port']}"
    with adbc_driver_postgresql.dbapi.connect(f"postgresql://{host}/{facts['dbname']}") as connection:
        if stage == "metadata":
            assert "clinic" in connection.adbc_get_table_schema("visits").names
            connection.adbc_get_objects(depth="all").read_all()
            with connection.cursor() as cursor:
                cursor.execute(TABLES)
                return [list(row) for row in cursor.fetchall()]
        with connection.cursor() as cursor:
            cursor.execute(text("20"))
            return [list(row.values()) for row in cursor.fetch_arrow_table().to_pylist()]


def polars(facts, stage, text):
    import adbc_driver_postgresql.dbapi
    import polars

    host = f"{facts['user']}:{quote(facts['password'])}@{facts['host']}:{facts['port']}"
    with adbc_driver_postgresql.dbapi.connect(f"postgresql://{host}/{facts['dbname']}") as connection:
        frame = polars.read_database(TABLES if stage == "metadata" else text("20"), connection)
        return [list(row) for row in frame.rows()]


def pyodbc(facts, stage, text):
    import pyodbc

    login = {"SERVER": facts["host"], "PORT": facts["port"], "UID": facts["user"], "PWD": facts["password"]}
    login |= {"DATABASE": facts["dbname"], "DRIVER": "{PostgreSQL Unicode}"}
    connection = pyodbc.connect(";".join(f"{key}={value}" for key, value in login.items()), autocommit=True)
    try:
        cursor = connection.cursor()
        if stage == "metadata":
            assert {row.column_name for row in cursor.columns("visits")} >= {"clinic", "fee"}
            cursor.primaryKeys("visits").fetchall()
            return sorted([row.table_name] for row in cursor.tables(tableType="TABLE"))
        return [list(row) for row in cursor.execute(text("?"), 20).fetchall()]
    finally:
        connection.close()


CLIENTS = {
    client.__name__: client
    for client in (
        *(psycopg2, asyncpg, pg8000, sqlalchemy, sqlalchemy_psycopg, sqlalchemy_pg8000, pandas, adbc, pyodbc),
        ibis,
        polars,
    )
}

if __name__ == "__main__":
    name, stage, facts = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
    rows = CLIENTS[name](facts, stage, lambda mark: TEXT.format(epsilon=facts["epsilon"], mark=mark))
    print(json.dumps([list(row) for row in rows], default=str))
