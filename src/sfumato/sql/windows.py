"""Windows over noisy aggregates: running sums, shares and ranks, computed from what is released.

`SUM(COUNT(*)) OVER (ORDER BY month)` looks at the rows of the answer, not at records, and costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sqlglot import exp

from sfumato.core.errors import refuse
from sfumato.sql.bands import Band, sum_widths
from sfumato.sql.check import AGGREGATE, RANKS

if TYPE_CHECKING:
    from sfumato.sql.plan import Noise

_SUMS = (exp.Sum, exp.Avg, exp.Min, exp.Max, exp.Count)
_SHIFTS = (exp.Lag, exp.Lead, exp.FirstValue, exp.LastValue)
WINDOWS = (*RANKS, *_SUMS, *_SHIFTS)
"""The functions that may stand before OVER."""
MOST_ROWS = 100_000


@dataclass(frozen=True, slots=True)
class Frames:
    """The rows of a window in its order: for each row of `order` the first and last place that it sees.

    `parts` tells partitions apart and `peers` rows that the order does not, by place.
    """

    order: NDArray[np.intp]
    first: NDArray[np.intp]
    last: NDArray[np.intp]
    parts: NDArray[np.intp]
    peers: NDArray[np.intp]


def check_window(node: exp.Window) -> None:
    """Refuses windows that are not computed here."""
    function = node.this
    if not isinstance(function, WINDOWS) or isinstance(function, exp.Filter):
        raise refuse(f"the window function {function.key.upper()}; docs/sql.md lists those that are known")
    if node.args.get("first") is not None or node.args.get("alias") is not None:
        raise refuse("a named window; write it out behind OVER")
    if isinstance(function, exp.Count) and isinstance(function.this, exp.Distinct):
        raise refuse("COUNT(DISTINCT ...) over a window")
    spec = node.args.get("spec")
    if spec is not None and (spec.text("kind").upper() != "ROWS" and not _is_default(spec)):
        raise refuse("a window by RANGE or GROUPS with bounds of its own; write ROWS")
    if spec is not None and spec.args.get("exclude") is not None:
        raise refuse("a window with EXCLUDE")


def find_frames(
    node: exp.Window, rows: NDArray[np.intp], sort_key: Callable[[exp.Expr], NDArray[Any]]
) -> Frames:
    """The frames of a window over `rows`; `sort_key` gives numbers in the order of an expression."""
    parts = np.zeros(rows.size, np.intp)
    for each in node.args.get("partition_by") or []:
        codes = np.unique(sort_key(each)[rows], return_inverse=True)[1]
        parts = np.unique(parts * (codes.max(initial=0) + 1) + codes, return_inverse=True)[1]
    clause = node.args.get("order")
    keys = []
    for each in clause.expressions if clause is not None else ():
        ranks = np.unique(sort_key(each.this)[rows], return_inverse=True)[1]
        keys.append(-ranks if each.args.get("desc") else ranks)
    # The last key of lexsort decides first.
    order = np.lexsort((*reversed(keys), parts)) if rows.size else np.empty(0, np.intp)
    parts = parts[order]
    starts = _starts(parts)
    peers = _starts(parts, *(key[order] for key in keys))
    places = np.arange(rows.size)
    begin, end = _ends(starts, rows.size)
    same_begin, same_end = _ends(peers, rows.size)
    spec = node.args.get("spec")
    if spec is None or _is_default(spec):
        whole = spec is not None and str(spec.args.get("end")).upper() == "UNBOUNDED"
        first, last = begin, same_end if keys and not whole else end
    else:
        first = np.maximum(begin, _bound(spec, "start", places, begin, end))
        last = np.minimum(end, _bound(spec, "end", places, begin, end))
    return Frames(order, first, last, np.cumsum(starts) - 1, same_begin)


def rank_rows(function: exp.Expr, frames: Frames) -> NDArray[Any]:
    """The places of rows, in the order of the frames."""
    found: NDArray[Any]
    size = frames.order.size
    places = np.arange(size)
    begin, end = _ends(np.diff(frames.parts, prepend=-1) != 0, size)
    match function:
        case exp.RowNumber():
            found = np.add(places - begin, 1)
        case exp.Rank():
            found = np.add(frames.peers - begin, 1)
        case exp.DenseRank():
            new = np.cumsum(frames.peers == places)
            found = np.add(new - new[begin], 1)
        case exp.PercentRank():
            found = (frames.peers - begin) / np.maximum(end - begin, 1)
        case exp.CumeDist():
            following = np.append(np.flatnonzero(frames.peers == places)[1:], size)
            last = following[np.cumsum(frames.peers == places) - 1] - 1
            found = (last - begin + 1) / (end - begin + 1)
        case _:
            count = function.this
            if not isinstance(count, exp.Literal) or not count.is_int or int(count.this) < 1:
                raise refuse("NTILE takes a whole number above zero")
            tiles, rows = int(count.this), end - begin + 1
            place, large = places - begin, rows % tiles
            width = rows // tiles
            edge = large * (width + 1)
            late = large + (place - edge) // np.maximum(width, 1)
            found = np.where(place < edge, place // (width + 1), late) + 1
    return found


def slide(function: exp.Expr, band: Band, frames: Frames, noise: Noise | None, share: float) -> Band:
    """SUM, AVG, MIN, MAX, LAG and the like of a band whose rows are in the order of the frames.

    `noise` is that of the values if they are one measure; then sums are as uncertain as sums of independent
    noises are. Otherwise the ends of the band hold for all rows at once, and are added.
    """
    first, last = frames.first, frames.last
    count = np.maximum(last - first + 1, 0)
    match function:
        case exp.Sum() | exp.Avg():
            sums = [_sum_frames(each, first, last) for each in (band.value, band.low, band.high)]
            if noise is not None:
                sizes, places = np.unique(count, return_inverse=True)
                reach = sum_widths(noise, share, sizes)[places] / noise.measure.grid
                if noise.measure.grid == 1 and isinstance(function, exp.Sum):
                    reach = np.ceil(reach).astype(np.int64)
                sums[1:] = [sums[0] - reach, sums[0] + reach]
            found = Band(*sums)
            if isinstance(function, exp.Sum):
                return found
            return found.apply(lambda numbers: np.where(count > 0, numbers / np.maximum(count, 1), np.nan))
        case exp.Min() | exp.Max():
            pick = np.minimum if isinstance(function, exp.Min) else np.maximum
            parts = (band.value, band.low, band.high)
            return Band(*(_pick_frames(each, first, last, pick) for each in parts))
        case exp.FirstValue() | exp.LastValue():
            source = first if isinstance(function, exp.FirstValue) else last
            return _take(band, source, count > 0)
        case _:
            offset = function.args.get("offset")
            if offset is not None and not (isinstance(offset, exp.Literal) and offset.is_int):
                raise refuse("LAG and LEAD take a whole number of rows")
            if function.args.get("default") is not None:
                raise refuse("LAG and LEAD with a default; write COALESCE around them")
            step = int(offset.this) if offset is not None else 1
            source = np.arange(count.size) + (step if isinstance(function, exp.Lead) else -step)
            inside = (source >= 0) & (source < count.size)
            source = np.clip(source, 0, max(count.size - 1, 0))
            return _take(band, source, inside & (frames.parts[source] == frames.parts))


def single_noise(tree: exp.Expr, find: Callable[[int], Noise | None]) -> Noise | None:
    """The noise behind a tree that is one measured count or sum, None for anything else."""
    tree = tree.unnest()
    return find(int(tree.name)) if isinstance(tree, exp.Column) and tree.table == AGGREGATE else None


def _take(band: Band, source: NDArray[np.intp], inside: NDArray[np.bool_]) -> Band:
    parts = (each.astype(float)[source] for each in (band.value, band.low, band.high))
    return Band(*(np.where(inside, each, np.nan) for each in parts))


def _sum_frames(values: NDArray[Any], first: NDArray[np.intp], last: NDArray[np.intp]) -> NDArray[Any]:
    sums = np.concatenate([np.zeros(1, values.dtype), np.cumsum(values)])
    inside = first <= last
    return np.where(inside, sums[np.where(inside, last + 1, 0)] - sums[np.where(inside, first, 0)], 0)


def _pick_frames(
    values: NDArray[Any], first: NDArray[np.intp], last: NDArray[np.intp], pick: np.ufunc
) -> NDArray[Any]:
    """The least or the largest value of every frame: of two stretches of a power of two that cover it."""
    inside = first <= last
    found = np.full(values.size, np.nan) if not inside.all() else values.copy()
    powers = np.frexp(np.where(inside, last - first + 1, 1))[1] - 1
    stretches = values
    for power in range(int(powers.max(initial=0)) + 1):
        here = np.flatnonzero(inside & (powers == power))
        found[here] = pick(stretches[first[here]], stretches[last[here] + 1 - 2**power])
        stretches = pick(stretches[: -(2**power)], stretches[2**power :])
    return found


def _starts(*keys: NDArray[Any]) -> NDArray[np.bool_]:
    """Where an entry differs from the one before in any key."""
    starts = np.ones(keys[0].size, np.bool_)
    starts[1:] = np.logical_or.reduce([key[1:] != key[:-1] for key in keys]) if keys[0].size else starts[1:]
    return starts


def _ends(starts: NDArray[np.bool_], size: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """For every entry the first and the last place of its run."""
    first = np.flatnonzero(starts)
    lengths = np.diff(first, append=size)
    return np.repeat(first, lengths), np.repeat(first + lengths - 1, lengths)


def _is_default(spec: exp.Expr) -> bool:
    """Whether a frame goes from the beginning to the row's peers, or is the whole partition, by RANGE."""
    if spec.text("kind").upper() == "ROWS":
        return False
    start, end = str(spec.args.get("start")).upper(), str(spec.args.get("end") or "CURRENT ROW").upper()
    return start == "UNBOUNDED" and end in ("CURRENT ROW", "UNBOUNDED")


def _bound(
    spec: exp.Expr, side: str, places: NDArray[np.intp], begin: NDArray[np.intp], end: NDArray[np.intp]
) -> NDArray[np.intp]:
    """The place at which a frame of ROWS begins or ends."""
    bound = spec.args.get(side)
    if bound is None or str(bound).upper() == "CURRENT ROW":
        return places
    behind = str(spec.args.get(f"{side}_side") or "").upper() == "PRECEDING"
    if str(bound).upper() == "UNBOUNDED":
        return begin if behind else end
    if not isinstance(bound, exp.Literal) or not bound.is_int:
        raise refuse("a window by ROWS takes whole numbers")
    return places - int(bound.this) if behind else places + int(bound.this)
