"""A release whose total lies within its noise says so, and no other does."""

import contextlib
import hashlib
import io
import json
import sys
from fractions import Fraction

import numpy as np
import pytest

import sfumato as sf
from helpers.projects import project_text
from sfumato.cli import main
from sfumato.core.questions.counts import Marginal, OccupiedCells
from sfumato.core.questions.measurement import Measurement, Request
from sfumato.core.questions.question import Queries
from sfumato.release.certificate import pack_json, total_in_records
from sfumato.sql.laws import note_total

PROJECT = project_text(
    {
        "clinic": {"values": ["North", "South", "Harbour"]},
        "month": {"range": [1, 12]},
        "kind": {"values": ["a", "b"]},
    },
    table="visits",
    source="{source}",
    unit="person",
    epsilon=1000,
    delta=0.001,
    max_records=4,
)
RECIPES = {
    "cell-counts": 'by = ["clinic", "month"]\nepsilon = [1.0, 2.0]',
    "user-counts": 'by = ["clinic", "month"]\nmax_cells = 4\nepsilon = 1.0',
    "capped-counts": 'by = ["clinic", "month"]\nepsilon = 4.0',
    "map": 'by = ["clinic", "month", "kind"]\nepsilon = 4.0',
    "adaptive": "epsilon = 2.0\ndelta = 1e-6",
    "tree": "epsilon = 2.0\ndelta = 1e-6",
    "adaptive-grid": 'outer = [["clinic", "month"]]\nepsilon = 2.0\ndelta = 1e-6',
    "field-groups": 'groups = [["clinic", "month"], ["kind"]]\nepsilon = 2.0',
}
WORDS = "lies within its noise"


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Two projects: one whose records have the declared values, and one whose records do not."""
    folder = tmp_path_factory.mktemp("total")
    rng = np.random.default_rng(1)
    for name, clinics in (("right", ("North", "South", "Harbour")), ("wrong", ("N", "S", "H"))):
        rows = [
            f"p{person},{clinics[person % 3]},{month},{'ab'[person % 2]}\n"
            for person in range(1500)
            for month in rng.integers(1, 13, 4)
        ]
        (folder / f"{name}.csv").write_text("person,clinic,month,kind\n" + "".join(rows))
        (folder / f"{name}.toml").write_text(
            PROJECT.format(source=f"{name}.csv").replace("[tables", f'ledger = "{name}.db"\n\n[tables', 1)
        )
    for name, keys in RECIPES.items():
        (folder / f"{name}-recipe.toml").write_text(f'recipe = "{name}"\ntable = "visits"\n{keys}\n')
    return folder


def release_noise_alone(place, recipe):
    # An empty table has a total beyond its 95 % on the upper side in one release of forty.
    for attempt in range(8):
        empty = sf.open(place / "wrong.toml").release(recipe, epsilon=[str(1 + attempt / 1000)])
        if "notes" in empty.certificate:
            break
    return empty


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_release_of_noise_alone_says_so(place, recipe):
    file = place / f"{recipe}-recipe.toml"
    told = sf.open(place / "right.toml").release(file)
    assert "notes" not in told.certificate
    assert WORDS.encode() not in told.files["writeup.md"]
    empty = release_noise_alone(place, file)
    (note,) = empty.certificate["notes"]
    assert WORDS in note
    assert note.encode() in empty.files["writeup.md"]


def test_a_release_verifies_only_with_its_note(place, tmp_path):
    files = dict(release_noise_alone(place, place / "cell-counts-recipe.toml").files)
    certificate = json.loads(files["certificate.json"])
    note = f"**Note:** {certificate.pop('notes')[0]}.\n\n"
    files["writeup.md"] = files["writeup.md"].replace(note.encode(), b"")
    certificate["files"]["writeup.md"] = hashlib.sha256(files["writeup.md"]).hexdigest()
    files["certificate.json"] = pack_json(certificate)
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    with pytest.raises(sf.VerificationFailed, match="notes"):
        sf.verify(tmp_path, ledger=place / "wrong.db")


def test_it_is_said_on_the_terminal_in_the_report_and_of_sql(place, monkeypatch):
    monkeypatch.chdir(place)

    def run(*arguments):
        errors, out = io.StringIO(), io.StringIO()
        monkeypatch.setattr(sys, "argv", ["sfumato", *arguments])
        with (
            contextlib.redirect_stderr(errors),
            contextlib.redirect_stdout(out),
            contextlib.suppress(SystemExit),
        ):
            main()
        return errors.getvalue()

    for number in range(8):
        folder = f"out{number}"
        said = run(
            "release",
            "cell-counts-recipe.toml",
            "-p",
            "wrong.toml",
            "-o",
            folder,
            "--epsilon",
            f"1.0{number + 1}",
        )
        if WORDS in said:
            break
    assert WORDS in said
    assert sf.verify(place / folder).checked
    run("report", folder, "--out", "page.html")
    assert WORDS in (place / "page.html").read_text()
    statement = "DP-SELECT 0.5 clinic, COUNT(*) FROM visits GROUP BY clinic"
    assert WORDS not in run("sql", statement, "-p", "right.toml")
    assert any(
        WORDS in run("sql", statement.replace("0.5", f"0.5{n}"), "-p", "wrong.toml") for n in range(1, 9)
    )


def _measure(values, *, queries=None, scale=10, **keys):
    request = Request(
        name="m", counted=Marginal(("a",), queries), noise="gaussian", scale=Fraction(scale), **keys
    )
    return Measurement(request=request, noisy_values=np.array(values, np.int64), grid=2)


def test_the_total_with_the_least_noise_is_taken():
    many = _measure([10, 20, 30, 40])
    total, reach = total_in_records(None, [many])
    assert (total, reach) == (50, pytest.approx(1.96 * 10 * 2 / 2, rel=1e-3))
    one = Queries(cells=4, grid=1, starts=np.array([0, 4]), members=np.arange(4), weights=np.ones(4, int))
    assert total_in_records(None, [many, _measure([96], queries=one)]) == (48, pytest.approx(9.8, rel=1e-3))
    half = Queries(cells=2, grid=2, starts=np.array([0, 2]), members=np.arange(2), weights=np.ones(2, int))
    assert total_in_records(None, [_measure([48], queries=half)]) == (48, pytest.approx(19.6, rel=1e-3))


def test_queries_that_leave_cells_out_have_no_total():
    some = Queries(cells=3, grid=1, starts=np.array([0, 2]), members=np.arange(2), weights=np.ones(2, int))
    assert total_in_records(None, [_measure([48], queries=some)]) is None
    assert total_in_records(None, []) is None


def test_of_cells_above_a_threshold_noise_alone_has_a_known_total(place):
    table = sf.open(place / "right.toml").project.table("visits")
    request = Request(
        name="m",
        counted=OccupiedCells(("clinic", "month")),
        noise="laplace",
        scale=Fraction(10),
        threshold=20,
    )
    cells = table.cells(request.columns)
    rng = np.random.default_rng(5)
    totals = []
    for _ in range(4000):
        q = np.exp(-1 / 10)
        noise = rng.geometric(1 - q, cells) - rng.geometric(1 - q, cells)
        passed = np.flatnonzero(noise >= 20)
        totals.append((noise[passed].sum(), passed, noise[passed]))
    answers = [
        Measurement(request=request, noisy_values=values, cells=passed) for _, passed, values in totals
    ]
    beyond = np.mean([np.greater(*total_in_records(table, [answer])) for answer in answers])
    # A sum of few terms is skewed, so that more than 2.5 % of all sums lie beyond two deviations.
    assert 0.005 < beyond < 0.06


def test_only_a_total_within_its_noise_is_noted():
    assert note_total(20.1, 20, of="release") is None
    assert "the total of this answer, -31, lies within its noise (+-20)" in note_total(-31, 20, of="answer")
