"""What the report says of a model that held-out people judged: figures with intervals, and calibration."""

from __future__ import annotations

import json
from fractions import Fraction
from typing import Any

from markupsafe import Markup

from sfumato.report.pages.charts import Observed, draw_calibration
from sfumato.report.pages.words import short

Record = dict[str, Any]

_MOST_PICTURES = 6
_FIGURES = {
    "auroc": "AUROC",
    "accuracy": "accuracy",
    "log_loss": "log loss",
    "r_squared": "R²",
    "rmse": "root mean square error",
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
        "drawing": _draw(found, label, shares=bool(classes)),
        "classes": len(classes),
        "last": classes[-1] if classes else None,
        "column": groups["column"],
        "groups": [
            {
                **_describe_group(each, shares=bool(classes)),
                "drawing": _draw(each, f"{label}: {each['label']}", shares=bool(classes))
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


def list_figures(found: Record) -> list[Record]:
    """Returns every figure with its interval, in words."""
    listed = []
    for key, name in _FIGURES.items():
        if key in found:
            ends = [float(found[key][end]) for end in ("value", "low_95", "high_95")]
            value, low, high = (_show(each, shares=key == "accuracy", plain=key == "rmse") for each in ends)
            listed.append({"name": name, "value": value, "low": low, "high": high})
    return listed


def _describe_group(each: Record, *, shares: bool) -> Record:
    """Returns a group with what was predicted and observed of it over all, if the noise lets that be said."""
    record: Record = {"label": each["label"], "records": each.get("records"), "predicted": None}
    record["figures"] = list_figures(each)
    overall = each.get("overall")
    if overall is not None:
        ends = [overall["predicted"], *(overall["observed"][end] for end in ("value", "low_95", "high_95"))]
        shown = [_show(float(end), shares=shares, plain=True) for end in ends]
        record |= dict(zip(("predicted", "value", "low", "high"), shown, strict=True))
    return record


def _show(value: float, *, shares: bool, plain: bool) -> str:
    if shares:
        return f"{100 * value:.1f} %"
    return short(value) if plain else f"{value:.3f}"


def _draw(found: Record, label: str, *, shares: bool) -> Markup | None:
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
