"""Everything that a door may do, each call for one person: the one place where roles are enforced.

The wire, the pages, the API and agents call `Service` and nothing else of the project. It asks the curator in
threads of its own, so that a door never waits for records; it finishes what it began after a client has
left; and what it says after a charge leaves at times fixed beforehand (`clock`).
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import secrets
import time
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from sfumato.core.errors import (
    AccessDenied,
    ApprovalNeeded,
    BudgetExceeded,
    ChargeKept,
    ReleaseError,
    SfumatoError,
    SourceError,
    TooManyRequests,
)
from sfumato.core.exact import format_exact, format_short
from sfumato.serve.clock import next_reply, recent_times
from sfumato.serve.facts import describe_tables, explain_cost, list_charges, list_users
from sfumato.serve.jobs import Jobs
from sfumato.serve.state import Role, State, User, Verifier, add_user
from sfumato.serve.turns import Turns

if TYPE_CHECKING:
    import pyarrow as pa

    from sfumato.core.facts.project import Project
    from sfumato.core.ledger.report import BudgetReport
    from sfumato.curator import Curator
    from sfumato.serve.settings import Settings
    from sfumato.sql.finish import Answer
    from sfumato.sql.settle import Description

Done = TypeVar("Done")

CALLER: ContextVar[dict[str, str]] = ContextVar("caller", default={})  # noqa: B039 - never changed
"""The door and the address of whoever is being served, for the audit log."""

# What each role may do. Whoever is not named here for something may not do it.
_LOOK = {"releases", "ask a release"}
_ASK = {"tables", "describe", "explain", "ask", "budget", "history", "check", "release", "jobs"}
_RUN = {"users", "approvals", "ledger", "draft"}
_MAY: dict[Role, frozenset[str]] = {
    "viewer": frozenset(_LOOK),
    "analyst": frozenset(_LOOK | _ASK),
    "steward": frozenset(_LOOK | _ASK | _RUN),
}
_KEPT = "the answer could not be given; the charge is kept, because a refund would tell about the records"
_UNREADABLE = "a table of the project cannot be read now; nothing was spent. The server's log says which"
_FAILED = "the statement could not be answered; nothing was spent. The server's log names the reason"
_LOGINS = 10  # wrong passwords for one name in a minute, after which the name waits
_REFUSALS = 60  # lines in the audit log that one address makes in a minute without being let in
_LINK_SECONDS = 600.0  # a link that is left in a terminal opens nothing later
_MOST_VALUES = 2**22  # numbers in an answer, which a door writes out as text
_MOST_ANSWERED = 10_000  # statements that are known to be stored
_LONGEST_NAME = 64  # one more than a name may have


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
class _Question:
    """A statement with who asks it, its price and its limit; `digest` names it in approvals."""

    user: User
    text: str
    epsilon: object
    at_most: Fraction | None
    parameters: tuple[object, ...]
    digest: str
    intervals: bool = True


class Service:
    """One project, served. `log` is called with a record of every event; none holds a value of a record."""

    def __init__(
        self,
        curator: Curator,
        *,
        settings: Settings,
        state: State,
        log: Callable[[dict[str, Any]], None] = lambda _: None,
    ) -> None:
        self.settings = settings
        self.state = state
        self.curator = curator
        self._log = log
        # One lane for what reads records and other long work, one for what is stored or known already.
        most = max(1, settings.workers - 1)
        self._long = Turns(settings.workers, each=most, name="sfumato-ask")
        self._quick = Turns(settings.workers, each=most, name="sfumato-tell")
        self._answered: dict[str, None] = {}
        self._running: set[asyncio.Future[Any]] = set()
        self._asked: dict[str, deque[float]] = {}
        self._failed: dict[str, deque[float]] = {}
        self._refused: dict[str, deque[float]] = {}
        self._counts: Counter[str] = Counter()
        self._links: dict[bytes, tuple[str, Verifier | None, float]] = {}  # they end with this process
        self._closing = False
        self._jobs = Jobs(curator, state, folder=curator.project.folder / settings.releases)

    @property
    def project(self) -> Project:
        """The project file, as read."""
        return self.curator.project

    # Who asks

    def may_log_in(self, name: str, *, origin: str) -> bool:
        """Returns whether `origin` has not sent too many wrong passwords for `name` in the last minute."""
        return len(recent_times(self._failed, f"{name[:_LONGEST_NAME]} {origin}")) < _LOGINS

    def note_login(self, name: str, *, origin: str, known: bool) -> None:
        """Records a login; one that failed counts against the name, from that address."""
        name = name[:_LONGEST_NAME]  # who has not logged in yet may send any
        self._counts["logins" if known else "logins_refused"] += 1
        if known:
            self.note("login", name, outcome="ok")
        else:
            recent_times(self._failed, f"{name} {origin}").append(time.monotonic())
            self._note_refusal("login", name)

    def _note_refusal(self, event: str, name: str = "") -> None:
        """Records that somebody was not let in, of each address so often that it fills no disk."""
        refused = recent_times(self._refused, CALLER.get().get("address", ""))
        if len(refused) < _REFUSALS:
            refused.append(time.monotonic())
            self.note(event, name, outcome="refused")

    def check_password(self, name: str, password: str, *, origin: str) -> User | None:
        """Returns the person, if the password is theirs; takes as long for a name that is not known."""
        if not self.may_log_in(name, origin=origin):
            raise TooManyRequests("too many wrong passwords for this name; wait a minute")
        known = self.state.find_verifier(name).fits(password)
        self.note_login(name, origin=origin, known=known)
        return self.state.find_user(name) if known else None

    def check_token(self, token: str) -> User | None:
        """Returns whose token it is."""
        user = self.state.find_token(token)
        if user is None:
            self._note_refusal("token")
        return user

    def make_steward_link(self, name: str = "") -> str | None:
        """Makes a link that opens one session of the steward `name`, and returns its secret.

        Without a name it is for the only steward, who is made if there is none; None if there are several.
        """
        stewards = [user.name for user in self.state.users() if user.role == "steward"]
        if not stewards and name in ("", "steward"):
            self.state.add_user("steward", "steward")
            stewards = ["steward"]
        if not name and len(stewards) > 1:
            return None
        name = name or stewards[0]
        if name not in stewards:
            raise AccessDenied(f"there is no steward {name!r}; sfumato user add {name} --role steward")
        secret = secrets.token_urlsafe(24)
        key, ends = hashlib.sha256(secret.encode()).digest(), time.monotonic() + _LINK_SECONDS
        self._links[key] = name, self.state.find_verifier(name), ends
        return secret

    def enter_by_link(self, link: str) -> str | None:
        """Opens the session of a link, once, and returns its secret."""
        name, proven, ends = self._links.pop(hashlib.sha256(link.encode()).digest(), ("", None, 0.0))
        user = self.state.find_user(name, proven=proven) if time.monotonic() < ends else None
        if user is None:
            self._note_refusal("link")
            return None
        self.note("link", name, outcome="ok")
        return self.state.open_session(user.name)

    # Questions

    async def describe(
        self,
        user: User,
        text: str,
        *,
        epsilon: object = None,
        parameter_types: Sequence[pa.DataType | None] = (),
        intervals: bool = True,
    ) -> Description:
        """Returns names and types of an answer's columns; reads nothing and spends nothing."""
        self.admit(user, "describe")
        return await self.run(
            user,
            lambda: self.curator.describe(
                text, epsilon=epsilon, parameter_types=tuple(parameter_types), intervals=intervals
            ),
        )

    async def explain(
        self, user: User, text: str, *, epsilon: object = None, parameters: Sequence[object] = ()
    ) -> dict[str, Any]:
        """Returns what a statement would cost and err, and whether it is paid for already; spends nothing."""
        self.admit(user, "explain")
        return await self.run(user, lambda: self._explain(user, text, epsilon, tuple(parameters)))

    async def ask(
        self,
        user: User,
        text: str,
        *,
        epsilon: object = None,
        at_most: Fraction | None = None,
        parameters: Sequence[object] = (),
        intervals: bool = True,
    ) -> Reply:
        """Returns the answer to a statement, charged to the person who asks.

        `epsilon` is the price of a plain SELECT that reads records, `at_most` the most that may be charged,
        `parameters` are bound to $1, $2 and so on. Without `intervals` it has no columns for their ends.
        """
        self.admit(user, "ask")
        begun = time.monotonic()
        digest = hashlib.sha256(json.dumps([text, str(epsilon), [str(p) for p in parameters]]).encode())

        stages: list[str] = []  # none until something is charged
        ask = _Question(user, text, epsilon, at_most, tuple(parameters), digest.hexdigest(), intervals)

        def work(*, stored: bool = False) -> Reply | SfumatoError | None:
            limited = replace(ask, at_most=Fraction(0)) if stored else ask
            try:
                return self._buy(limited, started=time.monotonic(), progress=stages.append)
            except BudgetExceeded as error:
                return None if stored else error
            except SourceError as error:
                return self._hide(error)
            except SfumatoError as error:
                return error
            except Exception as error:
                self.note("error", user.name, kind=type(error).__name__)
                return ChargeKept(_KEPT) if stages else SfumatoError(_FAILED)

        reply = None
        if ask.digest in self._answered:  # and stored, unless the table was replaced
            reply = await self.run(user, lambda: work(stored=True))
        if reply is None:
            reply = await self.run(user, work, long=True)
        assert reply is not None
        self._count_reply(user, reply, time.monotonic() - begun, ask.digest[:16])
        if isinstance(reply, SfumatoError):
            raise reply
        if not reply.public and "within" not in text.lower():  # which may buy a better answer each time
            self._answered[ask.digest] = None
            if len(self._answered) > _MOST_ANSWERED:
                del self._answered[next(iter(self._answered))]
        return reply

    async def budget(self, user: User) -> dict[str, Any]:
        """Returns what the project and the person may spend, spent and have left, as exact texts."""
        self.admit(user, "budget")
        return await self.run(user, lambda: self._budget(user))

    async def tables(self, user: User) -> list[dict[str, Any]]:
        """Returns the tables: public facts of the project file, names and kinds of columns."""
        self.admit(user, "tables")
        return await self.run(user, lambda: describe_tables(self.curator))

    async def history(self, user: User) -> list[dict[str, Any]]:
        """Returns the charges of a person, or of everybody for a steward, the newest first."""
        self.admit(user, "history")
        mine = None if user.role == "steward" else user.name
        return await self.run(user, lambda: list_charges(self.curator, mine))

    async def ledger(self, user: User) -> list[dict[str, Any]]:
        """Returns all charges, the newest first."""
        self.admit(user, "ledger")
        return await self.run(user, lambda: list_charges(self.curator, None))

    # Releases

    async def check(self, user: User, recipe: str) -> dict[str, Any]:
        """Returns what a release of `recipe`, the text of its file, would ask, cost and err."""
        self.admit(user, "check")
        trusted = user.role == "steward"
        return (await self.run(user, lambda: self._jobs.check(recipe, files=trusted), long=True)).to_record()

    async def start_release(self, user: User, recipe: str, *, name: str) -> dict[str, Any]:
        """Begins the release `name`, and returns its job; what costs too much for one person alone waits."""
        self.admit(user, "release")
        trusted, above = user.role == "steward", self.settings.approve_above

        def add() -> tuple[int, bool]:
            check = self._jobs.check(recipe, files=trusted)
            if not check.admitted:
                raise BudgetExceeded(
                    "the budget has no room for this release; nothing was spent", left=check.left
                )
            price = self._jobs.price(check, self.project.delta)
            waits = above is not None and not trusted and (price is None or price > above)
            number = self._jobs.add(user.name, name, recipe, status="approval" if waits else "waiting")
            if waits:
                self.state.ask_approval(
                    user.name,
                    kind="release",
                    subject=recipe,
                    digest=f"job {number}",
                    epsilon="" if price is None else format_short(price),
                )
            return number, waits

        number, waits = await self.run(user, add, long=True)
        self.note("release", user.name, job=number, outcome="waits" if waits else "begun")
        if not waits:
            self._jobs.start(number)
        return await self.job(user, number)

    def resume_jobs(self) -> None:
        """Begins again what a stop has interrupted; each goes on under the charge that it made."""
        self._jobs.resume()

    async def jobs(self, user: User) -> list[dict[str, Any]]:
        """Returns the jobs of a person, or of everybody for a steward."""
        self.admit(user, "jobs")
        found = await self.run(user, self.state.jobs)
        return [job for job in found if user.role == "steward" or job["person"] == user.name]

    async def job(self, user: User, number: int) -> dict[str, Any]:
        """Returns one job."""
        for job in await self.jobs(user):
            if job["number"] == number:
                return job
        raise ReleaseError(f"there is no job {number}")

    async def watch_job(self, user: User, number: int) -> AsyncIterator[dict[str, Any]]:
        """Yields one job, again whenever it changes, until it is done."""
        await self.job(user, number)
        async for job in self._jobs.watch(number):
            yield job

    async def releases(self, user: User) -> list[dict[str, Any]]:
        """Returns what is released: for each its table, its recipe, its cost and its files."""
        self.admit(user, "releases")
        return await self.run(user, self._jobs.describe)

    async def release_file(self, user: User, name: str, file: str) -> Path:
        """Returns the path of one file of a release."""
        self.admit(user, "releases")
        return await self.run(user, lambda: self._jobs.file(name, file))

    async def report_page(self, user: User, name: str) -> bytes:
        """Returns the report on a release: one page of HTML."""
        self.admit(user, "releases")
        return await self.run(user, lambda: self._jobs.report(name), long=True)

    async def ask_release(self, user: User, name: str, text: str) -> pa.Table:
        """Returns the answer of a released model, which is public: it costs nothing."""
        self.admit(user, "ask a release")
        return await self.run(user, lambda: self._jobs.ask(name, text), long=True)

    async def predict(self, user: User, name: str, rows: str) -> pa.Table:
        """Predicts new rows, given as CSV, with a released model; nothing of them is kept."""
        self.admit(user, "ask a release")
        return await self.run(user, lambda: self._jobs.predict(name, rows), long=True)

    # People and approvals

    async def users(self, user: User) -> list[dict[str, Any]]:
        """Everybody, with their share and what they spent."""
        self.admit(user, "users")
        return await self.run(user, lambda: list_users(self.state, self.curator))

    async def add_user(
        self, user: User, *, name: str, role: str, share: object = None, password: str | None = None
    ) -> str:
        """Adds a person, and returns their token; an analyst needs a `share`, the most to be spent."""
        self.admit(user, "users")
        token = await self.run(user, lambda: add_user(self.state, self.curator, name, role, share, password))
        self.note("add user", user.name, about=name, role=role)
        return token

    async def remove_user(self, user: User, name: str) -> None:
        """Forgets a person; what they spent stays in the ledger."""
        self.admit(user, "users")
        if name == user.name:
            raise AccessDenied("nobody removes themselves; ask another steward")
        await self.run(user, lambda: self.state.remove_user(name))
        self.note("remove user", user.name, about=name)

    async def new_token(self, user: User, name: str) -> str:
        """Makes a token in place of the one that a person had; everybody may renew their own."""
        if name != user.name:
            self.admit(user, "users")
        token = await self.run(user, lambda: self.state.new_token(name))
        self.note("new token", user.name, about=name)
        return token

    async def set_share(self, user: User, name: str, share: object) -> None:
        """Another share for a person; None lets them spend whatever is there."""
        self.admit(user, "users")

        def change() -> list[str]:
            before = self.curator.share(name)
            self.curator.set_share(name, share)
            after = self.curator.share(name)
            return ["all" if each is None else str(each.total) for each in (before, after)]

        before, after = await self.run(user, change)
        self.note("share", user.name, about=name, before=before, after=after)

    async def approvals(self, user: User) -> list[dict[str, Any]]:
        """Returns what waits for a steward and what was decided, the newest first; others see their own."""
        self.admit(user, "history")
        found = await self.run(user, self.state.approvals)
        return [each for each in found if user.role == "steward" or each["person"] == user.name]

    async def decide(self, user: User, number: int, *, approve: bool) -> dict[str, Any]:
        """Approves or refuses what waits; the person may then buy it once."""
        self.admit(user, "approvals")
        decided = await self.run(
            user, lambda: self.state.decide(number, approve=approve, decided_by=user.name)
        )
        self.note("decide", user.name, number=number, outcome=decided["status"])
        if decided["kind"] == "release":
            job = int(decided["digest"].removeprefix("job "))
            if approve:
                self._jobs.start(job)
            else:
                self.state.update_job(job, status="failed", stages=[], message="a steward refused it")
        return decided

    # What every call goes through

    def admit(self, user: User, action: str) -> None:
        """Raises an error if the person may not do `action`, or asks too often."""
        self._counts["requests"] += 1
        if action not in _MAY.get(user.role, frozenset()):
            self._counts["denied"] += 1
            self.note("denied", user.name, action=action)
            raise AccessDenied(f"the role {user.role!r} does not allow this; ask a steward")
        if self._closing:
            raise TooManyRequests("the server is stopping; ask again when it is back")
        recent = recent_times(self._asked, user.name)
        if len(recent) >= self.settings.per_minute:
            self._counts["throttled"] += 1
            raise TooManyRequests("too many requests in a minute; wait a little")
        recent.append(time.monotonic())

    async def run(self, user: User | None, work: Callable[[], Done], *, long: bool = False) -> Done:
        """Does the `work` of a person in their turn, to its end even if they leave; returns what it gives.

        What is `long` reads records or computes for a while, and holds up nothing else.
        """
        turns = self._long if long else self._quick
        future = asyncio.wrap_future(turns.submit("" if user is None else user.name, work))
        self._running.add(future)
        future.add_done_callback(self._running.discard)
        # An error that nobody waits for any more is no event of the loop's.
        future.add_done_callback(lambda done: done.cancelled() or done.exception())
        try:
            return await asyncio.shield(future)
        except SourceError as error:
            raise self._hide(error) from None

    def _hide(self, error: SourceError) -> SourceError:
        """Returns the error without the place of a source, which is for the log."""
        if isinstance(error, ChargeKept):
            return ChargeKept(_KEPT)
        self.note("error", "", kind="SourceError", text=str(error))
        return SourceError(_UNREADABLE)

    def note(self, event: str, person: str, **facts: object) -> None:
        """Adds to the audit log: who did what, when, and how it ended; never a value of a record."""
        self._log({"event": event, "person": person, **CALLER.get(), **facts})

    def metrics(self) -> dict[str, float]:
        """Returns counts of what happened since the start, and how much is going on."""
        return {**dict(sorted(self._counts.items())), "running": float(len(self._running))}

    async def is_ready(self) -> bool:
        """Returns whether people, ledger and every table can be read; where not, the log names what."""

        def look() -> None:
            self.state.find_user("")
            self.curator.budget()
            describe_tables(self.curator)

        try:
            await self.run(None, look)
        except SfumatoError as error:
            if not isinstance(error, SourceError):  # which is noted already
                self.note("error", "", kind=type(error).__name__, text=str(error))
            return False
        return True

    @property
    def is_closing(self) -> bool:
        """Whether it is stopping, so that nobody should wait for more."""
        return self._closing

    async def close(self) -> None:
        """Lets nothing new in, and waits for all that was begun."""
        self._closing = True
        while self._running:
            await asyncio.gather(*self._running, return_exceptions=True)
        await self._jobs.close()
        self._long.close()
        self._quick.close()

    # In workers

    def _buy(self, ask: _Question, *, started: float, progress: Callable[[str], None]) -> Reply:
        def pace() -> None:
            # In the worker, and before the answer is stored: nobody can see when the reading has ended, not
            # by asking the same meanwhile, nor by asking whether it is there. A reading after this one has a
            # grid of its own, or the waits of a statement with many would double and double.
            nonlocal started
            elapsed = time.monotonic() - started
            time.sleep(next_reply(elapsed, first=self.settings.reply_every) - elapsed)
            started = time.monotonic()

        user, limit, above = ask.user, ask.at_most, self.settings.approve_above
        if user.role == "steward":
            above = None
        # Taken before the purchase, so that two at once are not paid by one approval.
        approved = None if above is None else self.state.use_approval(user.name, ask.digest)
        spent = Fraction(0)
        try:
            if above is not None:
                if approved is None:
                    self._refuse_unapproved(ask, above)
                most = above if approved is None else max(above, Fraction(approved))
                limit = most if limit is None else min(limit, most)
            answer = self.curator.sql(
                ask.text,
                epsilon=ask.epsilon,
                parameters=ask.parameters,
                asked_by=user.name,
                at_most=limit,
                progress=progress,
                pace=pace,
                most_values=_MOST_VALUES,
                intervals=ask.intervals,
            )
            spent = answer.spent
        except ChargeKept:
            approved = None  # it has paid, though nobody saw the answer
            raise
        finally:
            if approved is not None and not spent:
                self.state.return_approval(user.name, ask.digest)
        left = self._left(user)
        return Reply(
            table=answer.table,
            spent=answer.spent,
            left=left,
            repeated=answer.repeated,
            public=answer.public or answer.explanation is not None,
            synthetic=answer.synthetic,
            scales=dict(answer.scales),
            notes=(*explain_cost(answer, left), *answer.notes),
        )

    def _refuse_unapproved(self, ask: _Question, above: Fraction) -> None:
        price = self._price(ask.text, ask.epsilon, ask.parameters).price
        if price is None or price.stored or price.epsilon <= above:
            return
        left = self._left(ask.user)
        if price.epsilon > left:
            raise BudgetExceeded(
                f"this costs epsilon {format_short(price.epsilon)}, and epsilon {format_short(left)} is left "
                "to you. Nothing was spent; ask for less, or ask a steward for a larger share",
                left=left,
            )
        number = self.state.ask_approval(
            ask.user.name,
            kind="statement",
            subject=ask.text,
            digest=ask.digest,
            epsilon=format_exact(price.epsilon),
        )
        raise ApprovalNeeded(
            f"this costs epsilon {format_short(price.epsilon)}, and more than {format_short(above)} needs a "
            f"steward's approval; it waits as number {number}, nothing was spent. Ask again once it is there",
            number=number,
        )

    def _price(self, text: str, epsilon: object, parameters: tuple[object, ...]) -> Answer:
        explained = text if text.lstrip().lower().startswith("explain") else f"EXPLAIN {text}"
        return self.curator.sql(explained, epsilon=epsilon, parameters=parameters, most_values=_MOST_VALUES)

    def _explain(
        self, user: User, text: str, epsilon: object, parameters: tuple[object, ...]
    ) -> dict[str, Any]:
        answer, left = self._price(text, epsilon, parameters), self._left(user)
        price = answer.price
        if price is None:
            return {
                "text": answer.explanation or "",
                "epsilon": "0",
                "free": True,
                "left": format_exact(left),
            }
        above = self.settings.approve_above
        waits = above is not None and user.role != "steward" and price.epsilon > above
        lines = [answer.explanation or ""]
        if not price.stored and self.curator.share(user.name) is not None:
            verdict = "fits" if price.epsilon <= left else "does NOT fit"
            lines.append(f"  share        epsilon {format_short(left)} left to you; this statement {verdict}")
        if not price.stored and waits:
            lines.append("  approval     a steward has to approve it first")
        return {
            "text": "\n".join(lines),
            "epsilon": format_exact(price.epsilon),
            "delta": format_exact(price.delta),
            "errors": dict(price.errors),
            "expected": {name: each.describe() for name, each in price.expected.items()},
            "notes": list(answer.notes),
            "groups": price.groups,
            "free": price.stored,
            "stored": price.stored,
            "admitted": price.stored or (price.admitted and price.epsilon <= left),
            "approval": waits,
            "left": format_exact(left),
        }

    def _left(self, user: User) -> Fraction:
        total, share = self.curator.budget(), self.curator.share(user.name)
        return min(Fraction(total.left), Fraction(total.left if share is None else share.left))

    def _budget(self, user: User) -> dict[str, Any]:
        def describe(report: BudgetReport) -> dict[str, Any]:
            return {"total": str(report.total), "spent": str(report.spent), "left": str(report.left)}

        total, share = self.curator.budget(), self.curator.share(user.name)
        own = None if share is None else describe(share)
        return {**describe(total), "delta": str(total.delta), "share": own}

    def _count_reply(self, user: User, reply: Reply | SfumatoError, seconds: float, digest: str) -> None:
        self._counts["asks"] += 1
        # How long a reply took, waiting for its time included; what a reading took shows nowhere.
        self._counts["ask_milliseconds"] += round(1000 * seconds)
        if isinstance(reply, Reply):
            outcome = "charged" if reply.spent else "stored" if reply.repeated else "free"
            facts: dict[str, object] = {"spent": format_short(reply.spent)}
        else:
            outcome, facts = "refused", {"kind": type(reply).__name__}
        self._counts[f"asks_{outcome}"] += 1
        self.note("ask", user.name, outcome=outcome, statement=digest, **facts)
