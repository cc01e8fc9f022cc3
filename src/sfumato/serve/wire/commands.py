"""What a statement is: a question for the service or the catalog, or a command of the session itself."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

from sfumato.serve.wire.messages import Refusal

Kind = Literal[
    "empty", "question", "begin", "commit", "rollback", "savepoint", "release", "rollback to", "set", "reset",
    "show", "declare", "fetch", "move", "close", "copy", "deallocate", "discard", "explain", "nothing",
]  # fmt: skip

LONGEST = 100_000
"""The characters that one statement may have."""

_PIECE = re.compile(r"""[eE]'|'|"|--|/\*|\$(?:[^\W\d]\w*)?\$|\$\d+|[^\W\d][\w$]*|[;()]""")
_ESCAPED = re.compile(r"[^'\\]*(?:(?:\\.|'')[^'\\]*)*'", re.DOTALL)
_COMMENT = re.compile(r"/\*|\*/")
_WORD = re.compile(r"""[eE]?'(?:[^']|'')*'|"(?:[^"]|"")*"(?:\."(?:[^"]|"")*")*|[^\s"'(),=;]+|[(),=*]""")
_NAME = r'("(?:[^"]|"")+"|[\w$]+)'
_DECLARE = re.compile(
    rf"declare\s+{_NAME}\s+(?:(?:binary|insensitive|asensitive|no|scroll)\s+)*"
    r"cursor(?:\s+(with|without)\s+hold)?\s+for\s+",
    re.IGNORECASE,
)
_COPY = re.compile(r"copy\s*\(", re.IGNORECASE)
_TO = re.compile(r"\s*to\s+stdout\b", re.IGNORECASE)
_SET_CONFIG = re.compile(
    r"\bset_config\s*\(\s*('(?:[^']|'')*'|\$\d+)\s*(?:::\s*\w+\s*)?,\s*('(?:[^']|'')*'|\$\d+)\s*(?:::\s*\w+\s*)?,",
    re.IGNORECASE,
)
_EXPLAIN = re.compile(r"explain\s*(?:\([^()]*\)\s*|(?:analyze|verbose)\b\s*)*", re.IGNORECASE)
_NOTHING = {"LISTEN", "UNLISTEN", "NOTIFY", "LOCK", "ANALYZE", "VACUUM"}
_LONGEST_COMMAND = 2000
# Of these no more is looked at than so many characters.
_COMMANDS = {
    *("SET", "RESET", "SHOW", "SAVEPOINT", "RELEASE", "ROLLBACK", "ABORT"),
    *("FETCH", "MOVE", "CLOSE", "DEALLOCATE"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyForm:
    """How COPY writes rows."""

    style: Literal["text", "csv", "binary"] = "text"
    delimiter: str = "\t"
    null: str = "\\N"
    quote: str = '"'
    header: bool = False

    def write(self, values: list[bytes | None]) -> bytes:
        """Returns one row of text values as a line of text or CSV."""
        write = self._write_csv if self.style == "csv" else self._write_text
        return self.delimiter.join(map(write, values)).encode() + b"\n"

    def _write_text(self, value: bytes | None) -> str:
        if value is None:
            return self.null
        text = value.decode().replace("\\", "\\\\")
        for character, letter in zip("\b\f\n\r\t\v", "bfnrtv", strict=True):
            text = text.replace(character, f"\\{letter}")
        return text if self.delimiter == "\t" else text.replace(self.delimiter, f"\\{self.delimiter}")

    def _write_csv(self, value: bytes | None) -> str:
        if value is None:
            return self.null
        text, quote = value.decode(), self.quote
        plain = text not in (self.null, "\\.") and not any(
            mark in text for mark in (self.delimiter, quote, "\n", "\r")
        )
        return text if plain else quote + text.replace(quote, quote * 2) + quote


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A statement that has been told apart; which of the fields mean something follows from the kind."""

    kind: Kind
    tag: str = ""
    name: str = ""
    value: str | None = None
    query: str = ""
    local: bool = False
    direction: tuple[str, int | None] = ("forward", 1)
    form: CopyForm = field(default_factory=CopyForm)


def split_statements(text: str) -> list[str]:
    """Returns the statements of a string, without the semicolons between them and without empty ones.

    >>> split_statements("SET a = ';'; SELECT 1 /* ; */;")
    ["SET a = ';'", 'SELECT 1 /* ; */']
    """
    if len(text) > LONGEST:
        raise Refusal("54000", f"a statement has at most {LONGEST} characters")
    ends = [start for kind, start, _ in _scan(text) if kind == ";"]
    pieces = [
        text[start:stop] for start, stop in zip([0, *(end + 1 for end in ends)], [*ends, None], strict=True)
    ]
    return [piece.strip() for piece in pieces if _strip_comments(piece).strip()]


def count_parameters(text: str) -> int:
    """Returns the largest n of the parameters $n in a statement.

    >>> count_parameters("SELECT $2, '$7'")
    2
    """
    marks = [int(text[start + 1 : stop][:6]) for kind, start, stop in _scan(text) if kind == "$"]
    return max(marks, default=0)


def read_command(text: str) -> Command:
    """Returns what the statement `text` is.

    >>> read_command("set sfumato.epsilon to '0.1'").value
    '0.1'
    """
    plain = _strip_comments(text).strip()
    words = _WORD.findall(plain[:_LONGEST_COMMAND])
    first = words[0].upper() if words else ""
    if len(plain) > _LONGEST_COMMAND and first in _COMMANDS:
        raise Refusal("54000", f"{first} has at most {_LONGEST_COMMAND} characters here")
    upper = [word.upper() for word in words]
    match first:
        case "":
            return Command(kind="empty")
        case "BEGIN" | "START":
            return Command(kind="begin", tag="BEGIN" if first == "BEGIN" else "START TRANSACTION")
        case "COMMIT" | "END":
            return Command(kind="commit", tag="COMMIT")
        case "ROLLBACK" | "ABORT" if "TO" in upper:
            return Command(kind="rollback to", tag="ROLLBACK", name=_unquote(words[-1]))
        case "ROLLBACK" | "ABORT":
            return Command(kind="rollback", tag="ROLLBACK")
        case "SAVEPOINT" | "RELEASE":
            kind: Kind = "savepoint" if first == "SAVEPOINT" else "release"
            return Command(kind=kind, tag=first, name=_unquote(words[-1]))
        case "SET":
            return _read_set(words, upper)
        case "RESET":
            return Command(kind="reset", tag="RESET", name=_setting_name(words[1:]))
        case "SHOW" if not {"TABLES", "COLUMNS"} & set(upper[1:3]):
            return Command(kind="show", tag="SHOW", name=_setting_name(words[1:]))
        case "DECLARE":
            return _read_declare(plain)
        case "FETCH" | "MOVE":
            return _read_fetch(words, upper)
        case "CLOSE":
            name = "" if upper[-1] == "ALL" else _unquote(words[-1])
            return Command(kind="close", tag="CLOSE CURSOR", name=name)
        case "COPY":
            return _read_copy(plain)
        case "EXPLAIN":
            return Command(kind="explain", tag="EXPLAIN", query=_EXPLAIN.sub("", plain, count=1))
        case "DEALLOCATE":
            name = "" if upper[-1] == "ALL" else _unquote(words[-1])
            return Command(kind="deallocate", tag="DEALLOCATE" if name else "DEALLOCATE ALL", name=name)
        case "DISCARD":
            return Command(kind="discard", tag=" ".join(upper[:2]), name=upper[-1])
        case _ if first in _NOTHING:
            return Command(kind="nothing", tag=first)
    return Command(kind="question", query=text)


def find_set_config(text: str, parameters: tuple[object, ...]) -> list[tuple[str, str]]:
    """Returns the settings that calls of set_config in a statement change, with their new values."""
    found = []
    for match in _SET_CONFIG.finditer(_strip_comments(text)):
        pair = []
        for word in match.groups():
            number = int(word[1:7]) if word[0] == "$" else 0
            if number > len(parameters):
                raise Refusal("08P01", f"there is no parameter ${number}")
            pair.append(str(parameters[number - 1]) if number else _unquote(word))
        found.append((pair[0].lower(), pair[1]))
    return found


def read_options(text: str) -> list[tuple[str, str]]:
    r"""Returns the settings in the connection option `options`.

    >>> read_options(r"-csfumato.epsilon=0.1 -c a=b\ c --search-path=x")
    [('sfumato.epsilon', '0.1'), ('a', 'b c'), ('search_path', 'x')]
    """
    words = [re.sub(r"\\(.)", r"\1", word) for word in re.findall(r"(?:[^\s\\]|\\.)+", text)]
    found = []
    while words:
        word = words.pop(0)
        if word.startswith("--"):
            name, equals, value = word[2:].partition("=")
            name = name.replace("-", "_")
        elif word.startswith("-c"):
            name, equals, value = (word[2:] or (words.pop(0) if words else "")).partition("=")
        else:
            name, equals, value = "", "", ""
        if not equals or not name:
            raise Refusal("22023", "options are written -c name=value", fatal=True)
        found.append((name.lower(), value))
    return found


def _read_set(words: list[str], upper: list[str]) -> Command:
    rest = words[1:]
    local = upper[1:2] == ["LOCAL"]
    if upper[1:2] == ["LOCAL"] or (
        upper[1:2] == ["SESSION"] and upper[2:3] not in (["CHARACTERISTICS"], ["AUTHORIZATION"])
    ):
        rest = rest[1:]
    head = [word.upper() for word in rest[:2]]
    if head[:1] in (["TRANSACTION"], ["CONSTRAINTS"]) or head in (["SESSION", "CHARACTERISTICS"],):
        return Command(kind="nothing", tag="SET")
    if head[:1] == ["ROLE"] or head == ["SESSION", "AUTHORIZATION"]:
        raise Refusal("0A000", "a session stays with the user who logged in")
    if head == ["TIME", "ZONE"]:
        name, values = "timezone", rest[2:]
    elif head[:1] == ["NAMES"]:
        name, values = "client_encoding", rest[1:]
    elif len(rest) >= 3 and rest[1].upper() in ("=", "TO"):
        name, values = _setting_name(rest[:1]), rest[2:]
    else:
        raise Refusal("42601", "a setting is changed by SET name = value")
    if not values or any(word in ("(", ")", "=") for word in values):
        raise Refusal("42601", "a setting is changed by SET name = value")
    if [word.upper() for word in values] in (["DEFAULT"], ["LOCAL"]):
        return Command(kind="reset", tag="SET", name=name, local=local)
    value = "".join(", " if word == "," else _unquote(word, fold=False) for word in values)
    return Command(kind="set", tag="SET", name=name, value=value, local=local)


def _setting_name(words: list[str]) -> str:
    if not words:
        raise Refusal("42601", "the name of a setting is missing")
    joined = " ".join(words).upper()
    aliases = {"TIME ZONE": "timezone", "TRANSACTION ISOLATION LEVEL": "transaction_isolation"}
    aliases |= {"SESSION AUTHORIZATION": "session_authorization"}
    return aliases.get(joined, _unquote(words[0]).replace('"', "").lower())


def _read_declare(plain: str) -> Command:
    match = _DECLARE.match(plain)
    if match is None:
        raise Refusal("42601", "a cursor is declared by DECLARE name CURSOR FOR query")
    query = plain[match.end() :]
    if read_command(query).kind != "question":
        raise Refusal("42601", "a cursor is declared for a query")
    hold = (match[2] or "").lower() == "with"
    return Command(kind="declare", tag="DECLARE CURSOR", name=_unquote(match[1]), query=query, local=not hold)


def _read_fetch(words: list[str], upper: list[str]) -> Command:
    """FETCH and MOVE: a direction is forward, backward, absolute or relative, and a count, None for all."""
    if len(words) < 2:
        raise Refusal("42601", "rows are fetched by FETCH count FROM cursor")
    middle = [word for word in upper[1:-1] if word not in ("FROM", "IN")]
    short = {"": "FORWARD 1", "NEXT": "FORWARD 1", "PRIOR": "BACKWARD 1", "FIRST": "ABSOLUTE 1"}
    short |= {"LAST": "ABSOLUTE -1", "FORWARD": "FORWARD 1", "BACKWARD": "BACKWARD 1"}
    stated = " ".join(middle)
    found = re.fullmatch(
        r"(?:(FORWARD|BACKWARD|ABSOLUTE|RELATIVE) )?([+-]?\d{1,9}|ALL)", short.get(stated, stated)
    )
    if found is None or (found[2] == "ALL" and found[1] in ("ABSOLUTE", "RELATIVE")):
        raise Refusal("42601", "rows are fetched by FETCH count FROM cursor")
    direction = (found[1] or "FORWARD").lower(), None if found[2] == "ALL" else int(found[2])
    kind: Kind = "fetch" if upper[0] == "FETCH" else "move"
    return Command(kind=kind, tag=upper[0], name=_unquote(words[-1]), direction=direction)


def _read_copy(plain: str) -> Command:
    match = _COPY.match(plain)
    if match is None:
        raise Refusal(
            "0A000", "only COPY (query) TO STDOUT is answered", hint="records are changed outside sfumato"
        )
    depth, close = 0, -1
    for kind, start, _ in _scan(plain):
        depth += (kind == "(") - (kind == ")")
        if kind == ")" and depth == 0:
            close = start
            break
    rest = _TO.match(plain, close + 1) if close > 0 else None
    query = plain[match.end() : close].strip()
    if rest is None or read_command(query).kind != "question":
        raise Refusal("0A000", "only COPY (query) TO STDOUT is answered")
    return Command(kind="copy", query=query, form=_read_copy_form(plain[rest.end() :]))


def _read_copy_form(text: str) -> CopyForm:
    words = [word for word in _WORD.findall(text) if word not in ("(", ")", ",")]
    options: dict[str, str] = {}
    place = 0
    while place < len(words):
        key = words[place].lower()
        following = words[place + 1] if place + 1 < len(words) else ""
        if key in ("csv", "binary", "text"):
            options["format"] = key
        elif key == "header":
            on = following.lower() not in ("false", "off", "0")
            options["header"] = "1" if on else ""
            place += following.lower() in ("true", "on", "1", "false", "off", "0")
        elif key in ("format", "delimiter", "null", "quote", "escape", "encoding"):
            place += following.upper() == "AS"
            options[key] = _unquote(
                words[place + 1] if place + 1 < len(words) else "''", fold=key == "format"
            )
            place += 1
        elif key != "with":
            raise Refusal("0A000", f"COPY here has no option {key[:40]!r}")
        place += 1
    style = options.get("format", "text")
    delimiter = options.get("delimiter", "," if style == "csv" else "\t")
    quote = options.get("quote", '"')
    if style not in ("text", "csv", "binary") or len(delimiter) != 1 or len(quote) != 1:
        raise Refusal("22023", "COPY writes text, csv or binary, with one character between values")
    if options.get("escape", quote) != quote:
        raise Refusal("0A000", "COPY here escapes quotes by doubling them")
    return CopyForm(
        style=style,  # type: ignore[arg-type]  # one of the three
        delimiter=delimiter,
        null=options.get("null", "" if style == "csv" else "\\N"),
        quote=quote,
        header=bool(options.get("header")),
    )


def _unquote(word: str, *, fold: bool = True) -> str:
    if word[:1] in "eE" and word[1:2] == "'":
        letters = {"t": "\t", "n": "\n", "r": "\r"}
        return re.sub(r"\\(.)", lambda match: letters.get(match[1], match[1]), word[2:-1].replace("''", "'"))
    if word[:1] in ("'", '"') and len(word) > 1:
        return word[1:-1].replace(word[0] * 2, word[0])
    return word.lower() if fold else word


def _strip_comments(text: str) -> str:
    pieces, last = [], 0
    for kind, start, stop in _scan(text):
        if kind == "--":
            pieces += [text[last:start], " "]
            last = stop
    return "".join([*pieces, text[last:]])


def _scan(text: str) -> Iterator[tuple[str, int, int]]:
    """Yields the marks of a statement with where they begin and end: ; ( ) $ for parameters, -- for comments.

    Every quote and comment is closed or refused, so the time is linear in the text.
    """
    place = 0
    while match := _PIECE.search(text, place):
        start, mark = match.start(), match[0]
        place = match.end()
        if mark == "--":
            end = text.find("\n", place)
            place = len(text) if end < 0 else end
            yield "--", start, place
        elif mark == "/*":
            place = _close_comment(text, place)
            yield "--", start, place
        elif mark in ("'", '"'):
            place = _close_quote(text, place, mark)
        elif mark in ("e'", "E'"):
            escaped = _ESCAPED.match(text, place)
            place = escaped.end() if escaped else _unclosed()
        elif mark[0] == "$" and mark[-1] == "$":
            end = text.find(mark, place)
            place = end + len(mark) if end >= 0 else _unclosed()
        elif mark[0] == "$":
            yield "$", start, place
        elif mark in ";()":
            yield mark, start, place


def _close_quote(text: str, place: int, mark: str) -> int:
    while True:
        end = text.find(mark, place)
        if end < 0:
            _unclosed()
        if text[end + 1 : end + 2] != mark:
            return end + 1
        place = end + 2


def _close_comment(text: str, place: int) -> int:
    depth = 1
    for match in _COMMENT.finditer(text, place):
        depth += 1 if match[0] == "/*" else -1
        if depth == 0:
            return match.end()
    return _unclosed()


def _unclosed() -> int:
    raise Refusal("42601", "a quote or a comment is not closed")
