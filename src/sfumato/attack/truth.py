"""Whose record a published row really is, from a file that only the holder of the records has."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from sfumato.attack.tables import read_text, require_columns
from sfumato.errors import AttackError

if TYPE_CHECKING:
    from sfumato.attack.tables import Published


def read_identities(
    release: Published, truth: pa.Table, *, identity: str, key: str | None = None
) -> pa.Array:
    """The identity behind every row of `release`: the row of `truth` at the same place, or of the same `key`.

    >>> from sfumato.attack import open_published
    >>> rows = open_published(pa.table({"id": ["2", "1"], "age": ["60+", "20-40"]}))
    >>> truth = pa.table({"id": ["1", "2"], "name": ["Ada", "Bo"]})
    >>> read_identities(rows, truth, identity="name", key="id").to_pylist()
    ['Bo', 'Ada']
    """
    truth = read_text(truth, side="truth")
    require_columns(truth, [identity, *([] if key is None else [key])], side="truth")
    if (release.weights != 1).any():
        raise AttackError("a release of counts has no record to compare; leave the truth out")
    owners = truth[identity]
    if key is None:
        if truth.num_rows != release.table.num_rows:
            raise AttackError(
                "truth and release have different numbers of rows; name a column of both that joins them"
            )
        return owners.combine_chunks()
    require_columns(release.table, [key], side="release")
    names = truth[key].to_pylist()
    known = dict(zip(names, owners.to_pylist(), strict=True))
    if len(known) != len(names):
        raise AttackError(f"truth: column {key!r} has a value twice, so it does not tell rows apart")
    return pa.array([known.get(value) for value in release.table[key].to_pylist()], pa.string())
