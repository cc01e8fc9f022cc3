"""Numbers and names as people read them: few digits, privacy amounts never rounded down, no hidden signs."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Iterable, Sequence
from fractions import Fraction

from sfumato.core.errors import RecipeError
from sfumato.core.exact import format_exact, format_short, parse_exact, round_up

NONE = "\N{EN DASH}"
"""What stands where there is no number."""

MINUS = "\N{MINUS SIGN}"
TIMES = "\N{MULTIPLICATION SIGN}"

_RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
# Unicode categories of signs that cannot be seen or that turn the direction of writing.
_UNSEEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
_MOST_LISTED = 8


def whole(number: float) -> str:
    """Returns `number` rounded, in groups of three digits.

    >>> whole(1234567.4), whole(-0.2)
    ('1,234,567', '0')
    """
    return f"{round(number):,}".replace("-", MINUS)


def short(number: float | None) -> str:
    """Returns `number` with three digits that count.

    >>> short(1234.5), short(12.345), short(0.00123), short(4.2e-9), short(None)
    ('1,234', '12.3', '0.00123', '4.2 × 10⁻⁹', '–')
    """
    if number is None or math.isnan(number):
        return NONE
    if math.isinf(number):
        return "unbounded"
    if number == 0:
        return "0"
    size = abs(number)
    if size >= 1e12 or size < 1e-4:
        return exponent(number)
    if size >= 100:
        return whole(number)
    places = 2 - math.floor(math.log10(size))
    text = f"{number:.{places}f}"
    return (text.rstrip("0").rstrip(".") if "." in text else text).replace("-", MINUS)


def exponent(number: float) -> str:
    """Returns `number` as a factor and a power of ten.

    >>> exponent(1e-6), exponent(2.5e-5)
    ('10⁻⁶', '2.5 × 10⁻⁵')
    """
    mantissa, _, power = f"{number:.2e}".partition("e")
    mantissa = mantissa.rstrip("0").rstrip(".")
    raised = f"10{str(int(power)).translate(_RAISED)}"
    return raised if mantissa == "1" else f"{mantissa} {TIMES} {raised}".replace("-", MINUS)


def signed(number: float) -> str:
    """Returns `number` with its sign.

    >>> signed(3.25), signed(-0.5)
    ('+3.25', '−0.5')
    """
    return short(number) if number <= 0 else f"+{short(number)}"


def spread(number: float) -> str:
    """Returns `number` as half the width of an interval.

    >>> spread(59.9146)
    '±59.9'
    """
    return f"±{short(number)}"


def percent(share: float | None) -> str:
    """Returns `share` of one as a percentage that never rounds to nothing or to all.

    >>> percent(0.5), percent(0.9999), percent(0.0002), percent(0.0123), percent(1)
    ('50 %', '> 99.9 %', '< 0.1 %', '1.2 %', '100 %')
    """
    if share is None or math.isnan(share):
        return NONE
    if share in (0, 1):
        return f"{share:.0%}".replace("%", " %")
    if 0 < share < 0.001:
        return "< 0.1 %"
    if 0.999 < share < 1:
        return "> 99.9 %"
    places = 1 if share < 0.1 or share > 0.9 else 0
    text = f"{100 * share:.{places}f}"
    return f"{text.removesuffix('.0')} %".replace("-", MINUS)


def at_most(share: float) -> str:
    """Returns `share` as a percentage that is not below it, with more digits next to 0 and 1.

    >>> at_most(0.731059), at_most(0.5), at_most(0.00001), at_most(0.9999546)
    ('73.2 %', '50 %', '0.001 %', '99.9955 %')
    """
    return _round_percent(share, up=True)


def at_least(share: float) -> str:
    """Returns `share` as a percentage that is not above it, with more digits next to 0 and 1.

    >>> at_least(0.268941), at_least(0.5), at_least(0.0000454)
    ('26.8 %', '50 %', '0.0045 %')
    """
    return _round_percent(share, up=False)


def _round_percent(share: float, *, up: bool) -> str:
    near = min(share, 1 - share)
    places = 1 if near >= 1e-3 or near <= 0 else min(8, -math.floor(math.log10(near)) - 1)
    unit = 10**places
    # Floats that stand for round percentages stay on them.
    steps = math.ceil(share * 100 * unit - 1e-6) if up else math.floor(share * 100 * unit + 1e-6)
    text = f"{min(100 * unit, max(0, steps)) / unit:.{places}f}"
    return text.rstrip("0").rstrip(".") + " %"


def amount(value: object) -> str:
    """Gives a privacy amount in six digits, rounded up, or in more if they hide a remainder; a dash for none.

    >>> amount("0.04223133608504"), amount("1"), amount(None), amount("0.000001"), amount("0.9999999999")
    ('0.042232', '1', '–', '10⁻⁶', '0.9999999999')
    """
    if value is None:
        return NONE
    try:
        exact = parse_exact(value, name="amount")
    except RecipeError:
        return str(value)
    if exact == 0:
        return "0"
    if 0 < exact < Fraction(1, 1000):
        return exponent(float(exact))
    places = 6 if exact < 1 else max(0, 6 - len(str(int(exact))))
    rounded = round_up(exact, places=places)
    return format_short(exact) if rounded.denominator == 1 < exact.denominator else format_exact(rounded)


def rest(value: object) -> str:
    """Returns what is left of a privacy amount, in six decimals, rounded down.

    >>> rest("1.58620699"), rest(0.6), rest("1/3")
    ('1.586206', '0.6', '0.333333')
    """
    exact = parse_exact(value, name="amount")
    return format_exact(-round_up(-exact, places=6))


def show_hidden(text: str) -> str:
    """Returns `text` with a replacement character for what cannot be seen; lines and tabs are kept."""
    if text.isprintable():
        return text
    return "".join(
        "\N{REPLACEMENT CHARACTER}" if unicodedata.category(sign) in _UNSEEN and sign not in "\n\t" else sign
        for sign in text
    )


def plain_text(text: str) -> str:
    """Returns `text` on one line, with a replacement character for what cannot be seen.

    >>> plain_text("a" + chr(27) + "[2J")
    'a�[2J'
    """
    return show_hidden(text).replace("\n", " ").replace("\t", " ")


def clip_text(text: object, most: int = 60) -> str:
    """Returns `text` on one line, without control characters, cut to `most` characters.

    >>> clip_text("a" * 9, 5)
    'aaaa…'
    """
    clean = plain_text(str(text))
    return clean if len(clean) <= most else clean[: most - 1] + "…"


def list_names(names: Sequence[str]) -> str:
    """Returns the names in a row, the first few of many.

    >>> list_names([f"c{place}" for place in range(10)])
    'c0, c1, c2, c3, c4, c5, c6, c7 and 2 more'
    """
    shown = ", ".join(clip_text(name, 60) for name in names[:_MOST_LISTED])
    more = len(names) - _MOST_LISTED
    return f"{shown} and {more:,} more" if more > 0 else shown


def name_columns(columns: Iterable[object]) -> str:
    """Returns the columns of a marginal in one line."""
    return f" {TIMES} ".join(clip_text(name, 40) for name in columns)


def plural(number: float, word: str) -> str:
    """Returns `number` with its noun.

    >>> plural(1, "row"), plural(2000, "row")
    ('1 row', '2,000 rows')
    """
    return f"{round(number):,} {word if round(number) == 1 else word + 's'}"


FILTERS = (
    amount, at_least, at_most, exponent, name_columns, percent, plural, rest, short, signed, spread, whole,
)  # fmt: skip
"""What templates write numbers and names with."""
