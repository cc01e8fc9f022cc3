"""The pages of viewers: releases, their files and reports, and free questions to their models."""

from __future__ import annotations

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from sfumato.core.errors import SfumatoError
from sfumato.serve.web import api
from sfumato.serve.web.asking import describe_table, list_words, spell_name
from sfumato.serve.web.exchange import (
    find_service,
    find_status,
    require_asker,
)
from sfumato.serve.web.frame import enter_form, show


async def _releases(request: Request) -> Response:
    asker = await require_asker(request)
    service = find_service(request)
    jobs = [] if asker.user.role == "viewer" else await service.jobs(asker.user)
    return await show(request, asker, "releases.html", releases=await service.releases(asker.user), jobs=jobs)


async def _release(request: Request) -> Response:
    """One release: its files, its report, questions to its model, and predictions of it."""
    text, rows, message, answer, status = "", "", "", None, 200
    if request.method == "GET":
        asker = await require_asker(request)
    else:
        asker, form = await enter_form(request)
        text, rows = form.get("sql", [""])[0], form.get("rows", [""])[0]
    service, name = find_service(request), api.check_name(request.path_params["name"])
    found = next((each for each in await service.releases(asker.user) if each["name"] == name), None)
    if found is None:
        raise HTTPException(404, "there is no release of this name")
    if text.strip() or rows.strip():
        try:
            asked = service.ask_release if text.strip() else service.predict
            table = await asked(asker.user, name, text if text.strip() else rows)
            answer = await run_in_threadpool(describe_table, table)
        except SfumatoError as error:
            status, message = find_status(error)[0], str(error)
    return await show(
        request,
        asker,
        "release.html",
        status=status,
        release=found,
        table=spell_name(str(found.get("table") or "table")),
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


ROUTES = [
    Route("/releases", _releases),
    Route("/releases/{name}", _release, methods=["GET", "POST"]),
    Route("/jobs/{number:int}", _job),
]
