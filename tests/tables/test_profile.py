"""What a public table tells of its columns."""

from datetime import date, datetime

import pyarrow as pa
import pytest

from sfumato.tables.profile import profile_table


def profile(values, **kwargs):
    return profile_table(pa.table({"c": pa.array(values, **kwargs)}), origin="2024.csv")["c"]


def test_listed_values_and_missing_ones():
    found = profile(["N", "S", None, "N"])
    assert (found.values, found.nullable, found.complete, found.kind) == (("N", "S"), True, False, "text")


def test_codes_keep_their_zeros():
    assert profile(["01", "02", "10"] * 9).values == ("01", "02", "10")


@pytest.mark.parametrize("as_text", [False, True])
def test_whole_numbers(as_text):
    few, many, wide = [1, 2, 7] * 9, list(range(18, 80)), list(range(0, 100_000, 7))
    few, many, wide = (list(map(str, each)) if as_text else each for each in (few, many, wide))
    assert profile(few).values == (1, 2, 7)
    found = profile(many)
    assert (found.low, found.high, found.values) == (18, 79, ())
    found = profile(wide)
    assert (found.low, found.high) == (0, 100_000)
    assert len(found.edges) >= 9


def test_numbers_have_round_edges_at_their_quantiles():
    found = profile([0.5 * number for number in range(1000)])
    assert found.kind == "number"
    assert found.edges[0] <= 0
    assert found.edges[-1] >= 500
    assert found.edges[5] == 250
    assert profile(["0,5", "1,25"] * 20).decimal == ","


@pytest.mark.parametrize(
    ("values", "form"),
    [
        (["2019-05-01", "2021-02-03"], None),
        (["31.12.2019", "01.02.2021"], "%d.%m.%Y"),
        (["12/31/2019", "02/01/2021"], "%m/%d/%Y"),
        ([date(2019, 5, 1), date(2021, 2, 3)], None),
        ([datetime(2019, 5, 1, 7), datetime(2021, 2, 3)], None),
    ],
)
def test_dates_have_whole_years_and_their_format(values, form):
    found = profile(values)
    assert (found.low, found.high, found.format) == (date(2019, 1, 1), date(2021, 12, 31), form)


def test_identifiers_and_empty_columns_tell_nothing():
    assert profile([f"person {number}" for number in range(100)]).identifier
    assert not profile([None, None], type=pa.string()).values
    assert profile([[1], [2]]).low is None
    assert profile([True, False]).values == (False, True)
    assert profile([float("nan")] * 3).low is None


def test_dictionaries_are_read():
    assert profile_table(pa.table({"c": pa.array(["a", "b"]).dictionary_encode()}), origin="x")["c"].values
