"""Reads rules: what everybody knows to hold for every record, as a project file states it.

`impossible` lists conditions that no record meets, such as "age < 15 and income > 0". `rules` lists what
always holds: "county -> state", "total = fare + tips", "start <= end", or a pattern of missing values.
Rules speak of described columns with a domain; what they mean for codes and rows is the recipes' affair.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Iterator, Mapping
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from sfumato.core.errors import SchemaError, SourceError
from sfumato.core.facts.column import Column, suggest_name
from sfumato.core.facts.domain import Bins, IntegerRange, Label, Period, Tuples
from sfumato.core.facts.rules import Combination, Comparison, Condition, Operator, Rule
from sfumato.core.files import MOST_TEXT, read_regular

if TYPE_CHECKING:
    from sfumato.core.facts.domain import Label


_LONGEST = 2000
_DEEPEST = 20
_TOKEN = re.compile(
    r"""\s*(?:
        (?P<name>"[^"]+"|`[^`]+`|[^\W\d]\w*)
      | (?P<number>[-+]?\d+(?:\.\d+)?(?:[eE][-+]?\d{1,3})?)
      | '(?P<text>(?:[^']|'')*)'
      | (?P<sign>->|<=|>=|<>|!=|==|[<>=(),+])
    )""",
    re.VERBOSE,
)
_FLIPPED: dict[str, Operator] = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
_WORDS = ("and", "or", "not", "in", "is", "missing", "null", "exactly", "when")
_FORMS = (
    '"county -> state", "total = fare + tips", "start <= end" or "income is missing exactly when age < 15"'
)


def parse_impossible(text: str, columns: Mapping[str, Column]) -> Rule:
    """The rule that no record meets the condition `text`.

    >>> from sfumato.core.facts.column import parse_column
    >>> age = parse_column("age", {"range": [0, 99]})
    >>> parse_impossible("age < 15 and not age >= 3", {"age": age}).columns
    ('age',)
    """
    words = _Words(text, columns)
    condition = words.read_condition()
    words.end()
    names = tuple(dict.fromkeys(test.column for test in list_tests(condition)))
    return Rule(kind="impossible", text=text, columns=names, condition=condition)


def parse_rule(value: object, columns: Mapping[str, Column], *, folder: Path | None) -> Rule:
    """The rule that an entry of `rules` states: a text, or a dependence with what decides what."""
    if isinstance(value, Mapping):
        return _parse_dependence(value, columns, folder)
    if not isinstance(value, str):
        raise SchemaError(f"a rule must be a text such as {_FORMS}")
    words = _Words(value, columns)
    first = words.read_column()
    if words.take("->"):
        second = words.read_column()
        words.end()
        return Rule(kind="dependence", text=value, columns=(first, second))
    if words.take("is"):
        return _read_missing_pattern(words, first)
    sign = words.take("<=", "<", ">=", ">", "=", "==")
    if sign is None:
        raise SchemaError(f"rule {value!r} is none of {_FORMS}")
    others = [words.read_column()]
    while words.take("+"):
        others.append(words.read_column())
    words.end()
    for name in (first, *others):
        words.require_numbers(name)
    if sign in ("=", "=="):
        if len(others) < 2:
            raise SchemaError(f"rule {value!r} needs at least two columns that are added up")
        return Rule(kind="sum", text=value, columns=(first, *others))
    if len(others) > 1:
        raise SchemaError(f"rule {value!r} orders two columns; a sum is written total = a + b")
    pair = (first, others[0]) if sign in ("<", "<=") else (others[0], first)
    return Rule(kind="order", text=value, columns=pair, strict=sign in ("<", ">"))


def quote_column(name: str) -> str:
    """The name of a column as rules write it.

    >>> quote_column("age"), quote_column("age in years")
    ('age', '"age in years"')
    """
    if re.fullmatch(r"[^\W\d]\w*", name) and name.lower() not in _WORDS:
        return name
    return f"`{name}`" if '"' in name else f'"{name}"'


def parse_rules(
    spec: Mapping[str, Any], columns: Mapping[str, Column], *, folder: Path | None, where: str
) -> tuple[tuple[dict[str, tuple[Label, ...]], ...], tuple[Rule, ...]]:
    """What `impossible` and `rules` say: entries of values that never meet, and everything else."""
    given, stated = spec.get("impossible", []), spec.get("rules", [])
    listed = given if isinstance(given, list) else [given]
    if not isinstance(stated, list):
        raise SchemaError(f"{where}: rules must be a list of texts")
    try:
        rules = [parse_impossible(each, columns) for each in listed if isinstance(each, str)]
        rules += [parse_rule(each, columns, folder=folder) for each in stated]
    except SchemaError as error:
        raise SchemaError(f"{where}: {error}") from None
    entries = [each for each in listed if not isinstance(each, str)]
    return tuple(_parse_entry(each, columns, where=where) for each in entries), tuple(rules)


def _parse_entry(entry: object, columns: Mapping[str, Column], *, where: str) -> dict[str, tuple[Label, ...]]:
    """What no record can be: at least two columns with values of their domains."""
    if not isinstance(entry, dict) or len(entry) < 2:
        raise SchemaError(
            f"{where}: impossible must list conditions such as 'age < 15 and income > 0', or entries that "
            "name at least two columns, such as {age = [0, 1], job = ['teacher']}"
        )
    rule: dict[str, tuple[Label, ...]] = {}
    for name, listed in entry.items():
        labels = tuple(listed) if isinstance(listed, list) else (listed,)
        if name not in columns or columns[name].domain is None:
            raise SchemaError(f"{where}: impossible names {name!r}, which is no column with a domain")
        if not labels or not set(labels) <= set(columns[name].labels):
            raise SchemaError(f"{where}: impossible gives {name!r} a value that is not in its domain")
        rule[name] = labels
    return rule


def list_tests(condition: Condition) -> Iterator[Comparison]:
    """All tests of a condition, from left to right."""
    if isinstance(condition, Comparison):
        yield condition
    else:
        for part in condition.parts:
            yield from list_tests(part)


def has_order(column: Column) -> bool:
    """Whether a column holds numbers, so that it can be compared by size and added up."""
    domain = column.domain
    if isinstance(domain, (Bins, IntegerRange, Period)):
        return True
    return domain is not None and not isinstance(domain, Tuples) and isinstance(domain.labels[0], int)


def _parse_dependence(spec: Mapping[str, Any], columns: Mapping[str, Column], folder: Path | None) -> Rule:
    first, second = str(spec.get("from", "")), str(spec.get("to", ""))
    words = _Words(f"{first} -> {second}", columns)
    for name in (first, second):
        words.require_column(name)
    if set(spec) == {"from", "to", "map"} and isinstance(spec["map"], Mapping):
        pairs: Iterable[tuple[Any, Any]] = spec["map"].items()
    elif set(spec) == {"from", "to", "file"} and folder is not None:
        pairs = _read_pairs(folder / str(spec["file"]), first, second)
    else:
        raise words.fault(
            "needs from, to and either file, a public text file with both columns, or map, as in "
            "{from = 'county', to = 'state', file = 'counties.csv'}"
        )
    decided: dict[str, str] = {}
    known = {name: {str(label) for label in columns[name].labels} for name in (first, second)}
    for key, value in pairs:
        if str(key) not in known[first]:
            continue  # a list of all counties may serve a table of some
        if decided.setdefault(str(key), str(value)) != str(value):
            raise words.fault(f": {key!r} has two values of {second!r} in what decides it")
        if str(value) not in known[second]:
            raise words.fault(
                f"gives {key!r} the value {value!r}, which is not in the domain of {second!r}; add it to the "
                "domain, or leave the line out"
            )
    if not decided:
        raise words.fault(f": nothing in it is a value of {first!r}")
    return Rule(kind="dependence", text=words.text, columns=(first, second), decided=decided)


def _read_pairs(path: Path, first: str, second: str) -> list[tuple[str, str]]:
    try:
        content = read_regular(path, most=MOST_TEXT).decode("utf-8-sig")
        rows = csv.DictReader(io.StringIO(content, newline=""))
        if rows.fieldnames is None or not {first, second} <= set(rows.fieldnames):
            raise SchemaError(f"file {path.name!r} of a rule needs the columns {first!r} and {second!r}")
        return [(row[first].strip(), (row[second] or "").strip()) for row in rows if row[first]]
    except (OSError, csv.Error, UnicodeDecodeError) as error:
        reason = str(error) if isinstance(error, SourceError) else type(error).__name__
        raise SchemaError(f"file {path.name!r} of a rule cannot be read ({reason})") from None


def _read_missing_pattern(words: _Words, name: str) -> Rule:
    """`X is missing exactly when C`: impossible is C with a value of X, and its reverse."""
    if words.take("missing", "null") is None or not words.take("exactly") or not words.take("when"):
        raise words.fault(f": write {name} is missing exactly when age < 15")
    words.require_missing(name)
    condition, missing = words.read_condition(), Comparison(name, "missing")
    words.end()
    valued = Combination("and", (condition, Combination("not", (missing,))))
    empty = Combination("and", (Combination("not", (condition,)), missing))
    tested = [test.column for test in list_tests(condition)]
    if name in tested:
        raise words.fault(f"decides {name!r} by itself")
    names = tuple(dict.fromkeys((name, *tested)))
    return Rule(kind="missing", text=words.text, columns=names, condition=Combination("or", (valued, empty)))


class _Words:
    """The words of a rule, read from left to right; columns are checked as they come."""

    def __init__(self, text: str, columns: Mapping[str, Column]) -> None:
        self.text = text
        self._columns = columns
        self._found: list[tuple[str, str]] = []
        self._place = place = 0
        if len(text) > _LONGEST:
            raise SchemaError(f"a rule has at most {_LONGEST} characters")
        while place < len(text.rstrip()):
            match = _TOKEN.match(text, place)
            if match is None or match.end() == place:
                raise self.fault(f"cannot be read from {text[place:].strip()[:20]!r} on")
            kind = str(match.lastgroup)
            self._found.append((kind, match.group(kind)))
            place = match.end()

    def fault(self, reason: str) -> SchemaError:
        """The error that says what is wrong with the rule."""
        return SchemaError(f"rule {self.text!r}{'' if reason[0] == ':' else ' '}{reason}")

    def take(self, *words: str) -> str | None:
        """The next word, if it is one of `words`; it is passed then."""
        kind, word = self._look()
        if kind in ("sign", "name") and word.lower() in words:
            self._place += 1
            return word.lower()
        return None

    def end(self) -> None:
        """Raises an error if there is more."""
        kind, word = self._look()
        if kind:
            raise self.fault(f"cannot be read from {word!r} on")

    def read_column(self) -> str:
        """The next word, which must be a described column."""
        kind, word = self._next()
        if kind != "name" or word.lower() in _WORDS:
            raise self.fault(
                f"needs a column in place of {word!r}" if word else "ends where a column is needed"
            )
        name = word[1:-1] if word[0] in '"`' else word
        self.require_column(name)
        return name

    def read_condition(self, depth: int = 0) -> Condition:
        """Alternatives, each of conditions that hold together."""
        if depth > _DEEPEST:
            raise self.fault("has too many brackets")
        return self._join("or", depth)

    def require_column(self, name: str) -> None:
        """Raises an error unless `name` is a column with a domain."""
        described = {each for each, column in self._columns.items() if column.domain is not None}
        if name not in described:
            near = suggest_name(name, sorted(described))
            raise self.fault(f"names {name!r}, which is no column with a domain{near}")

    def require_numbers(self, name: str) -> None:
        """Raises an error unless the column holds numbers."""
        if not has_order(self._columns[name]):
            raise self.fault(
                f": column {name!r} holds text, which has no size; list whole numbers, or use = and in"
            )

    def require_missing(self, name: str) -> None:
        """Raises an error unless missing values of the column are a value of their own."""
        if self._columns[name].missing_label is None:
            raise self.fault(
                f": records without {name!r} are left out; missing_label makes missing a value of its own"
            )

    def _join(self, word: Literal["and", "or"], depth: int) -> Condition:
        read = self._read_part if word == "and" else lambda depth: self._join("and", depth)
        parts = [read(depth)]
        while self.take(word):
            parts.append(read(depth))
        return parts[0] if len(parts) == 1 else Combination(word, tuple(parts))

    def _read_part(self, depth: int) -> Condition:
        if self.take("not"):
            if depth > _DEEPEST:
                raise self.fault("has too many brackets")
            return Combination("not", (self._read_part(depth + 1),))
        if self.take("("):
            inner = self.read_condition(depth + 1)
            self._close()
            return inner
        if self._look()[0] == "number":
            return self._read_flipped()
        return self._read_test(self.read_column())

    def _read_flipped(self) -> Condition:
        """15 <= age, and 15 <= age < 18."""
        number = self._next()[1]
        sign = self.take(*_FLIPPED)
        if sign is None:
            raise self.fault(f"needs <, <=, > or >= behind {number}")
        name = self.read_column()
        self.require_numbers(name)
        first = Comparison(name, _FLIPPED[sign], (Fraction(number),))
        return Combination("and", (first, self._read_test(name))) if self._look()[1] in _FLIPPED else first

    def _read_test(self, name: str) -> Condition:
        asked = self.take("is") is not None
        denied = self.take("not") is not None
        test: Comparison
        if asked:
            if self.take("missing", "null") is None:
                raise self.fault(f": write {name} is missing, or {name} is not missing")
            self.require_missing(name)
            test = Comparison(name, "missing")
        elif self.take("in"):
            test = Comparison(name, "in", self._read_list(name))
        else:
            sign = self.take(*_FLIPPED, "=", "==", "!=", "<>")
            if sign is None or denied:
                raise self.fault(f"needs a comparison behind {name!r}")
            if sign in _FLIPPED:
                return self._compare(name, _FLIPPED[_FLIPPED[sign]])
            denied = sign in ("!=", "<>")
            test = Comparison(name, "=", (self._read_value(name),))
        return Combination("not", (test,)) if denied else test

    def _compare(self, name: str, sign: Operator) -> Comparison:
        self.require_numbers(name)
        kind, word = self._next()
        if kind != "number":
            raise self.fault(
                f"must compare {name!r} with a number; two columns are compared in rules, as in "
                '"start <= end"'
            )
        return Comparison(name, sign, (Fraction(word),))

    def _read_list(self, name: str) -> tuple[Fraction | str, ...]:
        if not self.take("("):
            raise self.fault("needs a list in brackets behind in")
        values = [self._read_value(name)]
        while self.take(","):
            values.append(self._read_value(name))
        self._close()
        return tuple(values)

    def _read_value(self, name: str) -> Fraction | str:
        """A value of the column: a number for one of numbers, otherwise a label."""
        kind, word = self._next()
        column = self._columns[name]
        if kind not in ("number", "text"):
            raise self.fault(f": write a text in single quotes, as in {name} = 'a'")
        value = word.replace("''", "'") if kind == "text" else word
        if value in column.extras:
            return value
        outside = f"gives {name!r} a value that is not in its domain: "
        if has_order(column):
            if kind == "text":
                raise self.fault(f"compares {name!r}, a column of numbers, with a text")
            number = Fraction(value)
            if not _contains(column, number):
                raise self.fault(f"{outside}{value}; correct the rule, or extend the domain")
            return number
        labels = [str(label) for label in column.labels]
        if value not in labels:
            raise self.fault(f"{outside}{value!r}{suggest_name(value, labels)}")
        return value

    def _close(self) -> None:
        if not self.take(")"):
            raise self.fault("lacks a closing bracket")

    def _look(self) -> tuple[str, str]:
        return self._found[self._place] if self._place < len(self._found) else ("", "")

    def _next(self) -> tuple[str, str]:
        found = self._look()
        self._place += 1
        return found


def _contains(column: Column, number: Fraction) -> bool:
    domain = column.domain
    if isinstance(domain, Bins):
        return domain.edges[0] <= number <= domain.edges[-1]
    if isinstance(domain, (IntegerRange, Period)):
        span = domain.span if isinstance(domain, Period) else domain
        return span.low <= number <= span.high and number.denominator == 1
    labels: tuple[Label, ...] = () if domain is None else domain.labels
    return number in labels
