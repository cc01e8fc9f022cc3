"""What no record can be: read, refused where it is wrong, kept in the record of a table."""

import numpy as np

from sfumato.core.facts.table import parse_table, table_spec
from sfumato.recipes.shared.rules import find_zeros

SPEC = {
    "source": "t.parquet",
    "unit": "row",
    "columns": {
        "age": {"range": [0, 3]},
        "job": {"values": ["none", "teacher"]},
        "town": {"values": ["a", "b", "c"]},
    },
}


def parse(*rules):
    return parse_table("t", {**SPEC, "impossible": list(rules)})


def test_a_rule_becomes_a_mask_over_its_cells():
    table = parse({"age": [0, 1], "job": "teacher"})
    ((columns, mask),) = find_zeros(table, ("age", "job"))
    assert columns == ("age", "job")
    expected = np.zeros((4, 2), bool)
    expected[:2, 1] = True
    assert (mask.reshape(4, 2) == expected).all()


def test_a_rule_stays_with_the_columns_it_speaks_of():
    table = parse({"age": [0], "job": ["teacher"]})
    assert "impossible" not in table_spec(table, ("age", "town"))
    spec = table_spec(table, ("age", "job"))
    again = parse_table("t", spec)
    assert again.impossible == table.impossible
    assert table_spec(again, ("age", "job")) == spec
    assert find_zeros(table, ("age", "town")) == []
