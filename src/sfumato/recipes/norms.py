"""Contribution norms of a recipe: stated for all marginals or by number of columns, or chosen privately."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Literal

from sfumato.accounting import mu_to_pure
from sfumato.accounting.constants import sqrt_up
from sfumato.errors import RecipeError
from sfumato.exact import format_exact, parse_positive, round_up
from sfumato.measurement import NormChoice

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sfumato.inference import Domain

Columns = tuple[str, ...]
Norms = Fraction | Mapping[int, Fraction] | Literal["auto"] | None

SHARE = Fraction(1, 50)
"""The part of the squared Gaussian privacy that choosing norms may cost."""

QUANTILE = Fraction(19, 20)

_PLACES = 3


def parse_norms(value: object, *, where: str) -> Norms:
    """The norms that a recipe file states.

    >>> parse_norms({"1": 20, "2": "12.5"}, where="norms")
    {1: Fraction(20, 1), 2: Fraction(25, 2)}
    """
    if value is None:
        return None
    if value == "auto":
        return "auto"
    if isinstance(value, Mapping):
        norms = {}
        for size, norm in value.items():
            if not str(size).isascii() or not str(size).isdigit() or int(size) < 1:
                raise RecipeError(f"{where} by number of columns needs keys such as 1, 2, 3, got {size!r}")
            norms[int(size)] = parse_positive(norm, name=f"{where} of {size} columns")
        return dict(sorted(norms.items()))
    try:
        return parse_positive(value, name=where)
    except RecipeError:
        raise RecipeError(
            f"{where} must be a number above zero, numbers by number of columns, or 'auto'"
        ) from None


def norms_record(norms: Norms) -> Any:  # noqa: ANN401 - as plain as what is recorded
    """`norms` in plain text, to be read back by `parse_norms`."""
    if isinstance(norms, Mapping):
        return {str(size): format_exact(norm) for size, norm in norms.items()}
    return format_exact(norms) if isinstance(norms, Fraction) else norms


def stated_norm(norms: Norms, size: int) -> Fraction | None:
    """The norm stated for marginals of `size` columns; None if max_records bounds them."""
    if isinstance(norms, Mapping):
        return norms.get(size)
    return norms if isinstance(norms, Fraction) else None


def norm_choices(
    domain: Domain, marginals: Sequence[Columns], *, most: int, squared: Fraction, label: str
) -> tuple[NormChoice, ...]:
    """One choice for every number of columns, all together within `squared` of Gaussian privacy.

    Each looks at the marginal with the fewest cells of its size, where contributions are most concentrated.
    """
    sizes = sorted({len(columns) for columns in marginals})
    # The exponential mechanism is as private as a pure one with half its epsilon (docs/proofs/choice.md).
    epsilon = 2 * mu_to_pure(squared / len(sizes))
    if epsilon <= 0:
        raise RecipeError("epsilon is too small to choose norms privately; state them as numbers")
    return tuple(
        NormChoice(
            name=f"norm of {size} column{'s' if size > 1 else ''}{label}",
            columns=min(
                (columns for columns in marginals if len(columns) == size),
                key=lambda columns: (domain.cells(columns), columns),
            ),
            norms=_candidates(most),
            quantile=QUANTILE,
            epsilon=epsilon,
        )
        for size in sizes
    )


def mix_norms(share: Fraction, fine: Fraction, coarse: Sequence[Fraction]) -> Fraction:
    """The norm of answers of which about `share` of all records is counted cell by cell, the rest in sums.

    A sum is one of the smaller marginals, so the rest has about the mean of their squared norms.

    >>> mix_norms(Fraction(1), Fraction(3), [Fraction(5)])
    Fraction(3, 1)
    """
    squared = share * fine**2
    if coarse:
        squared += (1 - share) * sum(norm**2 for norm in coarse) / len(coarse)
    return round_up(sqrt_up(squared), places=_PLACES)


def _candidates(most: int) -> tuple[Fraction, ...]:
    """Norms from 1 to `most`, each about sqrt(2) times the one before."""
    norms = [Fraction(1)]
    square = 2
    while square < most**2:
        norms.append(round_up(sqrt_up(Fraction(square)), places=_PLACES))
        square *= 2
    return (*norms, Fraction(most)) if most > 1 else tuple(norms)
