"""PostgreSQL's messages on a stream: framing, TLS, what is said back, and bounds on size and patience."""

from __future__ import annotations

import asyncio
import ssl
import struct
from collections.abc import Iterable, Sequence

from sfumato.serve.catalog.tables import Column
from sfumato.serve.wire.values import type_size

_CHUNK = 2**16  # bytes that wait until they are sent


class Refusal(Exception):
    """What a client is told in place of an answer: SQLSTATE and sentence; `fatal` ends the connection."""

    def __init__(self, code: str, message: str, *, hint: str = "", fatal: bool = False) -> None:
        super().__init__(message)
        self.code = code
        self.hint = hint
        self.fatal = fatal


class Stream:
    """A connection: exact reads, collected writes, and TLS from any byte on.

    TLS is done here and not by the transport, so that bytes already read can still become its first ones:
    a client may begin with TLS, or send its greeting together with the request for it.
    """

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, patience: float
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._patience = patience
        self._seen = bytearray()
        self._unsent = bytearray()
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls: ssl.SSLObject | None = None

    @property
    def tls(self) -> ssl.SSLObject | None:
        """The TLS session, or None while the connection is plain."""
        return self._tls

    async def peek(self) -> int:
        """Returns the next byte, which stays to be read."""
        await self._fill(1)
        return self._seen[0]

    async def take(self, size: int) -> bytes:
        """Returns the next `size` bytes."""
        await self._fill(size)
        data = bytes(self._seen[:size])
        del self._seen[:size]
        return data

    async def read_message(self, *, most: int) -> tuple[bytes, bytes]:
        """Returns the kind and the body of the next message, which may have `most` bytes."""
        head = await self.take(5)
        length = int.from_bytes(head[1:], "big") - 4
        if not 0 <= length <= most:
            raise Refusal("08P01", f"a message has at most {most} bytes here", fatal=True)
        return head[:1], await self.take(length)

    async def start_tls(self, context: ssl.SSLContext) -> None:
        """Makes everything from the next byte on TLS."""
        self._incoming.write(bytes(self._seen))
        self._seen.clear()
        tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        while True:
            try:
                tls.do_handshake()
            except ssl.SSLWantReadError:
                await self._push()
                if not await self._feed():
                    raise ConnectionResetError from None
            except ssl.SSLError:
                await self._push()
                raise ConnectionAbortedError from None
            else:
                break
        self._tls = tls
        await self._push()

    def send(self, data: bytes) -> None:
        """Puts `data` among what the next flush sends."""
        self._unsent += data

    @property
    def is_full(self) -> bool:
        """Whether enough waits to be sent that it should be flushed."""
        return len(self._unsent) >= _CHUNK

    async def flush(self) -> None:
        """Sends what waits, and waits until the client has taken most of it; who takes nothing is left."""
        data = bytes(self._unsent)
        self._unsent.clear()
        if self._tls is not None:
            place = 0
            try:
                while place < len(data):
                    place += self._tls.write(data[place : place + _CHUNK])
            except ssl.SSLError:
                raise ConnectionAbortedError from None
            data = b""
        await self._push(data)

    async def close(self) -> None:
        """Sends what waits and ends the connection, whatever state it is in."""
        try:
            async with asyncio.timeout(1):
                await self.flush()
        except (OSError, ssl.SSLError, TimeoutError):
            self._writer.transport.abort()
        self._writer.close()

    async def _fill(self, size: int) -> None:
        while len(self._seen) < size:
            data = await self._receive()
            if not data:
                raise ConnectionResetError
            self._seen += data

    async def _receive(self) -> bytes:
        if self._tls is None:
            return await self._reader.read(_CHUNK)
        while True:
            try:
                return self._tls.read(_CHUNK)
            except ssl.SSLWantReadError:
                await self._push()
                if not await self._feed():
                    return b""
            except ssl.SSLError:
                return b""

    async def _feed(self) -> bool:
        data = await self._reader.read(_CHUNK)
        self._incoming.write(data)
        return bool(data)

    async def _push(self, data: bytes = b"") -> None:
        data += self._outgoing.read()
        if data:
            self._writer.write(data)
        try:
            async with asyncio.timeout(self._patience):
                await self._writer.drain()
        except TimeoutError:
            self._writer.transport.abort()
            raise ConnectionAbortedError from None


class Body:
    """The body of a message, read from its beginning; what does not fit is refused."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._place = 0

    def take(self, size: int) -> bytes:
        """Returns the next `size` bytes."""
        stop = self._place + size
        if size < 0 or stop > len(self._data):
            raise Refusal("08P01", "a message is shorter than it says")
        piece = self._data[self._place : stop]
        self._place = stop
        return piece

    def int16(self) -> int:
        """Returns the next two bytes, as a number without sign."""
        return int.from_bytes(self.take(2), "big")

    def int32(self) -> int:
        """Returns the next four bytes, as a number with sign."""
        return int.from_bytes(self.take(4), "big", signed=True)

    def text(self) -> str:
        """Returns the text up to the next zero byte."""
        stop = self._data.find(b"\0", self._place)
        if stop < 0:
            raise Refusal("08P01", "a text in a message does not end")
        piece = self.take(stop - self._place)
        self._place += 1
        return decode(piece)

    def lengths(self) -> list[bytes | None]:
        """As many values as the next number says, each with its length before it; None where it is -1."""
        values: list[bytes | None] = []
        for _ in range(self.int16()):
            length = self.int32()
            values.append(None if length == -1 else self.take(length))
        return values

    def rest(self) -> bytes:
        """Returns what is left."""
        return self.take(len(self._data) - self._place)

    def end(self) -> None:
        """Refuses a message with more in it."""
        if self._place != len(self._data):
            raise Refusal("08P01", "a message is longer than what it says")


def decode(data: bytes) -> str:
    """Returns `data` as text; what is not UTF-8 is refused."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise Refusal("22021", "a text is not valid UTF-8") from None


def message(kind: bytes, *parts: bytes) -> bytes:
    r"""Returns a message of the server: its kind, its length, its parts.

    >>> message(b"Z", b"I")
    b'Z\x00\x00\x00\x05I'
    """
    body = b"".join(parts)
    return kind + struct.pack("!i", len(body) + 4) + body


def cstring(text: str) -> bytes:
    """Returns a text as messages hold it, ended by a zero byte."""
    return text.replace("\0", "").encode("utf-8", "replace") + b"\0"


def parameter_status(name: str, value: str) -> bytes:
    """Says what a setting is now."""
    return message(b"S", cstring(name), cstring(value))


def row_description(columns: Sequence[Column], formats: Sequence[int]) -> bytes:
    """Returns the names and types of an answer's columns, and whether each will be text (0) or binary (1)."""
    parts = [struct.pack("!H", len(columns))]
    for column, form in zip(columns, formats, strict=True):
        parts.append(cstring(column.name))
        parts.append(struct.pack("!IhIhih", 0, 0, column.oid, type_size(column.oid), -1, form))
    return message(b"T", *parts)


def data_row(values: Iterable[bytes | None]) -> bytes:
    """Returns one row of values that are encoded already."""
    parts = [
        b"\xff\xff\xff\xff" if value is None else struct.pack("!i", len(value)) + value for value in values
    ]
    return message(b"D", struct.pack("!H", len(parts)), *parts)


def error_response(refusal: Refusal) -> bytes:
    """Returns an error, with its SQLSTATE."""
    severity = "FATAL" if refusal.fatal else "ERROR"
    return message(b"E", _fields(severity, refusal.code, str(refusal), refusal.hint))


def notice_response(text: str, *, severity: str = "NOTICE", code: str = "00000") -> bytes:
    """Returns a sentence beside an answer."""
    return message(b"N", _fields(severity, code, text, ""))


def _fields(severity: str, code: str, text: str, hint: str) -> bytes:
    fields = {"S": severity, "V": severity, "C": code, "M": text, "H": hint}
    return b"".join(key.encode() + cstring(value) for key, value in fields.items() if value) + b"\0"
