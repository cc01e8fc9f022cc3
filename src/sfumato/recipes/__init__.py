"""Whole algorithms: from a described table to requests, and from measurements to a release."""

from typing import TYPE_CHECKING

from sfumato._lazy import lend_names

if TYPE_CHECKING:
    from sfumato.recipes.adaptive import Adaptive, Tree
    from sfumato.recipes.adaptive_grid import AdaptiveGrid
    from sfumato.recipes.additive import Additive
    from sfumato.recipes.base import (
        EXTRA_FILES,
        FILE_KEYS,
        MOST_ANSWERS,
        Conversation,
        Plan,
        Product,
        Recipe,
        find_part,
        follow_recipe,
        list_costs,
        parse_epsilons,
        refuse_large_answers,
    )
    from sfumato.recipes.cell_counts import CappedCounts, CellCounts
    from sfumato.recipes.clusters import Clusters
    from sfumato.recipes.field_groups import FieldGroups
    from sfumato.recipes.files import RecipeFile, parse_recipe, parse_record, read_recipe
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
    "EXTRA_FILES",
    "FILE_KEYS",
    "MOST_ANSWERS",
    "Adaptive",
    "AdaptiveGrid",
    "Additive",
    "CappedCounts",
    "CellCounts",
    "Clusters",
    "Conversation",
    "FieldGroups",
    "Hierarchy",
    "Linear",
    "Logistic",
    "Map",
    "Network",
    "Plan",
    "Product",
    "Quantiles",
    "Recipe",
    "RecipeFile",
    "Related",
    "Running",
    "Tree",
    "UserCounts",
    "find_part",
    "follow_recipe",
    "list_costs",
    "parse_epsilons",
    "parse_recipe",
    "parse_record",
    "read_recipe",
    "refuse_large_answers",
]

__getattr__, __dir__ = lend_names(__name__)
