"""The peers that benchmarks compare with: installed in environments of their own under .bench/."""

import json
import os
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def peer_python(name, requirements):
    """The interpreter of the environment `name`, which is made if it is not there or holds something else."""
    environment = ROOT / ".bench" / name
    python = environment / ("Scripts" if os.name == "nt" else "bin") / "python"
    done = environment / "requirements.json"
    if not done.exists() or json.loads(done.read_text()) != requirements:
        print(f"making the peers' environment of {name}", file=sys.stderr)
        venv.create(environment, clear=True, with_pip=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", *requirements], check=True)
        done.write_text(json.dumps(requirements))
    return python
