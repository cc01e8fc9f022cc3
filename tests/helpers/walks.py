"""Pages walked as a reader would: what they show is run, in its order.

Doctests run always, and ```toml whose first line is `# NAME.toml` is written to that file.
On a page that says `<!-- every block runs -->` the blocks without `>>>` run, too:

- ```python is executed, ```sql asked of `curator` or else by `sfumato sql`, ```sh run line by line;
- ```text right behind a block is what it prints. Noise differs, so any number stands for
  any other, `...` for any text;
- `<!-- not run -->` before a block says that it is shown only.

What stands in any other HTML comment is read like the page itself: set-up that nobody has to read.
"""

import contextlib
import doctest
import io
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import duckdb

import sfumato as sf
from helpers.cli import run_main
from helpers.served import serve

FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
EVERY = "<!-- every block runs -->"
PIECE = re.compile(
    r"^<!--(?P<hidden>.*?)-->|^```(?P<language>\w*)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL
)
NUMBER = re.compile(r"[-+]?\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?|[─━-]{3,}")


class Walk:
    """One reader of one page, in the current folder: names that were defined, servers that run."""

    def __init__(self, page):
        self.page, self.names, self.languages = page, {"__name__": "__main__"}, set()
        self.text = page.read_text(encoding="utf-8")
        self.every = EVERY in self.text
        self.running, self.token, self.printed = contextlib.ExitStack(), "", None

    def run(self):
        """Runs the page; fails with the block that does not do what the page says."""
        with self.running:
            self.read(self.text, 0)

    def read(self, text, line):
        skipped = False
        for piece in PIECE.finditer(text):
            at = line + text.count("\n", 0, piece.start())
            if (hidden := piece["hidden"]) is not None:
                skipped = hidden.strip() == "not run"
                # What stands open in a comment has no fences of its own.
                self.check_doctest(re.sub(r"^```.*?^```$", "", hidden, flags=re.MULTILINE | re.DOTALL), at)
                self.read(hidden, at)
                continue
            body, language = piece["body"], piece["language"]
            self.languages.add(language)
            if re.search(r"^>>> ", body, re.MULTILINE):
                self.check_doctest(body, at + 1)
            elif (self.every or language == "toml") and not skipped:
                if language == "text" and self.printed is not None:
                    assert agree(body, self.printed), (
                        f"{self.page.name}, line {at + 1}: prints\n{self.printed}"
                    )
                else:
                    self.printed = self.run_block(language, body)
            skipped = False

    def check_doctest(self, text, line):
        test = doctest.DocTestParser().get_doctest(text, self.names, self.page.name, str(self.page), line)
        result = doctest.DocTestRunner(optionflags=FLAGS).run(test, clear_globs=False)
        self.names = test.globs
        assert result.failed == 0

    def run_block(self, language, body):
        """What a block prints; None of a block that is only shown."""
        if language == "python":
            out = io.StringIO()
            with contextlib.redirect_stdout(out):
                exec(compile(body, self.page.name, "exec"), self.names)
            return out.getvalue()
        if language == "sql":
            if "curator" in self.names:
                answer = self.names["curator"].sql(body)
                return show_answer(answer) if hasattr(answer, "table") else f"{answer}\n"
            return run_command(["sfumato", "sql", body])
        if language == "sh":
            lines = re.sub(r"\\\n\s*", "", body).splitlines()
            return "".join(self.run_line(each) for each in lines if each and not each.startswith("#"))
        if language == "toml" and (named := re.match(r"# ([\w.-]+\.toml)\n", body)):
            Path(named[1]).write_text(body, encoding="utf-8")
        return None

    def run_line(self, line):
        """What one line of a terminal prints; a server has ports of its own, `make` its own tests."""
        if line == "sfumato serve":
            self.names["served"] = self.running.enter_context(serve(Path.cwd()))
            return ""
        if line.startswith("cd "):
            os.chdir(line.removeprefix("cd "))
            return ""
        if line.startswith("psql "):
            line = line.replace("port=5439", f"port={self.names['served'].addresses['pg_port']}")
        if line.startswith(("make ", "export PGPASSWORD=")):
            return ""
        # In this process where no shell is needed: quicker, and with the noise of the test.
        plain = line.startswith("sfumato ") and not re.search("[|><]", line)
        command = shlex.split(line, comments=True) if plain else line
        printed = run_command(command, PGPASSWORD=self.token)
        if token := re.match(r"token (\S+)", printed):
            self.token = token[1]
        return printed


def run_command(command, **environment):
    """What a command prints on both streams; commands of the shell find this Python's programs."""
    if isinstance(command, list):
        done = run_main(*command[1:], COLUMNS="110")
        return done.stdout + done.stderr
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = os.environ | {"PATH": path, "COLUMNS": "110", "NO_COLOR": "1", **environment}
    done = subprocess.run(command, shell=True, env=environment, capture_output=True, text=True, check=False)
    # What psql is refused, a page shows; it ends with 1 then.
    assert done.returncode == 0 or command.startswith("psql "), f"{command}: {done.stderr}"
    assert "Warning" not in done.stderr, f"{command}: {done.stderr}"
    return done.stdout + done.stderr


def show_answer(answer):
    """An answer as a page shows it: names, then rows, in columns, and what it cost."""
    cells = [answer.table.column_names, *(row.values() for row in answer.table.to_pylist())]
    rows = [
        [f"{each:.2f}" if isinstance(each, float) else "" if each is None else str(each) for each in row]
        for row in cells
    ]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    cost = f"epsilon {float(answer.spent)} spent" if answer.spent else "nothing spent"
    return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows) + f"\n({cost})\n"


def agree(shown, printed):
    """Whether what a page shows was printed, but for the noise and for what stands before and behind."""
    want, got = (" ".join(NUMBER.sub("0", each).split()) for each in (shown, printed))
    pattern = re.escape(want).replace(r"\ \.\.\.", "( .*)?").replace(r"\.\.\.", ".*")
    return re.search(pattern, got, re.DOTALL)


def open_visits():
    """The curator of the pages about SQL; their table is described in docs/sql.md."""
    duckdb.execute(
        """COPY (SELECT i % 1000 AS person, ['North', 'South', 'Harbour'][1 + i % 3] AS clinic,
        DATE '2025-01-01' + (i % 365)::INTEGER AS visited, (i * 37 % 9000) / 100.0 AS fee,
        'ward ' || i % 4 AS ward,
        TIMESTAMP '2025-01-01 08:00:00' + INTERVAL (i * 2) HOUR AS at
        FROM range(4000) AS t(i)) TO 'visits.parquet'"""
    )
    Path("clinics.csv").write_text("name,side\nNorth,city\nSouth,city\nHarbour,coast\n")
    Path("sfumato.toml").write_text(read_block("sql.md", "sfumato.toml"))
    return sf.open("sfumato.toml")


def make_people():
    """Writes the table of the pages about synthetic rows, and its project file of docs/synthesis.md."""
    lines = [
        f"p{n},{n % 90},{'north' if n % 3 else 'south'},{'none' if n % 90 < 15 else 'trade'}"
        for n in range(4000)
    ]
    Path("people.csv").write_text("\n".join(["person,age,region,job", *lines]))
    Path("sfumato.toml").write_text(read_block("synthesis.md", "sfumato.toml"))


def read_block(page, name):
    """The block of a page of docs/ whose first line names a file."""
    text = (Path(__file__).parents[2] / "docs" / page).read_text(encoding="utf-8")
    return next(
        each["body"] for each in PIECE.finditer(text) if (each["body"] or "").startswith(f"# {name}\n")
    )
