"""Nothing true about holdout rows gets out: not by text, pickles, tracebacks, refusals or mixed rows."""

import copy
import io
import pickle
import sys
import traceback
import warnings
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfumato.holdout import HoldoutPlan, Leaderboard, QuestionRefused, ReusableHoldout, questions
from sfumato.holdout import guard as guard_module
from sfumato.holdout.questions import GRID, RowSet, Sealed, ask_about_mean, measure_sealed

TRUE_VALUE = 0.7364513
TRUE_TEXT = "0.73645"
TRAIN_ROWS, HOLDOUT_ROWS = 40, 100


def secret_guard(**options):
    """A guard whose holdout, and every statistic of it, is one number that must appear nowhere."""
    return ReusableHoldout(
        np.zeros(TRAIN_ROWS), np.full(HOLDOUT_ROWS, TRUE_VALUE), **{"budget": 20} | options
    )


def on_holdout(rows):
    return rows.shape[0] == HOLDOUT_ROWS or bool((rows == TRUE_VALUE).any())


def shown(error):
    """Everything a tool could print of an exception: all frames with variables, causes, contexts."""
    texts = ["".join(traceback.TracebackException.from_exception(error, capture_locals=True).format())]
    waiting = [error]
    while waiting:
        each = waiting.pop()
        texts += [repr(each), repr(each.args), repr(vars(each))]
        frame = each.__traceback__
        while frame is not None:
            texts.append(repr(frame.tb_frame.f_locals))
            frame = frame.tb_next
        waiting += [other for other in (each.__cause__, each.__context__) if other is not None]
    return "\n".join(texts)


def true_steps_in(text):
    """Whether the value of a row or the sum of all rows is there, as whole steps."""
    step = round(TRUE_VALUE * GRID)
    return str(step) in text or str(step * HOLDOUT_ROWS) in text


def raise_with_rows(rows):
    if on_holdout(rows):
        message = f"secret {rows}"
        raise ValueError(message)
    return rows


def stop_the_process(rows):
    if on_holdout(rows):
        sys.exit(f"secret {rows}")
    return rows


def run_out_of_memory(rows):
    if on_holdout(rows):
        raise MemoryError(rows)
    return rows


FAULTS = {
    "raises": raise_with_rows,
    "exits": stop_the_process,
    "memory": run_out_of_memory,
    "nan": lambda rows: np.where(on_holdout(rows), np.nan, rows),
    "range": lambda rows: np.where(on_holdout(rows), 2 * rows, rows),
    "negative": lambda rows: np.where(on_holdout(rows), -rows, rows),
    "length": lambda rows: rows[:-1] if on_holdout(rows) else rows,
    "shape": lambda rows: rows[:, None] if on_holdout(rows) else rows,
    "scalar": lambda rows: rows.mean() if on_holdout(rows) else rows,
    "text": lambda rows: rows.astype(str) if on_holdout(rows) else rows,
}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("timeout", [None, 60])
def test_faults_on_holdout_rows_are_all_refused_alike(fault, timeout):
    guard = secret_guard(timeout=timeout)
    with pytest.raises(QuestionRefused) as caught:
        guard.query(FAULTS[fault], name="odd")
    assert TRUE_TEXT not in shown(caught.value)
    assert caught.value.__cause__ is caught.value.__context__ is None
    assert str(caught.value).startswith("the question could not be answered on the holdout")
    other = secret_guard()
    with pytest.raises(QuestionRefused) as again:
        other.query(FAULTS["raises"], name="odd")
    assert str(again.value) == str(caught.value)


def test_a_refusal_because_of_holdout_rows_is_counted_logged_and_ends_the_privacy_statement():
    guard = secret_guard()
    guard.privacy()
    with pytest.raises(QuestionRefused):
        guard.query(raise_with_rows)
    (answer,) = guard.log
    assert (answer.value, answer.source) == (None, "refused")
    assert (guard.budget_left, guard.questions_left) == (19, 99)
    with pytest.raises(QuestionRefused, match="no privacy can be stated"):
        guard.privacy()


@pytest.mark.parametrize("fault", FAULTS)
def test_one_by_one_a_row_that_fails_counts_as_zero(noise, fault):
    guard = secret_guard(rows="single")
    assert guard.query(FAULTS[fault]) == 0
    assert guard.log[0].source == "train"
    guard.privacy()


def test_warnings_about_holdout_rows_are_silenced(noise):
    def warn(rows):
        if on_holdout(rows):
            warnings.warn(f"secret {rows}", stacklevel=1)
        return rows

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert secret_guard().query(warn) == pytest.approx(TRUE_VALUE, abs=1e-6)
    assert caught == []


def test_an_interrupt_goes_on_without_its_frames():
    def interrupt(rows):
        if on_holdout(rows):
            raise KeyboardInterrupt(str(rows))
        return rows

    guard = secret_guard()
    with pytest.raises(KeyboardInterrupt) as caught:
        guard.query(interrupt)
    assert TRUE_TEXT not in shown(caught.value)
    assert guard.questions_left == 99


def test_a_noise_source_that_fails_shows_nothing(monkeypatch):
    guard = secret_guard()

    def fail(**options):
        message = "no entropy"
        raise OSError(message)

    monkeypatch.setattr(guard_module, "discrete_gaussian", fail)
    with pytest.raises(OSError, match="no entropy") as caught:
        guard.query(lambda rows: rows)
    assert TRUE_TEXT not in shown(caught.value)
    assert not true_steps_in(shown(caught.value))


def test_the_search_for_true_values_finds_them_where_they_are():
    with pytest.raises(ValueError, match="secret") as caught:
        raise_with_rows(np.full(HOLDOUT_ROWS, TRUE_VALUE))
    assert TRUE_TEXT in shown(caught.value)


class Clock:
    """Stands for threads and their time-outs: a call that hangs never runs, all others run at once."""

    def __init__(self, hangs):
        self.hangs = hangs
        self.current_thread = self.main_thread = lambda: None

    def Thread(self, *, target, name, daemon):
        assert daemon

        def start():
            if not self.hangs():
                target()

        return SimpleNamespace(start=start, join=lambda timeout: None)


def test_a_question_that_hangs_is_refused(monkeypatch):
    guard = secret_guard(timeout=3)
    monkeypatch.setattr(questions, "threading", Clock(lambda: guard.questions_left < 100))
    with pytest.raises(QuestionRefused, match="could not be answered on the holdout") as caught:
        guard.query(lambda rows: rows)
    assert TRUE_TEXT not in shown(caught.value)
    assert guard.budget_left == 19


def test_a_question_that_hangs_on_training_rows_is_told_so(monkeypatch):
    guard = secret_guard(timeout="2.5")
    monkeypatch.setattr(questions, "threading", Clock(lambda: True))
    with pytest.raises(QuestionRefused, match=r"did not return within 2\.5 seconds"):
        guard.query(lambda rows: rows)
    assert guard.questions_left == 100


def everything(holders):
    """All objects inside guards, through the slots of this package's classes."""
    seen, waiting = [], [*holders]
    while waiting:
        each = waiting.pop()
        if any(each is other for other in seen):
            continue
        seen.append(each)
        if type(each).__module__.startswith("sfumato"):
            waiting += [getattr(each, slot) for slot in type(each).__slots__ if hasattr(each, slot)]
    return seen


def test_no_part_of_a_guard_prints_or_pickles_its_rows():
    guard = secret_guard()
    board = Leaderboard(np.full(HOLDOUT_ROWS, TRUE_VALUE))
    board.submit(np.zeros(HOLDOUT_ROWS))
    guard.query(lambda rows: rows * 0)
    parts = [each for each in everything((guard, board)) if type(each).__module__.startswith("sfumato")]
    names = {type(each).__name__ for each in parts}
    assert {"ReusableHoldout", "Leaderboard", "RowSet", "Thresholdout", "Sealed"} <= names
    for each in (*parts, guard.log, board.log):
        assert TRUE_TEXT not in repr(each) + str(each) + f"{each}"
    for each in (guard, board, guard.scorer, guard._holdout, guard._mechanism, Sealed(1)):
        for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
            with pytest.raises(TypeError, match="cannot be pickled") as caught:
                pickle.dump(each, io.BytesIO(), protocol)
            assert TRUE_TEXT not in shown(caught.value)
    assert not hasattr(guard, "__dict__")
    assert np.float64(TRUE_VALUE).tobytes() not in pickle.dumps((guard.log, guard.plan))
    with pytest.raises(TypeError, match="cannot be pickled"):
        copy.deepcopy(guard._holdout)


MIXERS = {
    "maximum": lambda rows: np.full(len(rows), rows.max()),
    "mean": lambda rows: np.full(len(rows), rows.mean()),
    "rank": lambda rows: np.argsort(np.argsort(rows)) / max(1, len(rows)),
    "neighbour": lambda rows: np.roll(rows, 1),
    "place": lambda rows: np.arange(len(rows)) / max(1, len(rows)),
    "size": lambda rows: np.full(len(rows), 1 / len(rows)),
}


@pytest.mark.parametrize("mixer", MIXERS)
@pytest.mark.parametrize("rows", [2, 50, 5000])
def test_functions_that_mix_rows_are_refused(mixer, rows):
    train = np.random.default_rng(1).random(rows)
    guard = ReusableHoldout(train, np.linspace(0, 1, 100), budget=5)
    with pytest.raises(QuestionRefused, match="depend on that row alone"):
        guard.query(MIXERS[mixer])
    assert guard.questions_left == 100


def hide_mixing(rows):
    """An adversary that behaves on few rows and on training rows, and mixes rows on the whole holdout."""
    return np.full(len(rows), rows.max()) if len(rows) == HOLDOUT_ROWS else rows * 0


def steps_of(function, rows, *, single):
    question = ask_about_mean(function, name="q")
    return measure_sealed(question, RowSet(rows, name="rows"), single=single, timeout=None).open()


ADVERSARIES = [
    hide_mixing,
    *MIXERS.values(),
    raise_with_rows,
    lambda rows: rows * 9,
    lambda rows: rows * np.nan,
]


@pytest.mark.parametrize("place", range(len(ADVERSARIES)))
@given(
    place_moved=st.integers(0, HOLDOUT_ROWS - 1),
    new=st.floats(allow_nan=True),
    rows=st.integers(0, 2**32 - 1),
)
def test_one_by_one_no_function_moves_a_sum_by_more_than_one_row(place, place_moved, new, rows):
    here = np.random.default_rng(rows).random(HOLDOUT_ROWS)
    there = here.copy()
    there[place_moved] = new
    moved = [steps_of(ADVERSARIES[place], each, single=True) for each in (here, there)]
    assert abs(moved[0] - moved[1]) <= GRID
    assert all(0 <= each <= GRID * HOLDOUT_ROWS for each in moved)


def test_the_same_adversary_moves_a_sum_by_all_rows_when_they_are_given_together():
    here = np.zeros(HOLDOUT_ROWS)
    there = here.copy()
    there[7] = 1
    moved = [steps_of(hide_mixing, each, single=False) for each in (here, there)]
    assert abs(moved[0] - moved[1]) == GRID * HOLDOUT_ROWS


def test_the_source_of_an_answer_is_all_that_the_log_adds(noise):
    plan = HoldoutPlan(rows=100, questions=5, budget=5, threshold="0.5", sigma="0.1")
    guard = ReusableHoldout(np.zeros(40), np.full(100, TRUE_VALUE / 2), plan=plan)
    guard.query(lambda rows: rows)
    assert guard.log[0].value == 0
    assert set(guard.log[0].__slots__) == {"number", "name", "value", "source"}
