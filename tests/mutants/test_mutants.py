"""The kept faults can still be planted, their tests exist, and some, others every day, are noticed."""

import os
import re
from datetime import date

import pytest

from mutants import plant

MUTANTS = plant.read_mutants()
DAY = os.environ.get("SFUMATO_MUTANTS_DAY", "")
A_DAY = 3


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda each: each.name)
def test_a_fault_can_be_planted_and_its_tests_exist(mutant):
    text = (plant.SOURCE / mutant.file).read_text(encoding="utf-8")
    assert mutant.plant(text) != text
    for name in mutant.killed_by:
        file, _, function = name.partition("::")
        assert (plant.ROOT / file).is_file(), name
        if function:
            content = (plant.ROOT / file).read_text(encoding="utf-8")
            assert re.search(rf"^def {re.escape(function)}\(", content, re.MULTILINE), name
    assert len(set(mutant.killed_by)) >= plant.ENOUGH


def test_faults_are_many_and_each_is_another():
    assert len({(each.file, each.old, each.new) for each in MUTANTS}) == len(MUTANTS)
    assert len(MUTANTS) >= 60


def choose_of_day(day):
    """The faults of a day, which walk through all of them."""
    start = A_DAY * date.fromisoformat(day).timetuple().tm_yday
    return [MUTANTS[(start + place) % len(MUTANTS)] for place in range(A_DAY)]


@pytest.mark.skipif(not DAY, reason="SFUMATO_MUTANTS_DAY names no day: see CONTRIBUTING.md, `make mutants`")
def test_the_faults_of_the_day_are_noticed():
    assert plant.plant_all(choose_of_day(DAY)) == []


def test_a_fault_that_too_few_tests_notice_is_told():
    mutant = MUTANTS[0]
    assert "noticed by 1" in plant.judge(mutant, ("one",))
    assert plant.judge(mutant, ("one", "two")) is None


def test_a_text_that_is_there_twice_is_refused():
    with pytest.raises(ValueError, match="2 times"):
        MUTANTS[0].plant(MUTANTS[0].old * 2)
