"""How close a release is to the truth: the contests' own metrics, and general ones.

What is measured here is made of the private records. It is internal and not private: nothing of it
may be published as it is.
"""

from sfumato.core.errors import MetricError
from sfumato.metrics.compare import INTERNAL, Comparison, compare_pair, compare_tables
from sfumato.metrics.encode import CodedPair, Side, encode_pair
from sfumato.metrics.k_marginal import KMarginal, k_marginal
from sfumato.metrics.match3 import Match3, match3
from sfumato.metrics.pie import PieChart, PieComponents, pie_chart
from sfumato.metrics.taxi import Taxi, taxi

__all__ = [
    "INTERNAL",
    "CodedPair",
    "Comparison",
    "KMarginal",
    "Match3",
    "MetricError",
    "PieChart",
    "PieComponents",
    "Side",
    "Taxi",
    "compare_pair",
    "compare_tables",
    "encode_pair",
    "k_marginal",
    "match3",
    "pie_chart",
    "taxi",
]
