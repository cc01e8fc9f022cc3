"""Project files of one table for tests."""

import json
import re

import pyarrow as pa
import pyarrow.parquet as pq

import sfumato as sf

# The project of the fixture `project`: tests change words of it.
PROJECT = """
[budget]
epsilon = 20.0
delta = 1e-9

[tables.t]
source = "t.parquet"
unit = "person"
max_records = 3

[tables.t.columns.region]
values = ["a", "b", "c"]
[tables.t.columns.month]
range = [1, 12]
"""


def project_text(columns, *, table="t", source="t.parquet", unit="row", epsilon=20, more="", **facts):
    """The text of a project file: a budget, and one table with its columns.

    Parameters
    ----------
    columns
        The keys of each column by its name, as in `{"month": {"range": [1, 12]}}`.
    unit
        The column that names individuals, or "row".
    more
        Further lines of the table, as they stand in the file.
    facts
        `delta`, `accounting` and `ledger` belong to the budget; other keys, such as `max_records`, to
        the table.
    """
    budget = {key: facts.pop(key) for key in ("delta", "accounting", "ledger") if key in facts}
    lines = ["[budget]", *to_lines({"epsilon": epsilon, **budget})]
    lines += [f"[tables.{table}]", *to_lines({"source": str(source), "unit": unit, **facts}), more]
    for name, keys in columns.items():
        quoted = name if re.fullmatch(r"[\w-]+", name, re.ASCII) else json.dumps(name, ensure_ascii=False)
        lines += [f"[tables.{table}.columns.{quoted}]", *to_lines(keys)]
    return "\n".join(lines) + "\n"


def to_lines(keys):
    """Lines of TOML, of which JSON is a part for texts, numbers and lists of them."""
    return [f"{key} = {json.dumps(value, ensure_ascii=False)}" for key, value in keys.items()]


def write_project(folder, columns, *, rows=None, **facts):
    """Writes `project_text`, and the rows to t.parquet if they are given; returns the project file."""
    if rows is not None:
        pq.write_table(rows, folder / "t.parquet")
    file = folder / "sfumato.toml"
    file.write_text(project_text(columns, **facts), encoding="utf-8")
    return file


def open_rows(folder, columns, rows, **facts):
    """The curator of one table of people with much to spend; `facts` are as in `project_text`."""
    facts = {"unit": "person", "epsilon": 10**9, "delta": 1e-6, **facts}
    return sf.open(write_project(folder, columns, rows=pa.table(rows) if rows else None, **facts))
