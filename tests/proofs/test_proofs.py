"""The machine-checked proofs: they compile, rest on the reals alone, and name code that there is."""

import re
import shutil
from pathlib import Path

import pytest

from helpers.oracle import REASON, load_check

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "sfumato"
FILES = sorted((ROOT / "proofs").glob("*.v"))


check = load_check()
needs_coq = pytest.mark.skipif(shutil.which("coqc") is None, reason=REASON)
CLAIMS = check.read_claims()


@pytest.mark.slow
@needs_coq
def test_every_theorem_holds_and_rests_on_the_reals_alone(capsys):
    assert check.main() == 0
    assert f"{len(CLAIMS)} theorems hold" in capsys.readouterr().out


def test_no_statement_is_taken_without_proof():
    assert {path.stem for path in FILES} == set(check.ORDER)
    for path in FILES:
        text = re.sub(r"\(\*.*?\*\)", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
        assert not check.FORBIDDEN.search(text), path.name


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim["name"])
def test_a_claim_names_a_theorem_and_code(claim):
    module, name = claim["name"].split(".")
    text = (ROOT / "proofs" / f"{module}.v").read_text(encoding="utf-8")
    assert re.search(rf"^(Theorem|Lemma) {name} :", text, re.MULTILINE)
    assert claim["says"].endswith(".")
    assert claim["models"]
    for place in claim["models"]:
        check.find_definition(place)


@needs_coq
def test_a_broken_proof_is_reported_by_its_lemma(tmp_path, monkeypatch):
    (tmp_path / "Bad.v").write_text(
        "Lemma fine : True. Proof. exact I. Qed.\nLemma wrong : 1 = 2.\nProof. reflexivity. Qed.\n"
    )
    monkeypatch.setattr(check, "HERE", tmp_path)
    monkeypatch.setattr(check, "BUILD", tmp_path / "build")
    monkeypatch.setattr(check, "ORDER", ("Bad",))
    with pytest.raises(check.ProofError, match=r"Bad\.v, line 3: wrong does not compile"):
        check.build()
    (tmp_path / "Bad.v").write_text("Axiom wrong : 1 = 2.\n")
    with pytest.raises(check.ProofError, match="Axiom is not allowed"):
        check.build()


@pytest.mark.parametrize(("place", "theorems"), check.find_models().items(), ids=lambda each: str(each)[:60])
def test_code_is_what_its_theorems_were_read_against(place, theorems):
    """A change says which theorem to read again; `python proofs/check.py --record` says that it was."""
    recorded, found = check.read_models().get(place), check.digest_definition(place)
    assert recorded == found, f"{place} changed: read {', '.join(theorems)} in proofs/ against it"


def test_without_coq_the_proofs_are_skipped_with_the_reason(monkeypatch, capsys):
    monkeypatch.setattr(check.shutil, "which", lambda _: None)
    assert check.main() == 0
    told = capsys.readouterr().out
    assert told.startswith("proofs are skipped: not installed: coq libcoq-coquelicot ocaml-nox")


def test_what_a_function_does_has_a_digest_and_how_it_is_laid_out_has_none(tmp_path, monkeypatch):
    monkeypatch.setattr(check, "SOURCE", tmp_path)
    texts = (
        'def f(x: int) -> int:\n    """One."""\n    return x + 1\n',
        "def f(x):\n    # two\n    return (x +\n            1)\n",
        "def f(x):\n    return x + 2\n",
    )
    digests = []
    for text in texts:
        (tmp_path / "m.py").write_text(text)
        digests.append(check.digest_definition("m.py::f"))
    assert digests[0] == digests[1] != digests[2]


STATUS = (ROOT / "docs" / "proofs" / "README.md").read_text(encoding="utf-8")
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in re.findall(r"^\|.*\|$", STATUS.partition("## Status")[2].partition("\n## ")[0], re.MULTILINE)
][2:]
KINDS = ("machine-checked", "proved on paper", "tested", "assumed")


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0][:40])
def test_a_row_of_the_status_table_names_what_there_is(row):
    _, _, said, status, code, audit = row
    assert said
    assert status.startswith(KINDS), status
    theorems = re.findall(r"`([A-Z]\w+\.\w+)`", status)
    assert status.startswith("machine-checked") == bool(theorems), status
    for theorem in theorems:
        assert theorem in {claim["name"] for claim in CLAIMS}, theorem
    for page in re.findall(r"\]\(([\w.-]+\.md)", said + status):
        assert (ROOT / "docs" / "proofs" / page).exists(), page
    places = re.findall(r"`([\w/]+\.py)(?:::([\w.]+))?`", code)
    assert places, code
    for path, name in places:
        assert (SOURCE / path).exists(), path
        if name:
            check.find_definition(f"{path}::{name}")
    audits = re.findall(r"`((?:tests|benchmarks)/[\w/.]+)`", audit)
    assert audits, audit
    for path in audits:
        assert (ROOT / path).exists(), path


def test_every_main_theorem_is_in_the_status_table():
    told = set(re.findall(r"`([A-Z]\w+\.\w+)`", "".join(row[3] for row in ROWS)))
    assert told == {claim["name"] for claim in CLAIMS}
