"""Connections whose next request does not come in time: they are closed, or some hundreds fill the door."""

from __future__ import annotations

import asyncio

from uvicorn.protocols.http.h11_impl import H11Protocol

SECONDS = 30.0
"""How long a connection may take from its beginning, or a request from its first byte, to its headers end."""


class PatientProtocol(H11Protocol):
    """HTTP/1.1 that waits for requests only so long; uvicorn itself waits for ever once a byte has come."""

    _late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begins to wait for the first request."""
        super().connection_made(transport)
        self._wait()

    def data_received(self, data: bytes) -> None:
        """Goes on to wait while the request is not there."""
        super().data_received(data)
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        """Waits no more."""
        if self._late is not None:
            self._late.cancel()
        super().connection_lost(exc)

    @property
    def _is_waiting(self) -> bool:
        return self.cycle is None or bool(self.cycle.response_complete)

    def _wait(self) -> None:
        if not self._is_waiting and self._late is not None:
            self._late.cancel()
            self._late = None
        elif self._is_waiting and self._late is None:
            self._late = self.loop.call_later(SECONDS, self._give_up)

    def _give_up(self) -> None:
        self._late = None
        if self._is_waiting and not self.transport.is_closing():
            self.transport.close()
