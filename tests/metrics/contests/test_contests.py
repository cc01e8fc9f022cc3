"""Packs are read as published, entries say what they charge, bad packs cost nothing."""

import json

import numpy as np
import pytest

import sfumato as sf
from helpers.cli import run_main
from sfumato.core.errors import ReleaseError, SchemaError
from sfumato.metrics.contests import make_pack, read_pack, run_entry, score_pack
from sfumato.metrics.contests.entries import group_fields, list_entries
from sfumato.metrics.contests.packs import read_codebook

SIZES = {"sprint1": 500, "sprint3": 60, "match3": 300}


@pytest.fixture(scope="module", params=SIZES)
def folder(request, tmp_path_factory):
    """A small pack of each contest that no test changes."""
    return make_pack(request.param, tmp_path_factory.mktemp("packs") / "pack", people=SIZES[request.param])


@pytest.fixture
def city(tmp_path):
    return make_pack("sprint1", tmp_path / "city", people=300)


def copy_pack(folder, target):
    target.mkdir()
    for each in folder.iterdir():
        if each.is_file():
            (target / each.name).write_bytes(each.read_bytes())
    return target


def test_a_pack_follows_from_its_seed(folder, tmp_path):
    contest = read_pack(folder).contest
    again = make_pack(contest, tmp_path / "again", people=SIZES[contest])
    other = make_pack(contest, tmp_path / "other", people=SIZES[contest], seed=7)
    records = read_pack(folder).records
    assert (again / records).read_bytes() == (folder / records).read_bytes()
    assert (other / records).read_bytes() != (folder / records).read_bytes()
    assert (folder / "public.csv").read_bytes() != (folder / records).read_bytes()


def test_every_entry_runs_and_is_charged_what_it_says(folder, tmp_path):
    pack = read_pack(copy_pack(folder, tmp_path / "pack"))
    for entry in list_entries(pack.contest):
        done = run_entry(pack, entry, rows=200 if pack.contest == "match3" else None)
        assert done.charged == tuple(f"{float(run.epsilon):g}" for run in pack.runs)
        for run, release in zip(pack.runs, done.releases, strict=True):
            place = done.folder / f"epsilon-{float(run.epsilon):g}"
            assert not sf.verify(place, ledger=done.folder / "ledger.db").unchecked
            assert release.certificate["plan"]["epsilons"] == [f"{float(run.epsilon):g}"]
        header = next(iter(done.files.values())).decode().split("\n", 1)[0]
        assert header == ",".join(pack.header)
    scores = score_pack(pack)
    assert {each.entry for each in scores if each.epsilon is not None} == set(list_entries(pack.contest))
    assert sum(each.epsilon is None for each in scores) == 2


def test_public_records_may_lie_elsewhere(folder, tmp_path):
    lacking = copy_pack(folder, tmp_path / "pack")
    (lacking / "public.csv").unlink()
    assert read_pack(lacking, public=folder / "public.csv").public == folder / "public.csv"
    with pytest.raises(SchemaError, match="no file of public records"):
        read_pack(lacking, public=tmp_path / "gone.csv")


def change(pack, file, edit):
    document = json.loads((pack / file).read_text())
    edit(document)
    (pack / file).write_text(json.dumps(document))


@pytest.mark.parametrize(
    ("edit", "said"),
    [
        (lambda pack: pack["schema"].pop("neighborhood"), "of sprint1, but its schema lacks neighborhood"),
        (lambda pack: pack["schema"].update(incident_type=[{"code": 1}] * 2), "value 1 is listed twice"),
        (lambda pack: pack["schema"]["incident_type"].append({"code": 99}), "one column per kind"),
        (lambda pack: pack["schema"].update(incident_type=7), "a schema by column"),
        (lambda pack: pack.pop("schema"), "no 'schema'"),
        (lambda pack: pack.update(runs=[]), "lists no runs"),
        (lambda pack: pack["runs"][0].update(epsilon=-1), "epsilon must be above zero"),
        (lambda pack: pack["runs"][0].update(max_records_per_individual=0), "max_records must lie between 1"),
    ],
)
def test_parameters_that_do_not_fit_are_refused_and_nothing_is_spent(city, edit, said):
    change(city, "parameters.json", edit)
    with pytest.raises(SchemaError, match=said):
        run_entry(read_pack(city), "nmd")
    assert not (city / "nmd").exists()


def test_what_an_entry_cannot_be_asked_is_refused_and_nothing_is_spent(folder, tmp_path):
    pack = read_pack(copy_pack(folder, tmp_path / "pack"))
    with pytest.raises(SchemaError, match="no document is about best"):
        run_entry(pack, "best", as_written=True)
    with pytest.raises(SchemaError, match="rows"):
        run_entry(pack, "best", rows=0)
    if pack.unit is None:
        with pytest.raises(SchemaError, match="must have several"):
            read_pack(pack.folder, max_records=2)
        (pack.folder / "codebook.cbk").write_text("")
        with pytest.raises(SchemaError, match="the codes of no field"):
            read_pack(pack.folder)
    else:
        with pytest.raises(SchemaError, match="must be at least 1"):
            read_pack(pack.folder, max_records=0)
    assert not [each for each in pack.folder.iterdir() if each.is_dir()]


def test_one_ledger_or_one_each(city):
    pack = read_pack(city)
    one = run_entry(pack, "nmd")
    assert "1 + 2 + 10 = 13" in one.notes[0]
    each = run_entry(pack, "nmd", out=city / "apart", ledger="each")
    assert "published together they cost 13" in each.notes[0]
    assert sorted(path.name for path in (city / "apart").glob("*.db")) == [
        "ledger-1.db",
        "ledger-10.db",
        "ledger-2.db",
    ]


def test_a_second_run_is_refused_or_free(city):
    pack = read_pack(city)
    first = run_entry(pack, "nmd")
    with pytest.raises(ReleaseError, match=r"submission.csv"):
        run_entry(pack, "nmd")
    again = run_entry(pack, "nmd", force=True)
    assert all(release.repeated for release in again.releases)
    assert again.files["submission.csv"] == first.files["submission.csv"]


def test_the_noise_as_written_is_charged_what_it_costs(city):
    done = run_entry(read_pack(city), "syncity", as_written=True)
    assert done.charged == ("20", "40", "200")
    scales = [each.certificate["measurements"][0]["scale"] for each in done.releases]
    assert [float(each) for each in scales] == [1, 0.5, 0.1]


def test_fields_of_one_origin_share_a_group():
    random = np.random.default_rng(5)
    first, second = random.integers(0, 6, (2, 4000))
    codes = {"a": first, "b": second, "c": first // 2, "d": second // 3, "e": random.integers(0, 4, 4000)}
    groups = group_fields(codes, dict.fromkeys(codes, 6))
    assert len(groups) == 2  # 39 of 98 fields are 2 of 5
    assert any({"a", "c"} <= set(group) for group in groups)
    assert any({"b", "d"} <= set(group) for group in groups)


def test_codes_are_those_below_the_heading_of_a_field(tmp_path):
    book = tmp_path / "codebook.cbk"
    book.write_text(
        " SEX   H  10-10  1\n\nSEX\tSex\n1\tMale\n2\tFemale\nOTHER\tnot a field\n7\tno\nAGE\n 000\tUnder 1\n"
    )
    assert read_codebook(book, fields=("SEX", "AGE", "RACE")) == {"SEX": (1, 2), "AGE": (0,)}


def test_the_command_line_makes_runs_and_scores(tmp_path):
    run_main("contest", "make", "sprint1", "pack", "--people", "300", cwd=tmp_path)
    run_main("contest", "make", "sprint1", "pack", cwd=tmp_path, code=1)
    said = json.loads(run_main("contest", "run", "nmd", "pack", "--json", cwd=tmp_path).stdout)
    assert said["charged"] == ["1", "2", "10"]
    assert said["files"] == ["submission.csv", "writeup.md"]
    run_main("contest", "run", "gardn999", "pack", cwd=tmp_path, code=2)
    done = run_main("contest", "score", "pack", "--html", "board.html", cwd=tmp_path)
    assert "INTERNAL" in done.stderr
    assert "nmd" in done.stdout
    page = (tmp_path / "board.html").read_text()
    assert "INTERNAL" in page
    assert "http" not in page.replace("http-equiv", "").replace("http://www.w3.org", "")
    scored = json.loads(run_main("contest", "score", "pack", "--json", cwd=tmp_path).stdout)["scores"]
    assert [each["epsilon"] for each in scored] == [None, None, "1", "2", "10"]
    run_main("contest", "score", "pack", "--html", "board.html", cwd=tmp_path, code=1)


def test_the_layout_of_the_submission_is_that_of_the_contest(city):
    done = run_entry(read_pack(city), "nmd")
    lines = done.files["submission.csv"].decode().splitlines()
    expected = (city / "submission_format.csv").read_text().splitlines()
    assert [line.split(",")[:4] for line in lines] == [line.split(",")[:4] for line in expected]
    assert all(field.isdecimal() for line in lines[1:] for field in line.split(",")[4:])
