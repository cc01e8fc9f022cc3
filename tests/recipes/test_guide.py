"""A public table as guide: it helps where it is like the records, costs what it says, and cannot do harm."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sfumato as sf
from sfumato.core.facts.column import parse_column
from sfumato.inference import Domain
from sfumato.recipes import Adaptive, Tree
from sfumato.recipes.shared.selection import _find_edges, _weigh_trust
from sfumato.tables.codes import encode_public

BOTH = pytest.mark.parametrize("recipe", [Adaptive, Tree], ids=["adaptive", "tree"])
SIZES = {"a": 12, "b": 12, "c": 12, "d": 4}
COLUMNS = "".join(f"[tables.t.columns.{name}]\nrange = [0, {size - 1}]\n" for name, size in SIZES.items())
CONTRARY = {"b": 11, "d": 3}  # columns that a contrary guide turns round


def make(seed, count=2000, *, turn=None):
    """Rows in which b and c follow a and d follows b; with `turn`, some columns are turned round."""
    random = np.random.default_rng(seed)
    a = random.integers(0, 12, count)
    b = (a + (random.random(count) < 0.2)) % 12
    c = (a + 2 * (random.random(count) < 0.3)) % 12
    rows = {"a": a, "b": b, "c": c, "d": b // 3}
    return pa.table({name: (turn or {}).get(name, 0) - codes if name in (turn or {}) else codes
                     for name, codes in rows.items()})  # fmt: skip


@pytest.fixture
def ask(lay_out, tmp_path):
    """Releases with the guide that is given, or none; returns the release."""
    project = lay_out(make(1), columns=COLUMNS)

    def release(recipe=Adaptive, guide=None, *, epsilon, **options):
        if guide is not None:
            pq.write_table(guide, tmp_path / "guide.parquet")
            options["guide"] = str(tmp_path / "guide.parquet")
        out = tmp_path / "out"
        return sf.open(project).release(
            recipe(table="t", **options), epsilon=epsilon, delta=1e-6, out=out, force=True
        )

    return release


def err(release):
    """The mean L1 distance of the pairs of columns between rows and records."""
    found, records = [], make(1)
    names = list(SIZES)
    for place, one in enumerate(names):
        for other in names[place + 1 :]:
            tables = [
                np.histogram2d(rows[one], rows[other], [np.arange(13) - 0.5] * 2)[0] / rows.num_rows
                for rows in (records, release.table)
            ]
            found.append(np.abs(tables[0] - tables[1]).sum())
    return float(np.mean(found))


@BOTH
@pytest.mark.usefixtures("seeded_noise")
def test_a_guide_like_the_records_tells_what_noise_hides(ask, recipe):
    alone, guided = ask(recipe, epsilon=0.7), ask(recipe, make(2), epsilon=0.7)
    assert err(guided) < 0.8 * err(alone)


@BOTH
@pytest.mark.usefixtures("seeded_noise")
def test_a_contrary_guide_is_not_followed(ask, recipe):
    alone, misled = ask(recipe, epsilon=1), ask(recipe, make(2, turn=CONTRARY), epsilon=1)
    assert err(misled) < 1.15 * err(alone)
    (told,) = misled.certificate["postprocessing"]["models"]
    assert not any({"a", "b"} <= set(clique) for clique in told["guided"]), (
        "what the records contradict is left out"
    )


@pytest.mark.usefixtures("seeded_noise")
def test_a_guide_of_independent_columns_asks_nothing(ask):
    random = np.random.default_rng(5)
    shuffled = pa.table({name: random.permutation(make(2)[name].to_numpy()) for name in SIZES})
    release = ask(guide=shuffled, epsilon=1)
    assert not [each for each in release.measurements if "guide" in each.request.name]


def test_a_guide_with_other_columns_is_used_for_those_it_has(ask):
    guide = make(2).drop_columns(["d"]).append_column("else", pa.array(np.zeros(2000, np.int64)))
    release = ask(guide=guide, epsilon=1)
    assert set(release.certificate["plan"]["recipe"]["guide"]["codes"]) == {"a", "b", "c"}
    assert release.table.column_names == list(SIZES)


@pytest.mark.parametrize(
    ("guide", "message"),
    [
        (make(2).select(["a"]), "fewer than two of the columns"),
        (make(2).rename_columns(["w", "x", "y", "z"]), "fewer than two of the columns"),
        (make(2, turn={"a": -1, "b": -1, "c": -1}), "no value of the domains"),
        (make(2, count=0), "no value of the domains"),
    ],
)
def test_a_guide_that_tells_nothing_is_refused_before_a_charge(ask, tmp_path, guide, message):
    with pytest.raises(sf.RecipeError, match=message):
        ask(guide=guide, epsilon=1)
    assert sf.open(tmp_path / "sfumato.toml").budget().spent == 0


def test_only_pairs_beyond_chance_are_taken_and_the_model_stays_small():
    domain = Domain(SIZES)
    codes = {name: make(2)[name].to_numpy() for name in SIZES}
    allowed = [(one, other) for one in SIZES for other in SIZES if one < other]
    assert len(_find_edges(codes, domain, allowed, most_cells=10**6)) == 6
    few = _find_edges(codes, domain, allowed, most_cells=300)
    assert few[0] == ("a", "b")
    assert 0 < len(few) < 4
    assert _find_edges(codes, domain, [("a", "d")], most_cells=10**6) == [("a", "d")]


def test_trust_is_drawn_to_its_mean_by_its_noise(ask):
    release = ask(guide=make(2), epsilon=1)
    asked = [each for each in release.measurements if each.request.name.startswith("guide: ")]
    sigma = asked[0].request.standard_deviation / asked[0].grid
    given = np.array([float(each.noisy_values[0]) / each.grid for each in asked])
    clear = np.full(len(asked), 1e4 * sigma)
    wanted = np.where(np.arange(len(asked)) % 2, 1.0, 0.0)
    sure = _weigh_trust(asked, given - wanted * clear, clear)
    assert np.allclose(sure, wanted, atol=1e-3)
    faint = _weigh_trust(asked, given - 0.5 * sigma, np.full(len(asked), sigma))
    assert np.allclose(faint, 0.5, atol=1e-6), "pairs that differ by no more than noise are as their mean"


def test_dates_of_a_public_table_are_read_as_the_column_writes_them():
    column = parse_column("m", {"from": "day", "period": "month", "format": "%d.%m.%Y"})
    rows = pa.table({"day": ["31.12.2024", "1.2.2024", "2024-05-01", None]})
    assert encode_public(column, rows).tolist() == [11, 1, -1, -1]
