"""A public room: one offline HTML report on a release; what the truth says reaches it as plain records."""

from sfumato.report.axes import Axes, choose_axes
from sfumato.report.facts import Facts, read_facts
from sfumato.report.page import INTERNAL, build_report
from sfumato.report.posterior import Total, posterior_bounds, pure_bounds

__all__ = [
    "INTERNAL",
    "Axes",
    "Facts",
    "Total",
    "build_report",
    "choose_axes",
    "posterior_bounds",
    "pure_bounds",
    "read_facts",
]
