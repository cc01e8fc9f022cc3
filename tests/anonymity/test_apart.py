"""Anonymity stands apart from releases: whoever uses it loads neither noise nor a ledger nor a curator."""

import subprocess
import sys

import pytest

APART = ("accounting", "cli", "curator", "engines", "noise", "recipes", "release", "sql")
USE = """
from sfumato.anonymity import anonymize, measure_anonymity
people = {"age": [61, 72, 40, 35], "ill": ["flu", "gout", "flu", "gout"]}
made = anonymize(people, quasi_identifiers="age", k=2, sensitive="ill", l=2, register=people)
assert measure_anonymity(made, quasi_identifiers="age", register=people).k_map == 2
"""


@pytest.mark.parametrize("use", ["import sfumato.anonymity", USE], ids=["import", "use"])
def test_no_room_of_releases_is_loaded(use):
    loaded = "import sys; print(*(name for name in sys.modules if name.startswith('sfumato.')))"
    found = subprocess.run(
        [sys.executable, "-c", f"{use}\n{loaded}"], capture_output=True, text=True, check=True
    )
    rooms = {name.split(".")[1] for name in found.stdout.split()}
    assert "anonymity" in rooms
    assert not rooms & set(APART)


def test_compiled_loops_are_loaded_when_they_are_needed():
    code = "import sys, sfumato.anonymity; print('numba' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "False"
