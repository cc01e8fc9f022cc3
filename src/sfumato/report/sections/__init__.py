"""The sections of a report, in their order: each is a function from the story to markup."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sfumato.report.sections.accuracy import tell_accuracy
from sfumato.report.sections.ledger import tell_ledger
from sfumato.report.sections.marginals import tell_marginals
from sfumato.report.sections.places import tell_places
from sfumato.report.sections.privacy import tell_privacy
from sfumato.report.sections.public import tell_dictionary, tell_public
from sfumato.report.sections.released import tell_released
from sfumato.report.sections.reproduce import tell_reproduction
from sfumato.report.sections.truth import tell_truth
from sfumato.report.sections.usage import tell_usage

if TYPE_CHECKING:
    from collections.abc import Callable

    from sfumato.report.html import Html
    from sfumato.report.story import Story

__all__ = ["SECTIONS"]

SECTIONS: tuple[tuple[str, str, Callable[[Story], Html | None]], ...] = (
    ("released", "What was released", tell_released),
    ("privacy", "What it says about one individual", tell_privacy),
    ("ledger", "What it cost", tell_ledger),
    ("accuracy", "How exact it is", tell_accuracy),
    ("marginals", "Worst marginals first", tell_marginals),
    ("places", "Place and time", tell_places),
    ("truth", "Against the truth", tell_truth),
    ("public", "What is public, and what is not covered", tell_public),
    ("usage", "How to use noisy numbers", tell_usage),
    ("dictionary", "Data dictionary", tell_dictionary),
    ("reproduce", "How to check and reproduce it", tell_reproduction),
)
"""The name, the heading and the teller of every section; one that returns None is left out."""
