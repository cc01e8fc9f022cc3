"""Models one may publish: recipes that fit them privately, and released models to predict with.

>>> from sfumato.learn import Additive
>>> Additive(table="adult", target="income").target
'income'
"""

from sfumato.learn.model import (
    AdditivePredictor,
    ClusterPredictor,
    Distribution,
    Model,
    NetworkPredictor,
    Quantile,
    RegressionPredictor,
    open_model,
    parse_model,
)
from sfumato.recipes import Additive, Clusters, Linear, Logistic, Network, Quantiles

__all__ = [
    "Additive",
    "AdditivePredictor",
    "ClusterPredictor",
    "Clusters",
    "Distribution",
    "Linear",
    "Logistic",
    "Model",
    "Network",
    "NetworkPredictor",
    "Quantile",
    "Quantiles",
    "RegressionPredictor",
    "open_model",
    "parse_model",
]
