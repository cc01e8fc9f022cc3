"""Dates in text are read in one module, and mean the same in a constant, a public column and a cell."""

import ast
from datetime import date, datetime
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from sfumato.core.dates import (
    epoch_cell,
    formatted_cell,
    label_cell,
    moment_cell,
    read_column,
    read_day,
    read_formatted,
    read_moment,
)

SOURCE = Path(__file__).resolve().parents[2] / "src" / "sfumato"
READS = {"strptime", "try_strptime", "fromisoformat", "fromisocalendar"}

TEXTS = {
    "2025-02-01": date(2025, 2, 1),
    " 2025/2/1 ": date(2025, 2, 1),
    "2025-02-01T10:30": datetime(2025, 2, 1, 10, 30),
    "2025-02-01 10:30:05.25": datetime(2025, 2, 1, 10, 30, 5, 250_000),
    "2025-01-01 00:30:00+01:00": datetime(2024, 12, 31, 23, 30),
    "2025-01-01 00:30:00Z": datetime(2025, 1, 1, 0, 30),
    "2024-02-29": date(2024, 2, 29),
    "2025-02-29": None,
    "2025-13-01": None,
    "2025-02/01": None,
    "2025-01-01 25:00:00": None,
    "0000-01-01": None,
    "01.02.2025": None,
    "yesterday": None,
    "": None,
}


def run(expression, cell, kind="VARCHAR"):
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        query = f"SELECT {expression} FROM (SELECT CAST(? AS {kind}) AS cell)"
        return connection.execute(query, [cell]).fetchone()[0]


def test_only_one_module_reads_dates_in_text():
    for path in SOURCE.rglob("*.py"):
        if path == SOURCE / "core" / "dates.py":
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            called = node.func if isinstance(node, ast.Call) else None
            name = getattr(called, "attr", getattr(called, "id", None))
            assert name not in READS, (path, node.lineno)
            if isinstance(node, ast.Constant) and isinstance(node.value, str):  # nor in SQL that is written
                assert not any(f"{each}(" in node.value for each in READS), (path, node.lineno)


@pytest.mark.parametrize("text", TEXTS)
def test_a_constant_and_a_cell_mean_the_same_moment(text):
    found = read_moment(text)
    assert found == TEXTS[text]
    assert type(found) is type(TEXTS[text])
    day = read_moment(text, local=True)  # as a cell does, which knows no zones
    if day is not None:
        moment = day if isinstance(day, datetime) else datetime(day.year, day.month, day.day)
        assert run(moment_cell("cell", text=True), text.strip()) == moment


def test_a_day_and_a_local_moment_keep_what_is_written():
    assert read_day("2025-01-01 00:30:00+01:00") == date(2025, 1, 1)
    assert read_moment("2025-01-01 00:30:00+01:00", local=True) == datetime(2025, 1, 1, 0, 30)
    assert read_day("soon") is None


@pytest.mark.parametrize(
    ("text", "form", "moment"),
    [
        ("31.01.2025", "%d.%m.%Y", datetime(2025, 1, 31)),
        ("01/31/2025 01:05:00 PM", "%m/%d/%Y %I:%M:%S %p", datetime(2025, 1, 31, 13, 5)),
        ("5-Feb-19", "%d-%b-%y", datetime(2019, 2, 5)),
        ("31.02.2025", "%d.%m.%Y", None),
        ("it's", "it's %Y", None),
    ],
)
def test_a_format_means_the_same_in_a_constant_a_public_column_and_a_cell(text, form, moment):
    if moment is None:
        with pytest.raises(ValueError, match=r"match|range|day"):
            read_formatted(text, form)
    else:
        assert read_formatted(text, form) == moment
    assert read_column(pa.chunked_array([[text]]), form).to_pylist() == [moment]
    assert run(formatted_cell("cell", form), text) == moment


@pytest.mark.parametrize("number", ["0", "1700000000", "1e300", "-1e300", "NULL"])
def test_seconds_and_labels_of_a_cell_never_raise(number):
    with duckdb.connect() as connection:
        moment = epoch_cell("cell", "epoch")
        query = f"SELECT {moment}, {label_cell(moment, 'month')} FROM (SELECT {number}::DOUBLE AS cell)"
        found, label = connection.execute(query).fetchone()
    assert (found, label) == {
        "0": (datetime(1970, 1, 1), "1970-01"),
        "1700000000": (datetime(2023, 11, 14, 22, 13, 20), "2023-11"),
    }.get(number, (None, None))
