"""Groups of correlated columns, found in a public table: what the recipe `field-groups` starts from."""

from sfumato.grouping.association import MEASURE, measure_association
from sfumato.grouping.groups import Apart, Group, Grouping, find_groups
from sfumato.grouping.partition import Partition, make_partition
from sfumato.grouping.picture import draw_groups
from sfumato.grouping.public import PublicCodes, encode_described, encode_values, read_columns
from sfumato.grouping.recipe import draft_recipe
from sfumato.grouping.text import list_names, plain_text

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
    "list_names",
    "make_partition",
    "measure_association",
    "plain_text",
    "read_columns",
]
