"""What every mechanism shares: the base classes, checks of values and answers, and the records of estimates.

An error never quotes a value: on the client it is the person's own, on the server somebody's answer.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass, field, replace
from fractions import Fraction
from statistics import NormalDist
from typing import Any, ClassVar, Final, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sfumato.core.errors import RecipeError, SchemaError
from sfumato.core.exact import ExactLike, format_exact, parse_whole
from sfumato.core.noise.entropy import BitSource, KeyStream
from sfumato.local.draws import log_above, parse_epsilon

Projection = Literal["none", "sum", "clip", "simplex", "bayes"]

MAX_CATEGORIES: Final = 1 << 24

_DEVIATIONS: Final = 8.0  # see `refuse_impossible`
_SLACK: Final = 22.0  # see `refuse_impossible`
_MOST_SUPPORTS: Final = 1 << 26  # answers times categories that the iterative Bayesian update holds
_MOST_UPDATES: Final = 200
_STILL: Final = 1e-5  # sum of the changes of all shares in one step, from which on they stay
_PIECE: Final = 1 << 16  # answers at a time, which stay in the caches


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Estimate:
    """Estimated shares of the categories among the people who answered.

    `epsilon` is the delivered one. `frequencies` are unbiased with `project="none"` and `"sum"`, may then
    be negative, and have the confidence intervals of `interval`. `standard_errors` measure the randomness of
    the answers; `population_errors` add that the people are a random sample of a larger population. Both
    belong to the unbiased estimate; a projection leaves them as they are.
    """

    mechanism: str
    epsilon: Fraction
    people: int
    frequencies: NDArray[np.float64]
    standard_errors: NDArray[np.float64]
    population_errors: NDArray[np.float64]
    project: Projection

    @property
    def counts(self) -> NDArray[np.float64]:
        """The estimated numbers of people, frequencies times people."""
        return self.frequencies * self.people

    def interval(self, *, confidence: float = 0.95, population: bool = False) -> NDArray[np.float64]:
        """Gives the normal confidence intervals around the frequencies, one row (low, high) per category."""
        errors = self.population_errors if population else self.standard_errors
        reach = normal_reach(confidence) * errors
        return np.column_stack([self.frequencies - reach, self.frequencies + reach])

    def to_record(self) -> dict[str, Any]:
        """Returns the estimate as a plain record for JSON."""
        return _to_plain(asdict(self) | {"counts": self.counts})


def _to_plain(record: dict[str, Any]) -> dict[str, Any]:
    for name, value in record.items():
        if isinstance(value, Fraction):
            record[name] = format_exact(value)
        elif isinstance(value, np.ndarray):
            record[name] = value.tolist()
    return record


@dataclass(frozen=True, slots=True, kw_only=True)
class MeanEstimate:
    """An unbiased mean of numbers clamped to [low, high], with its standard error.

    The error comes from the spread of the answers, so it covers the noise and the sampling of people.
    """

    mechanism: str
    epsilon: Fraction
    people: int
    low: Fraction
    high: Fraction
    mean: float
    standard_error: float

    def interval(self, *, confidence: float = 0.95) -> tuple[float, float]:
        """Returns the normal confidence interval (low, high) around the mean."""
        reach = normal_reach(confidence) * self.standard_error
        return self.mean - reach, self.mean + reach

    def to_record(self) -> dict[str, Any]:
        """Returns the estimate as a plain record for JSON."""
        return _to_plain(asdict(self))


@dataclass(frozen=True, slots=True, init=False)
class Mechanism(ABC):
    """A client's law of answers. The server has the same record, and nothing else is shared.

    `epsilon` is claimed, and `parameters` are the fields that travel with the answers. What follows from them
    is stated once, by `_state_law`: the `likelihood_ratio`, which is the largest ratio of the chances of an
    answer under two values, exactly, the size of one answer in `bits`, and chances of a subclass's own.
    """

    parameters: ClassVar[tuple[str, ...]]

    epsilon: Fraction
    likelihood_ratio: Fraction = field(repr=False)
    bits: int = field(repr=False)

    @property
    @abstractmethod
    def name(self) -> str:
        """The short name that travels with the answers."""

    @abstractmethod
    def _state_law(self) -> None:
        """Sets what follows from the parameters; refuses an epsilon that 64-bit words cannot deliver."""

    @property
    def exact_epsilon(self) -> Fraction:
        """The epsilon that the rounded law delivers, never above the claimed one."""
        return min(log_above(self.likelihood_ratio), self.epsilon)

    def to_record(self) -> dict[str, Any]:
        """Returns what the server must know, as a plain record."""
        record: dict[str, Any] = {"mechanism": self.name}
        for name in self.parameters:
            value = getattr(self, name)
            record[name] = format_exact(value) if isinstance(value, Fraction) else value
        return record

    def _set(self, **fields: object) -> None:
        for name, value in fields.items():
            object.__setattr__(self, name, value)


@dataclass(frozen=True, slots=True, init=False)
class FrequencyMechanism(Mechanism):
    """A mechanism that answers which of `categories`, with codes 0 to categories - 1, a person is in.

    An answer supports some of the categories: the person's own with chance `hit`, another with chance `miss`.
    """

    parameters: ClassVar[tuple[str, ...]] = ("epsilon", "categories")
    max_categories: ClassVar[int] = MAX_CATEGORIES

    categories: int
    hit: Fraction = field(repr=False)
    miss: Fraction = field(repr=False)

    def __init__(self, *, epsilon: ExactLike, categories: int = 2) -> None:
        self._set(
            epsilon=parse_epsilon(epsilon),
            categories=parse_whole(categories, name="categories", low=2, high=self.max_categories),
        )
        self._state_law()

    def variance(self, share: float) -> float:
        """Returns the variance of the estimate of a category with this share, times the number of people."""
        return float(self._variances(share))

    def _variances(self, shares: Any) -> Any:  # noqa: ANN401  # a number or an array of them
        hit, miss = self.hit, self.miss
        own, other = float(hit * (1 - hit)), float(miss * (1 - miss))
        return (shares * own + (1 - shares) * other) / float(hit - miss) ** 2

    def respond(self, values: ArrayLike, *, default: int | None = None) -> NDArray[Any]:
        """Returns one randomised answer per value, on the client.

        A value that is no category is refused, or taken for the category `default`.
        """
        return self._draw(check_codes(values, self.categories, default=default), KeyStream())

    @abstractmethod
    def _draw(self, codes: NDArray[Any], source: BitSource) -> NDArray[Any]:
        """Returns one answer per code, from the words of `source`."""

    def estimate(self, responses: ArrayLike, *, project: Projection = "none") -> Estimate:
        """Returns the shares of the categories, on the server, from the answers of everybody.

        They are the unbiased (C / n - miss) / (hit - miss), C of n answers supporting a category, and are
        then projected; see `project_shares`.
        """
        people, counts = self._count(responses)
        least, most = float(self.miss), float(self.hit)
        refuse_impossible(counts, people, least=least, most=most)
        shares = (counts / people - least) / float(self.hit - self.miss)
        found = self._estimate(shares, self._variances(np.clip(shares, 0.0, 1.0)), people, project)
        if project == "bayes":
            support, weights = self._support(responses)
            start = project_shares(shares, project="simplex")
            likeliest = update_shares(support, weights, ratio=float(self._odds), start=start)
            found = replace(found, frequencies=likeliest)
        return found

    @property
    def _odds(self) -> Fraction:
        """The ratio of the chances of an answer for a value that it supports and for one that it does not."""
        return self.likelihood_ratio

    def _support(self, responses: ArrayLike) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
        """Returns which categories the distinct answers support, and how often each was given."""
        people, counts = self._count(responses)
        bits = as_array(responses, "the responses")
        if bits.ndim == 2:
            return bits.astype(np.bool_), np.ones(people, np.int64)
        refuse_large(counts.size, counts.size)
        return np.eye(counts.size, dtype=np.bool_), counts

    def _count(self, responses: ArrayLike) -> tuple[int, NDArray[np.int64]]:
        """Returns the number of answers, and how many of them support each category: by default, name it."""
        answers = check_answers(responses, self.categories)
        return answers.size, count_answers(answers, self.categories)

    def _estimate(
        self, shares: NDArray[np.float64], variances: NDArray[np.float64], people: int, project: Projection
    ) -> Estimate:
        """Returns the record of unbiased shares whose mean per answer has these variances."""
        project = check_projection(project)
        inside = np.clip(shares, 0.0, 1.0)
        sampled = variances + inside * (1 - inside)
        return Estimate(
            mechanism=self.name,
            epsilon=self.exact_epsilon,
            people=people,
            frequencies=project_shares(shares, project=project),
            standard_errors=np.sqrt(variances / people),
            population_errors=np.sqrt(sampled / people),
            project=project,
        )


def check_projection(project: str) -> Projection:
    """Returns the name of a projection, or an error that lists them."""
    for known in get_args(Projection):
        if project == known:
            return known  # type: ignore[no-any-return]
    raise RecipeError(f"project must be one of {', '.join(get_args(Projection))}, got {str(project)[:40]!r}")


def project_shares(shares: ArrayLike, *, project: Projection = "simplex") -> NDArray[np.float64]:
    """Returns the shares made consistent: as they are, of sum 1, not negative, or both.

    `"sum"` adds the same number to each, which keeps them unbiased. `"clip"` sets negative ones to
    zero. `"simplex"` is the nearest vector of non-negative shares of sum 1; it is biased, but never
    farther from the truth.

    >>> project_shares([0.7, 0.5, -0.1]).tolist()
    [0.6, 0.4, 0.0]
    """
    given = np.asarray(shares, np.float64)
    if project in ("none", "bayes"):  # which is no function of the shares alone
        return given
    if project == "sum":
        return given + (1 - float(given.sum())) / given.size
    if project == "clip":
        shift = 0.0
    else:
        falling = np.sort(given)[::-1]
        shifts = (np.cumsum(falling) - 1) / np.arange(1, given.size + 1)
        shift = float(shifts[np.flatnonzero(falling > shifts)[-1]])
    positive: NDArray[np.float64] = np.maximum(given - shift, 0.0)
    return positive


def refuse_large(answers: int, categories: int) -> None:
    """Raises an error if so many answers are too many to be held beside each of the categories."""
    if answers * categories > _MOST_SUPPORTS:
        raise RecipeError(
            "project = 'bayes' compares every different answer with every category; these are too many, take "
            "'simplex', or answers of fewer people"
        )


def update_shares(
    support: NDArray[np.bool_], weights: NDArray[np.int64], *, ratio: float, start: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Returns the shares of greatest likelihood: the iterative Bayesian update (Agrawal and Aggarwal 2001).

    Row i of `support` says which categories an answer supports that `weights[i]` people gave: it is `ratio`
    times as likely for them as for others. Each step gives a category the mean of its posterior chances.
    """
    refuse_large(*support.shape)
    extra = ratio - 1
    parts = weights / weights.sum()
    seen = support.astype(np.float32)
    shares = (start + 1 / start.size) / (start + 1 / start.size).sum()  # a share of zero would stay so
    for _ in range(_MOST_UPDATES):
        told = parts / (1 + extra * (seen @ shares.astype(np.float32)).astype(np.float64))
        before, shares = (
            shares,
            shares * (told.sum() + extra * (told.astype(np.float32) @ seen).astype(np.float64)),
        )
        shares /= shares.sum()
        if float(np.abs(shares - before).sum()) < _STILL:
            break
    return np.asarray(shares, np.float64)


def normal_reach(confidence: float) -> float:
    """Returns how many standard errors a two-sided normal confidence interval reaches."""
    if not isinstance(confidence, int | float) or not 0 < confidence < 1:
        raise RecipeError(f"confidence must lie between 0 and 1, got {str(confidence)[:40]!r}")
    return NormalDist().inv_cdf((1 + confidence) / 2)


def check_codes(values: ArrayLike, categories: int, *, default: int | None) -> NDArray[Any]:
    """Returns the values as an array of codes 0 .. categories - 1, others replaced by `default` or refused.

    Its type is that of the values if it can hold every code, else 64-bit integers.

    >>> check_codes([0, 2, 7], 3, default=0).tolist()
    [0, 2, 0]
    """
    codes = as_array(values, "the values")
    if codes.size == 0 and codes.ndim == 1:
        return np.empty(0, codes.dtype if codes.dtype.kind in "iub" else np.int64)
    if codes.ndim != 1 or codes.dtype.kind not in "iub":
        raise SchemaError(
            "the values must be a one-dimensional array of whole numbers, the codes of the categories"
        )
    if default is not None:
        default = parse_whole(default, name="default", low=0, high=categories - 1)
    largest = 1 if codes.dtype.kind == "b" else int(np.iinfo(codes.dtype).max)
    wide = codes.dtype if largest >= categories - 1 else np.dtype(np.int64)
    if not _within(codes, categories):
        if default is None:
            raise SchemaError(
                f"a value lies outside the {categories} categories 0 to {categories - 1}; correct it, "
                "or state a default for such values"
            )
        inside = (codes >= 0) & (codes < categories)
        codes = np.where(inside, codes.astype(np.int64), default)
    return codes.astype(wide, copy=False)


def check_answers(responses: ArrayLike, bound: int, *, least: int = 0) -> NDArray[Any]:
    """Reads responses as whole numbers from `least`, below `bound`, or says what is wrong."""
    answers = as_array(responses, "the responses")
    if answers.ndim != 1:
        raise SchemaError(f"these responses have {answers.ndim} dimensions; the mechanism's have one")
    if answers.size == 0:
        raise SchemaError("there are no responses; nothing can be estimated")
    if answers.dtype.kind not in "iu" and not (answers.dtype.kind == "b" and bound == 2):
        raise SchemaError(f"responses of this mechanism are whole numbers, got an array of {answers.dtype}")
    if not _within(answers, bound, least=least):
        raise SchemaError(
            f"a response lies outside {least} to {bound - 1}: not an answer of this mechanism as declared"
        )
    return answers


def count_answers(answers: NDArray[Any], bound: int) -> NDArray[np.int64]:
    """Returns how often each whole number below `bound` occurs, for answers that were checked."""
    if answers.dtype.kind == "b":
        yes = int(np.count_nonzero(answers))
        return np.array([answers.size - yes, yes], np.int64)
    if answers.dtype == np.int64 or bound > _PIECE:
        return np.bincount(answers.astype(np.int64, copy=False), minlength=bound)
    total = np.zeros(bound, np.int64)
    for start in range(0, answers.size, _PIECE):  # widened piece by piece, within the caches
        total += np.bincount(answers[start : start + _PIECE].astype(np.int64), minlength=bound)
    return total


def refuse_impossible(counts: NDArray[Any], people: int, *, least: float, most: float) -> None:
    """Raises an error if a count is one that the mechanism does not give.

    Whatever the true values, each count is a sum of `people` independent events with probabilities
    from `least` to `most`. By Bernstein's inequality it leaves that range by 8 standard deviations
    and 22 with a chance below e^-32.
    """

    def room(share: float) -> float:
        return _DEVIATIONS * math.sqrt(max(0.0, people * share * (1 - share))) + _SLACK

    if counts.min() < people * least - room(least) or counts.max() > people * most + room(most):
        raise SchemaError(
            "these responses were not given by this mechanism with these parameters: "
            "an answer is far rarer or more frequent than it allows, whatever the truth"
        )


def as_array(values: ArrayLike, what: str) -> NDArray[Any]:
    """Returns `values` as an array, or an error of ours; numpy's own could quote them."""
    try:
        return np.asarray(values)
    except (ValueError, TypeError, OverflowError):
        raise SchemaError(f"{what} are not an array of numbers") from None


def _within(codes: NDArray[Any], bound: int, *, least: int = 0) -> bool:
    return codes.size == 0 or (int(codes.min()) >= least and int(codes.max()) < bound)
