"""Claims: every number that an agent is given has a name, by which anybody checks it against the ledger.

A name is a digest of the statement and of its whole answer, then the row and the column of the number. To
check one, the statement is asked again for nothing: what the ledger has stored must give the same answer.
"""

from __future__ import annotations

import hashlib
import json
import re
import time
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from sfumato.core.errors import BudgetExceeded, VerificationFailed
from sfumato.core.exact import parse_exact

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from sfumato.curator import Curator
    from sfumato.serve.state import State

_CLAIM = re.compile(r"([0-9a-f]{16})\.([0-9]{1,7})\.([0-9]{1,4})")
_MOST_FIGURES = 200  # listed with an answer; names of the others are made alike


def keep_claim(
    state: State, person: str, text: str, epsilon: object, parameters: Sequence[object], table: pa.Table
) -> str:
    """Remembers the statement of an answer that an agent was given, and returns the name of the answer."""
    name = _name_answer(text, table)
    asked = json.dumps([text, None if epsilon is None else str(epsilon), list(parameters)])
    state.run(
        "INSERT INTO claims VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING", name, person, asked, time.time()
    )
    return name


def list_figures(name: str, table: pa.Table, price: object) -> list[dict[str, Any]]:
    """Returns the numbers of an answer that have an interval, each with its claim and the answer's price."""
    names = table.column_names
    measured = [each for each in names if {f"{each}_low", f"{each}_high"} <= {*names}]
    ends = {f"{each}{end}" for each in measured for end in ("_low", "_high")}
    keys = [each for each in names if each not in {*measured, *ends}]
    rows = table.slice(0, _MOST_FIGURES).to_pylist() if measured else []
    return [
        {
            "of": {key: row[key] for key in keys},
            "column": each,
            "value": row[each],
            "interval": [row[f"{each}_low"], row[f"{each}_high"]],
            "price": price,
            "claim": f"{name}.{place}.{names.index(each)}",
        }
        for place, row in enumerate(rows)
        for each in measured
    ][:_MOST_FIGURES]


def check_claim(curator: Curator, state: State, claim: str) -> dict[str, Any]:
    """Returns what a claim says, if the ledger still gives the same answer; else why it does not hold."""
    found = _CLAIM.fullmatch(claim)
    rows = state.run("SELECT person, asked, asked_at FROM claims WHERE name = ?", found[1]) if found else []
    if found is None or not rows:
        raise VerificationFailed(f"no answer of this server has the claim {claim[:60]!r}")
    ((person, asked, at),) = rows
    text, epsilon, parameters = json.loads(asked)
    try:
        answer = curator.sql(
            text,
            epsilon=None if epsilon is None else parse_exact(epsilon, name="epsilon"),
            parameters=parameters,
            at_most=Fraction(0),
        )
    except BudgetExceeded:
        raise VerificationFailed(
            f"the records were replaced since {claim} was given, so its answer cannot be had again: {text}"
        ) from None
    table, row, column = answer.table, int(found[2]), int(found[3])
    if _name_answer(text, table) != found[1]:
        raise VerificationFailed(
            f"the ledger gives another answer now than when {claim} was given; ask again: {text}"
        )
    names = table.column_names
    if row >= table.num_rows or column >= len(names):
        raise VerificationFailed(f"the answer has no row and column of {claim}: {text}")
    name, values = names[column], table.slice(row, 1).to_pylist()[0]
    ends = [values.get(f"{name}_low"), values.get(f"{name}_high")]
    return {
        "claim": claim,
        "statement": text,
        "asked_by": person,
        "asked_at": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(at)),
        "row": {key: value for key, value in values.items() if not key.endswith(("_low", "_high"))},
        "column": name,
        "value": values[name],
        "interval": None if None in ends else ends,
        "holds": True,
    }


def _name_answer(text: str, table: pa.Table) -> str:
    content = json.dumps([text, table.column_names, table.to_pylist()], default=str)
    return hashlib.sha256(content.encode("utf-8", "replace")).hexdigest()[:16]
