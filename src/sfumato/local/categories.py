"""Which category a person is in, answered with noise.

Randomised response, two coins, unary encoding, Hadamard response and local hashing.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sfumato.core.errors import RecipeError, SchemaError
from sfumato.core.exact import ExactLike, format_exact, parse_exact, parse_whole
from sfumato.local.draws import (
    CHUNK,
    WORDS,
    chunks,
    draw_events,
    draw_fair,
    draw_uniform,
    lie_threshold,
    log_above,
    parse_epsilon,
    weigh_threshold,
)
from sfumato.local.mechanism import (
    Estimate,
    FrequencyMechanism,
    Projection,
    as_array,
    check_answers,
    count_answers,
    refuse_impossible,
    refuse_large,
)

if TYPE_CHECKING:
    from sfumato.core.noise.entropy import BitSource

Flips = Literal["optimized", "symmetric"]

_LARGEST_PRIME: Final = 251  # the largest of one byte
_MAX_CELLS: Final = 1 << 25


@dataclass(frozen=True, slots=True, init=False)
class RandomizedResponse(FrequencyMechanism):
    """k-ary randomised response (Warner 1965; Kairouz, Bonawitz, Ramage 2016).

    One word of 64 bits makes one answer, in the type of the values: the words below (k - 1) Q are cut into
    k - 1 equal shares of Q, the `lie`, one for each other category, and the rest tell the truth.

    Privacy: (2^64 - (k - 1) Q) / Q <= e^epsilon for any two values (docs/proofs/local.md).

    >>> mechanism = RandomizedResponse(epsilon=1, categories=4)
    >>> answers = mechanism.respond([0, 1, 2, 3])
    >>> answers.shape, mechanism.exact_epsilon <= 1
    ((4,), True)
    """

    name: ClassVar[str] = "krr"

    lie: int = field(repr=False)

    def _state_law(self) -> None:
        others = self.categories - 1
        lie = lie_threshold(self.epsilon, others)
        miss = Fraction(lie, WORDS)
        hit = 1 - others * miss
        self._set(lie=lie, hit=hit, miss=miss, likelihood_ratio=hit / miss, bits=others.bit_length())

    def _draw(self, codes: NDArray[Any], source: BitSource) -> NDArray[Any]:
        if self.categories == 2:
            lies = draw_events(self.lie, codes.size, source)
            flipped = np.empty_like(codes)
            for part in chunks(codes.size):
                np.bitwise_xor(codes[part], lies[part].astype(codes.dtype), out=flipped[part])
            return flipped
        answers = codes.copy()
        share, lying = np.uint64(self.lie), np.uint64((self.categories - 1) * self.lie)
        room = np.empty(CHUNK, np.uint64)
        for part in chunks(codes.size):
            piece = answers[part]
            words = room[: piece.size]
            source.fill(words)
            places = np.flatnonzero(words < lying)
            moved = piece[places].astype(np.int64)
            moved += (words[places] // share).view(np.int64)
            moved += 1
            moved -= self.categories * (moved >= self.categories)
            piece[places] = moved
        return answers


@dataclass(frozen=True, slots=True, init=False)
class CoinResponse(FrequencyMechanism):
    """Two coins: with chance `truth` the true answer, otherwise yes with chance `yes`.

    Answers are 0 or 1, in the type of the values: a yes is answered with no at the chance `false_no`, a no
    with yes at the chance `false_yes`. The epsilon that is claimed is the logarithm of the coins' ratio,
    rounded up at the 30th decimal.

    Privacy: ln of the larger of (1 - lie) / false yes and the same for no; with two fair coins the
    ratio is 3 and epsilon is ln 3, exactly. Lies are rounded up to whole 2^-64.

    >>> CoinResponse().likelihood_ratio
    Fraction(3, 1)
    """

    name: ClassVar[str] = "coin"
    parameters: ClassVar[tuple[str, ...]] = ("truth", "yes", "categories")

    truth: Fraction
    yes: Fraction
    false_no: Fraction = field(repr=False)
    false_yes: Fraction = field(repr=False)

    def __init__(self, *, truth: ExactLike = Fraction(1, 2), yes: ExactLike = Fraction(1, 2)) -> None:
        for name, given in (("truth", truth), ("yes", yes)):
            chance = parse_exact(given, name=name)
            if not Fraction(1, 1 << 40) <= chance <= 1 - Fraction(1, 1 << 40):
                raise RecipeError(
                    f"{name} must be a chance above 0 and below 1, got {format_exact(chance)[:40]}"
                )
            self._set(**{name: chance})
        self._set(categories=2)
        self._state_law()

    def _state_law(self) -> None:
        lies = (1 - self.truth) * (1 - self.yes), (1 - self.truth) * self.yes
        false_no, false_yes = (Fraction(-int(-lie * WORDS // 1), WORDS) for lie in lies)
        self._set(false_no=false_no, false_yes=false_yes, hit=1 - false_no, miss=false_yes, bits=1)
        self._set(
            epsilon=log_above(_compare_lies(*lies)), likelihood_ratio=_compare_lies(false_no, false_yes)
        )

    def _draw(self, codes: NDArray[Any], source: BitSource) -> NDArray[Any]:
        # Both lies are drawn for everybody, so that neither time nor words depend on the value.
        from_yes = draw_events(int(self.false_no * WORDS), codes.size, source)
        from_no = draw_events(int(self.false_yes * WORDS), codes.size, source)
        truth = codes.astype(np.bool_)
        answers: NDArray[Any] = ((truth & ~from_yes) | (~truth & from_no)).astype(codes.dtype)
        return answers

    def estimate(self, responses: ArrayLike, *, project: Projection = "none") -> Estimate:
        """Returns the shares of no and yes, from the answers of everybody."""
        people, counts = self._count(responses)
        hit, miss = self.hit, self.miss
        refuse_impossible(counts[1:], people, least=float(miss), most=float(hit))
        # `hit` and `miss` are those of yes, so the share of no is what is left.
        share = float((Fraction(int(counts[1]), people) - miss) / (hit - miss))
        variance = self.variance(min(max(share, 0.0), 1.0))
        project = (
            "simplex" if project == "bayes" else project
        )  # the likeliest share of two is the nearest one
        return self._estimate(np.array([1 - share, share]), np.array([variance] * 2), people, project)


@dataclass(frozen=True, slots=True, init=False)
class UnaryEncoding(FrequencyMechanism):
    """Optimised (OUE; Wang et al. 2017) or symmetric unary encoding, the latter being basic one-time RAPPOR.

    An answer is a row of bits, one for each category. Optimised: the true bit is a fair coin, every other
    bit is on with chance 1 / (e^epsilon + 1). Symmetric: every bit is flipped with chance
    1 / (e^(epsilon / 2) + 1). Of 2^64 words the `lie` turns a bit on that should be off.

    Privacy: two values differ in two bits; their ratios multiply to e^epsilon at most
    (docs/proofs/local.md).

    >>> mechanism = UnaryEncoding(epsilon=1, categories=3)
    >>> mechanism.respond([0, 2]).shape
    (2, 3)
    """

    max_categories: ClassVar[int] = 1 << 16

    flips: Flips
    lie: int = field(repr=False)

    def __init__(self, *, epsilon: ExactLike, categories: int = 2, flips: Flips = "optimized") -> None:
        if flips not in ("optimized", "symmetric"):
            raise RecipeError(f"flips must be 'optimized' or 'symmetric', got {str(flips)[:40]!r}")
        self._set(flips=flips)
        FrequencyMechanism.__init__(self, epsilon=epsilon, categories=categories)

    @property
    def name(self) -> str:
        """`oue` or `sue`."""
        return "oue" if self.flips == "optimized" else "sue"

    def _state_law(self) -> None:
        optimized = self.flips == "optimized"
        lie = lie_threshold(self.epsilon if optimized else self.epsilon / 2, 1)
        miss = Fraction(lie, WORDS)
        hit = Fraction(1, 2) if optimized else 1 - miss
        ratio = hit * (1 - miss) / (miss * (1 - hit))
        self._set(lie=lie, hit=hit, miss=miss, likelihood_ratio=ratio, bits=self.categories)

    def _draw(self, codes: NDArray[Any], source: BitSource) -> NDArray[np.bool_]:
        people = codes.size
        flat = draw_events(self.lie, people * self.categories, source)
        places = np.arange(people) * self.categories + codes.astype(np.int64)
        if self.flips == "optimized":
            flat[places] = draw_fair(people, source)
        else:
            flat[places] ^= True
        return flat.reshape(people, self.categories)

    def _count(self, responses: ArrayLike) -> tuple[int, NDArray[np.int64]]:
        bits = check_bits(responses, self.categories)
        return len(bits), count_bits(bits)


@dataclass(frozen=True, slots=True, init=False)
class SubsetSelection(FrequencyMechanism):
    """Subset selection (Wang et al. 2016; Ye and Barg 2018): an answer is a set of `subset_size` categories.

    It is a row of bits, so many of them on. With chance T / 2^64, T being `inside`, the person's own category
    is among them; the others are drawn with equal chance from all others. Without `subset_size` it is the
    one of least variance, near k / (e^epsilon + 1).

    Privacy: of the sets with a category and those without, each has the same chance; the ratio of these is
    e^epsilon at most (docs/proofs/local.md).

    >>> mechanism = SubsetSelection(epsilon=1, categories=8)
    >>> mechanism.subset_size, mechanism.respond([0, 7]).sum(axis=1).tolist()
    (2, [2, 2])
    """

    name: ClassVar[str] = "subset"
    parameters: ClassVar[tuple[str, ...]] = ("epsilon", "categories", "subset_size")
    max_categories: ClassVar[int] = 1 << 12

    subset_size: int
    inside: int = field(repr=False)

    def __init__(self, *, epsilon: ExactLike, categories: int = 2, subset_size: int | None = None) -> None:
        claimed = parse_epsilon(epsilon)
        count = parse_whole(categories, name="categories", low=2, high=self.max_categories)
        if subset_size is not None:
            sizes = [parse_whole(subset_size, name="subset_size", high=count - 1)]
        else:
            near = math.floor(count / (math.exp(min(float(claimed), 700)) + 1))
            sizes = [each for each in (near, near + 1) if 1 <= each < count]

        def spread(size: int) -> float:
            self._set(subset_size=size)
            FrequencyMechanism.__init__(self, epsilon=claimed, categories=count)
            return self.variance(1 / count)

        spread(min(sizes, key=spread))

    def _state_law(self) -> None:
        size, others = self.subset_size, self.categories - 1
        inside = weigh_threshold(self.epsilon, size, self.categories - size)
        hit = Fraction(inside, WORDS)
        miss = (hit * (size - 1) + (1 - hit) * size) / others
        ratio = hit * (self.categories - size) / ((1 - hit) * size)
        if ratio <= 1:
            raise RecipeError("epsilon is too small for sets of categories in 64 bits")
        self._set(inside=inside, hit=hit, miss=miss, likelihood_ratio=ratio, bits=self.categories)

    def _draw(self, codes: NDArray[Any], source: BitSource) -> NDArray[np.bool_]:
        chosen = draw_events(self.inside, codes.size, source)
        bits = np.zeros((codes.size, self.categories), np.bool_)
        for truly in (True, False):
            rows = np.flatnonzero(chosen == truly)
            own = codes[rows].astype(np.int64)
            number, others = self.subset_size - truly, self.categories - 1
            bits[rows, own] = truly
            # Floyd's way: every set of so many others has the same chance.
            for last in range(others - number, others):
                drawn = draw_uniform(last + 1, rows.size, source).view(np.int64)
                drawn += drawn >= own
                bits[rows, np.where(bits[rows, drawn], last + (last >= own), drawn)] = True
        return bits

    def _count(self, responses: ArrayLike) -> tuple[int, NDArray[np.int64]]:
        bits = check_bits(responses, self.categories)
        if (np.count_nonzero(bits, axis=1) != self.subset_size).any():
            raise SchemaError(
                f"responses of this mechanism are sets of {self.subset_size}; another is among these"
            )
        return len(bits), count_bits(bits)


def check_bits(responses: ArrayLike, width: int) -> NDArray[np.bool_]:
    """Returns the responses as rows of `width` bits, or an error that says what is wrong with them."""
    bits = as_array(responses, "the responses")
    if bits.ndim != 2 or bits.shape[1] != width:
        raise SchemaError(f"responses of this mechanism are rows of {width} bits; these are not")
    if len(bits) == 0:
        raise SchemaError("there are no responses; nothing can be estimated")
    if bits.dtype.kind == "b":
        return bits
    if bits.dtype.kind not in "iu" or int(bits.min()) < 0 or int(bits.max()) > 1:
        raise SchemaError("responses of this mechanism are bits; another value or type is among these")
    return bits.astype(np.bool_)


def count_bits(bits: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Returns how many rows have each bit on."""
    rows, width = bits.shape
    total = np.zeros(width, np.int64)
    narrow = bits.view(np.uint8)
    for start in range(0, rows, 255):  # sums of up to 255 bits fit a byte
        total += np.add.reduce(narrow[start : start + 255], axis=0, dtype=np.uint8)
    return total


@dataclass(frozen=True, slots=True, init=False)
class HashedResponse(FrequencyMechanism):
    """A random public member of a hash family, and the value's hash under it by randomised response.

    An answer is one whole number, the member times `hash_size` plus the hash. Two different categories
    collide under exactly one of the `members` in `hash_size`, so that estimates are unbiased without any
    assumption about a hash. The randomised response over hashes is `inner`.

    Privacy: the member does not depend on the value; given it, this is randomised response over `hash_size`
    answers (docs/proofs/local.md).
    """

    hash_size: int
    members: int = field(repr=False)
    inner: RandomizedResponse = field(repr=False)
    lie: int = field(repr=False)

    @abstractmethod
    def hash(self, members: NDArray[np.int64], codes: NDArray[np.int64]) -> NDArray[np.int64]:
        """Returns the hash of each code under its member of the family."""

    def _support(self, responses: ArrayLike) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
        answers = check_answers(responses, self.members * self.hash_size)
        given, counts = np.unique(answers.astype(np.int64), return_counts=True)
        refuse_large(given.size, self.categories)
        members, hashes = np.divmod(given, self.hash_size)
        codes = np.arange(self.categories)
        rows = [self.hash(member, codes) == hashed for member, hashed in zip(members, hashes, strict=True)]
        return np.array(rows), counts

    def _state_law(self) -> None:
        inner = RandomizedResponse(epsilon=self.epsilon, categories=self.hash_size)
        self._set(inner=inner, lie=inner.lie, hit=inner.hit, miss=Fraction(1, self.hash_size))
        bits = (self.members * self.hash_size - 1).bit_length()
        self._set(likelihood_ratio=inner.likelihood_ratio, bits=bits)

    def _draw(self, codes: NDArray[Any], source: BitSource) -> NDArray[np.int64]:
        answers = np.empty(codes.size, np.int64)
        inner, size, family = self.inner, self.hash_size, self.members
        for part in chunks(codes.size):
            piece = codes[part].astype(np.int64)
            members = draw_uniform(family, piece.size, source).view(np.int64)
            answers[part] = members * size + inner._draw(self.hash(members, piece), source)
        return answers


@dataclass(frozen=True, slots=True, init=False)
class HadamardResponse(HashedResponse):
    """One-bit Hadamard response (Bassily, Smith 2015; Apple 2017; Acharya, Sun, Zhang 2019).

    The member is a row of a Hadamard matrix, and the hash one bit: the parity of row and value in common (the
    sign of the matrix there), flipped with chance 1 / (e^epsilon + 1). As only the bit depends on the value,
    rows may also be assigned by the server, and the client then sends one bit.

    Privacy: that of `HashedResponse`.

    >>> mechanism = HadamardResponse(epsilon=1, categories=100)
    >>> mechanism.members, mechanism.respond([5, 99]).shape
    (128, (2,))
    """

    name: ClassVar[str] = "hadamard"

    def _state_law(self) -> None:
        # The order of the matrix is the least power of two that has a column for each category.
        self._set(hash_size=2, members=1 << (self.categories - 1).bit_length())
        HashedResponse._state_law(self)

    def hash(self, members: NDArray[np.int64], codes: NDArray[np.int64]) -> NDArray[np.int64]:
        """Returns the parity of the bits that row and code have in common."""
        parity: NDArray[np.int64] = (np.bitwise_count(members & codes) & 1).astype(np.int64)
        return parity

    def _count(self, responses: ArrayLike) -> tuple[int, NDArray[np.int64]]:
        answers = check_answers(responses, 2 * self.members)
        counts = count_answers(answers, 2 * self.members)
        sums = transform_walsh(counts[::2] - counts[1::2])
        return answers.size, (answers.size + sums[: self.categories]) // 2


def transform_walsh(values: NDArray[np.int64]) -> NDArray[np.int64]:
    """Returns for all v the sums over j of values[j] times the sign of (row j, column v), as integers."""
    sums = values.astype(np.int64)
    half = 1
    while half < sums.size:
        pairs = sums.reshape(-1, 2, half)
        sums = np.stack([pairs[:, 0] + pairs[:, 1], pairs[:, 0] - pairs[:, 1]], axis=1).reshape(-1)
        half *= 2
    return sums


@dataclass(frozen=True, slots=True, init=False)
class LocalHashing(HashedResponse):
    """Optimal local hashing (OLH; Wang et al. 2017) with an exactly universal family.

    Without `hash_size` it is the prime of least variance, near e^epsilon + 1. For a prime g, a category is
    written with m digits in base g. A member has m coefficients in 0 .. g - 1, and its hash is the sum of
    coefficients times digits, modulo g. The sum is linear, so a server need not hash each category for each
    answer: it counts (member, answer) pairs and reads all categories off one Fourier transform.

    Privacy: that of `HashedResponse`.

    >>> mechanism = LocalHashing(epsilon=1, categories=100)
    >>> mechanism.hash_size, mechanism.digits, mechanism.respond([5, 99]).shape
    (3, 5, (2,))
    """

    name: ClassVar[str] = "olh"
    parameters: ClassVar[tuple[str, ...]] = ("epsilon", "categories", "hash_size")

    digits: int = field(repr=False)

    def __init__(self, *, epsilon: ExactLike, categories: int = 2, hash_size: int | None = None) -> None:
        claimed = parse_epsilon(epsilon)
        count = parse_whole(categories, name="categories", low=2, high=self.max_categories)
        size = _best_size(claimed, count) if hash_size is None else _check_prime(hash_size, count)
        self._set(hash_size=size)
        FrequencyMechanism.__init__(self, epsilon=claimed, categories=count)

    def _state_law(self) -> None:
        digits = _count_digits(self.hash_size, self.categories)
        self._set(digits=digits, members=int(self.hash_size**digits))
        HashedResponse._state_law(self)

    def hash(self, members: NDArray[np.int64], codes: NDArray[np.int64]) -> NDArray[np.int64]:
        """Returns the hash of each code under its member of the family."""
        size = np.int64(self.hash_size)
        total = np.zeros(codes.shape, np.int64)
        for _ in range(self.digits):
            members, coefficient = np.divmod(members, size)
            codes, digit = np.divmod(codes, size)
            total += coefficient * digit
        return total % size

    def _count(self, responses: ArrayLike) -> tuple[int, NDArray[np.int64]]:
        cells = self.members * self.hash_size
        answers = check_answers(responses, cells)
        table = count_answers(answers, cells).reshape(*[self.hash_size] * self.digits, self.hash_size)
        return answers.size, _count_supports(table)[: self.categories]


def _count_supports(table: NDArray[np.int64]) -> NDArray[np.int64]:
    """For each category the number of answers whose hash is that of the category.

    `table` counts answers by the member's digits (the highest first) and the hash y. The support of v is
    the sum of table[a, y] over all a, y with a.v = y mod g. As 1[a.v = y] is the mean over t of the root of
    unity to the power t (a.v - y), it is a mean over t of Fourier transforms at the places t v. Counts are
    whole numbers, so rounding the transform gives them exactly.
    """
    size, digits = table.shape[-1], table.ndim - 1
    spectrum = np.fft.fft(table, axis=-1)
    total = np.zeros(table.shape[:-1])
    for power in range(1, size // 2 + 1):
        moved = np.fft.ifftn(spectrum[..., power], norm="forward").real
        places = np.arange(size) * power % size
        # A power and its negative give conjugates; for g = 2 they are the same one.
        total += (1 if 2 * power == size else 2) * moved[np.ix_(*[places] * digits)]
    total += float(table.sum())
    total /= size
    supports = np.rint(total)
    if np.abs(total - supports).max() > 0.25:
        raise RecipeError(
            "there are too many answers for one exact transform; estimate them in several parts"
        )
    return supports.astype(np.int64).ravel()


def _count_digits(size: int, categories: int) -> int:
    digits, reach = 1, size
    while reach < categories:
        digits, reach = digits + 1, reach * size
    return digits


@lru_cache(maxsize=256)
def _best_size(epsilon: Fraction, categories: int) -> int:
    """Returns the prime of least variance among those whose table of answers stays small."""

    def variance(size: int) -> Fraction:
        hit = 1 - Fraction((size - 1) * lie_threshold(epsilon, size - 1), WORDS)
        miss = Fraction(1, size)
        return miss * (1 - miss) / (hit - miss) ** 2

    allowed = [size for size in _primes() if _cells(size, categories) <= _MAX_CELLS]
    # A hash that is wider than the categories gains nothing over their own codes.
    useful = [size for at, size in enumerate(allowed) if at == 0 or allowed[at - 1] < categories]
    return min(useful, key=variance)


def _primes() -> list[int]:
    return [n for n in range(2, _LARGEST_PRIME + 1) if all(n % d for d in range(2, int(n**0.5) + 1))]


def _cells(size: int, categories: int) -> int:
    return int(size ** (_count_digits(size, categories) + 1))


def _check_prime(size: object, categories: int) -> int:
    number = parse_whole(size, name="hash_size", low=2, high=_LARGEST_PRIME)
    if number not in _primes():
        raise RecipeError(f"hash_size must be a prime up to {_LARGEST_PRIME}, got {number}")
    if _cells(number, categories) > _MAX_CELLS:
        raise RecipeError(
            f"hash_size {number} needs too large a table for {categories} categories; leave it out"
        )
    return number


def coin_response(
    values: ArrayLike, *, truth: ExactLike = Fraction(1, 2), yes: ExactLike = Fraction(1, 2)
) -> NDArray[Any]:
    """Returns one answer per person: flip a coin, answer truly on heads, else say what a second coin says.

    Privacy: with fair coins epsilon is ln 3 for one answer.

    >>> coin_response([True, False, True]).dtype
    dtype('bool')
    """
    return CoinResponse(truth=truth, yes=yes).respond(values)


def estimate_coin(
    responses: ArrayLike,
    *,
    truth: ExactLike = Fraction(1, 2),
    yes: ExactLike = Fraction(1, 2),
    project: Projection = "none",
) -> Estimate:
    """Returns the shares of no and yes behind coin responses; with fair coins that of yes is 2 p - 1/2.

    >>> estimate_coin([1] * 40 + [0] * 60).frequencies.round(9).tolist()
    [0.7, 0.3]
    """
    return CoinResponse(truth=truth, yes=yes).estimate(responses, project=project)


def posterior(prior: ExactLike, *, flip: ExactLike = Fraction(1, 4), answer: bool = True) -> Fraction:
    """Returns the chance that the truth is yes, given an answer that is a lie with chance `flip`.

    `prior` is what was believed before. Two fair coins lie with chance 1/4. By Bayes, after a yes it is
    (1 - flip) prior / ((1 - flip) prior + flip (1 - prior)).

    >>> posterior("1/2"), posterior("1/10"), posterior("1/10", answer=False)
    (Fraction(3, 4), Fraction(1, 4), Fraction(1, 28))
    """
    before = parse_exact(prior, name="prior")
    lie = parse_exact(flip, name="flip")
    for name, chance in (("prior", before), ("flip", lie)):
        if not 0 <= chance <= 1:
            raise RecipeError(f"{name} must be a chance from 0 to 1, got {format_exact(chance)[:40]}")
    if_yes = 1 - lie if answer else lie
    seen = if_yes * before + (1 - if_yes) * (1 - before)
    if seen == 0:
        raise RecipeError("such an answer cannot come up with this prior and flip")
    return if_yes * before / seen


def _compare_lies(false_no: Fraction, false_yes: Fraction) -> Fraction:
    """Returns the largest ratio of the chances of an answer to a question with yes or no."""
    return max((1 - false_no) / false_yes, (1 - false_yes) / false_no)
