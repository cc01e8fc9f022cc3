"""The shell of `sfumato sql`: lines become statements, which a curator or a released model answers.

What is completed is public: keywords, tables, columns and their values. Nothing here reads a record.
"""

from __future__ import annotations

import re
import sys
import time
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sfumato.cli.output import note, note_no_ledger, progress, say, show_answer
from sfumato.core.errors import SfumatoError, UnsupportedQuery
from sfumato.core.exact import format_short
from sfumato.core.facts.column import suggest_name
from sfumato.sql.statement import mask_text

if TYPE_CHECKING:
    from sfumato.cli.output import Mode
    from sfumato.core.ledger.report import BudgetReport
    from sfumato.sql.finish import Answer


_TEXTS = tomllib.loads(Path(__file__).with_name("shell.toml").read_text(encoding="utf-8"))
COMMANDS: list[str] = _TEXTS["commands"]
CHOICES: dict[str, list[str]] = _TEXTS["choices"]

_WORD = re.compile(r"[\w.$-]*$")
_BEFORE_TABLE = re.compile(
    r"\b(?:from|join|describe|desc|summarize|table)\s+$|^\s*\.schema\s+|\bfrom\s[^()]*,\s*$", re.IGNORECASE
)
_COMPARED = re.compile(
    r'([A-Za-z_]\w*|"[^"]+")\s*(?:=|<>|!=|(?:not\s+)?in\s*\([^()]*|like)\s*$', re.IGNORECASE
)
_MOST = 500
_MOST_VALUES = 1000  # of one column that are completed


@dataclass(frozen=True, slots=True, kw_only=True)
class Vocabulary:
    """The public names: tables with their columns, and the public values of columns."""

    tables: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    values: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


def complete(text: str, vocabulary: Vocabulary) -> tuple[int, list[str]]:
    """Returns where the last word of `text` begins, and what it may become.

    >>> trips = Vocabulary(tables={"trips": ("fare", "zone")}, values={"zone": ("north", "old town")})
    >>> complete("select count(*) from tr", trips)
    (21, ['trips'])
    >>> complete("SELECT COUNT(*) FROM trips WHERE zone = 'o", trips)
    (40, ["'old town'"])
    >>> complete("select dea", Vocabulary(tables={"t": ("Death City", "deaths")}))
    (7, ['"Death City"', 'deaths'])
    """
    if text.lstrip().startswith("."):
        return _complete_command(text, vocabulary)
    if text.count("'") % 2:
        start = text.rindex("'")
        return start, _complete_value(text[:start], text[start + 1 :], vocabulary)
    columns = [column for name in _named_tables(text, vocabulary) for column in vocabulary.tables[name]]
    if text.count('"') % 2:
        start = text.rindex('"')
        names = vocabulary.tables if _BEFORE_TABLE.search(text[:start]) else dict.fromkeys(columns)
        return start, [_quote(name) for name in _starting(text[start + 1 :], names)]
    found = _WORD.search(text)
    start = found.start() if found is not None else len(text)
    word, before = text[start:], text[:start]
    if _BEFORE_TABLE.search(before):
        return start, _spell(_starting(word, vocabulary.tables))
    table, dot, part = word.rpartition(".")
    if dot:
        listed = _fold(vocabulary.tables).get(table.lower(), ())
        return start + len(table) + 1, _spell(_starting(part, listed))
    lower = word.islower()
    spoken = [each.lower() if lower else each for each in (*_TEXTS["functions"], *_TEXTS["keywords"])]
    offered = _spell(_starting(word, dict.fromkeys(columns)))
    return start, [*offered, *(_starting(word, spoken) if word else ())]


def read_vocabulary(
    text: Callable[[], str], vocabulary: Callable[[], Vocabulary]
) -> Callable[..., str | None]:
    """Gives the function that readline calls; `text` is what was written of the statement on lines before."""
    import readline

    found: list[str] = []

    def completer(_word: str, state: int) -> str | None:
        nonlocal found
        if state == 0:
            before, line = text(), readline.get_line_buffer()[: readline.get_endidx()]
            start, candidates = complete(before + line, vocabulary())
            # Only what stands from begidx on is replaced, and a value may hold blanks before that.
            skipped = readline.get_begidx() - (start - len(before))
            found = [each[skipped:] if skipped > 0 else each for each in candidates[:_MOST]]
        return found[state] if state < len(found) else None

    return completer


def _complete_command(text: str, vocabulary: Vocabulary) -> tuple[int, list[str]]:
    command, blank, word = text.lstrip().partition(" ")
    start = len(text) - len(word)
    if not blank:
        return len(text) - len(command), _starting(command, COMMANDS)
    options = vocabulary.tables if command == ".schema" else CHOICES.get(command, ())
    return start, _starting(word, options)


def _complete_value(before: str, typed: str, vocabulary: Vocabulary) -> list[str]:
    compared = _COMPARED.search(before)
    values = _fold(vocabulary.values)
    name = "" if compared is None else compared[1].strip('"').lower()
    listed = values.get(name) if name else None
    if listed is None:
        listed = tuple(dict.fromkeys(value for each in values.values() for value in each))
    return ["'" + value.replace("'", "''") + "'" for value in _starting(typed, listed)]


def _named_tables(text: str, vocabulary: Vocabulary) -> list[str]:
    """Returns the tables that a statement names; all of them if it names none yet."""
    words = set(re.findall(r"\w+", text.lower()))
    return [name for name in vocabulary.tables if name.lower() in words] or list(vocabulary.tables)


def _spell(names: Iterable[str]) -> list[str]:
    """Returns names as a statement has them: in quotes where they need them."""
    return [name if re.fullmatch(r"[^\W\d]\w*", name) else _quote(name) for name in names]


def _quote(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _starting(word: str, names: Iterable[str]) -> list[str]:
    folded = word.casefold()
    return [name for name in names if name.casefold().startswith(folded)]


def _fold(named: Mapping[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
    return {name.lower(): each for name, each in named.items()}


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
        """Yields the pieces that are complete with one more line."""
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
        """Yields the statement at the end, which needs no semicolon."""
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
        """Returns a statement, with the line of its own first word: remarks before it are part of it."""
        return Piece(text=text.strip(), line=self._begin + text.count("\n", 0, _first(text)))


def split_script(lines: Iterable[str]) -> Iterator[Piece]:
    r"""Yields the statements and commands of a script.

    >>> script = ["-- two; remarks\n", "SELECT\n", "1; .b;\n", ".budget"]
    >>> [(piece.line, piece.text) for piece in split_script(script)]
    [(2, '-- two; remarks\nSELECT\n1;'), (3, '.b;'), (4, '.budget')]
    """
    collector = Collector()
    for line in lines:
        yield from collector.feed(line)
    yield from collector.finish()


def _begins(text: str) -> bool:
    """Returns whether there is more than blanks and remarks."""
    return _first(text) < len(text)


def _first(text: str) -> int:
    """Returns the place of the first sign that is no blank and in no remark."""
    try:
        masked = mask_text(text)
    except UnsupportedQuery:
        masked = text
    kept = mask_text(text, quotes=False) if masked is not text else text
    return len(kept) - len(kept.lstrip())


_WORDS = ("help", "quit", "exit")
"""What other shells take without a dot; no statement begins so."""


class Curated:
    """Statements answered by the project's curator, who charges the ledger."""

    welcome = (
        "DP-SELECT epsilon ... FROM table;  EXPLAIN ... spends nothing;  "
        ".tables  .schema  .budget  .help  .quit"
    )

    def __init__(self, project: str) -> None:
        import sfumato

        self._curator = sfumato.open(project)
        self.history: Path | None = self._curator.project.folder / ".sfumato_history"
        self._vocabulary: Vocabulary | None = None

    def run(self, text: str, *, quiet: bool, agree: Callable[[str], bool]) -> Answer | None:
        """Returns the answer to a statement; None if it was not bought because of a warning."""
        warning = self._announce(text)
        if warning and not agree(warning):
            return None
        earlier = self._curator.budget()
        with progress(quiet=quiet) as stage:
            answer = self._curator.sql(text, progress=stage)
        for each in answer.notes:
            if each not in warning.split("; "):  # which has been said
                note(each)
        if not quiet:
            note(self._describe(answer, earlier))
        return answer

    def tables(self) -> Answer:
        """Returns the tables that can be asked."""
        return self._curator.sql("SHOW TABLES")

    def schema(self, table: str) -> Answer:
        """Returns the columns of a table."""
        quoted = table.strip('"').replace('"', '""')
        return self._curator.sql(f'DESCRIBE "{quoted}"')

    def budget(self) -> str:
        """Returns what is left, in a sentence."""
        return self._curator.budget().describe_left()

    def facts(self) -> dict[str, Any]:
        """Returns what JSON says beside an answer."""
        return {"left": str(self._curator.budget().left)}

    def vocabulary(self) -> Vocabulary:
        """Returns the public names to complete."""
        if self._vocabulary is None:
            project = self._curator.project
            names = [*project.tables, *project.public]
            values = {
                column.name: tuple(map(str, column.labels))
                for table in project.tables.values()
                for column in table.columns.values()
                if column.domain is not None
                and column.size <= _MOST_VALUES
                and (column.accepted or not column.drafted)
            }
            tables = {name: tuple(self.schema(name).table["column"].to_pylist()) for name in names}
            self._vocabulary = Vocabulary(tables=tables, values=values)
        return self._vocabulary

    def _announce(self, text: str) -> str:
        """Says what WITHIN will spend; gives the warning that an answer would be noise, if it would."""
        from sfumato.sql.listing import read_listing
        from sfumato.sql.statement import read_statement

        statement = None if read_listing(text) is not None else read_statement(text)
        if statement is None or statement.explain:
            return ""
        if statement.mode == "private":
            note_no_ledger(self._curator)
        within = statement.within
        if within is None and not self._curator.has_ledger():
            return ""  # nothing was released, so that nothing is known
        explained = self._curator.sql(f"EXPLAIN {text}")
        plan = explained.explanation or ""
        if within is not None:
            cost = next(
                (line.split(None, 1)[1] for line in plan.splitlines() if line.startswith("  cost")), ""
            )
            note(
                f"WITHIN a share of the answer: begins with {cost}, and grows until it is reached"
                if within.relative
                else f"WITHIN needs {cost}"
            )
        price = explained.price
        return "" if price is None or price.stored else "; ".join(explained.notes)

    def _describe(self, answer: Answer, earlier: BudgetReport) -> str:
        report = self._curator.budget()
        left = f"epsilon {report.left} left"
        if answer.explanation is not None or answer.public:
            return f"nothing spent; {left}"
        kind = "synthetic rows, no record is among them; " if answer.synthetic else ""
        if answer.repeated:
            return f"{kind}answered before: nothing spent; {left}"
        delta = f", delta {format_short(answer.delta)}" if answer.delta else ""
        return kind + report.describe_since(earlier, f"epsilon {format_short(answer.spent)}{delta}")


class Modelled:
    """Statements answered from the model of a release, which is public: there is nothing to charge."""

    welcome = "SELECT ... FROM table;  spends nothing;  .tables  .schema  .help  .quit"
    history: Path | None = None

    def __init__(self, folder: str, epsilon: str | None, *, population: bool = False) -> None:
        from sfumato.release.ask import open_model

        self._model = open_model(folder, epsilon=epsilon)
        self._population = population

    def run(self, text: str, *, quiet: bool, agree: Callable[[str], bool]) -> Answer | None:
        """Returns the answer to a statement; None if it was not bought because of a warning."""
        answer = self._model.sql(text, population=self._population)
        # What an answer rests on is said to whoever reads it, also beside JSON.
        for each in answer.notes:
            note(each)
        if not quiet:
            note(f"from the model at epsilon {self._model.epsilon}: nothing spent")
        return answer

    def tables(self) -> Answer:
        """Returns the tables that can be asked."""
        return _list({"name": [self._model.table.name], "columns": [", ".join(self._model.columns)]})

    def schema(self, table: str) -> Answer:
        """Returns the columns of a table."""
        name = self._model.table.name
        if table.strip('"').lower() != name.lower():
            raise UnsupportedQuery(f"no table {table!r}{suggest_name(table, [name])}")
        return _list({"column": list(self._model.columns)})

    def budget(self) -> str:
        """Returns what is left, in a sentence."""
        return "a released model costs nothing to ask"

    def facts(self) -> dict[str, Any]:
        """Returns what JSON says beside an answer."""
        return {}

    def vocabulary(self) -> Vocabulary:
        """Returns the public names to complete."""
        return Vocabulary(tables={self._model.table.name: tuple(self._model.columns)})


def _list(columns: dict[str, list[str]]) -> Answer:
    import pyarrow as pa

    from sfumato.sql.finish import Answer

    return Answer(table=pa.table(columns), public=True)


class Quit(Exception):
    """The shell is to end."""


@dataclass(kw_only=True)
class Shell:
    """Runs statements and commands, and shows what they answer.

    `interactive` is whether somebody types: errors are then told and the shell goes on. Else it stops at the
    first one, unless it is to `keep_going`; `code` is the exit code of the first error.
    """

    respondent: Curated | Modelled
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
        """Returns whether what was warned of is bought all the same; only somebody who types is asked."""
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
                say(_TEXTS["help"])
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
    """Returns the lines of a file of statements; of stdin if it is called -."""
    if name == "-":
        return list(sys.stdin)
    try:
        return Path(name).read_text(encoding="utf-8").splitlines(keepends=True)
    except (OSError, UnicodeDecodeError) as error:
        raise UnsupportedQuery(f"file {name!r} cannot be read ({type(error).__name__})") from None


def load_line_editor(respondent: Curated | Modelled, pending: Callable[[], str]) -> None:
    """Completion and history for the terminal, where the standard library has a line editor."""
    try:
        import readline
    except ImportError:  # pragma: no cover - Windows
        return

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
