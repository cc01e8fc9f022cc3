"""Attacks, on the private side: linkage of releases with registers, and two that fail against DP-SELECT."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from sfumato.attack.link import (
    FEW,
    INTERNAL,
    Linkage,
    Published,
    Revealed,
    Verdict,
    describe_linkage,
    link_tables,
    read_text,
)
from sfumato.attack.matching import Pattern, compatible, is_exact, parse_pattern
from sfumato.attack.published import open_published, read_identities
from sfumato.core.errors import AttackError

if TYPE_CHECKING:
    from sfumato.attack.demonstrations import (
        AverageAttack,
        DifferenceAttack,
        Town,
        describe_average,
        describe_difference,
        invent_town,
        run_average,
        run_difference,
    )

__all__ = [
    "FEW",
    "INTERNAL",
    "AttackError",
    "AverageAttack",
    "DifferenceAttack",
    "Linkage",
    "Pattern",
    "Published",
    "Revealed",
    "Town",
    "Verdict",
    "compatible",
    "describe_average",
    "describe_difference",
    "describe_linkage",
    "invent_town",
    "is_exact",
    "link_tables",
    "open_published",
    "parse_pattern",
    "read_identities",
    "read_text",
    "run_average",
    "run_difference",
]


def __getattr__(name: str) -> Any:  # noqa: ANN401 - any public name
    # The demonstrations ask a curator, which whoever only joins tables must not load.
    if name not in __all__:
        raise AttributeError(f"module 'sfumato.attack' has no attribute {name!r}")
    return getattr(import_module("sfumato.attack.demonstrations"), name)
