"""The pages of stewards: an overview, the ledger in time, people and what waits for approval."""

from __future__ import annotations

from datetime import UTC, datetime
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from sfumato.core.dates import read_moment
from sfumato.core.errors import SfumatoError
from sfumato.core.exact import parse_positive
from sfumato.pages.answers import Spending, draw_timeline
from sfumato.serve.web import api
from sfumato.serve.web.asking import MOST_SHOWN, describe_charge, describe_request
from sfumato.serve.web.exchange import (
    Asker,
    describe_error,
    field,
    find_service,
    find_status,
    require_asker,
)
from sfumato.serve.web.frame import HOMES, enter_form, show

if TYPE_CHECKING:
    from sfumato.serve.service import Service
    from sfumato.serve.state import User


async def _home(request: Request) -> Response:
    asker = await require_asker(request)
    if asker.user.role != "steward":
        return RedirectResponse(HOMES[asker.user.role], 303)
    service, user = find_service(request), asker.user
    entries = await service.ledger(user)
    budget = await api.tell_budget(service, user, {})
    return await show(
        request,
        asker,
        "overview.html",
        budget=budget,
        timeline=_timeline(entries, budget),
        charges=len([each for each in entries if each.get("epsilon") is not None]),
        approvals=[each for each in await service.approvals(user) if each["status"] == "waiting"],
        jobs=(await service.jobs(user))[:5],
        releases=await service.releases(user),
        tables=(await api.list_tables(service, user, {}))["tables"],
    )


async def _ledger(request: Request) -> Response:
    asker = await require_asker(request)
    service = find_service(request)
    budget = await api.tell_budget(service, asker.user, {})
    entries = await service.ledger(asker.user)
    rows = [describe_charge(each) for each in entries]
    people: dict[str, Fraction] = {}
    for each in rows:
        people[each["person"]] = people.get(each["person"], Fraction(0)) + each["amount"]
    return await show(
        request,
        asker,
        "ledger.html",
        rows=rows[:MOST_SHOWN],
        more=max(0, len(rows) - MOST_SHOWN),
        people=sorted(people.items(), key=lambda each: -each[1]),
        budget=budget,
        timeline=_timeline(entries, budget),
    )


def _timeline(entries: list[dict[str, Any]], budget: dict[str, Any]) -> object:
    told = [(entry, describe_charge(entry)) for entry in entries]
    charges = [
        Spending(
            person=charge["person"],
            table=charge["table"],
            moment=_moment(entry),
            epsilon=float(charge["amount"]),
            when=charge["at"],
            words=f"{charge['person']}, {charge['at']}: epsilon {charge['epsilon']} on {charge['table']}",
        )
        for entry, charge in told
        if charge["amount"]
    ]
    if not charges:
        return None
    return draw_timeline(charges, budget["total"], f"{len(charges)} charges in time, by person and table")


def _moment(entry: dict[str, Any]) -> float:
    """When a charge was made, in seconds, or in charges if its time cannot be read."""
    moment = read_moment(str(entry.get("at")))
    if isinstance(moment, datetime):
        return moment.replace(tzinfo=UTC).timestamp()
    return float(entry.get("sequence") or 0)


async def _people(request: Request) -> Response:
    if request.method == "GET":
        return await _show_people(request, await require_asker(request))
    asker, form = await enter_form(request)
    try:
        token = await _change_people(find_service(request), asker.user, form)
    except (SfumatoError, HTTPException) as error:
        status, message = find_status(error)[0], describe_error(error)["error"]["message"]
        return await _show_people(request, asker, status=status, message=message)
    if token is None:
        return RedirectResponse("/people", 303)
    return await _show_people(request, asker, token=token, name=field(form, "name"))


async def _change_people(service: Service, user: User, form: dict[str, list[str]]) -> str | None:
    """Does what the button of a form says; returns a token that is to be shown, if there is one."""
    name = field(form, "name")
    match field(form, "action"):
        case "add":
            given = {key: field(form, key) for key in ("name", "role", "share")}
            added = await api.add_user(service, user, {**given, "password": form.get("password", [""])[0]})
            return str(added["token"])
        case "token":
            return await service.new_token(user, name)
        case "share":
            await service.set_share(user, name, parse_positive(field(form, "share"), name="share"))
        case "remove":
            await service.remove_user(user, name)
        case "approve" | "decline" as action:
            number = field(form, "number")
            await service.decide(user, int(number) if number.isdecimal() else 0, approve=action == "approve")
        case _:
            raise HTTPException(422, "the form has no such button")
    return None


async def _show_people(
    request: Request, asker: Asker, *, status: int = 200, message: str = "", token: str = "", name: str = ""
) -> Response:
    service = find_service(request)
    requests = [describe_request(each) for each in await service.approvals(asker.user)]
    return await show(
        request,
        asker,
        "people.html",
        status=status,
        people=await service.users(asker.user),
        waiting=[each for each in requests if each["status"] == "waiting"],
        decided=[each for each in requests if each["status"] != "waiting"],
        budget=await api.tell_budget(service, asker.user, {}),
        message=message,
        token=token,
        name=name,
    )


ROUTES = [
    Route("/", _home),
    Route("/ledger", _ledger),
    Route("/people", _people, methods=["GET", "POST"]),
]
