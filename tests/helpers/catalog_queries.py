"""The statements of clients in tests/serve/catalog/queries, and the project that they are asked about."""

import json
import re
from dataclasses import dataclass
from pathlib import Path

from sfumato.core.facts.project import parse_project
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


@dataclass(frozen=True)
class Query:
    """A statement of a client; it `differs` where PostgreSQL lists what the catalog leaves out."""

    client: str
    text: str
    parameters: tuple
    differs: bool


def read_queries():
    """The statements of all files; lines that begin with `-- ` say more about the one below."""
    for file in sorted(FOLDER.glob("*.sql")):
        for block in file.read_text().split("\n\n")[1:]:
            notes = [line for line in block.splitlines() if line.startswith("-- ")]
            text = "\n".join(line for line in block.splitlines() if not line.startswith("-- "))
            given = [
                json.loads(line.removeprefix("-- parameters ")) for line in notes if "parameters" in line
            ]
            yield Query(file.stem, text.strip(), tuple(given[0] if given else ()), "-- differs" in notes)


def fill(text, numbers):
    """A statement or parameter with the numbers of the tables in it."""
    return re.sub(r":(visits|clinics)\b", lambda found: str(numbers[found[1]]), text) if text else text
