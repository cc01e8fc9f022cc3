"""Linkage: against comparing everybody with every record, on the tables of the lecture, and at full size."""

from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfumato.anonymity.attack import (
    AttackError,
    compatible,
    describe_linkage,
    link_tables,
    open_published,
    parse_pattern,
    read_identities,
    read_text,
)
from sfumato.anonymity.attack import matching as join_module
from sfumato.anonymity.attack.link import INTERNAL
from sfumato.audit.demonstrations import invent_town
from sfumato.core.errors import SourceError

TINDER = {
    "birthday": ["06/07", "06/14", "06/12", "01/01", "05/08"],
    "name": ["Li Pu", "Sara Lee", "Nikos Papadopoulos", "A. B. Student", "Li Yang"],
    "height": ["190", "185", "180", "170", "175"],
    "weight": ["80", "110", "82", "70", "72"],
    "age": ["63", "72", "61", "40", "33"],
    "postcode": ["1001", "1001", "1243", "6732", "6910"],
    "profession": ["Politician", "Rentier", "Politician", "Time Traveller", "Policeman"],
}
KNOWN = ["height", "weight", "age", "postcode"]


def generalised(**columns):
    rows = {
        "height": ["180-190"] * 3 + ["170-180"] * 2,
        "weight": ["80+"] * 3 + ["60-80"] * 2,
        "age": ["60+"] * 3 + ["20-60"] * 2,
        "postcode": ["1*"] * 3 + ["6*"] * 2,
        "profession": TINDER["profession"],
    }
    return open_published(pa.table(rows | columns))


def compare_all(release, register, on, reveal):
    """The counts that a linkage must have, by comparing every person with every record."""
    fits = np.ones((register.num_rows, release.num_rows), bool)
    for name in on:
        mine = [parse_pattern(cell) for cell in register[name].to_pylist()]
        theirs = [parse_pattern(cell) for cell in release[name].to_pylist()]
        fits &= np.array([[compatible(a, b) for b in theirs] for a in mine])
    records, people = fits.sum(axis=1), fits.sum(axis=0)
    linked = [
        (person, int(np.flatnonzero(fits[person])[0]))
        for person in np.flatnonzero(records == 1)
        if people[np.flatnonzero(fits[person])[0]] == 1
    ]
    values = release[reveal].to_pylist()
    certain = sum(len({values[row] for row in np.flatnonzero(each)}) == 1 for each in fits)
    return records, linked, certain


def test_the_birthday_that_was_left_in_undoes_it():
    table = pa.table(TINDER)
    release = generalised(birthday=TINDER["birthday"])
    found = link_tables(release, table, on=[*KNOWN, "birthday"])
    assert (found.linked, found.revealed, found.verdict) == (5, None, None)


def test_a_group_that_agrees_is_exposed_without_being_linked():
    release = generalised(profession=["Politician"] * 3 + ["Policeman", "Rentier"])
    found = link_tables(release, pa.table(TINDER), on=KNOWN, reveal="profession")
    assert (found.linked, found.revealed.certain) == (0, 3)


def test_a_truth_tells_right_links_from_wrong_ones():
    table = pa.table(TINDER)
    missing = table.slice(0, 4)  # the register does not know Li Yang, whose height is now somebody else's
    release = open_published(pa.table({"height": ["190", "185", "180", "170"], "ill": ["a", "b", "c", "d"]}))
    owners = pa.array(["Li Pu", "Sara Lee", "Nikos Papadopoulos", "Li Yang"])
    found = link_tables(release, missing, on=["height"], reveal="ill", identity="name", identities=owners)
    verdict = found.verdict
    assert (found.linked, verdict.true_links, verdict.false_links) == (4, 3, 1)
    assert (verdict.present, verdict.certain_true) == (3, 3)


CELLS = st.sampled_from(["1", "2", "12", "15", "1*", "*", "10-20", "12+", "a", "b", "a|b", "a|12", ""])
ROWS = st.lists(st.tuples(CELLS, CELLS, CELLS), min_size=1, max_size=14)


@given(release=ROWS, register=ROWS, large=st.booleans())
def test_linkage_finds_what_comparing_everybody_finds(release, register, large):
    on = ["a", "b", "c"]
    rows = pa.table(dict(zip(on, map(list, zip(*release, strict=True)), strict=True)))
    rows = rows.append_column("s", pa.array([str(len("".join(row)) % 3) for row in release]))
    people = pa.table(dict(zip(on, map(list, zip(*register, strict=True)), strict=True)))
    kept = join_module._LARGE
    try:
        # Blocks of every size go by bits, or else pair by pair.
        join_module._LARGE = 0 if large else 10**9
        found = link_tables(open_published(rows), people, on=on, reveal="s")
    finally:
        join_module._LARGE = kept
    records, linked, certain = compare_all(rows, people, on, "s")
    assert found.unique == (records == 1).sum()
    assert found.few == ((records > 1) & (records <= 5)).sum()
    assert found.many == (records > 5).sum()
    assert found.none == (records == 0).sum()
    assert found.pairs.tolist() == [list(pair) for pair in linked]
    assert found.revealed.certain == certain


def test_batches_and_full_sets_of_bits_change_nothing(monkeypatch):
    town = invent_town(800)
    rows = [
        (day[:3] + "*", code[:1] + "*")
        for day, code in zip(
            town.published["birthday"].to_pylist(), town.published["postcode"].to_pylist(), strict=True
        )
    ]
    release = open_published(
        pa.table(
            {"birthday": [a for a, _ in rows], "postcode": [b for _, b in rows], "sex": town.published["sex"]}
        )
    )
    on = ["birthday", "postcode", "sex"]
    plain = link_tables(release, town.register, on=on)
    for large in (0, 10**9):
        monkeypatch.setattr(join_module, "_BATCH", 50)
        monkeypatch.setattr(join_module, "_MOST_BYTES", 16)
        monkeypatch.setattr(join_module, "_LARGE", large)
        assert link_tables(release, town.register, on=on) == plain


def test_no_quadratic_blow_up_at_full_size(monkeypatch):
    town = invent_town(100_000)
    compared = []
    keep = join_module._Blocks._keep

    def count(self, mine, theirs):
        compared.append(mine.size)
        return keep(self, mine, theirs)

    monkeypatch.setattr(join_module._Blocks, "_keep", count)
    on = ["birthday", "postcode", "sex"]
    exact = link_tables(open_published(town.published), town.register, on=on)
    assert exact.linked > 0.7 * exact.records
    assert sum(compared) <= 100_000
    compared.clear()
    months = [day[:7] + "-*" for day in town.published["birthday"].to_pylist()]
    release = town.published.set_column(0, "birthday", pa.array(months))
    coarse = link_tables(open_published(release), town.register, on=on)
    assert coarse.linked < 0.4 * coarse.records
    assert sum(compared) < 10_000_000  # of 2.5 thousand million pairs


def test_counts_stand_for_records():
    counts = pa.table({"ward": ["a", "b", "c"], "count": [1, 0, 7]})
    register = pa.table({"name": ["x", "y", "z"], "ward": ["a", "b", "c"]})
    found = link_tables(open_published(counts, count="count"), register, on=["ward"])
    assert (found.records, found.unique, found.many, found.none) == (8, 1, 1, 1)


@pytest.mark.parametrize(("rows", "people"), [(0, 3), (3, 0), (0, 0)])
def test_empty_tables_link_nobody(rows, people):
    release = open_published(pa.table({"a": ["1"] * rows, "s": ["v"] * rows}))
    register = pa.table({"n": ["x"] * people, "a": ["1"] * people})
    found = link_tables(release, register, on=["a"], reveal="s")
    assert (found.linked, found.none, found.revealed.certain) == (0, people, 0)
    assert INTERNAL in describe_linkage(found)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"on": []}, "quasi-identifiers"),
        ({"on": ["age", "age"]}, "each once"),
        ({"on": ["birth"]}, "release: no column 'birth'"),
        ({"on": ["age"], "reveal": "age"}, "both known and revealed"),
        ({"on": ["age"], "reveal": "x"}, "release: no column 'x'"),
        ({"on": ["age"], "limit": 1}, "at least 2"),
        ({"on": ["age"], "identities": pa.array(["x"] * 5)}, "names people"),
    ],
)
def test_what_cannot_be_linked_is_refused(options, words):
    with pytest.raises((AttackError, SourceError), match=words):
        link_tables(generalised(), pa.table(TINDER), **options)


def test_a_truth_must_fit_the_release():
    release = generalised()
    with pytest.raises(AttackError, match="different numbers of rows"):
        read_identities(release, pa.table({"name": ["x"]}), identity="name")
    with pytest.raises(SourceError, match="truth: no column 'name'"):
        read_identities(release, pa.table({"who": ["x"]}), identity="name")
    twice = pa.table({"profession": ["Rentier", "Rentier"], "name": ["x", "y"]})
    with pytest.raises(AttackError, match="twice"):
        read_identities(release, twice, identity="name", key="profession")
    counts = open_published(pa.table({"a": ["x"], "n": [2]}), count="n")
    with pytest.raises(AttackError, match="counts"):
        read_identities(counts, pa.table({"name": ["x"]}), identity="name")


def test_a_linkage_prints_no_person():
    table = pa.table(TINDER)
    found = link_tables(open_published(table.drop_columns(["name"])), table, on=KNOWN, reveal="profession")
    for text in (repr(found), str(found.to_record()), describe_linkage(found, before=found)):
        assert "Li Pu" not in text
        assert "pairs" not in text
    assert "Politician" not in repr(found)


def test_decimals_are_read_as_they_are_written():
    numbers = [Decimal("597.675"), Decimal("180.000"), Decimal("-0.050"), None]
    table = pa.table({"n": pa.array(numbers, pa.decimal128(10, 3))})
    assert read_text(table, side="register")["n"].to_pylist() == ["597.675", "180", "-0.05", None]
