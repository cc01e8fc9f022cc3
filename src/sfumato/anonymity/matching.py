"""How many people of a register fit a class, by what its generalised labels mean."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from sfumato.anonymity.tables import TableLike, read_table
from sfumato.attack.classes import build_classes
from sfumato.attack.join import join_classes
from sfumato.attack.tables import read_text, require_columns
from sfumato.errors import AnonymityError, AttackError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from sfumato.anonymity.tally import Tally


def match_register(
    tally: Tally, quasi_identifiers: Sequence[str], classes: NDArray[np.int64], register: TableLike
) -> NDArray[np.int64]:
    """For each class of a tally's rows the number of people in `register` whom its labels fit.

    `180-190` fits 185, `1*` fits 1001, `*` and a missing cell fit everybody. A missing cell of the
    register may be anything, too.

    >>> from sfumato.anonymity.tally import tally_rows
    >>> rows = tally_rows({"age": ["60+", "20-40", "60+"]}, ["age"], side="table")
    >>> match_register(rows, ["age"], rows.classes(["age"]), {"age": [61, 72, 33]}).tolist()
    [1, 2]
    """
    first = np.unique(classes, return_index=True)[1]
    places = [tally.columns.index(name) for name in quasi_identifiers]
    labels = pa.table(
        {tally.columns[at]: tally.values[at].take(pa.array(tally.codes[at][first])) for at in places}
    )
    try:
        people = _read(register)
        require_columns(people, quasi_identifiers, side="register")
        mine = build_classes(read_text(labels, side="table"), quasi_identifiers)
    except AttackError as error:
        raise AnonymityError(str(error)) from None
    theirs = build_classes(people, quasi_identifiers)
    fitting = np.zeros(mine.weights.size, np.int64)
    if people.num_rows and labels.num_rows:
        for left, right in join_classes(mine, theirs):
            fitting += np.bincount(left, theirs.weights[right], minlength=fitting.size).astype(np.int64)
    return fitting[mine.of_row]


def _read(register: TableLike) -> pa.Table:
    if isinstance(register, str) or hasattr(register, "__fspath__"):
        return read_text(register, side="register")
    return read_text(read_table(register, side="register"), side="register")
