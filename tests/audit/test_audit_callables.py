"""Audits of functions: specimens are caught, right mechanisms are not, and nothing makes an audit crash."""

import math
import os
import sys
from fractions import Fraction
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from helpers.specimens import SPECIMENS, half_scale, syncity_as_written
from sfumato.audit import Audit, AuditError, audit, audit_one_run
from sfumato.audit.blackbox import observe, stack_observations
from sfumato.audit.callables import ProcessRunner, convert_table, list_pairs
from sfumato.core.errors import SourceError
from sfumato.core.noise import add_noise, discrete_gaussian, discrete_laplace, exponential_choice

SURE = 1 - 1e-6
RUNS = {
    "exponential mechanism without the 2": 8000,
    "average by a private size": 4000,
    "half the scale": 1500,
}
PAIR = ([1, 2, 3], [1, 2])


@pytest.mark.statistical
@pytest.mark.parametrize("specimen", SPECIMENS, ids=lambda each: each.name)
def test_every_specimen_is_caught(specimen):
    result = audit(
        specimen.mechanism,
        neighbours=specimen.neighbours,
        epsilon=specimen.claim,
        runs=RUNS.get(specimen.name, 1000),
        confidence=SURE,
    )
    assert result.verdict == "VIOLATED"
    assert specimen.claim < result.epsilon_lower <= specimen.truth


@pytest.mark.statistical
def test_numpys_own_laplace_noise_is_caught_by_its_last_bits():
    random = np.random.default_rng(7)
    result = audit(
        lambda table: len(table) + random.laplace(),
        neighbours=([1], []),
        epsilon=1.0,
        runs=1000,
        confidence=SURE,
    )
    assert result.verdict == "VIOLATED"
    assert "lowest bit" in str(result)
    assert "suspect" in str(result)


def noisy_count(table):
    return len(table) + int(discrete_laplace(scale=1, size=1)[0])


def noisy_counts(table):
    return add_noise(np.bincount(table, minlength=5).astype(np.int64), kind="laplace", scale=1)


def noisy_gaussian(table):
    return len(table) + int(discrete_gaussian(sigma=5, size=1)[0])


def noisy_choice(table):
    scores = np.array([[len(table), 0, -len(table)]], np.int64)
    return "abc"[int(exponential_choice(scores, rate=Fraction(1, 2))[0])]


def nothing(_):
    return None


@pytest.mark.statistical
@pytest.mark.parametrize(
    ("mechanism", "delta"),
    [(noisy_count, 0.0), (noisy_counts, 0.0), (noisy_gaussian, 1e-3), (noisy_choice, 0.0), (nothing, 0.0)],
)
def test_right_mechanisms_are_not_refuted(mechanism, delta):
    result = audit(mechanism, neighbours=PAIR, epsilon=1.0, delta=delta, runs=3000, confidence=SURE)
    assert result.verdict == "not refuted"
    assert result.epsilon_lower <= 1


@pytest.mark.parametrize("neighbours", [([1], [1]), (pa.table({"a": [1]}), pa.table({"a": [1]}))])
def test_equal_neighbours_refute_nothing(neighbours):
    result = audit(nothing, neighbours=neighbours, epsilon=0.0, runs=50)
    assert (result.verdict, result.epsilon_lower) == ("not refuted", 0.0)
    assert any("equal" in note for note in result.notes)


@pytest.mark.parametrize("epsilon", [0.0, 1e-6])
def test_tiny_claims_are_refuted_by_any_proof(epsilon):
    assert audit(len, neighbours=([1], []), epsilon=epsilon, runs=200).verdict == "VIOLATED"


def test_a_claim_beyond_what_runs_can_prove_says_so():
    result = audit(len, neighbours=([1], []), epsilon=50.0, runs=200)
    assert result.verdict == "not refuted"
    assert any("cannot refute 50" in note for note in result.notes)


def test_the_headline_never_says_passed():
    result = audit(nothing, neighbours=PAIR, epsilon=1.0, runs=20)
    assert result.headline == "epsilon >= 0 at 95 %, claim 1: not refuted"
    assert "passed" not in str(result)
    assert isinstance(result, Audit)
    assert result.to_record()["verdict"] == "not refuted"


def raise_on_long(table):
    if len(table) > 2:
        message = f"cannot read {table[2]!r}"
        raise KeyError(message)
    return 0


def exit_on_long(table):
    if len(table) > 2:
        raise SystemExit(1)
    return 0


def grow(table):
    return [0] * len(table)


def mix(table):
    return {"n": len(table)} if len(table) > 2 else pa.table({"n": [1.5], "t": ["x"]})


class Strange:
    def __repr__(self):
        raise RuntimeError

    to_dict = 7


def strange(table):
    return Strange() if len(table) > 2 else object()


@pytest.mark.parametrize("mechanism", [raise_on_long, exit_on_long, grow, mix, strange])
def test_whatever_a_function_does_is_an_event(mechanism):
    result = audit(mechanism, neighbours=PAIR, epsilon=1.0, runs=200, confidence=SURE)
    assert result.verdict == "VIOLATED"


@pytest.mark.parametrize(
    "output",
    [
        None,
        True,
        10**400,
        math.nan,
        -math.inf,
        Fraction(1, 3),
        1 + 2j,
        b"bytes",
        np.array(["a", None], object),
        np.array([1 + 1j]),
        np.zeros((0, 3)),
        {"a": {"b": [1, 2.5, "x"]}, 7: set("ab")},
        [[1, 2], [3]],
        pa.table({"a": [1, None], "b": ["x", "y"]}),
        pytest.importorskip("pandas").DataFrame({"a": [1.5], "b": ["x"]}),
        pytest.importorskip("polars").DataFrame({"a": [1.5], "b": ["x"]}),
        object(),
        iter([1]),
        Path(__file__),
    ],
    ids=lambda each: type(each).__name__,
)
def test_any_output_can_be_looked_at(output):
    sample = stack_observations([observe(output), observe([1.0, 2.0]), observe(output)])
    assert sample.runs == 3
    assert sample.numbers.shape[0] == 3


def test_a_file_is_read_as_everywhere(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("code;n\n07;1\n;2\n")
    assert convert_table(str(path), "rows") == [{"code": "07", "n": 1}, {"code": None, "n": 2}]
    assert convert_table(str(path), "path") == str(path)
    with pytest.raises(SourceError, match=r"'u\.csv'"):
        convert_table(str(tmp_path / "u.csv"), "arrow")


def test_several_pairs_share_the_chance_of_a_false_alarm():
    pairs = [([1], [1]), ([1, 2, 3], [])]
    result = audit(len, neighbours=pairs, epsilon=1.0, runs=100)
    assert result.verdict == "VIOLATED"
    assert result.pairs == 2
    assert [each.violated for each in result.findings] == [False, True]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"neighbours": 7, "epsilon": 1}, "pair of tables"),
        ({"neighbours": [], "epsilon": 1}, "pair of tables"),
        ({"neighbours": PAIR}, "epsilon that it claims"),
        ({"epsilon": 1}, "needs neighbours"),
        ({"neighbours": PAIR, "epsilon": -1}, "at least 0"),
        ({"neighbours": PAIR, "epsilon": math.inf}, "at least 0"),
        ({"neighbours": PAIR, "epsilon": 1, "delta": 1}, "below 1"),
        ({"neighbours": PAIR, "epsilon": 1, "runs": 2}, "at least 8"),
        ({"neighbours": PAIR, "epsilon": 1, "confidence": 1.0}, "confidence"),
        ({"neighbours": PAIR, "epsilon": 1, "timeout": 1.0}, "function of a module"),
    ],
)
def test_what_cannot_be_audited_is_refused(options, message):
    with pytest.raises(AuditError, match=message):
        audit(lambda table: 0, **options)


def test_a_pair_is_told_from_a_list_of_pairs():
    assert list_pairs([[1], [2]]) == [([1], [2])]
    assert list_pairs([((1,), (2,))]) == [((1,), (2,))]


def test_a_recipe_without_a_project_is_refused():
    with pytest.raises(AuditError, match="project="):
        audit("recipe.toml", epsilon=1)


FILE = """
import os, time
def hang(table):
    while len(table) > 2:
        time.sleep(0.05)
    return 0
def die(table):
    if len(table) > 2:
        os._exit(7)
    return 0
def shout(table):
    print("x" * 100_000)
    return 0
def pair():
    return [1, 2, 3], [1, 2]
"""


@pytest.fixture
def runner(tmp_path):
    (tmp_path / "audited.py").write_text(FILE)
    made = []

    def make(name, timeout=120.0):
        job = {"where": f"{tmp_path}/audited.py:{name}", "neighbours": f"{tmp_path}/audited.py:pair"}
        made.append(ProcessRunner(job, timeout))
        return made[-1]

    yield make
    for each in made:
        each.close()


def test_a_run_that_does_not_end_or_kills_its_process_is_seen(runner):
    hanging = runner("hang", timeout=0.5)
    assert hanging.run(0).words == {"did not end in time"}
    dying = runner("die")
    assert [dying.run(side).words == {"died"} for side in (0, 1, 0)] == [True, False, True]


def test_what_a_function_prints_does_no_harm(runner):
    assert "whole [0.0]" in runner("shout").run(0).words


def test_a_function_that_is_not_there_is_an_error(runner):
    with pytest.raises(AuditError, match="has no 'missing'"):
        runner("missing").run(0)


def test_a_known_function_can_run_in_another_process(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))  # where that process finds the function
    result = audit(half_scale, neighbours=PAIR, epsilon=1.0, runs=30, timeout=120.0)
    assert result.runs == 60


@pytest.mark.statistical
def test_one_run_finds_syncity_and_not_its_repair():
    def run(scale):
        def once(inside):
            counts = np.repeat(inside.astype(np.int64), 20)
            noisy = add_noise(counts, kind="laplace", scale=scale)
            return np.clip(noisy - 0.5, -0.5, 0.5).reshape(-1, 20).sum(1)

        return once

    bad = audit_one_run(run(1), canaries=1000, epsilon=1.0, confidence=SURE)
    good = audit_one_run(run(20), canaries=1000, epsilon=1.0, confidence=SURE)
    assert bad.verdict == "VIOLATED"
    assert 1 < bad.epsilon_lower < 20
    assert good.verdict == "not refuted"


@pytest.mark.parametrize("run", [lambda inside: 7, lambda inside: inside[1:]])
def test_one_run_needs_a_score_for_every_canary(run):
    with pytest.raises(AuditError, match="scores"):
        audit_one_run(run, canaries=10, epsilon=1.0)


def test_syncity_needs_few_runs():
    found = [
        audit(syncity_as_written, neighbours=SPECIMENS[0].neighbours, epsilon=1.0, runs=60).verdict
        for _ in range(20)
    ]
    assert found.count("VIOLATED") >= 10
