"""What a server remembers beside the ledger: people, how they prove who they are, approvals and jobs.

One SQLite file, `serve.db`, in the project's folder, for all servers of the project on this machine; where
the ledger is in PostgreSQL, a schema beside its own, for all servers anywhere. It holds no record and no
secret in the clear: passwords as SCRAM verifiers, tokens and sessions as digests. What people may spend is
not here but in the ledger's chain.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
import secrets
import sqlite3
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass
from fractions import Fraction
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, get_args

from sfumato.core.errors import AccessDenied, LedgerError, RecipeError
from sfumato.core.exact import parse_positive
from sfumato.core.ledger.store import locate_ledger

if TYPE_CHECKING:
    from sfumato.core.facts.project import Project
    from sfumato.curator import Curator

Role = Literal["steward", "analyst", "viewer"]

STATE_FILE = "serve.db"

ITERATIONS = 4096  # as PostgreSQL has it: each client computes as many at every login
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.@-]{0,62}")
_SESSION_SECONDS = 12 * 3600  # a working day
_OF_TOKEN = "token"  # marks the verifier of a password that is the person's token
_LAYOUT = files("sfumato.serve").joinpath("state.sql").read_text("utf-8")
LIMITS = ("epsilon", "session_budget", "daily")
_VERSION = 3
_COLUMNS = {  # by name, since columns that came later stand last in older files
    "facts": "name, value",
    "people": f"name, role, verifier, token, added_at, {', '.join(LIMITS)}, subject, given, ends_at",
    "sessions": "digest, person, csrf, ends_at",
    "approvals": "number, person, kind, subject, digest, epsilon, status, decided_by, asked_at",
    "jobs": "number, person, name, recipe, status, stages, message, asked_at, server, claim_ends",
    "dashboards": "number, person, shared, title, items",
    "claims": "name, person, asked, asked_at",
}
_UPGRADES = {  # from the version before
    2: tuple(f"ALTER TABLE people ADD COLUMN {name} TEXT" for name in ("epsilon", "session_budget", "daily")),
    3: tuple(
        f"ALTER TABLE people ADD COLUMN {name}" for name in ("subject TEXT", "given TEXT", "ends_at REAL")
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class User:
    """Somebody who may ask: a name, what they may do, and limits that a steward has set.

    `epsilon` is the price of their plain SELECTs unless their connection has another, `session_budget` the
    most that one of their connections may spend, and `daily` the most that they may spend in 24 hours.
    """

    name: str
    role: Role
    epsilon: Fraction | None = None
    session_budget: Fraction | None = None
    daily: Fraction | None = None


_KNOWN = f"name, role, {', '.join(LIMITS)}"
_NOW = "coalesce(ends_at, 1e99) > ?"  # who signs in elsewhere is known here for a time


@dataclass(frozen=True, slots=True, kw_only=True)
class Verifier:
    """What proves a password without being one (RFC 5802, SHA-256)."""

    salt: bytes
    iterations: int
    stored_key: bytes
    server_key: bytes

    def fits(self, password: str) -> bool:
        """Returns whether `password` is the one that this was made from."""
        other = make_verifier(password, salt=self.salt, iterations=self.iterations)
        return hmac.compare_digest(other.stored_key, self.stored_key)


def make_verifier(password: str, *, salt: bytes | None = None, iterations: int = ITERATIONS) -> Verifier:
    """Returns the verifier of `password`, with a new salt unless one is given.

    >>> make_verifier("secret").fits("secret"), make_verifier("secret").fits("Secret")
    (True, False)
    """
    salt = secrets.token_bytes(16) if salt is None else salt
    salted = hashlib.pbkdf2_hmac("sha256", password.encode(), salt, iterations)
    client_key = hmac.digest(salted, b"Client Key", "sha256")
    return Verifier(
        salt=salt,
        iterations=iterations,
        stored_key=hashlib.sha256(client_key).digest(),
        server_key=hmac.digest(salted, b"Server Key", "sha256"),
    )


class Tables(Protocol):
    """Where people, approvals and jobs are kept."""

    def transact(self, *, write: bool) -> AbstractContextManager[Callable[..., list[Any]]]:
        """Yields what runs the statements of one transaction; those that write take turns."""

    def now(self) -> float:
        """The time of the clock that all servers of these tables share, in seconds."""


class FileTables:
    """The file `serve.db`; a version that is older is brought up to this one."""

    def __init__(self, path: Path) -> None:
        self._path = path
        with self.transact(write=True) as run:
            ((version,),) = run("PRAGMA user_version")
            version = (
                max(version, 1) if run("SELECT 1 FROM sqlite_master WHERE name = 'people'") else _VERSION
            )
            if version > _VERSION:
                raise LedgerError(f"{path.name!r} is of a newer version of sfumato; install that one")
            upgrades = (each for step in range(version + 1, _VERSION + 1) for each in _UPGRADES[step])
            for statement in (*upgrades, *_LAYOUT.split(";"), f"PRAGMA user_version = {_VERSION}"):
                run(statement)
        path.chmod(0o600)

    @contextmanager
    def transact(self, *, write: bool) -> Iterator[Callable[..., list[Any]]]:
        """Yields what runs the statements of one transaction; those that write take turns."""
        try:
            with closing(sqlite3.connect(self._path, timeout=30, isolation_level=None)) as connection:
                connection.execute("PRAGMA journal_mode = WAL")
                connection.execute("BEGIN IMMEDIATE" if write else "BEGIN")
                yield lambda statement, *values: connection.execute(statement, values).fetchall()
                connection.execute("COMMIT")
        except sqlite3.Error as error:
            name = getattr(error, "sqlite_errorname", type(error).__name__)
            raise LedgerError(
                f"{self._path.name!r} cannot be used ({name}); check its folder, or restore it"
            ) from None

    def now(self) -> float:
        """The time on this machine, in seconds."""
        return time.time()


def open_state(project: Project) -> State:
    """Returns what the servers of a project remember: beside its ledger if that is in a database."""
    file, place = project.folder / STATE_FILE, locate_ledger(project.ledger, folder=project.folder)
    if isinstance(place, Path):
        return State(FileTables(file))
    from sfumato.servers.ledger import PostgresTables

    beside = PostgresTables(place, layout=_LAYOUT, version=_VERSION)
    # Who moves the ledger to a database, or had people in a file beside one, keeps them.
    return State(beside, before=FileTables(file) if file.exists() else None)


class State:
    """People, sessions, approvals and jobs, safe among threads and servers."""

    def __init__(self, tables: Tables, *, before: Tables | None = None) -> None:
        self._tables = tables
        with tables.transact(write=True) as run:
            if not run("SELECT 1 FROM facts"):
                if before is not None:
                    _copy(before, run)
                fresh = secrets.token_bytes(32)
                run("INSERT INTO facts VALUES ('secret', ?) ON CONFLICT DO NOTHING", fresh)
            ((self._secret,),) = run("SELECT value FROM facts WHERE name = 'secret'")

    def add_user(
        self, name: str, role: Role, *, password: str | None = None, subject: str | None = None
    ) -> str:
        """Adds a person, and returns their token; without a `password` the token is also that.

        `subject` is what a provider calls somebody who signs in there; until `renew_person` they are not in.
        """
        if not _NAME.fullmatch(name):
            raise AccessDenied(
                "a name begins with a letter and has letters, digits and _ . @ - only, 63 at most"
            )
        if role not in get_args(Role):
            raise AccessDenied(f"a role is one of {', '.join(get_args(Role))}")
        if password is not None and len(password) < 8:
            raise AccessDenied("a password has at least 8 characters")
        token = f"sf_{secrets.token_urlsafe(32)}"
        verifier = _pack(make_verifier(password or token), of_token=not password)
        facts = (name, role, verifier, _digest(token), time.time(), subject, None if subject is None else 0)
        if not self.run(
            "INSERT INTO people (name, role, verifier, token, added_at, subject, ends_at)"
            " VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING RETURNING name",
            *facts,
        ):
            taken = "remove it first" if subject is None else "ask a steward"
            raise AccessDenied(f"there is a user {name!r} already; {taken}") from None
        return token

    def remove_user(self, name: str) -> None:
        """Forgets a person, their token and their sessions."""
        with self._change() as run:
            if not run("DELETE FROM people WHERE name = ? RETURNING name", name):
                raise AccessDenied(f"there is no user {name!r}")
            run("DELETE FROM sessions WHERE person = ?", name)
            run("DELETE FROM dashboards WHERE person = ? AND shared IN ('', 'basket')", name)

    def find_subject(self, subject: str) -> tuple[str, str] | None:
        """Returns the name of whom a provider calls `subject`, and what their groups gave them last."""
        found = self.run("SELECT name, coalesce(given, '') FROM people WHERE subject = ?", subject)
        return found[0] if found else None

    def renew_person(self, name: str, role: str, *, given: str, seconds: float) -> None:
        """Lets somebody who signed in at a provider in, as `role`, for so many seconds."""
        query = "UPDATE people SET role = ?, given = ?, ends_at = ? WHERE name = ? AND subject IS NOT NULL"
        self.run(query, role, given, time.time() + seconds, name)

    def end_person(self, name: str) -> None:
        """Takes role, sessions, token and password from somebody until they sign in elsewhere again."""
        with self._change() as run:
            query = "UPDATE people SET role = 'viewer', given = NULL, ends_at = 0, token = NULL, verifier = ?"
            unknown = _pack(make_verifier(secrets.token_urlsafe(32)), of_token=True)
            run(f"{query} WHERE name = ? AND subject IS NOT NULL", unknown, name)
            run("DELETE FROM sessions WHERE person = ?", name)

    def keep_people(self, names: Collection[str]) -> list[str]:
        """Ends everybody who signs in at a provider and is not one of `names`, and returns them."""
        known = self.run("SELECT name FROM people WHERE subject IS NOT NULL AND ends_at > 0 ORDER BY 1")
        gone = [name for (name,) in known if name not in names]
        for name in gone:
            self.end_person(name)
        return gone

    def new_token(self, name: str) -> str:
        """Makes a token in place of the person's; as a password, too, if that was the token."""
        token = f"sf_{secrets.token_urlsafe(32)}"
        verifier = _pack(make_verifier(token), of_token=True)
        with self._change() as run:
            if not run("UPDATE people SET token = ? WHERE name = ? RETURNING name", _digest(token), name):
                raise AccessDenied(f"there is no user {name!r}")
            marked = "UPDATE people SET verifier = ? WHERE name = ? AND verifier LIKE ?"
            run(marked, verifier, name, f"%:{_OF_TOKEN}")
            run("DELETE FROM sessions WHERE person = ?", name)  # who held the old one may have opened them
        return token

    def set_limits(self, name: str, limits: Mapping[str, Fraction | None]) -> None:
        """Changes the `limits` of a person that are given; None takes one away."""
        for key in LIMITS:
            if key in limits and not self.run(
                f"UPDATE people SET {key} = ? WHERE name = ? RETURNING name",
                *(None if limits[key] is None else str(limits[key]), name),
            ):
                raise AccessDenied(f"there is no user {name!r}")

    def users(self) -> list[User]:
        """Everybody, in the order of their names."""
        return [_read_user(row) for row in self.run(f"SELECT {_KNOWN} FROM people ORDER BY 1")]

    def find_user(self, name: str, *, proven: Verifier | None = None) -> User | None:
        """Gives the person called `name`; if `proven` is given, only while it still proves their password."""
        for *row, verifier in self.run(
            f"SELECT {_KNOWN}, verifier FROM people WHERE name = ? AND {_NOW}", name, time.time()
        ):
            if proven in (None, _unpack(verifier)):
                return _read_user(row)
        return None

    def find_token(self, token: str) -> User | None:
        """Returns whose token it is."""
        found = self.run(
            f"SELECT {_KNOWN} FROM people WHERE token = ? AND {_NOW}", _digest(token), time.time()
        )
        return _read_user(found[0]) if found else None

    def find_verifier(self, name: str) -> Verifier:
        """Returns what proves a person's password; for an unknown name one that nothing fits."""
        if found := self.run(f"SELECT verifier FROM people WHERE name = ? AND {_NOW}", name, time.time()):
            return _unpack(found[0][0])

        def invent(what: str) -> bytes:
            return hmac.digest(self._secret, f"{what} {name}".encode(), "sha256")

        salt = invent("salt")[:16]
        return Verifier(
            salt=salt, iterations=ITERATIONS, stored_key=invent("stored"), server_key=invent("server")
        )

    def open_session(self, name: str, *, seconds: float = _SESSION_SECONDS) -> str:
        """Opens a session of a browser, which ends after half a day or `seconds`, and returns its secret."""
        secret, now = secrets.token_urlsafe(32), time.time()
        self.run("DELETE FROM sessions WHERE ends_at < ?", now)
        row = (_digest(secret), name, secrets.token_urlsafe(24), now + seconds)
        self.run("INSERT INTO sessions VALUES (?, ?, ?, ?)", *row)
        return secret

    def find_session(self, secret: str) -> tuple[User, str] | None:
        """Returns whose session it is, and what its forms must carry against requests from other sites."""
        query = "SELECT person, csrf FROM sessions WHERE digest = ? AND ends_at > ?"
        for person, csrf in self.run(query, _digest(secret), time.time()):
            user = self.find_user(person)
            return None if user is None else (user, csrf)
        return None

    def close_session(self, secret: str) -> None:
        """Ends a session."""
        self.run("DELETE FROM sessions WHERE digest = ?", _digest(secret))

    def sign(self, text: str) -> str:
        """Returns `text` with what proves to all servers of the project that one of them wrote it."""
        return f"{text}.{hmac.digest(self._secret, f'signed {text}'.encode(), 'sha256').hex()}"

    def read_signed(self, signed: str) -> str | None:
        """Returns the text that `sign` was given; None if somebody else wrote it."""
        text = signed.rpartition(".")[0]
        return text if hmac.compare_digest(self.sign(text).encode(), signed.encode()) else None

    def use_once(self, secret: str, *, seconds: float) -> bool:
        """Returns whether nobody used `secret` before, by any server, in the last `seconds`."""
        # As a session of nobody.
        query = "INSERT INTO sessions VALUES (?, '', '', ?) ON CONFLICT DO NOTHING RETURNING person"
        return bool(self.run(query, _digest(secret), time.time() + seconds))

    def ask_approval(self, person: str, *, kind: str, subject: str, digest: str, epsilon: str) -> int:
        """Returns the number of the request for what `digest` names; the same while it waits."""
        with self._change() as run:
            waiting = "SELECT number FROM approvals WHERE person = ? AND digest = ? AND status = 'waiting'"
            found = run(waiting, person, digest) or run(
                f"INSERT INTO approvals VALUES ({_next('approvals')}, ?, ?, ?, ?, ?, 'waiting', NULL, ?)"
                " RETURNING number",
                *(person, kind, subject, digest, epsilon, time.time()),
            )
            return int(found[0][0])

    def use_approval(self, person: str, digest: str) -> str | None:
        """Returns the epsilon up to which a steward approved it, once: an approval pays for one purchase."""
        query = (
            "UPDATE approvals SET status = 'used' WHERE number = (SELECT min(number) FROM approvals WHERE"
            " person = ? AND digest = ? AND status = 'approved') RETURNING epsilon"
        )
        found = self.run(query, person, digest)
        return str(found[0][0]) if found else None

    def return_approval(self, person: str, digest: str) -> None:
        """Gives an approval back that nothing was bought under."""
        query = (
            "UPDATE approvals SET status = 'approved' WHERE number = (SELECT max(number) FROM approvals WHERE"
            " person = ? AND digest = ? AND status = 'used')"
        )
        self.run(query, person, digest)

    def decide(self, number: int, *, approve: bool, decided_by: str) -> dict[str, Any]:
        """Approves or refuses a request, and returns it."""
        names = ("number", "person", "kind", "subject", "digest", "epsilon", "status")
        found = self.run(
            "UPDATE approvals SET status = ?, decided_by = ? WHERE number = ? AND status = 'waiting'"
            f" AND person <> ? RETURNING {', '.join(names)}",
            # Nobody approves what they asked for.
            *("approved" if approve else "refused", decided_by, number, decided_by if approve else ""),
        )
        if not found:
            raise AccessDenied(f"no request {number} waits for your decision")
        return dict(zip(names, found[0], strict=True))

    def approvals(self) -> list[dict[str, Any]]:
        """Returns all requests, the newest first."""
        names = ("number", "person", "kind", "subject", "epsilon", "status", "decided_by", "asked_at")
        return self._records("approvals", names, "ORDER BY number DESC")

    def add_job(self, person: str, *, name: str, recipe: str, status: str) -> int:
        """Adds a job that will publish `name`, and returns its number."""
        query = f"INSERT INTO jobs VALUES ({_next('jobs')}, ?, ?, ?, ?, '[]', NULL, ?, '', 0)"
        query += " ON CONFLICT (name) DO NOTHING RETURNING number"
        found = self.run(query, person, name, recipe, status, time.time())
        if not found:
            raise AccessDenied(f"there is a release {name!r} already; choose another name")
        return int(found[0][0])

    def claim_job(self, number: int, server: str, *, seconds: float) -> tuple[str, str, str] | None:
        """Returns who asked for a job, its name and its recipe; None if it is done or is another server's.

        A server that stops renewing what it claimed loses it after so many seconds.
        """
        query = (
            "UPDATE jobs SET server = ?, claim_ends = ?, status = 'waiting', stages = '[]' WHERE number = ?"
            " AND claim_ends < ? AND status IN ('waiting', 'running', 'approval')"
            " RETURNING person, name, recipe"
        )
        now = self._tables.now()
        found = self.run(query, server, now + seconds, number, now)
        return found[0] if found else None

    def renew_claims(self, numbers: Sequence[int], server: str, *, seconds: float) -> None:
        """Keeps jobs that `server` has claimed for as long again; for 0 seconds leaves them to others."""
        ends = self._tables.now() + seconds if seconds else 0
        for number in numbers:
            self.run("UPDATE jobs SET claim_ends = ? WHERE number = ? AND server = ?", ends, number, server)

    def update_job(
        self,
        number: int,
        *,
        status: str,
        stages: list[str],
        message: str | None = None,
        server: str | None = None,
    ) -> None:
        """Keeps how far a job is, if it is still that of `server`; one that failed frees its name."""
        self.run(
            "UPDATE jobs SET status = ?, stages = ?, message = ?,"
            " name = CASE ? WHEN 'failed' THEN name || ' #' || number ELSE name END"
            " WHERE number = ? AND server = coalesce(?, server)",
            *(status, json.dumps(stages), message, status, number, server),
        )

    def jobs(self) -> list[dict[str, Any]]:
        """Returns all jobs, the newest first."""
        names = ("number", "person", "name", "recipe", "status", "stages", "message", "asked_at")
        found = self._records("jobs", names, "ORDER BY number DESC")
        return [job | {"stages": json.loads(job["stages"])} for job in found]

    def _records(self, table: str, names: tuple[str, ...], rest: str) -> list[dict[str, Any]]:
        rows = self.run(f"SELECT {', '.join(names)} FROM {table} {rest}")
        return [dict(zip(names, row, strict=True)) for row in rows]

    def run(self, query: str, *values: object) -> list[Any]:
        """Returns the rows of one statement, which is a transaction of its own."""
        with self._tables.transact(write=not query.startswith("SELECT")) as run:
            return run(query, *values)

    def _change(self) -> AbstractContextManager[Callable[..., list[Any]]]:
        return self._tables.transact(write=True)


def add_user(
    state: State, curator: Curator, name: str, role: str, share: object, password: str | None
) -> str:
    """Adds a person, with their share entered in the ledger, and returns their token.

    `state` and `curator` are the server's; `share` is the most epsilon that the person may spend, which an
    analyst needs; without a `password` the token is also that.
    """
    if role == "analyst" and share is None:
        raise RecipeError("an analyst needs a share of the budget: the most epsilon that they may spend")
    if role == "viewer" and share is not None:
        raise RecipeError("a viewer asks nothing that costs; leave the share away")
    if share is not None:
        parse_positive(share, name="share")
    token = state.add_user(name, role, password=password)  # type: ignore[arg-type]  # it checks the role
    try:
        curator.set_share(name, share)
    except LedgerError:
        state.remove_user(name)
        raise
    return token


def _read_user(row: Sequence[Any]) -> User:
    name, role, *limits = row
    amounts = {
        key: None if each is None else Fraction(each) for key, each in zip(LIMITS, limits, strict=True)
    }
    return User(name=name, role=role, **amounts)


def _copy(before: Tables, run: Callable[..., list[Any]]) -> None:
    with before.transact(write=False) as read:
        for table, columns in _COLUMNS.items():
            for row in read(f"SELECT {columns} FROM {table}"):
                run(f"INSERT INTO {table} ({columns}) VALUES ({', '.join('?' * len(row))})", *row)


def _next(table: str) -> str:
    """Returns the next number of a table as SQL; who writes does it alone."""
    return f"(SELECT coalesce(max(number), 0) + 1 FROM {table})"


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode()).digest()


def _pack(verifier: Verifier, *, of_token: bool = False) -> str:
    parts = (verifier.salt, verifier.stored_key, verifier.server_key)
    mark = f":{_OF_TOKEN}" if of_token else ""
    return f"{verifier.iterations}:{':'.join(part.hex() for part in parts)}{mark}"


def _unpack(text: str) -> Verifier:
    iterations, *parts = text.removesuffix(f":{_OF_TOKEN}").split(":")
    salt, stored_key, server_key = map(bytes.fromhex, parts)
    return Verifier(salt=salt, iterations=int(iterations), stored_key=stored_key, server_key=server_key)
