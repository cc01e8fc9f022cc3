"""A project file found in the records: right with much epsilon, within its price with any, charged once."""

import re
import tomllib
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from sfumato.accounting import Spent, add_costs, admits
from sfumato.core.errors import BudgetExceeded, RecipeError
from sfumato.core.facts.project import parse_project
from sfumato.curator import Curator, describe_source
from sfumato.curator.draft import draft_privately, read_public_profile
from sfumato.tables.draft import draft_project

SIZE = 3000


def make_records():
    generator = np.random.default_rng(5)
    income = [None if number % 5 == 0 else str(int(number) * 37) for number in range(SIZE)]
    return pa.table(
        {
            "person": [f"p{number % 1500}" for number in range(SIZE)],
            "ward": generator.choice(["North", "South", "Harbour"], SIZE).tolist(),
            "code": generator.choice(["01", "02"], SIZE).tolist(),
            "age": generator.integers(18, 90, SIZE),
            "fare": generator.gamma(2, 10, SIZE).round(2),
            "seen": [
                f"{1 + number % 12:02d}/{1 + number % 28:02d}/{2019 + number % 3}" for number in range(SIZE)
            ],
            "marked": ["X" if each is None else each for each in income],
            "holed": [None if number % 3 == 0 else "yes" for number in range(SIZE)],
        }
    )


@pytest.fixture(scope="module")
def drafted(tmp_path_factory):
    """Drafts of the same records as text and as Parquet, at an epsilon at which noise is small."""
    folder = tmp_path_factory.mktemp("draft")
    records = make_records()
    pyarrow.csv.write_csv(records, folder / "people.csv")
    pq.write_table(records, folder / "people.parquet")
    found = {}
    for name in ("people.csv", "people.parquet"):
        place = folder / name.split(".")[1]
        place.mkdir()
        (folder / name).rename(place / name)
        kinds = describe_source(name, folder=place)
        draft = draft_privately(
            name, kinds, unit="person", max_records=2, epsilon=400, budget=1000, delta="1e-6", folder=place
        )
        text = draft_project(
            name, kinds, known=draft.known, unit="person", max_records=2, epsilon="1000", delta="1e-6"
        )
        found[name] = draft, Curator(parse_project(tomllib.loads(text), folder=place))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("name", ["people.csv", "people.parquet"])
def test_with_much_epsilon_the_description_is_right(drafted, name):
    _, curator = drafted[name]
    columns = curator.project.table("people").columns
    assert set(columns["ward"].labels) == {"North", "South", "Harbour", "missing", "other"}
    assert set(columns["code"].labels) == {"01", "02", "missing", "other"}
    assert 12 <= columns["age"].domain.low <= 18
    assert 89 <= columns["age"].domain.high <= 96
    assert columns["fare"].bounds[0] <= 1
    assert columns["fare"].bounds[1] >= 60
    assert columns["holed"].missing_label == "missing"
    assert columns["age"].nullable
    assert all("epsilon 400" in column.origin for column in columns.values())
    if name.endswith(".csv"):
        assert columns["seen"].format == "%m/%d/%Y"
        assert [end.year for end in columns["seen"].dates] == [2019, 2021]
        assert columns["marked"].missing == ("X",)
        # What doctor sees with exact counts agrees.
        fit = {each["name"]: each for each in curator.examine("people")["columns"]}
        assert fit["seen"]["unread"] == 0
        assert fit["ward"]["outside"] == 0


@pytest.mark.slow
@pytest.mark.parametrize("name", ["people.csv", "people.parquet"])
def test_everything_is_charged_and_within_the_price(drafted, name):
    draft, curator = drafted[name]
    report = curator.budget()
    charges = [entry for entry in report.entries if entry.kind == "charge"]
    assert len(charges) >= 7
    total = Spent()
    for entry in charges:
        total = add_costs(total, entry.costs)
    budget = type(report.budget)(draft.epsilon, report.budget.delta)
    assert admits(budget, total)
    assert not admits(type(report.budget)(draft.epsilon / 2, report.budget.delta), total)
    assert re.search(r"of \d+ columns were described", draft.describe())


@pytest.mark.slow
def test_the_same_draft_again_costs_nothing(drafted):
    _, curator = drafted["people.parquet"]
    spent, folder = curator.budget().spent, curator.project.folder
    kinds = describe_source("people.parquet", folder=folder)
    draft_privately(
        "people.parquet",
        kinds,
        unit="person",
        max_records=2,
        epsilon=400,
        budget=1000,
        delta="1e-6",
        folder=folder,
    )
    assert Curator(curator.project).budget().spent == spent


def test_what_does_not_fit_is_refused_before_anything_is_charged(tmp_path):
    pq.write_table(pa.table({"ward": ["a", "b"]}), tmp_path / "t.parquet")
    facts = {"unit": "row", "max_records": None, "budget": 1, "delta": "1e-6", "folder": tmp_path}
    with pytest.raises(BudgetExceeded):
        draft_privately("t.parquet", {"ward": "text"}, epsilon=2, **facts)
    with pytest.raises(RecipeError, match="no column"):
        draft_privately("t.parquet", {"blob": "other"}, epsilon=1, **facts)
    assert not (tmp_path / "ledger.db").exists()


def test_few_records_at_a_small_price_are_not_told(tmp_path):
    pq.write_table(pa.table({"name": [f"person {number}" for number in range(20)]}), tmp_path / "t.parquet")
    draft = draft_privately(
        "t.parquet",
        {"name": "text"},
        unit="row",
        max_records=None,
        epsilon=Fraction(1, 10),
        budget=1,
        delta="1e-6",
        folder=tmp_path,
    )
    assert draft.known["name"].values == ()


def test_the_records_are_no_public_table(tmp_path):
    pq.write_table(pa.table({"ward": ["a", "b"]}), tmp_path / "t.parquet")
    pq.write_table(pa.table({"ward": ["a", "c"]}), tmp_path / "last.parquet")
    assert read_public_profile(tmp_path / "last.parquet", "t.parquet", folder=tmp_path)["ward"].values == (
        "a",
        "c",
    )
    with pytest.raises(RecipeError, match="not public"):
        read_public_profile(tmp_path / "t.parquet", "t.parquet", folder=tmp_path)
