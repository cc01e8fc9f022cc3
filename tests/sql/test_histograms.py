"""WIDTH_BUCKET, HISTOGRAM and APPROX_QUANTILES: right without noise, refused for nothing where they must."""

import math
from fractions import Fraction

import numpy as np
import pytest

from helpers.projects import open_rows
from sfumato.core import noise as system_noise
from sfumato.core.algebra.asks import count_intervals
from sfumato.core.algebra.measures import CELLS, Measure
from sfumato.sql.evaluate import _read_quantiles as read_quantiles
from sfumato.sql.plan import Noise, list_levels

MUCH = 100_000
COLUMNS = {
    "clinic": {"values": ["a", "b", "empty"]},
    "fee": {"bounds": [-20, 80]},
    "steps": {"from": "fee", "bins": [-20, 0, 50, 80]},
}
FEES = np.append(np.arange(998) % 120 - 30.0, [math.nan, math.inf])


@pytest.fixture
def curator(tmp_path):
    number = np.arange(1000)
    rows = {
        "person": number // 2,
        "clinic": np.where(number % 4 == 0, "b", "a"),
        "fee": FEES,
        "free": FEES,
    }
    (tmp_path / "p.csv").write_text("x\n1\n2\n")
    return open_rows(tmp_path, COLUMNS, rows, max_records=2)


def test_width_bucket_is_a_key_with_public_labels(curator):
    text = f"DP-SELECT {MUCH} WIDTH_BUCKET(free, -10, 50, 3) AS b, COUNT(*) AS n FROM t GROUP BY b"
    found = dict(zip(*(curator.sql(text).table[name].to_pylist() for name in ("b", "n")), strict=True))
    finite = FEES[:998]
    expected = [int(each) for each in np.histogram(finite, [-1e9, -10, 10, 30, 50, 1e9])[0]]
    expected[-1] += 1  # infinity; what is not a number is NULL
    assert [found[place] for place in range(5)] == expected
    where = f"DP-SELECT {MUCH} COUNT(*) AS n FROM t WHERE WIDTH_BUCKET(free, -10, 50, 3) = 2"
    assert curator.sql(where).table["n"][0].as_py() == expected[2]


@pytest.mark.parametrize(
    ("histogram", "labels", "edges"),
    [
        ("HISTOGRAM(fee, 4)", ["[-20, 5)", "[5, 30)", "[30, 55)", "[55, 80]"], [-1e9, 5, 30, 55, 1e9]),
        ("HISTOGRAM(steps)", ["[-20, 0)", "[0, 50)", "[50, 80]"], [-20, 0, 50, 80]),
        ("HISTOGRAM(fee * 2, 2)", ["[-40, 60)", "[60, 160]"], [-1e9, 30, 1e9]),
        ("histogram(fee, 2) FILTER (WHERE fee < 30)", ["[-20, 30)", "[30, 80]"], [-1e9, 30, 30]),
    ],
)
def test_a_histogram_is_a_table_of_bins(curator, histogram, labels, edges):
    table = curator.sql(f"DP-SELECT {MUCH} {histogram} AS h FROM t").table
    assert table.column_names == ["h", "h_count", "h_count_low", "h_count_high"]
    assert table["h"].to_pylist() == labels
    counts = np.histogram(FEES[:998], edges)[0]
    if edges[-1] == 30:
        counts[-1] = 0
    counts[-1] += edges[-1] == 1e9  # infinity is clamped
    assert table["h_count"].to_pylist() == counts.tolist()


def test_a_histogram_per_group_is_ordered_and_cut_like_other_answers(curator):
    text = (
        f"DP-SELECT {MUCH} clinic, HISTOGRAM(fee, 3) AS h FROM t GROUP BY ALL ORDER BY h_count DESC LIMIT 2"
    )
    table = curator.sql(text).table
    assert table["clinic"].to_pylist() == ["a", "a"]
    assert (
        curator.sql(f"DP-SELECT {MUCH} clinic, HISTOGRAM(fee, 3) AS h FROM t GROUP BY clinic").table.num_rows
        == 9
    )
    assert curator.sql(f"DP-SELECT {MUCH} HISTOGRAM(clinic) FROM t").table.num_rows == 3


def test_all_quantiles_come_from_one_charge(curator):
    text = f"DP-SELECT {MUCH} APPROX_QUANTILES(fee, 4) AS q, COUNT(fee) AS n FROM t"
    answer = curator.sql(text)
    row = answer.table.to_pylist()[0]
    clamped = np.clip(FEES[np.isfinite(FEES) | np.isinf(FEES)], -20, 80)
    for part in range(5):
        truth = np.quantile(clamped, part / 4, method="inverted_cdf")
        assert row[f"q_{part}"] == pytest.approx(truth, abs=0.2)
        assert row[f"q_{part}_low"] <= row[f"q_{part}"] <= row[f"q_{part}_high"]
    assert answer.spent == MUCH
    assert curator.sql(text).table.equals(answer.table)
    described = dict(curator.describe(text).columns)
    assert {field.name: field.type for field in answer.table.schema} == described


@pytest.mark.parametrize("element", ["OFFSET(1)", "SAFE_OFFSET(1)", "ORDINAL(2)"])
def test_one_element_of_all_quantiles_is_that_quantile(curator, element):
    asked = curator.sql(f"DP-SELECT {MUCH} APPROX_QUANTILES(fee, 2)[{element}] AS q FROM t")
    assert asked.table.column_names == ["q", "q_low", "q_high"]
    assert asked.table["q"][0].as_py() == pytest.approx(np.median(FEES[:998]), abs=1.5)
    again = curator.sql(f"DP-SELECT {MUCH} QUANTILE(fee, 0.5) AS q FROM t")
    assert again.table["q"][0].as_py() == pytest.approx(asked.table["q"][0].as_py(), abs=1)


def test_quantiles_of_groups_and_of_nobody(curator):
    table = curator.sql("DP-SELECT 20 clinic, APPROX_QUANTILES(fee, 2) AS q FROM t GROUP BY clinic").table
    rows = {row["clinic"]: row for row in table.to_pylist()}
    assert rows["a"]["q_1"] == pytest.approx(20, abs=12)
    assert -20 <= rows["empty"]["q_1_low"] <= rows["empty"]["q_1_high"] <= 80


def test_nothing_but_noise_leaves_everything_possible():
    measure = Measure(statistic="quantile", low=Fraction(-20), high=Fraction(80), parts=2)
    noise = Noise(measure=measure, kind="laplace", scale=Fraction(12), costs=())
    silent = np.zeros((sum(-(-CELLS // width) for width in list_levels()), 1), np.int64)
    for value, low, high in read_quantiles(noise, silent):
        assert (low[0], high[0]) == (-20, 80)
        assert low[0] < value[0] < high[0]


def test_levels_hold_every_record_once():
    rng = np.random.default_rng(3)
    histogram = rng.integers(0, 9, (2, CELLS + 1))
    for counts, width in zip(count_intervals(histogram, list_levels()), list_levels(), strict=True):
        assert counts.shape == (2, -(-CELLS // width))
        assert (counts.sum(axis=1) == histogram.sum(axis=1)).all()
    assert list_levels()[-1] == 1


@pytest.mark.statistical
@pytest.mark.slow
def test_intervals_of_quantiles_hold_the_truth():
    groups, parts = 1500, 4
    measure = Measure(statistic="quantile", low=Fraction(0), high=Fraction(CELLS), parts=parts)
    noise = Noise(measure=measure, kind="laplace", scale=Fraction(12), costs=())
    cells = np.sort(np.random.default_rng(5).integers(100, 700, 3000))
    histogram = np.broadcast_to(np.bincount(cells, minlength=CELLS + 1), (groups, CELLS + 1))
    drawn = [
        system_noise.add_noise(np.ascontiguousarray(each), kind="laplace", scale=Fraction(12))
        for each in count_intervals(histogram, list_levels())
    ]
    limit = groups * 0.05 + 5 * math.sqrt(groups * 0.05 * 0.95)
    for part, (_, low, high) in enumerate(read_quantiles(noise, np.hstack(drawn).T)):
        truth = np.quantile(cells, part / parts, method="inverted_cdf") + 0.5
        assert np.sum((low > truth) | (high < truth)) <= limit, part
