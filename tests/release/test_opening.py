"""A release folder from anybody: every reader opens it the same way, and no damage is more than a refusal."""

import hashlib
import io
import json
import os
import random
import sys
from contextlib import suppress

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sfumato as sf
from sfumato.cli.main import main
from sfumato.core.errors import SourceError
from sfumato.release.certificate import pack_json
from sfumato.release.folder import FILES, PackedAnswers, open_folder
from sfumato.tables.arrays import read_parquet

RECIPE = sf.recipes.CellCounts(table="t", by=("region", "month"))
DAMAGES = 50  # of every file


@pytest.fixture
def out(project):
    folder = project.parent / "out"
    sf.open(project).release(RECIPE, epsilon=[1, 2], out=folder)
    return folder


def damage(content, draw):
    """`content` cut short, or with a few bytes changed."""
    if draw.random() < 0.3:
        return content[: draw.randrange(len(content))]
    changed = bytearray(content)
    for _ in range(draw.choice([1, 1, 2, 8])):
        changed[draw.randrange(len(changed))] ^= 1 << draw.randrange(8)
    return bytes(changed)


@pytest.mark.parametrize("name", FILES)
def test_no_damage_is_more_than_a_failed_verification(out, name):
    draw = random.Random(name)
    content = (out / name).read_bytes()
    for _ in range(DAMAGES):
        (out / name).write_bytes(damage(content, draw))
        if name != "certificate.json":
            with pytest.raises(sf.VerificationFailed):
                sf.verify(out)
            continue
        # What a certificate tells of versions and of the charge cannot be derived.
        with suppress(sf.VerificationFailed):
            assert sf.verify(out).unchecked


@pytest.mark.parametrize("name", sorted(set(FILES) - {"certificate.json"}))
def test_damage_under_a_corrected_digest_is_read_and_found(out, name):
    draw = random.Random(f"{name} with its digest")
    content, held = (out / name).read_bytes(), pq.read_table(out / "table.parquet")
    certificate = json.loads((out / "certificate.json").read_text())
    found = 0
    for _ in range(DAMAGES):
        damaged = damage(content, draw)
        (out / name).write_bytes(damaged)
        rewrite_digest(out, certificate, name, damaged)
        try:
            sf.verify(out)
        except sf.VerificationFailed:
            found += 1
        else:  # a byte that means nothing, such as one of the statistics of a page
            assert pq.read_table(out / "table.parquet").equals(held)
    assert found > DAMAGES / 2


def rewrite_digest(folder, certificate, name, content):
    stated = {**certificate["files"], name: hashlib.sha256(content).hexdigest()}
    (folder / "certificate.json").write_bytes(pack_json({**certificate, "files": stated}))


def commands(out):
    truth = str(out.parent / "t.parquet")
    return {
        "verify": ["verify", str(out)],
        "report": ["report", str(out), "--out", str(out.parent / "report.html"), "--force"],
        "score": ["score", str(out), "--truth", truth],
        "attack link": ["attack", "link", str(out), "--with", truth, "--on", "region"],
        "sql --model": ["sql", "--model", str(out), "SELECT COUNT(*) FROM t"],
    }


def spoil_table(out):
    content = (out / "table.parquet").read_bytes()
    (out / "table.parquet").write_bytes(content[:-40] + b"x" + content[-39:])


def spoil_plan(out):
    certificate = json.loads((out / "certificate.json").read_text())
    certificate["plan"]["table"]["t"]["max_records"] = 1
    (out / "certificate.json").write_text(json.dumps(certificate))


SPOILED = {
    "a table": spoil_table,
    "a plan": spoil_plan,
    "a foreign certificate": lambda out: (out / "certificate.json").write_text('{"format": "other 1"}'),
    "no JSON": lambda out: (out / "certificate.json").write_text("{"),
    "nested JSON": lambda out: (out / "certificate.json").write_text("[" * 100_000),
    "a file too many": lambda out: (out / "exact.csv").write_text("secret"),
    "a file too few": lambda out: (out / "table.csv").unlink(),
    "a pipe": lambda out: ((out / "table.csv").unlink(), os.mkfifo(out / "table.csv")),
}


@pytest.mark.parametrize("what", SPOILED)
def test_every_command_says_the_same_of_a_spoiled_folder(project, probe, capsys, monkeypatch, what):
    out = project.parent / "model"
    sf.open(project).release(probe.Probe(table="t"), epsilon=1, out=out)
    SPOILED[what](out)
    told = set()
    for name, arguments in commands(out).items():
        monkeypatch.setattr(sys, "argv", ["sfumato", *arguments])
        with pytest.raises(SystemExit) as done:
            main()
        assert done.value.code == 4, (name, capsys.readouterr().err)
        told |= {line for line in capsys.readouterr().err.splitlines() if line.startswith("error: ")}
    assert len(told) == 1, told


def test_what_is_no_release_is_told_apart(tmp_path, out):
    for folder in (tmp_path / "gone", tmp_path):
        with pytest.raises(sf.ReleaseError, match="not a release"):
            open_folder(folder)
    (out / "certificate.json").write_bytes(b" " * (2**28 + 1))
    with pytest.raises(sf.VerificationFailed, match="larger than"):
        open_folder(out)


def test_a_certificate_cannot_unpack_to_more_than_a_release(out):
    certificate = json.loads((out / "certificate.json").read_text())
    certificate["plan"]["table"]["t"]["columns"]["month"] = {"range": [1, 10**9], "outside": "other"}
    (out / "certificate.json").write_text(json.dumps(certificate))
    with pytest.raises(sf.VerificationFailed, match="cells, more than"):
        sf.verify(out)


def test_a_small_parquet_file_cannot_unpack_to_far_more(monkeypatch):
    monkeypatch.setattr("sfumato.tables.arrays._UNPACKED", 2**20)
    sink = io.BytesIO()
    pq.write_table(pa.table({"a": [1] * 2**22}), sink, compression="zstd")
    assert len(sink.getvalue()) < 2**16
    with pytest.raises(SourceError, match="unpacks"):
        read_parquet(sink.getvalue())
    with pytest.raises(sf.ReleaseError, match="measurements"):
        PackedAnswers((sink.getvalue(),), None, rows=1000)
    assert read_parquet(sink.getvalue(), rows=2**22).num_rows == 2**22


@pytest.mark.slow
def test_a_long_word_that_repeats_stays_one_word(monkeypatch):
    sink = io.BytesIO()
    pq.write_table(pa.table({"a": ["x" * 10**5] * 10**4}), sink)
    table = read_parquet(sink.getvalue())
    assert table.num_rows == 10**4
    assert table.nbytes < 2 * 10**6
    assert read_parquet(sink.getvalue(), spelled=True)["a"].type == pa.string()
    monkeypatch.setattr("sfumato.tables.arrays._UNPACKED", 2**20)
    with pytest.raises(SourceError, match="unpacks"):
        read_parquet(sink.getvalue(), spelled=True)
