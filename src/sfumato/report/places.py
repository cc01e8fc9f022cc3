"""What the section of place and time shows: maps or tiles, series with intervals, and which places differ.

Exact counts that a report is compared with come as plain records from outside; with any, it is internal.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from sfumato.core.errors import RecipeError
from sfumato.report.facts import Estimate, Facts, estimate_counts
from sfumato.report.fields import Axes, Field
from sfumato.report.geography import AreaMap, Shades, define_areas, draw_map, draw_small_map
from sfumato.report.pages import charts
from sfumato.report.pages.charts import draw_scatter, draw_series
from sfumato.report.pages.svg import round_limit, step_of
from sfumato.report.pages.words import clip_text, short, signed

if TYPE_CHECKING:
    from sfumato.core.ledger.report import BudgetReport


Record = dict[str, Any]

_MOST_CELLS = 2**20
_MOST_WORST = 20


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TrueCounts:
    """Exact counts of the combinations of some columns, by the names of these."""

    tables: Mapping[tuple[str, ...], NDArray[np.float64]] = field(default_factory=dict)

    def count(self, fields: Sequence[Field]) -> NDArray[np.float64] | None:
        """Returns the exact counts of every combination of `fields`, if some table tells them."""
        names = [each.name for each in fields]
        known = min((each for each in self.tables if set(names) <= set(each)), key=len, default=None)
        if known is None:
            return None
        others = tuple(axis for axis, name in enumerate(known) if name not in names)
        left = [name for name in known if name in names]
        return np.transpose(self.tables[known].sum(axis=others), [left.index(name) for name in names])


NO_TRUTH = TrueCounts()
"""What is known of the truth when a report may be published."""


def choose_cells(facts: Facts, axes: Axes) -> tuple[Field, ...]:
    """Returns the columns that are compared cell by cell: all of a table of counts, else place and time."""
    shown = facts.shown
    if facts.weight is not None and math.prod(each.size for each in shown) <= _MOST_CELLS:
        return shown
    drawn = tuple(each for each in (axes.place, axes.time) if each is not None)
    return drawn if math.prod(each.size for each in drawn) <= _MOST_CELLS else drawn[:1]


def read_true_counts(given: Mapping[tuple[str, ...], Any] | None, facts: Facts) -> TrueCounts:
    """Returns counts by the names of columns, each laid out as the release is."""
    tables = {}
    for names, counts in (given or {}).items():
        shape = tuple(each.size for name in names if (each := facts.field(name)) is not None)
        tables[names] = np.asarray(counts, np.float64)
        if tables[names].shape != shape:
            raise RecipeError(
                f"the table of true counts by {', '.join(names)} has the shape {tables[names].shape}, and "
                f"the release {shape}"
            )
    return TrueCounts(tables=tables)


def describe_cells(facts: Facts, axes: Axes, truth: TrueCounts) -> Record | None:
    """Released against true counts, cell by cell, and the cells that are farthest off."""
    fields = choose_cells(facts, axes)
    true = truth.count(fields) if fields else None
    if true is None:
        return None
    released, half = facts.count(fields), estimate_counts(facts, fields).half
    off = released - true
    worst = np.argsort(-np.abs(off).ravel(), kind="stable")[:_MOST_WORST]
    rows = []
    for place in worst.tolist():
        codes = np.unravel_index(place, off.shape)
        labels = [each.labels[int(code)] for each, code in zip(fields, codes, strict=True)]
        rows.append(
            {
                "name": " · ".join(labels),
                "truth": float(true[codes]),
                "release": float(released[codes]),
                "off": float(off[codes]),
                "times": None if not half else abs(float(off[codes])) / half,
            }
        )
    label = "released against true counts of all cells"
    return {
        "columns": [each.name for each in fields],
        "drawing": draw_scatter(true.ravel(), released.ravel(), half, label),
        "rows": rows,
        "cells": int(off.size),
        "half": half,
        "mean": float(np.abs(off).mean()),
        "within": None if half is None else float((np.abs(off) <= half).mean()),
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedRelease:
    """A comparison with the truth as a plain record, of one epsilon or of the whole release."""

    epsilon: str | None
    record: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ReportInput:
    """Everything that sections are made of; with `comparisons` or `true` counts the whole report is internal.

    `terse` leaves out what takes most room: names on tiles, long lists of values.
    """

    facts: Facts
    axes: Axes
    ledger: BudgetReport | None = None
    comparisons: tuple[JudgedRelease, ...] = ()
    true: TrueCounts = NO_TRUTH
    area_map: AreaMap | None = None
    terse: bool = False

    @property
    def true_map(self) -> NDArray[np.float64] | None:
        """The exact counts by place and time, as far as there are such columns, if they were given."""
        drawn = [each for each in (self.axes.place, self.axes.time) if each is not None]
        return self.true.count(drawn) if len(set(drawn)) == len(drawn) else None

    @property
    def internal(self) -> bool:
        """Whether anything here comes from the truth."""
        return bool(self.comparisons or self.true.tables)


Map = tuple[str, "NDArray[np.float64]", float, bool]
"""A name, the values, the limit of their colours, and whether these have a middle."""

_MOST_PANELS = 36  # three years of months
_MOST_KEYS = 120
_MOST_DRAWN = 2**22  # beyond these, counts by place and time are not laid out
_MOST_TILES = 2**16
_FEW_PLACES = 30  # have their names beside them
_MOST_SERIES, _MOST_KINDS, _MOST_CROSSED = 24, 12, 24
_LARGEST_KIND = 200
_MOST_RANKED = 10
_MOST_LISTED = 400
_MOST_NAMED = 3


def describe_places(given: ReportInput) -> Record | None:
    """Places on a map or as tiles, over time, against the truth if it was given, and in words."""
    facts, place, time = given.facts, given.axes.place, given.axes.time
    if place is None or place.size < 2:
        if time is None:
            return None
        counts = estimate_counts(facts, (time,))
        drawing = charts.draw_columns(counts.values, time.labels, f"released records by {time.name}")
        largest = float(counts.values.max())
        return {"place": None, "time": time, "columns": drawing, "largest": largest, "half": counts.half}
    alone = estimate_counts(facts, (place,))
    truth = given.true_map
    true_places = truth if truth is None or time is None else truth.sum(axis=1)
    both = None
    if time is not None and time is not place and place.size * time.size <= _MOST_DRAWN:
        both = estimate_counts(facts, (place, time))
    record: Record = {
        "place": place,
        "time": time,
        "given": given.axes.given,
        "measured": alone.source == "measurements",
        "half": alone.half,
        "widest": alone.halves is not None and float(alone.halves.min()) != alone.half,
        "ranks": None if facts.is_reordered else compare_values(place.labels, alone),
        "listed": _list_places(place, alone, true_places),
        "map": None,
        "maps": [],
        "key": None,
        "over_time": None,
        "series": [],
    }
    if given.area_map is not None:
        record["map"] = _describe_map(given, alone, both, true_places, truth)
    else:
        record |= _describe_tiles(given, alone, true_places)
    record["kinds"] = _describe_kinds(given, place)
    if both is not None and time is not None:
        total = both.values.sum(axis=0)
        columns = None if truth is None else truth.sum(axis=0)
        label = f"released records by {time.name}"
        record["columns"] = charts.draw_columns(total, time.labels, label, truth=columns)
        if record["map"] is None and place.size > _FEW_PLACES:
            record["over_time"] = _describe_over_time(place, time, both, truth)
        if 2 <= time.size <= charts.MOST_COLUMNS:
            record["series"] = _describe_series(given, place, time, both, truth)
    return record


def draw_maps(maps: list[Map], draw: Callable[..., object]) -> list[Record]:
    """Returns every one of `maps` drawn, with what its key has to tell."""
    return [
        {
            "name": name,
            "limit": limit,
            "middle": middle,
            "drawing": draw(values, name.lower(), limit=limit, middle=middle),
        }
        for name, values, limit, middle in maps
    ]


def _describe_tiles(given: ReportInput, alone: Estimate, truth: NDArray[np.float64] | None) -> Record:
    place = given.axes.place
    assert place is not None

    def draw(counts: NDArray[np.float64], name: str, **scale: Any) -> Markup:  # noqa: ANN401 - of a map
        half = alone.half if name == "release" else None
        label = f"{name} by {place.name}"
        return charts.draw_tiles(counts, place.labels, label, plain=given.terse, half=half, **scale)

    key = None
    if not given.terse and place.size > _FEW_PLACES and any(len(label) > 3 for label in place.labels):
        key = "list" if place.size <= _MOST_KEYS else "dictionary"
    return {"maps": draw_maps(_set_side_by_side(alone.values, truth), draw), "key": key}


def _describe_over_time(
    place: Field, time: Field, both: Estimate, truth: NDArray[np.float64] | None
) -> Record:
    values = both.values
    panels = time.size <= _MOST_PANELS and values.size <= _MOST_TILES

    def draw(counts: NDArray[np.float64], name: str, **scale: Any) -> object:  # noqa: ANN401 - of a map
        if panels:
            return charts.draw_multiples(counts, time.labels, f"{name} by {place.name}", **scale)
        return charts.draw_heat(counts, f"{name} by {place.name} and {time.name}", **scale)

    return {"panels": panels, "maps": draw_maps(_set_side_by_side(values, truth), draw), "half": both.half}


def _set_side_by_side(values: NDArray[np.float64], truth: NDArray[np.float64] | None) -> list[Map]:
    """Returns the release alone, or the release, the truth and the difference."""
    limit = _limit(values, truth)
    if truth is None:
        return [("Release", values, limit, False)]
    less = values - truth
    return [
        ("Release", values, limit, False),
        ("Truth", truth, limit, False),
        ("Release less truth", less, _limit(np.abs(less)), True),
    ]


def _limit(*arrays: NDArray[np.float64] | None) -> float:
    """Returns a round number that all but the very largest values stay below."""
    tops = [np.quantile(each, 0.97, method="higher") for each in arrays if each is not None and each.size]
    return round_limit(float(max(tops, default=1.0)))


def _describe_map(
    given: ReportInput,
    alone: Estimate,
    both: Estimate | None,
    true_places: NDArray[np.float64] | None,
    truth: NDArray[np.float64] | None,
) -> Record:
    """Describes the map of all records and of every point in time, with the truth if given."""
    areas, place, time = given.area_map, given.axes.place, given.axes.time
    assert areas is not None
    assert place is not None
    (_, values, limit, _), *others = _set_side_by_side(alone.values, true_places)
    drawing = _draw_areas(areas, place, ("all", values, limit, False), alone.halves)
    frames = [{"key": "all", "name": "all", "drawing": drawing, "limit": limit}]
    record: Record = {
        "defs": define_areas(areas.outline),
        "property": areas.key,
        "notes": areas.describe(),
        "unplaced": [
            (label, float(alone.values[place.labels.index(label)]))
            for label, _ in areas.unplaced[:_MOST_KEYS]
        ],
        "frames": frames,
        "panels": [],
        "truth": [
            {"name": each[0], "limit": each[2], "middle": each[3], "drawing": _draw_areas(areas, place, each)}
            for each in others
        ],
        "over": [],
    }
    if both is None or time is None or not 1 < time.size <= _MOST_PANELS:
        return record
    (_, cells, scale, _), *others = _set_side_by_side(both.values, truth)
    for turn, name in enumerate(time.labels):
        shown = name, cells[:, turn], scale, False
        halves = None if both.halves is None else both.halves[:, turn]
        record["panels"].append((f"t{turn}", name, _draw_areas(areas, place, shown, halves, small=True)))
        if not given.terse:
            drawing = _draw_areas(areas, place, shown, halves)
            frames.append({"key": f"t{turn}", "name": name, "drawing": drawing, "limit": scale})
    for name, values, limit, middle in others:
        panels = []
        for turn, label in enumerate(time.labels):
            shown = f"{name.lower()}, {label}", values[:, turn], limit, middle
            panels.append((label, _draw_areas(areas, place, shown, small=True)))
        record["over"].append({"name": name, "limit": limit, "middle": middle, "panels": panels})
    return record | {"limit": scale, "half": both.half}


def _draw_areas(
    areas: AreaMap,
    place: Field,
    given: Map,
    halves: NDArray[np.float64] | None = None,
    *,
    small: bool = False,
) -> Markup:
    """Draws values of a column on the areas of its labels: with what each area tells, or `small` and mute."""
    name, values, limit, middle = given
    codes = np.array(areas.codes, np.int64)
    within = np.zeros(values.size, np.bool_) if halves is None else values <= halves
    shades = Shades(
        steps=np.where(codes >= 0, step_of(values, limit=limit, middle=middle)[codes], -1),
        hatched=(codes >= 0) & within[codes],
        middle=middle,
    )
    label = f"map of {place.name}: {clip_text(name, 40)}"
    if small:
        return draw_small_map(areas.outline, shades, label)
    said = []
    for area, code in zip(areas.names, areas.codes, strict=True):
        shown = "not in the release"
        if code >= 0:
            noise = "" if halves is None else f" ± {short(float(halves[code]))}"
            shown = (signed if middle else short)(float(values[code])) + noise
            shown += ", within the noise" if within[code] else ""
        said.append(f"{clip_text(area, 40)}: {shown}")
    return draw_map(areas.outline, shades, said, label)


def _describe_kinds(given: ReportInput, place: Field) -> Record | None:
    """Describes a small map, or tiles, for each of the largest values of a further column."""
    kind = _find_kind(given.facts, given.axes)
    if kind is None or given.terse or place.size * kind.size > _MOST_TILES:
        return None
    found = estimate_counts(given.facts, (place, kind))
    panels = []
    for code in np.argsort(-found.values.sum(axis=0), kind="stable")[:_MOST_KINDS].tolist():
        values, name = found.values[:, code], kind.labels[code]
        limit, label = _limit(values), f"{name}, up to {short(_limit(values))}"
        if given.area_map is None:
            ((_, drawing),) = charts.draw_multiples(values[:, None], [name], place.name, limit=limit)
        else:
            halves = None if found.halves is None else found.halves[:, code]
            drawing = _draw_areas(given.area_map, place, (name, values, limit, False), halves, small=True)
        panels.append((label, drawing))
    half = found.half if given.area_map is not None else None
    return {"name": kind.name, "panels": panels, "all": kind.size, "half": half}


def _describe_series(
    given: ReportInput, place: Field, time: Field, both: Estimate, truth: NDArray[np.float64] | None
) -> list[Record]:
    """Lines over time: by place, by kind, and by both; the largest first."""
    groups = [_draw_group(f"By {place.name}", place.labels, time, both, truth, _MOST_SERIES)]
    kind = _find_kind(given.facts, given.axes)
    if kind is None or given.terse:
        return groups
    kinds = estimate_counts(given.facts, (kind, time))
    groups.append(
        _draw_group(f"By {kind.name}", kind.labels, time, kinds, given.true.count((kind, time)), _MOST_KINDS)
    )
    if place.size * kind.size * time.size <= _MOST_DRAWN:
        crossed = estimate_counts(given.facts, (place, kind, time))
        flat = Estimate(
            values=crossed.values.reshape(-1, time.size),
            source=crossed.source,
            halves=None if crossed.halves is None else crossed.halves.reshape(-1, time.size),
        )
        true = given.true.count((place, kind, time))
        true = None if true is None else true.reshape(-1, time.size)
        labels = [f"{one} · {other}" for one in place.labels for other in kind.labels]
        name = f"By {place.name} and {kind.name}"
        groups.append(_draw_group(name, labels, time, flat, true, _MOST_CROSSED))
    return groups


def _find_kind(facts: Facts, axes: Axes) -> Field | None:
    """Returns the first further column of listed values."""
    others = [field for field in facts.shown if field not in (axes.place, axes.time)]
    return next(
        (field for field in others if field.kind == "values" and 2 <= field.size <= _LARGEST_KIND), None
    )


def _draw_group(
    name: str,
    labels: Sequence[str],
    time: Field,
    found: Estimate,
    truth: NDArray[np.float64] | None,
    most: int,
) -> Record:
    totals = found.values.sum(axis=1)
    order = np.argsort(-totals, kind="stable")[:most].tolist()
    panels = [
        (
            labels[code],
            draw_series(
                found.values[code],
                None if found.halves is None else found.halves[code],
                time.labels,
                f"{clip_text(labels[code], 60)} by {time.name}",
                truth=None if truth is None else truth[code],
            ),
        )
        for code in order
    ]
    return {
        "name": name,
        "panels": panels,
        "all": len(labels),
        "half": found.half,
        "truth": truth is not None,
    }


def _list_places(place: Field, alone: Estimate, truth: NDArray[np.float64] | None) -> list[Record]:
    """Lists places with value and interval, largest first; with the truth, farthest off first."""
    weight = alone.values if truth is None else np.abs(alone.values - truth)
    return [
        {
            "name": place.labels[code],
            "value": float(alone.values[code]),
            "half": None if alone.halves is None else float(alone.halves[code]),
            "within": alone.halves is not None and bool(alone.values[code] <= alone.halves[code]),
            "truth": None if truth is None else float(truth[code]),
        }
        for code in np.argsort(-weight, kind="stable")[:_MOST_LISTED].tolist()
    ]


def compare_values(labels: Sequence[str], alone: Estimate) -> Record | None:
    """Compares places by whether their intervals overlap; None without intervals."""
    if alone.halves is None or len(labels) < 2:
        return None
    low, high = alone.values - alone.halves, alone.values + alone.halves
    count = len(labels)
    above = count - np.searchsorted(np.sort(low), high, side="right")  # surely more than this one
    below = np.searchsorted(np.sort(high), low, side="left")  # surely less
    apart = int(above.sum())
    ranked = []
    for code in np.argsort(-alone.values, kind="stable")[:_MOST_RANKED].tolist():
        like = [
            other
            for other in range(count)
            if other != code and low[other] <= high[code] and high[other] >= low[code]
        ]
        like.sort(key=lambda other: abs(alone.values[other] - alone.values[code]))
        ranked.append(
            {
                "name": labels[code],
                "value": float(alone.values[code]),
                "half": float(alone.halves[code]),
                "first": int(above[code]) + 1,
                "last": count - int(below[code]),
                "like": [labels[other] for other in like[:_MOST_NAMED]],
                "more": max(0, len(like) - _MOST_NAMED),
            }
        )
    return {
        "ranked": ranked,
        "count": count,
        "pairs": count * (count - 1) // 2,
        "overlapping": count * (count - 1) // 2 - apart,
        "zero": int((alone.values <= alone.halves).sum()),
    }
