"""A public room: one offline HTML report on a release; what the truth says reaches it as plain records."""

from typing import TYPE_CHECKING

from sfumato._lazy import lend_names

if TYPE_CHECKING:
    from sfumato.accounting.posterior import Total, posterior_bounds, pure_bounds
    from sfumato.pages.render import INTERNAL
    from sfumato.report.evaluation import list_figures
    from sfumato.report.facts import Facts, read_facts
    from sfumato.report.fields import Axes, choose_axes
    from sfumato.report.geography import Geography, read_geography
    from sfumato.report.model import build_model_report, has_model
    from sfumato.report.page import build_report, find_axes, place_on_map
    from sfumato.report.truth import choose_cells

__all__ = [
    "INTERNAL",
    "Axes",
    "Facts",
    "Geography",
    "Total",
    "build_model_report",
    "build_report",
    "choose_axes",
    "choose_cells",
    "find_axes",
    "has_model",
    "list_figures",
    "place_on_map",
    "posterior_bounds",
    "pure_bounds",
    "read_facts",
    "read_geography",
]

__getattr__, __dir__ = lend_names(__name__)
