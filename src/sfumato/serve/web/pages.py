"""The pages of the roles: questions and answers, releases, and what stewards look after.

Analysts see the price of a question, its answer, and what was asked before; viewers the releases, their files
and reports, and free questions to their models; stewards the ledger, people and what waits for approval.
"""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from fractions import Fraction
from itertools import islice
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from sfumato.core.dates import read_moment
from sfumato.core.errors import RecipeError, SfumatoError
from sfumato.core.exact import parse_exact
from sfumato.report.pages.answers import Spending, draw_meter, draw_sketch, draw_timeline
from sfumato.report.pages.words import clip_text, short
from sfumato.serve.state import LIMITS
from sfumato.serve.web import api
from sfumato.serve.web.basket import put_into_basket
from sfumato.serve.web.choose import list_rungs, read_choice, spell_name
from sfumato.serve.web.dashboards import list_dashboards
from sfumato.serve.web.exchange import (
    Asker,
    describe_error,
    field,
    find_service,
    find_status,
    require_asker,
)
from sfumato.serve.web.frame import HOMES, enter_form, show
from sfumato.serve.web.shown import (
    MOST_CHARTS,
    MOST_DRAWN,
    MOST_SHOWN,
    describe_reply,
    describe_table,
    digest_text,
    draw_budget,
)

if TYPE_CHECKING:
    from sfumato.serve.service import Service
    from sfumato.serve.state import User


async def _ask(request: Request) -> Response:
    """Returns the editor; a question is priced first, and bought at the price that was shown, or less."""
    if request.method == "GET":
        asker = await require_asker(request)
        text, action, seen, price = request.query_params.get("sql", ""), "price", "", ""
    else:
        asker, form = await enter_form(request)
        text, action = form.get("sql", [""])[0], field(form, "action")
        seen, price = field(form, "seen"), field(form, "price")
    service, user = find_service(request), asker.user
    if action == "basket":
        return await put_into_basket(service, user, text)
    shown = await _buy(service, user, text, seen=seen, price=price if action == "buy" else "")
    tables = (await api.list_tables(service, user, {}))["tables"]
    return await show(
        request,
        asker,
        "ask.html",
        tables=tables,
        words=list_words(tables),
        examples=_write_examples(tables),
        **shown,
        **await _price(service, user, "" if shown["answer"] or shown["message"] else text),
    )


async def _choose(request: Request) -> Response:
    """Returns a form that asks without SQL: its statement, what errors cost, and what was bought."""
    if request.method == "GET":
        asker = await require_asker(request)
        form: dict[str, list[str]] = {}
        for name, value in request.query_params.multi_items():
            form.setdefault(name, []).append(value)
    else:
        asker, form = await enter_form(request)
    service, user = find_service(request), asker.user
    choice = read_choice((await api.list_tables(service, user, {}))["tables"], form)
    if choice is None:
        raise HTTPException(404, "the project has no private table to ask about")
    rungs, asked = await list_rungs(service, user, choice.body), field(form, "rung")
    place = min(int(asked) if asked.isdecimal() and len(asked) < 3 else 2, max(0, len(rungs) - 1))
    text = f"DP-SELECT {rungs[place].head if rungs else '0.1'} {choice.body}"
    action = field(form, "action") if request.method == "POST" else ""
    if action == "basket":
        return await put_into_basket(service, user, text)
    shown = await _buy(
        service, user, text, seen=field(form, "seen"), price=field(form, "price") if action == "buy" else ""
    )
    priced = await _price(service, user, "" if shown["answer"] or shown["message"] else text)
    return await show(
        request, asker, "choose.html", choice=choice, rungs=rungs, place=place, **shown, **priced
    )


async def _buy(service: Service, user: User, text: str, *, seen: str, price: str) -> dict[str, Any]:
    """Returns what a page shows of `text`: its answer, if that text was priced, for at most its price."""
    shown: dict[str, Any] = {"text": text, "answer": None, "message": "", "status": 200}
    if price and text.strip() and seen == digest_text(text):
        try:
            reply = await service.ask(user, text, at_most=parse_exact(price, name="price"))
        except SfumatoError as error:
            return {**shown, "status": find_status(error)[0], "message": str(error)}
        shown["answer"] = await run_in_threadpool(describe_reply, reply)
        shown["boards"] = await list_dashboards(service, user)
    return shown


async def _show_price(request: Request) -> Response:
    """Returns the part of the editor's page that says what a question costs, while it is being written."""
    asker, form = await enter_form(request)
    text = form.get("sql", [""])[0]
    return await show(
        request, asker, "price.html", text=text, **await _price(find_service(request), asker.user, text)
    )


async def _price(service: Service, user: User, text: str) -> dict[str, Any]:
    """Returns what the page shows of a question before it is bought."""
    budget = await api.read_budget(service, user, {})
    shown: dict[str, Any] = {"budget": budget, "price": None, "refusal": "", "seen": digest_text(text)}
    shown |= {"sketches": [], "models": [], "meter": draw_budget(budget, 0)}
    if not text.strip():
        return shown
    try:
        found = await service.explain(user, text)
    except SfumatoError as error:
        return {**shown, "refusal": str(error)}
    price = api.to_numbers(found)
    exact = found.get("most") or found["epsilon"]
    cost = 0 if price.get("free") else float(exact)
    words = set(re.findall(r"\w+", text.lower()))
    releases = await service.releases(user)
    return {
        **shown,
        "price": price,
        "cost": cost,
        "exact": str(exact),
        "sketches": [
            _sketch(name, half, price["expected"].get(name), gaussian=bool(price.get("delta")))
            for name, half in (price.get("errors") or {}).items()
        ][:MOST_CHARTS],
        "models": [
            each["name"]
            for each in releases
            if str(each.get("table", "")).lower() in words and "model.parquet" in each.get("files", ())
        ],
        "meter": draw_budget(budget, float(cost)),
    }


def _sketch(name: str, half: float | None, words: str | None, *, gaussian: bool) -> dict[str, Any]:
    """Returns how far the noise in a column reaches, drawn if that is the same whatever the records are."""
    label = f"the law of the noise in {clip_text(name)}: 95 % within {short(half)}"
    return {
        "name": name,
        "half": half,
        "words": words,
        "drawing": draw_sketch(half, label, gaussian=gaussian) if half else None,
    }


async def _send_csv(request: Request) -> Response:
    """Sends the answer that was bought, as a file; nothing more may be spent on it."""
    import io

    from pyarrow import csv

    asker, form = await enter_form(request)
    text = form.get("sql", [""])[0]
    reply = await find_service(request).ask(asker.user, text, at_most=Fraction(0))
    content = io.BytesIO()
    await run_in_threadpool(csv.write_csv, reply.table, content)
    headers = {"Content-Disposition": 'attachment; filename="answer.csv"'}
    return Response(content.getvalue(), media_type="text/csv", headers=headers)


def list_words(tables: list[dict[str, Any]]) -> str:
    """Returns what the editor can complete, as JSON: keywords, tables, and their columns."""
    columns = {column["name"]: table["name"] for table in tables for column in table["columns"]}
    return json.dumps(
        {
            "tables": [table["name"] for table in tables],
            "columns": [[name, table] for name, table in columns.items()],
        }
    )


def _write_examples(tables: list[dict[str, Any]]) -> list[str]:
    """Statements to begin with, a few for every private table."""
    examples = []
    for table in tables:
        if table.get("public"):
            continue
        name = spell_name(table["name"])
        named = (each["name"] for each in table["columns"] if 0 < each.get("size", 0) <= MOST_DRAWN)
        keys = [spell_name(each) for each in islice(named, 2)]
        examples += [
            f"DP-SELECT 0.1 COUNT(*) AS records FROM {name}",
            *(f"DP-SELECT 0.1 {key}, COUNT(*) AS records FROM {name} GROUP BY {key}" for key in keys),
        ]
    return examples[:4]


async def _tables(request: Request) -> Response:
    asker = await require_asker(request)
    tables = (await api.list_tables(find_service(request), asker.user, {}))["tables"]
    return await show(request, asker, "tables.html", tables=tables)


async def _history(request: Request) -> Response:
    asker = await require_asker(request)
    service = find_service(request)
    budget = await api.read_budget(service, asker.user, {})
    entries = await service.history(asker.user)
    return await show(
        request,
        asker,
        "history.html",
        rows=[describe_charge(each) for each in entries][:MOST_SHOWN],
        requests=[describe_request(each) for each in await service.approvals(asker.user)][:MOST_SHOWN],
        timeline=_timeline(entries, budget.get("share") or budget),
        budget=budget,
        meter=draw_budget(budget, 0),
    )


def describe_charge(entry: dict[str, Any]) -> dict[str, Any]:
    """Returns one charge for a list: who, when, what, how much; `text` if it can be asked again as it is."""
    subject = str(entry.get("subject") or "")
    amount = entry.get("epsilon")
    at = str(entry.get("at") or "")
    is_statement = amount is not None and subject.startswith("SELECT ")  # as the plan has it, without a price
    return {
        "sequence": entry.get("sequence"),
        "at": at[:16].replace("T", " "),
        "person": entry.get("asked_by") or "steward",
        "table": entry.get("table") or "",
        "subject": subject,
        "again": f"/ask?sql={quote(f'DP-SELECT {amount} {subject[7:]}')}" if is_statement else None,
        "epsilon": amount,
        "amount": _amount(amount),
        "answered": entry.get("answered", True),
    }


def describe_request(request: dict[str, Any]) -> dict[str, Any]:
    """Returns what waits for a steward, or was decided, for a list."""
    asked = datetime.fromtimestamp(request["asked_at"]).astimezone()
    places = {"statement": f"/ask?sql={quote(request['subject'])}", "basket": "/ask/basket"}
    return {
        **request,
        "at": f"{asked:%Y-%m-%d %H:%M}",
        "again": places.get(request["kind"]) if request["status"] == "approved" else None,
    }


def _foresee(request: dict[str, Any], budget: dict[str, Any], lefts: dict[str, str]) -> dict[str, Any]:
    """Returns what would be left of the budget, and of the share of whoever asks, after a request."""
    amount, exact, own = _amount(request["epsilon"] or None), budget["exact"], lefts.get(request["person"])
    if not amount:
        return {"after": None}
    after = max(parse_exact(exact["left"], name="budget") - amount, Fraction(0))
    label = f"epsilon {short(float(amount))} more of {short(budget['total'])}"
    return {
        "after": after,
        "own": None if own is None else max(parse_exact(own, name="share") - amount, Fraction(0)),
        "meter": draw_meter(budget["total"], budget["spent"], float(amount), label),
    }


def _amount(value: object) -> Fraction:
    try:
        return Fraction(0) if value is None else parse_exact(value, name="epsilon")
    except RecipeError:
        return Fraction(0)


async def _connect(request: Request) -> Response:
    """Returns how tools, programs and assistants ask as the same person; a new token is shown once."""
    token = ""
    if request.method == "GET":
        asker = await require_asker(request)
    else:
        asker, _ = await enter_form(request)
        token = await find_service(request).new_token(asker.user, asker.user.name)
    settings = find_service(request).settings
    host = request.headers["host"]
    return await show(
        request,
        asker,
        "connect.html",
        page=f"{request.scope['scheme']}://{host}{settings.base}",
        database=settings.base.partition("/p/")[2] or "sfumato",
        host=host.rpartition(":")[0].strip("[]") or host,
        port=settings.pg_port,
        token=token,
    )


async def _releases(request: Request) -> Response:
    asker = await require_asker(request)
    service = find_service(request)
    jobs = [] if asker.user.role == "viewer" else await service.jobs(asker.user)
    return await show(request, asker, "releases.html", releases=await service.releases(asker.user), jobs=jobs)


async def _release(request: Request) -> Response:
    """Returns one release: its files, its report, questions to its model, and predictions of it."""
    text, rows, message, answer, status = "", "", "", None, 200
    keys: list[str] = []
    if request.method == "GET":
        asker = await require_asker(request)
    else:
        asker, form = await enter_form(request)
        text, rows = form.get("sql", [""])[0], form.get("rows", [""])[0]
        keys = [spell_name(name) for name in dict.fromkeys(form.get("by", [])) if name]
    service, name = find_service(request), api.check_name(request.path_params["name"])
    found = next((each for each in await service.releases(asker.user) if each["name"] == name), None)
    if found is None:
        raise HTTPException(404, "there is no release of this name")
    table = spell_name(str(found.get("table") or "table"))
    if keys:
        listed = ", ".join(keys)
        text = f"SELECT {listed}, COUNT(*) AS records FROM {table} GROUP BY {listed}"
    if text.strip() or rows.strip():
        try:
            asked = service.ask_release if text.strip() else service.predict
            reply = await asked(asker.user, name, text if text.strip() else rows)
            answer = await run_in_threadpool(describe_table, reply)
        except SfumatoError as error:
            status, message = find_status(error)[0], str(error)
    return await show(
        request,
        asker,
        "release.html",
        status=status,
        release=found,
        picture=[] if answer or message else await service.release_picture(asker.user, name),
        table=table,
        text=text,
        rows=rows,
        message=message,
        answer=answer,
        words=list_words(
            [{"name": found["table"], "columns": [{"name": each} for each in found["by"] or ()]}]
        ),
        asks="model.parquet" in found.get("files", ()),
        predicts="model.json" in found.get("files", ()) and found["recipe"] not in ("quantiles",),
    )


async def _job(request: Request) -> Response:
    asker = await require_asker(request)
    job = await find_service(request).job(asker.user, request.path_params["number"])
    return await show(request, asker, "job.html", job=job)


async def _home(request: Request) -> Response:
    asker = await require_asker(request)
    if asker.user.role != "steward":
        return RedirectResponse(HOMES[asker.user.role], 303)
    service, user = find_service(request), asker.user
    entries = await service.ledger(user)
    budget = await api.read_budget(service, user, {})
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
    budget = await api.read_budget(service, asker.user, {})
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
    described = [(entry, describe_charge(entry)) for entry in entries]
    charges = [
        Spending(
            person=charge["person"],
            table=charge["table"],
            moment=_moment(entry),
            epsilon=float(charge["amount"]),
            when=charge["at"],
            words=f"{charge['person']}, {charge['at']}: epsilon {charge['epsilon']} on {charge['table']}",
        )
        for entry, charge in described
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
    except _Unsure:
        return await _show_people(request, asker, remove=field(form, "name"))
    except (SfumatoError, HTTPException) as error:
        status, message = find_status(error)[0], describe_error(error)["error"]["message"]
        return await _show_people(request, asker, status=status, message=message)
    if token is None:
        return RedirectResponse("/people", 303)
    return await _show_people(request, asker, token=token, name=field(form, "name"))


class _Unsure(Exception):
    """Somebody is to be removed; who pressed the button is asked first."""


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
            given = {key: field(form, key) for key in ("share", *LIMITS) if field(form, key)}
            amounts = {key: None if each == "none" else each for key, each in given.items()}
            await api.set_limits(service, user, {"name": name, **amounts})
        case "remove":
            if field(form, "sure") != "yes":
                raise _Unsure
            await service.remove_user(user, name)
        case "approve" | "decline" as action:
            number = field(form, "number")
            await service.decide(user, int(number) if number.isdecimal() else 0, approve=action == "approve")
        case _:
            raise HTTPException(422, "the form has no such button")
    return None


async def _show_people(
    request: Request,
    asker: Asker,
    *,
    status: int = 200,
    message: str = "",
    token: str = "",
    name: str = "",
    remove: str = "",
) -> Response:
    service = find_service(request)
    requests = [describe_request(each) for each in await service.approvals(asker.user)]
    budget, people = await api.read_budget(service, asker.user, {}), await service.users(asker.user)
    lefts = {each["name"]: each["left"] for each in people if "left" in each}
    waiting = [each | _foresee(each, budget, lefts) for each in requests if each["status"] == "waiting"]
    return await show(
        request,
        asker,
        "people.html",
        status=status,
        people=people,
        waiting=waiting,
        decided=[each for each in requests if each["status"] != "waiting"],
        budget=budget,
        message=message,
        token=token,
        name=name,
        remove=remove,
    )


ROUTES = [
    Route("/ask", _ask, methods=["GET", "POST"]),
    Route("/ask/choose", _choose, methods=["GET", "POST"]),
    Route("/ask/price", _show_price, methods=["POST"]),
    Route("/ask/csv", _send_csv, methods=["POST"]),
    Route("/tables", _tables),
    Route("/history", _history),
    Route("/connect", _connect, methods=["GET", "POST"]),
    Route("/releases", _releases),
    Route("/releases/{name}", _release, methods=["GET", "POST"]),
    Route("/jobs/{number:int}", _job),
    Route("/", _home),
    Route("/ledger", _ledger),
    Route("/people", _people, methods=["GET", "POST"]),
]
