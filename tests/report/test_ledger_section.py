"""The section on the ledger tells what is left in charges, beside the bar in pure epsilon."""

from fractions import Fraction

from sfumato.report.sections.ledger import _tell_budget

from sfumato.accounting import Budget, Cost, Ledger


def _report(tmp_path, *costs):
    ledger = Ledger(tmp_path / "ledger.db", Budget(8, "1e-5"))
    for cost in costs:
        ledger.charge(description={}, plan_digest="p", table="t", table_version="v", costs=(cost,))
    return ledger.report()


def test_charges_like_the_last_are_counted(tmp_path):
    report = _report(tmp_path, Cost(kind="gaussian", scale=Fraction(5000), sensitivity=Fraction(1000)))
    page = str(_tell_budget(report, ""))
    assert f"Of charges like the last one, {report.more_like_last} further charges would fit." in page


def test_none_is_told_as_none_and_nothing_before_the_first(tmp_path):
    assert "would fit" not in str(_tell_budget(_report(tmp_path), ""))
    (tmp_path / "b").mkdir()
    page = str(_tell_budget(_report(tmp_path / "b", Cost(kind="pure", scale=Fraction(8))), ""))
    assert "no further charge would fit" in page
