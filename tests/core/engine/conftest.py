"""What the tests of engines share: tables in a PostgreSQL server of their own."""

import pytest


@pytest.fixture(scope="session")
def write_table(server):
    """What creates a table with the rows of an Arrow table, and returns its source."""
    from helpers import postgres_tables

    def write(name, rows):
        with server.connect() as connection:
            postgres_tables.write_table(connection, name, rows)
        return server.url(schema="x").replace("&schema=x", f"&table=public.{name}")

    return write
