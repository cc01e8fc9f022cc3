"""Attacks, on the private side: linkage of releases with registers, and two that fail against DP-SELECT."""

from sfumato.attack.demonstrations import (
    AverageAttack,
    DifferenceAttack,
    Town,
    invent_town,
    run_average,
    run_difference,
)
from sfumato.attack.link import FEW, INTERNAL, Linkage, Revealed, Verdict, link_tables
from sfumato.attack.matching import Pattern, compatible, is_exact, parse_pattern
from sfumato.attack.tables import Published, open_published, read_text
from sfumato.attack.truth import read_identities
from sfumato.attack.words import describe_average, describe_difference, describe_linkage
from sfumato.errors import AttackError

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
