"""`sfumato attack`, called as the command line calls it."""

import json
from functools import partial

import pyarrow as pa
import pyarrow.csv
import pytest

from helpers.cli import invoke
from sfumato.anonymity.attack import INTERNAL
from sfumato.audit.demonstrations import invent_town

run = partial(invoke, "attack")


@pytest.fixture
def town(tmp_path):
    """Files of an invented town: the register, the published records, their owners, and coarser rows."""
    made = invent_town(400)
    published = made.published
    coarse = published.set_column(
        0, "birthday", pa.array([day[:3] + "*" for day in published["birthday"].to_pylist()])
    ).set_column(1, "postcode", pa.array(["*"] * published.num_rows))
    for name, table in (
        ("register", made.register),
        ("published", published),
        ("owners", made.patients),
        ("coarse", coarse),
    ):
        pa.csv.write_csv(table, tmp_path / f"{name}.csv")
    return tmp_path


def link(town, release, *arguments, code=0):
    base = ("link", town / f"{release}.csv", "--with", town / "register.csv", "--on", "birthday,postcode,sex")
    return run(*base, *arguments, code=code)


def test_linkage_is_told_as_internal_counts(town):
    result = link(town, "published", "--reveal", "diagnosis")
    assert result.stdout.splitlines()[0] == INTERNAL
    assert INTERNAL in result.stderr
    assert "linked: one record, and it fits nobody else" in result.stdout
    assert "diagnosis of the linked people" in result.stdout
    assert "Ash" not in result.stdout  # no person by default


def test_json_before_and_after(town):
    result = link(
        town, "coarse", "--before", town / "published.csv", "--truth", town / "owners.csv",
        "--reveal", "diagnosis", "--json",
    )  # fmt: skip
    document = json.loads(result.stdout)
    assert document["internal"] == INTERNAL
    assert document["before"]["linked"] > 10 * document["linked"]
    assert document["before"]["truth"]["false_links"] == 0
    assert document["before"]["truth"]["true_links"] == document["before"]["linked"]
    assert sum(document["matches"].values()) == document["people"] == 400
    assert document["shown"] == []


def test_people_are_shown_on_demand_and_with_a_warning(town):
    result = link(town, "published", "--reveal", "diagnosis", "--show", "2", "--json")
    shown = json.loads(result.stdout)["shown"]
    assert len(shown) == 2
    assert set(shown[0]) == {"person", "row", "diagnosis"}
    assert "WARNING" in result.stderr
    plain = link(town, "published", "--show", "1").stdout
    assert shown[0]["person"] in plain


def test_the_difference_attack_fails():
    document = json.loads(run("difference", "--epsilon", "0.1", "--budget", "0.4", "--json").stdout)
    assert document["plain_sql"]["difference"] == 1
    assert document["refused"] is True
    assert document["spent"] == "0.4"
    assert "secret is out" in run("difference", "--budget", "0.2").stdout


def test_the_averaging_attack_fails():
    arguments = ("average", "--budget", "0.2", "--repeats", "5")
    document = json.loads(run(*arguments, "--json").stdout)
    assert document["repeats"]["different"] == 1
    assert document["repeats"]["asked"] == 5
    assert len(document["reworded"]) == 1
    assert "asked 5 times: 1 different answer" in run(*arguments).stdout
