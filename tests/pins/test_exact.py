"""What is charged for statements and recipes of every kind, and the exact values they draw on, pinned.

The noise is off. `exact.json` holds, for each, the costs of its charge, the law of every draw, and the exact
values, or a digest of many. A change of the house that changes no answer leaves all of it the same. If a pin
was meant to change, write all anew and read the difference:

    PYTHONPATH=src:tests python tests/pins/test_exact.py --write
"""

import hashlib
import json
import os
import sys
import tempfile
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from llvmlite.binding import get_host_cpu_name

from helpers.drawn import find_overdraft
from helpers.exact import RECIPES, Exact, list_asked, name_recipe
from sfumato.core.exact import format_exact

PINS = Path(__file__).with_name("exact.json")
CPU = get_host_cpu_name()
# What these ask later follows from fits, whose last digits belong to a processor.
FITTED = ("adaptive", "additive", "clusters", "linear", "logistic", "network", "related", "tree")
SHOWN = 12


def show_values(values):
    """Exact values as they are, or the digest of many."""
    listed = values.ravel().tolist()
    if len(listed) <= SHOWN:
        return listed
    return f"{len(listed)} values: {hashlib.sha256(json.dumps(listed).encode()).hexdigest()[:16]}"


def pin(charges):
    """The costs, the laws of all draws, and the exact values."""
    draws = [draw for charge in charges for draw in charge.draws]
    # Groups without a list of their own are drawn for in whatever order they are found.
    found = any(cost.kind == "selection" for charge in charges for cost in charge.costs)
    values = [np.sort(draw.true_values, axis=None) if found else draw.true_values for draw in draws]
    return {
        "costs": [
            " ".join(f"{key}={value}" for key, value in cost.to_record().items())
            for charge in charges
            for cost in charge.costs
        ],
        "draws": [f"{draw.kind} {format_exact(draw.scale)}" for draw in draws],
        "values": [show_values(each) for each in values],
    }


def produce(folder):
    """The pin of everything that is asked, and what was drawn and not paid for."""
    pins, faults = {}, {}
    with mock.patch.object(os, "urandom", hashlib.shake_256(b"pins").digest):
        for neighbours in ("add-remove", "replace"):
            exact, before = Exact(folder / neighbours, neighbours=neighbours), ""
            asked = list_asked()
            if neighbours == "replace":
                asked, before = asked[::3], "replace: "
            for statement in asked:
                charges = exact.ask(statement)
                pins[before + statement] = pin(charges)
                faults[before + statement] = find_overdraft(charges)
            for recipe in RECIPES:
                if before and recipe.get("sampling"):
                    continue  # samples are refused where one individual replaces another
                charges, release = exact.release(recipe)
                name = before + name_recipe(recipe)
                pins[name], faults[name] = pin(charges), find_overdraft(charges, release)
    return pins, faults


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    return produce(tmp_path_factory.mktemp("exact"))


PINNED = json.loads(PINS.read_text()) if PINS.exists() else {"made with": CPU, "pins": {}}


@pytest.mark.parametrize("name", PINNED["pins"])
def test_costs_and_exact_values_are_those_that_are_pinned(found, name):
    got, pinned = dict(found[0][name]), dict(PINNED["pins"][name])
    if PINNED["made with"] != CPU and name.removeprefix("replace: ").startswith(FITTED):
        del got["values"], pinned["values"]
    assert got == pinned


def test_everything_is_pinned(found):
    assert set(found[0]) == set(PINNED["pins"])
    assert len(PINNED["pins"]) > 300


def test_no_noise_is_drawn_that_was_not_charged(found):
    assert {name: fault for name, fault in found[1].items() if fault} == {}


if __name__ == "__main__" and sys.argv[1:] == ["--write"]:
    with tempfile.TemporaryDirectory() as place:
        pins, faults = produce(Path(place))
        assert not any(faults.values()), faults
        lines = [f"  {json.dumps(name)}: {json.dumps(each)}" for name, each in pins.items()]
        PINS.write_text(
            f'{{\n "made with": {json.dumps(CPU)},\n "pins": {{\n' + ",\n".join(lines) + "\n }\n}\n"
        )
