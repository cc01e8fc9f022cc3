"""Series that go on: one charge, every period once, late records, bounds over all periods, and refusals."""

import json
import math
import re
import shutil
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.helpers.cli import invoke

import sfumato as sf
from sfumato.core import noise as system_noise
from sfumato.core.facts.project import read_project
from sfumato.curator import Curator
from sfumato.recipes import Running
from sfumato.recipes.files import parse_record

PROJECT = """
[budget]
epsilon = {budget}
delta = 1e-6
[tables.t]
source = "{source}"
{unit}
[tables.t.columns.month]
values = ["2025-01", "2025-02", "2025-03", "2025-04", "2025-05", "2025-06"]
[tables.t.columns.ward]
values = ["a", "b"]
[tables.t.columns.open]
values = ["x"]
outside = "other"
"""
MONTHS = [f"2025-{month:02}" for month in range(1, 7)]
UNIT = 'unit = "p"\nmax_records = 3'
# Noise of this epsilon is far below a record.
MUCH = 10**7


class City:
    """A table that grows, and releases of its series."""

    def __init__(self, folder, *, budget=10**8, unit=UNIT):
        self.folder = folder
        self.describe(budget=budget, unit=unit)

    def describe(self, *, budget=10**8, unit=UNIT, source="t.parquet"):
        text = PROJECT.format(budget=budget, unit=unit, source=source)
        (self.folder / "sfumato.toml").write_text(text)
        self.source = source

    def hold(self, *rows):
        columns = [[row[place] for row in rows] for place in range(3)]
        arrays = [pa.array(each, pa.string()) for each in (*columns, ["x"] * len(rows))]
        pq.write_table(pa.table(arrays, ["p", "month", "ward", "open"]), self.folder / self.source)

    def curator(self, **options):
        return Curator(read_project(self.folder / "sfumato.toml"), **options)

    def release(self, through, *, epsilon=MUCH, out=None, **options):
        options = {"by": ("ward",), **options}
        recipe = Running(table="t", period="month", through=through, **options)
        return self.curator().release(recipe, epsilon=epsilon, delta=1e-6, out=out)

    def counts(self, through, **options):
        rows = self.release(through, **options).table.to_pylist()
        return {(row["month"], row["ward"]): row["count"] for row in rows if row["count"]}


@pytest.fixture
def city(tmp_path):
    return City(tmp_path)


def test_months_are_released_as_they_come_under_one_charge(city, tmp_path):
    random = np.random.default_rng(1)
    rows, spent, earlier = [], [], None
    for place, month in enumerate(MONTHS):
        rows += [(f"p{place}-{each}", month, "ab"[each % 3 == 0]) for each in range(30 + random.integers(9))]
        city.hold(*rows)
        release = city.release(month, epsilon=1, out=tmp_path / month, windows=[3], change=True)
        assert not release.repeated
        spent.append(city.curator().budget().spent)
        verified = sf.verify(tmp_path / month, ledger=tmp_path / "ledger.db")
        assert not verified.unchecked
        assert release.table.num_rows == 2 * (place + 1)
        if earlier is not None:
            assert release.table.slice(0, earlier.table.num_rows).equals(earlier.table)
        earlier = release
    assert len(set(spent)) == 1
    assert spent[0] > 0
    charged = [entry for entry in city.curator().budget().entries if entry.kind == "charge"]
    assert [len(entry.costs) for entry in charged] == [1, 0, 0, 0, 0, 0]
    # An earlier folder still verifies, and the same again is the same.
    assert not sf.verify(tmp_path / MONTHS[2], ledger=tmp_path / "ledger.db").unchecked
    again = city.release(MONTHS[2], epsilon=1, windows=[3], change=True)
    assert again.repeated
    assert again.table.equals(earlier.table.slice(0, 6))
    # What is derived may change: it is no part of what is asked.
    assert city.release(MONTHS[5], epsilon=1).repeated


def test_numbers_are_those_of_the_table(city):
    rows = [(f"p{each}", MONTHS[each % 4], "ab"[each % 2]) for each in range(200)]
    city.hold(*rows)
    release = city.release(MONTHS[5], windows=[2], change=True)
    exact = {
        (month, ward): sum(row[1:] == (month, ward) for row in rows) for month in MONTHS for ward in "ab"
    }
    for row in release.table.to_pylist():
        place, ward = MONTHS.index(row["month"]), row["ward"]
        history = [exact[month, ward] for month in MONTHS[: place + 1]]
        assert row["count"] == history[-1], "a month without records is zeros"
        assert row["total"] == sum(history)
        assert row["last_2"] == sum(history[-2:])
        assert row["change"] == history[-1] - (history[-2] if place else 0)
        for name in ("count", "total", "last_2", "change"):
            assert row[f"{name}_low_95"] <= row[name] <= row[f"{name}_high_95"]


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
def test_numbers_are_those_of_the_table_by_either_noise(city, noise):
    city.hold(*[(f"p{each}", MONTHS[each % 4], "ab"[each % 2]) for each in range(200)])
    rows = city.release(MONTHS[5], windows=[2], change=True, noise=noise).table.to_pylist()
    assert [row["total"] for row in rows[-2:]] == [100, 100]
    assert [row["count"] for row in rows[:2]] == [50, 0]
    assert [row["last_2"] for row in rows[2:4]] == [50, 50]


def test_what_errs_less_is_taken_by_public_facts_and_said_before_the_charge(tmp_path):
    """The simple method, counts of each period with Laplace noise, is never better than what is taken."""
    (tmp_path / "t.csv").write_text("p,day\na,1\n")
    for days, better in ((1, "laplace"), (12, "laplace"), (60, "laplace"), (365, "gaussian")):
        facts = f'unit = "p"\nmax_records = 2\n[tables.t.columns.day]\nrange = [1, {days}]\n'
        text = f'[budget]\nepsilon = 9\ndelta = 1e-6\n[tables.t]\nsource = "t.csv"\n{facts}'
        (tmp_path / "sfumato.toml").write_text(text)
        curator = Curator(read_project(tmp_path / "sfumato.toml"))

        def look(noise, delta=1e-9, curator=curator):
            recipe = Running(table="t", period="day", through=1, noise=noise)
            return curator.check(recipe, epsilon=1, delta=delta)

        errors = {
            noise: float(re.search(r"off by up to ([0-9.]+)", look(noise).notes[-1])[1])
            for noise in ("auto", "laplace", "gaussian")
        }
        assert errors["auto"] == min(errors.values()) == errors[better]
        assert errors["laplace"] == pytest.approx(1.96 * math.sqrt(2 * days) * 2, rel=1e-3)
        found = look("auto")
        assert found.plan.requests[0].noise == better
        assert found.plan.costs == look(better).plan.costs
        # Without delta there is one way only.
        alone = look("auto", delta=0)
        assert alone.plan.requests[0].noise == "laplace"
        assert alone.plan.costs[0].epsilon == 1
        assert "needs delta above zero" in alone.notes[-1]


def test_a_pure_series_is_charged_once_and_verifies(city, tmp_path):
    city.hold(("ana", "2025-01", "a"), ("ben", "2025-01", "b"))
    recipe = Running(table="t", period="month", through="2025-01", change=True)
    city.curator().release(recipe, epsilon=1, out=tmp_path / "one")
    assert str(city.curator().budget().spent) == "1"
    city.curator().release(replace(recipe, through="2025-06"), epsilon=1, out=tmp_path / "six")
    assert str(city.curator().budget().spent) == "1"
    assert not sf.verify(tmp_path / "six", earlier=tmp_path / "one", ledger=tmp_path / "ledger.db").unchecked
    # The interval of a count is that of one Laplace draw, of a total that of the sum of six.
    told = json.loads((tmp_path / "six" / "certificate.json").read_text())["postprocessing"]["series"]
    assert float(told["count_95"]) == pytest.approx(3 * math.log(20), rel=1e-3)
    assert 1.96 < float(told["total_95"]) / (3 * math.sqrt(12)) < 2.0
    assert "weighted sums need Gaussian noise" in (tmp_path / "six" / "writeup.md").read_text()


def test_a_series_of_an_earlier_version_is_read_as_it_was_made():
    """Certificates stated no noise then: it was Gaussian, and is still not stated."""
    recipe = Running(table="t", period="month", noise="gaussian")
    assert "noise" not in recipe.to_record()
    assert parse_record(recipe.to_record()) == recipe
    assert parse_record(Running(table="t", period="month").to_record()).noise == "auto"


def test_what_comes_late_or_is_taken_back_does_not_change_what_was_released(city):
    city.hold(("ana", "2025-01", "a"), ("ben", "2025-01", "a"))
    assert city.counts("2025-01") == {("2025-01", "a"): 2}
    # Cy's record of January comes in February; Ben's is taken back; Ana's is moved to February.
    city.hold(("ana", "2025-02", "a"), ("cy", "2025-01", "b"), ("dee", "2025-02", "b"))
    assert city.counts("2025-02") == {("2025-01", "a"): 2, ("2025-02", "a"): 1, ("2025-02", "b"): 1}
    city.hold()
    assert city.counts("2025-02") == {("2025-01", "a"): 2, ("2025-02", "a"): 1, ("2025-02", "b"): 1}


def test_what_comes_late_is_carried_into_the_next_month(city):
    city.hold(("ana", "2025-01", "a"))
    assert city.counts("2025-01", late="carry") == {("2025-01", "a"): 1}
    city.hold(
        ("ana", "2025-01", "a"), ("ana", "2025-01", "a"), ("cy", "2025-01", "b"), ("dee", "2025-02", "b")
    )
    found = city.counts("2025-02", late="carry")
    assert found == {("2025-01", "a"): 1, ("2025-02", "a"): 1, ("2025-02", "b"): 2}
    assert city.counts("2025-03", late="carry") == found, "and counts once"


@pytest.mark.parametrize("late", ["drop", "carry"])
def test_nobody_counts_for_more_than_max_records_in_all_months_together(city, late):
    rows = []
    for month in MONTHS:
        rows += [("eve", month, "a"), ("eve", month, "b"), (f"other {month}", month, "a")]
        city.hold(*rows)
        found = city.counts(month, late=late)
    others = len(MONTHS)
    assert sum(found.values()) == others + 3
    # All at once is the same as month by month; of one month's, a digest with the ledger's key decides.
    (city.folder / "once").mkdir()
    again = City(city.folder / "once")
    again.hold(*rows)
    once = again.counts(MONTHS[-1], late=late)
    for month in MONTHS:
        assert sum(once.get((month, ward), 0) for ward in "ab") == sum(
            found.get((month, ward), 0) for ward in "ab"
        )


@pytest.mark.parametrize("late", ["drop", "carry"])
def test_several_records_in_one_cell_count_no_further_than_those_of_earlier_months_leave(city, late):
    rows = [("eve", "2025-01", "a")] * 2
    city.hold(*rows)
    assert city.counts("2025-01", late=late) == {("2025-01", "a"): 2}
    rows += [("eve", "2025-02", "a")] * 3
    city.hold(*rows)
    assert city.counts("2025-02", late=late) == {("2025-01", "a"): 2, ("2025-02", "a"): 1}


def test_nobody_shares_a_bound_with_another(city):
    people = [f"person {number}" for number in range(400)]
    city.hold(*[(person, "2025-01", "a") for person in people for _ in range(3)])
    assert city.counts("2025-01") == {("2025-01", "a"): 1200}


def test_individuals_are_kept_under_digests_of_128_bits(city):
    city.hold(("ana", "2025-01", "a"), ("ben", "2025-01", "b"))
    city.counts("2025-01")
    (file,) = (city.folder / ".sfumato").glob("*/period-1.parquet")
    names = pq.read_table(file)["individual"].to_pylist()
    assert len(set(names)) == 2
    assert {len(bytes.fromhex(name)) for name in names} == {16}


def test_every_row_may_be_an_individual_of_its_own(tmp_path):
    city = City(tmp_path, unit='unit = "row"')
    city.hold(*[("x", month, "a") for month in MONTHS for _ in range(5)])
    assert set(city.counts(MONTHS[-1]).values()) == {5}
    with pytest.raises(sf.RecipeError, match="carry"):
        city.release(MONTHS[-1], late="carry")


def test_the_source_may_have_another_name_every_month(city):
    city.hold(("ana", "2025-01", "a"))
    city.counts("2025-01")
    spent = city.curator().budget().spent
    city.describe(source="february.parquet")
    city.hold(("ana", "2025-02", "a"), ("ana", "2025-02", "b"), ("ana", "2025-02", "b"))
    assert sum(city.counts("2025-02").values()) == 3, "and whoever counted before is known"
    assert city.curator().budget().spent == spent


def test_without_what_counted_before_a_series_does_not_go_on(city):
    city.hold(("ana", "2025-01", "a"))
    city.release("2025-01")
    kept = city.folder / ".sfumato"
    assert kept.stat().st_mode & 0o077 == 0
    (file,) = kept.glob("series-*/period-1.parquet")
    assert file.stat().st_mode & 0o077 == 0
    assert "ana" not in str(pq.read_table(file).to_pylist())
    moved = file.with_name("elsewhere")
    shutil.move(file, moved)
    before = len(city.curator().budget().entries)
    with pytest.raises(sf.SourceError, match="Restore it from a backup"):
        city.release("2025-02")
    assert len(city.curator().budget().entries) == before
    shutil.move(moved, file)
    city.release("2025-02")
    # That of another ledger is not taken for this one's.
    (city.folder / "ledger.db").unlink()
    city.release("2025-01")
    second = file.with_name("period-2.parquet").read_bytes()
    file.write_bytes(second)
    with pytest.raises(sf.SourceError, match="not that of this ledger"):
        city.release("2025-02")


def test_a_month_that_was_interrupted_is_finished_under_its_charge(city):
    city.hold(("ana", "2025-01", "a"))
    city.release("2025-01", epsilon=1)

    class Broken:
        def __getattr__(self, name):
            raise RuntimeError("no noise today")

    city.hold(("ana", "2025-01", "a"), ("ben", "2025-02", "b"))
    recipe = Running(table="t", period="month", through="2025-02", by=("ward",))
    with pytest.raises(RuntimeError):
        city.curator(noise=Broken()).release(recipe, epsilon=1, delta=1e-6)
    entries = city.curator().budget().entries
    city.hold(("ana", "2025-01", "a"), ("ben", "2025-02", "b"), ("cy", "2025-02", "b"))
    release = city.curator().release(recipe, epsilon=1, delta=1e-6)
    assert release.resumed
    charges = [entry for entry in city.curator().budget().entries if entry.kind == "charge"]
    assert charges == [entry for entry in entries if entry.kind == "charge"]
    release = city.curator().release(recipe, epsilon=1, delta=1e-6)
    assert release.repeated


def test_a_month_that_another_process_finished_is_read_as_that_one_counted_it(city):
    """Who was interrupted goes on from what the other kept, or Ana would count five times."""

    class Noise:
        broken = False

        def __getattr__(self, name):
            if self.broken:
                raise KeyboardInterrupt
            return getattr(system_noise, name)

    def count(curator, through):
        recipe = Running(table="t", period="month", through=through, by=("ward",))
        rows = curator.release(recipe, epsilon=MUCH, delta=1e-6).table.to_pylist()
        return {(row["month"], row["ward"]): row["count"] for row in rows if row["count"]}

    noise = Noise()
    curator = city.curator(noise=noise)
    city.hold(("ana", "2025-01", "a"))
    count(curator, "2025-01")
    noise.broken = True
    with pytest.raises(KeyboardInterrupt):
        count(curator, "2025-02")
    noise.broken = False
    city.hold(("ana", "2025-02", "a"), ("ana", "2025-02", "b"))
    found = count(city.curator(), "2025-02")
    assert found == {("2025-01", "a"): 1, ("2025-02", "a"): 1, ("2025-02", "b"): 1}
    city.hold(("ana", "2025-03", "a"), ("ana", "2025-03", "b"))
    assert count(curator, "2025-03") == found, "all that counts of her has counted"


def test_verification_notices_another_answer_and_another_charge(city, tmp_path):
    city.hold(("ana", "2025-01", "a"))
    city.release("2025-01", epsilon=1, out=tmp_path / "one")
    city.release("2025-02", epsilon=1, out=tmp_path / "two")
    (tmp_path / "other").mkdir()
    other = City(tmp_path / "other")
    other.hold(("ana", "2025-01", "a"))
    other.release("2025-02", epsilon=1, out=tmp_path / "three")
    with pytest.raises(sf.VerificationFailed):
        sf.verify(tmp_path / "three", ledger=tmp_path / "ledger.db")
    # The measurements of one with the certificate of the other.
    assert "same answers here" in str(sf.verify(tmp_path / "two", earlier=tmp_path / "one").checked)
    with pytest.raises(sf.VerificationFailed, match="other answers for the same periods"):
        sf.verify(tmp_path / "two", earlier=tmp_path / "three")
    shutil.copy(tmp_path / "three" / "measurements.parquet", tmp_path / "two" / "measurements.parquet")
    with pytest.raises(sf.VerificationFailed):
        sf.verify(tmp_path / "two", ledger=tmp_path / "ledger.db")


def test_a_recipe_file_is_released_month_by_month_from_the_command_line(city, tmp_path):
    city.hold(("ana", "2025-01", "a"))
    project, recipe = tmp_path / "sfumato.toml", tmp_path / "monthly.toml"
    recipe.write_text('recipe = "running"\ntable = "t"\nperiod = "month"\nepsilon = 1\ndelta = 1e-6\n')
    done = invoke("release", recipe, "-p", project, "-o", tmp_path / "no", code=2)
    assert "say through which period" in str(done.exception)
    for month in ("2025-01", "2025-02"):
        out = tmp_path / month
        invoke("check", recipe, "-p", project, "--through", month)
        told = invoke("release", recipe, "-p", project, "-o", out, "--through", month).stdout
        assert ("nothing more spent" in told) == (month == "2025-02")
    done = invoke("verify", out, "-p", project, "--earlier", tmp_path / "2025-01")
    assert "the periods of the earlier release have the same answers here" in done.output
    told = (out / "writeup.md").read_text()
    assert "over all periods together: an individual counts with at most 3 records" in told
    recipe.write_text('recipe = "cell-counts"\ntable = "t"\nby = ["month"]\nepsilon = 1\n')
    done = invoke("release", recipe, "-p", project, "-o", tmp_path / "no", "--through", "2025-01", code=2)
    assert "is no series" in str(done.exception)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"through": "2026-01"}, "no period of 'month', which go from '2025-01' to '2025-06'"),
        ({"through": True}, "last period to release now"),
        ({"period": "open", "through": "x", "by": ()}, "remove missing_label"),
        ({"by": ["month"]}, "not in by"),
        ({"windows": [1]}, "from 2 to"),
        ({"windows": [2, 2]}, "twice"),
        ({"late": "ignore"}, "'drop' or 'carry'"),
        ({"noise": "none"}, "auto, laplace or gaussian"),
        ({"change": "yes"}, "true or false"),
    ],
)
def test_what_cannot_be_answered_is_refused_before_a_charge(city, options, message):
    city.hold(("ana", "2025-01", "a"))
    given = {"table": "t", "period": "month", "through": "2025-01", "by": ("ward",), **options}
    with pytest.raises(sf.RecipeError, match=message):
        city.curator().release(Running(**given), epsilon=1, delta=1e-6)
    with pytest.raises(sf.RecipeError, match="needs delta"):
        city.curator().release(
            Running(table="t", period="month", through="2025-01", noise="gaussian"), epsilon=1
        )
    city.describe(unit=f'{UNIT}\nbounding = "weight"')
    with pytest.raises(sf.RecipeError, match="truncate"):
        city.release("2025-01")
    assert city.curator().budget().spent == 0


@pytest.mark.slow
@pytest.mark.statistical
def test_intervals_cover(tmp_path):
    city = City(tmp_path)
    rows = [(f"p{each}", MONTHS[each % 6], "ab"[each % 2]) for each in range(600)]
    city.hold(*rows)
    hits = tries = 0
    for attempt in range(8):
        release = city.release(MONTHS[-1], epsilon=3 + attempt / 100)
        for row in release.table.to_pylist():
            place, ward = MONTHS.index(row["month"]), row["ward"]
            exact = sum(each[2] == ward and MONTHS.index(each[1]) <= place for each in rows)
            hits += row["total_low_95"] <= exact <= row["total_high_95"]
            tries += 1
    assert hits / tries > 0.8
