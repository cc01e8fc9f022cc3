"""Whole algorithms: from a described table to requests, and from measurements to a release."""

from sfumato.recipes.base import Plan, Recipe, parse_delta, parse_epsilons, refuse_large_answers
from sfumato.recipes.cell_counts import CellCounts
from sfumato.recipes.files import RecipeFile, parse_recipe, read_recipe

__all__ = [
    "CellCounts",
    "Plan",
    "Recipe",
    "RecipeFile",
    "parse_delta",
    "parse_epsilons",
    "parse_recipe",
    "read_recipe",
    "refuse_large_answers",
]
