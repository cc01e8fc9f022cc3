"""The basket: questions that are planned together, shown with what that saves, and bought at once.

Kept in `serve.db` as statements without a price; of the answers nothing is kept here, they are in the ledger.
"""

from __future__ import annotations

import json
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from sfumato.core.errors import RecipeError, SfumatoError
from sfumato.core.exact import format_exact, parse_exact, parse_positive
from sfumato.serve.purchase import drop_price
from sfumato.serve.web import api
from sfumato.serve.web.dashboards import BASKET, TRIES, insert_row, list_dashboards, replace_row
from sfumato.serve.web.exchange import field, find_service, find_status, require_asker
from sfumato.serve.web.frame import enter_form, show
from sfumato.serve.web.shown import describe_reply, digest_text, draw_budget

if TYPE_CHECKING:
    from sfumato.serve.service import Service
    from sfumato.serve.state import User

_MOST = 12  # questions in one basket: planning compares each with each


async def change_basket(
    service: Service, user: User, *, add: tuple[str, str] | None = None, drop: int | None = None
) -> list[tuple[str, str]]:
    """Returns the basket of somebody after a change: statements without a price, and what each would cost.

    `add` is one more, `drop` the place of one that is taken out; -1 for all of them.
    """
    service.admit(user, "basket")

    def work() -> list[tuple[str, str]]:
        for _ in range(TRIES):
            rows = service.state.run(
                "SELECT number, items FROM dashboards WHERE person = ? AND shared = ?", user.name, BASKET
            )
            if not rows and add is None:
                return []
            number, before = rows[0] if rows else (0, "[]")
            items = [tuple(each) for each in json.loads(before)]
            if add is not None and add[0] not in [each[0] for each in items]:
                if len(items) >= _MOST:
                    raise RecipeError(f"a basket has at most {_MOST} questions; buy or empty it first")
                items.append(add)
            if drop is not None:
                items = [each for place, each in enumerate(items) if drop not in (-1, place)]
            if not rows:
                insert_row(service.state, user, BASKET, "", json.dumps(items))
                return items
            if replace_row(service.state, number, before, json.dumps(items), "", BASKET):
                return items
        raise RecipeError("the basket was changed elsewhere at the same time; try again")

    return await service.run(user, work)


async def put_into_basket(service: Service, user: User, text: str) -> Response:
    """Adds a statement to the basket, and leads there."""
    found = await service.explain(user, text)
    await change_basket(service, user, add=(drop_price(text), found["epsilon"]))
    return RedirectResponse("/ask/basket", 303)


async def _show(request: Request) -> Response:
    """Returns the basket with its plan; a form changes it, or buys what was shown for what was shown."""
    status, message, seen = 200, "", ""
    answers: list[dict[str, Any]] = []
    form: dict[str, list[str]] = {}
    if request.method == "GET":
        asker = await require_asker(request)
    else:
        asker, form = await enter_form(request)
    service, user, action = find_service(request), asker.user, field(form, "action")
    if action in ("drop", "empty"):
        place = field(form, "place")
        drop = -1 if action == "empty" else int(place) if place.isdecimal() and len(place) < 4 else _MOST
        await change_basket(service, user, drop=drop)
        return RedirectResponse("/ask/basket", 303)
    items = await change_basket(service, user)
    texts = [text for text, _ in items]
    epsilon = sum((parse_exact(each, name="epsilon") for _, each in items), Fraction(0)) or Fraction(1, 10)
    plan = None
    try:
        if field(form, "epsilon"):
            epsilon = parse_positive(field(form, "epsilon"), name="epsilon")
        seen = digest_text(f"{texts} {epsilon}")
        if texts and action == "buy" and field(form, "seen") == seen:
            replies = await service.ask_together(user, texts, epsilon=epsilon, at_most=epsilon)
            answers = await run_in_threadpool(lambda: [describe_reply(each) for each in replies])
        elif texts:
            plan = await service.explain_together(user, texts, epsilon=epsilon)
    except SfumatoError as error:
        status, message = find_status(error)[0], str(error)
    budget = await api.read_budget(service, user, {})
    return await show(
        request,
        asker,
        "basket.html",
        status=status,
        message=message,
        texts=texts,
        epsilon=format_exact(epsilon),
        plan=plan,
        seen=seen,
        answers=answers,
        spent=sum((each["spent"] for each in answers), Fraction(0)),
        boards=await list_dashboards(service, user),
        budget=budget,
        meter=draw_budget(budget, float(epsilon) if plan else 0),
    )


ROUTES = [Route("/ask/basket", _show, methods=["GET", "POST"])]
