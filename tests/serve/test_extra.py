"""A machine without the packages that serving needs."""

import subprocess
import sys

WITHOUT = """
import sys
sys.modules["starlette"] = None
sys.argv = ["sfumato", "serve"]
from sfumato.__main__ import start
start()
"""


def test_a_missing_extra_is_named(folder):
    ended = subprocess.run([sys.executable, "-c", WITHOUT], cwd=folder, capture_output=True, text=True)
    assert ended.returncode == 1
    assert ended.stderr.strip() == "error: serving needs other packages: pip install 'sfumato[serve]'"
