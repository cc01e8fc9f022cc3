"""Hierarchies from TOML and CSV: what can be written, and what is refused with which words."""

from decimal import Decimal
from pathlib import Path

import pytest

from helpers.cases import read_cases
from sfumato.anonymity.hierarchy import Dates, Groups, Intervals, Prefixes, Suppressed
from sfumato.anonymity.options import parse_hierarchy, read_hierarchies, read_listed
from sfumato.core.errors import AnonymityError

EVERYTHING = """
[age]
intervals = [0, 20, 40, 60]
open_above = true

[height]
intervals = [[170, 175.5, 180, 190], [170, 180, 190]]

[weight]
intervals = [20, 60]
open_below = true
style = "whole"

[income]
widths = [1000, 5000]
origin = 500
style = "whole"

[ratio]
widths = 0.1

[born]
dates = ["month", "year"]

[postcode]
prefixes = [2, 1]
pad = true

[sex]
suppressed = true

[job]
spelled = true
[job.groups]
Government = ["Federal-gov", "State-gov"]
Private = ["Private"]

[[school.groups]]
Low = [1, 2]
High = [3]
[[school.groups]]
Any = ["Low", "High"]

[workclass]
file = "lists/workclass.csv"
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "lists").mkdir()
    (tmp_path / "lists" / "workclass.csv").write_text("Federal-gov;Government;*\nPrivate;Private;*\n")
    return tmp_path


def test_every_form_is_read(folder):
    path = folder / "levels.toml"
    path.write_text(EVERYTHING, encoding="utf-8")
    found = read_hierarchies(path)
    listed = found.pop("workclass")
    assert listed.label_levels(["Private", "Federal-gov"], column="workclass") == (
        ("Private", "Government"),
        ("*", "*"),
    )
    schools = [{"Low": [1, 2], "High": [3]}, {"Any": ["Low", "High"]}]
    assert found == {
        "age": Intervals([0, 20, 40, 60], open_above=True),
        "height": Intervals([[170, Decimal("175.5"), 180, 190], [170, 180, 190]]),
        "weight": Intervals([20, 60], open_below=True, style="whole"),
        "income": Intervals(widths=[1000, 5000], origin=500, style="whole"),
        "ratio": Intervals(widths=Decimal("0.1")),
        "born": Dates(["month", "year"]),
        "postcode": Prefixes([2, 1], pad=True),
        "sex": Suppressed(),
        "job": Groups({"Government": ["Federal-gov", "State-gov"], "Private": ["Private"]}, spelled=True),
        "school": Groups(schools),
    }


@pytest.mark.parametrize(
    ("spec", "words"), read_cases(__file__, "test_what_is_wrong_is_said_with_the_column")
)
def test_what_is_wrong_is_said_with_the_column(spec, words, tmp_path):
    with pytest.raises(AnonymityError, match=f"^column 'age': .*{words}"):
        parse_hierarchy(spec, column="age", folder=tmp_path)


@pytest.mark.parametrize(("text", "words"), [
    ("[age", "is not valid TOML"),
    ("age = [1, 2]", r"'age' stands alone; write a section \[age\]"),
    ("\xff", "is not valid TOML"),
])  # fmt: skip
def test_files_that_are_no_hierarchies_are_refused(text, words, tmp_path):
    path = tmp_path / "levels.toml"
    path.write_text(text, encoding="latin-1")
    with pytest.raises(AnonymityError, match=f"'levels.toml'.*{words}"):
        read_hierarchies(path)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(AnonymityError, match=r"'gone.toml' cannot be read \(FileNotFoundError\)"):
        read_hierarchies(tmp_path / "gone.toml")


@pytest.mark.parametrize(("text", "options"), read_cases(__file__, "test_lists_of_other_tools_are_read"))
def test_lists_of_other_tools_are_read(text, options, tmp_path):
    path = tmp_path / "list.csv"
    path.write_text(text, encoding="utf-8", newline="")
    assert read_listed(path, **options).label_levels(["b", "a"], column="c") == (("B", "A"), ("*", "*"))
    spec = {"file": "list.csv", **options}
    assert parse_hierarchy(spec, column="c", folder=str(tmp_path)) == read_listed(path, **options)


@pytest.mark.parametrize(("text", "words"), read_cases(__file__, "test_bad_lists_are_refused"))
def test_bad_lists_are_refused(text, words, tmp_path):
    path = Path(tmp_path, "list.csv")
    path.write_text(text, encoding="latin-1")
    with pytest.raises(AnonymityError, match=words):
        read_listed(path)
