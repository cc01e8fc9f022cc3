"""Models one may publish: recipes that fit them privately, and released models to predict with.

>>> from sfumato.learn import Additive
>>> Additive(table="adult", target="income").target
'income'
"""

from sfumato.inference.models.cumulative import Quantile
from sfumato.learn.model import (
    AdditivePredictor,
    ClusterPredictor,
    Distribution,
    Model,
    NetworkPredictor,
    RegressionPredictor,
    open_model,
    parse_model,
)
from sfumato.recipes.additive import Additive
from sfumato.recipes.clusters import Clusters
from sfumato.recipes.linear import Linear
from sfumato.recipes.logistic import Logistic
from sfumato.recipes.network import Network
from sfumato.recipes.quantiles import Quantiles

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
