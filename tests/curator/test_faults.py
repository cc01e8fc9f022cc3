"""Second tests of what is charged and what is seen: each fails for one planted fault of tests/mutants."""

import pytest

import sfumato as sf
from helpers.drawn import watch_draws
from helpers.projects import open_rows
from sfumato.accounting import Ledger
from sfumato.core.errors import ChargeKept, LedgerError


def test_a_doubled_statement_says_what_all_its_tries_have_cost(project):
    curator = sf.open(project)
    spent = curator.sql("DP-SELECT WITHIN 0.001% COUNT(*) AS n FROM t").spent
    charged = [
        cost.epsilon for each in curator.budget().entries if each.kind == "charge" for cost in each.costs
    ]
    assert len(charged) > 3
    assert spent == sum(charged)


def test_cells_where_records_are_have_the_noise_that_was_charged(tmp_path):
    columns = {name: {"range": [0, 99]} for name in "abc"}
    rows = {"person": list(range(50)), **{name: [n % 100 for n in range(50)] for name in "abc"}}
    curator = open_rows(tmp_path, columns, rows, max_records=1)
    with watch_draws() as charges:
        curator.release(sf.recipes.FieldGroups(table="t", groups=[["a", "b", "c"]]), epsilon=2)
    (charge,) = charges
    assert [draw.kind for draw in charge.draws] == ["sparse"]
    assert [draw.scale for draw in charge.draws] == [cost.scale for cost in charge.costs]


def test_a_score_that_could_not_be_stored_is_seen_by_nobody(project, tmp_path, monkeypatch):
    curator = sf.open(project)
    recipe = sf.recipes.CellCounts(table="t", by=("region", "month"))
    curator.release(recipe, epsilon=[1, 4], out=tmp_path / "out")

    def fail(*_, **__):
        raise LedgerError("the disk is full")

    monkeypatch.setattr(Ledger, "store_answer", fail)
    with pytest.raises(ChargeKept):
        curator.publish_score(tmp_path / "out", epsilon=2)
