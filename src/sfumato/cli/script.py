"""Lines collected into statements, each with the line on which it begins."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from sfumato.core.errors import UnsupportedQuery
from sfumato.sql.statement import mask_text

_LONGEST = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """A statement, or a command that begins with a dot, and the line on which it begins."""

    text: str
    line: int

    @property
    def is_command(self) -> bool:
        """Whether it is a command of the shell and no statement."""
        return self.text.startswith(".")


class Collector:
    """Takes lines one by one and gives the pieces that they complete.

    A statement ends with a semicolon outside quotes and comments. A line that begins with a dot is a command,
    unless a statement is under way.
    """

    def __init__(self) -> None:
        self._pending = ""
        self._begin = self._line = 1

    @property
    def is_empty(self) -> bool:
        """Whether no statement is under way."""
        return not _begins(self._pending)

    @property
    def prompt(self) -> str:
        """What is asked for: a statement, the rest of one, or the end of a quote or a comment."""
        if self.is_empty:
            return "sfumato> "
        return "   '...> " if self._is_hidden else "    ...> "

    @property
    def _is_hidden(self) -> bool:
        """Whether a quote or a comment is open, in which no semicolon ends a statement."""
        try:
            mask_text(self._pending)
        except UnsupportedQuery:
            return True
        return False

    @property
    def pending(self) -> str:
        """What was written of the statement that is under way."""
        return self._pending

    def clear(self) -> None:
        """Forgets the statement that is under way."""
        self._pending = ""

    def feed(self, line: str) -> Iterator[Piece]:
        """The pieces that are complete with one more line."""
        number, self._line = self._line, self._line + 1
        if self.is_empty and line.lstrip().startswith("."):
            self._pending = ""
            yield Piece(text=line.strip(), line=number)
            return
        if not self._pending.strip():
            self._pending, self._begin = "", number
        self._pending += line if line.endswith("\n") else f"{line}\n"
        yield from self._take()

    def finish(self) -> Iterator[Piece]:
        """The statement at the end, which needs no semicolon."""
        if not self.is_empty:
            yield self._piece(self._pending)
        self._pending = ""

    def _take(self) -> Iterator[Piece]:
        while True:
            try:
                end = mask_text(self._pending).find(";")
            except UnsupportedQuery:  # a quote or a comment is open, it may be closed on a line to come
                if len(self._pending) > _LONGEST:
                    yield from self.finish()
                return
            if end < 0:
                return
            text, rest = self._pending[: end + 1], self._pending[end + 1 :]
            if _begins(text.removesuffix(";")):
                yield self._piece(text)
            self._begin += text.count("\n")
            self._pending = rest

    def _piece(self, text: str) -> Piece:
        """A statement, with the line of its own first word: remarks before it are part of it."""
        return Piece(text=text.strip(), line=self._begin + text.count("\n", 0, _first(text)))


def split_script(lines: Iterable[str]) -> Iterator[Piece]:
    r"""The statements and commands of a script.

    >>> script = ["-- two; remarks\n", "SELECT\n", "1; .b;\n", ".budget"]
    >>> [(piece.line, piece.text) for piece in split_script(script)]
    [(2, '-- two; remarks\nSELECT\n1;'), (3, '.b;'), (4, '.budget')]
    """
    collector = Collector()
    for line in lines:
        yield from collector.feed(line)
    yield from collector.finish()


def _begins(text: str) -> bool:
    """Whether there is more than blanks and remarks."""
    return _first(text) < len(text)


def _first(text: str) -> int:
    """The place of the first sign that is no blank and in no remark."""
    try:
        masked = mask_text(text)
    except UnsupportedQuery:
        masked = text
    kept = mask_text(text, quotes=False) if masked is not text else text
    return len(kept) - len(kept.lstrip())
