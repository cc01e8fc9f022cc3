"""What is said and drawn follows from the numbers."""

import xml.etree.ElementTree as ET
from fractions import Fraction

import pytest

from sfumato.report.explain.guarantee import Guarantee, describe_explanation, explain_guarantee
from sfumato.report.explain.picture import draw_explanation
from sfumato.report.pages.words import at_least, at_most

GUARANTEES = [
    Guarantee(kind="epsilon", amount=1),
    Guarantee(kind="epsilon", amount="1e-6"),
    Guarantee(kind="epsilon", amount=50, times=3),
    Guarantee(kind="epsilon", amount=1, delta="1e-6", times=10),
    Guarantee(kind="rho", amount="0.5", times=4),
    Guarantee(kind="mu", amount=1, times=1000),
]


def test_the_words_for_epsilon_one():
    text = describe_explanation(explain_guarantee(Guarantee(kind="epsilon", amount=1)))
    assert "whoever believed 50 % before believes at most 73.2 % after, and at least 26.8 %" in text
    assert "the odds move by a factor of 2.719 at most" in text
    assert "of 100 guesses at most 73.2 are right; without any answer, 50" in text
    assert "if 5 of 100 innocent people are accused, at most 13.6 of 100 guilty ones are found" in text
    assert "queries" not in text


def test_many_queries_are_told_beside_one():
    text = describe_explanation(explain_guarantee(Guarantee(kind="epsilon", amount="0.1", times=100)))
    assert "after one query: epsilon 0.1\n" in text
    assert "after 100 queries: epsilon 10; read as epsilon 5.22 at delta 10⁻⁶ (zero-concentrated)" in text
    assert "the odds move by a factor of 2.203e+04 at most" in text


def test_what_bounds_no_single_answer_says_so():
    text = describe_explanation(explain_guarantee(Guarantee(kind="rho", amount=1)))
    assert "no single answer is bounded" in text
    failing = Guarantee(kind="epsilon", amount=1, delta="1e-6")
    assert "with a chance of 10⁻⁶ the answers may tell everything" in describe_explanation(
        explain_guarantee(failing)
    )


@pytest.mark.parametrize("prior", [0, 1])
def test_a_certain_belief_is_said_to_stay(prior):
    text = describe_explanation(explain_guarantee(Guarantee(kind="epsilon", amount=1), prior=prior))
    assert "whoever was certain before" in text


@pytest.mark.parametrize("share", [0, 1e-9, 0.00123, 0.25, 0.268941, 0.731059, 0.99995, 1 - 1e-9, 1])
def test_shares_are_rounded_away_from_the_safe_side(share):
    most, least = (float(text.removesuffix(" %")) / 100 for text in (at_most(share), at_least(share)))
    assert least - 1e-7 <= share <= most + 1e-7
    assert most - least < 0.0011


@pytest.mark.parametrize("guarantee", GUARANTEES, ids=str)
def test_a_record_holds_plain_values_only(guarantee):
    import json

    record = explain_guarantee(guarantee, prior=Fraction(1, 3)).to_record()
    assert json.loads(json.dumps(record, allow_nan=False)) == record
    assert len(record["findings"]) == (1 if guarantee.times == 1 else 2)


@pytest.mark.parametrize("guarantee", GUARANTEES, ids=str)
def test_a_picture_is_one_file_that_can_be_read_aloud(guarantee):
    drawn = draw_explanation(explain_guarantee(guarantee))
    root = ET.fromstring(drawn)
    space = "{http://www.w3.org/2000/svg}"
    assert root.tag == f"{space}svg"
    assert root.get("role") == "img"
    assert "What an adversary learns" in root.find(f"{space}title").text
    assert "After one query" in root.find(f"{space}desc").text
    assert "prefers-color-scheme:dark" in root.find(f"{space}style").text
    assert drawn.replace("http://www.w3.org/2000/svg", "").count("http") == 0
    curves = [each for each in root.iter(f"{space}path") if "curve" in each.get("class")]
    assert len(curves) == (3 if guarantee.times == 1 else 6)
    assert drawn == draw_explanation(explain_guarantee(guarantee))
