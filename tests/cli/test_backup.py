"""`sfumato backup`: a copy of what a server cannot lose, and the one order in which it may be put back."""

import json
import stat

import pytest

import sfumato as sf
from helpers.cli import run_main
from sfumato.serve.state import FileTables, State

COUNT = "DP-SELECT 0.5 COUNT(*) FROM t"


@pytest.fixture
def project(tmp_path):
    (tmp_path / "t.csv").write_text("k\n" + "a\n" * 50)
    (tmp_path / "sfumato.toml").write_text(
        '[budget]\nepsilon = 4\n[tables.t]\nsource = "t.csv"\nunit = "row"\ncolumns.k.values = ["a", "b"]\n'
    )
    return tmp_path


def back_up(project, *more, code=0):
    told = run_main("backup", "kept", *more, "--json", cwd=project, code=code)
    return json.loads(told.stdout) if code == 0 else told.stderr


def test_what_was_kept_is_put_back_and_pays_for_nothing_twice(project):
    assert "nothing was charged" in back_up(project, code=1)
    answer = sf.open(project / "sfumato.toml").sql(COUNT).to_arrow()
    token = State(FileTables(project / "serve.db")).add_user("ana", "viewer")
    made = back_up(project)
    assert made["files"] == ["ledger.db", "ledger.db.key", "serve.db"]
    assert {stat.S_IMODE(path.stat().st_mode) for path in (project / "kept").iterdir()} == {0o600}
    assert "there already" in back_up(project, code=1)
    for path in (*project.glob("ledger.db*"), *project.glob("serve.db*")):
        path.unlink()
    assert back_up(project, "--restore", "--anchor", made["anchor"])["restored"] == made["anchor"]
    curator = sf.open(project / "sfumato.toml")
    again = curator.sql(COUNT)
    assert (again.repeated, again.to_arrow()) == (True, answer)
    assert curator.budget().spent == 0.5
    assert State(FileTables(project / "serve.db")).find_token(token).name == "ana"


def test_a_backup_that_would_forget_charges_is_not_put_back(project):
    curator = sf.open(project / "sfumato.toml")
    curator.sql(COUNT)
    made = back_up(project)
    curator.sql(COUNT.replace("0.5", "0.75"))
    newer = run_main("budget", "--anchor", cwd=project).stdout.strip()
    assert "newest anchor" in back_up(project, "--restore", code=4)
    assert "the backup lacks" in back_up(project, "--restore", "--anchor", made["anchor"], code=4)
    (project / "ledger.db").unlink()
    back_up(project, "--restore", "--anchor", newer, code=4)
    assert not (project / "ledger.db").exists()
    (project / "kept" / "ledger.db").write_bytes((project / "kept" / "ledger.db").read_bytes()[:-4096])
    back_up(project, "--restore", "--anchor", made["anchor"], code=1)


def test_a_damaged_ledger_is_set_aside(project):
    sf.open(project / "sfumato.toml").sql(COUNT)
    made = back_up(project)
    (project / "ledger.db").write_bytes(b"no ledger")
    back_up(project, "--restore", "--anchor", made["anchor"])
    assert (project / "ledger.db.before").read_bytes() == b"no ledger"
    assert sf.open(project / "sfumato.toml").sql(COUNT).repeated
