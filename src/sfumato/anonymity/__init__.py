"""k-anonymity, on the private side: not differential privacy, and its outputs say so."""

from sfumato.anonymity.anonymize import Released, anonymize, release_table
from sfumato.anonymity.check import Anonymity, measure_anonymity
from sfumato.anonymity.hierarchy import (
    Dates,
    Groups,
    Hierarchy,
    Intervals,
    Listed,
    Prefixes,
    Suppressed,
)
from sfumato.anonymity.hierarchy_files import parse_hierarchy, read_hierarchies
from sfumato.anonymity.options import METHODS, Options
from sfumato.errors import AnonymityError

__all__ = [
    "METHODS",
    "Anonymity",
    "AnonymityError",
    "Dates",
    "Groups",
    "Hierarchy",
    "Intervals",
    "Listed",
    "Options",
    "Prefixes",
    "Released",
    "Suppressed",
    "anonymize",
    "measure_anonymity",
    "parse_hierarchy",
    "read_hierarchies",
    "release_table",
]
