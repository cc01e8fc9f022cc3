"""What a question costs whom, and its purchase: within shares, limits of a day, and approvals."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from sfumato.core.errors import ApprovalNeeded, BudgetExceeded, ChargeKept
from sfumato.core.exact import format_exact, format_short, parse_exact
from sfumato.serve.clock import next_reply
from sfumato.serve.facts import explain_cost, sum_day

if TYPE_CHECKING:
    import pyarrow as pa

    from sfumato.core.ledger.report import BudgetReport
    from sfumato.curator import Curator
    from sfumato.curator.workload import Workload
    from sfumato.serve.jobs import Jobs
    from sfumato.serve.settings import Settings
    from sfumato.serve.state import State, User
    from sfumato.sql.finish import Answer, Price

MOST_VALUES = 2**22  # numbers in an answer, which a door writes out as text
_PRICED = re.compile(
    r"\s*dp[-_]select\s+(?:free|(?:fresh\s+)?(?:within\s+[\d.eE+-]+\s*%?|[\d.eE+-]+)(?:\s+delta\s+[\d.eE+-]+)?)\s",
    re.IGNORECASE,
)
_MOST_PLANNED = 1000
OF_DAY = "it is what a steward lets you spend in 24 hours"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """The answer to a statement: `spent` is what was charged now, `left` what the person can still spend."""

    table: pa.Table
    spent: Fraction
    left: Fraction
    repeated: bool = False
    public: bool = False
    synthetic: bool = False
    scales: dict[str, str]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class AskedStatement:
    """A statement with who asks it, its price and its limit; `digest` names it in approvals.

    With `together`, the statements of a basket, these are bought at once for `epsilon`, and `text` is all of
    them. What `renews` an answer of a dashboard is free, or needs a steward's approval.
    """

    user: User
    text: str
    epsilon: object
    at_most: Fraction | None
    parameters: tuple[object, ...]
    digest: str
    intervals: bool = True
    renews: bool = False
    together: tuple[str, ...] = ()


@dataclass(slots=True)
class Conversation:
    """What an agent has spent in one conversation, whose questions take turns."""

    spent: Fraction = Fraction(0)
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)


def drop_price(text: str) -> str:
    """Returns a statement as a basket has it, whose epsilon is that of all.

    >>> drop_price("DP-SELECT WITHIN 20 DELTA 1e-6 COUNT(*) FROM t"), drop_price("SELECT 1")
    ('SELECT COUNT(*) FROM t', 'SELECT 1')
    """
    return _PRICED.sub("SELECT ", text.strip(), count=1)


class Purchases:
    """Prices and buys answers of one project; called in workers, since it waits for records."""

    def __init__(self, curator: Curator, state: State, settings: Settings, jobs: Jobs) -> None:
        self._curator = curator
        self._state = state
        self._settings = settings
        self._jobs = jobs
        self._planned: dict[str, dict[str, Any]] = {}  # baskets; a plan follows from the project file alone

    def renew(self, curator: Curator, settings: Settings) -> None:
        """Buys from now on from another curator, after what is being bought."""
        self._curator, self._settings = curator, settings
        self._planned.clear()

    def hold(self, user: User) -> AbstractContextManager[object]:
        """Returns the turn of who has a limit of a day, on all servers: two would both fit into the rest."""
        daily = user.daily is not None or self._settings.approve_daily is not None
        return self._curator.take_turn(f"purchases of {user.name}") if daily else nullcontext()

    def buy(self, ask: AskedStatement, *, progress: Callable[[str], None]) -> list[Reply]:
        """Returns the answer to a question, or to each of a basket, charged within all limits of who asks."""
        with self.hold(ask.user) if ask.at_most != 0 else nullcontext():
            answers = self._buy(ask, progress=progress)
        left = self.find_left(ask.user)
        return [
            Reply(
                table=answer.table,
                spent=answer.spent,
                left=left,
                repeated=answer.repeated,
                public=answer.public or answer.explanation is not None,
                synthetic=answer.synthetic,
                scales=dict(answer.scales),
                notes=(*explain_cost(answer, left), *answer.notes),
            )
            for answer in answers
        ]

    def _buy(self, ask: AskedStatement, *, progress: Callable[[str], None]) -> list[Answer]:
        started = time.monotonic()

        def pace() -> None:
            # In the worker, and before the answer is stored: nobody can see when the reading has ended, not
            # by asking the same meanwhile, nor by asking whether it is there. A reading after this one has a
            # grid of its own, or the waits of a statement with many would double and double.
            nonlocal started
            elapsed = time.monotonic() - started
            time.sleep(next_reply(elapsed, first=self._settings.reply_every) - elapsed)
            started = time.monotonic()

        user, limit = ask.user, ask.at_most
        above = None if limit == 0 else self.find_unasked(user)
        if ask.renews and limit != 0 and (above is not None or user.role != "steward"):
            above = Fraction(0)
        left_today = self.find_left_today(user)
        if left_today is not None:
            limit = left_today if limit is None else min(limit, left_today)
        # Taken before the purchase, so that two at once are not paid by one approval.
        approved = None if above is None else self._state.use_approval(user.name, ask.digest)
        spent = Fraction(0)
        try:
            if above is not None:
                if approved is None:
                    self._refuse_unapproved(ask, above)
                most = above if approved is None else max(above, Fraction(approved))
                limit = most if limit is None else min(limit, most)
            if ask.together:
                answers = self._buy_together(ask, limit, progress=progress, pace=pace)
            else:
                answer = self._curator.sql(
                    ask.text,
                    epsilon=ask.epsilon,
                    parameters=ask.parameters,
                    asked_by=user.name,
                    at_most=limit,
                    progress=progress,
                    pace=pace,
                    most_values=MOST_VALUES,
                    intervals=ask.intervals,
                )
                answers = [answer]
            spent = sum((each.spent for each in answers), Fraction(0))
        except ChargeKept:
            approved = None  # it has paid, though nobody saw the answer
            raise
        except BudgetExceeded as error:
            if left_today is not None and error.left == left_today:
                raise BudgetExceeded(f"{error}; {OF_DAY}", left=left_today) from None
            raise
        finally:
            if approved is not None and not spent:
                self._state.return_approval(user.name, ask.digest)
        return answers

    def _plan_together(self, ask: AskedStatement, **given: Any) -> Workload:  # noqa: ANN401
        user = ask.user.name
        return self._curator.sql_workload(
            ask.together, epsilon=ask.epsilon, asked_by=user, most_values=MOST_VALUES, **given
        )

    def _buy_together(
        self,
        ask: AskedStatement,
        limit: Fraction | None,
        *,
        progress: Callable[[str], None],
        pace: Callable[[], None],
    ) -> list[Answer]:
        workload, left = self._plan_together(ask, progress=progress, pace=pace), self.find_left(ask.user)
        if workload.epsilon > min(left, left if limit is None else limit):
            # What was bought before is stored, and free; so this is about the basket as a whole.
            raise BudgetExceeded(
                f"the basket costs epsilon {format_short(workload.epsilon)}, and epsilon "
                f"{format_short(left)} is left to you; nothing was spent. Take questions out, or spend less",
                left=left,
            )
        return workload.buy()

    def explain_together(self, ask: AskedStatement) -> dict[str, Any]:
        """Returns what the questions of a basket would err, together and one by one, and whether they fit."""
        left, above = self.find_left(ask.user), self.find_unasked(ask.user)
        key = f"{ask.user.name} {ask.digest}"  # who has views of their own may mean something else
        plan = self._planned.get(key)
        if plan is None:
            workload = self._plan_together(ask)
            share = float(workload.epsilon) / len(workload.statements)
            # Of one answer the variance falls with the square of its epsilon.
            alone = sum(share * max(1.0, each.variance_ratio) ** 0.5 for each in workload.statements)
            plan = {**workload.to_record(), "alone": alone}
            if len(self._planned) >= _MOST_PLANNED:
                self._planned.clear()
            self._planned[key] = plan
        epsilon = parse_exact(ask.epsilon, name="epsilon")
        return {
            **plan,
            "admitted": epsilon <= left,
            "approval": above is not None and epsilon > above,
            "left": format_exact(left),
        }

    def _refuse_unapproved(self, ask: AskedStatement, above: Fraction) -> None:
        price: Price | Workload | None = self._plan_together(ask) if ask.together else self._price(ask).price
        if price is None or price.epsilon <= above or getattr(price, "stored", False):
            return
        left = self.find_left(ask.user)
        if price.epsilon > left:
            raise BudgetExceeded(
                f"this costs epsilon {format_short(price.epsilon)}, and epsilon {format_short(left)} is left "
                "to you. Nothing was spent; ask for less, or ask a steward for a larger share",
                left=left,
            )
        number = self._state.ask_approval(
            ask.user.name,
            kind="basket" if ask.together else "statement",
            subject=ask.text,
            digest=ask.digest,
            epsilon=format_exact(price.epsilon),
        )
        today = "" if self._settings.approve_daily is None else " today"
        raise ApprovalNeeded(
            f"this costs epsilon {format_short(price.epsilon)}, and more than {format_short(above)} needs a "
            f"steward's approval{today}; it waits as number {number}, nothing was spent. "
            "Ask again once it is there",
            number=number,
        )

    def _price(self, ask: AskedStatement) -> Answer:
        text = ask.text if ask.text.lstrip().lower().startswith("explain") else f"EXPLAIN {ask.text}"
        return self._curator.sql(
            text, epsilon=ask.epsilon, parameters=ask.parameters, most_values=MOST_VALUES
        )

    def explain(self, ask: AskedStatement) -> dict[str, Any]:
        """Returns what a statement would cost and err, and what that means for who asks."""
        user = ask.user
        answer, left = self._price(ask), self.find_left(user)
        price = answer.price
        if price is None:
            return {
                "text": answer.explanation or "",
                "epsilon": "0",
                "free": True,
                "left": format_exact(left),
            }
        above = self.find_unasked(user)
        waits = above is not None and price.epsilon > above
        limits = [left] if above is None or waits else [left, above]
        most = None if price.most is None else max(price.epsilon, min(price.most, *limits))
        stored = price.stored and most is None  # the first try of several may be, and the others not
        lines = [answer.explanation or ""]
        if not stored and self._curator.share(user.name) is not None:
            verdict = "fits" if price.epsilon <= left else "does NOT fit"
            lines.append(f"  share        epsilon {format_short(left)} left to you; this statement {verdict}")
        if not stored and waits:
            lines.append("  approval     a steward has to approve it first")
        return {
            "text": "\n".join(lines),
            "epsilon": format_exact(price.epsilon),
            "most": None if most is None else format_exact(most),
            "delta": format_exact(price.delta),
            "errors": dict(price.errors),
            "expected": {name: each.describe() for name, each in price.expected.items()},
            **({} if price.free is None else {"known": dict(price.free)}),
            "notes": list(answer.notes),
            "groups": price.groups,
            "free": stored,
            "stored": stored,
            "admitted": stored or (price.admitted and price.epsilon <= left),
            "approval": waits,
            "left": format_exact(left),
        }

    def find_left(self, user: User) -> Fraction:
        """Returns how much epsilon a person can spend now, approved or not."""
        limits = (self._curator.budget(), self._curator.share(user.name))
        left = min(Fraction(each.left) for each in limits if each is not None)
        today = self.find_left_today(user)
        return left if today is None else min(left, today)

    def find_left_today(self, user: User) -> Fraction | None:
        """Returns what is left of the most that a person may spend in 24 hours; None without such a limit."""
        if user.daily is None:
            return None
        return max(user.daily - self._sum_day(user.name), Fraction(0))

    def _sum_day(self, person: str) -> Fraction:
        """Returns what a person was charged in 24 hours, and may be for releases that are at work."""
        # In this order: what is charged meanwhile counts twice, not never.
        return self._jobs.sum_open(person) + sum_day(self._curator, person)

    def find_unasked(self, user: User) -> Fraction | None:
        """Returns how much epsilon a person may spend without a steward's approval; None for any amount."""
        if user.role == "steward" and not self._settings.approve_stewards:
            return None
        above, daily = self._settings.approve_above, self._settings.approve_daily
        if daily is None:
            return above
        left = max(daily - self._sum_day(user.name), Fraction(0))
        return left if above is None else min(above, left)

    def describe_budget(self, user: User) -> dict[str, Any]:
        """Returns what the project and the person may spend, spent and have left, as exact texts."""

        def describe(report: BudgetReport) -> dict[str, Any]:
            return {"total": str(report.total), "spent": str(report.spent), "left": str(report.left)}

        total, share = self._curator.budget(), self._curator.share(user.name)
        own = None if share is None else describe(share)
        return {**describe(total), "delta": str(total.delta), "share": own}
