"""The shell of `sfumato sql`: statements and commands from a terminal, a pipe or a file."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from sfumato.cli.completion import CHOICES, COMMANDS
from sfumato.cli.display import show_answer
from sfumato.cli.output import note, say
from sfumato.cli.script import Collector, Piece, split_script
from sfumato.core.errors import SfumatoError, UnsupportedQuery
from sfumato.core.facts.column import suggest_name

if TYPE_CHECKING:
    from sfumato.cli.display import Mode
    from sfumato.cli.respondent import Respondent
    from sfumato.sql.finish import Answer

_HELP = """\
DP-SELECT 0.5 COUNT(*) FROM table;   a statement ends with a semicolon and says what it may spend
EXPLAIN DP-SELECT ...;               its plan, price and expected error; spends nothing
.tables                              the tables, and whom they protect
.schema [TABLE]                      columns, types, public values and bounds; of all tables without a name
.budget                              what is left
.mode [box|line|csv|json|markdown]   how answers are shown
.timing on|off                       how long each statement took, shown to you alone
.pager on|off                        long answers page by page, by PAGER or less
.read FILE                           the statements of a file
.help, .quit"""

_WORDS = ("help", "quit", "exit")
"""What other shells take without a dot; no statement begins so."""


class Quit(Exception):
    """The shell is to end."""


@dataclass(kw_only=True)
class Shell:
    """Runs statements and commands, and shows what they answer.

    `interactive` is whether somebody types: errors are then told and the shell goes on. Else it stops at the
    first one, unless it is to `keep_going`; `code` is the exit code of the first error.
    """

    respondent: Respondent
    mode: Mode
    interactive: bool = False
    keep_going: bool = False
    quiet: bool = False
    shown: bool = True
    paged: bool = True
    timing: bool = False
    code: int = 0
    last: Answer | None = None

    def run_script(self, lines: Iterable[str], *, name: str = "") -> None:
        """Runs the pieces of a script; errors name the line on which a statement begins."""
        where = f"{name}, " if name else ""
        for piece in split_script(lines):
            try:
                self.run(piece)
            except SfumatoError as error:
                note(f"{where}line {piece.line}: {error}")
                self.code = self.code or error.exit_code
                if not self.keep_going:
                    return

    def run(self, piece: Piece) -> None:
        """Runs one statement or command."""
        if piece.is_command:
            self._run_command(piece.text.rstrip(";").split())
            return
        began = time.monotonic()
        answer = self.respondent.run(piece.text, quiet=self.quiet, agree=self._agree)
        took = time.monotonic() - began
        if answer is None:
            note("not bought: nothing spent")
            return
        self.last = answer
        if self.shown:
            self._show(answer)
        if self.timing:
            note(f"took {took:.3f} s")

    def converse(self) -> None:
        """Reads from the terminal until the end."""
        collector = Collector()
        load_line_editor(self.respondent, lambda: collector.pending)
        note(self.respondent.welcome)
        while True:
            try:
                line = _read_line(collector.prompt)
            except KeyboardInterrupt:
                note("" if collector.is_empty else "forgotten")
                collector.clear()
                continue
            except EOFError:
                return
            word = line.strip().rstrip(";").lower()
            if collector.is_empty and word in _WORDS:
                line = f".{word}"
            for piece in collector.feed(line):
                try:
                    self.run(piece)
                except SfumatoError as error:
                    note(f"error: {error}")
                except KeyboardInterrupt:
                    note("interrupted; a charge that was made is kept, ask again for its answer")
                except Quit:
                    return

    def _show(self, answer: Answer, *, paged: bool = True) -> None:
        facts = self.respondent.facts() if self.mode == "json" else None
        show_answer(answer, self.mode, facts=facts, paged=paged and self.interactive and self.paged)

    def _agree(self, warning: str) -> bool:
        """Whether what was warned of is bought all the same; only somebody who types is asked."""
        note(f"warning: {warning}")
        if not self.interactive:
            return True
        with suppress(EOFError, KeyboardInterrupt):
            return _read_line("buy it all the same? [y/N] ").strip().lower() in ("y", "yes")
        return False

    def _run_command(self, words: list[str]) -> None:
        command, rest = words[0].lower(), words[1:]
        match command:
            case ".quit" | ".exit":
                raise Quit
            case ".help":
                say(_HELP)
            case ".budget":
                note(self.respondent.budget())
            case ".tables":
                self._show(self.respondent.tables(), paged=False)
            case ".schema":
                for name in rest or self.respondent.tables().table["name"].to_pylist():
                    if not rest:
                        note(f"{name}:")
                    self._show(self.respondent.schema(name), paged=False)
            case ".mode" if not rest:
                note(f"mode {self.mode}")
            case ".mode":
                self.mode = _choose(command, rest)  # type: ignore[assignment]
            case ".timing":
                self.timing = _choose(command, rest) == "on"
            case ".pager":
                self.paged = _choose(command, rest) == "on"
            case ".read" if len(rest) == 1:
                self.run_script(read_lines(rest[0]), name=rest[0])
            case _:
                raise UnsupportedQuery(f"no command {command!r}{suggest_name(command, COMMANDS)}")


def read_lines(name: str) -> list[str]:
    """The lines of a file of statements; of stdin if it is called -."""
    if name == "-":
        return list(sys.stdin)
    try:
        return Path(name).read_text(encoding="utf-8").splitlines(keepends=True)
    except (OSError, UnicodeDecodeError) as error:
        raise UnsupportedQuery(f"file {name!r} cannot be read ({type(error).__name__})") from None


def load_line_editor(respondent: Respondent, pending: Callable[[], str]) -> None:
    """Completion and history for the terminal, where the standard library has a line editor."""
    try:
        import readline
    except ImportError:  # pragma: no cover - Windows
        return
    from sfumato.cli.completion import read_vocabulary

    readline.set_completer(read_vocabulary(pending, respondent.vocabulary))
    readline.set_completer_delims(" \t\n,()=<>;")
    bound = "bind ^I rl_complete" if "libedit" in (readline.__doc__ or "") else "tab: complete"
    readline.parse_and_bind(bound)
    if respondent.history is not None:
        _load_history(respondent.history)


def _load_history(path: Path) -> None:
    import atexit
    import readline

    # Statements hold no record, but they tell what somebody looked for: only the user may read them.
    with suppress(OSError):
        path.touch(mode=0o600)
        readline.read_history_file(path)
    readline.set_history_length(1000)

    def write() -> None:
        with suppress(OSError):
            readline.write_history_file(path)

    atexit.register(write)


def _read_line(prompt: str) -> str:
    if sys.stdout.isatty():
        return input(prompt)
    # The prompt is no data, which goes to a file or a pipe.
    sys.stderr.write(prompt)
    sys.stderr.flush()
    line = sys.stdin.readline()
    if not line:
        raise EOFError
    return line


def _choose(command: str, rest: list[str]) -> str:
    choices = CHOICES[command]
    if len(rest) != 1 or rest[0].lower() not in choices:
        raise UnsupportedQuery(f"{command} takes {', '.join(choices[:-1])} or {choices[-1]}")
    return rest[0].lower()
