"""Writes docs/sfumato.1, the man page, from the command line itself; `make reference` runs it."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import typer

from sfumato.cli import app

PAGE = Path(__file__).parent / "sfumato.1"
CODES = (
    ("0", "done"),
    ("1", "a source, the ledger or a folder could not be read or written"),
    ("2", "wrong usage, or an invalid project file, recipe or privacy parameter"),
    ("3", "the budget would be exceeded; nothing was spent"),
    ("4", "verification failed, or an audit refuted a claim"),
    ("130", "interrupted; a charge that was made is kept"),
)


def escape(text: str) -> str:
    r"""`text` for roff.

    >>> escape("a-b \\ .c")
    'a\\-b \\e .c'
    """
    lines = [line.replace("\\", "\\e").replace("-", "\\-") for line in text.splitlines()]
    return "\n".join(f"\\&{line}" if line[:1] in ".'" else line for line in lines)


def describe(name: str, command: typer.core.TyperCommand) -> list[str]:
    """The section of one command: what it does, then its arguments and options."""
    if hasattr(command, "commands"):
        return [line for each, part in command.commands.items() for line in describe(f"{name} {each}", part)]
    told = re.sub(r"\s*\n\s*\n\s*", "\n.PP\n", (command.help or "").strip())
    lines = [f'.SS "sfumato {name}"', *(part.strip() for part in escape_paragraphs(told))]
    for parameter in command.params:
        if parameter.name == "help" or getattr(parameter, "hidden", False):
            continue
        words = ", ".join(parameter.opts) if parameter.param_type_name == "option" else parameter.name.upper()
        lines += [".TP", f"\\fB{escape(words)}\\fR", escape(getattr(parameter, "help", None) or "")]
    return lines


def escape_paragraphs(text: str) -> list[str]:
    """Lines of text, with requests for paragraphs between them as they are."""
    return [line if line == ".PP" else escape(line) for line in text.splitlines() if line.strip()]


def build() -> str:
    """The whole page."""
    root = typer.main.get_command(app)
    lines = [
        '.TH SFUMATO 1 "" "sfumato" "User Commands"',
        ".SH NAME",
        "sfumato \\- private releases of people's records, with their proof attached",
        ".SH SYNOPSIS",
        ".B sfumato",
        "\\fICOMMAND\\fR [\\fIARGUMENTS\\fR] [\\fB\\-\\-json\\fR] [\\fB\\-\\-help\\fR]",
        ".SH DESCRIPTION",
        "Results go to standard output, everything else to standard error. Nothing is overwritten without "
        "\\fB\\-\\-force\\fR.",
        ".SH COMMANDS",
    ]
    for name, command in root.commands.items():
        lines += describe(name, command)
    lines.append(".SH EXIT STATUS")
    for code, meaning in CODES:
        lines += [".TP", f"\\fB{code}\\fR", escape(meaning)]
    return "\n".join(line for line in lines if line) + "\n"


if __name__ == "__main__":
    PAGE.write_text(build(), encoding="utf-8")
    sys.stdout.write(f"{PAGE.name} is written\n")
