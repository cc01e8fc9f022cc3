"""Graphical models from noisy marginals: estimation, marginals, likelihoods and rows.

Post-processing only: it sees measurements and public facts, and cannot import anything that reads records.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # for editors, which do not look into the room
    from sfumato.inference.domain import Domain as Domain
    from sfumato.inference.domain import Measurement as Measurement
    from sfumato.inference.domain import Sparse as Sparse
    from sfumato.inference.domain import estimate_total as estimate_total
    from sfumato.inference.domain import merge_measurements as merge_measurements
    from sfumato.inference.estimation import LARGEST_TREE as LARGEST_TREE
    from sfumato.inference.estimation import estimate as estimate
    from sfumato.inference.estimation import fit_model as fit_model
    from sfumato.inference.estimation import order_mask as order_mask
    from sfumato.inference.files import pack_model as pack_model
    from sfumato.inference.files import quantise as quantise
    from sfumato.inference.files import unpack_models as unpack_models
    from sfumato.inference.model import Model as Model
    from sfumato.inference.tree import Growth as Growth
    from sfumato.inference.tree import Tree as Tree
    from sfumato.inference.tree import build_tree as build_tree
    from sfumato.inference.tree import tree_cells as tree_cells

# Each is imported when it is first named, so that a statement loads only what it needs.
_PLACES = {
    "Domain": "domain",
    "Growth": "tree",
    "LARGEST_TREE": "estimation",
    "Measurement": "domain",
    "Model": "model",
    "Sparse": "domain",
    "Tree": "tree",
    "build_tree": "tree",
    "estimate": "estimation",
    "estimate_total": "domain",
    "fit_model": "estimation",
    "merge_measurements": "domain",
    "order_mask": "estimation",
    "pack_model": "files",
    "quantise": "files",
    "tree_cells": "tree",
    "unpack_models": "files",
}

__all__ = [*_PLACES]


def __getattr__(name: str) -> Any:  # noqa: ANN401 - any public name
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_PLACES[name]}"), name)
