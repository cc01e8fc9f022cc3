"""Privacy accounting: what mechanisms cost, what a budget admits, and the ledger that enforces it.

Noise for a target is found here; what it costs, the core derives from the noise. There `cost` describes one
use of a mechanism, `curves` converts between currencies, `sampling` composes noise on samples, `filter` and
`budget` decide whether a charge fits, `parallel` adds up over disjoint parts of the people, and `ledger`
keeps all of it, sealed in a `chain`, in a `store`.
"""

from __future__ import annotations

import base64
import math
import os
import re
import tempfile
from dataclasses import asdict, dataclass
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING

from sfumato.core.cost.budget import (
    Amount,
    Budget,
    Spent,
    add_costs,
    admits,
    describe_charge,
    describe_costs,
    left,
    read_epsilon,
)
from sfumato.core.cost.cost import Cost, CostKind
from sfumato.core.cost.curves import (
    MARGIN,
    SMOOTHING,
    discrete_laplace_rho,
    exponential_mu,
    exponential_rho,
    histogram_sensitivity,
    largest_mu,
    mu_to_delta,
    mu_to_epsilon,
    pure_to_mu,
    pure_to_rho,
    rho_to_epsilon,
    rising_root,
    selection_threshold,
    sqrt_up,
)
from sfumato.core.cost.parallel import Allowance
from sfumato.core.errors import LedgerError, RecipeError, VerificationFailed
from sfumato.core.exact import ExactLike, parse_exact, parse_positive, parse_whole, round_up
from sfumato.core.law import SHAPES, Kind
from sfumato.core.ledger.chain import Entry, OpeningEntry
from sfumato.core.ledger.ledger import Ledger as CoreLedger
from sfumato.core.ledger.report import BudgetReport
from sfumato.core.ledger.store import find_store, locate_ledger

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

_FINE = 10**15

__all__ = [
    "Allowance",
    "Amount",
    "Anchor",
    "Budget",
    "BudgetReport",
    "Cost",
    "CostKind",
    "Entry",
    "Ledger",
    "Spent",
    "add_costs",
    "admits",
    "describe_charge",
    "describe_costs",
    "discrete_gaussian_sigma",
    "discrete_laplace_rho",
    "exponential_mu",
    "exponential_rho",
    "find_store",
    "gaussian_delta",
    "gaussian_epsilon",
    "gaussian_sigma",
    "histogram_sensitivity",
    "left",
    "locate_ledger",
    "max_mu",
    "mu_to_delta",
    "mu_to_epsilon",
    "mu_to_pure",
    "parse_anchor",
    "pure_to_mu",
    "pure_to_rho",
    "read_epsilon",
    "rho_to_delta",
    "rho_to_epsilon",
    "sampled_delta",
    "selection_threshold",
    "sqrt_up",
]


def gaussian_delta(
    *, epsilon: ExactLike, sigma: ExactLike, sensitivity: ExactLike = 1, count: int = 1
) -> float:
    """The delta of `count` Gaussian mechanisms at `epsilon`, never below the true value.

    *Privacy:* exact for continuous noise (Balle and Wang 2018; Dong, Roth and Su 2022); the
    sensitivity is in the L2 norm. For the discrete noise see `discrete_gaussian_sigma`.

    >>> round(gaussian_delta(epsilon=1, sigma=5739.36, sensitivity=150, count=66), 10)
    8.48e-08
    """
    return mu_to_delta(_mu(sigma, sensitivity, count), epsilon)


def gaussian_epsilon(
    *, delta: ExactLike, sigma: ExactLike, sensitivity: ExactLike = 1, count: int = 1
) -> float:
    """The least epsilon of `count` Gaussian mechanisms at `delta`, rounded up.

    >>> round(gaussian_epsilon(delta=2.5e-5, sigma=5739.36, sensitivity=150, count=66), 4)
    0.7247
    """
    return mu_to_epsilon(_mu(sigma, sensitivity, count), delta)


def sampled_delta(*, epsilon: ExactLike, sigma: ExactLike, sampling: ExactLike, count: int = 1) -> float:
    """The delta at `epsilon` of `count` Gaussian mechanisms, each on a Poisson sample; rounded up.

    Privacy: one individual is added or removed, and moves the sum of a sample by at most 1 in L2; sigma is
    that of continuous noise, or sqrt(variance - 4) of discrete noise in grid steps.

    >>> sampled_delta(epsilon=3, sigma=5, sampling="0.5", count=60) < 6.2e-5
    True
    """
    from sfumato.core.cost.sampling import SampledRun  # loads numpy, which plans do without

    rate, deviation = parse_positive(sampling, name="sampling"), float(parse_positive(sigma, name="sigma"))
    return SampledRun(sigma=deviation, sampling=Fraction(rate), count=count).delta(epsilon)


def gaussian_sigma(
    *, epsilon: ExactLike, delta: ExactLike, sensitivity: ExactLike = 1, count: int = 1
) -> float:
    """The least standard deviation for (epsilon, delta) after `count` mechanisms, rounded up.

    >>> round(gaussian_sigma(epsilon=1, delta=2.5e-5, sensitivity=150, count=66), 2)
    4290.24
    """
    total = math.sqrt(parse_whole(count, name="count")) * float(
        parse_positive(sensitivity, name="sensitivity")
    )
    return total / max_mu(epsilon, delta) * (1 + 1e-15)


def discrete_gaussian_sigma(
    *, epsilon: ExactLike, delta: ExactLike, sensitivity: ExactLike = 1, count: int = 1
) -> float:
    """The sigma, in grid steps, at which discrete noise has what `gaussian_sigma` promises.

    *Privacy:* sqrt(sigma^2 + 4) for the continuous sigma, for vectors of any length and adaptive
    repetition: noise of that width is a randomised rounding of the continuous noise, up to a
    factor far inside the guard. A ledger that counts Gaussian privacy admits it.

    >>> round(discrete_gaussian_sigma(epsilon=10, delta=2.5e-5, sensitivity=200, count=66), 2)
    784.12
    """
    sigma = gaussian_sigma(epsilon=epsilon, delta=delta, sensitivity=sensitivity, count=count)
    return math.hypot(sigma, math.sqrt(SMOOTHING)) * (1 + 1e-15)


def calibrate_scale(
    kind: Kind, *, sensitivity: Fraction, epsilon: Fraction, delta: Fraction, count: int = 1
) -> Fraction:
    """Returns the scale at which `count` noisy answers of this sensitivity cost epsilon and delta together.

    >>> calibrate_scale("laplace", sensitivity=Fraction(2), epsilon=Fraction(1), delta=Fraction(0), count=3)
    Fraction(6, 1)
    """
    if SHAPES[kind].norm == "L1":
        return sensitivity * count / epsilon
    sigma = discrete_gaussian_sigma(epsilon=epsilon, delta=delta, sensitivity=sensitivity, count=count)
    return round_up(sigma, places=6)


def mu_to_pure(mu_squared: ExactLike) -> Fraction:
    """The largest pure epsilon, rounded down, that is mu-Gaussian-private for this mu squared.

    >>> round(float(mu_to_pure(pure_to_mu(Fraction(1)) ** 2)), 9)
    1.0
    """
    limit = parse_exact(mu_squared, name="mu_squared")
    # The inverse of pure_to_mu, erf(t) = tanh(epsilon / 2); near 1 only erfc still has digits.
    t = math.sqrt(max(0.0, float(limit)) / 8)
    if t < 1:
        guess = 2 * math.atanh(math.erf(t))
    elif t < 26:
        guess = math.log(2 - math.erfc(t)) - math.log(math.erfc(t))
    else:
        guess = t * t
    units = math.floor(Fraction(guess) * _FINE)
    step = 1
    # The guess is a float: only the exact conversion, asked again, says that the result is on the safe side.
    while units > 0 and pure_to_mu(Fraction(units, _FINE)) ** 2 > limit:
        units, step = units - step, 2 * step
    return Fraction(max(units, 0), _FINE)


def max_mu(epsilon: ExactLike, delta: ExactLike) -> float:
    """The largest mu, a hair less, whose delta at `epsilon` is at most `delta`.

    >>> mu_to_epsilon(max_mu(1, 1e-6), 1e-6) <= 1
    True
    """
    low = largest_mu(epsilon, delta)
    if low < 1e-12:
        raise RecipeError("epsilon and delta are too small for Gaussian noise to be calibrated")
    return low * (1 - 1e-12)


def rho_to_delta(rho: ExactLike, epsilon: ExactLike) -> float:
    """The delta that rho-zCDP gives at `epsilon`, rounded up.

    The best order solves (2x + 1) rho - ln(1 + 1/x) = epsilon.

    >>> round(rho_to_delta(0.1, 2), 9)
    4.325e-06
    """
    rate = float(parse_positive(rho, name="rho"))
    target = float(parse_exact(epsilon, name="epsilon"))
    if target < 0:
        raise RecipeError("epsilon must not be negative")
    x = rising_root(
        lambda x: (2 * x + 1) * rate - target - math.log1p(1 / x),
        1e-18,
        (target + 1) / rate + 10,
    )
    terms = (x * (1 + x) * rate, -x * target, -x * math.log1p(1 / x), -math.log1p(x))
    log = sum(terms) + MARGIN * (1 + sum(map(abs, terms)))
    return math.nextafter(math.exp(min(0.0, log)), math.inf)


def _mu(sigma: ExactLike, sensitivity: ExactLike, count: int) -> float:
    ratio = parse_positive(sensitivity, name="sensitivity") / parse_positive(sigma, name="sigma")
    return math.sqrt(parse_whole(count, name="count")) * float(ratio)


KEY_VARIABLE = "SFUMATO_LEDGER_KEY"
_ANCHOR = "sfumato-anchor-1"
_FORM = re.compile(rf"{_ANCHOR}:([1-9][0-9]{{0,17}}):([0-9a-f]{{64}}):([0-9a-f]{{64}}):([0-9a-f]{{128}})")


@dataclass(frozen=True, slots=True, kw_only=True)
class Anchor:
    """That entry `sequence` of a ledger has the hash `head`, signed by the owner of `public_key`."""

    sequence: int
    head: str
    public_key: str
    signature: str

    def __str__(self) -> str:
        return f"{_ANCHOR}:{self.sequence}:{self.head}:{self.public_key}:{self.signature}"

    def to_record(self) -> dict[str, object]:
        """The anchor as a plain record."""
        return {**asdict(self), "anchor": str(self)}


def sign_anchor(entry: Entry, key: Ed25519PrivateKey) -> Anchor:
    """The anchor of `entry`, signed with `key`."""
    public = public_half(key)
    signature = key.sign(_message(entry.sequence, entry.hash, public)).hex()
    return Anchor(sequence=entry.sequence, head=entry.hash, public_key=public, signature=signature)


def parse_anchor(text: str) -> Anchor:
    """The anchor that a line spells, its signature checked; anyone can do so."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    found = _FORM.fullmatch(text.strip())
    if found is None:
        raise VerificationFailed(
            f"that is no anchor; one is printed by `sfumato budget --anchor` and begins with {_ANCHOR}:"
        )
    sequence, head, public, signature = found.groups()
    anchor = Anchor(sequence=int(sequence), head=head, public_key=public, signature=signature)
    try:
        key = Ed25519PublicKey.from_public_bytes(bytes.fromhex(public))
        key.verify(bytes.fromhex(signature), _message(anchor.sequence, head, public))
    except (InvalidSignature, ValueError):
        raise VerificationFailed(
            "the signature of the anchor is wrong: it was changed, or never signed"
        ) from None
    return anchor


def load_key(place: Path | str, *, folder: Path | None = None, create: bool) -> Ed25519PrivateKey | None:
    """The key of the ledger at `place`, made if it may be; None if there is no place for it, or no key."""
    path = find_key(place, folder=folder)
    return None if path is None else read_key(path, create=create)


def find_key(place: Path | str, *, folder: Path | None = None) -> Path | None:
    """Where the key of the ledger at `place` is kept: `SFUMATO_LEDGER_KEY`, or a file beside it.

    Beside a ledger in a database means `ledger.key` in the project's `folder`; without one, nowhere.
    """
    if named := os.environ.get(KEY_VARIABLE):
        return Path(named)
    if isinstance(place, Path):
        return place.with_name(place.name + ".key")
    return None if folder is None else folder / "ledger.key"


def read_key(path: Path, *, create: bool) -> Ed25519PrivateKey | None:
    """The key in the file at `path`, made if it may be; None if it is not there and may not."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    try:
        if create and not path.exists():
            _write_key(path)
        text = path.read_text(encoding="ascii", errors="replace") if path.exists() else None
    except OSError as error:
        raise LedgerError(f"the key {path.name!r} cannot be read or made: {error.strerror}") from None
    if text is None:
        return None
    try:
        return Ed25519PrivateKey.from_private_bytes(base64.b64decode(text.strip(), validate=True))
    except ValueError:
        raise LedgerError(f"{path.name!r} is not the key of a ledger; restore it from a backup") from None


def public_half(key: Ed25519PrivateKey) -> str:
    """The public key that belongs to `key`, in hexadecimal."""
    return key.public_key().public_bytes_raw().hex()


def _write_key(path: Path) -> None:
    """A new key, whole from its first instant; one that another process has just made is left."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    key = Ed25519PrivateKey.generate().private_bytes_raw()
    descriptor, draft = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".new", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(base64.b64encode(key) + b"\n")
            file.flush()
            os.fsync(file.fileno())
        os.link(draft, path)
    except FileExistsError:
        pass
    finally:
        Path(draft).unlink(missing_ok=True)


def _message(sequence: int, head: str, public: str) -> bytes:
    return f"{_ANCHOR}\n{sequence}\n{head}\n{public}\n".encode()


class Ledger(CoreLedger):
    """The core's ledger with a key of its own, by which anchors of it are signed and checked.

    An anchor is the hash of one entry, signed. Kept elsewhere, it shows later whether the end of the chain
    was cut off or the whole was written anew, which the chain alone cannot.
    """

    __slots__ = ()

    def sign_anchor(self, *, folder: Path | None = None) -> Anchor:
        """The last entry, signed with the project's key, which is made if the ledger has none yet.

        Kept elsewhere, the line shows later whether entries were cut off or the chain was written anew.
        `folder` is that of the project, where the key is if the ledger is in a database.
        """
        entries = self.entries()
        recorded = find_public_key(entries)
        key = load_key(self.path, folder=folder, create=recorded is None)
        if key is None or recorded not in (None, public_half(key)):
            raise LedgerError(
                f"the key that ledger {self.name!r} was opened with is missing; restore the file "
                f"beside it from a backup, or name it in {KEY_VARIABLE}"
            )
        return sign_anchor(entries[-1], key)

    def check_anchor(self, text: str, *, folder: Path | None = None) -> Anchor:
        """The anchor in `text`, if this ledger holds its entry and the project's key signed it.

        Raises VerificationFailed if not. Without the key, the public one in the first entry is enough.
        """
        anchor, name = parse_anchor(text), self.name
        self.verify()
        entries = self.entries()
        public = find_public_key(entries)
        if public is None:
            key = load_key(self.path, folder=folder, create=False)
            if key is None:
                raise VerificationFailed(f"ledger {name!r} has no key, so none of its anchors can be signed")
            public = public_half(key)
        if anchor.public_key != public:
            raise VerificationFailed(f"the anchor is signed by another key than that of ledger {name!r}")
        if anchor.sequence > len(entries) or entries[anchor.sequence - 1].hash != anchor.head:
            raise VerificationFailed(
                f"ledger {name!r} does not hold entry {anchor.sequence} as the anchor has it: an older copy "
                "was put back, its end was cut off, or it was written anew"
            )
        return anchor

    def _make_key(self) -> str | None:
        # Where no ledger can be made, that is what the error is about, and no key is left there.
        place = self.path
        possible = isinstance(place, Path) and place.parent.is_dir() and os.access(place.parent, os.W_OK)
        key = load_key(place, create=possible)
        return None if key is None else public_half(key)


def find_public_key(entries: tuple[Entry, ...]) -> str | None:
    """The public key of anchors that the first entry of a ledger names, if it does."""
    return entries[0].public_key if isinstance(entries[0], OpeningEntry) else None
