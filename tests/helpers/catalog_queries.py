"""The statements of clients in tests/serve/catalog/queries, and the project that they are asked about."""

import json
import re
from pathlib import Path

from sfumato.schema import parse_project
from sfumato.serve.catalog import Catalog

FOLDER = Path(__file__).resolve().parents[1] / "serve" / "catalog" / "queries"
PROJECT = {
    "budget": {"epsilon": 1},
    "tables": {
        "visits": {
            "source": "visits.parquet",
            "unit": "person",
            "max_records": 5,
            "columns": {
                "clinic": {"values": ["North", "South"]},
                "fee": {"bounds": [0, 100]},
                "month": {"from": "visited", "period": "month"},
            },
        },
        "Clinics": {"public": True, "source": "clinics.csv"},
    },
}
STORED = {
    "visits": {
        "person": "integer",
        "clinic": "text",
        "visited": "date",
        "fee": "number",
        "ward": "text",
        "regular": "boolean",
    },
    "Clinics": {"name": "text", "side": "text"},
}
# The same tables, for PostgreSQL.
TABLES = (
    "CREATE TABLE visits (person bigint, clinic text, visited timestamp, fee double precision, ward text, "
    "regular boolean, month bigint)",
    'CREATE TABLE "Clinics" (name text, side text)',
)


def make_catalog(folder="/nowhere"):
    return Catalog(parse_project(PROJECT, folder=Path(folder)), stored=STORED)


def read_queries():
    """Every client with its statements and their parameters."""
    for file in sorted(FOLDER.glob("*.sql")):
        for block in file.read_text().split("\n\n")[1:]:
            given = re.match(r"-- parameters (.*)\n", block)
            text = block.removeprefix(given[0]) if given else block
            yield file.stem, text.strip(), json.loads(given[1]) if given else []


def fill(text, numbers):
    """A statement or parameter with the numbers of the tables in it."""
    return re.sub(r":(visits|clinics)\b", lambda found: str(numbers[found[1]]), text) if text else text
