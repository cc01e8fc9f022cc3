"""What a public table tells: groups of correlated columns, for `field-groups`, and rules, for approval."""

from sfumato.recipes.grouping.association import MEASURE, Partition, make_partition, measure_association
from sfumato.recipes.grouping.groups import Apart, Group, Grouping, find_groups
from sfumato.recipes.grouping.output import draft_recipe, draw_groups
from sfumato.recipes.grouping.rules import (
    ProposedRule,
    PublicCodes,
    draft_rules,
    encode_described,
    encode_values,
    find_rules,
    read_columns,
)

__all__ = [
    "MEASURE",
    "Apart",
    "Group",
    "Grouping",
    "Partition",
    "ProposedRule",
    "PublicCodes",
    "draft_recipe",
    "draft_rules",
    "draw_groups",
    "encode_described",
    "encode_values",
    "find_groups",
    "find_rules",
    "make_partition",
    "measure_association",
    "read_columns",
]
