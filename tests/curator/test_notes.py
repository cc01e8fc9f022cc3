"""What public facts say of a release is said before and after it is paid for, once."""

import json

import pytest

from helpers.cli import run_main
from helpers.projects import project_text

RECIPE = 'recipe = "cell-counts"\ntable = "t"\nby = ["age", "sex"]\nepsilon = 1\n'
TOLD = "records without a value in age or sex are left out, as a whole; `sfumato doctor`"


@pytest.fixture
def folder(tmp_path):
    lines = ["id,age,sex", *(f"{n},{n % 9 or ''},{'FM'[n % 2]}" for n in range(40))]
    (tmp_path / "t.csv").write_text("\n".join(lines))
    (tmp_path / "r.toml").write_text(RECIPE)
    return tmp_path


def describe(folder, **more):
    columns = {"age": {"range": [1, 9], **more}, "sex": {"values": ["F", "M"], **more}}
    text = project_text(columns, source="t.csv", unit="id", max_records=1, epsilon=9)
    (folder / "sfumato.toml").write_text(text)


def test_columns_whose_blanks_lose_records_are_named_before_and_after(folder):
    describe(folder)
    done = run_main("check", "r.toml", cwd=folder)
    assert done.stderr.count(TOLD) == 1
    notes = json.loads(run_main("check", "r.toml", "--json", cwd=folder).stdout)["notes"]
    assert [each.startswith(TOLD) for each in notes].count(True) == 1
    done = run_main("release", "r.toml", "--out", "out", cwd=folder)
    assert done.stderr.count(TOLD) == 1


def test_nothing_is_said_where_missing_is_a_value(folder):
    describe(folder, nullable=True)
    assert "without a value" not in run_main("check", "r.toml", cwd=folder).stderr
    assert "without a value" not in run_main("release", "r.toml", "--out", "out", cwd=folder).stderr


def test_many_columns_are_counted_and_not_listed(folder):
    names = [f"c{n}" for n in range(9)]
    (folder / "t.csv").write_text(",".join(["id", *names]) + "\n")
    columns = {name: {"values": ["a", "b"]} for name in names}
    (folder / "sfumato.toml").write_text(project_text(columns, source="t.csv", unit="id", max_records=1))
    (folder / "r.toml").write_text(
        f'recipe = "cell-counts"\ntable = "t"\nby = {json.dumps(names)}\nepsilon = 1\n'
    )
    told = run_main("check", "r.toml", cwd=folder).stderr
    assert "in c0, c1, c2, c3, c4 or 4 other columns are left out" in told


RELEASE = ["release", "r.toml", "--out", "out"]


@pytest.mark.parametrize("recipe", ["adaptive", "tree", "field-groups"])
def test_columns_that_no_row_will_have_are_told_with_the_remedy(folder, recipe):
    columns = {
        "age": {"range": [1, 9]},
        "sex": {"values": ["F", "M"]},
        "seen": {"range": ["2020-01-01", "2020-12-31"]},
        "fee": {"bounds": [0, 9]},
    }
    budget = {"source": "t.csv", "unit": "id", "max_records": 1, "epsilon": 9, "delta": 1e-6}
    (folder / "t.csv").write_text("id,age,sex,seen,fee\n1,2,F,2020-01-02,3\n")
    (folder / "r.toml").write_text(f'recipe = "{recipe}"\ntable = "t"\nepsilon = 1\ndelta = 1e-9\n')
    (folder / "sfumato.toml").write_text(project_text(columns, **budget))
    left = "rows will have no seen and no fee: give dates a period"
    both = [run_main(*command, cwd=folder).stderr for command in (["check", "r.toml"], RELEASE)]
    if recipe == "field-groups":
        assert all(left in told for told in both)
        return
    assert not any("rows will have no" in told for told in both)
    header = (folder / "out" / "table.csv").read_text().splitlines()[0]
    assert header == "age,sex,seen,fee"
    # With its year and month, the date is drawn within these; with its week, the week alone is there.
    columns["year"] = {"from": "seen", "period": "year", "range": [2020, 2020]}
    columns["month"] = {"from": "seen", "period": "month"}
    (folder / "sfumato.toml").write_text(project_text(columns, **budget))
    assert "rows will have no" not in run_main("check", "r.toml", cwd=folder).stderr
    columns["year"] = {"from": "seen", "period": "week", "range": ["2020-01-01", "2020-12-31"]}
    (folder / "sfumato.toml").write_text(project_text(columns, **budget))
    assert "rows will have no seen: give" in run_main("check", "r.toml", cwd=folder).stderr
