"""One client after its login: simple and extended queries, transactions, cursors and COPY.

Questions go to the service, or to the catalog if they are about system tables; the session itself only keeps
what PostgreSQL's protocol wants kept. Nothing is asked before Execute: Describe is free.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Literal

from sfumato.core.exact import format_exact
from sfumato.serve.catalog.tables import Column
from sfumato.serve.wire.answers import Rows, explain_failure, move_cursor
from sfumato.serve.wire.asking import Asker, Shape
from sfumato.serve.wire.commands import (
    Command,
    CopyForm,
    count_parameters,
    read_command,
    split_statements,
)
from sfumato.serve.wire.messages import (
    Body,
    Refusal,
    Stream,
    cstring,
    data_row,
    error_response,
    message,
    notice_response,
    parameter_status,
    row_description,
)
from sfumato.serve.wire.session_settings import SessionSettings
from sfumato.serve.wire.values import TEXT, UNKNOWN, decode_value, encode

_BLOCK = 500  # rows taken at a time
_COPY_HEAD = b"PGCOPY\n\xff\r\n\0" + bytes(8)  # its signature, no flags, no extension
_ENDINGS = ("commit", "rollback", "rollback to")


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Bounds on what a client may take: connections, bytes, seconds and kept things."""

    connections: int = 1000
    message_bytes: int = 2**20
    login_seconds: float = 30.0
    idle_seconds: float = 3600.0
    write_seconds: float = 60.0
    pause_seconds: float = 1.0
    statements: int = 500
    statement_characters: int = 2**21
    portals: int = 100


@dataclass(slots=True)
class _Prepared:
    text: str
    command: Command
    given: tuple[int, ...] = ()
    shape: Shape | None = None
    intervals: bool = True  # as in the shape that the client was told
    count: int = field(init=False)

    def __post_init__(self) -> None:
        self.count = count_parameters(self.text)

    @property
    def query(self) -> str:
        return self.command.query


@dataclass(slots=True)
class _Portal:
    prepared: _Prepared
    parameters: tuple[object, ...] = ()
    formats: tuple[int, ...] = ()
    holds: bool = False
    rows: Rows | None = None
    place: int = 0


class Session:
    """The state of one connection after its login.

    `asker` asks the service and the catalog for this client, `settings` are those that it began with,
    `limits` bound what it may take.
    """

    def __init__(self, stream: Stream, *, asker: Asker, settings: SessionSettings, limits: Limits) -> None:
        self.asker = asker
        self.reading = False
        self.stopping = False
        self._stream = stream
        self._settings = settings
        self._limits = limits
        self._status: Literal["I", "T", "E"] = "I"
        self._skipping = False
        self._savepoints: list[str] = []
        self._spent_before = Fraction(0)
        self._prepared: dict[str, _Prepared] = {}
        self._portals: dict[str, _Portal] = {}

    async def run(self) -> None:
        """Answers messages until the client leaves."""
        self._ready()
        await self._stream.flush()
        handlers: dict[bytes, Callable[[Body], Awaitable[None]]] = {
            b"Q": self._query,
            b"P": self._parse,
            b"B": self._bind,
            b"D": self._describe,
            b"E": self._execute,
            b"C": self._close,
            b"H": self._flush,
            b"F": self._call,
        }
        while not self.stopping:
            kind, body = await self._read()
            if kind == b"X":
                return
            if kind == b"S":
                self._end_implicit()
                self._skipping = False
                self._ready()
                await self._stream.flush()
            elif kind in b"dcf" or (self._skipping and kind in handlers):
                continue  # what a client sends after an error, until it knows of it
            elif kind not in handlers:
                raise Refusal("08P01", "a message of this kind is not known here", fatal=True)
            else:
                await self._guard(handlers[kind](Body(body)), simple=kind in b"QF")

        raise Refusal("57P01", "the server is stopping", fatal=True)

    async def _read(self) -> tuple[bytes, bytes]:
        self.reading = True
        try:
            async with asyncio.timeout(self._limits.idle_seconds):
                return await self._stream.read_message(most=self._limits.message_bytes)
        except TimeoutError:
            raise Refusal("57P05", "the connection was idle for too long", fatal=True) from None
        finally:
            self.reading = False

    async def _guard(self, work: Awaitable[None], *, simple: bool) -> None:
        try:
            await work
        except ConnectionError:
            raise
        except Exception as error:
            refusal = explain_failure(error)
            if refusal.fatal:
                raise refusal from None
            self._stream.send(error_response(refusal))
            self._status = "E" if self._status == "T" else self._status
            self._skipping = not simple
        if simple:
            self._end_implicit()
            self._ready()
            await self._stream.flush()
        elif self._skipping or self._stream.is_full:  # errors are not kept for a Flush, which is skipped
            await self._stream.flush()

    def _ready(self) -> None:
        for name, value in self._settings.news():
            self._stream.send(parameter_status(name, value))
        self._stream.send(message(b"Z", self._status.encode()))

    def _end_implicit(self) -> None:
        if self._status == "I":
            self._portals = {name: portal for name, portal in self._portals.items() if portal.holds}

    # The messages.

    async def _query(self, body: Body) -> None:
        text = body.text()
        body.end()
        statements = split_statements(text)
        if not statements:
            self._stream.send(message(b"I"))
        for statement in statements:
            prepared = _Prepared(statement, read_command(statement))
            if prepared.count:
                raise Refusal("42P02", "there is no parameter $1")
            portal = _Portal(prepared)
            await self._run(portal, most=0, describes=True)

    async def _parse(self, body: Body) -> None:
        name, text = body.text(), body.text()
        given = tuple(body.int32() & 0xFFFFFFFF for _ in range(body.int16()))
        body.end()
        statements = split_statements(text)
        if len(statements) > 1:
            raise Refusal("42601", "a prepared statement is one statement")
        if name and name in self._prepared:
            raise Refusal("42P05", f"there is a prepared statement {name[:63]!r} already")
        self._prepared.pop(name, None)
        kept = sum(len(prepared.text) for prepared in self._prepared.values()) + len(text)
        if len(self._prepared) >= self._limits.statements or kept > self._limits.statement_characters:
            raise Refusal("54000", "too many prepared statements; close some of them")
        statement = statements[0] if statements else ""
        self._prepared[name] = _Prepared(statement, read_command(statement), given)
        self._stream.send(message(b"1"))

    async def _bind(self, body: Body) -> None:
        name, prepared = body.text(), self._find_prepared(body.text())
        forms = [body.int16() for _ in range(body.int16())]
        values = body.lengths()
        formats = tuple(body.int16() for _ in range(body.int16()))
        body.end()
        if name and name in self._portals:
            raise Refusal("42P03", f"there is a cursor {name[:63]!r} already")
        self._portals.pop(name, None)
        count = prepared.count
        if len(values) < count or not {*forms, *formats} <= {0, 1} or len(forms) not in (0, 1, len(values)):
            raise Refusal("08P01", f"the statement needs {count} parameters, each text or binary")
        forms = forms * len(values) if len(forms) == 1 else forms or [0] * len(values)
        oids = await self._find_types(prepared, len(values))
        parameters: list[object] = []
        for number, (value, oid, form) in enumerate(zip(values, oids, forms, strict=True), start=1):
            try:
                parameters.append(decode_value(value, oid, form))
            except ValueError:
                raise Refusal("22P02", f"the parameter ${number} is not a value of its type") from None
        self._keep_portal(name, _Portal(prepared, tuple(parameters), formats))
        self._stream.send(message(b"2"))

    async def _describe(self, body: Body) -> None:
        kind, name = body.take(1), body.text()
        body.end()
        if kind == b"S":
            prepared = self._find_prepared(name)
            columns, oids = await self._find_shape(prepared, anew=True)
            oids = _merge(prepared.given, oids, max(len(prepared.given), len(oids)))
            self._stream.send(message(b"t", struct.pack(f"!H{len(oids)}I", len(oids), *oids)))
            formats: tuple[int, ...] = ()
        elif kind == b"P":
            portal = self._find_portal(name)
            columns, _ = await self._find_shape(portal.prepared, anew=portal.rows is None)
            formats = portal.formats
        else:
            raise Refusal("08P01", "only statements and portals are described")
        if columns is None:
            self._stream.send(message(b"n"))
        else:
            self._stream.send(row_description(columns, _spread(formats, len(columns))))

    async def _execute(self, body: Body) -> None:
        portal, most = self._find_portal(body.text()), body.int32()
        body.end()
        await self._run(portal, most=max(most, 0), describes=False)

    async def _close(self, body: Body) -> None:
        kind, name = body.take(1), body.text()
        body.end()
        if kind not in b"SP":
            raise Refusal("08P01", "only statements and portals are closed")
        (self._prepared if kind == b"S" else self._portals).pop(name, None)
        self._stream.send(message(b"3"))

    async def _flush(self, body: Body) -> None:
        body.end()
        await self._stream.flush()

    async def _call(self, body: Body) -> None:
        raise Refusal("0A000", "functions are called in a SELECT")

    # What they name.

    def _find_prepared(self, name: str) -> _Prepared:
        try:
            return self._prepared[name]
        except KeyError:
            raise Refusal("26000", f"there is no prepared statement {name[:63]!r}") from None

    def _find_portal(self, name: str) -> _Portal:
        try:
            return self._portals[name]
        except KeyError:
            raise Refusal("34000", f"there is no cursor {name[:63]!r}") from None

    def _keep_portal(self, name: str, portal: _Portal) -> None:
        if len(self._portals) >= self._limits.portals:
            raise Refusal("54000", "too many open cursors; close some of them")
        self._portals[name] = portal

    async def _find_types(self, prepared: _Prepared, count: int) -> tuple[int, ...]:
        given = prepared.given[:count]
        if len(given) < count or not all(oid not in (0, UNKNOWN) for oid in given):
            _, inferred = await self._find_shape(prepared)
            return _merge(given, inferred, count)
        return given

    async def _find_shape(self, prepared: _Prepared, *, anew: bool = False) -> Shape:
        """Returns the columns of a statement, None if it has no rows, and the types of its parameters; free.

        `anew` if the client is told of them now: with intervals as they are set now.
        """
        command = prepared.command
        if self._status == "E" and command.kind not in _ENDINGS:
            raise _aborted()
        if command.kind == "show":
            return self._settings.show(command.name).columns, ()
        if command.kind == "fetch":
            portal = self._find_portal(command.name)
            return (await self._find_shape(portal.prepared))[0], ()
        if command.kind not in ("question", "declare", "copy", "explain"):
            return None, ()
        if prepared.shape is None or (anew and prepared.intervals != self._settings.intervals):
            prepared.intervals = self._settings.intervals
            prepared.shape = await self.asker.describe(prepared.query, prepared.given)
        columns, oids = prepared.shape
        if command.kind == "explain":
            columns = (Column("QUERY PLAN", TEXT),)
        return (columns if command.kind in ("question", "explain") else None), oids

    # What they do.

    async def _run(self, portal: _Portal, *, most: int, describes: bool) -> None:
        command = portal.prepared.command
        if self._status == "E" and command.kind not in (*_ENDINGS, "empty"):
            raise _aborted()
        match command.kind:
            case "empty":
                self._stream.send(message(b"I"))
                return
            case "question" | "show" | "fetch" | "explain":
                await self._send_answer(portal, most=most, describes=describes)
                return
            case "copy":
                await self._send_copy(portal, command.form)
                return
            case "declare":
                if command.local and self._status == "I" and not describes:
                    raise Refusal("25P01", "a cursor without hold needs a transaction")
                if command.name in self._portals:
                    raise Refusal("42P03", f"there is a cursor {command.name[:63]!r} already")
                prepared = replace(portal.prepared, command=Command(kind="question", query=command.query))
                cursor = _Portal(prepared, portal.parameters, holds=not command.local)
                self._keep_portal(command.name, cursor)
                tag = command.tag
            case "move":
                tag = f"MOVE {len(await self._fetch(command))}"
            case _:
                tag = self._do(command)
        self._complete(tag)

    def _do(self, command: Command) -> str:
        """Does a command that asks nobody; returns its tag."""
        settings = self._settings
        match command.kind:
            case "set":
                settings.change(command.name, command.value or "", local=command.local)
            case "reset":
                settings.reset(command.name)
            case "close":
                if command.name:
                    self._find_portal(command.name)
                    del self._portals[command.name]
                else:
                    self._portals.clear()
            case "deallocate":
                if command.name:
                    self._find_prepared(command.name)
                    del self._prepared[command.name]
                else:
                    self._prepared.clear()
            case "discard":
                if command.name == "ALL":
                    self._prepared.clear()
                    self._portals.clear()
                    settings.reset("all")
            case _:
                return self._transact(command)
        return command.tag

    def _transact(self, command: Command) -> str:
        match command.kind:
            case "begin":
                if self._status == "T":
                    self._notice(
                        "there is already a transaction in progress", severity="WARNING", code="25001"
                    )
                else:
                    self._settings.begin()
                    self._status, self._savepoints, self._spent_before = "T", [], self.asker.spent
            case "commit" | "rollback":
                if self._status == "I":
                    self._notice("there is no transaction in progress", severity="WARNING", code="25P01")
                    return command.tag
                keeps = command.kind == "commit" and self._status == "T"
                spent = self.asker.spent - self._spent_before
                if spent and not keeps:
                    self._notice(f"a rollback gives nothing back: epsilon {format_exact(spent)} stays spent")
                self._settings.end(keep=keeps)
                self._status = "I"
                self._end_implicit()
                return "COMMIT" if keeps else "ROLLBACK"
            case "savepoint":
                self._check_block()
                if len(self._savepoints) >= self._limits.portals:
                    raise Refusal("54000", "too many savepoints")
                self._savepoints.append(command.name)
            case "release" | "rollback to":
                self._check_block()
                if command.name not in self._savepoints:
                    raise Refusal("3B001", f"there is no savepoint {command.name[:63]!r}")
                place = len(self._savepoints) - self._savepoints[::-1].index(command.name)
                del self._savepoints[place - (command.kind == "release") :]
                self._status = "T"
        return command.tag

    def _check_block(self) -> None:
        if self._status == "I":
            raise Refusal("25P01", "savepoints are for transactions; BEGIN one first")

    async def _send_answer(self, portal: _Portal, *, most: int, describes: bool) -> None:
        rows = await self._open(portal)
        formats = _spread(portal.formats, len(rows.columns))
        if describes:
            self._stream.send(row_description(rows.columns, formats))
        start = portal.place
        stop = min(start + most, len(rows)) if most else len(rows)
        for place in range(start, stop, _BLOCK):
            for row in rows.take(place, min(place + _BLOCK, stop)):
                self._stream.send(data_row(_encode_row(row, rows.columns, formats)))
                if self._stream.is_full:
                    await self._stream.flush()
        portal.place = stop
        if stop < len(rows):
            self._stream.send(message(b"s"))
        else:
            self._complete(rows.word if rows.word in ("SHOW", "EXPLAIN") else f"{rows.word} {stop - start}")

    async def _send_copy(self, portal: _Portal, form: CopyForm) -> None:
        rows = await self._open(portal)
        width = len(rows.columns)
        binary = form.style == "binary"
        formats = (int(binary),) * width
        self._stream.send(message(b"H", struct.pack(f"!BH{width}H", binary, width, *formats)))
        if form.header and form.style == "csv":
            self._stream.send(message(b"d", form.write([column.name.encode() for column in rows.columns])))
        # Some clients want the head of the binary form in the message of the first row.
        head = _COPY_HEAD if binary else b""
        for place in range(0, len(rows), _BLOCK):
            for row in rows.take(place, place + _BLOCK):
                values = _encode_row(row, rows.columns, formats)
                self._stream.send(message(b"d", head, data_row(values)[5:] if binary else form.write(values)))
                head = b""
                if self._stream.is_full:
                    await self._stream.flush()
        if binary:
            self._stream.send(message(b"d", head, b"\xff\xff"))
        self._stream.send(message(b"c"))
        self._complete(f"COPY {len(rows)}")

    async def _fetch(self, command: Command) -> Rows:
        """Returns the rows that FETCH or MOVE goes over; the cursor then stands on the last of them."""
        cursor = self._find_portal(command.name)
        rows = await self._open(cursor)
        stretch, cursor.place = move_cursor(cursor.place, len(rows), command.direction)
        return replace(rows, stretch=stretch, word="FETCH", notes=())

    async def _open(self, portal: _Portal) -> Rows:
        """Returns the rows of a portal; asked for once, when they are first wanted."""
        if portal.rows is None:
            prepared = portal.prepared
            command = prepared.command
            if command.kind == "show":
                portal.rows = self._settings.show(command.name)
            elif command.kind == "fetch":
                portal.rows = await self._fetch(command)
            elif command.kind == "explain":
                portal.rows = await self.asker.explain(prepared.query, portal.parameters)
            else:
                columns = prepared.shape[0] if prepared.shape else None
                portal.rows = await self.asker.ask(
                    prepared.query,
                    portal.parameters,
                    columns=columns,
                    intervals=self._settings.intervals if prepared.shape is None else prepared.intervals,
                )
            for note in portal.rows.notes:
                self._notice(note)
        return portal.rows

    def _complete(self, tag: str) -> None:
        self._stream.send(message(b"C", cstring(tag)))

    def _notice(self, text: str, *, severity: str = "NOTICE", code: str = "00000") -> None:
        if self._settings.wants_notices:
            self._stream.send(notice_response(text, severity=severity, code=code))


def _encode_row(
    row: tuple[object, ...], columns: tuple[Column, ...], formats: tuple[int, ...]
) -> list[bytes | None]:
    return [
        encode(value, column.oid, form) for value, column, form in zip(row, columns, formats, strict=True)
    ]


def _spread(formats: tuple[int, ...], width: int) -> tuple[int, ...]:
    if len(formats) <= 1:
        return (formats or (0,)) * width
    if len(formats) != width:
        raise Refusal("08P01", f"{len(formats)} formats were given for {width} columns")
    return formats


def _merge(given: tuple[int, ...], inferred: tuple[int, ...], count: int) -> tuple[int, ...]:
    pairs = [
        (given[place] if place < len(given) else 0, inferred[place] if place < len(inferred) else TEXT)
        for place in range(count)
    ]
    return tuple(named if named not in (0, UNKNOWN) else guess for named, guess in pairs)


def _aborted() -> Refusal:
    return Refusal("25P02", "the transaction has failed; its statements are ignored until it ends")
