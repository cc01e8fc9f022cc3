"""The door: a charge pays for one answer, and what cannot be counted is refused before it is charged."""

import signal
import subprocess
import sys
from fractions import Fraction

import pytest

import sfumato as sf
from helpers.asking import TABLES, Counted, Stub, count_records
from helpers.fitted_recipe import Fitted
from helpers.projects import write_project
from sfumato.accounting import Cost, Ledger
from sfumato.core.door import Bill, Charged
from sfumato.core.errors import ChargeKept, LedgerError
from sfumato.curator import statements


def test_an_answer_closes_its_charge():
    costs, engine = (
        (Cost(kind="laplace", scale=Fraction(4), sensitivity=Fraction(2), count=3, unit="p"),),
        Counted(),
    )
    bill = Bill(digest="d", description={}, tables="t", costs=costs, version=lambda _: "v", described=TABLES)
    charge = Charged(bill, Stub("v", costs), ledger=Stub("v"), noise=None)
    engine.ask(charge, count_records(4))
    charge.store(b"part", final=False)
    engine.ask(charge, count_records(4))  # the parts of one answer
    charge.store(b"whole")
    with pytest.raises(LedgerError, match="pays for no other"):
        engine.ask(charge, count_records(4))
    assert engine.times == 2


def test_an_answer_that_could_not_be_stored_is_not_returned(project, monkeypatch):
    """Whoever asks again is given fresh noise under the same charge: two answers for the price of one."""
    curator = sf.open(project)
    with monkeypatch.context() as patch:

        def fail(*_, **__):
            raise LedgerError("the disk is full")

        patch.setattr(Ledger, "store_answer", fail)
        with pytest.raises(ChargeKept, match="nobody has seen its answer"):
            curator.sql("DP-SELECT 0.5 COUNT(*) FROM t")
    assert curator.budget().spent == Fraction(1, 2)
    curator.sql("DP-SELECT 0.5 COUNT(*) FROM t")
    assert curator.budget().spent == Fraction(1, 2)


def test_a_fault_after_the_noise_tells_nothing_of_it(project, monkeypatch):
    """The next who asks has noise drawn anew: two answers for the price of one."""
    curator = sf.open(project)
    with monkeypatch.context() as patch:

        def fail(noisy):
            raise ValueError(f"odd: {noisy.values}")

        patch.setattr(statements, "pack_noisy", fail)
        with pytest.raises(ChargeKept) as told:
            curator.sql("DP-SELECT 0.5 COUNT(*) FROM t")
    assert "odd" not in str(told.value)
    assert told.value.__context__ is None
    assert curator.sql("DP-SELECT 0.5 COUNT(*) FROM t") is not None
    assert curator.budget().spent == Fraction(1, 2)


@pytest.mark.parametrize(
    "ask",
    [
        lambda curator: curator.sql("DP-SELECT 21 COUNT(*) FROM t"),
        lambda curator: curator.sql("DP-SELECT 1 COUNT(*) FROM t", at_most=Fraction(1, 2)),
        lambda curator: curator.sql("DP-SELECT 1 SUM(month) FROM nothing"),
        lambda curator: curator.release(sf.recipes.CellCounts(table="t", by=("month",)), epsilon=21),
    ],
)
def test_what_is_refused_leaves_no_ledger_behind(project, ask):
    before = sorted(project.parent.iterdir())
    with pytest.raises(sf.SfumatoError):
        ask(sf.open(project))
    assert sorted(project.parent.iterdir()) == before


def test_a_norm_of_rows_is_refused_before_the_charge(tmp_path):
    (tmp_path / "t.csv").write_text("a\nx\ny\n", encoding="utf-8")
    curator = sf.open(write_project(tmp_path, {"a": {"values": ["x", "y"]}}, source="t.csv", delta=1e-6))
    recipe = Fitted(table="t", columns=("a",), marginals=(("a",),), norm=1)
    with pytest.raises(sf.SchemaError, match="name a unit column"):
        curator.release(recipe, epsilon=Fraction(1), delta="1e-9")
    assert curator.budget().spent == 0


def test_who_asks_is_recorded_and_held_to_what_they_would_spend(project):
    curator = sf.open(project)
    curator.sql("DP-SELECT 0.5 COUNT(*) FROM t", asked_by="ana", at_most=Fraction(1, 2))
    curator.release(sf.recipes.CellCounts(table="t", by=("region",)), epsilon=0.25, asked_by="ben")
    assert [entry.asked_by for entry in curator.budget().entries if entry.kind == "charge"] == ["ana", "ben"]
    with pytest.raises(sf.BudgetExceeded, match=r"at most epsilon 0\.5 was to be spent"):
        curator.sql("DP-SELECT 0.6 COUNT(*) FROM t", asked_by="ana", at_most=Fraction(1, 2))
    # An answer that is there costs nothing, whoever asks.
    assert curator.sql("DP-SELECT 0.5 COUNT(*) FROM t", asked_by="cy", at_most=Fraction(0)).repeated
    assert curator.budget().spent == Fraction(3, 4)


def test_explain_names_the_price_and_what_is_paid_for(project):
    curator = sf.open(project)
    statement = "DP-SELECT 0.5 region, COUNT(*) AS n FROM t GROUP BY region"
    price = curator.sql(f"EXPLAIN {statement}").price
    assert (price.epsilon, price.groups, price.admitted, price.stored) == (Fraction(1, 2), 3, True, False)
    answer = curator.sql(statement).to_arrow().to_pylist()
    assert {row["n_high"] - row["n"] for row in answer} == {price.errors["n"]}
    assert curator.sql(f"EXPLAIN {statement}").price.stored


def test_a_statement_that_was_killed_after_its_charge_is_finished_under_it(project):
    code = (
        "import os, signal\n"
        "from sfumato.servers import project as engines\n"
        "import sfumato as sf\n"
        "from sfumato.core.engine.statements import StatementEngine\n"
        "class Dying(StatementEngine):\n"
        "    def aggregate(self, *args, **options):\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
        "engines.open_engine = Dying\n"
        "sf.open('sfumato.toml').sql('DP-SELECT 0.5 COUNT(*) AS n FROM t')\n"
    )
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-c", code], cwd=project.parent, capture_output=True, check=False
        )
        assert done.returncode == -signal.SIGKILL
    curator = sf.open(project)
    assert curator.budget().spent == Fraction(1, 2)
    first = curator.sql("DP-SELECT 0.5 COUNT(*) AS n FROM t")
    assert first.spent == 0
    assert curator.sql("DP-SELECT 0.5 COUNT(*) AS n FROM t").table == first.table
    assert curator.budget().spent == Fraction(1, 2)
    assert sf.open(project).budget().spent == Fraction(1, 2)


@pytest.mark.parametrize("limit", ["0.06", "0.14", "0.05"])
def test_a_doubling_never_costs_more_than_it_may_in_all(project, limit):
    curator, limit = sf.open(project), Fraction(limit)
    # So few records are never within so little of themselves.
    answer = curator.sql("DP-SELECT WITHIN 0.001% COUNT(*) AS n FROM t", asked_by="ana", at_most=limit)
    spent = Fraction(str(curator.budget().spent))
    assert answer.spent == spent
    assert spent <= limit < 9 * spent + Fraction(1, 1000)  # the next try would have been too much
