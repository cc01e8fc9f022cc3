"""What a project file needs to know of columns: from a public table, or from the records at a price.

Every question here is a statement of `DP-SELECT`, charged and answered as any other: which kinds of values a
column holds, its labels by private selection, its bounds and quantiles, the years of its dates.
"""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import date
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from sfumato.core.cost.budget import Budget, Spent, add_costs, admits
from sfumato.core.cost.cost import Cost
from sfumato.core.engine.encode import quote_name
from sfumato.core.engine.opening import has_lines
from sfumato.core.errors import BudgetExceeded, RecipeError
from sfumato.core.exact import format_exact, format_short, parse_delta, parse_exact, parse_positive
from sfumato.core.facts.column import parse_column
from sfumato.core.facts.project import find_private, match_files, parse_project
from sfumato.curator import Curator
from sfumato.recipes.grouping.rules import draft_rules, find_rules
from sfumato.recipes.shared.public import read_public_table
from sfumato.sql.finish import Answer
from sfumato.tables.draft import MISSING, PERSON_NAMES, Known, describe_column, is_text_file, name_table
from sfumato.tables.profile import find_edges, profile_table

# Of epsilon: for the kinds of columns, and with what they hold. The rest is for numbers among texts.
_KINDS_SHARE, _DOMAINS_SHARE = Fraction(3, 10), Fraction(4, 5)
_COVERED = 0.7  # of the records of a column that its labels must cover to be all that it holds
_MIXED = "numbers and texts"
_NUMBER = re.compile(r"-?\d+(\.\d+)?")
# The price of one statement is searched by halving its logarithm, from a fraction that surely fits.
_STEPS, _LEAST = 12, 200
_PARTS = 10
_MOST_RANGE = 120
_FORMS = tomllib.loads(Path(__file__).with_name("draft.toml").read_text(encoding="utf-8"))
_BRANCHES: dict[str, str] = {MISSING: _FORMS["missing"], **_FORMS["kinds"]}
_YEARS: dict[str, str] = _FORMS["years"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PrivateDraft:
    """What was found of each column, for how much, and what is left."""

    known: Mapping[str, Known]
    epsilon: Fraction
    left: str

    def describe(self) -> str:
        """What was found and paid, in one line."""
        found = sum(bool(each.values) or each.low is not None for each in self.known.values())
        return (
            f"{found} of {len(self.known)} columns were described from the records within epsilon "
            f"{format_short(self.epsilon)}, charged to the ledger; {self.left}"
        )


def read_public_profile(public: Path | str, source: str, *, folder: Path) -> dict[str, Known]:
    """What the public table in the file `public` tells of its columns; the source itself is refused."""
    reason = find_private([Path(public)], {name_table(source): source}, folder=folder)
    if reason is not None:
        raise RecipeError(reason)
    return profile_table(read_public_table(Path(public))[0], origin=Path(public).name)


def propose_rules(
    public: Path | str, source: str, kinds: Mapping[str, str], known: Mapping[str, Known]
) -> list[str]:
    """Lines of a project file that propose rules which the public table in the file `public` obeys.

    They are about the columns of `source`, whose `kinds` are given, as what is `known` describes them.
    """
    rows, _ = read_public_table(Path(public))
    columns = {
        each: parse_column(each, spec)
        for name, kind in kinds.items()
        if name in known and not known[name].identifier
        for each, spec in describe_column(name, kind, known[name], text=is_text_file(source)).items()
    }
    return draft_rules(find_rules(columns, rows), origin=Path(public).name)


def draft_privately(
    source: str,
    kinds: Mapping[str, str],
    *,
    unit: str,
    max_records: int | None,
    epsilon: object,
    budget: object,
    delta: object,
    folder: Path,
    progress: Callable[[str], None] = lambda _: None,
) -> PrivateDraft:
    """What the records tell of the columns of `source`, whose `kinds` are given, for at most `epsilon`.

    `unit` and `max_records` are those of the project file to be, `budget` and `delta` its budget; the ledger
    is the one that it will have in `folder`.

    Privacy: all statements together are (epsilon, delta)-differentially private by the same filter that
    admits charges to a ledger, and are charged to it one by one. What is found is post-processing.
    """
    wanted = parse_positive(epsilon, name="epsilon")
    if parse_delta(delta) == 0:
        raise RecipeError("labels are found in records only with a delta above zero; state one, such as 1e-6")
    asked = [name for name, kind in kinds.items() if kind != "other" and name != unit]
    if not asked:
        raise RecipeError("no column is left to describe")
    table = name_table(source)
    description: dict[str, Any] = {"source": source, "unit": unit}
    if unit != "row":
        description["max_records"] = max_records or "private"
    if is_text_file(source):
        # The first line of a text file counts as names once one of them is known; here its steward says so.
        # JSON lines have no such line, and no columns but those that are named.
        named = asked if any(map(has_lines, match_files(folder / source))) else asked[:1]
        description["columns"] = {f"{name} is a name": {"from": name, "values": ["-"]} for name in named}
    document = {"budget": {"epsilon": budget, "delta": delta}, "tables": {table: description}}
    survey = _Survey(
        Curator(parse_project(document, folder=folder)),
        table,
        Budget(wanted, parse_exact(delta, name="delta")),
        progress,
    )
    report = survey.curator.budget()
    if wanted > report.left:
        raise BudgetExceeded(
            f"the draft asks for epsilon {format_exact(wanted)}; epsilon {report.left} is left",
            left=report.left,
        )
    is_text = is_text_file(source)
    first = {name: _ask_kind(name) for name in asked} if is_text else {}
    votes = survey.ask(first, share=_KINDS_SHARE)
    kind_of = {name: _read_votes(votes[name]) if is_text else kinds[name] for name in asked}
    mixed = [name for name, kind in kind_of.items() if kind == _MIXED]
    second = {name: _ask_domain(name, kind, text=is_text) for name, kind in kind_of.items()}
    answers = survey.ask(second, share=_DOMAINS_SHARE if mixed else Fraction(1))
    marks: dict[str, tuple[str, ...]] = {}
    for name in mixed:
        kind_of[name], marks[name] = _read_mixed(answers[name], votes[name])
    rest = {name: kind_of[name] for name in mixed if kind_of[name] != "text"}
    third = {name: _ask_domain(name, kind, text=is_text) for name, kind in rest.items()}
    answers |= survey.ask(third, share=Fraction(1))
    origin = f"found in the records within epsilon {format_exact(wanted)}"
    known = {
        name: replace(_conclude(kind_of[name], answers.get(name), origin=origin), missing=marks.get(name, ()))
        for name in asked
    }
    return PrivateDraft(known=known, epsilon=wanted, left=survey.curator.budget().describe_left())


def find_names(columns: Iterable[str]) -> dict[str, Known]:
    """Columns that seem to name individuals, by what they are called: nothing is asked about them.

    >>> list(find_names(["patient_id", "ward", "Name"]))
    ['patient_id', 'Name']
    """
    return {name: Known(origin="its name", identifier=True) for name in columns if PERSON_NAMES.search(name)}


class _Question(NamedTuple):
    """What is asked of one column; questions of one `form` cost the same."""

    form: str
    text: str


class _Survey:
    """Statements about all columns of a table, each at the same price, within one budget for all."""

    def __init__(self, curator: Curator, table: str, budget: Budget, progress: Callable[[str], None]) -> None:
        self.curator = curator
        self._table, self._budget, self._progress = table, budget, progress
        self._spent = Spent()
        self._report = curator.budget()

    def ask(self, questions: Mapping[str, _Question | None], *, share: Fraction) -> dict[str, Answer]:
        """The answers to `questions`, together with what went before within `share` of epsilon."""
        asked = {name: question for name, question in questions.items() if question is not None}
        if not asked:
            return {}
        part = Budget(self._budget.epsilon * share, self._budget.delta)
        # A small delta for each, so that the choice of labels in all columns fits into what a ledger keeps.
        delta = _round_down(part.selection / (2 * len(asked)))
        price = self._find_price(part, list(asked.values()), delta)
        answers = {}
        for name, question in asked.items():
            self._progress(f"asking about {name}")
            answers[name] = self.curator.sql(self._write(question, price, delta))
            self._spent = add_costs(self._spent, self._costs(question, price, delta))
        return answers

    def _find_price(self, part: Budget, listed: list[_Question], delta: Fraction) -> Fraction:
        # The ledger may have less room than what the draft may cost.
        self._report = self.curator.budget()
        low, high = _round_down(part.epsilon / (_LEAST * len(listed))), part.epsilon
        if not self._fits(part, listed, low, delta):
            raise RecipeError(
                f"{len(listed)} columns cannot be described within epsilon {format_exact(part.epsilon)}; "
                "give more, or a codebook for some of them"
            )
        for _ in range(_STEPS):
            middle = _round_down(parse_exact(math.sqrt(low * high), name="price"))
            low, high = (middle, high) if self._fits(part, listed, middle, delta) else (low, middle)
        return low

    def _fits(self, part: Budget, questions: list[_Question], price: Fraction, delta: Fraction) -> bool:
        # Questions of one form cost the same, whatever column they are about.
        forms = {question.form: question for question in questions}
        priced = {form: self._costs(question, price, delta) for form, question in forms.items()}
        costs = [cost for each in questions for cost in priced[each.form]]
        return admits(part, self._spent, costs) and self._report.admits(costs)

    def _costs(self, question: _Question, price: Fraction, delta: Fraction) -> tuple[Cost, ...]:
        found = self.curator.sql(f"EXPLAIN {self._write(question, price, delta)}").price
        return () if found is None else found.costs

    def _write(self, question: _Question, price: Fraction, delta: Fraction) -> str:
        stated = f"DP-SELECT {format_exact(price)} DELTA {format_exact(delta)}"
        keys = "" if question.form == "quantiles" else " GROUP BY found"
        return f"{stated} {question.text} FROM {quote_name(self._table)}{keys}"


def _ask_kind(name: str) -> _Question:
    """How many records hold which kind of value."""
    column = quote_name(name)
    cases = " ".join(f"WHEN {test.replace('{c}', column)} THEN '{each}'" for each, test in _BRANCHES.items())
    return _Question("kinds", f"CASE {cases} ELSE 'text' END AS found, COUNT(*) AS n")


def _read_votes(answer: Answer) -> str:
    """The kind that most records have."""
    rows = answer.table.to_pylist()
    count = {row["found"]: row["n"] for row in rows}
    surely = {row["found"] for row in rows if row["n_low"] > 0}
    count["number"] = count.get("number", 0) + (count.get("integer", 0) if "number" in surely else 0)
    count["text"] = count.get("text", 0) + count.pop("code", 0)
    if "%d/%m/%Y" in surely:
        # Days above twelve tell which number is the day; those below could be either.
        count["%d/%m/%Y"] += count.get("%m/%d/%Y", 0)
    count.pop(MISSING, None)
    if "text" in surely and surely & {"integer", "number"}:
        return _MIXED
    if surely.isdisjoint(count):
        return "text"  # nothing but noise says what it is
    return str(max(count, key=lambda kind: count[kind]))


def _read_mixed(labels: Answer, votes: Answer) -> tuple[str, tuple[str, ...]]:
    """What a column of numbers and texts is: labels, or numbers among which some texts mark missing ones."""
    rows = labels.table.to_pylist()
    known = sum(row["n"] for row in votes.table.to_pylist() if row["found"] != MISSING)
    if sum(row["n"] for row in rows) >= _COVERED * known:
        return "text", ()
    whole = all(row["n_low"] <= 0 for row in votes.table.to_pylist() if row["found"] == "number")
    return "integer" if whole else "number", tuple(
        row["found"] for row in rows if row["found"] != MISSING and not _NUMBER.fullmatch(row["found"])
    )


def _ask_domain(name: str, kind: str, *, text: bool) -> _Question | None:
    """What a column of this kind holds: labels, quantiles between chosen bounds, or years."""
    column = quote_name(name)
    if kind in ("integer", "number", "comma"):
        number = f"TRY_CAST({column} AS DOUBLE)" if text else column
        if kind == "comma":
            whole, part = f"POSITION(',' IN {column})", f"LENGTH({column})"
            after = f"RIGHT({column}, {part} - {whole})"
            number = f"TRY_CAST(SUBSTRING({column}, 1, {whole} - 1) || '.' || {after} AS DOUBLE)"
        return _Question("quantiles", f"APPROX_QUANTILES({number} BOUNDED PRIVATELY, {_PARTS}) AS q")
    if kind in _YEARS:
        year = _YEARS[kind].replace("{c}", column) if text else f"YEAR({column})"
        return _Question("labels", f"{year} AS found, COUNT(*) AS n")
    if kind in ("text", _MIXED):
        return _Question("labels", f"COALESCE({column}, '{MISSING}') AS found, COUNT(*) AS n")
    return None


def _conclude(kind: str, answer: Answer | None, *, origin: str) -> Known:
    """What the answer about a column says of it."""
    facts: dict[str, Any] = {"origin": origin}
    if kind == "boolean":
        return Known(**facts, kind=kind)
    if answer is None:
        return Known(**facts)
    facts["complete"] = False
    if kind in ("integer", "number", "comma"):
        row = answer.table.to_pylist()[0]
        quantiles = np.array([row[f"q_{part}"] for part in range(_PARTS + 1)], np.float64)
        facts |= {
            "kind": "integer" if kind == "integer" else "number",
            "decimal": "," if kind == "comma" else ".",
        }
        if not np.isfinite(quantiles).all() or quantiles[0] >= quantiles[-1]:
            return Known(origin=origin, kind=facts["kind"])
        low, high = (parse_exact(float(quantiles[end]), name="end") for end in (0, -1))
        if kind == "integer" and high - low < _MOST_RANGE:
            # The last interval of magnitudes does not hold its end.
            last = max(math.ceil(high) - 1, math.floor(low))
            return Known(**facts, low=Fraction(math.floor(low)), high=Fraction(last))
        edges = find_edges(quantiles[1:-1], low, high)
        return Known(**facts, low=edges[0], high=edges[-1], edges=edges)
    labels = [str(label) for label in answer.table["found"].to_pylist() if label is not None]
    if kind in _YEARS:
        years = sorted(int(label) for label in labels if re.fullmatch(r"[12]\d{3}", label))
        if not years:
            return Known(origin=origin, kind="date")
        form = None if kind == "date" else kind
        return Known(
            **facts, kind="date", low=date(years[0], 1, 1), high=date(years[-1], 12, 31), format=form
        )
    listed = tuple(sorted(label for label in labels if label != MISSING))
    return Known(**facts, kind="text", values=listed)


def _round_down(price: Fraction) -> Fraction:
    """`price` with three digits that count, not more."""
    size = Fraction(10) ** (2 - math.floor(math.log10(price)))
    return math.floor(price * size) / size
