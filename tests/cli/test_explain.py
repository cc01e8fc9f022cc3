"""`sfumato explain`, called as the command line calls it."""

import json
from functools import partial

import pytest

from helpers.cli import invoke

run = partial(invoke, "explain")


def test_json_has_every_finding():
    document = json.loads(run("epsilon", "1", "--prior", "0.1", "--times", "10", "--json").stdout)
    once, after = document["findings"]
    assert (document["kind"], document["amount"], document["prior"]) == ("epsilon", "1", "0.1")
    assert once["belief"]["high"] == pytest.approx(0.232, abs=1e-3)
    assert (after["times"], after["epsilon"]) == (10, "10")
    assert after["reading"] == {"epsilon": 10.0, "delta": "0.000001", "way": "sum"}
    assert document["picture"] is None


def test_delta_goes_with_epsilon_and_reads_the_others():
    with_delta = json.loads(run("epsilon", "1", "--delta", "1e-6", "--json").stdout)
    assert with_delta["delta"] == "0.000001"
    assert with_delta["findings"][0]["belief"] is None
    for kind in ("rho", "mu"):
        read = json.loads(run(kind, "0.5", "--delta", "1e-9", "--json").stdout)
        assert read["delta"] == "0"
        assert read["findings"][0]["reading"]["delta"] == "0.000000001"
