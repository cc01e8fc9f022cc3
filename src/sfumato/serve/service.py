"""Everything that a door may do, each call for one person: the one place where roles are enforced.

The wire, the pages, the API and agents call `Service` and nothing else of the project. It asks the curator in
threads of its own, so that a door never waits for records; it finishes what it began after a client has
left; and what it says after a charge leaves at times fixed beforehand (`clock`).
"""

from __future__ import annotations

import asyncio
import hashlib
import http.client
import json
import secrets
import time
import urllib.request
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import replace
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
from sfumato.core.exact import format_short
from sfumato.serve.clock import recent_times
from sfumato.serve.facts import describe_tables, list_audit_files, list_charges, list_users, make_catalog
from sfumato.serve.files import add_part, read_again
from sfumato.serve.jobs import Jobs
from sfumato.serve.oidc import NoRedirect, SignIn
from sfumato.serve.purchase import OF_DAY, AskedStatement, Conversation, Purchases, Reply
from sfumato.serve.state import Role, State, User, Verifier, add_user
from sfumato.serve.turns import Turns

if TYPE_CHECKING:
    import pyarrow as pa
    from markupsafe import Markup

    from sfumato.core.facts.project import Project
    from sfumato.curator import Curator
    from sfumato.serve.catalog import Catalog
    from sfumato.serve.settings import Settings
    from sfumato.sql.settle import Description

Done = TypeVar("Done")

CALLER: ContextVar[dict[str, str]] = ContextVar("caller", default={})  # noqa: B039 - never changed
"""The door and the address of whoever is being served, for the audit log."""

# What each role may do. Whoever is not named here for something may not do it.
_LOOK = {"releases", "ask a release", "look at dashboards"}
_ASK = {"tables", "describe", "explain", "ask", "budget", "history", "check", "release", "jobs"}
_ASK |= {"dashboards", "basket"}
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
_LOGINS_OF_ADDRESS = 60  # wrong passwords from one address in a minute, whatever the names
_REFUSALS = 60  # lines in the audit log that one address makes in a minute without being let in
_LINK_SECONDS = 600.0  # a link that is left in a terminal opens nothing later
_MOST_ANSWERED = 10_000  # statements that are known to be stored
_LONGEST_NAME = 64  # one more than a name may have


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
        self._abroad = Turns(4, each=2, name="sfumato-sign-in")  # a provider that is slow holds up nothing
        self._answered: dict[str, None] = {}
        self._running: set[asyncio.Future[Any]] = set()
        self._asked: dict[str, deque[float]] = {}
        self._failed: dict[str, deque[float]] = {}
        self._refused: dict[str, deque[float]] = {}
        self._counts: Counter[str] = Counter()
        self._links: dict[bytes, tuple[str, Verifier | None, float]] = {}  # they end with this process
        self.gauges: dict[str, float] = {}  # that others know, for metrics
        self.is_closing = False  # nobody should wait for more then
        self._catalog: Catalog | None = None
        self._describing = asyncio.Lock()
        self._jobs = Jobs(curator, state, folder=curator.project.folder / settings.releases)
        self._purchases = Purchases(curator, state, settings, self._jobs)
        self._sign_in = SignIn(settings.oidc, state, curator) if settings.oidc else None
        self.conversations: dict[str, Conversation] = {}
        self._told: set[int] = set()  # what the webhook was told of

    @property
    def project(self) -> Project:
        """The project file, as read."""
        return self.curator.project

    @property
    def catalog(self) -> Catalog:
        """What clients of the wire read of the project's tables."""
        if self._catalog is None:
            self._catalog = make_catalog(self.curator)
        return self._catalog

    # Who asks

    def may_log_in(self, name: str, *, origin: str) -> bool:
        """Returns whether `origin` sent few wrong passwords in the last minute, in all and for `name`."""
        of_name = recent_times(self._failed, f"{name[:_LONGEST_NAME]} {origin}")
        return len(of_name) < _LOGINS and len(recent_times(self._failed, origin)) < _LOGINS_OF_ADDRESS

    def note_login(self, name: str, *, origin: str, known: bool) -> None:
        """Records a login; one that failed counts against the name, from that address."""
        name = name[:_LONGEST_NAME]  # who has not logged in yet may send any
        self._counts["logins" if known else "logins_refused"] += 1
        if known:
            self.note("login", name, outcome="ok")
        else:
            for failed in (f"{name} {origin}", origin):
                recent_times(self._failed, failed).append(time.monotonic())
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
            raise TooManyRequests(
                "too many wrong passwords for this name or from your address; wait a minute"
            )
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

    async def begin_sign_in(self, onward: str, *, origin: str) -> tuple[str, str]:
        """Returns where somebody signs in who goes `onward` then, and what their browser keeps meanwhile."""
        return await self._ask_provider(origin, lambda sign_in: sign_in.begin(onward))

    async def finish_sign_in(self, kept: str, given: Mapping[str, str], *, origin: str) -> tuple[str, str]:
        """Returns the secret of the session of somebody who comes back, and where they were going."""
        name, session, onward = await self._ask_provider(origin, lambda each: each.finish(kept, given))
        self.note("sign in", name, outcome="ok")
        return session, onward

    async def _ask_provider(self, origin: str, work: Callable[[SignIn], Done]) -> Done:
        sign_in = self._sign_in
        if sign_in is None:
            raise AccessDenied("this server has accounts of its own alone")
        if not self.may_log_in("", origin=origin):
            raise TooManyRequests("too many sign-ins from your address failed; wait a minute")
        try:
            return await asyncio.wrap_future(self._abroad.submit(origin, lambda: work(sign_in)))
        except AccessDenied as error:
            self.note_login("", origin=origin, known=False)
            raise AccessDenied(f"{error}; sign in again, or ask who runs this server") from None

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
        ask = AskedStatement(user, text, epsilon, None, tuple(parameters), "")
        return await self.run(user, lambda: self._purchases.explain(ask))

    async def ask(
        self,
        user: User,
        text: str,
        *,
        epsilon: object = None,
        at_most: Fraction | None = None,
        parameters: Sequence[object] = (),
        intervals: bool = True,
        renews: bool = False,
    ) -> Reply:
        """Returns the answer to a statement, charged to the person who asks.

        `epsilon` is the price of a plain SELECT that reads records, `at_most` the most that may be charged,
        `parameters` are bound to $1, $2 and so on. Without `intervals` it has no columns for their ends. What
        `renews` an answer of a dashboard is free, or waits for a steward.
        """
        self.admit(user, "ask")
        digest = hashlib.sha256(json.dumps([text, str(epsilon), [str(p) for p in parameters]]).encode())
        name = digest.hexdigest()
        ask = AskedStatement(user, text, epsilon, at_most, tuple(parameters), name, intervals, renews)
        (reply,) = await self._ask(ask)
        if not reply.public and "within" not in text.lower():  # which may buy a better answer each time
            self._answered[ask.digest] = None
            if len(self._answered) > _MOST_ANSWERED:
                del self._answered[next(iter(self._answered))]
        return reply

    async def ask_together(
        self, user: User, texts: Sequence[str], *, epsilon: Fraction, at_most: Fraction | None = None
    ) -> list[Reply]:
        """Returns the answers to the questions of a basket, which are planned and bought together."""
        self.admit(user, "basket")
        return await self._ask(_put_together(user, texts, epsilon, at_most))

    async def explain_together(
        self, user: User, texts: Sequence[str], *, epsilon: Fraction
    ) -> dict[str, Any]:
        """Returns what the questions of a basket would err, together and one by one; spends nothing."""
        self.admit(user, "basket")
        ask = _put_together(user, texts, epsilon, None)
        return await self.run(user, lambda: self._purchases.explain_together(ask), long=True)

    async def _ask(self, ask: AskedStatement) -> list[Reply]:
        user, begun = ask.user, time.monotonic()
        stages: list[str] = []  # none until something is charged

        def work(*, stored: bool = False) -> list[Reply] | SfumatoError | None:
            limited = replace(ask, at_most=Fraction(0)) if stored else ask
            try:
                return self._purchases.buy(limited, progress=stages.append)
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
        if isinstance(reply, ApprovalNeeded):
            self._tell_webhook(reply.number)
        if isinstance(reply, SfumatoError):
            raise reply
        return reply

    async def budget(self, user: User) -> dict[str, Any]:
        """Returns what the project and the person may spend, spent and have left, as exact texts."""
        self.admit(user, "budget")
        return await self.run(user, lambda: self._purchases.describe_budget(user))

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

    async def audit_files(self, user: User) -> list[Path]:
        """Returns the files of the audit log, the oldest first."""
        self.admit(user, "ledger")
        return await self.run(user, lambda: list_audit_files(self.project.folder))

    # Releases

    async def check(self, user: User, recipe: str) -> dict[str, Any]:
        """Returns what a release of `recipe`, the text of its file, would ask, cost and err."""
        self.admit(user, "check")
        trusted = user.role == "steward"
        return (await self.run(user, lambda: self._jobs.check(recipe, files=trusted), long=True)).to_record()

    async def start_release(self, user: User, recipe: str, *, name: str) -> dict[str, Any]:
        """Begins the release `name`, and returns its job; what costs too much for one person alone waits."""
        self.admit(user, "release")
        trusted = user.role == "steward"

        def add() -> tuple[int, int | None]:
            check = self._jobs.check(recipe, files=trusted)
            if not check.admitted:
                raise BudgetExceeded(
                    "the budget has no room for this release; nothing was spent", left=check.left
                )
            price = self._jobs.price(check)
            most, above = self._purchases.find_left_today(user), self._purchases.find_unasked(user)
            if most is not None and (price is None or price > most):
                told = (
                    f"at most epsilon {format_short(most)} is left to you, beside what is at work: {OF_DAY}"
                )
                raise BudgetExceeded(f"{told}; nothing was spent", left=most)
            waits = above is not None and (price is None or price > above)
            number, asked = (
                self._jobs.add(user.name, name, recipe, status="approval" if waits else "waiting"),
                None,
            )
            if waits:
                asked = self.state.ask_approval(
                    user.name,
                    kind="release",
                    subject=recipe,
                    digest=f"job {number}",
                    epsilon="" if price is None else format_short(price),
                )
            return number, asked

        def add_alone() -> tuple[int, int | None]:
            with self._purchases.hold(user):
                return add()

        number, asked = await self.run(user, add_alone, long=True)
        self.note("release", user.name, job=number, outcome="begun" if asked is None else "waits")
        if asked is None:
            self._jobs.start(number)
        else:
            self._tell_webhook(asked)
        return await self.job(user, number)

    async def reload(self, person: str) -> None:
        """Reads the project file again, all but how the server listens; what was begun ends as it began."""
        try:
            fresh = await asyncio.to_thread(read_again, self.curator, self.settings)
        except (SfumatoError, OSError) as error:
            self.note("reload", person, outcome="refused", text=str(error))
            raise
        self.renew(*fresh)
        self.note("reload", person, outcome="ok")

    def renew(self, curator: Curator, settings: Settings, catalog: Catalog | None = None) -> None:
        """Serves another project with other settings."""
        self.curator, self.settings, self._catalog = curator, settings, catalog
        self._purchases.renew(curator, settings)
        self._jobs.renew(curator)
        self._sign_in = SignIn(settings.oidc, self.state, curator) if settings.oidc else None

    async def add_table(self, user: User, name: str, part: str) -> None:
        """Adds the `part` of the project file that describes the table `name`, and serves it at once."""
        self.admit(user, "draft")
        async with self._describing:
            undo = await asyncio.to_thread(add_part, self.curator.path, part)
            try:
                await self.reload(user.name)
            except (SfumatoError, OSError):
                await asyncio.to_thread(undo)
                raise
        self.note("add table", user.name, table=name)

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

    async def release_picture(self, user: User, name: str) -> list[tuple[str, Markup]]:
        """Returns the charts of a release, each with what it shows."""
        self.admit(user, "releases")
        return await self.run(user, lambda: self._jobs.picture(name), long=True)

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

    async def set_limits(self, user: User, name: str, limits: Mapping[str, Fraction | None]) -> None:
        """Sets the limits of a person that are given: the price of plain SELECTs, what a day may cost."""
        self.admit(user, "users")
        await self.run(user, lambda: self.state.set_limits(name, limits))
        after = {key: None if each is None else str(each) for key, each in limits.items()}
        self.note("limits", user.name, about=name, after=after)

    async def approvals(self, user: User) -> list[dict[str, Any]]:
        """Returns what waits for a steward and what was decided, the newest first; others see their own."""
        self.admit(user, "history")
        found = await self.run(user, self.state.approvals)
        return [each for each in found if user.role == "steward" or each["person"] == user.name]

    async def count_notices(self, user: User) -> int:
        """Returns how much waits for a steward; for others, how much was approved and can be bought now."""
        steward = user.role == "steward"
        query = f"SELECT count(*) FROM approvals WHERE status = ? AND person {'<>' if steward else '='} ?"
        status = "waiting" if steward else "approved"
        found = await self.run(
            user,
            lambda: self.state.run(f"{query} AND kind <> ?", status, user.name, "" if steward else "release"),
        )
        return int(found[0][0])

    def _tell_webhook(self, number: int) -> None:
        """Tells the webhook, once, that a request waits: neither what, nor whose, nor how much."""
        address = self.settings.webhook
        if address is None or number in self._told:
            return
        self._told.add(number)

        def post() -> None:
            told = {"text": f"sfumato: request {number} waits for a steward's approval", "number": number}
            sent = urllib.request.Request(
                address, json.dumps(told).encode(), {"Content-Type": "application/json"}
            )
            try:
                with urllib.request.build_opener(NoRedirect).open(sent, timeout=10):
                    self.note("webhook", "", number=number, outcome="ok")
            except (OSError, http.client.HTTPException, ValueError) as error:
                self.note("webhook", "", number=number, outcome="failed", kind=type(error).__name__)

        self._abroad.submit("webhook", post)

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
        if self.is_closing:
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

    async def metrics(self) -> tuple[dict[str, float], dict[str, float]]:
        """Returns counts of what happened since the start; and what is going on, waits, and is left."""

        def look() -> dict[str, float]:
            report, open_ = self.curator.budget(), ("waiting", "running", "approval")
            jobs = [each["status"] for each in self.state.jobs() if each["status"] in open_]
            waiting = [each for each in self.state.approvals() if each["status"] == "waiting"]
            return {
                "budget_epsilon": float(report.total),
                "budget_epsilon_spent": float(report.spent),
                "budget_epsilon_left": float(report.left),
                "charges": float(report.charged),
                "jobs_open": float(len(jobs)),
                "approvals_waiting": float(len(waiting)),
            }

        going = self.gauges | {"running": float(len(self._running)), "queued": float(self._long.waiting)}
        return dict(self._counts), going | await self.run(None, look)

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

    async def close(self) -> None:
        """Lets nothing new in, and waits for all that was begun."""
        self.is_closing = True
        while self._running:
            await asyncio.gather(*self._running, return_exceptions=True)
        await self._jobs.close()
        self._long.close()
        self._quick.close()
        self._abroad.close()

    def _count_reply(
        self, user: User, replies: list[Reply] | SfumatoError, seconds: float, digest: str
    ) -> None:
        self._counts["asks"] += 1
        # How long a reply took, waiting for its time included; what a reading took shows nowhere.
        self._counts["ask_milliseconds"] += round(1000 * seconds)
        if isinstance(replies, SfumatoError):
            outcome, facts = "refused", {"kind": type(replies).__name__}
        else:
            spent = sum((each.spent for each in replies), Fraction(0))
            outcome = "charged" if spent else "stored" if replies[0].repeated else "free"
            facts = {"spent": format_short(spent)}
        self._counts[f"asks_{outcome}"] += 1
        self.note("ask", user.name, outcome=outcome, statement=digest, **facts)


def _put_together(
    user: User, texts: Sequence[str], epsilon: Fraction, at_most: Fraction | None
) -> AskedStatement:
    name = hashlib.sha256(json.dumps([list(texts), str(epsilon)]).encode()).hexdigest()
    return AskedStatement(user, ";\n".join(texts), epsilon, at_most, (), name, together=tuple(texts))
