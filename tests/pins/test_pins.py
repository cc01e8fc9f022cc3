"""What the project produces, pinned: plans, certificates, files, answers and charges of one small project.

asked.toml says what is released and asked, pins.json has the digests of all that comes out. The keys of all
noise are the same bytes here, so a draw depends on its law and its size, not on the order of draws. A pin
that differs means that something people see has changed. If it was meant to, write all pins anew and read
the difference:

    PYTHONPATH=src python tests/pins/test_pins.py --write

Not pinned, because they differ by nature: `versions` of a certificate; `hash`, `previous` and `recorded_at`
of its ledger entry; the beginning of that hash in the write-up; the `table_version` of a ledger entry, which
is a keyed digest of the place and age of a file.
"""

import csv
import hashlib
import json
import os
import sys
import tempfile
import tomllib
from importlib.metadata import version
from pathlib import Path
from unittest import mock

import pytest
from llvmlite.binding import get_host_cpu_name

import sfumato as sf
from sfumato.accounting import Budget, Ledger
from sfumato.choose import above_threshold, exponential, noisy_max, permute_and_flip
from sfumato.core.exact import canonical_json
from sfumato.release.ask import open_model

PINS = Path(__file__).with_name("pins.json")
LIBRARIES = {name: version(name) for name in ("numpy", "pyarrow", "numba")}
CPU = get_host_cpu_name()

ASKED = tomllib.loads(PINS.with_name("asked.toml").read_text())


def write_tables(folder):
    """Writes the tables; nothing in them is random."""
    rows = [("person", "region", "day", "age", "fare", "note")]
    for person in range(90):
        for visit in range(1 + person % 6):
            n = 7 * person + 3 * visit
            day = f"2024-{1 + n % 12:02}-{1 + n % 28:02}"
            rows.append((f"p{person}", "abcd"[(person + visit) % 4], day, person, n % 61, f"n{n % 3}"))
    public = [("region", "day", "age", "fare", "person")]
    public += [("abc"[n % 3], f"2023-0{1 + n % 5}-01", 7 * n % 99, n, f"q{n % 30}") for n in range(40)]
    people = [("person", "height"), *((f"p{n}", n % 10) for n in range(0, 90, 2))]
    zones = [("name", "side"), ("a", "north"), ("b", "south"), ("c", "north")]
    for name, table in (("t", rows), ("public", public), ("people", people), ("zones", zones)):
        with (folder / f"{name}.csv").open("w", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows(table)


def short(content):
    """The digest of bytes, or of a record in the order it is written; 20 digits tell any two apart."""
    if not isinstance(content, bytes):
        content = json.dumps(content, default=str).encode()
    return hashlib.sha256(content).hexdigest()[:20]


def pin_release(release):
    """The digests of a plan, of each part of a certificate, and of each file."""
    certificate = json.loads(release.files["certificate.json"])
    charge = certificate["ledger"].pop("hash")
    for name in ("previous", "recorded_at"):
        del certificate["ledger"][name]
    del certificate["versions"]
    stated = certificate.pop("files")
    files = {name: content for name, content in release.files.items() if name != "certificate.json"}
    assert stated == {name: hashlib.sha256(files[name]).hexdigest() for name in sorted(files)}
    files["writeup.md"] = files["writeup.md"].replace(charge[:16].encode(), b"")
    return {
        "plan": certificate["plan_sha256"],
        "certificate": {name: short(part) for name, part in certificate.items()},
        "files": {name: short(content) for name, content in sorted(files.items())},
    }


def pin_answer(answer):
    """The digest of an answer: values to the last digit, names, types, and what is said of them."""
    table = answer.table
    types = [str(field.type) for field in table.schema]
    said = (answer.scales, answer.notes, answer.explanation, answer.delta, answer.synthetic, answer.public)
    return {"spent": str(answer.spent), "answer": short([table.to_pydict(), types, *said])}


def pin_entries(entries):
    """The digests of what was charged to a ledger."""
    charges = [entry for entry in entries if entry.kind == "charge"]
    told = [(each.kind, each.plan_digest, each.table, describe_charge(each)) for each in charges]
    return {"plan": [each.plan_digest for each in charges], "charge": short(told)}


def describe_charge(entry):
    """What a charge is for and what it costs, in the order of the keys."""
    told = {**entry.description, "costs": [cost.to_record() for cost in entry.costs]}
    told |= {} if entry.asked_by is None else {"asked_by": entry.asked_by}
    told |= {} if entry.part_of is None else {"part_of": entry.part_of}
    told |= {} if entry.window is None else {"window": entry.window.to_record()}
    told |= {"units": entry.units} if entry.purpose == "statement" else {}
    return json.loads(canonical_json(told))


def choose_privately(folder):
    """Private choices from Python, charged to a ledger of their own."""
    scores, ledger = {"a": 9, "b": 8, "c": 2}, Ledger(folder / "choices.db", Budget(10))
    terms = {"epsilon": 1, "sensitivity": 1, "ledger": ledger}
    picks = [choose(scores, scores.get, **terms) for choose in (exponential, permute_and_flip, noisy_max)]
    above = list(above_threshold([1, 8, 3, 90], 6, **terms))
    return {"chosen": [*(pick.candidate for pick in picks), above], **pin_entries(ledger.entries())}


def spell(value):
    """A value of a recipe file in TOML."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {spell(each)}" for key, each in value.items()) + "}"
    return f"[{', '.join(map(spell, value))}]" if isinstance(value, list) else json.dumps(value)


def produce_in(folder, project, recipes, statements):
    """The pins of releases and answers of one project, made in a fixed order."""
    write_tables(folder)
    (folder / "sfumato.toml").write_text(project)
    curator, pins = sf.open(folder / "sfumato.toml"), {}
    for name, recipe in recipes.items():
        file = folder / f"{name}.toml"
        file.write_text("".join(f"{key} = {spell(value)}\n" for key, value in recipe.items()))
        release = curator.release(file, out=folder / name)
        sf.verify(folder / name, ledger=curator.ledger_path)
        pins[name] = pin_release(release)
    for text in statements:
        before = len(curator.budget().entries)
        pins[text] = pin_answer(curator.sql(text)) | pin_entries(curator.budget().entries[before:])
    for metric in ("pie-chart", "l1"):
        before = len(curator.budget().entries)
        score = curator.publish_score(folder / "cell-counts", epsilon=1, metric=metric).to_record()
        pins[f"score {metric}"] = {"score": short(score)} | pin_entries(curator.budget().entries[before:])
    return pins


def produce(folder):
    """Everything that is pinned, made in `folder`."""
    with mock.patch.object(os, "urandom", hashlib.shake_256(b"pins").digest):
        pins = produce_in(folder, ASKED["project"], ASKED["recipes"], ASKED["statements"])
        pins["model"] = pin_answer(open_model(folder / "adaptive").sql(ASKED["model"]))
        pins["choices"] = choose_privately(folder)
        (folder / "replace").mkdir()
        replaced = ASKED["project"].replace("unit = ", 'neighbours = "replace"\nunit = ')
        few = {name: recipe for name, recipe in ASKED["recipes"].items() if " " not in name}
        more = produce_in(folder / "replace", replaced, few, ASKED["statements"][:4])
    return pins | {f"replace: {name}": pin for name, pin in more.items()}


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """What is produced now, as it reads after a journey through JSON."""
    return json.loads(json.dumps(produce(tmp_path_factory.mktemp("pins"))))


PINNED = json.loads(PINS.read_text()) if PINS.exists() else {}


@pytest.mark.parametrize("name", [name for name in PINNED if name != "made with"])
def test_what_is_produced_is_what_is_pinned(found, name):
    pinned, made = dict(PINNED[name]), PINNED["made with"]
    got = {part: found[name][part] for part in pinned}
    if made["libraries"] != LIBRARIES:
        # A Parquet file names the library that wrote it, and rows are drawn by another one.
        pinned.pop("files", None), got.pop("files", None)
    elif made["cpu"] != CPU:
        # The last digits of a fit follow the processor's instructions; measured with the kernels of numba and
        # OpenBLAS for others, these alone differ, not the rows. Threads and processes make no difference.
        for each in (pinned, got):
            each.get("files", {}).pop("model.parquet", None)
    if name == "model" and made != {"libraries": LIBRARIES, "cpu": CPU}:
        pytest.skip("the answer of a model to the last digit belongs to the processor that fitted it")
    assert got == pinned


def test_everything_is_pinned(found):
    assert set(found) == set(PINNED) - {"made with"}


if __name__ == "__main__" and sys.argv[1:] == ["--write"]:
    with tempfile.TemporaryDirectory() as place:
        PINS.write_text(
            json.dumps({"made with": {"libraries": LIBRARIES, "cpu": CPU}, **produce(Path(place))}, indent=1)
            + "\n"
        )
