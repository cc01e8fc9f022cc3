"""Public facts: what may be known about a table before a single record is read.

A `domain` says which values there are, a `column` where they are stored and how they are written, a
`table` whom it protects, a `project` what may be spent. `reading` reads files from outside within limits.
"""

from typing import TYPE_CHECKING

from sfumato._lazy import lend_names

if TYPE_CHECKING:
    from sfumato.schema.codebook import read_codebook
    from sfumato.schema.column import (
        OTHER,
        Column,
        column_spec,
        parse_column,
        refuse_unknown_keys,
        suggest_name,
    )
    from sfumato.schema.contest import Parameters, Run, read_parameters
    from sfumato.schema.domain import Bins, Domain, IntegerRange, Label, Period, Tuples, Values
    from sfumato.schema.draft import Known, draft_project, merge_known, name_table
    from sfumato.schema.family import Family, relate_tables
    from sfumato.schema.part import Part, split_people
    from sfumato.schema.project import (
        Project,
        parse_project,
        parse_toml,
        quote_key,
        quote_toml,
        read_project,
        read_toml,
        refuse_private_file,
    )
    from sfumato.schema.table import PublicTable, Table, cap_records, parse_table, table_spec

__all__ = [
    "OTHER",
    "Bins",
    "Column",
    "Domain",
    "Family",
    "IntegerRange",
    "Known",
    "Label",
    "Parameters",
    "Part",
    "Period",
    "Project",
    "PublicTable",
    "Run",
    "Table",
    "Tuples",
    "Values",
    "cap_records",
    "column_spec",
    "draft_project",
    "merge_known",
    "name_table",
    "parse_column",
    "parse_project",
    "parse_table",
    "parse_toml",
    "quote_key",
    "quote_toml",
    "read_codebook",
    "read_parameters",
    "read_project",
    "read_toml",
    "refuse_private_file",
    "refuse_unknown_keys",
    "relate_tables",
    "split_people",
    "suggest_name",
    "table_spec",
]

__getattr__, __dir__ = lend_names(__name__)
