"""Names of columns as they may be shown: on a screen, in a comment, in a picture."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

_UNSEEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
_MOST_LISTED = 8


def plain_text(text: str) -> str:
    """`text` on one line, with a sign in place of what cannot be seen.

    >>> plain_text("a" + chr(27) + "[2J")
    'a�[2J'
    """
    if text.isprintable():
        return text
    return "".join(
        "\N{REPLACEMENT CHARACTER}" if unicodedata.category(sign) in _UNSEEN else sign for sign in text
    )


def clip_text(text: str, most: int) -> str:
    """`text` in plain signs, cut to `most` of them.

    >>> clip_text("household", 6)
    'house…'
    """
    shown = plain_text(text)
    return shown if len(shown) <= most else shown[: most - 1] + "…"


def list_names(names: Sequence[str]) -> str:
    """The names in a row, the first few of many.

    >>> list_names([f"c{place}" for place in range(10)])
    'c0, c1, c2, c3, c4, c5, c6, c7 and 2 more'
    """
    shown = ", ".join(clip_text(name, 60) for name in names[:_MOST_LISTED])
    more = len(names) - _MOST_LISTED
    return f"{shown} and {more:,} more" if more > 0 else shown
