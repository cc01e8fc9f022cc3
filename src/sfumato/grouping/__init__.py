"""Groups of correlated columns, found in a public table: what the recipe `field-groups` starts from."""

from sfumato.grouping.association import MEASURE, Partition, make_partition, measure_association
from sfumato.grouping.groups import Apart, Group, Grouping, find_groups
from sfumato.grouping.output import draft_recipe, draw_groups
from sfumato.grouping.public import PublicCodes, encode_described, encode_values, read_columns

__all__ = [
    "MEASURE",
    "Apart",
    "Group",
    "Grouping",
    "Partition",
    "PublicCodes",
    "draft_recipe",
    "draw_groups",
    "encode_described",
    "encode_values",
    "find_groups",
    "make_partition",
    "measure_association",
    "read_columns",
]
