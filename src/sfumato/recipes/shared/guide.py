"""A public table as guide: how columns depend on each other, used as far as the records bear it out.

The public table gives a model: single columns and pairs that stand out, joined to the cliques of a junction
tree. Fits begin there, so that of all models that explain the noisy answers the one nearest to the public
table is found, and rounds look for what it gets wrong. Pairs that the records contradict are left out before:
for each one sum of counts is measured that tells which of two models is right, the guided one or that of
independent columns.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Generator, Mapping, Sequence
from fractions import Fraction
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sfumato.core.errors import RecipeError
from sfumato.core.questions.measurement import Answer, Ask, Measurement, in_records
from sfumato.core.questions.question import Queries
from sfumato.inference.domain import Columns, Domain
from sfumato.inference.model import Model, number_cells
from sfumato.inference.tree import Growth, build_tree
from sfumato.recipes.shared.public import encode_public, open_public, pack_numbers, unpack_numbers

if TYPE_CHECKING:
    from sfumato.core.facts.table import Table
    from sfumato.recipes.shared.budget import RemainingBudget
    from sfumato.recipes.shared.fitting import Fitting

TESTING = Fraction(1, 40)  # of the whole budget, for asking whether the records are like the public table

_MOST_ROWS = 2**16  # kept in the plan; more tell pairs no better than noise lets them be used
_CHANCE = 2.0  # times what chance makes of independent columns, from which a pair stands out

Codes = dict[str, NDArray[np.int64]]


def read_guide(path: str, table: Table, columns: Sequence[str]) -> dict[str, Any]:
    """Return what a plan keeps of the public table at `path`: the codes of its rows, by column, packed.

    Columns that it does not have are left out; of many rows, evenly spaced ones are kept.
    """
    rows, record = open_public(path)
    shared = [name for name in columns if set(table.column(name).stored) <= set(rows.column_names)]
    if len(shared) < 2:
        raise RecipeError(
            f"guide {record['file']!r} has fewer than two of the columns of table {table.name!r}, so that "
            "it cannot tell how they depend on each other; name a public table with columns of these names"
        )
    if rows.num_rows > _MOST_ROWS:
        rows = rows.take(np.arange(_MOST_ROWS) * rows.num_rows // _MOST_ROWS)
    codes = {name: encode_public(table.column(name), rows) for name in shared}
    known = [name for name in shared if (codes[name] >= 0).any()]
    if len(known) < 2:
        raise RecipeError(
            f"guide {record['file']!r} has no value of the domains of table {table.name!r} in two columns; "
            "its values must be spelled as in the project file"
        )
    record["codes"] = {name: pack_numbers(codes[name], "<i4") for name in known}
    return record


def unpack_guide(record: Mapping[str, Any], domain: Domain) -> Codes:
    """Return the codes of public rows by column, -1 where a row has no value of the domain."""
    packed = record["codes"] if isinstance(record["codes"], Mapping) else {}
    found = {name: unpack_numbers(packed, name, "<i4", most=4 * _MOST_ROWS) for name in packed}
    codes = {name: each for name, each in found.items() if each is not None}
    sizes = {each.size for each in codes.values()}
    shared = [name for name in codes if name in domain]
    if len(codes) != len(packed) or len(sizes) != 1 or 0 in sizes or len(shared) < 2:
        raise RecipeError("the rows of the guide cannot be read; plan the recipe from its file again")
    for name, each in codes.items():
        if name in domain and not -1 <= int(each.min()) <= int(each.max()) < domain[name]:
            raise RecipeError("the rows of the guide are not of this table; plan the recipe again")
    return {name: codes[name] for name in domain if name in codes}


def follow_guide(
    record: Mapping[str, Any],
    budget: RemainingBudget,
    fitting: Fitting,
    allowed: Collection[Columns],
    *,
    label: str,
    most_cells: int,
) -> Generator[tuple[Ask, ...], tuple[Answer, ...], None]:
    """Sets where fits of `fitting`, of single columns so far, begin: at the guide, as far as it holds.

    `budget` is spent on asking, `allowed` are marginals that may be asked about, names of questions begin
    with `label`. The guided model has at most `most_cells`, and no more than the guide has rows.

    Privacy: sums of counts with signs, each cell in one sum at most once, with Gaussian noise
    (docs/proofs/adaptive.md).
    """
    plain = fitting.fit()
    full = unpack_guide(record, fitting.compression.full)
    codes = {
        name: np.where(each >= 0, fitting.compression.maps[name][each], -1)
        if name in fitting.compression.maps
        else each
        for name, each in full.items()
    }
    fitting.compression.expected = {name: _count(full, fitting.compression.full, (name,)) for name in codes}
    fitting.compression.share_out(fitting.known)
    rows = next(iter(codes.values())).size
    zeros = [columns for columns, _ in fitting.zeros]
    edges = _find_edges(codes, fitting.domain, allowed, most_cells=min(most_cells, rows), held=zeros)
    if not edges:
        return
    fitting.begin(_build_model(codes, fitting.domain, edges, total=plain.total))
    guided = fitting.fit()
    share = budget.left / len(edges)
    asks, levels, gaps = [], [], []
    for columns in edges:
        before, after = plain.flat_marginal(columns), guided.flat_marginal(columns)
        signs = np.sign(np.where(np.abs(after - before) > 1e-6 * plain.total, after - before, 0.0))
        queries = _spread_signs(signs.astype(np.int64), columns, fitting)
        asks.append(
            budget.calibrate_request(f"{label}guide: {' x '.join(columns)}", columns, share, queries=queries)
        )
        levels.append(float(signs @ before))
        gaps.append(float(signs @ (after - before)))
    answers = yield tuple(budget.spend(ask) for ask in asks)
    trust = _weigh_trust(answers, np.array(levels), np.array(gaps))
    kept = [columns for columns, part in zip(edges, trust, strict=True) if part > 0.5]
    fitting.progress(f"guide: {len(kept)} of {len(edges)} pairs of columns are as in the public table")
    fitting.begin(_build_model(codes, fitting.domain, kept, total=plain.total) if kept else None)


def _find_edges(
    codes: Codes,
    domain: Domain,
    allowed: Collection[Columns],
    *,
    most_cells: int,
    held: Sequence[Columns] = (),
) -> list[Columns]:
    """Return pairs of columns that stand out in the public rows, as many as make a model of so many cells.

    The cells are those beside what a model needs that holds the marginals `held`.
    """
    found: list[tuple[float, Columns]] = []
    known = set(allowed)
    for pair in combinations(codes, 2):
        if pair not in known or min(domain.shape(pair)) < 2:
            continue
        counts = _count(codes, domain, pair).reshape(domain.shape(pair))
        rows = counts.sum()
        if rows == 0:
            continue
        left, right = counts.sum(axis=1) / rows, counts.sum(axis=0) / rows
        distance = float(np.abs(counts / rows - np.outer(left, right)).sum())
        # The mean of the distance for independent columns: that of a normal law in every cell.
        chance = math.sqrt(2 / (math.pi * rows)) * float(np.sqrt(left).sum() * np.sqrt(right).sum())
        if distance > _CHANCE * chance:
            found.append((distance - chance, pair))
    edges: list[Columns] = []
    first = build_tree(domain, held)
    growth, most_cells = Growth(first), most_cells + first.cells
    for _, edge in sorted(found, key=lambda each: (-each[0], each[1])):
        if growth.cells(edge) <= most_cells:
            edges.append(edge)
            if edge not in growth.joined:
                growth = Growth(build_tree(domain, [*held, *edges]))
    return edges


def _build_model(codes: Codes, domain: Domain, edges: Sequence[Columns], *, total: float) -> Model:
    """Return the model of the public rows on the tree of `edges`, with `total` records.

    What a clique has not shown yet is expected to be as much as it has shown once (Good 1953), and is spread
    as over independent columns.
    """
    tree = build_tree(domain, edges)
    tables = []
    for clique in tree.cliques:
        counts = np.ones(1)
        if set(clique) <= set(codes):
            counts = _count(codes, domain, clique)
        if counts.sum() == 0 or counts.size == 1:
            tables.append(np.full(domain.cells(clique), total / domain.cells(clique)))
            continue
        rows = counts.sum()
        unseen = (1 + float((counts == 1).sum())) / (1 + rows)
        shaped = counts.reshape(domain.shape(clique))
        spread = np.ones(1)
        for axis in range(len(clique)):
            single = shaped.sum(axis=tuple(other for other in range(len(clique)) if other != axis))
            spread = np.outer(spread, (single + 0.5) / (single + 0.5).sum()).reshape(-1)
        tables.append(total * ((1 - unseen) * counts / rows + unseen * spread))
    return Model(tree, np.concatenate(tables), total=total, loss=0.0)


def _count(codes: Codes, domain: Domain, columns: Columns) -> NDArray[np.float64]:
    """Return the public rows in every cell of `columns`; rows that lack a value are left out."""
    known = np.min(np.stack([codes[name] for name in columns]), axis=0) >= 0
    cells = number_cells({name: codes[name][known] for name in columns}, columns, domain)
    return np.bincount(cells, minlength=domain.cells(columns)).astype(np.float64)


def _spread_signs(signs: NDArray[np.int64], columns: Columns, fitting: Fitting) -> Queries:
    """One query over the full marginal of `columns`: every cell with the sign of its compressed cell."""
    compression = fitting.compression
    shaped = signs.reshape(fitting.domain.shape(columns))
    for axis, name in enumerate(columns):
        if name in compression.maps:
            shaped = np.take(shaped, compression.maps[name], axis=axis)
    weights = shaped.reshape(-1)
    members = np.flatnonzero(weights)
    return Queries(
        cells=weights.size,
        grid=1,
        starts=np.array([0, members.size]),
        members=members,
        weights=weights[members],
    )


def _weigh_trust(
    answers: Sequence[Answer], levels: NDArray[np.float64], gaps: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return how much of what the guide says of each pair holds: 0 as for independent columns, 1 as it says.

    Every pair has an estimate with a known error. What pairs differ by beyond it is estimated by moments
    (DerSimonian and Laird 1986), and estimates are drawn to their mean accordingly.
    """
    measured = [in_records(answer) for answer in answers if isinstance(answer, Measurement)]
    values = np.array([float(value[0]) for value, _ in measured])
    weights = (np.maximum(gaps, 1e-9) / np.array([sigma for _, sigma in measured])) ** 2
    trust = (values - levels) / np.maximum(gaps, 1e-9)
    mean = float(weights @ trust / weights.sum())
    excess = float(weights @ (trust - mean) ** 2) - (trust.size - 1)
    spread = weights.sum() - float((weights**2).sum() / weights.sum())
    between = max(0.0, excess / spread) if trust.size > 1 else 0.0
    part = between / (between + 1 / weights)
    return np.asarray(mean + part * (trust - mean))
