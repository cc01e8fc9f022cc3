"""`sfumato serve`: the project in this folder for a team, its tools and the public."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from sfumato.cli.output import Json, ProjectOption, open_curator, print_json, say
from sfumato.core.errors import SfumatoError


def serve(
    project: ProjectOption = "sfumato.toml",
    host: Annotated[
        str | None, typer.Option("--host", help="The address to listen on; loopback by default.")
    ] = None,
    http_port: Annotated[
        int | None, typer.Option("--http-port", help="The port of pages, API and agents; 0 takes a free one.")
    ] = None,
    pg_port: Annotated[
        int | None, typer.Option("--pg-port", help="The port of the PostgreSQL wire; 0 takes a free one.")
    ] = None,
    link: Annotated[
        str | None,
        typer.Option("--link", help="Print a link that signs this steward in once, within ten minutes."),
    ] = None,
    json: Json = False,
) -> None:
    """Serve the project: a web page, an HTTP API, the PostgreSQL wire and an endpoint for agents.

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
        if json:
            print_json(addresses)
            sys.stdout.flush()
            return
        say(f"page        {addresses['page']}")
        say(f'PostgreSQL  psql "{addresses["postgresql"]} user=NAME dbname=sfumato"')
        say(f"HTTP API    {addresses['api']}")
        say(f"agents      {addresses['agents']}")
        if "steward" in addresses:
            say(f"\nSteward, open this once, within ten minutes: {addresses['steward']}")
        else:
            say(f"\nStewards sign in at {addresses['page']}, or by a link: sfumato serve --link NAME")
        say("Others: sfumato user add NAME --role analyst --share EPSILON. Stop with Ctrl-C.")
        sys.stdout.flush()

    if link is None and sys.stdout.isatty() and not json:  # what is kept somewhere holds no link
        link = ""
    run_server(curator, settings, announce=announce, log_stream=sys.stdout if json else None, link=link)
