import json
from fractions import Fraction

import pytest

from sfumato.core.errors import SchemaError
from sfumato.tables.contest import read_parameters


@pytest.mark.parametrize(
    ("name", "cells"),
    [
        ("stlouis/parameters.json", {"neighborhood": 89, "period": 12, "incident_type": 26}),
        ("stlouis/parameters_pooled.json", {"neighborhood": 89, "period": 12, "incident_type": 26}),
        ("baltimore/parameters_crime.json", {"neighborhood": 278, "period": 12}),
        ("baltimore/parameters_arrests.json", {"incident_type": 167}),
        ("chicago_taxi/parameters.json", {"shift": 21, "pickup_community_area": 78}),
    ],
)
def test_the_contests_files_load(shared, name, cells):
    parameters = read_parameters(shared / "data" / name)
    assert parameters.runs[0].epsilon == 1
    for column, size in cells.items():
        assert parameters.columns[column].size == size
        assert name.rsplit("/", 1)[-1] in parameters.columns[column].origin


def test_the_taxi_file_names_the_individual_and_gives_bounds(shared):
    parameters = read_parameters(shared / "data/chicago_taxi/parameters.json")
    assert parameters.unit == "taxi_id"
    assert parameters.columns["fare"].bounds == (Fraction(-1), Fraction(10000))
    assert parameters.runs[0].max_records == 200


@pytest.mark.parametrize(
    "content", ["{", "[]", "{}", json.dumps({"schema": {"c": 3}}), '{"schema": {"c": {}}}']
)
def test_other_files_are_refused(tmp_path, content):
    (tmp_path / "parameters.json").write_text(content)
    with pytest.raises(SchemaError, match=r"parameters\.json"):
        read_parameters(tmp_path / "parameters.json")
