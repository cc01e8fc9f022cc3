"""The guard as people use it: questions, answers, log, budget, and what it refuses."""

import copy
import threading

import numpy as np
import pyarrow as pa
import pytest

import sfumato as sf
from sfumato.holdout import (
    Answer,
    HoldoutPlan,
    HoldoutSpent,
    QuestionRefused,
    ReusableHoldout,
    plan_holdout,
)


def first_positive(X, y):
    return X[:, 0] > 0


def make_guard(pair, **options):
    return ReusableHoldout(*pair, **{"budget": 5, "questions": 50} | options)


def test_an_answer_that_agrees_is_exactly_that_of_the_training_rows(pair, noise):
    guard = make_guard(pair)
    assert guard.query(first_positive) == np.mean(pair[0][0][:, 0] > 0)
    assert guard.log == (
        Answer(number=1, name="first_positive", value=np.mean(pair[0][0][:, 0] > 0), source="train"),
    )


def test_an_answer_that_does_not_agree_is_that_of_the_holdout(noise):
    guard = ReusableHoldout(np.zeros(50), np.full(100, 0.75), budget=2)
    assert guard.query(lambda rows: rows, name="mean") == 0.75
    assert guard.log == (Answer(number=1, name="mean", value=0.75, source="holdout"),)
    assert (guard.budget_left, guard.questions_left) == (1, 99)


def test_means_of_data_sets_of_different_sizes_are_compared_exactly(noise):
    plan = HoldoutPlan(rows=7, questions=9, budget=9, threshold=0, sigma="0.01")
    guard = ReusableHoldout(np.array([0.0, 1, 0]), np.array([0.0, 1, 0, 1, 0, 0, 0.5]), plan=plan)
    guard.query(lambda rows: rows)  # 1/3 and 5/14
    guard.query(lambda rows: rows * 0)
    assert [answer.source for answer in guard.log] == ["holdout", "train"]


def test_the_guard_stops_when_its_budget_is_spent(noise):
    guard = ReusableHoldout(np.zeros(50), np.ones(100), budget=2)
    called = []

    def ask(rows):
        called.append(len(rows))
        return rows

    guard.query(ask)
    guard.query(ask)
    called.clear()
    with pytest.raises(HoldoutSpent, match="fresh holdout") as caught:
        guard.query(ask)
    assert called == []
    assert isinstance(caught.value, sf.BudgetExceeded)
    assert caught.value.left == 0
    assert caught.value.exit_code == 3
    assert len(guard.log) == 2


def test_the_guard_stops_after_the_last_question(pair, noise):
    guard = make_guard(pair, questions=2)
    for _ in range(2):
        guard.query(first_positive)
    with pytest.raises(HoldoutSpent, match="all 2 questions"):
        guard.query(first_positive)
    assert guard.budget_left == 5


def test_one_question_per_row_by_default(pair):
    guard = ReusableHoldout(*pair, budget=5)
    assert guard.plan == plan_holdout(900, questions=900, budget=5)
    assert guard.privacy() == guard.plan.privacy()


@pytest.mark.parametrize("kind", ["array", "list", "mapping", "arrow", "arrow arrays", "pandas", "alone"])
def test_kinds_of_data_sets(kind, noise):
    X = np.arange(60.0).reshape(-1, 2) / 60
    makers = {
        "array": (lambda X: X, lambda X: X[:, 0]),
        "list": (lambda X: X.tolist(), lambda X: X[:, 0]),
        "mapping": (lambda X: {"a": X[:, 0], "b": X[:, 1]}, lambda rows: rows["a"]),
        "arrow": (lambda X: pa.table({"a": X[:, 0], "b": X[:, 1]}), lambda rows: rows["a"]),
        "arrow arrays": (lambda X: {"a": pa.array(X[:, 0])}, lambda rows: rows["a"]),
        "pandas": (
            lambda X: pytest.importorskip("pandas").DataFrame({"a": X[:, 0], "b": X[:, 1]}),
            lambda rows: rows["a"],
        ),
        "alone": (lambda X: X[:, 0], lambda rows: rows),
    }
    make, ask = makers[kind]
    for rows in ("together", "single"):
        guard = ReusableHoldout(make(X), make(X), budget=3, rows=rows)
        assert guard.query(ask) == pytest.approx(X[:, 0].mean(), abs=1e-6)


@pytest.mark.parametrize(
    ("train", "holdout", "told"),
    [
        (np.zeros((9, 2)), np.zeros((30, 3)), "one has 2 columns of numbers, the other 3 columns"),
        (np.zeros(9), np.zeros((30, 1, 2)), "1 x 2 columns"),
        ((np.zeros(9), np.zeros(9)), np.zeros(30), "2 and 1 parts"),
        ({"a": np.zeros(9)}, {"b": np.zeros(30)}, "'a', 'b' in one of them only"),
        (pa.table({"a": [1.0]}), pa.table({"b": [1.0] * 30}), "'a', 'b' in one of them only"),
        (pa.table({"a": [1], "b": [1]}), pa.table({"b": [1] * 30, "a": [1] * 30}), "another order"),
        (np.zeros(9), np.array(["x"] * 30), "of numbers, the other 1 column of other values"),
        ((np.zeros((9, 2)), np.zeros(9)), (np.zeros((30, 2)), np.zeros((30, 2))), "part 2 of"),
        (np.zeros(9), pa.table({"b": [1.0] * 30}), "the other named columns"),
        ((np.zeros(9), np.zeros(8)), (np.zeros(30), np.zeros(30)), "same number of rows"),
        ({"a": np.zeros(9), "b": np.zeros(8)}, np.zeros(30), "same number of rows"),
        ({}, {}, "at least one column"),
        ((), (), "at least one part"),
        (np.zeros(0), np.zeros(30), "the training rows must have at least one"),
        (np.zeros(9), np.zeros(0), "the holdout must have at least one"),
        (np.float64(3), np.zeros(30), "with rows, not one value"),
        (3, np.zeros(30), "not int"),
        ("rows", np.zeros(30), "not str"),
    ],
)
def test_data_sets_that_do_not_fit(train, holdout, told):
    with pytest.raises(sf.SchemaError, match=told):
        ReusableHoldout(train, holdout, budget=3)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({}, "budget=..."),
        ({"budget": 0}, "budget must be"),
        ({"budget": 2, "rows": "all"}, "'together' or 'single'"),
        ({"budget": 2, "timeout": 0}, "timeout must be above zero"),
        ({"budget": 2, "plan": plan_holdout(30, questions=2, budget=2)}, "either a plan"),
        ({"plan": plan_holdout(31, questions=2, budget=2)}, "for 31 holdout rows, but the holdout has 30"),
    ],
)
def test_options_that_do_not_fit(options, told):
    with pytest.raises(sf.RecipeError, match=told):
        ReusableHoldout(np.zeros(9), np.zeros(30), **options)


def test_a_holdout_of_one_row_needs_a_plan_of_its_own(noise):
    with pytest.raises(sf.RecipeError, match="a holdout of 1 rows is too small"):
        ReusableHoldout(np.zeros(1), np.ones(1), budget=1)
    plan = HoldoutPlan(rows=1, questions=2, budget=2, threshold="0.5", sigma=2)
    assert ReusableHoldout(np.zeros(1), np.ones(1), plan=plan).query(lambda rows: rows) == 1


@pytest.mark.parametrize(
    ("function", "told"),
    [
        (lambda X, y: 0.5, "returned one number for 400 rows"),
        (lambda X, y: X, r"an array of shape \(400, 3\)"),
        (lambda X, y: (X[:, 0] > 0)[:-1], r"an array of shape \(399,\)"),
        (lambda X, y: X[:, 0], r"outside \[0, 1\]; scale or clamp"),
        (lambda X, y: np.where(X[:, 0] > 0, 1, 1.0000001), r"outside \[0, 1\]"),
        (lambda X, y: np.where(X[:, 0] > 0, np.nan, 0), "not finite"),
        (lambda X, y: np.where(X[:, 0] > 0, np.inf, 0), "not finite"),
        (lambda X, y: ["x"] * len(X), "not numbers"),
        (lambda X, y: [None] * len(X), "not"),
        (lambda X, y: [1 + 2j] * len(X), "not numbers"),
        (lambda X, y: None, "one number"),
        (lambda X, y: [[1], [1, 2]], "raised ValueError"),
        (lambda X: X, "raised TypeError"),
        (lambda X, y: X.missing, "raised AttributeError"),
        (lambda X, y: X.__setitem__(0, 1), "raised ValueError"),  # rows are read-only
    ],
)
def test_faults_that_training_rows_show_cost_nothing_and_are_told(pair, function, told):
    guard = make_guard(pair)
    with pytest.raises(QuestionRefused, match=told):
        guard.query(function, name="odd")
    assert (guard.questions_left, guard.budget_left, guard.log) == (50, 5, ())


def test_the_cause_of_a_fault_on_training_rows_is_kept(pair):
    with pytest.raises(QuestionRefused) as caught:
        make_guard(pair).query(lambda X, y: X.missing)
    assert isinstance(caught.value.__cause__, AttributeError)


def test_a_question_is_a_function(pair):
    with pytest.raises(QuestionRefused, match="a function of rows"):
        make_guard(pair).query(0.5)


def test_questions_cannot_change_the_rows(pair, noise):
    pandas = pytest.importorskip("pandas")
    train, holdout = (pandas.DataFrame({"a": part[0][:, 0] > 0}).astype(float) for part in pair)
    guard = ReusableHoldout(train, holdout, budget=5)

    def spoil(rows):
        answer = rows["a"].to_numpy().copy()
        rows["a"] = 0.0
        return answer

    assert guard.query(spoil) == guard.query(spoil) == train["a"].mean()


def test_copies_share_one_budget(pair):
    guard = make_guard(pair)
    assert copy.copy(guard) is copy.deepcopy([guard])[0] is guard


def test_threads_cannot_overspend(noise):
    guard = ReusableHoldout(np.zeros(50), np.ones(100), budget=7)
    refusals = []

    def work():
        for _ in range(5):
            try:
                guard.query(lambda rows: rows)
            except HoldoutSpent as error:
                refusals.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert guard.budget_left == 0
    assert sum(answer.source == "holdout" for answer in guard.log) == 7
    assert len(refusals) == 13


def test_a_question_may_ask_the_guard_itself(noise):
    guard = ReusableHoldout(np.zeros(50), np.zeros(100), budget=7)

    def nested(rows):
        if len(rows) == 100:
            guard.query(lambda rows: rows, name="inner")
        return rows

    guard.query(nested)
    assert [answer.name for answer in guard.log] == ["inner", "nested"]
