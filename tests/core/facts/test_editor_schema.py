"""The JSON schema for editors knows the keys that the reader knows, and nothing else."""

import json
import re
from pathlib import Path

from sfumato.core.facts import column, project, table

SCHEMA = json.loads((Path(__file__).parents[3] / "docs" / "sfumato.schema.json").read_text(encoding="utf-8"))


def test_it_has_the_keys_of_tables_and_columns():
    definitions = SCHEMA["$defs"]
    assert set(definitions["table"]["properties"]) == set(table._KEYS)
    assert set(definitions["column"]["properties"]) == set(column._KEYS)


def test_it_has_the_keys_of_the_budget():
    source = Path(project.__file__).read_text(encoding="utf-8")
    known = re.search(r'known = \(("epsilon".*?)\)', source)[1]
    assert set(SCHEMA["properties"]["budget"]["properties"]) == set(re.findall(r'"(\w+)"', known))
    assert set(SCHEMA["properties"]) == {"budget", "tables", "serve", "views"}


def test_every_key_is_explained():
    for part in (SCHEMA["properties"]["budget"], SCHEMA["$defs"]["table"], SCHEMA["$defs"]["column"]):
        told = [name for name, each in part["properties"].items() if "description" not in each]
        assert told in ([], ["columns"])
