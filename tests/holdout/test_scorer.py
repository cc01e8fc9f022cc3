"""Scores for model selection: folds against the holdout, areas under curves, and what is refused."""

import copy
import pickle
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import sfumato as sf
from helpers.cases import read_cases
from sfumato.holdout import HoldoutPlan, HoldoutSpent, QuestionRefused, ReusableHoldout
from sfumato.holdout.guard import _ask_about_area, class_counts, count_wins
from sfumato.holdout.questions import GRID


class Stump:
    """An estimator in the manner of scikit-learn: predicts 1 above a cut of one feature."""

    def __init__(self, feature=0, cut=0.0):
        self.feature = feature
        self.cut = cut

    def get_params(self, deep=True):
        return {"feature": self.feature, "cut": self.cut}

    def set_params(self, **params):
        for name, value in params.items():
            setattr(self, name, value)
        return self

    def fit(self, X, y):
        self.classes_ = np.unique(y)
        self.sign_ = 1 if np.mean((X[:, self.feature] > self.cut) == y) >= 0.5 else -1
        return self

    def predict(self, X):
        return (self.sign_ * (X[:, self.feature] - self.cut) > 0).astype(int)

    def predict_proba(self, X):
        high = 1 / (1 + np.exp(-self.sign_ * X[:, self.feature]))
        return np.column_stack([1 - high, high])


class Ranker(Stump):
    def decision_function(self, X):
        return self.sign_ * X[:, self.feature]


def folds(rows, count):
    places = np.arange(rows) % count
    for each in range(count):
        yield np.flatnonzero(places != each), np.flatnonzero(places == each)


def search(candidates, X, y, scorer, count=4):
    """The best candidate by the mean score over folds, as a grid search finds it."""
    scores = []
    for params in candidates:
        parts = [
            scorer(Stump().set_params(**params).fit(X[fit], y[fit]), X[test], y[test])
            for fit, test in folds(len(X), count)
        ]
        scores.append(np.mean(parts))
    return candidates[int(np.argmax(scores))], scores


@pytest.fixture
def signal():
    """((X, y), (X, y)) with a signal in the second of three features."""
    generator = np.random.default_rng(8)

    def make(rows):
        X = generator.normal(size=(rows, 3))
        return X, (X[:, 1] + generator.normal(size=rows) > 0).astype(int)

    return make(800), make(800)


def test_a_search_finds_the_signal_and_counts_its_questions(signal, seeded_noise):
    guard = ReusableHoldout(*signal, budget=10, questions=100)
    X, y = signal[0]
    best, scores = search([{"feature": each} for each in range(3)], X, y, guard.scorer("accuracy"))
    assert best == {"feature": 1}
    assert scores[1] == pytest.approx(0.75, abs=0.06)
    assert guard.questions_left == 88
    assert {answer.name for answer in guard.log} == {"accuracy"}


def test_the_score_is_that_of_the_rows_given_if_the_holdout_agrees(signal, noise):
    guard = ReusableHoldout(*signal, budget=10)
    X, y = signal[0]
    model = Stump(1).fit(X, y)
    assert guard.scorer()(model, X[:200], y[:200]) == np.mean(model.predict(X[:200]) == y[:200])


def test_the_score_of_an_overfitted_model_is_that_of_the_holdout(signal, noise):
    guard = ReusableHoldout(*signal, budget=10)
    X, y = signal[0]

    class Memory:
        def predict(self, rows):
            known = {row.tobytes(): label for row, label in zip(X, y, strict=True)}
            return np.array([known.get(row.tobytes(), 0) for row in rows])

    assert guard.scorer("accuracy", name="memory")(Memory(), X, y) == np.mean(signal[1][1] == 0)
    assert (guard.log[0].name, guard.log[0].source) == ("memory", "holdout")


def test_scores_stop_with_the_budget(signal):
    guard = ReusableHoldout(*signal, budget=1, questions=3)
    X, y = signal[0]
    scorer = guard.scorer("accuracy")
    with pytest.raises(HoldoutSpent):
        search([{"feature": each} for each in range(3)], X, y, scorer)


@pytest.mark.parametrize("rows", ["together", "single"])
@pytest.mark.parametrize("model", [Stump, Ranker])
def test_the_area_under_the_curve(signal, noise, rows, model):
    plan = HoldoutPlan(rows=800, questions=9, budget=9, threshold=0, sigma="0.01")
    guard = ReusableHoldout(*signal, plan=plan, rows=rows)
    X, y = signal[1]
    fitted = model(1).fit(*signal[0])
    pairs = [(fitted.sign_ * (a - b) > 0) + 0.5 * (a == b) for a, b in product(X[y == 1, 1], X[y == 0, 1])]
    assert guard.scorer("roc_auc")(fitted, *signal[0]) == pytest.approx(np.mean(pairs), abs=1e-6)
    assert guard.log[0].source == "holdout"


@given(st.lists(st.tuples(st.integers(0, 5), st.booleans()), min_size=1, max_size=20))
def test_wins_are_those_of_all_pairs(rows):
    scores = np.array([score for score, _ in rows], dtype=float)
    positive = np.array([label for _, label in rows])
    expected = sum(
        2 * (a > b) + (a == b) for a, b in product(scores[positive].tolist(), scores[~positive].tolist())
    )
    assert count_wins(scores, positive) == expected


@given(st.integers(1, 12), st.integers(1, 12), st.integers(0, 2**32 - 1))
def test_no_row_moves_the_weighted_area_by_more_than_one_row(positives, negatives, seed):
    generator = np.random.default_rng(seed)
    labels = np.array([1] * positives + [0] * negatives)
    rows = sf_rows(labels)
    question = _ask_about_area(None, class_counts(sf_rows(np.array([0, 1])), rows), name="auc")
    scores = generator.integers(0, 4, labels.size).astype(float)
    worst = 0
    for place in range(labels.size):
        for new in (-1.0, 0.0, 1.5, 9.0):
            moved = scores.copy()
            moved[place] = new
            worst = max(worst, abs(question.private(scores, rows) - question.private(moved, rows)))
    assert worst <= GRID
    assert question.weight == Fraction(min(positives, negatives), labels.size)


def sf_rows(labels):
    from sfumato.holdout.questions import RowSet

    return RowSet((np.zeros((len(labels), 1)), labels), name="rows")


@pytest.mark.parametrize(("train", "holdout", "told"), read_cases(__file__, "test_areas_need_two_classes"))
def test_areas_need_two_classes(train, holdout, told):
    train, holdout = np.tile(train, 20), np.tile(holdout, 20)
    guard = ReusableHoldout(
        (np.zeros((train.size, 1)), train), (np.zeros((holdout.size, 1)), holdout), budget=2
    )
    with pytest.raises(sf.SchemaError, match=told):
        guard.scorer("roc_auc")


def test_an_area_of_one_class_is_refused_before_it_costs(signal):
    guard = ReusableHoldout(*signal, budget=2)
    X, y = signal[0]
    with pytest.raises(QuestionRefused, match="both classes in the rows given"):
        guard.scorer("roc_auc")(Stump().fit(X, y), X[y == 1], y[y == 1])
    assert guard.questions_left == 800


def test_a_metric_of_ones_own(signal, noise):
    guard = ReusableHoldout(*signal, budget=2)
    X, y = signal[0]

    def brier(labels, chances):
        return 1 - (labels - chances[:, 1]) ** 2

    model = Stump(1).fit(X, y)
    expected = np.mean(1 - (y - model.predict_proba(X)[:, 1]) ** 2)
    assert guard.scorer(brier, response="predict_proba")(model, X, y) == pytest.approx(expected, abs=1e-6)
    assert guard.log[0].name == "brier"


def test_a_metric_that_returns_one_number_is_refused(signal):
    guard = ReusableHoldout(*signal, budget=2)
    X, y = signal[0]
    with pytest.raises(QuestionRefused, match="one value per row"):
        guard.scorer(lambda labels, guesses: np.mean(labels == guesses))(Stump().fit(X, y), X, y)


@pytest.mark.parametrize("metric", ["f1", "neg_log_loss", "r2", "", None, 3])
def test_scores_whose_dependence_on_a_row_is_not_known_are_refused(signal, metric):
    with pytest.raises(sf.RecipeError, match=r"one value in \[0, 1\] per row"):
        ReusableHoldout(*signal, budget=2).scorer(metric)


def test_other_faults_of_scorers(signal):
    guard = ReusableHoldout(*signal, budget=2)
    X, y = signal[0]
    with pytest.raises(sf.RecipeError, match="response must be"):
        guard.scorer("accuracy", response="transform")
    with pytest.raises(sf.SchemaError, match="must have the same columns"):
        guard.scorer("accuracy")(Stump().fit(X, y), X[:, :2], y)
    with pytest.raises(QuestionRefused, match="raised AttributeError"):
        guard.scorer("accuracy")(object(), X, y)
    with pytest.raises(QuestionRefused, match=r"pairs \(X, y\)"):
        ReusableHoldout(np.zeros(9), np.zeros(30), budget=2).scorer()
    assert guard.questions_left == 800


def test_an_estimator_that_mixes_rows_is_refused(signal):
    guard = ReusableHoldout(*signal, budget=2)

    class Centred(Stump):
        def predict(self, X):
            return (X[:, 1] > np.median(X[:, 1])).astype(int)

    with pytest.raises(QuestionRefused, match="depend on that row alone"):
        guard.scorer("accuracy")(Centred(), *signal[0])


def test_copies_of_a_scorer_are_itself_and_it_cannot_be_pickled(signal):
    scorer = ReusableHoldout(*signal, budget=2).scorer("roc_auc")
    assert copy.copy(scorer) is copy.deepcopy({"scoring": scorer})["scoring"] is scorer
    with pytest.raises(TypeError, match="n_jobs=1"):
        pickle.dumps(scorer)
    assert repr(scorer) == "Scorer('roc_auc', of a guarded holdout)"


def test_searches_of_scikit_learn(signal, seeded_noise):
    pytest.importorskip("sklearn", reason="scikit-learn is not installed")
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import GridSearchCV, cross_val_score

    X, y = signal[0]
    guard = ReusableHoldout(*signal, budget=50, questions=200)
    for metric in ("accuracy", "roc_auc"):
        scorer = guard.scorer(metric)
        found = GridSearchCV(
            LogisticRegression(), {"C": [0.01, 1]}, scoring=scorer, cv=4, error_score="raise"
        )
        assert found.fit(X, y).best_score_ > 0.7
        assert cross_val_score(LogisticRegression(), X, y, scoring=scorer, cv=4).min() > 0.6
    assert len(guard.log) == 2 * (8 + 4)
