"""Levels that were paid for one by one: they add up, are better together, and their intervals hold."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest

from helpers.projects import write_project
from sfumato.core.algebra.measures import Measure
from sfumato.core.facts.project import read_project
from sfumato.curator import Curator
from sfumato.sql import reuse
from sfumato.sql.plan import Noise, group_widths

REGIONS = ["a", "b", "c", "d", "e"]
COLUMNS = {
    "region": {"values": REGIONS[:-1], "outside": "other", "missing_label": "none"},
    "kind": {"values": ["x", "y", "z"], "outside": "other", "missing_label": "none"},
}
CHAIN = [
    "COUNT(*) AS n FROM t",
    "region, COUNT(*) AS n FROM t GROUP BY region",
    "region, kind, COUNT(*) AS n FROM t GROUP BY region, kind",
]
# By kind does not follow from by region, and meets it in the whole alone.
CROSSED = [*CHAIN, "kind, COUNT(*) AS n FROM t GROUP BY kind"]


def make_rows(count=2000):
    random = np.random.default_rng(5)
    return pa.table(
        {
            "p": random.integers(0, 700, count),
            "region": pa.array([[*REGIONS, None][i] for i in random.integers(0, 6, count)]),
            "kind": pa.array([["x", "y", "z", "w", None][i] for i in random.integers(0, 5, count)]),
        }
    )


def open_curator(folder, *, ledger="ledger.db", **facts):
    rows = None if (folder / "t.parquet").exists() else make_rows()
    facts = {"unit": "row", "epsilon": 10**9, "delta": 1e-6, "ledger": ledger, **facts}
    return Curator(read_project(write_project(folder, COLUMNS, rows=rows, **facts)))


def read(curator, text, price="FREE"):
    table = curator.sql(f"DP-SELECT {price} {text}").table
    return [np.array(table[name].to_pylist(), float) for name in ("n", "n_low", "n_high")]


@pytest.mark.usefixtures("seeded_noise")
@pytest.mark.parametrize("price", ["0.02", "0.02 DELTA 1e-7"])
def test_levels_add_up_and_are_narrower(tmp_path, price):
    curator = open_curator(tmp_path)
    alone = [read(curator, text, f"FRESH {price}") for text in CHAIN]
    before = len(curator.budget().entries)
    together = [read(curator, text) for text in CHAIN]
    assert len(curator.budget().entries) == before
    total, regions, cells = (each[0] for each in together)
    # Every value is rounded to a whole number.
    assert abs(regions.sum() - total[0]) <= 3
    assert np.abs(cells.reshape(6, 5).sum(axis=1) - regions).max() <= 3
    for fresh, known in zip(alone[1:], together[1:], strict=True):
        assert ((known[2] - known[1]) < 0.99 * (fresh[2] - fresh[1])).all()
    notes = curator.sql(f"DP-SELECT FREE {CHAIN[2]}").notes
    assert notes[0] == "follows from entries 2, 4, 6 of the ledger; nothing was spent"


def test_a_total_improves_groups_of_people_too(tmp_path):
    """Which records of an individual are kept does not matter to their number."""
    curator = open_curator(tmp_path, unit="p", max_records=2)
    curator.sql("DP-SELECT 0.05 COUNT(*) AS n FROM t")
    answer = curator.sql("DP-SELECT 0.0005 region, COUNT(*) AS n FROM t GROUP BY region")
    assert answer.entries == (2, 4)
    total = read(curator, CHAIN[0])[0][0]
    assert abs(sum(answer.table["n"].to_pylist()) - total) <= 4
    # By another column other records may be kept, so that the two are not the same quantity.
    curator.sql("DP-SELECT 0.05 region, kind, COUNT(*) AS n FROM t GROUP BY region, kind")
    paid = curator.sql("DP-SELECT 0.06 region, COUNT(*) AS n FROM t GROUP BY region")
    assert 6 not in paid.entries


def list_misses(folder, texts, price, runs, **facts):
    """How often intervals miss what they should hold, and the mean squared errors, by level."""
    exact = open_curator(folder, ledger="exact.db", **facts)
    truth = [read(exact, text, "1000000")[0] for text in texts]
    misses, errors, alone = ([[] for _ in texts] for _ in range(3))
    for run in range(runs):
        curator = open_curator(folder, ledger=f"{run}.db", **facts)
        for text, true, kept in zip(texts, truth, alone, strict=True):
            kept.append(np.mean((read(curator, text, f"FRESH {price}")[0] - true) ** 2))
        for number, (text, true) in enumerate(zip(texts, truth, strict=True)):
            value, low, high = read(curator, text)
            misses[number] += ((low > true) | (true > high)).tolist()
            errors[number].append(np.mean((value - true) ** 2))
    return [np.mean(each) for each in misses], [
        np.mean(one) / np.mean(each) for one, each in zip(alone, errors, strict=True)
    ]


@pytest.mark.slow
@pytest.mark.usefixtures("seeded_noise")
def test_intervals_between_levels_hold(tmp_path):
    misses, gains = list_misses(tmp_path, CROSSED, "0.05", 12)
    # Of 72 regions, 360 cells and 60 kinds; regions and cells move together.
    assert misses[1] <= 0.12
    assert 0.02 < misses[2] <= 0.075
    assert misses[3] <= 0.12
    assert gains[2] > 1.05


@pytest.mark.slow
@pytest.mark.usefixtures("seeded_noise")
def test_noise_that_is_said_too_small_is_noticed(tmp_path, monkeypatch):
    fit = reuse.fit_levels

    def boast(*given):
        noise, values = fit(*given)
        parts = tuple(replace(part, scale=part.scale * 0.6) for part in noise.parts)
        return replace(noise, parts=parts), values

    monkeypatch.setattr(reuse, "fit_levels", boast)
    misses, _ = list_misses(tmp_path, CHAIN, "0.05", 6)
    assert misses[2] > 0.075


def test_noise_of_other_groups_that_is_forgotten_is_noticed(monkeypatch):
    add = reuse._add_parts

    def forget(parts, noise, weights, draws):
        square = weights.shape[0] == weights.shape[1]
        return add(parts, noise, np.diag(np.diag(weights)) if square else 0 * weights, draws)

    monkeypatch.setattr(reuse, "_add_parts", forget)
    with pytest.raises(AssertionError):
        test_fitted_noise_has_the_variance_and_the_law_that_is_stated()


def test_sums_of_other_records_that_are_taken_for_the_same_are_noticed(tmp_path, monkeypatch):
    link = reuse.link_measures

    def link_all(*given):
        return {number: replace(each, same=True) for number, each in link(*given).items()}

    monkeypatch.setattr(reuse, "link_measures", link_all)
    with pytest.raises(AssertionError):
        test_a_total_improves_groups_of_people_too(tmp_path)


def test_fitted_noise_has_the_variance_and_the_law_that_is_stated():
    """By many draws of a small case: unequal groups, two overlapping sums, two kinds of noise."""
    random, draws, size = np.random.default_rng(11), 2000, 4
    counts, own = np.array([1, 2, 1, 1]), make_noise("laplace", 4)
    source = reuse.Source(noise=own, draws=counts, weights=np.ones(size))
    two, whole = np.array([0, 0, 1, -1]), np.zeros(size, int)
    misses, errors = np.zeros(size), np.zeros(size)
    for _ in range(draws):
        sums = [
            reuse.Sums(target=two, values=draw_laplace(random, 2, [1, 1]), noise=make_noise("laplace", 2)),
            reuse.Sums(
                target=whole,
                values=np.rint(random.normal(0, 1, 1)).astype(int),
                noise=make_noise("gaussian", 1),
            ),
        ]
        noise, values = reuse.fit_levels(own, draw_laplace(random, 4, counts), [source], sums)
        misses += np.abs(values) > group_widths(noise)
        errors += values.astype(float) ** 2
    variances = sum(part.variances for part in noise.parts)
    assert errors / draws == pytest.approx(variances, rel=0.15)
    assert (misses / draws <= 0.05 + 5 * np.sqrt(0.05 / draws)).all()
    assert (variances < counts * own.deviation**2).all()


def draw_laplace(random, scale, counts):
    q = np.exp(-1 / scale)
    return np.array(
        [(random.geometric(1 - q, each) - random.geometric(1 - q, each)).sum() for each in counts]
    )


def make_noise(kind, scale):
    return Noise(measure=Measure(statistic="records"), kind=kind, scale=Fraction(scale), costs=())
