"""The machine-checked proofs: they compile, rest on the reals alone, and name code that there is."""

import ast
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


def find_definition(place):
    """The function or method that a place such as core/law.py::Law.exponent names."""
    path, _, name = place.partition("::")
    node = ast.parse((SOURCE / path).read_text(encoding="utf-8"))
    for part in name.split("."):
        node = next(
            each
            for each in node.body
            if isinstance(each, ast.FunctionDef | ast.ClassDef) and each.name == part
        )
    return node


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
        find_definition(place)


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
