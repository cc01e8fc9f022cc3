"""Tables with so many records for their few columns that every pair of columns is worth its noise.

There all pairs are measured at once, without choosing, and what is left goes to triples that are chosen. Both
are measured in differences, because single columns and then pairs are known (`contrasts`).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Generator, Mapping
from fractions import Fraction
from itertools import combinations

from sfumato.core.questions.choices import Candidate, Choice, Chosen
from sfumato.core.questions.measurement import Answer, Ask, Request
from sfumato.inference.domain import Columns, Domain
from sfumato.recipes.shared.budget import RemainingBudget
from sfumato.recipes.shared.compression import count_told, take_contrasts
from sfumato.recipes.shared.fitting import (
    CHOICE,
    Asking,
    Fitting,
    count_rounds,
    noise_distance,
    offer_marginal,
    round_part,
)

_MOST_CELLS = 2**17  # of all columns together: the model of all pairs has that many
_FITS = 8  # of the model, between rounds


def is_dense(
    budget: RemainingBudget,
    fitting: Fitting,
    triples: Mapping[Columns, int],
    *,
    counted: Collection[Columns],
    model_cells: int,
) -> bool:
    """Whether all pairs of columns are worth their noise, with half of the budget if there are `triples`.

    All pairs must be `counted`, and their model may have at most so many `model_cells`. Where records may be
    replaced, two of them may have opposite contrasts, which then cost as much as counts or more.
    """
    pairs = _find_pairs(fitting.domain)
    if not pairs or budget.table.unit.neighbours == "replace":
        return False
    if not set(pairs) <= set(counted) or not _is_small(fitting, model_cells):
        return False
    whole = budget.total / 2 if triples else budget.total
    return count_rounds(budget, whole, _told(fitting, pairs), fitting.total) >= len(pairs)


def measure_densely(
    budget: RemainingBudget, fitting: Fitting, triples: Mapping[Columns, int], label: str, model_cells: int
) -> Asking:
    """Return a fitting of single columns, of all pairs and of chosen ones of the weighted `triples`.

    Half of the budget is for single columns and pairs, all of it if no triple is worth its noise. Parts of it
    are those that make the sum of noises least: as the power 2/3 of what a marginal tells, times how many of
    the triples have it.
    """
    domain, spent = fitting.domain, budget.total - budget.left
    rounds = 0
    if triples:
        told = _told(fitting, triples)
        rounds = min(int(count_rounds(budget, budget.total / 2, told, fitting.total)), len(triples))
    pairs = _find_pairs(domain)
    parts: dict[Columns, Fraction] = {}
    for columns in [*((name,) for name in domain if domain[name] > 1), *pairs]:
        # Contrasts of pairs do not tell of single columns, which all triples with a column have.
        alone = len(columns) == 1 and count_told(fitting.compression, columns) < domain.cells(columns)
        shared = (len(domain) - 1) / 2 if alone else 1.0
        parts[columns] = round_part(shared ** (2 / 3) * _weigh(fitting, columns))
    whole = budget.total / 2 if rounds else budget.total
    unit = (whole - spent) / sum(parts.values())
    answers = yield tuple(
        budget.spend(budget.calibrate_request(f"{label}again: {columns[0]}", columns, part * unit))
        for columns, part in parts.items()
        if len(columns) == 1
    )
    again = fitting.look_again(answers)
    if _is_small(again, model_cells):
        fitting = again
    else:  # so many values stand out now that the model would be too large
        fitting.refine(answers)
    answers = yield tuple(
        budget.spend(
            _ask(budget, fitting, f"{label}pair {place}: {' x '.join(pair)}", pair, parts[pair] * unit)
        )
        for place, pair in enumerate(pairs, 1)
    )
    fitting.add(answers)
    yield from _choose_triples(budget, fitting, triples, rounds, label)
    fitting.fit(effort=4, share_sums=True)
    return fitting


def _choose_triples(
    budget: RemainingBudget, fitting: Fitting, triples: Mapping[Columns, int], rounds: int, label: str
) -> Generator[tuple[Ask, ...], tuple[Answer, ...], None]:
    """Adds so many of the weighted `triples` to `fitting`, chosen one after the other."""
    share = budget.left / max(1, rounds)
    offered = dict.fromkeys(triples)
    candidates: dict[Columns, Candidate] = {}
    for turn in range(1, rounds + 1):
        if (turn - 1) % -(-rounds // _FITS) == 0:
            fitting.fit(share_sums=True)
            sigma = budget.noise_deviation(share * (1 - CHOICE))
            candidates = {
                columns: offer_marginal(
                    fitting,
                    columns,
                    grid=budget.table.grid,
                    weight=triples[columns],
                    penalty=noise_distance(sigma, count_told(fitting.compression, columns)),
                )
                for columns in offered
            }
        choice = Choice(
            name=f"{label}choice {turn}",
            candidates=tuple(candidates.values()),
            epsilon=budget.calibrate_choice(share * CHOICE),
        )
        (chosen,) = yield (budget.spend(choice),)
        assert isinstance(chosen, Chosen)
        columns = choice.candidates[chosen.index].columns
        del offered[columns], candidates[columns]
        amount = budget.left if turn == rounds else share * (1 - CHOICE)
        name = f"{label}round {turn}: {' x '.join(columns)}"
        fitting.add((yield (budget.spend(_ask(budget, fitting, name, columns, amount)),)))
        fitting.progress(f"round {turn} of {rounds}: {' x '.join(columns)}")


def _ask(
    budget: RemainingBudget, fitting: Fitting, name: str, columns: Columns, mu_squared: Fraction
) -> Request:
    """Return a request for the differences of a marginal, or for its counts if no column has few values."""
    contrasts = take_contrasts(fitting.compression, columns)
    queries = fitting.compression.queries(columns) if contrasts is None else contrasts.queries
    return budget.calibrate_request(name, columns, mu_squared, queries=queries)


def _is_small(fitting: Fitting, model_cells: int) -> bool:
    return math.prod(fitting.domain.values()) <= min(model_cells, _MOST_CELLS)


def _find_pairs(domain: Domain) -> list[Columns]:
    return list(combinations([name for name in domain if domain[name] > 1], 2))


def _weigh(fitting: Fitting, columns: Columns) -> float:
    return float(count_told(fitting.compression, columns) ** (2 / 3))


def _told(fitting: Fitting, marginals: Collection[Columns]) -> float:
    """Return how many numbers marginals of one size tell that have the noise of these together."""
    return float((sum(_weigh(fitting, each) for each in marginals) / max(1, len(marginals))) ** 1.5)
