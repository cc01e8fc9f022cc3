"""Noise under a charge: which open groups are kept follows from their noisy numbers alone."""

from fractions import Fraction
from types import SimpleNamespace

import numpy as np
import pytest

from helpers.projects import open_rows
from sfumato.core.algebra.asks import Aggregation, Kept
from sfumato.core.door import draw_groups
from sfumato.core.engine.aggregates import TrueAggregates

FAR = 10**6
STATEMENT = "DP-SELECT 2 DELTA 1e-7 word, COUNT(*) AS n FROM t GROUP BY word"


def ask_with_noise(folder, monkeypatch, amount):
    """The groups of the answer if all noise is one amount; one word is everybody's, another Eve's alone."""
    people = [f"p{number}" for number in range(500)]
    rows = {"person": [*people, "eve"], "word": ["common"] * 500 + ["rare"]}
    monkeypatch.setattr("sfumato.core.noise.add_noise", lambda values, *, kind, scale: values + amount)
    return open_rows(folder, {}, rows, max_records=1).sql(STATEMENT).table["word"].to_pylist()


@pytest.mark.parametrize(("amount", "kept"), [(-FAR, []), (0, ["common"]), (FAR, ["common", "rare"])])
def test_open_groups_are_kept_by_their_noisy_number(tmp_path, monkeypatch, amount, kept):
    assert ask_with_noise(tmp_path, monkeypatch, amount) == kept


@pytest.mark.parametrize(("amount", "kept"), [(-FAR, ()), (FAR, (("a",), ("b",)))])
def test_what_is_drawn_decides_and_not_what_is_true(amount, kept):
    query = SimpleNamespace(measures=())
    asked = Aggregation(query=query, drawn=(), kept=Kept(Fraction(1), 10, Fraction(0)))
    exact = TrueAggregates((), (("a",), ("b",)), np.array([5000, 1]))
    source = SimpleNamespace(add_noise=lambda values, **_: values + amount, exponential_choice=None)
    assert draw_groups(asked, exact, source).keys == kept
