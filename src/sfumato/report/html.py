"""HTML and SVG put together from parts: whatever is not marked as markup is escaped."""

from __future__ import annotations

import base64
import html
import re
import unicodedata

Child = object

_VOID = frozenset({"br", "circle", "hr", "img", "line", "link", "meta", "path", "rect", "source"})
# Signs that stay on the line of their number.
_TIED = re.compile(
    r" (?=%)|(?<=&[lg]t;) (?=\d)|(?<=[εδρμ]) (?==)|(?<=[εδρμ] =) "
    r"| (?=\xd7 10)|(?<= \xd7) (?=10)| (?=± )|(?<= ±) "
)
_UNSEEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})


class Html(str):
    """Text that is markup already and must not be escaped again."""

    __slots__ = ()


def tag(name: str, /, *children: Child, **attributes: object) -> Html:
    """An element: children and attribute values are escaped unless they are markup.

    A None or False attribute is left out; a trailing underscore is dropped, others become hyphens.

    >>> tag("p", "a < b", class_="note")
    '<p class="note">a &lt; b</p>'
    """
    told = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{_escape(_plain(value))}"'
        for key, value in attributes.items()
        if value is not None and value is not False
    )
    if name in _VOID and not children:
        return Html(f"<{name}{told}{'' if name in ('br', 'hr', 'img', 'link', 'meta', 'source') else '/'}>")
    return Html(f"<{name}{told}>{join(*children)}</{name}>")


def join(*children: Child, between: str = "") -> Html:
    """All children one after the other; None is nothing, and a tuple or a list is its members."""
    return Html(between.join(part for child in children if (part := _part(child))))


def raw(text: str) -> Html:
    """`text` as markup: for constants of this package only, never for anything that was read."""
    return Html(text)


def paragraph(*children: Child, class_: str | None = None) -> Html:
    """A paragraph of the parts given."""
    return tag("p", *children, class_=class_)


def clip_text(text: object, most: int = 60) -> str:
    """`text` on one line, without control characters, cut to `most` characters.

    >>> clip_text("a" * 9, 5)
    'aaaa…'
    """
    clean = _visible(str(text)).replace("\n", " ").replace("\t", " ")
    return clean if len(clean) <= most else clean[: most - 1] + "…"


def data_uri(content: bytes, kind: str = "image/png") -> str:
    """`content` as a text that stands for a file of its own."""
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"


def _part(child: Child) -> str:
    if child is None:
        return ""
    if isinstance(child, (list, tuple)):
        return join(*child)
    return child if isinstance(child, Html) else _TIED.sub(_tie, _escape(_plain(child)))


def _tie(_: re.Match[str]) -> str:
    return "\N{NO-BREAK SPACE}"


def _plain(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.2f}".rstrip("0").rstrip(".") if abs(value) < 1e6 else f"{value:.0f}"
    return str(value)


def _escape(text: str) -> str:
    return html.escape(_visible(text), quote=True)


def _visible(text: str) -> str:
    """`text` with a sign in place of what cannot be seen: control characters and turns of direction."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        "\N{REPLACEMENT CHARACTER}" if unicodedata.category(sign) in _UNSEEN and sign not in "\n\t" else sign
        for sign in text
    )
