"""A project whose ledger is in PostgreSQL, through the commands a person types."""

import json

import pytest

import sfumato as sf
from helpers.cli import run_main
from sfumato.accounting import Ledger


@pytest.fixture
def folder(project, server):
    url = server.url()
    text = project.read_text().replace("[budget]\n", f'[budget]\nledger = "{url}"\n')
    project.write_text(text)
    return project.parent


def sfumato(folder, *arguments, **options):
    return run_main(*arguments, cwd=folder, **options)


def spent(folder):
    return json.loads(sfumato(folder, "budget", "--json").stdout)["spent"]


def test_check_release_budget_and_verify(folder):
    done = sfumato(folder, "budget")
    assert "no ledger 'postgresql:///postgres?schema=" in done.stderr
    assert "20 of 20 left" in done.stdout
    sfumato(folder, "check", "recipe.toml")
    assert spent(folder) == "0"
    done = sfumato(folder, "release", "recipe.toml", "--out", "out")
    assert "no ledger" in done.stderr
    assert spent(folder) == "1"
    assert not list(folder.glob("*.db"))
    assert "entry 2 charges this release" in sfumato(folder, "verify", "out").stdout
    sfumato(folder, "release", "recipe.toml", "--out", "again")
    assert (folder / "again" / "certificate.json").read_bytes() == (
        folder / "out" / "certificate.json"
    ).read_bytes()
    assert spent(folder) == "1"
    sfumato(folder, "sql", "DP-SELECT 1 region, COUNT(*) AS n FROM t GROUP BY region", "--json")
    assert spent(folder) == "2"
    for path in (folder / "out").iterdir():
        assert b"sfumato-pg-" not in path.read_bytes()
        assert b"keeper" not in path.read_bytes()


def test_what_does_not_fit_is_refused_and_a_new_budget_is_accepted(folder):
    sfumato(folder, "release", "recipe.toml", "--epsilon", "15", "--out", "one")
    sfumato(folder, "release", "recipe.toml", "--epsilon", "14", "--out", "two", code=3)
    project = folder / "sfumato.toml"
    project.write_text(project.read_text().replace("epsilon = 20.0", "epsilon = 40.0"))
    assert "--accept" in sfumato(folder, "budget", code=1).stderr
    assert "25 of 40 left" in sfumato(folder, "budget", "--accept").stdout
    sfumato(folder, "release", "recipe.toml", "--epsilon", "14", "--out", "two")
    assert spent(folder) == "29"


def test_an_edited_ledger_fails_verification(folder, server):
    curator = sf.open(folder / "sfumato.toml")
    curator.release(folder / "recipe.toml", out=folder / "out")
    assert sf.verify(folder / "out", ledger=curator.ledger_path).unchecked == ()
    schema = Ledger(curator.ledger_path).path.rpartition("=")[2]
    server.execute(f"UPDATE {schema}.entries SET record = record || ' ' WHERE sequence = 2")
    with pytest.raises(sf.VerificationFailed, match="cannot be trusted"):
        sf.verify(folder / "out", ledger=curator.ledger_path)
    sfumato(folder, "verify", "out", code=4)


def test_faults_of_the_server_are_told_without_secrets_and_cost_nothing(folder):
    wrong = "not the password"
    done = sfumato(folder, "release", "recipe.toml", "--out", "out", code=1, PGPASSWORD=wrong)
    assert "refuses the user or the password" in done.stderr
    assert wrong not in done.stderr
    assert not (folder / "out").exists()
    project = folder / "sfumato.toml"
    good = project.read_text()
    project.write_text(good.replace("keeper@", "keeper:hunter2@"))
    for command in (("budget",), ("check", "recipe.toml"), ("release", "recipe.toml", "--out", "out")):
        done = sfumato(folder, *command, code=None)
        assert done.returncode in (1, 2)
        assert "PGPASSWORD" in done.stderr
        assert "hunter2" not in done.stderr + done.stdout
    project.write_text(good)
    assert spent(folder) == "0"
