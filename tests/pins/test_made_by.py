"""What earlier versions made is read: a ledger and a release of each, kept as they were written."""

import shutil
from fractions import Fraction
from pathlib import Path

import pytest

import sfumato as sf
from sfumato.accounting import Ledger

VERSIONS = sorted(Path(__file__).parent.glob("made_by_*"))
ASKED = "DP-SELECT 0.5 clinic, COUNT(*), AVG(fare) FROM visits GROUP BY clinic ORDER BY clinic"


@pytest.fixture(params=VERSIONS, ids=lambda folder: folder.name)
def made(request, tmp_path):
    """The folder of a project as a version left it; a copy, since opening it may write."""
    return Path(shutil.copytree(request.param, tmp_path / "made"))


def test_there_is_one_of_the_version_that_first_promised_it():
    assert [folder.name for folder in VERSIONS][:1] == ["made_by_0_3_0"]


def test_a_ledger_is_read_verified_and_charged_further(made):
    kept = Ledger.read_only(made / "ledger.db")
    assert kept.verify() == kept.report().head
    assert [entry.kind for entry in kept.entries()] == [
        "open",
        "charge",
        "answer",
        "charge",
        "answer",
        "share",
    ]
    curator = sf.open(made / "sfumato.toml")
    assert curator.budget().spent == Fraction(3, 2)
    assert curator.share("ana").spent == Fraction(1, 2)
    again = curator.sql(ASKED)
    assert again.repeated
    assert curator.budget().spent == Fraction(3, 2)
    assert curator.sql("DP-SELECT 0.5 COUNT(*) FROM visits").spent == Fraction(1, 2)
    assert Ledger(made / "ledger.db").verify()


def test_a_release_verifies_against_its_ledger_and_is_found_again(made):
    assert sf.verify(made / "release", ledger=made / "ledger.db").unchecked == ()
    recipe = sf.recipes.CellCounts(table="visits", by=("clinic", "month"))
    assert sf.open(made / "sfumato.toml").release(recipe, epsilon=1).repeated
