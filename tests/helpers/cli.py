"""The command line, called in this process or in one of its own."""

import contextlib
import io
import os
import subprocess
import sys
from pathlib import Path
from unittest import mock

from typer.testing import CliRunner

import sfumato
from sfumato.cli import app, main
from sfumato.core.errors import SfumatoError

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


def run_main(*arguments, cwd=".", code=0, text="", **changes):
    """What the whole program prints, its errors included, but in this process: quicker than `run_process`."""
    streams = {name: io.TextIOWrapper(io.BytesIO(), "utf-8") for name in ("stdout", "stderr")}
    patched = {**streams, "stdin": io.StringIO(text), "argv": ["sfumato", *map(str, arguments)]}
    found = 0
    environment = mock.patch.dict(os.environ, {**PLAIN, **changes})
    with contextlib.chdir(cwd), mock.patch.multiple(sys, **patched), environment:
        try:
            main()
        except SystemExit as done:
            found = done.code or 0
    printed = {}
    for name, stream in streams.items():
        stream.flush()
        printed[name] = stream.buffer.getvalue().decode()
    assert code is None or found == code, printed["stderr"]
    return subprocess.CompletedProcess(arguments, found, **printed)


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
