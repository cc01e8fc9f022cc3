"""`sfumato user`: who may ask a server, and how much of the budget is theirs."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from sfumato.cli.output import Json, ProjectOption, open_curator, print_json, say

if TYPE_CHECKING:
    from sfumato.curator import Curator
    from sfumato.serve.state import State

user = typer.Typer(help="Who may ask a server, and how much of the budget is theirs.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(help="The name of the person.")]


@user.command()
def add(
    name: Name,
    role: Annotated[
        Literal["steward", "analyst", "viewer"], typer.Option("--role", help="What the person may do.")
    ] = "analyst",
    share: Annotated[
        str | None, typer.Option("--share", help="The most epsilon that the person may spend.")
    ] = None,
    password_stdin: Annotated[
        bool, typer.Option("--password-stdin", help="Read a password from stdin; else the token is it.")
    ] = False,
    project: ProjectOption = "sfumato.toml",
    json: Json = False,
) -> None:
    """Add a person and print their token, which is shown only now."""
    from sfumato.serve.state import add_user

    password = sys.stdin.readline().rstrip("\r\n") if password_stdin else None
    curator, state = _open(project)
    token = add_user(state, curator, name, role, share, password)
    _print_token(name, token, password=password is not None, json=json)


@user.command("list")
def list_users(project: ProjectOption = "sfumato.toml", json: Json = False) -> None:
    """List everybody with their role, their share and what is left of it."""
    from sfumato.serve.facts import list_users as list_known

    curator, state = _open(project)
    keys = ("name", "role", "share", "left")
    found = [{key: record.get(key) for key in keys} for record in list_known(state, curator)]
    if json:
        print_json({"users": found})
        return
    for record in found:
        limits = f"epsilon {record['left']} of {record['share']} left" if record["share"] else "no share"
        say(f"{record['name']:20s} {record['role']:8s} {limits}")


@user.command()
def remove(name: Name, project: ProjectOption = "sfumato.toml", json: Json = False) -> None:
    """Remove a person; what they spent stays in the ledger."""
    _, state = _open(project)
    state.remove_user(name)
    if json:
        print_json({"removed": name})
    else:
        say(f"Removed {name}.")


@user.command()
def token(name: Name, project: ProjectOption = "sfumato.toml", json: Json = False) -> None:
    """Make a new token for a person; the old one stops working."""
    _, state = _open(project)
    _print_token(name, state.new_token(name), password=True, json=json)


@user.command()
def share(
    name: Name,
    epsilon: Annotated[str, typer.Argument(help='The most epsilon that the person may spend, or "all".')],
    project: ProjectOption = "sfumato.toml",
    json: Json = False,
) -> None:
    """Change a person's share of the budget."""
    curator, _ = _open(project)
    curator.set_share(name, None if epsilon == "all" else epsilon)
    if json:
        print_json({"name": name, "share": epsilon})
    else:
        say(f"{name} may spend epsilon {epsilon}.")


def _open(project: str) -> tuple[Curator, State]:
    from sfumato.serve.state import STATE_FILE, State

    curator = open_curator(project)
    return curator, State(curator.project.folder / STATE_FILE)


def _print_token(name: str, token: str, *, password: bool, json: bool) -> None:
    if json:
        print_json({"name": name, "token": token})
        return
    say(f"token {token}")
    also = "" if password else ", and as password on the page and of psql and other clients"
    say(f"{name} uses it as `Authorization: Bearer`{also}; it is shown only now.")
