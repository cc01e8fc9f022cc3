"""Dashboards of answers that were paid for.

Kept in `serve.db` with the answers as they were, which are noisy and paid for: looking at them asks nothing.
A refresh is free as long as the records are the same; a new price is a steward's decision.
"""

from __future__ import annotations

import base64
import json
import re
import secrets
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from fractions import Fraction
from typing import TYPE_CHECKING

import pyarrow as pa
from pyarrow import csv
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from sfumato.core.errors import ApprovalNeeded, BudgetExceeded, RecipeError, ReleaseError, SfumatoError
from sfumato.core.exact import parse_exact
from sfumato.report.pages.plot import plot_table
from sfumato.serve.web.api import SANDBOX
from sfumato.serve.web.exchange import field, find_service, find_status, require_asker
from sfumato.serve.web.frame import enter_form, show
from sfumato.serve.web.shown import describe_table

if TYPE_CHECKING:
    from sfumato.serve.service import Service
    from sfumato.serve.state import State, User

MOST_CARDS = 24  # answers on one dashboard
_MOST_BOARDS = 100  # of one person
_MOST_BYTES = 2**19  # of an answer that is kept
_LONGEST_TITLE, _LONGEST_NOTE = 120, 1000
TRIES = 20
BASKET = "basket"  # the row of somebody's basket, which nobody else sees
_SEEN_BY = {"": (), "analyst": ("analyst", "steward"), "viewer": ("viewer", "analyst", "steward")}
_CONTROLS = re.compile(r"[\x00-\x09\x0b-\x1f\x7f]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """An answer on a dashboard: its statement, when it was given, and the table as it was.

    `outdated` is what a new answer would cost, if the records were replaced since, `refused` why there is
    none.
    """

    key: str
    title: str
    note: str
    sql: str
    at: str
    answer: str
    outdated: str = ""
    refused: str = ""

    @property
    def table(self) -> pa.Table:
        """The answer."""
        return pa.ipc.open_stream(base64.b64decode(self.answer)).read_all()


@dataclass(frozen=True, slots=True, kw_only=True)
class Dashboard:
    """Answers that `person` arranged; `shared` is the role that may look at them, nobody else for ""."""

    number: int
    person: str
    shared: str
    title: str
    cards: tuple[Card, ...]

    def find(self, key: str) -> Card:
        """Returns one card."""
        for card in self.cards:
            if card.key == key:
                return card
        raise ReleaseError("this answer is no longer on the dashboard; load the page again")


async def list_dashboards(service: Service, user: User) -> list[Dashboard]:
    """Returns the dashboards that somebody may look at, their own first; without their answers."""
    service.admit(user, "look at dashboards")

    def look() -> list[Dashboard]:
        rows = service.state.run(
            "SELECT number, person, shared, title FROM dashboards WHERE shared <> ? ORDER BY title, number",
            BASKET,
        )
        found = [
            Dashboard(number=number, person=person, shared=shared, title=title, cards=())
            for number, person, shared, title in rows
        ]
        return sorted((each for each in found if _may_see(user, each)), key=lambda b: b.person != user.name)

    return await service.run(user, look)


async def read_dashboard(service: Service, user: User, number: int) -> Dashboard:
    """Returns a dashboard; one that is not theirs to see is as one that does not exist."""
    service.admit(user, "look at dashboards")
    return await service.run(user, lambda: _read(service.state, user, number))


async def save_answer(
    service: Service, user: User, text: str, *, onto: str, title: str = "", note: str = ""
) -> int:
    """Puts the answer to `text`, which is paid for, onto a dashboard, and returns the number of that.

    `onto` is the number of one of theirs, or the title of a new one.
    """
    service.admit(user, "dashboards")
    card = Card(
        key=secrets.token_hex(4),
        title=_clean(title, _LONGEST_TITLE) or "Answer",
        note=_clean(note, _LONGEST_NOTE),
        sql=text,
        **await _ask_again(service, user, text, at_most=Fraction(0)),
    )

    def save() -> int:
        if onto.isdecimal():
            return _change(service.state, user, int(onto[:12]), lambda board: _add(board, card)).number
        known = service.state.run("SELECT count(*) FROM dashboards WHERE person = ?", user.name)
        if known[0][0] >= _MOST_BOARDS:
            raise RecipeError(f"one person has at most {_MOST_BOARDS} dashboards; remove one first")
        named = _clean(onto, _LONGEST_TITLE) or "Dashboard"
        return insert_row(service.state, user, "", named, json.dumps([asdict(card)]))

    number = await service.run(user, save)
    service.note("dashboard", user.name, number=number, change="save")
    return number


async def change_dashboard(
    service: Service, user: User, number: int, change: str, *, key: str = "", **given: str
) -> None:
    """Changes a dashboard of theirs: `rename`, `share`, `edit`, `up`, `down`, `drop` a card, or `remove`."""
    service.admit(user, "dashboards")
    title, note = _clean(given.get("title", ""), _LONGEST_TITLE), _clean(given.get("note", ""), _LONGEST_NOTE)

    def edit(board: Dashboard) -> Dashboard:
        if change == "rename":
            return replace(board, title=title or board.title)
        if change == "share":
            shared = given.get("shared", "")
            if shared not in _SEEN_BY:
                raise RecipeError("a dashboard is shared with nobody, analysts or viewers")
            return replace(board, shared=shared)
        card, cards = board.find(key), list(board.cards)
        place = cards.index(card)
        if change == "edit":
            cards[place] = replace(card, title=title or card.title, note=note)
        elif change == "drop":
            del cards[place]
        elif change in ("up", "down"):
            other = min(max(place + (-1 if change == "up" else 1), 0), len(cards) - 1)
            cards[place], cards[other] = cards[other], cards[place]
        else:
            raise RecipeError("a dashboard is not changed like this")
        return replace(board, cards=tuple(cards))

    def work() -> None:
        if change == "remove":
            _own(service.state, user, number)
            service.state.run(
                "DELETE FROM dashboards WHERE number = ? AND person = ? RETURNING number", number, user.name
            )
        else:
            _change(service.state, user, number, edit)

    await service.run(user, work)
    facts = {"shared": given.get("shared", "")} if change == "share" else {}
    service.note("dashboard", user.name, number=number, change=change, **facts)


async def refresh_dashboard(
    service: Service, user: User, number: int, *, key: str = "", price: Fraction = Fraction(0)
) -> Dashboard:
    """Asks the questions of a dashboard again, for nothing, and returns it with what could not be had so.

    With `key` and a `price` one of them is bought again: that is a steward's decision, for which others wait.
    """
    service.admit(user, "dashboards")
    board = await service.run(user, lambda: _own(service.state, user, number))
    fresh: dict[str, dict[str, str]] = {}
    trouble: dict[str, dict[str, str]] = {}
    for card in (board.find(key),) if key else board.cards:
        try:
            fresh[card.key] = await _ask_again(service, user, card.sql, at_most=price)
        except BudgetExceeded as error:
            if price:
                raise
            told = await service.explain(user, card.sql)
            trouble[card.key] = (
                {"outdated": told["epsilon"]} if told.get("admitted") else {"refused": str(error)}
            )
        except SfumatoError as error:
            if key:
                raise
            trouble[card.key] = {"refused": str(error)}

    def put(now: Dashboard) -> Dashboard:
        return replace(now, cards=tuple(replace(card, **fresh.get(card.key, {})) for card in now.cards))

    board = await service.run(user, lambda: _change(service.state, user, number, put))
    service.note("dashboard", user.name, number=number, change="refresh")
    return replace(board, cards=tuple(replace(card, **trouble.get(card.key, {})) for card in board.cards))


async def _ask_again(service: Service, user: User, text: str, *, at_most: Fraction) -> dict[str, str]:
    """Returns what a card keeps of an answer."""
    reply = await service.ask(user, text, at_most=at_most, renews=True)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, reply.table.schema) as stream:
        stream.write_table(reply.table)
    content = sink.getvalue().to_pybytes()
    if len(content) > _MOST_BYTES:
        raise RecipeError("this answer is too long for a dashboard; ask for fewer groups, or download it")
    at = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    return {"at": at, "answer": base64.b64encode(content).decode()}


def _may_see(user: User, board: Dashboard) -> bool:
    return board.shared != BASKET and (board.person == user.name or user.role in _SEEN_BY[board.shared])


def _read(state: State, user: User, number: int) -> Dashboard:
    rows = state.run("SELECT person, shared, title, items FROM dashboards WHERE number = ?", number)
    for person, shared, title, items in rows:
        if shared != BASKET:
            cards = tuple(Card(**each) for each in json.loads(items))
            board = Dashboard(number=number, person=person, shared=shared, title=title, cards=cards)
            if _may_see(user, board):
                return board
    raise ReleaseError(f"there is no dashboard {number}")


def _own(state: State, user: User, number: int) -> Dashboard:
    board = _read(state, user, number)
    if board.person != user.name:
        raise ReleaseError(f"there is no dashboard {number} of yours; save its answers onto one")
    return board


def _change(state: State, user: User, number: int, change: Callable[[Dashboard], Dashboard]) -> Dashboard:
    """Returns a dashboard of theirs after a change, made to what it is then: no other is lost."""
    for _ in range(TRIES):
        before = _own(state, user, number)
        after = change(before)
        kept = replace_row(state, number, _pack(before), _pack(after), after.title, after.shared)
        if kept:
            return after
    raise RecipeError("the dashboard was changed elsewhere at the same time; try again")


def replace_row(state: State, number: int, before: str, after: str, title: str, shared: str) -> bool:
    """Returns whether a row still had the items of `before`, and has other ones now."""
    query = "UPDATE dashboards SET items = ?, title = ?, shared = ? WHERE number = ? AND items = ?"
    return bool(state.run(f"{query} RETURNING number", after, title, shared, number, before))


def insert_row(state: State, user: User, shared: str, title: str, items: str) -> int:
    """Adds a row, and returns its number."""
    number = secrets.randbelow(2**31)  # a link that is left over leads to no other dashboard
    state.run("INSERT INTO dashboards VALUES (?, ?, ?, ?, ?)", number, user.name, shared, title, items)
    return number


def _pack(board: Dashboard) -> str:
    return json.dumps([asdict(card) for card in board.cards])


def _add(board: Dashboard, card: Card) -> Dashboard:
    if len(board.cards) >= MOST_CARDS:
        raise RecipeError(f"a dashboard has at most {MOST_CARDS} answers; begin another one")
    return replace(board, cards=(*board.cards, card))


def _clean(text: str, longest: int) -> str:
    return _CONTROLS.sub(" ", text).strip()[:longest]


async def _show_all(request: Request) -> Response:
    """Lists dashboards; an answer that a form sends is saved onto one."""
    if request.method == "GET":
        asker = await require_asker(request)
        boards = await list_dashboards(find_service(request), asker.user)
        return await show(request, asker, "dashboard.html", board=None, boards=boards)
    asker, form = await enter_form(request)
    number = await save_answer(
        find_service(request),
        asker.user,
        form.get("sql", [""])[0],
        onto=field(form, "onto") or field(form, "name"),
        title=field(form, "title"),
        note=field(form, "note"),
    )
    return RedirectResponse(f"/dashboards/{number}", 303)


async def _show_one(request: Request) -> Response:
    number, status, message = request.path_params["number"], 200, ""
    service = find_service(request)
    if request.method == "GET":
        asker = await require_asker(request)
        board = await read_dashboard(service, asker.user, number)
    else:
        asker, form = await enter_form(request)
        action, key = field(form, "action"), field(form, "key")
        if action in ("refresh", "renew"):
            price = parse_exact(field(form, "price"), name="price") if action == "renew" else Fraction(0)
            try:
                board = await refresh_dashboard(service, asker.user, number, key=key, price=price)
            except (ApprovalNeeded, BudgetExceeded) as error:
                status, message = find_status(error)[0], str(error)
                board = await read_dashboard(service, asker.user, number)
        else:
            given = {name: field(form, name) for name in ("title", "note", "shared")}
            await change_dashboard(service, asker.user, number, action, key=key, **given)
            place = "" if action == "remove" else f"/{number}"
            return RedirectResponse(f"/dashboards{place}", 303)
    return await show(
        request,
        asker,
        "dashboard.html",
        status=status,
        message=message,
        board=board,
        own=board.person == asker.user.name and asker.user.role != "viewer",
        shown=await run_in_threadpool(lambda: [describe_table(card.table) for card in board.cards]),
    )


async def _send_card(request: Request) -> Response:
    """Sends one answer as a file: its table, or the picture of a column."""
    asker = await require_asker(request)
    board = await read_dashboard(find_service(request), asker.user, request.path_params["number"])
    card, kind = board.find(request.path_params["key"]), request.path_params["kind"]
    if kind not in ("csv", "svg"):
        raise ReleaseError("an answer is there as csv and as svg")

    def write() -> tuple[bytes, str]:
        if kind == "csv":
            sink = pa.BufferOutputStream()
            csv.write_csv(card.table, sink)
            return sink.getvalue().to_pybytes(), "text/csv"
        column = request.query_params.get("column")
        return plot_table(card.table, column, title=card.title).svg.encode(), "image/svg+xml"

    content, media = await run_in_threadpool(write)
    name = re.sub(r"[^A-Za-z0-9_-]+", "_", card.title).strip("_") or "answer"
    headers = {
        "Content-Disposition": f'attachment; filename="{name}.{kind}"',
        "Content-Security-Policy": SANDBOX,
    }
    return Response(content, media_type=media, headers=headers)


_ONE = "/dashboards/{number:int}"
ROUTES = [
    Route("/dashboards", _show_all, methods=["GET", "POST"]),
    Route(_ONE, _show_one, methods=["GET", "POST"]),
    Route(f"{_ONE}/{{key}}/{{kind}}", _send_card),
]
