"""The page: its sections, its marks, its size, and that nothing that was read becomes markup."""

import json
import re
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest

import sfumato as sf
from helpers.cases import read_cases
from helpers.pages import Reader
from sfumato.accounting import Budget, Cost, Ledger
from sfumato.core.errors import RecipeError, ReleaseError, VerificationFailed
from sfumato.report.facts import judge_dependences, read_facts
from sfumato.report.page import SECTIONS, build_report

LIMIT = 1_000_000


@pytest.fixture
def counts(folders, tmp_path):
    return folders.write_counts(tmp_path / "out")


@pytest.fixture
def rows(folders, tmp_path):
    """Synthetic rows with a model, Gaussian noise, a choice, bins, a drafted domain and two epsilons."""
    generator = np.random.default_rng(3)
    size = 500
    table = pa.table(
        {
            "epsilon": np.repeat([1.0, 4.0], size // 2),
            "age": generator.integers(0, 90, size),
            "job": generator.choice(["none", "trade"], size),
            "identifier": np.arange(size),
        }
    )
    columns = {
        "age": folders.column(bins=["0", "30", "60", "90"]),
        "job": folders.column(values=["none", "trade"], drafted_from_data=True, accept_drafted=True),
    }
    gaussian = {"kind": "gaussian", "scale": "9.5"}
    measured = []
    for epsilon in ("1", "4"):
        measured += [
            (folders.measure(f"epsilon {epsilon}, age", ("age",), 3, **gaussian), [80, 90, -5]),
            (
                {
                    "name": f"epsilon {epsilon}, choice 1",
                    "candidates": 2,
                    "kind": "exponential",
                    "scale": "0.1",
                },
                [1],
            ),
            (
                folders.measure(f"epsilon {epsilon}, age x job", ("age", "job"), 6, **gaussian),
                [9, 60, 3, 70, 1, 2],
            ),
        ]
    plan = {
        "recipe": {"recipe": "unheard-of", "table": "t", "seed": 7, "public": None},
        "table": {"t": {"source": "t.csv", "unit": "row", "columns": columns}},
        "epsilons": ["1", "4"],
        "delta": "0.000001",
    }
    return folders.write_release(
        tmp_path / "rows",
        table=table,
        columns=columns,
        measured=measured,
        plan=plan,
        unit={"column": "row", "max_records": 1, "neighbours": "replace", "bounding": "truncate", "grid": 1},
        total={
            "epsilon": None,
            "rho": "0.38",
            "mu_squared": "0.76",
            "epsilon_at_delta": {"1e-6": "4.18", "1e-9": "5.3"},
        },
        files={"model.parquet": b"a model"},
    )


def read(folder, **options):
    page = build_report(folder, **options).decode()
    return page, Reader(page)


def test_every_section_is_there_in_its_order(counts):
    _, reader = read(counts)
    headings = [text for text in reader.headings if not text.isdecimal()]
    assert headings == [heading for name, heading, _ in SECTIONS if name not in ("truth", "kept")]
    links = [attrs["href"] for tag, attrs in reader.elements if tag == "a"]
    anchors = {attrs["id"] for _, attrs in reader.elements if "id" in attrs}
    assert {link.removeprefix("#") for link in links} <= anchors
    assert (
        len(links) == len(SECTIONS) - 1
    )  # the truth and dependences are left out, and one leads to the report


def test_a_table_of_counts_in_plain_words(counts):
    _, reader = read(counts)
    for told in (
        "48 noisy counts",
        "one individual: all records of t that share a value of person , of which at most 20 records count",
        "believes it afterwards with at least 27 % and at most 73 %",
        "believes it afterwards with at least 3.9 % and at most 23 %",
        "±60",
        "sfumato verify out",
    ):
        assert told in reader.words, told


def test_rows_with_a_model_and_several_epsilons(rows):
    _, reader = read(rows)
    words = reader.words
    for told in (
        "500 synthetic rows",
        "At epsilon 4 , the largest of this release",
        "ε = 4.18 at δ = 10⁻⁶",
        "evidence that has a chance of 1 in 1,000 if it is otherwise",
        "they were read off the records",
        "Further columns, which the schema does not describe: identifier",
        "the seed of the rows, 7",
        "sfumato sql --model rows",
        "exchanged for others",
    ):
        assert told in words, told
    assert "twice that epsilon" not in words


def test_numbers_of_this_release_are_used(counts):
    _, reader = read(counts)
    noisy = np.array([(place + 1) * 90 * month // 10 - 30 for place in range(12) for month in range(1, 5)])
    assert f"{np.maximum(noisy, 0).sum():,}" in reader.words
    assert f"{noisy.sum():,} ±" in reader.words


def test_the_same_release_gives_the_same_bytes(counts, rows):
    for folder in (counts, rows):
        assert build_report(folder) == build_report(folder)


@pytest.mark.parametrize("where", ["label", "column", "table", "recipe", "origin", "measurement"])
def test_hostile_text_stays_text(folders, tmp_path, where):
    bad = folders.HOSTILE
    labels = [bad, "b"] if where == "label" else ["a", "b"]
    name = bad if where == "column" else "place"
    table = pa.table({name: labels, "count": [900, 40]})
    columns = {name: folders.column(values=labels, **({"origin": bad} if where == "origin" else {}))}
    record = folders.measure(bad if where == "measurement" else "counts", (name,), 2)
    plan = {
        "recipe": {"recipe": bad if where == "recipe" else "cell-counts", "by": [bad]},
        "table": {bad if where == "table" else "t": {"unit": "row", "columns": columns}},
        "epsilons": ["1"],
        "delta": "0",
    }
    folder = folders.write_release(
        tmp_path / "out", table=table, columns=columns, measured=[(record, [900, 40])], plan=plan
    )
    comparison = folders.compare((name, "b"))
    comparison["groups"][0]["value"] = bad
    page, reader = read(folder, comparison=comparison)
    assert bad not in page
    assert not {"script", "iframe", "object", "img"} & {tag for tag, _ in reader.elements}
    assert not any(key.startswith("on") for _, attrs in reader.elements for key in attrs)
    assert bad[:20] in reader.words


def test_nothing_is_asked_of_anybody(counts, rows, folders):
    for page, reader in (read(counts), read(rows), read(counts, comparison=folders.compare())):
        assert "http:" not in page
        assert "https:" not in page
        assert "url(" not in page.replace("url(#", "")  # only what is in the page itself
        assert "@import" not in page
        for tag, attrs in reader.elements:
            for key in ("src", "href", "srcset", "xlink:href", "data", "action", "poster"):
                value = attrs.get(key)
                assert value is None or value.startswith(("data:image/png;base64,", "#")), (tag, value)
        assert any(attrs.get("http-equiv") == "Content-Security-Policy" for _, attrs in reader.elements)


def test_pictures_say_what_they_show(counts, rows):
    for folder in (counts, rows):
        _, reader = read(folder)
        for tag, attrs in reader.elements:
            drawn = tag == "svg" and "aria-hidden" not in attrs
            assert not drawn or (attrs["role"] in ("img", "group") and attrs["aria-label"])
            assert tag != "img" or attrs["alt"]


def test_the_page_begins_with_what_stands_out(counts):
    page, _ = read(counts)
    lead = re.search(r'<p class="lead finding">(.*?)</p>', page, re.DOTALL)[1]
    assert " ".join(re.sub("<[^>]+>", "", lead).split()) == (
        "Most records: place 11, 960 ± 111; place 10, place 9 cannot be told from it. "
        "What ± says is the noise alone: records beyond 20 of an individual are not counted."
    )


def test_rows_have_what_their_pairs_were_measured_to_have(folders, tmp_path):
    def release(name, diagonal, deviation):
        """400 rows that depend on each other, beside noisy counts that depend fully, by half, or not."""
        codes = np.arange(400) % 2
        others = np.where(np.arange(400) < diagonal, codes, (np.arange(400) // 2) % 2)
        table = pa.table({"a": codes, "b": others})
        columns = {"a": folders.column(range=[0, 1]), "b": folders.column(range=[0, 1])}
        scale = {"kind": "gaussian", "scale": str(deviation)}
        record = folders.measure("a x b", ("a", "b"), 4, **scale)
        path = folders.write_release(
            tmp_path / name, table=table, columns=columns, measured=[(record, [200, 0, 0, 200])]
        )
        told = judge_dependences(read_facts(path))
        return [verdict for verdict, pairs in told["verdicts"] if pairs]

    assert release("kept", 400, 1) == ["kept"]
    assert release("weakened", 200, 1) == ["weakened"]
    assert release("lost", 0, 1) == ["lost"]
    assert release("unseen", 400, 400) == ["unseen"]


def test_without_the_truth_nothing_is_marked_and_no_section_compares(counts):
    page, reader = read(counts)
    assert "INTERNAL" not in page
    assert "Against the truth" not in reader.words


def test_with_the_truth_everything_is_marked(counts, folders):
    page, reader = read(counts, comparison=folders.compare(), maps={("place", "month"): np.ones((12, 4))})
    sections = page.split("<section")[1:]
    assert len(sections) == len(SECTIONS) - 1  # rows alone have dependences
    assert all("INTERNAL" in section.split("</h2>")[0] for section in sections)
    assert re.search(r"<title>INTERNAL", page)
    assert 'class="internal-bar"' in page
    assert 'class="internal-foot"' in page
    for margin in ("@top-center", "@bottom-center"):
        assert re.search(margin + r"\{content:\"INTERNAL", page)
    words = reader.words
    for told in (
        "4,321",
        "all-zero release",
        "as close as a plain sample of 40 %",
        "an AUC of 0.61",
        "Learning from the release",
        "place: a",
        "Release less truth",
        "must not leave the house",
    ):
        assert told in words, told
    assert "costs no privacy." not in words.split("Made by sfumato")[1]


def test_a_map_alone_makes_a_report_internal(counts):
    page, _ = read(counts, maps={("place", "month"): np.ones((12, 4))})
    assert page.count("INTERNAL") > len(SECTIONS)


def test_several_epsilons_are_told_beside_each_other(rows, folders):
    record = folders.compare(("age", "job"))
    given = [{"epsilon": "4", "comparison": record}, {"epsilon": "1", "comparison": record}]
    _, reader = read(rows, comparison=given)
    assert "1 column, epsilon 4" in reader.words
    assert "2 columns, epsilon 1" in reader.words
    assert "At epsilon 4" in reader.words
    assert "At epsilon 1 " not in reader.words


@pytest.mark.parametrize(("options", "match"), read_cases(__file__, "test_wrong_options_are_refused"))
def test_wrong_options_are_refused(counts, options, match):
    with pytest.raises(RecipeError, match=match):
        build_report(counts, **options)


def test_a_changed_file_is_refused(counts):
    (counts / "table.parquet").write_bytes(b"another")
    with pytest.raises(VerificationFailed, match=r"table\.parquet"):
        build_report(counts)


@pytest.mark.parametrize(
    "content", ["", "[]", '{"format": "sfumato certificate 1"}', '{"format": "x", "plan": {}}']
)
def test_what_is_no_certificate_is_refused(counts, content):
    (counts / "certificate.json").write_text(content)
    with pytest.raises(VerificationFailed, match=r"certificate\.json"):
        build_report(counts)


def test_what_is_no_release_is_refused(tmp_path):
    with pytest.raises(ReleaseError, match="not a release"):
        build_report(tmp_path)


def test_unknown_fields_do_no_harm_and_missing_ones_are_refused(folders, tmp_path):
    table = pa.table({"anything": [1.5, None], "count": [3, 4]})
    folder = folders.write_release(
        tmp_path / "out", table=table, columns={"odd": {"strange": 1}}, novelty=[1, {}]
    )
    _, reader = read(folder)
    assert "not described by the schema" in reader.words
    document = json.loads((folder / "certificate.json").read_text())
    for key in ("ledger", "public", "versions", "total", "unit", "measurements"):
        others = {name: value for name, value in document.items() if name != key}
        (folder / "certificate.json").write_text(json.dumps(others))
        with pytest.raises(VerificationFailed, match=f"does not describe the table.*{key}"):
            read(folder)


def test_a_long_table_stays_small(folders, tmp_path):
    places, months, kinds = 278, 36, 174
    generator = np.random.default_rng(1)
    names = [f"place {number}" for number in range(places)]
    size = places * months * kinds
    table = pa.table(
        {
            "place": pa.DictionaryArray.from_arrays(np.repeat(np.arange(places), months * kinds), names),
            "month": np.tile(np.repeat(np.arange(months), kinds), places),
            "kind": np.tile(np.arange(kinds), places * months),
            "count": generator.integers(0, 90, size),
        }
    )
    columns = {
        "place": folders.column(values=names),
        "month": folders.column(range=[0, months - 1]),
        "kind": folders.column(range=[0, kinds - 1]),
    }
    folder = folders.write_release(tmp_path / "out", table=table, columns=columns)
    truth = generator.integers(0, 5000, (places, months)).tolist()
    page = build_report(
        folder, comparison=folders.compare(("place", "month", "kind")), maps={("place", "month"): truth}
    )
    assert len(page) < LIMIT


def test_a_release_of_the_curator(project, tmp_path, monkeypatch):
    curator = sf.open(project)
    curator.release(tmp_path / "recipe.toml", epsilon=["1", "2"], out=tmp_path / "out")
    curator.release(tmp_path / "recipe.toml", epsilon="3", out=tmp_path / "other")
    _, reader = read(tmp_path / "out", ledger=curator.budget())
    words = reader.words
    assert "is left, after 2 charges" in words
    assert "cell-counts by region, month" in words
    assert "ε = 3" in words
    monkeypatch.setattr("sfumato.report.page._MOST_CHARGES", 1)
    _, reader = read(tmp_path / "out", ledger=curator.budget())
    assert "The latest 1 of 2 are listed" in reader.words
    assert "does not hold the charge" not in reader.words


def test_a_foreign_ledger_is_noticed(project, counts):
    _, reader = read(counts, ledger=sf.open(project).budget())
    assert "does not hold the charge of this release" in reader.words


def report_budget(folder, *costs):
    folder.mkdir()
    ledger = Ledger(folder / "ledger.db", Budget(8, "1e-5"))
    for cost in costs:
        ledger.charge(description={}, plan_digest="p", table="t", table_version="v", costs=(cost,))
    return ledger.report()


def test_what_is_left_is_told_in_charges_like_the_last(counts, tmp_path):
    cost = Cost(kind="gaussian", scale=Fraction(5000), sensitivity=Fraction(1000))
    report = report_budget(tmp_path / "several", cost)
    _, reader = read(counts, ledger=report)
    assert f"about {report.more_like_last} more like it fit" in reader.words
    _, reader = read(counts, ledger=report_budget(tmp_path / "none"))
    assert "more like it" not in reader.words
    _, reader = read(counts, ledger=report_budget(tmp_path / "full", Cost(kind="pure", scale=Fraction(8))))
    assert "no more like it fits" in reader.words
