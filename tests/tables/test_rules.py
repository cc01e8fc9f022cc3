"""Rules of a project file: read, refused where they are wrong, kept in the record of a table."""

from fractions import Fraction

import pytest

from sfumato.core.errors import SchemaError
from sfumato.core.facts.project import parse_project
from sfumato.core.facts.rules import Combination, Comparison
from sfumato.core.facts.table import parse_table, table_spec

SPEC = {
    "source": "t.parquet",
    "unit": "row",
    "columns": {
        "age": {"range": [0, 99]},
        "income": {"bins": [0, 10, 100], "missing_label": "none"},
        "job": {"values": ["it's", "teacher"]},
        "start": {"range": [0, 9]},
        "end": {"range": [0, 9]},
        "total": {"range": [0, 18]},
        "two words": {"range": [0, 3]},
        "free": {"bounds": [0, 1]},
    },
}


def parse(*, impossible=(), rules=(), folder=None):
    return parse_table("t", {**SPEC, "impossible": list(impossible), "rules": list(rules)}, folder=folder)


def test_a_condition_is_read_as_it_is_written():
    (rule,) = parse(impossible=["age < 15 and not (income > 0.5 or job = 'it''s')"]).rules
    above = Comparison("income", ">", (Fraction(1, 2),))
    named = Comparison("job", "=", ("it's",))
    denied = Combination("not", (Combination("or", (above, named)),))
    assert rule.condition == Combination("and", (Comparison("age", "<", (Fraction(15),)), denied))
    assert (rule.kind, rule.columns) == ("impossible", ("age", "income", "job"))


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("3 <= age < 5", "age >= 3 and age < 5"),
        ("job != 'teacher'", "not job = 'teacher'"),
        ("age not in (1, 2)", "not age in (1, 2)"),
        ("income is not missing", "not income is null"),
        ('"two words" = 1', "`two words` == 1"),
        ("age = 1 or age = 2 and age > 3", "age = 1 or (age = 2 and age > 3)"),
    ],
)
def test_spellings_of_one_condition(text, same):
    first, second = parse(impossible=[text, same]).rules
    assert first.condition == second.condition


def test_rules_state_orders_sums_dependences_and_missing_values():
    table = parse(
        rules=["start <= end", "end > start", "total = start + end", "job -> age", PATTERN],
    )
    kinds = [(rule.kind, rule.columns, rule.strict) for rule in table.rules]
    assert kinds == [
        ("order", ("start", "end"), False),
        ("order", ("start", "end"), True),
        ("sum", ("total", "start", "end"), False),
        ("dependence", ("job", "age"), False),
        ("missing", ("income", "age"), False),
    ]


PATTERN = "income is missing exactly when age < 15"


def test_the_record_of_a_table_reads_back_with_its_rules(tmp_path):
    (tmp_path / "jobs.csv").write_text("start,job,end\n1,teacher,5\n2,it's,6\n77,teacher,9\n")
    decided = {"from": "start", "to": "job", "file": "jobs.csv"}
    table = parse(
        impossible=["age < 3 and start > 1"], rules=["start <= end", PATTERN, decided], folder=tmp_path
    )
    spec = table_spec(table, tuple(table.columns))
    assert spec["rules"][2] == {"from": "start", "to": "job", "map": {"1": "teacher", "2": "it's"}}
    again = parse_table("t", spec)
    assert again.rules == table.rules
    assert table_spec(again, tuple(table.columns)) == spec
    assert "rules" not in table_spec(table, ("age", "start"))
    assert table_spec(table, ("age", "start"))["impossible"] == ["age < 3 and start > 1"]


def test_what_decides_must_be_one_value(tmp_path):
    (tmp_path / "jobs.csv").write_text("start,job\n1,teacher\n1,it's\n")
    with pytest.raises(SchemaError, match="two values"):
        parse(rules=[{"from": "start", "to": "job", "file": "jobs.csv"}], folder=tmp_path)
    (tmp_path / "jobs.csv").write_text("start,work\n1,teacher\n")
    with pytest.raises(SchemaError, match="needs the columns"):
        parse(rules=[{"from": "start", "to": "job", "file": "jobs.csv"}], folder=tmp_path)


def test_the_records_themselves_are_no_public_list(tmp_path):
    (tmp_path / "t.csv").write_text("county,state\na,x\n")
    values = {"county": {"values": ["a"]}, "state": {"values": ["x"]}}
    decided = {"from": "county", "to": "state", "file": "t.csv"}
    tables = {"t": {"source": "t.csv", "unit": "row", "columns": values, "rules": [decided]}}
    with pytest.raises(SchemaError, match=r"t\.csv"):
        parse_project({"budget": {"epsilon": 1}, "tables": tables}, folder=tmp_path)
