"""What engines are asked in tests."""

from sfumato.questions import Marginal, OccupiedCells


def cells(marginals, occupied=()):
    """Questions for the counts of `marginals` over all their cells, then of `occupied` where records are."""
    return (*map(Marginal, marginals), *map(OccupiedCells, occupied))
