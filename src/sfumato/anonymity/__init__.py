"""k-anonymity, on the private side: not differential privacy, and its outputs say so.

quasi-identifier   a column that others may know of a person, such as age or postcode
equivalence class  the records whose quasi-identifiers are all released the same; k-anonymity: k at least
generalization     coarser values: a range, a set of values, or a node of a hierarchy; `*` is any value
suppression        a record that is left out, or a cell that is `*`
l-diversity, t-closeness, delta-disclosure   what a class may disclose of a sensitive column
tuple              a combination of codes of the quasi-identifiers; algorithms see each once, with its rows

The methods by the names of the literature: `strict` and `relaxed` are Mondrian's, `cuts` is Mondrian with
the cuts that lose least, `local` is local recoding, `lattice` the optimal full-domain generalization,
`microaggregate` MDAV.
"""

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
from sfumato.anonymity.options import METHODS, Options, parse_hierarchy, read_hierarchies
from sfumato.anonymity.release import Released, anonymize, release_table
from sfumato.core.errors import AnonymityError

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
