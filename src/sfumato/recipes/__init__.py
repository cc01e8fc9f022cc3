"""Whole algorithms: from a described table to requests, and from measurements to a release."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sfumato.recipes.adaptive import Adaptive, Tree
    from sfumato.recipes.adaptive_grid import AdaptiveGrid
    from sfumato.recipes.additive import Additive
    from sfumato.recipes.cell_counts import CappedCounts, CellCounts
    from sfumato.recipes.clusters import Clusters
    from sfumato.recipes.field_groups import FieldGroups
    from sfumato.recipes.files import parse_recipe, read_recipe
    from sfumato.recipes.hierarchy import Hierarchy
    from sfumato.recipes.linear import Linear
    from sfumato.recipes.logistic import Logistic
    from sfumato.recipes.map import Map
    from sfumato.recipes.network import Network
    from sfumato.recipes.quantiles import Quantiles
    from sfumato.recipes.related import Related
    from sfumato.recipes.running import Running
    from sfumato.recipes.user_counts import UserCounts

__all__ = [
    "Adaptive",
    "AdaptiveGrid",
    "Additive",
    "CappedCounts",
    "CellCounts",
    "Clusters",
    "FieldGroups",
    "Hierarchy",
    "Linear",
    "Logistic",
    "Map",
    "Network",
    "Quantiles",
    "Related",
    "Running",
    "Tree",
    "UserCounts",
    "parse_recipe",
    "read_recipe",
]

# Each is imported when it is first named, so that a command loads only what it needs.
_HOMES = {
    "Adaptive": "adaptive",
    "AdaptiveGrid": "adaptive_grid",
    "Additive": "additive",
    "CappedCounts": "cell_counts",
    "CellCounts": "cell_counts",
    "Clusters": "clusters",
    "FieldGroups": "field_groups",
    "Hierarchy": "hierarchy",
    "Linear": "linear",
    "Logistic": "logistic",
    "Map": "map",
    "Network": "network",
    "Quantiles": "quantiles",
    "Related": "related",
    "Running": "running",
    "Tree": "adaptive",
    "UserCounts": "user_counts",
    "parse_recipe": "files",
    "read_recipe": "files",
}


def __getattr__(name: str) -> Any:  # noqa: ANN401 - any public name
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return list(__all__)
