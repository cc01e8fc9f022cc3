"""Tables in and out: the one reader of files and frames, the one durable writer, numpy and Arrow.

Whoever reads a file reads it here: a separator, an encoding and an empty cell mean the same everywhere.
"""

from typing import TYPE_CHECKING

from sfumato._lazy import lend_names

if TYPE_CHECKING:
    from sfumato.tables.arrays import label_array, read_parquet, text_array, to_arrow, to_numpy
    from sfumato.tables.contents import guard_formulas, restore_formulas, table_to_csv, table_to_parquet
    from sfumato.tables.opening import TEXT_FILES
    from sfumato.tables.read import (
        TableLike,
        give_back,
        guess_kinds,
        is_text,
        parse_table,
        read_pieces,
        read_table,
        require_columns,
        spell_table,
        to_polars,
    )
    from sfumato.tables.write import check_file, write_file, write_folder

__all__ = [
    "TEXT_FILES",
    "TableLike",
    "check_file",
    "give_back",
    "guard_formulas",
    "guess_kinds",
    "is_text",
    "label_array",
    "parse_table",
    "read_parquet",
    "read_pieces",
    "read_table",
    "require_columns",
    "restore_formulas",
    "spell_table",
    "table_to_csv",
    "table_to_parquet",
    "text_array",
    "to_arrow",
    "to_numpy",
    "to_polars",
    "write_file",
    "write_folder",
]

__getattr__, __dir__ = lend_names(__name__)
