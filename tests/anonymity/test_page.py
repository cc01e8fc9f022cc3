"""The page about a released table: one file, safe against what is in names, and internal."""

import re

import pytest

from helpers.pages import Reader
from sfumato.anonymity import Options, release_table
from sfumato.anonymity.summary import build_page, summarise

PEOPLE = {
    "age": [61, 72, 66, 40, 35, 44],
    "<b>sex": ["f", "m", "f", "f", "m", "f"],
    "ill": ["flu", "gout", "gout", "flu", "none", "flu"],
}
REGISTER = {"age": [61, 72, 66, 40, 35, 44, 65, 36], "<b>sex": list("fmffmfmm")}


def page(register=None, name="coarse.csv", **required):
    plan = Options(**{"quasi_identifiers": ["age", "<b>sex"], "k": 3, "sensitive": "ill", **required})
    return build_page(summarise(release_table(PEOPLE, plan), register=register), name=name).decode()


def test_it_makes_no_request_and_runs_nothing():
    text = page(REGISTER)
    for sign in ("http:", "https:", "<script", "src=", "@import", "url(", "<link", "<iframe"):
        assert sign not in text.replace("url(#", "")  # a pattern of the page itself
    assert "default-src 'none'" in text


def test_it_is_marked_everywhere():
    text = page()
    assert text.count('class="mark"') == text.count("<section")
    assert "k-anonymity, not differential privacy" in text
    assert "compares with the truth" not in text  # words of the report on releases
    assert "INTERNAL - facts of the original table" in text


def test_tags_are_closed_and_contents_lead_to_sections():
    text = page(REGISTER)
    Reader(text)
    assert re.findall(r'href="#([\w-]+)"', text)[1:] == re.findall(r'<h2 id="([\w-]+)"', text)


def test_names_are_escaped_and_no_value_is_reported():
    text = page(REGISTER, name="<i>.csv")
    assert "<b>sex" not in text
    assert "&lt;b&gt;sex" in text
    assert "<i>.csv" not in text
    for value in ("flu", "gout", "61-72"):
        assert value not in text


@pytest.mark.parametrize(
    ("required", "section", "there"),
    [
        ({}, "Linkage with the register", False),
        ({"register": REGISTER}, "Linkage with the register", True),
        ({}, "What can still be learned", True),
        ({"sensitive": None}, "What can still be learned", False),
        ({}, "What this does not protect against", True),
    ],
)
def test_sections_without_anything_to_tell_are_left_out(required, section, there):
    assert (section in page(**required)) is there


def test_a_class_that_agrees_is_a_warning():
    same = {"age": [61, 62, 33, 34], "ill": ["flu", "flu", "gout", "none"]}
    plan = Options(quasi_identifiers="age", k=2, sensitive="ill")
    warned = build_page(summarise(release_table(same, plan)), name="x.csv").decode()
    assert "Ask for l-diversity" in warned
    assert "Ask for l-diversity" not in page(l=2)


def test_several_sensitive_columns_are_told_one_by_one():
    people = {**PEOPLE, "score": [1, 2, 3, 4, 5, 6]}
    plan = Options(quasi_identifiers="age", k=3, sensitive=["ill", "score"])
    text = build_page(summarise(release_table(people, plan)), name="x.csv").decode()
    assert "sensitive column" in text
