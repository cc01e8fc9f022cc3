"""A program in a terminal of its own, typed to as a person would."""

import contextlib
import os
import pty
import re
import select
import signal
import sys
import time

from helpers.cli import SOURCE

_SEQUENCES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b[=>]|\r|\x07")


class Terminal:
    """`sfumato` with these arguments; what it prints is in `text`, without what steers a terminal.

    With a `script`, a shell runs that instead, in which {python} stands for the interpreter.
    """

    def __init__(self, *arguments, cwd, script=None, **changes):
        self._screen = b""
        self._pid, self._terminal = pty.fork()
        if self._pid == 0:
            environment = {**os.environ, "PYTHONPATH": SOURCE, "TERM": "xterm", "COLUMNS": "160", **changes}
            environment |= {"LINES": "40"} if "LINES" not in changes else {}
            os.chdir(cwd)
            command = [sys.executable, "-m", "sfumato", *map(str, arguments)]
            if script is not None:
                command = ["/bin/sh", "-c", script.format(python=sys.executable)]
            os.execve(command[0], command, environment)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self._pid is not None:
            os.kill(self._pid, signal.SIGKILL)
            os.waitpid(self._pid, 0)
        os.close(self._terminal)

    @property
    def text(self):
        """All that was printed so far."""
        return _SEQUENCES.sub("", self._screen.decode(errors="replace"))

    def wait(self, words, *, start=0, seconds=100):
        """Reads until `words` stand in what was printed from `start` on, and gives that part."""
        end = time.monotonic() + seconds
        while words not in self.text[start:]:
            assert time.monotonic() < end, f"{words!r} does not come in {self.text[start:]!r}"
            assert self._read(0.2) is not None, f"it ended with {self.text[start:]!r}"
        return self.text[start:]

    def type(self, keys, words, *, seconds=100):
        """Types `keys`, and gives what is printed from then on until `words` came."""
        start = len(self.text)
        os.write(self._terminal, keys.encode())
        return self.wait(words, start=start, seconds=seconds)

    def end(self, keys="\x04"):
        """Types the end of input and gives the exit code."""
        os.write(self._terminal, keys.encode())
        while self._read(100) is not None:
            pass
        _, status = os.waitpid(self._pid, 0)
        self._pid = None
        return os.waitstatus_to_exitcode(status)

    def _read(self, seconds):
        """What came meanwhile; None at the end."""
        ready, _, _ = select.select([self._terminal], [], [], seconds)
        if not ready:
            return b""
        try:
            found = os.read(self._terminal, 65536)
        except OSError:  # the other side is closed
            return None
        self._screen += found
        return found or None

    def interrupt(self, words):
        """Types Ctrl-C until `words` come.

        Between its prompt and the moment it waits for keys, a program takes the signal and sleeps on: the
        next key wakes it, as that of a person would.
        """
        start = len(self.text)
        for _ in range(50):
            os.write(self._terminal, b"\x03")
            with contextlib.suppress(AssertionError):
                return self.wait(words, start=start, seconds=2)
        return self.wait(words, start=start)
