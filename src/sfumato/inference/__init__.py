"""Graphical models from noisy marginals: estimation, marginals, likelihoods and rows.

Post-processing only: it sees measurements and public facts, and cannot import anything that reads records.
"""

from sfumato.inference.domain import Domain, Measurement, Sparse, estimate_total, merge_measurements
from sfumato.inference.estimation import LARGEST_TREE, estimate, fit_model, order_mask
from sfumato.inference.files import pack_model, quantise, unpack_models
from sfumato.inference.model import Model
from sfumato.inference.tree import Growth, Tree, build_tree, tree_cells

__all__ = [
    "LARGEST_TREE",
    "Domain",
    "Growth",
    "Measurement",
    "Model",
    "Sparse",
    "Tree",
    "build_tree",
    "estimate",
    "estimate_total",
    "fit_model",
    "merge_measurements",
    "order_mask",
    "pack_model",
    "quantise",
    "tree_cells",
    "unpack_models",
]
