"""The program extracted from the proofs, and what is asked of it."""

import importlib.util
import subprocess
from fractions import Fraction
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
REASON = "needs Coq and OCaml: apt-get install coq libcoq-coquelicot ocaml-nox"


def load_check():
    """proofs/check.py, which is no package."""
    specification = importlib.util.spec_from_file_location("check", ROOT / "proofs" / "check.py")
    check = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(check)
    return check


def spell(value):
    """A whole number in binary, a fraction as two, a list with spaces, nothing as a dash."""
    if value is None:
        return "-"
    if isinstance(value, Fraction):
        return f"{value.numerator:b}/{value.denominator:b}"
    if isinstance(value, int):
        return f"{value:b}"
    if isinstance(value, str):
        return value
    return " ".join(spell(int(each)) for each in value)


class Oracle:
    """What the definitions that the theorems are about compute."""

    def __init__(self, program):
        self._process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, *question):
        return self.ask_all([question])[0]

    def ask_all(self, questions, *, at_once=200):
        """The answers to many questions, some at once so that neither side waits for a full pipe."""
        answers = []
        for start in range(0, len(questions), at_once):
            part = questions[start : start + at_once]
            lines = "".join(",".join(map(spell, question)) + "\n" for question in part)
            self._process.stdin.write(lines)
            self._process.stdin.flush()
            answers += [self._process.stdout.readline().strip() for _ in part]
        assert all(answers) or not questions, "the oracle ended"
        return answers

    def close(self):
        self._process.communicate(timeout=60)


def read_numbers(text):
    return [int(word, 2) for word in text.split()]
