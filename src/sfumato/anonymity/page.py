"""One offline HTML file about a released table, in the look of the project's reports. Internal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sfumato.anonymity.check import NOT_DP
from sfumato.anonymity.summary import MATCHING, Summary, list_models
from sfumato.pages.charts import draw_pairs
from sfumato.pages.render import render_page

if TYPE_CHECKING:
    from sfumato.anonymity.risk import Risk

_SECTIONS = {
    "found": "Asked and found",
    "sizes": "The size of the crowd",
    "attackers": "Three attackers",
    "subsets": "Columns that identify",
    "loss": "What was lost",
    "accuracy": "What can still be learned",
    "linkage": "Linkage with the register",
    "limits": "What this does not protect against",
}


def build_page(summary: Summary, *, name: str) -> bytes:
    """The page about the file called `name`: one HTML file without any request, the same for the same input.

    >>> from sfumato.anonymity import Options, release_table
    >>> from sfumato.anonymity.summary import summarise
    >>> options = Options(quasi_identifiers=["age"], k=2)
    >>> found = summarise(release_table({"age": [61, 72, 40, 35]}, options))
    >>> build_page(found, name="coarse.csv")[:15]
    b'<!doctype html>'
    """
    records = {
        "found": {
            "models": [
                (each.removesuffix(" ="), asked, found) for each, found, asked in list_models(summary)
            ],
            "matching": MATCHING.replace("`*`", "*"),
        },
        "sizes": {"drawing": _draw_sizes(summary)},
        "attackers": {},
        "subsets": {} if summary.subsets else None,
        "loss": {
            "ncp": sorted(summary.loss.by_column.items(), key=lambda each: -each[1]),
            "entropy": sorted(summary.loss.entropy_by_column.items(), key=lambda each: -each[1]),
        },
        "accuracy": None if summary.accuracy is None else {},
        "linkage": None if summary.linked_before is None or summary.linked_after is None else {},
        "limits": {},
    }
    sections: list[dict[str, Any]] = [
        {"name": key, "heading": heading, "template": f"anonymity/{key}.html", "record": records[key]}
        for key, heading in _SECTIONS.items()
        if records[key] is not None
    ]
    return render_page(
        "anonymity/page.html",
        title=f"how anonymous is {name}?",
        internal=True,
        notice="facts of the original table, do not publish",
        printed="facts of the original table",
        sections=sections,
        summary=summary,
        name=name,
        not_dp=NOT_DP,
    )


def _draw_sizes(summary: Summary) -> str:
    def shares(risk: Risk) -> list[float]:
        return [each.records / max(1, risk.records) for each in risk.sizes]

    return draw_pairs(
        [each.label for each in summary.after.sizes],
        shares(summary.before),
        shares(summary.after),
        f"share of the {summary.counted} by the size of their class, in the original and the released table",
    )
