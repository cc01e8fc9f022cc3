"""What a notebook draws of a release: its counts with their noise, or the effects of its model."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from sfumato.core.errors import RecipeError
from sfumato.core.facts.column import parse_column
from sfumato.report.facts import build_facts, estimate_counts, read_facts
from sfumato.report.model import describe_model
from sfumato.report.pages.charts import Point
from sfumato.report.pages.plot import MOST_POINTS, Panel, draw_panel, draw_plot, find_ends
from sfumato.tables.arrays import read_parquet

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    import pyarrow as pa
    from markupsafe import Markup

    from sfumato.report.facts import Facts

_MOST_PANELS = 12
_MOST_ROWS = 12  # of a part without an order


def plot_release(
    certificate: Mapping[str, Any],
    table: pa.Table,
    files: Mapping[str, bytes],
    column: str | None = None,
    *,
    ax: Any = None,  # noqa: ANN401 - matplotlib's axes
) -> Any:  # noqa: ANN401
    """Returns a picture of the records by `column`, by default of every one; of a model, its effects."""
    if "model.json" in files:
        return plot_model(json.loads(files["model.json"]), column, ax=ax)
    facts = build_facts("release", certificate, table, read_parquet(files["measurements.parquet"]))
    return draw_plot(f"Records of {facts.source}", _count_by(facts, column), ax=ax)


def draw_release(folder: Path) -> list[tuple[str, Markup]]:
    """Returns the same picture of a release in a folder, by its parts, each with what it shows."""
    model = folder / "model.json"
    found = _find_effects(json.loads(model.read_text("utf-8")), None) if model.is_file() else None
    drawn = []
    for panel in _count_by(read_facts(folder), None) if found is None else found:
        most = len(panel.points) if panel.ordered else _MOST_ROWS
        more = f", the largest {most} of {len(panel.points)}" if len(panel.points) > most else ""
        drawn.append((panel.name + more, draw_panel(replace(panel, points=panel.points[:most]))))
    return drawn


def _count_by(facts: Facts, column: str | None) -> list[Panel]:
    panels = []
    for field in _choose([(field.name, field) for field in facts.shown], column):
        found = estimate_counts(facts, (field,))
        halves = np.zeros(field.size) if found.halves is None else found.halves
        points = [
            Point(label=label, values=(float(value),), halves=(float(half),))
            for label, value, half in zip(field.labels, found.values, halves, strict=True)
        ]
        ordered = field.ordered and field.size > 2
        if not ordered:
            points = sorted(points, key=lambda each: -each.values[0])[:MOST_POINTS]
        noise = "" if found.halves is not None else ", noise not known"
        panels.append(
            Panel(name=f"{field.name}{noise}", points=points, ordered=ordered, ends=find_ends(points))
        )
    return panels


def plot_model(document: Mapping[str, Any], term: str | None = None, *, ax: Any = None) -> Any:  # noqa: ANN401
    """Returns a picture of what a model says of each input, those first that move predictions most."""
    target, spread = document["target"], document["family"] == "distribution"
    title = f"Share of records up to a value of {target}" if spread else f"What {target} depends on"
    return draw_plot(title, _find_effects(document, term), ax=ax)


def _find_effects(document: Mapping[str, Any], term: str | None) -> list[Panel]:
    columns = {name: parse_column(name, spec) for name, spec in document["columns"].items()}
    _, _, drawn, _ = describe_model(dict(document), columns, {})
    panels = [(each.name, each) for each in drawn.get("panels", ())]
    if not panels:
        raise RecipeError("the model has nothing to draw that noise would not explain")
    return _choose(panels, term)


def _choose(named: list[tuple[str, Any]], name: str | None) -> list[Any]:
    known = dict(named)
    if name is not None and name not in known:
        raise RecipeError(f"nothing to plot is called {name!r}; there is {', '.join(known) or 'none'}")
    return list(known.values())[:_MOST_PANELS] if name is None else [known[name]]
