"""`sfumato serve` and `user`: the project for a team, and who may ask for how much."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from typer import Argument, Option

from sfumato.cli.output import Json, ProjectOption, open_curator, print_result
from sfumato.core.errors import SfumatoError
from sfumato.core.exact import parse_positive

if TYPE_CHECKING:
    from sfumato.curator import Curator
    from sfumato.serve.state import State


def serve(
    project: ProjectOption = "sfumato.toml",
    host: Annotated[str | None, Option(help="The address to listen on; loopback by default.")] = None,
    http_port: Annotated[
        int | None, Option(help="The port of pages, API and agents; 0 takes a free one.")
    ] = None,
    pg_port: Annotated[
        int | None, Option(help="The port of the PostgreSQL wire; 0 takes a free one.")
    ] = None,
    link: Annotated[
        str | None, Option(help="Print a link that signs this steward in once, within ten minutes.")
    ] = None,
    json: Json = False,
) -> None:
    """Serve the project to a team: web page, API, PostgreSQL, agents.

    Only this machine can connect unless [serve] of the project file says otherwise. Events go to audit.jsonl,
    and with --json to stdout after the addresses.
    """
    try:
        from sfumato.serve.run import run_server
        from sfumato.serve.settings import read_settings
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("starlette", "uvicorn"):
            raise
        raise SfumatoError("serving needs other packages: pip install 'sfumato[serve]'") from None

    curator = open_curator(project)
    settings = read_settings(curator.project, host=host, http_port=http_port, pg_port=pg_port)

    def announce(addresses: dict[str, str]) -> None:
        sign_in = f"Stewards sign in at {addresses['page']}, or by a link: sfumato serve --link NAME"
        if "steward" in addresses:
            sign_in = f"Steward, open this once, within ten minutes: {addresses['steward']}"
        print_result(
            addresses,
            f"page        {addresses['page']}",
            f'PostgreSQL  psql "{addresses["postgresql"]} user=NAME dbname=sfumato"',
            f"HTTP API    {addresses['api']}",
            f"agents      {addresses['agents']}\n",
            sign_in,
            "Others: sfumato user add NAME --role analyst --share EPSILON. Stop with Ctrl-C.",
            json=json,
        )
        sys.stdout.flush()

    if link is None and sys.stdout.isatty() and not json:  # what is kept somewhere holds no link
        link = ""
    run_server(curator, settings, announce=announce, log_stream=sys.stdout if json else None, link=link)


user = typer.Typer(help="Who may ask a server, and how much of the budget is theirs.", no_args_is_help=True)

Name = Annotated[str, Argument(help="The name of the person.")]


@user.command()
def add(
    name: Name,
    role: Annotated[
        Literal["steward", "analyst", "viewer"], Option(help="What the person may do.")
    ] = "analyst",
    share: Annotated[str | None, Option(help="The most epsilon that the person may spend.")] = None,
    password_stdin: Annotated[
        bool, Option("--password-stdin", help="Read a password from stdin; else the token is it.")
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
    lines = []
    for record in found:
        limits = f"epsilon {record['left']} of {record['share']} left" if record["share"] else "no share"
        lines.append(f"{record['name']:20s} {record['role']:8s} {limits}")
    print_result({"users": found}, *lines, json=json)


@user.command()
def remove(name: Name, project: ProjectOption = "sfumato.toml", json: Json = False) -> None:
    """Remove a person; what they spent stays in the ledger."""
    _, state = _open(project)
    state.remove_user(name)
    print_result({"removed": name}, f"Removed {name}.", json=json)


@user.command()
def sync(
    file: Annotated[Path, Argument(help="Names of those who stay, one a line.")],
    project: ProjectOption = "sfumato.toml",
    json: Json = False,
) -> None:
    """End everybody who signs in at a provider and is not named in a file; local accounts stay."""
    names = {line.strip() for line in file.read_text(encoding="utf-8").splitlines()} - {""}
    if not names:
        raise SfumatoError(f"{file.name!r} names nobody; nobody was ended")
    _, state = _open(project)
    gone = state.keep_people(names)
    print_result({"ended": gone}, f"Ended {', '.join(gone) or 'nobody'}.", json=json)


@user.command()
def token(name: Name, project: ProjectOption = "sfumato.toml", json: Json = False) -> None:
    """Make a new token for a person; the old one stops working."""
    _, state = _open(project)
    _print_token(name, state.new_token(name), password=True, json=json)


@user.command()
def share(
    name: Name,
    epsilon: Annotated[str, Argument(help='The most epsilon that the person may spend, or "all".')],
    project: ProjectOption = "sfumato.toml",
    json: Json = False,
) -> None:
    """Change a person's share of the budget."""
    curator, _ = _open(project)
    curator.set_share(name, None if epsilon == "all" else epsilon)
    print_result({"name": name, "share": epsilon}, f"{name} may spend epsilon {epsilon}.", json=json)


@user.command()
def limit(
    name: Name,
    epsilon: Annotated[
        str | None, Option(help="The price of a plain SELECT, for tools that name none.")
    ] = None,
    session: Annotated[str | None, Option(help="The most that one connection may spend.")] = None,
    daily: Annotated[str | None, Option(help="The most that the person may spend in 24 hours.")] = None,
    project: ProjectOption = "sfumato.toml",
    json: Json = False,
) -> None:
    """Set limits of a person beside their share; "none" takes one away."""
    _, state = _open(project)
    given = {"epsilon": epsilon, "session_budget": session, "daily": daily}
    limits = {
        key: None if each == "none" else parse_positive(each, name=key)
        for key, each in given.items()
        if each is not None
    }
    state.set_limits(name, limits)
    told = ", ".join(f"{key} {given[key]}" for key in limits) or "nothing was given"
    print_result({"name": name, **{key: given[key] for key in limits}}, f"{name}: {told}.", json=json)


def claim(
    name: Annotated[str, Argument(metavar="ID", help="The claim of a number that an assistant quotes.")],
    project: ProjectOption = "sfumato.toml",
    json: Json = False,
) -> None:
    """Check a quoted number against the ledger. Exit code 4 if it does not hold; nothing is spent.

    Example: sfumato claim 3fa2b19c0d1e77ab.0.1
    """
    from sfumato.serve.claims import check_claim

    found = check_claim(*_open(project), name)
    row = ", ".join(f"{key} {value}" for key, value in found["row"].items() if key != found["column"])
    low, high = found["interval"] or ("?", "?")
    print_result(
        found,
        f"{name} holds: the ledger gives {found['column']} = {found['value']}, from {low} to {high} (95 %)",
        f"of {row or 'all'}, asked by {found['asked_by']} on {found['asked_at']}: {found['statement']}",
        json=json,
    )


def _open(project: str) -> tuple[Curator, State]:
    from sfumato.serve.state import open_state

    curator = open_curator(project)
    return curator, open_state(curator.project)


def _print_token(name: str, token: str, *, password: bool, json: bool) -> None:
    also = "" if password else ", and as password on the page and of psql and other clients"
    used = f"{name} uses it as `Authorization: Bearer`{also}; it is shown only now."
    print_result({"name": name, "token": token}, f"token {token}", used, json=json)
