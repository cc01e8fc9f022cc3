"""Plants the faults of mutants.toml one by one in a copy of the source, and runs the tests named for each.

    python tests/mutants/plant.py            # all of them
    python tests/mutants/plant.py door.py    # those whose file or words have this in them

A fault is noticed when at least two different tests fail. It is found by its text, so that only its file must
follow a move.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "sfumato"
ENOUGH = 2


@dataclass(frozen=True, kw_only=True)
class Mutant:
    """A fault: `old` becomes `new` in `file`, which `breaks` something; tests or files of them notice it."""

    file: str
    old: str
    new: str
    breaks: str
    killed_by: tuple[str, ...]

    @property
    def name(self):
        return f"{self.file}: {self.breaks}"

    def plant(self, text):
        """The text with the fault in it; refused unless it has the old one exactly once."""
        found = text.count(self.old)
        if found != 1 or self.new == self.old:
            raise ValueError(f"{self.name}: the text to replace is there {found} times, not once")
        return text.replace(self.old, self.new)


def read_mutants():
    """All mutants, in the order of the file."""
    document = tomllib.loads(Path(__file__).with_name("mutants.toml").read_text(encoding="utf-8"))
    return [Mutant(**{**each, "killed_by": tuple(each["killed_by"])}) for each in document["mutant"]]


def copy_source(folder):
    """A copy of the source, compiled loops included, and the environment that imports it."""
    shutil.copytree(SOURCE, folder / "sfumato")
    return {**os.environ, "PYTHONPATH": str(folder)}


def find_failing(mutant, folder, environment, *, tests=()):
    """Those of `tests`, or of the mutant's own, that fail with the fault planted in the copy in `folder`."""
    original, planted = SOURCE / mutant.file, folder / "sfumato" / mutant.file
    planted.write_text(mutant.plant(original.read_text(encoding="utf-8")), encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-rfE", "--tb=no", "-p", "no:cacheprovider"]
    command += ["-m", "not slow", *(tests or mutant.killed_by)]
    try:
        run = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    finally:
        shutil.copy2(original, planted)
    if run.returncode not in (0, 1):
        raise RuntimeError(f"{mutant.name}: the tests did not run\n{run.stdout[-2000:]}{run.stderr[-2000:]}")
    lines = re.findall(r"^(?:FAILED|ERROR) ([^\s\[]+)", run.stdout, re.MULTILINE)
    return tuple(dict.fromkeys(lines))


def judge(mutant, failing):
    """What is wrong with a mutant of which these tests fail, or None."""
    if len(failing) < ENOUGH:
        return f"{mutant.name}: noticed by {len(failing)} of {', '.join(mutant.killed_by)}"
    return None


def plant_all(mutants, *, say=lambda text: None):
    """What is wrong with any of the mutants, planted one after another."""
    wrong = []
    with tempfile.TemporaryDirectory() as place:
        environment = copy_source(Path(place))
        for number, mutant in enumerate(mutants, start=1):
            fault = judge(mutant, find_failing(mutant, Path(place), environment))
            say(f"{number}/{len(mutants)} {fault or f'{mutant.name}: as stated'}")
            wrong += [] if fault is None else [fault]
    return wrong


if __name__ == "__main__":
    words = sys.argv[1:]
    chosen = [each for each in read_mutants() if all(word in each.name for word in words)]
    sys.exit(bool(plant_all(chosen, say=lambda text: print(text, flush=True))))
