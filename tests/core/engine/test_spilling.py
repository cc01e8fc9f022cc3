"""What does not fit into memory lies in a folder for its owner alone, gone in the end, or nowhere."""

import re
import subprocess
import sys
from pathlib import Path

import duckdb

SOURCE = Path(__file__).resolve().parents[3] / "src" / "sfumato"
RUN = """
import os, stat, sys
from pathlib import Path
from sfumato.core.engine.encode import connect

for plainly in (False, True):
    with connect(plainly=plainly) as connection:
        connection.execute("SET GLOBAL memory_limit = '60MB'; SET GLOBAL threads = 1")
        connection.execute("CREATE TABLE many AS SELECT i, 'ana' || i AS who FROM range(2000000) AS t(i)")
        connection.execute("SELECT sum(i) FROM (SELECT * FROM many ORDER BY hash(i))").fetchall()
        folder = Path(connection.execute("SELECT current_setting('temp_directory')").fetchone()[0])
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700 and any(folder.iterdir()), folder
        assert Path.cwd() not in folder.parents
        print(folder)
"""


def test_what_the_engine_spills_lies_in_a_private_folder_that_is_gone_at_the_end(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", RUN], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    folders = [Path(each) for each in done.stdout.split()]
    assert done.returncode == 0, done.stderr
    assert len(set(folders)) == 2
    assert not any(each.exists() for each in folders)
    assert not any(tmp_path.iterdir())


def test_no_database_is_opened_that_spills_beside_the_working_directory():
    opened = [
        (path.name, call)
        for path in SOURCE.rglob("*.py")
        for call in re.findall(r"duckdb\.connect\((.*)", path.read_text(encoding="utf-8"))
    ]
    assert len(opened) == 4  # each has been looked at
    assert all('"temp_directory": ' in call or "dict(_CLOSED)" in call for _, call in opened), opened


def test_a_database_file_is_read_without_a_place_to_spill(tmp_path):
    from sfumato.core.engine.source import _open_database

    duckdb.connect(str(tmp_path / "t.db")).close()
    with _open_database(tmp_path / "t.db") as connection:
        assert connection.execute("SELECT current_setting('temp_directory')").fetchone() == ("",)
