"""Runs notebooks from top to bottom and writes what their cells show: `run.py [NAME...]`.

A cell shows its last expression as a notebook does, as a card if it has one. No kernel is needed.
"""

from __future__ import annotations

import ast
import contextlib
import io
import json
import os
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent


def run_notebook(path: Path) -> dict:
    """The notebook at `path` with the outputs of all its cells, run in an empty folder."""
    notebook = json.loads(path.read_text(encoding="utf-8"))
    names: dict[str, object] = {"__name__": "__main__"}
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            for number, cell in enumerate(notebook["cells"], start=1):
                if cell["cell_type"] == "code":
                    cell["execution_count"] = number
                    cell["outputs"] = _run_cell("".join(cell["source"]), names, f"{path.name}, cell {number}")
        finally:
            os.chdir(before)
    return notebook


def _run_cell(source: str, names: dict[str, object], where: str) -> list[dict]:
    tree = ast.parse(source, filename=where)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    printed, outputs, value = io.StringIO(), [], None
    with contextlib.redirect_stdout(printed):
        exec(compile(tree, where, "exec"), names)
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), where, "eval"), names)
    if printed.getvalue():
        lines = printed.getvalue().splitlines(keepends=True)
        outputs.append({"output_type": "stream", "name": "stdout", "text": lines})
    if value is not None:
        shown = {"text/plain": repr(value).splitlines(keepends=True)}
        card = getattr(value, "_repr_html_", None)
        if card is not None:
            shown["text/html"] = card().splitlines(keepends=True)
        outputs.append({"output_type": "display_data", "metadata": {}, "data": shown})
    return outputs


def main() -> None:
    """Runs the named notebooks, or all."""
    for path in sorted(HERE.glob("*.ipynb")):
        if len(sys.argv) == 1 or path.stem in sys.argv[1:]:
            text = json.dumps(run_notebook(path), indent=1, ensure_ascii=False)
            path.write_text(text + "\n", encoding="utf-8")
            print(path.name)


if __name__ == "__main__":
    main()
