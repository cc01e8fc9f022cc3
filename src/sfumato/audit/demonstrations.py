"""Two attacks on an invented clinic that plain SQL falls to and DP-SELECT withstands.

The difference attack asks two harmless counts whose difference is a person's secret. The averaging attack
asks one count over and over until its noise is averaged away. The clinic's patients live in an invented town:
every value is a digest of a public word and a number, so the town is the same on every machine, and nobody in
it exists.
"""

from __future__ import annotations

import json
import math
import tempfile
import tomllib
from collections import Counter
from dataclasses import asdict, dataclass
from datetime import date, timedelta
from fractions import Fraction
from hashlib import blake2b
from importlib.resources import files
from pathlib import Path
from statistics import fmean
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from sfumato.anonymity.attack.link import INTERNAL
from sfumato.core.errors import AttackError, BudgetExceeded
from sfumato.core.exact import NORMAL_95, ExactLike, format_exact, parse_positive
from sfumato.core.law import make_law
from sfumato.curator import Curator, open_project
from sfumato.report.explain.guarantee import Guarantee, belief_bounds
from sfumato.report.pages.render import render_text

_CLINIC = tomllib.loads(files(__package__).joinpath("clinic.toml").read_text("utf-8"))
POSTCODES: list[str] = _CLINIC["postcodes"]
DIAGNOSES: list[str] = _CLINIC["diagnoses"]
_BORN = date(1925, 1, 1)
_DAYS = 365 * 85

SECRET = "cancer"
_YEAR = 2010  # in which ages are counted
_MOST_STATEMENTS = 200  # that a demonstration asks and pays for
_MOST_REPEATS = 10_000
_HALF = 0.5  # an estimate nearer to a count than this is the count once it is rounded


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
    """Returns a town of so many people, of whom about one in four was at the hospital.

    >>> town = invent_town(1000)
    >>> town.register.num_rows, town.published.column_names
    (1000, ['birthday', 'postcode', 'sex', 'diagnosis'])
    """
    if not 1 <= people <= 10**7:
        raise AttackError("a town has from 1 to 10,000,000 people")
    columns: dict[str, list[str]] = {name: [] for name in ("name", "birthday", "postcode", "sex")}
    diagnoses, chosen = [], []
    firsts, lasts = _CLINIC["first_names"], _CLINIC["last_names"]
    for number in range(people):
        first, last, day, post, sex, ill, at_hospital = _draw(word, number)
        columns["name"].append(f"{firsts[first % len(firsts)]} {lasts[last % len(lasts)]} {number}")
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
    """Returns a place below `size`, the first ones more often: the lesser of two equal draws."""
    return min(draw % 65536 * size // 65536, (draw >> 16) * size // 65536)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """A noisy count with its interval of 95 %, and what was charged for it."""

    value: int
    low: int
    high: int
    spent: Fraction
    repeated: bool

    def to_record(self) -> dict[str, object]:
        """Returns the reply for JSON."""
        return asdict(self) | {"spent": format_exact(self.spent)}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Clinic:
    """The curator of an invented clinic, and the condition that fits one of its patients only."""

    curator: Curator
    file: Path
    epsilon: Fraction
    budget: Fraction
    target: str

    def count(self, condition: str) -> int:
        """Returns the exact number of records, as a plain database gives it."""
        query = f"SELECT COUNT(*) FROM read_parquet(?) WHERE {condition}"
        with duckdb.connect(config={"temp_directory": ""}) as connection:
            found = connection.execute(query, [str(self.file)]).fetchone()
        return 0 if found is None else int(found[0])

    def ask(self, condition: str) -> Reply:
        """Returns the noisy number of records, charged to the ledger of the clinic."""
        text = f"DP-SELECT {format_exact(self.epsilon)} COUNT(*) AS n FROM patients WHERE {condition}"
        answer = self.curator.sql(text)
        (row,) = answer.table.to_pylist()
        return Reply(
            value=row["n"],
            low=row["n_low"],
            high=row["n_high"],
            spent=answer.spent,
            repeated=answer.repeated,
        )


def _open_clinic(
    folder: Path, *, epsilon: ExactLike, budget: ExactLike, people: int = 2000, least: int = 1
) -> Clinic:
    """Returns a clinic in `folder`, which asks `epsilon` for a count and has `budget` to spend in all.

    Its town has so many `people`. The budget must pay for `least` counts, and for 200 at most.
    """
    each = parse_positive(epsilon, name="epsilon")
    total = parse_positive(budget, name="budget")
    if not least <= total / each <= _MOST_STATEMENTS:
        raise AttackError(
            f"the budget must pay for at least {least} and at most {_MOST_STATEMENTS} counts of this epsilon"
        )
    patients = invent_town(people).patients
    ages = [_YEAR - int(birthday[:4]) for birthday in patients["birthday"].to_pylist()]
    table = patients.drop_columns(["birthday"]).append_column("age", pa.array(ages))
    target = _find_target(table)
    file = folder / "patients.parquet"
    pq.write_table(table, file)
    project = folder / "sfumato.toml"
    text = _CLINIC["project"].format(
        epsilon=format_exact(total), postcodes=json.dumps(POSTCODES), diagnoses=json.dumps(DIAGNOSES)
    )
    project.write_text(text, encoding="utf-8")
    return Clinic(curator=open_project(project), file=file, epsilon=each, budget=total, target=target)


def _noise_deviation(epsilon: Fraction) -> float:
    """Returns the standard deviation of the noise of a count at `epsilon`, one record per person."""
    return make_law("laplace", 1 / epsilon).deviation


def _find_target(table: pa.Table) -> str:
    rows = table.select(["age", "postcode", "sex", "diagnosis"]).to_pylist()
    seen = Counter((row["age"], row["postcode"], row["sex"]) for row in rows)
    for row in rows:
        if row["diagnosis"] == SECRET and seen[row["age"], row["postcode"], row["sex"]] == 1:
            return f"age = {row['age']} AND postcode = '{row['postcode']}' AND sex = '{row['sex']}'"
    raise AttackError("nobody in so small a clinic can be singled out; take more people")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Attack:
    """What an attack got from a clinic until its budget was spent, with the deviation of its estimate."""

    epsilon: Fraction
    budget: Fraction
    spent: Fraction
    refused: bool
    estimate: float
    deviation: float

    def describe_outcome(self, name: str) -> dict[str, Any]:
        """Returns what the records of both attacks have."""
        amounts = {key: format_exact(getattr(self, key)) for key in ("epsilon", "budget", "spent")}
        plain = {key: getattr(self, key) for key in ("estimate", "deviation", "refused")}
        return {"internal": INTERNAL, "attack": name, **amounts, **plain}


@dataclass(frozen=True, slots=True, kw_only=True)
class DifferenceAttack(_Attack):
    """What the attack got from plain SQL, and from DP-SELECT until the budget was spent.

    `exact` are the counts with and without the target, whose difference, 1 for yes, is the secret. `rounds`
    are pairs of noisy counts, `estimate` is their mean difference. `belief` bounds the belief in the secret
    after everything that was answered, for whoever believed one half.
    """

    conditions: tuple[str, str]
    exact: tuple[int, int]
    exact_difference: int
    rounds: tuple[tuple[Reply, Reply], ...]
    belief: tuple[float, float]

    def to_record(self) -> dict[str, Any]:
        """Returns the attack for JSON."""
        return self.describe_outcome("difference") | {
            "conditions": list(self.conditions),
            "plain_sql": {"counts": list(self.exact), "difference": self.exact_difference},
            "rounds": [[reply.to_record() for reply in pair] for pair in self.rounds],
            "belief": {"prior": 0.5, "low": self.belief[0], "high": self.belief[1]},
        }


def run_difference(
    *, epsilon: ExactLike = "0.1", budget: ExactLike = 1, people: int = 2000
) -> DifferenceAttack:
    """Runs the attack on an invented clinic in a temporary folder, until its budget is spent.

    >>> attack = run_difference(epsilon="0.5", budget=2)
    >>> attack.exact_difference, len(attack.rounds), attack.refused
    (1, 2, True)
    """
    with tempfile.TemporaryDirectory() as folder:
        clinic = _open_clinic(Path(folder), epsilon=epsilon, budget=budget, people=people, least=2)
        everybody = f"diagnosis = '{SECRET}'"
        others = f"{everybody} AND NOT ({clinic.target})"
        rounds: list[tuple[Reply, Reply]] = []
        spent, refused = Fraction(0), False
        while not refused:
            # The same statement again is the same answer, so each round words it anew.
            same = f" AND age > -{1 + len(rounds)}"
            try:
                first = clinic.ask(everybody + same)
                spent += first.spent
                second = clinic.ask(others + same)
                spent += second.spent
                rounds.append((first, second))
            except BudgetExceeded:
                refused = True
        exact = (clinic.count(everybody), clinic.count(others))
        # To change a value is to remove one record and to add another.
        changed = Guarantee(kind="epsilon", amount=2 * spent)
        return DifferenceAttack(
            conditions=(everybody, others),
            exact=exact,
            exact_difference=exact[0] - exact[1],
            epsilon=clinic.epsilon,
            budget=clinic.budget,
            rounds=tuple(rounds),
            spent=spent,
            refused=refused,
            estimate=fmean(first.value - second.value for first, second in rounds),
            deviation=_noise_deviation(clinic.epsilon) * math.sqrt(2 / len(rounds)),
            belief=belief_bounds(changed, Fraction(1, 2)),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class AverageAttack(_Attack):
    """What asking the same count over and over gave.

    `repeats` are replies to one statement, word for word, of `different` values; they cost `repeats_spent`.
    `reworded` are replies to statements that mean the same and are not the same, each paid for, until the
    budget was spent. So `paid` replies had noise of their own, and `estimate` is their mean. If every repeat
    had fresh noise and nobody kept a ledger, its deviation would be `careless_deviation`, and so many
    `careless_repeats` would give the exact count away, 95 times in 100.
    """

    condition: str
    exact: int
    repeats: tuple[Reply, ...]
    different: int
    repeats_spent: Fraction
    reworded: tuple[Reply, ...]
    paid: int
    careless_deviation: float
    careless_repeats: int

    def to_record(self) -> dict[str, Any]:
        """Returns the attack for JSON."""
        return self.describe_outcome("average") | {
            "condition": self.condition,
            "plain_sql": self.exact,
            "repeats": {
                "asked": len(self.repeats),
                "different": self.different,
                "spent": format_exact(self.repeats_spent),
                "reply": self.repeats[0].to_record(),
            },
            "reworded": [reply.to_record() for reply in self.reworded],
            "without_ledger": {"deviation": self.careless_deviation, "repeats": self.careless_repeats},
        }


def run_average(
    *, epsilon: ExactLike = "0.1", budget: ExactLike = 1, repeats: int = 50, people: int = 2000
) -> AverageAttack:
    """Runs the attack on an invented clinic in a temporary folder, until its budget is spent.

    >>> attack = run_average(epsilon="0.5", budget=1, repeats=5)
    >>> attack.different, attack.repeats_spent, attack.paid, attack.refused
    (1, Fraction(1, 2), 2, True)
    """
    if not 1 <= repeats <= _MOST_REPEATS:
        raise AttackError(f"the statement is repeated from 1 to {_MOST_REPEATS:,} times")
    with tempfile.TemporaryDirectory() as folder:
        clinic = _open_clinic(Path(folder), epsilon=epsilon, budget=budget, people=people)
        condition = f"diagnosis = '{SECRET}'"
        asked = tuple(clinic.ask(condition) for _ in range(repeats))
        reworded: list[Reply] = []
        refused = False
        while not refused:
            try:
                reworded.append(clinic.ask(f"{condition} AND age > -{1 + len(reworded)}"))
            except BudgetExceeded:
                refused = True
        repeats_spent, own = sum((reply.spent for reply in asked), Fraction(0)), [asked[0], *reworded]
        noise = _noise_deviation(clinic.epsilon)
        return AverageAttack(
            condition=condition,
            exact=clinic.count(condition),
            epsilon=clinic.epsilon,
            budget=clinic.budget,
            repeats=asked,
            different=len({reply.value for reply in asked}),
            repeats_spent=repeats_spent,
            reworded=tuple(reworded),
            paid=len(own),
            spent=repeats_spent + sum((reply.spent for reply in reworded), Fraction(0)),
            refused=refused,
            estimate=fmean(reply.value for reply in own),
            deviation=noise / math.sqrt(len(own)),
            careless_deviation=noise / math.sqrt(repeats),
            careless_repeats=math.ceil((NORMAL_95 * noise / _HALF) ** 2),
        )


def describe_difference(attack: DifferenceAttack) -> str:
    """Returns the difference attack in words, step by step."""
    return render_text("audit/difference.txt", attack=attack, internal=INTERNAL)


def describe_average(attack: AverageAttack) -> str:
    """Returns the averaging attack in words, step by step."""
    return render_text("audit/average.txt", attack=attack, internal=INTERNAL)
