"""One offline HTML report on a released model: its shapes, coefficients or quantiles, and its privacy."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from markupsafe import Markup

from sfumato.core.exact import NORMAL_95
from sfumato.core.facts.column import Column, parse_column
from sfumato.core.facts.domain import Tuples, Values
from sfumato.inference.models.additive import AdditiveModel, Shape, read_model
from sfumato.inference.models.cumulative import DistributionModel, read_distribution
from sfumato.inference.models.document import FORMAT
from sfumato.inference.models.network import read_network
from sfumato.release.folder import failing_closed, open_folder
from sfumato.report.facts import read_facts
from sfumato.report.page import describe_total
from sfumato.report.pages.charts import (
    Observed,
    Point,
    draw_calibration,
    draw_heat,
    draw_intervals,
    draw_shape,
)
from sfumato.report.pages.plot import Panel
from sfumato.report.pages.render import render_page
from sfumato.report.pages.words import short

Record = dict[str, Any]

Part = tuple[str, str, Record, tuple[int, str]]
"""The template of a section, its heading and record, and a key figure with what it counts."""

_MOST_LABELS = 30
_MOST_DRAWN = 12
_MOST_STEPS = 256
_MOST_PICTURES = 6
_FIGURES = {
    "auroc": "AUROC",
    "accuracy": "accuracy",
    "log_loss": "log loss",
    "r_squared": "R²",
    "rmse": "root mean square error",
}
_QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
_KINDS = {
    "additive": "an additive model of",
    "linear": "a linear model of",
    "logistic": "a logistic model of",
    "network": "a network of",
    "quantiles": "the distribution of",
    "clusters": "centres of a",
}


def has_model(folder: Path | str) -> bool:
    """Returns whether the release in `folder` is a model to predict with."""
    opened = open_folder(folder, load=("model.json",))
    if "model.json" not in opened.files:
        return False
    with failing_closed("model.json is not valid JSON"):
        return bool(json.loads(opened.files["model.json"]).get("format") == FORMAT)


def build_model_report(folder: Path | str) -> bytes:
    """Returns the report on the model in `folder`: one HTML file, the same bytes for the same release.

    Privacy: it is made of the release alone, so it costs nothing.
    """
    facts = read_facts(folder)
    opened = open_folder(folder, load=("model.json",))
    with failing_closed("model.json does not describe a model"):
        document = json.loads(opened.files["model.json"])
        columns = {name: parse_column(name, spec) for name, spec in document["columns"].items()}
        stated = facts.certificate.get("postprocessing") or {}
        name, heading, drawn, summary = describe_model(document, columns, stated)
        judged = describe_evaluation(document)
    card = {"document": document, "asked": len(facts.measured), "judged": judged}
    parts = [(name, heading, drawn), ("card", "Model card", card)]
    if judged is not None:
        parts.insert(1, ("evaluation", "How good its predictions are", judged))
    sections = [
        {"name": name, "heading": heading, "template": f"report/{name}.html", "record": record}
        for name, heading, record in parts
    ]
    return render_page(
        "report/model.html",
        title=f"{facts.source}: {_KINDS[document['recipe']]} {document['target']}",
        internal=False,
        notice="",
        printed="",
        sections=sections,
        facts=facts,
        total=describe_total(facts.certificate),
        summary=summary,
        predicts=document["family"] not in ("distribution", "clusters"),
        judged=judged,
        strongest=[
            each.name
            for each in (drawn["panels"] if name == "shapes" else ())
            if any(abs(point.values[0]) > point.halves[0] for point in each.points)
        ][:3],
    )


def describe_model(document: Record, columns: Mapping[str, Column], stated: Record) -> Part:
    """Returns what a model has to show, and among it the `panels` of a plot."""
    return _DESCRIBE.get(document["recipe"], _describe_regression)(document, columns, stated)


def _describe_additive(document: Record, columns: Mapping[str, Column], stated: Record) -> Part:
    model = read_model(document, {name: column.size for name, column in columns.items()})
    shapes = _describe_shapes(model, columns)
    drawn = {
        "shapes": shapes,
        "panels": [each["panel"] for each in shapes if each["panel"] and not each["flat"]],
        "family": model.family,
        "note": (stated.get("model") or {}).get("note"),
    }
    flat = sum(each["flat"] for each in shapes)
    summary = (len(columns), f"inputs, of which {flat:,} have no effect that noise would not explain")
    return "shapes", "What the model adds up", drawn, summary


def _describe_regression(document: Record, columns: Mapping[str, Column], stated: Record) -> Part:
    del columns
    terms = [_describe_term(each) for each in document["terms"]]
    known = [each for each in terms if each["point"] is not None]
    known.sort(key=lambda each: -abs(each["point"].values[0]))
    shown = [each["point"] for each in known[:_MOST_LABELS]]
    drawn = {
        "terms": terms,
        "panels": [Panel(name="what the whole range of an input changes", points=shown)] if shown else [],
        "drawing": draw_intervals(shown, "What inputs change, with intervals") if shown else None,
        "undrawn": len(known) - len(shown),
        "left_out": document["left_out"],
        "family": document["family"],
        "classes": document.get("classes"),
        "note": stated.get("classes"),
    }
    lost = sum(not each["identified"] for each in terms)
    summary = (len(terms), f"coefficients, of which {lost:,} the noise hides")
    return "coefficients", "What inputs change", drawn, summary


def _describe_network(document: Record, columns: Mapping[str, Column], stated: Record) -> Part:
    """Returns every input with how far it alone moves predictions, while all others are unknown."""
    model = read_network(document, columns)
    reaches = []
    for name, column in columns.items():
        codes = {each: np.full(column.size, -1) for each in columns} | {name: np.arange(column.size)}
        classes = model.family == "classification"
        found = (model.probabilities if classes else model.numbers)(codes, column.size)
        reaches.append((name, float(np.ptp(found, axis=0).max())))
    reaches.sort(key=lambda each: -each[1])
    drawn = {
        "layers": model.layers,
        "sizes": ", ".join(str(each.shape[0] - 1) for each in model.layers)
        + f", {model.layers[-1].shape[1]}",
        "family": model.family,
        "reaches": reaches[:_MOST_LABELS],
        "undrawn": max(0, len(reaches) - _MOST_LABELS),
        "note": (stated.get("model") or {}).get("note"),
    }
    return "network", "What inputs move", drawn, (sum(each.size for each in model.layers), "weights")


def _describe_distribution(document: Record, columns: Mapping[str, Column], stated: Record) -> Part:
    del stated
    model = read_distribution(document, columns)
    known = [row for row in range(len(model.groups)) if model.is_known(row)]
    drawn = {
        "name": document["target"],
        "by": next(iter(columns), None),
        "cells": model.ends.size,
        "groups": len(model.groups),
        "unknown": len(model.groups) - len(known),
        "drawn": (groups := [_describe_group(model, row) for row in known[:_MOST_DRAWN]]),
        "panels": [each["panel"] for each in groups],
        "undrawn": max(0, len(known) - _MOST_DRAWN),
    }
    return "distribution", "All quantiles", drawn, (model.ends.size, "values with the share up to each")


def _describe_group(model: DistributionModel, row: int) -> Record:
    label = "" if model.groups[row] is None else str(model.groups[row])
    shares = model.shares[row]
    half = np.maximum(model.high[row] - shares, shares - model.low[row])  # one end may be that of the axis
    kept = range(-(-model.ends.size // _MOST_STEPS) - 1, model.ends.size, -(-model.ends.size // _MOST_STEPS))
    points = [
        Point(label=f"{model.ends[each]:g}", values=(float(shares[each]),), halves=(float(half[each]),))
        for each in kept
    ]
    return {
        "label": label,
        "records": int(model.counts[row, -1]),
        "drawing": draw_shape(points, f"Share of records up to a value {label}".strip(), ends=(0.0, 1.0)),
        "panel": Panel(name=label or "share up to a value", points=points, ordered=True, ends=(0.0, 1.0)),
        "quantiles": [(share, model.quantile(row, share)) for share in _QUANTILES],
    }


def _describe_clusters(document: Record, columns: Mapping[str, Column], stated: Record) -> Part:
    del stated
    half = float(document["noise_of_size"])
    sizes = list(enumerate(map(float, document["sizes"]), 1))
    shown = [Point(label=f"cluster {place}", values=(size,), halves=(half,)) for place, size in sizes]
    rows = [[place, size, *centre] for (place, size), centre in zip(sizes, document["centres"], strict=True)]
    drawn = {
        **{key: document[key] for key in ("asked", "note", "explained")},
        "gain": document["gain_over_one_cluster"],
        "error": document["noise_of_gain"],
        "head": ["cluster", "size", *columns],
        "numeric": list(range(1, 2 + len(columns))),
        "rows": rows,
        "drawing": draw_intervals(shown, "Sizes of clusters, with intervals"),
        "panels": [Panel(name="sizes of clusters", points=shown)],
    }
    return "clusters", "Centres", drawn, (int(document["found"]), "clusters beyond the noise")


def _describe_term(term: Record) -> Record:
    """Returns a row of the table; and its place in the picture: what the whole range of an input changes."""
    name, label = term["column"], term.get("label")
    shown = "(constant)" if name is None else name if label is None else f"{name}: {label}"
    point = None
    if name is not None and term["identified"]:
        width = 1.0 if label is not None else float(Fraction(term["high"]) - Fraction(term["low"]))
        half = width * (float(term["high_95"]) - float(term["low_95"])) / 2
        point = Point(label=shown, values=(width * float(term["coefficient"]),), halves=(half,))
    keys = ("coefficient", "standard_error", "low_95", "high_95", "identified")
    return {"name": shown, "point": point, **{key: term[key] for key in keys}}


def _describe_shapes(model: AdditiveModel, columns: Mapping[str, Column]) -> list[Record]:
    """Returns every shape with its picture, those that move predictions most first."""
    several = len(model.scores) > 1
    found = []
    for place, score in enumerate(model.scores):
        for shape in score.shapes:
            label = f" for {model.classes[place]}" if several else ""
            inputs = [columns[name] for name in shape.columns]
            describe = _describe_shape if len(inputs) == 1 else _describe_pair
            found.append(describe(model, shape, inputs, label))
    return sorted(found, key=lambda each: -float(each["reach"]))


def _describe_pair(model: AdditiveModel, shape: Shape, inputs: Sequence[Column], label: str) -> Record:
    """Returns the shape of two inputs: a picture with the values of the first from top to bottom."""
    one, two = inputs
    effects = np.asarray(shape.scores.reshape(one.size, two.size) * float(model.unit), np.float64)
    name = f"{one.name} x {two.name}{label}"
    limit = max(float(np.abs(effects).max()), 1e-9)
    said = f"The effect of {one.name}, from top to bottom, with {two.name}, from left to right"
    return {
        "name": name,
        "drawing": draw_heat(effects, said, limit=limit, middle=True),
        "panel": None,
        "pair": {"down": one.name, "across": two.name, "limit": f"{limit:.3g}"},
        "reach": float(np.ptp(effects)),
        "flat": not shape.scores.any(),
        "left_out": 0,
    }


def _describe_shape(model: AdditiveModel, shape: Shape, inputs: Sequence[Column], label: str) -> Record:
    (column,) = inputs
    unit = float(model.unit)
    points = [
        Point(label=str(name), values=(float(score) * unit,), halves=(float(deviation) * unit * NORMAL_95,))
        for name, score, deviation in zip(column.labels, shape.scores, shape.deviations, strict=True)
    ]
    name = f"{column.name}{label}"
    ordered = not isinstance(column.domain, (Values, Tuples))
    line = ordered and len(points) > 2
    if line:
        drawing = draw_shape(points, f"The effect of {name}")
    else:
        largest = sorted(points, key=lambda each: -abs(each.values[0]))[:_MOST_LABELS]
        points = sorted(largest, key=lambda each: -each.values[0])
        drawing = draw_intervals(points, f"The effect of {name}")
    return {
        "name": name,
        "drawing": drawing,
        "reach": float(np.ptp(shape.scores)) * unit,
        "flat": not shape.scores.any(),
        "left_out": 0 if ordered else max(0, column.size - _MOST_LABELS),
        "panel": Panel(name=name, points=points, ordered=line),
        "pair": None,
    }


_DESCRIBE = {
    "additive": _describe_additive,
    "clusters": _describe_clusters,
    "network": _describe_network,
    "quantiles": _describe_distribution,
}


def describe_evaluation(document: Record) -> Record | None:
    """Returns the record of the section, of a model.json; None if nobody was held out."""
    found = document.get("evaluation")
    if found is None:
        return None
    classes = document.get("classes", ())
    groups = found.get("groups") or {"column": None, "each": []}
    choice = found.get("choice") or {"share": "0", "chosen": None, "candidates": []}
    label = f"Predictions of {document['target']} and what was observed"
    return {
        "share": float(Fraction(found["share"])),
        "figures": list_figures(found),
        "drawing": _draw_calibration(found, label, shares=bool(classes)),
        "worse": _find_worse(found, groups["each"]),
        "classes": len(classes),
        "last": classes[-1] if classes else None,
        "column": groups["column"],
        "groups": [
            {
                **_judge_group(each, shares=bool(classes)),
                "drawing": _draw_calibration(each, f"{label}: {each['label']}", shares=bool(classes))
                if place < _MOST_PICTURES
                else None,
            }
            for place, each in enumerate(groups["each"])
        ],
        "compared": float(Fraction(choice["share"])),
        "candidates": [
            {
                "options": json.dumps(each["options"], ensure_ascii=False),
                "figures": list_figures(each),
                "taken": place == choice["chosen"],
            }
            for place, each in enumerate(choice["candidates"])
        ],
        **{key: found.get(key) for key in ("records", "held_to", "note")},
    }


def _find_worse(found: Record, groups: Sequence[Record]) -> list[Record] | None:
    """Returns groups whose first figure is worse than that of all, beyond both intervals; None if unknown."""
    key = next((each for each in _FIGURES if each in found), None)
    known = [each for each in groups if key in each]
    if key is None or not known:
        return None
    below = key not in ("log_loss", "rmse")
    worse = [
        each
        for each in known
        if (
            float(each[key]["high_95"]) < float(found[key]["low_95"])
            if below
            else float(each[key]["low_95"]) > float(found[key]["high_95"])
        )
    ]
    return [{"label": each["label"], **list_figures({key: each[key]})[0]} for each in worse]


def list_figures(found: Record) -> list[Record]:
    """Returns every figure with its interval, in words."""
    listed = []
    for key, name in _FIGURES.items():
        if key in found:
            ends = [float(found[key][end]) for end in ("value", "low_95", "high_95")]
            value, low, high = (
                _show_figure(each, shares=key == "accuracy", plain=key == "rmse") for each in ends
            )
            listed.append({"name": name, "value": value, "low": low, "high": high})
    return listed


def _judge_group(each: Record, *, shares: bool) -> Record:
    """Returns a group with what was predicted and observed of it over all, if the noise lets that be said."""
    record: Record = {"label": each["label"], "records": each.get("records"), "predicted": None}
    record["figures"] = list_figures(each)
    overall = each.get("overall")
    if overall is not None:
        ends = [overall["predicted"], *(overall["observed"][end] for end in ("value", "low_95", "high_95"))]
        shown = [_show_figure(float(end), shares=shares, plain=True) for end in ends]
        record |= dict(zip(("predicted", "value", "low", "high"), shown, strict=True))
    return record


def _show_figure(value: float, *, shares: bool, plain: bool) -> str:
    if shares:
        return f"{100 * value:.1f} %"
    return short(value) if plain else f"{value:.3f}"


def _draw_calibration(found: Record, label: str, *, shares: bool) -> Markup | None:
    points = [
        Observed(
            predicted=float(each["predicted"]),
            value=float(each["observed"]["value"]),
            low=float(each["observed"]["low_95"]),
            high=float(each["observed"]["high_95"]),
        )
        for each in found.get("calibration", ())
    ]
    if not points:
        return None
    observed = "observed share" if shares else "observed mean"
    return draw_calibration(points, label, x="predicted", y=observed, shares=shares)
