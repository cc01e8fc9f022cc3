"""Who asks for a client: questions to the service or the catalog, the price of a session, and cancelling."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from sfumato.core.errors import BudgetExceeded, UnsupportedQuery
from sfumato.core.exact import format_short
from sfumato.serve.catalog.tables import Column
from sfumato.serve.wire.answers import Rows, explain_failure, read_table
from sfumato.serve.wire.commands import find_set_config
from sfumato.serve.wire.messages import Refusal
from sfumato.serve.wire.session_settings import SessionSettings
from sfumato.serve.wire.values import TEXT, find_arrow, find_oid

if TYPE_CHECKING:
    from sfumato.serve.catalog import Catalog
    from sfumato.serve.purchase import Reply
    from sfumato.serve.service import Service
    from sfumato.serve.state import User, Verifier
    from sfumato.serve.turns import Turns

_T = TypeVar("_T")
Shape = tuple[tuple[Column, ...] | None, tuple[int, ...]]
"""The columns of a statement, None if it has no rows, and the types of its parameters."""

_MOST_ABANDONED = 8  # questions that a client left running, before it must wait
_UNPRICED = (
    "give the statements of this connection a price: SET sfumato.epsilon = 0.1, or "
    "options=-csfumato.epsilon=0.1 where it is described"
)


@dataclass(slots=True, kw_only=True, eq=False)
class Asker:
    """Asks for one client; `spent` is what its session was charged.

    Which of service and catalog answers is decided by the statement alone, before its parameters are looked
    at: a parameter may hold any text, even that of a statement.

    `proven` is what the `user` logged in by, `database` the name that they gave, `settings` are those of the
    session: the price of plain statements, the budget of the session. `threads` is where the catalog works,
    as it does not wait.
    """

    service: Service
    catalog: Catalog
    user: User
    proven: Verifier
    database: str
    settings: SessionSettings
    threads: Turns
    spent: Fraction = field(default=Fraction(0), init=False)
    _covered: tuple[str, bool] = field(default=("", False), init=False)
    _abandoned: set[asyncio.Task[Any]] = field(default_factory=set, init=False)
    _cancelled: asyncio.Future[None] | None = field(default=None, init=False)

    def cancel(self) -> None:
        """Ends the wait for what is being asked; the work itself goes on, and its answer is stored."""
        if self._cancelled is not None and not self._cancelled.done():
            self._cancelled.set_result(None)

    async def describe(self, text: str, given: tuple[int, ...]) -> Shape:
        """Returns the columns and parameters of a statement; reads nothing and costs nothing.

        `given` are the types of parameters that the client named, 0 where it did not.
        """
        if await self._is_covered(text):
            self.service.admit(await self._find_user(), "tables")
            return await self._in_thread(self.catalog.describe, text)
        user, epsilon = await self._find_user(), self.settings.epsilon
        kinds = tuple(map(find_arrow, given))
        shown = self.settings.intervals
        work = self.service.describe(user, text, epsilon=epsilon, parameter_types=kinds, intervals=shown)
        description = await self._wait(work)
        columns = tuple(Column(name, find_oid(kind)) for name, kind in description.columns)
        return columns, tuple(find_oid(kind) for kind in description.parameters)

    async def explain(self, text: str, parameters: tuple[object, ...]) -> Rows:
        """Returns what a statement would cost and do, a line a row."""
        user, epsilon = await self._find_user(), self.settings.epsilon
        work = self.service.explain(user, text, epsilon=epsilon, parameters=parameters)
        lines = [(line,) for line in str((await self._wait(work))["text"]).splitlines()]
        column = Column("QUERY PLAN", TEXT)
        return Rows(columns=(column,), source=lines, stretch=range(len(lines)), word="EXPLAIN")

    async def ask(
        self,
        text: str,
        parameters: tuple[object, ...],
        *,
        columns: tuple[Column, ...] | None,
        intervals: bool,
    ) -> Rows:
        """Returns the answer to a statement; in `columns`, if the client was told of them before.

        `intervals` says whether it has columns for their ends.
        """
        if not await self._is_covered(text):
            reply = await self._wait(self._spend(text, parameters, intervals=intervals))
            return read_table(reply.table, columns, reply.notes)
        self.service.admit(await self._find_user(), "tables")
        for name, value in find_set_config(text, parameters):
            self.settings.change(name, value)
        answer = partial(
            self.catalog.answer,
            text,
            user=self.user.name,
            database=self.database,
            settings=self.settings.to_dict(),
            parameters=parameters,
        )
        own, rows = await self._in_thread(answer)
        if columns is None or len(columns) != len(own):
            columns = own
        return Rows(columns=columns, source=rows, stretch=range(len(rows)), word="SELECT")

    async def _spend(self, text: str, parameters: tuple[object, ...], *, intervals: bool) -> Reply:
        user = await self._find_user()
        budgets = [each for each in (self.settings.session_budget, user.session_budget) if each is not None]
        budget = min(budgets, default=None)
        if len(self._abandoned) >= _MOST_ABANDONED:
            raise Refusal("53400", "cancelled statements are still at work; wait for them")
        if budget is not None and self._abandoned:
            await asyncio.wait(self._abandoned)  # what they spend counts
        left = None if budget is None else max(budget - self.spent, Fraction(0))
        try:
            reply = await self.service.ask(
                user,
                text,
                epsilon=self.settings.epsilon,
                at_most=left,
                parameters=parameters,
                intervals=intervals,
            )
        except BudgetExceeded as error:
            if budget is None or error.left != left:
                raise
            limit = (
                f"this connection may spend epsilon {format_short(budget)} in all (sfumato.session_budget)"
            )
            raise Refusal("53400", str(error), hint=limit) from None
        self.spent += reply.spent
        return reply

    async def _find_user(self) -> User:
        """Returns who asks, as they are known now, unless what they logged in by is no longer theirs."""
        user = await asyncio.to_thread(self.service.state.find_user, self.user.name, proven=self.proven)
        if user is None:
            raise Refusal("28000", "this user was removed, or has a new password; log in again", fatal=True)
        return user

    async def _is_covered(self, text: str) -> bool:
        if self._covered[0] != text:
            self._covered = text, await self._in_thread(self.catalog.covers, text)
        return self._covered[1]

    async def _in_thread(self, work: Callable[..., _T], *arguments: object) -> _T:
        async def wait() -> _T:
            return await asyncio.wrap_future(self.threads.submit(self.user.name, partial(work, *arguments)))

        return await self._wait(wait())

    async def _wait(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Waits for `work` unless the client cancels: then the wait ends, and the work goes on."""
        task = asyncio.create_task(work)
        task.add_done_callback(self._forget)
        cancelled = self._cancelled = asyncio.get_running_loop().create_future()
        waited: set[asyncio.Future[Any]] = {task, cancelled}
        await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
        self._cancelled = None
        if not task.done():
            self._abandoned.add(task)
        if cancelled.done():
            raise Refusal("57014", "the statement was cancelled; if it was charged, its answer is stored")
        try:
            return task.result()
        except Exception as error:
            refusal = explain_failure(error)
            if isinstance(error, UnsupportedQuery) and "a plain SELECT" in str(error):
                refusal.hint = _UNPRICED
            raise refusal from None

    def _forget(self, task: asyncio.Task[Any]) -> None:
        self._abandoned.discard(task)
        if not task.cancelled():
            task.exception()  # it may have failed after nobody waited any more
