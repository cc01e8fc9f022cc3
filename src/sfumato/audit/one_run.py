"""Layer 4: one run with many canaries, each in the table by the throw of a coin, and guesses who is in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sfumato.audit.bounds import one_run_epsilon
from sfumato.audit.callables import check_claim
from sfumato.audit.result import Audit, Finding
from sfumato.errors import AuditError
from sfumato.noise.entropy import KeyStream

_SHARES = (1, 4, 16)


def audit_one_run(
    run: Callable[[NDArray[np.bool_]], Any],
    *,
    canaries: int,
    epsilon: float,
    delta: float = 0.0,
    confidence: float = 0.95,
) -> Audit:
    """What a single run with `canaries` says about a claim, for mechanisms too expensive to run often.

    `run` gets a truth value for every canary, puts those that are True into a table, runs the mechanism
    once, and returns a score for every canary: the larger, the likelier it is in.

    >>> import numpy as np
    >>> audit_one_run(lambda inside: inside + 0.0, canaries=100, epsilon=1.0).verdict
    'VIOLATED'
    """
    check_claim(epsilon=epsilon, delta=delta, confidence=confidence)
    if canaries < 1:
        raise AuditError("an audit by one run needs canaries")
    inside = throw_coins(canaries)
    scores = np.asarray(run(inside.copy()), np.float64)
    if scores.shape != (canaries,):
        raise AuditError(f"run must return {canaries} scores, one for every canary")
    bound, text = guess_members(scores, inside, delta=delta, miss=1 - confidence)
    finding = Finding(layer=4, text=text, violated=bound > epsilon, epsilon=bound)
    return Audit(
        mechanism=getattr(run, "__name__", "run"),
        epsilon=float(epsilon),
        delta=float(delta),
        findings=(finding,),
        confidence=confidence,
        runs=1,
    )


def throw_coins(count: int) -> NDArray[np.bool_]:
    """So many fair coins, from the operating system."""
    words = np.empty(count, np.uint64)
    KeyStream().fill(words)
    return np.asarray(words & np.uint64(1), np.bool_)


def guess_members(
    scores: NDArray[np.float64],
    inside: NDArray[np.bool_],
    *,
    delta: float,
    miss: float,
    signed: bool = False,
) -> tuple[float, str]:
    """The bound on epsilon that guesses by `scores` prove, and how they went.

    The highest scores are guessed to be in, the lowest to be out, the others are not guessed. If scores
    are `signed`, those above zero are guessed to be in, and those nearest to zero are not guessed. How
    many are guessed is tried in three ways, each at a third of `miss`.
    """
    scores = np.nan_to_num(scores)
    if not signed:
        # The rank of a score, from the middle.
        ranks = np.argsort(np.argsort(scores, kind="stable"), kind="stable")
        scores = ranks.astype(np.float64) - (scores.size - 1) / 2
    order = np.argsort(-np.abs(scores), kind="stable")
    right = (scores > 0) == inside
    best, text = -1.0, ""
    for share in _SHARES:
        guesses = max(1, scores.size // share)
        correct = int(right[order[:guesses]].sum())
        bound = one_run_epsilon(correct, guesses, canaries=scores.size, delta=delta, miss=miss / len(_SHARES))
        if bound > best:
            best = bound
            text = f"one run, {scores.size:,} canaries: {correct:,} of {guesses:,} guesses are right"
    return max(best, 0.0), text
