"""The program extracted from the proofs."""

import shutil

import pytest

from helpers.oracle import REASON, Oracle, load_check


@pytest.fixture(scope="session")
def oracle():
    if shutil.which("coqc") is None or not (shutil.which("ocamlopt") or shutil.which("ocamlc")):
        pytest.skip(REASON)
    asked = Oracle(load_check().build_oracle())
    yield asked
    asked.close()
