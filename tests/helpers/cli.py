"""The command line, called in this process or in one of its own."""

import os
import subprocess
import sys
from pathlib import Path

from typer.testing import CliRunner

import sfumato
from sfumato.cli import app
from sfumato.errors import SfumatoError

PLAIN = {"NO_COLOR": "1", "COLUMNS": "200"}
SOURCE = str(Path(sfumato.__file__).parents[1])


def invoke(*arguments, code=0):
    """The result of a command in this process, with the exit code that the program gives to an error of ours.

    `code` is the exit code it must have, or None if the test looks for itself.
    """
    result = CliRunner(env=PLAIN).invoke(app, [str(each) for each in arguments])
    assert code is None or exit_code(result) == code, (result.output, result.exception)
    return result


def exit_code(result):
    """The exit code of the program for a result of `invoke`."""
    return result.exception.exit_code if isinstance(result.exception, SfumatoError) else result.exit_code


def run_process(*arguments, cwd=None, code=0, text=None, **changes):
    """What a command printed in a process of its own that reads `text`; `changes` are of its environment."""
    done = subprocess.run(
        [sys.executable, "-m", "sfumato", *map(str, arguments)],
        cwd=cwd,
        input=text,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": SOURCE, **PLAIN, **changes},
    )
    assert code is None or done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    return done
