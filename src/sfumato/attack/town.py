"""An invented town to attack: a register with names, and the records of its hospital without them.

Every value is a digest of a public word and a number, so the town is the same on every machine. Nobody
in it exists.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, timedelta
from hashlib import blake2b

import pyarrow as pa

from sfumato.errors import AttackError

_FIRST = ("Ada", "Bo", "Cleo", "Dag", "Edda", "Finn", "Gro", "Hal", "Ida", "Jon", "Kaja", "Leif")
_LAST = ("Ash", "Birch", "Cedar", "Elm", "Fir", "Hazel", "Larch", "Maple", "Oak", "Pine", "Rowan", "Yew")
POSTCODES = ("1001", "1002", "1243", "1250", "1388", "2010", "2044", "2139", "6732", "6910")
DIAGNOSES = ("flu", "fracture", "asthma", "diabetes", "migraine", "depression", "hepatitis", "cancer")
_BORN = date(1925, 1, 1)
_DAYS = 365 * 85


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Town:
    """`register` has name, birthday, postcode and sex of everybody; `patients` the same and a diagnosis."""

    register: pa.Table
    patients: pa.Table

    @property
    def published(self) -> pa.Table:
        """The records of the hospital without the names, as such records were once given away."""
        return self.patients.drop_columns(["name"])


def invent_town(people: int, *, word: str = "sfumato") -> Town:
    """A town of so many people, of whom about one in four was at the hospital.

    >>> town = invent_town(1000)
    >>> town.register.num_rows, town.published.column_names
    (1000, ['birthday', 'postcode', 'sex', 'diagnosis'])
    """
    if not 1 <= people <= 10**7:
        raise AttackError("a town has from 1 to 10,000,000 people")
    columns: dict[str, list[str]] = {name: [] for name in ("name", "birthday", "postcode", "sex")}
    diagnoses, chosen = [], []
    for number in range(people):
        first, last, day, post, sex, ill, at_hospital = _draw(word, number)
        columns["name"].append(f"{_FIRST[first % len(_FIRST)]} {_LAST[last % len(_LAST)]} {number}")
        columns["birthday"].append((_BORN + timedelta(days=day % _DAYS)).isoformat())
        columns["postcode"].append(POSTCODES[_unequal(post, len(POSTCODES))])
        columns["sex"].append("fm"[sex % 2])
        diagnoses.append(DIAGNOSES[_unequal(ill, len(DIAGNOSES))])
        chosen.append(at_hospital % 4 == 0)
    register = pa.table(columns)
    patients = register.append_column("diagnosis", pa.array(diagnoses)).filter(pa.array(chosen))
    return Town(register=register, patients=patients)


def _draw(word: str, number: int) -> tuple[int, ...]:
    """Seven numbers of 32 bits that look drawn."""
    digest = blake2b(f"{word}/{number}".encode(), digest_size=28).digest()
    return tuple(int.from_bytes(digest[start : start + 4], "big") for start in range(0, 28, 4))


def _unequal(draw: int, size: int) -> int:
    """A place below `size`, the first ones more often: the lesser of two equal draws."""
    return min(draw % 65536 * size // 65536, (draw >> 16) * size // 65536)
