"""Estimation: the model whose marginals are nearest to noisy measurements of them.

The fit minimises half the weighted squared distance between answers and model, with one multiplier per
answer. It begins with mirror descent from the uniform model, whose path visits models in the order of
their information: stopping early is the regularisation. Where the noise is low the path is long, and
implicit steps, each as deep as all before it together, are solved by limited-memory BFGS with the
curvature of single answers as metric. Both stop where the distance is no more than the noise explains
and falls no faster than it would by fitting noise (docs/synthesis.md has the measurements).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from sfumato.errors import RecipeError
from sfumato.inference.domain import Measurement, Part, estimate_total, merge_measurements
from sfumato.inference.fit import Fit
from sfumato.inference.kernels import rearrange
from sfumato.inference.tree import build_tree

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from numpy.typing import NDArray

    from sfumato.inference.domain import Domain
    from sfumato.inference.model import Model
    from sfumato.inference.tree import Tree

Columns = tuple[str, ...]

LARGEST_TREE = 2**25
"""Cells of a tree beyond which a model is refused, a quarter of a gigabyte a table."""

_MOST_EVALUATIONS = 5000
_STAGES = 60
_FAILURES = 4


def estimate(
    domain: Domain,
    measurements: Iterable[Measurement],
    *,
    total: float | None = None,
    iterations: int | None = None,
    seed: int = 0,
    zeros: Iterable[tuple[Columns, NDArray[np.bool_]]] = (),
    limit: int = LARGEST_TREE,
    target: float | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> Model:
    """The graphical model that fits `measurements`, exact on the junction tree that holds them.

    `total` is the number of records, estimated from the measurements if it is not given. `zeros` names
    impossible cells: columns and a mask that is true where a cell must be empty. Without `iterations`
    the fit stops by itself where going on would fit the noise; with it, or with a `target` loss, it goes
    on until the target is reached or so many evaluations are made. `seed` is the default seed of rows.

    >>> from sfumato.inference import Domain, Measurement
    >>> noisy = Measurement(columns=("a",), values=np.array([30.0, 70.0]), sigma=0.1)
    >>> estimate(Domain({"a": 2, "b": 2}), [noisy]).marginal(("a", "b")).round(1).tolist()
    [[15.0, 15.0], [35.0, 35.0]]
    """
    parts = merge_measurements(domain, measurements)
    if not parts:
        raise RecipeError("an estimate needs at least one measurement")
    known = [(domain.order(columns), order_mask(domain, columns, mask)) for columns, mask in zeros]
    tree = build_tree(
        domain, [*(part.columns for part in parts), *(columns for columns, _ in known)], limit=limit
    )
    records = estimate_total(domain, parts) if total is None else float(total)
    if not 0 < records < math.inf:
        raise RecipeError("the total number of records must be above zero")
    model = fit_parts(
        tree,
        parts,
        total=records,
        zeros=known,
        evaluations=iterations,
        stubborn=iterations is not None or target is not None,
        target=target,
        progress=progress,
    )
    model.seed = seed
    return model


def fit_parts(
    tree: Tree,
    parts: list[Part],
    *,
    total: float,
    zeros: Iterable[tuple[Columns, NDArray[np.bool_]]] = (),
    start: Model | None = None,
    evaluations: int | None = None,
    stubborn: bool = False,
    target: float | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> Model:
    """The model of `tree` that fits `parts`; the fit begins at `start`, or at the uniform model.

    It makes at most so many `evaluations`, all of them if it is `stubborn`.
    """
    fit = Fit(tree, parts, total=total, zeros=zeros, start=start)
    most = evaluations if evaluations is not None else _MOST_EVALUATIONS
    if stubborn:
        fit.rush(most=most, target=target, progress=progress)
        return fit.model()
    done = fit.depth == 0 and fit.descend(most=most, progress=progress)
    before = (fit.loss, fit.fitted)
    failures = 0
    for _ in range(_STAGES):
        if done or fit.evaluations >= most or failures > _FAILURES:
            break
        reached = fit.settle(most=most)
        progress(f"fitting: {fit.evaluations} evaluations, loss {fit.loss:.6g}")
        if reached:
            done = fit.explained(before)
        else:
            failures += 1
            fit.stride /= 16
        if fit.loss > before[0]:
            fit.go_back()
        before = (fit.loss, fit.fitted)
    return fit.model()


def order_mask(domain: Domain, columns: Columns, mask: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """`mask` over the cells of `columns` with the columns in the order of the domain, flat."""
    flat = np.asarray(mask, np.bool_).reshape(-1)
    if flat.size != domain.cells(columns):
        raise RecipeError(
            f"the zeros of {' x '.join(columns)} need a mask of {domain.cells(columns):,} cells"
        )
    return rearrange(flat, columns, domain.order(columns), domain.shape(columns))
