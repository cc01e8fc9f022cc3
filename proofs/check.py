"""Compiles the machine-checked proofs, says which lemma fails, and prints the axioms of the main theorems.

`python proofs/check.py` is `make proofs`. Where Coq is missing and cannot be installed, it says so and stops.
`build` and `build_oracle` are for tests/proofs: they compile what changed and no more. `--record` records
the functions of Python as they are, once their theorems have been read against them.
"""

from __future__ import annotations

import ast
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
BUILD = HERE.parent / ".proofs"
SOURCE = HERE.parent / "src" / "sfumato"
PACKAGES = ("coq", "libcoq-coquelicot", "ocaml-nox")
ORDER = tuple(HERE.joinpath("ORDER").read_text(encoding="utf-8").split())
"""The files, each after those that it needs."""

AXIOMS = {
    "ClassicalDedekindReals.sig_not_dec",
    "ClassicalDedekindReals.sig_forall_dec",
    "FunctionalExtensionality.functional_extensionality_dep",
    "Classical_Prop.classic",
}
"""What Coq's real numbers are built on; no theorem may rest on anything else."""

FORBIDDEN = re.compile(r"\b(Admitted|admit|Axioms?|Parameters?|Conjecture|Abort|bypass_check)\b")
_COMMENT = re.compile(r"\(\*.*?\*\)", re.DOTALL)
_NAMED = re.compile(
    r"^\s*(?:Local\s+)?(?:Lemma|Theorem|Definition|Fixpoint|Inductive|Record)\s+(\w+)", re.MULTILINE
)
_ERROR = re.compile(r'File "[^"]*", line (\d+), .*?:\s*\n(Error:.*)', re.DOTALL)


class ProofError(Exception):
    """A proof that does not hold, or rests on what it must not."""


def read_claims() -> list[dict[str, Any]]:
    """The main theorems: each with its claim in words and the functions of Python that it models."""
    claims: list[dict[str, Any]] = tomllib.loads((HERE / "claims.toml").read_text(encoding="utf-8"))["claim"]
    return claims


def find_definition(place: str) -> ast.AST:
    """The function or class that a place such as core/law.py::Law.exponent names."""
    path, _, name = place.partition("::")
    node: ast.AST = ast.parse((SOURCE / path).read_text(encoding="utf-8"))
    for part in name.split("."):
        found = [
            each
            for each in getattr(node, "body", ())
            if isinstance(each, ast.FunctionDef | ast.ClassDef) and each.name == part
        ]
        if not found:
            raise ProofError(f"there is no {place}")
        node = found[0]
    return node


def digest_definition(place: str) -> str:
    """A digest of what a function does: of its tree, without docstrings, comments and layout."""
    return hashlib.sha256(repr(_spell(find_definition(place))).encode()).hexdigest()[:16]


def _spell(node: object) -> object:
    # Fields that are empty or about types are left out, since versions of Python differ in which there are.
    if isinstance(node, list):
        return [_spell(each) for each in node]
    if not isinstance(node, ast.AST):
        return node
    fields = dict(ast.iter_fields(node))
    body = fields.get("body")
    if isinstance(body, list) and body and isinstance(body[0], ast.Expr):
        told = body[0].value
        if isinstance(told, ast.Constant) and isinstance(told.value, str):
            fields["body"] = body[1:]
    kept = {
        name: value
        for name, value in fields.items()
        if value not in (None, [])
        and name not in ("ctx", "kind", "type_comment", "type_params", "annotation", "returns")
    }
    return type(node).__name__, [(name, _spell(value)) for name, value in sorted(kept.items())]


def read_models() -> dict[str, str]:
    """What was recorded of every function that a theorem is about."""
    return dict(tomllib.loads((HERE / "models.toml").read_text(encoding="utf-8")))


def find_models() -> dict[str, list[str]]:
    """The functions that theorems are about, each with these theorems."""
    models: dict[str, list[str]] = {}
    for claim in read_claims():
        for place in claim["models"]:
            models.setdefault(place, []).append(str(claim["name"]))
    return dict(sorted(models.items()))


def record() -> None:
    """Records the functions of Python as they are."""
    lines = [f'"{place}" = "{digest_definition(place)}"\n' for place in find_models()]
    told = (
        "# Written by `python proofs/check.py --record`, once theorems were read against these functions.\n\n"
    )
    (HERE / "models.toml").write_text(told + "".join(lines), encoding="utf-8")


def install() -> str | None:
    """Why there is no Coq, after an attempt to install it; None if there is one."""
    missing = [package for package in PACKAGES if not _installed(package)]
    if not missing:
        return None
    if os.geteuid() == 0 and shutil.which("apt-get"):
        for command in (["update", "-qq"], ["install", "-qq", "-y", "--no-install-recommends", *missing]):
            if subprocess.run(["apt-get", *command], capture_output=True, check=False).returncode:
                return f"apt-get could not install {' '.join(missing)}"
        return None
    return f"not installed: {' '.join(missing)}; as root: apt-get install {' '.join(missing)}"


def _installed(package: str) -> bool:
    if package == "ocaml-nox":
        return bool(shutil.which("ocamlopt") or shutil.which("ocamlc"))
    coqc = shutil.which("coqc")
    if coqc is None or package == "coq":
        return coqc is not None
    where = subprocess.run([coqc, "-where"], capture_output=True, text=True, check=False).stdout.strip()
    return Path(where, "user-contrib", "Coquelicot").is_dir()


def build() -> None:
    """Compiles every file that changed since it was compiled, or that comes after one."""
    BUILD.mkdir(exist_ok=True)
    seal = hashlib.sha256()
    for name in ORDER:
        text = (HERE / f"{name}.v").read_text(encoding="utf-8")
        found = FORBIDDEN.search(_COMMENT.sub("", text))
        if found:
            raise ProofError(f"proofs/{name}.v: {found[0]} is not allowed: every statement is proved")
        seal.update(text.encode())
        stamp = BUILD / f"{name}.sha256"
        if stamp.exists() and stamp.read_text() == seal.hexdigest() and (BUILD / f"{name}.vo").exists():
            continue
        (BUILD / f"{name}.v").write_text(text, encoding="utf-8")
        _compile(name, text)
        stamp.write_text(seal.hexdigest())


def _compile(name: str, text: str) -> str:
    done = subprocess.run(
        ["coqc", "-q", "-w", "none", "-Q", ".", "Sfumato", f"{name}.v"],
        cwd=BUILD,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        found = _ERROR.search(done.stderr)
        line, message = (int(found[1]), found[2]) if found else (0, done.stderr)
        before = _NAMED.findall("\n".join(text.splitlines()[:line]))
        lemma = before[-1] if before else "the beginning"
        raise ProofError(f"proofs/{name}.v, line {line}: {lemma} does not compile\n{message.strip()}")
    return done.stdout


def find_axioms() -> dict[str, set[str]]:
    """What every main theorem rests on."""
    claims = read_claims()
    lines = [f"From Sfumato Require {name}." for name in ORDER if name != "Oracle"]
    for claim in claims:
        lines += [f'Redirect "axioms.{claim["name"]}" Print Assumptions Sfumato.{claim["name"]}.']
    text = "\n".join(lines)
    (BUILD / "Assumptions.v").write_text(text, encoding="utf-8")
    _compile("Assumptions", text)
    found = {}
    for claim in claims:
        printed = (BUILD / f"axioms.{claim['name']}.out").read_text(encoding="utf-8")
        if not printed.startswith(("Closed under the global context", "Axioms:")):
            raise ProofError(f"the axioms of {claim['name']} could not be read")
        found[str(claim["name"])] = set(re.findall(r"^([\w.]+)\s*:", printed, re.MULTILINE)) - {"Axioms"}
    return found


def build_oracle() -> Path:
    """The program that computes what the proofs are about, extracted from them."""
    build()
    program = BUILD / "oracle"
    seal = hashlib.sha256(b"".join((BUILD / f"{name}.v").read_bytes() for name in ORDER))
    seal.update((HERE / "oracle.ml").read_bytes())
    stamp = BUILD / "oracle.sha256"
    if program.exists() and stamp.exists() and stamp.read_text() == seal.hexdigest():
        return program
    shutil.copy(HERE / "oracle.ml", BUILD / "oracle.ml")
    compiler = shutil.which("ocamlopt") or "ocamlc"
    done = subprocess.run(
        [compiler, "-w", "-a", "-o", "oracle", "model.mli", "model.ml", "oracle.ml"],
        cwd=BUILD,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise ProofError(f"proofs/oracle.ml does not compile\n{done.stderr}")
    stamp.write_text(seal.hexdigest())
    return program


def main() -> int:
    """Compiles all proofs and prints the axioms; 1 if one fails."""
    if sys.argv[1:] == ["--record"]:
        record()
        return 0
    reason = install()
    if reason is not None:
        print(f"proofs are skipped: {reason}")
        return 0
    try:
        build()
        found = find_axioms()
    except ProofError as error:
        print(error, file=sys.stderr)
        return 1
    failed = False
    for name, axioms in found.items():
        print(f"{name}: {', '.join(sorted(axioms)) or 'no axioms'}")
        for other in sorted(axioms - AXIOMS):
            print(f"{name} rests on {other}, which is none of Coq's reals", file=sys.stderr)
            failed = True
    print(f"{len(found)} theorems hold, in {len(ORDER)} files")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
