"""One offline HTML report on a release: what each section shows as plain records; its words are templates."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sfumato.core.cost.budget import Spent, add_costs, describe_charge
from sfumato.core.errors import RecipeError
from sfumato.core.exact import NORMAL_95
from sfumato.core.ledger.report import describe_cost
from sfumato.report.explain.posterior import RARITIES, Total, posterior_bounds, read_total
from sfumato.report.facts import (
    Facts,
    count_records,
    estimate_counts,
    expect_noise,
    judge_dependences,
    judge_signal,
    matches,
    read_epsilon,
    read_facts,
)
from sfumato.report.fields import Axes, Field, choose_axes, read_numbers
from sfumato.report.geography import AreaMap, Geography, count_matches, place_areas
from sfumato.report.pages import charts
from sfumato.report.pages.render import render_page
from sfumato.report.pages.svg import round_limit
from sfumato.report.pages.words import amount, exponent, name_columns, plural
from sfumato.report.places import (
    JudgedRelease,
    ReportInput,
    compare_values,
    describe_cells,
    describe_places,
    draw_maps,
    read_true_counts,
)

if TYPE_CHECKING:
    from sfumato.core.ledger.report import BudgetReport
    from sfumato.report.facts import Measured


_LARGEST = 900_000  # bytes; a larger page is drawn again in fewer words, to stay below a megabyte


def build_report(
    folder: Path | str,
    *,
    ledger: BudgetReport | None = None,
    comparison: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None = None,
    maps: Mapping[tuple[str, ...], Any] | None = None,
    place: str | None = None,
    time: str | None = None,
    geography: Geography | None = None,
    key: str | None = None,
) -> bytes:
    """Returns the report on the release in `folder`: one HTML file, the same bytes for the same input.

    `ledger` adds all charges and what is left. `comparison` (one record, or a list of
    {"epsilon": ..., "comparison": ...}) and `maps` (exact counts by the names of columns) come
    from the truth; with either, every part of the report is marked internal. `place` and `time` name
    columns. Places are drawn on the areas of `geography`, whose property `key` has their names.

    Privacy: without `comparison` and `maps` it is made of the release, its certificate and the ledger
    alone, so it costs nothing.
    """
    facts = read_facts(folder)
    axes = find_axes(facts, place=place, time=time, geography=geography)
    given = ReportInput(
        facts=facts,
        axes=axes,
        ledger=ledger,
        comparisons=_read_comparisons(comparison),
        true=read_true_counts(maps, facts),
        area_map=None if geography is None else place_on_map(geography, axes, key=key),
    )
    page = _build_page(given)
    return page if len(page) <= _LARGEST else _build_page(replace(given, terse=True))


def find_axes(
    facts: Facts, *, place: str | None = None, time: str | None = None, geography: Geography | None = None
) -> Axes:
    """Chooses the columns drawn as places and time; of a map, the one that names most areas."""
    axes = choose_axes(facts.shown, place=place, time=time)
    if geography is None or place is not None:
        return axes
    matches_of = {field.name: count_matches(geography, _texts(field)) for field in facts.shown}
    best = max(facts.shown, key=lambda field: matches_of[field.name], default=None)
    return axes if best is None or not matches_of[best.name] else replace(axes, place=best)


def place_on_map(geography: Geography, axes: Axes, *, key: str | None = None) -> AreaMap:
    """Returns the areas of the map, with the released labels that they stand for."""
    if axes.place is None:
        raise RecipeError(
            "the release has no described column of places to draw on a map; name it with --place"
        )
    values = [str(each[0]) for each in axes.place.keys if len(each) == 1]
    return place_areas(geography, axes.place.labels, column=axes.place.name, key=key, values=values)


def _texts(field: Field) -> list[str]:
    return [*field.labels, *(str(each[0]) for each in field.keys if len(each) == 1)]


def _build_page(given: ReportInput) -> bytes:
    facts = given.facts
    sections = [
        {"name": name, "heading": heading, "template": f"report/{name}.html", "record": record}
        for name, heading, describe in SECTIONS
        if (record := describe(given)) is not None
    ]
    return render_page(
        "report/page.html",
        title=f"{facts.source}: {_name_kind(facts)}",
        internal=given.internal,
        notice="compares with the truth, is not private, do not publish",
        printed="compares with the truth",
        sections=sections,
        facts=facts,
        total=describe_total(facts.certificate),
        key=_describe_key(facts),
        lead=_describe_lead(given),
    )


def _describe_lead(given: ReportInput) -> Record | None:
    """Returns what stands out most among places, or in the first column, and what cannot be told from it."""
    facts, axes = given.facts, given.axes
    plain = [field for field in facts.shown if not field.ordered] or facts.shown
    field = next(
        (each for each in (axes.place, axes.time, *plain) if each is not None and each.size > 1), None
    )
    if field is None:
        return None
    found = estimate_counts(facts, (field,))
    ranks = None if facts.is_reordered else compare_values(field.labels, found)
    top = int(np.argmax(found.values))
    return {
        "field": field,
        "name": field.labels[top],
        "value": float(found.values[top]),
        "rank": None if ranks is None else ranks["ranked"][0],
        "bound": _tell_bound(facts),
        "reordered": facts.is_reordered,
    }


def _tell_bound(facts: Facts) -> str | None:
    """Returns what of an individual's records counts lack, which no interval of noise covers."""
    bound, most = facts.chosen_bound, facts.unit["max_records"]
    if bound is not None:
        told = f"at most {plural(bound['records'], 'record')} of an individual counted"
        factor = facts.scale
        if factor <= 1.005:
            return told
        told += (
            f"; the {1 - 1 / factor:.0%} beyond are made up for by one factor, {factor:.2f}, so that places "
            "whose records come from few individuals are too low, and others may have more"
        )
        return told + "; recipe capped-counts is for totals of places" * (facts.kind == "map")
    if facts.kind == "user-counts":
        return f"at most {plural(max(facts.recipe['times']), 'record')} of an individual counted in each"
    return None if most in (None, 1) else f"records beyond {most} of an individual are not counted"


def _describe_key(facts: Facts) -> dict[str, Any]:
    """Returns what the key figures are made of."""
    noisy = [each for each in facts.measured if each.about != "choice"]
    halves = [each.half for each in noisy if matches(each, facts.best)]
    rarity = None if facts.total.is_pure else RARITIES[1]
    return {
        "replaced": facts.unit["neighbours"] == "replace",
        "belief": posterior_bounds(facts.total, 0.5, rarity=rarity)[1],
        "individuals": all(each.about == "individuals" for each in noisy),
        "least": min(halves, default=None),
        "most": max(halves, default=None),
        "signal": judge_signal(facts),
    }


def _name_kind(facts: Facts) -> str:
    names = [field.name for field in facts.shown]
    if facts.weight is None:
        return f"synthetic rows of {len(names):,} columns" if len(names) != 1 else f"synthetic {names[0]}"
    if not names:
        return "private counts"
    joined = names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
    return f"private counts by {joined}"


def _read_comparisons(
    given: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None,
) -> tuple[JudgedRelease, ...]:
    """Gives the comparisons that were given: one record, or one per epsilon; the best epsilon comes last."""
    if given is None:
        return ()
    if isinstance(given, Mapping):
        return (JudgedRelease(epsilon=None, record=given),)
    read = []
    for entry in given:
        if not isinstance(entry, Mapping) or not isinstance(entry.get("comparison"), Mapping):
            raise RecipeError("a list of comparisons holds {'epsilon': ..., 'comparison': {...}} entries")
        read.append(JudgedRelease(epsilon=str(entry.get("epsilon")), record=entry["comparison"]))
    return tuple(sorted(read, key=lambda each: read_epsilon(each.epsilon or "")))


Record = dict[str, Any]

_PRIORS = [step / 100 for step in (0.5, *range(1, 100), 99.5)]
_MOST_BARS = 7
_MOST_CHARGES = 60
_FEW_MEASUREMENTS = 12
_FEW_VALUES = 10  # fewer make no histogram
_MOST_MEASUREMENTS = 120
_MOST_POINTS = 10
_MOST_MARGINALS = 20
_MOST_GROUPS = 15
_MOST_PAIRS = 10
_LONGEST_RECIPE = 3000
_OWN = "this release"


def describe_total(certificate: Mapping[str, Any]) -> Record:
    """Gives the privacy total as texts: epsilon, the delta that goes with it unless it is pure, and both."""
    total = read_total(certificate["total"])
    if total.epsilon is not None:
        epsilon = f"ε = {amount(total.epsilon)}"
        return {"epsilon": epsilon, "delta": None, "text": epsilon}
    planned = Fraction(certificate["plan"]["delta"])
    stated = min(total.at_delta, key=lambda key: Fraction(key) != planned)
    epsilon, delta = f"ε = {amount(total.at_delta[stated])}", _show_delta(stated)
    return {"epsilon": epsilon, "delta": delta, "text": f"{epsilon} at δ = {delta}"}


def _released(given: ReportInput) -> Record:
    """Pictures of every released column, and what the table is and how it was made."""
    facts = given.facts
    shown = facts.shown[: 6 if given.terse else 18]
    measured = [each for each in facts.measured if each.about != "choice"]
    columns = facts.table.column_names
    return {
        "cards": [_describe_card(given, field) for field in shown],
        "below": any((estimate_counts(facts, (field,)).values < 0).any() for field in shown),
        "compared": bool(given.true.tables),
        "undrawn": len(facts.shown) - len(shown),
        "plain": any(each.is_plain for each in facts.measured) and not facts.adds_up,
        "columns": [name for name in columns if name in facts.described],
        "extra": [
            name for name in columns if name not in facts.described | {"count", facts.weight, "epsilon"}
        ],
        "records": count_records(facts),
        "choices": len(facts.measured) - len(measured),
        "measurements": len(measured),
        "answers": sum(each.answers for each in measured),
        "noise": sorted({each.noise for each in measured}),
    }


def _describe_card(given: ReportInput, field: Field) -> Record:
    found = estimate_counts(given.facts, (field,))
    values, truth = found.values, given.true.count((field,))
    card: Record = {
        "name": field.name,
        "size": field.size,
        "drawing": None,
        "half": found.half,
        "other": None,
        "off": None if truth is None else float(np.abs(values - truth).sum() / 2 / max(truth.sum(), 1.0)),
    }
    if field.ordered and field.size > 2:
        labels = field.labels
        bins = len(field.edges) - 1
        if 0 < bins < field.size:  # what is outside of all bins has no place on their axis
            card["other"] = (labels[-1], float(values[bins:].sum()))
            values, labels = values[:bins], labels[:bins]
            truth = None if truth is None else truth[:bins]
        width = -(-values.size // charts.MOST_COLUMNS)
        starts = list(range(0, values.size, width))
        drawn = np.add.reduceat(values, starts)
        edges = [*(field.edges[start] for start in starts), field.edges[bins]] if field.edges else []
        card["drawing"] = charts.draw_columns(
            drawn,
            [labels[start] for start in starts],
            f"released counts by {field.name}",
            width=270,
            edges=edges,
            truth=None if truth is None else np.add.reduceat(truth, starts),
        )
        card["uneven"] = bool(edges) and charts.has_uneven_bins(edges, width=270)
        card["equal"] = bool(edges) and not card["uneven"] and charts.has_uneven_bins(edges)
    else:
        order = np.argsort(-values, kind="stable")[:_MOST_BARS].tolist()
        marks = [() if truth is None else (float(truth[code]),) for code in order]
        card["rows"] = [
            (field.labels[code], float(values[code]), *mark) for code, mark in zip(order, marks, strict=True)
        ]
    return card


def _privacy(given: ReportInput) -> Record:
    """Returns the guarantee with its parameters, and the posterior against the prior."""
    facts, total = given.facts, given.facts.total
    readings = [float(Fraction(each)) for each in total.at_delta.values()]
    rarity = None if total.is_pure else RARITIES[1]
    if total.is_pure:
        parts = facts.epsilons if len(facts.epsilons) > 1 else ()
        alone = [Total(epsilon=Fraction(each), rho=None, mu_squared=None) for each in parts]
        curves = [_curve(total, None), *(_curve(each, None, class_="thin") for each in alone)]
    else:
        thin = [_curve(total, each, class_="thin") for each in (RARITIES[0], RARITIES[2])]
        curves = [_curve(total, rarity), *thin]
    return {
        "noise": sorted({each.noise for each in facts.measured}),
        "readings": [(epsilon, _show_delta(delta)) for delta, epsilon in total.at_delta.items()],
        "mu": None if total.mu_squared is None else math.sqrt(total.mu_squared) * (1 + 1e-12),
        "epsilon": float(total.epsilon) if total.epsilon is not None else min(readings, default=0.0),
        "drawing": charts.draw_curves(
            curves, "posterior belief against prior belief", x="belief before", y="belief after"
        ),
        "curves": len(curves),
        "beliefs": [(prior, *posterior_bounds(total, prior, rarity=rarity)) for prior in (0.5, 0.1)],
    }


def _curve(total: Total, rarity: Fraction | None, class_: str = "curve") -> charts.Curve:
    bounds = [(prior, *posterior_bounds(total, prior, rarity=rarity)) for prior in _PRIORS]
    high = [(0.0, 0.0), *((prior, each) for prior, _, each in bounds), (1.0, 1.0)]
    low = [(0.0, 0.0), *((prior, each) for prior, each, _ in bounds), (1.0, 1.0)]
    return charts.Curve(high=high, low=low, class_=class_)


def _ledger(given: ReportInput) -> Record:
    """Returns what the certificate says of the charge, and what the ledger says of all of them."""
    entry, budget = given.facts.certificate["ledger"], given.ledger
    if budget is None:
        return {"entry": entry, "budget": None}
    charges = budget.charges
    return {
        "entry": entry,
        "budget": budget,
        "last": describe_cost(describe_charge(budget.budget, budget.last), budget.more_like_last),
        "share": min(1.0, float(budget.spent / budget.total)) if budget.total else 0.0,
        "charges": len(charges),
        "listed": any(each.hash == entry["hash"] for each in charges),
        "rows": [(each, add_costs(Spent(), each.costs)) for each in charges[-_MOST_CHARGES:]],
    }


def _accuracy(given: ReportInput) -> Record:
    """Describes the noise, the largest cells with intervals, and signal against noise."""
    facts = given.facts
    measured = [each for each in facts.measured if each.about != "choice" and each.answers]
    if not measured:
        return {"measured": []}
    chosen = _choose_measurement(given, measured)
    record = {
        "measured": measured[:_MOST_MEASUREMENTS],
        "count": len(measured),
        "groups": [],
        "chosen": chosen,
        "largest": None,
        "spread": charts.draw_spread(chosen.values, chosen.half, "noisy values and the range of the noise")
        if chosen.answers >= _FEW_VALUES
        else None,
        "kinds": {each.about for each in measured} & {"sums", "large cells", "individuals", "bounded"},
        "bound": facts.unit["max_records"],
        "chosen_bound": facts.chosen_bound,
        "choices": sum(each.about == "choice" for each in facts.measured),
    }
    if len(measured) > _FEW_MEASUREMENTS:
        groups = [list(members) for _, members in groupby(sorted(measured, key=_group), key=_group)]
        record["groups"] = groups[:_MOST_MEASUREMENTS]
    if chosen.about in ("cells", "large cells"):
        points, names = _find_largest(facts, chosen, measured)
        record["points"] = len(points)
        record["largest"] = charts.draw_intervals(
            points, "the largest noisy values with their 95 % intervals", series=names
        )
    return record


def _choose_measurement(given: ReportInput, measured: list[Measured]) -> Measured:
    """Gives the measurement to draw: cells at the best epsilon, of the places if they were measured alone."""
    mine = [each for each in measured if matches(each, given.facts.best)] or measured
    mine = [each for each in mine if each.answers > 1] or mine
    plain = [each for each in mine if each.is_plain] or mine
    place = given.axes.place
    alone = [each for each in plain if place is not None and each.columns == (place.name,)]
    if alone:
        return min(alone, key=lambda each: each.deviation)
    return max(plain, key=lambda each: (-len(each.columns), each.cells))


def _group(each: Measured) -> tuple[str, int, str, float]:
    """Returns what is described in one line; the exact deviation keeps different epsilons apart, too."""
    return each.epsilon or "", len(each.columns), each.about, each.deviation


def _find_largest(
    facts: Facts, chosen: Measured, measured: list[Measured]
) -> tuple[list[charts.Point], list[str]]:
    """Returns the largest values of `chosen`, beside those of the same cells at up to two other epsilons."""
    series = [chosen]
    for each in sorted(measured, key=lambda each: each.deviation) if chosen.is_plain else ():
        known = {one.epsilon for one in series}
        if each.columns == chosen.columns and each.is_plain and each.epsilon not in known:
            series.append(each)
    series = series[:3]
    points = [
        charts.Point(
            label=_label_cell(facts, chosen, int(chosen.places[place])),
            values=tuple(float(each.values[place]) for each in series),
            halves=tuple(each.half for each in series),
        )
        for place in np.argsort(-chosen.values, kind="stable")[:_MOST_POINTS].tolist()
    ]
    return points, [f"epsilon {each.epsilon}" for each in series]


def _label_cell(facts: Facts, measured: Measured, cell: int) -> str:
    """Returns what the cell of a measurement stands for: the label of every column, in their order."""
    labels: list[str] = []
    number = cell
    for name in reversed(measured.columns):
        field = facts.field(name)
        if field is None:
            return f"cell {cell}"
        number, code = divmod(number, field.size)
        labels.insert(0, field.labels[code])
    return " · ".join(labels)


def _marginals(given: ReportInput) -> Record:
    """Worst marginals: by distance from the truth if it was given, and by the noise to be expected."""
    expected = expect_noise(given.facts)
    record: Record = {
        "compared": bool(given.comparisons),
        "expected": expected[:_MOST_MARGINALS],
        "marginals": len(expected),
        "records": max(count_records(given.facts), 0.0),
    }
    if not given.comparisons:
        return record
    means = []
    for comparison in reversed(given.comparisons):
        found = comparison.record.get("marginals") or {}
        for size in (1, 2, 3):
            mean = found.get(str(size)) or {}
            if mean.get("count"):
                stated = {key: mean.get(key) for key in ("count", "mean", "worst")}
                means.append({"columns": size, "epsilon": comparison.epsilon, **stated})
    best = given.comparisons[-1]
    marginals: Mapping[str, Any] = best.record.get("marginals") or {}
    ranked = sorted(
        marginals.get("list") or (), key=lambda each: (-float(each["tvd"]), list(map(str, each["columns"])))
    )
    counted = sum(int((marginals.get(size) or {}).get("count", 0)) for size in ("1", "2", "3"))
    return record | {
        "means": means,
        "worst": [(name_columns(each["columns"]), float(each["tvd"])) for each in ranked[:_MOST_MARGINALS]],
        "counted": max(len(ranked), counted),
        "epsilon": best.epsilon,
    }


def _truth(given: ReportInput) -> Record | None:
    """Returns what only the truth can tell, in full for the largest epsilon; None without the truth."""
    cells = describe_cells(given.facts, given.axes, given.true)
    if not given.comparisons:
        return None if cells is None else {"cells": cells, "alone": True}
    best = given.comparisons[-1]
    record = best.record
    rows = record.get("rows") or {}
    groups = sorted(
        record.get("groups") or (),
        key=lambda each: (-float(each["tvd"]), str(each["column"]), str(each["value"])),
    )
    propensity = record.get("propensity")
    scores = ("trained_on_release", "trained_on_truth", "majority")
    return {
        "alone": False,
        "cells": cells,
        "epsilon": best.epsilon,
        "epsilons": [_describe_comparison(each.epsilon, each.record) for each in reversed(given.comparisons)],
        "true_rows": rows.get("truth", 0),
        "rows": rows.get("release", 0),
        "ladder": _describe_ladder(record),
        "references": _describe_references(record),
        "propensity": propensity and dict.fromkeys(("auc", "pmse", "ratio", "expected")) | propensity,
        "downstream": [dict.fromkeys(scores) | each for each in record.get("downstream") or ()],
        "groups": groups[:_MOST_GROUPS],
        "associations": _draw_associations(record.get("associations") or {}),
        "worst": list((record.get("associations") or {}).get("worst") or ())[:_MOST_PAIRS],
    }


def _describe_comparison(epsilon: str | None, record: Mapping[str, Any]) -> Record:
    ladder, propensity = record.get("ladder") or {}, record.get("propensity") or {}
    return {
        "epsilon": epsilon,
        "rows": (record.get("rows") or {}).get("release", 0),
        "distance": ladder.get("release"),
        "share": ladder.get("share"),
        "auc": propensity.get("auc"),
    }


def _describe_ladder(record: Mapping[str, Any]) -> Record | None:
    ladder = record.get("ladder") or {}
    rungs = [(float(each["share"]), float(each["tvd"])) for each in ladder.get("rungs") or ()]
    if len(rungs) < 2 or ladder.get("release") is None:
        return None
    label = "mean distance of samples of the truth, and of the release"
    drawing = charts.draw_ladder(rungs, float(ladder["release"]), label)
    return {"drawing": drawing, "share": ladder.get("share"), "least": rungs[0][0]}


def _describe_references(record: Mapping[str, Any]) -> list[Record]:
    references = list(record.get("references") or ())
    if references and not any(each["name"] == _OWN for each in references):
        marginals = record.get("marginals") or {}
        own = {f"tvd{size}": (marginals.get(str(size)) or {}).get("mean") for size in (1, 2, 3)}
        references.insert(0, {"name": _OWN, **own})
    return [
        {
            "name": each["name"],
            "own": each["name"] == _OWN,
            "distances": [each.get(f"tvd{size}") for size in (1, 2, 3)],
        }
        for each in references
    ]


def _draw_associations(found: Mapping[str, Any]) -> list[Record]:
    names = [str(name) for name in found.get("columns") or ()]
    if len(names) < 2:
        return []
    truth, release = (np.asarray(found[side], np.float64) for side in ("truth", "release"))
    less = release - truth
    maps = [
        ("Truth", truth, 1.0, False),
        ("Release", release, 1.0, False),
        ("Release less truth", less, round_limit(float(np.abs(less).max())), True),
    ]
    return draw_maps(
        maps,
        lambda values, name, **scale: charts.draw_matrix(values, names, f"associations, {name}", **scale),
    )


def _usage(given: ReportInput) -> Record:
    """Advice on intervals, sums, zeros, clipping and models, as far as it concerns this release."""
    facts = given.facts
    mine = [each for each in facts.measured if matches(each, facts.best)]
    noisy = [each for each in mine if each.about != "choice" and each.answers]
    fullest = max((each for each in mine if each.is_plain), key=lambda each: each.cells, default=None)
    counts = facts.weight is not None
    clipping = None
    if counts and fullest is not None:
        clipping = {
            "below": float((fullest.values < 0).mean()),
            "noisy": float(fullest.values.sum()),
            "half": NORMAL_95 * fullest.deviation_of((), 1),
        }
    return {
        "best": min(noisy, key=lambda each: each.half, default=None),
        "worst": max(noisy, key=lambda each: each.half, default=None),
        "clipping": clipping,
        "zeros": _describe_zeros(facts, mine) if counts else None,
        "sums": None if fullest is None else _describe_sums(facts, fullest),
    }


def _describe_zeros(facts: Facts, mine: list[Measured]) -> Record:
    counts = read_numbers(facts.table["count"])
    threshold = float(Fraction(str(facts.recipe.get("threshold") or 0)))
    hidden = [
        max(each.half, threshold * each.deviation)
        for each in mine
        if each.about in ("cells", "bounded", "individuals")
    ]
    return {
        "share": float((counts == 0).mean()) if counts.size else 0.0,
        "hidden": max(hidden, default=None),
    }


def _describe_sums(facts: Facts, measured: Measured) -> Record:
    steps: dict[int, Field] = {}
    for name in measured.columns:
        field = facts.field(name)
        if field is not None and 1 < field.size < measured.cells:
            steps.setdefault(field.size, field)
    half = NORMAL_95 * measured.deviation_of((), 1)
    return {
        "name": measured.name,
        "half": measured.half,
        "steps": [
            {
                "cells": field.size,
                "name": field.name,
                "half": NORMAL_95
                * measured.deviation_of({*measured.columns} - {field.name}, measured.cells // field.size),
            }
            for field in steps.values()
        ],
        "answers": measured.answers,
        "all": half,
        "relative": min(half / max(abs(float(np.sum(measured.values))), 1.0), 1.0),
    }


def _dictionary(given: ReportInput) -> Record:
    """Returns every released column with its domain."""
    facts = given.facts
    most, labels = (40, 3) if given.terse else (200, 12)
    fields = facts.fields[:most]
    others = [name for name in facts.table.column_names if name not in facts.described]
    types = facts.table.schema
    return {
        "fields": fields,
        "labels": labels,
        "others": [(name, str(types.field(name).type)) for name in others[: most - len(fields)]],
        "unlisted": len(facts.fields) - most,
    }


def _reproduce(given: ReportInput) -> Record:
    """Commands that verify the release, what they check, and what it was made with."""
    recipe = json.dumps(given.facts.recipe, indent=2, ensure_ascii=False)
    return {"recipe": recipe[:_LONGEST_RECIPE], "cut": len(recipe) > _LONGEST_RECIPE}


SECTIONS: tuple[tuple[str, str, Callable[[ReportInput], Record | None]], ...] = (
    ("places", "Place and time", describe_places),
    ("released", "What was released", _released),
    ("kept", "Which dependences were kept", lambda given: judge_dependences(given.facts)),
    ("accuracy", "How exact it is", _accuracy),
    ("marginals", "Errors of marginals, worst first", _marginals),
    ("truth", "Against the truth", _truth),
    ("usage", "How to use noisy numbers", _usage),
    ("privacy", "What it says about one individual", _privacy),
    ("ledger", "What it cost", _ledger),
    ("public", "What is public, and what is not covered", lambda _: {}),
    ("dictionary", "Data dictionary", _dictionary),
    ("reproduce", "How to check and reproduce it", _reproduce),
)
"""The template, the heading and the facts of every section; one without facts is left out."""


def _show_delta(text: str) -> str:
    return exponent(float(Fraction(text)))
