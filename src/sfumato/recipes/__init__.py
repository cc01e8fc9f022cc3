"""Whole algorithms: from a described table to requests, and from measurements to a release."""

from typing import TYPE_CHECKING, Any

from sfumato.recipes.files import RECIPES, find_recipe, parse_recipe, read_recipe

if TYPE_CHECKING:  # for editors, which do not look into the room
    from sfumato.recipes.adaptive import Adaptive as Adaptive
    from sfumato.recipes.adaptive_grid import AdaptiveGrid as AdaptiveGrid
    from sfumato.recipes.additive import Additive as Additive
    from sfumato.recipes.capped_counts import CappedCounts as CappedCounts
    from sfumato.recipes.cell_counts import CellCounts as CellCounts
    from sfumato.recipes.clusters import Clusters as Clusters
    from sfumato.recipes.field_groups import FieldGroups as FieldGroups
    from sfumato.recipes.hierarchy import Hierarchy as Hierarchy
    from sfumato.recipes.linear import Linear as Linear
    from sfumato.recipes.logistic import Logistic as Logistic
    from sfumato.recipes.map import Map as Map
    from sfumato.recipes.network import Network as Network
    from sfumato.recipes.quantiles import Quantiles as Quantiles
    from sfumato.recipes.related import Related as Related
    from sfumato.recipes.running import Running as Running
    from sfumato.recipes.tree import Tree as Tree
    from sfumato.recipes.user_counts import UserCounts as UserCounts

# Each is imported when it is first named, so that a command loads only what it needs.
_KINDS = {found: kind for kind, found in RECIPES.items() if isinstance(found, str)}

__all__ = [*_KINDS, "parse_recipe", "read_recipe"]


def __getattr__(name: str) -> Any:  # noqa: ANN401 - any recipe
    if name not in _KINDS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return find_recipe(_KINDS[name])


def __dir__() -> list[str]:
    return list(__all__)
