"""Tables of cases beside the tests that run them: `commands.cases` beside `test_commands.py`."""

import ast
from pathlib import Path


def read_cases(file, name):
    """Returns the cases under `## name`, one Python literal a line, of the file beside a file of tests."""
    path = Path(file)
    text = path.with_name(f"{path.stem.removeprefix('test_')}.cases").read_text(encoding="utf-8")
    sections = dict(section.partition("\n")[::2] for section in text.split("## ")[1:])
    return [ast.literal_eval(line) for line in sections[name].splitlines() if line.strip()]
