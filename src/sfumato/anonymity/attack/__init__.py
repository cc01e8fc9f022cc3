"""Linkage: finding people of a register in a published table. Internal, on the private side."""

from sfumato.anonymity.attack.link import (
    FEW,
    INTERNAL,
    Linkage,
    Published,
    Revealed,
    Verdict,
    describe_linkage,
    link_tables,
    open_published,
    read_identities,
    read_text,
)
from sfumato.anonymity.attack.matching import Pattern, compatible, is_exact, parse_pattern
from sfumato.core.errors import AttackError

__all__ = [
    "FEW",
    "INTERNAL",
    "AttackError",
    "Linkage",
    "Pattern",
    "Published",
    "Revealed",
    "Verdict",
    "compatible",
    "describe_linkage",
    "is_exact",
    "link_tables",
    "open_published",
    "parse_pattern",
    "read_identities",
    "read_text",
]
